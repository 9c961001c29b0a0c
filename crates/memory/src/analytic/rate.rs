//! From misses to time: cycles per instruction and their shares (`docs/spec/memory-model.md` sections 4.3, 4.5 and
//! 4.8).

use crate::curves::PerClass;
use crate::profile::MAX_CLASSES;

use super::compiled::Compiled;
use super::{MemoryEvent, TimeShare};

/// Overlap of coherence misses on shared lines, where the next load or atomic operation depends on the last (assumed).
/// Private lines that a task left in another cache overlap as its other misses do, and writes to copies that it can read
/// wait in the store buffer: nothing depends on them, and 50 entries outlast a transfer.
pub(super) const COHERENCE_OVERLAP: f64 = 1.5;

/// How much of the miss buffers a stalled sibling takes (assumed).
const SMT_BUFFERS: f64 = 0.25;

/// One of these is full speed: work per time as a fixed-point number.
pub const SPEED_ONE: u32 = 1 << 20;

/// Misses per instruction and class at each level, and what coherence makes of the shared classes.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub l1: PerClass,
    pub l2: PerClass,
    pub llc: PerClass,
    /// Of the L2 misses, those that the L2 the task came from serves, under the same LLC; and writes that had to be
    /// announced to it.
    pub served: PerClass,
    pub announced: PerClass,
    /// Of the LLC misses, those that the LLC the task came from serves; and writes that had to be announced to it.
    pub left_behind: PerClass,
    pub left_announced: PerClass,
    pub left_ns: f64,
    pub left_far: bool,
    pub coherence: [Coherence; MAX_CLASSES],
}

/// Transfers per instruction of one shared class.
#[derive(Clone, Copy, Default)]
pub(super) struct Coherence {
    pub same_llc: f64,
    pub reads: f64,
    pub read_ns: f64,
    /// Share of the reads that cross sockets.
    pub read_far: f64,
    pub writes: f64,
    pub write_ns: f64,
    pub write_far: f64,
    /// Time per transfer spent waiting for the line's turn.
    pub queue_ns: f64,
}

impl Access {
    /// A larger cache misses no more than a smaller one in front of it.
    pub fn order(&mut self) {
        for class in 0..MAX_CLASSES {
            self.l2[class] = self.l2[class].min(self.l1[class]);
            self.llc[class] = self.llc[class].min(self.l2[class]);
        }
    }
}

/// Latencies at a CPU.
pub(super) struct CpuLatencies {
    /// `None` where there is no L2.
    pub l2_ns: Option<f64>,
    pub llc_ns: f64,
    pub same_llc_ns: f64,
}

/// Time and events per instruction, memory by home node apart.
pub(super) struct Components {
    /// Without compute, sibling and memory.
    pub stall_ns: [f64; TimeShare::COUNT],
    pub events: [f64; MemoryEvent::COUNT],
    /// Lines from each node's memory.
    pub memory: Vec<f64>,
    /// The part of them whose latency is exposed: times the latency it is the stall.
    pub memory_exposed: Vec<f64>,
    /// Lines written back per line read.
    pub write_back: f64,
    /// The part of the stalls that is for lines which several tasks use, and for instructions: they overlap little, so that a
    /// sibling thread takes no buffers from them.
    pub communicated_ns: f64,
}

impl Components {
    pub fn new(nodes: usize) -> Self {
        Self {
            stall_ns: [0.0; TimeShare::COUNT],
            events: [0.0; MemoryEvent::COUNT],
            memory: vec![0.0; nodes],
            memory_exposed: vec![0.0; nodes],
            write_back: 0.0,
            communicated_ns: 0.0,
        }
    }

    /// Nothing is touched.
    pub fn clear(&mut self) {
        self.stall_ns.fill(0.0);
        self.communicated_ns = 0.0;
        self.events.fill(0.0);
        self.memory.fill(0.0);
        self.memory_exposed.fill(0.0);
    }

