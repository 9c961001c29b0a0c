//! What is simulated of an experiment: itself, its own controls, and models that are wrong for every experiment. A check that rejects none of
//! the latter says nothing, whatever its verdict.
//!
//! Each of these errs in one direction: who is next, who is gathered, too few CPUs, turns too long, wakeups that move, tasks that wander, and
//! partners that are kept apart.

use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_workload::{Action, Affinity, Deed, Destination, Drawn, Step, Workload};

use super::book::BookExperiment;

/// How often longer or shorter tasks run at a time in a wrong workload.
const FACTOR: u64 = 3;

/// How long tasks that wander stay in a half of the machine.
const STAY_NS: u64 = 30_000_000;

/// What a model is of its experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The experiment itself.
    Right,
    /// Its control of this index.
    Control(usize),
    /// Wrong for every experiment.
    Wrong,
}

/// What is simulated.
pub struct Model {
    /// Index of the scheduler under which it is one of the experiment's.
    pub of: usize,
    /// What it is of the experiment.
    pub kind: Kind,
    /// What is wrong with it.
    pub name: String,
    /// The scheduler.
    pub scheduler: SchedulerSpec,
    /// The workload.
    pub workload: Workload,
    /// What is done from outside.
    pub actions: Vec<Action>,
}

impl Model {
    /// What is wrong with it, if something is.
    pub fn wrong(&self) -> Option<&str> {
        (self.kind != Kind::Right).then_some(&self.name)
    }
}

/// An experiment itself, under one of its schedulers.
pub fn right(experiment: &BookExperiment, of: usize) -> Model {
    Model {
        of,
        kind: Kind::Right,
        name: String::new(),
        scheduler: experiment.schedulers[of].clone(),
        workload: experiment.workload.clone(),
        actions: experiment.actions.clone(),
    }
}

/// The models of an experiment under all of its schedulers, itself first.
pub fn models(experiment: &BookExperiment) -> Vec<Model> {
    let mut models: Vec<Model> = (0..experiment.schedulers.len()).flat_map(|of| models_under(experiment, of)).collect();
    models.sort_by_key(|model| model.kind != Kind::Right);
    models
}

/// Those under one of its schedulers, itself first. Those that need two CPUs are missing where there is one.
fn models_under(experiment: &BookExperiment, of: usize) -> Vec<Model> {
    let scheduler = &experiment.schedulers[of];
    let model = |kind, name: &str| Model { kind, name: name.to_owned(), ..right(experiment, of) };
    let wrong = |name| model(Kind::Wrong, name);
    let controls = experiment.controls.iter().enumerate().map(|(index, control)| {
        let own = model(Kind::Control(index), &control.name);
        Model {
            scheduler: control.scheduler.clone().unwrap_or(own.scheduler),
            workload: control.workload.clone().unwrap_or(own.workload),
            ..own
        }
    });
    let under = |name, text: &str| SchedulerSpec::parse(text).ok().map(|scheduler| Model { scheduler, ..wrong(name) });
    let gathering = match scheduler.name() {
        "cache-aware" => under("cache-aware scheduling off", "eevdf"),
        _ => under("cache-aware scheduling on", "cache-aware"),
    };
    let mut models: Vec<Model> = std::iter::once(right(experiment, of)).chain(controls).collect();
    let others = [
        under("round robin", "rr"),
        under("first come, first served", "fifo"),
        under("every wakeup on a random CPU", "random"),
        gathering,
    ];
    models.extend(others.into_iter().flatten());
    models.push(Model { workload: on_one_cpu(&experiment.workload), ..wrong("everything on one CPU") });
    models.push(Model { workload: longer(&experiment.workload), ..wrong("tasks run longer at a time") });
    if let Some(halves) = halves(&experiment.machine) {
        let actions = wandering(&experiment.workload, &halves, experiment.duration_ns);
        models.push(Model { actions, ..wrong("tasks wander") });
        models.push(Model { workload: apart(&experiment.workload, &halves), ..wrong("partners apart") });
    }
    models
}

