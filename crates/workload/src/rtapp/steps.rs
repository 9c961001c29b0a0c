//! Step lists under the `warmcore` key: programs that rt-app's events cannot say. The list is described in the module
//! documentation of [`crate::rtapp`].

use super::events::Compiler;
use super::json::{Json, object};
use super::list::{List, Value};
use super::node::{Node, Read};
use super::tasks::{POLICIES, PolicyName, read_util_clamp, write_util_clamp};
use crate::error::DocumentProblem;
use crate::nearest::suggestion;
use crate::{
    Affinity, Distribution, Drawn, KernelStep, MAX_DURATION_NS, Policy, ProgramId, Reservation, Step, TimerMode,
    Workload,
};
use warmcore_topology::CpuSet;

/// First keys of the objects, and words, that stand for steps.
const VERBS: [&str; 52] = [
    "run_ns",
    "runtime_ns",
    "sleep_ns",
    "timer",
    "lock",
    "unlock",
    "wait",
    "signal",
    "broad",
    "sync",
    "barrier",
    "suspend",
    "resume",
    "sem_post",
    "sem_wait",
    "send",
    "receive",
    "enlist",
    "serve",
    "fork",
    "join",
    "yield",
    "affinity",
    "migrate_disable",
    "migrate_enable",
    "iowait",
    "kernel_enter",
    "kernel_exit",
    "preempt_disable",
    "preempt_enable",
    "cond_resched",
    "might_sleep",
    "nice",
    "policy",
    "submit",
    "work",
    "slice_ns",
    "util_min",
    "util_max",
    "taskgroup",
    "memory_bytes",
    "chase_hops",
    "first_touch_bytes",
    "map_bytes",
    "io_bytes",
    "start_clock",
    "record_clock",
    "record_since_ns",
    "phase",
    "loop",
    "exit",
    "stop",
];

/// Whether a lock is taken for reading.
const LOCK_MODES: [(&str, bool); 2] = [("read", true), ("write", false)];

const MODES: [(&str, TimerMode); 2] = [("relative", TimerMode::Relative), ("absolute", TimerMode::Absolute)];

/// Appends the steps of a list.
pub(super) fn read_steps(compiler: &mut Compiler<'_>, list: &Node<'_>) -> Read<()> {
    let Json::Steps(values) = list.value else {
        return list.each("a list of steps")?.try_for_each(|node| read_value(compiler, &node));
    };
    for (index, value) in values.values().enumerate() {
        if let Some(step) = frequent(compiler, value) {
            compiler.builder.push(step);
            continue;
        }
        let path = format!("{}[{index}]", list.path);
        match value {
            Value::Other(value) => read_value(compiler, &Node { value, path })?,
            packed => read_value(compiler, &Node { value: &packed.to_json(), path })?,
        }
    }
    Ok(())
}

/// What nearly all steps of a recording's replay are, if it is one of these and nobody wants its path.
fn frequent(compiler: &mut Compiler<'_>, value: Value<'_>) -> Option<Step> {
    if compiler.survey.wants_paths {
        return None;
    }
    let names = &mut *compiler.names;
    Some(match value {
        Value::Integer("run_ns", work_ns) if work_ns <= MAX_DURATION_NS => Step::Run { work_ns },
        Value::Integer("sleep_ns", duration_ns) if duration_ns <= MAX_DURATION_NS => Step::Sleep { duration_ns },
        Value::Word("sem_post", name) => Step::SemPost(names.semaphore(name)),
        Value::Word("sem_wait", name) => Step::SemWait(names.semaphore(name)),
        _ => return None,
    })
}

fn read_value(compiler: &mut Compiler<'_>, node: &Node<'_>) -> Read<()> {
    let Json::Text(word) = node.value else { return read_step(compiler, node) };
    let step = match word.as_str() {
        "suspend" => Step::Suspend,
        "yield" => Step::Yield,
        "migrate_disable" => Step::MigrateDisable,
        "migrate_enable" => Step::MigrateEnable,
        "iowait" => Step::IoWait,
        "exit" => Step::Exit,
        "stop" => Step::Stop,
        word => match KernelStep::ALL.iter().find(|step| step.name() == word) {
            Some(step) => Step::Kernel(*step),
            None => return Err(unknown_verb(node, word)),
        },
    };
    compiler.push(step, node);
    Ok(())
}

