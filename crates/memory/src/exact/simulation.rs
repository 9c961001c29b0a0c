//! A simulation at the exact level: tasks, each a stream of touches, on the CPUs of a machine.
//!
//! The caller says who runs where and for how long; what decides that (a scheduler, a fixed placement, an experiment)
//! is not known here. Domains run a quantum each, on as many threads as the calling `rayon` pool has, then exchange
//! their transactions; every epoch latencies follow the load. Results do not depend on the number of threads.

mod driven;
mod observed;

use std::borrow::Cow;

use rayon::prelude::*;
use warmcore_topology::{CpuId, LlcId, Machine};

use super::build::{Seat, add_instruction_caches, domains, home};
use super::counters::NodeTraffic;
use super::domain::{Context, Domain, Entry, NO_CORE, NO_HOME};
use super::error::ExactError;
use super::history::{History, HistorySpec};
use super::home::{Home, HomeEntry};
use super::lanes::{DIRTY, WRITABLE};
use super::links::Links;
use super::load::{LoadFactor, node_bandwidth};
use super::options::{COHERENCE_OVERLAP, Options, SMT_OVERLAP_SHARE, TRANSFER_BYTES};
use super::paging::Paging;
use super::ports::Ports;
use super::space::{COHERENT_ROOM, Space, TaskSpec};
use super::stream::{Stream, StreamClass};
use super::task::{ClassCosts, EXPOSED_BITS, KINDS, MemoryLatency, TABLES, Task};
use crate::hierarchy::Hierarchy;
use crate::profile::{ClassKind, Profile};

/// Simulated time of all domains together from which it pays to hand them to several threads: a core's microsecond takes some two
/// microseconds of the host, and to wake another thread takes as long.
const PARALLEL_NS: u64 = 8_000;

/// Femtoseconds per nanosecond.
pub const FS_PER_NS: u64 = 1_000_000;

/// A profile's classes of code, as bits.
fn code_of(profile: &Profile) -> u32 {
    let code = profile.classes.iter().enumerate().filter(|(_, class)| class.code);
    code.map(|(number, _)| 1 << number).sum()
}

struct TaskState {
    spec: TaskSpec,
    /// The task while it has no CPU.
    parked: Option<Box<Task>>,
    cpu: Option<CpuId>,
    /// Its slot in the domain of its CPU.
    slot: usize,
    /// The core of its first placement.
    first_core: Option<(usize, usize)>,
    /// The core of its last one.
    last_seat: Option<(usize, usize)>,
    homed: bool,
    /// Counters of busy and stall time at the last epoch.
    epoch_busy_fs: u64,
    epoch_stall_fs: u64,
    /// Lines it had read from memory when its core's were counted last.
    counted_reads: u64,
}

/// A running simulation.
pub struct Simulation {
    hierarchy: Hierarchy,
    options: Options,
    pub(super) context: Context,
    pub(super) domains: Vec<Domain>,
    home: Home,
    space: Space,
    tasks: Vec<TaskState>,
    seats: Vec<Seat>,
    /// Tasks by CPU.
    pub(super) on_cpu: Vec<Option<usize>>,
    /// Socket of each domain and node.
    domain_sockets: Vec<usize>,
    node_sockets: Vec<usize>,
    now_fs: u64,
    next_epoch_fs: u64,
    node_load: Vec<LoadFactor>,
    port_load: Vec<LoadFactor>,
    /// Ports of clusters and cores, where they are limited.
    ports: Option<Ports>,
    links: Links,
    /// Traffic by domain and node at the last epoch.
    epoch_traffic: Vec<Vec<NodeTraffic>>,
    /// What is recorded of tasks.
    history: Option<HistorySpec>,
    /// Where addresses are translated.
    pub(super) paging: Option<Paging>,
}

impl Simulation {
    /// A machine with cold caches and all tasks without a CPU.
    ///
    /// # Errors
    /// Impossible machines and profiles, and what the exact level does not simulate.
    pub fn new(machine: &Machine, options: Options, mut specs: Vec<TaskSpec>) -> Result<Self, ExactError> {
        let hierarchy = Hierarchy::new(machine)?;
        if specs.is_empty() {
            return Err(ExactError::NoTasks);
        }
        for spec in &mut specs {
            spec.profile.check()?;
            if let Cow::Owned(profile) = spec.profile.on(&hierarchy) {
                spec.profile = profile;
            }
        }
        let space = Space::new(&specs, &hierarchy, &options)?;
        let has_code = specs.iter().any(|spec| spec.profile.has_code());
        Self::with_space(machine, options, hierarchy, space, specs, has_code)
    }

