//! What figures name, in what runs: cells, measures, tasks, causes.

use warmcore_lab::measures;

use super::{Plan, PlannedCell};
use crate::figure::{EACH, Expression, NamedPart, Selection};
use crate::file::{self, FormError, Problem};

/// How fast a run is: one over the time of the first application where that ends, over the run's time where a task ended the run before
/// its duration; else the work done over the duration. Compares a program under two schedulers, whatever its end is.
pub const SPEED: &str = "speed";
/// The work done.
pub(crate) const WORK: &str = "work_ns";
/// CPU time of all tasks, or of some.
pub(crate) const CPU_TIME: &str = "cpu_time_ns";
/// What time by cause begins with.
pub(crate) const CAUSE_PREFIX: &str = "time.";

/// Whether a name is among those that are known.
fn known<'a>(kind: &'static str, name: &str, all: impl Iterator<Item = &'a str> + Clone) -> Result<(), Problem> {
    file::known(kind, name, all).map(|_| ())
}

impl Plan {
    /// Checks that every measure that a figure names is one of its cell's workload, and of one simulation only.
    pub(super) fn check_figures(&self) -> Result<(), FormError> {
        // What a program computes is not simulated.
        for (index, study) in self.studies.iter().enumerate().filter(|(_, study)| study.program.is_none()) {
            for expectation in &study.expectations {
                self.check_names(index, None, &expectation.figure)
                    .map_err(|problem| study.error_of(expectation, problem))?;
            }
            for figure in &study.figures {
                self.check_names(index, None, &figure.of).map_err(|problem| study.error_at(figure.at, problem))?;
            }
            for drawing in study.drawings.iter().filter(|of| study.must_draw(&of.name)) {
                self.cell(index, None, &drawing.of)
                    .map_err(|words| study.error_at(drawing.at, Problem::Value(words)))?;
            }
            for bar in study.charts.iter().filter(|of| study.must_draw(&of.name)).flat_map(|chart| &chart.bars) {
                self.check_names(index, None, &bar.figure).map_err(|problem| study.error_at(bar.at, problem))?;
            }
            // A task that the wrong model's workload has not would have no CPU time, which rejects whatever it is compared with.
            for (number, wrong) in study.wrong.iter().enumerate() {
                let Some(workload) = &wrong.workload else { continue };
                for rejects in &wrong.rejects {
                    self.check_names(index, Some(number), &study.expectations[*rejects].figure)
                        .map_err(|problem| study.error_at(workload.span().start, problem))?;
                }
            }
        }
        Ok(())
    }

    /// Checks what an expression names; under a wrong model also in the figures that it names, which otherwise are checked where they are.
    fn check_names(&self, study: usize, wrong: Option<usize>, figure: &Expression) -> Result<(), Problem> {
        let mut found = Ok(());
        let mut check = |selection: &Selection| {
            if found.is_ok() {
                found = self.check_selection(study, wrong, selection);
            }
        };
        match wrong {
            Some(_) => self.studies[study].each_measure(figure, &mut check),
            None => figure.each_name(&mut |name, _| {
                if let NamedPart::Measure(selection) = name {
                    check(selection);
                }
            }),
        }
        found
    }

    fn check_selection(&self, study: usize, wrong: Option<usize>, selection: &Selection) -> Result<(), Problem> {
        let cell = self.cell(study, wrong, selection).map_err(Problem::Value)?;
        let Ok((experiment, _)) = cell.runs else { return Ok(()) };
        let workload = &self.experiments[experiment].experiment.workload.value;
        let by_task = selection.choices.iter().find(|(key, _)| matches!(key.as_str(), "task" | "application" | EACH));
        if let Some((key, name)) = by_task {
            if selection.measure != CPU_TIME {
                let words = format!("`{key}=` chooses of {CPU_TIME} only, not of {}", selection.measure);
                return Err(Problem::Value(words));
            }
            if key == "application" {
                return known("application", name, workload.applications.iter().map(String::as_str));
            }
            let all = || workload.tasks.iter().map(|task| task.name.as_str());
            // `NAME-2` is an instance of `NAME`.
            let of = name.rsplit_once('-').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
            let is_instance = of.is_some_and(|(name, _)| all().any(|known| known == name));
            return if is_instance { Ok(()) } else { known("task", name, all()) };
        }
        if let Some(cause) = selection.measure.strip_prefix(CAUSE_PREFIX) {
            return known("cause", cause, warmcore_lab::time_split::CAUSES.iter().map(|cause| cause.name));
        }
        // What is looked at besides has names that say when.
        if !self.studies[study].cells[cell.cell].observe.is_empty() {
            return Ok(());
        }
        let all = measures::of_workload(workload);
        if [CPU_TIME, SPEED].contains(&selection.measure.as_str()) {
            Ok(())
        } else {
            known("measure", &selection.measure, all.iter().map(|measure| measure.name.as_str()))
        }
    }

    /// The one simulation that a selection means.
    ///
    /// # Errors
    /// In words, when it means none or several.
    pub fn cell(&self, study: usize, wrong: Option<usize>, selection: &Selection) -> Result<&PlannedCell, String> {
        let of = &self.studies[study];
        let fits = |cell: &&PlannedCell| selection.fits(&of.cells[cell.cell].name, &cell.bindings);
        let of_model = |model: Option<usize>| {
            self.cells[study].iter().filter(move |cell| cell.wrong == model).filter(fits).collect::<Vec<_>>()
        };
        let mut found = of_model(wrong);
        if found.is_empty() && wrong.is_some() {
            found = of_model(None);
        }
        match found[..] {
            [one] => Ok(one),
            [] => {
                Err(format!("{selection} is not one of the cell's simulations: {}", self.simulations(study, selection)))
            }
            _ => Err(format!(
                "{selection} is {} simulations; say which: {}",
                found.len(),
                self.simulations(study, selection)
            )),
        }
    }

    /// What the simulations of a cell are called.
    fn simulations(&self, study: usize, selection: &Selection) -> String {
        let of =
            |cell: &&PlannedCell| cell.wrong.is_none() && self.studies[study].cells[cell.cell].name == selection.cell;
        let name = |cell: &PlannedCell| {
            let words: Vec<String> = cell.bindings.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", words.join(", "))
        };
        let names: Vec<String> = self.cells[study].iter().filter(of).map(name).take(8).collect();
        names.join(" ")
    }
}
