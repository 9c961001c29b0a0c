//! Locks, conditions, semaphores, barriers, pipes, lists, forks: what programs do to each other, and what is said when they cannot go on.

use warmcore_kernel::SimulationError;
use warmcore_trace::{End, EventKind, TaskId};
use warmcore_workload::{BarrierWait, ChannelKind, Latch, Policy, ProgramBuilder, Step};

use crate::support::*;

const ALL: [&str; 3] = ["eevdf", "cfs", "rr"];

/// What went wrong, which must be a deadlock: its lines.
fn deadlock(scene: &Scene, scheduler: &str) -> Vec<String> {
    match scene.try_run("1s1n1l4c1t", scheduler, 1) {
        Err(SimulationError::Deadlock { waits, .. }) => waits.iter().map(|line| line.trim().to_owned()).collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it ran to its end"),
    }
}

/// Times at which tasks pass phase marks, in order.
fn marks(run: &Run) -> Vec<(u64, TaskId, u32)> {
    let mark = |event: &warmcore_trace::Event| match event.kind {
        EventKind::Phase { task, phase } => Some((event.time_ns, task, phase)),
        _ => None,
    };
    run.events.iter().filter_map(mark).collect()
}

/// `first` holds the lock from 0 to 1 ms. `woken` and `asleep` sleep for it. The release wakes `woken`, whose CPU belongs to a real-time task until 5.5 ms. `between`
/// takes the free lock at 2 ms, and its release wakes nobody, as the word that it wrote says that nobody waits: `asleep` has the lock when `woken` has had it.
#[test]
fn a_lock_that_is_taken_before_the_woken_task_has_it_wakes_nobody_else() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::new();
        let lock = scene.workload.add_lock("lock");
        let mut task = |name: &str, cpu: u32, before_ns: u64, held_ns: u64| {
            let steps = [run_for(before_ns), Step::Lock(lock), run_for(held_ns), Step::Unlock(lock)];
            scene.task(name, once(steps)).affinity = on_cpu(cpu);
        };
        task("first", 0, 1, MS);
        task("woken", 1, 100 * US, 100 * US);
        task("asleep", 2, 300 * US, 100 * US);
        task("between", 3, 2 * MS, 500 * US);
        let urgent = scene.task("urgent", once([sleep(500 * US), run_for(5 * MS)]));
        (urgent.affinity, urgent.policy) = (on_cpu(1), Policy::Fifo { priority: 50 });
        let run = scene.run("1s1n1l4c1t", scheduler);
        let ended_us = |name: &str| run.outcome.tasks[run.id(name).index()].exited_ns.expect("it ends") / US;
        let [first, between, woken, asleep] = ["first", "between", "woken", "asleep"].map(ended_us);
        let about = |ended_us: u64, expected_us: u64| ended_us.abs_diff(expected_us) < 400;
        assert!(about(first, 1_000) && about(between, 2_500), "{scheduler}: {first} {between}");
        assert!(about(woken, 5_600) && (woken + 100..woken + 250).contains(&asleep), "{scheduler}: {woken} {asleep}");
    }
}

/// Eight tasks hold the lock for 100 µs each time: marks around it never overlap, and all get through.
#[test]
fn a_mutex_lets_one_task_in_at_a_time() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let lock = scene.workload.add_lock("lock");
        let [enter, leave] = ["enter", "leave"].map(|name| scene.workload.add_phase(name));
        let inside = [Step::Lock(lock), Step::Phase(enter), run_for(100 * US), Step::Phase(leave), Step::Unlock(lock)];
        let program = ProgramBuilder::new()
            .repeat(Some(50), |body| inside.into_iter().fold(body, ProgramBuilder::step).step(run_for(50 * US)));
        scene.task("task", program).instances = 8;
        let run = scene.run("1s1n1l4c1t", scheduler);
        let marks = marks(&run);
        assert_eq!(marks.len(), 8 * 50 * 2);
        for pair in marks.chunks(2) {
            assert_eq!((pair[0].2, pair[1].2, pair[0].1), (enter, leave, pair[1].1), "{scheduler}");
            assert!(pair[1].0 >= pair[0].0 + 100 * US);
        }
    }
}

