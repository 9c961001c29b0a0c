//! What each task of a trial waited for a CPU, and who had that CPU meanwhile.
//!
//! A task waits from its waking, its creation or its preemption until it runs. While it is in the queue of a CPU, whoever runs there is who
//! it waits for: another task, a thread beside the run as far as events tell, or nobody (the CPU's way out of idle).

use std::collections::BTreeMap;
use std::io;

use warmcore_topology::CpuId;
use warmcore_trace::{Event, EventKind, PrevState, RecordedThread, RunTables, Sink, TaskId, TaskInfo};

use crate::explain::task_name;
use crate::others::Others;

/// Who has a CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Occupant {
    /// A task of the run.
    Task(TaskId),
    /// A thread beside the run: its index in the run's table.
    Other(u32),
    /// Nobody that events tell of.
    Nobody,
}

impl Occupant {
    /// Its name, as explanations have it.
    #[must_use]
    pub fn name(self, tasks: &[TaskInfo], tables: &RunTables) -> String {
        match self {
            Self::Task(task) => task_name(tasks, task),
            Self::Other(thread) => {
                tables.foreign.get(thread as usize).map_or_else(|| "?".to_owned(), RecordedThread::label)
            }
            Self::Nobody => "no thread (it was idle, or came out of idle)".to_owned(),
        }
    }
}

/// What a task did and waited for, as far as it ended in the trial.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskWaits {
    /// Stays on a CPU.
    pub stays: u64,
    /// Time on CPUs, ns.
    pub run_ns: u64,
    /// From wakings and its creation until it ran, ns.
    pub wakeup_wait_ns: u64,
    /// How many of these.
    pub wakeups: u64,
    /// From preemptions until it ran again, ns.
    pub preempt_wait_ns: u64,
    /// How often another one came while it could have run on.
    pub preemptions: u64,
    /// By whom, how often.
    pub preempted_by: BTreeMap<Occupant, u64>,
    /// The longest wait after a waking or its creation: when it ended, and how long it was, ns.
    pub worst_wakeup: Option<(u64, u64)>,
    /// Who had the CPU in whose queue it was, and for how long of all its waits, ns.
    pub behind_ns: BTreeMap<Occupant, u64>,
}

/// A wait that has not ended.
#[derive(Clone, Copy)]
struct Open {
    since_ns: u64,
    preempted: bool,
    /// Where it is queued, and up to when that is accounted for.
    queue: Option<(CpuId, u64)>,
}

/// Follows a trial's events.
pub struct Waits {
    tasks: Vec<TaskWaits>,
    open: Vec<Option<Open>>,
    running_since: Vec<Option<u64>>,
    current: Vec<TaskId>,
    others: Others,
    queued: Vec<Vec<TaskId>>,
}

