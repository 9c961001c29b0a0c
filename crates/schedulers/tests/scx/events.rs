//! Events that the class counts in the program's place (`struct scx_event_stats`), by hand from the places where a kernel counts them.

use warmcore_scx::{Kick, Operation, OperationFlags, OperationTable};
use warmcore_topology::CpuId;
use warmcore_workload::{ProgramBuilder, Step};

use super::program::{Program, Result};
use crate::support::*;

/// A program at the class's tracepoints.
fn watching() -> Program {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::SchedExt]);
    program
}

/// Events in their order, with what they added.
fn events(result: &Result) -> Vec<(&'static str, u32)> {
    let told = result.told.iter().map(|&(_, what, number)| (what, number));
    told.filter(|(what, _)| what.starts_with("SCX_EV_")).map(|(what, number)| (&what[7..], number)).collect()
}

/// How often it was counted, if it is the only one beside those of loading.
fn counted(result: &Result, name: &str) -> usize {
    let events = events(result);
    assert_eq!(events[..2], [("BYPASS_ACTIVATE", 1), ("BYPASS_DURATION", 0)]);
    assert!(events[2..].iter().all(|event| *event == (name, 1)), "{events:?}");
    events.len() - 2
}

/// 50 ms alone: slices of 20 ms are over after 20 to 24 and 40 to 48.
#[test]
fn who_goes_on_alone_is_counted_with_the_slice_that_it_gets() {
    let mut scene = Scene::new();
    scene.task("alone", once([run_for(50 * MS)]));
    let result = watching().run(&scene, "1s1n1l1c1t");
    let once_more = [("DISPATCH_KEEP_LAST", 1), ("REFILL_SLICE_DFL", 1)];
    let expected = [[("BYPASS_ACTIVATE", 1), ("BYPASS_DURATION", 0)], once_more, once_more].concat();
    assert_eq!(events(&result), expected);
}

/// A task of two CPUs for which `select_cpu` chooses a third: each wakeup is one event, and its start, which no kernel counts, is none.
#[test]
fn a_choice_that_a_task_may_not_use_is_counted_at_each_wakeup() {
    let mut scene = Scene::new();
    scene.task("bound", times(5, [run_for(MS), sleep(MS)])).affinity = on_cpus([0, 1]);
    let mut program = watching();
    program.select = |_, _, _, _| CpuId(3);
    let result = program.run(&scene, "1s1n1l4c1t");
    assert_eq!(counted(&result, "SELECT_CPU_FALLBACK"), result.times("runnable", 0).len() - 1);
    assert!(result.times("runnable", 0).len() >= 5);
}

/// Without `enqueue` and `select_cpu` the class gives each slice: one at the start and at each wakeup.
#[test]
fn each_slice_that_the_class_gives_is_counted() {
    let mut scene = Scene::new();
    scene.task("sleeper", times(4, [run_for(MS), sleep(MS)]));
    let mut program = Program::fifo();
    program.table = OperationTable::empty("nothing").with(&[Operation::Runnable, Operation::SchedExt]);
    let result = program.run(&scene, "1s1n1l2c1t");
    assert_eq!(counted(&result, "REFILL_SLICE_DFL"), result.times("runnable", 0).len());
}

/// A task that has disabled migration wakes with a whole slice, whatever it had left: 15 of its 20 ms are never cut short.
#[test]
fn who_is_not_asked_about_gets_a_whole_slice_at_each_wakeup() {
    let mut scene = Scene::new();
    let turns = |body: ProgramBuilder| body.step(run_for(15 * MS)).step(sleep(MS));
    scene.task("held", once([Step::MigrateDisable]).repeat(Some(6), turns).step(Step::MigrateEnable));
    scene.task("other", once([run_for(300 * MS)]));
    let result = watching().run(&scene, "1s1n1l1c1t");
    assert!(result.times("stopping, runnable", 0).is_empty());
    let skipped = events(&result).iter().filter(|event| event.0 == "ENQ_SKIP_MIGRATION_DISABLED").count();
    // It is new before it disables migration, and wakes after each sleep.
    assert_eq!(skipped, 6);
}

/// An exit takes 20 us. A task is preempted every 5 us around its end: some of these runs meet it on its way out.
#[test]
fn who_is_preempted_on_its_way_out_is_not_given_to_the_program_unless_it_wants_that() {
    let skipped = |flags: OperationFlags| -> usize {
        let skipped_in = |step: u64| {
            let mut scene = Scene::new();
            ["exits", "other"].into_iter().for_each(|name| scene.task(name, once([run_for(10 * MS)])).instances = 1);
            let mut program = watching();
            program.table.flags = flags;
            program.timer = |kernel| kernel.kick(CpuId(0), Kick::Preempt);
            program.timer_at_ns = 10 * MS + step * 5 * US;
            let result = program.run(&scene, "1s1n1l1c1t");
            assert!(result.ejected.is_none());
            events(&result).iter().filter(|event| event.0 == "ENQ_SKIP_EXITING").count()
        };
        (0..60).map(skipped_in).sum()
    };
    assert!((3..=5).contains(&skipped(OperationFlags::default())));
    assert_eq!(skipped(OperationFlags::ENQ_EXITING), 0);
}

#[test]
fn an_error_exit_tells_each_line_of_its_dump_and_has_what_was_counted() {
    let mut scene = Scene::new();
    scene.task("alone", once([run_for(50 * MS)]));
    let mut program = watching();
    program.timer = |kernel| kernel.error("I give up");
    program.timer_at_ns = 45 * MS;
    let result = program.run(&scene, "1s1n1l1c1t");
    let dump = result.ejected.expect("an error").dump;
    let counts = dump.split_once("\nEvent counters\n--------------\n").expect("counts").1;
    let counts: Vec<Vec<&str>> = counts.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = ["SCX_EV_DISPATCH_KEEP_LAST:", "SCX_EV_REFILL_SLICE_DFL:", "SCX_EV_BYPASS_ACTIVATE:"];
    assert!(counts.iter().map(|words| words[0]).eq(expected), "{dump}");
    let lengths: Vec<u32> = dump.lines().map(|line| line.len() as u32).collect();
    let told = result.told.iter().filter(|told| told.1 == "line of the dump").map(|told| told.2);
    assert!(told.eq(lengths), "{dump}");
}
