//! A fair chance for CDF: workloads whose tasks do use different cache sets, searched for one in which its rule beats the group with the
//! fewest tasks and both readings of DIO on the mean time of an access.
//!
//! The search looks at every workload and every CDF with few seeds, takes the most promising pair of each of the best workloads, and
//! judges it with seeds that it has not seen: what a search finds by chance is gone then.

use serde::Serialize;
use warmcore_schedulers::contention::{Cdf, ContentionError, Strategy, Variant};

use super::machine::{Addresses, Dispatch, Level, Outcome, PAPER, Setup, run};
use super::workload::{Accesses, Colours, Law};
use super::{DIO, half_width, mean};

/// A workload of the search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// Tasks, and accesses of each.
    pub tasks: (usize, usize),
    /// Which pages they touch.
    pub law: Law,
    /// Which sets these fall into.
    pub colours: Colours,
    /// Accesses of a quantum.
    pub quantum: usize,
}

impl Candidate {
    /// In tables.
    #[must_use]
    pub fn name(&self) -> String {
        let sets = match self.colours {
            Colours::Any => "any sets".to_owned(),
            Colours::Ranges(kinds) => format!("{kinds} ranges of sets"),
            Colours::Strides(kinds) => format!("{kinds} interleaved kinds of sets"),
        };
        let pages = match self.law {
            Law::Zipf(pages) => format!("Zipf over {pages} lines"),
            Law::Skewed { pages, exponent } => format!("Zipf with s = {exponent} over {pages} lines"),
            Law::Uniform(pages) => format!("{pages} lines alike"),
        };
        format!("{} tasks × {} accesses, {pages}, {sets}, quantum {}", self.tasks.0, self.tasks.1, self.quantum)
    }

    fn setup(&self) -> Setup {
        let paper = Setup::paper(PAPER, Addresses::LineSpread, Dispatch::Queue);
        Setup { quantum: self.quantum, level: Level::L2, ..paper }
    }

    fn outcome(&self, strategy: &Strategy, seed: u64) -> Result<Outcome, ContentionError> {
        let (tasks, accesses) = self.tasks;
        run(&self.setup(), &Accesses::coloured(tasks, accesses, self.law, self.colours, seed), strategy, seed)
    }
}

/// Tasks, accesses of each, and which lines they touch: many tasks that come and go over the groups, and one for each virtual CPU that
/// stays for long and fills its sets.
const SHAPES: [(usize, usize, Law); 8] = [
    (80, 3_000, Law::Uniform(300)),
    (80, 3_000, Law::Uniform(1_200)),
    (80, 3_000, Law::Zipf(super::RANKS)),
    (24, 10_000, Law::Uniform(1_200)),
    (24, 10_000, Law::Uniform(4_800)),
    (12, 100_000, Law::Uniform(4_800)),
    (12, 100_000, Law::Uniform(9_600)),
    (12, 100_000, Law::Zipf(super::RANKS)),
];

/// All workloads of the search. One access is to one line of its page: lines, not bytes, are what tasks hold.
#[must_use]
pub fn candidates() -> Vec<Candidate> {
    let mut all = Vec::new();
    for colours in [
        Colours::Any,
        Colours::Ranges(2),
        Colours::Ranges(3),
        Colours::Ranges(4),
        Colours::Ranges(8),
        Colours::Strides(4),
    ] {
        for (tasks, accesses, law) in SHAPES {
            for quantum in [300, 3000] {
                all.push(Candidate { tasks: (tasks, accesses), law, colours, quantum });
            }
        }
    }
    all
}

/// Every CDF of the search.
fn rules() -> Vec<Strategy> {
    let both = [Variant::Published, Variant::Coded];
    let tolerances = [0.1, 0.2, 0.3, 0.5, 0.7, 0.9];
    both.iter().flat_map(|variant| tolerances.map(|tolerance| Strategy::Cdf(Cdf::new(*variant, tolerance)))).collect()
}

/// Whom it has to beat.
const OTHERS: [Strategy; 3] = [Strategy::FewestTasks, DIO, Strategy::Dio { variant: Variant::Published }];

/// The best CDF for a workload as few seeds see it: its mean access time over the shortest of the others'.
///
/// # Errors
/// A memory that is full.
pub fn screen(candidate: &Candidate, seeds: &[u64]) -> Result<(Strategy, f64), ContentionError> {
    let access_ns = |strategy: &Strategy| -> Result<f64, ContentionError> {
        let each = seeds.iter().map(|seed| Ok(candidate.outcome(strategy, *seed)?.access_ns));
        Ok(mean(&each.collect::<Result<Vec<f64>, ContentionError>>()?))
    };
    let others = OTHERS.iter().map(access_ns).collect::<Result<Vec<f64>, _>>()?;
    let shortest = others.into_iter().fold(f64::INFINITY, f64::min);
    let mut best = (Strategy::FewestTasks, f64::INFINITY);
    for rule in rules() {
        let ratio = access_ns(&rule)? / shortest;
        if ratio < best.1 {
            best = (rule, ratio);
        }
    }
    Ok(best)
}

/// What became of a workload and the CDF that promised most in it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judged {
    /// The workload.
    pub workload: String,
    /// The rule.
    pub rule: String,
    /// What the search saw: mean access time over the shortest of the others'.
    pub seen: f64,
    /// With other seeds: mean access time over that of fewest tasks, DIO as coded and as published, each with half of its 95 % interval.
    pub access_over: [(f64, f64); 3],
    /// The same of the end of the last task.
    pub makespan_over: [(f64, f64); 3],
    /// What placement could do: mean access time with equal kinds of tasks kept apart for good, and with equal kinds together, over that of
    /// fewest tasks.
    pub apart_and_together: [(f64, f64); 2],
}

