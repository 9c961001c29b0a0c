//! Tasks, phases and their scheduling properties.

use super::events::{Compiler, Event, Survey, event_names, event_of};
use super::json::Json;
use super::names::Names;
use super::node::{Node, Read};
use crate::nearest::suggestion;
use crate::{Affinity, Policy, ProcessId, Program, ProgramBuilder, ProgramId, Reservation, Step, Task, UtilClamp};

/// Policies by the kernel's names.
pub(super) const POLICIES: [(&str, PolicyName); 7] = [
    ("SCHED_OTHER", PolicyName::Fair(Policy::Normal)),
    ("SCHED_BATCH", PolicyName::Fair(Policy::Batch)),
    ("SCHED_IDLE", PolicyName::Fair(Policy::Idle)),
    ("SCHED_EXT", PolicyName::Fair(Policy::Ext)),
    ("SCHED_FIFO", PolicyName::Fifo),
    ("SCHED_RR", PolicyName::RoundRobin),
    ("SCHED_DEADLINE", PolicyName::Deadline),
];

/// A policy in a file, without its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PolicyName {
    Fair(Policy),
    Fifo,
    RoundRobin,
    Deadline,
}

/// Priority of a real-time policy that states none, rt-app's.
const DEFAULT_PRIORITY: u8 = 10;

impl PolicyName {
    /// The policy with rt-app's parameters for one that states none.
    fn by_default(self) -> Policy {
        match self {
            PolicyName::Fair(policy) => policy,
            PolicyName::Fifo => Policy::Fifo { priority: DEFAULT_PRIORITY },
            PolicyName::RoundRobin => Policy::RoundRobin { priority: DEFAULT_PRIORITY },
            PolicyName::Deadline => Policy::Deadline(Reservation { runtime_ns: 0, deadline_ns: 0, period_ns: 0 }),
        }
    }
}

/// Keys of tasks that are neither events nor scheduling properties.
const TASK_KEYS: [&str; 4] = ["instance", "delay", "loop", "phases"];

/// Keys with scheduling properties, at tasks and phases.
const PROPERTY_KEYS: [&str; 11] = [
    "cpus",
    "policy",
    "priority",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "taskgroup",
    "util_min",
    "util_max",
    "nodes_membind",
    "membind_nodes",
];

/// Scheduling properties of a task or phase.
struct Properties {
    cpus: Option<Vec<u32>>,
    /// The policy, if the object changes it or its parameters.
    policy: Option<Policy>,
    /// Of a fair policy.
    nice: Option<i8>,
    /// Of a fair policy.
    slice_ns: Option<u64>,
    group: Option<String>,
    util_clamp: UtilClamp,
}

/// Every object of a task that holds events, with its name: the phases, or the task itself.
pub(super) fn bodies<'a>(task: &Node<'a>) -> Read<Vec<(&'a str, Node<'a>)>> {
    match task.get("phases") {
        Some(phases) => phases.entries("an object of phases"),
        None => Ok(vec![("", task.clone())]),
    }
}

/// The compiled form of one task.
pub(super) struct CompiledTask {
    pub(super) task: Task,
    pub(super) program: Program,
    /// Path of every step.
    pub(super) paths: Vec<String>,
}

/// Compiles a task; `program` is the id its program will have.
pub(super) fn compile(
    names: &mut Names,
    survey: &Survey,
    default_policy: PolicyName,
    name: &str,
    node: &Node<'_>,
    program: ProgramId,
) -> Read<CompiledTask> {
    node.entries("an object with the task's events")?;
    let instances = node.get("instance").map_or(Ok(1), |node| node.u32("a number of tasks"))?;
    let start_ns = node.get("delay").map_or(Ok(0), |node| node.microseconds())?;
    let builder = ProgramBuilder::new();
    let mut compiler = Compiler { names, survey, task: name, instances, builder, paths: Vec::new() };

    let default_policy = default_policy.by_default();
    let own = properties(&mut compiler, default_policy, node)?;
    let policy = own.policy.unwrap_or(default_policy);
    let affinity = own.cpus.clone().map_or(Affinity::All, Affinity::OsCpus);
    body(&mut compiler, node, &affinity, policy)?;

    let group = own.group.filter(|group| group != "/").map(|group| compiler.names.group(&group));
    let (program_steps, paths) = (compiler.builder.finish(), compiler.paths);
    refuse_slip(node, &program_steps)?;
    let task = Task {
        instances,
        start_ns,
        affinity,
        group,
        policy,
        nice: own.nice.unwrap_or(0),
        slice_ns: own.slice_ns,
        util_clamp: own.util_clamp,
        ..Task::new(name, ProcessId(0), program)
    };
    Ok(CompiledTask { task, program: program_steps, paths })
}

