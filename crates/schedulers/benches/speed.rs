//! How fast the simulator is: the three workloads on 64 CPUs with 256 tasks for 10 simulated seconds, and their
//! growth to 1024 CPUs, the 384-CPU preset of the cache-aware schedulers among them.
//!
//! `--memory none,analytic` adds the same with the analytic memory model (names end in `-analytic`), and
//! `--profile NAME` gives all tasks a memory profile; else they have the generators' own. `switches` has
//! four tasks per CPU that run for 150 us and sleep for 600 us, in one simulated second: about 5,000 of them begin to run
//! per second and CPU. It runs only if `--only` names it.
//!
//! Prints one JSON document: CPU seconds of this thread, engine events, trace events and peak memory per run. A run
//! that does not reach its simulated time is an error. `--only NAME` selects runs whose name contains the text;
//! `--repeat N` repeats each and keeps every sample.

use std::process::ExitCode;

use serde::Serialize;
use warmcore_kernel::Setup;
use warmcore_options::MemoryChoice;
use warmcore_schedulers::{SchedulerSpec, decisions, simulate};
use warmcore_topology::Machine;
use warmcore_trace::{Counters, Sink, Start};
use warmcore_workload::Workload;

const DURATION: &str = "10s";

#[derive(Serialize)]
struct Measurement {
    name: String,
    scheduler: String,
    memory: &'static str,
    cpus: usize,
    tasks: usize,
    simulated_s: f64,
    cpu_s: Vec<f64>,
    engine_events: u64,
    events_per_cpu_s: f64,
    ns_per_event: f64,
}

#[derive(Serialize)]
struct Report {
    tracing: &'static str,
    measurements: Vec<Measurement>,
    peak_memory_kib: Option<u64>,
}

fn main() -> ExitCode {
    match report() {
        Ok(report) => {
            println!("{}", serde_json::to_string_pretty(&report).expect("a report is plain data"));
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("speed: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Workload texts for a machine of `cpus` CPUs; tasks grow in proportion.
fn workloads(cpus: usize) -> Vec<(&'static str, String)> {
    let scale = cpus / 64;
    let periodic = |count: usize| format!("periodic:-n{count},-r400us,-s1600us,-d{DURATION}");
    let hogs = |count: usize| format!("spin:-n{count},-d{DURATION}");
    let pairs = |count: usize| format!("pingpong:-n{count},-w100us,-d{DURATION}");
    vec![
        ("periodic", periodic(256 * scale)),
        ("mixed", format!("{}+{}+{}", periodic(192 * scale), hogs(32 * scale), pairs(16 * scale))),
        ("hogs", hogs(256 * scale)),
        ("switches", format!("periodic:-n{},-r150us,-s600us,-o,-d1s", 256 * scale)),
    ]
}

fn report() -> Result<Report, String> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let value_of = |flag: &str| {
        arguments.iter().position(|argument| argument == flag).and_then(|at| arguments.get(at + 1)).cloned()
    };
    let only = value_of("--only").unwrap_or_default();
    let repeat: usize =
        value_of("--repeat").map_or(Ok(1), |text| text.parse()).map_err(|_| "--repeat takes a number")?;
    let schedulers = value_of("--schedulers").unwrap_or_else(|| "eevdf,cfs,rr".to_owned());
    let memories = value_of("--memory").unwrap_or_else(|| "none".to_owned());
    let memories: Vec<MemoryChoice> = memories.split(',').map(memory).collect::<Result<_, _>>()?;
    let profile = value_of("--profile");
    let mut measurements = Vec::new();
    for (shape, cpus) in [("2s1n4l8c1t", 64), ("2s1n16l8c1t", 256), ("hygon384", 384), ("4s1n16l8c2t", 1024)] {
        let machine = warmcore_topology::resolve(shape).map_err(|error| error.to_string())?;
        for (name, text) in workloads(cpus) {
            if name == "switches" && !only.contains(name) {
                continue;
            }
            let mut workload = warmcore_workload::from_generator(&text).map_err(|error| error.to_string())?;
            if profile.is_some() {
                workload.tasks.iter_mut().for_each(|task| task.profile.clone_from(&profile));
            }
            for (scheduler, &memory) in schedulers.split(',').flat_map(|name| memories.iter().map(move |m| (name, m))) {
                let suffix = if memory == MemoryChoice::None { "" } else { "-analytic" };
                let name = format!("{name}-{cpus}-{scheduler}{suffix}");
                if name.contains(&only) {
                    measurements.push(measure(&name, &machine, &workload, scheduler, memory, repeat)?);
                }
            }
        }
    }
    Ok(Report { tracing: "counters", measurements, peak_memory_kib: peak_memory_kib() })
}

fn memory(name: &str) -> Result<MemoryChoice, String> {
    let known = [MemoryChoice::None, MemoryChoice::Analytic];
    known.into_iter().find(|choice| choice.name() == name).ok_or_else(|| format!("no memory model is named {name}"))
}

fn measure(
    name: &str,
    machine: &Machine,
    workload: &Workload,
    scheduler: &str,
    memory: MemoryChoice,
    repeat: usize,
) -> Result<Measurement, String> {
    let spec = SchedulerSpec::parse(scheduler).map_err(|error| error.to_string())?;
    let mut cpu_s = Vec::new();
    let mut engine_events = 0;
    let mut elapsed_ns = 0;
    let mut tasks = 0;
    for _ in 0..repeat {
        let mut setup = Setup::new(machine, workload, 1).map_err(|error| error.to_string())?;
        setup.options.memory = memory;
        let mut counters = Counters::new(machine, &setup.run_tables(decisions(&spec)), Start::Idle { time_ns: 0 });
        let before = thread_cpu_s();
        let sink: &mut dyn Sink = &mut counters;
        let outcome = simulate(&spec, &setup, Some(sink)).map_err(|error| format!("{name}: {error}"))?;
        cpu_s.push(thread_cpu_s() - before);
        engine_events = outcome.engine_events;
        elapsed_ns = outcome.elapsed_ns;
        tasks = outcome.tasks.len();
    }
    let best = cpu_s.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Measurement {
        name: name.to_owned(),
        scheduler: scheduler.to_owned(),
        memory: memory.name(),
        cpus: machine.cpu_count(),
        tasks,
        simulated_s: elapsed_ns as f64 / 1e9,
        engine_events,
        events_per_cpu_s: engine_events as f64 / best,
        ns_per_event: best * 1e9 / engine_events as f64,
        cpu_s,
    })
}

/// CPU time of this thread: first field of its `schedstat`. Readable under valgrind too.
fn thread_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has schedstat");
    let nanoseconds: u64 = text.split_whitespace().next().and_then(|field| field.parse().ok()).expect("three numbers");
    nanoseconds as f64 / 1e9
}

/// `VmHWM` of this process; `None` where /proc does not have it.
fn peak_memory_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
