//! X9 and X10: what tasks do to each other's speed by loading memory, links and cores.

use warmcore_topology::{CpuId, NodeId};

use super::driver::{SMALL, Scenario, machine, play_analytic, play_exact, profile};
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::profile::{Home, Profile};

/// A task that streams through memory whose pages have the given homes.
fn streamer(home: Home) -> Profile {
    let mut stream = profile("stream", &[(8.0, 40.0, 0.2), (200_000.0, 15.0, 0.2)]);
    stream.mlp = 8.0;
    stream.classes[1].exposure = 0.25;
    stream.classes[1].home = home;
    stream
}

/// X9: streams per node, local and remote.
pub(super) fn bandwidth(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let homes = [
        ("local", Home::Shares(vec![1.0, 0.0])),
        ("remote", Home::Shares(vec![0.0, 1.0])),
        ("half remote", Home::Shares(vec![0.5, 0.5])),
    ];
    for (name, home) in &homes {
        for &count in effort.pick(&[2_u32, 12][..], &[1, 2, 4, 6, 8, 12, 16]) {
            let machine = machine("2s1n1l16c1t", &SMALL)?;
            let cpus: Vec<u32> = (0..count).collect();
            let profiles = vec![streamer(home.clone()); count as usize];
            let ns = effort.pick(300_000, 1_000_000);
            let mut scenario = Scenario::steady(effort, machine, profiles, &cpus, ns, ns);
            scenario.options.epoch_ns = 5_000;
            let (exact, simulation) = play_exact(&scenario)?;
            let (analytic, player) = play_analytic(&scenario)?;
            let at = format!("{count} streams, {name}");
            let rate =
                |row: &[super::driver::Measured]| row.iter().map(|task| task.memory).sum::<f64>() * 64.0 / ns as f64;
            outcome.points.push(Point::new(&*at, "GB/s", rate(&exact[1]), rate(&analytic[1])));
            let node = if *name == "local" { 0 } else { 1 };
            let loaded = simulation.memory_latency_ns(CpuId(0), node);
            let hierarchy = simulation.hierarchy();
            let traffic: f64 = rate(&exact[1]) / hierarchy.node_bandwidth[NodeId(0).index()];
            let quantity = if traffic < 0.9 { "latency" } else { "latency near saturation" };
            let predicted = player.model().memory_latency_ns(CpuId(0), node);
            outcome.points.push(Point::new(at, quantity, loaded, predicted));
        }
    }
    outcome.demand_worst("GB/s, largest relative", "GB/s", 0.03, Point::relative);
    outcome.demand_worst("latency below 90 % load, largest relative", "latency", 0.10, Point::relative);
    Ok(outcome)
}

/// X10: two threads on one core.
pub(super) fn siblings(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let compute = || profile("compute", &[(8.0, 60.0, 0.2)]);
    let l2 = || profile("L2", &[(16.0, 80.0, 0.3), (160.0, 20.0, 0.3)]);
    let llc = || profile("LLC", &[(16.0, 80.0, 0.3), (100.0, 10.0, 0.3), (2_000.0, 8.0, 0.3)]);
    let memory = || profile("memory", &[(16.0, 60.0, 0.3), (60_000.0, 8.0, 0.3)]);
    let kinds = [compute(), l2(), llc(), memory()];
    for (first, one) in kinds.iter().enumerate() {
        for two in &kinds[first..] {
            let machine = machine("1s1n1l2c2t", &SMALL)?;
            let siblings: Vec<u32> = machine.cpus_of_core(machine.core_of(CpuId(0))).iter().map(|cpu| cpu.0).collect();
            let ns = effort.pick(2_000_000, 6_000_000);
            let scenario = Scenario::steady(effort, machine, vec![one.clone(), two.clone()], &siblings, 2 * ns, ns);
            let (exact, analytic) = super::driver::play(&scenario)?;
            let rate =
                |row: &[super::driver::Measured]| row.iter().map(|task| task.instructions).sum::<f64>() / ns as f64;
            let at = format!("{} beside {}", one.name, two.name);
            outcome.points.push(Point::new(&*at, "pair throughput", rate(&exact[1]), rate(&analytic[1])));
            for task in 0..2 {
                let per_ns = |row: &[super::driver::Measured]| row[task].instructions / ns as f64;
                let point = Point::new(&*at, "thread throughput", per_ns(&exact[1]), per_ns(&analytic[1]));
                outcome.points.push(point);
            }
        }
    }
    outcome.demand_worst("pair throughput, largest relative", "pair throughput", 0.10, Point::relative);
    Ok(outcome)
}
