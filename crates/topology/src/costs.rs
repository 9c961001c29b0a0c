//! What the machine charges for the kernel's own actions, in nanoseconds.
//!
//! A cost is either CPU time (the CPU is busy that long) or a delay (something reacts that much later); each
//! field says which. Figures that depend on where two CPUs are stand in a [`PerRelation`] table. Presets state a
//! value and where it comes from; what they leave out is derived here from the machine's core-to-core latencies.
//! Cache and memory stall time of the running program is not here: it belongs to the memory model. Until that
//! model is used, [`Costs::migration_ns`] stands for it.

use crate::{PerRelation, Relation};

/// Costs of kernel actions on one machine. All times are integer nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    /// CPU time of switching from one task to another, scheduler's choice not included.
    pub context_switch_ns: u64,
    /// CPU time of `try_to_wake_up` on the waker's CPU, placement decision not included. A CPU that makes a wakeup reschedules, and an
    /// interrupt to another CPU is sent, when it is over.
    pub wakeup_ns: u64,
    /// Delay until a remote CPU that is not idle reacts to an interrupt sent by this one.
    pub ipi_ns: PerRelation<u64>,
    /// Extra delay when the CPU that is to run the woken task has to leave its idle state first, the idle loop and the tick that it
    /// starts again included. It comes after `sched_waking`, also of a timer of the same CPU.
    pub idle_exit_ns: u64,
    /// CPU time of one periodic tick, scheduler's part not included.
    pub tick_ns: u64,
    /// CPU time of one high-resolution preemption timer interrupt.
    pub hrtick_ns: u64,
    /// CPU time of entering and leaving the kernel for a system call that does nothing else.
    pub syscall_ns: u64,
    /// CPU time of the first touch of a page of 4 KiB: the fault, the page that is cleared, its part of giving pages back. Published for
    /// the fault alone: 575 ns at least and 1,013 ns in the median of 100 (Core i7 of the 11th generation, Linux 6.6,
    /// <https://ddumbying.vercel.app/experiments/pagefault-latency>); 1,000 ns of machines that say nothing. Virtual machines need twice that
    /// (`results/2026-11-28-2vcpu-first-touch`), since their hardware walks two tables.
    pub page_fault_ns: u64,
    /// CPU time of a futex wait or wake call, the wakeup itself not included.
    pub futex_ns: u64,
    /// CPU time of one read or write of a small message on a pipe, the mean of both. Measured 235 ns for 100 bytes on a Zen 5 at 3.4 GHz (Linux 6.18, one
    /// thread); the 500 ns of machines that say nothing are that at the 1.9 to 2.5 GHz of servers with older cores.
    pub pipe_message_ns: u64,
    /// CPU time of one send or receive of a small message on a Unix stream socket. Measured 800 ns as above.
    pub socket_message_ns: u64,
    /// CPU time of creating a thread or process, on the parent's CPU.
    pub fork_ns: u64,
    /// CPU time of a task's exit.
    pub exit_ns: u64,
    /// CPU time of a timer interrupt that wakes a task.
    pub timer_ns: u64,
    /// Delay from the instant that a high-resolution timer was set for until its interrupt acts: what wakes a sleeper, and the end of a
    /// slice. Some hundred nanoseconds on a processor, taken for nothing; microseconds where an emulator looks for timers.
    pub timer_late_ns: u64,
    /// Extra CPU time of the first run on another CPU: stands for cold caches until a memory model is used.
    pub migration_ns: PerRelation<u64>,
    /// Time of handing one modified cache line from one CPU to another.
    pub line_transfer_ns: PerRelation<u64>,
    /// Cache lines that one pipe message is waited for, one after the other, both sides together. Measured (100 bytes, Linux 6.18,
    /// `results/2026-11-22-zen4-2vcpu/message-lines` and `results/2026-11-22-zen5-2vcpu/message-lines`): two threads in
    /// turn, 5.3 hand-offs between LLCs and 7.4 under one on a Zen 4, 4.5 and 4.6 on a
    /// Zen 5. A message of a stream takes 3.0 to 4.2 hand-offs longer on two LLCs of the Zen 5 than under one: the receiver's part.
    pub message_lines: u32,
    /// The same of a Unix stream socket. Measured: 11.6 and 4.4 on the Zen 4, 6.8 and 3.5 on the Zen 5; of a stream 6.5 to 9.6.
    pub socket_message_lines: u32,
    /// Cache lines that move with one futex hand-over.
    pub futex_lines: u32,
    /// Percent of a call on a pipe during which its lock is held.
    pub pipe_locked_percent: u32,
    /// Percent of a call on a socket during which its queue's lock is held.
    pub socket_locked_percent: u32,
    /// Percent of a pipe message's lines that are payload and its descriptor, which only the other side writes.
    pub pipe_payload_percent: u32,
    /// The same of a socket's message.
    pub socket_payload_percent: u32,
    /// CPU time of one load balancing pass, fixed part.
    pub balance_base_ns: u64,
    /// CPU time of one load balancing pass per CPU looked at.
    pub balance_per_cpu_ns: u64,
    /// CPU time of one multiplication and addition of schbench's matrix loop, in picoseconds: not the kernel's action, but what the
    /// program's work is counted in. `None` if nothing is known; schbench's own constant holds then.
    pub multiply_add_ps: Option<u64>,
    /// How much longer computing takes beside one busy hardware thread of the same core, in percent of its time alone; beside n busy
    /// ones n times as much more. Two threads of a core do 2 / (1 + this) of one thread's work, four do 4 / (1 + 3 times this).
    /// Not the kernel's action either, but what its tasks' work is slowed by; every model of memory asks for it. 0 where hardware
    /// threads share nothing, as a guest's do.
    pub smt_slowdown_percent: u32,
}

