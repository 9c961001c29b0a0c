//! How trials on this computer are asked for: on which CPUs, kept from others how, under which of the kernel's settings.

use std::str::FromStr;

use warmcore_schedulers::{Circumstances, SchedulerSpec, kernel_file};
use warmcore_topology::settings::{number, pairs, refusal, word};

use super::place::{Manner, release};
use super::state::Means;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// CPUs to run on: `all`, `smt-off`, or what [`cpus_of`](crate::circumstances::cpus_of) knows. Each with every scheduler.
    pub cpus: Vec<String>,
    /// How other CPUs are kept from it.
    pub means: Means,
    /// Frequency governors, each with all of the above.
    pub governor: Vec<String>,
    /// NUMA balancing, each with all of the above.
    pub numa_balancing: Vec<bool>,
    /// Files of the kernel, and what is written there before every trial.
    pub files: Vec<(String, String)>,
    /// End a sched_ext scheduler that is at work for each trial, and start it again.
    pub replace: bool,
    /// Rounds of all schedulers before the first trial, which do not count.
    pub warm_up_rounds: u32,
    /// Only say what would be changed.
    pub dry_run: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cpus: Vec::new(),
            means: Means::default(),
            governor: Vec::new(),
            numa_balancing: Vec::new(),
            files: Vec::new(),
            replace: false,
            warm_up_rounds: 1,
            dry_run: false,
        }
    }
}

const KEYS: [&str; 8] =
    ["cpus", "set-cpus", "governor", "numa-balancing", "set", "replace", "warm-up-rounds", "dry-run"];

/// What can be set, as help texts have it.
pub const HELP: &str = "\
cpus=CPUS (all, one-socket, one-node, one-llc, smt-off, or a list such as 0-3+8; several times: each with every scheduler), set-cpus=MEANS (how others are kept \
from them: affinity, which binds the command; partition of cpusets; offline), governor=A+B, numa-balancing=on+off (each with all of the above), \
set=PATH=VALUE (a file of the kernel to write before every trial; after a scheduler's @ before those of its column), replace (end a sched_ext scheduler that is at work for each trial, and start it again), \
warm-up-rounds=COUNT (that do not count; 1), dry-run (only say what would be changed)";

impl FromStr for Settings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for (key, value) in pairs(text, &["cpus", "set"])? {
            match (key, value) {
                ("cpus", Some(cpus)) => settings.cpus.push(cpus.replace('+', ",")),
                ("set-cpus", Some(text)) => {
                    let means =
                        [("affinity", Means::Affinity), ("partition", Means::Partition), ("offline", Means::Offline)];
                    settings.means = word(key, text, &means)?;
                }
                ("governor", Some(names)) => settings.governor.extend(names.split('+').map(str::to_owned)),
                ("numa-balancing", Some(switches)) => {
                    for switch in switches.split('+') {
                        settings.numa_balancing.push(word(key, switch, &[("on", true), ("off", false)])?);
                    }
                }
                ("set", Some(text)) => settings.files.push(kernel_file(text)?),
                ("replace", None) => settings.replace = true,
                ("dry-run", None) => settings.dry_run = true,
                ("warm-up-rounds", Some(count)) => settings.warm_up_rounds = number(key, count, 0, u32::MAX)?,
                (key, value) => return Err(refusal("this computer", key, value, &KEYS)),
            }
        }
        Ok(settings)
    }
}

impl Settings {
    /// Every scheduler under every combination of the circumstances that are asked for; as it is if none are, because a scheduler's own
    /// text may have some.
    pub fn configurations(&self, schedulers: Vec<SchedulerSpec>) -> Vec<SchedulerSpec> {
        if self.cpus.is_empty() && self.governor.is_empty() && self.numa_balancing.is_empty() {
            return schedulers;
        }
        let of = |scheduler: &SchedulerSpec| -> Vec<SchedulerSpec> {
            let mut all = vec![scheduler.circumstances().clone()];
            all = cross(all, &self.cpus, |cpus, circumstances| match cpus.as_str() {
                "all" => circumstances.cpus = None,
                "smt-off" => circumstances.smt_off = true,
                list => circumstances.cpus = Some(list.to_owned()),
            });
            all = cross(all, &self.governor, |governor, circumstances| circumstances.governor = Some(governor.clone()));
            all = cross(all, &self.numa_balancing, |on, circumstances| circumstances.numa_balancing = Some(*on));
            all.into_iter().map(|one| scheduler.under(one)).collect()
        };
        schedulers.iter().flat_map(of).collect()
    }

    /// How trials are made, with that program for real threads.
    pub fn manner(&self, runner: Vec<String>) -> Manner {
        Manner {
            release: release(),
            means: self.means,
            warm_up_rounds: self.warm_up_rounds,
            runner,
            settings: self.files.clone(),
            replace: self.replace,
        }
    }
}

/// Each of the circumstances with each value; as they are without any.
fn cross<T>(all: Vec<Circumstances>, values: &[T], set: impl Fn(&T, &mut Circumstances)) -> Vec<Circumstances> {
    if values.is_empty() {
        return all;
    }
    let with = |one: &Circumstances, value: &T| {
        let mut one = one.clone();
        set(value, &mut one);
        one
    };
    all.iter().flat_map(|one| values.iter().map(|value| with(one, value)).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_governor_is_combined_with_every_switch_of_numa_balancing_and_every_set_of_cpus() {
        let labels = |settings: &Settings| {
            let found = settings.configurations(vec![SchedulerSpec::parse("eevdf").unwrap()]);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(labels(&Settings::default()), ["eevdf"]);
        let settings = "cpus=all,cpus=0-1,governor=performance,numa-balancing=on+off".parse().unwrap();
        let expected = [
            "eevdf @ governor=performance numa_balancing=on",
            "eevdf @ governor=performance numa_balancing=off",
            "eevdf @ cpus=0-1 governor=performance numa_balancing=on",
            "eevdf @ cpus=0-1 governor=performance numa_balancing=off",
        ];
        assert_eq!(labels(&settings), expected);
        assert_eq!(labels(&"cpus=smt-off".parse().unwrap()), ["eevdf @ smt=off"]);
    }
}
