//! Who ran beside a run's tasks, as far as its events tell, when CPUs were offline, and when interrupts had them: the stays on CPUs, and a
//! scene that has them as tasks of their own, one for each CPU, one for all that were offline, and one for the interrupts of each CPU.

use std::borrow::Cow;

use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{Event, EventKind, OverheadKind, Slice, SliceEnd, TaskId, TaskInfo};

use crate::scene::{Recording, Scene};

/// A stay of such a thread on a CPU, an interrupt or softirq, or a time in which the CPU was offline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stay {
    /// Where.
    pub cpu: CpuId,
    /// From when.
    pub start_ns: u64,
    /// To when.
    pub end_ns: u64,
    /// Index into the run's table of foreign threads, [`OFFLINE`] or [`INTERRUPT`].
    pub thread: u32,
}

/// In place of a thread's number: the CPU is offline.
pub const OFFLINE: u32 = u32::MAX;

/// In place of a thread's number: an interrupt or softirq, whoever it interrupts.
pub const INTERRUPT: u32 = u32::MAX - 1;

impl Stay {
    /// The interrupt whose end an event tells.
    pub fn of_interrupt(event: &Event) -> Option<Self> {
        let EventKind::Overhead { kind: OverheadKind::Interrupt, duration_ns } = event.kind else { return None };
        let start_ns = event.time_ns.saturating_sub(duration_ns);
        Some(Self { cpu: event.cpu, start_ns, end_ns: event.time_ns, thread: INTERRUPT })
    }
}

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

/// The scene with one more task for each CPU that others had: what ran there beside the run's tasks; and with one for its interrupts.
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
    let (interrupts, others): (Vec<&Stay>, Vec<&Stay>) =
        scene.record.others.iter().partition(|stay| stay.thread == INTERRUPT);
    let (offline, threads): (Vec<&Stay>, Vec<&Stay>) = others.into_iter().partition(|stay| stay.thread == OFFLINE);
    let of_cpus = |stays: &[&'a Stay], application, role: &'static str| {
        let name = |stays: &[&Stay]| format!("{role} on {}", machine.os_cpu(stays[0].cpu));
        let by_cpu = stays.chunk_by(|a, b| a.cpu == b.cpu);
        by_cpu.map(|stays| (application, role, name(stays), stays.to_vec())).collect::<Vec<_>>()
    };
    let mut rows = of_cpus(&threads, application, "others");
    rows.extend((!offline.is_empty()).then(|| (application + 1, "offline", "offline".to_owned(), offline)));
    rows.extend(of_cpus(&interrupts, application + 2, "interrupts"));
    let mut interrupting = Vec::with_capacity(interrupts.len());
    for (application, role, name, stays) in rows {
        let task = TaskId(tasks.len() as u32);
        let into = if role == "interrupts" { &mut interrupting } else { &mut all };
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
        into.extend(stays.iter().map(slice));
    }
    all.sort_unstable_by_key(|slice| (slice.cpu, slice.start_ns, slice.end_ns));
    if !interrupting.is_empty() {
        all = interrupted(&all, interrupting);
    }
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

/// Slices without what interrupts took of them, and the interrupts. Both are in order of CPUs and time, and so is what comes out, in which a
/// CPU has one at a time. Who is interrupted could run on.
fn interrupted(slices: &[Slice], interrupts: Vec<Slice>) -> Vec<Slice> {
    let mut all: Vec<Slice> = Vec::with_capacity(slices.len() + 2 * interrupts.len());
    let mut interrupts = interrupts.into_iter().peekable();
    // From when on the CPU has room.
    let free = |all: &[Slice], cpu: CpuId| all.last().filter(|last| last.cpu == cpu).map_or(0, |last| last.end_ns);
    for slice in slices {
        let mut rest = Slice { start_ns: slice.start_ns.max(free(&all, slice.cpu)), ..*slice };
        let mut is_cut = rest.start_ns > slice.start_ns;
        while let Some(interrupt) =
            interrupts.next_if(|interrupt| (interrupt.cpu, interrupt.start_ns) < (slice.cpu, slice.end_ns))
        {
            let start_ns = interrupt.start_ns.max(free(&all, interrupt.cpu));
            let interrupt = Slice { start_ns, end_ns: interrupt.end_ns.max(start_ns), ..interrupt };
            if interrupt.cpu == slice.cpu && interrupt.end_ns > rest.start_ns {
                if start_ns > rest.start_ns {
                    all.push(Slice { end_ns: start_ns, end: SliceEnd::Runnable, ..rest });
                    (rest.run_delay_ns, rest.placed) = (None, None);
                }
                (rest.start_ns, is_cut) = (interrupt.end_ns, true);
            }
            all.push(interrupt);
        }
        if !is_cut || rest.start_ns < slice.end_ns {
            all.push(rest);
        }
    }
    for interrupt in interrupts {
        let start_ns = interrupt.start_ns.max(free(&all, interrupt.cpu));
        all.push(Slice { start_ns, end_ns: interrupt.end_ns.max(start_ns), ..interrupt });
    }
    all
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

    /// CPU 0: task 0 from 10 to 50, interrupts while it is idle, twice in the task, and after its end. CPU 1: task 1 from 0 to 20, an interrupt
    /// that is said to end behind the switch, to task 2 from 20 to 40.
    #[test]
    fn interrupts_cut_what_they_interrupt_in_pieces_and_nothing_lies_above_another() {
        let slice = |task, cpu, start_ns, end_ns| Slice {
            task: TaskId(task),
            cpu: CpuId(cpu),
            start_ns,
            end_ns,
            end: SliceEnd::Runnable,
            run_delay_ns: None,
            placed: None,
        };
        let asleep = |slice| Slice { end: SliceEnd::Sleeping, ..slice };
        let waited = |slice| Slice { run_delay_ns: Some(3), ..slice };
        let of_tasks = [waited(asleep(slice(0, 0, 10, 50))), asleep(slice(1, 1, 0, 20)), slice(2, 1, 20, 40)];
        let (on_0, on_1) = (|from, to| slice(8, 0, from, to), |from, to| slice(9, 1, from, to));
        let interrupts = vec![on_0(5, 8), on_0(20, 24), on_0(30, 31), on_0(60, 61), on_1(15, 25)];
        let cut_0 = [on_0(5, 8), waited(slice(0, 0, 10, 20)), on_0(20, 24), slice(0, 0, 24, 30), on_0(30, 31)];
        let rest = [asleep(slice(0, 0, 31, 50)), on_0(60, 61), slice(1, 1, 0, 15), on_1(15, 25), slice(2, 1, 25, 40)];
        assert_eq!(interrupted(&of_tasks, interrupts), [&cut_0[..], &rest[..]].concat());
        let empty = [slice(0, 0, 10, 10), slice(1, 0, 10, 12)];
        assert_eq!(interrupted(&empty, vec![on_0(20, 21)]), [empty[0], empty[1], on_0(20, 21)]);
    }
}
