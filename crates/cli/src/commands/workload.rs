//! `warmcore workload` and `warmcore list workloads`.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;

use serde::Serialize;
use warmcore_lab::verdict::describe_warning;
use warmcore_memory::fit::{self, Counters, Fit, FitError};
use warmcore_memory::profiles_to_toml;
use warmcore_workload::library::{LIBRARY, NamedSource};
use warmcore_workload::{FlagInfo, Options, Program, Step, Task, Workload};

use crate::args::{ProfileFormat, WorkloadCommand};
use crate::commands::{as_document, write_output, write_result};
use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::load;

/// The document of `list workloads --json`.
#[derive(Serialize)]
struct GeneratorsDocument {
    generators: Vec<GeneratorEntry>,
    named: Vec<NamedWorkload>,
}

/// One workload with a name in it.
#[derive(Serialize)]
struct NamedWorkload {
    name: &'static str,
    summary: &'static str,
    origin: &'static str,
    /// The text it stands for, unless it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'static str>,
}

#[derive(Serialize)]
struct GeneratorEntry {
    name: &'static str,
    summary: &'static str,
    usage: &'static str,
    notes: &'static str,
    flags: Vec<Flag>,
}

#[derive(Serialize)]
struct Flag {
    flag: String,
    help: &'static str,
}

/// The document of `workload show --json`.
#[derive(Serialize)]
struct WorkloadDocument {
    name: String,
    tasks: Vec<TaskSummary>,
    /// What its tasks share, and how many of each; only what there is.
    objects: BTreeMap<&'static str, usize>,
    /// When it ends; absent if that is when its last task exits.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ns: Option<u64>,
    /// How long after its start nothing of a run counts; absent if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    warm_up_ns: Option<u64>,
    not_modelled: Vec<String>,
}

/// One task in it, or several of a kind.
#[derive(Serialize)]
struct TaskSummary {
    name: String,
    role: String,
    instances: u32,
    nice: i32,
    application: String,
    process: String,
    /// Of its program.
    steps: usize,
    /// Times that its program draws, each distribution once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drawn: Vec<String>,
}

/// The document of `workload fit --json`.
#[derive(Serialize)]
struct FitDocument<'a> {
    points: Vec<FittedPoint>,
    /// What a user should know of the fit.
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// The profile in the format that was asked for, where it went to no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// One measured point in it.
#[derive(Serialize)]
struct FittedPoint {
    capacity_bytes: u64,
    ways: u32,
    /// Misses per 1000 instructions.
    measured_mpki: f64,
    fitted_mpki: f64,
}

pub fn run(command: WorkloadCommand, console: &Console) -> Result<(), Failure> {
    match command {
        WorkloadCommand::Show { workload, profiles } => {
            let workload = load::workload(&workload, console.strict(), &load::profiles(profiles.as_deref())?)?.value;
            let summary = WorkloadDocument::of(&workload);
            Ok(console.out_words(&match console.json() {
                true => as_document("warmcore-workload-summary-1", &summary),
                false => in_words(&summary, console),
            })?)
        }
        WorkloadCommand::Convert { workload, profiles, out } => {
            let workload = load::workload(&workload, console.strict(), &load::profiles(profiles.as_deref())?)?.value;
            load::warn_unmodelled(&workload, console);
            let text =
                warmcore_workload::to_rtapp(&workload).map_err(|error| Failure::failed("warmcore::workload", error))?;
            write_result(out.as_deref(), ("workload", &text), console)
        }
        WorkloadCommand::Fit { counters, to, out } => fit(&counters, to, out.as_deref(), console),
        WorkloadCommand::Run { workload, max_time, report } => {
            let strict = console.strict();
            let multiply_add_ps = has_schbench(&workload).then(|| measure_multiply_add(console));
            let workload =
                load::workload_with(&workload, &Options { strict, multiply_add_ps, ..Options::default() })?.value;
            match report {
                true => super::native::report(&workload, max_time, console),
                false => super::native::run(&workload, max_time, console),
            }
        }
    }
}

