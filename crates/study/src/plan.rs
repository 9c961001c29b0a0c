//! Cells as experiments: every cell under every value of its axes and every scheduler, equal ones once.
//!
//! Loads what texts stand for, by `lab`'s readers; files are looked for beside the study first. Simulations that differ in the scheduler
//! only are one experiment, also across studies, and the larger number of trials counts: seeds of trials do not depend on it.
//!
//! What cannot be had on this computer, such as a program that is not installed or a place that needs a kernel, is no error: the figures
//! that need it say so.

mod names;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warmcore_lab::builder::BuildError;
use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::files::{find_program, text_of_file};
use warmcore_lab::load::{self, LoadError};
use warmcore_lab::measures::{self, Measure};
use warmcore_lab::verdict;
use warmcore_memory::Profile;
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::choice::PlaceChoice;
use warmcore_places::place::{Place, PlaceError, PlaceKind, PlaceOptions, Trouble};
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_workload::{Options, Workload, WorkloadError};

pub(crate) use self::names::{CAUSE_PREFIX, CPU_TIME, SPEED, WORK};
use crate::file::placeholders::{put_known, substitute};
use crate::file::{Cell, CellSimulation, FormError, Problem, SCHEDULER, Study};

/// Most cells that one command plans, unless a study asks for more.
pub(crate) const MOST_CELLS: u64 = 10_000;

/// What runs.
pub struct Plan {
    /// The studies.
    pub studies: Vec<Study>,
    /// Of each study its cells under every value of their axes and every scheduler, then those of its wrong models.
    pub cells: Vec<Vec<PlannedCell>>,
    /// What all of that comes to.
    pub experiments: Vec<PlannedExperiment>,
    /// What a reader should know before anything runs.
    pub notes: Vec<String>,
}

/// An experiment of a plan.
#[derive(Clone)]
pub struct PlannedExperiment {
    /// The experiment.
    pub experiment: Experiment,
    /// The study that it was planned for first, or what else it belongs to.
    pub study: String,
    /// Its run directory in the directory of all, if that is not one of the study and a hash.
    pub directory: Option<PathBuf>,
}

/// A cell under values of its axes and a scheduler.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedCell {
    /// Index of the cell.
    pub cell: usize,
    /// Index of the wrong model that it stands for; `None` for the study's own.
    pub wrong: Option<usize>,
    /// What was put for which placeholder, and which scheduler it is.
    pub bindings: BTreeMap<String, String>,
    /// Experiment and the index of its scheduler; or why there is none on this computer.
    pub runs: Result<(usize, usize), String>,
    /// Trials that count.
    pub trials: usize,
    /// The machine's text.
    pub machine: String,
    /// The workload's text, or its name in the study.
    pub workload: String,
    /// The scheduler's text.
    pub scheduler: String,
    /// The place's text.
    pub place: String,
}

/// Why a study cannot be planned.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum PlanError {
    /// Something in its file.
    #[error(transparent)]
    File(#[from] FormError),
    #[error("{study}: {count} cells; at most {most} are planned at once")]
    TooMany { study: String, count: u128, most: u64 },
    /// A place that fails, rather than not being there.
    #[error("{study}: {source}")]
    Place { study: String, source: PlaceError },
    /// An experiment that makes no sense.
    #[error("{study}: {source}")]
    Build { study: String, source: Box<BuildError> },
}

impl PlanError {
    /// What a user can try.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::File(_) => {
                Some("docs/answers.md shows studies; `warmcore study run --dry-run FILE` reads one without running it")
            }
            Self::TooMany { .. } => {
                Some("give fewer values to its axes, or fewer studies at a time; or set `most_cells` in the study")
            }
            Self::Place { source, .. } => Some(source.advice),
            Self::Build { source, .. } => source.advice(),
        }
    }
}

/// What makes simulations one experiment but for the scheduler.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SimulationKey {
    machine: String,
    assumed: String,
    background: Option<String>,
    workload: String,
    place: String,
    memory: Option<MemoryChoice>,
    max_time_ns: Option<u64>,
    warm_up_ns: Option<u64>,
    seed: u64,
    observe: String,
    /// What the names in these texts stand for: where files lie, and the study's own profiles.
    directory: Option<PathBuf>,
    profiles: Option<String>,
}

