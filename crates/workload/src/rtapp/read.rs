//! The document as a whole.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::events::{DEFAULT_MEMORY_BYTES, Survey};
use super::extension::{self, OwnProgram};
use super::json::{self, Json};
use super::names::Names;
use super::node::{Node, Read};
use super::tasks::{self, POLICIES, PolicyName};
use crate::error::{DocumentError, DocumentProblem};
use crate::{Policy, Program, ProgramId, Task, Workload, WorkloadError};

/// How a file is read.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Options<'a> {
    /// Make anything that would be a warning an error.
    pub strict: bool,
    /// What one multiplication and addition of schbench costs, in picoseconds, where it has been measured on the
    /// computer that will run it; otherwise it is the 3 ns that machines are simulated with.
    pub multiply_add_ps: Option<NonZeroU64>,
    /// Memory profiles that tasks may name: after the workload's own, before those that are shipped. The workload keeps those that it names.
    pub profiles: &'a [warmcore_memory::Profile],
    /// Memory profile of tasks that name none; [`resolve`](crate::resolve) alone heeds it.
    pub assume_profile: Option<&'a str>,
}

/// Reads an rt-app JSON document. `name` becomes the workload's name, usually the file's stem.
///
/// # Errors
/// Text that is no JSON (with line and column), values that are impossible (with their path in the document), and
/// workloads that cannot be run. With [`Options::strict`], also everything that is accepted but not modelled.
pub fn from_rtapp(name: &str, text: &str, options: &Options<'_>) -> Result<Workload, WorkloadError> {
    let document = json::parse(text)?;
    let read = |wants_paths| {
        let (names, paths) = read_document(name, &Node::root(&document), options.profiles, wants_paths, None)?;
        Ok::<_, DocumentError>((names.workload, paths))
    };
    let (mut workload, _) = read(false)?;
    workload.drop_unused(options.profiles);
    if let Err(error) = workload.check() {
        let paths = match error.step {
            Some((program, _)) => read(true)?.1.into_iter().nth(program.index()).unwrap_or_default(),
            None => Vec::new(),
        };
        let path = error.step.and_then(|(_, step)| paths.into_iter().nth(step));
        return Err(match path {
            Some(path) => DocumentError { path, problem: DocumentProblem::Check(error.problem) }.into(),
            None => WorkloadError::Check(error),
        });
    }
    if options.strict && !workload.warnings.is_empty() {
        return Err(WorkloadError::Strict { warnings: workload.warnings });
    }
    Ok(workload)
}

/// Settings of the `global` object that matter before tasks are read.
struct Global {
    default_policy: PolicyName,
    duration_ns: Option<u64>,
    memory_bytes: u64,
}

/// Whether [`from_rtapp`] reads this workload, which can be run, from a text by its name and without options. Its programs, which may be all
/// that is large of it, are let go one by one as they are read.
pub(super) fn reads_back(workload: &Workload, text: &str) -> bool {
    let Ok(document) = json::parse(text) else { return false };
    let Ok((names, _)) = read_document(&workload.name, &Node::root(&document), &[], false, Some(workload)) else {
        return false;
    };
    let mut read = names.workload;
    read.drop_unused(&[]);
    !names.has_other_programs
        && read.programs.len() == workload.programs.len()
        && read.is_equal_but_for_programs(workload)
}

/// The workload with the names in it, and the path of every step of every program, if that is wanted. Where a workload is expected, its
/// programs are left out ([`Names::add_program`]).
fn read_document(
    name: &str,
    root: &Node<'_>,
    profiles: &[warmcore_memory::Profile],
    wants_paths: bool,
    expected: Option<&Workload>,
) -> Read<(Names, Vec<Vec<String>>)> {
    root.entries("an object with \"tasks\"")?;
    let tasks = root.require("tasks", "an rt-app file has an object \"tasks\" with one object per task")?;
    let tasks = tasks.entries("an object with one object per task")?;

    let mut workload = Workload::empty(name);
    let global = read_global(root, &mut workload)?;
    workload.duration_ns = global.duration_ns;
    let mut survey = Survey { memory_bytes: global.memory_bytes, wants_paths, ..Survey::default() };
    let extension = root.get("warmcore");
    if let Some(extension) = &extension {
        extension::read_tables(extension, &mut workload, &mut survey)?;
    }
    workload.offer(profiles);
    for (key, node) in root.entries("an object")? {
        match key {
            "tasks" | "global" | "warmcore" => {}
            "resources" if matches!(node.value, Json::Object(_) | Json::Integer(_)) => {}
            "resources" => return Err(node.expected("an object, or a number as in old files")),
            _ => {
                let near = crate::nearest::suggestion(key, ["tasks", "global", "resources", "warmcore"]);
                workload.warn(format!("key \"{key}\" of the document{near}"), "ignored, as rt-app does");
            }
        }
    }

    let mut names = Names::new(workload, tasks.iter().map(|(name, _)| *name));
    extension::read_processes(extension.as_ref(), &mut names)?;
    let mut paths = match &extension {
        Some(extension) => extension::read_programs(extension, &mut names, &survey, expected)?,
        None => Vec::new(),
    };
    let described = match extension.as_ref().and_then(|extension| extension.get("tasks")) {
        Some(described) => described.entries("an object with one object per task")?,
        None => Vec::new(),
    };
    if let Some((name, node)) = described.iter().find(|(name, _)| !names.is_task(name)) {
        return Err(unknown_task(name, node, &tasks));
    }
    let described: BTreeMap<&str, Node<'_>> = described.into_iter().collect();
    for (name, node) in &tasks {
        if described.get(name).is_none_or(|described| described.get("program").is_none()) {
            tasks::survey(&mut survey, name, node)?;
        }
    }
    for (name, node) in &tasks {
        let (program, task) = read_task(&mut names, &survey, global.default_policy, name, node, described.get(name))?;
        if let Some((program, program_paths)) = program {
            names.add_program(program, expected);
            paths.push(program_paths);
        }
        names.workload.add_task(task);
    }
    if let Some(extension) = &extension {
        extension::read_aggregate(extension, &mut names.workload)?;
    }
    Ok((names, paths))
}

