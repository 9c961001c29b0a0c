//! Counters made from a known profile give it back; counters that cannot be are refused.

use super::*;
use crate::curves::Curves;

/// Lines of an L1, sizes of L2s and LLCs, with ways.
const CAPACITIES: [(u64, u32); 10] = [
    (48 << 10, 12),
    (128 << 10, 8),
    (256 << 10, 8),
    (512 << 10, 8),
    (1 << 20, 16),
    (2 << 20, 16),
    (6 << 20, 12),
    (16 << 20, 16),
    (32 << 20, 16),
    (60 << 20, 15),
];

/// Touches per 1000 instructions of the known profile: 24 KiB, 320 KiB, 6 MiB, 200 MiB.
const KNOWN: [(u64, f64); 4] = [(24 << 10, 90.0), (320 << 10, 18.0), (6 << 20, 5.0), (200 << 20, 1.2)];

fn known_mpki(capacity: u64, ways: u32) -> f64 {
    let classes: Vec<Class> =
        KNOWN.iter().map(|(bytes, per_ki)| Class::new(format!("{bytes}"), *bytes, per_ki / 1e3, 0.3)).collect();
    let curves = Curves::of_classes(&classes, 64, |_| true);
    1e3 * curves.steady_in_sets((capacity / 64) as f64, ways).iter().sum::<f64>()
}

fn counters(error: impl Fn(usize) -> f64) -> Counters {
    let point = |(index, (capacity, ways)): (usize, (u64, u32))| CachePoint {
        capacity,
        ways,
        mpki: known_mpki(capacity, ways) * error(index),
    };
    Counters {
        name: "known".into(),
        line_bytes: 64,
        touches_per_ki: Some(KNOWN.iter().map(|class| class.1).sum()),
        write_fraction: 0.3,
        points: CAPACITIES.into_iter().enumerate().map(point).collect(),
        timing: None,
        sharing: None,
    }
}

fn fitted_mpki(fit: &Fit, capacity: u64, ways: u32) -> f64 {
    let curves = Curves::new(&fit.profile, 64);
    1e3 * curves.steady_in_sets((capacity / 64) as f64, ways).iter().sum::<f64>()
}

#[test]
fn counters_of_a_known_profile_give_it_back() {
    let fit = fit(&counters(|_| 1.0)).unwrap();
    assert_eq!(fit.profile.classes.len(), KNOWN.len(), "{:?}", fit.profile.classes);
    // Sizes within 10 %, rates within 3 %; the largest class lies beyond all caches, so its size is known from a slope.
    for (class, (bytes, per_ki)) in fit.profile.classes.iter().zip(KNOWN).skip(1) {
        let size = class.bytes as f64 / bytes as f64;
        let rate = class.touches_per_instruction * 1e3 / per_ki;
        assert!((size - 1.0).abs() < 0.10 && (rate - 1.0).abs() < 0.03, "{class:?} for {bytes} bytes, {per_ki}");
    }
    // Between the points and beyond them.
    for (capacity, ways) in [(96 << 10, 8), (3 << 20, 12), (24 << 20, 12), (120 << 20, 15)] {
        let (ours, known) = (fitted_mpki(&fit, capacity, ways), known_mpki(capacity, ways));
        assert!((ours / known - 1.0).abs() < 0.03, "{capacity} bytes: {ours} instead of {known}");
    }
}

#[test]
fn errors_of_two_percent_in_the_counters_stay_small_in_the_curve() {
    // Alternating, and falling with size, so that the points still fall.
    let fit = fit(&counters(|index| if index % 2 == 0 { 1.02 } else { 0.98 })).unwrap();
    for (capacity, ways) in [(96 << 10, 8), (384 << 10, 8), (3 << 20, 12), (24 << 20, 12)] {
        let (ours, known) = (fitted_mpki(&fit, capacity, ways), known_mpki(capacity, ways));
        assert!((ours / known - 1.0).abs() < 0.08, "{capacity} bytes: {ours} instead of {known}");
    }
}

#[test]
fn three_levels_of_a_hierarchy_are_met_by_two_classes_and_what_they_leave_open_is_said() {
    let all = counters(|_| 1.0);
    let points: Vec<CachePoint> = [0, 5, 9].into_iter().map(|index| all.points[index]).collect();
    let fit = fit(&Counters { points, ..all }).unwrap();
    for (point, fitted) in &fit.points {
        assert!((fitted / point.mpki - 1.0).abs() < 0.02, "{fitted} instead of {} at {}", point.mpki, point.capacity);
    }
    assert!(fit.notes.iter().any(|note| note.starts_with("3 points do not determine")), "{:?}", fit.notes);
    // Between the points the curve falls, and stays between their misses.
    let between = fitted_mpki(&fit, 16 << 20, 16);
    assert!(between > known_mpki(60 << 20, 15) && between < known_mpki(2 << 20, 16), "{between}");
}

fn split(near: u32, far: u32, per_instruction: f64, writes: f64) -> Split {
    let (rfo, read) = sharing::per_touch(near, far, writes);
    Split { near, far, rfo_mpki: rfo * per_instruction, cross_read_mpki: Some(read * per_instruction) }
}

