//! Placements against contention as schedulers of the simulated kernel: `fewest-tasks`, `random`, `dio` and `cdf`.
//!
//! The CPUs of an LLC share a queue and take turns of a fixed slice, as in [`rr`](crate::rr). Which LLC's queue a task joins is the
//! strategy's choice (`docs/spec/cdf-dio.md` section 3), made when the task becomes runnable. Nothing is stolen across LLCs.
//!
//! `dio` reads counters as a kernel would ([`Core::task_counters`]). As published: every `period_ns` tasks are sorted by LLC misses per
//! instruction over the last `window` periods and dealt out over the LLCs there and back; whoever got another LLC is moved, running tasks
//! by the stopper. As coded: the LLC whose tasks' LLC miss ratios since birth have the smallest sum. With memory of constant speed
//! nothing is counted: all rates are equal, and nothing is dealt.
//!
//! `cdf` compares which cache sets tasks used lately ([`Core::recent_sets`]), which only exact memory tells. A task joins its LLC's histogram
//! with the window that it has then. At the end of its turn it leaves, is placed anew, and moves by the stopper if that is elsewhere.
//!
//! Deliberate differences: but for `cdf` a turn's end does not place anew, since a kernel places where a task becomes runnable; CPUs that a
//! task may not use are left out, and a task that may use none of an LLC's CPUs keeps the LLC that it has; where it may use none of the
//! LLCs that CDF's rule prefers, it joins the one with the fewest tasks.

use std::collections::VecDeque;

use warmcore_kernel::{
    Boot, Core, Dequeue, Enqueue, QueueLock, READ_COUNTERS_NS, Scheduler, SimulationError, State, WakeFlags,
};
use warmcore_memory::analytic::MemoryEvent;
use warmcore_memory::exact::{HistoryLevel, HistorySpec};
use warmcore_topology::{CpuId, LlcId};
use warmcore_trace::{MigrationKind, OverheadKind, SearchStart, SearchStep, TaskId};

use super::decisions::PlacementDecisions;
use super::{Bookkeeping, Cdf, Percentiles, Variant};
use crate::realtime::run_boxed;
use crate::registry::SchedulerInfo;
use crate::tunables::{TunableSet, percentages, tunables};
use crate::ule::Chance;

tunables! {
    /// Tunables of all placements against contention.
    pub struct PlacementTunables {
        /// Longest stay on a CPU while others of its LLC wait.
        slice_ns: time 10_000_000 "ns" in 10_000..=10_000_000_000 by ratio,
        /// Time that a decision takes for each thing it looks at: an LLC, a CPU, a comparison of two tasks. Assumed.
        look_ns: time 10 "ns" in 0..=1_000_000 by ratio,
    }
}

tunables! {
    /// Tunables of `dio`.
    pub struct DioTunables {
        /// Which reading: tasks sorted and dealt out every period, or each to the LLC with the smallest sum of miss ratios.
        variant: choice "published" of ["published", "coded"],
        /// Time between two deals (published).
        period_ns: time 1_000_000_000 "ns" in 1_000_000..=60_000_000_000 by ratio,
        /// Periods over which a rate is taken (published).
        window: count 3 "" in 1..=100 by ratio,
    }
}

tunables! {
    /// Tunables of `cdf`.
    pub struct CdfTunables {
        /// Which reading: among LLCs of which at least half the percentiles differ the one with the fewest tasks, or that where most do.
        variant: choice "published" of ["published", "coded"],
        /// Fraction of the LLC's percentile by which a task's must differ.
        tol: fraction 600,
        /// Whose sets are compared: of the cores' L1 or L2, of the LLC, or of whichever had the line (of farther lines the L1's).
        level: choice "llc" of ["l1", "l2", "llc", "mixed"],
        /// Percentiles that are compared.
        percentiles: percentages [25, 50, 75],
        /// Accesses to that level that are remembered of a task.
        window: count 300 "accesses" in 1..=100_000 by ratio,
        /// What is taken from an LLC's histogram when a task leaves: as the reading has it, what it joined with, or what it used since.
        bookkeeping: choice "reading" of ["reading", "exact", "coded"],
    }
}

