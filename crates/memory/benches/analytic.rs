//! What the analytic level costs the host: nanoseconds per running task and update of its LLC, and per evaluation of a
//! CPU's speed, for tasks that keep the caches in motion. Prints one JSON document. Arguments restrict it to machines or
//! profiles of that name.

use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;
use warmcore_memory::analytic::{Analytic, TaskSpec};
use warmcore_memory::{Profile, library};
use warmcore_topology::{CpuId, Machine, resolve};

#[derive(Serialize)]
struct Measurement {
    machine: &'static str,
    profiles: &'static [&'static str],
    tasks: u32,
    simulated_ms: u64,
    updates: u64,
    ns_per_task_and_update: f64,
    evaluations: u64,
    ns_per_evaluation: f64,
}

/// Time between two looks at what is due.
const STEP_NS: u64 = 100_000;

/// Every task leaves its CPU and comes back once in so many steps, so that windows never rest.
const TURN_STEPS: u64 = 20;

fn measure(name: &'static str, profiles: &'static [&'static str], ms: u64) -> Result<Measurement, String> {
    let machine: Machine = resolve(name).map_err(|error| error.to_string())?;
    let known = |name: &&str| library::find(name).cloned().ok_or_else(|| format!("no profile {name}"));
    let of_library: Vec<Profile> = profiles.iter().map(known).collect::<Result<_, _>>()?;
    let mut model = Analytic::new(&machine, &of_library).map_err(|error| error.to_string())?;
    let tasks = machine.cpu_count() as u32;
    for task in 0..tasks {
        model.add_task(&TaskSpec { profile: task as usize % profiles.len(), process: task % 4, data: &[] });
        model.switch_in(0, CpuId(task), task);
        model.evaluate(0, CpuId(task), None);
    }
    let (mut update_ns, mut updates, mut evaluation_ns, mut evaluations) = (0, 0, 0, 0);
    let mut due = Vec::new();
    for step in 1..=ms * 1_000_000 / STEP_NS {
        let now_ns = step * STEP_NS;
        for cpu in (0..tasks).map(CpuId) {
            model.ran(cpu, STEP_NS);
        }
        for task in (0..tasks).filter(|task| (u64::from(*task) + step) % TURN_STEPS == 0) {
            model.switch_out(now_ns, CpuId(task));
            model.switch_in(now_ns, CpuId(task), task);
            model.evaluate(now_ns, CpuId(task), None);
        }
        if model.due_ns() <= now_ns {
            model.due_cpus(now_ns, &mut due);
            let start = Instant::now();
            model.refresh(now_ns);
            update_ns += start.elapsed().as_nanos();
            updates += due.len() as u64;
        }
        while model.take_changed().is_some() {}
        let start = Instant::now();
        for cpu in (0..tasks).map(CpuId).filter(|cpu| cpu.0 % 4 == 0) {
            model.evaluate(now_ns, cpu, None);
            evaluations += 1;
        }
        evaluation_ns += start.elapsed().as_nanos();
    }
    Ok(Measurement {
        machine: name,
        profiles,
        tasks,
        simulated_ms: ms,
        updates,
        ns_per_task_and_update: update_ns as f64 / updates.max(1) as f64,
        evaluations,
        ns_per_evaluation: evaluation_ns as f64 / evaluations.max(1) as f64,
    })
}

fn main() -> ExitCode {
    let private: &[&str] = &["perlbench", "canneal"];
    let sharing: &[&str] = &["verilator", "mysql-select"];
    // Cargo adds options of its own.
    let names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let mut results = Vec::new();
    for machine in ["graviton3", "turin128"] {
        for profiles in [private, sharing] {
            if !names.iter().all(|name| name == machine || profiles.contains(&name.as_str())) {
                continue;
            }
            match measure(machine, profiles, 200) {
                Ok(result) => results.push(result),
                Err(message) => {
                    eprintln!("{machine}: {message}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    match serde_json::to_string_pretty(&results) {
        Ok(text) => println!("{text}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
