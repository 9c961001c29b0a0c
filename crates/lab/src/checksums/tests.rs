use super::*;
use std::path::Path;

use crate::directory::Existing;

fn run_in(parent: &Path) -> RunDirectory {
    let run = RunDirectory::create(&parent.join("run"), Existing::Refuse).unwrap();
    BEGINNING.into_iter().for_each(|name| put(&run, name));
    run
}

fn put(run: &RunDirectory, name: &str) {
    fs::create_dir_all(run.path().join(name).parent().unwrap()).unwrap();
    fs::write(run.path().join(name), format!("{name} as it was")).unwrap();
}

/// Keeps a trial with a table and an output.
fn keep(run: &RunDirectory, trial: &str) {
    put(run, &format!("trace/{trial}/switches.parquet"));
    put(run, &format!("outputs/{trial}.txt"));
    run.keep_trial(trial, "a trial", &run.sums_of_beginning().unwrap()).unwrap();
}

fn names(trials: &[&str]) -> Vec<String> {
    trials.iter().map(|trial| (*trial).to_owned()).collect()
}

const FIRST: &str = "s0-t0000";
const SECOND: &str = "s0-t0001";

#[test]
fn a_changed_file_fails_its_checksum_and_the_environment_has_none() {
    let parent = tempfile::tempdir().unwrap();
    let run = RunDirectory::create(&parent.path().join("run"), Existing::Refuse).unwrap();
    run.write(EXPERIMENT, b"one").unwrap();
    run.write("trials/s0-t0000.json", b"two").unwrap();
    run.write(ENVIRONMENT, b"host").unwrap();
    run.write_checksums().unwrap();
    run.verify().unwrap();

    run.write(ENVIRONMENT, b"another host").unwrap();
    run.verify().unwrap();
    run.write("trials/s0-t0000.json", b"three").unwrap();
    let error = run.verify().unwrap_err();
    assert!(matches!(&error, DirectoryError::Checksum(path) if path.ends_with("trials/s0-t0000.json")), "{error}");
}

#[test]
fn what_commands_printed_and_places_were_like_is_compared_as_well() {
    let parent = tempfile::tempdir().unwrap();
    let run = RunDirectory::create(&parent.path().join("run"), Existing::Refuse).unwrap();
    run.write(EXPERIMENT, b"one").unwrap();
    for name in ["outputs/s0-t0000.txt", "host/s0-t0000.json", "guests/s0-t0000.json"] {
        fs::create_dir_all(run.path().join(name).parent().unwrap()).unwrap();
        run.write(name, b"as it was").unwrap();
    }
    run.write_checksums().unwrap();
    run.verify().unwrap();
    for name in ["outputs/s0-t0000.txt", "host/s0-t0000.json", "guests/s0-t0000.json"] {
        run.write(name, b"another").unwrap();
        assert!(matches!(run.verify(), Err(DirectoryError::Checksum(path)) if path.ends_with(name)), "{name}");
        run.write(name, b"as it was").unwrap();
    }
}

#[test]
fn a_list_of_checksums_names_files_of_the_run_only() {
    let parent = tempfile::tempdir().unwrap();
    let run = RunDirectory::create(&parent.path().join("run"), Existing::Refuse).unwrap();
    run.write(EXPERIMENT, b"one").unwrap();
    fs::write(parent.path().join("verdict.json"), "beside it").unwrap();
    for name in ["/dev/zero", "../verdict.json", "trace/../../verdict.json", "trials/../x.json", "notes"] {
        run.write(CHECKSUMS, format!("{}  {EXPERIMENT}\n00  {name}\n", files::sha256(b"one")).as_bytes()).unwrap();
        assert!(matches!(run.verify(), Err(DirectoryError::Foreign { line: 2, .. })), "{name}");
    }
    std::os::unix::fs::symlink("/dev/zero", run.path().join(VERDICT)).unwrap();
    run.write(CHECKSUMS, format!("00  {VERDICT}\n").as_bytes()).unwrap();
    assert!(matches!(run.verify(), Err(DirectoryError::File(_))), "a link to what has no end");
}

