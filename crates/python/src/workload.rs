//! Workloads.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use warmcore_lab::directory::EXPERIMENT;
use warmcore_lab::experiment::Named;
use warmcore_lab::files::source;
use warmcore_lab::load::{self, LoadError};
use warmcore_lab::verdict::describe_warning;
use warmcore_report::svg::escape;
use warmcore_report::table::Table;
use warmcore_topology::Machine;
use warmcore_workload::{Options, Workload as Work};

use crate::asked::{Texts, wrong_type};
use crate::failure::Trouble;
use crate::recording::Recording;

/// What runs: tasks that are programs of steps.
///
/// `text` is what the program's `--workload` takes: a generator with its flags, commas for spaces ("schbench:-m4,-t32,-r2"), a file in
/// rt-app's format, or several joined by "+". It is read for the machine of each experiment, whose costs count where a generator's work
/// depends on them. `profiles` is a file of memory profiles; `assume_profile` names one for tasks that have none; `aggregate` says whom
/// cache-aware schedulers keep together ("process:NAME=off", ...); with `strict` what is not modelled raises.
///
/// Raises WarmcoreError if it cannot be understood.
#[pyclass(frozen, module = "warmcore")]
pub struct Workload {
    asked: WorkloadText,
    read: Named<Work>,
}

/// A workload as it was asked for.
#[derive(Clone, Default)]
pub struct WorkloadText {
    /// The text.
    pub text: String,
    /// What the file of that name has, if it is not to be looked for.
    pub content: Option<String>,
    /// A file of memory profiles.
    pub profiles: Option<PathBuf>,
    /// The profile that tasks without one have.
    pub assume_profile: Option<String>,
    /// Whom cache-aware schedulers keep together.
    pub aggregate: Vec<String>,
    /// Whether what is not modelled is an error.
    pub strict: bool,
}

impl WorkloadText {
    /// The profile that tasks without one have.
    pub fn assumed(&self) -> Option<&str> {
        self.assume_profile.as_deref()
    }

    /// Whether what is not modelled, by the workload or by a scheduler, is an error.
    pub fn strict(&self) -> bool {
        self.strict
    }

    /// Another workload read as this one is, or this one by its own text.
    pub fn read(&self, machine: Option<&Machine>, text: &str) -> Result<Named<Work>, Trouble> {
        let profiles = self.profiles.as_deref().map(load::profiles).transpose()?.unwrap_or_default();
        let assume_profile = self.assumed();
        let options = Options { strict: self.strict, profiles: &profiles, assume_profile, ..Options::default() };
        let own = self.content.as_ref().filter(|_| text == self.text);
        let mut workload = match (own, machine) {
            (Some(content), _) => {
                let options = machine.map_or(options, |machine| load::on(machine, &options));
                let value = warmcore_workload::resolve(text, &options, |_| Ok(content.clone()))
                    .map_err(|source| LoadError::Workload { text: text.to_owned(), source: Box::new(source) })?;
                Named { source: text.to_owned(), value }
            }
            (None, Some(machine)) => load::workload_on(machine, text, &options).map_err(|error| unread(text, error))?,
            (None, None) => load::workload(text, &options).map_err(|error| unread(text, error))?,
        };
        load::aggregate(&mut workload, &self.aggregate)?;
        Ok(workload)
    }
}

/// Why a workload was not read, with what reads it if it is a recording.
fn unread(text: &str, error: LoadError) -> Trouble {
    let path = Path::new(text);
    let is_recording = || source(path).is_ok_and(|file| warmcore_capture::read::open(file).is_ok());
    if path.join(EXPERIMENT).is_file() || path.is_file() && is_recording() {
        return Trouble::advised(error, Some(format!("this is a recording, which warmcore.Recording({text:?}) reads")));
    }
    error.into()
}

impl Workload {
    /// A workload as it was asked for.
    pub fn of(asked: WorkloadText) -> Result<Self, Trouble> {
        let read = asked.read(None, &asked.text)?;
        Ok(Self { asked, read })
    }
}

