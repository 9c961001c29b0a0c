//! One balancing pass of one CPU over one of its domains (`sched_balance_rq`).

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use super::counted::Counted;
use super::details::Found;
use super::stats::Migration;
use super::{BalanceState, IdleType};
use crate::domains::flags;
use crate::fair::gathering::Gathering;
use crate::fair::numa::NumaClass;
use crate::fair::{Fair, Policy};

/// Longest interval, in milliseconds, to which a pass backs off when affinity forbids every move (`MAX_PINNED_INTERVAL`).
const MAX_PINNED_INTERVAL_MS: u32 = 512;

/// Tasks examined before the source's lock is let go for a moment (`SCHED_NR_MIGRATE_BREAK`).
pub(super) const NR_MIGRATE_BREAK: u32 = 32;

/// State of a pass (`struct lb_env`).
#[derive(Debug)]
pub(crate) struct Pass {
    /// CPU for which the pass is run.
    pub cpu: CpuId,
    /// CPU that receives tasks: first `cpu`, then others of its group for tasks that `cpu` may not run.
    pub dst: CpuId,
    /// CPU that gives tasks.
    pub src: CpuId,
    /// Index of the domain and of the one above.
    pub domain: usize,
    pub parent: Option<usize>,
    pub idle: IdleType,
    /// What is left to move.
    pub imbalance: i64,
    /// Utilisation of the tasks moved to LLCs they prefer.
    pub pulled_util: u64,
    pub migration: Migration,
    /// What it found when it chose where to pull from.
    pub found: Found,
    /// Tasks examined, number at which to pause, and at which to end.
    pub examined: u32,
    pub pause_at: u32,
    pub examine_at_most: u32,
    /// Stopped to pause, with more to examine.
    pub paused: bool,
    /// No task examined may run on the destination (`LBF_ALL_PINNED`).
    pub all_pinned: bool,
    /// Some task may not run on the destination (`LBF_SOME_PINNED`).
    pub some_pinned: bool,
    /// Another CPU of the local group that such a task may use (`LBF_DST_PINNED`, `new_dst_cpu`).
    pub other_dst: Option<CpuId>,
    /// Some task was left because it would leave the LLC it prefers (`LBF_LLC_PINNED`).
    pub llc_pinned: bool,
    /// Queues with only better placed tasks than this are left out (`fbq_type`).
    pub numa_class: NumaClass,
    /// The task examined last may go although it ran lately (`sched_task_hot`).
    pub hot: bool,
    /// The stopper moves a task (`LBF_ACTIVE_LB`).
    pub active: bool,
    /// What the pass cost.
    pub cost_ns: u64,
}

impl Pass {
    pub(in crate::fair) fn new(cpu: CpuId, domain: usize, parent: Option<usize>, idle: IdleType) -> Self {
        Self {
            cpu,
            dst: cpu,
            src: cpu,
            domain,
            parent,
            idle,
            imbalance: 0,
            pulled_util: 0,
            migration: Migration::Load,
            found: Found::default(),
            examined: 0,
            pause_at: NR_MIGRATE_BREAK,
            examine_at_most: 0,
            paused: false,
            all_pinned: false,
            some_pinned: false,
            other_dst: None,
            llc_pinned: false,
            numa_class: NumaClass::All,
            hot: false,
            active: false,
            cost_ns: 0,
        }
    }

    /// Starts again to examine tasks.
    fn rewind(&mut self) {
        self.examined = 0;
        self.pause_at = NR_MIGRATE_BREAK;
    }
}

/// What came of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Tasks moved.
    pub moved: u32,
    /// The CPU is the one of its group to balance this level; if not, it leaves higher levels alone too.
    pub entitled: bool,
    /// Cost in nanoseconds; 0 if nothing was looked at.
    pub cost_ns: u64,
}

/// How a pass ended, as far as failures and intervals are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PassOutcome {
    /// Nothing to do, or not this CPU's business (`out_balanced`).
    Balanced,
    /// No task of any source may run here (`out_all_pinned`).
    AllPinned,
    /// The task to be pushed here may not run here (`out_one_pinned`).
    OnePinned,
    /// A source was found; `active` if its stopper was started.
    Unbalanced {
        /// The stopper was started.
        active: bool,
    },
}

