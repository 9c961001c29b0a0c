//! The objects that tasks meet at: state only, the rules are the interpreter's.

use std::collections::VecDeque;

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{TimerId, Workload};

/// A mutex. Woken waiters compete for it again, as with futexes: whoever comes first takes it.
#[derive(Default)]
pub(crate) struct Lock {
    pub owner: Option<TaskId>,
    pub waiters: VecDeque<TaskId>,
    /// Where the lock word was last written.
    pub last_cpu: Option<CpuId>,
    /// Longest active wait before blocking.
    pub spin_ns: u64,
    /// Mean time between two looks in it.
    pub poll_ns: u64,
    /// Whether a release wakes all who sleep.
    pub wakes_all: bool,
    /// Lines of data that follow the lock.
    pub data_lines: u32,
}

#[derive(Default)]
pub(crate) struct Barrier {
    pub arrived: u32,
    /// Tasks waiting, spinning or blocked.
    pub waiters: Vec<TaskId>,
}

#[derive(Default)]
pub(crate) struct Semaphore {
    pub count: u64,
    pub waiters: VecDeque<TaskId>,
}

#[derive(Default)]
pub(crate) struct Channel {
    pub used_bytes: u64,
    /// Bytes of a pipe's first page that have been read; their room comes back with the page.
    pub read_of_page_bytes: u64,
    /// Tasks that wait for data, with the size of their message.
    pub readers: VecDeque<(TaskId, u64)>,
    /// Tasks that wait for space, with the size of their message.
    pub writers: VecDeque<(TaskId, u64)>,
    pub last_writer_cpu: Option<CpuId>,
    /// Where its lines were last read; kept where a memory model asks, as are the next two.
    pub last_reader_cpu: Option<CpuId>,
    /// Where it was last used, for whatever.
    pub last_user_cpu: Option<CpuId>,
    /// When its lock is free again.
    pub lock_free_at_ns: u64,
}

/// Takes the task to wake out of a channel's queue: the first whose message is no larger than `limit_bytes`, so that no
/// message is kept waiting behind one that does not fit. With `anyway`, the first of all if there is none: it will look
/// and wait again, as with pipes.
pub(crate) fn take_waiter(waiters: &mut VecDeque<(TaskId, u64)>, limit_bytes: u64, anyway: bool) -> Option<TaskId> {
    let fits = waiters.iter().position(|(_, bytes)| *bytes <= limit_bytes);
    let position = if anyway { fits.unwrap_or(0) } else { fits? };
    waiters.remove(position).map(|(task, _)| task)
}

#[derive(Default)]
pub(crate) struct List {
    pub entries: Vec<TaskId>,
    pub server: Option<TaskId>,
}

/// A periodic timer. Its first expiry is one period after the start of the task that uses it first.
#[derive(Default)]
pub(crate) struct Timer {
    /// Next expiry, once started.
    pub next_ns: Option<u64>,
    /// For a timer that every task has one of its own of: next expiries by task, in order of first use.
    pub private_next_ns: Option<Vec<(TaskId, u64)>>,
}

impl Timer {
    /// Where the next expiry of a task's timer is kept; the first counts from `start_ns`.
    pub fn next_of(&mut self, task: TaskId, start_ns: u64) -> &mut u64 {
        let Some(private) = &mut self.private_next_ns else {
            return self.next_ns.get_or_insert(start_ns);
        };
        let position = private.iter().position(|(owner, _)| *owner == task).unwrap_or_else(|| {
            private.push((task, start_ns));
            private.len() - 1
        });
        &mut private[position].1
    }
}

/// All objects of a run.
pub(crate) struct Objects {
    pub locks: Vec<Lock>,
    pub conditions: Vec<VecDeque<TaskId>>,
    pub barriers: Vec<Barrier>,
    pub semaphores: Vec<Semaphore>,
    pub channels: Vec<Channel>,
    pub lists: Vec<List>,
    pub timers: Vec<Timer>,
    /// Suspended tasks, in order of suspension.
    pub suspended: Vec<TaskId>,
    /// Scratch for waking several tasks.
    pub to_wake: Vec<TaskId>,
}

impl Objects {
    pub fn new(workload: &Workload) -> Self {
        fn several<T: Default>(count: usize) -> Vec<T> {
            std::iter::repeat_with(T::default).take(count).collect()
        }
        let mut locks: Vec<Lock> = several(workload.locks.len());
        for latch in &workload.latches {
            let lock = &mut locks[latch.lock.index()];
            (lock.spin_ns, lock.poll_ns) = (latch.spin_ns, latch.poll_ns);
            (lock.wakes_all, lock.data_lines) = (latch.wakes_all, latch.lines);
        }
        Self {
            locks,
            conditions: several(workload.conditions.len()),
            barriers: several(workload.barriers.len()),
            semaphores: workload
                .semaphores
                .iter()
                .map(|semaphore| Semaphore { count: u64::from(semaphore.initial), waiters: VecDeque::new() })
                .collect(),
            channels: several(workload.channels.len()),
            lists: several(workload.lists.len()),
            timers: (0..workload.timers.len())
                .map(|index| Timer {
                    next_ns: None,
                    private_next_ns: workload.timer_is_private(TimerId(index as u32)).then(Vec::new),
                })
                .collect(),
            suspended: Vec::new(),
            to_wake: Vec::new(),
        }
    }
}