#[test]
fn a_condition_wakes_one_or_all() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let (lock, condition) = (scene.workload.add_lock("lock"), scene.workload.add_condition("condition"));
        let wait = [Step::Lock(lock), Step::Wait { condition, lock }, Step::Unlock(lock), run_for(10 * US)];
        scene.task("waiter", once(wait)).instances = 5;
        let signal = [sleep(10 * MS), Step::Signal(condition), sleep(10 * MS), Step::Broadcast(condition)];
        scene.task("signaller", once(signal));
        let run = scene.run("1s1n1l4c1t", scheduler);
        let exits = |from_ns, to_ns| {
            let exited =
                run.outcome.tasks.iter().filter(|task| task.role == "waiter").filter_map(|task| task.exited_ns);
            exited.filter(|&at| at > from_ns && at < to_ns).count()
        };
        assert_eq!(exits(10 * MS, 15 * MS), 1, "{scheduler}: one signal, one task");
        assert_eq!(exits(20 * MS, 25 * MS), 4, "{scheduler}: a broadcast, all others");
    }
}

/// `sync` of rt-app: signal and wait in turn.
#[test]
fn signal_and_wait_hands_the_turn_over() {
    for scheduler in ALL {
        let mut scene = Scene::lasting(50 * MS);
        let (lock, condition) = (scene.workload.add_lock("lock"), scene.workload.add_condition("condition"));
        let turn = [Step::Lock(lock), Step::SignalAndWait { condition, lock }, Step::Unlock(lock), run_for(100 * US)];
        for name in ["a", "b"] {
            scene.task(name, forever(turn.clone()));
        }
        // Something that goes on, should both wait.
        scene.task("clock", forever([sleep(MS), Step::Signal(condition)]));
        let run = scene.run("1s1n1l4c1t", scheduler);
        let times = ["a", "b"].map(|name| run.cpu_time(name));
        assert!(times[0].abs_diff(times[1]) < MS && times[0] > 5 * MS, "{scheduler}: {times:?}");
    }
}

#[test]
fn a_semaphore_counts() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let semaphore = scene.workload.add_semaphore("semaphore", 3);
        scene.task("taker", times(10, [Step::SemWait(semaphore), run_for(10 * US)])).instances = 4;
        let done = scene.task(
            "giver",
            ProgramBuilder::new()
                .step(sleep(5 * MS))
                .repeat(Some(37), |body| body.step(Step::SemPost(semaphore)).step(run_for(20 * US))),
        );
        done.nice = 1;
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert_eq!(run.outcome.end, End::AllExited, "3 + 37 are just enough for 4 times 10");
        let before = run.outcome.tasks.iter().filter(|task| task.exited_ns.is_some_and(|at| at < 5 * MS)).count();
        assert_eq!(before, 0);
    }
}

/// Nobody passes the barrier before the last has come, whichever way they wait; also with four times as many tasks as CPUs.
#[test]
fn nobody_passes_a_barrier_early() {
    let spin_then_block = BarrierWait::SpinThenBlock { spin_ns: 200 * US };
    let waits = [BarrierWait::Spin, BarrierWait::Block, BarrierWait::Poll, spin_then_block];
    for scheduler in ALL {
        for (wait, participants) in waits.into_iter().flat_map(|wait| [(wait, 3), (wait, 16)]) {
            let mut scene = Scene::new();
            let barrier = scene.workload.add_barrier("barrier", participants, wait);
            let [before, after] = ["before", "after"].map(|name| scene.workload.add_phase(name));
            let steps = [Step::Phase(before), Step::Barrier(barrier), Step::Phase(after)];
            for n in 0..u64::from(participants) {
                let program = ProgramBuilder::new().repeat(Some(10), |body| {
                    steps.iter().cloned().fold(body.step(run_for(50 * US + n * 30 * US)), ProgramBuilder::step)
                });
                scene.task(&format!("task {n}"), program);
            }
            let run = scene.run("1s1n1l4c1t", scheduler);
            let mut arrived = 0u32;
            let mut passed = 0u32;
            for (_, _, phase) in marks(&run) {
                if phase == before {
                    arrived += 1;
                } else {
                    passed += 1;
                    // The round that is being left was complete.
                    assert!(arrived >= passed.div_ceil(participants) * participants, "{scheduler}, {wait:?}");
                }
            }
            assert_eq!((arrived, passed), (10 * participants, 10 * participants), "{scheduler}, {wait:?}");
        }
    }
}

