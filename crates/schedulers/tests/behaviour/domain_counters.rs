//! What the fair class counts of its domains (`/proc/schedstat`), against the events of the same run.

use warmcore_kernel::Setup;
use warmcore_schedulers::{SchedulerSpec, simulate};
use warmcore_trace::schedstat::{Schedstat, domain_place};
use warmcore_trace::{Event, EventKind, MigrationKind, Sink};

use crate::support::*;

/// Twelve spinners and six sleepers, which begin on one LLC of four CPUs and spread over two.
fn scene() -> Scene {
    let mut scene = Scene::lasting(500 * MS);
    let spinners = scene.task("spinner", spin());
    (spinners.instances, spinners.affinity) = (12, on_cpus(0..4));
    scene.task("sleeper", forever([run_for(300 * US), sleep(MS)])).instances = 6;
    scene.bind(100 * MS, "spinner", warmcore_workload::Destination::Cpus(warmcore_workload::Affinity::All));
    scene
}

fn run(scheduler: &str, counted: bool) -> (Vec<Event>, Schedstat) {
    let scene = scene();
    let machine = warmcore_topology::resolve("1s1n2l4c2t").unwrap();
    let mut setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    setup.set_actions(&scene.actions).unwrap();
    setup.options.balance_details = counted;
    let mut events: Vec<Event> = Vec::new();
    let sink: &mut dyn Sink = &mut events;
    let outcome = simulate(&SchedulerSpec::parse(scheduler).unwrap(), &setup, Some(sink)).unwrap();
    events.retain(|event| !matches!(event.kind, EventKind::BalanceDetail { .. }));
    (events, Schedstat { timestamp: 0, cpus: outcome.domain_counters })
}

#[test]
fn what_domains_count_is_what_events_show() {
    for scheduler in ["eevdf", "cfs", "cache-aware"] {
        let (events, counted) = run(scheduler, true);
        let levels = counted.by_level();
        assert_eq!(
            levels.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["SMT", "MC", "PKG"],
            "{scheduler}"
        );
        let sum =
            |name: &str| levels.iter().map(|(_, values)| values[domain_place(name).unwrap()].unwrap()).sum::<u64>();
        let moved = |wanted: MigrationKind| {
            let moves =
                events.iter().filter(|event| matches!(event.kind, EventKind::Migrate { kind, .. } if kind == wanted));
            moves.count() as u64
        };
        let (balanced, pushed) = (moved(MigrationKind::Balance), moved(MigrationKind::Active));
        assert!(balanced > 0, "{scheduler}");
        let gained = ["busy", "idle", "newidle"].map(|kind| sum(&format!("{kind}_lb_gained"))).iter().sum::<u64>();
        // Tasks asleep in a queue that is balanced are counted, and do not move here.
        assert!(
            (balanced + pushed..=balanced + pushed + 20).contains(&gained),
            "{scheduler}: {gained} of {balanced} and {pushed}"
        );
        assert_eq!(sum("alb_pushed"), pushed, "{scheduler}");
        assert_eq!(sum("alb_count"), sum("alb_pushed") + sum("alb_failed"), "{scheduler}");
        for kind in ["busy", "idle", "newidle"] {
            let of = |what: &str| sum(&format!("{kind}_lb_{what}"));
            let fruitful = of("count") - of("balanced") - of("failed");
            assert!(fruitful <= of("gained") && of("nobusyq") + of("nobusyg") <= of("balanced"), "{scheduler} {kind}");
            assert!(of("count") > 0, "{scheduler} {kind}");
        }
    }
}

#[test]
fn a_run_that_counts_is_the_run_that_does_not() {
    for scheduler in ["eevdf", "cfs", "cache-aware"] {
        let (plain, nothing) = run(scheduler, false);
        assert_eq!(plain, run(scheduler, true).0, "{scheduler}");
        assert!(nothing.cpus.is_empty(), "{scheduler}");
    }
}
