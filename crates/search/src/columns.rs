//! Inputs of columns of their own: what `machine=`, `workload=`, `pin=` and a command behind a scheduler's ` @ ` stand for.

use std::collections::BTreeMap;

use warmcore_lab::builder::{BuildError, ExperimentBuilder};
use warmcore_lab::column::Inputs;
use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::load::{self, LoadError};
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_workload::Workload;

/// A workload, or why there is none.
pub type Made<E> = Result<Named<Workload>, E>;

/// How inputs are made, as the experiment's own were.
pub struct Manner<'a, E> {
    /// The workload as it was typed, if it was.
    pub workload: Option<&'a str>,
    /// Kernel threads of machines.
    pub background: Option<&'a str>,
    /// Commands, each as its words.
    pub commands: &'a [Vec<String>],
    /// Reads a workload for a machine.
    pub read: &'a dyn Fn(&Machine, &str) -> Made<E>,
    /// Makes experiments of the kind that is asked for.
    pub builder: &'a dyn Fn(Named<Machine>, Named<Workload>) -> ExperimentBuilder,
    /// The workload of an experiment with its threads bound as a text says.
    pub pin: &'a dyn Fn(&Experiment, &str) -> Made<E>,
}

/// What each scheduler's words stand for, by index of the scheduler.
///
/// # Errors
/// What cannot be read, and placements that there are none of.
pub fn inputs<E: From<LoadError> + From<BuildError>>(
    schedulers: &[SchedulerSpec],
    (machine, workload): (&Named<Machine>, &Named<Workload>),
    manner: &Manner<'_, E>,
) -> Result<BTreeMap<usize, Inputs>, E> {
    let mut found = BTreeMap::new();
    for (index, spec) in schedulers.iter().enumerate() {
        let words = spec.circumstances();
        let mut inputs = Inputs::default();
        if let Some(text) = &words.machine {
            inputs.machine = Some(load::machine_with(text, manner.background)?);
        }
        let machine = inputs.machine.as_ref().unwrap_or(machine);
        let text = match (&words.workload, &words.machine) {
            (Some(text), _) => Some(text.as_str()),
            // Work that a machine's own costs decide is that machine's.
            (None, Some(_)) => manner.workload,
            (None, None) => None,
        };
        if let Some(text) = text {
            inputs.workload = Some((manner.read)(&machine.value, text)?);
        }
        if let Some(text) = &words.command {
            let typed = manner.commands.iter().find(|command| command.join(" ") == *text).cloned();
            let words = typed.unwrap_or_else(|| text.split_whitespace().map(str::to_owned).collect());
            inputs.workload = Some(Named { source: text.clone(), value: Workload::of_command(words) });
        }
        if let Some(pin) = &words.pin {
            let workload = inputs.workload.as_ref().unwrap_or(workload).clone();
            let builder = (manner.builder)(machine.clone(), workload);
            let experiment = builder.schedulers(vec![load::scheduler("eevdf")?]).build()?.experiment;
            inputs.workload = Some((manner.pin)(&experiment, pin)?);
        }
        if !words.is_default() {
            found.insert(index, inputs);
        }
    }
    Ok(found)
}
