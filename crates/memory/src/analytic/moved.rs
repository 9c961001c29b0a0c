//! Copies of a task's private lines in several caches, after it moved.
//!
//! What a task leaves behind in a cache stays there, and stays good until the task writes the line elsewhere. Per class
//! and cache the lines are *alone* here, in *both* (here and where the task was meanwhile, readable), or not good here.
//! With λ touches per line and instruction of which a part w writes, an absence of Δ instructions leaves
//!
//! - alone: those not touched, e^(−λΔ);
//! - in both: those read but not written, e^(−wλΔ) − e^(−λΔ), and of those that were in both before e^(−wλΔ);
//!
//! and r instructions after the return the lines not good here are those not touched since, e^(−λr): each costs a miss,
//! which the other cache serves if it has the line: what is good there is in both or there alone. Whoever has been back for
//! longer than the window covers misses as one that never left. A line in both costs the first write a message to the other cache;
//! lines fetched by a read are in both too. That is e^(−wλr) and e^(−wλr) − e^(−λr) of them.
//!
//! The same holds for cores (their L2s) and for the domains of LLCs. Source: `docs/spec/memory-model.md` section 3.3
//! ("those written meanwhile elsewhere must be dropped") and the transitions of MESI; `docs/spec/memory-model.md`
//! section 4.2 keeps the windows only.

use crate::curves::PerClass;
use crate::profile::MAX_CLASSES;
use crate::tables::CurveTable;

use super::compiled::Compiled;

/// What a task left in a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Left {
    /// Instructions it had executed when it left.
    pub executed: f64,
    /// `None`: all that the window covers is here alone.
    pub lines: Option<LeftLines>,
}

/// By class, the chance per line that it is good here alone, here and elsewhere, or only where the task came from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LeftLines {
    alone: PerClass,
    both: PerClass,
    there: PerClass,
}

impl Left {
    /// Chance per line of each private class that it is good in the cache, which now covers the window `n`.
    pub fn held(&self, profile: &Compiled, n: f64) -> PerClass {
        let mut held = [0.0; MAX_CLASSES];
        let untouched = profile.fates.untouched(n);
        for class in (0..profile.count).filter(|&class| !profile.shared[class]) {
            let covered = 1.0 - untouched[class];
            held[class] = self.lines.map_or(covered, |lines| covered.min(lines.alone[class] + lines.both[class]));
        }
        held
    }
}

/// State of a running task's lines in one cache since it came (back) from another one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// There is something to tell from a task that never moved.
    pub active: bool,
    /// Instructions it had executed when it came.
    came: f64,
    /// Part of what the window covers that was good when it came.
    good: PerClass,
    /// Chance per line that it was not good here but good where the task came from.
    there: PerClass,
    /// Chance per line that it was in both.
    both: PerClass,
    /// Extra events per instruction when last computed.
    now: f64,
}

/// Extra events per instruction and class over a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    /// Misses that the cache the task came from serves.
    pub served: PerClass,
    /// Writes to lines that are here and there.
    pub announced: PerClass,
}

/// Extra events below this part of all touches are forgotten.
const FORGET: f64 = 1e-4;

impl Moved {
    /// The task comes to a cache that covers the window `n`. `left` is what it left here when it was here last, `there`
    /// the chance per line that the cache it comes from has it, if that is another one.
    pub fn come(profile: &Compiled, executed: f64, n: f64, left: Option<&Left>, there: Option<&PerClass>) -> Self {
        let away = left.map_or(0.0, |left| executed - left.executed);
        if let Some(left) = left
            && left.lines.is_none()
            && away <= 0.0
        {
            return Self::default();
        }
        let mut moved =
            Self { active: true, came: executed, good: [1.0; MAX_CLASSES], now: f64::INFINITY, ..Self::default() };
        let lines = left.and_then(|left| left.lines);
        let of_window = if left.is_some() { profile.fates.untouched(n) } else { [1.0; MAX_CLASSES] };
        let (untouched, unwritten) = (profile.fates.untouched(away), profile.fates.unwritten(away));
        for class in 0..profile.count {
            if profile.shared[class] {
                continue;
            }
            let covered = 1.0 - of_window[class];
            let (alone, both) = match lines {
                // The window may have faded since.
                Some(LeftLines { alone, both, .. }) => {
                    let kept = (covered / (alone[class] + both[class]).max(1e-9)).min(1.0);
                    (alone[class] * kept, both[class] * kept)
                }
                None => (covered, 0.0),
            };
            let (untouched, unwritten) = (untouched[class], unwritten[class]);
            let alone_now = alone * untouched;
            moved.both[class] = alone * (unwritten - untouched) + both * unwritten;
            let good = alone_now + moved.both[class];
            moved.good[class] = if covered > 1e-9 { (good / covered).min(1.0) } else { 1.0 };
            moved.there[class] = match there {
                // What it has is in both or there alone; and what was written since is elsewhere, if not there then in a third.
                Some(there) => (there[class] - moved.both[class]).max(alone + both - good).clamp(0.0, 1.0 - good),
                None => lines.map_or(0.0, |lines| lines.there[class]),
            };
        }
        moved
    }

