//! Barriers, and waiting actively, as tasks do at them and for latches.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{BarrierId, BarrierWait, Policy};

use crate::engine::Engine;
use crate::hooks::ALL;
use crate::interpreter::{BY_TASK, Done};
use crate::memory::Memory;
use crate::scheduler::{Scheduler, WakeFlags};
use crate::sync::futex_rank;
use crate::task::{Activity, Stage, State, WaitReason};

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    pub(crate) fn barrier_step(&mut self, cpu: CpuId, id: TaskId, barrier: BarrierId) -> Done {
        if self.stage(id) == Stage::Woken {
            return Done::Next;
        }
        let description = &self.workload.barriers[barrier.index()];
        if self.objects.barriers[barrier.index()].arrived + 1 == description.participants {
            return self.open_barrier(cpu, id, barrier);
        }
        let blocks = matches!(description.wait, BarrierWait::Block | BarrierWait::Poll);
        if blocks && self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        let state = &mut self.objects.barriers[barrier.index()];
        if state.arrived + 1 == description.participants {
            return self.open_barrier(cpu, id, barrier);
        }
        state.arrived += 1;
        state.waiters.push(id);
        let longest_ns = match description.wait {
            BarrierWait::Block | BarrierWait::Poll => return self.block(id, WaitReason::Barrier(barrier.0)),
            BarrierWait::Spin => None,
            BarrierWait::SpinThenBlock { spin_ns } => Some(spin_ns),
        };
        self.spin(cpu, id, WaitReason::Barrier(barrier.0), longest_ns)
    }

    /// The running task waits actively, for so long at most before it blocks.
    pub(crate) fn spin(&mut self, cpu: CpuId, id: TaskId, reason: WaitReason, longest_ns: Option<u64>) -> Done {
        let activity = if longest_ns.is_some() { Activity::SpinUntil } else { Activity::Spin };
        let remaining_ns = longest_ns.unwrap_or(0);
        let task = &mut self.core.tasks[id.index()];
        task.waiting_for = reason;
        task.stage = Stage::Woken;
        task.activity = activity;
        task.remaining_ns = remaining_ns;
        task.syscall_ns = 0;
        if M::MODELLED {
            self.settle_siblings(cpu);
        }
        if activity == Activity::Spin {
            self.live -= 1;
        }
        if M::MODELLED {
            self.memory.set_spinning(self.core.now_ns, cpu, true);
        }
        Done::Busy
    }

    /// The last participant has arrived: everybody goes on.
    fn open_barrier(&mut self, cpu: CpuId, id: TaskId, barrier: BarrierId) -> Done {
        let state = &mut self.objects.barriers[barrier.index()];
        let blocked = state.waiters.iter().any(|waiter| self.core.tasks[waiter.index()].state == State::Blocked);
        if blocked && self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        let state = &mut self.objects.barriers[barrier.index()];
        state.arrived = 0;
        let mut waiters = std::mem::take(&mut state.waiters);
        let sync = self.workload.barriers[barrier.index()].wait == BarrierWait::Poll;
        if sync {
            // add_wait_queue puts who polls at the head.
            waiters.reverse();
        } else if self.objects.realtime {
            // Who spins sees the flag whatever its priority.
            let tasks = &self.core.tasks;
            waiters.sort_by_key(|waiter| {
                let task = &tasks[waiter.index()];
                if task.state == State::Blocked { futex_rank(task.policy) } else { futex_rank(Policy::Normal) }
            });
        }
        let word = if blocked { self.word_of(WaitReason::Barrier(barrier.0)) } else { 0 };
        self.in_futex_wake(word, ALL, |engine| {
            let mut woken = 0;
            for waiter in waiters.drain(..) {
                if engine.core.tasks[waiter.index()].state == State::Blocked {
                    engine.wake(waiter, WakeFlags { sync, ..BY_TASK });
                    woken += 1;
                } else {
                    let seen_ns = engine.memory.handoff_ns(cpu, engine.core.tasks[waiter.index()].cpu);
                    engine.release_spinner(waiter, seen_ns);
                }
            }
            woken
        });
        self.objects.barriers[barrier.index()].waiters = waiters;
        Done::Next
    }

    /// A task that spins, on a CPU or preempted, sees the flag it waits for after so long.
    pub(crate) fn release_spinner(&mut self, waiter: TaskId, seen_ns: u64) {
        let task = &self.core.tasks[waiter.index()];
        let (cpu, running) = (task.cpu, task.state == State::Running);
        if running {
            self.settle(cpu);
        }
        let task = &mut self.core.tasks[waiter.index()];
        if task.activity == Activity::Spin {
            self.live += 1;
        }
        task.waiting_for = WaitReason::None;
        task.activity = Activity::Syscall;
        task.syscall_ns = seen_ns;
        if running {
            if M::MODELLED {
                self.settle_siblings(cpu);
                self.memory.set_spinning(self.core.now_ns, cpu, false);
            }
            self.arm_progress(cpu);
        }
    }
}
