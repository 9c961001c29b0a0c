//! X15: instructions, on one core, beside a sibling thread and after migrations.

use warmcore_topology::CpuId;

use super::driver::{Measured, SMALL, Scenario, Segment, machine_with_l1i, options, play, profile};
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::exact::Options;
use crate::profile::{Class, Profile};

/// Fetches of another line per 1000 instructions.
const FETCHES: f64 = 40.0;

/// A program with so many KiB of code and data in all three caches.
fn program(kib: u64) -> Profile {
    let mut program =
        profile(&format!("{kib} KiB of code"), &[(12.0, 80.0, 0.3), (120.0, 6.0, 0.3), (1_500.0, 2.0, 0.3)]);
    program.classes.push(Class::of_code("code", kib << 10, FETCHES / 1e3));
    program
}

/// Part of the fetches that the L1 for instructions misses.
fn miss_ratio(row: &Measured) -> f64 {
    row.l1i_misses / row.instructions / (FETCHES / 1e3)
}

fn compare(outcome: &mut SuiteOutcome, at: &str, quantity: [&'static str; 2], exact: &Measured, analytic: &Measured) {
    outcome.points.push(Point::new(at, quantity[0], miss_ratio(exact), miss_ratio(analytic)));
    let rate = |row: &Measured| row.instructions / row.ns;
    outcome.points.push(Point::new(at, quantity[1], rate(exact), rate(analytic)));
}

/// X15: sizes from half an L1 for instructions of 32 KiB to eight of them.
pub(super) fn sizes(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let ns = effort.pick(2_000_000, 6_000_000);
    for &kib in effort.pick(&[16, 48, 256][..], &[16, 24, 32, 48, 64, 128, 256]) {
        let machine = machine_with_l1i("1s1n1l2c2t", &SMALL, (32, 8))?;
        let alone = Scenario::steady(effort, machine.clone(), vec![program(kib)], &[0], 2 * ns, ns);
        let (exact, analytic) = play(&alone)?;
        let at = format!("{kib} KiB alone");
        compare(&mut outcome, &at, ["miss ratio alone", "speed alone"], &exact[1][0], &analytic[1][0]);
        let siblings: Vec<u32> = machine.cpus_of_core(machine.core_of(CpuId(0))).iter().map(|cpu| cpu.0).collect();
        let threads = Scenario::steady(effort, machine.clone(), vec![program(kib); 2], &siblings, 2 * ns, ns);
        let (exact, analytic) = play(&threads)?;
        let at = format!("{kib} KiB, two threads of a process on one core");
        compare(&mut outcome, &at, ["miss ratio beside", "speed beside"], &exact[1][0], &analytic[1][0]);
        // To the other core and back every millisecond.
        let machine = machine_with_l1i("2s1n1l1c1t", &SMALL, (32, 8))?;
        let segment = |number: u32| Segment { ns: 1_000_000, cpus: vec![Some(CpuId(number % 2))] };
        let moving = Scenario {
            options: Options { follow_migrations: true, ..options(&machine, effort) },
            machine,
            profiles: vec![program(kib)],
            segments: (0..effort.pick(6, 12)).map(segment).collect(),
        };
        let (exact, analytic) = play(&moving)?;
        let last = exact.len() - 1;
        let at = format!("{kib} KiB, after a migration");
        compare(&mut outcome, &at, ["miss ratio moved", "speed moved"], &exact[last][0], &analytic[last][0]);
    }
    outcome.demand_worst("L1I miss ratio alone, largest difference", "miss ratio alone", 0.01, Point::difference);
    outcome.demand_worst(
        "L1I miss ratio next to a thread of the process",
        "miss ratio beside",
        0.02,
        Point::difference,
    );
    outcome.demand_worst("L1I miss ratio in the ms after a migration", "miss ratio moved", 0.02, Point::difference);
    outcome.demand_worst("speed alone, largest relative", "speed alone", 0.03, Point::relative);
    outcome.demand_worst("speed next to it, largest relative", "speed beside", 0.10, Point::relative);
    outcome.demand_worst("speed moved, largest relative", "speed moved", 0.05, Point::relative);
    Ok(outcome)
}