fn unknown_verb(node: &Node<'_>, word: &str) -> crate::DocumentError {
    let suggestion = suggestion(word, VERBS);
    node.error(DocumentProblem::UnknownWord { word: word.to_owned(), suggestion, known: VERBS.join(", ") })
}

fn read_step(compiler: &mut Compiler<'_>, node: &Node<'_>) -> Read<()> {
    let entries = node.entries(
        "a step: an object, or one of the words suspend, yield, migrate_disable, migrate_enable, iowait, kernel_enter, kernel_exit, \
         preempt_disable, preempt_enable, cond_resched, might_sleep, exit, stop",
    )?;
    let Some((verb, value)) = entries.first() else {
        return Err(node.other("an empty object is not a step"));
    };
    if *verb == "loop" {
        return read_loop(compiler, node, value);
    }
    let others: &[&str] = match *verb {
        "sleep_ns" if matches!(value.value, Json::Object(_)) => &["clock"],
        "sem_wait" => &["clock"],
        "lock" => &["mode"],
        "util_min" => &["util_max"],
        "util_max" => &["util_min"],
        "timer" => &["period_ns", "mode"],
        "wait" | "sync" => &["mutex"],
        "submit" => &["program"],
        "work" => &["requests", "recorder"],
        "send" | "receive" => &["bytes"],
        "enlist" | "record_clock" | "record_since_ns" => &["recorder"],
        "memory_bytes" | "chase_hops" => &["region_bytes"],
        _ => &[],
    };
    let keys: Vec<&str> = std::iter::once(*verb).chain(others.iter().copied()).collect();
    node.only_keys(&keys, "a step")?;
    let step = simple_step(compiler, node, verb, value)?;
    compiler.push(step, node);
    Ok(())
}

fn read_loop(compiler: &mut Compiler<'_>, node: &Node<'_>, times: &Node<'_>) -> Read<()> {
    node.only_keys(&["loop", "steps"], "a loop")?;
    let times = match times.integer("a number of repetitions", -1, u64::MAX.into())? {
        -1 => None,
        times => Some(times as u64),
    };
    let steps = node.require("steps", "write { \"loop\": TIMES, \"steps\": [ … ] }")?;
    let start = compiler.builder.begin_loop(times);
    compiler.came_from(node);
    read_steps(compiler, &steps)?;
    compiler.builder.end_loop(start);
    compiler.came_from(node);
    Ok(())
}

