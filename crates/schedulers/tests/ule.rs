//! The list of `docs/spec/ule.md` section 17, as far as whole runs show it; rules without a run are tested beside their code.

mod idle_threads;

use std::collections::BTreeSet;

use crate::support::*;
use warmcore_schedulers::{SchedulerSpec, decisions};
use warmcore_topology::{Machine, from_toml};
use warmcore_trace::{DecisionKind, EventKind, MigrationKind, PrevState, TaskId};
use warmcore_workload::{ProgramBuilder, Step};

/// Events of a kind of decision: when, about whom, value.
fn decided(run: &Run, name: &str) -> Vec<(u64, TaskId, i64)> {
    let names: Vec<String> = decisions(&SchedulerSpec::parse("ule").unwrap()).iter().map(DecisionKind::name).collect();
    assert!(names.iter().any(|known| known.starts_with(name)), "there is no decision `{name}`");
    let of_name = |event: &warmcore_trace::Event| match event.kind {
        EventKind::Decision { decision, task, value } if names[decision as usize].starts_with(name) => {
            Some((event.time_ns, task, value))
        }
        _ => None,
    };
    run.events.iter().filter_map(of_name).collect()
}

/// The parent is charged with its child's run time, not with its sleep: one that has slept a little and whose child computed for long
/// is batch afterwards.
#[test]
fn ule_17_2_an_ending_child_leaves_its_run_time() {
    let class_after = |child_steps: [Step; 1]| {
        let mut scene = Scene::new();
        let child = scene.template("child", once(child_steps));
        scene.task("parent", once([sleep(100 * MS), Step::Fork(child), Step::Join { count: 1 }, run_for(50 * MS)]));
        let run = scene.run("1s1n1l1c1t", "ule:hz=127");
        let parent = run.id("parent");
        decided(&run, "thread is batch").iter().any(|(_, task, _)| *task == parent)
    };
    assert!(class_after([run_for(3 * S)]), "three seconds of run time outweigh its sleep");
    assert!(!class_after([sleep(3 * S)]));
}

/// By hand: the shell sleeps for 0.1 s and the 2 s that its compiler runs, and has 0.5 s of sleep from before. Charged with 2 s its score is
/// 50 · 2 / 2.6 = 38, batch; otherwise 0. A process that ends charges the parent process's first thread, a thread that of its own process; if
/// that has ended, the next. With another thread before itself the shell is not charged, as in files whose tasks are all one process.
#[test]
fn ule_17_2_an_ending_process_charges_the_first_thread_of_its_parent() {
    let batch = |profile: &str, own_process: bool, first_ms: u64| {
        let mut scene = Scene::new();
        let compiler = scene.template("compiler", once([run_for(2 * S)]));
        if own_process {
            scene.workload.tasks[compiler.index()].process = scene.workload.add_process("compiler");
        }
        let first = scene.task("first", once([sleep(first_ms.max(1) * MS)]));
        first.instances = u32::from(first_ms > 0);
        let shell = once([sleep(100 * MS), Step::Fork(compiler), Step::Join { count: 1 }, run_for(20 * MS)]);
        scene.task("shell", shell);
        let run = scene.run("1s1n1l1c1t", &format!("ule:profile={profile},hz=127"));
        let shell = run.id("shell");
        decided(&run, "thread is batch").iter().any(|(_, task, _)| *task == shell)
    };
    for profile in ["freebsd11", "modern"] {
        for own_process in [false, true] {
            assert!(batch(profile, own_process, 0), "{profile}: the shell is first");
            assert!(batch(profile, own_process, 50), "{profile}: the first one has ended");
            assert!(!batch(profile, own_process, 5_000), "{profile}: another is first");
        }
    }
    assert!(batch("paper-port", false, 0) && !batch("paper-port", true, 0), "the port knows no parents");
}

/// The port charges who makes a thread with a tick, and cuts the thread's history: 128 threads cost a master its interactivity. In FreeBSD
/// it costs what it takes, some milliseconds, and the threads have all of its history.
#[test]
fn ule_17_2_threads_cost_their_maker_a_tick_in_the_port_only() {
    let is_batch = |profile: &str| {
        let mut scene = Scene::lasting(2 * S);
        let thread = scene.template("thread", once([sleep(S)]));
        let forks = ProgramBuilder::new().repeat(Some(128), |body| body.step(Step::Fork(thread)));
        scene.task("master", forks.step(Step::Join { count: 128 }));
        let run = scene.run("1s1n1l1c1t", &format!("ule:profile={profile}"));
        let master = run.id("master");
        decided(&run, "thread is batch").iter().any(|(_, task, _)| *task == master)
    };
    assert!(is_batch("paper-port") && is_batch("paper-text"));
    assert!(!is_batch("freebsd11") && !is_batch("modern"));
}

