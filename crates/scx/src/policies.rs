//! Small programs, written for this project: what a user can run, and what the class is tested with.

use warmcore_kernel::WakeFlags;
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use crate::kfuncs::Kfuncs;
use crate::operations::{EnqueueFlags, Operation, OperationTable, Operations, SLICE_DEFAULT_NS};
use crate::queues::DsqId;

/// The queue of those that have one.
const SHARED: DsqId = DsqId(0);

/// Selects as the class does, and puts a task that gets an idle CPU there at once.
fn select_idle(kernel: &mut Kfuncs<'_, '_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
    let (cpu, idle) = kernel.select_cpu_dfl(task, prev, flags);
    if idle {
        kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, EnqueueFlags::default());
    }
    cpu
}

/// One queue for the machine, first come first served.
pub struct Fifo;

impl Operations for Fifo {
    fn table(&self) -> OperationTable {
        use Operation::{Dispatch, Enqueue, Init, SelectCpu};
        OperationTable::empty("fifo").with(&[Init, SelectCpu, Enqueue, Dispatch])
    }

    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        kernel.create_dsq(SHARED);
    }

    fn select_cpu(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        select_idle(kernel, task, prev, flags)
    }

    fn enqueue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {
        kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags);
    }

    fn dispatch(&mut self, kernel: &mut Kfuncs<'_, '_>, _cpu: CpuId, _prev: Option<TaskId>) {
        kernel.move_to_local(SHARED);
    }
}

/// A queue for each LLC, first come first served; a CPU with nothing in its own looks into the others.
#[derive(Default)]
pub struct FifoPerLlc {
    /// By CPU: the queues in the order in which it looks.
    order: Vec<Vec<DsqId>>,
}

impl Operations for FifoPerLlc {
    fn table(&self) -> OperationTable {
        use Operation::{Dispatch, Enqueue, Init, SelectCpu};
        OperationTable::empty("fifo-llc").with(&[Init, SelectCpu, Enqueue, Dispatch])
    }

    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        let llcs = kernel.machine().llc_count();
        for llc in 0..llcs {
            kernel.create_dsq(DsqId(llc as u64));
        }
        let order = |cpu| {
            let own = kernel.machine().llc_of(cpu).index();
            (0..llcs).map(|step| DsqId(((own + step) % llcs) as u64)).collect()
        };
        self.order = kernel.machine().cpus().map(order).collect();
    }

    fn select_cpu(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        select_idle(kernel, task, prev, flags)
    }

    fn enqueue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {
        let own = self.order[kernel.task_cpu(task).index()][0];
        kernel.dsq_insert(task, own, SLICE_DEFAULT_NS, flags);
    }

    fn dispatch(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, _prev: Option<TaskId>) {
        let _ = self.order[cpu.index()].iter().any(|&queue| kernel.move_to_local(queue));
    }
}

/// One queue for the machine in the order of virtual time, which passes by weight.
#[derive(Default)]
pub struct Vtime {
    /// The greatest virtual time at which a task has begun to run.
    now: u64,
}

impl Operations for Vtime {
    fn table(&self) -> OperationTable {
        use Operation::{Dispatch, Enable, Enqueue, Init, Running, SelectCpu, Stopping};
        OperationTable::empty("vtime").with(&[Init, SelectCpu, Enqueue, Dispatch, Running, Stopping, Enable])
    }

    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        kernel.create_dsq(SHARED);
    }

    fn select_cpu(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        select_idle(kernel, task, prev, flags)
    }

    /// A sleeper brings one slice of credit at most.
    fn enqueue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {
        let earliest = self.now.wrapping_sub(SLICE_DEFAULT_NS);
        let own = kernel.vtime(task);
        let vtime = if (own.wrapping_sub(earliest) as i64) < 0 { earliest } else { own };
        kernel.dsq_insert_vtime(task, SHARED, SLICE_DEFAULT_NS, vtime, flags);
    }

    /// `prev` is in no queue now: it is compared here, or two tasks would take turns whatever their weights.
    fn dispatch(&mut self, kernel: &mut Kfuncs<'_, '_>, _cpu: CpuId, prev: Option<TaskId>) {
        if let (Some(prev), Some(head)) = (prev, kernel.peek(SHARED)) {
            let own = charged_vtime(kernel, prev);
            if (own.wrapping_sub(kernel.vtime(head)) as i64) < 0 {
                kernel.set_vtime(prev, own);
                kernel.set_slice_ns(prev, SLICE_DEFAULT_NS);
                return;
            }
        }
        kernel.move_to_local(SHARED);
    }

    fn running(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        let own = kernel.vtime(task);
        if (own.wrapping_sub(self.now) as i64) > 0 {
            self.now = own;
        }
    }

    fn stopping(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, _runnable: bool) {
        let own = charged_vtime(kernel, task);
        kernel.set_vtime(task, own);
    }

    fn enable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        kernel.set_vtime(task, self.now);
    }
}

/// A task's virtual time with what it has used of its slice.
fn charged_vtime(kernel: &Kfuncs<'_, '_>, task: TaskId) -> u64 {
    let used_ns = SLICE_DEFAULT_NS.saturating_sub(kernel.slice_ns(task));
    kernel.vtime(task).wrapping_add(used_ns * 100 / u64::from(kernel.weight(task)))
}
