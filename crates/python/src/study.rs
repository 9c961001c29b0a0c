//! Studies: many experiments from one file, with what is expected of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use warmcore_lab::environment::Environment;
use warmcore_lab::session;
use warmcore_lab::table::Values;
use warmcore_lab::trial::Trial;
use warmcore_report::figures::WIDTH;
use warmcore_report::figures::expected::{self, Expected};
use warmcore_report::table::Table as Text;
use warmcore_study::document::{ExpectationResult, StudyDocument};
use warmcore_study::file::Study as File;
use warmcore_study::judge::Judgement;
use warmcore_study::plan::PlannedExperiment;
use warmcore_study::run::{self, Means, StudyError};
use warmcore_study::{baseline, choice, library, page, plan};

use crate::arrow::Table;
use crate::asked::{self, Out, Texts};
use crate::attended::{Watch, attended};
use crate::failure::{Trouble, warn};
use crate::figure::{self, Figure};
use crate::gathering;

/// Studies: many experiments from one file, with what is expected of them.
///
/// `Study.load("answers/smt-pool")` is one that comes with the program, `Study.load("answers")` a collection, `Study.load("gate.toml")` a
/// file. `len(study)` is the number of files.
#[pyclass(frozen, module = "warmcore")]
pub struct Study {
    files: Vec<File>,
    called: String,
}

#[pymethods]
impl Study {
    /// A study by name or by its file.
    ///
    /// Raises WarmcoreError if there is none; its `advice` has the nearest name.
    #[staticmethod]
    fn load(name: PathBuf) -> PyResult<Self> {
        let called = name.to_string_lossy().into_owned();
        Ok(Self { files: choice::called(&called).map_err(Trouble::from)?, called })
    }

    /// A study from its text, as a file has it (`warmcore reference schema study-form`, docs/reference/studies.md). `name` is what the file would be
    /// called without its ending.
    ///
    /// Raises WarmcoreError that names the line if the text is no study.
    #[staticmethod]
    #[pyo3(signature = (text, *, name="study"))]
    fn parse(text: &str, name: &str) -> PyResult<Self> {
        let called = format!("{name}.toml");
        Ok(Self { files: vec![File::parse(Path::new(&called), text).map_err(Trouble::from)?], called })
    }

    /// Names of the studies that come with the program.
    #[staticmethod]
    fn packaged() -> Vec<&'static str> {
        library::STUDIES.iter().map(|packaged| packaged.name).collect()
    }

    /// What it is about.
    #[getter]
    fn title(&self) -> String {
        self.files.iter().map(|file| file.title.as_str()).collect::<Vec<_>>().join("; ")
    }

    /// What is expected, by name.
    #[getter]
    fn expectations(&self) -> Vec<&str> {
        self.files.iter().flat_map(|file| &file.expectations).map(|expectation| expectation.name.as_str()).collect()
    }

    /// Runs it. `trials`: so many of every cell instead of its own; `only`: what is expected under names that contain one of these, and
    /// what must run for it; `jobs`: simulations at the same time; `progress`: called with (finished, total), or True for a line on standard
    /// error; `out`: directory for a run directory of every experiment, where finished trials are taken over; `client`: a
    /// `dask.distributed.Client`, whose workers run the trials instead of this computer.
    ///
    /// Ctrl-C stops it with KeyboardInterrupt. Raises WarmcoreError for what makes no sense, before anything runs.
    #[pyo3(signature = (*, trials=None, only=None, jobs=None, progress=None, out=None, client=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn run(
        &self,
        py: Python<'_>,
        trials: Option<i64>,
        only: Option<Texts>,
        jobs: Option<i64>,
        progress: Option<Py<PyAny>>,
        out: Option<Out>,
        client: Option<Py<PyAny>>,
    ) -> PyResult<StudyResult> {
        let mut chosen = self.files.clone();
        if let Some(only) = only.map(Texts::list).filter(|only| !only.is_empty()) {
            choice::keep_only(&mut chosen, &only).map_err(Trouble::from)?;
        }
        if let Some(trials) = trials {
            choice::set_trials(&mut chosen, asked::trials(trials)?).map_err(Trouble::from)?;
        }
        let (jobs, out) = (asked::jobs(jobs)?, out.map(|Out(path)| path));
        let progress = asked::progress(py, progress, "simulations")?;
        let plan = py.detach(|| plan::plan(chosen, &[], &|_| {}).map_err(Trouble::from))?;
        let baselines = baseline::read(&plan).map_err(Trouble::from)?;
        let trials = match client {
            None => attended(py, progress.as_ref(), |watch| {
                watch.total.store(plan.simulations_in_all(), Ordering::Relaxed);
                here(&plan.experiments, out.as_deref(), jobs, watch)
            })?,
            Some(client) => {
                gathering::over(py, &client, progress.as_ref(), &plan.experiments, out.as_deref(), &plan.names())?
            }
        };
        warn(py, &plan.notes)?;
        Ok(StudyResult { document: StudyDocument::new(&plan, &trials, &baselines), called: self.called.clone() })
    }

    fn __len__(&self) -> usize {
        self.files.len()
    }

    fn __repr__(&self) -> String {
        format!("<warmcore.Study {}: {}>", self.called, self.title())
    }

    fn _repr_html_(&self) -> String {
        let mut table = Text::new(["study", "what is expected"]);
        for file in &self.files {
            file.expectations.iter().for_each(|of| table.row([file.name.clone(), of.name.clone()]));
        }
        format!("<p><b>{}</b></p>\n{}", warmcore_report::svg::escape(&self.title()), table.html())
    }
}