/// Two hogs and a thread that sleeps most of the time, interactive: with and without a yield in the middle of its work it has all the
/// time it wants (docs/spec/ule.md section 5).
#[test]
fn ule_5_a_yield_costs_an_interactive_thread_nothing() {
    for profile in ["freebsd11", "paper-port", "paper-text", "modern"] {
        let cpu_time = |steps: &[Step]| {
            let mut scene = Scene::lasting(20 * S);
            scene.task("hog", spin()).instances = 2;
            let body = |body: ProgramBuilder| steps.iter().fold(body, |body, step| body.step(step.clone()));
            scene.task("sleeper", ProgramBuilder::new().repeat(None, body));
            let run = scene.run("1s1n1l1c1t", &format!("ule:profile={profile}"));
            run.cpu_time_between("sleeper", 0, 20 * S) as f64 / S as f64
        };
        let plain = cpu_time(&[run_for(400 * US), sleep(5 * MS)]);
        let yielding = cpu_time(&[run_for(200 * US), Step::Yield, run_for(200 * US), sleep(5 * MS)]);
        assert_near(profile, yielding, plain, 0.02);
    }
}

#[test]
fn ule_17_4_equal_hogs_take_turns() {
    let mut scene = Scene::lasting(60 * S);
    scene.task("hog", spin()).instances = 64;
    for profile in ["freebsd11", "paper-port", "paper-text", "modern"] {
        let run = scene.run("1s1n1l1c1t", &format!("ule:profile={profile},hz=127"));
        let turns: Vec<TaskId> = run
            .events
            .iter()
            .filter_map(|event| match event.kind {
                EventKind::Switch { next, .. } if !next.is_idle() && event.time_ns > 30 * S => Some(next),
                _ => None,
            })
            .collect();
        assert!(turns.len() > 256, "{profile}");
        for round in turns.chunks_exact(64) {
            assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 64, "{profile}: everybody once a round");
        }
    }
}

#[test]
fn ule_17_4_the_nicest_hog_still_runs() {
    let mut scene = Scene::lasting(60 * S);
    scene.task("hog", spin()).instances = 6;
    scene.task("nice", spin()).nice = 19;
    for profile in ["freebsd11", "paper-port", "modern"] {
        let run = scene.run("1s1n1l1c1t", &format!("ule:profile={profile},hz=127"));
        let (nice, hog) = (run.cpu_time_between("nice", 20 * S, 60 * S), run.cpu_time_between("hog-0", 20 * S, 60 * S));
        assert!(nice > S / 2 && nice < hog, "{profile}: {nice} of {hog}");
    }
}

/// A batch thread that slept is queued at the best batch priority: it waits for one turn, not for a round of eight.
#[test]
fn ule_17_4_a_batch_thread_that_slept_runs_next() {
    let mut scene = Scene::lasting(40 * S);
    scene.task("hog", spin()).instances = 8;
    scene.task("slept", forever([run_for(200 * MS), sleep(20 * MS)]));
    let run = scene.run("1s1n1l1c1t", "ule:hz=127");
    let late: Vec<u64> =
        run.wakeups("slept").iter().filter(|span| span.waking_ns > 10 * S).map(WakeupSpan::latency_ns).collect();
    assert!(late.len() >= 5, "{}", late.len());
    // The shortest slice is two ticks of 7.9 ms; a round of the others takes eight.
    assert!(late.iter().all(|&latency_ns| latency_ns <= 3 * S / 127), "{late:?}");
}

