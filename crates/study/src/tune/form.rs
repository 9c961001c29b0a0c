//! The file of a tuning (TOML).
//!
//! | key | means |
//! |---|---|
//! | `schema` | [`SCHEMA`] |
//! | `title` | what it is about |
//! | `machines`, `workloads` | as in `compare`, or files beside this one; every workload runs on every machine |
//! | `scheduler` | as in `compare`; `{NAME}` in its text is put by the knob of that name |
//! | `[[knob]]` | `name` of a tunable or of a `{NAME}`; `from` and `to`, whole numbers, with `log = true` where factors matter; or `values`, a list. A `{NAME}` has a `default` |
//! | `metric` | what is compared (each workload's own) |
//! | `objective` | `geometric-mean` of all cells, or the `worst` of them |
//! | `budget` | how many candidates are tried; `at_once` (4) of them are chosen together |
//! | `trials`, `seed` | seeds of each candidate (8), and where they come from (1) |
//! | `memory`, `max_time` | as in `compare` |
//! | `[confirm]` | `trials` (16) under other seeds; `machines` and `workloads` that the search does not see |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use warmcore_lab::experiment::Named;
use warmcore_lab::load::{self, LoadError};
use warmcore_lab::measures::Measure;
use warmcore_lab::{files, verdict};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::Better;
use warmcore_topology::Machine;
use warmcore_workload::{Options, Workload};

/// Version of the form.
pub const SCHEMA: &str = "warmcore-tuning-form-1";
/// Fewest trials of a confirmation: from here on there are intervals.
pub const FEWEST_CONFIRMED: u32 = 8;
/// Most trials and candidates.
const MOST: u32 = 10_000;

/// Why a tuning makes no sense.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum TuneError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// It has another form.
    #[error("{path}: {words}")]
    Form { path: String, words: String },
    /// A machine, workload or scheduler.
    #[error("{path}: {source}")]
    Load { path: String, source: Box<LoadError> },
    /// An experiment that makes no sense.
    #[error("{cell}: {source}")]
    Build { cell: String, source: Box<warmcore_lab::builder::BuildError> },
    #[error("{cell}: {metric} has no value under the default, in the trial with seed {seed}")]
    NoValue { cell: String, metric: String, seed: u64 },
    /// A percentile of the default is one of so few events that it is one of the longest.
    #[error(
        "{cell}: {metric} is a percentile of {events:.0} events in the trial with seed {seed} under the default, fewer than {needed:.0}"
    )]
    FewEvents { cell: String, metric: String, seed: u64, events: f64, needed: f64 },
    #[error("the sampler proposes `{value}` for `{knob}`: {reason}")]
    Proposal { knob: String, value: String, reason: String },
    /// Numbers that cannot be compared.
    #[error(transparent)]
    Statistics(#[from] warmcore_statistics::StatisticsError),
}

impl TuneError {
    /// What a user can try.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } | Self::Form { .. } => Some("docs/how-to/tune.md has an example"),
            Self::Load { source, .. } => source.advice(),
            Self::Build { source, .. } => source.advice(),
            Self::NoValue { .. } => Some("choose another `metric`, or a longer workload"),
            Self::FewEvents { .. } => {
                Some("choose the mean as `metric`, such as `wakeup_mean_ns`, or a longer workload")
            }
            Self::Proposal { .. } | Self::Statistics(_) => None,
        }
    }
}

/// How the ratios of all cells become one number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The geometric mean.
    #[default]
    GeometricMean,
    /// The largest.
    Worst,
}

/// The values that a knob may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Range {
    /// Whole numbers, both ends included.
    Numbers {
        /// The smallest.
        from: u64,
        /// The largest.
        to: u64,
        /// Whether factors matter, not differences.
        log: bool,
    },
    /// One of these.
    Words(Vec<String>),
}

/// Something that is tuned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knob {
    /// Name of a tunable or a placeholder.
    pub name: String,
    /// Its values.
    pub range: Range,
    /// What is put for the placeholder by default; none of a tunable.
    pub default: Option<String>,
}

/// A workload on a machine.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The machine.
    pub machine: Named<Machine>,
    /// The workload.
    pub workload: Named<Workload>,
    /// What is compared.
    pub measure: Measure,
    /// Whether the search does not see it.
    pub held_out: bool,
}