/// What a machine is made from: the study; its name, text and assumptions; its kernel threads.
type MachineKey = (usize, [String; 3], Option<String>);

/// An experiment in the making.
struct ExperimentDraft {
    study: usize,
    machine: Named<Machine>,
    workload: Named<Workload>,
    place: PlaceChoice,
    /// Where in the study's text it stands.
    place_at: usize,
    /// The first of its cells, whose settings are those of all.
    cell: usize,
    trials: u32,
    schedulers: Vec<SchedulerSpec>,
}

/// How many cells a study has, wrong models included.
pub fn count(study: &Study) -> u128 {
    let of_cell = |cell: &Cell| {
        let values = cell.axes.iter().map(|axis| study.axes[*axis].values.len() as u128);
        values.fold(cell.schedulers.len() as u128, u128::saturating_mul)
    };
    let own: u128 = study.cells.iter().map(of_cell).fold(0, u128::saturating_add);
    let wrong = study.wrong.iter().flat_map(|wrong| &wrong.cells).map(|cell| of_cell(&study.cells[*cell]));
    wrong.fold(own, u128::saturating_add)
}

/// Plans studies together. `threads`: the words that run a workload's file with real threads, for cells of this computer; empty where none can run.
///
/// # Errors
/// What can be known to fail before anything runs.
pub fn plan(studies: Vec<Study>, threads: &[String], note: &dyn Fn(&str)) -> Result<Plan, PlanError> {
    let most = studies.iter().filter_map(|study| study.most_cells).fold(MOST_CELLS, u64::max);
    let mut total = 0_u128;
    for study in &studies {
        total = total.saturating_add(count(study));
        if total > u128::from(most) {
            return Err(PlanError::TooMany { study: study.path.display().to_string(), count: total, most });
        }
    }
    together(studies, threads, note)
}

/// Plans studies together, however many cells they have.
pub(crate) fn together(studies: Vec<Study>, threads: &[String], note: &dyn Fn(&str)) -> Result<Plan, PlanError> {
    let mut planner = Planner::default();
    let mut cells = Vec::with_capacity(studies.len());
    for (index, study) in studies.iter().enumerate() {
        cells.push(planner.study(index, study)?);
    }
    let (experiments, places) = planner.experiments(&studies, threads, note)?;
    // What a group of simulations needs and this computer lacks, its cells lack.
    for cell in cells.iter_mut().flatten() {
        if let Ok((group, scheduler)) = cell.runs {
            cell.runs = places[group].clone().map(|experiment| (experiment, scheduler));
        }
    }
    let plan = Plan { cells, experiments, notes: planner.notes, studies };
    plan.check_figures()?;
    Ok(plan)
}

#[derive(Default)]
struct Planner {
    groups: Vec<ExperimentDraft>,
    known: BTreeMap<SimulationKey, usize>,
    /// Read once: cells that differ in anything else share them.
    machines: BTreeMap<MachineKey, Named<Machine>>,
    notes: Vec<String>,
}

impl Planner {
    fn study(&mut self, index: usize, study: &Study) -> Result<Vec<PlannedCell>, PlanError> {
        let profiles = match &study.profiles {
            None => Vec::new(),
            Some(text) => warmcore_memory::profiles_from_toml(text)
                .map_err(|error| study.error_at(0, Problem::Value(format!("profiles: {error}"))))?,
        };
        let (absent, mut planned) = (absent(study), Vec::new());
        for cell in 0..study.cells.len() {
            self.cell(&mut planned, (index, study), (&profiles, &absent), (cell, None))?;
        }
        for (wrong, model) in study.wrong.iter().enumerate() {
            for cell in &model.cells {
                self.cell(&mut planned, (index, study), (&profiles, &absent), (*cell, Some(wrong)))?;
            }
        }
        Ok(planned)
    }

