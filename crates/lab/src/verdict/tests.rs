use super::*;
use crate::experiment::Named;
use crate::experiment::{SchedulerRecord, SubjectRecord};
use crate::gathering::GatheringRow;
use crate::trial::tests::trial;
use warmcore_options::RunOptions;
use warmcore_statistics::{Better, Interval};

pub(super) fn record(schedulers: &[&str], trials: usize) -> ExperimentRecord {
    let subject = || SubjectRecord { source: "x".into(), sha256: "0".into() };
    ExperimentRecord {
        schema: crate::experiment::SCHEMA.into(),
        tool_version: TOOL_VERSION.into(),
        place: "sim".into(),
        design: Design::Paired,
        baseline: schedulers[0].into(),
        metric: Some("elapsed_ns".into()),
        margin: DEFAULT_MARGIN,
        options: RunOptions::default(),
        seeds: vec![1; trials],
        observations: Vec::new(),
        advised: false,
        makings: None,
        machine: subject(),
        workload: subject(),
        actions: Vec::new(),
        schedulers: schedulers
            .iter()
            .map(|name| SchedulerRecord {
                label: (*name).into(),
                resolved: (*name).into(),
                program_sha256: None,
                program_files: BTreeMap::new(),
                machine: None,
                workload: None,
            })
            .collect(),
    }
}

fn workload() -> Workload {
    warmcore_workload::from_generator("hackbench:-T,-p,-f2,-g1,-l1").unwrap()
}

/// What follows from trials of a small hackbench.
pub(super) fn conclude(record: &ExperimentRecord, trials: &[Vec<Trial>]) -> Result<ComparisonDocument, VerdictError> {
    let machine = Named { source: "x".into(), value: warmcore_topology::resolve("1s1n2l2c1t").unwrap() };
    let experiment = Experiment::builder(machine, Named { source: "x".into(), value: workload() });
    let scheduler = SchedulerSpec::parse("eevdf").unwrap();
    concluded(&experiment.schedulers(vec![scheduler]).seeds(vec![1]).build().unwrap().experiment, record, trials)
}

/// Trials whose elapsed times are those of the baseline times a factor per scheduler.
fn document(factors: &[(&str, f64)], trials: usize) -> ComparisonDocument {
    let names: Vec<&str> = factors.iter().map(|(name, _)| *name).collect();
    let all: Vec<Vec<Trial>> = factors
        .iter()
        .map(|(name, factor)| {
            let elapsed = |number: usize| 1e3 * factor * (1000.0 + ((number * 37) % 11) as f64);
            (0..trials).map(|number| trial(name, number, &[("elapsed_ns", Some(elapsed(number)))])).collect()
        })
        .collect();
    conclude(&record(&names, trials), &all).unwrap()
}

#[test]
fn the_best_scheduler_is_named_with_its_ratio_and_interval() {
    let document = document(&[("cfs", 1.0), ("eevdf", 0.8), ("rr", 1.5)], 10);
    assert_eq!(document.verdict.best.as_deref(), Some("eevdf"));
    assert_eq!(
        document.verdict.sentence,
        "eevdf is best: elapsed time 0.8 times that of cfs (95 % interval 0.8 to 0.8); rr, a yardstick and no kernel's \
         scheduler, is worse: elapsed time 1.5 times that of cfs (95 % interval 1.5 to 1.5); 10 paired trials, lower is better."
    );
}

#[test]
fn the_baseline_is_best_when_all_others_are_worse() {
    let document = document(&[("cfs", 1.0), ("eevdf", 1.1), ("rr", 1.5)], 10);
    assert_eq!(document.verdict.best.as_deref(), Some("cfs"));
}

#[test]
fn a_yardstick_is_compared_but_never_the_best() {
    let beside = document(&[("cfs", 1.0), ("eevdf", 0.9), ("rr", 0.5)], 10);
    assert_eq!(beside.verdict.best.as_deref(), Some("eevdf"));
    assert!(beside.schedulers[2].is_yardstick && !beside.schedulers[1].is_yardstick);
    assert!(beside.verdict.sentence.contains("rr, a yardstick and no kernel's scheduler, is better: elapsed time 0.5"));
    // Alone with a baseline that is not worse than any real one, nothing is singled out.
    assert_eq!(document(&[("cfs", 1.0), ("rr", 0.5)], 10).verdict.best, None);
    assert_eq!(document(&[("rr", 1.0), ("cfs", 1.5)], 10).verdict.best, None);
    assert_eq!(document(&[("cfs", 1.0), ("rr", 1.5)], 10).verdict.best, None, "there is no second real scheduler");
}

