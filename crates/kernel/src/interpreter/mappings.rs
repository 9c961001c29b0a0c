//! Page faults, and memory that is mapped and unmapped, which takes the lock of the address space (`mmap_lock`, a reader-writer semaphore).
//!
//! | who | takes the lock | for how long |
//! |---|---|---|
//! | `mmap` | alone | 5 system calls |
//! | `munmap` | alone, then with other readers while it gives pages back | 9 system calls, then an eighth of a fault for each page |
//! | a fault, without `vma_locks` | with other readers | the fault |
//! | a fault, with `vma_locks` (since Linux 6.4) | not | |
//!
//! The times are assumed, in the proportions of a virtual machine with Linux 6.18 (`results/2026-12-01-2vcpu-mmap`): a call 0.14 us, `mmap` 0.9 us,
//! `munmap` of untouched memory 1.3 us, a fault 1.4 us, and giving its page back 0.2 us. That eighth is a part of the machine's `page_fault_ns`.
//!
//! A fault takes as long on every CPU. With `vma_locks` it takes the lock of its mapping for reading (`lock_vma_under_rcu`), for which nobody else asks: each step maps
//! memory of its own. What the locks' lines cost threads that share a mapping, interrupts to them when pages are given back, and locks of page tables are not
//! modelled.
//!
//! Source: Linux `mm/mmap.c` and `mm/vma.c` (`vm_mmap_pgoff`, `do_vmi_align_munmap`, `mmap_write_downgrade`), `mm/memory.c` (`lock_vma_under_rcu`),
//! `Documentation/mm/process_addrs.rst`.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::LockId;

use crate::engine::Engine;
use crate::interpreter::Done;
use crate::memory::Memory;
use crate::pages::PAGE_BYTES;
use crate::scheduler::Scheduler;
use crate::task::{Activity, Stage};

/// For how many system calls' time `mmap` and `munmap` have the lock alone.
const MAP_CALLS: u64 = 5;
const UNMAP_CALLS: u64 = 9;

/// Giving a page back is this part of its fault.
const FREEING: u64 = 8;

/// How far a fault has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fault {
    /// There is none.
    #[default]
    None,
    /// The lock was asked for.
    Waits,
    /// The page is being brought.
    Works,
}

/// How far a call that takes the lock alone has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Entered,
    /// The lock was asked for.
    Waits,
    Holds,
}