    /// Adds everything up. `spread` puts misses of a class, and the exposed part of them, on home nodes.
    pub fn compose(
        &mut self,
        profile: &Compiled,
        access: &Access,
        place: &CpuLatencies,
        spread: impl Fn(usize, [f64; 2], [&mut [f64]; 2]),
    ) {
        self.clear();
        let l2_ns = place.l2_ns.unwrap_or(0.0);
        let (mut reads, mut write_backs, mut writes_from_memory) = (0.0, 0.0, 0.0);
        let mut stall = self.stall_ns;
        let mut events = self.events;
        let (mut left, mut announced, mut l1_hits, mut told, mut same_llc) = (0.0, 0.0, 0.0, 0.0, 0.0);
        // The part of the transfers that is waited for.
        let (mut left_exposed, mut same_llc_exposed) = (0.0, 0.0);
        // What classes that share their homes get from memory.
        let (mut own, mut own_exposed, mut own_class) = (0.0, 0.0, None);
        for class in 0..profile.count {
            let (a2, a3, a4) = (access.l1[class], access.l2[class], access.llc[class]);
            let exposed = profile.exposed[class];
            stall[TimeShare::L2 as usize] += (a2 - a3) * l2_ns * exposed;
            let served = access.served[class].min(a3 - a4);
            stall[TimeShare::Llc as usize] += (a3 - a4 - served) * place.llc_ns * exposed;
            same_llc += served;
            same_llc_exposed += served * exposed;
            let (near, far) = (access.announced[class], access.left_announced[class]);
            if near + far > 0.0 {
                // A line in both caches of a level is in this one, but may be missing in those in front of it.
                let touches = profile.touches[class];
                let missing = |misses: f64, good: f64| (misses / good.max(1e-12)).clamp(0.0, 1.0);
                let near_missed = near * missing(a3 - served, touches - served);
                let far_missed = far * missing(a3 - a4, touches - a4);
                l1_hits += (near + far) * (1.0 - missing(a2 - a3, touches - a3));
                announced += near + far - near_missed - far_missed;
                same_llc += near;
                told += far;
                let missed = (near_missed + far_missed).min(a3 - a4 - served);
                stall[TimeShare::Llc as usize] -= missed * exposed * place.llc_ns;
                let near_part = if missed > 0.0 { near_missed / (near_missed + far_missed) } else { 0.0 };
                same_llc_exposed += missed * exposed * near_part;
                left_exposed += missed * exposed * (1.0 - near_part);
            }
            events[MemoryEvent::L1Miss as usize] += a2;
            events[MemoryEvent::L2Miss as usize] += a3;
            events[MemoryEvent::L3Miss as usize] += a4;
            let moved = access.left_behind[class].min(a4);
            left += moved;
            events[MemoryEvent::L3RfoOtherLlc as usize] += moved * profile.writes[class];
            left_exposed += moved * exposed;
            let from_memory = a4 - moved;
            if from_memory > 0.0 {
                if profile.own_home[class] {
                    own += from_memory;
                    own_exposed += from_memory * exposed;
                    own_class = Some(class);
                } else {
                    let by_node = [&mut self.memory[..], &mut self.memory_exposed[..]];
                    spread(class, [from_memory, from_memory * exposed], by_node);
                }
                reads += from_memory;
                writes_from_memory += from_memory * profile.writes[class];
                // A line is written back if any touch while it was here wrote it.
                let touches = profile.touches[class] / from_memory;
                write_backs += from_memory * (profile.writes[class] * touches).min(1.0);
            }
            if profile.shared[class] {
                let transfers = &access.coherence[class];
                let exposed = profile.transfer_exposed[class];
                self.communicated_ns += add_coherence(transfers, exposed, place, &mut stall, &mut events);
            }
        }
        if let Some(class) = own_class {
            spread(class, [own, own_exposed], [&mut self.memory[..], &mut self.memory_exposed[..]]);
        }
        if profile.has_code() {
            self.communicated_ns += count_code(profile, access, place, &mut events);
        }
        events[MemoryEvent::L1Miss as usize] += l1_hits;
        events[MemoryEvent::L2Miss as usize] += announced;
        events[MemoryEvent::C2cSameLlc as usize] += same_llc;
        stall[TimeShare::Llc as usize] += same_llc_exposed * place.same_llc_ns;
        events[MemoryEvent::L3RfoOtherLlc as usize] += told;
        left += told;
        if left > 0.0 {
            let (share, event) = if access.left_far {
                (TimeShare::OtherSocket, MemoryEvent::C2cOtherSocket)
            } else {
                (TimeShare::OtherLlc, MemoryEvent::C2cOtherLlc)
            };
            stall[share as usize] += left_exposed * access.left_ns;
            events[event as usize] += left;
        }
        events[MemoryEvent::L3RfoMiss as usize] = events[MemoryEvent::L3RfoOtherLlc as usize] + writes_from_memory;
        events[MemoryEvent::L2Access as usize] =
            place.l2_ns.map_or(0.0, |_| events[MemoryEvent::L1Miss as usize] + events[MemoryEvent::L1iMiss as usize]);
        events[MemoryEvent::L3Access as usize] = events[MemoryEvent::L2Miss as usize];
        self.stall_ns = stall;
        self.events = events;
        self.write_back = if reads > 0.0 { write_backs / reads } else { 0.0 };
    }
}

