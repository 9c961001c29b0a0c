//! The `warmcore` key: what rt-app cannot say. Its contents are described in the module documentation of
//! [`crate::rtapp`].

use std::collections::BTreeSet;

use warmcore_topology::parse_cpu_list;

use super::events::{Compiler, Survey};
use super::names::Names;
use super::node::{Node, Read};
use super::profiles;
use super::steps::{read_affinity, read_policy, read_steps};
use super::tasks::read_util_clamp;
use crate::build::add_warning;
use crate::error::DocumentProblem;
use crate::nearest::suggestion;
use crate::{
    AggregateTarget, BarrierId, BarrierWait, ChannelKind, ClampPercent, CpuMax, Group, GroupClamp, GroupId, Hotplug,
    LatchKind, LockId, ProcessId, Program, ProgramBuilder, ProgramId, ResultStyle, Task, Workload,
};

const KEYS: [&str; 28] = [
    "version",
    "duration_ns",
    "warm_up_ns",
    "hotplug",
    "isolcpus",
    "nohz_full",
    "command",
    "applications",
    "processes",
    "groups",
    "data_groups",
    "profiles",
    "aggregate",
    "locks",
    "latches",
    "conditions",
    "barriers",
    "semaphores",
    "channels",
    "lists",
    "timers",
    "recorders",
    "phases",
    "style",
    "programs",
    "tasks",
    "notes",
    "warnings",
];

const TASK_KEYS: [&str; 19] = [
    "process",
    "role",
    "comm",
    "profile",
    "phase_profiles",
    "data",
    "start_cpu",
    "start_ns",
    "release_ns",
    "slice_ns",
    "util_min",
    "util_max",
    "timer_slack_ns",
    "nice",
    "policy",
    "instances",
    "affinity",
    "taskgroup",
    "program",
];

/// The version of the schema.
pub(super) const VERSION: u32 = 1;

