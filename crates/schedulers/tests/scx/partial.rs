//! Partial mode (`SCX_OPS_SWITCH_PARTIAL`): the program has the tasks of `SCHED_EXT`, and the fair class stands above it.

use std::cell::RefCell;
use std::rc::Rc;

use warmcore_kernel::Setup;
use warmcore_schedulers::scx_native::{Ejection, ext_of, run_ext};
use warmcore_scx::{ExitKind, Kfuncs, Operation, OperationFlags, OperationTable, Operations};
use warmcore_trace::{Event, TaskId};
use warmcore_workload::{Policy, ProgramBuilder, Step};

use super::program::Program;
use crate::support::*;

fn partial() -> Program {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::Enable, Operation::Disable]);
    program.table.flags = OperationFlags::SWITCH_PARTIAL;
    program
}

/// A fair task for 50 ms, and one of `SCHED_EXT` for ever, on one CPU.
fn fair_above_ext(duration_ns: u64, fair_ns: u64) -> Scene {
    let mut scene = Scene::lasting(duration_ns);
    scene.task("fair", once([run_for(fair_ns)]));
    scene.task("ext", spin()).policy = Policy::Ext;
    scene
}

#[test]
fn a_task_of_the_program_runs_when_no_fair_task_wants_its_cpu() {
    let result = partial().run(&fair_above_ext(200 * MS, 50 * MS), "1s1n1l1c1t");
    assert!(result.ejected.is_none());
    assert!(result.run.cpu_time_between("ext", 5 * MS, 50 * MS) == 0, "the fair class stands above");
    assert!(result.run.cpu_time("ext") > 140 * MS, "{}", result.run.cpu_time("ext"));
    assert_eq!(
        (result.times("enable", 0).len(), result.times("enable", 1).len()),
        (0, 1),
        "only `ext` is the program's"
    );
    assert!(result.times("enqueue", 0).is_empty());
}

#[test]
fn a_task_that_becomes_runnable_in_the_fair_class_preempts_one_of_the_program() {
    let mut scene = Scene::lasting(200 * MS);
    scene.task("fair", times(10, [sleep(10 * MS), run_for(5 * MS)]));
    scene.task("ext", spin()).policy = Policy::Ext;
    let result = partial().run(&scene, "1s1n1l1c1t");
    let waits = result.run.wakeups("fair");
    assert!(waits.len() >= 9 && waits[1..].iter().all(|wait| wait.latency_ns() < 20 * US), "{waits:?}");
    // Its slice is not used up, so it goes on at the head of its queue and is not enqueued again.
    assert!(result.times("enqueue", 1).len() <= 10, "{:?}", result.times("enqueue", 1));
}

#[test]
fn a_change_of_policy_brings_a_task_to_the_program_and_back() {
    let mut scene = Scene::new();
    scene.task(
        "changes",
        once([
            run_for(10 * MS),
            Step::SetPolicy(Policy::Ext),
            run_for(10 * MS),
            Step::SetPolicy(Policy::Normal),
            run_for(10 * MS),
        ]),
    );
    let result = partial().run(&scene, "1s1n1l1c1t");
    let [enabled, disabled] = ["enable", "disable"].map(|what| result.times(what, 0));
    assert_eq!((enabled.len(), disabled.len()), (1, 1));
    assert!((10 * MS..11 * MS).contains(&(disabled[0] - enabled[0])), "{enabled:?} {disabled:?}");
}

/// The server waits as long as it can, to 950 ms; from then on it has 50 ms in each second. What a tick ends too late is paid with the next.
#[test]
fn tasks_of_the_program_get_a_twentieth_of_a_cpu_that_a_fair_task_never_leaves() {
    let result = partial().run(&fair_above_ext(5 * S, 10 * S), "1s1n1l1c1t");
    assert!(result.ejected.is_none(), "{:?}", result.ejected);
    let got_ns = |from_ms, to_ms| result.run.cpu_time_between("ext", from_ms * MS, to_ms * MS);
    assert_eq!(got_ns(5, 940), 0, "the fair class stands above");
    assert!((40 * MS..=56 * MS).contains(&got_ns(940, 1010)), "{}", got_ns(940, 1010));
    assert_near("50 ms in each of 4 s", got_ns(1000, 5000) as f64, (200 * MS) as f64, 0.1);
}

