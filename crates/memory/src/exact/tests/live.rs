use warmcore_topology::{CpuId, resolve};
use warmcore_trace::{MemoryEvent, TimeShare};

use super::tiny_machine;
use crate::exact::{Done, ExactError, Live, LiveSpec, Options, Share};
use crate::library;
use crate::profile::{Class, Profile, Sharing};

const MS: u64 = 1_000_000;

fn profile(classes: Vec<Class>) -> Profile {
    Profile::new("p", 0.5, 2.0, classes)
}

fn spec(profile: usize) -> LiveSpec<'static> {
    LiveSpec { profile, others: &[], process: 0, data: &[] }
}

fn live(machine: &str, profiles: &[Profile]) -> Live {
    let machine = resolve(machine).unwrap();
    Live::new(&machine, Options::default(), profiles).unwrap()
}

/// Lets the CPU's task run from one time to another.
fn run(live: &mut Live, cpu: CpuId, from_ns: u64, until_ns: u64) -> Done {
    live.allot(cpu, Share { idle_ns: 0, useful_ns: until_ns - from_ns, instructions: f64::INFINITY });
    live.advance(until_ns).unwrap();
    live.done(cpu)
}

#[test]
fn a_lone_warm_task_runs_at_nominal_speed() {
    for name in ["perlbench", "hackbench", "spin"] {
        let mut live = live("2s1n2l4c2t", &[library::find(name).unwrap().clone()]);
        let task = live.add_task(&spec(0)).unwrap();
        live.switch_in(CpuId(0), task);
        run(&mut live, CpuId(0), 0, 12 * MS);
        let done = run(&mut live, CpuId(0), 12 * MS, 16 * MS);
        let speed = done.instructions / (4 * MS) as f64 / live.nominal_rate(0);
        assert!((speed - 1.0).abs() < 0.08, "{name}: {speed}");
    }
}

#[test]
fn work_is_done_to_the_instruction_and_takes_the_time_that_it_takes_at_once() {
    let profiles = [profile(vec![Class::new("c", 4_000, 0.3, 0.2)])];
    let mut whole = live("1s1n1l2c1t", &profiles);
    let mut pieces = live("1s1n1l2c1t", &profiles);
    for live in [&mut whole, &mut pieces] {
        let task = live.add_task(&spec(0)).unwrap();
        live.switch_in(CpuId(0), task);
    }
    whole.allot(CpuId(0), Share { idle_ns: 0, useful_ns: MS, instructions: 100_000.0 });
    whole.advance(MS).unwrap();
    let at_once = whole.done(CpuId(0));
    assert!(at_once.all && at_once.instructions == 100_000.0);
    let (mut now_ns, mut took_ns) = (0, 0);
    for _ in 0..1_000 {
        pieces.allot(CpuId(0), Share { idle_ns: 500, useful_ns: 500, instructions: 100.0 });
        now_ns += 1_000;
        pieces.advance(now_ns).unwrap();
        let done = pieces.done(CpuId(0));
        assert!(done.all && done.instructions == 100.0, "{done:?}");
        took_ns += done.took_ns;
    }
    // Every piece's time is rounded up to a nanosecond, and to a touch.
    assert!((at_once.took_ns..at_once.took_ns + 2_000).contains(&took_ns), "{took_ns}, not {}", at_once.took_ns);
    assert_eq!(pieces.done(CpuId(0)), Done::default(), "told once");
    let ahead = pieces.counters(0).instructions - 100_000.0;
    assert!((0.0..4.0).contains(&ahead), "at most a touch more than asked: {ahead}");
}

#[test]
fn shares_of_time_add_up_to_the_time_on_a_cpu_and_of_a_cpu_to_its_tasks() {
    let names = ["verilator", "nas-mg"];
    let mut live = live("2s1n2l4c2t", &names.map(|name| library::find(name).unwrap().clone()));
    let tasks = [0, 1].map(|profile| live.add_task(&spec(profile)).unwrap());
    for (cpu, task) in [(CpuId(0), tasks[0]), (CpuId(1), tasks[1])] {
        live.switch_in(cpu, task);
        live.allot(cpu, Share { idle_ns: 0, useful_ns: MS, instructions: f64::INFINITY });
    }
    live.advance(MS).unwrap();
    for (cpu, task) in [(CpuId(0), tasks[0]), (CpuId(1), tasks[1])] {
        live.done(cpu);
        let counters = live.counters(task);
        // Who began a block of touches ends it.
        assert!((counters.total_ns() / MS as f64 - 1.0).abs() < 0.01, "{}", counters.total_ns());
        live.switch_out(cpu);
        assert_eq!(live.cpu_counters(cpu), counters);
    }
    live.switch_in(CpuId(0), tasks[1]);
    run(&mut live, CpuId(0), MS, 2 * MS);
    let both = live.cpu_counters(CpuId(0)).instructions + live.cpu_counters(CpuId(1)).instructions;
    let of_tasks = live.counters(tasks[0]).instructions + live.counters(tasks[1]).instructions;
    assert!((both / of_tasks - 1.0).abs() < 1e-9, "{both}, {of_tasks}");
}

