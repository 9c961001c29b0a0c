//! The lock of a queue of tasks that several CPUs share, for policies that have such queues.
//!
//! Whoever takes it fetches its lines from the CPU that had them last and waits until everybody before is through: with the
//! machine's line transfer times this limits how often all CPUs together can queue and pick. Who waits keeps its CPU busy.
//!
//! Not modelled: the order in which waiters of a real lock get it (first come, first served here), and the transfers that
//! waiting itself causes.

use warmcore_topology::CpuId;

use crate::Core;

/// Lines that change hands with a queue: the lock with the queue's ends, and the task at the end in use.
const LOCK_LINES: u64 = 2;

/// Time the lock is held with everything in the CPU's own cache: a handful of dependent loads and stores.
const LOCK_HOLD_NS: u64 = 20;

/// The lock of a queue: a resource that serves one CPU after the other.
#[derive(Clone, Copy, Default, Debug)]
pub struct QueueLock {
    free_at_ns: u64,
    last_holder: Option<CpuId>,
}

impl QueueLock {
    /// Takes and releases the lock on a CPU. Returns how long that keeps the CPU, in ns: its turn comes after everybody who
    /// asked before, then the lines have to come over.
    pub fn pass(&mut self, core: &Core<'_>, cpu: CpuId) -> u64 {
        let line_ns = match self.last_holder.replace(cpu) {
            Some(last) if last != cpu => core.machine().costs().line_transfer_ns[core.relation(last, cpu)],
            _ => 0,
        };
        self.free_at_ns = self.free_at_ns.max(core.now_ns()) + LOCK_LINES * line_ns + LOCK_HOLD_NS;
        self.free_at_ns - core.now_ns()
    }
}
