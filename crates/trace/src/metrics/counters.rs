//! The sink that computes all metrics while events stream by.

use std::collections::BTreeMap;
use std::io;

use warmcore_topology::{CpuId, Machine, PerRelation};

use super::by_task::{ByTask, Of};
use super::cpu::CpuState;
use super::over_time::OverTime;
use super::task::{NEVER, NO_CPU, State, TaskState, Wait, crosses_llc};
use super::work_conservation::WorkConservation;
use crate::slices::TASK_LIMIT;
use crate::{
    Event, EventError, EventKind, Histogram, MIGRATION_KINDS, MigrationKind, PrevState, RunTables, Sink, TaskId,
};

/// Boxed, so that success travels in a register: this sink's time per event matters.
pub(super) type Checked<T> = Result<T, Box<EventError>>;

/// What is known when the window of observation opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// A simulation: all CPUs are idle at this instant (normally 0).
    Idle {
        /// Beginning of the window.
        time_ns: u64,
    },
    /// A recorded trace: what a CPU or a task was doing is unknown until an event tells.
    Unobserved {
        /// Beginning of the window.
        time_ns: u64,
    },
}

impl Start {
    fn time_ns(self) -> u64 {
        match self {
            Start::Idle { time_ns } | Start::Unobserved { time_ns } => time_ns,
        }
    }

    /// The same at another time.
    fn at(self, time_ns: u64) -> Self {
        match self {
            Start::Idle { .. } => Start::Idle { time_ns },
            Start::Unobserved { .. } => Start::Unobserved { time_ns },
        }
    }
}

/// Computes the metrics of a run from its events, in memory that depends on the numbers of CPUs and tasks alone.
///
/// Feed it events as a [`Sink`]; ask for [`Counters::metrics`] at the end, or at any time in between.
///
/// This is the sink the simulator runs with when nothing is written, so it is written for speed: dense arrays by id, no
/// hashing, no allocation but for a task never seen before, no loop over CPUs. `benches/counters.rs` measures it.
#[derive(Clone, Debug)]
pub struct Counters {
    pub(super) machine: Machine,
    pub(super) start: Start,
    /// End of a warm-up that is not over; [`NEVER`] without one, and from its end on.
    pub(super) opens_ns: u64,
    /// What began earlier is in no distribution.
    pub(super) counts_from_ns: u64,
    /// Time of the last event.
    pub(super) now_ns: u64,
    pub(super) tasks: Vec<TaskState>,
    pub(super) cpus: Vec<CpuState>,
    pub(super) work: WorkConservation,
    /// Run time of each task in each LLC, by rows of tasks; without the tasks' `resident_ns`.
    pub(super) llc_run_ns: Vec<u64>,
    pub(super) llcs: usize,
    pub(super) wakeup_latency: Histogram,
    pub(super) preempt_wait: Histogram,
    pub(super) off_cpu: Histogram,
    pub(super) slices: Histogram,
    pub(super) response: Histogram,
    /// The wakeup latencies and response times of each task, where they are kept.
    pub(super) by_task: Option<ByTask>,
    pub(super) ran_distance: PerRelation<u64>,
    /// Migrations (ran) between LLCs.
    pub(super) llc_moves: OverTime,
    pub(super) event_distance: PerRelation<u64>,
    pub(super) event_kinds: [u64; MIGRATION_KINDS],
    pub(super) after_preemption: u64,
    pub(super) counters: Vec<u64>,
    /// What was counted by task, CPU and counter, where samples of tasks are of stays.
    pub(super) stays: Option<BTreeMap<(TaskId, CpuId, u32), u64>>,
    pub(super) phases: Vec<u64>,
    pub(super) decisions: Vec<u64>,
    pub(super) events: u64,
    /// Whether any overhead was reported: without, it is unknown, not zero.
    pub(super) overhead_reported: bool,
    /// Waits that ended with the task's exit.
    pub(super) abandoned_waits: u64,
    /// Events that contradict what earlier ones told.
    pub(super) unexpected: u64,
}

