//! Verdict, interval and sentence of random results say the same. (10 000 were tried once, which takes minutes; the first hundreds find
//! the contradiction that was mended.)

use super::tests::{conclude, record};
use super::*;
use crate::experiment::trial_seeds;
use crate::trial::tests::trial;
use warmcore_statistics::Interval;

const RESULTS: u64 = 400;
const BASE: &str = "eevdf";
const OTHER: &str = "cfs";

/// One random result, by its number.
struct RandomResult {
    document: ComparisonDocument,
    /// The fewest events that a percentile of a trial is of.
    events: f64,
    /// Tasks that never ran again under the other scheduler.
    left: f64,
}

fn draw(number: u64) -> RandomResult {
    let mut numbers = trial_seeds(number, 200).into_iter();
    // 53 bits each, so this is from 0 to 1.
    let mut part = move || numbers.next().unwrap() as f64 / (1_u64 << 53) as f64;
    let mut one_of = |count: usize| (part() * count as f64) as usize;
    let trials = [1, 3, 8, 10, 16][one_of(5)];
    let noise = [0.0, 0.001, 0.02, 0.3][one_of(4)];
    let factor = [0.5, 0.95, 0.992, 1.0, 1.004, 1.02, 1.5][one_of(7)];
    let left = if one_of(10) == 0 { 1.0 + one_of(20) as f64 } else { 0.0 };
    let events = [40.0, 99.0, 101.0, 5000.0][one_of(4)];
    let metric = ["elapsed_ns", "wakeup_p99_ns", "wakeup_mean_ns"][one_of(3)];
    let mut side = |label: &str, factor: f64, left: f64| -> Vec<Trial> {
        let mut one = |number| {
            let mut value = |typical: f64| Some(typical * factor * (1.0 + noise * (part() - 0.5)));
            let (elapsed, p99, mean) = (value(1e7), value(3e6), value(1e6));
            let measures = [
                ("elapsed_ns", elapsed),
                ("wakeup_p99_ns", p99),
                ("wakeup_mean_ns", mean),
                ("wakeups", Some(events)),
                ("never_ran_again", Some(left)),
            ];
            trial(label, number, &measures)
        };
        (0..trials).map(&mut one).collect()
    };
    let all = [side(BASE, 1.0, 0.0), side(OTHER, factor, left)];
    let record = ExperimentRecord { metric: Some(metric.into()), ..record(&[BASE, OTHER], trials) };
    RandomResult { document: conclude(&record, &all).unwrap(), events, left }
}

#[test]
fn verdict_interval_and_sentence_agree_on_sign_and_certainty() {
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for number in 0..RESULTS {
        let RandomResult { document, events, left } = draw(number);
        let sentence = &document.verdict.sentence;
        let result = &document.schedulers[1].measures[&document.primary];
        let (finding, comparison) = (result.finding.unwrap(), result.comparison.as_ref().unwrap());
        *seen.entry(format!("{finding:?}")).or_default() += 1;
        let what = || format!("result {number}: {finding:?}, {comparison:?}\n{sentence}");
        assert!(document.primary != "wakeup_p99_ns" || events >= 100.0, "a percentile of few events: {}", what());
        // A better scheduler never leaves tasks for ever.
        assert!(finding != Finding::Better || left == 0.0, "{}", what());
        let is_best = |label: &str| sentence.contains(&format!("{label} is best"));
        let says = |words: &str| sentence.contains(&format!("{OTHER} is {words}"));
        match (finding, comparison.interval, comparison.ratio) {
            (Finding::Better, Some(interval), Some(ratio)) => {
                assert!(interval.high < 1.0 && ratio < 1.0 - document.experiment.margin / 2.0, "{}", what());
                assert!(is_best(OTHER) && !is_best(BASE) && !says("worse"), "{}", what());
            }
            (Finding::Worse, Some(interval), Some(ratio)) => {
                assert!(interval.low > 1.0 && ratio > 1.0, "{}", what());
                assert!(says("worse") && !is_best(OTHER), "{}", what());
            }
            (Finding::Better | Finding::Worse, ..) => panic!("without an interval: {}", what()),
            (Finding::Tied, Some(interval), _) => {
                let margin = 1.0 + document.experiment.margin;
                assert!(interval.low >= 1.0 / margin && interval.high <= margin, "{}", what());
                assert!(sentence.contains("are tied"), "{}", what());
            }
            _ => {}
        }
        if !matches!(finding, Finding::Better | Finding::Worse | Finding::Starves) {
            assert!(!says("better") && !says("worse") && !is_best(OTHER), "{}", what());
        }
        // The sentence's interval is the table's.
        if let (Some(interval), Some(ratio), true) =
            (comparison.interval, comparison.ratio, sentence.contains("95 % interval"))
        {
            let [_, low, high] = ratio_and_ends(ratio, interval);
            assert!(sentence.contains(&format!("(95 % interval {low} to {high})")), "{}", what());
        }
        // What lies wholly beyond the margin, of a percentile beyond its bucket too, is no chance.
        let primary = document.measures.iter().find(|measure| measure.name == document.primary).unwrap();
        let margin = document.experiment.margin;
        let margin = margin.max(least_shown(primary, margin) - 1.0);
        let beyond = |interval: &Interval| interval.low > 1.0 + margin || interval.high < 1.0 - margin;
        if comparison.interval.as_ref().is_some_and(beyond) {
            assert!(matches!(finding, Finding::Better | Finding::Worse | Finding::Starves), "{}", what());
        }
    }
    for finding in ["Better", "Worse", "Tied", "Unclear", "TooFewTrials", "Starves"] {
        assert!(seen.get(finding).is_some_and(|count| *count > 4), "{finding}: {seen:?}");
    }
}
