//! The order of records that different CPUs made at one instant.
//!
//! Simulated CPUs act at one nanosecond, and recorders of text keep microseconds: the record of what made another one possible, of another CPU,
//! may have the same time. A thread leaves a CPU, and is created or woken, before it comes onto
//! another one; all else stays in order of CPUs. Records of one
//! CPU keep their order.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::mem::take;

use crate::record::{Record, What};

/// So many records of one instant are put in order together. More have one time only in a file that means harm.
const MOST_TOGETHER: usize = 1 << 16;

/// Puts records in order of time; those of each CPU must be in order.
pub(crate) fn put_in_order(records: &mut [Record]) {
    records.sort_by_key(|record| (record.time_ns, record.cpu));
    let mut rest = records;
    while let Some(first) = rest.first() {
        let time_ns = first.time_ns;
        let length = rest.iter().take(MOST_TOGETHER).take_while(|record| record.time_ns == time_ns).count();
        let (together, behind) = take(&mut rest).split_at_mut(length);
        put_causes_first(together);
        rest = behind;
    }
}

/// The same for an iterator of records in order of time, and of one instant in order of CPUs.
#[derive(Debug)]
pub(crate) struct CausesFirst<I: Iterator<Item = Record>> {
    records: Peekable<I>,
    /// Those of one instant, and how many of them were given.
    together: Vec<Record>,
    given: usize,
}

impl<I: Iterator<Item = Record>> CausesFirst<I> {
    pub(crate) fn new(records: I) -> Self {
        Self { records: records.peekable(), together: Vec::new(), given: 0 }
    }
}

impl<I: Iterator<Item = Record>> Iterator for CausesFirst<I> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.given == self.together.len() {
            let first = self.records.next()?;
            self.given = 0;
            self.together.clear();
            self.together.push(first);
            while self.together.len() < MOST_TOGETHER
                && let Some(record) = self.records.next_if(|record| record.time_ns == first.time_ns)
            {
                self.together.push(record);
            }
            put_causes_first(&mut self.together);
        }
        self.given += 1;
        self.together.get(self.given - 1).copied()
    }
}

/// Of one instant.
fn put_causes_first(records: &mut [Record]) {
    if !records.windows(2).any(|pair| pair[0].cpu != pair[1].cpu) {
        return;
    }
    records.sort_by_key(|record| record.cpu);
    let causes = Causes::of(records);
    if causes.0.is_empty() {
        return;
    }
    let mut order = Order::of(records);
    for cpu in 0..order.queues.len() {
        order.give(cpu, records, &causes);
    }
    let ordered: Vec<Record> = order.given.iter().map(|index| records[*index]).collect();
    records.copy_from_slice(&ordered);
}

/// By thread: where among the records of an instant it leaves a CPU, and where it is created or woken.
struct Causes(BTreeMap<i32, [Option<usize>; 2]>);

impl Causes {
    fn of(records: &[Record]) -> Self {
        let mut causes: BTreeMap<i32, [Option<usize>; 2]> = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            let (thread, what) = match record.what {
                What::Switch { prev, .. } if prev > 0 => (prev, 0),
                What::Waking { thread, .. } | What::Fork { child: thread, .. } => (thread, 1),
                _ => continue,
            };
            causes.entry(thread).or_default()[what].get_or_insert(index);
        }
        Self(causes)
    }

    /// The records of other CPUs that come before this one.
    fn before(&self, record: &Record, records: &[Record]) -> [Option<usize>; 2] {
        let (thread, comes) = match record.what {
            What::Wakeup { thread, .. } => (thread, false),
            What::Switch { next, .. } => (next, true),
            _ => return [None; 2],
        };
        let [left, woken] = self.0.get(&thread).copied().unwrap_or_default();
        // A thread that leaves the CPU of this record at this instant is woken after that, or was before: nothing says which.
        match left {
            Some(left) if records[left].cpu == record.cpu => [None; 2],
            _ => [left.filter(|_| comes), woken],
        }
    }
}

/// Records of an instant as they are given.
struct Order {
    /// By CPU that has records: the next one, and the one behind the last.
    queues: Vec<(usize, usize)>,
    /// The queue of each record.
    queue_of: Vec<usize>,
    given: Vec<usize>,
}

