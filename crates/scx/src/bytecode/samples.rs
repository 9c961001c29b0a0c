//! Programs at samples of a counter (`BPF_PROG_TYPE_PERF_EVENT`).
//!
//! A CPU's counter takes a sample each time that it has gone on by its period, in the name of what runs there. A clock goes on whether its CPU is busy or
//! idle, so `cpu-clock` and `task-clock` of a CPU are the same, and samples come exactly a period apart, the first one period after the run begins or the
//! counter is enabled. Cycles and instructions pass in tasks alone. Nobody tells here when they reach a number, so they are looked at until they have: a
//! sample is late by 1 µs at most on a busy CPU, and by 50 µs where the CPU was idle before it. A counter of a task goes on while the task runs.
//!
//! For a frequency the period of cycles and instructions begins at 1 and is adapted at samples and at ticks, as a kernel does it, so that many samples
//! come in the first microseconds.
//!
//! The interrupt of a sample takes no time itself, and lets a CPU look whether it is to switch, as any interrupt does. The program takes what its
//! instructions and calls take, and is counted with those of timers. A simulated task has no registers: they are zeros, but for the segments and flags
//! that say if it was in user space. There is no address either. A CPU that is offline takes none.
//!
//! Source: Linux 7.2 `kernel/events/core.c` (`perf_swevent_init_hrtimer`, `perf_swevent_hrtimer`, `perf_exclude_event`, `bpf_overflow_handler`,
//! `perf_adjust_period`, `perf_adjust_freq_unthr_context`),
//! `include/uapi/linux/bpf_perf_event.h`, `arch/x86/include/asm/ptrace.h` (where registers lie).

use crate::bytecode::counters::{Counted, CounterId};
use crate::bytecode::host::Host;
use crate::bytecode::object::ProgramId;
use crate::bytecode::operations::Bytecode;
use crate::bytecode::tracepoints::{RECORD, RECORD_BYTES};
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;

/// Bit of the number of a timer that brings a sample. Below it are the sampler's number and that of its start.
pub(super) const SAMPLE: u32 = 1 << 31;

const GENERATION_BITS: u32 = 16;
const GENERATION: u32 = (1 << GENERATION_BITS) - 1;

/// Samplers that there may be: the last number is that of the loader's own timer.
const SAMPLERS: usize = (1 << (31 - GENERATION_BITS)) - 1;

/// No clock brings samples faster, ns.
const LEAST_PERIOD_NS: u64 = 10_000;

/// Least time between two looks at a counter that is no clock, ns: on a busy CPU, and on an idle one.
const LOOK_NS: [u64; 2] = [1_000, 50_000];

/// When a counter takes samples, and of whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// What it counts from one sample to the next: nanoseconds of a clock, cycles, instructions. Above 0.
    pub period: u64,
    /// The samples a second to which the period is adapted, of which that one is then the first; none if it stays.
    pub frequency: Option<u64>,
    /// It takes none of tasks in user space (`exclude_user`).
    pub excludes_user: bool,
    /// None of threads of the kernel and of idle CPUs (`exclude_kernel`).
    pub excludes_kernel: bool,
    /// None of idle CPUs (`exclude_idle`).
    pub excludes_idle: bool,
}

impl Sampling {
    /// The samples of events of this kind by a period or, if it is that, a frequency in Hz; `None` if there are none, or they are not modelled.
    #[must_use]
    pub fn of(counted: Counted, number: u64, is_frequency: bool) -> Option<Self> {
        const SECOND_NS: u64 = 1_000_000_000;
        let (period, frequency) = match (counted, is_frequency) {
            _ if number == 0 => return None,
            (Counted::Time, _) => {
                let period = if is_frequency { SECOND_NS / number } else { number };
                (period.max(LEAST_PERIOD_NS), None)
            }
            (Counted::Cycles | Counted::Instructions, false) => (number, None),
            (Counted::Cycles | Counted::Instructions, true) => (1, Some(number)),
            _ => return None,
        };
        Some(Self { period, frequency, excludes_user: false, excludes_kernel: false, excludes_idle: false })
    }
}

