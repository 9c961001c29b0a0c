// SPDX-License-Identifier: GPL-2.0-only
//! Loads the scheduler of an object (`scx_load OBJECT`) and stays until it is interrupted.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path] = arguments.as_slice() else {
        eprintln!(
            "scx_load OBJECT: loads the scheduler of an object that clang made, and stays until it is interrupted"
        );
        return ExitCode::from(2);
    };
    match std::fs::read(path) {
        Ok(object) => warmcore_scx_programs::run(&warmcore_scx_programs::Scheduler { name: path, object: &object }),
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}
