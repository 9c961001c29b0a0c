//! Counters that a loader opens: what its programs and it read of them is what the run's accounts say.
#![cfg(target_arch = "x86_64")]

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;
mod loaders;
mod types;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use assembler::*;
use loaders::*;
use warmcore_options::MemoryChoice;
use warmcore_testing::skip;
use warmcore_trace::{Event, Outcome};

const MS: Duration = Duration::from_millis(1);
const CPUS: usize = 8;

/// Types and numbers of events (`perf_event_open(2)`).
const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CYCLES: u64 = 0;
const INSTRUCTIONS: u64 = 1;
const BRANCHES: u64 = 4;
const TASK_CLOCK: u64 = 1;
const SWITCHES: u64 = 3;

/// `PERF_EVENT_IOC_ENABLE` and the two after it.
const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
const RESET: u64 = 0x2403;

/// Opens a counter; with `disabled` it does not count yet.
fn open(event_type: u32, config: u64, pid: i32, cpu: i32, disabled: bool) -> Result<File, i32> {
    let mut attributes = [0_u8; 128];
    put(&mut attributes, 0, &event_type.to_le_bytes());
    put(&mut attributes, 4, &128_u32.to_le_bytes());
    put(&mut attributes, 8, &config.to_le_bytes());
    // Times enabled and running.
    put(&mut attributes, 32, &3_u64.to_le_bytes());
    put(&mut attributes, 40, &u64::from(disabled).to_le_bytes());
    perf_event(&attributes, pid, cpu)
}

fn on_each_cpu(event_type: u32, config: u64, disabled: bool) -> Vec<File> {
    (0..CPUS as i32).map(|cpu| open(event_type, config, -1, cpu, disabled).unwrap()).collect()
}

fn sum(counters: &[File]) -> u64 {
    counters.iter().map(|counter| read_event(counter)[0]).sum()
}

/// `r6` = the counter of this CPU, by `bpf_perf_event_read_value`; the program ends if there is an error.
fn read_here(counters: i64) -> Vec<[u8; 8]> {
    const THIS_CPU: i32 = -1;
    let mut program = vec![mov(8, 1)];
    program.extend(map_of(1, counters));
    program.extend([
        // A number of 32 bits.
        code(0xb4, 2, 0, 0, THIS_CPU),
        mov(3, 10),
        add_imm(3, -32),
        mov_imm(4, 24),
        helper(55),
        code(0x15, 0, 0, 1, 0),
        exit(),
        load_double(6, 10, -32),
    ]);
    program
}

/// The word at r10 - 4 is the CPU's number.
fn this_cpu() -> Vec<[u8; 8]> {
    vec![helper(8), store(4, 10, 0, -4)]
}

/// Keeps what the counter says when a task begins to run.
fn running(counters: i64, begun: i64) -> (usize, &'static str, Vec<[u8; 8]>) {
    let mut program = read_here(counters);
    program.extend(this_cpu());
    program.extend(look_up(begun));
    program.extend([store(8, 0, 6, 0), mov_imm(0, 0), exit()]);
    (168, "running", program)
}

/// Adds what it has counted since to the task's.
fn stopping(counters: i64, begun: i64, of_tasks: i64) -> (usize, &'static str, Vec<[u8; 8]>) {
    const PID: i16 = 24;
    const FIRST_PID: i32 = 1000;
    let mut program = read_here(counters);
    program.extend(this_cpu());
    program.extend(look_up(begun));
    program.extend([
        load_double(7, 0, 0),
        // r6 -= r7
        code(0x1f, 6, 7, 0, 0),
        load_double(8, 8, 0),
        assembler::load(4, 8, 8, PID),
        add_imm(8, -FIRST_PID),
        store(4, 10, 8, -4),
    ]);
    program.extend(look_up(of_tasks));
    // r7 = [r0]; r7 += r6; [r0] = r7
    program.extend([load_double(7, 0, 0), code(0x0f, 7, 6, 0, 0), store(8, 0, 7, 0), mov_imm(0, 0), exit()]);
    (176, "stopping", program)
}

