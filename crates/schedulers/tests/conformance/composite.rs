//! `fifo` above `eevdf`, with the conformance suite, single moves and the upper class ending in mid-run.

use std::cell::Cell;
use std::rc::Rc;

use warmcore_kernel::{Core, Level, Scheduler, Setup, State, run};
use warmcore_schedulers::SchedulerSpec;
use warmcore_schedulers::fair::Fair;
use warmcore_schedulers::fair::eevdf::Eevdf;
use warmcore_schedulers::fifo::Fifo;
use warmcore_schedulers::stacked::{Membership, Stacked};
use warmcore_trace::{End, Event, TaskId};
use warmcore_workload::{Policy, Step};

use super::suite;
use crate::support::*;

/// Which tasks begin above, and when that class ends.
#[derive(Clone)]
struct Rule {
    above: fn(TaskId) -> bool,
    ends_at_ns: Option<u64>,
    ended_with: Rc<Cell<usize>>,
}

impl Rule {
    fn new(above: fn(TaskId) -> bool, ends_at_ns: Option<u64>) -> Self {
        Self { above, ends_at_ns, ended_with: Rc::default() }
    }
}

impl Membership<Fifo, Fair<Eevdf>> for Rule {
    fn level_of(&mut self, _core: &Core<'_>, task: TaskId, _parent: Option<TaskId>) -> Level {
        if (self.above)(task) { Level::Upper } else { Level::Lower }
    }

    fn ends(&mut self, core: &Core<'_>, _upper: &mut Fifo, _lower: &mut Fair<Eevdf>) -> Option<Level> {
        let ends = self.ends_at_ns.is_some_and(|at_ns| core.now_ns() >= at_ns);
        if ends {
            self.ended_with.set(core.task_count());
        }
        ends.then_some(Level::Upper)
    }
}

/// The composite for a setup.
fn stacked(rule: Rule, setup: &Setup<'_>) -> Box<dyn Scheduler> {
    let [fifo, eevdf] = ["fifo", "eevdf"].map(|text| text.parse::<SchedulerSpec>().unwrap());
    let boot = setup.boot();
    let lower = Fair::new(Eevdf::new(eevdf.tunables(), &boot), &boot);
    Box::new(Stacked::new("stacked", Fifo::new(fifo.tunables(), &boot), lower, rule))
}

/// All, none and some tasks above; and a class above that ends at once, soon and late.
#[test]
fn a_class_above_another_keeps_the_rules_also_when_it_ends_in_mid_run() {
    let every_third = |task: TaskId| task.index().is_multiple_of(3);
    for (above, name) in [
        ((|_| true) as fn(TaskId) -> bool, "all above"),
        (|_| false, "none above"),
        (every_third, "a third above"),
        (|task| !task.index().is_multiple_of(3), "two thirds above"),
    ] {
        for ends_at_ns in [None, Some(0), Some(2 * MS), Some(5 * MS), Some(11 * MS)] {
            // Who is below may be starved by those above, as long as there is an above.
            let shares_equally = ends_at_ns.is_some() || !name.contains("third");
            let composite = |setup: &Setup<'_>| stacked(Rule::new(above, ends_at_ns), setup);
            let checked = suite::check(&|setup, sink| run(setup, composite(setup), sink), shares_equally);
            if let Err(sentence) = checked {
                panic!("{name}, {ends_at_ns:?}: {sentence}");
            }
        }
    }
}

#[test]
fn who_is_above_runs_first_and_the_others_when_nobody_above_can() {
    let mut scene = Scene::new();
    scene.task("above", times(5, [run_for(10 * MS), sleep(10 * MS)]));
    scene.task("below", once([run_for(40 * MS)]));
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    let outcome = run(&setup, stacked(Rule::new(|task| task.index() == 0, None), &setup), None).unwrap();
    let [above, below] = [0, 1].map(|task: usize| outcome.tasks[task].exited_ns.unwrap() / MS);
    assert_eq!(above, 100, "as if it were alone");
    assert!((79..=81).contains(&below), "in the four gaps: {below} ms");
}

/// Seven of eight tasks are runnable or run when the class ends, one sleeps; from then on they share the CPU as under `eevdf`.
#[test]
fn the_tasks_of_a_class_that_ends_go_down_wherever_they_are_in_their_lives() {
    let mut scene = Scene::lasting(500 * MS);
    scene.task("spins", spin()).instances = 7;
    scene.task("sleeps", once([sleep(100 * MS), run_for(S)]));
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let mut setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    setup.check_invariants = true;
    let rule = Rule::new(|_| true, Some(50 * MS));
    let mut events: Vec<Event> = Vec::new();
    let outcome = run(&setup, stacked(rule.clone(), &setup), Some(&mut events)).unwrap();
    trace_check::check(&events, &outcome, &setup.run_tables(Vec::new()).restrictions);
    assert_eq!((rule.ended_with.get(), outcome.end), (8, End::Stopped));
    // 50 ms for the first above; then 50 ms by seven, and 400 ms by eight.
    let times: Vec<u64> = outcome.tasks.iter().map(|task| task.cpu_time_ns / MS).collect();
    assert!((103..=112).contains(&times[0]), "{times:?}");
    assert!(times[1..7].iter().all(|time| (50..=64).contains(time)), "{times:?}");
    assert!((43..=57).contains(&times[7]), "{times:?}");
}

