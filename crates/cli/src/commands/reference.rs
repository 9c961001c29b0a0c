//! What describes the program itself: completions, manual pages, schemas. All from one definition, in [`crate::args`].

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;

use crate::args::{Arguments, SchemaName};
use crate::console::Console;
use crate::failure::Failure;

/// `warmcore completions SHELL`.
pub fn completions(shell: clap_complete::Shell, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "warmcore", &mut script);
    Ok(console.out(&String::from_utf8_lossy(&script))?)
}

/// `warmcore man [--out DIR]`.
pub fn manual(out: Option<&Path>, console: &Console) -> Result<(), Failure> {
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

/// `warmcore schema NAME`.
pub fn schema(name: SchemaName, console: &Console) -> Result<(), Failure> {
    Ok(console.out(name.text())?)
}
