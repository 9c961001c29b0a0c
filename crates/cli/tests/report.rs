//! `warmcore report`: what it writes, that its numbers are the run's, and what it says of runs that are not whole.

use std::fs;

use crate::common::{MACHINE, Scratch, WORKLOAD};
use serde_json::Value;

fn compared(rest: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.run(&format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,eevdf --trials 8 --out run {rest}")).exits_with(0);
    scratch
}

fn read(scratch: &Scratch, name: &str) -> String {
    fs::read_to_string(scratch.path(name)).unwrap()
}

#[test]
fn compare_leaves_a_page_that_says_what_the_verdict_says() {
    let scratch = compared("");
    let page = read(&scratch, "run/report.html");
    let verdict: Value = serde_json::from_str(&read(&scratch, "run/verdict.json")).unwrap();
    assert!(page.contains(verdict["verdict"]["sentence"].as_str().unwrap()));
    let primary = verdict["primary"].as_str().unwrap();
    for scheduler in verdict["schedulers"].as_array().unwrap() {
        let median = scheduler["measures"][primary]["summary"]["median"].as_f64().unwrap();
        assert!(page.contains(&format!("data-value=\"{median}\"")), "the median {median} is in the table");
    }
    assert!(page.contains("warmcore compare -m 2s1n1l2c1t"), "the command that repeats it is there");
}

#[test]
fn the_page_loads_nothing_and_allows_nothing_from_elsewhere() {
    let page = read(&compared(""), "run/report.html");
    let csp = "default-src 'none'; img-src data: blob:;";
    assert!(page.contains(csp));
    for word in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn making_the_report_again_changes_neither_the_run_nor_the_page() {
    let scratch = compared("");
    let before = read(&scratch, "run/report.html");
    scratch.run("report run").exits_with(0);
    assert!(before == read(&scratch, "run/report.html"), "the page is a function of the run directory");
    let checked = std::process::Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet", "checksums.sha256"])
        .current_dir(scratch.path("run"))
        .status()
        .unwrap();
    assert!(checked.success());
}

#[test]
fn stored_events_and_a_trial_simulated_again_give_the_same_figures() {
    let (counters, full) = (compared("--trace counters"), compared("--trace full"));
    for scratch in [&counters, &full] {
        scratch.run("report run --svg figures").exits_with(0);
    }
    let names = counters.files("figures");
    assert_eq!(names, full.files("figures"));
    assert!(names.iter().any(|name| name == "threads-per-cpu-0-cfs.svg"), "{names:?}");
    for name in names {
        let path = format!("figures/{name}");
        assert!(read(&counters, &path) == read(&full, &path), "{name} differs");
    }
}

#[test]
fn what_tasks_are_ranked_by_is_drawn_and_stored_samples_are_the_ones_that_are_shown() {
    let scratch = compared("--trace full:10us");
    assert!(scratch.files("run/trace/s0-t0000").contains(&"scores.parquet".to_owned()));
    scratch.run("report run --svg figures").exits_with(0);
    let names = scratch.files("figures");
    for name in ["score-0-cfs-vruntime-ns", "score-1-eevdf-vlag-ns", "score-1-eevdf-deadline-ns"] {
        assert!(names.contains(&format!("{name}.svg")), "{name} is missing: {names:?}");
        let csv = read(&scratch, &format!("figures/{name}.csv"));
        let rows: Vec<&str> = csv.lines().collect();
        assert!(rows[0].starts_with("row,task,name,time_ns,"), "{}", rows[0]);
        let differ = rows[1..].iter().map(|row| row.rsplit(',').next()).collect::<std::collections::BTreeSet<_>>();
        assert!(differ.len() > 3, "{name}: {differ:?}");
        assert!(read(&scratch, "run/report.html").contains(&format!("id=\"figure-{name}\"")));
    }
}

#[test]
fn virtual_llcs_are_a_level_of_measures_and_figures() {
    let scratch = Scratch::new();
    let words = "compare -m 1s1n2l4c2t -w hackbench:-T,-p,-f4,-g2,-l40 -s cfs --trials 1 --trace full --virtual-llcs 2 --json --out run";
    let output = scratch.run(words).exits_with(0);
    let document: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    let measures = |scheduler: usize| &document["schedulers"][scheduler]["measures"];
    let value = |name: &str| measures(0)[name]["summary"]["median"].as_f64().unwrap_or_else(|| panic!("{name}"));
    let (same, other) = (value("migrations_ran_same_virtual_llc"), value("migrations_ran_other_virtual_llc"));
    assert!(same > 0.0 && other > 0.0, "{same} {other}");
    assert_eq!(same + other, value("migrations_ran_same_llc"));
    assert_eq!(other + value("migrations_ran_same_node"), value("migrations_ran_between_virtual_llcs"));
    let tasks = [0, 1, 10, 100, 1000].map(|least| value(&format!("tasks_crossing_virtual_llcs_{least}")));
    assert!(tasks.iter().sum::<f64>() >= 17.0, "{tasks:?}");

    scratch.run("report run --svg figures").exits_with(0);
    let migrations = read(&scratch, "figures/migrations.csv");
    assert!(migrations.contains("same_virtual_llc,cfs") && !migrations.contains("same_llc,cfs"), "{migrations}");
    // In one trial the matrix has every move that the measure counts.
    let matrix = read(&scratch, "figures/virtual-transitions-0-cfs.csv");
    let moves: f64 = matrix.lines().skip(1).map(|row| row.rsplit(',').next().unwrap().parse::<f64>().unwrap()).sum();
    assert_eq!(moves, value("migrations_ran_between_virtual_llcs"));
    let page = read(&scratch, "run/report.html");
    assert!(page.contains("id=\"figure-crossings\"") && page.contains("id=\"figure-virtual-transitions-0-cfs\""));

    scratch.run("compare -w spin -s rr --virtual-llcs 4-2 --keep nothing").exits_with(2).complains("such as 2-8");
}

#[test]
fn cumulative_run_times_side_by_side_share_their_axes() {
    let scratch = Scratch::new();
    let words =
        "compare -m 1s1n1l4c1t -w spin:-n5,-d40ms+periodic:-n2,-d40ms -s rr,cfs --trials 1 --keep run --out run";
    scratch.run(words).exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let of = |name: &str| read(&scratch, &format!("figures/{name}"));
    let most = |csv: String| -> u64 {
        csv.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).max().unwrap()
    };
    assert_ne!(
        most(of("cumulative-0-rr.csv")),
        most(of("cumulative-1-cfs.csv")),
        "the axes would differ by themselves"
    );
    let csv = of("cumulative-0-rr.csv");
    let of_tasks = csv.lines().filter(|line| line.split(',').nth(1) == Some("1"));
    assert_eq!(of_tasks.count(), 7 * 200, "each task's line is in the data");
    let lines =
        |svg: String| svg.split('<').filter(|part| part.contains("\"grid\"")).map(str::to_owned).collect::<Vec<_>>();
    let first = lines(of("cumulative-0-rr.svg"));
    assert!(first.len() > 5, "{first:?}");
    assert_eq!(first, lines(of("cumulative-1-cfs.svg")));
}

#[test]
fn scores_without_event_tables_cannot_be_said() {
    let scratch = Scratch::new();
    for words in ["compare --trials 2 -s cfs,eevdf --keep nothing", "sim -s cfs"] {
        let (verb, rest) = words.split_once(' ').unwrap();
        let run = scratch.run(&format!("{verb} -m {MACHINE} -w {WORKLOAD} {rest} --trace counters:1ms"));
        run.exits_with(2).complains("full:TIME");
    }
}

#[test]
fn the_ratios_of_the_figure_are_those_of_the_verdict() {
    let scratch = compared("");
    scratch.run("report run --svg figures").exits_with(0);
    let verdict: Value = serde_json::from_str(&read(&scratch, "run/verdict.json")).unwrap();
    let primary = verdict["primary"].as_str().unwrap();
    let result = &verdict["schedulers"][1]["measures"][primary];
    let csv = read(&scratch, "figures/ratio.csv");
    let eevdf: Vec<Vec<&str>> =
        csv.lines().filter(|line| line.starts_with("eevdf,")).map(|line| line.split(',').collect()).collect();
    assert_eq!(eevdf.len(), 8, "one line per trial");
    assert_eq!(eevdf[0][3].parse::<f64>().unwrap(), result["comparison"]["ratio"].as_f64().unwrap());
    assert_eq!(eevdf[0][4].parse::<f64>().unwrap(), result["comparison"]["interval"]["low"].as_f64().unwrap());
    let base = &verdict["schedulers"][0]["measures"][primary]["points"];
    for (trial, row) in eevdf.iter().enumerate() {
        let expected = result["points"][trial].as_f64().unwrap() / base[trial].as_f64().unwrap();
        assert_eq!(row[2].parse::<f64>().unwrap(), expected);
    }
}

#[test]
fn where_the_time_went_is_drawn_cause_by_cause_with_the_run_s_own_shares_and_gaps() {
    let scratch = Scratch::new();
    let workload = "hackbench:-T,-p,-f4,-g2,-l20";
    scratch.run(&format!("compare -m 2s1n2l4c1t -w {workload} -s cfs,rr --trials 8 --out run")).exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let verdict: Value = serde_json::from_str(&read(&scratch, "run/verdict.json")).unwrap();
    let split = &verdict["time_split"];
    let causes: Vec<&str> = split["causes"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(causes.contains(&"llc") && causes.contains(&"other_socket") && causes.contains(&"run_queue"), "{causes:?}");
    let csv = read(&scratch, "figures/task-time.csv");
    for scheduler in split["schedulers"].as_array().unwrap() {
        for cause in &causes {
            let start = format!("{},{cause},", scheduler["label"].as_str().unwrap());
            let line = csv.lines().find(|line| line.starts_with(&start)).unwrap();
            let share: f64 = line.rsplit(',').next().unwrap().parse().unwrap();
            assert_eq!(share, scheduler["shares"][cause].as_f64().unwrap(), "{line}");
        }
    }
    let (page, gaps) = (read(&scratch, "run/report.html"), read(&scratch, "figures/time-gap.csv"));
    for gap in split["gaps"].as_array().unwrap() {
        assert!(page.contains(gap["sentence"].as_str().unwrap()));
        for line in gap["lines"].as_array().unwrap() {
            let difference = line["difference"].as_f64().unwrap();
            assert!(page.contains(&format!("data-value=\"{difference}\"")), "{line}");
            assert!(gaps.contains(&format!(",{difference},")), "{line}");
        }
    }
    let cpu_time = read(&scratch, "figures/cpu-time.csv");
    let (heading, rows) = cpu_time.split_once('\n').unwrap();
    assert!(heading.contains("other_socket_ns") && heading.contains("numa_ns"), "{heading}");
    for (row, scheduler) in rows.lines().zip(verdict["schedulers"].as_array().unwrap()) {
        let sum: f64 = row.split(',').skip(1).map(|cell| cell.parse::<f64>().unwrap()).sum();
        let mean = |name: &str| {
            let points = scheduler["measures"][name]["points"].as_array().unwrap();
            points.iter().map(|point| point.as_f64().unwrap()).sum::<f64>() / points.len() as f64
        };
        let whole = mean("run_ns") + mean("foreign_ns") + mean("idle_ns");
        assert!((sum - whole).abs() < 20.0, "the parts add up to all CPU time: {sum} and {whole}");
    }
}

#[test]
fn a_perfetto_trace_is_written_per_scheduler_with_the_topology_beside_it() {
    let scratch = compared("--keep run");
    scratch.run("report run --perfetto trace.pftrace").exits_with(0).complains("trace-cfs.pftrace");
    let topology: Value = serde_json::from_str(&read(&scratch, "trace-cfs.topology.json")).unwrap();
    assert_eq!(topology["llc"].as_array().unwrap().len(), 4, "one entry per CPU");
    for scheduler in ["cfs", "eevdf"] {
        let trace = fs::read(scratch.path(&format!("trace-{scheduler}.pftrace"))).unwrap();
        assert_eq!(trace[0], 0x0a, "a packet is field 1 of the trace");
        let has = |text: &str| trace.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("end of the run") && has("warmcore-topology-1") && has("cpu0 runnable"), "{scheduler}");
    }
    assert!(!scratch.files(".").iter().any(|name| name.ends_with(".partial")));
    scratch.run("report run --perfetto trace.pftrace").exits_with(2).complains("exists already");
    scratch.run("report run --perfetto trace.pftrace --force").exits_with(0);
}

#[test]
fn a_directory_as_target_of_traces_means_files_in_it() {
    let scratch = compared("--keep run");
    scratch.run("report run --perfetto traces/ --events traces/").exits_with(0).complains("traces/trace-cfs.pftrace");
    let expected = [
        "trace-cfs.pftrace",
        "trace-cfs.topology.json",
        "trace-cfs.txt",
        "trace-eevdf.pftrace",
        "trace-eevdf.topology.json",
        "trace-eevdf.txt",
    ];
    assert_eq!(scratch.files("traces"), expected);
    scratch
        .run("report run --perfetto traces")
        .exits_with(2)
        .complains("traces/trace-cfs.topology.json exists already");
}

#[test]
fn one_trace_goes_to_the_file_named_or_to_standard_output_and_several_do_not_fit_there() {
    let scratch = compared("--keep run");
    for option in ["--perfetto", "--events"] {
        let ran = scratch.run(&format!("report run {option} -")).exits_with(2);
        ran.complains("standard output holds one trace");
    }
    scratch.run(&format!("sim -m {MACHINE} -w {WORKLOAD} -s rr --out one")).exits_with(0);
    scratch.run("report one --perfetto x.pftrace --events x.txt").exits_with(0);
    assert_eq!(scratch.files(".").iter().filter(|name| name.starts_with('x')).count(), 3, "{:?}", scratch.files("."));
    let trace = scratch.command("report one --perfetto -").output().unwrap();
    assert!(trace.status.success() && trace.stdout == fs::read(scratch.path("x.pftrace")).unwrap());
    let events = scratch.run("report one --events -").exits_with(0);
    assert_eq!(events.out, read(&scratch, "x.txt"));
    assert!(!scratch.files(".").iter().any(|name| name.starts_with('-')), "no file is named after standard output");
}

#[test]
fn events_as_text_are_those_of_the_trial_whether_they_were_kept_or_not() {
    let scratch = Scratch::new();
    for (name, rest) in [("kept", "--trace full"), ("again", "")] {
        scratch.run(&format!("sim -m {MACHINE} -w {WORKLOAD} -s cfs {rest} --out {name}")).exits_with(0);
    }
    let lines = |name: &str| {
        let text = scratch.run(&format!("report {name} --events -")).exits_with(0).out;
        // Scores are sampled while a trial is simulated again, and were not kept.
        text.lines().filter(|line| !line.contains(" scores ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let kept = lines("kept");
    assert!(kept == lines("again"));
    let trial: Value = serde_json::from_str(&read(&scratch, "kept/trials/s0-t0000.json")).unwrap();
    let count = |word: &str| kept.iter().filter(|line| line.contains(word)).count() as f64;
    assert_eq!(Some(count(" sched_migrate ")), trial["measures"]["migrations_event"].as_f64());
    assert_eq!(kept[0], "0 cpu1 fork_exit event=fork task=main/0 parent=idle");
}

#[test]
fn a_reader_of_events_who_has_seen_enough_ends_the_program_quietly() {
    let scratch = Scratch::new();
    scratch
        .run(&format!("sim -m {MACHINE} -w hackbench:-T,-p,-f4,-g2,-l40 -s cfs --trace full --out run"))
        .exits_with(0);
    let line = format!("set -o pipefail; {} --quiet report run --events - | head -n 1", env!("CARGO_BIN_EXE_warmcore"));
    let output =
        std::process::Command::new("bash").args(["-c", &line]).current_dir(scratch.path(".")).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn markdown_needs_no_events_and_is_written_where_they_are_damaged() {
    let scratch = compared("--trace full --keep run");
    for name in scratch.files("run/trace") {
        scratch.write(&format!("run/trace/{name}"), "damaged");
    }
    scratch.run("report run").exits_with(1).complains("the events of trial");
    let markdown = scratch.run("report run --markdown -").exits_with(0).complains("checksum");
    let verdict: Value = serde_json::from_str(&read(&scratch, "run/verdict.json")).unwrap();
    assert!(markdown.out.contains(verdict["verdict"]["sentence"].as_str().unwrap()), "{}", markdown.out);
}

#[test]
fn the_patch_letter_has_a_normalised_baseline_and_the_direction() {
    let ran = compared("").run("report run --markdown -").exits_with(0);
    let line = ran.out.lines().find(|line| line.starts_with("hackbench ")).unwrap();
    assert!(line.contains("-T,-p,-f2,-g2,-l20") && line.contains("1.00 ("), "{line}");
    assert!(
        ran.out.contains("baseline cfs, patched eevdf; hackbench time, lower is better; 8 paired trials"),
        "{}",
        ran.out
    );
}

#[test]
fn two_runs_are_compared_on_one_page() {
    let scratch = compared("");
    scratch.run(&format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,eevdf --trials 8 --out other")).exits_with(0);
    scratch.run("report run other").exits_with(2);
    scratch.run("report run other --html both.html").exits_with(0);
    let page = read(&scratch, "both.html");
    assert!(page.contains("id=\"between\"") && page.contains("id=\"verdict-1\""));
    assert!(page.contains("<td class=\"n\" data-value=\"1\">1 [1, 1]</td>"), "equal runs have ratio 1");
    assert!(!page.contains("is another experiment"), "equal runs are one experiment");
}

#[test]
fn runs_of_different_experiments_are_compared_with_what_differs() {
    let scratch = compared("");
    let words = "-w hackbench:-T,-p,-f2,-g1,-l20 --max-time 5s --memory none";
    scratch.run(&format!("compare -m {MACHINE} {words} -s cfs,eevdf --trials 8 --out other")).exits_with(0);
    scratch.run("report run other --html both.html").exits_with(0);
    let page = read(&scratch, "both.html");
    let workload =
        format!("Run 2 is another experiment than run 1: workload hackbench:-T,-p,-f2,-g1,-l20 instead of {WORKLOAD}");
    assert!(page.contains(&workload));
    assert!(page.contains("longest time 5 s instead of no limit"));
}

#[test]
fn an_unfinished_run_is_shown_with_what_is_missing() {
    let scratch = compared("--keep run");
    fs::remove_file(scratch.path("run/trials/s1-t0003.json")).unwrap();
    fs::remove_file(scratch.path("run/checksums.sha256")).unwrap();
    scratch.run("report run").exits_with(0).complains("the run is incomplete: 7 of 8 trials are finished");
    let page = read(&scratch, "run/report.html");
    for text in
        ["the run is incomplete: 7 of 8 trials are finished", "the run is not finished: it has no list of checksums"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn a_changed_trial_is_left_out_and_lost_events_are_said_before_the_verdict_is_trusted() {
    for finished in [true, false] {
        let scratch = compared("--keep run");
        if !finished {
            fs::remove_file(scratch.path("run/checksums.sha256")).unwrap();
        }
        let name = "run/trials/s0-t0001.json";
        scratch.write(name, &read(&scratch, name).replace("\"events_lost\":0", "\"events_lost\":17"));
        scratch
            .run("report run")
            .exits_with(0)
            .complains("a trial was left out: run/trials/s0-t0001.json does not match its checksum")
            .complains("7 of 8 trials are finished");
        let page = read(&scratch, "run/report.html");
        assert_eq!(page.contains("the directory was changed after the run"), finished);
        assert!(!page.contains("17 events were not recorded"));
        vouch_for(&scratch, name);
        scratch.run("report run").exits_with(0);
        assert!(read(&scratch, "run/report.html").contains("17 events were not recorded"));
    }
}

/// Writes the sum of a trial into its list, as a program would have that wrote the trial as it is now.
fn vouch_for(scratch: &Scratch, trial: &str) {
    let list = trial.replace(".json", ".sha256");
    let name = trial.trim_start_matches("run/");
    let sum = warmcore_lab::files::sha256_of_file(&scratch.path(trial)).unwrap();
    let lines = read(scratch, &list);
    let line = |line: &str| if line.ends_with(name) { format!("{sum}  {name}\n") } else { format!("{line}\n") };
    scratch.write(&list, &lines.lines().map(line).collect::<String>());
}

#[test]
fn what_was_edited_in_a_run_that_was_cut_off_is_shown_by_nobody() {
    let scratch = compared("--keep run --trace full --headroom");
    fs::remove_file(scratch.path("run/checksums.sha256")).unwrap();
    scratch.run("report run --markdown -").exits_with(0).complains("oracle.json is left out: the run is not finished");
    let tables: Vec<String> =
        scratch.files("run/trace").into_iter().filter(|name| name.ends_with("/sched_switch.parquet")).collect();
    for name in &tables {
        let path = scratch.path(&format!("run/trace/{name}"));
        let mut bytes = fs::read(&path).unwrap();
        let half = bytes.len() / 2;
        bytes[half] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    for words in ["report run", "explain run", "explain --events run", "replay run --out replay.json", "group run"] {
        let ran = scratch.run(words).exits_with(1).complains("are not as they were written");
        ran.complains("sched_switch.parquet does not match its checksum");
    }
    scratch.run("report run --markdown -").exits_with(0).complains("sched_switch.parquet does not match its checksum");
    // What it is of is what all of it rests on.
    let experiment = read(&scratch, "run/experiment.toml");
    scratch.write("run/experiment.toml", &format!("{experiment}\n"));
    scratch.run("report run --markdown -").exits_with(2).complains("experiment.toml does not match its checksum");
}

#[test]
fn what_is_no_run_or_of_another_version_is_refused() {
    let scratch = compared("--keep run");
    scratch.write("file", "x");
    for words in ["report nothing", "report ."] {
        scratch.run(words).exits_with(2).complains("is not a run directory");
    }
    scratch.run("report file").exits_with(2).complains("this is no recording that can be read");
    for command in ["report --html page.html", "explain"] {
        scratch.run(&format!("{command} /dev/zero")).exits_with(2).complains("it is a device, and no file");
    }
    let experiment = read(&scratch, "run/experiment.toml");
    scratch.write("run/experiment.toml", &experiment.replace("tool_version = \"", "tool_version = \"9"));
    scratch.run("report run").exits_with(2).complains("the run was started by version 9");
    assert!(!scratch.path("run/report.html").exists());
}

#[test]
fn another_schema_version_is_named_and_refused_or_left_out() {
    let scratch = compared("--keep run");
    let of_another = |name: &str| {
        let text = read(&scratch, name);
        assert!(text.contains("\"warmcore-trial-"));
        scratch.write(name, &text.replace("\"warmcore-trial-", "\"warmcore-trial-9"));
        vouch_for(&scratch, name);
    };
    of_another("run/trials/s1-t0003.json");
    scratch.run("report run").exits_with(0).complains("1 trial file has another schema version");
    assert!(read(&scratch, "run/report.html").contains("1 trial file has another schema version"));
    for number in (0..8).filter(|number| *number != 3) {
        of_another(&format!("run/trials/s1-t{number:04}.json"));
    }
    scratch.run("report run").exits_with(2).complains("8 trial files have another schema version");
    let experiment = read(&scratch, "run/experiment.toml");
    scratch.write("run/experiment.toml", &experiment.replace("\"warmcore-experiment-", "\"warmcore-experiment-9"));
    scratch.run("report run").exits_with(2).complains("this version reads warmcore-experiment-2");
}

#[test]
fn a_run_without_its_machine_or_with_broken_events_is_refused_with_what_to_try() {
    let scratch = compared("--keep run --trace full");
    for name in scratch.files("run/trace").iter().filter(|name| name.ends_with("meta.parquet")) {
        fs::write(scratch.path(&format!("run/trace/{name}")), "PAR1").unwrap();
    }
    scratch.run("report run").exits_with(1).complains("remove the trace directory of that trial");
    fs::remove_dir_all(scratch.path("run/trace")).unwrap();
    scratch.run("report run").exits_with(0);
    fs::remove_file(scratch.path("run/machine.toml")).unwrap();
    scratch.run("report run").exits_with(2).complains("cannot read run/machine.toml");
}

#[test]
fn names_in_a_workload_are_text_and_never_markup() {
    let scratch = Scratch::new();
    let hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    let workload = serde_json::json!({"tasks": {hostile: {"loop": 3, "run": 1000, "sleep": 500}}, "global": {"default_policy": "SCHED_OTHER"}});
    scratch.write("hostile.json", &workload.to_string());
    scratch.run(&format!("compare -m {MACHINE} -w hostile.json -s cfs,rr --trials 2 --out run")).exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let page = read(&scratch, "run/report.html");
    assert_eq!(page.matches("<script>").count(), 1, "the page's own script is the only one that is not data");
    assert!(!page.contains("<img"), "no element comes from a name");
    for name in scratch.files("figures").iter().filter(|name| name.ends_with(".svg")) {
        let figure = read(&scratch, &format!("figures/{name}"));
        assert!(!figure.contains("<script") && !figure.contains("<img"), "{name}");
    }
}

/// Three tasks on one core: each scheduler has its chart, its scores, the choices with who left and why, and a sentence.
#[test]
fn a_lesson_shows_who_was_chosen_and_why_under_every_scheduler() {
    let scratch = Scratch::new();
    let compare = "compare -m 1s1n1l1c1t -w lesson/three-tasks -s rr,cfs,eevdf,ule --trials 1";
    scratch.run(&format!("{compare} --out run")).exits_with(0);
    scratch.run("report run --lesson lesson.html").exits_with(0);
    let page = read(&scratch, "lesson.html");
    // Events that were kept are without scores, and the lesson is the same.
    scratch.run(&format!("{compare} --trace full --out kept")).exits_with(0);
    scratch.run("report kept --lesson kept.html").exits_with(0);
    assert_eq!(
        read(&scratch, "kept.html").matches("Virtual deadline").count(),
        page.matches("Virtual deadline").count()
    );
    for scheduler in ["rr", "cfs", "eevdf", "ule"] {
        assert!(page.contains(&format!("<h2>{scheduler}</h2>")), "{scheduler}");
    }
    for words in [
        "Place in the queue",
        "Virtual deadline",
        "Interactivity penalty",
        "compute-a</span> had to leave",
        "editor</span> went to sleep",
    ] {
        assert!(page.contains(words), "{words}");
    }
    // CFS: the chosen one has the smallest virtual runtime of those that are listed, at every choice.
    let cfs = page.split("<h2>cfs</h2>").nth(1).and_then(|rest| rest.split("</section>").next()).unwrap();
    let cfs = cfs.replace("<span class=\"unbroken\">", "").replace("</span>", "");
    let rows: Vec<Vec<&str>> = cfs
        .split("<tr>")
        .skip(2)
        .map(|row| row.split("<td").skip(1).filter_map(|cell| cell.split('>').nth(1)?.split('<').next()).collect())
        .collect();
    assert!(rows.len() > 10);
    for row in &rows {
        let value_ns = |text: &str| -> f64 {
            let words: Vec<&str> = text.rsplit(' ').collect();
            let unit =
                [("ns", 1.0), ("us", 1e3), ("ms", 1e6)].into_iter().find(|(name, _)| *name == words[0]).unwrap().1;
            words[1].parse::<f64>().unwrap() * unit
        };
        let (chosen, values) = (row[1], row[3].split("; ").collect::<Vec<_>>());
        assert!(values[0].starts_with(chosen), "the chosen one is listed first: {row:?}");
        let smallest = values.iter().map(|value| value_ns(value)).fold(f64::INFINITY, f64::min);
        assert!(value_ns(values[0]) <= smallest, "the smallest virtual runtime runs: {row:?}");
    }
    scratch.run("report run --lesson lesson.html").exits_with(2).complains("lesson.html").did_not_panic();
    scratch.run("report run --lesson again.html").exits_with(0);
    assert!(read(&scratch, "again.html") == page);
    let crowd = "compare -m 2s1n1l2c1t -w spin:-n9,-d10ms -s eevdf --trials 1 --out crowd";
    scratch.run(crowd).exits_with(0);
    scratch.run("report crowd --lesson crowd.html").exits_with(2).complains("8 tasks at most").did_not_panic();
}

#[test]
fn the_data_of_a_timeline_are_the_stays_on_cpus_and_add_up_to_the_run_time() {
    let scratch = Scratch::new();
    scratch.run("compare -m 1s1n1l2c1t -w spin:-n3,-d20ms -s cfs --trials 1 --out run").exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let name =
        scratch.files("figures").into_iter().find(|file| file.starts_with("timeline-cpus") && file.ends_with("csv"));
    let data = read(&scratch, &format!("figures/{}", name.expect("there is one")));
    let mut lines = data.lines();
    assert_eq!(lines.next(), Some("cpu,llc,start_ns,end_ns,task,run_delay_ns"));
    let cells = lines.map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let sum: u64 = cells.map(|cells| cells[3].parse::<u64>().unwrap() - cells[2].parse::<u64>().unwrap()).sum();
    let trial: Value = serde_json::from_str(&read(&scratch, "run/trials/s0-t0000.json")).unwrap();
    assert_eq!(sum as f64, trial["measures"]["run_ns"].as_f64().unwrap());
}
