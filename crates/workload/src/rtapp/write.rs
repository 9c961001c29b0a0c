//! Writing a workload as an rt-app JSON file that reads back equal.
//!
//! A workload that rt-app's words can say becomes a plain rt-app file. Otherwise the tables, and the programs and
//! attributes that rt-app lacks, go under the `warmcore` key; a task whose program rt-app cannot run has
//! `"instance": 0` in `tasks`, so that rt-app leaves it out.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_topology::format_cpu_list;

use super::express::{cpu_list, express, microseconds, policy_entries};
use super::extension::VERSION;
use super::json::{Json, object};
use super::print::{print, prints};
use super::read::{Options, from_rtapp, reads_back};
use super::steps::{write_affinity, write_policy, write_steps};
use super::tasks::write_util_clamp;
use crate::{
    Affinity, Aggregate, BarrierWait, ChannelKind, CheckError, ClampPercent, Group, GroupClamp, Hotplug, Policy,
    ProcessId, ResultStyle, Task, Workload,
};

/// Why a workload could not be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum WriteError {
    #[error("the workload cannot be run: {0}")]
    Check(#[from] CheckError),
    /// Two objects of one kind have the same name, which the file format uses to tell them apart.
    #[error("two {table} are called \"{name}\"; names in a file must differ")]
    DuplicateName { table: &'static str, name: String },
    #[error("the workload \"{name}\" has no form in a file that would read back equal")]
    NoForm { name: String },
}

/// Writes a workload. [`from_rtapp`] with the workload's name reads an equal one from the text.
///
/// # Errors
/// Workloads that [`Workload::check`] refuses, and tables in which a name occurs twice.
pub fn to_rtapp(workload: &Workload) -> Result<String, WriteError> {
    workload.check()?;
    unique_names(workload)?;
    if let Some(text) = plain(workload).map(|document| print(&document)).filter(|text| reads_back(workload, text)) {
        return Ok(text);
    }
    let mut own_program = own_programs(workload);
    // What an event means can depend on events of other tasks, so tasks that read back differently get their steps
    // written out, until none is left.
    loop {
        let text = print(&extended(workload, &own_program));
        if reads_back(workload, &text) {
            return Ok(text);
        }
        let Ok(read) = from_rtapp(&workload.name, &text, &Options::default()) else { break };
        let mut changed = false;
        for (index, own) in own_program.iter_mut().enumerate() {
            if !*own && program_of(&read, index) != program_of(workload, index) {
                *own = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    Err(WriteError::NoForm { name: workload.name.clone() })
}

/// Whether [`to_rtapp`] writes this text of a workload that [`from_rtapp`] has read from it, by the workload's name and no options.
///
/// As it is known that the text reads back equal, most often it need not be read again.
pub fn is_as_written(workload: &Workload, text: &str) -> bool {
    if workload.check().is_err() || unique_names(workload).is_err() {
        return false;
    }
    if let Some(document) = plain(workload) {
        if prints(&document, text) {
            return true;
        }
        if reads_back(workload, &print(&document)) {
            return false;
        }
    }
    prints(&extended(workload, &own_programs(workload)), text)
        || to_rtapp(workload).is_ok_and(|written| written == text)
}

/// Which tasks have a program that rt-app's events cannot say.
fn own_programs(workload: &Workload) -> Vec<bool> {
    if shares_programs(workload) {
        return vec![true; workload.tasks.len()];
    }
    workload.tasks.iter().map(|task| express(workload, task, false).is_none()).collect()
}

fn program_of(workload: &Workload, task: usize) -> Option<&crate::Program> {
    workload.tasks.get(task).and_then(|task| workload.programs.get(task.program.index()))
}

/// Whether the programs are other than one per task, in the order of tasks.
fn shares_programs(workload: &Workload) -> bool {
    workload.programs.len() != workload.tasks.len()
        || workload.tasks.iter().enumerate().any(|(index, task)| task.program.index() != index)
}

fn unique_names(workload: &Workload) -> Result<(), WriteError> {
    fn unique<'a>(table: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), WriteError> {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name) {
                return Err(WriteError::DuplicateName { table, name: name.to_owned() });
            }
        }
        Ok(())
    }
    for (table, names) in [
        ("applications", &workload.applications),
        ("locks", &workload.locks),
        ("conditions", &workload.conditions),
        ("lists", &workload.lists),
        ("timers", &workload.timers),
        ("recorders", &workload.recorders),
        ("phases", &workload.phases),
    ] {
        unique(table, names.iter().map(String::as_str))?;
    }
    unique("tasks", workload.tasks.iter().map(|task| task.name.as_str()))?;
    unique("processes", workload.processes.iter().map(|process| process.name.as_str()))?;
    unique("task groups", workload.groups.iter().map(|group| group.name.as_str()))?;
    unique("aggregation groups", workload.aggregation.groups.iter().map(String::as_str))?;
    unique("data groups", workload.data_groups.iter().map(|group| group.name.as_str()))?;
    unique("barriers", workload.barriers.iter().map(|barrier| barrier.name.as_str()))?;
    unique("semaphores", workload.semaphores.iter().map(|semaphore| semaphore.name.as_str()))?;
    unique("channels", workload.channels.iter().map(|channel| channel.name.as_str()))
}

type Entries = Vec<(String, Json)>;

/// The file without a `warmcore` key, if every program has a form.
fn plain(workload: &Workload) -> Option<Json> {
    let tasks: Option<Entries> = workload
        .tasks
        .iter()
        .map(|task| {
            let body = express(workload, task, true)?;
            Some((task.name.clone(), Json::Object(task_object(workload, task, Some(body)))))
        })
        .collect();
    Some(object([("tasks", Json::Object(tasks?)), ("global", global(workload))]))
}

/// The file with a `warmcore` key. `own_program` says which tasks have their program there.
fn extended(workload: &Workload, own_program: &[bool]) -> Json {
    let mut tasks = Entries::new();
    let mut described = Entries::new();
    let shared = shares_programs(workload);
    for (task, own) in workload.tasks.iter().zip(own_program) {
        let body = if *own { None } else { express(workload, task, false) };
        tasks.push((task.name.clone(), Json::Object(task_object(workload, task, body))));
        described.push((task.name.clone(), Json::Object(description(workload, task, *own, shared))));
    }
    let mut extension = tables(workload);
    extension.push(("tasks".to_owned(), Json::Object(described)));
    object([("tasks", Json::Object(tasks)), ("global", global(workload)), ("warmcore", Json::Object(extension))])
}

fn global(workload: &Workload) -> Json {
    let duration = match whole_seconds(workload) {
        Some(seconds) => Json::from(seconds),
        None => Json::Integer(-1),
    };
    object([("duration", duration), ("default_policy", "SCHED_OTHER".into()), ("lock_pages", Json::Bool(false))])
}

/// The duration in seconds, if rt-app can say it.
fn whole_seconds(workload: &Workload) -> Option<u64> {
    workload.duration_ns.filter(|ns| *ns > 0 && ns % 1_000_000_000 == 0).map(|ns| ns / 1_000_000_000)
}

/// A task for rt-app. Without a body it stands for nothing.
fn task_object(workload: &Workload, task: &Task, body: Option<Entries>) -> Entries {
    let mut entries = Entries::new();
    let mut add = |key: &str, value: Json| entries.push((key.to_owned(), value));
    let Some(body) = body else {
        add("instance", Json::Integer(0));
        add("loop", Json::Integer(1));
        add("sleep", Json::Integer(0));
        return entries;
    };
    if task.instances != 1 {
        add("instance", task.instances.into());
    }
    if task.start_ns > 0
        && let Some(delay) = microseconds(task.start_ns)
    {
        add("delay", delay);
    }
    if let Affinity::OsCpus(list) = &task.affinity {
        add("cpus", cpu_list(list));
    }
    if task.policy != Policy::Normal {
        policy_entries(task.policy).into_iter().flatten().for_each(|(key, value)| add(&key, value));
    }
    if task.nice != 0 {
        add("priority", Json::Integer(task.nice.into()));
    }
    if let Some(slice) = task.slice_ns.filter(|ns| *ns > 0).and_then(microseconds) {
        add("dl-runtime", slice);
    }
    write_util_clamp(task.util_clamp).for_each(|(key, value)| add(key, value));
    if let Some(path) = rtapp_group(workload, task) {
        add("taskgroup", path.into());
    }
    entries.extend(body);
    entries
}

fn rtapp_group<'a>(workload: &'a Workload, task: &Task) -> Option<&'a str> {
    let name = workload.groups[task.group?.index()].name.as_str();
    (name.len() > 1 && name.starts_with('/')).then_some(name)
}

