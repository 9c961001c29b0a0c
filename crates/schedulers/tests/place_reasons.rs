//! Why tasks are placed where they are: what policies say follows from their rules, and is true of the CPU.

use std::collections::BTreeMap;

use crate::support::random::Dice;
use crate::support::then_forever;
use crate::support::{
    MS, Run, S, Scene, TWO_LLCS_OF_8, US, forever, on_cpu, on_cpus, once, placements, run_for, sleep, spin,
};
use warmcore_schedulers::list;
use warmcore_trace::SearchStep;
use warmcore_workload::{Affinity, ChannelKind, Step};

/// Words of the placements of a task at wakeups from a time on, each with the CPU.
fn told(run: &Run, name: &str, from_ns: u64) -> Vec<(&'static str, &'static str, u32)> {
    let told = run.placed(name, from_ns).into_iter();
    told.map(|placed| (placed.words().0, placed.words().1, placed.cpu.0)).collect()
}

/// A task that sleeps on CPU 12 of the second LLC, and may then use `allowed`, is woken by one that is bound to CPU 3 of the first.
fn woken_across_llcs(scheduler: &str, by_pipe: bool, allowed: Affinity) -> (&'static str, &'static str, u32) {
    let mut scene = Scene::lasting(200 * MS);
    let channel = scene.workload.add_channel("pipe", ChannelKind::Pipe, 65_536);
    let semaphore = scene.workload.add_semaphore("semaphore", 0);
    let (wake, wait) = if by_pipe {
        (Step::Send { channel, bytes: 64 }, Step::Receive { channel, bytes: 64 })
    } else {
        (Step::SemPost(semaphore), Step::SemWait(semaphore))
    };
    scene.task("wakee", once([run_for(MS), Step::SetAffinity(allowed), wait, run_for(MS)])).affinity = on_cpu(12);
    scene.task("waker", once([run_for(100 * MS), wake, sleep(20 * MS)])).affinity = on_cpu(3);
    told(&scene.run(TWO_LLCS_OF_8, scheduler), "wakee", 50 * MS)[0]
}

/// `docs/spec/linux-fair.md` section 4.3, by its steps.
#[test]
fn wake_affine_tells_which_of_its_tests_decided() {
    for scheduler in ["eevdf", "cache-aware", "topology-aware", "cfs"] {
        let idle = woken_across_llcs(scheduler, false, Affinity::All);
        assert_eq!(idle, ("previous_idle", "target_idle", 12), "{scheduler}: step 3, the previous CPU is idle");
        let (start, step, cpu) = woken_across_llcs(scheduler, true, Affinity::All);
        assert_eq!((start, step), ("waker_sync", "cpu_idle"), "{scheduler}: step 2, the waker is alone and will sleep");
        assert!(cpu < 8 && cpu != 3, "{scheduler}: an idle CPU of the waker's LLC, not {cpu}");
        let forbidden = woken_across_llcs(scheduler, true, on_cpus(8..16));
        assert_eq!(forbidden, ("waker_forbidden", "target_idle", 12), "{scheduler}");
        let bound = woken_across_llcs(scheduler, true, on_cpu(12));
        assert_eq!(bound, ("nowhere", "only_cpu", 12), "{scheduler}: the kernel asks no class");
    }
    // 4.9 compares loads only, and the waker's is not the smaller one.
    assert_eq!(woken_across_llcs("cfs:kernel=4.9", false, Affinity::All), ("previous_lighter", "target_idle", 12));
}

/// A task that sleeps on CPU 0, woken there by its timer, beside spinners that are bound to some CPUs.
fn woken_beside_spinners(machine: &str, scheduler: &str, spinners: &[u32]) -> Vec<(&'static str, &'static str, u32)> {
    let mut scene = Scene::lasting(2 * S);
    for cpu in spinners {
        scene.task(&format!("spinner {cpu}"), spin()).affinity = on_cpu(*cpu);
    }
    let round = [Step::SetAffinity(on_cpu(0)), run_for(50 * US), Step::SetAffinity(Affinity::All), sleep(MS)];
    scene.task("sleeper", then_forever([sleep(S)], round)).affinity = on_cpu(0);
    // From the first long sleep it is woken where it is bound to.
    let told = told(&scene.run(machine, scheduler), "sleeper", S);
    told.into_iter().skip_while(|told| told.1 == "only_cpu").collect()
}

