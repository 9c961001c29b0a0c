//! Task groups within task groups: which group lies in which, and what is no place for one.
//!
//! A group's name is a path, as rt-app's `taskgroup` and directories of the kernel's control groups are: `/u1/app1` lies in `/u1`, which
//! exists with the default weight if nobody names it (rt-app makes missing directories on the way). A name that is no path lies at the
//! top. A file can say otherwise with `parent`. It does not weigh anything: who runs the groups does.

use crate::check::CheckProblem;
use crate::{Group, GroupClamp, GroupId, Step, Workload};

/// Most groups inside each other. The kernel has no limit of its own (`cgroup.max.depth`), but nobody asks for more in earnest.
pub const MAX_GROUP_DEPTH: usize = 32;

impl Group {
    /// A group at the top with the weight of one nice-0 task.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            shares: Self::DEFAULT_SHARES,
            parent: None,
            cpu_max: None,
            clamp: GroupClamp::default(),
            idle: false,
            cpus: None,
        }
    }

    /// The path of the group in which a group of this name lies; `None` at the top, and for what is no path.
    pub(crate) fn parent_path(name: &str) -> Option<&str> {
        let (parent, _) = name.strip_prefix('/').filter(|path| has_parts(path)).and(name.rsplit_once('/'))?;
        (!parent.is_empty()).then_some(parent)
    }
}

