//! Switches that a kernel makes and does not record, or whose records were lost.
//!
//! On a kernel 6.18 in a Firecracker guest, one CPU records few or no `sched_switch` when it leaves its idle thread, and all others. A thread
//! that came onto that CPU is seen only when it leaves. It came at the earliest when it was queued there, by a wakeup or by being moved; that
//! is where a switch is put in, unless the recorder lost records of that CPU meanwhile. What the CPU took to leave its idle state is then run
//! time of the thread.
//!
//! Other switches may be missing, too: a thread leaves a CPU to which another one came last, or that was idle while nothing says that the
//! thread was queued there. Nothing says when they were: nobody has the CPU between its two records (`one_at_a_time`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use warmcore_trace::PrevState;

use crate::instants::put_in_order;
use crate::paged::{InOrder, Wanted};
use crate::record::{Context, Record, What};
use crate::recording::{Recording, WORTH_A_NOTE_NS};

/// The idle thread of every CPU.
const IDLE: i32 = 0;

/// Switches of each CPU, as far as its records say.
#[derive(Debug, Default)]
pub(crate) struct SeenSwitches(BTreeMap<u32, OfCpu>);

#[derive(Debug, Default)]
struct OfCpu {
    /// How often it left its idle thread.
    left_idle: u64,
    /// How often a thread left it while its idle thread was there.
    unrecorded: u64,
    /// Who runs there.
    running: Option<i32>,
    /// How many switches are missing.
    missing: u64,
}

impl SeenSwitches {
    /// Takes the next record of its CPU.
    pub fn take(&mut self, record: &Record) {
        match record.what {
            What::Switch { prev, next, .. } => {
                let of_cpu = self.0.entry(record.cpu).or_default();
                let was = of_cpu.running.replace(next);
                of_cpu.left_idle += u64::from(prev == IDLE);
                of_cpu.unrecorded += u64::from(was == Some(IDLE) && prev != IDLE);
                of_cpu.missing += u64::from(was.is_some_and(|was| was != prev));
            }
            // A thread that starts a program takes the number of its process.
            What::Exec { thread } => {
                if let Some(running) = self.0.get_mut(&record.cpu).and_then(|of_cpu| of_cpu.running.as_mut()) {
                    *running = thread;
                }
            }
            _ => {}
        }
    }

    /// CPUs that did not record every switch out of idle.
    fn incomplete(&self) -> BTreeSet<u32> {
        self.0.iter().filter(|(_, of_cpu)| of_cpu.unrecorded > 0).map(|(cpu, _)| *cpu).collect()
    }
}

/// Puts in the switches out of idle that CPUs did not record, and counts and names them. Records must be in order.
pub(crate) fn put_in(recording: &mut Recording, seen: &SeenSwitches) {
    let cpus = seen.incomplete();
    if cpus.is_empty() {
        return;
    }
    let mut put_in = switches_of(recording, &cpus);
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    put_in.iter().for_each(|record| *counts.entry(record.cpu).or_default() += 1);
    for (cpu, count) in counts {
        recording.switches_assumed += count;
        let all = count + seen.0.get(&cpu).map_or(0, |of_cpu| of_cpu.left_idle);
        recording.notes.push(format!(
            "CPU {cpu} did not record {count} of {all} switches out of idle: they were put in where the thread was queued. Its run time \
             includes the CPU's exit from idle; its wakeup latency counts as 0"
        ));
    }
    if !put_in.is_empty() {
        recording.records.append(&mut put_in);
        put_in_order(&mut recording.records);
    }
}

