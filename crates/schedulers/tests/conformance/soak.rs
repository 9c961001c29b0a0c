//! Whether soaking finds nothing in the schedulers of the registry, and finds programs that handle bound tasks badly.

use std::fmt;

use warmcore_kernel::Setup;
use warmcore_schedulers::scx_native::trial;
use warmcore_schedulers::soak::{Case, Judge, Wait};
use warmcore_schedulers::{SchedulerSpec, list};
use warmcore_scx::{
    DsqId, EnqueueFlags, Kfuncs, Kick, Operation, OperationFlags, OperationTable, Operations, SLICE_DEFAULT_NS,
};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{Outcome, Sink, TaskId};

use crate::support::simulate_with_needs;

const MACHINE: &str = "1s1n2l2c1t";

/// Runs the case of a seed by `run`, which has a sink to tell all events to, and judges it; why the run failed if it did.
fn soak<E: fmt::Display>(
    machine: &Machine,
    (case, seed): (&Case, u64),
    run: impl for<'a> FnOnce(&'a Setup<'a>, &'a mut dyn Sink) -> Result<Outcome, E>,
) -> Result<Option<Wait>, String> {
    let Case { workload, actions } = case;
    let mut setup = Setup::new(machine, workload, seed).unwrap();
    setup.set_actions(actions).unwrap();
    setup.check_invariants = true;
    let restrictions = setup.run_tables(Vec::new()).restrictions;
    let mut judge = Judge::new(machine, &restrictions).with_changes(machine, actions);
    let outcome = run(&setup, &mut judge).map_err(|error| error.to_string())?;
    Ok(judge.verdict(outcome.elapsed_ns))
}

/// Each scheduler in turn with a seed from `first` to `first` + 29; those that cannot do without exact memory, which takes nineteen twentieths
/// of all time here, with one seed only.
fn in_turn(specs: &[SchedulerSpec], first: u64) -> impl Iterator<Item = (u64, &SchedulerSpec)> {
    let turns = (first..first + 30).zip(specs.iter().cycle()).enumerate();
    turns.filter(|(turn, (_, spec))| *turn < specs.len() || !spec.info().needs_sets).map(|(_, pair)| pair)
}

fn specs() -> Vec<SchedulerSpec> {
    let native = ["fifo", "fifo-llc", "vtime"].map(|policy| format!("scx-native:policy={policy}"));
    let names = list().iter().map(|row| row.name.to_owned()).chain(native);
    names.map(|text| text.parse().unwrap()).collect()
}

/// A seed for each scheduler in turn.
#[test]
fn soaking_finds_nothing_in_the_schedulers_of_the_registry() {
    let machine = warmcore_topology::resolve(MACHINE).unwrap();
    for (seed, spec) in in_turn(&specs(), 0) {
        let case = Case::new(&machine, seed);
        let found = soak(&machine, (&case, seed), |setup, sink| simulate_with_needs(spec, setup, Some(sink)));
        assert_eq!(found, Ok(None), "{spec}, seed {seed}");
    }
}

/// A sched_ext program without operations for it is ended.
#[test]
fn soaking_finds_nothing_while_cpus_go_offline_and_come_online() {
    let machine = warmcore_topology::resolve(MACHINE).unwrap();
    let specs: Vec<SchedulerSpec> = specs().into_iter().filter(Case::bears_hotplug).collect();
    assert!(specs.len() >= 6);
    for (seed, spec) in (0..30).zip(specs.iter().cycle()) {
        let case = Case::with_hotplug(&machine, seed);
        let found = soak(&machine, (&case, seed), |setup, sink| simulate_with_needs(spec, setup, Some(sink)));
        assert_eq!(found, Ok(None), "{spec}, seed {seed}");
    }
}

#[test]
fn soaking_finds_nothing_below_real_time_tasks() {
    let machine = warmcore_topology::resolve(MACHINE).unwrap();
    for (seed, spec) in in_turn(&specs(), 2) {
        let case = Case::new(&machine, seed).with_real_time(&machine, seed);
        assert!(case.workload.tasks.len() > Case::new(&machine, seed).workload.tasks.len());
        let found = soak(&machine, (&case, seed), |setup, sink| simulate_with_needs(spec, setup, Some(sink)));
        assert_eq!(found, Ok(None), "{spec}, seed {seed}");
    }
}

/// A queue for each CPU, and only that CPU looks into it. A task goes to the next CPU of its mask.
struct QueuePerCpu {
    /// Whether it asks where the task may run at present, not only for its mask.
    asks: bool,
}

impl Operations for QueuePerCpu {
    fn table(&self) -> OperationTable {
        OperationTable {
            flags: OperationFlags::ENQ_MIGRATION_DISABLED,
            ..OperationTable::empty("per-cpu").with(&[Operation::Init, Operation::Enqueue, Operation::Dispatch])
        }
    }

    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        for cpu in kernel.machine().cpus() {
            kernel.create_dsq(DsqId(u64::from(cpu.0)));
        }
    }

    fn enqueue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {
        let cpus = if self.asks { kernel.allowed(task) } else { kernel.mask(task) };
        let after = CpuId(kernel.task(task).cpu().0 + 1);
        let cpu = cpus.next_from(after).or_else(|| cpus.first()).expect("a mask is never empty");
        kernel.dsq_insert(task, DsqId(u64::from(cpu.0)), SLICE_DEFAULT_NS, flags);
        kernel.kick(cpu, Kick::Plain);
    }

    fn dispatch(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, _prev: Option<TaskId>) {
        kernel.move_to_local(DsqId(u64::from(cpu.0)));
    }
}

#[test]
fn a_program_that_forgets_tasks_with_migration_disabled_is_found_by_one_of_five_seeds() {
    let machine = warmcore_topology::resolve(MACHINE).unwrap();
    let of = |asks| {
        move |seed| {
            soak(&machine.clone(), (&Case::new(&machine, seed), seed), |setup, sink| {
                trial(QueuePerCpu { asks }, setup, Some(sink))
            })
        }
    };
    let forgets: Vec<_> = (0..5).map(of.clone()(false)).collect();
    assert!(forgets.iter().any(|found| matches!(found, Ok(Some(_)))), "{forgets:?}");
    assert_eq!((0..5).map(of(true)).find(|found| *found != Ok(None)), None, "asking where it may run now is enough");
}
