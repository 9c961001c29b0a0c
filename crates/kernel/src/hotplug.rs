//! CPUs that go offline and come online again during a run.
//!
//! What is decided before the run: which CPUs are active after each change, and what is left of every mask. A change itself is short: the
//! class hears of it, what ran or waited on the CPU goes where it may be, and timers of tasks go to a CPU that is left.
//!
//! Source: Linux 7.2 `kernel/sched/core.c` (`sched_cpu_deactivate`, `balance_push`, `select_fallback_rq`, `is_cpu_allowed`,
//! `sched_cpu_activate`), `kernel/cgroup/cpuset.c` (`cpuset_cpus_allowed_fallback`), `kernel/time/hrtimer.c` (`hrtimers_cpu_dying`).
//! `docs/spec/linux-hotplug.md` says which rule is from where.
//!
//! Not modelled: how long a change takes, and the kernel's own work for it. A timer of the policy that was started on the CPU runs out in
//! its name.

use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::TaskId;

use crate::actions::What;
use crate::engine::Engine;
use crate::error::{HotplugProblem, SetupError};
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::setup::{Setup, admit_deadline_tasks};
use crate::task::State;

/// Lines that are kept of the kernel's log.
const MOST_LINES: usize = 20;

/// From a change on: which CPUs are active (`cpu_active_mask`), and what masks come to.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    active: CpuSet,
    /// The restrictions of the run without CPUs that are not active. One of them may be empty.
    restrictions: Vec<CpuSet>,
    /// The same of kernel threads. One that belongs to a CPU may use it all the same, and rests.
    visitor_sets: Vec<CpuSet>,
}

impl Setup<'_> {
    /// Whether a CPU goes offline or comes online in the run.
    #[must_use]
    pub fn has_hotplug(&self) -> bool {
        !self.epochs.is_empty()
    }

    /// Follows the changes in the order of time.
    ///
    /// # Errors
    /// One that the kernel would refuse, or that changes nothing.
    pub(crate) fn plan_hotplug(&mut self) -> Result<(), SetupError> {
        self.epochs.clear();
        if !self.actions.iter().any(|planned| matches!(planned.what, What::Hotplug { .. })) {
            return Ok(());
        }
        if !self.workload.isolcpus.is_empty() {
            return Err(SetupError::IsolatedHotplug);
        }
        // A task that stays on its CPU may use it until it may leave, whatever becomes of the CPU; one that is bound to it may not.
        let lone: Vec<CpuSet> = self.lone_cpus.iter().map(|&lone| self.restrictions[lone as usize].clone()).collect();
        let first_lone = self.restrictions.len();
        self.lone_cpus = (first_lone as u32..).take(lone.len()).collect();
        self.restrictions.extend(lone);
        let mut active = self.machine.all_cpus().clone();
        for index in 0..self.actions.len() {
            let action = &self.actions[index].action;
            let What::Hotplug { cpu, online, .. } = self.actions[index].what else { continue };
            let refuse = |problem| SetupError::Hotplug { action: action.to_string(), problem };
            match (active.contains(cpu), online) {
                (true, true) => return Err(refuse(HotplugProblem::Online)),
                (false, false) => return Err(refuse(HotplugProblem::Offline)),
                (true, false) if active.len() == 1 => return Err(refuse(HotplugProblem::LastCpu)),
                (true, false) => active.remove(cpu),
                (false, true) => active.insert(cpu),
            };
            let admitted = admit_deadline_tasks(self, &active);
            admitted.map_err(|error| refuse(HotplugProblem::Deadlines(Box::new(error))))?;
            let left = |set: &CpuSet| set.intersection(&active);
            let restrictions = self.restrictions.iter().enumerate();
            let restrictions =
                restrictions.map(|(index, set)| if index < first_lone { left(set) } else { set.clone() });
            let visitor_sets =
                self.visitors.sets.iter().map(|set| if set.len() == 1 { set.clone() } else { left(set) });
            let epoch = Epoch {
                restrictions: restrictions.collect(),
                visitor_sets: visitor_sets.collect(),
                active: active.clone(),
            };
            if let What::Hotplug { epoch: number, .. } = &mut self.actions[index].what {
                *number = self.epochs.len();
            }
            self.epochs.push(epoch);
        }
        Ok(())
    }
}

