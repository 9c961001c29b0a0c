//! The `warmcore` program: reads the command line, calls the libraries, prints. Glue only; everything it can do is in
//! the libraries it stands on.

mod args;
mod commands;
mod console;
mod failure;
mod load;
mod memory_args;
mod signals;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use warmcore_places::sim::Sim;

use crate::args::{Arguments, Command};
use crate::console::Console;
use crate::failure::Failure;
use warmcore_report::units;

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && wants_json() {
            // The text for people follows on standard error, so a closed standard output loses nothing.
            let _ =
                Console::new(console::ColorChoice::Never, true, 0).out(&failure::usage_document(&error.to_string()));
        }
        error.exit()
    });
    let console = Console::new(arguments.output.color, arguments.output.quiet, arguments.output.verbose);
    match run(arguments.command, &console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let code = failure.exit_code();
            if !failure.is_quiet() {
                // A result that was printed is the document; a failed check does not take it back.
                if wants_json() && !console.has_printed() {
                    // As above.
                    let _ = console.out(&failure.document());
                }
                console.error(failure);
            }
            ExitCode::from(code)
        }
    }
}

/// Whether the command line asks for a JSON document.
fn wants_json() -> bool {
    std::env::args_os().any(|word| word == "--json")
}

fn run(command: Command, console: &Console) -> Result<(), Failure> {
    match command {
        Command::Compare(arguments) => commands::compare::run(arguments, console),
        Command::Sim(arguments) => commands::sim::run(arguments, Arc::new(Sim), console),
        Command::Reproduce(arguments) => commands::reproduce::run(&arguments, console),
        Command::Report(arguments) => commands::report::run(arguments, console),
        Command::Explain(arguments) => commands::explain::explain(&arguments, console),
        Command::Events(arguments) => commands::explain::events(&arguments, console),
        Command::Host(command) => commands::host::run(command, console),
        Command::Record(arguments) => commands::record::run(&arguments, console),
        Command::Replay(arguments) => commands::replay::run(&arguments, console),
        Command::Group(arguments) => commands::group::run(&arguments, console),
        Command::Sweep(arguments) => commands::sweep::run(&arguments, console),
        Command::Machine(command) => commands::machine::run(command, console),
        Command::Workload(command) => commands::workload::run(command, console),
        Command::Memory(command) => commands::memory::run(command, console),
        Command::Metrics(command) => commands::metrics::run(command, console),
        Command::Schedulers(command) => commands::schedulers::run(command, console),
        Command::Study(command) => commands::study::run(command, console),
        Command::Validate(arguments) => commands::validate::run(&arguments, console),
        Command::Vm(command) => commands::vm::run(command, console),
        Command::Schema { name } => commands::reference::schema(name, console),
        Command::Completions { shell } => commands::reference::completions(shell, console),
        Command::Man { out } => commands::reference::manual(out.as_deref(), console),
    }
}
