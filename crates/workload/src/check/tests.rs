use super::*;
use crate::{
    Affinity, BarrierId, BarrierWait, ChannelId, ChannelKind, ConditionId, CpuMax, Distribution, Drawn, Group, GroupId,
    KernelStep, Latch, LatchKind, LockId, ProcessId, ProgramBuilder, RecorderId, SemaphoreId, Task,
};

const RUN: Step = Step::Run { work_ns: 1_000 };

/// A workload of one task with the given program and one object of every kind.
fn with_program(program: Program) -> Workload {
    let mut workload = Workload::empty("test");
    workload.add_process("process");
    workload.add_lock("mutex");
    workload.add_condition("condition");
    workload.add_barrier("barrier", 1, BarrierWait::Block);
    workload.add_channel("pipe", ChannelKind::Pipe, 4096);
    workload.add_recorder("latency");
    let program = workload.add_program(program);
    workload.add_task(Task::new("worker", ProcessId(0), program));
    workload
}

fn with_steps(steps: &[Step]) -> Workload {
    with_program(Program { steps: steps.to_vec() })
}

fn problem(workload: &Workload) -> CheckProblem {
    workload.check().expect_err("the workload should be refused").problem
}

#[test]
fn a_sound_workload_passes() {
    let program = ProgramBuilder::new()
        .repeat(None, |body| body.step(Step::Lock(LockId(0))).step(RUN).step(Step::Unlock(LockId(0))))
        .finish();
    assert_eq!(with_program(program).check(), Ok(()));
}

#[test]
fn ids_beyond_their_tables_are_refused_with_the_place() {
    let error = with_steps(&[RUN, Step::Unlock(LockId(7))]).check().unwrap_err();
    assert_eq!(error.problem, CheckProblem::UnknownId { what: "lock", index: 7, count: 1 });
    assert_eq!(error.place, "task \"worker\", step 1 (unlock)");
    assert_eq!(error.step, Some((ProgramId(0), 1)));

    for step in [
        Step::Fork(TaskTemplateId(9)),
        Step::Resume(TaskTemplateId(9)),
        Step::Barrier(BarrierId(9)),
        Step::Signal(ConditionId(9)),
        Step::Send { channel: ChannelId(9), bytes: 1 },
        Step::RecordClock { slot: 0, recorder: RecorderId(9) },
        Step::Phase(9),
    ] {
        assert!(matches!(problem(&with_steps(&[step])), CheckProblem::UnknownId { .. }));
    }

    let mut workload = with_steps(&[RUN]);
    workload.tasks[0].program = ProgramId(3);
    assert_eq!(problem(&workload), CheckProblem::UnknownId { what: "program", index: 3, count: 1 });
}

#[test]
fn requests_are_plain_programs_in_a_semaphore_of_their_own() {
    let (semaphore, program) = (SemaphoreId(0), ProgramId(1));
    let refused = |request: &[Step], other: Step, initial| {
        let mut workload = with_steps(&[Step::Submit { semaphore, program }, RUN, other]);
        workload.add_semaphore("requests", initial);
        workload.add_program(Program { steps: request.to_vec() });
        workload.check().err().map(|error| error.problem)
    };
    let work = |requests| Step::Work { semaphore, requests, recorder: None };
    assert_eq!(refused(&[RUN, Step::Submit { semaphore, program }], work(2), 0), None, "a request may submit others");
    assert_eq!(refused(&[RUN], work(0), 0), Some(CheckProblem::NoRequests { semaphore: "requests".into() }));
    let in_request = |step| Some(CheckProblem::NotInRequest { program: 1, step });
    assert_eq!(refused(&[work(1)], work(1), 0), in_request("work"));
    let endless = [Step::LoopStart { times: None, end: 2 }, RUN, Step::LoopEnd { start: 0 }];
    assert_eq!(refused(&endless, work(1), 0), in_request("loop"));
    let mixed = Some(CheckProblem::MixedQueue { semaphore: "requests".into() });
    assert_eq!(refused(&[RUN], Step::SemWait(semaphore), 0), mixed);
    assert_eq!(refused(&[RUN], work(1), 3), mixed, "what is there at the start is nothing to carry out");
    assert!(matches!(
        refused(&[RUN], Step::Work { semaphore: SemaphoreId(4), requests: 1, recorder: None }, 0),
        Some(CheckProblem::UnknownId { .. })
    ));
}

