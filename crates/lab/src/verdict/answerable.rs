//! Where numbers are no answer, whatever their interval: what a scheduler acts on is not in the run, tasks starved, or a percentile is one of
//! few events.
//!
//! - Cache-aware scheduling keeps threads together for what caches hold. Where memory has constant speed for them, in the whole run or because
//!   they have no profile, it pays for that with waiting and can win nothing, so neither a gain nor a loss of time says anything about it. Where
//!   threads are, and what the kernel does, is answered, and where it is off, as on a machine with one LLC, everything is. Threads without a
//!   profile that ran for a small part of the time are a condition and no more.
//! - A task that waits for ever ends no wait. Whatever improves by leaving tasks out is no improvement.
//! - A scheduler that keeps no quota does the work that the others may not.
//! - The 99th percentile of twenty waits is the longest of them, and a rate of two or three samples is one more or less.
//!
//! The verdict's own measure is never of few events: see [`carries`](super::carries).

use std::collections::BTreeMap;

use warmcore_memory::Profile;
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::Sample;
use warmcore_workload::{Aggregate, Task, Workload};

use super::carries::{few_events, few_samples};
use super::{Finding, SchedulerResult, percent};
use crate::experiment::{Experiment, ExperimentRecord};
use crate::measures::{self, Measure, NEVER_RAN_AGAIN, Unit};
use crate::trial::Trial;

/// Changes findings where a comparison with the baseline cannot answer; `primary` is the verdict's measure, `unkept` are the labels of
/// schedulers under which quotas of their workload do not hold.
pub(super) fn judge(
    experiment: &Experiment,
    record: &ExperimentRecord,
    unkept: &[String],
    (catalogue, primary): (&[Measure], &Measure),
    schedulers: &mut [SchedulerResult],
    (baseline, trials): (usize, &[Vec<Trial>]),
) {
    let base_left = left_waiting(&schedulers[baseline]);
    let simulated = experiment.place.kind().simulated;
    let base_gathers = acts_on_caches(experiment, baseline, &schedulers[baseline]);
    let without_caches = |index: usize| {
        let unprofiled = || gathered_without_profile(&experiment.workload_of(index).value, &trials[baseline]);
        simulated && (record.options.memory == MemoryChoice::None || unprofiled().is_some_and(|of| of.decides()))
    };
    let base_unanswered = base_gathers && without_caches(baseline);
    let base_unlimited = unkept.contains(&schedulers[baseline].label);
    for (index, scheduler) in schedulers.iter_mut().enumerate() {
        let differs = unkept.contains(&scheduler.label) != base_unlimited;
        let left = left_waiting(scheduler);
        let starves = starves(base_left, left);
        let unanswered = base_unanswered || acts_on_caches(experiment, index, scheduler) && without_caches(index);
        // Percentiles are edges of buckets: equal ones are of equal runs only if the means are equal too.
        let means_differ: Vec<bool> = catalogue
            .iter()
            .map(|measure| {
                let mean = measures::mean_of_percentile(&measure.name).and_then(|mean| scheduler.measures.get(&mean));
                mean.is_some_and(|mean| mean.finding != Some(Finding::Identical))
            })
            .collect();
        for (measure, means_differ) in catalogue.iter().zip(means_differ) {
            let Some(result) = scheduler.measures.get_mut(&measure.name) else { continue };
            let Some(finding) = &mut result.finding else { continue };
            if *finding == Finding::Identical && means_differ {
                *finding = Finding::Tied;
            }
            let is_primary = measure.name == primary.name;
            let unended =
                || [baseline, index].iter().all(|of| trials[*of].iter().any(|trial| measure.is_unended(trial)));
            let sides = [&trials[baseline], &trials[index]];
            let few = || {
                sides.iter().any(|trials| few_events(measure, trials).is_some())
                    || sides.iter().all(|trials| few_samples(measure, trials).is_some())
            };
            if starves && (*finding == Finding::Better || is_primary && *finding != Finding::Worse) {
                *finding = Finding::Starves;
            } else if differs || unanswered && is_of_time(measure) {
                *finding = Finding::NotAnswerable;
            } else if few() || *finding == Finding::Identical && unended() {
                *finding = Finding::NotMeasurable;
            }
            // No number stands where it is no answer.
            if let Some(comparison) = &mut result.comparison
                && matches!(finding, Finding::NotAnswerable | Finding::NotMeasurable)
            {
                (comparison.ratio, comparison.interval, comparison.smallest_effect) = (None, None, None);
            }
        }
    }
}

