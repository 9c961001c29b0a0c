//! From the kernel's records to the project's events.
//!
//! Threads of the workload become tasks. All others (of other programs, of the kernel, of the agent) are nobody's tasks: their stays on
//! CPUs are events of their own ([`EventKind::Foreign`]), so that a CPU is idle only while its idle thread runs. Interrupts and softirqs, where
//! they were recorded, are overhead, whoever they interrupt.
//!
//! What a migration is for, the kernel's event does not say. It follows from what surrounds it:
//! - the first one between a task's waking and its wakeup: `Wakeup`, and where no wakings are recorded, of a task that last left a CPU
//!   asleep; right after its creation: `Fork`;
//! - announced by a NUMA event: `Numa`;
//! - off a CPU that is forbidden to the task, by the thread that changes affinities unless it takes the task to the CPU it runs on
//!   (which is what balancing does there), or by a stopper thread that the task itself has woken, because it changed its own:
//!   `Affinity`;
//! - by such a stopper thread, if the task's next program follows before anything it creates: `Exec` (`sched_exec`). A program that
//!   changes its own mask just before it starts another, as `taskset` does, looks the same and counts as this;
//! - by a stopper thread otherwise: `Active`; all others: `Balance`.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_topology::CpuId;
use warmcore_trace::{Event, EventKind, MigrationKind, OverheadKind, PrevState, TaskId};

use crate::paged::Wanted;
use crate::record::{NOT_RECORDED, Record, What};
use crate::recording::Recording;

mod decoder;
mod foreign;
mod hotplug;
mod interrupts;
mod unknown;

pub use decoder::Decoder;
pub use foreign::Foreign;
use foreign::{Beside, running_at};
use hotplug::{Plugged, offline_at};
use interrupts::Interrupts;
use unknown::UnknownWaits;

/// A recording's records as events.
///
/// # Errors
/// A CPU that the machine does not have.
pub fn events(recording: &Recording, cast: &Cast<'_>) -> Result<Converted, String> {
    Conversion::new(cast).run(recording)
}

/// Who is who in a run.
pub struct Cast<'a> {
    /// Task of each thread of the workload.
    pub tasks: &'a BTreeMap<i32, TaskId>,
    /// Main threads of the workload's processes: they create tasks and change affinities.
    pub launchers: &'a BTreeSet<i32>,
    /// Stopper threads of CPUs.
    pub stoppers: &'a [i32],
    /// Restriction of each task from its creation on, by task; 0 for none.
    pub restrictions: &'a [u32],
    /// Whether a CPU is in a restriction.
    pub allowed: &'a dyn Fn(u32, CpuId) -> bool,
    /// Changes of restrictions from outside in the order of time: when, counted from the start, whose, and to which.
    pub bindings: &'a [(u64, TaskId, u32)],
    /// Start of the run on the trace's clock.
    pub start_ns: u64,
    /// Length of the run.
    pub elapsed_ns: u64,
    /// The machine's CPU for the guest's number.
    pub cpu: &'a dyn Fn(u32) -> Option<CpuId>,
}

/// A run as events.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Converted {
    /// In order of time, counted from the start.
    pub events: Vec<Event>,
    /// Threads that are not the workload's, by the numbers that events have for them.
    pub foreign: Vec<Foreign>,
    /// Whether CPUs went offline or came online.
    pub hotplug: bool,
    /// Creation of each task, counted from the start.
    pub created_ns: Vec<Option<u64>>,
    /// Exit of each task.
    pub exited_ns: Vec<Option<u64>>,
}

impl Converted {
    /// CPU time of threads that are not the workload's.
    pub fn foreign_run_ns(&self) -> u64 {
        self.foreign.iter().map(Foreign::run_ns).sum()
    }
}

