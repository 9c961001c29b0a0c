//! Wrong models that every experiment's checks are tried with, beside its own controls: a check that rejects none of them says
//! nothing, whatever its verdict.

use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::CpuId;
use warmcore_workload::{Affinity, Step, Workload};

/// How often longer or shorter tasks run at a time in a wrong workload.
const FACTOR: u64 = 3;

/// Wrong models of an experiment: name, scheduler, workload.
#[must_use]
pub fn models(scheduler: &SchedulerSpec, workload: &Workload) -> Vec<(&'static str, SchedulerSpec, Workload)> {
    let mut models = Vec::new();
    let mut other = |name: &'static str, text: &str| {
        if let Ok(spec) = SchedulerSpec::parse(text) {
            models.push((name, spec, workload.clone()));
        }
    };
    other("round robin", "rr");
    match scheduler.name() {
        "cache-aware" => other("cache-aware scheduling off", "eevdf"),
        _ => other("cache-aware scheduling on", "cache-aware"),
    }
    models.push(("everything on one CPU", scheduler.clone(), on_one_cpu(workload)));
    models.push(("tasks run longer at a time", scheduler.clone(), longer(workload)));
    models
}

/// All tasks bound to the first CPU for good.
fn on_one_cpu(workload: &Workload) -> Workload {
    let only = Affinity::Cpus([CpuId(0)].into_iter().collect());
    let mut wrong = workload.clone();
    for task in &mut wrong.tasks {
        (task.affinity, task.release_ns, task.start_cpu) = (only.clone(), None, None);
    }
    for step in wrong.programs.iter_mut().flat_map(|program| &mut program.steps) {
        if let Step::SetAffinity(affinity) = step {
            *affinity = only.clone();
        }
    }
    wrong
}

fn longer(workload: &Workload) -> Workload {
    let mut wrong = workload.clone();
    for step in wrong.programs.iter_mut().flat_map(|program| &mut program.steps) {
        if let Step::Run { work_ns: ns } | Step::RunTime { cpu_ns: ns } = step {
            *ns = ns.saturating_mul(FACTOR);
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_workload::{Options, from_rtapp};

    #[test]
    fn wrong_models_differ_from_the_experiment() {
        let text = r#"{"tasks": {"a": {"loop": 3, "run": 100, "cpus": [1]}}}"#;
        let workload = from_rtapp("one", text, &Options::default()).unwrap();
        let eevdf = SchedulerSpec::parse("eevdf").unwrap();
        let models = models(&eevdf, &workload);
        assert_eq!(models.len(), 4);
        assert!(models.iter().all(|(_, spec, wrong)| *spec != eevdf || *wrong != workload));
    }
}