/// Finds where nobody knows who had a CPU from one of its records to the next, and says so: the recorder lost records of it between them, a
/// thread leaves it to which another one had come last, or there is no next one although there was. Records must be in order.
pub(crate) fn find_gaps(recording: &mut Recording, seen: &SeenSwitches) {
    let mut losses: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for loss in &recording.lost {
        if let (Some(cpu), Some(before_ns)) = (loss.cpu, loss.before_ns) {
            losses.entry(cpu).or_default().insert(before_ns);
        }
    }
    let some_missing = seen.0.values().map(|of_cpu| of_cpu.missing).sum::<u64>() > recording.switches_assumed;
    if losses.is_empty() && !some_missing && recording.ends_early.is_empty() {
        return;
    }
    let (mut gaps, mut unknown_ns, mut missing) = (BTreeSet::new(), 0, 0);
    // By CPU: when its last record was, and who has it since, as far as that is known.
    let mut last: BTreeMap<u32, (u64, Option<i32>)> = BTreeMap::new();
    for record in InOrder::as_recorded(&recording.records, recording.pages.as_ref(), Wanted::All) {
        let before = last.get(&record.cpu).copied();
        let mut is_gap = false;
        if let Some(losses) = losses.get_mut(&record.cpu) {
            while losses.first().is_some_and(|before_ns| *before_ns <= record.time_ns) {
                losses.pop_first();
                is_gap = true;
            }
        }
        let mut running = before.and_then(|(_, running)| running).filter(|_| !is_gap);
        match record.what {
            What::Switch { prev, next, .. } => {
                let other = running.is_some_and(|was| was != prev);
                missing += u64::from(other);
                is_gap |= other;
                running = Some(next);
            }
            // A thread that starts a program takes the number of its process.
            What::Exec { thread } => running = running.map(|_| thread),
            // The last switch of a CPU that goes offline is not recorded.
            What::Hotplug { target_cpu, .. } => {
                last.entry(target_cpu).and_modify(|(_, running)| *running = None);
                running = running.filter(|_| target_cpu != record.cpu);
            }
            _ => {}
        }
        if let Some((from_ns, _)) = before.filter(|(from_ns, _)| is_gap && *from_ns < record.time_ns) {
            gaps.insert((from_ns, record.cpu));
            unknown_ns += record.time_ns - from_ns;
        }
        last.insert(record.cpu, (record.time_ns, running));
    }
    let (start_ns, end_ns) = recording.span_ns();
    for cpu in &recording.ends_early {
        let from_ns = last.get(cpu).map_or(start_ns, |(last_ns, _)| *last_ns);
        if from_ns < end_ns {
            gaps.insert((from_ns, *cpu));
            unknown_ns += end_ns - from_ns;
        }
    }
    recording.gaps = gaps;
    if missing > 0 || unknown_ns >= WORTH_A_NOTE_NS {
        let left = "a thread left a CPU to which another one had come last";
        let what = match missing {
            0 => "records are missing".to_owned(),
            1 => format!("1 switch between threads is missing: {left}"),
            count => format!("{count} switches between threads are missing: {left}"),
        };
        recording.notes.push(format!(
            "{what}. For {:.3} s, each time from the record before to the next one, no record shows who had the CPU: that time counts as a thread \
             `not recorded` of another program, and waits that reach into it are left out",
            unknown_ns as f64 / 1e9
        ));
    }
}

