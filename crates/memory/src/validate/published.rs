//! P1, P2 and P11: the model on presets against what was measured on such machines (`docs/spec/memory-model.md` section
//! 8.2).
//!
//! In these points "exact" is the published value. Latencies of transfers, curves of loaded memory and bandwidths of
//! the presets come from the same publications, so P1 and P2 say that the model charges what the machine states, with
//! all its waiting, overlap and fixed points in between; they do not say that the machine is right. P11 follows from
//! sizes and latencies that nobody fitted to it.
//!
//! Hand-offs between sibling threads are not compared: siblings share the L1, and nothing moves.

use warmcore_topology::{CpuId, Machine, Relation, resolve};

use super::driver::{options, profile, shared};
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::analytic::{Counters, MemoryEvent, Player, TaskSpec, TimeShare};
use crate::exact;
use crate::profile::{Class, Home, Profile};

const MS: u64 = 1_000_000;
/// Part of a transfer that a writer of independent lines waits for: mlp_c (`docs/spec/memory-model.md` section 4.8).
const OVERLAP: f64 = 1.5;

/// Medians of `docs/spec/memory-model.md` section 7.2 in ns: preset, same LLC, other LLC of the socket, other socket.
const TRANSFERS: [(&str, [Option<f64>; 3]); 7] = [
    ("spr32", [Some(55.0), None, None]),
    ("clx26", [Some(47.5), None, Some(137.5)]),
    ("genoa96", [Some(27.0), Some(99.0), Some(192.0)]),
    ("milan64", [Some(25.0), Some(123.0), Some(304.0)]),
    ("naples32", [Some(38.0), Some(252.0), Some(368.0)]),
    ("kunpeng64", [Some(36.0), Some(81.0), None]),
    ("graviton3", [Some(46.0), None, None]),
];

fn preset(name: &str) -> Result<Machine, SuiteError> {
    resolve(name).map_err(|error| SuiteError::Machine(error.to_string()))
}

/// A CPU with the given place relative to CPU 0: under its LLC, under another of the socket, on another socket. Where
/// LLCs of a socket are on several nodes, the published median is about most of them: other nodes'.
fn partner(machine: &Machine, place: usize) -> Option<CpuId> {
    let find = |relation| machine.cpus().find(|cpu| machine.relation(CpuId(0), *cpu) == relation);
    match place {
        0 => find(Relation::SameLlc),
        1 => find(Relation::SameSocket).or_else(|| find(Relation::SameNode)),
        _ => find(Relation::OtherSocket),
    }
}

/// Two threads that write one line by turns, rarely enough not to queue for it.
fn ping_pong() -> Profile {
    let mut thread = profile("ping-pong", &[(4.0, 5.0, 0.0)]);
    thread.classes.push(shared(0.0625, 0.2, 1.0));
    thread
}

/// P1: what a hand-off of a modified line costs, at both levels.
pub(super) fn transfers(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    for (name, medians) in TRANSFERS {
        let machine = preset(name)?;
        for (place, median) in medians.into_iter().enumerate() {
            let (Some(median), Some(cpu)) = (median, partner(&machine, place)) else { continue };
            let at = format!("{name}, {}", ["same LLC", "other LLC of the socket", "other socket"][place]);
            let analytic = analytic_transfer_ns(&machine, cpu, effort)?;
            outcome.points.push(Point::new(format!("{at}, analytic"), "ns per transfer", median, analytic));
            let exact = exact_transfer_ns(&machine, cpu, effort)?;
            outcome.points.push(Point::new(format!("{at}, exact"), "ns per transfer", median, exact));
        }
    }
    outcome.demand_worst("hand-off of a line, largest relative", "ns per transfer", 0.10, Point::relative);
    Ok(outcome)
}

fn analytic_transfer_ns(machine: &Machine, cpu: CpuId, effort: Effort) -> Result<f64, SuiteError> {
    let mut player = Player::new(machine, &[ping_pong()])?;
    for at in [CpuId(0), cpu] {
        let task = player.add_task(&TaskSpec { profile: 0, process: 0, data: &[] });
        player.switch_in(at, task);
    }
    player.advance(5 * MS);
    let sum = |player: &Player| {
        let mut sum = Counters::default();
        (0..2).for_each(|task| sum += &player.counters(task));
        sum
    };
    let before = sum(&player);
    player.advance((5 + effort.pick(5, 20)) * MS);
    let after = sum(&player);
    let time = |share: TimeShare| after.time_ns[share as usize] - before.time_ns[share as usize];
    let count = |event: MemoryEvent| after.events[event as usize] - before.events[event as usize];
    let waited = time(TimeShare::Llc) + time(TimeShare::OtherLlc) + time(TimeShare::OtherSocket);
    let moved = count(MemoryEvent::C2cSameLlc) + count(MemoryEvent::C2cOtherLlc) + count(MemoryEvent::C2cOtherSocket);
    Ok(waited / moved * OVERLAP)
}

