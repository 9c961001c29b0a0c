//! Same input, same events; and where the order of creation must not matter, it does not.

use warmcore_workload::{ChannelKind, Step};

use crate::support::*;

const ALL: [&str; 8] = ["eevdf", "topology-aware", "cache-aware", "cfs", "cfs:balance_by_load=1", "fifo", "rr", "ule"];

/// Tasks of all sorts, more than there are CPUs.
fn mixture() -> Scene {
    let mut scene = Scene::lasting(500 * MS);
    scene.task("spinner", spin()).instances = 12;
    scene.task("periodic", forever([run_for(400 * US), sleep(1_600 * US)])).instances = 24;
    let other = scene.application("other");
    for pair in 0..6 {
        let channels = [0, 1].map(|_| scene.workload.add_channel("pipe", ChannelKind::Pipe, 4096));
        let turn = |mine: usize| {
            let [to, from] = [channels[mine], channels[1 - mine]];
            [Step::Send { channel: to, bytes: 8 }, Step::Receive { channel: from, bytes: 8 }, run_for(20 * US)]
        };
        scene.task(&format!("ping {pair}"), forever(turn(0))).process = other;
        scene.task(&format!("pong {pair}"), forever(turn(1))).process = other;
    }
    scene
}

#[test]
fn equal_seeds_give_equal_events_and_others_do_not() {
    let scene = mixture();
    for scheduler in ALL {
        let run = |seed| scene.run_with_seed("2s1n2l4c2t", scheduler, seed);
        let (first, again, other) = (run(7), run(7), run(8));
        assert!(first.events == again.events, "{scheduler}");
        assert_eq!(format!("{:?}", first.outcome), format!("{:?}", again.outcome), "{scheduler}");
        if !["fifo", "rr"].contains(&scheduler) {
            assert!(first.events != other.events, "{scheduler}: tick phases come from the seed");
        }
    }
}

/// Each task is bound to a CPU of its own kind and starts at a time of its own, so neither ids nor table order may decide anything:
/// times on CPU are the same to the nanosecond.
#[test]
fn the_order_of_tasks_in_the_table_does_not_matter_where_starts_differ() {
    let scene = |order: &[u64]| {
        let mut scene = Scene::lasting(S);
        for &n in order {
            let program = match n % 3 {
                0 => spin(),
                1 => forever([run_for(300 * US + n * US), sleep(MS)]),
                _ => forever([run_for(2 * MS), Step::Yield]),
            };
            let task = scene.task(&format!("task {n}"), program);
            (task.start_ns, task.nice, task.affinity) = (n * MS, (n % 5) as i8, on_cpu(n as u32 % 4));
        }
        scene
    };
    let forward: Vec<u64> = (0..20).collect();
    let shuffled: Vec<u64> = (0..20).map(|n| n * 7 % 20).collect();
    for scheduler in ALL {
        let [a, b] = [&forward, &shuffled].map(|order| scene(order).run("1s1n1l4c1t", scheduler));
        for n in 0..20 {
            let name = format!("task {n}");
            assert_eq!(a.cpu_time(&name), b.cpu_time(&name), "{scheduler}, {name}");
            assert_eq!(a.stays(&name), b.stays(&name), "{scheduler}, {name}");
        }
    }
}

/// All start at once on one CPU: the order decides who comes first, but not what anybody gets in the end (± one slice).
#[test]
fn the_order_of_equal_tasks_decides_turns_but_not_totals() {
    let scene = |order: [i8; 6]| {
        let mut scene = Scene::lasting(10 * S);
        for nice in order {
            let task = scene.task(&format!("nice {nice}"), spin());
            (task.nice, task.affinity) = (nice, on_cpu(0));
        }
        scene
    };
    for scheduler in ["eevdf", "cfs"] {
        let a = scene([0, 1, 2, 3, 4, 5]).run("1s1n1l8c1t", scheduler);
        let b = scene([4, 2, 5, 0, 3, 1]).run("1s1n1l8c1t", scheduler);
        for nice in 0..6 {
            let name = format!("nice {nice}");
            let (a, b) = (a.cpu_time(&name), b.cpu_time(&name));
            assert!(a.abs_diff(b) <= 24 * MS, "{scheduler}, {name}: {a} and {b}");
        }
    }
}
