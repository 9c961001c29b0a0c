//! The form of a study: one TOML file.
//!
//! `docs/reference/studies.md` has its keys; [`Study`] and what is in it say what they mean.
//!
//! What is not what it should be is an error with line and column. Does not load machines or workloads: that is [`plan`](crate::plan)'s.

mod alike;
mod bars;
mod contention;
mod expect;
mod form;
mod mark;
mod part;
pub(crate) mod placeholders;
mod schema;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;
use warmcore_lab::experiment::Observation;
use warmcore_lab::files;
use warmcore_options::MemoryChoice;
use warmcore_statistics::Better;

pub use self::bars::{Bar, BarChart};
pub use self::contention::Contention;
pub use self::expect::Expected;
pub use self::mark::{Mark, MarkKind};
pub(crate) use self::part::CellSimulation;
use crate::figure::{EACH, Expression, NamedPart, ParseError, Selection, did_you_mean};

/// Version of the form.
pub const SCHEMA: &str = "warmcore-study-form-1";

/// The JSON Schema of a study's file (draft 2020-12), made from the types that read one.
pub fn form_schema() -> String {
    let mut schema = form::schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Study files".into();
    schema["description"] = "What `warmcore study run FILE` reads; docs/reference/studies.md explains the keys.".into();
    schema["properties"]["schema"] = serde_json::json!({ "const": SCHEMA });
    // Texts and numbers can always be written.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

/// A study.
#[derive(Clone, Debug)]
pub struct Study {
    /// The file's stem.
    pub name: String,
    /// The file, as it was given.
    pub path: PathBuf,
    /// What it is about, in a few words.
    pub title: String,
    /// What somebody wants to know.
    pub question: String,
    /// Who measured the answer, and where.
    pub source: String,
    /// Whether tests run it.
    pub cost: Cost,
    /// What a reader should know besides.
    pub note: String,
    /// What this program lacks, of a question that it cannot ask.
    pub not_expressible: Option<Missing>,
    /// Machines of its own.
    pub machines: Vec<Inline>,
    /// Workloads of its own.
    pub workloads: Vec<Inline>,
    /// Memory profiles that workloads may name, TOML.
    pub profiles: Option<String>,
    /// The program whose figures the expectations name, if there are no cells.
    pub program: Option<String>,
    /// An address trace whose threads are that program's tasks, by its path from the study's directory.
    pub trace: Option<String>,
    /// What else it says of them, for each combination of values of its axes.
    pub contentions: Vec<Contention>,
    /// How many cells it may have, if more than usual.
    pub most_cells: Option<u64>,
    /// What runs.
    pub cells: Vec<Cell>,
    /// What is varied.
    pub axes: Vec<Axis>,
    /// Figures that others name.
    pub figures: Vec<NamedFigure>,
    /// What is expected.
    pub expectations: Vec<Expectation>,
    /// What was published and cannot be asked here.
    pub not_asked: Vec<NotAsked>,
    /// What is drawn over time.
    pub drawings: Vec<Drawing>,
    /// What is drawn as bars.
    pub charts: Vec<BarChart>,
    /// Models that must be rejected.
    pub wrong: Vec<WrongModel>,
    /// With which earlier result figures are compared.
    pub baseline: Option<BaselineFile>,
    /// Whether only what its figures name is run.
    partial: bool,
    /// Names of drawings that such a part was asked for.
    asked: Vec<String>,
    text: String,
}

/// What a study takes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Some seconds of a debug build at most.
    #[default]
    Short,
    /// More.
    Long,
}

/// What is lacking for a question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// What cannot be said.
    pub missing: String,
    /// What would answer the question.
    pub settle: String,
}

/// A figure of the source over time, drawn again from a cell's first trial.
#[derive(Clone, PartialEq, Debug)]
pub struct Drawing {
    /// Name of its files.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What is to be seen in the published one, and its axes.
    pub published: String,
    /// Of what: the kind, with a score's name after a dot, and a cell.
    pub of: Selection,
    /// How it is drawn.
    pub kind: DrawingKind,
    pub(crate) at: usize,
}

