//! Metrics that two places are compared by: each a few labelled numbers of one run.

use std::fmt;

use serde::{Deserialize, Serialize};
use warmcore_places::place::OperationUse;
use warmcore_trace::MigrationKind;

use super::profile::{Distance, RunProfile, STEP_NS, TemplateSums};

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of all CPU time that went to each template's tasks.
    CpuShare,
    /// Mean length of finished slices, by template.
    SliceMeanNs,
    /// Finished slices per second, by template: context switches.
    SlicesPerS,
    /// Median wakeup latency, by template.
    WakeupP50Ns,
    /// Mean wakeup latency, by template.
    WakeupMeanNs,
    /// The distribution of wakeup latencies, by template: quantiles 0.1, 0.5, 0.9, and 0.99 of at least a hundred.
    WakeupQuantilesNs,
    /// The distribution of slices, likewise.
    SliceQuantilesNs,
    /// Time runnable and not running (the kernel's run delay) as a share of the window, mean over a template's tasks.
    RunDelayShare,
    /// Share of wakeups that placed the task on another CPU, by template.
    WakeupMovedShare,
    /// Share of wakeups that placed the task in another LLC, by template.
    WakeupCrossLlcShare,
    /// Migrations per second.
    MigrationsPerS,
    /// Migrations per task of the workload, by what they were for.
    MigrationsByKind,
    /// Migrations per task of the workload, by how far they went.
    MigrationsByDistance,
    /// Share of run time in each LLC, the most used one first, in each fifth of the window.
    LlcResidency,
    /// Runnable tasks of each LLC at instants 5 ms apart, their mean in each fifth of the window, fullest first, as a share of all tasks. Of
    /// tasks with a period of so many ms it is their phase.
    LlcCountsOverTime,
    /// Runnable tasks of the fullest and of the emptiest CPU at the same instants, their mean in each fifth of the window.
    CpuCountsOverTime,
    /// Runnable tasks of each LLC at the check's instants, fullest first, as a share of all tasks: which LLC is which may
    /// differ between two correct runs.
    LlcCounts,
    /// Runnable tasks of the fullest and the emptiest CPU at the check's instants.
    CpuCounts,
    /// First time after the window's beginning at which the fullest CPU has at most `within` runnable tasks more than the
    /// emptiest, ms.
    BalancedMs,
    /// Whether one LLC held nearly all runnable tasks in the last third of the run: 1, else 0.
    Gathered,
    /// Whether all runnable tasks were in one LLC, the same or another, at each of the check's instants: 1, else 0. Where none is
    /// runnable they are.
    InOneLlc,
    /// Whether the LLC with most runnable tasks at the last of the check's instants is another than at the first: 1, else 0. Of
    /// several with equally many, one that had most at the first counts as the same.
    HomeChanged,
    /// Calls per second of each operation of a sched_ext scheduler, over the whole run: those that tasks and CPUs cause again and again.
    OperationsPerS,
    /// What calls of each operation of a sched_ext scheduler call, in order: whether the other place knows the same sequences.
    CallSequences,
    /// The same: whether they are as frequent.
    CallFrequencies,
}

/// Operations whose calls are compared. The others are of loading, unloading and the lives of tasks, of which a real kernel has its own.
const OPERATIONS: [&str; 9] =
    ["select_cpu", "enqueue", "dispatch", "runnable", "running", "stopping", "quiescent", "tick", "update_idle"];

/// Fewer calls than these are no rate.
const FEWEST_CALLS: u64 = 20;

/// [`Metric::OperationsPerS`] of what was counted in a run.
pub(crate) fn operations_per_s(counts: &[OperationUse], elapsed_ns: u64) -> Measured {
    let count = |name: &str| counts.iter().find(|known| known.name == name).map(|known| known.calls);
    let counted: Vec<(&str, u64)> = OPERATIONS
        .iter()
        .filter_map(|name| Some((*name, count(name)?)))
        .filter(|(_, count)| *count >= FEWEST_CALLS)
        .collect();
    let rate = |count: u64| Some(count as f64 * 1e9 / elapsed_ns.max(1) as f64);
    Measured {
        samples: Some(counted.iter().map(|(_, count)| *count).min().unwrap_or(0)),
        values: counted.into_iter().map(|(name, count)| (name.to_owned(), rate(count))).collect(),
        thin: Vec::new(),
    }
}

/// Runnable tasks in one LLC from which on they count as gathered: room for one task on its way.
const GATHERED_SHARE: f64 = 0.85;

