//! Errors and verdicts: a metric of several simulated seeds against the same metric of several boots.
//!
//! Where neither place spreads by more than the bound, the medians are compared. Where one does (half the range of its runs is beyond
//! the bound), chance decides in that place, and the two distributions are compared: their distance is the mean distance of their
//! quantile functions (Wasserstein), which is the difference of the medians for two places that do not spread. Within the bound they
//! are equal. Beyond it they differ if a permutation test says so (of the distance itself, or of the distances from the median of all
//! values, so that one place that spreads beside one that does not is told); if it does not, nothing can be said.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::book::Bound;
use super::metric::{FEWEST_SAMPLES, Measured};

/// Share of permutations that may be as far apart as the places for these to be called different.
const SIGNIFICANT: f64 = 0.05;

/// Most permutations that are looked at; all where there are no more. Eight seeds and four boots have 495, and ten boots 43 758.
const MOST_PERMUTATIONS: usize = 50_000;

/// What is said of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The error is within the bound.
    Inside,
    /// It is not.
    Outside,
    /// Too few events, lost events, runs that were not carried out as asked or that spread too much: nothing can be said.
    NotMeasured,
}

impl Agreement {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
            Self::NotMeasured => "not measured",
        }
    }
}

/// In what two places differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// Their medians.
    Median,
    /// Their distributions, because a place spreads by more than the bound.
    Distribution,
    /// A place differs from what the experiment expects of both.
    Expectation,
}

/// A value of both places.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    /// What it is of.
    pub label: String,
    /// Median over simulated seeds.
    pub sim: Option<f64>,
    /// Median over boots.
    pub vm: Option<f64>,
    /// Least and greatest over simulated seeds, and over boots.
    pub ranges: [Option<(f64, f64)>; 2],
    /// Distance in the bound's terms; none where a place has no value.
    pub error: Option<f64>,
    /// What the distance is of.
    pub of: Of,
    /// The distance is beyond the bound, and too few runs spread too much to say that it is no chance.
    pub undecided: bool,
}

/// A judged comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LineJudgement {
    /// Values by label.
    pub pairs: Vec<Pair>,
    /// The error of the values that decide ([`Self::worst`]); infinite where only one place has a value.
    pub error: Option<f64>,
    /// Half the range over boots, in the bound's terms.
    pub spread: Option<f64>,
    /// The verdict.
    pub verdict: Agreement,
    /// Why nothing can be said.
    pub reason: String,
}

impl LineJudgement {
    /// The verdict in words, and why nothing can be said.
    pub fn words(&self) -> String {
        let name = self.verdict.name();
        if self.reason.is_empty() { name.to_owned() } else { format!("{name}: {}", self.reason) }
    }

    /// The values that decide, whose error is that of the comparison: those furthest beyond the bound; where none is beyond it, those of which
    /// nothing can be said; else those furthest apart.
    pub fn worst(&self) -> Option<&Pair> {
        self.pairs.iter().rev().find(|pair| pair.error == self.error)
    }
}

/// Compares seeds with boots. With `flaw`, why the boots' runs say nothing, nothing can be said.
pub fn judge(
    bound: Bound,
    expect: Option<f64>,
    sim: &[Measured],
    vm: &[Measured],
    flaw: Option<&str>,
) -> LineJudgement {
    let (sim_values, vm_values) = (by_label(sim), by_label(vm));
    let mut labels: Vec<&String> = vm_values.keys().collect();
    labels.extend(sim_values.keys().filter(|label| !vm_values.contains_key(*label)));
    // A template of which most boots have too few things says nothing, and nothing about the others; nor one of which they have none, where most
    // seeds have too few.
    let most =
        |runs: &[Measured], is: &dyn Fn(&Measured) -> bool| 2 * runs.iter().filter(|run| is(run)).count() > runs.len();
    let thin = |label: &str| {
        let few = |run: &Measured| run.is_thin(label) || run.values.iter().all(|(known, _)| known != label);
        most(vm, &|run| run.is_thin(label)) || most(vm, &few) && most(sim, &few)
    };
    if !labels.iter().all(|label| thin(label)) {
        labels.retain(|label| !thin(label));
    }
    let nothing = Vec::new();
    let pair = |label: &String| {
        let (ours, theirs) = (sim_values.get(label).unwrap_or(&nothing), vm_values.get(label).unwrap_or(&nothing));
        compare(label, bound, expect, ours, theirs)
    };
    let pairs: Vec<Pair> = labels.into_iter().map(pair).collect();
    let spread = pairs.iter().filter_map(|pair| Some(half_range(bound, pair.ranges[1]?, pair.vm?)));
    let spread = spread.max_by(f64::total_cmp);
    let worst = |decided: bool| {
        let errors = pairs.iter().filter(|pair| pair.undecided != decided).filter_map(|pair| pair.error);
        errors.max_by(f64::total_cmp)
    };
    let (error, undecided) = (worst(true), worst(false));
    // Few events say nothing, unless chance does not explain how many the simulator has.
    let fewest = |runs: &[Measured]| runs.iter().filter_map(|measured| measured.samples).min();
    let samples = fewest(vm).filter(|&theirs| {
        let ours = fewest(sim).unwrap_or(theirs);
        theirs < FEWEST_SAMPLES && ours.abs_diff(theirs) as f64 <= 3.0 * ((ours + theirs) as f64).sqrt()
    });
    let outside = error.is_some_and(|error| error > bound.limit());
    let reason = if vm.is_empty() {
        "it was not run on a real kernel".to_owned()
    } else if let Some(flaw) = flaw {
        flaw.to_owned()
    } else if let Some(samples) = samples {
        format!("only {samples} events")
    } else if undecided.is_some() && !outside {
        "runs spread too much to say".to_owned()
    } else if error.is_none() {
        "it has no value in either place".to_owned()
    } else {
        String::new()
    };
    let verdict = match (reason.is_empty(), outside) {
        (false, _) => Agreement::NotMeasured,
        (true, true) => Agreement::Outside,
        (true, false) => Agreement::Inside,
    };
    let error = if outside { error } else { undecided.or(error) };
    LineJudgement { pairs, error, spread, verdict, reason }
}