/// How far a step that maps memory has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mapping {
    /// There is none.
    #[default]
    None,
    Maps(Call),
    /// Pages are being touched.
    Touches,
    /// All have been.
    Touched,
    Unmaps(Call),
    /// Pages are given back.
    Frees,
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// The running task touches new memory: a fault in kernel mode for each page, and back to user mode after each (`exc_page_fault`). Giving
    /// pages back is a part of each fault here; a thread gives 4 MiB back in one call (`crates/native/src/task/memory_steps.rs`).
    pub(super) fn first_touch_step(&mut self, cpu: CpuId, id: TaskId, bytes: u64) -> Done {
        // Where it costs nothing a loop would not end.
        let fault_ns = self.core.machine.costs().page_fault_ns.max(1);
        let kernel = &mut self.core.tasks[id.index()].kernel;
        if kernel.pages_left == 0 {
            kernel.pages_left = bytes.div_ceil(PAGE_BYTES);
            if kernel.pages_left == 0 {
                return Done::Next;
            }
        }
        if let Some(done) = self.fault(cpu, id, fault_ns) {
            return done;
        }
        let kernel = &mut self.core.tasks[id.index()].kernel;
        kernel.pages_left -= 1;
        if kernel.pages_left == 0 {
            self.step_over(id);
        }
        self.back_in_user_mode(cpu, id)
    }

    /// The running task maps memory, touches each page and unmaps it.
    pub(super) fn map_step(&mut self, cpu: CpuId, id: TaskId, bytes: u64) -> Done {
        let fault_ns = self.core.machine.costs().page_fault_ns.max(1);
        let pages = bytes.div_ceil(PAGE_BYTES);
        let lock = self.objects.mmap_locks[self.core.tasks[id.index()].process as usize];
        match self.core.tasks[id.index()].kernel.mapping {
            Mapping::None => self.enter_call(id, Mapping::Maps),
            Mapping::Maps(call) => {
                if let Some(done) = self.lock_space(cpu, id, (lock, MAP_CALLS), call, Mapping::Maps) {
                    return done;
                }
                self.sleeping_unlock_step(cpu, id, lock);
                let kernel = &mut self.core.tasks[id.index()].kernel;
                (kernel.mapping, kernel.pages_left) = (Mapping::Touches, pages);
                self.back_in_user_mode(cpu, id)
            }
            Mapping::Touches => {
                if let Some(done) = self.fault(cpu, id, fault_ns - fault_ns / FREEING) {
                    return done;
                }
                let kernel = &mut self.core.tasks[id.index()].kernel;
                kernel.pages_left -= 1;
                if kernel.pages_left == 0 {
                    kernel.mapping = Mapping::Touched;
                }
                self.back_in_user_mode(cpu, id)
            }
            Mapping::Touched => self.enter_call(id, Mapping::Unmaps),
            Mapping::Unmaps(call) => {
                if let Some(done) = self.lock_space(cpu, id, (lock, UNMAP_CALLS), call, Mapping::Unmaps) {
                    return done;
                }
                self.downgrade(id, lock);
                let task = &mut self.core.tasks[id.index()];
                (task.kernel.mapping, task.stage) = (Mapping::Frees, Stage::Begin);
                self.pay_or_go_on(id, pages * (fault_ns / FREEING))
            }
            Mapping::Frees => {
                self.core.tasks[id.index()].kernel.mapping = Mapping::None;
                self.sleeping_unlock_step(cpu, id, lock);
                self.step_over(id);
                self.back_in_user_mode(cpu, id)
            }
        }
    }

    /// One fault of the running task, in parts: what comes of the present one, or `None` when the fault is over and the task about to leave the kernel.
    fn fault(&mut self, cpu: CpuId, id: TaskId, cost_ns: u64) -> Option<Done> {
        let task = &mut self.core.tasks[id.index()];
        let lock = match self.core.parameters.vma_locks {
            true => None,
            false => self.objects.mmap_locks.get(task.process as usize).copied(),
        };
        match (task.kernel.fault, lock) {
            (Fault::None, Some(_)) => {
                (task.kernel.within, task.kernel.fault) = (true, Fault::Waits);
                Some(self.retry(id))
            }
            (Fault::None, None) => {
                (task.kernel.within, task.kernel.fault) = (true, Fault::Works);
                self.pay(id, cost_ns);
                Some(Done::Busy)
            }
            (Fault::Waits, Some(lock)) => Some(match self.sleeping_lock_step(cpu, id, lock, true) {
                Done::Next => {
                    let task = &mut self.core.tasks[id.index()];
                    (task.kernel.fault, task.stage) = (Fault::Works, Stage::Begin);
                    self.pay(id, cost_ns);
                    Done::Busy
                }
                waits => waits,
            }),
            (Fault::Waits | Fault::Works, _) => {
                task.kernel.fault = Fault::None;
                if let Some(lock) = lock {
                    self.sleeping_unlock_step(cpu, id, lock);
                }
                None
            }
        }
    }

    /// The running task enters a call that takes the lock of its address space.
    fn enter_call(&mut self, id: TaskId, call: fn(Call) -> Mapping) -> Done {
        let syscall_ns = self.core.machine.costs().syscall_ns;
        let kernel = &mut self.core.tasks[id.index()].kernel;
        (kernel.within, kernel.mapping) = (true, call(Call::Entered));
        self.pay_or_go_on(id, syscall_ns)
    }

    /// The lock of the address space is taken alone and held for so many system calls' time: what comes of the present part, or `None` when that time is over.
    fn lock_space(
        &mut self,
        cpu: CpuId,
        id: TaskId,
        (lock, calls): (LockId, u64),
        at: Call,
        call: fn(Call) -> Mapping,
    ) -> Option<Done> {
        match at {
            Call::Entered => {
                self.core.tasks[id.index()].kernel.mapping = call(Call::Waits);
                Some(self.retry(id))
            }
            Call::Waits => Some(match self.sleeping_lock_step(cpu, id, lock, false) {
                Done::Next => {
                    let task = &mut self.core.tasks[id.index()];
                    (task.kernel.mapping, task.stage) = (call(Call::Holds), Stage::Begin);
                    self.pay_or_go_on(id, self.core.machine.costs().syscall_ns.saturating_mul(calls))
                }
                waits => waits,
            }),
            Call::Holds => None,
        }
    }

    /// The running task is in user mode again, and may have to give way.
    fn back_in_user_mode(&mut self, cpu: CpuId, id: TaskId) -> Done {
        let task = &mut self.core.tasks[id.index()];
        (task.stage, task.activity) = (Stage::Begin, Activity::Advance);
        self.return_to_user(cpu, id);
        self.give_way(cpu, true)
    }
}
