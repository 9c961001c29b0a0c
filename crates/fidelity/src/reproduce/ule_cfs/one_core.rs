//! Rows about one core: the paper's chapter on scheduling within a core.

use super::programs::{self, Cores};
use super::{CFS, MACHINE, ULE, both, gain, of_runs, on_machine};
use crate::reproduce::check::{Band, Check, Figure, Stated};
use crate::reproduce::published::PublishedRow;
use warmcore_lab::trial::Trial;

/// fibo alone for 7 s, then sysbench and its server beside it.
pub(super) const FIBO_AND_SYSBENCH: &str = "ule-cfs/fibo-sysbench";
/// fibo among its applications.
const FIBO: usize = 0;
/// When sysbench begins.
const BEGINS_S: f64 = 7.0;
/// Transactions it does.
const TRANSACTIONS: f64 = 72_320.0;

/// The rows about fibo and sysbench.
pub(super) fn fibo_and_sysbench(metric: Option<&str>, row: &PublishedRow) -> Vec<Check> {
    let check = |title: &str, scheduler: &str, figure, stated: Option<f64>, part, reason| {
        let stated = stated.unwrap_or_default();
        let run = on_machine(FIBO_AND_SYSBENCH, scheduler);
        Check::value(title, run, figure, Stated::Value(stated), Band::around(stated, part, reason))
    };
    let (cfs, ule) = (row.cfs, row.ule);
    match metric {
        Some("sysbench transactions per second") => {
            let figure = (Figure::Other("transactions over sysbench's time", |trials| rate(trials.first()?)), "1/s");
            let band = "15 %: the published rate and time under CFS differ by as much";
            let ratio = Figure::Other("transactions per second under ULE over those under CFS", |trials| {
                Some(rate(trials.get(1)?)? / rate(trials.first()?)?)
            });
            let fitted = "a transaction's work is one 532nd of a second";
            vec![
                check("transactions per second under CFS", CFS, figure, cfs, 0.15, band),
                check("transactions per second under ULE", ULE, figure, ule, 0.15, band).fitted_to_it(fitted),
                of_runs(
                    "transactions per second, ULE over CFS",
                    both(MACHINE, FIBO_AND_SYSBENCH).into(),
                    (ratio, ""),
                    Stated::Value(1.83),
                    Band::within(1.73, 1.93, "docs/spec/ule.md section 15.1, E1"),
                ),
            ]
        }
        Some("sysbench average latency") => {
            let figure = (Figure::Value("recorder_transaction_mean_ns", 1e-6), "ms");
            let band = "a quarter: 80 closed-loop threads cannot have 441 ms at 290 a second (docs/spec/ule.md section 15.1, E1)";
            vec![
                check("mean latency of a transaction under CFS", CFS, figure, cfs, 0.25, band),
                check("mean latency of a transaction under ULE", ULE, figure, ule, 0.25, band),
            ]
        }
        Some("sysbench completion") => {
            let figure = (Figure::Other("end of the run", |trials| Some(end_s(trials.first()?))), "s");
            let band = "15 %: the published rate and time under CFS differ by as much";
            vec![
                check("end of sysbench under CFS", CFS, figure, cfs, 0.15, band),
                check("end of sysbench under ULE", ULE, figure, ule, 0.15, band),
            ]
        }
        _ => {
            let share = |title: &str, scheduler: &str, stated, band| {
                let definition = "CPU time of fibo from sysbench's first to its last second over that time";
                let figure = Figure::Other(definition, |trials| fibo_share(trials.first()?));
                let run = on_machine(FIBO_AND_SYSBENCH, scheduler);
                Check::value(title, run, (figure, ""), Stated::Value(stated), band)
            };
            let half = Band::within(0.45, 0.5, "docs/spec/ule.md section 15.1, E1: 45 to 50 % with groups");
            let nothing = Band::at_most(0.003, "nothing after the first 0.35 s of 140 s");
            vec![
                share("fibo's part of the core while sysbench runs, CFS", CFS, 0.5, half),
                share("fibo's part of the core while sysbench runs, ULE", ULE, 0.0, nothing),
            ]
        }
    }
}

/// fibo's CPU time when all of its work is done. Under ULE it is hardly ever switched out, so its work is that.
pub(super) fn fibo_to_the_end(row: &PublishedRow) -> Vec<Check> {
    let check = |title: &str, scheduler: &str, stated: Option<f64>| {
        let stated = stated.unwrap_or_default();
        let figure = Figure::Other("CPU time of fibo, from its start to its end", |trials| {
            let fibo = trials.first()?.applications.get(FIBO)?;
            fibo.finished.then_some(fibo.cpu_time_ns as f64 / 1e9)
        });
        let band = Band::within(stated - 1.0, stated + 1.0, "a second: the paper gives whole ones");
        Check::value(
            title,
            on_machine("ule-cfs/fibo-to-the-end", scheduler),
            (figure, "s"),
            Stated::Value(stated),
            band,
        )
    };
    vec![
        check("fibo's CPU time under CFS", CFS, row.cfs),
        check("fibo's CPU time under ULE", ULE, row.ule).fitted_to_it("fibo's work"),
    ]
}

/// Seconds until the run ended, which sysbench's last transaction does.
fn end_s(trial: &Trial) -> f64 {
    trial.elapsed_ns as f64 / 1e9
}

fn rate(trial: &Trial) -> Option<f64> {
    Some(TRANSACTIONS / (end_s(trial) - BEGINS_S))
}

