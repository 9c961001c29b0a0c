//! The speed of one CPU's task, now and for a while.

use warmcore_topology::{CpuId, Relation};

use crate::curves::{Curves, PerClass};
use crate::math::ln;
use crate::profile::MAX_CLASSES;

use super::compiled::Compiled;
use super::counters::{MemoryEvent, TimeShare};
use super::geometry::NONE;
use super::groups::queue_wait_ns;
use super::rate::{Access, Coherence, Place};
use super::tasks::LlcCurves;
use super::window::advanced;
use super::{Analytic, HYSTERESIS, IDLE};

/// A speed is the mean over at least so much time to come.
const LEAST_HORIZON_NS: f64 = 5_000.0;

/// And is looked at again after at most so much.
const LONGEST_HORIZON_NS: f64 = 10_000_000.0;

/// A speed that will not move by a larger part within the longest horizon is looked at again only then.
const STEADY: f64 = 0.005;

/// An LLC that fills or evicts is brought up to date when one of its CPUs is evaluated and it was not for so long.
const LLC_AGE_NS: u64 = 500_000;

/// A line that is busy a smaller part of the time has no queue worth computing.
const HOT_LINE: f64 = 0.02;

/// Misses per instruction and class, on average while the window goes from `n` to `end`.
fn mean_misses(curves: &Curves, n: f64, end: f64) -> PerClass {
    let span = end - n;
    if span.abs() < 0.02 * end {
        return curves.class_misses(0.5 * (n + end));
    }
    let (before, after) = (curves.class_footprints(n), curves.class_footprints(end));
    let mut mean = [0.0; MAX_CLASSES];
    for class in 0..MAX_CLASSES {
        mean[class] = (after[class] - before[class]) / span;
    }
    mean
}

/// What a cache will hold of a task, and what it will miss of it.
struct Outlook {
    /// Misses per instruction and class, over the time looked at.
    mean: PerClass,
    /// Lines at its end.
    lines: f64,
    /// Misses per instruction at its end.
    sum: f64,
}

impl Outlook {
    /// At the end of the longest horizon.
    #[inline]
    fn far(curves: &Curves, n: f64, x: f64, phi: f64) -> Self {
        let far = advanced(n, x * LONGEST_HORIZON_NS, phi * LONGEST_HORIZON_NS);
        let (lines, mean, sum) = curves.with_class_misses(far);
        Self { mean, lines, sum }
    }

    /// On average over a shorter one.
    fn near(curves: &Curves, n: f64, x: f64, phi: f64, horizon_ns: f64) -> Self {
        let end = advanced(n, x * horizon_ns, phi * horizon_ns).min(curves.max_window());
        let (lines, sum) = curves.at(end);
        Self { mean: mean_misses(curves, n, end), lines, sum }
    }
}

impl Analytic {
    /// Accounts for the time a CPU's task has run at the speed in force.
    pub(super) fn flush(&mut self, index: usize) {
        let state = &mut self.cpus[index];
        if state.pending_ns == 0 || state.task == IDLE {
            return;
        }
        let counters = super::pending(state);
        state.pending_ns = 0;
        let instructions = counters.instructions;
        state.counters += &counters;
        let task = &mut self.tasks[state.task as usize];
        task.counters += &counters;
        if state.paused {
            return;
        }
        let llc = self.geometry.llc[index] as usize;
        if state.l2_slot != NONE {
            let l2 = self.geometry.l2[index] as usize;
            self.l2[l2].windows[state.l2_slot as usize].pending += instructions;
        }
        self.llc[llc].windows[state.llc_slot as usize].pending += instructions;
        let profile = &self.profiles[task.profile as usize];
        if profile.any_shared {
            for class in 0..profile.count {
                let group = task.groups[class];
                if group != NONE {
                    let slot = self.groups[group as usize].slots[llc] as usize;
                    self.llc[llc].windows[slot].pending += instructions * profile.touches[class];
                }
            }
        }
    }

    /// Sets the speed of the CPU's task anew. `remaining_ns` is the work it has left, at nominal speed, if known: a
    /// speed for a short run counts the lines of that run only.
    pub fn evaluate(&mut self, now_ns: u64, cpu: CpuId, remaining_ns: Option<u64>) {
        let index = cpu.index();
        if self.cpus[index].task == IDLE {
            return;
        }
        self.flush(index);
        if self.cpus[index].paused {
            self.evaluate_paused(index);
            return;
        }
        self.evaluate_alone(now_ns, index, remaining_ns);
        self.settle_beside(index);
        self.register(now_ns, index);
        let (llc, slot) = (self.geometry.llc[index] as usize, self.cpus[index].llc_slot as usize);
        let fills = self.llc[llc].windows[slot].misses * self.cpus[index].rate.x;
        if self.llc[llc].is_old(now_ns, LLC_AGE_NS, fills) {
            self.mark_dirty(now_ns, llc);
        }
    }

