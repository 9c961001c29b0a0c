//! The suite's verdicts: one line per demand over all seeds.

use serde::Serialize;

use super::{Check, SuiteExperiment, SuiteOutcome};

/// An experiment's outcome from one seed.
#[derive(Clone, PartialEq, Debug)]
pub struct SeedOutcome {
    /// The seed.
    pub seed: u64,
    /// What was found.
    pub outcome: SuiteOutcome,
}

/// A demand over all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SuiteLine {
    /// The experiment: `X1`.
    pub experiment: String,
    /// What is measured.
    pub metric: String,
    /// The bound.
    pub bound: f64,
    /// Whether the measured value must not be below the bound, instead of above.
    pub at_least: bool,
    /// The worst value of all seeds; absent if some seed measured nothing.
    pub measured: Option<f64>,
    /// The seed it comes from.
    pub worst_seed: u64,
    /// Where it was found, for extremes.
    pub at: String,
    /// By seed, in order.
    pub values: Vec<Option<f64>>,
    /// Seeds that met the demand.
    pub seeds_inside: usize,
    /// Whether all did.
    pub inside: bool,
}

/// One line per demand of an experiment, in the experiment's order. Seeds that state a demand that others do not are a
/// fault of the experiment; such a demand counts with the seeds that state it.
pub fn lines(experiment: &SuiteExperiment, outcomes: &[SeedOutcome]) -> Vec<SuiteLine> {
    let mut lines: Vec<SuiteLine> = Vec::new();
    for SeedOutcome { seed, outcome } in outcomes {
        for check in &outcome.checks {
            match lines.iter_mut().find(|line| line.metric == check.metric) {
                Some(line) => line.add(*seed, check),
                None => {
                    let mut line = SuiteLine::new(experiment.id, check);
                    line.add(*seed, check);
                    lines.push(line);
                }
            }
        }
    }
    lines
}

impl SuiteLine {
    fn new(experiment: &str, check: &Check) -> Self {
        Self {
            experiment: experiment.to_owned(),
            metric: check.metric.clone(),
            bound: check.bound,
            at_least: check.at_least,
            measured: None,
            worst_seed: 0,
            at: String::new(),
            values: Vec::new(),
            seeds_inside: 0,
            inside: true,
        }
    }

    fn add(&mut self, seed: u64, check: &Check) {
        let value = check.measured.is_finite().then_some(check.measured);
        let worse = match (value, self.measured) {
            _ if self.values.is_empty() => true,
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(new), Some(old)) if self.at_least => new < old,
            (Some(new), Some(old)) => new > old,
        };
        if worse {
            (self.measured, self.worst_seed, self.at) = (value, seed, check.worst.clone());
        }
        self.values.push(value);
        self.seeds_inside += usize::from(check.holds());
        self.inside &= check.holds();
    }
}

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENTS;
    use super::*;

    fn outcome(seed: u64, measured: f64, at_least: bool) -> SeedOutcome {
        let check = Check { metric: "m".into(), bound: 1.0, at_least, measured, worst: format!("place {seed}") };
        SeedOutcome { seed, outcome: SuiteOutcome { checks: vec![check], points: Vec::new() } }
    }

    #[test]
    fn a_line_tells_the_worst_seed_and_holds_only_if_all_do() {
        let all = lines(&EXPERIMENTS[0], &[outcome(1, 0.5, false), outcome(2, 1.5, false), outcome(3, 0.2, false)]);
        assert_eq!(all.len(), 1);
        let line = &all[0];
        assert_eq!((line.measured, line.worst_seed, line.at.as_str()), (Some(1.5), 2, "place 2"));
        assert_eq!((line.seeds_inside, line.inside), (2, false));
        assert_eq!(line.values, [Some(0.5), Some(1.5), Some(0.2)]);
        let least = &lines(&EXPERIMENTS[0], &[outcome(1, 1.5, true), outcome(2, 1.2, true)])[0];
        assert_eq!((least.measured, least.inside), (Some(1.2), true));
    }

    #[test]
    fn a_seed_that_measured_nothing_is_the_worst() {
        let line = &lines(&EXPERIMENTS[0], &[outcome(1, 0.5, false), outcome(2, f64::NAN, false)])[0];
        assert_eq!((line.measured, line.worst_seed, line.inside), (None, 2, false));
        let line = &lines(&EXPERIMENTS[0], &[outcome(1, f64::NAN, false), outcome(2, 0.5, false)])[0];
        assert_eq!((line.measured, line.worst_seed, line.inside), (None, 1, false));
    }
}
