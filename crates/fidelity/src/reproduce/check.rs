//! What stands for a published row: simulations, a figure that follows from them, and the band it must lie in.

use serde::Serialize;
use warmcore_schedulers::SchedulerSpec;

use crate::reproduce::published::PublishedRow;
use warmcore_lab::experiment::Observation;
use warmcore_lab::trial::Trial;

/// Whether a row is simulated.
pub enum Coverage {
    /// By these checks; all of them must hold.
    Checks(Vec<Check>),
    /// Not yet; this is missing.
    Missing(String),
}

impl Coverage {
    /// A row that cannot be simulated for want of this.
    #[must_use]
    pub fn missing(what: impl Into<String>) -> Self {
        Self::Missing(what.into())
    }

    /// The same, unless a run needs a scheduler or a tunable that this program does not have.
    #[must_use]
    pub fn if_known(self) -> Self {
        let Self::Checks(checks) = &self else { return self };
        let unknown =
            checks.iter().flat_map(|check| &check.runs).find_map(|run| SchedulerSpec::parse(&run.scheduler).err());
        match unknown {
            Some(error) => Self::Missing(error.to_string()),
            None => self,
        }
    }
}

/// A simulation, as it would be typed after `warmcore sim`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Run {
    /// Machine.
    pub machine: String,
    /// Workload.
    pub workload: String,
    /// Scheduler with its tunables.
    pub scheduler: String,
    /// End of the run even if tasks still run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_ns: Option<u64>,
    /// What is looked at besides the usual measures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observations: Vec<Observation>,
}

impl Run {
    /// A run to the workload's own end.
    #[must_use]
    pub fn new(machine: &str, workload: impl Into<String>, scheduler: &str) -> Self {
        Self {
            machine: machine.to_owned(),
            workload: workload.into(),
            scheduler: scheduler.to_owned(),
            max_time_ns: None,
            observations: Vec::new(),
        }
    }

    /// The same with something more looked at.
    #[must_use]
    pub fn observing(mut self, observations: &[Observation]) -> Self {
        self.observations = observations.to_vec();
        self
    }

    /// The command that repeats one trial of it.
    #[must_use]
    pub fn command(&self, seed: u64) -> String {
        let max_time = self.max_time_ns.map_or(String::new(), |ns| format!(" --max-time {ns}ns"));
        format!(
            "warmcore sim --machine '{}' --workload '{}' --scheduler '{}'{max_time} --seed {seed}",
            self.machine, self.workload, self.scheduler
        )
    }
}