impl Waits {
    /// For a machine with so many CPUs.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self {
            tasks: Vec::new(),
            open: Vec::new(),
            running_since: Vec::new(),
            current: vec![TaskId::IDLE; cpus],
            others: Others::new(cpus),
            queued: vec![Vec::new(); cpus],
        }
    }

    /// Of every task, by id.
    #[must_use]
    pub fn finish(self) -> Vec<TaskWaits> {
        self.tasks
    }

    fn index(&mut self, task: TaskId) -> usize {
        let index = task.index();
        if index >= self.tasks.len() {
            self.tasks.resize(index + 1, TaskWaits::default());
            self.open.resize(index + 1, None);
            self.running_since.resize(index + 1, None);
        }
        index
    }

    fn occupant(&self, cpu: CpuId) -> Occupant {
        match (self.current[cpu.index()], self.others.on(cpu)) {
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

    fn settle_task(&mut self, now: u64, task: TaskId, occupant: Occupant) {
        if let Some(Open { queue: Some((_, since)), .. }) = &mut self.open[task.index()] {
            if now > *since {
                *self.tasks[task.index()].behind_ns.entry(occupant).or_default() += now - *since;
            }
            *since = now;
        }
    }

    fn enqueue(&mut self, now: u64, task: TaskId, cpu: CpuId) {
        let index = self.index(task);
        if let Some(open) = &mut self.open[index] {
            open.queue = Some((cpu, now));
            self.queued[cpu.index()].push(task);
        }
    }

    /// Takes a task off the queue it is in.
    fn dequeue(&mut self, now: u64, task: TaskId) {
        let index = self.index(task);
        if let Some(Open { queue: Some((cpu, _)), .. }) = self.open[index] {
            self.settle_task(now, task, self.occupant(cpu));
            self.queued[cpu.index()].retain(|queued| *queued != task);
            self.open[index].iter_mut().for_each(|open| open.queue = None);
        }
    }

    fn begin(&mut self, now: u64, task: TaskId, preempted: bool) {
        let index = self.index(task);
        if self.open[index].is_none() && self.running_since[index].is_none() {
            self.open[index] = Some(Open { since_ns: now, preempted, queue: None });
        }
    }

    fn leave(&mut self, now: u64, cpu: CpuId, task: TaskId, state: PrevState) {
        let index = self.index(task);
        if let Some(since) = self.running_since[index].take() {
            self.tasks[index].stays += 1;
            self.tasks[index].run_ns += now - since;
        }
        if state == PrevState::Runnable {
            self.begin(now, task, true);
            self.enqueue(now, task, cpu);
        }
    }

    fn enter(&mut self, now: u64, task: TaskId) {
        self.dequeue(now, task);
        let index = self.index(task);
        self.running_since[index] = Some(now);
        let Some(Open { since_ns, preempted, .. }) = self.open[index].take() else { return };
        let (waits, waited) = (&mut self.tasks[index], now - since_ns);
        if preempted {
            waits.preempt_wait_ns += waited;
        } else {
            (waits.wakeups, waits.wakeup_wait_ns) = (waits.wakeups + 1, waits.wakeup_wait_ns + waited);
            if waits.worst_wakeup.is_none_or(|(_, longest)| waited > longest) {
                waits.worst_wakeup = Some((now, waited));
            }
        }
    }

    /// Whoever comes onto the CPU right after a task that could have run on has preempted it.
    fn preempted(&mut self, task: TaskId, by: Occupant) {
        let waits = &mut self.tasks[task.index()];
        waits.preemptions += 1;
        *waits.preempted_by.entry(by).or_default() += 1;
    }

    fn event(&mut self, event: &Event) {
        let (now, cpu) = (event.time_ns, event.cpu);
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
                    if !prev.is_idle() && prev_state == PrevState::Runnable && prev != next {
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
            EventKind::Fork { child: task, .. } | EventKind::Waking { task, .. } => self.begin(now, task, false),
            EventKind::Wakeup { task, .. } => {
                let index = self.index(task);
                if self.open[index].is_some_and(|open| open.queue.is_none()) {
                    self.enqueue(now, task, cpu);
                }
            }
            EventKind::Migrate { task, to, .. } => {
                let index = self.index(task);
                if self.open[index].is_some_and(|open| open.queue.is_some()) {
                    self.dequeue(now, task);
                    self.enqueue(now, task, to);
                }
            }
            EventKind::Exit { task } => {
                let index = self.index(task);
                if self.running_since[index].is_none() {
                    self.dequeue(now, task);
                    self.open[index] = None;
                }
            }
            _ => {}
        }
    }
}

impl Sink for Waits {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        let cpus = self.current.len();
        for event in batch {
            let to = if let EventKind::Migrate { to, .. } = event.kind { to } else { event.cpu };
            if let Some(missing) = [event.cpu, to].into_iter().find(|cpu| cpu.index() >= cpus) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the machine has no {missing}")));
            }
            self.event(event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_with_who_had_the_cpu_and_a_preemption_with_who_came() {
        let (a, b, idle) = (TaskId(0), TaskId(1), TaskId::IDLE);
        let event = |time_ns, kind| Event { time_ns, cpu: CpuId(0), kind };
        let switch = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
        let mut waits = Waits::new(1);
        let events = [
            event(0, switch(idle, PrevState::Idle, a)),
            event(10, EventKind::Waking { task: b, target_cpu: CpuId(0), waker: idle }),
            event(12, EventKind::Wakeup { task: b, reason: None }),
            event(50, switch(a, PrevState::Runnable, idle)),
            event(50, EventKind::Foreign { thread: Some(3) }),
            event(80, switch(idle, PrevState::Idle, b)),
            event(90, switch(b, PrevState::Sleeping, a)),
        ];
        waits.events(&events).unwrap();
        let found = waits.finish();
        let (first, second) = (&found[0], &found[1]);
        assert_eq!((second.wakeups, second.wakeup_wait_ns, second.worst_wakeup), (1, 70, Some((80, 70))));
        let behind = [(Occupant::Task(a), 38), (Occupant::Other(3), 30)];
        assert_eq!(second.behind_ns, BTreeMap::from(behind));
        assert_eq!((first.preemptions, first.preempt_wait_ns), (1, 40));
        assert_eq!(first.preempted_by, BTreeMap::from([(Occupant::Other(3), 1)]));
        assert_eq!(first.behind_ns, BTreeMap::from([(Occupant::Other(3), 30), (Occupant::Task(b), 10)]));
        assert_eq!((first.stays, first.run_ns), (1, 50), "the last stay has not ended");
    }
}
