//! From texts that people type to machines, workloads and schedulers.

use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use warmcore_memory::{Profile, profiles_from_toml};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::{Background, Basis, LONGER_WAY_NOTE, Machine, format_cpu_list};
use warmcore_workload::{Options, Workload, WorkloadError};

use crate::experiment::Named;
use crate::files;

/// The text that stands for this computer.
pub const HOST: &str = "host";

/// Why a text stands for nothing.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum LoadError {
    /// An input cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file, or `standard input`.
        path: PathBuf,
        source: io::Error,
    },
    /// It is no machine.
    #[error("{0}")]
    Machine(String),
    /// This computer, or a snapshot of one, cannot be understood.
    #[error("{reason}")]
    System {
        reason: String,
        /// Whether it is this computer.
        live: bool,
    },
    /// It is no workload.
    #[error("{}{source}", prefix(text, source))]
    Workload { text: String, source: Box<WorkloadError> },
    /// There are no such kernel threads.
    #[error("{0}")]
    Background(String),
    /// A choice of whom to keep together makes no sense.
    #[error("{0}")]
    Aggregate(String),
    /// It is no scheduler.
    #[error("{0}")]
    Scheduler(String),
    /// These are no memory profiles.
    #[error("{path}: {reason}", path = path.display())]
    Profiles { path: PathBuf, reason: String },
    #[error("--assume-profile has no effect here: {0}")]
    NoMemory(&'static str),
}

impl LoadError {
    /// What a user can try.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Read { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Some("check the path"),
                io::ErrorKind::InvalidData => Some("the file is not UTF-8 text"),
                _ => None,
            },
            Self::Machine(_) => None,
            Self::Background(_) => {
                Some("`none` means no kernel threads; machines/background/README.md shows the form of a file")
            }
            Self::System { .. } => Some(
                "a snapshot made on another computer with `warmcore machine convert host --to snapshot --out DIR` can be read instead",
            ),
            Self::Workload { source, .. } => match source.as_ref() {
                WorkloadError::Strict { .. } => Some("without --strict these are warnings"),
                WorkloadError::Unknown { .. } | WorkloadError::Generator(_) => {
                    Some("`warmcore list workloads` shows the generators and their flags")
                }
                WorkloadError::Read { .. } => Some("check the path"),
                WorkloadError::Syntax(_) | WorkloadError::Document(_) => Some(
                    "the format is rt-app's JSON; `warmcore reference workload` prints an example, docs/workloads.md describes it",
                ),
                WorkloadError::Check(_) => None,
                WorkloadError::NothingToAssume { .. } => Some("leave out --assume-profile"),
                WorkloadError::Fixed { .. } => {
                    Some("take copies of the whole, joined by +, or change the numbers in the file")
                }
            },
            Self::Aggregate(_) => {
                Some("`warmcore workload show` names the workload's processes, task groups and data groups")
            }
            Self::Profiles { .. } => {
                Some("`warmcore workload fit` writes such a file; docs/models/memory.md shows the form")
            }
            Self::NoMemory(_) => Some("leave out --assume-profile, or ask the simulator with its memory"),
            Self::Scheduler(_) => {
                Some("`warmcore list schedulers` names the schedulers, `warmcore scheduler NAME` their tunables")
            }
        }
    }
}

/// Errors in a file's text do not name the file.
fn prefix(text: &str, error: &WorkloadError) -> String {
    let in_file = matches!(error, WorkloadError::Syntax(_) | WorkloadError::Document(_) | WorkloadError::Check(_));
    if in_file { format!("{text}: ") } else { String::new() }
}

/// Why a machine has the figures of a preset that was typed: that is not a warning.
const ASKED: &str = "it was asked for";

