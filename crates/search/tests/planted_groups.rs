//! Groups that were planted in workloads are found in recordings of their runs.
//!
//! Every mix has pairs, a pipeline, pools of workers with a lock each, two services that talk now and then, and threads of one process
//! that have nothing to do with each other. With unrelated load there are as many periodic threads more as CPUs, so that everybody waits
//! and is moved. The mixes differ in sizes, work and seeds.

mod mixes;

use mixes::{Mix, recorded};
use warmcore_options::MemoryChoice;
use warmcore_replay::history::histories;
use warmcore_replay::{Graph, Groups};
use warmcore_statistics::adjusted_rand_index;

const MIXES: u64 = 24;

/// How far what is found in a run is what was planted.
fn agreement(mix: &Mix, seed: u64) -> f64 {
    let machine = warmcore_topology::resolve("2s1n2l8c1t").unwrap();
    let (recording, chosen) = recorded(&mix.workload, &machine, seed, MemoryChoice::None);
    let groups = Groups::of(&Graph::of(&recording, &chosen, &histories(&recording, &chosen, None)));
    let threads: Vec<i32> = chosen.iter().copied().collect();
    let truth: Vec<u32> = threads.iter().map(|thread| mix.truth[&recording.threads[thread].name]).collect();
    adjusted_rand_index(&truth, &groups.labels(&threads))
}

fn agreements(load: u64) -> Vec<f64> {
    (0..MIXES).map(|seed| agreement(&Mix::of(seed, load), seed)).collect()
}

#[test]
fn planted_groups_are_found() {
    let clean = agreements(0);
    assert!(clean.iter().all(|agreement| *agreement >= 0.95), "{clean:.2?}");
}

#[test]
fn planted_groups_are_found_among_unrelated_load() {
    let loaded = agreements(32);
    assert!(loaded.iter().all(|agreement| *agreement >= 0.8), "{loaded:.2?}");
}