/// `docs/spec/linux-fair.md` sections 4.4 and 4.5, by their steps.
#[test]
fn the_search_for_an_idle_cpu_tells_the_step_that_ended_it() {
    let eevdf = "eevdf:delay_dequeue=0";
    let unlimited = "eevdf:delay_dequeue=0,sis_util=0";
    let all = |machine, scheduler, spinners: &[u32]| {
        let mut told = woken_beside_spinners(machine, scheduler, spinners);
        told.dedup();
        told
    };
    assert_eq!(all("1s1n1l4c1t", eevdf, &[]), [("same_cpu", "target_idle", 0)]);
    assert_eq!(all("1s1n1l4c1t", unlimited, &[0, 1, 3]), [("same_cpu", "cpu_idle", 2)], "CPU 2 is the only idle one");
    assert_eq!(all("1s1n1l4c1t", unlimited, &[0, 1, 2, 3]), [("same_cpu", "none_idle", 0)]);
    let crowded: Vec<u32> = (0..15).collect();
    assert_eq!(all("1s1n1l16c1t", eevdf, &crowded), [("same_cpu", "not_scanned", 0)], "at 94 % the limit is 0");
    // Of two threads with as many flips of wakees each, one CPU of an LLC is crowded already.
    assert_eq!(all("1s1n2l1c1t", eevdf, &[0]), [("wake_wide", "no_shared_cache", 0)], "an LLC of one CPU");
    // Two cores, CPUs 0 and 2 and CPUs 1 and 3.
    assert_eq!(all("1s1n1l2c2t", unlimited, &[0]), [("same_cpu", "core_idle", 1)], "before the sibling, CPU 2");
    let busy = woken_beside_spinners("1s1n1l2c2t", unlimited, &[0, 1]);
    assert_eq!(busy[1..].iter().find(|told| **told != ("same_cpu", "sibling_idle", 2)), None, "{busy:?}");
}

#[test]
fn a_task_that_is_still_queued_is_not_placed_anew() {
    let mut scene = Scene::lasting(S);
    scene.task("spinner", spin()).affinity = on_cpus([0, 1]);
    scene.task("other", spin()).affinity = on_cpus([0, 1]);
    // Ahead of its fair share when it sleeps, so that its sleep is delayed; back before the queue would let go of it.
    scene.task("blinks", forever([run_for(2 * MS), sleep(20 * US)])).affinity = on_cpus([0, 1]);
    let run = scene.run("1s1n1l2c1t", "eevdf");
    let queued = run.placed("blinks", 0).into_iter().filter(|placed| placed.words().1 == "still_queued").count();
    assert!(queued > 10, "{queued}");
}

/// `docs/spec/linux-fair.md` section 4.6.
#[test]
fn a_new_task_is_told_the_level_at_which_another_group_was_idler() {
    let levels = |machine: &str, tasks: u32| {
        let mut scene = Scene::lasting(10 * MS);
        scene.task("spinner", spin()).instances = tasks;
        let mut levels = BTreeMap::new();
        for placed in placements(&scene.run(machine, "eevdf").events) {
            assert_eq!(placed.words().0, "creator");
            *levels.entry(placed.words().1).or_insert(0) += 1;
        }
        levels
    };
    // The launcher's own CPU is busy, so the first goes to the other side, whatever that is.
    assert_eq!(levels("1s1n1l4c1t", 1), BTreeMap::from([("idlest_mc", 1)]));
    assert_eq!(levels("1s1n2l2c1t", 1), BTreeMap::from([("idlest_pkg", 1)]));
    assert_eq!(levels("1s1n1l1c2t", 1), BTreeMap::from([("idlest_smt", 1)]));
    let nodes = levels("2s1n1l2c1t", 4);
    assert!(nodes.contains_key("idlest_numa"), "{nodes:?}");
}

