//! The page's sections, as HTML.

use std::fmt::Write as _;

use warmcore_lab::verdict::{Finding, decimal, trials_in_words};
use warmcore_statistics::Better;
use warmcore_topology::Basis;

use crate::figures::breakdown::{share_of_gap, signed, unit_of_gaps};
use crate::figures::compare::direction;
use crate::figures::{Csv, Figure};
use crate::run::Run;
use crate::svg::escape;
use crate::text::{BESIDE, command, judged, measure, question, value};
use crate::units::{bytes, with_unit};

/// The bar at the top.
pub fn header(runs: &[Run]) -> String {
    let mut links = String::new();
    for index in 0..runs.len() {
        let more = if runs.len() > 1 { format!("{} ", index + 1) } else { String::new() };
        for (id, text) in [
            ("verdict", "Verdict"),
            ("time", "Time"),
            ("latency", "Latency"),
            ("timeline", "Timeline"),
            ("placement", "Placement"),
            ("machine", "Machine"),
            ("measures", "Measures"),
            ("about", "About"),
        ] {
            if index == 0 || id == "verdict" {
                let _ = write!(links, "<a href=\"#{id}-{index}\">{more}{text}</a>");
            }
        }
    }
    format!(
        "<a class=\"skip\" href=\"#main\">Skip to the verdict</a>\n<header class=\"top\"><span class=\"brand\">warmcore</span>\
         <nav aria-label=\"Sections\">{links}</nav><button id=\"theme\" type=\"button\" hidden>Dark</button></header>\n"
    )
}

/// What stands at the end.
pub fn footer() -> String {
    format!(
        "<footer>Made by warmcore {}. One file, no network: everything shown is in it.</footer>\n",
        escape(warmcore_lab::experiment::TOOL_VERSION)
    )
}

/// All sections of a run.
pub fn run(out: &mut String, index: usize, runs: usize, run: &Run, figures: &[Figure]) {
    verdict(out, index, runs, run, figures);
    time(out, index, run, figures);
    group(out, index, "latency", "Latency", figures, &["wakeup-latency", "preempt-wait", "slice"]);
    timeline(out, index, run, figures);
    placement(out, index, run, figures);
    machine(out, index, run, figures);
    measures(out, index, run);
    about(out, index, run);
}

/// The place of a run: `simulated`, or what it was with all that results depend on.
fn where_it_ran(run: &Run) -> String {
    let (kind, identity) = (run.disk.experiment.place.kind(), &run.disk.record.place);
    if kind.simulated { "simulated".to_owned() } else { format!("real kernel, {identity}") }
}

fn verdict(out: &mut String, index: usize, runs: usize, run: &Run, figures: &[Figure]) {
    let document = &run.disk.comparison;
    let record = &document.experiment;
    let which = if runs > 1 { format!("Run {} · ", index + 1) } else { String::new() };
    let _ = writeln!(
        out,
        "<section id=\"verdict-{index}\" class=\"verdict\">\n<p class=\"eyebrow\">{which}{} · {} · {} · {}</p>\n\
         <h1>{}</h1>\n<p class=\"answer\">{}</p>",
        escape(&record.machine.source),
        escape(&record.workload.source),
        trials_in_words(record.design, record.seeds.len()),
        escape(&where_it_ran(run)),
        escape(&question(run)),
        escape(&document.verdict.sentence)
    );
    let notes: Vec<&String> = run.notes.iter().chain(&document.warnings).collect();
    if !notes.is_empty() {
        let items: String = notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
        let _ =
            writeln!(out, "<div class=\"warnings\" role=\"note\"><b>Before you trust this</b><ul>{items}</ul></div>");
    }
    let unmeasured = run.disk.experiment.place.kind().unmeasured;
    if !unmeasured.is_empty() {
        let _ = writeln!(out, "<p class=\"note\" id=\"unmeasured\"><b>Not measured here:</b> {}</p>", unmeasured);
    }
    verdict_table(out, index, run);
    figures_below(out, figures, &["ratio", "values"], 2);
    out.push_str("</section>\n");
}

