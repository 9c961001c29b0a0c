//! For what threads waited: the object that the calls name which both threads of a wakeup had begun, or, of a thread that waited for any of
//! several files, the one that it turns to next.
//!
//! A wait for a socket that listens is known by its `accept`, whoever made the connection: a thread, or a softirq with a packet from elsewhere.
//! Connections from outside come at their recorded times. Where several threads wait for them, nobody's time is the connection's alone, so
//! a task of its own brings them ([`dispatched`]) to whoever is free.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use warmcore_capture::{Call, OpenFiles};

use crate::history::{Action, Cause, Histories, History};
use crate::pools::{FEWEST, SINGLE};
use crate::service::Waited;
use crate::signals::{Object, Signal};
use crate::sleeps::Sleeps;

/// Name of the task that brings connections from outside.
const ARRIVALS: &str = "arrivals";
/// More than any thread's number (`PID_MAX_LIMIT` of Linux 6.18, 2²²).
const ABOVE_THREADS: i32 = (1 << 22) + 1;
/// Threads that are woken at one socket within this time, ns, were woken by one connection: all are, of those that wait for several files
/// without `EPOLLEXCLUSIVE`, one behind the other in one softirq.
const AT_ONCE_NS: u64 = 20_000;

/// A call that a thread of a known process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastCall {
    pub(crate) call: Call,
    pub(crate) object: u64,
    pub(crate) time_ns: u64,
    pub(crate) process: i32,
}

/// A wait that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Over {
    pub(crate) waited: Waited,
    /// The call that the thread had begun which ended it.
    pub(crate) caller: Option<LastCall>,
    /// Whether a softirq did, while that thread ran.
    pub(crate) by_softirq: bool,
}

impl Over {
    /// Whether a connection from outside ended a wait for a socket that listens: no thread did, or a softirq in the stead of one that had
    /// asked for no connection.
    fn is_from_outside(&self) -> bool {
        !self.waited.inside || self.by_softirq && self.caller.is_none_or(|begun| begun.call != Call::Connect)
    }
}

/// A wait of a thread for a socket that listens, which a connection from outside ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The thread.
    pub thread: i32,
    /// Which of its actions.
    pub block: usize,
    /// Since when it waited, from the recording's start, ns.
    pub asleep_ns: u64,
    /// Until when.
    pub at_ns: u64,
    /// The socket: index into [`Histories::objects`].
    pub object: u32,
}

/// What is known at the end of a recording.
#[derive(Debug)]
pub(crate) struct Found {
    /// Objects in order of their numbers, and which of them are sockets that listen.
    pub(crate) objects: Vec<Object>,
    pub(crate) listening: BTreeSet<u32>,
    /// Waits for connections from outside.
    pub(crate) accepted: Vec<Accepted>,
    /// Those of them that are signals by chance.
    pub(crate) chance: Vec<Waited>,
}

/// Objects, with their numbers, which follow the order in which they are met.
#[derive(Debug)]
pub(crate) struct Objects<'a> {
    files: &'a OpenFiles,
    numbers: BTreeMap<Object, u32>,
    /// Objects that a thread turned to after a wait for any of several files: these threads, and the signals that ended the waits.
    polled: BTreeMap<u32, (BTreeSet<i32>, Vec<usize>)>,
    /// Those that are sockets which listen.
    listening: BTreeSet<u32>,
    accepted: Vec<Accepted>,
    /// Waits of [`Objects::accepted`] that chance made signals of a thread.
    chance: Vec<Waited>,
}

impl<'a> Objects<'a> {
    pub(crate) fn new(files: &'a OpenFiles) -> Self {
        Self {
            files,
            numbers: BTreeMap::new(),
            polled: BTreeMap::new(),
            listening: BTreeSet::new(),
            accepted: Vec::new(),
            chance: Vec::new(),
        }
    }