#[test]
fn loops_that_do_not_match_are_refused() {
    let start = |end| Step::LoopStart { times: Some(2), end };
    let end = |start| Step::LoopEnd { start };
    for steps in [
        vec![start(2), RUN],
        vec![RUN, end(0)],
        vec![start(2), RUN, end(1)],
        vec![start(9), RUN, end(0)],
        vec![start(4), start(3), RUN, end(0), end(1)],
    ] {
        assert_eq!(problem(&with_steps(&steps)), CheckProblem::LoopMismatch, "{steps:?}");
    }
    assert_eq!(problem(&with_steps(&[start(1), end(0)])), CheckProblem::LoopEmpty);
}

#[test]
fn loops_nest_four_deep_but_not_five() {
    fn nested(depth: usize) -> Workload {
        fn inside(builder: ProgramBuilder, depth: usize) -> ProgramBuilder {
            if depth == 0 { builder.step(RUN) } else { builder.repeat(Some(2), |body| inside(body, depth - 1)) }
        }
        with_program(inside(ProgramBuilder::new(), depth).finish())
    }
    assert_eq!(nested(4).check(), Ok(()));
    assert_eq!(problem(&nested(5)), CheckProblem::LoopTooDeep { depth: 5 });
}

#[test]
fn endless_loops_in_which_no_time_passes_are_refused() {
    let endless = |step: Step| with_program(ProgramBuilder::new().repeat(None, |body| body.step(step)).finish());
    for step in [
        Step::Yield,
        Step::Run { work_ns: 0 },
        Step::Sleep { duration_ns: 0 },
        Step::Signal(ConditionId(0)),
        Step::SetNice(1),
    ] {
        assert_eq!(problem(&endless(step)), CheckProblem::LoopNeverLetsTimePass);
    }
    for step in [RUN, Step::Sleep { duration_ns: 1 }, Step::Suspend, Step::Receive { channel: ChannelId(0), bytes: 1 }]
    {
        assert_eq!(endless(step).check(), Ok(()));
    }
}

#[test]
fn time_must_pass_in_inner_loops_that_are_never_skipped() {
    let inner_skipped =
        ProgramBuilder::new().repeat(None, |body| body.repeat(Some(0), |inner| inner.step(RUN))).finish();
    assert_eq!(problem(&with_program(inner_skipped)), CheckProblem::LoopNeverLetsTimePass);
    let huge = ProgramBuilder::new()
        .repeat(Some(10_000), |body| body.repeat(Some(10_000), |inner| inner.step(Step::Yield)))
        .finish();
    assert_eq!(problem(&with_program(huge)), CheckProblem::LoopNeverLetsTimePass);
    let small = ProgramBuilder::new().repeat(Some(1_000), |body| body.step(Step::Yield)).finish();
    assert_eq!(with_program(small).check(), Ok(()));
}

#[test]
fn unlocking_what_is_not_held_is_refused() {
    let lock = "mutex".to_owned();
    assert_eq!(problem(&with_steps(&[Step::Unlock(LockId(0))])), CheckProblem::NotHeld { lock: lock.clone() });
    let wait = Step::Wait { condition: ConditionId(0), lock: LockId(0) };
    assert_eq!(problem(&with_steps(&[wait])), CheckProblem::NotHeld { lock });
}

#[test]
fn locking_twice_is_refused_also_around_a_loop() {
    let lock = "mutex".to_owned();
    let twice = with_steps(&[Step::Lock(LockId(0)), Step::Lock(LockId(0))]);
    assert_eq!(problem(&twice), CheckProblem::AlreadyHeld { lock: lock.clone() });
    let forgotten = ProgramBuilder::new().repeat(Some(2), |body| body.step(Step::Lock(LockId(0))).step(RUN)).finish();
    assert_eq!(problem(&with_program(forgotten)), CheckProblem::AlreadyHeld { lock });
    let once = ProgramBuilder::new().repeat(Some(1), |body| body.step(Step::Lock(LockId(0))).step(RUN)).finish();
    assert_eq!(with_program(once).check(), Ok(()));
}

