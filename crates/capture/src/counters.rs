//! Counters of threads, read whenever a thread left a CPU, and what becomes of them when several took turns on the processor.
//!
//! A sample says what a CPU counted while one thread was on it. Counters of one group were read together. A group that had to leave the
//! processor to others meanwhile says nothing about that stay, and its sample is not taken ([`GroupReading::stay`]); what a thread counted
//! in the stays that were measured then stands for all its stays ([`CounterLog::estimated`]).
//!
//! Source: `perf_event_open(2)`, `PERF_FORMAT_TOTAL_TIME_ENABLED` and `PERF_FORMAT_TOTAL_TIME_RUNNING`.

use std::collections::BTreeMap;

use crate::record::{Record, What};

/// The counter that is the length of the stay itself, ns.
pub const TASK_CLOCK: &str = "task_clock_ns";

/// What was counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CounterLog {
    /// How it was counted, one sentence.
    pub origin: String,
    /// Names of the counters of each group. The first group is never multiplexed, and its first counter is [`TASK_CLOCK`].
    pub groups: Vec<Vec<String>>,
    /// In order of time on each CPU.
    pub samples: Vec<CounterSample>,
    /// Samples that the kernel had no room for. What they would have said is nobody's.
    pub lost: u64,
    /// What could not be had, and why, one sentence each.
    pub notes: Vec<String>,
}

/// What a CPU counted while one thread was on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterSample {
    /// When the thread left, on the recording's clock.
    pub time_ns: u64,
    /// The operating system's number of the CPU.
    pub cpu: u32,
    /// Which thread.
    pub thread: Counted,
    /// Number of the group.
    pub group: u32,
    /// How long the group counted for this sample, ns.
    pub span_ns: u64,
    /// By counter of the group.
    pub values: Vec<u64>,
}

/// Whose a sample is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// This thread's; 0 is idle.
    Thread(i32),
    /// A thread's that had no number any more when it left for the last time: the recorded switch names it.
    Dead,
    /// Whoever's was on the CPU at the end: the last recorded switch names it.
    Rest,
}

impl Counted {
    const DEAD: i32 = -1;
    const REST: i32 = -2;

    /// As a number in a file.
    pub fn number(self) -> i32 {
        match self {
            Self::Thread(thread) => thread,
            Self::Dead => Self::DEAD,
            Self::Rest => Self::REST,
        }
    }

    /// Of a number in a file, or of the kernel's own.
    pub fn of(number: i32) -> Self {
        match number {
            Self::REST => Self::Rest,
            thread if thread < 0 => Self::Dead,
            thread => Self::Thread(thread),
        }
    }
}

/// A group's counts and times as the kernel gives them, since the beginning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupReading {
    /// How long it was wanted, ns.
    pub enabled_ns: u64,
    /// How long of that it was on the processor, ns.
    pub running_ns: u64,
    /// By counter.
    pub values: Vec<u64>,
}

impl GroupReading {
    /// What was counted since an earlier reading, and for how long: nothing unless the group was on the processor all the while. While it
    /// is not it is not read either, so that such a stretch may hold stays of several threads.
    pub fn stay(&self, before: &Self) -> Option<(u64, Vec<u64>)> {
        let enabled = self.enabled_ns.checked_sub(before.enabled_ns)?;
        let running = self.running_ns.checked_sub(before.running_ns)?;
        if enabled != running || self.values.len() != before.values.len() {
            return None;
        }
        let values = self.values.iter().zip(&before.values).map(|(now, before)| now.saturating_sub(*before));
        Some((enabled, values.collect()))
    }
}

/// A thread's count: what was counted, or what that stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterValue {
    /// When the thread left the CPU.
    pub time_ns: u64,
    /// The operating system's number of the CPU.
    pub cpu: u32,
    /// The thread.
    pub thread: i32,
    /// Position of the counter in [`CounterLog::names`].
    pub counter: u32,
    /// Count.
    pub value: u64,
}

