//! Small workloads with real threads: what they do, never how long it takes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_native::{Calibration, Ended, NativeError, NativeOptions, NativeOutcome, run};
use warmcore_workload::results::{parse_hackbench, parse_schbench};
use warmcore_workload::{
    Affinity, BarrierWait, ChannelKind, ProcessId, ProgramBuilder, Step, Task, TaskTemplateId, TimerMode, UtilClamp,
    Workload, from_generator, from_rtapp,
};

/// A loop so slow that work takes next to no time.
fn quick() -> NativeOptions {
    NativeOptions { calibration: Some(Calibration { iterations_per_ms: 1_000 }), ..NativeOptions::default() }
}

fn outcome(workload: &Workload) -> NativeOutcome {
    run(workload, &quick()).unwrap_or_else(|error| panic!("{}: {error}", workload.name))
}

fn generated(spec: &str) -> NativeOutcome {
    outcome(&from_generator(spec).unwrap())
}

fn file(tasks: &str) -> NativeOutcome {
    let text = format!("{{ \"tasks\": {{ {tasks} }} }}");
    outcome(&from_rtapp("file", &text, &Default::default()).unwrap())
}

/// An empty workload with one process.
fn empty() -> Workload {
    let mut workload = Workload::empty("test");
    workload.add_process("test");
    workload
}

fn add(workload: &mut Workload, name: &str, instances: u32, program: ProgramBuilder) -> TaskTemplateId {
    let program = workload.add_program(program.finish());
    workload.add_task(Task { instances, ..Task::new(name, ProcessId(0), program) })
}

fn all_completed(outcome: &NativeOutcome) -> bool {
    outcome.ended == Ended::AllExited && outcome.tasks.iter().all(|task| task.completed)
}

#[test]
fn pairs_exchange_every_message() {
    for kind in ["-p", "-s"] {
        let outcome = generated(&format!("pingpong:-n3,-l50,{kind}"));
        assert!(all_completed(&outcome));
        assert_eq!(outcome.tasks.len(), 6);
        assert_eq!(outcome.samples[0].len(), 150, "one round trip for each loop of each pair");
        assert_eq!(outcome.warnings[0].what, "processes");
    }
}

#[test]
fn what_a_generator_warns_of_is_no_departure_of_the_run() {
    let workload = warmcore_workload::from_generator("schbench:-m1,-t1,-F1,-n1,-r1").unwrap();
    assert!(!workload.warnings.is_empty(), "schbench without -L");
    let options = NativeOptions { time_limit_ns: Some(20_000_000), ..NativeOptions::default() };
    let outcome = warmcore_native::run(&workload, &options).unwrap();
    assert_eq!(outcome.warnings, []);
}

#[test]
fn a_writer_blocks_while_its_pipe_is_full() {
    let mut workload = empty();
    let pipe = workload.add_channel("pipe", ChannelKind::Pipe, 65_536);
    let finished = workload.add_semaphore("finished", 0);
    let message = 4_096;
    let write = Step::Send { channel: pipe, bytes: message };
    let writer = ProgramBuilder::new().repeat(Some(64), |body| body.step(write)).step(Step::SemPost(finished));
    add(&mut workload, "writer", 1, writer);
    // The reader only begins long after the writer has filled the pipe, and reads in other pieces.
    let read = Step::Receive { channel: pipe, bytes: 2 * message };
    let reader = ProgramBuilder::new()
        .step(Step::Sleep { duration_ns: 200_000_000 })
        .repeat(Some(32), |body| body.step(read))
        .step(Step::SemWait(finished));
    add(&mut workload, "reader", 1, reader);
    let outcome = outcome(&workload);
    assert!(all_completed(&outcome));
    assert!(outcome.tasks[0].voluntary_switches > 0, "the pipe holds a quarter of what is written");
}

