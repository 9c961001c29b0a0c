//! `warmcore list schedulers` and `warmcore scheduler`: what there is, what can be set, and what a program needs.

use std::collections::BTreeMap;

use serde::Serialize;
use warmcore_kernel::Setup;
use warmcore_options::MemoryChoice;
use warmcore_places::place::{OperationCost, OperationUse, PlaceError};
use warmcore_places::sim::programs;
use warmcore_schedulers::{NeedKind, SchedulerInfo, SchedulerSpec};
use warmcore_topology::Machine;

use crate::commands::as_document;
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::load;

/// What a program is loaded for, and what is soaked, where nothing else is said.
pub const MACHINE: &str = "1s1n2l4c1t";

/// The document of `scheduler scx:PROGRAM --json`.
#[derive(Serialize)]
struct ProgramDocument {
    name: String,
    /// Of its programs.
    instructions: u64,
    operations: Vec<String>,
    /// What it needs beside operations.
    helpers: Vec<String>,
    kernel_functions: Vec<String>,
    map_kinds: Vec<String>,
    programs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<String>,
    /// What of all this is missing, by kind and name.
    not_modelled: Vec<String>,
    machine: String,
    /// Under which the costs were found.
    workload: String,
    costs: Vec<CheckedOperation>,
}

/// What an operation takes.
#[derive(Serialize)]
struct CheckedOperation {
    name: String,
    calls: u64,
    instructions_per_call: u64,
    cost_ns_per_call: u64,
}

/// Prints what there is.
pub fn list(console: &Console) -> Result<(), Failure> {
    let schedulers = warmcore_schedulers::list();
    if console.json() {
        return print_document(schedulers, console);
    }
    let mut table = Table::new(["scheduler", "what it is"]);
    for info in schedulers {
        table.row([info.name.to_owned(), info.summary.to_owned()]);
    }
    Ok(console.out(&console.table(&table))?)
}

/// Runs the verb: tunables, or of a program what it needs.
pub fn show(scheduler: &str, machine: Option<&str>, console: &Console) -> Result<(), Failure> {
    let spec = load::scheduler(scheduler)?;
    match (spec.program(), machine) {
        (Some(_), machine) => check(&spec, &load::machine(machine.unwrap_or(MACHINE))?.value, console),
        (None, None) => tunables(&spec, console),
        (None, Some(_)) => {
            let message = format!("--machine: the tunables of `{spec}` are the same on every machine");
            Err(Failure::usage("warmcore::usage", message).help("leave it out; it is what scx:PROGRAM is loaded for"))
        }
    }
}

fn tunables(spec: &SchedulerSpec, console: &Console) -> Result<(), Failure> {
    let info = spec.info();
    if console.json() {
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
    Ok(console.out_words(&(head + &console.table(&table)))?)
}

/// What a scheduler of the user's own needs, what of that is missing, and what its operations take on a small workload. What it needs is printed
/// also where it cannot be run.
fn check(scheduler: &SchedulerSpec, machine: &Machine, console: &Console) -> Result<(), Failure> {
    let failed = |error: PlaceError| load::place_failure(error, None);
    let surveyed = programs::load(scheduler, machine).map_err(failed)?;
    let text = format!("periodic:-n{},-r1ms,-s2ms,-d500ms", 2 * machine.cpu_count());
    let workload = load::workload(&text, true, &[])?.value;
    let mut setup = Setup::new(machine, &workload, 0).map_err(|error| failed(error.into()))?;
    if surveyed.needs.iter().any(|need| need.kind == NeedKind::Event) {
        // Its counters count what a model of the memory does.
        setup.options.memory = MemoryChoice::Analytic;
    }
    let probed = programs::probe(scheduler, &setup);
    let operation = |OperationUse { name, calls, cost }: &OperationUse| {
        let each = |sum: fn(&OperationCost) -> u64| cost.as_ref().map_or(0, sum) / calls;
        CheckedOperation {
            name: name.clone(),
            calls: *calls,
            instructions_per_call: each(|cost| cost.instructions),
            cost_ns_per_call: each(|cost| cost.charged_ns),
        }
    };
    let of = |kind: NeedKind| {
        let needs = surveyed.needs.iter().filter(|need| need.kind == kind);
        needs.map(|need| need.name.clone()).collect()
    };
    let checked = ProgramDocument {
        name: surveyed.name.clone(),
        instructions: surveyed.instructions,
        operations: of(NeedKind::Operation),
        helpers: of(NeedKind::Helper),
        kernel_functions: of(NeedKind::KernelFunction),
        map_kinds: of(NeedKind::MapKind),
        programs: of(NeedKind::Program),
        events: of(NeedKind::Event),
        not_modelled: surveyed.missing().map(ToString::to_string).collect(),
        machine: machine.name().to_owned(),
        workload: text,
        costs: probed.iter().flatten().map(operation).collect(),
    };
    console.out_words(&match console.json() {
        true => as_document("warmcore-scheduler-check-2", &checked),
        false => in_words(&checked, console),
    })?;
    probed.map(|_| ()).map_err(failed)
}

fn in_words(checked: &ProgramDocument, console: &Console) -> String {
    let mut table = Table::new(["of the scheduler", "on this machine"]);
    let mut row = |what: &str, names: &[String]| {
        table.row([what.to_owned(), if names.is_empty() { "none".to_owned() } else { names.join(", ") }]);
    };
    row("name", std::slice::from_ref(&checked.name));
    row("instructions of its programs", &[checked.instructions.to_string()]);
    row("operations", &checked.operations);
    row("helpers", &checked.helpers);
    row("kernel functions", &checked.kernel_functions);
    row("kinds of maps", &checked.map_kinds);
    row("programs attached elsewhere", &checked.programs);
    if !checked.events.is_empty() {
        row("events that its counters count", &checked.events);
    }
    row("not modelled of all this", &checked.not_modelled);
    let loader = "runs with your rights, and may do to this computer what you may (WARMCORE_SCX_PATHS=confined: without network and writes)";
    row("its loader", &[loader.to_owned()]);
    if checked.costs.is_empty() {
        return console.table(&table);
    }
    let mut operations = Table::new(["operation", ">calls", ">instructions per call", ">cost per call"]);
    for cost in &checked.costs {
        let each = [cost.calls, cost.instructions_per_call].map(|number| number.to_string());
        let [calls, instructions] = each;
        operations.row([cost.name.clone(), calls, instructions, format!("{} ns", cost.cost_ns_per_call)]);
    }
    let between = format!("\n{} on {}:\n\n", checked.workload, checked.machine);
    console.table(&table) + &between + &console.table(&operations)
}

fn print_document(schedulers: &[&SchedulerInfo], console: &Console) -> Result<(), Failure> {
    Ok(console.out(&as_document("warmcore-schedulers-2", &BTreeMap::from([("schedulers", schedulers)])))?)
}