/// A class without tasks changes nothing: not an event, not a time.
#[test]
fn with_nobody_above_everything_is_as_without_the_class_above() {
    let mut scene = Scene::new();
    scene.task("sleeps", times(30, [run_for(300 * US), sleep(900 * US)])).instances = 9;
    scene.task("runs", once([run_for(40 * MS), Step::SetNice(5), run_for(5 * MS)])).instances = 6;
    let machine = warmcore_topology::resolve("2s1n2l2c2t").unwrap();
    let setup = Setup::new(&machine, &scene.workload, 3).unwrap();
    let (mut composite, mut alone): (Vec<Event>, Vec<Event>) = Default::default();
    run(&setup, stacked(Rule::new(|_| false, None), &setup), Some(&mut composite)).unwrap();
    warmcore_schedulers::simulate(&"eevdf".parse().unwrap(), &setup, Some(&mut alone)).unwrap();
    assert!(composite == alone);
}

/// Batch tasks go up, others down, whenever they change their policy.
struct ByPolicy;

impl Membership<Fifo, Fair<Eevdf>> for ByPolicy {
    fn level_of(&mut self, core: &Core<'_>, task: TaskId, _parent: Option<TaskId>) -> Level {
        if core.task(task).policy() == Policy::Batch { Level::Upper } else { Level::Lower }
    }

    fn level_after_change(&mut self, core: &Core<'_>, task: TaskId, _level: Level) -> Level {
        self.level_of(core, task, None)
    }
}

#[test]
fn a_task_that_changes_its_policy_goes_up_and_down_while_it_runs() {
    let mut scene = Scene::new();
    let batch = Step::SetPolicy(Policy::Batch);
    scene.task(
        "changes",
        once([run_for(20 * MS), batch, run_for(40 * MS), Step::SetPolicy(Policy::Normal), run_for(20 * MS)]),
    );
    scene.task("stays", once([run_for(80 * MS)]));
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let mut setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    setup.check_invariants = true;
    let [fifo, eevdf] = ["fifo", "eevdf"].map(|text| text.parse::<SchedulerSpec>().unwrap());
    let boot = setup.boot();
    let lower = Fair::new(Eevdf::new(eevdf.tunables(), &boot), &boot);
    let composite = Stacked::new("stacked", Fifo::new(fifo.tunables(), &boot), lower, ByPolicy);
    let outcome = run(&setup, Box::new(composite) as Box<dyn Scheduler>, None).unwrap();
    // It shares the CPU for 20 ms of its own, has it alone for 40, and shares it again; the other's remaining 40 ms come last.
    let ended = outcome.tasks[0].exited_ns.unwrap() / MS;
    assert!((112..=128).contains(&ended), "{ended} ms");
    assert!((160..=161).contains(&(outcome.elapsed_ns / MS)));
}

/// The upper class ends as soon as it holds a sleeping task.
struct EndsWhenOneIsDelayed(Rc<Cell<bool>>);

impl Membership<Fair<Eevdf>, Fifo> for EndsWhenOneIsDelayed {
    fn level_of(&mut self, _core: &Core<'_>, _task: TaskId, _parent: Option<TaskId>) -> Level {
        Level::Upper
    }

    fn ends(&mut self, core: &Core<'_>, upper: &mut Fair<Eevdf>, _lower: &mut Fifo) -> Option<Level> {
        let delayed = |task: u32| core.task(TaskId(task)).state() == State::Blocked && upper.holds(TaskId(task));
        let found = (0..core.task_count() as u32).any(delayed);
        self.0.set(self.0.get() || found);
        found.then_some(Level::Upper)
    }
}

#[test]
fn a_class_that_ends_lets_go_of_tasks_that_it_holds_while_they_sleep() {
    let mut scene = Scene::new();
    scene.task("runs", once([run_for(60 * MS)])).instances = 3;
    scene.task("sleeps", times(20, [run_for(2 * MS), sleep(5 * MS)])).instances = 2;
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let mut setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    setup.check_invariants = true;
    let [fifo, eevdf] = ["fifo", "eevdf"].map(|text| text.parse::<SchedulerSpec>().unwrap());
    let boot = setup.boot();
    let upper = Fair::new(Eevdf::new(eevdf.tunables(), &boot), &boot);
    let seen = Rc::new(Cell::new(false));
    let lower = Fifo::new(fifo.tunables(), &boot);
    let composite = Stacked::new("stacked", upper, lower, EndsWhenOneIsDelayed(seen.clone()));
    let mut events: Vec<Event> = Vec::new();
    let outcome = run(&setup, Box::new(composite) as Box<dyn Scheduler>, Some(&mut events)).unwrap();
    trace_check::check(&events, &outcome, &setup.run_tables(Vec::new()).restrictions);
    assert!(seen.get(), "the moment came");
    assert_eq!(outcome.end, End::AllExited);
}
