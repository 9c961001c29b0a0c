//! Tuning: the library searches and judges, `warmcore/_tune.py` says where to look next.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warmcore_lab::experiment::{Experiment, trial_seeds};
use warmcore_lab::files::{create_directory, write_atomically};
use warmcore_lab::load;
use warmcore_lab::session::pretty;
use warmcore_options::RunOptions;
use warmcore_report::figures::{self, tuning::Panel};
use warmcore_report::svg::escape;
use warmcore_report::table::Table as Text;
use warmcore_schedulers::SchedulerSpec;
use warmcore_search::columns::{self, Manner};
use warmcore_search::pins;
use warmcore_study::plan::PlannedExperiment;
use warmcore_study::tune::document::TuningDocument;
use warmcore_study::tune::form::{Cell, Range, TuneError, Tuning as Form};
use warmcore_study::tune::search::{Means, Sampler, Trials, Values, search};
use warmcore_workload::Options;

use crate::asked::{self, Out};
use crate::attended::attended;
use crate::failure::Trouble;
use crate::figure::{self, Figure};
use crate::{gathering, study};

/// What goes wrong in Python on the way, too.
enum TuningStop {
    Tune(TuneError),
    Python(PyErr),
}

impl From<TuneError> for TuningStop {
    fn from(error: TuneError) -> Self {
        Self::Tune(error)
    }
}

impl From<PyErr> for TuningStop {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

/// An object of Python that proposes candidates.
struct PythonSampler(Py<PyAny>);

impl Sampler<TuningStop> for PythonSampler {
    fn ask(&mut self, count: u32) -> Result<Vec<Values>, TuningStop> {
        Python::attach(|py| Ok(self.0.call_method1(py, "ask", (count,))?.extract(py)?))
    }

