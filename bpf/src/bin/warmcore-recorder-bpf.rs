// SPDX-License-Identifier: GPL-2.0-only
//! Records what the scheduler does and writes it to standard output until standard input ends.

fn main() -> std::process::ExitCode {
    warmcore_scx_programs::recorder::run(&std::env::args().collect::<Vec<_>>())
}
