//! Cache-aware scheduling: a process keeps to one last-level cache while it fits there.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` with `CONFIG_SCHED_CACHE`, as specified in `docs/spec/linux-fair.md` section
//! 6. It is a feature of the fair class, not a policy: [`Fair`](super::Fair) holds a `CacheAware` when it is on and
//! some LLC has a neighbour to aggregate away from; otherwise nothing here runs.
//!
//! | module | rule | kernel functions |
//! |---|---|---|
//! | here | data (6.1) | `struct sched_cache_stat` |
//! | `grouping` | who is kept together: a process, unless the workload says otherwise | `mm_struct` |
//! | `occupancy` | epochs, run-time shares, invalidation, the task's preference (6.2) | `account_mm_sched`, `update_curr` |
//! | `admission` | too many threads, too big a footprint (6.5) | `exceed_llc_nr`, `exceed_llc_capacity` |
//! | `scan` | the preferred CPU of a process, once per epoch (6.3, 6.6) | `task_tick_cache`, `task_cache_work` |
//! | `counters` | who is queued where and prefers what (6.4) | `account_llc_enqueue` |
//! | `permission` | may a task move between two LLCs (6.7) | `can_migrate_llc` |
//! | `balancing` | snapshots, group type, refusals, veto (6.7, 6.8) | `record_sg_llc_stats`, `llc_balance`, `alb_break_llc` |
//!
//! Integer divisions truncate as the kernel's do: the latch and the odd thresholds of the thread average follow from that.
//!
//! Differs from the kernel: groups of threads need not be processes (`grouping`); a scan costs its CPU
//! `balance_per_cpu_ns` for each CPU examined; the footprint comes from NUMA balancing's model, without which it is 0.

mod admission;
mod balancing;
mod counters;
mod decisions;
mod grouping;
mod occupancy;
pub(crate) mod permission;
mod scan;
mod tunables;

use std::cell::Cell;

use warmcore_kernel::{Core, Setup};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{DecisionId, TaskId};

use self::grouping::Grouping;
use self::permission::{Limits, Snapshot};
use super::state::NONE;
use super::topology_aware::{TopologyAware, TopologyAwareTunables};
use crate::domains::Domains;

pub(crate) use self::decisions::CacheAwareDecisions;
pub use self::tunables::CacheAwareTunables;

/// Threads that are kept together: those of a process, or of a named group.
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
    /// Of these, queued and awake.
    pub runnable: u32,
}

impl Default for ThreadGroup {
    fn default() -> Self {
        Self { cpu: NONE, epoch: 0, next_scan: 0, nr_running_avg: 0, footprint_pages: 0, threads: 0, runnable: 0 }
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
    /// LLC it prefers, or [`NONE`]. Outlives the group's preference while the task does not run.
    pub preferred_llc: u32,
    /// It was on that LLC when it was queued (`pref_llc_queued`).
    pub queued_on_preferred: bool,
    /// A scan waits for its return to user mode.
    pub scan_pending: bool,
    /// When a wakeup was last sent to its home.
    pub hinted_ns: u64,
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
    pub decisions: CacheAwareDecisions,
    pub tunables: CacheAwareTunables,
    pub limits: Limits,
    /// Hardware threads per core.
    smt_width: u64,
    /// Length of an epoch in jiffies.
    epoch_jiffies: u64,
    pub groups: Vec<ThreadGroup>,
    /// By group, then CPU.
    slots: Vec<Slot>,
    pub cpus: Vec<CpuState>,
    /// LLC of each CPU.
    pub llc_of: Vec<u32>,
    pub llcs: Vec<Llc>,
    pub tasks: Vec<TaskState>,
    /// By LLC, then CPU: tasks queued on the CPU that prefer the LLC (`llc_counts`).
    llc_counts: Vec<u32>,
    /// By LLC: their sum over CPUs.
    pub wanting: Vec<u32>,
    /// The topology-aware extension, if it is on.
    pub topology: Option<Box<TopologyAware>>,
    pub grouping: Grouping,
}

impl CacheAware {
    /// The feature on a machine; `None` if it is switched off or no LLC of two CPUs or more has a neighbour
    /// (`sched_cache_present`).
    pub fn new(tunables: CacheAwareTunables, setup: &Setup<'_>, domains: &Domains, hz: u64) -> Option<Self> {
        let machine = setup.machine();
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
        let llcs = (0..domains.llc_count() as u32).map(|llc| new_llc(setup, domains, llc)).collect::<Vec<_>>();
        let grouping = Grouping::new(setup.workload());
        let groups = vec![ThreadGroup::default(); grouping.count()];
        Some(Self {
            decisions: CacheAwareDecisions::default(),
            limits: tunables.limits(machine.smt_width()),
            smt_width: machine.smt_width() as u64,
            epoch_jiffies: tunables.epoch_jiffies(hz),
            tunables,
            slots: vec![Slot::default(); groups.len() * cpus],
            groups,
            cpus: vec![CpuState::default(); cpus],
            llc_of: machine.cpus().map(|cpu| domains.sd_llc_id(cpu)).collect(),
            llc_counts: vec![0; llcs.len() * cpus],
            wanting: vec![0; llcs.len()],
            llcs,
            tasks: Vec::new(),
            topology: None,
            grouping,
        })
    }