/// While one works for 5 ms, a spinner burns CPU time, a blocker none, and one that spins first burns what it may.
#[test]
fn waiting_at_a_barrier_costs_what_its_kind_costs() {
    let cpu_time = |wait| {
        let mut scene = Scene::new();
        let barrier = scene.workload.add_barrier("barrier", 2, wait);
        scene.task("works", once([run_for(5 * MS), Step::Barrier(barrier)]));
        scene.task("waits", once([Step::Barrier(barrier)]));
        let run = scene.run("1s1n1l4c1t", "eevdf");
        run.cpu_time("waits") - run.machine.costs().exit_ns
    };
    assert!(cpu_time(BarrierWait::Spin) > 4_900 * US);
    assert!(cpu_time(BarrierWait::Block) < 10 * US);
    assert!(cpu_time(BarrierWait::Poll) < 10 * US);
    let both = cpu_time(BarrierWait::SpinThenBlock { spin_ns: MS });
    assert!((MS..1_010 * US).contains(&both), "{both}");
}

/// Who waits in poll() is woken last come first served (`add_wait_queue` puts it at the head); who waits on a futex, in order of arrival.
#[test]
fn barriers_wake_in_the_order_of_their_wait_queues() {
    let woken = |wait| {
        let mut scene = Scene::new();
        let barrier = scene.workload.add_barrier("barrier", 4, wait);
        for n in 0..3 {
            scene.task(&format!("task {n}"), once([run_for((n + 1) * MS), Step::Barrier(barrier)]));
        }
        scene.task("opens", once([run_for(10 * MS), Step::Barrier(barrier)]));
        let run = scene.run("1s1n1l4c1t", "eevdf");
        let woken = |event: &warmcore_trace::Event| match event.kind {
            EventKind::Waking { task, .. } => Some(task.0),
            _ => None,
        };
        run.events.iter().filter_map(woken).collect::<Vec<u32>>()
    };
    assert_eq!(woken(BarrierWait::Poll), [2, 1, 0]);
    assert_eq!(woken(BarrierWait::Block), [0, 1, 2]);
}

/// A buffer of four messages between a fast writer and a slow reader, and the other way round.
#[test]
fn pipes_block_writers_when_full_and_readers_when_empty() {
    for scheduler in ALL {
        for kind in [ChannelKind::Pipe, ChannelKind::Socket] {
            for (write_us, read_us) in [(10, 100), (100, 10)] {
                let mut scene = Scene::new();
                let channel = scene.workload.add_channel("channel", kind, 256);
                scene.task("writer", times(200, [run_for(write_us * US), Step::Send { channel, bytes: 64 }]));
                scene.task("reader", times(200, [Step::Receive { channel, bytes: 64 }, run_for(read_us * US)]));
                let run = scene.run("1s1n1l4c1t", scheduler);
                assert_eq!(run.outcome.end, End::AllExited);
                let [writer, reader] = ["writer", "reader"].map(|name| run.wakeups(name).len());
                let (waits, goes_on) = if write_us < read_us { (writer, reader) } else { (reader, writer) };
                // A socket's writer is woken when three of four messages have been read.
                let least = if kind == ChannelKind::Socket && write_us < read_us { 50 } else { 150 };
                assert!(waits > least && goes_on < 20, "{scheduler}, {kind:?}: {writer} and {reader} wakeups");
                assert!(run.outcome.elapsed_ns >= 20 * MS);
            }
        }
    }
}

