//! Accounts for what tasks have executed: in their counters, and in the windows of what they touched.

use super::geometry::NONE;
use super::teams::Present;
use super::{Analytic, CpuState, IDLE};

impl CpuState {
    /// Instructions that the windows have not been told of, which the L2's still have to be; `None` if there are none.
    #[inline]
    fn untold(&mut self) -> Option<f64> {
        let ran_ns = std::mem::take(&mut self.unseen_ns);
        if ran_ns == 0 || self.paused || !self.touches_memory() {
            return None;
        }
        let instructions = ran_ns as f64 * self.rate.x;
        self.untold_l2 += instructions;
        Some(instructions)
    }
}

impl Analytic {
    /// Accounts for the time a CPU's task has run at the speed in force.
    pub(super) fn flush(&mut self, index: usize) {
        self.feed_windows(index);
        let state = &mut self.cpus[index];
        if state.pending_ns == 0 || state.task == IDLE {
            return;
        }
        if state.untouching.is_some() {
            state.flush_untouching(&mut self.tasks[state.task as usize].counters);
            return;
        }
        let counters = super::pending(state);
        state.pending_ns = 0;
        state.counters += &counters;
        self.tasks[state.task as usize].counters += &counters;
    }

    /// Tells the windows what the CPU's task has executed.
    fn feed_windows(&mut self, index: usize) {
        let Some(instructions) = self.cpus[index].untold() else { return };
        let (state, llc) = (&self.cpus[index], self.geometry.llc[index] as usize);
        self.llc[llc].windows[state.llc_slot as usize].pending += instructions;
        if state.team != NONE {
            self.teams[state.team as usize].feed(&mut self.llc[llc].windows, &self.groups, llc, instructions);
        }
        self.feed_l2(index);
    }

    /// Tells the CPU's window in its L2 what it has not been told yet.
    pub(super) fn feed_l2(&mut self, index: usize) {
        let state = &mut self.cpus[index];
        let instructions = std::mem::take(&mut state.untold_l2);
        if state.l2_slot != NONE {
            let l2 = self.geometry.l2[index] as usize;
            self.l2[l2].windows[state.l2_slot as usize].pending += instructions;
        }
    }

    /// Tells all windows of an LLC what its CPUs' tasks have executed; those of L2s are told when they are looked at.
    pub(super) fn feed_llc(&mut self, llc: usize, present: &mut Present) {
        let windows = &mut self.llc[llc].windows;
        for &cpu in &self.geometry.cpus_of_llc[llc] {
            let state = &mut self.cpus[cpu as usize];
            let Some(instructions) = state.untold() else { continue };
            windows[state.llc_slot as usize].pending += instructions;
            if state.team != NONE {
                self.teams[state.team as usize].ran(state.team, instructions, present);
            }
        }
        for team in present.drain(..) {
            let team = &mut self.teams[team as usize];
            let instructions = std::mem::take(&mut team.executed);
            team.feed(windows, &self.groups, llc, instructions);
        }
    }
}
