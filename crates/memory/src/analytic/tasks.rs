//! Tasks, their windows and groups; starting and stopping on CPUs.

use warmcore_topology::CpuId;

use crate::curves::PerClass;
use crate::hierarchy::Fill;
use crate::profile::{Home, MAX_CLASSES, Scope};

use super::Analytic;
use super::compiled::{self, Compiled};
use super::geometry::NONE;
use super::groups::Group;
use super::moved::{Left, Moved};
use super::occupancy::Occupancy;
use super::window::{CurvesOf, Owner, Shape, advanced};
use super::{Counters, TimeShare};

/// A task to be.
#[derive(Clone, Copy, Debug)]
pub struct TaskSpec<'a> {
    /// Index of its profile.
    pub profile: usize,
    /// Its process: threads of one share classes marked so.
    pub process: u32,
    /// Data groups it belongs to: number and name.
    pub data: &'a [(u32, &'a str)],
}

/// What tells a group apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GroupName {
    scope: Scope,
    class: String,
}

/// Windows that a task keeps per level: in the caches it used last.
const PLACES: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    L2,
    Llc,
}

/// A cache in which a task has a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheWindow {
    pub cache: u32,
    pub slot: u32,
    /// What it left there, unless it runs there now.
    pub left: Left,
}

/// Where a task has windows, the most recently used last.
pub(super) type CacheWindows = Vec<CacheWindow>;

pub(super) struct TaskState {
    /// Its profile: that of its windows and groups.
    pub profile: u32,
    /// The profile it executes now: the same, or one without memory while its windows fade.
    pub executes: u32,
    /// Group of each shared class, and these classes as bits; see [`TaskState::set_groups`].
    pub groups: [u32; MAX_CLASSES],
    shared: u32,
    /// Those who share as it does; [`NONE`] if it shares nothing.
    pub team: u32,
    /// Share of its first-touch pages by node.
    pub home: Vec<f64>,
    /// It has run, so its pages have homes.
    pub touched: bool,
    /// The driver says where its own pages are.
    pub told: bool,
    pub l2: CacheWindows,
    pub llc: CacheWindows,
    /// The LLC from which it came to the one where it is now, or was last.
    pub from_llc: u32,
    /// The core from which it came to the one where it is now was under the same LLC.
    pub from_same_llc: bool,
    pub running_on: Option<u32>,
    /// Which of its profile's closed forms hold in an L2.
    pub l2_variant: u8,
    pub counters: Counters,
}

impl TaskState {
    /// Closed forms of what it touches, as an L2 holds it.
    #[inline]
    pub(crate) fn l2_forms<'a>(&self, profiles: &'a [Compiled]) -> &'a compiled::L2Curves {
        &profiles[self.profile as usize].l2[usize::from(self.l2_variant)]
    }

    /// Its shared classes, each with its group.
    #[inline]
    pub(crate) fn shared_classes(&self) -> impl Iterator<Item = (usize, u32)> + use<> {
        let (groups, mut left) = (self.groups, self.shared);
        std::iter::from_fn(move || {
            let class = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            groups.get(class).map(|group| (class, *group))
        })
    }

    /// Sets the groups of its shared classes, and the team they make it a member of.
    pub fn set_groups(&mut self, groups: [u32; MAX_CLASSES], team: u32) {
        (self.groups, self.team) = (groups, team);
        let shared = groups.iter().enumerate().filter(|(_, group)| **group != NONE);
        self.shared = shared.map(|(class, _)| 1 << class).sum();
    }

    pub fn places(&mut self, level: Level) -> &mut CacheWindows {
        match level {
            Level::L2 => &mut self.l2,
            Level::Llc => &mut self.llc,
        }
    }
}

/// Curves of owners in an L2: everything a task touches.
pub(super) struct L2Curves<'a> {
    pub tasks: &'a [TaskState],
    pub profiles: &'a [Compiled],
}

impl CurvesOf for L2Curves<'_> {
    #[inline]
    fn at(&self, owner: Owner, n: f64) -> Shape {
        match owner {
            Owner::Task { task, .. } => {
                CurvesOf::at(&self.tasks[task as usize].l2_forms(self.profiles).quick, owner, n)
            }
            Owner::Group(_) => unreachable!("groups have windows in LLCs"),
        }
    }
}

/// Curves of owners in an LLC: a task's private classes; shared ones belong to their group.
pub(super) struct LlcCurves<'a> {
    pub profiles: &'a [Compiled],
    pub groups: &'a [Group],
    pub llc: u32,
}

