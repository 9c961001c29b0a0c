//! Waits that reach into a time in which nobody knows who had the CPU: nobody knows how long they were either.

use warmcore_topology::CpuId;
use warmcore_trace::{Event, EventKind, MigrationKind, PrevState, TaskId};

/// Follows waits for CPUs, to take away those that may have ended unseen.
#[derive(Default)]
pub(super) struct UnknownWaits {
    /// By CPU: until when it was not known who had it, the last time; [`ONGOING`] while it is not.
    until_ns: Vec<u64>,
    /// By task.
    waits: Vec<Wait>,
    /// Positions of the events that began waits which are to be taken away.
    unknown: Vec<usize>,
}

const ONGOING: u64 = u64::MAX;

/// The events that began a task's wait, by their positions, where it waits, and since when there.
#[derive(Clone, Default)]
struct Wait {
    began: Vec<usize>,
    on: Option<CpuId>,
    since_ns: u64,
}

impl Wait {
    fn is_on(&mut self, cpu: CpuId, since_ns: u64) {
        (self.on, self.since_ns) = (Some(cpu), since_ns);
    }
}

impl UnknownWaits {
    /// From now on it is known who has the CPU, or not.
    pub fn comes(&mut self, now: u64, cpu: CpuId, is_known: bool) {
        if !is_known {
            self.until_ns.resize(self.until_ns.len().max(cpu.index() + 1), 0);
            self.until_ns[cpu.index()] = ONGOING;
        } else if let Some(until_ns) = self.until_ns.get_mut(cpu.index()).filter(|until_ns| **until_ns == ONGOING) {
            *until_ns = now;
        }
    }

    /// Takes the event at the next position.
    pub fn take(&mut self, event: &Event, position: usize) {
        match event.kind {
            EventKind::Waking { task, target_cpu: cpu, .. } => self.wakes(event, position, task, cpu),
            EventKind::Wakeup { task, .. } => self.wakes(event, position, task, event.cpu),
            EventKind::Migrate { task, from, to, kind } => {
                // Who is placed by its wakeup waits nowhere yet.
                if !matches!(kind, MigrationKind::Wakeup | MigrationKind::Fork) {
                    self.leaves_queue(task, from);
                }
                self.wait(task).is_on(to, event.time_ns);
            }
            EventKind::Switch { prev, prev_state, next } => {
                if !prev.is_idle() && prev_state == PrevState::Runnable {
                    let wait = self.wait(prev);
                    wait.began.clear();
                    wait.began.push(position);
                    wait.is_on(event.cpu, event.time_ns);
                }
                if !next.is_idle() {
                    self.leaves_queue(next, event.cpu);
                    self.wait(next).began.clear();
                }
            }
            _ => {}
        }
    }

    fn wakes(&mut self, event: &Event, position: usize, task: TaskId, cpu: CpuId) {
        let wait = self.wait(task);
        wait.began.push(position);
        wait.is_on(cpu, event.time_ns);
    }

    /// The task waits for this CPU no longer: it may have had it before, unseen.
    fn leaves_queue(&mut self, task: TaskId, cpu: CpuId) {
        let until_ns = self.until_ns.get(cpu.index()).copied().unwrap_or(0);
        let Some(wait) = self.waits.get_mut(task.index()) else { return };
        if until_ns > wait.since_ns {
            self.unknown.append(&mut wait.began);
        }
    }

    fn wait(&mut self, task: TaskId) -> &mut Wait {
        if task.index() >= self.waits.len() {
            self.waits.resize(task.index() + 1, Wait::default());
        }
        &mut self.waits[task.index()]
    }

