//! The workload's task groups as control groups with the cpu controller.
//!
//! Each is a child of the root group in threaded mode, so that threads of one process can be in different ones and memory stays
//! with the process. Groups within groups are beside each other here, as they are in the simulator. Source: the kernel's
//! `Documentation/admin-guide/cgroup-v2.rst`, "Threads" and "CPU".

use std::fs;

use warmcore_agent::files;

const ROOT: &str = "/sys/fs/cgroup";

/// How far shares may be from what was asked for before it is said: weights are whole hundredths of 1024 shares.
const SHARES_TOLERANCE: f64 = 0.01;

/// The groups of a run; gone when they are dropped.
#[derive(Default)]
pub struct Groups {
    made: Vec<String>,
    /// By the workload's group: the file to which a thread writes its number to join.
    pub joins: Vec<String>,
    /// What could not be had as it was asked for.
    pub warnings: Vec<(String, String, u32)>,
}

impl Groups {
    /// Makes a group for each of the workload's, of so many shares each; the root group is there.
    pub fn make(shares: &[Option<u32>]) -> Result<Self, String> {
        let mut groups = Self::default();
        if shares.iter().any(Option::is_some) {
            files::write(&format!("{ROOT}/cgroup.subtree_control"), "+cpu")
                .map_err(|reason| format!("task groups need the cpu controller of control groups: {reason}"))?;
        }
        for (number, shares) in shares.iter().enumerate() {
            let Some(shares) = shares else {
                groups.joins.push(format!("{ROOT}/cgroup.threads"));
                continue;
            };
            let path = format!("{ROOT}/workload-{number}");
            fs::create_dir(&path).map_err(|error| format!("cannot make the control group {path}: {error}"))?;
            groups.made.push(path.clone());
            files::write(&format!("{path}/cgroup.type"), "threaded")?;
            let file = format!("{path}/cpu.weight");
            files::write(&file, &weight(*shares).to_string())?;
            let read: u32 = files::read(&file)?.parse().map_err(|_| format!("{file} holds no number"))?;
            let got = f64::from(read) * 1024.0 / 100.0;
            if (got - f64::from(*shares)).abs() > SHARES_TOLERANCE * f64::from(*shares) {
                let what = format!("{shares} shares of a task group");
                groups.warnings.push((what, format!("the kernel's weight {read} is {got:.0} shares"), 1));
            }
            groups.joins.push(format!("{path}/cgroup.threads"));
        }
        Ok(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in &self.made {
            // One that is still used stays, which the next run's making of it says.
            let _ = fs::remove_dir(path);
        }
        if !self.made.is_empty() {
            let _ = files::write(&format!("{ROOT}/cgroup.subtree_control"), "-cpu");
        }
    }
}

/// `cpu.weight` of so many shares (`sched_weight_to_cgroup`): 100 is 1024.
fn weight(shares: u32) -> u64 {
    ((u64::from(shares) * 100 + 512) / 1024).clamp(1, 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_nearest_to_shares() {
        assert_eq!([2, 512, 1024, 1500, 262_144].map(weight), [1, 50, 100, 146, 10_000]);
    }
}
