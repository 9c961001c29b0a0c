//! How far what is made of a recording is what was recorded.

use serde::Serialize;
use warmcore_capture::Recording;
use warmcore_capture::recording::lost_in_words;

use crate::history::Histories;
use crate::occupied::Occupied;
use crate::policies::Realtime;
use crate::pools::Pool;
use crate::service::{Latencies, RECORDER, Served};
use crate::sleeps::Sleeps;

/// From this part of CPU time on, waiting for a CPU hides waits for others.
const QUEUED: f64 = 0.25;

/// From this part of the recorded time on, the time that a replay takes is another one, and the time of others matters.
const OTHER_TIME: f64 = 0.05;

/// How far a workload is what was recorded.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Fidelity {
    /// Threads that became tasks.
    pub threads: u32,
    /// Threads that neither ran nor woke anybody, and became none.
    pub silent: u32,
    /// Their CPU time, ns.
    pub cpu_ns: u64,
    /// CPU time of threads that were left out, ns.
    pub other_cpu_ns: u64,
    /// Length of the recording, ns.
    pub span_ns: u64,
    /// When the last of the threads left its CPU, from the recording's start, ns.
    pub recorded_ns: u64,
    /// How long the replay takes, alone on the machine of the recording, ns; none where it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed_ns: Option<u64>,
    /// The CPUs that the threads had, where the replay takes another time.
    #[serde(skip)]
    pub occupied: Option<Occupied>,
    /// Sleeps that ended within the recording.
    pub waits: u64,
    /// Of those, ended by another of the threads.
    pub by_thread: u64,
    /// Of those, while a softirq ran in that thread's stead.
    pub by_softirq: u64,
    /// Ended by an interrupt, the kernel or a thread outside, and replayed as a time counted from the start.
    pub at_times: u64,
    /// The same, replayed as a sleep of the same length.
    pub for_durations: u64,
    /// Ended by what the recording does not tell; replayed as a time, or as a sleep of the same length where a thread has few of them.
    pub unknown: u64,
    /// What keeps its recorded times, so that no schedule ends the replay earlier; none if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Threads that take requests of one queue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// Requests that came on connections, where calls were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Served>,
    /// From a wakeup until the thread ran on a CPU that was idle, mean, ns; none if that never happened.
    pub idle_wakeup_ns: Option<u64>,
    /// Time that the threads were ready to run while another ran on the CPU that they got, of all together, ns.
    pub queued_ns: u64,
    /// Requests of common queues, where the replay has such and measures them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooled: Option<Pooled>,
    /// Threads that were no fair tasks; none if all were, or the recording does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
    /// Kernel's own time that could not be taken off, because a thread ran for less than that, ns.
    pub overhead_left_ns: u64,
    /// Events that the recorder lost, as far as it counted them.
    pub events_lost: u64,
    /// Whether more were lost without being counted.
    pub more_lost: bool,
    /// Switches that a CPU did not record, and that stand where the thread was queued.
    pub switches_assumed: u64,
}

/// Requests of common queues, from being added until their thread was free again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pooled {
    /// As recorded. One that found no thread waiting is part of the one before.
    pub recorded: Latencies,
    /// In the replay, alone on the machine of the recording; none where it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Latencies>,
}

impl Pooled {
    fn sentence(&self) -> String {
        let alone = self.replayed.as_ref().map_or_else(String::new, |replayed| {
            format!("; alone on the machine of the recording {} take {}", replayed.count, replayed.words())
        });
        format!(
            "{} requests of common queues took {} from being added until their thread was free; the replay measures them \
             (`recorder_{RECORDER}_p99_ns`){alone}",
            self.recorded.count,
            self.recorded.words()
        )
    }
}

/// A thread whose waits from outside end at their recorded times.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Held {
    /// The thread.
    pub thread: i32,
    /// Its name.
    pub name: String,
    /// How many of its waits do.
    pub waits: u64,
    /// The first of these times, from the start, ns.
    pub from_ns: u64,
    /// The last one.
    pub until_ns: u64,
}

