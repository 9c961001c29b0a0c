//! Trials that workers run: chunks as texts, handed out and taken back by `warmcore/_dask.py`.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::session;
use warmcore_lab::trial::Trial;
use warmcore_study::chunk::{self, ChunkTask};
use warmcore_study::plan::PlannedExperiment;
use warmcore_study::run::Means;

use crate::asked;
use crate::attended::attended;
use crate::failure::Trouble;

/// Tasks to be done, and what came of them.
#[pyclass(frozen, module = "warmcore._native")]
pub struct ChunkedRun {
    state: Mutex<Option<chunk::ChunkedRun>>,
    tasks: Vec<ChunkTask>,
}

#[pymethods]
impl ChunkedRun {
    /// Names of the tasks.
    fn names(&self) -> Vec<&str> {
        self.tasks.iter().map(|task| task.name.as_str()).collect()
    }

    /// How many trials each task has.
    fn sizes(&self) -> Vec<usize> {
        self.tasks.iter().map(|task| task.chunk.positions.len()).collect()
    }

    /// A task's chunk, which `carry_out` runs anywhere.
    fn chunk(&self, task: usize) -> PyResult<String> {
        Ok(self.task(task)?.chunk.to_json())
    }

    /// Takes what `carry_out` gave for a task, and keeps it.
    fn take(&self, py: Python<'_>, task: usize, answer: &str) -> PyResult<()> {
        let task = self.task(task)?;
        let taken = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.as_mut().map_or(Ok(()), |gathering| gathering.take(task, answer))
        });
        Ok(taken.map_err(Trouble::from)?)
    }
}

impl ChunkedRun {
    fn task(&self, task: usize) -> Result<&ChunkTask, Trouble> {
        self.tasks.get(task).ok_or_else(|| Trouble::new(format!("there is no task {task}")))
    }
}

/// Runs a chunk of trials, and gives them as a text.
#[pyfunction]
pub fn carry_out(py: Python<'_>, chunk: &str) -> PyResult<String> {
    attended(py, None, |watch| Ok(chunk::carry_out(chunk, 1, &watch.stop)?))
}

/// Version and build of this library: results of two that differ may differ.
#[pyfunction]
pub fn identity() -> PyResult<(&'static str, &'static str)> {
    let build = session::program_sha256().map_err(|error| Trouble::advised(&error, Some(error.advice())))?;
    Ok((TOOL_VERSION, build))
}

/// Trials of experiments, run by the workers of a client. `name` says what the trials of a scheduler of an experiment are for.
pub fn over(
    py: Python<'_>,
    client: &Py<PyAny>,
    progress: Option<&Py<PyAny>>,
    experiments: &[PlannedExperiment],
    out: Option<&Path>,
    name: &dyn Fn(usize, usize) -> String,
) -> PyResult<Vec<Vec<Vec<Trial>>>> {
    let dask = py.import("warmcore._dask")?;
    // Before anything is made.
    let workers: usize = dask.call_method1("workers", (client,))?.extract()?;
    let gathering = chunk::ChunkedRun::begin(experiments, out, &|_| {}).map_err(Trouble::from)?;
    let tasks = gathering.tasks(experiments, chunk::size(gathering.missing(experiments), workers), name);
    let shared = Py::new(py, ChunkedRun { state: Mutex::new(Some(gathering)), tasks })?;
    dask.call_method1("gather", (&shared, client, progress))?;
    let gathering = shared.get().state.lock().unwrap_or_else(PoisonError::into_inner).take();
    let environment = Environment::at_start(asked::command_line(), workers, asked::unix_seconds());
    let means = Means {
        jobs: workers,
        stop: Arc::default(),
        progress: &|_| {},
        out,
        environment: &environment,
        unix_seconds: asked::unix_seconds,
        note: &|_| {},
    };
    let trials = gathering.map(|gathering| gathering.finish(experiments, &means)).transpose();
    Ok(trials.map_err(Trouble::from)?.unwrap_or_default())
}
