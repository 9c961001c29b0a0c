//! From texts on the command line to machines, workloads and schedulers.

use std::path::Path;

use warmcore_kernel::MemoryChoice;
use warmcore_lab::experiment::Named;
use warmcore_lab::verdict::describe_warning;
use warmcore_memory::Hierarchy;
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::{Basis, Machine};
use warmcore_workload::{Options, Workload, WorkloadError};

use crate::args::MemoryModel;
use crate::console::Console;
use crate::failure::Failure;
use crate::input;

/// The text that stands for this computer.
pub const HOST: &str = "host";

/// A machine from a preset, a file, a snapshot directory, a short form, a synthetic string, `host` or `-`.
pub fn machine(text: &str) -> Result<Named<Machine>, Failure> {
    let path = Path::new(text);
    let value = match text {
        HOST => detect(Path::new("/"))?,
        "-" => {
            let text =
                input::standard_input().map_err(|error| Failure::cannot_read(Path::new("standard input"), &error))?;
            machine_from_text(&text).map_err(bad_machine)?
        }
        _ if path.is_dir() => detect(path)?,
        _ if looks_like_path(text) => machine_from_text(&read(path)?).map_err(|error| bad_machine_file(error, path))?,
        _ => warmcore_topology::resolve(text).map_err(bad_machine)?,
    };
    Ok(Named { source: text.to_owned(), value })
}

/// The machine whose `/sys` lies under `root`.
pub fn detect(root: &Path) -> Result<Machine, Failure> {
    let live = root == Path::new("/");
    warmcore_topology::from_sysfs(root).map_err(|error| {
        let failure = if live { Failure::unable("warmcore::machine", error) } else { bad_machine(error) };
        failure.help("a snapshot made on another computer with `warmcore machine snapshot DIR` can be read instead")
    })
}

/// Machine files are told apart by their first character: XML begins with `<`.
fn machine_from_text(text: &str) -> warmcore_topology::Result<Machine> {
    if text.trim_start().starts_with('<') {
        warmcore_topology::from_hwloc_xml(text)
    } else {
        warmcore_topology::from_toml(text)
    }
}

/// Not every error knows the file it is about.
fn bad_machine_file(error: warmcore_topology::Error, path: &Path) -> Failure {
    let (message, path) = (error.in_file(path).to_string(), path.display().to_string());
    let place = if message.contains(&path) { String::new() } else { format!("{path}: ") };
    Failure::usage("warmcore::machine", format!("{place}{message}"))
}

fn bad_machine(error: warmcore_topology::Error) -> Failure {
    Failure::usage("warmcore::machine", error)
}

/// A workload from a file, a generator with its flags, `-`, or several of them joined by `+`.
pub fn workload(text: &str, strict: bool) -> Result<Named<Workload>, Failure> {
    workload_with(text, &Options { strict, ..Options::default() })
}

/// The same, read in a given way.
pub fn workload_with(text: &str, options: &Options) -> Result<Named<Workload>, Failure> {
    let read = |path: &str| if path == "-" { input::standard_input() } else { input::file(Path::new(path)) };
    let value = warmcore_workload::resolve(text, options, read).map_err(|error| bad_workload(&error, text))?;
    Ok(Named { source: text.to_owned(), value })
}

/// Makes choices of whom cache-aware schedulers keep together, as given with `--aggregate`.
pub fn aggregate(workload: &mut Named<Workload>, choices: &[String]) -> Result<(), Failure> {
    for choice in choices {
        workload.value.choose_aggregate(choice).map_err(|error| {
            Failure::usage("warmcore::aggregate", error)
                .help("`warmcore workload show` names the workload's processes, task groups and data groups")
        })?;
        workload.source = format!("{} with {choice}", workload.source);
    }
    Ok(())
}

fn bad_workload(error: &WorkloadError, text: &str) -> Failure {
    let in_file = matches!(error, WorkloadError::Syntax(_) | WorkloadError::Document(_) | WorkloadError::Check(_));
    let place = if in_file { format!("{text}: ") } else { String::new() };
    let failure = Failure::usage("warmcore::workload", format!("{place}{error}"));
    match error {
        WorkloadError::Strict { .. } => failure.help("without --strict these are warnings"),
        WorkloadError::Unknown { .. } | WorkloadError::Generator(_) => {
            failure.help("`warmcore workload list` shows the generators and their flags")
        }
        WorkloadError::Read { .. } => failure.help("check the path"),
        WorkloadError::Syntax(_) | WorkloadError::Document(_) => {
            failure.help("the format is rt-app's JSON; `warmcore workload convert hackbench:-T` shows an example")
        }
        WorkloadError::Check(_) => failure,
    }
}

