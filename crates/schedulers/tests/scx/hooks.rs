//! When programs at functions and tracepoints are called, in whose name and with what: each number by hand from the steps.

use warmcore_kernel::Hook;
use warmcore_scx::Operation;
use warmcore_topology::{Background, Basis, Interrupt, Origin, ThreadPlace, Wakes, resolve};
use warmcore_trace::{EventKind, TaskId};
use warmcore_workload::{Barrier, BarrierId, BarrierWait, ConditionId, LockId, Semaphore, SemaphoreId, Step};

use super::program::Program;
use crate::support::*;

const MACHINE: &str = "1s1n1l2c1t";
const ALL: u32 = i32::MAX as u32;

/// What is passed in a scene: in whose name and which, the word left out.
fn passed(scene: &Scene) -> Vec<(u32, &'static str, i64)> {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::Futex]);
    let result = program.run(scene, MACHINE);
    assert_eq!(result.ejected, None);
    let hooks = program.hooks.take();
    let said = |&(_, TaskId(task), hook): &(u64, TaskId, Hook)| match hook {
        Hook::FutexWait { value, .. } => (task, "wait", i64::from(value)),
        Hook::FutexWaitReturn { result, .. } => (task, "has waited", i64::from(result)),
        Hook::FutexWake { most, .. } => (task, "wake", i64::from(most)),
        Hook::FutexWakeReturn { woken, .. } => (task, "has woken", i64::from(woken)),
        other => panic!("{other:?}"),
    };
    hooks.iter().map(said).collect()
}

/// Two tasks, each on a CPU of its own, of which the second begins 1 ms later.
fn two(first: &[Step], second: &[Step]) -> Scene {
    let mut scene = Scene::new();
    for (cpu, (name, steps)) in [("first", first), ("second", second)].into_iter().enumerate() {
        let steps: Vec<Step> = std::iter::once(run_for(cpu as u64 * MS + US)).chain(steps.iter().cloned()).collect();
        scene.task(name, steps.into_iter().fold(once([]), |program, step| program.step(step))).affinity =
            on_cpu(cpu as u32);
    }
    scene
}

#[test]
fn a_lock_that_is_free_makes_no_call_and_one_that_is_held_makes_two() {
    let lock = LockId(0);
    let held = |ms| [Step::Lock(lock), run_for(ms * MS), Step::Unlock(lock), run_for(10 * MS)];
    let mut scene = two(&held(5), &held(1));
    scene.workload.locks = vec!["m".into()];
    let calls = [(1, "wait", 2), (0, "wake", 1), (0, "has woken", 1), (1, "has waited", 0)];
    assert_eq!(passed(&scene), calls);
    // One after the other.
    let mut apart = two(&held(0), &held(1));
    apart.workload.locks = vec!["m".into()];
    assert_eq!(passed(&apart), []);
}

#[test]
fn a_waiter_returns_from_the_call_when_it_runs_again_and_not_when_it_is_woken() {
    let lock = LockId(0);
    let mut scene = two(
        &[Step::Lock(lock), run_for(5 * MS), Step::Unlock(lock), run_for(MS)],
        &[Step::Lock(lock), Step::Unlock(lock)],
    );
    scene.workload.locks = vec!["m".into()];
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::Futex]);
    let result = program.run(&scene, MACHINE);
    let hooks = program.hooks.take();
    let when = |of: fn(Hook) -> bool| hooks.iter().find(|(.., hook)| of(*hook)).expect("it is passed").0;
    let waited = when(|hook| matches!(hook, Hook::FutexWaitReturn { .. }));
    let woken = when(|hook| matches!(hook, Hook::FutexWakeReturn { .. }));
    assert_eq!(waited, result.run.stays("second").last().expect("it runs").start_ns);
    assert!(waited > woken, "{waited}, woken at {woken}");
    let words: Vec<u64> = hooks
        .iter()
        .map(|(.., hook)| match *hook {
            Hook::FutexWait { word, .. } | Hook::FutexWaitReturn { word, .. } => word,
            Hook::FutexWake { word, .. } | Hook::FutexWakeReturn { word, .. } => word,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(words.len() == 4 && words.iter().all(|&word| word == words[0] && word != 0), "{words:x?}");
}

#[test]
fn conditions_barriers_and_semaphores_call_once_for_all_whom_they_wake() {
    let (lock, condition) = (LockId(0), ConditionId(0));
    let wait = [Step::Lock(lock), Step::Wait { condition, lock }, Step::Unlock(lock), run_for(MS)];
    let mut scene = two(&wait, &[run_for(MS), Step::Broadcast(condition), run_for(5 * MS)]);
    (scene.workload.locks, scene.workload.conditions) = (vec!["m".into()], vec!["c".into()]);
    let calls = [(0, "wait", 0), (1, "wake", i64::from(ALL)), (1, "has woken", 1), (0, "has waited", 0)];
    assert_eq!(passed(&scene), calls);

    let arrive = [Step::Barrier(BarrierId(0)), run_for(MS)];
    let barrier = |wait| {
        let mut scene = two(&arrive, &arrive);
        scene.workload.barriers = vec![Barrier { name: "b".into(), participants: 2, wait }];
        passed(&scene)
    };
    assert_eq!(barrier(BarrierWait::Block), calls);
    assert_eq!(barrier(BarrierWait::SpinThenBlock { spin_ns: 100 * US }), calls, "after the spin");
    assert_eq!(barrier(BarrierWait::SpinThenBlock { spin_ns: 10 * MS }), []);
    assert_eq!(barrier(BarrierWait::Spin), []);

    let semaphore = SemaphoreId(0);
    let mut scene = two(&[Step::SemWait(semaphore), run_for(MS)], &[Step::SemPost(semaphore), run_for(5 * MS)]);
    scene.workload.semaphores = vec![Semaphore { name: "s".into(), initial: 0 }];
    assert_eq!(passed(&scene), [(0, "wait", 0), (1, "wake", 1), (1, "has woken", 1), (0, "has waited", 0)]);
    scene.workload.semaphores[0].initial = 1;
    assert_eq!(passed(&scene), []);
}

/// A disk's interrupt every millisecond for 0.1 ms.
fn interrupted(place: ThreadPlace, name: &str) -> Vec<(u64, Hook)> {
    let interrupt = Interrupt {
        name: name.into(),
        place,
        arrives: Wakes::Intervals(vec![MS]),
        run_ns: vec![100 * US],
        origin: Origin::new(Basis::Assumed, ""),
    };
    let background = Background { name: "test".into(), interrupts: vec![interrupt], ..Background::default() };
    let machine = resolve(MACHINE).unwrap().with_background(background).unwrap();
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::Interrupt]);
    let mut scene = Scene::lasting(20 * MS);
    scene.task("hog", spin()).affinity = on_cpu(1);
    assert_eq!(program.run_on(&scene, &machine).ejected, None);
    let hooks = program.hooks.take();
    // The scheduler's softirq, which the fair class below raises, does not come where all tasks are the program's.
    hooks.iter().map(|&(now_ns, _, hook)| (now_ns, hook)).collect()
}

