//! What is asked of any experiment, as keyword arguments have it.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use warmcore_lab::builder::ExperimentBuilder;
use warmcore_lab::directory::{Existing, RunDirectory};
use warmcore_lab::experiment::{Experiment, MOST_TRIALS, Named};
use warmcore_lab::files::Lock;
use warmcore_lab::load;
use warmcore_lab::runner::Conduct;
use warmcore_lab::session;
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_schedulers::SchedulerSpec;
use warmcore_search::columns::{self, Manner};
use warmcore_search::pins;
use warmcore_topology::Machine;
use warmcore_workload::Workload;

use crate::attended::Watch;
use crate::failure::Trouble;
use crate::workload::WorkloadText;

/// What an argument is that has another type than it takes.
pub fn wrong_type(of: &Bound<'_, PyAny>, takes: &str) -> PyErr {
    let name = of.get_type().name().map_or_else(|_| "another type".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("it takes {takes}, not {name}"))
}

/// A directory that is to be written.
pub struct Out(pub PathBuf);

impl<'a, 'py> FromPyObject<'a, 'py> for Out {
    type Error = PyErr;

    fn extract(of: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let path = of.extract::<PathBuf>().map_err(|_| wrong_type(&of, "a directory's path"))?;
        if path.as_os_str().is_empty() {
            return Err(Trouble::advised("out is empty", Some("name a directory")).into());
        }
        Ok(Self(path))
    }
}

/// Texts: one by itself, or a list.
#[derive(Default)]
pub struct Texts(Vec<String>);