impl Cell {
    /// What it is called.
    pub fn name(&self) -> String {
        format!("{} on {}", self.workload.source, self.machine.source)
    }
}

/// A tuning, with everything that its texts stand for.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The file's stem.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// The scheduler, with placeholders.
    pub scheduler: String,
    /// What is tuned.
    pub knobs: Vec<Knob>,
    /// All cells, those of the search first.
    pub cells: Vec<Cell>,
    /// How cells become one number.
    pub objective: Objective,
    /// What is asked for, if it is not each workload's own.
    pub metric: Option<String>,
    /// Candidates.
    pub budget: u32,
    /// Candidates that are chosen together.
    pub at_once: u32,
    /// Seeds of each candidate.
    pub trials: u32,
    /// Seeds of the confirmation.
    pub confirm_trials: u32,
    /// Where seeds come from.
    pub seed: u64,
    /// The memory model.
    pub memory: Option<MemoryChoice>,
    /// The longest run.
    pub max_time_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    schema: String,
    title: String,
    machines: Vec<String>,
    workloads: Vec<String>,
    scheduler: String,
    metric: Option<toml::Spanned<String>>,
    #[serde(default)]
    objective: Objective,
    budget: u32,
    at_once: Option<u32>,
    trials: Option<u32>,
    seed: Option<u64>,
    memory: Option<String>,
    max_time: Option<String>,
    #[serde(default)]
    knob: Vec<KnobForm>,
    #[serde(default)]
    confirm: ConfirmForm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnobForm {
    name: String,
    from: Option<u64>,
    to: Option<u64>,
    #[serde(default)]
    log: bool,
    values: Option<Vec<toml::Value>>,
    default: Option<toml::Value>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfirmForm {
    trials: Option<u32>,
    #[serde(default)]
    machines: Vec<String>,
    #[serde(default)]
    workloads: Vec<String>,
}

/// A value as it stands in a scheduler's text.
fn text_of(value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(switch) => Ok(u8::from(*switch).to_string()),
        other => Err(format!("{other} is neither a text nor a number")),
    }
}

fn number(name: &str, value: u32, least: u32) -> Result<u32, String> {
    let fits = (least..=MOST).contains(&value);
    fits.then_some(value).ok_or_else(|| format!("`{name}` is {value}; it is a number from {least} to {MOST}"))
}

impl Knob {
    fn new(form: &KnobForm, is_placeholder: bool) -> Result<Self, String> {
        let KnobForm { name, from, to, log, values, default } = form;
        let range = match (from, to, values) {
            (Some(from), Some(to), None) if from < to => {
                if *log && *from == 0 {
                    return Err("a range by factors begins above 0; say `log = false`, or a larger `from`".to_owned());
                }
                Range::Numbers { from: *from, to: *to, log: *log }
            }
            (Some(from), Some(to), None) => return Err(format!("the range from {from} to {to} is empty")),
            (None, None, Some(values)) => {
                let words = values.iter().map(text_of).collect::<Result<Vec<_>, _>>()?;
                if words.len() < 2 {
                    return Err(format!("{} values leave no choice; give two or more", words.len()));
                }
                if let Some(at) = (1..words.len()).find(|at| words[..*at].contains(&words[*at])) {
                    return Err(format!("the value {} is there twice; each one counts once", words[at]));
                }
                Range::Words(words)
            }
            _ => return Err("it has `from` and `to`, or `values`".to_owned()),
        };
        let default = default.as_ref().map(text_of).transpose()?;
        match (is_placeholder, &default) {
            (true, None) => Err("a text in braces needs a `default`, with which it is compared".to_owned()),
            (false, Some(_)) => Err("a tunable has the scheduler's own `default`; leave it out".to_owned()),
            _ => Ok(Self { name: name.clone(), range, default }),
        }
    }

    /// Whether it may have a value, as its text.
    fn check(&self, value: &str) -> Result<(), String> {
        match &self.range {
            Range::Words(words) if words.iter().any(|word| word == value) => Ok(()),
            Range::Numbers { from, to, .. } if value.parse().is_ok_and(|value| (*from..=*to).contains(&value)) => {
                Ok(())
            }
            Range::Words(words) => Err(format!("it is one of {}", words.join(", "))),
            Range::Numbers { from, to, .. } => Err(format!("it is a whole number from {from} to {to}")),
        }
    }