impl BalanceState {
    /// Whether the present pass leaves any CPU of its domain out.
    #[inline]
    pub(super) fn excludes_any(&self) -> bool {
        !self.excluded.is_empty()
    }

    /// Whether the present pass leaves this CPU out.
    #[inline]
    pub(in crate::fair) fn is_excluded(&self, cpu: u32) -> bool {
        self.excluded.contains(&cpu)
    }
}

/// Next balance interval after a pass (`sched_balance_rq`, its end).
pub(super) fn next_interval_ms(present: u32, (min, max): (u32, u32), longer: bool, all_pinned: bool) -> u32 {
    if !longer {
        min
    } else if (all_pinned && present < MAX_PINNED_INTERVAL_MS) || present < max {
        present * 2
    } else {
        present
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Looks for an imbalance in a domain and moves tasks to this CPU's group (`sched_balance_rq`).
    pub(super) fn sched_balance_rq(
        &mut self,
        core: &mut Core<'_>,
        cpu: CpuId,
        domain: usize,
        idle: IdleType,
    ) -> Outcome {
        let parent = (domain + 1 < self.domains.range(cpu).end).then_some(domain + 1);
        let mut pass = Pass::new(cpu, domain, parent, idle);
        self.balance.excluded.clear();
        self.count_pass(core, &pass, Counted::Count, 1);
        let (mut moved, mut entitled) = (0, true);
        let mut verdict = loop {
            if !self.should_we_balance(core, &pass) {
                entitled = false;
                break PassOutcome::Balanced;
            }
            if !self.begin_look(core, &mut pass) {
                break PassOutcome::Balanced;
            }
            // What it would find otherwise counts.
            if !core.wants_balance_details() && self.is_fruitless(&pass) {
                if pass.parent.is_none() {
                    self.overloaded = false;
                }
                break PassOutcome::Balanced;
            }
            let Some(group) = self.find_src_group(core, &mut pass) else {
                self.count_pass(core, &pass, Counted::NoBusyGroup, 1);
                break PassOutcome::Balanced;
            };
            let Some(src) = self.find_src_rq(&pass, group) else {
                self.count_pass(core, &pass, Counted::NoBusyQueue, 1);
                break PassOutcome::Balanced;
            };
            self.count_imbalance(core, &pass);
            pass.src = src;
            pass.all_pinned = true;
            if self.nr_running(src) > 1 {
                moved = self.move_from(core, &mut pass);
                if pass.all_pinned {
                    self.balance.excluded.push(src.0);
                    if !self.others_left(&pass) {
                        break PassOutcome::AllPinned;
                    }
                    pass.rewind();
                    continue;
                }
            }
            break PassOutcome::Unbalanced { active: false };
        };
        if verdict == (PassOutcome::Unbalanced { active: false }) && moved == 0 {
            self.count_pass(core, &pass, Counted::Failed, 1);
            verdict = self.count_failure(core, &mut pass);
        }
        self.conclude(core, &pass, verdict, moved);
        Outcome { moved, entitled, cost_ns: pass.cost_ns }
    }

    /// Whether this CPU is the one to balance its group's share of the domain (`should_we_balance`): the first on an idle
    /// core, else the first idle one, else the first of all.
    pub(super) fn should_we_balance(&self, core: &Core<'_>, pass: &Pass) -> bool {
        if self.balance.is_excluded(pass.dst.0) {
            return false;
        }
        if pass.idle == IdleType::NewlyIdle {
            return self.rqs[pass.dst.index()].nr_running == 0 && !core.ttwu_pending(pass.dst);
        }
        let domain = self.domains.domain(pass.domain);
        let mask = self.domains.balance_mask(self.domains.group(self.domains.local_group(domain)));
        // Kernels of the load-only kind took the first idle CPU; so does the SMT level.
        let cores_matter =
            self.domains.smt_active() && !domain.has(flags::SHARE_CPUCAPACITY) && !self.parameters.load_only_balance;
        let mut idle_thread = None;
        for &number in mask {
            let cpu = CpuId(number);
            if self.balance.is_excluded(number) || !self.is_idle_cpu(core, cpu) {
                continue;
            }
            if !cores_matter || self.is_core_idle(cpu) {
                return cpu == pass.dst;
            }
            idle_thread.get_or_insert(cpu);
        }
        idle_thread.or(mask.first().map(|&first| CpuId(first))) == Some(pass.dst)
    }

    /// Accounts for a look at the whole domain. `false` if another CPU is just balancing a NUMA level, which is done by one
    /// at a time (`SD_SERIALIZE`, `sched_balance_running`).
    fn begin_look(&mut self, core: &Core<'_>, pass: &mut Pass) -> bool {
        let domain = self.domains.domain(pass.domain);
        let serialize = domain.has(flags::SERIALIZE);
        if serialize && core.now_ns() + self.balance.spent_ns < self.balance.serialized_until_ns {
            return false;
        }
        let costs = core.machine().costs();
        let cost = costs.balance_base_ns + costs.balance_per_cpu_ns * u64::from(domain.span_weight);
        pass.cost_ns += cost;
        self.balance.spent_ns += cost;
        if serialize {
            self.balance.serialized_until_ns = core.now_ns() + self.balance.spent_ns;
        }
        true
    }

    /// Whether it is certain, without a look at the groups, that a new-idle pass has the outcome of a balanced one: no CPU
    /// of the domain has two tasks. An optimisation without effect on results; most new-idle passes are of this kind.
    ///
    /// At the lowest level, where groups are single CPUs, a busiest group with one task is never a source. Above, a group
    /// may be found to have too many tasks although none of its CPUs has one to spare: with no failures counted and the
    /// interval at its minimum that leaves the same state behind as finding none.
    fn is_fruitless(&self, pass: &Pass) -> bool {
        if pass.idle != IdleType::NewlyIdle
            || self.parameters.load_only_balance
            || self.asymmetric
            || self.packing
            || self.pressure.is_some()
        {
            return false;
        }
        let domain = self.domains.domain(pass.domain);
        // Across LLCs a cache-aware pass may have a single running task pushed.
        let pushes_single = G::GATHERS && !domain.has(flags::SHARE_LLC);
        if pushes_single || self.domains.has_crowded_cpu(domain) {
            return false;
        }
        let single_cpus = domain.group_count() == domain.span_weight;
        if single_cpus && pass.domain == self.domains.range(pass.cpu).start {
            return true;
        }
        let group_above = pass.parent.map(|parent| self.domains.local_group(self.domains.domain(parent)));
        domain.nr_balance_failed == 0
            && domain.balance_interval_ms == domain.min_interval_ms
            && !group_above.is_some_and(|group| self.domains.group(group).imbalance)
    }

    /// Moves tasks from the source queue, to other CPUs of the group where affinity wants it, and notes imbalances that
    /// affinity leaves. Returns how many were moved.
    fn move_from(&mut self, core: &mut Core<'_>, pass: &mut Pass) -> u32 {
        pass.examine_at_most = self.parameters.nr_migrate.min(self.nr_running(pass.src));
        let mut moved = 0;
        loop {
            moved += self.detach_tasks(core, pass);
            self.attach_tasks(core, pass);
            if std::mem::take(&mut pass.paused) {
                continue;
            }
            if pass.imbalance <= 0 {
                break;
            }
            let Some(other) = pass.other_dst.take() else {
                break;
            };
            self.balance.excluded.push(pass.dst.0);
            pass.dst = other;
            pass.rewind();
        }
        if let Some(parent) = pass.parent
            && pass.some_pinned
            && pass.imbalance > 0
        {
            let group = self.domains.local_group(self.domains.domain(parent));
            self.domains.group_mut(group).imbalance = true;
        }
        moved
    }

    /// Whether a CPU outside the local group is left to pull from.
    fn others_left(&self, pass: &Pass) -> bool {
        let domain = self.domains.domain(pass.domain);
        let local = self.domains.balance_mask(self.domains.group(self.domains.local_group(domain)));
        let mut span = self.domains.span(domain).iter();
        span.any(|cpu| !self.balance.is_excluded(cpu.0) && local.binary_search(&cpu.0).is_err())
    }

    /// Nothing was moved: counts it, and starts the source's stopper when ordinary means are exhausted.
    fn count_failure(&mut self, core: &mut Core<'_>, pass: &mut Pass) -> PassOutcome {
        if pass.idle != IdleType::NewlyIdle && !pass.llc_pinned && pass.migration != Migration::Misfit {
            self.domains.domain_mut(pass.domain).nr_balance_failed += 1;
        }
        if !self.need_active_balance(core, pass) {
            return PassOutcome::Unbalanced { active: false };
        }
        let curr = core.curr(pass.src);
        if curr.is_idle() || !core.may_run_on(curr, pass.cpu) {
            // The idle task is bound to its CPU.
            return PassOutcome::OnePinned;
        }
        pass.all_pinned = false;
        let rq = &mut self.rqs[pass.src.index()];
        let active = !rq.active_balance;
        if active {
            rq.active_balance = true;
            rq.push_cpu = pass.cpu.0;
            self.balance.pushes[pass.src.index()] = pass.found;
            self.gathering.note_push(pass.src, pass.migration == Migration::LlcTask);
            core.queue_stopper(pass.src, pass.cpu.0);
        }
        if self.parameters.load_only_balance {
            // Before 5.13 the counter stayed where hot tasks are moved too.
            let domain = self.domains.domain_mut(pass.domain);
            domain.nr_balance_failed = domain.cache_nice_tries + 1;
        }
        PassOutcome::Unbalanced { active }
    }

    /// Whether the running task of the source has to be pushed (`need_active_balance`).
    fn need_active_balance(&mut self, core: &mut Core<'_>, pass: &Pass) -> bool {
        if pass.migration != Migration::Misfit && self.alb_break_llc(core, pass) {
            if self.wants_active_balance(pass) {
                self.tell_veto(core, pass);
            }
            return false;
        }
        self.wants_active_balance(pass)
    }

    /// The reasons for it.
    fn wants_active_balance(&self, pass: &Pass) -> bool {
        if matches!(pass.migration, Migration::LlcTask | Migration::Misfit)
            || self.packs_running_task(pass)
            || self.more_capacity_left(pass)
        {
            return true;
        }
        let domain = self.domains.domain(pass.domain);
        let moves_tasks = pass.migration == Migration::Task || self.parameters.load_only_balance;
        moves_tasks && domain.nr_balance_failed > domain.cache_nice_tries + 2
    }

    /// Failure count, interval and imbalance flag after a pass.
    fn conclude(&mut self, core: &mut Core<'_>, pass: &Pass, verdict: PassOutcome, moved: u32) {
        if verdict == PassOutcome::Balanced
            && !pass.all_pinned
            && let Some(parent) = pass.parent
        {
            // Others had a chance to move and mend what affinity broke.
            let group = self.domains.local_group(self.domains.domain(parent));
            self.domains.group_mut(group).imbalance = false;
        }
        if matches!(verdict, PassOutcome::Balanced | PassOutcome::AllPinned) {
            self.count_pass(core, pass, Counted::Balanced, 1);
        }
        let active = verdict == (PassOutcome::Unbalanced { active: true });
        let settled = active && !self.need_active_balance(core, pass);
        let domain = self.domains.domain_mut(pass.domain);
        let longer = match verdict {
            PassOutcome::Balanced | PassOutcome::AllPinned => {
                domain.nr_balance_failed = 0;
                true
            }
            PassOutcome::OnePinned => true,
            PassOutcome::Unbalanced { .. } => {
                if moved > 0 {
                    domain.nr_balance_failed = 0;
                }
                if settled && !self.parameters.load_only_balance {
                    return;
                }
                settled
            }
        };
        // New-idle passes are too frequent to lengthen intervals, and a misfit task says nothing of how busy CPUs are.
        if longer && (pass.idle == IdleType::NewlyIdle || pass.migration == Migration::Misfit) {
            return;
        }
        let bounds = (domain.min_interval_ms, domain.max_interval_ms);
        domain.balance_interval_ms = next_interval_ms(domain.balance_interval_ms, bounds, longer, pass.all_pinned);
    }
}
