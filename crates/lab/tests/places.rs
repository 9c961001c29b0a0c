//! What stands above places, with a place that answers from a table: order, going on with a run, failures, interruption, faulty
//! directories, and what a run says of itself.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::builder::BuildError;
use warmcore_lab::directory::{Existing, RunDirectory};
use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::runner::{self, Conduct, Finished, RunError};
use warmcore_lab::trial::Trial;
use warmcore_lab::{session, verdict};
use warmcore_places::place::{BatchConduct, Place, Trouble};
use warmcore_places::scripted::{Answer, Script, Scripted};
use warmcore_places::sim::Sim;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::Design;
use warmcore_workload::{Action, Deed};

const SEEDS: [u64; 3] = [10, 20, 30];

fn script(answers: Vec<Answer>) -> Script {
    Script { design: Design::Unpaired, refused: Vec::new(), interrupted_after: None, answers }
}

/// The answer to a scheduler and a seed.
fn to(scheduler: &str, seed: u64) -> Answer {
    Answer { scheduler: Some(scheduler.into()), seed: Some(seed), elapsed_ns: 1000 + seed, ..Answer::default() }
}

fn build(place: Arc<dyn Place>) -> Result<Experiment, BuildError> {
    let machine = Named { source: "m".into(), value: warmcore_topology::resolve("1s1n1l2c1t").unwrap() };
    let workload = warmcore_workload::from_generator("hackbench:-T,-p,-f2,-g1,-l1").unwrap();
    let schedulers = ["cfs", "eevdf"].map(|name| SchedulerSpec::parse(name).unwrap()).to_vec();
    let builder = Experiment::builder(machine, Named { source: "w".into(), value: workload });
    let builder = builder.place(place).schedulers(schedulers).seeds(SEEDS.to_vec());
    Ok(builder.metric(Some("elapsed_ns".into())).build()?.experiment)
}

fn experiment(script: Script) -> (Experiment, Arc<Scripted>) {
    let place = Arc::new(Scripted::new(script));
    (build(Arc::clone(&place) as Arc<dyn Place>).unwrap(), place)
}

fn run(experiment: &Experiment, directory: Option<&RunDirectory>) -> Result<Finished, RunError> {
    let conduct = Conduct { jobs: 2, stop: Arc::new(AtomicBool::new(false)), progress: &|_| {} };
    runner::run(experiment, directory, &conduct)
}

fn directory(parent: &Path, experiment: &Experiment) -> RunDirectory {
    let directory = RunDirectory::create(&parent.join("run"), Existing::Refuse).unwrap();
    session::begin(&directory, experiment).unwrap();
    directory
}

fn runs(place: &Scripted) -> Vec<String> {
    place.asked().iter().map(|(scheduler, seed, _)| format!("{scheduler} {seed}")).collect()
}

#[test]
fn runs_are_asked_for_trial_by_trial_and_results_are_in_order_whatever_comes_first() {
    let (experiment, place) = experiment(script(vec![
        Answer { turn: 2, ..to("cfs", 10) },
        Answer { turn: 1, ..to("cfs", 30) },
        Answer { turn: 0, ..Answer::default() },
    ]));
    let finished = run(&experiment, None).unwrap();
    assert_eq!(runs(&place), ["eevdf 10", "cfs 20", "eevdf 20", "eevdf 30", "cfs 30", "cfs 10"]);
    let seeds = |trials: &Vec<Trial>| trials.iter().map(|trial| trial.seed).collect::<Vec<_>>();
    assert_eq!(finished.trials.iter().map(seeds).collect::<Vec<_>>(), [SEEDS, SEEDS]);
    assert_eq!(finished.trials[0][2].elapsed_ns, 1030);
    assert_eq!(finished.run_now, 6);
}

#[test]
fn runs_of_one_number_share_a_boot_with_other_experiments_and_what_fails_leaves_these_alone() {
    let failure = Some("the boot failed".into());
    let (both, place) = experiment(script(vec![Answer { failure, ..to("eevdf", 20) }]));
    let mut lone = both.clone();
    lone.schedulers.truncate(1);
    let conduct = BatchConduct { jobs: 1, stop: Arc::default() };
    let made = runner::run_together(&[&both, &lone], &conduct, &|index, run| {
        run.send(None).map(|report| (index, report.outcome.elapsed_ns))
    });
    let made = made.unwrap();
    assert_eq!(made[0].as_ref().unwrap_err().to_string(), "the boot failed");
    assert_eq!(made[1], Ok(vec![(1, 0); 3]));
    let boots: Vec<Option<u32>> = place.asked().iter().map(|(.., shared)| *shared).collect();
    assert_eq!(boots, [0, 0, 1, 1, 2, 2, 0, 1, 2].map(Some));
    let _ = run(&lone, None).unwrap();
    assert!(place.asked()[9..].iter().all(|(.., shared)| shared.is_none()), "trials share none");
}

