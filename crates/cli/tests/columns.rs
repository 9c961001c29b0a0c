//! Columns that differ in more than their scheduler: CPUs, placement, hardware threads, workload, machine, command. What comes out is
//! what a calculation on paper says.

use std::fs;

use crate::common::{Ran, Scratch};
use serde_json::Value;

/// The ratio to the first column of each other column.
fn ratios(scratch: &Scratch, words: &str) -> Vec<f64> {
    ratios_of(scratch.run(words))
}

fn ratios_of(ran: Ran) -> Vec<f64> {
    let document: Value = serde_json::from_str(&ran.exits_with(0).out).unwrap();
    let primary = document["primary"].as_str().unwrap().to_owned();
    let columns = document["schedulers"].as_array().unwrap().iter().skip(1);
    columns.map(|column| column["measures"][&primary]["comparison"]["ratio"].as_f64().unwrap()).collect()
}

fn is_near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.02
}

#[test]
fn work_machine_and_hardware_threads_are_what_a_calculation_says() {
    let scratch = Scratch::new();
    // Twice the work takes twice the time, on half of the CPUs as well; twice the CPUs take half.
    let words = "compare --json --keep nothing -n 2 -m 1s1n1l4c1t -w forkjoin:-n8,-i1,-w100ms -s";
    let columns = "eevdf,eevdf@workload=forkjoin:-n8,-i1,-w200ms,eevdf@cpus=0-1,eevdf@machine=1s1n1l8c1t";
    let found = ratios(&scratch, &format!("{words} {columns}"));
    assert!(found.iter().zip([2.0, 2.0, 0.5]).all(|(found, paper)| is_near(*found, paper)), "{found:?}");
    // Eight threads on four cores of two hardware threads: each beside a busy one takes 1.65 times as long. With one thread a core, two
    // of them take turns: twice as long.
    let words = "compare --json --keep nothing -n 2 -m 1s1n1l4c2t -w forkjoin:-n8,-i1,-w1s -s eevdf,eevdf@smt=off";
    let found = ratios(&scratch, words);
    assert!(is_near(found[0], 2.0 / 1.65), "{found:?}");
}

