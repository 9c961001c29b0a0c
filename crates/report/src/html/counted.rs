//! The section of counters joined to placement: what the threads of each role counted in each LLC, where counters were read at every stay.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use warmcore_topology::LlcId;

use crate::run::Run;
use crate::scene::Scene;
use crate::svg::escape;
use crate::units::count;

/// Rows of a table: those with the most time.
const MOST_ROWS: usize = 40;
/// Counters that are told per thousand instructions too.
const MISSES: [&str; 3] = ["l2_misses", "l3_misses", "l3_rfo_misses"];
const TIME: &str = "task_clock_ns";
const INSTRUCTIONS: &str = "instructions";

/// What the threads of a role counted in an LLC, by counter.
type RoleSums<'a> = BTreeMap<(&'a str, LlcId), BTreeMap<&'a str, u64>>;

/// The section, if any scene has such counters.
pub(super) fn section(out: &mut String, index: usize, run: &Run) {
    let scenes: Vec<&Scene> = run.scenes.iter().filter(|scene| scene.tables.counted_per_stay).collect();
    if scenes.is_empty() {
        return;
    }
    let mut body = String::from(
        "<p class=\"note\">What the threads of each role counted while they were on the CPUs of each LLC. How it was counted, and what \
         could not be, is in the notes.</p>\n",
    );
    scenes.into_iter().for_each(|scene| table(&mut body, scene));
    let words = "what the threads of each role counted in each LLC";
    super::sections::closed(out, &format!("counted-{index}"), "Counters by place", words, &body);
}

fn sums(scene: &Scene) -> RoleSums<'_> {
    let mut sums = RoleSums::new();
    for task in &scene.metrics.tasks {
        let role = scene.tasks.get(task.id.index()).map_or("", |info| info.role.as_str());
        for (name, placed) in &task.counters {
            for (llc, value) in &placed.by_llc {
                let sum = sums.entry((role, *llc)).or_default().entry(name.as_str()).or_default();
                *sum = sum.saturating_add(*value);
            }
        }
    }
    sums
}

fn table(out: &mut String, scene: &Scene) {
    let sums = sums(scene);
    let names: Vec<&str> = scene.tables.counters.iter().map(String::as_str).collect();
    let misses: Vec<&str> =
        MISSES.into_iter().filter(|name| names.contains(name) && names.contains(&INSTRUCTIONS)).collect();
    let mut rows: Vec<_> = sums.iter().collect();
    rows.sort_by_key(|((role, llc), values)| (std::cmp::Reverse(values.get(TIME).copied().unwrap_or(0)), *role, *llc));
    let _ = write!(
        out,
        "<h3>{}</h3><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Counters by place\"><table class=\"sortable\"><thead><tr><th>role</th><th>LLC</th>",
        escape(&scene.scheduler)
    );
    for name in &names {
        let _ = write!(out, "<th class=\"n\">{}</th>", escape(name));
    }
    for name in &misses {
        let _ = write!(out, "<th class=\"n\">{name} per 1000 instructions</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for ((role, llc), values) in rows.iter().take(MOST_ROWS) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th><td>{llc}</td>", escape(role));
        for name in &names {
            let value = values.get(name).copied().unwrap_or(0);
            let _ = write!(out, "<td class=\"n\" data-value=\"{value}\">{}</td>", count(value as f64));
        }
        let instructions = values.get(INSTRUCTIONS).copied().unwrap_or(0);
        for name in &misses {
            let per = 1000.0 * values.get(name).copied().unwrap_or(0) as f64 / instructions.max(1) as f64;
            let _ = write!(out, "<td class=\"n\" data-value=\"{per}\">{per:.2}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    if rows.len() > MOST_ROWS {
        let _ = writeln!(
            out,
            "<p class=\"note\">{} rows more with less time are in the run's metrics.</p>",
            rows.len() - MOST_ROWS
        );
    }
}