fn simple_step(compiler: &mut Compiler<'_>, node: &Node<'_>, verb: &str, value: &Node<'_>) -> Read<Step> {
    let names = &mut *compiler.names;
    let clock = || node.get("clock").map(|node| read_clock(&node)).transpose();
    let bytes = || node.require("bytes", "state the size of the message")?.u32("a number of bytes");
    Ok(match verb {
        "run_ns" | "runtime_ns" | "sleep_ns" if matches!(value.value, Json::Object(_)) => {
            let what = match verb {
                "run_ns" => Drawn::Work,
                "runtime_ns" => Drawn::CpuTime,
                _ => clock()?.map_or(Drawn::Sleep, |slot| Drawn::Arrival { slot }),
            };
            Step::Draw { what, from: read_distribution(value)? }
        }
        "run_ns" => Step::Run { work_ns: value.nanoseconds()? },
        "runtime_ns" => Step::RunTime { cpu_ns: value.nanoseconds()? },
        "sleep_ns" => Step::Sleep { duration_ns: value.nanoseconds()? },
        "slice_ns" => Step::SetSlice { slice_ns: value.nanoseconds()? },
        "util_min" | "util_max" => Step::SetUtilClamp(read_util_clamp(node, false)?),
        "timer" => Step::Timer {
            timer: names.timer(value.text("the name of a timer")?),
            period_ns: node.require("period_ns", "state the period")?.nanoseconds()?,
            mode: node.get("mode").map_or(Ok(TimerMode::Relative), |node| node.word("relative or absolute", &MODES))?,
        },
        "lock" => {
            let lock = names.lock(value.text("the name of a mutex")?);
            let reads = node.get("mode").map_or(Ok(false), |node| node.word("read or write", &LOCK_MODES))?;
            if reads { Step::LockShared(lock) } else { Step::Lock(lock) }
        }
        "unlock" => Step::Unlock(names.lock(value.text("the name of a mutex")?)),
        "wait" | "sync" => {
            let condition = names.condition(value.text("the name of a condition")?);
            let lock = node.require("mutex", "name the mutex that is held")?;
            let lock = names.lock(lock.text("the name of a mutex")?);
            if verb == "wait" { Step::Wait { condition, lock } } else { Step::SignalAndWait { condition, lock } }
        }
        "signal" => Step::Signal(names.condition(value.text("the name of a condition")?)),
        "broad" => Step::Broadcast(names.condition(value.text("the name of a condition")?)),
        "barrier" => Step::Barrier(names.declared_barrier(value)?),
        "resume" => Step::Resume(names.task(value)?),
        "sem_post" => Step::SemPost(names.semaphore(value.text("the name of a semaphore")?)),
        "sem_wait" => {
            let semaphore = names.semaphore(value.text("the name of a semaphore")?);
            clock()?.map_or(Step::SemWait(semaphore), |slot| Step::SemTake { semaphore, slot })
        }
        "submit" => Step::Submit {
            semaphore: names.semaphore(value.text("the name of a semaphore")?),
            program: ProgramId(node.require("program", "give the number of one of the \"programs\"")?.u32("a number")?),
        },
        "work" => Step::Work {
            semaphore: names.semaphore(value.text("the name of a semaphore")?),
            requests: node
                .require("requests", "state how many all tasks together take")?
                .u64("a number of requests")?,
            recorder: node.get("recorder").map(|recorder| names.recorder(&recorder)).transpose()?,
        },
        "send" => Step::Send { channel: names.channel(value)?, bytes: bytes()? },
        "receive" => Step::Receive { channel: names.channel(value)?, bytes: bytes()? },
        "enlist" => Step::Enlist {
            list: names.list(value)?,
            recorder: node.get("recorder").map(|node| names.recorder(&node)).transpose()?,
        },
        "serve" => Step::Serve(names.list(value)?),
        "fork" => Step::Fork(names.task(value)?),
        "join" => Step::Join { count: value.u32("a number of tasks")? },
        "affinity" => Step::SetAffinity(read_affinity(value)?),
        "nice" => Step::SetNice(value.integer("the nice value", -20, 19)? as i8),
        "policy" => Step::SetPolicy(read_policy(value)?),
        "taskgroup" => Step::SetGroup(names.group(value.text("the path of a task group")?)),
        "memory_bytes" => Step::Memory {
            bytes: value.u64("a number of bytes")?,
            region_bytes: node.require("region_bytes", "state the size of the region")?.u64("a number of bytes")?,
        },
        "chase_hops" => Step::Chase {
            hops: value.u64("a number of loads")?,
            region_bytes: node.require("region_bytes", "state the size of the region")?.u64("a number of bytes")?,
        },
        "first_touch_bytes" => Step::FirstTouch { bytes: value.u64("a number of bytes")? },
        "map_bytes" => Step::Map { bytes: value.u64("a number of bytes")? },
        "io_bytes" => Step::IoRun { bytes: value.u64("a number of bytes")? },
        "start_clock" => Step::StartClock { slot: read_clock(value)? },
        "record_clock" => Step::RecordClock {
            slot: read_clock(value)?,
            recorder: names.recorder(&node.require("recorder", "name the recorder")?)?,
        },
        "record_since_ns" => Step::RecordSince {
            since_ns: value.u64("a time from the start in nanoseconds")?,
            recorder: names.recorder(&node.require("recorder", "name the recorder")?)?,
        },
        "phase" => Step::Phase(names.phase(value.text("the name of a phase")?)),
        _ => return Err(unknown_verb(node, verb)),
    })
}

fn read_clock(node: &Node<'_>) -> Read<u8> {
    Ok(node.integer("a clock", 0, 3)? as u8)
}

/// Names of distributions, and their parameters.
const DISTRIBUTIONS: [(&str, &[&str]); 6] = [
    ("constant", &["ns"]),
    ("uniform", &["from_ns", "to_ns"]),
    ("normal", &["mean_ns", "sd_ns"]),
    ("exponential", &["mean_ns"]),
    ("log_normal", &["median_ns", "p99_ns"]),
    ("empirical", &["values_ns"]),
];

