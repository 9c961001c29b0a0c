//! Counters of the memory as a policy may read them: what a kernel gets from the hardware's counters, not what the model knows.
//!
//! A policy opens them once ([`Core::open_counters`]). From then on the kernel reads a CPU's counters, and those of the task that runs
//! there, at every tick of that CPU and when a task stops running; in between, readings are old, those of other CPUs too. Whoever looks
//! at a reading pays for it. With memory of constant speed nothing is counted, and there is no reading.
//!
//! What is counted stands at [`MemoryEvent`](warmcore_memory::analytic::MemoryEvent) and
//! [`TimeShare`](warmcore_memory::analytic::TimeShare): since the start of the run for a CPU, since its creation for a task. Counters are
//! exact and never overflow; real ones are few, shared, and multiplexed where more are wanted.
//!
//! A policy may ask for more, as programs do that read a counter of the CPU they run on (`bpf_perf_event_read_value`): from
//! [`Core::open_live_counters`] on, those of the CPU at work are up to date whenever the policy is called, and those of all CPUs when a timer of its
//! own runs out.
//!
//! Beside counters a policy may ask which sets of a cache a task used lately ([`Core::open_histories`]). No hardware tells: only the exact
//! level of the memory knows. Readings are taken when counters are, and when a policy's own timer ends a turn.

use warmcore_memory::analytic::Counters;
use warmcore_memory::exact::{HistoryLevel, HistorySpec};
use warmcore_topology::CpuId;
use warmcore_trace::{OverheadKind, TaskId};

use crate::core::Core;
use crate::engine::Engine;
use crate::memory::Memory;
use crate::scheduler::Scheduler;

/// Nanoseconds to look at a reading: a few `rdpmc` or lines of another CPU. Assumed.
pub const READ_COUNTERS_NS: u64 = 100;

/// What a CPU has counted since the start of the run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LiveCounters {
    /// What the memory counts, of tasks' own instructions: the kernel's work passes without any. Zeros where it is not modelled.
    pub counters: Counters,
    /// Cycles of the CPU's clock in the time that is counted there.
    pub cycles: f64,
    /// Switches since the counters were opened.
    pub switches: u64,
}

/// Last readings.
#[derive(Default)]
pub(crate) struct Readings {
    /// By CPU, up to date and as they were when they were opened; empty until somebody wants them.
    live: Vec<(LiveCounters, LiveCounters)>,
    /// Somebody wants them, and they have been read once.
    pub is_live: bool,
    /// Somebody wants them.
    open: bool,
    cpus: Vec<Counters>,
    tasks: Vec<Counters>,
    /// What is recorded of used sets, if somebody wants it.
    pub history: Option<HistorySpec>,
    /// By task: sets that it used lately, the oldest first.
    recent_sets: Vec<Vec<u32>>,
}