impl CdfTunables {
    fn rule(&self) -> Cdf {
        let variant = if self.variant == CODED { Variant::Coded } else { Variant::Published };
        let cdf = Cdf::new(variant, self.tol as f64 / 1000.0);
        Cdf {
            percentiles: percentages(self.percentiles).map(|percent| percent as f64).collect(),
            bookkeeping: match self.bookkeeping {
                1 => Bookkeeping::Exact,
                2 => Bookkeeping::Coded,
                _ => cdf.bookkeeping,
            },
            ..cdf
        }
    }

    /// What the memory is to record.
    fn history(&self) -> HistorySpec {
        let level = [HistoryLevel::L1, HistoryLevel::L2, HistoryLevel::Llc, HistoryLevel::Mixed][self.level as usize];
        HistorySpec { level, window: self.window as u32 }
    }
}

/// The row of `cdf`.
pub static CDF: SchedulerInfo = SchedulerInfo {
    name: "cdf",
    summary: "a queue per LLC: a task joins one whose tasks used other cache sets lately; needs exact memory",
    source: "Nolasco, Penna, Freitas, SSCAD 2025, in the two readings of docs/spec/cdf-dio.md",
    sets: &[CdfTunables::TABLE, PlacementTunables::TABLE],
    needs_sets: true,
    simulate: Some(|spec, setup, sink| {
        if !setup.options.memory.is_exact() {
            return Err(SimulationError::NoSets { scheduler: spec.to_string() });
        }
        let rule = Rule::Cdf { tunables: spec.tunables(), percentiles: None };
        run_boxed(setup, Box::new(Placement::new("cdf", rule, spec.tunables(), &setup.boot())), sink)
    }),
    ..PLACEMENT
};

/// The row of `dio`.
pub static DIO: SchedulerInfo = SchedulerInfo {
    name: "dio",
    summary: "Distributed Intensity Online: LLC miss rates as even over the LLCs as can be",
    source: "Zhuravlev, Blagodurov, Fedorova, ASPLOS 2010, in the two readings of docs/spec/cdf-dio.md",
    sets: &[DioTunables::TABLE, PlacementTunables::TABLE],
    simulate: Some(|spec, setup, sink| {
        let rule = Rule::Dio(spec.tunables());
        run_boxed(setup, Box::new(Placement::new("dio", rule, spec.tunables(), &setup.boot())), sink)
    }),
    ..PLACEMENT
};

/// The row of `fewest-tasks`.
pub(crate) static FEWEST_TASKS: SchedulerInfo = SchedulerInfo {
    name: "fewest-tasks",
    summary: "a queue per LLC; a task that becomes runnable joins the one with the fewest tasks",
    simulate: Some(|spec, setup, sink| {
        run_boxed(
            setup,
            Box::new(Placement::new("fewest-tasks", Rule::FewestTasks, spec.tunables(), &setup.boot())),
            sink,
        )
    }),
    ..PLACEMENT
};

/// The row of `random`.
pub static RANDOM: SchedulerInfo = SchedulerInfo {
    name: "random",
    summary: "a queue per LLC; a task that becomes runnable joins that of a CPU drawn at random",
    simulate: Some(|spec, setup, sink| {
        run_boxed(setup, Box::new(Placement::new("random", Rule::Random, spec.tunables(), &setup.boot())), sink)
    }),
    ..PLACEMENT
};

/// What they have in common. Tasks of two LLCs do not share a CPU's time equally if the LLCs have unequal numbers of them.
const PLACEMENT: SchedulerInfo = SchedulerInfo {
    source: "baselines of docs/spec/cdf-dio.md",
    sets: &[PlacementTunables::TABLE],
    assumed: &["look_ns"],
    knows_nice: false,
    register_decisions: |table| {
        PlacementDecisions::register(table);
    },
    ..SchedulerInfo::PLAIN
};

/// How an LLC is chosen.
enum Rule {
    FewestTasks,
    Random,
    Dio(DioTunables),
    Cdf {
        tunables: CdfTunables,
        /// By LLC; there once the memory has said how many sets there are.
        percentiles: Option<Box<Percentiles>>,
    },
}

/// `variant` of `dio` and `cdf` as coded.
const CODED: u64 = 1;

/// The queue of an LLC's CPUs.
#[derive(Default)]
struct LlcQueue {
    lock: QueueLock,
    /// Tasks that wait, first come first served; their CPU is one of the LLC's.
    waiting: VecDeque<TaskId>,
    /// Runnable tasks, running ones and those on their way to one of its CPUs included.
    tasks: usize,
    /// Sum of their miss ratios (DIO as coded).
    load: f64,
}