/// A label's values of both places.
fn compare(label: &str, bound: Bound, expect: Option<f64>, ours: &[Option<f64>], theirs: &[Option<f64>]) -> Pair {
    let (sim, vm) = (median(ours), median(theirs));
    let ranges = [range(ours), range(theirs)];
    let mut pair = Pair { label: label.to_owned(), sim, vm, ranges, error: None, of: Of::Median, undecided: false };
    let (Some(sim), Some(vm)) = (sim, vm) else {
        pair.error = (sim.is_some() || vm.is_some()).then_some(f64::INFINITY);
        return pair;
    };
    if let Some(expected) = expect {
        pair.of = Of::Expectation;
        pair.error = Some(bound.error(sim, expected).max(bound.error(vm, expected)));
        return pair;
    }
    let spreads = |range: Option<(f64, f64)>| range.is_some_and(|range| half_range(bound, range, vm) > bound.limit());
    if !ranges.into_iter().any(spreads) {
        pair.error = Some(bound.error(sim, vm));
        return pair;
    }
    let known = |values: &[Option<f64>]| values.iter().flatten().copied().collect::<Vec<f64>>();
    let (ours, theirs) = (known(ours), known(theirs));
    let error = bound.error(vm + wasserstein(&ours, &theirs), vm);
    pair.of = Of::Distribution;
    pair.error = Some(error);
    pair.undecided = error > bound.limit() && !differ(&ours, &theirs);
    pair
}

/// Half a range in the bound's terms.
fn half_range(bound: Bound, (least, most): (f64, f64), reference: f64) -> f64 {
    bound.error(reference + (most - least) / 2.0, reference)
}

fn range(values: &[Option<f64>]) -> Option<(f64, f64)> {
    let known = || values.iter().flatten().copied();
    Some((known().min_by(f64::total_cmp)?, known().max_by(f64::total_cmp)?))
}

/// Mean distance of the quantile functions of two samples.
fn wasserstein(one: &[f64], other: &[f64]) -> f64 {
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let (one, other) = (sorted(one), sorted(other));
    // Both functions are steps at multiples of one part in this many.
    let parts = one.len() * other.len();
    let at = |values: &[f64], part: usize| values[part * values.len() / parts];
    (0..parts).map(|part| (at(&one, part) - at(&other, part)).abs()).sum::<f64>() / parts as f64
}

/// Whether two samples differ by more than chance: in their distance, or in how far their values are from the median of all.
fn differ(one: &[f64], other: &[f64]) -> bool {
    let all: Vec<Option<f64>> = one.iter().chain(other).copied().map(Some).collect();
    let middle = median(&all).unwrap_or(0.0);
    let deviations = |values: &[f64]| values.iter().map(|value| (value - middle).abs()).collect::<Vec<f64>>();
    // Two tests share what one may be wrong by.
    [(one.to_vec(), other.to_vec()), (deviations(one), deviations(other))]
        .iter()
        .any(|(one, other)| permutation_share(one, other) <= SIGNIFICANT / 2.0)
}