/// How often the writers of a full channel are woken while the reader takes `messages` of 100 bytes, one in 20 µs.
fn writer_wakeups(kind: ChannelKind, capacity_bytes: u64, writers: u32, messages: u64) -> usize {
    let mut scene = Scene::new();
    let channel = scene.workload.add_channel("channel", kind, capacity_bytes);
    let each = messages / u64::from(writers);
    scene.task("writer", times(each, [Step::Send { channel, bytes: 100 }])).instances = writers;
    scene.task("reader", times(messages, [Step::Receive { channel, bytes: 100 }, run_for(20 * US)]));
    let run = scene.run("1s1n1l8c1t", "eevdf");
    assert_eq!(run.outcome.end, End::AllExited);
    let names = (0..writers).map(|n| if writers == 1 { "writer".to_owned() } else { format!("writer-{n}") });
    names.map(|name| run.wakeups(&name).len()).sum()
}

/// `pipe_read` of Linux 7.2 wakes a writer when it frees a page of a full pipe: 40 messages of 100 bytes; not at every message.
#[test]
fn a_full_pipe_wakes_a_writer_once_in_a_page() {
    let (pages, woken) = (6_400 / 40, writer_wakeups(ChannelKind::Pipe, 64_000, 1, 6_400));
    assert!((pages - 20..=pages).contains(&woken), "{woken} wakeups, {pages} pages");
}

/// Pipe writers wait exclusively: with four of them a page freed still wakes one, who fills it before the next is freed.
#[test]
fn a_freed_page_wakes_one_of_the_writers() {
    let woken = writer_wakeups(ChannelKind::Pipe, 64_000, 4, 6_400);
    assert!((100..=160).contains(&woken), "{woken} wakeups");
}

/// `unix_writable`: writers of a full socket are woken when a quarter of it is left, so at every 210th of 278 messages; then all of them.
#[test]
fn a_full_socket_wakes_all_writers_when_a_quarter_is_left() {
    let one = writer_wakeups(ChannelKind::Socket, 27_800, 1, 5_560);
    assert!((5_560 / 210 - 3..=5_560 / 208).contains(&one), "{one} wakeups");
    let four = writer_wakeups(ChannelKind::Socket, 27_800, 4, 5_560);
    assert!((3 * one..=4 * one + 4).contains(&four), "{four} wakeups of four, {one} of one");
}

/// A message in pieces: the reader takes 30 bytes at a time of what comes in 7s, the writers share the space.
#[test]
fn sizes_of_messages_need_not_match() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let channel = scene.workload.add_channel("channel", ChannelKind::Pipe, 64);
        scene.task("writer", times(150, [Step::Send { channel, bytes: 7 }, run_for(3 * US)])).instances = 4;
        scene.task("reader", times(140, [Step::Receive { channel, bytes: 30 }, run_for(5 * US)]));
        assert_eq!(scene.run("1s1n1l4c1t", scheduler).outcome.end, End::AllExited, "{scheduler}");
    }
}

/// Two readers want different amounts: what is too little for the first in line must reach the second.
#[test]
fn a_reader_that_wants_more_does_not_keep_a_message_from_one_that_wants_less() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let channel = scene.workload.add_channel("channel", ChannelKind::Pipe, 4096);
        scene.task("wants 100", once([Step::Receive { channel, bytes: 100 }]));
        let modest = scene.task("wants 10", once([Step::Receive { channel, bytes: 10 }]));
        modest.start_ns = MS;
        let send = |bytes| Step::Send { channel, bytes };
        scene.task("writer", once([sleep(5 * MS), send(10), sleep(5 * MS), send(100)]));
        let run = scene.run("1s1n1l4c1t", scheduler);
        let exited = |name: &str| run.outcome.tasks[run.id(name).index()].exited_ns.unwrap();
        assert!(exited("wants 10") < 6 * MS && exited("wants 100") > 10 * MS, "{scheduler}");
    }
}

