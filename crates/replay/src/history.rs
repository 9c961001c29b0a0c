//! What each thread did: how long it ran between the things it did to others, what it waited for, whom it created.
//!
//! A wait is resolved by the wakeup that ended it. If a thread among the chosen ones made it, the wait is for that thread's next
//! signal; if an interrupt, the kernel or a thread outside did, it is for a time. A wakeup of a thread that did not sleep leaves no
//! mark in a kernel's trace, so a message that was there already is not known.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_capture::{Call, Context, Record, Recording, What};
use warmcore_topology::Machine;
use warmcore_trace::PrevState;
use warmcore_workload::LONGEST_NS;

use crate::arrivals::Arrived;
use crate::listening::{Accepted, Found, LastCall, Objects, Over};
use crate::service::{Begun, Ready, Service, ServiceReader, Waited, is_socket};
use crate::signals::{Object, Signal};
use crate::sleeps::{Sleeps, TimerFiles};
use crate::speeds::Speeds;

/// Something that a thread did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ran, whether or not it was preempted meanwhile.
    Run {
        /// Time on CPU, ns, as far as the machine of the recording let it count: all of it on an idle core of the fastest kind.
        work_ns: u64,
        /// How often it came back onto a CPU that another thread had taken from it.
        returns: u32,
        /// How many of the chosen threads an interrupt woke on its CPU meanwhile.
        wakeups: u32,
    },
    /// Woke another of the chosen threads, which was waiting for it.
    Wake {
        /// That thread.
        thread: i32,
    },
    /// Created another of the chosen threads.
    Fork {
        /// That thread.
        child: i32,
    },
    /// Slept.
    Block(Cause),
    /// Received a request that was there before, on a connection for which it did not wait.
    Arrive {
        /// Since when, from the recording's start, ns.
        at_ns: u64,
        /// Whether it comes at that time whatever the schedule is.
        keeps: bool,
    },
    /// Began to answer a request.
    Answer(Arrived),
    /// Ended.
    Exit,
}

// Of a recording of millions of events there are millions.
const _: () = assert!(size_of::<Action>() <= 24, "an action is three words long");

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A signal of another of the chosen threads.
    Signal {
        /// That thread.
        waker: i32,
        /// Whether a softirq made it while that thread ran: a packet on the loopback device, or chance.
        soft_interrupt: bool,
        /// How long it had slept, ns.
        slept_ns: u64,
    },
    /// An interrupt, the kernel, or a thread that is not among the chosen.
    Outside {
        /// When, from the recording's start, ns.
        at_ns: u64,
        /// How long it had slept, ns.
        slept_ns: u64,
        /// Whether it was an interrupt.
        interrupt: bool,
        /// Whether nothing else could have ended it (`D`): a wait for a disk, or for the kernel itself.
        uninterruptible: bool,
        /// What the call by which it slept asked for, where calls were recorded and this one says it.
        asked: Option<Sleeps>,
    },
    /// Nothing that the recording tells: it has no wakers, or they were lost.
    Unknown {
        /// When it went on, from the recording's start, ns.
        at_ns: u64,
        /// How long it had slept, ns.
        slept_ns: u64,
    },
    /// It still slept at the end.
    Never,
}

/// A thread's history.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Name.
    pub name: String,
    /// Process, where it is known.
    pub process: Option<i32>,
    /// Priority, as the kernel numbers it, where it is known.
    pub priority: Option<i32>,
    /// Whether one of the chosen threads created it.
    pub forked: bool,
    /// When it was first heard of, from the recording's start; 0 if it was there from the beginning.
    pub start_ns: u64,
    /// What it did, in order.
    pub actions: Vec<Action>,
    /// Time on CPU.
    pub cpu_ns: u64,
    /// When it last left its CPU, from the recording's start.
    pub end_ns: u64,
    /// Wakeups from outside that found it awake: when, and whether an interrupt made it.
    pub woken_awake: Vec<(u64, bool)>,
}

impl History {
    /// Whether it ran, or woke or created another.
    pub(crate) fn did_something(&self) -> bool {
        self.cpu_ns > 0 || self.actions.iter().any(|action| matches!(action, Action::Wake { .. } | Action::Fork { .. }))
    }
}

