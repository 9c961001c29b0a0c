//! Papers as studies: a paper is one file, its rows are judged one by one, its figures are drawn again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Scratch, expect_file};
use serde_json::Value;
use warmcore_study::document::{ExpectationResult, StudyDocument, decimal};
use warmcore_study::judge::Judgement;
use warmcore_study::library;
use warmcore_study::score::{Score, Values};

/// A paper that nobody wrote: spinners share a CPU, for each number of them what was measured. No line of Rust knows it.
fn paper(band_of_four: &str) -> String {
    format!(
        r#"schema = "warmcore-study-form-1"
title = "Shares of a CPU"
question = "What part of a CPU has one of several equal spinners?"
source = "Nobody, 2026."

[[vary]]
name = "spinners"
values = [
    {{ spinners = 2, published = 0.5, band = [0.49, 0.51] }},
    {{ spinners = 4, published = 0.25, band = {band_of_four}, reason = "a quarter" }},
]

[[cell]]
name = "one CPU"
machine = "1s1n1l1c1t"
workload = "spin:-n{{spinners}},-d80ms"
schedulers = ["rr"]
trials = 2

[[expect]]
name = "part of one of {{spinners}}"
each = ["spinners"]
figure = "cpu_time_ns[one CPU, task=spin-0] / cpu_time_ns[one CPU]"
reason = "equal parts"
"#
    )
}

#[test]
fn a_paper_is_one_file_and_a_wrong_band_in_it_is_caught() {
    let scratch = Scratch::new();
    scratch.write("all.toml", &paper("[0.24, 0.26]").replace("task=spin-0", "task=spin"));
    scratch.write("paper.toml", &paper("[0.24, 0.26]"));
    scratch.write("wrong.toml", &paper("[0.3, 0.4]").replace("published = 0.25", "published = 0.35"));
    scratch.write("without.toml", &paper("[0.3, 0.4]"));
    scratch.run("study run without.toml").exits_with(2).complains("the band is without 0.25, which was published");
    scratch.write("typing.toml", &paper("[0.24, 0.26]").replace("each =", "eahc ="));
    let values = |text: &str| -> Vec<f64> {
        let document: Value = serde_json::from_str(text).unwrap();
        let rows = document["studies"][0]["expectations"].as_array().unwrap().clone();
        rows.iter().map(|row| row["value"].as_f64().unwrap()).collect()
    };
    let right = scratch.run("study run paper.toml --json").exits_with(0);
    let [half, quarter] = values(&right.out)[..] else { panic!("{}", right.out) };
    assert!((half - 0.5).abs() < 0.01 && (quarter - 0.25).abs() < 0.01, "{half} {quarter}");
    let ran = scratch.run("study run paper.toml --only of_four --json").exits_with(2);
    ran.complains("nothing is expected under a name that contains `of_four`").complains("part of one of 4");
    let wrong = scratch.run("study run wrong.toml --json").exits_with(3);
    let wrong = wrong.complains("1 not as the files say: wrong: part of one of 4: ");
    assert_eq!(values(&wrong.out).len(), 2);
    scratch
        .run("study run typing.toml")
        .exits_with(2)
        .complains("typing.toml:22:1: there is no key `eahc`")
        .complains("did you mean `each`?");
    // All of its spinners have all of the CPU.
    assert_eq!(values(&scratch.run("study run all.toml --json").exits_with(3).out), [1.0; 2]);
}

#[test]
fn a_paper_is_what_its_file_says_and_what_cannot_be_simulated_is_shown_and_not_scored() {
    let scratch = Scratch::new();
    // A computer may have the program that this paper is about.
    let ran = scratch.command("study run papers/characterisation --trials 2").env("PATH", "").output().unwrap();
    let (out, errors) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{errors}");
    for words in ["not answerable here", "L1I", "another protocol, not scored (inside)"] {
        assert!(out.contains(words), "{words}\n{out}");
    }
    // Of these the slides say too little to run any.
    let out = scratch.run("study run papers/cache-aware-slides --only Phoronix").exits_with(0).out;
    assert!(out.contains("not expressible") && out.contains("0 of 0"), "{out}");
}

#[test]
fn figures_of_a_source_are_drawn_from_the_runs_of_what_was_asked_for() {
    let scratch = Scratch::new();
    scratch.run("study run papers/ule-cfs --only c-ray: --trials 1 --out kept").exits_with(0);
    let page = fs::read_to_string(scratch.path("kept/figures-ule-cfs.html")).unwrap();
    assert!(page.contains("Figure 7a: c-ray under ULE") && page.contains("Published:") && !page.contains("Figure 1a"));
    let files = scratch.files("kept");
    for name in ["figures/figure-7a.svg", "figures/figure-7a.csv", "figures/figure-7b.svg"] {
        assert!(files.iter().any(|file| file == name), "{name}: {files:?}");
    }
}

