//! The run directory: what it holds, that it is never written over, that equal experiments give equal bytes, and that an
//! unfinished run can be continued.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use crate::common::{MACHINE, Scratch, WORKLOAD};

fn compare(rest: &str) -> String {
    format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,eevdf --trials 3 {rest}")
}

/// The names of all files but the inventory of the host and the report, which shows it, with their contents.
fn contents(scratch: &Scratch, run: &str) -> Vec<(String, Vec<u8>)> {
    let names =
        scratch.files(run).into_iter().filter(|name| !["environment.json", "report.html"].contains(&name.as_str()));
    names.map(|name| (name.clone(), fs::read(scratch.path(&format!("{run}/{name}"))).unwrap())).collect()
}

#[track_caller]
fn assert_same(scratch: &Scratch, one: &str, other: &str) {
    let (one, other) = (contents(scratch, one), contents(scratch, other));
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&one), names(&other));
    for ((name, a), (_, b)) in one.iter().zip(&other) {
        assert!(a == b, "{name} differs");
    }
}

#[test]
fn a_directory_may_have_a_name_that_is_no_text() {
    let scratch = Scratch::new();
    for (words, name) in [("compare -n 2", b"one\xff"), ("sim", b"two\xff")] {
        let name = std::ffi::OsStr::from_bytes(name);
        let words = format!("{words} -m {MACHINE} -w {WORKLOAD} -s cfs --out");
        let output = scratch.command(&words).arg(name).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        let environment = fs::read_to_string(scratch.path("").join(name).join("environment.json")).unwrap();
        assert!(environment.contains("one\u{fffd}") || environment.contains("two\u{fffd}"), "{environment}");
    }
}

#[test]
fn a_run_directory_holds_what_the_guide_says() {
    let scratch = Scratch::new();
    scratch.run(&compare("--out run")).exits_with(0);
    let expected = [
        "checksums.sha256",
        "environment.json",
        "experiment.toml",
        "losses.json",
        "machine.toml",
        "report.html",
        "trials.parquet",
        "trials/s0-t0000.json",
        "trials/s0-t0000.sha256",
        "trials/s0-t0001.json",
        "trials/s0-t0001.sha256",
        "trials/s0-t0002.json",
        "trials/s0-t0002.sha256",
        "trials/s1-t0000.json",
        "trials/s1-t0000.sha256",
        "trials/s1-t0001.json",
        "trials/s1-t0001.sha256",
        "trials/s1-t0002.json",
        "trials/s1-t0002.sha256",
        "verdict.json",
        "verdict.txt",
        "versions.json",
        "workload.json",
    ];
    assert_eq!(scratch.files("run"), expected);
}

#[test]
fn the_checksums_are_those_that_sha256sum_checks() {
    let scratch = Scratch::new();
    scratch.run(&compare("--out run")).exits_with(0);
    let checked = std::process::Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet", "checksums.sha256"])
        .current_dir(scratch.path("run"))
        .status()
        .expect("sha256sum belongs to every Debian");
    assert!(checked.success());
}

#[test]
fn equal_experiments_give_equal_bytes_with_one_worker_and_with_two() {
    let scratch = Scratch::new();
    scratch.run(&compare("--trace full --out one --jobs 1")).exits_with(0);
    scratch.run(&compare("--trace full --out two --jobs 2")).exits_with(0);
    assert!(scratch.files("one").iter().any(|name| name.starts_with("trace/") && name.ends_with(".parquet")));
    assert_same(&scratch, "one", "two");
}

