//! X3, X4 and X5: what happens to warmth when tasks come, go, take turns and move.

use warmcore_topology::CpuId;

use super::driver::{SMALL, Scenario, Segment, machine, options, play, profile};
use super::single::competitors;
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::profile::Profile;

const MS: u64 = 1_000_000;

/// X3: four tasks of one LLC that join, leave and return.
pub(super) fn transients(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let capacity = 4096.0 * 16.0;
    // Who runs in each segment, as bits.
    let schedules: &[&[u32]] = effort.pick(
        &[&[0b0001, 0b0011, 0b0111, 0b1110, 0b1010, 0b1111]],
        &[
            &[0b0001, 0b0011, 0b0111, 0b1110, 0b1010, 0b1111],
            &[0b1111, 0b0110, 0b0100, 0b1111, 0b0011, 0b1100],
            &[0b0100, 0b0101, 0b0001, 0b0101, 0b1011, 0b0111],
            &[0b1010, 0b0101, 0b1010, 0b0101, 0b1111, 0b0010],
        ],
    );
    for (number, schedule) in schedules.iter().enumerate() {
        for &ms in effort.pick(&[4][..], &[1, 4, 10]) {
            let machine = machine("1s1n1l8c1t", &SMALL)?;
            let segment = |running: &u32| Segment {
                ns: ms * MS,
                cpus: (0..4).map(|task| (running >> task & 1 == 1).then_some(CpuId(task))).collect(),
            };
            let scenario = Scenario {
                options: options(&machine, effort),
                machine,
                profiles: competitors(),
                segments: schedule.iter().map(segment).collect(),
            };
            let (exact, analytic) = play(&scenario)?;
            for (index, segment) in scenario.segments.iter().enumerate() {
                for task in (0..4).filter(|task| segment.cpus[*task].is_some()) {
                    let (e, a) = (exact[index][task], analytic[index][task]);
                    let at = format!("schedule {number}, {ms} ms, segment {index}, {}", scenario.profiles[task].name);
                    let lines =
                        Point::new(at.clone(), "share of capacity", e.llc_lines / capacity, a.llc_lines / capacity);
                    outcome.points.push(lines);
                    outcome.points.push(Point::new(at, "miss ratio", e.llc_miss_ratio(), a.llc_miss_ratio()));
                }
            }
        }
    }
    outcome.demand_mean("occupancy, mean difference / C", "share of capacity", 0.03, Point::difference);
    outcome.demand_worst("occupancy, largest difference / C", "share of capacity", 0.12, Point::difference);
    outcome.demand_worst("LLC miss ratio of a segment, largest", "miss ratio", 0.03, Point::difference);
    Ok(outcome)
}

/// Profiles that fill a 256 KiB L2.
fn l2_fillers() -> Vec<Profile> {
    vec![
        profile("a", &[(16.0, 80.0, 0.3), (180.0, 30.0, 0.3)]),
        profile("b", &[(16.0, 80.0, 0.3), (120.0, 20.0, 0.2), (600.0, 8.0, 0.3)]),
        profile("c", &[(16.0, 80.0, 0.3), (60.0, 10.0, 0.3)]),
    ]
}

