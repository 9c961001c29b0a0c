//! What can be typed about machines.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum, ValueHint};

/// Verbs of `machine`.
#[derive(Subcommand, Debug)]
pub enum MachineCommand {
    /// Draw a machine as text, with the origins of its values
    Show {
        /// Preset, file, /sys snapshot directory, short form, hwloc synthetic string, or `host` for this computer
        machine: String,
        /// With these kernel threads: none, quiet, guest-7.2, host-6.18, launchers, or a file
        #[arg(long, value_name = "BACKGROUND")]
        background: Option<String>,
        /// For `host`: measure the costs of switches, wakeups, calls, messages, migrations and cache-line hand-offs
        /// here, and use them instead of a preset's. It takes some seconds on an idle computer
        #[arg(long)]
        measure: bool,
        /// Print its TOML
        #[arg(long, conflicts_with = "json")]
        toml: bool,
    },
    /// Write a machine in another format
    Convert {
        /// Preset, file, /sys snapshot directory, short form, hwloc synthetic string, `host`, or `-`
        machine: String,
        /// Format to write
        #[arg(long, value_name = "FORMAT", default_value = "toml")]
        to: MachineFormat,
        /// File to write, or directory to make; standard output if not given or `-`
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
    },
}

/// Formats of machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MachineFormat {
    /// This program's own; loses nothing
    Toml,
    /// hwloc XML version 2
    Xml,
    /// hwloc synthetic string; symmetric machines only
    Synthetic,
    /// For `host` or a directory with a tree of /sys: a copy of the files that are read, without serial numbers or host
    /// names
    Snapshot,
}
