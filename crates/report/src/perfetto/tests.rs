//! The wire format, field by field; a small run and its packets.

use super::*;
use prost::Message as _;
use proto::TracePacket;
use warmcore_topology::resolve;
use warmcore_trace::DecisionValue;

/// The packets of a trace, by the rules of the wire format alone.
fn packets(mut bytes: &[u8]) -> Vec<TracePacket> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[0], 0x0a, "a packet is field 1, length-delimited");
        bytes = &bytes[1..];
        found.push(TracePacket::decode_length_delimited(&mut bytes).unwrap());
    }
    found
}

fn event(time_ns: u64, cpu: u32, kind: EventKind) -> Event {
    Event { time_ns, cpu: CpuId(cpu), kind }
}

/// A machine with two LLCs of one CPU, and two tasks of one process.
fn run() -> (Machine, RunTables, [TaskInfo; 2]) {
    let machine = resolve("1s1n2l1c1t").unwrap();
    let task = |id: u32| TaskInfo {
        id: TaskId(id),
        name: format!("t{id}"),
        role: "r".into(),
        application: 0,
        application_name: "app".into(),
        process: 7,
    };
    let tables =
        RunTables { decisions: vec![DecisionKind::new("steal", "idle", DecisionValue::Cpu)], ..RunTables::default() };
    (machine, tables, [task(0), task(1)])
}

fn trace() -> Vec<TracePacket> {
    packets(&written())
}

fn written() -> Vec<u8> {
    let (machine, tables, tasks) = run();
    let mut writer = PerfettoWriter::new(Vec::new(), &machine, &tables, &tasks).unwrap();
    let (a, b) = (TaskId(0), TaskId(1));
    let switch = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
    let events = [
        event(5, 0, EventKind::Fork { parent: TaskId::IDLE, child: a }),
        event(5, 0, EventKind::Wakeup { task: a, reason: None }),
        event(10, 0, switch(TaskId::IDLE, PrevState::Idle, a)),
        event(30, 0, EventKind::Waking { task: b, target_cpu: CpuId(1), waker: TaskId::IDLE }),
        event(32, 0, EventKind::Wakeup { task: b, reason: None }),
        event(
            40,
            1,
            EventKind::Migrate { task: b, from: CpuId(0), to: CpuId(1), kind: warmcore_trace::MigrationKind::Steal },
        ),
        event(40, 1, EventKind::Decision { decision: 0, task: b, value: -3 }),
        event(45, 1, switch(TaskId::IDLE, PrevState::Idle, b)),
        event(90, 0, switch(a, PrevState::Sleeping, TaskId::IDLE)),
        event(95, 1, switch(b, PrevState::Dead, TaskId::IDLE)),
    ];
    writer.events(&events).unwrap();
    writer.finish(100).unwrap()
}

#[test]
fn switches_and_wakings_are_columns_with_differences_of_time() {
    let bundles: Vec<_> = trace()
        .into_iter()
        .filter_map(|packet| packet.ftrace_events)
        .filter(|bundle| bundle.compact_sched.is_some())
        .collect();
    assert_eq!(bundles.iter().map(|bundle| bundle.cpu.unwrap()).collect::<Vec<_>>(), [0, 1]);
    let compact = bundles[0].compact_sched.clone().unwrap();
    assert_eq!(compact.switch_timestamp, [0, 10, 80, 10], "every CPU begins idle, and goes idle when the run ends");
    assert_eq!(compact.switch_next_pid, [0, 1, 0, 0]);
    assert_eq!(compact.switch_prev_state, [0, 0, 1, 0]);
    assert_eq!((compact.waking_timestamp, compact.waking_pid, compact.waking_target_cpu), (vec![30], vec![2], vec![1]));
    assert_eq!(compact.intern_table[compact.switch_next_comm_index[1] as usize], "t0");
    assert_eq!(bundles[1].compact_sched.clone().unwrap().switch_prev_state, [0, 0, 16, 0]);
}