/// Counts misses of classes of code with those of the L1 for instructions. Returns the stall for what the caches behind it serve: it is
/// not shorter for buffers that a sibling leaves.
fn count_code(
    profile: &Compiled,
    access: &Access,
    place: &CpuLatencies,
    events: &mut [f64; MemoryEvent::COUNT],
) -> f64 {
    let mut stall_ns = 0.0;
    for class in profile.first_code..profile.count {
        let (a2, a3, a4) = (access.l1[class], access.l2[class], access.llc[class]);
        let Coherence { same_llc, reads, writes, .. } = access.coherence[class];
        let misses = a2 + same_llc + reads + writes;
        events[MemoryEvent::L1iMiss as usize] += misses;
        events[MemoryEvent::L1Miss as usize] = (events[MemoryEvent::L1Miss as usize] - misses).max(0.0);
        let served_ns = (a2 - a3) * place.l2_ns.unwrap_or(0.0) + (a3 - a4) * place.llc_ns;
        stall_ns += served_ns * profile.exposed[class];
    }
    stall_ns
}

/// Adds the transfers of one shared class, of whose time the part `per_transfer` is waited for. Returns the stall.
fn add_coherence(
    coherence: &Coherence,
    per_transfer: f64,
    place: &CpuLatencies,
    stall: &mut [f64; TimeShare::COUNT],
    events: &mut [f64; MemoryEvent::COUNT],
) -> f64 {
    let (reads, writes) = (coherence.reads, coherence.writes);
    let near_ns = coherence.same_llc * place.same_llc_ns * per_transfer;
    stall[TimeShare::Llc as usize] += near_ns;
    let far_reads = reads * coherence.read_far;
    let far_writes = writes * coherence.write_far;
    let read_ns = coherence.read_ns * per_transfer;
    let write_ns = coherence.write_ns * per_transfer;
    stall[TimeShare::OtherSocket as usize] += far_reads * read_ns + far_writes * write_ns;
    stall[TimeShare::OtherLlc as usize] += (reads - far_reads) * read_ns + (writes - far_writes) * write_ns;
    let transfers = coherence.same_llc + reads + writes;
    let queue_ns = transfers * coherence.queue_ns;
    stall[TimeShare::HotLines as usize] += queue_ns;
    events[MemoryEvent::L1Miss as usize] += transfers;
    events[MemoryEvent::L2Miss as usize] += transfers;
    events[MemoryEvent::L3Miss as usize] += reads;
    events[MemoryEvent::L3RfoOtherLlc as usize] += writes;
    events[MemoryEvent::C2cSameLlc as usize] += coherence.same_llc;
    events[MemoryEvent::C2cOtherSocket as usize] += far_reads + far_writes;
    events[MemoryEvent::C2cOtherLlc as usize] += reads - far_reads + writes - far_writes;
    near_ns + reads * read_ns + writes * write_ns + queue_ns
}