/// By hand: 10 ms on CPU 0 and 30 on another, in the same virtual LLC of two cores or in the next.
#[test]
fn heat_maps_of_a_source_are_drawn_for_every_value_of_an_axis() {
    let study = r#"schema = "warmcore-study-form-1"
title = "A task that moves"
question = "Where does it run?"
source = "Nobody, 2026."

[[vary]]
name = "end"
values = [1, 3]

[[workload]]
name = "mover"
text = """{ "tasks": { "mover": { "loop": 1, "phases": {
    "here": { "cpus": [0], "run": 10000 }, "there": { "cpus": [{end}], "run": 30000 } } } } }"""

[[cell]]
name = "moved"
machine = "1s1n1l4c1t"
workload = "mover"
schedulers = ["rr"]
trials = 1
observe = [{ virtual_llcs = { cores = "2" } }]

[[expect]]
name = "part of a CPU, to {end}"
each = ["end"]
figure = "cpu_time_ns[moved] / elapsed_ns[moved]"
published = 1
band = [0.9, 1.1]
reason = "it never waits"

[[drawing]]
name = "where-{end}"
title = "To CPU {end}"
published = "A quarter on CPU 0."
each = ["end"]
of = "run_time_per_cpu[moved]"

[[drawing]]
name = "moves-{end}"
title = "To CPU {end}"
published = "One move at most."
each = ["end"]
of = "moves_of_virtual_llcs[moved]"
"#;
    let scratch = Scratch::new();
    scratch.write("moves.toml", study);
    scratch.run("study run moves.toml --out kept").exits_with(0);
    let read = |name: &str| fs::read_to_string(scratch.path(&format!("kept/figures/{name}.csv"))).unwrap();
    for (end, moves) in [(1, 0), (3, 1)] {
        let data = read(&format!("where-{end}"));
        let rows: Vec<Vec<&str>> = data.lines().skip(1).map(|line| line.split(',').collect()).collect();
        let places: Vec<&str> = rows.iter().map(|row| row[1]).collect();
        assert_eq!(places, ["0".to_owned(), end.to_string()], "{data}");
        assert!((rows[1][4].parse::<f64>().unwrap() - 0.75).abs() < 0.01, "{data}");
        assert_eq!(read(&format!("moves-{end}")), format!("from_vllc,to_vllc,migrations_ran\n0,1,{moves}\n1,0,0\n"));
    }
    let page = fs::read_to_string(scratch.path("kept/figures-moves.html")).unwrap();
    assert!(page.contains("where-3: To CPU 3") && page.contains("A quarter on CPU 0."), "{page}");
}

/// One row asked for needs one cell.
#[test]
fn bars_of_a_source_are_drawn_from_all_trials_for_both_columns_of_a_paper() {
    let scratch = Scratch::new();
    let bars = r#"
[[drawing]]
name = "figure-7"
title = "Shares"
published = "One is half of the other."
unit = "part of the CPU"
bars = [
    { label = "{spinners} spinners", series = "one", each = ["spinners"], of = "cpu_time_ns[one CPU, task=spin-0] / cpu_time_ns[one CPU]" },
    { label = "nothing", of = "cpu_time_ns[one CPU, spinners=2] / (1 - 1)", published = 3 },
]
"#;
    scratch.write("paper.toml", &(paper("[0.24, 0.26]") + bars));
    scratch.run("study run paper.toml --out kept").exits_with(0);
    let data = fs::read_to_string(scratch.path("kept/figures/paper/figure-7.csv")).unwrap();
    let rows: Vec<Vec<&str>> = data.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["label", "series", "value", "smallest", "largest", "published", "unit", "note"]);
    // Two trials of fair shares: the same as the judged rows.
    for (row, label, share) in [(&rows[1], "2 spinners", 0.5), (&rows[2], "4 spinners", 0.25)] {
        assert_eq!((row[0], row[1], row[6]), (label, "one", "part of the CPU"));
        assert!((row[2].parse::<f64>().unwrap() - share).abs() < 0.01, "{row:?}");
    }
    assert_eq!(rows[3][..6], ["nothing", "", "", "", "", "3"]);
    assert!(rows[3][7].contains("divides by zero"), "{data}");
    for name in ["figure-7.svg", "figure-7-85mm.svg", "figure-7.pdf", "figure-7-85mm.pdf"] {
        assert!(scratch.path("kept/figures/paper").join(name).exists(), "{name}");
    }
    // The figure alone, by its name, with nothing judged.
    scratch
        .run("study run paper.toml --only figure-7")
        .exits_with(2)
        .complains("a drawing is a file")
        .complains("--out DIR");
    let alone = scratch.run("study run paper.toml --only figure-7 --out alone --json").exits_with(0).out;
    assert_eq!(serde_json::from_str::<Value>(&alone).unwrap()["studies"][0]["expectations"], Value::Array(Vec::new()));
    assert_eq!(fs::read_to_string(scratch.path("alone/figures/paper/figure-7.csv")).unwrap(), data);
    scratch.run("study run paper.toml --only figure-8 --out alone").exits_with(2).complains("figure-7");
    assert!(fs::read_to_string(scratch.path("kept/paper.html")).unwrap().contains("Figure 7: Shares"));
    scratch.write(
        "both.toml",
        &(paper("[0.24, 0.26]") + &bars.replace("unit =", "of = \"tasks_per_cpu[one CPU]\"\nunit =")),
    );
    scratch
        .run("study run both.toml --dry-run")
        .exits_with(2)
        .complains("a drawing has `of`, what is drawn over time, or `bars`");
}

