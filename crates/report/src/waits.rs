//! What each task of a trial waited for a CPU, and who had that CPU meanwhile.
//!
//! A task waits from its waking or its preemption until it runs, or until the trial ends; from its wakeup where no waking was recorded before,
//! as of a new task. While it waits for a CPU, whoever runs there is who it waits for: another task, a thread beside the run as far as events
//! tell, or nobody (the CPU's way out of idle). While a quota keeps it from running it waits for no CPU. That CPU is the one where it last ran, until a migration or the wakeup names another one:
//! `perf sched record` records no wakeups.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use warmcore_topology::CpuId;
use warmcore_trace::{
    Event, EventError, EventKind, PrevState, RecordedThread, RunTables, Sink, TaskId, TaskInfo, Throttler,
};

use crate::others::{OFFLINE, Others};
use crate::threads::thread_name;

/// Who has a CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Occupant {
    /// A task of the run.
    Task(TaskId),
    /// A thread beside the run: its index in the run's table.
    Other(u32),
    /// Nobody: the CPU was offline.
    Offline,
    /// Nobody that events tell of.
    Nobody,
    /// Whoever had it: the reservation of the task that waits throttles it until its next period.
    Reservation,
}

impl Occupant {
    /// Its name, as explanations have it.
    pub fn name(self, tasks: &[TaskInfo], tables: &RunTables) -> String {
        match self {
            Self::Task(task) => thread_name(tasks, tables, task),
            Self::Other(thread) => {
                tables.foreign.get(thread as usize).map_or_else(|| "?".to_owned(), RecordedThread::label)
            }
            Self::Offline => "no thread (the CPU was offline)".to_owned(),
            Self::Reservation => "any thread (it was throttled by its reservation until its next period)".to_owned(),
            Self::Nobody => "no thread (it was idle, or came out of idle)".to_owned(),
        }
    }
}

/// A wait after a waking or the first wakeup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeupWait {
    /// When it ended, ns.
    pub end_ns: u64,
    /// How long it was, ns.
    pub length_ns: u64,
    /// Whether the task ran then; else the trial ended.
    pub ran: bool,
}

/// What a task did and waited for. What has not ended counts up to the end of the trial.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskWaits {
    /// Stays on a CPU.
    pub stays: u64,
    /// Time on CPUs, ns.
    pub run_ns: u64,
    /// From wakings and its first wakeup until it ran, ns.
    pub wakeup_wait_ns: u64,
    /// How many of these.
    pub wakeups: u64,
    /// From preemptions until it ran again, ns.
    pub preempt_wait_ns: u64,
    /// How often another one came while it could have run on.
    pub preemptions: u64,
    /// By whom, how often.
    pub preempted_by: BTreeMap<Occupant, u64>,
    /// Runnable but kept from running by a quota or reservation, outside of these waits, ns.
    pub throttled_ns: u64,
    /// The longest of these waits.
    pub worst_wakeup: Option<WakeupWait>,
    /// Who had the CPU that it waited for, and for how long of all its waits, ns.
    pub behind_ns: BTreeMap<Occupant, u64>,
    /// Which other task woke it from its sleeps, and how long these were, ns: it may have waited for what that task held.
    pub blocked_ns: BTreeMap<Occupant, u64>,
}

/// A part of a wait in which one had the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The CPU that the task waited for.
    pub cpu: CpuId,
    /// Who had it.
    pub who: Occupant,
    /// From when, ns.
    pub from_ns: u64,
    /// To when, ns.
    pub to_ns: u64,
}

/// One wait of a task that is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Who waited.
    pub task: TaskId,
    /// From when, ns.
    pub from_ns: u64,
    /// To when, ns.
    pub to_ns: u64,
    /// Whether it had been preempted; else it was woken.
    pub preempted: bool,
    /// Whether it ran then; else the trial ended.
    pub ran: bool,
    /// Who had the CPU meanwhile, in order of time, without a gap.
    pub parts: Vec<Part>,
}

/// Keeps single waits of some tasks: the longest ones, or those closest to a time.
struct LongestWaits {
    tasks: BTreeSet<TaskId>,
    at_ns: Option<u64>,
    most: usize,
    open: BTreeMap<TaskId, Vec<Part>>,
    /// The first ones in the order of [`LongestWaits::rank`].
    waits: Vec<Wait>,
}

