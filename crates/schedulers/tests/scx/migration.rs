//! Tasks that stay on their CPU for a while (`SCX_OPS_ENQ_MIGRATION_DISABLED`, `docs/spec/sched-ext.md` section 3).

use warmcore_scx::OperationFlags;
use warmcore_workload::Step;

use super::program::Program;
use crate::support::*;

/// By hand: slices of 20 ms end with a tick, after 20 to 24 ms, and the two tasks take turns. `held` has run for 50 ms, and may leave, in its third
/// turn, which begins after 80 to 96 ms; before that a program is asked at the end of its first and of its second turn, or not at all.
#[test]
fn a_program_is_asked_about_a_task_that_must_stay_only_if_it_wants_to_be() {
    let enqueued = |flags: OperationFlags| {
        let mut scene = Scene::new();
        scene.task("held", once([Step::MigrateDisable, run_for(50 * MS), Step::MigrateEnable, run_for(50 * MS)]));
        scene.task("other", once([run_for(200 * MS)]));
        let mut program = Program::fifo();
        program.table.flags = flags;
        let result = program.run(&scene, "1s1n1l1c1t");
        assert_eq!(result.ejected, None);
        let times = result.times("enqueue", 0);
        let between = |from_ms, to_ms| times.iter().filter(|ns| (from_ms * MS..to_ms * MS).contains(*ns)).count();
        [between(1, 80), between(96, 130)]
    };
    assert_eq!(enqueued(OperationFlags::default()), [0, 1]);
    assert_eq!(enqueued(OperationFlags::ENQ_MIGRATION_DISABLED), [2, 1]);
    // What the class inserts itself need not run at once, whatever the program wants of its own insertions.
    assert_eq!(enqueued(OperationFlags::ALWAYS_ENQ_IMMED), [0, 1]);
}
