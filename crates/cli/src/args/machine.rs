//! What can be typed about machines.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::values::directory;

/// Verbs of `machine`.
#[derive(Subcommand, Debug)]
pub enum MachineCommand {
    /// List the machines that come with this program
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Draw a machine as text, with what its values rest on
    Show {
        /// Preset, file, /sys snapshot directory, short form, hwloc synthetic string, or `host`
        machine: String,
        /// With these threads of the kernel itself: none, quiet, guest-7.2, host-6.18, launchers, or a file
        #[arg(long, value_name = "BACKGROUND")]
        background: Option<String>,
        /// In which form.
        #[command(flatten)]
        form: MachineForm,
    },
    /// Read this computer's topology from /sys
    Detect {
        /// Directory to read instead of /
        #[arg(long, value_name = "DIR", default_value = "/", value_hint = ValueHint::DirPath)]
        root: PathBuf,
        /// In which form.
        #[command(flatten)]
        form: MachineForm,
        /// Measure here what switches, wakeups, calls, messages, migrations and hand-offs of cache lines cost, and take that in place of
        /// a preset's figures; takes some seconds, on a computer that does nothing else
        #[arg(long, conflicts_with = "root")]
        measure: bool,
    },
    /// Write a machine in another format
    Convert {
        /// Preset, file, /sys snapshot directory, short form, hwloc synthetic string, `host`, or `-`
        machine: String,
        /// Format to write
        #[arg(long, value_name = "FORMAT", default_value = "toml")]
        to: MachineFormat,
        /// File to write; standard output if not given or `-`
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
        /// Print one JSON document: the file that was written, or the text
        #[arg(long)]
        json: bool,
    },
    /// Copy what `detect` reads of /sys to a directory, without serial numbers or host names
    Snapshot {
        /// Directory to make
        #[arg(value_parser = directory())]
        directory: PathBuf,
        /// Directory to read instead of /
        #[arg(long, value_name = "DIR", default_value = "/", value_hint = ValueHint::DirPath)]
        root: PathBuf,
        /// Print one JSON document: the directory that was made
        #[arg(long)]
        json: bool,
    },
}

/// In which form a machine is printed; as a drawing without either.
#[derive(Args, Clone, Copy, Debug)]
pub struct MachineForm {
    /// Print its TOML
    #[arg(long)]
    pub toml: bool,
    /// Print one JSON document: its CPUs, caches and nodes, what its values rest on, and its TOML
    #[arg(long, conflicts_with = "toml")]
    pub json: bool,
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
}
