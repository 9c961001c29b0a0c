//! What the intervals and verdicts promise, checked on simulated experiments whose truth is known; and that nothing
//! breaks on any input.

use proptest::prelude::*;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use warmcore_statistics::distributions::normal_quantile;
use warmcore_statistics::{Better, Bootstrap, Comparison, Sample, Verdict, compare_paired, compare_unpaired};

/// A standard normal number.
fn normal(random: &mut Pcg64Mcg) -> f64 {
    normal_quantile((random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 + 1e-17)
}

/// Share of simulated samples of `n` whose 95 % interval of the median covers the true median.
fn coverage(n: usize, true_median: f64, draw: impl Fn(&mut Pcg64Mcg) -> f64) -> f64 {
    let mut random = Pcg64Mcg::new(11);
    let bootstrap = Bootstrap { resamples: 1000, ..Bootstrap::default() };
    let samples = 1000;
    let covered = (0..samples)
        .filter(|_| {
            let values: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
            bootstrap.interval_of_median(&values).unwrap().contains(true_median)
        })
        .count();
    covered as f64 / f64::from(samples)
}

#[test]
fn intervals_of_the_median_cover_it_about_95_times_in_100() {
    // Nearly: intervals of a median of few values are a little short (see the page of `bootstrap`). The standard error of
    // each share is 0.8 %.
    for (n, least) in [(8, 0.88), (12, 0.91), (15, 0.895), (30, 0.915)] {
        let on_normal = coverage(n, 0.0, normal);
        assert!((least..0.98).contains(&on_normal), "normal, n = {n}: {on_normal}");
        let on_skewed = coverage(n, 1.0, |random| normal(random).exp());
        assert!((least..0.98).contains(&on_skewed), "log-normal, n = {n}: {on_skewed}");
        println!("n = {n}: {on_normal} {on_skewed}");
    }
}

/// Simulated experiments per claim: enough for shares within about 4 %.
const EXPERIMENTS: u32 = 120;

/// Comparisons of simulated experiments in which the candidate's trials are `effect` times the baseline's, apart from
/// noise of 10 % on each side.
fn experiments(n: usize, effect: f64, paired: bool) -> Vec<Comparison> {
    let mut random = Pcg64Mcg::new(5);
    (0..EXPERIMENTS)
        .map(|_| {
            let mut side =
                |factor: f64| -> Vec<f64> { (0..n).map(|_| factor * (0.1 * normal(&mut random)).exp()).collect() };
            let (baseline, candidate) = (side(1.0), side(effect));
            let compare = if paired { compare_paired } else { compare_unpaired };
            compare(&baseline, &candidate, Better::Lower).unwrap()
        })
        .collect()
}

fn share(comparisons: &[Comparison], verdict: Verdict) -> f64 {
    comparisons.iter().filter(|comparison| comparison.verdict == verdict).count() as f64 / comparisons.len() as f64
}

#[test]
fn equal_configurations_are_rarely_called_different() {
    for paired in [true, false] {
        let same = experiments(12, 1.0, paired);
        let called = 1.0 - share(&same, Verdict::NoDifferenceShown);
        assert!(called <= 0.08, "called different although equal: {called}, paired {paired}");
    }
}

#[test]
fn an_effect_of_the_stated_smallest_size_is_shown_about_80_times_in_100() {
    for (n, paired) in [(10, true), (16, false)] {
        let stated =
            experiments(n, 1.0, paired).iter().map(|comparison| comparison.smallest_effect.unwrap().ln()).sum::<f64>()
                / f64::from(EXPERIMENTS);
        let shown = share(&experiments(n, stated.exp(), paired), Verdict::Worse);
        assert!((0.7..0.95).contains(&shown), "n = {n}, paired {paired}: effect {} shown {shown}", stated.exp());
    }
}

#[test]
fn comparisons_repeat_to_the_last_bit() {
    assert_eq!(experiments(9, 1.1, true), experiments(9, 1.1, true));
    // Recorded once: resampling and elementary functions must not change with platform or version.
    let values: Vec<f64> = (1..=12).map(|i| f64::from(i * i)).collect();
    let doubled: Vec<f64> = values.iter().rev().map(|value| value * 2.0).collect();
    let interval = compare_unpaired(&values, &doubled, Better::Lower).unwrap().interval.unwrap();
    assert_eq!((interval.low, interval.high), (0.48648648648648646, 8.000000000000002));
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..1e6,
        1 => Just(0.0),
        1 => Just(f64::INFINITY),
        1 => Just(f64::MAX),
        1 => Just(f64::MIN_POSITIVE),
        1 => Just(7.0),
    ]
}

fn is_sane(comparison: &Comparison) -> bool {
    let probability = |p: Option<f64>| p.is_none_or(|p| (0.0..=1.0).contains(&p));
    comparison.ratio.is_none_or(|ratio| ratio >= 0.0)
        && comparison.interval.is_none_or(|interval| interval.low <= interval.high)
        && comparison.smallest_effect.is_none_or(|effect| effect >= 1.0)
        && probability(comparison.p_value)
        && probability(comparison.p_adjusted)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sample_is_described_without_nan(values in prop::collection::vec(any_value(), 0..25)) {
        let sample = Sample::new(&values).unwrap();
        let summary = sample.summary();
        for figure in [summary.median, summary.mean, summary.min, summary.max, summary.mad].into_iter().flatten() {
            prop_assert!(!figure.is_nan());
        }
        if let (Some(low), Some(mid), Some(high)) = (summary.min, summary.median, summary.max) {
            prop_assert!(low <= mid && mid <= high);
        }
        if let Some(interval) = summary.interval {
            prop_assert!(summary.min.unwrap() <= interval.low && interval.high <= summary.max.unwrap());
        }
        prop_assert_eq!(sample.outliers().len(), values.len());
    }

    #[test]
    fn any_samples_are_compared_without_nan(
        baseline in prop::collection::vec(any_value(), 0..25),
        candidate in prop::collection::vec(any_value(), 0..25),
    ) {
        prop_assert!(is_sane(&compare_unpaired(&baseline, &candidate, Better::Lower).unwrap()));
        let pairs = baseline.len().min(candidate.len());
        prop_assert!(is_sane(&compare_paired(&baseline[..pairs], &candidate[..pairs], Better::Higher).unwrap()));
    }
}
