//! Where tasks of these classes go when they cannot run at once: `find_lowest_rq` and `find_later_rq`, push and pull.
//!
//! Source: Linux 7.2 `kernel/sched/rt.c`, `cpupri.c`, `deadline.c`, `cpudeadline.c`; `docs/spec/linux-rt.md` section 2.

use warmcore_kernel::Core;
use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::{MigrationKind, TaskId};

use super::{Realtime, Timer};

/// Above every priority: the CPU has deadline tasks (`CPUPRI_HIGHER`).
const HIGHER: u8 = 100;

impl Realtime {
    /// Highest priority that is runnable on a CPU; 0 where there are none but tasks below (`cpupri`).
    fn level(&self, cpu: CpuId) -> u8 {
        let queue = &self.queues[cpu.index()];
        if queue.deadline.is_empty() && !self.servers[cpu.index()].is_queued() { queue.fixed.highest() } else { HIGHER }
    }

    /// Whether there is a CPU that a task may use where nothing is as urgent; the candidates are those where what is urgent is least
    /// (`cpupri_find`).
    pub(super) fn lower_priority(&mut self, core: &Core<'_>, task: TaskId) -> bool {
        self.lower_priority_among(core, task, |_, _| true)
    }

    /// The same among those of its CPUs that `may` accepts.
    fn lower_priority_among(&mut self, core: &Core<'_>, task: TaskId, may: impl Fn(&Self, CpuId) -> bool) -> bool {
        let own = self.tasks[task.index()].priority();
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let usable = core.allowed(task).iter().filter(|&cpu| may(self, cpu));
        let least = usable.map(|cpu| self.level(cpu)).min().filter(|&least| least < own);
        if let Some(least) = least {
            let is_least = |cpu: &CpuId| self.level(*cpu) == least && may(self, *cpu);
            candidates.extend(core.allowed(task).iter().filter(is_least));
        }
        self.candidates = candidates;
        least.is_some()
    }

    /// The same among CPUs that are big enough, or among all where no such CPU will do (`cpupri_find_fitness`).
    fn lower_priority_fitting(&mut self, core: &Core<'_>, task: TaskId) -> bool {
        let fits = |class: &Self, cpu| class.fits(core, task, cpu);
        self.unequal && self.lower_priority_among(core, task, fits) || self.lower_priority(core, task)
    }

    /// The CPU where a task of fixed priority displaces the least (`find_lowest_rq`).
    pub(super) fn lowest_cpu(&mut self, core: &mut Core<'_>, task: TaskId, from: CpuId) -> Option<CpuId> {
        if core.allowed(task).len() < 2 || !self.lower_priority_fitting(core, task) {
            return None;
        }
        self.nearest_candidate(core, from)
    }

