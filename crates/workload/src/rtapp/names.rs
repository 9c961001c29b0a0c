//! Names of a workload's objects while a document is read: declared ones first, then in order of first use.

use std::collections::BTreeMap;

use super::node::{Node, Read};
use crate::error::{DocumentError, DocumentProblem};
use crate::nearest::suggestion;
use crate::{
    BarrierId, BarrierWait, ChannelId, ConditionId, DataGroupId, GroupId, ListId, LockId, ProcessId, Program,
    RecorderId, SemaphoreId, TaskTemplateId, TimerId, Workload,
};

/// Index by name of one table.
#[derive(Clone, Default)]
pub(super) struct Index(BTreeMap<String, u32>);

impl Index {
    fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut index = Self::default();
        for (position, name) in names.into_iter().enumerate() {
            index.0.entry(name.to_owned()).or_insert(position as u32);
        }
        index
    }

    fn get(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }

    fn require(&self, kind: &'static str, node: &Node<'_>) -> Read<u32> {
        let name = node.text(&format!("the name of a {kind}"))?;
        self.get(name).ok_or_else(|| self.unknown(kind, name, node))
    }

    fn unknown(&self, kind: &'static str, name: &str, node: &Node<'_>) -> DocumentError {
        let suggestion = suggestion(name, self.0.keys().map(String::as_str));
        node.error(DocumentProblem::UnknownName { kind, name: name.to_owned(), suggestion })
    }
}

/// The workload being read, with its names.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) workload: Workload,
    /// Memory profile of each process that the document describes, for tasks that name none.
    pub(super) process_profiles: Vec<Option<String>>,
    /// Whether a program is not the one that is expected in its place.
    pub(super) has_other_programs: bool,
    applications: Index,
    processes: Index,
    tasks: Index,
    groups: Index,
    data_groups: Index,
    locks: Index,
    conditions: Index,
    barriers: Index,
    semaphores: Index,
    channels: Index,
    lists: Index,
    timers: Index,
    recorders: Index,
    phases: Index,
}

impl Names {
    /// Names of everything the workload's tables hold, and of the tasks that will follow.
    pub(super) fn new<'a>(workload: Workload, tasks: impl IntoIterator<Item = &'a str>) -> Self {
        let names = |list: &[String]| Index::of(list.iter().map(String::as_str));
        Self {
            applications: names(&workload.applications),
            processes: Index::of(workload.processes.iter().map(|process| process.name.as_str())),
            tasks: Index::of(tasks),
            groups: Index::of(workload.groups.iter().map(|group| group.name.as_str())),
            data_groups: Index::of(workload.data_groups.iter().map(|group| group.name.as_str())),
            locks: names(&workload.locks),
            conditions: names(&workload.conditions),
            barriers: Index::of(workload.barriers.iter().map(|barrier| barrier.name.as_str())),
            semaphores: Index::of(workload.semaphores.iter().map(|semaphore| semaphore.name.as_str())),
            channels: Index::of(workload.channels.iter().map(|channel| channel.name.as_str())),
            lists: names(&workload.lists),
            timers: names(&workload.timers),
            recorders: names(&workload.recorders),
            phases: names(&workload.phases),
            process_profiles: Vec::new(),
            has_other_programs: false,
            workload,
        }
    }

    /// Adds a program; in place of one that is expected there an empty one.
    pub(super) fn add_program(&mut self, program: Program, expected: Option<&Workload>) {
        let program = match expected.map(|expected| expected.programs.get(self.workload.programs.len())) {
            Some(Some(same)) if *same == program => Program::default(),
            Some(_) => {
                self.has_other_programs = true;
                program
            }
            None => program,
        };
        self.workload.add_program(program);
    }

    pub(super) fn is_task(&self, name: &str) -> bool {
        self.tasks.get(name).is_some()
    }

    pub(super) fn application(&self, node: &Node<'_>) -> Read<u32> {
        self.applications.require("application", node)
    }

    pub(super) fn process(&self, node: &Node<'_>) -> Read<ProcessId> {
        self.processes.require("process", node).map(ProcessId)
    }

    pub(super) fn task(&self, node: &Node<'_>) -> Read<TaskTemplateId> {
        self.tasks.require("task", node).map(TaskTemplateId)
    }

    pub(super) fn data_group(&self, node: &Node<'_>) -> Read<DataGroupId> {
        self.data_groups.require("data group", node).map(DataGroupId)
    }

    pub(super) fn channel(&self, node: &Node<'_>) -> Read<ChannelId> {
        self.channels.require("channel", node).map(ChannelId)
    }

    pub(super) fn list(&self, node: &Node<'_>) -> Read<ListId> {
        self.lists.require("list", node).map(ListId)
    }

    pub(super) fn recorder(&self, node: &Node<'_>) -> Read<RecorderId> {
        self.recorders.require("recorder", node).map(RecorderId)
    }

    pub(super) fn declared_barrier(&self, node: &Node<'_>) -> Read<BarrierId> {
        self.barriers.require("barrier", node).map(BarrierId)
    }

    // Objects below come into being when they are first named, as in rt-app.

    /// A group's path brings the groups above it into being too.
    pub(super) fn group(&mut self, name: &str) -> GroupId {
        if let Some(found) = self.groups.get(name) {
            return GroupId(found);
        }
        let added = self.workload.add_group(name);
        self.groups = Index::of(self.workload.groups.iter().map(|group| group.name.as_str()));
        added
    }

    pub(super) fn lock(&mut self, name: &str) -> LockId {
        let workload = &mut self.workload;
        LockId(found_or(&mut self.locks, name, |name| workload.add_lock(name).0))
    }

    pub(super) fn condition(&mut self, name: &str) -> ConditionId {
        let workload = &mut self.workload;
        ConditionId(found_or(&mut self.conditions, name, |name| workload.add_condition(name).0))
    }

    pub(super) fn barrier(&mut self, name: &str) -> BarrierId {
        let workload = &mut self.workload;
        BarrierId(found_or(&mut self.barriers, name, |name| workload.add_barrier(name, 0, BarrierWait::Block).0))
    }

    pub(super) fn semaphore(&mut self, name: &str) -> SemaphoreId {
        let workload = &mut self.workload;
        SemaphoreId(found_or(&mut self.semaphores, name, |name| workload.add_semaphore(name, 0).0))
    }

    pub(super) fn timer(&mut self, name: &str) -> TimerId {
        let workload = &mut self.workload;
        TimerId(found_or(&mut self.timers, name, |name| workload.add_timer(name).0))
    }

    pub(super) fn phase(&mut self, name: &str) -> u32 {
        let workload = &mut self.workload;
        found_or(&mut self.phases, name, |name| workload.add_phase(name))
    }
}

fn found_or(index: &mut Index, name: &str, add: impl FnOnce(&str) -> u32) -> u32 {
    if let Some(found) = index.get(name) {
        return found;
    }
    let added = add(name);
    index.0.insert(name.to_owned(), added);
    added
}

impl Names {
    /// Replaces the table of processes.
    pub(super) fn set_processes(&mut self, processes: Vec<crate::Process>) {
        self.processes = Index::of(processes.iter().map(|process| process.name.as_str()));
        self.workload.processes = processes;
    }
}
