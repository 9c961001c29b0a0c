//! Every statistic against values that SciPy computed (`scipy_vectors.py` beside this file says how).

use serde_json::Value;
use warmcore_statistics::distributions::{normal_cdf, normal_quantile, student_t_cdf, student_t_quantile};
use warmcore_statistics::{Bootstrap, Interval, Sample, geometric_mean, mann_whitney, wilcoxon_signed_rank};

fn vectors() -> Value {
    serde_json::from_str(include_str!("scipy_vectors.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The rows of a table whose rows are lists of numbers.
fn rows(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().unwrap().iter().map(numbers).collect()
}

#[track_caller]
fn assert_close(ours: f64, scipy: f64, relative: f64, what: &str) {
    let error = (ours - scipy).abs() / scipy.abs().max(1e-300);
    assert!(ours == scipy || error < relative, "{what}: ours {ours}, SciPy {scipy}, relative error {error:e}");
}

#[test]
fn normal_and_t_distributions_agree() {
    let vectors = vectors();
    for row in rows(&vectors["normal_cdf"]) {
        assert_close(normal_cdf(row[0]), row[1], 1e-13, &format!("normal cdf of {}", row[0]));
    }
    for row in rows(&vectors["normal_quantile"]) {
        assert_close(normal_quantile(row[0]), row[1], 1e-11, &format!("normal quantile of {}", row[0]));
    }
    for row in rows(&vectors["t_cdf"]) {
        // SciPy reaches the far tails by another series; 1e-9 of 1 is more than any use here needs.
        let ours = student_t_cdf(row[0], row[1] as u32);
        assert!((ours - row[2]).abs() < 1e-12, "t cdf of {row:?}: {ours}");
    }
    for row in rows(&vectors["t_quantile"]) {
        assert_close(student_t_quantile(row[0], row[1] as u32), row[2], 1e-9, &format!("t quantile of {row:?}"));
    }
}

#[test]
fn quantiles_of_the_distributions_have_their_ends() {
    assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
    assert_eq!((normal_quantile(0.5), student_t_quantile(0.5, 3)), (0.0, 0.0));
    assert_eq!((normal_quantile(-1.0), normal_quantile(7.0)), (f64::NEG_INFINITY, f64::INFINITY));
}

#[test]
fn descriptions_of_samples_agree() {
    let vectors = vectors();
    let probabilities = numbers(&vectors["probabilities"]);
    for case in vectors["samples"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let values = numbers(&case["values"]);
        let sample = Sample::new(&values).unwrap();
        assert_close(sample.mean().unwrap(), case["mean"].as_f64().unwrap(), 1e-12, name);
        assert_close(sample.standard_deviation().unwrap(), case["deviation"].as_f64().unwrap(), 1e-12, name);
        assert_close(sample.mad().unwrap(), case["mad"].as_f64().unwrap(), 1e-12, name);
        for (p, expected) in probabilities.iter().zip(numbers(&case["quantiles"])) {
            assert_close(sample.quantile(*p).unwrap(), expected, 1e-12, &format!("{name}, quantile {p}"));
        }
        match case["geometric_mean"].as_f64() {
            Some(expected) => assert_close(geometric_mean(&values).unwrap(), expected, 1e-12, name),
            None => assert_eq!(geometric_mean(&values), None),
        }
    }
}

/// The ends of two bootstrap intervals of the same data differ by the noise of resampling: allowed is a share of the
/// interval's width.
#[track_caller]
fn assert_interval(ours: Interval, scipy: &Value, share: f64, what: &str) {
    let scipy = numbers(scipy);
    let allowed = share * (scipy[1] - scipy[0]);
    let near = |ours: f64, theirs: f64| (ours - theirs).abs() <= allowed;
    assert!(near(ours.low, scipy[0]) && near(ours.high, scipy[1]), "{what}: ours {ours:?}, SciPy {scipy:?}");
}

#[test]
fn bca_intervals_agree_within_the_noise_of_resampling() {
    let vectors = vectors();
    // As many resamples as the reference had: what remains is well below 2 % of the width.
    let bootstrap = Bootstrap { resamples: 200_000, ..Bootstrap::default() };
    let mean = |values: &mut [f64]| values.iter().sum::<f64>() / values.len() as f64;
    let mut compared = 0;
    for case in vectors["samples"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let values = numbers(&case["values"]);
        if case["bca_mean"].is_array() {
            assert_interval(bootstrap.interval(&values, mean).unwrap(), &case["bca_mean"], 0.02, name);
            compared += 1;
        }
        if case["bca_median"].is_array() {
            assert_interval(bootstrap.interval_of_median(&values).unwrap(), &case["bca_median"], 0.02, name);
            compared += 1;
        }
    }
    assert_eq!(compared, 7);
    let case = &vectors["ratio_of_medians"];
    let [baseline, candidate] = ["baseline", "candidate"].map(|sample| numbers(&case[sample]));
    let interval = bootstrap.interval_of_medians(&baseline, &candidate, |a, b| b.ln() - a.ln()).unwrap();
    let ratio = Interval { low: interval.low.exp(), high: interval.high.exp() };
    assert_interval(ratio, &case["bca"], 0.02, "ratio of medians");
}

#[test]
fn rank_tests_agree() {
    let vectors = vectors();
    for case in vectors["signed_rank"].as_array().unwrap() {
        let p = wilcoxon_signed_rank(&numbers(&case["differences"])).unwrap();
        assert_close(p, case["p"].as_f64().unwrap(), 1e-10, case["name"].as_str().unwrap());
    }
    for case in vectors["rank_sum"].as_array().unwrap() {
        let p = mann_whitney(&numbers(&case["a"]), &numbers(&case["b"])).unwrap();
        assert_close(p, case["p"].as_f64().unwrap(), 1e-10, case["name"].as_str().unwrap());
    }
}
