//! What schedulers decided and why, counted.

use std::collections::BTreeSet;

use serde::Serialize;
use warmcore_statistics::Sample;

use crate::trial::Trial;

/// How often a scheduler took one decision.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DecisionCount {
    /// What was decided, such as `aggregation refused`.
    pub what: String,
    /// The reason, such as `more threads than cores`.
    pub why: String,
    /// How often, by trial.
    pub points: Vec<u64>,
    /// Median over the trials.
    pub median: f64,
}

impl DecisionCount {
    /// `aggregation refused 412 times: more threads than cores`.
    pub fn in_words(&self) -> String {
        let times = match self.median.round() as u64 {
            0 => "in some trials".to_owned(),
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        format!("{} {times}: {}", self.what, self.why)
    }
}

/// Decisions taken in any of a scheduler's trials, by subject and reason.
pub fn of_trials(trials: &[Trial]) -> Vec<DecisionCount> {
    let reasons = trials.iter().flat_map(|trial| &trial.decisions);
    let all = reasons.flat_map(|(what, reasons)| reasons.iter().map(move |(why, count)| (what, why, *count)));
    let taken: BTreeSet<(&String, &String)> =
        all.filter(|(.., count)| *count > 0).map(|(what, why, _)| (what, why)).collect();
    let count_of = |(what, why): (&String, &String)| {
        let of_trial = |trial: &Trial| trial.decisions.get(what).and_then(|reasons| reasons.get(why)).copied();
        let points: Vec<u64> = trials.iter().map(|trial| of_trial(trial).unwrap_or(0)).collect();
        let values: Vec<f64> = points.iter().map(|&count| count as f64).collect();
        // Counts are finite numbers.
        let median = Sample::new(&values).ok().and_then(|sample| sample.median()).unwrap_or(0.0);
        DecisionCount { what: what.clone(), why: why.clone(), points, median }
    };
    taken.into_iter().map(count_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::tests::trial;

    #[test]
    fn decisions_are_counted_by_trial_and_told_with_their_reason() {
        let trials: Vec<Trial> = [3, 5, 400]
            .into_iter()
            .map(|count| {
                let decisions = [("refused", "full", count), ("pulled", "home", 0), ("dropped", "late", count / 400)];
                let reasons = |why: &str, count| [(why.to_owned(), count)].into_iter().collect();
                let decisions =
                    decisions.into_iter().map(|(what, why, count)| (what.to_owned(), reasons(why, count))).collect();
                Trial { decisions, ..trial("cache-aware", 0, &[]) }
            })
            .collect();
        let counts = of_trials(&trials);
        assert_eq!(counts.len(), 2, "what never happened is left out");
        assert_eq!(counts[1].points, [3, 5, 400]);
        let words: Vec<String> = counts.iter().map(DecisionCount::in_words).collect();
        assert_eq!(words, ["dropped in some trials: late", "refused 5 times: full"]);
        let once = DecisionCount { median: 1.0, ..counts[0].clone() };
        assert_eq!(once.in_words(), "dropped once: late");
    }
}
