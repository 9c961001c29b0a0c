//! What the weight of a task group stands for: `cgroup_mode` of Linux 7.3, a file of debugfs.
//!
//! Source: the series of 7.3's single run queue (v3, `20260605105513.354837583@infradead.org`, `studies/kernels-after-7.2.md`).

use super::weights::scale_load;

/// What the weight of a task group stands for. At each CPU it is divided by load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CgroupMode {
    /// It has it on each CPU, whatever its load there (`calc_up_shares`).
    Up,
    /// All CPUs together have it (`calc_smp_shares`).
    Smp,
    /// As many CPUs as it has tasks have it each (`calc_concur_shares`).
    Concur,
    /// All CPUs have it each (`calc_max_shares`).
    Max,
    /// Each of its tasks has it (`calc_tasks_shares`).
    Tasks,
}

impl CgroupMode {
    /// By the number of a tunable's word, 0 being the kernel's own.
    pub(super) fn new(word: u64, since_7_3: bool) -> Self {
        match word {
            1 => Self::Up,
            2 => Self::Smp,
            3 => Self::Concur,
            4 => Self::Max,
            5 => Self::Tasks,
            _ if since_7_3 => Self::Concur,
            _ => Self::Smp,
        }
    }

    /// What a group of so many tasks on average has to divide on so many CPUs, and the most of it that one CPU may have.
    pub(super) fn divides(self, shares: u32, tasks: u32, cpus: u32) -> (u64, u64) {
        /// A task of nice -20.
        const MOST: u32 = scale_load(88_761);
        let times = |parts: u32| u64::from(scale_load(shares)) * u64::from(parts);
        match self {
            Self::Up | Self::Smp => (times(1), times(1)),
            Self::Concur => {
                let divided = times(tasks.clamp(1, cpus.max(1)));
                (divided, divided)
            }
            Self::Max => (times(cpus), u64::from(MOST)),
            Self::Tasks => (times(tasks.max(1)), times(tasks.max(1))),
        }
    }
}