    /// Waiting actively takes time and issue slots, and nothing else.
    fn evaluate_paused(&mut self, index: usize) {
        let state = &mut self.cpus[index];
        let profile = &self.profiles[self.tasks[state.task as usize].profile as usize];
        state.alone.stall_ns.fill(0.0);
        state.alone.compute_ns = profile.profile.core_cpi() / self.geometry.ghz[index];
        state.components.events.fill(0.0);
        state.components.memory.fill(0.0);
        state.components.memory_exposed.fill(0.0);
        state.review_ns = u64::MAX;
        self.settle_beside(index);
        for class in 0..MAX_CLASSES {
            let old = std::mem::take(&mut self.cpus[index].registered[class]);
            let group = self.tasks[self.cpus[index].task as usize].groups[class];
            if group != NONE {
                self.groups[group as usize].change(self.geometry.llc[index], old, (0.0, 0.0));
            }
        }
    }

    /// What the CPU's speed is without its siblings.
    fn evaluate_alone(&mut self, now_ns: u64, index: usize, remaining_ns: Option<u64>) {
        let task_index = self.cpus[index].task as usize;
        let profile_index = self.tasks[task_index].profile as usize;
        let l2 = self.geometry.l2[index];
        let llc = self.geometry.llc[index];
        if l2 != NONE {
            self.update_l2(now_ns, l2);
        }
        let x = self.cpus[index].rate.x;
        let profile = &self.profiles[profile_index];
        let halved = self.geometry.siblings[index].iter().any(|&sibling| self.cpus[sibling as usize].task != IDLE);
        let mut access = Access { l1: if halved { profile.l1_half } else { profile.l1 }, ..Access::default() };

        let (l2_slot, llc_slot) = (self.cpus[index].l2_slot as usize, self.cpus[index].llc_slot as usize);
        let curves = LlcCurves { tasks: &self.tasks, profiles: &self.profiles, groups: &self.groups };
        let (llc_n, llc_misses) = self.llc[llc as usize].look(llc_slot, now_ns, &curves);
        let llc_cache = &self.llc[llc as usize];
        let l2_cache = if l2 == NONE { None } else { Some(&self.l2[l2 as usize]) };
        let forms = &profile.l2[usize::from(self.tasks[task_index].l2_variant)];

        // As things will be after the longest horizon: misses go there steadily, so if that is close it is the answer.
        let mut llc_ahead = Outlook::far(&profile.private, llc_n, x, llc_cache.phi);
        let mut drift_ns = (llc_misses - llc_ahead.sum).abs() * self.geometry.local_ns[index];
        let mut l2_ahead = None;
        if let Some(cache) = l2_cache {
            let window = &cache.windows[l2_slot];
            let ahead = Outlook::far(&forms.curves, window.n, x, cache.phi);
            drift_ns += (window.misses - ahead.sum).abs() * self.geometry.llc_ns[index];
            l2_ahead = Some(ahead);
        }
        let mut shared = 0.0;
        if profile.any_shared {
            let (lines, drift) = self.shared_misses(now_ns, index, profile, LONGEST_HORIZON_NS, &mut llc_ahead.mean);
            shared = lines;
            drift_ns += drift * self.geometry.local_ns[index];
        }
        let mut horizon_ns = LONGEST_HORIZON_NS;
        if drift_ns * x > STEADY {
            // Until the smallest window has doubled, or the run is over.
            let l2_n = l2_cache.map_or(llc_n, |cache| cache.windows[l2_slot].n);
            horizon_ns = (l2_n / x).clamp(LEAST_HORIZON_NS, LONGEST_HORIZON_NS);
            if let Some(remaining_ns) = remaining_ns {
                let needed = remaining_ns as f64 * profile.nominal / x;
                horizon_ns = horizon_ns.min(needed.max(LEAST_HORIZON_NS));
            }
            if let Some(cache) = l2_cache {
                l2_ahead = Some(Outlook::near(&forms.curves, l2_n, x, cache.phi, horizon_ns));
            }
            llc_ahead = Outlook::near(&profile.private, llc_n, x, llc_cache.phi, horizon_ns);
            if profile.any_shared {
                shared = self.shared_misses(now_ns, index, profile, horizon_ns, &mut llc_ahead.mean).0;
            }
        }

        access.l2 = access.l1;
        if let (Some(cache), Some(ahead)) = (l2_cache, l2_ahead) {
            let held = cache.running_lines + cache.stale_lines - cache.windows[l2_slot].lines + ahead.lines;
            access.l2 = in_sets(&forms.table, ahead.mean, cache.capacity * ahead.lines / held.max(1.0));
        }
        let cache = llc_cache;
        let (mean, own) = (llc_ahead.mean, llc_ahead.lines);
        let mut held = cache.running_lines + cache.stale_lines - cache.windows[llc_slot].lines + own;
        // A group that has just come is not in the sums of the last update.
        held = held.max(own + shared);
        let room = cache.capacity * (own + shared) / held.max(1.0);
        let cold = mean;
        access.llc = in_sets(&profile.llc_table, mean, room);
        access.order();
        if self.cpus[index].left_behind != [0.0; MAX_CLASSES] {
            let state = &self.cpus[index];
            for class in 0..profile.count {
                let cold = cold[class].min(access.llc[class]);
                access.left_behind[class] = cold * state.left_behind[class];
            }
            access.left_ns = self.geometry.transfer_ns(llc, state.left_llc);
            access.left_far = self.geometry.is_far(llc, state.left_llc);
        }
        if profile.any_shared {
            let valid = self.coherence(index, &mut access);
            let variant = self.profiles[profile_index].l2_variant(valid);
            if std::mem::replace(&mut self.tasks[task_index].l2_variant, variant) != variant && l2 != NONE {
                self.l2[l2 as usize].reshape(l2_slot);
            }
        }
        self.compose(index, &access);
        self.cpus[index].review_ns = now_ns + horizon_ns as u64 + 1;
    }