    fn with_space(
        machine: &Machine,
        options: Options,
        hierarchy: Hierarchy,
        space: Space,
        specs: Vec<TaskSpec>,
        has_code: bool,
    ) -> Result<Self, ExactError> {
        let paging = options.paging.map(|spec| {
            let mut paging = Paging::new(machine, &hierarchy, &options, spec, COHERENT_ROOM)?;
            paging.know(&space);
            Ok::<_, ExactError>(paging)
        });
        let paging = paging.transpose()?;
        // Directories of frames grow as these are given out.
        let (coherent_end, known) =
            if paging.is_some() { (COHERENT_ROOM, 0) } else { (space.coherent_end, space.coherent_end as usize) };
        let homes = if paging.is_some() { Vec::new() } else { space.homes.clone() };
        let (mut domains, seats) = domains(machine, &hierarchy, &options, known)?;
        if has_code {
            add_instruction_caches(machine, &hierarchy, &options, &seats, &mut domains)?;
        }
        let ports = Ports::new(machine, &hierarchy, &seats, &mut domains);
        let context = Context {
            coherent_end,
            hot_end: space.hot_end,
            sampling_shift: options.sampling_shift,
            page_shift: space.page_shift,
            page_core: vec![NO_CORE; homes.len()],
            homes,
            instruction_set: options.instruction_set,
        };
        let mut home = home(machine, &hierarchy, &options);
        home.entries = vec![HomeEntry::NONE; known];
        let node_sockets = machine
            .nodes()
            .map(|node| machine.cpus_of_node(node).first().map_or(0, |cpu| machine.socket_of(cpu).index()));
        let socket_of = |llc: LlcId| machine.cpus_of_llc(llc).first().map_or(0, |cpu| machine.socket_of(cpu).index());
        let domain_sockets = machine.llcs().map(socket_of).collect();
        let nodes = machine.node_count();
        let mut simulation = Self {
            node_load: vec![LoadFactor::IDLE; nodes],
            port_load: vec![LoadFactor::IDLE; domains.len()],
            links: Links::new(&hierarchy, machine.socket_count(), nodes),
            ports,
            epoch_traffic: vec![vec![NodeTraffic::default(); nodes]; domains.len()],
            node_sockets: node_sockets.collect(),
            domain_sockets,
            tasks: Vec::new(),
            on_cpu: vec![None; machine.cpu_count()],
            now_fs: 0,
            next_epoch_fs: options.epoch_ns * FS_PER_NS,
            hierarchy,
            options,
            context,
            domains,
            home,
            space,
            seats,
            history: None,
            paging,
        };
        simulation.update_memory_latencies();
        for (index, spec) in specs.into_iter().enumerate() {
            simulation.add_task(index, spec);
        }
        Ok(simulation)
    }

    fn add_task(&mut self, index: usize, spec: TaskSpec) {
        if let Some(paging) = &mut self.paging {
            paging.add_task(spec.process);
        }
        let (stream, fill) = self.stream(index, &spec.profile);
        let task = Task {
            code: code_of(&spec.profile),
            history: self.history.map(|spec| Box::new(History::new(spec))),
            ..Task::new(index as u32, stream, fill)
        };
        self.tasks.push(TaskState {
            spec,
            parked: Some(Box::new(task)),
            cpu: None,
            slot: 0,
            first_core: None,
            last_seat: None,
            homed: false,
            epoch_busy_fs: 0,
            epoch_stall_fs: 0,
            counted_reads: 0,
        });
    }

