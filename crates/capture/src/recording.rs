//! A recording of a kernel's scheduler, from whatever recorder: records in order of time, the threads they name, and what was lost.
//!
//! Nothing in it is of the project's world yet: threads are thread ids, CPUs are the operating system's numbers, times are the
//! recorder's clock. [`mod@crate::convert`] makes events of it; crate `replay` makes workloads and groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::counters::CounterLog;
use crate::files::OpenFiles;
use crate::homes::PageHomes;
use crate::instants::put_in_order;
use crate::missing::SeenSwitches;
use crate::paged::{InOrder, PagedRecords, Tally, Wanted};
use crate::record::{Birth, Call, Context, Record, What};

/// A recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// What it was read from, such as `trace.dat`.
    pub source: String,
    /// The recorder's clock as it names it, such as `mono`; `None` where it does not say.
    pub clock: Option<String>,
    /// Number of CPUs: all CPUs of records are below it.
    pub cpus: u32,
    /// What is known about threads, by thread id. The idle thread is not among them.
    pub threads: BTreeMap<i32, Thread>,
    /// The priority that each thread had most often, by thread id, where the recorder tells: the kernel's number of it, −1 of deadline tasks,
    /// 0 to 98 of real-time ones (99 less their priority), 100 to 139 of fair ones (120 and their nice value).
    pub priorities: BTreeMap<i32, i32>,
    /// Those that are in memory, in order of time, and of one instant causes first, else in order of CPUs. [`Recording::in_order`] has all.
    pub records: Vec<Record>,
    /// Those that stay in their pages.
    pub pages: Option<PagedRecords>,
    /// The machine that it was made on, as TOML of crate `topology`, where the recording has it. Nobody checked it.
    pub machine: Option<String>,
    /// When it ended, on the recorder's clock, where that is known: what ran at the last record may have run on.
    pub end_ns: Option<u64>,
    /// What is missing.
    pub lost: Vec<Loss>,
    /// CPUs whose first records are missing, so that nothing tells who had them before the first one that is there.
    pub late: BTreeSet<u32>,
    /// CPUs whose last records are missing, so that nothing tells who had them after the last one that is there.
    pub ends_early: BTreeSet<u32>,
    /// When a gap begins, and in the records of which CPU: nothing tells who had it from then until its next record, or the end.
    pub gaps: BTreeSet<(u64, u32)>,
    /// Switches that a CPU did not record although it made them, and that stand where they must have been.
    pub switches_assumed: u64,
    /// What threads counted, if that was recorded.
    pub counters: Option<CounterLog>,
    /// What files were, where calls were recorded by us.
    pub files: OpenFiles,
    /// Where pages lived, if that was recorded.
    pub homes: PageHomes,
    /// What else a reader of any result must know, one sentence each.
    pub notes: Vec<String>,
}

/// A thread of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    /// Its name (comm), as last seen; empty if no record names it.
    pub name: String,
    /// Its process (thread group), where the recording tells.
    pub process: Option<i32>,
}

/// Events that a recorder did not keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// CPU whose buffer was full, where that is known.
    pub cpu: Option<u32>,
    /// Time of the first record after the gap, on the recorder's clock, where that is known.
    pub before_ns: Option<u64>,
    /// How many; `None` where the recorder only says that some are missing.
    pub events: Option<u64>,
}

/// How many events were lost, of so many that were counted and perhaps more.
pub fn lost_in_words(counted: u64, more: bool) -> String {
    match (counted, more) {
        (0, true) => "an unknown number of".into(),
        (_, true) => format!("{counted} or more"),
        (_, false) => counted.to_string(),
    }
}

/// From this time on, ns, a note says that a CPU's records begin late, or how long the gaps in them are together.
pub(crate) const WORTH_A_NOTE_NS: u64 = 1_000_000;

