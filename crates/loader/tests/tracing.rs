//! Programs at tracepoints and at samples of counters: how often they are called, and what they are called with, is what the run's events and accounts say.
#![cfg(target_arch = "x86_64")]

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;
mod loaders;
mod types;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use assembler::*;
use loaders::*;
use warmcore_options::MemoryChoice;
use warmcore_testing::skip;
use warmcore_trace::{EventKind, PrevState};

const CPUS: usize = 8;

/// Types of programs (`enum bpf_prog_type`).
const TRACEPOINT: u32 = 5;
const PERF_EVENT: u32 = 7;
const RAW_TRACEPOINT: u32 = 17;

/// Types and numbers of events (`perf_event_open(2)`).
const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const OF_TRACEPOINT: u32 = 2;
const CYCLES: u64 = 0;
const INSTRUCTIONS: u64 = 1;
const MISSES: u64 = 3;
const CPU_CLOCK: u64 = 0;
const TASK_CLOCK: u64 = 1;

/// Bits of `struct perf_event_attr`.
const DISABLED: u64 = 1;
const EXCLUDE_IDLE: u64 = 1 << 7;
const FREQUENCY: u64 = 1 << 10;

/// `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_SET_BPF`.
const ENABLE: u64 = 0x2400;
const SET_BPF: u64 = 0x4004_2408;

const TASKS: u32 = 64;
const FIRST_PID: i32 = 1000;

/// Opens an event of a CPU that takes samples by a period, or by a frequency if that bit is set.
fn open((event_type, config): (u32, u64), samples: u64, flags: u64, (pid, cpu): (i32, i32)) -> Result<File, i32> {
    let mut attributes = [0_u8; 128];
    put(&mut attributes, 0, &event_type.to_le_bytes());
    put(&mut attributes, 4, &128_u32.to_le_bytes());
    put(&mut attributes, 8, &config.to_le_bytes());
    put(&mut attributes, 16, &samples.to_le_bytes());
    // Times enabled and running are read too.
    put(&mut attributes, 32, &3_u64.to_le_bytes());
    put(&mut attributes, 40, &flags.to_le_bytes());
    perf_event(&attributes, pid, cpu)
}

fn on_each_cpu(event: (u32, u64), samples: u64, flags: u64) -> Vec<File> {
    (0..CPUS as i32).map(|cpu| open(event, samples, flags, (-1, cpu)).unwrap()).collect()
}

/// Loads a program that gives 0 in the end.
fn load_ending(kind: u32, name: &str, mut program: Vec<[u8; 8]>) -> i64 {
    program.extend([mov_imm(0, 0), exit()]);
    let descriptor = load_program(kind, name, &program);
    assert!(descriptor > 0, "{name}: {}", Error::last_os_error());
    descriptor
}

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap()
}

/// Attaches a program to an event, by a link; an error is one of the system's numbers.
fn link(program: i64, event: i32) -> Result<(), i32> {
    const LINK_CREATE: i32 = 28;
    const TO_EVENT: u32 = 41;
    let mut attributes = [0; 64];
    for (at, number) in [(0, program as u32), (4, event as u32), (8, TO_EVENT)] {
        put(&mut attributes, at, &number.to_le_bytes());
    }
    if bpf(LINK_CREATE, &attributes) < 0 { Err(errno()) } else { Ok(()) }
}

/// The same by a request on the event.
fn set(program: i64, event: &File) -> Result<(), i32> {
    // SAFETY: a request with a number.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program) };
    if result < 0 { Err(errno()) } else { Ok(()) }
}

/// Attaches a program to a tracepoint by name.
fn open_raw(program: i64, name: &CStr) -> Result<(), i32> {
    const RAW_TRACEPOINT_OPEN: i32 = 17;
    let mut attributes = [0; 64];
    put(&mut attributes, 0, &(name.as_ptr() as u64).to_le_bytes());
    put(&mut attributes, 8, &(program as u32).to_le_bytes());
    if bpf(RAW_TRACEPOINT_OPEN, &attributes) < 0 { Err(errno()) } else { Ok(()) }
}