/// What is drawn of one trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrawingKind {
    /// Run time of each application so far.
    RunTimeOfApplications,
    /// Run time of each task so far.
    RunTimeOfTasks,
    /// A score of the scheduler.
    Score,
    /// Runnable tasks on each CPU.
    TasksPerCpu,
    /// Where each task spent its run time: tasks × CPUs.
    RunTimePerCpu,
    /// Moves from each virtual LLC to each other one.
    MovesOfVirtualLlcs,
}

/// Their names.
const DRAWN: [(&str, DrawingKind); 6] = [
    ("moves_of_virtual_llcs", DrawingKind::MovesOfVirtualLlcs),
    ("run_time_per_cpu", DrawingKind::RunTimePerCpu),
    ("run_time_of_applications", DrawingKind::RunTimeOfApplications),
    ("run_time_of_tasks", DrawingKind::RunTimeOfTasks),
    ("score", DrawingKind::Score),
    ("tasks_per_cpu", DrawingKind::TasksPerCpu),
];

/// A published figure that cannot be asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotAsked {
    /// What it is, in a few words.
    pub name: String,
    /// What is lacking for it.
    #[serde(flatten)]
    pub missing: Missing,
}

/// A machine or workload within the file.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inline {
    /// Name that cells use.
    pub name: Spanned<String>,
    /// Its own text.
    pub text: String,
}

/// What runs: as many simulations as its axes and schedulers make of it, in trials.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// Name that figures use.
    pub name: String,
    /// Where.
    pub machine: Spanned<String>,
    /// Beside which threads of the kernel itself: a name, a file, or `none`, which is the default.
    pub background: Option<Spanned<String>>,
    /// What.
    pub workload: Spanned<String>,
    /// With which change of what of the machine rests on nothing; an empty text is none.
    pub assumed: Option<Spanned<String>>,
    /// Under which schedulers.
    pub schedulers: Vec<Spanned<String>>,
    /// In which place, with its settings, as [`PlaceChoice`](warmcore_places::choice::PlaceChoice) reads it; the simulator if it does not say.
    pub place: Option<Spanned<String>>,
    /// With which memory, if not what fits the workload.
    pub memory: Option<MemoryChoice>,
    /// Trials.
    pub trials: u32,
    /// Seed that all trials' seeds are derived from.
    pub seed: u64,
    /// End of each run even if tasks still run.
    pub max_time_ns: Option<u64>,
    /// What counts in nothing, if not what the workload says.
    pub warm_up_ns: Option<u64>,
    /// What is looked at beside the usual measures.
    pub observe: Vec<Observation>,
    /// Axes that its texts name.
    pub axes: Vec<usize>,
}

/// Something that is varied.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// For each value what is put for which placeholder.
    pub values: Vec<Vec<(String, String)>>,
    /// For each value what is expected of it.
    pub expected: Vec<Expected>,
}

/// An earlier result of the study.
#[derive(Clone, PartialEq, Debug)]
pub struct BaselineFile {
    /// Its file, beside the study.
    pub file: PathBuf,
    /// Differences up to this fraction do not matter.
    pub margin: f64,
    pub(crate) at: usize,
}

/// A figure with a name.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedFigure {
    /// The name.
    pub name: String,
    /// What it is.
    pub of: Expression,
    /// Where that begins in the file, in bytes.
    pub(crate) at: usize,
}

/// What a figure is expected to be.
#[derive(Clone, PartialEq, Debug)]
pub struct Expectation {
    /// What it is, in a few words.
    pub name: String,
    /// How it is computed.
    pub figure: Expression,
    /// What was measured, if that is a number.
    pub published: Option<f64>,
    /// Where the figure must lie; anywhere if only the baseline decides.
    pub band: Band,
    /// Why there.
    pub reason: String,
    /// Which direction is an improvement over the baseline, if it is compared with that, and up to which fraction no difference matters.
    pub against: Option<(Better, f64)>,
    /// From where on a change has a direction; `None` for a quantity that is no change.
    pub neutral: Option<f64>,
    /// Why it is shown and not scored.
    pub mark: Option<Mark>,
    /// Whether it decides.
    pub counted: bool,
    /// What is known of an answer outside of the band.
    pub outside: Option<Outside>,
    pub(crate) mark_at: usize,
    pub(crate) at: usize,
    pub(crate) named_at: usize,
}