/// Histories of the chosen threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histories {
    /// By thread id.
    pub threads: BTreeMap<i32, History>,
    /// CPU time of all other threads, the idle ones left out.
    pub other_cpu_ns: u64,
    /// Length of the recording.
    pub span_ns: u64,
    /// How often a chosen thread was woken onto a CPU that was idle and came onto it next, and the time from the one to the other, ns, of all together.
    pub idle_wakeups: (u64, u64),
    /// Time that chosen threads were ready to run while another ran on the CPU that they got, of all together.
    pub queued_ns: u64,
    /// Waits that another of the threads ended, in order of their ends. Those of one thread are its [`Cause::Signal`]s, those of a pair
    /// their [`Action::Wake`]s, in this order.
    pub signals: Vec<Signal>,
    /// Objects of [`Signal::object`].
    pub objects: Vec<Object>,
    /// Which of them are sockets that listen.
    pub listening: BTreeSet<u32>,
    /// Waits for sockets that listen, ended by connections from outside, in order of their ends.
    pub accepted: Vec<Accepted>,
    /// Requests that came on connections.
    pub service: Service,
}

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Doing {
    /// Nothing was heard of it yet.
    #[default]
    Unheard,
    /// Since when.
    Runnable(u64),
    /// Since when.
    Running(u64),
    /// Since when.
    Asleep(u64),
    Dead,
}

#[derive(Clone, Debug, Default)]
struct State {
    doing: Doing,
    /// Ran since its last action, worked, came back and was interrupted as [`Action::Run`] has it.
    cpu_ns: u64,
    work_ns: f64,
    /// Work in a nanosecond, while it runs.
    speed: f64,
    returns: u32,
    wakeups: u32,
    /// Another thread has its CPU, and it did not sleep.
    preempted: bool,
    /// Whether nothing but what it waits for can end its sleep, a disk for instance.
    uninterruptible: bool,
    /// When it was woken, if it has not run since.
    woken_ns: Option<u64>,
    /// The CPU on which it was queued then, if that was recorded.
    queued_on: Option<u32>,
    /// A wakeup that was recorded just before the switch by which it went to sleep: the two are recorded on two CPUs.
    early: Option<Cause>,
    /// The call that it began last, and how many threads it has woken since.
    begun: Option<LastCall>,
    woke: u32,
    /// The last one that neither made nor took a connection.
    call: Option<(Call, u64, u64)>,
    /// Its last wait, if that was for any of several files and it has begun no call since.
    over: Option<Over>,
    /// What the call that it began last asks of the sleep that follows.
    asked: Option<Sleeps>,
    /// Whether a timer's interrupt woke it last.
    by_timer: bool,
    /// The wait that ended since then, if it may have been for a request.
    waited: Option<Waited>,
    /// The wait that ended last, if it may have been for what is received next.
    woken: Option<Waited>,
    history: History,
}

impl State {
    /// Puts what it ran until now before the next action.
    fn act(&mut self, now: u64, action: Action) {
        self.settle(now);
        if self.cpu_ns > 0 {
            let (returns, wakeups) = (std::mem::take(&mut self.returns), std::mem::take(&mut self.wakeups));
            let work_ns = std::mem::take(&mut self.work_ns).round() as u64;
            self.history.actions.push(Action::Run { work_ns, returns, wakeups });
            self.history.cpu_ns += std::mem::take(&mut self.cpu_ns);
        }
        self.history.actions.push(action);
    }

    fn settle(&mut self, now: u64) {
        if let Doing::Running(since) = &mut self.doing {
            self.cpu_ns += now - *since;
            self.work_ns += (now - *since) as f64 * self.speed;
            *since = now;
            self.history.end_ns = now;
        }
    }
}

/// Histories of these threads of a recording, and of the machine that it was made on, where that is known.
pub fn histories(recording: &Recording, chosen: &BTreeSet<i32>, machine: Option<&Machine>) -> Histories {
    let (start, end) = recording.span_ns();
    let state = |id: &i32| {
        let known = recording.threads.get(id).cloned().unwrap_or_default();
        (
            *id,
            State {
                history: History {
                    name: known.name,
                    process: known.process,
                    priority: recording.priorities.get(id).copied(),
                    ..History::default()
                },
                ..State::default()
            },
        )
    };
    let processes = chosen.iter().map(|id| recording.threads.get(id).and_then(|known| known.process).unwrap_or(*id));
    let mut reader = HistoryReader {
        threads: chosen.iter().map(state).collect(),
        ended: BTreeMap::new(),
        others: BTreeMap::new(),
        running: BTreeMap::new(),
        idle_since: BTreeMap::new(),
        speeds: machine.map(Speeds::of).unwrap_or_default(),
        other_cpu_ns: 0,
        idle_wakeups: (0, 0),
        queued_ns: 0,
        start,
        recording,
        signals: Vec::new(),
        objects: Objects::new(&recording.files),
        timers: TimerFiles::default(),
        service: ServiceReader::new(&recording.files, recording.tally().polls > 0, &processes.collect()),
    };
    for record in recording.in_order() {
        reader.take(&record);
    }
    let span_ns = end - start;
    let (service, mut marks) = reader.service.finish();
    let threads = reader.threads.into_iter().chain(reader.ended).filter_map(|(id, mut state)| {
        match state.doing {
            Doing::Unheard => return None,
            Doing::Asleep(_) => state.act(span_ns, Action::Block(Cause::Never)),
            Doing::Dead => {}
            Doing::Running(_) | Doing::Runnable(_) => state.act(span_ns, Action::Exit),
        }
        Some((id, state.history))
    });
    let (mut threads, mut signals) = (threads.collect(), reader.signals);
    let Found { objects, listening, accepted, chance } = reader.objects.finish(&mut signals);
    // No step of a workload is longer.
    if span_ns <= LONGEST_NS {
        marks.waits.extend(chance.into_iter().map(|waited| (waited, Sleeps::Arrival)));
        marks.apply(&mut threads, &mut signals);
    }
    Histories {
        threads,
        other_cpu_ns: reader.other_cpu_ns,
        span_ns,
        idle_wakeups: reader.idle_wakeups,
        queued_ns: reader.queued_ns,
        signals,
        objects,
        listening,
        accepted,
        service,
    }
}

