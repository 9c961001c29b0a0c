//! What a column of the table has of its own beside its scheduler: another machine, another workload, tasks bound to CPUs.
//!
//! A scheduler's [circumstances](Circumstances) say so in words. What the words stand for is in the experiment, so that it is hashed, kept
//! and read again as the machine and the workload of all other columns are; a place is asked for a run without the words.

use warmcore_places::circumstances::cpus_of;
use warmcore_places::place::Place;
use warmcore_schedulers::{Circumstances, SchedulerSpec};
use warmcore_topology::{CpuSet, Machine, format_cpu_list};
use warmcore_workload::{Affinity, Policy, Step, Task, Workload};

use crate::experiment::Named;

/// What a column has of its own.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its machine, if it is not the experiment's.
    pub machine: Option<Named<Machine>>,
    /// Its workload, if it is not the experiment's: another one, or the same with its tasks bound.
    pub workload: Option<Named<Workload>>,
    /// Its scheduler as the place is asked for it.
    pub scheduler: SchedulerSpec,
}

/// What a caller found for the words of circumstances that name inputs: `machine=`, `workload=`, `pin=` and a command.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// For `machine=`.
    pub machine: Option<Named<Machine>>,
    /// For `workload=`, a command, and `pin=`, which binds tasks of either workload.
    pub workload: Option<Named<Workload>>,
}

/// Why a column cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{column}`: {reason}")]
pub struct ColumnError {
    /// The scheduler with its circumstances.
    pub column: String,
    /// Why.
    pub reason: String,
}

/// A scheduler as a place is asked for it: without the words that the experiment answers.
pub(crate) fn asked(spec: &SchedulerSpec, place: &dyn Place) -> SchedulerSpec {
    let own = spec.circumstances();
    let (cpus, smt_off) = if place.kind().keeps_to_cpus { (own.cpus.clone(), own.smt_off) } else { (None, false) };
    spec.under(Circumstances { machine: None, workload: None, pin: None, command: None, cpus, smt_off, ..own.clone() })
}

/// The column of a scheduler whose circumstances are not those of all.
///
/// # Errors
/// CPUs that the machine does not have, or that leave a task none; words whose inputs the caller did not find.
pub(crate) fn column(
    spec: &SchedulerSpec,
    inputs: Inputs,
    (machine, workload): (&Named<Machine>, &Named<Workload>),
    place: &dyn Place,
) -> Result<Column, ColumnError> {
    let circumstances = spec.circumstances();
    let failed = |reason: String| ColumnError { column: spec.to_string(), reason };
    let names_workload =
        [&circumstances.workload, &circumstances.pin, &circumstances.command].iter().any(|word| word.is_some());
    if circumstances.machine.is_some() != inputs.machine.is_some() || (names_workload && inputs.workload.is_none()) {
        let reason =
            "machine=, workload=, pin= and commands are available in `compare`, `sim`, `sweep` and `tune` only";
        return Err(failed(reason.into()));
    }
    let mut own = Column { machine: inputs.machine, workload: inputs.workload, scheduler: asked(spec, place) };
    if !place.kind().keeps_to_cpus {
        let machine = &own.machine.as_ref().unwrap_or(machine).value;
        if let Some(cpus) = cpus_of(circumstances, machine).map_err(failed)? {
            let mut bound = own.workload.as_ref().unwrap_or(workload).clone();
            no_deadline_task(&bound.value, machine, &cpus).map_err(failed)?;
            bind(&mut bound.value, machine, &cpus).map_err(failed)?;
            own.workload = Some(bound);
        }
    }
    Ok(own)
}

/// Checks that no CPU is kept from a deadline task: its reservation is of the whole machine, and a kernel refuses such a mask.
///
/// # Errors
/// The task.
fn no_deadline_task(workload: &Workload, machine: &Machine, cpus: &CpuSet) -> Result<(), String> {
    let is_deadline = |task: &&Task| workload.policies_of(task).any(Policy::is_deadline);
    match workload.tasks.iter().find(is_deadline).filter(|_| cpus.len() < machine.cpu_count()) {
        Some(task) => Err(format!(
            "task \"{}\" is of SCHED_DEADLINE, and no kernel lets such a one be bound to some of the CPUs",
            task.name
        )),
        None => Ok(()),
    }
}

/// Keeps a workload's tasks to CPUs, as a mask that they inherit does: what they bind themselves to is cut by it.
///
/// # Errors
/// A command, and tasks that would have no CPU left.
pub fn bind(workload: &mut Workload, machine: &Machine, cpus: &CpuSet) -> Result<(), String> {
    if !workload.command.is_empty() {
        return Err("a command is bound on this computer only".into());
    }
    let list = || format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu)));
    let within = |affinity: &Affinity, whose: &str| {
        let kept = affinity.on(machine).intersection(cpus);
        match kept.is_empty() {
            true => Err(format!("{whose} is bound to {affinity}, none of which is in {}", list())),
            false => Ok(Affinity::OsCpus(kept.iter().map(|cpu| machine.os_index(cpu)).collect())),
        }
    };
    for task in &mut workload.tasks {
        task.affinity = within(&task.affinity, &format!("task \"{}\"", task.name))?;
    }
    for step in workload.programs.iter_mut().flat_map(|program| &mut program.steps) {
        if let Step::SetAffinity(affinity) = step {
            *affinity = within(affinity, "a step")?;
        }
    }
    Ok(())
}
