//! What programs read of the kernel's structures, and what functions give that depend on where they are called: programs that end themselves with what
//! they have found.
#![cfg(target_arch = "x86_64")]

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;
#[path = "kernel_memory/errors.rs"]
mod errors;
#[path = "kernel_memory/groups.rs"]
mod groups;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use assembler::*;
use warmcore_bpf::btf::Btf;
use warmcore_bpf::{MapKind, MapSpec};
use warmcore_kernel::{Setup, SimulationError};
use warmcore_schedulers::{Bytecode, bytecode_trial};
use warmcore_scx::bytecode::{Attached, CalledWith, Host, Layout, ProgramSource, Programs, Site};
use warmcore_workload::Options;

/// Kernel functions that programs here call; kernels have the last one from 7.0 on.
const FUNCTIONS: [&str; 26] = [
    "scx_bpf_create_dsq",
    "scx_bpf_dsq_insert",
    "scx_bpf_dsq_move_to_local",
    "scx_bpf_error_bstr",
    "scx_bpf_dump_bstr",
    "scx_bpf_get_idle_cpumask",
    "scx_bpf_get_idle_cpumask_node",
    "scx_bpf_cpu_rq",
    "scx_bpf_test_and_clear_cpu_idle",
    "scx_bpf_kick_cpu",
    "scx_bpf_destroy_dsq",
    "scx_bpf_events",
    "bpf_iter_scx_dsq_new",
    "bpf_iter_scx_dsq_next",
    "scx_bpf_dsq_move",
    "scx_bpf_reenqueue_local",
    "scx_bpf_reenqueue_local___v2",
    "bpf_throw",
    "scx_bpf_task_cgroup",
    "bpf_cgroup_ancestor",
    "bpf_cgroup_from_id",
    "bpf_iter_css_new",
    "bpf_iter_css_next",
    "bpf_iter_css_task_new",
    "bpf_iter_css_task_next",
    "bpf_timer_cancel_async",
];

type Code = Vec<[u8; 8]>;

fn kfunc(name: &str) -> [u8; 8] {
    let number = types::kernel(&FUNCTIONS).1[FUNCTIONS.iter().position(|&known| known == name).unwrap()];
    code(0x85, 0, 2, 0, number)
}

fn wide(dst: u8, value: u64) -> Code {
    vec![code(0x18, dst, 0, 0, value as i32), code(0, 0, 0, 0, (value >> 32) as i32)]
}

/// Descriptor of the one map, whose value programs share.
const MAP: i32 = 5;

/// `dst` = an address in the map's value.
fn place(dst: u8, offset: i32) -> Code {
    vec![code(0x18, dst, 2, 0, MAP), code(0, 0, 0, 0, offset)]
}

fn when_equal(register: u8, value: i32, body: Code) -> Code {
    let mut program = vec![code(0x55, register, 0, body.len() as i16, value)];
    program.extend(body);
    program
}

/// Where things lie in the value: pointers that a program keeps, a count, what is reported, a timer, the format of numbers.
mod slot {
    pub const IDLE: i32 = 0;
    pub const TASK: i32 = 8;
    pub const RUN_QUEUE: i32 = 16;
    pub const COUNT: i32 = 24;
    pub const FOUND: i32 = 64;
    pub const TIMER: i32 = 320;
    pub const FORMAT: i32 = 384;
}

fn keep(register: u8, slot: i32) -> Code {
    [place(2, slot), vec![store(8, 2, register, 0)]].concat()
}

/// Ends the scheduler with the first numbers of what was found.
fn report(count: usize) -> Code {
    let texts = [place(1, slot::FORMAT + 4 * (32 - count as i32)), place(2, slot::FOUND)].concat();
    [texts, vec![mov_imm(3, 8 * count as i32), kfunc("scx_bpf_error_bstr")]].concat()
}

/// Loads of so many bytes at an offset, each from where the one before led.
type Loads = &'static [(u8, i16)];

/// Follows kept pointers, each by loads of so many bytes at an offset, and reports.
fn report_kept(reads: &[(i32, Loads)]) -> Code {
    let mut program = Code::new();
    for (number, (kept, loads)) in reads.iter().enumerate() {
        program.extend(place(3, *kept));
        program.push(load(8, 3, 3, 0));
        program.extend(loads.iter().map(|&(bytes, offset)| load(bytes, 3, 3, offset)));
        program.extend(keep(3, slot::FOUND + 8 * number as i32));
    }
    [program, report(reads.len())].concat()
}

