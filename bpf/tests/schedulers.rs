// SPDX-License-Identifier: GPL-2.0-only
//! The schedulers in BPF C beside the same policies in Rust, in the simulator: the loader runs unmodified before the simulated machine, and
//! what it loads decides the same to the last event.
//!
//! They need a kernel in the cache, for its type information, and system calls that can be answered.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use warmcore_kernel::Setup;
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{BatchConduct, Place as _, PlaceError, Report, Request};
use warmcore_places::sim::{Sim, programs};
use warmcore_schedulers::{Bytecode, SchedulerSpec, bytecode_trial, simulate};
use warmcore_testing::skip;
use warmcore_topology::Machine;
use warmcore_trace::{Event, EventKind};
use warmcore_workload::{Options, Workload};

const POLICIES: [(&str, &str); 3] = [
    (env!("CARGO_BIN_EXE_scx_fifo"), "fifo"),
    (env!("CARGO_BIN_EXE_scx_fifo_llc"), "fifo-llc"),
    (env!("CARGO_BIN_EXE_scx_vtime"), "vtime"),
];

fn program(path: &str) -> SchedulerSpec {
    SchedulerSpec::parse(&format!("scx:{path}")).unwrap()
}

fn machine(text: &str) -> Machine {
    warmcore_topology::resolve(text).unwrap()
}

fn workload(text: &str) -> Workload {
    let no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    warmcore_workload::resolve(text, &Options::default(), no_files).unwrap()
}

/// Whether a loader can be run here, or why not.
fn can_load() -> Result<(), String> {
    let Err(error) = programs::load(&program(POLICIES[0].0), &machine("1s1n1l2c1t")) else { return Ok(()) };
    let reason = error.to_string();
    let known = ["there is none", "cannot be answered here", "x86-64 computers only"];
    assert!(known.iter().any(|known| reason.contains(known)), "{reason}");
    Err(format!("no loader can be run here: {reason}"))
}

#[test]
fn each_program_in_bpf_schedules_as_the_same_policy_in_rust_to_the_last_event() {
    skip!(unless can_load());
    let cases = [
        ("1s1n2l4c1t", "hackbench:-f3,-g2,-l50"),
        ("2s1n2l2c2t", "spin:-n24,-p0,-u100ms,-d1s"),
        ("1s1n3l2c1t", "schbench:-m2,-t6,-r1"),
    ];
    for (path, policy) in POLICIES {
        for (shape, load) in cases {
            let (machine, workload) = (machine(shape), workload(load));
            let setup = Setup::new(&machine, &workload, 7).unwrap();
            let capture = programs::capture(&program(path), &machine).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(capture.missing().next().is_none(), "{path}: {:?}", capture.needs);
            assert_eq!(capture.object.name(), policy.replace('-', "_"));
            let (mut events, mut native): (Vec<Event>, Vec<Event>) = Default::default();
            let (outcome, _) =
                bytecode_trial(Bytecode::new(&capture.object, setup.seed, false).unwrap(), &setup, Some(&mut events))
                    .unwrap();
            let spec = SchedulerSpec::parse(&format!("scx-native:policy={policy}")).unwrap();
            let expected = simulate(&spec, &setup, Some(&mut native)).unwrap();
            assert!(native.len() > 100, "there is something to compare: {}", native.len());
            assert_eq!(outcome.elapsed_ns, expected.elapsed_ns, "{policy} on {shape}");
            let differs = events.iter().zip(&native).position(|(one, other)| one != other);
            assert_eq!(differs.map(|at| (at, &events[at], &native[at])), None, "{policy} on {shape}");
            assert_eq!(events.len(), native.len(), "{policy} on {shape}");
        }
    }
}

/// What the simulator, as a place, makes of a scheduler: events, what is noted, what was printed.
fn made(scheduler: &str, machine: &Machine, workload: &Workload) -> Result<(Vec<Event>, Report), PlaceError> {
    made_with(scheduler, machine, workload, MemoryChoice::None)
}

