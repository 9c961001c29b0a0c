//! The speed of one CPU's task, now and for a while: when it is set, what sharing and siblings do to it, and its parts. `alone` has
//! the steps of a task without siblings. Sections are those of `docs/spec/memory-model.md`.

use warmcore_topology::{CpuId, Relation};

use crate::math::exp;

use super::groups::{Race, queue_wait_beside_hits_ns};
use super::outlook::LEAST_HORIZON_NS;
use super::rate::{Access, Alone, COHERENCE_OVERLAP, Coherence, CpuLatencies, SPEED_ONE};
use super::switching::SIBLING_REVIEW_NS;
use super::{Analytic, HYSTERESIS, IDLE};
use super::{MemoryEvent, TimeShare};

/// Change of a thread's busy part that its siblings look at.
const BUSY_CHANGE: f64 = 0.02;

/// An LLC that fills or evicts is brought up to date when one of its CPUs is evaluated and it was not for so long.
const LLC_AGE_NS: u64 = 500_000;

/// A line that is busy a smaller part of the time has no queue worth computing.
const HOT_LINE: f64 = 0.02;

impl Analytic {
    /// Sets the speed of the CPU's task anew. `remaining_ns` is the work it has left, at nominal speed, if known: a
    /// speed for a short run counts the lines of that run only.
    pub fn evaluate(&mut self, now_ns: u64, cpu: CpuId, remaining_ns: Option<u64>) {
        let index = cpu.index();
        if self.cpus[index].task == IDLE {
            return;
        }
        self.flush(index);
        if self.cpus[index].paused || !self.cpus[index].touches_memory() {
            self.evaluate_untouching(index);
        } else {
            self.evaluate_touching(now_ns, index, remaining_ns);
        }
        if let Some(came_ns) = self.cpus[index].came_ns.take() {
            self.arrived(now_ns, index, came_ns);
        }
    }

    /// Sets the speed of a task that touches memory.
    fn evaluate_touching(&mut self, now_ns: u64, index: usize, remaining_ns: Option<u64>) {
        self.cpus[index].untouching = None;
        let ahead = self.evaluate_alone(now_ns, index, remaining_ns);
        self.settle_beside(index);
        let state = &mut self.cpus[index];
        if let Some(instructions) = ahead {
            state.review_ns = now_ns + (instructions / state.rate.x) as u64 + 1;
        }
        if (state.rate.busy - state.told_busy).abs() > BUSY_CHANGE {
            state.told_busy = state.rate.busy;
            self.hurry_siblings(now_ns + SIBLING_REVIEW_NS, index, false);
        }
        self.register(now_ns, index);
        self.complete_premise(index);
        let (llc, slot) = (self.geometry.llc[index] as usize, self.cpus[index].llc_slot as usize);
        let fills = self.llc[llc].windows[slot].misses * self.cpus[index].rate.x;
        if self.llc[llc].is_old(now_ns, LLC_AGE_NS, fills) {
            self.mark_dirty(now_ns, llc, 0);
        }
    }

    /// Evaluates the CPU if its speed has been in force for long enough, or is one for a longer run than the task has
    /// before it. Until when the speed is in force.
    #[inline]
    pub fn review(&mut self, now_ns: u64, cpu: CpuId, remaining_ns: u64) -> u64 {
        let state = &self.cpus[cpu.index()];
        let shorter = state.unsteady && {
            let left_ns = state.review_ns.saturating_sub(now_ns) as f64;
            let speed = f64::from(state.rate.speed) / f64::from(SPEED_ONE);
            left_ns * speed > 1.5 * (remaining_ns as f64).max(LEAST_HORIZON_NS)
        };
        if state.review_ns <= now_ns || shorter {
            self.evaluate(now_ns, cpu, Some(remaining_ns));
        }
        self.cpus[cpu.index()].review_ns
    }

    /// Waiting actively takes time and issue slots, and so does a profile without memory; nothing else.
    fn evaluate_untouching(&mut self, index: usize) {
        let state = &mut self.cpus[index];
        let profile = &self.profiles[self.tasks[state.task as usize].executes as usize];
        let compute_ns = profile.profile.core_cpi() / self.geometry.ghz[index];
        if state.untouching.replace(compute_ns) != Some(compute_ns) {
            state.alone = Alone { compute_ns, ..Alone::default() };
            state.components.clear();
        }
        (state.unsteady, state.review_ns) = (false, u64::MAX);
        self.settle_beside(index);
        if !self.profiles[self.tasks[self.cpus[index].task as usize].executes as usize].any_shared {
            return;
        }
        for (class, group) in self.tasks[self.cpus[index].task as usize].shared_classes() {
            let old = std::mem::take(&mut self.cpus[index].registered[class]);
            self.groups[group as usize].change(self.geometry.llc[index], old, (0.0, 0.0));
        }
    }

