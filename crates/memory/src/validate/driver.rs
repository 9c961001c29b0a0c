//! Plays one schedule on both levels and lines up what they count.

use warmcore_topology::{CpuId, LlcId, Machine, from_toml};

use super::{Effort, SuiteError};
use crate::analytic::{self, MemoryEvent, Player};
use crate::exact::{LlcFill, Options, Simulation, TaskSpec};
use crate::hierarchy::Hierarchy;
use crate::profile::{Class, Profile, Sharing};

/// Caches of a machine, in KiB and ways.
pub(super) struct Caches {
    pub(super) l1: (u32, u32),
    pub(super) l2: (u32, u32),
    pub(super) llc: (u32, u32),
}

/// The same with an L1 for instructions, of KiB and ways.
pub(super) fn machine_with_l1i(shape: &str, caches: &Caches, (kib, ways): (u32, u32)) -> Result<Machine, SuiteError> {
    described(
        shape,
        caches,
        &format!("[[cache]]\nlevel = 1\nkind = \"instruction\"\nsize = \"{kib}KiB\"\nways = {ways}\n"),
    )
}

/// Middle-sized caches, so that they fill fast.
pub(super) const SMALL: Caches = Caches { l1: (32, 8), l2: (256, 8), llc: (4096, 16) };

/// A machine with these caches and typical latencies.
pub(super) fn machine(shape: &str, caches: &Caches) -> Result<Machine, SuiteError> {
    described(shape, caches, "")
}

fn described(shape: &str, caches: &Caches, l1i: &str) -> Result<Machine, SuiteError> {
    let cache = |level: u32, (kib, ways): (u32, u32), latency: f64| {
        format!(
            "[[cache]]\nlevel = {level}\nsize = \"{kib}KiB\"\nways = {ways}\norigin = \"given\"\n\
             latency_ns = {latency:.1}\n"
        )
    };
    let text = format!(
        "name = \"{shape}\"\n[topology]\norigin = \"given\"\nshape = \"{shape}\"\n{}{l1i}{}{}\
         [frequency]\norigin = \"given\"\nbase_mhz = 2500\nnominal_mhz = 2500\n\
         [memory]\norigin = \"given\"\nlocal_ns = 100\nsame_socket_ns = 130\nother_socket_ns = 190\n\
         socket_read_gb_per_s = 200\nsocket_mixed_gb_per_s = 180\nsocket_link_gb_per_s = 80\n\
         [core_to_core_ns]\norigin = \"given\"\nsmt_sibling = 10\nsame_llc = 30\nsame_node = 100\n\
         same_socket = 110\nother_socket = 200\n",
        cache(1, caches.l1, 1.5),
        cache(2, caches.l2, 5.0),
        cache(3, caches.llc, 20.0),
    );
    from_toml(&text).map_err(|error| SuiteError::Machine(error.to_string()))
}

/// A profile of private classes given as KiB, touches per kilo-instruction and write fraction.
pub(super) fn profile(name: &str, classes: &[(f64, f64, f64)]) -> Profile {
    let class = |(index, (kib, per_ki, writes)): (usize, &(f64, f64, f64))| {
        Class::new(format!("c{index}"), (kib * 1024.0) as u64, per_ki / 1e3, *writes)
    };
    Profile {
        origin: "given".to_owned(),
        ..Profile::new(name, 0.5, 2.0, classes.iter().enumerate().map(class).collect())
    }
}

/// A class shared by the process.
pub(super) fn shared(kib: f64, per_ki: f64, writes: f64) -> Class {
    Class { sharing: Sharing::Process, ..Class::new("shared", (kib * 1024.0) as u64, per_ki / 1e3, writes) }
}

/// Where tasks are for some time.
pub(super) struct Segment {
    pub(super) ns: u64,
    /// By task.
    pub(super) cpus: Vec<Option<CpuId>>,
}

/// A schedule of tasks on a machine. All tasks are of one process.
pub(super) struct Scenario {
    pub(super) machine: Machine,
    pub(super) options: Options,
    /// By task.
    pub(super) profiles: Vec<Profile>,
    pub(super) segments: Vec<Segment>,
}

