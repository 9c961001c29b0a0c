//! The Python package `warmcore`: machines, workloads, comparisons, runs, recordings and studies as objects. Glue only: everything it can do is in
//! the libraries it stands on, and a comparison gives what `warmcore compare` gives, byte for byte. The program is a part of it, too.
//!
//! The module is `warmcore._native`; `python/warmcore` names what of it is public, with its types. Without the feature `extension` this
//! crate is empty.

#![cfg(feature = "extension")]

mod arrow;
mod asked;
mod attended;
mod command;
mod comparison;
mod failure;
mod figure;
mod gathering;
mod machine;
mod recording;
mod simulation;
mod study;
mod tuning;
mod workload;

use pyo3::prelude::*;

/// What stands in the Python module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::arrow::Table;
    #[pymodule_export]
    use crate::command::program;
    #[pymodule_export]
    use crate::comparison::{Comparison, compare};
    #[pymodule_export]
    use crate::failure::{WarmcoreError, WarmcoreWarning};
    #[pymodule_export]
    use crate::figure::Figure;
    #[pymodule_export]
    use crate::gathering::{ChunkedRun, carry_out, identity};
    #[pymodule_export]
    use crate::machine::Machine;
    #[pymodule_export]
    use crate::recording::Recording;
    #[pymodule_export]
    use crate::simulation::{Simulation, simulate};
    #[pymodule_export]
    use crate::study::{Study, StudyResult};
    #[pymodule_export]
    use crate::tuning::{Tuning, tune};
    #[pymodule_export]
    use crate::workload::Workload;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", warmcore_lab::experiment::TOOL_VERSION)
    }
}
