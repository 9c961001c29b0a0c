use super::*;
use crate::{
    Affinity, BarrierId, BarrierWait, ChannelId, ChannelKind, ConditionId, CpuMax, DataGroupId, GroupId, ListId,
    LockId, Policy, ProcessId, ProgramId, RecorderId, Reservation, ResultStyle, SemaphoreId, TaskTemplateId, TimerId,
    TimerMode, UtilClamp,
};

#[test]
fn every_event_becomes_its_step() {
    let workload = tasks(
        r#""t": { "loop": 1, "run": 1, "runtime": 2, "sleep": 3, "timer": { "ref": "tick", "period": 4 }, "lock": "m",
            "wait": { "ref": "c", "mutex": "m" }, "signal": "c", "broad": "c", "sync": { "ref": "c", "mutex": "m" },
            "unlock": "m", "barrier": "b", "suspend": "t", "resume": "t", "sem_post": "s", "sem_wait": "s",
            "fork": "u", "yield": "", "iorun": 5 },
           "u": { "instance": 0, "loop": 1, "run": 1 }"#,
    );
    let (lock, condition) = (LockId(0), ConditionId(0));
    assert_eq!(
        steps(&workload, 0),
        [
            Step::Run { work_ns: 1_000 },
            Step::RunTime { cpu_ns: 2_000 },
            Step::Sleep { duration_ns: 3_000 },
            Step::Timer { timer: TimerId(0), period_ns: 4_000, mode: TimerMode::Relative },
            Step::Lock(lock),
            Step::Wait { condition, lock },
            Step::Signal(condition),
            Step::Broadcast(condition),
            Step::SignalAndWait { condition, lock },
            Step::Unlock(lock),
            Step::Barrier(BarrierId(0)),
            Step::Suspend,
            Step::Resume(TaskTemplateId(0)),
            Step::SemPost(SemaphoreId(0)),
            Step::SemWait(SemaphoreId(0)),
            Step::Fork(TaskTemplateId(1)),
            Step::Yield,
            Step::IoRun { bytes: 5 },
        ]
    );
    assert!(workload.warnings.is_empty(), "{:?}", workload.warnings);
}

