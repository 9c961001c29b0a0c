//! What is written reads back equal, for arbitrary workloads.

use super::*;
use crate::{
    Affinity, Aggregate, Aggregation, Barrier, BarrierId, BarrierWait, Channel, ChannelId, ChannelKind, ConditionId,
    DataGroup, DataGroupId, Distribution, Drawn, Group, GroupId, KernelStep, Latch, LatchKind, ListId, LockId, Policy,
    Process, ProcessId, Program, ProgramBuilder, ProgramId, RecorderId, Reservation, ResultStyle, Semaphore,
    SemaphoreId, Task, TaskTemplateId, TimerId, TimerMode, UtilClamp, Warning,
};
use proptest::prelude::*;
use warmcore_topology::CpuSet;

/// Objects of every kind that programs may refer to.
const OBJECTS: u32 = 2;
const TASKS: u32 = 3;

/// Durations that rt-app can say more often than not.
fn duration() -> impl Strategy<Value = u64> {
    prop_oneof![(0_u64..5_000).prop_map(|us| us * 1_000), Just(0), 0_u64..1_000_000_000_000]
}

fn affinity() -> impl Strategy<Value = Affinity> {
    let numbers = prop::collection::vec(0_u32..9, 1..4);
    prop_oneof![
        Just(Affinity::All),
        numbers.clone().prop_map(Affinity::OsCpus),
        numbers.clone().prop_map(Affinity::OsNodes),
        numbers.prop_map(|list| Affinity::Cpus(list.into_iter().map(warmcore_topology::CpuId).collect::<CpuSet>())),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let reservation = Reservation { runtime_ns: 2_000, deadline_ns: 100_000, period_ns: 100_001 };
    prop::sample::select(vec![
        Policy::Normal,
        Policy::Batch,
        Policy::Idle,
        Policy::Fifo { priority: 1 },
        Policy::RoundRobin { priority: 99 },
        Policy::Deadline(reservation),
        Policy::Deadline(Reservation { period_ns: 900_000, ..reservation }),
    ])
}

fn distribution() -> impl Strategy<Value = Distribution> {
    let ns = || 1_u64..1_000_000_000_000;
    prop_oneof![
        ns().prop_map(|ns| Distribution::Constant { ns }),
        (ns(), ns()).prop_map(|(a, b)| Distribution::Uniform { from_ns: a.min(b), to_ns: a.max(b) }),
        (ns(), ns()).prop_map(|(mean_ns, sd_ns)| Distribution::Normal { mean_ns, sd_ns }),
        ns().prop_map(|mean_ns| Distribution::Exponential { mean_ns }),
        (ns(), ns()).prop_map(|(a, b)| Distribution::LogNormal { median_ns: a.min(b), p99_ns: a.max(b) }),
        prop::collection::vec(ns(), 1..4).prop_map(|values_ns| Distribution::Empirical { values_ns }),
    ]
}

fn util_clamp() -> impl Strategy<Value = UtilClamp> {
    (0_i64..=1024, 0_i64..=1024, 0..3).prop_map(|(a, b, names)| {
        let (min, max) = ((names != 1).then_some(a.min(b)), (names != 0).then_some(a.max(b)));
        UtilClamp::new(min, max).unwrap()
    })
}

/// Any step but locks and loops, which must match others.
fn step() -> impl Strategy<Value = Step> {
    let object = 0..OBJECTS;
    let mode = prop::sample::select(vec![TimerMode::Relative, TimerMode::Absolute]);
    let rtapp_steps = prop_oneof![
        duration().prop_map(|work_ns| Step::Run { work_ns }),
        duration().prop_map(|cpu_ns| Step::RunTime { cpu_ns }),
        duration().prop_map(|duration_ns| Step::Sleep { duration_ns }),
        (object.clone(), duration(), mode).prop_map(|(id, period_ns, mode)| Step::Timer {
            timer: TimerId(id),
            period_ns,
            mode
        }),
        object.clone().prop_map(|id| Step::Signal(ConditionId(id))),
        object.clone().prop_map(|id| Step::Broadcast(ConditionId(id))),
        object.clone().prop_map(|id| Step::Barrier(BarrierId(id))),
        Just(Step::Suspend),
        (0..TASKS).prop_map(|id| Step::Resume(TaskTemplateId(id))),
        object.clone().prop_map(|id| Step::SemPost(SemaphoreId(id))),
        object.clone().prop_map(|id| Step::SemWait(SemaphoreId(id))),
        Just(Step::Yield),
        any::<u64>().prop_map(|bytes| Step::IoRun { bytes }),
        any::<u64>().prop_map(|bytes| Step::FirstTouch { bytes }),
        (1..=Step::MOST_MAPPED_BYTES).prop_map(|bytes| Step::Map { bytes }),
    ];
    let other_steps = prop_oneof![
        (object.clone(), 1_u32..100).prop_map(|(id, bytes)| Step::Send { channel: ChannelId(id), bytes }),
        (object.clone(), 1_u32..100).prop_map(|(id, bytes)| Step::Receive { channel: ChannelId(id), bytes }),
        (object.clone(), any::<bool>())
            .prop_map(|(id, recorded)| Step::Enlist { list: ListId(id), recorder: recorded.then_some(RecorderId(id)) }),
        object.clone().prop_map(|id| Step::Serve(ListId(id))),
        affinity().prop_map(Step::SetAffinity),
        (-20_i8..20).prop_map(Step::SetNice),
        policy().prop_map(Step::SetPolicy),
        duration().prop_map(|slice_ns| Step::SetSlice { slice_ns }),
        util_clamp().prop_map(Step::SetUtilClamp),
        object.clone().prop_map(|id| Step::SetGroup(GroupId(id))),
        (any::<u64>(), any::<u64>()).prop_map(|(bytes, region_bytes)| Step::Memory { bytes, region_bytes }),
        (any::<u64>(), any::<u64>()).prop_map(|(hops, region_bytes)| Step::Chase { hops, region_bytes }),
        (0_u8..4).prop_map(|slot| Step::StartClock { slot }),
        (0_u8..4, object.clone()).prop_map(|(slot, id)| Step::RecordClock { slot, recorder: RecorderId(id) }),
        (any::<u64>(), object.clone())
            .prop_map(|(since_ns, id)| Step::RecordSince { since_ns, recorder: RecorderId(id) }),
        (object.clone(), 0_u8..4).prop_map(|(id, slot)| Step::SemTake { semaphore: SemaphoreId(id), slot }),
        (
            prop::sample::select(vec![Drawn::Work, Drawn::CpuTime, Drawn::Sleep, Drawn::Arrival { slot: 2 }]),
            distribution()
        )
            .prop_map(|(what, from)| Step::Draw { what, from }),
        object.prop_map(Step::Phase),
        Just(Step::Exit),
        Just(Step::Stop),
    ];
    prop_oneof![3 => rtapp_steps, 1 => other_steps]
}

/// A piece of a program that is sound by itself.
#[derive(Clone, Debug)]
enum Piece {
    Step(Step),
    Unmoved(u64),
    InKernel(u64),
    ForIo(u64),
    Locked(u32, u32, Vec<Step>),
    Memory(u64),
    Loop(Option<u64>, Vec<Piece>),
    Phase(u32, Vec<Step>, Option<u64>, Vec<Step>),
}

fn piece() -> impl Strategy<Value = Piece> {
    let steps = || prop::collection::vec(step(), 1..4);
    let times = || prop_oneof![Just(None), (0_u64..4).prop_map(Some)];
    let changes = prop_oneof![
        affinity().prop_map(|to| vec![Step::SetAffinity(to)]),
        (policy(), -20_i8..20).prop_map(|(policy, nice)| vec![Step::SetPolicy(policy), Step::SetNice(nice)]),
        util_clamp().prop_map(|clamp| vec![Step::SetUtilClamp(clamp)]),
        Just(vec![]),
    ];
    let leaf = prop_oneof![
        6 => step().prop_map(Piece::Step),
        1 => (0..OBJECTS, 0..OBJECTS, steps())
            .prop_map(|(lock, condition, steps)| Piece::Locked(lock, condition, steps)),
        1 => (0_u64..100_000).prop_map(Piece::Memory),
        1 => duration().prop_map(Piece::Unmoved),
        1 => duration().prop_map(Piece::InKernel),
        1 => duration().prop_map(Piece::ForIo),
        1 => (0..OBJECTS, changes, times(), steps())
            .prop_map(|(name, changes, times, steps)| Piece::Phase(name, changes, times, steps)),
    ];
    leaf.prop_recursive(2, 12, 4, move |inner| {
        (times(), prop::collection::vec(inner, 1..4)).prop_map(|(times, pieces)| Piece::Loop(times, pieces))
    })
}

fn build(mut builder: ProgramBuilder, pieces: &[Piece], depth: usize) -> ProgramBuilder {
    // Every loop gets a step in which time passes, so that the workload is sound.
    let pause = || Step::Sleep { duration_ns: 1_000 };
    let append = |builder: ProgramBuilder, steps: &[Step]| {
        steps.iter().fold(builder, |builder, step| builder.step(step.clone()))
    };
    for piece in pieces {
        builder = match piece {
            Piece::Step(step) => builder.step(step.clone()),
            Piece::Unmoved(work_ns) => {
                append(builder, &[Step::MigrateDisable, Step::Run { work_ns: *work_ns }, Step::MigrateEnable])
            }
            Piece::ForIo(duration_ns) => {
                append(builder, &[Step::IoWait, Step::Sleep { duration_ns: duration_ns.saturating_add(1) }])
            }
            Piece::InKernel(work_ns) => {
                use KernelStep::{CondResched, Enter, Exit, MightSleep, PreemptDisable, PreemptEnable};
                let builder = [Enter, MightSleep, PreemptDisable]
                    .into_iter()
                    .fold(builder, |builder, step| builder.step(Step::Kernel(step)))
                    .step(Step::Run { work_ns: *work_ns })
                    .step(Step::Kernel(PreemptEnable));
                let [mutex, semaphore] = [LockId(2), LockId(3)];
                let takes = [Step::Lock(mutex), Step::LockShared(semaphore)];
                let builder = append(append(builder, &takes), &[semaphore, mutex].map(Step::Unlock));
                [CondResched, Exit].into_iter().fold(builder, |builder, step| builder.step(Step::Kernel(step)))
            }
            Piece::Locked(lock, condition, steps) => {
                let (lock, condition) = (LockId(*lock), ConditionId(*condition));
                append(builder.step(Step::Lock(lock)).step(Step::Wait { condition, lock }), steps)
                    .step(Step::SignalAndWait { condition, lock })
                    .step(Step::Unlock(lock))
            }
            Piece::Memory(bytes) => builder
                .step(Step::Memory { bytes: *bytes, region_bytes: 4 << 20 })
                .step(Step::Run { work_ns: bytes.div_ceil(16) }),
            Piece::Loop(times, pieces) if depth < 3 => {
                builder.repeat(*times, |body| build(body, pieces, depth + 1).step(pause()))
            }
            Piece::Loop(_, pieces) => build(builder, pieces, depth),
            Piece::Phase(name, changes, times, steps) => {
                let builder = append(builder.step(Step::Phase(*name)), changes);
                builder.repeat(*times, |body| append(body, steps).step(pause()))
            }
        };
    }
    builder
}

fn program() -> impl Strategy<Value = Program> {
    (prop::collection::vec(piece(), 1..6), any::<bool>()).prop_map(|(pieces, forever)| {
        let all = build(ProgramBuilder::new(), &pieces, 1);
        if forever {
            let pause = Step::Sleep { duration_ns: 1_000 };
            ProgramBuilder::new().repeat(None, |body| build(body, &pieces, 1).step(pause)).finish()
        } else {
            all.finish()
        }
    })
}

fn task(index: u32) -> impl Strategy<Value = Task> {
    let scheduling = (-20_i8..20, policy(), affinity(), prop::option::of(duration()), prop::option::of(0..OBJECTS));
    let times = (duration(), prop::option::of(duration()), prop::option::of(0_u32..8), prop::option::of(0..50_000_u64));
    let of_phases = prop::option::of((0..OBJECTS, "(spin|hackbench|own)"));
    let data = (
        prop::collection::vec(0..OBJECTS, 0..3),
        prop::option::of("(spin|hackbench|own)"),
        "(worker|task 0|)",
        of_phases,
        prop::option::of("(python3|task 0|)"),
    );
    (scheduling, times, data, 1_u32..4, 0..OBJECTS, prop::option::of(util_clamp())).prop_map(
        move |(
            (nice, policy, affinity, slice_ns, group),
            (start_ns, release_ns, start_cpu, timer_slack_ns),
            data,
            instances,
            process,
            util_clamp,
        )| Task {
            name: format!("task {index}"),
            process: ProcessId(process),
            program: ProgramId(index),
            instances,
            nice,
            policy,
            affinity,
            release_ns,
            slice_ns,
            util_clamp: util_clamp.unwrap_or_default(),
            timer_slack_ns,
            group: group.map(GroupId),
            data_groups: data.0.into_iter().map(DataGroupId).collect(),
            start_ns,
            start_cpu,
            profile: data.1,
            phase_profiles: data.3.into_iter().collect(),
            role: data.2,
            comm: data.4,
        },
    )
}

fn named<T>(prefix: &str, make: impl Fn(String) -> T) -> Vec<T> {
    (0..OBJECTS).map(|index| make(format!("{prefix} {index}"))).collect()
}

/// A memory profile with no field at its default.
fn own_profile() -> warmcore_memory::Profile {
    use warmcore_memory::{Class, ClassKind, Home, Profile, Sharing};
    let mut scan = Class::new("scan", 12_345_678, 0.012_34, 0.7);
    (scan.kind, scan.exposure, scan.home) = (ClassKind::Scan, 0.2, Home::Shares(vec![0.25, 0.75]));
    let mut shared = Class::new("shared", 4096, 0.1 + 0.2, 0.0);
    (shared.sharing, shared.home) = (Sharing::Process, Home::Interleave);
    Profile {
        name: "own".into(),
        summary: "one".into(),
        origin: "two".into(),
        cpi0: 1.0 / 3.0,
        mlp: 4.0,
        ipc_ceiling: Some(2.5),
        message_lines: Some(7),
        classes: vec![scan, shared],
    }
}

/// Choices of every kind, or none.
fn aggregation(some: bool) -> Aggregation {
    if !some {
        return Aggregation::default();
    }
    Aggregation {
        groups: vec!["together".into(), "data 1".into()],
        processes: [(0, Aggregate::Off), (1, Aggregate::Group(1))].into(),
        task_groups: [(0, Aggregate::Process)].into(),
        data_groups: [(1, Aggregate::Group(0))].into(),
    }
}

/// A workload with objects of all kinds, three tasks and three programs.
fn workload() -> impl Strategy<Value = Workload> {
    let tasks = (task(0), task(1), task(2));
    let programs = prop::collection::vec(program(), TASKS as usize);
    let rest = (any::<bool>(), prop::option::of(duration()), 0..3_usize, any::<bool>(), 0..OBJECTS);
    (tasks, programs, rest).prop_map(|(tasks, programs, (shared, duration_ns, style, warned, group))| {
        let mut tasks = vec![tasks.0, tasks.1, tasks.2];
        // Data needs somebody who works on it, and a weight somebody who has it.
        tasks[1].data_groups = (0..OBJECTS).map(DataGroupId).collect();
        tasks[1].group = Some(GroupId(2));
        if shared {
            tasks[2].program = ProgramId(0);
        }
        let groups = [["/a", "/", "/a/b"], ["/", "no path", "/x"]][group as usize];
        // By its path, or although its path does not say so.
        let parent = |name: &str| matches!(name, "/a/b").then_some(GroupId(0)).or((name == "/x").then_some(GroupId(1)));
        let warning = Warning { what: "event \"x\"".into(), consequence: "ignored".into(), count: 3 };
        Workload {
            name: "any".into(),
            command: Vec::new(),
            hotplug: [false, true]
                .map(|online| crate::Hotplug { time_ns: 5 + u64::from(online), cpu: group, online })
                .to_vec(),
            isolcpus: vec![group, group + 2],
            nohz_full: vec![group + 2],
            applications: named("application", |name| name),
            processes: named("process", |name| Process { name, application: group }),
            tasks,
            programs,
            groups: groups
                .iter()
                .map(|name| Group { shares: 100, parent: parent(name), ..Group::new(*name) })
                .collect(),
            data_groups: named("data", |name| DataGroup { name, bytes: 5 }),
            profiles: vec![own_profile()],
            aggregation: aggregation(warned),
            locks: ["lock 0", "lock 1", "mutex", "semaphore"].map(String::from).to_vec(),
            latches: vec![
                Latch { lock: LockId(2), kind: LatchKind::Mutex, lines: 2, ..Latch::default() },
                Latch {
                    lock: LockId(0),
                    kind: LatchKind::Latch,
                    spin_ns: 20_000,
                    poll_ns: 700,
                    wakes_all: true,
                    sleep_ns: 900,
                    lines: 7,
                },
                Latch { lock: LockId(3), kind: LatchKind::Rwsem, ..Latch::default() },
            ],
            conditions: named("condition", |name| name),
            barriers: named("barrier", |name| Barrier {
                name,
                participants: 1,
                wait: [BarrierWait::Spin, BarrierWait::Poll][group as usize],
            }),
            semaphores: named("semaphore", |name| Semaphore { name, initial: 1 }),
            channels: named("channel", |name| Channel { name, kind: ChannelKind::Socket, capacity_bytes: 100 }),
            lists: named("list", |name| name),
            timers: vec!["shared".into(), "unique".into()],
            recorders: named("recorder", |name| name),
            phases: named("phase", |name| name),
            style: match style {
                0 => ResultStyle::Plain,
                1 => ResultStyle::Hackbench { header: "two\nlines".into() },
                2 => ResultStyle::Sysbench { transaction: RecorderId(1) },
                _ => ResultStyle::Schbench { wakeup: RecorderId(1), request: RecorderId(0) },
            },
            duration_ns,
            warm_up_ns: duration_ns.map(|ns| ns / 2),
            notes: if warned { vec!["said \"so\"".into(), "and so".into()] } else { Vec::new() },
            warnings: if warned { vec![warning] } else { Vec::new() },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_sound_workload_reads_back_equal(workload in workload()) {
        prop_assert_eq!(workload.check(), Ok(()));
        let text = to_rtapp(&workload).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let read = from_rtapp("any", &text, &Options::default());
        let read = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(read, workload, "{}", text);
    }

    #[test]
    fn a_damaged_file_is_read_or_refused_without_panic(
        workload in workload(),
        cut in any::<prop::sample::Index>(),
        put in "[{}\\[\\],:\"0-9a-z]{0,3}",
    ) {
        let text = to_rtapp(&workload).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut damaged: Vec<char> = text.chars().collect();
        let at = cut.index(damaged.len());
        damaged.splice(at..(at + 2).min(damaged.len()), put.chars());
        let _ = from_rtapp("any", &damaged.into_iter().collect::<String>(), &Options::default());
    }
}

#[test]
fn plain_files_stay_plain() {
    for body in [
        r#""t": { "instance": 4, "delay": 5, "cpus": [1, 2], "priority": 3, "run": 1, "run": 2, "sleep": 5 }"#,
        r#""t": { "loop": 3, "phases": { "a": { "cpus": [1], "run": 1 }, 
                 "b": { "policy": "SCHED_IDLE", "loop": 7, "sleep": 1 } } }"#,
        r#""t": { "suspend": "t", "run": 1 }, "u": { "resume": "u", "resume": "t", "sleep": 1 }"#,
        r#""t": { "mem": 100, "memrun": { "type": "chase", "size": 1000, "count": 9 }, "yield": "", "iorun": 5 }"#,
        r#""t": { "run": 1, "timer": { "ref": "unique", "period": 9, "mode": "absolute" }, "barrier": "b" }"#,
    ] {
        let workload = tasks(body);
        let text = to_rtapp(&workload).unwrap();
        assert!(!text.contains("warmcore"), "{text}");
        assert_eq!(from_rtapp("test", &text, &Options::default()).unwrap(), workload, "{text}");
    }
}

#[test]
fn repeated_events_are_written_with_numbers() {
    let text = to_rtapp(&tasks(r#""t": { "run": 1, "sleep": 2, "run": 3 }"#)).unwrap();
    assert!(text.contains("\"run1\": 3"), "{text}");
}

#[test]
fn tasks_rtapp_cannot_run_are_left_to_it_as_no_instance() {
    let workload = crate::from_generator("pingpong:-n1,-l2").unwrap();
    let text = to_rtapp(&workload).unwrap();
    assert!(text.contains(r#""ping-0": { "instance": 0, "loop": 1, "sleep": 0 }"#), "{text}");
}

#[test]
fn names_that_occur_twice_cannot_be_written() {
    let mut workload = tasks(r#""t": { "run": 1 }, "u": { "run": 1 }"#);
    workload.tasks[1].name = "t".into();
    assert_eq!(to_rtapp(&workload), Err(WriteError::DuplicateName { table: "tasks", name: "t".into() }));
}

#[test]
fn a_command_is_read_back_word_for_word_and_has_no_tasks_beside_it() {
    let words = ["/usr/bin/env", "a b", "a b", ""].map(str::to_owned).to_vec();
    let workload = Workload::of_command(words);
    assert_eq!(workload.name, "env");
    let text = to_rtapp(&workload).unwrap();
    assert_eq!(from_rtapp("env", &text, &Options::default()).unwrap(), workload);
    let both = r#"{ "tasks": { "a": { "run": 5 } }, "warmcore": { "version": 1, "command": ["env"] } }"#;
    let error = from_rtapp("env", both, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("one or the other"), "{error}");
}
