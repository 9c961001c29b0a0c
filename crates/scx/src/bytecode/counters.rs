//! Counters of performance events that a loader opens on CPUs and tasks (`perf_event_open`), and what programs and the loader read of them.
//!
//! They count what the model of the memory counts of a CPU: tasks' own instructions and what these lead to, since the kernel's work passes without
//! any there. Each is on its CPU for as long as it is enabled, so it runs as long; one of a task counts while the task runs. Programs read a counter on
//! its own CPU or in its own task only, as in a kernel. Programs at its samples: [`Sampling`].
//!
//! Not modelled: counters of the loader's own threads, groups, samples of other things than clocks, cycles and instructions, and every event that is not in
//! [`Counted`].
//!
//! Source: Linux 7.2 `kernel/events/core.c` (`perf_event_read_local`, `perf_read`), `kernel/trace/bpf_trace.c` (`bpf_perf_event_read_value`),
//! `include/uapi/linux/perf_event.h` (numbers); codes of raw events: Intel SDM volume 3 table "Pre-Defined Architectural Performance Events", AMD PPR
//! for family 19h, events PMCx076 and PMCx0C0.

use warmcore_bpf::maps::MapFault;
use warmcore_kernel::LiveCounters;
use warmcore_topology::{CpuId, Processor, Vendor};
use warmcore_trace::{MemoryEvent, TaskId};

use crate::bytecode::helpers::{EINVAL, EOPNOTSUPP, error};
use crate::bytecode::host::{Host, clock_ns};
use crate::bytecode::operations::Bytecode;
use crate::bytecode::samples::Sampling;
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// Instructions of tasks.
    Instructions,
    /// Cycles of the CPU's clock while those are executed.
    Cycles,
    /// Lines by where they were served.
    Lines(MemoryEvent),
    /// Lines from memory, of any node.
    Memory,
    /// Walks through page tables.
    PageWalks,
    /// Nanoseconds: of a CPU's counter those for which it is enabled.
    Time,
    /// Switches of the CPU.
    Switches,
    /// Nothing (`PERF_COUNT_SW_DUMMY`).
    Nothing,
}

/// Types of events (`enum perf_type_id`).
mod event_type {
    pub const HARDWARE: u32 = 0;
    pub const SOFTWARE: u32 = 1;
    pub const CACHE: u32 = 3;
    pub const RAW: u32 = 4;
}

