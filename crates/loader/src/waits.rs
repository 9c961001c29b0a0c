//! Waits and clocks of a loader, which are those of the run.
//!
//! Clock reads are answered with simulated time, which each read takes a little of: a loop until a time has passed would not end otherwise. What reads
//! take is each thread's own affair, so that the order in which threads run decides nothing. A wait that has an end is held until simulated time has
//! come there, or until what it waits for has happened; one without an end is the kernel's own affair, as what ends it is done by another thread of
//! the loader. What is over at one instant goes on one after the other: the next when all threads wait again. Where threads are tasks, a held one goes on
//! when its task has got a CPU.
//!
//! Held: `nanosleep`, `clock_nanosleep`, and with a time `futex`, `futex_waitv`, `epoll_wait`, `poll`, `select`, `rt_sigtimedwait`; kept: timers behind
//! descriptors, alarms, POSIX timers ([`timers`]). A loop that only yields or looks goes on once a simulated millisecond.
//! Times of sockets, of queues of messages and of `io_uring` take real time.

mod timers;
mod turns;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd as _;

use warmcore_scx::bytecode::ATTACHED_NS;

use crate::process::{Call, Process};
use crate::threads::Threads;
use timers::Timers;

/// Calls that are about time.
pub const CALLS: [i64; 29] = [
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_yield,
    libc::SYS_clock_getres,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_alarm,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_times,
];

/// Those that read a clock, for which a kernel has no system call where it maps its clock.
pub(crate) const READS: [i64; 4] =
    [libc::SYS_clock_gettime, libc::SYS_gettimeofday, libc::SYS_time, libc::SYS_clock_getres];

/// What a read of the clock takes, in ns.
pub(crate) const READ_NS: u64 = 100;

/// What the clock of the day says when the monotonic one says 0, in ns.
const DAY_NS: u64 = 1_700_000_000_000_000_000;

/// How often a thread may yield, or look without waiting, at one instant; and how long it then waits, in ns.
const MOST_LOOKS: u32 = 64;
const LOOKED_NS: u64 = 1_000_000;

const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAKE_BITSET: u64 = 10;
const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_REALTIME: u64 = 256;

/// Descriptors of the loader, with the events that are waited for.
type Wanted = Vec<(u32, i16)>;

/// What a held call waits for besides its time.
enum For {
    /// Nothing.
    Time,
    /// Somebody who wakes one of these addresses.
    Futex(Vec<u64>),
    /// One of these descriptors of the loader, for these events. When time is over, these bytes at these addresses say that nothing came.
    Descriptors(Wanted, Vec<(u64, usize)>),
    /// The same where ring buffers are among them, of which the kernel knows nothing: what came of each is written at these addresses.
    Rings(Wanted, Vec<u64>),
    /// One of these signals.
    Signals(u64),
    /// Its turn: it has yielded.
    Turn,
}

/// Whether what a held call waits for is there. Where threads are tasks, it is answered when its thread's task runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    No,
    /// Its time is over.
    Over,
    /// Something has come.
    Come,
    /// It was woken, and its call gives this.
    Woken(i64),
}

/// A call that is answered later.
struct Held {
    call: Call,
    until_ns: u64,
    what: For,
    due: Due,
}

impl Held {
    fn new(call: &Call, until_ns: u64, what: For) -> Self {
        Self { call: *call, until_ns, what, due: Due::No }
    }
}

/// The clock of a thread.
#[derive(Default)]
struct Clock {
    /// What it has read last.
    read_ns: u64,
    /// How often it has looked without waiting, and at which instant.
    looks: (u64, u32),
}

/// Waits and clocks.
pub struct Waits {
    /// The monotonic clock, in ns.
    now_ns: u64,
    /// Whether the scheduler is attached. Before, a wait of some seconds is over at once and time has passed.
    is_attached: bool,
    /// Threads are tasks, and go on when those run.
    by_task: bool,
    held: Vec<Held>,
    clocks: BTreeMap<u32, Clock>,
    timers: Timers,
}