/// More than a CPU counts in a nanosecond: cycles of no clock, and instructions of no pipeline.
const fn most_per_ns(counted: Counted) -> u64 {
    match counted {
        Counted::Cycles => 8,
        _ => 32,
    }
}

/// A counter whose samples a program is called at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampler {
    counter: CounterId,
    /// None once the scheduler that it was attached with is gone.
    program: Option<ProgramId>,
    /// Number of the last start or stop: what was under way before that is ignored.
    generation: u32,
    /// The count at which the next sample is taken.
    next: u64,
    period: u64,
    /// When the last sample was taken, ns.
    sampled_ns: u64,
    /// When the period was last adapted at a tick, ns, and the count then.
    ticked: (u64, u64),
}

impl Sampler {
    /// Whether it takes samples of a counter.
    fn is_of(&self, counter: CounterId) -> bool {
        self.counter == counter && self.program.is_some()
    }

    /// The counter is at this position at an instant: the period of the sample that is taken, if one is.
    fn look(&mut self, frequency: Option<u64>, position: u64, (now_ns, tick_ns): (u64, u64)) -> Option<u64> {
        let (is_due, period) = (position >= self.next, self.period);
        let Some(frequency) = frequency else {
            if is_due {
                // Whole periods that have passed meanwhile are one sample.
                let passed = (position - self.next) / period + 1;
                self.next = self.next.saturating_add(passed.saturating_mul(period));
            }
            return is_due.then_some(period);
        };
        if is_due {
            let passed_ns = now_ns.saturating_sub(self.sampled_ns);
            self.sampled_ns = now_ns;
            if (1..2 * tick_ns).contains(&passed_ns) {
                self.adapt(frequency, passed_ns, period);
            }
            self.next = position.saturating_add(self.period);
        }
        if now_ns / tick_ns > self.ticked.0 / tick_ns {
            let counted = position.saturating_sub(self.ticked.1);
            self.ticked = (now_ns, position);
            if counted > 0 {
                self.adapt(frequency, tick_ns, counted);
            }
            if self.next.saturating_sub(position) > self.period.saturating_mul(8) {
                self.next = position;
            }
        }
        is_due.then_some(period)
    }

    /// Goes an eighth of the way to the period that what was counted of late asks for (`perf_adjust_period`).
    fn adapt(&mut self, frequency: u64, passed_ns: u64, counted: u64) {
        let wanted = u128::from(counted) * 1_000_000_000 / (u128::from(passed_ns) * u128::from(frequency));
        let difference = i64::try_from(wanted).unwrap_or(i64::MAX).saturating_sub_unsigned(self.period);
        let rounded = if difference >= 0 { difference.saturating_add(7) } else { difference.saturating_sub(7) };
        self.period = self.period.saturating_add_signed(rounded / 8).max(1);
    }
}

/// A sample that is taken.
struct Sample {
    counter: CounterId,
    program: ProgramId,
    period: u64,
    /// It is of a task in user space.
    is_user: bool,
}

impl Host {
    /// Whether a counter takes samples that are modelled.
    #[must_use]
    pub fn takes_samples(&self, id: CounterId) -> bool {
        self.spec_of_counter(id).is_some_and(|(spec, _)| spec.sampling.is_some())
    }

    /// Has a program called at each sample of a counter. False if there is one already, or there are too many.
    pub fn call_at_samples(&mut self, id: CounterId, program: ProgramId) -> bool {
        let samplers = &mut self.kept.samplers;
        if samplers.len() >= SAMPLERS || samplers.iter().any(|sampler| sampler.is_of(id)) {
            return false;
        }
        let program = Some(program);
        samplers.push(Sampler {
            counter: id,
            program,
            generation: 0,
            next: 0,
            period: 1,
            sampled_ns: 0,
            ticked: (0, 0),
        });
        self.restart_samples_of(id);
        true
    }

    /// The scheduler that they were attached with is gone.
    pub(super) fn stop_samplers(&mut self) {
        self.kept.samplers.iter_mut().for_each(|sampler| sampler.program = None);
    }

    fn sampler_of(&self, id: CounterId) -> Option<usize> {
        self.kept.samplers.iter().position(|sampler| sampler.is_of(id))
    }