/// fibo has the core to itself before sysbench begins.
fn fibo_share(trial: &Trial) -> Option<f64> {
    let cpu_s = trial.applications.get(FIBO)?.cpu_time_ns as f64 / 1e9;
    Some((cpu_s - BEGINS_S).max(0.0) / (end_s(trial) - BEGINS_S))
}

/// A thread that has had less than this has not begun to work.
const BEGAN_S: f64 = 0.05;

/// sysbench alone.
pub(super) const MANY_THREADS: &str = "ule-cfs/sysbench-128";

/// 128 threads of a busy master: those made first run, the others wait for ever.
pub(super) fn two_groups() -> Vec<Check> {
    let workers: Figure = Figure::Other("threads with more than 50 ms of CPU time", |trials| {
        let trial = trials.first()?;
        Some(trial.tasks.iter().filter(|task| task.name != "master" && task.cpu_time_ns as f64 / 1e9 > BEGAN_S).count()
            as f64)
    });
    let in_order = Figure::Other("threads that work after the first, in order of making, that does not", |trials| {
        let threads = trials.first()?.tasks.iter().filter(|task| task.name != "master");
        let works = threads.map(|task| task.cpu_time_ns as f64 / 1e9 > BEGAN_S);
        Some(works.skip_while(|works| *works).filter(|works| *works).count() as f64)
    });
    let latency = Figure::Other("mean latency of a transaction under ULE over that under CFS", |trials| {
        let mean = |trial: &Trial| trial.measure("recorder_transaction_mean_ns");
        Some(mean(trials.get(1)?)? / mean(trials.first()?)?)
    });
    vec![
        Check::value(
            "threads that work under ULE",
            on_machine(MANY_THREADS, ULE),
            (workers, "threads"),
            Stated::Value(80.0),
            Band::within(75.0, 85.0, "docs/spec/ule.md section 15.1, E2: 75 to 85 at 250 Hz"),
        ),
        Check::value(
            "threads that work though one made before them does not, ULE",
            on_machine(MANY_THREADS, ULE),
            (in_order, "threads"),
            Stated::Value(0.0),
            Band::at_most(0.0, "two groups by order of making"),
        ),
        Check::value(
            "threads that work under CFS",
            on_machine(MANY_THREADS, CFS),
            (workers, "threads"),
            Stated::Value(128.0),
            Band::at_least(128.0, "all of them"),
        ),
        of_runs(
            "mean latency, ULE over CFS",
            both(MACHINE, MANY_THREADS).into(),
            (latency, ""),
            Stated::Words,
            Band::at_most(0.95, "docs/spec/ule.md section 15, E2: better than CFS"),
        ),
    ]
}

/// A computing Java thread beside the threads of its virtual machine.
pub(super) fn scimark() -> Vec<Check> {
    vec![of_runs(
        "speed under ULE against CFS",
        both(MACHINE, "ule-cfs/scimark").into(),
        (GAIN, "%"),
        Stated::Value(-36.0),
        Band::within(-40.0, -30.0, "docs/spec/ule.md section 15.1, E3a"),
    )]
}

/// Speed of the only pair of runs.
const GAIN: Figure = Figure::Other("time under CFS over that under ULE, less one", gain);

/// ab and Apache.
pub(super) fn apache() -> Vec<Check> {
    const WORKLOAD: &str = "ule-cfs/apache-ab";
    /// Requests of the workload.
    const REQUESTS: f64 = 200_000.0;
    let preemptions = || {
        Figure::Other("involuntary switches for each request", |trials| {
            Some(trials.first()?.measure("involuntary_switches")? / REQUESTS)
        })
    };
    vec![
        of_runs(
            "speed under ULE against CFS",
            both(MACHINE, WORKLOAD).into(),
            (GAIN, "%"),
            Stated::Value(40.0),
            Band::within(30.0, 50.0, "a quarter"),
        ),
        Check::value(
            "preemptions for each request, CFS",
            on_machine(WORKLOAD, CFS),
            (preemptions(), ""),
            Stated::Words,
            Band::within(0.9, 1.1, "docs/spec/ule.md section 15.1, E3b: about one a request"),
        ),
        Check::value(
            "preemptions for each request, ULE",
            on_machine(WORKLOAD, ULE),
            (preemptions(), ""),
            Stated::Value(0.0),
            Band::at_most(0.1, "ends of slices only; the paper says never"),
        ),
    ]
}

/// The mean over the programs. Those with one thread have the core to themselves under either scheduler; one stands for them all.
pub(super) fn mean() -> Vec<Check> {
    let (runs, _) = programs::runs(Cores::One);
    let figure = Figure::Other(
        "mean over 35 programs of the speed under ULE over that under CFS, less one; 25 of them are one thread, simulated once",
        |trials| {
            let (_, single) = programs::runs(Cores::One);
            let gains = trials.chunks_exact(2).map(gain).collect::<Option<Vec<f64>>>()?;
            let (alone, others) = gains.split_first()?;
            let programs = (single + others.len()) as f64;
            Some((alone * single as f64 + others.iter().sum::<f64>()) / programs)
        },
    );
    vec![of_runs(
        "mean speed under ULE against CFS",
        runs,
        (figure, "%"),
        Stated::Value(1.5),
        Band::within(-1.0, 4.0, "2.5 points: what a change of thread costs and how long programs compute are assumed"),
    )]
}
