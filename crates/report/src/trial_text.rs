//! One trial as plain text: measures, tasks, where the time went, what was decided.

use warmcore_lab::trial::Trial;
use warmcore_lab::{decisions, measures, operations, time_split, verdict};
use warmcore_workload::Workload;

use crate::table::Table;
use crate::text::left_out_in_words;
use crate::units::{self, with_unit};
use crate::verdict::{SENTENCE_COLUMNS, operations_table, time_table, wrapped};

/// What the imitated program would have printed, then tables as `show` lays them out; with the `definitions` of measures, if that is wanted.
pub fn text(trial: &Trial, workload: &Workload, definitions: bool, show: impl Fn(&Table) -> String) -> String {
    let mut text = String::new();
    if !trial.result_lines.is_empty() {
        text.push_str(&trial.result_lines.join("\n"));
        text.push_str("\n\n");
    }
    let (measures, left_out) = measure_table(trial, workload, definitions);
    text.push_str(&show(&measures));
    text.extend(left_out.map(|left_out| wrapped(&format!("{left_out}."), SENTENCE_COLUMNS) + "\n"));
    text.push('\n');
    text.push_str(&show(&task_table(trial)));
    let labels = [trial.scheduler.clone()];
    if let Some(split) = time_split::of_trials(&labels, 0, &[vec![trial.clone()]]) {
        text.push('\n');
        text.push_str(&show(&time_table(&split)));
    }
    if !trial.background.is_empty() {
        text.push('\n');
        text.push_str(&show(&background_table(trial)));
    }
    let operations = operations::of_trials(std::slice::from_ref(trial));
    if !operations.is_empty() {
        text.push('\n');
        text.push_str(&show(&operations_table(&trial.scheduler, &operations)));
    }
    let decisions = decisions::of_trials(std::slice::from_ref(trial));
    if !decisions.is_empty() {
        text.push('\n');
        decisions.iter().for_each(|decision| text.push_str(&format!("{}\n", decision.in_words())));
    }
    text
}

/// Every measure that has a value other than 0, with its definition if that is asked for; and which percentiles are left out, being of few
/// events.
fn measure_table(trial: &Trial, workload: &Workload, definitions: bool) -> (Table, Option<String>) {
    let headings = ["metric", ">value", "definition"];
    let columns = if definitions { 3 } else { 2 };
    let mut table = Table::new(headings.into_iter().take(columns));
    let mut left_out: Vec<(String, (f64, f64))> = Vec::new();
    for measure in measures::of_workload(workload) {
        let Some(value) = measure.value(trial).filter(|value| *value != 0.0) else { continue };
        if let Some(few) = verdict::few_to_show(&measure, std::slice::from_ref(trial)) {
            if !measures::is_of_role(&measure.name) {
                left_out.push((measure.name, few));
            }
        } else {
            let row = [measure.name, with_unit(value, measure.unit), measure.definition];
            table.row(row.into_iter().take(columns));
        }
    }
    (table, left_out_in_words(&left_out))
}

/// What threads of the kernel itself and interrupts took, those of one kind together.
fn background_table(trial: &Trial) -> Table {
    let mut table = Table::new(["kernel threads, interrupts", ">number", ">wakeups, arrivals", ">CPU time"]);
    for thread in &trial.background {
        let time = with_unit(thread.cpu_time_ns as f64, measures::Unit::Ns);
        table.row([thread.name.clone(), thread.threads.to_string(), thread.wakeups.to_string(), time]);
    }
    table
}

/// CPU time by application and role: tasks of one role are shown together.
fn task_table(trial: &Trial) -> Table {
    let mut table = Table::new(["application", "role", ">tasks", ">exited", ">CPU time", ">least", ">most"]);
    let mut groups: Vec<(u32, &str)> = Vec::new();
    for task in &trial.tasks {
        if !groups.contains(&(task.application, &task.role)) {
            groups.push((task.application, &task.role));
        }
    }
    for (application, role) in groups {
        let tasks: Vec<_> =
            trial.tasks.iter().filter(|task| (task.application, task.role.as_str()) == (application, role)).collect();
        let times = || tasks.iter().map(|task| task.cpu_time_ns);
        let name = trial.applications.get(application as usize).map_or("", |application| &application.name);
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| units::duration(ns as f64));
        table.row([
            name.to_owned(),
            role.to_owned(),
            tasks.len().to_string(),
            tasks.iter().filter(|task| task.exited_ns.is_some()).count().to_string(),
            time(Some(times().sum())),
            time(times().min()),
            time(times().max()),
        ]);
    }
    table
}
