//! What calls of sched_ext operations call, in order: whether both places know the same sequences, and how often each is met.
//!
//! A sequence is the functions of the kernel that one call of an operation called. A guest tells it by probes (`crates/places/src/vm/calls.rs`), the
//! simulator by itself. A call that calls nothing leaves no record in a guest and is left out in both places.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_places::place::Sequence;

use super::book::Bound;
use super::judge::{Agreement, LineJudgement, Of, Pair};
use super::metric::{Measured, Metric};

/// Between an operation and what it calls, in labels.
const OF: &str = ": ";

/// Operations that are compared: those that tasks and CPUs cause while the run is watched.
const OPERATIONS: [&str; 14] = [
    "select_cpu",
    "enqueue",
    "dequeue",
    "dispatch",
    "tick",
    "runnable",
    "running",
    "stopping",
    "quiescent",
    "yield",
    "set_cpumask",
    "update_idle",
    "init_task",
    "enable",
];

/// Functions that the simulator takes for nothing, and leaves out of its record: they release, or set a frequency.
const WITHOUT_EFFECT: [&str; 4] = ["put_idle_cpumask", "put_cpumask", "cpuperf_set", "now"];

/// An operation with fewer calls than these in all runs of a place is not compared.
const FEWEST_CALLS: f64 = 20.0;

/// How often each sequence was met in a run.
pub fn call_sequences(sequences: &[Sequence]) -> Measured {
    let is_called =
        |sequence: &&Sequence| !sequence.functions.is_empty() && OPERATIONS.contains(&sequence.operation.as_str());
    let called = sequences.iter().filter(is_called);
    // Variants of one function (`___v2`) have its name, as in what a kernel records.
    let short = |name: &String| {
        let own = name.trim_start_matches('_').trim_start_matches("scx_bpf_");
        own.split("___").next().unwrap_or(own).to_owned()
    };
    let has_effect = |name: &String| !WITHOUT_EFFECT.contains(&name.as_str());
    let label = |sequence: &Sequence| {
        let functions: Vec<String> = sequence.functions.iter().map(short).filter(has_effect).collect();
        format!("{}{OF}{}", sequence.operation, functions.join(" "))
    };
    let called = called.filter(|sequence| sequence.functions.iter().map(short).any(|name| has_effect(&name)));
    let values = called.clone().map(|sequence| (label(sequence), Some(sequence.count as f64))).collect();
    Measured { values, samples: Some(called.map(|sequence| sequence.count).sum()), thin: Vec::new() }
}

/// Sums over runs, by operation and sequence.
type CallSums<'a> = BTreeMap<&'a str, BTreeMap<&'a str, f64>>;

fn counts(runs: &[Measured]) -> CallSums<'_> {
    let mut counts: CallSums<'_> = BTreeMap::new();
    for (label, value) in runs.iter().flat_map(|run| &run.values) {
        if let (Some((operation, sequence)), Some(value)) = (label.split_once(OF), value) {
            *counts.entry(operation).or_default().entry(sequence).or_default() += value;
        }
    }
    counts
}

/// Compares what was called: of [`Metric::CallSequences`] the error is the share of an operation's calls, in the place where that is larger, whose
/// sequence the other place never had; of [`Metric::CallFrequencies`] the share of its calls that would have to have another sequence for both places to
/// be equal (total variation). The values of a pair are the shares of calls whose sequence the other place has too.
pub fn judge(metric: Metric, bound: Bound, sim: &[Measured], vm: &[Measured], flaw: Option<&str>) -> LineJudgement {
    let (ours, theirs) = (counts(sim), counts(vm));
    let operations: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
    let nothing = BTreeMap::new();
    let pairs: Vec<Pair> = operations
        .into_iter()
        .filter_map(|operation| {
            let (ours, theirs) = (ours.get(operation).unwrap_or(&nothing), theirs.get(operation).unwrap_or(&nothing));
            let totals = [ours, theirs].map(|counts| counts.values().sum::<f64>());
            if totals.iter().all(|total| *total < FEWEST_CALLS) {
                return None;
            }
            let known = [shared(ours, theirs), shared(theirs, ours)];
            let error = match metric {
                Metric::CallFrequencies => variation(ours, theirs, totals),
                _ => 1.0 - known[0].min(known[1]),
            };
            let [sim, vm] = known.map(Some);
            let label = operation.to_owned();
            Some(Pair { label, sim, vm, ranges: [None, None], error: Some(error), of: Of::Median, undecided: false })
        })
        .collect();
    let error = pairs.iter().filter_map(|pair| pair.error).max_by(f64::total_cmp);
    let reason = match (vm.is_empty(), flaw, error) {
        (true, _, _) => "it was not run on a real kernel".to_owned(),
        (_, Some(flaw), _) => flaw.to_owned(),
        (_, _, None) => "no operation was called often enough".to_owned(),
        _ => String::new(),
    };
    let verdict = match (reason.is_empty(), error.is_some_and(|error| error > bound.limit())) {
        (false, _) => Agreement::NotMeasured,
        (true, true) => Agreement::Outside,
        (true, false) => Agreement::Inside,
    };
    LineJudgement { pairs, error, spread: None, verdict, reason }
}