/// The switches out of idle that these CPUs did not record.
fn switches_of(recording: &Recording, cpus: &BTreeSet<u32>) -> Vec<Record> {
    let mut found = Vec::new();
    // Since when each CPU is idle, as far as it says.
    let mut idle_since: BTreeMap<u32, u64> = BTreeMap::new();
    // Where and when each thread was queued since it last left a CPU.
    let mut queued: BTreeMap<i32, (u32, u64)> = BTreeMap::new();
    let losses: BTreeSet<_> = recording.lost.iter().filter_map(|loss| Some((loss.cpu, loss.before_ns?))).collect();
    let has_lost = |cpu: u32, since: u64, to: u64| {
        let range = |of| (Bound::Excluded((of, since)), Bound::Included((of, to)));
        [None, Some(cpu)].into_iter().any(|of| losses.range(range(of)).next().is_some())
    };
    for record in InOrder::as_recorded(&recording.records, recording.pages.as_ref(), Wanted::All) {
        match record.what {
            What::Waking { thread, target_cpu: cpu }
            | What::Wakeup { thread, target_cpu: cpu }
            | What::Migrate { thread, to: cpu, .. } => {
                queued.insert(thread, (cpu, record.time_ns));
            }
            What::Switch { prev, next, .. } => {
                let cpu = record.cpu;
                let since = idle_since.remove(&cpu).filter(|_| cpus.contains(&cpu) && prev != IDLE);
                let at = queued.remove(&prev).filter(|(on, _)| *on == cpu);
                if let (Some(since), Some((_, at))) = (since, at)
                    && !has_lost(cpu, since, record.time_ns)
                {
                    // Behind the record that queued it; of one that leaves by then the other switches that are missing are noticed.
                    let time_ns = at.max(since).saturating_add(1);
                    let what = What::Switch { prev: IDLE, state: PrevState::Idle, next: prev, uninterruptible: false };
                    let put_in = Record { time_ns, cpu, by: IDLE, context: Context::Thread, what };
                    found.extend(Some(put_in).filter(|put_in| put_in.time_ns < record.time_ns));
                }
                if next == IDLE {
                    idle_since.insert(cpu, record.time_ns);
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Loss;

    fn record(time_ns: u64, cpu: u32, what: What) -> Record {
        Record { time_ns, cpu, by: 7, context: Context::Thread, what }
    }

    fn switch(time_ns: u64, cpu: u32, prev: i32, next: i32) -> Record {
        record(time_ns, cpu, What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false })
    }

    fn wakeup(time_ns: u64, cpu: u32, thread: i32, target_cpu: u32) -> Record {
        record(time_ns, cpu, What::Wakeup { thread, target_cpu })
    }

    /// Thread 10 sleeps and runs on CPU 1, which records no switch out of idle; thread 11 on CPU 0, which does.
    fn recording() -> Recording {
        let mut records = Vec::new();
        for round in 0..4_u64 {
            let at = 1000 * round;
            records.push(wakeup(at + 100, 0, 10, 1));
            records.push(switch(at + 400, 1, 10, 0));
            records.push(wakeup(at + 500, 2, 11, 0));
            records.push(switch(at + 510, 0, 0, 11));
            records.push(switch(at + 600, 0, 11, 0));
        }
        Recording { records, ..Recording::default() }
    }

    #[test]
    fn a_switch_out_of_idle_that_was_not_recorded_is_put_in_behind_the_wakeup() {
        let recording = recording().finished();
        assert_eq!(recording.switches_assumed, 3, "what came before the CPU was first seen idle is not known");
        let of_cpu = |record: &&Record| record.cpu == 1 && matches!(record.what, What::Switch { .. });
        let times: Vec<u64> = recording.records.iter().filter(of_cpu).map(|record| record.time_ns).collect();
        assert_eq!(times, [400, 1101, 1400, 2101, 2400, 3101, 3400]);
        assert!(recording.notes[0].starts_with("CPU 1 did not record 3 of 3 switches out of idle: they were put in"));
    }

    #[test]
    fn a_switch_that_is_recorded_does_not_keep_others_from_being_put_in() {
        let mut recording = recording();
        // Once the CPU records its way out of idle, and once a thread leaves it that was not queued there.
        recording.records.extend([wakeup(4100, 0, 10, 1), switch(4150, 1, 0, 10), switch(4400, 1, 10, 0)]);
        recording.records.push(switch(5400, 1, 12, 0));
        let recording = recording.finished();
        assert_eq!((recording.switches_assumed, recording.notes.len()), (3, 2), "{:?}", recording.notes);
        let of_cpu = |record: &&Record| record.cpu == 1 && matches!(record.what, What::Switch { prev: IDLE, .. });
        let times: Vec<u64> = recording.records.iter().filter(of_cpu).map(|record| record.time_ns).collect();
        assert_eq!(times, [1101, 2101, 3101, 4150]);
        assert!(recording.notes[0].starts_with("CPU 1 did not record 3 of 4 switches out of idle"));
        assert!(recording.notes[1].starts_with("1 switch between threads is missing"), "{:?}", recording.notes);
    }

    #[test]
    fn nothing_is_put_in_where_the_recorder_lost_records_of_the_cpu() {
        let loss = |cpu| Loss { cpu: Some(cpu), before_ns: Some(1400), events: None };
        let assumed = |lost| Recording { lost, ..recording() }.finished().switches_assumed;
        assert_eq!((assumed(vec![loss(1)]), assumed(vec![loss(0)])), (2, 3));
    }

    #[test]
    fn a_thread_that_was_queued_elsewhere_last_did_not_come_by_that() {
        let mut recording = recording();
        // Between its wakeup on CPU 1 and its leaving there it was moved away and back.
        recording.records.push(record(1150, 0, What::Migrate { thread: 10, from: 1, to: 2 }));
        recording.records.push(record(1300, 2, What::Migrate { thread: 10, from: 2, to: 1 }));
        let recording = recording.finished();
        assert!(recording.records.iter().any(|record| record.time_ns == 1301 && record.cpu == 1));
    }

    #[test]
    fn a_thread_that_leaves_a_cpu_to_which_another_came_last_came_by_a_switch_that_is_missing() {
        let mut records = vec![switch(10, 0, 7, 10), switch(20, 0, 10, 11), switch(20, 1, 7, 12)];
        // CPU 1 starts a program from a second thread, which takes the number of its process.
        records.extend([record(30, 1, What::Exec { thread: 13 }), switch(40, 1, 13, 7)]);
        let whole = Recording { records: records.clone(), ..Recording::default() }.finished();
        assert!(whole.notes.is_empty(), "{:?}", whole.notes);
        records.extend([switch(50, 0, 10, 11), switch(60, 0, 11, 10)]);
        let one = Recording { records, ..Recording::default() }.finished();
        assert_eq!((one.notes.len(), one.switches_assumed), (1, 0));
        assert!(one.notes[0].starts_with("1 switch between threads is missing"), "{}", one.notes[0]);
    }
}
