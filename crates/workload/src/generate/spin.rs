//! spin: tasks that never stop computing.
//!
//! The load of many scheduler experiments: hogs of equal or different weight, and hogs that are all pinned to one CPU
//! and released at one instant (Bouron et al., "The Battle of the Schedulers", USENIX ATC 2018, section 6.1:
//! 512 spinning threads on 32 CPUs).

use super::flags::{CPUS, FlagInfo, Flags, PROFILE};
use super::{GeneratorInfo, MAX_COUNT, add_tasks};
use crate::{
    Affinity, GeneratorError, GeneratorProblem, ProcessId, Program, ProgramBuilder, ProgramId, Step, Task, Workload,
};

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "spin",
    summary: "tasks that compute without end, optionally pinned to one CPU and released later",
    usage: "spin:[-nCOUNT][,-dDURATION][,-NNICE[:NICE…]][,-pCPU[,-uDURATION]][,-P][,-cCPUS][,--profile=NAME]",
    notes: "All tasks are released at one instant, whether they run or wait, as by sched_setaffinity from outside.",
    flags: &[
        FlagInfo::new(Some('n'), "tasks", Some("COUNT"), "number of tasks (default 1)"),
        FlagInfo::new(Some('d'), "duration", Some("DURATION"), "how long, with unit (default 10s)"),
        FlagInfo::new(Some('N'), "nice", Some("LIST"), "nice values, separated by colons, for the tasks in turn"),
        FlagInfo::new(Some('p'), "pin", Some("CPU"), "bind all tasks to this CPU"),
        FlagInfo::new(Some('u'), "unpin", Some("DURATION"), "let them run anywhere from this time on; needs -p"),
        FlagInfo::new(Some('P'), "processes", None, "a process for each task instead of threads of one process"),
        CPUS,
        PROFILE,
    ],
    make,
};

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let count = flags.count("tasks", 1, MAX_COUNT)?;
    let nice = nice_values(flags)?;
    let affinity = match flags.is_set("pin") {
        true => Affinity::OsCpus(vec![flags.number("pin", 0, 0, u32::MAX.into())? as u32]),
        false => Affinity::All,
    };
    let release_ns = match (flags.is_set("unpin"), &affinity) {
        (false, _) => None,
        (true, Affinity::All) => {
            return Err(flags.error(GeneratorProblem::Conflict("-u releases from a CPU; give it with -p".to_owned())));
        }
        (true, _) => Some(flags.duration("unpin", 0)?),
    };
    if flags.is_set("pin") && flags.is_set("cpus") {
        return Err(flags.error(GeneratorProblem::Conflict("-p and -c exclude each other".to_owned())));
    }
    let own_processes = flags.is_set("processes");

    let mut workload = Workload::empty("spin");
    workload.duration_ns = Some(flags.run_length("duration", 10_000_000_000)?);
    if !own_processes {
        workload.add_process("spin");
    }
    let task = |name: String, program: ProgramId, nice: i8| Task {
        nice,
        affinity: affinity.clone(),
        release_ns,
        role: "spinner".to_owned(),
        profile: Some("spin".to_owned()),
        ..Task::new(name, ProcessId(0), program)
    };
    let mut tasks = Vec::new();
    if nice.len() <= 1 && !own_processes {
        let program = workload.add_program(spin());
        let nice = nice.first().copied().unwrap_or(0);
        tasks.push(Task { instances: count, ..task("spin".to_owned(), program, nice) });
    } else {
        for index in 0..count {
            let program = workload.add_program(spin());
            let nice = if nice.is_empty() { 0 } else { nice[index as usize % nice.len()] };
            tasks.push(task(format!("spin-{index}"), program, nice));
        }
    }
    add_tasks(&mut workload, own_processes, tasks);
    flags.place_and_profile(&mut workload)?;
    Ok(workload)
}

/// Work without end, in pieces of a second.
fn spin() -> Program {
    ProgramBuilder::new().repeat(None, |body| body.step(Step::Run { work_ns: 1_000_000_000 })).finish()
}

fn nice_values(flags: &Flags<'_>) -> Result<Vec<i8>, GeneratorError> {
    let Some(list) = flags.text("nice") else { return Ok(Vec::new()) };
    list.split(':')
        .map(|value| value.parse().ok().filter(|nice| (-20..=19).contains(nice)))
        .collect::<Option<Vec<i8>>>()
        .ok_or_else(|| flags.bad_value("nice", "a list of nice values −20 to 19 separated by colons, such as 0:5:19"))
}
