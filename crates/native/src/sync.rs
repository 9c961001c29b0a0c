//! Locks, conditions, barriers, semaphores and lists on futexes, with waits that end when the run is stopped.
//!
//! The algorithms are those that C libraries use (the three-state mutex is from Ulrich Drepper's "Futexes Are Tricky"),
//! so the system calls are those of ordinary programs. Conditions wake exactly as many tasks as are signalled, in the
//! order in which they began to wait: programs here wait without a predicate, so a spurious wakeup would change what
//! they do.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::futex;
use warmcore_workload::{BarrierWait, ProgramId};

use crate::clock::now_ns;
use crate::shared::{Stop, Stopped};

/// Tasks are in several processes, which share the memory of this crate's objects.
static SEPARATE: AtomicBool = AtomicBool::new(false);
/// Looks at data that another thread has locked, before it is given time.
const LOOKS: u32 = 100;

/// From now on tasks are in several processes, or in one.
pub(crate) fn separate(processes: bool) {
    SEPARATE.store(processes, Ordering::Relaxed);
}

/// Whose words a futex is about.
pub(crate) fn flags() -> futex::Flags {
    if SEPARATE.load(Ordering::Relaxed) { futex::Flags::empty() } else { futex::Flags::PRIVATE }
}

/// Waits while the word has the value, until woken or interrupted. May return early for no reason.
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    let _ = futex::wait(word, flags(), value, None);
}

/// Wakes up to `count` threads that wait on the word.
pub(crate) fn wake(word: &AtomicU32, count: u32) {
    let _ = futex::wake(word, flags(), count);
}

/// The kernel takes the number of threads to wake as a signed number.
pub(crate) const ALL: u32 = i32::MAX as u32;

/// Locks data that is never held while anything blocks. A panic elsewhere does not make it unusable.
///
/// The standard library's mutex wakes waiters of its own process only, so between processes nobody waits in it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if !SEPARATE.load(Ordering::Relaxed) {
        return mutex.lock().unwrap_or_else(PoisonError::into_inner);
    }
    loop {
        for _ in 0..LOOKS {
            match mutex.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        // Whoever has it may be waiting for this CPU.
        rustix::thread::sched_yield();
    }
}

/// A mutex of a workload.
#[derive(Default)]
pub(crate) struct Lock {
    /// 0 free, 1 held, 2 held and somebody may wait.
    state: AtomicU32,
}

impl Lock {
    pub(crate) fn lock(&self, stop: &Stop) -> Result<(), Stopped> {
        if self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        self.lock_again(stop)
    }

    /// Takes it as one who has waited: others may wait too (`__pthread_mutex_cond_lock` after a condition).
    pub(crate) fn lock_again(&self, stop: &Stop) -> Result<(), Stopped> {
        while self.state.swap(2, Ordering::Acquire) != 0 {
            wait(&self.state, 2);
            stop.check()?;
        }
        Ok(())
    }

    pub(crate) fn unlock(&self) {
        if self.state.swap(0, Ordering::Release) == 2 {
            wake(&self.state, 1);
        }
    }
}

/// Where a single thread waits to be woken. A wakeup that comes first is remembered.
#[derive(Default)]
pub(crate) struct Parker {
    woken: AtomicU32,
    /// When it was served on a list.
    pub(crate) served_ns: AtomicU64,
}

impl Parker {
    pub(crate) fn park(&self, stop: &Stop) -> Result<(), Stopped> {
        while self.woken.swap(0, Ordering::Acquire) == 0 {
            wait(&self.woken, 0);
            stop.check()?;
        }
        Ok(())
    }

    pub(crate) fn unpark(&self) {
        self.woken.store(1, Ordering::Release);
        wake(&self.woken, 1);
    }
}

/// Threads that wait, in order: a condition variable, or the suspended tasks of a template.
///
/// They sleep on one word, as at a C library's condition variable, so that one call wakes all of them. A single thread is woken by
/// its bit; another one with the same bit, the 32nd after it, goes back to sleep.
#[derive(Default)]
pub(crate) struct WaitQueue {
    waiting: Mutex<Waiting>,
    /// Counts what woke threads.
    wakeups: AtomicU32,
}