struct Conversion<'a> {
    cast: &'a Cast<'a>,
    out: Converted,
    restriction: Vec<u32>,
    /// Tasks between waking and wakeup, and between creation and wakeup.
    waking: BTreeSet<TaskId>,
    new: BTreeSet<TaskId>,
    /// Tasks that left a CPU asleep, up to their wakeup.
    asleep: BTreeSet<TaskId>,
    has_wakings: bool,
    numa: BTreeSet<TaskId>,
    /// Who woke each stopper thread last.
    summoned_by: BTreeMap<i32, i32>,
    /// By task: its last move, among the events, by a stopper that it woke itself; until it is known what for.
    own_move: BTreeMap<TaskId, usize>,
    beside: Beside,
    plugged: Plugged,
    interrupts: Interrupts,
    unknown: UnknownWaits,
}

impl<'a> Conversion<'a> {
    fn new(cast: &'a Cast<'a>) -> Self {
        let tasks = cast.restrictions.len();
        Self {
            cast,
            out: Converted { created_ns: vec![None; tasks], exited_ns: vec![None; tasks], ..Converted::default() },
            restriction: cast.restrictions.to_vec(),
            waking: BTreeSet::new(),
            new: BTreeSet::new(),
            asleep: BTreeSet::new(),
            has_wakings: false,
            numa: BTreeSet::new(),
            summoned_by: BTreeMap::new(),
            own_move: BTreeMap::new(),
            beside: Beside::default(),
            plugged: Plugged::default(),
            interrupts: Interrupts::default(),
            unknown: UnknownWaits::default(),
        }
    }

    fn run(mut self, recording: &Recording) -> Result<Converted, String> {
        self.has_wakings = recording.has_wakers();
        for (cpu, thread) in running_at(recording.in_order(), recording.cpus, self.cast.start_ns) {
            // A CPU that the machine lacks is refused when something happens there.
            if let Some(cpu) = (self.cast.cpu)(cpu) {
                self.comes(0, cpu, thread);
            }
        }
        for cpu in offline_at(recording.in_order_of(Wanted::Hotplug), self.cast.start_ns) {
            self.plug(0, cpu, false);
        }
        let mut bindings = self.cast.bindings.iter().peekable();
        for record in recording.in_order() {
            let Some(now) = record.time_ns.checked_sub(self.cast.start_ns) else { continue };
            if now > self.cast.elapsed_ns {
                break;
            }
            while let Some((at, task, restriction)) = bindings.next_if(|(at, ..)| *at <= now) {
                self.restriction[task.index()] = *restriction;
                let kind = EventKind::Affinity { task: *task, restriction: *restriction };
                self.out.events.push(Event { time_ns: *at, cpu: CpuId(0), kind });
            }
            self.record(now, &record)?;
        }
        self.out.foreign = self.beside.finish(self.cast.elapsed_ns);
        self.unknown.apply(&mut self.out.events);
        Ok(self.out)
    }

    fn task(&self, thread: i32) -> Option<TaskId> {
        self.cast.tasks.get(&thread).copied()
    }

    fn cpu(&self, guest: u32) -> Result<CpuId, String> {
        let cpu = (self.cast.cpu)(guest);
        cpu.ok_or_else(|| format!("the trace names CPU {guest}, which the machine does not have"))
    }

    fn emit(&mut self, time_ns: u64, cpu: CpuId, kind: EventKind) {
        let event = Event { time_ns, cpu, kind };
        self.unknown.take(&event, self.out.events.len());
        self.out.events.push(event);
    }

