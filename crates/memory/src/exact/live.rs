//! Drives the exact level for a kernel: tasks come and go, CPUs change hands at any time, and afterwards it tells how far each task
//! got.
//!
//! [`Simulation`] wants all tasks and their memory in advance; a [`Live`] one gives every new task lines of its own, and those of a
//! task that is gone to the next one that needs as many, as a kernel does with its frames. Everything else is the same machinery.
//!
//! Work is counted in instructions. A task executes whole touches, so up to one touch more than asked; that is kept and is part of
//! the next request.

use warmcore_topology::{CpuId, Machine, Relation, split_mix};
use warmcore_trace::{MemoryCounters, MemoryEvent, TimeShare};

use super::domain::{Entry, NO_HOME};
use super::error::ExactError;
use super::history::{HistoryLevel, HistorySpec};
use super::home::HomeEntry;
use super::lanes::MAX_LINES;
use super::options::{COHERENCE_OVERLAP, Options};
use super::simulation::{FS_PER_NS, Simulation};
use super::space::{COHERENT_ROOM, FOLLOWED_LLCS, Region, TaskSpec, home_rule};
use crate::analytic::Analytic;
use crate::hierarchy::Hierarchy;
use crate::profile::{Class, Home, Profile, Scope};

/// Most memory for directory entries, in bytes of the host.
const DIRECTORY_ROOM: u64 = 6 << 30;

/// Touches per instruction of a task whose lines all fit into an L1, which nobody else feels: the caches are spared them.
const RESIDENT_TOUCHES: f64 = 0.01;

/// A task to be.
#[derive(Clone, Copy, Debug)]
pub struct LiveSpec<'a> {
    /// Index of its profile.
    pub profile: usize,
    /// Profiles it may change to, see [`Live::set_profile`].
    pub others: &'a [usize],
    /// Its process: threads of one share classes marked so.
    pub process: u32,
    /// Data groups it belongs to: number and name.
    pub data: &'a [(u32, &'a str)],
}

/// What a task does with the time that passes next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
    /// For so long it does nothing, first of all.
    pub idle_ns: u64,
    /// Then it has so long.
    pub useful_ns: u64,
    /// It stops after so many instructions; infinite if only time ends what it does.
    pub instructions: f64,
}

/// What became of a [`Share`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Done {
    /// Instructions executed, at most those asked for.
    pub instructions: f64,
    /// Whether those were all that were asked for.
    pub all: bool,
    /// Time they took, at most what was useful.
    pub took_ns: u64,
}

/// A profile as tasks execute it.
struct Executed {
    profile: Profile,
    nominal: f64,
    touches_memory: bool,
}

struct LiveTask {
    profile: usize,
    /// Lines by profile that it may have.
    lines: Vec<(usize, Vec<Region>)>,
    /// Instructions and touches up to the last change of profile.
    executed: f64,
    /// Instructions executed that nobody has asked for yet.
    ahead: f64,
    /// What it waited for beside its own touches.
    waited: MemoryCounters,
    gone: bool,
}

/// What the CPU's task has been allotted and had done before.
#[derive(Clone, Copy)]
struct Running {
    share: Share,
    start_fs: u64,
    /// Instructions before, without those that it was ahead.
    before: f64,
}

/// An exact simulation whose tasks come and go.
pub struct Live {
    simulation: Simulation,
    profiles: Vec<Executed>,
    tasks: Vec<LiveTask>,
    groups: Vec<(Scope, String, Region)>,
    /// Private lines of tasks that are gone.
    free: Vec<Region>,
    next_coherent: u32,
    next_private: u64,
    running: Vec<Option<Running>>,
    /// By CPU: counters of what ran there before, and those of its task when it came.
    counted: Vec<(MemoryCounters, MemoryCounters)>,
    /// By CPUs, the relation that prices a line between them.
    relations: Vec<Relation>,
    cpus: usize,
}

