//! Where the time went, of real runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::time_split;
use warmcore_lab::trial::Trial;
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::{Affinity, Latch, ProgramBuilder, Step, Task, Workload};

fn run(machine: &str, workload: &str, memory: MemoryChoice) -> Trial {
    run_under("eevdf", machine, workload, memory)
}

fn run_under(scheduler: &str, machine: &str, workload: &str, memory: MemoryChoice) -> Trial {
    run_workload(scheduler, machine, workload_of(workload), memory, 7)
}

fn run_workload(scheduler: &str, machine: &str, workload: Workload, memory: MemoryChoice, seed: u64) -> Trial {
    let machine = Named { source: machine.into(), value: warmcore_topology::resolve(machine).unwrap() };
    let built = Experiment::builder(machine, Named { source: "w".into(), value: workload })
        .schedulers(vec![SchedulerSpec::parse(scheduler).unwrap()])
        .seeds(vec![seed])
        .memory(Some(memory))
        .build()
        .unwrap();
    let conduct = Conduct { jobs: 1, stop: Arc::new(AtomicBool::new(false)), progress: &|_| {} };
    let mut finished = runner::run(&built.experiment, None, &conduct).unwrap();
    finished.trials.remove(0).remove(0)
}

fn workload_of(text: &str) -> Workload {
    if text.starts_with('{') {
        warmcore_workload::from_rtapp("w", text, &warmcore_workload::Options::default()).unwrap()
    } else {
        warmcore_workload::from_generator(text).unwrap()
    }
}

/// Eight sharing threads on the given CPUs, with a second of work each.
fn sharing(cpus: &str) -> String {
    format!(
        r#"{{ "tasks": {{ "t": {{ "instance": 8, "loop": 1, "run": 1000000, "cpus": {cpus} }} }},
             "warmcore": {{ "tasks": {{ "t": {{ "profile": "verilator" }} }} }} }}"#
    )
}

/// How long tasks existed in what counts of the trial.
fn lifetimes(trial: &Trial) -> f64 {
    let from_ns = |started_ns: u64| started_ns.max(trial.warm_up_ns);
    let tasks = trial.tasks.iter();
    tasks.map(|task| task.exited_ns.unwrap_or(trial.elapsed_ns).saturating_sub(from_ns(task.started_ns)) as f64).sum()
}

#[test]
fn the_causes_of_any_run_add_up_to_the_tasks_lifetimes() {
    let shared = sharing("[0,1,2,3]");
    for workload in ["hackbench:-p,-T,-g2,-f4,-l50", "schbench:-m1,-t8,-r1", "spin:-n20,-d200ms", shared.as_str()] {
        for memory in [MemoryChoice::None, MemoryChoice::Analytic] {
            let trial = run("2s1n2l4c2t", workload, memory);
            assert_eq!(trial.warm_up_ns > 0, workload.starts_with("schbench"), "a percentile has a warm-up");
            let sum: f64 = trial.time_ns.values().sum();
            let lifetimes = lifetimes(&trial);
            assert!((sum / lifetimes - 1.0).abs() < 1e-3, "{workload}, {memory:?}: {sum} of {lifetimes} ns");
            assert!(trial.time_ns.values().all(|ns| *ns >= 0.0), "{workload}, {memory:?}: {:?}", trial.time_ns);
        }
    }
}

#[test]
fn a_lone_task_takes_as_long_with_a_memory_model_as_without() {
    let workload = r#"{ "tasks": { "t": { "loop": 1, "run": 2000000 } },
        "warmcore": { "tasks": { "t": { "profile": "hackbench" } } } }"#;
    let constant = run("spr32", workload, MemoryChoice::None).elapsed_ns as f64;
    let analytic = run("spr32", workload, MemoryChoice::Analytic).elapsed_ns as f64;
    assert!((analytic / constant - 1.0).abs() < 0.02, "{analytic} and {constant} ns");
}

#[test]
fn lines_from_the_other_socket_explain_why_threads_apart_are_slower() {
    let together = run("spr32", &sharing("[0,1,2,3,4,5,6,7]"), MemoryChoice::Analytic);
    let apart = run("spr32", &sharing("[0,1,2,3,32,33,34,35]"), MemoryChoice::Analytic);
    assert!(apart.elapsed_ns as f64 > 1.1 * together.elapsed_ns as f64);
    let labels = ["together".to_owned(), "apart".to_owned()];
    let split = time_split::of_trials(&labels, 0, &[vec![together], vec![apart]]).unwrap();
    let first = &split.gaps[0].lines[0];
    assert_eq!(first.name, "other_socket");
    assert!(first.share.unwrap() > 0.5 && split.gaps[0].sentence.contains("another socket"), "{:?}", split.gaps[0]);
}

