//! What explains the difference of a scheduler to the baseline: the number that the verdict is about, cause by cause.
//!
//! - An elapsed time is that of the thread that ended last, from the start of the run to its exit. Where it waited for other threads, the
//!   causes are those of the path that leads to its end across threads ([`CriticalPath`]): since the last handover its time on CPUs is that of
//!   the thread itself and divided as this thread's is, before that as that of all threads is; where it depended on none, its own.
//! - Work done is explained by task time per work of all threads, every cause counted: where each thread lives as long as the run,
//!   more work is less task time per work.
//! - Other metrics are no sums of times. Task time per work stands beside them, and the sentence says that it does not explain them;
//!   sleeping and waiting for other tasks then follow from what those others do and explain nothing.
//!
//! The first two are about one pair of trials, the one whose ratio is the middle one, which is what the verdict's ratio is.

use std::collections::BTreeMap;

use serde::Serialize;
use warmcore_statistics::{Better, Design, compare_trials};

use super::{
    CAUSES, CONSEQUENCES, Cause, CriticalPath, LAST_THREAD_CAUSES, NO_GAP, OFF_CPU, ON_CPU, SchedulerSplit, per_work,
};
use crate::jobs::JOBS;
use crate::measures::{ELAPSED, HACKBENCH, Measure, WORK};
use crate::trial::{LastThread, Trial, TrialEnd};
use crate::units::duration;
use crate::verdict::{Finding, MeasureResult, percent};

/// What the gaps of a comparison are differences of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Explains {
    /// Of elapsed time: nanoseconds of the thread that ended last.
    LastThread,
    /// Of elapsed time: nanoseconds of the path across threads that leads to the end of the one that ended last.
    CriticalPath,
    /// Of work done: task time per work, in the middle pair of trials.
    Work,
    /// Of no metric: task time per work or per run without waiting and sleeping, the mean over the trials.
    TaskTime,
}

impl Explains {
    /// What explains this metric, as far as the trials tell.
    pub(super) fn of(metric: &str, trials: &[Vec<Trial>], works: bool) -> Self {
        let mut all = trials.iter().flatten();
        match metric {
            ELAPSED | HACKBENCH | JOBS if all.all(|trial| trial.last_thread.is_some()) => {
                let paths = || trials.iter().flatten().map(|trial| trial.last_thread.as_ref()?.path.as_ref());
                let crosses = paths().flatten().any(|path| path.handovers > 0);
                if crosses && paths().all(|path| path.is_some()) { Self::CriticalPath } else { Self::LastThread }
            }
            WORK if works => Self::Work,
            _ => Self::TaskTime,
        }
    }
}

/// What explains the difference of a scheduler to the baseline.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Gap {
    /// The scheduler.
    pub label: String,
    /// Numbers of the trials it is about, the baseline's first; absent for the mean over all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<[usize; 2]>,
    /// The metric in these, as a ratio to the baseline's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The difference that is explained; below 0 if it needs less than the baseline.
    pub difference: f64,
    /// The causes, those that explain most first.
    pub lines: Vec<GapLine>,
    /// In words.
    pub sentence: String,
}

impl Gap {
    /// Whether a difference is shown, so that there is one to explain.
    pub fn explains(&self) -> bool {
        self.lines.iter().any(|line| line.share.is_some())
    }
}

/// What one cause explains.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GapLine {
    /// Name of the cause.
    pub name: &'static str,
    /// Its difference to the baseline.
    pub difference: f64,
    /// That as a share of the gap; absent for what explains nothing, and where the schedulers do not differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// A scheduler beside the baseline.
pub(super) struct Pair<'a> {
    pub own: &'a SchedulerSplit,
    pub base: &'a SchedulerSplit,
    pub own_trials: &'a [Trial],
    pub base_trials: &'a [Trial],
}

/// The verdict's own view of a pair.
pub(super) struct Judged<'a> {
    pub metric: &'a Measure,
    pub own: &'a MeasureResult,
    pub base: &'a MeasureResult,
    pub design: Design,
}