/// Both ends of a band, which belong to it. Infinite ones are open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Band {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Band {
    /// No band.
    pub const ANYWHERE: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };

    /// Whether a figure lies inside.
    pub fn contains(self, figure: f64) -> bool {
        self.low <= figure && figure <= self.high
    }
}

/// An answer that is known to be outside of its band. It stays listed as what it is; that it changes is an error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outside {
    /// How it is judged.
    pub verdict: OutsideKind,
    /// The cause, as far as it is known.
    pub why: String,
    /// What would show whether that is so.
    pub settle: String,
}

warmcore_topology::worded! {
    /// In which way an answer is outside of its band.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum OutsideKind: words {
        /// On the right side of what is neutral.
        RightInSign = "right in sign",
        /// Not even that.
        Wrong = "wrong",
        /// Inside in some trials and outside in others, so that their number decides: either is expected.
        Varies = "right in some trials only",
    }
}

/// A model that must be rejected.
#[derive(Clone, PartialEq, Debug)]
pub struct WrongModel {
    /// What is wrong.
    pub name: String,
    /// Instead of the cells' own.
    pub scheduler: Option<Spanned<String>>,
    /// Instead of the cells' own.
    pub machine: Option<Spanned<String>>,
    /// Instead of the cells' own.
    pub workload: Option<Spanned<String>>,
    /// Indices of the cells.
    pub cells: Vec<usize>,
    /// Indices of the expectations of which one must be outside its band.
    pub rejects: Vec<usize>,
}

/// What is wrong with a file, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct FormError {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// What.
    pub problem: Problem,
}

