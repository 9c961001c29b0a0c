//! Machines.

use std::path::PathBuf;

use pyo3::prelude::*;
use warmcore_lab::experiment::Named;
use warmcore_lab::load;
use warmcore_topology::Machine as Topology;

use crate::asked::wrong_type;
use crate::failure::Trouble;

/// A machine: sockets, NUMA nodes, last-level caches, cores and hardware threads, with what distances between them cost.
///
/// `text` is what the program's `--machine` takes: a preset (`Machine.presets()`), a file (TOML or hwloc XML), a short form such as
/// "2s1n2l8c2t", an hwloc synthetic string, a directory with a snapshot of /sys, or "host" for this computer; with "@PRESET" behind it, the
/// costs are that preset's. `background` names threads of the kernel itself beside the workload, as `--background` does.
///
/// Raises WarmcoreError if there is no such machine; its `advice` has the nearest name.
#[pyclass(frozen, module = "warmcore")]
pub struct Machine {
    named: Named<Topology>,
    background_chosen: bool,
}

#[pymethods]
impl Machine {
    #[new]
    #[pyo3(signature = (text, *, background=None))]
    fn new(text: PathBuf, background: Option<&str>) -> PyResult<Self> {
        let named = load::machine_with(&text.to_string_lossy(), background).map_err(Trouble::from)?;
        Ok(Self { named, background_chosen: background.is_some() })
    }

    /// A machine from a text of the program's own format, as `to_toml()` gives it. `name` is what it is called where it is asked for.
    ///
    /// Raises WarmcoreError that says what is wrong with the text.
    #[staticmethod]
    #[pyo3(signature = (text, *, name="machine", background=None))]
    fn parse(text: &str, name: &str, background: Option<&str>) -> PyResult<Self> {
        let value = warmcore_topology::from_toml(text).map_err(|error| Trouble::new(format!("{name}: {error}")))?;
        let mut named = Named { source: name.to_owned(), value };
        if let Some(background) = background {
            named = load::background(named, background).map_err(Trouble::from)?;
        }
        Ok(Self { named, background_chosen: background.is_some() })
    }

    /// Names of the machines that come with the program.
    #[staticmethod]
    fn presets() -> Vec<String> {
        warmcore_topology::presets().into_iter().map(|preset| preset.name).collect()
    }

    /// What it is called.
    #[getter]
    fn name(&self) -> &str {
        self.named.value.name()
    }

    /// Number of CPUs: hardware threads.
    #[getter]
    fn cpu_count(&self) -> usize {
        self.named.value.cpus().count()
    }

    /// The machine as text of the program's own format, which a file may hold.
    fn to_toml(&self) -> String {
        warmcore_topology::to_toml(&self.named.value)
    }

    /// The machine as a map: sockets, nodes and caches, distances, and costs with their origins.
    fn __str__(&self) -> String {
        warmcore_topology::render(&self.named.value)
    }

    fn __repr__(&self) -> String {
        format!("<warmcore.Machine {}: {} CPUs>", self.named.source, self.cpu_count())
    }

    fn _repr_html_(&self) -> String {
        format!("<pre>{}</pre>", warmcore_report::svg::escape(&self.__str__()))
    }
}

/// A machine, or what names one.
pub enum MachineLike<'py> {
    /// One that was read.
    Machine(PyRef<'py, Machine>),
    /// A text or a path.
    Text(PathBuf),
}

impl<'a, 'py> FromPyObject<'a, 'py> for MachineLike<'py> {
    type Error = PyErr;

    fn extract(of: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(machine) = of.extract::<PyRef<'py, Machine>>() {
            return Ok(Self::Machine(machine));
        }
        of.extract::<PathBuf>().map(Self::Text).map_err(|_| wrong_type(&of, "a text, a path or a warmcore.Machine"))
    }
}

impl MachineLike<'_> {
    /// The machine, and whether its kernel threads were chosen.
    pub fn machine(&self) -> Result<(Named<Topology>, bool), Trouble> {
        match self {
            Self::Machine(machine) => Ok((machine.named.clone(), machine.background_chosen)),
            Self::Text(text) => Ok((load::machine(&text.to_string_lossy())?, false)),
        }
    }
}
