//! Runs at both levels of the model, and what they count.

use warmcore_memory::Profile;
use warmcore_memory::analytic::{Counters, Player, TaskSpec};
use warmcore_memory::exact::{Live, LiveSpec, Options, Share};
use warmcore_topology::{CpuId, Machine};

pub const MS: u64 = 1_000_000;

/// Counters of a task of each process on each of the CPUs over `run_ns`, after `warm_ns`.
pub type Level = fn(&Machine, &Profile, &[(u32, u32)], u64, u64) -> Vec<Counters>;

fn in_the_mean(machine: &Machine, profile: &Profile, tasks: &[(u32, u32)], warm_ns: u64, run_ns: u64) -> Vec<Counters> {
    let mut player = Player::new(machine, std::slice::from_ref(profile)).unwrap();
    for (task, (cpu, process)) in tasks.iter().enumerate() {
        player.add_task(&TaskSpec { profile: 0, process: *process, data: &[] });
        player.switch_in(CpuId(*cpu), task as u32);
    }
    let now = |player: &Player| (0..tasks.len()).map(|task| player.counters(task as u32)).collect::<Vec<_>>();
    player.advance(warm_ns);
    let before = now(&player);
    player.advance(warm_ns + run_ns);
    now(&player).iter().zip(&before).map(|(now, before)| now.since(before)).collect()
}

/// Lets what is on the CPUs run; the time reached.
pub fn run(live: &mut Live, cpus: &[u32], from_ns: u64, ns: u64) -> u64 {
    for cpu in cpus {
        live.allot(CpuId(*cpu), Share { idle_ns: 0, useful_ns: ns, instructions: f64::INFINITY });
    }
    live.advance(from_ns + ns).unwrap();
    for cpu in cpus {
        live.done(CpuId(*cpu));
    }
    from_ns + ns
}

fn line_by_line(
    machine: &Machine,
    profile: &Profile,
    tasks: &[(u32, u32)],
    warm_ns: u64,
    run_ns: u64,
) -> Vec<Counters> {
    let options = Options { quantum_ns: 2_000, ..Options::default() };
    let mut live = Live::new(machine, options, std::slice::from_ref(profile)).unwrap();
    for (cpu, process) in tasks {
        let task = live.add_task(&LiveSpec { profile: 0, others: &[], process: *process, data: &[] }).unwrap();
        live.switch_in(CpuId(*cpu), task);
    }
    let cpus: Vec<u32> = tasks.iter().map(|(cpu, _)| *cpu).collect();
    let now = |live: &Live| (0..tasks.len()).map(|task| live.counters(task as u32)).collect::<Vec<_>>();
    let until = run(&mut live, &cpus, 0, warm_ns);
    let before = now(&live);
    run(&mut live, &cpus, until, run_ns);
    now(&live).iter().zip(&before).map(|(now, before)| now.since(before)).collect()
}

/// In the mean, and line by line.
pub const LEVELS: [Level; 2] = [in_the_mean, line_by_line];

#[track_caller]
pub fn close(value: f64, expected: f64, part: f64) {
    assert!((value - expected).abs() <= part * expected, "{value}, not {expected} within {part}");
}