fn exact_transfer_ns(machine: &Machine, cpu: CpuId, effort: Effort) -> Result<f64, SuiteError> {
    // Conflicts within a quantum are settled at its end.
    let options = exact::Options { quantum_ns: 100, ..options(machine, effort) };
    let spec = || exact::TaskSpec { profile: ping_pong(), process: 0, data_group: None };
    let mut simulation = exact::Simulation::new(machine, options, vec![spec(), spec()])?;
    simulation.place(0, Some(CpuId(0)))?;
    simulation.place(1, Some(cpu))?;
    simulation.run_for(MS / 2);
    let before = [0, 1].map(|task| simulation.counters(task));
    simulation.run_for(effort.pick(2, 10) * MS);
    let (mut waited_fs, mut moved) = (0, 0);
    for (task, before) in before.iter().enumerate() {
        let since = simulation.counters(task).since(before);
        let total = since.total();
        waited_fs += since.stall_fs;
        moved += total.same_llc_transfers + total.cross_reads() + total.cross_rfos();
    }
    Ok(waited_fs as f64 * 1e-6 / moved as f64 * OVERLAP)
}

/// Points of load over peak and of loaded latency over idle latency.
type Curve = &'static [(f64, f64)];

/// Published loaded latency over idle latency by load over peak, reads only, and the peak of a node in GB/s
/// (`docs/spec/memory-model.md` sections 4.7 and 7.3; Kunpeng's was measured per socket of two nodes and is halved).
const LOADED: [(&str, f64, Curve); 3] = [
    ("spr32", 255.0, &[(0.0, 1.0), (0.25, 1.06), (0.5, 1.14), (0.6, 1.21), (0.7, 1.30), (0.8, 1.41), (0.9, 1.57)]),
    ("clx26", 113.0, &[(0.0, 1.0), (0.25, 1.11), (0.5, 1.20), (0.6, 1.26), (0.7, 1.32), (0.8, 1.39), (0.9, 1.55)]),
    ("kunpeng64", 79.0, &[(0.0, 1.0), (0.25, 1.16), (0.5, 1.32), (0.6, 1.42), (0.7, 1.54), (0.8, 1.71), (0.9, 2.12)]),
];

/// Published bandwidth of one socket's cores from another socket's memory in GB/s (`docs/spec/memory-model.md` section
/// 7.3).
const LINKS: [(&str, f64); 2] = [("spr32", 119.0), ("clx26", 34.0)];

/// A task that reads as fast as its misses allow.
fn injector(per_ki: f64, home: Home) -> Profile {
    let mut injector = profile("injector", &[(8.0, 5.0, 0.0), (8.0 * 1024.0 * 1024.0, per_ki, 0.0)]);
    injector.mlp = 10.0;
    injector.classes[1].exposure = 0.3;
    injector.classes[1].home = home;
    injector
}

/// GB/s of injectors on the first CPUs, and the latency of node `node`'s memory as CPU 0 sees it, loaded over idle.
fn inject(machine: &Machine, count: usize, per_ki: f64, node: usize, effort: Effort) -> Result<(f64, f64), SuiteError> {
    let shares = (0..machine.node_count()).map(|index| if index == node { 1.0 } else { 0.0 }).collect();
    let mut player = Player::new(machine, &[injector(per_ki, Home::Shares(shares))])?;
    let idle = player.model().memory_latency_ns(CpuId(0), node);
    for cpu in 0..count {
        let task = player.add_task(&TaskSpec { profile: 0, process: cpu as u32, data: &[] });
        player.switch_in(CpuId::from_index(cpu), task);
    }
    let lines = |player: &Player| -> f64 {
        let of = |task: usize| player.counters(task as u32).events;
        let of = |task| of(task)[MemoryEvent::DramLocal as usize] + of(task)[MemoryEvent::DramRemote as usize];
        (0..count).map(of).sum()
    };
    player.advance(MS);
    let before = lines(&player);
    let ns = effort.pick(1, 4) * MS;
    player.advance(MS + ns);
    let loaded = player.model().memory_latency_ns(CpuId(0), node);
    Ok(((lines(&player) - before) * 64.0 / ns as f64, loaded / idle))
}

