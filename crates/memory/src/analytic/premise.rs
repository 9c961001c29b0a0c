//! What a speed was evaluated for, and whether that still holds: an update of an LLC need not evaluate those for whom
//! nothing moved.
//!
//! The test sums up how many nanoseconds per instruction each premise's change is worth, none of them setting another
//! off; below [`TOLERANCE`] of the task's time the speed stays in force. Errors do not add up over updates, since the
//! premises are those of the last evaluation.

use warmcore_topology::Relation;

use crate::math::most;

use super::counters::TimeShare;
use super::geometry::NONE;
use super::teams::{Present, Sharing};
use super::{Analytic, CpuState};

/// Relative change of a speed that is not worth an evaluation.
const TOLERANCE: f64 = 0.005;

/// Relative change of a group's touches that those look at who wait for its lines.
const HOT_TOLERANCE: f64 = 0.02;

/// Where the cache has so many times the room that is wanted, how much does not matter.
const ROOMY: f64 = 8.0;

/// Premises of a CPU's speed.
#[derive(Clone, Copy, Default)]
pub(super) struct Premise {
    /// LLC misses per instruction of the private classes, least and most until the next review.
    misses: (f64, f64),
    /// Memory of the CPU's own node when idle: what a miss costs.
    miss_ns: f64,
    /// Lines that running tasks hold in the LLC or want, by its capacity.
    crowd: f64,
    /// Change of the time for LLC misses per instruction by relative change of the room.
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

/// Lines wanted by lines of room, where that matters.
fn crowd(room: f64) -> f64 {
    1.0 / room.clamp(1e-9, ROOMY)
}

impl Premise {
    /// Premises of a task without sharing: its misses at the beginning and the end of the time looked at, the capacity of the
    /// LLC by lines that are held in it or wanted, and the change of misses by relative change of that.
    #[inline]
    pub fn new(misses: (f64, f64), miss_ns: f64, room: f64, slope: f64) -> Self {
        let misses = (misses.0.min(misses.1), misses.0.max(misses.1));
        Self { misses, miss_ns, crowd: crowd(room), slope_ns: slope * miss_ns, ..Self::default() }
    }
}

impl CpuState {
    /// Whether the speed would hardly change if it were evaluated again, its own progress apart: with these LLC misses per
    /// instruction of private classes, lines of room by lines wanted, and what sharing is like.
    #[inline]
    fn is_settled(&self, misses: f64, room: f64, sharing: &Sharing) -> bool {
        let (premise, then) = (&self.premise, &self.premise.sharing);
        let outside = most(most(misses - premise.misses.1, premise.misses.0 - misses), 0.0);
        let misses_ns = (outside + (sharing.misses - then.misses).abs()) * premise.miss_ns;
        let room_ns = premise.slope_ns * (room * premise.crowd - 1.0).abs();
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
                let memory_ns: f64 = exposed.map(|(exposed, ns)| exposed * ns).sum();
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
