//! forkjoin: threads that compute and meet at a barrier, over and over: the skeleton of OpenMP and similar programs.

use super::flags::{CPUS, FlagInfo, Flags, PROFILE, SETUP, SETUP_WAIT};
use super::{GeneratorInfo, MAX_COUNT};
use crate::{
    Affinity, BarrierId, BarrierWait, GeneratorError, GeneratorProblem, Program, ProgramBuilder, RecorderId, Step,
    Task, TaskTemplateId, Workload, parse_duration,
};

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "forkjoin",
    summary: "threads that compute and meet at a barrier in every iteration",
    usage: "forkjoin:[-nTHREADS][,-iITERATIONS][,-wDURATION][,-mPERCENT][,-b{block|spin|spin-then-block:DURATION}]\
            [,-cCPUS][,--pin][,--setup=DURATION][,--profile=NAME]",
    notes: "The recorder \"iteration\" holds the time of each iteration as the first thread sees it.",
    flags: &[
        FlagInfo::new(Some('n'), "threads", Some("COUNT"), "number of threads (default 8)"),
        FlagInfo::new(Some('i'), "iterations", Some("COUNT"), "number of iterations (default 1000)"),
        FlagInfo::new(Some('w'), "work", Some("DURATION"), "work of a thread in each iteration (default 1ms)"),
        FlagInfo::new(
            Some('m'),
            "imbalance",
            Some("PERCENT"),
            "how much more work the last thread has; evenly rising (default 0%)",
        ),
        FlagInfo::new(Some('b'), "barrier", Some("KIND"), "block (default), spin, or spin-then-block:DURATION"),
        CPUS,
        FlagInfo::new(
            None,
            "pin",
            None,
            "thread i may run on the i-th of the CPUs only; where there are fewer CPUs, they are given out again",
        ),
        SETUP,
        PROFILE,
    ],
    make,
};

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let threads = flags.count("threads", 8, MAX_COUNT)?;
    let iterations = flags.number("iterations", 1_000, 1, u64::MAX)?;
    let work_ns = flags.duration("work", 1_000_000)?;
    let imbalance = flags.percent("imbalance")?;
    let wait = barrier(flags)?;

    let mut workload = Workload::empty("forkjoin");
    let process = workload.add_process("forkjoin");
    let barrier = workload.add_barrier("join", threads, wait);
    let setup_ns = flags.duration("setup", 0)?;
    let begin = (setup_ns > 0).then(|| workload.add_barrier("begin", threads, SETUP_WAIT));
    let gate = |builder: ProgramBuilder| match begin {
        Some(begin) => builder.step(Step::Barrier(begin)),
        None => builder,
    };
    let recorder = workload.add_recorder("iteration");
    // The first thread's program names the templates that follow it.
    let main = workload.add_program(Program::default());
    workload.add_task(Task { role: "main".to_owned(), ..Task::new("main", process, main) });
    let mut forks = ProgramBuilder::new();
    let add_worker = |workload: &mut Workload, name: String, work_ns: u64| -> TaskTemplateId {
        let program =
            gate(ProgramBuilder::new()).repeat(Some(iterations), |body| iteration(body, work_ns, barrier, None));
        let program = workload.add_program(program.finish());
        workload.add_task(Task { instances: 0, role: "worker".to_owned(), ..Task::new(name, process, program) })
    };
    if imbalance == 0 && threads > 1 && !flags.is_set("pin") {
        let worker = add_worker(&mut workload, "worker".to_owned(), work_ns);
        forks = forks.repeat(Some(u64::from(threads) - 1), |body| body.step(Step::Fork(worker)));
    } else {
        for index in 1..threads {
            let extra =
                u128::from(work_ns) * u128::from(imbalance) * u128::from(index) / (100 * u128::from(threads - 1));
            let worker = add_worker(&mut workload, format!("worker-{index}"), work_ns + extra as u64);
            forks = forks.step(Step::Fork(worker));
        }
    }
    if setup_ns > 0 {
        forks = forks.step(Step::Run { work_ns: setup_ns });
    }
    workload.programs[main.index()] =
        gate(forks).repeat(Some(iterations), |body| iteration(body, work_ns, barrier, Some(recorder))).finish();
    flags.place_and_profile(&mut workload)?;
    if flags.is_set("pin") {
        // The templates are the threads, in order.
        for (index, task) in workload.tasks.iter_mut().enumerate() {
            let Affinity::OsCpus(cpus) = &task.affinity else {
                return Err(flags.error(GeneratorProblem::Conflict("--pin needs the CPUs, with -c".to_owned())));
            };
            task.affinity = Affinity::OsCpus(vec![cpus[index % cpus.len()]]);
        }
    }
    Ok(workload)
}

fn iteration(body: ProgramBuilder, work_ns: u64, barrier: BarrierId, recorder: Option<RecorderId>) -> ProgramBuilder {
    let work = Step::Run { work_ns };
    match recorder {
        None => body.step(work).step(Step::Barrier(barrier)),
        Some(recorder) => body
            .step(Step::StartClock { slot: 0 })
            .step(work)
            .step(Step::Barrier(barrier))
            .step(Step::RecordClock { slot: 0, recorder }),
    }
}

fn barrier(flags: &Flags<'_>) -> Result<BarrierWait, GeneratorError> {
    let Some(kind) = flags.text("barrier") else { return Ok(BarrierWait::Block) };
    match kind.split_once(':').unwrap_or((kind, "")) {
        ("block", "") => Ok(BarrierWait::Block),
        ("spin", "") => Ok(BarrierWait::Spin),
        ("spin-then-block", duration) => {
            let spin_ns = parse_duration(duration).map_err(|error| {
                flags.error(GeneratorProblem::BadDuration { flag: "--barrier=spin-then-block:".to_owned(), error })
            })?;
            Ok(BarrierWait::SpinThenBlock { spin_ns })
        }
        _ => Err(flags.bad_value("barrier", "block, spin or spin-then-block:DURATION")),
    }
}