impl LongestWaits {
    /// How far from the time, then the longest and the earliest first.
    fn rank(&self, wait: &Wait) -> (u64, Reverse<u64>, u64, TaskId) {
        let away = |at_ns: u64| wait.from_ns.saturating_sub(at_ns).max(at_ns.saturating_sub(wait.to_ns));
        (self.at_ns.map_or(0, away), Reverse(wait.to_ns - wait.from_ns), wait.from_ns, wait.task)
    }

    fn part(&mut self, task: TaskId, part: Part) {
        if !self.tasks.contains(&task) {
            return;
        }
        let parts = self.open.entry(task).or_default();
        match parts.last_mut() {
            Some(last) if (last.cpu, last.who) == (part.cpu, part.who) => last.to_ns = part.to_ns,
            _ => parts.push(part),
        }
    }

    fn end(&mut self, task: TaskId, open: OpenWait, to_ns: u64, ran: bool) {
        if !self.tasks.contains(&task) {
            return;
        }
        let parts = self.open.remove(&task).unwrap_or_default();
        let wait = Wait { task, from_ns: open.since_ns, to_ns, preempted: open.preempted, ran, parts };
        let position = self.waits.partition_point(|other| self.rank(other) < self.rank(&wait));
        if position < self.most {
            self.waits.truncate(self.most - 1);
            self.waits.insert(position, wait);
        }
    }
}

/// A wait that has not ended.
#[derive(Clone, Copy)]
struct OpenWait {
    since_ns: u64,
    preempted: bool,
    /// The CPU that it waits for, and up to when that is accounted for.
    queue: (CpuId, u64),
}

/// Follows a trial's events.
pub struct Waits {
    tasks: Vec<TaskWaits>,
    open: Vec<Option<OpenWait>>,
    running_since: Vec<Option<u64>>,
    asleep_since: Vec<Option<u64>>,
    /// By task: what keeps it from running.
    throttled: Vec<Option<Throttler>>,
    current: Vec<TaskId>,
    others: Others,
    queued: Vec<Vec<TaskId>>,
    kept: LongestWaits,
    now_ns: u64,
}

impl Waits {
    /// For a machine with so many CPUs.
    pub fn new(cpus: usize) -> Self {
        Self {
            tasks: Vec::new(),
            open: Vec::new(),
            running_since: Vec::new(),
            asleep_since: Vec::new(),
            throttled: Vec::new(),
            current: vec![TaskId::IDLE; cpus],
            others: Others::new(cpus),
            queued: vec![Vec::new(); cpus],
            kept: LongestWaits {
                tasks: BTreeSet::new(),
                at_ns: None,
                most: 0,
                open: BTreeMap::new(),
                waits: Vec::new(),
            },
            now_ns: 0,
        }
    }

    /// Keeps so many single waits of these tasks: those closest to a time, or the longest ones.
    #[must_use]
    pub fn keeping(mut self, tasks: BTreeSet<TaskId>, at_ns: Option<u64>, most: usize) -> Self {
        self.kept = LongestWaits { tasks, at_ns, most, ..self.kept };
        self
    }

    /// Of every task by id, and the single waits that were to be kept, the longest or the closest one first. The trial ends at `end_ns`, or
    /// at its last event if that is later.
    #[must_use]
    pub fn finish(mut self, end_ns: u64) -> (Vec<TaskWaits>, Vec<Wait>) {
        let end_ns = end_ns.max(self.now_ns);
        for index in 0..self.tasks.len() {
            let task = TaskId(index as u32);
            self.dequeue(end_ns, task);
            self.end_throttled(end_ns, index);
            if let Some(open) = self.open[index].take() {
                self.end_wait(end_ns, task, open, false);
            }
            self.end_stay(end_ns, index);
        }
        (self.tasks, self.kept.waits)
    }

    fn index(&mut self, task: TaskId) -> usize {
        let index = task.index();
        if index >= self.tasks.len() {
            self.tasks.resize(index + 1, TaskWaits::default());
            self.open.resize(index + 1, None);
            self.running_since.resize(index + 1, None);
            self.asleep_since.resize(index + 1, None);
            self.throttled.resize(index + 1, None);
        }
        index
    }

    fn occupant(&self, cpu: CpuId) -> Occupant {
        match (self.current[cpu.index()], self.others.on(cpu)) {
            (TaskId::IDLE, Some(OFFLINE)) => Occupant::Offline,
            (TaskId::IDLE, Some(thread)) => Occupant::Other(thread),
            (TaskId::IDLE, None) => Occupant::Nobody,
            (task, _) => Occupant::Task(task),
        }
    }

