//! `--headroom`: what the oracle says on the command line, in JSON, in the run directory and in the page.

use std::fs;

use crate::common::Scratch;
use serde_json::Value;

/// Threads that share written lines on two sockets: placement is worth something.
const SHARING: &str = "compare -m 2s1n1l4c1t -w verilator:-t4,-C300 -s eevdf,cache-aware --trials 3 --headroom";

#[test]
fn table_json_and_page_say_how_far_every_scheduler_is_from_the_oracle() {
    let scratch = Scratch::new();
    let ran = scratch.run(&format!("{SHARING} --out run")).exits_with(0);
    assert!(ran.out.contains("of oracle") && ran.out.contains("which no kernel could have"), "{}", ran.out);
    let read = |name: &str| fs::read_to_string(scratch.path(name)).unwrap();
    let verdict: Value = serde_json::from_str(&read("run/verdict.json")).unwrap();
    let headroom = &verdict["headroom"];
    let oracle: Value = serde_json::from_str(&read("run/oracle.json")).unwrap();
    assert_eq!(headroom["oracle"], oracle);
    assert!(oracle["evaluations"].as_u64().unwrap() >= 5 && oracle["rehearsals"].as_array().unwrap().len() >= 3);
    assert_eq!(oracle["threads"].as_array().unwrap().len(), 4);
    // A part of the oracle is the ratio of the medians of points that are there, to be checked by hand.
    let points =
        |value: &Value| -> Vec<f64> { value.as_array().unwrap().iter().map(|point| point.as_f64().unwrap()).collect() };
    let primary = verdict["primary"].as_str().unwrap();
    let own = points(&verdict["schedulers"][0]["measures"][primary]["points"]);
    let mut ratios: Vec<f64> = points(&oracle["points"]).iter().zip(&own).map(|(oracle, own)| oracle / own).collect();
    let (least, most) = {
        ratios.sort_by(f64::total_cmp);
        (ratios[0], ratios[2])
    };
    let of_oracle = headroom["schedulers"][0]["of_oracle"].as_f64().unwrap();
    assert!((least..=most).contains(&of_oracle), "{of_oracle} is none of {ratios:?}");
    assert!(read("run/report.html").contains("of oracle"));
    // Read back, the page says the same.
    scratch.run("report run --html again.html").exits_with(0);
    assert!(read("again.html").contains("which no kernel could have"));
}

#[test]
fn threads_that_share_are_kept_on_one_socket_and_nobody_is_better() {
    let scratch = Scratch::new();
    let json = scratch.run(&format!("{SHARING} --keep nothing --json")).exits_with(0).out;
    let document: Value = serde_json::from_str(&json).unwrap();
    for scheduler in document["headroom"]["schedulers"].as_array().unwrap() {
        assert!(scheduler["of_oracle"].as_f64().unwrap() <= 1.01, "{scheduler}");
    }
    assert_eq!(
        json,
        scratch.run(&format!("{SHARING} --keep nothing --json --jobs 1")).exits_with(0).out,
        "equal input, equal bytes"
    );
}

#[test]
fn what_has_no_threads_to_place_is_refused_and_an_empty_cell_of_a_sweep() {
    let scratch = Scratch::new();
    scratch
        .run("compare -m 2s1n1l2c1t -w spin:-n4,-p0,-u10ms,-d20ms -s eevdf --trials 1 --keep nothing --headroom")
        .exits_with(2)
        .complains("there is nothing to place in workload `spin:-n4,-p0,-u10ms,-d20ms`: its threads are bound already");
    let sweep =
        "sweep -m 2s1n1l2c1t -w spin:-n4,-p0,-u10ms,-d20ms -w spin:-n2,-d20ms -s eevdf,cfs -n 1 --headroom --json";
    let document: Value = serde_json::from_str(&scratch.run(sweep).exits_with(0).out).unwrap();
    assert!(document["rows"][0].get("oracle").is_none() && document["rows"][1]["oracle"].is_number());
    assert_eq!(document["won"][2]["asked"], 1);
}
