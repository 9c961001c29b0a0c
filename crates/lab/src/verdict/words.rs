//! The verdict as a sentence.

use warmcore_statistics::{Better, Comparison, Design, TrialsApart, Verdict};

use super::answerable::left_waiting;
use super::{Conclusion, Finding, MeasureResult, Replaced, SchedulerResult, decimal, interval_ends, percent};
use super::{least_shown, ratio_and_ends, spread, within};
use crate::measures::{Measure, resolution};
use crate::units::with_unit;

/// What a sentence is about, and how it was found.
pub(super) struct Basis<'a> {
    pub primary: &'a Measure,
    pub replaced: Option<&'a Replaced>,
    /// Labels of schedulers under which quotas of their workload do not hold.
    pub unkept: &'a [String],
    /// A process whose threads are gathered for what no memory profile says, if memory is modelled at all.
    pub unprofiled: Option<&'a str>,
    pub margin: f64,
    pub design: Design,
    pub trials: usize,
}

/// A scheduler that is compared with the baseline.
struct Contender<'a> {
    label: &'a str,
    /// Tasks that never ran again in the middle trial.
    left_waiting: f64,
    /// Trials of the baseline that have a value.
    base_values: usize,
    /// Whether the baseline's value in the middle is nearly zero.
    base_is_nothing: bool,
    result: &'a MeasureResult,
    comparison: &'a Comparison,
    finding: Finding,
    is_yardstick: bool,
}

/// The verdict on the primary measure.
pub(super) fn conclusion(basis: &Basis<'_>, schedulers: &[SchedulerResult], baseline: usize) -> Conclusion {
    let (primary, base) = (basis.primary, &schedulers[baseline].label);
    let of_base = &schedulers[baseline].measures[&primary.name].summary;
    let (base_values, base_is_nothing) = (of_base.n, of_base.median.is_some_and(|median| median < primary.least));
    let others: Vec<Contender<'_>> = schedulers
        .iter()
        .filter_map(|scheduler| {
            let result = &scheduler.measures[&primary.name];
            let (comparison, finding) = (result.comparison.as_ref()?, result.finding?);
            let (label, is_yardstick) = (&scheduler.label, scheduler.is_yardstick);
            let left_waiting = left_waiting(scheduler);
            Some(Contender {
                label,
                left_waiting,
                base_values,
                base_is_nothing,
                result,
                comparison,
                finding,
                is_yardstick,
            })
        })
        .collect();
    if others.is_empty() {
        let sentence = format!("{base} is the only scheduler: there is nothing to compare it with.");
        return Conclusion { best: None, sentence };
    }
    let real = || others.iter().filter(|other| !other.is_yardstick);
    let better = || real().filter(|other| other.finding == Finding::Better);
    let best = better().min_by(|a, b| gain(a).total_cmp(&gain(b)));
    let is_best = !schedulers[baseline].is_yardstick
        && real().count() > 0
        && real().all(|other| matches!(other.finding, Finding::Worse | Finding::Starves));
    let (memory, quotas) = (not_answerable(basis, &others, base, false), not_answerable(basis, &others, base, true));
    let mut parts: Vec<String> = memory.into_iter().chain(quotas).collect();
    match best {
        Some(best) => {
            let as_good: Vec<&str> = better()
                .filter(|other| {
                    other.label != best.label && gain(other) <= gain(best) + basis.margin * gain(best).abs()
                })
                .map(|other| other.label)
                .collect();
            let others_as_good = match as_good.as_slice() {
                [] => String::new(),
                others => {
                    format!(", with {} as good within the margin of {}", listed(others), percent(basis.margin))
                }
            };
            parts.push(format!("{} is best{others_as_good}: {}", best.label, relation(primary, best, base)));
        }
        None if is_best => parts.push(format!("{base} is best")),
        None => {}
    }
    let rest = others.iter().filter(|other| best.is_none_or(|best| best.label != other.label));
    let rest: Vec<&Contender<'_>> = rest.filter(|other| other.finding != Finding::NotAnswerable).collect();
    for other in &rest {
        let alike: Vec<&str> = rest.iter().filter(|one| is_alike(one, other)).map(|one| one.label).collect();
        match alike.as_slice() {
            [first, _, _, ..] if *first == other.label => parts.push(of_several(basis, other.finding, &alike, base)),
            [_, _, _, ..] => {}
            _ => parts.push(about(basis, other, base)),
        }
    }
    let replaced = basis.replaced.map_or_else(String::new, |replaced| format!("{}. ", replaced.reason));
    let sentence = format!("{replaced}{}; {}.", begun(&parts.join("; ")), closing(primary, basis.design, basis.trials));
    let best = best.map(|best| best.label.to_owned()).or_else(|| is_best.then(|| base.clone()));
    Conclusion { best, sentence }
}