/// By the script that `make quick` runs alone.
#[test]
fn events_are_those_of_the_golden_traces() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/golden-traces");
    let output =
        std::process::Command::new(script).arg(env!("CARGO_BIN_EXE_warmcore")).output().expect("bash is there");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_trace_that_differs_from_the_golden_one_is_shown_from_its_first_line_that_does() {
    let scratch = Scratch::new();
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let copy = "mkdir scripts tests && cp $0/scripts/golden-traces scripts && cp -r $0/tests/golden tests";
    assert!(shell(&scratch, copy, repository).status.success());
    let golden = fs::read_to_string(scratch.path("tests/golden/traces/analytic-rr.txt")).unwrap();
    let line = golden.lines().find(|line| line.starts_with("0 cpu0 sched_wakeup task=main/0")).unwrap();
    let other = line.replace("cpu0", "cpu7");
    scratch.write("tests/golden/traces/analytic-rr.txt", &golden.replace(line, &other));

    let output = shell(&scratch, "scripts/golden-traces $0 rr eevdf", env!("CARGO_BIN_EXE_warmcore"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("golden traces/analytic-rr.txt"), "{text}");
    assert!(text.contains(&format!("-{other}\n+{line}\n")), "{text}");
    assert!(!text.contains("eevdf"), "the others are equal: {text}");
}

/// Runs a line of shell in the scratch directory; `$0` is the argument.
fn shell(scratch: &Scratch, line: &str, argument: &str) -> std::process::Output {
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", line, argument]).current_dir(scratch.path("."));
    bash.output().expect("bash is there")
}

#[test]
fn tables_of_runs_with_different_workloads_machines_and_traces_are_one_table() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    let scratch = Scratch::new();
    scratch.run(&compare("--out hackbench")).exits_with(0);
    let periodic = "sim -m 1s1n1l4c1t -w periodic:-n3,-d20ms+schbench:-t2,-r1ms -s rr --trace none --out periodic";
    scratch.run(periodic).exits_with(0);
    let read = |run: &str| {
        let file = fs::File::open(scratch.path(run).join("trials.parquet")).unwrap();
        SerializedFileReader::new(file).unwrap()
    };
    let tables = ["hackbench", "periodic"].map(read);
    let columns = |table: &SerializedFileReader<fs::File>| table.metadata().file_metadata().schema().clone();
    assert_eq!(columns(&tables[0]), columns(&tables[1]));

    let (mut elapsed, mut runs) = (Vec::new(), std::collections::BTreeSet::new());
    for row in tables.iter().flat_map(|table| table.get_row_iter(None).unwrap()) {
        let row = row.unwrap();
        let text = |name: &str| {
            let (index, _) = row.get_column_iter().enumerate().find(|(_, (column, _))| *column == name).unwrap();
            row.get_string(index).unwrap().clone()
        };
        if text("metric") == "elapsed_ns" {
            let value = row.get_double(row.len() - 1).unwrap();
            elapsed.push((text("workload"), text("scheduler"), text("unit"), value));
            assert!(text("tunables").starts_with(&text("scheduler")) && !text("tunables").contains("base_slice_ns=0"));
            runs.insert(text("run"));
            let times = row.get_column_iter().filter(|(column, _)| column.starts_with("time_")).count();
            assert_eq!(times, 21);
        }
    }
    let trial = |file: &str| -> f64 {
        let trial: serde_json::Value = serde_json::from_slice(&fs::read(scratch.path(file)).unwrap()).unwrap();
        trial["measures"]["elapsed_ns"].as_f64().unwrap()
    };
    assert_eq!(elapsed.len(), 2 * 3 + 1, "{elapsed:?}");
    assert_eq!(runs.len(), 2);
    let first = (WORKLOAD.to_owned(), "cfs".to_owned(), "ns".to_owned(), trial("hackbench/trials/s0-t0000.json"));
    assert_eq!(elapsed[0], first);
    assert_eq!(elapsed[6].0, "periodic:-n3,-d20ms+schbench:-t2,-r1ms");
    assert_eq!(elapsed[6].3, trial("periodic/trials/s0-t0000.json"));
}

#[test]
fn another_seed_gives_other_trials() {
    let scratch = Scratch::new();
    scratch.run(&compare("--out one")).exits_with(0);
    scratch.run(&compare("--out two --seed 2")).exits_with(0);
    let file = "trials/s0-t0000.json";
    assert_ne!(fs::read(scratch.path("one").join(file)).unwrap(), fs::read(scratch.path("two").join(file)).unwrap());
}