/// A program and the path of every step, if that is wanted.
type WithPaths = (Program, Vec<String>);

/// A task, and its program if that is the task's own.
fn read_task(
    names: &mut Names,
    survey: &Survey,
    default_policy: PolicyName,
    name: &str,
    node: &Node<'_>,
    described: Option<&Node<'_>>,
) -> Read<(Option<WithPaths>, Task)> {
    let next = ProgramId(names.workload.programs.len() as u32);
    let own = match described {
        Some(described) => extension::read_task_program(described, names, survey, name)?,
        None => None,
    };
    if own.is_some() {
        tasks::refuse_properties(node)?;
    }
    let (mut task, program): (Task, Option<WithPaths>) = match own {
        Some(OwnProgram::Shared(program)) => (Task::without_events(name, program), None),
        Some(OwnProgram::Own(program, paths)) => (Task::without_events(name, next), Some((program, paths))),
        None => {
            let compiled = tasks::compile(names, survey, default_policy, name, node, next)?;
            (compiled.task, Some((compiled.program, compiled.paths)))
        }
    };
    if let Some(described) = described {
        extension::apply_to_task(described, names, &mut task)?;
    }
    if task.profile.is_none() {
        task.profile = names.process_profiles.get(task.process.index()).cloned().flatten();
    }
    Ok((program, task))
}

fn unknown_task(name: &str, node: &Node<'_>, tasks: &[(&str, Node<'_>)]) -> DocumentError {
    let suggestion = crate::nearest::suggestion(name, tasks.iter().map(|(name, _)| *name));
    node.error(DocumentProblem::UnknownName { kind: "task", name: name.to_owned(), suggestion })
}

/// Settings that only concern what rt-app itself writes.
const OUTPUT_SETTINGS: [&str; 7] =
    ["logdir", "log_basename", "log_size", "gnuplot", "ftrace", "cumulative_slack", "frag"];

/// Settings that change something, or are said to change nothing.
const GLOBAL_SETTINGS: [&str; 7] =
    ["duration", "default_policy", "mem_buffer_size", "calibration", "lock_pages", "pi_enabled", "io_device"];

fn read_global(root: &Node<'_>, workload: &mut Workload) -> Read<Global> {
    let mut settings = Global {
        default_policy: PolicyName::Fair(Policy::Normal),
        duration_ns: None,
        memory_bytes: DEFAULT_MEMORY_BYTES,
    };
    let Some(global) = root.get("global") else { return Ok(settings) };
    for (key, node) in global.entries("an object with settings")? {
        match key {
            "duration" => {
                let most = i128::from(crate::MAX_DURATION_NS / 1_000_000_000);
                let seconds = node.integer("a whole number of seconds, or -1", -1, most)?;
                settings.duration_ns = (seconds > 0).then(|| seconds as u64 * 1_000_000_000);
            }
            "default_policy" => settings.default_policy = node.word("the name of a policy", &POLICIES)?,
            "mem_buffer_size" => settings.memory_bytes = node.u64("a number of bytes")?,
            "calibration" => workload.warn(
                "global setting \"calibration\"",
                "\"run\" is work at the nominal speed of a CPU of capacity 1024",
            ),
            "lock_pages" | "pi_enabled" if matches!(node.value, Json::Bool(false)) => {}
            "lock_pages" => workload.warn("global setting \"lock_pages\"", "no effect: paging is not modelled"),
            "pi_enabled" => workload.warn("global setting \"pi_enabled\"", "priority inheritance is not modelled"),
            "io_device" if matches!(node.value, Json::Text(path) if path == "/dev/null") => {}
            "io_device" => workload.warn("global setting \"io_device\"", "\"iorun\" writes to the null device"),
            _ if OUTPUT_SETTINGS.contains(&key) => {
                let asks_for_nothing = match node.value {
                    Json::Bool(value) => !value,
                    Json::Text(word) => word == "none" || word == "disable",
                    _ => false,
                };
                if !asks_for_nothing {
                    workload.warn(
                        "global settings for rt-app's own logs and traces",
                        "no effect: results are recorded in other formats",
                    );
                }
            }
            _ => {
                let near = crate::nearest::suggestion(key, GLOBAL_SETTINGS);
                workload.warn(format!("global setting \"{key}\"{near}"), "ignored, as rt-app does");
            }
        }
    }
    Ok(settings)
}
