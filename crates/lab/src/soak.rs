//! Soak of a scheduler over seeds in the simulator: each seed's random workload runs once, and a run that fails, or in which a task waits too
//! long ([`warmcore_schedulers::soak`]), is a finding.

use std::fmt;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{BatchConduct, Place as _, PlaceError, Request};
use warmcore_places::sim::Sim;
use warmcore_schedulers::SchedulerSpec;
use warmcore_schedulers::soak::{Case, Judge, Wait};
use warmcore_topology::Machine;

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
    /// A task waited too long.
    Waits(Wait),
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(out),
            Self::Waits(wait) => wait.fmt(out),
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
    let found = Mutex::new(Vec::new());
    let seeds: Vec<u64> = seeds.collect();
    for seeds in seeds.chunks(BATCH) {
        let cases: Vec<Case> = seeds.iter().map(|seed| Case::new(machine, *seed)).collect();
        let asked = cases.iter().zip(seeds);
        let requests: Vec<Request<'_>> = asked
            .map(|(Case { workload, actions }, seed)| Request {
                options,
                actions,
                ..Request::new(machine, workload, scheduler, *seed)
            })
            .collect();
        Sim.check(&requests)?;
        Sim.run(&requests, conduct, &|position, run| {
            let judged = run.and_then(|run| {
                let mut judge = Judge::new(machine, &run.tables.restrictions);
                let report = run.send(Some(&mut judge))?;
                Ok(judge.verdict(report.outcome.elapsed_ns))
            });
            let what = match judged {
                Ok(None) => return ControlFlow::Continue(()),
                Ok(Some(wait)) => Found::Waits(wait),
                Err(error) if error.is_interruption() => return ControlFlow::Break(()),
                Err(error) => Found::Failed(error),
            };
            let finding = Finding { seed: seeds[position], what };
            found.lock().unwrap_or_else(PoisonError::into_inner).push(finding);
            ControlFlow::Continue(())
        })?;
        if conduct.stop.load(Ordering::Relaxed) {
            return Err(PlaceError::interrupted());
        }
    }
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|finding| finding.seed);
    Ok(found)
}
