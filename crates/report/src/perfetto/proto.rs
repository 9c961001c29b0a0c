//! The messages of Perfetto's trace format that are written here, kept by hand: names, types and field numbers are those of
//! `protos/perfetto/trace` (v50 to v54). The tests decode with this subset and check the wire format field by field.

/// Messages with their fields: name, type, kind in the wire format, number.
macro_rules! messages {
    ($($(#[$about:meta])* $name:ident {
        $($(#[$note:meta])* $field:ident: $type:ty = ($($kind:tt)*) $number:tt,)*
    })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, PartialEq, prost::Message)]
            pub struct $name {
                $($(#[$note])* #[prost($($kind)*, tag = $number)] pub $field: $type,)*
            }
        )*
    };
}

messages! {
    /// One packet; a trace is a sequence of them (`Trace.packet`, field 1).
    TracePacket {
        ftrace_events: Option<FtraceEventBundle> = (message, optional) "1",
        process_tree: Option<ProcessTree> = (message, optional) "2",
        clock_snapshot: Option<ClockSnapshot> = (message, optional) "6",
        timestamp: Option<u64> = (uint64, optional) "8",
        trusted_packet_sequence_id: Option<u32> = (uint32, optional) "10",
        track_event: Option<TrackEvent> = (message, optional) "11",
        /// 1: this sequence begins anew.
        sequence_flags: Option<u32> = (uint32, optional) "13",
        system_info: Option<SystemInfo> = (message, optional) "45",
        track_descriptor: Option<TrackDescriptor> = (message, optional) "60",
    }

    SystemInfo {
        utsname: Option<Utsname> = (message, optional) "1",
    }

    Utsname {
        sysname: Option<String> = (string, optional) "1",
        version: Option<String> = (string, optional) "2",
        release: Option<String> = (string, optional) "3",
    }

    ClockSnapshot {
        clocks: Vec<Clock> = (message, repeated) "1",
        /// `BuiltinClock`: 6 is the boot clock.
        primary_trace_clock: Option<i32> = (int32, optional) "2",
    }

    Clock {
        clock_id: Option<u32> = (uint32, optional) "1",
        timestamp: Option<u64> = (uint64, optional) "2",
    }

    ProcessTree {
        processes: Vec<Process> = (message, repeated) "1",
        threads: Vec<Thread> = (message, repeated) "2",
    }

    Process {
        pid: Option<i32> = (int32, optional) "1",
        ppid: Option<i32> = (int32, optional) "2",
        cmdline: Vec<String> = (string, repeated) "3",
    }

    Thread {
        tid: Option<i32> = (int32, optional) "1",
        name: Option<String> = (string, optional) "2",
        tgid: Option<i32> = (int32, optional) "3",
    }

    FtraceEventBundle {
        cpu: Option<u32> = (uint32, optional) "1",
        event: Vec<FtraceEvent> = (message, repeated) "2",
        compact_sched: Option<CompactSched> = (message, optional) "4",
    }

    /// Switches and wakings as columns; times are differences to the entry before.
    CompactSched {
        switch_timestamp: Vec<u64> = (uint64, repeated, packed = "true") "1",
        switch_prev_state: Vec<i64> = (int64, repeated, packed = "true") "2",
        switch_next_pid: Vec<i32> = (int32, repeated, packed = "true") "3",
        switch_next_prio: Vec<i32> = (int32, repeated, packed = "true") "4",
        intern_table: Vec<String> = (string, repeated) "5",
        switch_next_comm_index: Vec<u32> = (uint32, repeated, packed = "true") "6",
        waking_timestamp: Vec<u64> = (uint64, repeated, packed = "true") "7",
        waking_pid: Vec<i32> = (int32, repeated, packed = "true") "8",
        waking_target_cpu: Vec<i32> = (int32, repeated, packed = "true") "9",
        waking_prio: Vec<i32> = (int32, repeated, packed = "true") "10",
        waking_comm_index: Vec<u32> = (uint32, repeated, packed = "true") "11",
        /// As `common_flags`.
        waking_common_flags: Vec<u32> = (uint32, repeated, packed = "true") "12",
    }

    FtraceEvent {
        timestamp: Option<u64> = (uint64, optional) "1",
        /// Thread on the CPU at the time.
        pid: Option<u32> = (uint32, optional) "2",
        /// 8: an interrupt.
        common_flags: Option<u32> = (uint32, optional) "5",
        sched_wakeup: Option<SchedWaking> = (message, optional) "17",
        sched_waking: Option<SchedWaking> = (message, optional) "20",
        sched_wakeup_new: Option<SchedWakeupNew> = (message, optional) "114",
        task_newtask: Option<TaskNewtask> = (message, optional) "235",
        sched_migrate_task: Option<SchedMigrateTask> = (message, optional) "491",
    }

    /// Also a `SchedWakeupFtraceEvent`, whose fields are the same.
    SchedWaking {
        comm: Option<String> = (string, optional) "1",
        pid: Option<i32> = (int32, optional) "2",
        prio: Option<i32> = (int32, optional) "3",
        success: Option<i32> = (int32, optional) "4",
        target_cpu: Option<i32> = (int32, optional) "5",
    }

    SchedWakeupNew {
        comm: Option<String> = (string, optional) "1",
        pid: Option<i32> = (int32, optional) "2",
        prio: Option<i32> = (int32, optional) "3",
        target_cpu: Option<i32> = (int32, optional) "5",
    }

    TaskNewtask {
        pid: Option<i32> = (int32, optional) "1",
        comm: Option<String> = (string, optional) "2",
        /// The kernel's flags: 0x10000 for a thread.
        clone_flags: Option<u64> = (uint64, optional) "3",
    }

    SchedMigrateTask {
        comm: Option<String> = (string, optional) "1",
        pid: Option<i32> = (int32, optional) "2",
        prio: Option<i32> = (int32, optional) "3",
        orig_cpu: Option<i32> = (int32, optional) "4",
        dest_cpu: Option<i32> = (int32, optional) "5",
    }

    TrackDescriptor {
        uuid: Option<u64> = (uint64, optional) "1",
        name: Option<String> = (string, optional) "2",
        parent_uuid: Option<u64> = (uint64, optional) "5",
        counter: Option<CounterDescriptor> = (message, optional) "8",
    }

    CounterDescriptor {
        /// 2: a count.
        unit: Option<i32> = (int32, optional) "3",
    }

    TrackEvent {
        debug_annotations: Vec<DebugAnnotation> = (message, repeated) "4",
        /// 1 and 2: a slice begins and ends, 3: an instant, 4: a counter's value.
        r#type: Option<i32> = (int32, optional) "9",
        track_uuid: Option<u64> = (uint64, optional) "11",
        categories: Vec<String> = (string, repeated) "22",
        name: Option<String> = (string, optional) "23",
        counter_value: Option<i64> = (int64, optional) "30",
    }

    DebugAnnotation {
        int_value: Option<i64> = (int64, optional) "4",
        string_value: Option<String> = (string, optional) "6",
        name: Option<String> = (string, optional) "10",
    }
}