/// A machine from a preset, a file, a snapshot directory, a short form, a synthetic string, `host` or `-`, each with `@PRESET` for the
/// figures of that preset. What an operating system or hwloc describes takes those of the preset that fits its CPU model.
///
/// # Errors
/// When there is none.
pub fn machine(text: &str) -> Result<Named<Machine>, LoadError> {
    let based = text.rsplit_once('@').filter(|_| !Path::new(text).exists()).filter(|(what, _)| {
        *what == HOST || *what == "-" || what.contains(':') || Path::new(what).is_dir() || looks_like_path(what)
    });
    if let Some((what, base)) = based {
        let (value, _) = described(what)?;
        let value = warmcore_topology::with_figures_of(value, base, ASKED)
            .map_err(|error| LoadError::Machine(error.to_string()))?;
        return Ok(Named { source: text.to_owned(), value });
    }
    let (value, model) = described(text)?;
    Ok(Named { source: text.to_owned(), value: fitted(value, model.as_deref()) })
}

/// A machine with the kernel threads that a text names, if there is one.
///
/// # Errors
/// As [`machine`] and [`background`].
pub fn machine_with(text: &str, background_text: Option<&str>) -> Result<Named<Machine>, LoadError> {
    let machine = machine(text)?;
    match background_text {
        None => Ok(machine),
        Some(text) => background(machine, text),
    }
}

/// The machine with the kernel threads that a text names: one of the backgrounds that come with the program, a file, or `none`.
///
/// # Errors
/// When there is none of that name, it cannot be read, or it is for CPUs that the machine does not have.
pub fn background(machine: Named<Machine>, text: &str) -> Result<Named<Machine>, LoadError> {
    let background = background_called(text)?;
    if background.is_empty() && machine.value.background().is_empty() {
        return Ok(machine);
    }
    let value = machine.value.with_background(background).map_err(|error| LoadError::Background(error.to_string()))?;
    Ok(Named { source: format!("{} with background {text}", machine.source), value })
}

/// The kernel threads beside which sched_ext programs are simulated unless others, or none, are asked for: those of the guests in which
/// the same programs were observed.
pub const UNDER_PROGRAMS: &str = "guest-7.2";

/// Whether an experiment's result is about a kernel without threads of its own if none are named: under a sched_ext program a CPU looks
/// for work when it switches, and an idle one switches only when somebody wakes there. The fair class looks for work at ticks, too.
pub fn needs_background(schedulers: &[SchedulerSpec]) -> bool {
    schedulers.iter().any(|scheduler| scheduler.program().is_some())
}

/// The kernel threads that a text names.
///
/// # Errors
/// When there is none of that name, or it cannot be read.
pub fn background_called(text: &str) -> Result<Background, LoadError> {
    let path = Path::new(text);
    let bad = |error: warmcore_topology::Error| LoadError::Background(error.to_string());
    if !looks_like_path(text) {
        return Background::named(text).map_err(bad);
    }
    let read = |source| LoadError::Read { path: path.to_path_buf(), source };
    warmcore_topology::background_from_toml(&files::text_of_file(path).map_err(read)?)
        .map_err(|error| bad(error.in_file(path)))
}

/// The machine with the figures of the preset that fits its CPU model, if one does; else with generic ones where it has none.
fn fitted(machine: Machine, model: Option<&str>) -> Machine {
    let known = model.and_then(|model| Some((model, warmcore_topology::preset_of_model(model)?)));
    // Every preset of the table, and the generic one, can be read: tests of them say so.
    let Some((model, known)) = known.filter(|_| warmcore_topology::has_generic_costs(&machine)) else {
        return warmcore_topology::with_missing_figures(machine.clone()).unwrap_or(machine);
    };
    let why = format!("the CPU model is {model}; `MACHINE@PRESET` names another");
    warmcore_topology::with_figures_of(machine.clone(), known.preset, &why).unwrap_or(machine)
}

/// What is to be known of a machine whose costs are those of no CPU model. What can be typed is its text alone, without what it has
/// besides: a background, a study's change of what is assumed.
pub(crate) fn generic_costs(Named { source, value }: &Named<Machine>) -> Option<String> {
    let typed = source.split_once(" with ").map_or(source.as_str(), |(typed, _)| typed);
    warmcore_topology::has_generic_costs(value)
        .then(|| format!("costs of {typed} are generic, not those of a CPU model: `{typed}@PRESET` takes a preset's"))
}

