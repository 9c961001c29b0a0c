//! The table of who ran next to the workload in the trial that is looked at: threads of the kernel, interrupts, other processes.

use std::fmt::Write as _;

use warmcore_topology::Machine;
use warmcore_trace::BackgroundOutcome;

use crate::figures::scheduler_name;
use crate::run::Run;
use crate::svg::escape;
use crate::units::duration;

/// Rows of a table: those with the most time.
const MOST_ROWS: usize = 40;
/// CPUs that a row names.
const MOST_CPUS: usize = 4;

/// A table for each scheduler whose trial tells.
pub(super) fn tables(out: &mut String, run: &Run) {
    for (scheduler, trials) in run.disk.trials.iter().enumerate() {
        let machine = &run.disk.experiment.machine_of(scheduler).value;
        let Some(trial) = trials.get(run.representative).filter(|trial| !trial.background.is_empty()) else { continue };
        // A recording has one scheduler, which is not named.
        let under = match run.is_recording() {
            true => String::new(),
            false => format!(" that ran under {}", escape(&scheduler_name(&trial.scheduler))),
        };
        let _ = write!(
            out,
            "<details><summary>Other threads and interrupts{under}</summary><div class=\"scroll\" tabindex=\"0\" role=\"group\" \
             aria-label=\"Other threads and interrupts\"><table class=\"sortable beside\"><thead><tr><th>process, threads of the kernel</th>\
             <th class=\"n\">number</th><th class=\"n\">threads</th><th class=\"n\">stays, arrivals</th><th class=\"n\">CPU time</th>\
             <th>on CPUs</th></tr></thead><tbody>"
        );
        for row in trial.background.iter().take(MOST_ROWS) {
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
                 <td class=\"n\" data-value=\"{}\">{}</td><td>{}</td></tr>",
                escape(&row.name),
                row.process.map_or_else(String::new, |process| process.to_string()),
                row.threads,
                row.wakeups,
                row.cpu_time_ns,
                duration(row.cpu_time_ns as f64),
                where_it_ran(row, machine)
            );
        }
        out.push_str("</tbody></table></div>");
        if let Some(rest) = trial.background.get(MOST_ROWS..).filter(|rest| !rest.is_empty()) {
            let _ = write!(out, "<p class=\"note\">{} with less time are in the trial's file.</p>", rest.len());
        }
        out.push_str("</details>\n");
    }
}

/// The CPUs with most of its time.
fn where_it_ran(row: &BackgroundOutcome, machine: &Machine) -> String {
    let mut cpus: Vec<_> = row.by_cpu_ns.iter().collect();
    cpus.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
    let mut words: Vec<String> = cpus
        .iter()
        .take(MOST_CPUS)
        .map(|(cpu, ns)| format!("{} {}", machine.os_cpu(**cpu), duration(**ns as f64)))
        .collect();
    if cpus.len() > MOST_CPUS {
        words.push(format!("{} more", cpus.len() - MOST_CPUS));
    }
    words.join(", ")
}
