//! Memory counters in the trace: per CPU at every tick, per task at its exit, and of both at the ends of the warm-up and of the run.

use warmcore_memory::analytic::{Counters, MemoryEvent, TimeShare};
use warmcore_topology::CpuId;
use warmcore_trace::{EventKind, TaskId};

use crate::engine::Engine;
use crate::memory::Memory;
use crate::scheduler::Scheduler;

/// Counters of a trace with modelled memory, by index: instructions and cycles, accesses by where they were served, time
/// by what it went to. What follows from others (requests to L2 and L3, and RFO misses with those that memory serves) has no samples, only totals,
/// and so have misses of L1 caches for instructions. A sample of a CPU belongs to the idle task; both kinds count since the last one of that CPU or
/// task.
pub const MEMORY_COUNTERS: [&str; 2 + EVENTS + TimeShare::COUNT + 2] = [
    "instructions",
    "cycles",
    "l1_misses",
    "l2_misses",
    "l3_misses",
    "l3_rfo_other_llc",
    "dram_local",
    "dram_remote",
    "c2c_same_llc",
    "c2c_other_llc",
    "c2c_other_socket",
    "compute_ns",
    "smt_ns",
    "l2_ns",
    "llc_ns",
    "other_llc_ns",
    "other_socket_ns",
    "dram_local_ns",
    "dram_remote_ns",
    "bandwidth_ns",
    "hot_lines_ns",
    "page_walks_ns",
    "page_walks",
    "page_faults",
];

/// How many events are sampled, the first ones of all.
const EVENTS: usize = MemoryEvent::L3RfoMiss as usize;

/// What was sampled already, as whole numbers so that samples add up to the totals.
#[derive(Default)]
pub(crate) struct MemorySamples {
    cpus: Vec<[u64; MEMORY_COUNTERS.len()]>,
    tasks: Vec<[u64; MEMORY_COUNTERS.len()]>,
}

/// Counters in the order of [`MEMORY_COUNTERS`].
fn values(counters: &Counters, ghz: f64) -> [u64; MEMORY_COUNTERS.len()] {
    let mut values = [0; MEMORY_COUNTERS.len()];
    values[0] = counters.instructions as u64;
    values[1] = (counters.total_ns() * ghz) as u64;
    let sampled = &counters.events[..EVENTS];
    let rest = sampled.iter().chain(&counters.time_ns).chain([&counters.page_walks, &counters.page_faults]);
    for (value, count) in values[2..].iter_mut().zip(rest) {
        *value = *count as u64;
    }
    values
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Puts what a CPU counted since its last sample into the trace.
    pub(crate) fn sample_memory(&mut self, cpu: CpuId) {
        if !self.core.is_traced() {
            return;
        }
        let Some(counters) = self.counted_on(cpu) else { return };
        let now = values(&counters, self.memory.frequency_ghz(cpu));
        let count = self.core.cpus.len();
        self.samples.cpus.resize(count, [0; MEMORY_COUNTERS.len()]);
        let last = std::mem::replace(&mut self.samples.cpus[cpu.index()], now);
        for (counter, (now, last)) in now.into_iter().zip(last).enumerate().filter(|(_, (now, last))| now > last) {
            let kind = EventKind::Counter { counter: counter as u32, task: TaskId::IDLE, value: now - last };
            self.core.emit_on(cpu, kind);
        }
    }

    /// Puts what a task counted since its last sample into the trace.
    pub(crate) fn sample_task(&mut self, cpu: CpuId, task: TaskId) {
        if !self.core.is_traced() {
            return;
        }
        let Some(counters) = self.memory.task_counters(task) else { return };
        let now = values(&counters, self.memory.frequency_ghz(cpu));
        if self.samples.tasks.len() <= task.index() {
            self.samples.tasks.resize(self.core.tasks.len(), [0; MEMORY_COUNTERS.len()]);
        }
        let last = std::mem::replace(&mut self.samples.tasks[task.index()], now);
        for (counter, (now, last)) in now.into_iter().zip(last).enumerate().filter(|(_, (now, last))| now > last) {
            self.core.emit_on(cpu, EventKind::Counter { counter: counter as u32, task, value: now - last });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_in_the_order_of_their_values() {
        let mut counters = Counters { instructions: 1.0, page_walks: 2.0, page_faults: 3.0, ..Counters::default() };
        for event in MemoryEvent::ALL {
            counters.events[event as usize] = 10.0 + f64::from(event as u8);
        }
        for share in TimeShare::ALL {
            counters.time_ns[share as usize] = 100.0 + f64::from(share as u8);
        }
        let values = values(&counters, 0.0);
        let value = |name: &str| values[MEMORY_COUNTERS.iter().position(|known| *known == name).unwrap()];
        for event in MemoryEvent::ALL {
            if !matches!(
                event,
                MemoryEvent::L3RfoMiss | MemoryEvent::L2Access | MemoryEvent::L3Access | MemoryEvent::L1iMiss
            ) {
                assert_eq!(value(event.name()), 10 + event as u64);
            }
        }
        for share in TimeShare::ALL {
            assert_eq!(value(&format!("{}_ns", share.name())), 100 + share as u64);
        }
        assert_eq!([value("instructions"), value("page_walks"), value("page_faults")], [1, 2, 3]);
    }
}
