//! What the tests share: workloads straight from steps, a run with all its events, and readings of it.

// Each test program uses a part of this.
#![allow(dead_code)]

pub mod random;
pub mod trace_check;

use std::collections::BTreeMap;

use warmcore_kernel::{Governor, Setup, SimulationError};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::{SchedulerSpec, simulate};
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::Outcome;
use warmcore_trace::{Event, EventKind, MigrationKind, PlaceReason, PrevState, Side, Sink, TaskId};
use warmcore_workload::{
    Action, Affinity, Deed, Destination, ProcessId, ProgramBuilder, Step, Task, TaskTemplateId, Workload,
};

/// Microsecond in nanoseconds.
pub const US: u64 = 1_000;
/// Millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;
/// Second in nanoseconds.
pub const S: u64 = 1_000_000_000;

/// What a wakeup takes on machines of the short form: a preempting one that this CPU makes is followed by the switch so much later.
pub const WAKEUP_NS: u64 = 700;

/// The machine of most checklist items: 16 CPUs, two LLCs of 8, one node.
pub const TWO_LLCS_OF_8: &str = "1s1n2l8c1t";

/// Work.
pub fn run_for(work_ns: u64) -> Step {
    Step::Run { work_ns }
}

/// Sleep.
pub fn sleep(duration_ns: u64) -> Step {
    Step::Sleep { duration_ns }
}

/// Some steps once.
pub fn once<const N: usize>(steps: [Step; N]) -> ProgramBuilder {
    steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step)
}

/// Some steps for ever.
pub fn forever<const N: usize>(steps: [Step; N]) -> ProgramBuilder {
    then_forever([], steps)
}

/// Some steps so many times.
pub fn times<const N: usize>(count: u64, steps: [Step; N]) -> ProgramBuilder {
    ProgramBuilder::new().repeat(Some(count), |body| steps.into_iter().fold(body, ProgramBuilder::step))
}

/// Some steps once, then others for ever.
pub fn then_forever<const N: usize, const M: usize>(first: [Step; N], then: [Step; M]) -> ProgramBuilder {
    once(first).repeat(None, |body| then.into_iter().fold(body, ProgramBuilder::step))
}

/// Runs all the time without system calls.
pub fn spin() -> ProgramBuilder {
    forever([run_for(3600 * S)])
}

/// Only that CPU.
pub fn on_cpu(cpu: u32) -> Affinity {
    on_cpus([cpu])
}

/// Only those CPUs.
pub fn on_cpus(cpus: impl IntoIterator<Item = u32>) -> Affinity {
    Affinity::Cpus(cpus.into_iter().map(CpuId).collect::<CpuSet>())
}

/// A workload under construction.
pub struct Scene {
    /// What it has come to.
    pub workload: Workload,
    /// What is done from outside.
    pub actions: Vec<Action>,
}

impl Scene {
    /// A workload that ends when its last task exits.
    pub fn new() -> Self {
        let mut workload = Workload::empty("scene");
        workload.add_process("process");
        Self { workload, actions: Vec::new() }
    }

    /// A workload that ends after a time.
    pub fn lasting(duration_ns: u64) -> Self {
        let mut scene = Self::new();
        scene.workload.duration_ns = Some(duration_ns);
        scene
    }

    /// Adds a task of the first process and returns it to be adjusted.
    pub fn task(&mut self, name: &str, program: ProgramBuilder) -> &mut Task {
        let program = self.workload.add_program(program.finish());
        let id = self.workload.add_task(Task::new(name, ProcessId(0), program));
        &mut self.workload.tasks[id.index()]
    }

    /// Adds a template of which tasks are only made by forks.
    pub fn template(&mut self, name: &str, program: ProgramBuilder) -> TaskTemplateId {
        self.task(name, program).instances = 0;
        TaskTemplateId(self.workload.tasks.len() as u32 - 1)
    }

    /// Id that the next task or template will have.
    pub fn next_template(&self) -> TaskTemplateId {
        TaskTemplateId(self.workload.tasks.len() as u32)
    }

    /// Adds an application with one process. The first application exists already.
    pub fn application(&mut self, name: &str) -> ProcessId {
        self.workload.applications.push(name.to_owned());
        let process = self.workload.add_process(name);
        self.workload.processes[process.index()].application = self.workload.applications.len() as u32 - 1;
        process
    }

