//! `warmcore tune`: settings that are best for many workloads. The library searches and judges; the package's sampler says where to look.

use warmcore_study::tune::form::{TuneError, Tuning};

use crate::args::TuneArguments;
use crate::commands::dask::Package;
use crate::console::Console;
use crate::failure::Failure;
use crate::signals::Signals;

/// Runs the verb.
pub fn run(arguments: &TuneArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    // What is wrong with the file is known without Python.
    Tuning::read(&arguments.file).map_err(|error| {
        let advice = error.advice();
        let failure = match &error {
            TuneError::Read { source, .. } => Failure::cannot_read(&arguments.file, source),
            _ => Failure::usage("warmcore::tune", &error),
        };
        advice.into_iter().fold(failure, Failure::help)
    })?;
    let asked = serde_json::json!({
        "file": arguments.file,
        "out": arguments.out,
        "dask": arguments.dask,
        "jobs": console.jobs(),
        "quiet": console.json(),
    });
    let mut package = Package::start(&["tune", &asked.to_string()], console)?;
    let said = package.next(&signals)?.unwrap_or_default();
    let result = if console.json() { said.json } else { said.text };
    if let Some(out) = &arguments.out {
        console.note(&format!("result: {}", out.join("tuning.json").display()));
    }
    Ok(console.out(&result.unwrap_or_default())?)
}
