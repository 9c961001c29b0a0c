//! What the kernel's own actions cost on this computer: the figures that a machine's description has under `costs` and
//! `core_to_core_ns`, measured with ordinary system calls.
//!
//! Each figure is what the simulated kernel would have to charge so that the program below takes as long there as here (the
//! formulas are beside the programs). A sample is the mean of a batch of calls, the value is the median of the samples, and the
//! spread goes from the 5th to the 95th percentile. Other work on the computer falsifies the figures.
//!
//! Not measured: high-resolution ticks, balancing passes, how much of a message is under a lock or payload. A tick is what
//! a loop that reads the clock misses at a time, and not where nothing interrupts it.

use std::hint::{black_box, spin_loop};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{CpuSet, futex, sched_getaffinity, sched_setaffinity};
use warmcore_topology::{CpuId, Machine, MeasuredValue, Relation};
use warmcore_workload::Policy;

use crate::clock::{now_ns, sleep, sleep_until, thread_cpu_ns};
use crate::error::NativeError;
use crate::multiply::measure_multiply_add_ps;
use crate::sys::{Attributes, FreshMemory, PAGE_BYTES, page_bytes, set_attributes, set_timer_slack, thread_number};

/// Bytes of a message, hackbench's.
const MESSAGE_BYTES: usize = 100;
/// Batches of cheap calls, and calls in each.
const BATCHES: usize = 40;
const CALLS: u64 = 1_000;
/// Pages whose first touches are timed together: 4 MiB, as the step touches.
const PAGES: usize = 1024;
/// Messages to and fro in a batch between two threads.
const ROUNDS: u64 = 200;
/// Hand-offs of a line to and fro in a batch.
const HAND_OFFS: u32 = 2_000;
/// Sleeps, wakeups, new threads and moves that are timed one by one.
const SINGLE: usize = 200;
/// How long a loop looks for ticks, and by what a look that one interrupted is told: so many times the usual one.
const TICKS_NS: u64 = 200_000_000;
const INTERRUPTED: u64 = 10;
/// How long a thread sleeps that finds its CPU idle afterwards.
const SLEEP_NS: u64 = 1_000_000;
/// What a migrated task is assumed to fetch again, as in [`Costs::migration_ns`](warmcore_topology::Costs::migration_ns): 32 KiB.
const CACHE_LINES: usize = 512;
/// Pairs of CPUs that are tried for each relation.
const PAIRS: usize = 3;

