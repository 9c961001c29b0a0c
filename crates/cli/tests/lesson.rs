//! `warmcore report --lesson`: what the page says where tasks starve, on several CPUs, and of which span.

use std::fs;

use crate::common::Scratch;

/// The page of an experiment of one trial.
fn lesson(words: &str) -> String {
    let scratch = Scratch::new();
    scratch.run(&format!("compare {words} --trials 1 --out run")).exits_with(0);
    scratch.run("report run --lesson lesson.html").exits_with(0);
    fs::read_to_string(scratch.path("lesson.html")).unwrap()
}

/// What stands between two texts.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    page.split_once(from).and_then(|(_, rest)| rest.split_once(to)).map_or("", |(found, _)| found)
}

/// The part of a scheduler.
fn part<'a>(page: &'a str, scheduler: &str) -> &'a str {
    between(page, &format!("<h2>{scheduler}</h2>"), "</section>")
}

#[test]
fn a_task_that_never_runs_waits_longest_and_is_drawn_waiting() {
    let page = lesson("-m 1s1n1l1c1t -w lesson/three-tasks -s rr,fifo,eevdf --max-time 90ms");
    let title = between(&page, "<h1>", "</h1>");
    assert!(title.contains(" waits at least ") && title.contains(" (not over) under fifo, "), "{title}");
    assert!(!title.contains(" 0 ns "), "{title}");
    let fifo = part(&page, "fifo");
    assert!(fifo.contains("<summary>compute-b waits at least 90 ms (not over)</summary>"), "{fifo}");
    for task in ["compute-b", "editor"] {
        assert!(fifo.contains(&format!("<title>{task} still waits when the run ends, since ")), "{task}");
    }
    let pale = fifo.lines().filter(|line| line.contains("<rect") && line.contains(" waiting\""));
    assert!(pale.count() >= 2, "{fifo}");
    assert!(part(&page, "rr").contains("<summary>Longest wait: "), "a wait that ended is no more than that");
}

#[test]
fn the_page_says_which_span_it_is_about() {
    let page = lesson("-m 1s1n1l1c1t -w lesson/three-tasks -s rr,eevdf --max-time 200ms --warm-up 50ms");
    let words = between(&page, "</h1>", "</p>");
    let span = "One run of 200 ms with its warm-up of 50 ms, which the verdict leaves out. Drawn: the first 120 ms.";
    assert!(words.contains(span), "{words}");
}

/// Three threads that share data, on two LLCs: where they end up decides how long the run is.
#[test]
fn between_llcs_the_title_says_who_joined_an_llc_and_how_much_earlier_the_run_ended() {
    let page = lesson("-m 2s1n1l4c1t@gnr72 -w verilator:-t3,-C150 -s eevdf,cache-aware");
    let title = between(&page, "<h1>", "</h1>");
    assert!(title.starts_with("cache-aware: ") && title.contains(" joins llc"), "{title}");
    assert!(title.contains(", done at ") && title.contains(" ms, not "), "{title}");
    let words = between(&page, "</h1>", "</p>");
    assert!(words.contains(" LLCs. Runs of ") && words.contains("Hollow: waits."), "{words}");
    assert!(words.contains("stroke-dasharray=\"none\"") && words.contains("stroke-dasharray=\"7 3\""), "{words}");
}

/// On a small screen charts and tables are wider than the screen.
#[test]
fn what_scrolls_in_a_lesson_is_reached_by_keys_and_has_a_name_of_its_own() {
    let page = lesson("-m 1s1n1l1c1t -w lesson/three-tasks -s rr,eevdf --max-time 60ms");
    for name in ["Who runs under rr", "Who runs under eevdf", "Choices under rr", "Choices under eevdf"] {
        let scrolls = format!(" tabindex=\"0\" role=\"group\" aria-label=\"{name}\">");
        assert_eq!(page.matches(&scrolls).count(), 1, "{name}");
    }
}

#[test]
fn on_several_cpus_choices_have_a_cpu_and_times_a_whole() {
    let page = lesson("-m 1s1n1l2c1t -w lesson/three-tasks -s eevdf --max-time 100ms");
    let eevdf = part(&page, "eevdf");
    assert!(eevdf.contains("<th>time, CPU</th>") && eevdf.contains(", cpu0</td>") && eevdf.contains(", cpu1</td>"));
    assert!(eevdf.contains("CPU time, 100 % being one CPU: compute-a "), "{eevdf}");
    let page = lesson("-m 1s1n1l1c1t -w lesson/three-tasks -s eevdf --max-time 100ms");
    assert!(page.contains("<th>time</th>") && page.contains("CPU time: compute-a "));
}

/// The editor sleeps: its value ends there, and begins again at its wakeup.
#[test]
fn values_of_a_task_that_sleeps_are_not_drawn() {
    let page = lesson("-m 1s1n1l1c1t -w lesson/three-tasks -s eevdf --max-time 100ms");
    let eevdf = part(&page, "eevdf");
    let lines = |task: usize| eevdf.lines().filter(|line| line.contains(&format!("class=\"k k{task}\""))).count();
    assert!(lines(0) == 1 && lines(2) > 3, "{} and {} lines", lines(0), lines(2));
}
