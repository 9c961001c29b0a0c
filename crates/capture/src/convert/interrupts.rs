//! How long interrupts and softirqs took, whoever they interrupted.

use std::collections::BTreeMap;

use warmcore_topology::CpuId;

/// Since when a hard interrupt and a softirq are on each CPU, if one is.
#[derive(Default)]
pub(super) struct Interrupts(BTreeMap<CpuId, [Option<u64>; 2]>);

impl Interrupts {
    /// An interrupt begins, or one ends: how long that took, ns, if its beginning was recorded. A hard one within a softirq is part of it.
    pub fn take(&mut self, now: u64, cpu: CpuId, soft: bool, begins: bool) -> Option<u64> {
        let of_cpu = self.0.entry(cpu).or_default();
        let began = std::mem::replace(&mut of_cpu[usize::from(soft)], begins.then_some(now));
        let is_part = !soft && of_cpu[1].is_some();
        began.filter(|_| !begins && !is_part).map(|began| now - began)
    }

    /// What is on the CPU is not known any more.
    pub fn forget(&mut self, cpu: CpuId) {
        self.0.remove(&cpu);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use warmcore_trace::{Event, EventKind, TaskId};

    use super::*;
    use crate::convert::{Cast, events};
    use crate::record::{Context, Record, What};
    use crate::recording::{Loss, Recording};

    #[test]
    fn a_hard_interrupt_within_a_softirq_is_part_of_it() {
        let (mut interrupts, cpu) = (Interrupts::default(), CpuId(1));
        let mut take = |now, soft, begins| interrupts.take(now, cpu, soft, begins);
        let within = [take(10, true, true), take(12, false, true), take(15, false, false), take(20, true, false)];
        assert_eq!(within, [None, None, None, Some(10)]);
        assert_eq!([take(30, false, true), take(34, false, false), take(40, false, false)], [None, Some(4), None]);
    }

    /// An interrupt begins on CPU 0 before the gap, and another ends behind it.
    #[test]
    fn an_interrupt_does_not_last_through_a_gap() {
        let interrupt = |time_ns, begins| {
            let what = What::Interrupt { soft: false, begins };
            Record { time_ns, cpu: 0, by: 10, context: Context::HardInterrupt, what }
        };
        let records = [interrupt(100, true), interrupt(900, false), interrupt(950, true), interrupt(957, false)];
        let lost = vec![Loss { cpu: Some(0), before_ns: Some(900), events: None }];
        let recording = Recording { records: records.to_vec(), lost, ..Recording::default() }.finished();
        let tasks = BTreeMap::from([(10, TaskId(0))]);
        let cast = Cast {
            tasks: &tasks,
            launchers: &BTreeSet::new(),
            stoppers: &[],
            restrictions: &[0],
            allowed: &|_, _| true,
            bindings: &[],
            start_ns: 0,
            elapsed_ns: 10_000,
            cpu: &|cpu| Some(CpuId(cpu)),
        };
        let of = |event: &Event| match event.kind {
            EventKind::Overhead { duration_ns, .. } => Some(duration_ns),
            _ => None,
        };
        assert_eq!(events(&recording, &cast).unwrap().events.iter().filter_map(of).collect::<Vec<_>>(), [7]);
    }
}
