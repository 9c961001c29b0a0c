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

/// Its `init_task` fails with the number of the task's parent, but for one.
fn refuse_children_but_of(number: i32) {
    let parent = [load_double(6, 1, 0), load_double(7, 6, 32), load(4, 0, 7, 24)];
    let spare = [code(0x55, 0, 0, 1, number), mov_imm(0, 0)];
    let refuse = [&parent[..], &spare, &[code(0x87, 0, 0, 0, 0), exit()]].concat();
    attach(&[init(), select_cpu(), enqueue(), dispatch(), (184, "init_task", refuse)]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_takes_no_children() {
    refuse_children_but_of(0);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_takes_children_of_the_launcher() {
    refuse_children_but_of(1000);
}

/// Its `init_task` fails with the number of the task's address space, that of the task that began it, but for the first of the workload. The kernel's
/// threads have none.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_takes_one_address_space() {
    let space = [load_double(6, 1, 0), load_double(0, 6, 1184), code(0x77, 0, 0, 0, 12), code(0x57, 0, 0, 0, 0xffff)];
    let spare = [code(0x55, 0, 0, 1, 1), mov_imm(0, 0)];
    let refuse = [&space[..], &spare, &[code(0x87, 0, 0, 0, 0), exit()]].concat();
    attach(&[init(), select_cpu(), enqueue(), dispatch(), (184, "init_task", refuse)]);
}

#[test]
fn threads_share_an_address_space_and_processes_do_not() {
    skip!(unless can_answer());
    const ONE: &str = "loader_that_takes_one_address_space";
    assert_eq!(ejected(ONE, "hackbench:-T,-f3,-g1,-l5"), None);
    let reason = ejected(ONE, "hackbench:-f3,-g1,-l5").unwrap_or_default();
    assert!(reason.contains("init_task failed with -2"), "{reason}");
}

/// The reason that the program was ejected for, if it was.
fn ejected(loader: &str, text: &str) -> Option<String> {
    let capture = run_loader(loader, Duration::from_secs(60)).unwrap();
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
    const CHILDREN: &str = "loader_that_takes_children_of_the_launcher";
    // The launcher, numbered 1000, is nobody's child, and is there before its children are.
    let reason = ejected("loader_that_takes_no_children", "hackbench:-f3,-g1,-l5").unwrap_or_default();
    assert!(reason.contains("init_task failed with -1000"), "{reason}");
    // The first task is its child; as a process it forks the others, as a thread it creates children of the same parent.
    let reason = ejected(CHILDREN, "hackbench:-f3,-g1,-l5").unwrap_or_default();
    assert!(reason.contains("init_task failed with -1001"), "{reason}");
    assert_eq!(
        ejected(CHILDREN, "hackbench:-T,-f3,-g1,-l5"),
        None,
        "threads are the launcher's children as their process is"
    );
}