/// What is known of a task.
#[derive(Clone, Default)]
struct Account {
    alive: bool,
    /// It was woken and is not queued yet; its LLC counts it already.
    on_its_way: bool,
    /// Miss ratio with which it was counted in its LLC's load.
    counted: f64,
    /// The LLC that the last deal gave it.
    dealt: Option<LlcId>,
    /// LLC misses and instructions at the last deals, the oldest first: one more than periods in the window.
    readings: VecDeque<(f64, f64)>,
    /// Recently used sets with which it joined its LLC's histogram (CDF).
    joined: Vec<u32>,
}

impl Account {
    /// LLC misses per instruction within the window; 0 if it has not run.
    fn rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.readings.front(), self.readings.back()) else { return 0.0 };
        if last.1 > first.1 { (last.0 - first.0) / (last.1 - first.1) } else { 0.0 }
    }
}

/// A placement as a policy.
struct Placement {
    name: &'static str,
    rule: Rule,
    tunables: PlacementTunables,
    told: PlacementDecisions,
    /// By LLC.
    groups: Vec<LlcQueue>,
    /// By CPU: runnable tasks assigned to it, the running one included.
    runnable: Vec<usize>,
    /// By CPU: it was idle, was told about a task, and has not picked yet.
    claimed: Vec<bool>,
    /// By CPU: time at a queue's lock that the task about to run there has to be charged with.
    owed_ns: Vec<u64>,
    accounts: Vec<Account>,
    /// Order in which LLCs are gone through, which decides between equals (DIO as coded).
    order: Vec<LlcId>,
    chance: Chance,
    /// Whether misses are counted.
    counts: bool,
    next_deal_ns: u64,
}

impl Placement {
    fn new(name: &'static str, rule: Rule, tunables: PlacementTunables, boot: &Boot<'_>) -> Self {
        let cpus = boot.machine.cpu_count();
        let mut chance = Chance::new(boot.seed);
        let mut order: Vec<LlcId> = boot.machine.llcs().collect();
        for last in (1..order.len()).rev() {
            order.swap(last, chance.below(last as u32 + 1) as usize);
        }
        Self {
            name,
            next_deal_ns: if let Rule::Dio(dio) = &rule { dio.period_ns } else { u64::MAX },
            rule,
            tunables,
            told: PlacementDecisions::default(),
            groups: boot.machine.llcs().map(|_| LlcQueue::default()).collect(),
            runnable: vec![0; cpus],
            claimed: vec![false; cpus],
            owed_ns: vec![0; cpus],
            accounts: Vec::new(),
            order,
            chance,
            counts: false,
        }
    }

    fn is_free(&self, core: &Core<'_>, cpu: CpuId) -> bool {
        core.curr_is_idle(cpu) && !core.ttwu_pending(cpu) && !self.claimed[cpu.index()]
    }

    /// Charges the present event's CPU for what a decision looked at, and counts it, with the counters that it read.
    fn charge_looks(&self, core: &mut Core<'_>, looks: usize, readings: usize, kind: OverheadKind) {
        let this_cpu = core.this_cpu();
        let cost_ns = looks as u64 * self.tunables.look_ns;
        core.charge(this_cpu, cost_ns, kind);
        core.count_placement(looks as u64, cost_ns + readings as u64 * READ_COUNTERS_NS);
    }