impl CurvesOf for LlcCurves<'_> {
    #[inline(always)]
    fn at(&self, owner: Owner, n: f64) -> Shape {
        match owner {
            Owner::Task { profile, .. } => CurvesOf::at(&self.profiles[profile as usize].private_quick, owner, n),
            Owner::Group(group) => self.groups[group as usize].at(self.llc, n),
        }
    }
}

impl Analytic {
    /// Adds a task; the result is its number, counted from 0.
    ///
    /// # Panics
    /// If there is no such profile.
    pub fn add_task(&mut self, spec: &TaskSpec<'_>) -> u32 {
        let groups = self.groups_of(spec);
        let team = self.team_of(spec.profile as u32, groups);
        let mut task = TaskState {
            profile: spec.profile as u32,
            executes: spec.profile as u32,
            groups: [NONE; MAX_CLASSES],
            shared: 0,
            team: NONE,
            home: vec![0.0; self.hierarchy.memory_ns.len()],
            touched: false,
            told: false,
            l2: CacheWindows::with_capacity(PLACES),
            llc: CacheWindows::with_capacity(PLACES),
            from_llc: 0,
            from_same_llc: true,
            running_on: None,
            l2_variant: 0,
            counters: Counters::default(),
        };
        task.set_groups(groups, team);
        self.tasks.push(task);
        self.tasks.len() as u32 - 1
    }

    /// Tasks added so far.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// The CPU on which a task runs now.
    pub fn running_on(&self, task: u32) -> Option<CpuId> {
        self.tasks[task as usize].running_on.map(CpuId)
    }

    /// The groups of a task's shared classes, made as needed.
    pub(super) fn groups_of(&mut self, spec: &TaskSpec<'_>) -> [u32; MAX_CLASSES] {
        let mut groups = [NONE; MAX_CLASSES];
        let profile = &self.profiles[spec.profile];
        for (index, class) in profile.profile.classes.iter().enumerate() {
            let Some(scope) = class.scope(spec.process, spec.data) else { continue };
            let name = GroupName { scope, class: class.name.clone() };
            let known = self.group_names.iter().position(|known| *known == name);
            let group = known.unwrap_or_else(|| {
                self.group_names.push(name);
                let with_private = self.hierarchy.fill.iter().map(|fill| *fill != Fill::Victim);
                self.groups.push(Group::new(with_private, self.hierarchy.memory_ns.len()));
                self.groups.len() - 1
            });
            self.groups[group].lines = self.groups[group].lines.max(profile.shared_lines[index]);
            groups[index] = group as u32;
        }
        groups
    }

    /// First touch: pages of the task, and its part of shared ones, are put on the node where it first runs, unless the driver has
    /// said where they are.
    pub(super) fn touch_first(&mut self, task: u32, node: u32) {
        let state = &mut self.tasks[task as usize];
        if state.touched {
            return;
        }
        state.touched = true;
        if !state.told {
            state.home[node as usize] = 1.0;
        }
        for (_, group) in state.shared_classes() {
            let group = &mut self.groups[group as usize];
            if group.told {
                continue;
            }
            let before = f64::from(group.touched_by);
            for share in &mut group.home {
                *share *= before / (before + 1.0);
            }
            group.home[node as usize] += 1.0 / (before + 1.0);
            group.touched_by += 1;
        }
    }

    fn cache(&mut self, level: Level, cache: u32) -> &mut Occupancy {
        match level {
            Level::L2 => &mut self.l2[cache as usize],
            Level::Llc => &mut self.llc[cache as usize],
        }
    }

