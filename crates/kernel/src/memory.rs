//! The memory the kernel asks: how fast a task runs, and what it costs to move tasks, messages and lines between CPUs.
//!
//! Constant speed and fixed costs per relation of two CPUs: every effect of caches that depends on what else runs, on
//! sizes or on sharing is absent. A migration costs the same for a task that touches one line and for one that fills
//! its L2.

use warmcore_topology::{CpuId, Machine};
use warmcore_workload::ChannelKind;

/// Constant-speed memory.
pub(crate) struct ConstantMemory<'a> {
    machine: &'a Machine,
}

/// Bytes per nanosecond at which rt-app's `mem` events walk their buffer: one core's streaming rate of about 10 GB/s.
const STREAM_BYTES_PER_NS: u64 = 10;

/// Bytes per nanosecond of rt-app's `iorun` writes to a null device, system calls included.
const NULL_DEVICE_BYTES_PER_NS: u64 = 20;

impl<'a> ConstantMemory<'a> {
    pub fn new(machine: &'a Machine) -> Self {
        Self { machine }
    }

    /// Extra time of a task's first run on another CPU.
    pub fn migration_ns(&self, from: CpuId, to: CpuId) -> u64 {
        self.machine.costs().migration_ns[self.machine.relation(from, to)]
    }

    /// Kernel time of one side of a message.
    pub fn message_ns(&self, kind: ChannelKind) -> u64 {
        let costs = self.machine.costs();
        match kind {
            ChannelKind::Pipe => costs.pipe_message_ns,
            ChannelKind::Socket => costs.socket_message_ns,
        }
    }

    /// Time the receiver waits for a message's lines.
    pub fn message_transfer_ns(&self, from: CpuId, to: CpuId) -> u64 {
        u64::from(self.machine.costs().message_lines) * self.handoff_ns(from, to)
    }

    /// Time to hand a modified line from one CPU to another: a lock word, a barrier's counter.
    pub fn handoff_ns(&self, from: CpuId, to: CpuId) -> u64 {
        if from == to { 0 } else { self.machine.costs().line_transfer_ns[self.machine.relation(from, to)] }
    }

    /// Work of touching `bytes` bytes of memory.
    pub fn touch_ns(&self, bytes: u64) -> u64 {
        bytes.div_ceil(STREAM_BYTES_PER_NS)
    }

    /// Work of writing `bytes` bytes to a null device.
    pub fn null_write_ns(&self, bytes: u64) -> u64 {
        bytes.div_ceil(NULL_DEVICE_BYTES_PER_NS)
    }
}