    /// The LLC for a task that becomes runnable, told to the trace.
    fn choose_llc(&mut self, core: &mut Core<'_>, task: TaskId) -> Option<LlcId> {
        let allowed = core.allowed(task);
        let machine = core.machine();
        let usable = |llc: LlcId| machine.cpus_of_llc(llc).iter().any(|cpu| allowed.contains(cpu));
        let fewest =
            |groups: &[LlcQueue]| machine.llcs().filter(|&llc| usable(llc)).min_by_key(|llc| groups[llc.index()].tasks);
        let (mut looks, mut readings) = (self.groups.len(), 0);
        let (llc, reason) = match &mut self.rule {
            Rule::FewestTasks => (fewest(&self.groups), self.told.fewest),
            Rule::Random => {
                let drawn = self.chance.below(allowed.iter().count().max(1) as u32) as usize;
                (allowed.iter().nth(drawn).map(|cpu| machine.llc_of(cpu)), self.told.drawn)
            }
            Rule::Dio(dio) if dio.variant == CODED => {
                let ratio = miss_ratio(core, task);
                readings = usize::from(self.counts);
                self.accounts[task.index()].counted = ratio;
                let load = |llc: &LlcId| self.groups[llc.index()].load;
                let usable = self.order.iter().copied().filter(|&llc| usable(llc));
                (usable.min_by(|a, b| load(a).total_cmp(&load(b))), self.told.smallest)
            }
            Rule::Dio(_) => match self.accounts[task.index()].dealt.filter(|&llc| usable(llc)) {
                Some(llc) => (Some(llc), self.told.dealt),
                None => (fewest(&self.groups), self.told.fewest),
            },
            Rule::Cdf { percentiles, .. } => {
                let percentiles = percentiles.as_mut()?;
                let before = percentiles.steps();
                let some_empty = self.groups.iter().any(|group| group.tasks == 0);
                let preferred = percentiles.preferred(core.recent_sets(task), some_empty);
                let differing = !preferred.iter().all(|preferred| *preferred);
                let among = machine.llcs().filter(|&llc| preferred[llc.index()] && usable(llc));
                let found = among.min_by_key(|llc| self.groups[llc.index()].tasks);
                looks += (percentiles.steps() - before) as usize;
                match found {
                    Some(llc) if differing => (Some(llc), self.told.differs),
                    _ => (fewest(&self.groups), self.told.fewest),
                }
            }
        };
        self.charge_looks(core, looks, readings, OverheadKind::Wakeup);
        core.decide(reason, task, i64::from(llc?.0));
        llc
    }

    /// A CPU of an LLC for a task, with the step that found it: its old one or the first that is free, else its old one, else the one with the fewest tasks.
    fn cpu_of(&self, core: &Core<'_>, task: TaskId, llc: LlcId, old: CpuId) -> Option<(CpuId, SearchStep)> {
        let cpus = || core.machine().cpus_of_llc(llc).iter().filter(|&cpu| core.may_run_on(task, cpu));
        let runnable = |cpu: &CpuId| self.runnable[cpu.index()] + core.wakeups_on_their_way(*cpu);
        let old = cpus().find(|&cpu| cpu == old);
        let told = |step| move |cpu| (cpu, step);
        old.filter(|&cpu| self.is_free(core, cpu))
            .map(told(SearchStep::GroupPreviousFree))
            .or_else(|| cpus().find(|&cpu| self.is_free(core, cpu)).map(told(SearchStep::GroupFirstFree)))
            .or(old.map(told(SearchStep::GroupPrevious)))
            .or_else(|| cpus().min_by_key(runnable).map(told(SearchStep::GroupFewest)))
    }

    fn pass_lock(&mut self, core: &Core<'_>, llc: LlcId, cpu: CpuId) -> u64 {
        self.groups[llc.index()].lock.pass(core, cpu)
    }

    /// Tells an idle CPU to pick.
    fn wake(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.claimed[cpu.index()] = true;
        core.resched_full(cpu);
    }

    fn count(&mut self, core: &Core<'_>, llc: LlcId, task: TaskId) {
        let group = &mut self.groups[llc.index()];
        let account = &mut self.accounts[task.index()];
        group.tasks += 1;
        group.load += account.counted;
        if let Rule::Cdf { percentiles: Some(percentiles), .. } = &mut self.rule {
            account.joined.clear();
            account.joined.extend_from_slice(core.recent_sets(task));
            percentiles.join(llc.index(), &account.joined);
        }
    }

    fn uncount(&mut self, core: &Core<'_>, llc: LlcId, task: TaskId) {
        if let Rule::Cdf { percentiles: Some(percentiles), .. } = &mut self.rule {
            percentiles.leave(llc.index(), &self.accounts[task.index()].joined, core.recent_sets(task));
        }
        let group = &mut self.groups[llc.index()];
        group.tasks -= 1;
        group.load -= self.accounts[task.index()].counted;
        if group.tasks == 0 {
            group.load = 0.0;
        }
    }