impl Core<'_> {
    /// Has the kernel read counters from now on. Whether there are any.
    pub fn open_counters(&mut self) -> bool {
        self.readings.open = self.memory_modelled;
        self.readings.cpus = vec![Counters::default(); self.cpus.len()];
        self.readings.open
    }

    /// What a CPU had counted when its counters were read last: at its last tick, or when a task last stopped running there. `None` if
    /// they are not open or nothing is counted. Charges the present event's CPU with [`READ_COUNTERS_NS`].
    pub fn cpu_counters(&mut self, cpu: CpuId) -> Option<Counters> {
        self.pay_for_reading().then(|| self.readings.cpus[cpu.index()])
    }

    /// What a task had counted at the last tick that it saw, or when it last stopped running; nothing before that. Otherwise as
    /// [`Core::cpu_counters`].
    pub fn task_counters(&mut self, task: TaskId) -> Option<Counters> {
        self.pay_for_reading().then(|| self.readings.tasks.get(task.index()).copied().unwrap_or_default())
    }

    /// Has the counters of the CPU at work kept up to date from now on. They can be read from the end of the present event on.
    pub fn open_live_counters(&mut self) {
        if self.readings.live.is_empty() {
            self.readings.live = vec![Default::default(); self.cpus.len()];
        }
    }

    /// What a CPU has counted: up to now on the CPU at work, and where a timer of the policy's runs out on all; on others when it was at work last.
    /// `None` before the end of the event in which they were opened.
    #[must_use]
    pub fn live_counters(&self, cpu: CpuId) -> Option<&LiveCounters> {
        self.readings.is_live.then(|| &self.readings.live[cpu.index()].0)
    }

    /// What it had counted when live counters were opened. `None` as [`Core::live_counters`].
    #[must_use]
    pub fn first_live_counters(&self, cpu: CpuId) -> Option<&LiveCounters> {
        self.readings.is_live.then(|| &self.readings.live[cpu.index()].1)
    }

    /// Has the memory record which sets of a level's caches each task uses, as many as the window holds. The number of sets of its largest
    /// cache, below which all indexes are; `None` if the memory does not know sets.
    pub fn open_histories(&mut self, spec: HistorySpec) -> Option<u32> {
        let sets = self.recordable_sets?;
        self.readings.history = Some(spec);
        Some(match spec.level {
            HistoryLevel::L1 => sets[0],
            HistoryLevel::L2 => sets[1],
            HistoryLevel::Llc => sets[2],
            HistoryLevel::Mixed => sets.into_iter().max().unwrap_or(1),
        })
    }

    /// Sets that a task had used lately when it was read last, the oldest first: at a tick or the end of its turn. Nothing before that.
    /// Costs nothing by itself: what a policy makes of them is its own to charge.
    #[must_use]
    pub fn recent_sets(&self, task: TaskId) -> &[u32] {
        self.readings.recent_sets.get(task.index()).map_or(&[], Vec::as_slice)
    }

    fn pay_for_reading(&mut self) -> bool {
        if self.readings.open {
            self.charge(self.this_cpu, READ_COUNTERS_NS, OverheadKind::Tick);
        }
        self.readings.open
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// What a CPU has counted up to now.
    pub(crate) fn counted_on(&mut self, cpu: CpuId) -> Option<Counters> {
        self.settle(cpu);
        self.memory.cpu_counters(cpu)
    }

    /// Begins to keep live counters if a policy has opened them in this event.
    pub(crate) fn begin_live_counters(&mut self) {
        if self.core.readings.is_live || self.core.readings.live.is_empty() {
            return;
        }
        self.core.readings.is_live = true;
        self.read_live_counters_of_all();
        for (now, first) in &mut self.core.readings.live {
            *first = *now;
        }
    }

    /// Brings the live counters of a CPU up to date.
    #[cold]
    pub(crate) fn read_live_counters(&mut self, cpu: CpuId) {
        if !M::MODELLED {
            return;
        }
        let Some(counters) = self.counted_on(cpu) else { return };
        let ghz = self.memory.frequency_ghz(cpu);
        let (live, _) = &mut self.core.readings.live[cpu.index()];
        live.cycles += (counters.total_ns() - live.counters.total_ns()) * ghz;
        live.counters = counters;
    }

    #[cold]
    pub(crate) fn read_live_counters_of_all(&mut self) {
        for cpu in self.core.machine.cpus() {
            self.read_live_counters(cpu);
        }
    }

    /// What follows happens on a CPU other than the event's.
    #[inline]
    pub(crate) fn go_to(&mut self, cpu: CpuId) {
        self.core.this_cpu = cpu;
        if self.core.readings.is_live {
            self.read_live_counters(cpu);
        }
    }

    /// A CPU has switched.
    #[inline]
    pub(crate) fn count_switch(&mut self, cpu: CpuId) {
        if self.core.readings.is_live {
            self.core.readings.live[cpu.index()].0.switches += 1;
        }
    }

    /// Reads which sets the task of a CPU used lately, if a policy wants that.
    pub(crate) fn read_history(&mut self, cpu: CpuId) {
        let task = self.core.curr(cpu);
        if self.core.readings.history.is_none() || task.is_idle() {
            return;
        }
        self.settle(cpu);
        let recent_sets = &mut self.core.readings.recent_sets;
        if recent_sets.len() <= task.index() {
            recent_sets.resize_with(task.index() + 1, Vec::new);
        }
        self.memory.recent_sets(task, &mut recent_sets[task.index()]);
    }

    /// Reads the counters of a CPU and of the task that runs there, if a policy wants them.
    pub(crate) fn read_counters(&mut self, cpu: CpuId) {
        self.read_history(cpu);
        if !self.core.readings.open {
            return;
        }
        if let Some(counters) = self.counted_on(cpu) {
            self.core.readings.cpus[cpu.index()] = counters;
        }
        let task = self.core.curr(cpu);
        if task.is_idle() {
            return;
        }
        let Some(counters) = self.memory.task_counters(task) else { return };
        let tasks = &mut self.core.readings.tasks;
        if tasks.len() <= task.index() {
            tasks.resize(task.index() + 1, Counters::default());
        }
        tasks[task.index()] = counters;
    }
}
