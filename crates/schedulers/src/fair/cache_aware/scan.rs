//! The scan: once per epoch one running thread of a process looks at where the process ran and chooses its preferred CPU.

use warmcore_kernel::Core;
use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::{DecisionId, OverheadKind, TaskId};

use super::CacheAware;
use crate::domains::Domains;
use crate::fair::state::{NONE, Rq};

/// What a scan sees of a CPU.
#[derive(Clone, Copy, Debug)]
pub(in crate::fair) struct Seen {
    /// The task on it.
    running: Option<u32>,
    /// Tasks queued there, that one included.
    tasks: u32,
}

impl Seen {
    /// The CPU of these queues; tasks are entities from `task_base` on.
    pub(in crate::fair) fn of(rq: &Rq, task_base: u32) -> Self {
        let running = (rq.curr_task != NONE).then(|| rq.curr_task - task_base);
        Self { running, tasks: rq.nr_running }
    }
}

/// What a scan found.
#[derive(Clone, Copy, Debug, Default)]
struct Findings {
    /// Occupancy of the best LLC and its CPU with the highest.
    best: (u64, u32),
    /// Occupancy of the present LLC.
    current: u64,
    /// Threads on CPUs.
    running: i64,
    /// CPUs looked at.
    examined: u64,
    /// Other LLCs than the present one with threads on CPUs, and those of them that have no task beside one such thread.
    apart: (u32, u32),
}

impl CacheAware {
    /// Ordinary tick of a user thread (`task_tick_cache`): whether a scan is to run when it returns to user mode.
    pub(in crate::fair) fn scan_is_due(&mut self, cpu: CpuId, task: TaskId) -> bool {
        let state = &mut self.tasks[task.index()];
        if state.group == NONE {
            return false;
        }
        let group = &mut self.groups[state.group as usize];
        let epoch = self.cpus[cpu.index()].epoch;
        if group.epoch >= epoch || state.scan_pending {
            return false;
        }
        group.epoch = epoch;
        state.scan_pending = true;
        true
    }

    /// The thread returns to user mode with a scan pending: its group and the LLC of its CPU if the scan is due and the group is
    /// not refused there.
    pub(in crate::fair) fn begin_scan(&mut self, core: &mut Core<'_>, task: TaskId) -> Option<(u32, u32)> {
        self.tasks[task.index()].scan_pending = false;
        let (group, cpu) = (self.tasks[task.index()].group, core.task(task).cpu());
        let jiffies = core.jiffies();
        // It may have left its group since the tick.
        let state = self.groups.get_mut(group as usize)?;
        if jiffies < state.next_scan {
            return None;
        }
        state.next_scan = jiffies + self.epoch_jiffies;
        let llc = self.llc_of[cpu.index()];
        if let Some(refusal) = self.refusal(core, group, llc) {
            self.drop_preference(core, group, task, self.dropped(refusal));
            // The average is not updated here: once it is too high it stays so.
            core.decide(self.refused(refusal), task, i64::from(llc));
            return None;
        }
        Some((group, llc))
    }

    /// Charges the scanning thread's CPU for the CPUs it has examined.
    pub(in crate::fair) fn pay_for_scan(core: &mut Core<'_>, task: TaskId, examined: u64) {
        let cost_ns = core.machine().costs().balance_per_cpu_ns;
        core.charge(core.task(task).cpu(), cost_ns * examined, OverheadKind::Balance);
    }

    /// The scan (`task_cache_work`). `seen` looks at a CPU, `nodes` limits it to LLCs of those nodes. The kernel does not look whether
    /// threads can be gathered at all; that is found and told here for who reads the verdict, and changes nothing.
    pub(super) fn scan_llcs(
        &mut self,
        core: &mut Core<'_>,
        domains: &Domains,
        task: TaskId,
        seen: impl Fn(u32) -> Seen,
        nodes: Option<&CpuSet>,
    ) {
        let Some((group, llc)) = self.begin_scan(core, task) else { return };
        let findings = self.look_around(core.jiffies(), domains, group, seen, nodes);
        Self::pay_for_scan(core, task, findings.examined);
        if findings.best.0 > 2 * findings.current {
            self.choose(core, group, task, findings.best.1, self.decisions.changed);
        }
        let (apart, alone) = findings.apart;
        if apart > 0 && apart == alone {
            self.tell_apart(core, group, task);
        }
        let divisor = self.llcs[llc as usize].divisor;
        let state = &mut self.groups[group as usize];
        state.nr_running_avg += (findings.running - state.nr_running_avg) / divisor;
    }