/// Reads the tables into an empty workload, and which barriers state their participants.
pub(super) fn read_tables(node: &Node<'_>, workload: &mut Workload, survey: &mut Survey) -> Read<()> {
    node.only_keys(&KEYS, "an object")?;
    if let Some(version) = node.get("version") {
        version.integer("the version of the schema", VERSION.into(), VERSION.into())?;
    }
    if let Some(duration) = node.get("duration_ns") {
        workload.duration_ns = Some(duration.nanoseconds()?);
    }
    if let Some(warm_up) = node.get("warm_up_ns") {
        workload.warm_up_ns = Some(warm_up.nanoseconds()?);
    }
    read_hotplug(node, workload)?;
    workload.isolcpus = read_cpu_list(node, "isolcpus")?.unwrap_or_default();
    workload.nohz_full = read_cpu_list(node, "nohz_full")?.unwrap_or_default();
    if let Some(command) = node.get("command") {
        let words = command.elements("a list of words")?;
        workload.command = words.iter().map(|word| word.text("a word").map(str::to_owned)).collect::<Read<_>>()?;
    }
    if let Some(notes) = node.get("notes") {
        let notes = notes.elements("a list of sentences")?;
        workload.notes = notes.iter().map(|note| note.text("a sentence").map(str::to_owned)).collect::<Read<_>>()?;
    }
    for (key, table) in [
        ("locks", &mut workload.locks),
        ("conditions", &mut workload.conditions),
        ("lists", &mut workload.lists),
        ("timers", &mut workload.timers),
        ("recorders", &mut workload.recorders),
        ("phases", &mut workload.phases),
    ] {
        *table = names(node, key)?;
    }
    for entry in objects(node, "latches", &["name", "kind", "spin_ns", "poll_ns", "wakes", "sleep_ns", "lines"])? {
        let lock = entry.require("name", "name one of the \"locks\"")?;
        let name = lock.text("the name of a lock")?;
        let position = workload.locks.iter().position(|known| known == name);
        let position = position.ok_or_else(|| lock.other("is not among the \"locks\"".to_owned()))?;
        let kind = entry.get("kind").map_or(Ok(LatchKind::Latch), |node| node.word("a kind", &LatchKind::NAMES))?;
        let of_latches = ["spin_ns", "poll_ns", "wakes", "sleep_ns"].into_iter().find_map(|key| entry.get(key));
        if let (true, Some(node)) = (kind.is_of_kernel(), of_latches) {
            return Err(
                node.other(format!("is for latches; how tasks wait for a {} is the kernel's choice", kind.name()))
            );
        }
        let spin_ns = entry.get("spin_ns").map_or(Ok(0), |node| node.nanoseconds())?;
        let poll_ns = entry.get("poll_ns").map_or(Ok(0), |node| node.nanoseconds())?;
        let sleepers = [("one", false), ("all", true)];
        let wakes_all = entry.get("wakes").map_or(Ok(false), |node| node.word("whom a release wakes", &sleepers))?;
        let sleep_ns = entry.get("sleep_ns").map_or(Ok(0), |node| node.nanoseconds())?;
        if sleep_ns > 0 && spin_ns == 0 {
            return Err(lock.other("sleeps for a time after it has spun: it needs \"spin_ns\"".to_owned()));
        }
        let lines = entry.get("lines").map_or(Ok(0), |node| node.u32("a number of lines"))?;
        let lock = LockId(position as u32);
        workload.latches.push(crate::Latch { lock, kind, spin_ns, poll_ns, wakes_all, sleep_ns, lines });
    }
    if node.get("applications").is_some() {
        workload.applications = names(node, "applications")?;
    }
    read_groups(node, workload)?;
    for entry in objects(node, "data_groups", &["name", "bytes"])? {
        let bytes = entry.require("bytes", "state the size of the data")?.u64("a number of bytes")?;
        workload.add_data_group(name(&entry)?, bytes);
    }
    profiles::read_table(node, &mut workload.profiles)?;
    for entry in objects(node, "semaphores", &["name", "initial"])? {
        let initial = entry.get("initial").map_or(Ok(0), |node| node.u32("a count"))?;
        workload.add_semaphore(name(&entry)?, initial);
    }
    for entry in objects(node, "channels", &["name", "kind", "capacity_bytes"])? {
        let kinds = [("pipe", ChannelKind::Pipe), ("socket", ChannelKind::Socket)];
        let kind = entry.get("kind").map_or(Ok(ChannelKind::Pipe), |node| node.word("pipe or socket", &kinds))?;
        let capacity = match entry.get("capacity_bytes") {
            Some(capacity) => capacity.u64("a number of bytes")?,
            None => crate::generate::DEFAULT_CHANNEL_BYTES,
        };
        workload.add_channel(name(&entry)?, kind, capacity);
    }
    for entry in objects(node, "barriers", &["name", "participants", "wait"])? {
        let wait = entry.get("wait").map_or(Ok(BarrierWait::Block), |node| barrier_wait(&node))?;
        let participants = entry.get("participants").map(|node| node.u32("a number of tasks")).transpose()?;
        let barrier: BarrierId = workload.add_barrier(name(&entry)?, participants.unwrap_or(0), wait);
        if participants.is_some() {
            survey.counted_barriers.insert(barrier);
        }
    }
    for entry in objects(node, "warnings", &["what", "consequence", "count"])? {
        let text = |key| entry.require(key, "state it")?.text("a text").map(str::to_owned);
        let count = entry.get("count").map_or(Ok(1), |node| node.u32("a number"))?;
        add_warning(&mut workload.warnings, text("what")?, text("consequence")?, count);
    }
    Ok(())
}