    /// A thread's wait is over, before which it had begun a call: says for what it was, if that call tells.
    pub(crate) fn over(&mut self, over: Over, waited: LastCall, signals: &mut [Signal]) {
        let Some(object) = self.object(over, waited) else { return };
        if let Some(signal) = self.signal(over, waited.call, object) {
            signals[signal].object = Some(object);
        }
    }

    /// What the thread turns to after a wait for any of several files.
    pub(crate) fn turns(&mut self, over: Over, next: LastCall) {
        let Some(object) = self.object(over, next) else { return };
        let signal = self.signal(over, next.call, object);
        let (threads, signals) = self.polled.entry(object).or_default();
        threads.insert(over.waited.thread);
        signals.extend(signal);
    }

    /// The signal that ended a wait, unless it was for a connection from outside, which is noted.
    fn signal(&mut self, over: Over, call: Call, object: u32) -> Option<usize> {
        let Waited { thread, block, since_ns: asleep_ns, at_ns, by, .. } = over.waited;
        if call == Call::Accept && over.is_from_outside() {
            self.accepted.push(Accepted { thread, block, asleep_ns, at_ns, object });
            self.chance.extend(by.map(|_| over.waited));
            return None;
        }
        by.map(|(.., signal)| signal)
    }

    fn object(&mut self, over: Over, waited: LastCall) -> Option<u32> {
        let asks = || over.caller.is_some_and(|begun| begun.call == Call::Connect);
        // Whatever else a thread does to one that waits for connections, such as kill it, is none.
        if waited.call == Call::Accept && !over.is_from_outside() && !asks() {
            return None;
        }
        let object = self.between(over.caller, waited)?;
        if waited.call == Call::Accept {
            self.listening.insert(object);
        }
        Some(object)
    }

    fn between(&mut self, waker: Option<LastCall>, waited: LastCall) -> Option<u32> {
        let target = |begun: LastCall| self.files.target(begun.process, begun.object, begun.time_ns);
        let number = || Object::Number(waited.process, waited.object);
        let object = match (waker, waited.call) {
            (_, Call::Accept) => target(waited).map_or_else(number, |file| Object::File(file.to_owned())),
            (Some(waker), Call::FutexWait) if waker.call == Call::FutexWake && waker.object == waited.object => {
                Object::Futex(waited.process, waited.object)
            }
            (Some(waker), Call::Read) if waker.call == Call::Write => match (target(waker), target(waited)) {
                // All event counters had one name before their numbers were read.
                (Some(written), Some(read))
                    if written.ends_with(']') && read.ends_with(']') && !read.contains("anon_inode") =>
                {
                    let peer = self.files.sockets.get(written).and_then(|socket| socket.peer.as_deref());
                    (written == read || peer == Some(read)).then(|| Object::File(read.to_owned()))?
                }
                (Some(written), Some(read))
                    if written != read || (waker.process, waker.object) != (waited.process, waited.object) =>
                {
                    return None;
                }
                _ if waker.process == waited.process => number(),
                _ => return None,
            },
            _ => return None,
        };
        let next = self.numbers.len() as u32;
        Some(*self.numbers.entry(object).or_insert(next))
    }

    /// All that was found. What one thread alone turned to after a wait for several files is its own business, and no object of its signals.
    pub(crate) fn finish(self, signals: &mut [Signal]) -> Found {
        for (object, (threads, of_object)) in self.polled {
            if threads.len() > 1 {
                of_object.into_iter().for_each(|signal| signals[signal].object = Some(object));
            }
        }
        let mut objects: Vec<(Object, u32)> = self.numbers.into_iter().collect();
        objects.sort_by_key(|(_, number)| *number);
        let objects = objects.into_iter().map(|(object, _)| object).collect();
        Found { objects, listening: self.listening, accepted: self.accepted, chance: self.chance }
    }
}

fn at_once(before_ns: u64, at_ns: u64) -> bool {
    at_ns - before_ns < AT_ONCE_NS
}