impl<'a, S: Scheduler, M: Memory> Engine<'a, S, M> {
    /// A CPU goes offline or comes online.
    pub(crate) fn plug(&mut self, cpu: CpuId, online: bool, epoch: usize) {
        let setup: &'a Setup<'a> = self.setup;
        let Epoch { active, restrictions, visitor_sets } = &setup.epochs[epoch];
        (self.core.active, self.core.restrictions, self.core.visitor_sets) = (active, restrictions, visitor_sets);
        self.core.everywhere = if active.len() == self.core.cpus.len() { 0 } else { u32::MAX };
        self.core.account_hotplug(cpu, online);
        if online { self.plug_in(cpu) } else { self.unplug(cpu) }
    }

    /// `sched_cpu_activate`. The CPU begins idle, without tick.
    fn plug_in(&mut self, cpu: CpuId) {
        let caller = self.core.this_cpu;
        self.go_to(cpu);
        self.scheduler.cpu_online(&mut self.core, cpu);
        self.core.cpus[cpu.index()].ttwu_pending -= 1;
        self.scheduler.ttwu_pending_changed(&mut self.core, cpu);
        if self.core.curr_is_idle(cpu) {
            self.scheduler.enter_idle(&mut self.core, cpu);
            if self.core.tick_stopped(cpu) {
                self.scheduler.tick_stopped(&mut self.core, cpu);
            }
        }
        self.core.this_cpu = caller;
        self.resume_parked(cpu);
        self.core.resched_full(cpu);
    }

    /// `sched_cpu_deactivate`, and what `balance_push` does from then on.
    fn unplug(&mut self, cpu: CpuId) {
        // No policy takes a CPU for idle that a wakeup is on its way to.
        self.core.cpus[cpu.index()].ttwu_pending += 1;
        self.scheduler.ttwu_pending_changed(&mut self.core, cpu);
        self.scheduler.cpu_offline(&mut self.core, cpu);
        if let Some(refuge) = self.core.active.first() {
            self.core.queue.rehome(cpu, refuge);
            self.rehome_deferred(cpu, refuge);
        }
        // The running task goes first, the others in the order of their numbers: the kernel takes them in the order of picks.
        let running = self.core.curr(cpu);
        if !running.is_idle() {
            self.leave_forbidden_cpu(running);
        }
        for index in 0..self.core.tasks.len() {
            let task = &self.core.tasks[index];
            if task.cpu == cpu && task.state == State::Queued {
                self.leave_forbidden_cpu(TaskId(index as u32));
            }
        }
    }

    /// A task may use none of its CPUs any more: it gets all, for good (`cpuset_cpus_allowed_fallback`, `set_cpus_allowed_force`).
    #[cold]
    pub(crate) fn widen(&mut self, task: TaskId) {
        let cpu = self.core.tasks[task.index()].cpu;
        if !self.core.is_kernel_thread(task) {
            let (name, os) = (self.core.task_name(task), self.core.machine.os_index(cpu));
            let number = task.0.saturating_sub(self.core.hidden);
            self.log(format!("process {number} ({name}) no longer affine to cpu{os}"));
        }
        self.set_mask(task, 0);
    }

    /// Whether a mask has no active CPU of the task's cpuset, so that a change to it is refused (`__set_cpus_allowed_ptr_locked`, `EINVAL`): the task
    /// keeps its own.
    pub(crate) fn refuses_mask(&mut self, task: TaskId, asked: u32) -> bool {
        let why = match self.setup.left_of(self.core.tasks[task.index()].group, asked) {
            None => "outside its cpuset",
            Some(left) if self.core.everywhere != 0 && self.core.cpus_of_restriction(left).is_empty() => "all offline",
            Some(_) => return false,
        };
        let (name, number) = (self.core.task_name(task), task.0.saturating_sub(self.core.hidden));
        self.log(format!("process {number} ({name}): sched_setaffinity to CPUs that are {why}: EINVAL"));
        true
    }

    fn log(&mut self, line: String) {
        if self.kernel_log.len() < MOST_LINES {
            self.kernel_log.push(format!("{:.6} s: {line}", self.core.now_ns as f64 / 1e9));
        }
    }
}
