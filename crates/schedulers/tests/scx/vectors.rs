//! The vectors, by number. Tasks have equal weight where nothing else is said; the tick is 4 ms.

use warmcore_scx::{
    DsqId, EnqueueFlags, ExitKind, Kfuncs, Kick, Operation, OperationFlags, OperationTable, SLICE_DEFAULT_NS,
    SLICE_INFINITE,
};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::program::{Program, Result, SHARED};
use crate::support::*;

const ONE_CPU: &str = "1s1n1l1c1t";
const TWO_CPUS: &str = "1s1n1l2c1t";

fn hogs(count: u32, duration_ns: u64) -> Scene {
    let mut scene = Scene::lasting(duration_ns);
    (0..count).for_each(|number| scene.task(&format!("hog {number}"), spin()).affinity = on_cpu(0));
    scene
}

fn has_no_fault(result: &Result) {
    assert_eq!(result.ejected.as_ref().map(ToString::to_string), None);
}

#[test]
fn vector_1_an_empty_table_keeps_a_lone_hog_running_for_ever() {
    let program = Program { table: OperationTable::empty("empty"), ..Program::fifo() };
    let result = program.run(&hogs(1, S), ONE_CPU);
    has_no_fault(&result);
    assert_eq!(result.run.stays("hog 0").len(), 1);
}

#[test]
fn vector_1_an_empty_table_lets_two_hogs_alternate_at_the_first_tick_after_20_ms() {
    let program = Program { table: OperationTable::empty("empty"), ..Program::fifo() };
    let result = program.run(&hogs(2, S), ONE_CPU);
    has_no_fault(&result);
    let stays = result.run.stays("hog 0");
    // A switch comes shortly behind a tick, the sixth after it ends the slice; but for the first stay, which begins anywhere.
    for stay in &stays[1..stays.len() - 1] {
        assert_eq!(stay.length_ns(), 24 * MS, "{stay:?}");
    }
    assert!(stays.len() >= 20);
}

#[test]
fn vector_2_a_wakeup_with_all_cpus_busy_waits_for_the_first_end_of_a_slice() {
    let mut scene = Scene::lasting(200 * MS);
    scene.task("hog", spin()).instances = 2;
    scene.task("sleeps", once([sleep(50 * MS), run_for(MS)]));
    let result = Program::fifo().run(&scene, TWO_CPUS);
    has_no_fault(&result);
    let spans = result.run.stays("sleeps");
    let woken_ns = *result.times("enqueue", 2).last().unwrap();
    let latency_ns = spans.last().unwrap().start_ns - woken_ns;
    assert!(latency_ns > 0 && latency_ns <= 24 * MS, "{latency_ns}");
}

#[test]
fn vector_3_weights_of_100_and_200_share_a_cpu_as_1_to_2() {
    let mut scene = hogs(1, 4 * S);
    let heavy = scene.task("heavy", spin());
    // The nearest to a weight of 200 that a nice value gives: 194, 1991 of 1024.
    (heavy.nice, heavy.affinity) = (-3, on_cpu(0));
    let run = scene.run(ONE_CPU, "scx-native:policy=vtime");
    let ratio = run.cpu_time("heavy") as f64 / run.cpu_time("hog 0") as f64;
    assert!((1.85..2.05).contains(&ratio), "194 to 100: {ratio}");
}

#[test]
fn vector_3_a_waking_sleeper_gains_at_most_one_slice() {
    let mut scene = hogs(1, 4 * S);
    scene.task("sleeper", then_forever([sleep(2 * S)], [run_for(S)])).affinity = on_cpu(0);
    let run = scene.run(ONE_CPU, "scx-native:policy=vtime");
    let [hog, sleeper] = ["hog 0", "sleeper"].map(|name| run.cpu_time_between(name, 2 * S, 4 * S));
    // One slice of credit, and one as slices end at ticks and the window does not.
    assert!(sleeper.abs_diff(hog) <= 48 * MS, "{sleeper} beside {hog}");
}