/// Parts of the window in metrics over time.
const PARTS: usize = 5;

/// Quantiles of distributions, and from how many values on each is told.
const QUANTILES: [(&str, f64, usize); 4] = [("p10", 0.1, 10), ("p50", 0.5, 1), ("p90", 0.9, 10), ("p99", 0.99, 100)];

/// What a check asks beside the metric and the part of the run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Detail {
    /// Instants, ms from the run's start.
    pub at_ms: Vec<u64>,
    /// Allowed difference.
    pub within: u32,
    /// Beginning of the window.
    pub from_ns: u64,
}

/// Labelled numbers of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Label and value; none where there is no value, such as a mean of nothing.
    pub values: Vec<(String, Option<f64>)>,
    /// Number of things the least founded value rests on, of those that are not thin; 0 when it is not about a number of things.
    pub samples: Option<u64>,
    /// Templates whose own values rest on fewer things than found one, beside others that do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thin: Vec<String>,
}

/// Fewer things than this found no value.
pub(super) const FEWEST_SAMPLES: u64 = 10;

impl Measured {
    /// Takes a template's number of things. Of templates with too few all are thin, unless there is no other.
    fn found(&mut self, template: &str, own: u64) {
        match self.samples {
            // So far only thin ones, or none.
            Some(least) if least < FEWEST_SAMPLES && own >= FEWEST_SAMPLES => self.samples = Some(own),
            Some(least) if least >= FEWEST_SAMPLES && own < FEWEST_SAMPLES => {}
            least => self.samples = Some(least.map_or(own, |least| least.min(own))),
        }
        if own < FEWEST_SAMPLES {
            self.thin.push(template.to_owned());
        }
    }

    /// Whether a label is of a thin template.
    pub(super) fn is_thin(&self, label: &str) -> bool {
        let is_of = |template: &String| match label.strip_prefix(template.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with(' '),
            None => false,
        };
        self.thin.iter().any(is_of)
    }
}

/// The name in files and tables.
impl fmt::Display for Metric {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

impl Metric {
    /// Whether its values are numbers of events divided by the number of tasks.
    pub(crate) fn counts_per_task(self) -> bool {
        matches!(self, Self::MigrationsByKind | Self::MigrationsByDistance)
    }

    /// Whether it is of what programs call, which a place notes only if it is asked to.
    pub(crate) fn needs_calls(self) -> bool {
        matches!(self, Self::CallSequences | Self::CallFrequencies)
    }

    /// Whether it is of instants that a check must name.
    pub(crate) fn needs_instants(self) -> bool {
        matches!(self, Self::LlcCounts | Self::CpuCounts | Self::InOneLlc | Self::HomeChanged)
    }