    /// The CPU where a deadline task runs at once (`find_later_rq`, `dl_task_is_earliest_deadline`): one without deadline tasks, if
    /// there is such a one that is big enough (`cpudl_find`), or else the one whose earliest deadline is the latest.
    pub(super) fn later_cpu(&mut self, core: &mut Core<'_>, task: TaskId, from: CpuId) -> Option<CpuId> {
        let allowed = core.allowed(task);
        if allowed.len() < 2 {
            return None;
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let free = |cpu: &CpuId| self.level(*cpu) < HIGHER;
        candidates.extend(allowed.iter().filter(free));
        self.candidates = candidates;
        if !self.candidates.is_empty() {
            self.leave_fitting(core, task, from);
            return self.nearest_candidate(core, from);
        }
        let latest = core.machine().cpus().filter_map(|cpu| Some((self.earliest_ns(cpu)?, cpu)));
        let (latest_ns, cpu) = latest.max_by_key(|&(deadline_ns, cpu)| (deadline_ns, std::cmp::Reverse(cpu)))?;
        (allowed.contains(cpu) && self.deadline_ns(task) < latest_ns).then_some(cpu)
    }

    /// Of the candidates the task's own CPU, or the nearest: this CPU if it is as near as any, else one after the other.
    fn nearest_candidate(&self, core: &mut Core<'_>, from: CpuId) -> Option<CpuId> {
        if self.candidates.contains(from) {
            return Some(from);
        }
        let (machine, this_cpu) = (core.machine(), core.this_cpu());
        let own_core = machine.cpus_of_core(machine.core_of(from));
        let clusters = core.parameters().sched_cluster;
        let spans: [&CpuSet; 6] = [
            own_core,
            if clusters { machine.cpus_of_cluster(machine.cluster_of(from)) } else { own_core },
            machine.cpus_of_llc(machine.llc_of(from)),
            machine.cpus_of_node(machine.node_of(from)),
            machine.cpus_of_socket(machine.socket_of(from)),
            machine.all_cpus(),
        ];
        for span in spans {
            if self.candidates.contains(this_cpu) && span.contains(this_cpu) {
                return Some(this_cpu);
            }
            let both = self.candidates.iter().filter(|&cpu| span.contains(cpu));
            if let Some(cpu) = core.next_distributed(both) {
                return Some(cpu);
            }
        }
        None
    }

    /// The next task of a CPU that waits and may go elsewhere.
    fn pushable_fixed(&self, core: &Core<'_>, cpu: CpuId) -> Option<TaskId> {
        let waits = |task: &TaskId| *task != core.curr(cpu) && core.allowed(*task).len() > 1;
        self.queues[cpu.index()].fixed.iter().find(waits)
    }

    fn pushable_deadline(&self, core: &Core<'_>, cpu: CpuId) -> Option<TaskId> {
        let waits = |task: &&TaskId| **task != core.curr(cpu) && core.allowed(**task).len() > 1;
        self.queues[cpu.index()].deadline.iter().find(waits).copied()
    }

    /// Pushes tasks of fixed priority away from a CPU, as long as one runs elsewhere at once (`push_rt_tasks`).
    pub(super) fn push_fixed(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        while let Some(task) = self.pushable_fixed(core, cpu) {
            let own = self.tasks[task.index()].priority();
            let runs = match self.running(core, cpu) {
                Some(curr) if self.tasks[curr.index()].reservation().is_some() => HIGHER,
                Some(curr) => self.tasks[curr.index()].priority(),
                None => 0,
            };
            if own > runs {
                core.resched_full(cpu);
                return;
            }
            let Some(to) = self.lowest_cpu(core, task, cpu).filter(|&to| to != cpu) else { return };
            if self.queues[to.index()].fixed.highest() >= own {
                return;
            }
            self.migrate(core, task, cpu, to);
        }
    }

    /// The same for deadline tasks (`push_dl_tasks`).
    pub(super) fn push_deadline(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        while let Some(task) = self.pushable_deadline(core, cpu) {
            let own_ns = self.deadline_ns(task);
            if let Some(curr) = self.running(core, cpu).filter(|&curr| self.tasks[curr.index()].reservation().is_some())
                && own_ns < self.deadline_ns(curr)
                && core.allowed(curr).len() > 1
            {
                core.resched_full(cpu);
                return;
            }
            let Some(to) = self.later_cpu(core, task, cpu).filter(|&to| to != cpu) else { return };
            if self.earliest_ns(to).is_some_and(|earliest_ns| earliest_ns <= own_ns) {
                return;
            }
            self.migrate(core, task, cpu, to);
        }
    }

    /// A task that waits goes to another CPU, where it runs at once.
    fn migrate(&mut self, core: &mut Core<'_>, task: TaskId, from: CpuId, to: CpuId) {
        self.remove(from, task);
        self.queues[from.index()].runnable -= 1;
        core.set_task_cpu(task, to, MigrationKind::Balance);
        self.queues[to.index()].runnable += 1;
        self.insert(to, task, false);
        core.resched_full(to);
    }

    /// Before a CPU picks: one that has run out of what was as urgent as the task that leaves looks for more (`balance_dl`, `balance_rt`).
    pub(super) fn pull(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let Some(leaves) = self.running(core, cpu).filter(|&curr| !self.tasks[curr.index()].queued) else { return };
        let left = self.tasks[leaves.index()];
        if left.reservation().is_some() {
            self.pull_deadline(core, cpu);
        }
        let highest = self.queues[cpu.index()].fixed.highest();
        if left.reservation().is_some() || highest < left.priority() {
            self.ask_for_pushes(core, cpu, CpuId(0));
        }
    }

    /// Takes deadline tasks that wait elsewhere and are earlier than what is here (`pull_dl_task`).
    fn pull_deadline(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        for from in core.machine().cpus().filter(|&from| from != cpu) {
            if self.queues[from.index()].deadline.len() < 2 {
                continue;
            }
            let waits = |task: &&TaskId| **task != core.curr(from) && core.may_run_on(**task, cpu);
            let Some(task) = self.queues[from.index()].deadline.iter().find(waits).copied() else { continue };
            let own_ns = self.deadline_ns(task);
            let is_about_to_run = self
                .running(core, from)
                .is_none_or(|curr| self.tasks[curr.index()].reservation().is_none() || own_ns < self.deadline_ns(curr));
            if is_about_to_run || self.earliest_ns(cpu).is_some_and(|earliest_ns| earliest_ns <= own_ns) {
                continue;
            }
            self.remove(from, task);
            self.queues[from.index()].runnable -= 1;
            core.set_task_cpu(task, cpu, MigrationKind::Balance);
            self.queues[cpu.index()].runnable += 1;
            self.insert(cpu, task, false);
        }
    }

    /// Asks the next CPU from `first` on that has more real-time tasks than it can run to push them (`tell_cpu_to_push`).
    fn ask_for_pushes(&mut self, core: &mut Core<'_>, cpu: CpuId, first: CpuId) {
        let mut others = core.machine().cpus().filter(|&other| other != cpu && other >= first);
        if let Some(next) = others.find(|&other| self.pushable_fixed(core, other).is_some()) {
            let delay_ns = core.machine().costs().ipi_ns[core.relation(cpu, next)];
            core.start_timer(next, delay_ns, Timer::Push.payload());
        }
    }

    /// A CPU was asked, and asks the next one (`rto_push_irq_work_func`).
    pub(super) fn push_for_others(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.push_fixed(core, cpu);
        self.ask_for_pushes(core, cpu, CpuId(cpu.0 + 1));
    }
}