impl CounterLog {
    /// Names of all counters, group by group.
    pub fn names(&self) -> Vec<String> {
        self.groups.iter().flatten().cloned().collect()
    }

    /// Gives samples that do not name their thread to the one that the recorded switches name, and cuts the stays of threads that came out of
    /// idle, where a CPU records no switch for that, to where they began.
    pub(crate) fn attribute(&mut self, records: impl IntoIterator<Item = Record>) {
        let mut switches: BTreeMap<u32, Vec<(u64, i32, i32)>> = BTreeMap::new();
        for record in records {
            if let What::Switch { prev, next, .. } = record.what {
                switches.entry(record.cpu).or_default().push((record.time_ns, prev, next));
            }
        }
        for sample in &mut self.samples {
            let Some(of_cpu) = switches.get(&sample.cpu) else { continue };
            let behind = of_cpu.partition_point(|(time, ..)| *time <= sample.time_ns);
            let Some(&(last_ns, prev, next)) = behind.checked_sub(1).and_then(|last| of_cpu.get(last)) else {
                continue;
            };
            let (thread, since_ns) = match sample.thread {
                // The sample is taken right after the switch out is recorded.
                Counted::Dead => (prev, behind.checked_sub(2).map(|at| of_cpu[at].0)),
                Counted::Rest => (next, Some(last_ns)),
                Counted::Thread(thread) if thread == prev => (thread, behind.checked_sub(2).map(|at| of_cpu[at].0)),
                Counted::Thread(_) => continue,
            };
            sample.thread = Counted::Thread(thread);
            if let (0, Some(since_ns)) = (sample.group, since_ns) {
                sample.span_ns = sample.span_ns.min(sample.time_ns - since_ns);
                if let Some(clock) = sample.values.first_mut() {
                    *clock = sample.span_ns;
                }
            }
        }
    }

    /// Counts of threads, in order of time: of groups that took turns what a thread counted in its measured stays, times its time on CPUs
    /// over that of those stays. A thread that was never measured by a group has no counts of it.
    pub fn estimated(&self) -> Vec<CounterValue> {
        let spans = self.spans();
        let mut first = Vec::new();
        let mut before = 0;
        for group in &self.groups {
            first.push(before);
            before += group.len() as u32;
        }
        let mut found = Vec::new();
        for sample in &self.samples {
            let Counted::Thread(thread) = sample.thread else { continue };
            let Some(first) = first.get(sample.group as usize).filter(|_| thread > 0) else { continue };
            let whole = spans.get(&(thread, 0)).copied().unwrap_or(0);
            let measured = spans.get(&(thread, sample.group)).copied().unwrap_or(0);
            for (position, value) in (0..).zip(&sample.values).filter(|(_, value)| **value > 0) {
                let value = if sample.group == 0 { *value } else { scaled(*value, whole, measured) };
                let (time_ns, cpu, counter) = (sample.time_ns, sample.cpu, first + position);
                found.push(CounterValue { time_ns, cpu, thread, counter, value });
            }
        }
        found.sort_by_key(|value| (value.time_ns, value.cpu));
        found
    }

    /// Which part of threads' time on CPUs each group was on the processor and read, by group, 0 to 1; `None` where nothing ran.
    pub fn measured_shares(&self) -> Vec<Option<f64>> {
        let mut sums = vec![0_u64; self.groups.len()];
        for ((_, group), span) in self.spans() {
            if let Some(sum) = sums.get_mut(group as usize) {
                *sum += span;
            }
        }
        let whole = sums.first().copied().unwrap_or(0);
        sums.iter().map(|sum| (whole > 0).then(|| (*sum as f64 / whole as f64).min(1.0))).collect()
    }