/// For a task that `warmcore.tasks` has a program of: refuses scheduling properties that nobody would read.
pub(super) fn refuse_properties(node: &Node<'_>) -> Read<()> {
    match node.entries("an object")?.iter().find(|(key, _)| PROPERTY_KEYS.contains(key)) {
        Some((key, value)) => Err(value.other(format!(
            "\"warmcore.tasks\" has the task's program, so it has its scheduling too: instead of {key:?} here, give \"affinity\", \"policy\", \
             \"nice\", \"slice_ns\", \"util_min\", \"util_max\" or \"taskgroup\" there"
        ))),
        None => Ok(()),
    }
}

/// The task's loop, phases and events.
fn body(compiler: &mut Compiler<'_>, node: &Node<'_>, affinity: &Affinity, policy: Policy) -> Read<()> {
    if node.get("phases").is_none() {
        let times = loop_times(node, None)?;
        return compiler.repeat(times, node, |compiler| events(compiler, node, &TASK_KEYS));
    }
    other_keys(compiler, node)?;
    let phases = bodies(node)?;
    if phases.is_empty() {
        return Err(node.other("\"phases\" is empty; give the task at least one phase with an event"));
    }
    let moves = phases.iter().any(|(_, phase)| phase.get("cpus").is_some());
    let mut policy = policy;
    compiler.repeat(loop_times(node, None)?, node, |compiler| {
        for (name, phase) in &phases {
            phase.entries("an object with the phase's events")?;
            let mark = compiler.names.phase(name);
            compiler.push(Step::Phase(mark), phase);
            let properties = properties(compiler, policy, phase)?;
            if moves {
                let to = properties.cpus.clone().map_or_else(|| affinity.clone(), Affinity::OsCpus);
                compiler.push(Step::SetAffinity(to), phase);
            }
            policy = apply(compiler, phase, policy, &properties);
            compiler.repeat(loop_times(phase, Some(1))?, phase, |compiler| events(compiler, phase, &["loop"]))?;
        }
        Ok(())
    })
}

/// The steps that change policy, nice value, slice and group at the beginning of a phase. As in rt-app, a fair policy
/// without a priority sets the nice value to 0, and what is not named stays as it is.
fn apply(compiler: &mut Compiler<'_>, node: &Node<'_>, current: Policy, properties: &Properties) -> Policy {
    if let Some(policy) = properties.policy {
        compiler.push(Step::SetPolicy(policy), node);
        if !policy.is_realtime() {
            compiler.push(Step::SetNice(properties.nice.unwrap_or(0)), node);
        }
    } else if let Some(nice) = properties.nice {
        compiler.push(Step::SetNice(nice), node);
    }
    if let Some(slice_ns) = properties.slice_ns {
        compiler.push(Step::SetSlice { slice_ns }, node);
    }
    if !properties.util_clamp.is_none() {
        compiler.push(Step::SetUtilClamp(properties.util_clamp), node);
    }
    if let Some(group) = &properties.group {
        let group = compiler.names.group(group);
        compiler.push(Step::SetGroup(group), node);
    }
    properties.policy.unwrap_or(current)
}

