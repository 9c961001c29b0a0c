//! Every command once, on input that is right: what it prints, and that what one command writes another one reads.

use std::fs;

use crate::common::{MACHINE, Scratch, WORKLOAD};
use warmcore_testing::skip;

#[test]
fn compare_prints_a_line_per_scheduler_and_a_sentence() {
    let scratch = Scratch::new();
    let ran = scratch
        .run(&format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,eevdf:hz=1000,rr --keep nothing"))
        .exits_with(0);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("scheduler") && lines[0].contains(" time ") && lines[0].contains("ratio [95 %]"));
    assert!(lines[1].starts_with("cfs ") && lines[1].contains("baseline"));
    assert!(lines[2].starts_with("eevdf:hz=1000 "));
    assert!(lines[3].starts_with("rr "));
    let words: Vec<&str> = ran.out.split_whitespace().collect();
    assert!(words.join(" ").contains("10 paired trials, lower is better."), "{}", ran.out);
    assert!(
        ran.out.contains("\nwhere the time went") && words.join(" ").contains("ended last there (under cfs "),
        "{}",
        ran.out
    );
}

/// Sixteen threads on LLCs of eight: refused once per epoch, and no other scheduler tells decisions.
#[test]
fn compare_and_sim_tell_what_cache_awareness_decided_and_why() {
    let scratch = Scratch::new();
    let subject = "-m 1s1n2l8c1t -w spin:-n16,-p0,-u100ms,-d500ms";
    let brief = scratch.run(&format!("compare {subject} -s eevdf,cache-aware --trials 3 --keep nothing")).exits_with(0);
    assert!(!brief.out.contains("decided"), "{}", brief.out);
    let ran =
        scratch.run(&format!("compare {subject} -s eevdf,cache-aware --trials 3 --keep nothing -v")).exits_with(0);
    assert!(ran.out.contains("\ncache-aware decided (median of the trials):\n"), "{}", ran.out);
    assert!(ran.out.contains(" times: more threads than cores\n"), "{}", ran.out);
    assert!(!ran.out.contains("eevdf decided"), "{}", ran.out);
    let json = scratch.run(&format!("compare {subject} -s eevdf,cache-aware --trials 3 --keep nothing --json"));
    let document: serde_json::Value = serde_json::from_str(&json.exits_with(0).out).unwrap();
    assert_eq!(document["schedulers"][0]["decisions"], serde_json::json!([]));
    let decisions = document["schedulers"][1]["decisions"].as_array().unwrap();
    let refused = decisions.iter().find(|decision| decision["what"] == "aggregation refused").unwrap();
    assert_eq!(refused["why"], "more threads than cores");
    assert!(refused["median"].as_f64().unwrap() > 10.0 && refused["points"].as_array().unwrap().len() == 3);
    let ran = scratch.run(&format!("sim {subject} -s cache-aware")).exits_with(0);
    assert!(ran.out.contains("aggregation refused "), "{}", ran.out);
}

#[test]
fn the_baseline_is_the_first_scheduler_or_the_one_asked_for() {
    let scratch = Scratch::new();
    let words = format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,rr --keep nothing --trials 2");
    let baseline = |ran: crate::common::Ran| {
        let line = ran.out.lines().find(|line| line.contains("baseline")).map(str::to_owned);
        line.expect("there is a baseline").split(' ').next().unwrap().to_owned()
    };
    assert_eq!(baseline(scratch.run(&words).exits_with(0)), "cfs");
    assert_eq!(baseline(scratch.run(&format!("{words} --baseline rr")).exits_with(0)), "rr");
}