/// The woken task is sent to a busy CPU whose task never leaves, and the other CPU, which is idle, is not told. (A CPU that
/// `select_cpu` returns is woken by the kernel itself if it is idle: there the stall would not show.)
#[test]
fn vector_4_without_a_kick_an_idle_cpu_stays_idle_and_the_watchdog_names_the_task() {
    let mut scene = Scene::lasting(4 * S);
    scene.task("hog", spin()).affinity = on_cpu(0);
    scene.task("stalls", once([run_for(MS), sleep(100 * MS), run_for(MS)]));
    let mut program = Program::fifo();
    program.table.timeout_ms = 1000;
    program.select = |_, _, _, _| CpuId(0);
    program.enqueue = |kernel, task, flags| {
        let (dsq, slice) = if task.0 == 0 { (DsqId::LOCAL, SLICE_INFINITE) } else { (SHARED, SLICE_DEFAULT_NS) };
        kernel.dsq_insert(task, dsq, slice, flags);
    };
    let result = program.run(&scene, TWO_CPUS);
    let exit = result.ejected.expect("the watchdog comes");
    assert_eq!(exit.kind, ExitKind::Stall);
    assert!(exit.message.starts_with("stalls failed to run for 1."), "{}", exit.message);
    assert!(exit.dump.contains("   stalls waits 1"), "{}", exit.dump);
    // Under the fair class it runs.
    assert!(result.run.outcome.tasks[1].exited_ns.is_some());
    // With the kick nothing stalls.
    program.enqueue = |kernel, task, flags| {
        let (dsq, slice) = if task.0 == 0 { (DsqId::LOCAL, SLICE_INFINITE) } else { (SHARED, SLICE_DEFAULT_NS) };
        kernel.dsq_insert(task, dsq, slice, flags);
        kernel.kick(CpuId(1), Kick::Idle);
    };
    let result = program.run(&scene, TWO_CPUS);
    has_no_fault(&result);
    assert!(result.run.outcome.tasks[1].exited_ns.is_some_and(|end_ns| end_ns < 110 * MS));
}

#[test]
fn vector_5_a_cpu_outside_the_affinity_is_an_error_that_names_task_and_cpu() {
    let mut program = Program::fifo();
    program.enqueue = |kernel, task, flags| kernel.dsq_insert(task, DsqId::local_on(CpuId(1)), SLICE_DEFAULT_NS, flags);
    let result = program.run(&hogs(1, 100 * MS), TWO_CPUS);
    let exit = result.ejected.expect("an error");
    assert_eq!((exit.kind, exit.kind.is_error()), (ExitKind::Error, true));
    assert_eq!(exit.message, "SCX_DSQ_LOCAL_ON target cpu1 is not allowed for hog 0");
    assert!(
        exit.dump.contains("a line of the program's")
            || result.heard.is_some_and(|heard| heard.dump.contains("a line"))
    );
    assert!(result.run.cpu_time("hog 0") > 90 * MS, "it runs under the fair class");
}

#[test]
fn vector_6_enq_last_ignored_idles_the_cpu_and_stalls() {
    let mut program = Program::fifo();
    program.table.flags = OperationFlags::ENQ_LAST;
    program.table.timeout_ms = 500;
    let result = program.run(&hogs(1, 2 * S), ONE_CPU);
    let exit = result.ejected.expect("the watchdog comes");
    assert_eq!(exit.kind, ExitKind::Stall);
    let first = result.run.stays("hog 0")[0];
    assert!(first.length_ns() <= 24 * MS, "{first:?}");
    // Who heeds the flag loses nothing but a switch.
    program.enqueue = |kernel, task, flags| {
        let dsq = if flags.has(EnqueueFlags::LAST) { DsqId::LOCAL } else { SHARED };
        kernel.dsq_insert(task, dsq, SLICE_DEFAULT_NS, flags);
    };
    let result = program.run(&hogs(1, 2 * S), ONE_CPU);
    has_no_fault(&result);
    assert!(result.run.cpu_time("hog 0") > 1990 * MS);
}

