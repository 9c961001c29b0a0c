//! What a run of one scheduler shows first, such as a recording: how long threads waited, how busy the CPUs were, which threads and
//! which groups of threads took the time.

use std::fmt::Write as _;

use warmcore_trace::metrics::TaskMetrics;

use crate::rows::groups;
use crate::run::Run;
use crate::scene::Scene;
use crate::svg::escape;
use crate::units::{count, duration, three_digits};

/// Threads that the table names: those with the most CPU time.
const MOST_THREADS: usize = 12;
/// Groups that the table names, likewise.
const MOST_GROUPS: usize = 12;

/// Tables of threads and of their groups, if a trial was looked at.
pub(super) fn tables(out: &mut String, run: &Run) {
    let Some(scene) = run.scenes.first() else { return };
    out.push_str("<div class=\"columns\">\n");
    let mut threads: Vec<ThreadRow> = scene.metrics.tasks.iter().map(|task| ThreadRow::of_task(scene, task)).collect();
    threads.sort_by_key(|line| std::cmp::Reverse(line.run_ns));
    table(out, ("Threads with the most CPU time", "thread"), &threads, MOST_THREADS);
    let mut of_groups: Vec<ThreadRow> = groups(&scene.tasks)
        .into_iter()
        .filter(|group| group.tasks.len() > 1)
        .map(|group| {
            let members = scene.metrics.tasks.iter().filter(|task| group.tasks.contains(&task.id.index()));
            let sum = members.map(|task| ThreadRow::of_task(scene, task)).reduce(ThreadRow::with);
            ThreadRow { name: group.label, ..sum.unwrap_or_default() }
        })
        .collect();
    of_groups.sort_by_key(|line| std::cmp::Reverse(line.run_ns));
    if !of_groups.is_empty() {
        table(out, ("Groups of threads", "group"), &of_groups, MOST_GROUPS);
    }
    out.push_str("</div>\n");
}

/// A row: a thread, or several together.
#[derive(Default)]
struct ThreadRow {
    name: String,
    run_ns: u64,
    wakeups: u64,
    waited_ns: u64,
    longest_ns: u64,
    migrations: u64,
    between_llcs: u64,
}

impl ThreadRow {
    fn of_task(scene: &Scene, task: &TaskMetrics) -> Self {
        Self {
            name: scene.task_name(task.id).to_owned(),
            run_ns: task.run_ns,
            wakeups: task.wakeup_latency.count,
            waited_ns: task.wakeup_latency.sum_ns,
            longest_ns: task.wakeup_latency.max_ns,
            migrations: task.migrations_ran,
            between_llcs: task.cross_llc_ran,
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            name: self.name,
            run_ns: self.run_ns + other.run_ns,
            wakeups: self.wakeups + other.wakeups,
            waited_ns: self.waited_ns + other.waited_ns,
            longest_ns: self.longest_ns.max(other.longest_ns),
            migrations: self.migrations + other.migrations,
            between_llcs: self.between_llcs + other.between_llcs,
        }
    }
}

/// The value of a column, and how it is shown; of a line, with the CPU time of all lines.
type ColumnCell = fn(&ThreadRow, f64) -> (f64, String);

fn table(out: &mut String, (title, kind): (&str, &str), lines: &[ThreadRow], most: usize) {
    let whole = lines.iter().map(|line| line.run_ns).sum::<u64>().max(1) as f64;
    let columns: [(&str, ColumnCell); 7] = [
        ("CPU time", |line, _| (line.run_ns as f64, duration(line.run_ns as f64))),
        ("share", |line, whole| {
            let share = line.run_ns as f64 / whole;
            (share, format!("{} %", three_digits(share * 100.0)))
        }),
        ("wakeups", |line, _| (line.wakeups as f64, count(line.wakeups as f64))),
        ("mean wakeup latency", |line, _| {
            let mean = line.waited_ns as f64 / line.wakeups.max(1) as f64;
            (mean, duration(mean))
        }),
        ("longest", |line, _| (line.longest_ns as f64, duration(line.longest_ns as f64))),
        ("migrations", |line, _| (line.migrations as f64, count(line.migrations as f64))),
        ("between LLCs", |line, _| (line.between_llcs as f64, count(line.between_llcs as f64))),
    ];
    // What is 0 throughout is left out.
    let columns: Vec<&(&str, ColumnCell)> =
        columns.iter().filter(|(_, cell)| lines.iter().any(|line| cell(line, whole).0 > 0.0)).collect();
    let headings: String = columns.iter().map(|(name, _)| format!("<th class=\"n\">{name}</th>")).collect();
    let _ = write!(
        out,
        "<div><h2 class=\"title\">{title}</h2><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{title}\">\
         <table class=\"sortable measures\"><thead><tr><th>{kind}</th>{headings}</tr></thead><tbody>"
    );
    for line in lines.iter().take(most) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&line.name));
        for (_, cell) in &columns {
            let (value, shown) = cell(line, whole);
            let _ = write!(out, "<td class=\"n\" data-value=\"{value}\">{shown}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    if let Some(rest) = lines.get(most..).filter(|rest| !rest.is_empty()) {
        let time: u64 = rest.iter().map(|line| line.run_ns).sum();
        let _ = write!(out, "<p class=\"note\">{} more with {} in all.</p>", rest.len(), duration(time as f64));
    }
    out.push_str("</div>\n");
}
