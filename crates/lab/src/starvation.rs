//! Tasks that were left waiting for a CPU, and how much of a wait counts for whom: what a scheduler owes a task follows from its weight beside
//! those of the tasks that it competes with. Light ones that a fair scheduler lets wait as long are not left.
//!
//! Weights are those of nice values, policies and task groups that tasks begin with, under every scheduler, known to it or not.

use std::collections::BTreeMap;

use warmcore_schedulers::fair::weights::{NICE_0_WEIGHT, weight_of};
use warmcore_trace::metrics::Metrics;
use warmcore_trace::{Outcome, TaskId, TaskOutcome};
use warmcore_workload::{GroupId, Task, Workload};

fn template_of<'a>(workload: &'a Workload, task: &TaskOutcome) -> Option<&'a Task> {
    let name = workload.template_name(&task.name);
    workload.tasks.iter().find(|template| template.name == name)
}

/// The weight of a task by the nice value and policy that it begins with.
pub(crate) fn weight_of_task(workload: &Workload, task: &TaskOutcome) -> u32 {
    template_of(workload, task).map_or(NICE_0_WEIGHT, |template| weight_of(template.policy, template.nice))
}

/// That times the shares of the task groups in which it lies, as parts of those that a group begins with. None of real-time and deadline
/// tasks, which wait for nobody's share.
fn weight_in_groups(workload: &Workload, task: &TaskOutcome) -> Option<f64> {
    let Some(template) = template_of(workload, task) else { return Some(f64::from(NICE_0_WEIGHT)) };
    let weight = f64::from(weight_of(template.policy, template.nice));
    let group = |id: GroupId| workload.groups.get(id.index());
    let groups = std::iter::successors(template.group.and_then(group), |of| of.parent.and_then(group));
    let shares = groups.filter(|of| !of.is_root()).map(|of| f64::from(of.shares) / f64::from(NICE_0_WEIGHT));
    (!template.policy.is_realtime()).then(|| weight * shares.product::<f64>())
}

/// A part of the window: tasks of one weight that had less CPU time, together, kept nobody from a CPU for long.
const COMPETES: u64 = 2;

/// The largest weight of which there are tasks that others had to wait for; where none had much CPU time, as below real-time tasks, the
/// largest that had any.
fn heaviest(weights: &BTreeMap<u32, f64>, metrics: &Metrics) -> Option<f64> {
    // By the bits of the weight, which are in the order of positive numbers.
    let mut run_ns: BTreeMap<u64, u64> = BTreeMap::new();
    for task in &metrics.tasks {
        if let Some(weight) = weights.get(&task.id.0) {
            *run_ns.entry(weight.to_bits()).or_default() += task.run_ns;
        }
    }
    let with_more = |least_ns: u64| run_ns.iter().rfind(|(_, ns)| **ns > least_ns);
    let competing = with_more(metrics.window_ns / COMPETES).or_else(|| with_more(0));
    competing.map(|(bits, _)| f64::from_bits(*bits))
}

/// How many tasks were left waiting for a CPU: of the wait of one that is lighter than the heaviest that compete, so much counts as its weight
/// is of theirs.
pub(crate) fn tasks_left(workload: &Workload, outcome: &Outcome, metrics: &Metrics) -> usize {
    if metrics.never_ran_again(|_| 1.0).next().is_none() {
        return 0;
    }
    let of_task = |task: &TaskOutcome| Some((task.id, weight_in_groups(workload, task)?));
    let weights: BTreeMap<u32, f64> = outcome.tasks.iter().filter_map(of_task).collect();
    let heaviest = heaviest(&weights, metrics);
    let part = |id: TaskId| match (weights.get(&id.0), heaviest) {
        (Some(weight), Some(heaviest)) => (weight / heaviest).min(1.0),
        _ => 1.0,
    };
    metrics.never_ran_again(part).count()
}