/// X4: three tasks take turns on one CPU.
pub(super) fn slices(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    for &us in effort.pick(&[250_u64, 4_000][..], &[250, 500, 1_000, 2_000, 4_000]) {
        for order in 0..effort.pick(1, 2) {
            let machine = machine("1s1n1l2c1t", &SMALL)?;
            let profiles = l2_fillers();
            let rounds = (effort.pick(12_000, 48_000) / us).clamp(9, 60);
            let segments: Vec<Segment> = (0..rounds)
                .map(|round| {
                    let running = if order == 0 { round % 3 } else { [0, 1, 0, 2][round as usize % 4] };
                    let cpus = (0..3).map(|task| (task == running).then_some(CpuId(0))).collect();
                    Segment { ns: us * 1_000, cpus }
                })
                .collect();
            let scenario = Scenario { options: options(&machine, effort), machine, profiles, segments };
            let (exact, analytic) = play(&scenario)?;
            // The first turns are cold on both levels.
            let warm = 4;
            for index in warm..scenario.segments.len() {
                let Some(task) = scenario.segments[index].cpus.iter().position(Option::is_some) else { continue };
                let (e, a) = (exact[index][task], analytic[index][task]);
                let at = format!("{us} us, order {order}, slice {index}, task {task}");
                outcome.points.push(Point::new(at, "slice miss ratio", e.l2_miss_ratio(), a.l2_miss_ratio()));
            }
            let sum = |table: &[Vec<super::driver::Measured>], task: usize| -> f64 {
                table[warm..]
                    .iter()
                    .map(|row| row[task].l2_misses / row[task].instructions.max(1.0) * row[task].ns)
                    .sum()
            };
            let all: f64 = (0..3).map(|task| sum(&exact, task)).sum();
            for task in 0..3 {
                let at = format!("{us} us, order {order}, task {task}");
                let (e, a) = (sum(&exact, task), sum(&analytic, task));
                let quantity = if e > 0.05 * all { "total misses" } else { "total misses of a small share" };
                outcome.points.push(Point::new(at, quantity, e, a));
            }
        }
    }
    outcome.demand_mean("L2 miss ratio of a slice, mean", "slice miss ratio", 0.03, Point::difference);
    outcome.demand_worst("misses per task, largest relative", "total misses", 0.20, Point::relative);
    Ok(outcome)
}

/// X5: one task moves to and fro.
pub(super) fn migrations(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    // Machine, the two CPUs, and what lies between them.
    let ways =
        [("1s1n1l4c1t", 0, 1, "same LLC"), ("1s1n2l2c1t", 0, 2, "other LLC"), ("2s1n1l2c1t", 0, 2, "other socket")];
    let movers = [
        profile("l2-sized", &[(16.0, 80.0, 0.3), (200.0, 20.0, 0.3)]),
        profile("llc-sized", &[(16.0, 80.0, 0.3), (100.0, 10.0, 0.3), (2_000.0, 5.0, 0.3)]),
    ];
    for (shape, first, second, relation) in ways {
        for mover in &movers {
            for &us in effort.pick(&[1_000_u64][..], &[100, 300, 1_000, 3_000, 10_000]) {
                let machine = machine(shape, &SMALL)?;
                let moves = (effort.pick(20_000, 40_000) / us).clamp(6, 100) as usize;
                let play_with = |moving: bool| {
                    let segments = (0..moves + 2)
                        .map(|number| {
                            let cpu = if moving && number % 2 == 1 { second } else { first };
                            Segment { ns: if number < 2 { 10 * MS } else { us * 1_000 }, cpus: vec![Some(CpuId(cpu))] }
                        })
                        .collect();
                    let mut scenario = Scenario {
                        options: options(&machine, effort),
                        machine: machine.clone(),
                        profiles: vec![mover.clone()],
                        segments,
                    };
                    scenario.options.follow_migrations = true;
                    play(&scenario)
                };
                let (moved, stayed) = (play_with(true)?, play_with(false)?);
                let at = format!("{relation}, {}, {us} us", mover.name);
                // Lines fetched from beyond the caches that the task leaves behind.
                let level = |table: &[Vec<super::driver::Measured>]| {
                    let rows = || table[2..].iter().map(|row| &row[0]);
                    let instructions: f64 = rows().map(|row| row.instructions).sum();
                    let misses: f64 = rows().map(|row| row.l2_misses).sum();
                    let ns: f64 = rows().map(|row| row.ns).sum();
                    (misses / instructions, ns / instructions, instructions)
                };
                let extra = |moved: &[Vec<super::driver::Measured>], stayed: &[Vec<super::driver::Measured>]| {
                    let (with, _, instructions) = level(moved);
                    (with - level(stayed).0) * instructions / moves as f64
                };
                let (e, a) = (extra(&moved.0, &stayed.0), extra(&moved.1, &stayed.1));
                outcome.points.push(Point::new(at.clone(), "extra L2 misses per migration", e, a));
                outcome.points.push(Point::new(at, "ns per instruction", level(&moved.0).1, level(&moved.1).1));
            }
        }
    }
    outcome.demand_worst(
        "extra misses per migration, largest relative",
        "extra L2 misses per migration",
        0.15,
        Point::relative,
    );
    outcome.demand_worst("run time, largest relative", "ns per instruction", 0.05, Point::relative);
    Ok(outcome)
}
