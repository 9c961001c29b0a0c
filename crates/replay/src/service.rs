//! Requests that arrive on connections, and how long each took until its answer left.
//!
//! *Arrival*: the wakeup that ended a thread's wait for a connection: in a read of it, or in a call that waits for several files, after
//! which the thread read from it. Where the kernel recorded since when there was something to receive, it is that time, whether a thread
//! waited or not. *Answer*: the beginning of the first call after that which wrote to the connection, whichever thread
//! made it. Connections are sockets of recorded calls (`socket:[INODE]`). A wait that a timer or a disk ended is none for a connection.
//!
//! Which end of a connection serves: that of a port or path on which somebody listens; elsewhere the one that is read first. The other end
//! of one that serves, if it is recorded too, is the client's, whatever is seen of it first: a file's name may be known only after the first request. The time
//! from its write until the wakeup of its reader is the client's view of the same requests.
//!
//! Requests that overlap on one connection count once, from the first arrival to the first answer.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use warmcore_capture::{Call, OpenFiles};
use warmcore_trace::Histogram;

use crate::arrivals::{Client, Held, Marks, is_closed};
use crate::sleeps::Sleeps;

/// Of fewer events than this no high percentile is told, as in verdicts.
const FEWEST_FOR_PERCENTILES: u64 = 100;

/// Name of a replay's recorder of these latencies.
pub const RECORDER: &str = "request";

/// Requests of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// Those whose arrival and answer are known, in order of answers.
    pub requests: Vec<Request>,
    /// Connections that they came on.
    pub connections: u64,
    /// Answers to what was read without waiting: it was there already, and since when is not known.
    pub found_awake: u64,
    /// Requests without an answer at the end.
    pub unanswered: u64,
    /// Waits in a read of a file whose name is not known.
    pub unnamed: u64,
    /// What clients of these connections waited, ns.
    pub clients_ns: Vec<u64>,
}

impl Service {
    /// When each request arrived, and its latency, ns.
    pub fn samples(&self) -> Vec<(u64, u64)> {
        self.requests.iter().map(|request| (request.arrived_ns, request.latency_ns())).collect()
    }
}

/// A request whose arrival and answer are known, in ns from the recording's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When its arrival woke a thread.
    pub arrived_ns: u64,
    /// When the call began that answered it.
    pub answered_ns: u64,
}

impl Request {
    /// From the one to the other, ns.
    pub fn latency_ns(&self) -> u64 {
        self.answered_ns - self.arrived_ns
    }
}

/// Latencies in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Latencies {
    /// How many.
    pub count: u64,
    /// Median, ns; none if there are none.
    pub median_ns: Option<u64>,
    /// 99th percentile, ns; none of fewer than a hundred.
    pub p99_ns: Option<u64>,
}

impl Latencies {
    /// In the buckets of a run's recorders, so that the two can be compared.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Self {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.record(value));
        Self::new(histogram.count(), histogram.quantile(0.5), histogram.quantile(0.99))
    }

    /// Of so many, with a percentile that is not told of few.
    pub fn new(count: u64, median_ns: Option<u64>, p99_ns: Option<u64>) -> Self {
        Self { count, median_ns, p99_ns: p99_ns.filter(|_| count >= FEWEST_FOR_PERCENTILES) }
    }

    /// Median and percentile in words.
    pub(crate) fn words(&self) -> String {
        let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
        let median = self.median_ns.map_or_else(|| "none".into(), us);
        match self.p99_ns {
            Some(p99_ns) => format!("median {median}, p99 {}", us(p99_ns)),
            None => format!("median {median}, no p99 of fewer than {FEWEST_FOR_PERCENTILES}"),
        }
    }
}

/// What is told of the requests of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Served {
    /// Latencies of those whose arrival and answer are known.
    pub latency: Latencies,
    /// Connections that they came on.
    pub connections: u64,
    /// Left out: answers to what was read without waiting.
    pub found_awake: u64,
    /// Left out: requests without an answer at the end.
    pub unanswered: u64,
    /// Left out: waits in a read of a file whose name is not known.
    pub unnamed: u64,
    /// What clients waited, where they were recorded too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Latencies>,
    /// How many of the requests the replay measures: those below, and those that one thread took and answered, outside of common queues.
    pub measured: u64,
    /// How many of these come at their recorded times, from clients that are not in the replay.
    pub open: u64,
    /// Latencies of the replay, alone on the machine of the recording; none where it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Latencies>,
}