    fn record(&mut self, now: u64, record: &Record) -> Result<(), String> {
        let cpu = self.cpu(record.cpu)?;
        match record.what {
            What::Switch { prev, state, next, .. } => self.switch(now, cpu, (prev, state, next)),
            What::Waking { thread, target_cpu } => {
                if self.cast.stoppers.contains(&thread) {
                    self.summoned_by.insert(thread, record.by);
                }
                if let Some(task) = self.task(thread) {
                    self.waking.insert(task);
                    let waker = record.waker().and_then(|thread| self.task(thread)).unwrap_or(TaskId::IDLE);
                    self.emit(now, cpu, EventKind::Waking { task, target_cpu: self.cpu(target_cpu)?, waker });
                }
            }
            What::Wakeup { thread, target_cpu } => {
                if let Some(task) = self.task(thread) {
                    self.awakes(task);
                    self.emit(now, self.cpu(target_cpu)?, EventKind::Wakeup { task, reason: None });
                }
            }
            What::Migrate { thread, from, to } => {
                if let Some(task) = self.task(thread) {
                    let (from, to) = (self.cpu(from)?, self.cpu(to)?);
                    let kind = self.reason(task, record, from, to == cpu);
                    self.emit(now, cpu, EventKind::Migrate { task, from, to, kind });
                }
            }
            What::Fork { parent, child } => {
                if let Some(parent) = self.task(parent) {
                    self.own_move.remove(&parent);
                }
                if let Some(task) = self.task(child) {
                    self.fork(now, cpu, parent, task);
                }
            }
            What::Exit { thread } => {
                if let Some(task) = self.task(thread) {
                    self.out.exited_ns[task.index()].get_or_insert(now);
                    self.emit(now, cpu, EventKind::Exit { task });
                }
            }
            What::Numa { thread } => self.numa.extend(self.task(thread)),
            What::Exec { thread } => {
                let own_move = self.task(thread).and_then(|task| self.own_move.remove(&task));
                if let Some(Event { kind: EventKind::Migrate { kind, .. }, .. }) =
                    own_move.map(|at| &mut self.out.events[at])
                {
                    *kind = MigrationKind::Exec;
                }
            }
            What::Hotplug { target_cpu, target, step } => {
                self.plug(now, target_cpu, step.checked_add(1) == Some(target))
            }
            What::Interrupt { soft, begins } => {
                if let Some(duration_ns) = self.interrupts.take(now, cpu, soft, begins) {
                    self.emit(now, cpu, EventKind::Overhead { kind: OverheadKind::Interrupt, duration_ns });
                }
            }
            What::Call { .. } | What::Ready { .. } | What::Received { .. } => {}
        }
        Ok(())
    }

    /// A CPU goes offline or comes online, or takes another step on its way. One that the machine lacks matters to nobody.
    fn plug(&mut self, now: u64, cpu: u32, online: bool) {
        if let Some(cpu) = (self.cast.cpu)(cpu).filter(|cpu| self.plugged.changes(*cpu, online)) {
            self.out.hotplug = true;
            self.comes(now, cpu, 0);
            self.emit(now, cpu, EventKind::Hotplug { online });
        }
    }

    fn fork(&mut self, now: u64, cpu: CpuId, parent: i32, task: TaskId) {
        self.new.insert(task);
        self.out.created_ns[task.index()].get_or_insert(now);
        let parent = self.task(parent).unwrap_or(TaskId::IDLE);
        self.emit(now, cpu, EventKind::Fork { parent, child: task });
        let restriction = self.restriction[task.index()];
        if restriction != 0 {
            self.emit(now, cpu, EventKind::Affinity { task, restriction });
        }
    }

    fn switch(&mut self, now: u64, cpu: CpuId, (prev, state, next): (i32, PrevState, i32)) {
        let (from, to) = (self.task(prev), self.task(next));
        if let Some(task) = from.filter(|_| state == PrevState::Sleeping) {
            self.asleep.insert(task);
        }
        if let Some(task) = to {
            self.awakes(task);
        }
        if from.is_some() || to.is_some() {
            let prev_state = if from.is_some() { state } else { PrevState::Idle };
            let (prev, next) = (from.unwrap_or(TaskId::IDLE), to.unwrap_or(TaskId::IDLE));
            self.emit(now, cpu, EventKind::Switch { prev, prev_state, next });
        }
        self.comes(now, cpu, next);
    }

    /// A thread comes onto a CPU: says so if it is none of the workload's, or if such a one was there and nobody is now. What takes an offline
    /// CPU down and up (`cpuhp/N`, `migration/N`, whose last switch is not recorded) is not beside anything.
    fn comes(&mut self, now: u64, cpu: CpuId, thread: i32) {
        self.unknown.comes(now, cpu, thread != NOT_RECORDED);
        if thread == NOT_RECORDED {
            self.interrupts.forget(cpu);
        }
        let was_foreign = self.beside.runs(cpu);
        let is_task = self.task(thread).is_some();
        let number =
            self.beside.comes(now, cpu, (thread != 0 && !is_task && !self.plugged.is_offline(cpu)).then_some(thread));
        if number.is_some() || was_foreign && !is_task {
            self.emit(now, cpu, EventKind::Foreign { thread: number });
        }
    }