/// A task that streams through 16 MiB of its own starts on one node and goes on on the other. NUMA balancing has its pages follow,
/// a second after they are first sampled; without it they stay where they were touched first.
#[test]
fn pages_that_numa_balancing_moves_are_local_from_then_on() {
    let workload = r#"{ "tasks": { "t": { "loop": 1, "cpus": [0], "phases": {
            "here": { "loop": 1, "run": 100000, "cpus": [0] },
            "there": { "loop": 1, "run": 10000000, "cpus": [8] } } } },
        "warmcore": { "tasks": { "t": { "profile": "canneal" } } } }"#;
    let split = |scheduler| run_under(scheduler, "2s1n1l8c1t", workload, MemoryChoice::Analytic);
    let (moving, staying) = (split("eevdf"), split("eevdf:numa_balancing=0"));
    println!("moving {:?}\nstaying {:?}", moving.time_ns, staying.time_ns);
    assert!(moving.time_ns["dram_remote"] < 0.4 * staying.time_ns["dram_remote"]);
    assert!(moving.time_ns["dram_local"] > 10.0 * staying.time_ns["dram_local"]);
    // Its faults and moved pages are a cause of their own, of the only thread too.
    let measured = moving.measure("overhead_numa_ns").unwrap();
    let of_thread = moving.last_thread.as_ref().unwrap().spent_ns["numa"];
    for counted in [moving.time_ns["numa"], of_thread] {
        assert!(measured > 0.0 && (counted / measured - 1.0).abs() < 0.01, "{counted} of {measured} ns");
    }
    assert!(!staying.time_ns.contains_key("numa"));
    let labels = ["staying".to_owned(), "moving".to_owned()];
    let split = time_split::of_trials(&labels, 0, &[vec![staying.clone()], vec![moving.clone()]]).unwrap();
    let cause = split.causes.iter().find(|cause| cause.name == "numa").expect("it is in the table");
    assert!(cause.title.starts_with("NUMA balancing"), "{}", cause.title);
    assert!(moving.elapsed_ns < staying.elapsed_ns);
}

