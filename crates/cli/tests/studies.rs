//! `study`: known answers stay what their files say, exit codes follow the bands, bad input is told with its place.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Scratch;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A study whose band can be chosen. Two equal spinners share a CPU by halves.
fn halves(band: &str, rest: &str) -> String {
    format!(
        r#"schema = "warmcore-study-form-1"
title = "Halves"
question = "How do two equal spinners share a CPU?"
source = "By hand."
[[cell]]
name = "two"
machine = "1s1n1l1c1t"
workload = "spin:-n{{n}},-d20ms"
schedulers = ["rr"]
trials = 1
[[vary]]
name = "n"
values = [1, 2]
[[expect]]
name = "share"
figure = "cpu_time_ns[two, n=2, task=spin-0] / cpu_time_ns[two, n=1]"
published = 0.5
band = {band}
reason = "by hand"
{rest}"#
    )
}

#[test]
fn the_short_known_answers_are_what_their_files_say() {
    let scratch = Scratch::new();
    let ran = scratch.run("study run answers --short --json").exits_with(0);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["unexpected"], 0, "{}", ran.out);
    assert!(document["studies"].as_array().unwrap().len() >= 15);
}

#[test]
fn the_page_of_answers_is_what_the_program_makes_of_the_stored_result_which_has_every_study() {
    let stored = stored();
    let scratch = Scratch::new();
    for directory in ["docs", stored.rsplit_once('/').unwrap().0] {
        fs::create_dir_all(scratch.path(directory)).unwrap();
    }
    fs::copy(root().join(&stored), scratch.path(&stored)).unwrap();
    scratch.run(&format!("study show {stored} --page docs/answers.md")).exits_with(0);
    let [made, page] =
        [scratch.path("docs/answers.md"), root().join("docs/answers.md")].map(|path| fs::read_to_string(path).unwrap());
    let help = "make a new result: warmcore study run answers --out DIR; keep DIR/study.json under results; then \
                warmcore study show results/…/study.json --page docs/answers.md";
    assert!(page == made, "docs/answers.md is not what the program makes of {stored}; {help}");
    // Texts and bands of the studies are those of the files, so that a changed file needs a new run.
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(root().join(&stored)).unwrap()).unwrap();
    let listed: serde_json::Value =
        serde_json::from_str(&scratch.run("study show answers --json").exits_with(0).out).unwrap();
    let of = |document: &serde_json::Value| -> Vec<serde_json::Value> {
        let studies = document["studies"].as_array().unwrap().iter();
        studies
            .map(|study| {
                let expectations = study["expectations"].as_array().unwrap().iter();
                let keys = ["name", "figure", "published", "low", "high", "reason"];
                let expectations: Vec<serde_json::Value> =
                    expectations.map(|of| keys.iter().map(|key| of[*key].clone()).collect()).collect();
                serde_json::json!([study["name"], study["title"], study["question"], study["source"], expectations])
            })
            .collect()
    };
    for (stored, listed) in of(&document).iter().zip(of(&listed)) {
        assert_eq!(*stored, listed, "the stored result is of another file; {help}");
    }
    assert_eq!(of(&document).len(), of(&listed).len(), "{help}");
}

/// The stored result that the page names.
fn stored() -> String {
    let page = fs::read_to_string(root().join("docs/answers.md")).unwrap();
    let named = page.split('`').find(|word| word.starts_with("results/") && word.ends_with("study.json"));
    named.expect("the page names its data").to_owned()
}

