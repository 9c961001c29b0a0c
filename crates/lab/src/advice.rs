//! Advice: which of the settings that a kernel has help a workload on a machine, what has to be typed for them, and what is not known.
//!
//! The columns of such a comparison are settings of one kernel, so that every one that helps is a few commands. Which are tried, the caller
//! says (`warmcore_search::advice`).

use std::path::Path;

use serde::Serialize;
use warmcore_options::MemoryChoice;
use warmcore_places::circumstances::cpus_of;
use warmcore_places::vm::kernel::Abilities;
use warmcore_places::vm::settings::settings_of;
use warmcore_schedulers::{Circumstances, SchedulerSpec};
use warmcore_statistics::{Better, Interval};
use warmcore_topology::{Machine, assumptions, format_cpu_list};
use warmcore_workload::Workload;

use crate::experiment::Experiment;
use crate::headroom::{as_commands, bound_tasks};
use crate::load::HOST;
use crate::trial::Trial;
use crate::verdict::{ComparisonDocument, Finding, decimal, gathered_without_profile};

/// What a comparison of a kernel's settings says to whoever runs the workload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The settings but the baseline: first those that help, the best first, then those of which no difference is shown, then the others.
    pub settings: Vec<AdvisedSetting>,
    /// What this does not know, one sentence each.
    pub unknown: Vec<String>,
}

/// One setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AdvisedSetting {
    /// Label of its column.
    pub label: String,
    /// What the comparison with the baseline means.
    pub finding: Option<Finding>,
    /// Ratio of the verdict's measure to the baseline.
    pub ratio: Option<f64>,
    /// 95 % interval of that, from 8 trials on.
    pub interval: Option<Interval>,
    /// What is typed to have it.
    pub how: Vec<String>,
    /// What the kernel of this computer lacks for it, if it is this computer that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacking: Option<String>,
}

/// Everything that a kernel of Linux 7.2 can have.
const EVERYTHING: Abilities = Abilities { hz: None, cache_aware: true, sched_ext: true, numa_balancing: true };

impl Advice {
    /// The advice of a comparison that is finished, with its trials by scheduler. `root` is where this computer's files are.
    pub fn of(experiment: &Experiment, document: &ComparisonDocument, trials: &[Vec<Trial>], root: &Path) -> Self {
        let better = document.measures.iter().find(|measure| measure.name == document.primary);
        let better = better.map_or(Better::Lower, |measure| measure.better);
        let others = document.schedulers.iter().enumerate().filter(|(_, scheduler)| !scheduler.is_baseline);
        let mut settings: Vec<AdvisedSetting> = others
            .map(|(index, scheduler)| {
                let result = scheduler.measures.get(&document.primary);
                let comparison = result.and_then(|result| result.comparison.as_ref());
                let (how, files) = how(experiment, index);
                AdvisedSetting {
                    label: scheduler.label.clone(),
                    finding: result.and_then(|result| result.finding),
                    ratio: comparison.and_then(|comparison| comparison.ratio),
                    interval: comparison.and_then(|comparison| comparison.interval),
                    how,
                    lacking: lacking(experiment, &files, root),
                }
            })
            .collect();
        let rank = |setting: &AdvisedSetting| match setting.finding {
            Some(Finding::Better) => 0,
            Some(Finding::Worse | Finding::Starves) => 2,
            _ => 1,
        };
        let gain = |setting: &AdvisedSetting| match (setting.ratio, better) {
            (Some(ratio), Better::Higher) => -ratio,
            (Some(ratio), _) => ratio,
            // It is clearly apart from next to nothing: further than any ratio says.
            (None, _) if rank(setting) == 0 => f64::NEG_INFINITY,
            (None, _) => f64::INFINITY,
        };
        settings.sort_by(|a, b| rank(a).cmp(&rank(b)).then(gain(a).total_cmp(&gain(b))));
        Self { settings, unknown: unknown(experiment, &trials[experiment.baseline]) }
    }

    /// Whether a condition says of a setting's column what its commands say already.
    pub fn says(&self, condition: &str) -> bool {
        self.settings.iter().any(|setting| condition.starts_with(&format!("`{}`", setting.label)))
    }

    /// In words, a line each; `metric` names the verdict's measure.
    pub fn lines(&self, metric: &str, baseline: &str) -> Vec<String> {
        let (helps, rest): (Vec<&AdvisedSetting>, Vec<&AdvisedSetting>) =
            self.settings.iter().partition(|setting| setting.finding == Some(Finding::Better));
        let mut lines = Vec::new();
        let few = rest.iter().any(|setting| setting.finding == Some(Finding::TooFewTrials));
        lines.push(match helps.is_empty() {
            true if few => {
                format!("The trials are too few to show whether a setting improves {metric} over {baseline}.")
            }
            true => format!("None of the settings tried is shown to improve {metric} over {baseline}."),
            false => format!("Settings that improve {metric} over {baseline}, the best first:"),
        });
        for setting in helps {
            let by = setting.ratio.map_or_else(String::new, |ratio| format!(" ({} times)", decimal(ratio)));
            lines.push(format!("  {}{by}", setting.label));
            lines.extend(setting.how.iter().map(|typed| format!("      {typed}")));
            lines.extend(setting.lacking.iter().map(|lacking| format!("      not on this computer: {lacking}")));
        }
        const OTHERS: [&str; 4] = ["Worse", "Not answerable here", "No difference shown", "Too few trials to judge"];
        let title = |setting: &AdvisedSetting| match setting.finding {
            Some(Finding::Worse | Finding::Starves) => OTHERS[0],
            Some(Finding::NotAnswerable) => OTHERS[1],
            Some(Finding::TooFewTrials) => OTHERS[3],
            _ => OTHERS[2],
        };
        for other in OTHERS {
            let labels: Vec<&str> =
                rest.iter().filter(|setting| title(setting) == other).map(|setting| &*setting.label).collect();
            if !labels.is_empty() {
                lines.push(format!("{other}: {}.", labels.join(", ")));
            }
        }
        lines.extend(self.unknown.iter().map(|what| format!("Not known: {what}.")));
        lines
    }
}

