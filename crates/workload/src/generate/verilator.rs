//! verilator: a compiled hardware model that several threads evaluate, step by step.
//!
//! Imitates XiangShan's `emu`, a Verilator model of a processor, built with `--threads`: every thread evaluates its part of
//! the model once per clock edge, and reads signals that any other thread wrote in the step before. The threads find each other's
//! results by polling: a worker looks 50,000 times (`VL_LOCK_SPINS`) before it waits on a condition variable, and a thread that needs another's
//! result as often before it yields (`include/verilated_threads.h` of Verilator 5), which is some 1.2 ms on a Zen 4 and longer than a step. So none
//! of them sleeps. Here each of them goes its own way through its steps; what they cost each other is the sharing of signals, which is the memory
//! profile's matter. `forkjoin:-bspin-then-block:1250us,--profile=verilator` has threads that wait for each other like that after each step.
//!
//! Work of a step: 250 µs per thread, assumed (2 to 4 thousand cycles per second with 8 to 16 threads). ChaCha20, as in the cache-aware slides, is a program that runs on the simulated processor; it only decides for how
//! many cycles.

use super::flags::{CPUS, FlagInfo, Flags, PROFILE, SETUP, SETUP_WAIT};
use super::{GeneratorInfo, MAX_COUNT};
use crate::{GeneratorError, Program, ProgramBuilder, Step, Task, Workload};

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "verilator",
    summary: "threads that evaluate a hardware model and share its signals, never sleeping",
    usage: "verilator:[-tTHREADS][,-CCYCLES][,-wDURATION][,-cCPUS][,--setup=DURATION][,--profile=NAME]",
    notes: "The memory profile is \"verilator\" unless another is given. Not modelled: waiting for a slower thread.",
    flags: &[
        FlagInfo::new(Some('t'), "threads", Some("COUNT"), "threads of the model (default 8)"),
        FlagInfo::new(Some('C'), "max-cycles", Some("COUNT"), "simulated clock cycles (default 4000)"),
        FlagInfo::new(Some('w'), "work", Some("DURATION"), "work of a thread in each cycle (default 250us)"),
        CPUS,
        SETUP,
        PROFILE,
    ],
    make,
};

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let threads = flags.count("threads", 8, MAX_COUNT)?;
    let cycles = flags.number("max-cycles", 4_000, 1, u64::MAX >> 20)?;
    let work_ns = flags.duration("work", 250_000)?;
    if work_ns == 0 {
        return Err(flags.bad_value("work", "longer than 0"));
    }
    let mut workload = Workload::empty("verilator");
    let process = workload.add_process("emu");
    let setup_ns = flags.duration("setup", 0)?;
    let begin = (setup_ns > 0).then(|| workload.add_barrier("begin", threads, SETUP_WAIT));
    let gate = |builder: ProgramBuilder| match begin {
        Some(begin) => builder.step(Step::Barrier(begin)),
        None => builder,
    };
    let evaluate =
        |builder: ProgramBuilder| gate(builder).repeat(Some(cycles), |body| body.step(Step::Run { work_ns }));
    let task = |name: &str, program| Task {
        role: "evaluator".to_owned(),
        profile: Some("verilator".to_owned()),
        ..Task::new(name, process, program)
    };
    // The main thread's program names the template that follows it.
    let main = workload.add_program(Program::default());
    workload.add_task(task("main", main));
    let program = workload.add_program(evaluate(ProgramBuilder::new()).finish());
    let worker = workload.add_task(Task { instances: 0, ..task("worker", program) });
    let mut forks = ProgramBuilder::new();
    if threads > 1 {
        forks = forks.repeat(Some(u64::from(threads) - 1), |body| body.step(Step::Fork(worker)));
    }
    if setup_ns > 0 {
        forks = forks.step(Step::Run { work_ns: setup_ns });
    }
    workload.programs[main.index()] = evaluate(forks).finish();
    flags.place_and_profile(&mut workload)?;
    Ok(workload)
}