    /// What sharing makes of the touches of shared classes (4.4). Returns the part of the written ones that stays valid in the
    /// private caches.
    pub(super) fn coherence(&self, index: usize, access: &mut Access) -> f64 {
        let (mut lines, mut valid_lines) = (0.0, 0.0);
        let state = &self.cpus[index];
        let task = &self.tasks[state.task as usize];
        let profile = &self.profiles[task.profile as usize];
        let llc = self.geometry.llc[index];
        for (class, group_index) in task.shared_classes() {
            let group = &self.groups[group_index as usize];
            let domain = &group.domains[llc as usize];
            let own = state.registered[class];
            let siblings = self.sibling_rates(index, group_index);
            let touches = profile.touches[class];
            let w = profile.writes[class];
            let contended = w > 0.0 || group.is_written();
            let race = if contended { group.race(llc, own, siblings) } else { Race::default() };
            if w > 0.0 {
                lines += group.lines;
                valid_lines += group.lines * (1.0 - race.read_private);
            }
            // Lines this LLC has no room for come from another LLC if that owns them, or has to give them up to a writer;
            // otherwise from memory. Readers of a line that several have are served by memory too.
            let lacking = access.llc[class] / touches;
            let present = 1.0 - lacking;
            // What an outsider has lost to others since is not there any more: ours for the writing, memory's to read.
            let phi = self.llc[llc as usize].phi;
            let here_ns = if phi > 1e-15 { 1.0 / phi } else { 1e15 };
            let crosses = race.read_domain + race.write_domain > 0.0;
            let (read_kept, write_kept) = if crosses { group.kept(llc, here_ns) } else { (1.0, 1.0) };
            let by_owner = race.read_domain * domain.owned * read_kept;
            let handed = lacking > 0.0 && domain.alone > 0.0;
            let from_alone = if handed { domain.alone * group.taken(llc, here_ns) } else { 0.0 };
            let (read_in_front, write_in_front) =
                if contended { group.in_front(llc, own, siblings, access.l2[class] / touches) } else { (1.0, 1.0) };
            let memory = (1.0 - w) * (present * (race.read_domain - by_owner) + lacking * (1.0 - from_alone))
                + w * lacking * (1.0 - domain.elsewhere);
            let mut result = Coherence {
                reads: touches * (1.0 - w) * (present * by_owner + lacking * from_alone),
                writes: touches * w * (present * race.write_domain * write_kept + lacking * domain.elsewhere),
                same_llc: touches
                    * present
                    * (w * write_in_front * (race.write_private - race.write_domain).max(0.0)
                        + (1.0 - w) * read_in_front * (race.read_private - race.read_domain - race.read_llc).max(0.0)),
                read_ns: domain.read_ns,
                read_far: domain.read_far,
                write_ns: domain.write_ns,
                write_far: domain.write_far,
                queue_ns: 0.0,
            };
            let transfers = result.same_llc + result.reads + result.writes;
            let from_llc = touches * present * (1.0 - w) * race.read_llc;
            let reached = ((touches - transfers - from_llc) / touches).max(0.0);
            access.llc[class] = touches * memory;
            if class < profile.first_code {
                access.l2[class] = (access.l2[class] * reached).max(access.llc[class]) + from_llc;
                access.l1[class] = (access.l1[class] * reached).max(access.l2[class]);
                self.add_queue(index, class, group_index, transfers, &mut result);
            } else {
                // Nobody takes these lines away, so what another LLC hands over is among what the L2 and the L1 lack.
                access.l2[class] = (access.l2[class] - transfers).max(access.llc[class]);
                access.l1[class] = (access.l1[class] - transfers).max(access.l2[class]);
            }
            access.coherence[class] = result;
        }
        if lines > 0.0 { valid_lines / lines } else { 1.0 }
    }

    /// Rates of the core's other threads in a group: they share the private caches.
    fn sibling_rates(&self, index: usize, group: u32) -> (f64, f64) {
        let mut sum = (0.0, 0.0);
        for &sibling in &self.geometry.siblings[index] {
            let state = &self.cpus[sibling as usize];
            if state.task == IDLE {
                continue;
            }
            let classes = self.tasks[state.task as usize].shared_classes();
            for (class, _) in classes.filter(|(_, of_sibling)| *of_sibling == group) {
                sum.0 += state.registered[class].0;
                sum.1 += state.registered[class].1;
            }
        }
        sum
    }