    /// Its wakeup, or its creation, is over.
    fn awakes(&mut self, task: TaskId) {
        self.waking.remove(&task);
        self.new.remove(&task);
        self.asleep.remove(&task);
    }

    /// Why the task is moved; `here`: to the CPU whose record this is.
    fn reason(&mut self, task: TaskId, record: &Record, from: CpuId, here: bool) -> MigrationKind {
        let restriction = self.restriction[task.index()];
        // A task that sleeps may be moved by balancing, too, while its dequeue is delayed (Linux 6.12): a waking tells.
        let is_placed = self.waking.remove(&task) || self.asleep.remove(&task) && !self.has_wakings;
        if self.numa.remove(&task) {
            MigrationKind::Numa
        } else if self.new.contains(&task) {
            MigrationKind::Fork
        } else if is_placed {
            MigrationKind::Wakeup
        } else if self.cast.launchers.contains(&record.by) && !here
            || restriction != 0 && !(self.cast.allowed)(restriction, from)
        {
            MigrationKind::Affinity
        } else if self.cast.stoppers.contains(&record.by) {
            // Balancing wakes the stopper from another CPU, never from the task that is to leave.
            match self.summoned_by.get(&record.by).and_then(|by| self.task(*by)) {
                Some(by) if by == task => {
                    self.own_move.insert(task, self.out.events.len());
                    MigrationKind::Affinity
                }
                _ => MigrationKind::Active,
            }
        } else {
            MigrationKind::Balance
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventFormats;
    use crate::format::tests::SWITCH;
    use crate::pages::tests::{HEADER, page};

    const WAKING: &str = "name: sched_waking\nID: 318\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int target_cpu;\toffset:12;\tsize:4;\tsigned:1;\n";

    const MIGRATE: &str = "name: sched_migrate_task\nID: 317\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int orig_cpu;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:int dest_cpu;\toffset:16;\tsize:4;\tsigned:1;\n";

    fn switch(delta: u32, by: u32, prev: u32, state: u32, next: u32) -> Vec<u32> {
        vec![delta << 5 | 11, 316, by, 0, 0, 0, 0, prev, 0, state, 0, next]
    }

    fn migrate(delta: u32, by: u32, thread: u32, from: u32, to: u32) -> Vec<u32> {
        vec![delta << 5 | 5, 317, by, thread, from, to]
    }

    fn waking(delta: u32, by: u32, thread: u32) -> Vec<u32> {
        vec![delta << 5 | 4, 318, by, thread, 0]
    }

    const FORK: &str = "name: sched_process_fork\nID: 315\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:pid_t parent_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:pid_t child_pid;\toffset:12;\tsize:4;\tsigned:1;\n";

    const EXEC: &str = "name: sched_process_exec\nID: 314\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n";

    fn fork(delta: u32, parent: u32, child: u32) -> Vec<u32> {
        vec![delta << 5 | 4, 315, parent, parent, child]
    }

    fn exec(delta: u32, thread: u32) -> Vec<u32> {
        vec![delta << 5 | 3, 314, thread, thread]
    }

    fn convert(pages: &[(u32, Vec<u32>)]) -> Result<Converted, String> {
        let events = [
            ("sched_switch", SWITCH),
            ("sched_migrate_task", MIGRATE),
            ("sched_waking", WAKING),
            ("sched_process_fork", FORK),
            ("sched_process_exec", EXEC),
        ];
        let events = events.map(|(name, text)| (name.into(), text.into())).to_vec();
        let mut decoder = Decoder::new(&EventFormats { header_page: HEADER.into(), events }).unwrap();
        for (cpu, words) in pages {
            decoder.page(*cpu, &page(1000, words))?;
        }
        let tasks = BTreeMap::from([(50, TaskId(0)), (51, TaskId(1))]);
        decoder.finish(&Cast {
            tasks: &tasks,
            launchers: &BTreeSet::from([40]),
            stoppers: &[12],
            restrictions: &[0, 0],
            allowed: &|_, _| true,
            bindings: &[],
            start_ns: 1000,
            elapsed_ns: 1_000_000,
            cpu: &|guest| 1_u32.checked_sub(guest).map(CpuId),
        })
    }

    #[test]
    fn foreign_threads_have_the_cpu_while_they_run_and_cpus_are_the_machines() {
        let words = [switch(10, 0, 0, 0, 50), switch(20, 50, 50, 0, 9), switch(5, 9, 9, 1, 51)].concat();
        let converted = convert(&[(0, words)]).unwrap();
        let kinds: Vec<EventKind> = converted.events.iter().map(|event| event.kind).collect();
        let (idle, one, two) = (TaskId::IDLE, TaskId(0), TaskId(1));
        assert_eq!(
            kinds,
            [
                EventKind::Switch { prev: idle, prev_state: PrevState::Idle, next: one },
                EventKind::Switch { prev: one, prev_state: PrevState::Runnable, next: idle },
                EventKind::Foreign { thread: Some(0) },
                EventKind::Switch { prev: idle, prev_state: PrevState::Idle, next: two },
            ]
        );
        assert_eq!(converted.events[0].time_ns, 10);
        assert_eq!(converted.events[0].cpu, CpuId(1));
        assert_eq!((converted.foreign_run_ns(), converted.foreign[0].thread), (5, 9));
    }

    #[test]
    fn a_cpu_is_idle_while_its_idle_thread_runs_and_foreign_from_the_start_to_the_end() {
        // Thread 9 runs when the recording begins, thread 8 when it ends.
        let words = [switch(10, 9, 9, 1, 0), switch(20, 0, 0, 0, 9), switch(5, 9, 9, 1, 8)].concat();
        let converted = convert(&[(0, words)]).unwrap();
        let events: Vec<(u64, EventKind)> = converted.events.iter().map(|event| (event.time_ns, event.kind)).collect();
        let foreign = |thread| EventKind::Foreign { thread };
        assert_eq!(
            events,
            [(0, foreign(Some(0))), (10, foreign(None)), (30, foreign(Some(0))), (35, foreign(Some(1)))]
        );
        let ran: Vec<(i32, u64, u64)> = converted.foreign.iter().map(|t| (t.thread, t.stays, t.run_ns())).collect();
        assert_eq!(ran, [(9, 2, 15), (8, 1, 1_000_000 - 35)]);
    }

    #[test]
    fn migrations_get_their_reason_from_who_makes_them() {
        let words = [migrate(1, 0, 50, 1, 0), migrate(1, 40, 50, 0, 1), migrate(1, 12, 50, 1, 0)].concat();
        assert_eq!(reasons(words), [MigrationKind::Balance, MigrationKind::Affinity, MigrationKind::Active]);
    }

    #[test]
    fn what_a_launcher_pulls_to_its_own_cpu_is_balanced() {
        assert_eq!(reasons(migrate(1, 40, 50, 1, 0)), [MigrationKind::Balance]);
    }

    /// `sched_exec` wakes the stopper from the task that is to move, as a change of its own affinity does; the program follows.
    #[test]
    fn a_task_that_is_moved_just_before_it_starts_a_program_was_placed_by_exec() {
        let a_move = [waking(1, 50, 12), migrate(1, 12, 50, 0, 1)].concat();
        let words = [a_move.clone(), exec(1, 50), a_move.clone(), a_move, exec(1, 51)].concat();
        assert_eq!(reasons(words), [MigrationKind::Exec, MigrationKind::Affinity, MigrationKind::Affinity]);
    }

    #[test]
    fn a_task_that_creates_another_before_its_program_changed_its_affinity() {
        let words = [waking(1, 50, 12), migrate(1, 12, 50, 0, 1), fork(1, 50, 60), exec(1, 50)].concat();
        assert_eq!(reasons(words), [MigrationKind::Affinity]);
    }

    #[test]
    fn a_task_that_wakes_the_stopper_to_be_moved_changed_its_affinity() {
        let moves = |waker| [waking(1, waker, 12), migrate(1, 12, 50, 0, 1)].concat();
        let words = [moves(50), moves(51), moves(50)].concat();
        assert_eq!(reasons(words), [MigrationKind::Affinity, MigrationKind::Active, MigrationKind::Affinity]);
    }

    /// A recording of `sched_wakeup` alone has its moves at wakeups, too; a task that sleeps and has no waking in a recording with others'
    /// was moved while its dequeue was delayed.
    #[test]
    fn a_task_that_sleeps_is_moved_at_a_wakeup_where_no_wakings_are_recorded() {
        let asleep = [switch(1, 0, 0, 0, 50), switch(1, 50, 50, 1, 0), migrate(1, 30, 50, 0, 1)].concat();
        let after = [switch(1, 0, 0, 0, 50), switch(1, 50, 50, 0, 9), migrate(1, 30, 50, 1, 0)].concat();
        assert_eq!(reasons([asleep.clone(), after].concat()), [MigrationKind::Wakeup, MigrationKind::Balance]);
        assert_eq!(reasons([asleep, waking(1, 30, 51)].concat()), [MigrationKind::Balance]);
    }

    #[test]
    fn one_waking_places_a_task_once_also_where_no_wakeups_are_recorded() {
        let words = [waking(1, 30, 50), migrate(1, 30, 50, 0, 1), migrate(1, 30, 50, 1, 0)].concat();
        assert_eq!(reasons(words), [MigrationKind::Wakeup, MigrationKind::Balance]);
        let ran = [waking(1, 30, 50), switch(1, 0, 0, 0, 50), migrate(1, 30, 50, 0, 1)].concat();
        assert_eq!(reasons(ran), [MigrationKind::Balance]);
    }

    fn reasons(words: Vec<u32>) -> Vec<MigrationKind> {
        let converted = convert(&[(0, words)]).unwrap();
        let reason = |event: &Event| if let EventKind::Migrate { kind, .. } = event.kind { Some(kind) } else { None };
        converted.events.iter().filter_map(reason).collect()
    }

    #[test]
    fn interrupts_are_overhead_from_their_beginning_to_their_end() {
        let record = |(time_ns, soft, begins)| Record {
            time_ns,
            cpu: 0,
            by: 50,
            context: crate::Context::HardInterrupt,
            what: What::Interrupt { soft, begins },
        };
        // One began before the run, the first softirq is interrupted, and the end of the second is lost.
        let hard = [(1005, false, false), (1010, false, true), (1014, false, false)];
        let soft = [(1014, true, true), (1020, false, true), (1022, false, false), (1030, true, false)];
        let lost = [(1040, true, true), (1050, true, true), (1051, true, false)];
        let records = [&hard[..], &soft, &lost].concat().into_iter().map(record).collect();
        let cast = Cast {
            tasks: &BTreeMap::new(),
            launchers: &BTreeSet::new(),
            stoppers: &[],
            restrictions: &[],
            allowed: &|_, _| true,
            bindings: &[],
            start_ns: 1000,
            elapsed_ns: 100,
            cpu: &|cpu| Some(CpuId(cpu)),
        };
        let converted = events(&Recording { records, ..Recording::default() }, &cast).unwrap();
        let overhead = |event: &Event| match event.kind {
            EventKind::Overhead { kind: OverheadKind::Interrupt, duration_ns } => Some((event.time_ns, duration_ns)),
            _ => None,
        };
        assert_eq!(converted.events.iter().filter_map(overhead).collect::<Vec<_>>(), [(14, 4), (30, 16), (51, 1)]);
    }

    #[test]
    fn records_of_all_cpus_are_put_in_order_of_time() {
        let converted = convert(&[(0, switch(30, 0, 0, 0, 50)), (1, switch(10, 0, 0, 0, 51))]).unwrap();
        assert_eq!(converted.events.iter().map(|event| event.time_ns).collect::<Vec<_>>(), [10, 30]);
        let error = convert(&[(7, switch(30, 0, 0, 0, 50))]).unwrap_err();
        assert!(error.contains("CPU 7"), "{error}");
    }
}