#[test]
fn equal_schedulers_are_identical_and_none_is_best() {
    let several = document(&[("cfs", 1.0), ("eevdf", 1.0), ("ule", 1.0), ("fifo", 1.0)], 10).verdict.sentence;
    assert!(several.starts_with("eevdf, ule and fifo are identical to cfs in elapsed time; "), "{several}");
    let document = document(&[("cfs", 1.0), ("eevdf", 1.0)], 10);
    assert_eq!(document.schedulers[1].measures["elapsed_ns"].finding, Some(Finding::Identical));
    assert_eq!(document.verdict.best, None);
    assert!(document.verdict.sentence.starts_with("eevdf and cfs are identical in elapsed time"));
}

#[test]
fn a_difference_inside_the_margin_is_a_tie_and_nobody_is_best() {
    let tied = document(&[("cfs", 1.0), ("eevdf", 1.005)], 10);
    assert_eq!(tied.schedulers[1].measures["elapsed_ns"].finding, Some(Finding::Tied));
    assert_eq!(tied.verdict.best, None);
    let expected = "eevdf and cfs are tied in elapsed time, within the margin of 1 % (95 % interval 1.005 to 1.005)";
    assert!(tied.verdict.sentence.starts_with(expected), "{}", tied.verdict.sentence);
    assert_eq!(document(&[("cfs", 1.0), ("eevdf", 1.02)], 10).verdict.best.as_deref(), Some("cfs"));
}

#[test]
fn a_third_of_the_trials_at_half_speed_is_no_tie() {
    let document = |slow: usize| {
        let side = |label: &str, slow: usize| -> Vec<Trial> {
            let elapsed = |number: usize| if number < slow { 1e8 } else { 5e7 };
            (0..100).map(|number| trial(label, number, &[("elapsed_ns", Some(elapsed(number)))])).collect()
        };
        conclude(&record(&["cfs", "eevdf"], 100), &[side("cfs", 0), side("eevdf", slow)]).unwrap()
    };
    let result = |document: &ComparisonDocument| document.schedulers[1].measures["elapsed_ns"].clone();
    let found = document(34);
    assert_eq!(result(&found).finding, Some(Finding::Unclear));
    let expected = "It is unclear whether eevdf and cfs differ in elapsed time: their medians are within the margin of 1 % \
                    (95 % interval 1 to 1), but in 34 of 100 trials it is 2 times that of cfs";
    assert!(found.verdict.sentence.starts_with(expected), "{}", found.verdict.sentence);
    assert_eq!(result(&document(5)).finding, Some(Finding::Tied), "five of one sign may be chance");
}

/// A trial each of two schedulers for every number, with these values of a measure.
fn of_values(name: &str, base: impl Fn(usize) -> f64, own: impl Fn(usize) -> f64) -> ComparisonDocument {
    let side = |label: &str, value: &dyn Fn(usize) -> f64| -> Vec<Trial> {
        let elapsed = ("elapsed_ns", Some(2e6 + label.len() as f64 * 1e5));
        (0..10).map(|number| trial(label, number, &[elapsed, (name, Some(value(number)))])).collect()
    };
    let record = ExperimentRecord { metric: Some(name.into()), ..record(&["cfs", "eevdf"], 10) };
    conclude(&record, &[side("cfs", &base), side("eevdf", &own)]).unwrap()
}

#[test]
fn a_shown_difference_that_may_be_smaller_than_the_margin_is_unclear() {
    // Always more, by 0.1 % to 1.5 %.
    let document = of_values("elapsed_ns", |_| 1e6, |number| 1e6 * (1.001 + 0.0015 * number as f64));
    assert_eq!(document.schedulers[1].measures["elapsed_ns"].finding, Some(Finding::Unclear));
    assert!(
        document
            .verdict
            .sentence
            .starts_with("It is unclear whether eevdf and cfs differ in elapsed time by more than"),
        "{}",
        document.verdict.sentence
    );
}

