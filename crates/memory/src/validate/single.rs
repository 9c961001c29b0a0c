//! X1 and X2: what one cache holds when nothing changes.

use super::driver::{SMALL, Scenario, machine, play, profile};
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::curves::{Curves, Replacement};
use crate::exact::cache::{Cache, SetIndex, Shape};
use crate::exact::stream::{BLOCK, Stream, StreamClass};
use crate::profile::{Class, ClassKind, Profile};

/// Mixtures as lines and touches per kilo-instruction; the last one's second class is a scan.
const MIXTURES: [(&str, &[(u32, f64)]); 6] = [
    ("one class", &[(20_000, 10.0)]),
    ("small and large", &[(2_000, 50.0), (40_000, 10.0)]),
    ("three decades", &[(300, 80.0), (4_000, 12.0), (60_000, 5.0)]),
    ("rare and huge", &[(8_000, 20.0), (200_000, 1.0)]),
    ("six classes", &[(64, 60.0), (512, 20.0), (2_000, 10.0), (8_000, 6.0), (30_000, 3.0), (90_000, 1.0)]),
    ("with a scan", &[(6_000, 30.0), (12_000, 4.0)]),
];

/// X1: the miss ratio of a set-associative cache against the closed form.
pub(super) fn solo(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let sizes: &[f64] = effort.pick(&[0.5, 1.0, 2.0], &[0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0]);
    let ways: &[u32] = effort.pick(&[8, 16], &[8, 12, 16]);
    for (name, mixture) in MIXTURES {
        let scan = name == "with a scan";
        let total: u32 = mixture.iter().map(|class| class.0).sum();
        for &size in sizes {
            for &ways in ways {
                let sets = ((f64::from(total) * size) as u32 / ways).max(1);
                let exact = simulated(mixture, scan, sets, ways, effort);
                let analytic = predicted(mixture, scan, sets, ways);
                let at = format!("{name}, {size} of its size, {ways} ways");
                let quantity = if scan { "miss ratio with scan" } else { "miss ratio" };
                outcome.points.push(Point::new(at, quantity, exact, analytic));
            }
        }
    }
    outcome.demand_worst("miss ratio, largest difference", "miss ratio", 0.01, Point::difference);
    outcome.demand_worst("miss ratio with a scan, largest", "miss ratio with scan", 0.01, Point::difference);
    Ok(outcome)
}

fn simulated(mixture: &[(u32, f64)], scan: bool, sets: u32, ways: u32, effort: Effort) -> f64 {
    let mut first = 0;
    let mut classes = Vec::new();
    for (index, (lines, per_ki)) in mixture.iter().enumerate() {
        let scan = scan && index == 1;
        classes.push(StreamClass { first, lines: *lines, rate: per_ki / 1e3, write_fraction: 0.0, scan });
        first += lines;
    }
    let mut stream = Stream::new(effort.seed, &classes);
    let shape = Shape { sets, ways, replacement: Replacement::Lru, index: SetIndex::Hashed };
    let mut cache = Cache::new(shape, effort.seed as u32 + 11);
    let (mut lines, mut outcomes) = ([0; BLOCK], [0; BLOCK]);
    // Every line once, the slowest class first: cold misses are not what is measured.
    let mut order: Vec<&StreamClass> = classes.iter().collect();
    order.sort_by(|a, b| (a.rate / f64::from(a.lines)).total_cmp(&(b.rate / f64::from(b.lines))));
    for class in order {
        (class.first..class.first + class.lines).for_each(|line| {
            cache.touch(line, 0, 0);
        });
    }
    let mut misses_in = |touches: u64| {
        let mut misses = 0;
        for _ in 0..touches.div_ceil(BLOCK as u64) {
            stream.next(BLOCK, &mut lines, &mut outcomes);
            misses += lines.iter().filter(|line| !cache.touch(**line, 0, 0).hit).count() as u64;
        }
        misses
    };
    // Warm when the slowest class has been touched several times over.
    let rate: f64 = classes.iter().map(|class| class.rate).sum();
    let slowest = classes.iter().map(|class| f64::from(class.lines) / class.rate).fold(0.0, f64::max);
    misses_in(((3.0 * slowest * rate) as u64).min(effort.pick(1_000_000, 8_000_000)));
    let touches = effort.pick(300_000, 1_500_000) / BLOCK as u64 * BLOCK as u64;
    misses_in(touches) as f64 / touches as f64
}

