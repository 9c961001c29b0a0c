//! `warmcore schedulers`: what there is, and what can be set.

use serde::Serialize;
use warmcore_kernel::Setup;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::session::pretty;
use warmcore_places::place::{OperationCost, OperationUse, PlaceError};
use warmcore_places::sim::programs;
use warmcore_schedulers::{SchedulerInfo, SchedulerSpec};
use warmcore_topology::Machine;

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
        SchedulersCommand::Check { scheduler, machine } => {
            check(&load::scheduler(&scheduler)?, &load::machine(&machine)?.value, console)
        }
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
            tunable.text(value),
            tunable.text(tunable.default),
            tunable.unit().to_owned(),
            tunable.range(),
            tunable.doc.to_owned(),
        ]);
    }
    let head = format!("{}: {}\n\nSource: {}\n\n", info.name, info.summary, info.source);
    Ok(console.out(&(head + &console.table(&table)))?)
}

/// What a scheduler of the user's own needs, what of that is missing, and what its operations take on a small workload.
fn check(spec: &SchedulerSpec, machine: &Machine, console: &Console) -> Result<(), Failure> {
    let Some(program) = spec.program() else {
        let message = format!("`{spec}` is a scheduler of this program; there is nothing to check");
        let help = "give one of your own: `warmcore schedulers check 'scx:/path/scx_lavd --performance'`";
        return Err(Failure::usage("warmcore::scheduler", message).help(help));
    };
    let failed = |error: PlaceError| load::place_failure(error, None);
    let capture = programs::load(program, machine).map_err(failed)?;
    let object = &capture.object;
    let mut table = Table::new(["of the scheduler", "on this machine"]);
    let mut row = |what: &str, names: &mut dyn Iterator<Item = &str>| {
        let names: Vec<&str> = names.collect();
        table.row([what.to_owned(), if names.is_empty() { "none".to_owned() } else { names.join(", ") }]);
    };
    row("name", &mut [object.name()].into_iter());
    row("instructions of its programs", &mut [object.instructions().to_string().as_str()].into_iter());
    row("operations", &mut object.operations());
    row("operations never called here", &mut object.never_called.iter().map(String::as_str));
    row("calls of what is not modelled", &mut capture.missing.iter().map(String::as_str));
    row("programs that do not run", &mut capture.not_run.iter().map(String::as_str));
    let text = format!("periodic:-n{},-r1ms,-s2ms,-d500ms", 2 * machine.cpu_count());
    let workload = load::workload(&text, true, &[])?.value;
    let setup = Setup::new(machine, &workload, 0).map_err(|error| failed(error.into()))?;
    let mut operations = Table::new(["operation", ">calls", ">instructions per call", ">cost per call"]);
    for OperationUse { name, calls, cost } in programs::probe(&capture, &setup).map_err(failed)? {
        let each = |sum: fn(&OperationCost) -> u64| cost.as_ref().map_or(0, sum) / calls;
        let (instructions, cost_ns) = (each(|cost| cost.instructions), each(|cost| cost.charged_ns));
        operations.row([name, calls.to_string(), instructions.to_string(), format!("{cost_ns} ns")]);
    }
    let between = format!("\n{text} on {}:\n\n", machine.name());
    Ok(console.out(&(console.table(&table) + &between + &console.table(&operations)))?)
}

fn print_document(schedulers: &[&SchedulerInfo], console: &Console) -> Result<(), Failure> {
    let document = Document { schema: "warmcore-schedulers-2", tool_version: TOOL_VERSION, schedulers };
    Ok(console.out(&pretty(&document))?)
}
