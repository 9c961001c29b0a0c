//! One program for each fault: it is ejected with the kind and the words that the contract gives, and its tasks go on under the fair class.

use warmcore_kernel::{Setup, SimulationError};
use warmcore_schedulers::scx_native::trial;
use warmcore_scx::{DsqId, EnqueueFlags, ExitKind, Kick, SLICE_DEFAULT_NS};
use warmcore_topology::CpuId;
use warmcore_trace::{End, TaskId};

use super::program::{Program, SHARED};
use crate::support::*;

/// Four tasks of 30 ms on two CPUs, under a program with a fault; what it was ejected for.
fn ejected(change: fn(&mut Program)) -> (ExitKind, String) {
    let mut scene = Scene::new();
    scene.task("task", times(3, [run_for(30 * MS), sleep(MS)])).instances = 4;
    let mut program = Program::fifo();
    program.table.timeout_ms = 500;
    change(&mut program);
    let result = program.run(&scene, "1s1n1l2c1t");
    let exit = result.ejected.expect("a fault");
    assert_eq!(result.run.outcome.end, End::AllExited, "all work is done under the fair class");
    assert!(!exit.dump.is_empty());
    let heard = result.heard.expect("the program is told");
    assert_eq!((heard.kind, &heard.message), (exit.kind, &exit.message));
    assert!(heard.dump.contains("\na line of the program's\n\nCPU states\n"), "{}", heard.dump);
    (exit.kind, exit.message)
}

#[test]
fn an_insertion_into_a_queue_that_does_not_exist_is_an_error() {
    let (kind, message) = ejected(|program| {
        program.enqueue = |kernel, task, flags| kernel.dsq_insert(task, DsqId(0xbad), SLICE_DEFAULT_NS, flags);
    });
    assert_eq!(kind, ExitKind::Error);
    assert!(message.starts_with("non-existent DSQ 0xbad for task"), "{message}");
}

#[test]
fn a_second_insertion_of_a_task_is_an_error() {
    let (kind, message) = ejected(|program| {
        program.enqueue = |kernel, task, flags| {
            kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags);
            kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags);
        };
    });
    assert_eq!(kind, ExitKind::Error);
    assert!(message.ends_with("already direct-dispatched"), "{message}");
}

#[test]
fn an_insertion_of_another_task_than_the_one_in_question_is_an_error() {
    let (kind, message) = ejected(|program| {
        program.enqueue = |kernel, task, flags| {
            kernel.dsq_insert(TaskId(if task.0 == 0 { 1 } else { 0 }), SHARED, SLICE_DEFAULT_NS, flags);
        };
    });
    assert_eq!(kind, ExitKind::Error);
    assert!(message.contains("inserted while task"), "{message}");
}

#[test]
fn a_queue_with_both_orders_is_an_error() {
    let (kind, message) = ejected(|program| {
        program.enqueue = |kernel, task, flags| {
            if task.0.is_multiple_of(2) {
                kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags);
            } else {
                kernel.dsq_insert_vtime(task, SHARED, SLICE_DEFAULT_NS, 0, flags);
            }
        };
    });
    assert_eq!(kind, ExitKind::Error);
    assert!(message.contains("vtime") && message.contains("FIFO"), "{message}");
}

#[test]
fn a_built_in_queue_takes_no_virtual_time() {
    let (kind, message) = ejected(|program| {
        program.enqueue =
            |kernel, task, flags| kernel.dsq_insert_vtime(task, DsqId::GLOBAL, SLICE_DEFAULT_NS, 0, flags);
    });
    assert_eq!(kind, ExitKind::Error);
    assert!(message.starts_with("cannot use vtime ordering for built-in DSQ"), "{message}");
}

#[test]
fn a_cpu_that_does_not_exist_is_an_error() {
    let (kind, message) = ejected(|program| program.select = |_, _, _, _| CpuId(77));
    assert_eq!(kind, ExitKind::Error);
    assert!(message.contains("select_cpu chose cpu77"), "{message}");
}

#[test]
fn an_insertion_outside_of_its_operations_is_an_error() {
    let (kind, message) = ejected(|program| {
        program.running = |kernel, task| kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, EnqueueFlags::default());
    });
    assert_eq!(kind, ExitKind::Error);
    assert!(message.contains("outside of select_cpu, enqueue and dispatch"), "{message}");
}

#[test]
fn more_insertions_in_a_dispatch_than_it_has_slots_are_an_error() {
    let (kind, message) = ejected(|program| {
        program.table.dispatch_max_batch = 2;
        program.dispatch = |kernel, _, _| {
            (0..3).for_each(|_| kernel.dsq_insert(TaskId(0), SHARED, SLICE_DEFAULT_NS, EnqueueFlags::default()));
        };
    });
    assert_eq!((kind, message.as_str()), (ExitKind::Error, "dispatch buffer overflow"));
}

#[test]
fn a_lost_task_is_a_stall() {
    let (kind, message) = ejected(|program| program.enqueue = |_, _, _| {});
    assert_eq!(kind, ExitKind::Stall);
    assert!(message.contains("failed to run for 0."), "{message}");
}

#[test]
fn an_error_that_the_program_reports_is_its_own() {
    let (kind, message) = ejected(|program| program.enqueue = |kernel, _, _| kernel.error("I give up"));
    assert_eq!((kind, message.as_str()), (ExitKind::ErrorByProgram, "I give up"));
}

