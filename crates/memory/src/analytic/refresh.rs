//! Bringing caches, groups and memory up to date, at most every so often (`docs/spec/memory-model.md` section 4.10).

use warmcore_topology::CpuId;

use crate::hierarchy::Fill;

use super::bandwidth::Stream;
use super::geometry::NONE;
use super::premise::Look;
use super::tasks::{L2Curves, Level, LlcCurves};
use super::teams::Present;
use super::window::Owner;
use super::{Analytic, BANDWIDTH_IDLE_NS, BANDWIDTH_NS, IDLE, IN_USE, REFRESH_NS, SLOW_REFRESH_NS};
use super::{MemoryEvent, TimeShare};

/// An LLC of which 8 % are filled in this time is not updated but when tasks come or go.
const SLOWEST_UPDATE_NS: f64 = 5e6;

/// Demands that differ by less are the last solution's. A solution changes demands, so the next one follows until they rest.
const SAME_DEMAND: f64 = 0.002;

/// Reused between calls.
#[derive(Default)]
pub(super) struct Scratch {
    streams: Vec<Stream>,
    exposed: Vec<f64>,
    bytes: Vec<f64>,
    /// Bytes per nanosecond from each node to each, then through each limited port below the LLCs, now and at the last solution.
    demand: Vec<f64>,
    solved_demand: Vec<f64>,
    /// Teams under the LLC being updated.
    present: Present,
    look: Look,
    /// LLCs that are due.
    due: Vec<usize>,
}

impl Analytic {
    /// The LLC is to be brought up to date when its last time is `period_ns` ago.
    pub(super) fn mark_dirty(&mut self, now_ns: u64, llc: usize, period_ns: u64) {
        let at = (self.llc[llc].updated_ns + period_ns.clamp(REFRESH_NS, SLOW_REFRESH_NS)).max(now_ns);
        if at < self.llc_due_ns[llc] {
            self.llc_due_ns[llc] = at;
            self.due_ns = self.due_ns.min(at);
        }
    }

    /// A task has come to the CPU: where memory was not in use and is by those that have come, its load is found soon.
    pub(super) fn expect_demand(&mut self, now_ns: u64, index: usize) {
        let state = &self.cpus[index];
        let lines: f64 = state.components.memory.iter().sum();
        self.come_demand += lines * f64::from(self.hierarchy.line_bytes) * state.rate.x;
        let at = self.bandwidth_earliest_ns.max(now_ns);
        if at < self.bandwidth_due_ns && self.come_demand > IN_USE * self.least_bandwidth {
            self.bandwidth_due_ns = at;
            self.due_ns = self.due_ns.min(at);
        }
    }

    /// Brings an L2 up to date.
    pub(super) fn update_l2(&mut self, now_ns: u64, l2: u32) {
        for position in 0..self.geometry.cpus_of_l2[l2 as usize].len() {
            self.feed_l2(self.geometry.cpus_of_l2[l2 as usize][position] as usize);
        }
        let curves = L2Curves { tasks: &self.tasks, profiles: &self.profiles };
        let cpus = &self.cpus;
        self.l2[l2 as usize].update(now_ns, &curves, |owner| {
            // Those who run here are few and change often: their present speed is what counts.
            let Owner::Task { task, .. } = owner else { return None };
            let cpu = self.tasks[task as usize].running_on?;
            Some(cpus[cpu as usize].rate.x)
        });
        self.forget_faded(Level::L2, l2);
    }

    /// The CPUs whose running time must be reported before [`Analytic::refresh`], into `cpus`.
    pub fn due_cpus(&mut self, now_ns: u64, cpus: &mut Vec<CpuId>) {
        cpus.clear();
        if now_ns >= self.bandwidth_due_ns {
            self.solve_bandwidth(now_ns);
        }
        for llc in 0..self.llc.len() {
            if self.llc_due_ns[llc] <= now_ns {
                let touching = self.geometry.cpus_of_llc[llc].iter();
                let touching = touching.filter(|&&cpu| self.cpus[cpu as usize].touches_memory());
                cpus.extend(touching.map(|&cpu| CpuId(cpu)));
            }
        }
    }

