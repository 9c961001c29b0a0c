//! Items 17 to 21: choosing a CPU at wakeup and fork.

use warmcore_trace::{Event, EventKind, MigrationKind, OverheadKind};
use warmcore_workload::{Affinity, BarrierWait, ChannelId, ChannelKind, Policy, ProgramBuilder, SemaphoreId, Step};

use crate::support::*;

/// Bytes of the messages sent here.
const BYTES: u32 = 64;

fn send(channel: ChannelId) -> Step {
    Step::Send { channel, bytes: BYTES }
}

fn receive(channel: ChannelId) -> Step {
    Step::Receive { channel, bytes: BYTES }
}

/// Moves of a task at wakeups from a time on.
fn wakeup_moves(run: &Run, name: &str, from_ns: u64) -> Vec<Move> {
    let at_wakeup = |a_move: &Move| a_move.kind == MigrationKind::Wakeup && a_move.time_ns >= from_ns;
    run.moves_of(name).into_iter().filter(at_wakeup).collect()
}

#[test]
fn item_17_a_ping_pong_on_one_llc_never_migrates() {
    let by_semaphores = {
        let mut scene = Scene::lasting(S);
        let [ping, pong] = ["ping", "pong"].map(|name| scene.workload.add_semaphore(name, 0));
        let turn = |give: SemaphoreId, take: SemaphoreId| {
            forever([run_for(20 * US), Step::SemPost(give), Step::SemWait(take)])
        };
        scene.task("a", turn(ping, pong));
        scene.task("b", forever([Step::SemWait(ping), run_for(20 * US), Step::SemPost(pong)]));
        scene.run("1s1n1l8c1t", "eevdf")
    };
    let by_pipes = {
        let mut scene = Scene::lasting(S);
        let [ping, pong] = ["ping", "pong"].map(|name| scene.workload.add_channel(name, ChannelKind::Pipe, 65_536));
        scene.task("a", forever([run_for(20 * US), send(ping), receive(pong)]));
        scene.task("b", forever([receive(ping), run_for(20 * US), send(pong)]));
        scene.run("1s1n1l8c1t", "eevdf")
    };
    for run in [by_semaphores, by_pipes] {
        assert!(run.wakeups("a").len() > 5_000 && run.wakeups("b").len() > 5_000);
        // The first round may still sort out where they were created.
        let late: Vec<Move> = run.moves().into_iter().filter(|a_move| a_move.time_ns > MS).collect();
        assert_eq!(late, [], "a sleeper's own CPU is idle, so it is taken");
        assert_ne!(run.place("a", S), run.place("b", S));
    }
}

/// What a task of [`wakeup_across_llcs`] is woken by.
enum By {
    Semaphore,
    Pipe,
    Barrier(BarrierWait),
}

/// A wakee that slept on CPU 12 of LLC 1 and may use any CPU, woken by a task bound to CPU 3 of LLC 0.
fn wakeup_across_llcs(by: By) -> Run {
    let mut scene = Scene::lasting(200 * MS);
    let (wake, wait) = match by {
        By::Semaphore => {
            let semaphore = scene.workload.add_semaphore("semaphore", 0);
            (Step::SemPost(semaphore), Step::SemWait(semaphore))
        }
        By::Pipe => {
            let channel = scene.workload.add_channel("pipe", ChannelKind::Pipe, 65_536);
            (send(channel), receive(channel))
        }
        By::Barrier(wait) => {
            let barrier = scene.workload.add_barrier("barrier", 2, wait);
            (Step::Barrier(barrier), Step::Barrier(barrier))
        }
    };
    let wakee = scene.task("wakee", once([run_for(MS), Step::SetAffinity(Affinity::All), wait, run_for(MS)]));
    wakee.affinity = on_cpu(12);
    scene.task("waker", once([run_for(100 * MS), wake, sleep(20 * MS)])).affinity = on_cpu(3);
    scene.run(TWO_LLCS_OF_8, "eevdf")
}

