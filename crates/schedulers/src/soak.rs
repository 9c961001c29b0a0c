//! Soak: random workloads whose tasks are bound, kept on their CPU and released while they run, wait and sleep, and a judge of who waits too
//! long. It looks for stalls and lost tasks, not for quality.
//!
//! A violation is a task that waits while a CPU that it may use is idle, or one that waits while its CPUs serve others; a run that fails (a
//! sched_ext program was ejected, a task is in no queue) is one to whoever made it. The bounds are far above what policies need: every task
//! sleeps after at most 60 ms of work, so that even those that let tasks run until they block come around. A policy that leaves CPUs idle on
//! purpose, and with it tasks waiting for 200 ms, is found, too.

use std::fmt;

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg32;
use warmcore_topology::{CpuId, CpuSet, Machine, OsCpu};
use warmcore_trace::{Event, EventKind, PrevState, Sink, TaskId};
use warmcore_workload::{Action, Affinity, Deed, Destination, Policy, ProcessId, ProgramBuilder, Step, Task, Workload};

use crate::spec::SchedulerSpec;

/// Length of a run, in ns.
pub const LENGTH_NS: u64 = 3_000_000_000;
/// No task waits so long while a CPU that it may use is idle, in ns.
pub const IDLE_NS: u64 = 200_000_000;
/// No task waits so long while its CPUs serve others, in ns.
pub const SERVED_NS: u64 = 2_000_000_000;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A wait that no scheduler may impose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Who waits: position of its task in the workload, which has one instance of each.
    pub task: TaskId,
    /// The CPU that was idle meanwhile and that it may use; `None` if others ran there.
    pub idle: Option<OsCpu>,
    /// How long both were the case, in ns.
    pub waited_ns: u64,
    /// Until when, in ns from the run's start.
    pub at_ns: u64,
}

impl fmt::Display for Wait {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, idle, waited_ns, at_ns } = self;
        write!(out, "at {} ms `{}` had waited for {} ms ", at_ns / MS, name(task.0.into()), waited_ns / MS)?;
        match idle {
            Some(cpu) => write!(out, "although {cpu}, which it may use, was idle"),
            None => out.write_str("while its CPUs ran others"),
        }
    }
}

fn name(number: u64) -> String {
    format!("task {number}")
}

/// What a seed has run.
#[derive(Clone, Debug)]
pub struct Case {
    /// The tasks.
    pub workload: Workload,
    /// When they are bound from outside.
    pub actions: Vec<Action>,
}

impl Case {
    /// The case of a seed on a machine.
    #[must_use]
    pub fn new(machine: &Machine, seed: u64) -> Self {
        let (workload, actions) = Dice(Pcg32::seed_from_u64(seed)).workload(machine);
        Self { workload, actions }
    }

    /// What a seed asks of a scheduler: every odd one also takes CPUs offline and brings them online, where the scheduler bears that; the second
    /// two of every four have real-time tasks.
    #[must_use]
    pub fn of(machine: &Machine, scheduler: &SchedulerSpec, seed: u64) -> Self {
        let case = if seed % 2 == 1 && Self::bears_hotplug(scheduler) {
            Self::with_hotplug(machine, seed)
        } else {
            Self::new(machine, seed)
        };
        if seed % 4 >= 2 { case.with_real_time(machine, seed) } else { case }
    }

    /// The same below tasks of `SCHED_FIFO`, each of which takes a CPU for up to 0.3 ms at a time: whom a scheduler has given that CPU must wait
    /// or go elsewhere.
    #[must_use]
    pub fn with_real_time(mut self, machine: &Machine, seed: u64) -> Self {
        let mut dice = Dice(Pcg32::seed_from_u64(seed.rotate_left(32)));
        for _ in 0..1 + dice.below(machine.cpu_count() as u64) {
            let run = Step::Run { work_ns: 20 * US + dice.below(280 * US) };
            let pause = Step::Sleep { duration_ns: MS + dice.below(5 * MS) };
            let program = ProgramBuilder::new().repeat(None, |body| body.step(run).step(pause)).finish();
            let program = self.workload.add_program(program);
            let (affinity, policy) = (dice.affinity(machine), Policy::Fifo { priority: 1 + dice.below(98) as u8 });
            let name = name(self.workload.tasks.len() as u64);
            self.workload.add_task(Task { affinity, policy, ..Task::new(name, ProcessId(0), program) });
        }
        self
    }

    /// Whether CPUs may come and go under a scheduler. A sched_ext program without operations for it is ended, so none is asked.
    #[must_use]
    pub fn bears_hotplug(scheduler: &SchedulerSpec) -> bool {
        let is_program = scheduler.program().is_some() || scheduler.name() == crate::scx_native::SCHEDULER.name;
        scheduler.info().no_hotplug.is_none() && !is_program
    }