    /// A counter was enabled or disabled.
    pub(super) fn restart_samples_of(&mut self, id: CounterId) {
        if let Some(number) = self.sampler_of(id) {
            self.restart_samples(number);
        }
    }

    /// The task of a counter does not run any more.
    pub(super) fn suspend_samples_of(&mut self, id: CounterId) {
        if let Some(number) = self.sampler_of(id) {
            self.forget_look(number);
        }
    }

    /// It runs again: the sample comes when the rest of the period has passed.
    pub(super) fn resume_samples_of(&mut self, id: CounterId) {
        if let Some(number) = self.sampler_of(id) {
            self.forget_look(number);
            self.wait_for_sample(number);
        }
    }

    /// What is under way is ignored.
    fn forget_look(&mut self, number: usize) {
        let sampler = &mut self.kept.samplers[number];
        sampler.generation = sampler.generation.wrapping_add(1) & GENERATION;
    }

    /// Begins to wait for the first sample, if the counter is enabled and there is a run.
    fn restart_samples(&mut self, number: usize) {
        self.forget_look(number);
        let counter = self.kept.samplers[number].counter;
        let Some((spec, true)) = self.spec_of_counter(counter) else { return };
        let Some(sampling) = spec.sampling else { return };
        let position = self.position(counter);
        let now_ns = self.kernel().map_or(0, |kernel| kernel.now_ns());
        let sampler = &mut self.kept.samplers[number];
        (sampler.period, sampler.next) = (sampling.period, position.saturating_add(sampling.period));
        (sampler.sampled_ns, sampler.ticked) = (now_ns, (now_ns, position));
        self.wait_for_sample(number);
    }

    /// Sets the timer that looks at a counter, if that counts.
    fn wait_for_sample(&self, number: usize) {
        let Sampler { counter, generation, next, .. } = self.kept.samplers[number];
        let (Some((spec, _)), Some(cpu)) = (self.spec_of_counter(counter), self.counts_on(counter)) else { return };
        let left = next.saturating_sub(self.position(counter));
        let Some(kernel) = self.kernel() else { return };
        let look_ns = LOOK_NS[usize::from(kernel.runs_on(cpu).is_idle())];
        let delay_ns = match (spec.counted, spec.sampling.and_then(|sampling| sampling.frequency)) {
            (Counted::Time, _) => left,
            (counted, None) => (left / most_per_ns(counted)).max(look_ns),
            // Periods are adapted at ticks.
            (counted, Some(_)) => (left / most_per_ns(counted)).max(look_ns).min(kernel.tick_ns()),
        };
        let payload = SAMPLE | (number as u32) << GENERATION_BITS | generation;
        kernel.core.start_timer(cpu, delay_ns, u64::from(payload));
    }

    /// A timer that looks at a counter has run out, on the CPU that it counts: the sample, if one is to be taken.
    fn look_for_sample(&mut self, payload: u32) -> Option<Sample> {
        let number = ((payload & !SAMPLE) >> GENERATION_BITS) as usize;
        let Sampler { counter, program, generation, .. } = *self.kept.samplers.get(number)?;
        let (program, (spec, is_enabled)) = (program?, self.spec_of_counter(counter)?);
        let sampling = spec.sampling?;
        if generation != payload & GENERATION || !is_enabled {
            return None;
        }
        let cpu = self.counts_on(counter)?;
        let position = self.position(counter);
        let instant = self.kernel().map(|kernel| (kernel.now_ns(), kernel.tick_ns()))?;
        let period = self.kept.samplers[number].look(sampling.frequency, position, instant);
        self.wait_for_sample(number);
        let kernel = self.kernel()?;
        let task = kernel.runs_on(cpu);
        let is_idle = task.is_idle();
        let is_user = !is_idle && !kernel.task(task).is_kernel_thread();
        let is_excluded = sampling.excludes_user && is_user
            || sampling.excludes_kernel && !is_user
            || sampling.excludes_idle && is_idle
            || !kernel.core.active().contains(cpu);
        let period = period.filter(|_| !is_excluded)?;
        Some(Sample { counter, program, period, is_user })
    }