impl Served {
    /// None where no request was found.
    pub(crate) fn of(service: &Service) -> Option<Self> {
        let Service { requests, connections, found_awake, unanswered, unnamed, clients_ns } = service;
        let clients = (!clients_ns.is_empty()).then(|| Latencies::of(clients_ns.iter().copied()));
        (requests.len() as u64 + found_awake > 0).then(|| Self {
            latency: Latencies::of(requests.iter().map(Request::latency_ns)),
            connections: *connections,
            found_awake: *found_awake,
            unanswered: *unanswered,
            unnamed: *unnamed,
            clients,
            measured: 0,
            open: 0,
            replayed: None,
        })
    }

    /// What a reader must know, one sentence each.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let Self { latency, connections, found_awake, unanswered, unnamed, clients, measured, open, replayed } = self;
        let mut lines = vec![format!(
            "{} requests on {connections} connections took {} from the wakeup by their arrival to the call that answers; left out: {found_awake} \
             that were there before their thread waited, {unanswered} without an answer, {unnamed} waits for files without a name",
            latency.count,
            latency.words()
        )];
        lines.extend(clients.as_ref().map(|clients| {
            format!("their clients, recorded too, waited {} times for an answer: {}", clients.count, clients.words())
        }));
        if latency.count > 0 {
            let alone = replayed.as_ref().map_or_else(String::new, |replayed| {
                format!("; alone on the machine of the recording {} take {}", replayed.count, replayed.words())
            });
            lines.push(format!(
                "the replay measures {measured} of them (`recorder_{RECORDER}_p99_ns`): {open} that come at their recorded times, from \
                 clients that are not in it, and those that one thread took and answered, outside of common queues{alone}"
            ));
        }
        lines
    }
}

/// A wait that is over, or the receipt of what was there before: the action of its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waited {
    pub(crate) thread: i32,
    pub(crate) block: usize,
    /// Since when it waited.
    pub(crate) since_ns: u64,
    /// When it was woken, or there was something to receive.
    pub(crate) at_ns: u64,
    /// Whether one of the chosen threads did that.
    pub(crate) inside: bool,
    /// That thread, which of its actions it was, and which of all signals.
    pub(crate) by: Option<(i32, usize, usize)>,
}

/// Something to receive: since when, and whether one of the chosen threads sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    pub(crate) at_ns: u64,
    pub(crate) inside: bool,
}

/// A call that answers a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answers<'a> {
    pub(crate) socket: &'a str,
    /// The arrival of the request.
    pub(crate) arrived: Waited,
    /// Whether its client is among the chosen threads.
    pub(crate) inside: bool,
}

/// A call, with the name of its file if it is known.
pub(crate) type Begun<'a> = (Call, Option<&'a str>);

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Server,
    Client,
}

/// What is known of an end at present.
#[derive(Debug)]
struct End {
    role: Role,
    /// The request that waits for its answer.
    arrived: Option<Waited>,
    /// Whether the kernel recorded its arrival.
    exact: bool,
    /// All that arrived, and the answers: thread, its action, and when the request arrived.
    arrivals: Vec<Waited>,
    answers: Vec<(i32, usize, u64)>,
    /// When requests arrived and were answered.
    times: Vec<(u64, u64)>,
    /// Something was read without waiting since the last answer.
    unknown: bool,
    /// When a client sent what was not answered yet, and whether it read since.
    sent: Option<(u64, bool)>,
    requests: u64,
    answers_ns: Vec<u64>,
}

/// Finds requests while a recording is read.
#[derive(Debug)]
pub(crate) struct ServiceReader<'a> {
    files: &'a OpenFiles,
    /// Ports and paths on which somebody listens.
    listening: BTreeSet<&'a str>,
    /// Whether calls that wait for several files were recorded.
    polls: bool,
    held: Held<'a>,
    ends: BTreeMap<&'a str, End>,
    /// By address of the socket: what was not received yet.
    ready: BTreeMap<u64, Ready>,
    service: Service,
}