fn verdict_table(out: &mut String, index: usize, run: &Run) {
    let document = &run.disk.comparison;
    let primary = measure(run, &document.primary);
    let beside: Vec<(&str, &str)> = document
        .secondary
        .as_deref()
        .and_then(|name| Some((name, measure(run, name)?.title.as_str())))
        .into_iter()
        .chain(BESIDE)
        .filter(|(name, _)| *name != document.primary && measure(run, name).is_some())
        .collect();
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Verdict table\"><table class=\"sortable\" id=\"verdict-table-{index}\">\
         <thead><tr><th>scheduler</th><th class=\"n\" title=\"{}\">{}</th><th class=\"n\">ratio [95 %]</th><th>verdict</th>{}",
        primary.map_or_else(String::new, |m| escape(&format!("{}; {}", m.definition, direction(m.better)))),
        primary.map_or_else(String::new, |m| escape(&m.title)),
        document.headroom.as_ref().map_or(
            "",
            |_| "<th class=\"n\" title=\"in parts of the best static placement that is known\">of oracle</th>"
        ),
    );
    for (name, heading) in &beside {
        let _ = write!(out, "<th class=\"n\" title=\"{}\">{}</th>", definition(run, name), escape(heading));
    }
    out.push_str("</tr></thead><tbody>");
    for (position, scheduler) in document.schedulers.iter().enumerate() {
        let Some(result) = scheduler.measures.get(&document.primary) else { continue };
        let (ratio, words) = judged(result);
        let tone = match result.finding {
            Some(Finding::Better) => "good",
            Some(Finding::Worse) => "bad",
            _ => "plain",
        };
        let best = if document.verdict.best.as_deref() == Some(&scheduler.label) { " best" } else { "" };
        let _ = write!(
            out,
            "<tr class=\"{tone}{best}\"><th scope=\"row\"><i class=\"key c{}\"></i>{}</th><td class=\"n strong\" data-value=\"{}\">{}</td>\
             <td class=\"n\" data-value=\"{}\">{}</td><td><span class=\"finding\">{words}</span></td>",
            crate::colour::series(position),
            escape(&scheduler.label),
            number(result.summary.median),
            value(run, &document.primary, result),
            number(result.comparison.as_ref().map_or(Some(1.0), |comparison| comparison.ratio)),
            escape(&ratio),
        );
        if let Some(headroom) = &document.headroom {
            let part = headroom.scheduler(&scheduler.label).and_then(|scheduler| scheduler.of_oracle);
            let shown = part.map_or_else(|| "-".into(), decimal);
            let _ = write!(out, "<td class=\"n\" data-value=\"{}\">{shown}</td>", number(part));
        }
        for (name, _) in &beside {
            let result = scheduler.measures.get(*name);
            let _ = write!(
                out,
                "<td class=\"n\" data-value=\"{}\">{}</td>",
                number(result.and_then(|result| result.summary.median)),
                result.map_or_else(|| "-".into(), |result| escape(&value(run, name, result)))
            );
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    if let Some(headroom) = &document.headroom {
        let _ = writeln!(out, "<p class=\"headroom\">{}</p>", escape(&headroom.sentence));
    }
}

pub(super) fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

pub(super) fn definition(run: &Run, name: &str) -> String {
    measure(run, name)
        .map_or_else(String::new, |m| escape(&format!("{name}: {}; {}", m.definition, direction(m.better))))
}

fn time(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    let _ = writeln!(out, "<section id=\"time-{index}\">\n<h2>Where the time went</h2>");
    figures_named(out, figures, &["task-time", "time-gap"]);
    explained(out, run);
    figures_named(out, figures, &["cpu-time"]);
    if !figures.iter().any(|figure| figure.id == "task-time" || figure.id == "cpu-time") {
        out.push_str("<p class=\"note\">Not recorded: the run has no times by cause.</p>\n");
    }
    out.push_str("</section>\n");
}

/// The difference to the baseline, cause by cause.
fn explained(out: &mut String, run: &Run) {
    let Some(split) = run.disk.comparison.time_split.as_ref().filter(|split| !split.gaps.is_empty()) else { return };
    for gap in &split.gaps {
        let _ = writeln!(out, "<p class=\"gap\">{}.</p>", escape(&gap.sentence));
    }
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Explained difference\"><table class=\"sortable gaps\">\
         <thead><tr><th>{}</th>",
        escape(&unit_of_gaps(split))
    );
    for gap in &split.gaps {
        let label = escape(&gap.label);
        let _ = write!(out, "<th class=\"n\">{label} minus baseline</th><th class=\"n\">of the gap</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for cause in split.causes.iter().chain(&split.only_in_gaps) {
        let _ = write!(out, "<tr data-cause=\"{}\"><th scope=\"row\">{}</th>", escape(cause.name), escape(cause.title));
        for gap in &split.gaps {
            let line = gap.lines.iter().find(|line| line.name == cause.name);
            let difference = line.map_or(0.0, |line| line.difference);
            let share = line.and_then(|line| line.share);
            let _ = write!(
                out,
                "<td class=\"n\" data-value=\"{difference}\">{}</td><td class=\"n\" data-value=\"{}\">{}</td>",
                signed(split, difference),
                number(share),
                share.map_or_else(|| "–".into(), share_of_gap)
            );
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody><tfoot><tr><th scope=\"row\">the gap</th>");
    for gap in &split.gaps {
        let _ = write!(out, "<td class=\"n\">{}</td><td class=\"n\"></td>", signed(split, gap.difference));
    }
    out.push_str("</tr></tfoot></table></div>\n");
}

fn group(out: &mut String, index: usize, id: &str, title: &str, figures: &[Figure], prefixes: &[&str]) {
    if !figures.iter().any(|figure| prefixes.iter().any(|prefix| figure.id.starts_with(prefix))) {
        return;
    }
    let _ = writeln!(out, "<section id=\"{id}-{index}\">\n<h2>{title}</h2>");
    out.push_str("<div class=\"figures several\">\n");
    let wanted = |figure: &&Figure| prefixes.iter().any(|prefix| figure.id.starts_with(prefix));
    figures.iter().filter(wanted).for_each(|found| figure(out, found, 3));
    out.push_str("</div>\n</section>\n");
}

fn timeline(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    if run.scenes.is_empty() {
        return;
    }
    let trial = run.scenes[0].trial;
    let _ = writeln!(
        out,
        "<section id=\"timeline-{index}\">\n<h2>Timeline</h2>\n<p class=\"note\">Trial {trial} (seed {}) under every scheduler: the \
         trial closest to all medians.</p>\n<div class=\"view\" data-view=\"timeline\" data-run=\"{index}\"><noscript><p class=\"note\">The \
         interactive timeline needs a script; <code>warmcore report RUN --svg DIR</code> draws still ones.</p></noscript></div>",
        run.scenes[0].seed
    );
    let large = run.scenes.iter().any(|scene| scene.record.slices.is_none());
    if large {
        out.push_str(
            "<p class=\"warnings\">This trial has more slices than a page can hold; the timeline shows an overview. \
             <code>warmcore report RUN --perfetto FILE</code> writes all of it.</p>\n",
        );
    }
    figures_named(out, figures, &["threads-per-cpu", "cumulative", "score"]);
    if !figures.iter().any(|figure| figure.id.starts_with("score")) {
        let reason = if run.disk.experiment.place.kind().simulated {
            "Not recorded: what the scheduler ranked tasks by. The events of this trial were kept without it; <code>--scores 1ms</code> \
             beside <code>--trace full</code> keeps it."
        } else {
            "Not measured: what the scheduler ranked tasks by. A real kernel does not tell."
        };
        let _ = writeln!(out, "<p class=\"note\">{reason}</p>");
    }
    out.push_str("</section>\n");
}

fn placement(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    let _ = writeln!(out, "<section id=\"placement-{index}\">\n<h2>Placement</h2>");
    figures_named(out, figures, &["migrations"]);
    if !run.scenes.is_empty() {
        let _ = writeln!(out, "<div class=\"view\" data-view=\"heatmap\" data-run=\"{index}\"></div>");
    }
    figures_named(out, figures, &["residency", "transitions"]);
    out.push_str("</section>\n");
}

fn machine(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    let machine = &run.disk.experiment.machine.value;
    let _ = writeln!(
        out,
        "<section id=\"machine-{index}\">\n<h2>Machine</h2>\n<p class=\"note\">{}: {} sockets, {} NUMA nodes, {} LLCs, {} cores, {} CPUs.</p>",
        escape(machine.name()),
        machine.socket_count(),
        machine.node_count(),
        machine.llc_count(),
        machine.core_count(),
        machine.cpu_count()
    );
    if !run.scenes.is_empty() {
        let _ = writeln!(out, "<div class=\"view\" data-view=\"map\" data-run=\"{index}\"></div>");
    }
    figures_named(out, figures, &["machine", "counters"]);
    out.push_str("</section>\n");
}

/// Figures whose names begin with one of these, in a section with a heading.
fn figures_named(out: &mut String, figures: &[Figure], prefixes: &[&str]) {
    figures_below(out, figures, prefixes, 3);
}

/// The same with headings of a level.
fn figures_below(out: &mut String, figures: &[Figure], prefixes: &[&str], level: u8) {
    for prefix in prefixes {
        let of_prefix: Vec<&Figure> = figures.iter().filter(|figure| figure.id.starts_with(prefix)).collect();
        if of_prefix.is_empty() {
            continue;
        }
        let several = if of_prefix.len() > 1 { " several" } else { "" };
        let _ = writeln!(out, "<div class=\"figures{several}\">");
        of_prefix.into_iter().for_each(|found| figure(out, found, level));
        out.push_str("</div>\n");
    }
}

/// One figure with a heading of a level.
fn figure(out: &mut String, figure: &Figure, level: u8) {
    let _ = writeln!(
        out,
        "<figure id=\"figure-{id}\" data-figure=\"{id}\"><figcaption><h{level} class=\"title\">{title}</h{level}><p>{caption}</p></figcaption>\n\
         <div class=\"drawing\">{svg}</div></figure>",
        id = figure.id,
        title = escape(&figure.title),
        caption = escape(&figure.caption),
        svg = figure.svg.inline(&figure.title)
    );
}

fn measures(out: &mut String, index: usize, run: &Run) {
    let document = &run.disk.comparison;
    let _ = write!(
        out,
        "<section id=\"measures-{index}\">\n<h2>All measures</h2>\n<p class=\"note\">Medians of the trials; in brackets the ratio to \
         the baseline with its 95 % interval. Definitions show on hover and in the last column. Coloured: a difference was shown, \
         corrected for the number of schedulers within each measure.</p>\n<div class=\"tools\"><label>Find <input type=\"search\" \
         class=\"filter\" data-table=\"measures-table-{index}\"></label></div>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"All measures\"><table class=\"sortable\" id=\"measures-table-{index}\"><thead><tr><th>measure</th><th>unit</th><th>better</th>"
    );
    for scheduler in &document.schedulers {
        let _ = write!(out, "<th class=\"n\">{}</th>", escape(&scheduler.label));
    }
    out.push_str("<th>definition</th></tr></thead><tbody>");
    for measure in &document.measures {
        let results: Vec<_> = document.schedulers.iter().map(|s| s.measures.get(&measure.name)).collect();
        if results.iter().all(|result| result.is_none_or(|result| result.summary.median.is_none_or(|m| m == 0.0))) {
            continue;
        }
        let better = match measure.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
            Better::Neither => "–",
        };
        let _ = write!(
            out,
            "<tr data-measure=\"{name}\"><th scope=\"row\" title=\"{definition}\">{title}<small>{name}</small></th><td>{unit}</td><td>{better}</td>",
            name = escape(&measure.name),
            definition = escape(&measure.definition),
            title = escape(&measure.title),
            unit = measure.unit.name(),
        );
        for result in results {
            let median = result.and_then(|result| result.summary.median);
            let tone = match result.and_then(|result| result.finding) {
                Some(Finding::Better) => " good",
                Some(Finding::Worse) => " bad",
                _ => "",
            };
            let ratio =
                result.filter(|result| result.comparison.is_some()).map_or_else(String::new, |result| judged(result).0);
            let _ = write!(
                out,
                "<td class=\"n{tone}\" data-value=\"{}\">{}<small>{}</small></td>",
                number(median),
                median.map_or_else(|| "–".into(), |median| with_unit(median, measure.unit)),
                escape(&ratio)
            );
        }
        let _ = write!(out, "<td class=\"definition\">{}</td></tr>", escape(&measure.definition));
    }
    out.push_str("</tbody></table></div>\n</section>\n");
}

fn about(out: &mut String, index: usize, run: &Run) {
    let disk = &run.disk;
    let _ = writeln!(
        out,
        "<section id=\"about-{index}\">\n<h2>About this run</h2>\n<h3>Repeat it</h3>\n<pre class=\"command\" tabindex=\"0\">{}</pre>",
        escape(&command(run))
    );
    let _ = writeln!(
        out,
        "<h3>Raw data</h3><p class=\"downloads\" data-run=\"{index}\"><noscript>Downloads need a script; the run directory has \
         everything.</noscript></p>"
    );
    details(out, "Environment", &environment(run));
    let censored: u64 = disk.trials.iter().flatten().map(|trial| trial.censored_waits).sum();
    let lost: u64 = disk.trials.iter().flatten().map(|trial| trial.events_lost).sum();
    let losses = [
        ("events not recorded".to_owned(), lost.to_string()),
        ("waits that had not ended with the run (in no distribution)".to_owned(), censored.to_string()),
        ("trials asked for and finished".to_owned(), format!("{} and {}", disk.trials_asked, disk.record.seeds.len())),
    ];
    details(out, "Losses", &losses);
    let schedulers: Vec<(String, String)> =
        disk.record.schedulers.iter().map(|s| (s.label.clone(), s.resolved.clone())).collect();
    details(out, "Schedulers with every tunable", &schedulers);
    let machine = &disk.experiment.machine.value;
    let weak = |basis: Basis| matches!(basis, Basis::Assumed | Basis::Recalled);
    let assumed: Vec<(String, String)> = machine
        .origins()
        .iter()
        .filter(|(_, origin)| weak(origin.basis))
        .map(|(name, origin)| (name.clone(), origin.to_string()))
        .collect();
    // A real kernel runs with the guest's costs, not with the machine's.
    if run.disk.experiment.place.kind().simulated {
        details(
            out,
            &format!("Assumed parameters of the machine ({} of {})", assumed.len(), machine.origins().len()),
            &assumed,
        );
    }
    out.push_str("</section>\n");
}

fn details(out: &mut String, title: &str, rows: &[(String, String)]) {
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(name), escape(value)))
        .collect();
    let _ = writeln!(
        out,
        "<details><summary>{}</summary><table class=\"facts\"><tbody>{rows}</tbody></table></details>",
        escape(title)
    );
}

