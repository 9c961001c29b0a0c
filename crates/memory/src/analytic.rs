//! The analytic memory model (`docs/spec/memory-model.md` section 4): how fast every running task runs, from closed
//! forms whose cost does not depend on the number of accesses.
//!
//! Modelled: occupancy of L2s and LLCs as windows (`window`, `occupancy`), coherence as a race of rates per LLC domain (`groups`),
//! loaded memory and links (`bandwidth`), sibling threads, page homes, and from all of it cycles per instruction by
//! cause (`rate`). What the model leaves out is listed in `docs/models/memory.md`.
//!
//! A driver (the simulated kernel, or [`Player`]) says who runs where and for how long; the model says at which speed,
//! and until when that is worth believing:
//!
//! 1. [`Analytic::switch_in`] and [`Analytic::switch_out`] when a task starts and stops running on a CPU. Before
//!    either, the driver reports with [`Analytic::ran`] the time for which the CPU's *and its siblings'* tasks have run.
//! 2. [`Analytic::review`] or [`Analytic::evaluate`] sets a CPU's speed before its task executes anything; it holds until
//!    [`Analytic::review_ns`].
//! 3. When [`Analytic::due_ns`] has come: report `ran` for the CPUs of [`Analytic::due_cpus`], then
//!    [`Analytic::refresh`]. [`Analytic::take_changed`] lists the CPUs whose speed is another one now, or is to be
//!    looked at again sooner.
//!
//! A profile without classes touches no memory, and one whose lines fit half an L1 is taken to have them there: their tasks
//! have no windows, and cost the model nothing but what siblings share.

mod alone;
mod bandwidth;
mod compiled;
mod conflicts;
mod evaluate;
mod feed;
mod geometry;
mod groups;
mod mixes;
mod moved;
mod occupancy;
mod outlook;
mod player;
mod premise;
mod rate;
mod refresh;
mod switching;
mod tasks;
mod teams;
mod turns;
mod window;

use warmcore_topology::{CpuId, Machine};

use crate::curves::Replacement;
use crate::hierarchy::{Hierarchy, HierarchyError};
use crate::profile::{MAX_CLASSES, Profile};

use bandwidth::Bandwidth;
use compiled::Compiled;
use conflicts::{EvictionAges, Vacancy};
use geometry::Geometry;
use groups::Group;

pub use groups::queue_wait_ns;
use moved::Moved;
use occupancy::Occupancy;
use premise::Premise;
use rate::{Alone, Components, Rate};

pub use player::Player;
pub use rate::SPEED_ONE;
pub use tasks::TaskSpec;
pub use warmcore_trace::{MemoryCounters as Counters, MemoryEvent, TimeShare};

use tasks::TaskState;

/// Time between updates of an LLC whose tasks come and go: the first where lines are shared or a lot is filled, up to the
/// second where little is.
const REFRESH_NS: u64 = 50_000;
const SLOW_REFRESH_NS: u64 = 500_000;

/// Time between solutions of the bandwidth equations while memory is in use, and while it is not, unless tasks come that use it.
const BANDWIDTH_NS: u64 = 100_000;
const BANDWIDTH_IDLE_NS: u64 = 1_000_000;

/// The part of the least bandwidth below which memory is not in use.
const IN_USE: f64 = 0.05;

/// Speeds that differ by less are not worth a new event.
const HYSTERESIS: f64 = 0.01;

/// No task.
const IDLE: u32 = u32::MAX;

