//! Limits of bandwidth: of a cluster of cores and of one core, at both levels, and of the nodes of a socket that is split. Known
//! answers, and what must always hold.

use warmcore_memory::analytic::{MemoryEvent, Player, TaskSpec};
use warmcore_memory::exact::{Options, Simulation, TaskSpec as ExactSpec};
use warmcore_memory::{Class, Profile};
use warmcore_topology::{CpuId, Machine, from_toml, resolve};

const MS: u64 = 1_000_000;

/// Cores of the machine and of a cluster.
const CORES: u32 = 24;
const CLUSTER: u32 = 4;

/// 24 cores in six clusters under one LLC, two hardware threads each, whose memory gives 80 GB/s.
fn machine(limits: &str) -> Machine {
    let text = format!(
        "name = \"m\"\n[topology]\nshape = \"1s1n1l24c2t\"\ncores_per_cluster = 4\n\
         [[cache]]\nlevel = 1\nsize = \"32KiB\"\nways = 8\nlatency_ns = 1.5\n\
         [[cache]]\nlevel = 2\nshared_by = \"core\"\nsize = \"256KiB\"\nways = 8\nlatency_ns = 4.0\n\
         [[cache]]\nlevel = 3\nsize = \"2MiB\"\nways = 16\nlatency_ns = 30.0\n\
         [frequency]\nnominal_mhz = 2600\n[memory]\nlocal_ns = 100\nsocket_read_gb_per_s = 80\n{limits}"
    );
    from_toml(&text).unwrap()
}

/// Reads from memory and nothing else; one alone reads some 13 GB/s.
fn stream() -> Profile {
    Profile::new("stream", 0.5, 30.0, vec![Class::new("array", 300 << 20, 0.1, 0.0)])
}

/// GB/s that each of the streams on these CPUs reads, when caches and loads have settled.
fn analytic(machine: &Machine, cpus: &[u32]) -> Vec<f64> {
    let mut player = Player::new(machine, &[stream()]).unwrap();
    for (task, cpu) in cpus.iter().enumerate() {
        player.add_task(&TaskSpec { profile: 0, process: task as u32, data: &[] });
        player.switch_in(CpuId(*cpu), task as u32);
    }
    let lines = |player: &Player| -> Vec<f64> {
        (0..cpus.len()).map(|task| player.counters(task as u32).events[MemoryEvent::DramLocal as usize]).collect()
    };
    player.advance(20 * MS);
    let before = lines(&player);
    player.advance(40 * MS);
    lines(&player).iter().zip(before).map(|(after, before)| (after - before) * 64.0 / (20.0 * MS as f64)).collect()
}

/// The same at the exact level.
fn exact(machine: &Machine, cpus: &[u32]) -> Vec<f64> {
    let specs = (0..cpus.len()).map(|task| ExactSpec { profile: stream(), process: task as u32, data_group: None });
    let mut simulation = Simulation::new(machine, Options::default(), specs.collect()).unwrap();
    for (task, cpu) in cpus.iter().enumerate() {
        simulation.place(task, Some(CpuId(*cpu))).unwrap();
    }
    let lines = |simulation: &Simulation| -> Vec<u64> {
        (0..cpus.len()).map(|task| simulation.counters(task).total().dram_local).collect()
    };
    simulation.run_for(MS / 2);
    let before = lines(&simulation);
    simulation.run_for(MS / 2);
    lines(&simulation).iter().zip(before).map(|(after, before)| (after - before) as f64 * 64.0 / 5e5).collect()
}

fn close(value: f64, expected: f64, part: f64) -> bool {
    (value / expected - 1.0).abs() <= part
}

#[test]
fn four_streams_in_a_cluster_get_a_quarter_each_of_what_its_port_carries() {
    let limited = machine("cluster_port_gb_per_s = 20");
    for (level, part) in [(analytic as fn(&Machine, &[u32]) -> Vec<f64>, 0.01), (exact, 0.03)] {
        let together = level(&limited, &[0, 1, 2, 3]);
        assert!(together.iter().all(|rate| close(*rate, 5.0, part)), "{together:?}");
        let elsewhere = level(&limited, &[20, 21, 22, 23]);
        assert!(elsewhere.iter().all(|rate| close(*rate, 5.0, part)), "{elsewhere:?}");
        let two = level(&limited, &[0, 1, 4, 5]);
        assert!(two.iter().all(|rate| *rate > 7.0 && *rate < 10.1), "two share 20 GB/s: {two:?}");
        let free = level(&machine(""), &[0, 1, 2, 3]);
        assert!(free.iter().all(|rate| *rate > 10.0), "{free:?}");
    }
}

#[test]
fn two_siblings_share_what_the_port_of_their_core_carries() {
    let limited = machine("core_port_gb_per_s = 4");
    for (level, part) in [(analytic as fn(&Machine, &[u32]) -> Vec<f64>, 0.01), (exact, 0.03)] {
        let siblings = level(&limited, &[0, CORES]);
        assert!(siblings.iter().all(|rate| close(*rate, 2.0, part)), "{siblings:?}");
        let apart = level(&limited, &[0, 1]);
        assert!(apart.iter().all(|rate| close(*rate, 4.0, part)), "{apart:?}");
    }
}

