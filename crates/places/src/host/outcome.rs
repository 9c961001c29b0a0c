//! What a trial on this computer left, in the simulator's words: of a workload's process what it reports, of a command the threads that
//! descend from it, as far as they were recorded.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_agent::report::ProcessReport;
use warmcore_capture::convert::Converted;
use warmcore_capture::{Recording, Wanted, What};
use warmcore_topology::{CpuSet, Machine};
use warmcore_trace::{ApplicationOutcome, End, Event, Outcome, RunTables, TaskId, TaskOutcome};
use warmcore_workload::Workload;

use super::trial::Trial;
use crate::beside::by_process;
use crate::place::{PlaceError, Report, Request, Trouble};
use crate::recorded::{convert, cpu_times, known, notes_on_extras, of_recording};
use crate::vm::trial::Roster;

const CODE: &str = "warmcore::host";

/// A trial as it was.
pub(super) struct Made {
    pub(super) tables: RunTables,
    pub(super) events: Vec<Event>,
    pub(super) report: Report,
    pub(super) seconds: f64,
}

/// CPU sets that events may refer to, and which one tasks are in.
fn tables(machine: &Machine, workload: &Workload, cpus: Option<&CpuSet>) -> (RunTables, u32) {
    let mut restrictions = vec![machine.all_cpus().clone()];
    let own = cpus.filter(|cpus| **cpus != restrictions[0]).cloned();
    let restriction = u32::from(own.is_some());
    restrictions.extend(own);
    (RunTables { restrictions, phases: workload.phases.clone(), ..RunTables::default() }, restriction)
}

/// A trial of a workload's tasks.
pub(super) fn of_workload(
    request: &Request<'_>,
    trial: &Trial,
    recording: Option<&Recording>,
    cpus: Option<&CpuSet>,
) -> Result<Made, PlaceError> {
    let failed = |message: String| PlaceError::new(Trouble::Failed, CODE, message, "its own words are above");
    if trial.exit_code != Some(0) {
        return Err(failed(match trial.exit_code {
            Some(code) => format!("the workload's process ended with exit code {code}"),
            None => "the workload's process did not end and was killed".into(),
        }));
    }
    let report: ProcessReport = serde_json::from_str(&trial.output)
        .map_err(|error| failed(format!("the workload's process did not report what it did: {error}")))?;
    let (workload, machine) = (request.workload, request.machine);
    let reports = [report];
    let roster = Roster::new(workload, &reports);
    let (tables, restriction) = tables(machine, workload, cpus);
    let span = (reports[0].start_ns, reports[0].start_ns + reports[0].elapsed_ns);
    let converted = match recording {
        Some(recording) => convert(recording, &roster.by_thread, machine, span, restriction).map_err(failed)?,
        None => nothing_recorded(roster.tasks.len()),
    };
    let outcome = roster.outcome(workload, &reports, &converted, reports[0].elapsed_ns);
    let warning = |(what, consequence, count): &(String, String, u32)| format!("{what} ({count}): {consequence}");
    let departures = reports[0].warnings.iter().map(warning).collect();
    Ok(made(tables, &roster.by_thread, converted, recording, Report { departures, ..Report::new(outcome) }))
}

/// A run of which only the end is known: each task was there until then.
fn nothing_recorded(tasks: usize) -> Converted {
    Converted { created_ns: vec![None; tasks], exited_ns: vec![None; tasks], ..Converted::default() }
}

