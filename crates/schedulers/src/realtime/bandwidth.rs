//! Bandwidth of a CPU's deadline tasks, which is the least speed that their reservations need.
//!
//! A reservation counts where its task is, from the task's wakeup on. Once it blocks it counts until the time at which a task with just its share of a
//! CPU would have used what it has used (the 0-lag time). A throttled task counts.
//!
//! Source: Linux 7.2 `kernel/sched/deadline.c` (`task_contending`, `task_non_contending`, `inactive_task_timer`), `kernel/sched/sched.h` (`cpu_bw_dl`).
//!
//! Differs from the kernel: the fair server's own reservation, 5 % of a CPU, is not added.

use warmcore_kernel::{Core, Governor};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::{Realtime, Timer};

/// Fraction bits of a reservation's share (`BW_SHIFT`).
const SHARE_BITS: u32 = 20;

impl Realtime {
    /// A deadline task becomes runnable: its reservation counts.
    pub(super) fn contends(&mut self, core: &mut Core<'_>, task: TaskId) {
        let state = self.state(task);
        state.counts_until_ns = u64::MAX;
        if let Some(timer) = state.zero_lag.take() {
            let _: bool = core.cancel_timer(timer);
        }
    }

    /// A deadline task blocks: its reservation counts until its 0-lag time.
    pub(super) fn contends_no_more(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        let now_ns = core.now_ns();
        let state = self.state(task);
        let Some(reservation) = state.reservation() else { return };
        let zero_lag_ns = state.entity.zero_lag_ns(&reservation);
        state.counts_until_ns = zero_lag_ns.max(now_ns);
        if zero_lag_ns > now_ns && core.parameters().governor == Governor::Schedutil {
            let payload = Timer::ZeroLag(task).payload();
            self.state(task).zero_lag = Some(core.start_timer(cpu, zero_lag_ns - now_ns, payload));
        }
    }

    /// The 0-lag time of a task that sleeps: its CPU may go slower.
    pub(super) fn zero_lag_timer(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.state(task).zero_lag = None;
        core.ask_governor(core.task(task).cpu());
    }

    /// Sum of the reservations that count on a CPU, 1024 = a whole CPU (`cpu_bw_dl`).
    pub(super) fn bandwidth(&self, core: &Core<'_>, cpu: CpuId) -> u32 {
        let counts =
            |task: &&TaskId| core.task(**task).cpu() == cpu && self.tasks[task.index()].counts_until_ns > core.now_ns();
        let share = |task: &TaskId| {
            let reservation = self.tasks[task.index()].reservation();
            reservation.map_or(0, |reservation| (reservation.runtime_ns << SHARE_BITS) / reservation.period_ns)
        };
        let sum: u64 = self.reserved.iter().filter(counts).map(share).sum();
        ((sum * 1024) >> SHARE_BITS) as u32
    }
}
