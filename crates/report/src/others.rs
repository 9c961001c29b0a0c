//! Who ran beside a run's tasks, as far as its events tell: their stays on CPUs, and a scene that has them as tasks of their own, one for
//! each CPU.

use std::borrow::Cow;

use warmcore_topology::CpuId;
use warmcore_trace::{Event, EventKind, Slice, SliceEnd, TaskId, TaskInfo};

use crate::scene::Scene;

/// A stay of such a thread on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stay {
    /// Where.
    pub cpu: CpuId,
    /// From when.
    pub start_ns: u64,
    /// To when.
    pub end_ns: u64,
    /// Index into the run's table of foreign threads.
    pub thread: u32,
}

/// Follows who has each CPU beside the run's tasks.
#[derive(Clone, Debug, Default)]
pub struct Others(Vec<Option<(u32, u64)>>);

impl Others {
    /// For a machine with so many CPUs.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self(vec![None; cpus])
    }

    /// Takes the next event, and returns the stay that it ended.
    pub fn push(&mut self, event: &Event) -> Option<Stay> {
        let now = match event.kind {
            EventKind::Foreign { thread } => thread.map(|thread| (thread, event.time_ns)),
            EventKind::Switch { .. } => None,
            _ => return None,
        };
        let (thread, start_ns) = std::mem::replace(self.0.get_mut(event.cpu.index())?, now)?;
        Some(Stay { cpu: event.cpu, start_ns, end_ns: event.time_ns, thread })
    }

    /// Who has a CPU now.
    #[must_use]
    pub fn on(&self, cpu: CpuId) -> Option<u32> {
        self.0.get(cpu.index()).copied().flatten().map(|(thread, _)| thread)
    }

    /// The stays that have not ended when the window closes.
    pub fn open(&self, end_ns: u64) -> impl Iterator<Item = Stay> + '_ {
        self.0.iter().enumerate().filter_map(move |(cpu, open)| {
            open.map(|(thread, start_ns)| Stay { cpu: CpuId::from_index(cpu), start_ns, end_ns, thread })
        })
    }
}

/// The scene with one more task for each CPU that others had: what ran there beside the run's tasks.
pub(crate) fn with_others(scene: &Scene) -> Cow<'_, Scene> {
    let (Some(slices), false) = (&scene.record.slices, scene.record.others.is_empty()) else {
        return Cow::Borrowed(scene);
    };
    let mut all = scene.clone();
    let next = |of: fn(&TaskInfo) -> u32| scene.tasks.iter().map(of).max().map_or(0, |most| most + 1);
    let (application, process) = (next(|task| task.application), next(|task| task.process));
    let mut slices = slices.clone();
    for stays in scene.record.others.chunk_by(|a, b| a.cpu == b.cpu) {
        let (cpu, task) = (stays[0].cpu, TaskId(all.tasks.len() as u32));
        all.tasks.push(TaskInfo {
            id: task,
            name: format!("others on {cpu}"),
            role: "others".into(),
            application,
            application_name: "others".into(),
            process,
        });
        // How it left, events do not tell.
        let slice = |stay: &Stay| Slice {
            task,
            cpu,
            start_ns: stay.start_ns,
            end_ns: stay.end_ns,
            end: SliceEnd::Runnable,
            run_delay_ns: None,
            placed: None,
        };
        slices.extend(stays.iter().map(slice));
    }
    slices.sort_unstable_by_key(|slice| (slice.cpu, slice.start_ns, slice.end_ns));
    all.record.slice_count = slices.len() as u64;
    all.record.slices = Some(slices);
    Cow::Owned(all)
}