impl Live {
    /// A machine with cold caches and no tasks, for tasks of these profiles.
    ///
    /// # Errors
    /// Impossible machines and profiles, and what the exact level does not simulate.
    pub fn new(machine: &Machine, options: Options, profiles: &[Profile]) -> Result<Self, ExactError> {
        // One without classes touches nothing.
        for profile in profiles.iter().filter(|profile| !profile.classes.is_empty()) {
            profile.check()?;
        }
        let options = Options { sampling_shift: 0, follow_migrations: true, ..options };
        let nominal = Analytic::new(machine, profiles)?;
        let hierarchy = nominal.hierarchy();
        let executed = |(index, profile): (usize, &Profile)| {
            let touches_memory = nominal.profile_touches_memory(index);
            let profile = if touches_memory { profile.on(hierarchy).into_owned() } else { resident(profile) };
            Executed { profile, nominal: nominal.nominal_rate(index), touches_memory }
        };
        let relation = |from: CpuId, to: CpuId| match machine.relation(from, to) {
            near @ (Relation::SameCpu | Relation::SmtSibling) => near,
            _ if machine.llc_of(from) == machine.llc_of(to) => Relation::SameLlc,
            far => far,
        };
        let cpus = machine.cpu_count();
        let profiles: Vec<Executed> = profiles.iter().enumerate().map(executed).collect();
        let has_code = profiles.iter().any(|executed| executed.profile.has_code());
        Ok(Self {
            simulation: Simulation::open(machine, options, has_code)?,
            profiles,
            tasks: Vec::new(),
            groups: Vec::new(),
            free: Vec::new(),
            next_coherent: 0,
            next_private: u64::from(COHERENT_ROOM),
            running: vec![None; cpus],
            counted: vec![(MemoryCounters::default(), MemoryCounters::default()); cpus],
            relations: machine.cpus().flat_map(|a| machine.cpus().map(move |b| relation(a, b))).collect(),
            cpus,
        })
    }

    /// Counts work at the speed that `profiles`, those it was made with, have on another machine, so that a task has as many instructions
    /// there as here. Before anything runs.
    ///
    /// # Errors
    /// A machine whose caches cannot be.
    pub fn measure_work_on(&mut self, machine: &Machine, profiles: &[Profile]) -> Result<(), ExactError> {
        let there = Analytic::new(machine, profiles)?;
        for (index, executed) in self.profiles.iter_mut().enumerate() {
            executed.nominal = there.nominal_rate(index);
        }
        Ok(())
    }

    /// Adds a task; the result is its number, counted from 0.
    ///
    /// # Errors
    /// If there is no room for the lines it needs.
    ///
    /// # Panics
    /// If there is no such profile.
    pub fn add_task(&mut self, spec: &LiveSpec<'_>) -> Result<u32, ExactError> {
        let task = self.tasks.len();
        let mut lines: Vec<(usize, Vec<Region>)> = Vec::new();
        for &profile in std::iter::once(&spec.profile).chain(spec.others) {
            if lines.iter().any(|(known, _)| *known == profile) {
                continue;
            }
            let mut regions = Vec::new();
            for index in 0..self.profiles[profile].profile.classes.len() {
                let class = self.profiles[profile].profile.classes[index].clone();
                let region = match class.scope(spec.process, spec.data) {
                    Some(scope) => self.group(scope, &class)?,
                    // Of what two profiles call the same the task has one.
                    None => match self.known(&lines, &class) {
                        Some(region) => region,
                        None => self.allocate(&class)?,
                    },
                };
                regions.push(region);
            }
            lines.push((profile, regions));
        }
        let task_spec =
            TaskSpec { profile: self.profiles[spec.profile].profile.clone(), process: spec.process, data_group: None };
        self.simulation.add(task_spec, lines[0].1.clone());
        self.tasks.push(LiveTask {
            profile: spec.profile,
            lines,
            executed: 0.0,
            ahead: 0.0,
            waited: MemoryCounters::default(),
            gone: false,
        });
        Ok(task as u32)
    }

    /// The lines of the task's class of that name and size.
    fn known(&self, lines: &[(usize, Vec<Region>)], class: &Class) -> Option<Region> {
        let same = |known: &Class| known.name == class.name && known.bytes == class.bytes && !known.is_shared();
        lines.iter().find_map(|(profile, regions)| {
            let index = self.profiles[*profile].profile.classes.iter().position(same)?;
            Some(regions[index])
        })
    }

    /// The lines of a shared class: as many as the largest class of the name has in any profile.
    fn group(&mut self, scope: Scope, class: &Class) -> Result<Region, ExactError> {
        if let Some((.., region)) = self.groups.iter().find(|(known, name, _)| *known == scope && *name == class.name) {
            return Ok(*region);
        }
        let classes = self.profiles.iter().flat_map(|executed| &executed.profile.classes);
        let bytes =
            classes.filter(|known| known.is_shared() && known.name == class.name).map(|known| known.bytes).max();
        let region = self.allocate(&Class { bytes: bytes.unwrap_or(class.bytes), ..class.clone() })?;
        self.groups.push((scope, class.name.clone(), region));
        Ok(region)
    }

