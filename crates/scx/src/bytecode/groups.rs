//! Control groups in memory: what programs read of them and what leads from one to another.
//!
//! By number: the root group is 0, a group of the workload its index and 1. Identifiers (`kn->id`) are from 1 on in the order in which a kernel
//! would make them, each group behind the one in which it lies; a kernel's, where files have numbers too, are larger.

use std::iter::successors;
use std::sync::Arc;

use warmcore_topology::CpuSet;
use warmcore_trace::TaskId;

use crate::bytecode::host::Host;
use crate::bytecode::operations::Bytecode;
use crate::groups::{self, GroupCall};
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;

/// Groups that there may be, the root included.
const MOST_GROUPS: u32 = 1024;

/// Bytes of each structure of a group, more than any kernel's: the cgroup, its set of controllers, its task group, its directory with the cpuset and the
/// name.
const PART: u64 = 8192;
/// Where in the last of them the cpuset lies, and where the masks do that it points to.
const CPUSET: u64 = 2048;
const CPUSET_MASKS: [u64; 2] = [4096, 4096 + 1024];
const GROUP_BYTES: u64 = 4 * PART;

/// Bytes of them all.
pub(super) const GROUPS_BYTES: u64 = MOST_GROUPS as u64 * GROUP_BYTES;

/// Bytes of a name with its end (`NAME_MAX`).
const NAME_BYTES: u64 = 256;

/// Errors are the numbers up to this one, negative (`MAX_ERRNO`).
const MAX_ERRNO: i32 = 4095;

/// How groups are walked (`BPF_CGROUP_ITER_*`), beside the children of one.
const DESCENDANTS_PRE: u64 = 2;
const DESCENDANTS_POST: u64 = 3;
const ANCESTORS_UP: u64 = 4;

/// The groups of a run.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    /// Address of the root's structures; those of the others follow.
    base: u64,
    /// By number: the group in which it lies, of the root itself, and how deep that is.
    above: Vec<(u32, u32)>,
    /// All numbers, each behind the group in which it lies, and each before it.
    outer_first: Vec<u32>,
    inner_first: Vec<u32>,
}

impl Groups {
    /// The root alone, at an address with room for all.
    pub(super) fn new(base: u64) -> Self {
        Self { base, above: vec![(0, 0)], outer_first: vec![0], inner_first: vec![0] }
    }

    fn number(&self, group: Option<u32>) -> u32 {
        group.map(|group| group + 1).filter(|&number| (number as usize) < self.above.len()).unwrap_or(0)
    }

    fn address(&self, number: u32) -> u64 {
        self.base + u64::from(number) * GROUP_BYTES
    }

    /// The group whose `struct cgroup` lies there.
    pub(super) fn at(&self, address: u64) -> Option<u32> {
        let distance = address.checked_sub(self.base)?;
        let number = distance / GROUP_BYTES;
        (distance % GROUP_BYTES == 0 && number < self.above.len() as u64).then_some(number as u32)
    }

    /// A group, the one in which it lies, and so on to the root.
    fn upwards(&self, number: u32) -> impl Iterator<Item = u32> {
        successors(Some(number), move |&number| (number > 0).then(|| self.above[number as usize].0))
    }

    fn level(&self, number: u32) -> u32 {
        self.above[number as usize].1
    }

    fn is_under(&self, number: u32, above: u32) -> bool {
        self.upwards(number).any(|number| number == above)
    }

    /// The group at a position of a walk.
    fn walked(&self, start: u32, which: u64, position: usize) -> Option<u32> {
        let all = if which == DESCENDANTS_POST { &self.inner_first } else { &self.outer_first }.iter().copied();
        match which {
            DESCENDANTS_PRE | DESCENDANTS_POST => all.filter(|&number| self.is_under(number, start)).nth(position),
            ANCESTORS_UP => self.upwards(start).nth(position),
            _ => all.filter(|&number| number > 0 && self.above[number as usize].0 == start).nth(position),
        }
    }
}

impl Host {
    /// The structures of all groups of a run; why not, if there are too many.
    pub(super) fn make_groups(&mut self, kernel: &Kfuncs<'_, '_>) -> Result<(), String> {
        let count = kernel.core.task_groups().len();
        if count >= MOST_GROUPS as usize {
            return Err(format!(
                "the workload has {count} task groups; for a program in bytecode there may be {}",
                MOST_GROUPS - 1
            ));
        }
        let number = |group: Option<u32>| group.map_or(0, |group| group + 1);
        let numbers = |inner_first| groups::all(kernel.core, inner_first).into_iter().map(number).collect::<Vec<u32>>();
        let mut made =
            Groups { outer_first: numbers(false), inner_first: numbers(true), ..Groups::new(self.kept.groups.base) };
        made.above.resize(count + 1, (0, 0));
        for &group in &made.outer_first[1..] {
            let above = number(kernel.group_above(group - 1));
            made.above[group as usize] = (above, made.level(above) + 1);
        }
        self.kept.groups = made;
        for place in 1..self.kept.groups.outer_first.len() {
            let group = self.kept.groups.outer_first[place];
            let path = kernel.core.group_path(group - 1);
            self.make_group(group, path.rsplit('/').next().unwrap_or(path));
            if let Some(own) = kernel.core.group_cpus(group - 1) {
                self.make_cpuset(group, [own, groups::effective_cpus(kernel.core, Some(group - 1))]);
            }
        }
        Ok(())
    }