fn ends(program: Code) -> Code {
    [program, vec![mov_imm(0, 0), exit()]].concat()
}

/// A queue for all.
fn fifo(change: &[(&'static str, Code)]) -> Vec<(&'static str, Code)> {
    let insert = vec![load(8, 4, 1, 8), load(8, 1, 1, 0), mov_imm(2, 0), mov_imm(3, 20_000_000)];
    let mut programs = vec![
        ("init", ends(vec![mov_imm(1, 0), mov_imm(2, -1), kfunc("scx_bpf_create_dsq")])),
        ("enqueue", ends([insert, vec![kfunc("scx_bpf_dsq_insert")]].concat())),
        ("dispatch", ends(vec![mov_imm(1, 0), kfunc("scx_bpf_dsq_move_to_local")])),
    ];
    for (name, program) in change {
        match programs.iter_mut().find(|(known, _)| known == name) {
            // Before what it does anyway.
            Some((_, known)) => {
                known.splice(0..0, [vec![mov(9, 1)], program.clone(), vec![mov(1, 9)]].concat());
            }
            None => programs.push((name, ends(program.clone()))),
        }
    }
    programs
}

/// Two processors of two CPUs, each a node; on them one task that changes its CPU and its priority after 20 ms, and one that stays on CPU 0.
const TASKS: &str = r#"{"tasks": {
    "kept-with-a-long-name": {"loop": 1, "phases": {
        "a": {"loop": 1, "run": 20000, "cpus": [1]},
        "b": {"loop": 1, "run": 20000, "cpus": [2], "policy": "SCHED_OTHER", "priority": 5}}},
    "other": {"loop": 1, "run": 60000, "cpus": [0]}}}"#;

/// A task of a recording: threads are called as they were, and tasks have names of their own.
const NAMED: &str = r#"{"tasks": {"python3-23831": {"loop": 1, "run": 20000}}, "warmcore": {"tasks": {"python3-23831": {"comm": "python3"}}}}"#;

/// One task that may use all CPUs and stays on the one it has while it sleeps.
const HELD: &str = r#"{"tasks": {"held": {"instance": 0}}, "warmcore": {"tasks": {"held": {"instances": 1, "program": [
    "migrate_disable", {"run_ns": 1000000}, {"sleep_ns": 1000000}, {"run_ns": 1000000}, "migrate_enable", {"run_ns": 1000000}]}}}}"#;

/// The place of a program that is named as its section is.
fn site_of(name: &str) -> Option<Site> {
    let (how, target) = name.split_once('/')?;
    match how {
        "fentry" => Site::find(24, target),
        "fexit" => Site::find(25, target),
        _ => Site::find(23, &format!("btf_trace_{target}")),
    }
}

/// A lock that two tasks on CPUs of their own want ten times, the second before the first gives it back; then both run on, the first not so long.
const LOCK: &str = r#"{"tasks": {
    "first": {"loop": 1, "cpus": [0], "phases": {
        "locked": {"loop": 10, "lock": "m", "run0": 2000, "unlock": "m", "run1": 8000}, "after": {"loop": 1, "run": 10000}}},
    "second": {"loop": 1, "cpus": [1], "phases": {
        "first": {"loop": 1, "run": 1000}, "locked": {"loop": 10, "lock": "m", "run0": 500, "unlock": "m", "run1": 8500}, "after": {"loop": 1, "run": 60000}}}}}"#;