/// Reads scheduling properties. `current` is the policy in force if the object names none.
fn properties(compiler: &mut Compiler<'_>, current: Policy, node: &Node<'_>) -> Read<Properties> {
    let cpus = match node.get("cpus") {
        Some(cpus) => {
            let list = cpus.numbers("a list of CPU numbers, such as [0, 2, 3]")?;
            if list.is_empty() {
                return Err(cpus.other("the list of CPUs is empty; leave \"cpus\" out to allow all"));
            }
            Some(list)
        }
        None => None,
    };
    let named = match node.get("policy") {
        Some(policy) => Some(policy.word("the name of a policy", &POLICIES)?.by_default()),
        None => None,
    };
    let policy = with_parameters(node, named.unwrap_or(current))?;
    let fair = !policy.is_realtime();
    let nice = match node.get("priority").filter(|_| fair) {
        Some(nice) => Some(nice.integer("the nice value", -20, 19)? as i8),
        None => None,
    };
    let slice_ns = match node.get("dl-runtime").filter(|_| fair) {
        Some(slice) => Some(slice.microseconds()?).filter(|&slice_ns| slice_ns > 0),
        None => None,
    };
    let idle: &[&str] = match policy {
        Policy::Deadline(_) => &["priority"],
        Policy::Fifo { .. } | Policy::RoundRobin { .. } => &["dl-runtime", "dl-period", "dl-deadline"],
        _ => &["dl-period", "dl-deadline"],
    };
    for key in idle.iter().filter(|key| node.get(key).is_some()) {
        compiler.warn(format!("key \"{key}\""), "no effect with the policy next to it");
    }
    for (key, consequence) in [
        ("nodes_membind", "memory is placed by the memory model"),
        ("membind_nodes", "memory is placed by the memory model"),
    ] {
        if node.get(key).is_some() {
            compiler.warn(format!("key \"{key}\""), consequence);
        }
    }
    let policy = (named.is_some() || policy != current).then_some(policy);
    Ok(Properties { cpus, policy, nice, slice_ns, group: group(node)?, util_clamp: read_util_clamp(node, true)? })
}

/// `util_min` and `util_max` of an object. In rt-app −1 changes nothing.
pub(super) fn read_util_clamp(node: &Node<'_>, minus_one: bool) -> Read<UtilClamp> {
    let value = |key: &str| match node.get(key) {
        Some(value) => value.integer("a utilisation", i64::MIN.into(), i64::MAX.into()).map(|value| Some(value as i64)),
        None => Ok(None),
    };
    let [min, max] = ["util_min", "util_max"].map(value);
    let named = |value: Option<i64>| value.filter(|value| !(minus_one && *value == -1));
    UtilClamp::new(named(min?), named(max?)).map_err(|error| node.other(error.to_string()))
}

/// The keys of a request.
pub(super) fn write_util_clamp(clamp: UtilClamp) -> impl Iterator<Item = (&'static str, Json)> {
    let entry = |key, value: Option<u16>| value.map(|value| (key, Json::Integer(value.into())));
    [entry("util_min", clamp.min()), entry("util_max", clamp.max())].into_iter().flatten()
}

/// A policy with the parameters that an object states: `priority` of the real-time policies, `dl-runtime`, `dl-period` (by default the runtime) and
/// `dl-deadline` (by default the period) of `SCHED_DEADLINE`, in microseconds.
fn with_parameters(node: &Node<'_>, policy: Policy) -> Read<Policy> {
    let priority = |own: u8| match node.get("priority") {
        Some(priority) => {
            let expected = "the priority of SCHED_FIFO or SCHED_RR, of which 1 is the lowest,";
            Ok(priority.integer(expected, 1, 99)? as u8)
        }
        None => Ok(own),
    };
    let policy = match policy {
        Policy::Fifo { priority: own } => Policy::Fifo { priority: priority(own)? },
        Policy::RoundRobin { priority: own } => Policy::RoundRobin { priority: priority(own)? },
        Policy::Deadline(own) => {
            let time = |key| node.get(key).map(|time| time.microseconds()).transpose();
            let (runtime, period, deadline) = (time("dl-runtime")?, time("dl-period")?, time("dl-deadline")?);
            let stated = runtime.or(period).or(deadline).is_some();
            let runtime_ns = runtime.unwrap_or(own.runtime_ns);
            let period_ns = period.unwrap_or(if own.period_ns > 0 { own.period_ns } else { runtime_ns });
            let kept = own.deadline_ns > 0 && period.is_none();
            let deadline_ns = deadline.unwrap_or(if kept { own.deadline_ns } else { period_ns });
            let policy = Policy::Deadline(Reservation { runtime_ns, deadline_ns, period_ns });
            if stated || own.runtime_ns == 0 {
                policy.check().map_err(|error| node.other(error.to_string()))?;
            }
            policy
        }
        fair => fair,
    };
    Ok(policy)
}

fn group(node: &Node<'_>) -> Read<Option<String>> {
    let Some(group) = node.get("taskgroup") else { return Ok(None) };
    match group.text("the path of a task group, such as \"/background\"")? {
        "" => Ok(None),
        path if path.starts_with('/') => Ok(Some(path.to_owned())),
        path => Err(group.other(format!("the path of a task group begins with /; write \"/{path}\""))),
    }
}