/// The lower and the upper half of a machine's CPUs: of two LLCs, one each.
fn halves(machine: &Machine) -> Option<[CpuSet; 2]> {
    let cpus: Vec<CpuId> = machine.cpus().collect();
    let (lower, upper) = cpus.split_at(cpus.len() / 2);
    (!lower.is_empty()).then(|| [lower, upper].map(|half| half.iter().copied().collect()))
}

/// All tasks bound to the first CPU for good.
fn on_one_cpu(workload: &Workload) -> Workload {
    bound(workload, |_| [CpuId(0)].into_iter().collect())
}

/// Templates bound to one half of the machine and the other in turn, for good.
fn apart(workload: &Workload, halves: &[CpuSet; 2]) -> Workload {
    bound(workload, |template| halves[template % 2].clone())
}

fn bound(workload: &Workload, cpus: impl Fn(usize) -> CpuSet) -> Workload {
    let mut wrong = workload.clone();
    for (template, task) in wrong.tasks.iter_mut().enumerate() {
        let only = Affinity::Cpus(cpus(template));
        (task.affinity, task.release_ns, task.start_cpu) = (only.clone(), None, None);
        for step in &mut wrong.programs[task.program.index()].steps {
            if let Step::SetAffinity(affinity) = step {
                *affinity = only.clone();
            }
        }
    }
    wrong
}

/// All tasks sent to the other half of the machine again and again.
fn wandering(workload: &Workload, halves: &[CpuSet; 2], duration_ns: u64) -> Vec<Action> {
    let mut names: Vec<&str> = workload.tasks.iter().map(|task| task.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let times = (1..).map(|turn| turn * STAY_NS).take_while(|&time_ns| time_ns < duration_ns);
    let turns = times.zip(halves.iter().cycle());
    turns
        .flat_map(|(time_ns, half)| {
            names.iter().map(move |&tasks| {
                let to = Destination::Cpus(Affinity::Cpus(half.clone()));
                Action { time_ns, what: Deed::Bind { tasks: tasks.to_owned(), to } }
            })
        })
        .collect()
}

fn longer(workload: &Workload) -> Workload {
    let mut wrong = workload.clone();
    for step in wrong.programs.iter_mut().flat_map(|program| &mut program.steps) {
        match step {
            Step::Run { work_ns: ns } | Step::RunTime { cpu_ns: ns } => *ns = ns.saturating_mul(FACTOR),
            Step::Draw { what: Drawn::Work | Drawn::CpuTime, from } => *from = from.times(FACTOR),
            _ => {}
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn experiment(machine: &str) -> BookExperiment {
        let text = format!(
            r#"
            schema = "warmcore-book-1"
            title = "one"
            group = "x"
            machine = "{machine}"
            workload = '{{"tasks": {{"a": {{"loop": 3, "run": 100, "cpus": [0]}}, "b": {{"loop": 3, "run": 100}}}}}}'
            schedulers = ["eevdf"]
            duration_ms = 100
            [[check]]
            metric = "cpu_share"
            absolute = 0.1
            "#
        );
        BookExperiment::parse(Path::new("one"), &text).unwrap()
    }

    #[test]
    fn wrong_models_differ_from_the_experiment() {
        let right = experiment("1s1n2l2c1t");
        let eevdf = &right.schedulers[0];
        let models = models(&right);
        assert_eq!(models.len(), 9);
        for model in &models {
            let same = model.scheduler == *eevdf && model.workload == right.workload && model.actions == right.actions;
            assert_eq!(same, model.kind == Kind::Right, "{}", model.name);
        }
    }

    #[test]
    fn one_cpu_has_no_halves() {
        let right = experiment("1s1n1l1c1t");
        assert_eq!(models(&right).len(), 7);
    }

    #[test]
    fn tasks_wander_to_the_other_half_until_the_end() {
        let right = experiment("1s1n2l2c1t");
        let wander = models(&right).into_iter().find(|wrong| wrong.name == "tasks wander").unwrap();
        let times: Vec<u64> = wander.actions.iter().map(|action| action.time_ns / 1_000_000).collect();
        assert_eq!(times, [30, 30, 60, 60, 90, 90]);
        assert_ne!(wander.actions[0].what, wander.actions[2].what);
        assert_eq!(wander.actions[0].what, wander.actions[4].what);
    }
}