/// Whether there is something in the ring buffer behind a caller's descriptor; `None` if there is none behind it.
type AskRing<'a> = &'a dyn Fn(&Call, u32) -> Option<bool>;

/// What is to be done with a call.
enum Then {
    Answer(Result<i64, i32>),
    Pass,
    Hold(u64, For),
}

impl Waits {
    /// Before the scheduler is attached: the clock stands somewhat before that.
    pub fn new() -> Self {
        const BEFORE_NS: u64 = 10_000_000_000;
        Self {
            now_ns: ATTACHED_NS - BEFORE_NS,
            is_attached: false,
            by_task: false,
            held: Vec::new(),
            clocks: BTreeMap::new(),
            timers: Timers::default(),
        }
    }

    /// What the monotonic clock says, in ns.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Answers, holds or lets through a call of [`CALLS`].
    pub fn serve(&mut self, process: &Process, call: &Call, rings: AskRing<'_>, threads: &Threads) {
        if self.was_interrupted(process, call) {
            process.answer(call, Err(libc::EINTR));
            return;
        }
        let then = self
            .decide(process, call, rings, threads)
            .unwrap_or_else(|error| Then::Answer(Err(error.raw_os_error().unwrap_or(libc::EFAULT))));
        match then {
            Then::Answer(result) => process.answer(call, result),
            Then::Pass => process.let_through(call),
            Then::Hold(until_ns, what) if self.is_attached => {
                // Later than now, as whoever waits for nothing again and again would not come to rest at this instant.
                let until_ns = until_ns.max(self.now_ns + 1);
                self.held.push(Held::new(call, until_ns, what));
            }
            Then::Hold(_, For::Futex(_) | For::Signals(_)) => process.let_through(call),
            // What there is in a ring buffer is told when the scheduler is attached.
            Then::Hold(until_ns, what @ For::Rings(..)) => self.held.push(Held::new(call, until_ns, what)),
            // Longer than there is time before it: such a loader waits for something else than time.
            Then::Hold(until_ns, _) if until_ns > ATTACHED_NS => process.let_through(call),
            // How far its other threads come before it attaches is this computer's affair, and moves no clock.
            Then::Hold(until_ns, what) if call.thread != process.first_thread() => {
                self.held.push(Held::new(call, until_ns, what));
            }
            Then::Hold(until_ns, _) => {
                self.now_ns = self.now_ns.max(until_ns);
                process.answer(call, Ok(0));
            }
        }
    }

    /// Whether a thread makes the call of a sleep again that a signal has taken it out of: a kernel does not begin a sleep again.
    fn was_interrupted(&mut self, process: &Process, call: &Call) -> bool {
        let is_stale = |held: &Held| held.call.thread == call.thread && !process.still_waits(&held.call);
        let Some(position) = self.held.iter().position(is_stale) else { return false };
        let held = self.held.remove(position);
        matches!(held.what, For::Time) && held.call.number == call.number && held.call.arguments == call.arguments
    }