/// Measures the costs of this computer, described by `machine`, on the CPUs that the process may use. Takes about a second.
///
/// How long a CPU takes out of its idle state no program can see: it sees only how late it is back, and much of that may be
/// before the kernel makes the wakeup. So that and how late timers are is measured if there are the kernel's own times of
/// `idle_wakeups` while [`sleep_on_idle_cpu`] ran.
///
/// Without `caches`, what only caches and the speed of a CPU decide is left out: hand-offs of a line, migrations, additions. An
/// emulated CPU has neither, and handing a line over takes most of the time there.
///
/// # Errors
/// A system call that the kernel refuses, and a machine of which the process may use no CPU.
pub fn measure_costs(
    machine: &Machine,
    idle_wakeups: Option<IdleWakeups>,
    caches: bool,
) -> Result<Vec<MeasuredValue>, NativeError> {
    // A thread of its own: affinity and policy are per thread.
    thread::scope(|scope| {
        let measuring = scope.spawn(|| Measuring::new(machine)?.all(idle_wakeups, caches));
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// What the kernel recorded of wakeups by timers on an idle CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdleWakeups {
    /// From `sched_waking` to `sched_switch`.
    pub latencies_ns: Vec<u64>,
    /// From the instant that a timer was set for to `sched_waking`.
    pub late_ns: Vec<u64>,
}

/// A thread that slept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sleeper {
    /// Its number.
    pub thread: i32,
    /// The instants on the monotonic clock until which it slept, each by a timer that may not wait for others.
    pub until_ns: Vec<u64>,
}

/// A thread sleeps many times on an otherwise idle CPU of `machine`, which is this computer.
///
/// # Errors
/// As of [`measure_costs`].
pub fn sleep_on_idle_cpu(machine: &Machine) -> Result<Sleeper, NativeError> {
    thread::scope(|scope| {
        let sleeping = scope.spawn(|| {
            let measuring = Measuring::new(machine)?;
            measuring.bind(measuring.first)?;
            set_timer_slack(0);
            let one = |_| {
                let until_ns = now_ns() + SLEEP_NS;
                sleep_until(until_ns);
                until_ns
            };
            Ok(Sleeper { until_ns: (0..SINGLE).map(one).collect(), thread: thread_number() })
        });
        sleeping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn refused(call: &'static str, error: Errno) -> NativeError {
    NativeError::Measuring { call, reason: error.to_string() }
}

struct Measuring<'a> {
    machine: &'a Machine,
    allowed: CpuSet,
    /// The first CPU that the process may use.
    first: CpuId,
    values: Vec<MeasuredValue>,
}

impl<'a> Measuring<'a> {
    fn new(machine: &'a Machine) -> Result<Self, NativeError> {
        let allowed = sched_getaffinity(None).map_err(|error| refused("sched_getaffinity", error))?;
        let mut measuring = Self { machine, allowed, first: CpuId(0), values: Vec::new() };
        match machine.cpus().find(|cpu| measuring.may_use(*cpu)) {
            Some(first) => measuring.first = first,
            None => return Err(refused("sched_setaffinity", Errno::INVAL)),
        }
        Ok(measuring)
    }

    fn all(mut self, idle_wakeups: Option<IdleWakeups>, caches: bool) -> Result<Vec<MeasuredValue>, NativeError> {
        let first = self.first;
        self.bind(first)?;
        self.add(
            "costs.syscall_ns",
            batches(|| {
                black_box(rustix::process::getppid());
            }),
        );
        let word = AtomicU32::new(0);
        self.add(
            "costs.futex_ns",
            batches(|| {
                let _ = futex::wake(&word, futex::Flags::PRIVATE, 1);
            }),
        );
        if page_bytes() == PAGE_BYTES {
            self.add("costs.page_fault_ns", first_touches()?);
        }
        let message_ns = self.messages()?;
        let wakeup_ns = self.wakeups()?;
        // Same CPU: write, wakeup, read that blocks, switch.
        let hop = self.hops(first, first)?;
        let switch_ns = self.add("costs.context_switch_ns", less(hop, 2 * message_ns + wakeup_ns));
        // Woken by a timer on an idle CPU: wakeup, way out of idle, then the switch.
        self.bind(first)?;
        let idle_exit_ns = match idle_wakeups {
            Some(recorded) => {
                self.add("costs.timer_late_ns", recorded.late_ns);
                self.add("costs.idle_exit_ns", less(recorded.latencies_ns, wakeup_ns))
            }
            None => self.machine.costs().idle_exit_ns,
        };
        // CPU time of a sleep: the call that arms the timer, and half a switch out and in.
        self.add("costs.timer_ns", less(sleeps(), switch_ns));
        if let Some(ticks) = ticks() {
            self.add("costs.tick_ns", ticks);
        }
        let fork_ns = self.add("costs.fork_ns", new_threads());
        // To the child and back, and the wakeup of who waits for its end.
        self.add("costs.exit_ns", less(lives(), fork_ns + 2 * switch_ns + wakeup_ns));
        if caches {
            self.values.push(exactly("costs.multiply_add_ns", measure_multiply_add_ps().get()));
        }
        // Another CPU, idle: write, wakeup, interrupt, way out of idle, switch.
        let other_ns = message_ns + wakeup_ns + idle_exit_ns + switch_ns;
        for relation in self.machine.relations() {
            let pairs = self.pairs(relation);
            self.interrupts(relation, &pairs, other_ns)?;
            if caches {
                self.transfers(relation, &pairs)?;
            }
        }
        Ok(self.values)
    }

    /// What an interrupt to another CPU adds to a message to it.
    fn interrupts(&mut self, relation: Relation, pairs: &[(CpuId, CpuId)], other_ns: u64) -> Result<(), NativeError> {
        let mut hops = Vec::new();
        for (a, b) in pairs {
            hops.extend(self.hops(*a, *b)?);
        }
        if !hops.is_empty() {
            self.add(&format!("costs.ipi_ns.{}", relation.name()), less(hops, other_ns));
        }
        Ok(())
    }

    /// What moves from cache to cache.
    fn transfers(&mut self, relation: Relation, pairs: &[(CpuId, CpuId)]) -> Result<(), NativeError> {
        let (mut lines, mut moves) = (Vec::new(), Vec::new());
        for (a, b) in pairs {
            lines.extend(self.line(*a, *b)?);
            moves.extend(self.moves(*a, *b)?);
        }
        if lines.is_empty() {
            return Ok(());
        }
        let name = relation.name();
        let line_ns = self.add(&format!("core_to_core_ns.{name}"), lines);
        self.values.push(exactly(&format!("costs.line_transfer_ns.{name}"), line_ns));
        self.add(&format!("costs.migration_ns.{name}"), moves);
        Ok(())
    }

    /// First, middle and last pair of CPUs of that relation that the process may use.
    fn pairs(&self, relation: Relation) -> Vec<(CpuId, CpuId)> {
        let usable: Vec<CpuId> = self.machine.cpus().filter(|cpu| self.may_use(*cpu)).collect();
        let with = |a: CpuId| usable.iter().filter(move |b| a < **b).map(move |b| (a, *b));
        let all: Vec<(CpuId, CpuId)> =
            usable.iter().flat_map(|a| with(*a)).filter(|(a, b)| self.machine.relation(*a, *b) == relation).collect();
        let mut chosen: Vec<(CpuId, CpuId)> =
            (0..PAIRS).filter_map(|i| all.get(i * all.len().saturating_sub(1) / (PAIRS - 1))).copied().collect();
        chosen.dedup();
        chosen
    }

    fn may_use(&self, cpu: CpuId) -> bool {
        let number = self.machine.os_index(cpu) as usize;
        number < CpuSet::MAX_CPU && self.allowed.is_set(number)
    }

    /// Binds the calling thread.
    fn bind(&self, cpu: CpuId) -> Result<(), NativeError> {
        let mut set = CpuSet::new();
        set.set(self.machine.os_index(cpu) as usize);
        sched_setaffinity(None, &set).map_err(|error| refused("sched_setaffinity", error))
    }

    /// Keeps a figure and returns its value.
    fn add(&mut self, name: &str, samples: Vec<u64>) -> u64 {
        let value = measured(name, samples);
        self.values.push(value.clone());
        value.value
    }

    /// One thread that writes a message and reads it: the mean of both calls. Returns the pipe's.
    fn messages(&mut self) -> Result<u64, NativeError> {
        let (reader, writer) = pipe()?;
        let pipe_ns = self.add("costs.pipe_message_ns", halves(batches(|| pass(&writer, &reader))));
        let (reader, writer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|error| refused("socketpair", error))?;
        self.add("costs.socket_message_ns", halves(batches(|| pass(&writer, &reader))));
        Ok(pipe_ns)
    }

    /// How much longer a write takes that wakes a reader: one of the same CPU that may not preempt the writer (`SCHED_BATCH`).
    fn wakeups(&mut self) -> Result<u64, NativeError> {
        let (reader, writer) = pipe()?;
        let (idle_reader, idle_writer) = pipe()?;
        let (mut waking, mut plain) = (Vec::new(), Vec::new());
        thread::scope(|scope| -> Result<(), NativeError> {
            scope.spawn(move || {
                let _ = set_attributes(Attributes { policy: Policy::Batch, ..Attributes::default() });
                let mut message = [0; MESSAGE_BYTES];
                while read(&reader, &mut message).is_ok_and(|bytes| bytes != 0) {}
            });
            for _ in 0..SINGLE {
                // The reader comes to its next read meanwhile.
                sleep(SLEEP_NS / 4);
                plain.push(timed(|| send(&idle_writer)));
                waking.push(timed(|| send(&writer)));
                receive(&idle_reader);
            }
            drop(writer);
            Ok(())
        })?;
        let plain_ns = measured("plain", plain).value;
        Ok(self.add("costs.wakeup_ns", less(waking, plain_ns)))
    }

    /// Time of a message from one thread to another, each bound to a CPU and waiting for the other's.
    fn hops(&self, a: CpuId, b: CpuId) -> Result<Vec<u64>, NativeError> {
        let ((there_out, there_in), (back_out, back_in)) = (pipe()?, pipe()?);
        thread::scope(|scope| {
            let answering = scope.spawn(move || {
                self.bind(b)?;
                let mut message = [0; MESSAGE_BYTES];
                while read(&there_out, &mut message).is_ok_and(|bytes| bytes != 0) {
                    send(&back_in);
                }
                Ok::<(), NativeError>(())
            });
            let bound = self.bind(a);
            let mut samples = Vec::new();
            for _ in 0..if bound.is_ok() { BATCHES } else { 0 } {
                let whole_ns = timed(|| {
                    for _ in 0..ROUNDS {
                        send(&there_in);
                        receive(&back_out);
                    }
                });
                samples.push(whole_ns / (2 * ROUNDS));
            }
            drop(there_in);
            answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            bound.map(|()| samples)
        })
    }

    /// Hand-off of a line that two CPUs write in turn.
    fn line(&self, a: CpuId, b: CpuId) -> Result<Vec<u64>, NativeError> {
        let turn = AlignedWord(AtomicU32::new(0));
        let last = 2 * HAND_OFFS * BATCHES as u32;
        thread::scope(|scope| {
            let (line, other) = (&turn.0, move || self.bind(b));
            let answering = scope.spawn(move || {
                let bound = other();
                // Even where it could not be bound, so that the other side ends.
                hand_on(line, 1, last);
                bound
            });
            let bound = self.bind(a);
            let mut samples = Vec::new();
            for batch in 0..BATCHES as u32 {
                let first = 2 * HAND_OFFS * batch;
                let whole_ns = timed(|| hand_on(line, first, first + 2 * HAND_OFFS));
                samples.push(whole_ns / u64::from(2 * HAND_OFFS));
            }
            answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            bound.map(|()| samples)
        })
    }

    /// How much longer a thread takes to read its 32 KiB after it has moved.
    fn moves(&self, a: CpuId, b: CpuId) -> Result<Vec<u64>, NativeError> {
        let lines: Vec<AlignedWord> = (0..CACHE_LINES).map(|_| AlignedWord(AtomicU32::new(0))).collect();
        let look = || lines.iter().map(|line| u64::from(line.0.load(Ordering::Relaxed))).sum::<u64>();
        let mut samples = Vec::new();
        for _ in 0..SINGLE / 2 {
            self.bind(a)?;
            for line in &lines {
                line.0.fetch_add(1, Ordering::Relaxed);
            }
            self.bind(b)?;
            let cold_ns = timed(|| black_box(look()));
            let warm_ns = timed(|| black_box(look()));
            samples.push(cold_ns.saturating_sub(warm_ns));
        }
        Ok(samples)
    }
}

/// A word alone in its lines (two, which some processors fetch together).
#[repr(align(128))]
struct AlignedWord(AtomicU32);

/// Waits for every second number from `from` to `to` and puts the next one there.
fn hand_on(line: &AtomicU32, from: u32, to: u32) {
    let mut expected = from;
    while expected < to {
        while line.load(Ordering::Acquire) != expected {
            spin_loop();
        }
        line.store(expected + 1, Ordering::Release);
        expected += 2;
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), NativeError> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|error| refused("pipe2", error))
}

/// Writes a message. An error shows as a figure of its time, and as a reader that ends.
fn send(writer: &OwnedFd) {
    let _ = write(writer, &[0; MESSAGE_BYTES]);
}

fn receive(reader: &OwnedFd) {
    let _ = read(reader, &mut [0; MESSAGE_BYTES]);
}

fn pass(writer: &OwnedFd, reader: &OwnedFd) {
    send(writer);
    receive(reader);
}

fn timed<T>(what: impl FnOnce() -> T) -> u64 {
    let from_ns = now_ns();
    let _ = what();
    now_ns() - from_ns
}

/// Mean time of a call, of each batch.
fn batches(mut call: impl FnMut()) -> Vec<u64> {
    let mut batch = || timed(|| (0..CALLS).for_each(|_| call())) / CALLS;
    (0..BATCHES).map(|_| batch()).collect()
}

/// Time of a page of memory that is written to first and given back.
fn first_touches() -> Result<Vec<u64>, NativeError> {
    let refused = |call| move |error: std::io::Error| NativeError::Measuring { call, reason: error.to_string() };
    let mut memory = FreshMemory::new(PAGES * PAGE_BYTES).map_err(refused("mmap"))?;
    let one = |_| {
        let mut result = Ok(());
        let took_ns = timed(|| {
            (0..PAGES).for_each(|page| memory.touch_page(page));
            result = memory.give_back(PAGES);
        });
        result.map(|()| took_ns / PAGES as u64).map_err(refused("madvise"))
    };
    (0..BATCHES).map(one).collect()
}

/// CPU time of making a thread, on its maker's CPU.
fn new_threads() -> Vec<u64> {
    static DONE: AtomicU64 = AtomicU64::new(0);
    let one = |_| {
        let from_ns = thread_cpu_ns();
        let made = thread::spawn(|| DONE.fetch_add(1, Ordering::Relaxed));
        let took_ns = thread_cpu_ns() - from_ns;
        let _ = made.join();
        took_ns
    };
    (0..SINGLE).map(one).collect()
}

/// Time from the making of a thread to the end of the wait for it, both on one CPU.
fn lives() -> Vec<u64> {
    let one = |_| {
        timed(|| {
            let _ = thread::spawn(|| ()).join();
        })
    };
    (0..SINGLE).map(one).collect()
}

/// CPU time of a sleep.
fn sleeps() -> Vec<u64> {
    let one = |_| {
        let from_ns = thread_cpu_ns();
        sleep_until(now_ns() + SLEEP_NS / 4);
        thread_cpu_ns() - from_ns
    };
    (0..SINGLE).map(one).collect()
}

/// What interrupts a loop that does nothing but look at the clock; `None` if nothing does.
fn ticks() -> Option<Vec<u64>> {
    let (mut looks, mut last_ns) = (Vec::new(), now_ns());
    let end_ns = last_ns + TICKS_NS;
    let mut usual_ns = u64::MAX;
    while last_ns < end_ns {
        let now_ns = now_ns();
        let took_ns = now_ns - last_ns;
        last_ns = now_ns;
        // A clock may be too coarse to tell two looks apart.
        usual_ns = usual_ns.min(took_ns.max(1));
        if took_ns > INTERRUPTED * usual_ns {
            looks.push(took_ns - usual_ns);
        }
    }
    (!looks.is_empty()).then_some(looks)
}

fn halves(samples: Vec<u64>) -> Vec<u64> {
    samples.into_iter().map(|sample| sample / 2).collect()
}

/// What is left of the samples without parts that are known.
fn less(samples: Vec<u64>, known_ns: u64) -> Vec<u64> {
    samples.into_iter().map(|sample| sample.saturating_sub(known_ns)).collect()
}

/// Median, 5th and 95th percentile.
fn measured(name: &str, mut samples: Vec<u64>) -> MeasuredValue {
    samples.sort_unstable();
    let at = |percent: usize| samples.get(samples.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0);
    MeasuredValue { name: name.to_owned(), value: at(50), low: at(5), high: at(95) }
}

fn exactly(name: &str, value: u64) -> MeasuredValue {
    MeasuredValue { name: name.to_owned(), value, low: value, high: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_samples_counts_and_the_spread_leaves_out_the_extremes() {
        let samples = (0..=100).rev().chain([1_000_000]).collect();
        assert_eq!(measured("x", samples), MeasuredValue { name: "x".into(), value: 50, low: 5, high: 95 });
        assert_eq!(measured("x", less(vec![10, 30], 20)).high, 0);
    }

    #[test]
    fn every_figure_of_this_computer_is_a_value_of_a_machine() {
        let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
        let recorded = IdleWakeups { latencies_ns: vec![5_000_000], late_ns: vec![1_300] };
        let measured = measure_costs(&machine, Some(recorded), true).unwrap();
        let names: Vec<&str> = measured.iter().map(|value| value.name.as_str()).collect();
        let known =
            ["syscall_ns", "wakeup_ns", "context_switch_ns", "idle_exit_ns", "pipe_message_ns", "fork_ns", "exit_ns"];
        for name in known.into_iter().chain(["timer_ns", "timer_late_ns"]) {
            assert!(names.contains(&format!("costs.{name}").as_str()), "{name} of {names:?}");
        }
        assert!(measured.iter().all(|value| value.low <= value.value && value.value <= value.high));
        let described = warmcore_topology::with_measured_values(machine, &measured, "here").unwrap();
        assert_eq!(described.costs().syscall_ns, measured[0].value);
    }

    #[test]
    fn two_cpus_hand_a_line_on_and_wake_each_other() {
        let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
        let measured = measure_costs(&machine, None, true).unwrap();
        let has = |measured: &[MeasuredValue], name: &str| measured.iter().any(|value| value.name == name);
        assert!(!has(&measured, "costs.idle_exit_ns"), "nobody saw it");
        let two = sched_getaffinity(None).unwrap().count() > 1;
        assert_eq!(has(&measured, "costs.ipi_ns.same_llc"), two);
        assert_eq!(has(&measured, "core_to_core_ns.same_llc"), two);
        let measured = measure_costs(&machine, None, false).unwrap();
        assert_eq!(has(&measured, "costs.ipi_ns.same_llc"), two);
        for name in ["core_to_core_ns.same_llc", "costs.migration_ns.same_llc", "costs.multiply_add_ns"] {
            assert!(!has(&measured, name), "{name} without caches");
        }
    }
}