    /// What a reader of the counters must know: how they were had, what is missing, what is an estimate.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = vec![format!("counters: {}", self.origin)];
        for (names, share) in self.groups.iter().zip(self.measured_shares()).skip(1) {
            let share = share.unwrap_or(0.0);
            if share < 0.995 {
                let names = names.join(", ");
                said.push(format!("counters {names} were on the processor {:.0} % of the time (multiplexed): their values are scaled up from that", 100.0 * share));
            }
        }
        if self.lost > 0 {
            said.push(format!(
                "{} samples of counters were lost: the counts around them belong to no thread",
                self.lost
            ));
        }
        said.extend(self.notes.iter().cloned());
        said
    }

    /// Time that was measured, by thread and group, idle left out.
    fn spans(&self) -> BTreeMap<(i32, u32), u64> {
        let mut spans = BTreeMap::new();
        for sample in &self.samples {
            if let Counted::Thread(thread @ 1..) = sample.thread {
                *spans.entry((thread, sample.group)).or_default() += sample.span_ns;
            }
        }
        spans
    }
}

/// `value`, counted in `measured` of `whole` time, for all of it.
fn scaled(value: u64, whole: u64, measured: u64) -> u64 {
    if measured == 0 || measured >= whole {
        return value;
    }
    u64::try_from(u128::from(value) * u128::from(whole) / u128::from(measured)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Context;
    use warmcore_trace::PrevState;

    fn reading(enabled_ns: u64, running_ns: u64, value: u64) -> GroupReading {
        GroupReading { enabled_ns, running_ns, values: vec![value] }
    }

    fn sample(time_ns: u64, thread: Counted, group: u32, span_ns: u64, value: u64) -> CounterSample {
        CounterSample { time_ns, cpu: 0, thread, group, span_ns, values: vec![value] }
    }

    fn log(samples: Vec<CounterSample>) -> CounterLog {
        let groups = vec![vec![TASK_CLOCK.into()], vec!["cycles".into()]];
        CounterLog { groups, samples, ..CounterLog::default() }
    }

    #[test]
    fn a_stay_counts_only_if_the_group_was_on_the_processor_throughout() {
        let before = reading(100, 60, 1000);
        assert_eq!(reading(150, 110, 1300).stay(&before), Some((50, vec![300])));
        assert_eq!(reading(150, 80, 1300).stay(&before), None, "it was off for 30 of 50 ns");
        assert_eq!(reading(90, 60, 1000).stay(&before), None, "time goes forward");
    }

    #[test]
    fn what_a_multiplexed_group_counted_of_a_thread_stands_for_all_its_time() {
        let log = log(vec![
            sample(10, Counted::Thread(7), 0, 10, 10),
            sample(10, Counted::Thread(7), 1, 10, 40),
            sample(40, Counted::Thread(7), 0, 30, 30),
            sample(50, Counted::Thread(8), 0, 10, 10),
            sample(60, Counted::Thread(0), 0, 10, 10),
        ]);
        let cycles: Vec<_> = log.estimated().into_iter().filter(|value| value.counter == 1).collect();
        assert_eq!(cycles, [CounterValue { time_ns: 10, cpu: 0, thread: 7, counter: 1, value: 160 }]);
        assert_eq!(log.measured_shares(), [Some(1.0), Some(0.2)]);
        let said = log.sentences();
        assert!(said.iter().any(|text| text.contains("cycles were on the processor 20 %")), "{said:?}");
    }

    #[test]
    fn samples_without_a_thread_belong_to_whom_the_switches_name() {
        let switch = |time_ns, prev, next| Record {
            time_ns,
            cpu: 0,
            by: prev,
            context: Context::Thread,
            what: What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false },
        };
        let records = [switch(100, 0, 7), switch(150, 7, 8)];
        let mut log = log(vec![sample(151, Counted::Dead, 0, 151, 151), sample(190, Counted::Rest, 0, 39, 39)]);
        log.attribute(records);
        let found: Vec<_> = log.estimated().iter().map(|value| (value.thread, value.value)).collect();
        assert_eq!(found, [(7, 51), (8, 39)], "the time before the first came onto the CPU is not its own");
    }

    #[test]
    fn scaling_never_overflows_and_never_makes_less() {
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), u64::MAX);
        assert_eq!((scaled(5, 10, 0), scaled(5, 10, 20), scaled(5, 10, 10)), (5, 5, 5));
    }
}