/// What rt-app's object for the task does not say. `shared` is whether the workload [shares programs](shares_programs).
fn description(workload: &Workload, task: &Task, own_program: bool, shared: bool) -> Entries {
    let mut entries = Entries::new();
    let mut add = |key: &str, value: Json| entries.push((key.to_owned(), value));
    if task.process != ProcessId(0) {
        add("process", Json::Text(workload.processes[task.process.index()].name.clone()));
    }
    if task.role != task.name {
        add("role", Json::Text(task.role.clone()));
    }
    if let Some(comm) = &task.comm {
        add("comm", Json::Text(comm.clone()));
    }
    if let Some(profile) = &task.profile {
        add("profile", Json::Text(profile.clone()));
    }
    if !task.phase_profiles.is_empty() {
        let name = |phase: u32| workload.phases[phase as usize].clone();
        let profiles = task.phase_profiles.iter().map(|(phase, profile)| (name(*phase), Json::Text(profile.clone())));
        add("phase_profiles", Json::Object(profiles.collect()));
    }
    if !task.data_groups.is_empty() {
        let names = task.data_groups.iter().map(|id| Json::Text(workload.data_groups[id.index()].name.clone()));
        add("data", Json::Array(names.collect()));
    }
    if let Some(cpu) = task.start_cpu {
        add("start_cpu", cpu.into());
    }
    if let Some(ns) = task.release_ns {
        add("release_ns", ns.into());
    }
    if task.start_ns > 0 && (own_program || microseconds(task.start_ns).is_none()) {
        add("start_ns", task.start_ns.into());
    }
    if let Some(ns) = task.slice_ns.filter(|ns| own_program || *ns == 0 || microseconds(*ns).is_none()) {
        add("slice_ns", ns.into());
    }
    if own_program {
        write_util_clamp(task.util_clamp).for_each(|(key, value)| add(key, value));
    }
    if let Some(ns) = task.timer_slack_ns {
        add("timer_slack_ns", ns.into());
    }
    match &task.affinity {
        Affinity::All => {}
        Affinity::OsCpus(_) if !own_program => {}
        affinity => add("affinity", write_affinity(affinity)),
    }
    if let Some(group) = task.group.filter(|_| own_program || rtapp_group(workload, task).is_none()) {
        add("taskgroup", Json::Text(workload.groups[group.index()].name.clone()));
    }
    if own_program {
        if task.instances != 1 {
            add("instances", task.instances.into());
        }
        if task.nice != 0 {
            add("nice", Json::Integer(task.nice.into()));
        }
        if task.policy != Policy::Normal {
            add("policy", write_policy(task.policy));
        }
        let program = if shared {
            Json::from(task.program.0)
        } else {
            write_steps(workload, &workload.programs[task.program.index()].steps)
        };
        add("program", program);
    }
    entries
}