/// What a CPU runs, and how fast.
struct CpuState {
    task: u32,
    /// The task waits actively: it occupies the core but touches nothing.
    paused: bool,
    /// Time it ran at `rate` that is not yet accounted for: in the counters, and in the windows.
    pending_ns: u64,
    unseen_ns: u64,
    /// Instructions that the window in the LLC has been told of, but not the one in the L2.
    untold_l2: f64,
    rate: Rate,
    alone: Alone,
    components: Components,
    /// Rates (touches, writes) per line that its groups count for it.
    registered: [(f64, f64); MAX_CLASSES],
    review_ns: u64,
    /// How busy the siblings think the core's issue slots are because of it.
    told_busy: f64,
    /// When its task came, as long as it has no speed yet.
    came_ns: Option<u64>,
    /// The speed is a mean over a time in which it changes.
    unsteady: bool,
    /// The speed is that of a task which touches nothing, with so many nanoseconds per instruction without siblings.
    untouching: Option<f64>,
    /// What the speed was evaluated for.
    premise: Premise,
    /// Windows of the running task; [`geometry::NONE`] if it touches no memory beyond an L1.
    l2_slot: u32,
    llc_slot: u32,
    /// The running task's team; [`geometry::NONE`] if it shares nothing.
    team: u32,
    /// Its lines here since it came from elsewhere.
    moved_l2: Moved,
    moved_llc: Moved,
    counters: Counters,
}

impl CpuState {
    /// Whether a task runs whose profile touches memory beyond an L1.
    #[inline]
    fn touches_memory(&self) -> bool {
        self.llc_slot != geometry::NONE
    }

    /// Accounts for time at the speed of a task that touches nothing, in the CPU's counters and in its own.
    fn flush_untouching(&mut self, of_task: &mut Counters) {
        let instructions = std::mem::take(&mut self.pending_ns) as f64 * self.rate.x;
        for counters in [&mut self.counters, of_task] {
            counters.instructions += instructions;
            for share in [TimeShare::Compute, TimeShare::Smt] {
                counters.time_ns[share as usize] += instructions * self.rate.ns[share as usize];
            }
        }
    }
}

/// The model's state on one machine.
pub struct Analytic {
    hierarchy: Hierarchy,
    geometry: Geometry,
    profiles: Vec<Compiled>,
    tasks: Vec<TaskState>,
    cpus: Vec<CpuState>,
    l2: Vec<Occupancy>,
    llc: Vec<Occupancy>,
    /// By kind of LLC.
    llc_ages: Vec<EvictionAges>,
    llc_vacancy: Vec<Vacancy>,
    /// Part of each LLC without holes; 0 before the first update.
    llc_filled: Vec<f64>,
    groups: Vec<Group>,
    group_names: Vec<tasks::GroupName>,
    teams: Vec<teams::Team>,
    bandwidth: Bandwidth,
    bandwidth_due_ns: u64,
    /// When they may be solved again for tasks that come.
    bandwidth_earliest_ns: u64,
    /// The least bandwidth of anything that limits tasks, bytes per nanosecond.
    least_bandwidth: f64,
    /// What tasks that have come since the last solution ask for.
    come_demand: f64,
    /// When each LLC is to be brought up to date; never if nothing changed since the last time.
    llc_due_ns: Vec<u64>,
    due_ns: u64,
    changed: Vec<CpuId>,
    listed: Vec<bool>,
    scratch: refresh::Scratch,
}

impl Analytic {
    /// The model of a machine for tasks with the given profiles.
    ///
    /// # Errors
    /// Machines whose caches cannot be; see [`HierarchyError`].
    ///
    /// # Panics
    /// If a profile that has classes is one that [`Profile::check`] refuses.
    pub fn new(machine: &Machine, profiles: &[Profile]) -> Result<Self, HierarchyError> {
        Self::with_replacement(machine, profiles, Replacement::Lru)
    }