/// Adds one to a number of a map, by the index in a register; at an index that is not there the program ends.
fn count_in(map: i64, index: u8) -> Vec<[u8; 8]> {
    let mut program = vec![store(4, 10, index, -4)];
    program.extend(look_up(map));
    program.extend([load_double(1, 0, 0), add_imm(1, 1), store(8, 0, 1, 0)]);
    program
}

/// The same at a fixed index.
fn count_at(map: i64, index: i32) -> Vec<[u8; 8]> {
    [vec![mov_imm(7, index)], count_in(map, 7)].concat()
}

/// Keeps what a register has at a fixed index.
fn keep(map: i64, index: i32, register: u8) -> Vec<[u8; 8]> {
    let mut program = vec![store_imm(4, 10, -4, index)];
    program.extend(look_up(map));
    program.push(store(8, 0, register, 0));
    program
}

/// Numbers of a map above 0, in the order of tasks.
fn of_tasks(map: i64) -> String {
    let numbers = (0..TASKS).map(|task| value(map, task)).filter(|count| *count > 0);
    numbers.map(|count| count.to_string()).collect::<Vec<String>>().join(" ")
}

/// Type and number of a tracepoint of the scheduler, and the format of its record, as tools read them.
fn tracepoint(name: &str) -> ((u32, u64), String) {
    let directory = format!("/sys/kernel/tracing/events/sched/{name}");
    let number = std::fs::read_to_string(format!("{directory}/id")).unwrap();
    let format = std::fs::read_to_string(format!("{directory}/format")).unwrap();
    ((OF_TRACEPOINT, number.trim().parse().unwrap()), format)
}

/// Where a field of a record lies, by its format.
fn offset(format: &str, field: &str) -> i16 {
    let mut lines = format.lines();
    let line = lines.find(|line| line.contains(&format!(" {field};")) || line.contains(&format!(" {field}[")));
    let text = line.unwrap_or_else(|| panic!("{field} in {format}")).split("offset:").nth(1).unwrap();
    text.split(';').next().unwrap().parse().unwrap()
}

/// Two registers that differ, or that are equal; otherwise the program ends.
fn only_if(jump: u8, one: u8, other: u8) -> [[u8; 8]; 3] {
    [code(jump, one, other, 2, 0), mov_imm(0, 0), exit()]
}

const EQUAL: u8 = 0x1d;
const DIFFERENT: u8 = 0x5d;

fn stay() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3));
    }
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_traces() {
    let (event, format) = tracepoint("sched_switch");
    let offset = |field: &str| offset(&format, field);
    let events = std::fs::read_to_string("/sys/kernel/tracing/available_events").unwrap();
    assert!(events.lines().any(|line| line == "sched:sched_switch"), "{events}");
    let (found, comes, names) = (create_map(2, 4, 8, 8), create_map(2, 4, 8, TASKS), create_map(2, 4, 8, TASKS));
    // r8 = the record, r6 = its next task.
    let next = [mov(8, 1), load(4, 6, 8, offset("next_pid")), add_imm(6, -FIRST_PID)];
    let name = [load_double(9, 8, offset("next_comm")), store(4, 10, 6, -4)];
    let counts = load_ending(TRACEPOINT, "counts", count_at(found, 0));
    let by_task = [&next[..], &count_in(comes, 6), &name, &look_up(names), &[store(8, 0, 9, 0)]].concat();
    let by_task = load_ending(TRACEPOINT, "by_task", by_task);
    // Bits of `EXIT_DEAD` and `EXIT_ZOMBIE`.
    let ends = [load_double(6, 1, offset("prev_state")), code(0x57, 6, 0, 0, 0x30), code(0x55, 6, 0, 2, 0)];
    let ends = load_ending(TRACEPOINT, "ends", [&ends[..], &[mov_imm(0, 0), exit()], &count_at(found, 1)].concat());
    // Who leaves is the current task.
    let current = [mov(8, 1), helper(14), load(4, 6, 8, offset("prev_pid")), code(0xbc, 7, 0, 0, 0)];
    let current = [&current[..], &only_if(EQUAL, 6, 7), &count_at(found, 2)].concat();
    let current = load_ending(TRACEPOINT, "current", current);
    let priority = [load(4, 6, 1, offset("next_prio")), code(0x15, 6, 0, 2, 120), mov_imm(0, 0), exit()];
    let priority = load_ending(TRACEPOINT, "priority", [&priority[..], &count_at(found, 3)].concat());
    let raw = load_ending(RAW_TRACEPOINT, "raw", count_at(found, 4));
    let opened: Vec<File> =
        [counts, by_task, ends, current, priority].map(|_| open(event, 0, 0, (-1, 0)).unwrap()).into();
    assert_eq!(link(counts, opened[0].as_raw_fd()), Ok(()));
    assert_eq!(link(counts, opened[0].as_raw_fd()), Err(libc::EEXIST));
    for (program, event) in [by_task, ends, current, priority].into_iter().zip(&opened[1..]) {
        assert_eq!(set(program, event), Ok(()));
    }
    request(&opened, ENABLE);
    assert_eq!(open_raw(raw, c"sched_switch"), Ok(()));
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    std::thread::sleep(Duration::from_millis(2000));
    let numbers: Vec<String> = (0..5).map(|index| value(found, index).to_string()).collect();
    eprintln!("found {}", numbers.join(" "));
    eprintln!("comes {}", of_tasks(comes));
    let named: Vec<u64> = (0..TASKS).map(|task| value(names, task)).filter(|name| *name > 0).collect();
    let named: Vec<String> = named.iter().map(|name| String::from_utf8_lossy(&name.to_le_bytes()).into()).collect();
    eprintln!("named {}", named.join(" ").replace('\0', ""));
    stay();
}