fn made_with(
    scheduler: &str,
    machine: &Machine,
    workload: &Workload,
    memory: MemoryChoice,
) -> Result<(Vec<Event>, Report), PlaceError> {
    let scheduler = SchedulerSpec::parse(scheduler).unwrap();
    let request = Request::new(machine, workload, &scheduler, 7);
    let requests = [Request { options: RunOptions { memory, ..request.options }, ..request }];
    Sim.check(&requests)?;
    let made = Mutex::new(None);
    let conduct = BatchConduct { jobs: 1, stop: Arc::default() };
    Sim.run(&requests, &conduct, &|_, run| {
        let mut events: Vec<Event> = Vec::new();
        let sent = run.and_then(|run| run.send(Some(&mut events)));
        *made.lock().unwrap() = Some(sent.map(|report| (events, report)));
        ControlFlow::Continue(())
    })?;
    made.into_inner().unwrap().expect("there is one run")
}

fn events(scheduler: &str, machine: &Machine, workload: &Workload) -> Result<Vec<Event>, PlaceError> {
    made(scheduler, machine, workload).map(|(events, _)| events)
}

/// Each setting of the kernel changes what a program does, and as it changes the same policy in Rust.
#[test]
fn a_program_runs_in_the_kernel_that_its_settings_say() {
    skip!(unless can_load());
    // A third of each CPU's turns is in the kernel, where it may give way in the middle.
    let in_kernel = r#"{"tasks": {"busy": {"instance": 0}}, "global": {"duration": 1}, "warmcore": {"tasks": {"busy": {"instances": 5, "program":
        [{"loop": 9, "steps": ["kernel_enter", {"run_ns": 15000000}, "cond_resched", {"run_ns": 15000000}, "kernel_exit", {"run_ns": 5000000}]}]}}}}"#;
    let in_kernel = warmcore_workload::from_rtapp("kernel", in_kernel, &Options::default()).unwrap();
    let cases = [
        ("1s1n1l2c1t", workload("spin:-n5,-d300ms"), "hz=1000"),
        ("1s1n1l2c1t", workload("spin:-n5,-d300ms"), "ticks=together"),
        ("1s1n2l2c1t", workload("periodic:-n3,-r1ms,-s2ms,-d50ms"), "timer_slack_ns=0"),
        ("1s1n2l2c1t", workload("schbench:-m2,-t3,-r1"), "ttwu_queue=0"),
        ("1s1n1l2c1t", in_kernel, "preempt=none"),
    ];
    for (shape, workload, setting) in cases {
        let machine = machine(shape);
        let path = POLICIES[0].0;
        let with_setting = SchedulerSpec::parse(&format!("scx:{setting} {path}")).unwrap();
        let setup = with_setting.in_its_kernel(&Setup::new(&machine, &workload, 7).unwrap()).unwrap();
        let capture = programs::capture(&with_setting, &machine).unwrap();
        let (mut events, mut native): (Vec<Event>, Vec<Event>) = Default::default();
        let program = Bytecode::new(&capture.object, setup.seed, false).unwrap();
        bytecode_trial(program, &setup, Some(&mut events)).unwrap();
        let same = SchedulerSpec::parse(&format!("scx-native:policy=fifo,{setting}")).unwrap();
        simulate(&same, &setup, Some(&mut native)).unwrap();
        assert!(events == native, "{setting}: as in Rust");
        let [with, without] = [with_setting.to_string(), format!("scx:{path}")]
            .map(|scheduler| self::events(&scheduler, &machine, &workload).unwrap());
        // No wakeup of a program without SCX_OPS_ALLOW_QUEUED_WAKEUP is left to its CPU.
        assert_eq!(with != without, setting != "ttwu_queue=0", "{setting}");
    }
}

#[test]
fn a_program_has_no_governor_on_a_machine_that_states_no_frequencies() {
    skip!(unless can_load());
    let text = format!("scx:governor=schedutil {}", POLICIES[0].0);
    let error = events(&text, &machine("1s1n1l2c1t"), &workload("spin:-n1,-d1ms")).unwrap_err();
    assert!(error.to_string().contains("frequencies"), "{error}");
}