/// How a row's figure follows from trial k of each of its runs, which have the same seed.
#[derive(Clone, Copy)]
pub enum Figure {
    /// A measure of the second run over that of the first.
    Ratio(&'static str),
    /// A measure of the first run over that of the second: times as a ratio of speeds.
    Inverse(&'static str),
    /// A measure of the only run, times a factor.
    Value(&'static str, f64),
    /// Anything else; the text says what.
    Other(&'static str, fn(&[&Trial]) -> Option<f64>),
    /// Of no trial: computed from the seed alone, by a simulation of its own.
    OfSeed(&'static str, fn(u64) -> Option<f64>),
}

impl Figure {
    /// The figure in one set of trials of a seed; `None` where a measure is missing.
    #[must_use]
    pub fn of(&self, trials: &[&Trial], seed: u64) -> Option<f64> {
        let measure = |index: usize, name: &str| trials.get(index)?.measure(name);
        let value = match self {
            Self::Ratio(name) => measure(1, name)? / measure(0, name)?,
            Self::Inverse(name) => measure(0, name)? / measure(1, name)?,
            Self::Value(name, factor) => measure(0, name)? * factor,
            Self::Other(_, figure) => figure(trials)?,
            Self::OfSeed(_, figure) => figure(seed)?,
        };
        // Zero over zero says nothing.
        (!value.is_nan()).then_some(value)
    }

    /// How it is computed, in words.
    #[must_use]
    pub fn definition(&self) -> String {
        match self {
            Self::Ratio(name) => format!("{name} of the second run over that of the first"),
            Self::Inverse(name) => format!("{name} of the first run over that of the second"),
            Self::Value(name, factor) if (factor - 1.0).abs() < f64::EPSILON => (*name).to_owned(),
            Self::Value(name, factor) => format!("{name} times {factor}"),
            Self::Other(definition, _) | Self::OfSeed(definition, _) => (*definition).to_owned(),
        }
    }
}

/// Where a figure must lie, and why there.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Band {
    /// Smallest figure inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Largest figure inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Why these.
    pub reason: &'static str,
}

impl Band {
    /// Between two values.
    #[must_use]
    pub fn within(low: f64, high: f64, reason: &'static str) -> Self {
        Self { low: Some(low), high: Some(high), reason }
    }

    /// At least this.
    #[must_use]
    pub fn at_least(low: f64, reason: &'static str) -> Self {
        Self { low: Some(low), high: None, reason }
    }

    /// At most this.
    #[must_use]
    pub fn at_most(high: f64, reason: &'static str) -> Self {
        Self { low: None, high: Some(high), reason }
    }

    /// Around a published value, by a fraction of it.
    #[must_use]
    pub fn around(value: f64, part: f64, reason: &'static str) -> Self {
        Self::within(value * (1.0 - part), value * (1.0 + part), reason)
    }

    /// Whether a figure lies inside.
    #[must_use]
    pub fn contains(&self, figure: f64) -> bool {
        self.low.is_none_or(|low| figure >= low) && self.high.is_none_or(|high| figure <= high)
    }
}

/// What the source says about a check's figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Stated {
    /// A number.
    Value(f64),
    /// From one number to another.
    Range([f64; 2]),
    /// Words alone: the band is our reading of them.
    Words,
}

impl Stated {
    /// The number or range of a ratio row.
    #[must_use]
    pub fn of_ratio(row: &PublishedRow) -> Self {
        row.value.map(Self::Value).or(row.range.map(Self::Range)).unwrap_or(Self::Words)
    }

    /// How far a figure is away, as a fraction of the stated one; 0 inside a range.
    #[must_use]
    pub fn error(&self, figure: f64) -> Option<f64> {
        let against = match *self {
            Self::Value(value) => value,
            Self::Range([low, high]) => figure.clamp(low, high),
            Self::Words => return None,
        };
        (against != 0.0).then(|| figure / against - 1.0)
    }
}

/// One comparison with a published row.
pub struct Check {
    /// What is compared, in a few words.
    pub title: String,
    /// What is simulated.
    pub runs: Vec<Run>,
    /// How the figure follows.
    pub figure: Figure,
    /// Unit of the figure; empty for a ratio.
    pub unit: &'static str,
    /// What the source says.
    pub stated: Stated,
    /// Where ours must lie.
    pub band: Band,
    /// Which parameter was fitted to this figure; it is shown then, and not scored.
    pub fitted: Option<&'static str>,
}

impl Check {
    /// A ratio of two runs that must lie in a band.
    #[must_use]
    pub fn ratio(title: impl Into<String>, runs: [Run; 2], figure: Figure, stated: Stated, band: Band) -> Self {
        Self { title: title.into(), runs: runs.into(), figure, unit: "", stated, band, fitted: None }
    }

    /// A figure of one run that must lie in a band.
    #[must_use]
    pub fn value(
        title: impl Into<String>,
        run: Run,
        (figure, unit): (Figure, &'static str),
        stated: Stated,
        band: Band,
    ) -> Self {
        Self { title: title.into(), runs: vec![run], figure, unit, stated, band, fitted: None }
    }

    /// The same, with what was fitted to it.
    #[must_use]
    pub fn fitted_to_it(mut self, parameter: &'static str) -> Self {
        self.fitted = Some(parameter);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_trial::trial;

    #[test]
    fn a_ratio_is_the_second_run_over_the_first() {
        let (first, second) = (trial("a", 0, &[("m", Some(2.0))]), trial("b", 0, &[("m", Some(3.0))]));
        assert_eq!(Figure::Ratio("m").of(&[&first, &second], 1), Some(1.5));
        assert_eq!(Figure::Inverse("m").of(&[&first, &second], 1), Some(2.0 / 3.0));
        assert_eq!(Figure::Value("m", 10.0).of(&[&first], 1), Some(20.0));
        assert_eq!(Figure::Ratio("n").of(&[&first, &second], 1), None);
        let nothing = trial("a", 0, &[("m", Some(0.0))]);
        assert_eq!(Figure::Ratio("m").of(&[&nothing, &nothing], 1), None);
    }

    #[test]
    fn bands_include_their_ends_and_may_be_open() {
        assert!(Band::within(1.0, 2.0, "").contains(1.0) && Band::within(1.0, 2.0, "").contains(2.0));
        assert!(!Band::within(1.0, 2.0, "").contains(2.1) && !Band::at_most(1.0, "").contains(1.1));
        assert!(Band::at_least(1.0, "").contains(f64::INFINITY) && !Band::at_least(1.0, "").contains(0.9));
    }

    #[test]
    fn the_error_counts_from_the_nearest_stated_value() {
        assert_eq!(Stated::Value(2.0).error(3.0), Some(0.5));
        assert_eq!(Stated::Range([1.0, 2.0]).error(1.5), Some(0.0));
        assert_eq!(Stated::Range([1.0, 2.0]).error(3.0), Some(0.5));
        assert_eq!(Stated::Words.error(3.0), None);
    }
}