/// Which of two columns comes first decides nothing: the one with a profile takes as many times as long as the other.
#[test]
fn a_memory_profile_counts_in_whichever_column_it_is() {
    let scratch = Scratch::new();
    for (name, more) in [("plain", ""), ("profiled", r#", "warmcore": { "tasks": { "a": { "profile": "nas-mg" } } }"#)]
    {
        let text = format!(r#"{{ "tasks": {{ "a": {{ "instance": 4, "loop": 20, "run": 1000 }} }}{more} }}"#);
        scratch.write(&format!("{name}.json"), &text);
    }
    let ratio = |first: &str, second: &str| {
        let columns = format!("-w {first}.json -s eevdf,eevdf@workload={second}.json");
        ratios(&scratch, &format!("compare --json --keep nothing -n 2 -m 1s1n2l2c1t {columns}"))[0]
    };
    let (slower, faster) = (ratio("plain", "profiled"), ratio("profiled", "plain"));
    assert!(slower > 1.02 && (slower * faster - 1.0).abs() < 0.005, "{slower} {faster}");
}

#[test]
fn what_a_verdict_holds_for_is_told_of_each_columns_machine_and_workload() {
    let scratch = Scratch::new();
    scratch.write(
        "guessed.json",
        r#"{ "tasks": { "a": { "instance": 2, "loop": 200, "run": 1000, "sleep": 1000, "nonsense": 5 } },
            "warmcore": { "notes": [ "its times are guesses" ] } }"#,
    );
    // A run of 4 s has a warm-up of 1 s, one of 1 s of a third of that, and one that ends by itself none.
    for (name, duration) in [("plain", 1), ("long", 4)] {
        let text = format!(
            r#"{{ "tasks": {{ "a": {{ "instance": 2, "loop": -1, "run": 1000, "sleep": 1000 }} }}, "global": {{ "duration": {duration} }} }}"#
        );
        scratch.write(&format!("{name}.json"), &text);
    }
    let columns = "eevdf,eevdf@workload=guessed.json,eevdf@machine=1s1n1l2c2t,eevdf@workload=long.json";
    let words = "compare --json --keep nothing -n 2 -m 1s1n1l4c1t -w plain.json --metric wakeup_p99_ns -s";
    let ran = scratch.run(&format!("{words} {columns}")).exits_with(0);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    for (key, words) in [
        ("conditions", "its times are guesses"),
        ("conditions", "on 1s1n1l2c2t, work next to a busy sibling takes 1.65 times as long"),
        ("conditions", "the first 333 ms of each run do not count"),
        ("conditions", "of `eevdf @ workload=long.json` the first 1 s of each run do not count"),
        ("conditions", "of `eevdf @ workload=guessed.json` all of each run counts"),
        ("warnings", "key \"nonsense\" is not modelled"),
    ] {
        let said = document[key].as_array().unwrap();
        assert!(said.iter().any(|text| text.as_str().unwrap().starts_with(words)), "{words}: {said:?}");
    }
}

/// One thread ends last, without a profile and 50 ms later, next to three that stream through memory: the difference is its own computing, and
/// none of it what the others do.
#[test]
fn the_difference_on_a_path_that_is_one_threads_is_divided_as_that_threads_time_is() {
    let scratch = Scratch::new();
    // Who works: the thread that ends last, or the one that it waits for.
    for (name, before_ms, ms) in
        [("short", 1, 100), ("long", 1, 150), ("short-before", 100, 1), ("long-before", 150, 1)]
    {
        let text = format!(
            r#"{{ "tasks": {{ "starter": {{ "instance": 0 }}, "last": {{ "instance": 0 }}, "others": {{ "instance": 0 }} }},
                "warmcore": {{ "tasks": {{
                    "starter": {{ "instances": 1, "program": [ {{ "run_ns": {before_ms}000000 }}, {{ "sem_post": "go" }} ] }},
                    "last": {{ "instances": 1, "program": [ {{ "sem_wait": "go" }}, {{ "run_ns": {ms}000000 }} ] }},
                    "others": {{ "instances": 3, "profile": "canneal", "program": [ {{ "run_ns": 60000000 }} ] }} }} }} }}"#
        );
        scratch.write(&format!("{name}.json"), &text);
    }
    let compared = |which: &str| {
        let columns = format!("-w short{which}.json -s eevdf,eevdf@workload=long{which}.json -n 8 --keep nothing");
        let ran = scratch.run(&format!("compare -m 1s1n1l8c1t@i7-3770 {columns}")).exits_with(0);
        ran.out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = compared("");
    assert!(said.contains("The critical path has 1 handover (under eevdf 1): of the difference"), "{said}");
    assert!(said.contains("(100 %) is computing") && !said.contains("on average"), "{said}");
    assert!(said.contains("need 0.7 % less task time per work (mean of the trials)"), "{said}");
    let said = compared("-before");
    let averaged =
        "(under eevdf 1), and its CPU time is divided as that of all threads is on average: of the difference";
    assert!(said.contains(averaged), "{said}");
}

/// A profile's `run` is time on the machine of the experiment. By hand for 3 MiB touched at random 50 times in 1000 instructions, at 1 GHz:
/// with an LLC of 2 MiB 1/12 of the touches take 5 ns, 7/12 take 20 and 1/3 take 100, so an instruction takes 3.27 ns; with 8 MiB 11/12
/// take 20, and an instruction 1.94.
#[test]
fn machines_are_compared_in_the_same_work() {
    let scratch = Scratch::new();
    let cache = |level: u32, size: &str, latency_ns: u32| {
        format!(
            "[[cache]]\nlevel = {level}\nsize = \"{size}\"\nways = 16\norigin = \"given\"\nlatency_ns = {latency_ns}\n"
        )
    };
    for size in ["2MiB", "8MiB"] {
        let caches = [cache(1, "32KiB", 1), cache(2, "256KiB", 5), cache(3, size, 20)].concat();
        let text = format!(
            "name = \"of{size}\"\nsummary = \"one CPU\"\nbase = \"generic\"\n[topology]\norigin = \"given\"\nshape = \"1s1n1l1c1t\"\n{caches}\
             [frequency]\norigin = \"given\"\nbase_mhz = 1000\nnominal_mhz = 1000\n[memory]\norigin = \"given\"\nlocal_ns = 100\n"
        );
        scratch.write(&format!("{size}.toml"), &text);
    }
    scratch.write(
        "work.json",
        r#"{ "tasks": { "a": { "loop": 1, "run": 1000000 } }, "warmcore": { "tasks": { "a": { "profile": "p" } }, "profiles": [
            { "name": "p", "cpi0": 1, "mlp": 1, "classes": [ { "size": "3MiB", "touches_per_ki": 50 } ] } ] } }"#,
    );
    let words = "compare --json --keep nothing -n 2 -m 2MiB.toml -w work.json -s eevdf,eevdf@machine=8MiB.toml";
    for level in ["analytic", "exact"] {
        let found = ratios(&scratch, &format!("{words} --memory {level}"));
        assert!((found[0] / (1.94 / 3.27) - 1.0).abs() < 0.06, "{level}: {found:?}");
    }
}