/// Tracepoints of tasks, in the order in which a loader counts their passes.
const OF_TASKS: [&str; 6] = [
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
    "sched_process_exit",
];

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_traces_tasks() {
    /// Where a task's CPU lies (`types`).
    const THREAD_INFO_CPU: i16 = 112;
    let found = create_map(2, 4, 8, 16);
    let mut opened = Vec::new();
    let mut at_record = |name: &str, event: (u32, u64), program: Vec<[u8; 8]>| {
        let program = load_ending(TRACEPOINT, name, program);
        let event = open(event, 0, 0, (-1, 0)).unwrap();
        assert_eq!(set(program, &event), Ok(()));
        opened.push(event);
    };
    let at_arguments = |name: &str, program: Vec<[u8; 8]>| {
        let program = load_ending(RAW_TRACEPOINT, "raw", program);
        assert_eq!(open_raw(program, &CString::new(name).unwrap()), Ok(()));
    };
    for (index, name) in OF_TASKS.into_iter().enumerate() {
        at_record("counts", tracepoint(name).0, count_at(found, index as i32));
        at_arguments(name, count_at(found, (OF_TASKS.len() + index) as i32));
    }
    // A task goes to another CPU than it has: by the record, and by its structure.
    let (event, format) = tracepoint("sched_migrate_task");
    let cpus = [load(4, 6, 1, offset(&format, "orig_cpu")), load(4, 7, 1, offset(&format, "dest_cpu"))];
    at_record("moves", event, [&cpus[..], &only_if(DIFFERENT, 6, 7), &count_at(found, 12)].concat());
    let cpus = [load_double(2, 1, 0), load(4, 6, 2, THREAD_INFO_CPU), load_double(7, 1, 8)];
    at_arguments("sched_migrate_task", [&cpus[..], &only_if(DIFFERENT, 6, 7), &count_at(found, 13)].concat());
    // Who exits is the current task.
    let (event, format) = tracepoint("sched_process_exit");
    let ends = [mov(8, 1), helper(14), load(4, 6, 8, offset(&format, "pid")), code(0xbc, 7, 0, 0, 0)];
    at_record("ends", event, [&ends[..], &only_if(EQUAL, 6, 7), &count_at(found, 14)].concat());
    // The beginning of the name of who was created last, a text that lies behind the fields.
    let (event, format) = tracepoint("sched_process_fork");
    let place = [load(4, 6, 1, offset(&format, "child_comm")), code(0x57, 6, 0, 0, 0xffff), code(0x0f, 6, 1, 0, 0)];
    at_record("begins", event, [&place[..], &[load_double(9, 6, 0)], &keep(found, 15, 9)].concat());
    request(&opened, ENABLE);
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    std::thread::sleep(Duration::from_millis(2000));
    let numbers: Vec<String> = (0..15).map(|index| value(found, index).to_string()).collect();
    eprintln!("found {}", numbers.join(" "));
    eprintln!("named {}", String::from_utf8_lossy(&value(found, 15).to_le_bytes()).replace('\0', ""));
    stay();
}

