//! Records in which a CPU has one thread at a time, and a thread one CPU.
//!
//! Where a switch is missing, because it was lost or the kernel did not record it, another thread leaves a CPU than came there last, or a
//! thread comes onto a CPU while it is on another one. In a gap of a CPU's records nobody has it: the thread that came last sleeps from the
//! record before on for whatever it is woken by, and who has it at the record behind came then. One that came onto another CPU was moved there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use warmcore_trace::PrevState;

use crate::record::{Context, NOT_RECORDED, Record, What};

/// The idle thread of every CPU.
const IDLE: i32 = 0;

/// Records, which must be in order, with the switches that are missing.
#[derive(Debug)]
pub(crate) struct OneAtATime<I> {
    records: I,
    /// The thread on each CPU.
    running: BTreeMap<u32, i32>,
    /// The thread that a CPU of which no switch was read yet had at its last record.
    first: BTreeMap<u32, i32>,
    /// The CPU of each thread that is on one.
    on: BTreeMap<i32, u32>,
    /// Gaps that are not reached yet ([`Recording::gaps`](crate::Recording::gaps)).
    gaps: BTreeSet<(u64, u32)>,
    /// CPUs that nobody knows who has, until their next record.
    unknown: BTreeSet<u32>,
    /// Those that are next: switches that were put in, and the record that showed that they are missing.
    next: VecDeque<Record>,
}

impl<I: Iterator<Item = Record>> OneAtATime<I> {
    /// `late`: CPUs whose first records are missing.
    pub(crate) fn new(records: I, late: BTreeSet<u32>, gaps: BTreeSet<(u64, u32)>) -> Self {
        let (running, first, on) = Default::default();
        Self { records, running, first, on, gaps, unknown: late, next: VecDeque::new() }
    }

    fn take(&mut self, record: Record) {
        let cpu = record.cpu;
        self.reach(record.time_ns);
        if self.unknown.remove(&cpu) {
            self.begins(record);
        }
        match record.what {
            What::Switch { prev, next, .. } => {
                self.leaves_others(prev, record);
                match self.running.get(&cpu) {
                    Some(was) if *was != prev => self.put_in(record.time_ns, cpu, PrevState::Sleeping, prev),
                    _ => {}
                }
                self.leaves_others(next, record);
                self.comes(cpu, next);
            }
            // A thread that starts a program takes the number of its process.
            What::Exec { thread } if self.running.contains_key(&cpu) => {
                self.leaves_others(thread, record);
                self.comes(cpu, thread);
            }
            _ if self.gaps.is_empty() || record.by < IDLE || self.running.contains_key(&cpu) => {}
            _ => _ = self.first.insert(cpu, record.by),
        }
        self.next.push_back(record);
    }

    /// Gaps that begin before this time begin.
    fn reach(&mut self, time_ns: u64) {
        while let Some(&(from_ns, cpu)) = self.gaps.first().filter(|(from_ns, _)| *from_ns < time_ns) {
            self.gaps.pop_first();
            self.put_in(from_ns, cpu, PrevState::Sleeping, NOT_RECORDED);
            self.unknown.insert(cpu);
        }
    }

    /// The first record behind a gap, or of a CPU that begins late: who has it now was not there for all the time before.
    fn begins(&mut self, record: Record) {
        let thread = if let What::Switch { prev, .. } = record.what { prev } else { record.by };
        if thread == NOT_RECORDED {
            // perf has no number of a thread that exits.
            self.unknown.insert(record.cpu);
            return;
        }
        self.leaves_others(thread, record);
        self.comes(record.cpu, NOT_RECORDED);
        self.put_in(record.time_ns, record.cpu, PrevState::Sleeping, thread);
    }

    /// The thread is on the CPU of this record: it is on no other one.
    fn leaves_others(&mut self, thread: i32, record: Record) {
        if let Some(cpu) = self.on.get(&thread).copied().filter(|cpu| *cpu != record.cpu) {
            self.put_in(record.time_ns, cpu, PrevState::Runnable, IDLE);
        }
    }

    /// A switch from the thread that came last.
    fn put_in(&mut self, time_ns: u64, cpu: u32, state: PrevState, next: i32) {
        let prev = self.running.get(&cpu).or_else(|| self.first.get(&cpu)).copied().unwrap_or(IDLE);
        let state = if prev == IDLE { PrevState::Idle } else { state };
        let what = What::Switch { prev, state, next, uninterruptible: false };
        self.next.push_back(Record { time_ns, cpu, by: prev, context: Context::Thread, what });
        self.comes(cpu, next);
    }

    fn comes(&mut self, cpu: u32, thread: i32) {
        if let Some(before) = self.running.insert(cpu, thread) {
            self.on.remove(&before);
        }
        if thread > IDLE {
            self.on.insert(thread, cpu);
        }
    }
}

