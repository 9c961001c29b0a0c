//! What ULE knows of threads and of CPUs' queues, and how threads join and leave these.
//!
//! Source: `docs/spec/ule.md` sections 5, 6, 7 and 12 (`struct td_sched`, `struct tdq`,
//! `tdq_runq_add`, `tdq_load_add`, `sched_choose`, `sched_slice`).

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::interactivity::History;
use super::profile::Model;
use super::run_queue::{Calendar, Links, RunQueue, priority_bucket};
use super::usage::Usage;

/// Best priority of the idle class.
pub(crate) const IDLE_CLASS: u32 = 224;
/// Best priority of a CPU with nothing to run.
pub(crate) const IDLE: u32 = 255;
/// Worst priority of FreeBSD's real-time threads: what a task of a class above is taken to have.
pub(crate) const REALTIME: u32 = 79;
/// Other threads from which on slices are the shortest.
const MOST_DIVIDED: u32 = 6;

/// Where a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Waits {
    /// Nowhere: it runs, sleeps, or is gone.
    #[default]
    Nowhere,
    /// In this bucket of the queue of interactive and better threads.
    Realtime(u32),
    /// In this bucket of the calendar.
    Timeshare(u32),
    /// In this bucket of the queue of the idle class.
    Idle(u32),
}

/// Where in a bucket a thread is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    /// Behind all of the bucket of its priority.
    Tail,
    /// Before all of the bucket of its priority; a batch thread before all of the bucket in turn.
    Head,
    /// Behind all of the bucket in turn.
    InTurn,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    /// Sleep and run time.
    pub history: History,
    /// Use of the CPU.
    pub usage: Usage,
    /// Priority that follows from both (`td_user_pri`).
    pub user_priority: u32,
    /// Priority that it is queued and compared with (`td_priority`).
    pub priority: u32,
    /// Accounting ticks of its present slice.
    pub slice_ticks: u32,
    /// Tick of the clock at which it ran last; none for a new thread.
    pub last_ran: Option<u64>,
    /// Tick of the clock at which it went to sleep.
    pub slept_at: u64,
    /// CPU time charged so far, where charging is exact.
    pub charged_ns: u64,
    /// When it began to run, where charging is exact.
    pub running_since_ns: u64,
    /// Where it waits.
    pub waits: Waits,
}

#[derive(Clone, Debug)]
pub(crate) struct CpuQueue {
    realtime: RunQueue,
    /// Batch threads.
    pub timeshare: Calendar,
    idle: RunQueue,
    /// Threads running and queued.
    pub load: u32,
    /// Threads queued.
    pub transferable: u32,
    /// Best priority here (`tdq_lowpri`).
    pub lowpri: u32,
    /// A task of a class above runs here, and is to be counted.
    pub runs_above: bool,
}

impl Default for CpuQueue {
    fn default() -> Self {
        Self {
            realtime: RunQueue::default(),
            timeshare: Calendar::default(),
            idle: RunQueue::default(),
            load: 0,
            transferable: 0,
            lowpri: IDLE,
            runs_above: false,
        }
    }
}

impl CpuQueue {
    /// Threads running and queued, as CPUs that search know them.
    pub(crate) fn seen_load(&self) -> u32 {
        self.load + u32::from(self.runs_above)
    }

    /// Best priority here, as CPUs that search know it.
    pub(crate) fn seen_lowpri(&self) -> u32 {
        if self.runs_above { REALTIME.min(self.lowpri) } else { self.lowpri }
    }

    /// Queues a thread that has a priority, and lets others know of it.
    pub fn add(&mut self, links: &mut Links, model: &Model, task: TaskId, thread: &mut Thread, position: Position) {
        let priorities = &model.priorities;
        let priority = thread.priority;
        let at_head = position == Position::Head;
        let (queue, bucket, waits): (&mut RunQueue, u32, fn(u32) -> Waits) = if priority >= IDLE_CLASS {
            (&mut self.idle, priority_bucket(priority), Waits::Idle)
        } else if priorities.is_batch(priority) {
            let bucket = match position {
                Position::Head | Position::InTurn => self.timeshare.in_turn(),
                Position::Tail => {
                    let range = priorities.batch_max - priorities.batch_min + 1;
                    self.timeshare.bucket(priority - priorities.batch_min, range)
                }
            };
            (&mut self.timeshare.queue, bucket, Waits::Timeshare)
        } else {
            (&mut self.realtime, priority_bucket(priority), Waits::Realtime)
        };
        if at_head {
            queue.push_front(links, bucket, task);
        } else {
            queue.push_back(links, bucket, task);
        }
        thread.waits = waits(bucket);
        self.transferable += 1;
        self.lowpri = self.lowpri.min(priority);
    }

    /// The running thread has another priority (`sched_thread_priority`, `tdq_setlowpri`).
    pub(crate) fn reniced(&mut self, threads: &[Thread], before: u32, now: u32) {
        if now < self.lowpri {
            self.lowpri = now;
        } else if self.lowpri == before {
            self.lowpri = self.first().map_or(now, |next| threads[next.index()].priority.min(now));
        }
    }