#[test]
fn vector_7_a_cpu_takes_the_first_task_that_it_may_run_behind_one_bound_elsewhere() {
    let mut scene = Scene::lasting(300 * MS);
    scene.task("hog", spin()).affinity = on_cpu(0);
    scene.task("bound", once([run_for(MS)])).affinity = on_cpu(0);
    scene.task("free", once([run_for(MS)])).affinity = on_cpus([0, 1]);
    let mut program = Program::fifo();
    // All wait in the shared queue; CPU 1 looks into it when the timer kicks it, at 2 ms.
    program.select = |_, _, _, _| CpuId(0);
    program.timer_at_ns = 2 * MS;
    program.timer = |kernel| kernel.kick(CpuId(1), Kick::Idle);
    let result = program.run(&scene, TWO_CPUS);
    has_no_fault(&result);
    let [bound, free] = ["bound", "free"].map(|name| result.run.stays(name)[0]);
    assert_eq!((free.cpu, bound.cpu), (1, 0));
    assert!(free.start_ns < 3 * MS && bound.start_ns > 15 * MS, "{free:?} {bound:?}");
}

#[test]
fn vector_8_a_preempting_insertion_runs_within_an_interrupts_time_and_not_at_the_tick() {
    let mut scene = hogs(1, 100 * MS);
    scene.task("urgent", times(5, [sleep(7 * MS), run_for(MS)])).affinity = on_cpu(0);
    let mut program = Program::fifo();
    program.enqueue = |kernel, task, flags| {
        if task.0 == 1 {
            kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, flags | EnqueueFlags::PREEMPT);
        } else {
            kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags);
        }
    };
    let result = program.run(&scene, ONE_CPU);
    has_no_fault(&result);
    let (woken, began) = (result.times("enqueue", 1), result.times("running", 1));
    for woken_ns in &woken[1..] {
        let began_ns = began.iter().find(|began_ns| *began_ns >= woken_ns).unwrap();
        assert!(began_ns - woken_ns < 20 * US, "{woken_ns} {began_ns}");
        // The hog was stopped at that moment, and enqueued again.
        assert!(result.times("stopping, runnable", 0).contains(began_ns));
        assert!(result.times("enqueue", 0).contains(began_ns));
    }
}

#[test]
fn vector_9_a_slice_written_from_another_cpu_ends_the_run_at_the_next_tick() {
    let mut program = Program::fifo();
    program.timer_at_ns = 50 * MS;
    program.enqueue = |kernel, task, flags| kernel.dsq_insert(task, SHARED, SLICE_INFINITE, flags);
    program.timer = |kernel| {
        let curr = kernel.cpu_curr(CpuId(1)).expect("one of them runs");
        kernel.set_slice_ns(curr, 1);
    };
    let mut scene = Scene::lasting(200 * MS);
    for name in ["one", "other"] {
        scene.task(name, spin()).affinity = on_cpu(1);
    }
    let result = program.run(&scene, TWO_CPUS);
    has_no_fault(&result);
    // Timers run on CPU 0. The first runs from the start, and with an infinite slice there is one switch only.
    let first = result.run.stays("one")[0];
    assert!((50 * MS..54 * MS + 100 * US).contains(&first.end_ns), "{first:?}");
    assert_eq!(result.run.stays("one").len() + result.run.stays("other").len(), 2);
}

/// Both are woken while one of two CPUs is idle; each would take it.
#[test]
fn vector_10_of_two_wakeups_at_one_instant_one_claims_the_idle_cpu() {
    let mut scene = Scene::lasting(100 * MS);
    scene.task("hog", spin()).affinity = on_cpu(0);
    scene.task("sleeper", once([sleep(30 * MS), run_for(MS)])).instances = 2;
    let mut program = Program::fifo();
    // The hog's slice is long, so that the CPU of the claim decides who runs first.
    program.enqueue = |kernel, task, flags| kernel.dsq_insert(task, SHARED, SLICE_INFINITE, flags);
    let result = program.run(&scene, TWO_CPUS);
    has_no_fault(&result);
    // Whoever claimed CPU 1 was inserted by `select_cpu`, and so never enqueued after its sleep.
    let enqueued_after_sleep =
        |task: u32| result.times("enqueue", task).iter().filter(|at_ns| **at_ns >= 30 * MS).count();
    assert_eq!(enqueued_after_sleep(1) + enqueued_after_sleep(2), 1);
}

