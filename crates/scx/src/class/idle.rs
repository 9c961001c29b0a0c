//! What a program hears of CPUs that go idle and become busy.
//!
//! Source: `docs/spec/sched-ext.md` sections 3 and 5.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use crate::class::Ext;
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;
use crate::state::Context;

impl Ext {
    pub(super) fn idle_changed(&mut self, core: &mut Core<'_>, cpu: CpuId, idle: bool) {
        if idle && !core.active().contains(cpu) {
            return;
        }
        if self.state.keeps_idle_masks() {
            self.state.idle.set(core.machine(), cpu, idle);
        }
        tell!(self, core, UpdateIdle, update_idle(cpu, idle));
    }
}