/// Counts samples of each task, all, those of user space, and keeps the period.
fn sampler(by_task: i64, found: i64) -> i64 {
    const PERIOD: i16 = 168;
    const CS: i16 = 136;
    let mut program = vec![mov(8, 1), load_double(6, 8, PERIOD)];
    program.extend(keep(found, 2, 6));
    program.extend(count_at(found, 0));
    program.extend([helper(14), code(0xbc, 6, 0, 0, 0), add_imm(6, -FIRST_PID)]);
    program.extend(count_in(by_task, 6));
    // The program has ended where nothing of the workload runs.
    program.extend([load_double(9, 8, CS), code(0x57, 9, 0, 0, 3), code(0x15, 9, 0, 2, 3), mov_imm(0, 0), exit()]);
    program.extend(count_at(found, 1));
    load_ending(PERF_EVENT, "sampler", program)
}

/// Nanoseconds between two samples: nothing in the workload has this rhythm.
const PERIOD_NS: u64 = 997_000;

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_samples() {
    let (found, by_task) = (create_map(2, 4, 8, 8), create_map(2, 4, 8, TASKS));
    let (other, by_other) = (create_map(2, 4, 8, 8), create_map(2, 4, 8, TASKS));
    let events = on_each_cpu((SOFTWARE, CPU_CLOCK), PERIOD_NS, DISABLED);
    let program = sampler(by_task, found);
    for event in &events {
        assert_eq!(link(program, event.as_raw_fd()), Ok(()));
        assert_eq!(link(program, event.as_raw_fd()), Err(libc::EEXIST));
    }
    request(&events, ENABLE);
    let by_frequency = open((SOFTWARE, TASK_CLOCK), 1000, FREQUENCY | EXCLUDE_IDLE, (-1, 0)).unwrap();
    assert_eq!(set(sampler(by_other, other), &by_frequency), Ok(()));
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    std::thread::sleep(Duration::from_micros(1_955_500));
    eprintln!("found {} {} {}", value(found, 0), value(found, 1), value(found, 2));
    eprintln!("tasks {}", of_tasks(by_task));
    eprintln!("busy {} {} {}", value(other, 0), value(other, 1), value(other, 2));
    stay();
}

/// Cycles between two samples.
const CYCLES_PERIOD: u64 = 10_000_000;

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_samples_cycles() {
    let (found, by_task) = (create_map(2, 4, 8, 8), create_map(2, 4, 8, TASKS));
    let events = on_each_cpu((HARDWARE, CYCLES), CYCLES_PERIOD, 0);
    let program = sampler(by_task, found);
    events.iter().for_each(|event| assert_eq!(link(program, event.as_raw_fd()), Ok(())));
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    std::thread::sleep(Duration::from_millis(2000));
    let periods: u64 = events.iter().map(|event| read_event(event)[0] / CYCLES_PERIOD).sum();
    eprintln!("found {} {} {}", value(found, 0), periods, value(found, 2));
    stay();
}

