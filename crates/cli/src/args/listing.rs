//! What can be typed about what there is.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::values::directory;

/// Kinds of things that can be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Listed {
    /// Machines that come with this program
    Machines,
    /// Generators of workloads with their flags, and workloads with names
    Workloads,
    /// Schedulers
    Schedulers,
    /// Every metric with unit, direction and meaning; --metric takes their names
    Metrics,
    /// Memory profiles that come with this program
    Profiles,
    /// Studies that come with this program
    Studies,
    /// Kernels for guests in the cache
    Kernels,
}

/// Arguments of `list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// What
    #[arg(value_name = "KIND")]
    pub kind: Listed,
    /// Of metrics: a workload whose own metrics are listed too, a file, or a generator with its flags
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// File with memory profiles that the workload may name
    #[arg(long, value_name = "FILE", requires = "workload", value_hint = ValueHint::FilePath)]
    pub profiles: Option<PathBuf>,
}

/// What this computer is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DoctorOf {
    /// Experiments on it: which of the kernel's interfaces are here, and what is lost without the others
    Host,
    /// Guests: what there is for booting them
    Vm,
}

/// What describes this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReferenceOf {
    /// The JSON Schema of a document that this program writes; without NAME, their names
    Schema,
    /// Completions for a shell
    Completions,
    /// The manual page, or with --out all of them
    Man,
    /// An annotated workload file to begin with
    Workload,
}

/// Arguments of `reference`.
#[derive(Args, Debug)]
pub struct ReferenceArguments {
    /// What
    #[arg(value_name = "KIND")]
    pub kind: ReferenceOf,
    /// Which document, or which shell
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Of man: directory for one page per command. Of workload: file to write
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
}
