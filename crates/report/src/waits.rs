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
use warmcore_trace::{Event, EventError, EventKind, PrevState, RecordedThread, RunTables, Sink, TaskId, TaskInfo};

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
}

impl Occupant {
    /// Its name, as explanations have it.
    #[must_use]
    pub fn name(self, tasks: &[TaskInfo], tables: &RunTables) -> String {
        match self {
            Self::Task(task) => thread_name(tasks, tables, task),
            Self::Other(thread) => {
                tables.foreign.get(thread as usize).map_or_else(|| "?".to_owned(), RecordedThread::label)
            }
            Self::Offline => "no thread (the CPU was offline)".to_owned(),
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
    /// Runnable but kept from running by a quota, ns.
    pub throttled_ns: u64,
    /// The longest of these waits.
    pub worst_wakeup: Option<WakeupWait>,
    /// Who had the CPU that it waited for, and for how long of all its waits, ns.
    pub behind_ns: BTreeMap<Occupant, u64>,
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
    /// By task: a quota keeps it from running.
    throttled: Vec<bool>,
    current: Vec<TaskId>,
    others: Others,
    queued: Vec<Vec<TaskId>>,
    kept: LongestWaits,
    now_ns: u64,
}

impl Waits {
    /// For a machine with so many CPUs.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self {
            tasks: Vec::new(),
            open: Vec::new(),
            running_since: Vec::new(),
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
            self.throttled.resize(index + 1, false);
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
            if !self.throttled[task.index()] {
                self.queued[cpu.index()].push(task);
            }
        }
    }