/// Ten ticks with one other, two with five; a running slice is cut when threads arrive. (FreeBSD's new threads are interactive and
/// run at once.)
#[test]
fn ule_17_5_arriving_threads_shorten_the_slice() {
    let mut scene = Scene::lasting(20 * S);
    scene.task("early", spin()).instances = 2;
    let late = scene.task("late", spin());
    (late.instances, late.start_ns) = (4, 10 * S);
    let run = scene.run("1s1n1l1c1t", "ule:profile=paper-port,hz=127");
    let ticks = |from_ns: u64, to_ns: u64| -> BTreeSet<u64> {
        let stays = run.stays_from("early-0", from_ns).into_iter().filter(|stay| stay.end_ns < to_ns);
        stays.map(|stay| (stay.length_ns() * 127 + S / 2) / S).collect()
    };
    assert_eq!(ticks(5 * S, 10 * S), BTreeSet::from([10]));
    assert_eq!(ticks(12 * S, 20 * S), BTreeSet::from([2]), "with five others");
    let across = run.stays("early-0").into_iter().chain(run.stays("early-1"));
    let across = across.filter(|stay| stay.start_ns < 10 * S && stay.end_ns > 10 * S).map(|stay| stay.length_ns());
    assert!(across.max().unwrap() < 10 * S / 127, "the slice that ran was cut");
}

/// Sleeps of less than two ticks of 1 ms keep the CPU; below three the LLC; longer ones nothing.
#[test]
fn ule_17_6_affinity_is_kept_for_as_long_as_caches_are_warm() {
    let homes = |sleep_ns: u64, seed: u64| {
        let mut scene = Scene::lasting(3 * S);
        scene.task("sleeper", forever([run_for(100 * US), sleep(sleep_ns)])).start_cpu = Some(5);
        let run = scene.run_with_seed("1s1n4l4c1t", "ule:hz=127", seed);
        let cpus: BTreeSet<u32> = run.stays("sleeper").iter().map(|stay| stay.cpu).collect();
        let llcs: BTreeSet<u32> = cpus.iter().map(|cpu| cpu / 4).collect();
        (cpus.len(), llcs.len())
    };
    for seed in 1..=5 {
        assert_eq!(homes(800 * US, seed), (1, 1), "seed {seed}");
    }
    // A hog takes its CPU: where it goes shows which group is searched.
    let llcs_after = |sleep_ns: u64| -> BTreeSet<u32> {
        let llc_after = |seed| {
            let mut scene = Scene::lasting(S);
            scene.task("sleeper", forever([run_for(100 * US), sleep(sleep_ns)]));
            let home = scene.run_with_seed("1s1n4l4c1t", "ule:hz=127", seed).place("sleeper", 500 * MS);
            let hog = scene.task("hog", spin());
            (hog.affinity, hog.start_ns) = (on_cpu(home), 500 * MS);
            let after = scene.run_with_seed("1s1n4l4c1t", "ule:hz=127", seed).place("sleeper", 600 * MS);
            assert_ne!(after, home, "seed {seed}");
            (4 + after / 4 - home / 4) % 4
        };
        (1..=20).map(llc_after).collect()
    };
    assert_eq!(llcs_after(1_700 * US), BTreeSet::from([0]));
    // The hog weighs on the sum of its LLC.
    assert_eq!(llcs_after(6 * MS), BTreeSet::from([1, 2, 3]));
}

#[test]
fn ule_17_6_ties_are_broken_by_the_seed() {
    let first_cpus = |seed| {
        let mut scene = Scene::lasting(100 * MS);
        scene.task("spinner", spin()).instances = 4;
        scene.run_with_seed("1s1n1l8c1t", "ule", seed).tasks_per_cpu(50 * MS)
    };
    assert_eq!(first_cpus(1), first_cpus(1));
    assert!((1..=20).map(first_cpus).collect::<BTreeSet<_>>().len() > 3);
}

/// Hogs released on one CPU of four: idle CPUs steal one each at once, then every pass moves one to each of the others.
#[test]
fn ule_17_8_a_pass_moves_a_thread_per_cpu_at_most_and_a_difference_of_one_moves() {
    let scene = released(17, 5 * S, 40 * S);
    let run = scene.run("1s1n1l4c1t", "ule:profile=paper-port");
    assert_eq!(run.tasks_per_cpu(5 * S + 100 * MS), [14, 1, 1, 1]);
    let passes = decided(&run, "balancer pass");
    let moves = run.moves();
    for (time_ns, _, moved) in passes {
        let of_pass: Vec<_> =
            moves.iter().filter(|a_move| a_move.time_ns == time_ns && a_move.kind == MigrationKind::Balance).collect();
        assert_eq!(of_pass.len() as i64, moved);
        let cpus: BTreeSet<u32> = of_pass.iter().flat_map(|a_move| [a_move.from, a_move.to]).collect();
        assert_eq!(cpus.len(), 2 * of_pass.len(), "every CPU gives once or receives once");
    }
    let mut counts = run.tasks_per_cpu(44 * S);
    counts.sort_unstable();
    assert_eq!(counts, [4, 4, 4, 5]);
    // The odd one goes round: a difference of one moves.
    assert!(moves.iter().any(|a_move| a_move.time_ns > 40 * S && a_move.kind == MigrationKind::Balance));
}

