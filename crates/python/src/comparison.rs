//! `compare`: a workload under several schedulers, and which is best.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::trial_seeds;
use warmcore_lab::headroom::Headroom;
use warmcore_lab::reading::RunOnDisk;
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::table::{self, Values};
use warmcore_lab::{measures, session, verdict};
use warmcore_options::MemoryChoice;
use warmcore_report::figures;
use warmcore_report::run::{ReportOptions, Run};
use warmcore_search::{advice, oracle};

use crate::arrow::Table;
use crate::asked::{self, Asked, Out, Schedulers, Time};
use crate::attended::{Watch, attended};
use crate::failure::{Trouble, warn};
use crate::figure::{self, Figure};
use crate::machine::MachineLike;
use crate::workload::WorkloadLike;

/// What came of a comparison. `print(comparison)` is the verdict as text, as `warmcore compare` prints it; a notebook shows the table, the
/// sentence and the figures.
#[pyclass(frozen, module = "warmcore")]
pub struct Comparison {
    run: Run,
    /// The same with one trial looked at closely, once somebody has asked for it.
    closely: OnceLock<Run>,
}

/// Runs a workload under several schedulers and says which is best.
///
/// `machine` and `workload` are objects or the texts that name them. `schedulers` is a list of texts such as "eevdf:base_slice_ns=3000000"
/// or "eevdf@cpus=one-llc", or one text with commas; without it, the settings that a kernel of Linux 7.2 has are tried.
///
/// `trials`: runs of each scheduler, from 8 on with 95 % intervals; trial k has the same seed, derived from `seed`, under all of them.
/// `baseline`: whom the others are compared with, the first one if None. `metric`: what the verdict is about, the workload's own if
/// None. `margin`: differences up to this fraction do not matter. `memory`: "none", "analytic", "exact", ...; what fits the workload if
/// None. `smt_slowdown`: per cent by which work is slower beside a busy sibling. `warm_up`, `max_time`: texts such as "500ms", or
/// nanoseconds. `headroom`: ask the oracle too. `jobs`: simulations at the same time; it changes no result. `out`: a directory to
/// keep the run in. `progress`: called with (finished, total) while it runs, or True for a line on standard error.
///
/// Other threads run meanwhile, and Ctrl-C stops it with KeyboardInterrupt. Raises WarmcoreError for what makes no sense, before anything
/// runs; warns with WarmcoreWarning of what to check before the result is trusted.
#[pyfunction]
#[pyo3(signature = (machine, workload, schedulers=None, *, trials=10, seed=1, baseline=None, metric=None, margin=verdict::DEFAULT_MARGIN,
    memory=None, smt_slowdown=None, warm_up=None, max_time=None, headroom=false, jobs=None, out=None, progress=None))]