    /// Misses of the shared classes for lack of room: from the groups' windows in this LLC. Returns the groups' lines,
    /// and how far the misses per instruction move.
    fn shared_misses(
        &self,
        now_ns: u64,
        index: usize,
        profile: &Compiled,
        horizon_ns: f64,
        mean: &mut PerClass,
    ) -> (f64, f64) {
        let llc = self.geometry.llc[index];
        let cache = &self.llc[llc as usize];
        let phi_now = cache.phi_at(now_ns);
        let (mut lines, mut drift) = (0.0, 0.0);
        let groups = self.tasks[self.cpus[index].task as usize].groups;
        for (class, group_index) in groups.into_iter().enumerate().filter(|(_, group)| *group != NONE) {
            let group = &self.groups[group_index as usize];
            let window = &cache.windows[group.slots[llc as usize] as usize];
            let n = advanced(window.n, window.pending, phi_now - window.mark);
            let touches_per_ns = group.domains[llc as usize].touch * group.lines;
            let end = advanced(n, touches_per_ns * horizon_ns, cache.phi * horizon_ns);
            let (before, (after, kept)) = (group.at(n), group.at(end));
            let mean_kept =
                if (end - n).abs() < 0.02 * end { 0.5 * (before.1 + kept) } else { (after - before.0) / (end - n) };
            mean[class] = profile.touches[class] * mean_kept;
            drift += profile.touches[class] * (before.1 - kept).abs();
            lines += after;
        }
        (lines, drift)
    }

    /// What sharing makes of the touches of shared classes. Returns the part of the written ones that stays valid in the
    /// private caches.
    fn coherence(&self, index: usize, access: &mut Access) -> f64 {
        let (mut lines, mut valid_lines) = (0.0, 0.0);
        let state = &self.cpus[index];
        let task = &self.tasks[state.task as usize];
        let profile = &self.profiles[task.profile as usize];
        let llc = self.geometry.llc[index];
        for class in 0..profile.count {
            let group_index = task.groups[class];
            if group_index == NONE {
                continue;
            }
            let group = &self.groups[group_index as usize];
            let domain = &group.domains[llc as usize];
            let own = state.registered[class];
            let siblings = self.sibling_rates(index, group_index);
            let (race, outside_writes) = group.race(llc, own, siblings);
            let touches = profile.touches[class];
            let w = profile.writes[class];
            if w > 0.0 {
                lines += group.lines;
                valid_lines += group.lines * (1.0 - race.read_private);
            }
            // Lines this LLC has no room for: from another LLC that has them, or from memory. Where an outsider wrote
            // in the meantime it is a coherence miss instead.
            let window = &self.llc[llc as usize].windows[group.slots[llc as usize] as usize];
            let here_ns = if domain.touch > 0.0 { window.n / (domain.touch * group.lines) } else { 0.0 };
            let mut lacking = (access.llc[class] / touches) * crate::math::exp(-outside_writes * here_ns);
            let fetched = lacking * domain.elsewhere;
            lacking -= fetched;
            let present = 1.0 - lacking - fetched;
            let mut result = Coherence {
                reads: touches * (1.0 - w) * (present * race.read_domain + fetched),
                writes: touches * w * (present * race.write_domain + fetched),
                same_llc: touches
                    * present
                    * (w * (race.write_private - race.write_domain).max(0.0)
                        + (1.0 - w) * (race.read_private - race.read_domain).max(0.0)),
                read_ns: domain.read_ns,
                read_far: domain.read_far,
                write_ns: domain.write_ns,
                write_far: domain.write_far,
                queue_ns: 0.0,
            };
            let transfers = result.same_llc + result.reads + result.writes;
            let left = ((touches - transfers) / touches).max(0.0);
            access.llc[class] = touches * lacking;
            let reached = if left > 0.0 { left } else { 0.0 };
            access.l2[class] = (access.l2[class] * reached).max(access.llc[class]);
            access.l1[class] = (access.l1[class] * reached).max(access.l2[class]);
            self.add_queue(index, class, group_index, transfers, &mut result);
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
            let groups = &self.tasks[state.task as usize].groups;
            for class in (0..MAX_CLASSES).filter(|&class| groups[class] == group) {
                sum.0 += state.registered[class].0;
                sum.1 += state.registered[class].1;
            }
        }
        sum
    }