struct HistoryReader<'a> {
    threads: BTreeMap<i32, State>,
    /// Those whose number another thread has since.
    ended: BTreeMap<i32, State>,
    /// Since when a thread that is not chosen runs, by CPU.
    others: BTreeMap<u32, u64>,
    /// The thread on each CPU.
    running: BTreeMap<u32, i32>,
    /// Since when each CPU is idle, if it became so.
    idle_since: BTreeMap<u32, u64>,
    speeds: Speeds,
    other_cpu_ns: u64,
    idle_wakeups: (u64, u64),
    queued_ns: u64,
    start: u64,
    recording: &'a Recording,
    signals: Vec<Signal>,
    objects: Objects<'a>,
    timers: TimerFiles,
    service: ServiceReader<'a>,
}

impl<'a> HistoryReader<'a> {
    fn take(&mut self, record: &Record) {
        let now = record.time_ns - self.start;
        match record.what {
            What::Switch { prev, state, next, uninterruptible } => {
                self.switch(now, record.cpu, (prev, state, next), uninterruptible);
            }
            What::Waking { thread, .. } => self.waking(now, thread, record),
            What::Wakeup { thread, target_cpu } => {
                self.runnable(now, thread);
                if let Some(thread) = self.threads.get_mut(&thread) {
                    thread.queued_on = Some(target_cpu);
                }
            }
            What::Fork { parent, child } => {
                match self.threads.get(&child) {
                    None => return,
                    // Another thread has its number from now on.
                    Some(known) if known.doing == Doing::Dead => {
                        self.ended.extend(self.threads.remove_entry(&child));
                        return;
                    }
                    Some(_) => {}
                }
                let forked =
                    self.threads.get_mut(&parent).map(|parent| parent.act(now, Action::Fork { child })).is_some();
                if let Some(child) = self.threads.get_mut(&child) {
                    child.doing = Doing::Runnable(now);
                    (child.history.forked, child.history.start_ns) = (forked, now);
                }
            }
            What::Call { call, object } => {
                if let Some(thread) = self.threads.get_mut(&record.by) {
                    let process = thread.history.process.unwrap_or(record.by);
                    let file = self.recording.files.target(process, object, record.time_ns);
                    thread.asked = self.timers.asked(call, (process, object), file);
                    let before = thread.call.replace((call, object, record.time_ns));
                    thread.woke = 0;
                    let begun = thread.history.process;
                    thread.begun = begun.map(|process| LastCall { call, object, time_ns: record.time_ns, process });
                    if let (Some(over), Some(begun)) = (thread.over.take(), thread.begun) {
                        self.objects.turns(over, begun);
                    }
                    if matches!(call, Call::Accept | Call::Connect) {
                        return;
                    }
                    let before = before.map(|(call, object, then)| (call, self.file(process, call, object, then)));
                    self.served(now, record.by, (call, file.filter(|_| call.names_a_file())), before);
                }
            }
            What::Ready { socket } => {
                let inside = record.context != Context::HardInterrupt && self.threads.contains_key(&record.by);
                self.service.ready(socket, Ready { at_ns: now, inside });
            }
            What::Received { socket, bytes } if bytes >= 0 => self.received(now, record.by, (socket, bytes)),
            What::Received { .. }
            | What::Migrate { .. }
            | What::Exec { .. }
            | What::Exit { .. }
            | What::Numa { .. }
            | What::Interrupt { .. }
            | What::Hotplug { .. } => {}
        }
    }

