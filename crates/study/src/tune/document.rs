//! What came of a tuning: a document, a table and an answer in words.

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::verdict::{decimal, interval_ends, ratio_with_interval};
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::{Comparison, Verdict};

use super::form::{Objective, Range, Tuning};

/// Version of the document.
pub const SCHEMA: &str = "warmcore-tuning-1";

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// No candidate was better than the default in the search.
    NothingFound,
    /// The best candidate of the search is not shown to be better under seeds that the search did not see.
    NotConfirmed,
    /// It is better there, and worse on what was held out.
    NotElsewhere,
    /// It is better under seeds that the search did not see, and not worse on what was held out.
    Better,
}

/// A tuning's result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TuningDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub tool_version: &'static str,
    /// The file's stem.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// How cells become one number.
    pub objective: Objective,
    /// Where candidates came from.
    pub sampler: String,
    /// What all is compared with.
    pub default: String,
    /// What came of it.
    pub answer: Answer,
    /// The answer in words.
    pub words: String,
    /// The candidate that was confirmed, or not; absent if none was better in the search.
    pub scheduler: Option<String>,
    /// What is typed for it on a real kernel.
    pub commands: Vec<String>,
    /// The objective of the search's cells under other seeds, as a ratio to the default.
    pub searched: Option<Comparison>,
    /// The same of the cells that were held out.
    pub held_out: Option<Comparison>,
    /// Each cell of the confirmation.
    pub cells: Vec<CellResult>,
    /// Each knob.
    pub knobs: Vec<KnobResult>,
    /// Everything that was tried, in order.
    pub candidates: Vec<CandidateResult>,
}

/// A cell of the confirmation.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs)] // their names say it
pub struct CellResult {
    pub machine: String,
    pub workload: String,
    pub metric: String,
    /// Whether the search did not see it.
    pub held_out: bool,
    /// Trials in which the candidate left tasks waiting for ever that ran under the default: there it is as bad as can be.
    pub starved: usize,
    /// The candidate against the default.
    pub comparison: Comparison,
}

/// A knob.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KnobResult {
    /// Its name.
    pub name: String,
    /// Its range, or its values.
    pub range: String,
    /// Whether factors matter.
    pub log: bool,
    /// By default; several if it depends on the machine.
    pub default: String,
    /// In the candidate that was confirmed.
    pub found: Option<String>,
    /// The objective with this knob put back to its default, as a ratio to the candidate's: above 1 where the knob helps.
    pub without: Option<Comparison>,
}

/// A candidate.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CandidateResult {
    /// The scheduler with its settings.
    pub scheduler: String,
    /// A value for each knob.
    pub values: Vec<String>,
    /// The middle of its objectives under the seeds that it had, as a ratio to the default; `None` where it has no such value.
    pub value: Option<f64>,
    /// How many seeds it had.
    pub trials: usize,
    /// Whether it was worse than the best and got no more seeds.
    pub dropped: bool,
}

fn range_of(range: &Range) -> (String, bool) {
    match range {
        Range::Numbers { from, to, log } => (format!("{from} to {to}"), *log),
        Range::Words(words) => (words.join(", "), false),
    }
}

/// A ratio with its interval.
fn ratio(of: &Comparison) -> String {
    if let Some((ratio, interval)) = of.ratio.zip(of.interval)
        && [ratio, interval.low, interval.high].iter().all(|value| value.is_finite())
    {
        return ratio_with_interval(ratio, Some(interval));
    }
    let ends = of.interval.map(|interval| {
        let [low, high] = interval_ends(interval);
        let end = |value: f64, text: String| if value.is_infinite() { INFINITE.to_owned() } else { text };
        format!(" [{}, {}]", end(interval.low, low), end(interval.high, high))
    });
    let number = |ratio: f64| if ratio.is_infinite() { INFINITE.to_owned() } else { decimal(ratio) };
    format!("{}{}", of.ratio.map_or_else(|| "-".to_owned(), number), ends.unwrap_or_default())
}

/// A ratio to what is as bad as can be.
const INFINITE: &str = "infinite";