/// Reads what refers to tables: processes and the result style. At least one process exists afterwards.
pub(super) fn read_processes(node: Option<&Node<'_>>, names: &mut Names) -> Read<()> {
    let mut processes = Vec::new();
    if let Some(node) = node {
        for entry in objects(node, "processes", &["name", "application", "profile"])? {
            let application = entry.get("application").map_or(Ok(0), |node| names.application(&node))?;
            let name = name(&entry)?;
            let profile = entry.get("profile").map(|node| profiles::read_use(&node, names, &name)).transpose()?;
            names.process_profiles.push(profile);
            processes.push(crate::Process { name, application });
        }
        if let Some(style) = node.get("style") {
            names.workload.style = read_style(&style, names)?;
        }
    }
    if processes.is_empty() {
        processes.push(crate::Process { name: names.workload.name.clone(), application: 0 });
    }
    names.set_processes(processes);
    Ok(())
}

/// Reads the list of programs into the workload; returns the path of every step.
pub(super) fn read_programs(
    node: &Node<'_>,
    names: &mut Names,
    survey: &Survey,
    expected: Option<&Workload>,
) -> Read<Vec<Vec<String>>> {
    let Some(programs) = node.get("programs") else { return Ok(Vec::new()) };
    let mut paths = Vec::new();
    for list in programs.elements("a list of programs, each a list of steps")? {
        let (program, program_paths) = read_program(names, survey, "", &list)?;
        names.add_program(program, expected);
        paths.push(program_paths);
    }
    Ok(paths)
}

fn read_program(names: &mut Names, survey: &Survey, task: &str, list: &Node<'_>) -> Read<(Program, Vec<String>)> {
    let builder = ProgramBuilder::new();
    let mut compiler = Compiler { names, survey, task, instances: 0, builder, paths: Vec::new() };
    read_steps(&mut compiler, list)?;
    Ok((compiler.builder.finish(), compiler.paths))
}

/// The program of a task under `warmcore.tasks`, which replaces the task's events.
pub(super) enum OwnProgram {
    /// One of `warmcore.programs`.
    Shared(ProgramId),
    /// A list of steps.
    Own(Program, Vec<String>),
}

/// Reads the program of a task, if it has one here.
pub(super) fn read_task_program(
    node: &Node<'_>,
    names: &mut Names,
    survey: &Survey,
    task: &str,
) -> Read<Option<OwnProgram>> {
    let Some(program) = node.get("program") else { return Ok(None) };
    if let super::json::Json::Steps(_) = program.value {
        let (program, paths) = read_program(names, survey, task, &program)?;
        return Ok(Some(OwnProgram::Own(program, paths)));
    }
    let index = program.u32("a list of steps, or the number of one of the \"programs\"")?;
    let count = names.workload.programs.len();
    if index as usize >= count {
        return Err(program.error(DocumentProblem::Range {
            value: index.to_string(),
            allowed: format!("\"programs\" has {count} entries, counted from 0"),
        }));
    }
    Ok(Some(OwnProgram::Shared(ProgramId(index))))
}

/// Changes a task as its entry under `warmcore.tasks` says.
pub(super) fn apply_to_task(node: &Node<'_>, names: &mut Names, task: &mut Task) -> Read<()> {
    node.only_keys(&TASK_KEYS, "an object")?;
    for (key, value) in node.entries("an object")? {
        match key {
            "process" => task.process = names.process(&value)?,
            "role" => task.role = value.text("a role")?.to_owned(),
            "comm" => task.comm = Some(value.text("the name of its threads")?.to_owned()),
            "profile" => task.profile = Some(profiles::read_use(&value, names, &task.name)?),
            "phase_profiles" => task.phase_profiles = read_phase_profiles(&value, names, &task.name)?,
            "data" => {
                let groups = value.elements("a list of names of data groups")?;
                task.data_groups = groups.iter().map(|group| names.data_group(group)).collect::<Read<_>>()?;
            }
            "start_cpu" => task.start_cpu = Some(value.u32("a CPU number")?),
            "start_ns" => task.start_ns = value.nanoseconds()?,
            "release_ns" => task.release_ns = Some(value.nanoseconds()?),
            "slice_ns" => task.slice_ns = Some(value.nanoseconds()?),
            "util_min" | "util_max" => task.util_clamp = read_util_clamp(node, false)?,
            "timer_slack_ns" => task.timer_slack_ns = Some(value.nanoseconds()?),
            "nice" => task.nice = value.integer("the nice value", -20, 19)? as i8,
            "policy" => task.policy = read_policy(&value)?,
            "instances" => task.instances = value.u32("a number of tasks")?,
            "affinity" => task.affinity = read_affinity(&value)?,
            "taskgroup" => task.group = Some(names.group(value.text("the path of a task group")?)),
            _ => {}
        }
    }
    Ok(())
}

