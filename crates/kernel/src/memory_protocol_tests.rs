//! What the engine asks of a memory that knows progress only afterwards, with one that makes tasks as fast as constant speeds do.

use warmcore_memory::analytic::SPEED_ONE;
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{Event, EventKind, Outcome, Sink, TaskId};
use warmcore_workload::{Affinity, ChannelKind, ProgramBuilder, Step, Task, Workload};

use crate::Setup;
use crate::engine::run_with;
use crate::error::SimulationError;
use crate::memory::{Allotment, ConstantMemory, Memory, Progress};

#[path = "../tests/support/fifo.rs"]
mod fifo;

/// Longest time until the memory is asked again.
const QUANTUM_NS: u64 = 10_000;

/// Tells afterwards; before, it guesses.
struct Afterwards<'a> {
    constant: ConstantMemory<'a>,
    guess: u32,
    now_ns: u64,
    allotted: Vec<Option<Allotment>>,
    made: Vec<Progress>,
}

impl Memory for Afterwards<'_> {
    const MODELLED: bool = true;
    const AFTERWARDS: bool = true;

    fn migration_ns(&self, task: TaskId, from: CpuId, to: CpuId) -> u64 {
        self.constant.migration_ns(task, from, to)
    }
    fn message_transfer_ns(&self, kind: ChannelKind, task: TaskId, from: CpuId, to: CpuId) -> u64 {
        self.constant.message_transfer_ns(kind, task, from, to)
    }
    fn handoff_ns(&self, from: CpuId, to: CpuId) -> u64 {
        self.constant.handoff_ns(from, to)
    }
    fn speed(&self, _cpu: CpuId) -> u32 {
        self.guess
    }
    fn review(&mut self, now_ns: u64, _cpu: CpuId, _remaining_ns: u64) -> u64 {
        now_ns + QUANTUM_NS
    }
    fn allot(&mut self, cpu: CpuId, allotment: Allotment) {
        assert_eq!(self.allotted[cpu.index()].replace(allotment), None, "time is allotted once");
    }
    fn advance(&mut self, now_ns: u64) -> Result<(), SimulationError> {
        assert!(now_ns > self.now_ns, "time passes");
        let passed_ns = now_ns - std::mem::replace(&mut self.now_ns, now_ns);
        for (allotted, made) in self.allotted.iter_mut().zip(&mut self.made) {
            let Some(Allotment { overhead_ns, useful_ns, work_ns }) = allotted.take() else { continue };
            assert!(overhead_ns + useful_ns <= passed_ns, "{overhead_ns} and {useful_ns} of {passed_ns} ns");
            let done_ns = useful_ns.min(work_ns);
            *made = Progress { work_ns: done_ns, took_ns: done_ns };
        }
        Ok(())
    }
    fn progress(&mut self, cpu: CpuId) -> Progress {
        std::mem::take(&mut self.made[cpu.index()])
    }
}

#[derive(Default)]
struct Events(Vec<Event>);

impl Sink for Events {
    fn events(&mut self, batch: &[Event]) -> std::io::Result<()> {
        self.0.extend_from_slice(batch);
        Ok(())
    }
}

/// Tasks that share CPUs, work, sleep, yield and meet at a barrier.
fn workload() -> Workload {
    let mut workload = Workload::empty("mixed");
    let process = workload.add_process("process");
    let barrier = workload.add_barrier("barrier", 3, warmcore_workload::BarrierWait::Block);
    for work_ns in [70_001, 130_000, 255_555] {
        let steps = |body: ProgramBuilder| {
            body.step(Step::Run { work_ns })
                .step(Step::Sleep { duration_ns: 40_000 })
                .step(Step::RunTime { cpu_ns: 30_000 })
                .step(Step::Yield)
                .step(Step::Barrier(barrier))
        };
        let program = workload.add_program(ProgramBuilder::new().repeat(Some(50), steps).finish());
        let mut task = Task::new(format!("{work_ns} ns"), process, program);
        task.affinity = Affinity::OsCpus(vec![0, 1]);
        workload.add_task(task);
    }
    workload
}