impl TuningDocument {
    pub(super) fn new(
        tuning: &Tuning,
        default: &SchedulerSpec,
        candidates: Vec<CandidateResult>,
        sampler: String,
    ) -> Self {
        let by_default = |name: &str| {
            let mut all: Vec<String> = Vec::new();
            for cell in tuning.searched() {
                let values = default.effective(cell.machine.value.cpu_count());
                let known = default.info().tunables().zip(values).find(|(tunable, _)| tunable.name == name);
                let text = known.map_or_else(String::new, |(tunable, (_, value))| tunable.text(value));
                if !all.contains(&text) {
                    all.push(text);
                }
            }
            all.join(" or ")
        };
        let knobs = tuning.knobs.iter().map(|knob| {
            let (range, log) = range_of(&knob.range);
            let default = knob.default.clone().unwrap_or_else(|| by_default(&knob.name));
            KnobResult { name: knob.name.clone(), range, log, default, found: None, without: None }
        });
        Self {
            schema: SCHEMA,
            tool_version: TOOL_VERSION,
            name: tuning.name.clone(),
            title: tuning.title.clone(),
            objective: tuning.objective,
            sampler,
            default: default.to_string(),
            answer: Answer::NothingFound,
            words: String::new(),
            scheduler: None,
            commands: Vec::new(),
            searched: None,
            held_out: None,
            cells: Vec::new(),
            knobs: knobs.collect(),
            candidates,
        }
    }

    /// Sets the answer.
    pub(super) fn conclude(&mut self) {
        let count = self.candidates.len();
        let objective = match self.objective {
            Objective::GeometricMean => "the geometric mean of all cells",
            Objective::Worst => "the worst cell",
        };
        let (Some(found), Some(searched)) = (self.scheduler.clone(), self.searched.clone()) else {
            self.answer = Answer::NothingFound;
            self.words = format!(
                "Nothing beats the default, {}: none of {count} candidates is better in {objective}.",
                self.default
            );
            return;
        };
        let of = ratio(&searched);
        let trials = searched.candidate_n;
        let elsewhere =
            self.held_out.as_ref().map_or_else(String::new, |of| format!(" On what was held out: {}.", ratio(of)));
        let worse = self.held_out.as_ref().is_some_and(|of| of.verdict == Verdict::Worse);
        (self.answer, self.words) = match searched.verdict {
            Verdict::Better if worse => (
                Answer::NotElsewhere,
                format!(
                    "Keep the default, {}: {found} is better on what was searched, {of} times, and worse on what was held out.{elsewhere}",
                    self.default
                ),
            ),
            Verdict::Better => (
                Answer::Better,
                format!(
                    "{found} is better than the default, {}: {objective} is {of} times the default's under {trials} seeds that the search did \
                     not see.{elsewhere}",
                    self.default
                ),
            ),
            _ => (
                Answer::NotConfirmed,
                format!(
                    "Nothing beats the default, {}: the best of {count} candidates, {found}, is not confirmed. Under {trials} seeds that the \
                     search did not see {objective} is {of} times the default's.{elsewhere}",
                    self.default
                ),
            ),
        };
        for cell in self.cells.iter().filter(|cell| cell.starved > 0) {
            self.words.push_str(&format!(
                " It leaves tasks waiting without end that run under the default, in {} of {trials} trials of {} on {}.",
                cell.starved, cell.workload, cell.machine
            ));
        }
    }

    /// The candidate, if it is shown to be better.
    pub fn confirmed(&self) -> Option<&str> {
        self.scheduler.as_deref().filter(|_| self.answer == Answer::Better)
    }

    /// All in words, with the tables of knobs and cells.
    pub fn text(&self, knobs: &str, cells: &str) -> String {
        let mut text = format!("{}\n\n{}\n", self.words, knobs.trim_end());
        if !self.cells.is_empty() {
            text.push_str(&format!("\n{}\n", cells.trim_end()));
        }
        if self.answer == Answer::Better && !self.commands.is_empty() {
            text.push_str("\nOn a real kernel:\n");
            self.commands.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text
    }

    /// Headings of the table of knobs.
    pub const HEADINGS: [&'static str; 5] = ["knob", "range", "default", "found", ">without it [95 %]"];

    /// Rows of the table of knobs.
    pub fn rows(&self) -> Vec<[String; 5]> {
        let row = |knob: &KnobResult| {
            let found = knob.found.clone().unwrap_or_else(|| "-".to_owned());
            let without = knob.without.as_ref().map_or_else(|| "-".to_owned(), ratio);
            [knob.name.clone(), knob.range.clone(), knob.default.clone(), found, without]
        };
        self.knobs.iter().map(row).collect()
    }

    /// Headings of the table of cells.
    pub const CELL_HEADINGS: [&'static str; 5] = ["machine", "workload", "metric", "held out", ">ratio [95 %]"];

    /// Rows of the table of cells.
    pub fn cell_rows(&self) -> Vec<[String; 5]> {
        let row = |cell: &CellResult| {
            let held_out = if cell.held_out { "yes" } else { "" }.to_owned();
            let starves = if cell.starved > 0 { ", starves" } else { "" };
            let ratio = format!("{}{starves}", ratio(&cell.comparison));
            [cell.machine.clone(), cell.workload.clone(), cell.metric.clone(), held_out, ratio]
        };
        self.cells.iter().map(row).collect()
    }
}