/// How often an object is repeated: `None` is for ever.
fn loop_times(node: &Node<'_>, default: Option<u64>) -> Read<Option<u64>> {
    let Some(times) = node.get("loop") else { return Ok(default) };
    match times.integer("a number of repetitions", -1, u64::MAX.into())? {
        -1 => Ok(None),
        0 => {
            Err(times
                .other("0 is not a number of repetitions; write -1 for a loop without end, or leave the object out"))
        }
        times => Ok(Some(times as u64)),
    }
}

/// Compiles the events of an object; `own_keys` are its other keys.
fn events(compiler: &mut Compiler<'_>, node: &Node<'_>, own_keys: &[&str]) -> Read<()> {
    let before = compiler.builder.len();
    let mut unknown = Vec::new();
    for (key, value) in node.entries("an object with events")? {
        match event_of(key) {
            Some(event) => compiler.event(event, &value)?,
            None if own_keys.contains(&key) || PROPERTY_KEYS.contains(&key) => {}
            None => unknown.push(key),
        }
    }
    if compiler.builder.len() == before {
        return Err(no_events(node, &unknown));
    }
    for key in unknown {
        warn_of_key(compiler, key);
    }
    Ok(())
}

fn no_events(node: &Node<'_>, unknown: &[&str]) -> crate::DocumentError {
    if unknown.iter().any(|key| ["exec", "lock_order"].contains(key)) {
        return node.other(
            "\"exec\" and \"lock_order\" are the grammar of rt-app before 2015, which present versions do not read \
             either; write run, lock, unlock, … events",
        );
    }
    let near = unknown.iter().map(|key| suggestion(key, event_names())).find(|text| !text.is_empty());
    node.other(format!("it has no event{}; give it at least one, such as \"run\": 1000", near.unwrap_or_default()))
}

/// Warns of keys beside `phases` that have no effect.
fn other_keys(compiler: &mut Compiler<'_>, node: &Node<'_>) -> Read<()> {
    for (key, _) in node.entries("an object with the task's events")? {
        if event_of(key).is_some() {
            compiler.warn(format!("event \"{key}\" next to \"phases\""), "ignored, as rt-app does");
        } else if !TASK_KEYS.contains(&key) && !PROPERTY_KEYS.contains(&key) {
            warn_of_key(compiler, key);
        }
    }
    Ok(())
}

fn warn_of_key(compiler: &mut Compiler<'_>, key: &str) {
    let near = suggestion(key, known_keys());
    compiler.warn(format!("key \"{key}\"{near}"), "ignored, as rt-app does");
}

/// Everything that a task or phase may say.
fn known_keys() -> impl Iterator<Item = &'static str> {
    event_names().chain(TASK_KEYS).chain(PROPERTY_KEYS)
}

/// Refuses a task that neither does work nor concerns another task and has a key that means nothing: a slip of the pen.
fn refuse_slip(node: &Node<'_>, program: &Program) -> Read<()> {
    if !program.is_idle() {
        return Ok(());
    }
    let bodies = bodies(node)?;
    let keys = bodies.iter().filter_map(|(_, body)| body.entries("an object").ok()).flatten().map(|(key, _)| key);
    let unknown = |key: &&str| event_of(key).is_none() && !TASK_KEYS.contains(key) && !PROPERTY_KEYS.contains(key);
    let unknown: Vec<&str> = keys.filter(unknown).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let near = unknown.iter().map(|key| suggestion(key, event_names())).find(|text| !text.is_empty());
    Err(node.other(format!(
        "it never does any work, and \"{}\" is not an event{}; give it one such as \"run\": 1000",
        unknown[0],
        near.unwrap_or_default()
    )))
}

/// Looks at all events of a task for what events mean together.
pub(super) fn survey(survey: &mut Survey, name: &str, node: &Node<'_>) -> Read<()> {
    for (_, body) in bodies(node)? {
        if let Ok(entries) = body.entries("events") {
            for (key, value) in entries {
                if let Some(event @ (Event::Suspend | Event::Timer)) = event_of(key) {
                    survey.look_at(name, event, &value);
                }
            }
        }
    }
    Ok(())
}
