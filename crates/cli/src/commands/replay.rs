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
struct ReplayDocument {
    schema: &'static str,
    tool_version: &'static str,
    fidelity: Fidelity,
    sentences: Vec<String>,
}

/// Runs the verb.
pub fn run(arguments: &ReplayArguments, console: &Console) -> Result<(), Failure> {
    if console.json() && arguments.out.is_none() {
        return Err(Failure::usage("warmcore::usage", "--json: standard output is for the workload")
            .help("name a file for the workload with --out"));
    }
    let mut loaded = recording::load(&arguments.recording, console)?;
    if arguments.no_pools {
        // Pools are found by these.
        loaded.histories.signals.clear();
        loaded.histories.accepted.clear();
    }
    let (workload, fidelity, sentences) = if arguments.drawn {
        let mut made =
            warmcore_replay::drawn::roles(&loaded.name, &loaded.histories, &loaded.recording, loaded.overheads);
        made.workload.notes = made.fidelity.reservations();
        let sentences = made.sentences();
        (made.workload, made.fidelity, sentences)
    } else {
        let made = recording::tried(&loaded, console)?;
        let sentences = made.fidelity.sentences();
        (made.workload, made.fidelity, sentences)
    };
    if workload.tasks.is_empty() {
        let message = format!("{}: none of its threads ran", arguments.recording.recording.display());
        return Err(Failure::usage("warmcore::recording", message).help("record for longer, or choose other threads"));
    }
    let text = warmcore_workload::to_rtapp(&workload).map_err(|error| Failure::failed("warmcore::workload", error))?;
    write_output(arguments.out.as_deref(), &text, console)?;
    if console.json() {
        let document = ReplayDocument { schema: "warmcore-replay-1", tool_version: TOOL_VERSION, fidelity, sentences };
        return Ok(console.out(&pretty(&document))?);
    }
    sentences.iter().for_each(|sentence| console.note(sentence));
    Ok(())
}
