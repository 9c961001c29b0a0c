//! The speed of one CPU's task without its siblings, step by step. Sections are those of `docs/spec/memory-model.md`.
//!
//! | step | rule | section |
//! |---|---|---|
//! | [`Analytic::look`] | brings the windows in its caches to now | 4.2 |
//! | [`Analytic::look_ahead`] | what they will hold and miss, and until when that is a speed | 4.2, 4.9 |
//! | [`Analytic::fill_less`] | fills of an L2 slow down as a window grows | 4.2 |
//! | [`Analytic::correct_moved`] | lines left behind in the caches it came from | 4.2 |
//! | [`Analytic::miss_private`] | misses of L1 and L2, conflicts of sets included | 2, 4.3 |
//! | [`Analytic::miss_llc`] | misses of the LLC beside those of others | 2, 4.3 |
//! | [`Analytic::share`] | transfers between sharers replace misses | 4.4 |
//! | [`Analytic::compose`] | time per instruction by cause | 4.8 |

use crate::curves::PerClass;
use crate::hierarchy::Fill;

use super::Analytic;
use super::compiled::L2Curves;
use super::conflicts::in_sets;
use super::geometry::NONE;
use super::outlook::{Ahead, Outlook};
use super::premise::{Expected, Premise};
use super::rate::Access;
use super::tasks::LlcCurves;

/// An LLC that is a task's own to so great a part has only its own conflicts.
const MOSTLY_OWN: f64 = 0.95;

/// A cache with room for this many times what it holds still fills: evictions keep one a little below its capacity.
const FULL: f64 = 1.05;

/// The task that is evaluated, and where it runs.
#[derive(Clone, Copy)]
pub(super) struct Subject {
    /// Its CPU, number, profile, and caches; the L2 may be [`NONE`].
    pub cpu: usize,
    pub task: usize,
    pub profile: usize,
    pub l2: u32,
    pub llc: u32,
    /// Its windows there.
    pub l2_slot: usize,
    pub llc_slot: usize,
    /// Instructions per nanosecond so far.
    pub x: f64,
    /// A sibling thread uses the core's caches too.
    pub halved: bool,
    /// Every such sibling executes the same code.
    pub beside_sharer: bool,
}

impl Subject {
    /// Whether its core has an L2 of its own.
    #[inline]
    pub(crate) fn has_l2(&self) -> bool {
        self.l2 != NONE
    }

    /// Curves of what its L2 holds of it.
    #[inline]
    pub(crate) fn l2_forms<'a>(&self, model: &'a Analytic) -> &'a L2Curves {
        &model.profiles[self.profile].l2[usize::from(model.tasks[self.task].l2_variant)]
    }
}

impl Analytic {
    /// What the CPU's speed is without its siblings. If that is a mean over a time in which it changes, the number of
    /// instructions for which it is the mean.
    pub(super) fn evaluate_alone(&mut self, now_ns: u64, index: usize, remaining_ns: Option<u64>) -> Option<f64> {
        let subject = self.subject(now_ns, index);
        let llc_now = self.look(now_ns, &subject);
        let mut ahead = self.look_ahead(now_ns, &subject, llc_now, remaining_ns);
        self.fill_less(&subject, &ahead);
        let profile = &self.profiles[subject.profile];
        let core = &profile.cores[self.geometry.core_kind[index] as usize];
        let mut access = Access { l1: if subject.halved { core.l1_half } else { core.l1 }, ..Access::default() };
        if subject.beside_sharer {
            // The siblings' code is the same, so that each finds all of it in all of the cache.
            let code = profile.first_code..profile.count;
            access.l1[code.clone()].copy_from_slice(&core.l1[code]);
        }
        self.correct_moved(&subject, &mut ahead, &mut access);
        self.miss_private(&subject, &ahead, &mut access);
        let premise = self.miss_llc(&subject, llc_now.1, &ahead, &mut access);
        access.order();
        self.share(&subject, &mut access);
        self.compose(index, &access);
        let state = &mut self.cpus[index];
        state.unsteady = ahead.unsteady;
        (state.premise, state.review_ns) = (premise, now_ns + ahead.horizon_ns as u64 + 1);
        ahead.unsteady.then_some(subject.x * ahead.horizon_ns)
    }