impl Scenario {
    /// Tasks that stay where they are, for a time to warm up and a time to measure.
    pub(super) fn steady(
        effort: Effort,
        machine: Machine,
        profiles: Vec<Profile>,
        cpus: &[u32],
        warm_ns: u64,
        ns: u64,
    ) -> Self {
        let cpus: Vec<Option<CpuId>> = cpus.iter().map(|cpu| Some(CpuId(*cpu))).collect();
        let segments = vec![Segment { ns: warm_ns, cpus: cpus.clone() }, Segment { ns, cpus }];
        let options = options(&machine, effort);
        Self { machine, options, profiles, segments }
    }
}

/// Options under which the exact level does what the analytic one describes.
pub(super) fn options(machine: &Machine, effort: Effort) -> Options {
    let fills = Hierarchy::new(machine).map_or(Vec::new(), |hierarchy| hierarchy.fill);
    // Where they differ, each has its own.
    let same = fills.first().filter(|first| fills.iter().all(|fill| fill == *first));
    let llc_fill = same.map(|fill| LlcFill::from(*fill));
    Options { llc_fill, quantum_ns: 2_000, seed: effort.seed, ..Options::default() }
}

/// What one level counted of a task in a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) instructions: f64,
    pub(super) ns: f64,
    /// Of both kinds of L1.
    pub(super) l1_misses: f64,
    pub(super) l1i_misses: f64,
    pub(super) l2_misses: f64,
    /// Lines from memory.
    pub(super) memory: f64,
    pub(super) rfos: f64,
    /// Reads from other LLCs.
    pub(super) cross_reads: f64,
    pub(super) same_llc: f64,
    /// Lines of private classes in the LLC and L2 of the segment's CPU at its end.
    pub(super) llc_lines: f64,
}

impl Measured {
    /// Misses of the L1 that the L2 did not serve, by L1 miss.
    pub(super) fn l2_miss_ratio(&self) -> f64 {
        self.l2_misses / self.l1_misses.max(1.0)
    }

    /// L2 misses that memory served, by L2 miss.
    pub(super) fn llc_miss_ratio(&self) -> f64 {
        self.memory / self.l2_misses.max(1.0)
    }

    fn minus(&self, earlier: &Self) -> Self {
        Self {
            instructions: self.instructions - earlier.instructions,
            ns: self.ns - earlier.ns,
            l1_misses: self.l1_misses - earlier.l1_misses,
            l1i_misses: self.l1i_misses - earlier.l1i_misses,
            l2_misses: self.l2_misses - earlier.l2_misses,
            memory: self.memory - earlier.memory,
            rfos: self.rfos - earlier.rfos,
            cross_reads: self.cross_reads - earlier.cross_reads,
            same_llc: self.same_llc - earlier.same_llc,
            llc_lines: self.llc_lines,
        }
    }
}

/// By segment and task.
pub(super) type Table = Vec<Vec<Measured>>;

/// Plays a scenario on both levels: exact, then analytic.
pub(super) fn play(scenario: &Scenario) -> Result<(Table, Table), SuiteError> {
    Ok((play_exact(scenario)?.0, play_analytic(scenario)?.0))
}

pub(super) fn play_exact(scenario: &Scenario) -> Result<(Table, Simulation), SuiteError> {
    let spec = |profile: &Profile| TaskSpec { profile: profile.clone(), process: 0, data_group: None };
    let specs = scenario.profiles.iter().map(spec).collect();
    let mut simulation = Simulation::new(&scenario.machine, scenario.options, specs)?;
    let mut before = vec![Measured::default(); scenario.profiles.len()];
    let mut table = Vec::new();
    for segment in &scenario.segments {
        for task in (0..segment.cpus.len()).filter(|task| segment.cpus[*task].is_none()) {
            simulation.place(task, None)?;
        }
        // Tasks that swap CPUs leave both before either comes.
        for (task, cpu) in segment.cpus.iter().enumerate() {
            if cpu.is_some() && simulation.cpu_of(task) != *cpu {
                simulation.place(task, None)?;
            }
        }
        for (task, cpu) in segment.cpus.iter().enumerate() {
            simulation.place(task, *cpu)?;
        }
        simulation.run_for(segment.ns);
        let mut row = Vec::new();
        for (task, before) in before.iter_mut().enumerate() {
            let mut now = exact_measured(&simulation, task);
            if let Some(cpu) = segment.cpus[task] {
                // The analytic level counts a window's lines in the LLC or in the L2 before it.
                let (llc, l2) = (simulation.llc_occupancy(scenario.machine.llc_of(cpu)), simulation.l2_occupancy(cpu));
                now.llc_lines = (llc.0[task] + l2.0.get(task).copied().unwrap_or(0)) as f64;
            }
            row.push(now.minus(before));
            *before = now;
        }
        table.push(row);
    }
    Ok((table, simulation))
}