#[derive(Default)]
struct Waiting {
    threads: VecDeque<(Arc<Parker>, NonZeroU32)>,
    /// Threads that ever waited.
    entered: u32,
}

/// By which a thread in a [`WaitQueue`] is woken.
pub(crate) struct Ticket(NonZeroU32);

impl WaitQueue {
    /// Puts the thread in the queue; it parks afterwards.
    pub(crate) fn enter(&self, parker: &Arc<Parker>) -> Ticket {
        let mut waiting = locked(&self.waiting);
        let bit = NonZeroU32::new(1u32.rotate_left(waiting.entered)).expect("one bit");
        waiting.entered = waiting.entered.wrapping_add(1);
        waiting.threads.push_back((Arc::clone(parker), bit));
        Ticket(bit)
    }

    /// Waits until woken, if that has not happened since the thread entered.
    pub(crate) fn park(&self, parker: &Parker, ticket: Ticket, stop: &Stop) -> Result<(), Stopped> {
        loop {
            let wakeups = self.wakeups.load(Ordering::Acquire);
            if parker.woken.swap(0, Ordering::Acquire) == 1 {
                return Ok(());
            }
            let _ = futex::wait_bitset(&self.wakeups, flags(), wakeups, None, ticket.0);
            stop.check()?;
        }
    }

    pub(crate) fn wake_one(&self) {
        let first = locked(&self.waiting).threads.pop_front();
        if let Some((parker, bit)) = first {
            self.wake([parker], bit);
        }
    }

    pub(crate) fn wake_all(&self) {
        let all = std::mem::take(&mut locked(&self.waiting).threads);
        if !all.is_empty() {
            self.wake(all.into_iter().map(|(parker, _)| parker), NonZeroU32::MAX);
        }
    }

    fn wake(&self, parkers: impl IntoIterator<Item = Arc<Parker>>, bits: NonZeroU32) {
        for parker in parkers {
            parker.woken.store(1, Ordering::Release);
        }
        self.wakeups.fetch_add(1, Ordering::Release);
        let _ = futex::wake_bitset(&self.wakeups, flags(), ALL, bits);
    }
}

/// A pipe that is readable while somebody may pass.
struct Gate {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Gate {
    fn new() -> Result<Self, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { reader, writer })
    }

    /// Lets everybody pass who waits. A byte that is there already says the same.
    fn open(&self) {
        let _ = rustix::io::write(&self.writer, &[0]);
    }

    /// From now on nobody passes. It may have been shut already.
    fn shut(&self) {
        let _ = rustix::io::read(&self.reader, &mut [0]);
    }

    /// Waits until it is open, or interrupted.
    fn wait(&self) {
        let _ = poll(&mut [PollFd::new(&self.reader, PollFlags::IN)], None);
    }
}

/// A barrier of a workload.
pub(crate) struct Barrier {
    participants: u32,
    wait: BarrierWait,
    /// Of barriers at which tasks poll: the gates of even and of odd openings.
    gates: Option<[Gate; 2]>,
    arrived: Mutex<u32>,
    /// Counts openings; changes only while `arrived` is locked.
    generation: AtomicU32,
}

impl Barrier {
    /// Fails if the system has no pipe for a barrier at which tasks poll.
    pub(crate) fn new(participants: u32, wait: BarrierWait) -> Result<Self, Errno> {
        let gates = if wait == BarrierWait::Poll { Some([Gate::new()?, Gate::new()?]) } else { None };
        Ok(Self { participants, wait, gates, arrived: Mutex::new(0), generation: AtomicU32::new(0) })
    }