impl Recording {
    /// From when to when it goes, on the recorder's clock; zeros if it is empty.
    pub fn span_ns(&self) -> (u64, u64) {
        let kept = self.records.first().zip(self.records.last()).map(|(first, last)| (first.time_ns, last.time_ns));
        let paged = self.pages.as_ref().and_then(|pages| pages.tally().span_ns);
        let both = kept.into_iter().chain(paged).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        both.map_or((0, 0), |(first_ns, last_ns)| (first_ns, self.end_ns.unwrap_or(0).max(last_ns)))
    }

    /// All records, in order of time, and the switches that are missing among them, where they are noticed. Of one instant those come first that made others possible; else they are in order of CPUs.
    pub fn in_order(&self) -> InOrder<'_> {
        InOrder::whole(&self.records, self.pages.as_ref(), self.late.clone(), self.gaps.clone())
    }

    /// Those of a kind; from memory, others may be among them.
    pub fn in_order_of(&self, wanted: Wanted) -> InOrder<'_> {
        match wanted {
            Wanted::All => self.in_order(),
            Wanted::Forks | Wanted::Hotplug => InOrder::as_recorded(&self.records, self.pages.as_ref(), wanted),
        }
    }

    /// What is known of all records together.
    pub fn tally(&self) -> Tally {
        let mut tally = self.pages.as_ref().map_or_else(Tally::default, PagedRecords::tally);
        self.records.iter().for_each(|record| tally.take(record));
        tally
    }

    /// How many records there are.
    pub fn record_count(&self) -> u64 {
        self.records.len() as u64 + self.pages.as_ref().map_or(0, |pages| pages.tally().count)
    }

    /// Events known to be lost, and whether more are without their number being known.
    pub fn events_lost(&self) -> (u64, bool) {
        let known = self.lost.iter().filter_map(|loss| loss.events).sum();
        (known, self.lost.iter().any(|loss| loss.events.is_none()))
    }

    /// Whether it says who woke whom: `sched_wakeup` alone is recorded where the thread is queued, which may be another CPU than
    /// the waker's.
    pub fn has_wakers(&self) -> bool {
        self.tally().wakings > 0
    }

    /// Whether it says when threads were woken. Without that, how long they waited for a CPU afterwards is not known.
    pub fn has_wakeups(&self) -> bool {
        let tally = self.tally();
        tally.wakings + tally.wakeups > 0
    }

    /// Remembers a thread's name.
    pub fn name(&mut self, thread: i32, name: &str) {
        if thread > 0 && !name.is_empty() {
            let known = &mut self.threads.entry(thread).or_default().name;
            if known != name {
                name.clone_into(known);
            }
        }
    }

    /// Remembers a name unless the thread has one: a saved list is older than the records.
    pub(crate) fn name_unless_known(&mut self, thread: i32, name: &str) {
        if self.threads.get(&thread).is_none_or(|known| known.name.is_empty()) {
            self.name(thread, name);
        }
    }

    /// Remembers a thread's process.
    pub fn process(&mut self, thread: i32, process: i32) {
        if thread > 0 && process > 0 {
            self.threads.entry(thread).or_default().process = Some(process);
        }
    }

    /// Puts records in order, counts CPUs, and lists every thread that a record names; one that runs another program is the leader
    /// of its process. Readers call it last.
    #[must_use]
    pub fn finished(mut self) -> Self {
        // Records of one CPU are in order already.
        put_in_order(&mut self.records);
        let mut seen = Seen::default();
        self.records.iter().for_each(|record| seen.take(record));
        self.finished_as(seen)
    }

    /// The same, where the records were looked at already: those of each CPU in order.
    #[must_use]
    pub(crate) fn finished_as(mut self, seen: Seen) -> Self {
        let Seen { switches, cpus, threads, begins } = seen;
        self.begins(&begins);
        crate::missing::put_in(&mut self, &switches);
        crate::missing::find_gaps(&mut self, &switches);
        if let Some(mut counters) = self.counters.take() {
            counters.attribute(self.in_order());
            self.counters = Some(counters);
        }
        self.cpus = self.ends_early.last().map_or(0, |cpu| cpu.saturating_add(1)).max(self.cpus).max(cpus);
        let again = threads.values().filter(|seen| seen.is_several()).count();
        if again > 0 {
            let (numbers, were) = if again == 1 { ("number", "was") } else { ("numbers", "were") };
            self.notes.push(format!(
                "{again} {numbers} of threads {were} used again: the row of such a number has all threads that had it"
            ));
        }
        for (thread, seen) in threads {
            let known = self.threads.entry(thread).or_default();
            if seen.runs_a_program {
                // Whoever runs another program is the first thread of its process by then.
                known.process.get_or_insert(thread);
            }
        }
        self
    }

    /// Finds the CPUs that begin late, by the time of each one's first record. A ring buffer that is written over keeps the latest events of
    /// each CPU, which go back for different times.
    fn begins(&mut self, begins: &BTreeMap<u32, u64>) {
        let Some(start_ns) = begins.values().copied().min() else { return };
        for loss in &self.lost {
            if let (Some(cpu), Some(before_ns)) = (loss.cpu, loss.before_ns)
                && begins.get(&cpu).is_some_and(|first_ns| (start_ns + 1..=*first_ns).contains(&before_ns))
            {
                self.late.insert(cpu);
            }
        }
        let latest = self.late.iter().map(|cpu| (begins[cpu] - start_ns, *cpu)).max();
        if let Some((late_ns, cpu)) = latest.filter(|(late_ns, _)| *late_ns >= WORTH_A_NOTE_NS) {
            let which = match self.late.len() {
                1 => format!("CPU {cpu}"),
                count => format!("{count} CPUs, CPU {cpu} the last,"),
            };
            self.notes.push(format!(
                "the first records of {which} are missing, up to {:.3} s: who ran there before is not known, and counts as a thread \
                 `not recorded` of another program",
                late_ns as f64 / 1e9
            ));
        }
    }
}

