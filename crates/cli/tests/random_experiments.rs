//! What people see of random experiments: no ratio in table, page or Markdown is infinite, no number or over nothing.

use std::fs;

use crate::common::Scratch;
use serde_json::Value;

/// Numbers of a seed, one after the other (Knuth's MMIX generator, its upper half).
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % count as u64) as usize
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Words of a comparison.
fn comparison(draws: &mut Draws) -> String {
    let machine =
        format!("{}s1n{}l{}c{}t", 1 + draws.below(2), 1 + draws.below(2), 1 + draws.below(2), 1 + draws.below(2));
    let (n, us) = (1 + draws.below(6), 20 + draws.below(900));
    let workload = match draws.below(5) {
        0 => format!("spin:-n{n},-d20ms"),
        1 => format!("hackbench:-T,-p,-f2,-g1,-l{n}"),
        2 => format!("periodic:-n{n},-r{us}us,-s1ms,-d20ms"),
        3 => format!("forkjoin:-n{n},-i3,-w{us}us"),
        _ => format!("spin:-n{n},-d10ms+pingpong:-n1,-w{us}us,-d10ms"),
    };
    let schedulers =
        draws.one_of(&["cfs,eevdf,rr", "eevdf,ule", "rr,eevdf:base_slice_ns=700000", "random,cfs,fewest-tasks"]);
    // The first ones are zero in many runs.
    let metric = draws.one_of(&[
        "--metric migrations_ran",
        "--metric cross_llc_ran_per_s",
        "--metric cpu_share_deviation",
        "--metric preempt_wait_p99_ns",
        "",
        "--max-time 5ms",
    ]);
    let (trials, margin) = ([1, 8][draws.below(2)], ["0", "1", "20"][draws.below(3)]);
    format!("-m {machine} -w {workload} -s {schedulers} --trials {trials} --margin {margin} {metric}")
}

/// The page without its script, style and data, and without tags but for the numbers behind cells.
fn read_by_people(page: &str) -> String {
    // Scripts and styles hold signs that look like tags.
    let body = page.split_once("<body>").expect("a page has a body").1;
    let body: String =
        body.split("<script").map(|part| part.split_once("</script>").map_or(part, |(_, rest)| rest)).collect();
    let mut text = String::new();
    for part in body.split('<') {
        let (tag, rest) = part.split_once('>').unwrap_or(("", part));
        let value = tag.split("data-value=\"").nth(1).and_then(|value| value.split('"').next());
        text.push_str(value.unwrap_or_default());
        text.push(' ');
        text.push_str(rest);
    }
    // A time that did not come is no ratio; tables sort by its number.
    text.replace("inf never", "never")
}

fn check(text: &str, what: &str) {
    let is_wrong = |line: &&str| {
        let mut words = line.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        words.any(|word| ["nan", "inf", "infinity"].contains(&word.as_str()))
    };
    let wrong: Vec<&str> = text.lines().filter(is_wrong).map(|line| line.get(..200).unwrap_or(line)).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

/// Objects with this key, wherever they are.
fn with_key<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(key) {
                found.push(value);
            }
            fields.values().for_each(|value| with_key(value, key, found));
        }
        Value::Array(values) => values.iter().for_each(|value| with_key(value, key, found)),
        _ => {}
    }
}

#[test]
fn tables_pages_and_documents_of_random_experiments_have_only_real_ratios() {
    let scratch = Scratch::new();
    let mut draws = Draws(7);
    for number in 0..14 {
        let words = comparison(&mut draws);
        let ran = scratch.run(&format!("compare {words} --out run-{number}")).did_not_panic().exits_with(0);
        scratch.run(&format!("report run-{number} --markdown {number}.md --no-timeline")).exits_with(0);
        let read = |name: &str| fs::read_to_string(scratch.path(name)).unwrap();
        check(&ran.out, &words);
        check(&read(&format!("{number}.md")), &words);
        check(&read_by_people(&read(&format!("run-{number}/report.html"))), &words);
        let document: Value = serde_json::from_str(&read(&format!("run-{number}/verdict.json"))).unwrap();
        let schedulers = document["schedulers"].as_array().unwrap();
        let base = schedulers.iter().find(|scheduler| scheduler["is_baseline"] == true).unwrap();
        for scheduler in schedulers {
            for (name, result) in scheduler["measures"].as_object().unwrap() {
                let ratio = &result["comparison"]["ratio"];
                assert!(ratio.is_null() || ratio.is_number(), "{words}: {name} {ratio}");
                let nothing = base["measures"][name]["summary"]["median"].as_f64().is_none_or(|median| median == 0.0);
                assert!(ratio.is_null() || !nothing, "{words}: {name} has a ratio over nothing");
            }
        }
        let mut intervals = Vec::new();
        with_key(&document, "low", &mut intervals);
        let real = |interval: &&Value| interval["low"].is_number() && interval["high"].is_number();
        assert!(intervals.iter().all(real), "{words}: {intervals:?}");
    }
    // Side by side too.
    scratch.run("report run-0 run-1 run-2 --html several.html --no-timeline").exits_with(0);
    check(&read_by_people(&fs::read_to_string(scratch.path("several.html")).unwrap()), "several runs");
}