    /// The metric of a run.
    pub fn of(self, profile: &RunProfile, detail: &Detail) -> Measured {
        let seconds = profile.window_ns as f64 / 1e9;
        match self {
            Self::CpuShare => {
                let total: u64 = profile.groups.iter().flat_map(|group| &group.run_ns).sum();
                by_group(profile, |group| {
                    let own: u64 = group.run_ns.iter().sum();
                    ((total > 0).then(|| own as f64 / total as f64), None)
                })
            }
            Self::SliceMeanNs => by_group(profile, |group| (mean(&group.slices_ns), Some(group.slices_ns.len()))),
            Self::SlicesPerS => {
                by_group(profile, |group| (Some(group.slices_ns.len() as f64 / seconds), Some(group.slices_ns.len())))
            }
            Self::WakeupP50Ns => by_group(profile, |group| {
                let median = group.wakeups_ns.get(group.wakeups_ns.len() / 2).map(|ns| *ns as f64);
                (median, Some(group.wakeups_ns.len()))
            }),
            Self::WakeupMeanNs => by_group(profile, |group| (mean(&group.wakeups_ns), Some(group.wakeups_ns.len()))),
            Self::WakeupQuantilesNs => quantiles(profile, |group| &group.wakeups_ns),
            Self::SliceQuantilesNs => quantiles(profile, |group| &group.slices_ns),
            Self::RunDelayShare => by_group(profile, |group| {
                let all = profile.window_ns as f64 * group.tasks as f64;
                ((all > 0.0).then(|| group.wait_ns as f64 / all), None)
            }),
            Self::WakeupMovedShare => by_group(profile, |group| share(group.wakeups_moved, group)),
            Self::WakeupCrossLlcShare => by_group(profile, |group| share(group.wakeups_cross_llc, group)),
            Self::MigrationsPerS => single("all", Some(profile.migrations as f64 / seconds)),
            Self::MigrationsByKind => per_task(
                profile,
                // The book's tasks start no programs.
                MigrationKind::ALL
                    .iter()
                    .filter(|kind| **kind != MigrationKind::Exec)
                    .map(|kind| (kind.name(), profile.migrations_by_kind[*kind as usize])),
            ),
            Self::MigrationsByDistance => per_task(
                profile,
                Distance::ALL.iter().map(|far| (far.name(), profile.migrations_by_distance[*far as usize])),
            ),
            Self::LlcResidency => llc_residency(profile),
            Self::LlcCountsOverTime => llc_counts_over_time(profile),
            Self::CpuCountsOverTime => cpu_counts_over_time(profile),
            Self::LlcCounts => llc_counts(profile, &detail.at_ms),
            Self::CpuCounts => {
                let mut values = Vec::new();
                for at in &detail.at_ms {
                    let counts = at_instant(profile, *at);
                    let of = |pick: fn(std::slice::Iter<'_, u32>) -> Option<&u32>| {
                        counts.and_then(|counts| pick(counts.iter())).map(|count| f64::from(*count))
                    };
                    values.push((format!("most at {at} ms"), of(|counts| counts.max())));
                    values.push((format!("least at {at} ms"), of(|counts| counts.min())));
                }
                Measured { values, ..Measured::default() }
            }
            Self::BalancedMs => single("all", balanced_ms(profile, detail)),
            Self::Gathered => single("all", gathered(profile)),
            Self::InOneLlc => single("all", in_one_llc(profile, &detail.at_ms)),
            Self::HomeChanged => single("all", home_changed(profile, &detail.at_ms)),
            // No events tell of it.
            Self::OperationsPerS | Self::CallSequences | Self::CallFrequencies => {
                Measured { samples: Some(0), ..Measured::default() }
            }
        }
    }
}

fn single(label: &str, value: Option<f64>) -> Measured {
    Measured { values: vec![(label.to_owned(), value)], ..Measured::default() }
}

/// One value for each template that has one of its own.
fn by_group(profile: &RunProfile, of: impl Fn(&TemplateSums) -> (Option<f64>, Option<usize>)) -> Measured {
    let mut measured = Measured::default();
    for group in &profile.groups {
        let (value, samples) = of(group);
        // A template whose tasks never did such a thing has no value, and says nothing about the others.
        if samples == Some(0) {
            continue;
        }
        measured.values.push((group.name.clone(), value));
        if let Some(own) = samples {
            measured.found(&group.name, own as u64);
        }
    }
    if measured.values.is_empty() {
        measured.samples = Some(0);
    }
    measured
}

fn share(count: u64, group: &TemplateSums) -> (Option<f64>, Option<usize>) {
    let wakeups = group.wakeups_ns.len();
    ((wakeups > 0).then(|| count as f64 / wakeups as f64), Some(wakeups))
}

fn mean(values: &[u64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<u64>() as f64 / values.len() as f64)
}

fn at_instant(profile: &RunProfile, at_ms: u64) -> Option<&Vec<u32>> {
    profile.counts.get((at_ms / (STEP_NS / 1_000_000)) as usize)
}

/// Counts of LLCs, by their numbers.
fn of_llcs(profile: &RunProfile, counts: &[u32]) -> Vec<u32> {
    let mut sums = vec![0; profile.llcs.iter().max().map_or(0, |last| last + 1)];
    counts.iter().zip(&profile.llcs).for_each(|(count, llc)| sums[*llc] += count);
    sums
}

/// Counts of LLCs, fullest first.
fn by_llc(profile: &RunProfile, counts: &[u32]) -> Vec<u32> {
    let mut sums = of_llcs(profile, counts);
    sums.sort_unstable_by(|a, b| b.cmp(a));
    sums
}

fn in_one_llc(profile: &RunProfile, at_ms: &[u64]) -> Option<f64> {
    let instants: Option<Vec<&Vec<u32>>> = at_ms.iter().map(|at| at_instant(profile, *at)).collect();
    let in_one = |counts: &&Vec<u32>| of_llcs(profile, counts).iter().filter(|count| **count > 0).count() <= 1;
    Some(f64::from(u8::from(instants?.iter().all(in_one))))
}

fn home_changed(profile: &RunProfile, at_ms: &[u64]) -> Option<f64> {
    let homes = |at: &u64| -> Option<Vec<usize>> {
        let counts = of_llcs(profile, at_instant(profile, *at)?);
        let most = counts.iter().max().filter(|most| **most > 0)?;
        Some((0..counts.len()).filter(|llc| counts[*llc] == *most).collect())
    };
    let (first, last) = (homes(at_ms.first()?)?, homes(at_ms.last()?)?);
    Some(f64::from(u8::from(!first.iter().any(|llc| last.contains(llc)))))
}

fn llc_counts(profile: &RunProfile, at_ms: &[u64]) -> Measured {
    let tasks: usize = profile.groups.iter().map(|group| group.tasks).sum();
    let mut values = Vec::new();
    for at in at_ms {
        let Some(counts) = at_instant(profile, *at) else {
            values.push((format!("at {at} ms"), None));
            continue;
        };
        for (rank, count) in by_llc(profile, counts).into_iter().enumerate() {
            values.push((format!("llc {rank} at {at} ms"), Some(f64::from(count) / tasks.max(1) as f64)));
        }
    }
    Measured { values, ..Measured::default() }
}

/// Quantiles of an ascending list, by template; a label for each that is founded.
fn quantiles(profile: &RunProfile, of: impl Fn(&TemplateSums) -> &Vec<u64>) -> Measured {
    let mut measured = Measured::default();
    for group in &profile.groups {
        let values = of(group);
        if values.is_empty() {
            continue;
        }
        for (name, share, fewest) in QUANTILES {
            if values.len() >= fewest {
                let at = ((values.len() as f64 * share) as usize).min(values.len() - 1);
                measured.values.push((format!("{} {name}", group.name), Some(values[at] as f64)));
            }
        }
        measured.found(&group.name, values.len() as u64);
    }
    if measured.values.is_empty() {
        measured.samples = Some(0);
    }
    measured
}

fn per_task<'a>(profile: &RunProfile, counts: impl Iterator<Item = (&'a str, u64)>) -> Measured {
    let tasks: usize = profile.groups.iter().map(|group| group.tasks).sum();
    let value = |(name, count): (&str, u64)| (name.to_owned(), (tasks > 0).then(|| count as f64 / tasks as f64));
    Measured { values: counts.map(value).collect(), ..Measured::default() }
}