#[test]
fn ule_17_8_without_the_balancer_only_idle_cpus_take() {
    let run = released(17, 5 * S, 40 * S).run("1s1n1l4c1t", "ule:profile=paper-port,balance=0");
    assert_eq!(run.tasks_per_cpu(44 * S), [14, 1, 1, 1]);
    assert!(decided(&run, "balancer pass").is_empty());
}

/// A machine of LLCs of unequal size.
fn of_llcs(nodes: &[&str], llcs: &str) -> Machine {
    let nodes: Vec<String> =
        nodes.iter().enumerate().map(|(id, cpus)| format!("{{ id = {id}, cpus = \"{cpus}\" }}")).collect();
    let sockets = nodes.join(", ");
    from_toml(&format!("[topology]\nnodes = [{sockets}]\nsockets = [{sockets}]\nllcs = [{llcs}]\n")).unwrap()
}

/// Two hogs for each CPU, and one for each: no CPU is left out, alone in its LLC or node as it may be.
#[test]
fn a_cpu_alone_in_its_llc_or_node_works_like_others() {
    let machines = [
        of_llcs(&["0-4"], r#""0-3", "4""#),
        of_llcs(&["0-3"], r#""0", "1", "2-3""#),
        of_llcs(&["0", "1-3"], r#""0", "1-3""#),
        of_llcs(&["0-11"], r#""0", "1-2", "3-4", "5-7", "8-11""#),
    ];
    for (machine, profile) in machines.iter().flat_map(|machine| ["freebsd11", "modern"].map(|name| (machine, name))) {
        for per_cpu in [1, 2] {
            let mut scene = Scene::lasting(2 * S);
            scene.task("hog", spin()).instances = per_cpu * machine.cpu_count() as u32;
            let run = scene.try_run_on(machine, &format!("ule:profile={profile}"), 1).unwrap();
            let idle = run.tasks_per_cpu(1900 * MS).iter().filter(|tasks| **tasks == 0).count();
            assert_eq!(idle, 0, "{} CPUs, {profile}, {per_cpu} for each", machine.cpu_count());
        }
    }
}

/// CPU 6 is alone in its LLC. A thread that may run on CPUs 3 and 6 wakes while a hog runs on 3, and goes to 6.
#[test]
fn a_bound_thread_uses_the_free_cpu_that_is_alone_in_its_llc() {
    let machine = of_llcs(&["0-6"], r#""0-5", "6""#);
    for profile in ["freebsd11", "modern"] {
        let mut scene = Scene::lasting(S);
        scene.task("hog", spin()).affinity = on_cpu(3);
        scene.task("bound", forever([run_for(2 * MS), sleep(20 * MS)])).affinity = on_cpus([3, 6]);
        let run = scene.try_run_on(&machine, &format!("ule:profile={profile}"), 1).unwrap();
        assert!(run.stays_from("bound", 100 * MS).iter().all(|stay| stay.cpu == 6), "{profile}");
    }
}

/// Nothing but stealing spreads these threads: they become free while two of them wait for CPU 1, and CPU 0 is alone in its LLC.
#[test]
fn a_cpu_alone_in_its_llc_steals_and_is_balanced() {
    let machine = of_llcs(&["0-3"], r#""0", "1-3""#);
    let mut scene = Scene::lasting(10 * S);
    let hog = scene.task("hog", spin());
    (hog.instances, hog.affinity, hog.release_ns) = (8, on_cpus([1, 2, 3]), Some(S));
    // A thread whose sleeps have CPU 0 look for work.
    scene.task("pulse", forever([run_for(100 * US), sleep(30 * MS)])).affinity = on_cpu(0);
    for (spec, kind) in [("steal_idle=1,balance=0", MigrationKind::Steal), ("steal_idle=0", MigrationKind::Balance)] {
        let run = scene.try_run_on(&machine, &format!("ule:hz=127,{spec}"), 1).unwrap();
        let to_lone = run.moves().into_iter().filter(|to| to.to == 0 && to.kind == kind).count();
        assert!(to_lone > 0, "{spec}: {:?}", run.tasks_per_cpu(9 * S));
    }
}

/// `docs/spec/ule.md` section 16: two hogs on one LLC of two. Neither waits, so nobody can take one; FreeBSD 14 tells one to choose again.
#[test]
fn lone_threads_spread_over_the_llcs_only_in_modern() {
    let mut scene = Scene::lasting(20 * S);
    let hog = scene.task("hog", spin());
    (hog.instances, hog.affinity, hog.release_ns) = (2, on_cpus([0, 1]), Some(S));
    let llcs = |profile: &str| {
        let run = scene.run("1s1n2l2c1t", &format!("ule:profile={profile},hz=127"));
        assert_eq!(run.tasks_per_llc(900 * MS), [2, 0], "{profile}: bound");
        (run.tasks_per_llc(19 * S), decided(&run, "thread moved: it ran alone").len())
    };
    assert_eq!(llcs("freebsd11"), (vec![2, 0], 0));
    assert_eq!(llcs("modern"), (vec![1, 1], 1), "once, and nobody moves back");
}

/// The other hardware thread of a core is busy: the one that may leave does.
#[test]
fn lone_threads_leave_a_core_that_they_share_in_modern() {
    let mut scene = Scene::lasting(20 * S);
    let hog = scene.task("hog", spin());
    // CPUs 0 and 2 are a core, 1 and 3 the other.
    (hog.instances, hog.affinity, hog.release_ns) = (2, on_cpus([0, 2]), Some(S));
    let per_core = |profile: &str| {
        let counts = scene.run("1s1n1l2c2t", &format!("ule:profile={profile},hz=127")).tasks_per_cpu(19 * S);
        [counts[0] + counts[2], counts[1] + counts[3]]
    };
    assert_eq!((per_core("freebsd11"), per_core("modern")), ([2, 0], [1, 1]));
}

/// Before it switches to its idle thread a CPU looks two levels around, and from there in all; of two LLCs it looks at the other alone.
/// With `steal_idle=0` nobody looks.
#[test]
fn modern_pays_for_looking_twice() {
    // The idle CPUs' own looks begin after a second.
    let mut scene = Scene::lasting(900 * MS);
    let pinned = scene.task("pinned", spin());
    (pinned.instances, pinned.affinity) = (2, on_cpu(0));
    scene.task("sleeper", forever([run_for(100 * US), sleep(10 * MS)])).affinity = on_cpu(7);
    let balance_ns = |spec: &str| -> u64 {
        let run = scene.run("1s1n2l4c1t", &format!("ule:{spec},hz=127,balance=0"));
        run.outcome.cpus.iter().map(|cpu| cpu.overhead_ns[warmcore_trace::OverheadKind::Balance as usize]).sum()
    };
    let (before, modern) = (balance_ns("profile=freebsd11"), balance_ns("profile=modern"));
    assert_eq!(balance_ns("profile=modern,steal_idle=0"), 0);
    assert!(before > 0 && modern > 0);
    // FreeBSD 11 looks at 4 CPUs, then at 8, and once more because what it finds cannot be had. FreeBSD 14 looks at 4, then at the 4
    // others and gives up, and from the idle thread at 4 and twice at the 4 others.
    assert_near("looks of modern over those of 11", modern as f64 / before as f64, 20.0 / 20.0, 0.02);
}

/// Hogs on CPU 0 that are set free at a time.
fn released(count: u32, at_ns: u64, then_ns: u64) -> Scene {
    let mut scene = Scene::lasting(at_ns + then_ns);
    let hog = scene.task("hog", spin());
    (hog.instances, hog.affinity, hog.release_ns) = (count, on_cpu(0), Some(at_ns));
    scene
}

/// A shell's master makes 128 threads and then lets them begin: how many of them run, and how many have nothing while those do.
fn split(hz: u32) -> (usize, usize) {
    let mut scene = Scene::lasting(5 * S);
    let start = scene.workload.add_semaphore("start", 0);
    let thread = scene.template("thread", then_forever([Step::SemWait(start)], [run_for(2 * MS), sleep(20 * MS)]));
    // The sleep that it has from the shell is 0.50 to 0.56 s, depending on what the shell did: this wait puts it in the middle.
    let master = ProgramBuilder::new().step(sleep(30 * MS)).repeat(Some(128), |body| body.step(Step::Fork(thread)));
    let master = master.repeat(Some(128), |body| body.step(Step::SemPost(start)));
    scene.task("master", master.step(Step::Join { count: 128 }));
    let run = scene.run("1s1n1l1c1t", &format!("ule:profile=paper-port,hz={hz}"));
    let ran: Vec<bool> = (0..128).map(|n| run.cpu_time_between(&format!("thread-{n}"), S, 5 * S) > 0).collect();
    let first_without = ran.iter().position(|ran| !ran).unwrap_or(128);
    assert!(!ran[first_without..].contains(&true), "{hz} Hz: two groups by order of creation: {ran:?}");
    (first_without, 128 - first_without)
}

#[test]
fn ule_17_9_how_many_threads_of_a_master_are_interactive_depends_on_the_tick() {
    let splits = [127, 250, 1000].map(split);
    assert!((38..=43).contains(&splits[0].0), "127 Hz: {splits:?}");
    assert!((75..=85).contains(&splits[1].0), "250 Hz: {splits:?}");
    assert_eq!(splits[2], (128, 0), "1000 Hz: nobody starves");
}

/// The paper's 512 spinners on its machine: 481 and 31 at once, then one a pass.
#[test]
fn ule_17_9_512_released_spinners_are_balanced_after_465_passes() {
    let start_ns = 2 * S;
    let run = released(512, start_ns, 250 * S).run("opteron32", "ule:profile=paper-port");
    let at_once = run.tasks_per_cpu(start_ns + 50 * MS);
    assert_eq!((at_once[0], at_once[1..].iter().all(|&count| count == 1)), (481, true), "{at_once:?}");
    let mut counts = at_once;
    let mut balanced_ns = None;
    for a_move in run.moves().iter().filter(|a_move| a_move.time_ns > start_ns + 50 * MS) {
        counts[a_move.from as usize] -= 1;
        counts[a_move.to as usize] += 1;
        if balanced_ns.is_none() && counts.iter().all(|&count| count == 16) {
            balanced_ns = Some(a_move.time_ns);
        }
    }
    let balanced_ns = balanced_ns.expect("it balances");
    let passes = decided(&run, "balancer pass");
    let needed = passes.iter().filter(|(time_ns, ..)| (start_ns..=balanced_ns).contains(time_ns)).count();
    println!("{needed} passes, {} s", (balanced_ns - start_ns) / S);
    assert!((460..=470).contains(&needed), "{needed}");
    assert_near("seconds to balance", (balanced_ns - start_ns) as f64 / 1e9, 237.0, 0.05);
}

/// A hog beside a database that keeps the core busy has nothing once it is batch, 0.35 s after it began.
#[test]
fn interactive_threads_starve_a_hog() {
    for profile in ["freebsd11", "paper-port", "paper-text", "modern"] {
        let mut scene = Scene::lasting(12 * S);
        scene.task("hog", spin());
        let thread = scene.task("thread", forever([run_for(2 * MS), sleep(20 * MS)]));
        (thread.instances, thread.start_ns) = (40, S);
        let run = scene.run("1s1n1l1c1t", &format!("ule:profile={profile}"));
        assert_eq!(run.cpu_time_between("hog", 1_100 * MS, 12 * S), 0, "{profile}");
        let became = decided(&run, "thread is batch")[0].0;
        assert!((290 * MS..=350 * MS).contains(&became), "{profile}: batch after {became} ns");
    }
}

/// Nobody loses a CPU but at the end of a slice: the port knows no preemption among time-sharing threads.
#[test]
fn the_port_does_not_preempt_a_batch_thread_for_an_interactive_one() {
    let mut scene = Scene::lasting(5 * S);
    scene.task("hog", spin());
    let sleeper = scene.task("sleeper", forever([run_for(MS), sleep(30 * MS)]));
    sleeper.start_ns = 2 * S;
    let cut = |profile: &str| {
        let run = scene.run("1s1n1l1c1t", &format!("ule:profile={profile}"));
        let tick_ns = 4 * MS;
        let stays = run.stays_from("hog", 3 * S).into_iter().filter(|stay| stay.left == Some(PrevState::Runnable));
        stays.filter(|stay| stay.length_ns() < 9 * tick_ns).count()
    };
    assert_eq!(cut("paper-port"), 0);
}

/// A thread that sleeps keeps its batch priority if nothing lifts it, and waits for a round of the others. (Once it has run for ten
/// seconds it uses two thirds of the CPU, as they do not.)
#[test]
fn static_boost_decides_where_a_batch_thread_that_slept_is_queued() {
    let mut scene = Scene::lasting(40 * S);
    scene.task("hog", spin()).instances = 8;
    scene.task("slept", forever([run_for(200 * MS), sleep(20 * MS)]));
    let mean_latency_ns = |boost: &str| {
        let run = scene.run("1s1n1l1c1t", &format!("ule:hz=127{boost}"));
        let late = run.wakeups("slept").into_iter().filter(|span| span.waking_ns > 10 * S);
        let latencies: Vec<u64> = late.map(|span| span.latency_ns()).collect();
        latencies.iter().sum::<u64>() / latencies.len() as u64
    };
    let (boosted, never, at_once) =
        (mean_latency_ns(""), mean_latency_ns(",static_boost=0"), mean_latency_ns(",static_boost=130"));
    assert!(never > 2 * boosted, "{never} of {boosted}: behind the others of its bucket");
    assert!(at_once < 10 * MS, "{at_once}: before all batch threads, when the waking interrupt ends");
}

/// The shortest slice alone: with seven hogs everybody has that.
#[test]
fn slice_min_is_the_slice_of_a_crowd() {
    let mut scene = Scene::lasting(20 * S);
    scene.task("hog", spin()).instances = 8;
    let ticks = |spec: &str| -> BTreeSet<u64> {
        let run = scene.run("1s1n1l1c1t", &format!("ule:hz=127{spec}"));
        run.stays_from("hog-0", 10 * S).iter().map(|stay| (stay.length_ns() * 127 + S / 2) / S).collect()
    };
    assert_eq!((ticks(""), ticks(",slice_min=5")), (BTreeSet::from([2]), BTreeSet::from([5])));
}

/// `kern.sched.slice` is the longest slice alone: of 24 ticks two threads have 24, and eight the 2 of the shortest.
#[test]
fn slice_leaves_the_shortest_slice() {
    let ticks = |hogs: u32| -> BTreeSet<u64> {
        let mut scene = Scene::lasting(20 * S);
        scene.task("hog", spin()).instances = hogs;
        let run = scene.run("1s1n1l1c1t", "ule:hz=127,slice=24");
        run.stays_from("hog-0", 10 * S).iter().map(|stay| (stay.length_ns() * 127 + S / 2) / S).collect()
    };
    assert_eq!((ticks(2), ticks(8)), (BTreeSet::from([24]), BTreeSet::from([2])));
}

/// Without a look before the idle thread `modern` looks as often as `freebsd11` less one level.
#[test]
fn trysteal_limit_is_how_far_a_cpu_looks_before_it_is_idle() {
    // The idle CPUs' own looks begin after a second.
    let mut scene = Scene::lasting(900 * MS);
    let pinned = scene.task("pinned", spin());
    (pinned.instances, pinned.affinity) = (2, on_cpu(0));
    scene.task("sleeper", forever([run_for(100 * US), sleep(10 * MS)])).affinity = on_cpu(7);
    let balance_ns = |limit: &str| -> f64 {
        let run = scene.run("1s1n2l4c1t", &format!("ule:profile=modern,hz=127,balance=0{limit}"));
        let spent = |kind: warmcore_trace::OverheadKind| -> u64 {
            run.outcome.cpus.iter().map(|cpu| cpu.overhead_ns[kind as usize]).sum()
        };
        spent(warmcore_trace::OverheadKind::Balance) as f64
    };
    let none = balance_ns(",trysteal_limit=0");
    // From the idle thread it looks at the 4 of its LLC and twice at the 4 others, of which one is crossed out.
    assert_near("one level before that", balance_ns(",trysteal_limit=1") / none, 16.0 / 12.0, 0.02);
    assert_near("two", balance_ns("") / none, 20.0 / 12.0, 0.02);
}

/// Two threads that wake each other 30,000 times a second: whoever waits for the next message loops, and needs no interrupt. With
/// fewer switches, or hardware threads that share a core, it sleeps.
#[test]
fn idle_cpus_that_switch_often_wait_in_a_loop() {
    let mean_latency_ns = |machine: &str, spec: &str, work_ns: u64| {
        let mut scene = Scene::lasting(500 * MS);
        let (ping, pong) = (scene.workload.add_semaphore("ping", 0), scene.workload.add_semaphore("pong", 0));
        let one = forever([run_for(work_ns), Step::SemPost(ping), Step::SemWait(pong)]);
        let other = forever([Step::SemWait(ping), run_for(work_ns), Step::SemPost(pong)]);
        scene.task("one", one).affinity = on_cpu(0);
        scene.task("other", other).affinity = on_cpu(1);
        let run = scene.run(machine, &format!("ule:hz=127{spec}"));
        let late = run.wakeups("other").into_iter().filter(|span| span.waking_ns > 100 * MS);
        let latencies: Vec<u64> = late.map(|span| span.latency_ns()).collect();
        latencies.iter().sum::<u64>() / latencies.len() as u64
    };
    let exit_ns = warmcore_topology::resolve("1s1n1l4c1t").unwrap().costs().idle_exit_ns;
    let often = mean_latency_ns("1s1n1l4c1t", "", 20 * US);
    assert!(often + exit_ns <= mean_latency_ns("1s1n1l4c1t", ",idlespins=0", 20 * US), "{often}");
    assert!(often + exit_ns <= mean_latency_ns("1s1n1l4c1t", ",idlespinthresh=10000", 20 * US));
    assert!(often + exit_ns <= mean_latency_ns("1s1n1l4c1t", "", 500 * US), "1,000 a second are too few");
    assert!(often + exit_ns <= mean_latency_ns("1s1n1l4c2t", "", 20 * US));
    assert!(often + exit_ns <= mean_latency_ns("1s1n1l4c1t", ",profile=paper-port", 20 * US));
}

/// Eight threads that slept on one CPU are woken in one go, and may now run anywhere: who is woken next finds the load of those before.
#[test]
fn threads_woken_in_one_go_have_a_cpu_each() {
    for profile in ["freebsd11", "paper-port", "paper-text", "modern"] {
        let mut scene = Scene::new();
        let go = scene.workload.add_semaphore("go", 0);
        let sleeper = scene.task("sleeper", once([run_for(10 * US), Step::SemWait(go), run_for(20 * MS)]));
        (sleeper.instances, sleeper.affinity) = (7, on_cpu(1));
        scene.bind(50 * MS, "sleeper", warmcore_workload::Destination::Cpus(on_cpus(0..8)));
        let posts = ProgramBuilder::new().step(run_for(100 * MS)).repeat(Some(7), |body| body.step(Step::SemPost(go)));
        scene.task("waker", posts.step(run_for(20 * MS))).affinity = on_cpu(0);
        let run = scene.run("1s1n1l8c1t", &format!("ule:profile={profile}"));
        assert_eq!(run.tasks_per_cpu(110 * MS), [1; 8], "{profile}");
    }
}

#[test]
fn unknown_profiles_and_values_out_of_range_are_refused() {
    for (spec, expected) in [
        ("ule:profile=freebsd12", "freebsd11"),
        ("ule:interact=101", "interact"),
        ("ule:preempt_thresh=256", "preempt_thresh"),
        ("ule:steal_thresh=0", "steal_thresh"),
        ("ule:slices=3", "slice"),
        ("ule:static_boost=257", "static_boost"),
        ("ule:trysteal_limit=-1", "trysteal_limit"),
        ("ule:idlespins=many", "idlespins"),
    ] {
        let error = SchedulerSpec::parse(spec).expect_err(spec).to_string();
        assert!(error.contains(expected), "{spec}: {error}");
    }
}

/// Every item of the specification's list has tests that are named after it.
#[test]
fn every_item_of_the_list_has_a_test() {
    let spec = include_str!("../../../studies/papers/ule-cfs.md");
    let list = spec.split("\n## Test list").nth(1).unwrap().split("\n## ").next().unwrap();
    let items = list.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())).count();
    assert_eq!(items, 9);
    let tests = [
        include_str!("ule.rs"),
        include_str!("../src/ule/balance.rs"),
        include_str!("../src/ule/groups.rs"),
        include_str!("../src/ule/interactivity.rs"),
        include_str!("../src/ule/profile.rs"),
        include_str!("../src/ule/threads.rs"),
    ];
    for item in 1..=items {
        let name = format!("fn ule_17_{item}_");
        assert!(tests.iter().any(|file| file.contains(&name)), "item {item}");
    }
}