#[test]
fn locks_of_the_kernel_are_taken_and_given_back_there_where_the_task_may_sleep() {
    use KernelStep::{Enter, Exit, PreemptDisable, PreemptEnable};
    let checked = |kind, steps: &[Step]| {
        let mut workload = with_steps(steps);
        workload.latches.push(Latch { kind, ..Latch::default() });
        workload.check().map_err(|error| error.problem)
    };
    let lock = "mutex".to_owned();
    let [takes, reads, gives] = [Step::Lock(LockId(0)), Step::LockShared(LockId(0)), Step::Unlock(LockId(0))];
    let [enter, exit, off, on] = [Enter, Exit, PreemptDisable, PreemptEnable].map(Step::Kernel);
    let within = |takes: &Step| [enter.clone(), takes.clone(), RUN, gives.clone(), exit.clone()];
    for kind in [LatchKind::Mutex, LatchKind::Rwsem] {
        assert_eq!(checked(kind, &within(&takes)), Ok(()));
        let refused = |steps: &[Step]| checked(kind, steps).unwrap_err();
        let outside = CheckProblem::LockedOutsideKernel { lock: lock.clone() };
        assert_eq!(refused(&[takes.clone(), gives.clone()]), outside);
        let kept = [enter.clone(), takes.clone(), exit.clone(), gives.clone()];
        assert_eq!(refused(&kept), CheckProblem::LeavesKernelWithLock { lock: lock.clone() });
        let atomic = [enter.clone(), off.clone(), takes.clone(), gives.clone(), on.clone(), exit.clone()];
        assert_eq!(refused(&atomic), CheckProblem::LockedWhileAtomic { lock: lock.clone() });
        let wait = Step::Wait { condition: ConditionId(0), lock: LockId(0) };
        let waits = [enter.clone(), takes.clone(), wait, gives.clone(), exit.clone()];
        assert_eq!(refused(&waits), CheckProblem::WaitsWithLockOfKernel { lock: lock.clone() });
    }
    assert_eq!(checked(LatchKind::Rwsem, &within(&reads)), Ok(()));
    let again = [enter.clone(), reads.clone(), reads.clone(), gives.clone(), exit.clone()];
    assert_eq!(checked(LatchKind::Rwsem, &again), Err(CheckProblem::AlreadyHeld { lock: lock.clone() }));
    for kind in [LatchKind::Mutex, LatchKind::Latch] {
        assert_eq!(checked(kind, &within(&reads)), Err(CheckProblem::NotShared { lock: lock.clone() }));
    }
}

#[test]
fn barriers_need_as_many_users_as_participants() {
    let mut workload = with_steps(&[Step::Barrier(BarrierId(0))]);
    workload.barriers[0].participants = 3;
    let never = CheckProblem::BarrierNeverOpens { barrier: "barrier".into(), participants: 3, tasks: 1 };
    assert_eq!(problem(&workload), never);
    workload.tasks[0].instances = 3;
    assert_eq!(workload.check(), Ok(()));
    workload.barriers[0].participants = 0;
    assert_eq!(problem(&workload), CheckProblem::BarrierForNobody { barrier: "barrier".into() });
}

#[test]
fn forked_tasks_may_be_any_number_of_barrier_users() {
    let mut workload = with_steps(&[Step::Fork(TaskTemplateId(1)), RUN]);
    let program = workload.add_program(Program { steps: vec![Step::Barrier(BarrierId(0))] });
    workload.add_task(Task { instances: 0, ..Task::new("child", ProcessId(0), program) });
    workload.barriers[0].participants = 3;
    assert_eq!(workload.check(), Ok(()));
    workload.programs[0].steps.push(Step::Join { count: 0 });
    assert_eq!(problem(&workload), CheckProblem::JoinOfNobody);
}