/// The steps of each part of the window.
fn parts(profile: &RunProfile) -> Vec<std::ops::Range<usize>> {
    let (first, last) = (profile.from_ns.div_ceil(STEP_NS) as usize, profile.counts.len());
    let length = last.saturating_sub(first);
    (0..PARTS).map(|part| first + length * part / PARTS..first + length * (part + 1) / PARTS).collect()
}

fn llc_residency(profile: &RunProfile) -> Measured {
    let llcs = profile.llcs.iter().max().map_or(0, |last| last + 1);
    let sums = |steps: std::ops::Range<usize>| {
        let mut sums = vec![0_u64; llcs];
        profile.llc_run_ns.get(steps).unwrap_or_default().iter().for_each(|step| {
            sums.iter_mut().zip(step).for_each(|(sum, ns)| *sum += ns);
        });
        sums
    };
    // Which LLC is which may differ between two correct runs; within a run it stays the same LLC.
    let whole = sums(0..profile.llc_run_ns.len());
    let mut order: Vec<usize> = (0..llcs).collect();
    order.sort_by_key(|llc| std::cmp::Reverse(whole[*llc]));
    let mut values = Vec::new();
    for (part, steps) in parts(profile).into_iter().enumerate() {
        let sums = sums(steps);
        let all: u64 = sums.iter().sum();
        for (rank, llc) in order.iter().enumerate() {
            let share = (all > 0).then(|| sums[*llc] as f64 / all as f64);
            values.push((format!("llc {rank} in fifth {}", part + 1), share));
        }
    }
    Measured { values, ..Measured::default() }
}

fn llc_counts_over_time(profile: &RunProfile) -> Measured {
    let tasks: usize = profile.groups.iter().map(|group| group.tasks).sum();
    let mut values = Vec::new();
    for (part, steps) in parts(profile).into_iter().enumerate() {
        let instants = profile.counts.get(steps).unwrap_or_default();
        let mut sums: Vec<u64> = Vec::new();
        for counts in instants {
            let ranked = by_llc(profile, counts);
            sums.resize(ranked.len(), 0);
            sums.iter_mut().zip(ranked).for_each(|(sum, count)| *sum += u64::from(count));
        }
        let whole = (instants.len() * tasks).max(1) as f64;
        for (rank, sum) in sums.into_iter().enumerate() {
            values.push((format!("llc {rank} in fifth {}", part + 1), Some(sum as f64 / whole)));
        }
    }
    Measured { values, ..Measured::default() }
}

