//! Where a woken or new thread runs (`sched_pickcpu`).
//!
//! Source: `docs/spec/ule.md` section 9. A search stops where it finds a CPU; up to three go over the whole machine.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::{DecisionId, SearchStart, SearchStep, TaskId};

use super::Ule;
use super::groups::{GroupId, ROOT, Search, Wanted};
use super::threads::IDLE_CLASS;

/// CPUs whose best priority is worse than this are idle.
const WORST_TIME_SHARING: u32 = IDLE_CLASS - 1;

/// A thread that looks for a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeker {
    pub priority: u32,
    /// Where it ran last.
    pub last: CpuId,
    /// It runs there, and is to choose anew.
    pub running: bool,
    /// Ticks of the clock since it ran there; none if its caches are cold.
    pub age: Option<u64>,
    /// The CPU that looks.
    pub this_cpu: CpuId,
}

impl Ule {
    /// The CPU for a thread that ran on `last`, or runs there and is to choose anew.
    pub(super) fn pick_cpu(&mut self, core: &mut Core<'_>, task: TaskId, last: CpuId, running: bool) -> CpuId {
        let thread = &self.queues.threads[task.index()];
        let now = self.now(core);
        let seeker = Seeker {
            priority: thread.priority,
            last,
            running,
            age: thread.last_ran.map(|last_ran| now - last_ran),
            this_cpu: core.this_cpu(),
        };
        let (cpu, step) = self.search_cpu(seeker, &|cpu| core.may_run_on(task, cpu));
        core.decide(self.decision_of(step), task, i64::from(cpu.0));
        if !running {
            core.tell_place(task, SearchStart::Previous, step);
        }
        cpu
    }

    fn decision_of(&self, step: SearchStep) -> DecisionId {
        let told = &self.decisions;
        match step {
            SearchStep::LastIdle => told.kept,
            SearchStep::LeastWarm => told.near,
            SearchStep::LeastFirst => told.first_there,
            SearchStep::RunsFirstHere => told.here,
            _ => told.least,
        }
    }

    /// The same of a thread that may run on some CPUs only, with the step that found it.
    pub(super) fn search_cpu(&mut self, seeker: Seeker, may: &impl Fn(CpuId) -> bool) -> (CpuId, SearchStep) {
        let Seeker { priority, last, this_cpu, .. } = seeker;
        let leaf = self.groups.leaf(last);
        if may(last) && self.is_idle(last) && self.is_affine(seeker, 2) {
            let siblings_busy =
                self.groups.group(leaf).smt && self.groups.group(leaf).cpus.iter().any(|&cpu| !self.is_idle(cpu));
            if !siblings_busy {
                return (last, SearchStep::LastIdle);
            }
        }
        let affine = self
            .groups
            .outward(leaf)
            .filter(|&group| !self.groups.group(group).smt && self.is_affine_to(seeker, group))
            .last()
            .filter(|&group| group != ROOT);
        let mut found = None;
        if let Some(group) = affine {
            let worse_than = Some(WORST_TIME_SHARING.max(priority));
            found = self.search_least(seeker, group, worse_than, may).map(|cpu| (cpu, SearchStep::LeastWarm));
        }
        let found = found
            .or_else(|| self.search_least(seeker, ROOT, Some(priority), may).map(|cpu| (cpu, SearchStep::LeastFirst)))
            .or_else(|| self.search_least(seeker, ROOT, None, may).map(|cpu| (cpu, SearchStep::LeastLoaded)));
        let Some((found, step)) = found else { return (last, SearchStep::LeastLoaded) };
        let runs_first_here = may(this_cpu) && self.lowpri(this_cpu) > priority;
        if runs_first_here && !self.is_idle(found) && self.load(this_cpu) <= self.load(found) + 1 {
            return (this_cpu, SearchStep::RunsFirstHere);
        }
        (found, step)
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.lowpri(cpu) >= IDLE_CLASS
    }

    /// Whether the thread ran less than so many times the basic affinity ago.
    fn is_affine(&self, seeker: Seeker, times: u64) -> bool {
        let ticks = match self.tunables.affinity {
            0 => self.model.affinity_ticks,
            ticks => ticks,
        };
        seeker.age.is_some_and(|age| age < ticks * times)
    }

    fn is_affine_to(&self, seeker: Seeker, group: GroupId) -> bool {
        let times = self.groups.group(group).level.affinity();
        times > 0 && self.is_affine(seeker, times)
    }

    /// The least loaded CPU of a group, if a priority is given of those on which a thread of that priority would run first.
    fn search_least(
        &mut self,
        seeker: Seeker,
        group: GroupId,
        worse_than: Option<u32>,
        may: &impl Fn(CpuId) -> bool,
    ) -> Option<CpuId> {
        let Seeker { last: preferred, running, .. } = seeker;
        let own_counts_not = running && self.model.search.discounts_running;
        let queues = &self.queues.cpus;
        let mut search = Search {
            groups: &self.groups,
            load: |cpu: CpuId| queues[cpu.index()].seen_load(),
            admits: |cpu: CpuId| {
                let runs_first = |limit| queues[cpu.index()].seen_lowpri() > limit;
                // The best priority of its own CPU can be its own.
                let asks = if own_counts_not && cpu == preferred { None } else { worse_than };
                may(cpu) && asks.is_none_or(runs_first)
            },
            preferred: Some(preferred),
            running,
            wanted: Wanted::Least,
            rules: self.model.search,
            visited: 0,
        };
        let found = search.of(group, &mut self.chance);
        self.visited += search.visited;
        found
    }
}
