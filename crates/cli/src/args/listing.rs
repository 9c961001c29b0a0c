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
    /// Kind
    #[arg(value_name = "KIND")]
    pub kind: Listed,
    /// For metrics: also list those of this workload, a file or a generator with its flags
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
}

/// Purposes that a computer may serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DoctorOf {
    /// Experiments on it: the kernel's interfaces that are present, and the effect of missing ones
    Host,
    /// Guests: what is present for booting them
    Vm,
    /// Undo the changes that a killed experiment left on this computer; `host` lists them
    Restore,
}

/// Descriptions of this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReferenceOf {
    /// The JSON Schema of a document that this program writes; without NAME, their names
    Schema,
    /// Completions for a shell
    Completions,
    /// The manual page, or with --out all of them
    Man,
    /// An annotated workload file as a template
    Workload,
}

/// Arguments of `reference`.
#[derive(Args, Debug)]
pub struct ReferenceArguments {
    /// Kind
    #[arg(value_name = "KIND")]
    pub kind: ReferenceOf,
    /// Document, or shell
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// For man: directory for one page per command. For workload: file to write
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
}
