//! Tasks that stay on their CPU for a while (`SCX_OPS_ENQ_MIGRATION_DISABLED`, `docs/spec/sched-ext.md` section 5).

use warmcore_scx::OperationFlags;
use warmcore_workload::Step;

use super::program::Program;
use crate::support::*;

/// By hand: slices are of 20 ms. Who has disabled migration goes to the head of its CPU's local queue's line, of which no program is asked: it
/// runs through to 50 ms, and is enqueued when the slice in which it may leave is over. A program that wants to be asked is, at each slice's end.
#[test]
fn a_program_is_asked_about_a_task_that_must_stay_only_if_it_wants_to_be() {
    let enqueued_ms = |flags: OperationFlags| {
        let mut scene = Scene::new();
        scene.task("held", once([Step::MigrateDisable, run_for(50 * MS), Step::MigrateEnable, run_for(50 * MS)]));
        scene.task("other", once([run_for(200 * MS)]));
        let mut program = Program::fifo();
        program.table.flags = flags;
        let result = program.run(&scene, "1s1n1l1c1t");
        assert_eq!(result.ejected, None);
        let times = result.times("enqueue", 0);
        times.into_iter().map(|ns| (ns + MS / 2) / MS).filter(|ms| (1..110).contains(ms)).collect::<Vec<_>>()
    };
    assert_eq!(enqueued_ms(OperationFlags::default()), [60]);
    assert_eq!(enqueued_ms(OperationFlags::ENQ_MIGRATION_DISABLED), [20, 60, 100]);
}