/// A program of the repository, with the loader that it needs.
fn object(name: &str) -> String {
    format!("scx:{} {}/objects/{name}.bpf.o", env!("CARGO_BIN_EXE_scx_load"), env!("CARGO_MANIFEST_DIR"))
}

/// Eight spinners on four CPUs, of which CPU 3 is offline from 0.6 to 1.4 s.
fn spinners_while_a_cpu_is_away() -> Workload {
    let text = r#"{"tasks": {"spinner": {"instance": 8, "runtime": 60000000}}, "global": {"duration": 2},
                   "warmcore": {"hotplug": [{"at_ns": 600000000, "offline": 3}, {"at_ns": 1400000000, "online": 3}]}}"#;
    warmcore_workload::from_rtapp("hotplug", text, &Options::default()).unwrap()
}

fn switches_per_s(events: &[Event], from_ms: u64, to_ms: u64) -> u64 {
    let inside = |event: &&Event| (from_ms * 1_000_000..to_ms * 1_000_000).contains(&event.time_ns);
    let switches = events.iter().filter(inside).filter(|event| matches!(event.kind, EventKind::Switch { .. }));
    switches.count() as u64 * 1000 / (to_ms - from_ms)
}

/// Its loader looks every 0.5 s, and has attached it 1 s before the run begins: at 1.0 s, and, as it looks from then on, at 1.5 s. The program's slices of
/// 20 ms end with the sixth tick, those of the fair class with the first.
#[test]
fn a_program_that_a_kernel_ends_for_a_cpu_is_attached_again_when_its_loader_has_looked() {
    skip!(unless can_load());
    let (machine, workload) = (machine("1s1n1l4c1t"), spinners_while_a_cpu_is_away());
    let (events, report) = made(&object("restarts"), &machine, &workload).unwrap();
    let restarts: Vec<&String> = report.notes.iter().filter(|note| note.contains("attached it again")).collect();
    assert_eq!(restarts.len(), 2, "{:?}", report.notes);
    for (note, ended, attached) in [
        (restarts[0], "0.600000 s: cpu 3 going offline, exiting scheduler", "again at 1.0"),
        (restarts[1], "1.400000 s: cpu 3 going online, exiting scheduler", "again at 1.5"),
    ] {
        assert!(note.starts_with(ended) && note.contains(attached), "{note}");
    }
    // Its loader looks every half second, and then waits for a CPU among spinners.
    for (from_ms, to_ms) in [(100, 590), (1100, 1390), (1600, 1990)] {
        let rate = switches_per_s(&events, from_ms, to_ms);
        assert!(rate < 200, "{rate} switches a second from {from_ms} ms on");
    }
    for (from_ms, to_ms) in [(610, 990), (1410, 1490)] {
        let rate = switches_per_s(&events, from_ms, to_ms);
        assert!(rate > 500, "{rate} switches a second from {from_ms} ms on");
    }
    let said = report.output.unwrap();
    assert_eq!((said.matches(": attached").count(), said.matches("asks to start it again").count()), (3, 2), "{said}");
    assert!(made(&object("restarts"), &machine, &workload).unwrap().0 == events, "and again");
}

#[test]
fn a_program_with_operations_for_cpus_goes_on_and_one_whose_loader_does_not_restart_it_is_invalid() {
    skip!(unless can_load());
    let (machine, workload) = (machine("1s1n1l4c1t"), spinners_while_a_cpu_is_away());
    let (events, report) = made(&object("hotplug"), &machine, &workload).unwrap();
    assert!(!report.notes.iter().any(|note| note.contains("attached it again")), "{:?}", report.notes);
    assert!(switches_per_s(&events, 610, 1390) < 200);
    let error = made(&object("fifo"), &machine, &workload).unwrap_err();
    assert!(error.to_string().contains("its loader is asked to start it again, and has not"), "{error}");
    assert!(error.advice.contains("cpu_offline"), "{}", error.advice);
}