    fn cell(
        &mut self,
        planned: &mut Vec<PlannedCell>,
        (index, study): (usize, &Study),
        (profiles, absent): (&[Profile], &[CellSimulation]),
        (number, wrong): (usize, Option<usize>),
    ) -> Result<(), PlanError> {
        let cell = &study.cells[number];
        let model = wrong.map(|wrong| &study.wrong[wrong]);
        let machine = model.and_then(|model| model.machine.as_ref()).unwrap_or(&cell.machine);
        let workload = model.and_then(|model| model.workload.as_ref()).unwrap_or(&cell.workload);
        for bindings in combinations(study, cell) {
            for scheduler in &cell.schedulers {
                let instead = model.and_then(|model| model.scheduler.as_ref()).unwrap_or(scheduler);
                let put = |text: &toml::Spanned<String>| {
                    substitute(text.get_ref(), &bindings)
                        .map_err(|name| unknown_placeholder(study, text.span().start, &name, &bindings))
                };
                let mut bindings = bindings.clone();
                bindings.insert(SCHEDULER.to_owned(), put(scheduler)?);
                if !study.needs(&cell.name, &bindings) {
                    continue;
                }
                let (machine_text, workload_text, scheduler_text) = (put(machine)?, put(workload)?, put(instead)?);
                let place_text = cell.place.as_ref().map(put).transpose()?;
                let place_text = place_text.unwrap_or_else(|| warmcore_places::sim::KIND.name.to_owned());
                let place_at = cell.place.as_ref().map_or(0, |text| text.span().start);
                let place = place_text
                    .parse::<PlaceChoice>()
                    .map_err(|words| study.error_at(place_at, Problem::Value(words)))?;
                let background = match &cell.background {
                    Some(text) => Some((text, put(text)?)),
                    None => {
                        simulates_programs(cell, place.kind, &put)?.then(|| (machine, load::UNDER_PROGRAMS.to_owned()))
                    }
                };
                let assumed = cell.assumed.as_ref().map(put).transpose()?.unwrap_or_default();
                let error = |text: &toml::Spanned<String>, words: String| {
                    study.error_at(text.span().start, Problem::Value(words))
                };
                let spec = load::scheduler(&scheduler_text).map_err(|found| error(instead, found.to_string()))?;
                if place.host.dry_run {
                    return Err(study.error_at(place_at, Problem::Value("a cell runs: no dry-run".into())).into());
                }
                let [spec] =
                    <[SchedulerSpec; 1]>::try_from(place.host.configurations(vec![spec])).map_err(|several| {
                        let words = format!("a cell has one configuration, and its place says {}", several.len());
                        study.error_at(place_at, Problem::Value(words))
                    })?;
                let key = SimulationKey {
                    machine: own_text(&study.machines, &machine_text, &bindings),
                    assumed: assumed.clone(),
                    background: background.as_ref().map(|(_, text)| text.clone()),
                    workload: own_text(&study.workloads, &workload_text, &bindings),
                    place: place_text.clone(),
                    memory: cell.memory,
                    max_time_ns: cell.max_time_ns,
                    warm_up_ns: cell.warm_up_ns,
                    seed: cell.seed,
                    // Numbers and names can always be written.
                    observe: serde_json::to_string(&cell.observe).unwrap_or_default(),
                    directory: directory_of_files(
                        study,
                        [Some(&machine_text), Some(&workload_text), background.as_ref().map(|(_, text)| text)],
                    ),
                    profiles: study.profiles.clone(),
                };
                let group = match self.known.get(&key) {
                    Some(group) => *group,
                    None => {
                        let texts = [machine_text.clone(), key.machine.clone(), assumed.clone()];
                        let of_machine: MachineKey = (index, texts, key.background.clone());
                        let made = match self.machines.get(&of_machine) {
                            Some(known) => known.clone(),
                            None => {
                                let texts = (machine_text.as_str(), key.machine.as_str());
                                let made = machine_of(study, texts.0, texts.1).map_err(|found| {
                                    error(machine, beside_own(study, &found, texts, &study.machines))
                                })?;
                                let made = match &background {
                                    Some((at, text)) => load::background(made, &beside(study, text))
                                        .map_err(|found| error(at, found.to_string()))?,
                                    None => made,
                                };
                                let made = match cell.assumed.as_ref().filter(|_| !assumed.is_empty()) {
                                    Some(at) => with_assumed(made, &assumed).map_err(|words| error(at, words))?,
                                    None => made,
                                };
                                self.machines.insert(of_machine, made.clone());
                                made
                            }
                        };
                        let load = workload_of(study, &made.value, (&workload_text, &key.workload), profiles).map_err(
                            |found| {
                                error(
                                    workload,
                                    beside_own(study, &found, (&workload_text, &key.workload), &study.workloads),
                                )
                            },
                        )?;
                        let told = load.value.warnings.iter().map(verdict::describe_warning);
                        self.notes.extend(told.map(|words| format!("{}: {words}", study.name)));
                        self.groups.push(ExperimentDraft {
                            study: index,
                            machine: made,
                            workload: load,
                            place,
                            place_at,
                            cell: number,
                            trials: cell.trials,
                            schedulers: Vec::new(),
                        });
                        self.known.insert(key, self.groups.len() - 1);
                        self.groups.len() - 1
                    }
                };
                let runs = match lacking(&spec) {
                    Some(words) => Err(words),
                    None if study.is_in_vain(&cell.name, &bindings, absent) => {
                        Err("each of its figures needs a program that is not on this computer".to_owned())
                    }
                    None => Ok(self.join(group, spec, cell.trials)),
                };
                planned.push(PlannedCell {
                    cell: number,
                    wrong,
                    bindings,
                    runs,
                    trials: cell.trials as usize,
                    machine: match &background {
                        Some((_, text)) => format!("{machine_text} with background {text}"),
                        None if !assumed.is_empty() => format!("{machine_text} with {assumed}"),
                        None => machine_text,
                    },
                    workload: workload_text,
                    scheduler: scheduler_text,
                    place: place_text,
                });
            }
        }
        Ok(())
    }