    /// Writes `struct bpf_perf_event_data`; gives where.
    fn write_sample(&mut self, sample: &Sample) -> u64 {
        /// Where the code segment, the flags and the stack segment lie in `struct pt_regs`, and what is behind that.
        const CS: u64 = 136;
        const FLAGS: u64 = 144;
        const SS: u64 = 160;
        const PERIOD: u64 = 168;
        /// Interrupts are on; a bit that is always set.
        const INTERRUPTS_ON: u64 = 0x202;
        let at = self.kept.scratch + RECORD;
        if let Some(place) = self.maps.memory.write(at, RECORD_BYTES) {
            place.fill(0);
        }
        // `__USER_CS` and `__USER_DS`, `__KERNEL_CS` and `__KERNEL_DS`.
        let (cs, ss) = if sample.is_user { (0x33, 0x2b) } else { (0x10, 0x18) };
        for (member, value) in [(CS, cs), (FLAGS, INTERRUPTS_ON), (SS, ss), (PERIOD, sample.period)] {
            self.store_u64(at + member, value);
        }
        at
    }
}

impl Bytecode {
    /// The run begins, or the scheduler is attached again in it.
    pub(super) fn begin_samples(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        self.host.kernel = Some(std::ptr::from_mut(kernel).cast());
        for number in 0..self.host.kept.samplers.len() {
            self.host.restart_samples(number);
        }
        self.host.kernel = None;
    }

    /// A timer of a sampler has run out.
    pub(super) fn sample(&mut self, kernel: &mut Kfuncs<'_, '_>, payload: u32) {
        self.host.kernel = Some(std::ptr::from_mut(kernel).cast());
        let sample = self.host.look_for_sample(payload);
        self.host.kernel = None;
        let Some(sample) = sample else { return };
        let context = self.host.write_sample(&sample);
        self.host.write_context(kernel.this_cpu(), true);
        self.host.sampled = Some(sample.counter);
        self.enter(kernel, Operation::Timer, (sample.program.0 as usize, 0), [context, 0, 0, 0, 0]);
        self.host.sampled = None;
        self.host.write_context(kernel.this_cpu(), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequency_of_a_clock_is_a_period_and_no_clock_is_faster_than_every_ten_microseconds() {
        let period =
            |counted, number, is_frequency| Sampling::of(counted, number, is_frequency).map(|sampling| sampling.period);
        for (counted, number, is_frequency, expected) in [
            (Counted::Time, 0, true, None),
            (Counted::Time, 99, true, Some(10_101_010)),
            (Counted::Time, 1_000_000, false, Some(1_000_000)),
            (Counted::Time, 1, false, Some(10_000)),
            (Counted::Cycles, 1_000, false, Some(1_000)),
            (Counted::Cycles, 1_000, true, Some(1)),
            (Counted::Instructions, 1_000, false, Some(1_000)),
            (Counted::PageWalks, 1_000, false, None),
            (Counted::Switches, 1_000, true, None),
        ] {
            assert_eq!(period(counted, number, is_frequency), expected, "{counted:?} {number}");
        }
    }

    /// By hand: 3 cycles a nanosecond and 1000 samples a second are a period of 3 million. Each step leaves seven eighths of the way, so after 100 samples
    /// less than a thousandth is left; half the speed is found again in as many.
    #[test]
    fn a_period_follows_a_frequency_as_fast_as_a_kernel_has_it() {
        const TICK_NS: u64 = 4_000_000;
        let counter = CounterId::of(0);
        let mut sampler =
            Sampler { counter, program: None, generation: 0, next: 1, period: 1, sampled_ns: 0, ticked: (0, 0) };
        let (mut now_ns, mut position, mut samples) = (0, 0, 0);
        for per_us in [3000, 1500] {
            while samples < 100 {
                now_ns += 1000;
                position += per_us;
                samples += u32::from(sampler.look(Some(1000), position, (now_ns, TICK_NS)).is_some());
            }
            let wanted = per_us as f64 * 1000.0;
            assert!((sampler.period as f64 / wanted - 1.0).abs() < 0.005, "{} for {wanted}", sampler.period);
            samples = 0;
        }
    }
}