/// Says what of a workload is not modelled.
pub fn warn_unmodelled(workload: &Workload, console: &Console) {
    for warning in &workload.warnings {
        console.warn(&describe_warning(warning));
    }
}

/// One scheduler with its tunables.
pub fn scheduler(text: &str) -> Result<SchedulerSpec, Failure> {
    SchedulerSpec::parse(text).map_err(|error| {
        Failure::usage("warmcore::scheduler", error)
            .help("`warmcore schedulers list` names the schedulers, `warmcore schedulers show NAME` their tunables")
    })
}

/// The schedulers in the values of `--schedulers`.
pub fn schedulers(lists: &[String]) -> Result<Vec<SchedulerSpec>, Failure> {
    lists.iter().flat_map(|list| split_schedulers(list)).map(|text| scheduler(&text)).collect()
}

/// Splits a list of schedulers. A part that looks like `name=value` continues the tunables of the scheduler before it;
/// every other part begins a new one.
fn split_schedulers(list: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in list.split(',') {
        let continues = part.split_once('=').is_some_and(|(name, _)| !name.contains(':'));
        match found.last_mut() {
            // A scheduler without tunables so far needs its colon.
            Some(last) if continues => {
                last.push(if last.contains(':') { ',' } else { ':' });
                last.push_str(part);
            }
            _ => found.push(part.to_owned()),
        }
    }
    found
}

/// Whether a text names a file rather than something built in.
fn looks_like_path(text: &str) -> bool {
    let known_ending = [".toml", ".xml"].iter().any(|ending| text.ends_with(ending));
    known_ending || text.starts_with(['.', '/']) || Path::new(text).is_file()
}

fn read(path: &Path) -> Result<String, Failure> {
    input::file(path).map_err(|error| Failure::cannot_read(path, &error))
}

/// The memory model asked for, or the one that fits the workload. A machine whose caches the memory model refuses is an
/// error where the model was asked for; otherwise memory of constant speed is used, with a warning.
pub fn memory(
    chosen: Option<MemoryModel>,
    machine: &Machine,
    workload: &Workload,
    console: &Console,
) -> Result<MemoryChoice, Failure> {
    let asked = match chosen {
        Some(MemoryModel::None) => return Ok(MemoryChoice::None),
        Some(MemoryModel::Analytic) => true,
        None if workload.has_profiles() => false,
        None => return Ok(MemoryChoice::None),
    };
    match Hierarchy::new(machine) {
        Ok(_) => Ok(MemoryChoice::Analytic),
        Err(error) if asked => Err(Failure::usage("warmcore::memory", error)
            .help("`--memory none` simulates this machine with memory of constant speed")),
        Err(error) => {
            console.warn(&format!("{error}; the memory profiles have no effect, as with `--memory none`"));
            Ok(MemoryChoice::None)
        }
    }
}

/// Says what the reader of a machine found odd in another system's description. What presets and files of our own say
/// about themselves is no warning.
pub fn warn_of_machine(machine: &Machine, console: &Console) {
    let read = machine.origin("topology").is_some_and(|origin| origin.basis == Basis::Read);
    machine.notes().iter().filter(|_| read).for_each(|note| console.warn(note));
}

/// For the lines that say what is run.
pub fn memory_in_words(memory: MemoryChoice) -> &'static str {
    match memory {
        MemoryChoice::None => "memory of constant speed",
        MemoryChoice::Analytic => "analytic memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_schedulers_and_their_tunables() {
        let split = |list| split_schedulers(list).join(" | ");
        assert_eq!(split("cfs,eevdf,rr"), "cfs | eevdf | rr");
        assert_eq!(split("eevdf:base_slice_ns=3000000,hz=1000,rr"), "eevdf:base_slice_ns=3000000,hz=1000 | rr");
        assert_eq!(split("eevdf:hz=100,eevdf:hz=1000"), "eevdf:hz=100 | eevdf:hz=1000");
    }

    #[test]
    fn a_tunable_after_a_bare_name_belongs_to_it() {
        assert_eq!(split_schedulers("eevdf,hz=1000,rr"), ["eevdf:hz=1000", "rr"]);
    }

    #[test]
    fn an_empty_part_stays_to_be_refused() {
        assert_eq!(split_schedulers("cfs,,rr"), ["cfs", "", "rr"]);
    }
}
