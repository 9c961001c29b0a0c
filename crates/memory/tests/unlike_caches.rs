//! Machines whose caches differ: each is modelled with its own ways and its own rule of filling, whichever comes first.

use warmcore_memory::analytic::{MemoryEvent, Player, TaskSpec};
use warmcore_memory::exact::{Options, Simulation, TaskCounters, TaskSpec as ExactSpec};
use warmcore_memory::{Class, Profile};
use warmcore_topology::{CpuId, Machine, from_toml};

const MS: u64 = 1_000_000;

/// Two LLCs of two cores: the L1, the L2 and the LLC of the first and of the second pair.
fn machine(pairs: [[&str; 3]; 2]) -> Machine {
    let caches = pairs.iter().zip(["0-1", "2-3"]).map(|([l1, l2, llc], cpus)| {
        format!(
            "[[cache]]\nlevel = 1\nshared_by = \"core\"\ncpus = \"{cpus}\"\nlatency_ns = 1.5\n{l1}\n\
             [[cache]]\nlevel = 2\nshared_by = \"core\"\ncpus = \"{cpus}\"\nlatency_ns = 4.0\n{l2}\n\
             [[cache]]\nlevel = 3\nshared_by = \"llc\"\ncpus = \"{cpus}\"\nlatency_ns = 20.0\n{llc}\n"
        )
    });
    let text = format!(
        "name = \"m\"\n[topology]\nshape = \"1s1n2l2c1t\"\n{}[frequency]\nnominal_mhz = 2600\n[memory]\nlocal_ns = 100\n",
        caches.collect::<String>()
    );
    from_toml(&text).unwrap()
}

const L1: &str = "size = \"32KiB\"\nways = 8";
const L2: &str = "size = \"256KiB\"\nways = 8";
const LLC: &str = "size = \"2MiB\"\nways = 16";
const COMMON: [&str; 3] = [L1, L2, LLC];

/// What the second pair may have instead.
const OTHERS: [[&str; 3]; 4] = [
    [L1, L2, "size = \"2MiB\"\nways = 1"],
    [L1, L2, "size = \"2MiB\"\nways = 16\ninclusion = \"inclusive\""],
    [L1, "size = \"256KiB\"\nways = 1", LLC],
    ["size = \"16KiB\"\nways = 2", L2, LLC],
];

/// Sets that fit an L1, an L2 and an LLC nearly, and one that is shared and written.
fn profile() -> Profile {
    let mut classes = vec![
        Class::new("hot", 24 << 10, 0.2, 0.2),
        Class::new("warm", 180 << 10, 0.05, 0.2),
        Class::new("large", 1700 << 10, 0.02, 0.2),
        Class::new("shared", 64 << 10, 0.01, 0.3),
    ];
    classes[3].sharing = warmcore_memory::Sharing::Process;
    Profile::new("mix", 0.5, 4.0, classes)
}

/// Instructions and lines from memory of two tasks on the second pair.
fn analytic(machine: &Machine) -> Vec<f64> {
    let mut player = Player::new(machine, &[profile()]).unwrap();
    for task in 0..2 {
        player.add_task(&TaskSpec { profile: 0, process: 0, data: &[] });
        player.switch_in(CpuId(2 + task), task);
    }
    player.advance(30 * MS);
    let of = |task| {
        let counters = player.counters(task);
        [counters.instructions, counters.events[MemoryEvent::DramLocal as usize]]
    };
    (0..2).flat_map(of).collect()
}

fn exact(machine: &Machine) -> Vec<TaskCounters> {
    let specs = (0..2).map(|_| ExactSpec { profile: profile(), process: 0, data_group: None });
    let mut simulation = Simulation::new(machine, Options::default(), specs.collect()).unwrap();
    for task in 0..2 {
        simulation.place(task, Some(CpuId(2 + task as u32))).unwrap();
    }
    simulation.run_for(MS / 5);
    (0..2).map(|task| simulation.counters(task)).collect()
}

/// By what part two lists of numbers differ most.
fn apart(these: &[f64], those: &[f64]) -> f64 {
    these.iter().zip(those).map(|(this, that)| (this / that - 1.0).abs()).fold(0.0, f64::max)
}

#[test]
fn tasks_on_the_second_of_two_unlike_pairs_run_as_where_both_pairs_are_like_it() {
    let common = machine([COMMON, COMMON]);
    let (of_common, exact_of_common) = (analytic(&common), exact(&common));
    for other in OTHERS {
        let (unlike, alike) = (machine([COMMON, other]), machine([other, other]));
        // Changes below 1 % of the speed are passed over, and where these lie the nominal speed decides, that of the first pair.
        let rates = analytic(&unlike);
        let (error, effect) = (apart(&rates, &analytic(&alike)), apart(&rates, &of_common));
        assert!(error < 0.01 && 10.0 * error < effect, "{other:?}: {error} from the alike, {effect} from the common");
        assert_eq!(exact(&unlike), exact(&alike), "{other:?}, line by line");
        assert_ne!(exact(&unlike), exact_of_common, "{other:?} makes no difference, line by line");
    }
}
