//! Whose child a task is, as a program sees it in `init_task`.
#![cfg(target_arch = "x86_64")]

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;
mod loaders;
mod types;

use std::time::Duration;

use assembler::*;
use loaders::*;
use warmcore_kernel::{Setup, SimulationError};
use warmcore_schedulers::{Bytecode, bytecode_trial};
use warmcore_testing::skip;

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_dies() {
    std::process::exit(3);
}

/// Its `init_task` fails with the number of the task's parent, and so with nothing if that is the idle task.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_takes_no_children() {
    let negate = code(0x87, 0, 0, 0, 0);
    let refuse = vec![load_double(6, 1, 0), load_double(7, 6, 32), load(4, 0, 7, 24), negate, exit()];
    attach(&[init(), select_cpu(), enqueue(), dispatch(), (184, "init_task", refuse)]);
}

/// The reason that the program was ejected for, if it was.
fn ejected(text: &str) -> Option<String> {
    let capture = run_loader("loader_that_takes_no_children", Duration::from_secs(60)).unwrap();
    let (machine, workload) = (machine(), workload(text));
    let setup = Setup::new(&machine, &workload, 7).unwrap();
    match bytecode_trial(Bytecode::new(&capture.object, 7, false).unwrap(), &setup, None) {
        Ok(_) => None,
        Err(SimulationError::Ejected { reason, .. }) => Some(reason),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_forked_process_is_the_child_of_who_forked_it_and_a_thread_of_whoever_its_process_is() {
    skip!(unless can_answer());
    // The first task is the launcher's child, numbered 1000; it forks the others.
    let reason = ejected("hackbench:-f3,-g1,-l5").unwrap_or_default();
    assert!(reason.contains("init_task failed with -1000"), "{reason}");
    assert_eq!(ejected("hackbench:-T,-f3,-g1,-l5"), None, "threads are the launcher's children as their process is");
}
