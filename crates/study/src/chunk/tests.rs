//! Chunks give what a run on one computer gives, in any order, and refuse what is not theirs.

use super::*;
use crate::document::StudyDocument;
use crate::run;
use warmcore_lab::environment::Environment;
use warmcore_places::place::BatchConduct;

const STUDY: &str = r#"
schema = "warmcore-study-form-1"
title = "t"
question = "q"
source = "s"

[[vary]]
name = "n"
values = [1, 3]

[[cell]]
name = "spin"
machine = "1s1n1l2c1t"
workload = "spin:-n{n},-d2ms"
schedulers = ["eevdf", "rr"]
trials = 5

[[cell]]
name = "same"
machine = "1s1n1l2c1t"
workload = "spin:-n1,-d2ms"
schedulers = ["rr"]
trials = 3

[[expect]]
name = "e"
figure = "elapsed_ns[spin, n=1, eevdf] / elapsed_ns[same]"
band = [0.5, 2]
reason = "r"
neutral = "none"
"#;

fn plan() -> Plan {
    let study = Study::parse(Path::new("it.toml"), STUDY).unwrap();
    crate::plan::plan(vec![study], &[], &|_| {}).unwrap()
}

fn with_means<T>(out: Option<&Path>, act: impl FnOnce(&Means<'_>) -> T) -> T {
    let environment = Environment::at_start(Vec::new(), 1, 0);
    act(&Means {
        jobs: 1,
        stop: Arc::default(),
        progress: &|_| {},
        out,
        environment: &environment,
        unix_seconds: || 0,
        note: &|_| {},
    })
}

fn result(plan: &Plan, trials: &[Vec<Vec<Trial>>]) -> String {
    session::pretty(&StudyDocument::new(plan, trials, &[None]))
}

fn tasks(plan: &Plan, gathering: &ChunkedRun, size: usize) -> Vec<ChunkTask> {
    gathering.tasks(&plan.experiments, size, &plan.names())
}

fn answer(task: &ChunkTask) -> String {
    carry_out(&task.chunk.to_json(), 1, &Arc::default()).unwrap()
}

#[test]
fn experiments_of_a_batch_that_are_equal_run_once() {
    let own = plan().experiments;
    let all = [own[0].clone(), own[1].clone(), own[0].clone()];
    let conduct = BatchConduct { jobs: 2, stop: Arc::default() };
    let made = run::together(&all, &conduct, &|index, run| Ok((index, run.send(None)?.outcome.elapsed_ns))).unwrap();
    let made: Vec<Vec<(usize, u64)>> = made.into_iter().map(Result::unwrap).collect();
    let of = |made: &Vec<(usize, u64)>| made.iter().map(|(index, _)| *index).collect::<Vec<usize>>();
    assert_eq!(made.iter().map(of).collect::<Vec<_>>(), [vec![0; 10], vec![1; 10], vec![0; 10]]);
    assert_eq!(made[0], made[2]);
}

#[test]
fn chunks_in_any_order_give_the_bytes_of_a_run_at_once() {
    let plan = plan();
    let at_once = with_means(None, |means| result(&plan, &run::run(&plan, means).unwrap()));
    for size in [1, 2, 100] {
        let mut gathering = ChunkedRun::begin(&plan.experiments, None, &|_| {}).unwrap();
        let mut tasks = tasks(&plan, &gathering, size);
        tasks.reverse();
        tasks.rotate_left(1);
        for task in &tasks {
            gathering.take(task, &answer(task)).unwrap();
        }
        let trials = with_means(None, |means| gathering.finish(&plan.experiments, means).unwrap());
        assert_eq!(result(&plan, &trials), at_once, "{size} trials a chunk");
    }
}

#[test]
fn names_of_chunks_say_what_they_are_for_and_are_different() {
    let plan = plan();
    let gathering = ChunkedRun::begin(&plan.experiments, None, &|_| {}).unwrap();
    let names: Vec<String> = tasks(&plan, &gathering, 2).into_iter().map(|task| task.name).collect();
    assert!(names[0].starts_with("it/spin, n=1/eevdf/trials-0-1-"), "{names:?}");
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    assert_eq!(names.len(), 12, "two experiments, two schedulers, trials 0-1, 2-3 and 4: {names:?}");
}

#[test]
fn what_came_back_is_kept_and_not_asked_for_again() {
    let plan = plan();
    let out = tempfile::tempdir().unwrap();
    let at_once = with_means(None, |means| result(&plan, &run::run(&plan, means).unwrap()));
    let mut gathering = ChunkedRun::begin(&plan.experiments, Some(out.path()), &|_| {}).unwrap();
    for task in tasks(&plan, &gathering, 2).iter().take(7) {
        gathering.take(task, &answer(task)).unwrap();
    }
    // Who asked is gone.
    drop(gathering);
    let mut gathering = ChunkedRun::begin(&plan.experiments, Some(out.path()), &|_| {}).unwrap();
    assert_eq!(tasks(&plan, &gathering, 2).len(), 5);
    for task in &tasks(&plan, &gathering, 3) {
        gathering.take(task, &answer(task)).unwrap();
    }
    assert_eq!(gathering.missing(&plan.experiments), 0);
    let trials = with_means(Some(out.path()), |means| gathering.finish(&plan.experiments, means).unwrap());
    assert_eq!(result(&plan, &trials), at_once);
    // A run on one computer takes the same directory over, and runs nothing.
    let ran = std::sync::atomic::AtomicUsize::new(0);
    let again = with_means(Some(out.path()), |means| {
        let count = |_: &Trial| {
            ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        run::run(&plan, &Means { progress: &count, stop: Arc::default(), ..*means }).unwrap()
    });
    assert_eq!((result(&plan, &again), ran.into_inner()), (at_once, 0));
}

#[test]
fn another_version_and_other_trials_are_refused() {
    let plan = plan();
    let mut gathering = ChunkedRun::begin(&plan.experiments, None, &|_| {}).unwrap();
    let tasks = tasks(&plan, &gathering, 2);
    let other = tasks[0].chunk.to_json().replacen(TOOL_VERSION, "0.0.0", 1);
    let error = carry_out(&other, 1, &Arc::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("version 0.0.0 asks, and this is {TOOL_VERSION}: its results may differ"));
    let changed = tasks[0].chunk.to_json().replace("name = \\\"1s1n1l2c1t\\\"", "name = \\\"else\\\"");
    assert_ne!(changed, tasks[0].chunk.to_json());
    let error = carry_out(&changed, 1, &Arc::default()).unwrap_err();
    assert_eq!(error.to_string(), "machine.toml was changed since the run was started");
    assert!(carry_out("{}", 1, &Arc::default()).unwrap_err().to_string().starts_with("this is no chunk of a study: "));

    let of_another = gathering.take(&tasks[0], &answer(&tasks[1])).unwrap_err();
    assert!(of_another.to_string().contains("what came back for trial 0 of eevdf is not that trial"), "{of_another}");
    let too_few = gathering.take(&tasks[0], answer(&tasks[0]).split('\0').next().unwrap()).unwrap_err();
    assert!(too_few.to_string().ends_with("1 trials came back, not 2"), "{too_few}");
}