    /// Makes a scheduler take part in a group.
    fn join(&mut self, group: usize, spec: SchedulerSpec, trials: u32) -> (usize, usize) {
        let of = &mut self.groups[group];
        of.trials = of.trials.max(trials);
        let position = of.schedulers.iter().position(|known| *known == spec).unwrap_or_else(|| {
            of.schedulers.push(spec);
            of.schedulers.len() - 1
        });
        (group, position)
    }

    /// The groups as experiments, and of each group which one it is, or why there is none here.
    #[allow(clippy::type_complexity, reason = "two lists, said above")]
    fn experiments(
        &mut self,
        studies: &[Study],
        threads: &[String],
        note: &dyn Fn(&str),
    ) -> Result<(Vec<PlannedExperiment>, Vec<Result<usize, String>>), PlanError> {
        let mut experiments = Vec::new();
        let mut found = Vec::new();
        for group in std::mem::take(&mut self.groups) {
            if group.schedulers.is_empty() {
                found.push(Err("none of its schedulers is on this computer".to_owned()));
                continue;
            }
            let study = &studies[group.study];
            let cell = &study.cells[group.cell];
            let named = study.path.display().to_string();
            let place: Arc<dyn Place> = match open(&group, threads, note) {
                Ok(place) => place,
                Err(error) if error.trouble == Trouble::Unable => {
                    found.push(Err(error.to_string()));
                    continue;
                }
                Err(error) if error.trouble == Trouble::Unfit => {
                    let words = format!("{error}: {}", error.advice);
                    return Err(study.error_at(group.place_at, Problem::Value(words)).into());
                }
                Err(source) => return Err(PlanError::Place { study: named, source }),
            };
            // Bands are about whole runs; only a workload that states a warm-up has one.
            let warm_up_ns = Some(cell.warm_up_ns.or(group.workload.value.warm_up_ns).unwrap_or(0));
            let options = RunOptions { max_time_ns: cell.max_time_ns, warm_up_ns, ..RunOptions::default() };
            let built = Experiment::builder(group.machine, group.workload)
                .schedulers(group.schedulers)
                .seeds(trial_seeds(cell.seed, group.trials))
                .memory(cell.memory)
                .options(options)
                .observations(cell.observe.clone())
                .background_chosen(true)
                .place(place)
                .build();
            match built {
                Ok(built) => {
                    self.notes.extend(built.warnings.iter().map(|words| format!("{}: {words}", study.name)));
                    found.push(Ok(experiments.len()));
                    experiments.push(PlannedExperiment {
                        experiment: built.experiment,
                        study: study.name.clone(),
                        directory: None,
                    });
                }
                Err(BuildError::Place(error)) if error.trouble == Trouble::Unable => found.push(Err(error.to_string())),
                Err(source) => return Err(PlanError::Build { study: named, source: Box::new(source) }),
            }
        }
        self.notes.sort();
        self.notes.dedup();
        Ok((experiments, found))
    }
}