#[test]
fn a_baseline_that_is_nearly_zero_is_replaced_by_another_metric_and_that_is_said() {
    let document = of_values("wakeup_p99_ns", |_| 4.0, |_| 5e3);
    assert_eq!(document.primary, "elapsed_ns");
    assert_eq!(document.replaced.as_ref().map(|replaced| replaced.metric.as_str()), Some("wakeup_p99_ns"));
    let expected = "wakeup p99 is not measurable here: it is nearly zero under cfs (4 ns under cfs, 5 us under eevdf), so \
                    the verdict is about elapsed time. cfs is best; eevdf is worse: elapsed time 1.087 times that of cfs";
    assert!(document.verdict.sentence.starts_with(expected), "{}", document.verdict.sentence);
    let result = &document.schedulers[1].measures["wakeup_p99_ns"];
    assert_eq!(result.finding, Some(Finding::NotMeasurable));
    assert_eq!(
        result.comparison.as_ref().map(|comparison| (comparison.ratio, comparison.interval)),
        Some((None, None))
    );
}

#[test]
fn a_candidate_clearly_above_a_baseline_of_nearly_zero_is_worse_without_a_ratio() {
    for base in [0.0, 4.0, 700.0] {
        let document = of_values("wakeup_p99_ns", |_| base, |number| 2e6 + number as f64);
        assert_eq!((document.primary.as_str(), document.replaced.is_none()), ("wakeup_p99_ns", true), "{base}");
        assert_eq!(document.verdict.best.as_deref(), Some("cfs"));
        let expected = "cfs is best; eevdf is worse: wakeup p99 is 2 ms, which has no ratio to that of cfs, as one of them is nearly zero";
        assert!(document.verdict.sentence.starts_with(expected), "{}", document.verdict.sentence);
        let result = &document.schedulers[1].measures["wakeup_p99_ns"];
        assert_eq!(result.finding, Some(Finding::Worse));
        let comparison = result.comparison.as_ref().unwrap();
        assert_eq!((comparison.ratio, comparison.interval, comparison.smallest_effect), (None, None, None));
    }
    let more = of_values("work_ns", |_| 0.0, |_| 5e6);
    assert_eq!(more.schedulers[1].measures["work_ns"].finding, Some(Finding::Better), "more work is better");
    // Most trials are clearly above, the others below: that may be chance.
    let some = of_values("wakeup_p99_ns", |_| 4.0, |number| if number < 6 { 2e6 } else { 0.0 });
    assert_eq!(some.schedulers[1].measures["wakeup_p99_ns"].finding, Some(Finding::Unclear));
}

#[test]
fn what_is_nearly_zero_as_the_baseline_is_stays_tied_next_to_one_that_is_not() {
    let side = |label: &str, p99_ns: f64| -> Vec<Trial> {
        (0..10).map(|number| trial(label, number, &[("wakeup_p99_ns", Some(p99_ns))])).collect()
    };
    let record = ExperimentRecord { metric: Some("wakeup_p99_ns".into()), ..record(&["cfs", "ule", "rr"], 10) };
    let document = conclude(&record, &[side("cfs", 700.0), side("ule", 900.0), side("rr", 1e7)]).unwrap();
    let finding = |index: usize| document.schedulers[index].measures["wakeup_p99_ns"].finding;
    assert_eq!([finding(1), finding(2)], [Some(Finding::Tied), Some(Finding::Worse)]);
    assert_eq!(document.verdict.best, None);
    let expected = "ule and cfs are tied in wakeup p99, which is nearly zero under both; rr, a yardstick";
    assert!(document.verdict.sentence.starts_with(expected), "{}", document.verdict.sentence);
}

#[test]
fn a_candidate_that_is_nearly_zero_is_better_without_a_ratio() {
    let document = of_values("wakeup_p99_ns", |number| 2e6 + number as f64, |_| 0.0);
    assert_eq!((document.primary.as_str(), document.verdict.best.as_deref()), ("wakeup_p99_ns", Some("eevdf")));
    assert_eq!(document.schedulers[1].measures["wakeup_p99_ns"].comparison.as_ref().unwrap().ratio, None);
    assert!(
        document.verdict.sentence.contains("wakeup p99 is 0 ns, which has no ratio"),
        "{}",
        document.verdict.sentence
    );
}