impl Texts {
    /// All of them.
    pub fn list(self) -> Vec<String> {
        self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Texts {
    type Error = PyErr;

    fn extract(of: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = of.extract::<String>() {
            return Ok(Self(vec![text]));
        }
        of.extract::<Vec<String>>().map(Self).map_err(|_| wrong_type(&of, "a text, or a list of texts"))
    }
}

/// A time: whole nanoseconds, or a text with its unit.
pub enum Time {
    /// Nanoseconds.
    Ns(u64),
    /// Such as "500ms".
    Text(String),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Time {
    type Error = PyErr;

    fn extract(of: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = of.extract::<String>() {
            return Ok(Self::Text(text));
        }
        of.extract::<u64>()
            .map(Self::Ns)
            .map_err(|_| wrong_type(&of, "a text such as \"500ms\", or whole nanoseconds from 0 on"))
    }
}

impl Time {
    fn ns(&self) -> Result<u64, Trouble> {
        match self {
            Self::Ns(ns) => Ok(*ns),
            Self::Text(text) if text == "0" => Ok(0),
            Self::Text(text) => warmcore_workload::parse_duration(text).map_err(Trouble::new),
        }
    }
}

/// Schedulers: one text with commas, as the command line has it, or a list.
pub enum Schedulers {
    /// With commas.
    Text(String),
    /// Each by itself.
    List(Vec<String>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Schedulers {
    type Error = PyErr;

    fn extract(of: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = of.extract::<String>() {
            return Ok(Self::Text(text));
        }
        of.extract::<Vec<String>>()
            .map(Self::List)
            .map_err(|_| wrong_type(&of, "a list of texts, or one text with commas"))
    }
}

impl Schedulers {
    /// What they name.
    pub fn specs(&self) -> Result<Vec<SchedulerSpec>, Trouble> {
        match self {
            Self::Text(text) => Ok(load::schedulers(std::slice::from_ref(text))?),
            Self::List(texts) => texts.iter().map(|text| Ok(load::scheduler(text)?)).collect(),
        }
    }
}

/// What every experiment can be asked for.
#[derive(Default)]
pub struct Asked {
    /// How memory is modelled; what fits the workload if it is not said.
    pub memory: Option<MemoryChoice>,
    /// Per cent by which work is slower beside a busy sibling.
    pub smt_slowdown: Option<u32>,
    /// Whether the machine's kernel threads were chosen.
    pub background_chosen: bool,
    /// Times.
    pub options: RunOptions,
    /// Seeds of the trials.
    pub seeds: Vec<u64>,
    /// What it is judged by.
    pub metric: Option<String>,
    /// How the workload was asked for.
    pub workload: WorkloadText,
}

impl Asked {
    /// Keyword arguments, read.
    pub fn new(
        memory: Option<&str>,
        smt_slowdown: Option<u32>,
        warm_up: Option<Time>,
        max_time: Option<Time>,
    ) -> Result<Self, Trouble> {
        let max_time_ns = max_time.map(|time| time.ns()).transpose()?;
        if max_time_ns == Some(0) {
            return Err(Trouble::new("max_time is not longer than 0"));
        }
        let warm_up_ns = warm_up.map(|time| time.ns()).transpose()?;
        Ok(Self {
            memory: memory.map(MemoryChoice::from_str).transpose().map_err(Trouble::new)?,
            smt_slowdown,
            options: RunOptions { max_time_ns, warm_up_ns, ..RunOptions::default() },
            ..Self::default()
        })
    }

    /// An experiment with these.
    pub fn builder(&self, machine: Named<Machine>, workload: Named<Workload>) -> ExperimentBuilder {
        Experiment::builder(machine, workload)
            .seeds(self.seeds.clone())
            .memory(self.memory)
            .smt_slowdown_percent(self.smt_slowdown)
            .background_chosen(self.background_chosen)
            .options(self.options)
            .metric(self.metric.clone())
    }

    /// An experiment under these schedulers, in the simulator.
    pub fn experiment(
        &self,
        machine: Named<Machine>,
        workload: Named<Workload>,
        schedulers: Vec<SchedulerSpec>,
        conduct: &Conduct<'_>,
    ) -> Result<ExperimentBuilder, Trouble> {
        load::check_assumed(self.workload.assumed(), true, self.memory)?;
        let inputs = columns::inputs(
            &schedulers,
            (&machine, &workload),
            &Manner {
                workload: Some(&self.workload.text),
                background: None,
                commands: &[],
                read: &|machine, text| self.workload.read(Some(machine), text),
                builder: &|machine, workload| self.builder(machine, workload),
                pin: &|experiment, text| Ok::<_, Trouble>(pins::pinned(experiment, text, conduct)?),
            },
        )?;
        Ok(self.builder(machine, workload).schedulers(schedulers).inputs(inputs).strict(self.workload.strict()))
    }
}

/// Simulations at the same time: as was said, or as many as this process has CPUs.
pub fn jobs(asked: Option<i64>) -> Result<usize, Trouble> {
    let Some(jobs) = asked else { return Ok(std::thread::available_parallelism().map_or(1, usize::from)) };
    let known = u16::try_from(jobs).ok().filter(|jobs| *jobs > 0);
    known.map(usize::from).ok_or_else(|| Trouble::new(format!("jobs is {jobs}; it is a number from 1 to {}", u16::MAX)))
}

/// So many trials.
pub fn trials(asked: i64) -> Result<u32, Trouble> {
    let trials = u32::try_from(asked).ok().filter(|trials| (1..=MOST_TRIALS).contains(trials));
    trials.ok_or_else(|| Trouble::new(format!("{asked} trials; there are 1 to {MOST_TRIALS}")))
}

/// Whom to tell how far it is: a function, or with True a line on standard error that counts `things`.
pub fn progress(py: Python<'_>, asked: Option<Py<PyAny>>, things: &str) -> PyResult<Option<Py<PyAny>>> {
    let Some(asked) = asked else { return Ok(None) };
    let asked = asked.into_bound(py);
    match asked.extract::<bool>() {
        Ok(false) => Ok(None),
        Ok(true) => Ok(Some(py.import("warmcore._progress")?.call_method1("Line", (things,))?.unbind())),
        Err(_) if asked.is_callable() => Ok(Some(asked.unbind())),
        Err(_) => Err(wrong_type(&asked, "a function, or True for a line on standard error")),
    }
}

/// How to run, so that it can be stopped.
pub fn conduct(watch: &Watch, jobs: usize) -> Conduct<'static> {
    Conduct { jobs, stop: Arc::clone(&watch.stop), progress: &|_| {} }
}

/// The run directory of a new experiment, if there is to be one, without other runs.
pub fn directory(out: Option<&Path>, experiment: &Experiment) -> Result<Option<(RunDirectory, Lock)>, Trouble> {
    let Some(out) = out else { return Ok(None) };
    let (directory, alone) = RunDirectory::create_alone(out, Existing::Refuse)?;
    session::begin(&directory, experiment)?;
    Ok(Some((directory, alone)))
}

/// The command line of the interpreter, with what is no text in it replaced.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Seconds since 1970, UTC.
pub fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
