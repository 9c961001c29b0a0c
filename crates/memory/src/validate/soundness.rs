//! X12, X13 and X14: sampling, determinism and conservation.

use warmcore_topology::{CpuId, LlcId};

use super::driver::{Caches, SMALL, Scenario, Segment, machine, options, play_analytic, play_exact, shared};
use super::single::competitors;
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::exact::lanes::InstructionSet;
use crate::exact::{Simulation, TaskCounters, TaskSpec};

/// X12: a sampled simulation against the whole one, segment by segment.
pub(super) fn sampling(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    // 61,440 sets of 16 in the specification; a quarter of that here.
    let caches = Caches { l1: (32, 8), l2: (512, 8), llc: (16 << 10, 16) };
    let schedule: &[u32] = &[0b0001, 0b0011, 0b1111, 0b1110, 0b0101, 0b1111];
    let machine = machine("1s1n1l8c1t", &caches)?;
    let mut profiles = competitors();
    // Four times the classes for four times the cache.
    profiles.iter_mut().for_each(|profile| profile.classes[1..].iter_mut().for_each(|class| class.bytes *= 4));
    let segment = |running: &u32| Segment {
        ns: effort.pick(8, 20) * 1_000_000,
        cpus: (0..4).map(|task| (running >> task & 1 == 1).then_some(CpuId(task))).collect(),
    };
    let play = |shift: u32| {
        let mut scenario = Scenario {
            options: options(&machine, effort),
            machine: machine.clone(),
            profiles: profiles.clone(),
            segments: schedule.iter().map(segment).collect(),
        };
        scenario.options.sampling_shift = shift;
        play_exact(&scenario).map(|played| (scenario, played.0))
    };
    let (scenario, whole) = play(0)?;
    for shift in [4, 6] {
        let (_, sampled) = play(shift)?;
        for (index, segment) in scenario.segments.iter().enumerate() {
            for task in (0..4).filter(|task| segment.cpus[*task].is_some()) {
                let at = format!("1/{}, segment {index}, task {task}", 1 << shift);
                // Misses of the LLC by touch of the classes beyond L1.
                let ratio = |row: &super::driver::Measured| row.memory / (row.instructions * 0.01).max(1.0);
                let (e, a) = (ratio(&whole[index][task]), ratio(&sampled[index][task]));
                outcome.points.push(Point::new(at, "miss ratio", e, a));
            }
        }
    }
    outcome.demand_mean("LLC miss ratio of a segment, mean", "miss ratio", 0.005, Point::difference);
    outcome.demand_worst("LLC miss ratio of a segment, largest", "miss ratio", 0.02, Point::difference);
    Ok(outcome)
}

/// Everything a simulation says at its end.
type Everything = (Vec<TaskCounters>, Vec<crate::exact::NodeTraffic>, Vec<(Vec<u64>, Vec<u64>)>);

fn shared_simulation(set: InstructionSet, effort: Effort) -> Result<Simulation, SuiteError> {
    let machine = machine("2s1n2l4c2t", &SMALL)?;
    let mut profiles = competitors();
    profiles.iter_mut().for_each(|profile| profile.classes.push(shared(300.0, 6.0, 0.3)));
    let spec = |cpu: usize| TaskSpec { profile: profiles[cpu % 4].clone(), process: 0, data_group: None };
    let options = crate::exact::Options { instruction_set: set, ..options(&machine, effort) };
    let mut simulation = Simulation::new(&machine, options, (0..16).map(spec).collect())?;
    for task in 0..16 {
        simulation.place(task, Some(CpuId(2 * task as u32)))?;
    }
    simulation.run_for(effort.pick(200_000, 2_000_000));
    Ok(simulation)
}

fn everything(simulation: &Simulation) -> Everything {
    let counters = (0..simulation.task_count()).map(|task| simulation.counters(task)).collect();
    let occupancy = (0..4).map(|llc| simulation.llc_occupancy(LlcId(llc))).collect();
    (counters, simulation.node_traffic(), occupancy)
}

