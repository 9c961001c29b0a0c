//! What a program hears when a class above takes a CPU, and how it gets back who waits there (`docs/spec/sched-ext.md` sections 2 and 4).

use warmcore_scx::{DsqId, EnqueueFlags, ExitKind, Kfuncs, Kick, Operation, SLICE_DEFAULT_NS};
use warmcore_topology::CpuId;
use warmcore_trace::{EventKind, TaskId};
use warmcore_workload::{Affinity, Destination, Policy, Reservation, Step};

use super::program::{Program, SHARED};
use crate::support::*;

const MACHINE: &str = "1s1n1l2c1t";

/// A task of 200 ms that begins on the last CPU, and one above it that wants that CPU from 50 to 150 ms.
fn scene(policy: Policy) -> Scene {
    let mut scene = Scene::new();
    scene.task("task", once([run_for(200 * MS)]));
    let above = scene.task("above", once([sleep(50 * MS), run_for(100 * MS)]));
    (above.policy, above.affinity) = (policy, on_cpu(1));
    scene
}

const FIFO: Policy = Policy::Fifo { priority: 1 };

/// A queue for each CPU. Who is enqueued again goes to the common one, and an idle CPU fetches it.
fn queue_for_each_cpu() -> Program {
    let mut program = Program::fifo();
    program.enqueue = |kernel, task, flags| {
        if flags.has(EnqueueFlags::REENQ) {
            kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, EnqueueFlags::default());
            kernel.kick(CpuId(0), Kick::Idle);
        } else {
            kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, flags);
        }
    };
    program
}

fn end_ms(run: &Run) -> u64 {
    run.stays("task").last().expect("it runs").end_ns / MS
}

/// By hand: the task waits for the 100 ms of the one above, although CPU 0 is idle.
#[test]
fn who_waits_in_a_local_queue_stays_there_if_the_program_does_not_take_it_back() {
    let result = queue_for_each_cpu().run(&scene(FIFO), MACHINE);
    assert_eq!(result.run.place("task", 40 * MS), 1);
    assert_eq!((result.ejected, end_ms(&result.run)), (None, 300));
}

/// By hand: the task goes on at once on CPU 0.
#[test]
fn a_program_takes_back_who_waits_when_the_cpu_is_released_or_when_it_switches() {
    let mut by_operation = queue_for_each_cpu();
    by_operation.table = by_operation.table.with(&[Operation::CpuRelease, Operation::CpuAcquire]);
    by_operation.release = |kernel| kernel.reenqueue(DsqId::LOCAL);
    let mut by_tracepoint = queue_for_each_cpu();
    by_tracepoint.table = by_tracepoint.table.with(&[Operation::SchedSwitch]);
    by_tracepoint.switch = |kernel, prev, next| {
        let above = |kernel: &Kfuncs<'_, '_>, task: TaskId| !task.is_idle() && kernel.task(task).policy().is_realtime();
        if above(kernel, next) && !above(kernel, prev) {
            kernel.reenqueue(DsqId::LOCAL);
        }
    };
    for program in [by_operation, by_tracepoint] {
        let result = program.run(&scene(FIFO), MACHINE);
        assert_eq!(result.ejected, None);
        assert_eq!((result.run.place("task", 60 * MS), end_ms(&result.run)), (0, 200));
    }
}

