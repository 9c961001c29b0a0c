//! Control groups: their structures, what leads from one to another, and what a program is told of them.

use super::*;

/// Groups by the order in which the file names them, the root first: `/u1`, `/u1/inner` and `/u2` have the identifiers 2, 3 and 4.
pub const GROUPED: &str = r#"{"tasks": {
    "moves": {"loop": 1, "taskgroup": "/u1/inner", "phases": {
        "a": {"loop": 1, "run": 10000, "taskgroup": "/u1/inner"}, "b": {"loop": 1, "run": 10000, "taskgroup": "/u2"}}}},
    "warmcore": {"groups": [{"name": "/u1/inner", "shares": 3072, "cpu_max": "20000 100000", "cpu_max_burst": 5000}]}}"#;

/// Of four CPUs a group has three and asks for two, of which one is of those; the one between has no list.
pub const CONFINED: &str = r#"{"tasks": {"stays": {"loop": 1, "run": 10000, "policy": "SCHED_BATCH", "taskgroup": "/u/none/inner"}},
    "warmcore": {"groups": [{"name": "/u", "cpuset_cpus": "0-2"}, {"name": "/u/none"}, {"name": "/u/none/inner", "cpuset_cpus": "2-3"}]}}"#;

/// Where things lie in structures (`types`).
const LEVEL: i16 = 16;
const KN: i16 = 24;
const ANCESTORS: i16 = 32;
/// `subsys` of cpusets, of a controller that no group has, and of the cpu controller.
const CPUSET: i16 = 64;
const IO: i16 = 72;
const CPU: i16 = 80;
const CGROUPS: i16 = 1160;
const TASK_GROUP: i16 = 1168;

/// `r3 = identifier of the cgroup in a register`.
fn id_of(cgroup: u8) -> Code {
    vec![load(8, 3, cgroup, KN), load(8, 3, 3, 0)]
}

/// Reports what these programs leave in `r3`.
fn report_each(programs: &[Code]) -> Code {
    let mut all = Code::new();
    for (number, program) in programs.iter().enumerate() {
        all.extend(program.clone());
        all.extend(keep(3, slot::FOUND + 8 * number as i32));
    }
    [all, report(programs.len())].concat()
}

/// `r3 = r3 - register`.
fn minus(register: u8) -> [u8; 8] {
    code(0x1f, 3, register, 0, 0)
}

#[test]
fn a_task_leads_to_its_group_and_the_ones_above() {
    let found_there = report_each(&[
        id_of(7),
        [vec![mov(1, 7), mov_imm(2, 1), kfunc("bpf_cgroup_ancestor")], id_of(0)].concat(),
        vec![mov(1, 7), mov_imm(2, 3), kfunc("bpf_cgroup_ancestor"), mov(3, 0)],
        [vec![load(8, 4, 7, ANCESTORS + 8)], id_of(4)].concat(),
        vec![load(8, 3, 6, CGROUPS), load(8, 3, 3, 0), minus(7)],
        vec![load(8, 3, 6, TASK_GROUP), load(8, 3, 3, 0), minus(7)],
        vec![mov_imm(1, 3), kfunc("bpf_cgroup_from_id"), mov(3, 0), minus(7)],
        vec![load(8, 3, 7, KN), load(8, 3, 3, 8), load(1, 3, 3, 0)],
    ]);
    let task = vec![load(8, 6, 1, 0), mov(1, 6), kfunc("scx_bpf_task_cgroup"), mov(7, 0), load(4, 3, 7, LEVEL)];
    let running = [task, when_equal(3, 2, found_there)].concat();
    let found = found_with(ALL, &fifo(&[("running", running)]), "grouped.json");
    assert_eq!(found, [3, 2, 0, 2, 0, 0, 0, i64::from(b'i')]);
    let current = report_each(&[vec![helper(80), mov(3, 0)]]);
    assert_eq!(found_with(ALL, &fifo(&[("tick", current)]), "grouped.json"), [3]);
}

/// `scx_lavd --enable-cpu-bw` keeps the number, and gets the root group from that task when its timers run.
#[test]
fn init_runs_in_the_loaders_process() {
    let number = report_each(&[vec![helper(14), mov(3, 0)]]);
    assert_eq!(found_with(ALL, &fifo(&[("init", number)]), "grouped.json"), [500 << 32 | 500]);
}

/// `container_of(cgroup->subsys[cpuset_cgrp_id], struct cpuset, css)` is what `scx_mitosis` reads; `css` lies at 8 here, and the lists behind it.
#[test]
fn a_group_leads_to_its_controllers() {
    let list = |member: i16| vec![load(8, 3, 7, CPUSET), load(8, 3, 3, member - 8), load(8, 3, 3, 0)];
    let above = |times: usize| {
        let up = vec![load(8, 4, 4, 8); times];
        [vec![load(8, 4, 7, CPU)], up, vec![load(8, 4, 4, 0)], id_of(4)].concat()
    };
    let found_there = report_each(&[
        list(24),
        list(32),
        [vec![load(8, 4, 7, CPUSET), load(8, 4, 4, 8), load(8, 4, 4, 0)], id_of(4)].concat(),
        vec![load(8, 3, 7, IO)],
        above(0),
        above(1),
        above(3),
        vec![mov_imm(1, 3), kfunc("bpf_cgroup_from_id"), load(8, 3, 0, CPUSET)],
        vec![mov_imm(1, 1), kfunc("bpf_cgroup_from_id"), load(8, 3, 0, CPUSET), load(8, 3, 3, 16), load(8, 3, 3, 0)],
    ]);
    let task = vec![load(8, 6, 1, 0), mov(1, 6), kfunc("scx_bpf_task_cgroup"), mov(7, 0), load(4, 3, 7, LEVEL)];
    let running = [task, when_equal(3, 3, found_there)].concat();
    let found = found_with(ALL, &fifo(&[("running", running)]), "confined.json");
    assert_eq!(found, [0b1100, 0b100, 2, 0, 4, 3, 1, 0, 0b1111]);
}