/// Ends by itself after 10 ms and is attached again; then it does not want the second task.
struct Disallows {
    is_again: bool,
    enabled: Rc<RefCell<Vec<TaskId>>>,
}

impl Operations for Disallows {
    fn table(&self) -> OperationTable {
        use Operation::{Enable, Init, InitTask, Timer};
        let table = OperationTable::empty("disallows").with(&[Init, InitTask, Enable, Timer]);
        OperationTable { flags: OperationFlags::SWITCH_PARTIAL, ..table }
    }
    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        if !self.is_again {
            kernel.start_timer(10 * MS, 0);
        }
    }
    fn timer(&mut self, kernel: &mut Kfuncs<'_, '_>, _payload: u32) {
        kernel.exit(0, "I come again");
    }
    fn may_begin_again(&self) -> bool {
        !self.is_again
    }
    fn begin_again(&mut self) -> bool {
        self.enabled.borrow_mut().clear();
        !std::mem::replace(&mut self.is_again, true)
    }
    fn init_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) -> bool {
        if self.is_again && task == TaskId(1) {
            kernel.disallow(task);
        }
        true
    }
    fn enable(&mut self, _kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.enabled.borrow_mut().push(task);
    }
}

#[test]
fn a_task_that_a_program_does_not_want_when_it_is_loaded_is_of_the_fair_class_from_then_on() {
    shares_with_an_unwanted_task(spin());
}

/// `EACCES`: below the fair class it would have nothing.
#[test]
fn a_task_that_a_program_does_not_want_may_not_ask_for_its_policy_again() {
    let asks = [run_for(30 * MS), Step::SetPolicy(Policy::Batch), Step::SetPolicy(Policy::Ext)];
    shares_with_an_unwanted_task(then_forever(asks, [run_for(S)]));
}

fn shares_with_an_unwanted_task(unwanted: ProgramBuilder) {
    let mut scene = Scene::lasting(220 * MS);
    scene.task("fair", spin());
    for (name, program) in [("unwanted", unwanted), ("wanted", spin())] {
        scene.task(name, program).policy = Policy::Ext;
    }
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    let (enabled, ejection) = (Rc::default(), Ejection::default());
    let mut events: Vec<Event> = Vec::new();
    let program = Disallows { is_again: false, enabled: Rc::clone(&enabled) };
    let outcome = run_ext(ext_of(program, &setup), &setup, ejection.clone(), Some(&mut events)).unwrap();
    assert_eq!((ejection.restarts().len(), ejection.info().is_some()), (1, false));
    assert_eq!(*enabled.borrow(), [TaskId(2)]);
    let run = Run { events, outcome, machine: machine.clone() };
    let shared_ns = ["fair", "unwanted", "wanted"].map(|name| run.cpu_time_between(name, 20 * MS, 220 * MS));
    assert_near("one of two fair tasks", shared_ns[1] as f64, (100 * MS) as f64, 0.1);
    assert_eq!(shared_ns[2], 0, "below the fair class");
}

/// The server comes too late for so short a timeout.
#[test]
fn a_program_whose_task_starves_below_the_fair_class_is_ejected_and_the_task_becomes_fair() {
    let mut program = partial();
    program.table.timeout_ms = 100;
    let result = program.run(&fair_above_ext(400 * MS, 10 * S), "1s1n1l1c1t");
    let exit = result.ejected.expect("the watchdog comes");
    assert_eq!(exit.kind, ExitKind::Stall);
    assert!(exit.time_ns < 200 * MS, "{exit:?}");
    let shared_ns = result.run.cpu_time_between("ext", 200 * MS, 400 * MS);
    assert_near("its share beside another fair task", shared_ns as f64, (100 * MS) as f64, 0.1);
}

/// Without a program in partial mode the policy is one of the fair class's, as in a kernel without such a program.
#[test]
fn without_partial_mode_the_policy_changes_nothing() {
    let mut scene = Scene::lasting(100 * MS);
    scene.task("fair", spin());
    scene.task("ext", spin()).policy = Policy::Ext;
    let run = scene.run("1s1n1l1c1t", "eevdf");
    assert_near("half of the CPU", run.cpu_time("ext") as f64, (50 * MS) as f64, 0.1);
    let full = Program::fifo().run(&scene, "1s1n1l1c1t");
    assert_eq!(full.times("enqueue", 0).is_empty(), full.times("enqueue", 1).is_empty(), "all are the program's");
}