    /// The same with caches that replace by another rule than LRU.
    ///
    /// # Errors
    /// See [`Analytic::new`].
    ///
    /// # Panics
    /// See [`Analytic::new`].
    pub(crate) fn with_replacement(
        machine: &Machine,
        profiles: &[Profile],
        replacement: Replacement,
    ) -> Result<Self, HierarchyError> {
        let hierarchy = Hierarchy::new(machine)?;
        let geometry = Geometry::new(machine, &hierarchy);
        for profile in profiles.iter().filter(|profile| profile.touches_memory()) {
            profile.check().unwrap_or_else(|error| panic!("{error}"));
        }
        let nodes = machine.node_count();
        let idle = || CpuState {
            task: IDLE,
            paused: false,
            pending_ns: 0,
            unseen_ns: 0,
            untold_l2: 0.0,
            rate: Rate::default(),
            alone: Alone::default(),
            components: Components::new(nodes),
            registered: [(0.0, 0.0); MAX_CLASSES],
            review_ns: u64::MAX,
            told_busy: 0.0,
            came_ns: None,
            unsteady: false,
            untouching: None,
            premise: Premise::default(),
            l2_slot: geometry::NONE,
            llc_slot: geometry::NONE,
            team: geometry::NONE,
            moved_l2: Moved::default(),
            moved_llc: Moved::default(),
            counters: Counters::default(),
        };
        Ok(Self {
            profiles: profiles
                .iter()
                .map(|profile| Compiled::new(profile, &hierarchy, &geometry, replacement))
                .collect(),
            tasks: Vec::new(),
            cpus: machine.cpus().map(|_| idle()).collect(),
            l2: hierarchy.l2.iter().map(|shape| Occupancy::with_turns(shape.lines as f64)).collect(),
            llc_ages: geometry.llc_ways.iter().map(|ways| EvictionAges::new(*ways, replacement)).collect(),
            llc_vacancy: geometry.llc_ways.iter().map(|ways| Vacancy::new(*ways)).collect(),
            llc_filled: vec![0.0; hierarchy.llc.len()],
            llc: hierarchy.llc.iter().map(|shape| Occupancy::new(shape.lines as f64)).collect(),
            groups: Vec::new(),
            group_names: Vec::new(),
            teams: Vec::new(),
            bandwidth: Bandwidth::new(&hierarchy, &geometry),
            bandwidth_due_ns: BANDWIDTH_NS,
            bandwidth_earliest_ns: 0,
            least_bandwidth: hierarchy
                .node_bandwidth
                .iter()
                .copied()
                .fold(hierarchy.cluster_port.min(hierarchy.core_port), f64::min),
            come_demand: 0.0,
            llc_due_ns: vec![u64::MAX; hierarchy.llc.len()],
            due_ns: BANDWIDTH_NS,
            changed: Vec::new(),
            listed: vec![false; machine.cpu_count()],
            scratch: refresh::Scratch::default(),
            geometry,
            hierarchy,
        })
    }

    /// Counts work at the speed that `profiles`, those it was made with, have on another machine, so that a task has as many
    /// instructions there as here. Before anything runs.
    ///
    /// # Errors
    /// See [`Analytic::new`].
    pub fn measure_work_on(&mut self, machine: &Machine, profiles: &[Profile]) -> Result<(), HierarchyError> {
        let there = Self::new(machine, profiles)?;
        for (here, there) in self.profiles.iter_mut().zip(&there.profiles) {
            here.nominal = there.nominal;
        }
        Ok(())
    }

    /// The memory side of the machine.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Work per time of the CPU's task: [`SPEED_ONE`] is the speed of its profile alone and warm on a CPU of capacity
    /// 1024, of this machine or of the one that work is measured on. Meaningless on an idle CPU.
    #[inline]
    pub fn speed(&self, cpu: CpuId) -> u32 {
        self.cpus[cpu.index()].rate.speed
    }

    /// Instructions per nanosecond of the CPU's task.
    pub fn instructions_per_ns(&self, cpu: CpuId) -> f64 {
        self.cpus[cpu.index()].rate.x
    }

    /// Instructions per nanosecond of a profile, alone and warm on a CPU of capacity 1024 of the machine that work is measured on.
    pub fn nominal_rate(&self, profile: usize) -> f64 {
        self.profiles[profile].nominal
    }

    /// Whether a task with the profile touches memory beyond an L1.
    pub(crate) fn profile_touches_memory(&self, profile: usize) -> bool {
        self.profiles[profile].touches_memory
    }

    /// Whether the task touches memory beyond an L1 with the profile it has now.
    #[inline]
    pub fn touches_memory(&self, task: u32) -> bool {
        self.profiles[self.tasks[task as usize].executes as usize].touches_memory
    }

    /// When the CPU's speed should be evaluated again.
    #[inline]
    pub fn review_ns(&self, cpu: CpuId) -> u64 {
        self.cpus[cpu.index()].review_ns
    }

