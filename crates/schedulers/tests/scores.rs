//! Samples of what schedulers rank tasks by: they change nothing, and they are what the policies' own rules say.

use std::collections::BTreeMap;

use crate::support::{MS, Scene, US, forever, on_cpu, run_for, sleep, spin};
use warmcore_kernel::Setup;
use warmcore_schedulers::{SchedulerSpec, run_tables, simulate};
use warmcore_trace::{Event, EventKind, Sink};

const ALL: [&str; 6] = ["rr", "cfs", "eevdf", "cache-aware", "topology-aware", "ule"];

/// Events of a run, with samples that often.
fn events(scene: &Scene, scheduler: &str, every_ns: Option<u64>) -> Vec<Event> {
    let machine = warmcore_topology::resolve("1s1n2l2c1t").unwrap();
    let mut setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    setup.options.scores_every_ns = every_ns;
    let mut events: Vec<Event> = Vec::new();
    let sink: &mut dyn Sink = &mut events;
    simulate(&scheduler.parse::<SchedulerSpec>().unwrap(), &setup, Some(sink)).unwrap();
    events
}

/// Spinning tasks and tasks that sleep.
fn mixed() -> Scene {
    let mut scene = Scene::lasting(200 * MS);
    scene.task("spinner", spin()).instances = 7;
    scene.task("sleeper", forever([run_for(300 * US), sleep(900 * US)])).instances = 5;
    scene
}

/// Values by time and CPU.
fn samples(events: &[Event], score: u32) -> BTreeMap<(u64, u32), Vec<i64>> {
    let mut found: BTreeMap<(u64, u32), Vec<i64>> = BTreeMap::new();
    for event in events {
        if let EventKind::Score { score: index, value, .. } = event.kind
            && index == score
        {
            found.entry((event.time_ns, event.cpu.0)).or_default().push(value);
        }
    }
    found
}

#[test]
fn a_run_with_samples_is_the_run_without_them() {
    let scene = mixed();
    for scheduler in ALL {
        let without = events(&scene, scheduler, None);
        assert!(!without.iter().any(|event| matches!(event.kind, EventKind::Score { .. })), "{scheduler}");
        let mut with = events(&scene, scheduler, Some(MS));
        let before = with.len();
        with.retain(|event| !matches!(event.kind, EventKind::Score { .. }));
        assert!(before > with.len(), "{scheduler} has scores");
        assert!(with == without, "{scheduler}: samples change nothing");
    }
}

#[test]
fn samples_are_named_and_no_more_often_than_asked_for() {
    let scene = mixed();
    let machine = warmcore_topology::resolve("1s1n2l2c1t").unwrap();
    for scheduler in ALL {
        let spec: SchedulerSpec = scheduler.parse().unwrap();
        let mut setup = Setup::new(&machine, &scene.workload, 1).unwrap();
        assert!(run_tables(&spec, &setup).scores.is_empty(), "none without samples");
        setup.options.scores_every_ns = Some(5 * MS);
        let names = run_tables(&spec, &setup).scores;
        let events = events(&scene, scheduler, Some(5 * MS));
        for score in 0..names.len() as u32 {
            let mut last = BTreeMap::new();
            for (time_ns, cpu) in samples(&events, score).into_keys() {
                if let Some(last) = last.insert(cpu, time_ns) {
                    assert!(time_ns - last >= 5 * MS, "{scheduler}: {last} and {time_ns} on cpu{cpu}");
                }
            }
            assert_eq!(last.len(), 4, "{scheduler}: every CPU has samples of {}", names[score as usize]);
        }
        assert!(samples(&events, names.len() as u32).is_empty(), "{scheduler}: nothing without a name");
    }
}

/// The weighted sum of lags is zero (Stoica and Abdel-Wahab 1995, lemma 2), but for the average being rounded down.
#[test]
fn lags_of_equal_tasks_of_a_cpu_add_up_to_nothing() {
    let mut scene = Scene::lasting(300 * MS);
    scene.task("spinner", spin()).instances = 6;
    for task in &mut scene.workload.tasks {
        task.affinity = on_cpu(0);
    }
    for scheduler in ["eevdf", "cache-aware", "topology-aware"] {
        let events = events(&scene, scheduler, Some(MS));
        let found = samples(&events, 0);
        assert!(found.len() > 50);
        for (at, lags) in &found {
            let sum: i64 = lags.iter().sum();
            assert!(sum <= 0 && sum > -(lags.len() as i64), "{scheduler} at {at:?}: {lags:?}");
        }
        assert!(found.values().flatten().any(|lag| *lag > MS as i64), "{scheduler}: some wait for long");
    }
}

#[test]
fn the_smallest_virtual_runtime_of_spinning_tasks_is_where_the_queue_stands() {
    let mut scene = Scene::lasting(300 * MS);
    scene.task("spinner", spin()).instances = 6;
    for task in &mut scene.workload.tasks {
        task.affinity = on_cpu(0);
    }
    let events = events(&scene, "cfs", Some(MS));
    let found = samples(&events, 0);
    let whole: Vec<_> = found.values().filter(|values| values.len() == 6).collect();
    assert!(whole.len() > 50);
    assert!(whole.iter().all(|values| values.iter().min() == Some(&0)), "{whole:?}");
}