/// The gap of a scheduler.
pub(super) fn explain<'a>(explains: Explains, pair: &Pair<'a>, judged: &Judged<'_>) -> Option<Gap> {
    if explains == Explains::TaskTime {
        return None;
    }
    let [of_base, of_own] = middle(judged)?;
    let (base, own) = (&pair.base_trials[of_base], &pair.own_trials[of_own]);
    let (base_value, own_value) = (judged.base.points[of_base]?, judged.own.points[of_own]?);
    let ratio = own_value / base_value;
    let next_to_nothing = (ratio - 1.0).abs() <= NO_GAP;
    let tie =
        nothing_shown(judged.own.finding, false).or_else(|| next_to_nothing.then_some("differ by next to nothing"));
    let (causes, difference) = match explains {
        Explains::LastThread | Explains::CriticalPath => {
            let uncounted = [(base, base_value), (own, own_value)].map(|(trial, value)| until_last_exit(trial) - value);
            let spent = |trial: &'a Trial| {
                let last = trial.last_thread.as_ref()?;
                Some(match explains {
                    Explains::CriticalPath => divided(last.path.as_ref()?, last, trial),
                    _ => last.spent_ns.clone(),
                })
            };
            of_elapsed(&spent(base)?, &spent(own)?, uncounted)
        }
        Explains::Work | Explains::TaskTime => {
            let (own, base) = (per_work(own, own_value)?, per_work(base, base_value)?);
            of_causes(CAUSES.iter().zip(own.iter().zip(&base).map(|(own, base)| own - base)))
        }
    };
    let lines = lines(&causes, |_| tie.is_none().then_some(difference));
    let (label, base_label, title) = (&pair.own.label, &pair.base.label, &judged.metric.title);
    let trials = match of_base == of_own {
        true => format!("in trial {of_own}, the median one"),
        false => format!("in trial {of_own}, the median one, compared with trial {of_base} of {base_label}"),
    };
    let sentence = match (tie, explains) {
        (Some(tie), _) => format!("{label} and {base_label} {tie} in {title}: {}", why_unexplained(judged.own.finding)),
        (None, Explains::LastThread | Explains::CriticalPath) => {
            let (own, base) = (own.last_thread.as_ref()?, base.last_thread.as_ref()?);
            let whose = match (&own.path, &base.path) {
                (Some(own), Some(base)) if explains == Explains::CriticalPath => format!(
                    "The critical path has {} handover{} (under {base_label} {}){}: of the difference",
                    own.handovers,
                    if own.handovers == 1 { "" } else { "s" },
                    base.handovers,
                    if is_average([own, base], &lines) { AVERAGED } else { "" }
                ),
                _ => "Of the difference in its time".into(),
            };
            format!(
                "{label} takes {} {} than {base_label} {trials}: {}, not {}. {} ended last there (under {base_label} {}). {whose} {}. {}",
                percent((ratio - 1.0).abs()),
                if ratio < 1.0 { "less" } else { "longer" },
                duration(own_value),
                duration(base_value),
                own.task,
                base.task,
                listed(&lines, GapTerm::Times),
                over_all_threads(pair, ratio < 1.0),
            )
        }
        (None, _) => format!(
            "{label} does {} {} work than {base_label} {trials}. The difference in task time per work: {}{}",
            percent((ratio - 1.0).abs()),
            if ratio < 1.0 { "less" } else { "more" },
            listed(&lines, GapTerm::Shares { of: pair.base.per_work.unwrap_or(pair.base.task_time_ns) }),
            lifetimes(own, base),
        ),
    };
    Some(Gap { label: label.clone(), trials: Some([of_base, of_own]), ratio: Some(ratio), difference, lines, sentence })
}

/// How schedulers compare between whom no difference is shown: what is not shown is not explained. `lacks`: one of the two has no value.
fn nothing_shown(finding: Option<Finding>, lacks: bool) -> Option<&'static str> {
    Some(match finding? {
        Finding::NotMeasurable if lacks => "cannot be compared",
        Finding::Identical => "are identical",
        Finding::Tied => "are tied",
        Finding::Unclear | Finding::NotMeasurable | Finding::Null => "are not shown to differ by more than the margin",
        Finding::TooFewTrials => "are not shown to differ",
        Finding::NotAnswerable | Finding::Starves => "cannot be compared",
        Finding::Better | Finding::Worse | Finding::Different => return None,
    })
}

/// Why a difference that is not shown is not explained.
fn why_unexplained(finding: Option<Finding>) -> &'static str {
    match finding {
        Some(Finding::TooFewTrials) => "too few trials to say; the table shows what was measured",
        _ => "there is no difference to explain",
    }
}