/// A trial of a command: its tasks are the threads that descend from its first process.
pub(super) fn of_command(
    request: &Request<'_>,
    trial: &Trial,
    recording: Option<&Recording>,
    cpus: Option<&CpuSet>,
) -> Result<Made, PlaceError> {
    let failed = |message: String| PlaceError::new(Trouble::Failed, CODE, message, "its own words are above");
    if let Some(code) = trial.exit_code.filter(|code| *code != 0) {
        return Err(failed(format!("the command ended with exit code {code}")));
    }
    let (workload, machine) = (request.workload, request.machine);
    let elapsed_ns = (1e9 * trial.elapsed_s) as u64;
    let (tables, restriction) = tables(machine, workload, cpus);
    let (tasks, converted, by_thread) = match recording {
        None => {
            let all = TaskOutcome {
                exited_ns: trial.exit_code.map(|_| elapsed_ns),
                ..TaskOutcome::new(0, workload.name.clone(), workload.name.clone(), (1e9 * trial.cpu_s) as u64)
            };
            (vec![all], nothing_recorded(1), BTreeMap::new())
        }
        Some(recording) => {
            let threads = descendants(recording, trial.process);
            let by_thread: BTreeMap<i32, TaskId> = threads.iter().copied().zip((0..).map(TaskId)).collect();
            let span = (trial.start_ns, trial.start_ns + elapsed_ns);
            let converted = convert(recording, &by_thread, machine, span, restriction).map_err(failed)?;
            let cpu_ns = cpu_times(&converted, threads.len(), elapsed_ns).map_err(failed)?;
            let names = names(recording, &threads);
            let of = |(id, (name, role)): (usize, (String, String))| TaskOutcome {
                started_ns: converted.created_ns[id].unwrap_or(0),
                exited_ns: converted.exited_ns[id],
                ..TaskOutcome::new(id as u32, name, role, cpu_ns[id])
            };
            (names.into_iter().enumerate().map(of).collect(), converted, by_thread)
        }
    };
    let application = ApplicationOutcome {
        name: workload.name.clone(),
        elapsed_ns,
        finished: trial.exit_code.is_some(),
        cpu_time_ns: tasks.iter().map(|task: &TaskOutcome| task.cpu_time_ns).sum(),
    };
    let end = if trial.exit_code.is_some() { End::AllExited } else { End::TimeLimit };
    let outcome = Outcome {
        applications: vec![application],
        tasks,
        engine_events: converted.events.len() as u64,
        ..Outcome::new(end, elapsed_ns)
    };
    let report = Report { output: Some(trial.output.clone()), ..Report::new(outcome) };
    Ok(made(tables, &by_thread, converted, recording, report))
}

/// A process' threads and what descends from it, in the order of their creation.
fn descendants(recording: &Recording, process: i32) -> Vec<i32> {
    let of_process = |(id, thread): (&i32, &warmcore_capture::Thread)| {
        (*id == process || thread.process == Some(process)).then_some(*id)
    };
    let mut found: Vec<i32> = vec![process];
    let mut known = BTreeSet::from([process]);
    for record in recording.in_order_of(Wanted::Forks) {
        let What::Fork { parent, child } = record.what else { continue };
        if known.contains(&parent) && known.insert(child) {
            found.push(child);
        }
    }
    // Threads whose fork was lost.
    found.extend(recording.threads.iter().filter_map(of_process).filter(|id| known.insert(*id)));
    found
}

/// Name and role of each thread: its role is its name, and threads of one name are numbered.
fn names(recording: &Recording, threads: &[i32]) -> Vec<(String, String)> {
    let role = |thread: &i32| {
        let name = recording.threads.get(thread).map_or("", |thread| thread.name.as_str());
        if name.is_empty() { format!("thread-{thread}") } else { name.to_owned() }
    };
    let roles: Vec<String> = threads.iter().map(role).collect();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let of = |role: &String| roles.iter().filter(|other| *other == role).take(2).count();
    roles
        .iter()
        .map(|role| {
            let number = seen.entry(role).or_default();
            let name = if of(role) > 1 { format!("{role}-{number}") } else { role.clone() };
            *number += 1;
            (name, role.clone())
        })
        .collect()
}

fn made(
    tables: RunTables,
    tasks: &BTreeMap<i32, TaskId>,
    converted: Converted,
    recording: Option<&Recording>,
    report: Report,
) -> Made {
    let (events_lost, _) = recording.map_or((0, false), Recording::events_lost);
    let mut notes = recording.map_or(Vec::new(), |recording| recording.notes.clone());
    notes.extend(recording.map_or(Vec::new(), notes_on_extras));
    notes.extend(report.notes);
    let mut report = Report { events_lost, notes, foreign_run_ns: converted.foreign_run_ns(), ..report };
    let tables = recording.map_or(tables.clone(), |recording| of_recording(tables, recording, tasks, &converted));
    report.outcome.background =
        recording.map_or(Vec::new(), |recording| by_process(&converted.foreign, known(recording)));
    Made { tables, events: converted.events, report, seconds: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_capture::record::{Context, Record};
    use warmcore_capture::recording::Thread;

    #[test]
    fn threads_of_a_command_are_those_that_descend_from_it_and_of_one_name_are_numbered() {
        let fork = |parent, child| Record {
            time_ns: child as u64,
            cpu: 0,
            by: parent,
            context: Context::Thread,
            what: What::Fork { parent, child },
        };
        let mut recording =
            Recording { records: vec![fork(10, 11), fork(7, 12), fork(11, 13)], ..Recording::default() };
        for (thread, name) in [(10, "make"), (11, "cc"), (12, "other"), (13, "cc")] {
            recording.threads.insert(thread, Thread { name: name.into(), ..Thread::default() });
        }
        let threads = descendants(&recording, 10);
        assert_eq!(threads, [10, 11, 13]);
        let names: Vec<String> = names(&recording, &threads).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["make", "cc-0", "cc-1"]);
    }
}
