//! What a verdict promises, over random experiments: it never contradicts its explanation beyond the margin, and no ratio is infinite, no
//! number or one over nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::time_split::{Explains, Gap};
use warmcore_lab::verdict::{self, ComparisonDocument, Finding};
use warmcore_schedulers::SchedulerSpec;

const MACHINES: [&str; 4] = ["1s1n1l1c1t", "1s1n1l2c1t", "2s1n1l2c1t", "1s1n2l2c2t"];
const SCHEDULERS: [&str; 6] = ["cfs", "eevdf", "rr", "ule", "eevdf:base_slice_ns=700000", "cfs:hz=100"];
const WORKLOADS: [&str; 8] = [
    "spin:-n3,-d20ms",
    "spin:-n7,-N0:0:5,-d30ms",
    "spin:-n1,-d10ms",
    "hackbench:-T,-p,-f2,-g1,-l8",
    "hackbench:-T,-p,-f3,-g2,-l4",
    "periodic:-n5,-r400us,-s1600us,-d20ms",
    "forkjoin:-n4,-i4,-w300us",
    "pingpong:-n2,-w20us,-d10ms",
];
const METRICS: [Option<&str>; 7] = [
    None,
    None,
    Some("elapsed_ns"),
    Some("work_ns"),
    Some("wakeup_p99_ns"),
    Some("migrations_ran"),
    Some("cpu_share_deviation"),
];

/// The comparison of a random experiment, and the trials' elapsed times by scheduler.
fn experiment(seed: u64) -> (ComparisonDocument, Vec<Vec<f64>>) {
    let draws = trial_seeds(seed, 5);
    let of = |draw: usize, count: usize| (draws[draw] % count as u64) as usize;
    let (machine, workload) = (MACHINES[of(0, MACHINES.len())], WORKLOADS[of(1, WORKLOADS.len())]);
    let first = of(2, SCHEDULERS.len());
    let schedulers: Vec<SchedulerSpec> =
        (0..3).map(|k| SchedulerSpec::parse(SCHEDULERS[(first + k * 2 + k / 2) % SCHEDULERS.len()]).unwrap()).collect();
    let machine = Named { source: machine.into(), value: warmcore_topology::resolve(machine).unwrap() };
    let value = warmcore_workload::from_generator(workload).unwrap();
    let built = Experiment::builder(machine, Named { source: workload.into(), value })
        .schedulers(schedulers)
        .seeds(trial_seeds(seed, 9))
        .metric(METRICS[of(3, METRICS.len())].map(str::to_owned))
        .build()
        .unwrap()
        .experiment;
    let conduct = Conduct { jobs: 1, stop: Arc::new(AtomicBool::new(false)), progress: &|_| {} };
    let trials = runner::run(&built, None, &conduct).unwrap().trials;
    let elapsed = trials.iter().map(|trials| trials.iter().map(|trial| trial.elapsed_ns as f64).collect()).collect();
    for trial in trials.iter().flatten() {
        if let Some(last) = &trial.last_thread {
            let sum: f64 = last.spent_ns.values().sum();
            assert!((sum - trial.elapsed_ns as f64).abs() < 1.0, "{workload}: {sum} of {} ns", trial.elapsed_ns);
            assert!(last.spent_ns.values().all(|ns| *ns >= -1e-3), "{workload}: {last:?}");
        }
    }
    let document = verdict::conclude(&built.record(), &built.workload.value, &*built.place, &trials).unwrap();
    (document, elapsed)
}

/// Every value under a name in a document.
fn each<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            if key == name {
                found.push(value);
            }
            each(value, name, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| each(value, name, found)),
        _ => {}
    }
}

