//! Teams: tasks of one profile that share their classes with the same groups. What an update of an LLC has to tell their
//! groups, and to know of them, it finds out once for all members who run there.

use warmcore_topology::Relation;

use crate::profile::MAX_CLASSES;

use super::Analytic;
use super::geometry::NONE;

/// One of a team's shared classes.
#[derive(Clone, Copy)]
struct SharedClass {
    group: u32,
    /// Per instruction.
    touches: f64,
    write_fraction: f64,
}

pub(super) struct Team {
    profile: u32,
    /// Group of each class, [`NONE`] of private ones.
    groups: [u32; MAX_CLASSES],
    classes: Vec<SharedClass>,
    /// Instructions that members executed under the LLC being updated and their groups have not been told yet.
    executed: f64,
    /// What sharing is like under the LLC whose speeds are being looked at, once a member has asked.
    known: Option<Sharing>,
}

/// What speeds of a team's members under one LLC depend on.
#[derive(Clone, Copy, Default)]
pub(super) struct Sharing {
    /// LLC misses per instruction of the shared classes.
    pub misses: f64,
    /// Touches per line and nanosecond of all members, over its groups.
    pub touch: f64,
    /// Stall per instruction for lines that others have, without waiting for turns, of one who touches them as often as the
    /// LLC's tasks do on average.
    pub coherence_ns: f64,
}

/// Teams under the LLC being looked at.
pub(super) type Present = Vec<u32>;

impl Analytic {
    /// The team of tasks with this profile and these groups; [`NONE`] if they share nothing.
    pub(super) fn team_of(&mut self, profile: u32, groups: [u32; MAX_CLASSES]) -> u32 {
        let of_profile = &self.profiles[profile as usize];
        let shared = (0..MAX_CLASSES).filter(|&class| groups[class] != NONE);
        let classes: Vec<SharedClass> = shared
            .map(|class| SharedClass {
                group: groups[class],
                touches: of_profile.touches[class],
                write_fraction: of_profile.writes[class],
            })
            .collect();
        if classes.is_empty() {
            return NONE;
        }
        let known = self.teams.iter().position(|team| team.profile == profile && team.groups == groups);
        let team = known.unwrap_or_else(|| {
            self.teams.push(Team { profile, groups, classes, executed: 0.0, known: None });
            self.teams.len() - 1
        });
        team as u32
    }

    /// Tells the windows of a team's groups in an LLC what a member has executed.
    pub(super) fn feed_groups(&mut self, team: u32, llc: usize, instructions: f64) {
        for class in &self.teams[team as usize].classes {
            let slot = self.groups[class.group as usize].slots[llc] as usize;
            self.llc[llc].windows[slot].pending += instructions * class.touches;
        }
    }

    /// Tells all windows of an LLC what its CPUs' tasks have executed.
    pub(super) fn feed_llc(&mut self, llc: usize) {
        let mut present = std::mem::take(&mut self.scratch.present);
        for position in 0..self.geometry.cpus_of_llc[llc].len() {
            let cpu = self.geometry.cpus_of_llc[llc][position] as usize;
            let Some((team, instructions)) = self.feed_private(cpu) else { continue };
            if team == NONE {
                continue;
            }
            let team_state = &mut self.teams[team as usize];
            if team_state.executed == 0.0 {
                present.push(team);
            }
            team_state.executed += instructions;
        }
        for team in present.drain(..) {
            let executed = std::mem::take(&mut self.teams[team as usize].executed);
            self.feed_groups(team, llc, executed);
        }
        self.scratch.present = present;
    }

    /// [`Analytic::sharing`], found out once per team and look at an LLC; `present` are the teams for which it was.
    #[inline]
    pub(super) fn known_sharing(&mut self, team: u32, llc: u32, present: &mut Present) -> Sharing {
        if let Some(known) = self.teams[team as usize].known {
            return known;
        }
        let sharing = self.sharing(team, llc);
        self.teams[team as usize].known = Some(sharing);
        present.push(team);
        sharing
    }

    /// The look at an LLC is over.
    pub(super) fn forget_sharing(&mut self, present: &mut Present) {
        for team in present.drain(..) {
            self.teams[team as usize].known = None;
        }
    }

    /// What sharing is like for a team under an LLC.
    pub(super) fn sharing(&self, team: u32, llc: u32) -> Sharing {
        let windows = &self.llc[llc as usize].windows;
        let same_llc_ns = self.hierarchy.transfer_ns[Relation::SameLlc];
        let mut sharing = Sharing::default();
        for class in &self.teams[team as usize].classes {
            let group = &self.groups[class.group as usize];
            sharing.misses += class.touches * windows[group.slots[llc as usize] as usize].misses;
            sharing.touch += group.touch;
            if group.is_written() {
                let stall_ns = group.mean_stall_ns(llc, class.write_fraction, same_llc_ns);
                sharing.coherence_ns += class.touches * stall_ns;
            }
        }
        sharing
    }
}