    /// The touches of a task with a profile whose lines are known, and the states in which they put lines into L1.
    fn stream(&self, index: usize, profile: &Profile) -> (Stream, [u8; 2 * KINDS]) {
        let mut classes = Vec::new();
        let mut fill = [0; 2 * KINDS];
        fill[2 * TABLES + 1] = DIRTY as u8;
        for (number, (class, region)) in profile.classes.iter().zip(&self.space.regions[index]).enumerate() {
            classes.push(StreamClass {
                first: region.first,
                lines: region.lines,
                rate: class.touches_per_instruction / region.scale as f64,
                write_fraction: class.write_fraction,
                scan: class.kind == ClassKind::Scan,
            });
            let clean = if region.coherent { 0 } else { WRITABLE as u8 };
            fill[2 * number] = clean;
            fill[2 * number + 1] = clean | DIRTY as u8;
        }
        let seed = self.options.seed.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(index as u64);
        (Stream::new(seed, &classes), fill)
    }

    /// Puts a task on a CPU, or takes it off.
    ///
    /// # Errors
    /// If the CPU does not exist or is taken, or the task would leave its core although it is not followed.
    pub fn place(&mut self, task: usize, cpu: Option<CpuId>) -> Result<(), ExactError> {
        if self.tasks[task].cpu == cpu {
            return Ok(());
        }
        if let Some(cpu) = cpu {
            let count = self.seats.len();
            let seat = *self.seats.get(cpu.index()).ok_or(ExactError::NoCpu { cpu: cpu.0, count })?;
            if let Some(other) = self.on_cpu[cpu.index()] {
                return Err(ExactError::Occupied { cpu: cpu.0, other, task });
            }
            let first = *self.tasks[task].first_core.get_or_insert((seat.domain, seat.core));
            if first != (seat.domain, seat.core) && !self.options.follow_migrations {
                return Err(ExactError::NotFollowed { task });
            }
        }
        self.park(task);
        if let Some(cpu) = cpu {
            self.seat(task, cpu);
        }
        Ok(())
    }

    fn park(&mut self, task: usize) {
        self.count_reads(task);
        let Some(cpu) = self.tasks[task].cpu.take() else { return };
        self.on_cpu[cpu.index()] = None;
        let Seat { domain: index, core, .. } = self.seats[cpu.index()];
        let domain = &mut self.domains[index];
        let of_task =
            |slot: &u16| domain.tasks[usize::from(*slot)].as_ref().is_some_and(|held| held.id as usize == task);
        if let Some(position) = domain.running[core].iter().position(of_task) {
            let slot = domain.running[core].remove(position);
            self.tasks[task].parked = domain.tasks[usize::from(slot)].take();
        }
        self.refresh_core(index, core);
    }

    fn seat(&mut self, task: usize, cpu: CpuId) {
        let Seat { domain: index, core, .. } = self.seats[cpu.index()];
        let Some(mut moved) = self.tasks[task].parked.take() else { return };
        self.tasks[task].cpu = Some(cpu);
        self.on_cpu[cpu.index()] = Some(task);
        let node = self.domains[index].node;
        let moves = self.tasks[task].last_seat.replace((index, core)) != Some((index, core));
        for region in &self.space.regions[task] {
            if region.coherent || !moves {
                continue;
            }
            for page in self.space.pages(*region) {
                if let Some(paging) = &self.paging {
                    if let Some(frame) = paging.frame(page) {
                        self.context.page_core[frame] = core as u16;
                    }
                    continue;
                }
                self.context.page_core[page] = core as u16;
                if self.context.homes[page] == NO_HOME {
                    self.context.homes[page] = node as u8;
                }
            }
        }
        // Translated pages are homed when they are touched.
        if !self.tasks[task].homed && self.paging.is_none() {
            self.tasks[task].homed = true;
            // A followed private class is homed like any private one, not where its lines are first missed.
            for (region, class) in self.space.regions[task].iter().zip(&self.tasks[task].spec.profile.classes) {
                if region.coherent && !class.is_shared() {
                    for page in self.space.pages(*region) {
                        let home = &mut self.context.homes[page];
                        *home = if *home == NO_HOME { node as u8 } else { *home };
                    }
                }
            }
        }
        let domain = &mut self.domains[index];
        let slot = domain.tasks.iter().position(Option::is_none).unwrap_or_else(|| {
            domain.tasks.push(None);
            domain.tasks.len() - 1
        });
        moved.core = core as u16;
        moved.slot = slot as u16;
        self.tasks[task].slot = slot;
        moved.clock_fs = moved.clock_fs.max(self.now_fs);
        domain.tasks[slot] = Some(moved);
        domain.running[core].push(slot as u16);
        self.refresh_core(index, core);
    }