/// `{ "exponential": { "mean_ns": 100000 } }`.
fn read_distribution(node: &Node<'_>) -> Read<Distribution> {
    let names: Vec<&str> = DISTRIBUTIONS.iter().map(|(name, _)| *name).collect();
    node.only_keys(&names, "a distribution")?;
    let entries = node.entries("a distribution")?;
    let [(name, of)] = entries.as_slice() else {
        return Err(node.other(format!("give one distribution: {}", names.join(", "))));
    };
    let parameters =
        DISTRIBUTIONS.iter().find(|(known, _)| known == name).map_or(&[][..], |(_, parameters)| *parameters);
    of.only_keys(parameters, "the distribution's parameters")?;
    let time = |key: &'static str| of.require(key, "the distribution has no default for it")?.nanoseconds();
    let distribution = match *name {
        "constant" => Distribution::Constant { ns: time("ns")? },
        "uniform" => Distribution::Uniform { from_ns: time("from_ns")?, to_ns: time("to_ns")? },
        "normal" => Distribution::Normal { mean_ns: time("mean_ns")?, sd_ns: time("sd_ns")? },
        "exponential" => Distribution::Exponential { mean_ns: time("mean_ns")? },
        "log_normal" => Distribution::LogNormal { median_ns: time("median_ns")?, p99_ns: time("p99_ns")? },
        _ => {
            let values = of.require("values_ns", "list the times that were measured")?;
            let values = values.elements("a list of times in nanoseconds")?;
            Distribution::Empirical { values_ns: values.iter().map(Node::nanoseconds).collect::<Read<_>>()? }
        }
    };
    distribution.check().map_err(|error| of.other(error.to_string()))?;
    Ok(distribution)
}

fn write_distribution(distribution: &Distribution) -> Json {
    let one = |name: &str, parameters| Json::Object(vec![(name.to_owned(), parameters)]);
    match distribution {
        Distribution::Constant { ns } => one("constant", object([("ns", (*ns).into())])),
        Distribution::Uniform { from_ns, to_ns } => {
            one("uniform", object([("from_ns", (*from_ns).into()), ("to_ns", (*to_ns).into())]))
        }
        Distribution::Normal { mean_ns, sd_ns } => {
            one("normal", object([("mean_ns", (*mean_ns).into()), ("sd_ns", (*sd_ns).into())]))
        }
        Distribution::Exponential { mean_ns } => one("exponential", object([("mean_ns", (*mean_ns).into())])),
        Distribution::LogNormal { median_ns, p99_ns } => {
            one("log_normal", object([("median_ns", (*median_ns).into()), ("p99_ns", (*p99_ns).into())]))
        }
        Distribution::Empirical { values_ns } => {
            let values = values_ns.iter().map(|&ns| Json::from(ns)).collect();
            one("empirical", object([("values_ns", Json::Array(values))]))
        }
    }
}

/// `"all"`, `{ "cpus": [..] }`, `{ "nodes": [..] }`, or `{ "dense_cpus": "0-3" }`.
pub(super) fn read_affinity(node: &Node<'_>) -> Read<Affinity> {
    if matches!(node.value, Json::Text(word) if word == "all") {
        return Ok(Affinity::All);
    }
    let expected = "\"all\", or an object with \"cpus\", \"nodes\" or \"dense_cpus\"";
    node.only_keys(&["cpus", "nodes", "dense_cpus"], expected)?;
    let entries = node.entries(expected)?;
    match entries.as_slice() {
        [("cpus", list)] => Ok(Affinity::OsCpus(list.numbers("a list of CPU numbers")?)),
        [("nodes", list)] => Ok(Affinity::OsNodes(list.numbers("a list of node numbers")?)),
        [("dense_cpus", list)] => CpuSet::parse_list(list.text("a CPU list, such as \"0-3,8\"")?)
            .map(Affinity::Cpus)
            .map_err(|error| list.other(error.to_string())),
        _ => Err(node.expected(expected)),
    }
}

/// A policy: the name of one without parameters, or an object with its name and them.
pub(super) fn read_policy(node: &Node<'_>) -> Read<Policy> {
    let expected = "the name of a policy, { \"SCHED_FIFO\": PRIORITY }, { \"SCHED_RR\": PRIORITY } or { \"SCHED_DEADLINE\": { \"runtime_ns\", … } }";
    if let Json::Text(_) = node.value {
        return match node.word(expected, &POLICIES)? {
            PolicyName::Fair(policy) => Ok(policy),
            _ => Err(node.other(format!("it lacks its parameters; write {expected}"))),
        };
    }
    node.only_keys(&["SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE"], expected)?;
    let entries = node.entries(expected)?;
    let [(name, value)] = entries.as_slice() else { return Err(node.expected(expected)) };
    let priority = || Ok(value.integer("the priority, of which 1 is the lowest,", 1, 99)? as u8);
    let policy = match *name {
        "SCHED_FIFO" => Policy::Fifo { priority: priority()? },
        "SCHED_RR" => Policy::RoundRobin { priority: priority()? },
        _ => {
            value.only_keys(&["runtime_ns", "deadline_ns", "period_ns"], "a reservation")?;
            let time = |key: &str| value.get(key).map(|time| time.nanoseconds()).transpose();
            let runtime_ns = value.require("runtime_ns", "state the CPU time of each period")?.nanoseconds()?;
            let period_ns = value.require("period_ns", "state the period")?.nanoseconds()?;
            let deadline_ns = time("deadline_ns")?.unwrap_or(period_ns);
            Policy::Deadline(Reservation { runtime_ns, deadline_ns, period_ns })
        }
    };
    policy.check().map_err(|error| value.other(error.to_string()))?;
    Ok(policy)
}