/// Whether a part of a workload's text is the generator schbench.
fn has_schbench(text: &str) -> bool {
    text.split('+').any(|part| part.trim().split(':').next() == Some("schbench"))
}

/// What a step of schbench's matrix multiplication costs on this computer.
fn measure_multiply_add(console: &Console) -> NonZeroU64 {
    let ps = warmcore_native::measure_multiply_add_ps();
    console.note(&format!("a multiplication and addition of schbench takes {:.2} ns here", ps.get() as f64 / 1e3));
    ps
}

/// Prints the generators, and workloads with names.
pub fn list(console: &Console) -> Result<(), Failure> {
    let generators: Vec<GeneratorEntry> = warmcore_workload::generators()
        .iter()
        .map(|generator| GeneratorEntry {
            name: generator.name,
            summary: generator.summary,
            usage: generator.usage,
            notes: generator.notes,
            flags: generator.flags.iter().map(|flag| Flag { flag: spelling(flag), help: flag.help }).collect(),
        })
        .collect();
    let named = LIBRARY.iter().map(|entry| NamedWorkload {
        name: entry.name,
        summary: entry.summary,
        origin: entry.origin,
        text: match entry.source {
            NamedSource::File(_) => None,
            NamedSource::Text(text) => Some(text),
        },
    });
    let named: Vec<NamedWorkload> = named.collect();
    if console.json() {
        return Ok(console.out(&as_document("warmcore-generators-1", &GeneratorsDocument { generators, named }))?);
    }
    let mut text = String::new();
    for generator in generators {
        text.push_str(&format!("{}: {}\n  {}\n", generator.name, generator.summary, generator.usage));
        let mut table = Table::new(["  flag", "meaning"]);
        for flag in generator.flags {
            table.row([format!("  {}", flag.flag), flag.help.to_owned()]);
        }
        text.push_str(&format!("{}  {}\n\n", console.plain_table(&table), generator.notes));
    }
    text.push_str("Workloads with names of their own, for published experiments (`warmcore workload show NAME`):\n");
    let mut table = Table::new(["  name", "what it is"]);
    for entry in named {
        table.row([format!("  {}", entry.name), entry.summary.to_owned()]);
    }
    text.push_str(&format!("{}\n", console.plain_table(&table)));
    text.push_str("Any number of them, and files in rt-app's format, run side by side when joined by +.\n");
    Ok(console.out_words(&text)?)
}

/// `-f, --fds COUNT`.
fn spelling(flag: &FlagInfo) -> String {
    let short = flag.short.map(|short| format!("-{short}, ")).unwrap_or_default();
    let value = flag.value.map(|value| format!(" {value}")).unwrap_or_default();
    format!("{short}--{}{value}", flag.long)
}

impl WorkloadDocument {
    fn of(workload: &Workload) -> Self {
        let objects = [
            ("locks", workload.locks.len()),
            ("conditions", workload.conditions.len()),
            ("barriers", workload.barriers.len()),
            ("semaphores", workload.semaphores.len()),
            ("pipes and sockets", workload.channels.len()),
            ("lists", workload.lists.len()),
            ("timers", workload.timers.len()),
            ("task groups", workload.groups.len()),
            ("recorders", workload.recorders.len()),
        ];
        let task = |task: &Task| {
            let process = &workload.processes[task.process.index()];
            TaskSummary {
                name: task.name.clone(),
                role: task.role.clone(),
                instances: task.instances,
                nice: i32::from(task.nice),
                application: workload.applications.get(process.application as usize).cloned().unwrap_or_default(),
                process: process.name.clone(),
                steps: workload.programs[task.program.index()].steps.len(),
                drawn: drawn(&workload.programs[task.program.index()]),
            }
        };
        Self {
            name: workload.name.clone(),
            tasks: workload.tasks.iter().map(task).collect(),
            objects: objects.into_iter().filter(|(_, count)| *count > 0).collect(),
            duration_ns: workload.duration_ns,
            warm_up_ns: workload.warm_up_ns,
            not_modelled: workload.warnings.iter().map(describe_warning).collect(),
        }
    }
}

