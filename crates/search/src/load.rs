//! How many tasks, threads or requests keep a given share of a machine busy: found by trial, since what a task needs of a machine
//! follows from caches, waits and the scheduler, and not from its program alone.

use std::collections::BTreeMap;

use warmcore_lab::experiment::Experiment;
use warmcore_lab::runner::{self, Conduct, RunError};
use warmcore_options::{RunOptions, TraceLevel};

/// Most numbers that are tried for a level.
const MOST_TRIED: usize = 12;

/// A number is close enough if the busy share is this close to the level.
const CLOSE: f64 = 0.005;

/// A level counts as out of reach if the closest busy share is this far from it.
const FAR: f64 = 0.05;

/// A busy share is not that of a level if it is this many times it, or the other way round: nothing comes closer.
const TOO_FAR: f64 = 1.5;

/// Part of a level by which the busy share may miss it without a word.
const NEAR: f64 = 0.1;

/// Twice the load must make at least this many times the busy share; otherwise more load makes nothing busier.
const GROWTH: f64 = 1.02;

/// The number for a level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loaded {
    /// How many.
    pub count: u64,
    /// The busy share that was measured with it, 0..1.
    pub utilisation: f64,
}

impl Loaded {
    /// Whether the busy share misses a level by more than a tenth of it, in either direction, so that it is to be told.
    pub fn misses(&self, level: f64) -> bool {
        (self.utilisation - level).abs() > NEAR * level
    }
}

/// Why there is no such number.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum LevelError {
    #[error(
        "{} {} of the machine busy, and more do not make it {}",
        keeping(.closest.count, .counts), share(.closest.utilisation), share(*.level)
    )]
    OutOfReach { level: f64, closest: Loaded, counts: &'static str },
    /// One less is too little, or none at all, and one more too much.
    #[error("{}", coarse(*.level, *.below, *.above, .counts))]
    TooCoarse {
        level: f64,
        /// The most that keeps less busy, if there is such.
        below: Option<Loaded>,
        above: Loaded,
        counts: &'static str,
    },
}

fn coarse(level: f64, below: Option<Loaded>, above: Loaded, counts: &str) -> String {
    let keeps = share(above.utilisation);
    let level = share(level);
    match below {
        Some(below) => format!(
            "{} {} of the machine busy and {} keep {keeps}: nothing that was tried comes closer to {level}",
            keeping(below.count, counts),
            share(below.utilisation),
            above.count
        ),
        None if above.count == 1 => {
            format!(
                "the least there can be ({counts}: 1) keeps {keeps} of the machine busy, which is too much for {level}"
            )
        }
        None => format!(
            "{} {counts}, the least that was tried, keep {keeps} of the machine busy, which is too much for {level}",
            above.count
        ),
    }
}

/// `3 tasks`, `1 task`: `counts` is the plural of a word, or begins with it (`requests per second`).
pub fn counted(count: u64, counts: &str) -> String {
    let (what, per) = counts.split_at(counts.find(' ').unwrap_or(counts.len()));
    let what = if count == 1 { what.strip_suffix('s').unwrap_or(what) } else { what };
    format!("{count} {what}{per}")
}

fn keeping(count: u64, counts: &str) -> String {
    format!("{} {}", counted(count, counts), if count == 1 { "keeps" } else { "keep" })
}

impl LevelError {
    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::OutOfReach { .. } => {
                "ask for less, or take what holds the workload back: CPUs it is bound to, locks, too few workers for the rate"
            }
            Self::TooCoarse { .. } => "ask for what one of them makes, or take a larger machine or smaller tasks",
        }
    }
}

