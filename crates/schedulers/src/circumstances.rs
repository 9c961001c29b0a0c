//! Under which circumstances a place runs a scheduler, where it has the choice: on which CPUs, at which frequencies, with or without NUMA
//! balancing. They are part of a scheduler's text, so that a comparison has one column for each combination.
//!
//! What the words mean, and which can be had, the place says. The simulator and guests have none of them.

use std::fmt;

/// What stands between a scheduler and its circumstances.
pub(crate) const SEPARATOR: &str = " @ ";

/// Circumstances that were chosen; the default is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Circumstances {
    /// CPUs to run on: `one-socket`, `smt-off` or a list of the system's numbers; all if there is none.
    pub cpus: Option<String>,
    /// Frequency governor of these CPUs; as it is if there is none.
    pub governor: Option<String>,
    /// Whether NUMA balancing is on; as it is if that is not said.
    pub numa_balancing: Option<bool>,
    /// A second time what is there already, to see by how much it differs from itself.
    pub again: bool,
}

impl Circumstances {
    /// Whether none are chosen.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Reads what [`Display`](fmt::Display) writes: words such as `cpus=0-3`, with spaces between them.
    ///
    /// # Errors
    /// The word that is none of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("cpus", cpus)) if !cpus.is_empty() => found.cpus = Some(cpus.to_owned()),
                Some(("governor", governor)) if !governor.is_empty() => found.governor = Some(governor.to_owned()),
                Some(("numa_balancing", "on")) => found.numa_balancing = Some(true),
                Some(("numa_balancing", "off")) => found.numa_balancing = Some(false),
                None if word == "again" => found.again = true,
                _ => return Err(word.to_owned()),
            }
        }
        Ok(found)
    }
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: &bool| format!("numa_balancing={}", if *on { "on" } else { "off" });
        let words = [
            self.cpus.as_ref().map(|cpus| format!("cpus={cpus}")),
            self.governor.as_ref().map(|governor| format!("governor={governor}")),
            self.numa_balancing.as_ref().map(switch),
            self.again.then(|| "again".to_owned()),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use crate::SchedulerSpec;

    #[test]
    fn circumstances_are_read_as_they_are_written() {
        for text in [
            "eevdf @ cpus=0-3,8",
            "cache-aware:aggr_tolerance=100 @ cpus=one-socket governor=performance numa_balancing=off",
            "scx:/usr/bin/scx_lavd --performance @ again",
        ] {
            assert_eq!(SchedulerSpec::parse(text).unwrap().to_string(), text);
        }
        for text in ["scx:/bin/x \t@ again", "scx:/bin/x a @", "scx:/bin/x @ y @ again"] {
            let message = SchedulerSpec::parse(text).unwrap_err().to_string();
            assert!(message.contains('@'), "{text}: {message}");
        }
        assert_ne!(SchedulerSpec::parse("eevdf @ again").unwrap(), SchedulerSpec::parse("eevdf").unwrap());
    }

    #[test]
    fn a_word_that_is_no_circumstance_is_named() {
        let message = SchedulerSpec::parse("eevdf @ cpus=0 fast").unwrap_err().to_string();
        assert!(message.contains("`fast`") && message.contains("cpus=LIST"), "{message}");
    }
}