impl Judged {
    /// Whether it is below all the others by more than the interval.
    #[must_use]
    pub fn beats_all(&self) -> bool {
        self.access_over.iter().all(|(ratio, half)| ratio + half < 1.0)
    }
}

/// Judges a workload and a rule with seeds of their own, paired.
///
/// # Errors
/// A memory that is full.
pub fn judge(candidate: &Candidate, rule: &Strategy, seen: f64, seeds: &[u64]) -> Result<Judged, ContentionError> {
    let outcomes = |strategy: &Strategy| -> Result<Vec<Outcome>, ContentionError> {
        seeds.iter().map(|seed| candidate.outcome(strategy, *seed)).collect()
    };
    let ours = outcomes(rule)?;
    let fewest = outcomes(&Strategy::FewestTasks)?;
    let placed = |apart: bool| -> Result<(f64, f64), ContentionError> {
        let ratio = |(seed, fewest): (&u64, &Outcome)| {
            let (tasks, accesses) = candidate.tasks;
            let kinds = Accesses::coloured(tasks, accesses, candidate.law, candidate.colours, *seed).kinds;
            let fixed = Strategy::Fixed(by_kind(&kinds, &candidate.setup(), apart));
            Ok(candidate.outcome(&fixed, *seed)?.access_ns / fewest.access_ns)
        };
        let ratios = seeds.iter().zip(&fewest).map(ratio).collect::<Result<Vec<f64>, ContentionError>>()?;
        Ok((mean(&ratios), half_width(&ratios)))
    };
    let apart_and_together = [placed(true)?, placed(false)?];
    let (mut access_over, mut makespan_over) = ([(0.0, 0.0); 3], [(0.0, 0.0); 3]);
    for (other, (access, makespan)) in OTHERS.iter().zip(access_over.iter_mut().zip(&mut makespan_over)) {
        let theirs = outcomes(other)?;
        let ratio = |of: fn(&Outcome) -> f64| {
            let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(one, other)| of(one) / of(other)).collect();
            (mean(&ratios), half_width(&ratios))
        };
        *access = ratio(|outcome| outcome.access_ns);
        *makespan = ratio(|outcome| outcome.makespan_ns as f64);
    }
    let (workload, rule) = (candidate.name(), rule.name());
    Ok(Judged { workload, rule, seen, access_over, makespan_over, apart_and_together })
}

/// A virtual CPU for each task, as many for one as for another: equal kinds in different groups as far as can be, or in the same.
fn by_kind(kinds: &[u32], setup: &Setup, apart: bool) -> Vec<usize> {
    let mut tasks: Vec<usize> = (0..kinds.len()).collect();
    tasks.sort_by_key(|task| kinds[*task]);
    let groups = setup.vcpus.div_ceil(setup.per_group);
    let mut vcpus = vec![0; kinds.len()];
    for (place, task) in tasks.into_iter().enumerate() {
        let (group, member) = match apart {
            true => (place % groups, place / groups),
            false => (place * groups / kinds.len(), place),
        };
        vcpus[task] = (group * setup.per_group + member % setup.per_group).min(setup.vcpus - 1);
    }
    vcpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_covers_what_it_says_and_sees_the_same_twice() {
        let all = candidates();
        assert_eq!(all.len(), 6 * SHAPES.len() * 2);
        let names: std::collections::BTreeSet<String> = all.iter().map(Candidate::name).collect();
        assert_eq!(names.len(), all.len());
        let small = Candidate { tasks: (12, 600), ..all[24] };
        assert_eq!(screen(&small, &[1]).unwrap(), screen(&small, &[1]).unwrap());
        let (rule, seen) = screen(&small, &[1, 2]).unwrap();
        let judged = judge(&small, &rule, seen, &[1, 2]).unwrap();
        let shortest = judged.access_over.iter().map(|(ratio, _)| *ratio).fold(0.0, f64::max);
        assert!((shortest - seen).abs() < 0.01, "with the same seeds it judges what it saw: {judged:?}, {seen}");
    }

    #[test]
    fn kinds_are_kept_apart_or_together_on_equally_many_tasks_per_cpu() {
        let setup = candidates()[0].setup();
        let kinds: Vec<u32> = (0..12).map(|task| task % 3).collect();
        let groups = |apart: bool, kind: u32| -> Vec<usize> {
            let vcpus = by_kind(&kinds, &setup, apart);
            assert!((0..12).all(|vcpu| vcpus.iter().filter(|known| **known == vcpu).count() == 1), "{vcpus:?}");
            let mut groups: Vec<usize> =
                (0..12).filter(|task| kinds[*task] == kind).map(|task| vcpus[task] / 4).collect();
            groups.dedup();
            groups
        };
        assert_eq!((0..3).map(|kind| groups(false, kind).len()).collect::<Vec<_>>(), [1, 1, 1]);
        assert!((0..3).all(|kind| groups(true, kind).len() > 2));
    }

    #[test]
    fn only_who_is_below_all_by_more_than_the_interval_has_won() {
        let judged = |access_over| Judged {
            workload: String::new(),
            rule: String::new(),
            seen: 1.0,
            access_over,
            makespan_over: [(1.0, 0.0); 3],
            apart_and_together: [(1.0, 0.0); 2],
        };
        assert!(judged([(0.9, 0.05), (0.8, 0.1), (0.99, 0.009)]).beats_all());
        assert!(!judged([(0.9, 0.05), (0.8, 0.1), (0.99, 0.011)]).beats_all());
    }
}
