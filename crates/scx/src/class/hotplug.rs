//! What a program hears of CPUs that go offline and come online.
//!
//! Source: `docs/spec/linux-hotplug.md` section 3.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use crate::class::Ext;
use crate::exit::{ExitKind, HOTPLUG, RESTART};
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;
use crate::state::Context;

impl Ext {
    /// `handle_hotplug`: a program without the operation is ended, and its loader asked to start it again.
    pub(super) fn handle_hotplug(&mut self, core: &mut Core<'_>, cpu: CpuId, online: bool) {
        let operation = if online { Operation::CpuOnline } else { Operation::CpuOffline };
        self.program.online_changed(core.active());
        self.state.changes.note_cpu(cpu);
        match online {
            true if self.asks(operation) => call!(self, core, CpuOnline, Context::Unlocked, cpu_online(cpu)),
            false if self.asks(operation) => call!(self, core, CpuOffline, Context::Unlocked, cpu_offline(cpu)),
            _ => {
                let word = if online { "online" } else { "offline" };
                let message = format!("cpu {} going {word}, exiting scheduler", core.machine().os_index(cpu));
                self.state.fail(core, ExitKind::UnregisteredByKernel, RESTART | HOTPLUG, message);
            }
        }
        self.tell_left(core);
        self.settle(core);
    }
}
