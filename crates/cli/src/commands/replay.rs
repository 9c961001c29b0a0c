//! `warmcore replay`: a recording as a workload.

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::session::pretty;
use warmcore_replay::Fidelity;

use crate::args::ReplayArguments;
use crate::commands::{recording, write_output};
use crate::console::Console;
use crate::failure::Failure;

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    tool_version: &'static str,
    fidelity: Fidelity,
    sentences: Vec<String>,
}

/// Runs the verb.
pub fn run(arguments: &ReplayArguments, console: &Console) -> Result<(), Failure> {
    let loaded = recording::load(&arguments.recording, console)?;
    let made = warmcore_replay::workload::replay(&loaded.name, &loaded.histories, &loaded.recording, loaded.overheads);
    let text =
        warmcore_workload::to_rtapp(&made.workload).map_err(|error| Failure::failed("warmcore::workload", error))?;
    let sentences = made.fidelity.sentences();
    write_output(arguments.out.as_deref(), &text, console)?;
    if arguments.json {
        let document =
            Document { schema: "warmcore-replay-1", tool_version: TOOL_VERSION, fidelity: made.fidelity, sentences };
        return Ok(console.out(&pretty(&document))?);
    }
    sentences.iter().for_each(|sentence| console.note(sentence));
    Ok(())
}