#[test]
fn threads_that_share_are_best_gathered_and_a_mask_of_one_llc_gathers_them() {
    let scratch = Scratch::new();
    let words = "compare --json --keep nothing -n 2 -m 2s1n1l4c1t -w verilator:-t4,-C300 -s";
    let columns = "eevdf@pin=spread,eevdf@pin=gathered,eevdf@cpus=one-llc,eevdf@pin=oracle";
    let found = ratios(&scratch, &format!("{words} {columns}"));
    assert!(found[0] < 0.9, "{found:?}");
    assert!(is_near(found[1], found[0]) && is_near(found[2], found[0]), "{found:?}");
}

/// A text in quotes of a study of known answers, by what stands before it.
fn text_of(study: &str, before: &str) -> String {
    let path = format!("{}/../../studies/answers/{study}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let text = &text[text.find(before).unwrap()..];
    text.split("\'\'\'").nth(1).unwrap().to_owned()
}

/// Public questions of "which of two", each in one command. What was measured: six threads of an inference engine on two chiplets are 16 to 25 %
/// slower than on one; UnixBench's pipe ping-pong scores 977 on one CPU and 227 on two; a thread pool wins nothing by siblings; inference is
/// faster with 60 threads than with 12; a line that all shards write leaves 40 % of the work on two sockets; a scheduler that knows clusters
/// wins 10 to 20 % with four threads of STREAM. That one queue for 128 pairs loses nearly all is answered for 140.
#[test]
fn public_questions_of_which_of_two_are_one_command_each() {
    let scratch = Scratch::new();
    let asked = |words: &str| ratios(&scratch, &format!("compare --json --keep nothing -n 1 {words}"))[0];

    let decode = text_of("two-ccds", "name = \"decode\"").replace(r#", "cpus": [{cpus}]"#, "");
    fs::write(scratch.path("decode.json"), decode).unwrap();
    let chiplets = asked("-m 1s1n2l6c2t@turin128 -w decode.json -s eevdf@cpus=0-5,eevdf@cpus=0-2,6-8");
    assert!((1.15..1.4).contains(&chiplets), "{chiplets}");

    let pipe = "-m i7-3770 -w pingpong:-n1,-d50ms --metric recorder_round_trip_per_s -s eevdf@cpus=0,eevdf@cpus=0-1";
    assert!(asked(pipe) < 0.7, "{}", asked(pipe));

    let pool = asked("-m i7-3770 -w forkjoin:-n4,-i30,-w2975us -s eevdf,eevdf@workload=forkjoin:-n8,-i30,-w1488us");
    assert!((0.9..1.2).contains(&pool), "{pool}");

    let matvec = text_of("llama-threads", "name = \"decode\"");
    for (threads, run) in [(12, 1666), (60, 333)] {
        let text = matvec.replace("{n}", &threads.to_string()).replace("{run}", &run.to_string());
        fs::write(scratch.path(&format!("matvec-{threads}.json")), text).unwrap();
    }
    let threads = asked("-m 1s1n12l8c2t@genoa96 -w matvec-12.json -s eevdf,eevdf@workload=matvec-60.json");
    assert!((0.2..0.5).contains(&threads), "{threads}");

    let shard = text_of("hot-line-sockets", "name = \"shard\"");
    for shards in [80, 160] {
        fs::write(scratch.path(&format!("{shards}.json")), shard.replace("{n}", &shards.to_string())).unwrap();
    }
    let both = "eevdf,eevdf@machine=2s1n1l80c1t@altra80 workload=160.json";
    let words =
        "compare --json --keep nothing -n 1 -m 1s1n1l80c1t@altra80 -w 80.json --metric work_ns --max-time 30ms -s";
    let work = ratios_of(scratch.run_with_last(words, both))[0] / 2.0;
    assert!((0.3..0.53).contains(&work), "{work}");

    fs::write(scratch.path("kunpeng24.toml"), text_of("stream-clusters", "name = \"kunpeng24\"")).unwrap();
    let stream = text_of("stream-clusters", "name = \"stream\"").replace("{n}", "4");
    fs::write(scratch.path("stream.json"), stream).unwrap();
    let words = "compare --json --keep nothing -n 3 --metric elapsed_ns -m kunpeng24.toml -w stream.json";
    let clusters = ratios(&scratch, &format!("{words} -s eevdf,eevdf:sched_cluster=0"))[0];
    assert!((1.04..1.5).contains(&clusters), "{clusters}");

    let queue =
        "-m naples32 -w pingpong:-n140,-d10ms --metric recorder_round_trip_per_s -s eevdf,scx-native:policy=fifo";
    assert!(asked(queue) < 0.1, "{}", asked(queue));
}

#[test]
fn a_run_directory_has_what_its_columns_were_made_of() {
    let scratch = Scratch::new();
    let columns = "-s eevdf,eevdf@pin=spread,eevdf@machine=1s1n1l8c1t";
    let words = format!("compare -n 2 -m 1s1n2l4c1t -w forkjoin:-n4,-i2,-w5ms --out run {columns}");
    let told = scratch.run(&words).exits_with(0).out;
    assert!(told.contains("`eevdf @ pin=spread` has its threads bound: `taskset -cp 0 TID` for"), "{told}");
    assert!(told.contains("`eevdf @ machine=1s1n1l8c1t` runs on 1s1n1l8c1t, of 8 CPUs under 1 LLC"), "{told}");
    assert!(!told.contains("1 LLCs"), "{told}");
    let read = |file: &str| fs::read_to_string(scratch.path(file)).unwrap();
    let first = read("run/verdict.json");
    for file in ["run/workload-s1.json", "run/workload-s2.json", "run/machine-s2.toml"] {
        assert!(scratch.path(file).is_file(), "{file}");
    }
    // A trial that is lost is made again, the same.
    let trial = read("run/trials/s2-t0001.json");
    fs::remove_file(scratch.path("run/trials/s2-t0001.json")).unwrap();
    scratch.run("compare --resume run").exits_with(0);
    assert_eq!((read("run/trials/s2-t0001.json"), read("run/verdict.json")), (trial, first));
    scratch.run("report run").exits_with(0);
    scratch.run("explain run -s eevdf@machine=1s1n1l8c1t").exits_with(2).complains("it has eevdf");
    // Nobody edits a column's workload unnoticed.
    let text = read("run/workload-s1.json").replace("\"0\"", "\"1\"");
    fs::write(scratch.path("run/workload-s1.json"), format!("{text} ")).unwrap();
    scratch.run("compare --resume run").exits_with(2).complains("workload-s1.json");
}

#[test]
fn a_placement_found_once_can_be_compared_again() {
    let scratch = Scratch::new();
    let words = "compare -n 2 -m 2s1n1l4c1t -w verilator:-t4,-C100 -s";
    let told = scratch.run(&format!("{words} eevdf --headroom --keep run --out run")).exits_with(0).out;
    assert!(told.contains("It is had with"), "{told}");
    assert!(told.replace('\n', " ").contains("taskset -c"), "{told}");
    let json = |columns: &str| ratios(&scratch, &format!("{words} {columns} --json --keep nothing"));
    let found = json("eevdf,eevdf@pin=run/oracle.json,eevdf@pin=oracle");
    assert_eq!(found[0], found[1], "one search finds what the other found");
}

#[test]
fn what_is_no_column_is_refused_before_anything_runs() {
    let scratch = Scratch::new();
    fs::write(scratch.path("stranger.json"), r#"{"threads": [{"task": "nobody", "cpus": "0"}]}"#).unwrap();
    fs::write(scratch.path("outside.json"), r#"{"threads": [{"task": "spin", "cpus": "99"}]}"#).unwrap();
    let compare =
        |columns: &str| scratch.run(&format!("compare -m 1s1n2l2c1t -w spin:-n1,-d1ms --out run -s {columns}"));
    for (columns, words) in [
        ("eevdf@cpus=0-9", "there is no CPU 4 online"),
        ("eevdf@cpus=first", "one-llc"),
        ("eevdf@pin=tight", "there are spread, gathered, oracle, and files"),
        ("eevdf@pin=stranger.json", "the workload has no thread `nobody`"),
        ("eevdf@pin=outside.json", "there is no CPU 99 online"),
        ("eevdf@fast", "`fast` in `eevdf@fast` is not a circumstance"),
        ("eevdf@smt=on", "`smt=on`"),
        ("eevdf@workload=spam:-n1", "spam"),
        ("eevdf@machine=zen99", "zen99"),
        ("eevdf@workload=schbench:-m1,-t1,-r1", "judged by"),
        ("eevdf@numa_balancing=on", "numa_balancing=0"),
        ("eevdf@cpus=0,eevdf@cpus=0", "twice with the same settings"),
    ] {
        compare(&format!("eevdf,{columns}")).exits_with(2).complains(words);
        assert!(!scratch.path("run").exists(), "{columns}");
    }
    for (option, column, words) in [
        ("--load 50", "eevdf@workload=spin:-n2,-d1ms", "--load changes how much of one workload"),
        (
            "--headroom",
            "eevdf@machine=1s1n1l2c1t",
            "--headroom finds the best placement of one workload on one machine",
        ),
    ] {
        compare(&format!("eevdf,{column} {option}")).exits_with(2).complains(words);
    }
    let bound = "compare -m 1s1n2l2c1t -w spin:-n1,-p3,-d1ms --keep nothing -s eevdf,eevdf@cpus=0";
    scratch.run(bound).exits_with(2).complains("none of which is in 0");
    let elsewhere = "compare --on host -w spin:-n1,-d1ms --keep nothing -s eevdf@machine=genoa96";
    scratch.run(elsewhere).exits_with(2).complains("another machine than this computer");
    let command = "compare --on host --keep nothing -s eevdf -- true --vs";
    scratch.run(command).exits_with(2).complains("belongs between two commands");
}
