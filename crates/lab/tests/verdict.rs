//! What a verdict promises, over random experiments: it never contradicts its explanation beyond the margin, and no ratio is infinite, no
//! number or one over nothing.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::measures;
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::time_split::{Explains, Gap};
use warmcore_lab::verdict::{self, ComparisonDocument, Finding};
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::{Options, Workload};

const SCHEDULERS: [&str; 10] = [
    "cfs",
    "eevdf",
    "rr",
    "ule",
    "eevdf:base_slice_ns=700000",
    "cfs:hz=100",
    "cache-aware",
    "topology-aware",
    "fewest-tasks",
    "random",
];

/// Draws of a seed, one after the other.
struct Draws(std::vec::IntoIter<u64>);

impl Draws {
    fn of(seed: u64) -> Self {
        Self(trial_seeds(seed, 200).into_iter())
    }

    /// A number of a range, its end included.
    fn number(&mut self, range: RangeInclusive<u64>) -> u64 {
        let drawn = self.0.next().expect("there are draws enough for an experiment");
        range.start() + drawn % (range.end() - range.start() + 1)
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.number(0..=all.len() as u64 - 1) as usize]
    }
}

/// A machine of up to 16 CPUs.
fn machine(draws: &mut Draws) -> String {
    let mut up_to = |most| draws.number(1..=most);
    let [sockets, llcs, cores, threads] = [up_to(2), up_to(2), up_to(2), up_to(2)];
    format!("{sockets}s1n{llcs}l{cores}c{threads}t")
}

/// A generator with flags, or a program of steps.
fn workload(draws: &mut Draws) -> (String, Workload) {
    let mut n = |range| draws.number(range);
    let generator = match n(0..=9) {
        0 => format!("spin:-n{},-d{}ms", n(1..=9), n(5..=40)),
        1 => format!("spin:-n{},-N0:{},-d{}ms", n(2..=7), n(1..=10), n(5..=40)),
        2 | 3 => format!("hackbench:-T,-p,-f{},-g{},-l{}", n(1..=3), n(1..=2), n(1..=9)),
        4 => format!("periodic:-n{},-r{}us,-s{}us,-d20ms", n(1..=9), n(50..=900), n(100..=2000)),
        5 => format!("forkjoin:-n{},-i{},-w{}us", n(1..=8), n(1..=5), n(20..=600)),
        6 => format!("pingpong:-n{},-w{}us,-d10ms", n(1..=4), n(1..=40)),
        7 => format!("spin:-n{},-d{}ms,--profile=mysql-select", n(1..=6), n(5..=20)),
        _ => return program(draws),
    };
    let value = warmcore_workload::from_generator(&generator).unwrap();
    (generator, value)
}

/// Tasks that run and wait in random orders; some end by themselves after some loops, with a lock or a barrier between them.
fn program(draws: &mut Draws) -> (String, Workload) {
    let kinds = draws.number(1..=3);
    let barrier = draws.number(0..=1) == 1;
    let loops = draws.number(2..=12);
    let tasks: Vec<String> = (0..kinds)
        .map(|kind| {
            let steps: Vec<String> = (0..draws.number(1..=3))
                .map(|step| {
                    let us = draws.number(10..=900);
                    match draws.number(0..=3) {
                        0 => format!("\"sleep{step}\": {us}"),
                        1 => format!("\"lock{step}\": \"m\", \"run{step}\": {us}, \"unlock{step}\": \"m\""),
                        _ => format!("\"run{step}\": {us}"),
                    }
                })
                .chain(barrier.then(|| "\"barrier\": \"all\"".to_owned()))
                .chain(["\"run9\": 5".to_owned()])
                .collect();
            let (instances, nice) = (draws.number(1..=3), draws.number(0..=4));
            format!(
                "\"t{kind}\": {{ \"instance\": {instances}, \"priority\": {nice}, \"loop\": {loops}, {} }}",
                steps.join(", ")
            )
        })
        .collect();
    let text = format!("{{ \"tasks\": {{ {} }} }}", tasks.join(", "));
    let value = warmcore_workload::from_rtapp("program", &text, &Options::default()).unwrap();
    (text, value)
}