    /// Binds tasks from outside.
    pub fn bind(&mut self, time_ns: u64, tasks: &str, to: Destination) {
        self.actions.push(Action { time_ns, what: Deed::Bind { tasks: tasks.into(), to } });
    }

    /// Sets a tunable in mid-run.
    pub fn set(&mut self, time_ns: u64, tunable: &str, value: u64) {
        self.actions.push(Action { time_ns, what: Deed::Set { tunable: tunable.into(), value } });
    }

    /// Takes a CPU offline.
    pub fn unplug(&mut self, time_ns: u64, cpu: u32) {
        self.actions.push(Action { time_ns, what: Deed::Hotplug { cpu, online: false } });
    }

    /// Brings it online again.
    pub fn plug_in(&mut self, time_ns: u64, cpu: u32) {
        self.actions.push(Action { time_ns, what: Deed::Hotplug { cpu, online: true } });
    }

    /// Runs it with seed 1.
    pub fn run(&self, machine: &str, scheduler: &str) -> Run {
        self.run_with_seed(machine, scheduler, 1)
    }

    /// Runs it with a seed.
    pub fn run_with_seed(&self, machine: &str, scheduler: &str, seed: u64) -> Run {
        match self.try_run(machine, scheduler, seed) {
            Ok(run) => run,
            Err(error) => panic!("{scheduler} on {machine}, seed {seed}: {error}"),
        }
    }

    /// Runs it, the kernel's invariants and the trace checked.
    pub fn try_run(&self, machine: &str, scheduler: &str, seed: u64) -> Result<Run, SimulationError> {
        self.try_run_on(&warmcore_topology::resolve(machine).unwrap(), scheduler, seed)
    }

    /// The same on a machine that is not just a name.
    pub fn try_run_on(&self, machine: &Machine, scheduler: &str, seed: u64) -> Result<Run, SimulationError> {
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{scheduler} {} seed {seed}", machine.name());
        }
        let scheduler: SchedulerSpec = scheduler.parse().unwrap();
        let mut setup = Setup::new(machine, &self.workload, seed).unwrap();
        setup.set_actions(&self.actions).unwrap();
        setup.check_invariants = true;
        let mut events: Vec<Event> = Vec::new();
        let sink: &mut dyn Sink = &mut events;
        let outcome = simulate_with_needs(&scheduler, &setup, Some(sink))?;
        let fastest = fastest(machine, scheduler.kernel().governor);
        trace_check::check_at(&events, &outcome, &setup.run_tables(Vec::new()).restrictions, fastest);
        Ok(Run { events, outcome, machine: machine.clone() })
    }
}

/// Runs a scene with seed 1 and caches and memory.
pub fn run_with_memory(scene: &Scene, machine: &Machine, scheduler: &str, memory: MemoryChoice) -> Run {
    let mut setup = Setup::new(machine, &scene.workload, 1).unwrap();
    setup.options.memory = memory;
    setup.check_invariants = true;
    let mut events: Vec<Event> = Vec::new();
    let sink: &mut dyn Sink = &mut events;
    let outcome = simulate(&SchedulerSpec::parse(scheduler).unwrap(), &setup, Some(sink)).unwrap();
    Run { events, outcome, machine: machine.clone() }
}

/// Runs a setup, with exact memory under a scheduler that cannot do without.
pub fn simulate_with_needs<'a>(
    scheduler: &SchedulerSpec,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let mut setup = setup.clone();
    if scheduler.info().needs_sets {
        setup.options.memory = MemoryChoice::Exact;
    }
    simulate(scheduler, &setup, sink.map(|sink| sink as &mut dyn Sink))
}

/// A stay of a task on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stay {
    /// Where.
    pub cpu: u32,
    /// From.
    pub start_ns: u64,
    /// To; the end of the run for one that did not end.
    pub end_ns: u64,
    /// Why it ended; `None` if it did not.
    pub left: Option<PrevState>,
}

impl Stay {
    /// How long.
    pub fn length_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// A change of CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// When.
    pub time_ns: u64,
    /// Who.
    pub task: TaskId,
    /// Old CPU.
    pub from: u32,
    /// New CPU.
    pub to: u32,
    /// Why.
    pub kind: MigrationKind,
}

/// A wakeup from the call to the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeupSpan {
    /// When the waker called.
    pub waking_ns: u64,
    /// When it ran.
    pub running_ns: u64,
    /// Where it ran.
    pub cpu: u32,
}