/// Slices of 20 ms, so a spinner of 400 ms has one when a real-time task takes its CPU from 50 to 150 ms. By hand: the program gives it back at the
/// switch, and it ends after 400 ms on the other CPU; `fifo`, which does not, leaves it where it is, and it ends after 500.
#[test]
fn a_program_at_the_tracepoint_of_switches_gets_back_who_waits_behind_a_real_time_task() {
    skip!(unless can_load());
    let text = r#"{"tasks": {"spinner": {"instance": 1, "loop": 1, "run": 400000},
                             "above": {"instance": 1, "loop": 1, "cpus": [1], "policy": "SCHED_FIFO", "priority": 10,
                                       "sleep": 50000, "run": 100000}}}"#;
    let workload = warmcore_workload::from_rtapp("above", text, &Options::default()).unwrap();
    let machine = machine("1s1n1l2c1t");
    for (name, expected_ms) in [("gives_back", 400), ("fifo", 500)] {
        let (events, report) = made(&object(name), &machine, &workload).unwrap();
        let ended = events
            .iter()
            .rev()
            .find(|event| matches!(event.kind, EventKind::Switch { prev_state: warmcore_trace::PrevState::Dead, .. }));
        let ended_ms = ended.expect("both end").time_ns / 1_000_000;
        assert_eq!(ended_ms, expected_ms, "{name}: {:?}", report.notes);
    }
    let capture = programs::capture(&program_of(&object("gives_back")), &machine).unwrap();
    assert_eq!(capture.missing().next(), None);
}