/// Which program of a scheduler is not here.
fn lacking(spec: &SchedulerSpec) -> Option<String> {
    let program = spec.program().filter(|program| !find_program(&program.program).is_file())?;
    Some(format!("the program {} is not on this computer", program.program))
}

/// The simulations of a part of a study whose programs are not here.
fn absent(study: &Study) -> Vec<CellSimulation> {
    let mut found = Vec::new();
    for cell in study.cells.iter().filter(|_| study.is_partial()) {
        for bindings in combinations(study, cell) {
            for scheduler in &cell.schedulers {
                let text = put_known(scheduler.get_ref(), &bindings);
                if load::scheduler(&text).is_ok_and(|spec| lacking(&spec).is_some()) {
                    let of_scheduler = [(SCHEDULER.to_owned(), text)];
                    found.push((cell.name.clone(), bindings.clone().into_iter().chain(of_scheduler).collect()));
                }
            }
        }
    }
    found
}

/// Whether a cell needs kernel threads for what it is about, and names none.
fn simulates_programs(
    cell: &Cell,
    place: &PlaceKind,
    put: &impl Fn(&toml::Spanned<String>) -> Result<String, FormError>,
) -> Result<bool, FormError> {
    // What is no scheduler is told where it is planned.
    let known = cell.schedulers.iter().map(|text| Ok(load::scheduler(&put(text)?).ok()));
    let known: Vec<Option<SchedulerSpec>> = known.collect::<Result<_, FormError>>()?;
    Ok(place.simulated && load::needs_background(&known.into_iter().flatten().collect::<Vec<_>>()))
}

fn open(group: &ExperimentDraft, threads: &[String], note: &dyn Fn(&str)) -> Result<Arc<dyn Place>, PlaceError> {
    let guests = group.place.guests.clone();
    let host = (!threads.is_empty()).then(|| group.place.host.manner(threads.to_vec()));
    let options = PlaceOptions { schedulers: &group.schedulers, guests, host };
    warmcore_places::open(group.place.kind.name, &options, note)
}

impl Plan {
    /// Simulations in all.
    pub fn simulations_in_all(&self) -> usize {
        self.experiments.iter().map(|one| one.experiment.trial_count()).sum()
    }

    /// The duration of an experiment's workload, if it has one.
    pub(crate) fn duration_ns(&self, experiment: usize) -> Option<u64> {
        self.experiments[experiment].experiment.workload.value.duration_ns
    }

    /// The measures of an experiment, by which infinite times of runs that were cut off are known.
    pub fn measure(&self, experiment: usize, name: &str) -> Option<Measure> {
        let workload = &self.experiments[experiment].experiment.workload.value;
        measures::of_workload(workload).into_iter().find(|measure| measure.name == name)
    }
}

/// Every combination of the values of a cell's axes.
fn combinations(study: &Study, cell: &Cell) -> Vec<BTreeMap<String, String>> {
    let mut found = vec![BTreeMap::new()];
    for axis in &cell.axes {
        let values = &study.axes[*axis].values;
        let with = |bindings: &BTreeMap<String, String>| {
            let bindings = bindings.clone();
            values.iter().map(move |value| {
                let mut bindings = bindings.clone();
                bindings.extend(value.iter().cloned());
                bindings
            })
        };
        found = found.iter().flat_map(with).collect();
    }
    found
}