#[test]
fn a_row_is_simulated_alone() {
    let scratch = Scratch::new();
    let ran =
        scratch.run("study run papers/characterisation --only underloaded --trials 1 --json --out kept").exits_with(0);
    let document: Value = serde_json::from_str(&ran.out).expect("one document");
    let study = &document["studies"][0];
    assert_eq!((study["expectations"].as_array().unwrap().len(), study["cells"].as_array().unwrap().len()), (1, 1));
    assert_eq!(study["expectations"][0]["judgement"], "right", "EEVDF migrates nobody on an underloaded machine");
}

#[test]
fn judgements_are_repeated_with_assumed_costs_changed() {
    let scratch = Scratch::new();
    let figure = "cpu_time_ns[one CPU, task=spin-0] / cpu_time_ns[one CPU]";
    let text = paper("[0.5, 1]").replace("[0.49, 0.51]", "[0.5, 1]");
    let text = text.replace(figure, "work_ns[one CPU] / elapsed_ns[one CPU]");
    let text =
        text.replace("published = 0.25", "published = 0.75").replace("parts\"\n", "parts\"\nneutral = \"none\"\n");
    scratch.write("paper.toml", &text);
    let ran = scratch.run("study run paper.toml --sensitivity=0.7,1.3 --json --out kept").exits_with(0);
    let document: Value = serde_json::from_str(&ran.out).expect("one document");
    assert_eq!(fs::read_to_string(scratch.path("kept/sensitivity.json")).unwrap(), ran.out);
    let changes = document["changes"].as_array().expect("changes");
    assert!(changes.len() >= 20 && changes.iter().any(|of| of["change"] == "context switch x 1.3"), "{}", ran.out);
    assert!(changes.iter().all(|of| of["values"].as_array().map(Vec::len) == Some(2)));
    let switch = changes.iter().find(|of| of["change"] == "context switch x 1.3").unwrap();
    assert_ne!(switch["values"], document["values"], "there is less work when switches cost more");
    let runs = scratch.files("kept").iter().filter(|file| file.ends_with("/experiment.toml")).count();
    assert_eq!(runs, 2 * (changes.len() + 1), "both cells as they are and under every change");
    // The same by hand, as an axis.
    let axis = "\n[[vary]]\nname = \"cost\"\nvalues = [\"\", \"context switch x 1.3\"]\n";
    let text = text.replace("trials = 2", "trials = 2\nassumed = \"{cost}\"").replace(
        "name = \"part of one of {spinners}\"\neach = [\"spinners\"]",
        "name = \"{spinners}, {cost}\"\neach = [\"spinners\", \"cost\"]",
    );
    scratch.write("axis.toml", &format!("{text}{axis}"));
    let ran = scratch.run("study run axis.toml --json").exits_with(0);
    let by_hand: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(by_hand["studies"][0]["expectations"][3]["value"], switch["values"][1], "{}", ran.out);
    scratch.write("axis.toml", &format!("{text}{}", axis.replace("switch x", "swich x")));
    scratch.run("study run --dry-run axis.toml").exits_with(2).complains("did you mean `context switch`?");
}

