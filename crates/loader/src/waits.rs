//! Waits and clocks of a loader that goes on in simulated time.
//!
//! Clock reads are answered with simulated time, which each read takes a little of: a loop until a time has passed would not end otherwise. A wait that has an end is held until simulated time has come there, or until what it waits for
//! has happened; one without an end is the kernel's own affair, as what ends it is done by another thread of the loader. Timers behind descriptors
//! are events that are told of their expirations.
//!
//! Held: `nanosleep`, `clock_nanosleep`, `futex` with a time, `epoll_wait` and `poll` with one, `timerfd`. Not known: `select` with descriptors,
//! `futex_waitv`, alarms, POSIX timers; they take real time.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use warmcore_scx::bytecode::START_NS;

use crate::process::{Call, Process};

/// Calls that are about time.
pub const CALLS: [i64; 17] = [
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_futex,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_clock_getres,
];

/// What a read of the clock takes, in ns.
const READ_NS: u64 = 100;

/// What the clock of the day says when the monotonic one says 0, in ns.
const DAY_NS: u64 = 1_700_000_000_000_000_000;

const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAKE_BITSET: u64 = 10;
const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_REALTIME: u64 = 256;

/// What a held call waits for besides its time.
enum For {
    /// Nothing.
    Time,
    /// Somebody who wakes this address.
    Futex(u64),
    /// One of these descriptors of the loader, for these events.
    Descriptors(Vec<(u32, i16)>),
}

/// A call that is answered later.
struct Held {
    call: Call,
    until_ns: u64,
    what: For,
}

/// A timer behind a descriptor.
struct Timer {
    /// An event, of which the loader has a descriptor.
    event: OwnedFd,
    /// Next expiration; `None` if it is not armed.
    at_ns: Option<u64>,
    every_ns: u64,
}

/// Waits and clocks.
#[derive(Default)]
pub struct Waits {
    /// The monotonic clock, in ns.
    pub now_ns: u64,
    /// Whether the run has begun. Before, a wait is over at once and time has passed.
    pub is_running: bool,
    held: Vec<Held>,
    /// By the loader's descriptor; all events share the number of one file.
    timers: BTreeMap<u64, Timer>,
}

/// What is to be done with a call.
enum Then {
    Answer(Result<i64, i32>),
    Pass,
    Hold(u64, For),
}

impl Waits {
    /// Before a run: its clock stands somewhat before where that begins.
    pub fn new() -> Self {
        const BEFORE_NS: u64 = 10_000_000_000;
        Self { now_ns: START_NS - BEFORE_NS, ..Self::default() }
    }

    /// Answers, holds or lets through a call of [`CALLS`].
    pub fn serve(&mut self, process: &Process, call: &Call) {
        let then = self
            .decide(process, call)
            .unwrap_or_else(|error| Then::Answer(Err(error.raw_os_error().unwrap_or(libc::EFAULT))));
        match then {
            Then::Answer(result) => process.answer(call, result),
            Then::Pass => process.let_through(call),
            Then::Hold(until_ns, what) if self.is_running => self.held.push(Held { call: *call, until_ns, what }),
            Then::Hold(_, For::Futex(_)) => process.let_through(call),
            Then::Hold(until_ns, _) => {
                self.now_ns = self.now_ns.max(until_ns.min(START_NS));
                process.answer(call, Ok(0));
            }
        }
    }