impl WakeupSpan {
    /// From the call to running.
    pub fn latency_ns(&self) -> u64 {
        self.running_ns - self.waking_ns
    }
}

/// A woken or new task that was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// When.
    pub time_ns: u64,
    /// Who.
    pub task: TaskId,
    /// Where.
    pub cpu: CpuId,
    /// Where it ran before; its creator's CPU, if it is new.
    pub prev: CpuId,
    /// Where the waker or creator ran.
    pub waker_cpu: CpuId,
    /// Why there.
    pub reason: Option<PlaceReason>,
}

impl Placed {
    /// The two words of the reason.
    pub fn words(&self) -> (&'static str, &'static str) {
        self.reason.map_or(("", ""), |reason| (reason.start.name(), reason.step.name()))
    }

    /// The CPU where the search began, if the reason says so much.
    pub fn target(&self) -> Option<CpuId> {
        self.cpu_of(self.reason?.start.side(), None)
    }

    /// The CPU that is meant; `None` if it may be any.
    pub fn cpu_of(&self, side: Side, target: Option<CpuId>) -> Option<CpuId> {
        match side {
            Side::Previous => Some(self.prev),
            Side::Waker => Some(self.waker_cpu),
            Side::Target => target,
            Side::Any => None,
        }
    }
}

/// Who was placed where.
pub fn placements(events: &[Event]) -> Vec<Placed> {
    let mut begun: BTreeMap<TaskId, (CpuId, CpuId)> = BTreeMap::new();
    let mut placed = Vec::new();
    for event in events {
        match event.kind {
            EventKind::Waking { task, target_cpu, .. } => drop(begun.insert(task, (target_cpu, event.cpu))),
            EventKind::Fork { child, .. } => drop(begun.insert(child, (event.cpu, event.cpu))),
            EventKind::Wakeup { task, reason } => {
                let (prev, waker_cpu) = begun.remove(&task).expect("it was woken or created");
                placed.push(Placed { time_ns: event.time_ns, task, cpu: event.cpu, prev, waker_cpu, reason });
            }
            _ => {}
        }
    }
    placed
}

/// A finished run.
pub struct Run {
    /// Everything that happened.
    pub events: Vec<Event>,
    /// The kernel's own summary.
    pub outcome: Outcome,
    /// Where.
    pub machine: Machine,
}

impl Run {
    /// Task of that name.
    pub fn id(&self, name: &str) -> TaskId {
        let position = self.outcome.tasks.iter().position(|task| task.name == name);
        TaskId(position.unwrap_or_else(|| panic!("there is no task `{name}`")) as u32)
    }

    /// CPU time of a task over the whole run.
    pub fn cpu_time(&self, name: &str) -> u64 {
        self.outcome.tasks[self.id(name).index()].cpu_time_ns
    }

    /// CPU time of a task within a window.
    pub fn cpu_time_between(&self, name: &str, from_ns: u64, to_ns: u64) -> u64 {
        let within = |stay: &Stay| stay.end_ns.min(to_ns).saturating_sub(stay.start_ns.max(from_ns));
        self.stays(name).iter().map(within).sum()
    }

    /// Stays of a task on CPUs, in order.
    pub fn stays(&self, name: &str) -> Vec<Stay> {
        let wanted = self.id(name);
        let mut stays: Vec<Stay> = Vec::new();
        for event in &self.events {
            let EventKind::Switch { prev, prev_state, next } = event.kind else { continue };
            if prev == wanted {
                let stay = stays.last_mut().expect("it was switched in before");
                (stay.end_ns, stay.left) = (event.time_ns, Some(prev_state));
            }
            if next == wanted {
                let end_ns = self.outcome.elapsed_ns;
                stays.push(Stay { cpu: event.cpu.0, start_ns: event.time_ns, end_ns, left: None });
            }
        }
        stays
    }

    /// Finished stays that began at or after a time.
    pub fn stays_from(&self, name: &str, from_ns: u64) -> Vec<Stay> {
        self.stays(name).into_iter().filter(|stay| stay.start_ns >= from_ns && stay.left.is_some()).collect()
    }

    /// Changes of CPU, of all tasks.
    pub fn moves(&self) -> Vec<Move> {
        let a_move = |event: &Event| match event.kind {
            EventKind::Migrate { task, from, to, kind } => {
                Some(Move { time_ns: event.time_ns, task, from: from.0, to: to.0, kind })
            }
            _ => None,
        };
        self.events.iter().filter_map(a_move).collect()
    }