#[test]
fn item_18_without_the_sync_hint_a_wakee_stays_on_its_idle_cpu_in_the_other_llc() {
    for by in [By::Semaphore, By::Barrier(BarrierWait::Block)] {
        let run = wakeup_across_llcs(by);
        assert_eq!(run.wakeups("wakee")[0].cpu, 12);
        assert_eq!(wakeup_moves(&run, "wakee", 0), []);
    }
}

#[test]
fn item_18_with_the_sync_hint_a_wakee_comes_to_the_wakers_llc() {
    for by in [By::Pipe, By::Barrier(BarrierWait::Poll)] {
        let run = wakeup_across_llcs(by);
        let to = run.wakeups("wakee")[0].cpu;
        assert!((0..8).contains(&to) && to != 3, "an idle CPU of LLC 0, not {to}");
        assert_eq!(wakeup_moves(&run, "wakee", 0).len(), 1);
    }
}

/// A delayed task would be queued where it slept whatever else holds.
const NO_DELAY: &str = "eevdf:delay_dequeue=0";

/// A wakee that blocks at a pipe on CPU 12 of LLC 1 after 10 ms, beside another task there if it is not `alone`, and may then
/// use any CPU. A task bound to `waker_cpu` writes so long after it has blocked.
fn woken_after(scheduler: &str, after_ns: u64, waker_cpu: u32, alone: bool) -> Run {
    let scene = |start_ns: u64| {
        let mut scene = Scene::lasting(200 * MS);
        let channel = scene.workload.add_channel("pipe", ChannelKind::Pipe, 65_536);
        let steps = [run_for(10 * MS), Step::SetAffinity(Affinity::All), receive(channel), run_for(MS)];
        scene.task("wakee", once(steps)).affinity = on_cpu(12);
        if !alone {
            scene.task("other", once([run_for(150 * MS)])).affinity = on_cpu(12);
        }
        let waker = scene.task("waker", once([run_for(10 * US), send(channel)]));
        (waker.affinity, waker.start_ns) = (on_cpu(waker_cpu), start_ns);
        scene.run(TWO_LLCS_OF_8, scheduler)
    };
    let late = scene(100 * MS);
    let blocked_ns = late.stays("wakee").iter().map(|stay| stay.end_ns).rfind(|end_ns| *end_ns < 100 * MS).unwrap();
    let woken_ns = late.wakeups("wakee")[0].waking_ns;
    let run = scene(100 * MS - (woken_ns - blocked_ns) + after_ns);
    assert_eq!(run.wakeups("wakee")[0].waking_ns, blocked_ns + after_ns);
    run
}

#[test]
fn item_18_who_is_woken_while_its_cpu_still_switches_away_from_it_stays_there() {
    // try_to_wake_up: `p->on_cpu` and ttwu_queue_wakelist, before select_task_rq. A switch takes 1.2 us.
    for (after_ns, moves) in [(100, 0), (600, 0), (1_100, 0), (1_300, 1), (50 * US, 1)] {
        let run = woken_after(NO_DELAY, after_ns, 3, true);
        assert_eq!(wakeup_moves(&run, "wakee", MS).len(), moves, "{after_ns} ns");
        let latency_ns = run.wakeups("wakee")[0].latency_ns();
        assert!(moves == 1 || after_ns + latency_ns >= 1_200, "{after_ns} ns: ran {latency_ns} ns later");
    }
}

#[test]
fn item_18_a_waker_under_the_same_llc_waits_for_the_switch_to_another_task() {
    let [early, late] = [100, 50 * US].map(|after_ns| woken_after(NO_DELAY, after_ns, 8, false));
    for run in [&early, &late] {
        assert_ne!(run.wakeups("wakee")[0].cpu, 12, "a CPU is selected, and CPU 12 is busy");
    }
    let paid = |run: &Run| run.outcome.cpus[8].overhead_ns[OverheadKind::Wakeup as usize];
    assert_eq!(paid(&early) - paid(&late), 1_100);
}