/// What records say together, whatever order those of different CPUs are in.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    switches: SeenSwitches,
    /// One more than the highest CPU.
    cpus: u32,
    /// Threads that are named.
    threads: BTreeMap<i32, SeenThread>,
    /// When each CPU's first record was.
    begins: BTreeMap<u32, u64>,
}

/// What records say of a thread.
#[derive(Debug, Default)]
struct SeenThread {
    /// Whether it began another program.
    runs_a_program: bool,
    /// When it was created last, and when it exited first.
    last_fork_ns: Option<u64>,
    first_exit_ns: Option<u64>,
}

impl SeenThread {
    /// Whether several threads had its number, one after the other.
    fn is_several(&self) -> bool {
        self.first_exit_ns.zip(self.last_fork_ns).is_some_and(|(exit_ns, fork_ns)| exit_ns < fork_ns)
    }
}

impl Seen {
    /// Takes the next record of its CPU.
    pub fn take(&mut self, record: &Record) {
        self.switches.take(record);
        self.begins.entry(record.cpu).or_insert(record.time_ns);
        let (threads, cpus) = record.what.names();
        let named = cpus.into_iter().flatten().chain([record.cpu]);
        self.cpus = named.fold(self.cpus, |most, cpu| most.max(cpu.saturating_add(1)));
        for thread in threads.into_iter().flatten().filter(|thread| *thread > 0) {
            let seen = self.threads.entry(thread).or_default();
            match record.what {
                What::Exec { .. } => seen.runs_a_program = true,
                What::Fork { child, .. } if child == thread => {
                    seen.last_fork_ns = seen.last_fork_ns.max(Some(record.time_ns));
                }
                What::Exit { .. } => {
                    let first_ns = seen.first_exit_ns.map_or(record.time_ns, |first_ns| first_ns.min(record.time_ns));
                    seen.first_exit_ns = Some(first_ns);
                }
                _ => {}
            }
        }
    }
}

/// Names of threads from records in whatever order: the latest counts.
#[derive(Clone, Debug, Default)]
pub struct LatestNames(BTreeMap<i32, (u64, String)>);