/// The machine that a text describes, and the name of its CPU model where that is said.
fn described(text: &str) -> Result<(Machine, Option<String>), LoadError> {
    let path = Path::new(text);
    let bad = |error: warmcore_topology::Error| LoadError::Machine(error.to_string());
    let in_text = |text: &str| {
        let model = if text.trim_start().starts_with('<') { warmcore_topology::hwloc_cpu_model(text) } else { None };
        Ok::<_, warmcore_topology::Error>((machine_from_text(text)?, model))
    };
    Ok(match text {
        HOST => with_model(Path::new("/"))?,
        "-" => {
            let read = |source| LoadError::Read { path: "standard input".into(), source };
            in_text(&files::text(io::stdin().lock()).map_err(read)?).map_err(bad)?
        }
        _ if path.is_dir() => with_model(path)?,
        _ if looks_like_path(text) => {
            let read = |source| LoadError::Read { path: path.to_path_buf(), source };
            in_text(&files::text_of_file(path).map_err(read)?).map_err(|error| bad_machine_file(error, path))?
        }
        _ => (warmcore_topology::resolve(text).map_err(bad)?, None),
    })
}

fn with_model(root: &Path) -> Result<(Machine, Option<String>), LoadError> {
    Ok((system(root)?, warmcore_topology::cpu_model(root)))
}

/// The machine whose `/sys` lies under `root`.
///
/// # Errors
/// When it cannot be understood.
pub fn detect(root: &Path) -> Result<Machine, LoadError> {
    let (machine, model) = with_model(root)?;
    Ok(fitted(machine, model.as_deref()))
}

fn system(root: &Path) -> Result<Machine, LoadError> {
    warmcore_topology::from_sysfs(root)
        .map_err(|error| LoadError::System { reason: error.to_string(), live: root == Path::new("/") })
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
fn bad_machine_file(error: warmcore_topology::Error, path: &Path) -> LoadError {
    let (message, path) = (error.in_file(path).to_string(), path.display().to_string());
    let file = if message.contains(&path) { String::new() } else { format!("{path}: ") };
    LoadError::Machine(format!("{file}{message}"))
}

/// What the reader of a machine found odd in another system's description, and what is assumed of memory that no CPU is near. What presets
/// and files of our own say about themselves is no warning; that one of their distances does not count is.
pub fn warnings_of_machine(machine: &Machine) -> impl Iterator<Item = String> {
    let read = machine.origin("topology").is_some_and(|origin| origin.basis == Basis::Read);
    let alone = machine.nodes().filter(|node| machine.cpus_of_node(*node).is_empty() && machine.node_has_memory(*node));
    let alone: Vec<u32> = alone.map(|node| machine.node_os_index(node)).collect();
    let (nodes, have, distance) = match alone.as_slice() {
        [node] => (format!("node{node}"), "has", "its distance"),
        nodes => (format!("nodes {}", format_cpu_list(nodes.iter().copied())), "have", "their distances"),
    };
    let assumed = format!(
        "latency and bandwidth of {nodes}, which {have} no CPUs, are assumed: those of a node with CPUs, worse by {distance}"
    );
    let assumed = Some(assumed).filter(|_| !alone.is_empty());
    let counts = move |note: &&String| (read && !note.ends_with(ASKED)) || note.ends_with(LONGER_WAY_NOTE);
    machine.notes().iter().filter(counts).cloned().chain(assumed)
}

/// A workload from a file, a generator with its flags, `-`, or several of them joined by `+`.
///
/// # Errors
/// When there is none.
pub fn workload(text: &str, options: &Options<'_>) -> Result<Named<Workload>, LoadError> {
    let read =
        |path: &str| if path == "-" { files::text(io::stdin().lock()) } else { files::text_of_file(Path::new(path)) };
    let value = warmcore_workload::resolve(text, options, read)
        .map_err(|source| LoadError::Workload { text: text.to_owned(), source: Box::new(source) })?;
    Ok(Named { source: text.to_owned(), value })
}

/// The same for a machine, whose own costs count where a generator's work depends on them.
///
/// # Errors
/// When there is none.
pub fn workload_on(machine: &Machine, text: &str, options: &Options<'_>) -> Result<Named<Workload>, LoadError> {
    workload(text, &on(machine, options))
}

/// How workloads are read for a machine.
pub fn on<'a>(machine: &Machine, options: &Options<'a>) -> Options<'a> {
    Options { multiply_add_ps: machine.costs().multiply_add_ps.and_then(NonZeroU64::new), ..*options }
}