    /// When [`Analytic::refresh`] should be called, if anything runs.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Reports that the CPU's task has run for `useful_ns` at the speed in force.
    #[inline]
    pub fn ran(&mut self, cpu: CpuId, useful_ns: u64) {
        let state = &mut self.cpus[cpu.index()];
        state.pending_ns += useful_ns;
        state.unseen_ns += useful_ns;
    }

    /// CPUs whose speed changed since the last call, in the order in which they were found.
    #[inline]
    pub fn take_changed(&mut self) -> Option<CpuId> {
        let cpu = self.changed.pop()?;
        self.listed[cpu.index()] = false;
        Some(cpu)
    }

    /// What a task's time and accesses went to, up to what the driver has reported with [`Analytic::ran`].
    pub fn counters(&self, task: u32) -> Counters {
        let mut sum = self.tasks[task as usize].counters;
        if let Some(cpu) = self.tasks[task as usize].running_on {
            sum += &pending(&self.cpus[cpu as usize]);
        }
        sum
    }

    /// The same of everything that ran on a CPU.
    pub fn cpu_counters(&self, cpu: CpuId) -> Counters {
        let state = &self.cpus[cpu.index()];
        let mut sum = state.counters;
        sum += &pending(state);
        sum
    }

    /// Sets a CPU's clock, as a multiple of the machine's nominal one: cycles of the core go by it, time in caches and memory does not.
    pub fn set_clock(&mut self, cpu: CpuId, ratio: f64) {
        self.geometry.ghz[cpu.index()] = self.geometry.nominal_ghz[cpu.index()] * ratio;
        self.cpus[cpu.index()].review_ns = 0;
        self.list_changed(cpu.index());
    }

    /// Clock of a CPU in cycles per nanosecond.
    pub fn frequency_ghz(&self, cpu: CpuId) -> f64 {
        self.geometry.ghz[cpu.index()]
    }

    /// Lines that a task holds in an LLC, shared classes apart.
    pub fn llc_lines(&self, task: u32, llc: u32, now_ns: u64) -> f64 {
        self.lines_in(task, tasks::Level::Llc, llc, now_ns)
    }

    /// Bandwidth equations solved, and how many of them did not settle (the last factors were kept).
    pub fn bandwidth_solutions(&self) -> (u64, u64) {
        (self.bandwidth.solved, self.bandwidth.not_converged)
    }

    /// Latency of memory of `home` for a CPU at the present load.
    pub(crate) fn memory_latency_ns(&self, cpu: CpuId, home: usize) -> f64 {
        let (node, llc) = (self.geometry.node[cpu.index()], self.geometry.llc[cpu.index()]);
        let factor = self.bandwidth.factor(node, llc, home) * self.bandwidth.near_factor(cpu.0);
        self.hierarchy.memory_ns[node as usize][home] * factor
    }

    /// Time until a line that a CPU wrote last has come to another, if nothing else comes at the same time.
    pub fn line_ns(&self, from: CpuId, to: CpuId) -> f64 {
        if from == to {
            return 0.0;
        }
        let (a, b) = (from.index(), to.index());
        if self.geometry.core[a] == self.geometry.core[b] {
            self.hierarchy.transfer_ns[warmcore_topology::Relation::SmtSibling]
        } else {
            self.geometry.transfer_ns(self.geometry.llc[a], self.geometry.llc[b])
        }
    }

    /// Time until so many lines have come, of which 1.5 come at a time, as of other coherence misses; one does not come faster for being alone.
    pub fn lines_ns(&self, from: CpuId, to: CpuId, lines: u32) -> f64 {
        let one_by_one = match lines {
            0 => 0.0,
            lines => (f64::from(lines) / rate::COHERENCE_OVERLAP).max(1.0),
        };
        one_by_one * self.line_ns(from, to)
    }
}

/// What a CPU's unaccounted time amounts to.
fn pending(cpu: &CpuState) -> Counters {
    let instructions = cpu.pending_ns as f64 * cpu.rate.x;
    let mut counters = Counters { instructions, ..Counters::default() };
    for (sum, ns) in counters.time_ns.iter_mut().zip(cpu.rate.ns) {
        *sum = instructions * ns;
    }
    for (sum, events) in counters.events.iter_mut().zip(cpu.components.events) {
        *sum = instructions * events;
    }
    counters
}