    fn allocate(&mut self, class: &Class) -> Result<Region, ExactError> {
        let hierarchy = self.simulation.hierarchy();
        let lines = class.lines(hierarchy.line_bytes).round().max(1.0) as u64;
        let llc_lines = hierarchy.llc.iter().map(|llc| llc.lines).max().unwrap_or(0);
        let nodes = hierarchy.node_bandwidth.len();
        let coherent = class.is_shared() || lines <= FOLLOWED_LLCS * llc_lines;
        let home_of = home_rule(class, nodes)?;
        let page = 1_u64 << self.simulation.context.page_shift;
        let pages = lines.div_ceil(page);
        let fits = |region: &Region| u64::from(region.lines).div_ceil(page) == pages && region.coherent == coherent;
        let free = if class.is_shared() { None } else { self.free.iter().position(fits) };
        let first = match free {
            Some(position) => self.free.swap_remove(position).first,
            None if coherent => {
                let end = u64::from(self.next_coherent) + pages * page;
                let entries = end
                    * (self.simulation.domains.len() as u64 * size_of::<Entry>() as u64
                        + size_of::<HomeEntry>() as u64);
                if end > u64::from(COHERENT_ROOM) || entries > DIRECTORY_ROOM {
                    return Err(ExactError::Room {
                        lines: end,
                        gib: entries.div_ceil(1 << 30),
                        most_gib: DIRECTORY_ROOM >> 30,
                    });
                }
                std::mem::replace(&mut self.next_coherent, end as u32)
            }
            None => {
                let end = self.next_private + pages * page;
                if end > MAX_LINES {
                    return Err(ExactError::TooManyLines { lines: end, most: MAX_LINES });
                }
                std::mem::replace(&mut self.next_private, end) as u32
            }
        };
        let region = Region { first, lines: lines as u32, scale: 1, coherent };
        self.simulation.make_room(self.next_coherent, self.next_private);
        let first_page = (first >> self.simulation.context.page_shift) as usize;
        for number in 0..pages {
            self.simulation.describe_page(first_page + number as usize, home_of(number), coherent);
        }
        Ok(region)
    }

    /// The task is gone, and its private lines are for others. What the caches hold of them stays until something else comes there.
    pub fn remove_task(&mut self, task: u32) {
        let state = &mut self.tasks[task as usize];
        state.gone = true;
        let mut own = Vec::new();
        for (profile, regions) in std::mem::take(&mut state.lines) {
            let classes = &self.profiles[profile].profile.classes;
            for (class, region) in classes.iter().zip(regions) {
                if !class.is_shared() && !self.free.iter().any(|free| free.first == region.first) {
                    self.free.push(region);
                    own.push(region);
                }
            }
        }
        self.simulation.remove(task as usize, &own);
    }

    /// The task goes on with another of the profiles that it was added with.
    ///
    /// # Panics
    /// If it was not added with the profile.
    pub fn set_profile(&mut self, task: u32, profile: usize) {
        let state = &mut self.tasks[task as usize];
        if state.profile == profile {
            return;
        }
        let found = state.lines.iter().find(|(known, _)| *known == profile);
        let regions = found.expect("the task was added with the profile").1.clone();
        state.executed += self.simulation.executed(task as usize);
        state.profile = profile;
        self.simulation.change(task as usize, self.profiles[profile].profile.clone(), regions);
    }

    /// Says where the pages of a task's private classes are, or with `class` those of one of its shared classes: shares by node.
    pub fn set_home(&mut self, task: u32, class: Option<usize>, shares: &[f64]) {
        let Self { simulation, profiles, tasks, .. } = self;
        let state = &tasks[task as usize];
        for (profile, regions) in &state.lines {
            for (index, (known, region)) in profiles[*profile].profile.classes.iter().zip(regions).enumerate() {
                let meant = match class {
                    Some(class) => *profile == state.profile && index == class,
                    None => !known.is_shared() && known.home == Home::FirstTouch,
                };
                if !meant {
                    continue;
                }
                for page in simulation.pages(*region) {
                    simulation.set_home(page, node_of_page(page, shares));
                }
            }
        }
    }

