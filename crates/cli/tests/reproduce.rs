//! `study run papers/cdf-dio`: the paper whose figures are of a program of its own.

use crate::common::Scratch;
use crate::documents::says_what_its_schema_says;

#[test]
fn it_is_a_study_whose_rows_have_the_values_of_its_program() {
    let scratch = Scratch::new();
    scratch.run("reproduce ule-cfs").exits_with(2).complains("`warmcore study run papers/NAME` now");
    scratch.run("study run papers/cdf-dio --only nothing").exits_with(2).complains("nothing is expected under a name");
    scratch.run("study run papers/cdf-dio --sensitivity").exits_with(2).complains("have no machine whose costs");
    scratch.write("kept", "");
    scratch.run("study run papers/cdf-dio --out kept").exits_with(2).complains("holds something else");
}

/// The strategies against contention: rows without experiments, a table of all readings, and figures.
#[test]
fn placement_by_cache_sets_is_computed_with_both_dispatchers() {
    let scratch = Scratch::new();
    let words = "study run papers/cdf-dio --trials 1 --json --out kept";
    // One workload does not give what eight give, so it may end with 3.
    let ran = scratch.run(words);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
    says_what_its_schema_says(&scratch, &document, "study", words);
    assert_eq!(std::fs::read_to_string(scratch.path("kept/study.json")).unwrap(), ran.out);
    let rows = document["studies"][0]["expectations"].as_array().unwrap();
    let score = &document["studies"][0]["score"];
    assert!(score["rows"] == 10 && score["without_value"] == 0 && rows.len() == 19, "{}", ran.out);
    let ours = |row: usize| rows[row]["value"].as_f64().unwrap();
    assert!(ours(0) > 1.1 && (0.9..1.1).contains(&ours(1)), "{} waits, {} queues", ours(0), ours(1));
    let table = std::fs::read_to_string(scratch.path("kept/table.csv")).unwrap();
    assert!(
        table.starts_with("caches,addresses,dispatcher,strategy,") && table.lines().count() == 1 + 8 * 17,
        "{table}"
    );
    let skews = std::fs::read_to_string(scratch.path("kept/skews.csv")).unwrap();
    assert!(
        skews.starts_with("exponent,dispatcher,RR,DIO,CDF 0.7\n0,blocking,") && skews.lines().count() == 13,
        "{skews}"
    );
    let text = std::fs::read_to_string(scratch.path("kept/table.json")).unwrap();
    let rows = serde_json::from_str::<serde_json::Value>(&text).unwrap()["rows"].as_array().unwrap().clone();
    // Ten quanta of 80 tasks.
    assert!(rows.len() == 8 * 17 && rows.iter().all(|row| row["decisions"] == 800.0), "{text}");
    assert!(rows.iter().all(|row| row["values"]["wait p99 ms"]["mean"].as_f64().is_some_and(|ms| ms > 0.0)));
    let page = std::fs::read_to_string(scratch.path("kept/figures.html")).unwrap();
    assert!(page.contains("Figure 3") && page.contains("Figure 5"));
}

/// Tasks of a recorded trace in the place of the paper's: a copy of the study names the file.
#[test]
fn a_study_can_have_the_tasks_of_an_address_trace() {
    let scratch = Scratch::new();
    let study = |head: &str| {
        format!(
            "schema = \"warmcore-study-form-1\"\ntitle = \"t\"\nquestion = \"q\"\nsource = \"s\"\n{head}\n[[expect]]\nname = \"L1\"\n\
             figure = \"l1_hit_rate_over_rr_queue\"\nband = [0.98, 1.02]\npublished = 1\nreason = \"a loop of eight lines stays in every L1\"\n"
        )
    };
    let recorded: String = (0..2000).map(|step| format!(" L {:x},8\n", 0x1000 + step % 8 * 32)).collect();
    scratch.write("loop.lackey", &recorded);
    scratch.write("traced.toml", &study("program = \"cdf-dio\"\ntrace = \"loop.lackey\""));
    let ran = scratch.run("study run traced.toml --trials 1 --json").exits_with(0);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
    // But for the lines that each task of the trace touches first, and after others.
    let value = document["studies"][0]["expectations"][0]["value"].as_f64().expect("it is measured");
    assert!((0.98..1.02).contains(&value), "{}", ran.out);
    scratch.write("lost.toml", &study("program = \"cdf-dio\"\ntrace = \"nowhere\""));
    scratch.run("study run lost.toml --trials 1").exits_with(2).complains("nowhere: ");
    scratch.write("not.toml", &study("program = \"cdf-dio\"\ntrace = \"not.toml\""));
    scratch.run("study run not.toml --trials 1").exits_with(2).complains("this is no address trace");
    scratch.write("cells.toml", &study("trace = \"loop.lackey\""));
    scratch.run("study run cells.toml").exits_with(2).complains("a trace is for the tasks of a `program`");
}

