//! "The Battle of the Schedulers: FreeBSD ULE vs. Linux CFS" (Bouron et al., USENIX ATC 2018).
//!
//! The machine is `opteron32`; programs that the paper ran on one core are bound to its first, or run on a machine of one core.
//! CFS is that of Linux 4.9 with the period and slices that the paper quotes (48 ms, 6 ms; wakeups preempt from 1 ms). ULE is the
//! paper's own port. The programs are the library's `ule-cfs/…` (`crates/workload/src/library.rs`), whose files say of every
//! parameter where it comes from.

mod many_cores;
mod one_core;
mod programs;

use crate::reproduce::check::{Band, Check, Coverage, Figure, Run, Stated};
use crate::reproduce::figures::{Drawing, PublishedFigure};
use crate::reproduce::published::{PublishedFile, PublishedRow};
use warmcore_lab::trial::Trial;

/// The paper's machine.
const MACHINE: &str = "opteron32";

/// One of its cores.
const ONE_CORE: &str = "1s1n1l1c1t";

/// The paper's CFS.
const CFS: &str =
    "cfs:kernel=4.9,sched_latency_ns=48000000,sched_min_granularity_ns=6000000,sched_wakeup_granularity_ns=1000000";

/// The paper's ULE.
const ULE: &str = "ule:profile=paper-port";