/// `try_to_wake_up` of 4.9 waits for `p->on_cpu` whatever the caches, and FreeBSD's for the thread's lock.
#[test]
fn older_kernels_and_freebsd_wait_for_the_switch_under_another_llc_too() {
    for scheduler in ["cfs:kernel=4.9", "ule:profile=paper-port", "ule"] {
        let paid = [100, 50 * US].map(|after_ns| {
            let run = woken_after(scheduler, after_ns, 3, true);
            run.outcome.cpus[3].overhead_ns[OverheadKind::Wakeup as usize]
        });
        assert_eq!(paid[0] - paid[1], 1_100, "{scheduler}");
    }
}

/// Time from the waker's call until a task of that policy that sleeps on `cpu` is in a queue; the waker is on CPU 0.
fn queued_after_ns(scheduler: &str, policy: Policy, cpu: u32) -> u64 {
    let mut scene = Scene::new();
    let channel = scene.workload.add_channel("pipe", ChannelKind::Pipe, 65_536);
    let wakee = scene.task("wakee", once([receive(channel), run_for(MS)]));
    (wakee.affinity, wakee.policy) = (on_cpu(cpu), policy);
    scene.task("waker", once([run_for(10 * MS), send(channel), run_for(MS)])).affinity = on_cpu(0);
    let run = scene.run(TWO_LLCS_OF_8, scheduler);
    let wakee = run.id("wakee");
    let waking = |event: &&Event| matches!(event.kind, EventKind::Waking { task, .. } if task == wakee);
    let queued = |event: &&Event| {
        matches!(event.kind, EventKind::Wakeup { task, .. } if task == wakee) && event.time_ns > 5 * MS
    };
    run.events.iter().find(queued).unwrap().time_ns - run.events.iter().find(waking).unwrap().time_ns
}

/// `ttwu_queue_cond` of 7.2, `ttwu_queue` of 4.9, which asks for the cache alone, and `tdq_add` of FreeBSD, which is called by the waker.
#[test]
fn idle_cpus_queue_the_woken_themselves_as_far_as_the_kernel_leaves_it_to_them() {
    for (scheduler, same_llc, other_llc) in [
        ("eevdf", true, true),
        ("cfs", true, true),
        ("cfs:kernel=4.9", false, true),
        ("ule:profile=paper-port", false, true),
        ("ule", false, false),
        ("ule:profile=modern", false, false),
        // `scx_allow_ttwu_queue`: a program without SCX_OPS_ALLOW_QUEUED_WAKEUP.
        ("scx-native:policy=fifo", false, false),
        ("eevdf:ttwu_queue=0", false, false),
        ("cfs:kernel=4.9,ttwu_queue=0", false, false),
    ] {
        let left = [1, 8].map(|cpu| queued_after_ns(scheduler, Policy::Normal, cpu) > 0);
        assert_eq!(left, [same_llc, other_llc], "{scheduler}");
    }
    // It asks for tasks of the class `ext` only; those of the classes above are of the same kernel.
    let left = [1, 8].map(|cpu| queued_after_ns("scx-native:policy=fifo", Policy::Fifo { priority: 1 }, cpu) > 0);
    assert_eq!(left, [true, true], "real-time tasks above a program");
}