#[test]
fn a_percentile_is_shown_where_every_trial_has_so_many_events_that_one_lies_beyond_it() {
    let shown = |(name, events): (&str, f64)| {
        let of = |number: usize| {
            let events = if number == 3 { events } else { 1e4 };
            trial("cfs", number, &[("elapsed_ns", Some(5e6)), (name, Some(2e6)), ("wakeups", Some(events))])
        };
        let document = conclude(&record(&["cfs"], 10), &[(0..10).map(of).collect()]).unwrap();
        let result = &document.schedulers[0].measures[name];
        assert_eq!(result.summary.median, Some(2e6), "the document has it all the same");
        result.shown().is_some()
    };
    for (name, needed) in
        [("wakeup_p50_ns", 2.0), ("wakeup_p90_ns", 10.0), ("wakeup_p99_ns", 100.0), ("wakeup_p999_ns", 1000.0)]
    {
        assert_eq!([shown((name, needed - 1.0)), shown((name, needed))], [false, true], "{name}");
    }
    assert!(shown(("wakeup_mean_ns", 1.0)), "a mean is not one of its events");
}

/// Two requests in every trial against three: the third may have ended just before the run or just after.
#[test]
fn a_rate_of_a_few_samples_is_no_difference_unless_the_other_side_has_many() {
    let rate = "recorder_request_per_s";
    let samples = "recorder_request_samples";
    let found = |base: f64, own: f64| {
        let of = |label: &str, count: f64| -> Vec<Trial> {
            (0..10).map(|number| trial(label, number, &[(rate, Some(count)), (samples, Some(count))])).collect()
        };
        let sides = [of("cfs", base), of("eevdf", own)];
        let measure = Measure::of_outcome(rate, "request samples per second", measures::Unit::PerS, Better::Higher, "");
        sides.each_ref().map(|trials| carries::few_samples(&measure, trials))
    };
    assert_eq!(found(2.0, 3.0), [Some(2.0), Some(3.0)]);
    assert_eq!(found(2.0, 5.0), [Some(2.0), None]);
    assert_eq!(found(1e3, 0.0), [None, Some(0.0)], "it is clearly less");
}

#[test]
fn percentiles_of_one_bucket_are_identical_only_with_their_means() {
    let finding = |mean_ns: f64| {
        let side = |label: &str, mean_ns: f64| -> Vec<Trial> {
            let measures =
                [("wakeup_p50_ns", 900.0), ("wakeup_p99_ns", 9e3), ("wakeup_mean_ns", mean_ns), ("wakeups", 1e4)];
            let measures = measures.map(|(name, value)| (name, Some(value)));
            (0..10).map(|number| trial(label, number, &measures)).collect()
        };
        let record = ExperimentRecord { metric: Some("wakeup_p99_ns".into()), ..record(&["eevdf", "cfs"], 10) };
        let document = conclude(&record, &[side("eevdf", 1000.0), side("cfs", mean_ns)]).unwrap();
        ["wakeup_p50_ns", "wakeup_p99_ns"].map(|name| document.schedulers[1].measures[name].finding)
    };
    assert_eq!(finding(1000.0), [Some(Finding::Identical); 2]);
    assert_eq!(finding(1001.0), [Some(Finding::Tied); 2]);
}

#[test]
fn a_scheduler_that_leaves_more_tasks_waiting_for_ever_is_never_better() {
    let side = |label: &str, wait_ns: f64, left: f64| -> Vec<Trial> {
        let measures = [("wakeup_mean_ns", Some(wait_ns)), ("never_ran_again", Some(left))];
        (0..10).map(|number| trial(label, number, &measures)).collect()
    };
    let document = |base_left: f64, own_left: f64| {
        let record = ExperimentRecord { metric: Some("wakeup_mean_ns".into()), ..record(&["eevdf", "cfs"], 10) };
        conclude(&record, &[side("eevdf", 5e4, base_left), side("cfs", 2e4, own_left)]).unwrap()
    };
    let starved = document(0.0, 16.0);
    assert_eq!(starved.schedulers[1].measures["wakeup_mean_ns"].finding, Some(Finding::Starves));
    let expected = "eevdf is best; cfs starves tasks, whatever its wakeup mean: 16 of them never ran again";
    assert!(starved.verdict.sentence.starts_with(expected), "{}", starved.verdict.sentence);
    assert_eq!(document(0.0, 0.0).verdict.best.as_deref(), Some("cfs"));
    assert_eq!(document(50.0, 52.0).verdict.best.as_deref(), Some("cfs"), "most had no turn yet under either");
}