#[test]
fn an_existing_directory_is_refused_and_force_replaces_only_runs() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("notes")).unwrap();
    scratch.write("notes/precious", "x");
    scratch.run(&compare("--out notes")).exits_with(2).complains("exists and is not empty");
    scratch.run(&compare("--out notes --force")).exits_with(2).complains("is not a run directory");
    assert_eq!(scratch.files("notes"), ["precious"]);

    scratch.run(&compare("--out run")).exits_with(0);
    scratch.run(&compare("--out run")).exits_with(2).complains("--force").complains("--resume");
    scratch.write("run/leftover", "x");
    scratch.run(&compare("--out run --force")).exits_with(0);
    // What the run did not write is the user's.
    assert!(scratch.files("run").contains(&"leftover".to_owned()));
    let checksums = fs::read_to_string(scratch.path("run/checksums.sha256")).unwrap();
    assert!(!checksums.contains("leftover"), "{checksums}");
}

/// Two at a time would take each other's files away.
#[test]
fn one_run_at_a_time_is_at_work_in_a_directory() {
    let scratch = Scratch::new();
    scratch.run(&compare("--out run")).exits_with(0);
    let before = contents(&scratch, "run");
    let at_work = fs::File::open(scratch.path("run")).unwrap();
    at_work.lock().unwrap();
    let sim = format!("sim -m {MACHINE} -w {WORKLOAD} -s cfs --out run --force");
    for words in ["compare --resume run".to_owned(), compare("--out run --force"), sim] {
        scratch.run(&words).exits_with(1).complains("another run is at work in it");
    }
    assert_eq!(contents(&scratch, "run"), before);
    scratch.run("report run --markdown -").exits_with(0);
    drop(at_work);
    scratch.run("compare --resume run").exits_with(0);
}

#[test]
fn force_leaves_a_link_to_a_run_a_link() {
    let scratch = Scratch::new();
    scratch.run(&compare("--out run")).exits_with(0);
    std::os::unix::fs::symlink(scratch.path("run"), scratch.path("link")).unwrap();
    scratch.run(&compare("--out link --force --seed 2")).exits_with(0);
    assert!(scratch.path("link").is_symlink());
    let experiment = fs::read_to_string(scratch.path("run/experiment.toml")).unwrap();
    scratch.run(&compare("--out other --seed 2")).exits_with(0);
    assert_eq!(experiment, fs::read_to_string(scratch.path("other/experiment.toml")).unwrap());
}

#[test]
fn a_trial_that_was_edited_is_not_taken_over() {
    let scratch = Scratch::new();
    scratch.run(&compare("--out run")).exits_with(0);
    let file = "run/trials/s1-t0000.json";
    let trial = fs::read_to_string(scratch.path(file)).unwrap();
    let edited = trial.replacen("\"elapsed_ns\":", "\"elapsed_ns\":1", 1);
    assert_ne!(trial, edited);
    scratch.write(file, &edited);
    let checksums = fs::read(scratch.path("run/checksums.sha256")).unwrap();
    scratch.run("compare --resume run").exits_with(2).complains("s1-t0000.json").complains("checksum");
    assert_eq!(checksums, fs::read(scratch.path("run/checksums.sha256")).unwrap(), "nothing was touched");
    assert_eq!(edited, fs::read_to_string(scratch.path(file)).unwrap());
    // Without the file the trial is run again.
    fs::remove_file(scratch.path(file)).unwrap();
    scratch.run("compare --resume run").exits_with(0);
    assert_eq!(trial, fs::read_to_string(scratch.path(file)).unwrap());
}

/// A run of three trials with every event, cut off after the first.
fn cut_off_after_one() -> Scratch {
    let scratch = Scratch::new();
    let words = format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs --trials 3 --trace full --keep run");
    scratch.run(&format!("{words} --out whole")).exits_with(0);
    scratch.run(&format!("{words} --out run")).exits_with(0);
    for name in ["checksums.sha256", "verdict.json", "verdict.txt", "trials.parquet", "losses.json"] {
        fs::remove_file(scratch.path("run").join(name)).unwrap();
    }
    for name in scratch.files("run").iter().filter(|name| name.contains("s0-t0001") || name.contains("s0-t0002")) {
        fs::remove_file(scratch.path("run").join(name)).unwrap();
    }
    scratch
}

