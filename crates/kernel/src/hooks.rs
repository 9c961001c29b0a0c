//! Places of the kernel at which programs of tracing are called: functions and tracepoints that a sched_ext program's object may be attached to.
//!
//! A policy says which it wants to hear of ([`Core::watch`]). In a run without one nothing is told and nothing costs time.
//!
//! A step that waits for a lock, condition, barrier, semaphore, list or resume in user space sleeps in `__futex_wait`, and who lets it go on calls
//! `futex_wake`, where that step costs the call. A lock that is free makes no call. Messages and joins are calls of other kinds.
//!
//! An interrupt's handler is taken to need no time next to its softirq, which lasts as long as the interrupt. Interrupts that each CPU has for itself
//! (ticks, requests of other CPUs) have vectors of their own and pass no handler's tracepoint. Of other softirqs there is the scheduler's; those of timers
//! and RCU are part of what a tick takes, and pass nothing.
//!
//! A move from CPU to CPU is told when the scheduler's call that made it is over, or the wakeup has chosen the CPU; a kernel tells it right before.
//!
//! Source: Linux 7.2 `kernel/sched/core.c` (`sched_tick`), `kernel/futex/waitwake.c`, `kernel/irq/handle.c` (`__handle_irq_event_percpu`), `kernel/softirq.c` (`handle_softirqs`),
//! `kernel/sched/core.c` (`try_to_wake_up`, `ttwu_do_wakeup`, `wake_up_new_task`, `set_task_cpu`), `kernel/fork.c` (`kernel_clone`), `kernel/exit.c` (`do_exit`).

use warmcore_topology::{CpuId, ThreadPlace};
use warmcore_trace::TaskId;
use warmcore_workload::BarrierWait;

use crate::core::Core;
use crate::engine::Engine;
use crate::event_queue::Class;
use crate::interpreter::BY_TASK;
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::task::{Stage, WaitReason};

/// Kinds of words.
const LOCK: u64 = 1;
const CONDITION: u64 = 2;
const BARRIER: u64 = 3;
const SEMAPHORE: u64 = 4;
const RESUME: u64 = 5;
const PARKED: u64 = 6;

/// What a lock's word says while somebody waits for it (U. Drepper, "Futexes Are Tricky").
const CONTENDED: u32 = 2;

/// Where a word lies: all apart, and where data of a program may be.
fn word(kind: u64, number: u32) -> u64 {
    0x5555_0000_0000 + (kind << 34) + 4 * u64::from(number)
}

/// The word for which suspended tasks of a template wait.
pub(crate) fn word_of_resume(template: u32) -> u64 {
    word(RESUME, template)
}

/// Generation of [`Class::Background`] events that end an interrupt's softirq.
pub(crate) const SOFTIRQ_EXIT: u32 = 3;

/// Wakes all who wait (`INT_MAX`).
pub(crate) const ALL: u32 = i32::MAX as u32;

/// `EWOULDBLOCK`: the word had changed.
const CHANGED: i32 = -11;

/// A place that the kernel passes. A word is the address of a futex, `most` the number that is to be woken at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Fields are named as the arguments of the kernel's functions and tracepoints are.
pub enum Hook {
    /// The running task enters `__futex_wait` for a word that has this value.
    FutexWait { word: u64, value: u32 },
    /// `__futex_wait` returns in the running task: 0 if it was woken, else a negative error.
    FutexWaitReturn { word: u64, value: u32, result: i32 },
    /// The running task enters `futex_wake` to wake so many at most.
    FutexWake { word: u64, most: u32 },
    /// `futex_wake` returns in the running task, with how many it woke.
    FutexWakeReturn { word: u64, most: u32, woken: u32 },
    /// A device's interrupt begins on the CPU (`irq_handler_entry`), by the interrupt's number in the background.
    IrqHandlerEntry { irq: u32 },
    /// It ends (`irq_handler_exit`).
    IrqHandlerExit { irq: u32 },
    /// The CPU's tick enters `scx_tick`, after the class of the running task has been told of it.
    Tick,
    /// A softirq begins on the CPU (`softirq_entry`), by its number.
    SoftirqEntry { vector: u32 },
    /// It ends (`softirq_exit`).
    SoftirqExit { vector: u32 },
    /// A task begins to be woken on the CPU of its waker: by the running task, else in an interrupt (`sched_waking`).
    SchedWaking { task: TaskId, by_task: bool },
    /// It is queued (`sched_wakeup`), by its waker or in an interrupt of its CPU to which the waker has left it.
    SchedWakeup { task: TaskId, by_task: bool },
    /// A new task is queued (`sched_wakeup_new`).
    SchedWakeupNew { task: TaskId },
    /// A task that does not run gets another CPU (`sched_migrate_task`).
    SchedMigrateTask { task: TaskId, from: CpuId, to: CpuId },
    /// The running task has created another, which is not queued yet (`sched_process_fork`). What a launcher creates that is no task has the idle
    /// task as its parent.
    SchedProcessFork { parent: TaskId, child: TaskId },
    /// The running task begins to exit (`sched_process_exit`), as the last of its process or not.
    SchedProcessExit { task: TaskId, group_dead: bool },
}