/// Samples a second of each CPU's cycles.
const CYCLES_FREQUENCY: u64 = 500;

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_samples_cycles_by_frequency() {
    let (found, by_task) = (create_map(2, 4, 8, 8), create_map(2, 4, 8, TASKS));
    let events = on_each_cpu((HARDWARE, CYCLES), CYCLES_FREQUENCY, FREQUENCY);
    let program = sampler(by_task, found);
    events.iter().for_each(|event| assert_eq!(link(program, event.as_raw_fd()), Ok(())));
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    // The period is found by then, and all CPUs are busy.
    std::thread::sleep(Duration::from_millis(1150));
    let before = value(found, 0);
    std::thread::sleep(Duration::from_millis(100));
    eprintln!("found {} {}", value(found, 0) - before, value(found, 2));
    stay();
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_follows_tasks() {
    const SAMPLED: u32 = 2;
    let (found, by_task) = (create_map(2, 4, 8, 8), create_map(2, 4, 8, TASKS));
    let program = sampler(by_task, found);
    assert_eq!(open((HARDWARE, INSTRUCTIONS), 0, 0, (FIRST_PID + 1, -1)).unwrap_err(), libc::ESRCH);
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    std::thread::sleep(Duration::from_millis(1005));
    let of_cpus = on_each_cpu((HARDWARE, INSTRUCTIONS), 0, 0);
    let of_tasks: Vec<File> = (0..TASKS as i32)
        .filter_map(|task| open((HARDWARE, INSTRUCTIONS), 0, 0, (FIRST_PID + task, -1)).ok())
        .collect();
    let pid = FIRST_PID + SAMPLED as i32;
    let clock = open((SOFTWARE, TASK_CLOCK), 0, 0, (pid, -1)).unwrap();
    let sampled = open((SOFTWARE, TASK_CLOCK), PERIOD_NS, 0, (pid, -1)).unwrap();
    assert_eq!(link(program, sampled.as_raw_fd()), Ok(()));
    let late = load_ending(PERF_EVENT, "late", Vec::new());
    assert_eq!(link(late, sampled.as_raw_fd()), Err(libc::EOPNOTSUPP), "the scheduler is attached without it");
    std::thread::sleep(Duration::from_millis(950));
    let sum = |events: &[File]| events.iter().map(|event| read_event(event)[0]).sum::<u64>();
    eprintln!("found {} {} {}", of_tasks.len(), sum(&of_tasks), sum(&of_cpus));
    let [count, enabled_ns, running_ns] = read_event(&clock);
    eprintln!("clock {count} {enabled_ns} {running_ns}");
    eprintln!("sampled {} {}", value(by_task, SAMPLED), value(found, 0));
    stay();
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_traces_what_is_missing() {
    let nothing = |kind, name: &str| load_ending(kind, name, Vec::new());
    let (tracepoint, sampler) = (nothing(TRACEPOINT, "tracepoint"), nothing(PERF_EVENT, "sampler"));
    assert_eq!(open((OF_TRACEPOINT, 99_999), 0, 0, (-1, 0)).unwrap_err(), libc::EINVAL);
    assert_eq!(open((SOFTWARE, CPU_CLOCK), 200_000, FREQUENCY, (-1, 0)).unwrap_err(), libc::EINVAL);
    assert_eq!(open((SOFTWARE, CPU_CLOCK), 1000, FREQUENCY, (0, -1)).unwrap_err(), libc::EOPNOTSUPP);
    // By this a library learns that there are links to events.
    assert_eq!(link(tracepoint, -1), Err(libc::EBADF));
    let [instructions, misses] = [INSTRUCTIONS, MISSES].map(|config| {
        let flags = if config == MISSES { FREQUENCY } else { 0 };
        open((HARDWARE, config), 50_000, flags, (-1, 0)).unwrap()
    });
    assert_eq!(link(tracepoint, instructions.as_raw_fd()), Err(libc::EINVAL));
    assert_eq!(link(sampler, instructions.as_raw_fd()), Ok(()));
    assert_eq!(set(sampler, &misses), Ok(()));
    let number = std::fs::read_to_string("/sys/kernel/tracing/events/irq/softirq_entry/id").unwrap();
    let event = open((OF_TRACEPOINT, number.trim().parse().unwrap()), 0, 0, (-1, 0)).unwrap();
    assert_eq!(set(sampler, &event), Err(libc::EINVAL));
    assert_eq!(set(tracepoint, &event), Ok(()));
    for name in [c"sched_stat_runtime", c"task_rename", c"sched_process_exec"] {
        assert_eq!(open_raw(nothing(RAW_TRACEPOINT, "raw"), name), Ok(()));
    }
    assert!(std::fs::metadata("/sys/kernel/tracing/events/sched/sched_stat_runtime/id").is_err());
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
}

/// What a loader has printed of itself.
fn said(words: &str) -> &str {
    &words[words.find("found ").unwrap_or_else(|| panic!("{words}"))..]
}

/// Twelve tasks work 250 ms each on eight CPUs; another one only sleeps, for longer than that takes.
const WORKLOAD: &str = r#"{"tasks": {"worker": {"instance": 12, "loop": 25, "run": 10000, "sleep": 1000}, "sleeper": {"loop": 1, "sleep": 1200000}}}"#;

/// When loaders have read what they print: what the sleeper does at its end comes afterwards.
const READ_NS: u64 = 1_100_000_000;

#[test]
fn a_program_at_a_tracepoint_gets_each_switch_with_the_record_that_its_format_says() {
    skip!(unless can_answer());
    let (outcome, events, words) = run_live("loader_that_traces", WORKLOAD, MemoryChoice::None);
    let switches: Vec<_> = events
        .iter()
        .filter(|event| event.time_ns < READ_NS)
        .filter_map(|event| match event.kind {
            EventKind::Switch { prev_state, next, .. } => Some((prev_state, next)),
            _ => None,
        })
        .collect();
    let all = switches.len() as f64;
    let ended = switches.iter().filter(|(state, _)| *state == PrevState::Dead).count() as f64;
    // Every one is of who is the current task, and all have the priority of a nice value of 0.
    assert_eq!(numbers(&words, "found"), [all, ended, all, all, all], "{words}");
    assert!(ended == 12.0 && all >= 300.0, "{words}");
    let comes: Vec<f64> = outcome
        .tasks
        .iter()
        .map(|task| switches.iter().filter(|(_, next)| next.0 == task.id).count() as f64)
        .filter(|count| *count > 0.0)
        .collect();
    assert_eq!(numbers(&words, "comes"), comes, "{words}");
    let named = words.lines().find_map(|line| line.split_once("named ")).unwrap_or_else(|| panic!("{words}")).1;
    let names: Vec<&str> = named.split_whitespace().collect();
    assert_eq!(names.len(), comes.len(), "{words}");
    assert_eq!(names.iter().filter(|name| name.starts_with("worker")).count(), 12, "{words}");
    assert_eq!(said(&run_live("loader_that_traces", WORKLOAD, MemoryChoice::None).2), said(&words), "and again");
}

#[test]
fn programs_at_tracepoints_of_tasks_are_called_as_often_as_the_trace_says() {
    skip!(unless can_answer());
    let (_, events, words) = run_live("loader_that_traces_tasks", WORKLOAD, MemoryChoice::None);
    let count = |is_one: fn(EventKind) -> bool| {
        events.iter().filter(|event| event.time_ns < READ_NS && is_one(event.kind)).count() as f64
    };
    let waking = count(|kind| matches!(kind, EventKind::Waking { .. }));
    let queued = count(|kind| matches!(kind, EventKind::Wakeup { .. }));
    let moves = count(|kind| matches!(kind, EventKind::Migrate { .. }));
    let forks = count(|kind| matches!(kind, EventKind::Fork { .. }));
    let exits = count(|kind| matches!(kind, EventKind::Exit { .. }));
    let each = [waking, queued - forks, forks, moves, forks, exits];
    // By records and by arguments; then what is said of moves and exits.
    let expected = [&each[..], &each[..], &[moves, moves, exits]].concat();
    assert_eq!(numbers(&words, "found"), expected, "{words}");
    assert!(forks == 13.0 && exits == 12.0 && waking >= 250.0 && moves > 0.0, "{words}");
    let named = words.lines().find_map(|line| line.split_once("named ")).unwrap_or_else(|| panic!("{words}")).1;
    assert!(named.starts_with("worker") || named.starts_with("sleeper"), "{words}");
    assert_eq!(said(&run_live("loader_that_traces_tasks", WORKLOAD, MemoryChoice::None).2), said(&words), "and again");
}

/// 955.5 ms have 958 periods. Samples of a task are its time in periods: each within 10 %, as one of its turns has one more or less; all within 2 %.
#[test]
fn samples_of_a_clock_are_shared_among_tasks_as_their_time_is() {
    skip!(unless can_answer());
    let (outcome, _, words) = run_live("loader_that_samples", WORKLOAD, MemoryChoice::None);
    let found = numbers(&words, "found");
    let of_tasks = numbers(&words, "tasks");
    let expected: Vec<f64> = outcome
        .tasks
        .iter()
        .filter(|task| task.name.starts_with("worker"))
        .map(|task| task.cpu_time_ns as f64 / PERIOD_NS as f64)
        .collect();
    assert!(of_tasks.len() >= expected.len() && expected.len() == 12, "{words}");
    let mut largest = of_tasks.clone();
    largest.sort_by(|one, other| other.total_cmp(one));
    for (&samples, &periods) in of_tasks.iter().filter(|samples| **samples >= largest[11]).zip(&expected) {
        assert!((samples / periods - 1.0).abs() < 0.1, "{samples} samples in {periods} periods: {words}");
    }
    let sum: f64 = of_tasks.iter().sum();
    assert!((sum / expected.iter().sum::<f64>() - 1.0).abs() < 0.02, "{words}");
    assert_eq!(found, [958.0 * CPUS as f64, sum, PERIOD_NS as f64], "idle CPUs are sampled too: {words}");
    // A thousand a second of a CPU while it is busy, in user space all.
    let busy = numbers(&words, "busy");
    assert!((200.0..=955.0).contains(&busy[0]) && busy[1] == busy[0] && busy[2] == 1e6, "{words}");
    assert_eq!(said(&run_live("loader_that_samples", WORKLOAD, MemoryChoice::None).2), said(&words), "and again");
}

#[test]
fn samples_of_cycles_come_once_each_period_of_the_counter() {
    skip!(unless can_answer());
    let (_, _, words) = run_live("loader_that_samples_cycles", WORKLOAD, MemoryChoice::Analytic);
    let [samples, periods, period] = numbers(&words, "found")[..] else { panic!("{words}") };
    assert_eq!(period, CYCLES_PERIOD as f64);
    // The last of a CPU may not be seen before the loader looks.
    assert!((periods - CPUS as f64..=periods).contains(&samples) && periods > 300.0, "{words}");
}

#[test]
fn samples_of_cycles_come_as_often_as_the_frequency_says() {
    skip!(unless can_answer());
    let (outcome, _, words) = run_live("loader_that_samples_cycles_by_frequency", WORKLOAD, MemoryChoice::Analytic);
    let [samples, period] = numbers(&words, "found")[..] else { panic!("{words}") };
    let expected = CPUS as f64 * CYCLES_FREQUENCY as f64 / 10.0;
    assert!((samples / expected - 1.0).abs() < 0.1, "{samples} of {expected}: {words}");
    let wanted = outcome.cpus[0].frequency_ghz * 1e9 / CYCLES_FREQUENCY as f64;
    assert!((period / wanted - 1.0).abs() < 0.1, "{period} of {wanted}: {words}");
}

/// What all tasks execute is what all CPUs execute. A clock of a task goes on while it runs, and its samples are those of that task alone.
#[test]
fn counters_of_tasks_go_where_they_run_and_their_samples_are_theirs() {
    skip!(unless can_answer());
    let (_, _, words) = run_live("loader_that_follows_tasks", WORKLOAD, MemoryChoice::Analytic);
    let [tasks, of_tasks, of_cpus] = numbers(&words, "found")[..] else { panic!("{words}") };
    assert!(tasks >= 13.0 && of_cpus > 0.0 && (of_tasks / of_cpus - 1.0).abs() < 1e-6, "{words}");
    let [clock, enabled, running] = numbers(&words, "clock")[..] else { panic!("{words}") };
    assert!(clock == enabled && clock == running && (230e6..=260e6).contains(&clock), "{words}");
    let [samples, all] = numbers(&words, "sampled")[..] else { panic!("{words}") };
    assert_eq!(samples, all, "{words}");
    assert!((samples - clock / PERIOD_NS as f64).abs() <= 1.0, "{words}");
}

#[test]
fn programs_at_places_and_samples_that_are_not_modelled_are_named() {
    skip!(unless can_answer());
    let capture = run_loader("loader_that_traces_what_is_missing", Duration::from_secs(60)).unwrap();
    let missing: Vec<String> = capture.missing().map(ToString::to_string).collect();
    let expected = [
        "program raw at raw tracepoint sched_stat_runtime",
        "program sampler at samples of cache-misses",
        "event cpu-clock of a thread of the loader",
        "event tracepoint 99999",
    ];
    assert_eq!(missing, expected);
    let all: Vec<String> = capture.needs.iter().filter(|need| need.is_modelled).map(ToString::to_string).collect();
    for known in [
        "program tracepoint at tracepoint irq/softirq_entry",
        "program sampler at samples of instructions",
        "program raw at raw tracepoint task_rename",
        "program raw at raw tracepoint sched_process_exec",
    ] {
        assert!(all.iter().any(|need| need == known), "{known} in {all:?}");
    }
}
