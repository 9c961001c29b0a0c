use super::*;
use crate::experiment::figures;
use crate::machine::{Level, Setup};
use crate::workload::{Colours, Law};

const SEEDS: u64 = 20;

/// Mean figures of a strategy over the seeds.
fn means(setup: &Setup, strategy: &Strategy) -> [f64; 7] {
    let mut sums = [0.0; 7];
    for seed in 1..=SEEDS {
        let accesses = Accesses::new(TASKS, ACCESSES, RANKS, seed);
        let outcome = machine::run(setup, &accesses, strategy, seed).unwrap();
        let [l1, l2, l3] = outcome.hit_rates;
        let variation = outcome.load_variation();
        let values = [l1, l2, l3, variation, p99(&outcome) / 1e6, outcome.makespan_ns as f64 / 1e6, outcome.access_ns];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value / SEEDS as f64);
    }
    sums
}

fn paper(dispatch: Dispatch) -> Setup {
    Setup::paper(PAPER, Addresses::PageAligned, dispatch)
}

/// `docs/spec/cdf-dio.md` section 6: within three standard deviations of a run (0.0006 of the L2 rate) and rounding.
#[test]
fn the_clean_simulators_figures_are_met() {
    let cases: [(Strategy, [f64; 3], f64, f64); 5] = [
        (Strategy::RoundRobin, [0.2565, 0.0138, 0.0108], 4.34, 5.11),
        (Strategy::FewestTasks, [0.2567, 0.0136, 0.0109], 4.34, 5.11),
        (DIO, [0.2579, 0.0143, 0.0125], 4.46, 5.23),
        (cdf(0.3), [0.2567, 0.0136, 0.0108], 4.34, 5.10),
        (Strategy::Random, [0.2571, 0.0170, 0.0174], 5.27, 6.06),
    ];
    let mut missed = Vec::new();
    for (strategy, rates, wait_ms, makespan_ms) in cases {
        let found = means(&paper(Dispatch::Queue), &strategy);
        let near = |value: f64, expected: f64, by: f64| (value - expected).abs() <= by;
        let rates_near = (0..3).all(|level| near(found[level], rates[level], 0.0019));
        if !rates_near || !near(found[4], wait_ms, 0.03 * wait_ms) || !near(found[5], makespan_ms, 0.03 * makespan_ms) {
            missed.push(format!("{}: {found:?}, expected {rates:?}, {wait_ms}, {makespan_ms}", strategy.name()));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn with_lines_spread_over_their_pages_fewest_tasks_brings_tasks_back_to_their_cpu() {
    let setup = Setup::paper(PAPER, Addresses::LineSpread, Dispatch::Queue);
    let (rr, fewest) = (means(&setup, &Strategy::RoundRobin), means(&setup, &Strategy::FewestTasks));
    let near = |found: [f64; 7], expected: [f64; 3]| (0..3).all(|level| (found[level] - expected[level]).abs() < 0.02);
    assert!(near(rr, [0.322, 0.106, 0.122]), "{rr:?}");
    assert!(near(fewest, [0.455, 0.015, 0.011]), "{fewest:?}");
}

/// `docs/spec/cdf-dio.md` section 9, item 4.
#[test]
fn cdf_dio_9_4_page_aligned_addresses_use_one_set_in_128() {
    for (geometry, expected) in [(PAPER, [32, 128, 512]), (LAST_COMMIT, [1, 8, 256])] {
        for (level, used) in expected.into_iter().enumerate() {
            let sets = geometry.levels[level].0;
            let found: std::collections::BTreeSet<u32> =
                (0..10_000_u32).map(|frame| (frame * 128) & (sets - 1)).collect();
            assert_eq!(found.len(), used, "{} level {}", geometry.name, level + 1);
        }
    }
}

/// `docs/spec/cdf-dio.md` section 9, item 6.
#[test]
fn cdf_dio_9_6_in_the_last_geometry_the_tolerance_decides_nothing() {
    let setup = Setup::paper(LAST_COMMIT, Addresses::PageAligned, Dispatch::Queue);
    let accesses = Accesses::new(TASKS, ACCESSES, RANKS, 3);
    let placements = |strategy: &Strategy| machine::run(&setup, &accesses, strategy, 3).unwrap().placements;
    let first = placements(&cdf(0.1));
    for tolerance in Experiment::default().tolerances {
        assert!(placements(&cdf(tolerance)) == first, "tolerance {tolerance}");
    }
    let fewest = placements(&Strategy::FewestTasks);
    for tenths in [1, 6, 9] {
        let published = Strategy::Cdf(Cdf::new(Variant::Published, f64::from(tenths) / 10.0));
        assert!(placements(&published) == fewest, "published, tolerance 0.{tenths}");
    }
}

/// `docs/spec/cdf-dio.md` section 9, item 8.
#[test]
fn cdf_dio_9_8_equal_seeds_give_equal_results() {
    for dispatch in [Dispatch::Queue, Dispatch::Blocking] {
        for strategy in [Strategy::Random, DIO, cdf(0.3)] {
            let run = || {
                let accesses = Accesses::new(TASKS, ACCESSES, RANKS, 5);
                machine::run(&paper(dispatch), &accesses, &strategy, 5).unwrap()
            };
            assert_eq!(run(), run());
        }
    }
}

/// `docs/spec/cdf-dio.md` section 5: the paper's order of the strategies is there with the dispatcher that waits, and gone without.
#[test]
fn the_papers_order_comes_from_the_dispatcher_that_waits() {
    let [rr, dio, cdf_3, random] = [Strategy::RoundRobin, DIO, cdf(0.3), Strategy::Random]
        .map(|strategy| means(&paper(Dispatch::Blocking), &strategy));
    let l2 = |found: [f64; 7]| found[1] / rr[1];
    let wait = |found: [f64; 7]| found[4] / rr[4];
    let found = [l2(dio), l2(cdf_3), l2(random), wait(dio), wait(cdf_3), wait(random)];
    // The reference's: 1.22, 1.25 to 1.30, 1.72; 1.73, 1.44 to 1.58, 3.35.
    let bands = [(1.18, 1.26), (1.24, 1.31), (1.65, 1.80), (1.65, 1.80), (1.42, 1.60), (3.1, 3.6)];
    for (value, (low, high)) in found.into_iter().zip(bands) {
        assert!((low..=high).contains(&value), "{found:?}");
    }
}

#[test]
fn bad_setups_are_refused() {
    let accesses = Accesses::new(2, 10, 10, 1);
    let refused = |setup: Setup| machine::run(&setup, &accesses, &Strategy::RoundRobin, 1).unwrap_err();
    let good = paper(Dispatch::Queue);
    assert_eq!(refused(Setup { window: 0, ..good }), ContentionError::Window);
    assert!(matches!(refused(Setup { frames: 0, ..good }), ContentionError::Page { .. }));
    assert_eq!(refused(Setup { frames: 3, ..good }), ContentionError::MemoryFull { frames: 3 });
    assert!(matches!(refused(Setup { per_group: 13, ..good }), ContentionError::Groups { .. }));
    let l2 = machine::run(&Setup { level: Level::L2, ..good }, &accesses, &cdf(0.3), 1).unwrap();
    assert_eq!(l2.decisions[0], 2, "one quantum each");
}

/// Zipf's law with exponent 0 chooses among 64 lines alike, of which an L1 of 16 has a quarter at any time.
#[test]
fn without_skew_hit_rates_are_capacities_over_the_footprint() {
    let geometry = Geometry { name: "small", levels: [(1, 16), (1, 20), (1, 20)] };
    let setup =
        Setup { vcpus: 1, per_group: 1, geometry, ..Setup::paper(PAPER, Addresses::LineSpread, Dispatch::Queue) };
    let accesses = Accesses::coloured(1, 200_000, Law::Skewed { pages: 64, exponent: 0.0 }, Colours::Any, 1);
    let outcome = machine::run(&setup, &accesses, &Strategy::RoundRobin, 1).unwrap();
    assert!((outcome.hit_rates[0] - 0.25).abs() < 0.005, "{:?}", outcome.hit_rates);
}

/// A recorded loop over more lines than a cache that gives up the oldest has never hits any cache of the machine, and one over fewer only
/// misses first.
#[test]
fn a_recorded_loop_longer_than_the_caches_never_hits_and_a_shorter_one_always() {
    let walked = |lines: u64| {
        let text: String = (0..4000).map(|step| format!(" L {:x},8\n", 0x10_0000 + step % lines * 32)).collect();
        Accesses::traced(text.as_bytes(), 1).unwrap()
    };
    let geometry = Geometry { name: "small", levels: [(1, 8), (1, 16), (1, 16)] };
    let setup =
        Setup { vcpus: 1, per_group: 1, geometry, ..Setup::paper(PAPER, Addresses::PageAligned, Dispatch::Queue) };
    let rates = |lines: u64| machine::run(&setup, &walked(lines), &Strategy::RoundRobin, 1).unwrap().hit_rates;
    assert_eq!(rates(17), [0.0; 3]);
    assert_eq!(rates(8)[0], (4000.0 - 8.0) / 4000.0);
    // The L2 takes what the L1 is too small for: everything but the first round.
    assert_eq!(rates(16)[..2], [0.0, (4000.0 - 16.0) / 4000.0]);
}

/// The dispatcher that waits, not the skew of the paper, makes most of CDF's gain over round robin. All of it, within 10 %, was expected and does
/// not hold with half the skew, where CDF gains 1.11 with queues too.
#[test]
fn other_skews_leave_the_gain_with_the_dispatcher() {
    for exponent in [0.0, 0.5] {
        let [waits, queues] = skews(exponent, &[1, 2, 3, 4]).unwrap();
        let gain = |row: &SkewRow| row.l2_hit_rates[2] / row.l2_hit_rates[0];
        assert!(gain(&waits) > 1.3, "{waits:?}");
        assert!(gain(&queues) - 1.0 < 0.5 * (gain(&waits) - 1.0), "{waits:?} {queues:?}");
    }
}

fn asked(names: &[&str]) -> std::collections::BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// By hand: 300 accesses of 102 ns each, eight lines that come from memory (126 ns more), and four attempts to walk a page table that is not there
/// yet (100 ns).
#[test]
fn quantities_of_a_recorded_loop_are_those_of_a_calculation_by_hand() {
    let text: String = (0..300).map(|step| format!(" L {:x},8\n", 0x10_0000 + step % 8 * 32)).collect();
    let traced = Accesses::traced(text.as_bytes(), 1).unwrap();
    let experiment = Experiment { tasks: 1, cpus: 1, cpus_per_group: 1, ..Experiment::default() };
    let expected = [
        ("l1_hit_rate_rr_queue", 292.0 / 300.0),
        ("l2_hit_rate_rr_queue", 0.0),
        ("memory_share_cdf_adaptive_queue", 8.0 / 300.0),
        ("group_load_least_dio_queue", 8.0),
        ("group_load_most_random_queue", 8.0),
        ("load_variation_cdf_published_0.3_queue", 0.0),
        ("wait_most_ns_cdf_0.7_queue", 0.0),
        ("makespan_ns_dio_published_queue", 32_008.0),
        ("access_ns_fewest_tasks_queue", 32_008.0 / 300.0),
        ("utilisation_rr_queue", 1.0),
    ];
    let found = figures(&asked(&expected.map(|(name, _)| name)), &experiment, &[1, 2], Some(&traced)).unwrap();
    let wanted: std::collections::BTreeMap<String, Vec<f64>> =
        expected.into_iter().map(|(name, value)| (name.to_owned(), vec![value; 2])).collect();
    assert_eq!(found, wanted);
}

/// Two tasks of one CPU: who is second waits for the quantum of the first, and has its own again before it.
#[test]
fn a_task_waits_for_the_quanta_of_the_other() {
    let text: String = (0..300).map(|_| " L 100000,8\n").collect();
    let traced = Accesses::traced(text.as_bytes(), 2).unwrap();
    let experiment = Experiment { cpus: 1, cpus_per_group: 1, ..Experiment::default() };
    let names = ["wait_most_ns_rr_queue", "makespan_ns_rr_queue"];
    let found = figures(&asked(&names), &experiment, &[1], Some(&traced)).unwrap();
    // A quantum: 300 accesses of 102 ns, one that comes from memory, four walks.
    let quantum = 30_600.0 + 126.0 + 400.0;
    assert_eq!((found[names[0]][0], found[names[1]][0]), (quantum, 2.0 * quantum));
}

#[test]
fn figures_of_the_paper_are_ratios_of_quantities_and_other_names_are_none() {
    let experiment = Experiment { tasks: 12, accesses: 600, skew: 1.2, ..Experiment::default() };
    let names = ["l2_hit_rate_cdf_7_over_rr_blocking", "l2_hit_rate_cdf_0.7_blocking", "l2_hit_rate_rr_blocking"];
    assert!(asked(&names).is_subset(&experiment.figures()));
    let found = figures(&asked(&[&names[..], &["l2_hit_rate_cdf_0.75_queue"]].concat()), &experiment, &[1, 2], None);
    let found = found.unwrap();
    assert_eq!(found.len(), 3);
    let ratios: Vec<f64> = found[names[1]].iter().zip(&found[names[2]]).map(|(cdf, rr)| cdf / rr).collect();
    assert_eq!(found[names[0]], ratios);
    let of_others = Experiment { tolerances: vec![0.75], ..experiment.clone() }.figures();
    assert!(of_others.contains("l2_hit_rate_cdf_0.75_queue") && !of_others.contains(names[1]));
    let large = Experiment { cpus: 2, ..experiment };
    assert_eq!(figures(&asked(&names), &large, &[1], None), Err(ContentionError::Groups { vcpus: 2, per_group: 4 }));
}

#[test]
fn a_tolerance_that_adapts_is_a_row_of_other_experiments_and_none_of_the_papers() {
    let names = |strategies: Vec<Strategy>| strategies.iter().map(Strategy::name).collect::<Vec<_>>();
    assert!(!names(strategies()).contains(&"cdf:adaptive".to_owned()));
    let experiment = Experiment { tasks: 6, accesses: 300, tolerances: vec![0.25], ..Experiment::default() };
    let reading = READINGS[1];
    let rows = table(&experiment, &experiment.strategies(), reading, &[1], None).unwrap();
    let found: Vec<&str> = rows.iter().map(|row| row.strategy.as_str()).collect();
    let fixed = ["rr", "fewest-tasks", "random", "dio:coded", "dio:published"];
    let of_cdf = ["cdf:coded,tol=0.25", "cdf:published,tol=0.25", "cdf:adaptive"];
    assert_eq!(found, [&fixed[..], &of_cdf].concat());
    assert!(rows.iter().all(|row| row.decisions == 6.0), "one quantum of each task");
}