impl Counted {
    /// What an event is, by its type and number, on a make of CPUs; `None` if the model does not count it.
    #[must_use]
    pub fn find(event_type: u32, config: u64, processor: Option<Processor>) -> Option<Self> {
        const READ: u64 = 0;
        const ACCESS: u64 = 0;
        const MISS: u64 = 1;
        let lines = |event| Some(Self::Lines(event));
        match event_type {
            event_type::HARDWARE => match config {
                0 => Some(Self::Cycles),
                1 => Some(Self::Instructions),
                2 => lines(MemoryEvent::L2Miss),
                3 => lines(MemoryEvent::L3Miss),
                _ => None,
            },
            event_type::SOFTWARE => match config {
                0 | 1 => Some(Self::Time),
                3 => Some(Self::Switches),
                9 => Some(Self::Nothing),
                _ => None,
            },
            event_type::CACHE => match (config & 0xff, config >> 8 & 0xff, config >> 16) {
                (0, READ, MISS) => lines(MemoryEvent::L1Miss),
                (1, READ, MISS) => lines(MemoryEvent::L1iMiss),
                (2, READ, ACCESS) => lines(MemoryEvent::L2Miss),
                (2, READ, MISS) => lines(MemoryEvent::L3Miss),
                (3, READ, MISS) => Some(Self::PageWalks),
                (6, READ, ACCESS) => Some(Self::Memory),
                (6, READ, MISS) => lines(MemoryEvent::DramRemote),
                _ => None,
            },
            event_type::RAW => match (processor?.vendor(), config) {
                (Vendor::Intel, 0x003c) | (Vendor::Amd, 0x0076) => Some(Self::Cycles),
                (Vendor::Intel | Vendor::Amd, 0x00c0) => Some(Self::Instructions),
                (Vendor::Intel, 0x4f2e) => lines(MemoryEvent::L2Miss),
                (Vendor::Intel, 0x412e) => lines(MemoryEvent::L3Miss),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether only a model of the memory counts it.
    #[must_use]
    pub const fn is_of_memory(self) -> bool {
        !matches!(self, Self::Time | Self::Switches | Self::Nothing)
    }

    fn count(self, counters: &LiveCounters) -> u64 {
        let of = &counters.counters;
        let events = |events: &[MemoryEvent]| events.iter().map(|event| of.events[*event as usize]).sum::<f64>();
        let count = match self {
            Self::Instructions => of.instructions,
            Self::Cycles => counters.cycles,
            Self::Lines(event) => events(&[event]),
            Self::Memory => events(&[MemoryEvent::DramLocal, MemoryEvent::DramRemote]),
            Self::PageWalks => of.page_walks,
            Self::Switches => return counters.switches,
            Self::Time | Self::Nothing => 0.0,
        };
        count as u64
    }
}

/// What a type and number of an event are called, as `perf` calls them where it has a word.
#[must_use]
pub fn name_of_event(event_type: u32, config: u64) -> String {
    const HARDWARE: [&str; 10] = [
        "cycles",
        "instructions",
        "cache-references",
        "cache-misses",
        "branches",
        "branch-misses",
        "bus-cycles",
        "stalled-cycles-frontend",
        "stalled-cycles-backend",
        "ref-cycles",
    ];
    const SOFTWARE: [&str; 12] = [
        "cpu-clock",
        "task-clock",
        "page-faults",
        "context-switches",
        "cpu-migrations",
        "minor-faults",
        "major-faults",
        "alignment-faults",
        "emulation-faults",
        "dummy",
        "bpf-output",
        "cgroup-switches",
    ];
    let named = |names: &[&'static str]| usize::try_from(config).ok().and_then(|number| names.get(number).copied());
    let (name, kind) = match event_type {
        event_type::HARDWARE => (named(&HARDWARE), "hardware"),
        event_type::SOFTWARE => (named(&SOFTWARE), "software"),
        event_type::CACHE => (None, "cache"),
        event_type::RAW => (None, "raw"),
        _ => return format!("{config:#x} of type {event_type}"),
    };
    name.map_or_else(|| format!("{kind} {config:#x}"), str::to_owned)
}

/// Whose events a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountedOf {
    /// A CPU's, whatever runs there.
    Cpu(CpuId),
    /// A task's, on this CPU alone if there is one.
    Task(TaskId, Option<CpuId>),
}

/// What a loader opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterSpec {
    /// What it counts.
    pub counted: Counted,
    /// Whose.
    pub of: CountedOf,
    /// Programs may not read one that children would have (`inherit`).
    pub is_inherited: bool,
    /// The samples that it takes, if it takes some that are modelled.
    pub sampling: Option<Sampling>,
}

/// Number of a counter of a [`Host`], above 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterId(u32);

impl CounterId {
    pub(super) fn of(index: usize) -> Self {
        Self(index as u32 + 1)
    }

    fn index(self) -> usize {
        (self.0 as usize).wrapping_sub(1)
    }
}

/// What is read of a counter (`struct bpf_perf_event_value`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CounterReading {
    /// The count.
    pub value: u64,
    /// For how many ns it has been enabled, of a task's those in which the task ran.
    pub enabled_ns: u64,
    /// For how many of those it has counted: all.
    pub running_ns: u64,
}

impl CounterReading {
    fn plus(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            enabled_ns: self.enabled_ns + other.enabled_ns,
            running_ns: self.running_ns + other.running_ns,
        }
    }
}

/// Since when a counter counts.
#[derive(Clone, Copy, Debug)]
struct Since {
    cpu: CpuId,
    at_ns: u64,
    /// What the CPU had counted then; none if counting had not begun.
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    spec: CounterSpec,
    is_enabled: bool,
    /// Up to when it counted last.
    sum: CounterReading,
    /// The same count, which nobody resets.
    passed: u64,
    /// None while it is not enabled, and while its task does not run.
    since: Option<Since>,
}

impl Host {
    /// What a CPU has counted up to now, if counting has begun. Of a clock, which goes always, what it says.
    pub(super) fn counted(&self, counted: Counted, cpu: CpuId, now_ns: u64) -> Option<u64> {
        if counted == Counted::Time {
            return Some(now_ns);
        }
        let kernel = self.kernel()?;
        kernel.core.live_counters(cpu).map(|live| counted.count(live))
    }

    /// The same when counting began.
    fn counted_first(&self, counted: Counted, cpu: CpuId) -> u64 {
        let first = self.kernel().and_then(|kernel| kernel.core.first_live_counters(cpu).copied());
        first.map_or(0, |first| counted.count(&first))
    }