#[test]
fn runnable_and_quiescent_are_paired_and_so_are_running_and_stopping() {
    let mut scene = Scene::new();
    scene.task("runs", once([run_for(30 * MS)])).instances = 3;
    scene.task("sleeps", times(5, [run_for(MS), sleep(2 * MS)])).instances = 3;
    let result = Program::fifo().run(&scene, TWO_CPUS);
    has_no_fault(&result);
    for task in 0..6 {
        let (mut runnable, mut running) = (false, false);
        for (time_ns, what, _) in result.told.iter().filter(|told| told.2 == task) {
            let place = format!("{what} of task {task} at {time_ns}");
            match *what {
                "runnable" => assert!(!std::mem::replace(&mut runnable, true), "{place}"),
                "quiescent" => assert!(std::mem::replace(&mut runnable, false) && !running, "{place}"),
                "running" => assert!(!std::mem::replace(&mut running, true) && runnable, "{place}"),
                "stopping" | "stopping, runnable" => assert!(std::mem::replace(&mut running, false), "{place}"),
                "enqueue" => assert!(runnable && !running, "{place}"),
                _ => {}
            }
        }
        assert!(!runnable && !running);
    }
}

#[test]
fn a_custody_ends_with_one_dequeue_and_what_is_inserted_directly_is_in_no_custody() {
    let mut scene = Scene::new();
    scene.task("runs", once([run_for(100 * MS)])).instances = 3;
    let result = Program::fifo().run(&scene, TWO_CPUS);
    has_no_fault(&result);
    let mut custodies = 0;
    for task in 0..3 {
        let told = || result.told.iter().filter(move |told| told.2 == task).map(|told| told.1);
        let mut in_custody = false;
        for what in told() {
            match what {
                "enqueue" => assert!(!std::mem::replace(&mut in_custody, true), "task {task}"),
                "dequeue" => assert!(std::mem::replace(&mut in_custody, false), "task {task} was in no custody"),
                "running" => assert!(!in_custody, "task {task} runs and is in custody"),
                _ => {}
            }
        }
        custodies += told().filter(|what| *what == "dequeue").count();
        // Two of them find an idle CPU and are inserted directly.
        assert_eq!(told().filter(|what| *what == "enqueue").count(), told().filter(|what| *what == "dequeue").count());
    }
    assert!(custodies >= 5, "{custodies}");
}

/// `SCX_ENQ_IMMED` of Linux 7.1: a task goes to a CPU at once, or the program gets it again.
#[test]
fn a_task_that_was_to_run_at_once_on_a_busy_cpu_is_enqueued_again() {
    let again = |kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags| {
        let back = flags.has(EnqueueFlags::REENQ);
        let (dsq, flags) = if back { (SHARED, EnqueueFlags::default()) } else { (DsqId::LOCAL, EnqueueFlags::IMMED) };
        kernel.dsq_insert(task, dsq, SLICE_DEFAULT_NS, flags);
        kernel.kick(CpuId(1), Kick::Idle);
    };
    let mut program = Program::fifo();
    program.select = |kernel, task, _, _| {
        kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, EnqueueFlags::IMMED);
        CpuId(0)
    };
    program.enqueue = again;
    // One hog keeps CPU 0, to which all are sent. The second is held up there, and the other CPU takes it from the shared queue.
    let mut scene = Scene::new();
    scene.task("first", once([run_for(10 * MS)]));
    scene.task("second", once([run_for(10 * MS)]));
    let result = program.run(&scene, "1s1n1l2c1t");
    has_no_fault(&result);
    assert_eq!(result.times("enqueue", 0).len(), 0, "an idle CPU takes it");
    assert_eq!(result.times("enqueue", 1).len(), 1, "{:?}", result.told);
    assert!(result.run.outcome.elapsed_ns < 11 * MS, "both ran at once: {} ns", result.run.outcome.elapsed_ns);
    // Without the flag it waits for the hog.
    program.select = |kernel, task, _, _| {
        kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, EnqueueFlags::default());
        CpuId(0)
    };
    assert!(program.run(&scene, "1s1n1l2c1t").run.outcome.elapsed_ns > 20 * MS);
    // The program may ask for it for all its insertions.
    program.table.flags = OperationFlags::ALWAYS_ENQ_IMMED;
    assert!(program.run(&scene, "1s1n1l2c1t").run.outcome.elapsed_ns < 11 * MS);
}

