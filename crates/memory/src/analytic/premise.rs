//! What a speed was evaluated for, and whether that still holds: an update of an LLC need not evaluate those for whom
//! nothing moved.
//!
//! The test sums up how many nanoseconds per instruction each premise's change is worth, none of them setting another
//! off; below [`TOLERANCE`] of the task's time the speed stays in force. Errors do not add up over updates, since the
//! premises are those of the last evaluation.

use super::counters::TimeShare;
use super::geometry::NONE;
use super::teams::{Present, Sharing};
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
    sharing: Sharing,
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
        let team = self.tasks[self.cpus[index].task as usize].team;
        if team != NONE {
            self.cpus[index].premise.sharing = self.sharing(team, self.geometry.llc[index]);
        }
    }

    /// Whether the CPU's speed would hardly change if it were evaluated again, its own progress apart.
    /// `present` are the LLC's teams looked at so far.
    pub(super) fn is_settled(&mut self, index: usize, present: &mut Present) -> bool {
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
        let team = self.tasks[state.task as usize].team;
        if team != NONE {
            let (sharing, then) = (self.known_sharing(team, llc, present), &self.cpus[index].premise.sharing);
            let waits = self.cpus[index].rate.ns[TimeShare::HotLines as usize] > 0.0;
            if waits && (sharing.touch - then.touch).abs() > HOT_TOLERANCE * then.touch {
                return false;
            }
            change_ns += (sharing.misses - then.misses).abs() * memory_ns;
            change_ns += (sharing.coherence_ns - then.coherence_ns).abs();
        }
        let state = &self.cpus[index];
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
