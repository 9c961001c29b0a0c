//! Who woke or created a task from where, and why the task was placed where it was.

use std::collections::BTreeSet;

use serde::Serialize;
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{Event, EventKind, PlaceReason, Sink, TaskId, TaskInfo};

use crate::explain::{seconds, task_name};

/// A woken or new task that is queued on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// When it was queued.
    pub time_ns: u64,
    /// Who.
    pub task: TaskId,
    /// Where.
    pub cpu: CpuId,
    /// Who woke or created it, and on which CPU; idle if an interrupt did, nobody of the run, or if it is not known.
    pub waker: TaskId,
    /// The CPU of the waker or creator.
    pub waker_cpu: CpuId,
    /// It was created, not woken.
    pub new: bool,
    /// Why there; `None` where nobody told.
    pub reason: Option<PlaceReason>,
}

/// What is known of a task that is about to be placed.
#[derive(Clone, Copy)]
struct UnplacedTask {
    waker: TaskId,
    cpu: CpuId,
    new: bool,
}

/// Follows wakings and wakeups.
#[derive(Default)]
pub struct Placements {
    begun: Vec<Option<UnplacedTask>>,
}

impl Placements {
    /// Takes the next event and returns the placement that it ends, if it ends one.
    pub fn event(&mut self, event: &Event) -> Option<Placement> {
        let (task, begun) = match event.kind {
            EventKind::Waking { task, waker, .. } => (task, UnplacedTask { waker, cpu: event.cpu, new: false }),
            EventKind::Fork { parent, child } => (child, UnplacedTask { waker: parent, cpu: event.cpu, new: true }),
            EventKind::Wakeup { task, reason } => {
                let UnplacedTask { waker, cpu: waker_cpu, new } = self.begun.get_mut(task.index())?.take()?;
                return Some(Placement { time_ns: event.time_ns, task, cpu: event.cpu, waker, waker_cpu, new, reason });
            }
            // What a recorder has lost is not made up for by a later wakeup.
            EventKind::Switch { next: task, .. } | EventKind::Exit { task } if task.index() < self.begun.len() => {
                self.begun[task.index()] = None;
                return None;
            }
            _ => return None,
        };
        if task.index() >= self.begun.len() {
            self.begun.resize(task.index() + 1, None);
        }
        self.begun[task.index()] = Some(begun);
        None
    }

    /// The CPU of the one who wakes or has created a task that is about to be placed.
    pub fn waker_cpu(&self, task: TaskId) -> Option<CpuId> {
        self.begun.get(task.index()).copied().flatten().map(|begun| begun.cpu)
    }
}

/// The last placement of some tasks up to a time.
pub struct LastPlacement<'a> {
    tasks: &'a BTreeSet<TaskId>,
    until_ns: u64,
    placements: Placements,
    /// The placement, if there is one.
    pub found: Option<Placement>,
}

impl<'a> LastPlacement<'a> {
    /// Of these tasks.
    pub fn new(tasks: &'a BTreeSet<TaskId>, until_ns: u64) -> Self {
        Self { tasks, until_ns, placements: Placements::default(), found: None }
    }
}

impl Sink for LastPlacement<'_> {
    fn events(&mut self, batch: &[Event]) -> std::io::Result<()> {
        for event in batch.iter().take_while(|event| event.time_ns <= self.until_ns) {
            let placed = self.placements.event(event);
            self.found = placed.filter(|placed| self.tasks.contains(&placed.task)).or(self.found);
        }
        Ok(())
    }
}

/// Why a task was placed there, as a clause that begins with who woke or created it; nothing where nobody told why.
pub(crate) fn place_in_words(placement: &Placement, machine: &Machine, tasks: &[TaskInfo]) -> Option<String> {
    let Placement { cpu, waker, waker_cpu, new, reason, .. } = *placement;
    let by = match (new, waker.is_idle()) {
        (false, false) => format!("woken by {}", task_name(tasks, waker)),
        (false, true) => "woken by an interrupt".to_owned(),
        (true, false) => format!("created by {}", task_name(tasks, waker)),
        (true, true) => "created by the launcher".to_owned(),
    };
    let why = reason?.in_words();
    // The policy takes the creator's CPU for the one that a new task ran on before.
    let why = if new { why.replace("previous CPU", "creator's CPU") } else { why };
    let (from, to) = (machine.os_cpu(waker_cpu), machine.os_cpu(cpu));
    Some(format!("{by} on {from}: {why}: {to} of {}", machine.llc_of(cpu)))
}

/// The sentence about where a task was placed last before a time.
pub fn last_place_in_words(placement: &Placement, machine: &Machine, tasks: &[TaskInfo]) -> Option<String> {
    let why = place_in_words(placement, machine, tasks)?;
    Some(format!("{} {} was {why}", seconds(placement.time_ns), task_name(tasks, placement.task)))
}

/// A placement in a document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PlacementRecord {
    time_ns: u64,
    task: String,
    task_id: u32,
    cpu: u32,
    /// Who woke or created it; absent if no task of the run did or if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    waker: Option<String>,
    waker_cpu: u32,
    /// `wakeup` or `fork`.
    kind: &'static str,
    search_start: &'static str,
    search_step: &'static str,
    reason: String,
}

impl PlacementRecord {
    /// The placement with its names; nothing where nobody told why.
    pub fn of(placement: &Placement, machine: &Machine, tasks: &[TaskInfo]) -> Option<Self> {
        let name = |task: TaskId| tasks.get(task.index()).map(|info| info.name.clone());
        let PlaceReason { start, step } = placement.reason?;
        Some(Self {
            time_ns: placement.time_ns,
            task: name(placement.task).unwrap_or_default(),
            task_id: placement.task.0,
            cpu: machine.os_index(placement.cpu),
            waker: name(placement.waker),
            waker_cpu: machine.os_index(placement.waker_cpu),
            kind: if placement.new { "fork" } else { "wakeup" },
            search_start: start.name(),
            search_step: step.name(),
            reason: place_in_words(placement, machine, tasks)?,
        })
    }
}
