//! X6 and X7: lines that several tasks write.

use warmcore_topology::split_mix;

use super::driver::{Caches, Measured, SMALL, Scenario, machine, play, profile, shared};
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::profile::Profile;

/// Threads with a private L1-sized class and a shared one of 512 KiB.
fn threads(count: usize, writes: f64, shared_kib: f64) -> Vec<Profile> {
    let mut thread = profile("thread", &[(12.0, 60.0, 0.3)]);
    thread.classes.push(shared(shared_kib, 10.0, writes));
    vec![thread; count]
}

/// `count` different numbers below `of`.
fn choose(count: usize, of: u32, seed: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..of).collect();
    all.sort_by_key(|number| split_mix(seed << 32 | u64::from(*number)));
    all.truncate(count);
    all
}

/// X6: groups of threads placed at random.
pub(super) fn groups(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    // An L2 that holds the shared class, so that only coherence misses.
    let caches = Caches { l1: (32, 8), l2: (1024, 16), llc: (4096, 16) };
    let shapes = [("1s1n1l32c1t", 32), ("2s1n1l16c1t", 32), ("1s1n4l8c1t", 32), ("2s1n4l4c1t", 32)];
    let counts: &[usize] = effort.pick(&[4, 12], &[2, 5, 12, 32]);
    for (number, (shape, cpus)) in shapes.into_iter().enumerate() {
        for &count in counts {
            for &writes in effort.pick(&[0.3][..], &[0.05, 0.3, 0.9]) {
                let machine = machine(shape, &caches)?;
                let places = choose(count, cpus, 1_000 * effort.seed + 10 * number as u64 + 100 * count as u64);
                let profiles = threads(count, writes, 256.0);
                // As many events of a small group as of the largest, so that chance is as small.
                let ns = effort.pick(2, 6) * 1_000_000 * 32 / count as u64;
                let mut scenario = Scenario::steady(effort, machine, profiles, &places, 4_000_000, ns);
                // A line is touched every 30 us or so; conflicts within a quantum must be rare.
                scenario.options.quantum_ns = 250;
                let (exact, analytic) = play(&scenario)?;
                let at = format!("{shape}, {count} threads, w {writes}");
                compare(&mut outcome, &at, &exact[1], &analytic[1], writes);
            }
        }
    }
    outcome.demand_worst("P(write needs another LLC), largest", "write miss probability", 0.01, Point::difference);
    outcome.demand_worst("P(read needs another LLC), largest", "read miss probability", 0.01, Point::difference);
    outcome.demand_worst("RFO per instruction, largest relative", "RFO MPKI", 0.05, Point::relative);
    Ok(outcome)
}

/// Sums over the threads: members of a small group count too few events each.
fn compare(outcome: &mut SuiteOutcome, at: &str, exact: &[Measured], analytic: &[Measured], writes: f64) {
    let sum = |row: &[Measured], value: fn(&Measured) -> f64| row.iter().map(value).sum::<f64>();
    let touches = |row: &[Measured]| sum(row, |task| task.instructions) * 0.01;
    let per_write = |row: &[Measured]| sum(row, |task| task.rfos) / (touches(row) * writes);
    // Under MESI memory serves readers of a line that several domains share; nothing else comes from memory here.
    let per_read = |row: &[Measured]| sum(row, |task| task.cross_reads + task.memory) / (touches(row) * (1.0 - writes));
    let mpki = |row: &[Measured]| 1e3 * sum(row, |task| task.rfos) / sum(row, |task| task.instructions);
    let mut add = |quantity, value: &dyn Fn(&[Measured]) -> f64| {
        outcome.points.push(Point::new(at, quantity, value(exact), value(analytic)));
    };
    add("write miss probability", &per_write);
    add("read miss probability", &per_read);
    add("RFO MPKI", &mpki);
}

/// X7: a sharing set that the LLCs do not hold.
pub(super) fn larger_than_llc(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    for shape in ["1s1n4l4c1t", "2s1n1l8c1t"] {
        for &mib in effort.pick(&[8.0][..], &[4.0, 8.0, 16.0, 32.0]) {
            for &writes in effort.pick(&[0.3][..], &[0.1, 0.3]) {
                let machine = machine(shape, &SMALL)?;
                let places = choose(8, 16, 6 + effort.seed);
                let mut profiles = threads(8, writes, mib * 1024.0);
                profiles.iter_mut().for_each(|profile| profile.classes[1].touches_per_instruction = 0.02);
                let scenario =
                    Scenario::steady(effort, machine, profiles, &places, effort.pick(20, 60) * 1_000_000, 10_000_000);
                let (exact, analytic) = play(&scenario)?;
                let at = format!("{shape}, {mib} MiB, w {writes}");
                let sum = |row: &[Measured], value: fn(&Measured) -> f64| -> f64 {
                    1e3 * row.iter().map(value).sum::<f64>() / row.iter().map(|task| task.instructions).sum::<f64>()
                };
                let mut add = |quantity, value: fn(&Measured) -> f64| {
                    outcome.points.push(Point::new(&*at, quantity, sum(&exact[1], value), sum(&analytic[1], value)));
                };
                add("coherence MPKI", |task| task.rfos + task.cross_reads);
                add("memory MPKI", |task| task.memory);
            }
        }
    }
    outcome.demand_worst("coherence misses, largest relative", "coherence MPKI", 0.10, Point::relative);
    outcome.demand_worst("capacity misses, largest relative", "memory MPKI", 0.10, Point::relative);
    Ok(outcome)
}