    /// The structures of a group.
    pub(super) fn make_group(&mut self, number: u32, name: &str) {
        let layout = Arc::clone(&self.kept.layout);
        let cgroup = self.kept.groups.address(number);
        let [css_set, task_group, node] = [1, 2, 3].map(|part| cgroup + part * PART);
        let name_at = node + PART - NAME_BYTES;
        let (above, level) = self.kept.groups.above[number as usize];
        let inner = |base: u64, outer: Option<u64>, member: Option<u64>| Some(base + outer? + member?);
        let link = |base: u64, member: Option<u64>| inner(base, member, Some(0));
        let above_at = if number > 0 { self.kept.groups.address(above) + layout.cgroup_self.unwrap_or(0) } else { 0 };
        let task_group_above = match number {
            0 => 0,
            _ => self.kept.groups.address(above) + 2 * PART + layout.task_group_css.unwrap_or(0),
        };
        let links = [
            (link(css_set, layout.dfl_cgrp), cgroup),
            (link(cgroup, layout.cgroup_kn), node),
            (link(node, layout.kernfs_id), self.group_id(number)),
            (link(node, layout.kernfs_name), name_at),
            (inner(cgroup, layout.cgroup_self, layout.css_cgroup), cgroup),
            (inner(cgroup, layout.cgroup_self, layout.css_parent), above_at),
            (inner(task_group, layout.task_group_css, layout.css_cgroup), cgroup),
            (inner(task_group, layout.task_group_css, layout.css_parent), task_group_above),
            (link(cgroup, layout.cgroup_cpu), task_group + layout.task_group_css.unwrap_or(0)),
        ];
        for (place, value) in links {
            if let Some(place) = place {
                self.store_u64(place, value);
            }
        }
        self.store_text(name_at, name, NAME_BYTES);
        self.store_member(cgroup, layout.cgroup_level, level);
        let line: Vec<u32> = self.kept.groups.upwards(number).collect();
        for (level, &ancestor) in line.iter().rev().enumerate() {
            if let Some(member) = layout.cgroup_ancestors {
                let address = self.kept.groups.address(ancestor);
                self.store_u64(cgroup + member + 8 * level as u64, address);
            }
        }
    }

    /// The cpuset of a group: the CPUs of its list, and those that it has of them.
    pub(super) fn make_cpuset(&mut self, number: u32, masks: [CpuSet; 2]) {
        let layout = Arc::clone(&self.kept.layout);
        let (Some(link), Some(css)) = (layout.cgroup_cpuset, layout.cpuset_css) else { return };
        let groups = &self.kept.groups;
        let linked = |number| self.maps.memory.load_u64(groups.address(number) + link);
        let above = groups.upwards(number).skip(1).map(linked).find(|&css| css != 0).unwrap_or(0);
        let cgroup = groups.address(number);
        let directory = cgroup + 3 * PART;
        let cpuset = directory + CPUSET;
        self.store_u64(cgroup + link, cpuset + css);
        for (member, value) in [(layout.css_cgroup, cgroup), (layout.css_parent, above)] {
            if let Some(member) = member {
                self.store_u64(cpuset + css + member, value);
            }
        }
        for ((member, mask), at) in layout.cpuset_masks.into_iter().zip(masks).zip(CPUSET_MASKS) {
            match member {
                None => {}
                Some(member) if layout.cpuset_has_masks => self.write_mask(cpuset + member, &mask),
                Some(member) => {
                    self.write_mask(directory + at, &mask);
                    self.store_u64(cpuset + member, directory + at);
                }
            }
        }
    }

    /// Address of a group's `struct cgroup`.
    pub(super) fn group_address(&self, group: Option<u32>) -> u64 {
        self.kept.groups.address(self.kept.groups.number(group))
    }

