//! Figures of runs: keys, scales and captions.

use std::fs;

use crate::common::Scratch;

fn read(scratch: &Scratch, name: &str) -> String {
    fs::read_to_string(scratch.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Texts of a drawing.
fn texts(svg: &str) -> Vec<&str> {
    svg.split("<text")
        .skip(1)
        .filter_map(|text| text.split_once('>')?.1.split_once('<').map(|(text, _)| text))
        .collect()
}

#[test]
fn keys_name_the_llcs_where_something_ran_and_no_other() {
    let scratch = Scratch::new();
    scratch.run("compare -m 1s1n32l1c1t -w spin:-n3,-d20ms -s cfs --trials 1 --out run").exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let data = read(&scratch, "figures/timeline-tasks-0-cfs.csv");
    let used: std::collections::BTreeSet<&str> = data.lines().skip(1).filter_map(|row| row.split(',').nth(1)).collect();
    assert!((1..=3).contains(&used.len()), "{used:?}");
    for figure in ["timeline-tasks-0-cfs", "residency-0-cfs", "timeline-cpus-0-cfs"] {
        let svg = read(&scratch, &format!("figures/{figure}.svg"));
        let named: std::collections::BTreeSet<&str> = texts(&svg)
            .into_iter()
            .filter_map(|text| text.strip_prefix("stripe: ").unwrap_or(text).strip_prefix("llc"))
            .collect();
        assert_eq!(named, used, "{figure}");
    }
}

#[test]
fn in_a_column_of_a_paper_the_key_has_every_group() {
    let scratch = Scratch::new();
    let words = "-w spin:-n2,-d20ms+hackbench:-T,-p,-f2,-g1,-l20 -s cfs --trials 1 --max-time 40ms";
    scratch.run(&format!("compare -m 1s1n4l2c1t {words} --out run")).exits_with(0);
    scratch.run("report run --figure timeline-cpus-0-cfs:85mm --svg one.svg").exits_with(0);
    let svg = read(&scratch, "one.svg");
    for group in ["spinner", "main", "sender", "receiver"] {
        assert!(texts(&svg).iter().any(|text| text.contains(group)), "{group}: {:?}", texts(&svg));
    }
    assert!(texts(&svg).iter().any(|text| text.starts_with("stripe: llc")), "{:?}", texts(&svg));
}

/// Its longest name has 50 letters, for which there is room above its bar.
#[test]
fn causes_have_whole_names_in_a_column_of_a_journal() {
    let scratch = Scratch::new();
    let words = "-m 1s1n2l4c1t -w hackbench:-T,-p,-f3,-g2,-l60 -s eevdf,ule --trials 8";
    scratch.run(&format!("compare {words} --out run")).exits_with(0);
    scratch.run("report run --figure time-gap:85mm --svg one.svg").exits_with(0);
    let svg = read(&scratch, "one.svg");
    let texts = texts(&svg);
    assert!(texts.contains(&"waiting for a CPU") && !texts.iter().any(|text| text.contains('…')), "{texts:?}");
}

/// Not only made larger: the smallest letters, of 10.5 units, have 7 points at either width.
#[test]
fn figures_of_one_scheduler_are_laid_out_for_their_width() {
    let scratch = Scratch::new();
    let words = "-m 2s1n2l4c1t -w hackbench:-T,-p,-f4,-g2,-l20 -s eevdf,cfs --trials 1 --out run";
    scratch.run(&format!("compare {words}")).exits_with(0);
    let of_one = ["machine", "transitions", "residency", "cumulative", "threads-per-cpu", "counters"];
    let names = of_one.map(|name| format!("{name}-0-eevdf"));
    for name in names.iter().map(String::as_str).chain(["wakeup-latency"]) {
        for (length, points) in [("85mm", 240.94), ("180mm", 510.24)] {
            let file = format!("{name}-{length}.svg");
            scratch.run(&format!("report run --figure {name}:{length} --svg {file}")).exits_with(0);
            let svg = read(&scratch, &file);
            let wide: f64 = svg.split("viewBox=\"0 0 ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
            let smallest = 10.5 * points / wide;
            assert!((6.99..=7.2).contains(&smallest), "{file}: {smallest} points");
        }
    }
}

#[test]
fn maps_of_several_schedulers_have_one_scale_and_say_it() {
    let scratch = Scratch::new();
    scratch.run("compare -m 1s1n2l2c1t -w hackbench:-T,-p,-f4,-g2,-l20 -s cfs,rr --trials 1 --out run").exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let scale = |name: &str| {
        let svg = read(&scratch, &format!("figures/{name}.svg"));
        let found = texts(&svg).into_iter().find(|text| text.starts_with("thickest edge: ")).map(str::to_owned);
        found.unwrap_or_else(|| panic!("{name} has no scale"))
    };
    assert_eq!(scale("machine-0-cfs"), scale("machine-1-rr"));
    let thickest = ["machine-0-cfs", "machine-1-rr"]
        .map(|name| read(&scratch, &format!("figures/{name}.svg")).contains("class=\"traffic w7\""));
    assert!(thickest.contains(&true));
    assert!(read(&scratch, "run/report.html").contains("All schedulers have the same scales"));
    // A key of curves shows their dashes: they differ on grey paper too.
    let latency = read(&scratch, "figures/wakeup-latency.svg");
    assert!((0..2).all(|curve| latency.contains(&format!("class=\"sample k k{curve}\""))), "{latency}");
}

#[test]
fn what_the_bars_of_a_map_stand_for_is_in_every_file_and_once_in_a_page() {
    let scratch = Scratch::new();
    let words = "-w spin:-n6,-p0,-u5ms,-d30ms,--profile=mysql-select -s cfs,rr --trials 1 --out run";
    scratch.run(&format!("compare -m 2s1n2l4c1t {words}")).exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    for name in ["machine-0-cfs", "machine-1-rr"] {
        let svg = read(&scratch, &format!("figures/{name}.svg"));
        assert!(texts(&svg).iter().any(|text| text.starts_with("cache lines from ")), "{name}");
    }
    let page = read(&scratch, "run/report.html");
    assert_eq!(page.matches("<span>Bars in boxes, cache lines from:</span>").count(), 1);
}

#[test]
fn moves_between_many_llcs_have_a_scale_and_names_where_something_came() {
    let scratch = Scratch::new();
    let words = "compare -m 1s1n16l1c1t -w hackbench:-T,-p,-f10,-g2,-l40 -s cfs,rr --trials 1 --out run";
    scratch.run(words).exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    for name in ["transitions-0-cfs", "transitions-1-rr"] {
        let svg = read(&scratch, &format!("figures/{name}.svg"));
        let data = read(&scratch, &format!("figures/{name}.csv"));
        let entered: std::collections::BTreeSet<String> = data
            .lines()
            .skip(1)
            .filter(|row| !row.ends_with(",0"))
            .filter_map(|row| row.split(',').nth(1).map(|llc| format!("llc{llc}")))
            .collect();
        let bars =
            svg.split("into llc").skip(1).filter_map(|rest| rest.split_once(':').map(|(llc, _)| format!("llc{llc}")));
        assert_eq!(bars.collect::<std::collections::BTreeSet<String>>(), entered, "{name}");
        assert!(entered.iter().all(|llc| texts(&svg).contains(&llc.as_str())), "{name}: {:?}", texts(&svg));
        assert!(svg.contains("for-light"), "{name} has a scale of its colours");
        assert!(texts(&svg).iter().any(|text| text.ends_with("  migrations")), "{name}: {:?}", texts(&svg));
    }
}

#[test]
fn numbers_on_cells_are_light_on_dark_ones() {
    let scratch = Scratch::new();
    scratch.run("compare -m 1s1n2l2c1t -w hackbench:-T,-p,-f4,-g2,-l20 -s rr --trials 1 --out run").exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let svg = read(&scratch, "figures/transitions-0-rr.svg");
    assert!(svg.contains(".on-cell{fill:#fff;") && svg.contains("class=\"t s on-cell\""), "{svg}");
}

#[test]
fn captions_of_measures_say_that_the_warm_up_is_left_out() {
    let page = |more: &str| {
        let scratch = Scratch::new();
        let words = "compare -m 1s1n2l2c1t -w spin:-n6,-d200ms -s cfs,rr --trials 1";
        scratch.run(&format!("{words} {more} --out run")).exits_with(0);
        let page = read(&scratch, "run/report.html");
        (page.matches("The warm-up is left out.").count(), page.contains("from the start to the end of the run"))
    };
    let (with, whole) = page("--warm-up 20ms");
    assert!(with >= 2 && !whole, "times of tasks and of CPUs: {with}");
    assert_eq!(page("--warm-up 0"), (0, false));
}

/// Under ULE the editor waits for a switch only: that has no ratio to 20 ms, and is the best all the same.
#[test]
fn the_best_scheduler_comes_first_though_it_has_no_ratio() {
    let scratch = Scratch::new();
    scratch.run("compare -m 1s1n1l1c1t -w lesson/three-tasks -s rr,fifo,ule --out run").exits_with(0);
    let page = read(&scratch, "run/report.html");
    let title = page.split_once("<h1>").unwrap().1.split_once("</h1>").unwrap().0;
    let words = title.replace('\u{a0}', " ");
    assert!(words.starts_with("ule is best: ") && words.contains(" 700 ns, not 19.9 ms; fifo: "), "{title}");
    assert!(!words.starts_with("ule is best: 700 ns"), "the measure has its name: {title}");
    assert!(title.contains("700\u{a0}ns"), "{title}");
    scratch.run("report run --svg figures").exits_with(0);
    let svg = read(&scratch, "figures/ratio.svg");
    assert!(texts(&svg).contains(&"700 ns") && texts(&svg).contains(&"better, no ratio"), "{:?}", texts(&svg));
    assert!(svg.contains("<title>fifo, trial 0: ") && !svg.contains("<title>ule, trial "), "no ratio, no point");
}

#[test]
fn a_baseline_that_is_best_comes_first_and_the_others_in_order() {
    let scratch = Scratch::new();
    scratch.run("compare -m 1s1n1l1c1t -w lesson/three-tasks -s ule,fifo,rr --out run").exits_with(0);
    let page = read(&scratch, "run/report.html");
    let title = page.split_once("<h1>").unwrap().1.split_once("</h1>").unwrap().0.replace('\u{a0}', " ");
    assert!(title.starts_with("ule is best; rr: ") && title.contains("; fifo: "), "{title}");
}

#[test]
fn a_headline_names_the_measure_and_the_baseline_once() {
    let scratch = Scratch::new();
    let slices = "eevdf,eevdf:base_slice_ns=200us,eevdf:base_slice_ns=3ms";
    let words = format!("compare -m 1s1n1l2c1t@i7-3770 -w forkjoin:-n3,-i60,-w2ms -s {slices} --out run");
    scratch.run(&words).exits_with(0);
    let page = read(&scratch, "run/report.html");
    let title = page.split_once("<h1>").unwrap().1.split_once("</h1>").unwrap().0.replace('\u{a0}', " ");
    assert_eq!(title.matches("% more elapsed time than eevdf; ").count(), 1, "{title}");
    assert!(title.ends_with(" % more"), "{title}");
}

#[test]
fn a_distribution_says_of_how_many_cases_it_is() {
    let scratch = Scratch::new();
    scratch.run("compare -m 1s1n1l2c1t -w spin:-n3,-d20ms -s cfs --trials 1 --out run").exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let svg = read(&scratch, "figures/wakeup-latency.svg");
    let texts = texts(&svg);
    let count = texts.iter().find_map(|text| text.strip_prefix("n ")).unwrap_or_else(|| panic!("{texts:?}"));
    assert!(count.parse::<u64>().unwrap() < 100 && texts.contains(&"p99 -"), "{texts:?}");
}

/// Of what a task is ranked by, each part of the run has one row with the range of its samples.
#[test]
fn data_of_scores_have_a_row_for_each_part_of_the_run() {
    let scratch = Scratch::new();
    scratch.run("compare -m 1s1n1l2c1t -w spin:-n5,-d400ms -s eevdf --trials 1 --out run").exits_with(0);
    scratch.run("report run --svg figures").exits_with(0);
    let data = read(&scratch, "figures/score-0-eevdf-vlag-ns.csv");
    assert!(data.starts_with("row,task,name,time_ns,least,last,most\n"), "{data}");
    let mut seen = std::collections::BTreeSet::new();
    let mut ranges = 0;
    for row in data.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').rev().collect();
        let [most, last, least] = [0, 1, 2].map(|cell: usize| cells[cell].parse::<i64>().unwrap());
        assert!((least..=most).contains(&last), "{row}");
        assert!(seen.insert((cells[4].to_owned(), cells[3].to_owned())), "a second row: {row}");
        ranges += usize::from(least < most);
    }
    assert!(ranges > 10, "{ranges} of {} parts have a range", seen.len());
    let page = read(&scratch, "run/report.html");
    assert!(page.contains("The area is from the least to the greatest of about "));
}

#[test]
fn columns_on_different_machines_have_no_timeline_and_the_page_says_so() {
    let scratch = Scratch::new();
    let words = "compare -m 1s1n2l2c1t -w spin:-n3,-d20ms -s cfs,rr@machine=1s1n2l1c1t --trials 1 --out run";
    scratch.run(words).exits_with(0);
    let page = read(&scratch, "run/report.html");
    assert!(page.contains("No timeline: the columns run on different machines."));
    assert!(!page.contains("data-view=\"timeline\""));
}