#[test]
fn workers_share_a_lock() {
    let outcome = file(r#""w": { "instance": 4, "loop": 100, "lock": "m", "run": 1, "unlock": "m" }"#);
    assert!(all_completed(&outcome));
    let steps: Vec<u64> = outcome.tasks.iter().map(|task| task.steps).collect();
    assert_eq!(steps, [1 + 100 * 4; 4]);
    assert_eq!(outcome.tasks.iter().map(|task| task.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn threads_meet_at_barriers_of_every_kind() {
    for kind in ["block", "spin", "spin-then-block:20us"] {
        let outcome = generated(&format!("forkjoin:-n3,-i50,-w10us,--barrier={kind}"));
        assert!(all_completed(&outcome), "{kind}");
        assert_eq!(outcome.samples[0].len(), 50);
    }
}

#[test]
fn conditions_wake_as_many_as_are_signalled() {
    // The waiters hold the lock until they wait, so the signaller finds both waiting when it gets two tokens.
    let outcome = file(
        r#""waiter": { "instance": 2, "loop": 1, "lock": "m", "sem_post": "ready",
                       "wait": { "ref": "c", "mutex": "m" }, "unlock": "m" },
           "signaller": { "loop": 1, "sem_wait": "ready", "sem_wait": "ready", "lock": "m",
                          "signal": "c", "signal": "c", "unlock": "m" }"#,
    );
    assert!(all_completed(&outcome));
}

#[test]
fn sync_hands_over_between_two_tasks() {
    let outcome = file(
        r#""a": { "loop": 1, "lock": "m", "sem_post": "ready", "wait": { "ref": "c", "mutex": "m" }, "signal": "c",
                  "unlock": "m" },
           "b": { "loop": 1, "sem_wait": "ready", "lock": "m", "sync": { "ref": "c", "mutex": "m" }, "unlock": "m" }"#,
    );
    assert!(all_completed(&outcome));
}

#[test]
fn suspended_tasks_are_resumed() {
    // A resume is not remembered, so it is repeated until all sleepers have told that they run again.
    let mut workload = empty();
    let sleeper = TaskTemplateId(0);
    let awake = workload.add_semaphore("awake", 0);
    add(&mut workload, "sleeper", 3, ProgramBuilder::new().step(Step::Suspend).step(Step::SemPost(awake)));
    let wake = |body: ProgramBuilder| body.step(Step::Resume(sleeper)).step(Step::Sleep { duration_ns: 1_000_000 });
    add(&mut workload, "waker", 1, ProgramBuilder::new().repeat(None, wake));
    let count = ProgramBuilder::new().repeat(Some(3), |body| body.step(Step::SemWait(awake))).step(Step::Stop);
    add(&mut workload, "counter", 1, count);
    let outcome = outcome(&workload);
    assert_eq!(outcome.ended, Ended::StopStep);
    let completed: Vec<u32> = outcome.tasks.iter().filter(|task| task.completed).map(|task| task.template.0).collect();
    assert_eq!(completed, [0, 0, 0, 2]);
}

#[test]
fn tasks_are_resumed_by_the_name_that_they_suspend_with() {
    // Two suspend with a name that no task has; B wakes them by it, again and again, since a resume is not remembered.
    let outcome = file(
        r#""A": { "instance": 2, "loop": 3, "suspend": "X", "run": 1 },
           "B": { "loop": 500, "resume": "X", "sleep": 1000 }"#,
    );
    assert!(outcome.warnings.is_empty(), "what the file is warned of is the workload's: {:?}", outcome.warnings);
    assert!(outcome.tasks.iter().filter(|task| task.template.0 == 0).all(|task| task.completed));
}

#[test]
fn refused_nice_values_are_a_counted_warning() {
    give_up_raising_priorities();
    let mut workload = empty();
    let raise = |body: ProgramBuilder| body.step(Step::SetNice(10)).step(Step::SetNice(-20));
    add(&mut workload, "greedy", 2, ProgramBuilder::new().repeat(Some(3), raise));
    let outcome = outcome(&workload);
    assert!(all_completed(&outcome), "what the kernel refuses ends no task");
    let refused = |warning: &&warmcore_workload::Warning| warning.what.starts_with("nice -20 ");
    let count = outcome.warnings.iter().find(refused).map(|warning| warning.count);
    assert_eq!(count, Some(6), "{:?}", outcome.warnings);
}

/// Takes from this thread, and those it makes, what a superuser's threads may do to nice values.
fn give_up_raising_priorities() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut own = capabilities(None).unwrap();
    own.effective.remove(CapabilitySet::SYS_NICE);
    set_capabilities(None, own).unwrap();
    setrlimit(Resource::Nice, Rlimit { current: Some(0), ..getrlimit(Resource::Nice) }).unwrap();
}

#[test]
fn parents_wait_for_their_children() {
    let mut workload = empty();
    let child = TaskTemplateId(1);
    let done = workload.add_semaphore("done", 0);
    let recorder = workload.add_recorder("after join");
    let parent = ProgramBuilder::new()
        .step(Step::StartClock { slot: 0 })
        .repeat(Some(3), |body| body.step(Step::Fork(child)))
        .step(Step::Join { count: 1 })
        .step(Step::Join { count: 2 })
        // All three children have posted before they exited, so nothing blocks here.
        .repeat(Some(3), |body| body.step(Step::SemWait(done)))
        .step(Step::RecordClock { slot: 0, recorder });
    add(&mut workload, "parent", 1, parent);
    let work = ProgramBuilder::new().step(Step::Sleep { duration_ns: 1_000_000 }).step(Step::SemPost(done));
    add(&mut workload, "child", 0, work);
    let outcome = outcome(&workload);
    assert!(all_completed(&outcome));
    let tasks: Vec<(u32, u32)> = outcome.tasks.iter().map(|task| (task.template.0, task.number)).collect();
    assert_eq!(tasks, [(0, 0), (1, 0), (1, 1), (1, 2)]);
    assert_eq!(outcome.samples, [vec![outcome.samples[0][0]]]);
}

#[test]
fn loops_run_as_often_as_they_say() {
    let mut workload = empty();
    let recorder = workload.add_recorder("count");
    let count = Step::RecordClock { slot: 0, recorder };
    let program = ProgramBuilder::new().repeat(Some(3), |outer| {
        outer.repeat(Some(0), |skipped| skipped.step(Step::Stop)).repeat(Some(4), |inner| inner.step(count))
    });
    add(&mut workload, "loops", 1, program);
    let outcome = outcome(&workload);
    assert_eq!(outcome.samples[0].len(), 12);
    assert!(all_completed(&outcome));
}

#[test]
fn whatever_a_task_waits_for_ends_with_the_run() {
    let mut workload = empty();
    let lock = workload.add_lock("lock");
    let condition = workload.add_condition("condition");
    let spin_then_block = BarrierWait::SpinThenBlock { spin_ns: 1_000 };
    let barriers = [BarrierWait::Block, BarrierWait::Poll, BarrierWait::Spin, spin_then_block]
        .map(|wait| workload.add_barrier(format!("{wait:?}"), 2, wait));
    let semaphore = workload.add_semaphore("semaphore", 0);
    let empty_pipe = workload.add_channel("empty", ChannelKind::Pipe, 65_536);
    let full_socket = workload.add_channel("full", ChannelKind::Socket, 65_536);
    let (full, idle) = (workload.add_list("never served"), workload.add_list("never full"));
    let timer = workload.add_timer("unique");
    let hour = 3_600_000_000_000;
    let one = |step: Step| ProgramBuilder::new().step(step);
    let forever = |step: Step| ProgramBuilder::new().repeat(None, |body| body.step(step));
    let programs = [
        one(Step::Lock(lock)).step(Step::Sleep { duration_ns: hour }),
        // Long after the other has it, even on a busy machine.
        one(Step::Sleep { duration_ns: 500_000_000 }).step(Step::Lock(lock)),
        one(Step::Sleep { duration_ns: hour }),
        one(Step::Timer { timer, period_ns: hour, mode: TimerMode::Absolute }),
        one(Step::SemWait(semaphore)),
        one(Step::Suspend),
        one(Step::Receive { channel: empty_pipe, bytes: 1 }),
        forever(Step::Send { channel: full_socket, bytes: 1 }),
        one(Step::Enlist { list: full, recorder: None }),
        one(Step::Serve(idle)),
        one(Step::Fork(TaskTemplateId(2))).step(Step::Join { count: 1 }),
        one(Step::RunTime { cpu_ns: hour }),
        one(Step::Run { work_ns: 1 << 60 }),
        forever(Step::IoRun { bytes: 1 << 40 }),
        one(Step::Memory { bytes: 1 << 60, region_bytes: 1 << 12 }),
    ];
    let mut tasks = programs.len();
    for (index, program) in programs.into_iter().enumerate() {
        add(&mut workload, &format!("task {index}"), 1, program);
    }
    for barrier in barriers {
        let arrive = one(Step::Barrier(barrier));
        // Two of them meet, one stays alone.
        add(&mut workload, &format!("barrier {}", barrier.0), 3, arrive);
        tasks += 3;
    }
    let own = workload.add_lock("own");
    add(&mut workload, "wait", 1, one(Step::Lock(own)).step(Step::Wait { condition, lock: own }));
    workload.duration_ns = Some(1_500_000_000);

    let outcome = outcome(&workload);
    assert_eq!(outcome.ended, Ended::Duration);
    let completed = outcome.tasks.iter().filter(|task| task.completed).count();
    assert_eq!(completed, 8, "only those that met at a barrier came to their end");
    assert_eq!(outcome.tasks.len(), tasks + 2, "the child that task 10 forks, and \"wait\", count too");
}

#[test]
fn a_task_may_stop_the_workload() {
    let outcome = {
        let mut workload = empty();
        add(&mut workload, "sleeper", 2, ProgramBuilder::new().step(Step::Suspend));
        add(&mut workload, "stopper", 1, ProgramBuilder::new().step(Step::Yield).step(Step::Stop));
        outcome(&workload)
    };
    assert_eq!(outcome.ended, Ended::StopStep);
    assert_eq!(outcome.tasks.iter().filter(|task| task.completed).count(), 1);
}

#[test]
fn time_limits_and_stop_flags_end_endless_workloads() {
    let spinners = from_generator("spin:-n2,-d1h").unwrap();
    let limited = NativeOptions { time_limit_ns: Some(20_000_000), ..quick() };
    let outcome = run(&spinners, &limited).unwrap();
    assert_eq!((outcome.ended, outcome.tasks.len()), (Ended::TimeLimit, 2));
    assert!(outcome.tasks.iter().all(|task| !task.completed && task.cpu_ns > 0));

    let flag = Arc::new(AtomicBool::new(false));
    let setter = Arc::clone(&flag);
    let interrupter = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        setter.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let outcome = run(&spinners, &NativeOptions { stop: Some(flag), ..quick() }).unwrap();
    assert_eq!(outcome.ended, Ended::Interrupted);
    interrupter.join().unwrap();
}

#[test]
fn hackbench_passes_all_messages_and_prints_its_time() {
    for flags in ["-T,-p", "-P"] {
        let outcome = generated(&format!("hackbench:{flags},-f3,-g2,-l20"));
        assert!(all_completed(&outcome), "{flags}");
        assert_eq!(outcome.tasks.len(), 13);
        assert!(parse_hackbench(outcome.lines.as_deref().unwrap()).is_some());
    }
}

#[test]
fn schbench_reports_wakeups_and_requests() {
    let outcome = generated("schbench:-m2,-t2,-r400ms,-n0,-L");
    assert_eq!(outcome.ended, Ended::Duration);
    assert_eq!(outcome.tasks.len(), 7, "main, two messengers, four workers");
    let sections = parse_schbench(outcome.lines.as_deref().unwrap());
    assert_eq!(sections.len(), 3);
    let [wakeups, requests] = [0, 1].map(|recorder| outcome.samples[recorder].len());
    assert!(requests > 0 && wakeups >= requests && wakeups <= requests + 4, "{wakeups} wakeups, {requests} requests");
}

#[test]
fn pinned_tasks_are_released_and_impossible_cpus_refused() {
    let cpu = first_cpu();
    let outcome = generated(&format!("spin:-n3,-d40ms,-p{cpu},-u10ms"));
    assert_eq!((outcome.ended, outcome.warnings.len()), (Ended::Duration, 0));

    let error = run(&from_generator("spin:-p1000000").unwrap(), &quick()).unwrap_err();
    assert!(matches!(error, NativeError::NoCpus { .. }), "{error}");
    let mut workload = empty();
    let nowhere = Step::SetAffinity(Affinity::OsNodes(vec![4_000]));
    add(&mut workload, "later", 1, ProgramBuilder::new().step(nowhere));
    assert!(matches!(run(&workload, &quick()), Err(NativeError::NoCpus { .. })));
}

/// A kernel without `CONFIG_UCLAMP_TASK` refuses them, and so does the run.
#[test]
fn utilisation_clamps_are_taken_or_refused_by_name() {
    let mut workload = empty();
    add(&mut workload, "clamped", 1, ProgramBuilder::new().step(Step::RunTime { cpu_ns: 1_000_000 }));
    workload.tasks[0].util_clamp = UtilClamp::new(Some(100), Some(300)).unwrap();
    match run(&workload, &quick()) {
        Ok(outcome) => assert!(all_completed(&outcome) && outcome.warnings.is_empty(), "{:?}", outcome.warnings),
        Err(error) => {
            let words = error.to_string();
            assert!(matches!(error, NativeError::UtilClamp { .. }), "{words}");
            assert!(words.contains("\"clamped\" cannot have util_min 100 and util_max 300"), "{words}");
        }
    }
}

#[test]
fn nothing_counts_of_a_run_that_ends_in_its_warm_up_and_all_behind_a_short_one() {
    let mut workload = from_generator("pingpong:-n1,-l50,-p").unwrap();
    let counted = |workload: &Workload| {
        let outcome = outcome(workload);
        assert!(all_completed(&outcome));
        let cpu_ns: u64 = outcome.tasks.iter().map(|task| task.cpu_ns).sum();
        (cpu_ns > 0, outcome.samples[0].len())
    };
    workload.warm_up_ns = Some(3_600_000_000_000);
    assert_eq!(counted(&workload), (false, 0));
    workload.warm_up_ns = Some(1);
    assert_eq!(counted(&workload), (true, 50));
}

/// A CPU this process may use.
fn first_cpu() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).find(|&cpu| allowed.is_set(cpu)).unwrap()
}

