//! Headroom: how far every scheduler is from the best static placement of the workload's long-lived threads that is known.
//!
//! The placement is found by somebody who knows the workload (`docs/models/oracle.md`) and is run pinned, under the same kernel. No
//! scheduler of a kernel knows that much, so the oracle is no scheduler of the comparison: it stands beside it.

use serde::{Deserialize, Serialize};
use warmcore_statistics::{Better, Interval, StatisticsError, compare_trials};
use warmcore_topology::format_cpu_list;
use warmcore_workload::{Affinity, Workload};

use crate::directory::{ORACLE as FILE, RunDirectory};
use crate::measures::Measure;
use crate::verdict::{ComparisonDocument, decimal, percent};

/// Version of [`OracleRun`].
pub const SCHEMA: &str = "warmcore-oracle-1";

/// The oracle's name in tables and sentences.
pub const ORACLE: &str = "oracle";

/// Less than this part to win is nothing to win: shares of it would be shares of noise.
pub const LEAST_HEADROOM: f64 = 0.01;

/// What the oracle found, and how it did: `oracle.json` of a run directory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OracleRun {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kernel that ran the pinned threads.
    pub scheduler: String,
    /// The placement's name: where its search began, or `searched`.
    pub placement: String,
    /// How tightly threads are pinned: `cpu`, or the `llc` or `node` of that CPU.
    pub width: String,
    /// Placements that the memory model evaluated, equal ones once.
    pub evaluations: usize,
    /// Whether the search ended because no move and no swap helped.
    pub finished: bool,
    /// Placements that were simulated before one was chosen.
    pub rehearsals: Vec<Rehearsal>,
    /// Who was pinned where, by the operating system's numbers of CPUs.
    pub threads: Vec<PinnedThread>,
    /// The metric it was chosen by.
    pub metric: String,
    /// Seed of each trial.
    pub seeds: Vec<u64>,
    /// The metric in each trial; none where a trial has none or did not end.
    pub points: Vec<Option<f64>>,
}

/// A placement that was simulated before one was chosen.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rehearsal {
    /// As in [`OracleRun`].
    pub placement: String,
    /// As in [`OracleRun`].
    pub width: String,
    /// Mean of the metric; none if a trial had none.
    pub value: Option<f64>,
}

/// A thread and its CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PinnedThread {
    /// The task's name.
    pub task: String,
    /// Its CPUs as a list, such as `0-3,8`.
    pub cpus: String,
}

/// The schedulers against the oracle.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Headroom {
    /// What the oracle did.
    pub oracle: OracleRun,
    /// By which factor it improves the primary measure over the baseline.
    pub gain: Option<f64>,
    /// In the order of the experiment.
    pub schedulers: Vec<SchedulerHeadroom>,
    /// In words.
    pub sentence: String,
}

/// One scheduler against the oracle.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SchedulerHeadroom {
    /// Its label.
    pub label: String,
    /// How good it is in parts of the oracle, whichever direction of the measure is better: 0.9 is 10 % less good.
    pub of_oracle: Option<f64>,
    /// 95 % interval of that, from 8 trials on.
    pub interval: Option<Interval>,
    /// Which part of what the oracle wins over the baseline it wins; none where less than [`LEAST_HEADROOM`] is to be won.
    pub won: Option<f64>,
}

/// What an oracle found for a run directory, if it was asked.
///
/// # Errors
/// What is wrong with the file.
pub fn kept(directory: &RunDirectory) -> Result<Option<OracleRun>, String> {
    if !directory.path().join(FILE).is_file() {
        return Ok(None);
    }
    let text = directory.read(FILE).map_err(|error| error.to_string())?;
    let oracle: OracleRun = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if oracle.schema == SCHEMA { Ok(Some(oracle)) } else { Err(format!("it has the schema {}", oracle.schema)) }
}

impl Headroom {
    /// Compares a document's schedulers with the oracle, over the trials that both have.
    ///
    /// # Errors
    /// When a value is not a number.
    pub fn of(document: &ComparisonDocument, oracle: &OracleRun) -> Result<Option<Self>, StatisticsError> {
        let primary = document.measures.iter().find(|measure| measure.name == document.primary);
        let Some(primary) =
            primary.filter(|primary| primary.name == oracle.metric && primary.better != Better::Neither)
        else {
            return Ok(None);
        };
        let at = |seed: &u64| oracle.seeds.iter().position(|known| known == seed);
        let points: Vec<Option<f64>> =
            document.experiment.seeds.iter().map(|seed| oracle.points.get(at(seed)?).copied().flatten()).collect();
        let mut schedulers = Vec::new();
        for scheduler in &document.schedulers {
            let own = &scheduler.measures[&primary.name].points;
            let comparison = compare_trials(document.experiment.design, &points, own, primary.better)?;
            let better = |ratio: f64| if primary.better == Better::Lower { 1.0 / ratio } else { ratio };
            let interval = comparison.interval.map(|Interval { low, high }| match primary.better {
                Better::Lower => Interval { low: better(high), high: better(low) },
                _ => Interval { low, high },
            });
            let of_oracle = comparison.ratio.map(better).filter(|ratio| ratio.is_finite() && *ratio > 0.0);
            let interval = interval.filter(|interval| interval.low.is_finite() && interval.high.is_finite());
            schedulers.push(SchedulerHeadroom { label: scheduler.label.clone(), of_oracle, interval, won: None });
        }
        let base = document.schedulers.iter().position(|scheduler| scheduler.is_baseline);
        let base = base.and_then(|position| schedulers[position].of_oracle);
        let gain = base.map(|base| 1.0 / base);
        for scheduler in &mut schedulers {
            scheduler.won = gain.zip(base).zip(scheduler.of_oracle).and_then(|((gain, base), own)| {
                (gain > 1.0 + LEAST_HEADROOM).then(|| (own / base - 1.0) / (gain - 1.0))
            });
        }
        let mut headroom = Self { oracle: oracle.clone(), gain, schedulers, sentence: String::new() };
        headroom.sentence = headroom.in_words(document, primary);
        Ok(Some(headroom))
    }