fn unknown_placeholder(study: &Study, at: usize, name: &str, bindings: &BTreeMap<String, String>) -> FormError {
    if bindings.contains_key(name) {
        let words = format!("a value of an axis contains `{{{name}}}`, and values are put as they are");
        return study.error_at(at, Problem::Value(words));
    }
    let nearest = warmcore_topology::nearest(name, bindings.keys().map(String::as_str)).map(str::to_owned);
    study.error_at(at, Problem::Unknown { kind: "axis", name: name.to_owned(), nearest })
}

/// The text of a machine or workload of the study's own, whose name may have placeholders too; the name itself where it is none.
fn own_text(all: &[crate::file::Inline], name: &str, bindings: &BTreeMap<String, String>) -> String {
    let own = all.iter().find(|inline| put_known(inline.name.get_ref(), bindings) == name);
    own.map_or_else(|| name.to_owned(), |inline| put_known(&inline.text, bindings))
}

/// Why there is no machine or workload. Where it was asked for by a name alone, which is none of the study's own, theirs are said, too.
fn beside_own(study: &Study, found: &LoadError, (name, text): (&str, &str), all: &[crate::file::Inline]) -> String {
    let is_name = name == text && !name.contains(':') && !Path::new(&beside(study, name)).is_file();
    if all.is_empty() || !is_name {
        return found.to_string();
    }
    let own: Vec<String> = all.iter().map(|inline| format!("`{}`", inline.name.get_ref())).collect();
    format!("{found}; the study's own are {}", own.join(", "))
}

fn machine_of(study: &Study, name: &str, text: &str) -> Result<Named<Machine>, LoadError> {
    if text != name {
        let value =
            warmcore_topology::from_toml(text).map_err(|error| LoadError::Machine(format!("{name}: {error}")))?;
        return Ok(Named { source: name.to_owned(), value });
    }
    load::machine(&beside(study, name))
}

/// A machine with a change of what of it rests on nothing; as it is if it has no such.
fn with_assumed(machine: Named<Machine>, change: &str) -> Result<Named<Machine>, String> {
    Ok(match warmcore_topology::changed(&machine.value, change)? {
        Some(value) => Named { source: format!("{} with {change}", machine.source), value },
        None => machine,
    })
}

fn workload_of(
    study: &Study,
    machine: &Machine,
    (name, text): (&str, &str),
    profiles: &[Profile],
) -> Result<Named<Workload>, LoadError> {
    let multiply_add_ps = machine.costs().multiply_add_ps.and_then(NonZeroU64::new);
    let options = Options { multiply_add_ps, profiles, ..Options::default() };
    let failed = |source: WorkloadError| LoadError::Workload { text: name.to_owned(), source: Box::new(source) };
    if text != name {
        let value = warmcore_workload::from_rtapp(name, text, &options).map_err(failed)?;
        return Ok(Named { source: name.to_owned(), value });
    }
    let read = |path: &str| -> io::Result<String> { text_of_file(Path::new(&beside(study, path))) };
    let value = warmcore_workload::resolve(text, &options, read).map_err(failed)?;
    Ok(Named { source: name.to_owned(), value })
}

/// The study's directory if one of the texts names a file in it: a file of that name elsewhere is another.
fn directory_of_files(study: &Study, texts: [Option<&String>; 3]) -> Option<PathBuf> {
    let directory = study.path.parent()?;
    let is_file = |name: &str| directory.join(name.trim()).is_file();
    let names_one =
        |text: &String| is_file(text) || text.split('+').any(|part| part.split('@').next().is_some_and(is_file));
    texts.into_iter().flatten().any(names_one).then(|| directory.to_owned())
}

/// A file beside the study if there is one, else the text as it is.
fn beside(study: &Study, text: &str) -> String {
    let path = study.path.parent().map(|parent| parent.join(text)).filter(|path| path.is_file());
    path.map_or_else(|| text.to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests;