/// Tasks, CPUs, skew and tolerances are a study's, and quantities of each strategy are figures.
#[test]
fn a_study_asks_the_program_for_other_numbers_than_the_papers() {
    let scratch = Scratch::new();
    let study = |keys: &str, figure: &str| {
        format!(
            "schema = \"warmcore-study-form-1\"\ntitle = \"t\"\nquestion = \"q\"\nsource = \"s\"\nprogram = \"cdf-dio\"\n[contention]\n{keys}\n\
             [[figure]]\nname = \"gain\"\nof = \"l2_hit_rate_cdf_0.25_queue / l2_hit_rate_rr_queue\"\n\
             [[expect]]\nname = \"gain\"\nfigure = \"gain\"\nband = [0, inf]\nneutral = \"none\"\nreason = \"r\"\n\
             [[expect]]\nname = \"of one\"\nfigure = \"{figure}\"\nband = [0, inf]\ncounted = false\nreason = \"r\"\n"
        )
    };
    let keys = "tasks = 12\naccesses = 600\nskew = 1.2\ncpus = 4\ncpus_per_group = 2\ntolerances = [0.25]";
    let ratio = "l2_hit_rate_cdf_0.25_queue / l2_hit_rate_rr_queue * 2";
    scratch.write("own.toml", &study(keys, ratio));
    let ran = scratch.run("study run own.toml --trials 2 --json --out own").exits_with(0);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
    let value = |row: usize| document["studies"][0]["expectations"][row]["value"].as_f64().expect("it is measured");
    assert!(value(0) > 0.0 && value(1) == 2.0 * value(0), "{}", ran.out);
    let table = std::fs::read_to_string(scratch.path("own/table.csv")).unwrap();
    // Five strategies, a tolerance in two readings, and one that adapts, under both dispatchers.
    assert!(
        table.lines().count() == 1 + 2 * 8 && table.contains("\npaper,page-aligned,queue,cdf:adaptive,"),
        "{table}"
    );
    let files = scratch.files("own");
    assert!(!files.iter().any(|file| file == "skews.csv" || file == "figures/figure-3.svg"), "the paper's: {files:?}");
    scratch.write("other.toml", &study("tolerances = [0.25, 0.5]", "l2_hit_rate_cdf_0.56_queue"));
    let unknown = scratch.run("study run other.toml --dry-run").exits_with(2);
    unknown.complains(
        "other.toml:19:11: there is no figure `l2_hit_rate_cdf_0.56_queue`; did you mean `l2_hit_rate_cdf_0.5_queue`?",
    );
    scratch.write("large.toml", &study("skew = 9\ntolerances = [0.25]", ratio));
    scratch.run("study run large.toml").exits_with(2).complains("large.toml:7:8: `skew` is 0 to 4, not 9");
}

/// What an axis sets gives what a study has that sets it itself, and the table of each value is in its own directory.
#[test]
fn an_axis_sets_keys_of_contention() {
    let scratch = Scratch::new();
    let study = |keys: &str, expected: &str| {
        format!(
            "schema = \"warmcore-study-form-1\"\ntitle = \"t\"\nquestion = \"q\"\nsource = \"s\"\nprogram = \"cdf-dio\"\n\
             [contention]\ntasks = 12\naccesses = 600\ntolerances = [0.25]\n{keys}\n\
             [[expect]]\nname = \"rr {{skew}}\"\n{expected}\nband = [0, 1]\nneutral = \"none\"\nreason = \"r\"\n"
        )
    };
    let values = |name: &str, text: &str| -> Vec<f64> {
        scratch.write(name, text);
        let ran = scratch.run(&format!("study run {name} --trials 2 --json --out of-{name}")).exits_with(0);
        let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
        let rows = document["studies"][0]["expectations"].as_array().expect("rows");
        rows.iter().map(|row| row["value"].as_f64().expect("it is measured")).collect()
    };
    let axis = "[[vary]]\nname = \"skew\"\nvalues = [0, 2]";
    let varied = study(axis, "each = [\"skew\"]\nfigure = \"l2_hit_rate_rr_queue[contention]\"");
    let both = values("varied.toml", &varied);
    let single = |skew: u32| {
        values(&format!("{skew}.toml"), &study(&format!("skew = {skew}"), "figure = \"l2_hit_rate_rr_queue\""))
    };
    assert_eq!(both, [single(0), single(2)].concat());
    assert_ne!(both[0], both[1]);
    let table = |path: &str| std::fs::read_to_string(scratch.path(path)).unwrap();
    assert_eq!(table("of-varied.toml/skew=2/table.csv"), table("of-2.toml/table.csv"));
    scratch.write("none.toml", &study(axis, "figure = \"l2_hit_rate_rr_queue\""));
    scratch.run("study run none.toml --dry-run").exits_with(2).complains("is one for each value of the axes");
}

/// A part of the paper's study is that part.
#[test]
fn a_row_of_it_is_computed_without_the_tables() {
    let scratch = Scratch::new();
    scratch.run("study run papers/cdf-dio --only L1 --trials 1 --out part");
    let files = scratch.files("part");
    assert!(files.iter().any(|file| file == "study.json"), "{files:?}");
    assert!(!files.iter().any(|file| file.starts_with("table") || file == "figures.html"), "{files:?}");
}