#[test]
fn nothing_that_was_edited_is_signed_anew_by_a_run_that_goes_on() {
    for name in ["trials/s0-t0000.json", "trace/s0-t0000/sched_switch.parquet", "versions.json", "machine.toml"] {
        let scratch = cut_off_after_one();
        let path = scratch.path("run").join(name);
        let mut bytes = fs::read(&path).unwrap();
        let half = bytes.len() / 2;
        match name {
            // Cut off in the middle.
            "trials/s0-t0000.json" => bytes.truncate(half),
            // A comment changes no meaning.
            "machine.toml" => bytes.extend(b"\n# measured again\n"),
            "versions.json" => bytes.push(b'\n'),
            _ => bytes[half] ^= 1,
        }
        fs::write(&path, bytes).unwrap();
        let before = contents(&scratch, "run");
        scratch.run("compare --resume run").exits_with(2).complains(name);
        assert!(before == contents(&scratch, "run"), "{name}: nothing was touched");
    }
}

#[test]
fn a_simulated_trial_whose_table_is_lost_is_made_again_and_told() {
    let scratch = cut_off_after_one();
    fs::remove_file(scratch.path("run/trace/s0-t0000/sched_switch.parquet")).unwrap();
    scratch
        .run("compare --resume run")
        .exits_with(0)
        .complains("run/trace/s0-t0000/sched_switch.parquet is missing: its trial is made again");
    assert_same(&scratch, "whole", "run");
    // A finished run as well.
    fs::remove_file(scratch.path("run/trace/s0-t0002/slices.parquet")).unwrap();
    scratch.run("compare --resume run").exits_with(0).complains("slices.parquet is missing: its trial is made again");
    assert_same(&scratch, "whole", "run");
}

