//! What busy hardware threads of a core do to each other's work: known answers by hand, the same at every level of detail of memory.

use warmcore_kernel::{Setup, run};
use warmcore_options::MemoryChoice;
use warmcore_topology::{Basis, Machine, Origin, resolve};
use warmcore_trace::Outcome;
use warmcore_workload::{Affinity, BarrierWait, ProgramBuilder, Step, Task, Workload};

use crate::fifo::Fifo;

const MS: u64 = 1_000_000;

/// Tasks that compute, each from the time it wakes up, on CPUs of their own.
fn tasks(of: &[(u32, u64, u64)]) -> Workload {
    let mut workload = Workload::empty("siblings");
    let process = workload.add_process("process");
    for &(cpu, sleep_ns, work_ns) in of {
        let program =
            ProgramBuilder::new().step(Step::Sleep { duration_ns: sleep_ns }).step(Step::Run { work_ns }).finish();
        let program = workload.add_program(program);
        let mut task = Task::new(format!("on {cpu}"), process, program);
        task.affinity = Affinity::OsCpus(vec![cpu]);
        task.profile = Some("spin".to_owned());
        workload.add_task(task);
    }
    workload
}

fn outcome(machine: &Machine, workload: &Workload, memory: MemoryChoice) -> Outcome {
    let mut setup = Setup::new(machine, workload, 1).unwrap();
    (setup.options.memory, setup.check_invariants) = (memory, true);
    run(&setup, Fifo::default(), None).unwrap()
}

/// When each task ended, in milliseconds.
fn ends_ms(outcome: &Outcome) -> Vec<f64> {
    outcome.tasks.iter().map(|task| task.exited_ns.unwrap() as f64 / MS as f64).collect()
}

fn siblings_of_cpu_0(machine: &Machine) -> Vec<u32> {
    machine.cpus_of_core(machine.core_of(warmcore_topology::CpuId(0))).iter().map(|cpu| machine.os_index(cpu)).collect()
}

#[test]
fn two_threads_of_every_core_take_1_65_times_as_long_as_one_at_every_level_of_memory() {
    let machine = resolve("1s1n1l2c2t").unwrap();
    let all: Vec<(u32, u64, u64)> = (0..4).map(|cpu| (cpu, 1, 4 * MS)).collect();
    for memory in [MemoryChoice::None, MemoryChoice::Analytic, MemoryChoice::Exact] {
        let ran = outcome(&machine, &tasks(&all), memory);
        for end in ends_ms(&ran) {
            assert!((6.5..6.9).contains(&end), "4 ms of work end at {end} ms with memory {}", memory.name());
        }
        let cores = siblings_of_cpu_0(&machine);
        let apart: Vec<(u32, u64, u64)> =
            (0..4).filter(|cpu| *cpu == cores[0] || !cores.contains(cpu)).take(2).map(|cpu| (cpu, 1, 4 * MS)).collect();
        let ran = outcome(&machine, &tasks(&apart), memory);
        // The second task has the other core.
        assert!(ends_ms(&ran).iter().all(|end| (4.0..4.3).contains(end)), "{:?} with {}", ends_ms(&ran), memory.name());
    }
}

/// Alone for 5 ms; beside the other for 3 ms of work of each, which take 4.95 ms; alone for the last 2 ms: 11.95 ms.
#[test]
fn a_task_is_slowed_for_as_long_as_its_sibling_is_busy_and_no_longer() {
    let machine = resolve("1s1n1l2c2t").unwrap();
    let pair = siblings_of_cpu_0(&machine);
    let ran = outcome(&machine, &tasks(&[(pair[0], 1, 10 * MS), (pair[1], 5 * MS, 3 * MS)]), MemoryChoice::None);
    let ends = ends_ms(&ran);
    assert!((11.95..12.1).contains(&ends[0]) && (9.95..10.1).contains(&ends[1]), "{ends:?}");
    let lost_ms: Vec<f64> = ran.tasks.iter().map(|task| task.smt_ns as f64 / MS as f64).collect();
    assert!(lost_ms.iter().all(|lost| (1.90..1.97).contains(lost)), "each lost 1.95 ms: {lost_ms:?}");
    assert_eq!(ran.tasks[0].progress_ns, 10 * MS, "the work is the program's, however long it takes");
}

/// 1 + 3 × 0.65 = 2.95.
#[test]
fn each_further_busy_thread_of_a_core_slows_by_as_much_again() {
    let machine = resolve("1s1n1l1c4t").unwrap();
    let all: Vec<(u32, u64, u64)> = (0..4).map(|cpu| (cpu, 1, 2 * MS)).collect();
    for memory in [MemoryChoice::None, MemoryChoice::Analytic, MemoryChoice::Exact] {
        let ends = ends_ms(&outcome(&machine, &tasks(&all), memory));
        assert!(ends.iter().all(|end| (5.8..6.1).contains(end)), "{ends:?} with {}", memory.name());
    }
}

#[test]
fn a_machine_whose_threads_share_nothing_runs_siblings_at_full_speed() {
    let none = Origin::new(Basis::Given, "");
    let machine = resolve("1s1n1l2c2t").unwrap().with_smt_slowdown(0, none).unwrap();
    let all: Vec<(u32, u64, u64)> = (0..4).map(|cpu| (cpu, 1, 4 * MS)).collect();
    for memory in [MemoryChoice::None, MemoryChoice::Analytic] {
        let ran = outcome(&machine, &tasks(&all), memory);
        assert!(ends_ms(&ran).iter().all(|end| (4.0..4.3).contains(end)), "{:?} with {}", ends_ms(&ran), memory.name());
        assert!(ran.tasks.iter().all(|task| task.smt_ns == 0));
    }
}

#[test]
fn who_waits_actively_slows_its_sibling_and_time_on_the_cpu_is_not_work() {
    let machine = resolve("1s1n1l1c2t").unwrap();
    let mut workload = Workload::empty("barrier");
    let process = workload.add_process("process");
    let barrier = workload.add_barrier("barrier", 2, BarrierWait::Spin);
    for (cpu, steps) in
        [(0, vec![Step::Barrier(barrier)]), (1, vec![Step::Run { work_ns: 4 * MS }, Step::Barrier(barrier)])]
    {
        let program = steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step).finish();
        let program = workload.add_program(program);
        let mut task = Task::new(format!("on {cpu}"), process, program);
        task.affinity = Affinity::OsCpus(vec![cpu]);
        workload.add_task(task);
    }
    let ends = ends_ms(&outcome(&machine, &workload, MemoryChoice::None));
    assert!((6.6..6.8).contains(&ends[1]), "{ends:?}");

    let mut workload = tasks(&[(0, 1, 4 * MS), (1, 1, 4 * MS)]);
    for program in &mut workload.programs {
        for step in &mut program.steps {
            if let Step::Run { work_ns } = *step {
                *step = Step::RunTime { cpu_ns: work_ns };
            }
        }
    }
    let ends = ends_ms(&outcome(&machine, &workload, MemoryChoice::None));
    assert!(ends.iter().all(|end| (4.0..4.2).contains(end)), "{ends:?}");
}