/// Room for a small message must not stay unused behind a writer whose message does not fit.
#[test]
fn a_writer_whose_message_does_not_fit_does_not_keep_out_one_whose_does() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let channel = scene.workload.add_channel("channel", ChannelKind::Pipe, 100);
        let send = |bytes| Step::Send { channel, bytes };
        scene.task("fills", once([send(100)]));
        scene.task("large", once([send(90)])).start_ns = MS;
        scene.task("small", once([send(10)])).start_ns = 2 * MS;
        let receive = |bytes| Step::Receive { channel, bytes };
        scene.task("reader", once([sleep(5 * MS), receive(10), sleep(5 * MS), receive(100), receive(90)]));
        let run = scene.run("1s1n1l4c1t", scheduler);
        let exited = |name: &str| run.outcome.tasks[run.id(name).index()].exited_ns.unwrap();
        assert!(exited("small") < 6 * MS && exited("large") > 10 * MS, "{scheduler}");
    }
}

#[test]
fn a_list_is_served_whole() {
    for scheduler in ALL {
        let mut scene = Scene::lasting(100 * MS);
        let (list, recorder) = (scene.workload.add_list("list"), scene.workload.add_recorder("wakeup"));
        scene.task("worker", forever([run_for(100 * US), Step::Enlist { list, recorder: Some(recorder) }])).instances =
            6;
        scene.task("server", forever([Step::Serve(list), run_for(20 * US)]));
        let run = scene.run("1s1n1l8c1t", scheduler);
        for n in 0..6 {
            assert!(run.wakeups(&format!("worker-{n}")).len() > 200, "{scheduler}");
        }
        assert!(run.outcome.recorders[0].count() > 1_200);
    }
}

#[test]
fn suspend_and_resume_take_turns() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        scene.task("sleeper", times(5, [run_for(100 * US), Step::Suspend]));
        let sleeper = warmcore_workload::TaskTemplateId(0);
        scene.task("waker", times(5, [sleep(2 * MS), Step::Resume(sleeper)]));
        let run = scene.run("1s1n1l2c1t", scheduler);
        assert_eq!(run.wakeups("sleeper").len(), 5, "{scheduler}");
    }
}

/// 2 × 3 generations of 4 children each, on 4 CPUs, each joined by its creator.
#[test]
fn a_fork_storm_comes_to_its_end() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let mut child = scene.template("generation 0", once([run_for(50 * US)]));
        for generation in 1..=4 {
            let program =
                ProgramBuilder::new().repeat(Some(4), |body| body.step(Step::Fork(child)).step(run_for(20 * US)));
            child = scene.template(&format!("generation {generation}"), program.step(Step::Join { count: 4 }));
        }
        scene.task("first", once([Step::Fork(child), Step::Fork(child), Step::Join { count: 2 }]));
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert_eq!(run.outcome.tasks.len(), 1 + 2 * (1 + 4 + 16 + 64 + 256));
        assert!(run.outcome.tasks.iter().all(|task| task.exited_ns.is_some()), "{scheduler}");
        let last = run.outcome.tasks.iter().max_by_key(|task| task.exited_ns).unwrap();
        assert_eq!(last.name, "first", "{scheduler}: nobody outlives the one that joins all");
    }
}

/// Tasks that exit while woken, forking and holding a pipe; others go on.
#[test]
fn a_task_may_exit_whatever_is_pending() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let semaphore = scene.workload.add_semaphore("semaphore", 0);
        let channel = scene.workload.add_channel("channel", ChannelKind::Pipe, 4096);
        let orphan = scene.template("orphan", once([sleep(5 * MS), run_for(MS), Step::SemPost(semaphore)]));
        let parent =
            [Step::Fork(orphan), Step::Send { channel, bytes: 8 }, Step::SemPost(semaphore), Step::Exit, run_for(S)];
        let parent = scene.task("parent", once(parent));
        parent.release_ns = Some(50 * MS);
        parent.affinity = on_cpu(0);
        let steps = [Step::SemWait(semaphore), Step::SemWait(semaphore), Step::Receive { channel, bytes: 8 }];
        scene.task("heir", once(steps));
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert_eq!(run.outcome.end, End::AllExited);
        assert!(run.cpu_time("parent") < MS, "{scheduler}: nothing runs after the exit");
    }
}

