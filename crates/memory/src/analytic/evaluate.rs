//! The speed of one CPU's task, now and for a while.

use warmcore_topology::{CpuId, Relation};

use crate::curves::PerClass;
use crate::hierarchy::Fill;
use crate::math::exp;
use crate::profile::MAX_CLASSES;
use crate::tables::CurveTable;

use super::compiled::Compiled;
use super::conflicts::in_sets;
use super::geometry::NONE;
use super::groups::{Race, queue_wait_beside_hits_ns};
use super::premise::{Expected, Premise};
use super::rate::{Access, Alone, COHERENCE_OVERLAP, Coherence, Place, SPEED_ONE};
use super::switching::SIBLING_REVIEW_NS;
use super::tasks::LlcCurves;
use super::window::{Window, advanced};
use super::{Analytic, HYSTERESIS, IDLE};
use super::{MemoryEvent, TimeShare};

/// A speed is the mean over at least so much time to come.
const LEAST_HORIZON_NS: f64 = 5_000.0;

/// And over at least this part of the instructions that warm an L2 (`docs/spec/memory-model.md` section 4.9).
const WARMING: f64 = 0.125;

/// And is looked at again after at most so much.
const LONGEST_HORIZON_NS: f64 = 10_000_000.0;

/// A speed that will not move by a larger part within the longest horizon is looked at again only then.
const STEADY: f64 = 0.005;

/// The longest horizon beside a sibling thread, which changes the L2 they share.
const SHARED_HORIZON_NS: f64 = 1_000_000.0;

/// Change of a thread's busy part that its siblings look at.
const BUSY_CHANGE: f64 = 0.02;

/// An LLC that fills or evicts is brought up to date when one of its CPUs is evaluated and it was not for so long.
const LLC_AGE_NS: u64 = 500_000;

/// An LLC that is a task's own to so great a part has only its own conflicts.
const MOSTLY_OWN: f64 = 0.95;

/// A line that is busy a smaller part of the time has no queue worth computing.
const HOT_LINE: f64 = 0.02;

/// What a cache will hold of a task, and what it will miss of it.
struct Outlook {
    /// Misses per instruction and class, over the time looked at.
    mean: PerClass,
    /// The window at its end, and its lines.
    end: f64,
    lines: f64,
    /// Misses per instruction at its end.
    sum: f64,
}

/// The same of the shared classes.
#[derive(Default)]
struct SharedOutlook {
    /// The groups' lines at the end, and misses per instruction there.
    lines: f64,
    end: f64,
    /// How far the misses per instruction move until then.
    drift: f64,
}

impl Outlook {
    /// At the end of the longest horizon, the misses by class apart.
    #[inline]
    fn far(curves: &CurveTable, window: &Window, x: f64, phi: f64) -> Self {
        let end = window.after(x * LONGEST_HORIZON_NS, phi * LONGEST_HORIZON_NS).min(curves.max_window());
        let (lines, sum) = curves.sums(curves.cell(end));
        Self { end, mean: [0.0; MAX_CLASSES], lines, sum }
    }

    /// Adds the misses by class at the end.
    #[inline]
    fn at_end(&mut self, curves: &CurveTable) {
        for (mean, misses) in self.mean.iter_mut().zip(curves.class_misses(curves.cell(self.end))) {
            *mean += misses;
        }
    }

