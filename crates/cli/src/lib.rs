//! The `warmcore` program: reads the command line, calls the libraries, prints. Glue only; everything it can do is in
//! the libraries it stands on. It is a library itself, since the Python package's `warmcore` is a part of its module.

mod args;
mod commands;
mod console;
mod failure;
mod load;
mod memory_args;
mod moved;
mod signals;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::args::{Arguments, Command, DoctorOf, ListArguments, Listed};
use crate::console::Console;
use crate::failure::Failure;
use warmcore_report::units;

/// Does what a command line asks for, and gives the exit code. A command line that cannot be understood ends the process.
///
/// The first word is the program's name. If `python` runs this, that word is the path of a file that does the same again.
pub fn run(words: Vec<OsString>, python: Option<PathBuf>) -> u8 {
    if let (Some(_), Some(own)) = (&python, words.first()) {
        warmcore_lab::files::set_own_program(own.into());
    }
    let texts: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let wants_json = texts.iter().any(|word| word == "--json");
    let arguments = Arguments::read(words.into_iter()).unwrap_or_else(|error| {
        let error = moved::told(error, texts.get(1..).unwrap_or_default());
        if error.use_stderr() && wants_json {
            // The text for people follows on standard error, so a closed standard output loses nothing.
            let _ = Console::new(console::ColorChoice::Never, true, 0, true)
                .out(&failure::usage_document(&error.to_string()));
        }
        error.exit()
    });
    let console = Console::of(&arguments.output, texts, python);
    match carry_out(arguments.command, &console) {
        Ok(()) => 0,
        Err(failure) => {
            let code = failure.exit_code();
            if !failure.is_quiet() {
                // A result that was printed is the document; a failed check does not take it back.
                if wants_json && !console.has_printed() {
                    // As above.
                    let _ = console.out(&failure.document());
                }
                console.error(failure);
            }
            code
        }
    }
}

fn carry_out(command: Command, console: &Console) -> Result<(), Failure> {
    if console.strict() && matches!(command, Command::Study(_) | Command::Tune(_) | Command::Validate(_)) {
        let message = "--strict: what is not modelled of the workloads of studies, of `tune` and of the book is a note";
        return Err(Failure::usage("warmcore::usage", message).help("leave it out, or `warmcore workload show` one"));
    }
    match command {
        Command::Compare(arguments) => commands::compare::run(arguments, console),
        Command::Sim(arguments) => commands::sim::run(arguments, console),
        Command::Sweep(arguments) => commands::sweep::run(&arguments, console),
        Command::Study(command) => commands::study::run(command, console),
        Command::Tune(arguments) => commands::tune::run(&arguments, console),
        Command::Report(arguments) => commands::report::run(arguments, console),
        Command::Explain(arguments) if arguments.events => commands::explain::events(&arguments, console),
        Command::Explain(arguments) => commands::explain::explain(&arguments, console),
        Command::Record(arguments) => commands::record::run(&arguments, console),
        Command::Replay(arguments) => commands::replay::run(&arguments, console),
        Command::Group(arguments) => commands::group::run(&arguments, console),
        Command::List(arguments) => list(&arguments, console),
        Command::Machine(command) => commands::machine::run(command, console),
        Command::Workload(command) => commands::workload::run(command, console),
        Command::Scheduler { scheduler, machine, soak: None } => {
            commands::schedulers::show(&scheduler, machine.as_deref(), console)
        }
        Command::Scheduler { scheduler, machine, soak: Some(seeds) } => {
            commands::soak::run(&scheduler, machine.as_deref(), seeds, console)
        }
        Command::Memory(arguments) => commands::memory::run(&arguments, console),
        Command::Validate(arguments) => commands::validate::run(&arguments, console),
        Command::Vm(arguments) => commands::vm::run(arguments, console),
        Command::Doctor { of: DoctorOf::Host, fetch_kernel: false } => commands::host::doctor(console),
        Command::Doctor { of: DoctorOf::Restore, fetch_kernel: false } => commands::host::restore(console),
        Command::Doctor { of: DoctorOf::Host | DoctorOf::Restore, fetch_kernel: true } => {
            Err(Failure::usage("warmcore::usage", "--fetch-kernel: this computer has its kernel")
                .help("`warmcore doctor vm --fetch-kernel` fetches one for guests"))
        }
        Command::Doctor { of: DoctorOf::Vm, fetch_kernel } => commands::vm::doctor(fetch_kernel, console),
        Command::Reference(arguments) => commands::reference::run(&arguments, console),
    }
}

fn list(arguments: &ListArguments, console: &Console) -> Result<(), Failure> {
    if arguments.workload.is_some() && arguments.kind != Listed::Metrics {
        return Err(Failure::usage("warmcore::usage", "only the list of metrics takes a workload")
            .help("leave it out, or list metrics"));
    }
    match arguments.kind {
        Listed::Machines => commands::machine::list(console),
        Listed::Workloads => commands::workload::list(console),
        Listed::Schedulers => commands::schedulers::list(console),
        Listed::Metrics => commands::metrics::list(arguments, console),
        Listed::Profiles => commands::memory::profiles(console),
        Listed::Studies => commands::study::list(console),
        Listed::Kernels => commands::vm::kernels(console),
    }
}