#[test]
fn runs_that_ended_while_tasks_still_found_their_llcs_are_named() {
    let side = |label: &str, [first, last]: [f64; 2]| -> Vec<Trial> {
        let moves = [("cross_llc_first_quarter", Some(first)), ("cross_llc_last_quarter", Some(last))];
        let measures = [("elapsed_ns", Some(1e6)), moves[0], moves[1]];
        (0..10).map(|number| trial(label, number, &measures)).collect()
    };
    let said = |own: [f64; 2]| {
        let record = record(&["eevdf", "cache-aware"], 10);
        let trials = [side("eevdf", [200.0, 210.0]), side("cache-aware", own)];
        let conditions = conclude(&record, &trials).unwrap().conditions;
        conditions.into_iter().filter(|words| words.starts_with("placement was still changing")).collect::<Vec<_>>()
    };
    let told = said([80.0, 20.0]);
    assert!(
        matches!(&told[..], [one] if one.contains("of cache-aware ended (migrations between LLCs: 80 in the first quarter, 20")),
        "{told:?}"
    );
    assert_eq!(said([2.0, 60.0]).len(), 1, "it began late");
    // Nobody moves any more; counts that chance explains; a rate that is another but not by much.
    for settled in [[80.0, 0.0], [4.0, 1.0], [1000.0, 800.0]] {
        assert_eq!(said(settled), Vec::<String>::new(), "{settled:?}");
    }
}

#[test]
fn quarters_are_those_of_what_is_measured_from_a_late_start_signal_on() {
    let said = |own_ns: f64, of_own: Option<[u64; 2]>| {
        let quarters = [("cross_llc_first_quarter", Some(0.0)), ("cross_llc_last_quarter", Some(90.0))];
        let measures = [("hackbench_time_ns", Some(own_ns)), quarters[0], quarters[1]];
        let side = |label: &str| -> Vec<Trial> {
            let of = |number| trial(label, number, &measures);
            (0..10).map(|number| Trial { elapsed_ns: 1_000_000, cross_llc_quarters: of_own, ..of(number) }).collect()
        };
        let record =
            ExperimentRecord { metric: Some("hackbench_time_ns".into()), ..record(&["eevdf", "cache-aware"], 10) };
        let conditions = conclude(&record, &[side("eevdf"), side("cache-aware")]).unwrap().conditions;
        conditions.iter().filter(|words| words.starts_with("placement was still changing")).count()
    };
    assert_eq!((said(990e3, None), said(394e3, None)), (2, 0), "the whole run's say nothing of its later part");
    assert_eq!((said(394e3, Some([0, 90])), said(394e3, Some([80, 90]))), (2, 0));
}

/// Response times of 34.26 and 34.32 us lie on either side of an edge of a bucket of 512 ns: what is shown is 34.303 and 34.815 us, 1.5 % apart.
#[test]
fn one_bucket_more_is_no_difference_of_a_percentile() {
    let found = |metric: &str, own: f64| {
        let side = |label: &str, value: f64| -> Vec<Trial> {
            (0..10).map(|number| trial(label, number, &[(metric, Some(value)), ("responses", Some(1e3))])).collect()
        };
        let record = ExperimentRecord { metric: Some(metric.into()), ..record(&["eevdf", "cfs"], 10) };
        let document = conclude(&record, &[side("eevdf", 34_303.0), side("cfs", own)]).unwrap();
        (document.schedulers[1].measures[metric].finding.unwrap(), document.verdict.sentence)
    };
    let (finding, sentence) = found("response_p99_ns", 34_815.0);
    assert_eq!(finding, Finding::Unclear);
    let begins = "It is unclear whether cfs and eevdf differ in response p99 by more than the margin of 1 % (95 % interval 1.015 to 1.015): \
                  percentiles are edges of buckets up to 1.6 % wide;";
    assert!(sentence.starts_with(begins), "{sentence}");
    assert_eq!(found("response_p99_ns", 35_327.0).0, Finding::Worse, "two buckets, 3 %");
    assert_eq!(found("response_mean_ns", 34_815.0).0, Finding::Worse, "means are exact");
}

/// Conditions of a comparison of `cache-aware`, whose trials are these, with `eevdf`.
fn conditions_of(own: Vec<Trial>) -> Vec<String> {
    let base = (0..own.len()).map(|number| trial("eevdf", number, &[("elapsed_ns", Some(1e6))])).collect();
    conclude(&record(&["eevdf", "cache-aware"], own.len()), &[base, own]).unwrap().conditions
}