    fn decide(&mut self, process: &Process, call: &Call, rings: AskRing<'_>, threads: &Threads) -> io::Result<Then> {
        let [first, second, third, fourth, fifth, _] = call.arguments;
        let now_ns = self.now_of(call);
        Ok(match i64::from(call.number) {
            libc::SYS_clock_gettime => {
                let read_ns = self.read(call);
                call.write(second, &timespec(clock(first, read_ns)))?;
                Then::Answer(Ok(0))
            }
            libc::SYS_clock_getres => {
                if second != 0 {
                    call.write(second, &timespec(1))?;
                }
                Then::Answer(Ok(0))
            }
            libc::SYS_gettimeofday => {
                let day = DAY_NS + self.read(call);
                let value = [day / 1_000_000_000, day % 1_000_000_000 / 1000].map(u64::to_le_bytes).concat();
                call.write(first, &value)?;
                Then::Answer(Ok(0))
            }
            libc::SYS_time => {
                let seconds = (DAY_NS + self.read(call)) / 1_000_000_000;
                if first != 0 {
                    call.write(first, &seconds.to_le_bytes())?;
                }
                Then::Answer(Ok(seconds as i64))
            }
            libc::SYS_times => {
                if first != 0 {
                    call.write(first, &[0; 32])?;
                }
                Then::Answer(Ok((self.read(call) / 10_000_000) as i64))
            }
            libc::SYS_nanosleep => Then::Hold(now_ns.saturating_add(read_time(call, first)?), For::Time),
            libc::SYS_clock_nanosleep => {
                let time = read_time(call, third)?;
                let absolute = second & libc::TIMER_ABSTIME as u64 != 0;
                Then::Hold(if absolute { monotonic(first, time) } else { now_ns.saturating_add(time) }, For::Time)
            }
            libc::SYS_sched_yield if self.by_task => Then::Hold(u64::MAX, For::Turn),
            libc::SYS_sched_yield if self.may_look(call) => Then::Pass,
            libc::SYS_sched_yield => Then::Hold(now_ns + LOOKED_NS, For::Time),
            libc::SYS_futex => self.futex(process, call, now_ns)?,
            libc::SYS_futex_waitv => self.futexes(call)?,
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
                self.descriptors(call, vec![(first as u32, libc::POLLIN)], Vec::new(), milliseconds(fourth))
            }
            libc::SYS_epoll_pwait2 => {
                let time = if fourth == 0 { None } else { Some(read_time(call, fourth)?) };
                self.descriptors(call, vec![(first as u32, libc::POLLIN)], Vec::new(), time)
            }
            libc::SYS_poll | libc::SYS_ppoll => {
                let time = match i64::from(call.number) {
                    libc::SYS_poll => milliseconds(third),
                    _ if third == 0 => None,
                    _ => Some(read_time(call, third)?),
                };
                const ENTRY_BYTES: u64 = 8;
                const EVENTS_FOUND: u64 = 6;
                let count = second.min(1024);
                let all = call.read(first, (count * ENTRY_BYTES) as usize)?;
                let one = |entry: &[u8]| {
                    let descriptor = u32::from_le_bytes(entry[..4].try_into().expect("four bytes"));
                    (descriptor, i16::from_le_bytes([entry[4], entry[5]]))
                };
                let wanted: Vec<_> = all.chunks_exact(8).map(one).collect();
                let places = (0..count).map(|number| first + number * ENTRY_BYTES + EVENTS_FOUND);
                if wanted.iter().any(|&(descriptor, _)| rings(call, descriptor).is_some()) {
                    let until_ns = time.map_or(u64::MAX, |time| now_ns.saturating_add(time));
                    return Ok(Then::Hold(until_ns, For::Rings(wanted, places.collect())));
                }
                self.descriptors(call, wanted, places.map(|place| (place, 2)).collect(), time)
            }
            libc::SYS_select | libc::SYS_pselect6 => {
                let scale = if i64::from(call.number) == libc::SYS_select { 1000 } else { 1 };
                let time = if fifth == 0 { None } else { Some(time_of(&call.read(fifth, 16)?, scale)) };
                let (wanted, sets) = select_sets(call, first.min(1024) as usize, [second, third, fourth])?;
                self.descriptors(call, wanted, sets, time)
            }
            libc::SYS_rt_sigtimedwait if third != 0 => {
                let set = u64::from_le_bytes(call.read(first, 8)?.try_into().expect("eight bytes"));
                match read_time(call, third)? {
                    0 => Then::Pass,
                    time => Then::Hold(now_ns.saturating_add(time), For::Signals(set)),
                }
            }
            number => match self.timers.serve(process, call, (number, now_ns), threads)? {
                Some(result) => Then::Answer(result),
                None => Then::Pass,
            },
        })
    }

    /// The clock as a thread knows it.
    fn now_of(&self, call: &Call) -> u64 {
        self.clocks.get(&call.thread).map_or(0, |clock| clock.read_ns).max(self.now_ns)
    }

    /// A thread reads the clock.
    fn read(&mut self, call: &Call) -> u64 {
        let clock = self.clocks.entry(call.thread).or_default();
        clock.read_ns = (clock.read_ns + READ_NS).max(self.now_ns);
        if !self.is_attached {
            self.now_ns = clock.read_ns.min(ATTACHED_NS);
        }
        clock.read_ns
    }

    /// Whether a thread may look once more at this instant without waiting.
    fn may_look(&mut self, call: &Call) -> bool {
        let clock = self.clocks.entry(call.thread).or_default();
        if clock.looks.0 != self.now_ns {
            clock.looks = (self.now_ns, 0);
        }
        clock.looks.1 += 1;
        !self.is_attached || clock.looks.1 <= MOST_LOOKS
    }

    fn futex(&mut self, process: &Process, call: &Call, now_ns: u64) -> io::Result<Then> {
        let [address, operation, value, time, ..] = call.arguments;
        Ok(match operation & FUTEX_COMMAND {
            FUTEX_WAIT | FUTEX_WAIT_BITSET if time != 0 => {
                if word(call, address)? != value as u32 {
                    return Ok(Then::Answer(Err(libc::EAGAIN)));
                }
                let time = read_time(call, time)?;
                let until = match operation & FUTEX_COMMAND {
                    FUTEX_WAIT => now_ns.saturating_add(time),
                    _ if operation & FUTEX_REALTIME != 0 => time.saturating_sub(DAY_NS),
                    _ => time,
                };
                Then::Hold(until, For::Futex(vec![address]))
            }
            FUTEX_WAKE | FUTEX_WAKE_BITSET => {
                let mut left = value as u32;
                while left > 0 {
                    let waits = |held: &Held| {
                        held.due == Due::No && matches!(&held.what, For::Futex(all) if all.contains(&address))
                    };
                    let Some(position) = self.held.iter().position(waits) else { break };
                    let For::Futex(all) = &self.held[position].what else { break };
                    let which = all.iter().position(|&at| at == address).unwrap_or(0) as i64;
                    if self.by_task {
                        self.held[position].due = Due::Woken(which);
                    } else {
                        process.answer(&self.held.remove(position).call, Ok(which));
                    }
                    left -= 1;
                }
                // Others wait for it in the kernel, perhaps.
                if left > 0 { Then::Pass } else { Then::Answer(Ok(value as i64)) }
            }
            _ => Then::Pass,
        })
    }

    fn futexes(&mut self, call: &Call) -> io::Result<Then> {
        const ENTRY_BYTES: usize = 24;
        let [entries, count, _, time, which, _] = call.arguments;
        if time == 0 {
            return Ok(Then::Pass);
        }
        let mut addresses = Vec::new();
        for entry in call.read(entries, (count as usize).min(128) * ENTRY_BYTES)?.chunks_exact(ENTRY_BYTES) {
            let number = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
            let (value, address) = (number(0), number(8));
            if word(call, address)? != value as u32 {
                return Ok(Then::Answer(Err(libc::EAGAIN)));
            }
            addresses.push(address);
        }
        Ok(Then::Hold(monotonic(which, read_time(call, time)?), For::Futex(addresses)))
    }

    fn descriptors(&mut self, call: &Call, wanted: Wanted, found: Vec<(u64, usize)>, time: Option<u64>) -> Then {
        let now_ns = self.now_of(call);
        match time {
            // For as long as it takes: the kernel knows.
            None => Then::Pass,
            Some(0) if self.may_look(call) => Then::Pass,
            Some(0) => Then::Hold(now_ns + LOOKED_NS, For::Descriptors(wanted, found)),
            Some(time) => Then::Hold(now_ns.saturating_add(time), For::Descriptors(wanted, found)),
        }
    }

    /// Whether a thread waits for something.
    pub(crate) fn are_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// All threads wait before the scheduler is attached: time comes to the first end of a wait, if there is one.
    pub fn skip(&mut self, process: &Process, rings: AskRing<'_>) -> bool {
        let Some(next_ns) = self.next_ns().filter(|next_ns| *next_ns <= ATTACHED_NS) else { return false };
        self.now_ns = self.now_ns.max(next_ns);
        self.release(process, rings)
    }

    /// Time has come to an instant, at which the scheduler is attached.
    pub fn advance(&mut self, now_ns: u64, by_task: bool) {
        self.is_attached = true;
        self.now_ns = self.now_ns.max(now_ns);
        self.by_task = by_task;
        if !by_task {
            // Whoever waited for a CPU goes on at once.
            for held in self.held.iter_mut().filter(|held| held.due != Due::No || matches!(held.what, For::Turn)) {
                held.until_ns = self.now_ns;
            }
        }
    }

    /// Lets one thing go on whose time has come; whether there was one. All threads wait.
    pub fn release(&mut self, process: &Process, rings: AskRing<'_>) -> bool {
        self.held.retain(|held| process.still_waits(&held.call));
        if self.by_task {
            for held in self.held.iter_mut().filter(|held| held.due == Due::No && held.until_ns <= self.now_ns) {
                held.due = Due::Over;
            }
            let expires = self.timers.next_ns().is_some_and(|at_ns| at_ns <= self.now_ns);
            if expires {
                self.timers.expire(self.now_ns);
            }
            return expires;
        }
        let order = |held: &Held| (held.until_ns, held.call.thread);
        let first = self.held.iter().enumerate().min_by_key(|(_, held)| order(held));
        let first = first.map(|(position, held)| (position, held.until_ns)).filter(|(_, until)| *until <= self.now_ns);
        let timer_ns = self.timers.next_ns().filter(|at| *at <= self.now_ns);
        match (first, timer_ns) {
            (Some((_, until)), Some(at)) if at <= until => self.timers.expire(self.now_ns),
            (None, Some(_)) => self.timers.expire(self.now_ns),
            (Some((position, _)), _) => {
                let held = self.held.remove(position);
                self.time_is_over(process, &held, rings);
            }
            (None, None) => return false,
        }
        true
    }

    fn time_is_over(&self, process: &Process, held: &Held, rings: AskRing<'_>) {
        let result = match &held.what {
            // They look once more, and find what is there.
            For::Descriptors(..) | For::Signals(_) if is_ready(process, held, rings) => {
                process.let_through(&held.call);
                return;
            }
            For::Futex(_) => Err(libc::ETIMEDOUT),
            For::Signals(_) => Err(libc::EAGAIN),
            For::Time | For::Turn => Ok(0),
            For::Rings(..) => {
                go_on(process, held, rings);
                return;
            }
            For::Descriptors(_, found) => {
                // Memory that is gone is the caller's fault, which it learns when it looks there.
                let _ = found.iter().try_for_each(|&(at, bytes)| held.call.write(at, &vec![0; bytes]));
                Ok(0)
            }
        };
        process.answer(&held.call, result);
    }

    /// Lets those go on that have what they wait for; whether there were any.
    pub fn look(&mut self, process: &Process, rings: AskRing<'_>) -> bool {
        if self.by_task {
            for held in self.held.iter_mut().filter(|held| held.due == Due::No) {
                if is_ready(process, held, rings) {
                    held.due = Due::Come;
                }
            }
            return false;
        }
        let ready = |held: &Held| is_ready(process, held, rings);
        let Some(position) = self.held.iter().position(ready) else { return false };
        let held = self.held.remove(position);
        go_on(process, &held, rings);
        true
    }

    /// The next instant at which something is over.
    pub fn next_ns(&self) -> Option<u64> {
        let waits = self.held.iter().filter(|held| held.due == Due::No).map(|held| held.until_ns);
        let held = waits.filter(|until| *until < u64::MAX).min();
        held.into_iter().chain(self.timers.next_ns()).min()
    }
}

