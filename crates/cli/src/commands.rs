//! One module per verb, and what several of them do.

use std::path::Path;

use crate::console::Console;
use crate::failure::Failure;

pub mod compare;
pub mod explain;
pub mod group;
pub mod host;
pub mod load_levels;
pub mod machine;
pub mod memory;
pub mod metrics;
pub mod native;
pub mod record;
pub mod recording;
pub mod reference;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod reproduce_contention;
pub mod reproduce_table;
pub mod schedulers;
pub mod sim;
pub mod sweep;
pub mod validate;
pub mod validate_memory;
pub mod validate_programs;
pub mod verdict_table;
pub mod vm;
pub mod workload;

/// Writes a text to a file that does not exist yet, or to standard output if there is none or it is `-`.
fn write_output(path: Option<&Path>, text: &str, console: &Console) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        return Ok(console.out(text)?);
    };
    if path.exists() {
        return Err(Failure::usage("warmcore::output", format!("{} exists already", path.display()))
            .help("name a file that does not exist yet"));
    }
    warmcore_lab::files::write_atomically(path, text.as_bytes()).map_err(|error| {
        let advice = error.advice();
        Failure::failed("warmcore::output", error).help(advice)
    })
}