/// `scx_vet_enq_flags`: only a local queue has a CPU on which a task may run at once.
#[test]
fn an_insertion_to_run_at_once_into_a_queue_that_is_not_local_is_an_error() {
    let mut program = Program::fifo();
    program.table.flags = OperationFlags::ALWAYS_ENQ_IMMED;
    has_no_fault(&program.run(&hogs(2, 10 * MS), "1s1n1l2c1t"));
    for dsq in [SHARED, DsqId::GLOBAL] {
        let mut program = Program::fifo();
        program.enqueue = match dsq {
            SHARED => |kernel, task, _| kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, EnqueueFlags::IMMED),
            _ => |kernel, task, _| kernel.dsq_insert(task, DsqId::GLOBAL, SLICE_DEFAULT_NS, EnqueueFlags::IMMED),
        };
        let reason = program.run(&hogs(2, 10 * MS), "1s1n1l1c1t").ejected.expect("it is ejected").to_string();
        let said = format!("SCX_ENQ_IMMED on a non-local DSQ 0x{:x}", dsq.0);
        assert!(reason.contains(&said), "{reason}");
    }
}

#[test]
fn a_program_that_sends_a_task_back_to_a_busy_cpu_for_ever_is_ejected() {
    let mut program = Program::fifo();
    program.select = |kernel, task, _, _| {
        kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, EnqueueFlags::IMMED);
        CpuId(0)
    };
    program.enqueue = |kernel, task, _| kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, EnqueueFlags::IMMED);
    let result = program.run(&hogs(2, 10 * MS), "1s1n1l2c1t");
    let reason = result.ejected.expect("it is ejected").to_string();
    assert!(reason.contains("enqueued again more than 256 times"), "{reason}");
}

/// A real scheduler is loaded long before the program that is looked at begins: its averages have settled by then.
#[test]
fn timers_of_a_program_that_is_loaded_before_the_run_run_before_it_and_go_on_in_step() {
    let mut program = Program::fifo();
    (program.loaded_before_ns, program.timer_at_ns) = (100 * MS, 30 * MS);
    program.timer = |kernel| kernel.start_timer(30 * MS, 0);
    let result = program.run(&hogs(1, 100 * MS), ONE_CPU);
    has_no_fault(&result);
    let times_ns = result.times("timer", 0);
    assert_eq!(times_ns[..3], [0, 0, 0], "at 30, 60 and 90 of the 100 ms before: {times_ns:?}");
    assert_eq!(times_ns[3..], [20 * MS, 50 * MS, 80 * MS], "and 30 ms later each time");
}

/// A program may take what it knows of a new task from its parent, and a shell or a main thread has run and slept before.
#[test]
fn a_launcher_has_had_a_turn_before_the_run() {
    let mut program = Program::fifo();
    program.table = program.table.with(&[Operation::InitTask]);
    (program.loaded_before_ns, program.timer_at_ns) = (1000 * MS, 800 * MS - 500 * US);
    let result = program.run(&hogs(1, 10 * MS), "1s1n1l2c1t");
    has_no_fault(&result);
    let told: Vec<_> = result.told.iter().map(|&(at, what, task)| (at, what, task)).collect();
    let before = ["init", "init_task", "select_cpu", "runnable", "running", "timer", "stopping", "quiescent"];
    assert_eq!(told[..before.len()], before.map(|what| (0, what, 0)), "the launcher, at work when the timer comes");
    assert_eq!(told[before.len()], (0, "init_task", 1), "then the workload's");
    let alone = result.told[before.len()..].iter().filter(|(_, what, task)| *task == 0 && *what != "timer");
    assert_eq!(alone.count(), 0, "it sleeps throughout the run");
    // The run is as without it.
    assert_eq!(
        result.run.outcome.elapsed_ns,
        Program::fifo().run(&hogs(1, 10 * MS), "1s1n1l2c1t").run.outcome.elapsed_ns
    );
}