/// `init` that leaves what `bpf_perf_event_read` gives for three indices: this CPU, another, and one beyond the end.
fn init_that_reads(counters: i64, found: i64) -> (usize, &'static str, Vec<[u8; 8]>) {
    let mut program = vec![mov_imm(1, SHARED), mov_imm(2, -1), kfunc("scx_bpf_create_dsq")];
    for (place, index) in [0, 1, CPUS as i32].into_iter().enumerate() {
        program.extend(map_of(1, counters));
        program.extend([mov_imm(2, index), helper(22), mov(6, 0), store_imm(4, 10, -4, place as i32)]);
        program.extend(look_up(found));
        program.push(store(8, 0, 6, 0));
    }
    program.extend([mov_imm(0, 0), exit()]);
    (24, "init", program)
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_counts() {
    const TASKS: u32 = 64;
    let counters = on_each_cpu(HARDWARE, INSTRUCTIONS, false);
    let cycles = on_each_cpu(HARDWARE, CYCLES, false);
    let window = on_each_cpu(HARDWARE, INSTRUCTIONS, true);
    let switches = on_each_cpu(SOFTWARE, SWITCHES, false);
    assert_eq!(open(HARDWARE, BRANCHES, -1, 0, false).unwrap_err(), libc::ENOENT);
    assert_eq!(open(HARDWARE, INSTRUCTIONS, 0, -1, false).unwrap_err(), libc::EOPNOTSUPP);
    assert_eq!(open(HARDWARE, INSTRUCTIONS, -1, -1, false).unwrap_err(), libc::EINVAL);
    assert_eq!(open(HARDWARE, INSTRUCTIONS, -1, CPUS as i32, false).unwrap_err(), libc::EINVAL);
    let (array, begun) = (create_map(4, 4, 4, CPUS as u32), create_map(2, 4, 8, CPUS as u32));
    let (of_tasks, found) = (create_map(2, 4, 8, TASKS), create_map(2, 4, 8, 3));
    for (cpu, counter) in counters.iter().enumerate() {
        let mut descriptor = counter.as_raw_fd().to_le_bytes();
        assert_eq!(element(2, array, &(cpu as u32).to_le_bytes(), &mut descriptor), 0);
    }
    assert_eq!(element(2, array, &[0; 4], &mut 1_000_000_u32.to_le_bytes()), -1, "no descriptor");
    assert_eq!(element(2, array, &8_u32.to_le_bytes(), &mut counters[0].as_raw_fd().to_le_bytes()), -1, "no place");
    let programs = [init_that_reads(array, found), select_cpu(), enqueue(), dispatch()];
    attach(&[&programs[..], &[running(array, begun), stopping(array, begun, of_tasks)]].concat());
    let read_by_init = [0, 1, 2].map(|place| value(found, place) as i64);
    assert_eq!(read_by_init, [0, -i64::from(libc::EINVAL), -i64::from(libc::E2BIG)]);
    std::thread::sleep(1100 * MS);
    request(&window, ENABLE);
    let before = sum(&counters);
    std::thread::sleep(100 * MS);
    request(&window, DISABLE);
    let passed = sum(&counters) - before;
    std::thread::sleep(800 * MS);
    let [in_window, enabled_ns, running_ns] = read_event(&window[0]);
    assert!((100_000_000..101_000_000).contains(&enabled_ns) && enabled_ns == running_ns, "{enabled_ns}");
    assert!(in_window > 0);
    eprintln!("window {} passed {passed}", sum(&window));
    eprintln!("all {} cycles {} switches {}", sum(&counters), sum(&cycles), sum(&switches));
    let tasks: Vec<String> = (0..TASKS)
        .map(|task| value(of_tasks, task))
        .filter(|count| *count > 0)
        .map(|count| count.to_string())
        .collect();
    eprintln!("tasks {}", tasks.join(" "));
    request(&counters, RESET);
    assert_eq!(sum(&counters), 0);
    loop {
        std::thread::sleep(Duration::from_secs(3));
    }
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_counts_late() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    std::thread::sleep(1100 * MS);
    let counters = on_each_cpu(HARDWARE, INSTRUCTIONS, false);
    assert_eq!(sum(&counters), 0);
    std::thread::sleep(100 * MS);
    eprintln!("window {}", sum(&counters));
    loop {
        std::thread::sleep(Duration::from_secs(3));
    }
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_on_a_machine_without_counters() {
    assert_eq!(open(HARDWARE, INSTRUCTIONS, -1, 0, false).unwrap_err(), libc::ENOENT);
    let (clock, switches) = (open(SOFTWARE, TASK_CLOCK, -1, 0, false).unwrap(), on_each_cpu(SOFTWARE, SWITCHES, false));
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    let [before, ..] = read_event(&clock);
    std::thread::sleep(2000 * MS);
    let [after, enabled_ns, _] = read_event(&clock);
    assert!((2_000_000_000..2_001_000_000).contains(&(after - before)) && enabled_ns == after, "{before} {after}");
    eprintln!("switches {}", sum(&switches));
    loop {
        std::thread::sleep(Duration::from_secs(3));
    }
}

/// Twelve tasks work 250 ms each on eight CPUs; another one only sleeps, for longer than that takes.
const WORKLOAD: &str = r#"{"tasks": {"worker": {"instance": 12, "loop": 25, "run": 10000, "sleep": 1000}, "sleeper": {"loop": 1, "sleep": 1200000}}}"#;

fn trial(loader: &str, memory: MemoryChoice) -> (Outcome, Vec<Event>, String) {
    run_live(loader, WORKLOAD, memory)
}

/// Instructions per ns, by hand: those without memory take 0.3 cycles each.
fn rate(outcome: &Outcome) -> f64 {
    outcome.cpus[0].frequency_ghz / 0.3
}

fn is_near(found: f64, expected: f64, tolerance: f64) -> bool {
    (found / expected - 1.0).abs() <= tolerance
}

#[test]
fn what_programs_and_the_loader_read_of_counters_is_what_the_tasks_have_executed() {
    skip!(unless can_answer());
    for memory in [MemoryChoice::Analytic, MemoryChoice::Exact] {
        let (outcome, events, words) = trial("loader_that_counts", memory);
        let each = 250e6 * rate(&outcome);
        let of_tasks = numbers(&words, "tasks");
        assert_eq!(of_tasks.len(), 12, "{words}");
        // The exact level has a few touches of one line in it.
        let tolerance = if memory == MemoryChoice::Analytic { 1e-4 } else { 2e-2 };
        for (&found, task) in of_tasks.iter().zip(&outcome.tasks) {
            let counted = task.memory.unwrap().instructions;
            assert!(is_near(found, counted, 1e-6), "{found} read by the programs, {counted} in the accounts");
            assert!(is_near(found, each, tolerance), "{found} instead of {each}");
        }
        let [all] = numbers(&words, "all")[..] else { panic!("{words}") };
        let of_cpus: f64 = outcome.cpus.iter().map(|cpu| cpu.memory.unwrap().instructions).sum();
        assert!(is_near(all, of_cpus, 1e-6) && is_near(all, 12.0 * each, tolerance), "{all} and {of_cpus}");
        assert!(is_near(numbers(&words, "cycles")[0] / all, 0.3, tolerance), "{words}");
        // Within 100 ms all CPUs are busy; ticks and switches take part of it.
        let [window] = numbers(&words, "window")[..] else { panic!("{words}") };
        assert_eq!(numbers(&words, "passed"), [window], "the same instants");
        let most = CPUS as f64 * 100e6 * rate(&outcome);
        assert!((0.97 * most..1.001 * most).contains(&window), "{window} of {most}");
        let switches = events.iter().filter(|event| matches!(event.kind, warmcore_trace::EventKind::Switch { .. }));
        // The sleeper's last ones come afterwards.
        let (read, happened) = (numbers(&words, "switches")[0], switches.count() as f64);
        assert!((happened - 2.0..=happened).contains(&read), "{read} of {happened}");
        assert_eq!(trial("loader_that_counts", memory).1, events, "and again");
    }
}

#[test]
fn a_counter_that_is_opened_during_the_run_counts_from_there_on() {
    skip!(unless can_answer());
    let (outcome, _, words) = trial("loader_that_counts_late", MemoryChoice::Analytic);
    let [window] = numbers(&words, "window")[..] else { panic!("{words}") };
    let most = CPUS as f64 * 100e6 * rate(&outcome);
    assert!((0.97 * most..1.001 * most).contains(&window), "{window} of {most}");
}

#[test]
fn without_a_model_of_the_memory_there_are_no_counters_of_hardware_and_those_of_software_count() {
    skip!(unless can_answer());
    let (_, events, words) = trial("loader_on_a_machine_without_counters", MemoryChoice::None);
    let switches = events.iter().filter(|event| matches!(event.kind, warmcore_trace::EventKind::Switch { .. }));
    let (read, happened) = (numbers(&words, "switches")[0], switches.count() as f64);
    assert!((happened - 2.0..=happened).contains(&read) && read > 100.0, "{read} of {happened}");
}