    /// Brings everything that is due up to date. CPUs whose speed changed are listed for [`Analytic::take_changed`].
    pub fn refresh(&mut self, now_ns: u64) {
        let mut next = self.bandwidth_due_ns;
        let mut due = std::mem::take(&mut self.scratch.due);
        due.clear();
        due.extend((0..self.llc.len()).filter(|&llc| self.llc_due_ns[llc] <= now_ns));
        // All windows first: what a group has in one LLC its members in the others look at.
        for &llc in &due {
            self.update_llc(now_ns, llc);
        }
        for &llc in &due {
            self.refresh_speeds(now_ns, llc);
        }
        self.scratch.due = due;
        for &at in &self.llc_due_ns {
            next = next.min(at);
        }
        self.due_ns = next.max(now_ns + 1);
    }

    /// Steps the windows of an LLC.
    fn update_llc(&mut self, now_ns: u64, llc: usize) {
        let mut present = std::mem::take(&mut self.scratch.present);
        self.feed_llc(llc, &mut present);
        self.scratch.present = present;
        if self.hierarchy.fill[llc] == Fill::Victim {
            let in_front: f64 = self.geometry.l2s_of_llc[llc].iter().map(|&l2| self.l2[l2 as usize].held_lines()).sum();
            let vacancy = &self.llc_vacancy[self.geometry.llc_kind[llc] as usize];
            let filled = vacancy.filled(self.llc_miss_ratio(llc));
            // Misses follow from the room and the room from the misses: half a step at a time, or they would swing.
            let part = &mut self.llc_filled[llc];
            *part = if *part > 0.0 { 0.5 * (*part + filled) } else { filled };
            self.llc[llc].capacity = *part * self.hierarchy.llc[llc].lines as f64 + in_front;
        }
        let curves = LlcCurves { profiles: &self.profiles, groups: &self.groups, llc: llc as u32 };
        self.llc[llc].update(now_ns, &curves, |_| None);
        self.forget_faded(Level::Llc, llc as u32);
        self.note_held(now_ns, llc);
    }

    /// Sets the speeds anew that an update of the LLC has moved.
    fn refresh_speeds(&mut self, now_ns: u64, llc: usize) {
        // While lines are filled the state moves on though nobody comes or goes.
        let period_ns = 4.0 * self.llc[llc].patience_ns(0.0);
        self.llc_due_ns[llc] = if period_ns < SLOWEST_UPDATE_NS {
            now_ns + period_ns.max(2.0 * REFRESH_NS as f64) as u64
        } else {
            u64::MAX
        };
        self.refresh_groups(now_ns, llc);
        let mut look = std::mem::take(&mut self.scratch.look);
        self.list_unsettled(llc, &mut look);
        for cpu in look.unsettled.drain(..) {
            let old = self.cpus[cpu as usize].rate.speed;
            self.evaluate(now_ns, CpuId(cpu), None);
            if self.cpus[cpu as usize].rate.speed != old {
                self.list_changed(cpu as usize);
            }
        }
        self.scratch.look = look;
    }

    /// Part of the running tasks' L2 misses that the LLC misses too.
    fn llc_miss_ratio(&self, llc: usize) -> f64 {
        let (mut misses, mut accesses) = (0.0, 1e-12);
        for &cpu in &self.geometry.cpus_of_llc[llc] {
            let state = &self.cpus[cpu as usize];
            if state.task != IDLE {
                misses += state.components.events[MemoryEvent::L3Miss as usize] * state.rate.x;
                accesses += state.components.events[MemoryEvent::L2Miss as usize] * state.rate.x;
            }
        }
        misses / accesses
    }

