//! X11: do both levels rank placements alike?

use warmcore_topology::split_mix;

use super::driver::{SMALL, Scenario, machine, play, profile, shared};
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::profile::Profile;

/// Five workloads of eight tasks each: what they fight for differs.
fn workloads() -> Vec<(&'static str, Vec<Profile>)> {
    let compute = profile("compute", &[(8.0, 60.0, 0.2)]);
    let cached = profile("cached", &[(16.0, 80.0, 0.3), (900.0, 10.0, 0.3)]);
    let large = profile("large", &[(16.0, 80.0, 0.3), (150.0, 10.0, 0.3), (2_500.0, 6.0, 0.3)]);
    let mut stream = profile("stream", &[(8.0, 40.0, 0.2), (100_000.0, 12.0, 0.2)]);
    stream.mlp = 8.0;
    let mut sharing = profile("sharing", &[(12.0, 60.0, 0.3), (120.0, 8.0, 0.3)]);
    sharing.classes.push(shared(384.0, 8.0, 0.3));
    let mix_of = |kinds: [&Profile; 4]| kinds.into_iter().flat_map(|kind| [kind.clone(), kind.clone()]).collect();
    vec![
        ("sharing threads", vec![sharing.clone(); 8]),
        ("sharing and compute", mix_of([&sharing, &sharing, &compute, &compute])),
        ("cache fight", mix_of([&cached, &large, &large, &large])),
        ("all kinds", mix_of([&sharing, &cached, &large, &stream])),
        ("memory and cache", mix_of([&stream, &stream, &cached, &cached])),
    ]
}

/// X11: run time of every workload in random placements.
pub(super) fn placements(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let per_workload = effort.pick(6, 40);
    let (mut ordered, mut far_apart) = (0_u64, 0_u64);
    let mut correlations = Vec::new();
    for (name, profiles) in workloads() {
        let mut times = Vec::new();
        for placement in 0..per_workload {
            let machine = machine("2s1n2l4c2t", &SMALL)?;
            let mut cpus: Vec<u32> = (0..32).collect();
            cpus.sort_by_key(|cpu| split_mix(effort.seed << 40 | placement << 20 | u64::from(*cpu)));
            let ms = 1_000_000;
            let scenario =
                Scenario::steady(effort, machine, profiles.clone(), &cpus[..8], effort.pick(3, 6) * ms, 3 * ms);
            let (exact, analytic) = play(&scenario)?;
            // Time per instruction, all tasks counting alike.
            let time = |row: &[super::driver::Measured]| -> f64 {
                row.iter().map(|task| task.ns / task.instructions.max(1.0)).sum::<f64>() / row.len() as f64
            };
            let (e, a) = (time(&exact[1]), time(&analytic[1]));
            outcome.points.push(Point::new(format!("{name}, placement {placement}"), "ns per instruction", e, a));
            times.push((e, a));
        }
        correlations.push((name, rank_correlation(&times)));
        for (index, one) in times.iter().enumerate() {
            for two in &times[..index] {
                if (one.0 / two.0 - 1.0).abs() > 0.05 {
                    far_apart += 1;
                    ordered += u64::from((one.0 > two.0) == (one.1 > two.1));
                }
            }
        }
    }
    for (name, correlation) in correlations {
        outcome.demand(&format!("rank correlation, {name}"), 0.95, true, correlation);
    }
    outcome.demand("pairs more than 5 % apart in the same order", 0.97, true, ordered as f64 / far_apart as f64);
    Ok(outcome)
}

/// Spearman's: the correlation of the ranks.
fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |value: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        pairs.iter().map(|one| pairs.iter().filter(|other| value(other) < value(one)).count() as f64).collect()
    };
    let (x, y) = (ranks(|pair| pair.0), ranks(|pair| pair.1));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mx, my) = (mean(&x), mean(&y));
    let sum = |a: &[f64], ma: f64, b: &[f64], mb: f64| a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum::<f64>();
    sum(&x, mx, &y, my) / (sum(&x, mx, &x, mx) * sum(&y, my, &y, my)).sqrt()
}
