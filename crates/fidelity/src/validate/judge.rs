//! Errors and verdicts: a metric of several simulated seeds against the same metric of several boots.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::book::Bound;
use super::metric::Measured;

/// Fewer things than this found no value.
const FEWEST_SAMPLES: u64 = 10;

/// Whether the two places agree within a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The error is within the bound.
    Inside,
    /// It is not.
    Outside,
    /// Too few events, lost events, or boots that differ by more than the bound: nothing can be said.
    NotMeasured,
}

impl Agreement {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
            Self::NotMeasured => "not measured",
        }
    }
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
    /// Distance in the bound's terms; none where a place has no value.
    pub error: Option<f64>,
}

/// A judged comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judgement {
    /// Values by label.
    pub pairs: Vec<Pair>,
    /// The largest error; infinite where only one place has a value.
    pub error: Option<f64>,
    /// Half the range over boots, in the bound's terms.
    pub spread: Option<f64>,
    /// The verdict.
    pub verdict: Agreement,
    /// Why nothing can be said.
    pub reason: String,
}

/// Compares seeds with boots.
#[must_use]
pub fn judge(bound: Bound, sim: &[Measured], vm: &[Measured], events_lost: u64) -> Judgement {
    let (sim_values, vm_values) = (by_label(sim), by_label(vm));
    let mut labels: Vec<&String> = vm_values.keys().collect();
    labels.extend(sim_values.keys().filter(|label| !vm_values.contains_key(*label)));
    let mut pairs = Vec::new();
    let mut spread: Option<f64> = None;
    for label in labels {
        let (ours, theirs) = (sim_values.get(label), vm_values.get(label));
        let (sim, vm) = (ours.and_then(|values| median(values)), theirs.and_then(|values| median(values)));
        let error = match (sim, vm) {
            (Some(sim), Some(vm)) => Some(bound.error(sim, vm)),
            (None, None) => None,
            _ => Some(f64::INFINITY),
        };
        if let (Some(values), Some(vm)) = (theirs, vm) {
            let known = values.iter().flatten();
            let (least, most) =
                known.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(*value), most.max(*value)));
            let half = bound.error(vm + (most - least) / 2.0, vm);
            spread = Some(spread.unwrap_or(0.0).max(half));
        }
        pairs.push(Pair { label: label.clone(), sim, vm, error });
    }
    let error = pairs.iter().filter_map(|pair| pair.error).max_by(f64::total_cmp);
    let samples = vm.iter().filter_map(|measured| measured.samples).min();
    let reason = if vm.is_empty() {
        "it was not run on a real kernel".to_owned()
    } else if events_lost > 0 {
        format!("{events_lost} events were lost")
    } else if let Some(samples) = samples.filter(|samples| *samples < FEWEST_SAMPLES) {
        format!("only {samples} events")
    } else if spread.is_some_and(|spread| spread > bound.limit()) {
        "boots differ by more than the bound".to_owned()
    } else if error.is_none() {
        "it has no value in either place".to_owned()
    } else {
        String::new()
    };
    let verdict = match error {
        _ if !reason.is_empty() => Agreement::NotMeasured,
        Some(error) if error <= bound.limit() => Agreement::Inside,
        _ => Agreement::Outside,
    };
    Judgement { pairs, error, spread, verdict, reason }
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
        let run = |value: &f64| Measured { values: vec![("all".into(), Some(*value))], samples };
        values.iter().map(run).collect()
    }

    fn verdict(sim: &[f64], vm: &[f64], samples: u64, lost: u64) -> Agreement {
        judge(Bound::Relative(0.1), &runs(sim, None), &runs(vm, Some(samples)), lost).verdict
    }

    #[test]
    fn the_verdict_follows_the_error_and_the_bound() {
        assert_eq!(verdict(&[105.0], &[100.0, 101.0], 100, 0), Agreement::Inside);
        assert_eq!(verdict(&[120.0], &[100.0, 101.0], 100, 0), Agreement::Outside);
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        assert_eq!(verdict(&[100.0], &[100.0], 100, 1), Agreement::NotMeasured, "events were lost");
        assert_eq!(verdict(&[100.0], &[100.0], 3, 0), Agreement::NotMeasured, "too few");
        assert_eq!(verdict(&[100.0], &[60.0, 140.0], 100, 0), Agreement::NotMeasured, "boots differ");
        assert_eq!(verdict(&[100.0], &[], 100, 0), Agreement::NotMeasured, "never run");
    }

    #[test]
    fn a_value_that_both_places_lack_is_not_measured() {
        let nothing = vec![Measured { values: vec![("all".into(), None)], samples: None }];
        let judgement = judge(Bound::Absolute(9.0), &nothing, &nothing, 0);
        assert_eq!((judgement.verdict, judgement.error), (Agreement::NotMeasured, None));
    }

    #[test]
    fn a_value_that_one_place_lacks_is_outside() {
        let nothing = vec![Measured { values: vec![("all".into(), None)], samples: None }];
        let judgement = judge(Bound::Absolute(9.0), &nothing, &runs(&[1.0], None), 0);
        assert_eq!((judgement.verdict, judgement.error), (Agreement::Outside, Some(f64::INFINITY)));
    }
}