#[test]
fn a_trial_whose_program_was_ejected_is_invalid_and_says_why() {
    let mut scene = Scene::new();
    scene.task("task", once([run_for(30 * MS)])).instances = 4;
    let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
    let setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    let mut program = Program::fifo();
    program.enqueue = |kernel, _, _| kernel.error("I give up");
    let error = trial(program, &setup, None).unwrap_err();
    assert!(matches!(error, SimulationError::Ejected { .. }));
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("the trial is invalid, `test` did not schedule to the end: scx_bpf_error at"),
        "{sentence}"
    );
}

#[test]
fn whatever_fails_and_whenever_a_program_is_told_of_the_end_of_what_it_was_told_of_and_of_nothing_else() {
    use warmcore_scx::Operation::{Disable, Enable, ExitTask, InitTask};
    let mut scene = Scene::new();
    scene.task("task", times(3, [run_for(30 * MS), sleep(MS)])).instances = 4;
    for operation in [
        "init",
        "init_task",
        "enable",
        "runnable",
        "select_cpu",
        "enqueue",
        "dequeue",
        "running",
        "stopping, runnable",
        "stopping",
        "quiescent",
        "disable",
        "exit_task",
        "timer",
    ] {
        for call in 1..=3 {
            let mut program = Program::fifo();
            program.table = program.table.with(&[InitTask, ExitTask, Enable, Disable]);
            program.fails = Some((operation, call));
            program.timer_at_ns = 40 * MS;
            let result = program.run(&scene, "1s1n1l2c1t");
            let told = |what: &str, task| result.told.iter().filter(|told| (told.1, told.2) == (what, task)).count();
            let calls: usize = (0..4).map(|task| told(operation, task)).sum();
            assert_eq!(result.ejected.is_some(), calls >= call, "{operation}, call {call}");
            assert_eq!(result.heard.is_some(), calls >= call, "{operation}, call {call}");
            assert_eq!(result.run.outcome.end, End::AllExited);
            for task in 0..4 {
                let refused = usize::from(operation == "init_task" && task as usize + 1 == call);
                let case = format!("{operation}, call {call}, task {task}");
                assert_eq!(told("exit_task", task), told("init_task", task) - refused, "{case}");
                assert_eq!(told("disable", task), told("enable", task), "{case}");
                assert!(told("enable", task) <= told("init_task", task) && told("init_task", task) <= 1, "{case}");
                assert!(told("running", task) == 0 || told("enable", task) == 1, "{case}");
            }
        }
    }
}

#[test]
fn a_slice_that_is_used_up_and_not_given_anew_ends_at_the_next_tick() {
    let mut scene = Scene::lasting(S);
    scene.task("spins", spin()).instances = 2;
    let mut program = Program::fifo();
    program.enqueue = |kernel, task, flags| kernel.dsq_insert(task, SHARED, 0, flags);
    let result = program.run(&scene, "1s1n1l1c1t");
    assert!(result.ejected.is_none());
    // A guest of Linux 7.2 with 250 ticks a second has slices of 4.03 ms after the first, which has 20 ms.
    let lengths: Vec<u64> = result.run.stays("spins-0").iter().skip(1).map(Stay::length_ns).collect();
    assert!(lengths.len() > 100 && lengths.iter().all(|ns| *ns <= 5 * MS), "{lengths:?}");
}

#[test]
fn a_program_whose_cpus_choose_without_an_end_is_ended() {
    let (kind, message) = ejected(|program| {
        program.enqueue = |kernel, task, flags| {
            kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags);
            let here = kernel.this_cpu();
            kernel.kick(here, Kick::Preempt);
        };
    });
    assert_eq!(kind, ExitKind::Error);
    assert!(message.starts_with("CPUs chose a task 65536 times at one moment"), "{message}");
}

/// A CPU that has nothing takes a task that waits, which is bound to the other CPU.
#[test]
fn a_task_for_the_local_queue_of_a_cpu_that_it_may_not_use_is_an_error_in_dispatch_too() {
    let mut scene = Scene::new();
    (0..2).for_each(|number| scene.task(&format!("bound {number}"), once([run_for(30 * MS)])).affinity = on_cpu(0));
    let mut program = Program::fifo();
    // It keeps tasks itself, as one with a queue of numbers does.
    program.enqueue = |_, _, _| {};
    program.dispatch = |kernel, cpu, _| {
        if cpu == CpuId(1) && kernel.now_ns() >= MS {
            kernel.dsq_insert(TaskId(0), DsqId::LOCAL, SLICE_DEFAULT_NS, EnqueueFlags::default());
        }
    };
    program.timer = |kernel| kernel.kick(CpuId(1), Kick::Plain);
    program.timer_at_ns = MS;
    let result = program.run(&scene, "1s1n1l2c1t");
    let exit = result.ejected.expect("a fault");
    assert_eq!(exit.kind, ExitKind::Error);
    assert_eq!(exit.message, "SCX_DSQ_LOCAL target cpu1 is not allowed for bound 0");
    assert_eq!(result.run.outcome.end, End::AllExited, "all work is done under the fair class");
}

#[test]
fn a_flag_of_the_class_itself_is_an_error_in_an_insertion() {
    let (kind, message) = ejected(|program| {
        program.enqueue = |kernel, task, flags| {
            kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, EnqueueFlags(flags.0 | 1 << 57));
        };
    });
    assert_eq!(kind, ExitKind::Error);
    assert!(message.starts_with("invalid enq_flags 0x2"), "{message}");
}
