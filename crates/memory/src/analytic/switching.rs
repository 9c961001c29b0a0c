//! Tasks start and stop running on CPUs, wait actively, and go on with another profile.

use warmcore_topology::CpuId;

use super::geometry::NONE;
use super::moved::{Left, Moved};
use super::tasks::{L2Curves, Level, LlcCurves, TaskSpec};
use super::window::Owner;
use super::{Analytic, IDLE};

/// Latest look at a task's caches after its sibling thread became another one or idle.
pub(super) const SIBLING_REVIEW_NS: u64 = 50_000;

impl Analytic {
    /// The task begins to run on the CPU, which must be idle. Its speed is to be set by [`Analytic::review`] or
    /// [`Analytic::evaluate`] before it executes anything.
    pub fn switch_in(&mut self, now_ns: u64, cpu: CpuId, task: u32) {
        let index = cpu.index();
        debug_assert_eq!(self.cpus[index].task, IDLE);
        let profile = &self.profiles[self.tasks[task as usize].executes as usize];
        let (nominal, touches_memory, any_shared) = (profile.nominal, profile.touches_memory, profile.any_shared);
        let team = self.tasks[task as usize].team;
        let state = &mut self.cpus[index];
        state.team = if touches_memory { team } else { NONE };
        (state.task, state.paused, state.pending_ns, state.unseen_ns) = (task, false, 0, 0);
        (state.rate.x, state.rate.busy) = (nominal, 1.0);
        (state.came_ns, state.review_ns) = (Some(now_ns), now_ns);
        if touches_memory {
            state.components.clear();
        }
        self.tasks[task as usize].running_on = Some(index as u32);
        if touches_memory {
            self.open_windows(now_ns, index);
            if any_shared {
                self.enter_groups(now_ns, index);
            }
        }
    }

    /// Windows of the CPU's task in its caches, running from now on.
    fn open_windows(&mut self, now_ns: u64, index: usize) {
        let task = self.cpus[index].task;
        let (l2, llc) = (self.geometry.l2[index], self.geometry.llc[index]);
        self.touch_first(task, self.geometry.node[index]);
        if let Some(before) = self.tasks[task as usize].llc.last().map(|place| place.cache) {
            let state = &mut self.tasks[task as usize];
            if state.l2.last().is_some_and(|place| place.cache != l2) {
                state.from_same_llc = before == llc;
            }
            if before != llc {
                state.from_llc = before;
            }
        }
        let (l2_slot, moved_l2) =
            if l2 == NONE { (NONE, Moved::default()) } else { self.open_window(now_ns, task, Level::L2, l2) };
        let (llc_slot, moved_llc) = self.open_window(now_ns, task, Level::Llc, llc);
        let state = &mut self.cpus[index];
        (state.l2_slot, state.llc_slot) = (l2_slot, llc_slot);
        (state.moved_l2, state.moved_llc) = (moved_l2, moved_llc);
    }

    /// The CPU's task stops running.
    pub fn switch_out(&mut self, now_ns: u64, cpu: CpuId) {
        let index = cpu.index();
        if self.cpus[index].task == IDLE {
            return;
        }
        self.flush(index);
        let touched = self.cpus[index].touches_memory();
        if touched {
            self.close_windows(now_ns, index);
        }
        let state = &mut self.cpus[index];
        let task = std::mem::replace(&mut state.task, IDLE);
        (state.paused, state.came_ns, state.review_ns) = (false, None, u64::MAX);
        (state.rate.x, state.l2_slot, state.llc_slot, state.team) = (0.0, NONE, NONE, NONE);
        self.tasks[task as usize].running_on = None;
        let l2 = self.geometry.l2[index];
        if touched && l2 != NONE {
            if self.l2[l2 as usize].is_used() {
                self.update_l2(now_ns, l2);
            } else {
                self.l2[l2 as usize].rest(now_ns);
            }
        }
        self.changed_neighbours(now_ns, index, touched);
    }