/// The comparison of a random experiment, and the trials' elapsed times by scheduler.
fn experiment(seed: u64) -> (ComparisonDocument, Vec<Vec<f64>>) {
    let mut draws = Draws::of(seed);
    let machine = machine(&mut draws);
    let (workload, value) = workload(&mut draws);
    let mut left = SCHEDULERS.to_vec();
    let mut scheduler = || SchedulerSpec::parse(left.remove(draws.number(0..=left.len() as u64 - 1) as usize)).unwrap();
    let schedulers: Vec<SchedulerSpec> = (0..3).map(|_| scheduler()).collect();
    // The workload's own metric, those that an explanation is about, or any.
    let all = measures::of_workload(&value);
    let metric = match draws.number(0..=3) {
        0 => None,
        1 => Some(draws.one_of(&["elapsed_ns", "work_ns"]).to_owned()),
        _ => Some(all[draws.number(0..=all.len() as u64 - 1) as usize].name.clone()),
    };
    let margin = *draws.one_of(&[&0.0, &0.001, &0.01, &0.05, &0.3]);
    let machine = Named { value: warmcore_topology::resolve(&machine).unwrap(), source: machine };
    let built = Experiment::builder(machine, Named { source: workload.clone(), value })
        .schedulers(schedulers)
        .seeds(trial_seeds(seed, 9))
        .metric(metric)
        .margin(margin)
        .build()
        .unwrap()
        .experiment;
    let conduct = Conduct { jobs: 1, stop: Arc::new(AtomicBool::new(false)), progress: &|_| {} };
    let trials = runner::run(&built, None, &conduct).unwrap().trials;
    let elapsed = trials
        .iter()
        .map(|trials| trials.iter().map(|trial| (trial.elapsed_ns - trial.warm_up_ns) as f64).collect())
        .collect();
    for trial in trials.iter().flatten() {
        if let Some(last) = &trial.last_thread {
            let sum: f64 = last.spent_ns.values().sum();
            assert!((sum - trial.elapsed_ns as f64).abs() < 1.0, "{workload}: {sum} of {} ns", trial.elapsed_ns);
            assert!(last.spent_ns.values().all(|ns| *ns >= -1e-3), "{workload}: {last:?}");
            let path: f64 = last.path.as_ref().unwrap().spent_ns.values().sum();
            assert!((path - trial.elapsed_ns as f64).abs() < 1.0, "{workload}: {path} of {} ns", trial.elapsed_ns);
        }
    }
    let document = verdict::conclude(&built, &built.record(), &trials).unwrap();
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

fn check_gap(gap: &Gap, (explains, margin): (Explains, f64), finding: Finding, ratio: Option<f64>, what: &str) {
    let sum: f64 = gap.lines.iter().map(|line| line.difference).sum();
    let shares: Vec<f64> = gap.lines.iter().filter_map(|line| line.share).collect();
    if !shares.is_empty() {
        let whole: f64 = shares.iter().sum();
        assert!((whole - 1.0).abs() < 1e-6, "{what}: shares add up to {whole}");
        let over = shares.iter().any(|share| *share > 1.01);
        assert!(!over || gap.sentence.contains("offset by"), "{what}: {}", gap.sentence);
    }
    let shown = matches!(finding, Finding::Better | Finding::Worse | Finding::Different);
    let ends = match finding {
        Finding::TooFewTrials => "too few trials to say; the table shows what was measured",
        _ => "there is no difference to explain",
    };
    assert!(
        shown || gap.sentence.ends_with(ends) && shares.is_empty(),
        "{what}: nothing is explained that is not shown: {}",
        gap.sentence
    );
    if explains == Explains::TaskTime {
        assert!(!shown || gap.sentence.starts_with("Task time, which does not explain "), "{what}: {}", gap.sentence);
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
            assert!(
                !(1.0 / (1.0 + margin)..=1.0 + margin).contains(&ratio),
                "{what}: {ratio} is inside the margin {margin}"
            );
            let way = if explains == Explains::Work { middle > 1.0 } else { middle < 1.0 };
            assert!(less == way || gap.sentence.contains("threads live"), "{what}: {}", gap.sentence);
        }
        _ => {}
    }
}

#[test]
fn verdicts_of_random_experiments_agree_with_their_explanations_and_have_only_real_ratios() {
    let (mut explained, mut judged) = ([0; 4], 0);
    for seed in 0..60 {
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
            check_gap(gap, (split.explains, document.experiment.margin), finding, comparison.ratio, &what);
            if matches!(split.explains, Explains::LastThread | Explains::CriticalPath)
                && document.primary == "elapsed_ns"
                && gap.ratio.is_some()
            {
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
    assert!(explained.iter().all(|count| *count > 1), "each explanation occurs: {explained:?}");
    assert!(judged > 10, "{judged} differences are shown");
}