#[test]
fn exit_codes_follow_the_bands() {
    let scratch = Scratch::new();
    scratch.write("right.toml", &halves("[0.49, 0.51]", ""));
    // A source has its own value inside its band.
    let elsewhere = |rest: &str| halves("[0.6, 0.7]", rest).replace("published = 0.5", "published = 0.65");
    scratch.write("wrong.toml", &elsewhere(""));
    let declared = "[expect.outside]\nverdict = \"right-in-sign\"\nwhy = \"w\"\nsettle = \"s\"\n";
    scratch.write("declared.toml", &elsewhere(declared));
    scratch.write("changed.toml", &halves("[0.49, 0.51]", declared));
    scratch.write("uncounted.toml", &halves("[0.6, 0.7]", "counted = false\n"));
    let model = |spinners: u32, ms: u32| {
        format!("[[wrong]]\nname = \"more\"\nworkload = \"spin:-n{spinners},-d{ms}ms\"\nrejects = [\"share\"]\n")
    };
    scratch.write("rejected.toml", &halves("[0.49, 0.51]", &model(4, 40)));
    scratch.write("accepted.toml", &halves("[0.49, 1.0]", &model(2, 20)));
    // The task that the figure is of is not in this workload: its CPU time would be none, and outside of any band.
    let other = model(4, 40).replace("spin:-n4,-d40ms", "hackbench:-g1,-l5");
    scratch.write("broken.toml", &halves("[0.49, 0.51]", &other));
    let of = "cpu_time_ns[two, n=2, task=spin-0]";
    let named = halves("[0.49, 0.51]", &other).replace(of, "half");
    scratch.write("named.toml", &format!("{named}\n[[figure]]\nname = \"half\"\nof = \"{of}\"\n"));
    for (name, code, words) in [
        ("right", 0, ""),
        ("wrong", 3, "share: right in sign"),
        ("declared", 0, ""),
        ("changed", 3, "right (0.5, band 0.49 to 0.51), and declared right in sign"),
        ("uncounted", 0, ""),
        ("rejected", 0, ""),
        ("accepted", 3, "the wrong model `more` is not rejected"),
        ("broken", 2, "there is no task `spin-0`"),
        ("named", 2, "there is no task `spin-0`"),
    ] {
        scratch.run(&format!("study run {name}.toml")).exits_with(code).complains(words);
    }
    let text = scratch.run("study run right.toml").exits_with(0).out;
    assert!(text.contains("1 question: 1 right.") && text.ends_with("Their figures that count: 1 right.\n"), "{text}");
    // A run that is cut off: its time is longer than any.
    let cut = halves("[1, inf]", "neutral = \"none\"\n")
        .replace("trials = 1", "trials = 1\nmax_time = \"5ms\"")
        .replace("cpu_time_ns[two, n=2, task=spin-0] / cpu_time_ns[two, n=1]", "elapsed_ns[two, n=1]")
        .replace("published = 0.5\n", "")
        .replace("spin:-n{n},-d20ms", "hackbench:-g{n},-l2000");
    scratch.write("cut.toml", &cut);
    let text = scratch.run("study run cut.toml").exits_with(0).out;
    assert!(text.contains("infinite  from 1"), "{text}");
}

#[test]
fn files_of_one_name_beside_two_studies_are_two_machines() {
    let scratch = Scratch::new();
    for (directory, machine) in [("one", "1s1n1l1c1t"), ("two", "1s1n1l2c1t")] {
        fs::create_dir(scratch.path(directory)).unwrap();
        scratch.run(&format!("machine convert {machine} --out {directory}/own.toml")).exits_with(0);
    }
    let own = halves("[0.49, 0.51]", "").replace("\"1s1n1l1c1t\"", "\"own.toml\"");
    scratch.write("one/half.toml", &own);
    scratch.write(
        "two/whole.toml",
        &own.replace("published = 0.5", "published = 1").replace("[0.49, 0.51]", "[0.99, 1.01]"),
    );
    let text = scratch.run("study run one/half.toml two/whole.toml").exits_with(0).out;
    assert!(text.ends_with("Their figures that count: 2 right.\n"), "{text}");
}

#[test]
fn a_program_that_is_not_there_is_a_state_of_its_own() {
    let scratch = Scratch::new();
    let text = halves("[0.49, 0.51]", "").replace("[\"rr\"]", "[\"scx:no_such_scheduler --fast\"]");
    scratch.write("absent.toml", &text);
    let ran = scratch.run("study run absent.toml").exits_with(0);
    assert!(ran.out.contains("not answerable here"), "{}", ran.out);
    let check = scratch.run("study run --dry-run absent.toml").exits_with(0).out;
    assert!(check.contains("the program no_such_scheduler is not on this computer"), "{check}");
}