    /// Records the sets that each task uses, from now on.
    pub fn record_sets(&mut self, spec: HistorySpec) {
        self.simulation.record_sets(spec);
    }

    /// The latest sets of a task, the oldest first; none if they are not recorded.
    pub fn recent_sets(&self, task: u32, sets: &mut Vec<u32>) {
        self.simulation.recent_sets(task as usize, sets);
    }

    /// Sets of the largest cache of a level: their indexes are below this.
    pub fn sets(&self, level: HistoryLevel) -> u32 {
        self.simulation.sets(level)
    }

    /// The task runs on the CPU, which must be free, from now on.
    ///
    /// # Panics
    /// If the CPU is taken.
    pub fn switch_in(&mut self, cpu: CpuId, task: u32) {
        self.simulation.place(task as usize, Some(cpu)).expect("the driver knows which CPUs are free");
        self.counted[cpu.index()].1 = self.counters(task);
    }

    /// Sets a CPU's clock, as a multiple of the machine's nominal one, from now on.
    pub fn set_clock(&mut self, cpu: CpuId, ratio: f64) {
        self.simulation.set_clock(cpu, ratio);
    }

    /// The CPU's task no longer runs.
    pub fn switch_out(&mut self, cpu: CpuId) {
        let Some(task) = self.simulation.on_cpu[cpu.index()] else { return };
        self.counted[cpu.index()].0 = self.cpu_counters(cpu);
        self.simulation.place(task, None).expect("a CPU can be left");
        self.running[cpu.index()] = None;
    }

    /// Of the time that passes next the CPU's task has this.
    pub fn allot(&mut self, cpu: CpuId, share: Share) {
        let Some(task) = self.simulation.on_cpu[cpu.index()] else { return };
        let wanted = (share.instructions - self.tasks[task].ahead).max(0.0);
        let before = self.executed(task) - self.tasks[task].ahead;
        let start_fs = self.simulation.begin_share(task, share.idle_ns, wanted);
        self.running[cpu.index()] = Some(Running { share, start_fs, before });
    }

