//! `warmcore validate programs`: bytecode in a real kernel, by definition and translated.

use serde::Serialize;
use warmcore_fidelity::bytecode::{Judgement, for_guest, judge, programs};
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::session::pretty;

use crate::args::ValidateProgramsArguments;
use crate::commands::vm::{lab, vm_failure};
use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::signals::Signals;

const CODE: &str = "warmcore::validate";

/// The machine that programs run on: one CPU runs one program.
const MACHINE: &str = "1s1n1l1c1t";

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    tool_version: &'static str,
    kernel: &'a str,
    kernel_sha256: &'a str,
    seed: u64,
    drawn: u32,
    judgement: &'a Judgement,
}

/// Runs the verb.
pub fn run(arguments: &ValidateProgramsArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let machine = crate::load::machine(MACHINE)?.value;
    let lab = lab(&arguments.vm, console)?;
    let programs = programs(arguments.seed, u64::from(arguments.programs));
    console.note(&format!("{} programs for {}: {}", programs.len(), lab.kernel.release, lab.execution));
    let ran = lab.run_programs(&machine, &for_guest(&programs), &signals.stop);
    let ran = ran.map_err(|error| vm_failure(error, Some(&signals)))?;
    for (number, words) in &ran.words {
        let name = programs.get(*number).map_or("a program", |program| program.name.as_str());
        console.warn(&format!("the kernel refused `{name}`:\n{words}"));
    }
    let judgement = judge(&programs, &ran.came).map_err(|error| Failure::failed(CODE, error))?;
    if arguments.json {
        let document = Document {
            schema: "warmcore-programs-1",
            tool_version: TOOL_VERSION,
            kernel: &ran.hello.release,
            kernel_sha256: &lab.kernel.sha256,
            seed: arguments.seed,
            drawn: arguments.programs,
            judgement: &judgement,
        };
        console.out(&pretty(&document))?;
    } else {
        console.out(&console.table(&table(&judgement)))?;
    }
    for difference in &judgement.told {
        console.warn(&format!("{}: {}\n{}", difference.program, difference.what, difference.code));
    }
    if judgement.differences > 0 || judgement.not_run > 0 {
        let message = format!("{} of {} programs differ", judgement.differences, judgement.ran);
        return Err(Failure::new(Class::Check, CODE, message)
            .help("this is a fault of this program: please report it with the kernel and the seed"));
    }
    Ok(())
}

fn table(judgement: &Judgement) -> Table {
    let mut table = Table::new(["fact", "value"]);
    let refused = judgement.refused.iter().map(|(_, count)| count).sum::<usize>();
    for (fact, value) in [
        ("programs", judgement.programs.to_string()),
        ("run by the kernel", judgement.ran.to_string()),
        ("refused by its verifier", refused.to_string()),
        ("instructions executed", judgement.instructions.to_string()),
        ("programs that differ", judgement.differences.to_string()),
    ] {
        table.row([fact.to_owned(), value]);
    }
    table
}