#[test]
fn shared_touches_and_writes_follow_from_splits_over_two_llcs() {
    let blind = |split: Split| Split { cross_read_mpki: None, ..split };
    for (rate, writes) in [(0.0125, 0.4), (0.002, 0.08), (0.05, 0.9)] {
        let measured = [split(4, 4, rate, writes), split(7, 1, rate, writes)];
        for splits in [vec![measured[0]], measured.map(blind).to_vec(), measured.to_vec()] {
            let shared = SharedData { bytes: 1 << 20, write_fraction: None, splits };
            let (a, w) = sharing::solve(&shared).unwrap();
            assert!((a / rate - 1.0).abs() < 1e-3 && (w / writes - 1.0).abs() < 1e-3, "{a} and {w}");
        }
        let shared = SharedData { bytes: 1 << 20, write_fraction: Some(writes), splits: vec![blind(measured[0])] };
        assert!((sharing::solve(&shared).unwrap().0 / rate - 1.0).abs() < 1e-9);
    }
    // The specification's vectors: two halves of eight threads, w = 0.3.
    let (rfo, read) = sharing::per_touch(4, 4, 0.3);
    assert!((rfo / 300.0 - 0.77).abs() < 0.002 && (read / 700.0 - 0.23).abs() < 0.002, "{rfo} {read}");
}

#[test]
fn stalls_and_what_was_waited_for_give_core_and_overlap() {
    let level = |hits_per_ki, latency_cycles| Level { hits_per_ki, latency_cycles };
    let levels = vec![level(20.0, 15.0), level(4.0, 180.0), level(1.0, 300.0)];
    let timing = Timing { cpi: 1.26, stall_cycles_per_ki: 660.0, levels };
    let fit = fit(&Counters { timing: Some(timing), ..counters(|_| 1.0) }).unwrap();
    assert!((fit.profile.cpi0 - 0.6).abs() < 1e-12 && (fit.profile.mlp - 2.0).abs() < 1e-12, "{:?}", fit.profile);
}

#[test]
fn an_overlap_that_no_profile_can_state_is_said_with_its_value_and_its_bound() {
    let fitted = |stall_cycles_per_ki, hits_per_ki, latency_cycles| {
        let levels = vec![Level { hits_per_ki, latency_cycles }];
        let timing = Timing { cpi: 1.0, stall_cycles_per_ki, levels };
        fit(&Counters { timing: Some(timing), ..counters(|_| 1.0) }).unwrap()
    };
    // 15 x 15 = 225 cycles in 900; 100 x 700 = 70,000 in 700 are 100.
    for (stall, hits, latency, mlp, words) in [
        (
            900.0,
            15.0,
            15.0,
            1.0,
            "mlp = 0.250 (225 cycles of latency in 900 of stalls per 1000 instructions) is less than 1",
        ),
        (
            700.0,
            100.0,
            700.0,
            64.0,
            "mlp = 100.000 (70000 cycles of latency in 700 of stalls per 1000 instructions) is more than 64",
        ),
        (0.0, 15.0, 15.0, 64.0, "no stall cycles"),
    ] {
        let fit = fitted(stall, hits, latency);
        assert!((fit.profile.mlp - mlp).abs() < 1e-12, "{:?}", fit.profile);
        assert!(fit.notes.iter().any(|note| note.starts_with(words)), "{:?}", fit.notes);
    }
    // 200 x 9 = 1,800 in 900 are 2.
    let within = fitted(900.0, 200.0, 9.0);
    assert!((within.profile.mlp - 2.0).abs() < 1e-12 && !within.notes.iter().any(|note| note.contains("mlp")));
}

#[test]
fn the_example_of_the_manual_is_fitted_as_it_stands() {
    let page = include_str!("../../../../docs/models/memory.md");
    let (_, after) = page.split_once("```toml\n").unwrap();
    let (example, _) = after.split_once("```").unwrap();
    let fit = fit(&Counters::from_toml(example).unwrap()).unwrap();
    // 18.9 x 15 + 6.1 x 300 = 2,113.5 cycles of latency in 500 of stalls.
    assert!((fit.profile.mlp - 4.227).abs() < 1e-9, "{:?}", fit.profile);
    assert!(!fit.notes.iter().any(|note| note.contains("mlp")), "{:?}", fit.notes);
}

#[test]
fn a_file_is_read_and_its_profile_reads_back() {
    let text = r#"
        name = "mine"
        [[point]]
        capacity = "48KiB"
        ways = 12
        mpki = 25.0
        [[point]]
        capacity = "2MiB"
        ways = 16
        mpki = 6.0
        [sharing]
        size = "1.5MiB"
        [[sharing.split]]
        near = 4
        far = 4
        rfo_mpki = 2.7
        cross_read_mpki = 1.6
    "#;
    let fit = fit(&Counters::from_toml(text).unwrap()).unwrap();
    let shared = fit.profile.classes.last().unwrap();
    assert_eq!((shared.name.as_str(), &shared.sharing), ("shared", &Sharing::Process));
    let written = crate::profiles_to_toml(std::slice::from_ref(&fit.profile));
    assert_eq!(crate::profiles_from_toml(&written).unwrap(), [fit.profile]);
    assert!(fit.notes.iter().any(|note| note.contains("touches_per_ki is not given")));
}