#[test]
fn a_cell_s_place_has_settings_as_on_has_them_and_a_mistake_is_said_with_its_place() {
    let scratch = Scratch::new();
    let in_place =
        |place: &str| halves("[0.49, 0.51]", "").replace("trials = 1", &format!("trials = 1\nplace = \"{place}\""));
    for (place, words) in [
        ("moon", "there is no place `moon`"),
        ("sim:kernel=x", "the place `sim` has no settings"),
        ("vm:kernal=x", "did you mean `kernel`?"),
        ("vm:virtual-time=1{n}", "virtual-time=11: it is not a number from 0 to 10"),
        ("host:cpus=0,cpus=all", "a cell has one configuration, and its place says 2"),
        ("host:dry-run", "a cell runs: no dry-run"),
        ("vm:kernel={other}", "there is no axis `other`"),
    ] {
        scratch.write("it.toml", &in_place(place));
        scratch.run("study run --dry-run it.toml").exits_with(2).complains("it.toml:11:9").complains(words);
    }
    let axis = "[[vary]]\nname = \"where\"\nvalues = [\"sim\"]\n[[expect]]";
    scratch.write(
        "it.toml",
        &in_place("{where}")
            .replace("[[expect]]", axis)
            .replace("n=1]", "n=1, where=sim]")
            .replace("n=2,", "n=2, where=sim,"),
    );
    let ran = scratch.run("study run it.toml --json").exits_with(0).out;
    assert!(ran.contains("\"place\": \"sim\""), "{ran}");
}

#[test]
fn a_study_goes_on_in_its_directory_and_gives_the_same_bytes() {
    let scratch = Scratch::new();
    scratch.write("it.toml", &halves("[0.49, 0.51]", ""));
    let first = scratch.run("study run it.toml --out kept --json --jobs 1").exits_with(0).out;
    assert_eq!(fs::read_to_string(scratch.path("kept/study.json")).unwrap(), first);
    let is_trial = |name: &String| name.contains("/trials/") && name.ends_with(".json");
    let trials: Vec<String> = scratch.files("kept").into_iter().filter(is_trial).collect();
    assert_eq!(trials.len(), 2, "{trials:?}");
    // One trial is lost; the other is taken over as it is.
    fs::remove_file(scratch.path("kept").join(&trials[0])).unwrap();
    let other = scratch.path("kept").join(&trials[1]);
    let before = fs::metadata(&other).unwrap().modified().unwrap();
    let again = scratch.run("study run it.toml --out kept --json --jobs 2").exits_with(0).out;
    assert_eq!(again, first);
    assert_eq!(fs::metadata(&other).unwrap().modified().unwrap(), before);
    assert!(scratch.path("kept").join(&trials[0]).is_file());
    // Two runs at a time would take each other's files away.
    let at_work = fs::File::open(other.parent().unwrap().parent().unwrap()).unwrap();
    at_work.lock().unwrap();
    scratch.run("study run it.toml --out kept").exits_with(1).complains("another run is at work in it");
    drop(at_work);
    // One that says something else is not.
    let text = fs::read_to_string(&other).unwrap();
    fs::write(&other, text.replace("\"events_lost\":0", "\"events_lost\":9")).unwrap();
    let refused =
        scratch.run("study run it.toml --out kept --json").exits_with(2).complains("does not match its checksum");
    assert!(refused.error.contains(&trials[1]), "{}", refused.error);
}