    /// Time passes up to now on all CPUs.
    ///
    /// # Errors
    /// Where addresses are translated: if there is no frame left for a page that was touched.
    pub fn advance(&mut self, now_ns: u64) -> Result<(), ExactError> {
        self.simulation.run_for(now_ns - self.simulation.now_ns());
        self.simulation.exhausted().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// What the CPU's task made of what it was allotted last; nothing the second time.
    pub fn done(&mut self, cpu: CpuId) -> Done {
        let (Some(task), Some(Running { share, start_fs, before })) =
            (self.simulation.on_cpu[cpu.index()], self.running[cpu.index()].take())
        else {
            return Done::default();
        };
        let executed = self.executed(task) - before;
        let all = executed >= share.instructions;
        let instructions = if all { share.instructions } else { executed };
        self.tasks[task].ahead = executed - instructions;
        let took_ns = if all {
            self.simulation.clock_fs(task).saturating_sub(start_fs).div_ceil(FS_PER_NS).min(share.useful_ns)
        } else {
            share.useful_ns
        };
        Done { instructions, all, took_ns }
    }

    /// Instructions executed, those ahead included.
    fn executed(&self, task: usize) -> f64 {
        self.tasks[task].executed + self.simulation.executed(task)
    }

    /// Instructions per nanosecond of a profile, alone and warm on a CPU of capacity 1024: the analytic level's, so that work is
    /// the same on both.
    pub fn nominal_rate(&self, profile: usize) -> f64 {
        self.profiles[profile].nominal
    }

    /// The profile that a task has now.
    pub fn profile_of(&self, task: u32) -> usize {
        self.tasks[task as usize].profile
    }

    /// Whether the task touches memory beyond an L1 with the profile it has now.
    pub fn touches_memory(&self, task: u32) -> bool {
        self.profiles[self.tasks[task as usize].profile].touches_memory
    }

    /// The task waited `ns` for lines that moved from one CPU to another: a message, a lock.
    pub fn transferred(&mut self, task: u32, from: CpuId, to: CpuId, ns: u64) {
        let share = match self.relation(from, to) {
            Relation::OtherSocket | Relation::FarSocket => TimeShare::OtherSocket,
            Relation::SameNode | Relation::SameSocket => TimeShare::OtherLlc,
            _ => TimeShare::Llc,
        };
        self.waited(task, share, ns);
    }

    /// A task waited actively for lines that others were using.
    pub fn waited_for_line(&mut self, task: u32, ns: u64) {
        self.waited(task, TimeShare::HotLines, ns);
    }

    fn waited(&mut self, task: u32, share: TimeShare, ns: u64) {
        let waited = &mut self.tasks[task as usize].waited;
        waited.time_ns[share as usize] += ns as f64;
        waited.transfer_ns += ns as f64;
    }

    fn relation(&self, from: CpuId, to: CpuId) -> Relation {
        self.relations[from.index() * self.cpus + to.index()]
    }

    /// Time for a line that one CPU wrote last to come to another.
    pub fn line_ns(&self, from: CpuId, to: CpuId) -> f64 {
        if from == to { 0.0 } else { self.hierarchy().transfer_ns[self.relation(from, to)] }
    }

    /// Time until so many lines have come, which overlap as coherence misses do; one does not come faster for being alone.
    pub fn lines_ns(&self, from: CpuId, to: CpuId, lines: u32) -> f64 {
        if lines == 0 { 0.0 } else { (f64::from(lines) / COHERENCE_OVERLAP).max(1.0) * self.line_ns(from, to) }
    }

    /// The machine as it is simulated.
    pub fn hierarchy(&self) -> &Hierarchy {
        self.simulation.hierarchy()
    }

    /// What a task's time and touches went to.
    pub fn counters(&self, task: u32) -> MemoryCounters {
        let exact = self.simulation.counters(task as usize);
        let total = exact.total();
        let mut sum = self.tasks[task as usize].waited;
        sum.instructions += self.executed(task as usize);
        for (sum, fs) in sum.time_ns.iter_mut().zip(exact.share_fs) {
            *sum += fs as f64 / FS_PER_NS as f64;
        }
        let by_relation = |relations: [Relation; 2]| {
            relations.iter().map(|&relation| total.remote_reads[relation] + total.remote_rfos[relation]).sum::<u64>()
        };
        for (event, count) in [
            (MemoryEvent::L1Miss, total.l1_misses - exact.l1i_misses),
            (MemoryEvent::L1iMiss, exact.l1i_misses),
            (MemoryEvent::L2Miss, total.l2_misses()),
            (MemoryEvent::L3Miss, total.dram_local + total.dram_remote + total.cross_reads()),
            (MemoryEvent::L3RfoOtherLlc, total.cross_rfos()),
            (MemoryEvent::DramLocal, total.dram_local),
            (MemoryEvent::DramRemote, total.dram_remote),
            (MemoryEvent::C2cSameLlc, total.same_llc_transfers),
            (MemoryEvent::C2cOtherLlc, by_relation([Relation::SameNode, Relation::SameSocket])),
            (MemoryEvent::C2cOtherSocket, by_relation([Relation::OtherSocket, Relation::FarSocket])),
            (MemoryEvent::L3RfoMiss, total.l3_rfo_misses()),
            // Cores of a machine have L2s, or none has.
            (MemoryEvent::L2Access, if self.hierarchy().l2.is_empty() { 0 } else { total.l1_misses }),
            (MemoryEvent::L3Access, total.l2_misses()),
        ] {
            sum.events[event as usize] = count as f64;
        }
        (sum.page_walks, sum.page_faults) = (exact.page_walks as f64, exact.page_faults as f64);
        sum
    }

    /// The same of everything that ran on a CPU.
    pub fn cpu_counters(&self, cpu: CpuId) -> MemoryCounters {
        let (mut sum, came) = self.counted[cpu.index()];
        if let Some(task) = self.simulation.on_cpu[cpu.index()] {
            sum += &self.counters(task as u32).since(&came);
        }
        sum
    }
}

/// The same speed with next to no touches, all of one line.
fn resident(profile: &Profile) -> Profile {
    Profile { classes: vec![Class::new("resident", 64, RESIDENT_TOUCHES, 0.0)], ..profile.clone() }
}

/// The node of a page when so much of its region is on each: pages keep to their node when the shares change a little.
fn node_of_page(page: usize, shares: &[f64]) -> u8 {
    let at = (split_mix(page as u64 + 1) >> 11) as f64 / (1_u64 << 53) as f64;
    let mut sum = 0.0;
    let found = shares.iter().position(|share| {
        sum += share;
        at < sum
    });
    let held = || shares.iter().rposition(|share| *share > 0.0).map_or(NO_HOME, |node| node as u8);
    found.map_or_else(held, |node| node as u8)
}