/// A dispatcher on CPU 0 first wakes two others in turn `flips` times. 24 workers in LLC 1 wake each of their `partners` once
/// and may then use any CPU; the dispatcher wakes each of them by a pipe. Returns how many come to its LLC.
fn workers_pulled(flips: u64, partners: u32) -> usize {
    let mut scene = Scene::lasting(S);
    let pipe = |scene: &mut Scene, name: String| scene.workload.add_channel(name, ChannelKind::Pipe, 65_536);
    let others = [0, 1].map(|n| pipe(&mut scene, format!("to other {n}")));
    for channel in others {
        // Two CPUs each: for a task bound to one no CPU is selected, and no flip is counted.
        scene.task("other", forever([receive(channel)])).affinity = on_cpus([14, 15]);
    }
    let mut dispatcher = ProgramBuilder::new().step(run_for(20 * MS)).repeat(Some(flips / 2), |body| {
        body.step(send(others[0])).step(run_for(50 * US)).step(send(others[1])).step(run_for(50 * US))
    });
    for n in 0..24 {
        let mut worker = ProgramBuilder::new().step(run_for(MS));
        for partner in 0..partners {
            let channel = pipe(&mut scene, format!("{n} to partner {partner}"));
            scene.task("partner", forever([receive(channel)])).affinity = on_cpus(8..14);
            worker = worker.step(send(channel));
        }
        let channel = pipe(&mut scene, format!("to worker {n}"));
        let worker = worker.step(Step::SetAffinity(Affinity::All)).step(receive(channel)).step(run_for(5 * US));
        scene.task(&format!("worker {n}"), worker.step(sleep(S))).affinity = on_cpus(8..14);
        dispatcher = dispatcher.step(sleep(MS)).step(send(channel));
    }
    scene.task("dispatcher", dispatcher.step(sleep(S))).affinity = on_cpu(0);
    let run = scene.run(TWO_LLCS_OF_8, "eevdf");
    let workers: Vec<String> = (0..24).map(|n| format!("worker {n}")).collect();
    assert!(workers.iter().all(|worker| run.wakeups(worker).len() == 1));
    let pulled = workers.iter().filter(|worker| run.place(worker, S) < 8).count();
    let wide = workers.iter().filter(|worker| run.placed(worker, 20 * MS)[0].words().0 == "wake_wide").count();
    assert_eq!(pulled + wide, 24, "those that are not pulled say why");
    pulled
}

/// LLCs have 8 CPUs: wide needs 8 flips of one side and 8 times as many of the other. All begin with the 20 of who starts them, and a worker
/// that wakes nobody keeps them; the 24 workers themselves are up to 24 flips of the dispatcher.
#[test]
fn item_19_workers_that_only_answer_are_pulled_to_a_dispatcher_of_few_partners() {
    assert_eq!(workers_pulled(100, 0), 24, "at most 144 flips, fewer than 8 times 20");
    assert_eq!(workers_pulled(200, 0), 0, "220 flips at least");
}

#[test]
fn item_19_the_pull_ends_when_both_sides_have_many_partners() {
    assert_eq!(workers_pulled(150, 7), 24, "at most 194 flips, fewer than 8 times 27");
    assert_eq!(workers_pulled(240, 7), 0, "260 flips at least");
}

/// A task wakes again and again on CPU 1, where a spinner runs, in an LLC of 16 with 15 spinners and one idle CPU. At 94 %
/// utilisation the scan limit is 0 and nobody looks for the idle CPU; a search without limit finds it at the first wakeup.
#[test]
fn item_20_in_a_crowded_llc_no_idle_cpu_is_searched() {
    let moves = |scheduler: &str| {
        let mut scene = Scene::lasting(2 * S);
        for cpu in 0..15 {
            scene.task(&format!("spinner {cpu}"), spin()).affinity = on_cpu(cpu);
        }
        let steps = [sleep(S), Step::SetAffinity(Affinity::All)];
        let task = scene.task("task", then_forever(steps, [sleep(20 * MS), run_for(50 * US)]));
        task.affinity = on_cpu(1);
        let run = scene.run("1s1n1l16c1t", scheduler);
        assert!(run.wakeups("task").len() > 40);
        run.moves_of("task")
    };
    assert_eq!(moves("eevdf"), []);
    let found = moves("eevdf:sis_util=0");
    assert_eq!((found[0].kind, found[0].to), (MigrationKind::Wakeup, 15));
}

#[test]
fn item_21_back_to_back_creation_spreads_evenly_and_stays() {
    for (threads, expected) in [(4, [2, 2]), (8, [4, 4])] {
        let mut scene = Scene::lasting(5 * S);
        scene.task("spinner", spin()).instances = threads;
        let run = scene.run(TWO_LLCS_OF_8, "eevdf");
        for time_ns in [MS, 100 * MS, S, 5 * S] {
            assert_eq!(run.tasks_per_llc(time_ns), expected, "{threads} threads at {time_ns} ns");
        }
        assert_eq!(run.moves(), []);
    }
}
