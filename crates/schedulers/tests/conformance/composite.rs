//! `fifo` above `eevdf`, with the conformance suite, single moves and the upper class ending in mid-run.

use std::cell::Cell;
use std::rc::Rc;

use warmcore_kernel::{Core, Level, Setup, run};
use warmcore_schedulers::SchedulerSpec;
use warmcore_schedulers::fair::Fair;
use warmcore_schedulers::fair::eevdf::Eevdf;
use warmcore_schedulers::fifo::Fifo;
use warmcore_schedulers::stacked::{Membership, Stacked};
use warmcore_trace::{End, Event, TaskId};

use crate::suite;
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

impl Membership<Fifo> for Rule {
    fn level_of(&mut self, _core: &Core<'_>, task: TaskId, _parent: Option<TaskId>) -> Level {
        if (self.above)(task) { Level::Upper } else { Level::Lower }
    }

    fn ejects(&mut self, core: &Core<'_>, _upper: &mut Fifo) -> bool {
        let ends = self.ends_at_ns.is_some_and(|at_ns| core.now_ns() >= at_ns);
        if ends {
            self.ended_with.set(core.task_count());
        }
        ends
    }
}

/// The composite for a setup.
fn stacked(rule: Rule, setup: &Setup<'_>) -> Stacked<Fifo, Fair<Eevdf>, Rule> {
    let [fifo, eevdf] = ["fifo", "eevdf"].map(|text| text.parse::<SchedulerSpec>().unwrap());
    let boot = setup.boot();
    let lower = Fair::new(Eevdf::new(eevdf.tunables(), &boot), &boot);
    Stacked::new("stacked", Fifo::new(fifo.tunables(), &boot), lower, rule)
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
            // Above, nobody is starved by equals; below, by those above.
            let starves = ends_at_ns.is_none() && name.contains("third");
            let checked = suite::check(&|setup, sink| run(setup, stacked(Rule::new(above, ends_at_ns), setup), sink));
            match checked {
                Err(sentence) if !(starves && sentence.contains("starves")) => {
                    panic!("{name}, {ends_at_ns:?}: {sentence}")
                }
                _ => {}
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
