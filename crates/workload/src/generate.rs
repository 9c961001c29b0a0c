//! Generators: look-alikes of benchmark programs, made from the programs' own flags.
//!
//! `hackbench:-T,-p,-f20,-g2,-l1000` is what `hackbench -T -p -f 20 -g 2 -l 1000` does, with commas for spaces.
//! `A+B` runs both at once, each as an application of its own. What a program does is taken from its source or
//! manual; how long its system calls take belongs to the machine.

mod channel;
mod combine;
mod flags;
mod forkjoin;
mod hackbench;
mod load;
mod mediawiki;
mod periodic;
mod pingpong;
mod pipeline;
mod schbench;
mod spin;
mod sysbench;
mod transcode;
mod verilator;

pub use channel::{DEFAULT_CHANNEL_BYTES, channel_capacity};
pub use flags::FlagInfo;
pub use hackbench::HACKBENCH_TIME;
pub use load::{LoadText, LoadTextError, load_text};

pub(crate) use combine::combine;

use flags::Flags;

use crate::library::LIBRARY;
use crate::nearest::suggestion;
use crate::{GeneratorError, Options, Task, Workload, WorkloadError};

/// A generator.
#[derive(Clone, Copy, Debug)]
pub struct GeneratorInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// How it is written.
    pub usage: &'static str,
    /// What it models, and what not.
    pub notes: &'static str,
    /// Its flags.
    pub flags: &'static [FlagInfo],
    make: fn(&Flags<'_>) -> Result<Workload, GeneratorError>,
}

/// Most tasks of one kind a generator makes.
const MAX_COUNT: u32 = 1_000_000;

static GENERATORS: [GeneratorInfo; 11] = [
    hackbench::INFO,
    schbench::INFO,
    sysbench::INFO,
    mediawiki::INFO,
    verilator::INFO,
    transcode::INFO,
    spin::INFO,
    periodic::INFO,
    pingpong::INFO,
    forkjoin::INFO,
    pipeline::INFO,
];

/// All generators.
pub fn generators() -> &'static [GeneratorInfo] {
    &GENERATORS
}

/// Whether the text names a generator, or several joined by `+`.
pub fn is_generator(spec: &str) -> bool {
    parts(spec).iter().all(|part| find(part).is_some())
}

/// The parts of `A+B+C`.
pub(crate) fn parts(spec: &str) -> Vec<&str> {
    spec.split('+').map(str::trim).collect()
}

fn name_of(part: &str) -> &str {
    part.split_once(':').map_or(part, |(name, _)| name)
}

fn find(part: &str) -> Option<&'static GeneratorInfo> {
    GENERATORS.iter().find(|generator| generator.name == name_of(part))
}

/// Makes the workload that a generator's text describes, such as `spin:-n4,-d3s` or `hackbench:-T+spin:-n2`.
///
/// # Errors
/// Unknown generators and flags (with the nearest name), values out of range, and workloads that cannot be run.
pub fn from_generator(spec: &str) -> Result<Workload, WorkloadError> {
    generate(spec, &Options::default())
}

/// The same with options.
pub(crate) fn generate(spec: &str, options: &Options<'_>) -> Result<Workload, WorkloadError> {
    let make = |part| from_part(part, options);
    let workloads = parts(spec).into_iter().map(make).collect::<Result<Vec<_>, _>>()?;
    let mut workload = combine(spec.trim(), workloads);
    workload.offer(options.profiles);
    workload.drop_unused(options.profiles);
    workload.check()?;
    Ok(workload)
}

/// Makes the workload of one generator.
pub(crate) fn from_part(part: &str, options: &Options<'_>) -> Result<Workload, WorkloadError> {
    let generator = find(part).ok_or_else(|| unknown(part))?;
    let flags = Flags::parse(generator, part.split_once(':').map_or("", |(_, flags)| flags), *options)?;
    let mut workload = (generator.make)(&flags)?;
    workload.name = part.to_owned();
    workload.applications = vec![part.to_owned()];
    Ok(workload)
}

/// The error for a text that is no generator and no file.
pub(crate) fn unknown(spec: &str) -> WorkloadError {
    WorkloadError::Unknown {
        spec: spec.to_owned(),
        suggestion: suggestion(
            name_of(spec),
            GENERATORS.iter().map(|generator| generator.name).chain(LIBRARY.iter().map(|entry| entry.name)),
        ),
        generators: GENERATORS.iter().map(|generator| generator.name).collect::<Vec<_>>().join(", "),
    }
}

/// Gives every task of a list a process of its own if asked for; they share the first process otherwise.
fn add_tasks(workload: &mut Workload, own_processes: bool, tasks: Vec<Task>) {
    for mut task in tasks {
        if own_processes {
            task.process = workload.add_process(task.name.clone());
        }
        workload.add_task(task);
    }
}

#[cfg(test)]
mod tests;
