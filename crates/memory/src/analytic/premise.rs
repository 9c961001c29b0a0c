//! What a speed was evaluated for, and whether that still holds: an update of an LLC need not evaluate those for whom
//! nothing moved.
//!
//! The test sums up how many nanoseconds per instruction each premise's change is worth, none of them setting another
//! off; below [`TOLERANCE`] of the task's time the speed stays in force. Errors do not add up over updates, since the
//! premises are those of the last evaluation.

use warmcore_topology::Relation;

use crate::math::{least, most};

use super::TimeShare;
use super::geometry::NONE;
use super::teams::{Present, Sharing};
use super::{Analytic, CpuState};

/// Relative change of a speed that is not worth an evaluation.
const TOLERANCE: f64 = 0.005;

/// Relative change of a group's touches that those look at who wait for its lines.
const HOT_TOLERANCE: f64 = 0.02;

/// Where the cache has so many times the room that is wanted, how much does not matter.
const ROOMY: f64 = 8.0;

/// Least and most of something until the next review.
#[derive(Clone, Copy, Default)]
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    #[inline]
    fn between(a: f64, b: f64) -> Self {
        Self { least: least(a, b), most: most(a, b) }
    }

    fn include(&mut self, value: f64) {
        *self = Self { least: least(self.least, value), most: most(self.most, value) };
    }

    /// How far a number is outside.
    #[inline]
    fn outside(&self, value: f64) -> f64 {
        most(most(value - self.most, self.least - value), 0.0)
    }
}

/// Premises of a CPU's speed.
#[derive(Clone, Copy, Default)]
pub(super) struct Premise {
    /// LLC misses per instruction of the private and of the shared classes.
    misses: Range,
    shared_misses: Range,
    /// Memory of the CPU's own node when idle: what a miss costs.
    miss_ns: f64,
    /// Capacity of the LLC by lines that running tasks hold in it or want, and the change of the time for LLC misses per
    /// instruction by that of it.
    room: Range,
    slope_ns: f64,
    sharing: Sharing,
    /// Most that the touches of its groups may change, if it waits for their lines.
    touch_tolerance: f64,
    /// Stall per instruction for memory, and by how much that was another one after this solution of the bandwidth equations.
    memory_ns: f64,
    memory_change_ns: f64,
    solution: u64,
}

/// What a look at an LLC finds out.
#[derive(Default)]
pub(super) struct Look {
    /// CPUs whose speeds are to be evaluated.
    pub unsettled: Vec<u32>,
    /// Teams of which it is known what sharing is like.
    present: Present,
    /// Latencies of memory as loaded as it is now, by home node, for CPUs of `node`.
    latency_ns: Vec<f64>,
    node: Option<u32>,
}

/// What an evaluation expects of the LLC, now and at the end of the time that it looks at.
pub(super) struct Expected {
    /// LLC misses per instruction of the private classes; of the shared ones only those at the end.
    pub misses: (f64, f64),
    pub shared_misses: f64,
    /// Capacity by lines that running tasks hold or want.
    pub room: (f64, f64),
    /// Change of the misses per instruction by relative change of the room.
    pub slope: f64,
}

impl Premise {
    /// Premises of a task's own where an LLC miss costs `miss_ns`.
    #[inline]
    pub fn new(expected: &Expected, miss_ns: f64) -> Self {
        let room = Range::between(least(expected.room.0, ROOMY), least(expected.room.1, ROOMY));
        Self {
            misses: Range::between(expected.misses.0, expected.misses.1),
            shared_misses: Range::between(expected.shared_misses, expected.shared_misses),
            miss_ns,
            room,
            slope_ns: expected.slope * miss_ns / most(room.least, 1e-9),
            ..Self::default()
        }
    }
}

impl CpuState {
    /// Whether the speed would hardly change if it were evaluated again, its own progress apart: with these LLC misses per
    /// instruction of private classes, lines of room by lines wanted, and what sharing is like.
    #[inline]
    fn is_settled(&self, misses: f64, room: f64, sharing: &Sharing) -> bool {
        let (premise, then) = (&self.premise, &self.premise.sharing);
        let misses = premise.misses.outside(misses) + premise.shared_misses.outside(sharing.misses);
        let (misses_ns, room_ns) = (misses * premise.miss_ns, premise.room.outside(room) * premise.slope_ns);
        let coherence_ns = (sharing.coherence_ns - then.coherence_ns).abs();
        let change_ns = misses_ns + room_ns + coherence_ns + premise.memory_change_ns;
        change_ns * self.rate.x < TOLERANCE && (sharing.touch - then.touch).abs() <= premise.touch_tolerance
    }
}

impl Analytic {
    /// Adds to the premises of a CPU's speed what its groups are like, and the load of memory.
    pub(super) fn complete_premise(&mut self, index: usize) {
        let team = self.cpus[index].team;
        let sharing = if team == NONE { Sharing::default() } else { self.sharing(team, self.geometry.llc[index]) };
        let state = &mut self.cpus[index];
        let waits = state.rate.ns[TimeShare::HotLines as usize] > 0.0;
        state.premise.touch_tolerance = if waits { HOT_TOLERANCE * sharing.touch } else { f64::INFINITY };
        state.premise.shared_misses.include(sharing.misses);
        state.premise.sharing = sharing;
        let shares = [TimeShare::DramLocal, TimeShare::DramRemote, TimeShare::Bandwidth];
        state.premise.memory_ns = shares.iter().map(|share| state.alone.stall_ns[*share as usize]).sum();
        state.premise.solution = self.bandwidth.solved;
    }

    /// Lists the CPUs under an LLC whose speeds no longer fit what they were evaluated for.
    pub(super) fn list_unsettled(&mut self, llc: usize, look: &mut Look) {
        look.node = None;
        let cache = &self.llc[llc];
        let room = (cache.capacity / cache.running_lines.max(1.0)).min(ROOMY);
        let same_llc_ns = self.hierarchy.transfer_ns[Relation::SameLlc];
        for &cpu in &self.geometry.cpus_of_llc[llc] {
            let state = &mut self.cpus[cpu as usize];
            // Who has just come is evaluated before it executes anything.
            if !state.touches_memory() || state.paused || state.came_ns.is_some() {
                continue;
            }
            if state.premise.solution != self.bandwidth.solved {
                let node = self.geometry.node[cpu as usize];
                if look.node != Some(node) {
                    look.node = Some(node);
                    look.latency_ns.clear();
                    let idle = self.hierarchy.memory_ns[node as usize].iter().enumerate();
                    look.latency_ns.extend(idle.map(|(home, ns)| ns * self.bandwidth.factor(node, llc as u32, home)));
                }
                let exposed = state.components.memory_exposed.iter().zip(&look.latency_ns);
                let memory_ns =
                    exposed.map(|(exposed, ns)| exposed * ns).sum::<f64>() * self.bandwidth.near_factor(cpu);
                state.premise.memory_change_ns = (memory_ns - state.premise.memory_ns).abs();
                state.premise.solution = self.bandwidth.solved;
            }
            let misses = cache.windows[state.llc_slot as usize].misses;
            let settled = if state.team == NONE {
                state.is_settled(misses, room, &state.premise.sharing)
            } else {
                let team = &mut self.teams[state.team as usize];
                let windows = &cache.windows;
                let present = &mut look.present;
                state.is_settled(
                    misses,
                    room,
                    team.known_sharing(state.team, present, windows, &self.groups, llc, same_llc_ns),
                )
            };
            if !settled {
                look.unsettled.push(cpu);
            }
        }
        for team in look.present.drain(..) {
            self.teams[team as usize].forget_sharing();
        }
    }
}