/// What is wrong with a study.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum Problem {
    /// It is no TOML, or a value has the wrong type.
    #[error("{0}")]
    Syntax(String),
    #[error("there is no key `{key}` here{}; known are {}", did_you_mean(.nearest.as_deref()), .known.join(", "))]
    UnknownKey { key: String, nearest: Option<String>, known: Vec<String> },
    #[error("its schema is `{0}`; this version reads {SCHEMA}")]
    Schema(String),
    #[error("it has no [[{0}]]; a question that cannot be asked has [not_expressible] and nothing else")]
    Nothing(&'static str),
    #[error("it is not expressible, and has [[{0}]]")]
    NotExpressible(&'static str),
    #[error("two of [[{kind}]] are called `{name}`")]
    Twice { kind: &'static str, name: String },
    /// A name that is none.
    #[error("there is no {kind} `{name}`{}", did_you_mean(.nearest.as_deref()))]
    Unknown { kind: &'static str, name: String, nearest: Option<String> },
    /// An axis that is none.
    #[error("axis `{name}` {reason}")]
    Axis { name: String, reason: &'static str },
    /// A value that makes no sense.
    #[error("{0}")]
    Value(String),
    /// A figure that cannot be read.
    #[error("{0}")]
    Figure(ParseError),
    #[error("figures name each other in a circle: {}", .0.join(" -> "))]
    Circle(Vec<String>),
}

/// A problem and where it is, in bytes.
pub(crate) type At = (usize, Problem);

/// Why a study cannot be had.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ReadError {
    /// Its file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// It is not what it should be.
    #[error(transparent)]
    File(#[from] FormError),
}

impl Study {
    /// Reads a study's file.
    ///
    /// # Errors
    /// When it cannot be read or is not what it should be.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let text = files::text_of_file(path).map_err(|source| ReadError::Read { path: path.to_owned(), source })?;
        Ok(Self::parse(path, &text)?)
    }

    /// The study of a text.
    ///
    /// # Errors
    /// Where it is not what it should be, and how.
    pub fn parse(path: &Path, text: &str) -> Result<Self, FormError> {
        let located = |(at, problem): At| {
            let (line, column) = line_and_column(text, at);
            FormError { file: path.display().to_string(), line, column, problem }
        };
        form::read(path, text).map_err(located)
    }

    /// Whether it is the same file.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let file = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        file(&self.path) == file(&other.path) && self.text == other.text
    }

    /// Checks that figures name cells, axes and figures that are there, and not each other in a circle.
    fn check_names(&self) -> Result<(), At> {
        let figures = self.figures.iter().map(|figure| (&figure.of, figure.at));
        let bars = self.charts.iter().flat_map(|chart| &chart.bars).map(|bar| (&bar.figure, bar.at));
        let all = figures.chain(self.expectations.iter().map(|of| (&of.figure, of.at))).chain(bars);
        for (expression, span) in all {
            let mut found = Ok(());
            expression.each_name(&mut |name, at| {
                if found.is_ok() {
                    // The text begins after its quotation mark.
                    found = self.check_name(name).map_err(|problem| (span + 1 + at, problem));
                }
            });
            found?;
        }
        for drawing in &self.drawings {
            self.check_name(NamedPart::Measure(&drawing.of)).map_err(|problem| (drawing.at, problem))?;
        }
        let (mut path, mut done) = (Vec::new(), BTreeSet::new());
        for figure in &self.figures {
            self.circle_from(figure, &mut path, &mut done).map_err(|problem| (figure.at, problem))?;
        }
        Ok(())
    }

    fn check_name(&self, name: NamedPart<'_>) -> Result<(), Problem> {
        let selection = match name {
            NamedPart::Figure(_) if self.program.is_some() => return Ok(()),
            NamedPart::Figure(name) => {
                return known("figure", name, self.figures.iter().map(|figure| figure.name.as_str())).map(|_| ());
            }
            NamedPart::Measure(selection) if self.program.is_some() => return self.check_contention(selection),
            NamedPart::Measure(selection) => selection,
        };
        let cell = known("cell", &selection.cell, self.cells.iter().map(|cell| cell.name.as_str()))?;
        let cell = &self.cells[cell];
        let mut keys: Vec<&str> = vec![SCHEDULER, "task", "application", EACH];
        keys.extend(cell.axes.iter().flat_map(|axis| &self.axes[*axis].values[0]).map(|(key, _)| key.as_str()));
        for (key, _) in selection.choices.iter().filter(|(key, _)| !key.is_empty()) {
            known("axis of this cell", key, keys.iter().copied())?;
        }
        Ok(())
    }

    fn circle_from<'a>(
        &'a self,
        figure: &'a NamedFigure,
        path: &mut Vec<String>,
        done: &mut BTreeSet<&'a str>,
    ) -> Result<(), Problem> {
        if done.contains(figure.name.as_str()) {
            return Ok(());
        }
        let before = path.contains(&figure.name);
        path.push(figure.name.clone());
        if before {
            return Err(Problem::Circle(path.clone()));
        }
        let mut named = Vec::new();
        figure.of.each_name(&mut |name, _| {
            if let NamedPart::Figure(name) = name {
                named.push(name);
            }
        });
        for name in named {
            if let Some(next) = self.figures.iter().find(|figure| figure.name == name) {
                self.circle_from(next, path, done)?;
            }
        }
        path.pop();
        done.insert(&figure.name);
        Ok(())
    }

    /// An error at a place of its text.
    pub(crate) fn error_at(&self, at: usize, problem: Problem) -> FormError {
        let (line, column) = line_and_column(&self.text, at);
        FormError { file: self.path.display().to_string(), line, column, problem }
    }

    /// An error about an expectation.
    pub fn error_of(&self, expectation: &Expectation, problem: Problem) -> FormError {
        self.error_at(expectation.at, problem)
    }
}

/// The choice among a cell's schedulers.
pub const SCHEDULER: &str = "scheduler";

/// Line and column of a place in a text, from 1; columns count characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let mut end = at.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The position of a name among those that are known.
pub(crate) fn known<'a>(
    kind: &'static str,
    name: &str,
    all: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Problem> {
    all.clone().position(|known| known == name).ok_or_else(|| Problem::Unknown {
        kind,
        name: name.to_owned(),
        nearest: warmcore_topology::nearest(name, all).map(str::to_owned),
    })
}

#[cfg(test)]
impl Expectation {
    /// One of a figure, counted and around 1.
    pub(crate) fn for_tests(figure: Expression, published: Option<f64>, band: Band) -> Self {
        let (name, reason) = ("it".to_owned(), "so".to_owned());
        Self {
            name,
            figure,
            published,
            band,
            reason,
            against: None,
            neutral: Some(1.0),
            mark: None,
            counted: true,
            outside: None,
            mark_at: 0,
            at: 0,
            named_at: 0,
        }
    }
}

#[cfg(test)]
mod tests;