impl LatestNames {
    /// Takes a name that a record of this time gives to a thread.
    pub fn take(&mut self, time_ns: u64, thread: i32, name: &str) {
        // Of a thread that a CPU ran before it recorded anything, a recorder may not know the name.
        if thread <= 0 || name.is_empty() {
            return;
        }
        let (since, known) = self.0.entry(thread).or_default();
        if *since <= time_ns {
            *since = time_ns;
            if known != name {
                name.clone_into(known);
            }
        }
    }

    /// A thread's name.
    pub fn of(&self, thread: i32) -> Option<&str> {
        self.0.get(&thread).map(|(_, name)| name.as_str())
    }

    /// Gives the names to a recording.
    pub fn apply(&self, recording: &mut Recording) {
        self.0.iter().for_each(|(thread, (_, name))| recording.name(*thread, name));
    }
}

/// Births from records in whatever order.
#[derive(Clone, Debug, Default)]
pub struct Births(Vec<(u64, Birth)>);

impl Births {
    /// Takes a birth of this time.
    pub fn take(&mut self, time_ns: u64, birth: Birth) {
        self.0.push((time_ns, birth));
    }

    /// Says the processes of the new threads, as far as those of their creators are known.
    pub fn apply(mut self, recording: &mut Recording) {
        self.0.sort_by_key(|(time_ns, _)| *time_ns);
        for (_, birth) in self.0 {
            let of_parent = || recording.threads.get(&birth.parent).and_then(|parent| parent.process);
            let process = if birth.is_thread { of_parent() } else { Some(birth.child) };
            process.into_iter().for_each(|process| recording.process(birth.child, process));
        }
    }
}

impl What {
    /// Threads and CPUs that it names.
    pub fn names(&self) -> ([Option<i32>; 2], [Option<u32>; 2]) {
        match *self {
            Self::Switch { prev, next, .. } => ([Some(prev), Some(next)], [None, None]),
            Self::Waking { thread, target_cpu } | Self::Wakeup { thread, target_cpu } => {
                ([Some(thread), None], [Some(target_cpu), None])
            }
            Self::Migrate { thread, from, to } => ([Some(thread), None], [Some(from), Some(to)]),
            Self::Fork { parent, child } => ([Some(parent), Some(child)], [None, None]),
            Self::Hotplug { target_cpu, .. } => ([None, None], [Some(target_cpu), None]),
            Self::Interrupt { .. } | Self::Call { .. } | Self::Ready { .. } | Self::Received { .. } => {
                ([None, None], [None, None])
            }
            Self::Exec { thread } | Self::Exit { thread } | Self::Numa { thread } => {
                ([Some(thread), None], [None, None])
            }
        }
    }
}

impl Record {
    /// Whether it begins a wait for any of several files.
    pub fn polls(&self) -> bool {
        matches!(self.what, What::Call { call: Call::Poll, .. })
    }

    /// The thread that woke another, if a thread did: not an interrupt that came while it ran.
    pub fn waker(&self) -> Option<i32> {
        let woken = match self.what {
            What::Waking { thread, .. } => thread,
            _ => return None,
        };
        (self.context != Context::HardInterrupt && self.by > 0 && self.by != woken).then_some(self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread 21 is created, exits and is created again. Thread 22 exits twice: a second thread of its process ran another program meanwhile.
    #[test]
    fn a_number_that_several_threads_had_is_told() {
        let record = |time_ns, what| Record { time_ns, cpu: 0, by: 20, context: Context::Thread, what };
        let (fork, exit) = (What::Fork { parent: 20, child: 21 }, What::Exit { thread: 21 });
        let leader = [record(1, What::Fork { parent: 20, child: 22 }), record(2, What::Exit { thread: 22 })];
        let once = [leader[0], leader[1], record(3, What::Exec { thread: 22 }), record(4, What::Exit { thread: 22 })];
        let lives = [record(10, fork), record(20, exit), record(30, fork)];
        let of = |records: Vec<Record>| Recording { records, ..Recording::default() }.finished().notes;
        assert_eq!(of([&once[..], &lives[..2]].concat()), [""; 0]);
        let notes = of([&once[..], &lives[..]].concat());
        assert!(notes.len() == 1 && notes[0].starts_with("1 number of threads was used again"), "{notes:?}");
    }
}