#[test]
fn init_task_and_cgroup_init_say_what_a_group_is() {
    let limits = report_each(&[
        vec![load(4, 3, 7, 0)],
        vec![load(8, 3, 7, 8)],
        vec![load(8, 3, 7, 16)],
        vec![load(8, 3, 7, 24)],
        id_of(6),
    ]);
    let init = [vec![load(8, 6, 1, 0), load(8, 7, 1, 8), load(4, 3, 7, 0)], when_equal(3, 300, limits)].concat();
    let found = found_with(ALL, &fifo(&[("cgroup_init", init)]), "grouped.json");
    assert_eq!(found, [300, 100_000, 20_000, 5_000, 3]);
    let group = [vec![load(8, 7, 1, 8), load(8, 7, 7, 8)], id_of(7)].concat();
    let init_task = [group, when_equal(3, 3, report_each(&[id_of(7)]))].concat();
    assert_eq!(found_with(ALL, &fifo(&[("init_task", init_task)]), "grouped.json"), [3]);
}

#[test]
fn a_move_says_from_where_to_where_and_the_task_is_there_then() {
    let arguments = vec![load(8, 6, 1, 0), load(8, 7, 1, 8), load(8, 8, 1, 16)];
    let there = [
        id_of(7),
        id_of(8),
        vec![mov(1, 6), kfunc("scx_bpf_task_cgroup"), mov(3, 0), minus(8)],
        vec![load(8, 3, 6, CGROUPS), load(8, 3, 3, 0), minus(8)],
        vec![load(8, 3, 6, TASK_GROUP), load(8, 3, 3, 0), minus(8)],
    ];
    let program = [arguments, report_each(&there)].concat();
    let found = |name| found_with(ALL, &fifo(&[(name, program.clone())]), "grouped.json");
    assert_eq!(found("cgroup_move"), [3, 4, 0, 0, 0]);
    let before = found("cgroup_prep_move");
    assert_eq!(before[..2], [3, 4]);
    assert!(before[2..].iter().all(|&distance| distance != 0), "it is still where it was: {before:?}");
}

#[test]
fn groups_are_walked_from_the_outer_ones_the_inner_ones_and_upwards() {
    let walk = |from: i32, which: i32, count: usize| {
        let root = vec![mov_imm(1, from), kfunc("bpf_cgroup_from_id"), mov(2, 0), mov(1, 10), add_imm(1, -24)];
        let mut program = [root, vec![mov_imm(3, which), kfunc("bpf_iter_css_new"), mov_imm(7, 0)]].concat();
        for _ in 0..count {
            program.extend([mov(1, 10), add_imm(1, -24), kfunc("bpf_iter_css_next")]);
            program.extend(id_of(0));
            program.extend([code(0x27, 7, 0, 0, 10), code(0x0f, 7, 3, 0, 0)]);
        }
        program.extend([mov(1, 10), add_imm(1, -24), kfunc("bpf_iter_css_next"), mov(8, 0)]);
        program.extend(report_each(&[vec![mov(3, 7)], vec![mov(3, 8)]]));
        found_with(ALL, &fifo(&[("running", program)]), "grouped.json")
    };
    assert_eq!(walk(1, 2, 4), [1234, 0]);
    assert_eq!(walk(1, 3, 4), [3241, 0]);
    assert_eq!(walk(3, 4, 3), [321, 0]);
    assert_eq!(walk(2, 2, 2), [23, 0]);
    assert_eq!(walk(1, 5, 2), [24, 0]);
}

#[test]
fn a_walk_over_tasks_is_of_one_group() {
    let iterator = vec![mov(1, 10), add_imm(1, -24)];
    let begin = [iterator.clone(), vec![mov(2, 7), mov_imm(3, 0), kfunc("bpf_iter_css_task_new")]].concat();
    let next = |then: [u8; 8]| [iterator.clone(), vec![kfunc("bpf_iter_css_task_next"), mov(3, 0), then]].concat();
    let found_there = [begin, report_each(&[next(minus(6)), next(mov(3, 0))])].concat();
    let task = vec![load(8, 6, 1, 0), mov(1, 6), kfunc("scx_bpf_task_cgroup"), mov(7, 0), load(4, 3, 7, LEVEL)];
    let running = [task, when_equal(3, 2, found_there)].concat();
    // The launcher, which is in the root group, comes before it in a walk over all.
    assert_eq!(found_with(ALL, &fifo(&[("running", running)]), "grouped.json"), [0, 0]);
}
