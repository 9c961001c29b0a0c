//! A finished trial: one run of the workload under one scheduler with one seed, and everything measured in it.
//!
//! Kept as one JSON file per trial. The file's hash says what the trial depends on, so that a later start of the same
//! experiment takes it over instead of running it again. It holds nothing that could differ between two equal runs:
//! no wall-clock time, no host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warmcore_trace::metrics::{PlacedCount, Waits};
use warmcore_trace::{BackgroundOutcome, DecisionCounts};

use crate::gathering::GatheringRow;
use crate::measures::HACKBENCH;
use crate::time_split::CriticalPath;

/// Version of this document. Part of a trial's hash: a change makes older files run again.
pub const SCHEMA: &str = "warmcore-trial-6";

/// Why a trial ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialEnd {
    /// Every task exited.
    AllExited,
    /// The workload's own duration was over, or a task stopped it.
    Stopped,
    /// The experiment's largest time was reached first: times until the end are not known.
    TimeLimit,
}

/// A finished trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// [`SCHEMA`].
    pub schema: String,
    /// Hash of everything the trial depends on.
    pub hash: String,
    /// Label of the scheduler.
    pub scheduler: String,
    /// Number of the trial, from 0.
    pub trial: usize,
    /// Its seed.
    pub seed: u64,
    /// Why it ended.
    pub end: TrialEnd,
    /// Simulated time at the end.
    pub elapsed_ns: u64,
    /// End of the warm-up: measures, decisions, times and applications are of what came after it. 0 without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up_ns: u64,
    /// Events the simulator processed.
    pub engine_events: u64,
    /// Events that were not recorded.
    pub events_lost: u64,
    /// Waits that had not ended when the run did. They are in no distribution.
    pub censored_waits: u64,
    /// Every measure by name; `null` where the run has no such value, such as a percentile of no samples.
    pub measures: BTreeMap<String, Option<f64>>,
    /// How often the scheduler took each decision it tells. Empty where nothing is recorded.
    pub decisions: DecisionCounts,
    /// What the operations of a sched_ext scheduler came to, in the order of the kernel's table. Empty where they are not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationRow>,
    /// Nanoseconds of the tasks' lifetimes by what they went to: [`CAUSES`](crate::time_split::CAUSES).
    #[serde(default)]
    pub time_ns: BTreeMap<String, f64>,
    /// The task that ended last, whose end was the run's. Absent where the run did not end by itself, or no events tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_thread: Option<LastThread>,
    /// How far a cache-aware scheduler gathered threads. Absent where no process preferred an LLC, or nothing is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gathering: Option<GatheringRow>,
    /// Migrations (ran) between LLCs in the first and in the last quarter of the time that the workload measures itself. Absent where that
    /// is the window, or too short a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_llc_quarters: Option<[u64; 2]>,
    /// Applications, in the workload's order.
    pub applications: Vec<ApplicationRow>,
    /// Tasks, in order of creation.
    pub tasks: Vec<TaskRow>,
    /// What tasks of each role waited, and how long they took, in the order of their first tasks. Absent where fewer than two roles wake, or
    /// nothing is recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleRow>,
    /// Who ran beside the workload: simulated threads of the kernel itself, or whoever was recorded; they are among no tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundOutcome>,
    /// What the imitated program would have printed.
    pub result_lines: Vec<String>,
    /// What a reader must know of the run: what a real kernel did not do as the workload asks, who else ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What the calls of an operation of a sched_ext scheduler came to in a trial.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationRow {
    /// Member of `struct sched_ext_ops`; `timer` for all timers.
    pub operation: String,
    /// Calls.
    pub calls: u64,
    /// Instructions of bytecode that its programs executed, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Time that they cost the CPUs, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_ns: Option<u64>,
}

/// The task that ended last, and what it did until then.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastThread {
    /// Its name.
    pub task: String,
    /// Nanoseconds by cause, from the start of the run to its exit: those of [`CAUSES`](crate::time_split::CAUSES) that tell of one
    /// task, and [`LAST_THREAD_CAUSES`](crate::time_split::LAST_THREAD_CAUSES).
    pub spent_ns: BTreeMap<String, f64>,
    /// The same time across threads: instead of waiting for others, what those did. Absent without events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<CriticalPath>,
}

/// An application in a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationRow {
    /// Name.
    pub name: String,
    /// From its first task's creation to its last task's exit, or to the end of the run.
    pub elapsed_ns: u64,
    /// Whether all its tasks exited.
    pub finished: bool,
    /// CPU time of its tasks.
    pub cpu_time_ns: u64,
}

/// The tasks of a role of an application in a trial.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleRow {
    /// The role; the application's name where tasks have none.
    pub role: String,
    /// Index of the application.
    pub application: u32,
    /// Wakeup latencies.
    pub wakeup: Waits,
    /// Response times.
    pub response: Waits,
    /// 99th percentile of the wakeup latencies, an upper edge of a bucket. Absent where roles have no measures of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakeup_p99_ns: Option<u64>,
    /// The same of the response times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_p99_ns: Option<u64>,
}

