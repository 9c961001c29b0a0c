//! Tasks whose run and sleep times are drawn, against textbook formulas for queues.

use warmcore_kernel::{Setup, run};
use warmcore_topology::resolve;
use warmcore_trace::Outcome;
use warmcore_workload::{Distribution, Drawn, ProgramBuilder, Step, Task, Workload};

use crate::fifo::Fifo;

const MS: u64 = 1_000_000;

/// Tasks that think and are served by turns, for so long.
fn clients(count: u32, think: Distribution, service: Distribution, duration_ns: u64) -> Workload {
    let mut workload = Workload::empty("clients");
    workload.duration_ns = Some(duration_ns);
    let process = workload.add_process("process");
    let body = |body: ProgramBuilder| {
        body.step(Step::Draw { what: Drawn::Sleep, from: think.clone() })
            .step(Step::Draw { what: Drawn::Work, from: service.clone() })
    };
    let program = workload.add_program(ProgramBuilder::new().repeat(None, body).finish());
    let mut task = Task::new("client", process, program);
    task.instances = count;
    workload.add_task(task);
    workload
}

fn on_one_cpu(workload: &Workload, seed: u64) -> Outcome {
    let machine = resolve("1s1n1l1c1t").unwrap();
    let mut setup = Setup::new(&machine, workload, seed).unwrap();
    setup.check_invariants = true;
    run(&setup, Fifo::default(), None).unwrap()
}

/// The machine repair model, a queue M/M/1 with a finite number of clients (Kleinrock, Queueing Systems, volume I, chapter 3): the server is idle with
/// p0 = 1 / Σ N! / (N − k)! (S / Z)^k. Eight clients that think 10 ms and are served 1 ms keep it busy for 0.720 of the time.
#[test]
fn one_cpu_serves_exponential_clients_as_the_finite_m_m_1_queue_says() {
    let (count, think_ms, service_ms) = (8_u32, 10.0, 1.0);
    let (mut sum, mut term) = (1.0, 1.0);
    for waiting in 0..count {
        term *= f64::from(count - waiting) * service_ms / think_ms;
        sum += term;
    }
    let busy = 1.0 - 1.0 / sum;
    let duration_ns = 40_000 * MS;
    let exponential = |mean_ns| Distribution::Exponential { mean_ns };
    let workload = clients(count, exponential(10 * MS), exponential(MS), duration_ns);
    for seed in [1, 2] {
        let ran = on_one_cpu(&workload, seed);
        let served: u64 = ran.tasks.iter().map(|task| task.progress_ns).sum();
        let found = served as f64 / duration_ns as f64;
        // 29,000 services know their mean to 0.6 %; the kernel's own time, of which the formula knows nothing, is as much.
        assert!((found / busy - 1.0).abs() < 0.03, "busy {found}, by the formula {busy}");
    }
}

/// Constant times: eight clients of 11 ms each are served one after the other, at 8 / 11 of the time.
#[test]
fn a_distribution_of_one_time_is_that_time() {
    let constant = |ns| Distribution::Constant { ns };
    let drawn = on_one_cpu(&clients(8, constant(10 * MS), constant(MS), 2_000 * MS), 1);
    let served: u64 = drawn.tasks.iter().map(|task| task.progress_ns).sum();
    assert!((served as f64 / (2_000 * MS) as f64 - 8.0 / 11.0).abs() < 0.02, "{served}");
}

#[test]
fn a_seed_decides_every_draw_and_the_order_of_events_decides_none() {
    let exponential = |mean_ns| Distribution::Exponential { mean_ns };
    let of = |count, seed| -> Vec<u64> {
        let mut workload = clients(count, exponential(MS), exponential(MS), 0);
        workload.duration_ns = None;
        // Two rounds, and no more.
        let steps = &mut workload.programs[0].steps;
        if let Step::LoopStart { times, .. } = &mut steps[0] {
            *times = Some(2);
        }
        on_one_cpu(&workload, seed).tasks.iter().map(|task| task.progress_ns).collect()
    };
    assert_eq!(of(3, 7), of(3, 7));
    assert_ne!(of(3, 7), of(3, 8));
    assert_eq!(of(3, 7), of(30, 7)[..3], "others on the CPU change when a task draws, not what");
}