fn cpu_counts_over_time(profile: &RunProfile) -> Measured {
    let mut values = Vec::new();
    for (part, steps) in parts(profile).into_iter().enumerate() {
        let instants = profile.counts.get(steps).unwrap_or_default();
        let mean_of = |pick: fn(std::slice::Iter<'_, u32>) -> Option<&u32>| {
            let sum: u64 = instants.iter().filter_map(|counts| pick(counts.iter())).map(|n| u64::from(*n)).sum();
            (!instants.is_empty()).then(|| sum as f64 / instants.len() as f64)
        };
        values.push((format!("most in fifth {}", part + 1), mean_of(|counts| counts.max())));
        values.push((format!("least in fifth {}", part + 1), mean_of(|counts| counts.min())));
    }
    Measured { values, ..Measured::default() }
}

fn balanced_ms(profile: &RunProfile, detail: &Detail) -> Option<f64> {
    let first = detail.from_ns.div_ceil(STEP_NS) as usize;
    let balanced = |counts: &Vec<u32>| {
        let (most, least) = (counts.iter().max()?, counts.iter().min()?);
        Some(*most > 0 && most - least <= detail.within)
    };
    let found = profile.counts.iter().skip(first).position(|counts| balanced(counts) == Some(true));
    found.map(|steps| (steps as u64 * STEP_NS) as f64 / 1e6)
}