#[test]
fn tasks_that_fork_each_other_at_one_instant_are_refused() {
    let mut workload = with_steps(&[Step::Fork(TaskTemplateId(1)), RUN]);
    let program = workload.add_program(Program { steps: vec![Step::Yield, Step::Fork(TaskTemplateId(0))] });
    workload.add_task(Task { instances: 0, ..Task::new("child", ProcessId(0), program) });
    let names = ["worker", "child", "worker"].map(String::from).to_vec();
    assert_eq!(problem(&workload), CheckProblem::ForkCycle { names });

    workload.programs[1].steps.insert(0, RUN);
    assert_eq!(workload.check(), Ok(()), "a chain of forks is fine when time passes on it");
}

#[test]
fn what_is_measured_is_told_apart_by_name() {
    let mut workload = with_steps(&[RUN]);
    let other = Task { name: "other".into(), group: Some(GroupId(1)), ..workload.tasks[0].clone() };
    workload.add_task(other);
    workload.tasks[0].group = Some(GroupId(0));
    workload.groups = ["/o/i", "/o_i"].map(Group::new).to_vec();
    workload.groups[0].cpu_max = CpuMax::new(20_000, 100_000, 0).ok();
    assert_eq!(workload.check(), Ok(()), "only groups with a quota have measures");
    workload.groups[1].cpu_max = workload.groups[0].cpu_max;
    let text = workload.check().unwrap_err().to_string();
    assert!(text.contains("\"/o/i\" and \"/o_i\" would be \"o_i\" in the names of measures"), "{text}");
    workload.groups.clear();
    workload.tasks.iter_mut().for_each(|task| task.group = None);
    workload.recorders = ["req-1", "req_1"].map(str::to_owned).to_vec();
    assert!(matches!(problem(&workload), CheckProblem::MeasuredAlike { what: "recorders", .. }));
}

#[test]
fn messages_must_fit_their_channel() {
    let send = |bytes| with_steps(&[Step::Send { channel: ChannelId(0), bytes }]);
    assert_eq!(send(4096).check(), Ok(()));
    assert!(matches!(problem(&send(4097)), CheckProblem::MessageTooBig { bytes: 4097, capacity_bytes: 4096, .. }));
    assert_eq!(problem(&send(0)), CheckProblem::MessageEmpty);
}

#[test]
fn values_out_of_range_are_refused() {
    assert_eq!(problem(&with_steps(&[Step::SetNice(20)])), CheckProblem::NiceOutOfRange { nice: 20 });
    for step in [
        Step::StartClock { slot: 4 },
        Step::SemTake { semaphore: SemaphoreId(0), slot: 4 },
        Step::Draw { what: Drawn::Arrival { slot: 4 }, from: Distribution::Exponential { mean_ns: 1 } },
    ] {
        assert_eq!(problem(&with_steps(&[step])), CheckProblem::NoSuchClock { slot: 4 });
    }
    assert_eq!(problem(&with_steps(&[Step::SetAffinity(Affinity::OsCpus(vec![]))])), CheckProblem::NoCpus);
    assert_eq!(problem(&with_steps(&[Step::Join { count: 1 }])), CheckProblem::JoinWithoutFork);
    let long = Step::Sleep { duration_ns: MAX_DURATION_NS + 1 };
    assert_eq!(problem(&with_steps(&[long])), CheckProblem::TooLong { ns: MAX_DURATION_NS + 1 });
}

#[test]
fn a_workload_without_tasks_or_with_too_many_is_refused() {
    let mut workload = with_steps(&[RUN]);
    workload.tasks[0].instances = 0;
    assert_eq!(problem(&workload), CheckProblem::NothingToRun);
    workload.tasks[0].instances = u32::MAX;
    assert_eq!(problem(&workload), CheckProblem::TooManyTasks { count: u64::from(u32::MAX) });
}