    /// Adds the topology-aware extension.
    pub fn extend(&mut self, tunables: TopologyAwareTunables, machine: &Machine, domains: &Domains) {
        if tunables.theta != 0 {
            self.limits.full_pct = tunables.theta;
        }
        self.topology = Some(Box::new(TopologyAware::new(tunables, machine, domains, self.groups.len())));
    }

    /// A thread exists (`mm_init_sched`, `init_sched_mm`): it starts without preference.
    pub fn task_created(&mut self, group: u32) {
        self.tasks.push(TaskState {
            group,
            preferred_llc: NONE,
            queued_on_preferred: false,
            scan_pending: false,
            hinted_ns: 0,
        });
        if group != NONE {
            self.groups[group as usize].threads += 1;
        }
    }

    /// A thread has gone.
    pub fn task_exited(&mut self, task: TaskId) {
        let state = &mut self.tasks[task.index()];
        state.scan_pending = false;
        if state.group != NONE {
            self.groups[state.group as usize].threads -= 1;
        }
    }

    /// CPU that a task's group prefers.
    pub fn preferred_cpu(&self, task: TaskId) -> Option<CpuId> {
        let group = self.groups.get(self.tasks[task.index()].group as usize)?;
        (group.cpu != NONE).then_some(CpuId(group.cpu))
    }

    /// The pages that a task faulted on changed by so many.
    pub fn change_footprint(&mut self, task: TaskId, pages: i64) {
        if let Some(group) = self.groups.get_mut(self.tasks[task.index()].group as usize) {
            group.footprint_pages = (group.footprint_pages + pages).max(0);
        }
    }

    /// LLC that a group prefers, or [`NONE`].
    pub fn preferred_llc(&self, group: u32) -> u32 {
        match self.groups[group as usize].cpu {
            NONE => NONE,
            cpu => self.llc_of[cpu as usize],
        }
    }

    /// Takes a group's preference away, telling why.
    fn drop_preference(&mut self, core: &mut Core<'_>, group: u32, task: TaskId, why: DecisionId) {
        let llc = self.preferred_llc(group);
        if llc != NONE {
            self.groups[group as usize].cpu = NONE;
            core.decide(why, task, i64::from(llc));
        }
    }
}

fn new_llc(setup: &Setup<'_>, domains: &Domains, llc: u32) -> Llc {
    let machine = setup.machine();
    let cpus = domains.llc_cpus(llc);
    let size = cpus.len() as u32;
    let hardware = machine.llc_of(CpuId(cpus[0]));
    // A part of a cache gets its share of it.
    let sharers = machine.cpus_of_llc(hardware).len() as u64;
    let cache = machine.llc_cache(hardware).filter(|cache| cache.size_bytes > 0);
    Llc {
        snapshot: Cell::default(),
        size,
        divisor: i64::from(size / 4).clamp(2, 8),
        bytes: cache.map(|cache| cache.size_bytes * u64::from(size) / sharers),
        has_domain: domains.sd_llc(CpuId(cpus[0])).is_some(),
    }
}