    /// The task's window in a cache, running from now on, and how its lines there have fared.
    pub(super) fn open_window(&mut self, now_ns: u64, task: u32, level: Level, cache: u32) -> (u32, Moved) {
        let there = self.held_where_last(now_ns, task, level, cache);
        let executed = self.tasks[task as usize].counters.instructions;
        let places = self.tasks[task as usize].places(level);
        if let Some(position) = places.iter().position(|known| known.cache == cache) {
            // Most recently used last.
            places[position..].rotate_left(1);
            let place = places[places.len() - 1];
            let slot = place.slot;
            match level {
                Level::L2 => {
                    let curves = L2Curves { tasks: &self.tasks, profiles: &self.profiles };
                    self.l2[cache as usize].enter(slot as usize, now_ns, &curves);
                }
                Level::Llc => {
                    let curves = LlcCurves { profiles: &self.profiles, groups: &self.groups, llc: cache };
                    self.llc[cache as usize].enter(slot as usize, now_ns, &curves);
                }
            }
            let n = self.cache(level, cache).windows[slot as usize].n;
            let profile = &self.profiles[self.tasks[task as usize].profile as usize];
            return (slot, Moved::come(profile, executed, n, Some(&place.left), there.as_ref()));
        }
        if places.len() == PLACES {
            let CacheWindow { cache: oldest, slot, .. } = places[0];
            self.forget(level, oldest, slot as usize);
        }
        let owner = Owner::Task { task, profile: self.tasks[task as usize].profile };
        let slot = self.cache(level, cache).add(owner, now_ns) as u32;
        let left = Left { executed, lines: None };
        self.tasks[task as usize].places(level).push(CacheWindow { cache, slot, left });
        let profile = &self.profiles[self.tasks[task as usize].profile as usize];
        let moved = there.map_or(Moved::default(), |there| Moved::come(profile, executed, 0.0, None, Some(&there)));
        (slot, moved)
    }

    /// By private class, the chance that the cache where the task was last has a line; `None` if that is this cache or
    /// it was nowhere yet.
    fn held_where_last(&mut self, now_ns: u64, task: u32, level: Level, cache: u32) -> Option<PerClass> {
        let last = *self.tasks[task as usize].places(level).last()?;
        if last.cache == cache {
            return None;
        }
        let occupancy = self.cache(level, last.cache);
        let window = &occupancy.windows[last.slot as usize];
        let n = advanced(window.n, 0.0, occupancy.phi_at(now_ns) - window.mark);
        let profile = &self.profiles[self.tasks[task as usize].profile as usize];
        Some(last.left.held(profile, n))
    }

    /// Removes a window; the last one of the cache takes its slot.
    fn forget(&mut self, level: Level, cache: u32, slot: usize) {
        let occupancy = self.cache(level, cache);
        let removed = occupancy.remove(slot);
        let moved = occupancy.windows.get(slot).copied();
        match removed.owner {
            Owner::Task { task, .. } => self.tasks[task as usize].places(level).retain(|place| place.cache != cache),
            Owner::Group(group) => {
                self.groups[group as usize].slots[cache as usize] = NONE;
                self.groups[group as usize].standing.hold(cache as usize, 0.0);
            }
        }
        let Some(moved) = moved else { return };
        match moved.owner {
            Owner::Task { task, .. } => {
                for place in self.tasks[task as usize].places(level).iter_mut().filter(|place| place.cache == cache) {
                    place.slot = slot as u32;
                }
                if let Some(cpu) = self.tasks[task as usize].running_on.filter(|_| moved.running) {
                    match level {
                        Level::L2 => self.cpus[cpu as usize].l2_slot = slot as u32,
                        Level::Llc => self.cpus[cpu as usize].llc_slot = slot as u32,
                    }
                }
            }
            Owner::Group(group) => self.groups[group as usize].slots[cache as usize] = slot as u32,
        }
    }

    /// Forgets windows that have faded, after an exact sum.
    pub(super) fn forget_faded(&mut self, level: Level, cache: u32) {
        while self.cache(level, cache).just_summed() {
            let Some(slot) = self.cache(level, cache).forgettable() else { break };
            self.forget(level, cache, slot);
        }
    }

    /// The group's window in an LLC, opened if there is none.
    pub(super) fn group_slot(&mut self, now_ns: u64, group: u32, llc: u32) -> usize {
        let known = self.groups[group as usize].slots[llc as usize];
        if known != NONE {
            return known as usize;
        }
        let slot = self.llc[llc as usize].add(Owner::Group(group), now_ns);
        self.groups[group as usize].slots[llc as usize] = slot as u32;
        slot
    }

    /// Touches and writes per line and nanosecond of the CPU's task in a shared class, at its present speed.
    pub(super) fn shared_rates(&self, index: usize, class: usize) -> (f64, f64) {
        let state = &self.cpus[index];
        if state.paused {
            return (0.0, 0.0);
        }
        let task = &self.tasks[state.task as usize];
        let profile = &self.profiles[task.profile as usize];
        let touch = profile.touches[class] * state.rate.x / self.groups[task.groups[class] as usize].lines;
        (touch, touch * profile.writes[class])
    }