const fn figure(
    id: &'static str,
    title: &'static str,
    published: &'static str,
    workload: &'static str,
    (scheduler, drawing): (&'static str, Drawing),
) -> PublishedFigure {
    PublishedFigure { id, title, published, workload, scheduler, drawing }
}

/// The paper's figures over time. Figure 5 is a bar chart of rows, figure 8 the source of c-ray's barrier, figure 9 bars again.
pub(super) static FIGURES: [PublishedFigure; 9] = [
    figure(
        "figure-1a",
        "fibo and sysbench on one core under CFS",
        "Cumulative run time over 0 to 250 s. fibo rises with slope 1 for 7 s, then with about half of it until sysbench ends at 235 s.",
        one_core::FIBO_AND_SYSBENCH,
        (CFS, Drawing::RunTimeOfApplications),
    ),
    figure(
        "figure-1b",
        "fibo and sysbench on one core under ULE",
        "Cumulative run time. fibo rises for 7 s and then stands still until sysbench ends at 143 s.",
        one_core::FIBO_AND_SYSBENCH,
        (ULE, Drawing::RunTimeOfApplications),
    ),
    figure(
        "figure-2",
        "Interactivity penalty of fibo and of sysbench's threads",
        "Penalty from 0 to 100 over the same time. All begin at 0; fibo climbs to the maximum, sysbench's threads fall to 0.",
        one_core::FIBO_AND_SYSBENCH,
        (ULE, Drawing::Score("penalty")),
    ),
    figure(
        "figure-3",
        "sysbench with 128 threads on one core under ULE",
        "Cumulative run time. 80 threads rise side by side, 48 stay at 0.",
        one_core::MANY_THREADS,
        (ULE, Drawing::RunTimeOfTasks),
    ),
    figure(
        "figure-4",
        "Interactivity penalty of the 128 threads",
        "Penalty over time. The threads begin near the threshold; those that run fall to 0, the others stay above it.",
        one_core::MANY_THREADS,
        (ULE, Drawing::Score("penalty")),
    ),
    figure(
        "figure-6a",
        "512 spinners set free at 14.5 s under ULE",
        "Threads on each of 32 cores, in colour, over 0 to 300 s. One core stays dark for some 240 s, then all have 16.",
        many_cores::RELEASED,
        (ULE, Drawing::TasksPerCpu),
    ),
    figure(
        "figure-6b",
        "512 spinners set free under CFS",
        "Threads on each of 32 cores, over the seconds around the release. Even at once, and never quite: 15 to 18.",
        many_cores::RELEASED_EARLY,
        (CFS, Drawing::TasksPerCpu),
    ),
    figure(
        "figure-7a",
        "c-ray under ULE",
        "Runnable threads on each of 32 cores. More than 11 s pass until all threads can run; the cores are even at all times.",
        many_cores::CASCADE,
        (ULE, Drawing::TasksPerCpu),
    ),
    figure(
        "figure-7b",
        "c-ray under CFS",
        "Runnable threads on each of 32 cores. All can run after 2 s; the cores are slightly uneven.",
        many_cores::CASCADE,
        (CFS, Drawing::TasksPerCpu),
    ),
];

/// What stands for a row.
pub(super) fn cover(_: &PublishedFile, row: &PublishedRow) -> Coverage {
    let workload = row.workload.list().join("+");
    let checks = match (workload.as_str(), row.metric.as_deref()) {
        ("fibo+sysbench", Some("fibo runtime")) => one_core::fibo_to_the_end(row),
        ("fibo+sysbench", metric) => one_core::fibo_and_sysbench(metric, row),
        ("sysbench-128", _) => one_core::two_groups(),
        ("scimark, one core", _) => one_core::scimark(),
        ("apache + ab, one core", _) => one_core::apache(),
        ("all, one core", _) => one_core::mean(),
        ("unpin-512", _) if row.ule.is_some() => many_cores::unpin_under_ule(),
        ("unpin-512", _) => many_cores::unpin_under_cfs(row.cfs.unwrap_or_default()),
        ("c-ray", _) => many_cores::cascade(),
        ("nas-mg", _) => many_cores::barriers(),
        ("all, 32 cores", _) => many_cores::mean(),
        ("sysbench, 32 cores", _) => many_cores::scans(),
        ("hackbench, 32000 threads", _) => many_cores::hackbench(),
        ("blackscholes + ferret", _) => many_cores::batch_beside_interactive(),
        ("fibo + sysbench, 32 cores", _) => many_cores::lock_beside_hogs(),
        ("c-ray + EP", _) => many_cores::batch_beside_batch(),
        _ => return Coverage::missing("a model of this row"),
    };
    Coverage::Checks(checks)
}

/// A run on the paper's machine.
fn on_machine(workload: &str, scheduler: &str) -> Run {
    Run::new(MACHINE, workload, scheduler)
}

/// Runs of a workload under CFS and ULE, in this order.
fn both(machine: &str, workload: &str) -> [Run; 2] {
    [Run::new(machine, workload, CFS), Run::new(machine, workload, ULE)]
}

/// A check of figures from several runs.
fn of_runs(title: &str, runs: Vec<Run>, (figure, unit): (Figure, &'static str), stated: Stated, band: Band) -> Check {
    Check { title: title.to_owned(), runs, figure, unit, stated, band, fitted: None }
}

/// Seconds from the creation of an application's first task to its end.
fn elapsed_s(trial: &Trial, application: usize) -> Option<f64> {
    let row = trial.applications.get(application)?;
    row.finished.then_some(row.elapsed_ns as f64 / 1e9)
}

/// Speed of ULE over that of CFS, less one, in per cent, of a run under each: by the time of the first application where it ends, by
/// the time of the run where a task ends that, and by the work done where time does.
fn gain(pair: &[&Trial]) -> Option<f64> {
    let (cfs, ule) = (pair.first()?, pair.get(1)?);
    let speeds = match (elapsed_s(cfs, 0), elapsed_s(ule, 0)) {
        (Some(cfs_s), Some(ule_s)) => cfs_s / ule_s,
        _ if cfs.elapsed_ns != ule.elapsed_ns => cfs.elapsed_ns as f64 / ule.elapsed_ns as f64,
        _ => ule.measure("work_ns")? / cfs.measure("work_ns")?,
    };
    Some((speeds - 1.0) * 100.0)
}

/// The mean of that over pairs of runs.
fn mean_gain(trials: &[&Trial]) -> Option<f64> {
    let gains = trials.chunks_exact(2).map(gain).collect::<Option<Vec<f64>>>()?;
    Some(gains.iter().sum::<f64>() / gains.len() as f64)
}

/// The part of all CPU time that goes to wakeups and balancing.
fn scheduling_share(trial: &Trial, cpus: f64) -> Option<f64> {
    let overhead_ns = trial.measure("overhead_wakeup_ns")? + trial.measure("overhead_balance_ns")?;
    Some(overhead_ns / (trial.window_ns() as f64 * cpus))
}
