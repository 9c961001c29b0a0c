//! Cpusets: the CPUs to which a task group confines its tasks (`cpuset.cpus`).
//!
//! A group has what its list leaves of the CPUs of the group above, or all of those where that is nothing. A task has what its group leaves of the
//! mask that it asked for, or all CPUs of the group where that is nothing. A call that asks for CPUs of which the group has none fails with `EINVAL`.
//! Who changes groups leaves a CPU that the new one does not have at once.
//!
//! Not modelled: lists that change in a run, partitions (`cpuset.cpus.partition`) and memory nodes (`cpuset.mems`). A group whose CPUs are all
//! offline confines nobody; in the kernel it has those of the group above.
//!
//! Source: Linux 7.2 `kernel/cgroup/cpuset.c` (`compute_effective_cpumask`, `cpuset_attach_task`), `kernel/sched/syscalls.c`
//! (`__sched_setaffinity`), `kernel/sched/core.c` (`__set_cpus_allowed_ptr_locked`); as a guest of 7.2.13 does (`results/2026-12-01-2vcpu-cpusets`).

use warmcore_topology::{CpuSet, Machine};
use warmcore_workload::{Affinity, GroupId, Task, Workload};

use crate::error::SetupError;
use crate::setup::{Setup, online};

/// Nothing is left of a mask.
const NOTHING: u32 = u32::MAX;

/// The CPUs of a group, if it or one above has a list.
fn cpuset(machine: &Machine, workload: &Workload, group: Option<GroupId>) -> Option<CpuSet> {
    let group = &workload.groups[group?.index()];
    let above = cpuset(machine, workload, group.parent);
    let Some(list) = &group.cpus else { return above };
    let own = Affinity::OsCpus(list.clone()).on(machine);
    let left = above.as_ref().map_or_else(|| own.clone(), |above| own.intersection(above));
    if left.is_empty() { above } else { Some(left) }
}

/// What cpusets leave of the masks with which tasks begin.
///
/// # Errors
/// A CPU of a list that the machine does not have, and a task to which nothing is left.
pub(crate) fn confine(machine: &Machine, workload: &Workload, asked: &[CpuSet]) -> Result<Vec<CpuSet>, SetupError> {
    for group in &workload.groups {
        let unknown = group.cpus.iter().flatten().find(|&&cpu| machine.cpu_by_os_index(cpu).is_none());
        if let Some(&cpu) = unknown {
            return Err(SetupError::CpusetCpu { group: group.name.clone(), cpu, online: online(machine) });
        }
    }
    let of_task = |(task, asked): (&Task, &CpuSet)| {
        let Some(cpus) = cpuset(machine, workload, task.group) else { return Ok(asked.clone()) };
        // Isolated CPUs are out of the mask that all begin with, not of a group's.
        let left = if task.affinity == Affinity::All { cpus } else { asked.intersection(&cpus) };
        let group = || task.group.map_or(String::new(), |group| workload.groups[group.index()].name.clone());
        match left.is_empty() {
            true => Err(SetupError::OutsideCpuset { task: task.name.clone(), group: group() }),
            false => Ok(left),
        }
    };
    workload.tasks.iter().zip(asked).map(of_task).collect()
}