/// Share of a place's calls whose sequence the other place has; nothing is shared by a place without calls.
fn shared(of: &BTreeMap<&str, f64>, with: &BTreeMap<&str, f64>) -> f64 {
    let total: f64 = of.values().sum();
    let known: f64 = of.iter().filter(|(sequence, _)| with.contains_key(*sequence)).map(|(_, count)| count).sum();
    if total > 0.0 { known / total } else { 0.0 }
}

fn variation(ours: &BTreeMap<&str, f64>, theirs: &BTreeMap<&str, f64>, [our_total, their_total]: [f64; 2]) -> f64 {
    let share = |counts: &BTreeMap<&str, f64>, sequence: &str, total: f64| {
        counts.get(sequence).map_or(0.0, |count| count / total.max(1.0))
    };
    let sequences: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
    let distance = |sequence: &str| (share(ours, sequence, our_total) - share(theirs, sequence, their_total)).abs();
    sequences.into_iter().map(distance).sum::<f64>() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(counts: &[(&str, &[&str], u64)]) -> Measured {
        let sequence = |&(operation, functions, count): &(&str, &[&str], u64)| Sequence {
            operation: operation.into(),
            functions: functions.iter().map(|&name| name.into()).collect(),
            count,
        };
        call_sequences(&counts.iter().map(sequence).collect::<Vec<_>>())
    }

    fn judged(metric: Metric, sim: &Measured, vm: &Measured) -> (Agreement, f64) {
        let judgement = judge(metric, Bound::Absolute(0.1), std::slice::from_ref(sim), std::slice::from_ref(vm), None);
        (judgement.verdict, judgement.error.unwrap())
    }

    #[test]
    fn a_sequence_that_one_place_never_has_is_outside_from_a_tenth_of_the_calls_on() {
        let insert: &[&str] = &["scx_bpf_dsq_insert"];
        let kick: &[&str] = &["scx_bpf_dsq_insert", "scx_bpf_kick_cpu"];
        let real = run(&[("enqueue", insert, 95), ("enqueue", kick, 5), ("enqueue", &[], 400)]);
        let same = run(&[("enqueue", insert, 50)]);
        assert_eq!(judged(Metric::CallSequences, &same, &real).0, Agreement::Inside, "5 % are unknown");
        let other = run(&[("enqueue", kick, 50), ("enqueue", insert, 1)]);
        assert_eq!(judged(Metric::CallSequences, &other, &real).0, Agreement::Inside, "it knows both");
        let (verdict, error) = judged(Metric::CallFrequencies, &other, &real);
        assert_eq!(verdict, Agreement::Outside);
        assert!((error - (50.0 / 51.0 - 0.05)).abs() < 1e-9, "{error}");
        let wrong = run(&[("enqueue", kick, 50)]);
        assert_eq!(judged(Metric::CallSequences, &wrong, &real), (Agreement::Outside, 0.95));
        let missing = run(&[("dispatch", insert, 50)]);
        assert_eq!(judged(Metric::CallSequences, &missing, &real), (Agreement::Outside, 1.0));
        let releases: &[&str] = &["scx_bpf_dsq_insert", "scx_bpf_put_idle_cpumask"];
        let released = run(&[("enqueue", releases, 50), ("tick", &["scx_bpf_put_cpumask"], 90)]);
        assert_eq!(judged(Metric::CallSequences, &released, &same), (Agreement::Inside, 0.0), "what has no effect");
    }

    #[test]
    fn an_operation_that_is_hardly_called_is_not_compared() {
        let few = run(&[("tick", &["scx_bpf_kick_cpu"], 3)]);
        let judgement = judge(
            Metric::CallSequences,
            Bound::Absolute(0.1),
            std::slice::from_ref(&few),
            std::slice::from_ref(&few),
            None,
        );
        assert_eq!((judgement.verdict, judgement.pairs.len()), (Agreement::NotMeasured, 0));
    }
}