/// Tasks that compute in one phase and stream through memory in the next: the second has memory's time, comes to it anew in every
/// round, and slows down a neighbour that streams all the time: in sums over seeds, as who shares a node with the neighbour differs.
#[test]
fn a_phase_with_a_profile_of_its_own_changes_what_the_task_and_its_neighbours_pay() {
    let workload = |phases: &str| {
        let run = "\"loop\": 1, \"run\": 20000, \"cpus\": [0,1,2,3,4,5,6,7]";
        format!(
            r#"{{ "tasks": {{
                "changing": {{ "instance": 7, "loop": 5, "cpus": [0,1,2,3,4,5,6,7], "phases": {{ "compute": {{ {run} }}, "stream": {{ {run} }} }} }},
                "neighbour": {{ "loop": 1, "run": 200000, "cpus": [0,1,2,3,4,5,6,7] }} }},
            "warmcore": {{ "tasks": {{
                "changing": {{ "profile": "perlbench", "phase_profiles": {phases} }},
                "neighbour": {{ "profile": "nas-mg" }} }} }} }}"#
        )
    };
    // One node's memory for eight.
    let machine = "naples32";
    let trial = |phases: &str, seed| {
        run_workload("eevdf", machine, workload_of(&workload(phases)), MemoryChoice::Analytic, seed)
    };
    let trials = |phases: &str| (1..=6).map(|seed| trial(phases, seed)).collect::<Vec<Trial>>();
    let (same, changing) = (trials("{}"), trials(r#"{ "stream": "nas-mg" }"#));
    let end_of_neighbour =
        |trial: &Trial| trial.tasks.iter().find(|task| task.name == "neighbour").unwrap().exited_ns.unwrap();
    let neighbours = |trials: &[Trial]| trials.iter().map(end_of_neighbour).sum::<u64>() as f64;
    let local = |trials: &[Trial]| trials.iter().map(|trial| trial.time_ns["dram_local"]).sum::<f64>();
    println!("local memory {} and {}", local(&same), local(&changing));
    println!("neighbour {} and {}", neighbours(&same), neighbours(&changing));
    assert!(local(&changing) > 1.5 * local(&same));
    assert!(neighbours(&changing) > 1.02 * neighbours(&same));
    assert_eq!(trial(r#"{ "compute": "perlbench" }"#, 1).time_ns, same[0].time_ns);
}

#[test]
fn equal_runs_have_equal_memory_counters() {
    let trial = || run("turin128", "hackbench:-p,-T,-g2,-f4,-l50", MemoryChoice::Analytic);
    assert_eq!(trial(), trial());
}

/// A message has 5 lines through a pipe and 10 through a socket, both sides together. What wakeups cost is the same in both.
#[test]
fn sides_of_a_message_wait_for_its_lines_together() {
    const MACHINE: &str = "2s1n2l8c1t";
    const LOOPS: u32 = 2_000;
    let waiting = |kind: &str| {
        let mut workload = workload_of(&format!("pingpong:-T,-{kind},-l{LOOPS}"));
        for (task, cpu) in workload.tasks.iter_mut().zip([0, 8]) {
            task.affinity = Affinity::OsCpus([cpu].into_iter().collect());
        }
        run_workload("eevdf", MACHINE, workload, MemoryChoice::Analytic, 1).time_ns["other_llc"]
    };
    let machine = warmcore_topology::resolve(MACHINE).unwrap();
    let hand_off_ns = machine.costs().line_transfer_ns[warmcore_topology::Relation::SameNode] as f64;
    let lines = (waiting("s") - waiting("p")) / f64::from(2 * LOOPS) / hand_off_ns;
    assert!((lines - 5.0).abs() < 0.01, "a socket's message costs {lines} hand-offs more than a pipe's");
}

/// Senders on cores of one LLC, receivers on others of the same LLC or of the other socket: the pipes' lines come from farther away, so who
/// has a pipe keeps the others waiting for longer. Sides are apart in both, as who sleeps, and so how many meet at a pipe,
/// depends on who runs beside whom.
#[test]
fn users_of_pipes_wait_more_for_each_other_between_sockets() {
    let waiting = |fds: u32, receivers: std::ops::Range<u32>| {
        let mut workload = workload_of(&format!("hackbench:-T,-p,-f{fds},-g1,-l3000"));
        for task in &mut workload.tasks {
            let cpus = if task.role == "receiver" { receivers.clone() } else { 0..fds };
            task.affinity = Affinity::OsCpus(cpus.collect());
        }
        let of_seed = |seed| {
            let trial = run_workload("eevdf", "milan64", workload.clone(), MemoryChoice::Analytic, seed);
            trial.time_ns["hot_lines"]
        };
        (1..=8).map(of_seed).sum::<f64>()
    };
    for fds in [1, 2, 4] {
        let (together, apart) = (waiting(fds, fds..2 * fds), waiting(fds, 64..64 + fds));
        println!("{fds}: together {together}, apart {apart}");
        assert!(together > 0.0 && apart > 1.2 * together, "{fds}: {apart} against {together}");
    }
}

/// Time from a release of a latch to the next taking, of threads that want it all the time, one on each of these CPUs.
fn hand_off_ns(cpus: &[u32], poll_ns: u64) -> f64 {
    const PASSAGES: u64 = 2_000;
    let mut workload = Workload::empty("latch");
    let process = workload.add_process("server");
    let latch = Latch { spin_ns: 100_000_000, poll_ns, ..Latch::default() };
    let latch = workload.add_latch("latch", latch);
    let program = ProgramBuilder::new().repeat(Some(PASSAGES), |body| {
        let inside = body.step(Step::Lock(latch)).step(Step::Run { work_ns: 1_000 }).step(Step::Unlock(latch));
        inside.step(Step::Run { work_ns: 100 })
    });
    let program = workload.add_program(program.finish());
    for cpu in cpus {
        let affinity = Affinity::OsCpus(vec![*cpu]);
        workload.add_task(Task { affinity, ..Task::new(format!("thread {cpu}"), process, program) });
    }
    let trial = run_workload("eevdf", "naples32", workload, MemoryChoice::Analytic, 7);
    trial.elapsed_ns as f64 / (PASSAGES * cpus.len() as u64) as f64 - 1_000.0
}

/// `docs/spec/memory-model.md` section 4.4, hot lines: what looks cost saturates at a transfer per looker and change,
/// and grows with the distance.
#[test]
fn a_latch_passes_on_more_slowly_the_more_look_at_it_and_the_farther_they_are() {
    // Cores of one LLC, of two LLCs, of all on the machine.
    let every = |step: usize, count: usize| (0..count).map(|index| (index * step) as u32).collect::<Vec<u32>>();
    let near = hand_off_ns(&every(1, 4), 300);
    let few_far = hand_off_ns(&every(8, 4), 300);
    let many_far = hand_off_ns(&every(2, 16), 300);
    let seldom = hand_off_ns(&every(2, 16), 10_000);
    assert!(near > 0.0 && few_far > 1.5 * near, "{near} near, {few_far} far");
    assert!(many_far > 4.0 * few_far, "{few_far} with 4, {many_far} with 16");
    assert!(seldom < many_far, "{seldom} with few looks, {many_far} with many");
}
