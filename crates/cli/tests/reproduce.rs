//! `reproduce`: every row is shown, exit codes follow the bands, bad input is told.

mod common;

use common::Scratch;

#[test]
fn all_sources_are_listed_with_what_is_covered() {
    let scratch = Scratch::new();
    let list = scratch.run("reproduce list").exits_with(0).out;
    for name in ["topology-rfc", "cache-aware-slides", "characterisation", "ule-cfs", "cdf-dio"] {
        assert!(list.contains(&format!("\n{name} ")), "{list}");
    }
    let json = scratch.run("reproduce list --json").exits_with(0).out;
    let document: serde_json::Value = serde_json::from_str(&json).expect("one document");
    assert_eq!(document["reproductions"].as_array().map(Vec::len), Some(5));
    scratch.run("reproduce cfs-ule").exits_with(2).complains("there are topology-rfc");
}

#[test]
fn rows_that_cannot_be_simulated_are_shown_and_not_scored() {
    let scratch = Scratch::new();
    let ran = scratch.run("reproduce characterisation --rows all-five").exits_with(0);
    assert!(
        ran.out.contains("the program scx_lavd in the search path of programs")
            && ran.out.contains("2 of 2 rows are not simulated yet"),
        "{}",
        ran.out
    );
    scratch.run("reproduce cdf-dio --rows nothing-like-it").exits_with(2).complains("the rows are");
}

/// Spinners that are set free, of the ULE paper: quick, and its bands are not all met (see docs/reproductions.md).
#[test]
fn a_reproduction_leaves_its_raw_data_and_says_with_its_exit_code_whether_it_holds() {
    let scratch = Scratch::new();
    let ran = scratch.run("reproduce ule-cfs --rows moved-off-core-0 --trials 1 --json --out kept");
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
    let checks = document["rows"][0]["checks"].as_array().expect("checks");
    let outside = checks.iter().filter(|check| check["verdict"] != "inside").count();
    assert_eq!(document["totals"]["outside"], outside);
    let ran = ran.exits_with(if outside == 0 { 0 } else { 3 });
    assert_eq!(checks[0]["verdict"], "inside", "380 of 512 leave core 0 within a fifth of a second\n{}", ran.out);

    let files = scratch.files("kept");
    for name in ["reproduction.json", "reproduction.md", "reproduction.txt", "environment.json"] {
        assert!(files.iter().any(|file| file == name), "{files:?}");
    }
    assert!(files.iter().any(|file| file.starts_with("experiments/01-") && file.ends_with("trials/s0-t0000.json")));
    assert_eq!(std::fs::read_to_string(scratch.path("kept/reproduction.json")).unwrap(), ran.out);
    scratch.run("reproduce cdf-dio --out kept").exits_with(2).complains("not empty");
}

/// The strategies against contention: rows without experiments, a table of all readings, and figures.
#[test]
fn placement_by_cache_sets_is_computed_with_both_dispatchers() {
    let scratch = Scratch::new();
    let ran = scratch.run("reproduce cdf-dio --rows dio --trials 2 --json --out kept");
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
    let ours = |check: usize| document["rows"][0]["checks"][check]["ours"].as_f64().unwrap();
    assert!(ours(0) > 1.1 && (0.9..1.1).contains(&ours(1)), "{} waits, {} queues", ours(0), ours(1));
    let table = std::fs::read_to_string(scratch.path("kept/table.csv")).unwrap();
    assert!(
        table.starts_with("caches,addresses,dispatcher,strategy,") && table.lines().count() == 1 + 8 * 17,
        "{table}"
    );
    let text = std::fs::read_to_string(scratch.path("kept/table.json")).unwrap();
    let rows = serde_json::from_str::<serde_json::Value>(&text).unwrap()["rows"].as_array().unwrap().clone();
    // Ten quanta of 80 tasks.
    assert!(rows.len() == 8 * 17 && rows.iter().all(|row| row["decisions"] == 800.0), "{text}");
    assert!(rows.iter().all(|row| row["values"]["wait p99 ms"]["mean"].as_f64().is_some_and(|ms| ms > 0.0)));
    let page = std::fs::read_to_string(scratch.path("kept/figures.html")).unwrap();
    assert!(page.contains("Figure 3") && page.contains("Figure 5"));
}

/// c-ray's two schedulers: the figures of that row are drawn, those of others are not.
#[test]
fn figures_of_a_source_are_drawn_from_the_runs_of_the_rows_that_were_asked_for() {
    let scratch = Scratch::new();
    scratch.run("reproduce ule-cfs --rows c-ray-time --trials 1 --out kept").exits_with(0);
    let page = std::fs::read_to_string(scratch.path("kept/figures.html")).unwrap();
    assert!(page.contains("Figure 7a: c-ray under ULE") && page.contains("Published:") && !page.contains("Figure 1a"));
    let files = scratch.files("kept");
    for name in ["figures/figure-7a.svg", "figures/figure-7a.csv", "figures/figure-7b.svg"] {
        assert!(files.iter().any(|file| file == name), "{name}: {files:?}");
    }
}

#[test]
fn rows_of_a_file_are_read_and_refused_with_their_number() {
    let scratch = Scratch::new();
    scratch.write("bad.toml", "[machine]\npreset = \"x\"\n[[row]]\nkind = \"ratio\"\nmetric = \"time\"\n");
    scratch.run("reproduce cdf-dio --published bad.toml").exits_with(2).complains("bad.toml: row 1").did_not_panic();
    scratch.write("bad.toml", "[[row]\n");
    scratch.run("reproduce cdf-dio --published bad.toml").exits_with(2).complains("bad.toml").did_not_panic();
    scratch.run("reproduce cdf-dio --published none.toml").exits_with(2).complains("cannot read none.toml");
    scratch.write("own.toml", "[machine]\npreset = \"x\"\n[[row]]\nkind = \"shape\"\nnote = \"n\"\n");
    let ran = scratch.run("reproduce cdf-dio --published own.toml").exits_with(0);
    assert!(ran.out.contains("1 of 1 rows"), "{}", ran.out);
}

#[test]
fn conclusions_are_repeated_with_assumed_parameters_changed() {
    let scratch = Scratch::new();
    let ran =
        scratch.run("reproduce ule-cfs --rows moved-off-core-0 -n 1 --sensitivity --json --out kept").exits_with(0);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
    let variations = document["variations"].as_array().expect("variations");
    assert_eq!(variations.len(), 24, "twelve groups of parameters, smaller and larger");
    assert!(variations.iter().all(|varied| varied["ours"].as_array().map(Vec::len) == Some(4)));
    let files = scratch.files("kept");
    assert!(files.contains(&"sensitivity.md".into()) && files.contains(&"variation-24/reproduction.json".into()));
}