#[test]
fn migrations_are_plain_events_and_decisions_are_instants() {
    let packets = trace();
    let events: Vec<_> =
        packets.iter().filter_map(|packet| packet.ftrace_events.as_ref()).flat_map(|b| &b.event).collect();
    let new = events.iter().find_map(|event| event.task_newtask.as_ref()).unwrap();
    assert_eq!((new.pid, new.comm.as_deref(), new.clone_flags), (Some(1), Some("t0"), Some(0)), "a process of its own");
    let migrate = events.iter().find_map(|event| event.sched_migrate_task.as_ref()).unwrap();
    assert_eq!((migrate.pid, migrate.orig_cpu, migrate.dest_cpu), (Some(2), Some(0), Some(1)));
    let decision = packets.iter().find(|p| p.track_event.as_ref().is_some_and(|e| e.track_uuid == Some(DECISIONS)));
    let decision = decision.unwrap();
    assert_eq!(decision.timestamp, Some(40));
    let event = decision.track_event.as_ref().unwrap();
    assert_eq!(event.name.as_deref(), Some("steal: idle"));
    assert!(event.debug_annotations.iter().any(|a| a.name.as_deref() == Some("value") && a.int_value == Some(-3)));
    assert!(event.debug_annotations.iter().any(|a| a.string_value.as_deref() == Some("CPU")), "what the value is");
}

#[test]
fn a_waking_at_the_time_of_the_switch_after_it_comes_first() {
    let (machine, tables, tasks) = run();
    let mut writer = PerfettoWriter::new(Vec::new(), &machine, &tables, &tasks).unwrap();
    let (a, b) = (TaskId(0), TaskId(1));
    let switch = |prev, next| EventKind::Switch { prev, prev_state: PrevState::Runnable, next };
    let events = [
        event(10, 0, switch(TaskId::IDLE, a)),
        event(20, 0, EventKind::Waking { task: a, target_cpu: CpuId(0), waker: TaskId::IDLE }),
        event(30, 0, EventKind::Waking { task: b, target_cpu: CpuId(1), waker: TaskId::IDLE }),
        event(30, 0, switch(a, b)),
    ];
    writer.events(&events).unwrap();
    let bundles: Vec<_> =
        packets(&writer.finish(40).unwrap()).into_iter().filter_map(|packet| packet.ftrace_events).collect();
    let waking = bundles[0].event[0].sched_waking.as_ref().unwrap();
    assert_eq!((bundles[0].event[0].timestamp, waking.pid, waking.target_cpu), (Some(30), Some(2), Some(1)));
    let compact = bundles[1].compact_sched.as_ref().unwrap();
    assert_eq!((&compact.waking_timestamp, &compact.switch_timestamp), (&vec![20], &vec![0, 10, 20, 10]));
}

/// Threads and processes as Perfetto's trace processor makes them (v55, `ftrace_parser.cc`, `ParseTaskNewTask`, and
/// `process_tracker.cc`): an event that creates a task always makes a thread; without `CLONE_THREAD` a process too, with it
/// the thread is one of its sender's process. A process tree makes what is not there yet. By thread id: the process of
/// every thread that there was.
fn threads(packets: &[TracePacket]) -> BTreeMap<i32, Vec<Option<i32>>> {
    let mut threads: BTreeMap<i32, Vec<Option<i32>>> = BTreeMap::new();
    for packet in packets {
        for event in packet.ftrace_events.iter().flat_map(|bundle| &bundle.event) {
            let Some(new) = &event.task_newtask else { continue };
            let (pid, sender) = (new.pid.unwrap(), event.pid.unwrap() as i32);
            let is_thread = new.clone_flags.unwrap() & CLONE_THREAD != 0;
            let process = if is_thread { threads[&sender].last().copied().flatten() } else { Some(pid) };
            threads.entry(pid).or_default().push(process);
        }
        for thread in packet.process_tree.iter().flat_map(|tree| &tree.threads) {
            let known = threads.entry(thread.tid.unwrap()).or_default();
            match known.last_mut() {
                Some(process @ None) => *process = thread.tgid,
                Some(process) if *process == thread.tgid => {}
                _ => known.push(thread.tgid),
            }
        }
    }
    threads
}