#[test]
fn force_leaves_nothing_of_the_run_before() {
    let scratch = Scratch::new();
    scratch.run(&compare("--trace full --out run")).exits_with(0);
    for name in ["outputs/s0-t0000.txt", "host/s1-t0001.json", "recording.dat", "oracle.json", "trials/s9-t0000.sha256"]
    {
        fs::create_dir_all(scratch.path("run").join(name).parent().unwrap()).unwrap();
        scratch.write(&format!("run/{name}"), "of the run before");
    }
    scratch.run(&compare("--out run --force")).exits_with(0);
    scratch.run(&compare("--out other")).exits_with(0);
    assert_same(&scratch, "other", "run");
    for directory in ["outputs", "host", "trace"] {
        assert!(!scratch.path("run").join(directory).exists(), "{directory}");
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_of_the_operation() {
    let scratch = Scratch::new();
    scratch.write("file", "x");
    scratch.run(&compare("--out file/run")).did_not_panic().exits_with(1).complains("file/run");
    scratch.run(&compare("--out /proc/warmcore")).did_not_panic().exits_with(1).complains("/proc/warmcore");
}

#[test]
fn without_out_every_run_gets_a_new_directory() {
    let scratch = Scratch::new();
    scratch.run(&compare("")).exits_with(0).complains("run directory: runs/");
    scratch.run(&compare("")).exits_with(0);
    assert_eq!(fs::read_dir(scratch.path("runs")).unwrap().count(), 2);
    let scratch = Scratch::new();
    scratch.run(&compare("--keep nothing")).exits_with(0);
    assert!(!scratch.path("runs").exists());
}

#[test]
fn a_resumed_run_ends_as_if_it_had_never_stopped() {
    let scratch = Scratch::new();
    scratch.run(&compare("--out whole")).exits_with(0);
    scratch.run(&compare("--out cut")).exits_with(0);
    // What a crash could leave: trials missing, half a trial, files of the end missing.
    for name in [
        "trials/s1-t0002.json",
        "trials/s0-t0001.json",
        "verdict.json",
        "verdict.txt",
        "trials.parquet",
        "losses.json",
        "checksums.sha256",
    ] {
        fs::remove_file(scratch.path("cut").join(name)).unwrap();
    }
    scratch.write("cut/trials/s0-t0001.json.partial", "{ \"schema\": \"warmcore-tr");
    scratch.write("cut/trials/s0-t0002.json.partial", "x");
    let marker = scratch.path("cut/trials/s1-t0000.json");
    let before = fs::metadata(&marker).unwrap().modified().unwrap();

    let ran = scratch.run("compare --resume cut").exits_with(0);
    assert_eq!(before, fs::metadata(&marker).unwrap().modified().unwrap(), "a finished trial is not run again");
    let environment = fs::read_to_string(scratch.path("cut/environment.json")).unwrap();
    assert!(environment.contains("\"trials_run\": 2"), "{environment}");
    for name in ["s0-t0001", "s0-t0002"] {
        let _ = fs::remove_file(scratch.path(&format!("cut/trials/{name}.json.partial")));
    }
    assert_same(&scratch, "whole", "cut");
    assert_eq!(ran.out, fs::read_to_string(scratch.path("whole/verdict.txt")).unwrap());
}

#[test]
fn a_changed_run_is_not_resumed() {
    let scratch = Scratch::new();
    scratch.run(&compare("--out run")).exits_with(0);
    let machine = fs::read_to_string(scratch.path("run/machine.toml")).unwrap();
    let other = scratch.run("machine show 2s1n1l4c1t --toml").exits_with(0).out;
    scratch.write("run/machine.toml", &other);
    scratch.run("compare --resume run").exits_with(2).complains("was changed since the run was started");
    scratch.write("run/machine.toml", &machine);
    scratch.write("run/experiment.toml", "schema = \"warmcore-experiment-2\"\nsurprise = 1\n");
    scratch.run("compare --resume run").exits_with(2).complains("experiment.toml");
    scratch.run("compare --resume nowhere").exits_with(2).complains("is not a run directory");
    scratch.run("compare --resume run --seed 3").exits_with(2);
    for option in ["--max-time 1s", "--trace full:1ms", "--trace none"] {
        scratch.run(&format!("compare --resume run {option}")).exits_with(2).complains("cannot be used with");
    }
}

#[test]
fn generated_workloads_and_machines_come_back_from_their_files() {
    let scratch = Scratch::new();
    let workloads = ["schbench:-m1,-t2,-r1", "spin:-n3,-p0,-u10ms,-d50ms", "pingpong:-n2,-l20", "forkjoin:-n3,-i5"];
    for (index, workload) in workloads.iter().enumerate() {
        let run = format!("run{index}");
        scratch
            .run(&format!("compare -m 2s1n1l2c2t -w {workload} -s rr --trials 2 --max-time 100ms --out {run}"))
            .exits_with(0);
        fs::remove_file(scratch.path(&format!("{run}/trials/s0-t0001.json"))).unwrap();
        let before = contents(&scratch, &run);
        scratch.run(&format!("compare --resume {run}")).exits_with(0);
        assert_eq!(before.len() + 1, contents(&scratch, &run).len(), "{workload}");
    }
}

#[test]
fn a_run_of_a_workload_file_can_be_continued_too() {
    let scratch = Scratch::new();
    scratch.write("work.json", r#"{"tasks": {"worker": {"loop": 3, "run": 1000, "sleep": 500}}}"#);
    scratch.run(&format!("compare -m {MACHINE} -w ./work.json -s cfs --trials 2 --out run --keep run")).exits_with(0);
    scratch.run("compare --resume run").exits_with(0);
}

#[test]
fn kernel_threads_are_part_of_the_machine_that_a_run_directory_holds() {
    let scratch = Scratch::new();
    scratch.run(&compare("--background quiet --out run")).exits_with(0);
    scratch.run(&compare("--background quiet --jobs 1 --out again")).exits_with(0);
    assert_same(&scratch, "run", "again");
    let machine = fs::read_to_string(scratch.path("run/machine.toml")).unwrap();
    assert!(
        machine.contains("[background]\nname = \"quiet\"") && machine.contains("[[background.thread]]"),
        "{machine}"
    );
    let record = fs::read_to_string(scratch.path("run/experiment.toml")).unwrap();
    assert!(record.contains(&format!("source = \"{MACHINE} with background quiet\"")), "{record}");
    // The machine's file is enough to have them again.
    let words = format!("compare -m run/machine.toml -w {WORKLOAD} -s cfs,eevdf --trials 3 --out third");
    scratch.run(&words).exits_with(0);
    let trial = |run: &str| fs::read_to_string(scratch.path(&format!("{run}/trials/s1-t0002.json"))).unwrap();
    assert_eq!(trial("run"), trial("third"));
    assert!(trial("run").contains("\"background\":[{\"name\":"));
    let verdict = scratch.run(&compare("--background quiet --keep nothing --json")).exits_with(0).out;
    assert!(verdict.contains("no metric counts them (--background quiet)"), "{verdict}");
}
