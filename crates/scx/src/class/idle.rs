//! What a program hears of CPUs that go idle and become busy, and what happens before the run begins, when all go idle.
//!
//! Source: `docs/spec/sched-ext.md` sections 3 and 5.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use crate::class::Ext;
use crate::kfuncs::Kfuncs;
use crate::operations::{Operation, OperationFlags};
use crate::state::Context;

impl Ext {
    /// From when the program is loaded until the run begins: every CPU has gone idle, and the program's timers run. Kicks do nothing,
    /// as there is no task.
    pub(super) fn pass_time_before(&mut self, core: &mut Core<'_>) {
        for cpu in core.machine().cpus() {
            tell!(self, core, UpdateIdle, update_idle(cpu, true));
        }
        // `left_ns` is what is left until the run begins: the most is first.
        while let Some((index, &(left_ns, payload))) =
            self.state.early_timers.iter().enumerate().max_by_key(|(index, timer)| (timer.0, std::cmp::Reverse(*index)))
            && left_ns > 0
        {
            self.state.early_timers.remove(index);
            self.state.before_ns = left_ns as u64;
            tell!(self, core, Timer, Context::Unlocked, timer(payload));
            self.state.kicks.clear();
        }
        self.state.before_ns = 0;
        for (left_ns, payload) in std::mem::take(&mut self.state.early_timers) {
            core.start_timer(core.this_cpu(), left_ns.unsigned_abs(), u64::from(payload));
        }
    }

    pub(super) fn keeps_idle_masks(&self) -> bool {
        !self.state.has(Operation::UpdateIdle) || self.wants(OperationFlags::KEEP_BUILTIN_IDLE)
    }

    pub(super) fn idle_changed(&mut self, core: &mut Core<'_>, cpu: CpuId, idle: bool) {
        if idle && !core.active().contains(cpu) {
            return;
        }
        if self.keeps_idle_masks() {
            self.state.idle.set(core.machine(), cpu, idle);
        }
        tell!(self, core, UpdateIdle, update_idle(cpu, idle));
    }
}