/// [`Costs::smt_slowdown_percent`] of machines that do not state it: two threads do 1.21 times the work of one.
///
/// Published: 1.20 on average for pairs of SPEC programs, from 0.90 to 1.58 (Tuck and Tullsen, "Initial observations of the
/// simultaneous multithreading Pentium 4 processor", PACT 2003); 1.15 is what Linux counted on until 5.0 (`smt_gain`, 1178 of 1024);
/// 0.96 a pool of threads that only compute (`machines/i7-3770.toml`).
const SMT_SLOWDOWN_PERCENT: u32 = 65;

/// Cache lines a migrated task is assumed to fetch again at once: 32 KiB.
const MIGRATION_LINES: u64 = 512;
/// How many of those fetches overlap.
const MIGRATION_OVERLAP: u64 = 4;
/// Fixed part of an interrupt's delivery.
const IPI_BASE_NS: u64 = 400;
/// Line hand-offs on an interrupt's way: request queue, wakeup flags, run queue lock and fields.
const IPI_LINES: u64 = 6;

impl Costs {
    /// The costs of a machine of which nothing but the core-to-core latencies is known (nanoseconds per
    /// hand-off of a modified line).
    pub fn derived_from(core_to_core_ns: &PerRelation<u64>) -> Self {
        let mut line_transfer_ns = *core_to_core_ns;
        line_transfer_ns[Relation::SameCpu] = 0;
        Self {
            context_switch_ns: 1_200,
            wakeup_ns: 700,
            ipi_ns: PerRelation::from_fn(|relation| derived_ipi_ns(relation, &line_transfer_ns)),
            idle_exit_ns: 1_500,
            tick_ns: 1_500,
            hrtick_ns: 900,
            syscall_ns: 150,
            page_fault_ns: 1_000,
            futex_ns: 500,
            pipe_message_ns: 500,
            socket_message_ns: 1_600,
            fork_ns: 30_000,
            exit_ns: 20_000,
            timer_ns: 800,
            timer_late_ns: 0,
            migration_ns: PerRelation::from_fn(|relation| derived_migration_ns(relation, &line_transfer_ns)),
            line_transfer_ns,
            message_lines: 5,
            socket_message_lines: 10,
            futex_lines: 5,
            pipe_locked_percent: 40,
            socket_locked_percent: 10,
            pipe_payload_percent: 20,
            socket_payload_percent: 50,
            balance_base_ns: 1_000,
            balance_per_cpu_ns: 150,
            multiply_add_ps: None,
            smt_slowdown_percent: SMT_SLOWDOWN_PERCENT,
        }
    }

    /// [`Costs::smt_slowdown_percent`] as a fraction: computing takes 1 + this times n times as long beside n busy siblings.
    pub fn smt_slowdown(&self) -> f64 {
        f64::from(self.smt_slowdown_percent) / 100.0
    }
}

fn derived_ipi_ns(relation: Relation, line_transfer_ns: &PerRelation<u64>) -> u64 {
    match relation {
        Relation::SameCpu => 0,
        _ => IPI_BASE_NS + IPI_LINES * line_transfer_ns[relation],
    }
}

/// SMT siblings share every cache of the core, so nothing is fetched again.
fn derived_migration_ns(relation: Relation, line_transfer_ns: &PerRelation<u64>) -> u64 {
    match relation {
        Relation::SameCpu | Relation::SmtSibling => 0,
        _ => MIGRATION_LINES * line_transfer_ns[relation] / MIGRATION_OVERLAP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_costs_grow_with_distance() {
        let costs = Costs::derived_from(&PerRelation([0, 8, 30, 55, 70, 90, 125, 200]));
        for table in [&costs.ipi_ns, &costs.migration_ns, &costs.line_transfer_ns] {
            assert!(table.0.is_sorted(), "{table:?}");
            assert_eq!(table[Relation::SameCpu], 0);
        }
        assert_eq!(costs.migration_ns[Relation::SmtSibling], 0);
        assert_eq!(costs.migration_ns[Relation::SameLlc], 7_040);
    }
}