/// Memory profiles by phase.
fn read_phase_profiles(node: &Node<'_>, names: &mut Names, owner: &str) -> Read<Vec<(u32, String)>> {
    let mut result = Vec::new();
    for (phase, node) in node.entries("an object of memory profiles by phase")? {
        let phases = &names.workload.phases;
        let Some(index) = phases.iter().position(|known| known == phase) else {
            let suggestion = suggestion(phase, phases.iter().map(String::as_str));
            return Err(node.error(DocumentProblem::UnknownName { kind: "phase", name: phase.to_owned(), suggestion }));
        };
        result.push((index as u32, profiles::read_use(&node, names, &format!("{owner}, {phase}"))?));
    }
    Ok(result)
}

impl Task {
    /// A task that `warmcore.tasks` describes in full.
    pub(super) fn without_events(name: &str, program: ProgramId) -> Self {
        Task::new(name, ProcessId(0), program)
    }
}

/// Reads whom to keep together. Everything that can be named is known by then.
pub(super) fn read_aggregate(node: &Node<'_>, workload: &mut Workload) -> Read<()> {
    let Some(node) = node.get("aggregate") else { return Ok(()) };
    node.only_keys(&["groups", "processes", "taskgroups", "data"], "an object")?;
    workload.aggregation.groups = names(&node, "groups")?;
    for (key, target) in [
        ("processes", AggregateTarget::Process),
        ("taskgroups", AggregateTarget::TaskGroup),
        ("data", AggregateTarget::Data),
    ] {
        let Some(table) = node.get(key) else { continue };
        for (name, choice) in table.entries("an object of choices by name")? {
            let text = choice.text("off, process or group:NAME")?;
            workload.set_aggregate(target, name, text).map_err(|error| choice.other(error.to_string()))?;
        }
    }
    Ok(())
}

fn names(node: &Node<'_>, key: &str) -> Read<Vec<String>> {
    let Some(list) = node.get(key) else { return Ok(Vec::new()) };
    let mut seen = BTreeSet::new();
    let mut result = Vec::new();
    for element in list.elements("a list of names")? {
        let name = element.text("a name")?;
        if !seen.insert(name) {
            return Err(element.error(DocumentProblem::Duplicate { name: name.to_owned() }));
        }
        result.push(name.to_owned());
    }
    Ok(result)
}