impl<'a> ServiceReader<'a> {
    /// For the threads of these processes.
    pub(crate) fn new(files: &'a OpenFiles, polls: bool, processes: &BTreeSet<i32>) -> Self {
        let names = files.sockets.values().filter_map(|socket| tcp_ends(&socket.name));
        let listening = names.filter(|(_, to)| port(to) == Some("0")).filter_map(|(from, _)| port(from)).collect();
        let (ends, ready) = (BTreeMap::new(), BTreeMap::new());
        Self { files, listening, polls, held: Held::of(files, processes), ends, ready, service: Service::default() }
    }

    /// A socket has something to receive.
    pub(crate) fn ready(&mut self, socket: u64, ready: Ready) {
        self.ready.entry(socket).or_insert(ready);
    }

    /// What was there to receive was received, or is of no concern. Returns since when it was there.
    pub(crate) fn received(&mut self, socket: u64) -> Option<Ready> {
        self.ready.remove(&socket)
    }

    /// Whether something received is the beginning of a request.
    pub(crate) fn begins_a_request(&mut self, socket: &'a str) -> bool {
        let end = self.end(socket, Role::Server);
        end.unknown = false;
        end.role == Role::Server && !end.exact
    }

    /// The arrival of a request, at a time that the kernel recorded.
    pub(crate) fn arrived_exactly(&mut self, socket: &'a str, waited: Waited) {
        let end = self.end(socket, Role::Server);
        (end.arrived, end.exact) = (Some(waited), true);
        if end.arrivals.last() != Some(&waited) {
            end.arrivals.push(waited);
        }
    }

    /// The end of a connection was received.
    pub(crate) fn closed(&mut self, socket: &'a str) {
        let end = self.end(socket, Role::Server);
        end.unknown = false;
        end.arrived = end.arrived.filter(|_| end.exact);
    }

    /// An answer to a client elsewhere, which is an action of its thread.
    pub(crate) fn answered(&mut self, (thread, action): (i32, usize), answers: Answers<'a>) {
        let end = self.end(answers.socket, Role::Server);
        end.answers.push((thread, action, answers.arrived.at_ns));
    }