/// What a program draws, each distribution once.
fn drawn(program: &Program) -> Vec<String> {
    let mut drawn: Vec<String> = Vec::new();
    for step in &program.steps {
        if let Step::Draw { from, .. } = step {
            let line = format!("{} {from}", step.name());
            if !drawn.contains(&line) {
                drawn.push(line);
            }
        }
    }
    drawn
}

fn in_words(summary: &WorkloadDocument, console: &Console) -> String {
    let mut text = format!("{}\n\n", summary.name);
    let mut tasks = Table::new(["task", "role", ">instances", ">nice", "application", "process", ">steps"]);
    for task in &summary.tasks {
        tasks.row([
            task.name.clone(),
            task.role.clone(),
            task.instances.to_string(),
            task.nice.to_string(),
            task.application.clone(),
            task.process.clone(),
            task.steps.to_string(),
        ]);
    }
    text.push_str(&console.table(&tasks));
    let mut objects = Table::new(["objects", ">count"]);
    for (name, count) in &summary.objects {
        objects.row([(*name).to_owned(), count.to_string()]);
    }
    text.push_str(&format!("\n{}", console.table(&objects)));
    for task in summary.tasks.iter().filter(|task| !task.drawn.is_empty()) {
        text.push_str(&format!("\n{} draws: {}\n", task.name, task.drawn.join("; ")));
    }
    let ends = match summary.duration_ns {
        Some(ns) => format!("after {}", warmcore_workload::format_duration(ns)),
        None => "when its last task exits".into(),
    };
    text.push_str(&format!("\nEnds {ends}.\n"));
    if let Some(ns) = summary.warm_up_ns {
        text.push_str(&format!("Its first {} do not count.\n", warmcore_workload::format_duration(ns)));
    }
    for warning in &summary.not_modelled {
        text.push_str(&format!("Not modelled: {warning}\n"));
    }
    text
}

/// A profile from counters, with the points it was fitted to as comments.
fn fit(path: &Path, to: ProfileFormat, out: Option<&Path>, console: &Console) -> Result<(), Failure> {
    const CODE: &str = "warmcore::fit";
    let text = warmcore_lab::files::text_of_file(path).map_err(|error| Failure::cannot_read(path, &error))?;
    let counters = Counters::from_toml(&text).map_err(|error| {
        Failure::usage(CODE, format!("{}: {error}", path.display())).help("docs/models/memory.md shows the form")
    })?;
    let fitted = fit::fit(&counters).map_err(|error| {
        // Counters that can be, but that no profile explains, are a check that failed.
        let class = if matches!(error, FitError::Poor { .. }) { Class::Check } else { Class::Usage };
        Failure::new(class, CODE, format!("{}: {error}", path.display()))
    })?;
    fitted.notes.iter().for_each(|note| console.warn(note));
    let text = match to {
        ProfileFormat::Json => warmcore_workload::profiles_to_json(std::slice::from_ref(&fitted.profile)),
        ProfileFormat::Toml => fitted_toml(&fitted),
    };
    if !console.json() {
        return write_output(out, &text, console);
    }
    let out = out.filter(|path| *path != Path::new("-"));
    if out.is_some() {
        write_output(out, &text, console)?;
    }
    let points = fitted.points.iter().map(|(point, fitted_mpki)| FittedPoint {
        capacity_bytes: point.capacity,
        ways: point.ways,
        measured_mpki: point.mpki,
        fitted_mpki: *fitted_mpki,
    });
    let document = FitDocument {
        points: points.collect(),
        notes: &fitted.notes,
        file: out.map(|path| path.display().to_string()),
        text: out.is_none().then_some(&text),
    };
    Ok(console.out(&as_document("warmcore-fit-1", &document))?)
}

fn fitted_toml(fitted: &Fit) -> String {
    let mut text = String::from("# capacity in bytes, ways, misses per 1000 instructions as measured and as fitted\n");
    for (point, mpki) in &fitted.points {
        text.push_str(&format!("# {:>12} {:>3} {:>10.4} {:>10.4}\n", point.capacity, point.ways, point.mpki, mpki));
    }
    text.push('\n');
    text.push_str(&profiles_to_toml(std::slice::from_ref(&fitted.profile)));
    text
}