    fn switch(&mut self, now: u64, cpu: u32, (prev, state, next): (i32, PrevState, i32), uninterruptible: bool) {
        if self.speeds.switch(cpu, next != 0) {
            for sibling in self.speeds.siblings(cpu) {
                if let Some(thread) = self.running.get(sibling).and_then(|thread| self.threads.get_mut(thread)) {
                    thread.settle(now);
                    thread.speed = self.speeds.on(*sibling);
                }
            }
        }
        self.running.insert(cpu, next);
        let idle_since = if next == 0 { self.idle_since.insert(cpu, now) } else { self.idle_since.remove(&cpu) };
        if let Some(since) = self.others.remove(&cpu) {
            self.other_cpu_ns += now - since;
        }
        if let Some(thread) = self.threads.get_mut(&prev) {
            if thread.doing == Doing::Unheard {
                // It ran since before the recording.
                (thread.doing, thread.speed) = (Doing::Running(0), self.speeds.on(cpu));
            }
            thread.settle(now);
            thread.uninterruptible = uninterruptible;
            thread.preempted = state == PrevState::Runnable;
            thread.doing = match state {
                PrevState::Runnable | PrevState::Idle => Doing::Runnable(now),
                PrevState::Sleeping => Doing::Asleep(now),
                PrevState::Dead => {
                    thread.act(now, Action::Exit);
                    Doing::Dead
                }
            };
        }
        if self.threads.contains_key(&next) {
            self.runnable(now, next);
            if let Some(thread) = self.threads.get_mut(&next) {
                // What an idle CPU needs to wake up is no queue, and who is seen first behind a gap may have come in it.
                if let Doing::Runnable(since) = thread.doing
                    && prev > 0
                {
                    self.queued_ns += now - since;
                }
                (thread.doing, thread.early, thread.speed) = (Doing::Running(now), None, self.speeds.on(cpu));
                thread.returns += u32::from(std::mem::take(&mut thread.preempted));
                // Another CPU may have taken it, or it may have waited for a thread that left since.
                let (queued_on, idle_since) = (thread.queued_on.take(), idle_since.unwrap_or(0));
                let was_idle = |woken: &u64| {
                    prev == 0 && idle_since <= *woken && queued_on.is_none_or(|queued_on| queued_on == cpu)
                };
                if let Some(woken) = thread.woken_ns.take().filter(was_idle) {
                    self.idle_wakeups.0 += 1;
                    self.idle_wakeups.1 += now - woken;
                }
            }
        } else if next != 0 {
            self.others.insert(cpu, now);
        }
    }

    fn waking(&mut self, now: u64, woken: i32, record: &Record) {
        let Some(thread) = self.threads.get_mut(&woken) else { return };
        let asleep_since = match thread.doing {
            Doing::Asleep(since) => Some(since),
            Doing::Unheard => Some(0),
            Doing::Running(_) => None,
            Doing::Runnable(_) | Doing::Dead => return,
        };
        let uninterruptible = thread.uninterruptible;
        let asked = thread.asked.take();
        thread.by_timer = record.context == Context::HardInterrupt;
        let waker = record.waker().filter(|waker| self.threads.contains_key(waker));
        if waker.is_none()
            && record.context != Context::Thread
            && let Some(interrupted) = self.running.get(&record.cpu).and_then(|thread| self.threads.get_mut(thread))
        {
            interrupted.wakeups += 1;
        }
        let slept_ns = now - asleep_since.unwrap_or(now);
        let cause = match waker {
            Some(waker) => Cause::Signal { waker, soft_interrupt: record.context == Context::SoftInterrupt, slept_ns },
            None => Cause::Outside {
                at_ns: now,
                slept_ns,
                interrupt: record.context != Context::Thread,
                // Of one that is about to sleep it is not known yet.
                uninterruptible: asleep_since.is_some() && uninterruptible,
                asked,
            },
        };
        if asleep_since.is_none() {
            // Either it is about to sleep, or it was about to and does not any more.
            if let Some(thread) = self.threads.get_mut(&woken) {
                thread.early = Some(cause);
                if let Cause::Outside { at_ns, interrupt, .. } = cause {
                    thread.history.woken_awake.push((at_ns, interrupt));
                }
            }
            return;
        }
        self.wake(now, woken, cause);
    }

