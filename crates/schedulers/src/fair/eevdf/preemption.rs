//! Up to where the running task is protected, and who preempts it at a wakeup (`docs/spec/linux-fair.md` sections 1.6 and 1.9).
//!
//! Since 7.3, where requests differ in length (`studies/kernels-after-7.2.md`): a task beside a shorter request is protected as long as it is eligible;
//! an eligible wakee with a shorter request preempts whoever has the earliest deadline, and goes next; a pending reschedule ends nothing; and wakeups
//! that may not preempt shorten the protection too.

use warmcore_kernel::{Core, NeedResched, WakeFlags};
use warmcore_topology::CpuId;

use super::{BASE_SLICE_NS, Eevdf};
use crate::fair::gathering::Gathering;
use crate::fair::state::NONE;
use crate::fair::weights::{mean, virtual_delta};
use crate::fair::{Fair, Policy};

impl<G: Gathering> Fair<Eevdf, G> {
    /// `set_protect_slice`.
    pub(super) fn protect_slice(&mut self, queue: u32, index: u32) {
        let shortest = if self.policy.tunables.run_to_parity != 0 { self.min_slice(queue) } else { BASE_SLICE_NS };
        let while_eligible = self.parameters.flat && self.policy.tunables.preempt_short != 0;
        let entity = &self.entities[index as usize];
        let mut end = entity.deadline;
        if shortest < entity.slice_ns {
            end = end.min(match while_eligible {
                true => self.ineligible_from(queue),
                false => entity.vruntime + virtual_delta(shortest, entity.share),
            });
        }
        self.entities[index as usize].vprot = end;
    }

    /// Virtual runtime from which on the running task of a queue has had more than its share: beyond the average of the others
    /// (`ineligible_vruntime`).
    fn ineligible_from(&self, queue: u32) -> i64 {
        let cfs = &self.queues[queue as usize];
        let others = if cfs.sum_weight == 0 { 0 } else { mean(cfs.sum_weighted_key, cfs.sum_weight) };
        cfs.zero_vruntime + others + 1
    }

    /// `update_protect_slice`: a wakeup that failed to preempt shortens the protection.
    fn shorten_protection(&mut self, queue: u32, index: u32) {
        if self.policy.tunables.run_to_parity == 0 {
            return;
        }
        let shortest = self.min_slice(queue);
        let average = if self.parameters.flat { self.avg_vruntime(queue) } else { i64::MAX };
        let entity = &mut self.entities[index as usize];
        let end = entity.vruntime.min(average) + virtual_delta(shortest, entity.share);
        entity.vprot = entity.vprot.min(end);
    }

    /// A pick for a preemption check, retiring delayed entities on the way (1.9 step 8).
    fn pick_for_wakeup(&mut self, core: &mut Core<'_>, cpu: CpuId, queue: u32, protect: bool) -> u32 {
        loop {
            let picked = self.pick_eevdf(queue, protect);
            if picked == NONE || !self.entities[picked as usize].delayed {
                return picked;
            }
            self.retire_delayed(core, cpu, picked);
        }
    }

    /// NEXT_BUDDY (off by default): the woken task is to go first, unless an earlier deadline has that place.
    fn nominate(&mut self, queue: u32, wakee: u32) {
        let next = self.queues[queue as usize].next;
        if next == NONE || self.entities[wakee as usize].deadline < self.entities[next as usize].deadline {
            self.set_next_buddy(wakee);
        }
    }

    /// The woken task is to go first, unless a shorter request has that place (`set_short_buddy`).
    fn nominate_short(&mut self, queue: u32, wakee: u32) {
        let next = self.queues[queue as usize].next;
        if next == NONE || self.entities[wakee as usize].slice_ns <= self.entities[next as usize].slice_ns {
            self.set_next_buddy(wakee);
        }
    }

    /// `wakeup_preempt_fair`, steps 4 to 8 of `docs/spec/linux-fair.md` section 1.9.
    pub(super) fn preempt_at_wakeup(
        &mut self,
        core: &mut Core<'_>,
        cpu: CpuId,
        (curr, wakee): (u32, u32),
        flags: WakeFlags,
    ) {
        let by_length = self.policy.tunables.preempt_short != 0;
        let is_pending = !by_length && core.need_resched(cpu) == NeedResched::Full;
        if self.policy.tunables.wakeup_preemption == 0 || is_pending {
            return;
        }
        let (queue, since_7_3) = (self.competes_in(curr), self.parameters.flat);
        self.update_curr_of(core, curr);
        let delayed = self.entities[wakee as usize].delayed;
        let shorter = by_length && self.entities[wakee as usize].slice_ns < self.entities[curr as usize].slice_ns;
        if shorter && !(since_7_3 && delayed) {
            let first = self.pick_for_wakeup(core, cpu, queue, false) == wakee;
            if first || since_7_3 && self.eligible(queue, wakee) {
                let entity = &mut self.entities[curr as usize];
                entity.vprot = entity.vruntime;
                match since_7_3 {
                    true => self.nominate_short(queue, wakee),
                    false => self.clear_buddies(queue, curr),
                }
                self.policy.resched(core, cpu);
                return;
            }
        } else if !flags.fork && !delayed {
            if self.policy.tunables.next_buddy != 0 {
                self.nominate(queue, wakee);
            }
            if self.pick_for_wakeup(core, cpu, queue, true) == wakee {
                self.policy.resched(core, cpu);
                return;
            }
        } else if !since_7_3 {
            return;
        }
        self.shorten_protection(queue, curr);
    }

    /// A wakeup preempts nobody because of policies.
    pub(super) fn spare_since_7_3(&mut self, core: &mut Core<'_>, curr: u32) {
        if self.parameters.flat && self.policy.tunables.wakeup_preemption != 0 {
            self.update_curr_of(core, curr);
            self.shorten_protection(self.competes_in(curr), curr);
        }
    }
}
