//! `warmcore scheduler --soak`: stalls and lost tasks of a scheduler, over seeds.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Serialize;
use warmcore_lab::soak::{Finding, soak};
use warmcore_places::place::BatchConduct;

use super::schedulers::MACHINE;
use crate::commands::as_document;
use crate::console::Console;
use crate::failure::{Class, Failure};
use crate::load;
use crate::signals::Signals;

/// The document of `--json`.
#[derive(Serialize)]
struct SoakDocument<'a> {
    scheduler: &'a str,
    machine: &'a str,
    /// The first and the last.
    seeds: [u64; 2],
    findings: Vec<SoakFinding>,
}

/// What a seed has found.
#[derive(Serialize)]
struct SoakFinding {
    seed: u64,
    what: String,
    /// The command that finds it again.
    again: String,
}

pub fn run(
    scheduler: &str,
    machine: Option<&str>,
    seeds: RangeInclusive<u64>,
    console: &Console,
) -> Result<(), Failure> {
    let spec = load::scheduler(scheduler)?;
    let (text, (first, last)) = (machine.unwrap_or(MACHINE), seeds.clone().into_inner());
    let machine = load::machine(text)?.value;
    let signals = Signals::listen()?;
    let conduct = BatchConduct { jobs: console.jobs(), stop: Arc::clone(&signals.stop) };
    let found = soak(&machine, &spec, seeds, &conduct).map_err(|error| load::place_failure(error, Some(&signals)))?;
    // One seed alone shows also what happened to the task before, or what a kernel prints when it ejects a scheduler.
    let is_one = first == last;
    let name = spec.to_string();
    let finding = |Finding { seed, what }: &Finding| {
        let what = what.to_string();
        SoakFinding {
            seed: *seed,
            what: if is_one { what } else { what.lines().next().unwrap_or_default().to_owned() },
            again: format!("warmcore scheduler '{}' -m '{}' --soak={seed}", quoted(&name), quoted(text)),
        }
    };
    let findings: Vec<SoakFinding> = found.iter().map(finding).collect();
    let (count, runs) = (findings.len(), last - first + 1);
    if console.json() {
        let content = SoakDocument { scheduler: &name, machine: text, seeds: [first, last], findings };
        console.out(&as_document("warmcore-soak-1", &content))?;
    } else if count == 0 {
        console.out_words(&format!(
            "{name} on {text}: no stall and no lost task in {runs} runs of 3 s, seeds {first} to {last}\n"
        ))?;
    } else {
        let line = |SoakFinding { seed, what, again }: &SoakFinding| match is_one {
            true => format!("seed {seed}: {what}\n"),
            false => format!("seed {seed}: {what}; again: {again}\n"),
        };
        console.out(&findings.iter().map(line).collect::<String>())?;
    }
    if count > 0 {
        let message = format!("{name} fails {count} of {runs} runs");
        return Err(Failure::new(Class::Check, "warmcore::soak", message));
    }
    Ok(())
}

/// A text between single quotes, for a shell.
fn quoted(text: &str) -> String {
    text.replace('\'', r"'\''")
}