/// Whether what a call waits for is there.
fn is_ready(process: &Process, held: &Held, rings: AskRing<'_>) -> bool {
    match &held.what {
        For::Descriptors(wanted, _) | For::Rings(wanted, _) => {
            wanted.iter().any(|&(descriptor, events)| found(process, held, rings, descriptor, events) != 0)
        }
        For::Signals(set) => held.call.pending_signals() & set != 0,
        For::Time | For::Futex(_) | For::Turn => false,
    }
}

/// Which events of a descriptor there are.
fn found(process: &Process, held: &Held, rings: AskRing<'_>, descriptor: u32, events: i16) -> i16 {
    if let Some(holds_something) = rings(&held.call, descriptor) {
        return if holds_something { events & libc::POLLIN } else { 0 };
    }
    let Ok(copy) = process.descriptor(&held.call, descriptor) else { return 0 };
    let mut poll = libc::pollfd { fd: copy.as_raw_fd(), events, revents: 0 };
    // SAFETY: one descriptor that is open.
    unsafe { libc::poll(&raw mut poll, 1, 0) };
    poll.revents
}

/// Lets a call go on that has what it waits for, or whose time is over.
fn go_on(process: &Process, held: &Held, rings: AskRing<'_>) {
    let For::Rings(wanted, places) = &held.what else {
        process.let_through(&held.call);
        return;
    };
    let all: Vec<i16> =
        wanted.iter().map(|&(descriptor, events)| found(process, held, rings, descriptor, events)).collect();
    // Memory that is gone is the caller's fault, which it learns when it looks there.
    let _ = all.iter().zip(places).try_for_each(|(events, &place)| held.call.write(place, &events.to_le_bytes()));
    process.answer(&held.call, Ok(all.iter().filter(|events| **events != 0).count() as i64));
}

