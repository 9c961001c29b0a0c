//! What somebody outside the workload does at given times: binding tasks (`sched_setaffinity` by another process), tunables, CPUs that go
//! offline and come online ([`hotplug`](crate::hotplug)).
//!
//! Where tasks were is found as from outside a real kernel: at a few looks before the action, the CPU time of each task since the look
//! before counts for the CPU where the task is. A task that moved in between counts as a whole for where it came to.
//!
//! Not modelled: the time that the actor itself needs, on a CPU of its own.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;
use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::TaskId;
use warmcore_workload::{Action, Deed, Destination, LOOK_NS, LOOKS, Task};

use crate::core::Core;
use crate::engine::Engine;
use crate::error::{HotplugProblem, SetupError, SimulationError};
use crate::event_queue::Class;
use crate::memory::Memory;
use crate::scheduler::{Dequeue, Scheduler};
use crate::setup::{Setup, resolve};
use crate::task::State;

/// Generation of the event of a look before an action.
pub(crate) const LOOK: u32 = 1;

/// An action fitted to workload and machine.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// The action itself.
    pub action: Action,
    pub what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Binds tasks of these templates to a restriction.
    Bind {
        templates: Vec<u32>,
        to: u32,
    },
    /// Binds them to the region where tasks of other templates were: by CPU the region, by region its restriction.
    Follow {
        templates: Vec<u32>,
        home: Vec<u32>,
        region_of: Vec<u32>,
        regions: Vec<u32>,
    },
    Set {
        tunable: String,
        value: u64,
    },
    /// Takes a CPU offline or brings it online, with which that epoch begins.
    Hotplug {
        cpu: CpuId,
        online: bool,
        epoch: usize,
    },
}

impl Planned {
    pub fn new(setup: &mut Setup<'_>, action: &Action) -> Result<Self, SetupError> {
        let machine = setup.machine;
        let workload = setup.workload;
        let called = |name: &str| {
            let templates = workload.templates_called(name);
            let nobody = || SetupError::NobodyCalled { action: action.to_string(), name: name.to_owned() };
            if templates.is_empty() { Err(nobody()) } else { Ok(templates) }
        };
        let what = match &action.what {
            Deed::Hotplug { cpu, online } => {
                let Some(known) = machine.cpu_by_os_index(*cpu) else {
                    let cpus = machine.cpus().map(|cpu| CpuId(machine.os_index(cpu))).collect::<CpuSet>().to_string();
                    let problem = HotplugProblem::NoCpu { cpus };
                    return Err(SetupError::Hotplug { action: action.to_string(), problem });
                };
                What::Hotplug { cpu: known, online: *online, epoch: 0 }
            }
            Deed::Set { tunable, value } => What::Set { tunable: tunable.clone(), value: *value },
            Deed::Bind { tasks, to: Destination::Cpus(affinity) } => {
                let templates = called(tasks)?;
                What::Bind { templates, to: setup.intern(&resolve(machine, tasks, affinity)?) }
            }
            Deed::Bind { tasks, to: Destination::LlcOf(home) } => What::Follow {
                templates: called(tasks)?,
                home: called(home)?,
                region_of: machine.cpus().map(|cpu| machine.llc_of(cpu).0).collect(),
                regions: machine.llcs().map(|llc| setup.intern(machine.cpus_of_llc(llc))).collect(),
            },
            Deed::Bind { tasks, to: Destination::NodeOf(home) } => What::Follow {
                templates: called(tasks)?,
                home: called(home)?,
                region_of: machine.cpus().map(|cpu| machine.node_of(cpu).0).collect(),
                regions: machine.nodes().map(|node| setup.intern(machine.cpus_of_node(node))).collect(),
            },
        };
        let bound = |to: u32| to != 0 && to != u32::MAX;
        let (templates, binds) = match &what {
            What::Bind { templates, to } => (&templates[..], bound(*to)),
            What::Follow { templates, regions, .. } => (&templates[..], regions.iter().any(|to| bound(*to))),
            What::Set { .. } | What::Hotplug { .. } => (&[][..], false),
        };
        let is_deadline = |task: &&Task| workload.policies_of(task).any(|policy| policy.is_deadline());
        let mut tasks = templates.iter().map(|template| &workload.tasks[*template as usize]);
        // `dl_task_check_affinity`.
        match tasks.find(is_deadline).filter(|_| binds) {
            Some(task) => Err(SetupError::BoundDeadline { task: task.name.clone(), errno: "EBUSY" }),
            None => Ok(Self { action: action.clone(), what }),
        }
    }
}