fn gathered(profile: &RunProfile) -> Option<f64> {
    let last = profile.counts.get(profile.counts.len() * 2 / 3..)?;
    let (mut most, mut all) = (0_u32, 0_u32);
    for counts in last {
        most += by_llc(profile, counts).first().copied().unwrap_or(0);
        all += counts.iter().sum::<u32>();
    }
    (all > 0).then(|| f64::from(u8::from(f64::from(most) / f64::from(all) >= GATHERED_SHARE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> RunProfile {
        let group = |name: &str, run_ns: u64, slices_ns: &[u64]| TemplateSums {
            name: name.into(),
            tasks: 1,
            run_ns: vec![run_ns],
            slices_ns: slices_ns.to_vec(),
            ..TemplateSums::default()
        };
        RunProfile {
            groups: vec![group("a", 300, &[1, 3]), group("b", 100, &[])],
            window_ns: 1_000_000_000,
            counts: vec![vec![2, 0, 0, 0], vec![1, 1, 0, 0], vec![1, 1, 0, 0]],
            llc_run_ns: vec![vec![0, 9], vec![1, 3], vec![4, 0]],
            migrations: 7,
            migrations_by_kind: [1, 0, 6, 0, 0, 0, 0, 0],
            migrations_by_distance: [0, 5, 2, 0],
            llcs: vec![0, 0, 1, 1],
            from_ns: 0,
        }
    }

    fn values(metric: Metric, detail: &Detail) -> Vec<f64> {
        metric.of(&profile(), detail).values.into_iter().filter_map(|(_, value)| value).collect()
    }

    #[test]
    fn metrics_are_what_their_definitions_say() {
        let detail = Detail { at_ms: vec![0, 5], within: 1, from_ns: 0 };
        assert_eq!(values(Metric::CpuShare, &detail), [0.75, 0.25]);
        assert_eq!(values(Metric::SliceMeanNs, &detail), [2.0]);
        assert_eq!(values(Metric::MigrationsPerS, &detail), [7.0]);
        assert_eq!(values(Metric::LlcCounts, &detail), [1.0, 0.0, 1.0, 0.0]);
        assert_eq!(values(Metric::CpuCounts, &detail), [2.0, 0.0, 1.0, 0.0]);
        assert_eq!(values(Metric::BalancedMs, &detail), [5.0]);
        assert_eq!(values(Metric::Gathered, &detail), [1.0]);
        assert_eq!(values(Metric::InOneLlc, &detail), [1.0]);
        assert_eq!(values(Metric::HomeChanged, &detail), [0.0]);
    }

    #[test]
    fn llcs_are_told_apart_by_number_where_it_matters_which_one_it_is() {
        let detail = Detail { at_ms: vec![0, 10], ..Detail::default() };
        let with = |last: [u32; 4]| RunProfile {
            counts: vec![vec![2, 0, 0, 0], vec![1, 0, 1, 0], last.to_vec()],
            ..profile()
        };
        let of = |metric: Metric, last| metric.of(&with(last), &detail).values[0].1;
        assert_eq!(of(Metric::HomeChanged, [0, 0, 1, 1]), Some(1.0));
        assert_eq!(of(Metric::HomeChanged, [1, 0, 1, 0]), Some(0.0), "as many as elsewhere");
        assert_eq!(of(Metric::InOneLlc, [0, 0, 1, 1]), Some(1.0), "another one");
        assert_eq!(of(Metric::InOneLlc, [1, 0, 1, 0]), Some(0.0));
        let late = Detail { at_ms: vec![0, 100], ..Detail::default() };
        assert_eq!(Metric::InOneLlc.of(&profile(), &late).values[0].1, None, "after the end");
    }

    #[test]
    fn distributions_and_series_are_what_their_definitions_say() {
        let detail = Detail::default();
        let mut profile = profile();
        profile.groups[0].slices_ns = (1..=100).collect();
        profile.groups[0].wait_ns = 250_000_000;
        let measured = Metric::SliceQuantilesNs.of(&profile, &detail);
        let labels: Vec<&str> = measured.values.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["a p10", "a p50", "a p90", "a p99"]);
        assert_eq!(measured.values.iter().map(|(_, value)| value.unwrap()).collect::<Vec<_>>(), [11., 51., 91., 100.]);
        let delays = Metric::RunDelayShare.of(&profile, &detail).values;
        assert_eq!(delays, [("a".to_owned(), Some(0.25)), ("b".to_owned(), Some(0.0))]);
        assert_eq!(values(Metric::MigrationsByKind, &detail)[..3], [0.5, 0.0, 3.0]);
        assert_eq!(values(Metric::MigrationsByDistance, &detail), [0.0, 2.5, 1.0, 0.0]);
        // Five steps, so each part is one of them.
        profile.counts.extend([vec![0, 0, 2, 0], vec![0, 0, 2, 0]]);
        profile.llc_run_ns.extend([vec![0, 1], vec![0, 0]]);
        let residency = Metric::LlcResidency.of(&profile, &detail).values;
        assert_eq!(residency[0], ("llc 0 in fifth 1".to_owned(), Some(1.0)), "the LLC of most run time comes first");
        assert_eq!(residency[4], ("llc 0 in fifth 3".to_owned(), Some(0.0)));
        assert_eq!(residency[8], ("llc 0 in fifth 5".to_owned(), None), "nothing ran");
        let counts = Metric::LlcCountsOverTime.of(&profile, &detail).values;
        assert_eq!(counts[8], ("llc 0 in fifth 5".to_owned(), Some(1.0)));
        let cpus = Metric::CpuCountsOverTime.of(&profile, &detail).values;
        assert_eq!(cpus[2], ("most in fifth 2".to_owned(), Some(1.0)));
    }

    #[test]
    fn a_template_with_few_events_is_thin_beside_others_and_makes_the_whole_thin_alone() {
        let mut profile = profile();
        profile.groups[0].slices_ns = vec![7; 40];
        profile.groups[1].slices_ns = vec![9; 3];
        for metric in [Metric::SliceMeanNs, Metric::SliceQuantilesNs] {
            let measured = metric.of(&profile, &Detail::default());
            assert_eq!((measured.samples, measured.thin.as_slice()), (Some(40), &["b".to_owned()][..]), "{metric:?}");
            assert!(measured.values.iter().any(|(label, _)| label.starts_with('b')), "it keeps its value");
        }
        profile.groups[0].slices_ns.truncate(5);
        let measured = Metric::SliceMeanNs.of(&profile, &Detail::default());
        assert_eq!((measured.samples, measured.thin.len()), (Some(3), 2));
    }

    #[test]
    fn a_metric_of_nothing_has_no_samples() {
        let measured = Metric::WakeupP50Ns.of(&profile(), &Detail::default());
        assert_eq!((measured.values.len(), measured.samples), (0, Some(0)));
        let detail = Detail { at_ms: vec![100], ..Detail::default() };
        assert_eq!(Metric::LlcCounts.of(&profile(), &detail).values, [("at 100 ms".to_owned(), None)]);
    }
}