#[test]
fn a_timer_that_never_comes_does_not_come_before_the_run_either() {
    let mut program = Program::fifo();
    (program.loaded_before_ns, program.timer_at_ns) = (100 * MS, u64::MAX);
    let result = program.run(&hogs(1, 10 * MS), ONE_CPU);
    has_no_fault(&result);
    assert!(result.times("timer", 0).is_empty());
}

#[test]
fn a_cpu_that_the_program_chose_itself_is_told_apart_from_the_built_in_selections() {
    let steps = |program: Program| {
        let mut scene = Scene::new();
        scene.task("sleeps", times(3, [run_for(100 * US), sleep(MS)]));
        let placed = program.run(&scene, "1s1n1l2c1t").run.placed("sleeps", US);
        placed.into_iter().map(|placed| placed.words().1).collect::<Vec<_>>()
    };
    let mut own = Program::fifo();
    own.select = |_, _, _, _| CpuId(1);
    assert_eq!(steps(own)[..2], ["program"; 2]);
    // What the built-in selection said is not what this program does.
    let mut contrary = Program::fifo();
    contrary.select = |kernel, task, prev, flags| CpuId(1 - kernel.select_cpu_dfl(task, prev, flags).0.0);
    assert_eq!(steps(contrary)[..2], ["program"; 2]);
    assert_eq!(steps(Program::fifo())[..2], ["previous_claimed"; 2]);
}

/// `select_task_rq` asks no class where `nr_cpus_allowed` is 1: of a task that is bound to a CPU, and of every task where there is one CPU.
#[test]
fn nobody_is_asked_for_the_cpu_of_a_task_that_may_use_one_only() {
    let asked = |machine: &str, bound: bool| {
        let mut scene = Scene::new();
        let sleeper = scene.task("sleeps", times(3, [run_for(100 * US), sleep(MS)]));
        if bound {
            sleeper.affinity = on_cpu(0);
        }
        Program::fifo().run(&scene, machine).times("select_cpu", 0).len()
    };
    assert!(asked("1s1n1l2c1t", false) >= 2);
    assert_eq!(asked("1s1n1l2c1t", true), 0);
    assert_eq!(asked("1s1n1l1c1t", false), 0);
}

/// `tick_setup_sched_timer` gives all CPUs one offset without `skew_tick=1`; slices end at ticks.
#[test]
fn slices_of_a_program_end_at_the_same_instants_on_all_cpus_if_ticks_come_together() {
    let within = |scheduler: &str| {
        let mut scene = Scene::lasting(300 * MS);
        for hog in 0..12 {
            scene.task(&format!("hog {hog}"), spin());
        }
        let run = scene.run("1s1n1l8c1t", scheduler);
        let stays = (0..12).flat_map(|hog| run.stays(&format!("hog {hog}"))).filter(|stay| stay.left.is_some());
        let ends: Vec<u64> = stays.map(|stay| stay.end_ns).collect();
        assert!(ends.len() > 50, "{}", ends.len());
        // By how much they differ from the first one's place in its tick, from half a tick before it to half a tick after.
        let places = || ends.iter().map(|end| (end + 6 * MS - ends[0] % (4 * MS)) % (4 * MS));
        places().max().unwrap() - places().min().unwrap()
    };
    assert!(within("scx-native:ticks=together") < 200 * US);
    assert!(within("scx-native") > MS);
}