    /// Waiting for one's turn at a line that is on its way between others most of the time.
    fn add_queue(&self, index: usize, class: usize, group_index: u32, transfers: f64, result: &mut Coherence) {
        let group = &self.groups[group_index as usize];
        let state = &self.cpus[index];
        let profile = &self.profiles[self.tasks[state.task as usize].profile as usize];
        let touches = profile.touches[class];
        let same_llc_ns = self.hierarchy.transfer_ns[Relation::SameLlc];
        let transfer_ns =
            (result.same_llc * same_llc_ns + result.reads * result.read_ns + result.writes * result.write_ns) / touches;
        if transfers <= 0.0 || group.touch * transfer_ns < HOT_LINE {
            return;
        }
        let contenders: f64 = group.domains.iter().map(|domain| f64::from(domain.members)).sum();
        let own_ns = 1.0 / state.rate.x - state.rate.ns[TimeShare::HotLines as usize];
        let think_ns = (group.lines / touches * own_ns - transfer_ns).max(0.0);
        result.queue_ns = queue_wait_ns(contenders, think_ns, transfer_ns) * touches / transfers;
    }

    /// Adds up time and events per instruction.
    fn compose(&mut self, index: usize, access: &Access) {
        let (node, llc, core) = (self.geometry.node[index], self.geometry.llc[index], self.geometry.core[index]);
        let l2 = self.hierarchy.l2_of_core[core as usize];
        let place = Place {
            l2_ns: l2.map_or(0.0, |l2| self.hierarchy.l2[l2 as usize].latency_ns),
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
        for home in 0..state.components.memory.len() {
            let lines = state.components.memory[home];
            if lines <= 0.0 {
                continue;
            }
            let local = home == node as usize;
            let idle_ns = state.components.memory_exposed[home] * self.hierarchy.memory_ns[node as usize][home];
            let loaded_ns = idle_ns * self.bandwidth.factor(node, llc, home);
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

    /// Puts the CPU's speed into force as it is beside its siblings. Whether it moved by more than the hysteresis.
    pub(super) fn settle_beside(&mut self, index: usize) -> bool {
        let mut busy = None;
        for &sibling in &self.geometry.siblings[index] {
            let state = &self.cpus[sibling as usize];
            if state.task != IDLE {
                busy = Some(busy.unwrap_or(0.0) + state.rate.busy);
            }
        }
        let state = &mut self.cpus[index];
        let profile = &self.profiles[self.tasks[state.task as usize].profile as usize];
        let old = state.rate.speed;
        state.rate = state.alone.beside(busy, profile.nominal);
        (f64::from(state.rate.speed) / f64::from(old.max(1)) - 1.0).abs() > HYSTERESIS
    }

    /// Tells the groups the task's present rates.
    fn register(&mut self, now_ns: u64, index: usize) {
        let task = self.cpus[index].task as usize;
        if !self.profiles[self.tasks[task].profile as usize].any_shared {
            return;
        }
        for class in 0..MAX_CLASSES {
            let group = self.tasks[task].groups[class];
            if group == NONE {
                continue;
            }
            let new = self.shared_rates(index, class);
            let old = std::mem::replace(&mut self.cpus[index].registered[class], new);
            self.groups[group as usize].change(self.geometry.llc[index], old, new);
            self.group_changed(now_ns, group);
        }
    }
}

/// Misses with limited associativity: the steady ones of a cache with room for `lines`, and those of a window that has
/// not grown to them yet.
fn in_sets(table: &crate::curves::MissTable, mean: PerClass, lines: f64) -> PerClass {
    let (real, full) = table.at(ln(lines.max(1.0)));
    let mut misses = [0.0; MAX_CLASSES];
    for class in 0..MAX_CLASSES {
        misses[class] = real[class] + (mean[class] - full[class]).max(0.0);
    }
    misses
}