/// P2: injectors on loaded memory and links.
pub(super) fn loaded_memory(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let rates: &[f64] = effort.pick(&[2.0, 8.0, 200.0], &[1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 20.0, 60.0, 200.0]);
    for (name, peak, curve) in LOADED {
        let machine = preset(name)?;
        let cores = machine.cpus_of_node(warmcore_topology::NodeId(0)).len();
        let (mut highest, counts) = (0.0_f64, effort.pick(2, 6));
        // Injectors of a node's cores: one each, siblings left idle.
        let cores = cores / machine.cpus_of_core(machine.core_of(CpuId(0))).len().max(1);
        for step in 1..=counts {
            for &per_ki in rates {
                let count = (cores * step / counts).max(1);
                let (rate, factor) = inject(&machine, count, per_ki, 0, effort)?;
                highest = highest.max(rate);
                let load = rate / peak;
                if load < 0.9 {
                    let at =
                        format!("{name}, {count} injectors of {per_ki} lines per 1000 instructions, load {load:.2}");
                    outcome.points.push(Point::new(at, "latency factor", interpolated(curve, load), factor));
                }
            }
        }
        outcome.points.push(Point::new(format!("{name}, local"), "peak GB/s", peak, highest));
    }
    for (name, link) in LINKS {
        let machine = preset(name)?;
        let node = machine.node_count() - 1;
        let cores = machine.core_count() / machine.socket_count();
        let (rate, _) = inject(&machine, cores, 200.0, node, effort)?;
        outcome.points.push(Point::new(format!("{name}, other socket's memory"), "peak GB/s", link, rate));
    }
    outcome.demand_worst("latency below 90 % load, largest relative", "latency factor", 0.10, Point::relative);
    outcome.demand_worst("peak bandwidth, largest relative", "peak GB/s", 0.05, Point::relative);
    Ok(outcome)
}

fn interpolated(curve: &[(f64, f64)], load: f64) -> f64 {
    let after = curve.iter().position(|point| point.0 >= load).unwrap_or(curve.len() - 1).max(1);
    let ((x0, y0), (x1, y1)) = (curve[after - 1], curve[after]);
    y0 + (y1 - y0) * (load - x0) / (x1 - x0)
}

/// Presets whose L2 has 2 MiB, which the specification's range of reload times is about.
const LARGE_L2: [&str; 5] = ["spr32", "spr40", "xeon60", "emr32", "gnr72"];

/// P11: what a task that fills its L2 loses by moving to another core under the same LLC.
pub(super) fn reload(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    let rates: &[f64] = effort.pick(&[20.0], &[10.0, 20.0, 30.0]);
    for name in LARGE_L2 {
        let machine = preset(name)?;
        let cpu = partner(&machine, 0);
        let cpu = cpu.ok_or_else(|| SuiteError::Machine(format!("{name} has one core per LLC")))?;
        for per_ki in rates {
            let mut filling = profile("l2-filling", &[(4.0, 5.0, 0.3)]);
            filling.cpi0 = 0.6;
            filling.classes.push(Class::new("l2", 2 << 20, per_ki / 1e3, 0.3));
            let lost = lost_ms(&machine, filling, cpu)?;
            (least, most) = (least.min(lost), most.max(lost));
            let at = format!("{name}, {per_ki} touches per 1000 instructions");
            // The kernel's default migration cost, as the published value.
            outcome.points.push(Point::new(at, "ms lost", 0.5, lost));
        }
    }
    outcome.demand("reload after a migration in ms, least", 0.25, true, least);
    outcome.demand("reload after a migration in ms, most", 1.5, false, most);
    Ok(outcome)
}

fn lost_ms(machine: &Machine, profile: Profile, to: CpuId) -> Result<f64, SuiteError> {
    let mut player = Player::new(machine, &[profile])?;
    let task = player.add_task(&TaskSpec { profile: 0, process: 0, data: &[] });
    player.switch_in(CpuId(0), task);
    player.advance(300 * MS);
    let warm = player.counters(task).instructions;
    player.advance(400 * MS);
    let rate = (player.counters(task).instructions - warm) / 100.0;
    let before = player.counters(task).instructions;
    player.switch_out(CpuId(0));
    player.switch_in(to, task);
    player.advance(500 * MS);
    Ok(100.0 - (player.counters(task).instructions - before) / rate)
}
