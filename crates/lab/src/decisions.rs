//! What schedulers decided and why, counted: names of decisions are `what: why`.

use std::collections::BTreeMap;

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
    #[must_use]
    pub fn in_words(&self) -> String {
        let times = match self.median.round() as u64 {
            0 => "in some trials".to_owned(),
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        format!("{} {times}: {}", self.what, self.why)
    }
}

/// Decisions taken in any of a scheduler's trials, by name.
#[must_use]
pub fn of_trials(trials: &[Trial]) -> Vec<DecisionCount> {
    let taken = trials.iter().flat_map(|trial| &trial.decisions).filter(|(_, count)| **count > 0);
    let names: BTreeMap<&str, ()> = taken.map(|(name, _)| (name.as_str(), ())).collect();
    let count_of = |name: &str| {
        let points: Vec<u64> = trials.iter().map(|trial| trial.decisions.get(name).copied().unwrap_or(0)).collect();
        let values: Vec<f64> = points.iter().map(|&count| count as f64).collect();
        // Counts are finite numbers.
        let median = Sample::new(&values).ok().and_then(|sample| sample.summary().median).unwrap_or(0.0);
        let (what, why) = name.split_once(": ").unwrap_or((name, ""));
        DecisionCount { what: what.to_owned(), why: why.to_owned(), points, median }
    };
    names.into_keys().map(count_of).collect()
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
                let decisions = [("refused: full", count), ("pulled: home", 0), ("dropped: late", count / 400)];
                let decisions = decisions.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
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
