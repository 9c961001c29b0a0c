//! Where a woken or new thread runs (`sched_pickcpu`).
//!
//! Source: `docs/spec/ule.md` section 9, with 18.14. A search stops where it finds a CPU; up to three go over the whole machine.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::{DecisionId, TaskId};

use super::Ule;
use super::groups::{GroupId, ROOT, Search, Wanted};
use super::threads::IDLE_CLASS;

/// CPUs whose best priority is worse than this are idle.
const WORST_TIME_SHARING: u32 = IDLE_CLASS - 1;

impl Ule {
    /// The CPU for a thread that ran on `last`, or runs there and is to choose anew.
    pub(super) fn pick_cpu(&mut self, core: &mut Core<'_>, task: TaskId, last: CpuId, running: bool) -> CpuId {
        let (cpu, reason) = self.search_cpu(core, task, last, running);
        core.decide(reason, task, i64::from(cpu.0));
        cpu
    }

    fn search_cpu(&mut self, core: &Core<'_>, task: TaskId, last: CpuId, running: bool) -> (CpuId, DecisionId) {
        let told = self.decisions;
        let this_cpu = core.this_cpu();
        let leaf = self.groups.leaf(last);
        if core.may_run_on(task, last) && self.is_idle(last) && self.is_affine(core, task, 2) {
            let siblings_busy =
                self.groups.group(leaf).smt && self.groups.group(leaf).cpus.iter().any(|&cpu| !self.is_idle(cpu));
            if !siblings_busy {
                return (last, told.kept);
            }
        }
        let priority = self.queues.threads[task.index()].priority;
        let affine = self
            .groups
            .outward(leaf)
            .filter(|&group| !self.groups.group(group).smt && self.is_affine_to(core, task, group))
            .last()
            .filter(|&group| group != ROOT);
        let mut found = None;
        if let Some(group) = affine {
            found = self
                .search_least(core, task, group, Some(WORST_TIME_SHARING.max(priority)), last, running)
                .map(|cpu| (cpu, told.near));
        }
        let found = found
            .or_else(|| {
                self.search_least(core, task, ROOT, Some(priority), last, running).map(|cpu| (cpu, told.first_there))
            })
            .or_else(|| self.search_least(core, task, ROOT, None, last, running).map(|cpu| (cpu, told.least)));
        let Some((found, reason)) = found else { return (last, told.least) };
        let runs_first_here = core.may_run_on(task, this_cpu) && self.lowpri(this_cpu) > priority;
        if runs_first_here && !self.is_idle(found) && self.load(this_cpu) <= self.load(found) + 1 {
            return (this_cpu, told.here);
        }
        (found, reason)
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.lowpri(cpu) >= IDLE_CLASS
    }

    /// Whether the thread ran less than so many times the basic affinity ago.
    fn is_affine(&self, core: &Core<'_>, task: TaskId, times: u64) -> bool {
        let ticks = match self.tunables.affinity {
            0 => self.model.affinity_ticks,
            ticks => ticks,
        };
        let last_ran = self.queues.threads[task.index()].last_ran;
        last_ran.is_some_and(|last_ran| self.now(core) - last_ran < ticks * times)
    }

    fn is_affine_to(&self, core: &Core<'_>, task: TaskId, group: GroupId) -> bool {
        let times = self.groups.group(group).level.affinity();
        times > 0 && self.is_affine(core, task, times)
    }

    /// The least loaded CPU of a group, if a priority is given of those on which a thread of that priority would run first.
    fn search_least(
        &mut self,
        core: &Core<'_>,
        task: TaskId,
        group: GroupId,
        worse_than: Option<u32>,
        preferred: CpuId,
        running: bool,
    ) -> Option<CpuId> {
        let own_counts_not = running && self.model.search.discounts_running;
        let queues = &self.queues.cpus;
        let mut search = Search {
            groups: &self.groups,
            load: |cpu: CpuId| queues[cpu.index()].load,
            admits: |cpu: CpuId| {
                let runs_first = |limit| queues[cpu.index()].lowpri > limit;
                // The best priority of its own CPU can be its own.
                let asks = if own_counts_not && cpu == preferred { None } else { worse_than };
                core.may_run_on(task, cpu) && asks.is_none_or(runs_first)
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
