//! What may be added to the fair class to keep threads that share data together: the questions that the class asks it.
//!
//! | implementation | what it is |
//! |---|---|
//! | [`NoGathering`] | nothing: the class without cache-awareness, as `eevdf` and `cfs` run it |
//! | [`CacheAware`](super::cache_aware::CacheAware) | Linux 7.2's cache-aware scheduling: a process keeps to one LLC |
//! | [`TopologyAware`](super::topology_aware::TopologyAware) | its extension to several LLCs, built on the former |
//!
//! Which one is decided when a run is compiled: a class without gathering contains none of this. Every question has the answer
//! of somebody who gathers nothing, so an implementation says only what it changes. Functions that get the whole class work on its
//! queues, as those of [`Policy`] do.

use warmcore_kernel::{Core, Task};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{DecisionId, SearchStart, SearchStep, TaskId};

use super::balance::IdleType;
use super::balance::pass::Pass;
use super::balance::stats::{GroupStats, Migration};
use super::decisions::FairDecisions;
use super::{Fair, Policy};
use crate::domains::{Domains, flags};

/// What gathering says to a move (`enum llc_mig`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// No opinion: ordinary balancing decides.
    Free,
    /// Wanted, or at least no reason against it.
    Pull,
    /// Unwanted.
    Forbid,
}

/// What gathering says to pushing the running task of a CPU away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushPermission {
    /// No objection.
    Free,
    /// The CPU is left alone.
    Vetoed,
    /// The running task decides ([`Gathering::forbids_push`]).
    AskTask,
}

/// A task's move between two CPUs that balancing considers.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The task.
    pub task: TaskId,
    /// Where it is.
    pub src: CpuId,
    /// Where it would go.
    pub dst: CpuId,
    /// Utilisation to count where it goes (`task_util`).
    pub util: u64,
    /// It waits where no CPU of its LLC is idle, and the destination is idle. Only a scope that is one pool heeds it.
    pub waits: bool,
}

/// Run time that was charged to a running task (`update_curr`).
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// The task.
    pub task: TaskId,
    /// Its CPU.
    pub cpu: CpuId,
    /// The time.
    pub delta_ns: u64,
    /// Node that NUMA balancing wants the task on, where others have to respect that.
    pub home_node: Option<u32>,
    /// Whether the task, still queued, sleeps there; `None` if it has left its queue.
    pub delayed: Option<bool>,
}

/// The pushing of a CPU's running task that balancing considers.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    /// The CPU.
    pub src: CpuId,
    /// Runnable tasks of the source.
    pub h_nr_runnable: u32,
    /// The source has one task, of whatever class.
    pub alone: bool,
    /// The task would leave a core whose other threads are busy for an idle one.
    pub gains_core: bool,
}

/// Keeps threads together. LLCs are numbered as by [`Domains::sd_llc_id`].
pub trait Gathering: Sized {
    /// Whether it gathers at all.
    const GATHERS: bool = true;

    /// The run begins; `told` are the numbers of the decisions it may tell.
    fn init(&mut self, _told: &FairDecisions) {}

    /// Whether it asks for resident pages of processes.
    fn reads_resident_pages(&self) -> bool {
        false
    }

    /// A task exists. Tasks come in the order of their ids.
    #[inline]
    fn task_created(&mut self, _task: &Task) {}

