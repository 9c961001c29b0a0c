//! Tunings with known answers, and what is wrong with a file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::document::{Answer, TuningDocument};
use super::form::{Cell, Range, TuneError, Tuning};
use super::search::{Means, Sampler, Values, search};
use crate::run;
use warmcore_lab::environment::Environment;
use warmcore_schedulers::SchedulerSpec;

/// Two tasks that compute, and one that wakes to do little and queues behind both.
const QUEUE: &str = r#"
schema = "warmcore-tuning-form-1"
title = "Shorter turns, shorter waits"
machines = ["1s1n1l1c1t"]
workloads = ["periodic:-n1,-r100us,-s20ms,-d1s+spin:-n2,-d1s"]
scheduler = "rr"
metric = "wakeup_mean_ns"
budget = 5
at_once = 2

[[knob]]
name = "quantum_ns"
from = 1000000
to = 100000000
log = true

[confirm]
trials = 8
workloads = ["periodic:-n1,-r100us,-s20ms,-d1s+spin:-n3,-d1s"]
"#;

fn parse(text: &str) -> Result<Tuning, TuneError> {
    Tuning::parse(Path::new("it.toml"), text)
}

/// Every value of a list in turn.
struct ListedSampler(Vec<Values>, Vec<f64>);

impl Sampler<TuneError> for ListedSampler {
    fn ask(&mut self, count: u32) -> Result<Vec<Values>, TuneError> {
        let count = self.0.len().min(count as usize);
        Ok(self.0.drain(..count).collect())
    }

    fn tell(&mut self, values: &[f64]) -> Result<(), TuneError> {
        self.1.extend(values);
        Ok(())
    }
}

fn tuned(tuning: &Tuning, values: &[&str]) -> (TuningDocument, Vec<f64>) {
    let (document, told) = tried(tuning, values);
    (document.unwrap(), told)
}

/// What came of it, or why nothing did, and what the sampler was told.
fn tried(tuning: &Tuning, values: &[&str]) -> (Result<TuningDocument, TuneError>, Vec<f64>) {
    let mut sampler = ListedSampler(values.iter().map(|value| vec![(*value).to_owned()]).collect(), Vec::new());
    let environment = Environment::at_start(Vec::new(), 1, 0);
    let means = run::Means {
        jobs: 2,
        stop: Arc::default(),
        progress: &|_| {},
        out: None,
        environment: &environment,
        unix_seconds: || 0,
        note: &|_| {},
    };
    let mut run = |experiments: &[crate::plan::PlannedExperiment]| {
        Ok(run::each(experiments, &means, &mut |done| Ok::<_, run::StudyError>(done.finished.trials)).unwrap())
    };
    let inputs = |_: &[SchedulerSpec], _: &Cell| Ok::<_, TuneError>(BTreeMap::new());
    let mut means = Means { inputs: &inputs, run: &mut run, progress: &mut |_, _| {}, sampler: "a list".to_owned() };
    let document = search(tuning, &mut sampler, &mut means);
    (document, sampler.1)
}

#[test]
fn a_setting_that_cannot_matter_beats_nothing() {
    // One task on one CPU: no other task wants its time.
    let text = QUEUE.replace("periodic:-n1,-r100us,-s20ms,-d1s+spin:-n2,-d1s", "spin:-n1,-d20ms");
    let text = text.replace("wakeup_mean_ns", "elapsed_ns").replace("budget = 5", "budget = 3");
    let (document, told) = tuned(&parse(&text).unwrap(), &["1000000", "5000000", "90000000"]);
    assert_eq!((document.answer, document.scheduler.as_deref()), (Answer::NothingFound, None));
    let words = "Nothing beats the default, rr: none of 3 candidates is better in the geometric mean of all cells.";
    assert_eq!(document.words, words);
    assert_eq!(told, [1.0, 1.0, 1.0]);
}