/// X13: the same bytes from one thread and two, from every instruction set, and twice.
pub(super) fn determinism(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let run = |threads: usize, set: InstructionSet| -> Result<Everything, SuiteError> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| SuiteError::Machine(error.to_string()))?;
        pool.install(|| shared_simulation(set, effort)).map(|simulation| everything(&simulation))
    };
    let expected = run(1, InstructionSet::Portable)?;
    let mut different = 0;
    for set in InstructionSet::available() {
        for threads in [1, 2] {
            let same = run(threads, set)? == expected;
            different += u32::from(!same);
            let at = format!("{threads} threads, {set:?}");
            outcome.points.push(Point::new(at, "equal", 1.0, f64::from(u8::from(same))));
        }
    }
    let machine = machine("2s1n2l4c1t", &SMALL)?;
    let analytic = || -> Result<Vec<u64>, SuiteError> {
        let cpus: Vec<u32> = (0..4).collect();
        let scenario = Scenario::steady(effort, machine.clone(), competitors(), &cpus, 1_000_000, 3_000_000);
        let (table, _) = play_analytic(&scenario)?;
        Ok(table.iter().flatten().flat_map(|row| [row.instructions.to_bits(), row.memory.to_bits()]).collect())
    };
    different += u32::from(analytic()? != analytic()?);
    outcome.demand("runs that differ in a bit", 0.0, false, f64::from(different));
    Ok(outcome)
}

/// X14: events add up, lines fit, bytes are misses times the line, work done is work asked.
pub(super) fn conservation(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let simulation = shared_simulation(InstructionSet::detect(), effort)?;
    let (mut lost, mut reads, mut rfos_from_memory) = (0, 0, 0);
    for task in 0..simulation.task_count() {
        let total = simulation.counters(task).total();
        let served = total.l2_hits + total.llc_hits + total.same_llc_transfers + total.upgrades + total.llc_misses();
        lost += served.abs_diff(total.l1_misses);
        reads += total.dram_local + total.dram_remote;
        // A write that takes clean copies away may get its data from memory as well.
        rfos_from_memory += total.cross_rfos();
    }
    outcome.demand("L1 misses that no cache or memory served", 0.0, false, lost as f64);
    let traffic: u64 = simulation.node_traffic().iter().map(|node| node.reads).sum();
    let beyond = if traffic < reads { reads - traffic } else { (traffic - reads).saturating_sub(rfos_from_memory) };
    outcome.demand("lines read from memory for no miss, or not read", 0.0, false, beyond as f64);
    let lines = simulation.hierarchy().llc[0].lines;
    let over = (0..4).map(|llc| {
        let (tasks, groups) = simulation.llc_occupancy(LlcId(llc));
        tasks.iter().chain(&groups).sum::<u64>().saturating_sub(lines)
    });
    outcome.demand("exact: lines beyond an LLC's capacity", 0.0, false, over.sum::<u64>() as f64);

    let machine = machine("1s1n1l8c1t", &SMALL)?;
    let cpus: Vec<u32> = (0..4).collect();
    let scenario = Scenario::steady(effort, machine, competitors(), &cpus, 5_000_000, effort.pick(1, 5) * 1_000_000);
    let (table, player) = play_analytic(&scenario)?;
    let held: f64 = table[1].iter().map(|row| row.llc_lines).sum();
    // The LLC and the L2s before it, which it excludes.
    let capacity = 4096.0 * 16.0 + 4.0 * 256.0 * 16.0;
    outcome.demand("analytic: lines beyond the LLC's capacity", 1e-9, false, (held / capacity - 1.0).max(0.0));
    // Time is all there is to ask of a task that runs all the time.
    let asked = scenario.segments[1].ns as f64;
    let off = table[1].iter().map(|row| (row.ns / asked - 1.0).abs()).fold(0.0, f64::max);
    outcome.demand("analytic: time accounted for, relative error", 1e-9, false, off);
    let (_, unsettled) = player.model().bandwidth_solutions();
    outcome.demand("analytic: bandwidth equations that did not settle", 0.0, false, unsettled as f64);
    Ok(outcome)
}