#[test]
fn an_interrupt_of_a_device_passes_its_handler_and_its_softirq_and_one_of_a_cpu_neither() {
    let hooks = interrupted(ThreadPlace::Cpus([1].into()), "virtio3-rx");
    let begins: Vec<u64> =
        hooks.iter().filter(|hook| matches!(hook.1, Hook::IrqHandlerEntry { .. })).map(|hook| hook.0).collect();
    assert!((19..=20).contains(&begins.len()), "one each millisecond: {begins:?}");
    for (number, begin_ns) in begins.iter().take(19).enumerate() {
        let one: Vec<(u64, Hook)> = hooks[4 * number..4 * number + 4].to_vec();
        let vector = 3;
        let at = |ns| begin_ns + ns;
        let expected = [
            (at(0), Hook::IrqHandlerEntry { irq: 0 }),
            (at(0), Hook::IrqHandlerExit { irq: 0 }),
            (at(0), Hook::SoftirqEntry { vector }),
            (at(100 * US), Hook::SoftirqExit { vector }),
        ];
        assert_eq!(one, expected);
    }
    assert_eq!(interrupted(ThreadPlace::EachCpu, "function-call"), []);
}

/// Nobody hears of it who has not asked.
#[test]
fn a_program_that_is_nowhere_hears_nothing_and_changes_nothing() {
    let lock = LockId(0);
    let held = [Step::Lock(lock), run_for(5 * MS), Step::Unlock(lock), run_for(10 * MS)];
    let mut scene = two(&held, &held);
    scene.workload.locks = vec!["m".into()];
    let (silent, mut watching) = (Program::fifo(), Program::fifo());
    watching.table = watching.table.with(&[Operation::Futex]);
    let events = [&silent, &watching].map(|program| program.run(&scene, MACHINE).run.events);
    assert_eq!(events[0], events[1], "a program that takes no time");
    assert_eq!((silent.hooks.take().len(), watching.hooks.take().len()), (0, 4));
}

