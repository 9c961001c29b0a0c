//! The page's sections, as HTML.

use std::fmt::Write as _;

use warmcore_lab::measures::Measure;
use warmcore_lab::verdict::{Finding, MeasureResult, trials_in_words};
use warmcore_statistics::Better;
use warmcore_topology::Basis;

use super::rows::{figures_named, of_schedulers, scores};
use super::verdict::{verdict, why, with_names};
use crate::figures::breakdown::{share_of_gap, signed, unit_of_gaps};
use crate::figures::compare::direction;
use crate::figures::map::sources_there;
use crate::figures::{Csv, Figure, scheduler_name};
use crate::run::Run;
use crate::svg::escape;
use crate::text::{command, is_printed_as_nothing, judged, left_out, measure};
use crate::units::{bytes, duration, with_unit};

/// The bar at the top.
pub fn header(runs: &[Run]) -> String {
    let mut links = String::new();
    for index in 0..runs.len() {
        let more = if runs.len() > 1 { format!("{} ", index + 1) } else { String::new() };
        for (id, text) in [
            ("verdict", "Verdict"),
            ("machine", "Machine"),
            ("timeline", "Timeline"),
            ("time", "Why"),
            ("trials", "Trials"),
            ("latency", "Latency"),
            ("placement", "Placement"),
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
pub(crate) fn footer() -> String {
    format!(
        "<footer>Made by warmcore {}. One file, no network: everything shown is in it.</footer>\n",
        escape(warmcore_lab::experiment::TOOL_VERSION)
    )
}

/// All sections of a run.
pub fn run(out: &mut String, index: usize, runs: usize, run: &Run, figures: &[Figure]) {
    verdict(out, index, runs, run);
    // Where there is one LLC only, the map shows little.
    let many_places = run.disk.experiment.machine.value.llc_count() > 1;
    if many_places {
        machine(out, index, run, figures);
    }
    timeline(out, index, run);
    time(out, index, run, figures);
    if !many_places {
        machine(out, index, run, figures);
    }
    trials(out, index, run, figures);
    latency(out, index, figures);
    placement(out, index, run, figures);
    over_time(out, index, run, figures);
    super::counted::section(out, index, run);
    measures(out, index, run);
    about(out, index, run);
}

/// Closed sections that are printed nevertheless: the evidence, and how to repeat it. Of others paper has the heading.
const PRINTED: [&str; 3] = ["Trials", "Measures", "About this run"];

/// A section that is closed until a reader wants it; a few words say what is in it. Nothing where there is nothing.
pub(super) fn closed(out: &mut String, id: &str, title: &str, words: &str, body: &str) {
    if !body.is_empty() {
        let printed = if PRINTED.contains(&title) { " printed" } else { "" };
        let _ = writeln!(
            out,
            "<section id=\"{id}\">\n<details class=\"closed{printed}\"><summary><h2>{title}</h2> <span>{}</span></summary>\n{body}</details>\n</section>",
            escape(words)
        );
    }
}

fn trials(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    if run.is_recording() {
        return;
    }
    let mut body = String::new();
    figures_named(&mut body, figures, &[&["ratio", "values"]]);
    let words = match run.disk.record.seeds.len() {
        1 => "the points of the only trial".to_owned(),
        trials => format!("every point of the {}", trials_in_words(run.disk.record.design, trials)),
    };
    closed(out, &format!("trials-{index}"), "Trials", &words, &body);
}

pub(super) fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

pub(super) fn definition(run: &Run, name: &str) -> String {
    measure(run, name)
        .map_or_else(String::new, |m| escape(&format!("{name}: {}; {}", m.definition, direction(m.better))))
}

fn time(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    let compared = run.disk.comparison.schedulers.len() > 1;
    let title = if compared { "Why" } else { "Where the time went" };
    let _ = writeln!(out, "<section id=\"time-{index}\">\n<h2>{title}</h2>");
    let has_gaps = run.disk.comparison.time_split.as_ref().is_some_and(|split| !split.gaps.is_empty());
    if let Some(why) = why(run).or(has_gaps.then_some("There is no difference to explain")) {
        let _ = writeln!(out, "<p class=\"why\">{}.</p>", escape(&with_names(run, why.trim_end_matches('.'))));
    }
    out.push_str("<div class=\"columns\"><div>\n");
    figures_named(out, figures, &[&["task-time"]]);
    if compared {
        // Most of a large machine is idle, under every scheduler.
        out.push_str("<details><summary>CPU time of the whole machine</summary>\n");
    }
    figures_named(out, figures, &[&["cpu-time"]]);
    out.push_str(if compared { "</details>\n</div><div>\n" } else { "</div><div>\n" });
    let mut gaps = String::new();
    figures_named(&mut gaps, figures, &[&["time-gap"]]);
    explained(&mut gaps, run, figures.iter().any(|figure| figure.id == "time-gap"));
    if !gaps.is_empty() {
        // The page's script closes it on a small screen, where it is below the times themselves.
        let _ = writeln!(
            out,
            "<details open class=\"printed fold-small\"><summary>Differences to the baseline, cause by cause</summary>\n{gaps}</details>"
        );
    }
    out.push_str("</div></div>\n");
    super::beside::tables(out, run);
    operations(out, run);
    if !figures.iter().any(|figure| figure.id == "task-time" || figure.id == "cpu-time") {
        out.push_str("<p class=\"note\">Not recorded: the run has no times by cause.</p>\n");
    }
    out.push_str("</section>\n");
}

/// The difference to the baseline, cause by cause; `drawn`: there is a figure of it.
fn explained(out: &mut String, run: &Run, drawn: bool) {
    let Some(split) = run.disk.comparison.time_split.as_ref().filter(|split| !split.gaps.is_empty()) else { return };
    let said = why(run);
    // The verdict says who does not differ.
    for gap in split.gaps.iter().filter(|gap| gap.explains() && said != Some(gap.sentence.as_str())) {
        let _ = writeln!(out, "<p class=\"gap\">{}.</p>", escape(&with_names(run, gap.sentence.trim_end_matches('.'))));
    }
    let _ = write!(
        out,
        "<details><summary>{}</summary><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Explained difference\"><table class=\"sortable gaps\">\
         <thead><tr><th>{}</th>",
        if drawn { "The same as a table" } else { "Differences by cause, as a table" },
        escape(&unit_of_gaps(split))
    );
    for gap in &split.gaps {
        let label = escape(&scheduler_name(&gap.label));
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
    out.push_str("</tr></tfoot></table></div></details>\n");
}

/// What the operations of sched_ext schedulers took, one table each.
fn operations(out: &mut String, run: &Run) {
    let of_programs = run.disk.comparison.schedulers.iter().filter(|scheduler| !scheduler.operations.is_empty());
    for scheduler in of_programs {
        let _ = write!(
            out,
            "<details class=\"operations\"><summary>Operations of {}</summary><div class=\"scroll\" tabindex=\"0\" role=\"group\" \
             aria-label=\"Operations of the scheduler\"><table class=\"sortable\"><thead><tr><th>operation</th><th class=\"n\">calls</th>\
             <th class=\"n\">instructions each</th><th class=\"n\">ns each</th><th class=\"n\">ms in all</th></tr></thead><tbody>",
            escape(&scheduler_name(&scheduler.label))
        );
        for operation in &scheduler.operations {
            let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&operation.operation));
            let values = [
                (Some(operation.calls), 0),
                (operation.instructions_per_call, 0),
                (operation.charged_ns_per_call, 0),
                (operation.charged_ns.map(|charged_ns| charged_ns / 1e6), 3),
            ];
            for (value, decimals) in values {
                let shown = value.map_or_else(|| "–".into(), |value| format!("{value:.decimals$}"));
                let _ = write!(out, "<td class=\"n\" data-value=\"{}\">{shown}</td>", number(value));
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div></details>\n");
    }
}

fn latency(out: &mut String, index: usize, figures: &[Figure]) {
    const OF: [(&str, &str); 3] =
        [("wakeup-latency", "wakeup latency"), ("preempt-wait", "preempt wait"), ("slice", "slices")];
    let there = |id: &str| figures.iter().any(|figure| figure.id == id);
    if !OF.iter().any(|(id, _)| there(id)) {
        return;
    }
    let mut body = String::new();
    figures_named(&mut body, figures, &[&OF.map(|(id, _)| id)]);
    let none: Vec<&str> = OF.iter().filter(|(id, _)| !there(id)).map(|(_, title)| *title).collect();
    if !none.is_empty() {
        let _ = writeln!(body, "<p class=\"note\">No {} in this trial.</p>", none.join(", no "));
    }
    let words = "how long tasks waited and ran";
    closed(out, &format!("latency-{index}"), "Latency", words, &body);
}

fn timeline(out: &mut String, index: usize, run: &Run) {
    if run.scenes.is_empty() {
        return;
    }
    // The views that can be moved about in show one machine.
    if run.has_columns_of_other_machines() {
        let _ = writeln!(
            out,
            "<section id=\"timeline-{index}\">\n<h2>Timeline</h2>\n<p class=\"note\">No timeline: the columns run on different \
             machines.</p>\n</section>"
        );
        return;
    }
    let (trial, seed) = (run.scenes[0].trial, run.scenes[0].seed);
    let mut words = if run.is_recording() {
        String::new()
    } else {
        let which = if run.disk.record.seeds.len() > 1 { ": the trial closest to all medians" } else { "" };
        let under = if run.scenes.len() > 1 { " under every scheduler" } else { "" };
        format!("Trial {trial} (seed {seed}){under}{which}.")
    };
    let warm_up_ns = run.scenes.iter().map(|scene| scene.window_from_ns).max().unwrap_or(0);
    if warm_up_ns > 0 {
        let _ = write!(words, " Counts are after the warm-up of {}.", duration(warm_up_ns as f64));
    }
    let measured_ns = run.scenes.iter().map(|scene| scene.measured_from_ns).min().unwrap_or(0);
    if measured_ns > warm_up_ns {
        let _ =
            write!(words, " The view opens at the start signal, {} after the beginning.", duration(measured_ns as f64));
    }
    let which =
        if words.is_empty() { String::new() } else { format!("<p class=\"note\">{}</p>\n", escape(words.trim())) };
    let _ = writeln!(
        out,
        "<section id=\"timeline-{index}\">\n<h2>Timeline</h2>\n{which}<div class=\"view\" data-view=\"timeline\" data-run=\"{index}\">\
         <noscript><p class=\"note\">The interactive timeline needs a script; <code>warmcore report RUN --svg DIR</code> draws still \
         ones.</p></noscript></div>"
    );
    let large = run.scenes.iter().any(|scene| scene.record.slices.is_none());
    if large {
        out.push_str(
            "<p class=\"warnings\">This trial has more slices than a page can hold; the timeline shows an overview. \
             <code>warmcore report RUN --perfetto FILE</code> writes all of it.</p>\n",
        );
    }
    out.push_str("</section>\n");
}

fn over_time(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    if run.scenes.is_empty() {
        return;
    }
    let mut body = String::new();
    of_schedulers(&mut body, run, figures, &["threads-per-cpu"]);
    scores(&mut body, figures);
    of_schedulers(&mut body, run, figures, &["counters"]);
    if !figures.iter().any(|figure| figure.id.starts_with("score")) {
        let reason = if run.disk.experiment.place.kind().simulated {
            "Not recorded: the scores by which the scheduler ranks tasks. <code>--trace full:1ms</code> samples them every millisecond."
        } else {
            "Not measured: the scores by which the scheduler ranks tasks. A real kernel does not report them."
        };
        let _ = writeln!(body, "<p class=\"note\">{reason}</p>");
    }
    let words = "scores, counters";
    closed(out, &format!("over-time-{index}"), "Over time", words, &body);
}

fn placement(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    let mut body = String::new();
    figures_named(&mut body, figures, &[&["migrations"], &["crossings"]]);
    if !run.scenes.is_empty() {
        let _ = writeln!(body, "<div class=\"view\" data-view=\"heatmap\" data-run=\"{index}\"></div>");
    }
    of_schedulers(&mut body, run, figures, &["transitions", "virtual-transitions"]);
    let words = "migrations, tasks × CPUs";
    closed(out, &format!("placement-{index}"), "Placement", words, &body);
}

/// What the colours of bars in LLCs' boxes stand for, once for the maps of all schedulers.
fn line_sources(out: &mut String, run: &Run) {
    let machine_of = |index: usize| &run.disk.experiment.machine_of(index).value;
    let maps = run.scenes.iter().enumerate().map(|(index, scene)| (scene, machine_of(index)));
    let there = sources_there(maps);
    if !there.is_empty() {
        let entry = |(class, words): &(&str, &str)| {
            format!(
                "<span><svg class=\"swatch\" viewBox=\"0 0 11 11\" aria-hidden=\"true\"><rect width=\"11\" height=\"11\" \
                 class=\"{class}\"/></svg>{words}</span>"
            )
        };
        let entries: String = there.iter().map(entry).collect();
        let _ = writeln!(out, "<p class=\"legend\"><span>Bars in boxes, cache lines from:</span>{entries}</p>");
    }
}

fn machine(out: &mut String, index: usize, run: &Run, figures: &[Figure]) {
    let machine = &run.disk.experiment.machine.value;
    let parts: Vec<String> = [
        (machine.socket_count(), "socket"),
        (machine.node_count(), "NUMA node"),
        (machine.llc_count(), "LLC"),
        (machine.core_count(), "core"),
        (machine.cpu_count(), "CPU"),
    ]
    .into_iter()
    .map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
    .collect();
    let words = if run.has_columns_of_other_machines() {
        format!("{}: {}", machine.name(), parts.join(", "))
    } else {
        // The maps have the machine's name.
        parts.join(", ")
    };
    let mut body = String::new();
    if !run.scenes.is_empty() {
        let _ = writeln!(body, "<div class=\"view\" data-view=\"map\" data-run=\"{index}\"></div>");
    }
    line_sources(&mut body, run);
    of_schedulers(&mut body, run, figures, &["machine"]);
    let id = format!("machine-{index}");
    if machine.llc_count() > 1 {
        let words = escape(&words);
        let _ = writeln!(
            out,
            "<section id=\"{id}\">\n<h2>Where it ran</h2>\n<p class=\"note\">{words}.</p>{body}</section>"
        );
    } else {
        closed(out, &id, "Where it ran", &words, &body);
    }
}

fn measures(out: &mut String, index: usize, run: &Run) {
    let document = &run.disk.comparison;
    let results = |measure: &Measure| -> Vec<Option<&MeasureResult>> {
        document.schedulers.iter().map(|scheduler| scheduler.measures.get(&measure.name)).collect()
    };
    let found =
        |result: &Option<&MeasureResult>| result.is_some_and(|result| result.summary.median.is_some_and(|m| m != 0.0));
    let there: Vec<&Measure> = document.measures.iter().filter(|measure| results(measure).iter().any(found)).collect();
    // With one scheduler nothing differs, and with too few trials nothing is shown to.
    let shown =
        |result: &MeasureResult| matches!(result.finding, Some(Finding::Better | Finding::Worse | Finding::Different));
    let judged =
        |measure: &&Measure| measure.better != Better::Neither && results(measure).into_iter().flatten().any(shown);
    let (differ, others): (Vec<&Measure>, Vec<&Measure>) = there.iter().copied().partition(judged);
    let words = match document.schedulers.len() {
        1 => format!("{} of them", there.len()),
        _ => format!("{} of {} differ", differ.len(), there.len()),
    };
    let mut body = String::new();
    let _ = write!(
        body,
        "<p class=\"note\">Medians of the trials; in brackets the ratio to \
         the baseline with its 95 % interval. Definitions show on hover. Coloured: a difference was shown, corrected for the number of \
         schedulers within each measure.</p>\n<div class=\"tools\"><label>Find <input type=\"search\" class=\"filter\" \
         data-table=\"measures-table-{index}\"></label></div>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" \
         aria-label=\"All measures\"><table class=\"sortable measures\" id=\"measures-table-{index}\"><thead><tr><th>measure</th><th>unit</th><th>better</th>"
    );
    for scheduler in &document.schedulers {
        let _ = write!(body, "<th class=\"n\">{}</th>", escape(&scheduler_name(&scheduler.label)));
    }
    body.push_str("</tr></thead><tbody>");
    for measure in differ.iter().chain(&others) {
        let folded = !differ.is_empty() && others.iter().any(|other| other.name == measure.name);
        measure_row(&mut body, measure, &results(measure), folded);
    }
    body.push_str("</tbody></table></div>\n");
    let titles: Vec<(&str, &str)> =
        there.iter().map(|measure| (measure.name.as_str(), measure.title.as_str())).collect();
    if let Some(left_out) = left_out(document, &titles) {
        let _ = writeln!(body, "<p class=\"note\">{}.</p>", escape(&left_out));
    }
    if !differ.is_empty() && !others.is_empty() {
        let _ = writeln!(
            body,
            "<p><button type=\"button\" class=\"unfold\" data-table=\"measures-table-{index}\" hidden>Show the other {0} measures: no \
             difference shown, or none that is better or worse</button></p>\n<p class=\"note paper\">Not printed: the other {0} measures, of which \
             none is shown to be better or worse.</p>",
            others.len()
        );
    }
    closed(out, &format!("measures-{index}"), "Measures", &words, &body);
}

fn measure_row(out: &mut String, measure: &Measure, results: &[Option<&MeasureResult>], folded: bool) {
    let better = match measure.better {
        Better::Lower => "lower",
        Better::Higher => "higher",
        Better::Neither => "–",
    };
    let _ = write!(
        out,
        "<tr data-measure=\"{name}\"{}><th scope=\"row\" title=\"{definition}\">{title} <small>{name}</small></th><td>{unit}</td><td>{better}</td>",
        if folded { " class=\"folded\"" } else { "" },
        name = escape(&measure.name),
        definition = escape(&measure.definition),
        title = escape(&measure.title),
        unit = measure.unit.name(),
    );
    let base = results.iter().flatten().find(|result| result.comparison.is_none());
    let next_to_nothing =
        base.and_then(|base| base.summary.median).is_some_and(|median| is_printed_as_nothing(median, measure.unit));
    for result in results {
        let median = result.and_then(MeasureResult::shown);
        let tone = match result.and_then(|result| result.finding) {
            Some(Finding::Better) => " good",
            Some(Finding::Worse) => " bad",
            _ => "",
        };
        let compared = result.filter(|result| result.comparison.is_some() && !next_to_nothing);
        let ratio = compared.map_or_else(String::new, |result| judged(result).0);
        let _ = write!(
            out,
            "<td class=\"n{tone}\" data-value=\"{}\">{} <small>{}</small></td>",
            number(median),
            median.map_or_else(|| "–".into(), |median| with_unit(median, measure.unit)),
            escape(&ratio)
        );
    }
    out.push_str("</tr>");
}

fn about(out: &mut String, index: usize, run: &Run) {
    let disk = &run.disk;
    let mut body = String::new();
    let _ = writeln!(body, "<h3>Repeat it</h3>\n<pre class=\"command\" tabindex=\"0\">{}</pre>", escape(&command(run)));
    let _ = writeln!(
        body,
        "<div class=\"raw\"><h3>Raw data</h3><p class=\"downloads\" data-run=\"{index}\"><noscript>Downloads need a script; the run \
         directory has everything.</noscript></p></div>"
    );
    details(&mut body, "Environment", &environment(run));
    let censored: u64 = disk.trials.iter().flatten().map(|trial| trial.censored_waits).sum();
    let lost: u64 = disk.trials.iter().flatten().map(|trial| trial.events_lost).sum();
    let losses = [
        ("events not recorded".to_owned(), lost.to_string()),
        ("waits that had not ended with the run (in no distribution)".to_owned(), censored.to_string()),
        ("trials asked for and finished".to_owned(), format!("{} and {}", disk.trials_asked, disk.record.seeds.len())),
    ];
    details(&mut body, "Losses", &losses);
    if !run.is_recording() {
        let schedulers: Vec<(String, String)> =
            disk.record.schedulers.iter().map(|s| (s.label.clone(), s.resolved.clone())).collect();
        details(&mut body, "Schedulers with every tunable", &schedulers);
    }
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
            &mut body,
            &format!("Assumed parameters of the machine ({} of {})", assumed.len(), machine.origins().len()),
            &assumed,
        );
    }
    closed(out, &format!("about-{index}"), "About this run", "repeat it, raw data", &body);
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
pub(crate) fn trials_csv(run: &Run) -> String {
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