#[test]
fn a_process_that_was_refused_in_half_of_the_trials_is_told_with_the_reason() {
    let said = |refusing: usize| {
        let of = |number: usize| {
            let reasons = [("footprint exceeds the LLC".to_owned(), if number < refusing { 7 } else { 0 })];
            let decisions = [("aggregation refused".to_owned(), reasons.into_iter().collect())].into_iter().collect();
            Trial { decisions, ..trial("cache-aware", number, &[("elapsed_ns", Some(1e6))]) }
        };
        let conditions = conditions_of((0..10).map(of).collect());
        conditions.into_iter().find(|words| words.contains("refused to gather a process"))
    };
    let expected = "cache-aware refused to gather a process in 5 of 10 trials, at scans (up to 7 in a trial): its footprint is larger than \
                    aggr_tolerance allows for the size of an LLC (docs/models/cache-aware.md)";
    assert_eq!((said(5).as_deref(), said(4)), (Some(expected), None));
}

#[test]
fn threads_that_ran_outside_of_the_llc_of_their_process_are_told_with_whether_more_still_came() {
    let row = |outside_ns: u64, pulled_late: u64| GatheringRow {
        threads: 4,
        inside_ns: 100 - outside_ns,
        outside_ns,
        pulled: 3,
        pulled_late,
    };
    let said = |row: GatheringRow| {
        let of = |number| Trial { gathering: Some(row), ..trial("cache-aware", number, &[("elapsed_ns", Some(1e6))]) };
        let conditions = conditions_of((0..10).map(of).collect());
        conditions.into_iter().find(|words| words.contains("outside of the LLC that their process preferred"))
    };
    let expected = "in 10 of 10 trials of cache-aware threads ran 40 % of their time outside of the LLC that their process preferred: in the \
                    last quarter none was pulled there (docs/models/cache-aware.md)";
    assert_eq!(said(row(40, 0)).as_deref(), Some(expected));
    assert!(said(row(40, 2)).is_some_and(|told| told.contains("a longer run may say something else")));
    assert_eq!(said(row(20, 0)), None, "most of the time they were there");
    assert_eq!(said(GatheringRow { pulled: 9, ..row(40, 2) }), None, "they come and go");
}

#[test]
fn threads_that_wakeups_bring_together_are_not_left_apart() {
    let said = |outside_ns: u64| {
        let of = |number| {
            let reasons = [("each runs alone in its LLC, from which no other CPU pulls".to_owned(), 5)];
            let decisions = [("threads left apart".to_owned(), reasons.into_iter().collect())].into_iter().collect();
            let row = GatheringRow { threads: 2, inside_ns: 100 - outside_ns, outside_ns, pulled: 0, pulled_late: 0 };
            Trial { decisions, gathering: Some(row), ..trial("cache-aware", number, &[("elapsed_ns", Some(1e6))]) }
        };
        let conditions = conditions_of((0..10).map(of).collect());
        conditions.iter().any(|words| words.contains("no thread could be pulled there"))
    };
    assert!(said(80) && !said(0));
}

#[test]
fn schedulers_as_good_as_the_best_are_named_beside_it() {
    let document = document(&[("cfs", 1.0), ("eevdf", 0.8), ("ule", 0.805)], 10);
    let expected = "eevdf is best, with ule as good within the margin of 1 %: elapsed time 0.8";
    assert!(document.verdict.sentence.starts_with(expected), "{}", document.verdict.sentence);
}

#[test]
fn few_trials_give_points_and_a_warning_but_no_verdict() {
    let document = document(&[("cfs", 1.0), ("eevdf", 0.5)], 3);
    assert_eq!(document.verdict.best, None);
    assert!(document.verdict.sentence.starts_with("3 trials are too few to judge eevdf"));
    assert!(document.warnings.iter().any(|warning| warning.contains("3 trials give no intervals")));
    assert_eq!(document.schedulers[1].measures["elapsed_ns"].points.len(), 3);
}

/// By hand: the smallest p of eight pairs is 2 / 2^8, eight times that is above 0.05; of nine pairs it is half of it.
#[test]
fn trials_that_cannot_show_anything_in_a_table_of_this_size_are_named_with_how_many_can() {
    let names: Vec<String> = (0..9).map(|number| format!("s{number}")).collect();
    let factors: Vec<(&str, f64)> =
        names.iter().map(|name| (name.as_str(), if name == "s0" { 1.0 } else { 0.5 })).collect();
    let of = |trials| document(&factors, trials);
    let said = |document: &ComparisonDocument| {
        document.warnings.iter().any(|warning| {
            warning == "8 trials cannot show a difference from the baseline for any of 8, however clear it is: use at least 9"
        })
    };
    let (eight, nine) = (of(8), of(9));
    assert!(said(&eight) && !said(&nine));
    let found = |document: &ComparisonDocument| document.schedulers[1].measures["elapsed_ns"].finding;
    assert_eq!((found(&eight), found(&nine)), (Some(Finding::TooFewTrials), Some(Finding::Better)));
    assert!(!said(&document(&[("cfs", 1.0), ("eevdf", 0.5)], 8)), "one comparison needs eight");
}

