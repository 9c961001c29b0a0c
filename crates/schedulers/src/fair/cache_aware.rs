//! Cache-aware scheduling: a process keeps to one last-level cache while it fits there.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` with `CONFIG_SCHED_CACHE`, as specified in `docs/spec/linux-fair.md` section
//! 6. It is a way of `Gathering` in the fair class, not a policy, and there only if some
//! LLC has a neighbour to aggregate away from.
//!
//! | module | rule | kernel functions |
//! |---|---|---|
//! | here | data (6.1) | `struct sched_cache_stat` |
//! | `grouping` | who is kept together: a cache group, which is a process unless somebody says otherwise | `mm_struct` |
//! | `occupancy` | epochs, run-time shares, invalidation, the task's preference (6.2) | `account_mm_sched`, `update_curr` |
//! | `admission` | too many threads, too big a footprint (6.5) | `invalid_llc_nr`, `exceed_llc_capacity` |
//! | `scan` | the preferred CPU of a process, once per epoch (6.3, 6.6) | `task_tick_cache`, `task_cache_work` |
//! | `counters` | who is queued where and prefers what (6.4) | `account_llc_enqueue` |
//! | `permission` | may a task move between two LLCs (6.7) | `can_migrate_llc` |
//! | `answers` | what the fair class asks: snapshots, group type, refusals, veto (6.7, 6.8) | `record_sg_llc_stats`, `llc_balance`, `alb_break_llc` |
//!
//! Integer divisions truncate as the kernel's do: the latch and the odd thresholds of the thread average follow from that.
//!
//! Differs from the kernel: groups of threads need not be processes (`grouping`); a scan costs its CPU
//! `balance_per_cpu_ns` for each CPU examined; the footprint comes from NUMA balancing's model, without which it is 0, or, as an option
//! that 7.2 does not have, from the resident pages.

mod admission;
mod answers;
mod counters;
mod decisions;
mod grouping;
mod occupancy;
pub(crate) mod permission;
mod scan;
mod tunables;

use std::cell::Cell;

use warmcore_kernel::{Boot, Core};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{DecisionId, TaskId};

use self::permission::{Limits, Snapshot};
use super::state::NONE;
use crate::domains::Domains;

pub(crate) use self::decisions::{ApartDecisions, CacheAwareDecisions, RefusalDecisions};
pub(in crate::fair) use self::scan::Seen;
pub use self::tunables::CacheAwareTunables;

/// Threads that are kept together: a cache group of the kernel's ([`Task::cache_group`](warmcore_kernel::Task::cache_group)).
#[derive(Clone, Debug)]
pub(crate) struct ThreadGroup {
    /// Preferred CPU, and so the preferred LLC; [`NONE`] without preference (`mm->sc_stat.cpu`).
    pub cpu: u32,
    /// Epoch in which a scan was last requested.
    pub epoch: u64,
    /// Jiffy before which no scan is made.
    pub next_scan: u64,
    /// Running average of threads on CPUs, truncated at each step.
    pub nr_running_avg: i64,
    /// Pages its threads fault on, decayed.
    pub footprint_pages: i64,
    /// Living threads.
    pub threads: u32,
    /// Processes of which they are, each with how many: one, unless somebody has formed the group.
    pub processes: Vec<(u32, u32)>,
}

impl Default for ThreadGroup {
    fn default() -> Self {
        Self {
            cpu: NONE,
            epoch: 0,
            next_scan: 0,
            nr_running_avg: 0,
            footprint_pages: 0,
            threads: 0,
            processes: Vec::new(),
        }
    }
}

/// Run time of a group on a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// Decayed run time in nanoseconds.
    pub runtime_ns: u64,
    /// Epoch of the CPU up to which it is decayed.
    pub epoch: u64,
}

/// What belongs to a CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuState {
    /// Number of the CPU's present epoch; moves when the CPU is charged or scanned.
    pub epoch: u64,
    /// Jiffy at which it ends.
    pub epoch_next: u64,
    /// Decayed run time of all tasks.
    pub runtime_ns: u64,
    /// Queued tasks that prefer some LLC (`nr_llc_running`).
    pub nr_llc_running: u32,
    /// Queued tasks that do not sleep and are on the LLC they prefer (`nr_pref_llc_running`).
    pub nr_pref_llc_running: u32,
    /// The active balance under way takes only tasks that prefer the destination's LLC.
    pub push_preferring: bool,
}

/// What belongs to a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskState {
    /// Its group; [`NONE`] if it takes no part.
    pub group: u32,
    pub process: u32,
    /// LLC it prefers, or [`NONE`]. Outlives the group's preference while the task does not run.
    pub preferred_llc: u32,
    /// It was on that LLC when it was queued (`pref_llc_queued`).
    pub queued_on_preferred: bool,
    /// A scan waits for its return to user mode.
    pub scan_pending: bool,
}

/// What belongs to an LLC.
#[derive(Clone, Debug)]
pub(crate) struct Llc {
    /// Utilisation at the last pass of the level above; written while that pass reads everything else.
    pub snapshot: Cell<Snapshot>,
    /// CPUs (`sd_llc_size`).
    pub size: u32,
    /// Divisor of the thread average for scans made here.
    pub divisor: i64,
    /// Bytes that its CPUs have to themselves (`llc_bytes`); `None` where the machine does not say.
    pub bytes: Option<u64>,
    /// It has a domain of its own: two CPUs or more.
    pub has_domain: bool,
}

