//! Teams: tasks of one profile that share their classes with the same groups. What an update of an LLC has to tell their
//! groups, and to know of them, it finds out once for all members who run there.

use warmcore_topology::Relation;

use crate::profile::MAX_CLASSES;

use super::Analytic;
use super::geometry::NONE;
use super::groups::Group;
use super::window::Window;

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
    pub executed: f64,
    /// What sharing is like under the LLC whose speeds are being looked at, if that is known because a member has asked.
    known: Sharing,
    is_known: bool,
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

impl Team {
    /// A member has executed something under the LLC being updated; `present` are the teams that have.
    #[inline]
    pub fn ran(&mut self, number: u32, instructions: f64, present: &mut Present) {
        if self.executed == 0.0 {
            present.push(number);
        }
        self.executed += instructions;
    }

    /// Tells the windows of its groups in an LLC what members have executed.
    pub(crate) fn feed(&self, windows: &mut [Window], groups: &[Group], llc: usize, instructions: f64) {
        for class in &self.classes {
            let slot = groups[class.group as usize].slots[llc] as usize;
            windows[slot].pending += instructions * class.touches;
        }
    }

    /// What sharing is like for members under an LLC with these windows.
    fn sharing(&self, windows: &[Window], groups: &[Group], llc: u32, same_llc_ns: f64) -> Sharing {
        let mut sharing = Sharing::default();
        for class in &self.classes {
            let group = &groups[class.group as usize];
            sharing.misses += class.touches * windows[group.slots[llc as usize] as usize].misses;
            sharing.touch += group.touch;
            if group.is_written() {
                let stall_ns = group.mean_stall_ns(llc, class.write_fraction, same_llc_ns);
                sharing.coherence_ns += class.touches * stall_ns;
            }
        }
        sharing
    }

    /// The same, found out once per look at an LLC; `present` are the teams for which it was.
    #[inline]
    pub(crate) fn known_sharing(
        &mut self,
        number: u32,
        present: &mut Present,
        windows: &[Window],
        groups: &[Group],
        llc: usize,
        same_llc_ns: f64,
    ) -> &Sharing {
        if !self.is_known {
            present.push(number);
            (self.known, self.is_known) = (self.sharing(windows, groups, llc as u32, same_llc_ns), true);
        }
        &self.known
    }

    /// The look at an LLC is over.
    pub(crate) fn forget_sharing(&mut self) {
        self.is_known = false;
    }
}

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
            self.teams.push(Team {
                profile,
                groups,
                classes,
                executed: 0.0,
                known: Sharing::default(),
                is_known: false,
            });
            self.teams.len() - 1
        });
        team as u32
    }

    /// What sharing is like for a team under an LLC.
    pub(super) fn sharing(&self, team: u32, llc: u32) -> Sharing {
        let same_llc_ns = self.hierarchy.transfer_ns[Relation::SameLlc];
        self.teams[team as usize].sharing(&self.llc[llc as usize].windows, &self.groups, llc, same_llc_ns)
    }
}