    /// Writes down in which group a task is.
    pub(super) fn set_group(&mut self, task: TaskId, group: Option<u32>) {
        // A program that is ending was not told of all tasks.
        if task.index() >= self.affinities.len() {
            return;
        }
        let (at, cgroup) = (self.task_address(task), self.group_address(group));
        let members = [self.kept.layout.cgroups, self.kept.layout.sched_task_group];
        for (member, part) in members.into_iter().zip(1..) {
            if let Some(member) = member {
                self.store_u64(at + member, cgroup + part * PART);
            }
        }
    }

    /// Number of the group of a task's structure.
    pub(super) fn group_of(&self, task: u64) -> u32 {
        let group = self.task_of(task).and_then(|task| self.kernel()?.group(task));
        self.kept.groups.number(group)
    }

    /// `scx_bpf_task_cgroup`.
    pub(super) fn cgroup_of(&self, task: u64) -> u64 {
        self.kept.groups.address(self.group_of(task))
    }

    /// Identifier of a group.
    pub(super) fn group_id(&self, number: u32) -> u64 {
        let place = self.kept.groups.outer_first.iter().position(|&other| other == number);
        place.map_or(0, |place| place as u64 + 1)
    }

    /// `bpf_cgroup_from_id`.
    pub(super) fn group_from_id(&self, id: u64) -> u64 {
        let place = id.checked_sub(1).and_then(|place| usize::try_from(place).ok());
        let number = place.and_then(|place| self.kept.groups.outer_first.get(place));
        number.map_or(0, |&number| self.kept.groups.address(number))
    }

    /// `bpf_cgroup_ancestor`.
    pub(super) fn group_ancestor(&self, cgroup: u64, level: i32) -> u64 {
        let groups = &self.kept.groups;
        let ancestor = groups.at(cgroup).and_then(|number| {
            groups.upwards(number).find(|&number| i64::from(groups.level(number)) == i64::from(level))
        });
        ancestor.map_or(0, |ancestor| groups.address(ancestor))
    }

    /// `bpf_task_under_cgroup`.
    pub(super) fn is_task_under(&self, task: u64, cgroup: u64) -> bool {
        let groups = &self.kept.groups;
        groups.at(cgroup).is_some_and(|above| groups.is_under(self.group_of(task), above))
    }

    /// The group of a `struct cgroup_subsys_state` of a cgroup's own.
    pub(super) fn group_of_css(&self, css: u64) -> Option<u32> {
        self.kept.groups.at(css.wrapping_sub(self.kept.layout.cgroup_self.unwrap_or(0)))
    }

    /// Where a walk over groups is, where it began, and which one it is.
    pub(super) fn groups_next(&mut self, iterator: u64) -> u64 {
        let [position, start, which] = [0, 8, 16].map(|at| self.maps.memory.load_u64(iterator + at));
        let Some(start) = self.group_of_css(start) else { return 0 };
        let Some(number) = self.kept.groups.walked(start, which, position as usize) else { return 0 };
        self.store_u64(iterator, position + 1);
        self.kept.groups.address(number) + self.kept.layout.cgroup_self.unwrap_or(0)
    }
}

impl Bytecode {
    /// Calls the operation; false if it refuses a move.
    pub(super) fn pass_group_call(&mut self, kernel: &mut Kfuncs<'_, '_>, call: GroupCall) -> bool {
        match call {
            GroupCall::Init { group, limits } => {
                let arguments = self.structure(256);
                let layout = Arc::clone(&self.object.kept.layout);
                self.host.store_member(arguments, layout.cgroup_init_weight, limits.weight);
                let members = [
                    (layout.cgroup_init_period, limits.period_us),
                    (layout.cgroup_init_quota, limits.quota_us),
                    (layout.cgroup_init_burst, limits.burst_us),
                ];
                for (member, value) in members {
                    if let Some(member) = member {
                        self.host.store_u64(arguments + member, value);
                    }
                }
                let group = self.host.group_address(group);
                let result = self.call(kernel, Operation::CgroupInit, &[group, arguments]);
                self.check(kernel, "cgroup_init", result);
            }
            GroupCall::Exit { group } => {
                let group = self.host.group_address(group);
                self.call(kernel, Operation::CgroupExit, &[group]);
            }
            GroupCall::PrepareMove { task, from, to } => {
                let arguments = [self.task(kernel, task), self.host.group_address(from), self.host.group_address(to)];
                let result = self.call(kernel, Operation::CgroupPrepMove, &arguments) as i32;
                // `ops_sanitize_err`.
                if !(-MAX_ERRNO..=0).contains(&result) {
                    kernel.fault(format!("ops.cgroup_prep_move() returned an invalid errno {result}"));
                }
                return result == 0;
            }
            GroupCall::Move { task, from, to } => {
                let arguments = [self.task(kernel, task), self.host.group_address(from), self.host.group_address(to)];
                self.call(kernel, Operation::CgroupMove, &arguments);
            }
        }
        true
    }
}
