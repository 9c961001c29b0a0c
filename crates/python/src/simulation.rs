//! `simulate`: one run.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::table::Values;
use warmcore_lab::trial::Trial;
use warmcore_lab::{load, measures, session};
use warmcore_options::TraceLevel;
use warmcore_workload::Workload;

use crate::arrow::Table;
use crate::asked::{self, Asked, Out, Time};
use crate::attended::attended;
use crate::failure::{Trouble, warn};
use crate::figure;
use crate::machine::MachineLike;
use crate::workload::WorkloadLike;

/// What came of one run. `print(simulation)` shows its measures, its tasks and where the time went, as `warmcore sim` prints them.
#[pyclass(frozen, module = "warmcore")]
pub struct Simulation {
    trial: Trial,
    workload: Named<Workload>,
}

/// Runs a workload once under one scheduler.
///
/// The arguments are those of `compare`. With `out` the run is kept in that directory, with `trace=True` with every event, as Parquet
/// tables. Raises WarmcoreError for what makes no sense, before anything runs.
#[pyfunction]
#[pyo3(signature = (machine, workload, scheduler, *, seed=1, memory=None, smt_slowdown=None, warm_up=None, max_time=None, trace=false, out=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn simulate(
    py: Python<'_>,
    machine: MachineLike<'_>,
    workload: WorkloadLike<'_>,
    scheduler: &str,
    seed: u64,
    memory: Option<&str>,
    smt_slowdown: Option<u32>,
    warm_up: Option<Time>,
    max_time: Option<Time>,
    trace: bool,
    out: Option<Out>,
) -> PyResult<Simulation> {
    if trace && out.is_none() {
        return Err(Trouble::advised("trace=True needs a directory", Some("name one with out")).into());
    }
    let out = out.map(|Out(path)| path);
    let (machine, background_chosen) = machine.machine()?;
    let asked = Asked {
        seeds: vec![seed],
        metric: Some("elapsed_ns".into()),
        workload: workload.asked(),
        background_chosen,
        ..Asked::new(memory, smt_slowdown, warm_up, max_time)?
    };
    let workload = asked.workload.read(Some(&machine.value), &asked.workload.text)?;
    let scheduler = load::scheduler(scheduler).map_err(Trouble::from)?;
    let level = if trace { TraceLevel::Full } else { TraceLevel::Counters };
    let made = attended(py, None, |watch| {
        let conduct = asked::conduct(watch, 1);
        let built = asked.experiment(machine, workload, vec![scheduler], &conduct)?.trace(Some(level)).build()?;
        watch.total.store(1, Ordering::Relaxed);
        Ok((once(&built.experiment, out.as_deref(), &conduct)?, built))
    });
    let (trial, built) = made?;
    warn(py, built.warnings.iter().chain(&trial.notes))?;
    Ok(Simulation { trial, workload: built.experiment.workload_of(0).clone() })
}

fn once(experiment: &Experiment, out: Option<&std::path::Path>, conduct: &Conduct<'_>) -> Result<Trial, Trouble> {
    let (directory, _alone) = asked::directory(out, experiment)?.unzip();
    let mut environment = Environment::at_start(asked::command_line(), 1, asked::unix_seconds());
    let finished = runner::run(experiment, directory.as_ref(), conduct)?;
    environment.at_end(asked::unix_seconds(), finished.run_now, finished.seconds);
    if let Some(directory) = &directory {
        session::finish(directory, experiment, &finished.trials, None, &environment)?;
    }
    finished.trials.into_iter().flatten().next().ok_or_else(|| Trouble::new("there is no trial"))
}

#[pymethods]
impl Simulation {
    /// Simulated time from the start to the end, ns.
    #[getter]
    fn elapsed_ns(&self) -> Option<f64> {
        let all = measures::of_workload(&self.workload.value);
        all.iter().find(|measure| measure.name == "elapsed_ns").and_then(|measure| measure.value(&self.trial))
    }

    /// Every measure that has a value: `metric`, `unit`, `value`.
    #[getter]
    fn measures(&self) -> PyResult<Table> {
        let all = measures::of_workload(&self.workload.value);
        let rows: Vec<_> = all.iter().filter_map(|measure| Some((measure, measure.value(&self.trial)?))).collect();
        Table::new(vec![
            ("metric".into(), Values::Text(rows.iter().map(|(measure, _)| measure.name.clone()).collect())),
            ("unit".into(), Values::Text(rows.iter().map(|(measure, _)| measure.unit.name().to_owned()).collect())),
            ("value".into(), Values::Number(rows.iter().map(|(_, value)| Some(*value)).collect())),
        ])
    }

    /// Every task: `role`, `cpu_time_ns`, and `exited_ns` after the start (None if it had not).
    #[getter]
    fn tasks(&self) -> PyResult<Table> {
        let tasks = &self.trial.tasks;
        let exited = |ns: Option<u64>| ns.map(|ns| ns as f64);
        Table::new(vec![
            ("role".into(), Values::Text(tasks.iter().map(|task| task.role.clone()).collect())),
            ("cpu_time_ns".into(), Values::Integer(tasks.iter().map(|task| task.cpu_time_ns).collect())),
            ("exited_ns".into(), Values::Number(tasks.iter().map(|task| exited(task.exited_ns)).collect())),
        ])
    }

    /// The lines that the imitated program would have printed; the numbers in them are simulated.
    #[getter]
    fn result_lines(&self) -> Vec<String> {
        self.trial.result_lines.clone()
    }

    /// The document that `warmcore sim --json` prints, byte for byte.
    fn json(&self) -> String {
        session::pretty(&self.trial)
    }

    /// The same as dict.
    #[getter]
    fn document<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        figure::dict(py, &self.json())
    }

    fn __repr__(&self) -> String {
        warmcore_report::trial_text::text(&self.trial, &self.workload.value, false, |table| table.aligned())
    }

    fn _repr_html_(&self) -> String {
        format!("<pre>{}</pre>", warmcore_report::svg::escape(&self.__repr__()))
    }
}