#[test]
fn numbered_and_repeated_events_stay_in_order() {
    let workload = tasks(r#""t": { "loop": 1, "run0": 1, "sleep_a": 2, "run": 3, "run": 4, "run0": 5 }"#);
    let run = |us: u64| Step::Run { work_ns: us * 1_000 };
    assert_eq!(steps(&workload, 0), [run(1), Step::Sleep { duration_ns: 2_000 }, run(3), run(4), run(5)]);
}

#[test]
fn loops_repeat_phases_and_tasks() {
    let run = Step::Run { work_ns: 1_000 };
    let forever = Step::LoopStart { times: None, end: 2 };
    assert_eq!(steps(&tasks(r#""t": { "run": 1 }"#), 0), [forever.clone(), run.clone(), Step::LoopEnd { start: 0 }]);
    assert_eq!(steps(&tasks(r#""t": { "run": 1, "loop": -1 }"#), 0)[0], forever);
    assert_eq!(steps(&tasks(r#""t": { "run": 1, "loop": 1 }"#), 0), std::slice::from_ref(&run));

    let workload = tasks(r#""t": { "loop": 3, "phases": { "a": { "loop": 2, "run": 1 }, "b": { "run": 1 } } }"#);
    assert_eq!(
        steps(&workload, 0),
        [
            Step::LoopStart { times: Some(3), end: 7 },
            Step::Phase(0),
            Step::LoopStart { times: Some(2), end: 4 },
            run.clone(),
            Step::LoopEnd { start: 2 },
            Step::Phase(1),
            run,
            Step::LoopEnd { start: 0 },
        ]
    );
    assert_eq!(workload.phases, ["a", "b"]);
}

#[test]
fn tasks_have_instances_delays_and_scheduling_properties() {
    let workload = tasks(
        r#""t": { "instance": 3, "delay": 500, "cpus": [3, 0], "policy": "SCHED_BATCH", "priority": -5,
            "dl-runtime": 700, "taskgroup": "/a/b", "loop": 1, "run": 1 }"#,
    );
    let task = &workload.tasks[0];
    assert_eq!((task.instances, task.start_ns, task.nice), (3, 500_000, -5));
    assert_eq!((&task.policy, &task.affinity), (&Policy::Batch, &Affinity::OsCpus(vec![3, 0])));
    assert_eq!((task.slice_ns, task.group), (Some(700_000), Some(GroupId(1))));
    assert_eq!((workload.groups[1].name.as_str(), workload.groups[1].shares), ("/a/b", 1024));
    assert_eq!((workload.groups[1].parent, workload.groups[0].name.as_str()), (Some(GroupId(0)), "/a"));
    assert_eq!((task.role.as_str(), task.process, task.program), ("t", ProcessId(0), ProgramId(0)));
    assert_eq!(workload.processes.len(), 1, "the threads of rt-app are one process");
}

#[test]
fn phases_change_properties_and_inherit_the_tasks_cpus() {
    let workload = tasks(
        r#""t": { "cpus": [4], "loop": 1, "phases": {
            "a": { "cpus": [0, 1], "policy": "SCHED_IDLE", "run": 1 },
            "b": { "priority": 7, "dl-runtime": 9, "taskgroup": "/g", "run": 1 },
            "c": { "policy": "SCHED_OTHER", "taskgroup": "/", "run": 1 } } }"#,
    );
    let run = Step::Run { work_ns: 1_000 };
    let on = |cpus: &[u32]| Step::SetAffinity(Affinity::OsCpus(cpus.to_vec()));
    assert_eq!(
        steps(&workload, 0),
        [
            Step::Phase(0),
            on(&[0, 1]),
            Step::SetPolicy(Policy::Idle),
            Step::SetNice(0),
            run.clone(),
            Step::Phase(1),
            on(&[4]),
            Step::SetNice(7),
            Step::SetSlice { slice_ns: 9_000 },
            Step::SetGroup(GroupId(0)),
            run.clone(),
            Step::Phase(2),
            on(&[4]),
            Step::SetPolicy(Policy::Normal),
            Step::SetNice(0),
            Step::SetGroup(GroupId(1)),
            run,
        ]
    );
    assert!(workload.groups[1].is_root());
}

#[test]
fn barriers_count_references_and_instances() {
    let workload = tasks(
        r#""a": { "instance": 3, "loop": 1, "barrier": "meet" }, "b": { "loop": 1, "barrier0": "meet", "run": 1 }"#,
    );
    assert_eq!(workload.barriers[0].participants, 4);
    assert_eq!(workload.barriers[0].wait, BarrierWait::Block);
}

#[test]
fn a_timer_with_one_absolute_event_is_absolute() {
    let workload = tasks(
        r#""a": { "run": 1, "timer": { "ref": "tick", "period": 5, "mode": "absolute" } },
           "b": { "run": 1, "timer": { "ref": "tick", "period": 5 } },
           "c": { "run": 1, "timer0": { "ref": "unique", "period": 5, "mode": "absolute" } },
           "d": { "run": 1, "timer0": { "ref": "unique", "period": 5 } }"#,
    );
    let mode = |program| match steps(&workload, program)[2] {
        Step::Timer { mode, .. } => mode,
        _ => panic!("no timer"),
    };
    assert_eq!([mode(0), mode(1)], [TimerMode::Absolute; 2]);
    assert_eq!([mode(2), mode(3)], [TimerMode::Absolute, TimerMode::Relative], "private timers are not the same");
    assert!(workload.timer_is_private(TimerId(1)) && !workload.timer_is_private(TimerId(0)));
}

#[test]
fn suspend_waits_on_the_condition_of_its_name() {
    // As in rt-app's video example: no task is called "frame", and two wait for it.
    let workload = tasks(
        r#""a": { "suspend": "frame", "run": 1 }, "b": { "resume": "frame", "resume1": "c", "resume2": "d", "sleep": 1 },
           "c": { "suspend", "run": 1 }, "d": { "suspend": "d", "run": 1 }, "e": { "suspend": "d", "run": 1 }"#,
    );
    let waits = |condition, lock| [Step::Lock(lock), Step::Wait { condition, lock }, Step::Unlock(lock)];
    let wakes = |condition, lock| [Step::Lock(lock), Step::Broadcast(condition), Step::Unlock(lock)];
    let (frame, d) = ((ConditionId(0), LockId(0)), (ConditionId(1), LockId(1)));
    assert_eq!(steps(&workload, 0)[1..4], waits(frame.0, frame.1));
    let resumes: Vec<Step> =
        [&wakes(frame.0, frame.1)[..], &[Step::Resume(TaskTemplateId(2))], &wakes(d.0, d.1)].concat();
    assert_eq!(steps(&workload, 1)[1..8], resumes);
    assert_eq!(steps(&workload, 2)[1], Step::Suspend, "nobody else waits there");
    assert_eq!(steps(&workload, 3)[1..4], waits(d.0, d.1), "task e waits there too");
    assert_eq!(steps(&workload, 4)[1..4], waits(d.0, d.1));
    assert_eq!(warnings(&workload), [""; 0]);
}

#[test]
fn memory_events_are_traffic_and_work() {
    let workload = document(
        r#"{ "global": { "mem_buffer_size": 1024 }, "tasks": { "t": { "loop": 1, "mem": 1600,
            "memrun0": { "type": "read", "size": 4096, "count": 1000 },
            "memrun1": { "type": "chase", "size": 65536, "stride": 128, "pattern": "random", "count": 10 } } } }"#,
    );
    assert_eq!(
        steps(&workload, 0),
        [
            Step::Memory { bytes: 1600, region_bytes: 1024 },
            Step::Run { work_ns: 100 },
            Step::Memory { bytes: 1000, region_bytes: 4096 },
            Step::Run { work_ns: 500 },
            Step::Chase { hops: 10, region_bytes: 65536 },
        ]
    );
    assert_eq!(warnings(&workload), ["event \"memrun\""]);
    assert_eq!(workload.warnings[0].count, 2);
}

#[test]
fn the_global_section_sets_duration_and_default_policy() {
    let with_global = |global: &str| {
        document(&format!(r#"{{ "global": {{ {global} }}, "tasks": {{ "t": {{ "run": 1 }} }}, "resources": {{}} }}"#))
    };
    let workload =
        with_global(r#""duration": 2, "default_policy": "SCHED_IDLE", "lock_pages": false, "ftrace": "none""#);
    assert_eq!((workload.duration_ns, workload.tasks[0].policy), (Some(2_000_000_000), Policy::Idle));
    assert!(workload.warnings.is_empty(), "{:?}", workload.warnings);
    assert_eq!(with_global(r#""duration": -1"#).duration_ns, None);
}

#[test]
fn what_is_accepted_but_not_modelled_is_counted() {
    let workload = document(
        r#"{ "comment": "x",
            "global": { "logdir": "./", "gnuplot": true, "calibration": "CPU0", "pi_enabled": true, "colour": "red" },
            "tasks": { "t": { "policy": "SCHED_FIFO", "priority": 50, "dl-period": 9, "util_min": -1, "nodes_membind": [0], "note": 1,
                "run": 1 },
                "u": { "policy": "SCHED_RR", "run": 1, "timer": { "ref": "x", "period": 1, "jitter": 2 } } } }"#,
    );
    assert_eq!(
        warnings(&workload),
        [
            "global settings for rt-app's own logs and traces",
            "global setting \"calibration\"",
            "global setting \"pi_enabled\"",
            "global setting \"colour\"",
            "key \"comment\" of the document",
            "key \"dl-period\"",
            "key \"nodes_membind\"",
            "key \"note\"",
            "key \"jitter\" of event \"timer\"",
        ]
    );
    let counts: Vec<u32> = workload.warnings.iter().map(|warning| warning.count).collect();
    assert_eq!((counts[0], counts[6]), (2, 1));
    let policies = [Policy::Fifo { priority: 50 }, Policy::RoundRobin { priority: 10 }];
    assert_eq!([0, 1].map(|task: usize| workload.tasks[task].policy), policies, "10 is rt-app's priority");
}

#[test]
fn real_time_policies_have_rt_apps_parameters_in_tasks_and_phases() {
    let reservation = |runtime, deadline, period| {
        let [runtime_ns, deadline_ns, period_ns] = [runtime, deadline, period].map(|us: u64| us * 1_000);
        Policy::Deadline(Reservation { runtime_ns, deadline_ns, period_ns })
    };
    let workload = tasks(
        r#""t": { "policy": "SCHED_RR", "loop": 1, "phases": {
                "a": { "priority": 99, "run": 1 },
                "b": { "policy": "SCHED_DEADLINE", "dl-runtime": 200, "dl-period": 900, "run": 1 },
                "c": { "dl-deadline": 500, "run": 1 },
                "d": { "policy": "SCHED_OTHER", "priority": 3, "run": 1 } } },
            "u": { "policy": "SCHED_DEADLINE", "dl-runtime": 300, "dl-deadline": 400, "dl-period": 700, "run": 1 }"#,
    );
    let changes = |step: &&Step| matches!(step, Step::SetPolicy(_) | Step::SetNice(_));
    let changed: Vec<Step> = steps(&workload, 0).iter().filter(changes).cloned().collect();
    assert_eq!(
        changed,
        [
            Step::SetPolicy(Policy::RoundRobin { priority: 99 }),
            Step::SetPolicy(reservation(200, 900, 900)),
            Step::SetPolicy(reservation(200, 500, 900)),
            Step::SetPolicy(Policy::Normal),
            Step::SetNice(3),
        ]
    );
    assert_eq!(workload.tasks[1].policy, reservation(300, 400, 700));
    assert!(workload.has_realtime() && workload.warnings.is_empty());
    let written = crate::to_rtapp(&workload).unwrap();
    assert!(!written.contains("warmcore"), "rt-app reads it too: {written}");
}

#[test]
fn a_quota_is_read_as_the_kernels_files_hold_it_and_written_so() {
    let of = |group: &str| {
        let text = r#"{ "tasks": { "a": { "run": 1, "taskgroup": "/pod" } }, "warmcore": { "groups": [ GROUP ] } }"#;
        from_rtapp("test", &text.replace("GROUP", group), &Options::default())
    };
    for (group, quota) in [
        (
            r#"{ "name": "/pod", "cpu_max": "200000 50000", "cpu_max_burst": 9000 }"#,
            CpuMax::new(200_000, 50_000, 9_000).ok(),
        ),
        (r#"{ "name": "/pod", "cpu_max": "max 100000" }"#, None),
        (r#"{ "name": "/pod" }"#, None),
    ] {
        let workload = of(group).unwrap();
        assert_eq!(workload.groups[0].cpu_max, quota);
        let written = crate::to_rtapp(&workload).unwrap();
        assert_eq!(from_rtapp("test", &written, &Options::default()).unwrap(), workload, "{written}");
    }
    for (group, problem) in [
        (
            r#"{ "name": "/pod", "shares": 0 }"#,
            "warmcore.groups[0].shares: 0 is out of range; a weight must be 2 to 262144",
        ),
        (r#"{ "name": "/pod", "shares": 262145 }"#, "warmcore.groups[0].shares: 262145 is out of range"),
        (r#"{ "name": "/pod", "cpu_max": "0 100000" }"#, "warmcore.groups[0].cpu_max: a quota of 0 us"),
        (
            r#"{ "name": "/pod", "cpu_max_burst": 10 }"#,
            "warmcore.groups[0].cpu_max_burst: a burst of 10 us is for a group with a quota",
        ),
        (
            r#"{ "name": "/pod", "cpu_weight": 0 }"#,
            "warmcore.groups[0].cpu_weight: 0 is out of range; a weight must be 1 to 10000",
        ),
        (r#"{ "name": "/pod", "cpu_weight": 50, "shares": 512 }"#, "give one of \"shares\" and \"cpu_weight\""),
        (r#"{ "name": "/pod", "cpu_weight": 50, "cpu_idle": 1 }"#, "an idle group has the weight of SCHED_IDLE"),
        (r#"{ "name": "/pod", "cpu_idle": 2 }"#, "warmcore.groups[0].cpu_idle: 2 is out of range"),
        (r#"{ "name": "/", "cpu_idle": 1 }"#, "the root group has no \"cpu_idle\""),
        (r#"{ "name": "/pods", "cpu_max": "20000" }"#, "no task is in it"),
        (r#"{ "name": "/", "cpu_max": "20000" }"#, "the root group has no \"cpu_max\""),
    ] {
        let error = of(group).map(|workload| workload.check().unwrap_err().to_string());
        let error = error.unwrap_or_else(|error| error.to_string());
        assert!(error.contains(problem), "{error}");
    }
}

/// `sched_weight_from_cgroup`: the nearest whole number of shares, 100 being 1024; an idle group has 3.
#[test]
fn weights_idle_groups_and_cpusets_are_read_as_the_kernels_files_hold_them() {
    let of = |group: &str| {
        let text = r#"{ "tasks": { "a": { "run": 1, "taskgroup": "/pod" } }, "warmcore": { "groups": [ { "name": "/pod", GROUP } ] } }"#;
        let workload = from_rtapp("test", &text.replace("GROUP", group), &Options::default()).unwrap();
        let written = crate::to_rtapp(&workload).unwrap();
        assert_eq!(from_rtapp("test", &written, &Options::default()).unwrap(), workload, "{written}");
        (workload.groups[0].shares, workload.groups[0].idle, workload.groups[0].cpus.clone())
    };
    for (weight, shares) in [(1, 10), (2, 20), (3, 31), (100, 1024), (150, 1536), (10_000, 102_400)] {
        assert_eq!(of(&format!(r#""cpu_weight": {weight}"#)), (shares, false, None));
    }
    assert_eq!(of(r#""cpu_idle": 1"#), (3, true, None));
    assert_eq!(of(r#""cpu_idle": 0, "cpu_weight": 50"#), (512, false, None));
    assert_eq!(of(r#""cpuset_cpus": "8,0-2""#), (1024, false, Some(vec![0, 1, 2, 8])));
}

#[test]
fn utilisation_clamps_of_tasks_phases_steps_and_groups_are_read_and_written() {
    let clamp = |min, max| UtilClamp::new(min, max).unwrap();
    let workload = document(
        r#"{ "tasks": {
                "own": { "util_min": 100, "util_max": 200, "run": 1 },
                "phased": { "util_max": 300, "phases": { "first": { "run": 1 }, "second": { "util_min": 50, "util_max": -1, "run": 1 } } },
                "steps": { "instance": 0 } },
            "warmcore": {
                "groups": [ { "name": "/pod", "cpu_uclamp_min": "12.5", "cpu_uclamp_max": "50" } ],
                "tasks": { "own": { "taskgroup": "/pod" },
                    "steps": { "instances": 1, "util_min": 7, "program": [ { "util_max": 900, "util_min": 8 }, { "run_ns": 5 } ] } } } }"#,
    );
    let of_tasks: Vec<UtilClamp> = workload.tasks.iter().map(|task| task.util_clamp).collect();
    assert_eq!(of_tasks, [clamp(Some(100), Some(200)), clamp(None, Some(300)), clamp(Some(7), None)]);
    let changes = |task: usize| {
        steps(&workload, task).iter().filter(|step| matches!(step, Step::SetUtilClamp(_))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(changes(1), [Step::SetUtilClamp(clamp(Some(50), None))]);
    assert_eq!(changes(2), [Step::SetUtilClamp(clamp(Some(8), Some(900)))]);
    assert_eq!(workload.groups[0].clamp.utilisations(), [128, 512]);
    let written = crate::to_rtapp(&workload).unwrap();
    assert_eq!(from_rtapp("test", &written, &Options::default()).unwrap(), workload, "{written}");
    let plain = tasks(r#""t": { "util_min": 1, "phases": { "a": { "util_max": 3, "run": 1 }, "b": { "run": 2 } } }"#);
    assert!(!crate::to_rtapp(&plain).unwrap().contains("warmcore"), "rt-app reads it too");
}

#[test]
fn utilisation_clamps_that_no_kernel_takes_are_refused() {
    for (task, group, problem) in [
        (r#""util_min": 1025"#, "", "tasks.a: util_min is a utilisation of 0 to 1024"),
        (r#""util_max": -2"#, "", "not -2"),
        (r#""util_max": 100.5"#, "", "tasks.a.util_max"),
        (r#""util_min": 300, "util_max": 200"#, "", "util_min 300 is above util_max 200"),
        ("", r#""cpu_uclamp_min": "101""#, "warmcore.groups[0].cpu_uclamp_min: \"101\" is above 100"),
        ("", r#""cpu_uclamp_max": "-5""#, "\"-5\" is not"),
        ("", r#""cpu_uclamp_max": 50"#, "a percentage as a text"),
        ("", r#""cpu_uclamp_min": "30", "cpu_uclamp_max": "20""#, "30.00 is above cpu.uclamp.max 20.00"),
    ] {
        let comma = |text: &str| if text.is_empty() { String::new() } else { format!("{text}, ") };
        let text = format!(
            r#"{{ "tasks": {{ "a": {{ {} "run": 1 }} }}, "warmcore": {{ "groups": [ {{ {} "name": "/pod" }} ] }} }}"#,
            comma(task),
            comma(group)
        );
        let error = from_rtapp("test", &text, &Options::default()).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    let root =
        r#"{ "tasks": { "a": { "run": 1 } }, "warmcore": { "groups": [ { "name": "/", "cpu_uclamp_max": "20" } ] } }"#;
    let error = from_rtapp("test", root, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("the root group has no \"cpu_uclamp_min\""), "{error}");
}

#[test]
fn cpus_go_offline_and_come_online_in_the_order_of_time() {
    let of = |hotplug: &str| {
        let text = format!(r#"{{ "tasks": {{ "a": {{ "run": 5 }} }}, "warmcore": {{ "hotplug": [ {hotplug} ] }} }}"#);
        from_rtapp("test", &text, &Options::default())
    };
    let workload = of(r#"{ "at_ns": 900, "online": 3 }, { "at_ns": 500, "offline": 3 }"#).unwrap();
    let change = |time_ns, online| crate::Hotplug { time_ns, cpu: 3, online };
    assert_eq!(workload.hotplug, [change(500, false), change(900, true)]);
    for (hotplug, problem) in [
        (r#"{ "offline": 3 }"#, "at_ns"),
        (r#"{ "at_ns": 5 }"#, "give one of \"offline\" and \"online\""),
        (r#"{ "at_ns": 5, "offline": 1, "online": 1 }"#, "give one of \"offline\" and \"online\""),
        (r#"{ "at_ns": 5, "offline": -1 }"#, "the number of a CPU"),
    ] {
        let error = of(hotplug).unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains("warmcore.hotplug[0]"), "{error}");
    }
}

#[test]
fn the_warmcore_key_says_what_rtapp_cannot() {
    let workload = document(
        r#"{ "tasks": { "a": { "run": 1, "barrier": "b" }, "p": { "instance": 0, "loop": 1, "sleep": 0 } },
            "warmcore": { "version": 1, "duration_ns": 1500000000, "applications": ["x", "y"],
              "processes": [ { "name": "one" }, { "name": "two", "application": "y" } ],
              "groups": [ { "name": "/g", "shares": 512 } ], "data_groups": [ { "name": "heap", "bytes": 4096 } ],
              "barriers": [ { "name": "b", "participants": 3, "wait": { "spin_then_block_ns": 7 } },
                            { "name": "polled", "participants": 1, "wait": "poll" } ],
              "semaphores": [ { "name": "s", "initial": 2 } ],
              "channels": [ { "name": "c", "kind": "socket", "capacity_bytes": 100 }, { "name": "d" } ],
              "lists": ["l"], "recorders": ["r"], "style": { "hackbench": { "header": "h" } },
              "tasks": {
                "a": { "process": "two", "role": "worker", "profile": "nas-mg", "data": ["heap"], "release_ns": 5,
                       "start_cpu": 3, "affinity": { "dense_cpus": "0-1" }, "taskgroup": "/g", "nice": 4 },
                "p": { "instances": 2, "program": [ { "loop": -1, "steps": [
                    { "send": "c", "bytes": 8 }, { "receive": "c", "bytes": 8 }, { "enlist": "l", "recorder": "r" },
                    { "serve": "l" }, { "memory_bytes": 1, "region_bytes": 2 }, { "run_ns": 1234 },
                    { "chase_hops": 3, "region_bytes": 4 },
                    { "start_clock": 1 }, { "record_clock": 1, "recorder": "r" }, { "barrier": "b" },
                    { "affinity": { "nodes": [1] } }, "yield" ] }, "exit" ] } } } }"#,
    );
    assert_eq!(workload.duration_ns, Some(1_500_000_000));
    assert_eq!(workload.applications, ["x", "y"]);
    assert_eq!(workload.processes[1].application, 1);
    assert_eq!(workload.groups[0].shares, 512);
    assert_eq!(workload.barriers[0].participants, 3, "the stated number, not the count of references");
    assert_eq!(workload.barriers[0].wait, BarrierWait::SpinThenBlock { spin_ns: 7 });
    assert_eq!(workload.barriers[1].wait, BarrierWait::Poll);
    assert_eq!(workload.semaphores[0].initial, 2);
    assert_eq!((workload.channels[0].kind, workload.channels[0].capacity_bytes), (ChannelKind::Socket, 100));
    assert_eq!((workload.channels[1].kind, workload.channels[1].capacity_bytes), (ChannelKind::Pipe, 65536));
    assert_eq!(workload.style, ResultStyle::Hackbench { header: "h".into() });

    let task = &workload.tasks[0];
    assert_eq!((task.process, task.role.as_str(), task.profile.as_deref()), (ProcessId(1), "worker", Some("nas-mg")));
    assert_eq!(
        (task.data_groups.as_slice(), task.group, task.nice),
        ([DataGroupId(0)].as_slice(), Some(GroupId(0)), 4)
    );
    assert_eq!((task.release_ns, task.start_cpu), (Some(5), Some(3)));
    assert_eq!(task.affinity, Affinity::Cpus(warmcore_topology::CpuSet::parse_list("0-1").unwrap()));

    let channel = ChannelId(0);
    assert_eq!(workload.tasks[1].instances, 2);
    assert_eq!(
        steps(&workload, 1),
        [
            Step::LoopStart { times: None, end: 13 },
            Step::Send { channel, bytes: 8 },
            Step::Receive { channel, bytes: 8 },
            Step::Enlist { list: ListId(0), recorder: Some(RecorderId(0)) },
            Step::Serve(ListId(0)),
            Step::Memory { bytes: 1, region_bytes: 2 },
            Step::Run { work_ns: 1234 },
            Step::Chase { hops: 3, region_bytes: 4 },
            Step::StartClock { slot: 1 },
            Step::RecordClock { slot: 1, recorder: RecorderId(0) },
            Step::Barrier(BarrierId(0)),
            Step::SetAffinity(Affinity::OsNodes(vec![1])),
            Step::Yield,
            Step::LoopEnd { start: 0 },
            Step::Exit,
        ]
    );
}

#[test]
fn programs_may_be_shared_by_tasks() {
    let workload = document(
        r#"{ "tasks": { "a": {}, "b": { "loop": 1, "run": 1 }, "c": {} },
            "warmcore": { "programs": [ [ { "sleep_ns": 5 } ] ],
                          "tasks": { "a": { "program": 0 }, "c": { "program": 0 } } } }"#,
    );
    let programs: Vec<ProgramId> = workload.tasks.iter().map(|task| task.program).collect();
    assert_eq!(programs, [ProgramId(0), ProgramId(1), ProgramId(0)]);
    assert_eq!(workload.programs.len(), 2);
}

#[test]
fn phases_have_memory_profiles_of_their_own() {
    let text = |phase: &str, profile: &str| {
        format!(
            r#"{{ "tasks": {{ "a": {{ "phases": {{ "one": {{ "run": 1 }}, "two": {{ "run": 1 }} }} }} }},
                "warmcore": {{ "tasks": {{ "a": {{ "phase_profiles": {{ "{phase}": "{profile}" }} }} }} }} }}"#
        )
    };
    let workload = document(&text("two", "hackbench"));
    assert_eq!(workload.tasks[0].phase_profiles, [(1, "hackbench".to_owned())]);
    assert!(workload.has_profiles());
    for (phase, profile, expected) in
        [("tow", "hackbench", "phase called \"tow\""), ("two", "hackbnech", "memory profile called \"hackbnech\"")]
    {
        let error = from_rtapp("w", &text(phase, profile), &Options::default()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("did you mean"), "{error}");
    }
}

#[test]
fn memory_profiles_are_named_written_in_place_or_taken_from_the_process() {
    let workload = document(
        r#"{ "tasks": { "a": { "run": 1 }, "b": { "run": 1 }, "c": { "run": 1 } },
            "warmcore": {
              "profiles": [ { "name": "mine", "cpi0": 0.5, "mlp": 2, "write_fraction": 0.3, "classes": [
                { "size": "1.5MiB", "touches_per_ki": 8 },
                { "name": "heap", "size": "4MiB", "touches_per_ki": 1, "sharing": "data", "write_fraction": 0.5 } ] } ],
              "data_groups": [ { "name": "heap", "bytes": 8388608 } ],
              "processes": [ { "name": "p", "profile": "hackbench" } ],
              "tasks": { "a": { "profile": "mine", "data": ["heap"] },
                "b": { "profile": { "cpi0": 1, "mlp": 1, "classes": [ { "size": "1KiB", "touches_per_ki": 1 } ] } } } } }"#,
    );
    let names: Vec<_> = workload.tasks.iter().map(|task| task.profile.as_deref()).collect();
    assert_eq!(names, [Some("mine"), Some("b"), Some("hackbench")]);
    let mine = workload.profile_of(&workload.tasks[0]).unwrap();
    assert_eq!((mine.classes[0].bytes, mine.classes[0].write_fraction), (3 << 19, 0.3));
    assert_eq!(
        (mine.classes[1].sharing.clone(), mine.classes[1].write_fraction),
        (warmcore_memory::Sharing::Data(None), 0.5)
    );
    assert_eq!(workload.profile_of(&workload.tasks[1]).unwrap().cpi0, 1.0);
}