fn environment(run: &Run) -> Vec<(String, String)> {
    let mut rows = vec![
        ("run directory".to_owned(), run.disk.path.display().to_string()),
        ("place".to_owned(), run.disk.record.place.clone()),
        ("program".to_owned(), format!("warmcore {}", run.disk.record.tool_version)),
        (
            "checksum of the list of checksums (SHA-256)".to_owned(),
            run.disk.checksum.clone().unwrap_or_else(|| "none".into()),
        ),
    ];
    if let Some(environment) = &run.disk.environment {
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
        rows.extend([
            ("host".to_owned(), known(&environment.host)),
            (
                "kernel".to_owned(),
                format!("{} {}", known(&environment.kernel_release), known(&environment.kernel_version)),
            ),
            ("processor".to_owned(), known(&environment.cpu_model)),
            ("CPUs allowed".to_owned(), known(&environment.cpus_allowed)),
            ("memory".to_owned(), environment.memory_bytes.map_or_else(|| "unknown".into(), bytes)),
            (
                "load average at the start".to_owned(),
                environment.load_average.map_or_else(|| "unknown".into(), |l| l.to_string()),
            ),
            ("optimised build".to_owned(), environment.optimised.to_string()),
            ("trials at the same time".to_owned(), environment.jobs.to_string()),
            ("wall-clock time of all trials".to_owned(), format!("{:.2} s", environment.trial_seconds)),
        ]);
    } else {
        rows.push(("host".to_owned(), "environment.json is missing or unreadable".to_owned()));
    }
    rows
}

/// All trials with all measures.
pub fn trials_csv(run: &Run) -> String {
    let measures = &run.disk.comparison.measures;
    let heading: Vec<&str> = ["scheduler", "trial", "seed", "elapsed_ns_at_end"]
        .into_iter()
        .chain(measures.iter().map(|m| m.name.as_str()))
        .collect();
    let mut csv = Csv::new(&heading);
    for trial in run.disk.trials.iter().flatten() {
        let mut row = vec![
            trial.scheduler.clone(),
            trial.trial.to_string(),
            trial.seed.to_string(),
            trial.elapsed_ns.to_string(),
        ];
        row.extend(measures.iter().map(|measure| number(measure.value(trial))));
        csv.row(&row);
    }
    csv.finish()
}