/// Whether a scheduler starves: whether it left more tasks waiting for ever than the baseline, and at least twice as many. In a short run some
/// may not have had their first turn, under any scheduler.
pub fn starves(base_left: f64, left: f64) -> bool {
    left > base_left && left >= 2.0 * base_left
}

/// Tasks that were left waiting for ever, in the middle of these trials; 0 where no trial says.
pub fn tasks_left(trials: &[Trial]) -> f64 {
    let of_trials: Vec<f64> = trials.iter().filter_map(|trial| trial.measure(NEVER_RAN_AGAIN)).collect();
    // Counts are numbers.
    Sample::new(&of_trials).ok().and_then(|sample| sample.median()).unwrap_or(0.0)
}

/// Whether a simulated scheduler keeps quotas of task groups. Programs of sched_ext keep none in a kernel either.
pub(super) fn keeps_quotas(label: &str) -> bool {
    SchedulerSpec::parse(label).is_ok_and(|spec| spec.info().knows_groups || spec.program().is_some())
}

/// Threads that cache-aware scheduling keeps together, and whether a profile says what any of them does to caches.
struct Kept<'a> {
    process: &'a str,
    templates: Vec<&'a str>,
    threads: u32,
    works: bool,
    has_profile: bool,
}

/// Processes whose threads are kept together and of which no memory profile says what they do to caches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Unprofiled<'a> {
    /// The one that ran longest, or the first process of its group.
    pub process: &'a str,
    /// Part of all tasks' CPU time that the tasks of all of them had.
    pub share: f64,
}

/// Of all CPU time so much may be of threads without a profile: the rest is what is compared.
const SMALL: f64 = 0.05;

impl Unprofiled<'_> {
    /// Whether they ran so long that times say nothing about keeping threads together.
    pub fn decides(&self) -> bool {
        self.share > SMALL
    }
}

/// Processes, or groups of the workload's own choice, of several threads that work and of which no memory profile says what they do to caches:
/// keeping them together wins nothing, whatever other tasks have. How long they ran is that of `trials`; of trials without tasks nothing is
/// known, and they count as all.
pub(crate) fn gathered_without_profile<'a>(workload: &'a Workload, trials: &[Trial]) -> Option<Unprofiled<'a>> {
    let mut kept: BTreeMap<(bool, u32), Kept<'a>> = BTreeMap::new();
    for task in &workload.tasks {
        let key = match workload.aggregation.of(task.process, task.group, &task.data_groups) {
            Aggregate::Off => continue,
            Aggregate::Process => (false, task.process.0),
            Aggregate::Group(group) => (true, group),
        };
        let process = workload.processes.get(task.process.index()).map_or("", |process| process.name.as_str());
        let none = Kept { process, templates: Vec::new(), threads: 0, works: false, has_profile: false };
        let own = kept.entry(key).or_insert(none);
        own.templates.push(&task.name);
        // What a step forks may be several.
        own.threads = own.threads.saturating_add(if task.instances == 0 { 2 } else { task.instances });
        own.works |= !workload.programs[task.program.index()].is_idle();
        own.has_profile |= touches_memory(workload, task);
    }
    let without: Vec<Kept<'a>> =
        kept.into_values().filter(|kept| kept.threads > 1 && kept.works && !kept.has_profile).collect();
    if without.is_empty() {
        return None;
    }
    let of_each = |(index, kept): (usize, &Kept<'a>)| -> Vec<(&'a str, usize)> {
        kept.templates.iter().map(|name| (*name, index)).collect()
    };
    let owners: BTreeMap<&str, usize> = without.iter().enumerate().flat_map(of_each).collect();
    let (mut own_ns, mut all_ns) = (vec![0; without.len()], 0);
    for task in trials.iter().flat_map(|trial| &trial.tasks) {
        all_ns += task.cpu_time_ns;
        if let Some(index) = owners.get(workload.template_name(&task.name)) {
            own_ns[*index] += task.cpu_time_ns;
        }
    }
    // The first one of equals.
    let longest = (0..without.len()).rev().max_by_key(|index| own_ns[*index])?;
    let share = if all_ns > 0 { own_ns.iter().sum::<u64>() as f64 / all_ns as f64 } else { 1.0 };
    Some(Unprofiled { process: without[longest].process, share })
}