/// Why the scheduler of these programs was ejected by a kernel with so many of the functions; `None` if it was not.
fn ejected(functions: usize, programs: &[(&'static str, Code)], workload: &str) -> Option<String> {
    ejection(functions, programs, workload).map(|(reason, _)| reason)
}

/// The same, and what it left.
fn ejection(functions: usize, programs: &[(&'static str, Code)], workload: &str) -> Option<(String, String)> {
    ejection_with(0, functions, programs, workload)
}

/// The same of a scheduler with flags.
fn ejection_with(
    flags: u64,
    functions: usize,
    programs: &[(&'static str, Code)],
    workload: &str,
) -> Option<(String, String)> {
    let machine = warmcore_topology::resolve("2s1n1l2c1t").unwrap();
    let btf = Arc::new(Btf::parse(types::kernel(&FUNCTIONS[..functions]).0).unwrap());
    let layout = Arc::new(Layout::new(&btf).unwrap());
    let mut host = Host::new(&machine, btf, layout).unwrap();
    let spec = MapSpec {
        name: "kept".into(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: 512,
        entries: 1,
        flags: 0,
        extra: 0,
        special: Vec::new(),
    };
    let map = host.maps.create(spec).unwrap();
    let mut value = vec![0; slot::FORMAT as usize];
    value.extend(b"%ld ".repeat(32));
    host.maps.update(map, &[0; 4], &value, 0, None).unwrap();
    let maps = BTreeMap::from([(MAP, map)]);
    let mut loaded = Programs::default();
    let mut attached = Attached {
        name: "test".into(),
        speaks_cids: false,
        programs: BTreeMap::new(),
        values: BTreeMap::from([("flags".to_owned(), flags)]),
        at: Vec::new(),
    };
    for (name, program) in programs {
        let source =
            ProgramSource { name, bytes: &program.concat(), functions: &[0], catches: None, maps: &maps, types: None };
        let id = loaded.load(&mut host, &source).unwrap_or_else(|error| panic!("{name}: {error}"));
        match site_of(name) {
            Some(site) => attached.at.push((site, CalledWith::Arguments, id)),
            None => drop(attached.programs.insert((*name).to_owned(), id)),
        }
    }
    let object = Arc::new(loaded.attach(&host, &attached).unwrap());
    // The region is one kernel's at a time.
    drop(host);
    let workload = warmcore_workload::resolve(workload, &Options::default(), |name| {
        let text = match name {
            _ if name.ends_with("held.json") => HELD,
            _ if name.ends_with("lock.json") => LOCK,
            _ if name.ends_with("grouped.json") => groups::GROUPED,
            _ if name.ends_with("confined.json") => groups::CONFINED,
            _ if name.ends_with("named.json") => NAMED,
            _ => TASKS,
        };
        Ok(text.to_owned())
    })
    .unwrap();
    let setup = Setup::new(&machine, &workload, 7).unwrap();
    match bytecode_trial(Bytecode::new(&object, 7, false).unwrap(), &setup, None) {
        Ok(_) => None,
        Err(SimulationError::Ejected { reason, dump, .. }) => Some((reason, dump)),
        Err(other) => panic!("{other}"),
    }
}

/// The numbers that a scheduler was ended with.
fn found(functions: usize, programs: &[(&'static str, Code)]) -> Vec<i64> {
    found_with(functions, programs, "tasks.json")
}

fn found_with(functions: usize, programs: &[(&'static str, Code)], workload: &str) -> Vec<i64> {
    numbers_of(&ejected(functions, programs, workload).expect("it reports"))
}

fn numbers_of(reason: &str) -> Vec<i64> {
    let numbers = reason.rsplit_once(": ").map_or("", |(_, numbers)| numbers);
    numbers.split_whitespace().map(|number| number.parse().unwrap_or_else(|_| panic!("{reason}"))).collect()
}

const ALL: usize = FUNCTIONS.len();

#[test]
fn a_task_has_the_name_of_its_template_cut_as_a_kernel_does_whoever_created_it() {
    // Whoever creates the first of the workload is there before.
    let comm_of = |pid, workload| {
        let text = [vec![mov(2, 10), add_imm(2, -8), add_imm(6, 48), store(8, 2, 6, 0)], vec![mov(1, 10)]].concat();
        let text = [text, vec![add_imm(1, -16), store_imm(4, 1, 0, 0x7325), mov_imm(3, 8)]].concat();
        let say = [text, vec![kfunc("scx_bpf_error_bstr")]].concat();
        let program = [vec![load(8, 6, 1, 0), load(4, 7, 6, 24)], when_equal(7, pid, say)].concat();
        let reason = ejected(ALL, &fifo(&[("init_task", program)]), workload).expect("it says the name");
        reason.rsplit_once(": ").unwrap().1.to_owned()
    };
    assert_eq!(comm_of(1000, "tasks.json"), "launcher");
    assert_eq!(comm_of(1001, "tasks.json"), "kept-with-a-lon");
    assert_eq!(comm_of(1002, "tasks.json"), "other");
    assert_eq!(comm_of(1001, "named.json"), "python3");
    let forks = "hackbench:-f2,-g1,-l5";
    let workload = warmcore_workload::resolve(forks, &Options::default(), |_| unreachable!()).unwrap();
    let names: Vec<&str> = workload.tasks.iter().map(|task| &task.name[..task.name.len().min(15)]).collect();
    let forked = comm_of(1002, forks);
    assert!(names.contains(&forked.as_str()) && forked != comm_of(1001, forks), "{forked} of {names:?}");
}

#[test]
fn a_task_has_the_number_of_its_policy() {
    let batch = [vec![load(4, 6, 6, 1176)], keep(6, slot::FOUND), report(1)].concat();
    let running = [vec![load(8, 6, 1, 0), load(4, 7, 6, 24)], when_equal(7, 1001, batch)].concat();
    assert_eq!(found_with(ALL, &fifo(&[("running", running)]), "confined.json"), [3]);
}

/// `set_cpus_allowed_scx` gives `cpus_ptr`, which is not the task's mask while it must stay on a CPU.
#[test]
fn a_task_that_must_stay_is_told_of_with_the_one_cpu_that_it_has() {
    const ALL_CPUS: i32 = 0b1111;
    let told = [vec![load(8, 6, 1, 8), load(8, 7, 1, 0), load(8, 6, 6, 0)], keep(6, slot::FOUND)].concat();
    let is = [vec![load(8, 7, 7, 16), load(8, 7, 7, 0)], keep(7, slot::FOUND + 8)].concat();
    let say = report(2);
    let unless_all = vec![code(0x15, 7, 0, say.len() as i16, ALL_CPUS)];
    let program = [told, is, unless_all, say].concat();
    let numbers = found_with(ALL, &fifo(&[("set_cpumask", program)]), "held.json");
    assert!(numbers[0] == numbers[1] && numbers[0].count_ones() == 1, "{numbers:?}");
}

/// Programs that keep pointers from the beginning, the idle mask of all CPUs or that of node 1 among them, and follow them at the tick of the
/// other task that comes so late.
fn keeping(per_node: bool, ticks: i32, reads: &[(i32, Loads)]) -> Vec<(&'static str, Code)> {
    let idle = if per_node { "scx_bpf_get_idle_cpumask_node" } else { "scx_bpf_get_idle_cpumask" };
    let init = [
        vec![mov_imm(1, 1), kfunc(idle)],
        keep(0, slot::IDLE),
        vec![mov_imm(1, 1), kfunc("scx_bpf_cpu_rq")],
        keep(0, slot::RUN_QUEUE),
    ];
    let created = [vec![load(8, 6, 1, 0), load(4, 7, 6, 24)], when_equal(7, 1001, keep(6, slot::TASK))].concat();
    let count = [place(4, slot::COUNT), vec![load(8, 5, 4, 0), add_imm(5, 1), store(8, 4, 5, 0)]].concat();
    let late = [count, when_equal(5, ticks, report_kept(reads))].concat();
    let tick = [vec![load(8, 6, 1, 0), load(4, 7, 6, 24)], when_equal(7, 1002, late)].concat();
    fifo(&[("init", init.concat()), ("init_task", created), ("tick", tick)])
}

/// `SCX_OPS_BUILTIN_IDLE_PER_NODE`.
const BUILTIN_IDLE_PER_NODE: u64 = 1 << 6;

#[test]
fn whoever_keeps_a_pointer_sees_what_is_and_not_what_was() {
    // What, loads from a kept pointer, and what is there while the kept task is on CPU 1, and on CPU 2 with another priority.
    let rows: [(&str, i32, Loads, [i64; 2]); 18] = [
        ("idle CPUs", slot::IDLE, &[(8, 0)], [0b1100, 0b1010]),
        ("cpus_ptr", slot::TASK, &[(8, 16), (8, 0)], [0b0010, 0b0100]),
        ("nr_cpus_allowed", slot::TASK, &[(4, 12)], [1, 1]),
        ("prio", slot::TASK, &[(4, 4)], [120, 125]),
        ("static_prio", slot::TASK, &[(4, 8)], [120, 125]),
        ("scx.weight", slot::TASK, &[(4, 80)], [100, 33]),
        ("scx.flags", slot::TASK, &[(4, 84)], [1, 1]),
        ("cpu", slot::TASK, &[(4, 112)], [1, 2]),
        ("on_cpu", slot::TASK, &[(1, 116)], [1, 1]),
        ("on_rq", slot::TASK, &[(1, 117)], [1, 1]),
        ("what lies behind both", slot::TASK, &[(2, 118)], [0, 0]),
        ("wake_cpu", slot::TASK, &[(4, 124)], [1, 2]),
        ("curr's number", slot::RUN_QUEUE, &[(8, 0), (4, 24)], [1001, 0]),
        ("nr_running", slot::RUN_QUEUE, &[(4, 16)], [1, 0]),
        ("cpu of the queue", slot::RUN_QUEUE, &[(4, 20)], [1, 1]),
        ("scx.nr_running", slot::RUN_QUEUE, &[(4, 24)], [1, 0]),
        ("scx.local_dsq.nr", slot::RUN_QUEUE, &[(4, 32)], [0, 0]),
        ("sum_exec_runtime in 16 ms", slot::TASK, &[(8, 104)], [0, 1]),
    ];
    let reads: Vec<_> = rows.iter().map(|row| (row.1, row.2)).collect();
    for (column, ticks) in [3, 8].into_iter().enumerate() {
        let mut numbers = found(ALL, &keeping(false, ticks, &reads));
        *numbers.last_mut().unwrap() /= 16_000_000;
        let read: Vec<_> = rows.iter().map(|row| row.0).zip(numbers).collect();
        let is: Vec<_> = rows.iter().map(|row| (row.0, row.3[column])).collect();
        assert_eq!(read, is, "at tick {ticks}");
        let of_node = keeping(true, ticks, &[(slot::IDLE, &[(8, 0)])]);
        let reason = ejection_with(BUILTIN_IDLE_PER_NODE, ALL, &of_node, "tasks.json").expect("it reports").0;
        assert_eq!(numbers_of(&reason), [[0b1100, 0b1000][column]], "idle CPUs of node 1 at tick {ticks}");
    }
    // And a claim is seen by who makes it.
    let claim = vec![mov_imm(1, 3), kfunc("scx_bpf_test_and_clear_cpu_idle")];
    let claimed = [claim, report_kept(&[(slot::IDLE, &[(8, 0)])])].concat();
    let mut programs = keeping(false, 1000, &[]);
    programs.push(("running", ends(claimed)));
    assert_eq!(found(ALL, &programs)[0] & 0b1000, 0);
}

/// Callback of the timer: the program of this number, which is loaded first.
fn with_timer(init: Code, callback: Code, change: &[(&'static str, Code)]) -> Vec<(&'static str, Code)> {
    let map = vec![code(0x18, 2, 1, 0, MAP), code(0, 0, 0, 0, 0)];
    let made = [place(1, slot::TIMER), map, vec![mov_imm(3, 1), helper(169)]].concat();
    let mut programs = vec![("callback", ends(callback))];
    programs.extend(fifo(&[&[("init", [made, init].concat())], change].concat()));
    programs
}

fn set_callback(callback: u64) -> Code {
    [place(1, slot::TIMER), wide(2, callback), vec![helper(170)]].concat()
}

fn start(delay_ns: u64, flags: i32) -> Code {
    [place(1, slot::TIMER), wide(2, delay_ns), vec![mov_imm(3, flags), helper(171)]].concat()
}

fn cancel(function: [u8; 8]) -> Code {
    [place(1, slot::TIMER), vec![function]].concat()
}

fn noting(calls: &[Code]) -> Code {
    let noted = |(number, call): (usize, &Code)| [call.clone(), keep(0, slot::FOUND + 8 * number as i32)].concat();
    [calls.iter().enumerate().flat_map(noted).collect(), report(calls.len())].concat()
}

#[test]
fn a_timer_is_cancelled_where_a_kernel_of_that_version_lets_it_be() {
    const CALLBACK: u64 = 1;
    const LATE_NS: u64 = 5_000_000_000;
    let (cancelled, stopped) = (cancel(helper(172)), cancel(kfunc("bpf_timer_cancel_async")));
    let armed = [set_callback(CALLBACK), start(LATE_NS, 0)].concat();
    // With interrupts on, in `init`.
    let calls = [
        start(LATE_NS, 0),
        set_callback(CALLBACK),
        start(LATE_NS, 4),
        start(LATE_NS, 0),
        cancelled.clone(),
        cancelled.clone(),
        start(LATE_NS, 0),
        armed.clone(),
        stopped.clone(),
        start(LATE_NS, 2),
    ];
    let in_init = with_timer(noting(&calls), vec![], &[]);
    assert_eq!(found(ALL, &in_init), [-22, 0, -22, 0, 1, 0, -22, 0, 1, 0]);
    // With interrupts off.
    let in_running =
        |call: &Code| with_timer(armed.clone(), vec![], &[("running", noting(std::slice::from_ref(call)))]);
    assert_eq!(found(ALL, &in_running(&cancelled)), [-95], "-EOPNOTSUPP");
    assert_eq!(found(ALL - 1, &in_running(&cancelled)), [1], "before 7.0");
    assert_eq!(found(ALL, &in_running(&stopped)), [-125], "-ECANCELED");
    // In the callback itself.
    let soon = [set_callback(CALLBACK), start(1000, 0)].concat();
    assert_eq!(found(ALL, &with_timer(soon, noting(&[cancelled]), &[])), [-35], "-EDEADLK");
}

#[test]
fn a_timer_without_a_function_ends_the_scheduler() {
    for callback in [1 << 40, 77] {
        let init = [set_callback(callback), start(1000, 0)].concat();
        let reason = ejected(ALL, &with_timer(init, vec![], &[]), "tasks.json").unwrap();
        assert!(reason.contains("a timer's callback is function"), "{reason}");
    }
}

#[test]
fn a_program_that_goes_wrong_in_any_operation_ends_its_scheduler_and_no_more() {
    let operations = [
        "init",
        "init_task",
        "enable",
        "runnable",
        "select_cpu",
        "enqueue",
        "dispatch",
        "dequeue",
        "running",
        "tick",
        "stopping",
        "quiescent",
        "set_cpumask",
        "set_weight",
        "update_idle",
        "cgroup_init",
        "disable",
        "exit_task",
        "exit",
        "dump",
    ];
    for wrong in operations {
        let store = vec![mov_imm(5, 4096), store_imm(8, 5, 0, 1)];
        let change: Vec<_> =
            operations.iter().map(|&name| (name, if name == wrong { store.clone() } else { vec![] })).collect();
        let reason = ejected(ALL, &fifo(&change), "tasks.json");
        if ["exit", "dump"].contains(&wrong) {
            assert_eq!(reason, None, "nobody asks a scheduler that is well for its last words");
            continue;
        }
        let reason = reason.unwrap_or_else(|| panic!("`{wrong}` was not called"));
        // Before what it does anyway stands an instruction that keeps its argument.
        let at = if ["init", "enqueue", "dispatch"].contains(&wrong) { 2 } else { 1 };
        assert!(reason.contains(&format!("program `{wrong}`, instruction {at}: stores outside")), "{wrong}: {reason}");
    }
    for (name, error) in [("init", -22), ("init_task", -12), ("cgroup_init", -5)] {
        let refuses = vec![mov_imm(0, error), exit()];
        let others = operations.iter().map(|&other| (other, if other == name { refuses.clone() } else { vec![] }));
        let reason = ejected(ALL, &fifo(&others.collect::<Vec<_>>()), "tasks.json").unwrap();
        assert!(reason.contains(&format!("{name} failed with {error}")), "{reason}");
    }
}

#[test]
fn an_ejected_program_leaves_a_dump_with_its_own_lines_and_what_it_printed() {
    // The last of the numbers' formats, of the value in a register.
    let say = |register: u8, function: &str| {
        let texts = [keep(register, slot::FOUND), place(1, slot::FORMAT + 4 * 31), place(2, slot::FOUND)].concat();
        [texts, vec![mov_imm(3, 8), kfunc(function)]].concat()
    };
    let dump = |register| say(register, "scx_bpf_dump_bstr");
    let print = [place(1, slot::FORMAT + 4 * 31), vec![mov_imm(2, 4), mov_imm(3, 42), helper(6)]].concat();
    let fail = [print, vec![mov_imm(7, 7)], say(7, "scx_bpf_error_bstr")].concat();
    let programs = fifo(&[
        ("tick", fail),
        ("dump", [vec![mov_imm(6, 77)], dump(6)].concat()),
        ("dump_cpu", [vec![load(8, 6, 1, 8)], dump(6)].concat()),
        ("dump_task", [vec![load(8, 6, 1, 8), load(4, 6, 6, 24)], dump(6)].concat()),
    ]);
    let (reason, dump) = ejection(ALL, &programs, "tasks.json").unwrap();
    assert!(reason.ends_with(": 7 "), "{reason}");
    let lines: Vec<&str> = dump.lines().map(str::trim_end).collect();
    assert_eq!(lines[..3], ["test triggered exit kind 1025:", "  scx_bpf_error (7 )", "77"], "{dump}");
    // The program has a line for each CPU, so that idle ones are told too.
    let of_cpu1 = lines.iter().position(|line| line.starts_with("cpu1: nr_run=1")).unwrap_or_else(|| panic!("{dump}"));
    assert_eq!(lines[of_cpu1], "cpu1: nr_run=1 local=0 curr=kept-with-a-long-name", "{dump}");
    assert_eq!(lines[of_cpu1 + 1..of_cpu1 + 3], ["      1", "  *kept-with-a-long-name waits 0 ms"], "{dump}");
    assert!(lines[of_cpu1 + 3].ends_with("weight=100 allowed CPUs: 1"), "{dump}");
    assert_eq!(lines[of_cpu1 + 4..of_cpu1 + 6], ["        1001", "cpu2: nr_run=0 local=0 curr=swapper"], "{dump}");
    let printed = dump.split_once("printed\n-------\n").unwrap_or_else(|| panic!("{dump}")).1;
    assert!(printed.starts_with("100.00") && printed.trim_end().ends_with("cpu1: 42"), "{printed}");
}

/// A kernel writes no more than there is room for, nor more than it has.
#[test]
fn a_program_reads_what_the_class_has_counted_for_it() {
    let read = |bytes: i32| {
        let program = [place(1, slot::FOUND), vec![mov_imm(2, bytes), kfunc("scx_bpf_events")], report(3)].concat();
        let first = [vec![load(8, 6, 1, 0), load(4, 7, 6, 24)], when_equal(7, 1001, program)].concat();
        found(ALL, &fifo(&[("quiescent", first)]))
    };
    let all = read(24);
    assert!(all[1] >= all[0] && all[1] > 0 && all[2] == 1, "who goes on gets a slice: {all:?}");
    assert_eq!((read(16), read(4096)), (vec![all[0], all[1], 0], all));
}

/// `r0` = what a function of an iterator gives, which lies below the stack's end; a new one is for a queue, with flags.
fn iterate(place: i32, function: &str, queue: i32, flags: i32) -> Code {
    vec![mov(1, 10), add_imm(1, -place), mov_imm(2, queue), mov_imm(3, flags), kfunc(function)]
}

/// Six tasks on four CPUs: the last two wait. `SCX_DSQ_ITER_REV` is bit 16, and no other is known.
#[test]
fn a_way_through_a_queue_leads_backwards_if_it_is_to_and_moves_what_is_on_it() {
    const SPINNERS: &str = "spin:-n6,-d100ms";
    let first = |flags: i32| {
        let pid = [vec![load(4, 3, 0, 24)], keep(3, slot::FOUND), report(1)].concat();
        let next = iterate(64, "bpf_iter_scx_dsq_next", 0, 0);
        let program =
            [iterate(64, "bpf_iter_scx_dsq_new", 0, flags), next, vec![code(0x15, 0, 0, pid.len() as i16, 0)]];
        found_with(ALL, &fifo(&[("tick", [program.concat(), pid].concat())]), SPINNERS)[0]
    };
    let refused = [iterate(64, "bpf_iter_scx_dsq_new", 0, 1), keep(0, slot::FOUND), report(1)].concat();
    assert_eq!(found_with(ALL, &fifo(&[("tick", refused)]), SPINNERS), [-22]);
    let moved = |by: i32| {
        let target =
            vec![mov(1, 10), add_imm(1, -128), mov(2, 7), mov_imm(3, 1), mov_imm(4, 0), kfunc("scx_bpf_dsq_move")];
        let new = iterate(128, "bpf_iter_scx_dsq_new", by, 0);
        let moves = [vec![mov(7, 0)], new, target, keep(0, slot::FOUND), report(1)].concat();
        let task = [iterate(64, "bpf_iter_scx_dsq_new", 0, 0), iterate(64, "bpf_iter_scx_dsq_next", 0, 0)].concat();
        let program = [task, vec![code(0x15, 0, 0, moves.len() as i16, 0)], moves].concat();
        let second = vec![mov_imm(1, 1), mov_imm(2, -1), kfunc("scx_bpf_create_dsq")];
        found_with(ALL, &fifo(&[("init", second), ("dispatch", program)]), SPINNERS)
    };
    assert_eq!((first(0) + 1, moved(0), moved(1)), (first(1 << 16), vec![1], vec![0]));
}

/// Adds one to a count that is reported.
fn count(number: i32) -> Code {
    [place(4, slot::FOUND + 8 * number), vec![load(8, 5, 4, 0), add_imm(5, 1), store(8, 4, 5, 0)]].concat()
}

/// Adds what a traced function gave to a number that is reported.
fn add_result(number: i32) -> Code {
    const GET_FUNC_RET: i32 = 184;
    let result = vec![mov(2, 10), add_imm(2, -8), store_imm(8, 10, -8, 7), helper(GET_FUNC_RET), load(8, 6, 10, -8)];
    let sum = vec![load(8, 5, 4, 0), code(0x0f, 5, 6, 0, 0), store(8, 4, 5, 0)];
    [result, place(4, slot::FOUND + 8 * number), sum].concat()
}

/// By hand: the second comes ten times to the lock 1 ms after the first has taken it, waits in a call, and is woken by the first's release; its own
/// release is 0.5 ms later, when nobody waits. `bpf_get_func_ret` gives at an entry nothing (the 7 stays), and at a return what the call gave.
#[test]
fn programs_at_functions_of_futexes_are_called_as_often_as_a_lock_is_contended_and_read_what_the_functions_give() {
    const GET_FUNC_ARG: i32 = 183;
    let waits = [vec![mov(7, 1)], count(0), vec![mov(1, 7)], add_result(1)].concat();
    let waited = [vec![mov(7, 1)], count(2), vec![mov(1, 7)], add_result(3)].concat();
    let wakes =
        [vec![mov(7, 1)], count(4), vec![mov(1, 7), mov_imm(2, 2), mov(3, 10), add_imm(3, -16), helper(GET_FUNC_ARG)]];
    let wakes = [wakes.concat(), vec![load(8, 5, 10, -16)], keep_as(5, 5)].concat();
    let woke = [vec![mov(7, 1)], count(6), vec![mov(1, 7)], add_result(7)].concat();
    let switches = count(8);
    let first_ends = [vec![load(8, 6, 1, 0), load(4, 7, 6, 24)], when_equal(7, 1001, report(9))].concat();
    let change = [("quiescent", first_ends)];
    let mut programs = fifo(&change);
    let traced = [
        ("fentry/__futex_wait", waits),
        ("fexit/__futex_wait", waited),
        ("fentry/futex_wake", wakes),
        ("fexit/futex_wake", woke),
        ("tp_btf/sched_switch", switches),
    ];
    programs.extend(traced.map(|(name, program)| (name, ends(program))));
    let numbers = found_with(ALL, &programs, "lock.json");
    assert_eq!(numbers[..8], [10, 70, 10, 0, 10, 1, 10, 10], "{numbers:?}");
    assert!(numbers[8] > 20, "{numbers:?}");
}

fn keep_as(register: u8, number: i32) -> Code {
    keep(register, slot::FOUND + 8 * number)
}
