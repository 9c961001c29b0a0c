//! Threads beside a run's tasks: which of them a CPU runs while it runs none of the run's.

use std::collections::BTreeMap;

use warmcore_topology::CpuId;

use crate::record::{Record, What};

/// A thread that is no task of the run, and what it ran.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Foreign {
    /// Its thread id.
    pub thread: i32,
    /// How often it came onto a CPU.
    pub stays: u64,
    /// Time on each CPU, ns.
    pub cpu_ns: BTreeMap<CpuId, u64>,
}

impl Foreign {
    /// Time on all CPUs, ns.
    pub fn run_ns(&self) -> u64 {
        self.cpu_ns.values().sum()
    }
}

/// Follows what CPUs run beside the run's tasks.
#[derive(Default)]
pub(super) struct Beside {
    pub threads: Vec<Foreign>,
    numbers: BTreeMap<i32, u32>,
    /// By CPU: number of the thread that runs there, and since when.
    running: BTreeMap<CpuId, (u32, u64)>,
}

impl Beside {
    /// From now on the CPU runs this thread, or none of these. Returns the thread's number.
    pub fn comes(&mut self, now: u64, cpu: CpuId, thread: Option<i32>) -> Option<u32> {
        if let Some((number, since)) = self.running.remove(&cpu) {
            *self.threads[number as usize].cpu_ns.entry(cpu).or_default() += now - since;
        }
        let thread = thread?;
        let number = *self.numbers.entry(thread).or_insert_with(|| {
            self.threads.push(Foreign { thread, ..Foreign::default() });
            (self.threads.len() - 1) as u32
        });
        self.threads[number as usize].stays += 1;
        self.running.insert(cpu, (number, now));
        Some(number)
    }

    /// Whether a CPU runs one of these threads.
    pub fn runs(&self, cpu: CpuId) -> bool {
        self.running.contains_key(&cpu)
    }

    /// The window closes.
    pub fn finish(mut self, now: u64) -> Vec<Foreign> {
        for cpu in self.running.keys().copied().collect::<Vec<_>>() {
            self.comes(now, cpu, None);
        }
        self.threads
    }
}

/// Which thread each CPU ran at a time, as far as records tell: who came last before it, or else who leaves first after it, or else who ran
/// whenever anything was recorded there. `cpus`: how many there are, if that is known; then no more is read than tells of all.
pub(super) fn running_at(records: impl Iterator<Item = Record>, cpus: u32, time_ns: u64) -> BTreeMap<u32, i32> {
    let mut known: BTreeMap<u32, i32> = BTreeMap::new();
    let mut left_first: BTreeMap<u32, i32> = BTreeMap::new();
    let mut seen: BTreeMap<u32, i32> = BTreeMap::new();
    for record in records {
        match record.what {
            What::Switch { next, .. } if record.time_ns < time_ns => {
                known.insert(record.cpu, next);
            }
            What::Switch { prev, .. } => {
                left_first.entry(record.cpu).or_insert(prev);
                // Any later record says less of its CPU.
                if left_first.len() == cpus as usize {
                    break;
                }
            }
            _ => {
                seen.entry(record.cpu).or_insert(record.by);
            }
        }
    }
    for (cpu, thread) in left_first.into_iter().chain(seen) {
        known.entry(cpu).or_insert(thread);
    }
    known
}