/// Writes a policy.
pub(super) fn write_policy(policy: Policy) -> Json {
    match policy {
        Policy::Fifo { priority } | Policy::RoundRobin { priority } => {
            object([(policy.name(), Json::Integer(priority.into()))])
        }
        Policy::Deadline(Reservation { runtime_ns, deadline_ns, period_ns }) => {
            let times = [
                ("runtime_ns", runtime_ns.into()),
                ("deadline_ns", deadline_ns.into()),
                ("period_ns", period_ns.into()),
            ];
            object([(policy.name(), object(times))])
        }
        fair => fair.name().into(),
    }
}

/// Writes an affinity.
pub(super) fn write_affinity(affinity: &Affinity) -> Json {
    let numbers = |list: &[u32]| Json::Array(list.iter().map(|&number| Json::from(number)).collect());
    let object = |key: &str, value| Json::Object(vec![(key.to_owned(), value)]);
    match affinity {
        Affinity::All => Json::from("all"),
        Affinity::OsCpus(list) => object("cpus", numbers(list)),
        Affinity::OsNodes(list) => object("nodes", numbers(list)),
        Affinity::Cpus(set) => object("dense_cpus", Json::Text(set.to_string())),
    }
}

/// Writes steps as a list. The workload has been checked, so ids are in range and loops match.
pub(super) fn write_steps(workload: &Workload, steps: &[Step]) -> Json {
    let mut open: Vec<(Json, List)> = Vec::new();
    let mut list = List::default();
    for step in steps {
        match step {
            Step::LoopStart { times, .. } => {
                let times = times.map_or(Json::Integer(-1), Json::from);
                open.push((times, std::mem::take(&mut list)));
            }
            Step::LoopEnd { .. } => {
                if let Some((times, outer)) = open.pop() {
                    let body = std::mem::replace(&mut list, outer);
                    list.push(object([("loop", times), ("steps", Json::Steps(body))]));
                }
            }
            _ => list.push(write_step(workload, step)),
        }
    }
    Json::Steps(list)
}