#[test]
fn stop_ends_everybody() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        scene.task("spinner", spin()).instances = 6;
        scene.task("stopper", once([sleep(10 * MS), Step::Stop]));
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert_eq!(run.outcome.end, End::Stopped);
        // Under round robin the stopper waits for a quantum of 10 ms or two before it runs.
        assert!((10 * MS..40 * MS).contains(&run.outcome.elapsed_ns), "{scheduler}: {}", run.outcome.elapsed_ns);
    }
}

/// Two tasks, two locks, opposite order.
#[test]
fn a_deadlock_of_two_locks_names_lock_holder_and_waiter() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let [left, right] = ["left", "right"].map(|name| scene.workload.add_lock(name));
        for (name, first, second) in [("a", left, right), ("b", right, left)] {
            let steps = [Step::Lock(first), sleep(MS), Step::Lock(second), Step::Unlock(second), Step::Unlock(first)];
            scene.task(name, once(steps));
        }
        let waits = deadlock(&scene, scheduler);
        assert_eq!(waits, ["b waits for lock `left`, held by a", "a waits for lock `right`, held by b"], "{scheduler}");
    }
}

#[test]
fn each_kind_of_endless_wait_is_named() {
    let mut scene = Scene::new();
    let semaphore = scene.workload.add_semaphore("a semaphore", 0);
    let (lock, condition) = (scene.workload.add_lock("a lock"), scene.workload.add_condition("a condition"));
    let blocking = scene.workload.add_barrier("a barrier", 2, BarrierWait::Block);
    let [empty, full] = ["empty", "full"].map(|name| scene.workload.add_channel(name, ChannelKind::Pipe, 8));
    let list = scene.workload.add_list("a list");
    let served = scene.workload.add_list("another list");
    let child = scene.template("child", once([Step::SemWait(semaphore)]));
    scene.task("parent", once([Step::Fork(child), Step::Join { count: 1 }]));
    scene.task("conditional", once([Step::Lock(lock), Step::Wait { condition, lock }]));
    scene.task("early", once([Step::Barrier(blocking)]));
    scene.task("reader", once([Step::Receive { channel: empty, bytes: 8 }]));
    scene.task("writer", times(2, [Step::Send { channel: full, bytes: 8 }]));
    scene.task("server", once([Step::Serve(list)]));
    scene.task("customer", once([Step::Enlist { list: served, recorder: None }])).instances = 3;
    scene.task("suspended", once([Step::Suspend, Step::Barrier(blocking)]));
    let waits = deadlock(&scene, "eevdf");
    for expected in [
        "child-0 waits for semaphore `a semaphore`",
        "parent waits for the exit of tasks it created",
        "conditional waits for condition `a condition`",
        "early waits for barrier `a barrier` (1 of 2 arrived)",
        "reader waits for data in channel `empty`",
        "writer waits for space in channel `full`",
        "server waits for an entry on list `a list`",
        "3 tasks (customer-0 … customer-2) wait for being served on list `another list`",
        "suspended waits for a resume",
    ] {
        assert!(waits.iter().any(|line| line == expected), "`{expected}` is not in {waits:#?}");
    }
}