impl Hook {
    /// Whether it is about a futex.
    #[must_use]
    pub const fn is_of_futex(self) -> bool {
        use Hook::{FutexWait, FutexWaitReturn, FutexWake, FutexWakeReturn};
        matches!(self, FutexWait { .. } | FutexWaitReturn { .. } | FutexWake { .. } | FutexWakeReturn { .. })
    }

    /// Whether it is passed in an interrupt or tick, else in the name of the running task.
    #[must_use]
    pub const fn is_in_interrupt(self) -> bool {
        use Hook::{IrqHandlerEntry, IrqHandlerExit, SchedWakeup, SchedWaking, SoftirqEntry, SoftirqExit, Tick};
        match self {
            SchedWaking { by_task, .. } | SchedWakeup { by_task, .. } => !by_task,
            _ => matches!(
                self,
                IrqHandlerEntry { .. } | IrqHandlerExit { .. } | Tick | SoftirqEntry { .. } | SoftirqExit { .. }
            ),
        }
    }

    /// Whether it is about the scheduler's own softirq, which balances.
    #[must_use]
    pub const fn is_of_balancing(self) -> bool {
        matches!(self, Hook::SoftirqEntry { vector: SCHED_SOFTIRQ } | Hook::SoftirqExit { vector: SCHED_SOFTIRQ })
    }
}

/// Which places a policy hears of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watched {
    /// Those of futexes.
    pub futexes: bool,
    /// Those of interrupts.
    pub interrupts: bool,
    /// That of ticks.
    pub ticks: bool,
    /// Those of wakeups.
    pub wakeups: bool,
    /// That of moves from CPU to CPU.
    pub moves: bool,
    /// Those of creation and exit.
    pub processes: bool,
}

impl Core<'_> {
    /// From now on the policy hears of these places, and of no other ([`Scheduler::hook`]).
    pub fn watch(&mut self, watched: Watched) {
        self.watched = watched;
    }
}

/// `BLOCK_SOFTIRQ`, `NET_RX_SOFTIRQ`, `NET_TX_SOFTIRQ`: which one a device's interrupt raises, by its name.
fn softirq_of(name: &str) -> u32 {
    match name {
        _ if name.ends_with("rx") || name.contains("-input") => 3,
        _ if name.ends_with("tx") || name.contains("-output") => 2,
        _ => 4,
    }
}