#[test]
fn a_study_is_drawn_for_a_page_and_for_a_column_and_has_a_page_that_begins_with_the_answer() {
    let scratch = Scratch::new();
    let text = halves("[0.4, 0.6]", "")
        .replace("values = [1, 2]", "values = [1, 2, 3]")
        .replace("[\"rr\"]", "[\"rr\", \"eevdf\"]")
        .replace("trials = 1", "trials = 8")
        .replace("n=2, task", "n=2, rr, task")
        .replace("n=1]", "n=1, rr]");
    scratch.write("drawn.toml", &text);
    scratch.run("study run drawn.toml --out kept").exits_with(0);
    let names = scratch.files("kept/figures/drawn");
    let of = |ending: &str| names.iter().filter_map(|name| name.strip_suffix(ending)).collect::<Vec<_>>();
    let figures = of("-85mm.pdf");
    assert!(["expected", "gains", "intervals"].iter().all(|name| figures.contains(name)), "{figures:?}");
    assert!(figures.iter().any(|name| name.starts_with("response-")), "{figures:?}");
    assert_eq!(of(".csv"), figures, "each with its data");
    for (ending, points) in [(".svg", 510.24), ("-85mm.svg", 240.94)] {
        for name in &figures {
            let svg = fs::read_to_string(scratch.path(&format!("kept/figures/drawn/{name}{ending}"))).unwrap();
            let wide: f64 = svg.split("viewBox=\"0 0 ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
            // The smallest letters of a figure have 10.5 units.
            assert!(10.5 * points / wide >= 6.99, "{name}{ending} is {wide} units wide");
        }
    }
    let page = fs::read_to_string(scratch.path("kept/drawn.html")).unwrap();
    let begin = page.split_once("<h1>").and_then(|(_, rest)| rest.split_once("</p>")).map_or("", |(begin, _)| begin);
    assert!(begin.starts_with("Halves: eevdf against rr: ") && begin.contains(" at n 1"), "{begin}");
    assert!(begin.contains("<p>1 of 1 as expected. "), "{begin}");
    assert!(figures.len() == page.matches("<figure>").count());
}

/// Cells of one machine and one workload, with two seeds, and a workload of the study's own with an axis in its text.
const ALIKE: &str = r#"schema = "warmcore-study-form-1"
title = "Rows"
question = "Which?"
source = "None."
[[workload]]
name = "own"
text = '{"tasks":{"a":{"instance":{k},"loop":4,"run":3000,"sleep":1000}}}'
[[vary]]
name = "k"
values = [2, 5]
[[cell]]
name = "axis"
machine = "1s1n1l2c1t"
workload = "own"
schedulers = ["eevdf", "rr"]
trials = 8
[[cell]]
name = "early"
machine = "1s1n1l2c1t"
workload = "spin:-n3,-d200ms"
schedulers = ["eevdf", "rr"]
trials = 8
[[cell]]
name = "late"
machine = "1s1n1l2c1t"
workload = "spin:-n3,-d200ms"
schedulers = ["eevdf", "rr"]
trials = 8
seed = 8
[[cell]]
name = "alone"
machine = "1s1n1l2c1t"
workload = "spin:-n4,-d200ms"
schedulers = ["eevdf", "rr"]
trials = 8
[[expect]]
name = "it"
figure = "elapsed_ns[alone, rr] / elapsed_ns[alone, eevdf]"
neutral = "none"
band = [0.1, 10]
reason = "both last for 200 ms"
"#;

#[test]
fn gains_of_equal_machine_and_workload_are_drawn_in_rows_of_their_cells() {
    let scratch = Scratch::new();
    scratch.write("rows.toml", ALIKE);
    scratch.run("study run rows.toml --out kept").exits_with(0);
    let read = |name: &str| fs::read_to_string(scratch.path(&format!("kept/figures/rows/{name}"))).unwrap();
    let (data, map) = (read("gains.csv"), read("gains.svg"));
    for case in [
        "own (axis, k=2)",
        "own (axis, k=5)",
        "spin:-n3,-d200ms (early)",
        "spin:-n3,-d200ms (late)",
        "spin:-n4,-d200ms",
    ] {
        assert_eq!(data.matches(case).count(), 1, "{case}: {data}");
        assert_eq!(map.matches(&format!("<title>1s1n1l2c1t: {case}, rr: ")).count(), 1, "{case}: {map}");
    }
    assert!(!data.contains("alone"), "a name of its own is enough: {data}");
    // The name of a workload may have a placeholder as its text does.
    scratch.write("named.toml", &ALIKE.replace("\"own\"", "\"own-{k}\""));
    scratch.run("study run --dry-run named.toml").exits_with(0);
}

#[test]
fn a_directory_that_holds_something_else_is_left_alone() {
    let scratch = Scratch::new();
    scratch.write("it.toml", &halves("[0.49, 0.51]", ""));
    fs::create_dir(scratch.path("full")).unwrap();
    scratch.write("full/file", "");
    scratch.run("study run it.toml --out full").exits_with(2).complains("holds something else");
    assert_eq!(scratch.files("full"), ["file"]);
    // Another study's result would be gone.
    scratch.write("other.toml", &halves("[0.49, 0.51]", ""));
    scratch.run("study run it.toml --out kept").exits_with(0);
    let words = "study run other.toml --out kept";
    scratch.run(words).exits_with(2).complains("kept has the result of other studies: it");
    scratch.run(&format!("{words} it.toml")).exits_with(0);
    scratch.run(&format!("{words} --force")).exits_with(0);
}

#[test]
fn bad_studies_are_told_with_their_place() {
    let scratch = Scratch::new();
    let good = halves("[0.49, 0.51]", "");
    for (from, to, words) in [
        ("machine =", "machin =", "it.toml:7:1: there is no key `machin` here; did you mean `machine`?"),
        ("1s1n1l1c1t", "genoa69", "it.toml:7:11: "),
        ("spin:-n{n}", "spinn:-n{n}", "it.toml:8:12: "),
        ("spin:-n{n}", "spin:-n{n},-d{t}", "there is no axis `t`"),
        ("[\"rr\"]", "[\"cas\"]", "it.toml:9:15: "),
        ("task=spin-0", "task=spinner", "there is no task `spinner`"),
        ("cpu_time_ns[two, n=1]", "elapsed[two, n=1]", "there is no measure `elapsed`"),
        (
            "cpu_time_ns[two, n=1]",
            "cpu_time_ns[two]",
            "is 2 simulations; say which: [n=1, scheduler=rr] [n=2, scheduler=rr]",
        ),
        ("cpu_time_ns[two, n=1]", "cpu_time_ns[two, n=3]", "is not one of the cell's simulations"),
        ("cpu_time_ns[two, n=1]", "time.smtt[two, n=1]", "there is no cause `smtt`; did you mean `smt`?"),
        (
            "cpu_time_ns[two, n=2, task=spin-0]",
            "elapsed_ns[two, n=2, task=spin-0]",
            "`task=` chooses of cpu_time_ns only",
        ),
        ("[0.49, 0.51]", "[0.51, 0.49]", "the band's ends are swapped"),
        ("values = [1, 2]", "values = []", "axis `n` has no values"),
        ("trials = 1", "trials = 1\nplace = \"mars\"", "there is no place `mars`"),
        ("trials = 1", "trials = 1\nbackground = \"queit\"", "did you mean `quiet`?"),
    ] {
        assert!(good.contains(from), "{from}");
        scratch.write("it.toml", &good.replace(from, to));
        scratch.run("study run --dry-run it.toml").exits_with(2).complains(words);
    }
    // Its own workloads are where a name may have been looked for.
    let own = "[[workload]]\nname = \"spinners-{n}\"\ntext = '''{ \"tasks\": { \"a\": { \"loop\": 1, \"run\": 10 } } }'''\n[[expect]]";
    scratch.write("it.toml", &good.replace("spin:-n{n}", "spiners-{n}").replacen("[[expect]]", own, 1));
    scratch.run("study run --dry-run it.toml").exits_with(2).complains("the study's own are `spinners-{n}`");
    // One of them that cannot be read, and a generator's wrong flag, are no unknown names.
    for (name, text) in [("spinners-{n}", own.replace("10", "ten")), ("spin:-x{n}", own.to_owned())] {
        scratch.write("it.toml", &good.replace("spin:-n{n},-d20ms", name).replacen("[[expect]]", &text, 1));
        let ran = scratch.run("study run --dry-run it.toml").exits_with(2);
        assert!(!ran.error.contains("the study's own are"), "{}", ran.error);
    }
    // Its figures have a place, too, and what would not run is not shown either.
    let several = good.replace("[[expect]]", "[[figure]]\nname = \"several\"\nof = \"cpu_time_ns[two]\"\n[[expect]]");
    scratch.write("several.toml", &several);
    let line = 1 + several.lines().position(|line| line.starts_with("of = ")).unwrap();
    for verb in ["run --dry-run", "show"] {
        let ran = scratch.run(&format!("study {verb} several.toml")).exits_with(2);
        ran.complains(&format!("several.toml:{line}:6: cpu_time_ns[two] is 2 simulations"));
    }
    scratch.write(
        "zero.toml",
        &good.replace("/ cpu_time_ns[two, n=1]", "/ (cpu_time_ns[two, n=1] - cpu_time_ns[two, n=1])"),
    );
    let ran = scratch.run("study run zero.toml").exits_with(3).complains("it divides by zero");
    assert!(ran.out.contains("wrong (!)"), "{}", ran.out);
    scratch.run("study run answer").exits_with(2).complains("did you mean `answers`?");
    scratch.run("study show it.toml --page x.md").exits_with(2).complains("a page is made of a result");
    scratch.write("result.json", "{}");
    scratch.run("study show result.json").exits_with(2).complains("result.json");
}

#[test]
fn a_million_cells_are_refused_with_their_number() {
    let scratch = Scratch::new();
    let values: Vec<String> = (1..=1000).map(|value| value.to_string()).collect();
    let axis = |name: &str| format!("[[vary]]\nname = \"{name}\"\nvalues = [{}]\n", values.join(", "));
    let text = halves("[0.49, 0.51]", &axis("d"))
        .replace("-d20ms", "-d{d}ms")
        .replace("values = [1, 2]", &format!("values = [{}]", values.join(", ")));
    scratch.write("many.toml", &text);
    scratch.run("study run --dry-run many.toml").exits_with(2).complains("many.toml: 1000000 cells; at most 10000");
    // More than usual are asked for in the study.
    scratch.write("many.toml", &text.replace("title =", "most_cells = 20000\ntitle ="));
    scratch.run("study run --dry-run many.toml").exits_with(2).complains("1000000 cells; at most 20000");
}

#[test]
fn what_would_judge_nothing_or_something_else_is_refused() {
    let scratch = Scratch::new();
    let good = halves("[0.49, 0.51]", "");
    let (cells, rest) = (good.find("[[cell]]").unwrap(), good.find("[[expect]]").unwrap());
    let foreign = format!("{}program = \"foo\"\n{}", &good[..cells], &good[rest..]);
    fs::create_dir(scratch.path("other")).unwrap();
    for (name, text) in [
        ("it", good.clone()),
        ("other/it", good.clone()),
        ("long", good.replace("title =", "cost = \"long\"\ntitle =")),
        ("changed", good.replace("trials = 1", "trials = 1\nassumed = \"context switch x 3\"")),
        ("foreign", foreign.replace("cpu_time_ns[two, n=2, task=spin-0] / cpu_time_ns[two, n=1]", "half")),
    ] {
        scratch.write(&format!("{name}.toml"), &text);
    }
    for (words, complaint) in [
        ("it.toml other/it.toml", "two studies are called `it`: it.toml and other/it.toml"),
        ("long.toml --short", "--short leaves nothing to run"),
        ("it.toml --only ,", "nothing is expected under a name that contains ``"),
        ("changed.toml --sensitivity", "changed.toml:11:11: this cell changes a cost itself"),
        ("foreign.toml", "there is no program `foo`"),
    ] {
        scratch.run(&format!("study run {words}")).exits_with(2).complains(complaint);
    }
    // A study that is named twice is one.
    let twice = scratch.run("study run --dry-run it.toml ./it.toml").exits_with(0).out;
    assert!(twice.contains("\n2 simulations in 2 experiments"), "{twice}");
    let varied = scratch.run("study run --dry-run it.toml --sensitivity=2").exits_with(0).out;
    assert!(!varied.contains("\n2 simulations"), "those with changes count: {varied}");
}

#[test]
fn a_task_whose_name_begins_as_another_s_is_not_its_instance() {
    let scratch = Scratch::new();
    let text = r#"schema = "warmcore-study-form-1"
title = "Parts"
question = "What part of the work has one of two tasks?"
source = "By hand."

[[workload]]
name = "both"
text = '{ "tasks": { "a": { "loop": 1, "run": 10000 }, "a-1": { "loop": 1, "run": 30000 } } }'

[[cell]]
name = "both"
machine = "1s1n1l1c1t"
workload = "both"
schedulers = ["rr"]
trials = 1

[[expect]]
name = "part"
figure = "cpu_time_ns[both, task=a] / cpu_time_ns[both]"
published = 0.25
band = [0.24, 0.26]
reason = "10 ms of 40"
"#;
    scratch.write("it.toml", text);
    scratch.run("study run it.toml").exits_with(0);
}

/// Sixty figures, each twice the next one: whoever goes through all ways from the first to the last is never done.
#[test]
fn figures_that_name_another_twice_take_no_time_that_doubles() {
    let scratch = Scratch::new();
    let twice: String =
        (0..60).map(|n| format!("[[figure]]\nname = \"f{n}\"\nof = \"f{0} + f{0}\"\n", n + 1)).collect();
    let last = "[[figure]]\nname = \"f60\"\nof = \"cpu_time_ns[two, n=2, task=spin-0]\"\n";
    let model = "[[wrong]]\nname = \"more\"\nworkload = \"spin:-n4,-d40ms\"\nrejects = [\"share\"]\n";
    let of_last = format!("f0 / {} / cpu_time_ns[two, n=1]", 1_u64 << 60);
    let text = halves("[0.49, 0.51]", &format!("{twice}{last}{model}"));
    let figure = "cpu_time_ns[two, n=2, task=spin-0] / cpu_time_ns[two, n=1]";
    scratch.write("it.toml", &text.replacen(figure, &of_last, 1));
    scratch.run("study run it.toml").exits_with(0);
}

#[test]
fn a_part_runs_nothing_for_figures_that_lack_a_program() {
    let scratch = Scratch::new();
    let figure = "elapsed_ns[two, n=1, scx:no_such_scheduler] / elapsed_ns[two, n=1, rr]";
    let text = halves("[0.49, 0.51]", "").replace("[\"rr\"]", "[\"rr\", \"scx:no_such_scheduler\"]");
    scratch.write("it.toml", &text.replace("cpu_time_ns[two, n=2, task=spin-0] / cpu_time_ns[two, n=1]", figure));
    let planned = scratch.run("study run it.toml --only share --dry-run").exits_with(0).out;
    assert!(planned.contains("\n0 simulations in 0 experiments"), "{planned}");
    assert!(scratch.run("study run it.toml --only share").exits_with(0).out.contains("not answerable here"));
}

#[test]
fn what_comes_with_the_program_is_listed_and_shown() {
    let scratch = Scratch::new();
    let list = scratch.run("list studies").exits_with(0).out;
    assert!(list.contains("answers/smt-pool"), "{list}");
    let shown = scratch.run("study show answers/smt-pool").exits_with(0).out;
    for words in ["Question: ", "Source: ", "forkjoin:-n{n},-i60,-w{w}", "speedup of 8 threads", "3.4"] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    let missing = scratch.run("study show answers/hot-line-by-chance").exits_with(0).out;
    assert!(missing.contains("Not expressible: "), "{missing}");
}