#[test]
fn the_best_turn_is_the_shortest_where_a_wakeup_queues_behind_two() {
    // A wakeup waits for what is left of one turn and for one more: between one and two turns, in proportion to them. The default is 10 ms.
    let tuning = parse(QUEUE).unwrap();
    let (document, told) = tuned(&tuning, &["20000000", "5000000", "1000000", "2000000", "15000000"]);
    assert_eq!((document.answer, document.scheduler.as_deref()), (Answer::Better, Some("rr:quantum_ns=1000000")));
    for (value, expected) in told.iter().zip([2.0, 0.5, 0.1, 0.2, 1.5]) {
        assert!((value / expected).ln().abs() < 0.4, "{told:?}");
    }
    let dropped: Vec<bool> = document.candidates.iter().map(|one| one.dropped).collect();
    assert_eq!(dropped, [true, false, false, false, true], "{told:?}");
    let [searched, held_out] =
        [&document.searched, &document.held_out].map(|of| of.as_ref().unwrap().interval.unwrap());
    assert!(searched.high < 0.2 && held_out.high < 0.2, "{searched:?} {held_out:?}");
    let without = document.knobs[0].without.as_ref().unwrap();
    assert!(without.interval.unwrap().low > 5.0, "the only knob has done all: {without:?}");
    assert_eq!(document.cells.iter().map(|cell| cell.held_out).collect::<Vec<_>>(), [false, true]);
}

/// In turns of 10 s two of three tasks on one CPU never run again within 1 s, and the few wakeups that end wait for 50 us. By default, with
/// turns of 100 ms, they wait for 117 ms.
#[test]
fn who_leaves_tasks_waiting_for_ever_is_as_bad_as_can_be() {
    let text = QUEUE.replace("scheduler = \"rr\"", "scheduler = \"fifo\"").replace("quantum_ns", "slice_ns");
    let text = text.replace("to = 100000000", "to = 10000000000");
    let (document, told) = tuned(&parse(&text).unwrap(), &["10000000000"]);
    assert_eq!(told, [f64::INFINITY]);
    assert_eq!((document.answer, document.scheduler.as_deref()), (Answer::NothingFound, None), "{}", document.words);
    assert_eq!((document.candidates[0].value, document.candidates[0].dropped), (None, true));
}

#[test]
fn a_percentile_of_few_events_under_the_default_is_refused_with_the_mean_s_name() {
    // A task that sleeps for 20 ms wakes fewer than 50 times a second.
    let tuning = parse(&QUEUE.replace("wakeup_mean_ns", "wakeup_p99_ns")).unwrap();
    let (document, told) = tried(&tuning, &["1000000"]);
    let error = document.unwrap_err();
    assert!(matches!(error, TuneError::FewEvents { needed: 100.0, .. }), "{error}");
    // What confirms is asked first.
    let words = "periodic:-n1,-r100us,-s20ms,-d1s+spin:-n3,-d1s on 1s1n1l1c1t: wakeup_p99_ns is a percentile of ";
    assert!(error.to_string().starts_with(words) && error.to_string().ends_with("fewer than 100"), "{error}");
    assert!(error.advice().unwrap().contains("`wakeup_mean_ns`"));
    assert!(told.is_empty());
}

#[test]
fn what_is_held_out_has_a_value_before_anything_is_searched() {
    // Four tasks wake hundreds of times in 2 s, and one that sleeps for 20 ms a few times in 60 ms.
    let text = QUEUE.replace("wakeup_mean_ns", "wakeup_p90_ns");
    let text =
        text.replace("periodic:-n1,-r100us,-s20ms,-d1s+spin:-n2,-d1s", "periodic:-n4,-r100us,-s2ms,-d2s+spin:-n2,-d2s");
    let text = text.replace("-s20ms,-d1s+spin:-n3,-d1s", "-s20ms,-d60ms+spin:-n3,-d60ms");
    let (document, told) = tried(&parse(&text).unwrap(), &["1000000"]);
    let error = document.unwrap_err();
    assert!(matches!(&error, TuneError::FewEvents { cell, .. } if cell.contains("-d60ms")), "{error}");
    assert!(told.is_empty());
}