    /// A quota keeps a task from running, or lets it run again: a wait of its begins then.
    fn throttle(&mut self, now: u64, task: TaskId, throttled: bool) {
        let index = self.index(task);
        if throttled == self.throttled[index] {
            return;
        }
        if throttled {
            self.dequeue(now, task);
            self.throttled[index] = true;
            if let Some(open) = &mut self.open[index] {
                (open.since_ns, open.queue.1) = (now, now);
            }
            self.kept.open.remove(&task);
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
        if std::mem::take(&mut self.throttled[index])
            && let Some(open) = self.open[index].take()
        {
            self.tasks[index].throttled_ns += now - open.since_ns;
        }
    }

    /// Takes a task off the queue it is in.
    fn dequeue(&mut self, now: u64, task: TaskId) {
        if let Some(OpenWait { queue: (cpu, _), .. }) =
            self.open[task.index()].filter(|_| !self.throttled[task.index()])
        {
            self.settle_task(now, task, self.occupant(cpu));
            self.queued[cpu.index()].retain(|queued| *queued != task);
        }
    }

    fn begin(&mut self, now: u64, task: TaskId, cpu: CpuId, preempted: bool) {
        let index = self.index(task);
        if self.open[index].is_none() && self.running_since[index].is_none() {
            self.open[index] = Some(OpenWait { since_ns: now, preempted, queue: (cpu, now) });
            if !self.throttled[index] {
                self.queued[cpu.index()].push(task);
            }
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
                        && !self.throttled[prev.index()]
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
            EventKind::Waking { task, target_cpu, .. } => self.begin(now, task, target_cpu, false),
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
mod tests {
    use super::*;
    use warmcore_trace::MigrationKind;

    const A: TaskId = TaskId(0);
    const B: TaskId = TaskId(1);
    const IDLE: TaskId = TaskId::IDLE;

    fn on(cpu: u32, time_ns: u64, kind: EventKind) -> Event {
        Event { time_ns, cpu: CpuId(cpu), kind }
    }

    fn switch(prev: TaskId, prev_state: PrevState, next: TaskId) -> EventKind {
        EventKind::Switch { prev, prev_state, next }
    }

    fn waking(task: TaskId, target_cpu: u32) -> EventKind {
        EventKind::Waking { task, target_cpu: CpuId(target_cpu), waker: IDLE }
    }

    fn part(cpu: u32, who: Occupant, from_ns: u64, to_ns: u64) -> Part {
        Part { cpu: CpuId(cpu), who, from_ns, to_ns }
    }

    #[test]
    fn a_wait_is_told_with_who_had_the_cpu_and_a_preemption_with_who_came() {
        let mut waits = Waits::new(1);
        let events = [
            on(0, 0, switch(IDLE, PrevState::Idle, A)),
            on(0, 10, waking(B, 0)),
            on(0, 12, EventKind::Wakeup { task: B, reason: None }),
            on(0, 50, switch(A, PrevState::Runnable, IDLE)),
            on(0, 50, EventKind::Foreign { thread: Some(3) }),
            on(0, 80, switch(IDLE, PrevState::Idle, B)),
            on(0, 90, switch(B, PrevState::Sleeping, A)),
        ];
        waits.events(&events).unwrap();
        let (found, _) = waits.finish(100);
        let (first, second) = (&found[0], &found[1]);
        let worst = WakeupWait { end_ns: 80, length_ns: 70, ran: true };
        assert_eq!((second.wakeups, second.wakeup_wait_ns, second.worst_wakeup), (1, 70, Some(worst)));
        let behind = [(Occupant::Task(A), 40), (Occupant::Other(3), 30)];
        assert_eq!(second.behind_ns, BTreeMap::from(behind));
        assert_eq!((first.preemptions, first.preempt_wait_ns), (1, 40));
        assert_eq!(first.preempted_by, BTreeMap::from([(Occupant::Other(3), 1)]));
        assert_eq!(first.behind_ns, BTreeMap::from([(Occupant::Other(3), 30), (Occupant::Task(B), 10)]));
        assert_eq!((first.stays, first.run_ns), (2, 60), "the last stay ends with the trial");
    }

    #[test]
    fn a_wait_that_moves_and_one_that_the_trial_ends_have_parts_without_a_gap() {
        // No wakeup is recorded, as by `perf sched record`.
        let events = [
            on(0, 0, switch(IDLE, PrevState::Idle, A)),
            on(1, 20, EventKind::Foreign { thread: Some(7) }),
            on(1, 30, waking(B, 0)),
            on(1, 45, EventKind::Migrate { task: B, from: CpuId(0), to: CpuId(1), kind: MigrationKind::Balance }),
            on(1, 60, EventKind::Foreign { thread: None }),
            on(1, 62, switch(IDLE, PrevState::Idle, B)),
            on(1, 70, switch(B, PrevState::Sleeping, IDLE)),
            on(0, 75, waking(B, 0)),
        ];
        let of = |at_ns, most| {
            let mut waits = Waits::new(2).keeping(BTreeSet::from([B]), at_ns, most);
            waits.events(&events).unwrap();
            waits.finish(90)
        };
        let (found, waits) = of(None, 5);
        let (a, other, nobody) = (Occupant::Task(A), Occupant::Other(7), Occupant::Nobody);
        let first = Wait {
            task: B,
            from_ns: 30,
            to_ns: 62,
            preempted: false,
            ran: true,
            parts: vec![part(0, a, 30, 45), part(1, other, 45, 60), part(1, nobody, 60, 62)],
        };
        let second = Wait { from_ns: 75, to_ns: 90, ran: false, parts: vec![part(0, a, 75, 90)], ..first.clone() };
        assert_eq!(waits, [first.clone(), second.clone()]);
        assert_eq!((of(None, 1).1, of(Some(80), 1).1, of(Some(80), 0).1), (vec![first], vec![second], vec![]));
        assert_eq!((found[1].wakeups, found[1].wakeup_wait_ns), (2, 47));
        assert_eq!(found[1].behind_ns, BTreeMap::from([(a, 30), (other, 15), (nobody, 2)]));
    }

    #[test]
    fn a_wait_begins_with_the_wakeup_where_the_waking_was_not_recorded() {
        let mut waits = Waits::new(1);
        let events = [
            on(0, 0, switch(IDLE, PrevState::Idle, A)),
            on(0, 10, EventKind::Wakeup { task: B, reason: None }),
            on(0, 30, switch(A, PrevState::Sleeping, B)),
        ];
        waits.events(&events).unwrap();
        let found = waits.finish(30).0;
        assert_eq!((found[1].wakeup_wait_ns, &found[1].behind_ns), (20, &BTreeMap::from([(Occupant::Task(A), 20)])));
    }

    #[test]
    fn a_wait_whose_end_is_missing_is_none_and_the_next_one_counts() {
        // A leaves at 3000 and at 600, but how it came there is missing.
        let wakings = [on(0, 2000, waking(A, 0)), on(0, 3000, switch(A, PrevState::Sleeping, B))];
        let last = [on(0, 9000, waking(A, 0)), on(0, 9010, switch(B, PrevState::Runnable, A))];
        let preempted = [on(0, 500, waking(A, 0)), on(0, 600, switch(A, PrevState::Runnable, B))];
        let again = [on(0, 650, switch(B, PrevState::Runnable, A)), on(0, 700, switch(A, PrevState::Sleeping, B))];
        let mut waits = Waits::new(1).keeping(BTreeSet::from([A]), None, 5);
        waits.events(&[preempted, again, wakings, last].concat()).unwrap();
        let (found, kept) = waits.finish(9020);
        assert_eq!((found[0].wakeups, found[0].wakeup_wait_ns), (1, 10));
        assert_eq!((found[0].preemptions, found[0].preempt_wait_ns), (1, 50));
        assert_eq!(found[0].run_ns, 50 + 10);
        assert_eq!(kept.iter().map(|wait| (wait.from_ns, wait.to_ns)).collect::<Vec<_>>(), [(600, 650), (9000, 9010)]);
    }

    #[test]
    fn a_task_that_a_quota_keeps_from_running_waits_for_nobody() {
        let quota = |throttled| EventKind::Throttle { task: A, throttled };
        let events = [
            on(0, 0, switch(IDLE, PrevState::Idle, A)),
            on(0, 5, EventKind::Wakeup { task: B, reason: None }),
            on(0, 20, quota(true)),
            on(0, 20, switch(A, PrevState::Runnable, B)),
            on(0, 100, quota(false)),
            on(0, 103, switch(B, PrevState::Sleeping, A)),
            on(0, 110, quota(true)),
            on(0, 110, switch(A, PrevState::Runnable, IDLE)),
        ];
        let of = |end_ns| {
            let mut waits = Waits::new(1).keeping(BTreeSet::from([A]), None, 5);
            waits.events(&events).unwrap();
            waits.finish(end_ns)
        };
        let (found, waits) = of(150);
        let first = &found[0];
        assert_eq!((first.throttled_ns, first.preempt_wait_ns, first.preemptions, first.run_ns), (80 + 40, 3, 0, 27));
        assert_eq!(first.behind_ns, BTreeMap::from([(Occupant::Task(B), 3)]));
        assert_eq!(waits.iter().map(|wait| (wait.from_ns, wait.to_ns)).collect::<Vec<_>>(), [(100, 103)]);
        assert_eq!(found[1].behind_ns, BTreeMap::from([(Occupant::Task(A), 15)]));
    }

    #[test]
    fn events_that_go_back_in_time_are_refused() {
        let mut waits = Waits::new(1);
        waits.events(&[on(0, 30, switch(IDLE, PrevState::Idle, A))]).unwrap();
        assert!(waits.events(&[on(0, 20, switch(A, PrevState::Sleeping, IDLE))]).is_err());
    }
}