#[test]
fn a_task_is_one_thread_of_its_process_whoever_created_it() {
    let machine = resolve("1s1n2l1c1t").unwrap();
    // Two processes; task 4 has no event of its creation.
    let tasks = [7, 7, 8, 7, 8].iter().zip(0..).map(|(process, id)| TaskInfo {
        id: TaskId(id),
        name: format!("t{id}"),
        role: "r".into(),
        application: 0,
        application_name: "app".into(),
        process: *process,
    });
    let tasks: Vec<TaskInfo> = tasks.collect();
    let mut writer = PerfettoWriter::new(Vec::new(), &machine, &RunTables::default(), &tasks).unwrap();
    let fork = |parent, child| EventKind::Fork { parent, child: TaskId(child) };
    let switch = EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Idle, next: TaskId(0) };
    let events = [
        event(5, 0, fork(TaskId::IDLE, 0)),
        event(10, 0, switch),
        event(20, 0, fork(TaskId(0), 1)),
        event(30, 0, fork(TaskId(0), 2)),
        event(40, 1, fork(TaskId::IDLE, 3)),
    ];
    writer.events(&events).unwrap();
    let packets = packets(&writer.finish(50).unwrap());
    let tree = packets.iter().find_map(|packet| packet.process_tree.as_ref()).unwrap();
    let parents: Vec<_> = tree.processes.iter().map(|process| (process.pid.unwrap(), process.ppid.unwrap())).collect();
    assert_eq!(parents, [(1, 0), (3, 1)], "as their creation says");
    let found = threads(&packets);
    let expected = [(1, 1), (2, 1), (3, 3), (4, 1), (5, 3)];
    assert_eq!(found, expected.map(|(thread, process)| (thread, vec![Some(process)])).into());
}

#[test]
fn counters_follow_the_queues_and_end_at_zero() {
    let values = |track: u64| -> Vec<(u64, i64)> {
        let of_track = |packet: TracePacket| {
            let event = packet.track_event.filter(|event| event.track_uuid == Some(track))?;
            Some((packet.timestamp?, event.counter_value?))
        };
        trace().into_iter().filter_map(of_track).collect()
    };
    assert_eq!(values(FIRST_CPU), [(5, 1), (32, 2), (40, 1), (90, 0)]);
    assert_eq!(values(FIRST_LLC + 1), [(40, 1), (95, 0)]);
}

#[test]
fn the_clock_and_the_topology_come_first_and_names_last() {
    let packets = trace();
    let snapshot = packets[0].clock_snapshot.as_ref().unwrap();
    assert_eq!((snapshot.primary_trace_clock, snapshot.clocks[0].clock_id), (Some(6), Some(6)));
    assert_eq!(packets[1].system_info.as_ref().unwrap().utsname.as_ref().unwrap().release.as_deref(), Some("6.18.0"));
    let tree = packets.iter().position(|packet| packet.process_tree.is_some()).unwrap();
    assert!(packets.iter().rposition(|packet| packet.ftrace_events.is_some()).unwrap() < tree);
    let tree = packets[tree].process_tree.as_ref().unwrap();
    assert_eq!((tree.processes.len(), tree.threads.len()), (1, 2), "one process with two threads");
    assert!(tree.threads.iter().all(|thread| thread.tgid == Some(1)));
    let topology =
        packets.iter().filter_map(|p| p.track_event.as_ref()).find(|e| e.track_uuid == Some(TOPOLOGY)).unwrap();
    assert!(topology.debug_annotations[0].string_value.as_ref().unwrap().contains("\"llc\":[0,1]"));
    assert!(packets.iter().all(|packet| packet.trusted_packet_sequence_id == Some(1)));
}

#[test]
fn what_is_written_is_a_recording_that_can_be_read() {
    use warmcore_capture::What;
    let recording = warmcore_capture::read(&written()).unwrap();
    let found: Vec<_> =
        recording.records.iter().map(|record| (record.time_ns, record.cpu, record.by, record.what)).collect();
    let switch = |prev, state, next| What::Switch { prev, state, next, uninterruptible: false };
    assert_eq!(
        found,
        [
            (5, 0, 0, What::Fork { parent: 0, child: 1 }),
            (5, 0, 0, What::Wakeup { thread: 1, target_cpu: 0 }),
            (10, 0, 0, switch(0, PrevState::Runnable, 1)),
            (30, 0, 1, What::Waking { thread: 2, target_cpu: 1 }),
            (40, 1, 0, What::Migrate { thread: 2, from: 0, to: 1 }),
            (45, 1, 0, switch(0, PrevState::Runnable, 2)),
            (90, 0, 1, switch(1, PrevState::Sleeping, 0)),
            (95, 1, 2, switch(2, PrevState::Dead, 0)),
            (100, 0, 0, switch(0, PrevState::Runnable, 0)),
            (100, 1, 0, switch(0, PrevState::Runnable, 0)),
        ]
    );
    assert_eq!((recording.threads[&2].name.as_str(), recording.threads[&2].process), ("t1", Some(1)));
    assert_eq!((recording.lost.len(), recording.cpus), (0, 2));
}