    /// Takes the wakeups away that began such waits; who left a CPU by one sleeps from then on.
    pub fn apply(mut self, events: &mut Vec<Event>) {
        for task in (0..self.waits.len()).map(|index| TaskId(index as u32)) {
            // Who was not seen again may have run since.
            if let Some(cpu) = self.waits[task.index()].on {
                self.leaves_queue(task, cpu);
            }
        }
        self.unknown.sort_unstable();
        let mut unknown = self.unknown.into_iter().peekable();
        let mut position = 0;
        events.retain_mut(|event| {
            let is_unknown = unknown.next_if_eq(&position).is_some();
            position += 1;
            match &mut event.kind {
                EventKind::Switch { prev_state, .. } if is_unknown => {
                    *prev_state = PrevState::Sleeping;
                    true
                }
                _ => !is_unknown,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::convert::{Cast, Converted, events};
    use crate::record::{Context, Record, What};
    use crate::recording::{Loss, Recording};

    fn record(time_ns: u64, cpu: u32, by: i32, what: What) -> Record {
        Record { time_ns, cpu, by, context: Context::Thread, what }
    }

    fn switch(time_ns: u64, cpu: u32, prev: i32, state: PrevState, next: i32) -> Record {
        record(time_ns, cpu, prev, What::Switch { prev, state, next, uninterruptible: false })
    }

    fn waking(time_ns: u64, cpu: u32, by: i32, thread: i32, target_cpu: u32) -> Record {
        record(time_ns, cpu, by, What::Waking { thread, target_cpu })
    }

    /// Run times of tasks, and each wait: whose, and how long.
    fn seen(records: &[Record], lost: Vec<Loss>) -> ([u64; 3], Vec<(u32, u64)>) {
        let converted = converted(&Recording { records: records.to_vec(), lost, ..Recording::default() }.finished());
        let (mut builder, mut run_ns, mut waits) = (warmcore_trace::SliceBuilder::new(), [0; 3], Vec::new());
        for slice in converted.events.iter().filter_map(|event| builder.push(event).unwrap()) {
            run_ns[slice.task.index()] += slice.end_ns - slice.start_ns;
            waits.extend(slice.run_delay_ns.map(|delay| (slice.task.0, delay)));
        }
        (run_ns, waits)
    }

    fn converted(recording: &Recording) -> Converted {
        let tasks = BTreeMap::from([(10, TaskId(0)), (11, TaskId(1)), (12, TaskId(2))]);
        let cast = Cast {
            tasks: &tasks,
            launchers: &BTreeSet::new(),
            stoppers: &[],
            restrictions: &[0; 3],
            allowed: &|_, _| true,
            bindings: &[],
            start_ns: 0,
            elapsed_ns: 10_000,
            cpu: &|cpu| Some(CpuId(cpu)),
        };
        events(recording, &cast).unwrap()
    }

    /// CPU 0: thread 10 from 100 on, 10 wakes 12 for CPU 1 at 200, then a gap until 1000, when 11 leaves; 11 was woken for CPU 0 at 600, by
    /// 12. CPU 1: 12 runs from 250 to 2000. Thread 10 is woken at 1100 and waits 50.
    fn records() -> Vec<Record> {
        use PrevState::{Idle, Sleeping};
        vec![
            switch(100, 0, 0, Idle, 10),
            waking(200, 0, 10, 12, 1),
            switch(250, 1, 0, Idle, 12),
            waking(600, 1, 12, 11, 0),
            switch(1000, 0, 11, Sleeping, 0),
            waking(1100, 1, 12, 10, 0),
            switch(1150, 0, 0, Idle, 10),
            switch(1300, 0, 10, Sleeping, 0),
            switch(2000, 1, 12, Sleeping, 0),
        ]
    }

    #[test]
    fn a_gap_is_no_run_time_and_no_wait_whether_its_loss_is_marked_or_seen() {
        let loss = Loss { cpu: Some(0), before_ns: Some(1000), events: Some(40) };
        for lost in [vec![loss], vec![]] {
            let (run_ns, waits) = seen(&records(), lost);
            assert_eq!(run_ns, [100 + 150, 0, 1750]);
            assert_eq!(waits, [(0, 50), (2, 50)]);
        }
    }

    /// Thread 12 is woken for CPU 0 in a gap that has no end, 11 for CPU 1 at the same time; neither is seen again.
    #[test]
    fn who_is_not_seen_again_after_a_wakeup_in_a_gap_does_not_wait_until_the_end() {
        let woken = [waking(300, 1, 69, 12, 0), waking(300, 1, 69, 11, 1)];
        let records =
            [switch(100, 0, 0, PrevState::Idle, 10), woken[0], woken[1], switch(900, 1, 69, PrevState::Sleeping, 0)];
        let of = |ends_early: &[u32]| {
            let ends_early = ends_early.iter().copied().collect();
            Recording { records: records.to_vec(), ends_early, ..Recording::default() }.finished()
        };
        let wakings = |ends_early: &[u32]| {
            let converted = converted(&of(ends_early));
            let task = |event: &Event| match event.kind {
                EventKind::Waking { task, .. } => Some(task.0),
                _ => None,
            };
            converted.events.iter().filter_map(task).collect::<Vec<_>>()
        };
        assert_eq!((wakings(&[]), wakings(&[0])), (vec![2, 1], vec![1]));
    }

    /// Thread 11 is preempted on CPU 0 before the gap and comes again behind it; between the two it may have run. Thread 12 was preempted on
    /// CPU 1, of which all records are there.
    #[test]
    fn who_was_preempted_before_a_gap_waited_for_an_unknown_time() {
        use PrevState::{Idle, Runnable, Sleeping};
        let records = [
            switch(100, 0, 0, Idle, 11),
            switch(110, 1, 0, Idle, 12),
            switch(200, 0, 11, Runnable, 10),
            switch(300, 1, 12, Runnable, 69),
            switch(1000, 0, 10, Sleeping, 0),
            switch(1200, 0, 0, Idle, 11),
            switch(1300, 0, 11, Sleeping, 0),
            switch(1400, 1, 69, Sleeping, 12),
            switch(1500, 1, 12, Sleeping, 0),
        ];
        let loss = Loss { cpu: Some(0), before_ns: Some(1000), events: None };
        assert_eq!(seen(&records, vec![]), ([800, 200, 290], vec![(1, 1000), (2, 1100)]));
        assert_eq!(seen(&records, vec![loss]), ([0, 200, 290], vec![(2, 1100)]));
    }
}