    /// A run begins: if there are counters, the kernel keeps those of its CPUs up to date, and tells of switches if some are tasks'.
    pub(super) fn begin_counters(&self, kernel: &mut Kfuncs<'_, '_>) {
        if !self.kept.counters.is_empty() {
            kernel.core.open_live_counters();
        }
        if self.counts_tasks() {
            kernel.state.table.present |= Operation::SchedSwitch.bit();
        }
    }

    fn counts_tasks(&self) -> bool {
        self.kept.counters.iter().any(|counter| matches!(counter.spec.of, CountedOf::Task(..)))
    }

    /// Opens a counter; it does not count yet.
    pub fn open_counter(&mut self, spec: CounterSpec) -> CounterId {
        self.kept.counters.push(Counter {
            spec,
            is_enabled: false,
            sum: CounterReading::default(),
            passed: 0,
            since: None,
        });
        if let Some(kernel) = self.kernel() {
            self.begin_counters(kernel);
        }
        CounterId::of(self.kept.counters.len() - 1)
    }

    fn counter(&self, id: CounterId) -> Option<&Counter> {
        self.kept.counters.get(id.index())
    }

    /// What a counter is, and whether it is enabled.
    pub(super) fn spec_of_counter(&self, id: CounterId) -> Option<(CounterSpec, bool)> {
        self.counter(id).map(|counter| (counter.spec, counter.is_enabled))
    }

    /// The CPU whose events a counter counts at present.
    pub(super) fn counts_on(&self, id: CounterId) -> Option<CpuId> {
        self.counter(id)?.since.map(|since| since.cpu)
    }

    /// The CPU whose events are those of a counter now.
    fn cpu_of(&self, of: CountedOf) -> Option<CpuId> {
        match of {
            CountedOf::Cpu(cpu) => Some(cpu),
            CountedOf::Task(task, on) => {
                let kernel = self.kernel()?;
                let cpu = kernel.task_cpu(task);
                (kernel.runs_on(cpu) == task && on.is_none_or(|on| on == cpu)).then_some(cpu)
            }
        }
    }

    /// A counter counts from an instant of the clock on, in ns.
    fn begin_to_count(&mut self, index: usize, cpu: CpuId, now_ns: u64) {
        let count = self.counted(self.kept.counters[index].spec.counted, cpu, now_ns);
        self.kept.counters[index].since = Some(Since { cpu, at_ns: now_ns, count });
    }

    /// It counts no more.
    fn stop_to_count(&mut self, index: usize, now_ns: u64) {
        let counted = self.counted_since(&self.kept.counters[index], now_ns);
        let counter = &mut self.kept.counters[index];
        counter.sum = counter.sum.plus(counted);
        counter.passed += counted.value;
        counter.since = None;
    }

    /// What a counter has counted since it began to.
    fn counted_since(&self, counter: &Counter, now_ns: u64) -> CounterReading {
        let Some(Since { cpu, at_ns, count }) = counter.since else { return CounterReading::default() };
        let counted = counter.spec.counted;
        let before = count.unwrap_or_else(|| self.counted_first(counted, cpu));
        let value = self.counted(counted, cpu, now_ns).map_or(0, |count| count.saturating_sub(before));
        let passed_ns = now_ns.saturating_sub(at_ns);
        CounterReading { value, enabled_ns: passed_ns, running_ns: passed_ns }
    }

    /// Has a counter count from an instant of the clock on, in ns. Without effect if it does.
    pub fn enable_counter(&mut self, id: CounterId, now_ns: u64) {
        let Some((spec, false)) = self.spec_of_counter(id) else { return };
        self.kept.counters[id.index()].is_enabled = true;
        if let Some(cpu) = self.cpu_of(spec.of) {
            self.begin_to_count(id.index(), cpu, now_ns);
        }
        self.restart_samples_of(id);
    }

    /// Has it count no more. Without effect if it does not.
    pub fn disable_counter(&mut self, id: CounterId, now_ns: u64) {
        let Some((_, true)) = self.spec_of_counter(id) else { return };
        self.stop_to_count(id.index(), now_ns);
        self.kept.counters[id.index()].is_enabled = false;
        self.restart_samples_of(id);
    }

