//! Who ran beside a run's tasks, as far as its events tell, and when CPUs were offline: the stays on CPUs, and a scene that has them as
//! tasks of their own, one for each CPU and one for all that were offline.

use std::borrow::Cow;

use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{Event, EventKind, Slice, SliceEnd, TaskId, TaskInfo};

use crate::scene::{Recording, Scene};

/// A stay of such a thread on a CPU, or a time in which the CPU was offline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stay {
    /// Where.
    pub cpu: CpuId,
    /// From when.
    pub start_ns: u64,
    /// To when.
    pub end_ns: u64,
    /// Index into the run's table of foreign threads, or [`OFFLINE`].
    pub thread: u32,
}

/// In place of a thread's number: the CPU is offline.
pub const OFFLINE: u32 = u32::MAX;

/// Who has a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Occupied {
    /// By a thread beside the run's tasks, or offline with nobody on it, and since when.
    stay: Option<(u32, u64)>,
    task: bool,
    offline: bool,
}

/// Follows who has each CPU beside the run's tasks.
#[derive(Clone, Debug, Default)]
pub struct Others(Vec<Occupied>);

impl Others {
    /// For a machine with so many CPUs.
    pub fn new(cpus: usize) -> Self {
        Self(vec![Occupied::default(); cpus])
    }

    /// Takes the next event, and returns the stay that it ended.
    pub fn push(&mut self, event: &Event) -> Option<Stay> {
        let cpu = self.0.get_mut(event.cpu.index())?;
        let thread = match event.kind {
            EventKind::Foreign { thread } => thread,
            EventKind::Switch { next, .. } => {
                cpu.task = !next.is_idle();
                None
            }
            EventKind::Hotplug { online } => {
                cpu.offline = !online;
                cpu.stay.map(|(thread, _)| thread).filter(|thread| *thread != OFFLINE)
            }
            _ => return None,
        };
        let now = thread.or((cpu.offline && !cpu.task).then_some(OFFLINE)).map(|thread| (thread, event.time_ns));
        let (thread, start_ns) = std::mem::replace(&mut cpu.stay, now)?;
        Some(Stay { cpu: event.cpu, start_ns, end_ns: event.time_ns, thread })
    }

    /// Who has a CPU now; [`OFFLINE`] if it is offline.
    pub fn on(&self, cpu: CpuId) -> Option<u32> {
        self.0.get(cpu.index())?.stay.map(|(thread, _)| thread)
    }

    /// The thread beside the run's tasks that has a CPU now.
    pub fn thread_on(&self, cpu: CpuId) -> Option<u32> {
        self.on(cpu).filter(|thread| *thread != OFFLINE)
    }

    /// Whether a CPU is offline now.
    pub fn is_offline(&self, cpu: CpuId) -> bool {
        self.0.get(cpu.index()).is_some_and(|cpu| cpu.offline)
    }

    /// The stays that have not ended when the window closes.
    pub fn open(&self, end_ns: u64) -> impl Iterator<Item = Stay> + '_ {
        self.0.iter().enumerate().filter_map(move |(cpu, occupied)| {
            occupied.stay.map(|(thread, start_ns)| Stay { cpu: CpuId::from_index(cpu), start_ns, end_ns, thread })
        })
    }
}

/// The scene with one more task for each CPU that others had: what ran there beside the run's tasks.
pub(crate) fn with_others<'a>(scene: &'a Scene, machine: &Machine) -> Cow<'a, Scene> {
    let (Some(slices), false) = (&scene.record.slices, scene.record.others.is_empty()) else {
        return Cow::Borrowed(scene);
    };
    let mut tasks = scene.tasks.clone();
    let next = |of: fn(&TaskInfo) -> u32| scene.tasks.iter().map(of).max().map_or(0, |most| most + 1);
    let (application, process) = (next(|task| task.application), next(|task| task.process));
    // Of a long recording these are most of the memory: nothing is copied twice.
    let mut all = Vec::with_capacity(slices.len() + scene.record.others.len());
    all.extend_from_slice(slices);
    let (offline, threads): (Vec<&Stay>, Vec<&Stay>) =
        scene.record.others.iter().partition(|stay| stay.thread == OFFLINE);
    let by_cpu = threads
        .chunk_by(|a, b| a.cpu == b.cpu)
        .map(|stays| (application, "others", format!("others on {}", machine.os_cpu(stays[0].cpu)), stays));
    let all_offline =
        (!offline.is_empty()).then(|| (application + 1, "offline", "offline".to_owned(), offline.as_slice()));
    for (application, role, name, stays) in by_cpu.chain(all_offline) {
        let task = TaskId(tasks.len() as u32);
        let (application_name, role) = (role.to_owned(), role.to_owned());
        tasks.push(TaskInfo { id: task, name, role, application, application_name, process });
        // How it left, events do not tell.
        let slice = |stay: &&Stay| Slice {
            task,
            cpu: stay.cpu,
            start_ns: stay.start_ns,
            end_ns: stay.end_ns,
            end: SliceEnd::Runnable,
            run_delay_ns: None,
            placed: None,
        };
        all.extend(stays.iter().map(slice));
    }
    all.sort_unstable_by_key(|slice| (slice.cpu, slice.start_ns, slice.end_ns));
    let record = &scene.record;
    let record = Recording {
        slice_count: all.len() as u64,
        slices: Some(all),
        // They are among the slices now.
        others: Vec::new(),
        overview: record.overview.clone(),
        lengths: record.lengths.clone(),
        cpu_run_ns: record.cpu_run_ns.clone(),
        transitions: record.transitions.clone(),
        virtual_transitions: record.virtual_transitions.clone(),
        decisions: record.decisions.clone(),
        moves: record.moves.clone(),
        wakes: record.wakes.clone(),
        counters: record.counters.clone(),
        scores: record.scores.clone(),
    };
    let (metrics, tables) = (scene.metrics.clone(), scene.tables.clone());
    Cow::Owned(Scene { scheduler: scene.scheduler.clone(), metrics, tables, tasks, record, ..*scene })
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_trace::PrevState;

    #[test]
    fn a_cpu_is_offline_between_its_events_but_while_a_task_runs_on() {
        let switch = |prev, next| EventKind::Switch { prev, prev_state: PrevState::Sleeping, next };
        let (task, idle) = (TaskId(0), TaskId::IDLE);
        let events = [
            (10, EventKind::Hotplug { online: false }),
            (30, EventKind::Hotplug { online: true }),
            (40, switch(idle, task)),
            (50, EventKind::Hotplug { online: false }),
            (60, switch(task, idle)),
        ];
        let mut others = Others::new(1);
        let event = |(time_ns, kind)| Event { time_ns, cpu: CpuId(0), kind };
        let ended = events.into_iter().filter_map(|of| others.push(&event(of))).collect::<Vec<_>>();
        let stay = |start_ns, end_ns| Stay { cpu: CpuId(0), start_ns, end_ns, thread: OFFLINE };
        assert_eq!(ended, [stay(10, 30)]);
        assert_eq!(others.open(100).collect::<Vec<_>>(), [stay(60, 100)]);
        assert_eq!((others.on(CpuId(0)), others.thread_on(CpuId(0))), (Some(OFFLINE), None));
    }
}