impl Counters {
    /// A sink for a run on `machine` whose events refer to `tables`.
    pub fn new(machine: &Machine, tables: &RunTables, start: Start) -> Self {
        let idle = matches!(start, Start::Idle { .. });
        let cpu = |cpu: CpuId| CpuState::new(start.time_ns(), idle, machine.llc_of(cpu).0);
        Self {
            start,
            opens_ns: NEVER,
            counts_from_ns: 0,
            now_ns: start.time_ns(),
            tasks: Vec::new(),
            cpus: machine.cpus().map(cpu).collect(),
            work: WorkConservation::new(machine, &tables.restrictions, idle),
            llc_run_ns: Vec::new(),
            llcs: machine.llc_count(),
            wakeup_latency: Histogram::new(),
            preempt_wait: Histogram::new(),
            off_cpu: Histogram::new(),
            slices: Histogram::new(),
            response: Histogram::new(),
            by_task: None,
            ran_distance: PerRelation::default(),
            llc_moves: OverTime::default(),
            event_distance: PerRelation::default(),
            event_kinds: [0; MIGRATION_KINDS],
            after_preemption: 0,
            counters: vec![0; tables.counters.len()],
            stays: tables.counted_per_stay.then(BTreeMap::new),
            phases: vec![0; tables.phases.len()],
            decisions: vec![0; tables.decisions.len()],
            events: 0,
            overhead_reported: false,
            abandoned_waits: 0,
            unexpected: 0,
            machine: machine.clone(),
        }
    }

    /// The same with a warm-up, whose end is counted from the start: nothing of it is in the metrics (`open_window`).
    #[must_use]
    pub fn with_warm_up(self, warm_up_ns: u64) -> Self {
        let opens_ns = if warm_up_ns == 0 { NEVER } else { self.start_ns().saturating_add(warm_up_ns) };
        Self { opens_ns, ..self }
    }

    /// The same with what [`Counters::latencies_of`] tells.
    #[must_use]
    pub fn with_latencies_by_task(self) -> Self {
        Self { by_task: Some(ByTask::default()), ..self }
    }

    /// **Window**: what is counted. Without a warm-up it is the whole run. With one it begins at the warm-up's end, behind everything that
    /// happens at that instant, and then:
    ///
    /// - *time is clipped*: run time, residency, busy and idle time, run-queue lengths, violations of work conservation, and the sums of
    ///   run delay and off-CPU time of tasks are what of them lies in the window;
    /// - *what has a length counts if it begins in the window, with its whole length*: waits, slices and absences that began before are in
    ///   no distribution, because what began in the warm-up is of the warm-up, however long it takes, and a part of it would be shorter than
    ///   what happened. What has not ended when the run does is censored, with its whole length, whenever it began;
    /// - *what has no length counts if it happens in the window*: switches, migrations, decisions, phases, samples of counters. A migration
    ///   (ran) happens when the task comes to the other CPU, from wherever it was before.
    ///
    /// Kernel time counts by its reports; whoever knows its window reports it at the border. Contradictions among events
    /// (`unexpected_events`) are those of the whole run.
    #[cold]
    fn open_window(&mut self) {
        let now_ns = std::mem::replace(&mut self.opens_ns, NEVER);
        self.start = self.start.at(now_ns);
        self.counts_from_ns = now_ns + 1;
        self.cpus.iter_mut().for_each(|cpu| cpu.open_window(now_ns));
        self.tasks.iter_mut().for_each(|task| task.open_window(now_ns));
        self.work.open_window(now_ns);
        self.llc_run_ns.fill(0);
        let distributions =
            [&mut self.wakeup_latency, &mut self.preempt_wait, &mut self.off_cpu, &mut self.slices, &mut self.response];
        for histogram in distributions {
            *histogram = Histogram::new();
        }
        self.by_task.iter_mut().for_each(ByTask::clear);
        (self.ran_distance, self.event_distance, self.llc_moves) = Default::default();
        self.event_kinds = [0; MIGRATION_KINDS];
        for sums in [&mut self.counters, &mut self.phases, &mut self.decisions] {
            sums.fill(0);
        }
        self.stays.iter_mut().for_each(BTreeMap::clear);
        (self.after_preemption, self.events, self.abandoned_waits) = (0, 0, 0);
    }

