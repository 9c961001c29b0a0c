//! Locks with rules of their own: latches of user space, and the sleeping locks of the kernel.

use crate::{LockId, Workload};

/// By whose rules tasks wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LatchKind {
    /// Those that [`Latch`] states.
    #[default]
    Latch,
    /// `struct mutex` of the kernel.
    Mutex,
    /// `struct rw_semaphore` of the kernel: readers share it, a writer has it alone.
    Rwsem,
}

impl LatchKind {
    /// Words and kinds.
    pub const NAMES: [(&str, Self); 3] = [("latch", Self::Latch), ("mutex", Self::Mutex), ("rwsem", Self::Rwsem)];

    /// Its word in workload files.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Whether only code in the kernel takes it.
    pub const fn is_of_kernel(self) -> bool {
        !matches!(self, Self::Latch)
    }
}

/// A mutex as database servers have them: who finds it taken waits actively for a while, then blocks. It guards data, which
/// follows it from owner to owner. Those who wait actively look at it now and then, which takes its line from the owner.
///
/// Or a lock of the kernel, whose rules leave nothing to state but its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latch {
    /// The mutex.
    pub lock: LockId,
    /// By whose rules tasks wait for it.
    pub kind: LatchKind,
    /// Longest active wait in nanoseconds; 0 blocks at once.
    pub spin_ns: u64,
    /// Mean time in nanoseconds between two looks of one who waits actively; 0 looks all the time.
    pub poll_ns: u64,
    /// Whether a release wakes all who sleep, as condition variables under a broadcast do, or one.
    pub wakes_all: bool,
    /// Who has waited actively for so long sleeps for this time in nanoseconds, whether or not the mutex is released, and begins again, as
    /// with PostgreSQL's spinlocks, whose release wakes nobody; 0 blocks until a release.
    pub sleep_ns: u64,
    /// Cache lines of the data that each owner writes.
    pub lines: u32,
}

impl Workload {
    /// By whose rules tasks wait for a lock.
    pub fn latch_kind(&self, lock: LockId) -> LatchKind {
        self.latches.iter().find(|latch| latch.lock == lock).map_or(LatchKind::Latch, |latch| latch.kind)
    }

    /// Why real threads cannot run it: they cannot take a lock of the kernel.
    pub fn refused_by_threads(&self) -> Option<String> {
        let latch = self.latches.iter().find(|latch| latch.kind.is_of_kernel())?;
        let (lock, kind) = (&self.locks[latch.lock.index()], latch.kind.name());
        Some(format!("lock \"{lock}\" is one of the kernel's ({kind}), which no thread of a program can take"))
    }
}