    pub(crate) fn arrive(&self, stop: &Stop) -> Result<(), Stopped> {
        let mut arrived = locked(&self.arrived);
        let generation = self.generation.load(Ordering::Acquire);
        *arrived += 1;
        if *arrived == self.participants {
            *arrived = 0;
            if let Some(gates) = &self.gates {
                // Whoever passed here last time has arrived since.
                gates[(generation as usize + 1) % 2].shut();
            }
            self.generation.fetch_add(1, Ordering::Release);
            drop(arrived);
            match (&self.gates, self.wait) {
                (Some(gates), _) => gates[generation as usize % 2].open(),
                (None, BarrierWait::Spin) => {}
                (None, _) => wake(&self.generation, ALL),
            }
            return Ok(());
        }
        drop(arrived);
        let closed = || self.generation.load(Ordering::Acquire) == generation;
        let spin_until = match self.wait {
            BarrierWait::Spin => u64::MAX,
            BarrierWait::Block | BarrierWait::Poll => 0,
            BarrierWait::SpinThenBlock { spin_ns } => now_ns().saturating_add(spin_ns),
        };
        while closed() && spin_until > 0 {
            // The clock is read now and then only: what matters is the barrier.
            for _ in 0..64 {
                std::hint::spin_loop();
                if !closed() {
                    return Ok(());
                }
            }
            stop.check()?;
            if spin_until < u64::MAX && now_ns() >= spin_until {
                break;
            }
        }
        while closed() {
            match &self.gates {
                Some(gates) => gates[generation as usize % 2].wait(),
                None => wait(&self.generation, generation),
            }
            stop.check()?;
        }
        Ok(())
    }
}

/// Count of a semaphore from which no more requests come: more than there are tasks.
const CLOSED: u32 = 1 << 30;

/// A counting semaphore of a workload.
pub(crate) struct Semaphore {
    count: AtomicU32,
    waiting: AtomicU32,
    /// When those that count were added, where a step asks.
    added: Option<Mutex<Added>>,
    /// Of those that count, what is to be done and since when, where they are requests, and how many were taken.
    requests: Mutex<VecDeque<(ProgramId, u64)>>,
    taken: AtomicU64,
}

struct Added {
    /// How many of those that were there at the start are left, and when that was.
    initial: (u32, u64),
    later_ns: VecDeque<u64>,
}

impl Added {
    fn take(&mut self) -> Option<u64> {
        let (left, start_ns) = &mut self.initial;
        if *left == 0 {
            return self.later_ns.pop_front();
        }
        *left -= 1;
        Some(*start_ns)
    }
}

impl Semaphore {
    pub(crate) fn new(initial: u32, timed: bool) -> Self {
        let added = timed.then(|| Mutex::new(Added { initial: (initial, now_ns()), later_ns: VecDeque::new() }));
        Self {
            count: AtomicU32::new(initial),
            waiting: AtomicU32::new(0),
            added,
            requests: Mutex::default(),
            taken: AtomicU64::new(0),
        }
    }

    /// Adds a request.
    pub(crate) fn submit(&self, program: ProgramId) {
        locked(&self.requests).push_back((program, now_ns()));
        self.post();
    }

    /// Takes the request that was added first, with the time of that; none once so many were taken.
    pub(crate) fn take_request(&self, requests: u64, stop: &Stop) -> Result<Option<(ProgramId, u64)>, Stopped> {
        self.wait(stop)?;
        let taken = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        if taken >= requests {
            // Nothing more comes: all who wait, or will, find one that is none.
            let _ = self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| Some(count.max(CLOSED)));
            wake(&self.count, ALL);
        }
        Ok(locked(&self.requests).pop_front())
    }

    pub(crate) fn post(&self) {
        if let Some(added) = &self.added {
            locked(added).later_ns.push_back(now_ns());
        }
        // A count that is full stays full; the largest value of a C library's semaphore is 2^31 - 1.
        let _ = self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_add(1));
        if self.waiting.load(Ordering::SeqCst) > 0 {
            wake(&self.count, 1);
        }
    }

    /// Takes one. Returns when the one that was added first was, if that is known.
    pub(crate) fn wait(&self, stop: &Stop) -> Result<Option<u64>, Stopped> {
        loop {
            let taken = self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
            if taken.is_ok() {
                return Ok(self.added.as_ref().and_then(|added| locked(added).take()));
            }
            self.waiting.fetch_add(1, Ordering::SeqCst);
            wait(&self.count, 0);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            stop.check()?;
        }
    }
}

