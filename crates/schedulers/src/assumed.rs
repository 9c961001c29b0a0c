//! Costs of schedulers that nobody measured: the defaults of tunables that a scheduler's row names. `--sensitivity` varies them, as it does a
//! machine's.

use crate::spec::SchedulerSpec;
use crate::tunables::TunableError;

impl SchedulerSpec {
    /// Names and values of the tunables that are costs which nobody measured. What a text sets is the user's, and none of them.
    #[must_use]
    pub fn assumed(&self) -> Vec<(&'static str, u64)> {
        let all = self.info().tunables().zip(self.resolved());
        let assumed = all.filter(|(tunable, (_, value))| {
            self.info().assumed.contains(&tunable.name) && *value == tunable.default && *value > 0
        });
        assumed.map(|(_, named)| named).collect()
    }

    /// The same scheduler with a tunable times a factor.
    ///
    /// # Errors
    /// When it has no such tunable, or the value would be out of range.
    pub fn scaled(&self, name: &str, factor: f64) -> Result<Self, TunableError> {
        let value = self.resolved().into_iter().find(|(own, _)| *own == name).map_or(0, |(_, value)| value);
        let mut scaled = self.clone();
        scaled.set(name, &(value as f64 * factor).round().to_string())?;
        Ok(scaled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::list;

    /// `--sensitivity` varies them, so none may be missing.
    #[test]
    fn what_a_tunable_calls_assumed_is_a_cost_that_nobody_measured_until_it_is_set() {
        for info in list() {
            for tunable in info.tunables() {
                assert_eq!(tunable.doc.ends_with("Assumed."), info.assumed.contains(&tunable.name), "{tunable:?}");
            }
        }
        let ule = SchedulerSpec::parse("ule").unwrap();
        assert_eq!(ule.assumed(), [("visit_ns", 50)]);
        assert!(SchedulerSpec::parse("ule:visit_ns=20").unwrap().assumed().is_empty());
        assert_eq!(ule.scaled("visit_ns", 2.0).unwrap().to_string(), "ule:visit_ns=100");
        assert!(ule.scaled("visit_ns", 1e6).is_err() && ule.scaled("hertz", 2.0).is_err());
    }
}
