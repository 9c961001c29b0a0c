//! Programs at samples of a counter (`BPF_PROG_TYPE_PERF_EVENT`).
//!
//! A CPU's counter takes a sample each time that it has gone on by its period, in the name of what runs there. A clock goes on whether its CPU is busy or
//! idle, so `cpu-clock` and `task-clock` of a CPU are the same, and samples come exactly a period apart, the first one period after the run begins or the
//! counter is enabled. Cycles pass in tasks alone. Nobody tells here when they reach a number, so they are looked at until they have: a sample is late by
//! 1 µs at most on a busy CPU, and by 50 µs where the CPU was idle before it.
//!
//! The interrupt of a sample takes no time itself, and lets a CPU look whether it is to switch, as any interrupt does. The program takes what its
//! instructions and calls take, and is counted with those of timers. A simulated task has no registers: they are zeros, but for the segments and flags
//! that say if it was in user space. There is no address either. A CPU that is offline takes none.
//!
//! Source: Linux 7.2 `kernel/events/core.c` (`perf_swevent_init_hrtimer`, `perf_swevent_hrtimer`, `perf_exclude_event`, `bpf_overflow_handler`),
//! `include/uapi/linux/bpf_perf_event.h`, `arch/x86/include/asm/ptrace.h` (where registers lie).

use crate::bytecode::counters::{Counted, CounterId, CounterSpec};
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

/// No CPU's clock has more cycles in a nanosecond.
const MOST_CYCLES_PER_NS: u64 = 8;

/// Least time between two looks at a counter that is no clock, ns: on a busy CPU, and on an idle one.
const LOOK_NS: [u64; 2] = [1_000, 50_000];

/// When a counter takes samples, and of whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// What it counts from one sample to the next: nanoseconds of a clock, cycles. Above 0.
    pub period: u64,
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
        let period = match (counted, is_frequency) {
            _ if number == 0 => return None,
            (Counted::Time, true) => SECOND_NS / number,
            (Counted::Time | Counted::Cycles, false) => number,
            _ => return None,
        };
        let period = if counted == Counted::Time { period.max(LEAST_PERIOD_NS) } else { period };
        Some(Self { period, excludes_user: false, excludes_kernel: false, excludes_idle: false })
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
}

impl Sampler {
    /// Whether it takes samples of a counter.
    fn is_of(&self, counter: CounterId) -> bool {
        self.counter == counter && self.program.is_some()
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
        samplers.push(Sampler { counter: id, program: Some(program), generation: 0, next: 0 });
        self.restart_samples_of(id);
        true
    }

    /// The scheduler that they were attached with is gone.
    pub(super) fn stop_samplers(&mut self) {
        self.kept.samplers.iter_mut().for_each(|sampler| sampler.program = None);
    }

    /// A counter was enabled or disabled.
    pub(super) fn restart_samples_of(&mut self, id: CounterId) {
        if let Some(number) = self.kept.samplers.iter().position(|sampler| sampler.is_of(id)) {
            self.restart_samples(number);
        }
    }

    /// Begins to wait for the first sample, if the counter is enabled and there is a run.
    fn restart_samples(&mut self, number: usize) {
        let Sampler { counter, generation, .. } = self.kept.samplers[number];
        self.kept.samplers[number].generation = generation.wrapping_add(1) & GENERATION;
        let Some((spec, true)) = self.spec_of_counter(counter) else { return };
        let Some(sampling) = spec.sampling else { return };
        self.kept.samplers[number].next = self.position(spec).saturating_add(sampling.period);
        self.wait_for_sample(number, spec);
    }

    /// How far a counter is. Clocks begin with the run.
    fn position(&self, spec: CounterSpec) -> u64 {
        let now_ns = self.kernel().map_or(0, |kernel| kernel.now_ns());
        self.counted(spec, now_ns).unwrap_or(0)
    }

    /// Sets the timer that looks at a counter.
    fn wait_for_sample(&self, number: usize, spec: CounterSpec) {
        let Sampler { generation, next, .. } = self.kept.samplers[number];
        let left = next.saturating_sub(self.position(spec));
        let Some(kernel) = self.kernel() else { return };
        let delay_ns = match spec.counted {
            Counted::Time => left,
            _ => (left / MOST_CYCLES_PER_NS).max(LOOK_NS[usize::from(kernel.runs_on(spec.cpu).is_idle())]),
        };
        let payload = SAMPLE | (number as u32) << GENERATION_BITS | generation;
        kernel.core.start_timer(spec.cpu, delay_ns, u64::from(payload));
    }

    /// A timer that looks at a counter has run out, on the counter's CPU: the sample, if one is to be taken.
    fn look_for_sample(&mut self, payload: u32) -> Option<Sample> {
        let number = ((payload & !SAMPLE) >> GENERATION_BITS) as usize;
        let Sampler { counter, program, generation, next } = *self.kept.samplers.get(number)?;
        let (program, (spec, is_enabled)) = (program?, self.spec_of_counter(counter)?);
        let sampling = spec.sampling?;
        if generation != payload & GENERATION || !is_enabled {
            return None;
        }
        let position = self.position(spec);
        let is_due = position >= next;
        if is_due {
            // Whole periods that have passed meanwhile are one sample.
            let passed = (position - next) / sampling.period + 1;
            self.kept.samplers[number].next = next.saturating_add(passed.saturating_mul(sampling.period));
        }
        self.wait_for_sample(number, spec);
        let kernel = self.kernel()?;
        let task = kernel.runs_on(spec.cpu);
        let is_idle = task.is_idle();
        let is_user = !is_idle && !kernel.task(task).is_kernel_thread();
        let is_excluded = sampling.excludes_user && is_user
            || sampling.excludes_kernel && !is_user
            || sampling.excludes_idle && is_idle
            || !kernel.core.active().contains(spec.cpu);
        (is_due && !is_excluded).then_some(Sample { counter, program, period: sampling.period, is_user })
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
            (Counted::Cycles, 1_000, true, None),
            (Counted::Instructions, 1_000, false, None),
        ] {
            assert_eq!(period(counted, number, is_frequency), expected, "{counted:?} {number}");
        }
    }
}
