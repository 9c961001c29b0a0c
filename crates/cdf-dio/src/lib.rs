//! "NUMA-Aware Task Scheduling Strategy Aiming to Reduce Cache Conflicts" (Nolasco, Penna, Freitas; SSCAD 2025), as
//! `docs/spec/cdf-dio.md` reads it: 80 tasks of 3000 accesses on 12 virtual CPUs, in virtual time.
//!
//! The paper's figures come from a program whose dispatcher waits for virtual CPUs that are busy. Each row is computed with that
//! dispatcher, and once more with one that hands tasks out at once: what is left there is the strategy's own. Other tasks, machines and
//! tolerances are an [`experiment`] too.

pub mod experiment;
pub mod machine;
pub mod search;
pub mod workload;

use serde::Serialize;
use warmcore_schedulers::contention::{Cdf, ContentionError, Strategy, Variant};

use self::experiment::Experiment;
use self::machine::{Addresses, Dispatch, Geometry, LAST_COMMIT, Outcome, PAPER, variation};
use self::workload::Accesses;

/// Tasks of a workload.
const TASKS: usize = 80;
const ACCESSES: usize = 3000;
/// Pages of each, as ranks of Zipf's law.
const RANKS: u32 = 100_000;

fn cdf(tolerance: f64) -> Strategy {
    Strategy::Cdf(Cdf::new(Variant::Coded, tolerance))
}

const DIO: Strategy = Strategy::Dio { variant: Variant::Coded };

const fn l2(outcome: &Outcome) -> f64 {
    outcome.hit_rates[1]
}

fn p99(outcome: &Outcome) -> f64 {
    outcome.wait_ns(99.0)
}

/// Exponents of Zipf's law for which there are figures too: 0 is a uniform choice, 1 the paper's.
pub const SKEWS: [f64; 6] = [0.0, 0.5, 0.8, 1.0, 1.2, 1.5];

/// What another skew of the addresses makes of the paper's experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct SkewRow {
    /// Exponent of Zipf's law.
    pub exponent: f64,
    /// `queue` or `blocking`.
    pub dispatch: &'static str,
    /// Mean L2 hit rates of round robin, DIO, and CDF with a tolerance of 0.7.
    pub l2_hit_rates: [f64; 3],
}

/// The paper's experiment with another exponent, with both dispatchers.
///
/// # Errors
/// None but of parameters, which are the paper's.
pub fn skews(exponent: f64, seeds: &[u64]) -> Result<[SkewRow; 2], ContentionError> {
    let experiment = Experiment { skew: exponent, ..Experiment::default() };
    let row = |dispatch: Dispatch| {
        let setup = experiment.setup(PAPER, Addresses::PageAligned, dispatch);
        let mut l2_hit_rates = [0.0; 3];
        for seed in seeds {
            let accesses = experiment.accesses(None, *seed);
            for (sum, strategy) in l2_hit_rates.iter_mut().zip([Strategy::RoundRobin, DIO, cdf(0.7)]) {
                *sum += l2(&machine::run(&setup, &accesses, &strategy, *seed)?) / seeds.len() as f64;
            }
        }
        Ok(SkewRow { exponent, dispatch: dispatch.name(), l2_hit_rates })
    };
    Ok([row(Dispatch::Blocking)?, row(Dispatch::Queue)?])
}

/// One line of the paper's table: a strategy in one of the ways to read the experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TableRow {
    /// Caches: `paper` or `last commit`.
    pub geometry: &'static str,
    /// `page-aligned`, `line-spread` or `recorded`.
    pub addresses: &'static str,
    /// `queue` or `blocking`.
    pub dispatch: &'static str,
    /// The strategy.
    pub strategy: String,
    /// Decisions of a run, mean over the seeds.
    pub decisions: f64,
    /// Means over the seeds, each with half the width of its 95 % interval.
    pub values: Vec<(&'static str, f64, f64)>,
}

/// What a row of the table has.
const VALUES: [&str; 11] = [
    "L1 hit rate",
    "L2 hit rate",
    "L3 hit rate",
    "memory share",
    "access ns",
    "load variation",
    "wait p50 ms",
    "wait p99 ms",
    "makespan ms",
    "utilisation",
    "looked at per decision",
];