    /// Members of a group look again at the next update of their LLC if its sums in one have moved.
    pub(super) fn group_changed(&mut self, now_ns: u64, group: u32, llc: u32) {
        if !self.groups[group as usize].moved(llc) {
            return;
        }
        for llc in 0..self.llc.len() {
            if self.groups[group as usize].domains[llc].members > 0 {
                self.mark_dirty(now_ns, llc, 0);
            }
        }
    }

    /// The task is gone, and what it held with it. Its counters stay.
    pub fn forget_task(&mut self, task: u32) {
        for level in [Level::L2, Level::Llc] {
            while let Some(&CacheWindow { cache, slot, .. }) = self.tasks[task as usize].places(level).first() {
                self.forget(level, cache, slot as usize);
            }
        }
    }

    /// The task waited `ns` for lines that moved from one CPU to another: a message, a lock.
    pub fn transferred(&mut self, task: u32, from: CpuId, to: CpuId, ns: u64) {
        let (from, to) = (self.geometry.llc[from.index()], self.geometry.llc[to.index()]);
        let share = if from == to {
            TimeShare::Llc
        } else if self.geometry.is_far(from, to) {
            TimeShare::OtherSocket
        } else {
            TimeShare::OtherLlc
        };
        let counters = &mut self.tasks[task as usize].counters;
        counters.time_ns[share as usize] += ns as f64;
        counters.transfer_ns += ns as f64;
    }

    /// A task waited actively for lines that others were using.
    pub fn waited_for_line(&mut self, task: u32, ns: u64) {
        let counters = &mut self.tasks[task as usize].counters;
        counters.time_ns[TimeShare::HotLines as usize] += ns as f64;
        counters.transfer_ns += ns as f64;
    }

    /// Lines a task holds in a cache.
    pub(super) fn lines_in(&self, task: u32, level: Level, cache: u32, now_ns: u64) -> f64 {
        let state = &self.tasks[task as usize];
        let (places, occupancy) = match level {
            Level::L2 => (&state.l2, &self.l2[cache as usize]),
            Level::Llc => (&state.llc, &self.llc[cache as usize]),
        };
        let Some(place) = places.iter().find(|place| place.cache == cache) else { return 0.0 };
        let window = &occupancy.windows[place.slot as usize];
        // What its CPU has not told the window yet counts too.
        let cpu = state.running_on.map(|cpu| &self.cpus[cpu as usize]).filter(|_| window.running);
        let executed = window.pending
            + cpu.map_or(0.0, |cpu| {
                let untold = if level == Level::L2 { cpu.untold_l2 } else { 0.0 };
                untold + cpu.unseen_ns as f64 * cpu.rate.x
            });
        let n = window.after(executed, occupancy.phi_at(now_ns) - window.mark);
        let profile = &self.profiles[state.profile as usize];
        match level {
            Level::L2 => state.l2_forms(&self.profiles).curves.footprint(n),
            Level::Llc => profile.private.footprint(n),
        }
    }

    /// Says where the pages of a task's private classes are, or with `class` those of one of its shared classes: shares by node. From
    /// then on that is the driver's to know; pages of which it says nothing stay where they were touched first.
    pub fn set_home(&mut self, task: u32, class: Option<usize>, shares: &[f64]) {
        let state = &mut self.tasks[task as usize];
        let (home, told) = match class.map(|class| state.groups[class]).filter(|group| *group != NONE) {
            Some(group) => {
                let group = &mut self.groups[group as usize];
                (&mut group.home, &mut group.told)
            }
            None => (&mut state.home, &mut state.told),
        };
        home.copy_from_slice(shares);
        *told = true;
    }

    /// Puts misses of a class, and the exposed part of them, on the nodes that have its pages.
    pub(super) fn spread(
        profile: &Compiled,
        task: &TaskState,
        groups: &[Group],
        class: usize,
        misses: [f64; 2],
        by_node: [&mut [f64]; 2],
    ) {
        let [all, exposed] = by_node;
        let shares = match (&profile.profile.classes[class].home, task.groups[class]) {
            (Home::Interleave, _) => {
                let part = 1.0 / all.len() as f64;
                for (all, exposed) in all.iter_mut().zip(exposed) {
                    *all += misses[0] * part;
                    *exposed += misses[1] * part;
                }
                return;
            }
            (Home::Shares(shares), _) => shares,
            (Home::FirstTouch, NONE) => &task.home,
            (Home::FirstTouch, group) => &groups[group as usize].home,
        };
        for ((all, exposed), share) in all.iter_mut().zip(exposed).zip(shares) {
            *all += misses[0] * share;
            *exposed += misses[1] * share;
        }
    }
}