    /// The headroom of a scheduler.
    pub fn scheduler(&self, label: &str) -> Option<&SchedulerHeadroom> {
        self.schedulers.iter().find(|scheduler| scheduler.label == label)
    }

    fn in_words(&self, document: &ComparisonDocument, primary: &Measure) -> String {
        let base = document.schedulers.iter().find(|scheduler| scheduler.is_baseline).map_or("", |base| &base.label);
        let OracleRun { placement, width, evaluations, rehearsals, scheduler, .. } = &self.oracle;
        let how = format!(
            "the oracle, which no kernel could have, knows the workload and pins its threads ({placement}, each to its {}, under {scheduler}; \
             {evaluations} placements evaluated, {} simulated)",
            width.replace("cpu", "CPU").replace("llc", "LLC"),
            rehearsals.len()
        );
        let Some(gain) = self.gain else { return format!("{how}: it has no {} in common with {base}.", primary.title) };
        if gain <= 1.0 + LEAST_HEADROOM {
            let consequence = without_gain(&self.schedulers);
            let change = match gain < 1.0 - LEAST_HEADROOM {
                true => format!("{} is worse than under {base} by a factor of {}", primary.title, decimal(1.0 / gain)),
                false => format!("{} is as under {base}", primary.title),
            };
            return format!("{how}: {change}, {consequence}.");
        }
        let won: Vec<String> = self
            .schedulers
            .iter()
            .filter(|scheduler| scheduler.label != base)
            .filter_map(|scheduler| Some(format!("{} wins {}", scheduler.label, percent_of(scheduler.won?))))
            .collect();
        let won = if won.is_empty() { String::new() } else { format!("; of that {}", won.join(", ")) };
        let typed = as_commands(&self.oracle.threads);
        format!(
            "{how}: it improves {} over {base} by a factor of {}{won}. It is had with {typed}.",
            primary.title,
            decimal(gain)
        )
    }
}

/// What follows where the oracle gains nothing: the search is no bound, and a scheduler may be better than the oracle.
fn without_gain(schedulers: &[SchedulerHeadroom]) -> String {
    let better: Vec<String> = schedulers
        .iter()
        .filter_map(|own| Some((&own.label, own.of_oracle.filter(|of_oracle| *of_oracle > 1.0 + LEAST_HEADROOM)?)))
        .map(|(label, of_oracle)| format!("{label} is better than the oracle by a factor of {}", decimal(of_oracle)))
        .collect();
    match better.is_empty() {
        true => "so the search found no placement that wins anything".into(),
        false => format!("but {}, so the oracle is not the best possible here", better.join(" and ")),
    }
}

/// Commands that are written out for a placement.
const MOST_COMMANDS: usize = 4;

/// A placement as what an administrator types: one command where all threads have the same CPUs, otherwise one for each thread.
pub(crate) fn as_commands(threads: &[PinnedThread]) -> String {
    let mut lists: Vec<(&str, Vec<&str>)> = Vec::new();
    for thread in threads {
        match lists.iter_mut().find(|(cpus, _)| *cpus == thread.cpus) {
            Some((_, names)) => names.push(&thread.task),
            None => lists.push((&thread.cpus, vec![&thread.task])),
        }
    }
    if let [(cpus, _)] = lists[..] {
        return format!("`taskset -c {cpus} COMMAND`, or a cpuset with {cpus} in its cpuset.cpus");
    }
    let one = |(cpus, names): &(&str, Vec<&str>)| format!("`taskset -cp {cpus} TID` for {}", names.join(", "));
    let mut words: Vec<String> = lists.iter().take(MOST_COMMANDS).map(one).collect();
    if lists.len() > MOST_COMMANDS {
        words.push(format!("and {} more, which the run directory has", lists.len() - MOST_COMMANDS));
    }
    words.join("; ")
}

/// The tasks of a workload that are bound, and where to.
pub(crate) fn bound_tasks(workload: &Workload) -> Vec<PinnedThread> {
    let bound = workload.tasks.iter().filter_map(|task| match &task.affinity {
        Affinity::OsCpus(cpus) => {
            Some(PinnedThread { task: task.name.clone(), cpus: format_cpu_list(cpus.iter().copied()) })
        }
        _ => None,
    });
    bound.collect()
}

/// A share that may be negative: `−12 %`.
fn percent_of(share: f64) -> String {
    if share < 0.0 { format!("\u{2212}{}", percent(-share)) } else { percent(share) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_to_be_won_only_where_no_scheduler_is_better_than_the_oracle() {
        let of =
            |label: &str, of_oracle| SchedulerHeadroom { label: label.into(), of_oracle, interval: None, won: None };
        let all = [of("eevdf", Some(1.005)), of("rr", None), of("cache-aware", Some(1.169))];
        assert_eq!(without_gain(&all[..2]), "so the search found no placement that wins anything");
        let better = "but cache-aware is better than the oracle by a factor of 1.169, so the oracle is not the best possible here";
        assert_eq!(without_gain(&all), better);
    }
}