/// A run of three trials that was cut off after the second, which left a table of the third.
fn cut_off(parent: &Path) -> RunDirectory {
    let run = run_in(parent);
    keep(&run, FIRST);
    keep(&run, SECOND);
    put(&run, "trace/s0-t0002/switches.parquet");
    run
}

fn reopen(run: &RunDirectory) -> Result<Vec<PathBuf>, DirectoryError> {
    run.reopen(&names(&[FIRST, SECOND, "s0-t0002"]), true)
}

#[test]
fn a_list_of_a_trial_is_one_that_sha256sum_checks_and_names_all_it_rests_on_and_left() {
    let parent = tempfile::tempdir().unwrap();
    let run = run_in(parent.path());
    put(&run, "trace/s0-t0001/switches.parquet");
    keep(&run, FIRST);
    let list = run.read(&trial_list(FIRST)).unwrap();
    let names: Vec<&str> = list.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    let expected = [
        EXPERIMENT,
        MACHINE,
        "outputs/s0-t0000.txt",
        "trace/s0-t0000/switches.parquet",
        "trials/s0-t0000.json",
        VERSIONS,
        WORKLOAD,
    ];
    assert_eq!(names, expected);
    let mut sha256sum = std::process::Command::new("sha256sum");
    let checked =
        sha256sum.args(["--check", "--strict", "--quiet"]).arg(trial_list(FIRST)).current_dir(run.path()).status();
    assert!(checked.unwrap().success());
}

#[test]
fn a_run_that_was_cut_off_goes_on_with_what_finished_and_without_what_did_not() {
    let parent = tempfile::tempdir().unwrap();
    let run = cut_off(parent.path());
    // What an earlier end made of trials, nobody vouches for.
    [VERDICT, ORACLE, SENSITIVITY].into_iter().for_each(|name| put(&run, name));
    assert_eq!(reopen(&run).unwrap(), Vec::<PathBuf>::new());
    let left = run.files().unwrap();
    assert!(
        left.contains(&trial_file(FIRST)) && left.contains(&"trace/s0-t0001/switches.parquet".to_owned()),
        "{left:?}"
    );
    for gone in [VERDICT, ORACLE, SENSITIVITY, "trace/s0-t0002/switches.parquet"] {
        assert!(!left.contains(&gone.to_owned()), "{gone}");
    }
}

#[test]
fn nothing_that_was_edited_is_taken_over_by_a_run_that_was_cut_off() {
    for edited in
        [EXPERIMENT, VERSIONS, "trials/s0-t0001.json", "outputs/s0-t0000.txt", "trace/s0-t0001/switches.parquet"]
    {
        for text in ["another", ""] {
            let parent = tempfile::tempdir().unwrap();
            let run = cut_off(parent.path());
            fs::write(run.path().join(edited), text).unwrap();
            let before = run.files().unwrap();
            let error = reopen(&run).unwrap_err();
            assert!(matches!(&error, DirectoryError::Checksum(path) if path.ends_with(edited)), "{edited}: {error}");
            assert_eq!(run.files().unwrap(), before, "nothing is changed");
        }
    }
}

#[test]
fn trials_that_changed_places_are_refused_with_and_without_their_lists() {
    let swap = |run: &RunDirectory, names: [&str; 2]| {
        let [one, other] = names.map(|name| run.path().join(name));
        let kept = fs::read(&one).unwrap();
        fs::rename(&other, &one).unwrap();
        fs::write(&other, kept).unwrap();
    };
    let parent = tempfile::tempdir().unwrap();
    let run = run_in(parent.path());
    run.keep_trial(FIRST, "one trial", &run.sums_of_beginning().unwrap()).unwrap();
    run.keep_trial(SECOND, "another trial", &run.sums_of_beginning().unwrap()).unwrap();
    swap(&run, [&trial_file(FIRST), &trial_file(SECOND)]);
    assert!(matches!(reopen(&run), Err(DirectoryError::Checksum(path)) if path.ends_with(trial_file(FIRST))));
    swap(&run, [&trial_list(FIRST), &trial_list(SECOND)]);
    assert!(
        matches!(reopen(&run), Err(DirectoryError::Foreign { path, line: 3 }) if path.ends_with(trial_list(FIRST)))
    );
}