    /// The same as [`new`](Self::new) while CPUs go offline and come online, never the last one.
    #[must_use]
    pub fn with_hotplug(machine: &Machine, seed: u64) -> Self {
        let Self { workload, mut actions } = Self::new(machine, seed);
        let mut dice = Dice(Pcg32::seed_from_u64(!seed));
        let mut times: Vec<u64> = (0..2 + dice.below(8)).map(|_| dice.below(LENGTH_NS)).collect();
        times.sort_unstable();
        let mut online = machine.all_cpus().clone();
        for time_ns in times {
            let cpu = CpuId(dice.below(machine.cpu_count() as u64) as u32);
            let comes = online.insert(cpu);
            if !comes {
                online.remove(cpu);
            }
            if online.is_empty() {
                online.insert(cpu);
                continue;
            }
            actions.push(Action { time_ns, what: Deed::Hotplug { cpu: machine.os_index(cpu), online: comes } });
        }
        Self { workload, actions }
    }
}

struct Dice(Pcg32);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        u64::from(self.0.next_u32()) % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Up to 5 ms, often much less.
    fn duration(&mut self) -> u64 {
        let scale = [20 * US, 100 * US, 400 * US, 1250 * US][self.below(4) as usize];
        scale + self.below(3 * scale)
    }

    fn affinity(&mut self, machine: &Machine) -> Affinity {
        let cpus = machine.cpu_count() as u64;
        let count = match self.below(3) {
            0 => return Affinity::All,
            1 => 1,
            _ => 1 + self.below(cpus),
        };
        Affinity::Cpus((0..count).map(|_| CpuId(self.below(cpus) as u32)).collect::<CpuSet>())
    }

    /// Work of at most so many milliseconds, a part of it with migration disabled; then a sleep.
    fn program(&mut self, machine: &Machine, most_ns: u64) -> ProgramBuilder {
        let mut steps = Vec::new();
        let mut left_ns = most_ns;
        while left_ns > 0 {
            let work_ns = self.duration().min(left_ns);
            left_ns -= work_ns;
            let run = Step::Run { work_ns };
            match self.below(8) {
                0..=2 => {
                    let within = match self.below(4) {
                        0 => Step::Sleep { duration_ns: self.duration() },
                        1 => Step::Yield,
                        _ => run.clone(),
                    };
                    steps.extend([Step::MigrateDisable, run.clone(), within, run, Step::MigrateEnable]);
                    left_ns = left_ns.saturating_sub(work_ns);
                }
                3 => steps.extend([run, Step::Sleep { duration_ns: self.duration() }]),
                4 => steps.extend([run, Step::Yield]),
                5 if self.one_in(4) => steps.extend([Step::SetAffinity(self.affinity(machine)), run]),
                _ => steps.push(run),
            }
            if self.one_in(6) {
                break;
            }
        }
        let pause = Step::Sleep { duration_ns: 100 * US + self.duration() };
        ProgramBuilder::new().repeat(None, |body| steps.into_iter().fold(body, ProgramBuilder::step).step(pause))
    }

    fn workload(&mut self, machine: &Machine) -> (Workload, Vec<Action>) {
        let mut workload = Workload::empty("soak");
        workload.duration_ns = Some(LENGTH_NS);
        workload.add_process("soak");
        let cpus = machine.cpu_count() as u64;
        let tasks = 2 + cpus / 2 + self.below(2 * cpus);
        for number in 0..tasks {
            let most_ns = if self.one_in(3) { 60 * MS } else { 5 * MS };
            let program = workload.add_program(self.program(machine, most_ns).finish());
            let affinity = if self.one_in(2) { Affinity::All } else { self.affinity(machine) };
            workload.add_task(Task { affinity, ..Task::new(name(number), ProcessId(0), program) });
        }
        let actions = (0..4 + self.below(12)).map(|_| {
            let tasks = name(self.below(tasks));
            let to = Destination::Cpus(self.affinity(machine));
            Action { time_ns: self.below(LENGTH_NS), what: Deed::Bind { tasks, to } }
        });
        let actions = actions.collect();
        (workload, actions)
    }
}

/// Where a task is.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    waits_since_ns: Option<u64>,
    restriction: u32,
    bound_ns: u64,
}

/// Looks for the first wait that is too long in the events of a run.
#[derive(Debug)]
pub struct Judge<'a> {
    restrictions: &'a [CpuSet],
    tasks: Vec<Known>,
    /// By CPU: what the system calls it.
    numbers: Vec<OsCpu>,
    /// By CPU.
    idle_since_ns: Vec<Option<u64>>,
    /// CPUs that go offline and come online, the last change first, and those that are offline.
    changes: Vec<(u64, CpuId, bool)>,
    offline: CpuSet,
    found: Option<Wait>,
}