    /// Accounts for a CPU's queue, before somebody else comes to the CPU.
    fn settle(&mut self, now: u64, cpu: CpuId) {
        let occupant = self.occupant(cpu);
        for position in 0..self.queued[cpu.index()].len() {
            self.settle_task(now, self.queued[cpu.index()][position], occupant);
        }
    }

    fn settle_task(&mut self, now: u64, task: TaskId, who: Occupant) {
        if let Some(OpenWait { queue: (cpu, since), .. }) = &mut self.open[task.index()] {
            if now > *since {
                *self.tasks[task.index()].behind_ns.entry(who).or_default() += now - *since;
                self.kept.part(task, Part { cpu: *cpu, who, from_ns: *since, to_ns: now });
            }
            *since = now;
        }
    }

    /// Puts a task that waits into the queue of another CPU.
    fn requeue(&mut self, now: u64, task: TaskId, cpu: CpuId) {
        self.dequeue(now, task);
        if let Some(open) = &mut self.open[task.index()] {
            open.queue = (cpu, now);
            if self.throttled[task.index()].is_none() {
                self.queued[cpu.index()].push(task);
            }
        }
    }

    /// Whether a task that is kept from running waits all the same: woken while its reservation is used up.
    fn wait_counts(&self, index: usize) -> bool {
        self.throttled[index] == Some(Throttler::Reservation) && self.open[index].is_some_and(|open| !open.preempted)
    }

    /// A quota or reservation keeps a task from running, or lets it run again: a wait that does not count begins then.
    fn throttle(&mut self, now: u64, task: TaskId, throttled: Option<Throttler>) {
        let index = self.index(task);
        if throttled.is_some() == self.throttled[index].is_some() {
            return;
        }
        if throttled.is_some() {
            self.dequeue(now, task);
            self.throttled[index] = throttled;
            if !self.wait_counts(index) {
                if let Some(open) = &mut self.open[index] {
                    (open.since_ns, open.queue.1) = (now, now);
                }
                self.kept.open.remove(&task);
            }
        } else if self.wait_counts(index) {
            self.dequeue(now, task);
            self.throttled[index] = None;
            if let Some(open) = self.open[index] {
                self.queued[open.queue.0.index()].push(task);
            }
        } else {
            let open = self.open[index];
            self.end_throttled(now, index);
            if let Some(open) = open {
                self.begin(now, task, open.queue.0, open.preempted);
            }
        }
    }

    /// The time since a throttled task left or would have run ends.
    fn end_throttled(&mut self, now: u64, index: usize) {
        if !self.wait_counts(index)
            && self.throttled[index].take().is_some()
            && let Some(open) = self.open[index].take()
        {
            self.tasks[index].throttled_ns += now - open.since_ns;
        }
    }

    /// Takes a task off the queue it is in.
    fn dequeue(&mut self, now: u64, task: TaskId) {
        let Some(OpenWait { queue: (cpu, _), .. }) = self.open[task.index()] else { return };
        if self.throttled[task.index()].is_none() {
            self.settle_task(now, task, self.occupant(cpu));
            self.queued[cpu.index()].retain(|queued| *queued != task);
        } else if self.wait_counts(task.index()) {
            self.settle_task(now, task, Occupant::Reservation);
        }
    }

    fn begin(&mut self, now: u64, task: TaskId, cpu: CpuId, preempted: bool) {
        let index = self.index(task);
        if self.open[index].is_none() && self.running_since[index].is_none() {
            self.open[index] = Some(OpenWait { since_ns: now, preempted, queue: (cpu, now) });
            if self.throttled[index].is_none() {
                self.queued[cpu.index()].push(task);
            }
        }
    }

    /// A sleep ends, by another task or by none.
    fn woken(&mut self, now: u64, task: TaskId, waker: TaskId) {
        let index = self.index(task);
        if let Some(since) = self.asleep_since[index].take()
            && !waker.is_idle()
            && waker != task
        {
            *self.tasks[index].blocked_ns.entry(Occupant::Task(waker)).or_default() += now - since;
        }
    }

    fn end_stay(&mut self, now: u64, index: usize) {
        if let Some(since) = self.running_since[index].take() {
            self.tasks[index].stays += 1;
            self.tasks[index].run_ns += now - since;
        }
    }