/// Memory that was idle is as narrow for tasks that wake together as for those that never sleep: 16 streams that would read 13 GB/s each
/// get 80 GB/s together in each of ten bursts of half a millisecond.
#[test]
fn streams_that_wake_get_no_more_than_memory_gives() {
    let machine = machine("");
    let mut player = Player::new(&machine, &[stream()]).unwrap();
    for task in 0..16 {
        player.add_task(&TaskSpec { profile: 0, process: task, data: &[] });
    }
    for burst in 0..10 {
        player.advance(burst * MS);
        (0..16).for_each(|task| player.switch_in(CpuId(task), task));
        player.advance(burst * MS + MS / 2);
        (0..16).for_each(|task| player.switch_out(CpuId(task)));
    }
    let lines: f64 = (0..16).map(|task| player.counters(task).events[MemoryEvent::DramLocal as usize]).sum();
    let rate = lines * 64.0 / (10.0 * MS as f64 / 2.0);
    assert!((70.0..82.0).contains(&rate), "{rate} GB/s");
}

#[test]
fn a_stream_that_moves_to_a_free_cluster_leaves_the_others_their_port() {
    let limited = machine("cluster_port_gb_per_s = 10");
    let mut player = Player::new(&limited, &[stream()]).unwrap();
    for task in 0..3 {
        player.add_task(&TaskSpec { profile: 0, process: task, data: &[] });
        player.switch_in(CpuId(task), task);
    }
    player.advance(20 * MS);
    player.switch_out(CpuId(2));
    player.switch_in(CpuId(4), 2);
    player.advance(40 * MS);
    let before: Vec<_> = (0..3).map(|task| player.counters(task).events[MemoryEvent::DramLocal as usize]).collect();
    player.advance(60 * MS);
    let rates: Vec<f64> = before
        .iter()
        .enumerate()
        .map(|(task, before)| player.counters(task as u32).events[MemoryEvent::DramLocal as usize] - before)
        .map(|lines| lines * 64.0 / (20.0 * MS as f64))
        .collect();
    assert!(close(rates[0], 5.0, 0.02) && close(rates[1], 5.0, 0.02) && rates[2] > 8.0, "{rates:?}");
}

/// Two nodes of one socket with four cores each, memory of 40 GB/s each.
fn two_nodes(limits: &str) -> Machine {
    let text = format!(
        "name = \"m\"\n[topology]\nshape = \"1s2n1l4c1t\"\n\
         [[cache]]\nlevel = 1\nsize = \"32KiB\"\nways = 8\nlatency_ns = 1.5\n\
         [[cache]]\nlevel = 2\nshared_by = \"core\"\nsize = \"256KiB\"\nways = 8\nlatency_ns = 4.0\n\
         [[cache]]\nlevel = 3\nsize = \"2MiB\"\nways = 16\nlatency_ns = 30.0\n\
         [frequency]\nnominal_mhz = 2600\n[memory]\nlocal_ns = 100\nsame_socket_ns = 130\nsocket_read_gb_per_s = 80\n{limits}"
    );
    from_toml(&text).unwrap()
}

/// GB/s that streams on the first node read together whose data lie on the second, where they began.
fn across(machine: &Machine, exactly: bool) -> f64 {
    let profile = || Profile { classes: vec![Class::new("array", 16 << 20, 0.1, 0.0)], ..stream() };
    let (home, here) = ([4, 5, 6, 7].map(CpuId), [0, 1, 2, 3].map(CpuId));
    if exactly {
        let specs = (0..4).map(|process| ExactSpec { profile: profile(), process, data_group: None });
        let options = Options { follow_migrations: true, ..Options::default() };
        let mut simulation = Simulation::new(machine, options, specs.collect()).unwrap();
        let put = |simulation: &mut Simulation, cpus: [CpuId; 4]| {
            (0..4).for_each(|task| simulation.place(task, None).unwrap());
            (0..4).for_each(|task| simulation.place(task, Some(cpus[task])).unwrap());
        };
        let lines = |simulation: &Simulation| -> u64 {
            (0..4).map(|task| simulation.counters(task).total()).map(|all| all.dram_local + all.dram_remote).sum()
        };
        put(&mut simulation, home);
        simulation.run_for(6 * MS);
        put(&mut simulation, here);
        simulation.run_for(MS / 2);
        let before = lines(&simulation);
        simulation.run_for(MS / 2);
        return (lines(&simulation) - before) as f64 * 64.0 / 5e5;
    }
    let mut player = Player::new(machine, &[profile()]).unwrap();
    for (task, cpu) in home.into_iter().enumerate() {
        player.add_task(&TaskSpec { profile: 0, process: task as u32, data: &[] });
        player.switch_in(cpu, task as u32);
    }
    player.advance(20 * MS);
    home.into_iter().for_each(|cpu| player.switch_out(cpu));
    here.into_iter().enumerate().for_each(|(task, cpu)| player.switch_in(cpu, task as u32));
    let lines = |player: &Player| -> f64 {
        let of = |event: MemoryEvent| (0..4).map(|task| player.counters(task).events[event as usize]).sum::<f64>();
        of(MemoryEvent::DramLocal) + of(MemoryEvent::DramRemote)
    };
    player.advance(40 * MS);
    let before = lines(&player);
    player.advance(60 * MS);
    (lines(&player) - before) * 64.0 / (20.0 * MS as f64)
}