    /// A tunable gets another value in mid-run; one that is not gathering's is ignored.
    fn set_tunable(&mut self, _name: &str, _value: u64) {}
    /// A task that is in no queue has other attributes from now on.
    #[inline]
    fn task_changed(&mut self, _id: TaskId, _task: &Task) {}
    /// A task is gone.
    #[inline]
    fn task_exited(&mut self, _task: TaskId) {}
    /// A task was queued. `delayed`: it sleeps there.
    #[inline]
    fn enqueued(&mut self, _cpu: CpuId, _task: TaskId, _delayed: bool) {}
    /// A task has left its queue.
    #[inline]
    fn dequeued(&mut self, _cpu: CpuId, _task: TaskId, _delayed: bool) {}
    /// A queued task fell asleep (`delayed`) or is awake again.
    #[inline]
    fn delay_changed(&mut self, _cpu: CpuId, _task: TaskId, _delayed: bool) {}
    /// A running task was charged.
    #[inline]
    fn charged(&mut self, _core: &mut Core<'_>, _charge: Charge) {}

    /// Ordinary tick of a running task. Whether it is to scan when it returns to user mode.
    #[inline]
    fn tick(&mut self, _cpu: CpuId, _task: TaskId) -> bool {
        false
    }
    /// It does: chooses where its group is to gather.
    #[inline]
    fn scan<P: Policy>(_fair: &mut Fair<P, Self>, _core: &mut Core<'_>, _task: TaskId) {}
    /// At the tick of a CPU, for the tasks that wait there.
    #[inline]
    fn push_waiting<P: Policy>(_fair: &mut Fair<P, Self>, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// Where a wakeup begins to search for an idle CPU, instead of `target`, and why.
    #[inline]
    fn wake_target(
        &mut self,
        _core: &mut Core<'_>,
        _domains: &Domains,
        _task: TaskId,
        _prev: CpuId,
        target: (CpuId, SearchStart),
    ) -> (CpuId, SearchStart) {
        target
    }
    /// Where a wakeup goes whose search ended at `found`, and the step that says so.
    #[inline]
    fn wake_found<P: Policy>(
        _fair: &Fair<P, Self>,
        _core: &mut Core<'_>,
        _task: TaskId,
        found: (CpuId, SearchStep),
    ) -> (CpuId, SearchStep) {
        found
    }

    /// A balancing pass above the LLCs has summed up the LLC of a CPU.
    #[inline]
    fn record_llc(&self, _cpu: CpuId, _util: u64, _capacity: u64) {}
    /// What is gained by moving tasks of a domain's group to the LLC of `dst`, in tasks or weights, and whether that makes the group
    /// a source. `patient`: the domain has not failed too often. CPUs that are `left_out` of the pass count for nothing.
    #[inline]
    fn group_gain(
        &self,
        _domains: &Domains,
        _group: u32,
        _dst: CpuId,
        _patient: bool,
        _left_out: impl Fn(u32) -> bool,
    ) -> (u32, bool) {
        (0, false)
    }
    /// The same for the tasks queued on a CPU.
    #[inline]
    fn queue_gain(&self, _src: CpuId, _dst: CpuId) -> u32 {
        0
    }
    /// How many tasks a pass moves to LLCs they prefer.
    #[inline]
    fn batch(&self) -> i64 {
        1
    }
    /// Whether such tasks are pulled at every level, not only where siblings are to be filled evenly.
    #[inline]
    fn pulls_at_every_level(&self) -> bool {
        false
    }
    /// Whether a task prefers the destination's LLC, or gains by going there and may; if not, why.
    #[inline]
    fn prefers(&mut self, _core: &mut Core<'_>, _wanted: Move) -> Result<(), DecisionId> {
        Err(DecisionId::NONE)
    }
    /// Whether a task may move, and why not if not (`can_migrate_llc_task`).
    #[inline]
    fn permission(&mut self, _core: &mut Core<'_>, _wanted: Move) -> (Permission, DecisionId) {
        (Permission::Free, DecisionId::NONE)
    }
    /// Whether the running task of a CPU may be pushed to another LLC (`alb_break_llc`).
    #[inline]
    fn push_permission(&self, _push: Push) -> PushPermission {
        PushPermission::Free
    }
    /// Whether the push of a CPU's running task, perhaps the idle one, is forbidden where [`PushPermission::AskTask`] was the answer.
    #[inline]
    fn forbids_push(&mut self, core: &mut Core<'_>, wanted: Move) -> bool {
        !wanted.task.is_idle() && self.permission(core, wanted).0 == Permission::Forbid
    }
    /// Tells that the push of a task to an LLC was vetoed.
    fn tell_veto(&self, _core: &mut Core<'_>, _task: TaskId, _llc: u32) {}
    /// Tells that a task was moved because it prefers an LLC.
    fn tell_pull(&self, _core: &mut Core<'_>, _task: TaskId, _llc: u32) {}
    /// The stopper of a CPU, now starting, takes only tasks that prefer the destination's LLC, or any.
    #[inline]
    fn note_push(&mut self, _src: CpuId, _preferring: bool) {}
    /// What was noted.
    #[inline]
    fn pushes_preferring(&self, _src: CpuId) -> bool {
        false
    }

    /// The domains are others from now on; the numbers of LLCs stay.
    fn domains_rebuilt(&mut self, _machine: &Machine, _domains: &Domains) {}
    /// A CPU is offline.
    fn unplugged(&mut self, _cpu: CpuId) {}

    /// CPU around which a task's group gathers.
    #[inline]
    fn preferred_cpu(&self, _task: TaskId) -> Option<CpuId> {
        None
    }
    /// The pages that a task faulted on changed by so many.
    #[inline]
    fn change_footprint(&mut self, _task: TaskId, _pages: i64) {}
    /// Whether it, not NUMA balancing, decides where a task runs.
    #[inline]
    fn overrides_numa(&self, _task: TaskId) -> bool {
        false
    }
    /// Whether a task runs outside of the nodes that it is kept to for the sake of its memory.
    #[inline]
    fn is_far_from_memory(&self, _core: &Core<'_>, _task: TaskId) -> bool {
        false
    }
    /// Where NUMA balancing may bring a task: the rank of a CPU, the lowest first. `None`: not there.
    #[inline]
    fn rank_near_memory(&self, _task: TaskId, _cpu: CpuId) -> Option<u32> {
        Some(0)
    }
    /// Node that NUMA balancing searches first for a task that prefers `preferred`.
    #[inline]
    fn node_to_search(&self, _task: TaskId, preferred: u32) -> u32 {
        preferred
    }
}

/// Gathers nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGathering;

impl Gathering for NoGathering {
    const GATHERS: bool = false;
}

/// The class's side: what it asks in terms of passes and entities.
impl<P: Policy, G: Gathering> Fair<P, G> {
    /// The running entity of a queue, a task, was charged.
    #[inline(never)]
    pub(super) fn charge_gathering(&mut self, core: &mut Core<'_>, queue: u32, index: u32, delta_ns: u64) {
        let task = self.entity_task(index);
        let entity = &self.entities[index as usize];
        self.gathering.charged(
            core,
            Charge {
                task,
                cpu: CpuId(self.queues[queue as usize].cpu),
                delta_ns,
                home_node: self.numa_preferred(task),
                delayed: entity.on_rq.then_some(entity.delayed),
            },
        );
    }

    /// Whether a pass records the utilisation of its groups as that of their LLCs: those of the level above the LLC do
    /// unless they are new-idle.
    pub(super) fn records_llc(&self, pass: &Pass) -> bool {
        let above_llc = || self.domains.sd_llc(pass.dst).is_some_and(|index| index + 1 == pass.domain);
        G::GATHERS && pass.idle != IdleType::NewlyIdle && above_llc()
    }

    /// Records it (`record_sg_llc_stats`).
    pub(super) fn record_llc(&self, stats: &GroupStats) {
        let first = self.domains.group_cpus(self.domains.group(stats.group))[0];
        self.gathering.record_llc(CpuId(first), stats.util, stats.capacity);
    }

    /// What moving tasks of a group to the destination's LLC gains, and whether that makes the group a source (`llc_balance`): not where one
    /// of its tasks needs a bigger CPU.
    pub(super) fn llc_balance(&self, pass: &Pass, group: u32) -> (u32, bool) {
        let domain = self.domains.domain(pass.domain);
        if domain.has(flags::SHARE_LLC) {
            return (0, false);
        }
        let patient = domain.nr_balance_failed < domain.cache_nice_tries + 1;
        let left_out = |cpu| self.balance.is_excluded(cpu);
        let (count, wanted) = self.gathering.group_gain(&self.domains, group, pass.dst, patient, left_out);
        (count, wanted && !(self.is_asymmetric_level(pass) && self.misfit_load(group) > 0))
    }

    /// Whether a task prefers the destination of a pass; if not, why.
    pub(super) fn prefers_dst(&mut self, core: &mut Core<'_>, pass: &Pass, task: TaskId) -> Result<(), DecisionId> {
        let mut wanted = self.wanted_move(pass, task);
        wanted.util += pass.pulled_util;
        self.gathering.prefers(core, wanted)
    }

    /// Whether a task has a reason to stay that the balancer respects as long as it has not failed too often
    /// (`migrate_degrades_llc`).
    pub(super) fn migrate_degrades_llc(&mut self, core: &mut Core<'_>, pass: &mut Pass, task: TaskId) -> bool {
        if !G::GATHERS {
            return false;
        }
        let domain = self.domains.domain(pass.domain);
        if domain.nr_balance_failed > domain.cache_nice_tries {
            return false;
        }
        let for_llc = pass.migration == Migration::LlcTask;
        if for_llc && let Err(why) = self.prefers_dst(core, pass, task) {
            core.decide(why, task, self.dst_llc(pass).into());
            return true;
        }
        let mut why = DecisionId::NONE;
        if !self.would_misfit(core, pass, task) {
            let wanted = self.wanted_move(pass, task);
            let (permission, reason) = self.gathering.permission(core, wanted);
            if permission != Permission::Forbid {
                return false;
            }
            why = reason;
        }
        pass.llc_pinned |= !for_llc;
        if why != DecisionId::NONE {
            core.decide(why, task, self.dst_llc(pass).into());
        }
        true
    }

    /// Whether pushing the running task of the source would take tasks out of the LLC they prefer, or it to a CPU that is too small
    /// (`alb_break_llc`). A CPU with a single task is left alone whatever the imbalance.
    pub(super) fn alb_break_llc(&mut self, core: &mut Core<'_>, pass: &Pass) -> bool {
        let src = pass.src;
        if !G::GATHERS || self.domains.cpus_share_cache(src, pass.dst) {
            return false;
        }
        let permission = self.gathering.push_permission(Push {
            src,
            h_nr_runnable: self.queues[src.index()].h_nr_runnable,
            alone: self.rqs[src.index()].nr_running + self.above(src) <= 1,
            gains_core: !self.is_core_idle(src) && self.is_core_idle(pass.dst),
        });
        match permission {
            PushPermission::Vetoed => true,
            PushPermission::AskTask => {
                let task = core.curr(src);
                // A task of another class has no utilisation here.
                let is_fair = !task.is_idle() && self.entities[self.task_entity(task) as usize].on_rq;
                let util = if is_fair { self.task_util(task) } else { 0 };
                (is_fair && self.would_misfit(core, pass, task))
                    || self.gathering.forbids_push(core, Move { task, src, dst: pass.dst, util, waits: false })
            }
            PushPermission::Free => false,
        }
    }

    /// Tells the trace of a veto.
    pub(super) fn tell_veto(&self, core: &mut Core<'_>, pass: &Pass) {
        let task = core.curr(pass.src);
        self.gathering.tell_veto(core, task, self.dst_llc(pass));
    }

    /// A task was moved because it prefers the destination's LLC.
    pub(super) fn tell_pull(&self, core: &mut Core<'_>, pass: &Pass, task: TaskId) {
        self.gathering.tell_pull(core, task, self.dst_llc(pass));
    }

    /// What the stopper of a CPU moves.
    pub(super) fn noted_push(&self, src: CpuId) -> Migration {
        if self.gathering.pushes_preferring(src) { Migration::LlcTask } else { Migration::Load }
    }

    fn dst_llc(&self, pass: &Pass) -> u32 {
        self.domains.sd_llc_id(pass.dst)
    }

    /// The move of a task that a pass looks at.
    fn wanted_move(&self, pass: &Pass, task: TaskId) -> Move {
        let llc = self.domains.sd_llc_id(pass.src);
        let waits = !pass.active && pass.idle != IdleType::NotIdle && self.llc_idle_cpus[llc as usize] == 0;
        Move { task, src: pass.src, dst: pass.dst, util: self.task_util(task), waits }
    }

    /// Utilisation of a task (`task_util`).
    fn task_util(&self, task: TaskId) -> u64 {
        self.entities[self.task_entity(task) as usize].pelt.util as u64
    }
}
