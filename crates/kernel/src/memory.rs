//! The memory the kernel asks: how fast does each running task run from now on, when does that change, and what does it
//! cost to move tasks, messages and lines between CPUs?
//!
//! [`ConstantMemory`] knows constant speeds and fixed costs per relation of two CPUs: every effect of caches that depends
//! on what else runs, on sizes or on sharing is absent. A migration costs the same for a task that touches one line and
//! for one that fills its L2. [`SharedCores`](crate::shared_cores::SharedCores) is the same where cores have several hardware threads,
//! which slow each other. [`AnalyticMemory`](crate::analytic_memory::AnalyticMemory) asks a model of caches,
//! coherence and DRAM. The engine is compiled for each, so that the first costs nothing for the others.

use warmcore_memory::analytic::Counters;
use warmcore_memory::exact::HistorySpec;
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::TaskId;
use warmcore_workload::ChannelKind;

use crate::error::SimulationError;

/// What a CPU's task may do while time passes, for memories that tell afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allotment {
    /// Kernel work comes first: for so long the task makes no progress.
    pub overhead_ns: u64,
    /// Then it has so long for its own program.
    pub useful_ns: u64,
    /// It stops after so much work, in nanoseconds at nominal speed; `u64::MAX` if only time ends what it does.
    pub work_ns: u64,
}

/// What became of an [`Allotment`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Progress {
    /// Work done, in nanoseconds at nominal speed: all that was allotted if it could be done in time.
    pub work_ns: u64,
    /// Time it took, at most what was useful.
    pub took_ns: u64,
}

/// What the engine asks of a memory. Methods with a body are those that constant speeds have no answer to.
pub(crate) trait Memory {
    /// Whether caches and memory are modelled. If not, no method with a body is called but those that [`Memory::SPEEDS_VARY`] names.
    const MODELLED: bool;

    /// Whether speeds depend on who runs where, and so change while a task runs. If not, they are the CPUs' capacities. A memory that is
    /// not modelled answers [`Memory::switch_in`], [`Memory::switch_out`], [`Memory::speed`], [`Memory::review`],
    /// [`Memory::take_changed`], [`Memory::set_clock`] and [`Memory::speed_alone`].
    const SPEEDS_VARY: bool = Self::MODELLED;

    /// Whether the memory knows how far tasks get only afterwards. Then speeds are guesses at when to look next, and progress is asked
    /// for: whenever time passes, the engine tells with [`Memory::allot`] what each busy CPU's task may do with it, lets the memory run
    /// with [`Memory::advance`], and asks with [`Memory::progress`] how far each got. [`Memory::ran`] and [`Memory::due_ns`] are of
    /// no use to such a memory.
    const AFTERWARDS: bool = false;

    /// Extra time of a task's first run on another CPU.
    fn migration_ns(&self, task: TaskId, from: CpuId, to: CpuId) -> u64;

    /// Time for which the receiver waits for the lines of a message.
    fn message_transfer_ns(&self, kind: ChannelKind, task: TaskId, from: CpuId, to: CpuId) -> u64;

    /// Time to hand a modified line from one CPU to another: a lock word, a barrier's counter.
    fn handoff_ns(&self, from: CpuId, to: CpuId) -> u64;

    /// A task was created from a template. Tasks are numbered in order of creation.
    ///
    /// # Errors
    /// If there is no room for what it needs.
    fn task_created(&mut self, _template: u32) -> Result<(), SimulationError> {
        Ok(())
    }

    /// A task is gone.
    fn task_dead(&mut self, _task: TaskId) {}

    /// The CPU's task has run its own program for so long, at the speed in force.
    fn ran(&mut self, _cpu: CpuId, _useful_ns: u64) {}

    /// Of the time that [`Memory::advance`] lets pass next the CPU's task has this for itself. Only if [`Memory::AFTERWARDS`].
    fn allot(&mut self, _cpu: CpuId, _allotment: Allotment) {}