    /// Changes of CPU of one task.
    pub fn moves_of(&self, name: &str) -> Vec<Move> {
        let wanted = self.id(name);
        self.moves().into_iter().filter(|a_move| a_move.task == wanted).collect()
    }

    /// Wakeups of a task that led to running.
    pub fn wakeups(&self, name: &str) -> Vec<WakeupSpan> {
        let wanted = self.id(name);
        let mut spans = Vec::new();
        let mut waking_ns = None;
        for event in &self.events {
            match event.kind {
                EventKind::Waking { task, .. } if task == wanted => waking_ns = Some(event.time_ns),
                EventKind::Switch { next, .. } if next == wanted => {
                    if let Some(waking_ns) = waking_ns.take() {
                        spans.push(WakeupSpan { waking_ns, running_ns: event.time_ns, cpu: event.cpu.0 });
                    }
                }
                _ => {}
            }
        }
        spans
    }

    /// Placements of a task at wakeups from a time on.
    pub fn placed(&self, name: &str, from_ns: u64) -> Vec<Placed> {
        let wanted = self.id(name);
        let wanted = |placed: &Placed| placed.task == wanted && placed.time_ns >= from_ns;
        placements(&self.events).into_iter().filter(wanted).collect()
    }

    /// CPU that each living task is assigned to at a time (the moment after what happens then).
    pub fn places(&self, time_ns: u64) -> BTreeMap<TaskId, u32> {
        let mut places = BTreeMap::new();
        for event in self.events.iter().take_while(|event| event.time_ns <= time_ns) {
            match event.kind {
                EventKind::Wakeup { task, .. } => drop(places.insert(task, event.cpu.0)),
                EventKind::Migrate { task, to, .. } => drop(places.insert(task, to.0)),
                EventKind::Switch { next, .. } if !next.is_idle() => drop(places.insert(next, event.cpu.0)),
                EventKind::Exit { task } => drop(places.remove(&task)),
                _ => {}
            }
        }
        places
    }

    /// CPU of a task at a time.
    pub fn place(&self, name: &str, time_ns: u64) -> u32 {
        self.places(time_ns)[&self.id(name)]
    }

    /// Number of living tasks assigned to each CPU at a time.
    pub fn tasks_per_cpu(&self, time_ns: u64) -> Vec<u32> {
        let mut counts = vec![0; self.machine.cpu_count()];
        self.places(time_ns).into_values().for_each(|cpu| counts[cpu as usize] += 1);
        counts
    }

    /// Number of living tasks assigned to each LLC at a time.
    pub fn tasks_per_llc(&self, time_ns: u64) -> Vec<u32> {
        let mut counts = vec![0; self.machine.llc_count()];
        for cpu in self.places(time_ns).into_values() {
            counts[self.machine.llc_of(CpuId(cpu)).index()] += 1;
        }
        counts
    }

    /// Number of switches on a CPU.
    pub fn switches_on(&self, cpu: u32) -> usize {
        let on_it = |event: &&Event| event.cpu.0 == cpu && matches!(event.kind, EventKind::Switch { .. });
        self.events.iter().filter(on_it).count()
    }
}

/// Smallest, median and largest.
pub fn spread(counts: &[u32]) -> (u32, u32, u32) {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1])
}

/// Mean of integers.
pub fn mean(values: impl IntoIterator<Item = u64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0, 0u64), |(sum, count), value| (sum + value, count + 1));
    assert!(count > 0, "a mean of nothing");
    sum as f64 / count as f64
}

/// Fails unless `value` is within `relative` of `expected`.
#[track_caller]
pub fn assert_near(what: &str, value: f64, expected: f64, relative: f64) {
    println!("{what}: {value} (expected {expected} ± {} %)", relative * 100.0);
    assert!((value - expected).abs() <= expected.abs() * relative, "{what}: {value}, expected {expected} ± {relative}");
}

/// The most work that a CPU does in a nanosecond.
pub fn fastest(machine: &Machine, governor: Governor) -> f64 {
    let kinds = machine.core_kinds().iter().filter(|_| governor != Governor::Fixed);
    kinds.map(|kind| f64::from(kind.highest_mhz()) / f64::from(kind.reference_mhz)).fold(1.0, f64::max)
}