    /// Takes a waiting thread out.
    pub fn remove(&mut self, links: &mut Links, task: TaskId, thread: &mut Thread) {
        match std::mem::take(&mut thread.waits) {
            Waits::Nowhere => return,
            Waits::Realtime(bucket) => self.realtime.remove(links, bucket, task),
            Waits::Idle(bucket) => self.idle.remove(links, bucket, task),
            Waits::Timeshare(bucket) => {
                self.timeshare.queue.remove(links, bucket, task);
                self.timeshare.removed();
            }
        }
        self.transferable -= 1;
    }

    /// The thread to run next: interactive ones first, then the calendar's, then the idle class (`tdq_choose`).
    pub fn first(&self) -> Option<TaskId> {
        self.realtime.first_from(0).or_else(|| self.timeshare.first()).or_else(|| self.idle.first_from(0))
    }

    /// The thread that another CPU takes, of those it may take (`tdq_steal`): the first of the interactive ones; of the calendar's the
    /// first but one, since the first is about to run here, or that one if no other can move; of the idle class. The search of the calendar
    /// begins at the bucket in turn, and once more at bucket 0 if that is another. Where the first is not `first_stolen_last`, it is the
    /// one looked at last that has a second look.
    pub(crate) fn to_steal(
        &self,
        links: &Links,
        first_stolen_last: bool,
        may: impl Fn(TaskId) -> bool,
    ) -> Option<TaskId> {
        if let Some(task) = self.realtime.tasks_from(links, 0).find(|&task| may(task)) {
            return Some(task);
        }
        let from = self.timeshare.in_turn();
        let mut in_turn = self.timeshare.queue.tasks_from(links, from);
        if let Some(first) = in_turn.next() {
            if let Some(task) = in_turn.find(|&task| may(task)) {
                return Some(task);
            }
            // Both looks begin at the first of all if nobody is from the bucket in turn on (docs/spec/ule.md section 10).
            let once = from == 0 || self.timeshare.queue.none_from(from);
            let single = self.timeshare.queue.tasks_from(links, from).nth(1).is_none();
            if (first_stolen_last || !once || single) && may(first) {
                return Some(first);
            }
        }
        self.idle.tasks_from(links, 0).find(|&task| may(task))
    }

    /// Ticks of a slice here and now (`tdq_slice`).
    pub(crate) fn slice_ticks(&self, model: &Model) -> u32 {
        let threads = if model.slice_counts_itself { self.load } else { self.load.saturating_sub(1) };
        match threads {
            0 | 1 => model.slice_max_ticks,
            MOST_DIVIDED.. => model.slice_min_ticks,
            threads => model.slice_max_ticks / threads,
        }
    }
}

/// Whether a thread that joins a CPU's queue preempts the one that runs there (`sched_shouldpreempt`).
pub(crate) fn should_preempt(model: &Model, threshold: u32, candidate: u32, running: u32, remote: bool) -> bool {
    if candidate >= running {
        return false;
    }
    if running >= IDLE_CLASS {
        return true;
    }
    if threshold == 0 {
        return false;
    }
    let interactive = |priority| !model.priorities.is_batch(priority);
    candidate <= threshold || model.remote_preemption && remote && interactive(candidate) && !interactive(running)
}

/// CPUs' queues and all threads.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    pub links: Links,
    pub cpus: Vec<CpuQueue>,
    /// By task.
    pub threads: Vec<Thread>,
    /// Threads queued anywhere.
    pub waiting: u32,
}

impl Queues {
    /// So many CPUs without threads.
    pub fn new(cpus: usize) -> Self {
        Self { links: Links::default(), cpus: vec![CpuQueue::default(); cpus], threads: Vec::new(), waiting: 0 }
    }