/// `docs/spec/ule.md` section 9.
#[test]
fn ule_tells_the_step_of_its_search() {
    let first = |spinners| woken_beside_spinners("1s1n1l4c1t", "ule", spinners)[0];
    assert_eq!(first(&[]), ("previous", "last_idle", 0), "its caches are warm");
    let mut scene = Scene::lasting(10 * MS);
    scene.task("new", spin());
    assert_eq!(told(&scene.run("1s1n1l4c1t", "ule"), "new", 0)[0].1, "least_first", "nothing is warm");
}

/// `docs/spec/sched-ext.md` section 7.
#[test]
fn the_built_in_selection_of_sched_ext_tells_its_step() {
    let all = |machine, spinners: &[u32]| {
        let mut told = woken_beside_spinners(machine, "scx-native", spinners);
        told.dedup();
        told
    };
    assert_eq!(all("1s1n1l4c1t", &[]), [("previous", "previous_claimed", 0)]);
    assert_eq!(all("1s1n2l2c1t", &[0]), [("previous", "llc_cpu", 1)], "in the previous CPU's LLC first");
    assert_eq!(all("1s1n1l2c1t", &[0, 1]), [("previous", "none_claimed", 0)]);
    assert_eq!(all("1s1n1l2c2t", &[]), [("previous", "previous_core", 0)]);
    assert_eq!(all("1s1n1l2c2t", &[0, 1]), [("previous", "sibling_claimed", 2)]);
}

#[test]
fn small_policies_tell_their_own_rules() {
    let first = |scheduler: &str, spinners: &[u32]| woken_beside_spinners("1s1n1l2c1t", scheduler, spinners)[0];
    for scheduler in ["rr", "fifo"] {
        assert_eq!(first(scheduler, &[]), ("previous", "previous_free", 0), "{scheduler}");
    }
    assert_eq!(first("rr", &[0]), ("previous", "first_free", 1));
    assert_eq!(first("rr", &[0, 1]).1, "none_free");
    assert_eq!(first("fifo", &[0]), ("previous", "shortest_queue", 1));
    assert_eq!(first("fewest-tasks", &[]), ("previous", "group_previous_free", 0));
    assert_eq!(first("fewest-tasks", &[0]), ("previous", "group_first_free", 1));
}

/// Whether the CPU lies in the LLC that the step says it does.
fn step_names_the_targets_llc(step: SearchStep) -> bool {
    use SearchStep::*;
    matches!(
        step,
        PreviousIdle | RecentIdle | SiblingIdle | CoreIdle | CpuIdle | ThreadIdle | LlcCore | LlcCpu | SiblingClaimed
    )
}

/// Sides are checked with every trace ([`crate::support::trace_check`]).
#[test]
fn every_scheduler_tells_of_every_place_in_random_workloads_and_what_it_tells_is_true() {
    const MACHINES: [(&str, u32); 5] =
        [("1s1n1l1c1t", 1), ("1s1n1l2c2t", 4), ("1s1n2l2c1t", 4), ("2s1n2l2c1t", 8), ("2s2n1l2c2t", 16)];
    let readings = ["cfs:kernel=4.9", "topology-aware:wake_hint=1,epoch_period=1", "ule:profile=paper-text"];
    for scheduler in list().iter().map(|row| row.name).chain(readings) {
        let mut steps = 0;
        for seed in 0..60 {
            let mut dice = Dice::new(seed);
            let (machine, cpus) = MACHINES[dice.below(MACHINES.len() as u64) as usize];
            let scene = dice.scene(cpus);
            let run = match scene.try_run(machine, scheduler, seed) {
                Ok(run) => run,
                Err(error) => panic!("workload {seed} on {machine} under {scheduler}: {error}"),
            };
            for placed in placements(&run.events) {
                let reason = placed.reason.unwrap_or_else(|| panic!("{scheduler} does not say why: {placed:?}"));
                steps += 1;
                if step_names_the_targets_llc(reason.step)
                    && let Some(target) = placed.target()
                {
                    let llc = |cpu| run.machine.llc_of(cpu);
                    assert_eq!(llc(placed.cpu), llc(target), "{scheduler}: {placed:?}");
                }
            }
        }
        assert!(steps > 1000, "{scheduler}: {steps} placements");
    }
}