/// State of cache-aware scheduling.
pub(crate) struct CacheAware {
    pub(crate) decisions: CacheAwareDecisions,
    apart: ApartDecisions,
    refusals: RefusalDecisions,
    pub(crate) tunables: CacheAwareTunables,
    pub(crate) limits: Limits,
    /// Groups with more threads than an LLC has cores are refused.
    pub(crate) limits_threads: bool,
    /// Hardware threads per core.
    smt_width: u64,
    /// Length of an epoch in jiffies.
    epoch_jiffies: u64,
    /// By number of the cache group; as many as have had threads.
    pub(crate) groups: Vec<ThreadGroup>,
    /// By group, then CPU.
    slots: Vec<Slot>,
    pub(crate) cpus: Vec<CpuState>,
    /// LLC of each CPU.
    pub(crate) llc_of: Vec<u32>,
    pub(crate) llcs: Vec<Llc>,
    pub(crate) tasks: Vec<TaskState>,
    /// By LLC, then CPU: tasks queued on the CPU that prefer the LLC (`llc_counts`).
    llc_counts: Vec<u32>,
    /// By LLC: their sum over CPUs.
    pub(crate) wanting: Vec<u32>,
}

impl CacheAware {
    /// Tunables that can change in a run: all files of `llc_balancing` but the switch.
    pub(crate) const CHANGEABLE: [&'static str; 5] =
        ["aggr_tolerance", "epoch_period", "epoch_affinity_timeout", "overaggr_pct", "imb_pct"];

    /// The feature in a kernel; `None` if it is switched off or no LLC of two CPUs or more has a neighbour
    /// (`sched_cache_present`).
    pub fn new(tunables: CacheAwareTunables, boot: &Boot<'_>, domains: &Domains) -> Option<Self> {
        let machine = boot.machine;
        let present = |cpu: CpuId| {
            domains.sd_llc(cpu).is_some_and(|index| {
                let parent = index + 1;
                let llc_weight = domains.domain(index).span_weight;
                parent < domains.range(cpu).end && domains.domain(parent).span_weight > llc_weight && llc_weight > 1
            })
        };
        if tunables.enabled == 0 || !machine.cpus().any(present) {
            return None;
        }
        let cpus = machine.cpu_count();
        let llcs = (0..domains.llc_count() as u32).map(|llc| new_llc(machine, domains, llc)).collect::<Vec<_>>();
        Some(Self {
            decisions: CacheAwareDecisions::default(),
            apart: ApartDecisions::default(),
            refusals: RefusalDecisions::default(),
            limits: tunables.limits(machine.smt_width()),
            limits_threads: true,
            smt_width: machine.smt_width() as u64,
            epoch_jiffies: tunables.epoch_jiffies(boot.kernel.hz.into()),
            tunables,
            groups: Vec::new(),
            slots: Vec::new(),
            cpus: vec![CpuState::default(); cpus],
            llc_of: machine.cpus().map(|cpu| domains.sd_llc_id(cpu)).collect(),
            llc_counts: vec![0; llcs.len() * cpus],
            wanting: vec![0; llcs.len()],
            llcs,
            tasks: Vec::new(),
        })
    }

    /// A group that had so much of each CPU's run time, in nanoseconds of 1000.
    #[cfg(test)]
    pub(in crate::fair) fn add_group_that_ran(&mut self, runtimes_ns: &[u64]) {
        self.groups.push(ThreadGroup::default());
        let ran = |&runtime_ns: &u64| Slot { runtime_ns, epoch: 0 };
        self.slots.extend(runtimes_ns.iter().map(ran));
        for cpu in &mut self.cpus {
            cpu.runtime_ns = 1000;
        }
    }

    /// LLC that a group prefers, or [`NONE`].
    pub(crate) fn preferred_llc(&self, group: u32) -> u32 {
        match self.groups[group as usize].cpu {
            NONE => NONE,
            cpu => self.llc_of[cpu as usize],
        }
    }

    /// Takes a group's preference away, telling why.
    pub(in crate::fair) fn drop_preference(&mut self, core: &mut Core<'_>, group: u32, task: TaskId, why: DecisionId) {
        let llc = self.preferred_llc(group);
        if llc != NONE {
            self.groups[group as usize].cpu = NONE;
            core.decide(why, task, i64::from(llc));
        }
    }
}

fn new_llc(machine: &Machine, domains: &Domains, llc: u32) -> Llc {
    let cpus = domains.llc_cpus(llc);
    let size = cpus.len() as u32;
    let hardware = machine.llc_of(domains.first_cpu_of_llc(llc));
    // A part of a cache gets its share of it.
    let sharers = machine.cpus_of_llc(hardware).len() as u64;
    let cache = machine.llc_cache(hardware).filter(|cache| cache.size_bytes > 0);
    Llc {
        snapshot: Cell::default(),
        size,
        divisor: i64::from(size / 4).clamp(2, 8),
        bytes: cache.map(|cache| cache.size_bytes * u64::from(size) / sharers),
        has_domain: cpus.first().is_some_and(|&cpu| domains.sd_llc(CpuId(cpu)).is_some()),
    }
}