/// Busy waiting is no progress: nobody can open the barrier.
#[test]
fn tasks_that_spin_for_ever_are_a_deadlock() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let barrier = scene.workload.add_barrier("barrier", 3, BarrierWait::Spin);
        let never = scene.workload.add_semaphore("never", 0);
        scene.task("spinner", once([run_for(MS), Step::Barrier(barrier)])).instances = 2;
        scene.task("third", once([run_for(2 * MS), Step::SemWait(never), Step::Barrier(barrier)]));
        let waits = deadlock(&scene, scheduler);
        assert_eq!(
            waits,
            [
                "2 tasks (spinner-0 … spinner-1) wait for barrier `barrier` (2 of 3 arrived)",
                "third waits for semaphore `never`"
            ]
        );
    }
}

/// A task that is dead holds the lock.
#[test]
fn a_lock_nobody_will_release_names_its_dead_holder() {
    let mut scene = Scene::new();
    let lock = scene.workload.add_lock("lock");
    scene.task("gone", once([Step::Lock(lock)]));
    scene.task("waits", once([sleep(MS), Step::Lock(lock)]));
    assert_eq!(deadlock(&scene, "eevdf"), ["waits waits for lock `lock`, held by gone"]);
}

/// What can still happen is no deadlock: a timer, a later start.
#[test]
fn waiting_for_something_that_will_come_is_no_deadlock() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let semaphore = scene.workload.add_semaphore("semaphore", 0);
        scene.task("waits", once([Step::SemWait(semaphore)]));
        scene.task("comes later", once([Step::SemPost(semaphore)])).start_ns = S;
        assert_eq!(scene.run("1s1n1l4c1t", scheduler).outcome.end, End::AllExited);
    }
}

/// The semaphore is so full that waiting for it never blocks.
#[test]
fn a_program_that_lets_no_time_pass_is_stopped_and_named() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let semaphore = scene.workload.add_semaphore("semaphore", u32::MAX);
        scene.task("rushes", then_forever([run_for(MS)], [Step::SemWait(semaphore)]));
        match scene.try_run("1s1n1l4c1t", scheduler, 1) {
            Err(SimulationError::NoProgress { task, time_ns, .. }) => {
                assert_eq!(task, "rushes");
                assert!(time_ns >= MS);
            }
            other => panic!("{scheduler}: {:?}", other.err()),
        }
    }
}

#[test]
fn an_unmatched_unlock_at_run_time_is_an_error_with_the_tasks_name() {
    // The check of the workload follows each program exactly, so only a wait on somebody else's lock gets this far.
    let mut scene = Scene::new();
    let lock = scene.workload.add_lock("lock");
    scene.task("task", once([Step::Unlock(lock)]));
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let error = warmcore_kernel::Setup::new(&machine, &scene.workload, 1).err().unwrap();
    assert!(error.to_string().contains("task"), "{error}");
}

/// The trace tells all the overhead of the accounts, CPU by CPU and kind by kind, in few events.
#[test]
fn overhead_in_the_trace_adds_up_to_the_accounts() {
    let mut scene = Scene::lasting(S);
    scene.task("sleeper", forever([run_for(300 * US), sleep(MS)])).instances = 12;
    scene.task("spinner", spin()).instances = 3;
    for scheduler in ALL {
        let run = scene.run("2s1n1l4c1t", scheduler);
        let mut told = vec![[0; warmcore_trace::OVERHEAD_KINDS]; run.outcome.cpus.len()];
        let mut reports = 0;
        for event in &run.events {
            if let EventKind::Overhead { kind, duration_ns } = event.kind {
                told[event.cpu.index()][kind as usize] += duration_ns;
                reports += 1;
            }
        }
        let spent: Vec<_> = run.outcome.cpus.iter().map(|cpu| cpu.overhead_ns).collect();
        assert_eq!(told, spent, "{scheduler}");
        assert!(reports < run.events.len() / 20, "{scheduler}: {reports} of {} events", run.events.len());
    }
}