    /// Adds to what a task's core has read from memory what the task has since this was done last.
    fn count_reads(&mut self, task: usize) {
        let (Some(ports), Some(cpu)) = (&mut self.ports, self.tasks[task].cpu) else { return };
        let Seat { domain, core, .. } = self.seats[cpu.index()];
        let Some(held) = self.domains[domain].tasks[self.tasks[task].slot].as_deref() else { return };
        let reads = held.counters.iter().map(|of| of.dram_local + of.dram_remote).sum();
        let before = std::mem::replace(&mut self.tasks[task].counted_reads, reads);
        ports.read(domain, core, reads - before);
    }

    /// Sets a CPU's clock, as a multiple of the machine's nominal one, from now on: cycles of the core go by it, time in caches and memory
    /// does not.
    pub fn set_clock(&mut self, cpu: CpuId, ratio: f64) {
        let seat = &mut self.seats[cpu.index()];
        seat.clock = ratio;
        let (domain, core) = (seat.domain, seat.core);
        self.refresh_core(domain, core);
    }

    /// Computes anew what the tasks of a core pay, with what is known of their siblings.
    fn refresh_core(&mut self, domain: usize, core: usize) {
        let slots = self.domains[domain].running[core].clone();
        let busy: Vec<f64> = slots.iter().map(|slot| self.busy_share(domain, *slot)).collect();
        for (position, slot) in slots.iter().enumerate() {
            let others: f64 = busy.iter().sum::<f64>() - busy[position];
            let sibling = (slots.len() > 1).then_some(others);
            self.price(domain, core, *slot, sibling);
        }
    }

    /// Part of its time that a task was not waiting, over the last epoch.
    fn busy_share(&self, domain: usize, slot: u16) -> f64 {
        let Some(task) = &self.domains[domain].tasks[usize::from(slot)] else { return 0.0 };
        let state = &self.tasks[task.id as usize];
        let (busy, stall) = (task.busy_fs - state.epoch_busy_fs, task.stall_fs - state.epoch_stall_fs);
        if busy == 0 { 1.0 } else { 1.0 - stall as f64 / busy as f64 }
    }

    fn price(&mut self, domain: usize, core: usize, slot: u16, sibling_busy: Option<f64>) {
        let hierarchy = &self.hierarchy;
        let domain_index = domain;
        let domain = &mut self.domains[domain];
        let Some(task) = &mut domain.tasks[usize::from(slot)] else { return };
        let state = &self.tasks[task.id as usize];
        let profile = &state.spec.profile;
        let capacity = state.cpu.map_or(1.0, |cpu| self.seats[cpu.index()].capacity * self.seats[cpu.index()].clock);
        let (issue, overlap) = sibling_busy.map_or((1.0, 1.0), |busy| {
            (1.0 + hierarchy.smt_slowdown * busy, 1.0 - SMT_OVERLAP_SHARE * (1.0 - busy.min(1.0)))
        });
        let mlp = (profile.mlp * overlap).max(1.0);
        let cycle_fs = FS_PER_NS as f64 / (hierarchy.frequency_ghz * capacity);
        let touch_fs = |issue: f64| (profile.core_cpi() * issue * cycle_fs / task.stream.rate()).round() as u64;
        (task.touch_fs, task.touch_alone_fs) = (touch_fs(issue), touch_fs(1.0));
        let l2_ns = domain.l2_ns[core];
        let llc_ns = hierarchy.llc[domain_index].latency_ns;
        let unit = f64::from(1_u32 << EXPOSED_BITS);
        for (index, class) in profile.classes.iter().enumerate() {
            let scale = self.space.regions[task.id as usize][index].scale;
            // Nothing runs on while instructions are missing.
            let exposed = class.exposure / if class.code { 1.0 } else { mlp } * scale as f64;
            let fs = |ns: f64| (ns * FS_PER_NS as f64 * exposed).round() as u64;
            let independent = (exposed * unit).round() as u64;
            let communicated = (scale as f64 / COHERENCE_OVERLAP * unit).round() as u64;
            task.costs[index] = ClassCosts {
                l2_fs: fs(l2_ns),
                llc_fs: fs(llc_ns),
                exposed: independent,
                coherent: if class.is_shared() && !class.code { communicated } else { independent },
                announced: if class.is_shared() { communicated } else { 0 },
                scale,
            };
        }
        // Walks overlap as misses do, and nothing hides them.
        let fs = |ns: f64| (ns * FS_PER_NS as f64 / mlp).round() as u64;
        let exposed = (unit / mlp).round() as u64;
        task.costs[TABLES] =
            ClassCosts { l2_fs: fs(l2_ns), llc_fs: fs(llc_ns), exposed, coherent: exposed, announced: 0, scale: 1 };
        task.table_fs = fs(domain.l1_ns[core]);
    }