/// The speed in force on a CPU, and what its time goes to.
#[derive(Clone, Copy, Default)]
pub(super) struct Rate {
    /// Instructions per nanosecond.
    pub x: f64,
    /// Nanoseconds per instruction by share; together 1 / x.
    pub ns: [f64; TimeShare::COUNT],
    /// Part of the time in which the core is not stalled.
    pub busy: f64,
    /// Work per time, [`SPEED_ONE`] = nominal.
    pub speed: u32,
}

/// What a CPU's speed is made of before its sibling is looked at.
#[derive(Clone, Copy, Default)]
pub(super) struct Alone {
    pub compute_ns: f64,
    /// Stalls by share, memory included.
    pub stall_ns: [f64; TimeShare::COUNT],
    /// See [`Components::communicated_ns`].
    pub communicated_ns: f64,
}

impl Alone {
    /// The rate of a task with so many misses in flight beside siblings that are busy `sibling_busy` of the time together;
    /// `None` if there are none running. `slowdown`: [`Hierarchy::smt_slowdown`](crate::Hierarchy::smt_slowdown).
    pub fn beside(&self, sibling_busy: Option<f64>, slowdown: f64, mlp: f64, nominal: f64) -> Rate {
        let mut ns = self.stall_ns;
        let stall: f64 = self.stall_ns.iter().sum();
        let (slower, fewer_buffers) = match sibling_busy {
            None => (0.0, 0.0),
            Some(busy) => {
                // Who has one miss in flight needs one buffer.
                let taken = (SMT_BUFFERS * (1.0 - busy.min(1.0))).min(1.0 - 1.0 / mlp);
                let overlapping = (stall - self.communicated_ns).max(0.0);
                (self.compute_ns * slowdown * busy, overlapping * taken / (1.0 - taken))
            }
        };
        ns[TimeShare::Compute as usize] = self.compute_ns;
        ns[TimeShare::Smt as usize] = slower + fewer_buffers;
        let total = self.compute_ns + stall + slower + fewer_buffers;
        let x = 1.0 / total;
        let speed = (x / nominal * f64::from(SPEED_ONE)).clamp(1.0, f64::from(u32::MAX / 2));
        Rate { x, ns, busy: ((self.compute_ns + slower) / total).min(1.0), speed: (speed + 0.5) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/spec/memory-model.md` section 4.5: mlp' = mlp (1 − 0.25 (1 − b)), and 4.8: transfers of shared lines are
    /// divided by mlp_c.
    #[test]
    fn a_stalled_sibling_takes_buffers_from_misses_that_overlap_and_from_no_others() {
        let mut alone = Alone { compute_ns: 1.0, ..Alone::default() };
        alone.stall_ns[TimeShare::DramLocal as usize] = 3.0;
        let smt = |alone: &Alone, mlp: f64| alone.beside(Some(0.0), 0.65, mlp, 1.0).ns[TimeShare::Smt as usize];
        let lost = smt(&alone, 4.0);
        assert!(
            (lost - 1.0).abs() < 1e-12,
            "3 ns of stalls with three quarters of the buffers are 4 ns, not 1 + {lost}"
        );
        assert_eq!(smt(&alone, 1.0), 0.0, "one miss in flight needs one buffer");
        alone.communicated_ns = 3.0;
        assert_eq!(smt(&alone, 4.0), 0.0, "transfers of shared lines");
    }
}