/// A sentence with a capital letter, unless it begins with the name of a scheduler.
fn begun(text: &str) -> String {
    ["it is unclear", "the run cannot say"]
        .into_iter()
        .find_map(|start| Some((start, text.strip_prefix(start)?)))
        .map_or_else(|| text.to_owned(), |(start, rest)| start[..1].to_uppercase() + &start[1..] + rest)
}

/// What comes before any number: comparisons that the run has no answer for, and what would have one.
fn not_answerable(basis: &Basis<'_>, others: &[Contender<'_>], base: &str, for_quotas: bool) -> Option<String> {
    let title = &basis.primary.title;
    let unkept = |label: &str| basis.unkept.iter().any(|unkept| unkept == label);
    let by_quotas = |label: &str| unkept(label) != unkept(base);
    let names: Vec<&str> = others
        .iter()
        .filter(|other| other.finding == Finding::NotAnswerable && by_quotas(other.label) == for_quotas)
        .map(|other| other.label)
        .collect();
    if names.is_empty() {
        return None;
    }
    let who = listed(&names);
    if for_quotas {
        let without = if unkept(base) { base } else { &who };
        return Some(format!(
            "the run cannot say how {who} and {base} compare in {title}: the workload's quotas do not hold under {without}"
        ));
    }
    let why = match basis.unprofiled {
        Some(process) => format!("the threads of {process} have no memory profile"),
        None => "its memory has constant speed".to_owned(),
    };
    Some(format!(
        "the run cannot say how {who} and {base} compare in {title}: {why}. Cache-aware scheduling keeps threads together for the data in \
         caches, so it is judged with memory profiles (--assume-profile NAME, or --profiles FILE)"
    ))
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

/// Whether the same is said about two schedulers that do not differ from the baseline.
fn is_alike(one: &Contender<'_>, other: &Contender<'_>) -> bool {
    let has_ratio = |of: &Contender<'_>| of.comparison.ratio.is_some();
    match (one.finding, other.finding) {
        (Finding::Identical, Finding::Identical) => true,
        (Finding::Tied, Finding::Tied) => has_ratio(one) && has_ratio(other),
        _ => false,
    }
}

/// What is said about schedulers that are alike; the table has the interval of each.
fn of_several(basis: &Basis<'_>, finding: Finding, labels: &[&str], base: &str) -> String {
    let (who, title) = (listed(labels), &basis.primary.title);
    match finding {
        Finding::Tied => {
            format!("{who} are tied with {base} in {title}, within the margin of {}", percent(basis.margin))
        }
        _ => format!("{who} are identical to {base} in {title}"),
    }
}

/// A smallest effect that is no help to anybody, as a ratio.
const HOPELESS: f64 = 10.0;

/// What is said about a scheduler that is not the best one.
fn about(basis: &Basis<'_>, other: &Contender<'_>, base: &str) -> String {
    let Basis { primary, margin, trials, .. } = *basis;
    let Contender { label, comparison, is_yardstick, .. } = *other;
    let title = &primary.title;
    let yardstick = if is_yardstick { ", a yardstick and no kernel's scheduler," } else { "" };
    match other.finding {
        Finding::NotMeasurable if other.base_values == 0 || other.result.summary.n == 0 => {
            let lacks = match (other.base_values, other.result.summary.n) {
                (0, 0) => "neither has a".to_owned(),
                (0, _) => format!("{base} has no"),
                _ => format!("{label} has no"),
            };
            format!("{label} cannot be compared with {base} in {title}: {lacks} value of it{}", primary.needs())
        }
        Finding::TooFewTrials => {
            let few = if trials == 1 { "1 trial is".to_owned() } else { format!("{trials} trials are") };
            format!("{few} too few to judge {label}: {}", relation(primary, other, base))
        }
        Finding::Identical => format!("{label} and {base} are identical in {title}"),
        Finding::Tied if comparison.ratio.is_none() => {
            format!("{label} and {base} are tied in {title}, which is nearly zero under both")
        }
        Finding::Tied => {
            format!(
                "{label} and {base} are tied in {title}, within the margin of {}{}",
                percent(margin),
                interval(comparison)
            )
        }
        Finding::Unclear if other.result.apart.is_some() => {
            let apart = other.result.apart.map_or_else(String::new, |apart| apart_in_words(&apart, base));
            format!(
                "it is unclear whether {label} and {base} differ in {title}: their medians are within the margin of {}{}, but {apart}",
                percent(margin),
                interval(comparison)
            )
        }
        Finding::Unclear if comparison.verdict != Verdict::NoDifferenceShown => format!(
            "it is unclear whether {label} and {base} differ in {title} by more than the margin of {}{}{}",
            percent(margin),
            interval(comparison),
            of_buckets(primary, comparison, margin)
        ),
        Finding::Unclear => {
            let would_have_been = match comparison.smallest_effect.filter(|effect| *effect > 1.0 + margin) {
                Some(effect) if effect > HOPELESS => {
                    let trials = trials_in_words(basis.design, trials);
                    format!(": with {trials} even a tenfold change would go undetected")
                }
                Some(effect) => {
                    let trials = trials_in_words(basis.design, trials);
                    format!("; {trials} would have shown a change of {}", percent(effect - 1.0))
                }
                None => String::new(),
            };
            format!(
                "it is unclear whether {label} and {base} differ in {title}: no difference is shown{would_have_been}"
            )
        }
        Finding::Null => format!(
            "{base} differs from itself by up to {}, and less counts as no difference",
            percent(spread(comparison) - 1.0)
        ),
        Finding::NotAnswerable => format!("{label} and {base} cannot be compared in {title} here"),
        Finding::Starves => {
            // The middle of an even number of trials may lie between none and one.
            let left = match other.left_waiting {
                less if less < 1.0 => "one of them never ran again in half of the trials".to_owned(),
                left => format!("{left:.0} of them never ran again in the median trial"),
            };
            format!("{label} starves tasks, whatever its {title}: {left}, more than under {base}")
        }
        Finding::NotMeasurable if primary.until_end => {
            format!("{label} cannot be compared with {base} in {title}: under neither did that end come in all trials")
        }
        Finding::NotMeasurable if !other.base_is_nothing => {
            format!("{label} cannot be compared with {base} in {title}, which is of too few events there")
        }
        Finding::NotMeasurable => {
            format!("{label} cannot be compared with {base} in {title}, which is nearly zero there")
        }
        finding @ (Finding::Better | Finding::Worse | Finding::Different) => {
            format!("{label}{yardstick} is {}: {}", finding.words(), relation(primary, other, base))
        }
    }
}

/// A number that is smaller for a better comparison. What is better without a ratio is nearly zero, or the baseline is: then there are no
/// ratios, and values are compared.
fn gain(contender: &Contender<'_>) -> f64 {
    let is_higher = contender.comparison.better == Better::Higher;
    match contender.comparison.ratio {
        Some(ratio) if is_higher => -ratio,
        Some(ratio) => ratio,
        None if is_higher => -contender.result.summary.median.unwrap_or(0.0),
        None => f64::NEG_INFINITY,
    }
}

/// `elapsed time 0.83 times that of cfs (95 % interval 0.81 to 0.85)`.
fn relation(primary: &Measure, other: &Contender<'_>, base: &str) -> String {
    let Contender { comparison, result, .. } = other;
    let Some(ratio) = comparison.ratio else {
        return match result.summary.median.filter(|median| median.is_finite()) {
            Some(median) => format!(
                "{} is {}, which has no ratio to that of {base}, as one of them is nearly zero or has no end",
                primary.title,
                with_unit(median, primary.unit)
            ),
            None => format!("{} has no ratio to that of {base}, as one of them has no end", primary.title),
        };
    };
    let Some(interval) = comparison.interval else {
        return format!("{} {} times that of {base}", primary.title, decimal(ratio));
    };
    let [ratio, low, high] = ratio_and_ends(ratio, interval);
    format!("{} {ratio} times that of {base} (95 % interval {low} to {high})", primary.title)
}

/// `in 34 of 100 trials it is 0.5 times that of cfs`.
fn apart_in_words(apart: &TrialsApart, base: &str) -> String {
    let TrialsApart { trials, of, ratio, of_baseline } = *apart;
    let whose = if of_baseline { format!(" of {base}") } else { String::new() };
    let to = if of_baseline { "the median one".to_owned() } else { format!("that of {base}") };
    match ratio.is_finite() && ratio > 0.0 {
        true => format!("in {trials} of {of} trials{whose} it is {} times {to}", decimal(ratio)),
        false => format!("in {trials} of {of} trials{whose} it has no ratio to {to}"),
    }
}

fn interval(comparison: &Comparison) -> String {
    let Some(interval) = comparison.interval else { return String::new() };
    let [low, high] = match comparison.ratio {
        Some(ratio) => {
            let [_, low, high] = ratio_and_ends(ratio, interval);
            [low, high]
        }
        None => interval_ends(interval),
    };
    format!(" (95 % interval {low} to {high})")
}

/// Why a percentile whose ratio is beyond the margin is not shown to differ by that.
fn of_buckets(primary: &Measure, comparison: &Comparison, margin: f64) -> String {
    let far = comparison.ratio.map_or(1.0, |ratio| ratio.max(1.0 / ratio));
    match !within(far, margin) && far <= least_shown(primary, margin) {
        true => {
            format!(": percentiles are edges of buckets up to {:.1} % wide", 100.0 * (resolution(&primary.name) - 1.0))
        }
        false => String::new(),
    }
}

/// How many trials, and how they belong together: "10 paired trials".
pub fn trials_in_words(design: Design, trials: usize) -> String {
    format!("{trials} {} trial{}", design.word(), if trials == 1 { "" } else { "s" })
}

fn closing(primary: &Measure, design: Design, trials: usize) -> String {
    let direction = match primary.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::Neither => "neither direction is better in itself",
    };
    format!("{}, {direction}", trials_in_words(design, trials))
}