impl Held {
    /// One more wait ends at its time.
    pub(crate) fn keep(&mut self, at_ns: u64) {
        self.from_ns = if self.waits == 0 { at_ns } else { self.from_ns };
        (self.waits, self.until_ns) = (self.waits + 1, at_ns);
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl Fidelity {
    /// What is known before anything is made of the histories.
    pub(crate) fn of(histories: &Histories, recording: &Recording) -> Self {
        let (events_lost, more_lost) = recording.events_lost();
        Self {
            threads: histories.threads.values().filter(|history| history.did_something()).count() as u32,
            silent: histories.threads.values().filter(|history| !history.did_something()).count() as u32,
            cpu_ns: histories.threads.values().map(|history| history.cpu_ns).sum(),
            other_cpu_ns: histories.other_cpu_ns,
            span_ns: histories.span_ns,
            recorded_ns: histories.threads.values().map(|history| history.end_ns).max().unwrap_or(0),
            idle_wakeup_ns: histories.idle_wakeups.1.checked_div(histories.idle_wakeups.0),
            queued_ns: histories.queued_ns,
            events_lost,
            more_lost,
            switches_assumed: recording.switches_assumed,
            realtime: Realtime::of(histories),
            service: Served::of(&histories.service),
            ..Self::default()
        }
    }

    /// What a reader of a result must know, one sentence each: what it is made of, and [reservations](Self::reservations).
    pub fn sentences(&self) -> Vec<String> {
        self.facts().into_iter().chain(self.reservations()).collect()
    }

    fn facts(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} threads, {:.1} % of the CPU time used in the recording; {} waits, of which {:.1} % for a signal of a known thread, {:.1} % until \
             a time, {:.1} % for a duration",
            self.threads,
            percent(self.cpu_ns, self.cpu_ns + self.other_cpu_ns),
            self.waits,
            percent(self.by_thread, self.waits),
            percent(self.at_times + self.unknown, self.waits),
            percent(self.for_durations, self.waits),
        )];
        if self.silent > 0 {
            lines.push(format!("{} threads did nothing while it was recorded: they are left out", self.silent));
        }
        if let Some(Held { thread, name, waits, from_ns, until_ns }) = &self.held {
            let seconds = |ns: u64| ns as f64 / 1e9;
            lines.push(format!(
                "arrivals from outside keep their times, so a replay takes at least {:.3} s (recorded: {:.3} s). The last are those of \
                 {name} ({thread}), {waits} from {:.3} s on",
                seconds(*until_ns),
                seconds(self.span_ns),
                seconds(*from_ns)
            ));
        }
        lines.extend(self.pools.iter().map(Pool::sentence));
        lines.extend(self.pooled.iter().map(Pooled::sentence));
        lines.extend(self.service.iter().flat_map(Served::sentences));
        if let Some(ns) = self.idle_wakeup_ns {
            lines.push(format!(
                "a thread that was woken onto an idle CPU ran {:.1} us later on average: on a machine that takes another time for that \
                 (`idle_exit_ns` and `ipi_ns` of its costs) the replay takes another time too",
                ns as f64 / 1e3
            ));
        }
        lines
    }

    /// How much more than recorded the replay takes, alone on the machine of the recording, as a part of that; none if it is about the same,
    /// or it was not tried.
    pub fn takes_another_time(&self) -> Option<f64> {
        let share = self.replayed_ns? as f64 / self.recorded_ns.max(1) as f64 - 1.0;
        (share.abs() > OTHER_TIME).then_some(share)
    }

    /// What may make it another workload than what was recorded, a sentence each without a full stop.
    pub fn reservations(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.realtime.into_iter().flat_map(Realtime::sentences).collect();
        if let (Some(replayed_ns), Some(share)) = (self.replayed_ns, self.takes_another_time()) {
            let delayed = self.occupied.filter(|_| share < 0.0);
            let cause = delayed.and_then(|occupied| occupied.cause(OTHER_TIME * self.recorded_ns as f64));
            lines.push(format!(
                "alone on the machine of the recording it takes {:.3} s, {:.0} % {} than recorded ({:.3} s): {}",
                replayed_ns as f64 / 1e9,
                100.0 * share.abs(),
                if share < 0.0 { "less" } else { "more" },
                self.recorded_ns as f64 / 1e9,
                cause.as_deref().unwrap_or(
                    "a wait was not what it is replayed as, or something delayed these threads that the replay does not have"
                )
            ));
        }
        if self.queued_ns as f64 > QUEUED * self.cpu_ns as f64 {
            lines.push(format!(
                "its threads waited for a CPU for {:.0} % as long as they ran. A thread that finds work after such a wait did not sleep for it, and its \
                 replay does not wait for it either (record on a computer with CPUs to spare)",
                percent(self.queued_ns, self.cpu_ns)
            ));
        }
        if self.unknown > 0 {
            let share = percent(self.unknown, self.waits);
            lines.push(format!(
                "who ended {} waits ({share:.1} %) is not recorded: they end at their recorded times, whatever the schedule is, or, where a \
                 thread has fewer than {}, after as long as they took",
                self.unknown,
                Sleeps::FEWEST
            ));
        }
        if self.by_softirq > 0 {
            lines.push(format!("{} signals were made by softirqs: some of them may be chance", self.by_softirq));
        }
        if self.switches_assumed > 0 {
            lines.push(format!(
                "{} switches out of idle were not recorded and are placed where the thread was queued: it ran less than that",
                self.switches_assumed
            ));
        }
        if self.events_lost > 0 || self.more_lost {
            let lost = lost_in_words(self.events_lost, self.more_lost);
            lines.push(format!("the recorder lost {lost} events: waits and CPU time near them are wrong"));
        }
        if self.overhead_left_ns * 100 > self.cpu_ns {
            lines.push(format!(
                "threads ran so shortly between two waits that {:.1} % of the kernel's costs could not be taken off: it is replayed slower \
                 than it was",
                percent(self.overhead_left_ns, self.cpu_ns)
            ));
        }
        lines
    }
}