    fn tell(&mut self, values: &[f64]) -> Result<(), TuningStop> {
        Python::attach(|py| self.0.call_method1(py, "tell", (values.to_vec(),)).map(|_| ()).map_err(TuningStop::Python))
    }
}

/// Name; lowest, highest and whether by powers; or the words that there are.
type KnobOfOptuna = (String, Option<(u64, u64, bool)>, Vec<String>);

/// Finds the settings of a scheduler that are best for the workloads and machines of a file, and confirms them under seeds and on workloads that
/// the search did not see.
///
/// `file`: the tuning's file, or a dict with its keys (docs/how-to/tune.md); `client`: a `dask.distributed.Client`, whose workers run the
/// trials; `out`: directory for all run directories, the document, the figure and the sampler's storage, in which the same call goes on;
/// `jobs`: simulations at the same time; `progress`: called with (tried, budget, best ratio to the default), or True for a line on standard
/// error.
///
/// Ctrl-C stops it with KeyboardInterrupt. Raises WarmcoreError for what makes no sense.
#[pyfunction]
#[pyo3(signature = (file, *, client=None, out=None, jobs=None, progress=None))]
pub fn tune(
    py: Python<'_>,
    file: &Bound<'_, PyAny>,
    client: Option<Py<PyAny>>,
    out: Option<Out>,
    jobs: Option<i64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Tuning> {
    let form = match file.extract::<PathBuf>() {
        Ok(file) => Form::read(&file).map_err(Trouble::from)?,
        Err(_) if file.is_instance_of::<PyDict>() => {
            let text: String = py.import("warmcore._tune")?.call_method1("form", (file,))?.extract()?;
            Form::parse(Path::new("tuning.toml"), &text).map_err(Trouble::from)?
        }
        Err(_) => return Err(asked::wrong_type(file, "a file's path, or a dict")),
    };
    let (jobs, out) = (asked::jobs(jobs)?, out.map(|Out(path)| path));
    let progress = asked::progress(py, progress, "candidates")?;
    if let Some(out) = &out {
        create_directory(out).map_err(Trouble::new)?;
    }
    let knobs: Vec<KnobOfOptuna> = form
        .knobs
        .iter()
        .map(|knob| match &knob.range {
            Range::Numbers { from, to, log } => (knob.name.clone(), Some((*from, *to, *log)), Vec::new()),
            Range::Words(words) => (knob.name.clone(), None, words.clone()),
        })
        .collect();
    let storage = out.as_ref().map(|out| out.join("optuna.log"));
    let sampler =
        py.import("warmcore._tune")?.call_method1("Sampler", (&form.name, knobs, form.seed, form.budget, storage))?;
    let called: String = sampler.getattr("called")?.extract()?;
    let mut sampler = PythonSampler(sampler.unbind());
    // The placement of an oracle is rehearsed under the search's seeds.
    let seeds = trial_seeds(form.seed, form.trials);
    let inputs = |specs: &[SchedulerSpec], cell: &Cell| {
        let options = RunOptions { max_time_ns: form.max_time_ns, ..RunOptions::default() };
        let made = attended(py, None, |watch| {
            let conduct = asked::conduct(watch, jobs);
            columns::inputs(
                specs,
                (&cell.machine, &cell.workload),
                &Manner {
                    workload: Some(&cell.workload.source),
                    background: None,
                    commands: &[],
                    read: &|machine, text| Ok::<_, Trouble>(load::workload_on(machine, text, &Options::default())?),
                    builder: &|machine, workload| {
                        let builder = Experiment::builder(machine, workload).seeds(seeds.clone()).memory(form.memory);
                        builder.options(options).metric(form.metric.clone()).background_chosen(true)
                    },
                    pin: &|experiment, text| Ok::<_, Trouble>(pins::pinned(experiment, text, &conduct)?),
                },
            )
        });
        Ok::<_, TuningStop>(made?)
    };
    let mut run = |experiments: &[PlannedExperiment]| -> Result<Trials, TuningStop> {
        Ok(match &client {
            None => attended(py, None, |watch| study::here(experiments, out.as_deref(), jobs, watch))?,
            Some(client) => {
                let name = |experiment: usize, scheduler: usize| {
                    let PlannedExperiment { experiment, study, .. } = &experiments[experiment];
                    let (workload, machine) = (&experiment.workload.source, &experiment.machine.source);
                    format!("{study}/{workload} on {machine}/{}", experiment.schedulers[scheduler])
                };
                gathering::over(py, client, None, experiments, out.as_deref(), &name)?
            }
        })
    };
    let failed = Mutex::new(None);
    let mut tell = |tried: u32, best: Option<f64>| {
        if let Some(progress) = &progress
            && let Err(error) = progress.call1(py, (tried, form.budget, best))
        {
            failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
        }
    };
    let mut means = Means { inputs: &inputs, run: &mut run, progress: &mut tell, sampler: called };
    let document = search(&form, &mut sampler, &mut means).map_err(|error| match error {
        TuningStop::Tune(error) => Trouble::from(error).into(),
        TuningStop::Python(error) => error,
    })?;
    if let Some(error) = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    let tuning = Tuning { document };
    if let Some(out) = &out {
        let files = [
            ("tuning.json", tuning.json()),
            ("sensitivity.svg", tuning.drawn().svg.standalone(&tuning.document.title)),
        ];
        for (name, text) in files {
            write_atomically(&out.join(name), text.as_bytes()).map_err(Trouble::new)?;
        }
    }
    Ok(tuning)
}

/// What came of a tuning. `print(result)` is the answer in words, with a table of its knobs and what to type on a real kernel.
#[pyclass(frozen, module = "warmcore")]
pub struct Tuning {
    document: TuningDocument,
}

impl Tuning {
    /// Tables of its knobs and of its cells.
    fn tables(&self) -> (Text, Text) {
        let (mut knobs, mut cells) = (Text::new(TuningDocument::HEADINGS), Text::new(TuningDocument::CELL_HEADINGS));
        self.document.rows().into_iter().for_each(|row| knobs.row(row));
        self.document.cell_rows().into_iter().for_each(|row| cells.row(row));
        (knobs, cells)
    }

    fn drawn(&self) -> figures::Figure {
        let document = &self.document;
        let panels = document.knobs.iter().enumerate().map(|(index, knob)| Panel {
            name: knob.name.clone(),
            log: knob.log,
            points: document.candidates.iter().filter_map(|of| Some((of.values[index].clone(), of.value?))).collect(),
            found: knob.found.clone(),
        });
        figures::tuning::figure(&document.title, &panels.collect::<Vec<_>>())
    }
}

#[pymethods]
impl Tuning {
    /// The answer in a sentence.
    #[getter]
    fn answer(&self) -> &str {
        &self.document.words
    }

    /// The scheduler with the settings that were found; None if nothing is shown to beat the default.
    #[getter]
    fn best(&self) -> Option<&str> {
        self.document.confirmed()
    }

    /// What is typed on a real kernel for it, a line each.
    #[getter]
    fn commands(&self) -> Vec<String> {
        self.document.commands.clone()
    }

    /// The document that `warmcore tune --json` prints, byte for byte.
    fn json(&self) -> String {
        pretty(&self.document)
    }

    /// The same as dict.
    #[getter]
    fn document<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        figure::dict(py, &self.json())
    }

    /// What each knob does to the objective: every candidate that was tried.
    fn figure(&self) -> Figure {
        self.drawn().into()
    }

    fn __repr__(&self) -> String {
        let (knobs, cells) = self.tables();
        self.document.text(&knobs.aligned(), &cells.aligned())
    }

    fn _repr_html_(&self) -> String {
        let (knobs, cells) = self.tables();
        let answer = escape(&self.document.words);
        format!("<p><b>{answer}</b></p>\n{}{}{}", knobs.html(), cells.html(), self.drawn().picture())
    }
}
