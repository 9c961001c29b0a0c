//! Caches in which tasks take turns: an L2.
//!
//! When a task comes to a CPU, all that its L2 holds is older than what the task touches from then on, and least recently
//! used lines go first: those of tasks that were there before, and the task's own of its last turn. Its window is *young*
//! then: `in_front` counts what it executed in this turn, which does not shrink; the rest fades like the windows of those off
//! the CPU. When all of that is gone the window is one like any other. The reference's section 4.2 has the running window
//! shrink by the same factor as the others, and offers a walk over the last turns as a sharper variant; this has the
//! walk's order between turns without a list of them.
//!
//! Φ is found at each update as what makes the excess lines go, instead of being carried on at a frozen rate: windows
//! that hold all their owners touch fade for a long time before they lose a line.

use super::window::{CurvesOf, Occupancy, Window, faded};

/// With a smaller part of the capacity left of earlier turns they are over.
const OVER: f64 = 0.01;

/// The lines that go are found to this part of the capacity, in at most so many steps of false position.
const CLOSE: f64 = 5e-4;
const STEPS: u32 = 12;

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

    /// Lines that windows hold if Φ advances by `d`.
    fn lines_after(&self, d: f64, curves: &impl CurvesOf) -> f64 {
        let phi = self.phi_total + d;
        let held = |window: &Window| {
            let n = if window.running {
                window.in_front + faded(window.n - window.in_front, window.aged, d)
            } else {
                faded(window.n, 0.0, phi - window.mark)
            };
            curves.at(window.owner, n).0
        };
        self.windows.iter().map(held).sum()
    }

    /// Brings a cache with young windows to `now_ns`. False if nothing is left of earlier turns: then its windows are like
    /// any others.
    pub(super) fn update_turn(&mut self, now_ns: u64, curves: &impl CurvesOf) -> bool {
        let elapsed_ns = (now_ns - self.updated_ns) as f64;
        let lines = self.settle_running(self.stale_lines, now_ns, curves);
        (self.updated_ns, self.fills, self.summed) = (now_ns, 0.0, false);
        self.running_lines = (lines - self.stale_lines).max(0.0);
        if lines <= self.capacity {
            self.phi = 0.0;
            return true;
        }
        let fresh = |window: &Window| curves.at(window.owner, window.in_front).0;
        let kept: f64 = self.running.iter().map(|&slot| fresh(&self.windows[slot as usize])).sum();
        if kept > (1.0 - OVER) * self.capacity {
            self.end_turn(curves);
            return false;
        }
        let d = self.advance_for(lines - self.capacity, curves);
        self.phi_total += d;
        self.phi = if elapsed_ns > 0.0 { d / elapsed_ns } else { 0.0 };
        self.sum_stale(self.phi_total, curves);
        self.summed = true;
        self.running_lines = self.settle_running(0.0, now_ns, curves);
        true
    }

    /// Brings the running windows to `now_ns`; adds their lines to `sum`.
    fn settle_running(&mut self, mut sum: f64, now_ns: u64, curves: &impl CurvesOf) -> f64 {
        for position in 0..self.running.len() {
            let slot = self.running[position] as usize;
            let owner = self.windows[slot].owner;
            self.settle(slot, now_ns, curves.max_window(owner));
            let window = &mut self.windows[slot];
            window.shape(curves);
            sum += window.lines;
        }
        sum
    }

    /// The advance of Φ that makes `excess` lines go.
    fn advance_for(&self, excess: f64, curves: &impl CurvesOf) -> f64 {
        let beyond = |d: f64| self.lines_after(d, curves) - self.capacity;
        let (mut low, mut above) = (0.0, excess);
        let mut high = 0.125;
        let mut below = beyond(high);
        while below > 0.0 && high < 64.0 {
            (low, above, high) = (high, below, 2.0 * high);
            below = beyond(high);
        }
        // False position; an end that stays counts half (the Illinois rule).
        for _ in 0..STEPS {
            let d = low + (high - low) * above / (above - below);
            let lines = beyond(d);
            if lines.abs() < CLOSE * self.capacity {
                return d;
            }
            if lines > 0.0 {
                (low, above, below) = (d, lines, 0.5 * below);
            } else {
                (high, below, above) = (d, lines, 0.5 * above);
            }
        }
        high
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
