//! Switches that a kernel makes and does not record, or whose records were lost.
//!
//! On a kernel 6.18 in a Firecracker guest, one CPU records no `sched_switch` when it leaves its idle thread, and all others. A thread that
//! came onto that CPU is seen only when it leaves. It came at the earliest when it was queued there, by a wakeup or by being moved; that
//! is where a switch is put in. What the CPU took to leave its idle state is then run time of the thread.
//!
//! On the same kernel a single switch may be missing: a thread leaves a CPU to which another one came last. Such switches are counted and
//! not put in: nothing says when they were.

use std::collections::BTreeMap;

use warmcore_trace::PrevState;

use crate::record::{Context, Record, What};
use crate::recording::Recording;

/// The idle thread of every CPU.
const IDLE: i32 = 0;
/// So often a CPU must have become idle before that it never left is no chance.
const LEAST: u64 = 3;

/// Switches of each CPU, as far as its records say.
#[derive(Debug, Default)]
pub(crate) struct SeenSwitches(BTreeMap<u32, OfCpu>);

#[derive(Debug, Default)]
struct OfCpu {
    /// How often it left its idle thread, and came back to it.
    idle: (u64, u64),
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
                let OfCpu { idle: (left, entered), running, missing } = self.0.entry(record.cpu).or_default();
                *left += u64::from(prev == IDLE);
                *entered += u64::from(next == IDLE);
                *missing += u64::from(running.replace(next).is_some_and(|was| was != prev));
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

    /// CPUs that record no switch out of idle.
    fn without(&self) -> impl Iterator<Item = u32> {
        let is_one = |(_, of_cpu): &(&u32, &OfCpu)| of_cpu.idle.0 == 0 && of_cpu.idle.1 >= LEAST;
        self.0.iter().filter(is_one).map(|(cpu, _)| *cpu)
    }
}

/// Puts in the switches of CPUs that record none out of idle, and counts and names them. Records must be in order.
pub(crate) fn put_in(recording: &mut Recording, seen: &SeenSwitches) {
    let mut put_in = Vec::new();
    for cpu in seen.without() {
        let switches = switches_of(recording.in_order(), cpu);
        let count = switches.len();
        recording.switches_assumed += count as u64;
        put_in.extend(switches);
        recording.notes.push(format!(
            "CPU {cpu} recorded no switch out of idle: {count} were put in where the thread was queued, so that its run time has the CPU's \
             way out of idle in it, and its wakeup latency there is nothing"
        ));
    }
    if !put_in.is_empty() {
        recording.records.append(&mut put_in);
        recording.records.sort_by_key(|record| (record.time_ns, record.cpu));
    }
}

/// Counts the switches of which a CPU recorded neither who left nor who came, and says so. Records must be in order.
pub(crate) fn count(recording: &mut Recording, seen: &SeenSwitches) {
    let missing_of = |seen: &SeenSwitches| seen.0.values().map(|of_cpu| of_cpu.missing).sum::<u64>();
    let missing = if recording.switches_assumed == 0 {
        missing_of(seen)
    } else {
        let mut seen = SeenSwitches::default();
        recording.in_order().for_each(|record| seen.take(&record));
        missing_of(&seen)
    };
    if missing > 0 {
        let (number, verb) =
            if missing == 1 { ("1 switch".to_owned(), "is") } else { (format!("{missing} switches"), "are") };
        recording.notes.push(format!(
            "{number} between threads {verb} missing: a thread left a CPU to which another one had come last. When it came is not known, and \
             its time there counts for no task"
        ));
    }
}

/// The switches that a CPU did not record.
fn switches_of(records: impl Iterator<Item = Record>, cpu: u32) -> Vec<Record> {
    let mut found = Vec::new();
    // Since when it is idle, as far as it says.
    let mut idle_since = None;
    // When each thread was queued on the CPU since then.
    let mut queued: BTreeMap<i32, u64> = BTreeMap::new();
    for record in records {
        match record.what {
            What::Waking { thread, target_cpu } | What::Wakeup { thread, target_cpu } => {
                if target_cpu == cpu {
                    queued.insert(thread, record.time_ns);
                } else {
                    queued.remove(&thread);
                }
            }
            What::Migrate { thread, to, .. } => {
                if to == cpu {
                    queued.insert(thread, record.time_ns);
                } else {
                    queued.remove(&thread);
                }
            }
            What::Switch { prev, next, .. } if record.cpu == cpu => {
                if let (Some(since), Some(at)) = (idle_since, queued.remove(&prev)) {
                    // Behind the record that queued it.
                    let time_ns = at.max(since).saturating_add(1).min(record.time_ns);
                    let what = What::Switch { prev: IDLE, state: PrevState::Idle, next: prev, uninterruptible: false };
                    found.push(Record { time_ns, cpu, by: IDLE, context: Context::Thread, what });
                }
                idle_since = (next == IDLE).then_some(record.time_ns);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(recording.notes[0].contains("CPU 1 recorded no switch out of idle: 3 were put in"));
    }

    #[test]
    fn a_cpu_that_records_its_way_out_of_idle_is_left_as_it_is() {
        let mut recording = recording();
        recording.records.push(switch(9000, 1, 0, 10));
        let records = recording.records.len();
        let recording = recording.finished();
        assert_eq!((recording.switches_assumed, recording.records.len()), (0, records));
        assert!(recording.notes[0].starts_with("3 switches between threads are missing"), "{:?}", recording.notes);
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