impl Sink for Judge<'_> {
    fn events(&mut self, batch: &[Event]) -> std::io::Result<()> {
        for event in batch {
            if self.found.is_none() {
                self.found = self.take(event).err();
            }
        }
        Ok(())
    }
}

impl<'a> Judge<'a> {
    /// A judge of a run on a machine, whose tables have these sets of CPUs ([`warmcore_trace::RunTables::restrictions`]).
    #[must_use]
    pub fn new(machine: &Machine, restrictions: &'a [CpuSet]) -> Self {
        Self {
            restrictions,
            tasks: Vec::new(),
            numbers: machine.cpus().map(|cpu| machine.os_cpu(cpu)).collect(),
            idle_since_ns: vec![Some(0); machine.cpu_count()],
            changes: Vec::new(),
            offline: CpuSet::default(),
            found: None,
        }
    }

    /// The judge of a run in which CPUs go offline and come online: nobody waits beside one that is offline.
    #[must_use]
    pub fn with_changes(mut self, machine: &Machine, actions: &[Action]) -> Self {
        let change = |action: &Action| match action.what {
            Deed::Hotplug { cpu, online } => Some((action.time_ns, machine.cpu_by_os_index(cpu)?, online)),
            _ => None,
        };
        self.changes = actions.iter().filter_map(change).collect();
        self.changes.sort_by_key(|(time_ns, ..)| std::cmp::Reverse(*time_ns));
        self
    }

    fn change_cpus(&mut self, now_ns: u64) {
        while let Some((time_ns, cpu, online)) = self.changes.pop_if(|(time_ns, ..)| *time_ns <= now_ns) {
            if online {
                self.offline.remove(cpu);
            } else {
                self.offline.insert(cpu);
            }
            self.idle_since_ns[cpu.index()] = online.then_some(time_ns);
        }
    }

    /// The first wait that was too long in a run that ended then.
    #[must_use]
    pub fn verdict(self, end_ns: u64) -> Option<Wait> {
        let last = || self.tasks().try_for_each(|task| self.waits_until(task, end_ns)).err();
        self.found.clone().or_else(last)
    }

    fn take(&mut self, event: &Event) -> Result<(), Wait> {
        let (now_ns, cpu) = (event.time_ns, event.cpu);
        self.change_cpus(now_ns);
        match event.kind {
            EventKind::Affinity { task, restriction } => {
                self.waits_until(task, now_ns)?;
                let known = self.known(task);
                (known.restriction, known.bound_ns) = (restriction, now_ns);
            }
            EventKind::Wakeup { task, .. } => self.known(task).waits_since_ns = Some(now_ns),
            EventKind::Switch { prev, prev_state, next } => {
                if prev.is_idle() {
                    self.tasks().try_for_each(|task| self.beside(task, cpu, now_ns))?;
                } else if prev_state == PrevState::Runnable {
                    self.known(prev).waits_since_ns = Some(now_ns);
                }
                if !next.is_idle() {
                    self.waits_until(next, now_ns)?;
                    self.known(next).waits_since_ns = None;
                }
                self.idle_since_ns[cpu.index()] = (next.is_idle() && !self.offline.contains(cpu)).then_some(now_ns);
            }
            _ => {}
        }
        Ok(())
    }

    fn tasks(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.tasks.len() as u32).map(TaskId)
    }

    fn known(&mut self, task: TaskId) -> &mut Known {
        let length = self.tasks.len().max(task.index() + 1);
        self.tasks.resize(length, Known::default());
        &mut self.tasks[task.index()]
    }

    /// A task's wait, or its time with this mask, is over.
    fn waits_until(&self, task: TaskId, now_ns: u64) -> Result<(), Wait> {
        let Some(known) = self.tasks.get(task.index()) else { return Ok(()) };
        let Some(since_ns) = known.waits_since_ns else { return Ok(()) };
        self.restrictions[known.restriction as usize].iter().try_for_each(|cpu| self.beside(task, cpu, now_ns))?;
        match now_ns - since_ns {
            waited_ns if waited_ns >= SERVED_NS => Err(Wait { task, idle: None, waited_ns, at_ns: now_ns }),
            _ => Ok(()),
        }
    }

    /// Whether a task has not waited too long beside a CPU.
    fn beside(&self, task: TaskId, cpu: CpuId, now_ns: u64) -> Result<(), Wait> {
        let known = &self.tasks[task.index()];
        let (Some(waits_ns), Some(idle_ns)) = (known.waits_since_ns, self.idle_since_ns[cpu.index()]) else {
            return Ok(());
        };
        let waited_ns = now_ns - waits_ns.max(idle_ns).max(known.bound_ns);
        match waited_ns >= IDLE_NS && self.restrictions[known.restriction as usize].contains(cpu) {
            true => Err(Wait { task, idle: Some(self.numbers[cpu.index()]), waited_ns, at_ns: now_ns }),
            false => Ok(()),
        }
    }
}
