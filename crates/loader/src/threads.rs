//! Threads of a loader as tasks: their numbers, and what they have done that their tasks have not run for yet.
//!
//! A thread that goes on does so while simulated time stands, and its task runs afterwards for what that takes: [`WAKE_NS`] for what it does from one wait
//! to the next, [`CALL_NS`] for each system call that is answered, [`RECORD_NS`] for each record of a ring buffer. Other calls are part of the first.
//! Threads that begin after the scheduler is attached count as the first one.

use warmcore_scx::bytecode::{Host, LOADER_PID};

use crate::process::{Call, Process};

/// What a thread does from one wait to the next, in ns: what remains of a turn of `scx_lavd`'s threads, a debug build, without their calls
/// (`results/2026-11-28-2vcpu-loader-time/threads.tsv`: 22 to 32 µs with calls that are answered; without: assumed).
pub(crate) const WAKE_NS: u64 = 10_000;

/// A system call (assumed).
pub(crate) const CALL_NS: u64 = 500;

/// A record that is taken from a ring buffer or put into one, with what is decided about it (assumed).
pub(crate) const RECORD_NS: u64 = 1_000;

/// What a look takes that finds nothing to do, of many one after the other, in ns: between two of them nothing is seen.
pub(crate) const LOOK_NS: u64 = 1_000_000;

/// How many looks one after the other take no longer than they do.
const QUICK_LOOKS: u32 = 64;

/// The prices, as a condition of a result.
pub struct LoaderPrices;

impl std::fmt::Display for LoaderPrices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |ns: u64| ns as f64 / 1000.0;
        let [wake, call, record] = [WAKE_NS, CALL_NS, RECORD_NS].map(us);
        write!(f, "a turn takes {wake} µs, a system call {call} µs, a record of a ring buffer {record} µs (assumed)")
    }
}

/// What is known of a thread.
#[derive(Default)]
struct Known {
    /// As this computer names it.
    thread: u32,
    /// What it has done that its task has not run for yet, in ns.
    owed_ns: u64,
    /// Calls so far.
    calls: u64,
    /// Looks one after the other that found nothing.
    looks: u32,
}

/// Threads by number; the first one is the process's.
#[derive(Default)]
pub(crate) struct Threads {
    all: Vec<Known>,
}

impl Threads {
    /// Gives numbers to the threads that there are by now, in the order in which they began.
    pub fn find(&mut self, process: &Process) {
        let first = process.first_thread();
        let mut there = process.threads();
        there.sort_by_key(|thread| thread.wrapping_sub(first));
        for thread in there {
            if !self.all.iter().any(|known| known.thread == thread) {
                self.all.push(Known { thread, ..Known::default() });
            }
        }
    }

    /// As this computer names them.
    pub fn names(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|known| known.thread)
    }

    /// Number of a thread: 0 for what is unknown.
    pub fn number_of(&self, thread: u32) -> u32 {
        self.all.iter().position(|known| known.thread == thread).unwrap_or(0) as u32
    }

    /// What the simulated kernel calls a thread; `None` for those of other processes.
    pub fn pid_of(&mut self, process: &Process, thread: u32) -> Option<u32> {
        if !self.all.iter().any(|known| known.thread == thread) {
            self.find(process);
        }
        let number = self.all.iter().position(|known| known.thread == thread)?;
        Some(LOADER_PID + number as u32)
    }

    /// The thread that the simulated kernel calls so; another number stands for itself.
    pub fn thread_of(&self, pid: u32) -> u32 {
        let number = pid.checked_sub(LOADER_PID).and_then(|number| self.all.get(number as usize));
        number.map_or(pid, |known| known.thread)
    }

    /// A thread has made a call that takes so long.
    pub fn called(&mut self, call: &Call, ns: u64) {
        let number = self.number_of(call.thread);
        if let Some(known) = self.all.get_mut(number as usize) {
            known.owed_ns += ns;
            known.calls += 1;
        }
    }

    /// Nothing is owed: no task runs for what was done.
    pub fn forgive(&mut self) {
        self.all.iter_mut().for_each(|known| known.owed_ns = 0);
    }

    /// Threads whose tasks have to run.
    pub fn owing(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.all).filter(|(_, known)| known.owed_ns > 0).map(|(number, _)| number)
    }

    /// What the task of a thread has to run now.
    pub fn take_owed(&mut self, number: u32) -> Option<u64> {
        let known = self.all.get_mut(number as usize)?;
        Some(std::mem::take(&mut known.owed_ns)).filter(|&ns| ns > 0)
    }

    /// A thread that had yielded has gone on; by how much its calls have come on, and how many records it has handled. One that does nothing but yield again
    /// and again is not followed through each of its looks.
    pub fn has_looked(&mut self, number: u32, calls_before: u64, records: u64) {
        let Some(known) = self.all.get_mut(number as usize) else { return };
        let found_nothing = records == 0 && known.calls <= calls_before + 1;
        known.looks = if found_nothing { known.looks + 1 } else { 0 };
        if known.looks > QUICK_LOOKS {
            known.owed_ns = known.owed_ns.max(LOOK_NS);
        }
    }

    /// Calls of a thread so far.
    pub fn calls(&self, number: u32) -> u64 {
        self.all.get(number as usize).map_or(0, |known| known.calls)
    }

    /// A thread has been awake from one wait to the next, and has handled so many records.
    pub fn was_awake(&mut self, number: u32, wake_ns: u64, records: u64) {
        if let Some(known) = self.all.get_mut(number as usize) {
            known.owed_ns += wake_ns + records * RECORD_NS;
        }
    }
}

/// How far user space has come in the ring buffers of programs.
#[derive(Default)]
pub(crate) struct Positions(Vec<(u64, u64)>);

impl Positions {
    /// Where it is.
    pub fn of(host: &Host) -> Self {
        let handles = 1..=host.maps.iter().count() as u64;
        Self(handles.filter_map(|handle| Some((handle, host.maps.ring_of_user(handle)?))).collect())
    }

    /// How many records it has taken or put since.
    pub fn records_since(&self, host: &Host) -> u64 {
        self.0.iter().map(|&(handle, position)| host.maps.ring_records_of_user(handle, position)).sum()
    }
}