/// What is to be known of the switch of cache-aware scheduling (Linux 7.2; docs/spec/linux-fair.md, 6.11).
const BEGINS_SO: &str = "  # a kernel with CONFIG_SCHED_CACHE begins so; the other columns have 0";

/// What is typed for a column, and the kernel's files among it.
fn how(experiment: &Experiment, index: usize) -> (Vec<String>, Vec<String>) {
    let (base, spec) = (&experiment.schedulers[experiment.baseline], &experiment.schedulers[index]);
    let changed = changed_files(base, spec);
    let mut typed = lines(&changed, spec);
    typed.extend(placed(spec, &experiment.machine_of(index).value, &experiment.workload_of(index).value));
    (typed, changed.into_iter().map(|(path, _)| path).collect())
}

/// What is typed to have the second scheduler's settings where the first one's are: files of the kernel, the placement of tasks, and the
/// loader of a sched_ext program.
pub fn typed((base, spec): (&SchedulerSpec, &SchedulerSpec), machine: &Machine, workload: &Workload) -> Vec<String> {
    let mut typed = lines(&changed_files(base, spec), spec);
    typed.extend(placed(spec, machine, workload));
    typed.extend(
        spec.program().map(|of| {
            std::iter::once(&of.program).chain(&of.arguments).map(String::as_str).collect::<Vec<_>>().join(" ")
        }),
    );
    typed
}

/// The kernel's files that have other values, each with its value.
fn changed_files(base: &SchedulerSpec, spec: &SchedulerSpec) -> Vec<(String, String)> {
    let plain = |spec: &SchedulerSpec| -> Vec<(String, String)> {
        let all = settings_of(&spec.under(Circumstances::default()), &EVERYTHING).unwrap_or_default();
        all.into_iter().map(|setting| (setting.path, setting.value)).collect()
    };
    let before = plain(base);
    plain(spec).into_iter().filter(|setting| !before.contains(setting)).collect()
}

fn lines(changed: &[(String, String)], spec: &SchedulerSpec) -> Vec<String> {
    let own = if spec.info().is_cache_aware { BEGINS_SO } else { "" };
    changed.iter().map(|(path, value)| format!("echo {value} > {path}{own}")).collect()
}

/// What is typed for where tasks run.
fn placed(spec: &SchedulerSpec, machine: &Machine, workload: &Workload) -> Option<String> {
    let words = spec.circumstances();
    match (&words.pin, cpus_of(words, machine)) {
        (Some(_), _) => Some(as_commands(&bound_tasks(workload))),
        (None, Ok(Some(cpus))) => {
            let list = format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu)));
            Some(format!("taskset -c {list} COMMAND, or a cpuset with {list} in its cpuset.cpus"))
        }
        _ => None,
    }
}

/// What this computer's kernel lacks for files to be written, if the machine is this computer.
fn lacking(experiment: &Experiment, files: &[String], root: &Path) -> Option<String> {
    let is_here = experiment.machine.source.split([' ', '@']).next() == Some(HOST);
    let missing = files.iter().find(|file| !root.join(file.trim_start_matches('/')).exists());
    missing.filter(|_| is_here).map(|file| format!("there is no {file} (another kernel, or debugfs is not mounted)"))
}

/// What the verdict does not rest on; `trials` are the baseline's.
fn unknown(experiment: &Experiment, trials: &[Trial]) -> Vec<String> {
    let mut unknown = Vec::new();
    let unprofiled = gathered_without_profile(&experiment.workload.value, trials).filter(|of| of.decides());
    const HOW: &str = "`warmcore workload fit COUNTERS.toml` makes a memory profile from counters, `--assume-profile NAME` takes one of the program's";
    if experiment.options.memory == MemoryChoice::None {
        unknown.push(format!(
            "what the tasks do to caches: memory has constant speed here, so no place near others was tried and cache-aware scheduling is not \
             judged ({HOW})"
        ));
    } else if let Some(of) = unprofiled {
        unknown.push(format!(
            "what threads of {} do to caches: they have no memory profile, so cache-aware scheduling is not judged ({HOW})",
            of.process
        ));
    }
    let assumed = assumptions(&experiment.machine.value).len();
    if assumed > 0 {
        unknown.push(format!("{assumed} costs of the machine, which are assumed; `--sensitivity` says which of them could turn the verdict"));
    }
    unknown.push(
        "frequencies and their governors, and sched_ext schedulers that are not named (`-s eevdf,scx:PROGRAM` compares one)".to_owned(),
    );
    unknown
}
