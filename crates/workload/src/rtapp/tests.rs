mod reading;
mod refusing;
mod round_trip;

use super::*;
use crate::{Step, Workload, WorkloadError};

/// Reads a document with the given tasks.
fn tasks(tasks: &str) -> Workload {
    document(&format!("{{ \"tasks\": {{ {tasks} }} }}"))
}

fn document(text: &str) -> Workload {
    from_rtapp("test", text, &Options::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Why a document with the given tasks is refused.
fn refused(tasks: &str) -> String {
    refused_document(&format!("{{ \"tasks\": {{ {tasks} }} }}")).to_string()
}

fn refused_document(text: &str) -> WorkloadError {
    match from_rtapp("test", text, &Options::default()) {
        Ok(workload) => panic!("accepted: {workload:?}"),
        Err(error) => error,
    }
}

/// Steps of the n-th program.
fn steps(workload: &Workload, program: usize) -> &[Step] {
    &workload.programs[program].steps
}

/// What was accepted but not modelled.
fn warnings(workload: &Workload) -> Vec<&str> {
    workload.warnings.iter().map(|warning| warning.what.as_str()).collect()
}
