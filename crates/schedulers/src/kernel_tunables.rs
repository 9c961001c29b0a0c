//! Parameters of the simulated kernel, as tunables that every scheduler's runs have.
//!
//! They belong to the experiment's kernel, not to a policy: no policy has them in its own set, [`Setup`](warmcore_kernel::Setup) carries them
//! to the engine. They are typed with the scheduler (`eevdf:hz=1000`) because an experiment may compare kernels: `eevdf,eevdf:hz=1000`
//! is one policy in two kernels.

use warmcore_kernel::{Governor, KernelParameters, Preempt, Ticks};

use crate::tunables::tunables;

tunables! {
    /// Parameters of the kernel.
    pub struct KernelTunables {
        /// Ticks per second of the kernel.
        hz: count 250 "Hz" in 100..=1000 by ratio,
        /// How late timers of normal tasks may be.
        timer_slack_ns: time 50_000 "ns" in 0..=10_000_000 by ratio,
        /// 99th percentile of how much later than the machine says timers of tasks run out, exponentially distributed: what interrupts that are disabled, and a hypervisor, do. No kernel has it.
        timer_late_p99_ns: time 0 "ns" in 0..=1_000_000_000 by ratio,
        /// Feature TTWU_QUEUE: CPUs of other LLCs, and idle ones, queue what is woken for them when an interrupt reaches them; in Linux 4.9 those of
        /// other LLCs only, under `ule` none.
        ttwu_queue: switch on,
        /// CONFIG_SCHED_CLUSTER: Linux has scheduling domains of clusters of cores.
        sched_cluster: switch on,
        /// Who chooses the frequencies of CPUs, on a machine that states them.
        governor: choice "fixed" of ["fixed", "performance", "powersave", "schedutil"],
        /// Shortest time between two decisions of schedutil; 0: 1.5 times the machine's transition latency.
        rate_limit_us: time 0 "us" in 0..=1_000_000 by ratio,
        /// When a task in the kernel may be preempted; default: as kernels with that scheduler are built if nothing else is chosen, that is none under `cfs`, else lazy.
        preempt: choice "default" of ["default", "none", "voluntary", "full", "lazy"],
        /// When CPUs have their ticks: each at instants of its own, or all at the same ones, as Linux without the boot parameter skew_tick=1.
        ticks: choice "apart" of ["apart", "together"],
        /// CONFIG_IRQ_TIME_ACCOUNTING: tasks are not charged with interrupts, whose time the fair class takes off a CPU's capacity.
        irq_time_accounting: switch off,
        /// CONFIG_PER_VMA_LOCK, since Linux 6.4: page faults do not wait for threads that map or unmap other memory.
        vma_locks: switch on,
    }
}

impl From<KernelTunables> for KernelParameters {
    fn from(tunables: KernelTunables) -> Self {
        Self {
            hz: tunables.hz as u32,
            ttwu_queue: tunables.ttwu_queue != 0,
            timer_slack_ns: tunables.timer_slack_ns,
            timer_late_p99_ns: tunables.timer_late_p99_ns,
            sched_cluster: tunables.sched_cluster != 0,
            governor: match tunables.governor {
                0 => Governor::Fixed,
                1 => Governor::Performance,
                2 => Governor::Powersave,
                _ => Governor::Schedutil,
            },
            rate_limit_us: tunables.rate_limit_us,
            preempt: match tunables.preempt {
                1 => Preempt::None,
                2 => Preempt::Voluntary,
                3 => Preempt::Full,
                _ => Preempt::Lazy,
            },
            ticks: if tunables.ticks == 1 { Ticks::Together } else { Ticks::Apart },
            irq_time_accounting: tunables.irq_time_accounting != 0,
            vma_locks: tunables.vma_locks != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_simulated_kernel() {
        assert_eq!(KernelParameters::from(KernelTunables::default()), KernelParameters::default());
    }
}