/// Ways to read the experiment: caches, addresses, dispatcher.
pub const READINGS: [(Geometry, Addresses, Dispatch); 8] = [
    (PAPER, Addresses::PageAligned, Dispatch::Blocking),
    (PAPER, Addresses::PageAligned, Dispatch::Queue),
    (PAPER, Addresses::LineSpread, Dispatch::Blocking),
    (PAPER, Addresses::LineSpread, Dispatch::Queue),
    (LAST_COMMIT, Addresses::PageAligned, Dispatch::Blocking),
    (LAST_COMMIT, Addresses::PageAligned, Dispatch::Queue),
    (LAST_COMMIT, Addresses::LineSpread, Dispatch::Blocking),
    (LAST_COMMIT, Addresses::LineSpread, Dispatch::Queue),
];

/// The strategies of the paper's table: those as published with three tolerances.
#[must_use]
pub fn strategies() -> Vec<Strategy> {
    let mut all = vec![Strategy::RoundRobin, Strategy::FewestTasks, Strategy::Random, DIO];
    all.push(Strategy::Dio { variant: Variant::Published });
    all.extend(Experiment::default().tolerances.into_iter().map(cdf));
    all.extend([0.1, 0.3, 0.7].map(|tolerance| Strategy::Cdf(Cdf::new(Variant::Published, tolerance))));
    all
}

/// One reading's part of the table: every strategy on the same workloads, one for each seed, or the recorded one.
///
/// # Errors
/// Tasks with more pages than the paper's memory; groups larger than all CPUs.
pub fn table(
    experiment: &Experiment,
    strategies: &[Strategy],
    reading: (Geometry, Addresses, Dispatch),
    seeds: &[u64],
    traced: Option<&Accesses>,
) -> Result<Vec<TableRow>, ContentionError> {
    let workloads: Vec<_> = seeds.iter().map(|seed| experiment.accesses(traced, *seed)).collect();
    let (geometry, addresses, dispatch) = reading;
    let setup = experiment.setup(geometry, addresses, dispatch);
    let addresses = match addresses {
        _ if traced.is_some() => "recorded",
        Addresses::PageAligned => "page-aligned",
        Addresses::LineSpread => "line-spread",
    };
    let row = |strategy: &Strategy| {
        let outcomes =
            workloads.iter().zip(seeds).map(|(accesses, seed)| machine::run(&setup, accesses, strategy, *seed));
        let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
        let decisions = mean(&outcomes.iter().map(|outcome| outcome.decisions[0] as f64).collect::<Vec<_>>());
        let (geometry, dispatch, strategy) = (geometry.name, dispatch.name(), strategy.name());
        Ok(TableRow { geometry, addresses, dispatch, strategy, decisions, values: values(&outcomes) })
    };
    strategies.iter().map(row).collect()
}

/// Means of what a row has, each with half the width of its 95 % interval.
fn values(outcomes: &[Outcome]) -> Vec<(&'static str, f64, f64)> {
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); VALUES.len()];
    for outcome in outcomes {
        let [decisions, looked_at] = outcome.decisions;
        let values = [
            outcome.hit_rates[0],
            outcome.hit_rates[1],
            outcome.hit_rates[2],
            outcome.memory_share,
            outcome.access_ns,
            outcome.load_variation(),
            outcome.wait_ns(50.0) / 1e6,
            outcome.wait_ns(99.0) / 1e6,
            outcome.makespan_ns as f64 / 1e6,
            outcome.utilisation,
            looked_at as f64 / decisions.max(1) as f64,
        ];
        columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
    }
    let mut values: Vec<(&'static str, f64, f64)> =
        VALUES.iter().zip(&columns).map(|(name, column)| (*name, mean(column), half_width(column))).collect();
    // The paper averages group loads over its runs first, which hides an imbalance that hits another group each time.
    let groups = outcomes.first().map_or(0, |outcome| outcome.group_accesses.len());
    let of_means: Vec<f64> = (0..groups)
        .map(|group| mean(&outcomes.iter().map(|outcome| outcome.group_accesses[group] as f64).collect::<Vec<_>>()))
        .collect();
    values.push(("load variation of means", variation(&of_means), 0.0));
    values
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Half the width of the mean's 95 % interval, by the normal distribution; nothing for a single value.
fn half_width(values: &[f64]) -> f64 {
    let (count, mean) = (values.len() as f64, mean(values));
    if values.len() < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    1.96 * (squares / (count - 1.0)).sqrt() / count.sqrt()
}

#[cfg(test)]
mod tests;
