//! Interrupts of devices and of other CPUs' requests that no rule of a scheduler causes: when they arrive, and what they take.
//!
//! One occupies its CPU from its handler's entry to the end of the softirqs on its return. Nobody is switched: whatever runs there makes no progress for so
//! long, and is charged with the time, as in kernels without `CONFIG_IRQ_TIME_ACCOUNTING` (Debian's). With it the policy learns of each interrupt
//! ([`Scheduler::interrupted`]); a task's CPU time includes them all the same. A switch that is asked for meanwhile comes when
//! it is over, as at any interrupt's return. It is time of the kernel as a tick is ([`Core::charge`](crate::Core::charge)); of an idle CPU nobody misses it.
//!
//! Not here: interrupts that the kernel's model has itself (ticks, timers, wakeups and reschedule requests from other CPUs, the stopper's), and what an
//! interrupt does to others: a device that has completed a request wakes nobody. One that meets another lies beside it and not inside.
//!
//! Source of the mechanism: Linux 7.2 `kernel/softirq.c` (`irq_exit_rcu`), `kernel/sched/core.c` (`update_rq_clock_task`); of the numbers: the machine's
//! background.

use rand_pcg::Pcg32;
use warmcore_topology::{CpuId, Interrupt, Machine, ThreadPlace};
use warmcore_trace::{BackgroundOutcome, OverheadKind};

use crate::background::{Parked, below, first_ns, interval_ns, one_of};
use crate::engine::Engine;
use crate::event_queue::Class;
use crate::memory::Memory;
use crate::scheduler::Scheduler;

/// Keeps these streams apart from others with the same seed; any odd constant does.
const STREAM: u64 = 0x6972_715f_7665_6373;

/// Generation of [`Class::Background`] events that are interrupts; those of threads have none.
pub(crate) const INTERRUPT: u32 = 1;

/// A vector that fires on one CPU: an interrupt of each CPU is as many of these.
struct Vector {
    /// Which of the background's interrupts it is.
    interrupt: u32,
    cpu: CpuId,
    stream: Pcg32,
    /// How often it has fired, and what that took.
    count: u64,
    time_ns: u64,
}

/// The interrupts of a machine in a run.
pub(crate) struct Interrupts<'a> {
    all: &'a [Interrupt],
    vectors: Vec<Vector>,
}

impl<'a> Interrupts<'a> {
    /// Those of a machine. On which CPU one is that may be on several, the seed says.
    pub fn of(machine: &'a Machine, seed: u64) -> Self {
        let all = machine.background().interrupts.as_slice();
        let mut random = Pcg32::new(seed, STREAM);
        let mut vectors = Vec::new();
        for (number, interrupt) in all.iter().enumerate() {
            let cpus: Vec<CpuId> = match &interrupt.place {
                ThreadPlace::EachCpu => machine.cpus().collect(),
                ThreadPlace::AnyCpu => vec![CpuId(below(&mut random, machine.cpu_count()) as u32)],
                ThreadPlace::Cpus(list) => {
                    let there: Vec<CpuId> = list.iter().filter_map(|&os| machine.cpu_by_os_index(os)).collect();
                    let chosen = below(&mut random, there.len().max(1));
                    // Machines refuse backgrounds whose CPUs they do not have.
                    there.get(chosen).copied().into_iter().collect()
                }
            };
            for cpu in cpus {
                let stream = Pcg32::new(seed, STREAM.wrapping_add(vectors.len() as u64 + 1));
                vectors.push(Vector { interrupt: number as u32, cpu, stream, count: 0, time_ns: 0 });
            }
        }
        Self { all, vectors }
    }

    /// What they took, those of one name together.
    pub fn outcome(&self) -> impl Iterator<Item = BackgroundOutcome> {
        self.all.iter().enumerate().map(|(number, interrupt)| {
            let own = || self.vectors.iter().filter(move |vector| vector.interrupt as usize == number);
            BackgroundOutcome {
                name: interrupt.name.clone(),
                interrupt: true,
                threads: own().count() as u32,
                wakeups: own().map(|vector| vector.count).sum(),
                cpu_time_ns: own().map(|vector| vector.time_ns).sum(),
                ..BackgroundOutcome::default()
            }
        })
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Has each vector fire for the first time.
    pub(crate) fn arm_interrupts(&mut self) {
        let Interrupts { all, vectors } = &mut self.background.interrupts;
        for (index, vector) in vectors.iter_mut().enumerate() {
            let at_ns = first_ns(&mut vector.stream, &all[vector.interrupt as usize].arrives);
            self.core.queue.push(at_ns, Class::Background, vector.cpu, index as u32, INTERRUPT);
        }
    }

    /// Has a vector fire on a CPU after one more interval.
    pub(crate) fn arm_interrupt(&mut self, index: u32, cpu: CpuId) {
        let Interrupts { all, vectors } = &mut self.background.interrupts;
        let vector = &mut vectors[index as usize];
        let interval_ns = interval_ns(&mut vector.stream, &all[vector.interrupt as usize].arrives);
        self.core.queue.push(self.core.now_ns + interval_ns, Class::Background, cpu, index, INTERRUPT);
    }

    /// A vector fires on its CPU.
    pub(crate) fn interrupt(&mut self, index: u32, cpu: CpuId) {
        if self.core.everywhere != 0 {
            let Interrupts { all, vectors } = &self.background.interrupts;
            let Vector { cpu: own, interrupt, .. } = vectors[index as usize];
            if all[interrupt as usize].place == ThreadPlace::EachCpu && !self.core.active.contains(own) {
                self.background.parked.push((own, Parked::Interrupt(index)));
                return;
            }
        }
        let Interrupts { all, vectors } = &mut self.background.interrupts;
        let vector = &mut vectors[index as usize];
        let interrupt = &all[vector.interrupt as usize];
        let run_ns = one_of(&mut vector.stream, &interrupt.run_ns);
        let at_ns = self.core.now_ns + interval_ns(&mut vector.stream, &interrupt.arrives);
        vector.count += 1;
        vector.time_ns += run_ns;
        let irq = vector.interrupt;
        self.core.queue.push(at_ns, Class::Background, cpu, index, INTERRUPT);
        if self.core.watched.interrupts {
            self.interrupt_begins(cpu, irq, run_ns);
        }
        self.core.charge(cpu, run_ns, OverheadKind::Interrupt);
        if !self.core.curr_is_idle(cpu) {
            self.core.advance_clock_task(run_ns);
        }
        if self.core.parameters().irq_time_accounting {
            self.scheduler.interrupted(&mut self.core, cpu, run_ns);
        }
    }
}