/// Numbers of the trials whose ratio is nearest to the middle one of all, the baseline's first.
fn middle(judged: &Judged<'_>) -> Option<[usize; 2]> {
    let positive = |value: &Option<f64>| value.filter(|value| *value > 0.0 && value.is_finite());
    let nearest = |logs: &[(usize, f64)]| {
        let mut sorted: Vec<f64> = logs.iter().map(|(_, log)| *log).collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let middle = if count == 0 { return None } else { (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0 };
        // Of two as near as each other the one on the side of the middle: it must not contradict it.
        let distance = |log: f64| ((log - middle).abs(), f64::from(u8::from(log * middle < 0.0)));
        let by = |a: &&(usize, f64), b: &&(usize, f64)| {
            let (a, b) = (distance(a.1), distance(b.1));
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        };
        logs.iter().min_by(by).map(|(index, _)| *index)
    };
    let log = warmcore_memory::math::ln;
    let of = |points: &[Option<f64>]| -> Vec<(usize, f64)> {
        points.iter().enumerate().filter_map(|(index, value)| Some((index, log(positive(value)?)))).collect()
    };
    match judged.design {
        Design::Paired | Design::Blocked => {
            let pairs = judged.base.points.iter().zip(&judged.own.points).enumerate();
            let logs: Vec<(usize, f64)> = pairs
                .filter_map(|(index, (base, own))| Some((index, log(positive(own)?) - log(positive(base)?))))
                .collect();
            nearest(&logs).map(|index| [index, index])
        }
        Design::Unpaired => Some([nearest(&of(&judged.base.points))?, nearest(&of(&judged.own.points))?]),
    }
}

/// The times of a path, its time on CPUs by cause: what came after the last handover as the thread itself divides its own, the rest as all
/// threads of the trial divide theirs, since events do not tell what a thread did in a part of its time.
fn divided(path: &CriticalPath, last: &LastThread, trial: &Trial) -> BTreeMap<String, f64> {
    let mut divided_ns = path.spent_ns.clone();
    let on_cpu = |(name, ns): &(&str, f64)| is_on_cpu(name) && *ns > 0.0;
    let all = CAUSES.iter().map(|cause| (cause.name, trial.time_of(cause.name).unwrap_or(0.0)));
    let all: Vec<(&str, f64)> = all.filter(on_cpu).collect();
    if all.is_empty() {
        return divided_ns;
    }
    // What the kernel's part of a thread's time was is known of all threads together.
    let kernel: Vec<(&str, f64)> = all.iter().copied().filter(|(name, _)| OF_KERNEL.contains(name)).collect();
    let kernel_ns: f64 = kernel.iter().map(|(_, ns)| ns).sum();
    let own = last.spent_ns.iter().map(|(name, ns)| (name.as_str(), *ns)).filter(on_cpu);
    let own: Vec<(&str, f64)> = own
        .flat_map(|(name, ns)| match name == "kernel" && kernel_ns > 0.0 {
            true => kernel.iter().map(|(part, of)| (*part, ns * of / kernel_ns)).collect::<Vec<_>>(),
            false => vec![(name, ns)],
        })
        .collect();
    let on_cpu_ns = divided_ns.remove(ON_CPU).unwrap_or(0.0);
    let own_ns = if own.is_empty() { 0.0 } else { path.own_cpu_ns.min(on_cpu_ns) };
    for (part_ns, of) in [(own_ns, own), (on_cpu_ns - own_ns, all)] {
        let sum: f64 = of.iter().map(|(_, ns)| ns).sum();
        for (name, ns) in of.into_iter().filter(|_| part_ns > 0.0) {
            *divided_ns.entry(name.to_owned()).or_default() += part_ns * ns / sum;
        }
    }
    divided_ns
}

/// Causes that are the `kernel` of one thread.
const OF_KERNEL: [&str; 3] = ["cold_caches", "syscalls", "scheduler"];

/// Whether a cause is time on a CPU.
fn is_on_cpu(name: &str) -> bool {
    !OFF_CPU.contains(&name) && !["not_created", "uncounted"].contains(&name)
}

/// Part of a path's time on CPUs that is the last thread's own where what the others do on theirs hardly matters.
const MOSTLY_OWN: f64 = 0.95;

/// What a sentence says of a path whose time on CPUs is for the most part divided as that of all threads.
const AVERAGED: &str = ", and its CPU time is divided as that of all threads is on average";

/// Whether a cause on a CPU is among those that explain, and the path's time there is not for the most part the last thread's own.
fn is_average(paths: [&CriticalPath; 2], lines: &[GapLine]) -> bool {
    let is_of_others = |path: &CriticalPath| {
        let on_cpu_ns = path.spent_ns.get(ON_CPU).copied().unwrap_or(0.0);
        path.own_cpu_ns < MOSTLY_OWN * on_cpu_ns
    };
    let is_told = |line: &GapLine| is_on_cpu(line.name) && line.share.is_some_and(|share| share.abs() >= LEAST_SHARE);
    paths.into_iter().any(is_of_others) && lines.iter().any(is_told)
}

/// Differences of what the way to the end was spent on, and their sum: that of the metric, which may begin after the run does.
fn of_elapsed(
    base: &BTreeMap<String, f64>,
    own: &BTreeMap<String, f64>,
    [base_before, own_before]: [f64; 2],
) -> (Vec<(&'static Cause, f64)>, f64) {
    let ns = |of: &BTreeMap<String, f64>, cause: &Cause| of.get(cause.name).copied().unwrap_or(0.0);
    let all = CAUSES.iter().chain(&LAST_THREAD_CAUSES);
    of_causes(all.map(|cause| {
        let before = if cause.name == "uncounted" { own_before - base_before } else { 0.0 };
        (cause, ns(own, cause) - ns(base, cause) - before)
    }))
}

fn of_causes(causes: impl Iterator<Item = (&'static Cause, f64)>) -> (Vec<(&'static Cause, f64)>, f64) {
    let causes: Vec<_> = causes.filter(|(_, difference)| *difference != 0.0).collect();
    let sum = causes.iter().map(|(_, difference)| difference).sum();
    (causes, sum)
}

/// Lines of causes, those with the largest share first; `gap_of` gives what a cause's difference is a share of.
fn lines(causes: &[(&'static Cause, f64)], gap_of: impl Fn(&Cause) -> Option<f64>) -> Vec<GapLine> {
    let line = |(cause, difference): &(&'static Cause, f64)| GapLine {
        name: cause.name,
        difference: *difference,
        share: gap_of(cause).map(|gap| difference / gap).filter(|share| share.is_finite()),
    };
    let mut lines: Vec<GapLine> = causes.iter().map(line).collect();
    // The sort is stable, so equal shares stay in the order of tables.
    let weight = |line: &GapLine| line.share.unwrap_or(f64::NEG_INFINITY);
    lines.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    lines
}

/// Title of a cause by its name.
pub fn cause_title(name: &str) -> &'static str {
    CAUSES.iter().chain(&LAST_THREAD_CAUSES).find(|cause| cause.name == name).map_or("", |cause| cause.title)
}

/// Least share of a gap that a sentence names.
const LEAST_SHARE: f64 = 0.05;

/// The largest share of a gap that a sentence gives as one: of a small gap between large causes it says nothing that the times do not.
const MOST_SHARE: f64 = 2.0;

/// What a gap is told in.
#[derive(Clone, Copy)]
enum GapTerm {
    /// Times, with shares of it.
    Times,
    /// Shares of it. A small gap between large causes: points of this much task time.
    Shares { of: f64 },
}

/// The largest shares of a gap in words. Where they are more than the whole, also what offsets them.
fn listed(lines: &[GapLine], told: GapTerm) -> String {
    let shares = || lines.iter().filter_map(|line| Some((line, line.share?)));
    let is_small = shares().any(|(_, share)| share.abs() > MOST_SHARE);
    let much = |(line, share): &(&GapLine, f64)| match told {
        GapTerm::Times if share.abs() > MOST_SHARE => duration(line.difference.abs()),
        GapTerm::Times => format!("{} ({})", duration(line.difference.abs()), percent(share.abs())),
        GapTerm::Shares { of } if is_small => format!("{:.1} points", line.difference.abs() / of * 100.0),
        GapTerm::Shares { .. } => percent(share.abs()),
    };
    let top: Vec<(&GapLine, f64)> = shares().filter(|(_, share)| *share >= LEAST_SHARE).take(3).collect();
    let verb = if is_small && matches!(told, GapTerm::Shares { .. }) { "are" } else { "is" };
    let say = |cause: &(&GapLine, f64)| format!("{} {verb} {}", much(cause), cause_title(cause.0.name));
    let mut text = top.iter().map(say).collect::<Vec<_>>().join(", ");
    if top.iter().map(|(_, share)| share).sum::<f64>() > 1.005 {
        let mut against: Vec<(&GapLine, f64)> = shares().filter(|(_, share)| *share < 0.0).collect();
        against.sort_by(|a, b| a.1.total_cmp(&b.1));
        let large = against.iter().filter(|(_, share)| *share <= -LEAST_SHARE).count();
        against.truncate(large.clamp(1, 3));
        let say = |cause: &(&GapLine, f64)| format!("{} of {}", much(cause), cause_title(cause.0.name));
        let mut against: Vec<String> = against.iter().map(say).collect();
        let last = against.pop().unwrap_or_default();
        let before = if against.is_empty() { String::new() } else { format!("{} and ", against.join(", ")) };
        text.push_str(&format!(", offset by {before}{last}"));
    }
    text
}

/// How the sum over all threads goes with the end of the last one.
fn over_all_threads(pair: &Pair<'_>, less: bool) -> String {
    let (own, base, per) = match pair.own.per_work.zip(pair.base.per_work) {
        Some((own, base)) => (own, base, " per work"),
        None => (pair.own.task_time_ns, pair.base.task_time_ns, ""),
    };
    let ratio = own / base;
    if (ratio - 1.0).abs() <= NO_GAP {
        return format!("All threads together need the same task time{per}");
    }
    let way = if ratio < 1.0 { "less" } else { "more" };
    let although =
        if (ratio < 1.0) == less { "All threads together also need" } else { "All threads together, however, need" };
    format!("{although} {} {way} task time{per} (mean of the trials)", percent((ratio - 1.0).abs()))
}

/// Where lifetimes differ, they too make a difference in work.
fn lifetimes(own: &Trial, base: &Trial) -> String {
    let sum = |trial: &Trial| trial.time_ns.values().sum::<f64>();
    let ratio = sum(own) / sum(base);
    if !ratio.is_finite() || (ratio - 1.0).abs() <= NO_GAP {
        return String::new();
    }
    format!("; its threads live {} {}", percent((ratio - 1.0).abs()), if ratio < 1.0 { "shorter" } else { "longer" })
}

/// Whether a cause is one of the task's own time, and not what others do or the clock.
fn explains(cause: &Cause) -> bool {
    !CONSEQUENCES.contains(&cause.name)
}

/// The task's own time, of times by cause in the order of [`CAUSES`].
fn of_own(values: &[f64]) -> f64 {
    CAUSES.iter().zip(values).filter(|(cause, _)| explains(cause)).map(|(_, value)| value).sum()
}

/// Whether the trials show that task time differs: too few of them are what they are.
pub(super) fn task_time_differs(own: &[Trial], base: &[Trial], design: Design, works: bool) -> bool {
    let points = |trials: &[Trial]| -> Vec<Option<f64>> {
        let of = |trial: &Trial| {
            let work = if works { trial.measure(WORK)? } else { 1.0 };
            per_work(trial, work).map(|values| of_own(&values))
        };
        trials.iter().map(of).collect()
    };
    let compared = compare_trials(design, &points(base), &points(own), Better::Lower).ok();
    compared.and_then(|compared| compared.interval).is_none_or(|interval| !interval.contains(1.0))
}

/// How task time stands beside a metric.
#[derive(Clone, Copy)]
pub(super) struct TaskTime {
    /// It is counted per work, and not per run.
    pub works: bool,
    pub is_metric: bool,
}

/// What the verdict is about, and what it says of a scheduler.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    /// The metric, in words.
    pub metric: &'a str,
    pub finding: Option<Finding>,
    /// Whether the scheduler or the baseline has no value of it.
    pub lacks: bool,
}

/// The gap in task time per work (or per run), the mean over the trials: of `about` it explains nothing. `shown`: the trials show one.
pub(super) fn of_task_time(
    (label, own): (&str, &[f64]),
    (base_label, base): (&str, &[f64]),
    about: Option<About<'_>>,
    shown: bool,
    TaskTime { works, is_metric }: TaskTime,
) -> Gap {
    let (base_sum, difference) = (of_own(base), of_own(own) - of_own(base));
    let unshown = about.and_then(|about| Some((about, nothing_shown(about.finding, about.lacks)?)));
    let next_to_nothing = difference.abs() <= NO_GAP * base_sum;
    let differs = !next_to_nothing && shown && unshown.is_none();
    let (causes, _) = of_causes(CAUSES.iter().zip(own.iter().zip(base).map(|(own, base)| own - base)));
    let lines = lines(&causes, |cause| (differs && explains(cause)).then_some(difference));
    let per = if works { "task time per work" } else { "task time" };
    let text = if differs {
        let way = if difference < 0.0 { "less" } else { "more" };
        let much = percent((difference / base_sum).abs());
        format!(
            "{label} needs {much} {way} {per} than {base_label}, of which {}",
            listed(&lines, GapTerm::Shares { of: base_sum })
        )
    } else if next_to_nothing {
        format!("{label} and {base_label} need the same {per}")
    } else {
        format!("no difference in {per} is shown between {label} and {base_label}")
    };
    let sentence = match (unshown, about) {
        (Some((About { metric, finding, .. }, how)), _) => {
            format!("{label} and {base_label} {how} in {metric}: {}", why_unexplained(finding))
        }
        (None, Some(About { metric, .. })) if !is_metric => {
            format!("Task time, which does not explain {metric}: {text}")
        }
        (None, _) => text,
    };
    Gap { label: label.to_owned(), trials: None, ratio: None, difference, lines, sentence }
}

/// Time from the start of the run to the exit of the thread that ended last.
fn until_last_exit(trial: &Trial) -> f64 {
    match (&trial.last_thread, trial.end) {
        (Some(last), TrialEnd::Stopped | TrialEnd::TimeLimit) => last.spent_ns.values().sum(),
        _ => trial.elapsed_ns as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_between_too_few_trials_is_not_explained() {
        let times = |compute: f64| -> Vec<f64> {
            CAUSES.iter().map(|cause| if cause.name == "compute" { compute } else { 0.0 }).collect()
        };
        let (own, base) = (times(1.5), times(1.0));
        let gap_of = |finding: Finding, lacks: bool| {
            let how = TaskTime { works: true, is_metric: false };
            let about = Some(About { metric: "wakeup p99", finding: Some(finding), lacks });
            of_task_time(("cfs", own.as_slice()), ("eevdf", base.as_slice()), about, true, how)
        };
        let gap = |finding: Finding| gap_of(finding, false);
        let few = gap(Finding::TooFewTrials);
        let expected = "cfs and eevdf are not shown to differ in wakeup p99: too few trials to say; the table shows what was measured";
        assert_eq!((few.sentence.as_str(), few.explains()), (expected, false));
        assert!(gap(Finding::Tied).sentence.ends_with("are tied in wakeup p99: there is no difference to explain"));
        assert!(gap(Finding::Worse).explains());
        let lacking = gap_of(Finding::NotMeasurable, true).sentence;
        assert_eq!(lacking, "cfs and eevdf cannot be compared in wakeup p99: there is no difference to explain");
    }

    #[test]
    fn a_small_gap_between_large_causes_is_told_in_times_without_shares() {
        let line =
            |cause: usize, ms: f64| GapLine { name: CAUSES[cause].name, difference: ms * 1e6, share: Some(ms / 10.0) };
        let small = listed(&[line(0, 71.0), line(1, -61.0)], GapTerm::Times);
        assert!(small.contains("71 ms is") && small.contains("offset by 61 ms of") && !small.contains('%'), "{small}");
        let large = listed(&[line(0, 12.0), line(1, -2.0)], GapTerm::Times);
        assert!(large.contains("12 ms (120 %) is") && large.contains("offset by 2 ms (20 %) of"), "{large}");
        let several = listed(&[line(0, 19.0), line(1, -4.0), line(2, -3.0), line(3, -2.0)], GapTerm::Times);
        let of = [1, 2, 3].map(|cause| cause_title(CAUSES[cause].name));
        let expected =
            format!("offset by 4 ms (40 %) of {}, 3 ms (30 %) of {} and 2 ms (20 %) of {}", of[0], of[1], of[2]);
        assert!(several.ends_with(&expected), "{several}");
    }
}