/// Connections that several threads took from one socket.
struct Taken {
    object: u32,
    threads: BTreeSet<i32>,
    /// Those from outside, in order of time.
    accepted: Vec<Accepted>,
}

/// Sockets from which several threads took connections, one with each.
fn taken(histories: &Histories) -> Vec<Taken> {
    let mut found: BTreeMap<u32, (Taken, usize)> = BTreeMap::new();
    let empty = |object| (Taken { object, threads: BTreeSet::new(), accepted: Vec::new() }, 0);
    let known = |object: &u32| histories.listening.contains(object);
    for signal in &histories.signals {
        let Some(object) = signal.object.filter(known) else { continue };
        let (taken, count) = found.entry(object).or_insert_with(|| empty(object));
        taken.threads.insert(signal.woken);
        *count += 1;
    }
    for accepted in &histories.accepted {
        let (taken, count) = found.entry(accepted.object).or_insert_with(|| empty(accepted.object));
        taken.threads.insert(accepted.thread);
        taken.accepted.push(*accepted);
        *count += 1;
    }
    let common = |(mut taken, count): (Taken, usize)| {
        taken.accepted.sort_by_key(|one| (one.at_ns, one.asleep_ns));
        let at_once = taken.accepted.windows(2).filter(|pair| at_once(pair[0].at_ns, pair[1].at_ns)).count();
        let is_common = taken.threads.len() > 1 && count >= FEWEST && at_once as f64 <= (1.0 - SINGLE) * count as f64;
        is_common.then_some(taken)
    };
    found.into_values().filter_map(common).collect()
}

/// Histories in which connections from outside that several threads wait for are brought by a task of their own: it sleeps until each of their times, and
/// wakes the thread that took it. Others are as they were.
pub(crate) fn dispatched(histories: &Histories) -> Cow<'_, Histories> {
    let sockets = taken(histories);
    if sockets.is_empty() {
        return Cow::Borrowed(histories);
    }
    let mut made = histories.clone();
    for (next, Taken { object, threads, accepted }) in (ABOVE_THREADS..).zip(sockets) {
        let (mut actions, mut before_ns) = (Vec::with_capacity(2 * accepted.len()), None);
        for Accepted { thread, block, asleep_ns, at_ns, .. } in accepted {
            let slept_ns = at_ns - before_ns.unwrap_or(0);
            let more = before_ns.replace(at_ns).is_some_and(|before| at_once(before, at_ns));
            let (interrupt, uninterruptible, asked) = (true, false, Some(Sleeps::Arrival));
            actions.push(Action::Block(Cause::Outside { at_ns, slept_ns, interrupt, uninterruptible, asked }));
            actions.push(Action::Wake { thread });
            if let Some(wait) = made.threads.get_mut(&thread).and_then(|history| history.actions.get_mut(block)) {
                let slept_ns = at_ns - asleep_ns;
                *wait = Action::Block(Cause::Signal { waker: next, soft_interrupt: false, slept_ns });
            }
            made.signals.push(Signal { waker: next, woken: thread, asleep_ns, at_ns, object: Some(object), more });
        }
        for thread in threads {
            made.threads.get_mut(&thread).into_iter().for_each(takes_connections);
        }
        if let Some(end_ns) = before_ns {
            actions.push(Action::Exit);
            made.threads.insert(next, History { name: ARRIVALS.into(), actions, end_ns, ..History::default() });
        }
    }
    made.signals.sort_by_key(|signal| signal.at_ns);
    Cow::Owned(made)
}

/// Whatever else a thread waits for, once it has a connection, takes as long as it took after that.
fn takes_connections(history: &mut History) {
    for action in &mut history.actions {
        match action {
            Action::Block(Cause::Outside { asked, .. }) if *asked != Some(Sleeps::At) => *asked = Some(Sleeps::For),
            Action::Arrive { keeps, .. } => *keeps = false,
            _ => {}
        }
    }
}