#[test]
fn few_trials_give_no_verdict_and_a_warning() {
    let scratch = Scratch::new();
    let ran =
        scratch.run(&format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,rr --keep nothing --trials 3")).exits_with(0);
    assert!(ran.out.contains("too few"), "{}", ran.out);
    ran.complains("use at least 8");
}

#[test]
fn a_run_cut_off_counts_as_infinite_only_where_a_time_is_compared() {
    let scratch = Scratch::new();
    let words = format!("compare -m {MACHINE} -w spin:-n4 -s cfs,rr --keep nothing --trials 2 --max-time 20ms");
    let ran = scratch.run(&words).exits_with(0).complains("what they did until then counts");
    assert!(!ran.error.contains("infinite"), "{}", ran.error);
    scratch.run(&format!("{words} --metric elapsed_ns")).exits_with(0).complains("counts as infinite");
}

#[test]
fn shares_by_weight_are_fair_and_equal_shares_of_unequal_weights_are_not() {
    let scratch = Scratch::new();
    let words = "compare -m 1s1n1l1c1t -w spin:-n3,-N0:0:5 -s eevdf,rr --keep nothing --trials 1 --max-time 3s --json";
    let document: serde_json::Value =
        serde_json::from_str(&scratch.run(words).exits_with(0).out).expect("one document");
    let spread = |index: usize| {
        document["schedulers"][index]["measures"]["cpu_share_deviation"]["summary"]["median"]
            .as_f64()
            .expect("a number")
    };
    assert!(spread(0) < 0.1 && spread(1) > 0.5, "eevdf {}, rr {}", spread(0), spread(1));
}

#[test]
fn long_texts_of_schedulers_have_short_names_and_a_key() {
    let scratch = Scratch::new();
    let tuned = |tolerance: u32| format!("cache-aware:aggr_tolerance={tolerance},epoch_affinity_timeout=7");
    let schedulers = format!("eevdf -s {} -s {}", tuned(3), tuned(30));
    let words = format!("compare -m 2s1n2l2c1t -w {WORKLOAD} --keep nothing --trials 2 -s {schedulers}");
    let out = scratch.run(&words).exits_with(0).out;
    let short = |tolerance: u32| format!("cache-aware:aggr_tolerance={tolerance}");
    let key = [3, 30].map(|tolerance| format!("{} is {}\n", short(tolerance), tuned(tolerance))).concat();
    assert!(out.starts_with(&format!("{key}\n")), "{out}");
    assert!([3, 30].into_iter().all(|tolerance| out.contains(&format!("\n{} ", short(tolerance)))), "{out}");
    assert_eq!(out.matches("epoch_affinity_timeout").count(), 2, "nowhere but in the key: {out}");
}

#[test]
fn every_preset_is_listed_shown_and_converted() {
    let scratch = Scratch::new();
    let list = scratch.run("list machines").exits_with(0).out;
    assert!(list.lines().count() > 12, "{list}");
    for name in ["genoa96", "hygon384"] {
        assert!(list.contains(name), "{list}");
        scratch.run(&format!("machine show {name}")).exits_with(0);
        scratch.run(&format!("machine convert {name} --out {name}.toml")).exits_with(0);
        let again = scratch.run(&format!("machine convert {name}.toml")).exits_with(0).out;
        assert_eq!(again, fs::read_to_string(scratch.path(&format!("{name}.toml"))).unwrap());
        scratch.run(&format!("machine convert {name} --to xml --out {name}.xml")).exits_with(0);
        scratch.run(&format!("machine show {name}.xml")).exits_with(0);
    }
    scratch.run("machine convert genoa96 --out genoa96.toml").exits_with(2).complains("exists already");
}

/// Only a machine that has some tells them.
#[test]
fn the_document_of_a_machine_has_its_priorities() {
    let scratch = Scratch::new();
    let ranked = "[topology]\nshape = \"1s1n1l3c1t\"\npriorities = [{ cpus = \"0\", priority = 67 }, { cpus = \"1-2\", priority = 40 }]\n";
    fs::write(scratch.path("ranked.toml"), ranked).unwrap();
    let ranks = |machine: &str| {
        let out = scratch.run(&format!("machine show {machine} --json")).exits_with(0).out;
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
        document["cpus"].as_array().unwrap().iter().map(|cpu| cpu["priority"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!([ranks("./ranked.toml"), ranks("1s1n1l3c1t")], [vec![Some(67), Some(40), Some(40)], vec![None; 3]]);
}

#[test]
fn a_synthetic_string_names_a_machine() {
    let scratch = Scratch::new();
    let ran = scratch.run_with(&["machine", "convert", "Package:2 L3Cache:1 Core:4 PU:2", "--to"], "synthetic");
    let ran = ran.exits_with(0);
    assert!(ran.out.contains("Package:2"), "{}", ran.out);
}

#[test]
fn this_computer_is_detected_and_its_snapshot_is_the_same_machine() {
    let scratch = Scratch::new();
    let live = scratch.run("machine show host --toml");
    if live.code == Some(4) {
        skip!("this computer's /sys has no topology");
    }
    let live = live.exits_with(0);
    scratch.run("machine convert host --to snapshot --out snapshot").exits_with(0);
    let copied = scratch.run("machine show snapshot --toml").exits_with(0);
    let cpus = |text: &str| text.lines().filter(|line| line.contains("cpu")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cpus(&live.out), cpus(&copied.out));
    scratch.run("machine convert host --to snapshot --out snapshot").exits_with(2).complains("exists already");
}

#[test]
fn a_generated_workload_survives_its_file() {
    let scratch = Scratch::new();
    scratch.run(&format!("workload convert {WORKLOAD} --out w.json")).exits_with(0);
    let direct = scratch.run(&format!("sim -m {MACHINE} -w {WORKLOAD} -s eevdf --json")).exits_with(0).out;
    let through_file = scratch.run(&format!("sim -m {MACHINE} -w w.json -s eevdf --json")).exits_with(0).out;
    let measures = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["measures"].clone();
    assert_eq!(measures(&direct), measures(&through_file));
    scratch.run("workload show w.json").exits_with(0);
}

#[test]
fn what_a_workload_draws_is_shown_and_bad_draws_are_refused_with_their_place() {
    let scratch = Scratch::new();
    let file = |draw: &str| {
        format!(
            r#"{{ "tasks": {{ "a": {{ "instance": 0 }} }},
                "warmcore": {{ "tasks": {{ "a": {{ "instances": 2, "program": [{{ "sleep_ns": {draw} }}, {{ "run_ns": 5000 }}] }} }} }} }}"#
        )
    };
    scratch.write("w.json", &file(r#"{ "exponential": { "mean_ns": 1000000 } }"#));
    let shown = scratch.run("workload show w.json").exits_with(0).out;
    assert!(shown.contains("a draws: sleep exponential, mean 1ms"), "{shown}");
    scratch.write("bad.json", &file(r#"{ "exponential": { "mean_ns": 3600000000001 } }"#));
    let refused = scratch.run(&format!("sim -m {MACHINE} -w bad.json -s eevdf")).exits_with(2);
    refused.complains("warmcore.tasks.a.program[0]").complains("longer than an hour");
}

#[test]
fn a_workload_comes_from_standard_input() {
    let scratch = Scratch::new();
    scratch.write("w.json", r#"{ "tasks": { "a": { "loop": 3, "run": 100, "sleep": 100 } } }"#);
    let file = fs::File::open(scratch.path("w.json")).unwrap();
    let output = scratch.command("workload show -").stdin(file).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn workloads_and_schedulers_are_listed_with_what_can_be_set() {
    let scratch = Scratch::new();
    let workloads = scratch.run("list workloads").exits_with(0).out;
    for name in ["hackbench", "schbench", "spin", "periodic", "pingpong", "forkjoin", "pipeline"] {
        assert!(workloads.contains(&format!("{name}: ")), "{name}");
    }
    let schedulers = scratch.run("list schedulers").exits_with(0).out;
    for name in [
        "cache-aware",
        "cfs",
        "dio",
        "eevdf",
        "fewest-tasks",
        "fifo",
        "random",
        "rr",
        "scx-native",
        "topology-aware",
        "ule",
    ] {
        assert!(schedulers.contains(&format!("\n{name} ")), "{name}");
    }
    let eevdf = scratch.run("scheduler eevdf:hz=1000").exits_with(0).out;
    let hz = eevdf.lines().find(|line| line.starts_with("hz ")).expect("hz is a tunable");
    assert_eq!(hz.split_whitespace().take(3).collect::<Vec<_>>(), ["hz", "1000", "250"]);
}

/// What a program needs that is to choose values: kind, bounds and default as numbers, and whether ratios matter.
#[test]
fn tunables_are_typed_in_json() {
    let scratch = Scratch::new();
    let text = scratch.run("scheduler topology-aware --json").exits_with(0).out;
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let tunables = document["schedulers"][0]["tunables"].as_array().expect("a list");
    let named = |name: &str| tunables.iter().find(|tunable| tunable["name"] == name).expect("it is a tunable").clone();
    let without_doc = |name: &str| {
        let mut tunable = named(name);
        assert!(tunable["doc"].take().as_str().is_some_and(|doc| !doc.is_empty()), "{name}");
        tunable
    };
    assert_eq!(
        without_doc("hz"),
        serde_json::json!({ "name": "hz", "default": 250, "kind": "count", "low": 100, "high": 1000, "unit": "Hz",
                            "scale": "logarithmic", "doc": null })
    );
    assert_eq!(
        without_doc("mode"),
        serde_json::json!({ "name": "mode", "default": 0, "kind": "choice", "words": ["prefix", "ladder"], "doc": null })
    );
    assert_eq!((&named("hrtick")["kind"], &named("hrtick")["default"]), (&"switch".into(), &1.into()));
}

#[test]
fn a_tunable_set_twice_is_bad_input() {
    let scratch = Scratch::new();
    let refused = scratch.run("compare -m 1s1n1l2c1t -w spin:-n1,-d10ms -s eevdf:hz=100,hz=1000").exits_with(2);
    assert!(refused.error.contains("`hz` is set twice"), "{}", refused.error);
}

#[test]
fn completions_and_manual_pages_are_made() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = scratch.run(&format!("reference completions {shell}")).exits_with(0).out;
        for name in ["genoa96", "schbench", "cache-aware", "answers/smt-pool"] {
            assert!(script.contains(name), "{shell} completes {name}");
        }
    }
    // Clap's own lines for fish have no names of what is typed without an option, and none behind a comma.
    let script = scratch.run("reference completions fish").exits_with(0).out;
    let has = |typed: &str, what: &str, name: &str| {
        let begins = format!("complete -c warmcore -n \"{typed}\" {what}");
        script.lines().any(|line| line.starts_with(&begins) && line.split([' ', '"', ')']).any(|word| word == name))
    };
    let study_run = "__fish_warmcore_using_subcommand study; and __fish_seen_subcommand_from run";
    assert!(has(study_run, "-a \"", "answers/smt-pool"), "{script}");
    assert!(has("__fish_warmcore_using_subcommand scheduler", "-a \"", "cache-aware"), "{script}");
    let machine_show = "__fish_warmcore_using_subcommand machine; and __fish_seen_subcommand_from show";
    assert!(has(machine_show, "-a \"", "genoa96"), "{script}");
    let list = "-s s -l schedulers -r -f -a \"(__fish_append ,";
    assert!(has("__fish_warmcore_using_subcommand compare", list, "cache-aware"), "{script}");
    let script = scratch.run("reference completions bash").exits_with(0).out;
    let typed = "COMP_WORDS=(warmcore compare -s eevdf,cache) COMP_CWORD=3\n_warmcore warmcore eevdf,cache -s";
    scratch.write("typed", &format!("{script}\n{typed}\necho \"${{COMPREPLY[@]}}\"\n"));
    let completed = std::process::Command::new("bash").arg(scratch.path("typed")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout), "eevdf,cache-aware\n");
    assert!(scratch.run("reference man").exits_with(0).out.contains(".TH warmcore"));
    scratch.run("reference man --out pages").exits_with(0);
    assert!(scratch.files("pages").contains(&"warmcore-compare.1".to_owned()));
}

#[test]
fn a_workload_runs_with_real_threads() {
    let scratch = Scratch::new();
    let ran = scratch.run("workload run hackbench:-T,-p,-f1,-g1,-l5").exits_with(0);
    assert!(ran.out.starts_with("Running in threaded mode with 1 groups using 2 file descriptors each (== 2 tasks)\n"));
    assert!(ran.out.contains("\nTime: "), "{}", ran.out);
    let ran = scratch.run("workload run pingpong:-n1,-l10 --json").exits_with(0);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
    assert_eq!((&document["schema"], &document["ended"]), (&"warmcore-native-1".into(), &"all_exited".into()));
    assert_eq!(document["recorders"][0]["samples_ns"].as_array().map(Vec::len), Some(10));
}

#[test]
fn a_sweep_takes_what_is_named_twice_once_and_goes_on_in_its_directory() {
    let scratch = Scratch::new();
    let words = "sweep -m 2s1n1l2c1t,1s1n2l2c1t,2s1n1l2c1t -w spin:-n3,-d5ms -s cfs,rr -n 2 --json --out kept";
    let first = scratch.run(words).exits_with(0).out;
    let document: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(document["rows"].as_array().unwrap().len(), 2, "twice would count twice in the means");
    let trials =
        |files: Vec<String>| files.into_iter().filter(|name| name.ends_with("-t0001.json")).collect::<Vec<_>>();
    let kept = trials(scratch.files("kept"));
    assert_eq!(kept.len(), 4, "two machines under two schedulers: {kept:?}");
    let [lost, other] = [0, 1].map(|index: usize| scratch.path("kept").join(&kept[index]));
    let before = std::fs::metadata(&other).unwrap().modified().unwrap();
    std::fs::remove_file(&lost).unwrap();
    assert_eq!(scratch.run(words).exits_with(0).out, first);
    assert!(lost.is_file() && std::fs::metadata(&other).unwrap().modified().unwrap() == before);
    scratch.run(&words.replace("-n 2", "-n 3")).exits_with(2).did_not_panic();
}

#[test]
fn a_sweep_is_a_table_of_machines_and_workloads_with_means_and_losses() {
    let scratch = Scratch::new();
    scratch.write("workloads.txt", "# a comment\nhackbench:-T,-p,-f2,-g1,-l20\n\nspin:-n4,-d20ms\n");
    let words = "sweep -m 2s1n1l2c1t,1s1n2l2c1t -w @workloads.txt -s cfs,rr -n 2 --json --out kept";
    let document: serde_json::Value =
        serde_json::from_str(&scratch.run(words).exits_with(0).out).expect("one document");
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(4));
    assert_eq!((&document["baseline"], &document["candidates"][0]), (&"cfs".into(), &"rr".into()));
    // Two metrics: a mean over a machine's rows would mix them.
    assert!(document["by_metric"].as_array().map(Vec::len) == Some(2) && document.get("by_machine").is_none());
    let files = scratch.files("kept");
    assert!(files.contains(&"sweep.md".into()) && files.contains(&"experiments/004-1s1n2l2c1t/verdict.json".into()));
    let verdicts = |margin: u32| {
        let line = format!("sweep -m 2s1n1l2c1t -w @workloads.txt -s cfs,rr -n 8 --margin {margin} --json");
        let text = scratch.run(&line).exits_with(0).out;
        ["better", "worse", "tied"].map(|word| text.matches(&format!("\"{word}\"")).count())
    };
    let [strict, wide] = [verdicts(0), verdicts(50)];
    assert!(strict[0] + strict[1] > wide[0] + wide[1] && wide[2] > strict[2], "{strict:?} {wide:?}");
    scratch.run("sweep -m 1s1n2l2c1t -w spin:-n4,-d2ms -s fewest-tasks,cdf -n 1 --memory exact").exits_with(0);
    scratch.run("sweep -m 2s1n1l2c1t -w spin -s cfs,rr --margin 51").exits_with(2).complains("percentage of 0 to 50");
    let alone = scratch.run("sweep -m 2s1n1l2c1t -w spin:-n4,-d2ms -w spin:-n4,-d2ms -s cfs -n 2").exits_with(0).out;
    assert!(alone.matches("spin:").count() == 1 && !alone.contains("mean over"), "no gains of one scheduler: {alone}");
    // In turns of 10 s six of eight tasks never get a CPU.
    let starving = "sweep -m 1s1n1l2c1t -w spin:-n6,-d300ms+periodic:-n2,-r300us,-s3ms,-d300ms,-j10 -s eevdf,fifo:slice_ns=10s -n 8";
    let starving = scratch.run(starving).exits_with(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "0 of 0 gains are losses of more than 2 %; 1 more cell with tasks that wait without end; the worst:";
    assert!(starving.contains(said) && starving.ends_with("on 1s1n1l2c1t: starves"), "{starving}");
    scratch.run("sweep -m nothing -w spin -s cfs,rr").exits_with(2).did_not_panic();
    scratch.run("sweep -m 2s1n1l2c1t -w @none.txt -s cfs,rr").exits_with(2).complains("cannot read none.txt");
}

#[test]
fn a_metric_that_is_zero_under_the_baseline_gives_no_ratio_anywhere_and_another_one_is_judged() {
    let scratch = Scratch::new();
    // Two tasks on two CPUs never move under the first scheduler, nor under the second.
    let words =
        format!("compare -m {MACHINE} -w spin:-n1,-d20ms -s cfs,eevdf --metric migrations_ran --trials 8 --out run");
    let ran = scratch.run(&words).exits_with(0);
    assert!(ran.out.contains("migrations ran is not measurable here: it is nearly zero under cfs"), "{}", ran.out);
    assert!(ran.out.contains("the verdict is about work done"), "{}", ran.out);
    let read = |name: &str| fs::read_to_string(scratch.path(&format!("run/{name}"))).unwrap();
    let (json, page) = (read("verdict.json"), read("report.html"));
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&document["primary"], &document["replaced"]["metric"]), (&"work_ns".into(), &"migrations_ran".into()));
    assert!(document["schedulers"][1]["measures"]["migrations_ran"]["comparison"]["ratio"].is_null());
    assert!(page.contains("migrations ran is not measurable here"));
    for text in [&ran.out, &json] {
        assert!(!text.contains("NaN") && !text.contains("infinit") && !text.contains(" inf"), "{text}");
    }
}

/// The sleeper runs as soon as it wakes under `cfs` and `ule`; in `rr` the task that only runs has its turn first.
#[test]
fn waits_that_only_one_scheduler_has_are_worse_without_a_ratio_and_a_sweep_says_where_another_metric_stands() {
    let scratch = Scratch::new();
    let sleeper = r#"{ "tasks": { "hog": { "loop": -1, "run": 100000 }, "sleeper": { "loop": -1, "run": 500, "sleep": 20000 } },
        "global": { "duration": 8 } }"#;
    scratch.write("sleeper.json", sleeper);
    let said = |command: &str| {
        let ran = scratch.run(&format!("{command} -m 1s1n1l1c1t -w sleeper.json -n 8")).exits_with(0);
        ran.out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let compared = said("compare -s cfs,rr --keep nothing");
    assert!(compared.contains(" - worse "), "{compared}");
    assert!(compared.contains("is worse: wakeup p99 is 9.95 ms, which has no ratio to that of cfs"), "{compared}");
    let swept = said("sweep -s cfs,rr");
    assert!(swept.contains("wakeup_p99_ns 700 ns - worse"), "{swept}");
    let lost = "0 of 0 gains are losses of more than 2 %; 1 more cell worse without a ratio; the worst: - rr `sleeper.json` on 1s1n1l1c1t: worse";
    assert!(swept.ends_with(lost), "{swept}");
    let swept = said("sweep -s cfs,ule --out kept");
    let why = "Gains of another metric than the workload's own: - `sleeper.json` on 1s1n1l1c1t: wakeup p99 is not measurable here: it is nearly \
               zero under cfs (700 ns under cfs, 700 ns under ule), so the verdict is about work done";
    assert!(swept.contains("work_ns") && swept.contains(why), "{swept}");
    let [json, page] =
        ["json", "md"].map(|kind| fs::read_to_string(scratch.path(&format!("kept/sweep.{kind}"))).unwrap());
    assert!(page.contains("nearly zero under cfs (700 ns under cfs"), "{page}");
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["rows"][0]["replaced"]["metric"], "wakeup_p99_ns");
}

#[test]
fn a_metric_that_no_trial_has_a_value_of_is_replaced_and_no_error_after_the_run() {
    let scratch = Scratch::new();
    // Page tables are walked with `--memory exact-paged` alone.
    let words =
        format!("compare -m {MACHINE} -w spin:-n2,-d5ms,--profile=mysql-select -s cfs,eevdf --trials 8 --keep nothing");
    let ran = scratch.run(&format!("{words} --metric page_walks_pki")).exits_with(0);
    let said = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("is not measurable here: no trial has a value of it, so the verdict is about work done"),
        "{said}"
    );
}

#[test]
fn the_margin_decides_what_a_tie_is() {
    let scratch = Scratch::new();
    let finding = |margin: &str| {
        let words = format!(
            "compare -m 2s1n1l2c1t -w spin:-n9,-d200ms -s cfs,rr --keep nothing --json --trials 8 --margin {margin}"
        );
        let document: serde_json::Value =
            serde_json::from_str(&scratch.run(&words).exits_with(0).out).expect("one document");
        document["schedulers"][1]["measures"]["work_ns"]["finding"].as_str().unwrap().to_owned()
    };
    assert_eq!((finding("50%").as_str(), finding("0").as_str()), ("tied", "worse"));
    let words = format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs --keep nothing --margin much");
    scratch.run(&words).exits_with(2).complains("not a percentage");
}

#[test]
fn a_template_is_written_shown_and_run_and_a_fitted_profile_is_taken_in_both_formats() {
    let scratch = Scratch::new();
    scratch.run("reference workload --out mine.json").exits_with(0);
    scratch.run("reference workload --out mine.json").exits_with(2).complains("exists already");
    assert!(!scratch.run("workload show mine.json").exits_with(0).out.contains("Not modelled"));
    scratch.run(&format!("compare -m {MACHINE} -w mine.json -s cfs,eevdf --trials 1 --keep nothing")).exits_with(0);
    let counters = "name = \"own\"\n[[point]]\ncapacity = \"48KiB\"\nways = 12\nmpki = 25.0\n[[point]]\ncapacity = \"2MiB\"\nways = 16\nmpki = 6.1\n";
    scratch.write("counters.toml", counters);
    for format in ["toml", "json"] {
        scratch.run(&format!("workload fit counters.toml --to {format} --out own.{format}")).exits_with(0);
    }
    scratch.write(
        "task.json",
        r#"{ "tasks": { "a": { "loop": 3, "run": 500 } }, "warmcore": { "tasks": { "a": { "profile": "own" } } } }"#,
    );
    let elapsed = |profiles: &str| {
        let words = format!("sim -m {MACHINE} -w task.json -s eevdf --json --profiles {profiles}");
        let trial: serde_json::Value = serde_json::from_str(&scratch.run(&words).exits_with(0).out).unwrap();
        trial["elapsed_ns"].as_u64().unwrap()
    };
    assert_eq!(elapsed("own.toml"), elapsed("own.json"));
}

#[test]
fn compare_tells_what_placements_took_of_those_who_count_them() {
    let scratch = Scratch::new();
    let subject = "compare -m 2s1n2l4c1t -w periodic:-n8,-d50ms --trials 2";
    let ran = scratch.run(&format!("{subject} -s rr,random --out run -v")).exits_with(0);
    assert!(ran.out.contains(" placements decided, each looked at 4.0 things and took 40 ns\n"), "{}", ran.out);
    let verdict = fs::read_to_string(scratch.path("run/verdict.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&verdict).unwrap();
    let points = |scheduler: usize, name: &str| document["schedulers"][scheduler]["measures"][name]["points"].clone();
    let [decisions, looked_at, cost] =
        ["placement_decisions", "placement_looked_at", "placement_cost_ns"].map(|name| points(1, name)[0].as_f64());
    assert_eq!(looked_at, decisions.map(|decisions| 4.0 * decisions));
    assert_eq!(cost, decisions.map(|decisions| 40.0 * decisions));
    assert_eq!(points(0, "placement_decisions"), serde_json::json!([null, null]));
    // Read back it is the same; where nobody counts there is nothing to tell.
    scratch.run("report run --html again.html --markdown again.md").exits_with(0);
    let again = |name: &str| fs::read_to_string(scratch.path(name)).unwrap();
    assert!(again("again.html").contains("placements</th>") && again("again.md").contains("- random: "), "told again");
    let json = scratch.run(&format!("{subject} -s rr,eevdf --keep nothing --json")).exits_with(0).out;
    assert!(!json.contains("placement_decisions"));
    let judged =
        scratch.run(&format!("{subject} -s fewest-tasks,random --keep nothing --metric placement_decision_ns"));
    assert!(judged.exits_with(0).out.contains("cost of a placement"), "it can be judged");
}

#[test]
fn a_warm_up_counts_nowhere_and_stands_in_the_verdict_s_conditions() {
    let scratch = Scratch::new();
    let compare = |rest: &str| {
        let words = format!("compare -m {MACHINE} -w periodic:-n6,-d60ms -s cfs,rr -n 2 --keep nothing {rest}");
        scratch.run(&words).exits_with(0).out
    };
    let document =
        |rest: &str| -> serde_json::Value { serde_json::from_str(&compare(&format!("--json {rest}"))).unwrap() };
    let (by_default, whole, asked) = (document(""), document("--warm-up 0"), document("--warm-up 30ms"));
    // A percentile of a workload that runs for a time has a warm-up without being asked, a third of a short run.
    let of = |document: &serde_json::Value| document["experiment"]["warm_up_ns"].as_u64();
    assert_eq!((of(&by_default), of(&whole), of(&asked)), (Some(20_000_000), None, Some(30_000_000)));
    assert_eq!(by_default["conditions"][0], "the first 20 ms of each run do not count (--warm-up)");
    assert!(!whole["conditions"].to_string().contains("--warm-up"), "{}", whole["conditions"]);
    let wakeups = |document: &serde_json::Value| {
        document["schedulers"][0]["measures"]["wakeups"]["summary"]["median"].as_f64().unwrap()
    };
    assert!(wakeups(&asked) < wakeups(&by_default) && wakeups(&by_default) < wakeups(&whole));
    assert!(compare("").contains("Condition: the first 20 ms of each run do not count"));
    assert_eq!(of(&document("--metric work_ns")), None, "the work done is no matter of the tail");
}

#[test]
fn help_names_every_background_that_comes_with_the_program() {
    for command in ["compare", "sim", "machine show", "validate"] {
        let help = Scratch::new().run(&format!("{command} --help")).exits_with(0).out;
        for background in warmcore_topology::backgrounds().unwrap() {
            assert!(help.contains(&background.name), "{command} --help does not name {}", background.name);
        }
    }
}

/// Three tasks that never sleep wake once each.
#[test]
fn a_percentile_of_few_events_is_left_out_of_every_table_and_that_is_said_once() {
    let scratch = Scratch::new();
    let left_out = "wake p99 is left out where a trial has fewer than 100 events (3 here).";
    let run =
        |more: &str| scratch.run(&format!("compare -m 1s1n1l2c1t -w spin:-n3,-d20ms -s cfs,rr --trials 1 {more}"));
    let detailed = run("-v").exits_with(0).out;
    assert_eq!((detailed.matches(left_out).count(), detailed.matches("wake p99").count()), (1, 1), "{detailed}");
    let usual = run("--out run").exits_with(0).out;
    assert!(!usual.contains("wake p99"), "a column without values: {usual}");
    let page = fs::read_to_string(scratch.path("run/report.html")).unwrap();
    assert!(page.contains(left_out), "the page's table of the verdict");
    assert!(!page.contains(">wake p99</th>") && page.contains(">violation</th>"), "a column without values");
    let verdict: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(scratch.path("run/verdict.json")).unwrap()).unwrap();
    let of = |name: &str| verdict["schedulers"][0]["measures"][name]["summary"]["median"].as_f64();
    assert!(of("wakeups") == Some(3.0) && of("wakeup_p99_ns").is_some(), "the document has the number");
    let sim = scratch.run("sim -m 1s1n1l2c1t -w spin:-n3,-d20ms -s cfs").exits_with(0).out;
    let row = |name: &str| sim.lines().any(|line| line.starts_with(&format!("{name} ")));
    assert!(row("wakeup_p50_ns") && row("wakeup_max_ns") && !row("wakeup_p99_ns"), "{sim}");
    let said = sim.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("wakeup_p99_ns") && said.contains("left out where a trial has fewer than 100 events"),
        "{sim}"
    );
}