    /// Time passes up to now on all CPUs: those with an allotment run. Only if [`Memory::AFTERWARDS`].
    ///
    /// # Errors
    /// If there is no room for what the tasks touch.
    fn advance(&mut self, _now_ns: u64) -> Result<(), SimulationError> {
        Ok(())
    }

    /// What the CPU's task made of its allotment. Only if [`Memory::AFTERWARDS`].
    fn progress(&mut self, _cpu: CpuId) -> Progress {
        unreachable!("the memory forecasts")
    }

    /// The task now runs on the CPU; before it works the CPU is reviewed. The CPUs of its core have been settled.
    fn switch_in(&mut self, _now_ns: u64, _cpu: CpuId, _task: TaskId) {}

    /// The CPU's task no longer runs. The CPUs of its core have been settled.
    fn switch_out(&mut self, _now_ns: u64, _cpu: CpuId) {}

    /// The CPU's task waits actively from now on, or no longer does.
    fn set_spinning(&mut self, _now_ns: u64, _cpu: CpuId, _spinning: bool) {}

    /// The task begins a phase of its program. The CPUs of its core have been settled.
    fn begin_phase(&mut self, _now_ns: u64, _task: TaskId, _phase: u32) {}

    /// The CPU's clock by its reference, [`SPEED_ONE`](warmcore_memory::analytic::SPEED_ONE) = 1, from now on. Speeds follow as for any
    /// reason of others. Called for all CPUs before anything runs, or never.
    fn set_clock(&mut self, _now_ns: u64, _cpu: CpuId, _ratio: u32) {}

    /// What [`Memory::speed`] would be while the other threads of the core are idle. Only of a memory that is not modelled.
    fn speed_alone(&self, cpu: CpuId) -> u32 {
        self.speed(cpu)
    }

    /// Work per time on the CPU, [`SPEED_ONE`](warmcore_memory::analytic::SPEED_ONE) = nominal.
    fn speed(&self, _cpu: CpuId) -> u32 {
        unreachable!("constant speeds are the CPUs' capacities")
    }

    /// Sets the CPU's speed anew if it has been in force for long enough; returns until when it is. The CPU is settled.
    fn review(&mut self, _now_ns: u64, _cpu: CpuId, _remaining_ns: u64) -> u64 {
        u64::MAX
    }

    /// When [`Memory::due_cpus`] and [`Memory::refresh`] should be called.
    fn due_ns(&self) -> u64 {
        u64::MAX
    }

    /// CPUs to settle before [`Memory::refresh`].
    fn due_cpus(&mut self, _now_ns: u64, _cpus: &mut Vec<CpuId>) {}

    /// Brings shared caches and memory up to date.
    fn refresh(&mut self, _now_ns: u64) {}

    /// From now on the pages of a task's private classes, or with `class` those of one of the shared classes of its template's
    /// profile, are on the nodes in these shares. The kernel keeps pages; speeds follow when the CPUs concerned are reviewed next.
    fn set_home(&mut self, _task: TaskId, _class: Option<u32>, _shares: &[f64]) {}

    /// The next CPU whose speed changed for a reason of others.
    fn take_changed(&mut self) -> Option<CpuId> {
        None
    }

    /// The task waited for lines of a message or lock on their way between CPUs.
    fn transferred(&mut self, _task: TaskId, _from: CpuId, _to: CpuId, _ns: u64) {}

    /// Time for which one CPU waits for so many lines that another wrote last.
    fn lines_ns(&self, _from: CpuId, _to: CpuId, _lines: u32) -> u64 {
        0
    }

    /// The task waited actively until others had let go of lines they share.
    fn waited_for_line(&mut self, _task: TaskId, _ns: u64) {}

    /// What a task's time and accesses went to, if that is known.
    fn task_counters(&self, _task: TaskId) -> Option<Counters> {
        None
    }

    /// The same of a CPU.
    fn cpu_counters(&self, _cpu: CpuId) -> Option<Counters> {
        None
    }

    /// Sets of the largest L1, L2 and LLC, if it can record which ones tasks use.
    fn recordable_sets(&self) -> Option<[u32; 3]> {
        None
    }