/// Share of the ways to divide all values into two samples of these sizes that are at least as far apart as these two are.
fn permutation_share(one: &[f64], other: &[f64]) -> f64 {
    let all: Vec<f64> = one.iter().chain(other).copied().collect();
    let observed = wasserstein(one, other) * (1.0 - 1e-9);
    let mut chosen: Vec<usize> = (0..one.len()).collect();
    let (mut seen, mut as_far) = (0_usize, 0_usize);
    loop {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (index, value) in all.iter().enumerate() {
            if chosen.contains(&index) { left.push(*value) } else { right.push(*value) }
        }
        seen += 1;
        as_far += usize::from(wasserstein(&left, &right) >= observed);
        // The next combination in lexical order.
        let Some(last) = (0..chosen.len()).rev().find(|&k| chosen[k] < all.len() - chosen.len() + k) else { break };
        if seen >= MOST_PERMUTATIONS {
            break;
        }
        chosen[last] += 1;
        for k in last + 1..chosen.len() {
            chosen[k] = chosen[k - 1] + 1;
        }
    }
    as_far as f64 / seen as f64
}

fn by_label(runs: &[Measured]) -> BTreeMap<String, Vec<Option<f64>>> {
    let mut values: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    for (label, value) in runs.iter().flat_map(|run| &run.values) {
        values.entry(label.clone()).or_default().push(*value);
    }
    values
}