/// The memory profiles of a file, as TOML or JSON.
///
/// # Errors
/// When it cannot be read, or has other things in it.
pub fn profiles(path: &Path) -> Result<Vec<Profile>, LoadError> {
    let read = |source| LoadError::Read { path: path.to_path_buf(), source };
    let text = files::text_of_file(path).map_err(read)?;
    let read = match text.trim_start().starts_with('{') {
        true => warmcore_workload::profiles_from_json(&text).map_err(|error| error.to_string()),
        false => profiles_from_toml(&text).map_err(|error| error.to_string()),
    };
    read.map_err(|reason| LoadError::Profiles { path: path.to_path_buf(), reason })
}

/// Refuses a memory profile that is to be assumed where no memory is modelled.
///
/// # Errors
/// With the reason why there is none.
pub fn check_assumed(assumed: Option<&str>, simulated: bool, memory: Option<MemoryChoice>) -> Result<(), LoadError> {
    match (assumed, simulated, memory) {
        (Some(_), false, _) => Err(LoadError::NoMemory("in a real kernel tasks have the memory that there is")),
        (Some(_), true, Some(MemoryChoice::None)) => Err(LoadError::NoMemory("--memory none models no memory")),
        _ => Ok(()),
    }
}

/// Makes choices of whom cache-aware schedulers keep together.
///
/// # Errors
/// A choice that cannot be understood, or about nothing in the workload.
pub fn aggregate(workload: &mut Named<Workload>, choices: &[String]) -> Result<(), LoadError> {
    for choice in choices {
        workload.value.choose_aggregate(choice).map_err(|error| LoadError::Aggregate(error.to_string()))?;
        workload.source = format!("{} with {choice}", workload.source);
    }
    Ok(())
}

/// One scheduler with its tunables.
///
/// # Errors
/// When there is none of that name, or it lacks a tunable.
pub fn scheduler(text: &str) -> Result<SchedulerSpec, LoadError> {
    SchedulerSpec::parse(text).map_err(|error| LoadError::Scheduler(error.to_string()))
}

/// The schedulers in lists separated by commas.
///
/// # Errors
/// As [`scheduler`].
pub fn schedulers(lists: &[String]) -> Result<Vec<SchedulerSpec>, LoadError> {
    lists.iter().flat_map(|list| split_schedulers(list)).map(|text| scheduler(&text)).collect()
}