    /// A thread begins a call, after another one and perhaps a wait. Returns the request that it answers, if it does.
    pub(crate) fn begun(
        &mut self,
        now: u64,
        call: Begun<'a>,
        before: Option<Begun<'a>>,
        waited: Option<Waited>,
    ) -> Option<Answers<'a>> {
        let mut arrived = None;
        if let Some(waited) = waited {
            if let Some((Call::Read, None)) = before {
                self.service.unnamed += 1;
            }
            arrived = self.waited_for(call, before);
            if let Some(socket) = arrived {
                self.arrived(socket, waited);
            }
        }
        let socket = call.1.filter(|file| is_socket(file))?;
        match call.0 {
            Call::Read => {
                let end = self.end(socket, Role::Server);
                end.unknown |= end.arrived.is_none() && arrived != Some(socket);
                if let Some((_, read)) = &mut end.sent {
                    *read = true;
                }
                None
            }
            Call::Write => self.written(now, socket),
            _ => None,
        }
    }

    /// The connection that a thread waited for between two calls.
    fn waited_for(&self, (call, file): Begun<'a>, before: Option<Begun<'a>>) -> Option<&'a str> {
        let socket = |file: Option<&'a str>| file.filter(|file| is_socket(file));
        let next = socket(file).filter(|_| call == Call::Read);
        match before? {
            (Call::Poll, _) => next,
            // Without a record of what waits for several files it may have been that.
            (Call::Read, file) if self.polls => socket(file),
            (Call::Read, file) => next.or(socket(file)),
            (Call::Write | Call::FutexWake, _) if !self.polls => next,
            _ => None,
        }
    }

    fn arrived(&mut self, socket: &'a str, waited: Waited) {
        let end = self.end(socket, Role::Server);
        end.unknown = false;
        if end.arrivals.last() != Some(&waited) {
            end.arrivals.push(waited);
        }
        match end.role {
            Role::Server => {
                end.arrived.get_or_insert(waited);
            }
            Role::Client => end.answers_ns.extend(end.sent.take().map(|(sent_ns, _)| waited.at_ns - sent_ns)),
        }
    }

    fn written(&mut self, now: u64, socket: &'a str) -> Option<Answers<'a>> {
        let end = self.end(socket, Role::Client);
        if end.role == Role::Client {
            // What was read meanwhile without a wait was the answer.
            end.sent = end.sent.filter(|(_, read)| !read).or(Some((now, false)));
            return None;
        }
        let unknown = std::mem::take(&mut end.unknown);
        let Some(arrived) = end.arrived.take() else {
            self.service.found_awake += u64::from(unknown);
            return None;
        };
        end.requests += 1;
        end.exact = false;
        end.times.push((arrived.at_ns, now));
        self.service.requests.push(Request { arrived_ns: arrived.at_ns, answered_ns: now });
        Some(Answers { socket, arrived, inside: self.is_inside(socket, &arrived) })
    }

    /// Whether what arrived is from a chosen thread.
    fn is_inside(&self, socket: &str, waited: &Waited) -> bool {
        match self.held.client(socket) {
            Client::Inside => true,
            Client::Outside => false,
            Client::Unknown => waited.inside,
        }
    }

    /// An end of a connection; of one that is new, whose name does not tell and whose other end does not serve, the role.
    fn end(&mut self, socket: &'a str, otherwise: Role) -> &mut End {
        let (files, listening) = (self.files, &self.listening);
        let peer = files.sockets.get(socket).and_then(|known| known.peer.as_deref());
        let served = peer.and_then(|peer| self.ends.get(peer)).is_some_and(|peer| peer.role == Role::Server);
        let opposite = served.then_some(Role::Client);
        self.ends.entry(socket).or_insert_with(|| End {
            role: by_name(files, listening, socket).or(opposite).unwrap_or(otherwise),
            arrived: None,
            exact: false,
            arrivals: Vec::new(),
            answers: Vec::new(),
            times: Vec::new(),
            unknown: false,
            sent: None,
            requests: 0,
            answers_ns: Vec::new(),
        })
    }

    /// All requests, and what follows for waits and answers of the threads.
    pub(crate) fn finish(mut self) -> (Service, Marks) {
        let mut marks = Marks::default();
        let ends = std::mem::take(&mut self.ends);
        for (socket, end) in &ends {
            let outside = end.arrivals.iter().filter(|waited| !self.is_inside(socket, waited));
            let open = end.role == Role::Server && !is_closed(&end.times);
            let sleeps = if open { Sleeps::Arrival } else { Sleeps::For };
            marks.waits.extend(outside.map(|waited| (*waited, sleeps)));
            if open {
                marks.answers.extend(&end.answers);
            }
        }
        let Self { files, mut service, .. } = self;
        for (socket, end) in &ends {
            service.connections += u64::from(end.requests > 0);
            service.unanswered += u64::from(end.arrived.is_some());
            let peer = files.sockets.get(*socket).and_then(|socket| socket.peer.as_deref());
            if peer.and_then(|peer| ends.get(peer)).is_some_and(|peer| peer.requests > 0) {
                service.clients_ns.extend(&end.answers_ns);
            }
        }
        (service, marks)
    }
}

pub(crate) fn is_socket(file: &str) -> bool {
    file.starts_with("socket:[")
}

/// Both addresses in the name of a TCP socket.
fn tcp_ends(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("tcp ")?.split_once(" to ")
}

fn port(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(_, port)| port)
}

/// The role that names tell: those of a listener's port, or of its path, which the accepted end has and the other one has not.
fn by_name(files: &OpenFiles, listening: &BTreeSet<&str>, socket: &str) -> Option<Role> {
    let known = files.sockets.get(socket)?;
    if let Some((from, to)) = tcp_ends(&known.name) {
        return match (listening.contains(port(from)?), listening.contains(port(to)?)) {
            (true, false) => Some(Role::Server),
            (false, true) => Some(Role::Client),
            _ => None,
        };
    }
    let named = |name: &str| name.strip_prefix("unix ").is_some_and(|path| !path.is_empty());
    let peer = known.peer.as_ref().and_then(|peer| files.sockets.get(peer));
    match (named(&known.name), peer.is_some_and(|peer| named(&peer.name))) {
        (true, false) => Some(Role::Server),
        (false, true) => Some(Role::Client),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