    /// The thread is awake now, whoever woke it.
    fn runnable(&mut self, now: u64, woken: i32) {
        let Some(thread) = self.threads.get_mut(&woken) else { return };
        match thread.doing {
            Doing::Asleep(since) => {
                let unknown = Cause::Unknown { at_ns: now, slept_ns: now - since };
                let cause = thread.early.take().unwrap_or(unknown);
                // It was about to sleep, and did.
                if let Cause::Outside { .. } = cause {
                    thread.history.woken_awake.pop();
                }
                self.wake(now, woken, cause);
            }
            Doing::Unheard => thread.doing = Doing::Runnable(now),
            Doing::Runnable(_) | Doing::Running(_) | Doing::Dead => {}
        }
    }

    /// The file that a call names, as it was then.
    fn file(&self, process: i32, call: Call, object: u64, then: u64) -> Option<&'a str> {
        self.recording.files.target(process, object, then).filter(|_| call.names_a_file())
    }

    /// A thread begins a call: it may answer a request.
    fn served(&mut self, now: u64, thread: i32, call: Begun<'a>, before: Option<Begun<'a>>) {
        let Some(state) = self.threads.get_mut(&thread) else { return };
        let waited = state.waited.take();
        let Some(answers) = self.service.begun(now, call, before, waited) else { return };
        let own = answers.arrived.thread == thread;
        if own || !answers.inside {
            let arrived = if own { Arrived::With(answers.arrived.block) } else { Arrived::Elsewhere };
            state.act(now, Action::Answer(arrived));
            if !answers.inside {
                self.service.answered((thread, state.history.actions.len() - 1), answers);
            }
        }
    }

    /// A thread received something, or the end of a connection: it may be a request.
    fn received(&mut self, now: u64, by: i32, (socket, bytes): (u64, i32)) {
        let ready = self.service.received(socket);
        let Some(state) = self.threads.get_mut(&by) else { return };
        let Some((Call::Read, number, then)) = state.call else { return };
        let process = state.history.process.unwrap_or(by);
        let Some(file) = self.recording.files.target(process, number, then).filter(|file| is_socket(file)) else {
            return;
        };
        if bytes == 0 {
            return self.service.closed(file);
        }
        let Some(Ready { at_ns, inside }) = ready.filter(|_| self.service.begins_a_request(file)) else { return };
        let ended_by_it = |waited: &Waited| (waited.since_ns..=waited.at_ns).contains(&at_ns);
        let waited = state.woken.filter(ended_by_it).unwrap_or_else(|| {
            state.act(now, Action::Arrive { at_ns, keeps: false });
            let block = state.history.actions.len() - 1;
            Waited { thread: by, block, since_ns: at_ns, at_ns, inside, by: None }
        });
        self.service.arrived_exactly(file, waited);
    }

    fn wake(&mut self, now: u64, woken: i32, cause: Cause) {
        let (mut ended_by, mut caller) = (None, None);
        if let Cause::Signal { waker, slept_ns, .. } = cause
            && let Some(by) = self.threads.get_mut(&waker)
        {
            by.act(now, Action::Wake { thread: woken });
            ended_by = Some((waker, by.history.actions.len() - 1, self.signals.len()));
            let (asleep_ns, more) = (now.saturating_sub(slept_ns), by.woke > 0);
            by.woke += 1;
            caller = by.begun;
            self.signals.push(Signal { waker, woken, asleep_ns, at_ns: now, object: None, more });
        }
        if let Some(thread) = self.threads.get_mut(&woken) {
            thread.act(now, Action::Block(cause));
            let uninterruptible = matches!(cause, Cause::Outside { uninterruptible: true, .. });
            thread.woken = None;
            if !uninterruptible && !thread.by_timer {
                let slept_ns = match cause {
                    Cause::Signal { slept_ns, .. }
                    | Cause::Outside { slept_ns, .. }
                    | Cause::Unknown { slept_ns, .. } => slept_ns,
                    Cause::Never => 0,
                };
                let waited = Waited {
                    thread: woken,
                    block: thread.history.actions.len() - 1,
                    since_ns: now - slept_ns,
                    at_ns: now,
                    inside: ended_by.is_some(),
                    by: ended_by,
                };
                (thread.waited, thread.woken) = (Some(waited), Some(waited));
                let by_softirq = matches!(cause, Cause::Signal { soft_interrupt: true, .. });
                let over = Over { waited, caller, by_softirq };
                match thread.begun {
                    Some(begun) if begun.call == Call::Poll => thread.over = Some(over),
                    Some(begun) => self.objects.over(over, begun, &mut self.signals),
                    None => {}
                }
            }
            (thread.doing, thread.early, thread.woken_ns) = (Doing::Runnable(now), None, Some(now));
            thread.queued_on = None;
            thread.asked = None;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
