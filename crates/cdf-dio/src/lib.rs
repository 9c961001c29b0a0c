//! "NUMA-Aware Task Scheduling Strategy Aiming to Reduce Cache Conflicts" (Nolasco, Penna, Freitas; SSCAD 2025), as
//! `docs/spec/cdf-dio.md` reads it: 80 tasks of 3000 accesses on 12 virtual CPUs, in virtual time.
//!
//! The paper's figures come from a program whose dispatcher waits for virtual CPUs that are busy. Each row is computed with that
//! dispatcher, and once more with one that hands tasks out at once: what is left there is the strategy's own.

pub mod machine;
pub mod search;
pub mod workload;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use warmcore_schedulers::contention::{Cdf, ContentionError, Strategy, Variant};

use self::machine::{Addresses, Dispatch, Geometry, LAST_COMMIT, Outcome, PAPER, Setup, variation};
use self::workload::{Accesses, Colours, Law};

/// Tasks of a workload.
pub const TASKS: usize = 80;
/// Accesses of each.
const ACCESSES: usize = 3000;
/// Pages of each, as ranks of Zipf's law.
const RANKS: u32 = 100_000;
/// Tolerances that the paper studies, in tenths.
const TENTHS: std::ops::RangeInclusive<u32> = 1..=9;

fn cdf(tenths: u32) -> Strategy {
    Strategy::Cdf(Cdf::new(Variant::Coded, f64::from(tenths) / 10.0))
}

const DIO: Strategy = Strategy::Dio { variant: Variant::Coded };

/// The paper's strategies on the same workload.
struct Runs {
    round_robin: Outcome,
    dio: Outcome,
    /// By tolerance, in tenths from 1 on.
    cdf: Vec<Outcome>,
}

impl Runs {
    fn new(dispatch: Dispatch, seed: u64, traced: Option<&Accesses>) -> Result<Self, ContentionError> {
        let setup = Setup::paper(PAPER, Addresses::PageAligned, dispatch);
        let accesses = match traced {
            Some(traced) => Cow::Borrowed(traced),
            None => Cow::Owned(Accesses::new(TASKS, ACCESSES, RANKS, seed)),
        };
        let run = |strategy: &Strategy| machine::run(&setup, &accesses, strategy, seed);
        Ok(Self {
            round_robin: run(&Strategy::RoundRobin)?,
            dio: run(&DIO)?,
            cdf: TENTHS.map(|tenths| run(&cdf(tenths))).collect::<Result<_, _>>()?,
        })
    }

    fn cdf(&self, tenths: usize) -> &Outcome {
        &self.cdf[tenths - 1]
    }

    /// The smallest figure of a CDF.
    fn best(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.cdf.iter().map(of).fold(f64::INFINITY, f64::min)
    }
}

const fn l2(outcome: &Outcome) -> f64 {
    outcome.hit_rates[1]
}

fn p99(outcome: &Outcome) -> f64 {
    outcome.wait_ns(99.0)
}

/// How a figure of the paper follows.
type FigureOf = fn(&Runs) -> f64;

/// The paper's figures, by name, and how each follows.
const FIGURES: [(&str, FigureOf); 11] = [
    ("l2_hit_rate_dio_over_rr", |runs| l2(&runs.dio) / l2(&runs.round_robin)),
    ("l2_hit_rate_cdf_7_over_rr", |runs| l2(runs.cdf(7)) / l2(&runs.round_robin)),
    ("l2_hit_rate_cdf_7_over_dio", |runs| l2(runs.cdf(7)) / l2(&runs.dio)),
    ("l2_hit_rate_cdf_3_over_dio", |runs| l2(runs.cdf(3)) / l2(&runs.dio)),
    ("l2_hit_rate_worst_cdf_over_dio", |runs| runs.cdf.iter().map(l2).fold(f64::INFINITY, f64::min) / l2(&runs.dio)),
    ("l3_hit_rate_cdf_7_over_rr", |runs| runs.cdf(7).hit_rates[2] / runs.round_robin.hit_rates[2]),
    ("load_variation_best_cdf_over_dio", |runs| runs.best(Outcome::load_variation) / runs.dio.load_variation()),
    ("load_variation_best_cdf_over_rr", |runs| runs.best(Outcome::load_variation) / runs.round_robin.load_variation()),
    ("p99_of_waits_cdf_3_over_dio", |runs| p99(runs.cdf(3)) / p99(&runs.dio)),
    ("p99_of_waits_best_cdf_over_rr", |runs| runs.best(p99) / p99(&runs.round_robin)),
    // The farther of DIO and CDF 0.7 from RR.
    ("l1_hit_rate_over_rr", |runs| {
        let [dio, cdf] = [&runs.dio, runs.cdf(7)].map(|run| run.hit_rates[0] / runs.round_robin.hit_rates[0]);
        if (dio - 1.0).abs() > (cdf - 1.0).abs() { dio } else { cdf }
    }),
];