    /// Threads that wait on a CPU, in the order of [`CpuQueue::first`].
    pub(crate) fn waiting_on(&self, cpu: CpuId) -> impl Iterator<Item = TaskId> + '_ {
        let CpuQueue { realtime, timeshare, idle, .. } = &self.cpus[cpu.index()];
        let batch = timeshare.queue.tasks_from(&self.links, timeshare.in_turn());
        realtime.tasks_from(&self.links, 0).chain(batch).chain(idle.tasks_from(&self.links, 0))
    }

    /// A thread.
    pub fn thread(&mut self, task: TaskId) -> &mut Thread {
        &mut self.threads[task.index()]
    }

    /// Queues a thread on a CPU that already counts it.
    pub fn add(&mut self, model: &Model, cpu: CpuId, task: TaskId, position: Position) {
        let thread = &mut self.threads[task.index()];
        self.cpus[cpu.index()].add(&mut self.links, model, task, thread, position);
        self.waiting += 1;
    }

    /// Takes a thread out of the queue it waits in; it still counts on its CPU.
    pub fn remove(&mut self, cpu: CpuId, task: TaskId) {
        let thread = &mut self.threads[task.index()];
        if thread.waits != Waits::Nowhere {
            self.waiting -= 1;
        }
        self.cpus[cpu.index()].remove(&mut self.links, task, thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ule::profile::Reading;

    fn freebsd() -> Model {
        Model::new(Reading::Freebsd11, 127)
    }

    fn queues(priorities: &[u32]) -> (Queues, Model) {
        let (mut queues, model) = (Queues::new(1), freebsd());
        for (index, &priority) in priorities.iter().enumerate() {
            let task = TaskId(index as u32);
            queues.links.admit(task);
            queues.threads.push(Thread { priority, ..Thread::default() });
            queues.cpus[0].load += 1;
            queues.add(&model, CpuId(0), task, Position::Tail);
        }
        (queues, model)
    }

    #[test]
    fn interactive_threads_come_first_then_batch_then_the_idle_class() {
        let (mut queues, _) = queues(&[230, 180, 125, 121]);
        let mut order = Vec::new();
        while let Some(task) = queues.cpus[0].first() {
            order.push(task.0);
            queues.remove(CpuId(0), task);
        }
        assert_eq!(order, [3, 2, 1, 0]);
        assert_eq!((queues.waiting, queues.cpus[0].transferable), (0, 0));
    }

    #[test]
    fn interactive_priorities_are_honoured_in_groups_of_four() {
        let (queues, _) = queues(&[123, 120]);
        assert_eq!(queues.cpus[0].first(), Some(TaskId(0)), "120 to 123 share a bucket");
    }

    /// Test 7 of docs/spec/ule.md section 17.
    #[test]
    fn ule_17_7_the_first_batch_thread_is_stolen_last() {
        let (mut all, _) = queues(&[203, 203, 203]);
        let steal = |queues: &Queues, may: &dyn Fn(u32) -> bool| {
            queues.cpus[0].to_steal(&queues.links, false, |task| may(task.0)).map(|task| task.0)
        };
        assert_eq!(steal(&all, &|_| true), Some(1));
        assert_eq!(
            steal(&all, &|task| task == 0),
            None,
            "the ring begins at bucket 0: only the last has a second look"
        );
        assert_eq!(all.cpus[0].to_steal(&all.links, true, |task| task.0 == 0), Some(TaskId(0)), "FreeBSD 14");
        assert_eq!(steal(&all, &|task| task == 2), Some(2));
        for _ in 0..3 {
            all.cpus[0].timeshare.tick();
        }
        // With nobody in bucket 0 the ring has turned.
        assert_ne!(all.cpus[0].timeshare.in_turn(), 0);
        assert_eq!(steal(&all, &|task| task == 0), Some(0), "and now the first one has");
        let (single, _) = queues(&[203]);
        assert_eq!(steal(&single, &|_| true), Some(0), "the only one");
        let (mixed, _) = queues(&[203, 130]);
        assert_eq!(steal(&mixed, &|_| true), Some(1), "an interactive one first");
    }

    /// Test 5 of docs/spec/ule.md section 17.
    #[test]
    fn ule_17_5_slices_are_those_of_the_table() {
        let slices = |model: &Model| {
            (1..=7).map(|load| CpuQueue { load, ..CpuQueue::default() }.slice_ticks(model)).collect::<Vec<_>>()
        };
        assert_eq!(slices(&freebsd()), [12, 12, 6, 4, 3, 2, 2]);
        assert_eq!(slices(&Model::new(Reading::PaperPort, 250)), [10, 10, 5, 3, 2, 2, 1]);
        assert_eq!(slices(&Model::new(Reading::PaperText, 127)), [10, 5, 3, 2, 2, 1, 1], "the number of threads");
    }

    #[test]
    fn preemption_follows_the_rules_of_section_8() {
        let (freebsd, port) = (freebsd(), Model::new(Reading::PaperPort, 250));
        let rule = |candidate, running, remote| should_preempt(&freebsd, 80, candidate, running, remote);
        assert!(!rule(150, 150, true), "1: not better");
        assert!(rule(223, 224, false), "2: the idle class runs");
        assert!(!should_preempt(&freebsd, 0, 40, 200, true), "3: built without preemption");
        assert!(rule(80, 120, false) && !rule(81, 120, false), "4: up to the threshold");
        assert!(rule(151, 152, true), "5: interactive from another CPU over batch");
        assert!(!rule(151, 152, false), "not from here");
        assert!(!rule(152, 200, true), "6: batch over batch");
        assert!(!should_preempt(&port, 80, 100, 130, true), "the port has no rule 5");
    }

    #[test]
    fn what_others_know_of_a_cpu_is_the_best_priority_that_has_joined() {
        let (mut queues, model) = queues(&[200]);
        assert_eq!(queues.cpus[0].lowpri, 200);
        queues.links.admit(TaskId(1));
        queues.threads.push(Thread { priority: 130, ..Thread::default() });
        queues.add(&model, CpuId(0), TaskId(1), Position::Tail);
        assert_eq!(queues.cpus[0].lowpri, 130);
    }
}
