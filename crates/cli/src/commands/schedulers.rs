//! `warmcore schedulers`: what there is, and what can be set.

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::session::pretty;
use warmcore_schedulers::{SchedulerInfo, SchedulerSpec};

use crate::args::SchedulersCommand;
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::load;

/// A document of schedulers.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    tool_version: &'static str,
    schedulers: &'a [&'a SchedulerInfo],
}

/// Runs the verb.
pub fn run(command: SchedulersCommand, console: &Console) -> Result<(), Failure> {
    match command {
        SchedulersCommand::List { json } => list(json, console),
        SchedulersCommand::Show { scheduler, json } => show(&load::scheduler(&scheduler)?, json, console),
    }
}

fn list(json: bool, console: &Console) -> Result<(), Failure> {
    let schedulers = warmcore_schedulers::list();
    if json {
        return print_document(schedulers, console);
    }
    let mut table = Table::new(["scheduler", "what it is"]);
    for info in schedulers {
        table.row([info.name.to_owned(), info.summary.to_owned()]);
    }
    Ok(console.out(&console.table(&table))?)
}

fn show(spec: &SchedulerSpec, json: bool, console: &Console) -> Result<(), Failure> {
    let info = spec.info();
    if json {
        return print_document(&[info], console);
    }
    let mut table = Table::new(["tunable", ">value", ">default", "unit", "range", "meaning"]);
    for (tunable, (name, value)) in info.tunables().zip(spec.resolved()) {
        table.row([
            name.to_owned(),
            value.to_string(),
            tunable.default.to_string(),
            tunable.unit().to_owned(),
            tunable.range(),
            tunable.doc.to_owned(),
        ]);
    }
    let head = format!("{}: {}\n\nSource: {}\n\n", info.name, info.summary, info.source);
    Ok(console.out(&(head + &console.table(&table)))?)
}

fn print_document(schedulers: &[&SchedulerInfo], console: &Console) -> Result<(), Failure> {
    let document = Document { schema: "warmcore-schedulers-2", tool_version: TOOL_VERSION, schedulers };
    Ok(console.out(&pretty(&document))?)
}