/// Task groups. All are known before any says in which it lies.
fn read_groups(node: &Node<'_>, workload: &mut Workload) -> Read<()> {
    let keys = [
        "name",
        "shares",
        "parent",
        "cpu_weight",
        "cpu_idle",
        "cpu_max",
        "cpu_max_burst",
        "cpu_uclamp_min",
        "cpu_uclamp_max",
        "cpuset_cpus",
    ];
    let entries = objects(node, "groups", &keys)?;
    for entry in &entries {
        let (shares, idle) = read_weight(entry)?;
        let (cpu_max, clamp, cpus) =
            (read_cpu_max(entry)?, read_group_clamp(entry)?, read_cpu_list(entry, "cpuset_cpus")?);
        workload.groups.push(Group { shares, idle, cpu_max, clamp, cpus, ..Group::new(name(entry)?) });
    }
    for (index, entry) in entries.iter().enumerate() {
        let Some(node) = entry.get("parent") else {
            let own = workload.groups[index].name.clone();
            workload.groups[index].parent = workload.parent_by_path(&own);
            continue;
        };
        let parent = node.text("the name of a task group")?;
        if parent == workload.groups[index].name {
            return Err(node.other("a task group cannot lie in itself; name another, or \"/\" for none"));
        }
        let known = || workload.groups[..entries.len()].iter().map(|group| group.name.as_str());
        workload.groups[index].parent = match known().position(|name| name == parent) {
            _ if parent == "/" => None,
            Some(found) => Some(GroupId(found as u32)),
            None => {
                let suggestion = suggestion(parent, known());
                let name = parent.to_owned();
                return Err(node.error(DocumentProblem::UnknownName { kind: "task group", name, suggestion }));
            }
        };
    }
    Ok(())
}

/// CPUs that go offline and come online, sorted by time.
fn read_hotplug(node: &Node<'_>, workload: &mut Workload) -> Read<()> {
    for entry in objects(node, "hotplug", &["at_ns", "offline", "online"])? {
        let time_ns = entry.require("at_ns", "state when, counted from the start of the run")?.nanoseconds()?;
        let (cpu, online) = match (entry.get("offline"), entry.get("online")) {
            (Some(cpu), None) => (cpu, false),
            (None, Some(cpu)) => (cpu, true),
            _ => return Err(entry.other("give one of \"offline\" and \"online\": the number of a CPU")),
        };
        workload.hotplug.push(Hotplug { time_ns, cpu: cpu.u32("the number of a CPU")?, online });
    }
    workload.hotplug.sort_by_key(|change| change.time_ns);
    Ok(())
}

/// A group's weight in shares, and whether it is idle: `cpu_weight` and `cpu_idle` are as the files of that name hold them.
fn read_weight(group: &Node<'_>) -> Read<(u32, bool)> {
    let number = |key: &str, expected: &str, least: u32, most: u32| -> Read<Option<u32>> {
        let value = group.get(key).map(|node| node.integer(expected, least.into(), most.into())).transpose()?;
        Ok(value.map(|value| value as u32))
    };
    let shares = number("shares", "a weight", Group::LEAST_SHARES, Group::MOST_SHARES)?;
    let weight = number("cpu_weight", "a weight", 1, 10_000)?;
    let idle = number("cpu_idle", "a switch", 0, 1)? == Some(1);
    match (shares, weight) {
        (Some(_), Some(_)) => {
            Err(group.other("give one of \"shares\" and \"cpu_weight\"; a weight of 100 is that of 1024 shares"))
        }
        (None, None) if idle => Ok((Group::IDLE_SHARES, true)),
        _ if idle => {
            Err(group.other("an idle group has the weight of SCHED_IDLE; leave \"shares\" and \"cpu_weight\" out"))
        }
        (Some(shares), None) => Ok((shares, false)),
        // `sched_weight_from_cgroup`.
        (None, Some(weight)) => Ok(((weight * 1024 + 50) / 100, false)),
        (None, None) => Ok((Group::DEFAULT_SHARES, false)),
    }
}

/// A list of CPUs, as the kernel's files and parameters hold them.
fn read_cpu_list(node: &Node<'_>, key: &str) -> Read<Option<Vec<u32>>> {
    let Some(node) = node.get(key) else { return Ok(None) };
    let text = node.text("a list of CPUs as a text, such as \"0-3,8\"")?;
    let cpus = parse_cpu_list(text).map_err(|error| node.other(error.to_string()))?;
    Ok(Some(cpus.into_iter().collect()))
}