/// What is remembered between looks and actions.
#[derive(Default)]
pub(crate) struct Actions {
    looks: Vec<Looks>,
}

/// By CPU: which of equally good CPUs who runs there chose last, for a task that may not stay where it is or for a real-time one
/// (`distribute_cpu_mask_prev`).
#[derive(Clone, Debug)]
pub(crate) struct Distributed(Vec<CpuId>);

impl Distributed {
    /// As a kernel begins, from the first CPU; where a launcher is, from one by lot, as after programs that it started before.
    pub(crate) fn new(cpus: usize, launchers: impl Iterator<Item = CpuId>, seed: u64) -> Self {
        /// Keeps this stream apart from others with the same seed; any odd constant does.
        const STREAM: u64 = 0x6469_7374_7269_6275;
        let mut random = Pcg32::new(seed, STREAM);
        let mut last = vec![CpuId(0); cpus];
        for launcher in launchers {
            // The remainder is not exactly even, by less than one in a million.
            last[launcher.index()] = CpuId(random.next_u32() % cpus as u32);
        }
        Self(last)
    }

    /// The next of these CPUs behind the one that `caller` gave last; `None` if there is none (`cpumask_any_and_distribute`). Ids are in the
    /// order of the kernel's numbers.
    pub(crate) fn next(&mut self, caller: CpuId, allowed: impl Iterator<Item = CpuId>) -> Option<CpuId> {
        let last = &mut self.0[caller.index()];
        let before = *last;
        let next = allowed.min_by_key(|cpu| (*cpu <= before, *cpu))?;
        *last = next;
        Some(next)
    }
}

impl Core<'_> {
    /// Of equally good CPUs the next behind the one that this CPU chose last; `None` of none (`cpumask_any_and_distribute`).
    pub fn next_distributed(&mut self, cpus: impl Iterator<Item = CpuId>) -> Option<CpuId> {
        self.distributed.next(self.this_cpu, cpus)
    }
}

/// Where tasks were, for one action.
#[derive(Clone, Default)]
struct Looks {
    /// By region.
    spent_ns: Vec<u64>,
    /// By task: its CPU time at the last look; 0 for tasks that came later.
    before_ns: Vec<u64>,
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Puts the run's actions and the looks before them into the queue.
    pub(crate) fn queue_actions(&mut self) {
        for (index, planned) in self.setup.actions.iter().enumerate() {
            let regions = match &planned.what {
                What::Follow { regions, .. } => regions.len(),
                What::Bind { .. } | What::Set { .. } | What::Hotplug { .. } => 0,
            };
            self.actions.looks.push(Looks { spent_ns: vec![0; regions], before_ns: Vec::new() });
            for at in planned.action.looks_ns() {
                self.core.queue.push(at, Class::Action, CpuId(0), index as u32, LOOK);
            }
            self.core.queue.push(planned.action.time_ns, Class::Action, CpuId(0), index as u32, 0);
        }
    }

    /// Looks where the tasks are that an action depends on. The first look finds what is not to be counted.
    pub(crate) fn look(&mut self, index: u32) {
        let setup = self.setup;
        let What::Follow { home, region_of, .. } = &setup.actions[index as usize].what else { return };
        let looks = &mut self.actions.looks[index as usize];
        let first = looks.before_ns.is_empty() && self.core.now_ns >= LOOK_NS;
        looks.before_ns.resize(self.core.tasks.len(), 0);
        for (task, before_ns) in self.core.tasks.iter().zip(&mut looks.before_ns) {
            if task.state == State::Dead || !home.contains(&task.template.0) {
                continue;
            }
            let running = task.state == State::Running;
            let ran_ns = task.cpu_time_ns + if running { self.core.now_ns - task.switched_in_ns } else { 0 };
            if !first {
                looks.spent_ns[region_of[task.cpu.index()] as usize] += ran_ns - *before_ns;
            }
            *before_ns = ran_ns;
        }
    }

