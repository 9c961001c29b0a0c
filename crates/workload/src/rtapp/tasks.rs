//! Tasks, phases and their scheduling properties.

use super::events::{Compiler, Event, Survey, event_names, event_of};
use super::names::Names;
use super::node::{Node, Read};
use crate::nearest::suggestion;
use crate::{Affinity, Policy, ProcessId, Program, ProgramBuilder, ProgramId, Step, Task};

/// Policies by rt-app's names. Real-time ones are run as `SCHED_OTHER`, with a warning.
pub(super) const POLICIES: [(&str, PolicyChoice); 7] = [
    ("SCHED_OTHER", PolicyChoice::Fair(Policy::Normal)),
    ("SCHED_BATCH", PolicyChoice::Fair(Policy::Batch)),
    ("SCHED_IDLE", PolicyChoice::Fair(Policy::Idle)),
    ("SCHED_EXT", PolicyChoice::Fair(Policy::Ext)),
    ("SCHED_FIFO", PolicyChoice::NotModelled("SCHED_FIFO")),
    ("SCHED_RR", PolicyChoice::NotModelled("SCHED_RR")),
    ("SCHED_DEADLINE", PolicyChoice::NotModelled("SCHED_DEADLINE")),
];

/// A policy in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PolicyChoice {
    Fair(Policy),
    NotModelled(&'static str),
}

impl PolicyChoice {
    fn is_fair(self) -> bool {
        matches!(self, PolicyChoice::Fair(_))
    }

    /// The policy tasks get.
    pub(super) fn modelled(self) -> Policy {
        match self {
            PolicyChoice::Fair(policy) => policy,
            PolicyChoice::NotModelled(_) => Policy::Normal,
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
    policy: Option<PolicyChoice>,
    priority: Option<i8>,
    slice_ns: Option<u64>,
    group: Option<String>,
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
    default_policy: PolicyChoice,
    name: &str,
    node: &Node<'_>,
    program: ProgramId,
) -> Read<CompiledTask> {
    node.entries("an object with the task's events")?;
    let instances = node.get("instance").map_or(Ok(1), |node| node.u32("a number of tasks"))?;
    let start_ns = node.get("delay").map_or(Ok(0), |node| node.microseconds())?;
    let builder = ProgramBuilder::new();
    let mut compiler = Compiler { names, survey, task: name, instances, builder, paths: Vec::new() };

    let own = properties(&mut compiler, default_policy, node)?;
    let policy = own.policy.unwrap_or(default_policy);
    warn_of_policy(&mut compiler, policy);
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
        policy: policy.modelled(),
        nice: if policy.is_fair() { own.priority.unwrap_or(0) } else { 0 },
        slice_ns: own.slice_ns.filter(|_| policy.is_fair()),
        ..Task::new(name, ProcessId(0), program)
    };
    Ok(CompiledTask { task, program: program_steps, paths })
}

/// For a task that `warmcore.tasks` has a program of: refuses scheduling properties that nobody would read.
pub(super) fn refuse_properties(node: &Node<'_>) -> Read<()> {
    match node.entries("an object")?.iter().find(|(key, _)| PROPERTY_KEYS.contains(key)) {
        Some((key, value)) => Err(value.other(format!(
            "the task's program is under \"warmcore.tasks\", where its scheduling is described too: not by {key:?} here, but by \
             \"affinity\", \"policy\", \"nice\", \"slice_ns\" or \"taskgroup\" there"
        ))),
        None => Ok(()),
    }
}

/// The task's loop, phases and events.
fn body(compiler: &mut Compiler<'_>, node: &Node<'_>, affinity: &Affinity, policy: PolicyChoice) -> Read<()> {
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

/// The steps that change policy, nice value, slice and group at the beginning of a phase. As in rt-app, a policy
/// without a priority sets the nice value to 0, and what is not named stays as it is.
fn apply(compiler: &mut Compiler<'_>, node: &Node<'_>, current: PolicyChoice, properties: &Properties) -> PolicyChoice {
    let policy = properties.policy.unwrap_or(current);
    if properties.policy.is_some() {
        warn_of_policy(compiler, policy);
        compiler.push(Step::SetPolicy(policy.modelled()), node);
        let nice = if policy.is_fair() { properties.priority.unwrap_or(0) } else { 0 };
        compiler.push(Step::SetNice(nice), node);
    } else if let (Some(nice), true) = (properties.priority, policy.is_fair()) {
        compiler.push(Step::SetNice(nice), node);
    }
    if let (Some(slice_ns), true) = (properties.slice_ns, policy.is_fair()) {
        compiler.push(Step::SetSlice { slice_ns }, node);
    }
    if let Some(group) = &properties.group {
        let group = compiler.names.group(group);
        compiler.push(Step::SetGroup(group), node);
    }
    policy
}

fn warn_of_policy(compiler: &mut Compiler<'_>, policy: PolicyChoice) {
    if let PolicyChoice::NotModelled(name) = policy {
        compiler.warn(format!("policy {name}"), "its tasks run as SCHED_OTHER at nice 0");
    }
}

/// Reads scheduling properties. `current` is the policy in force if the object names none.
fn properties(compiler: &mut Compiler<'_>, current: PolicyChoice, node: &Node<'_>) -> Read<Properties> {
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
    let policy = match node.get("policy") {
        Some(policy) => Some(policy.word("the name of a policy", &POLICIES)?),
        None => None,
    };
    let fair = policy.unwrap_or(current).is_fair();
    let priority = match node.get("priority") {
        Some(priority) if fair => Some(priority.integer("the nice value", -20, 19)? as i8),
        Some(priority) => {
            priority.integer("the priority", 0, 99)?;
            None
        }
        None => None,
    };
    let slice_ns = match node.get("dl-runtime") {
        Some(slice) => Some(slice.microseconds()?).filter(|&slice_ns| slice_ns > 0),
        None => None,
    };
    for key in ["dl-period", "dl-deadline"] {
        if let (Some(value), true) = (node.get(key), fair) {
            value.microseconds()?;
            compiler.warn(format!("key \"{key}\""), "no effect without SCHED_DEADLINE");
        }
    }
    for (key, consequence) in [
        ("util_min", "utilisation clamps are not modelled"),
        ("util_max", "utilisation clamps are not modelled"),
        ("nodes_membind", "memory is placed by the memory model"),
        ("membind_nodes", "memory is placed by the memory model"),
    ] {
        if node.get(key).is_some() {
            compiler.warn(format!("key \"{key}\""), consequence);
        }
    }
    Ok(Properties { cpus, policy, priority, slice_ns, group: group(node)? })
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
        0 => Err(times.other("0 is no number of repetitions; write -1 for ever, or leave the object out")),
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
            compiler.warn(format!("event \"{key}\" beside \"phases\""), "ignored, as rt-app does");
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
        "it never does any work, and \"{}\" is no event{}; give it one such as \"run\": 1000",
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