#[test]
fn migration_is_enabled_as_often_as_disabled_in_each_pass() {
    use CheckProblem::{AffinityWithMigrationDisabled, MigrationNotDisabled, MigrationStaysDisabled};
    let (off, on) = (Step::MigrateDisable, Step::MigrateEnable);
    let nested = ProgramBuilder::new()
        .step(off.clone())
        .repeat(Some(3), |body| body.step(off.clone()).step(RUN).step(on.clone()))
        .step(on.clone());
    assert_eq!(with_program(nested.finish()).check(), Ok(()));
    let endless = ProgramBuilder::new().step(off.clone()).repeat(None, |body| body.step(RUN));
    assert_eq!(with_program(endless.finish()).check(), Ok(()));
    let grows = ProgramBuilder::new().repeat(Some(2), |body| body.step(RUN).step(off.clone()));
    assert_eq!(problem(&with_program(grows.finish())), MigrationStaysDisabled);
    let shrinks =
        ProgramBuilder::new().step(off.clone()).repeat(Some(2), |body| body.step(RUN).step(on.clone())).step(RUN);
    assert_eq!(problem(&with_program(shrinks.finish())), MigrationNotDisabled);
    assert_eq!(problem(&with_steps(&[on])), MigrationNotDisabled);
    assert_eq!(problem(&with_steps(&[off.clone(), RUN])), MigrationStaysDisabled);
    assert_eq!(problem(&with_steps(&[off.clone(), Step::Exit])), MigrationStaysDisabled);
    assert_eq!(problem(&with_steps(&[off, Step::SetAffinity(Affinity::All)])), AffinityWithMigrationDisabled);
}

#[test]
fn a_wait_for_io_is_a_step_that_waits() {
    let io = |next: &[Step]| with_steps(&[&[Step::IoWait], next].concat());
    assert_eq!(io(&[Step::Sleep { duration_ns: 1 }]).check(), Ok(()));
    let none = Step::Sleep { duration_ns: 0 };
    for (next, name) in
        [(&[RUN][..], "run"), (&[none], "a sleep of 0 ns"), (&[], "the end"), (&[Step::IoWait], "iowait")]
    {
        assert_eq!(problem(&io(next)), CheckProblem::NoIoWait { next: name });
    }
}

#[test]
fn a_program_leaves_the_kernel_as_it_entered_it_and_does_nothing_of_the_kernel_outside() {
    use CheckProblem::{
        InKernelAlready, MappedBytes, NotInKernel, PreemptionNotDisabled, PreemptionStaysDisabled, StaysInKernel,
    };
    use KernelStep::{CondResched, Enter, Exit, PreemptDisable, PreemptEnable};
    let kernel = |steps: &[KernelStep]| with_steps(&steps.iter().map(|step| Step::Kernel(*step)).collect::<Vec<_>>());
    assert_eq!(
        kernel(&[Enter, PreemptDisable, PreemptDisable, PreemptEnable, PreemptEnable, CondResched, Exit]).check(),
        Ok(())
    );
    assert_eq!(problem(&kernel(&[Enter, Enter])), InKernelAlready);
    assert_eq!(problem(&kernel(&[Enter, CondResched])), StaysInKernel);
    for outside in [Exit, CondResched, PreemptDisable] {
        assert_eq!(problem(&kernel(&[outside])), NotInKernel);
    }
    assert_eq!(problem(&kernel(&[Enter, PreemptEnable, Exit])), PreemptionNotDisabled);
    assert_eq!(problem(&kernel(&[Enter, PreemptDisable, Exit])), PreemptionStaysDisabled);
    for step in [Step::FirstTouch { bytes: 1 }, Step::Map { bytes: 1 }] {
        assert_eq!(problem(&with_steps(&[Step::Kernel(Enter), step, Step::Kernel(Exit)])), InKernelAlready);
    }
    for bytes in [0, Step::MOST_MAPPED_BYTES + 1] {
        assert_eq!(problem(&with_steps(&[Step::Map { bytes }])), MappedBytes { bytes });
    }
    let one_pass = ProgramBuilder::new()
        .step(Step::Kernel(Enter))
        .repeat(Some(2), |body| body.step(RUN).step(Step::Kernel(Exit)).step(Step::Kernel(Enter)))
        .step(Step::Kernel(Exit));
    assert_eq!(problem(&with_program(one_pass.finish())), NotInKernel);
}
