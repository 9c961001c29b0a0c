//! Caches in which tasks take turns: an L2.
//!
//! When a task comes to a CPU, all that its L2 holds is older than what the task touches from then on, and least recently
//! used lines go first: those of tasks that were there before, and the task's own of its last turn. Its window is *young*
//! then: `in_front` counts what it executed in this turn, which does not shrink; the rest fades like the windows of those off
//! the CPU. When all of that is gone the window is one like any other. `docs/spec/memory-model.md` section 4.2 has the
//! running window shrink by the same factor as the others, and offers a walk over the last turns as a sharper variant;
//! this has the walk's order between turns without a list of them.
//!
//! Φ is found at each update as what makes the excess lines go, instead of being carried on at a frozen rate: windows
//! that hold all their owners touch fade for a long time before they lose a line.

use super::occupancy::Occupancy;
use super::window::{CurvesOf, Window, faded};

/// With a smaller part of the capacity left of earlier turns they are over.
const OVER: f64 = 0.01;

/// The lines that go are found to this part of the capacity, in at most so many steps.
const CLOSE: f64 = 1e-3;
const STEPS: u32 = 24;

/// The first of them is no larger; and beyond this advance nothing is left to find.
const FIRST_ADVANCE: f64 = 0.125;
const FARTHEST: f64 = 64.0;

impl Occupancy {
    /// An owner has come to the cache.
    pub(super) fn start_turn(&mut self, now_ns: u64) {
        if !self.turns {
            return;
        }
        let phi = self.phi_at(now_ns);
        self.age_stale(phi - self.phi_total);
        (self.phi_total, self.updated_ns, self.phi, self.young) = (phi, now_ns, 0.0, true);
        for &slot in &self.running {
            let window = &mut self.windows[slot as usize];
            (window.young, window.in_front) = (true, 0.0);
        }
    }

    /// Lines that windows hold beyond the capacity if Φ advances by `d`, and how many more go per further advance. Sums
    /// over the windows off the CPU are left as they are then.
    fn beyond(&mut self, d: f64, curves: &impl CurvesOf) -> (f64, f64) {
        self.sum_stale(self.phi_total + d, curves);
        let (mut lines, mut slope) = (self.stale_lines, self.stale_fade);
        for &slot in &self.running {
            let window = &self.windows[slot as usize];
            let earlier = faded(window.n - window.in_front, window.aged, d);
            let shape = curves.at(window.owner, window.in_front + earlier);
            lines += shape.lines;
            slope += shape.misses * earlier * (1.0 + 2.0 * (window.aged + d));
        }
        (lines - self.capacity, slope)
    }

    /// Brings a cache with young windows to `now_ns`. False if nothing is left of earlier turns: then its windows are like
    /// any others.
    pub(super) fn update_turn(&mut self, now_ns: u64, curves: &impl CurvesOf) -> bool {
        let elapsed_ns = (now_ns - self.updated_ns) as f64;
        let lines = self.settle_running(self.stale_lines, now_ns, curves, |_| ());
        (self.updated_ns, self.fills, self.summed) = (now_ns, 0.0, false);
        self.running_lines = (lines - self.stale_lines).max(0.0);
        if lines <= (1.0 + CLOSE) * self.capacity {
            self.phi = 0.0;
            return true;
        }
        let fresh = |window: &Window| curves.at(window.owner, window.in_front).lines;
        let kept: f64 = self.running.iter().map(|&slot| fresh(&self.windows[slot as usize])).sum();
        if kept > (1.0 - OVER) * self.capacity {
            self.end_turn(curves);
            return false;
        }
        let d = self.advance_for(lines - self.capacity, curves);
        self.phi_total += d;
        self.phi = if elapsed_ns > 0.0 { d / elapsed_ns } else { 0.0 };
        self.summed = true;
        self.running_lines = self.settle_running(0.0, now_ns, curves, |_| ());
        true
    }

    /// The advance of Φ that makes `excess` lines go; sums over the windows off the CPU are those after it.
    fn advance_for(&mut self, excess: f64, curves: &impl CurvesOf) -> f64 {
        let of_running: f64 = self
            .running
            .iter()
            .map(|&slot| &self.windows[slot as usize])
            .map(|window| window.misses * (window.n - window.in_front) * (1.0 + 2.0 * window.aged))
            .sum();
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut d = (excess / (self.stale_fade + of_running).max(1e-9)).min(FIRST_ADVANCE);
        for _ in 0..STEPS {
            let (beyond, slope) = self.beyond(d, curves);
            if beyond.abs() < CLOSE * self.capacity || d >= FARTHEST {
                break;
            }
            *(if beyond > 0.0 { &mut low } else { &mut high }) = d;
            // Newton's step. Windows that hold all their owners touch lose nothing at first, so that it may lead anywhere.
            let next = (d + beyond / slope.max(1e-9)).min(2.0 * d + FIRST_ADVANCE);
            d = if next > low && next < high { next } else { 0.5 * (low + high) };
        }
        d
    }

    /// Nothing is left of earlier turns.
    fn end_turn(&mut self, curves: &impl CurvesOf) {
        self.young = false;
        for window in &mut self.windows {
            if window.running {
                (window.n, window.in_front, window.young) = (window.in_front, 0.0, false);
                window.shape(curves);
            } else {
                window.n = 0.0;
            }
        }
        self.sum_stale(self.phi_total, curves);
        self.summed = true;
    }
}