/// A list on which tasks wait to be served.
#[derive(Default)]
pub(crate) struct List {
    state: Mutex<ListState>,
}

#[derive(Default)]
struct ListState {
    waiting: Vec<Arc<Parker>>,
    server: Option<Arc<Parker>>,
}

impl List {
    /// Puts the task on the list, wakes the server if it waits, and blocks until served. Returns how long ago the
    /// task was served.
    pub(crate) fn enlist(&self, parker: &Arc<Parker>, stop: &Stop) -> Result<u64, Stopped> {
        let server = {
            let mut state = locked(&self.state);
            state.waiting.push(Arc::clone(parker));
            state.server.take()
        };
        if let Some(server) = server {
            server.unpark();
        }
        parker.park(stop)?;
        Ok(now_ns().saturating_sub(parker.served_ns.load(Ordering::Acquire)))
    }

    /// Wakes every task on the list; blocks while it is empty. As in schbench, all are served at the same instant: the
    /// one at which serving began.
    pub(crate) fn serve(&self, parker: &Arc<Parker>, stop: &Stop) -> Result<(), Stopped> {
        loop {
            {
                let mut state = locked(&self.state);
                if !state.waiting.is_empty() {
                    let waiting = std::mem::take(&mut state.waiting);
                    drop(state);
                    let now = now_ns();
                    for task in waiting {
                        task.served_ns.store(now, Ordering::Release);
                        task.unpark();
                    }
                    return Ok(());
                }
                state.server = Some(Arc::clone(parker));
            }
            parker.park(stop)?;
        }
    }
}

/// Exits of a task's children.
#[derive(Default)]
pub(crate) struct Family {
    exited: AtomicU32,
}

impl Family {
    /// A child has exited.
    pub(crate) fn exit(&self) {
        self.exited.fetch_add(1, Ordering::Release);
        wake(&self.exited, ALL);
    }