    fn leave(&mut self, now: u64, cpu: CpuId, task: TaskId, state: PrevState) {
        let index = self.index(task);
        self.end_stay(now, index);
        // It ran: where its coming is missing, how long it waited is not known.
        self.forget(now, task);
        self.asleep_since[index] = (state == PrevState::Sleeping).then_some(now);
        if state == PrevState::Runnable {
            self.begin(now, task, cpu, true);
        }
    }

    /// A wait ends that is none.
    fn forget(&mut self, now: u64, task: TaskId) {
        self.dequeue(now, task);
        self.open[task.index()] = None;
        self.kept.open.remove(&task);
    }

    fn enter(&mut self, now: u64, task: TaskId) {
        let index = self.index(task);
        self.dequeue(now, task);
        self.running_since[index] = Some(now);
        if let Some(open) = self.open[index].take() {
            self.end_wait(now, task, open, true);
        }
    }

    fn end_wait(&mut self, now: u64, task: TaskId, open: OpenWait, ran: bool) {
        let (waits, length_ns) = (&mut self.tasks[task.index()], now - open.since_ns);
        if open.preempted {
            waits.preempt_wait_ns += length_ns;
        } else {
            (waits.wakeups, waits.wakeup_wait_ns) = (waits.wakeups + 1, waits.wakeup_wait_ns + length_ns);
            if waits.worst_wakeup.is_none_or(|worst| length_ns > worst.length_ns) {
                waits.worst_wakeup = Some(WakeupWait { end_ns: now, length_ns, ran });
            }
        }
        self.kept.end(task, open, now, ran);
    }

    /// Whoever comes onto the CPU right after a task that could have run on has preempted it.
    fn preempted(&mut self, task: TaskId, by: Occupant) {
        let waits = &mut self.tasks[task.index()];
        waits.preemptions += 1;
        *waits.preempted_by.entry(by).or_default() += 1;
    }

    fn event(&mut self, event: &Event) {
        let (now, cpu) = (event.time_ns, event.cpu);
        self.now_ns = now;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.settle(now, cpu);
                self.others.push(event);
                self.current[cpu.index()] = next;
                if !prev.is_idle() {
                    self.leave(now, cpu, prev, prev_state);
                }
                if !next.is_idle() {
                    self.enter(now, next);
                    if !prev.is_idle()
                        && prev_state == PrevState::Runnable
                        && prev != next
                        && self.throttled[prev.index()].is_none()
                    {
                        self.preempted(prev, Occupant::Task(next));
                    }
                }
            }
            EventKind::Foreign { thread } => {
                self.settle(now, cpu);
                self.others.push(event);
                // It comes at the instant at which a task that could have run on left for it.
                let left = self.queued[cpu.index()].iter().copied().find(|task| {
                    let open = self.open[task.index()];
                    open.is_some_and(|open| open.preempted && open.since_ns == now)
                });
                if let (Some(task), Some(thread)) = (left, thread) {
                    self.preempted(task, Occupant::Other(thread));
                }
            }
            EventKind::Hotplug { .. } => {
                self.settle(now, cpu);
                self.others.push(event);
            }
            EventKind::Throttle { task, throttled } => self.throttle(now, task, throttled),
            EventKind::Waking { task, target_cpu, waker } => {
                self.woken(now, task, waker);
                self.begin(now, task, target_cpu, false);
            }
            EventKind::Wakeup { task, .. } => {
                self.begin(now, task, cpu, false);
                self.requeue(now, task, cpu);
            }
            EventKind::Migrate { task, to, .. } => {
                self.index(task);
                self.requeue(now, task, to);
            }
            EventKind::Exit { task } => {
                self.index(task);
                self.forget(now, task);
            }
            _ => {}
        }
    }
}

impl Sink for Waits {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        let cpus = self.current.len();
        for event in batch {
            let to = match event.kind {
                EventKind::Migrate { to, .. } | EventKind::Waking { target_cpu: to, .. } => to,
                _ => event.cpu,
            };
            if let Some(missing) = [event.cpu, to].into_iter().find(|cpu| cpu.index() >= cpus) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the machine has no {missing}")));
            }
            if event.time_ns < self.now_ns {
                return Err(EventError::OutOfOrder { event: *event, previous_ns: self.now_ns }.into());
            }
            self.event(event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
