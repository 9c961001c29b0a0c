//! The inventory of the host on which an experiment was run. It explains speed, never results: a simulated result does
//! not depend on anything in it, which is why it is kept apart from the files that are compared and summed.
//!
//! Reads `/proc` only. Something that cannot be read is `None`, not an error: a missing inventory never spoils a run.

use std::fs;

use serde::{Deserialize, Serialize};

/// Version of this document.
pub const SCHEMA: &str = "warmcore-environment-1";

/// The host, and when and how the run happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// [`SCHEMA`].
    pub schema: String,
    /// Host name.
    pub host: Option<String>,
    /// Kernel release, as `uname -r`.
    pub kernel_release: Option<String>,
    /// Kernel version, as `uname -v`.
    pub kernel_version: Option<String>,
    /// Processor model, of the first CPU.
    pub cpu_model: Option<String>,
    /// CPUs this process may use.
    pub cpus_allowed: Option<String>,
    /// Total memory, bytes.
    pub memory_bytes: Option<u64>,
    /// One-minute load average at the start.
    pub load_average: Option<f64>,
    /// Boot id: runs of one boot share it.
    pub boot_id: Option<String>,
    /// Instruction set the program was built for.
    pub architecture: String,
    /// Whether the program was built with optimisation and without checks.
    pub optimised: bool,
    /// The command line.
    pub command: Vec<String>,
    /// Number of trials run at the same time.
    pub jobs: usize,
    /// Start of the run, seconds since 1970, UTC.
    pub started_unix_s: u64,
    /// End of the run, if it ended.
    pub finished_unix_s: Option<u64>,
    /// Trials run now, and not taken over from an earlier start.
    pub trials_run: usize,
    /// Wall-clock time of all trials run now, summed, in seconds.
    pub trial_seconds: f64,
    /// Largest resident memory of this process, bytes.
    pub peak_memory_bytes: Option<u64>,
}

impl Environment {
    /// Takes the inventory at the start of a run.
    pub fn at_start(command: Vec<String>, jobs: usize, started_unix_s: u64) -> Self {
        Self {
            schema: SCHEMA.into(),
            host: line("/proc/sys/kernel/hostname"),
            kernel_release: line("/proc/sys/kernel/osrelease"),
            kernel_version: line("/proc/sys/kernel/version"),
            cpu_model: field("/proc/cpuinfo", "model name"),
            cpus_allowed: field("/proc/self/status", "Cpus_allowed_list"),
            memory_bytes: kibibytes("/proc/meminfo", "MemTotal"),
            load_average: line("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            boot_id: line("/proc/sys/kernel/random/boot_id"),
            architecture: std::env::consts::ARCH.into(),
            optimised: !cfg!(debug_assertions),
            command,
            jobs,
            started_unix_s,
            finished_unix_s: None,
            trials_run: 0,
            trial_seconds: 0.0,
            peak_memory_bytes: None,
        }
    }

    /// Completes it at the end of a run.
    pub fn at_end(&mut self, finished_unix_s: u64, trials_run: usize, trial_seconds: f64) {
        self.finished_unix_s = Some(finished_unix_s);
        self.trials_run = trials_run;
        self.trial_seconds = trial_seconds;
        self.peak_memory_bytes = kibibytes("/proc/self/status", "VmHWM");
    }
}

/// The first line of a file.
fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// The value of the first `key : value` line of a file.
fn field(path: &str, key: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// The value of a `key: N kB` line, in bytes.
fn kibibytes(path: &str, key: &str) -> Option<u64> {
    field(path, key)?.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_absent() {
        assert_eq!(line("/nonexistent"), None);
        assert_eq!(field("/proc/self/status", "No such field"), None);
    }

    #[test]
    fn the_inventory_survives_its_own_document() {
        let mut environment = Environment::at_start(vec!["warmcore".into()], 2, 1);
        environment.at_end(2, 3, 0.5);
        let text = serde_json::to_string(&environment).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), environment);
    }
}
