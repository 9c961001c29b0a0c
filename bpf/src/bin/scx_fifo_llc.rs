// SPDX-License-Identifier: GPL-2.0-only
//! Loads the scheduler `fifo_llc` and stays until it is interrupted.

fn main() -> std::process::ExitCode {
    warmcore_scx_programs::run(&warmcore_scx_programs::FIFO_LLC)
}
