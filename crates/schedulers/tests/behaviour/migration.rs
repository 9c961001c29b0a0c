//! Tasks that disable migration stay on their CPU, under every scheduler, until they enable it again.

use std::collections::BTreeMap;

use warmcore_schedulers::list;
use warmcore_trace::{EventKind, TaskId};
use warmcore_workload::{Destination, Step};

use crate::support::*;

/// Twice as many tasks as CPUs; each is within its section most of the time, which begins and ends with a phase.
fn sections() -> Scene {
    let mut scene = Scene::new();
    let [within, without] = ["within", "without"].map(|name| scene.workload.add_phase(name));
    let section = [
        Step::MigrateDisable,
        Step::Phase(within),
        run_for(700 * US),
        sleep(900 * US),
        Step::Yield,
        Step::MigrateDisable,
        run_for(5 * MS),
        Step::MigrateEnable,
        run_for(300 * US),
        Step::Phase(without),
        Step::MigrateEnable,
        run_for(100 * US),
        sleep(200 * US),
    ];
    scene.task("stays", times(25, section)).instances = 8;
    scene.task("moves", times(400, [run_for(300 * US), sleep(250 * US)])).instances = 8;
    scene
}

/// Moves of tasks within their sections and without.
fn moves(run: &Run) -> (u32, u32) {
    let mut within: BTreeMap<TaskId, bool> = BTreeMap::new();
    let (mut inside, mut outside) = (0, 0);
    for event in &run.events {
        match event.kind {
            EventKind::Phase { task, phase } => drop(within.insert(task, phase == 0)),
            EventKind::Migrate { task, .. } if within.get(&task) == Some(&true) => inside += 1,
            EventKind::Migrate { task, .. } if within.contains_key(&task) => outside += 1,
            _ => {}
        }
    }
    (inside, outside)
}

fn every_scheduler() -> impl Iterator<Item = String> {
    let native = ["fifo", "fifo-llc", "vtime"].map(|policy| format!("scx-native:policy={policy}"));
    list().iter().map(|row| row.name.to_owned()).chain(native)
}

#[test]
fn nobody_moves_a_task_that_has_disabled_migration() {
    for scheduler in every_scheduler() {
        let (inside, outside) = moves(&sections().run("1s1n2l4c1t", &scheduler));
        assert_eq!(inside, 0, "{scheduler}");
        assert!(outside > 0, "{scheduler}: nothing is shown where tasks never move");
    }
}

#[test]
fn the_same_tasks_move_where_they_do_not_disable_migration() {
    let mut scene = sections();
    for program in &mut scene.workload.programs {
        let steps = program.steps.iter().map(|step| match step {
            Step::MigrateDisable | Step::MigrateEnable => run_for(0),
            other => other.clone(),
        });
        program.steps = steps.collect();
    }
    for scheduler in ["eevdf", "cfs", "ule", "rr"] {
        let (inside, _) = moves(&scene.run("1s1n2l4c1t", scheduler));
        assert!(inside > 0, "{scheduler}");
    }
}

#[test]
fn real_time_tasks_stay_too() {
    for scheduler in ["eevdf", "scx-native:policy=fifo"] {
        let mut scene = sections();
        for (index, task) in scene.workload.tasks.iter_mut().enumerate() {
            task.policy = warmcore_workload::Policy::Fifo { priority: 1 + 9 * index as u8 };
        }
        let (inside, outside) = moves(&scene.run("1s1n2l4c1t", scheduler));
        assert_eq!(inside, 0, "{scheduler}");
        assert!(outside > 0, "{scheduler}");
    }
}

/// `taskset` of another process returns at once, and the task follows when it may.
#[test]
fn a_mask_that_is_given_meanwhile_holds_from_the_end_of_the_section_on() {
    for scheduler in every_scheduler() {
        let mut scene = Scene::new();
        let steps = [Step::MigrateDisable, run_for(20 * MS), sleep(MS), run_for(MS), Step::MigrateEnable, run_for(MS)];
        scene.task("task", once(steps)).affinity = on_cpus([0, 1]);
        scene.workload.tasks[0].start_cpu = Some(0);
        scene.bind(5 * MS, "task", Destination::Cpus(on_cpu(3)));
        let run = scene.run("1s1n1l4c1t", &scheduler);
        let stays = run.stays("task");
        let (last, before) = stays.split_last().unwrap();
        assert_eq!(last.cpu, 3, "{scheduler}");
        assert!(last.length_ns() < 2 * MS, "{scheduler}: {stays:?}");
        assert!(before.iter().all(|stay| stay.cpu == before[0].cpu), "{scheduler}: {stays:?}");
        let ran: u64 = before.iter().map(Stay::length_ns).sum();
        assert!(ran >= 21 * MS, "{scheduler}: {stays:?}");
    }
}