    /// Tells that threads of a group are elsewhere and that balancing takes none of them, if there is an LLC to come to.
    pub(in crate::fair) fn tell_apart(&self, core: &mut Core<'_>, group: u32, task: TaskId) {
        let preferred = self.preferred_llc(group);
        if preferred != NONE {
            core.decide(self.apart.left_apart, task, i64::from(preferred));
        }
    }

    /// Whether threads of a group are on CPUs of an LLC, and if so whether it is one with no task beside it.
    pub(in crate::fair) fn runs_alone(&self, cpus: &[u32], group: u32, seen: impl Fn(u32) -> Seen) -> Option<bool> {
        let (mut ours, mut tasks) = (0, 0);
        for &cpu in cpus {
            let Seen { running, tasks: queued } = seen(cpu);
            ours += u32::from(running.is_some_and(|task| self.tasks[task as usize].group == group));
            tasks += queued;
        }
        (ours > 0).then_some(tasks == 1)
    }

    /// Sums up a group's occupancy by LLC.
    fn look_around(
        &mut self,
        jiffies: u64,
        domains: &Domains,
        group: u32,
        seen: impl Fn(u32) -> Seen,
        nodes: Option<&CpuSet>,
    ) -> Findings {
        let present = self.preferred_llc(group);
        let mut findings = Findings { best: (0, NONE), ..Findings::default() };
        for llc in 0..domains.llc_count() as u32 {
            let cpus = domains.llc_cpus(llc);
            // A CPU that has its LLC to itself has no domain of it, and is passed over.
            if !self.llcs[llc as usize].has_domain {
                continue;
            }
            if nodes.is_some_and(|nodes| !cpus.iter().any(|&cpu| nodes.contains(CpuId(cpu)))) {
                continue;
            }
            let (mut sum, mut most) = (0, (0, NONE));
            let (mut ours, mut tasks) = (0, 0);
            for &cpu in cpus {
                let share = self.share(jiffies, group, cpu as usize);
                sum += share;
                if share > most.0 {
                    most = (share, cpu);
                }
                let Seen { running, tasks: queued } = seen(cpu);
                ours += u32::from(running.is_some_and(|task| self.tasks[task as usize].group == group));
                tasks += queued;
            }
            findings.running += i64::from(ours);
            findings.examined += cpus.len() as u64;
            if llc != present && ours > 0 {
                findings.apart.0 += 1;
                findings.apart.1 += u32::from(tasks == 1);
            }
            if llc == present {
                findings.current = sum;
            }
            if sum > findings.best.0 {
                findings.best = (sum, most.1);
            }
        }
        findings
    }

    /// Makes a CPU the group's preferred one. `changed` tells that it had another LLC before.
    pub(in crate::fair) fn choose(
        &mut self,
        core: &mut Core<'_>,
        group: u32,
        task: TaskId,
        cpu: u32,
        changed: DecisionId,
    ) {
        let (old, llc) = (self.preferred_llc(group), self.llc_of[cpu as usize]);
        self.groups[group as usize].cpu = cpu;
        if old != llc {
            let decision = if old == NONE { self.decisions.chosen } else { changed };
            core.decide(decision, task, i64::from(llc));
        }
    }
}

#[cfg(test)]
mod tests {
    use warmcore_kernel::Boot;
    use warmcore_topology::resolve;

    use super::*;
    use crate::domains::DomainParameters;
    use crate::fair::cache_aware::{CacheAwareTunables, Slot, ThreadGroup};

    /// Three LLCs of two CPUs, of which the first has lost one. The group had 90 % of CPU 0, and 20 and 10 % of the CPUs of the second LLC:
    /// ⌊2^20 · 200 / 1001⌋ + ⌊2^20 · 100 / 1001⌋ = 209,505 + 104,752.
    #[test]
    fn a_scan_passes_over_an_llc_of_one_cpu() {
        let machine = resolve("1s1n3l2c1t").unwrap();
        let active: CpuSet = machine.cpus().filter(|cpu| cpu.0 != 1).collect();
        let domains = Domains::build_of(&machine, &active, &DomainParameters::default());
        let mut state = CacheAware::new(CacheAwareTunables::default(), &Boot::new(&machine), &domains).unwrap();
        state.groups.push(ThreadGroup::default());
        state.slots = vec![Slot::default(); machine.cpu_count()];
        for (cpu, runtime_ns) in [(0, 900), (2, 200), (3, 100)] {
            state.slots[cpu].runtime_ns = runtime_ns;
            state.cpus[cpu].runtime_ns = 1000;
        }
        let nobody = |_| Seen { running: None, tasks: 0 };
        let findings = state.look_around(0, &domains, 0, nobody, None);
        assert_eq!((findings.best, findings.examined), ((314_257, 2), 4));
    }
}