    /// Does an action.
    pub(crate) fn act(&mut self, index: u32) {
        let setup = self.setup;
        let planned = &setup.actions[index as usize];
        match &planned.what {
            What::Set { tunable, value } => self.scheduler.tunable_changed(&mut self.core, tunable, *value),
            What::Bind { templates, to } => self.bind_all(templates, *to),
            What::Hotplug { cpu, online, epoch } => self.plug(*cpu, *online, *epoch),
            What::Follow { templates, regions, .. } => {
                self.look(index);
                let spent_ns = &self.actions.looks[index as usize].spent_ns;
                // Of equal ones the first.
                let most = (0..regions.len()).rev().max_by_key(|region| spent_ns[*region]);
                match most.filter(|region| spent_ns[*region] > 0) {
                    Some(region) => self.bind_all(templates, regions[region]),
                    None => {
                        let action = planned.action.to_string();
                        let window_ms = u64::from(LOOKS) * LOOK_NS / 1_000_000;
                        self.core.error.get_or_insert(SimulationError::NobodyRan { action, window_ms });
                    }
                }
            }
        }
    }

    fn bind_all(&mut self, templates: &[u32], restriction: u32) {
        for index in 0..self.core.tasks.len() {
            let task = &self.core.tasks[index];
            if task.state != State::Dead && templates.contains(&task.template.0) {
                self.bind(TaskId(index as u32), restriction);
            }
        }
    }

    /// Somebody outside changes where a task may run (`__set_cpus_allowed_ptr`). One that is where it may not be leaves at once if it is
    /// runnable, and when it wakes otherwise.
    fn bind(&mut self, task: TaskId, restriction: u32) {
        if self.refuses_mask(task, restriction) {
            return;
        }
        self.set_mask(task, restriction);
        self.leave_forbidden_cpu(task);
    }

    /// Has a runnable task leave a CPU that it may not use (`affine_move_task`): a queued one is moved, for a running one its CPU's
    /// stopper thread comes. From a CPU that is offline it goes as in [`hotplug`](crate::hotplug).
    pub(crate) fn leave_forbidden_cpu(&mut self, task: TaskId) {
        let (cpu, state) = (self.core.tasks[task.index()].cpu, self.core.tasks[task.index()].state);
        if self.core.may_run_on(task, cpu) || !matches!(state, State::Queued | State::Running) {
            return;
        }
        if self.core.tasks[task.index()].migration_disabled > 0 {
            // The stopper comes for nothing, but it makes the switch that binds the task to the CPU.
            self.pin(cpu, task);
            return;
        }
        let caller = self.core.this_cpu;
        self.go_to(cpu);
        let stopped = state == State::Running && self.stop_running(cpu);
        self.scheduler.dequeue(&mut self.core, cpu, task, Dequeue::MIGRATING);
        let to = self.other_cpu(caller, task);
        self.place_moved(task, to);
        if stopped {
            self.core.cpus[cpu.index()].need_resched = crate::core::NeedResched::Full;
            self.core.list_for_resched(cpu);
        }
        self.core.this_cpu = caller;
    }

    /// Where a task goes that may not stay on its CPU: the next allowed CPU after the last one that was given by who runs on `caller`
    /// (`cpumask_any_and_distribute`), or from a CPU that is offline as in [`hotplug`](crate::hotplug).
    pub(crate) fn other_cpu(&mut self, caller: CpuId, task: TaskId) -> CpuId {
        let from = self.core.tasks[task.index()].cpu;
        if !self.core.active.contains(from) {
            return self.fallback_cpu(task, from);
        }
        let allowed = self.core.allowed(task);
        self.core.distributed.next(caller, allowed.iter()).expect("restrictions are never empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, of `cpumask_any_and_distribute`: the first choice of a CPU skips CPU 0, and each goes on from its own last one.
    #[test]
    fn choices_go_round_from_behind_the_last_one_of_the_cpu() {
        let mut distributed = Distributed::new(4, std::iter::empty(), 1);
        let mut next =
            |caller, cpus: &[u32]| distributed.next(CpuId(caller), cpus.iter().map(|&cpu| CpuId(cpu))).map(|cpu| cpu.0);
        assert_eq!([0; 5].map(|caller| next(caller, &[0, 1, 2, 3])), [Some(1), Some(2), Some(3), Some(0), Some(1)]);
        assert_eq!(
            [next(2, &[0, 3]), next(2, &[0, 3]), next(2, &[]), next(2, &[0, 2])],
            [Some(3), Some(0), None, Some(2)]
        );
    }
}