    /// Blocks until so many children have exited since the start.
    pub(crate) fn wait_for(&self, total: u32, stop: &Stop) -> Result<(), Stopped> {
        loop {
            let exited = self.exited.load(Ordering::Acquire);
            if exited >= total {
                return Ok(());
            }
            wait(&self.exited, exited);
            stop.check()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the body in so many threads and waits for them.
    fn in_threads(count: u32, body: impl Fn(u32) + Sync) {
        std::thread::scope(|scope| {
            for index in 0..count {
                let body = &body;
                scope.spawn(move || body(index));
            }
        });
    }

    #[test]
    fn a_lock_is_held_by_one_thread_at_a_time() {
        let (lock, stop, counter) = (Lock::default(), Stop::default(), AtomicU64::new(0));
        in_threads(4, |_| {
            for _ in 0..1_000 {
                lock.lock(&stop).unwrap();
                // Not one atomic operation: without the lock, updates would be lost.
                let value = counter.load(Ordering::Relaxed);
                std::hint::spin_loop();
                counter.store(value + 1, Ordering::Relaxed);
                lock.unlock();
            }
        });
        assert_eq!(counter.into_inner(), 4_000);
    }

    #[test]
    fn nobody_passes_a_barrier_before_all_have_arrived() {
        let waits = [BarrierWait::Block, BarrierWait::Poll, BarrierWait::Spin];
        for wait in waits.into_iter().chain([BarrierWait::SpinThenBlock { spin_ns: 10_000 }]) {
            let (barrier, stop, arrivals) = (Barrier::new(3, wait).unwrap(), Stop::default(), AtomicU64::new(0));
            in_threads(3, |_| {
                for round in 1..=40 {
                    arrivals.fetch_add(1, Ordering::SeqCst);
                    barrier.arrive(&stop).unwrap();
                    let seen = arrivals.load(Ordering::SeqCst);
                    assert!((3 * round..3 * round + 3).contains(&seen), "{wait:?}: {seen} in round {round}");
                }
            });
        }
    }

    #[test]
    fn a_semaphore_lets_as_many_through_as_were_posted() {
        let (semaphore, stop, passed) = (Semaphore::new(2, false), Stop::default(), AtomicU64::new(0));
        in_threads(4, |index| {
            if index == 0 {
                for _ in 0..298 {
                    semaphore.post();
                }
            } else {
                for _ in 0..100 {
                    semaphore.wait(&stop).unwrap();
                    passed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        assert_eq!(passed.into_inner(), 300);
        assert_eq!(semaphore.count.into_inner(), 0);
    }

    #[test]
    fn a_timed_semaphore_knows_when_each_was_added_and_gives_the_first_first() {
        let before_ns = now_ns();
        let (semaphore, stop) = (Semaphore::new(1, true), Stop::default());
        semaphore.post();
        semaphore.post();
        let taken: Vec<u64> = (0..3).map(|_| semaphore.wait(&stop).unwrap().unwrap()).collect();
        assert!(before_ns <= taken[0] && taken.is_sorted() && taken[2] <= now_ns(), "{taken:?}");
    }

    #[test]
    fn a_signal_wakes_the_first_waiter_and_no_other() {
        let (queue, stop) = (WaitQueue::default(), Stop::default());
        let parkers: Vec<Arc<Parker>> = (0..3).map(|_| Arc::default()).collect();
        let tickets: Vec<Ticket> = parkers.iter().map(|parker| queue.enter(parker)).collect();
        let woken = |parker: &Parker| parker.woken.load(Ordering::Relaxed);
        queue.wake_one();
        assert_eq!(parkers.iter().map(|parker| woken(parker)).collect::<Vec<_>>(), [1, 0, 0]);
        queue.wake_all();
        assert_eq!(parkers.iter().map(|parker| woken(parker)).collect::<Vec<_>>(), [1, 1, 1]);
        queue.wake_one();
        for (parker, ticket) in parkers.iter().zip(tickets) {
            queue.park(parker, ticket, &stop).unwrap();
        }
    }

    /// 40 threads share 32 bits: each signal wakes one of them, and the last call all who are left.
    #[test]
    fn as_many_threads_are_woken_as_are_signalled_also_where_two_share_a_bit() {
        const THREADS: u32 = 40;
        let (queue, stop, passed) = (WaitQueue::default(), Stop::default(), AtomicU64::new(0));
        let entered = AtomicU64::new(0);
        in_threads(THREADS + 1, |index| {
            if index < THREADS {
                let parker: Arc<Parker> = Arc::default();
                let ticket = queue.enter(&parker);
                entered.fetch_add(1, Ordering::AcqRel);
                queue.park(&parker, ticket, &stop).unwrap();
                passed.fetch_add(1, Ordering::AcqRel);
                return;
            }
            let until = |counted: &AtomicU64, wanted: u64| {
                while counted.load(Ordering::Acquire) < wanted {
                    std::thread::yield_now();
                }
            };
            until(&entered, THREADS.into());
            for signal in 1..=5 {
                queue.wake_one();
                until(&passed, signal);
                assert_eq!(locked(&queue.waiting).threads.len() as u64, u64::from(THREADS) - signal);
            }
            queue.wake_all();
            until(&passed, THREADS.into());
        });
    }

    #[test]
    fn a_server_serves_everybody_on_its_list() {
        let (list, stop, served) = (List::default(), Stop::default(), AtomicU64::new(0));
        in_threads(4, |index| {
            let parker = Arc::new(Parker::default());
            if index == 0 {
                // Each visit serves at least one task; the last one may find nobody left to come.
                while served.load(Ordering::SeqCst) < 300 && !stop.is_set() {
                    if list.serve(&parker, &stop).is_err() {
                        break;
                    }
                }
            } else {
                for _ in 0..100 {
                    list.enlist(&parker, &stop).unwrap();
                    if served.fetch_add(1, Ordering::SeqCst) == 299 {
                        stop.set();
                        let server = locked(&list.state).server.take();
                        server.into_iter().for_each(|server| server.unpark());
                    }
                }
            }
        });
        assert_eq!(served.into_inner(), 300);
    }
}
