//! Who ran how long where: run time per group and CPU, halved with every epoch of that CPU, and what a charge makes of it.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use super::{CacheAware, CpuState, Slot, TaskState};
use crate::fair::gathering::Charge;
use crate::fair::state::NONE;

/// A share of a CPU's busy time, of which this is all.
const FULL_SHARE: u64 = 1 << 20;

/// Halves a value so many times (`__shr_u64`).
fn halve(value: &mut u64, times: u64) {
    *value = if times < 64 { *value >> times } else { 0 };
}

impl CpuState {
    /// Brings the epoch to the present jiffy, halving the run time for each epoch gone by.
    pub(super) fn advance(&mut self, jiffies: u64, epoch_jiffies: u64) {
        if jiffies <= self.epoch_next {
            return;
        }
        let passed = (jiffies - self.epoch_next).div_ceil(epoch_jiffies);
        self.epoch += passed;
        self.epoch_next += passed * epoch_jiffies;
        halve(&mut self.runtime_ns, passed);
    }
}

impl Slot {
    /// Decays the run time to an epoch.
    pub(super) fn advance(&mut self, epoch: u64) {
        halve(&mut self.runtime_ns, epoch - self.epoch);
        self.epoch = epoch;
    }
}

impl CacheAware {
    /// Brings a CPU and a group's run time there to the present (`__update_mm_sched`).
    #[inline]
    fn advance(&mut self, jiffies: u64, group: u32, cpu: usize) -> (&mut CpuState, &mut Slot) {
        let state = &mut self.cpus[cpu];
        state.advance(jiffies, self.epoch_jiffies);
        let slot = &mut self.slots[group as usize * self.llc_of.len() + cpu];
        if slot.epoch != state.epoch {
            slot.advance(state.epoch);
        }
        (state, slot)
    }

    /// Charges a running task. The LLC it is to prefer from now on, if that changes while it is queued, and whether it sleeps there.
    pub(in crate::fair) fn charge(&mut self, core: &mut Core<'_>, charge: Charge) -> Option<(u32, bool)> {
        let TaskState { group, preferred_llc, .. } = self.tasks[charge.task.index()];
        if group == NONE {
            return None;
        }
        let wanted = self.wanted_llc(core, group, charge);
        charge.delayed.filter(|_| wanted != preferred_llc).map(|delayed| (wanted, delayed))
    }

    /// Adds up a group's run time (`account_mm_sched`) and gives the LLC that the running task is to prefer from now on.
    fn wanted_llc(&mut self, core: &mut Core<'_>, group: u32, charge: Charge) -> u32 {
        let Charge { task, cpu, delta_ns, home_node, .. } = charge;
        let (state, slot) = self.advance(core.jiffies(), group, cpu.index());
        state.runtime_ns += delta_ns;
        slot.runtime_ns += delta_ns;
        let epoch = state.epoch;
        let thread_group = &self.groups[group as usize];
        let preferred = thread_group.cpu;
        if preferred == NONE {
            return NONE;
        }
        if epoch.saturating_sub(thread_group.epoch) > self.tunables.epoch_affinity_timeout {
            self.drop_preference(core, group, task, self.decisions.dropped_timeout);
            return NONE;
        }
        if let Some(refusal) = self.refusal(core, group, self.llc_of[cpu.index()]) {
            self.drop_preference(core, group, task, self.dropped(refusal));
            return NONE;
        }
        // A task that NUMA balancing wants elsewhere has no use for this LLC.
        if home_node.is_some_and(|node| core.machine().node_of(CpuId(preferred)).0 != node) {
            return NONE;
        }
        self.llc_of[preferred as usize]
    }

    /// Share of a CPU's busy time that a group had lately (`fraction_mm_sched`). It says nothing about how busy the CPU was.
    pub(in crate::fair) fn share(&mut self, jiffies: u64, group: u32, cpu: usize) -> u64 {
        // Without run time the share is 0, whatever the epoch; decay can wait for the next charge.
        if self.slots[group as usize * self.llc_of.len() + cpu].runtime_ns == 0 {
            return 0;
        }
        let (state, slot) = self.advance(jiffies, group, cpu);
        FULL_SHARE * slot.runtime_ns / (state.runtime_ns + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_ends_when_its_last_jiffy_is_over() {
        let mut cpu = CpuState { runtime_ns: 1024, ..CpuState::default() };
        cpu.advance(0, 2);
        assert_eq!((cpu.epoch, cpu.epoch_next, cpu.runtime_ns), (0, 0, 1024));
        for (jiffies, epoch, runtime_ns) in [(1, 1, 512), (2, 1, 512), (3, 2, 256), (8, 4, 64), (200, 100, 0)] {
            cpu.advance(jiffies, 2);
            assert_eq!((cpu.epoch, cpu.epoch_next, cpu.runtime_ns), (epoch, 2 * epoch, runtime_ns), "jiffy {jiffies}");
        }
    }

    /// `docs/spec/linux-fair.md` section 6.6: an idle CPU keeps the share until its counters are shifted to 0: log2 of
    /// the run time in epochs.
    #[test]
    fn item_38_a_share_outlives_the_process_by_24_epochs() {
        let mut cpu = CpuState { runtime_ns: 16_000_000, ..CpuState::default() };
        let mut slot = Slot { runtime_ns: 16_000_000, epoch: 0 };
        let mut epochs = 0;
        loop {
            cpu.advance(cpu.epoch_next + 1, 2);
            slot.advance(cpu.epoch);
            assert_eq!(slot.runtime_ns, 16_000_000 >> cpu.epoch, "halved per epoch of 8 ms");
            let share = FULL_SHARE * slot.runtime_ns / (cpu.runtime_ns + 1);
            if share < FULL_SHARE / 2 {
                break;
            }
            epochs += 1;
        }
        // 16 ms is just below 2^24 ns: a run time of 1 ns is left after 23 halvings, none after 24.
        assert_eq!(epochs, 23);
    }
}