    /// Begins to count at 0. Its times go on.
    pub fn reset_counter(&mut self, id: CounterId, now_ns: u64) {
        if self.counter(id).is_none() {
            return;
        }
        let cpu = self.counts_on(id);
        self.stop_to_count(id.index(), now_ns);
        self.kept.counters[id.index()].sum.value = 0;
        if let Some(cpu) = cpu {
            self.begin_to_count(id.index(), cpu, now_ns);
        }
    }

    /// What a counter has counted up to an instant of the clock, in ns; `None` if there is none.
    #[must_use]
    pub fn read_counter(&self, id: CounterId, now_ns: u64) -> Option<CounterReading> {
        let counter = self.counter(id)?;
        Some(counter.sum.plus(self.counted_since(counter, now_ns)))
    }

    /// How far a counter is, whose count nobody has reset. The clock of a CPU begins with the run.
    pub(super) fn position(&self, id: CounterId) -> u64 {
        let Some(counter) = self.counter(id) else { return 0 };
        let now_ns = self.kernel().map_or((0, 0), |kernel| (kernel.now_ns(), clock_ns(kernel)));
        match counter.spec.of {
            CountedOf::Cpu(cpu) => self.counted(counter.spec.counted, cpu, now_ns.0).unwrap_or(0),
            CountedOf::Task(..) => counter.passed + self.counted_since(counter, now_ns.1).value,
        }
    }

    /// A CPU has switched at an instant of the clock, in ns: counters of a task count while it runs (`perf_event_task_sched_in`).
    fn switch_counters(&mut self, cpu: CpuId, prev: TaskId, next: TaskId, now_ns: u64) {
        for index in 0..self.kept.counters.len() {
            let Counter { spec, is_enabled, since, .. } = self.kept.counters[index];
            let CountedOf::Task(task, on) = spec.of else { continue };
            if task == prev && since.is_some() {
                self.stop_to_count(index, now_ns);
                self.suspend_samples_of(CounterId::of(index));
            } else if task == next && is_enabled && since.is_none() && on.is_none_or(|on| on == cpu) {
                self.begin_to_count(index, cpu, now_ns);
                self.resume_samples_of(CounterId::of(index));
            }
        }
    }

    /// Has an array hold a counter at an index.
    ///
    /// # Errors
    /// As the kernel refuses it, with its error number.
    pub fn hold_counter(&mut self, map: u64, index: u32, id: CounterId, flags: u64) -> Result<(), i32> {
        let is_inherited = self.counter(id).is_some_and(|counter| counter.spec.is_inherited);
        if is_inherited {
            return Err(EOPNOTSUPP as i32);
        }
        self.maps.hold_event(map, index, id.0.into(), flags).map_err(|fault| fault as i32)
    }

    /// The counter that a program names, read by it.
    fn read_for_program(&self, map: u64, flags: u64) -> Result<CounterReading, i64> {
        /// `BPF_F_INDEX_MASK`, which also stands for the CPU at work (`BPF_F_CURRENT_CPU`).
        const INDEX_MASK: u64 = 0xffff_ffff;
        if flags & !INDEX_MASK != 0 {
            return Err(EINVAL);
        }
        let cpu = self.frame.cpu;
        let index = if flags == INDEX_MASK { cpu as u32 } else { flags as u32 };
        let id = self.maps.event(map, index).map_err(|fault: MapFault| fault as i64)?;
        let id = CounterId(id as u32);
        let counter = self.counter(id).ok_or(EINVAL)?;
        // One of another CPU could be read by an interrupt there only, one of another task nowhere.
        let is_here = |of: CpuId| u64::from(of.0) == cpu;
        let may_read = match counter.spec.of {
            CountedOf::Cpu(of) => is_here(of),
            CountedOf::Task(task, on) => self.task_address(task) == self.current_task() && on.is_none_or(is_here),
        };
        if !may_read {
            return Err(EINVAL);
        }
        self.read_counter(id, self.frame.now_ns).ok_or(EINVAL)
    }

    /// `bpf_perf_event_read`: errors and counts are one number.
    pub(super) fn perf_event_read(&self, map: u64, flags: u64) -> u64 {
        self.read_for_program(map, flags).map_or_else(error, |reading| reading.value)
    }

    /// `bpf_perf_event_read_value`: fills the structure, with zeros if there is an error.
    pub(super) fn perf_event_read_value(&mut self, map: u64, flags: u64, to: u64, bytes: u32) -> u64 {
        let reading = self.read_for_program(map, flags);
        self.give_reading(reading, to, bytes)
    }

