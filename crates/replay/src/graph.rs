//! Who wakes whom, and how much of that is more than chance.
//!
//! An edge is a pair of threads that wake each other, in one direction or both. A wakeup by a thread itself counts. One by a softirq
//! that came while a thread ran counts only if that thread was hit more often than its share of all CPU time explains. Hard interrupts
//! count for nobody.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use warmcore_capture::{Call, Context, Recording, What};

use crate::history::Histories;

/// Parts that a recording is cut into to see whether something lasts.
pub const PARTS: usize = 4;
/// Fewer wakeups than this are no evidence: a thread's end wakes whoever waits for it.
const FEWEST: u64 = 5;
/// Fewer than this are none if they are all in one part.
const FEWEST_IN_ONE_PART: u64 = 50;
/// Softirq wakeups must exceed so many times what chance explains.
const TIMES_CHANCE: f64 = 2.0;

/// Two threads that wake each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Edge {
    /// The thread with the smaller id.
    pub a: i32,
    /// The other.
    pub b: i32,
    /// How often `a` woke `b`.
    pub a_wakes_b: u64,
    /// How often `b` woke `a`.
    pub b_wakes_a: u64,
    /// Of both, by a softirq while the waker ran.
    pub by_softirq: u64,
    /// Of both, in each part of the recording.
    pub parts: [u64; PARTS],
}

impl Edge {
    /// Wakeups in both directions.
    pub fn wakes(&self) -> u64 {
        self.a_wakes_b + self.b_wakes_a
    }
}

/// Through what one thread woke another: the last call that it had begun, as far as calls were recorded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Medium {
    /// Who woke.
    pub waker: i32,
    /// Whom.
    pub woken: i32,
    /// By which call.
    pub call: Call,
    /// Address of the futex, or number of the file in the waker's process.
    pub object: u64,
    /// What that file is, such as `pipe:[12]` or `socket:[34] (tcp 127.0.0.1:6379 to 127.0.0.1:50000)`, where the recorder saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Whether the woken thread's process was seen to have the same file open, or the other end of the socket.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// How often.
    pub wakes: u64,
}

/// Threads and what connects them.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Graph {
    /// Threads that the recording heard of, by id.
    pub threads: Vec<i32>,
    /// In order of threads.
    pub edges: Vec<Edge>,
    /// Wakeups between these threads that are no evidence: too few, or chance.
    pub discarded: u64,
    /// Wakeups of these threads by anything else.
    pub from_outside: u64,
    /// Through what, in order of threads; empty where no calls were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Medium>,
}

impl Graph {
    /// Of the chosen threads of a recording.
    pub fn of(recording: &Recording, chosen: &BTreeSet<i32>, histories: &Histories) -> Self {
        let (start, end) = recording.span_ns();
        let part = |time: u64| ((time - start) as u128 * PARTS as u128 / (u128::from(end - start) + 1)) as usize;
        // By waker and woken: by the thread itself, and by softirqs.
        let mut found: BTreeMap<(i32, i32), [[u64; PARTS]; 2]> = BTreeMap::new();
        let mut by_softirq: BTreeMap<i32, u64> = BTreeMap::new();
        let mut from_outside = 0;
        for record in recording.in_order() {
            let What::Waking { thread, .. } = record.what else { continue };
            if !chosen.contains(&thread) {
                continue;
            }
            let soft = record.context == Context::SoftInterrupt;
            if soft {
                *by_softirq.entry(thread).or_default() += 1;
            }
            match record.waker().filter(|waker| chosen.contains(waker)) {
                Some(waker) => {
                    found.entry((waker, thread)).or_default()[usize::from(soft)][part(record.time_ns)] += 1;
                }
                None => from_outside += 1,
            }
        }
        let all_cpu_ns = histories.span_ns.saturating_mul(u64::from(recording.cpus)).max(1);
        let mut edges: BTreeMap<(i32, i32), Edge> = BTreeMap::new();
        let mut discarded = 0;
        for ((waker, woken), [own, soft]) in found {
            let cpu_ns = histories.threads.get(&waker).map_or(0, |history| history.cpu_ns);
            let hits = soft.iter().sum::<u64>();
            let chance = by_softirq.get(&woken).copied().unwrap_or(0) as f64 * cpu_ns as f64 / all_cpu_ns as f64;
            let counts = hits >= FEWEST && hits as f64 > TIMES_CHANCE * chance;
            if !counts {
                discarded += hits;
            }
            let (a, b) = (waker.min(woken), waker.max(woken));
            let empty = Edge { a, b, a_wakes_b: 0, b_wakes_a: 0, by_softirq: 0, parts: [0; PARTS] };
            let edge = edges.entry((a, b)).or_insert(empty);
            let hits = if counts { hits } else { 0 };
            edge.by_softirq += hits;
            *(if waker == a { &mut edge.a_wakes_b } else { &mut edge.b_wakes_a }) += own.iter().sum::<u64>() + hits;
            for (index, count) in edge.parts.iter_mut().enumerate() {
                *count += own[index] + if counts { soft[index] } else { 0 };
            }
        }
        let lasts = |edge: &Edge| {
            let parts = edge.parts.iter().filter(|count| **count > 0).count();
            edge.wakes() >= if parts > 1 { FEWEST } else { FEWEST_IN_ONE_PART }
        };
        discarded += edges.values().filter(|edge| !lasts(edge)).map(Edge::wakes).sum::<u64>();
        Self {
            threads: histories.threads.keys().copied().collect(),
            edges: edges.into_values().filter(lasts).collect(),
            discarded,
            from_outside,
            media: media(recording, chosen),
        }
    }