#[test]
fn a_trial_without_its_list_and_a_file_in_no_list_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let run = cut_off(parent.path());
    fs::remove_file(run.path().join(trial_list(SECOND))).unwrap();
    assert!(matches!(reopen(&run), Err(DirectoryError::NoList(path)) if path.ends_with(trial_file(SECOND))));
    for extra in ["trace/s0-t0000/waits.parquet", "host/s0-t0001.json", "trials/s7-t0000.json", "guests/s0-t0009.json"]
    {
        let parent = tempfile::tempdir().unwrap();
        let run = cut_off(parent.path());
        put(&run, extra);
        assert!(matches!(reopen(&run), Err(DirectoryError::Unlisted(path)) if path.ends_with(extra)), "{extra}");
        // A finished run has lists too.
        let parent = tempfile::tempdir().unwrap();
        let run = cut_off(parent.path());
        run.write_checksums().unwrap();
        put(&run, extra);
        assert!(matches!(run.verify(), Err(DirectoryError::Unlisted(path)) if path.ends_with(extra)), "{extra}");
        assert!(matches!(reopen(&run), Err(DirectoryError::Unlisted(path)) if path.ends_with(extra)), "{extra}");
    }
}

#[test]
fn a_trial_with_a_lost_table_is_made_again_where_that_can_be_had_and_refused_elsewhere() {
    let lost = "trace/s0-t0000/switches.parquet";
    for finished in [false, true] {
        let parent = tempfile::tempdir().unwrap();
        let run = cut_off(parent.path());
        if finished {
            run.write_checksums().unwrap();
        }
        fs::remove_file(run.path().join(lost)).unwrap();
        let trials = names(&[FIRST, SECOND, "s0-t0002"]);
        let refused = run.reopen(&trials, false);
        assert!(matches!(&refused, Err(DirectoryError::Missing(path)) if path.ends_with(lost)), "{refused:?}");
        assert!(run.path().join(trial_file(FIRST)).exists(), "nothing is changed");
        assert_eq!(run.reopen(&trials, true).unwrap(), [run.path().join(lost)]);
        let left = run.files().unwrap();
        assert!(!left.iter().any(|name| trial_of(name) == Some(FIRST)), "{left:?}");
        assert!(left.contains(&trial_file(SECOND)));
    }
}

#[test]
fn what_was_asked_for_stays_in_a_finished_run_that_its_list_vouches_for() {
    let parent = tempfile::tempdir().unwrap();
    let run = cut_off(parent.path());
    put(&run, ORACLE);
    put(&run, VERDICT);
    run.write_checksums().unwrap();
    fs::write(run.path().join(VERDICT), "rewritten at the end anyway").unwrap();
    reopen(&run).unwrap();
    assert!(run.path().join(ORACLE).exists() && !run.path().join(CHECKSUMS).exists());
    // It is not finished any more.
    reopen(&run).unwrap();
    assert!(!run.path().join(ORACLE).exists());
}

#[test]
fn a_file_twice_in_a_list_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let run = run_in(parent.path());
    let line = format!("{}  {EXPERIMENT}\n", files::sha256(b"experiment.toml as it was"));
    run.write(CHECKSUMS, format!("{line}{line}").as_bytes()).unwrap();
    assert!(matches!(run.verify(), Err(DirectoryError::ChecksumLine { line: 2, .. })));
}