#[test]
fn what_is_better_in_the_search_by_chance_is_not_confirmed() {
    // The time that one task computes depends on where its wakeups fall, and not on its turns: seeds differ, settings do not.
    let text =
        QUEUE.replace("+spin:-n2,-d1s", "").replace("-d1s+spin:-n3,-d1s", "-d2s").replace("budget = 5", "budget = 3");
    let (document, _) = tuned(&parse(&text).unwrap(), &["1000000", "2000000", "50000000"]);
    assert!(matches!(document.answer, Answer::NothingFound | Answer::NotConfirmed), "{}", document.words);
    assert!(document.words.starts_with("Nothing beats the default, rr"), "{}", document.words);
}

#[test]
fn a_placeholder_takes_words_into_the_scheduler_s_text() {
    let text =
        QUEUE.replace("scheduler = \"rr\"", "scheduler = \"rr@cpus={where}\"").replace("1s1n1l1c1t", "1s1n1l2c1t");
    let text = format!("{text}\n[[knob]]\nname = \"where\"\nvalues = [\"0\", \"0-1\"]\ndefault = \"0\"\n");
    let tuning = parse(&text).unwrap();
    assert_eq!(tuning.knobs[1].range, Range::Words(vec!["0".into(), "0-1".into()]));
    assert_eq!(tuning.default().unwrap().to_string(), "rr @ cpus=0");
    let all = tuning.candidate(&[Some("2000000".into()), Some("0-1".into())]).unwrap();
    assert_eq!(all.to_string(), "rr:quantum_ns=2000000 @ cpus=0-1");
    let outside = tuning.candidate(&[Some("7".into()), None]).unwrap_err().to_string();
    assert_eq!(outside, "the sampler proposes `7` for `quantum_ns`: it is a whole number from 1000000 to 100000000");
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_the_nearest_right_thing() {
    for (from, to, words) in [
        ("name = \"quantum_ns\"", "name = \"quantun_ns\"", "has no tunable `quantun_ns`; did you mean `quantum_ns`?"),
        ("from = 1000000", "from = 100000000", "knob `quantum_ns`: the range from 100000000 to 100000000 is empty"),
        ("from = 1000000", "from = 1", "`1` is not a value for `quantum_ns`: it takes 10000 to"),
        ("from = 1000000", "from = 0", "a range by factors begins above 0"),
        ("from = 1000000\nto = 100000000\nlog = true", "values = [1000000]", "1 values leave no choice"),
        ("from = 1000000\nto = 100000000\nlog = true", "values = [7, 9, 7]", "the value 7 is there twice"),
        ("[\"1s1n1l1c1t\"]", "[\"1s1n1l1c1t\", \"1s1n1l1c1t\"]", "is there twice; each cell counts once"),
        ("spin:-n3,-d1s", "spin:-n2,-d1s", "is there twice; the search must not see what confirms it"),
        ("to = 100000000", "default = 3", "it has `from` and `to`, or `values`"),
        ("budget = 5", "budget = 0", "`budget` is 0; it is a number from 1 to 10000"),
        ("trials = 8", "trials = 7", "`confirm.trials` is 7; it is a number from 8 to 10000"),
        ("tuning-form-1", "tuning-form-9", "its schema is `warmcore-tuning-form-9`"),
        ("wakeup_mean_ns", "wakeup_mean", "wakeup_mean_ns"),
        ("scheduler = \"rr\"", "scheduler = \"rrr\"", "rrr"),
        (
            "scheduler = \"rr\"",
            "scheduler = \"rr@cpus={whre}\"",
            "`rr@cpus={whre}` has `{whre}`, and no knob is called so",
        ),
        ("machines = [\"1s1n1l1c1t\"]", "machines = []", "have at least one entry each"),
        ("budget = 5", "budgets = 5", "unknown field `budgets`"),
        ("wakeup_mean_ns", "slices", "line 7: neither less nor more of `slices` is better"),
    ] {
        assert!(QUEUE.contains(from), "{from}");
        let error = parse(&QUEUE.replace(from, to)).unwrap_err();
        assert!(error.to_string().contains(words), "{to}: {error}");
        assert!(error.to_string().starts_with("it.toml: "), "{error}");
    }
}