/// What is read back of events.
fn read_back(events: &[Event], end_ns: u64) -> warmcore_capture::Recording {
    let (machine, tables, tasks) = run();
    let mut writer = PerfettoWriter::new(Vec::new(), &machine, &tables, &tasks).unwrap();
    writer.events(events).unwrap();
    warmcore_capture::read(&writer.finish(end_ns).unwrap()).unwrap()
}

#[test]
fn what_runs_at_the_end_runs_until_then_and_the_machine_is_there() {
    let switch = EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Idle, next: TaskId(0) };
    let recording = read_back(&[event(10, 0, switch)], 5000);
    assert_eq!(recording.span_ns(), (10, 5000));
    let machine = warmcore_topology::from_toml(recording.machine.as_deref().unwrap()).unwrap();
    assert_eq!(machine, run().0);
}

#[test]
fn a_wakeup_without_its_waking_is_written() {
    use warmcore_capture::What;
    let wakeup = |time_ns| event(time_ns, 1, EventKind::Wakeup { task: TaskId(0), reason: None });
    let waking = EventKind::Waking { task: TaskId(0), target_cpu: CpuId(0), waker: TaskId(1) };
    let recording = read_back(&[wakeup(10), event(20, 0, waking), wakeup(20), wakeup(30)], 40);
    let woken = recording.records.iter().filter(|record| matches!(record.what, What::Wakeup { .. }));
    assert_eq!(woken.map(|record| (record.time_ns, record.cpu)).collect::<Vec<_>>(), [(10, 1), (30, 1)]);
}

#[test]
fn an_interrupt_is_no_waker_and_wakings_of_one_instant_keep_their_order() {
    use warmcore_capture::{Context, What};
    let switch = |prev, next| EventKind::Switch { prev, prev_state: PrevState::Sleeping, next };
    let waking = |task, waker| EventKind::Waking { task: TaskId(task), target_cpu: CpuId(1), waker };
    for at_ns in [20, 30] {
        let events = [
            event(10, 0, switch(TaskId::IDLE, TaskId(0))),
            event(at_ns, 0, waking(1, TaskId(0))),
            event(at_ns, 0, waking(0, TaskId::IDLE)),
            event(30, 0, switch(TaskId(0), TaskId::IDLE)),
        ];
        let recording = read_back(&events, 40);
        let wakings = recording.records.iter().filter_map(|record| match record.what {
            What::Waking { thread, .. } => Some((thread, record.context, record.waker())),
            _ => None,
        });
        let expected = [(2, Context::Thread, Some(1)), (1, Context::HardInterrupt, None)];
        assert_eq!(wakings.collect::<Vec<_>>(), expected);
        assert!(recording.notes.is_empty(), "{:?}", recording.notes);
    }
}

#[test]
fn interrupts_of_a_recording_are_slices_on_a_track_of_their_cpu() {
    let (machine, mut tables, tasks) = run();
    let overhead = event(30, 1, EventKind::Overhead { kind: OverheadKind::Interrupt, duration_ns: 4 });
    let slices = |tables: &RunTables| {
        let mut writer = PerfettoWriter::new(Vec::new(), &machine, tables, &tasks).unwrap();
        writer.events(&[overhead]).unwrap();
        let of_track = |packet: TracePacket| {
            let event = packet.track_event.filter(|event| event.track_uuid == Some(FIRST_INTERRUPT + 1))?;
            Some((packet.timestamp?, event.r#type?))
        };
        packets(&writer.finish(100).unwrap()).into_iter().filter_map(of_track).collect::<Vec<_>>()
    };
    assert!(slices(&tables).is_empty(), "what a simulator reports has no beginning");
    tables.threads = (1..3).map(|thread| RecordedThread { thread, name: "worker".into(), process: None }).collect();
    assert_eq!(slices(&tables), [(26, 1), (30, 2)]);
}