    /// Waiting (4.4, hot lines) for one's turn at a line that is on its way between others most of the time.
    fn add_queue(&self, index: usize, class: usize, group_index: u32, transfers: f64, result: &mut Coherence) {
        let group = &self.groups[group_index as usize];
        let state = &self.cpus[index];
        let profile = &self.profiles[self.tasks[state.task as usize].profile as usize];
        let touches = profile.touches[class];
        let same_llc_ns = self.hierarchy.transfer_ns[Relation::SameLlc];
        let transfer_ns =
            (result.same_llc * same_llc_ns + result.reads * result.read_ns + result.writes * result.write_ns)
                / transfers;
        if transfers <= 0.0 || group.touch * transfer_ns < HOT_LINE {
            return;
        }
        let contenders: f64 = group.domains.iter().map(|domain| f64::from(domain.members)).sum();
        let own_ns = 1.0 / state.rate.x - state.rate.ns[TimeShare::HotLines as usize];
        // The line is under way for longer than its writer waits for it: this may be below nothing.
        let think_ns = group.lines / touches * own_ns - transfer_ns;
        // Between its touches of a line, without waiting for it. The others have had all their transfers' time to ask.
        let between_ns = think_ns + transfer_ns * (1.0 - transfers / touches / COHERENCE_OVERLAP);
        let ahead = (contenders - 1.0).max(0.0) * transfer_ns / between_ns.max(1e-3);
        let needed = 1.0 - (1.0 - transfers / touches).max(0.0) * exp(-ahead);
        let wait_ns = queue_wait_beside_hits_ns(contenders, think_ns, transfer_ns, needed);
        result.queue_ns = wait_ns * touches / transfers;
    }

    /// Adds up time and events per instruction (4.6 to 4.8).
    pub(super) fn compose(&mut self, index: usize, access: &Access) {
        let (node, llc, core) = (self.geometry.node[index], self.geometry.llc[index], self.geometry.core[index]);
        let l2 = self.hierarchy.l2_of_core[core as usize];
        let place = CpuLatencies {
            l2_ns: l2.map(|l2| self.hierarchy.l2[l2 as usize].latency_ns),
            llc_ns: self.hierarchy.llc[llc as usize].latency_ns,
            same_llc_ns: self.hierarchy.transfer_ns[Relation::SameLlc],
        };
        let state = &mut self.cpus[index];
        let task = &self.tasks[state.task as usize];
        let profile = &self.profiles[task.profile as usize];
        let groups = &self.groups;
        state.components.compose(profile, access, &place, |class, misses, by_node| {
            Self::spread(profile, task, groups, class, misses, by_node);
        });
        state.alone.compute_ns = profile.profile.core_cpi() / self.geometry.ghz[index];
        state.alone.stall_ns = state.components.stall_ns;
        state.alone.communicated_ns = state.components.communicated_ns;
        let near = self.bandwidth.near_factor(index as u32);
        for home in 0..state.components.memory.len() {
            let lines = state.components.memory[home];
            if lines <= 0.0 {
                continue;
            }
            let local = home == node as usize;
            let idle_ns = state.components.memory_exposed[home] * self.hierarchy.memory_ns[node as usize][home];
            let loaded_ns = idle_ns * self.bandwidth.factor(node, llc, home) * near;
            let (share, event) = if local {
                (TimeShare::DramLocal, MemoryEvent::DramLocal)
            } else {
                (TimeShare::DramRemote, MemoryEvent::DramRemote)
            };
            state.alone.stall_ns[share as usize] += idle_ns;
            state.alone.stall_ns[TimeShare::Bandwidth as usize] += loaded_ns - idle_ns;
            state.components.events[event as usize] += lines;
        }
    }

    /// Puts the CPU's speed into force as it is beside its siblings (4.5). Whether it moved by more than the hysteresis.
    pub(super) fn settle_beside(&mut self, index: usize) -> bool {
        let mut busy = None;
        for &sibling in &self.geometry.siblings[index] {
            let state = &self.cpus[sibling as usize];
            if state.task != IDLE {
                busy = Some(busy.unwrap_or(0.0) + state.rate.busy);
            }
        }
        let state = &mut self.cpus[index];
        let profile = &self.profiles[self.tasks[state.task as usize].executes as usize];
        let old = state.rate.speed;
        state.rate = state.alone.beside(busy, self.hierarchy.smt_slowdown, profile.profile.mlp, profile.nominal);
        (f64::from(state.rate.speed) / f64::from(old.max(1)) - 1.0).abs() > HYSTERESIS
    }

    /// Tells the groups the task's present rates.
    fn register(&mut self, now_ns: u64, index: usize) {
        let task = self.cpus[index].task as usize;
        if !self.profiles[self.tasks[task].profile as usize].any_shared {
            return;
        }
        for (class, group) in self.tasks[task].shared_classes() {
            let new = self.shared_rates(index, class);
            let old = std::mem::replace(&mut self.cpus[index].registered[class], new);
            let llc = self.geometry.llc[index];
            self.groups[group as usize].change(llc, old, new);
            self.group_changed(now_ns, group, llc);
        }
    }
}