fn predicted(mixture: &[(u32, f64)], scan: bool, sets: u32, ways: u32) -> f64 {
    let class = |(index, (lines, per_ki)): (usize, &(u32, f64))| {
        let kind = if scan && index == 1 { ClassKind::Scan } else { ClassKind::Random };
        Class { kind, ..Class::new(format!("{index}"), u64::from(*lines) * 64, per_ki / 1e3, 0.0) }
    };
    let classes: Vec<Class> = mixture.iter().enumerate().map(class).collect();
    let curves = Curves::of_classes(&classes, 64, |_| true);
    let misses: f64 = curves.steady_in_sets(f64::from(sets) * f64::from(ways), ways).iter().sum();
    misses / curves.total_touches()
}

/// Profiles whose working sets compete for a 4 MiB LLC.
pub(super) fn competitors() -> Vec<Profile> {
    vec![
        profile("cache-friendly", &[(16.0, 90.0, 0.3), (600.0, 8.0, 0.3), (1_500.0, 2.0, 0.2)]),
        profile("large", &[(16.0, 80.0, 0.3), (150.0, 10.0, 0.3), (3_000.0, 6.0, 0.3)]),
        profile("huge", &[(16.0, 80.0, 0.3), (400.0, 6.0, 0.3), (40_000.0, 5.0, 0.3)]),
        profile("small", &[(16.0, 90.0, 0.3), (500.0, 4.0, 0.3)]),
    ]
}

/// X2: co-runners of one LLC in the steady state.
pub(super) fn co_runners(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let rules = [
        (Replacement::Lru, "LRU"),
        (Replacement::TreePlru, "tree-PLRU"),
        (Replacement::Srrip, "SRRIP"),
        (Replacement::Random, "random"),
    ];
    let capacity = 4096.0 * 16.0;
    for (rule, rule_name) in rules {
        for &count in effort.pick(&[4_u32][..], &[2, 4, 8]) {
            for shift in 0..effort.pick(1, 2) {
                let machine = machine("1s1n1l8c1t", &SMALL)?;
                let profiles: Vec<Profile> =
                    (0..count as usize).map(|task| competitors()[(task + shift) % 4].clone()).collect();
                let cpus: Vec<u32> = (0..count).collect();
                let mut scenario =
                    Scenario::steady(effort, machine, profiles, &cpus, effort.pick(10, 20) * 1_000_000, 5_000_000);
                scenario.options.llc_replacement = rule;
                scenario.options.private_replacement = rule;
                let (exact, analytic) = play(&scenario)?;
                for task in 0..count as usize {
                    let (e, a) = (exact[1][task], analytic[1][task]);
                    let name = &scenario.profiles[task].name;
                    let at = format!("{rule_name}, {count} tasks, set {shift}: task {task} ({name})");
                    let quantity = match rule {
                        Replacement::Lru => "LRU miss ratio",
                        Replacement::TreePlru => "tree-PLRU miss ratio",
                        _ => "other miss ratio",
                    };
                    outcome.points.push(Point::new(at.clone(), quantity, e.llc_miss_ratio(), a.llc_miss_ratio()));
                    if rule == Replacement::Lru {
                        let point = Point::new(at, "share of capacity", e.llc_lines / capacity, a.llc_lines / capacity);
                        outcome.points.push(point);
                    }
                }
            }
        }
    }
    outcome.demand_worst("occupancy, largest difference / C", "share of capacity", 0.05, Point::difference);
    outcome.demand_worst("LLC miss ratio, LRU, largest", "LRU miss ratio", 0.03, Point::difference);
    outcome.demand_worst("LLC miss ratio, tree-PLRU, largest", "tree-PLRU miss ratio", 0.05, Point::difference);
    outcome.demand_worst("LLC miss ratio, SRRIP and random", "other miss ratio", 0.10, Point::difference);
    Ok(outcome)
}