fn share(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Looks for the number whose busy share is closest to a level, beginning with `first`. `measure` says the share for a number, and is
/// asked once for each; `known` holds what it said, for this level and others. The share is taken to rise with the number.
///
/// # Errors
/// Those of `measure`. Within that, [`LevelError`].
pub fn find<E>(
    level: f64,
    (first, most): (u64, u64),
    counts: &'static str,
    known: &mut BTreeMap<u64, f64>,
    mut measure: impl FnMut(u64) -> Result<f64, E>,
) -> Result<Result<Loaded, LevelError>, E> {
    let mut next = first.clamp(1, most);
    for _ in 0..MOST_TRIED {
        let utilisation = match known.get(&next) {
            Some(utilisation) => *utilisation,
            None => measure(next)?,
        };
        known.insert(next, utilisation);
        if (utilisation - level).abs() <= CLOSE {
            return Ok(Ok(Loaded { count: next, utilisation }));
        }
        match next_of(level, most, known) {
            Some(count) => next = count,
            None => break,
        }
    }
    let found = known.iter().map(|(count, utilisation)| Loaded { count: *count, utilisation: *utilisation });
    let away = |loaded: &Loaded| (loaded.utilisation - level).abs();
    let closest = found.min_by(|a, b| away(a).total_cmp(&away(b))).unwrap_or(Loaded { count: 0, utilisation: 0.0 });
    let off = (closest.utilisation / level).max(level / closest.utilisation);
    let reached = known.values().any(|utilisation| *utilisation >= level);
    // Of a low level less than FAR is much.
    if !reached && (closest.utilisation < level - FAR || off > TOO_FAR) {
        return Ok(Err(LevelError::OutOfReach { level, closest, counts }));
    }
    let of = |(count, utilisation): (&u64, &f64)| Loaded { count: *count, utilisation: *utilisation };
    let below = known.iter().rev().find(|(_, utilisation)| **utilisation < level).map(of);
    let above = known.iter().find(|(_, utilisation)| **utilisation >= level).map(of);
    if let Some(above) = above.filter(|_| off > TOO_FAR) {
        return Ok(Err(LevelError::TooCoarse { level, below, above, counts }));
    }
    Ok(Ok(closest))
}

/// The number to try next; none where the closest is known.
fn next_of(level: f64, most: u64, known: &BTreeMap<u64, f64>) -> Option<u64> {
    let above = known.iter().find(|(_, utilisation)| **utilisation >= level).map(|(count, share)| (*count, *share));
    let mut below =
        known.iter().rev().filter(|(count, share)| **share < level && above.is_none_or(|(a, _)| **count < a));
    let (low, low_share) = below.next().map_or((0, 0.0), |(count, share)| (*count, *share));
    let Some((high, high_share)) = above else {
        // More than twice as many as before, and hardly busier: nothing makes it.
        let saturated = below.any(|(count, share)| *count > 0 && low >= 2 * count && low_share < share * GROWTH);
        let wanted =
            if low_share > 0.0 { (low as f64 * level / low_share).ceil() as u64 } else { low.saturating_mul(8) };
        // Close to the level a fault in the proportion would be followed for long.
        let grown = wanted.clamp(low + low / 4 + 1, low.saturating_mul(8).max(low + 1));
        return (!saturated && low < most).then(|| grown.min(most));
    };
    if high - low <= 1 {
        return None;
    }
    let part = (level - low_share) / (high_share - low_share);
    let between = low + ((high - low) as f64 * part).round() as u64;
    // The share does not rise evenly: every other time halves what is left.
    let next = if known.len().is_multiple_of(2) { low + (high - low) / 2 } else { between };
    Some(next.clamp(low + 1, high - 1))
}

/// The share of the CPU time of all CPUs, in what counts of the experiment's first trial under the baseline, in which tasks ran.
///
/// # Errors
/// When the trial fails.
pub fn utilisation(experiment: &Experiment, conduct: &Conduct<'_>) -> Result<f64, RunError> {
    let trial = Experiment {
        machine: experiment.machine_of(experiment.baseline).clone(),
        workload: experiment.workload_of(experiment.baseline).clone(),
        schedulers: vec![experiment.scheduler_of(experiment.baseline).clone()],
        columns: BTreeMap::new(),
        baseline: 0,
        seeds: experiment.seeds.first().copied().into_iter().collect(),
        options: RunOptions { trace: TraceLevel::Counters, ..experiment.options.without_tables() },
        observations: Vec::new(),
        ..experiment.clone()
    };
    let finished = runner::run(&trial, None, conduct)?;
    let cpus = trial.machine.value.cpu_count() as f64;
    let share = finished.trials.iter().flatten().next().and_then(|trial| {
        let time = trial.window_ns() as f64 * cpus;
        (time > 0.0).then(|| trial.measure("run_ns").unwrap_or_default() / time)
    });
    Ok(share.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number found, and how many were tried.
    fn tried(level: f64, first: u64, shares: impl Fn(u64) -> f64) -> (Result<Loaded, LevelError>, usize) {
        let mut calls = 0;
        let found = find(level, (first, 1_000_000), "tasks", &mut BTreeMap::new(), |count| {
            calls += 1;
            Ok::<f64, ()>(shares(count))
        });
        (found.unwrap(), calls)
    }

    #[test]
    fn a_share_in_proportion_is_found_at_once_or_after_one_trial() {
        let (found, calls) = tried(0.6, 10, |count| count as f64 / 100.0);
        assert_eq!((found.unwrap(), calls), (Loaded { count: 60, utilisation: 0.6 }, 2));
        assert_eq!(tried(0.6, 60, |count| count as f64 / 100.0).1, 1);
    }

    #[test]
    fn a_share_that_bends_is_found_in_few_trials_and_the_closest_whole_number_is_taken() {
        let (found, calls) = tried(0.9, 4, |count| 1.0 - (-(count as f64) / 40.0).exp());
        let found = found.unwrap();
        assert!((found.utilisation - 0.9).abs() < 0.011 && calls <= MOST_TRIED, "{found:?} after {calls}");
        // One of four CPUs each: 30 % lies between one and two.
        let quarters = |count: u64| (count as f64 / 4.0).min(1.0);
        assert_eq!(tried(0.3, 4, quarters).0.unwrap(), Loaded { count: 1, utilisation: 0.25 });
        assert_eq!(tried(0.9, 1, quarters).0.unwrap().count, 4);
        let missed = |level: f64| tried(level, 4, quarters).0.unwrap().misses(level);
        assert!(missed(0.3) && missed(0.22) && !missed(0.27) && !missed(0.5));
    }

    #[test]
    fn what_cannot_be_reached_is_refused_with_what_can() {
        let (found, calls) = tried(0.9, 4, |count| (count as f64 / 100.0).min(0.25));
        let error = found.unwrap_err().to_string();
        assert!(
            error.contains("tasks keep 25.0 % of the machine busy, and more do not make it 90.0 %")
                && calls < MOST_TRIED,
            "{error}"
        );
        let error = tried(0.1, 8, |count| (count as f64 / 2.0).min(1.0)).0.unwrap_err().to_string();
        assert_eq!(
            error,
            "the least there can be (tasks: 1) keeps 50.0 % of the machine busy, which is too much for 10.0 %"
        );
        // Two keep a tenth busy, and three nearly everything.
        let steep = |count: u64| if count < 3 { count as f64 / 20.0 } else { 0.982 };
        let error = tried(0.5, 3, steep).0.unwrap_err().to_string();
        assert_eq!(
            error,
            "2 tasks keep 10.0 % of the machine busy and 3 keep 98.2 %: nothing that was tried comes closer to 50.0 %"
        );
        let found = find(0.5, (1, 1), "tasks", &mut BTreeMap::new(), |_| Ok::<f64, ()>(0.1));
        let error = found.unwrap().unwrap_err().to_string();
        assert_eq!(error, "1 task keeps 10.0 % of the machine busy, and more do not make it 50.0 %");
        // The levels are as near to each other as to nothing.
        let (found, _) = tried(0.04, 4, |count| (count as f64 / 100.0).min(0.01));
        let error = found.unwrap_err().to_string();
        assert!(error.contains("tasks keep 1.0 % of the machine busy, and more do not make it 4.0 %"), "{error}");
        assert_eq!(tried(0.04, 4, |_| 0.035).0.unwrap().utilisation, 0.035, "near enough, if nothing comes nearer");
    }

    #[test]
    fn one_is_told_as_one() {
        assert_eq!(keeping(1, "requests per second"), "1 request per second keeps");
        assert_eq!([keeping(1, "threads"), keeping(2, "threads")], ["1 thread keeps", "2 threads keep"]);
    }

    #[test]
    fn levels_share_what_was_measured() {
        let mut known = BTreeMap::from([(30, 0.3)]);
        let found = find(0.3, (30, 100), "tasks", &mut known, |_| Err::<f64, _>("measured again"));
        assert_eq!(found.unwrap().unwrap().count, 30);
    }
}