#[test]
fn a_task_that_moves_between_caches_fetches_its_lines_from_where_it_was() {
    let machine = tiny_machine("1s1n2l2c1t");
    let profiles = [profile(vec![Class::new("c", 2_000, 0.3, 0.5)])];
    let mut live = Live::new(&machine, Options::default(), &profiles).unwrap();
    let task = live.add_task(&spec(0)).unwrap();
    live.switch_in(CpuId(0), task);
    run(&mut live, CpuId(0), 0, MS);
    assert_eq!(live.counters(task).events[MemoryEvent::C2cOtherLlc as usize], 0.0);
    live.switch_out(CpuId(0));
    live.switch_in(CpuId(2), task);
    run(&mut live, CpuId(2), MS, 2 * MS);
    let fetched = live.counters(task).events[MemoryEvent::C2cOtherLlc as usize];
    assert!((20.0..=2.0 * 2_000.0 / 64.0).contains(&fetched), "{fetched} of 32 lines");
}

#[test]
fn pages_that_come_to_another_node_are_read_from_there() {
    let mut live = live("2s1n1l2c1t", &[profile(vec![Class::new("c", 256 << 20, 0.1, 0.1)])]);
    let task = live.add_task(&spec(0)).unwrap();
    live.switch_in(CpuId(0), task);
    run(&mut live, CpuId(0), 0, MS);
    let remote = |live: &Live| live.counters(task).events[MemoryEvent::DramRemote as usize];
    let local = |live: &Live| live.counters(task).events[MemoryEvent::DramLocal as usize];
    assert!(remote(&live) == 0.0 && local(&live) > 1_000.0);
    live.set_home(task, None, &[0.0, 1.0]);
    let before = local(&live);
    run(&mut live, CpuId(0), MS, 2 * MS);
    assert!(local(&live) == before && remote(&live) > 500.0, "{} {}", local(&live), remote(&live));
    assert!(live.counters(task).time_ns[TimeShare::DramRemote as usize] > 0.0);
}

#[test]
fn a_task_keeps_its_lines_through_a_phase_with_another_profile() {
    let profiles = [
        profile(vec![Class::new("mine", 200_000, 0.3, 0.0)]),
        profile(vec![Class::new("phase", 256, 0.3, 0.0), Class::new("mine", 200_000, 0.001, 0.0)]),
    ];
    let mut live = live("1s1n1l1c1t", &profiles);
    let task = live.add_task(&LiveSpec { others: &[1], ..spec(0) }).unwrap();
    live.switch_in(CpuId(0), task);
    run(&mut live, CpuId(0), 0, MS);
    let misses = |live: &Live| live.counters(task).events[MemoryEvent::DramLocal as usize];
    let first = misses(&live);
    assert!((3_120.0..3_300.0).contains(&first), "the class has 3125 lines: {first}");
    live.set_profile(task, 1);
    run(&mut live, CpuId(0), MS, 2 * MS);
    live.set_profile(task, 0);
    run(&mut live, CpuId(0), 2 * MS, 3 * MS);
    assert!(misses(&live) < first + 100.0, "they were there: {}", misses(&live));
}

#[test]
fn threads_of_a_process_share_what_is_shared_and_others_do_not() {
    let shared = Class { sharing: Sharing::Process, ..Class::new("s", 512, 0.3, 0.5) };
    let profiles = [profile(vec![shared])];
    let transfers = |processes: [u32; 2]| {
        let mut live = live("1s1n1l2c1t", &profiles);
        for (cpu, process) in processes.into_iter().enumerate() {
            let task = live.add_task(&LiveSpec { process, ..spec(0) }).unwrap();
            live.switch_in(CpuId(cpu as u32), task);
            live.allot(CpuId(cpu as u32), Share { idle_ns: 0, useful_ns: MS, instructions: f64::INFINITY });
        }
        live.advance(MS).unwrap();
        live.counters(0).events[MemoryEvent::C2cSameLlc as usize]
    };
    assert!(transfers([0, 0]) > 1_000.0);
    assert_eq!(transfers([0, 1]), 0.0);
}

#[test]
fn lines_of_tasks_that_are_gone_are_used_again_and_what_does_not_fit_is_refused() {
    let shared = Class { sharing: Sharing::Process, ..Class::new("s", 8 << 30, 0.3, 0.5) };
    let mut live = live("1s1n4l4c1t", &[profile(vec![Class::new("c", 1 << 20, 0.1, 0.1)]), profile(vec![shared])]);
    for _ in 0..20_000 {
        let task = live.add_task(&spec(0)).unwrap();
        live.remove_task(task);
    }
    let refused = live.add_task(&spec(1));
    let Err(ExactError::Room { gib: 16, most_gib: 6, .. }) = refused else { panic!("{refused:?}") };
}