/// Whom to keep together.
fn aggregate(workload: &Workload) -> Json {
    let aggregation = &workload.aggregation;
    let choices = |table: &BTreeMap<u32, Aggregate>, name: &dyn Fn(usize) -> String| {
        let entry =
            |(&index, &choice): (&u32, &Aggregate)| (name(index as usize), Json::Text(aggregation.text(choice)));
        Json::Object(table.iter().map(entry).collect())
    };
    let processes = choices(&aggregation.processes, &|index| workload.processes[index].name.clone());
    let groups = choices(&aggregation.task_groups, &|index| workload.groups[index].name.clone());
    let data = choices(&aggregation.data_groups, &|index| workload.data_groups[index].name.clone());
    let names = aggregation.groups.iter().map(|name| Json::Text(name.clone())).collect();
    object([("groups", Json::Array(names)), ("processes", processes), ("taskgroups", groups), ("data", data)])
}

/// A task group. The group in which it lies is said where that does not follow from its path.
fn group_entry(workload: &Workload, group: &Group) -> Json {
    let weight = if group.idle { ("cpu_idle", 1) } else { ("shares", group.shares) };
    let mut entries = vec![("name".to_owned(), group.name.as_str().into()), (weight.0.to_owned(), weight.1.into())];
    let parent = group.parent.map(|parent| workload.groups[parent.index()].name.as_str());
    if parent != Group::parent_path(&group.name) {
        entries.push(("parent".to_owned(), parent.unwrap_or("/").into()));
    }
    if let Some(cpu_max) = group.cpu_max {
        entries.push(("cpu_max".to_owned(), Json::Text(cpu_max.to_string())));
        if cpu_max.burst_us() > 0 {
            entries.push(("cpu_max_burst".to_owned(), cpu_max.burst_us().into()));
        }
    }
    if let Some(cpus) = &group.cpus {
        entries.push(("cpuset_cpus".to_owned(), Json::Text(format_cpu_list(cpus.iter().copied()))));
    }
    let GroupClamp { min, max } = group.clamp;
    for (key, value, unset) in
        [("cpu_uclamp_min", min, ClampPercent::NOTHING), ("cpu_uclamp_max", max, ClampPercent::WHOLE)]
    {
        if value != unset {
            entries.push((key.to_owned(), Json::Text(value.to_string())));
        }
    }
    Json::Object(entries)
}