#[pyo3(
    text_signature = "(machine, workload, schedulers=None, *, trials=10, seed=1, baseline=None, metric=None, margin=0.01, memory=None, smt_slowdown=None, warm_up=None, max_time=None, headroom=False, jobs=None, out=None, progress=None)"
)]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn compare(
    py: Python<'_>,
    machine: MachineLike<'_>,
    workload: WorkloadLike<'_>,
    schedulers: Option<Schedulers>,
    trials: i64,
    seed: u64,
    baseline: Option<&str>,
    metric: Option<String>,
    margin: f64,
    memory: Option<&str>,
    smt_slowdown: Option<u32>,
    warm_up: Option<Time>,
    max_time: Option<Time>,
    headroom: bool,
    jobs: Option<i64>,
    out: Option<Out>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Comparison> {
    if !(0.0..=0.5).contains(&margin) {
        return Err(Trouble::new(format!("margin {margin} is not a fraction of 0 to 0.5, such as 0.01")).into());
    }
    let trials = asked::trials(trials)?;
    let (machine, background_chosen) = machine.machine()?;
    let asked = Asked {
        seeds: trial_seeds(seed, trials),
        metric,
        workload: workload.asked(),
        background_chosen,
        ..Asked::new(memory, smt_slowdown, warm_up, max_time)?
    };
    let workload = asked.workload.read(Some(&machine.value), &asked.workload.text)?;
    let advised = schedulers.is_none();
    let schedulers = match schedulers {
        Some(schedulers) => schedulers.specs()?,
        None => {
            let caches = workload.value.has_profiles() && asked.memory != Some(MemoryChoice::None);
            advice::candidates(&machine.value, &workload.value, caches).map_err(Trouble::from)?
        }
    };
    let baseline = baseline.map(warmcore_lab::load::scheduler).transpose().map_err(Trouble::from)?;
    let (jobs, out) = (asked::jobs(jobs)?, out.map(|Out(path)| path));
    let progress = asked::progress(py, progress, "simulations")?;
    let made = attended(py, progress.as_ref(), |watch| {
        let conduct = asked::conduct(watch, jobs);
        let builder = asked.experiment(machine, workload, schedulers, &conduct)?;
        let kept = out.is_some();
        let built = builder.baseline(baseline).kept(kept).advised(advised).margin(margin).build()?;
        let run = conclude(built.experiment, (jobs, headroom), out.as_deref(), watch)?;
        Ok((run, built.warnings))
    });
    let (run, warnings) = made?;
    warn(py, warnings.iter().chain(&run.disk.comparison.warnings))?;
    Ok(Comparison { run, closely: OnceLock::new() })
}

/// Runs and judges an experiment, and keeps what came of it where that is asked for.
fn conclude(
    experiment: warmcore_lab::experiment::Experiment,
    (jobs, headroom): (usize, bool),
    out: Option<&std::path::Path>,
    watch: &Watch,
) -> Result<Run, Trouble> {
    let (directory, _alone) = asked::directory(out, &experiment)?.unzip();
    watch.total.store(experiment.trial_count(), Ordering::Relaxed);
    let mut environment = Environment::at_start(asked::command_line(), jobs, asked::unix_seconds());
    let conduct = Conduct { progress: &|_| watch.one_more(), ..asked::conduct(watch, jobs) };
    let finished = runner::run(&experiment, directory.as_ref(), &conduct)?;
    environment.at_end(asked::unix_seconds(), finished.run_now, finished.seconds);
    let mut document = verdict::conclude(&experiment, &experiment.record(), &finished.trials)?;
    if headroom {
        let oracle = oracle::run(&experiment, &asked::conduct(watch, jobs))?;
        document.headroom = Headroom::of(&document, &oracle)?;
        if let Some(directory) = &directory {
            let text = session::pretty(&oracle);
            let written = directory.write(warmcore_lab::directory::ORACLE, text.as_bytes());
            written.map_err(|error| Trouble::advised(&error, Some(error.advice())))?;
        }
    }
    if let Some(directory) = &directory {
        let text = warmcore_report::verdict::plain(&document);
        session::finish(directory, &experiment, &finished.trials, Some((&document, &text)), &environment)?;
    }
    Ok(Run::of(RunOnDisk::in_memory(experiment, finished.trials, document)))
}

impl Comparison {
    /// The run with one trial looked at closely.
    fn closely(&self, py: Python<'_>) -> PyResult<&Run> {
        if let Some(run) = self.closely.get() {
            return Ok(run);
        }
        let RunOnDisk { experiment, trials, comparison, .. } = &self.run.disk;
        let disk = RunOnDisk::in_memory(experiment.clone(), trials.clone(), comparison.clone());
        let run = attended(py, None, move |watch| {
            let mut run = Run::of(disk);
            run.look(&ReportOptions::default(), &watch.stop, &mut || {})?;
            Ok(run)
        })?;
        warn(py, &run.notes)?;
        Ok(self.closely.get_or_init(|| run))
    }
}

#[pymethods]
impl Comparison {
    /// A comparison, or a single run, from the run directory that `out` or the program wrote: what is there is judged anew, nothing is run.
    ///
    /// Raises WarmcoreError if it is no run directory, or one of another version; warns with WarmcoreWarning of what is damaged or missing in it.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let run = py.detach(|| RunOnDisk::read(&path)).map(Run::of);
        let run = run.map_err(|error| Trouble::advised(&error, Some(error.advice())))?;
        warn(py, &run.notes)?;
        Ok(Self { run, closely: OnceLock::new() })
    }

    /// The verdict in a sentence.
    #[getter]
    fn verdict(&self) -> &str {
        &self.run.disk.comparison.verdict.sentence
    }

    /// The best scheduler that a kernel could have, or None if the trials single none out.
    #[getter]
    fn best(&self) -> Option<&str> {
        self.run.disk.comparison.verdict.best.as_deref()
    }

    /// Name of the metric that the verdict is about.
    #[getter]
    fn metric(&self) -> &str {
        &self.run.disk.comparison.primary
    }

    /// The schedulers in order, in the form that tables and figures have: "eevdf@cpus=0-1" is "eevdf @ cpus=0-1", a tunable of 20ms 20000000.
    #[getter]
    fn schedulers(&self) -> Vec<&str> {
        self.run.disk.comparison.schedulers.iter().map(|scheduler| scheduler.label.as_str()).collect()
    }

    /// What the verdict holds for beside what was asked.
    #[getter]
    fn conditions(&self) -> Vec<String> {
        self.run.disk.comparison.conditions.clone()
    }

    /// What to check before the verdict is trusted.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.run.disk.comparison.warnings.clone()
    }

    /// The results: a row per scheduler and metric. `median` is in the metric's `unit` ("ns", "1/s", ...), `ratio` is to the baseline's, `low`
    /// and `high` are its 95 % interval, `p_adjusted` is corrected over the schedulers (Holm); None where there is none. A percentile of few
    /// events is here as in the document, though tables leave it out.
    #[getter]
    fn results(&self) -> PyResult<Table> {
        let document = &self.run.disk.comparison;
        let rows: Vec<_> = document
            .schedulers
            .iter()
            .flat_map(|scheduler| document.measures.iter().map(move |measure| (scheduler, measure)))
            .filter_map(|(scheduler, measure)| Some((scheduler, measure, scheduler.measures.get(&measure.name)?)))
            .collect();
        let compared = |of: &dyn Fn(&warmcore_statistics::Comparison) -> Option<f64>| {
            Values::Number(rows.iter().map(|(.., result)| result.comparison.as_ref().and_then(of)).collect())
        };
        Table::new(vec![
            ("scheduler".into(), Values::Text(rows.iter().map(|(scheduler, ..)| scheduler.label.clone()).collect())),
            ("metric".into(), Values::Text(rows.iter().map(|(_, measure, _)| measure.name.clone()).collect())),
            ("unit".into(), Values::Text(rows.iter().map(|(_, measure, _)| measure.unit.name().to_owned()).collect())),
            ("trials".into(), Values::Integer(rows.iter().map(|(.., result)| result.summary.n as u64).collect())),
            ("median".into(), Values::Number(rows.iter().map(|(.., result)| result.summary.median).collect())),
            ("ratio".into(), compared(&|comparison| comparison.ratio)),
            ("low".into(), compared(&|comparison| Some(comparison.interval?.low))),
            ("high".into(), compared(&|comparison| Some(comparison.interval?.high))),
            ("p_adjusted".into(), compared(&|comparison| comparison.p_adjusted)),
            (
                "finding".into(),
                Values::Text(
                    rows.iter()
                        .map(|(scheduler, _, result)| match result.finding {
                            _ if scheduler.is_baseline => "baseline".to_owned(),
                            finding => finding.map_or("", |finding| finding.words()).to_owned(),
                        })
                        .collect(),
                ),
            ),
        ])
    }

    /// Every trial: a row per trial and metric, with the columns of a run directory's `trials.parquet`. `value` is in `unit`, the columns
    /// `time_*_ns` are nanoseconds of all tasks together.
    #[getter]
    fn trials(&self) -> PyResult<Table> {
        let disk = &self.run.disk;
        let asked = disk.experiment.metric.as_deref();
        let measures = measures::of_trials(&disk.experiment.workload.value, &disk.trials, asked.unwrap_or_default());
        let measures = measures::with_metric(measures, asked);
        Table::new(table::trials_in_memory(&disk.record, &measures, &disk.trials))
    }

    /// The document that `warmcore compare --json` prints, byte for byte; `warmcore reference schema comparison` has its schema.
    fn json(&self) -> String {
        session::pretty(&self.run.disk.comparison)
    }

    /// The same as dict.
    #[getter]
    fn document<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        figure::dict(py, &self.json())
    }

    /// What the difference of each scheduler to the baseline comes from, a sentence for each but the baseline; empty where trials have no times.
    #[getter]
    fn explanation(&self) -> Vec<&str> {
        let split = self.run.disk.comparison.time_split.as_ref();
        split.map_or_else(Vec::new, |split| split.gaps.iter().map(|gap| gap.sentence.as_str()).collect())
    }

    /// The figures of all trials by name ("ratio", "values", ...).
    ///
    /// With `closely` there are those of one trial, too: who ran when ("timeline-tasks-0-eevdf", ...), on which CPUs and LLCs ("machine-0-eevdf",
    /// ...), who moved. It is the one closest to all medians, and is simulated once more, the first time. Ctrl-C stops that.
    #[pyo3(signature = (*, closely=false))]
    fn figures(&self, py: Python<'_>, closely: bool) -> PyResult<BTreeMap<String, Figure>> {
        let run = if closely { self.closely(py)? } else { &self.run };
        Ok(figures::all(run).into_iter().map(Figure::named).collect())
    }

    fn __repr__(&self) -> String {
        warmcore_report::verdict::plain(&self.run.disk.comparison)
    }

    fn _repr_html_(&self) -> String {
        let shown: Vec<_> = figures::all(&self.run).into_iter().filter(|figure| figure.id == "ratio").collect();
        warmcore_report::verdict::html(&self.run.disk.comparison, &shown)
    }
}