/// Every figure of each seed, by its name and the dispatcher's: `l2_hit_rate_dio_over_rr_blocking` is the published program's, which waits for
/// busy CPUs, `…_queue` one that hands tasks out at once. With `traced` every seed has those tasks, and decides equal placements only.
///
/// # Errors
/// Traced tasks with more pages than the paper's memory; none of other parameters, which are the paper's.
pub fn figures(seeds: &[u64], traced: Option<&Accesses>) -> Result<BTreeMap<String, Vec<f64>>, ContentionError> {
    let mut found = BTreeMap::new();
    for dispatch in [Dispatch::Blocking, Dispatch::Queue] {
        let runs = seeds.iter().map(|seed| Runs::new(dispatch, *seed, traced)).collect::<Result<Vec<_>, _>>()?;
        for (name, compute) in FIGURES {
            found.insert(format!("{name}_{}", dispatch.name()), runs.iter().map(compute).collect());
        }
    }
    Ok(found)
}

/// Exponents of Zipf's law for which there are figures too, in tenths: 0 is a uniform choice, 10 the paper's.
pub const SKEWS: [u32; 6] = [0, 5, 8, 10, 12, 15];

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

/// The paper's experiment with an exponent in tenths, with both dispatchers.
///
/// # Errors
/// None but of parameters, which are the paper's.
pub fn skews(tenths: u32, seeds: &[u64]) -> Result<[SkewRow; 2], ContentionError> {
    let law = if tenths == 10 { Law::Zipf(RANKS) } else { Law::Skewed { pages: RANKS, tenths } };
    let row = |dispatch: Dispatch| {
        let setup = Setup::paper(PAPER, Addresses::PageAligned, dispatch);
        let mut l2_hit_rates = [0.0; 3];
        for seed in seeds {
            let accesses = Accesses::coloured(TASKS, ACCESSES, law, Colours::Any, *seed);
            for (sum, strategy) in l2_hit_rates.iter_mut().zip([Strategy::RoundRobin, DIO, cdf(7)]) {
                *sum += l2(&machine::run(&setup, &accesses, &strategy, *seed)?) / seeds.len() as f64;
            }
        }
        Ok(SkewRow { exponent: f64::from(tenths) / 10.0, dispatch: dispatch.name(), l2_hit_rates })
    };
    Ok([row(Dispatch::Blocking)?, row(Dispatch::Queue)?])
}

/// One line of the paper's table: a strategy in one of the ways to read the experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TableRow {
    /// Caches: `paper` or `last commit`.
    pub geometry: &'static str,
    /// `page-aligned` or `line-spread`.
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

/// One reading's part of the table: every strategy on the same workloads.
///
/// # Errors
/// None but of parameters, which are the paper's.
pub fn table(reading: (Geometry, Addresses, Dispatch), seeds: &[u64]) -> Result<Vec<TableRow>, ContentionError> {
    let mut strategies = vec![Strategy::RoundRobin, Strategy::FewestTasks, Strategy::Random, DIO];
    strategies.push(Strategy::Dio { variant: Variant::Published });
    strategies.extend(TENTHS.map(cdf));
    strategies.extend([1, 3, 7].map(|tenths| Strategy::Cdf(Cdf::new(Variant::Published, f64::from(tenths) / 10.0))));
    let workloads: Vec<Accesses> = seeds.iter().map(|seed| Accesses::new(TASKS, ACCESSES, RANKS, *seed)).collect();
    strategies.iter().map(|strategy| table_row(reading, strategy, &workloads, seeds)).collect()
}

fn table_row(
    (geometry, addresses, dispatch): (Geometry, Addresses, Dispatch),
    strategy: &Strategy,
    workloads: &[Accesses],
    seeds: &[u64],
) -> Result<TableRow, ContentionError> {
    let setup = Setup::paper(geometry, addresses, dispatch);
    let outcomes = workloads.iter().zip(seeds).map(|(accesses, seed)| machine::run(&setup, accesses, strategy, *seed));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); VALUES.len()];
    for outcome in &outcomes {
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
    Ok(TableRow {
        geometry: geometry.name,
        addresses: match addresses {
            Addresses::PageAligned => "page-aligned",
            Addresses::LineSpread => "line-spread",
        },
        dispatch: dispatch.name(),
        strategy: strategy.name(),
        decisions: mean(&outcomes.iter().map(|outcome| outcome.decisions[0] as f64).collect::<Vec<_>>()),
        values,
    })
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