/// All tables in order, so that ids stay as they are.
fn tables(workload: &Workload) -> Entries {
    let mut entries = vec![("version".to_owned(), Json::from(VERSION))];
    if let Some(ns) = workload.duration_ns.filter(|_| whole_seconds(workload).is_none()) {
        entries.push(("duration_ns".to_owned(), ns.into()));
    }
    if let Some(ns) = workload.warm_up_ns {
        entries.push(("warm_up_ns".to_owned(), ns.into()));
    }
    if !workload.hotplug.is_empty() {
        let change = |change: &Hotplug| {
            let verb = if change.online { "online" } else { "offline" };
            object([("at_ns", change.time_ns.into()), (verb, change.cpu.into())])
        };
        entries.push(("hotplug".to_owned(), Json::Array(workload.hotplug.iter().map(change).collect())));
    }
    for (key, list) in [("isolcpus", &workload.isolcpus), ("nohz_full", &workload.nohz_full)] {
        if !list.is_empty() {
            entries.push((key.to_owned(), Json::Text(format_cpu_list(list.iter().copied()))));
        }
    }
    if !workload.notes.is_empty() {
        let notes = workload.notes.iter().map(|note| Json::Text(note.clone())).collect();
        entries.push(("notes".to_owned(), Json::Array(notes)));
    }
    let mut add = |key: &str, list: Vec<Json>| {
        if !list.is_empty() {
            entries.push((key.to_owned(), Json::Array(list)));
        }
    };
    let text = |name: &String| Json::Text(name.clone());
    add("command", workload.command.iter().map(text).collect());
    add("applications", workload.applications.iter().map(text).collect());
    let processes = workload.processes.iter().map(|process| {
        let application = &workload.applications[process.application as usize];
        object([("name", text(&process.name)), ("application", text(application))])
    });
    add("processes", processes.collect());
    add("groups", workload.groups.iter().map(|group| group_entry(workload, group)).collect());
    let data = workload.data_groups.iter();
    add("data_groups", data.map(|data| object([("name", text(&data.name)), ("bytes", data.bytes.into())])).collect());
    add("profiles", workload.profiles.iter().map(super::profiles::write).collect());
    let barriers = workload.barriers.iter().map(|barrier| {
        let wait = match barrier.wait {
            BarrierWait::Spin => "spin".into(),
            BarrierWait::Block => "block".into(),
            BarrierWait::Poll => "poll".into(),
            BarrierWait::SpinThenBlock { spin_ns } => object([("spin_then_block_ns", spin_ns.into())]),
        };
        object([("name", text(&barrier.name)), ("participants", barrier.participants.into()), ("wait", wait)])
    });
    add("barriers", barriers.collect());
    let latches = workload.latches.iter().map(|latch| {
        let name = text(&workload.locks[latch.lock.index()]);
        if latch.kind.is_of_kernel() {
            return object([("name", name), ("kind", latch.kind.name().into()), ("lines", latch.lines.into())]);
        }
        let entry: [(&str, Json); 5] = [
            ("name", name),
            ("spin_ns", latch.spin_ns.into()),
            ("poll_ns", latch.poll_ns.into()),
            ("wakes", if latch.wakes_all { "all" } else { "one" }.into()),
            ("lines", latch.lines.into()),
        ];
        let sleep = (latch.sleep_ns > 0).then(|| ("sleep_ns", latch.sleep_ns.into()));
        Json::Object(entry.into_iter().chain(sleep).map(|(key, value)| (key.to_owned(), value)).collect())
    });
    add("latches", latches.collect());
    let semaphores = workload
        .semaphores
        .iter()
        .map(|semaphore| object([("name", text(&semaphore.name)), ("initial", semaphore.initial.into())]));
    add("semaphores", semaphores.collect());
    let channels = workload.channels.iter().map(|channel| {
        let kind = if channel.kind == ChannelKind::Pipe { "pipe" } else { "socket" };
        let capacity = channel.capacity_bytes.into();
        object([("name", text(&channel.name)), ("kind", kind.into()), ("capacity_bytes", capacity)])
    });
    add("channels", channels.collect());
    for (key, names) in [
        ("locks", &workload.locks),
        ("conditions", &workload.conditions),
        ("lists", &workload.lists),
        ("timers", &workload.timers),
        ("recorders", &workload.recorders),
        ("phases", &workload.phases),
    ] {
        add(key, names.iter().map(text).collect());
    }
    if shares_programs(workload) {
        let programs = workload.programs.iter();
        add("programs", programs.map(|program| write_steps(workload, &program.steps)).collect());
    }
    let warnings = workload.warnings.iter().map(|warning| {
        let (what, consequence) = (text(&warning.what), text(&warning.consequence));
        object([("what", what), ("consequence", consequence), ("count", warning.count.into())])
    });
    add("warnings", warnings.collect());
    if !workload.aggregation.is_default() {
        entries.push(("aggregate".to_owned(), aggregate(workload)));
    }
    let style = match &workload.style {
        ResultStyle::Plain => return entries,
        ResultStyle::Hackbench { header } => object([("hackbench", object([("header", text(header))]))]),
        ResultStyle::Schbench { wakeup, request } => {
            let recorder = |index: usize| text(&workload.recorders[index]);
            let recorders = [("wakeup", recorder(wakeup.index())), ("request", recorder(request.index()))];
            object([("schbench", object(recorders))])
        }
        ResultStyle::Sysbench { transaction } => {
            let recorder = text(&workload.recorders[transaction.index()]);
            object([("sysbench", object([("transaction", recorder)]))])
        }
    };
    entries.push(("style".to_owned(), style));
    entries
}