/// A group's quota, as the files of that name hold it.
fn read_cpu_max(group: &Node<'_>) -> Read<Option<CpuMax>> {
    let burst = group.get("cpu_max_burst");
    let burst_us = burst.as_ref().map_or(Ok(0), |node| node.u64("a number of microseconds"))?;
    let Some(node) = group.get("cpu_max").or(burst) else { return Ok(None) };
    let text = match node.value {
        super::json::Json::Text(text) => text.as_str(),
        _ if group.get("cpu_max").is_none() => "max",
        _ => return Err(node.expected("\"QUOTA PERIOD\" in microseconds, or \"max\"")),
    };
    CpuMax::parse(text, burst_us).map_err(|error| node.other(error.to_string()))
}

/// A group's bounds, as the files of that name hold them.
fn read_group_clamp(group: &Node<'_>) -> Read<GroupClamp> {
    let bound = |key: &str, unset: ClampPercent| {
        let Some(node) = group.get(key) else { return Ok(unset) };
        let text = node.text("a percentage as a text, such as \"37.5\", or \"max\"")?;
        ClampPercent::parse(text).map_err(|error| node.other(error.to_string()))
    };
    let min = bound("cpu_uclamp_min", ClampPercent::NOTHING)?;
    GroupClamp::new(min, bound("cpu_uclamp_max", ClampPercent::WHOLE)?).map_err(|error| group.other(error.to_string()))
}

/// The objects of a table, whose names must differ.
fn objects<'a>(node: &Node<'a>, key: &str, keys: &[&str]) -> Read<Vec<Node<'a>>> {
    let Some(list) = node.get(key) else { return Ok(Vec::new()) };
    let elements = list.elements(&format!("a list of objects with {}", keys.join(", ")))?;
    let mut seen = BTreeSet::new();
    for element in &elements {
        element.only_keys(keys, &format!("an object with {}", keys.join(", ")))?;
        if keys[0] == "name" {
            let name = name(element)?;
            if seen.contains(&name) {
                return Err(element.error(DocumentProblem::Duplicate { name }));
            }
            seen.insert(name);
        }
    }
    Ok(elements)
}

fn name(entry: &Node<'_>) -> Read<String> {
    Ok(entry.require("name", "give it a name")?.text("a name")?.to_owned())
}

fn barrier_wait(node: &Node<'_>) -> Read<BarrierWait> {
    if node.get("spin_then_block_ns").is_some() {
        node.only_keys(&["spin_then_block_ns"], "an object")?;
        let spin = node.require("spin_then_block_ns", "state the longest busy wait")?;
        return Ok(BarrierWait::SpinThenBlock { spin_ns: spin.nanoseconds()? });
    }
    let expected = "\"spin\", \"block\", \"poll\" or { \"spin_then_block_ns\": … }";
    node.word(expected, &[("spin", BarrierWait::Spin), ("block", BarrierWait::Block), ("poll", BarrierWait::Poll)])
}

fn read_style(node: &Node<'_>, names: &Names) -> Read<ResultStyle> {
    let expected = "an object with \"hackbench\", \"schbench\" or \"sysbench\"";
    let entries = node.entries(expected)?;
    match entries.as_slice() {
        [("hackbench", style)] => {
            style.only_keys(&["header"], "an object")?;
            let header = style.require("header", "state the lines before the time")?.text("a text")?;
            Ok(ResultStyle::Hackbench { header: header.to_owned() })
        }
        [("schbench", style)] => {
            style.only_keys(&["wakeup", "request"], "an object")?;
            let recorder = |key| names.recorder(&style.require(key, "name a recorder")?);
            Ok(ResultStyle::Schbench { wakeup: recorder("wakeup")?, request: recorder("request")? })
        }
        [("sysbench", style)] => {
            style.only_keys(&["transaction"], "an object")?;
            let transaction = names.recorder(&style.require("transaction", "name a recorder")?)?;
            Ok(ResultStyle::Sysbench { transaction })
        }
        _ => Err(node.expected(expected)),
    }
}
