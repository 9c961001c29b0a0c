//! `warmcore study run --sensitivity`: which judgements hang on costs that nobody measured.

use warmcore_lab::files::write_atomically;
use warmcore_lab::session::pretty;
use warmcore_study::document::StudyDocument;
use warmcore_study::plan::{self, Plan};
use warmcore_study::sensitivity::{self, SensitivityDocument};

use crate::args::StudyRunArguments;
use crate::commands::study::{directory, file_failure, plan_failure, run_plan};
use crate::console::{Console, Table, Tone};
use crate::failure::Failure;
use crate::signals::Signals;

/// The result in a directory.
const DOCUMENT: &str = "sensitivity.json";

/// Runs studies again with every change of their machines. Whether they are as their files say is no matter here.
pub fn run(
    (plan, unchanged): (&Plan, &StudyDocument),
    arguments: &StudyRunArguments,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let (changes, impossible) = sensitivity::changes(plan, &arguments.sensitivity);
    impossible.iter().for_each(|reason| console.warn(&format!("left out: {reason}")));
    let mut varied = Vec::new();
    for (number, change) in changes.into_iter().enumerate() {
        console.note(&change);
        let studies = sensitivity::changed(&plan.studies, &change);
        let changed = plan::plan(studies, &|words| console.note(words)).map_err(plan_failure)?;
        let out = arguments.out.as_ref().map(|out| out.join(format!("change-{:02}", number + 1)));
        out.as_deref().map(directory).transpose()?;
        let trials = run_plan(&changed, out.as_deref(), signals, console)?;
        varied.push((change, StudyDocument::new(&changed, &trials, &[])));
    }
    let document = SensitivityDocument::new(plan, &arguments.sensitivity, unchanged, &varied);
    if let Some(out) = &arguments.out {
        write_atomically(&out.join(DOCUMENT), pretty(&document).as_bytes()).map_err(file_failure)?;
    }
    Ok(console.out(&if console.json() { pretty(&document) } else { text(&document, console) })?)
}

fn text(document: &SensitivityDocument, console: &Console) -> String {
    let mut table = Table::new(["change", ">judgements changed", ">directions changed", ">largest change", "of"]);
    for of in &document.changes {
        let changed = document.judgements.iter().zip(&of.judgements).zip(&document.expectations);
        let names: Vec<&str> =
            changed.filter(|((before, after), _)| before != after).map(|(_, name)| name.as_str()).collect();
        let largest = of.largest_change.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0));
        let cells = [
            of.change.clone(),
            of.judgements_changed.to_string(),
            of.directions_changed.to_string(),
            largest,
            names.join("; "),
        ];
        let tone = if names.is_empty() { Tone::Plain } else { Tone::Bad };
        table.toned_row(cells.map(|cell| (cell, tone)));
    }
    let turning = document.changes.iter().filter(|of| of.judgements_changed > 0).count();
    let all = document.changes.len();
    format!("{}\n{turning} of {all} changes of assumed costs change a judgement.\n", console.table(&table))
}