#[test]
fn what_is_done_from_outside_makes_another_experiment_which_no_file_holds() {
    let (without, _) = experiment(script(Vec::new()));
    let action = Action { time_ns: 1, what: Deed::Set { tunable: "base_slice_ns".into(), value: 1 } };
    let with = Experiment { actions: vec![action], ..without.clone() };
    assert_ne!(with.record(), without.record());
    assert!(session::texts(&without).is_ok());
    let refused = session::texts(&with).unwrap_err().to_string();
    assert!(refused.contains("experiment.toml") && refused.contains("base_slice_ns"), "{refused}");
}

#[test]
fn a_run_that_goes_on_makes_what_is_missing_and_nothing_else() {
    let parent = tempfile::tempdir().unwrap();
    let (experiment, _) = experiment(script(Vec::new()));
    let directory = directory(parent.path(), &experiment);
    run(&experiment, Some(&directory)).unwrap();
    for name in ["trials/s1-t0001.json", "trials/s0-t0002.json"] {
        fs::remove_file(directory.path().join(name)).unwrap();
    }

    // As another process finds it: the place is made of what the directory says.
    let again = session::experiment_of(&directory).unwrap();
    assert_eq!(again.record(), experiment.record());
    let place = Arc::new(Scripted::new(script(Vec::new())));
    let again = Experiment { place: Arc::clone(&place) as Arc<dyn Place>, ..again };
    let finished = run(&again, Some(&directory)).unwrap();
    assert_eq!(runs(&place), ["eevdf 20", "cfs 30"]);
    assert_eq!(finished.run_now, 2);
    assert_eq!(run(&again, Some(&directory)).unwrap().run_now, 0);
    assert_eq!(place.asked().len(), 2, "nothing is asked of a place when nothing is missing");
}

/// Also where nobody opened the directory again for it.
#[test]
fn a_run_takes_over_no_trial_that_is_not_as_it_was_written() {
    let parent = tempfile::tempdir().unwrap();
    let (experiment, place) = experiment(script(Vec::new()));
    let directory = directory(parent.path(), &experiment);
    run(&experiment, Some(&directory)).unwrap();
    let file = directory.path().join("trials/s0-t0002.json");
    fs::write(&file, "half a fi").unwrap();
    let error = run(&experiment, Some(&directory)).err().unwrap();
    assert!(matches!(error, RunError::Directory(_)) && error.to_string().contains("s0-t0002.json"), "{error}");
    assert_eq!(place.asked().len(), 6, "no run is made after that");
}

/// Results of a sched_ext program depend on what is in it. A run whose program is gone can be read; it does not go on with another.
#[test]
fn a_run_of_a_program_goes_on_only_with_that_program() {
    let parent = tempfile::tempdir().unwrap();
    let program = parent.path().join("scx_own");
    fs::write(&program, "one").unwrap();
    let (table, _) = experiment(script(Vec::new()));
    let own = SchedulerSpec::parse(&format!("scx:{}", program.display())).unwrap();
    let experiment = Experiment { place: Arc::new(Sim), schedulers: vec![table.schedulers[0].clone(), own], ..table };
    let before = experiment.record();
    assert!(before.schedulers[0].program_sha256.is_none() && before.schedulers[1].program_sha256.is_some());
    let directory = directory(parent.path(), &experiment);
    session::reopen(&directory, &experiment).unwrap();

    fs::write(&program, "another").unwrap();
    let changed = experiment.record();
    assert_ne!(changed.trial_hash(1, 10), before.trial_hash(1, 10));
    assert_eq!(changed.trial_hash(0, 10), before.trial_hash(0, 10));
    let refused = || {
        let read = session::experiment_of(&directory).unwrap();
        session::reopen(&directory, &read).unwrap_err().to_string()
    };
    // By `printf one | sha256sum` and `printf another | sha256sum`.
    let one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    let another = "ae448ac86c4e8e4dec645729708ef41873ae79c6dff84eff73360989487f08e5";
    let error = refused();
    assert!(error.ends_with(&format!("the program was changed (SHA-256 {one} then, {another} now)")), "{error}");
    fs::remove_file(&program).unwrap();
    let read = session::experiment_of(&directory).unwrap();
    assert_eq!(read.record(), before, "what it was is kept");
    let error = refused();
    let gone = format!("is not what the run was started with: it is gone (its SHA-256 was {one})");
    assert!(error.ends_with(&gone), "{error}");
}

/// Another build of the same version may simulate otherwise: its trials and this one's do not go into one table.
#[test]
fn a_run_goes_on_only_with_the_build_that_began_it() {
    let parent = tempfile::tempdir().unwrap();
    let (experiment, _) = experiment(script(Vec::new()));
    let directory = directory(parent.path(), &experiment);
    session::reopen(&directory, &experiment).unwrap();
    let versions = directory.read("versions.json").unwrap();
    let mut document: serde_json::Value = serde_json::from_str(&versions).unwrap();
    for other in [serde_json::json!("00"), serde_json::Value::Null] {
        document["program_sha256"] = other;
        directory.write("versions.json", document.to_string().as_bytes()).unwrap();
        let error = session::reopen(&directory, &experiment).unwrap_err().to_string();
        assert!(error.contains("another build"), "{error}");
    }
}