impl Setup<'_> {
    /// Finds what the cpuset of each group leaves of each restriction.
    pub(crate) fn plan_cpusets(&mut self) {
        self.within.clear();
        if self.workload.groups.iter().all(|group| group.cpus.is_none()) {
            return;
        }
        for group in 0..self.workload.groups.len() {
            let mut masks = Vec::new();
            if let Some(cpus) = cpuset(self.machine, self.workload, Some(GroupId(group as u32))) {
                for asked in 0..self.restrictions.len() {
                    let left = self.restrictions[asked].intersection(&cpus);
                    masks.push(if left.is_empty() { NOTHING } else { self.intern(&left) });
                }
            }
            self.within.push(masks);
        }
    }

    /// What the cpuset of a group leaves of a restriction; `None` if that is nothing.
    pub(crate) fn left_of(&self, group: Option<u32>, asked: u32) -> Option<u32> {
        let masks = group.and_then(|group| self.within.get(group as usize));
        let left = masks.and_then(|masks| masks.get(asked as usize)).copied().unwrap_or(asked);
        (left != NOTHING).then_some(left)
    }

    /// The mask of a task of a group that asked for a restriction.
    pub(crate) fn mask_in(&self, group: Option<u32>, asked: u32) -> u32 {
        let of_group = group.and_then(|group| self.within.get(group as usize)?.first()).copied();
        match of_group {
            Some(all) if asked == self.everybody => all,
            of_group => self.left_of(group, asked).or(of_group).unwrap_or(asked),
        }
    }

    /// How many CPUs the cpuset of a group has, if it has one (`cpuset_num_cpus`).
    pub(crate) fn cpuset_len(&self, group: usize) -> Option<u32> {
        let all = *self.within.get(group)?.first()?;
        Some(self.restrictions[all as usize].len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use warmcore_topology::resolve;
    use warmcore_workload::{Options, from_rtapp};

    use super::*;

    /// A setup's first task's mask, or why there is none.
    fn mask(task: &str, groups: &str) -> Result<String, String> {
        let machine = resolve("1s1n1l4c1t").unwrap();
        let text = format!(r#"{{"tasks": {{"a": {{"run": 5, {task}}}}}, "warmcore": {{"groups": [{groups}]}}}}"#);
        let workload = from_rtapp("test", &text, &Options::default()).map_err(|error| error.to_string())?;
        let setup = Setup::new(&machine, &workload, 1).map_err(|error| error.to_string())?;
        Ok(setup.restrictions[setup.template_restrictions[0] as usize].to_string())
    }

    #[test]
    fn masks_are_what_lists_leave_of_what_is_asked_for() {
        let pod = r#"{"name": "/pod", "cpuset_cpus": "0-2"}"#;
        let of = |task, inner: &str| mask(task, &format!("{pod}{inner}")).unwrap();
        assert_eq!(of(r#""taskgroup": "/pod""#, ""), "0-2");
        assert_eq!(of(r#""taskgroup": "/pod", "cpus": [2, 3]"#, ""), "2");
        assert_eq!(of(r#""taskgroup": "/pod/in""#, r#", {"name": "/pod/in", "cpuset_cpus": "1,3"}"#), "1");
        assert_eq!(of(r#""taskgroup": "/pod/in""#, r#", {"name": "/pod/in", "cpuset_cpus": "3"}"#), "0-2");
    }

    /// `cpuset_attach_task` gives a task that asked for no CPUs those of the group, isolated ones too.
    #[test]
    fn a_group_gives_its_tasks_isolated_cpus() {
        let machine = resolve("1s1n1l4c1t").unwrap();
        let text = r#"{"tasks": {"a": {"run": 5, "taskgroup": "/pod"}, "b": {"run": 5}, "c": {"run": 5, "taskgroup": "/pod", "cpus": [1]}},
            "warmcore": {"isolcpus": "2-3", "groups": [{"name": "/pod", "cpuset_cpus": "1-3"}]}}"#;
        let workload = from_rtapp("isolated", text, &Options::default()).unwrap();
        let setup = Setup::new(&machine, &workload, 1).unwrap();
        let mask = |restriction: u32| setup.restrictions[restriction as usize].to_string();
        let masks = [0, 1, 2].map(|task| mask(setup.template_restrictions[task]));
        assert_eq!(masks, ["1-3", "0-1", "1"]);
        let after_a_change = [0, 2].map(|task| mask(setup.mask_in(Some(0), setup.template_asked[task])));
        assert_eq!(after_a_change, ["1-3", "1"]);
    }

    #[test]
    fn lists_that_no_kernel_takes_are_refused_and_so_are_tasks_to_which_nothing_is_left() {
        let problem = |task, groups| mask(task, groups).unwrap_err();
        let unknown = problem(r#""taskgroup": "/pod""#, r#"{"name": "/pod", "cpuset_cpus": "2-5"}"#);
        assert!(unknown.contains("CPU 4 in \"cpuset_cpus\"") && unknown.contains("0-3"), "{unknown}");
        let outside = problem(r#""taskgroup": "/pod", "cpus": [3]"#, r#"{"name": "/pod", "cpuset_cpus": "0-2"}"#);
        assert!(outside.contains("task `a` may use none of the CPUs"), "{outside}");
        for (groups, words) in [
            (r#"{"name": "/pod", "cpuset_cpus": ""}"#, "is empty"),
            (r#"{"name": "/pod", "cpuset_cpus": "2-x"}"#, "not a number"),
            (r#"{"name": "/", "cpuset_cpus": "0"}"#, "the root group has no"),
            (r#"{"name": "/pods", "cpuset_cpus": "0"}"#, "no task is in it"),
        ] {
            let problem = problem(r#""taskgroup": "/pod""#, groups);
            assert!(problem.contains(words), "{problem}");
        }
    }
}
