//! How far ahead a speed looks, and what the caches will hold and miss of a task until then (`docs/spec/memory-model.md` 4.2 and
//! 4.9).

use crate::curves::PerClass;
use crate::profile::MAX_CLASSES;
use crate::tables::CurveTable;

use super::Analytic;
use super::alone::Subject;
use super::window::{Window, advanced};

/// A speed is the mean over at least so much time to come.
pub(super) const LEAST_HORIZON_NS: f64 = 5_000.0;

/// And over at least this part of the instructions that warm an L2 (4.9).
const WARMING: f64 = 0.125;

/// And is looked at again after at most so much.
const LONGEST_HORIZON_NS: f64 = 10_000_000.0;

/// A speed that will not move by a larger part within the longest horizon is looked at again only then.
const STEADY: f64 = 0.005;

/// The longest horizon beside a sibling thread, which changes the L2 they share.
const SHARED_HORIZON_NS: f64 = 1_000_000.0;

/// What a cache will hold of a task, and what it will miss of it.
pub(super) struct Outlook {
    /// Misses per instruction and class, over the time looked at.
    pub mean: PerClass,
    /// The window at its end, and its lines.
    pub end: f64,
    pub lines: f64,
    /// Misses per instruction at its end.
    pub sum: f64,
}

/// The same of the shared classes.
#[derive(Default)]
pub(super) struct SharedOutlook {
    /// The groups' lines at the end, and misses per instruction there.
    pub lines: f64,
    pub end: f64,
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

/// What is in store for a task that goes on running where it is.
pub(super) struct Ahead {
    /// The L2, if there is one: all classes.
    pub l2: Option<Outlook>,
    /// The LLC: private classes, and the mean misses of shared ones.
    pub llc: Outlook,
    pub shared: SharedOutlook,
    /// Until when, in nanoseconds.
    pub horizon_ns: f64,
    /// The misses move so much until the longest horizon that the speed is a mean over a shorter one.
    pub unsteady: bool,
}

impl Analytic {
    /// Looks ahead: as far as possible while misses stay what they are, and less far while windows grow. `llc` is the task's
    /// window there now, and its misses per instruction.
    pub(super) fn look_ahead(
        &self,
        now_ns: u64,
        subject: &Subject,
        llc: (f64, f64),
        remaining_ns: Option<u64>,
    ) -> Ahead {
        let Subject { cpu, x, .. } = *subject;
        let profile = &self.profiles[subject.profile];
        let forms = subject.l2_forms(self);
        let llc_cache = &self.llc[subject.llc as usize];
        let llc_window = &llc_cache.windows[subject.llc_slot];
        let l2 = subject.has_l2().then(|| {
            let cache = &self.l2[subject.l2 as usize];
            (cache, &cache.windows[subject.l2_slot])
        });
        // As things will be after the longest horizon: misses go there steadily, so if that is close it is the answer.
        let mut ahead = Ahead {
            l2: None,
            llc: Outlook::far(&profile.private_quick, llc_window, x, llc_cache.phi),
            shared: SharedOutlook::default(),
            horizon_ns: if subject.halved { SHARED_HORIZON_NS } else { LONGEST_HORIZON_NS },
            unsteady: false,
        };
        let mut drift_ns = (llc.1 - ahead.llc.sum).abs() * self.geometry.local_ns[cpu];
        if let Some((cache, window)) = l2 {
            let outlook = Outlook::far(&forms.quick, window, x, cache.phi);
            drift_ns += (window.misses - outlook.sum).abs() * self.geometry.llc_ns[cpu];
            ahead.l2 = Some(outlook);
        }
        let (moved_l2, moved_llc) = (&self.cpus[cpu].moved_l2, &self.cpus[cpu].moved_llc);
        drift_ns += moved_l2.now() * self.geometry.llc_ns[cpu] + moved_llc.now() * self.geometry.local_ns[cpu];
        // If the private classes are unsteady already, the shared ones need not be looked at that far ahead.
        if profile.any_shared && drift_ns * x <= STEADY {
            ahead.shared = self.shared_misses(now_ns, cpu, LONGEST_HORIZON_NS, &mut ahead.llc.mean);
            drift_ns += ahead.shared.drift * self.geometry.local_ns[cpu];
        }
        ahead.unsteady = drift_ns * x > STEADY;
        if !ahead.unsteady {
            ahead.llc.at_end(&profile.private_quick);
            if let Some(outlook) = &mut ahead.l2 {
                outlook.at_end(&forms.quick);
            }
            return ahead;
        }
        // Until the smallest window has doubled, or the run is over.
        let mut l2_n = l2.map_or(llc.0, |(_, window)| window.n);
        if moved_l2.active {
            l2_n = l2_n.min(moved_l2.since(self.tasks[subject.task].counters.instructions));
        }
        ahead.horizon_ns = (l2_n.max(WARMING * profile.cores[self.geometry.core_kind[cpu] as usize].warm) / x)
            .clamp(LEAST_HORIZON_NS, ahead.horizon_ns);
        if let Some(remaining_ns) = remaining_ns {
            let needed = remaining_ns as f64 * profile.nominal / x;
            ahead.horizon_ns = ahead.horizon_ns.min(needed.max(LEAST_HORIZON_NS));
        }
        if let Some((cache, window)) = l2 {
            ahead.l2 = Some(Outlook::near(&forms.quick, window, x, cache.phi, ahead.horizon_ns));
        }
        ahead.llc = Outlook::near(&profile.private_quick, llc_window, x, llc_cache.phi, ahead.horizon_ns);
        if profile.any_shared {
            ahead.shared = self.shared_misses(now_ns, cpu, ahead.horizon_ns, &mut ahead.llc.mean);
        }
        ahead
    }

    /// Misses of the shared classes for lack of room, over the time looked at: from the groups' windows in this LLC.
    fn shared_misses(&self, now_ns: u64, index: usize, horizon_ns: f64, mean: &mut PerClass) -> SharedOutlook {
        let llc = self.geometry.llc[index];
        let profile = &self.profiles[self.tasks[self.cpus[index].task as usize].profile as usize];
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
}
