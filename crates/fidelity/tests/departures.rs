//! What a place does not do as asked is not judged: it is kept with the result, and its lines are not measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use warmcore_fidelity::validate::book::BookExperiment;
use warmcore_fidelity::validate::judge::Agreement;
use warmcore_fidelity::validate::plots::Plots;
use warmcore_fidelity::validate::run;
use warmcore_fidelity::validate::stored::{self, StoredResult};
use warmcore_places::place::BatchConduct;
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

/// The book's experiment, booted twice in a place that does not do what is asked under round robin, in its second boot.
fn booted(directory: &Path) -> (BookExperiment, StoredResult, Vec<String>) {
    let path = directory.join("two.toml");
    std::fs::write(&path, BOOK).unwrap();
    let experiment = BookExperiment::read(&path).unwrap();
    let second = warmcore_lab::experiment::trial_seeds(1, 2)[1];
    let departs = Answer {
        scheduler: Some("rr".into()),
        seed: Some(second),
        departures: vec![DEPARTURE.into()],
        ..Answer::default()
    };
    let script =
        Script { design: Design::Unpaired, refused: Vec::new(), interrupted_after: None, answers: vec![departs] };
    let said = Mutex::new(Vec::new());
    let note = |text: &str| said.lock().unwrap().push(text.to_owned());
    let place = Scripted::new(script);
    let stop = Arc::new(AtomicBool::new(false));
    let mut results = run::boot_all(&place, &[&experiment], 2, &mut Plots::default(), &stop, &note).unwrap();
    (experiment, results.remove(0), said.into_inner().unwrap())
}

#[test]
fn a_line_whose_experiment_was_not_carried_out_as_asked_is_not_measured() {
    let directory = tempfile::tempdir().unwrap();
    let (experiment, result, _) = booted(directory.path());
    let stop = Arc::new(AtomicBool::new(false));
    let conduct = BatchConduct { jobs: 2, stop };
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
