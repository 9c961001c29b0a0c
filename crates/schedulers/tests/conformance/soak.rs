//! Whether soaking finds nothing in the schedulers of the registry, and finds programs that handle bound tasks badly.

use warmcore_schedulers::scx_native::trial;
use warmcore_schedulers::{SchedulerSpec, list};
use warmcore_scx::{DsqId, EnqueueFlags, Kfuncs, Kick, Operation, OperationTable, Operations, SLICE_DEFAULT_NS};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::soaking::{Violation, soak};
use crate::support::simulate_with_needs;

const MACHINE: &str = "1s1n2l2c1t";

fn specs() -> Vec<SchedulerSpec> {
    let native = ["fifo", "fifo-llc", "vtime"].map(|policy| format!("scx-native:policy={policy}"));
    let names = list().iter().map(|row| row.name.to_owned()).chain(native);
    names.map(|text| text.parse().unwrap()).collect()
}

/// A seed for each scheduler in turn.
#[test]
fn soaking_finds_nothing_in_the_schedulers_of_the_registry() {
    let machine = warmcore_topology::resolve(MACHINE).unwrap();
    for (seed, spec) in (0..30).zip(specs().iter().cycle()) {
        let found = soak(&machine, seed, |setup, sink| simulate_with_needs(spec, setup, Some(sink)));
        assert!(found.is_none(), "{spec}, seed {seed}: {}", found.unwrap());
    }
}

/// A queue for each CPU, and only that CPU looks into it. A task goes to the next CPU of its mask.
struct QueuePerCpu {
    /// Whether it asks where the task may run at present, not only for its mask.
    asks: bool,
}

impl Operations for QueuePerCpu {
    fn table(&self) -> OperationTable {
        OperationTable::empty("per-cpu").with(&[Operation::Init, Operation::Enqueue, Operation::Dispatch])
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
    let of =
        |asks| move |seed| soak(&machine.clone(), seed, |setup, sink| trial(QueuePerCpu { asks }, setup, Some(sink)));
    let forgets = (0..5).find_map(of.clone()(false));
    assert!(matches!(forgets, Some(Violation::Idle { .. } | Violation::Served { .. })), "{forgets:?}");
    assert_eq!((0..5).find_map(of(true)), None, "asking where a task may run at present is enough");
}