    /// The windows of the CPU's task are from now on of those off the CPU.
    fn close_windows(&mut self, now_ns: u64, index: usize) {
        let (l2, llc) = (self.geometry.l2[index], self.geometry.llc[index]);
        if l2 != NONE {
            let curves = L2Curves { tasks: &self.tasks, profiles: &self.profiles };
            self.l2[l2 as usize].leave(self.cpus[index].l2_slot as usize, now_ns, &curves);
        }
        let curves = LlcCurves { profiles: &self.profiles, groups: &self.groups, llc };
        self.llc[llc as usize].leave(self.cpus[index].llc_slot as usize, now_ns, &curves);
        self.note_left(index);
        if self.profiles[self.tasks[self.cpus[index].task as usize].profile as usize].any_shared {
            self.leave_groups(now_ns, index);
        }
    }

    /// The CPU's task has its first speed here.
    pub(super) fn arrived(&mut self, now_ns: u64, index: usize, came_ns: u64) {
        self.expect_demand(now_ns, index);
        if came_ns == now_ns {
            let touches_memory = self.cpus[index].touches_memory();
            self.changed_neighbours(now_ns, index, touches_memory);
        } else {
            // The driver has to report for how long the siblings ran at their old speeds first.
            self.hurry_siblings(now_ns, index, false);
        }
    }

    /// Siblings feel the CPU at once; the rest of the LLC at its next update.
    fn changed_neighbours(&mut self, now_ns: u64, index: usize, touches_memory: bool) {
        for position in 0..self.geometry.siblings[index].len() {
            let sibling = self.geometry.siblings[index][position] as usize;
            // A task that has come and is not evaluated yet has no speed that could be felt: what is known of the CPU is of the
            // task before.
            if self.cpus[sibling].task != IDLE && self.cpus[sibling].came_ns.is_none() {
                self.flush(sibling);
                if self.settle_beside(sibling) {
                    self.list_changed(sibling);
                }
            }
        }
        if !touches_memory {
            return;
        }
        // They share the caches too; that they feel a little later.
        self.hurry_siblings(now_ns + SIBLING_REVIEW_NS, index, true);
        // A cache with room to spare lets nobody feel who else is there.
        let llc = self.geometry.llc[index] as usize;
        if self.llc[llc].held_lines() > 0.9 * self.llc[llc].capacity {
            let state = &self.cpus[index];
            let fills = if state.task == IDLE {
                0.0
            } else {
                self.llc[llc].windows[state.llc_slot as usize].misses * state.rate.x
            };
            self.mark_dirty(now_ns, llc, self.llc[llc].patience_ns(fills) as u64);
        }
    }

    /// Siblings look at their speeds again at `review_ns`, all of them or those that touch memory.
    pub(super) fn hurry_siblings(&mut self, review_ns: u64, index: usize, touching: bool) {
        for position in 0..self.geometry.siblings[index].len() {
            let sibling = self.geometry.siblings[index][position] as usize;
            let state = &mut self.cpus[sibling];
            if state.task == IDLE || state.paused || touching && !state.touches_memory() {
                continue;
            }
            if state.review_ns > review_ns {
                state.review_ns = review_ns;
                self.list_changed(sibling);
            }
        }
    }

    pub(super) fn list_changed(&mut self, index: usize) {
        if !self.listed[index] {
            self.listed[index] = true;
            self.changed.push(CpuId::from_index(index));
        }
    }

    /// Notes what the CPU's task leaves in the caches; their windows are up to date.
    fn note_left(&mut self, index: usize) {
        let state = &self.cpus[index];
        let task = &mut self.tasks[state.task as usize];
        let profile = &self.profiles[task.profile as usize];
        let executed = task.counters.instructions;
        let l2 = self.geometry.l2[index];
        if l2 != NONE
            && let Some(place) = task.l2.last_mut()
        {
            let n = self.l2[l2 as usize].windows[state.l2_slot as usize].n;
            place.left = state.moved_l2.leave(profile, executed, n);
        }
        if let Some(place) = task.llc.last_mut() {
            let n = self.llc[self.geometry.llc[index] as usize].windows[state.llc_slot as usize].n;
            place.left = state.moved_llc.leave(profile, executed, n);
        }
    }

