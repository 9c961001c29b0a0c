//! Objects that tasks meet at, other than locks ([`Latch`](crate::Latch)).

/// How tasks wait at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierWait {
    /// Busy-wait on the CPU.
    Spin,
    /// Block at once, on a futex.
    Block,
    /// Block in `poll` on a pipe, into which the last to arrive writes: one call that wakes all, with the hint that the waker may
    /// sleep soon (`WF_SYNC`).
    Poll,
    /// Busy-wait for a while, then block.
    SpinThenBlock {
        /// Longest busy wait.
        spin_ns: u64,
    },
}

/// A barrier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Barrier {
    /// Name in messages.
    pub name: String,
    /// Number of tasks that must arrive.
    pub participants: u32,
    /// How they wait.
    pub wait: BarrierWait,
}

/// A counting semaphore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Semaphore {
    /// Name in messages.
    pub name: String,
    /// Count at the start.
    pub initial: u32,
}

/// What carries a channel's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelKind {
    /// A pipe. Wakes its reader with the sync hint.
    Pipe,
    /// A Unix stream socket.
    Socket,
}

/// A pipe or socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Channel {
    /// Name in messages.
    pub name: String,
    /// Pipe or socket.
    pub kind: ChannelKind,
    /// Bytes it holds before writers block.
    pub capacity_bytes: u64,
}