/// The points are of a thread alone, which touches the shared class too: the whole profile meets them, not its private part.
#[test]
fn a_thread_alone_misses_as_measured_with_what_it_shares() {
    let point = |capacity, ways, mpki| CachePoint { capacity, ways, mpki };
    let split = Split { near: 4, far: 4, rfo_mpki: 2.7, cross_read_mpki: Some(1.6) };
    let counters = Counters {
        touches_per_ki: Some(120.0),
        points: vec![point(48 << 10, 12, 25.0), point(2 << 20, 16, 6.1)],
        sharing: Some(SharedData { bytes: 3 << 19, write_fraction: Some(0.4), splits: vec![split] }),
        ..counters(|_| 1.0)
    };
    let fit = fit(&counters).unwrap();
    for (point, _) in &fit.points {
        let ours = fitted_mpki(&fit, point.capacity, point.ways);
        assert!((ours / point.mpki - 1.0).abs() < 0.03, "{} bytes: {ours} instead of {}", point.capacity, point.mpki);
    }
    let touches: f64 = fit.profile.classes.iter().map(|class| 1e3 * class.touches_per_instruction).sum();
    assert!((touches - 120.0).abs() < 0.1, "{touches}");
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    let refused = |change: &dyn Fn(&mut Counters)| {
        let mut counters = counters(|_| 1.0);
        change(&mut counters);
        fit(&counters).unwrap_err().to_string()
    };
    let shared = |split: Split| SharedData { bytes: 1 << 20, write_fraction: None, splits: vec![split] };
    let blind = Split { near: 4, far: 4, rfo_mpki: 1.0, cross_read_mpki: None };
    let timing = |cpi, stall| Timing { cpi, stall_cycles_per_ki: stall, levels: Vec::new() };
    type Case<'a> = (&'a dyn Fn(&mut Counters), &'a str);
    let many = SharedData { write_fraction: Some(0.4), ..shared(Split { rfo_mpki: 100.0, ..blind }) };
    let cases: [Case<'_>; 16] = [
        (&|c| c.sharing = Some(many.clone()), "the splits need 350.0 touches of shared data per 1000 instructions"),
        (&|c| c.points.truncate(1), "1 cache sizes are too few"),
        (&|c| c.points[3].mpki = f64::NAN, "mpki is NaN; it must be 0 to 1000"),
        (&|c| c.points[3].mpki = -1.0, "mpki is -1"),
        (&|c| c.points[3].mpki = 20.0, "a larger cache that misses more"),
        (&|c| c.points[3].capacity += 64, "not a whole number of sets of 8 lines of 64 bytes"),
        (&|c| c.points[3].ways = 0, "ways is 0"),
        (&|c| c.points[3].capacity = c.points[4].capacity, "appears twice"),
        (&|c| c.line_bytes = 48, "line is 48; it must be a power of two"),
        (&|c| c.touches_per_ki = Some(2.0), "touches_per_ki must be larger"),
        (&|c| c.write_fraction = 1.5, "write_fraction is 1.5"),
        (&|c| c.timing = Some(timing(0.5, 490.0)), "leaves less than 0.05 cycles"),
        (&|c| c.timing = Some(timing(f64::INFINITY, 1.0)), "timing.cpi is inf"),
        (&|c| c.sharing = Some(shared(blind)), "the splits do not say how many of the shared touches write"),
        (&|c| c.sharing = Some(SharedData { splits: Vec::new(), ..shared(blind) }), "has no splits"),
        (&|c| c.sharing = Some(shared(Split { far: 0, ..blind })), "sharing.split.far is 0; it must be at least 1"),
    ];
    for (change, expected) in cases {
        let message = refused(change);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let file = |text: &str| Counters::from_toml(text).unwrap_err().to_string();
    assert!(file("name = \"x\"\n[[point]]\ncapacity = \"48K\"\nways = 1\nmpki = 1").contains("point 1, capacity"));
    assert!(file("name = \"x\"\ncolour = 1").contains("unknown field `colour`"));
}

#[test]
fn counters_that_no_profile_explains_are_refused_with_the_worst_point() {
    // All misses vanish between two capacities that are almost the same: no mixture of sizes falls so steeply.
    let all = counters(|_| 1.0);
    let point = |capacity, mpki| CachePoint { capacity, ways: 16, mpki };
    let points = vec![point(1 << 20, 200.0), point((1 << 20) + (16 << 10), 0.01), point(32 << 20, 0.01)];
    let error = fit(&Counters { points, touches_per_ki: None, ..all }).unwrap_err();
    assert!(
        matches!(error, FitError::Poor { measured, fitted, .. } if fitted > 2.0 * measured || measured > 2.0 * fitted)
    );
    assert!(error.to_string().contains("in a cache of"), "{error}");
}