    /// Who is evaluated. Brings its L2 up to date.
    fn subject(&mut self, now_ns: u64, index: usize) -> Subject {
        let task = self.cpus[index].task as usize;
        let l2 = self.geometry.l2[index];
        if l2 != NONE {
            self.update_l2(now_ns, l2);
        }
        let state = &self.cpus[index];
        let halved = self.geometry.siblings[index].iter().any(|&sibling| self.cpus[sibling as usize].touches_memory());
        Subject {
            beside_sharer: halved && self.siblings_share_code(index),
            cpu: index,
            task,
            profile: self.tasks[task].profile as usize,
            l2,
            llc: self.geometry.llc[index],
            l2_slot: state.l2_slot as usize,
            llc_slot: state.llc_slot as usize,
            x: state.rate.x,
            halved,
        }
    }

    /// Whether the CPU's task has code, and every sibling that touches memory shares all of it.
    fn siblings_share_code(&self, index: usize) -> bool {
        let task = &self.tasks[self.cpus[index].task as usize];
        let profile = &self.profiles[task.profile as usize];
        let touching = |&&sibling: &&u32| self.cpus[sibling as usize].touches_memory();
        profile.has_code()
            && self.geometry.siblings[index].iter().filter(touching).all(|&sibling| {
                let groups = &self.tasks[self.cpus[sibling as usize].task as usize].groups;
                task.groups[profile.first_code..profile.count].iter().all(|of| *of != NONE && groups.contains(of))
            })
    }

    /// Brings its window in the LLC up to now. The window, and misses per instruction.
    fn look(&mut self, now_ns: u64, subject: &Subject) -> (f64, f64) {
        let Subject { l2, llc, l2_slot, llc_slot, .. } = *subject;
        let curves = LlcCurves { profiles: &self.profiles, groups: &self.groups, llc };
        let (n, misses) = self.llc[llc as usize].look(llc_slot, now_ns, &curves);
        if self.hierarchy.fill[llc as usize] == Fill::Victim && subject.has_l2() {
            let in_front = self.l2[l2 as usize].windows[l2_slot].n;
            self.llc[llc as usize].windows[llc_slot].in_front = in_front.min(n);
        }
        (n, misses)
    }

    /// The task fills its L2 less and less while it warms up: others' lines are pushed out by what it fills on average.
    fn fill_less(&mut self, subject: &Subject, ahead: &Ahead) {
        let Some(outlook) = ahead.l2.as_ref().filter(|_| !subject.halved) else { return };
        let cache = &mut self.l2[subject.l2 as usize];
        if cache.young {
            return;
        }
        let (now, mean) = (cache.windows[subject.l2_slot].misses, outlook.mean.iter().sum::<f64>());
        if now > mean {
            cache.phi *= mean / now;
        }
    }

    /// Corrects the means for lines that are not here because the task has come from elsewhere, and says who supplies them.
    fn correct_moved(&mut self, subject: &Subject, ahead: &mut Ahead, access: &mut Access) {
        let Subject { cpu, llc, x, .. } = *subject;
        let executed = self.tasks[subject.task].counters.instructions;
        let instructions = x * ahead.horizon_ns;
        let mut moved_l2 = self.cpus[cpu].moved_l2;
        if let (true, Some(outlook)) = (moved_l2.active, &mut ahead.l2) {
            let (profile, forms) = (&self.profiles[subject.profile], subject.l2_forms(self));
            let extra = moved_l2.correct(profile, &forms.quick, executed, instructions, &mut outlook.mean);
            if self.tasks[subject.task].from_same_llc {
                (access.served, access.announced) = (extra.served, extra.announced);
            }
            self.cpus[cpu].moved_l2 = moved_l2;
        }
        let mut moved_llc = self.cpus[cpu].moved_llc;
        if moved_llc.active {
            let profile = &self.profiles[subject.profile];
            let curves = &profile.private_quick;
            let extra = moved_llc.correct(profile, curves, executed, instructions, &mut ahead.llc.mean);
            let from = self.tasks[subject.task].from_llc;
            (access.left_behind, access.left_announced) = (extra.served, extra.announced);
            access.left_ns = self.geometry.transfer_ns(llc, from);
            access.left_far = self.geometry.is_far(llc, from);
            self.cpus[cpu].moved_llc = moved_llc;
        }
    }