    /// The ends of its range, or all its values: if the scheduler takes these, it takes all.
    fn extremes(&self) -> Vec<String> {
        match &self.range {
            Range::Numbers { from, to, .. } => vec![from.to_string(), to.to_string()],
            Range::Words(words) => words.clone(),
        }
    }
}

impl Tuning {
    /// Reads a tuning's file and what it names.
    ///
    /// # Errors
    /// When something of it makes no sense.
    pub fn read(path: &Path) -> Result<Self, TuneError> {
        let shown = path.display().to_string();
        let text = files::text_of_file(path).map_err(|source| TuneError::Read { path: shown, source })?;
        Self::parse(path, &text)
    }

    /// A tuning from its text; files are looked for beside `path`.
    ///
    /// # Errors
    /// When something of it makes no sense.
    pub fn parse(path: &Path, toml_text: &str) -> Result<Self, TuneError> {
        let shown = || path.display().to_string();
        let wrong = |words: String| TuneError::Form { path: shown(), words };
        let load = |source: LoadError| TuneError::Load { path: shown(), source: Box::new(source) };
        let form: Form = toml::from_str(toml_text).map_err(|error| wrong(error.to_string()))?;
        if form.schema != SCHEMA {
            return Err(wrong(format!("its schema is `{}`; this version reads `{SCHEMA}`", form.schema)));
        }
        if form.knob.is_empty() {
            return Err(wrong("it has no [[knob]]: nothing is tuned".to_owned()));
        }
        let is_name = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
        let mut braced =
            form.scheduler.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).filter(is_name);
        if let Some(name) = braced.find(|name| form.knob.iter().all(|knob| knob.name != *name)) {
            let scheduler = &form.scheduler;
            return Err(wrong(format!(
                "the scheduler's text `{scheduler}` has `{{{name}}}`, and no knob is called so"
            )));
        }
        let mut knobs: Vec<Knob> = Vec::new();
        for knob in &form.knob {
            if knobs.iter().any(|known| known.name == knob.name) {
                return Err(wrong(format!("two knobs are called `{}`", knob.name)));
            }
            let is_placeholder = form.scheduler.contains(&format!("{{{}}}", knob.name));
            let made = Knob::new(knob, is_placeholder).map_err(|words| wrong(format!("knob `{}`: {words}", knob.name)));
            knobs.push(made?);
        }
        let memory = form.memory.as_deref().map(str::parse::<MemoryChoice>).transpose();
        let max_time = form.max_time.as_deref().map(warmcore_workload::parse_duration).transpose();
        let mut tuning = Self {
            name: path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
            title: form.title,
            scheduler: form.scheduler,
            knobs,
            cells: Vec::new(),
            objective: form.objective,
            metric: form.metric.as_ref().map(|metric| metric.get_ref().clone()),
            budget: number("budget", form.budget, 1).map_err(&wrong)?,
            at_once: number("at_once", form.at_once.unwrap_or(4), 1).map_err(&wrong)?,
            trials: number("trials", form.trials.unwrap_or(8), 2).map_err(&wrong)?,
            confirm_trials: number("confirm.trials", form.confirm.trials.unwrap_or(16), FEWEST_CONFIRMED)
                .map_err(&wrong)?,
            seed: form.seed.unwrap_or(1),
            memory: memory.map_err(|error| wrong(format!("memory: {error}")))?,
            max_time_ns: max_time.map_err(|error| wrong(format!("max_time: {error}")))?,
        };
        let default = tuning.default_spec().map_err(&wrong)?;
        for knob in &tuning.knobs {
            for value in knob.extremes() {
                let mut one = BTreeMap::from([(knob.name.as_str(), value.as_str())]);
                tuning.spec_with(&mut one).map_err(|words| wrong(format!("knob `{}`: {words}", knob.name)))?;
            }
        }
        let beside = |text: &str| {
            let file: Option<PathBuf> = path.parent().map(|parent| parent.join(text)).filter(|file| file.is_file());
            file.map_or_else(|| text.to_owned(), |file| file.display().to_string())
        };
        let machine = |text: &String| {
            let made = load::machine(&beside(text)).map_err(&load)?;
            match load::needs_background(std::slice::from_ref(&default)) {
                true => load::background(made, load::UNDER_PROGRAMS).map_err(&load),
                false => Ok(made),
            }
        };
        let searched = form.machines.iter().map(machine).collect::<Result<Vec<_>, _>>()?;
        let unseen = form.confirm.machines.iter().map(machine).collect::<Result<Vec<_>, _>>()?;
        let known = searched.iter().map(|machine| (machine, false)).chain(unseen.iter().map(|machine| (machine, true)));
        for (machine, unseen) in known {
            let both = form.workloads.iter().map(|text| (text, unseen));
            for (text, held_out) in both.chain(form.confirm.workloads.iter().map(|text| (text, true))) {
                let options = Options::default();
                let mut workload = load::workload_on(&machine.value, &beside(text), &options).map_err(&load)?;
                workload.source.clone_from(text);
                let measure = verdict::primary_measure(tuning.metric.as_deref(), &workload.value);
                let measure = measure.map_err(|error| wrong(format!("{text}: {error}")))?;
                if measure.better == Better::Neither {
                    let at = form.metric.as_ref().map_or(0, |metric| metric.span().start);
                    let line = 1 + toml_text.bytes().take(at).filter(|byte| *byte == b'\n').count();
                    return Err(wrong(format!(
                        "line {line}: neither less nor more of `{}` is better, so no value of it is best",
                        measure.name
                    )));
                }
                tuning.cells.push(Cell { machine: machine.clone(), workload, measure, held_out });
            }
        }
        tuning.cells.sort_by_key(|cell| cell.held_out);
        if tuning.searched().next().is_none() {
            return Err(wrong("`machines` and `workloads` have at least one entry each".to_owned()));
        }
        let names: Vec<String> = tuning.cells.iter().map(Cell::name).collect();
        if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            let why = match tuning.cells[at].held_out {
                true => "the search must not see what confirms it",
                false => "each cell counts once",
            };
            return Err(wrong(format!("{} is there twice; {why}", names[at])));
        }
        Ok(tuning)
    }

    /// The cells of the search.
    pub fn searched(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| !cell.held_out)
    }

    /// The scheduler with knobs by name, all others as they are by default.
    fn spec_with(&self, values: &mut BTreeMap<&str, &str>) -> Result<SchedulerSpec, String> {
        let mut text = self.scheduler.clone();
        for knob in &self.knobs {
            if let Some(default) = &knob.default {
                let value = values.remove(knob.name.as_str()).unwrap_or(default);
                text = text.replace(&format!("{{{}}}", knob.name), value);
            }
        }
        let mut spec = load::scheduler(&text).map_err(|error| error.to_string())?;
        for (name, value) in values {
            spec.set(name, value).map_err(|error| error.to_string())?;
        }
        Ok(spec)
    }

    fn default_spec(&self) -> Result<SchedulerSpec, String> {
        self.spec_with(&mut BTreeMap::new())
    }

    /// The scheduler as it is by default.
    ///
    /// # Errors
    /// When it is none.
    pub fn default(&self) -> Result<SchedulerSpec, TuneError> {
        self.default_spec().map_err(|words| TuneError::Form { path: self.name.clone(), words })
    }

    /// The scheduler of a candidate: a value for every knob, or `None` for its default.
    ///
    /// # Errors
    /// A value that the knob does not have.
    pub fn candidate(&self, values: &[Option<String>]) -> Result<SchedulerSpec, TuneError> {
        let error = |knob: &str, value: &str, reason: String| TuneError::Proposal {
            knob: knob.to_owned(),
            value: value.to_owned(),
            reason,
        };
        let mut known = BTreeMap::new();
        for (knob, value) in self.knobs.iter().zip(values) {
            let Some(value) = value else { continue };
            knob.check(value).map_err(|reason| error(&knob.name, value, reason))?;
            known.insert(knob.name.as_str(), value.as_str());
        }
        self.spec_with(&mut known)
            .map_err(|reason| error("all", &values.iter().flatten().cloned().collect::<Vec<_>>().join(","), reason))
    }
}