fn exact_measured(simulation: &Simulation, task: usize) -> Measured {
    let counters = simulation.counters(task);
    let total = counters.total();
    Measured {
        instructions: counters.instructions,
        ns: counters.busy_fs as f64 * 1e-6,
        l1_misses: total.l1_misses as f64,
        l1i_misses: counters.l1i_misses as f64,
        l2_misses: total.l2_misses() as f64,
        memory: (total.dram_local + total.dram_remote) as f64,
        rfos: total.cross_rfos() as f64,
        cross_reads: total.cross_reads() as f64,
        same_llc: total.same_llc_transfers as f64,
        llc_lines: 0.0,
    }
}

pub(super) fn play_analytic(scenario: &Scenario) -> Result<(Table, Player), SuiteError> {
    let mut player = Player::with_replacement(&scenario.machine, &scenario.profiles, scenario.options.llc_replacement)?;
    let tasks: Vec<u32> = (0..scenario.profiles.len())
        .map(|profile| player.add_task(&analytic::TaskSpec { profile, process: 0, data: &[] }))
        .collect();
    let mut running: Vec<Option<CpuId>> = vec![None; tasks.len()];
    let mut before = vec![Measured::default(); tasks.len()];
    let mut table = Vec::new();
    for segment in &scenario.segments {
        for (task, now) in running.iter_mut().enumerate() {
            if *now != segment.cpus[task]
                && let Some(cpu) = now.take()
            {
                player.switch_out(cpu);
            }
        }
        for (task, now) in running.iter_mut().enumerate() {
            if *now != segment.cpus[task]
                && let Some(cpu) = segment.cpus[task]
            {
                player.switch_in(cpu, tasks[task]);
                *now = Some(cpu);
            }
        }
        let until = player.now_ns() + segment.ns;
        player.advance(until);
        let mut row = Vec::new();
        for (task, before) in before.iter_mut().enumerate() {
            let mut now = analytic_measured(&player, tasks[task]);
            if let Some(cpu) = segment.cpus[task] {
                let LlcId(llc) = scenario.machine.llc_of(cpu);
                now.llc_lines = player.model().llc_lines(tasks[task], llc, player.now_ns());
            }
            row.push(now.minus(before));
            *before = now;
        }
        table.push(row);
    }
    Ok((table, player))
}

fn analytic_measured(player: &Player, task: u32) -> Measured {
    let counters = player.counters(task);
    let event = |event: MemoryEvent| counters.events[event as usize];
    let rfos = event(MemoryEvent::L3RfoOtherLlc);
    let cross = event(MemoryEvent::C2cOtherLlc) + event(MemoryEvent::C2cOtherSocket);
    Measured {
        instructions: counters.instructions,
        ns: counters.total_ns(),
        l1_misses: event(MemoryEvent::L1Miss) + event(MemoryEvent::L1iMiss),
        l1i_misses: event(MemoryEvent::L1iMiss),
        l2_misses: event(MemoryEvent::L2Miss),
        memory: event(MemoryEvent::DramLocal) + event(MemoryEvent::DramRemote),
        rfos,
        cross_reads: (cross - rfos).max(0.0),
        same_llc: event(MemoryEvent::C2cSameLlc),
        llc_lines: 0.0,
    }
}
