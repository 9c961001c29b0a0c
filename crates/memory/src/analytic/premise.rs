//! What a speed was evaluated for, and whether that still holds: an update of an LLC need not evaluate those for whom
//! nothing moved.
//!
//! The test sums up how many nanoseconds per instruction each premise's change is worth, none of them setting another
//! off; below [`TOLERANCE`] of the task's time the speed stays in force. Errors do not add up over updates, since the
//! premises are those of the last evaluation.

use super::counters::TimeShare;
use super::{Analytic, IDLE};

/// Relative change of a speed that is not worth an evaluation.
const TOLERANCE: f64 = 0.005;

/// Relative change of a group's touches that those look at who wait for its lines.
const HOT_TOLERANCE: f64 = 0.02;

/// Premises of a CPU's speed.
#[derive(Clone, Copy, Default)]
pub(super) struct Premise {
    /// LLC misses per instruction of the private classes, least and most until the next review.
    misses: (f64, f64),
    /// Capacity of the LLC by lines that running tasks hold in it or want.
    crowd: f64,
    /// Change of the LLC misses per instruction by relative change of `crowd`.
    slope: f64,
    /// Stall for others' lines, without waiting for turns.
    coherence_ns: f64,
    sharing: Sharing,
}

/// What tells whether a task's groups are what they were.
#[derive(Clone, Copy, Default)]
struct Sharing {
    /// LLC misses per instruction of the shared classes.
    misses: f64,
    /// Touches per line and nanosecond of all members, over its groups.
    touch: f64,
    /// Sum of the numbers of the groups' standings, which only grow: as long as it is the same, rates are within 0.2 %.
    standings: u64,
}

impl Premise {
    /// Premises of a task without sharing: its misses at the beginning and the end of the time looked at.
    #[inline]
    pub fn new(misses: (f64, f64), crowd: f64, slope: f64) -> Self {
        let misses = (misses.0.min(misses.1), misses.0.max(misses.1));
        Self { misses, crowd, slope, ..Self::default() }
    }
}

impl Analytic {
    /// Adds to the premises of a CPU's speed what its groups are like.
    pub(super) fn complete_premise(&mut self, index: usize) {
        let task = self.cpus[index].task as usize;
        if self.profiles[self.tasks[task].profile as usize].any_shared {
            let (sharing, coherence_ns) = (self.sharing(index), self.coherence_ns(index));
            let premise = &mut self.cpus[index].premise;
            (premise.sharing, premise.coherence_ns) = (sharing, coherence_ns);
        }
    }

    fn sharing(&self, index: usize) -> Sharing {
        let task = &self.tasks[self.cpus[index].task as usize];
        let profile = &self.profiles[task.profile as usize];
        let llc = self.geometry.llc[index] as usize;
        let windows = &self.llc[llc].windows;
        let mut sharing = Sharing::default();
        for (class, group) in task.shared_classes() {
            let group = &self.groups[group as usize];
            sharing.misses += profile.touches[class] * windows[group.slots[llc] as usize].misses;
            sharing.touch += group.touch;
            sharing.standings += group.standing.number;
        }
        sharing
    }

    /// The stall per instruction for lines that others have.
    fn coherence_ns(&self, index: usize) -> f64 {
        let state = &self.cpus[index];
        let task = &self.tasks[state.task as usize];
        let profile = &self.profiles[task.profile as usize];
        let llc = self.geometry.llc[index];
        let same_llc_ns = self.hierarchy.transfer_ns[warmcore_topology::Relation::SameLlc];
        let mut stall_ns = 0.0;
        for (class, group) in task.shared_classes() {
            let group = &self.groups[group as usize];
            if !group.is_written() {
                continue;
            }
            let (domain, w) = (&group.domains[llc as usize], profile.writes[class]);
            let race = group.race(llc, state.registered[class], (0.0, 0.0));
            stall_ns += profile.touches[class]
                * (w * (race.write_domain * domain.write_ns + (race.write_private - race.write_domain) * same_llc_ns)
                    + (1.0 - w)
                        * (race.read_domain * domain.read_ns
                            + (race.read_private - race.read_domain - race.read_llc) * same_llc_ns));
        }
        stall_ns
    }

    /// Whether the CPU's speed would hardly change if it were evaluated again, its own progress apart.
    pub(super) fn is_settled(&self, index: usize) -> bool {
        let state = &self.cpus[index];
        debug_assert_ne!(state.task, IDLE);
        let (llc, node) = (self.geometry.llc[index], self.geometry.node[index]);
        let (cache, premise) = (&self.llc[llc as usize], &state.premise);
        let memory_ns = self.geometry.local_ns[index];
        let misses = cache.windows[state.llc_slot as usize].misses;
        let outside = (misses - premise.misses.1).max(premise.misses.0 - misses).max(0.0);
        let crowd = cache.capacity / cache.running_lines.max(1.0);
        // Where the cache has room to spare, how much does not matter.
        let moved = (crowd.min(8.0) / premise.crowd.clamp(1e-9, 8.0) - 1.0).abs();
        let mut change_ns = memory_ns * (outside + premise.slope * moved);
        let profile = &self.profiles[self.tasks[state.task as usize].profile as usize];
        if profile.any_shared {
            let (sharing, then) = (self.sharing(index), &premise.sharing);
            let waits = state.rate.ns[TimeShare::HotLines as usize] > 0.0;
            if waits && (sharing.touch - then.touch).abs() > HOT_TOLERANCE * then.touch {
                return false;
            }
            change_ns += (sharing.misses - then.misses).abs() * memory_ns;
            if sharing.standings != then.standings {
                change_ns += (self.coherence_ns(index) - premise.coherence_ns).abs();
            }
        }
        let shares = [TimeShare::DramLocal, TimeShare::DramRemote, TimeShare::Bandwidth];
        let stall_ns: f64 = shares.iter().map(|share| state.alone.stall_ns[*share as usize]).sum();
        if stall_ns > 0.0 {
            let mut loaded_ns = 0.0;
            for (home, exposed) in state.components.memory_exposed.iter().enumerate() {
                if *exposed > 0.0 {
                    let idle_ns = exposed * self.hierarchy.memory_ns[node as usize][home];
                    loaded_ns += idle_ns * self.bandwidth.factor(node, llc, home);
                }
            }
            change_ns += (loaded_ns - stall_ns).abs();
        }
        change_ns * state.rate.x < TOLERANCE
    }
}