    /// Lets all placed tasks run for a time. Where frames have run out nothing more is run, see [`Simulation::exhausted`].
    pub fn run_for(&mut self, ns: u64) {
        let end = self.now_fs + ns * FS_PER_NS;
        while self.now_fs < end {
            let quantum = self.now_fs + self.options.quantum_ns.max(1) * FS_PER_NS;
            let busy = self.domains.iter().filter(|domain| domain.is_busy()).count();
            // Where nobody touches anything there is nothing to exchange.
            let until = if busy == 0 { end } else { quantum.min(end) }.min(self.next_epoch_fs);
            self.run_quantum(until, busy);
            self.now_fs = until;
            if self.now_fs >= self.next_epoch_fs {
                self.next_epoch_fs = self.now_fs + self.options.epoch_ns.max(1) * FS_PER_NS;
                self.end_epoch();
            }
        }
    }

    fn run_quantum(&mut self, until_fs: u64, busy_domains: usize) {
        if let Some(paging) = &mut self.paging {
            self.domains.iter_mut().for_each(|domain| domain.run_paged(&mut self.context, paging, until_fs));
            let known = paging.coherent_lines(&self.context);
            self.domains.iter_mut().for_each(|domain| domain.directory.resize(known, Entry::NONE));
            self.home.entries.resize(known, HomeEntry::NONE);
            return self.home.exchange(&mut self.context, &mut self.domains);
        }
        let context = &self.context;
        let work_ns = busy_domains as u64 * (until_fs - self.now_fs) / FS_PER_NS;
        if busy_domains > 1 && work_ns >= PARALLEL_NS && rayon::current_num_threads() > 1 {
            self.domains.par_iter_mut().for_each(|domain| domain.run(context, until_fs));
        } else {
            self.domains.iter_mut().for_each(|domain| domain.run(context, until_fs));
        }
        self.home.exchange(&mut self.context, &mut self.domains);
    }

    /// Takes the traffic of the epoch into account, and what siblings did to each other.
    fn end_epoch(&mut self) {
        let epoch_ns = self.options.epoch_ns as f64;
        let line_bytes = f64::from(self.hierarchy.line_bytes);
        let nodes = self.node_load.len();
        let mut node_lines = vec![NodeTraffic::default(); nodes];
        for (index, domain) in self.domains.iter().enumerate() {
            let mut port_lines = 0;
            for (node, lines) in node_lines.iter_mut().enumerate() {
                let before = &mut self.epoch_traffic[index][node];
                let now = domain.traffic[node];
                let (reads, writes) = (now.reads - before.reads, now.writes - before.writes);
                *before = now;
                lines.reads += reads;
                lines.writes += writes;
                port_lines += reads;
                let (here, there) = ((self.domain_sockets[index], domain.node), (self.node_sockets[node], node));
                self.links.carry(there, here, reads as f64 * line_bytes);
                self.links.carry(here, there, writes as f64 * line_bytes);
            }
            let used = port_lines as f64 * line_bytes / epoch_ns / self.hierarchy.llc_port;
            self.port_load[index].update(&self.hierarchy, used, 1.0);
        }
        let count = self.domains.len();
        for (pair, lines) in self.home.transfers.iter_mut().enumerate() {
            let end = |domain: usize| (self.domain_sockets[domain], self.domains[domain].node);
            let bytes = std::mem::take(lines) * TRANSFER_BYTES;
            self.links.carry(end(pair / count), end(pair % count), bytes as f64);
        }
        for (node, load) in self.node_load.iter_mut().enumerate() {
            let NodeTraffic { reads, writes } = node_lines[node];
            let share = if reads + writes == 0 { 1.0 } else { reads as f64 / (reads + writes) as f64 };
            let demand = (reads + writes) as f64 * line_bytes / epoch_ns;
            load.update(&self.hierarchy, demand / node_bandwidth(&self.hierarchy, node, share), share);
        }
        self.links.end_epoch(&self.hierarchy, epoch_ns);
        if self.ports.is_some() {
            (0..self.tasks.len()).for_each(|task| self.count_reads(task));
        }
        if let Some(ports) = &mut self.ports {
            ports.end_epoch(&self.hierarchy, line_bytes / epoch_ns);
        }
        self.update_memory_latencies();
        self.update_siblings();
    }