    fn decide(&mut self, process: &Process, call: &Call) -> io::Result<Then> {
        let [first, second, third, fourth, fifth, _] = call.arguments;
        Ok(match i64::from(call.number) {
            libc::SYS_clock_gettime => {
                self.now_ns += READ_NS;
                call.write(second, &timespec(self.clock(first)))?;
                Then::Answer(Ok(0))
            }
            libc::SYS_clock_getres => {
                if second != 0 {
                    call.write(second, &timespec(1))?;
                }
                Then::Answer(Ok(0))
            }
            libc::SYS_gettimeofday => {
                self.now_ns += READ_NS;
                let day = DAY_NS + self.now_ns;
                let value = [day / 1_000_000_000, day % 1_000_000_000 / 1000].map(u64::to_le_bytes).concat();
                call.write(first, &value)?;
                Then::Answer(Ok(0))
            }
            libc::SYS_time => {
                self.now_ns += READ_NS;
                let seconds = (DAY_NS + self.now_ns) / 1_000_000_000;
                if first != 0 {
                    call.write(first, &seconds.to_le_bytes())?;
                }
                Then::Answer(Ok(seconds as i64))
            }
            libc::SYS_nanosleep => Then::Hold(self.now_ns + read_time(call, first)?, For::Time),
            libc::SYS_clock_nanosleep => {
                let time = read_time(call, third)?;
                let absolute = second & libc::TIMER_ABSTIME as u64 != 0;
                Then::Hold(if absolute { self.monotonic(first, time) } else { self.now_ns + time }, For::Time)
            }
            libc::SYS_futex => self.futex(process, call)?,
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
                self.descriptors(vec![(first as u32, libc::POLLIN)], milliseconds(fourth))
            }
            libc::SYS_epoll_pwait2 => {
                let time = if fourth == 0 { None } else { Some(read_time(call, fourth)?) };
                self.descriptors(vec![(first as u32, libc::POLLIN)], time)
            }
            libc::SYS_poll | libc::SYS_ppoll => {
                let time = match i64::from(call.number) {
                    libc::SYS_poll => milliseconds(third),
                    _ if third == 0 => None,
                    _ => Some(read_time(call, third)?),
                };
                let all = call.read(first, (second as usize).min(1024) * 8)?;
                let one = |entry: &[u8]| {
                    let descriptor = u32::from_le_bytes(entry[..4].try_into().expect("four bytes"));
                    (descriptor, i16::from_le_bytes([entry[4], entry[5]]))
                };
                self.descriptors(all.chunks_exact(8).map(one).collect(), time)
            }
            libc::SYS_select | libc::SYS_pselect6 if first == 0 && fifth != 0 => {
                let raw = call.read(fifth, 16)?;
                let scale = if i64::from(call.number) == libc::SYS_select { 1000 } else { 1 };
                Then::Hold(self.now_ns + time_of(&raw, scale), For::Time)
            }
            libc::SYS_timerfd_create => self.timer_create(process, call)?,
            libc::SYS_timerfd_settime => self.timer_set(call)?,
            libc::SYS_timerfd_gettime => {
                let Some(timer) = self.timers.get(&first) else { return Ok(Then::Pass) };
                let left = timer.at_ns.map_or(0, |at| at.saturating_sub(self.now_ns));
                call.write(second, &[timespec(timer.every_ns), timespec(left)].concat())?;
                Then::Answer(Ok(0))
            }
            _ => Then::Pass,
        })
    }

    /// A clock, in ns. Time that a process or thread has used is taken for the time that has passed.
    fn clock(&self, clock: u64) -> u64 {
        let day = [libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_COARSE, libc::CLOCK_TAI].contains(&(clock as i32));
        if day { DAY_NS + self.now_ns } else { self.now_ns }
    }

    /// An instant of a clock by the monotonic one.
    fn monotonic(&self, clock: u64, at_ns: u64) -> u64 {
        if self.clock(clock) == self.now_ns { at_ns } else { at_ns.saturating_sub(DAY_NS) }
    }

    fn futex(&mut self, process: &Process, call: &Call) -> io::Result<Then> {
        let [address, operation, value, time, ..] = call.arguments;
        Ok(match operation & FUTEX_COMMAND {
            FUTEX_WAIT | FUTEX_WAIT_BITSET if time != 0 => {
                let word = call.read(address, 4)?;
                if u32::from_le_bytes(word.try_into().expect("four bytes")) != value as u32 {
                    return Ok(Then::Answer(Err(libc::EAGAIN)));
                }
                let time = read_time(call, time)?;
                let until = match operation & FUTEX_COMMAND {
                    FUTEX_WAIT => self.now_ns + time,
                    _ if operation & FUTEX_REALTIME != 0 => time.saturating_sub(DAY_NS),
                    _ => time,
                };
                Then::Hold(until, For::Futex(address))
            }
            FUTEX_WAKE | FUTEX_WAKE_BITSET => {
                let mut woken = 0;
                while woken < value as u32 as u64 {
                    let waits = |held: &Held| matches!(held.what, For::Futex(at) if at == address);
                    let Some(position) = self.held.iter().position(waits) else { break };
                    let held = self.held.remove(position);
                    process.answer(&held.call, Ok(0));
                    woken += 1;
                }
                // Others wait for it in the kernel, perhaps.
                if woken > 0 { Then::Answer(Ok(woken as i64)) } else { Then::Pass }
            }
            _ => Then::Pass,
        })
    }

    fn descriptors(&self, wanted: Vec<(u32, i16)>, time: Option<u64>) -> Then {
        match time {
            // At once, or for as long as it takes: the kernel knows.
            Some(0) | None => Then::Pass,
            Some(time) => Then::Hold(self.now_ns + time, For::Descriptors(wanted)),
        }
    }

    fn timer_create(&mut self, process: &Process, call: &Call) -> io::Result<Then> {
        let flags = call.arguments[1] as i32 & libc::TFD_NONBLOCK;
        // SAFETY: a plain system call; what is got is owned.
        let event = unsafe {
            let event = libc::eventfd(0, libc::EFD_CLOEXEC | if flags != 0 { libc::EFD_NONBLOCK } else { 0 });
            if event < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(event)
        };
        Ok(match process.add_descriptor(call, event.as_fd()) {
            Some(descriptor) => {
                self.timers.insert(u64::from(descriptor), Timer { event, at_ns: None, every_ns: 0 });
                Then::Answer(Ok(i64::from(descriptor)))
            }
            None => Then::Answer(Err(libc::EMFILE)),
        })
    }

    fn timer_set(&mut self, call: &Call) -> io::Result<Then> {
        let [descriptor, flags, new, old, ..] = call.arguments;
        let now_ns = self.now_ns;
        let Some(timer) = self.timers.get_mut(&descriptor) else { return Ok(Then::Pass) };
        if old != 0 {
            let left = timer.at_ns.map_or(0, |at| at.saturating_sub(now_ns));
            call.write(old, &[timespec(timer.every_ns), timespec(left)].concat())?;
        }
        let raw = call.read(new, 32)?;
        let (every, first) = (time_of(&raw[..16], 1), time_of(&raw[16..], 1));
        let absolute = flags & libc::TFD_TIMER_ABSTIME as u64 != 0;
        timer.every_ns = every;
        timer.at_ns = (first != 0).then_some(if absolute { first } else { now_ns + first });
        Ok(Then::Answer(Ok(0)))
    }

    /// Time has come to an instant: what is over is answered, and timers tell of it.
    pub fn advance(&mut self, process: &Process, now_ns: u64) {
        // It may have read its clock so often that it is ahead.
        self.now_ns = self.now_ns.max(now_ns);
        for timer in self.timers.values_mut() {
            let mut expirations = 0u64;
            while let Some(at) = timer.at_ns.filter(|&at| at <= now_ns) {
                expirations += 1;
                timer.at_ns = (timer.every_ns > 0).then(|| at + timer.every_ns);
            }
            if expirations > 0 {
                // SAFETY: eight bytes of ours.
                unsafe { libc::write(timer.event.as_raw_fd(), (&raw const expirations).cast(), 8) };
            }
        }
        let (over, held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.until_ns <= now_ns);
        self.held = held;
        for held in over {
            let result = match held.what {
                For::Futex(_) => Err(libc::ETIMEDOUT),
                // They look once more, and find what is there or nothing.
                For::Descriptors(_) if self.is_ready(process, &held) => {
                    process.let_through(&held.call);
                    continue;
                }
                For::Time | For::Descriptors(_) => Ok(0),
            };
            process.answer(&held.call, result);
        }
    }

    /// Lets those go on whose descriptors are ready; whether there were any.
    pub fn look(&mut self, process: &Process) -> bool {
        let ready = |held: &Held| self.is_ready(process, held);
        let Some(position) = self.held.iter().position(ready) else { return false };
        let held = self.held.remove(position);
        process.let_through(&held.call);
        true
    }

    fn is_ready(&self, process: &Process, held: &Held) -> bool {
        let For::Descriptors(wanted) = &held.what else { return false };
        wanted.iter().any(|&(descriptor, events)| {
            let Ok(copy) = process.descriptor(descriptor) else { return false };
            let mut poll = libc::pollfd { fd: copy.as_raw_fd(), events, revents: 0 };
            // SAFETY: one descriptor that is open.
            unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
        })
    }

    /// The next instant at which something is over.
    pub fn next_ns(&self) -> Option<u64> {
        let held = self.held.iter().map(|held| held.until_ns);
        held.chain(self.timers.values().filter_map(|timer| timer.at_ns)).min()
    }
}

fn timespec(ns: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(ns / 1_000_000_000).to_le_bytes());
    bytes[8..].copy_from_slice(&(ns % 1_000_000_000).to_le_bytes());
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