/// `SCHED_SOFTIRQ`.
const SCHED_SOFTIRQ: u32 = 7;

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Address and value of the word that a task waits for in user space; none where it waits in another way.
    fn futex_of(&self, id: TaskId, reason: WaitReason) -> Option<(u64, u32)> {
        let (kind, number) = match reason {
            WaitReason::Lock(lock) if self.objects.locks[lock as usize].kernel.is_none() => (LOCK, lock),
            WaitReason::Condition(condition) => (CONDITION, condition),
            WaitReason::Barrier(barrier) => match self.workload.barriers[barrier as usize].wait {
                BarrierWait::Poll => return None,
                _ => (BARRIER, barrier),
            },
            WaitReason::Semaphore(semaphore) => (SEMAPHORE, semaphore),
            WaitReason::Resume => (RESUME, self.core.tasks[id.index()].template.0),
            // Each waits for a word of its own.
            WaitReason::ListServed(_) | WaitReason::ListEntry(_) => (PARKED, id.0),
            _ => return None,
        };
        Some((word(kind, number), if kind == LOCK { CONTENDED } else { 0 }))
    }

    /// The word of an object; 0 if nobody waits there in a futex.
    pub(crate) fn word_of(&self, reason: WaitReason) -> u64 {
        self.futex_of(TaskId::IDLE, reason).map_or(0, |(word, _)| word)
    }

    /// The running task is about to sleep.
    #[cold]
    pub(crate) fn enter_futex_wait(&mut self, cpu: CpuId, id: TaskId) {
        let Some((word, value)) = self.futex_of(id, self.core.tasks[id.index()].waiting_for) else { return };
        self.core.tasks[id.index()].in_futex = Some((word, value));
        self.scheduler.hook(&mut self.core, cpu, Hook::FutexWait { word, value });
    }

    /// It runs again.
    #[cold]
    pub(crate) fn leave_futex_wait(&mut self, cpu: CpuId, id: TaskId) {
        let Some((word, value)) = self.core.tasks[id.index()].in_futex.take() else { return };
        self.scheduler.hook(&mut self.core, cpu, Hook::FutexWaitReturn { word, value, result: 0 });
    }

    /// The running task has made the call to sleep, and got what it wants before it slept.
    #[inline]
    pub(crate) fn futex_had_changed(&mut self, cpu: CpuId, id: TaskId, reason: WaitReason) {
        if !self.core.watched.futexes || !matches!(self.stage(id), Stage::Effect | Stage::Relock) {
            return;
        }
        let Some((word, value)) = self.futex_of(id, reason) else { return };
        self.scheduler.hook(&mut self.core, cpu, Hook::FutexWait { word, value });
        self.scheduler.hook(&mut self.core, cpu, Hook::FutexWaitReturn { word, value, result: CHANGED });
    }

    /// Does as the running task what `futex_wake` does for a word, and says how many it woke.
    #[inline]
    pub(crate) fn in_futex_wake(&mut self, word: u64, most: u32, wake: impl FnOnce(&mut Self) -> u32) {
        let cpu = self.core.this_cpu;
        let watched = self.core.watched.futexes && word != 0;
        if watched {
            self.scheduler.hook(&mut self.core, cpu, Hook::FutexWake { word, most });
        }
        let woken = wake(self);
        if watched {
            self.scheduler.hook(&mut self.core, cpu, Hook::FutexWakeReturn { word, most, woken });
        }
    }

    /// Wakes the tasks collected in `to_wake`, in order. Gives how many they are.
    pub(crate) fn wake_collected(&mut self) -> u32 {
        let mut tasks = std::mem::take(&mut self.objects.to_wake);
        let count = tasks.len() as u32;
        for task in tasks.drain(..) {
            self.wake(task, BY_TASK);
        }
        self.objects.to_wake = tasks;
        count
    }

    /// The same where each waits for a word of its own, for which there is a call.
    pub(crate) fn wake_each_collected(&mut self) {
        let mut tasks = std::mem::take(&mut self.objects.to_wake);
        for task in tasks.drain(..) {
            self.wake_parked(task);
        }
        self.objects.to_wake = tasks;
    }

    /// Wakes a task that waits for a word of its own.
    pub(crate) fn wake_parked(&mut self, task: TaskId) {
        self.in_futex_wake(word(PARKED, task.0), 1, |engine| {
            engine.wake(task, BY_TASK);
            1
        });
    }

    /// The CPU of the present event passes a place that is watched.
    #[cold]
    pub(crate) fn pass(&mut self, hook: Hook) {
        let cpu = self.core.this_cpu;
        self.scheduler.hook(&mut self.core, cpu, hook);
    }

    /// The same for each move since the last call.
    #[inline]
    pub(crate) fn pass_moves(&mut self) {
        while !self.core.moves.is_empty() {
            for hook in std::mem::take(&mut self.core.moves) {
                self.pass(hook);
            }
        }
    }

    /// The tick of a CPU comes to where programs of tracing may be.
    #[inline]
    pub(crate) fn pass_tick(&mut self, cpu: CpuId) {
        if self.core.watched.ticks {
            self.scheduler.hook(&mut self.core, cpu, Hook::Tick);
        }
    }

    /// Runs the scheduler's softirq on a CPU.
    pub(crate) fn softirq(&mut self, cpu: CpuId) {
        let watched = self.core.watched.interrupts;
        if watched {
            self.scheduler.hook(&mut self.core, cpu, Hook::SoftirqEntry { vector: SCHED_SOFTIRQ });
        }
        self.scheduler.softirq(&mut self.core, cpu);
        if watched {
            self.scheduler.hook(&mut self.core, cpu, Hook::SoftirqExit { vector: SCHED_SOFTIRQ });
        }
    }

    /// An interrupt of the background, by its number, begins on a CPU and lasts so long.
    #[cold]
    pub(crate) fn interrupt_begins(&mut self, cpu: CpuId, irq: u32, run_ns: u64) {
        let interrupt = &self.core.machine.background().interrupts[irq as usize];
        if interrupt.place == ThreadPlace::EachCpu {
            return;
        }
        let vector = softirq_of(&interrupt.name);
        for hook in [Hook::IrqHandlerEntry { irq }, Hook::IrqHandlerExit { irq }, Hook::SoftirqEntry { vector }] {
            self.scheduler.hook(&mut self.core, cpu, hook);
        }
        self.core.queue.push(self.core.now_ns + run_ns, Class::Background, cpu, vector, SOFTIRQ_EXIT);
    }
}