    /// `bpf_perf_prog_read_value`: the same of the counter whose sample is taken.
    pub(super) fn perf_prog_read_value(&mut self, to: u64, bytes: u32) -> u64 {
        let reading = self.sampled.and_then(|id| self.read_counter(id, self.frame.now_ns));
        self.give_reading(reading.ok_or(EINVAL), to, bytes)
    }

    fn give_reading(&mut self, reading: Result<CounterReading, i64>, to: u64, bytes: u32) -> u64 {
        const BYTES: u32 = 24;
        let reading = if bytes == BYTES { reading } else { Err(EINVAL) };
        match reading {
            Ok(CounterReading { value, enabled_ns, running_ns }) => {
                for (place, number) in [(to, value), (to + 8, enabled_ns), (to + 16, running_ns)] {
                    self.store_u64(place, number);
                }
                0
            }
            Err(number) => {
                if let Some(place) = self.maps.memory.write(to, bytes.into()) {
                    place.fill(0);
                }
                error(number)
            }
        }
    }
}

impl Bytecode {
    /// The CPU of the call switches between two tasks.
    pub(super) fn count_switch(&mut self, kernel: &mut Kfuncs<'_, '_>, prev: TaskId, next: TaskId) {
        if !self.host.counts_tasks() {
            return;
        }
        let (cpu, now_ns) = (kernel.this_cpu(), clock_ns(kernel));
        self.host.kernel = Some(std::ptr::from_mut(kernel).cast());
        self.host.switch_counters(cpu, prev, next, now_ns);
        self.host.kernel = None;
    }
}

#[cfg(test)]
mod tests {
    use warmcore_trace::MemoryCounters as Counters;

    use super::*;

    /// Numbers of `include/uapi/linux/perf_event.h`, and codes as the makers' manuals have them.
    #[test]
    fn events_are_what_their_numbers_say_and_others_are_refused_by_name() {
        let [intel, amd, arm] = [(Vendor::Intel, Some(6)), (Vendor::Amd, Some(25)), (Vendor::Arm, None)]
            .map(|(vendor, family)| Some(Processor::new(vendor, family).unwrap()));
        let misses = Counted::Lines(MemoryEvent::L3Miss);
        for (event_type, config, processor, counted, name) in [
            (0, 0, None, Some(Counted::Cycles), "cycles"),
            (0, 1, None, Some(Counted::Instructions), "instructions"),
            (0, 3, None, Some(misses), "cache-misses"),
            (0, 4, None, None, "branches"),
            (0, 1 << 32 | 1, None, None, "hardware 0x100000001"),
            (1, 1, None, Some(Counted::Time), "task-clock"),
            (1, 3, None, Some(Counted::Switches), "context-switches"),
            (1, 2, None, None, "page-faults"),
            (3, 2 | 1 << 16, None, Some(misses), "cache 0x10002"),
            (3, 2 | 1 << 8 | 1 << 16, None, None, "cache 0x10102"),
            (4, 0xc0, intel, Some(Counted::Instructions), "raw 0xc0"),
            (4, 0x412e, intel, Some(misses), "raw 0x412e"),
            (4, 0x412e, amd, None, "raw 0x412e"),
            (4, 0x76, amd, Some(Counted::Cycles), "raw 0x76"),
            (4, 0xc0, arm, None, "raw 0xc0"),
            (4, 0xc0, None, None, "raw 0xc0"),
            (5, 1, intel, None, "0x1 of type 5"),
        ] {
            assert_eq!(Counted::find(event_type, config, processor), counted, "{name}");
            assert_eq!(name_of_event(event_type, config), name);
        }
    }

    #[test]
    fn each_event_has_its_own_count() {
        let mut counters = Counters { instructions: 1000.9, page_walks: 5.0, ..Counters::default() };
        counters.events = std::array::from_fn(|event| 10.0 * (event + 1) as f64);
        let live = LiveCounters { counters, cycles: 300.0, switches: 3 };
        for (counted, count) in [
            (Counted::Instructions, 1000),
            (Counted::Cycles, 300),
            (Counted::Lines(MemoryEvent::L1Miss), 10),
            (Counted::Lines(MemoryEvent::L3Miss), 30),
            // Of its own node and of others.
            (Counted::Memory, 110),
            (Counted::PageWalks, 5),
            (Counted::Switches, 3),
            (Counted::Nothing, 0),
        ] {
            assert_eq!(counted.count(&live), count, "{counted:?}");
        }
    }
}