    /// Records which sets tasks use, from now on. Only if there are [`Memory::recordable_sets`].
    fn record_sets(&mut self, _spec: HistorySpec) {}

    /// The latest sets of a task, the oldest first.
    fn recent_sets(&self, _task: TaskId, _sets: &mut Vec<u32>) {}

    /// Clock of a CPU in cycles per nanosecond.
    fn frequency_ghz(&self, _cpu: CpuId) -> f64 {
        1.0
    }

    /// Equations solved, and those that did not settle.
    fn solutions(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Constant-speed memory.
pub(crate) struct ConstantMemory<'a> {
    machine: &'a Machine,
}

impl<'a> ConstantMemory<'a> {
    pub fn new(machine: &'a Machine) -> Self {
        Self { machine }
    }
}

impl Memory for ConstantMemory<'_> {
    const MODELLED: bool = false;

    fn migration_ns(&self, _task: TaskId, from: CpuId, to: CpuId) -> u64 {
        self.machine.costs().migration_ns[self.machine.relation(from, to)]
    }

    fn message_transfer_ns(&self, _kind: ChannelKind, _task: TaskId, from: CpuId, to: CpuId) -> u64 {
        u64::from(self.machine.costs().message_lines) * self.handoff_ns(from, to)
    }

    fn handoff_ns(&self, from: CpuId, to: CpuId) -> u64 {
        if from == to { 0 } else { self.machine.costs().line_transfer_ns[self.machine.relation(from, to)] }
    }
}

/// Bytes per nanosecond at which rt-app's `mem` events walk their buffer: one core's streaming rate of about 10 GB/s.
const STREAM_BYTES_PER_NS: u64 = 10;

/// Bytes per nanosecond of rt-app's `iorun` writes to a null device, system calls included.
const NULL_DEVICE_BYTES_PER_NS: u64 = 20;

/// Who does something with a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Side::Sender => Side::Receiver,
            Side::Receiver => Side::Sender,
        }
    }

    /// Percent of the mean of both sides that the kernel's work for a message takes. A pipe's write takes 1.13 times its read if it
    /// opens a page, as it does in an empty pipe, and 0.97 times if the message goes into the page that the one before it began
    /// (`results/2026-11-25-zen4-2vcpu-pipe-sides/`). A socket's two calls take the same.
    fn work_percent(self, kind: ChannelKind, opens_page: bool) -> u64 {
        match (kind, self) {
            (ChannelKind::Pipe, Side::Sender) if opens_page => 106,
            (ChannelKind::Pipe, Side::Sender) => 92,
            (ChannelKind::Pipe, Side::Receiver) => 94,
            (ChannelKind::Socket, _) => 100,
        }
    }

    /// Percent of a message's lines that this side waits for: 27 to 33 % the sender of a pipe, 24 to 28 % that of a socket, between
    /// LLCs (as above).
    pub(crate) fn lines_percent(self) -> u64 {
        match self {
            Side::Sender => 30,
            Side::Receiver => 70,
        }
    }
}

/// Kernel time of one side of a message. The machine's costs are means of both sides, in a pipe of messages that are alone in it.
pub(crate) fn message_ns(machine: &Machine, kind: ChannelKind, side: Side, opens_page: bool) -> u64 {
    let costs = machine.costs();
    let mean_ns = match kind {
        ChannelKind::Pipe => costs.pipe_message_ns,
        ChannelKind::Socket => costs.socket_message_ns,
    };
    mean_ns * side.work_percent(kind, opens_page) / 100
}

/// Work of touching `bytes` bytes of memory.
pub(crate) fn touch_ns(bytes: u64) -> u64 {
    bytes.div_ceil(STREAM_BYTES_PER_NS)
}

/// Work of writing `bytes` bytes to a null device.
pub(crate) fn null_write_ns(bytes: u64) -> u64 {
    bytes.div_ceil(NULL_DEVICE_BYTES_PER_NS)
}