/// The page has a row for each of the 37 applications of the ULE paper, and the study what stands for it.
#[test]
fn the_page_and_the_study_have_the_same_programs() {
    let root = root();
    let page = fs::read_to_string(root.join("studies/papers/ule-cfs.md")).unwrap();
    let study = fs::read_to_string(root.join("studies/papers/ule-cfs.toml")).unwrap();
    let study = study.split("[[drawing]]").next().unwrap();
    let (_, section) = page.split_once("## The 37 applications").expect("the section is there");
    let rows: Vec<Vec<&str>> = section
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 37);
    let of_page = |column: usize| -> BTreeSet<&str> {
        rows.iter().filter_map(|row| row[column].strip_prefix('`')?.strip_suffix('`')).collect()
    };
    let of_study = |key: &str| -> BTreeSet<&str> {
        study.split(&format!(" {key} = \"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    };
    assert_eq!((of_page(1), of_page(2)), (of_study("of"), of_study("parallel")));
    let single = rows.iter().filter(|row| row[1] == "one thread").count();
    let means = format!(
        "* {single} + sum_over(single, (speed[one core, by=ULE] / speed[one core, by=CFS] - 1) * 100)) / {}",
        single + 10
    );
    assert!(study.contains(&means), "{means}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The sources as the studies are, with the values that the page of reproductions names.
fn judged() -> StudyDocument {
    let page = fs::read_to_string(root().join("docs/reproductions.md")).unwrap();
    let named = page.split([' ', '`']).find(|word| word.starts_with("results/") && word.ends_with("values.toml"));
    let path = root().join(named.expect("the page names its values"));
    let values = Values::read(&path).unwrap();
    let document = values.judged(&library::find("papers").unwrap(), "no value");
    assert_eq!(values.unknown(&document), [""; 0], "values of rows that are none");
    document
}

/// What is expected of a page between its marks, or of all of it; with UPDATE_PAGES=1 the page is made so.
fn expect_page(name: &str, marks: Option<(&str, &str)>, text: &str) {
    let page = fs::read_to_string(root().join(name)).unwrap_or_default();
    let made = match marks {
        None => text.to_owned(),
        Some((begin, end)) => {
            let (before, rest) = page.split_once(begin).unwrap_or_else(|| panic!("{name} has no {begin}"));
            let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("{name} has no {end}"));
            format!("{before}{begin}\n\n{text}\n{end}{after}")
        }
    };
    expect_file(name, &made);
}

/// A run of a source exits with 0 until a row comes out on another side than the kept values have it.
#[test]
fn the_studies_declare_what_is_outside_with_the_kept_values() {
    assert_eq!(judged().surprises(), [""; 0]);
}

/// How a row came out, in a word for the page of all items and in a few for the page of its source.
fn outcome(of: &ExpectationResult) -> (&'static str, String) {
    let word = match (&of.mark, of.value) {
        (_, None) if of.judgement == Judgement::NotAnswerableHere => "no value here",
        (Some(_), _) => "shown, not scored",
        (None, _) if of.is_inside() => "works",
        (None, _) if of.sign_right == Some(true) => "in part",
        (None, _) => "does not hold",
    };
    (word, if word == "no value here" { word.to_owned() } else { of.words() })
}

#[test]
fn the_pages_of_the_sources_have_every_row_as_the_studies_judge_it() {
    let document = judged();
    expect_page("docs/reproductions.md", Some(("<!-- score -->", "<!-- end -->")), &Score::markdown(&document));
    for study in &document.studies {
        let mut text =
            String::from("| row | published | here | trials | band | judgement |\n|---|--:|--:|--:|--:|---|\n");
        // Reasons of marks, each once: many rows have the same.
        let mut notes: Vec<&str> = Vec::new();
        for of in &study.expectations {
            let [published, value] = [of.published, of.value].map(decimal);
            let (_, words) = outcome(of);
            let note = of.mark.as_ref().map_or(String::new(), |mark| {
                let known = notes.iter().position(|why| *why == mark.why);
                let number = known.unwrap_or_else(|| {
                    notes.push(&mark.why);
                    notes.len() - 1
                });
                format!(", note {}", number + 1)
            });
            let trials = of.trials_in_words();
            text.push_str(&format!(
                "| {} | {published} | {value} | {trials} | {} | {words}{note} |\n",
                of.name,
                of.band()
            ));
        }
        for of in &study.not_asked {
            text.push_str(&format!("| {} | | | | | missing: {} |\n", of.name, of.missing.missing));
        }
        for (index, why) in notes.iter().enumerate() {
            text.push_str(&format!("{}{}. {why}\n", if index == 0 { "\n" } else { "" }, index + 1));
        }
        let mark = format!("<!-- rows: {} -->", study.name);
        expect_page(&format!("docs/sources/{}.md", study.name), Some((&mark, "<!-- end -->")), &text);
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Items {
    item: Vec<Item>,
}

/// What a source has besides rows of numbers.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    source: String,
    kind: String,
    what: String,
    state: String,
    #[serde(default)]
    see: String,
    #[serde(default)]
    note: String,
}

#[test]
fn the_page_of_items_is_complete_and_what_works_names_a_command_or_a_test_that_is_there() {
    const STATES: [&str; 7] =
        ["works", "in part", "does not hold", "shown, not scored", "no value here", "missing", "outside"];
    let items: Items = toml::from_str(&fs::read_to_string(root().join("docs/sources.toml")).unwrap()).unwrap();
    let document = judged();
    let (mut text, mut counts) = (String::new(), BTreeMap::<&str, usize>::new());
    for study in &document.studies {
        text.push_str(&format!(
            "\n## {}\n\n{} Its page: [{2}](sources/{2}.md).\n",
            study.title, study.question, study.name
        ));
        text.push_str("\n| kind | what | where | state |\n|---|---|---|---|\n");
        for item in items.item.iter().filter(|item| item.source == study.name) {
            let state = STATES.into_iter().find(|state| *state == item.state);
            *counts
                .entry(state.unwrap_or_else(|| panic!("{}: there is no state {}", item.what, item.state)))
                .or_default() += 1;
            assert!(state != Some("works") || !item.see.is_empty(), "{} works, and says not where", item.what);
            check_place(&item.see, &document);
            let see = if item.see.is_empty() { String::new() } else { format!("`{}`", item.see) };
            let note = if item.note.is_empty() { String::new() } else { format!(": {}", item.note) };
            text.push_str(&format!("| {} | {} | {see} | {}{note} |\n", item.kind, item.what, item.state));
        }
        for of in &study.expectations {
            let (state, _) = outcome(of);
            *counts.entry(state).or_default() += 1;
            let part = of.name.split(',').next().unwrap_or_default();
            text.push_str(&format!("| row | {} | `--only \"{part}\"` | {state} |\n", of.name));
        }
        for of in &study.not_asked {
            *counts.entry("missing").or_default() += 1;
            text.push_str(&format!("| row | {} | | missing: {} |\n", of.name, of.missing.missing));
        }
    }
    let known = |source: &str| document.studies.iter().any(|study| study.name == source);
    items.item.iter().for_each(|item| assert!(known(&item.source), "{}: no source {}", item.what, item.source));
    let counted: Vec<String> =
        STATES.iter().filter_map(|state| Some(format!("{} {state}", counts.get(state)?))).collect();
    let head = format!(
        "# Every item of the five sources\n\nEvery mechanism, experiment, figure and row of the sources that [reproductions](reproductions.md) scores, where it can be seen, and its state: \
         {} items, {}. Rows are run by `warmcore study run papers/SOURCE` with what the table names. A row *works* if it is scored and inside its band, *in part* if its sign alone is right.\n\n\
         `crates/cli/tests/papers.rs` makes this page of `docs/sources.toml`, of the studies and of the kept values, and checks that every command and test is there.\n",
        counts.values().sum::<usize>(),
        counted.join(", ")
    );
    expect_page("docs/sources.md", None, &format!("{head}{text}"));
}

/// Whether a place is there: a test or a drawing in a file, or a command of which it is a row, or that runs.
fn check_place(place: &str, document: &StudyDocument) {
    if let Some((file, name)) = place.split_once("::") {
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{place}: {error}"));
        let is_there = text.contains(&format!("fn {name}(")) || text.contains(&format!("name = \"{name}\""));
        assert!(is_there, "{place}: there is no such test or drawing");
    } else if let Some(rest) = place.strip_prefix("warmcore study run papers/") {
        let (name, only) =
            rest.split_once(" --only ").map_or((rest, ""), |(name, only)| (name, only.trim_matches('"')));
        let study = document.studies.iter().find(|study| study.name == name);
        let study = study.unwrap_or_else(|| panic!("{place}: there is no such study"));
        let has = |part: &str| study.expectations.iter().any(|of| of.name.contains(part));
        assert!(only.split(',').all(has), "{place}: no row has such a name");
    } else if !place.is_empty() {
        let command =
            place.strip_prefix("warmcore ").unwrap_or_else(|| panic!("{place} is neither a command nor a test"));
        Scratch::new().run(command).exits_with(0);
    }
}
