//! How far placement reaches on every machine that there is.

use std::collections::BTreeSet;

use warmcore_topology::{Machine, NodeId, presets, resolve};

use crate::support::*;

/// Nodes that have run something, of spinners that are more than a socket has CPUs, and too few for the machine.
fn nodes_used(machine: &Machine, scheduler: &str) -> BTreeSet<NodeId> {
    let spinners = machine.cpu_count() * 3 / 4;
    let largest = machine.sockets().map(|socket| machine.cpus_of_socket(socket).len()).max().unwrap_or(0);
    assert!(machine.socket_count() == 1 || spinners > largest, "{}", machine.name());
    let mut scene = Scene::lasting(100 * MS);
    scene.task("spinner", spin()).instances = spinners as u32;
    let run = scene.run(machine.name(), scheduler);
    let switched = run.events.iter().filter_map(|event| match event.kind {
        warmcore_trace::EventKind::Switch { next, .. } if !next.is_idle() => Some(event.cpu),
        _ => None,
    });
    let used: BTreeSet<_> = switched.collect();
    // Beyond the reclaim distance balancing alone reaches, in more time than this.
    let reaches = machine.socket_count() == 1 || another_socket_is_near(machine);
    assert!(
        !reaches || used.len() >= spinners * 99 / 100,
        "{scheduler} on {}: {} CPUs for {spinners}",
        machine.name(),
        used.len()
    );
    used.into_iter().map(|cpu| machine.node_of(cpu)).collect()
}

fn another_socket_is_near(machine: &Machine) -> bool {
    let first = |node| machine.cpus_of_node(node).first().map(|cpu| machine.socket_of(cpu));
    let near = |a, b| first(a) != first(b) && machine.node_distance(a, b) <= machine.reclaim_distance();
    machine.nodes().any(|a| machine.nodes().any(|b| near(a, b)))
}

/// Half of a machine is idle where its sockets count as out of reach and do not.
#[test]
fn no_machine_leaves_a_node_idle_that_is_near_while_spinners_share_cpus() {
    for preset in presets() {
        let machine = resolve(&preset.name).unwrap();
        let used = nodes_used(&machine, "eevdf");
        let distance = |a: NodeId, b: NodeId| machine.node_distance(a, b);
        let near = |a: NodeId| machine.nodes().all(|b| distance(a, b) <= machine.reclaim_distance());
        let missing: Vec<NodeId> = machine.nodes().filter(|node| near(*node) && !used.contains(node)).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", preset.name);
        let summary = machine.summary();
        if ["EPYC", "Hygon", "Opteron", "Xeon"].iter().any(|make| summary.contains(make)) {
            assert_eq!(used.len(), machine.node_count(), "{}", preset.name);
        }
    }
}

#[test]
fn every_policy_of_the_fair_class_reaches_the_other_socket_of_an_epyc() {
    let machine = resolve("naples32").unwrap();
    assert!(another_socket_is_near(&machine) && !another_socket_is_near(&resolve("grace144").unwrap()));
    for scheduler in ["cfs", "cache-aware", "topology-aware"] {
        assert_eq!(nodes_used(&machine, scheduler).len(), 8, "{scheduler}");
    }
}

/// Its kernel is older than what it knows of Zen.
#[test]
fn linux_4_9_leaves_the_other_socket_of_an_epyc_to_balancing() {
    let machine = resolve("2s1n2l4c1t@naples32").unwrap();
    let mut scene = Scene::lasting(20 * MS);
    scene.task("spinner", spin()).instances = 8;
    let begins = |scheduler: &str| {
        let run = scene.run(machine.name(), scheduler);
        let first = |n: u32| machine.node_of(warmcore_topology::CpuId(run.stays(&format!("spinner-{n}"))[0].cpu));
        (0..8).map(first).collect::<BTreeSet<_>>().len()
    };
    assert_eq!((begins("cfs:kernel=4.9"), begins("cfs")), (1, 2));
}