    /// The same threads with the wakeups of these parts only.
    pub(crate) fn in_parts(&self, parts: std::ops::Range<usize>) -> Vec<(i32, i32, u64)> {
        self.edges.iter().map(|edge| (edge.a, edge.b, edge.parts[parts.clone()].iter().sum())).collect()
    }
}

/// Through what the chosen threads woke each other. A thread that is woken while the waker itself runs was woken by the call that the waker
/// began last, if that is one that wakes.
fn media(recording: &Recording, chosen: &BTreeSet<i32>) -> Vec<Medium> {
    let mut begun: BTreeMap<i32, (Call, u64)> = BTreeMap::new();
    let mut found: BTreeMap<(i32, i32, Call, u64, Option<&str>), u64> = BTreeMap::new();
    let process = |thread: i32| recording.threads.get(&thread).and_then(|thread| thread.process);
    for record in recording.in_order() {
        match record.what {
            What::Call { call, object } => {
                begun.insert(record.by, (call, object));
            }
            What::Waking { thread, .. } if record.context == Context::Thread && chosen.contains(&thread) => {
                let Some(waker) = record.waker().filter(|waker| chosen.contains(waker)) else { continue };
                if let Some(&(call, object)) = begun.get(&waker)
                    && matches!(call, Call::FutexWake | Call::Write)
                {
                    let is_file = matches!(call, Call::Write);
                    let file = process(waker)
                        .filter(|_| is_file)
                        .and_then(|process| recording.files.target(process, object, record.time_ns));
                    *found.entry((waker, thread, call, object, file)).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    let medium = |((waker, woken, call, object, file), wakes): ((_, _, _, _, Option<&str>), u64)| Medium {
        waker,
        woken,
        call,
        object,
        file: file.map(|target| recording.files.describe(target)),
        shared: file.zip(process(woken)).is_some_and(|(target, woken)| recording.files.reaches(target, woken)),
        wakes,
    };
    found.into_iter().map(medium).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_capture::Record;

    #[test]
    fn a_wakeup_is_through_the_call_that_the_waker_began_last() {
        let record = |time_ns, by, what| Record { time_ns, cpu: 0, by, context: Context::Thread, what };
        let call = |time_ns, by, call, object| record(time_ns, by, What::Call { call, object });
        let waking = |time_ns, by, thread| record(time_ns, by, What::Waking { thread, target_cpu: 0 });
        let records = vec![
            waking(1, 10, 11),
            call(2, 10, Call::FutexWake, 0x7f00),
            waking(3, 10, 11),
            call(4, 11, Call::Write, 5),
            waking(5, 11, 10),
            waking(6, 10, 11),
            call(7, 10, Call::Read, 4),
            waking(8, 10, 11),
        ];
        let mut recording = Recording { records, ..Recording::default() };
        for (thread, process) in [(10, 1), (11, 2)] {
            recording.process(thread, process);
        }
        recording.files.saw(0, 2, 5, "pipe:[77]");
        recording.files.saw(0, 1, 8, "pipe:[77]");
        let found = media(&recording, &BTreeSet::from([10, 11]));
        let expected = [
            Medium { waker: 10, woken: 11, call: Call::FutexWake, object: 0x7f00, file: None, shared: false, wakes: 2 },
            Medium {
                waker: 11,
                woken: 10,
                call: Call::Write,
                object: 5,
                file: Some("pipe:[77]".into()),
                shared: true,
                wakes: 1,
            },
        ];
        assert_eq!(found, expected, "what came before any call, and behind one that wakes nobody, is not told");
    }
}