/// Descriptors of the sets of `select` with the events that each set is for, and where the sets are.
fn select_sets(call: &Call, count: usize, sets: [u64; 3]) -> io::Result<(Wanted, Vec<(u64, usize)>)> {
    let (mut wanted, mut places) = (Vec::new(), Vec::new());
    for (set, events) in sets.into_iter().zip([libc::POLLIN, libc::POLLOUT, libc::POLLPRI]).filter(|(set, _)| *set != 0)
    {
        let bytes = call.read(set, count.div_ceil(64) * 8)?;
        let is_in = |descriptor: &usize| bytes[descriptor / 8] & 1 << (descriptor % 8) != 0;
        wanted.extend((0..count).filter(is_in).map(|descriptor| (descriptor as u32, events)));
        places.push((set, bytes.len()));
    }
    Ok((wanted, places))
}

fn word(call: &Call, address: u64) -> io::Result<u32> {
    Ok(u32::from_le_bytes(call.read(address, 4)?.try_into().expect("four bytes")))
}

/// Whether a clock is one of the day.
fn is_of_day(clock: u64) -> bool {
    [libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_COARSE, libc::CLOCK_TAI].contains(&(clock as i32))
}

/// A clock, in ns. Time that a process or thread has used is taken for the time that has passed.
fn clock(clock: u64, now_ns: u64) -> u64 {
    if is_of_day(clock) { DAY_NS + now_ns } else { now_ns }
}

/// An instant of a clock by the monotonic one.
fn monotonic(clock: u64, at_ns: u64) -> u64 {
    if is_of_day(clock) { at_ns.saturating_sub(DAY_NS) } else { at_ns }
}

fn timespec(ns: u64) -> [u8; 16] {
    pair(ns / 1_000_000_000, ns % 1_000_000_000)
}

fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// A time of seconds and parts of a second, in ns.
fn time_of(raw: &[u8], scale: u64) -> u64 {
    let word =
        |at: usize| raw.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    word(0).saturating_mul(1_000_000_000).saturating_add(word(8).saturating_mul(scale))
}

fn read_time(call: &Call, address: u64) -> io::Result<u64> {
    Ok(time_of(&call.read(address, 16)?, 1))
}

/// A time in ms, below 0 for ever.
fn milliseconds(time: u64) -> Option<u64> {
    u64::try_from(time as i32).ok().map(|ms| ms * 1_000_000)
}
