//! Measures of a run with modelled memory: events per 1000 instructions and instructions per cycle, over all tasks.
//!
//! The counts are those of the tasks' own instructions; lines of messages and locks, which pass in the kernel without
//! instructions being counted, are time and not events. Absent where the memory is not modelled or nothing ran.

use std::collections::BTreeMap;

use warmcore_statistics::Better;
use warmcore_trace::Outcome;
use warmcore_trace::{MemoryCounters, MemoryEvent};
use warmcore_workload::Workload;

use crate::measures::{Measure, Unit};

/// Name, event, title and definition of each count.
const COUNTS: [(&str, MemoryEvent, &str, &str); 12] = [
    ("l1_mpki", MemoryEvent::L1Miss, "L1 misses", "misses of the L1 data caches"),
    ("l2_mpki", MemoryEvent::L2Miss, "L2 misses", "misses of the L2 (of the L1 where there is no L2)"),
    (
        "l3_mpki",
        MemoryEvent::L3Miss,
        "L3 misses",
        "lines that the LLC did not have: from memory, or for reads from another LLC, which c2c_other_llc_mpki and \
         c2c_other_socket_mpki count too. It may rise while lines of other LLCs become fewer: what stays at home is \
         evicted and fetched from memory again",
    ),
    (
        "l3_rfo_mpki",
        MemoryEvent::L3RfoMiss,
        "L3 RFO misses",
        "writes that the LLC could not serve, as `perf` counts them: lines from memory, and lines or the right to write them from \
         another LLC, which l3_rfo_other_llc_mpki counts alone",
    ),
    (
        "l3_rfo_other_llc_mpki",
        MemoryEvent::L3RfoOtherLlc,
        "L3 RFO misses that other LLCs served",
        "writes that needed a line, or the right to write it, from another LLC",
    ),
    (
        "l2_apki",
        MemoryEvent::L2Access,
        "L2 accesses",
        "requests that L2s got: misses of the L1 caches in front of them",
    ),
    (
        "l3_apki",
        MemoryEvent::L3Access,
        "L3 accesses",
        "requests that LLCs got: misses of the caches in front of them, without lines that are written back",
    ),
    ("dram_local_mpki", MemoryEvent::DramLocal, "local memory reads", "lines from the memory of the CPU's own node"),
    ("dram_remote_mpki", MemoryEvent::DramRemote, "remote memory reads", "lines from the memory of other nodes"),
    (
        "c2c_same_llc_mpki",
        MemoryEvent::C2cSameLlc,
        "lines from cores of the LLC",
        "lines from another core under the same LLC",
    ),
    (
        "c2c_other_llc_mpki",
        MemoryEvent::C2cOtherLlc,
        "lines from other LLCs",
        "lines from another LLC of the same socket",
    ),
    (
        "c2c_other_socket_mpki",
        MemoryEvent::C2cOtherSocket,
        "lines from other sockets",
        "lines from caches of another socket",
    ),
];

/// Name, title and definition of what translating addresses takes, with [`paged`]'s values; left out where no addresses are translated.
const PAGED: [(&str, &str, &str); 2] = [
    ("page_walks_pki", "page walks", "walks through page tables"),
    ("page_faults_pki", "page faults", "walks that found the page, or a table on the way, missing"),
];

const L1I: &str = "l1i_mpki";

/// A value of a run's counters, where it has one.
type CounterRate = fn(&MemoryCounters) -> Option<f64>;

/// Name, value, title and definition of hit rates; left out where nothing was asked for.
const HIT_RATES: [(&str, CounterRate, &str, &str); 2] = [
    (
        "l2_hit_rate",
        MemoryCounters::l2_hit_rate,
        "L2 hit rate",
        "part of the requests to L2s that they served: 1 - l2_mpki / l2_apki",
    ),
    (
        "l3_hit_rate",
        MemoryCounters::l3_hit_rate,
        "L3 hit rate",
        "part of the requests to LLCs that were served under them: without those that went to memory or to other LLCs",
    ),
];

fn paged(counters: &MemoryCounters) -> [f64; 2] {
    [counters.page_walks, counters.page_faults]
}

const IPC: &str = "instructions_per_cycle";

/// The measures of a workload with memory profiles; none for others.
pub(crate) fn of_workload(workload: &Workload) -> Vec<Measure> {
    if !workload.has_profiles() {
        return Vec::new();
    }
    let count = |(name, _, title, definition): (&str, MemoryEvent, &str, &str)| {
        let definition = format!("{definition}; per 1000 instructions of all tasks");
        Measure::of_outcome(name, &format!("{title} per 1000 instructions"), Unit::One, Better::Lower, &definition)
    };
    let definition = "instructions over cycles of the CPUs while they ran the tasks' own programs";
    let ipc = Measure::of_outcome(IPC, "instructions per cycle", Unit::One, Better::Higher, definition);
    let paged = PAGED.map(|(name, title, definition)| {
        let definition = format!("{definition}; per 1000 instructions of all tasks");
        let title = format!("{title} per 1000 instructions");
        let measure = Measure::of_outcome(name, &title, Unit::One, Better::Lower, &definition);
        Measure { optional: true, least: f64::MIN_POSITIVE, ..measure }
    });
    let rates = HIT_RATES.map(|(name, _, title, definition)| {
        let definition = format!("{definition}; of all tasks");
        let measure = Measure::of_outcome(name, title, Unit::One, Better::Higher, &definition);
        Measure { optional: true, ..measure }
    });
    let definition = "lines of instructions that the L1 caches for instructions did not have; per 1000 instructions of all tasks. \
                      Absent where profiles have no code, or cores no such cache";
    let l1i = Measure::of_outcome(L1I, "L1I misses per 1000 instructions", Unit::One, Better::Lower, definition);
    let l1i = Measure { optional: true, least: f64::MIN_POSITIVE, ..l1i };
    COUNTS.into_iter().map(count).chain([ipc]).chain(rates).chain(paged).chain([l1i]).collect()
}

/// Their values.
pub(crate) fn of_run(outcome: &Outcome) -> BTreeMap<String, Option<f64>> {
    let mut sum = MemoryCounters::default();
    let mut cycles = 0.0;
    for cpu in &outcome.cpus {
        let Some(memory) = &cpu.memory else { return BTreeMap::new() };
        sum += memory;
        cycles += (memory.total_ns() - memory.transfer_ns) * cpu.frequency_ghz;
    }
    if outcome.cpus.is_empty() {
        return BTreeMap::new();
    }
    let ran = sum.instructions > 0.0;
    let counts = COUNTS.map(|(name, event, ..)| (name.to_owned(), ran.then(|| sum.per_kilo_instruction(event))));
    let ipc = (cycles > 0.0).then(|| sum.instructions / cycles);
    let mut values: BTreeMap<String, Option<f64>> = counts.into_iter().chain([(IPC.to_owned(), ipc)]).collect();
    values.extend(HIT_RATES.iter().filter_map(|(name, rate, ..)| Some(((*name).to_owned(), Some(rate(&sum)?)))));
    if ran && sum.events[MemoryEvent::L1iMiss as usize] > 0.0 {
        values.insert(L1I.to_owned(), Some(sum.per_kilo_instruction(MemoryEvent::L1iMiss)));
    }
    if ran && sum.page_walks > 0.0 {
        let paged = PAGED.iter().zip(paged(&sum));
        values.extend(paged.map(|((name, ..), count)| ((*name).to_owned(), Some(count * 1e3 / sum.instructions))));
    }
    values
}
