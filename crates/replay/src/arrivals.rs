//! Which requests come from outside of the recorded threads, at times that no schedule changes.
//!
//! *Whose client*: that of a connection whose other end a chosen process has is in the replay, and asks when the schedule lets it. Of a TCP
//! connection whose other end is not on this computer, or that other processes have, it is not. Where nothing is known of the other end,
//! the wakeup says it.
//!
//! *Open or closed*: a client outside that is answered before it asks again, and thinks for less time than it waits (medians of a
//! connection), is slowed down by its server: the thread that serves it sleeps for as long as it did. All others ask at their recorded times,
//! and a request that finds its thread late waits in a queue.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_capture::OpenFiles;

use crate::history::{Action, Cause, History};
use crate::service::Waited;
use crate::signals::Signal;
use crate::sleeps::Sleeps;

/// From fewer requests than this on a connection nothing follows for its client.
const FEWEST: usize = 5;
/// At most this part of the requests of a client that waits for answers come before the answer to the one before.
const EARLY: f64 = 0.1;

/// How a request arrived that is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// With this of the same thread's actions: the end of a wait, or [`Action::Arrive`].
    With(usize),
    /// At this time from the recording's start, ns, whatever the schedule is.
    At(u64),
    /// Another thread waited for it.
    Elsewhere,
}

/// Where the client of a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Client {
    /// Among the chosen processes.
    Inside,
    /// Not among them.
    Outside,
    /// Nothing is known of the other end.
    Unknown,
}

/// Files that the chosen processes have.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    files: &'a OpenFiles,
    held: BTreeSet<&'a str>,
}

impl<'a> Held<'a> {
    pub(crate) fn of(files: &'a OpenFiles, processes: &BTreeSet<i32>) -> Self {
        let chosen = files.seen().filter(|(_, process, ..)| processes.contains(process));
        Self { files, held: chosen.map(|(.., target)| target).collect() }
    }

    /// Where the other end of a socket is.
    pub(crate) fn client(&self, socket: &str) -> Client {
        let Some(known) = self.files.sockets.get(socket) else { return Client::Unknown };
        match &known.peer {
            Some(peer) if self.held.contains(peer.as_str()) => Client::Inside,
            Some(_) => Client::Outside,
            // All ends of TCP on this computer are known.
            None if known.name.starts_with("tcp ") => Client::Outside,
            None => Client::Unknown,
        }
    }
}

/// Whether the client of a connection waits for answers, and mostly does nothing else. Requests are pairs of arrival and answer, in order.
pub(crate) fn is_closed(requests: &[(u64, u64)]) -> bool {
    if requests.len() < FEWEST {
        return false;
    }
    let between = || requests.windows(2).map(|pair| (pair[0].1, pair[1].0));
    let early = between().filter(|(answered, next)| next < answered).count();
    let median = |mut times: Vec<u64>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let thought_ns = median(between().map(|(answered, next)| next.saturating_sub(answered)).collect());
    let waited_ns = median(requests.iter().map(|(arrived, answered)| answered - arrived).collect());
    (early as f64) < EARLY * requests.len() as f64 && thought_ns < waited_ns
}

/// What is known of waits and answers when all of a recording was read.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// How waits are replayed that nobody inside ends.
    pub(crate) waits: Vec<(Waited, Sleeps)>,
    /// Answers to requests that keep the times of their arrival: thread, its action, and that time.
    pub(crate) answers: Vec<(i32, usize, u64)>,
}

impl Marks {
    /// Writes it into the histories.
    pub(crate) fn apply(self, threads: &mut BTreeMap<i32, History>, signals: &mut Vec<Signal>) {
        let mut chance: BTreeSet<usize> = BTreeSet::new();
        for (waited, sleeps) in self.waits {
            let Some(action) = action_of(threads, waited.thread, waited.block) else { continue };
            match action {
                Action::Arrive { keeps, .. } => *keeps = sleeps == Sleeps::Arrival,
                Action::Block(Cause::Outside { asked, .. }) => _ = asked.get_or_insert(sleeps),
                // The softirq that brought it ran in the stead of a thread that has nothing to do with it.
                Action::Block(Cause::Signal { soft_interrupt: true, slept_ns, .. }) => {
                    let (at_ns, slept_ns) = (waited.at_ns, *slept_ns);
                    let asked = Some(sleeps);
                    let outside = Cause::Outside { at_ns, slept_ns, interrupt: true, uninterruptible: false, asked };
                    *action = Action::Block(outside);
                    if let Some((waker, wake, signal)) = waited.by {
                        chance.insert(signal);
                        if let Some(wake) = action_of(threads, waker, wake) {
                            *wake = Action::Run { work_ns: 0, returns: 0, wakeups: 1 };
                        }
                    }
                }
                _ => {}
            }
        }
        for (thread, answer, at_ns) in self.answers {
            if let Some(Action::Answer(arrived)) = action_of(threads, thread, answer) {
                *arrived = Arrived::At(at_ns);
            }
        }
        if !chance.is_empty() {
            let mut number = 0..;
            signals.retain(|_| number.next().is_none_or(|number| !chance.contains(&number)));
        }
    }
}

fn action_of(threads: &mut BTreeMap<i32, History>, thread: i32, action: usize) -> Option<&mut Action> {
    threads.get_mut(&thread)?.actions.get_mut(action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_waits_longer_than_it_thinks_is_closed_and_one_that_asks_before_the_answer_is_not() {
        let every = |period: u64, latency: u64| (0..20).map(move |number| (period * number, period * number + latency));
        assert!(is_closed(&every(100, 60).collect::<Vec<_>>()));
        assert!(!is_closed(&every(100, 40).collect::<Vec<_>>()), "it thinks for longer");
        assert!(!is_closed(&every(100, 150).collect::<Vec<_>>()), "it does not wait");
        assert!(!is_closed(&every(100, 60).take(4).collect::<Vec<_>>()), "too few");
    }
}