/// A pass of a tracepoint about a task, or an event: when, which, about whom, and who or what else.
type Pass = (u64, &'static str, u32, u32);

/// More tasks than CPUs, which move; one forks, and its child wakes it.
fn moving() -> Scene {
    let mut scene = Scene::new();
    let child = scene.template("child", once([run_for(2 * MS), sleep(MS), run_for(2 * MS)]));
    scene.task("parent", once([run_for(MS), Step::Fork(child), Step::Join { count: 1 }, run_for(MS)]));
    for name in ["first", "second", "third"] {
        scene.task(name, times(20, [run_for(300 * US), sleep(500 * US), run_for(700 * US)]));
    }
    scene
}

/// What the trace has is the expectation: by it every wakeup, move, fork and exit is passed, at its time and in the name of its waker.
#[test]
fn tracepoints_of_tasks_are_passed_at_each_event_of_the_trace_in_the_name_of_who_does_it() {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::SchedWakeup, Operation::SchedMigrateTask, Operation::SchedProcess]);
    let result = program.run(&moving(), MACHINE);
    assert_eq!(result.ejected, None);
    let hooks = program.hooks.take();
    let idle = TaskId::IDLE.0;
    let between = |from: u32, to: u32| from << 8 | to;
    let mut passed: Vec<Pass> = hooks
        .iter()
        .map(|&(now_ns, TaskId(running), hook)| match hook {
            Hook::SchedWaking { task, by_task } => (now_ns, "waking", task.0, if by_task { running } else { idle }),
            Hook::SchedWakeup { task, .. } => (now_ns, "wakeup", task.0, 0),
            Hook::SchedWakeupNew { task } => (now_ns, "wakeup_new", task.0, 0),
            Hook::SchedMigrateTask { task, from, to } => (now_ns, "migrate_task", task.0, between(from.0, to.0)),
            Hook::SchedProcessFork { parent, child } => (now_ns, "process_fork", child.0, parent.0),
            Hook::SchedProcessExit { task, .. } => (now_ns, "process_exit", task.0, running),
            other => panic!("{other:?}"),
        })
        .collect();
    let mut known: Vec<TaskId> = Vec::new();
    let mut expected: Vec<Pass> = Vec::new();
    for event in &result.run.events {
        let (what, task, more) = match event.kind {
            EventKind::Waking { task, waker, .. } => ("waking", task, waker.0),
            EventKind::Wakeup { task, .. } if known.contains(&task) => ("wakeup", task, 0),
            EventKind::Wakeup { task, .. } => {
                known.push(task);
                ("wakeup_new", task, 0)
            }
            EventKind::Migrate { task, from, to, .. } => ("migrate_task", task, between(from.0, to.0)),
            EventKind::Fork { parent, child } => ("process_fork", child, parent.0),
            EventKind::Exit { task } => ("process_exit", task, task.0),
            _ => continue,
        };
        expected.push((event.time_ns, what, task.0, more));
    }
    for what in ["waking", "wakeup", "wakeup_new", "migrate_task", "process_fork", "process_exit"] {
        assert!(expected.iter().any(|event| event.1 == what), "no {what} in the scene");
    }
    assert!(expected.iter().any(|event| event.1 == "waking" && event.3 != idle), "a task wakes another");
    let last = hooks.iter().rev().find_map(|(.., hook)| match hook {
        Hook::SchedProcessExit { group_dead, .. } => Some(*group_dead),
        _ => None,
    });
    let dead =
        hooks.iter().filter(|(.., hook)| matches!(hook, Hook::SchedProcessExit { group_dead: true, .. })).count();
    assert_eq!((last, dead), (Some(true), 1), "one process, whose last task ends it");
    passed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(passed, expected);
    // Who watches takes no time and changes nothing; who does not hears nothing.
    let silent = Program::fifo();
    assert_eq!(silent.run(&moving(), MACHINE).run.events, result.run.events);
    assert!(silent.hooks.take().is_empty());
}

/// A task that is told of is between creation and its first CPU, or still on the one that it leaves.
#[test]
fn a_move_is_told_before_the_task_is_queued_where_it_goes_and_a_fork_before_the_child_is() {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::SchedWakeup, Operation::SchedMigrateTask, Operation::SchedProcess]);
    program.run(&moving(), MACHINE);
    let hooks: Vec<Hook> = program.hooks.take().into_iter().map(|(.., hook)| hook).collect();
    let mut waking = None;
    let mut moved = 0;
    let mut forked = None;
    for hook in hooks {
        match hook {
            Hook::SchedWaking { task, .. } => waking = Some(task),
            Hook::SchedMigrateTask { task, .. } => moved += u32::from(waking == Some(task)),
            Hook::SchedWakeup { task, .. } => assert_eq!(waking.take(), Some(task), "its own wakeup began before"),
            Hook::SchedProcessFork { child, .. } => forked = Some(child),
            Hook::SchedWakeupNew { task } => assert_eq!(forked.take(), Some(task), "it has been created before"),
            _ => {}
        }
    }
    assert!(moved > 0, "a wakeup moves its task between both");
}

/// 250 ticks a second: 25 in 100 ms, one each 4 ms, the first within 4 ms of the start.
#[test]
fn a_program_at_the_entry_of_ticks_is_called_at_each_tick_of_a_busy_cpu_in_the_name_of_who_runs_there() {
    let mut scene = Scene::new();
    scene.task("busy", once([run_for(100 * MS)])).affinity = on_cpu(1);
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::KernelTick]);
    assert_eq!(program.run(&scene, MACHINE).ejected, None);
    let hooks = program.hooks.take();
    assert!(hooks.iter().all(|(.., hook)| *hook == Hook::Tick), "{hooks:?}");
    let times: Vec<u64> = hooks.iter().filter(|(_, task, _)| *task == TaskId(0)).map(|(at, ..)| *at).collect();
    assert!((25..=26).contains(&times.len()) && times[0] <= 4 * MS, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 4 * MS), "{times:?}");
    // Without it nothing is told.
    let program = Program::fifo();
    program.run(&scene, MACHINE);
    assert!(program.hooks.take().is_empty());
}