    /// On average over a shorter one.
    fn near(curves: &CurveTable, window: &Window, x: f64, phi: f64, horizon_ns: f64) -> Self {
        let n = window.n;
        let end = window.after(x * horizon_ns, phi * horizon_ns).min(curves.max_window());
        let (before, after) = (curves.cell(n), curves.cell(end));
        let span = end - n;
        let mut mean;
        if span.abs() < 0.02 * end {
            mean = curves.class_misses(before);
            for (mean, b) in mean.iter_mut().zip(curves.class_misses(after)) {
                *mean = 0.5 * (*mean + b);
            }
        } else {
            let per_instruction = 1.0 / span;
            mean = curves.class_lines(after);
            for (mean, a) in mean.iter_mut().zip(curves.class_lines(before)) {
                *mean = (*mean - a) * per_instruction;
            }
        }
        let (lines, sum) = curves.sums(after);
        Self { end, mean, lines, sum }
    }
}

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

    /// What the CPU's speed is without its siblings. If that is a mean over a time in which it changes, the number of
    /// instructions for which it is the mean.
    fn evaluate_alone(&mut self, now_ns: u64, index: usize, remaining_ns: Option<u64>) -> Option<f64> {
        let task_index = self.cpus[index].task as usize;
        let profile_index = self.tasks[task_index].profile as usize;
        let l2 = self.geometry.l2[index];
        let llc = self.geometry.llc[index];
        if l2 != NONE {
            self.update_l2(now_ns, l2);
        }
        let x = self.cpus[index].rate.x;
        let profile = &self.profiles[profile_index];
        let halved = self.geometry.siblings[index].iter().any(|&sibling| self.cpus[sibling as usize].touches_memory());
        let mut access = Access { l1: if halved { profile.l1_half } else { profile.l1 }, ..Access::default() };

        let (l2_slot, llc_slot) = (self.cpus[index].l2_slot as usize, self.cpus[index].llc_slot as usize);
        let curves = LlcCurves { profiles: &self.profiles, groups: &self.groups, llc };
        let (llc_n, llc_misses) = self.llc[llc as usize].look(llc_slot, now_ns, &curves);
        if self.hierarchy.fill == Fill::Victim && l2 != NONE {
            let in_front = self.l2[l2 as usize].windows[l2_slot].n;
            self.llc[llc as usize].windows[llc_slot].in_front = in_front.min(llc_n);
        }
        let llc_cache = &self.llc[llc as usize];
        let l2_cache = if l2 == NONE { None } else { Some(&self.l2[l2 as usize]) };
        let forms = &profile.l2[usize::from(self.tasks[task_index].l2_variant)];

        // As things will be after the longest horizon: misses go there steadily, so if that is close it is the answer.
        let llc_window = &llc_cache.windows[llc_slot];
        let mut llc_ahead = Outlook::far(&profile.private_quick, llc_window, x, llc_cache.phi);
        let mut drift_ns = (llc_misses - llc_ahead.sum).abs() * self.geometry.local_ns[index];
        let mut l2_ahead = None;
        if let Some(cache) = l2_cache {
            let window = &cache.windows[l2_slot];
            let ahead = Outlook::far(&forms.quick, window, x, cache.phi);
            drift_ns += (window.misses - ahead.sum).abs() * self.geometry.llc_ns[index];
            l2_ahead = Some(ahead);
        }
        let executed = self.tasks[task_index].counters.instructions;
        let (mut moved_l2, mut moved_llc) = (self.cpus[index].moved_l2, self.cpus[index].moved_llc);
        drift_ns += moved_l2.now() * self.geometry.llc_ns[index] + moved_llc.now() * self.geometry.local_ns[index];
        let mut shared = SharedOutlook::default();
        // If the private classes are unsteady already, the shared ones need not be looked at that far ahead.
        if profile.any_shared && drift_ns * x <= STEADY {
            shared = self.shared_misses(now_ns, index, profile, LONGEST_HORIZON_NS, &mut llc_ahead.mean);
            drift_ns += shared.drift * self.geometry.local_ns[index];
        }
        let mut horizon_ns = if halved { SHARED_HORIZON_NS } else { LONGEST_HORIZON_NS };
        let unsteady = drift_ns * x > STEADY;
        if unsteady {
            // Until the smallest window has doubled, or the run is over.
            let mut l2_n = l2_cache.map_or(llc_n, |cache| cache.windows[l2_slot].n);
            if moved_l2.active {
                l2_n = l2_n.min(moved_l2.since(executed));
            }
            horizon_ns = (l2_n.max(WARMING * profile.warm) / x).clamp(LEAST_HORIZON_NS, horizon_ns);
            if let Some(remaining_ns) = remaining_ns {
                let needed = remaining_ns as f64 * profile.nominal / x;
                horizon_ns = horizon_ns.min(needed.max(LEAST_HORIZON_NS));
            }
            if let Some(cache) = l2_cache {
                l2_ahead = Some(Outlook::near(&forms.quick, &cache.windows[l2_slot], x, cache.phi, horizon_ns));
            }
            llc_ahead = Outlook::near(&profile.private_quick, llc_window, x, llc_cache.phi, horizon_ns);
            if profile.any_shared {
                shared = self.shared_misses(now_ns, index, profile, horizon_ns, &mut llc_ahead.mean);
            }
        } else {
            llc_ahead.at_end(&profile.private_quick);
            if let Some(ahead) = &mut l2_ahead {
                ahead.at_end(&forms.quick);
            }
        }

        if let (Some(cache), Some(ahead), false) = (l2_cache.filter(|cache| !cache.young), &l2_ahead, halved) {
            // The task fills less and less while it warms up: others' lines are pushed out by what it fills on average.
            let (now, mean) = (cache.windows[l2_slot].misses, ahead.mean.iter().sum::<f64>());
            if now > mean {
                self.l2[l2 as usize].phi *= mean / now;
            }
        }
        if let (true, Some(ahead)) = (moved_l2.active, &mut l2_ahead) {
            let extra = moved_l2.correct(profile, &forms.quick, executed, x * horizon_ns, &mut ahead.mean);
            if self.tasks[task_index].from_same_llc {
                (access.served, access.announced) = (extra.served, extra.announced);
            }
            self.cpus[index].moved_l2 = moved_l2;
        }
        if moved_llc.active {
            let extra =
                moved_llc.correct(profile, &profile.private_quick, executed, x * horizon_ns, &mut llc_ahead.mean);
            let from = self.tasks[task_index].from_llc;
            (access.left_behind, access.left_announced) = (extra.served, extra.announced);
            access.left_ns = self.geometry.transfer_ns(llc, from);
            access.left_far = self.geometry.is_far(llc, from);
            self.cpus[index].moved_llc = moved_llc;
        }
        if let Some(ahead) = &l2_ahead {
            // What a cold L2 lacks a cold L1 lacks too.
            for (l1, mean) in access.l1.iter_mut().zip(ahead.mean) {
                *l1 = l1.max(mean);
            }
        }
        access.l2 = access.l1;
        if let Some(ahead) = l2_ahead {
            let cache = &self.l2[l2 as usize];
            // Lines of those off the CPU are the oldest of their sets and give way.
            let held = cache.running_lines - cache.windows[l2_slot].lines + ahead.lines;
            access.l2 = in_sets(profile, &forms.table, ahead.mean, cache.capacity * ahead.lines / held.max(1.0));
        }
        let cache = llc_cache;
        let (mean, own) = (llc_ahead.mean, llc_ahead.lines);
        let mut held = cache.running_lines - cache.windows[llc_slot].lines + own;
        // A group that has just come is not in the sums of the last update.
        held = held.max(own + shared.lines);
        let crowd = cache.capacity / held.max(1.0);
        let room = crowd * (own + shared.lines);
        let expected = Expected {
            misses: (llc_misses, llc_ahead.sum),
            shared_misses: shared.end,
            room: (cache.capacity / cache.running_lines.max(1.0), crowd),
            slope: profile.llc_table.slope(room),
        };
        let premise = Premise::new(&expected, self.geometry.local_ns[index]);
        access.llc = in_sets(profile, &profile.llc_table, mean, room);
        for class in (0..profile.count).filter(|&class| profile.shared[class]) {
            // Of a shared class only lines that no outsider has written since want room.
            let group = &self.groups[self.tasks[task_index].groups[class] as usize];
            let invalid = group.domains[llc as usize].invalid;
            if invalid > 0.0 {
                let wanted = (1.0 - invalid).max(1e-3);
                access.llc[class] = in_sets(profile, &profile.llc_table, mean, room / wanted)[class];
            }
        }
        let own_part = own / (held - shared.lines).max(1.0);
        if cache.phi > 0.0 && own_part < MOSTLY_OWN {
            let window = &cache.windows[llc_slot];
            let added = self.llc_ages.added(
                &profile.private_quick,
                llc_ahead.end,
                window.in_front.min(llc_ahead.end),
                x / cache.phi,
                cache.fills_per_eviction_time(),
            );
            let full = profile.private_quick.class_misses(profile.private_quick.cell(llc_ahead.end));
            for class in (0..profile.count).filter(|&class| !profile.shared[class]) {
                // As in `in_sets`: what is missing anyway is in nobody's way.
                let warm = 1.0 - (mean[class] - full[class]).max(0.0) / profile.touches[class];
                let beside_others = (mean[class] + added[class] * warm * warm).clamp(0.0, profile.touches[class]);
                access.llc[class] += (1.0 - own_part) * (beside_others - access.llc[class]);
            }
        }
        access.order();
        if profile.any_shared {
            let valid = self.coherence(index, &mut access);
            let variant = self.profiles[profile_index].l2_variant(valid);
            if std::mem::replace(&mut self.tasks[task_index].l2_variant, variant) != variant && l2 != NONE {
                self.l2[l2 as usize].reshape(l2_slot);
            }
        }
        self.compose(index, &access);
        let state = &mut self.cpus[index];
        state.unsteady = unsteady;
        (state.premise, state.review_ns) = (premise, now_ns + horizon_ns as u64 + 1);
        unsteady.then_some(x * horizon_ns)
    }

    /// Misses of the shared classes for lack of room, over the time looked at: from the groups' windows in this LLC.
    fn shared_misses(
        &self,
        now_ns: u64,
        index: usize,
        profile: &Compiled,
        horizon_ns: f64,
        mean: &mut PerClass,
    ) -> SharedOutlook {
        let llc = self.geometry.llc[index];
        let cache = &self.llc[llc as usize];
        let phi_now = cache.phi_at(now_ns);
        let mut outlook = SharedOutlook::default();
        for (class, group_index) in self.tasks[self.cpus[index].task as usize].shared_classes() {
            let group = &self.groups[group_index as usize];
            let window = &cache.windows[group.slots[llc as usize] as usize];
            let n = advanced(window.n, window.pending, phi_now - window.mark);
            let touches_per_ns = group.domains[llc as usize].touch * group.lines;
            let end = advanced(n, touches_per_ns * horizon_ns, cache.phi * horizon_ns);
            let (before, after) = (group.at(llc, n), group.at(llc, end));
            let mean_kept = if (end - n).abs() < 0.02 * end {
                0.5 * (before.misses + after.misses)
            } else {
                (after.lines - before.lines) / (end - n)
            };
            mean[class] = profile.touches[class] * mean_kept;
            outlook.drift += profile.touches[class] * (before.misses - after.misses).abs();
            outlook.end += profile.touches[class] * after.misses;
            outlook.lines += after.lines;
        }
        outlook
    }

    /// What sharing makes of the touches of shared classes. Returns the part of the written ones that stays valid in the
    /// private caches.
    fn coherence(&self, index: usize, access: &mut Access) -> f64 {
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
            let memory = (1.0 - w) * (present * (race.read_domain - by_owner) + lacking * (1.0 - from_alone))
                + w * lacking * (1.0 - domain.elsewhere);
            let mut result = Coherence {
                reads: touches * (1.0 - w) * (present * by_owner + lacking * from_alone),
                writes: touches * w * (present * race.write_domain * write_kept + lacking * domain.elsewhere),
                same_llc: touches
                    * present
                    * (w * (race.write_private - race.write_domain).max(0.0)
                        + (1.0 - w) * (race.read_private - race.read_domain - race.read_llc).max(0.0)),
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
            access.l2[class] = (access.l2[class] * reached).max(access.llc[class]) + from_llc;
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
            let classes = self.tasks[state.task as usize].shared_classes();
            for (class, _) in classes.filter(|(_, of_sibling)| *of_sibling == group) {
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
        state.alone.communicated_ns = state.components.communicated_ns;
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
        let profile = &self.profiles[self.tasks[state.task as usize].executes as usize];
        let old = state.rate.speed;
        state.rate = state.alone.beside(busy, profile.profile.mlp, profile.nominal);
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
