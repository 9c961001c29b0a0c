//! The workload's task groups as control groups with the cpu controller, and where one has CPUs of its own the cpuset controller.
//!
//! Each is in threaded mode, in the group in which it lies or in the root group, so that threads of one process can be in different ones
//! and memory stays with the process. Source: the kernel's `Documentation/admin-guide/cgroup-v2.rst`, "Threads" and "CPU".

use std::fs;
use std::path::Path;

use warmcore_agent::files;
use warmcore_agent::plan::GroupPlan;
use warmcore_trace::GroupCounters;
use warmcore_workload::ClampPercent;

const ROOT: &str = "/sys/fs/cgroup";

/// How far shares may be from what was asked for before it is said: weights are whole hundredths of 1024 shares.
const SHARES_TOLERANCE: f64 = 0.01;

/// The groups of a run; gone when they are dropped.
#[derive(Default)]
pub struct Groups {
    /// Directories, each after the one in which it lies.
    made: Vec<String>,
    /// By the workload's group: the file to which a thread writes its number to join.
    pub joins: Vec<String>,
    /// Controllers that they have, as `cgroup.subtree_control` takes them.
    controllers: &'static [&'static str],
    /// Groups with a quota: number, directory, and what its counters were before the run.
    limited: Vec<(u32, String, GroupCounters)>,
    /// What could not be had as it was asked for.
    pub warnings: Vec<(String, String, u32)>,
}

impl Groups {
    /// Makes a group for each of the workload's; the root group is there.
    pub fn make(plans: &[Option<GroupPlan>]) -> Result<Self, String> {
        let has_cpus = plans.iter().flatten().any(|plan| plan.cpuset_cpus.is_some());
        let mut groups = Self::default();
        groups.controllers = if has_cpus { &["cpu", "cpuset"] } else { &["cpu"] };
        let paths: Vec<String> = (0..plans.len()).map(|number| path(plans, number)).collect::<Result<_, _>>()?;
        // A group's path is longer than that of the group in which it lies.
        let mut order: Vec<usize> = (0..plans.len()).filter(|&number| plans[number].is_some()).collect();
        order.sort_by_key(|&number| (paths[number].matches('/').count(), number));
        for number in order {
            if let Some(plan) = &plans[number] {
                groups.make_one(&paths[number], plan)?;
                if let Some(bounds) = &plan.cpu_uclamp {
                    clamp(&paths[number], bounds)?;
                }
                if let Some(cpu_max) = plan.cpu_max_us {
                    limit(&paths[number], cpu_max)?;
                    let before = counters(&paths[number])?;
                    groups.limited.push((number as u32, paths[number].clone(), before));
                }
            }
        }
        groups.joins = paths.into_iter().map(|path| format!("{path}/cgroup.threads")).collect();
        Ok(groups)
    }

    /// What came of quotas since the groups were made, by number.
    pub fn counters(&self) -> Result<Vec<(u32, GroupCounters)>, String> {
        let since =
            |(number, path, before): &(u32, String, GroupCounters)| Ok((*number, counters(path)?.since(before)));
        self.limited.iter().map(since).collect()
    }

    fn make_one(&mut self, path: &str, plan: &GroupPlan) -> Result<(), String> {
        let above = path.rsplit_once('/').map_or(ROOT, |(above, _)| above);
        for controller in self.controllers {
            files::write(&format!("{above}/cgroup.subtree_control"), &format!("+{controller}")).map_err(|reason| {
                format!("task groups need the {controller} controller of control groups: {reason}")
            })?;
        }
        fs::create_dir(path).map_err(|error| format!("cannot make the control group {path}: {error}"))?;
        self.made.push(path.to_owned());
        files::write(&format!("{path}/cgroup.type"), "threaded")?;
        if let Some(cpus) = &plan.cpuset_cpus {
            write_and_read(&format!("{path}/cpuset.cpus"), cpus)?;
        }
        if plan.cpu_idle {
            return write_and_read(&format!("{path}/cpu.idle"), "1");
        }
        let (file, shares) = (format!("{path}/cpu.weight"), plan.shares);
        files::write(&file, &weight(shares).to_string())?;
        let read: u32 = files::read(&file)?.parse().map_err(|_| format!("{file} holds no number"))?;
        let got = shares_of(read);
        if (got - f64::from(shares)).abs() > SHARES_TOLERANCE * f64::from(shares) {
            let what = format!("{shares} shares of a task group");
            self.warnings.push((what, format!("the kernel's weight {read} is {got:.0} shares"), 1));
        }
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            // One that is still used stays, which the next run's making of it says.
            let _ = fs::remove_dir(path);
        }
        for controller in self.controllers.iter().filter(|_| !self.made.is_empty()) {
            let _ = files::write(&format!("{ROOT}/cgroup.subtree_control"), &format!("-{controller}"));
        }
    }
}

