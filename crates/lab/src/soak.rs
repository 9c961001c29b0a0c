//! Soak of a scheduler over seeds in the simulator: each seed's random workload runs once, and a run that fails, or in which a task waits too
//! long ([`warmcore_schedulers::soak`]), is a finding.

use std::fmt;
use std::ops::RangeInclusive;

use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{self, BatchConduct, Place as _, PlaceError, Request};
use warmcore_places::sim::Sim;
use warmcore_schedulers::SchedulerSpec;
use warmcore_schedulers::soak::{Case, Judge, Wait};
use warmcore_topology::{CpuSet, Machine, format_cpu_list};
use warmcore_trace::{Event, EventKind, PrevState, Tee};

/// Seeds whose workloads are there at the same time.
const BATCH: usize = 64;

/// What a seed has found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// What happened.
    pub what: Found,
}

/// What no scheduler may do.
#[derive(Clone, Debug)]
pub enum Found {
    /// The run failed: a sched_ext program was ejected, or a task was lost.
    Failed(PlaceError),
    /// A task waited too long; what happened to it before, a line each, if only one seed was asked for.
    Waits(Wait, Vec<String>),
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(out),
            Self::Waits(wait, before) => {
                wait.fmt(out)?;
                before.iter().try_for_each(|line| write!(out, "\n{line}"))
            }
        }
    }
}

/// Runs every seed and gives what was found, in the order of the seeds.
///
/// # Errors
/// When the scheduler cannot be run at all, or the caller asked to stop.
pub fn soak(
    machine: &Machine,
    scheduler: &SchedulerSpec,
    seeds: RangeInclusive<u64>,
    conduct: &BatchConduct,
) -> Result<Vec<Finding>, PlaceError> {
    let memory = if scheduler.info().needs_sets { MemoryChoice::Exact } else { RunOptions::default().memory };
    let options = RunOptions { memory, ..RunOptions::default() };
    let mut found = Vec::new();
    let seeds: Vec<u64> = seeds.collect();
    let is_one = seeds.len() == 1;
    for seeds in seeds.chunks(BATCH) {
        let cases: Vec<Case> = seeds.iter().map(|seed| Case::of(machine, scheduler, *seed)).collect();
        let asked = cases.iter().zip(seeds);
        let requests: Vec<Request<'_>> = asked
            .map(|(Case { workload, actions }, seed)| Request {
                options,
                actions,
                ..Request::new(machine, workload, scheduler, *seed)
            })
            .collect();
        Sim.check(&requests)?;
        let judged = place::collect(&Sim, &requests, conduct, &|position, run| {
            let judged = run.and_then(|run| {
                let (restrictions, kept) = (&run.tables.restrictions, is_one.then(Vec::new));
                let judge = Judge::new(machine, restrictions).with_changes(machine, &cases[position].actions);
                let mut sink = Tee::new(judge, kept);
                let report = run.send(Some(&mut sink))?;
                let wait = sink.first.verdict(report.outcome.elapsed_ns);
                Ok(wait.map(|wait| {
                    let before = last_of(&wait, machine, sink.second.as_deref().unwrap_or_default(), restrictions);
                    Found::Waits(wait, before)
                }))
            });
            match judged {
                Err(error) if !error.is_interruption() => Ok(Some(Found::Failed(error))),
                judged => judged,
            }
        })?;
        let findings = seeds.iter().zip(judged).filter_map(|(seed, what)| Some(Finding { seed: *seed, what: what? }));
        found.extend(findings);
    }
    Ok(found)
}

/// The last things that happened to a task before it had waited too long.
fn last_of(wait: &Wait, machine: &Machine, events: &[Event], restrictions: &[CpuSet]) -> Vec<String> {
    /// As many lines.
    const LAST: usize = 8;
    let what = |event: &Event| {
        let cpu = machine.os_cpu(event.cpu);
        let text = match event.kind {
            EventKind::Wakeup { task, .. } if task == wait.task => format!("is woken for {cpu}"),
            EventKind::Switch { next, .. } if next == wait.task => format!("runs on {cpu}"),
            EventKind::Switch { prev, prev_state: PrevState::Runnable, .. } if prev == wait.task => {
                format!("must leave {cpu}")
            }
            EventKind::Switch { prev, .. } if prev == wait.task => format!("sleeps on {cpu}"),
            EventKind::Migrate { task, from, to, .. } if task == wait.task => {
                format!("moves from {} to {}", machine.os_cpu(from), machine.os_cpu(to))
            }
            EventKind::Affinity { task, restriction } if task == wait.task => {
                let cpus = restrictions[restriction as usize].iter().map(|cpu| machine.os_index(cpu));
                format!("may use the CPUs {} from now on", format_cpu_list(cpus))
            }
            _ => return None,
        };
        Some(format!("  {:.3} ms: it {text}", event.time_ns as f64 / 1e6))
    };
    let until = events.iter().take_while(|event| event.time_ns < wait.at_ns);
    let all: Vec<String> = until.filter_map(what).collect();
    all[all.len().saturating_sub(LAST)..].to_vec()
}
