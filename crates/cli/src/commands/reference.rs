//! `warmcore reference`: what describes the program itself, completions, manual pages, schemas, a workload file to begin with. All from one definition, in [`crate::args`].

use std::any::TypeId;
use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, CommandFactory as _, ValueEnum};
use clap_complete::Shell;
use warmcore_study::library;
use warmcore_topology::presets;
use warmcore_workload::library::LIBRARY;

use crate::args::{Arguments, ReferenceArguments, ReferenceOf, SchemaName};
use crate::commands::write_result;
use crate::console::Console;
use crate::failure::Failure;

pub fn run(arguments: &ReferenceArguments, console: &Console) -> Result<(), Failure> {
    let ReferenceArguments { kind, name, out } = arguments;
    let usage = |message: &str, help: String| Err(Failure::usage("warmcore::usage", message).help(help));
    if console.json() && *kind != ReferenceOf::Workload {
        return usage("--json: this prints a text as it is", "leave it out".into());
    }
    if out.is_some() && matches!(kind, ReferenceOf::Schema | ReferenceOf::Completions) {
        return usage("--out: this goes to standard output", "leave it out, and redirect the output".into());
    }
    match (kind, name) {
        (ReferenceOf::Man, None) => manual(out.as_deref(), console),
        (ReferenceOf::Workload, None) => {
            write_result(out.as_deref(), ("workload", warmcore_workload::TEMPLATE), console)
        }
        (ReferenceOf::Man | ReferenceOf::Workload, Some(name)) => {
            usage(&format!("`{name}`: there is only one"), "leave the name out".into())
        }
        (ReferenceOf::Schema, Some(name)) => Ok(console.out(named::<SchemaName>("document", name)?.text())?),
        (ReferenceOf::Completions, Some(name)) => completions(named("shell", name)?, console),
        (ReferenceOf::Schema, None) => Ok(console.out(&(names::<SchemaName>().join("\n") + "\n"))?),
        (ReferenceOf::Completions, None) => {
            usage("there is no shell to print completions for", format!("name one of {}", names::<Shell>().join(", ")))
        }
    }
}

fn named<T: ValueEnum>(what: &str, name: &str) -> Result<T, Failure> {
    T::from_str(name, false).map_err(|_| {
        Failure::usage("warmcore::usage", format!("there is no {what} `{name}`"))
            .help(format!("there are {}", names::<T>().join(", ")))
    })
}

fn names<T: ValueEnum>() -> Vec<String> {
    let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    values.map(|value| value.get_name().to_owned()).collect()
}

fn completions(shell: Shell, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_names(Arguments::command()), "warmcore", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash {
        // Schedulers are typed as a list: its last name is completed, and those before it stay.
        let of = |options: &str, word: &str| {
            format!("compgen{options} -W \"{}\" -- \"${{{word}}}\"", names_of("schedulers").join(" "))
        };
        script = script.replace(&of("", "cur"), &of(" -P \"${cur%\"${cur##*,}\"}\"", "cur##*,"));
    }
    if shell == Shell::Fish {
        script.push_str(&lines_for_fish(&Arguments::command(), None));
    }
    Ok(console.out(&script)?)
}

/// Names in fish where Clap has none: of what is typed without an option, and of the last scheduler of a list. `within` is the condition under
/// which the command is typed.
fn lines_for_fish(command: &clap::Command, within: Option<&str>) -> String {
    let mut lines = String::new();
    for command in command.get_subcommands() {
        let name = command.get_name();
        let typed = match within {
            None => format!("__fish_warmcore_using_subcommand {name}"),
            Some(within) => format!("{within}; and __fish_seen_subcommand_from {name}"),
        };
        for argument in command.get_arguments() {
            let names = names_for(argument).join(" ");
            let what = match argument.get_long() {
                _ if names.is_empty() => continue,
                None => format!("-a \"{names}\""),
                Some("schedulers") => format!("-s s -l schedulers -r -f -a \"(__fish_append , {names})\""),
                Some(_) => continue,
            };
            lines.push_str(&format!("complete -c warmcore -n \"{typed}\" {what}\n"));
        }
        lines.push_str(&lines_for_fish(command, Some(&typed)));
    }
    lines
}

/// The command line with the names that come with the program, where a name can be typed. What else can be typed there, such as a file or
/// a scheduler's tunables, is left to the shell.
fn with_names(command: clap::Command) -> clap::Command {
    let named = |argument: Arg| match names_for(&argument) {
        names if names.is_empty() => argument,
        names => argument.value_parser(PossibleValuesParser::new(names)),
    };
    command.mut_args(named).mut_subcommands(with_names)
}

/// Names that can be typed for an argument; none of files.
fn names_for(argument: &Arg) -> Vec<&'static str> {
    if argument.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
        return Vec::new();
    }
    names_of(argument.get_id().as_str())
}

fn names_of(argument: &str) -> Vec<&'static str> {
    match argument {
        // Clap keeps names for as long as the program runs, which ends with this command.
        "machine" | "machines" => presets().into_iter().map(|preset| &*preset.name.leak()).collect(),
        "workload" | "workloads" => {
            let generators = warmcore_workload::generators().iter().map(|generator| generator.name);
            generators.chain(LIBRARY.iter().map(|entry| entry.name)).collect()
        }
        "scheduler" | "schedulers" | "baseline" => warmcore_schedulers::list().iter().map(|info| info.name).collect(),
        "study" | "studies" => library::names().collect(),
        _ => Vec::new(),
    }
}

fn manual(out: Option<&Path>, console: &Console) -> Result<(), Failure> {
    let Some(directory) = out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
        return Ok(console.out(&String::from_utf8_lossy(&page))?);
    };
    fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Arguments::command(), directory)).map_err(
        |error| {
            Failure::failed(
                "warmcore::output",
                format!("cannot write manual pages to {}: {error}", directory.display()),
            )
        },
    )?;
    console.note(&format!("manual pages written to {}", directory.display()));
    Ok(())
}