fn run<M: Memory>(machine: &Machine, memory: M) -> (Outcome, Vec<Event>) {
    let workload = workload();
    let setup = Setup::new(machine, &workload, 1).unwrap();
    let mut events = Events::default();
    let outcome = run_with(&setup, fifo::Fifo::default(), memory, Some(&mut events)).unwrap();
    let of_tasks = |event: &Event| matches!(event.kind, EventKind::Switch { .. } | EventKind::Wakeup { .. });
    events.0.retain(of_tasks);
    (outcome, events.0)
}

fn afterwards(machine: &Machine, guess: u32) -> Afterwards<'_> {
    let cpus = machine.cpu_count();
    let (allotted, made) = (vec![None; cpus], vec![Progress::default(); cpus]);
    Afterwards { constant: ConstantMemory::new(machine), guess, now_ns: 0, allotted, made }
}

/// A guess that is too fast looks too early, and then again.
#[test]
fn who_tells_progress_afterwards_drives_a_run_to_the_same_end_as_constant_speeds() {
    let machine = warmcore_topology::resolve("1s1n1l4c1t").unwrap();
    let (constant, expected) = run(&machine, ConstantMemory::new(&machine));
    for guess in [SPEED_ONE, 2 * SPEED_ONE, 7 * SPEED_ONE] {
        let (outcome, events) = run(&machine, afterwards(&machine, guess));
        assert_eq!(events, expected, "guess {guess}");
        assert_eq!(outcome.elapsed_ns, constant.elapsed_ns);
        assert_eq!(outcome.tasks, constant.tasks);
    }
}

/// A guess that is too slow looks too late, by a quantum at most; what was to be done is done all the same.
#[test]
fn the_end_of_work_is_seen_a_quantum_late_at_most() {
    let machine = warmcore_topology::resolve("1s1n1l4c1t").unwrap();
    let (constant, _) = run(&machine, ConstantMemory::new(&machine));
    let (outcome, _) = run(&machine, afterwards(&machine, SPEED_ONE / 3));
    let ends = 3 * 2 * 50;
    assert!(outcome.elapsed_ns > constant.elapsed_ns);
    assert!(outcome.elapsed_ns <= constant.elapsed_ns + ends * QUANTUM_NS, "{}", outcome.elapsed_ns);
    for (late, task) in outcome.tasks.iter().zip(&constant.tasks) {
        assert_eq!(late.progress_ns, task.progress_ns);
    }
}

/// A program of every kind of step that takes time, on two nodes with siblings, under the exact level.
fn under(memory: MemoryChoice) -> (Outcome, Vec<Event>) {
    let machine = warmcore_topology::resolve("2s1n1l2c2t").unwrap();
    let mut workload = workload();
    for (task, profile) in workload.tasks.iter_mut().zip(["hackbench", "perlbench", "verilator"]) {
        task.affinity = Affinity::All;
        task.profile = Some(profile.to_owned());
    }
    let options = RunOptions { memory, ..RunOptions::default() };
    let setup = Setup { options, check_invariants: true, ..Setup::new(&machine, &workload, 1).unwrap() };
    let mut events = Events::default();
    let outcome = crate::run(&setup, fifo::Fifo::default(), Some(&mut events)).unwrap();
    (outcome, events.0)
}

#[test]
fn the_exact_level_drives_a_run_of_the_same_work_in_about_the_analytic_ones_time() {
    let (exact, events) = under(MemoryChoice::Exact);
    let (again, same_events) = under(MemoryChoice::Exact);
    assert_eq!(events, same_events, "equal seeds, equal events");
    assert_eq!(exact.elapsed_ns, again.elapsed_ns);
    let (analytic, _) = under(MemoryChoice::Analytic);
    for (task, closed_form) in exact.tasks.iter().zip(&analytic.tasks) {
        assert_eq!(task.progress_ns, closed_form.progress_ns, "the program's work, whatever the memory");
    }
    // A guard against gross errors, not a claim: how far the levels agree is what `warmcore validate memory` measures.
    let ratio = exact.elapsed_ns as f64 / analytic.elapsed_ns as f64;
    assert!((0.85..1.15).contains(&ratio), "{} and {} ns", exact.elapsed_ns, analytic.elapsed_ns);
}