#[test]
fn runs_that_do_not_end_are_not_identical_in_the_time_of_their_end() {
    let mut trials: Vec<Vec<Trial>> = ["cfs", "eevdf"]
        .iter()
        .map(|name| (0..10).map(|number| trial(name, number, &[("elapsed_ns", None)])).collect())
        .collect();
    trials.iter_mut().flatten().for_each(|trial| trial.end = TrialEnd::TimeLimit);
    let document = conclude(&record(&["cfs", "eevdf"], 10), &trials).unwrap();
    assert_eq!(document.schedulers[1].measures["elapsed_ns"].finding, Some(Finding::NotMeasurable));
    let sentence = &document.verdict.sentence;
    assert!(sentence.contains("under neither did that end come in all trials"), "{sentence}");
}

/// More trials would not help.
#[test]
fn a_column_without_any_value_is_not_said_to_have_too_few_trials() {
    let of = |name: &str, energy: &[(&str, Option<f64>)]| -> Vec<Trial> {
        (0..10).map(|number| trial(name, number, energy)).collect()
    };
    let record = ExperimentRecord { metric: Some("energy_j".into()), ..record(&["cfs", "eevdf"], 10) };
    let with = |name: &str| of(name, &[("energy_j", Some(2.0))]);
    let without = |name: &str| of(name, &[]);
    for (trials, lacks) in [([with("cfs"), without("eevdf")], "eevdf"), ([without("cfs"), with("eevdf")], "cfs")] {
        let document = conclude(&record, &trials).unwrap();
        let sentence = &document.verdict.sentence;
        let expected = format!("{lacks} has no value of it, which needs a governor (`eevdf:governor=schedutil`)");
        assert!(sentence.contains(&expected) && !sentence.contains("too few"), "{sentence}");
        assert_eq!(document.schedulers[1].measures["energy_j"].finding, Some(Finding::NotMeasurable));
    }
}

#[test]
fn a_metric_that_no_column_has_is_replaced_with_what_it_needs() {
    let side = |name: &str| -> Vec<Trial> {
        (0..10).map(|number| trial(name, number, &[("elapsed_ns", Some(1e6))])).collect()
    };
    let record = ExperimentRecord { metric: Some("energy_j".into()), ..record(&["cfs", "eevdf"], 10) };
    let sentence = conclude(&record, &[side("cfs"), side("eevdf")]).unwrap().verdict.sentence;
    let expected = "energy of the cores is not measurable here: no trial has a value of it, which needs a governor \
                    (`eevdf:governor=schedutil`), so the verdict is about elapsed time";
    assert!(sentence.starts_with(expected), "{sentence}");
}

/// Of a workload that goes on, the time of a part that ended is over.
#[test]
fn only_times_without_an_end_count_as_infinite_at_the_largest_time() {
    let jobs =
        Measure { until_end: true, ..Measure::of_outcome("jobs", "jobs", measures::Unit::Ns, Better::Lower, "") };
    let cut = |ended: [bool; 2]| {
        let of = |ended: bool| Trial { end: TrialEnd::TimeLimit, ..trial("s", 0, &[("jobs", ended.then_some(5e6))]) };
        what_counts(&jobs, &ended.map(of))
    };
    assert_eq!(cut([true, true]), "their time had ended before");
    assert_eq!(cut([false, false]), "their time counts as infinite");
    assert_eq!(cut([true, false]), "the time of 1 of them counts as infinite; the time of the others had ended before");
    let work = Measure { until_end: false, ..jobs.clone() };
    assert_eq!(
        what_counts(&work, &[Trial { end: TrialEnd::TimeLimit, ..trial("s", 0, &[]) }]),
        "what they did until then counts"
    );
}

#[test]
fn one_trial_is_one() {
    let document = document(&[("cfs", 1.0), ("eevdf", 0.5)], 1);
    let sentence = &document.verdict.sentence;
    assert!(sentence.starts_with("1 trial is too few to judge eevdf"), "{sentence}");
}

