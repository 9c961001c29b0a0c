//! Timers of a loader: behind descriptors, alarms, POSIX timers.
//!
//! A timer behind a descriptor is an event that is told of its expirations; others send their signal.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use super::{is_of_day, monotonic, pair, time_of, timespec};
use crate::process::{Call, Process};
use crate::threads::Threads;

/// Who is told of an expiration.
enum Told {
    /// Whoever reads the event, of which the loader has a descriptor.
    Event(OwnedFd),
    /// A process, by its alarm signal.
    Alarm(u32),
    /// A process, or one thread of it, by a signal with a value.
    Signal {
        process: u32,
        thread: Option<u32>,
        signal: i32,
        value: u64,
    },
    Nobody,
}

struct Timer {
    told: Told,
    /// Whether its clock is one of the day.
    of_day: bool,
    /// Next expiration; `None` if it is not armed.
    at_ns: Option<u64>,
    every_ns: u64,
}

impl Timer {
    fn new(told: Told) -> Self {
        Self { told, of_day: false, at_ns: None, every_ns: 0 }
    }

    /// What is left of it and its interval, in ns.
    fn left(&self, now_ns: u64) -> (u64, u64) {
        // One that is armed has something left.
        (self.at_ns.map_or(0, |at| at.saturating_sub(now_ns).max(1)), self.every_ns)
    }

    fn arm(&mut self, now_ns: u64, (first_ns, every_ns): (u64, u64), absolute: bool) {
        self.every_ns = every_ns;
        let at_ns = match (absolute, self.of_day) {
            (true, true) => monotonic(libc::CLOCK_REALTIME as u64, first_ns),
            (true, false) => first_ns,
            (false, _) => now_ns.saturating_add(first_ns),
        };
        // Later than now, as one that expires again and again would leave no instant.
        self.at_ns = (first_ns != 0).then_some(at_ns.max(now_ns + 1));
    }
}

/// Which timer it is, by who asks for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    /// The process's alarm.
    Alarm(u32),
    /// A descriptor of a process.
    Descriptor(u32, u64),
    /// A number that was given out.
    Number(u64),
}

/// All timers of a loader.
#[derive(Default)]
pub struct Timers {
    all: BTreeMap<Name, Timer>,
    numbers: u64,
}

/// What a call gives; `None` if the kernel is to answer it.
type Given = Option<Result<i64, i32>>;

impl Timers {
    /// Answers a call about timers.
    pub(super) fn serve(
        &mut self,
        process: &Process,
        call: &Call,
        (number, now_ns): (i64, u64),
        threads: &Threads,
    ) -> io::Result<Given> {
        let [first, second, third, fourth, ..] = call.arguments;
        let of_descriptor = Name::Descriptor(call.process()?, first);
        Ok(match number {
            libc::SYS_timerfd_create => self.create_descriptor(process, call)?,
            libc::SYS_timerfd_settime if self.all.contains_key(&of_descriptor) => {
                self.set(call, of_descriptor, now_ns, (second, third, fourth))?
            }
            libc::SYS_timerfd_gettime if self.all.contains_key(&of_descriptor) => {
                self.get(call, of_descriptor, now_ns, second)?
            }
            libc::SYS_alarm => {
                let alarm = self.alarm(call)?;
                let (left_ns, _) = alarm.left(now_ns);
                alarm.arm(now_ns, (first.saturating_mul(1_000_000_000), 0), false);
                Some(Ok(left_ns.div_ceil(1_000_000_000) as i64))
            }
            libc::SYS_setitimer if first == libc::ITIMER_REAL as u64 => {
                let new = call.read(second, 32)?;
                let alarm = self.alarm(call)?;
                let old = alarm.left(now_ns);
                alarm.arm(now_ns, (time_of(&new[16..], 1000), time_of(&new[..16], 1000)), false);
                if third != 0 {
                    call.write(third, &interval(old))?;
                }
                Some(Ok(0))
            }
            libc::SYS_getitimer if first == libc::ITIMER_REAL as u64 => {
                call.write(second, &interval(self.alarm(call)?.left(now_ns)))?;
                Some(Ok(0))
            }
            libc::SYS_timer_create => self.create_numbered(call, threads)?,
            libc::SYS_timer_settime => self.set(call, Name::Number(first), now_ns, (second, third, fourth))?,
            libc::SYS_timer_gettime => self.get(call, Name::Number(first), now_ns, second)?,
            libc::SYS_timer_getoverrun => Some(Ok(0)),
            libc::SYS_timer_delete => Some(self.all.remove(&Name::Number(first)).map(|_| 0).ok_or(libc::EINVAL)),
            _ => None,
        })
    }

    fn alarm(&mut self, call: &Call) -> io::Result<&mut Timer> {
        let process = call.process()?;
        Ok(self.all.entry(Name::Alarm(process)).or_insert_with(|| Timer::new(Told::Alarm(process))))
    }

    fn create_descriptor(&mut self, process: &Process, call: &Call) -> io::Result<Given> {
        let flags = call.arguments[1] as i32 & libc::TFD_NONBLOCK;
        // SAFETY: a plain system call; what is got is owned.
        let event = unsafe {
            let event = libc::eventfd(0, libc::EFD_CLOEXEC | if flags != 0 { libc::EFD_NONBLOCK } else { 0 });
            if event < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(event)
        };
        let Some(descriptor) = process.add_descriptor(call, event.as_fd()) else { return Ok(Some(Err(libc::EMFILE))) };
        let timer = Timer { of_day: is_of_day(call.arguments[0]), ..Timer::new(Told::Event(event)) };
        self.all.insert(Name::Descriptor(call.process()?, u64::from(descriptor)), timer);
        Ok(Some(Ok(i64::from(descriptor))))
    }

