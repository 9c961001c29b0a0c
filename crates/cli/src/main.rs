//! The `warmcore` program: the library of that name.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(warmcore::run(std::env::args_os().collect(), None))
}