/// `preempt_reason_from_class` of the stop class: a kernel's stopper thread takes the CPU from a task that may not stay there.
#[test]
fn a_program_hears_that_the_stopper_takes_a_cpu_to_move_who_may_not_stay_there() {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::CpuRelease, Operation::CpuAcquire]);
    let taken = |scene: &Scene| {
        let result = program.run(scene, MACHINE);
        assert_eq!(result.ejected, None);
        let ms = |what, number| result.times(what, number).iter().map(|ns| ns / MS).collect::<Vec<_>>();
        let idle = TaskId::IDLE.0;
        (ms("cpu_release", 0), ms("for the stopper", idle), ms("cpu_acquire", 0), result.run.place("task", 15 * MS))
    };
    // By itself, and by another that binds it while it runs.
    let mut own = Scene::new();
    let program_of_task = once([run_for(10 * MS), Step::SetAffinity(on_cpu(1)), run_for(10 * MS)]);
    own.task("task", program_of_task).affinity = on_cpu(0);
    let mut bound = Scene::new();
    bound.task("task", once([run_for(20 * MS)])).affinity = on_cpu(0);
    bound.bind(10 * MS, "task", Destination::Cpus(on_cpu(1)));
    for scene in [own, bound] {
        assert_eq!(taken(&scene), (vec![10], vec![10], vec![10], 1));
    }
}

/// Linux 7.2 `enqueue_task_scx`: the kernel's own bits come with a program's, by `kernel/sched/sched.h`.
#[test]
fn a_program_is_given_the_kernels_own_bits_of_an_enqueue() {
    const WAKES: u64 = 0x1 | 0x8;
    const MIGRATED: u64 = 0x0004_0000;
    const IS_NEW: u64 = 0x0008_0000 | 0x8;
    const CPU_SELECTED: u64 = 0x0010_0000;
    let mut program = Program::fifo();
    // None is inserted before, so that all are enqueued.
    program.select = |_, _, _, flags| CpuId(if flags.fork { 0 } else { 1 });
    program.enqueue = |kernel, task, flags| {
        let expected = match (kernel.now_ns() / MS, task.0) {
            (0, _) => IS_NEW,
            // It slept on CPU 0, and CPU 1 is selected; for one that is bound nobody is asked.
            (_, 0) => WAKES | CPU_SELECTED | MIGRATED,
            _ => WAKES,
        };
        if flags.0 != expected {
            kernel.error(&format!("flags {:#x} instead of {expected:#x} of task {}", flags.0, task.0));
        }
        kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags);
    };
    let mut scene = Scene::new();
    scene.task("free", once([run_for(MS), sleep(2 * MS), run_for(MS)]));
    scene.task("bound", once([run_for(MS), sleep(4 * MS), run_for(MS)])).affinity = on_cpu(0);
    let result = program.run(&scene, MACHINE);
    assert_eq!(result.ejected, None);
    assert_eq!([0, 1].map(|task| result.times("enqueue", task).len()), [2, 2]);
}

#[test]
fn a_program_hears_once_that_a_cpu_is_taken_and_once_that_it_has_it_again() {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::CpuRelease, Operation::CpuAcquire, Operation::Enable]);
    let result = program.run(&scene(FIFO), MACHINE);
    let ms = |what, number| result.times(what, number).iter().map(|ns| ns / MS).collect::<Vec<_>>();
    // The one above begins and sleeps at once.
    let taken = (ms("cpu_release", 1), ms("for a real-time task", 1), ms("cpu_acquire", 1));
    assert_eq!(taken, (vec![0, 50], vec![0, 50], vec![0, 150]));
    assert_eq!((ms("enable", 0).len(), ms("enable", 1).len()), (1, 0), "one is of another class");

    let deadline = Reservation { runtime_ns: 150 * MS, deadline_ns: 200 * MS, period_ns: 200 * MS };
    let mut scene = scene(Policy::Deadline(deadline));
    scene.workload.tasks.iter_mut().for_each(|task| task.affinity = Affinity::default());
    let result = program.run(&scene, "1s1n1l1c1t");
    let count = |what, number| result.times(what, number).len();
    let releases = count("cpu_release", 0);
    assert!(releases > 0 && releases == count("for a deadline task", 1) && releases == count("cpu_acquire", 0));
}

