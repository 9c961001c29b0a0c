//! What the operations of sched_ext schedulers took: calls, instructions and time, over the trials.

use serde::Serialize;
use warmcore_statistics::Sample;

use crate::trial::{OperationRow, Trial};

/// What an operation took in the trials of a scheduler. Values are medians over the trials; one without the operation counts as none.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OperationTake {
    /// Member of `struct sched_ext_ops`; `timer` for all timers.
    pub operation: String,
    /// Calls.
    pub calls: f64,
    /// Instructions of bytecode per call, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_call: Option<f64>,
    /// Time charged to the CPU per call, ns, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_ns_per_call: Option<f64>,
    /// Time charged to all CPUs together, ns, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_ns: Option<f64>,
}

/// Operations that were called in any of a scheduler's trials, in the order in which trials have them.
pub fn of_trials(trials: &[Trial]) -> Vec<OperationTake> {
    let mut names: Vec<&str> = Vec::new();
    for row in trials.iter().flat_map(|trial| &trial.operations) {
        if !names.contains(&&*row.operation) {
            names.push(&row.operation);
        }
    }
    names.into_iter().map(|name| take_of(name, trials)).collect()
}

fn take_of(name: &str, trials: &[Trial]) -> OperationTake {
    let row = |trial: &Trial| trial.operations.iter().find(|row| row.operation == name).cloned();
    let rows: Vec<Option<OperationRow>> = trials.iter().map(row).collect();
    let median = |value: &dyn Fn(&OperationRow) -> Option<f64>| {
        let known: Vec<f64> = rows.iter().flatten().filter_map(value).collect();
        Sample::new(&known).ok().and_then(|sample| sample.median())
    };
    let calls: Vec<f64> = rows.iter().map(|row| row.as_ref().map_or(0, |row| row.calls) as f64).collect();
    let per_call = |row: &OperationRow, sum: Option<u64>| Some(sum? as f64 / row.calls.max(1) as f64);
    OperationTake {
        operation: name.to_owned(),
        calls: Sample::new(&calls).ok().and_then(|sample| sample.median()).unwrap_or(0.0),
        instructions_per_call: median(&|row| per_call(row, row.instructions)),
        charged_ns_per_call: median(&|row| per_call(row, row.charged_ns)),
        charged_ns: median(&|row| row.charged_ns.map(|sum| sum as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::tests::trial;

    #[test]
    fn what_operations_take_is_the_median_of_the_trials_and_unknown_where_it_is_not_counted() {
        let row = |operation: &str, calls, cost: Option<(u64, u64)>| OperationRow {
            operation: operation.into(),
            calls,
            instructions: cost.map(|cost| cost.0),
            charged_ns: cost.map(|cost| cost.1),
        };
        let trials: Vec<Trial> = [10, 20, 40]
            .into_iter()
            .map(|calls| {
                let enqueue = row("enqueue", calls, Some((calls * 100, calls * 30)));
                let tick = (calls == 40).then(|| row("tick", 4, None));
                Trial { operations: std::iter::once(enqueue).chain(tick).collect(), ..trial("scx:a", 0, &[]) }
            })
            .collect();
        let [enqueue, tick] = &of_trials(&trials)[..] else { panic!("two operations") };
        assert_eq!((&*enqueue.operation, enqueue.calls), ("enqueue", 20.0));
        assert_eq!((enqueue.instructions_per_call, enqueue.charged_ns_per_call), (Some(100.0), Some(30.0)));
        assert_eq!(enqueue.charged_ns, Some(600.0));
        assert_eq!((&*tick.operation, tick.calls, tick.instructions_per_call), ("tick", 0.0, None));
    }
}