    /// DIO as published: sorts all tasks by miss rate, deals them out there and back, and moves whoever has another LLC now.
    fn deal(&mut self, core: &mut Core<'_>, window: u64) {
        let mut tasks: Vec<TaskId> =
            (0..self.accounts.len() as u32).map(TaskId).filter(|task| self.accounts[task.index()].alive).collect();
        for &task in &tasks {
            let Some(read) = core.task_counters(task) else { return };
            let readings = &mut self.accounts[task.index()].readings;
            readings.push_back((read.events[MemoryEvent::L3Miss as usize], read.instructions));
            while readings.len() as u64 > window + 1 {
                readings.pop_front();
            }
        }
        let rate = |task: &TaskId| self.accounts[task.index()].rate();
        tasks.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        let comparisons = tasks.len() * tasks.len().max(2).ilog2() as usize;
        self.charge_looks(core, comparisons, tasks.len(), OverheadKind::Balance);
        let llcs = self.groups.len();
        for (position, task) in tasks.into_iter().enumerate() {
            let (round, place) = (position / llcs, position % llcs);
            let llc = LlcId(if round % 2 == 0 { place } else { llcs - 1 - place } as u32);
            self.accounts[task.index()].dealt = Some(llc);
            self.bring(core, task, llc);
        }
    }

    /// Brings a runnable task to the LLC that it was dealt, if it is not there and may be.
    fn bring(&mut self, core: &mut Core<'_>, task: TaskId, llc: LlcId) {
        let cpu = core.task(task).cpu();
        let from = core.machine().llc_of(cpu);
        if from == llc {
            return;
        }
        if core.curr(cpu) == task {
            core.queue_stopper(cpu, task.0);
            return;
        }
        let Some(position) = self.groups[from.index()].waiting.iter().position(|&waiting| waiting == task) else {
            return;
        };
        let Some((to, _)) = self.cpu_of(core, task, llc, cpu) else { return };
        let this_cpu = core.this_cpu();
        let spent_ns = self.pass_lock(core, from, this_cpu) + self.pass_lock(core, llc, this_cpu);
        core.charge(this_cpu, spent_ns, OverheadKind::Balance);
        self.groups[from.index()].waiting.remove(position);
        self.uncount(core, from, task);
        self.runnable[cpu.index()] -= 1;
        core.set_task_cpu(task, to, MigrationKind::Balance);
        self.runnable[to.index()] += 1;
        self.count(core, llc, task);
        self.groups[llc.index()].waiting.push_back(task);
        let reason = if matches!(self.rule, Rule::Cdf { .. }) { self.told.moved_at_turn } else { self.told.moved };
        core.decide(reason, task, i64::from(llc.0));
        if self.is_free(core, to) {
            self.wake(core, to);
        }
    }
}

/// LLC misses of a task over its LLC accesses since its birth; 0 before the first.
fn miss_ratio(core: &mut Core<'_>, task: TaskId) -> f64 {
    let Some(read) = core.task_counters(task) else { return 0.0 };
    let accesses = read.events[MemoryEvent::L2Miss as usize];
    if accesses > 0.0 { read.events[MemoryEvent::L3Miss as usize] / accesses } else { 0.0 }
}

