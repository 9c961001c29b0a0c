//! What a place does not do as asked is not judged: it is kept with the result, and its lines are not measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use warmcore_fidelity::validate::book::BookExperiment;
use warmcore_fidelity::validate::judge::Agreement;
use warmcore_fidelity::validate::plots::Plots;
use warmcore_fidelity::validate::run;
use warmcore_fidelity::validate::stored::{self, StoredResult};
use warmcore_places::place::{BatchConduct, Place};
use warmcore_places::scripted::{Answer, Script, Scripted};
use warmcore_statistics::Design;

const DEPARTURE: &str = "capacity of a channel: 4096 bytes where 192 were asked for";

const BOOK: &str = r#"
    schema = "warmcore-book-1"
    title = "two spinners"
    group = "shares"
    machine = "1s1n1l1c1t"
    workload = "spin:-n2"
    schedulers = ["eevdf", "rr"]
    duration_ms = 50
    [[check]]
    metric = "cpu_share"
    relative = 0.01
"#;

fn read(directory: &Path, name: &str) -> BookExperiment {
    let path = directory.join(format!("{name}.toml"));
    std::fs::write(&path, BOOK).unwrap();
    BookExperiment::read(&path).unwrap()
}

/// Experiments, booted twice in a place that gives an answer of its own under round robin, in its second boot.
fn boot(experiments: &[&BookExperiment], answer: Answer) -> (Vec<StoredResult>, Vec<String>) {
    let second = warmcore_lab::experiment::trial_seeds(1, 2)[1];
    let answer = Answer { scheduler: Some("rr".into()), seed: Some(second), ..answer };
    let script =
        Script { design: Design::Unpaired, refused: Vec::new(), interrupted_after: None, answers: vec![answer] };
    let said = Mutex::new(Vec::new());
    let note = |text: &str| said.lock().unwrap().push(text.to_owned());
    let place: Arc<dyn Place> = Arc::new(Scripted::new(script));
    let results = run::boot_all(&place, experiments, 2, &mut Plots::default(), &Arc::default(), &note).unwrap();
    (results, said.into_inner().unwrap())
}

/// The book's experiment in a place that does not do what is asked.
fn booted(directory: &Path) -> (BookExperiment, StoredResult, Vec<String>) {
    let experiment = read(directory, "two");
    let departs = Answer { departures: vec![DEPARTURE.into()], ..Answer::default() };
    let (mut results, said) = boot(&[&experiment], departs);
    (experiment, results.remove(0), said)
}

#[test]
fn a_boot_that_fails_gives_no_experiment_a_run_and_the_others_count() {
    let directory = tempfile::tempdir().unwrap();
    let experiments = ["one", "other"].map(|name| read(directory.path(), name));
    let fails = Answer { failure: Some("the guest is gone".into()), ..Answer::default() };
    let (results, said) = boot(&experiments.each_ref(), fails);
    for result in results {
        let runs: Vec<Vec<&str>> =
            result.boots.iter().map(|boot| boot.iter().map(|run| run.scheduler.as_str()).collect()).collect();
        assert_eq!((runs, result.failed), (vec![vec!["eevdf", "rr"]], vec!["the guest is gone".to_owned()]));
    }
    assert!(said.contains(&"1s1n1l1c1t: boot 2 of 2, 4 runs".to_owned()), "{said:?}");
}

#[test]
fn a_line_whose_experiment_was_not_carried_out_as_asked_is_not_measured() {
    let directory = tempfile::tempdir().unwrap();
    let (experiment, result, _) = booted(directory.path());
    let conduct = BatchConduct { jobs: 2, stop: Arc::default() };
    let chapter = run::compare(&experiment, Some(&result), &mut Plots::default(), &conduct).unwrap();
    let said: Vec<_> =
        chapter.lines.iter().map(|line| (line.judgement.verdict, line.judgement.reason.as_str())).collect();
    // The script has no events at all: where it did as asked, that is the reason.
    let reason = format!("not done as asked: {DEPARTURE}");
    assert_eq!(said, [(Agreement::NotMeasured, "only 0 events"), (Agreement::NotMeasured, reason.as_str())]);
}

#[test]
fn what_was_not_done_is_said_at_once_and_stored_with_the_result() {
    let directory = tempfile::tempdir().unwrap();
    let (experiment, result, said) = booted(directory.path());
    assert!(said.iter().any(|line| line.contains("two: boot 2 under rr") && line.contains(DEPARTURE)), "{said:?}");
    stored::write(directory.path(), "two", &result).unwrap();
    let stored = stored::read(directory.path(), &experiment).unwrap().unwrap();
    let departures: Vec<usize> = stored.boots.iter().flatten().map(|run| run.departures.len()).collect();
    assert_eq!((departures, &stored), (vec![0, 0, 0, 1], &result));
}
