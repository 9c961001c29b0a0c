//! The conformance suite over every row of the registry, and over schedulers with faults that it has to find.

mod broken;
mod composite;
mod soak;
mod suite;

use warmcore_kernel::{Scheduler, run};
use warmcore_schedulers::{SchedulerSpec, list};

use crate::support::simulate_with_needs;
use broken::{Broken, FAULTS};

/// A third of the checks for those that need exact memory, which takes five sixths of all time here.
fn part_for(spec: &SchedulerSpec) -> usize {
    if spec.info().needs_sets { 3 } else { 1 }
}

#[test]
fn every_scheduler_of_the_registry_keeps_the_rules() {
    assert!(list().len() >= 6);
    for row in list() {
        let spec: SchedulerSpec = row.name.parse().unwrap();
        let run: suite::Simulate<'_> = &|setup, sink| simulate_with_needs(&spec, setup, sink);
        if let Err(sentence) = suite::check_part(run, row.shares_equally, part_for(&spec)) {
            panic!("{}: {sentence}", row.name);
        }
    }
}

/// A third of the tasks real-time ones, others of deadline: nobody is lost, and runs repeat.
#[test]
fn every_scheduler_keeps_the_rules_below_the_classes_above() {
    for row in list() {
        let spec: SchedulerSpec = row.name.parse().unwrap();
        if let Err(sentence) = suite::check_below(&|setup, sink| simulate_with_needs(&spec, setup, sink)) {
            panic!("{}: {sentence}", row.name);
        }
    }
}

/// Choices that make another scheduler of a row.
#[test]
fn every_reading_of_a_scheduler_keeps_the_rules() {
    for (text, shares_equally) in [
        ("cfs:kernel=4.9", true),
        ("eevdf:kernel=7.3", true),
        ("dio:variant=coded", true),
        ("ule:profile=paper-port", false),
        ("ule:profile=paper-text", false),
        ("ule:profile=modern", false),
    ] {
        let spec: SchedulerSpec = text.parse().unwrap();
        let run: suite::Simulate<'_> = &|setup, sink| simulate_with_needs(&spec, setup, sink);
        if let Err(sentence) = suite::check_part(run, shares_equally, part_for(&spec)) {
            panic!("{text}: {sentence}");
        }
    }
}

#[test]
fn each_fault_of_a_scheduler_is_named() {
    for (fault, words) in FAULTS {
        let found = suite::check(
            &|setup, sink| run(setup, Box::new(Broken::new(fault, &setup.boot())) as Box<dyn Scheduler>, sink),
            true,
        );
        let sentence = found.expect_err(&format!("{fault:?} must be found"));
        assert!(sentence.contains(words), "{fault:?}: {sentence}");
    }
}

#[test]
fn every_native_sched_ext_program_keeps_the_rules() {
    for policy in ["fifo", "fifo-llc", "vtime"] {
        let spec: SchedulerSpec = format!("scx-native:policy={policy}").parse().unwrap();
        if let Err(sentence) = suite::check(&|setup, sink| simulate_with_needs(&spec, setup, sink), true) {
            panic!("{policy}: {sentence}");
        }
    }
}