impl Scheduler for Placement {
    fn name(&self) -> &'static str {
        self.name
    }

    fn init(&mut self, core: &mut Core<'_>) {
        self.told = PlacementDecisions::register(core.decision_table());
        self.counts = matches!(self.rule, Rule::Dio(_)) && core.open_counters();
        if let Rule::Cdf { tunables, percentiles } = &mut self.rule {
            let sets = core.open_histories(tunables.history());
            *percentiles =
                sets.map(|sets| Box::new(Percentiles::new(tunables.rule(), self.groups.len(), sets as usize)));
        }
    }

    fn task_fork(&mut self, _core: &mut Core<'_>, task: TaskId, _parent: Option<TaskId>) {
        if self.accounts.len() <= task.index() {
            self.accounts.resize_with(task.index() + 1, Account::default);
        }
        self.accounts[task.index()].alive = true;
    }

    fn task_dead(&mut self, _core: &mut Core<'_>, task: TaskId) {
        self.accounts[task.index()] = Account::default();
    }

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, _flags: WakeFlags) -> CpuId {
        let found = self.choose_llc(core, task).and_then(|llc| self.cpu_of(core, task, llc, prev));
        let (cpu, step) = found.unwrap_or((prev, SearchStep::NoGroup));
        core.tell_place(task, SearchStart::Previous, step);
        cpu
    }

    /// Who blocks is gone.
    fn holds(&self, _task: TaskId) -> bool {
        false
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _flags: Enqueue) {
        let (llc, this_cpu) = (core.machine().llc_of(cpu), core.this_cpu());
        let spent_ns = self.pass_lock(core, llc, this_cpu);
        core.charge(this_cpu, spent_ns, OverheadKind::Wakeup);
        if core.curr(cpu) != task {
            self.groups[llc.index()].waiting.push_back(task);
        }
        if !std::mem::take(&mut self.accounts[task.index()].on_its_way) {
            self.count(core, llc, task);
        }
        self.runnable[cpu.index()] += 1;
    }

    /// Who wakes the next task sees this one where it will be: otherwise all that a barrier lets go would join one LLC.
    fn wakeup_sent(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        self.count(core, core.machine().llc_of(cpu), task);
        self.accounts[task.index()].on_its_way = true;
    }

    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _flags: Dequeue) {
        let llc = core.machine().llc_of(cpu);
        self.runnable[cpu.index()] -= 1;
        self.uncount(core, llc, task);
        if core.curr(cpu) != task {
            self.groups[llc.index()].waiting.retain(|&waiting| waiting != task);
        }
    }

    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, _task: TaskId, _flags: WakeFlags) {
        if core.curr_is_idle(cpu) {
            self.wake(core, cpu);
        }
    }

    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        self.claimed[cpu.index()] = false;
        let llc = core.machine().llc_of(cpu);
        let waiting = &self.groups[llc.index()].waiting;
        let Some(position) = waiting.iter().position(|&task| core.may_run_on(task, cpu)) else {
            if prev.is_some() {
                core.start_hrtick(cpu, self.tunables.slice_ns);
            }
            return prev;
        };
        self.owed_ns[cpu.index()] += self.pass_lock(core, llc, cpu);
        let task = self.groups[llc.index()].waiting.remove(position)?;
        let from = core.task(task).cpu();
        if from != cpu {
            core.set_task_cpu(task, cpu, MigrationKind::Steal);
            self.runnable[from.index()] -= 1;
            self.runnable[cpu.index()] += 1;
        }
        Some(task)
    }

    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, runnable: bool) {
        if runnable {
            self.groups[core.machine().llc_of(cpu).index()].waiting.push_back(task);
        }
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, _task: TaskId) {
        let spent_ns = std::mem::take(&mut self.owed_ns[cpu.index()]);
        core.charge(cpu, spent_ns, OverheadKind::Switch);
        core.start_hrtick(cpu, self.tunables.slice_ns);
    }

    /// The first CPU that ticks after a period deals.
    fn tick(&mut self, core: &mut Core<'_>, _cpu: CpuId, _curr: Option<TaskId>) {
        let Rule::Dio(dio) = &self.rule else { return };
        let (variant, period_ns, window) = (dio.variant, dio.period_ns, dio.window);
        if self.counts && variant != CODED && core.now_ns() >= self.next_deal_ns {
            self.next_deal_ns = core.now_ns() + period_ns;
            self.deal(core, window);
        }
    }

    /// CDF's task is placed anew: it leaves its LLC's histogram, and comes back with what it used since unless another is chosen.
    fn hrtick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: TaskId) {
        if matches!(self.rule, Rule::Cdf { .. }) {
            let llc = core.machine().llc_of(cpu);
            self.uncount(core, llc, curr);
            let chosen = self.choose_llc(core, curr);
            self.count(core, llc, curr);
            if let Some(chosen) = chosen.filter(|chosen| *chosen != llc) {
                self.accounts[curr.index()].dealt = Some(chosen);
                core.queue_stopper(cpu, curr.0);
                return;
            }
        }
        core.resched_full(cpu);
    }

    /// What ran has been put into its queue. It may have ended or been dealt back since the deal asked for the stopper.
    fn stopper(&mut self, core: &mut Core<'_>, _cpu: CpuId, payload: u32) {
        let task = TaskId(payload);
        if core.task(task).state() == State::Queued
            && let Some(llc) = self.accounts[task.index()].dealt
        {
            self.bring(core, task, llc);
        }
    }

    /// The pick that follows takes the first that waits.
    fn yield_task(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _task: TaskId) {}

    /// Nothing depends on nice values, policies, slices or groups.
    fn attributes_changed(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    /// A waiting task that may now use more CPUs of its LLC may find one of them idle.
    fn affinity_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        let llc = core.machine().llc_of(core.task(task).cpu());
        if self.groups[llc.index()].waiting.contains(&task)
            && let Some(cpu) = core
                .machine()
                .cpus_of_llc(llc)
                .iter()
                .find(|&cpu| core.may_run_on(task, cpu) && self.is_free(core, cpu))
        {
            self.wake(core, cpu);
        }
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.runnable[cpu.index()]
    }
}