/// Two threads with a CPU each take a latch in turn. Who finds it taken waits actively, and sleeps only if that takes too long.
#[test]
fn who_finds_a_latch_taken_spins_before_it_sleeps() {
    for scheduler in ALL {
        let run = |spin_ns: u64, held_ns: u64| {
            let mut scene = Scene::new();
            let latch = scene.workload.add_latch("latch", Latch { spin_ns, lines: 4, ..Latch::default() });
            for cpu in 0..2 {
                let steps = [Step::Lock(latch), run_for(held_ns), Step::Unlock(latch), run_for(5 * US)];
                scene.task(&format!("thread {cpu}"), times(100, steps)).affinity = on_cpu(cpu);
            }
            let run = scene.run("1s1n1l4c1t", scheduler);
            let spun: u64 = run.outcome.tasks.iter().map(|task| task.spin_ns).sum();
            let slept = ["thread 0", "thread 1"].map(|name| run.wakeups(name).len()).iter().sum::<usize>();
            (spun, slept)
        };
        let (spun, slept) = run(30 * US, 20 * US);
        assert!(spun > 100 * 5 * US && slept <= 4, "{scheduler}: {spun} ns, {slept} sleeps");
        let (spun, slept) = run(30 * US, 200 * US);
        assert!(spun > 0 && slept > 50, "{scheduler}: out of patience after 30 us: {spun} ns, {slept} sleeps");
        let (spun, slept) = run(0, 20 * US);
        assert!(spun == 0 && slept > 50, "{scheduler}: without patience: {spun} ns, {slept} sleeps");
    }
}

/// Sleepers of a latch: a release wakes the one that has waited longest, or all, of whom one finds it free.
#[test]
fn a_latch_wakes_one_sleeper_or_all() {
    for scheduler in ALL {
        let wakeups = |wakes_all: bool| {
            let mut scene = Scene::new();
            let latch = scene.workload.add_latch("latch", Latch { wakes_all, ..Latch::default() });
            for cpu in 0..4 {
                let steps = [Step::Lock(latch), run_for(200 * US), Step::Unlock(latch), run_for(5 * US)];
                scene.task(&format!("thread {cpu}"), times(50, steps)).affinity = on_cpu(cpu);
            }
            let run = scene.run("1s1n1l4c1t", scheduler);
            assert!(run.outcome.tasks.iter().all(|task| task.exited_ns.is_some()), "{scheduler}: nobody is forgotten");
            (0..4).map(|cpu| run.wakeups(&format!("thread {cpu}")).len()).sum::<usize>()
        };
        let (one, all) = (wakeups(false), wakeups(true));
        assert!((150..250).contains(&one) && 2 * all > 3 * one, "{scheduler}: {one} and {all}");
    }
}

/// By hand: the second thread looks for 100 us in every 1150 us (with the timer's slack), the sixth time after 5.75 ms, when the mutex has been free since 5 ms. If it is released while the thread looks, the thread takes it at once.
#[test]
fn who_sleeps_for_a_time_misses_a_release_and_who_looks_does_not() {
    for scheduler in ALL {
        for (held_ns, ended_ns, sleeps) in [(5 * MS, 5_850 * US, 5), (4_650 * US, 4_750 * US, 4)] {
            let mut scene = Scene::new();
            let latch = Latch { spin_ns: 100 * US, sleep_ns: MS, ..Latch::default() };
            let latch = scene.workload.add_latch("latch", latch);
            scene.task("first", once([Step::Lock(latch), run_for(held_ns), Step::Unlock(latch)])).affinity = on_cpu(0);
            let steps = [run_for(10 * US), Step::Lock(latch), run_for(100 * US), Step::Unlock(latch)];
            scene.task("second", once(steps)).affinity = on_cpu(1);
            let run = scene.run("1s1n1l2c1t", scheduler);
            let second = &run.outcome.tasks[run.id("second").index()];
            let ended = second.exited_ns.expect("it ends");
            assert!(ended.abs_diff(ended_ns) < 100 * US, "{scheduler}: {ended} instead of {ended_ns}");
            assert_eq!(run.wakeups("second").len(), sleeps, "{scheduler}");
            assert!(second.spin_ns.abs_diff(sleeps as u64 * 100 * US) <= 60 * US, "{scheduler}: {}", second.spin_ns);
        }
    }
}