    /// The same behind its warm-up, if that is not over; `None` if it is.
    pub(super) fn opened(&self) -> Option<Self> {
        (self.opens_ns != NEVER).then(|| {
            let mut opened = self.clone();
            opened.open_window();
            opened
        })
    }

    /// **Tasks per CPU** at present: the running task plus the queued ones, by CPU.
    pub fn tasks_per_cpu(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.cpus.iter().map(CpuState::length)
    }

    /// Beginning of the window.
    pub(super) fn start_ns(&self) -> u64 {
        self.start.time_ns()
    }

    #[inline]
    fn event(&mut self, event: &Event) -> Checked<()> {
        if event.time_ns < self.now_ns {
            return Err(Box::new(EventError::OutOfOrder { event: *event, previous_ns: self.now_ns }));
        }
        if event.time_ns > self.opens_ns {
            self.open_window();
        }
        self.now_ns = event.time_ns;
        self.cpu(event, event.cpu)?;
        self.events += 1;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => self.switch(event, prev, prev_state, next)?,
            EventKind::Waking { task, target_cpu, .. } => self.waking(event, task, target_cpu)?,
            EventKind::Wakeup { task, .. } => self.wakeup(event, task)?,
            EventKind::Migrate { task, from, to, kind } => self.migrate(event, task, from, to, kind)?,
            EventKind::Fork { child, .. } => self.fork(event, child)?,
            EventKind::Exit { task } => self.exit(event, task)?,
            EventKind::Affinity { task, restriction } => self.affinity(event, task, restriction)?,
            EventKind::Counter { counter, task, value } => {
                let sum = entry(&mut self.counters, event, "counters", counter)?;
                *sum = sum.saturating_add(value);
                if let Some(stays) = self.stays.as_mut().filter(|_| !task.is_idle()) {
                    let sum = stays.entry((task, event.cpu, counter)).or_default();
                    *sum = sum.saturating_add(value);
                }
            }
            EventKind::Phase { phase, .. } => *entry(&mut self.phases, event, "phases", phase)? += 1,
            EventKind::Decision { decision, .. } => *entry(&mut self.decisions, event, "decisions", decision)? += 1,
            // Not counted: a sample says nothing that adds up.
            EventKind::Score { .. } | EventKind::BalanceDetail { .. } => {}
            EventKind::Foreign { thread } => self.foreign(event, thread.is_some()),
            EventKind::Hotplug { online } => self.plug(event, online),
            EventKind::Throttle { task, throttled } => self.throttle(event, task, throttled)?,
            EventKind::Overhead { kind, duration_ns } => {
                self.overhead_reported = true;
                let spent = &mut self.cpus[event.cpu.index()].overhead_ns[kind as usize];
                *spent = spent.saturating_add(duration_ns);
            }
        }
        Ok(())
    }

    fn switch(&mut self, event: &Event, prev: TaskId, prev_state: PrevState, next: TaskId) -> Checked<()> {
        let (now_ns, place) = (event.time_ns, event.cpu.index());
        let cpu = &mut self.cpus[place];
        self.unexpected += u64::from(cpu.known && cpu.curr != prev);
        cpu.settle_length(now_ns);
        cpu.settle_switch(now_ns);
        if !prev.is_idle() {
            self.leave(event, prev, prev_state)?;
        }
        let starting = self.start_elsewhere(now_ns, place, next);
        if !next.is_idle() {
            self.enter(event, next, starting)?;
        }
        let cpu = &mut self.cpus[place];
        cpu.curr = next;
        cpu.length_max = cpu.length_max.max(cpu.length());
        self.settle_idle(now_ns, event.cpu);
        Ok(())
    }

    /// The CPU runs a thread that is no task of the run, or nobody.
    fn foreign(&mut self, event: &Event, runs: bool) {
        let (now_ns, place) = (event.time_ns, event.cpu.index());
        let cpu = &mut self.cpus[place];
        if !cpu.curr.is_idle() {
            self.unexpected += 1;
            return;
        }
        cpu.settle_length(now_ns);
        cpu.settle_foreign(now_ns, runs);
        if runs {
            self.start_elsewhere(now_ns, place, TaskId::IDLE);
        }
        self.settle_idle(now_ns, event.cpu);
    }

    /// The CPU goes offline or comes online.
    #[cold]
    fn plug(&mut self, event: &Event, online: bool) {
        let (now_ns, place) = (event.time_ns, event.cpu.index());
        let cpu = &mut self.cpus[place];
        self.unexpected += u64::from(cpu.known && cpu.offline != online);
        cpu.settle_length(now_ns);
        cpu.plug(now_ns, online);
        if !online {
            self.start_elsewhere(now_ns, place, TaskId::IDLE);
        }
        self.settle_idle(now_ns, event.cpu);
    }

    /// From here on the CPU runs `next`: a task that was starting but is not the one becomes a waiter. Returns who was starting.
    fn start_elsewhere(&mut self, now_ns: u64, place: usize, next: TaskId) -> TaskId {
        let starting = std::mem::replace(&mut self.cpus[place].starting, TaskId::IDLE);
        if !starting.is_idle() && starting != next {
            self.work.waiter_added(now_ns, self.tasks[starting.index()].class);
        }
        starting
    }

    /// `prev` leaves the CPU of the event.
    fn leave(&mut self, event: &Event, prev: TaskId, prev_state: PrevState) -> Checked<()> {
        let now_ns = event.time_ns;
        let index = self.known_task(event, prev)?;
        if self.tasks[index].state == State::Queued {
            self.unexpected += 1;
            self.dequeue_waiting(now_ns, prev);
        }
        let task = &mut self.tasks[index];
        if task.state == State::Running && task.cpu == event.cpu.0 {
            if let Some(ran) = task.end_slice(now_ns, self.counts_from_ns) {
                self.slices.record(ran);
            }
        } else {
            // Legal for the first event of a task only: it was on the CPU before the window opened.
            self.unexpected += u64::from(task.state != State::Unknown);
            self.enter_llc(index, event.cpu);
        }
        let task = &mut self.tasks[index];
        task.left_ns = now_ns;
        task.cpu = event.cpu.0;
        task.last_ran = event.cpu.0;
        match prev_state {
            // **Involuntary switch**: the task left still runnable, preempted or yielding.
            PrevState::Runnable => {
                task.involuntary += 1;
                task.state = State::Queued;
                task.wait = Wait::Preempt;
                task.since_ns = now_ns;
                if task.throttled.is_none() {
                    self.work.waiter_added(now_ns, task.class);
                    self.cpus[event.cpu.index()].queued += 1;
                }
            }
            // **Voluntary switch**: the task left asleep.
            PrevState::Sleeping => {
                task.voluntary += 1;
                task.state = State::Sleeping;
                if let Some(took) = task.end_response(now_ns, self.counts_from_ns) {
                    self.response.record(took);
                    if let Some(by_task) = &mut self.by_task {
                        by_task.record(index, Of::Response, took);
                    }
                }
            }
            // Death is neither.
            PrevState::Dead => task.state = State::Dead,
            PrevState::Idle => {
                self.unexpected += 1;
                task.state = State::Unknown;
            }
        }
        Ok(())
    }

    /// `next` comes to the CPU of the event, where `starting` was about to run.
    fn enter(&mut self, event: &Event, next: TaskId, starting: TaskId) -> Checked<()> {
        let now_ns = event.time_ns;
        let index = self.known_task(event, next)?;
        let task = &mut self.tasks[index];
        if task.state == State::Queued && task.cpu == event.cpu.0 {
            if task.throttled.is_none() {
                self.cpus[event.cpu.index()].queued -= 1;
                if next != starting {
                    self.work.waiter_removed(now_ns, task.class);
                }
            }
        } else {
            // Legal for the first event of a task only.
            self.unexpected += u64::from(task.state != State::Unknown);
            self.dequeue_waiting(now_ns, next);
        }
        let task = &mut self.tasks[index];
        let waiting = matches!(task.state, State::New | State::Waking | State::Queued);
        if let Some(waited) = if waiting { task.end_wait(now_ns, self.counts_from_ns) } else { None } {
            match task.wait {
                Wait::Preempt => self.preempt_wait.record(waited),
                _ => {
                    self.wakeup_latency.record(waited);
                    if let Some(by_task) = &mut self.by_task {
                        by_task.record(index, Of::Wakeup, waited);
                    }
                }
            }
        }
        if let Some(away) = task.end_off_cpu(now_ns, self.counts_from_ns) {
            self.off_cpu.record(away);
        }
        if task.last_ran != event.cpu.0 {
            if task.last_ran != NO_CPU {
                let relation = self.machine.relation(CpuId(task.last_ran), event.cpu);
                task.ran_elsewhere(relation);
                self.ran_distance[relation] += 1;
                if crosses_llc(relation) {
                    self.llc_moves.add(now_ns - self.start.time_ns());
                }
            }
            self.enter_llc(index, event.cpu);
        }
        let task = &mut self.tasks[index];
        task.state = State::Running;
        task.cpu = event.cpu.0;
        task.last_ran = event.cpu.0;
        task.since_ns = now_ns;
        Ok(())
    }

    /// A task is on a CPU other than the one before: what it ran under another LLC goes to the table.
    fn enter_llc(&mut self, index: usize, cpu: CpuId) {
        if let Some((llc, ran)) = self.tasks[index].enter_llc(self.cpus[cpu.index()].llc) {
            self.llc_run_ns[index * self.llcs + llc as usize] += ran;
        }
    }

    fn waking(&mut self, event: &Event, task: TaskId, target_cpu: CpuId) -> Checked<()> {
        self.cpu(event, target_cpu)?;
        let index = self.known_task(event, task)?;
        let task = &mut self.tasks[index];
        match task.state {
            State::Sleeping | State::Unknown => {
                task.state = State::Waking;
                task.wait = Wait::Wakeup;
                task.since_ns = event.time_ns;
                task.woken_ns = event.time_ns;
                // Where it last ran, not where it will be placed: nothing to count.
                task.cpu = target_cpu.0;
            }
            // Runnable already: the kernel reports such wakeups too, and nothing changes.
            State::New | State::Waking | State::Queued | State::Running => {}
            State::Dead => self.unexpected += 1,
        }
        Ok(())
    }

    fn wakeup(&mut self, event: &Event, task: TaskId) -> Checked<()> {
        let index = self.known_task(event, task)?;
        match self.tasks[index].state {
            State::Waking => self.enqueue(event.time_ns, task, event.cpu),
            State::New => {
                let state = &mut self.tasks[index];
                (state.wait, state.since_ns) = (Wait::Wakeup, event.time_ns);
                self.enqueue(event.time_ns, task, event.cpu);
            }
            State::Sleeping | State::Unknown => {
                // Its waking was not seen, so the length of the wait is not known.
                let state = &mut self.tasks[index];
                self.unexpected += u64::from(state.state == State::Sleeping);
                state.wait = Wait::Unobserved;
                state.since_ns = event.time_ns;
                self.enqueue(event.time_ns, task, event.cpu);
            }
            State::Queued | State::Running => {}
            State::Dead => self.unexpected += 1,
        }
        Ok(())
    }

    /// **Migration (event)**: one `sched_migrate_task`, moves of tasks that never ran in between included. Split by
    /// reason, by distance, and by whether the task was waiting after a preemption.
    fn migrate(&mut self, event: &Event, task: TaskId, from: CpuId, to: CpuId, kind: MigrationKind) -> Checked<()> {
        self.cpu(event, from)?;
        self.cpu(event, to)?;
        let index = self.known_task(event, task)?;
        self.event_kinds[kind as usize] += 1;
        self.event_distance[self.machine.relation(from, to)] += 1;
        let state = &mut self.tasks[index];
        state.migrations_event += 1;
        match state.state {
            State::Queued if state.throttled.is_none() => {
                self.after_preemption += u64::from(state.wait == Wait::Preempt);
                self.unexpected += u64::from(state.cpu != from.0);
                self.dequeue(event.time_ns, task);
                self.enqueue(event.time_ns, task, to);
            }
            State::Running | State::Dead => self.unexpected += 1,
            State::Unknown | State::New | State::Sleeping | State::Waking | State::Queued => state.cpu = to.0,
        }
        Ok(())
    }

    fn fork(&mut self, event: &Event, child: TaskId) -> Checked<()> {
        let index = self.known_task(event, child)?;
        let task = &mut self.tasks[index];
        if task.state == State::Unknown {
            task.state = State::New;
            task.wait = Wait::Unobserved;
            task.since_ns = event.time_ns;
            task.cpu = event.cpu.0;
            task.created_ns = event.time_ns;
        } else {
            self.unexpected += 1;
        }
        Ok(())
    }

    fn exit(&mut self, event: &Event, task: TaskId) -> Checked<()> {
        let index = self.known_task(event, task)?;
        self.tasks[index].exited_ns = event.time_ns;
        let (state, counts) = (self.tasks[index].state, self.tasks[index].wait_counts());
        self.dequeue_waiting(event.time_ns, task);
        let waits = matches!(state, State::Waking | State::Queued) && counts;
        self.abandoned_waits += u64::from(waits);
        if state != State::Running {
            self.tasks[index].state = State::Dead;
        }
        Ok(())
    }

    fn affinity(&mut self, event: &Event, task: TaskId, restriction: u32) -> Checked<()> {
        let Some(class) = self.work.class(restriction) else {
            let length = self.work.restrictions();
            return Err(Box::new(EventError::UnknownEntry {
                event: *event,
                table: "restrictions",
                index: restriction,
                length,
            }));
        };
        let index = self.known_task(event, task)?;
        let state = &mut self.tasks[index];
        let old_class = std::mem::replace(&mut state.class, class);
        // A starting task is not among the waiters and takes its new class there if it becomes one.
        if state.is_waiting() && self.cpus[state.cpu as usize].starting != task {
            self.work.waiter_removed(event.time_ns, old_class);
            self.work.waiter_added(event.time_ns, class);
        }
        Ok(())
    }

    /// Checks a CPU that an event names.
    #[inline]
    fn cpu(&self, event: &Event, cpu: CpuId) -> Checked<()> {
        if cpu.index() < self.cpus.len() {
            Ok(())
        } else {
            Err(Box::new(EventError::UnknownCpu { event: *event, cpu, cpus: self.cpus.len() }))
        }
    }

    /// The index of a task, whose state exists from here on.
    #[inline]
    pub(super) fn known_task(&mut self, event: &Event, task: TaskId) -> Checked<usize> {
        if task.index() >= self.tasks.len() {
            self.add_tasks(event, task)?;
        }
        Ok(task.index())
    }

    #[cold]
    fn add_tasks(&mut self, event: &Event, task: TaskId) -> Checked<()> {
        if task.0 >= TASK_LIMIT {
            return Err(Box::new(EventError::NoTask { event: *event, task, limit: TASK_LIMIT }));
        }
        self.tasks.resize_with(task.index() + 1, TaskState::default);
        self.llc_run_ns.resize(self.tasks.len() * self.llcs, 0);
        Ok(())
    }
}

/// An entry of one of the sums that follow the run's tables.
fn entry<'a>(sums: &'a mut [u64], event: &Event, table: &'static str, index: u32) -> Checked<&'a mut u64> {
    let length = sums.len();
    sums.get_mut(index as usize)
        .ok_or_else(|| Box::new(EventError::UnknownEntry { event: *event, table, index, length }))
}

impl Sink for Counters {
    /// # Errors
    /// [`EventError`] as [`io::ErrorKind::InvalidData`] for an event that cannot be; events before it are counted.
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        for event in batch {
            self.event(event).map_err(|error| *error)?;
        }
        Ok(())
    }
}