    fn update_memory_latencies(&mut self) {
        let nodes = self.node_load.len();
        for (index, domain) in self.domains.iter_mut().enumerate() {
            for (entry, latency) in domain.memory.iter_mut().enumerate() {
                let (core, node) = (entry / nodes, entry % nodes);
                let near = self.ports.as_ref().map_or(1.0, |ports| ports.factor(index, core));
                let (here, there) = ((self.domain_sockets[index], domain.node), (self.node_sockets[node], node));
                let link = self.links.factor(there, here);
                let factor = self.node_load[node].value() * link * self.port_load[index].value() * near;
                let fs = |factor: f64| {
                    (self.hierarchy.memory_ns[domain.node][node] * factor * FS_PER_NS as f64).round() as u64
                };
                *latency = MemoryLatency { idle_fs: fs(1.0), loaded_fs: fs(factor) };
            }
        }
    }

    fn update_siblings(&mut self) {
        for domain in 0..self.domains.len() {
            for core in 0..self.domains[domain].running.len() {
                if self.domains[domain].running[core].len() > 1 {
                    self.refresh_core(domain, core);
                }
            }
        }
        for domain in &self.domains {
            for task in domain.tasks.iter().flatten() {
                let state = &mut self.tasks[task.id as usize];
                state.epoch_busy_fs = task.busy_fs;
                state.epoch_stall_fs = task.stall_fs;
            }
        }
    }

    /// Why nothing runs any more: there is no frame left for a page that was touched.
    pub fn exhausted(&self) -> Option<&ExactError> {
        self.paging.as_ref().and_then(|paging| paging.exhausted.as_ref())
    }

    /// The time all tasks have reached.
    pub fn now_ns(&self) -> u64 {
        self.now_fs / FS_PER_NS
    }

    /// The machine as it is simulated.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Where a task is.
    pub fn cpu_of(&self, task: usize) -> Option<CpuId> {
        self.tasks[task].cpu
    }

    /// Number of tasks.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Limits a task to a number of instructions from its beginning; it then waits on its CPU. Rounded up to touches.
    pub fn set_work(&mut self, task: usize, instructions: f64) {
        let task = self.task_mut(task);
        task.touches_wanted = (instructions * task.stream.rate()).ceil() as u64;
    }

    /// Whether a task has done the work it was limited to.
    pub fn is_done(&self, task: usize) -> bool {
        let task = self.task(task);
        task.touches >= task.touches_wanted
    }

    fn task(&self, index: usize) -> &Task {
        let state = &self.tasks[index];
        if let Some(parked) = &state.parked {
            return parked;
        }
        let seat = state.cpu.map(|cpu| self.seats[cpu.index()]);
        let held = seat.and_then(|seat| self.domains[seat.domain].tasks[state.slot].as_deref());
        held.expect("a task is parked or on a CPU")
    }

    fn task_mut(&mut self, index: usize) -> &mut Task {
        let state = &mut self.tasks[index];
        if let Some(parked) = &mut state.parked {
            return parked;
        }
        let seat = state.cpu.map(|cpu| self.seats[cpu.index()]);
        let (domains, slot) = (&mut self.domains, state.slot);
        let held = seat.and_then(|seat| domains[seat.domain].tasks[slot].as_deref_mut());
        held.expect("a task is parked or on a CPU")
    }

    /// Checks what must hold between the directories and the caches at any time.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let context = Context { coherent_end: self.home.entries.len() as u32, ..self.context.clone() };
        super::invariants::check(&context, &self.domains, &self.home);
    }
}