/// A task in a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRow {
    /// Name.
    pub name: String,
    /// Role in reports.
    pub role: String,
    /// Index of its application.
    pub application: u32,
    /// Creation.
    pub started_ns: u64,
    /// Exit, if it came to that.
    pub exited_ns: Option<u64>,
    /// Time on CPU.
    pub cpu_time_ns: u64,
    /// What it counted and where, where counters were read at every stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, PlacedCount>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Trial {
    /// The time that counts, in nanoseconds: from the end of the warm-up to the run's end.
    pub fn window_ns(&self) -> u64 {
        self.elapsed_ns.saturating_sub(self.warm_up_ns)
    }

    /// When the time begins that a measure is of, in nanoseconds from the run's beginning: at the end of the warm-up, or at the start signal
    /// where the measure is the workload's own time from that signal to the run's end.
    pub fn measured_from_ns(&self, measure: &str) -> u64 {
        // Beside other applications the run may end later than that time does.
        let own = self.measure(measure).filter(|_| measure == HACKBENCH && self.applications.len() <= 1);
        let signal_ns = own.map_or(0, |own_ns| self.elapsed_ns.saturating_sub(own_ns as u64));
        self.warm_up_ns.max(signal_ns).min(self.elapsed_ns)
    }

    /// A measure's value.
    pub fn measure(&self, name: &str) -> Option<f64> {
        self.measures.get(name).copied().flatten()
    }

    /// Nanoseconds that a cause took, 0 for one that the trial's version did not know; nothing where no causes were recorded.
    pub fn time_of(&self, cause: &str) -> Option<f64> {
        (!self.time_ns.is_empty()).then(|| self.time_ns.get(cause).copied().unwrap_or(0.0))
    }

    /// The trial's file.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists of them can always be written.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The trial in a file, if it is one of this version.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|trial: &Self| trial.schema == SCHEMA)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A trial with these measures.
    pub(crate) fn trial(scheduler: &str, number: usize, measures: &[(&str, Option<f64>)]) -> Trial {
        Trial {
            schema: SCHEMA.into(),
            hash: "0".into(),
            scheduler: scheduler.into(),
            trial: number,
            seed: 1,
            end: TrialEnd::AllExited,
            elapsed_ns: 1,
            warm_up_ns: 0,
            engine_events: 1,
            events_lost: 0,
            censored_waits: 0,
            measures: measures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            decisions: DecisionCounts::new(),
            operations: Vec::new(),
            time_ns: BTreeMap::new(),
            last_thread: None,
            gathering: None,
            cross_llc_quarters: None,
            applications: Vec::new(),
            tasks: Vec::new(),
            roles: Vec::new(),
            background: Vec::new(),
            result_lines: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_trial_survives_its_file() {
        let written = trial("cfs", 3, &[("elapsed_ns", Some(0.1 + 0.2)), ("wakeup_p99_ns", None)]);
        assert_eq!(Trial::from_json(&written.to_json()), Some(written));
    }

    #[test]
    fn what_is_measured_begins_at_the_start_signal_where_the_measure_does() {
        let of = |name: &str, warm_up_ns: u64| {
            let own = [("hackbench_time_ns", Some(394e3)), ("elapsed_ns", Some(6780e3))];
            Trial { elapsed_ns: 6_780_000, warm_up_ns, ..trial("cfs", 0, &own) }.measured_from_ns(name)
        };
        assert_eq!([of("hackbench_time_ns", 0), of("elapsed_ns", 0), of("elapsed_ns", 500)], [6_386_000, 0, 500]);
        assert_eq!(of("hackbench_time_ns", 6_500_000), 6_500_000);
    }

    #[test]
    fn hackbenchs_own_time_has_no_value_where_it_began_in_the_warm_up_and_is_infinite_where_it_did_not_end() {
        let workload = warmcore_workload::from_generator("hackbench:-T,-p,-f2,-g1,-l1").unwrap();
        let measures = crate::measures::of_workload(&workload);
        let own = measures.iter().find(|measure| measure.name == HACKBENCH).unwrap();
        let of = |end| own.value(&Trial { end, ..trial("cfs", 0, &[(HACKBENCH, None)]) });
        assert_eq!((of(TrialEnd::AllExited), of(TrialEnd::TimeLimit)), (None, Some(f64::INFINITY)));
    }

    #[test]
    fn half_a_file_and_another_version_are_no_trial() {
        let text = trial("cfs", 0, &[]).to_json();
        assert_eq!(Trial::from_json(&text[..text.len() / 2]), None);
        assert_eq!(Trial::from_json(&text.replace(SCHEMA, "warmcore-trial-0")), None);
    }
}