/// The middle of the known values; none when most are unknown.
fn median(values: &[Option<f64>]) -> Option<f64> {
    let mut known: Vec<f64> = values.iter().flatten().copied().collect();
    if known.len() * 2 <= values.len() {
        return None;
    }
    known.sort_by(f64::total_cmp);
    let middle = known.len() / 2;
    Some(if known.len() % 2 == 1 { known[middle] } else { (known[middle - 1] + known[middle]) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(values: &[f64], samples: Option<u64>) -> Vec<Measured> {
        let run = |value: &f64| Measured { values: vec![("all".into(), Some(*value))], samples, thin: Vec::new() };
        values.iter().map(run).collect()
    }

    fn verdict(sim: &[f64], vm: &[f64], samples: u64, flaw: Option<&str>) -> Agreement {
        judge(Bound::Relative(0.1), None, &runs(sim, None), &runs(vm, Some(samples)), flaw).verdict
    }

    #[test]
    fn the_verdict_follows_the_error_and_the_bound() {
        assert_eq!(verdict(&[105.0], &[100.0, 101.0], 100, None), Agreement::Inside);
        assert_eq!(verdict(&[120.0], &[100.0, 101.0], 100, None), Agreement::Outside);
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        assert_eq!(
            verdict(&[100.0], &[100.0], 100, Some("1 events were lost")),
            Agreement::NotMeasured,
            "events were lost"
        );
        assert_eq!(verdict(&[100.0], &[100.0], 3, None), Agreement::NotMeasured, "too few");
        assert_eq!(
            verdict(&[100.0], &[60.0, 140.0], 100, None),
            Agreement::NotMeasured,
            "boots differ, and are too few"
        );
        assert_eq!(verdict(&[100.0], &[], 100, None), Agreement::NotMeasured, "never run");
        let counted = |sim: u64, vm: u64| {
            let of = |count: u64| runs(&[count as f64], Some(count));
            judge(Bound::Relative(0.1), None, &of(sim), &of(vm), None).verdict
        };
        // 9 and 0 are within 3 standard deviations, 10 and 0 are not.
        assert_eq!([9, 10].map(|sim| counted(sim, 0)), [Agreement::NotMeasured, Agreement::Outside]);
        assert_eq!(counted(9, 6), Agreement::NotMeasured);
    }

    #[test]
    fn a_value_that_both_places_lack_is_not_measured() {
        let nothing = vec![Measured { values: vec![("all".into(), None)], ..Measured::default() }];
        let judgement = judge(Bound::Absolute(9.0), None, &nothing, &nothing, None);
        assert_eq!((judgement.verdict, judgement.error), (Agreement::NotMeasured, None));
    }

    #[test]
    fn a_template_with_too_few_events_voids_its_own_values_and_no_others() {
        let run = |often: f64, rarely: f64, thin: &[&str]| Measured {
            values: vec![("often p50".into(), Some(often)), ("rarely p50".into(), Some(rarely))],
            samples: Some(50),
            thin: thin.iter().map(|name| (*name).to_owned()).collect(),
        };
        let judged = |thin: &[&str]| {
            let vm: Vec<Measured> = (0..3).map(|_| run(100.0, 900.0, thin)).collect();
            judge(Bound::Relative(0.1), None, &[run(101.0, 1.0, &[])], &vm, None)
        };
        assert_eq!(judged(&[]).verdict, Agreement::Outside);
        let judgement = judged(&["rarely"]);
        assert_eq!((judgement.verdict, judgement.pairs.len()), (Agreement::Inside, 1));
        let other = judged(&["rare"]);
        assert_eq!((other.verdict, other.pairs.len()), (Agreement::Outside, 2), "a name that only begins alike");
    }

    /// Ten events make a value; nine of a seed and none of a boot are both too few, and a hundred of a seed are not.
    #[test]
    fn few_events_in_one_place_and_none_in_the_other_say_nothing() {
        let run = |rarely: Option<f64>, thin: &[&str]| Measured {
            values: [("often".to_owned(), Some(100.0))]
                .into_iter()
                .chain(rarely.map(|rarely| ("rarely".to_owned(), Some(rarely))))
                .collect(),
            samples: Some(50),
            thin: thin.iter().map(|name| (*name).to_owned()).collect(),
        };
        let judged =
            |thin: &[&str]| judge(Bound::Relative(0.1), None, &[run(Some(9.0), thin)], &[run(None, &[])], None);
        assert_eq!((judged(&["rarely"]).verdict, judged(&["rarely"]).pairs.len()), (Agreement::Inside, 1));
        assert_eq!((judged(&[]).verdict, judged(&[]).error), (Agreement::Outside, Some(f64::INFINITY)));
    }

    #[test]
    fn a_value_that_one_place_lacks_is_outside() {
        let nothing = vec![Measured { values: vec![("all".into(), None)], ..Measured::default() }];
        let judgement = judge(Bound::Absolute(9.0), None, &nothing, &runs(&[1.0], None), None);
        assert_eq!((judgement.verdict, judgement.error), (Agreement::Outside, Some(f64::INFINITY)));
    }

    #[test]
    fn places_in_which_chance_decides_are_compared_as_distributions() {
        let two_ways = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0];
        let judged =
            |sim: &[f64], vm: &[f64]| judge(Bound::Absolute(0.3), None, &runs(sim, None), &runs(vm, None), None);
        assert_eq!(judged(&two_ways, &[1.0, 0.0, 0.0, 1.0]).verdict, Agreement::Inside, "both go two ways");
        let (always, never) = ([1.0; 8], [0.0; 4]);
        assert_eq!(judged(&always, &never).verdict, Agreement::Outside);
        let spread = judged(&[1.0, 8.0, 15.0, 20.0, 27.0, 30.0, 4.0, 24.0], &[13.0, 13.5, 14.0, 13.0]);
        assert_eq!(
            (spread.verdict, spread.pairs[0].of),
            (Agreement::Outside, Of::Distribution),
            "equal medians, other spreads"
        );
        let few = judged(&two_ways, &[1.0, 1.0, 1.0, 1.0]);
        assert_eq!((few.verdict, few.reason.as_str()), (Agreement::NotMeasured, "runs spread too much to say"));
    }

    #[test]
    fn name_values_and_error_of_a_comparison_are_of_the_same_values() {
        let both = |values: [f64; 4], far: [f64; 4]| -> Vec<Measured> {
            let run = |(own, far): (&f64, &f64)| Measured {
                values: vec![("near".into(), Some(*own)), ("far".into(), Some(*far))],
                ..Measured::default()
            };
            values.iter().zip(&far).map(run).collect()
        };
        let judged = |near: f64| {
            let (sim, vm) = (both([near; 4], [0.0, 1.0, 0.0, 1.0]), both([0.5; 4], [1.0; 4]));
            let judgement = judge(Bound::Absolute(0.3), None, &sim, &vm, None);
            let worst = judgement.worst().unwrap();
            assert_eq!(worst.error, judgement.error);
            (judgement.verdict, worst.label.clone(), worst.error)
        };
        // What spreads too much hides that the others agree, and not that they differ.
        assert_eq!(judged(0.5), (Agreement::NotMeasured, "far".into(), Some(0.5)));
        assert_eq!(judged(0.9), (Agreement::Outside, "near".into(), Some(0.4)));
    }

    #[test]
    fn the_distance_of_two_samples_is_that_of_their_quantiles() {
        assert_eq!(wasserstein(&[1.0, 3.0], &[2.0, 4.0]), 1.0);
        assert_eq!(wasserstein(&[0.0, 1.0], &[0.0, 0.0, 1.0, 1.0]), 0.0);
        assert_eq!(wasserstein(&[5.0], &[2.0]), 3.0, "that of the medians");
    }

    #[test]
    fn places_that_are_both_not_what_is_expected_do_not_agree() {
        let judged = |sim: f64, vm: f64| {
            judge(Bound::Absolute(0.0), Some(1.0), &runs(&[sim], None), &runs(&[vm], None), None).verdict
        };
        assert_eq!(judged(1.0, 1.0), Agreement::Inside);
        assert_eq!([judged(0.0, 0.0), judged(0.0, 1.0), judged(1.0, 0.0)], [Agreement::Outside; 3]);
    }
}