    /// What the task leaves in the cache when it goes, with the window `n`.
    pub fn leave(&self, profile: &Compiled, executed: f64, n: f64) -> Left {
        if !self.active {
            return Left { executed, lines: None };
        }
        let since = executed - self.came;
        let (mut alone, mut both, mut there) = ([0.0; MAX_CLASSES], [0.0; MAX_CLASSES], [0.0; MAX_CLASSES]);
        let of_window = profile.fates.untouched(n);
        let (untouched, unwritten) = (profile.fates.untouched(since), profile.fates.unwritten(since));
        for class in (0..profile.count).filter(|&class| !profile.shared[class]) {
            let (untouched, unwritten) = (untouched[class], unwritten[class]);
            let missing = self.good[class] * of_window[class] + (1.0 - self.good[class]) * untouched;
            both[class] = self.both[class] * unwritten + self.there[class] * (unwritten - untouched);
            alone[class] = (1.0 - missing - both[class]).max(0.0);
            there[class] = self.there[class] * untouched;
        }
        Left { executed, lines: Some(LeftLines { alone, both, there }) }
    }

    /// Extra events per instruction, as far as known; infinite when the task has just come.
    pub fn now(&self) -> f64 {
        if self.active { self.now } else { 0.0 }
    }

    /// Instructions since the task came.
    pub fn since(&self, executed: f64) -> f64 {
        (executed - self.came).max(0.0)
    }

    /// Corrects the mean misses of the next `ahead` instructions, which `mean` states for the window alone, and returns
    /// what comes on top. Becomes inactive when nothing is left to correct.
    pub(crate) fn correct(
        &mut self,
        profile: &Compiled,
        curves: &CurveTable,
        executed: f64,
        ahead: f64,
        mean: &mut PerClass,
    ) -> Extra {
        let since = self.since(executed);
        let (before, after) = (curves.cell(since), curves.cell(since + ahead));
        let (lines_before, lines_after) = (curves.class_lines(before), curves.class_lines(after));
        let misses_before = curves.class_misses(before);
        let (unwritten_before, unwritten_after) =
            (profile.fates.unwritten(since), profile.fates.unwritten(since + ahead));
        let per_instruction = 1.0 / ahead.max(1.0);
        let mut extra = Extra::default();
        let (mut touches, mut now) = (0.0, 0.0);
        for (class, mean) in mean.iter_mut().enumerate().take(profile.count) {
            if profile.shared[class] {
                continue;
            }
            let q = profile.touches[class];
            touches += q;
            let untouched = (lines_after[class] - lines_before[class]) * per_instruction;
            let lost = 1.0 - self.good[class];
            extra.served[class] = self.there[class] * untouched;
            now += self.there[class] * misses_before[class] + lost * (misses_before[class] - *mean).max(0.0);
            // Touched since is not here for ever: what the window no longer covers is gone again.
            *mean += lost * (untouched - *mean).max(0.0);
            let rate = profile.writes[class] * profile.lambda[class];
            let maybe = self.both[class] + self.there[class];
            if rate > 0.0 && maybe > 1e-6 {
                // Written for the first time while in both: wλ (maybe e^(−wλr) − there e^(−λr)), on average.
                let (start, end) = (unwritten_before[class], unwritten_after[class]);
                let first_writes = profile.lines[class] * (start - end) * per_instruction;
                let w = profile.writes[class];
                extra.announced[class] = (maybe * first_writes - self.there[class] * w * untouched).max(0.0);
                now += (maybe * start * w * q - self.there[class] * w * misses_before[class]).max(0.0);
            }
        }
        self.now = now;
        if now < FORGET * touches {
            self.active = false;
        }
        extra
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::Geometry;
    use super::*;
    use crate::curves::Replacement;
    use crate::hierarchy::Hierarchy;
    use crate::library;

    fn compiled() -> Compiled {
        let machine = warmcore_topology::resolve("spr32").unwrap();
        let hierarchy = Hierarchy::new(&machine).unwrap();
        let geometry = Geometry::new(&machine, &hierarchy);
        Compiled::new(library::find("perlbench").unwrap(), &hierarchy, &geometry, Replacement::Lru)
    }

    #[test]
    fn every_line_is_in_one_of_two_caches_that_hold_all_however_often_the_task_moves() {
        let profile = compiled();
        // It has run in the first cache for long, and never in the second.
        let (mut executed, mut window) = (1e15, [1e15, 0.0]);
        let mut left = [Some(Left { executed, lines: None }), None];
        for stay in 1..50 {
            let here = stay % 2;
            let there = left[1 - here].map(|left| left.held(&profile, window[1 - here]));
            let moved = Moved::come(&profile, executed, window[here], left[here].as_ref(), there.as_ref());
            for class in (0..profile.count).filter(|&class| stay > 1 && !profile.shared[class]) {
                let covered = 1.0 - profile.fates.untouched(window[here])[class];
                let somewhere = moved.good[class] * covered + moved.there[class];
                assert!((somewhere - 1.0).abs() < 0.01, "stay {stay}, class {class}: {somewhere}");
            }
            let ran = 1e5 * (1 + stay % 7) as f64;
            (executed, window[here]) = (executed + ran, window[here] + ran);
            left[here] = Some(moved.leave(&profile, executed, window[here]));
        }
    }

    #[test]
    fn who_has_been_back_for_longer_than_the_window_misses_as_one_that_never_left() {
        let profile = compiled();
        let curves = &profile.l2[0].quick;
        let (n, executed) = (2e5, 1e9);
        let left = Left { executed: 0.0, lines: None };
        let mut moved = Moved::come(&profile, executed, n, Some(&left), Some(&[1.0; MAX_CLASSES]));
        let of_window = curves.class_misses(curves.cell(n));
        let mut mean = of_window;
        moved.correct(&profile, curves, executed + 20.0 * n, n, &mut mean);
        assert!(of_window.iter().any(|misses| *misses > 1e-6));
        for (after, window) in mean.iter().zip(of_window) {
            assert!((after - window).abs() <= 1e-3 * window, "{after} misses per instruction, {window} of the window");
        }
    }
}