#[test]
fn scheduling_properties_are_taken_or_warned_of() {
    let outcome = file(
        r#""t": { "policy": "SCHED_BATCH", "priority": 5, "dl-runtime": 3000, "loop": 1, "phases": {
            "a": { "policy": "SCHED_IDLE", "run": 1 }, "b": { "priority": 10, "taskgroup": "/g", "run": 1 } } }"#,
    );
    assert!(all_completed(&outcome));
    let warnings: Vec<&str> = outcome.warnings.iter().map(|warning| warning.what.as_str()).collect();
    assert_eq!(warnings, ["task groups"]);
}

#[test]
fn a_real_time_task_is_one_or_the_run_says_what_it_needs() {
    let text = r#"{ "tasks": { "t": { "policy": "SCHED_FIFO", "priority": 1, "loop": 1, "run": 100 } } }"#;
    match run(&from_rtapp("real-time", text, &Default::default()).unwrap(), &quick()) {
        Ok(outcome) => assert!(all_completed(&outcome) && outcome.warnings.is_empty()),
        Err(error) => {
            assert!(error.to_string().contains("cannot be SCHED_FIFO") && error.to_string().contains("CAP_SYS_NICE"))
        }
    }
}

#[test]
fn tasks_start_at_their_time_and_private_timers_do_not_mix() {
    let outcome = file(
        r#""early": { "instance": 2, "loop": 3, "run": 1, "timer": { "ref": "unique", "period": 2000 } },
           "late": { "delay": 10000, "loop": 3, "run": 1, "timer": { "ref": "unique", "period": 2000 } }"#,
    );
    assert!(all_completed(&outcome));
    let created: Vec<u32> = outcome.tasks.iter().map(|task| task.template.0).collect();
    assert_eq!(created, [0, 0, 1], "the late task is created last");
}