/// Whether a path, without the first /, names a place.
fn has_parts(path: &str) -> bool {
    path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

impl Workload {
    /// Adds a task group with the weight of one nice-0 task, in the group that its path names. Groups that are missing on the way are
    /// added before it.
    pub fn add_group(&mut self, name: impl Into<String>) -> GroupId {
        let mut group = Group::new(name);
        group.parent = self.parent_by_path(&group.name);
        self.groups.push(group);
        GroupId(self.groups.len() as u32 - 1)
    }

    /// The group in which the path puts a group of this name, added if it is missing.
    pub(crate) fn parent_by_path(&mut self, name: &str) -> Option<GroupId> {
        let path = Group::parent_path(name)?;
        let found = self.groups.iter().position(|group| group.name == path);
        Some(found.map_or_else(|| self.add_group(path), |index| GroupId(index as u32)))
    }

    /// Whether a task asks for utilisation clamps, now or later, or a group bounds them.
    pub fn has_util_clamps(&self) -> bool {
        let step = |step: &Step| matches!(step, Step::SetUtilClamp(_));
        self.tasks.iter().any(|task| !task.util_clamp.is_none())
            || self.groups.iter().any(|group| !group.clamp.is_default())
            || self.programs.iter().flat_map(|program| &program.steps).any(step)
    }

    /// Whether a task is ever in a group or one below it. The tree has no circles.
    fn has_tasks_in(&self, group: usize) -> bool {
        let of_steps = self.programs.iter().flat_map(|program| &program.steps).filter_map(|step| match step {
            Step::SetGroup(group) => Some(*group),
            _ => None,
        });
        let mut used =
            self.tasks.iter().filter_map(|task| task.group).chain(of_steps).filter(|id| id.index() < self.groups.len());
        used.any(|used| {
            std::iter::successors(Some(used), |id| self.groups[id.index()].parent).any(|id| id.index() == group)
        })
    }

    /// What is wrong with the tree of groups, if anything is.
    pub(crate) fn group_problem(&self) -> Option<CheckProblem> {
        let groups = &self.groups;
        let (of, named) = (|id: GroupId| &groups[id.index()], |group: &Group| group.name.clone());
        if let Some(unknown) = groups.iter().filter_map(|group| group.parent).find(|id| id.index() >= groups.len()) {
            return Some(CheckProblem::UnknownId { what: "task group", index: unknown.index(), count: groups.len() });
        }
        let is_wrong = |path: &str| !has_parts(path);
        let wrong = |group: &&Group| !group.is_root() && group.name.strip_prefix('/').is_some_and(is_wrong);
        if let Some(group) = groups.iter().find(wrong) {
            return Some(CheckProblem::GroupPath { group: named(group) });
        }
        // A path upwards that is longer than there are groups goes in a circle, of which the group itself need not be a part.
        let above = |group: &Group| std::iter::successors(group.parent, move |&id| of(id).parent).take(groups.len());
        let in_itself = |(index, group): &(usize, &Group)| above(group).any(|id| id.index() == *index);
        if let Some((_, group)) = groups.iter().enumerate().find(in_itself) {
            return Some(CheckProblem::GroupInItself { group: named(group) });
        }
        if groups.iter().any(|group| group.is_root() && group.cpu_max.is_some()) {
            return Some(CheckProblem::QuotaOfRoot);
        }
        if groups.iter().any(|group| group.is_root() && !group.clamp.is_default()) {
            return Some(CheckProblem::ClampOfRoot);
        }
        if groups.iter().any(|group| group.is_root() && (group.idle || group.cpus.is_some())) {
            return Some(CheckProblem::FilesOfRoot);
        }
        if let Some(group) = groups.iter().find(|group| group.cpus.as_ref().is_some_and(Vec::is_empty)) {
            return Some(CheckProblem::NoCpusOfGroup { group: named(group) });
        }
        for (index, group) in groups.iter().enumerate() {
            let stated = [
                ("\"cpu_idle\"", group.idle),
                ("\"cpuset_cpus\"", group.cpus.is_some()),
                ("a weight", group.shares != Group::DEFAULT_SHARES && !group.is_root()),
                ("a \"cpu_max\"", group.cpu_max.is_some()),
                ("bounds of utilisation", !group.clamp.is_default()),
            ];
            let of_nobody = stated.iter().find(|(_, is_stated)| *is_stated && !self.has_tasks_in(index));
            if let Some((what, _)) = of_nobody {
                return Some(CheckProblem::GroupOfNobody { group: named(group), what });
            }
        }
        let too_deep = groups.iter().find(|group| 1 + above(group).count() > MAX_GROUP_DEPTH)?;
        Some(CheckProblem::GroupTooDeep { group: named(too_deep) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClampPercent;

    #[test]
    fn a_path_says_in_which_group_a_group_lies() {
        let mut workload = Workload::empty("test");
        let deep = workload.add_group("/u1/app1/helper");
        let beside = workload.add_group("/u1/app2");
        let top = workload.add_group("no/path");
        let names: Vec<&str> = workload.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["/u1", "/u1/app1", "/u1/app1/helper", "/u1/app2", "no/path"], "missing ones before it");
        let parent = |group: GroupId| workload.groups[group.index()].parent;
        assert_eq!((parent(deep), parent(GroupId(1)), parent(GroupId(0))), (Some(GroupId(1)), Some(GroupId(0)), None));
        assert_eq!((parent(beside), parent(top)), (Some(GroupId(0)), None));
        assert_eq!(workload.group_problem(), None);
    }

    #[test]
    fn groups_that_lie_in_themselves_are_refused() {
        let mut workload = Workload::empty("test");
        let [outer, inner] = ["/a", "/a/b"].map(|name| workload.add_group(name));
        workload.groups[outer.index()].parent = Some(inner);
        assert_eq!(workload.group_problem(), Some(CheckProblem::GroupInItself { group: "/a".into() }));
        workload.groups[outer.index()].parent = Some(outer);
        assert_eq!(workload.group_problem(), Some(CheckProblem::GroupInItself { group: "/a".into() }));
        workload.groups.insert(0, Group { parent: Some(GroupId(1)), ..Group::new("into the circle") });
        workload.groups[1].parent = Some(GroupId(2));
        workload.groups[2].parent = Some(GroupId(1));
        assert_eq!(workload.group_problem(), Some(CheckProblem::GroupInItself { group: "/a".into() }));
        workload.groups[outer.index()].parent = Some(GroupId(7));
        let unknown = CheckProblem::UnknownId { what: "task group", index: 7, count: 3 };
        assert_eq!(workload.group_problem(), Some(unknown));
    }

    /// A name that tasks spell otherwise would leave them with the default weight.
    #[test]
    fn what_is_stated_of_a_group_is_of_tasks() {
        let with = |change: fn(&mut Group)| {
            let mut workload = Workload::empty("test");
            let group = workload.add_group("/web").index();
            change(&mut workload.groups[group]);
            workload.group_problem()
        };
        let of_nobody = |what| Some(CheckProblem::GroupOfNobody { group: "/web".into(), what });
        assert_eq!(with(|_| {}), None, "nothing is stated");
        assert_eq!(with(|group| group.shares = 100), of_nobody("a weight"));
        assert_eq!(with(|group| group.idle = true), of_nobody("\"cpu_idle\""));
        assert_eq!(with(|group| group.cpus = Some(vec![0])), of_nobody("\"cpuset_cpus\""));
        assert_eq!(with(|group| group.clamp.min = ClampPercent::WHOLE), of_nobody("bounds of utilisation"));
    }

    #[test]
    fn paths_have_no_empty_parts_and_an_end() {
        for name in ["/a//b", "/a/", "/a/../b", "/."] {
            let mut workload = Workload::empty("test");
            workload.groups.push(Group::new(name));
            assert_eq!(workload.group_problem(), Some(CheckProblem::GroupPath { group: name.into() }));
        }
        for (depth, fits) in [(MAX_GROUP_DEPTH, true), (MAX_GROUP_DEPTH + 1, false)] {
            let mut workload = Workload::empty("test");
            workload.add_group("/a".repeat(depth));
            assert_eq!(workload.group_problem().is_none(), fits, "{depth}");
        }
    }
}