/// Gives a group its quota, and reads it back.
fn limit(path: &str, [quota_us, period_us, burst_us]: [u64; 3]) -> Result<(), String> {
    let quota = format!("{quota_us} {period_us}");
    // A burst can only be written beside its quota, and is 0 before.
    let files = [("cpu.max", quota), ("cpu.max.burst", burst_us.to_string())];
    for (name, value) in files.into_iter().filter(|(name, _)| *name == "cpu.max" || burst_us > 0) {
        write_and_read(&format!("{path}/{name}"), &value)?;
    }
    Ok(())
}

/// Writes a value that the kernel has to show again.
fn write_and_read(file: &str, value: &str) -> Result<(), String> {
    files::write(file, value)?;
    let read = files::read(file)?;
    if read.trim() == value { Ok(()) } else { Err(format!("{file} is {} after {value} was written", read.trim())) }
}

/// Gives a group its bounds of utilisation, and reads them back. The kernel shows a bound that rounds to a whole CPU as `max`.
fn clamp(path: &str, [min, max]: &[String; 2]) -> Result<(), String> {
    for (name, value) in [("cpu.uclamp.max", max), ("cpu.uclamp.min", min)] {
        let file = format!("{path}/{name}");
        if !Path::new(&file).exists() {
            return Err(format!("the kernel has no {file}: it is built without CONFIG_UCLAMP_TASK_GROUP"));
        }
        files::write(&file, value)?;
        let read = files::read(&file)?;
        let utilisation = |text: &str| ClampPercent::parse(text.trim()).map(ClampPercent::utilisation).ok();
        if utilisation(&read) != utilisation(value) {
            return Err(format!("{file} is {} after {value} was written", read.trim()));
        }
    }
    Ok(())
}

/// What the kernel counts of a group's quota (`cpu.stat`).
fn counters(path: &str) -> Result<GroupCounters, String> {
    let file = format!("{path}/cpu.stat");
    parse_counters(&files::read(&file)?).ok_or_else(|| format!("{file} does not report a quota"))
}

fn parse_counters(text: &str) -> Option<GroupCounters> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    let [periods, throttled_periods] = [value("nr_periods")?, value("nr_throttled")?];
    Some(GroupCounters { periods, throttled_periods, throttled_ns: value("throttled_usec")? * 1_000 })
}

/// Directory of a group.
fn path(plans: &[Option<GroupPlan>], number: usize) -> Result<String, String> {
    let mut parts = Vec::new();
    let mut group = Some(number);
    while let Some(plan) = group.and_then(|number| plans.get(number).and_then(Option::as_ref)) {
        parts.push(format!("/workload-{}", group.unwrap_or_default()));
        if parts.len() > plans.len() {
            return Err(format!("task group {number} lies in itself"));
        }
        group = plan.parent.map(|parent| parent as usize);
    }
    Ok(std::iter::once(ROOT.to_owned()).chain(parts.into_iter().rev()).collect())
}

/// `cpu.weight` of so many shares (`sched_weight_to_cgroup`): 100 is 1024.
fn weight(shares: u32) -> u64 {
    ((u64::from(shares) * 100 + 512) / 1024).clamp(1, 10_000)
}

/// Shares of a `cpu.weight`, whole as in the kernel (`sched_weight_from_cgroup`).
fn shares_of(weight: u32) -> f64 {
    (f64::from(weight) * 1024.0 / 100.0).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_nearest_to_shares() {
        assert_eq!([1, 2, 3, 100].map(shares_of), [10.0, 20.0, 31.0, 1024.0]);
        assert_eq!([2, 512, 1024, 1500, 262_144].map(weight), [1, 50, 100, 146, 10_000]);
    }

    #[test]
    fn counters_of_a_quota_are_found_among_the_others() {
        let text = "usage_usec 100\nuser_usec 80\nnr_periods 12\nnr_throttled 3\nthrottled_usec 45\nnr_bursts 0\n";
        let expected = GroupCounters { periods: 12, throttled_periods: 3, throttled_ns: 45_000 };
        assert_eq!(parse_counters(text), Some(expected));
        assert_eq!(parse_counters("usage_usec 100\n"), None);
    }

    #[test]
    fn groups_lie_in_each_other_as_in_the_workload() {
        let plan = |parent| {
            Some(GroupPlan {
                shares: 1024,
                parent,
                cpu_max_us: None,
                cpu_uclamp: None,
                cpu_idle: false,
                cpuset_cpus: None,
            })
        };
        let plans = [plan(Some(2)), None, plan(None), plan(Some(0)), plan(Some(1))];
        let paths: Vec<String> = (0..5).map(|number| path(&plans, number).unwrap()).collect();
        let expected =
            ["/workload-2/workload-0", "", "/workload-2", "/workload-2/workload-0/workload-3", "/workload-4"];
        assert_eq!(paths, expected.map(|path| format!("{ROOT}{path}")));
        assert!(path(&[plan(Some(1)), plan(Some(0))], 0).unwrap_err().contains("in itself"));
    }
}
