use super::*;
use warmcore_topology::resolve;
use warmcore_workload::{Program, ProgramId, Workload};

const MIB: u64 = 1 << 20;

/// One process with two tasks that share 4 MiB; the first has 1 MiB of its own too.
fn two_tasks() -> Pages {
    let mut workload = Workload::empty("pages");
    let process = workload.add_process("process");
    workload.add_program(Program::default());
    let shared = workload.add_data_group("shared", 4 * MIB);
    let own = workload.add_data_group("own", MIB);
    for groups in [vec![shared, own], vec![shared]] {
        let mut task = Task::new("task", process, ProgramId(0));
        task.data_groups = groups;
        workload.add_task(task);
    }
    let mut pages = Pages::new(&workload, &resolve("2s1n1l1c1t").unwrap()).unwrap();
    for template in 0..2 {
        pages.task_created(TaskTemplateId(template), 0);
    }
    pages
}

#[test]
fn each_user_brings_its_part_to_the_node_where_it_runs_first() {
    let mut pages = two_tasks();
    assert_eq!(pages.resident(0), 0.0);
    pages.first_touch(0, 0);
    assert_eq!(
        (pages.homes(RegionId(0)), pages.homes(RegionId(1))),
        ([1024.0, 0.0].as_slice(), [256.0, 0.0].as_slice())
    );
    pages.first_touch(1, 1);
    assert_eq!(pages.homes(RegionId(0)), [512.0, 512.0]);
    assert_eq!(pages.resident(0), 1280.0);
}

#[test]
fn who_goes_on_elsewhere_before_it_works_takes_its_part_along() {
    let mut pages = two_tasks();
    pages.first_touch(0, 0);
    pages.first_touch(1, 0);
    pages.touch_elsewhere(1, 0, 1);
    assert_eq!(
        (pages.homes(RegionId(0)), pages.shares(RegionId(0))),
        ([512.0, 512.0].as_slice(), [0.5, 0.5].as_slice())
    );
    pages.touch_elsewhere(0, 0, 1);
    assert_eq!(
        (pages.homes(RegionId(0)), pages.homes(RegionId(1))),
        ([0.0, 1024.0].as_slice(), [0.0, 256.0].as_slice())
    );
    assert_eq!(pages.private_shares(0), [0.0, 1.0]);
}

#[test]
fn what_a_thread_reaches_follows_from_its_rate_and_the_size() {
    let pages = two_tasks();
    let used = pages.uses(0)[0];
    // 0.01 visits per nanosecond to 1024 pages: a visit per page takes 102.4 µs.
    assert!((pages.reach(used, 102_400) - (1.0 - exp(-1.0))).abs() < 1e-12);
    assert!(pages.reach(used, 10_000_000) > 0.999_999);
}

#[test]
fn marked_pages_fault_once_and_are_conserved() {
    let mut pages = two_tasks();
    pages.first_touch(0, 0);
    pages.migrate(0, RegionId(0), 0, 1, 256.0);
    // Half of the region, so half of the pages on each node.
    assert_eq!(pages.mark(RegionId(0), 0.0, 512.0), 512.0);
    assert_eq!(pages.marked(RegionId(0)), [384.0, 128.0]);
    assert_eq!(pages.fault(RegionId(0), 0, 0.5), 192.0);
    // The second half has as many on each node, wherever those of the first have gone.
    pages.migrate(0, RegionId(0), 0, 1, 192.0);
    assert_eq!(pages.mark(RegionId(0), 512.0, 512.0), 512.0);
    assert_eq!(pages.marked(RegionId(0)), [576.0, 256.0]);
    pages.migrate(0, RegionId(0), 0, 1, 100.0);
    pages.migrate(0, RegionId(0), 0, 1, 10_000.0);
    assert_eq!(pages.homes(RegionId(0)), [0.0, 1024.0]);
}

#[test]
fn the_last_toucher_is_known_as_shares() {
    let mut pages = two_tasks();
    let (first, second) = (pages.uses(0)[0], pages.uses(1)[0]);
    assert_eq!(pages.last_touch(first, 0, NO_NODE).nobody, 1.0);
    pages.note_touch(first, 0, 1024.0);
    pages.note_touch(second, 1, 256.0);
    let seen = pages.last_touch(first, 0, 0);
    assert_eq!((seen.nobody, seen.self_here, seen.others_elsewhere), (0.0, 0.75, 0.25));
    // From the other node the first task sees its own touches elsewhere and the other's here.
    let seen = pages.last_touch(first, 1, 0);
    assert_eq!((seen.self_elsewhere, seen.others_here), (0.75, 0.25));
    // However often: shares stay shares.
    for _ in 0..1000 {
        pages.note_touch(first, 0, 512.0);
        pages.note_touch(second, 1, 512.0);
    }
    let seen = pages.last_touch(second, 1, 1);
    let sum = seen.nobody + seen.self_here + seen.self_elsewhere + seen.others_here + seen.others_elsewhere;
    assert!((sum - 1.0).abs() < 1e-9 && (seen.self_here - 2.0 / 3.0).abs() < 1e-9, "{seen:?}");
}

#[test]
fn data_groups_stay_when_a_task_goes() {
    let mut pages = two_tasks();
    pages.first_touch(0, 0);
    pages.task_exited(0, 0);
    assert_eq!(pages.resident(0), 1280.0);
    assert!(pages.uses(0).is_empty());
}