fn write_step(workload: &Workload, step: &Step) -> Json {
    let name = |table: &[String], index: usize| Json::Text(table[index].clone());
    let channel = |index: usize| Json::Text(workload.channels[index].name.clone());
    let semaphore = |index: usize| Json::Text(workload.semaphores[index].name.clone());
    let task = |index: usize| Json::Text(workload.tasks[index].name.clone());
    let integer = |value: i128| Json::Integer(value);
    match step {
        Step::Run { work_ns } => object([("run_ns", (*work_ns).into())]),
        Step::RunTime { cpu_ns } => object([("runtime_ns", (*cpu_ns).into())]),
        Step::Sleep { duration_ns } => object([("sleep_ns", (*duration_ns).into())]),
        Step::Draw { what, from } => {
            let time = write_distribution(from);
            match what {
                Drawn::Work => object([("run_ns", time)]),
                Drawn::CpuTime => object([("runtime_ns", time)]),
                Drawn::Sleep => object([("sleep_ns", time)]),
                Drawn::Arrival { slot } => object([("sleep_ns", time), ("clock", integer((*slot).into()))]),
            }
        }
        Step::SetSlice { slice_ns } => object([("slice_ns", (*slice_ns).into())]),
        Step::SetUtilClamp(clamp) => {
            Json::Object(write_util_clamp(*clamp).map(|(key, value)| (key.to_owned(), value)).collect())
        }
        Step::Timer { timer, period_ns, mode } => {
            let (mode, _) = MODES[usize::from(*mode == TimerMode::Absolute)];
            let timer = name(&workload.timers, timer.index());
            object([("timer", timer), ("period_ns", (*period_ns).into()), ("mode", mode.into())])
        }
        Step::Lock(lock) => object([("lock", name(&workload.locks, lock.index()))]),
        Step::LockShared(lock) => object([("lock", name(&workload.locks, lock.index())), ("mode", "read".into())]),
        Step::Unlock(lock) => object([("unlock", name(&workload.locks, lock.index()))]),
        Step::Wait { condition, lock } | Step::SignalAndWait { condition, lock } => {
            let condition = name(&workload.conditions, condition.index());
            object([(step.name(), condition), ("mutex", name(&workload.locks, lock.index()))])
        }
        Step::Signal(condition) | Step::Broadcast(condition) => {
            object([(step.name(), name(&workload.conditions, condition.index()))])
        }
        Step::Barrier(barrier) => object([("barrier", Json::Text(workload.barriers[barrier.index()].name.clone()))]),
        Step::Suspend
        | Step::Yield
        | Step::MigrateDisable
        | Step::MigrateEnable
        | Step::IoWait
        | Step::Kernel(_)
        | Step::Exit
        | Step::Stop => Json::from(step.name()),
        Step::Resume(id) | Step::Fork(id) => object([(step.name(), task(id.index()))]),
        Step::SemPost(id) | Step::SemWait(id) => object([(step.name(), semaphore(id.index()))]),
        Step::SemTake { semaphore: id, slot } => {
            object([(step.name(), semaphore(id.index())), ("clock", integer((*slot).into()))])
        }
        Step::Submit { semaphore: id, program } => {
            object([(step.name(), semaphore(id.index())), ("program", program.0.into())])
        }
        Step::Work { semaphore: id, requests, recorder: None } => {
            object([(step.name(), semaphore(id.index())), ("requests", (*requests).into())])
        }
        Step::Work { semaphore: id, requests, recorder: Some(recorder) } => {
            let recorder = name(&workload.recorders, recorder.index());
            object([(step.name(), semaphore(id.index())), ("requests", (*requests).into()), ("recorder", recorder)])
        }
        Step::Send { channel: id, bytes } | Step::Receive { channel: id, bytes } => {
            object([(step.name(), channel(id.index())), ("bytes", (*bytes).into())])
        }
        Step::Enlist { list, recorder: None } => object([("enlist", name(&workload.lists, list.index()))]),
        Step::Enlist { list, recorder: Some(recorder) } => {
            let recorder = name(&workload.recorders, recorder.index());
            object([("enlist", name(&workload.lists, list.index())), ("recorder", recorder)])
        }
        Step::Serve(list) => object([("serve", name(&workload.lists, list.index()))]),
        Step::Join { count } => object([("join", (*count).into())]),
        Step::SetAffinity(affinity) => object([("affinity", write_affinity(affinity))]),
        Step::SetNice(nice) => object([("nice", integer((*nice).into()))]),
        Step::SetPolicy(policy) => object([("policy", write_policy(*policy))]),
        Step::SetGroup(group) => object([("taskgroup", Json::Text(workload.groups[group.index()].name.clone()))]),
        Step::Memory { bytes, region_bytes } => {
            object([("memory_bytes", (*bytes).into()), ("region_bytes", (*region_bytes).into())])
        }
        Step::Chase { hops, region_bytes } => {
            object([("chase_hops", (*hops).into()), ("region_bytes", (*region_bytes).into())])
        }
        Step::FirstTouch { bytes } => object([("first_touch_bytes", (*bytes).into())]),
        Step::Map { bytes } => object([("map_bytes", (*bytes).into())]),
        Step::IoRun { bytes } => object([("io_bytes", (*bytes).into())]),
        Step::StartClock { slot } => object([("start_clock", integer((*slot).into()))]),
        Step::RecordClock { slot, recorder } => {
            let recorder = name(&workload.recorders, recorder.index());
            object([("record_clock", integer((*slot).into())), ("recorder", recorder)])
        }
        Step::RecordSince { since_ns, recorder } => {
            let recorder = name(&workload.recorders, recorder.index());
            object([("record_since_ns", (*since_ns).into()), ("recorder", recorder)])
        }
        Step::Phase(phase) => object([("phase", name(&workload.phases, *phase as usize))]),
        Step::LoopStart { .. } | Step::LoopEnd { .. } => Json::Null,
    }
}