#[test]
fn a_trial_that_fails_is_named_ends_the_run_and_leaves_what_finished() {
    let parent = tempfile::tempdir().unwrap();
    let failure = Answer { failure: Some("the lights went out".into()), ..to("cfs", 20) };
    let (experiment, place) = experiment(script(vec![failure]));
    let directory = directory(parent.path(), &experiment);
    let error = run(&experiment, Some(&directory)).err().unwrap();
    assert_eq!(error.to_string(), "trial 1 of cfs failed: the lights went out");
    let RunError::Trial { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.advice(), "mend the script");
    assert_eq!(runs(&place), ["cfs 10", "eevdf 10", "cfs 20"]);
    let kept = directory.files().unwrap().into_iter().filter(|name| name.starts_with("trials/")).collect::<Vec<_>>();
    assert_eq!(
        kept,
        ["trials/s0-t0000.json", "trials/s0-t0000.sha256", "trials/s1-t0000.json", "trials/s1-t0000.sha256"]
    );
}

#[test]
fn an_interruption_says_how_far_it_came_and_what_finished_is_kept() {
    let parent = tempfile::tempdir().unwrap();
    let (experiment, place) = experiment(Script { interrupted_after: Some(4), ..script(Vec::new()) });
    let directory = directory(parent.path(), &experiment);
    let error = run(&experiment, Some(&directory)).err().unwrap();
    assert!(matches!(error, RunError::Interrupted { finished: 4, total: 6 }), "{error}");
    // Whole trials of both schedulers, so that what is there can be compared.
    assert_eq!(runs(&place), ["cfs 10", "eevdf 10", "cfs 20", "eevdf 20"]);
}

#[test]
fn a_directory_that_cannot_be_written_ends_the_run_with_its_path() {
    let parent = tempfile::tempdir().unwrap();
    let (experiment, place) = experiment(script(Vec::new()));
    let directory = directory(parent.path(), &experiment);
    // A file in the place of the directory: what a full or broken file system gives, without one.
    fs::remove_dir(directory.path().join("trials")).unwrap();
    fs::write(directory.path().join("trials"), "").unwrap();
    let error = run(&experiment, Some(&directory)).err().unwrap();
    assert!(matches!(error, RunError::File(_)) && error.to_string().contains("trials"), "{error}");
    assert_eq!(place.asked().len(), 1, "no run is begun after that");
}

#[test]
fn what_a_run_says_of_itself_reaches_the_trial_the_verdict_and_the_directory() {
    let parent = tempfile::tempdir().unwrap();
    let answer = Answer {
        events_lost: 7,
        departures: vec!["the pipe is larger".into()],
        notes: vec!["a stranger was there".into()],
        conditions: Some("{ \"weather\": \"fine\" }\n".into()),
        ..to("eevdf", 20)
    };
    let (experiment, _) = experiment(script(vec![answer]));
    let directory = directory(parent.path(), &experiment);
    let trials = run(&experiment, Some(&directory)).unwrap().trials;
    assert_eq!(trials[1][1].notes, ["not done as asked: the pipe is larger", "a stranger was there"]);
    let document = verdict::conclude(&experiment, &experiment.record(), &trials).unwrap();
    for wanted in [
        "7 events of eevdf were not recorded",
        "eevdf: not done as asked: the pipe is larger (1 of 3 trials)",
        "eevdf: a stranger was there (1 of 3 trials)",
    ] {
        assert!(document.warnings.iter().any(|warning| warning.contains(wanted)), "{:?}", document.warnings);
    }
    assert_eq!(directory.read("host/s1-t0001.json").unwrap(), "{ \"weather\": \"fine\" }\n");
}

#[test]
fn what_a_place_cannot_run_is_refused_before_anything_is_made() {
    let place = Arc::new(Scripted::new(Script { refused: vec!["eevdf".into()], ..script(Vec::new()) }));
    let error = build(Arc::clone(&place) as Arc<dyn Place>).err().unwrap();
    let BuildError::Place(error) = error else { panic!("{error}") };
    assert_eq!((error.trouble, error.to_string().as_str()), (Trouble::Unfit, "the script has no `eevdf`"));
    assert!(place.asked().is_empty());
}

#[test]
fn the_places_design_is_in_the_record() {
    for design in [Design::Paired, Design::Unpaired, Design::Blocked] {
        let (experiment, _) = experiment(Script { design, ..script(Vec::new()) });
        assert_eq!(experiment.record().design, design);
    }
}