impl<I: Iterator<Item = Record>> Iterator for OneAtATime<I> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.next.is_empty() {
            match self.records.next() {
                Some(record) => self.take(record),
                None => self.reach(u64::MAX),
            }
        }
        self.next.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;
    use proptest::prelude::*;

    fn switch(time_ns: u64, cpu: u32, prev: i32, next: i32) -> Record {
        put_in(time_ns, cpu, prev, PrevState::Sleeping, next)
    }

    fn put_in(time_ns: u64, cpu: u32, prev: i32, state: PrevState, next: i32) -> Record {
        let what = What::Switch { prev, state, next, uninterruptible: false };
        Record { time_ns, cpu, by: prev, context: Context::Thread, what }
    }

    fn whole(records: Vec<Record>) -> Vec<Record> {
        OneAtATime::new(records.into_iter(), BTreeSet::new(), BTreeSet::new()).collect()
    }

    #[test]
    fn a_thread_has_its_cpu_until_another_one_leaves_it_and_no_longer() {
        let (came, left, idle) = (switch(10, 0, 0, 7), switch(40, 0, 8, 9), switch(70, 0, 0, 7));
        let found = whole(vec![came, left, idle]);
        let missing = [put_in(40, 0, 7, PrevState::Sleeping, 8), put_in(70, 0, 9, PrevState::Sleeping, 0)];
        assert_eq!(found, [came, missing[0], left, missing[1], idle]);
    }

    #[test]
    fn a_thread_that_comes_onto_another_cpu_left_the_one_before() {
        let (came, moved, left) = (switch(10, 0, 0, 7), switch(40, 1, 0, 7), switch(70, 0, 8, 0));
        let missing = [put_in(40, 0, 7, PrevState::Runnable, 0), put_in(70, 0, 0, PrevState::Idle, 8)];
        assert_eq!(whole(vec![came, moved, left]), [came, missing[0], moved, missing[1], left]);
        let seen_leaving = switch(40, 1, 7, 0);
        assert_eq!(whole(vec![came, seen_leaving]), [came, missing[0], seen_leaving]);
    }

    /// Switches of three CPUs among five threads: at each step a CPU takes a thread that is on none, or goes idle.
    fn scheduled(steps: &[(u32, i32)]) -> Vec<Record> {
        let mut running = [0; 3];
        let mut records = Vec::new();
        for (time_ns, &(cpu, thread)) in (0..).zip(steps) {
            let next = if running.contains(&thread) { 0 } else { thread };
            let prev = std::mem::replace(&mut running[cpu as usize], next);
            if prev != next {
                records.push(switch(time_ns / 2, cpu, prev, next));
            }
        }
        records
    }

    proptest! {
        #[test]
        fn a_cpu_has_one_thread_at_a_time_and_a_thread_one_cpu_whatever_is_lost(
            steps in prop::collection::vec((0..3_u32, 0..6_i32, any::<bool>()), 0..100),
        ) {
            let all = scheduled(&steps.iter().map(|(cpu, thread, _)| (*cpu, *thread)).collect::<Vec<_>>());
            let finished = |records| Recording { records, ..Recording::default() }.finished();
            prop_assert_eq!(finished(all.clone()).in_order().count(), all.len(), "nothing is missing");
            let kept = all.iter().zip(&steps).filter_map(|(record, (.., kept))| kept.then_some(*record)).collect();
            let (mut running, mut on) = (BTreeMap::new(), BTreeMap::new());
            for record in finished(kept).in_order() {
                let What::Switch { prev, next, .. } = record.what else { unreachable!("only switches") };
                prop_assert!(running.insert(record.cpu, next).is_none_or(|was| was == prev));
                if prev != IDLE {
                    prop_assert!(on.remove(&prev).is_none_or(|cpu| cpu == record.cpu));
                }
                if next > IDLE {
                    prop_assert_eq!(on.insert(next, record.cpu), None);
                }
            }
        }
    }

    #[test]
    fn nothing_is_put_in_where_all_is_recorded() {
        let exec = Record { what: What::Exec { thread: 12 }, ..switch(30, 0, 0, 0) };
        let records = vec![switch(10, 0, 5, 13), switch(20, 1, 6, 0), exec, switch(40, 0, 12, 5), switch(40, 1, 0, 12)];
        assert_eq!(whole(records.clone()), records);
    }

    /// Thread 7 leaves CPU 1 at 4 ms; before that nothing is known of it, and CPU 0 has had records since 1 ms.
    #[test]
    fn who_had_a_cpu_before_the_first_of_its_records_is_not_the_thread_that_leaves_it_first() {
        let ms = |ms: u64| ms * 1_000_000;
        let records = vec![switch(ms(1), 0, 5, 6), switch(ms(4), 1, 7, 8), switch(ms(6), 1, 8, 7)];
        let loss = |at| crate::Loss { cpu: Some(1), before_ns: Some(ms(at)), events: None };
        let of = |lost| Recording { records: records.clone(), lost, ..Recording::default() }.finished();
        let late = of(vec![loss(3)]);
        let begins = put_in(ms(4), 1, NOT_RECORDED, PrevState::Sleeping, 7);
        assert_eq!(late.in_order().collect::<Vec<_>>(), [records[0], begins, records[1], records[2]]);
        assert!(late.notes[0].contains("records of CPU 1 are missing, up to 0.003 s"), "{:?}", late.notes);
        let within = of(vec![loss(5)]);
        let comes = put_in(ms(6), 1, NOT_RECORDED, PrevState::Sleeping, 8);
        let gap = [put_in(ms(4), 1, 8, PrevState::Sleeping, NOT_RECORDED), comes];
        assert_eq!(within.in_order().collect::<Vec<_>>(), [records[0], records[1], gap[0], gap[1], records[2]]);
        assert!(within.notes[0].starts_with("records are missing. For 0.002 s"), "{:?}", within.notes);
    }

    /// Thread 7 has CPU 0 at 10 ms, when it wakes another: until then nothing else was there, and from then on nobody knows.
    #[test]
    fn who_had_a_cpu_at_the_record_before_a_gap_had_it_until_then_though_no_switch_says_so() {
        let waking = Record { what: What::Waking { thread: 8, target_cpu: 1 }, ..switch(10, 0, 7, 0) };
        let records = vec![waking, switch(40, 0, 9, 0)];
        let lost = vec![crate::Loss { cpu: Some(0), before_ns: Some(40), events: None }];
        let recording = Recording { records: records.clone(), lost, ..Recording::default() }.finished();
        let [leaves, comes] = [(10, 7, NOT_RECORDED), (40, NOT_RECORDED, 9)]
            .map(|(time_ns, prev, next)| put_in(time_ns, 0, prev, PrevState::Sleeping, next));
        assert_eq!(recording.in_order().collect::<Vec<_>>(), [records[0], leaves, comes, records[1]]);
    }

    /// CPU 0's last record is at 10 ms, when thread 7 comes; CPU 2 has none at all.
    #[test]
    fn behind_its_last_record_nobody_has_a_cpu_whose_records_end_early() {
        let ms = |ms: u64| ms * 1_000_000;
        let records = vec![switch(ms(5), 1, 0, 6), switch(ms(10), 0, 0, 7), switch(ms(40), 1, 6, 0)];
        let of = |ends_early: &[u32]| {
            let ends_early = ends_early.iter().copied().collect();
            Recording { records: records.clone(), ends_early, ..Recording::default() }.finished()
        };
        let (none, both) = (of(&[]), of(&[0, 2]));
        assert_eq!((none.in_order().count(), none.notes.len()), (3, 0));
        let gap = |ms_: u64, cpu, prev, state| put_in(ms(ms_), cpu, prev, state, NOT_RECORDED);
        let (of_2, of_0) = (gap(5, 2, 0, PrevState::Idle), gap(10, 0, 7, PrevState::Sleeping));
        assert_eq!(both.in_order().collect::<Vec<_>>(), [records[0], of_2, records[1], of_0, records[2]]);
        assert!(both.notes[0].starts_with("records are missing. For 0.065 s"), "{:?}", both.notes);
        let last = of(&[1]);
        assert_eq!((last.in_order().count(), last.gaps.len()), (3, 0), "the recording ends there");
    }

    /// Thread 7 comes onto CPU 0 at 10 ms, thread 9 leaves it at 40; a record of CPU 1 at 20 ms has nothing to do with that.
    #[test]
    fn from_its_last_record_until_another_thread_leaves_it_nobody_has_a_cpu() {
        let ms = |ms: u64| ms * 1_000_000;
        let records = vec![switch(ms(10), 0, 0, 7), switch(ms(20), 1, 0, 8), switch(ms(40), 0, 9, 0)];
        let recording = Recording { records: records.clone(), ..Recording::default() }.finished();
        let comes = put_in(ms(40), 0, NOT_RECORDED, PrevState::Sleeping, 9);
        let gap = [put_in(ms(10), 0, 7, PrevState::Sleeping, NOT_RECORDED), comes];
        assert_eq!(recording.in_order().collect::<Vec<_>>(), [records[0], gap[0], records[1], gap[1], records[2]]);
        assert!(recording.notes[0].contains("For 0.030 s"), "{:?}", recording.notes);
    }
}