/// Threads without a profile that are too few to decide, where a scheduler keeps them together.
pub(super) fn small_part_without_profile(
    experiment: &Experiment,
    record: &ExperimentRecord,
    schedulers: &[SchedulerResult],
    trials: &[Vec<Trial>],
) -> Option<String> {
    if !experiment.place.kind().simulated || record.options.memory == MemoryChoice::None {
        return None;
    }
    let base = trials.get(record.baseline_index().unwrap_or(0))?;
    let acting = schedulers.iter().enumerate().filter(|(index, of)| acts_on_caches(experiment, *index, of));
    let mut unprofiled =
        acting.filter_map(|(index, _)| gathered_without_profile(&experiment.workload_of(index).value, base));
    unprofiled.find(|of| !of.decides()).map(|of| {
        format!(
            "what threads of {} do to caches is not known, as they have no memory profile: they and others like them had {} of the CPU time",
            of.process,
            percent(of.share)
        )
    })
}

fn touches_memory(workload: &Workload, task: &Task) -> bool {
    let of_phases = task.phase_profiles.iter().filter_map(|(_, name)| workload.profile_called(name));
    workload.profile_of(task).into_iter().chain(of_phases).any(Profile::touches_memory)
}

/// Tasks that were left waiting in the middle trial.
pub(super) fn left_waiting(scheduler: &SchedulerResult) -> f64 {
    scheduler.measures.get(NEVER_RAN_AGAIN).and_then(|result| result.summary.median).unwrap_or(0.0)
}

/// Whether a scheduler keeps threads together on the machine of its column: cache-aware scheduling that is on, and has LLCs to choose between.
fn acts_on_caches(experiment: &Experiment, index: usize, scheduler: &SchedulerResult) -> bool {
    let is_on = |spec: &SchedulerSpec| spec.resolved().iter().all(|(name, value)| *name != ENABLED || *value != 0);
    let gathers = SchedulerSpec::parse(&scheduler.label).is_ok_and(|spec| spec.info().is_cache_aware && is_on(&spec));
    gathers && experiment.machine_of(index).value.llc_count() > 1
}

/// The tunable that turns cache-aware scheduling off (Linux 7.2, debugfs `sched/llc_balancing/enabled`).
const ENABLED: &str = "enabled";

/// What measures begin with that are times of the kernel's, or of CPUs.
const NOT_OF_TASKS: [&str; 4] = ["overhead_", "violation_", "idle_", "placement_"];

/// Whether a measure depends on how fast memory is: times of tasks, and rates of what programs do.
fn is_of_time(measure: &Measure) -> bool {
    let is_of_tasks = !NOT_OF_TASKS.iter().any(|prefix| measure.name.starts_with(prefix));
    measure.unit == Unit::Ns && is_of_tasks || measure.name.starts_with("recorder_") && measure.unit == Unit::PerS
}

#[cfg(test)]
mod tests {
    use super::super::tests::{conclude, record};
    use super::*;
    use crate::trial::tests::trial;

    /// One task left in half of the trials is 0.5 in the middle, and not "0 of them". While the first turns last, nothing says that others are passed over.
    #[test]
    fn what_starves_in_half_of_the_trials_or_before_any_turn_ends_is_said_so() {
        let document = |turns: f64| {
            let side = |label: &str, own: f64| -> Vec<Trial> {
                let of = |number: usize| {
                    let left = own * f64::from(u8::from(number >= 5));
                    let measures = [("wakeup_mean_ns", 5e4), ("never_ran_again", left), ("slices", turns)];
                    trial(label, number, &measures.map(|(name, value)| (name, Some(value))))
                };
                (0..10).map(of).collect()
            };
            let record = ExperimentRecord { metric: Some("wakeup_mean_ns".into()), ..record(&["eevdf", "cfs"], 10) };
            conclude(&record, &[side("eevdf", 0.0), side("cfs", 1.0)]).unwrap()
        };
        let said = document(0.0);
        let words =
            "cfs starves tasks, whatever its wakeup mean: one of them never ran again in half of the trials, more";
        assert!(said.verdict.sentence.contains(words), "{}", said.verdict.sentence);
        let is_of_turns = |words: &&String| words.starts_with("no turn had ended under cfs");
        assert_eq!(said.conditions.iter().filter(is_of_turns).count(), 1, "{:?}", said.conditions);
        assert_eq!(document(7.0).conditions.iter().find(is_of_turns), None);
    }
}