    fn create_numbered(&mut self, call: &Call, threads: &Threads) -> io::Result<Given> {
        let [which, event, number, ..] = call.arguments;
        self.numbers += 1;
        let process = call.process()?;
        let told = if event == 0 {
            Told::Signal { process, thread: None, signal: libc::SIGALRM, value: self.numbers }
        } else {
            // `struct sigevent`: value, signal, kind, thread.
            let event = call.read(event, 20)?;
            let word = |at: usize| i32::from_le_bytes(event[at..at + 4].try_into().expect("four bytes"));
            let value = u64::from_le_bytes(event[..8].try_into().expect("eight bytes"));
            match word(12) {
                libc::SIGEV_NONE => Told::Nobody,
                libc::SIGEV_THREAD_ID => {
                    let thread = Some(threads.thread_of(word(16) as u32));
                    Told::Signal { process, thread, signal: word(8), value }
                }
                _ => Told::Signal { process, thread: None, signal: word(8), value },
            }
        };
        call.write(number, &(self.numbers as u32).to_le_bytes())?;
        self.all.insert(Name::Number(self.numbers), Timer { of_day: is_of_day(which), ..Timer::new(told) });
        Ok(Some(Ok(0)))
    }

    /// Arms a timer by (flags, new value, place for the old one).
    fn set(&mut self, call: &Call, name: Name, now_ns: u64, (flags, new, old): (u64, u64, u64)) -> io::Result<Given> {
        let Some(timer) = self.all.get_mut(&name) else { return Ok(Some(Err(libc::EINVAL))) };
        let raw = call.read(new, 32)?;
        let before = timer.left(now_ns);
        // `TFD_TIMER_ABSTIME` is the same number.
        let absolute = flags & libc::TIMER_ABSTIME as u64 != 0;
        timer.arm(now_ns, (time_of(&raw[16..], 1), time_of(&raw[..16], 1)), absolute);
        if let Told::Event(event) = &timer.told {
            // Expirations that nobody has read are forgotten. A copy that reads nothing where there are none.
            let mut none = 0u64;
            let mut poll = libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor that is open; eight bytes of ours.
            unsafe {
                if libc::poll(&raw mut poll, 1, 0) > 0 {
                    libc::read(event.as_raw_fd(), (&raw mut none).cast(), 8);
                }
            }
        }
        if old != 0 {
            call.write(old, &[timespec(before.1), timespec(before.0)].concat())?;
        }
        Ok(Some(Ok(0)))
    }

    fn get(&self, call: &Call, name: Name, now_ns: u64, place: u64) -> io::Result<Given> {
        let Some(timer) = self.all.get(&name) else { return Ok(Some(Err(libc::EINVAL))) };
        let (left, every) = timer.left(now_ns);
        call.write(place, &[timespec(every), timespec(left)].concat())?;
        Ok(Some(Ok(0)))
    }

    /// The next expiration of any.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.all.values().filter_map(|timer| timer.at_ns).min()
    }

    /// Tells of the first timer that has expired at an instant.
    pub(super) fn expire(&mut self, now_ns: u64) {
        let armed = self.all.values_mut().filter(|timer| timer.at_ns.is_some_and(|at| at <= now_ns));
        let Some(timer) = armed.min_by_key(|timer| timer.at_ns) else { return };
        let mut expirations = 0u64;
        while let Some(at) = timer.at_ns.filter(|&at| at <= now_ns) {
            expirations += 1;
            timer.at_ns = (timer.every_ns > 0).then(|| at + timer.every_ns);
        }
        tell(&timer.told, expirations);
    }
}

fn tell(told: &Told, expirations: u64) {
    // SAFETY: plain system calls on values of ours; whom a signal is for may be gone.
    unsafe {
        match *told {
            Told::Event(ref event) => {
                libc::write(event.as_raw_fd(), (&raw const expirations).cast(), 8);
            }
            Told::Alarm(process) => {
                libc::kill(process as libc::pid_t, libc::SIGALRM);
            }
            Told::Signal { process, thread, signal, value } => {
                // `siginfo_t`: signal, errno, code; for timers then number, overruns, value.
                const SI_TIMER: i32 = -2;
                let mut info = [0u8; 128];
                info[..4].copy_from_slice(&signal.to_le_bytes());
                info[8..12].copy_from_slice(&SI_TIMER.to_le_bytes());
                info[20..24].copy_from_slice(&(expirations.saturating_sub(1) as u32).to_le_bytes());
                info[24..32].copy_from_slice(&value.to_le_bytes());
                match thread {
                    Some(thread) => libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info.as_ptr()),
                    None => libc::syscall(libc::SYS_rt_sigqueueinfo, process, signal, info.as_ptr()),
                };
            }
            Told::Nobody => {}
        }
    }
}

/// `struct itimerval` of what is left and an interval.
fn interval((left_ns, every_ns): (u64, u64)) -> Vec<u8> {
    let time = |ns: u64| pair(ns / 1_000_000_000, (ns % 1_000_000_000).div_ceil(1000));
    [time(every_ns), time(left_ns)].concat()
}