    /// Misses of the core's own caches.
    fn miss_private(&self, subject: &Subject, ahead: &Ahead, access: &mut Access) {
        let Some(outlook) = &ahead.l2 else {
            access.l2 = access.l1;
            return;
        };
        // What a cold L2 lacks a cold L1 lacks too.
        for (l1, mean) in access.l1.iter_mut().zip(outlook.mean) {
            *l1 = l1.max(mean);
        }
        let cache = &self.l2[subject.l2 as usize];
        // Lines of those off the CPU are the oldest of their sets and give way.
        // A scan's window may have come round before the cache has seen that it is full.
        let others = (cache.running_lines - cache.windows[subject.l2_slot].lines).max(0.0);
        let held = others + outlook.lines;
        let room = cache.capacity * outlook.lines / held.max(1.0);
        let profile = &self.profiles[subject.profile];
        let tables = &profile.cores[self.geometry.core_kind[subject.cpu] as usize].l2_tables;
        let table = &tables[usize::from(self.tasks[subject.task].l2_variant)];
        access.l2 = in_sets(profile, table, outlook.mean, room, cache.capacity <= FULL * held);
    }

    /// Misses of the LLC, and what that rests on. `misses_now`: per instruction, by the window alone.
    fn miss_llc(&self, subject: &Subject, misses_now: f64, ahead: &Ahead, access: &mut Access) -> Premise {
        let profile = &self.profiles[subject.profile];
        let cache = &self.llc[subject.llc as usize];
        let kind = self.geometry.llc_kind[subject.llc as usize] as usize;
        let llc_table = &profile.llc_tables[kind];
        let (mean, own) = (ahead.llc.mean, ahead.llc.lines);
        let mut held = cache.running_lines - cache.windows[subject.llc_slot].lines + own;
        // A group that has just come is not in the sums of the last update.
        held = held.max(own + ahead.shared.lines);
        let crowd = cache.capacity / held.max(1.0);
        let room = crowd * (own + ahead.shared.lines);
        let expected = Expected {
            misses: (misses_now, ahead.llc.sum),
            shared_misses: ahead.shared.end,
            room: (cache.capacity / cache.running_lines.max(1.0), crowd),
            slope: llc_table.slope(room),
        };
        let premise = Premise::new(&expected, self.geometry.local_ns[subject.cpu]);
        let filled = crowd <= FULL;
        access.llc = in_sets(profile, llc_table, mean, room, filled);
        for class in (0..profile.count).filter(|&class| profile.shared[class]) {
            // Of a shared class only lines that no outsider has written since want room.
            let group = &self.groups[self.tasks[subject.task].groups[class] as usize];
            let invalid = group.domains[subject.llc as usize].invalid;
            if invalid > 0.0 {
                let wanted = (1.0 - invalid).max(1e-3);
                access.llc[class] = in_sets(profile, llc_table, mean, room / wanted, filled)[class];
            }
        }
        let own_part = own / (held - ahead.shared.lines).max(1.0);
        if cache.phi > 0.0 && own_part < MOSTLY_OWN {
            self.miss_beside_others(subject, &ahead.llc, 1.0 - own_part, &mut access.llc);
        }
        premise
    }

    /// Misses of private classes in an LLC of which others have a part: lines leave at the age at which the LLC evicts.
    fn miss_beside_others(&self, subject: &Subject, outlook: &Outlook, others_part: f64, misses: &mut PerClass) {
        let profile = &self.profiles[subject.profile];
        let cache = &self.llc[subject.llc as usize];
        let (curves, mean) = (&profile.private_quick, &outlook.mean);
        let in_front = cache.windows[subject.llc_slot].in_front.min(outlook.end);
        let fills = cache.fills_per_eviction_time();
        let ages = &self.llc_ages[self.geometry.llc_kind[subject.llc as usize] as usize];
        let added = ages.added(curves, outlook.end, in_front, subject.x / cache.phi, fills);
        let full = curves.class_misses(curves.cell(outlook.end));
        for class in (0..profile.count).filter(|&class| !profile.shared[class]) {
            // As in `in_sets`: what is missing anyway is in nobody's way.
            let warm = 1.0 - (mean[class] - full[class]).max(0.0) / profile.touches[class];
            let beside_others = (mean[class] + added[class] * warm * warm).clamp(0.0, profile.touches[class]);
            misses[class] += others_part * (beside_others - misses[class]);
        }
    }

    /// Puts transfers between sharers in the place of misses, and has the L2 hold what stays valid there.
    fn share(&mut self, subject: &Subject, access: &mut Access) {
        if !self.profiles[subject.profile].any_shared {
            return;
        }
        let valid = self.coherence(subject.cpu, access);
        let variant = self.profiles[subject.profile].l2_variant(valid, subject.beside_sharer);
        let before = std::mem::replace(&mut self.tasks[subject.task].l2_variant, variant);
        if before != variant && subject.has_l2() {
            self.l2[subject.l2 as usize].reshape(subject.l2_slot);
        }
    }
}