/// Trials of experiments that run on this computer.
pub fn here(
    experiments: &[PlannedExperiment],
    out: Option<&Path>,
    jobs: usize,
    watch: &Watch,
) -> Result<Vec<Vec<Vec<Trial>>>, Trouble> {
    let environment = Environment::at_start(asked::command_line(), jobs, asked::unix_seconds());
    let means = Means {
        jobs,
        stop: Arc::clone(&watch.stop),
        progress: &|_| watch.one_more(),
        out,
        environment: &environment,
        unix_seconds: asked::unix_seconds,
        note: &|_| {},
    };
    run::each(experiments, &means, &mut |done| {
        done.keep(None)?;
        Ok(done.finished.trials)
    })
    .map_err(|error: StudyError| error.into())
}

/// What came of a study: figures against what is expected of them. `print(result)` is the table as text.
#[pyclass(frozen, module = "warmcore")]
pub struct StudyResult {
    document: StudyDocument,
    called: String,
}

impl StudyResult {
    /// Expectations with the name of their study.
    fn expectations(&self) -> Vec<(&str, &ExpectationResult)> {
        let mut all = Vec::new();
        for study in &self.document.studies {
            all.extend(study.expectations.iter().map(|expectation| (study.name.as_str(), expectation)));
        }
        all
    }

    fn table(&self) -> Text {
        let mut table = Text::new(StudyDocument::HEADINGS);
        self.document.rows().into_iter().for_each(|row| table.row(row));
        table
    }
}

#[pymethods]
impl StudyResult {
    /// Number of expectations that are not as the file says; 0 is a success, as exit code 0 of `warmcore study run`.
    #[getter]
    fn unexpected(&self) -> usize {
        self.document.unexpected
    }

    /// The figures: a row per expectation, with what came out (`value`), what was `published`, the band `low` to `high`, and the
    /// judgement. Units are the figure's own, as its name says.
    #[getter]
    fn figures(&self) -> PyResult<Table> {
        let all = self.expectations();
        let text = |of: &dyn Fn(&(&str, &ExpectationResult)) -> String| Values::Text(all.iter().map(of).collect());
        let number = |of: &dyn Fn(&ExpectationResult) -> Option<f64>| {
            Values::Number(all.iter().map(|(_, expectation)| of(expectation)).collect())
        };
        Table::new(vec![
            ("study".into(), text(&|(study, _)| (*study).to_owned())),
            ("expectation".into(), text(&|(_, expectation)| expectation.name.clone())),
            ("figure".into(), text(&|(_, expectation)| expectation.figure.clone())),
            ("value".into(), number(&|expectation| expectation.value)),
            ("published".into(), number(&|expectation| expectation.published)),
            ("low".into(), number(&|expectation| expectation.low)),
            ("high".into(), number(&|expectation| expectation.high)),
            ("judgement".into(), text(&|(_, expectation)| expectation.judgement.words().to_owned())),
        ])
    }

    /// The document that `warmcore study run --json` prints, byte for byte.
    fn json(&self) -> String {
        session::pretty(&self.document)
    }

    /// The same as dict.
    #[getter]
    fn document<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        figure::dict(py, &self.json())
    }

    /// What was expected and what came out, drawn: a figure for each study, by its name. Studies that expect nothing have none.
    fn drawings(&self) -> BTreeMap<String, Figure> {
        let row = |of: &ExpectationResult| Expected {
            name: of.name.clone(),
            band: (of.low, of.high),
            published: of.published,
            value: of.value,
            range: of.range,
            judgement: of.judgement.words().to_owned(),
            right: of.judgement == Judgement::Right,
        };
        let drawn = self.document.studies.iter().filter_map(|study| {
            let rows: Vec<Expected> = study.expectations.iter().map(row).collect();
            Some((study.name.clone(), Figure::from(expected::figure(&study.name, &rows, WIDTH)?)))
        });
        drawn.collect()
    }

    /// The result as a Markdown page.
    fn markdown(&self) -> String {
        let (title, introduction) = library::heading(std::slice::from_ref(&self.called));
        page::page(&self.document, title, introduction, None)
    }

    fn __repr__(&self) -> String {
        format!("{}\n{}\n", self.table().aligned(), self.document.conclusion())
    }

    fn _repr_html_(&self) -> String {
        let conclusion = warmcore_report::svg::escape(&self.document.conclusion());
        format!("{}<p><b>{conclusion}</b></p>\n", self.table().html())
    }
}