#[test]
fn a_program_at_the_tracepoint_hears_of_every_switch_of_every_class() {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::SchedSwitch]);
    let result = program.run(&scene(FIFO), MACHINE);
    let traced = result.run.events.iter().filter_map(|event| match event.kind {
        EventKind::Switch { next, .. } => Some((event.time_ns, next.0)),
        _ => None,
    });
    let heard = result.told.iter().filter(|told| told.1 == "sched_switch").map(|told| (told.0, told.2));
    let heard: Vec<_> = heard.collect();
    assert_eq!(heard, traced.collect::<Vec<_>>());
    assert!(heard.iter().filter(|(_, next)| *next == 1).count() > 1, "the one above is among them");
}

/// A kernel gives up after 256 times (`SCX_REENQ_LOCAL_MAX_REPEAT`).
#[test]
fn a_program_that_takes_back_without_end_is_ejected() {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::SchedSwitch]);
    program.enqueue = |kernel, task, flags| {
        kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, flags);
        kernel.reenqueue(DsqId::LOCAL);
    };
    let mut scene = Scene::new();
    scene.task("task", once([run_for(200 * MS)])).instances = 2;
    let exit = program.run(&scene, "1s1n1l1c1t").ejected.expect("it is ejected");
    assert_eq!(exit.kind, ExitKind::Error);
    assert!(exit.message.contains("more than 256 times"), "{}", exit.message);
}

#[test]
fn a_queue_that_is_not_there_cannot_be_taken_back() {
    let mut program = Program::fifo();
    program.running = |kernel, _| kernel.reenqueue(DsqId(77));
    let exit = program.run(&scene(FIFO), MACHINE).ejected.expect("it is ejected");
    assert!(exit.message.contains("0x4d"), "{}", exit.message);
}

/// The calls, and the slice at the third `running`, are those that a guest of Linux 7.2 makes for the same object. Nobody is told of the mask
/// while the task is of another class.
#[test]
fn a_change_of_class_attributes_or_mask_makes_the_calls_that_a_kernel_makes() {
    use warmcore_workload::Step;
    let mut scene = Scene::new();
    let steps = [
        run_for(MS),
        Step::SetPolicy(FIFO),
        run_for(MS),
        Step::SetAffinity(on_cpus([0, 1])),
        Step::SetPolicy(Policy::Normal),
        run_for(MS),
        Step::SetPolicy(Policy::Batch),
        run_for(MS),
    ];
    scene.task("task", once(steps));
    let mut program = Program::fifo();
    program.table =
        program.table.with(&[Operation::Enable, Operation::Disable, Operation::SetWeight, Operation::SetCpumask]);
    program.running =
        |kernel, task| assert!(kernel.now_ns() < 2 * MS || kernel.now_ns() > 3 * MS || kernel.slice_ns(task) == 0);
    let result = program.run(&scene, "1s1n1l3c1t");
    let about = |told: &&super::program::Told| told.2 == 0 && told.0 > MS / 2 && told.0 < 7 * MS / 2;
    let calls: Vec<&str> = result.told.iter().filter(about).map(|told| told.1).collect();
    let expected = [
        ["stopping", "quiescent", "disable"].as_slice(),
        &["enable", "set_weight", "set_cpumask", "runnable", "running"],
        &["stopping", "quiescent", "set_weight", "runnable", "running"],
    ];
    assert_eq!((result.ejected, calls), (None, expected.concat()));
}

/// The thread that takes it elsewhere preempts it: it is runnable. Before, the change of its mask takes it off its queue and puts it back; at the
/// end it exits.
#[test]
fn a_running_task_that_forbids_itself_its_cpu_stops_as_runnable() {
    use warmcore_workload::Step;
    let mut scene = Scene::new();
    let steps = [Step::SetAffinity(on_cpu(0)), run_for(MS), Step::SetAffinity(on_cpu(1)), run_for(MS)];
    scene.task("task", once(steps));
    let result = Program::fifo().run(&scene, MACHINE);
    let stops = |how| result.times(how, 0).into_iter().filter(|time_ns| *time_ns > MS / 2).count();
    assert_eq!((stops("stopping, runnable"), stops("stopping")), (1, 2), "{:?}", result.told);
}