impl Order {
    /// None is given yet. Records must be in order of CPUs.
    fn of(records: &[Record]) -> Self {
        let (mut queues, mut queue_of): (Vec<(usize, usize)>, Vec<usize>) = (Vec::new(), Vec::new());
        for of_cpu in records.chunk_by(|one, other| one.cpu == other.cpu) {
            let first = queue_of.len();
            queue_of.resize(first + of_cpu.len(), queues.len());
            queues.push((first, first + of_cpu.len()));
        }
        Self { queues, queue_of, given: Vec::with_capacity(records.len()) }
    }

    /// Gives all records of a queue, and before each of them those of other queues up to its cause.
    fn give(&mut self, queue: usize, records: &[Record], causes: &Causes) {
        let mut waits = vec![false; self.queues.len()];
        // Queues, and where to stop in each.
        let mut begun = vec![(queue, self.queues[queue].1)];
        waits[queue] = true;
        while let Some((queue, end)) = begun.last().copied() {
            let next = self.queues[queue].0;
            if next >= end {
                begun.pop();
                waits[queue] = false;
                continue;
            }
            let is_first = |cause: &usize| {
                let other = self.queue_of[*cause];
                // Two that wait for each other stay as they are.
                *cause >= self.queues[other].0 && !waits[other]
            };
            match causes.before(&records[next], records).into_iter().flatten().find(is_first) {
                Some(cause) => {
                    begun.push((self.queue_of[cause], cause + 1));
                    waits[self.queue_of[cause]] = true;
                }
                None => {
                    self.given.push(next);
                    self.queues[queue].0 += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Context;
    use warmcore_trace::PrevState;

    fn record(cpu: u32, what: What) -> Record {
        Record { time_ns: 5, cpu, by: 0, context: Context::Thread, what }
    }

    fn switch(cpu: u32, prev: i32, next: i32) -> Record {
        record(cpu, What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false })
    }

    fn waking(cpu: u32, thread: i32) -> Record {
        record(cpu, What::Waking { thread, target_cpu: 0 })
    }

    fn wakeup(cpu: u32, thread: i32) -> Record {
        record(cpu, What::Wakeup { thread, target_cpu: cpu })
    }

    fn ordered(mut records: Vec<Record>) -> Vec<Record> {
        let as_read: Vec<Record> = CausesFirst::new(records.clone().into_iter()).collect();
        put_in_order(&mut records);
        assert_eq!(as_read, records);
        records
    }

    #[test]
    fn a_thread_is_woken_before_it_is_queued_and_runs_whatever_the_numbers_of_the_cpus_are() {
        // Thread 8 on CPU 1 wakes 9 on CPU 2, whose waking of 7 has to come before 7 runs on CPU 0.
        let records = vec![
            wakeup(0, 7),
            switch(0, 0, 7),
            waking(1, 9),
            switch(1, 8, 0),
            wakeup(2, 9),
            waking(2, 7),
            switch(2, 4, 9),
        ];
        let order = [2, 4, 5, 0, 1, 3, 6];
        assert_eq!(ordered(records.clone()), order.map(|index: usize| records[index]));
        let fork = record(3, What::Fork { parent: 4, child: 6 });
        assert_eq!(ordered(vec![switch(0, 0, 6), fork]), [fork, switch(0, 0, 6)]);
    }

    #[test]
    fn what_does_not_follow_stays_in_order_of_cpus() {
        let moved = vec![switch(0, 0, 7), waking(1, 7), switch(2, 7, 0)];
        assert_eq!(ordered(moved.clone()), [moved[2], moved[1], moved[0]], "it left, was woken and came");
        let came_and_left = vec![switch(0, 0, 7), switch(0, 7, 0), waking(1, 7)];
        assert_eq!(ordered(came_and_left.clone()), came_and_left, "it slept before it was woken");
        let circle = vec![wakeup(0, 7), waking(0, 9), wakeup(1, 9), waking(1, 7)];
        assert_eq!(ordered(circle.clone()).len(), 4);
        let own = vec![wakeup(0, 7), waking(0, 7), waking(1, 9)];
        assert_eq!(ordered(own.clone()), own, "those of one CPU keep their order");
    }
}