#[test]
fn a_run_that_was_cut_off_counts_as_infinitely_long() {
    let mut trials: Vec<Vec<Trial>> = ["cfs", "eevdf"]
        .iter()
        .map(|name| (0..10).map(|number| trial(name, number, &[("elapsed_ns", Some(5e6))])).collect())
        .collect();
    for trial in &mut trials[1] {
        trial.end = TrialEnd::TimeLimit;
        trial.measures.insert("elapsed_ns".into(), None);
    }
    let document = conclude(&record(&["cfs", "eevdf"], 10), &trials).unwrap();
    assert_eq!(document.verdict.best.as_deref(), Some("cfs"));
    assert_eq!(document.schedulers[1].unfinished, 10);
    assert!(document.verdict.sentence.contains("has no ratio to that of cfs"), "{}", document.verdict.sentence);
    assert!(!document.verdict.sentence.contains("inf") && decimal(f64::INFINITY) == "-" && decimal(f64::NAN) == "-");
    let json = serde_json::to_value(&document).unwrap();
    assert_eq!(json["schedulers"][1]["measures"]["elapsed_ns"]["points"][0], "infinity");
}

#[test]
fn an_unknown_metric_is_refused_with_those_there_are() {
    let message = check_metric(Some("elapsed"), TraceLevel::Counters, &workload()).unwrap_err().to_string();
    assert!(message.contains("`elapsed`") && message.contains("elapsed_ns"), "{message}");
    let message = check_metric(Some("p99"), TraceLevel::Counters, &workload()).unwrap_err().to_string();
    let names: Vec<&str> = message.split("among them ").nth(1).unwrap().split(", ").collect();
    assert!(names.contains(&"wakeup_p99_ns") && names.iter().all(|name| name.contains("p99")), "{message}");
    assert!(names.is_sorted() && names.len() <= NAMES_SHOWN, "{message}");
}

#[test]
fn a_metric_of_events_needs_events() {
    let check = |trace| check_metric(Some("wakeup_p99_ns"), trace, &workload());
    check(TraceLevel::Counters).unwrap();
    assert!(matches!(check(TraceLevel::None), Err(VerdictError::NotRecorded { .. })));
}

/// Trials whose seeds spread them over a factor of 90, the candidate's 3 % below: pairs show it, unrelated trials cannot.
#[test]
fn the_records_design_decides_statistics_and_words() {
    let trials: Vec<Vec<Trial>> = [("cfs", 1.0), ("eevdf", 0.97)]
        .iter()
        .map(|(name, factor)| {
            let elapsed = |number: usize| factor * 1e6 * (number as f64 / 2.0).exp();
            (0..10).map(|number| trial(name, number, &[("elapsed_ns", Some(elapsed(number)))])).collect()
        })
        .collect();
    let of = |design| {
        let record = ExperimentRecord { design, ..record(&["cfs", "eevdf"], 10) };
        conclude(&record, &trials).unwrap()
    };
    let paired = of(Design::Paired);
    assert_eq!(paired.verdict.best.as_deref(), Some("eevdf"));
    assert!(paired.verdict.sentence.contains("10 paired trials"), "{}", paired.verdict.sentence);
    let unpaired = of(Design::Unpaired);
    assert_eq!(unpaired.verdict.best, None);
    assert!(unpaired.verdict.sentence.contains("10 unpaired trials"), "{}", unpaired.verdict.sentence);
    let json = serde_json::to_value(&unpaired).unwrap();
    assert_eq!(json["experiment"]["design"], "unpaired");
    assert_eq!(json["schedulers"][1]["measures"]["elapsed_ns"]["comparison"]["design"], "unpaired");
}

#[test]
fn an_interval_that_does_not_hold_1_does_not_read_as_if_it_did() {
    let ends = |low: f64, high: f64| interval_ends(Interval { low, high }).join(" ");
    assert_eq!(ends(0.742_76, 0.999_85), "0.743 0.9999");
    assert_eq!(ends(1.000_4, 1.2), "1.0004 1.2");
    assert_eq!(ends(0.5, 0.999_996), "0.5 0.999996");
    assert_eq!(ends(0.859, 1.000_4), "0.859 1");
    assert_eq!(ends(0.999_999_7, 0.999_999_8), "1 1", "closer to 1 than a millionth, for any reader it is 1");
    assert_eq!(ends(1.0, 1.0), "1 1");
}