fn check_gap(gap: &Gap, explains: Explains, finding: Finding, ratio: Option<f64>, what: &str) {
    let sum: f64 = gap.lines.iter().map(|line| line.difference).sum();
    let shares: Vec<f64> = gap.lines.iter().filter_map(|line| line.share).collect();
    if !shares.is_empty() {
        let whole: f64 = shares.iter().sum();
        assert!((whole - 1.0).abs() < 1e-6, "{what}: shares add up to {whole}");
        let over = shares.iter().any(|share| *share > 1.01);
        assert!(!over || gap.sentence.contains("offset by"), "{what}: {}", gap.sentence);
    }
    if explains == Explains::TaskTime {
        assert!(gap.sentence.starts_with("Beside "), "{what}: {}", gap.sentence);
        return;
    }
    assert!(
        (sum - gap.difference).abs() <= 1e-9 * gap.difference.abs().max(1.0),
        "{what}: {sum} of {}",
        gap.difference
    );
    match finding {
        Finding::Better | Finding::Worse => {
            let (middle, ratio) = (gap.ratio.unwrap(), ratio.unwrap());
            assert!((middle - 1.0) * (ratio - 1.0) > 0.0, "{what}: {ratio}, but {middle} in the middle pair");
            let less = gap.difference < 0.0;
            let way = if explains == Explains::Work { middle > 1.0 } else { middle < 1.0 };
            assert!(less == way || gap.sentence.contains("threads live"), "{what}: {}", gap.sentence);
        }
        Finding::Tied | Finding::Identical => {
            assert!(gap.sentence.ends_with("there is no difference to explain"), "{what}: {}", gap.sentence);
        }
        _ => {}
    }
}

#[test]
fn verdicts_of_random_experiments_agree_with_their_explanations_and_have_only_real_ratios() {
    let (mut explained, mut judged) = ([0; 3], 0);
    for seed in 0..40 {
        let (document, elapsed) = experiment(seed);
        let what = format!("seed {seed}, {} of {}", document.primary, document.experiment.workload.source);
        let split = document.time_split.as_ref().unwrap();
        explained[split.explains as usize] += 1;
        let base = document.schedulers.iter().find(|scheduler| scheduler.is_baseline).unwrap();
        let others = document.schedulers.iter().enumerate().filter(|(_, scheduler)| !scheduler.is_baseline);
        for ((index, scheduler), gap) in others.zip(&split.gaps) {
            let result = &scheduler.measures[&document.primary];
            let (finding, comparison) = (result.finding.unwrap(), result.comparison.as_ref().unwrap());
            judged += usize::from(matches!(finding, Finding::Better | Finding::Worse));
            check_gap(gap, split.explains, finding, comparison.ratio, &what);
            if split.explains == Explains::LastThread && document.primary == "elapsed_ns" && gap.ratio.is_some() {
                let [of_base, of_own] = gap.trials.unwrap();
                let difference = elapsed[index][of_own] - elapsed[0][of_base];
                assert!((gap.difference - difference).abs() < 2.0, "{what}: {} of {difference} ns", gap.difference);
            }
            for (name, result) in &scheduler.measures {
                let comparison = result.comparison.as_ref().unwrap();
                assert!(comparison.ratio.is_none_or(|ratio| ratio.is_finite() && ratio > 0.0), "{what}: {name}");
                let nothing = base.measures[name].summary.median == Some(0.0);
                assert!(!nothing || comparison.ratio.is_none(), "{what}: {name} has a ratio over nothing");
            }
        }
        let json = serde_json::to_value(&document).unwrap();
        for name in ["ratio", "low", "high", "share", "difference", "smallest_effect"] {
            let mut found = Vec::new();
            each(&json, name, &mut found);
            assert!(found.iter().all(|value| value.is_null() || value.is_f64()), "{what}: {name}");
        }
        for text in std::iter::once(&document.verdict.sentence).chain(split.gaps.iter().map(|gap| &gap.sentence)) {
            assert!(!text.contains("inf") && !text.contains("NaN"), "{what}: {text}");
        }
    }
    assert!(explained.iter().all(|count| *count > 2), "each explanation occurs: {explained:?}");
    assert!(judged > 10, "{judged} differences are shown");
}