    fn enter_groups(&mut self, now_ns: u64, index: usize) {
        let task = self.cpus[index].task as usize;
        let llc = self.geometry.llc[index];
        for (class, group) in self.tasks[task].shared_classes() {
            let slot = self.group_slot(now_ns, group, llc);
            let first = self.groups[group as usize].domains[llc as usize].members == 0;
            if first && !self.llc[llc as usize].windows[slot].running {
                let curves = LlcCurves { profiles: &self.profiles, groups: &self.groups, llc };
                self.llc[llc as usize].enter(slot, now_ns, &curves);
            }
            let rates = self.shared_rates(index, class);
            self.cpus[index].registered[class] = rates;
            self.groups[group as usize].enter(llc, rates);
            if first {
                self.mix_group(now_ns, group as usize, llc as usize);
            }
            self.group_changed(now_ns, group, llc);
        }
    }

    fn leave_groups(&mut self, now_ns: u64, index: usize) {
        let task = self.cpus[index].task as usize;
        let llc = self.geometry.llc[index];
        for (class, group) in self.tasks[task].shared_classes() {
            self.groups[group as usize].leave(llc, self.cpus[index].registered[class]);
            self.cpus[index].registered[class] = (0.0, 0.0);
            if self.groups[group as usize].domains[llc as usize].members == 0 {
                let slot = self.groups[group as usize].slots[llc as usize] as usize;
                let curves = LlcCurves { profiles: &self.profiles, groups: &self.groups, llc };
                self.llc[llc as usize].leave(slot, now_ns, &curves);
            }
            self.group_changed(now_ns, group, llc);
        }
    }

    /// The task goes on with another profile (a phase of its program). It keeps what it holds as lines, and while a profile
    /// without memory is in force its windows fade.
    ///
    /// # Panics
    /// If there is no such profile.
    pub fn set_profile(&mut self, now_ns: u64, task: u32, spec: &TaskSpec<'_>) {
        let running = self.tasks[task as usize].running_on.map(CpuId);
        if let Some(cpu) = running {
            self.switch_out(now_ns, cpu);
        }
        self.tasks[task as usize].executes = spec.profile as u32;
        if self.profiles[spec.profile].touches_memory {
            self.convert_windows(task, spec);
        }
        if let Some(cpu) = running {
            self.switch_in(now_ns, cpu, task);
        }
    }

    /// The lines of a task that does not run are from now on those of another profile.
    fn convert_windows(&mut self, task: u32, spec: &TaskSpec<'_>) {
        let groups = self.groups_of(spec);
        let team = self.team_of(spec.profile as u32, groups);
        let new = &self.profiles[spec.profile];
        let state = &self.tasks[task as usize];
        let old = &self.profiles[state.profile as usize];
        for (places, caches, from, to) in [
            (&state.l2, &mut self.l2, &state.l2_forms(&self.profiles).curves, &new.l2[0].curves),
            (&state.llc, &mut self.llc, &old.private, &new.private),
        ] {
            for place in places {
                let window = &mut caches[place.cache as usize].windows[place.slot as usize];
                window.n = to.window(from.footprint(window.n).min(to.total_lines()));
                window.in_front = 0.0;
                window.owner = Owner::Task { task, profile: spec.profile as u32 };
                caches[place.cache as usize].reshape(place.slot as usize);
            }
        }
        let state = &mut self.tasks[task as usize];
        (state.profile, state.l2_variant) = (spec.profile as u32, 0);
        state.set_groups(groups, team);
        let executed = state.counters.instructions;
        for place in state.l2.iter_mut().chain(&mut state.llc) {
            place.left = Left { executed, lines: None };
        }
    }

    /// The CPU's task waits actively from now on, or goes on: while it waits it occupies the core and touches nothing.
    pub fn set_paused(&mut self, now_ns: u64, cpu: CpuId, paused: bool) {
        let index = cpu.index();
        if self.cpus[index].task == IDLE || self.cpus[index].paused == paused {
            return;
        }
        self.flush(index);
        self.cpus[index].paused = paused;
        if !paused {
            let task = self.cpus[index].task as usize;
            self.cpus[index].rate.x = self.profiles[self.tasks[task].executes as usize].nominal;
        }
        self.evaluate(now_ns, cpu, None);
        let touches_memory = self.cpus[index].touches_memory();
        self.changed_neighbours(now_ns, index, touches_memory);
    }
}