#[test]
fn the_example_files_run() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads");
    let options = NativeOptions { time_limit_ns: Some(60_000_000), ..quick() };
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path).unwrap();
            let workload = from_rtapp("example", &text, &Default::default()).unwrap();
            let outcome = run(&workload, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(!outcome.tasks.is_empty());
            count += 1;
        }
    }
    assert!(count >= 6);
}

#[test]
fn workloads_that_cannot_be_run_are_refused() {
    let mut workload = empty();
    add(&mut workload, "endless", 1, ProgramBuilder::new().repeat(None, |body| body.step(Step::Yield)));
    assert!(matches!(run(&workload, &quick()), Err(NativeError::Check(_))));
}

#[test]
fn a_lock_of_the_kernel_is_refused_by_name() {
    let mut workload = empty();
    let kind = warmcore_workload::LatchKind::Rwsem;
    let lock = workload.add_latch("mmap_lock", warmcore_workload::Latch { kind, ..Default::default() });
    let [enter, exit] = [warmcore_workload::KernelStep::Enter, warmcore_workload::KernelStep::Exit].map(Step::Kernel);
    let steps = [enter, Step::LockShared(lock), Step::Unlock(lock), exit];
    add(&mut workload, "calls", 1, steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step));
    let error = run(&workload, &quick()).unwrap_err();
    assert!(matches!(error, NativeError::LockOfKernel(_)), "{error}");
    assert!(error.to_string().contains("\"mmap_lock\" is one of the kernel's (rwsem)"), "{error}");
}

#[test]
fn a_task_joins_its_group_where_it_is_said_how() {
    let path = std::env::temp_dir().join(format!("warmcore-group-{}", std::process::id()));
    std::fs::write(&path, "").unwrap();
    let text = r#"{"tasks": {"a": {"loop": 1, "run": 5, "taskgroup": "/a"}}}"#;
    let workload = from_rtapp("groups", text, &warmcore_workload::Options::default()).unwrap();
    let group = workload.tasks[0].group.unwrap().index();
    let options = NativeOptions { groups: vec![path.clone(); group + 1], ..NativeOptions::default() };
    let outcome = run(&workload, &options).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), outcome.tasks[0].thread.to_string());
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let alone = run(&workload, &NativeOptions::default()).unwrap();
    assert!(alone.warnings.iter().any(|warning| warning.what == "task groups"));
    std::fs::remove_file(&path).unwrap();
}