    /// Notes what an LLC holds of the groups' lines.
    fn note_held(&mut self, now_ns: u64, llc: usize) {
        for group in &mut self.groups {
            if group.slots[llc] != NONE {
                let slot = group.slots[llc] as usize;
                let lines = self.llc[llc].lines_at(slot, now_ns, |n| group.at(llc as u32, n).lines);
                group.standing.hold(llc, lines / group.lines);
            }
        }
    }

    /// Latency mixes of all groups with members in an LLC.
    fn refresh_groups(&mut self, now_ns: u64, llc: usize) {
        for group in 0..self.groups.len() {
            if self.groups[group].domains[llc].members > 0 {
                self.mix_group(now_ns, group, llc);
            }
        }
    }

    /// Latency mixes of a group's members in an LLC.
    pub(super) fn mix_group(&mut self, now_ns: u64, group: usize, llc: usize) {
        let group = &mut self.groups[group];
        group.decay(now_ns);
        if group.is_mix_old(llc, &self.geometry) {
            group.mix(llc, &self.geometry);
            if group.slots[llc] != NONE {
                self.llc[llc].reshape(group.slots[llc] as usize);
            }
        }
    }

    /// Solves for the load of memory and links; everybody is due if it moved.
    fn solve_bandwidth(&mut self, now_ns: u64) {
        let nodes = self.hierarchy.memory_ns.len();
        let line = f64::from(self.hierarchy.line_bytes);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.streams.clear();
        scratch.exposed.clear();
        scratch.bytes.clear();
        scratch.demand.clear();
        let near = if self.bandwidth.near_ports(0).is_empty() { 0 } else { self.bandwidth.resources() };
        scratch.demand.resize(nodes * nodes + near, 0.0);
        let mut demand = 0.0;
        for (index, cpu) in self.cpus.iter().enumerate() {
            let lines: f64 = if cpu.task == IDLE || cpu.paused { 0.0 } else { cpu.components.memory.iter().sum() };
            if lines <= 0.0 {
                continue;
            }
            demand += lines * line * cpu.rate.x;
            for port in self.bandwidth.near_ports(index as u32) {
                scratch.demand[nodes * nodes + *port as usize] += lines * line * cpu.rate.x;
            }
            let node = self.geometry.node[index];
            let memory_ns: f64 = [TimeShare::DramLocal, TimeShare::DramRemote, TimeShare::Bandwidth]
                .iter()
                .map(|share| cpu.rate.ns[*share as usize])
                .sum();
            scratch.streams.push(Stream {
                base_ns: 1.0 / cpu.rate.x - memory_ns,
                node,
                llc: self.geometry.llc[index],
                cpu: index as u32,
                write_back: cpu.components.write_back,
            });
            for home in 0..nodes {
                let idle_ns = self.hierarchy.memory_ns[node as usize][home];
                scratch.exposed.push(cpu.components.memory_exposed[home] * idle_ns);
                scratch.bytes.push(cpu.components.memory[home] * line);
                scratch.demand[node as usize * nodes + home] += cpu.components.memory[home] * line * cpu.rate.x;
            }
        }
        let limit = self.least_bandwidth;
        let changed = |(now, then): (&f64, &f64)| (now - then).abs() > SAME_DEMAND * then.max(0.01 * limit);
        let same = scratch.solved_demand.len() == scratch.demand.len()
            && !scratch.demand.iter().zip(&scratch.solved_demand).any(changed);
        let found =
            if same { Some(false) } else { self.bandwidth.solve(&scratch.streams, &scratch.exposed, &scratch.bytes) };
        if found.is_some() && !same {
            scratch.solved_demand.clone_from(&scratch.demand);
        }
        let moved = found == Some(true);
        let period = if demand > IN_USE * limit { BANDWIDTH_NS } else { BANDWIDTH_IDLE_NS };
        (self.bandwidth_earliest_ns, self.bandwidth_due_ns) = (now_ns + BANDWIDTH_NS, now_ns + period);
        self.come_demand = 0.0;
        if moved {
            for stream in &scratch.streams {
                self.mark_dirty(now_ns, stream.llc as usize, 0);
            }
        }
        self.scratch = scratch;
    }
}
