//! Jobs: tasks that end by themselves beside others that never do and only compute.
//!
//! What is asked of such a workload is when the jobs are done: all the work that is done says nothing, since the others take what
//! a job leaves. Where an endless task sleeps or waits, its latency may be what is asked, and there are no jobs in this sense.

use warmcore_statistics::Better;
use warmcore_trace::Outcome;
use warmcore_workload::{Step, Task, Workload};

use crate::measures::{Measure, Unit};

/// Name of the measure.
pub(crate) const JOBS: &str = "jobs_elapsed_ns";

/// The jobs of a workload: tasks that work, create no others and end, where all that never end only compute, and nothing is recorded but by
/// tasks that end and neither sleep nor have timers, as a fork-join program records its rounds: a latency is not what is asked there.
pub(crate) fn of(workload: &Workload) -> Vec<&Task> {
    let steps_of = |task: &Task| &workload.programs[task.program.index()].steps;
    let forks = |step: &Step| matches!(step, Step::Fork(_));
    // A loop that takes longer than the workload lasts is one without end.
    let lasts_ns = workload.duration_ns.unwrap_or(u64::MAX);
    let (endless, ending): (Vec<&Task>, Vec<&Task>) = workload.tasks.iter().partition(|task| {
        let program = &workload.programs[task.program.index()];
        program.is_endless() || program.least_time_ns().max(program.work_ns()) > lasts_ns
    });
    let only_compute = |task: &&Task| !steps_of(task).iter().any(|step| step.blocks() || forks(step));
    let records = |task: &&Task| steps_of(task).iter().any(is_recording);
    let by_the_clock = |task: &&Task| workload.programs[task.program.index()].least_time_ns() > 0;
    let asks_for_latency = endless.iter().any(records) || ending.iter().filter(|task| records(task)).any(by_the_clock);
    if endless.is_empty() || !endless.iter().all(only_compute) || asks_for_latency {
        return Vec::new();
    }
    let works = |task: &Task| !workload.programs[task.program.index()].is_idle();
    let leads = |step: &Step| forks(step) || *step == Step::Stop;
    ending.into_iter().filter(|task| works(task) && !steps_of(task).iter().any(leads)).collect()
}

fn is_recording(step: &Step) -> bool {
    match step {
        Step::Enlist { recorder, .. } | Step::Work { recorder, .. } => recorder.is_some(),
        Step::RecordClock { .. } | Step::RecordSince { .. } => true,
        _ => false,
    }
}

/// The measure, of workloads that have jobs.
pub(crate) fn measure(workload: &Workload) -> Option<Measure> {
    if of(workload).is_empty() {
        return None;
    }
    let measure = Measure::of_outcome(
        JOBS,
        "job time",
        Unit::Ns,
        Better::Lower,
        "from the creation of the first task that ends on its own, or from the end of the warm-up, to the exit of the last; infinite where one has not ended",
    );
    Some(Measure { until_end: true, ..measure })
}

/// Its value in a run; nothing where a job has not ended.
pub(crate) fn elapsed_ns(workload: &Workload, outcome: &Outcome) -> Option<f64> {
    let jobs = of(workload);
    let is_job = |name: &str| jobs.iter().any(|job| job.name == workload.template_name(name));
    let tasks = || outcome.tasks.iter().filter(|task| is_job(&task.name));
    let began_ns = tasks().map(|task| task.started_ns.max(outcome.warm_up_ns)).min()?;
    let ended_ns = tasks().map(|task| task.exited_ns).collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    Some(ended_ns.saturating_sub(began_ns) as f64)
}

#[cfg(test)]
mod tests {
    use warmcore_workload::{Options, from_rtapp};

    use super::of;
    use crate::measures::primary;

    fn jobs(tasks: &str) -> Vec<String> {
        let text = format!(r#"{{ "global": {{ "duration": 5 }}, "tasks": {{ {tasks} }} }}"#);
        let workload = from_rtapp("w", &text, &Options::default()).unwrap();
        let jobs: Vec<String> = of(&workload).into_iter().map(|task| task.name.clone()).collect();
        assert_eq!(primary(&workload) == "jobs_elapsed_ns", !jobs.is_empty());
        jobs
    }

    /// Its recorder of rounds is no latency that somebody asks for.
    #[test]
    fn a_fork_join_program_is_a_job_beside_endless_tasks() {
        let primary_of = |text: &str| primary(&warmcore_workload::from_generator(text).unwrap());
        assert_eq!(primary_of("forkjoin:-n3,-i60,-w2ms+spin:-n2,-d10s"), "jobs_elapsed_ns");
        assert_eq!(primary_of("forkjoin:-n1,-i60,-w2ms+spin:-n2,-d10s"), "jobs_elapsed_ns");
        assert_eq!(primary_of("schbench:-m1,-t2,-r1+spin:-n2,-d1s"), "recorder_wakeup_latency_p99_ns");
        assert_eq!(primary_of("pingpong:-n2,-d1s+spin:-n2,-d1s"), "wakeup_p99_ns");
    }

    #[test]
    fn a_job_ends_beside_tasks_that_only_compute() {
        let hog = r#""hog": { "instance": 3, "loop": -1, "run": 10000 }"#;
        let sleeper = r#""sleeper": { "loop": -1, "run": 100, "sleep": 900 }"#;
        assert_eq!(jobs(&format!(r#"{hog}, "job": {{ "loop": 1, "run": 1000000 }}"#)), ["job"]);
        assert_eq!(jobs(&format!(r#"{hog}, "job": {{ "loop": 10, "run": 1000, "sleep": 1000 }}"#)), ["job"]);
        let none: [&str; 0] = [];
        assert_eq!(jobs(hog), none, "nobody ends");
        assert_eq!(jobs(r#""job": { "loop": 1, "run": 1000000 }"#), none, "nobody goes on");
        assert_eq!(
            jobs(&format!(r#"{sleeper}, "job": {{ "loop": 1, "run": 1000000 }}"#)),
            none,
            "a latency may be asked"
        );
        assert_eq!(jobs(&format!(r#"{hog}, "job": {{ "loop": 1, "sleep": 1000 }}"#)), none, "it does nothing");
        // 10,000 s of work or of periods in 5 s are no job's.
        assert_eq!(jobs(&format!(r#"{hog}, "long": {{ "loop": 1000000, "run": 10000 }}"#)), none);
        let timer = r#""timer": { "ref": "t", "period": 10000 }"#;
        assert_eq!(jobs(&format!(r#"{hog}, "long": {{ "loop": 1000000, "run": 100, {timer} }}"#)), none);
        let long = r#""long": { "loop": 1000000, "run": 10000 }"#;
        assert_eq!(jobs(&format!(r#"{long}, "job": {{ "loop": 1, "run": 1000000 }}"#)), ["job"]);
    }
}