/// Two tasks on a CPU that both run at once: one 30 ms in slices of 20, one 10. The loader has the clock sampled every millisecond, so that each turn has one
/// sample more or less than milliseconds.
#[test]
fn a_program_in_c_reads_records_of_switches_and_samples_who_runs() {
    skip!(unless can_load());
    let text = r#"{"tasks": {"long": {"instance": 1, "loop": 1, "run": 30000}, "short": {"instance": 1, "loop": 1, "run": 10000}}}"#;
    let workload = warmcore_workload::from_rtapp("two", text, &Options::default()).unwrap();
    let machine = machine("1s1n1l1c1t");
    let capture = programs::capture(&program_of(&object("traced")), &machine).unwrap();
    assert_eq!(capture.missing().next(), None);
    let needs: Vec<String> = capture.needs.iter().map(ToString::to_string).collect();
    for need in [
        "traced_switch at tracepoint sched/sched_switch",
        "traced_new at tracepoint sched/sched_wakeup_new",
        "traced_sample at samples of cpu-clock",
    ] {
        assert!(needs.iter().any(|known| *known == format!("program {need}")), "{need} in {needs:?}");
    }
    let setup = Setup::new(&machine, &workload, 7).unwrap();
    let trial = || {
        let program = Bytecode::new(&capture.object, setup.seed, false).unwrap();
        let usage = program.usage();
        let mut events: Vec<Event> = Vec::new();
        bytecode_trial(program, &setup, Some(&mut events)).unwrap();
        let printed = usage.printed().to_owned();
        (events, printed)
    };
    let (events, printed) = trial();
    let numbers = |line: &str| -> Vec<i64> {
        let words = line.split(|letter: char| !letter.is_ascii_digit());
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let said = |what: &str| -> Vec<Vec<i64>> {
        printed.lines().filter_map(|line| line.split_once(what)).map(|(_, rest)| numbers(rest)).collect()
    };
    let switches = said("switch from ");
    let happened = events.iter().filter(|event| matches!(event.kind, EventKind::Switch { .. })).count();
    assert_eq!(switches.len(), happened, "{printed}");
    // Whoever comes leaves at the next switch, and all have the priority of a nice value of 0.
    assert!(switches.windows(2).all(|pair| pair[0][1] == pair[1][0]), "{printed}");
    assert!(switches.iter().all(|switch| switch[2] == 120), "{printed}");
    // Both come on the only CPU, and each exits in its own name.
    let (new, mut ended) = (said("new is "), said("exit of "));
    assert!(new.len() == 2 && new.iter().all(|task| task[1..] == [0, 120]), "{printed}");
    ended.sort_unstable();
    assert_eq!(ended, new.iter().map(|task| vec![task[0]]).collect::<Vec<_>>(), "{printed}");
    let samples = said("sample of ");
    assert!(samples.iter().all(|sample| sample[1] == 1_000_000), "{printed}");
    let first = switches.iter().map(|switch| switch[1]).find(|pid| *pid > 0).expect("one runs");
    let of = |mine: bool| samples.iter().filter(|sample| sample[0] > 0 && (sample[0] == first) == mine).count();
    assert!((28..=32).contains(&of(true)) && (9..=11).contains(&of(false)), "{printed}");
    assert_eq!(trial().1, printed, "and again");
}

fn program_of(scheduler: &str) -> SchedulerSpec {
    SchedulerSpec::parse(scheduler).unwrap()
}

/// Two tasks on one CPU, whose instructions take 0.3 and 0.6 cycles. By hand: with as many instructions each, the slow one has two thirds of the time;
/// in the order of time each has half, and with a weight of three for the fast one it has 3 × 0.3 of 3 × 0.3 + 0.6.
#[test]
fn a_program_that_reads_counters_of_instructions_shares_them_by_weight_and_not_the_time() {
    skip!(unless can_load());
    let text = |nice: i32| {
        let class = r#"[{ "size": "4KiB", "touches_per_ki": 1.0, "write_fraction": 0.0 }]"#;
        let profile = |name: &str, cpi0: f64| {
            format!(r#"{{ "name": "{name}", "cpi0": {cpi0}, "mlp": 1.0, "classes": {class} }}"#)
        };
        format!(
            r#"{{"tasks": {{"fast": {{"instance": 1, "runtime": 60000000, "priority": {nice}}}, "slow": {{"instance": 1, "runtime": 60000000}}}},
                 "global": {{"duration": 4}},
                 "warmcore": {{"profiles": [{}, {}], "tasks": {{"fast": {{"profile": "quick"}}, "slow": {{"profile": "heavy"}}}}}}}}"#,
            profile("quick", 0.3),
            profile("heavy", 0.6)
        )
    };
    let machine = machine("1s1n1l1c1t");
    let share_of_fast = |scheduler: &str, nice: i32| {
        let workload = warmcore_workload::from_rtapp("two", &text(nice), &Options::default()).unwrap();
        let (_, report) = made_with(scheduler, &machine, &workload, MemoryChoice::Analytic).unwrap();
        let times: Vec<f64> = report.outcome.tasks.iter().map(|task| task.cpu_time_ns as f64).collect();
        let [fast, slow] = times[..] else { panic!("two tasks: {times:?}") };
        fast / (fast + slow)
    };
    // Nice -5 is a weight of 3121 / 1024 in hundredths, rounded.
    let weighted = 3.04 * 0.3 / (3.04 * 0.3 + 0.6);
    for (scheduler, nice, expected) in
        [(object("counted"), 0, 1.0 / 3.0), (object("vtime"), 0, 0.5), (object("counted"), -5, weighted)]
    {
        let share = share_of_fast(&scheduler, nice);
        assert!((share - expected).abs() < 0.01, "{scheduler} with nice {nice}: {share} instead of {expected}");
    }
    let capture = programs::capture(&program_of(&object("counted")), &machine).unwrap();
    assert_eq!(capture.missing().next(), None);
    assert!(capture.needs.iter().any(|need| need.to_string() == "event instructions"), "{:?}", capture.needs);
    let workload = warmcore_workload::from_rtapp("two", &text(0), &Options::default()).unwrap();
    let error = made(&object("counted"), &machine, &workload).unwrap_err().to_string();
    assert!(error.contains("a counter of instructions of CPU 0"), "{error}");
}