#[test]
fn streams_that_read_another_node_of_their_socket_get_what_the_link_carries() {
    for (exactly, part) in [(false, 0.02), (true, 0.05)] {
        let limited = across(&two_nodes("node_link_gb_per_s = 10"), exactly);
        assert!(close(limited, 10.0, part), "exact {exactly}: {limited} GB/s");
        let free = across(&two_nodes(""), exactly);
        assert!(free > 25.0, "exact {exactly}: {free} GB/s without a limit");
        assert_eq!(across(&two_nodes("node_link_gb_per_s = \"unlimited\""), exactly), free);
    }
}

/// Small numbers from a fixed sequence.
struct Lot(u64);

impl Lot {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }

    /// Different CPUs, without siblings.
    fn cpus(&mut self, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..CORES).collect();
        (0..count).map(|_| all.swap_remove(self.below(all.len() as u32) as usize)).collect()
    }
}

/// Of equal streams together and of the slowest one: without a limit one in a free cluster may well be slower, since the others
/// then leave less of the memory.
#[test]
fn limits_slow_down_and_never_speed_up() {
    let mut lot = Lot(1);
    let free = machine("");
    for _ in 0..24 {
        let count = 1 + lot.below(12) as usize;
        let cpus = lot.cpus(count);
        let (cluster, core) = (4 + lot.below(40), 1 + lot.below(16));
        let limits = match lot.below(3) {
            0 => format!("cluster_port_gb_per_s = {cluster}"),
            1 => format!("core_port_gb_per_s = {core}"),
            _ => format!("cluster_port_gb_per_s = {cluster}\ncore_port_gb_per_s = {}", core.min(cluster)),
        };
        let (with, without) = (analytic(&machine(&limits), &cpus), analytic(&free, &cpus));
        let sums = [&with, &without].map(|rates| rates.iter().sum::<f64>());
        let slowest = [&with, &without].map(|rates| rates.iter().copied().fold(f64::INFINITY, f64::min));
        assert!(
            sums[0] <= 1.005 * sums[1] && slowest[0] <= 1.005 * slowest[1],
            "{limits}, {cpus:?}: {with:?} {without:?}"
        );
        for group in 0..CORES / CLUSTER {
            let used: f64 =
                cpus.iter().zip(&with).filter(|(cpu, _)| *cpu / CLUSTER == group).map(|(_, rate)| rate).sum();
            assert!(!limits.contains("cluster") || used <= 1.01 * f64::from(cluster), "{limits}, {cpus:?}: {with:?}");
        }
    }
}

#[test]
fn streams_over_more_clusters_are_no_slower() {
    let mut lot = Lot(2);
    for _ in 0..12 {
        let limited = machine(&format!("cluster_port_gb_per_s = {}", 4 + lot.below(40)));
        let count = 2 + lot.below(11);
        let mut before = 0.0;
        for clusters in count.div_ceil(CLUSTER)..=CORES / CLUSTER {
            // One after the other to each cluster.
            let cpus: Vec<u32> = (0..count).map(|task| task % clusters * CLUSTER + task / clusters).collect();
            let sum: f64 = analytic(&limited, &cpus).iter().sum();
            assert!(sum >= 0.995 * before, "{count} streams over {clusters} clusters: {sum} after {before}");
            before = sum;
        }
    }
}

/// Memory Latency Checker on two Xeon 8468 in SNC4 (`docs/spec/memory-model.md` source S8): the threads of one node read 61.4 to
/// 61.7 GB/s from its own memory, and all together 491.9 GB/s.
#[test]
fn a_quarter_of_a_socket_in_snc4_has_a_quarter_of_its_memory() {
    let split = resolve("spr48-snc4").unwrap();
    let threads = |node: u32| (0..12).flat_map(move |core| [node * 12 + core, 96 + node * 12 + core]);
    let one: f64 = analytic(&split, &threads(0).collect::<Vec<u32>>()).iter().sum();
    assert!(close(one, 61.5, 0.01), "{one} GB/s of one node");
    let all: f64 = analytic(&split, &(0..192).collect::<Vec<u32>>()).iter().sum();
    assert!(close(all, 491.9, 0.01), "{all} GB/s of eight nodes");
    // The same threads where the socket is one node read from all of its channels.
    let whole = resolve("2s1n1l48c2t@spr48-snc4").unwrap();
    let quarter: f64 = analytic(&whole, &threads(0).collect::<Vec<u32>>()).iter().sum();
    assert!(quarter > 2.0 * one && quarter < 246.0, "{quarter} GB/s of a quarter of the threads");
}