#[pymethods]
impl Workload {
    #[new]
    #[pyo3(signature = (text, *, profiles=None, assume_profile=None, aggregate=None, strict=false))]
    fn new(
        text: PathBuf,
        profiles: Option<PathBuf>,
        assume_profile: Option<String>,
        aggregate: Option<Texts>,
        strict: bool,
    ) -> PyResult<Self> {
        let (text, aggregate) = (text.to_string_lossy().into_owned(), aggregate.unwrap_or_default().list());
        Ok(Self::of(WorkloadText { text, content: None, profiles, assume_profile, aggregate, strict })?)
    }

    /// A workload from a text in rt-app's format, such as `json.dumps` makes. `name` is what a file of it would be called without its ending; the
    /// other arguments are those of `Workload`.
    ///
    /// Raises WarmcoreError that says where, if it cannot be understood.
    #[staticmethod]
    #[pyo3(signature = (text, *, name="workload", profiles=None, assume_profile=None, aggregate=None, strict=false))]
    fn parse(
        text: String,
        name: &str,
        profiles: Option<PathBuf>,
        assume_profile: Option<String>,
        aggregate: Option<Texts>,
        strict: bool,
    ) -> PyResult<Self> {
        let (text, content) = (format!("{name}.json"), Some(text));
        let aggregate = aggregate.unwrap_or_default().list();
        Ok(Self::of(WorkloadText { text, content, profiles, assume_profile, aggregate, strict })?)
    }

    /// What it is called.
    #[getter]
    fn name(&self) -> &str {
        &self.read.value.name
    }

    /// Names of the tasks, in order: one for all instances of a task, and also of those that others create.
    #[getter]
    fn tasks(&self) -> Vec<String> {
        self.read.value.tasks.iter().map(|task| task.name.clone()).collect()
    }

    /// What of it is accepted and not modelled.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.read.value.warnings.iter().map(describe_warning).collect()
    }

    /// The workload in rt-app's format, which a file may hold. Raises WarmcoreError if that cannot say it.
    fn to_rtapp(&self) -> PyResult<String> {
        Ok(warmcore_workload::to_rtapp(&self.read.value).map_err(Trouble::new)?)
    }

    fn __repr__(&self) -> String {
        format!("<warmcore.Workload {}: {} tasks>", self.read.source, self.read.value.tasks.len())
    }

    fn _repr_html_(&self) -> String {
        let mut roles: Vec<(&str, u64)> = Vec::new();
        for task in &self.read.value.tasks {
            match roles.iter_mut().find(|(role, _)| *role == task.role) {
                Some((_, instances)) => *instances += u64::from(task.instances),
                None => roles.push((&task.role, task.instances.into())),
            }
        }
        let mut table = Table::new(["role", ">tasks at the start"]);
        let count = |tasks: u64| if tasks == 0 { "created by others".to_owned() } else { tasks.to_string() };
        roles.into_iter().for_each(|(role, instances)| table.row([role.to_owned(), count(instances)]));
        let title = escape(self.__repr__().trim_matches(['<', '>']));
        format!("<p><b>{title}</b></p>\n{}", table.html())
    }
}

/// A workload, or what names one.
pub enum WorkloadLike<'py> {
    /// One that was read.
    Workload(PyRef<'py, Workload>),
    /// The replay of a recording.
    Replay(WorkloadText),
    /// A text or a path.
    Text(PathBuf),
}

impl<'a, 'py> FromPyObject<'a, 'py> for WorkloadLike<'py> {
    type Error = PyErr;

    fn extract(of: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(workload) = of.extract::<PyRef<'py, Workload>>() {
            return Ok(Self::Workload(workload));
        }
        if let Ok(recording) = of.extract::<PyRef<'py, Recording>>() {
            return Ok(Self::Replay(recording.asked(of.py())?));
        }
        let text = of.extract::<PathBuf>().map(Self::Text);
        text.map_err(|_| wrong_type(&of, "a text, a path, a warmcore.Workload or a warmcore.Recording"))
    }
}

impl WorkloadLike<'_> {
    /// How it was asked for.
    pub fn asked(&self) -> WorkloadText {
        match self {
            Self::Workload(workload) => workload.asked.clone(),
            Self::Replay(asked) => asked.clone(),
            Self::Text(text) => WorkloadText { text: text.to_string_lossy().into_owned(), ..WorkloadText::default() },
        }
    }
}