/// Splits a list of schedulers. A part that looks like `name=value` continues the tunables of the scheduler before it; behind
/// circumstances, whose lists of CPUs and workloads have commas of their own, so does what names no scheduler. Every other part begins
/// a new one.
pub(crate) fn split_schedulers(list: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let names_scheduler = |part: &str| {
        let name = part.split([':', '@']).next().unwrap_or_default().trim();
        name == "scx" || warmcore_schedulers::list().iter().any(|info| info.name == name)
    };
    for part in list.split(',') {
        let continues = part.split_once('=').is_some_and(|(name, _)| !name.contains([':', '@']));
        match found.last_mut() {
            Some(last) if last.contains('@') && !last.starts_with("scx:") && !names_scheduler(part) => {
                last.push(',');
                last.push_str(part);
            }
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
    fn lists_and_workloads_in_circumstances_keep_their_commas() {
        let split = |list| split_schedulers(list).join(" | ");
        assert_eq!(split("eevdf@cpus=0-3,8,eevdf@cpus=4-7,9"), "eevdf@cpus=0-3,8 | eevdf@cpus=4-7,9");
        let list = "eevdf,hz=1000@workload=verilator:-t8,-C100,ule @ smt=off,scx:/bin/x";
        assert_eq!(split(list), "eevdf:hz=1000@workload=verilator:-t8,-C100 | ule @ smt=off | scx:/bin/x");
    }

    #[test]
    fn an_empty_part_stays_to_be_refused() {
        assert_eq!(split_schedulers("cfs,,rr"), ["cfs", "", "rr"]);
    }

    #[test]
    fn warnings_name_nodes_without_cpus_by_their_numbers_and_distances_that_do_not_count() {
        let warnings = |nodes: &str, distances: &str| {
            let nodes = format!("nodes = [{{ id = 0, cpus = \"0-1\" }}, {nodes}]");
            let machine = format!("notes = [\"its own\"]\n[topology]\n{nodes}\ndistances = {distances}\n");
            let machine = warmcore_topology::from_toml(&machine).unwrap();
            warnings_of_machine(&machine).collect::<Vec<String>>()
        };
        let one = warnings("{ id = 4 }", "[[10, 14], [14, 10]]");
        assert!(one.len() == 1 && one[0].starts_with("latency and bandwidth of node4, which has no CPUs"), "{one:?}");
        let two = warnings("{ id = 4 }, { id = 6 }", "[[10, 14, 16], [14, 10, 16], [17, 16, 10]]");
        let [direction, alone] = two.as_slice() else { panic!("{two:?}") };
        assert_eq!(direction, "the distances of 1 pair of nodes depend on the direction: the longer one counts");
        assert!(alone.starts_with("latency and bandwidth of nodes 4,6, which have no CPUs"), "{alone}");
    }

    #[test]
    fn a_machine_of_generic_costs_is_named_as_it_can_be_typed_with_a_preset() {
        let warning = generic_costs(&machine_with("1s1n2l4c1t", Some("guest-7.2")).unwrap()).unwrap();
        assert!(warning.contains("`1s1n2l4c1t@PRESET`") && !warning.contains("background"), "{warning}");
        let varied = Named { source: "2s1n2l4c1t with smt_slowdown=0".to_owned(), ..machine("2s1n2l4c1t").unwrap() };
        assert!(generic_costs(&varied).unwrap().ends_with("`2s1n2l4c1t@PRESET` takes a preset's"));
        let known = machine_with("1s1n2l4c1t@genoa96", Some("guest-7.2")).unwrap();
        assert_eq!(generic_costs(&known), None);
    }

    /// An export of hwloc names the CPU model or does not; figures come with it, and `@PRESET` is stronger.
    #[test]
    fn hwloc_xml_has_the_figures_of_the_cpu_model_that_it_names() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/machines/lstopo-two-llcs-per-node/input.xml");
        let unnamed = std::fs::read_to_string(&file).unwrap();
        let (before, after) = unnamed.split_once("<object type=\"Package\"").unwrap();
        let (attributes, rest) = after.split_once('>').unwrap();
        let info = r#"<info name="CPUModel" value="AMD EPYC 9654 96-Core Processor"/>"#;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("named.xml");
        std::fs::write(&path, format!("{before}<object type=\"Package\"{attributes}>{info}{rest}")).unwrap();

        let of = |text: &str| generic_costs(&machine(text).unwrap());
        assert!(of(file.to_str().unwrap()).is_some() && of(path.to_str().unwrap()).is_none());
        let read = |text: &str| machine(text).unwrap().value;
        let (plain, named) = (read(file.to_str().unwrap()), read(path.to_str().unwrap()));
        let costs_of = |preset: &str| read(preset).costs().clone();
        assert_eq!((plain.costs(), plain.performance()), (&costs_of("2s1n2l4c1t"), read("2s1n2l4c1t").performance()));
        assert_eq!(*named.costs(), costs_of("genoa96"));
        assert_eq!((named.cpu_count(), named.llc_count()), (plain.cpu_count(), plain.llc_count()));
        let chosen = read(&format!("{}@spr32", path.display()));
        assert_eq!(*chosen.costs(), costs_of("spr32"));
    }
}
