use super::*;
use crate::{
    Affinity, BarrierWait, ChannelKind, Distribution, Drawn, GeneratorProblem, ResultStyle, SemaphoreId, Step,
    TimerMode, from_rtapp, to_rtapp,
};
use proptest::prelude::*;

fn made(spec: &str) -> Workload {
    from_generator(spec).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

fn problem(spec: &str) -> GeneratorProblem {
    match from_generator(spec) {
        Err(WorkloadError::Generator(error)) => error.problem,
        other => panic!("{spec}: {other:?}"),
    }
}

/// Steps of the program of the first task with a role.
fn steps<'a>(workload: &'a Workload, role: &str) -> &'a [Step] {
    let task = workload.tasks.iter().find(|task| task.role == role).expect("a task of the role exists");
    &workload.programs[task.program.index()].steps
}

fn count(workload: &Workload, role: &str) -> usize {
    workload.tasks.iter().filter(|task| task.role == role).count()
}

#[test]
fn every_generator_runs_without_flags_or_says_which_it_needs() {
    for generator in generators() {
        match from_generator(generator.name) {
            Ok(workload) => assert_eq!(workload.name, generator.name),
            Err(WorkloadError::Generator(error)) => {
                assert!(matches!(error.problem, GeneratorProblem::MissingFlag { .. }), "{error}");
            }
            Err(error) => panic!("{}: {error}", generator.name),
        }
        assert!(generator.usage.starts_with(generator.name));
    }
}

#[test]
fn flags_are_read_as_getopt_reads_them() {
    let expected = made("hackbench:-T,-p,-f3,-g2,-l7,-s50");
    for spec in [
        "hackbench:-Tp,-f,3,-g,2,-l,7,-s,50",
        "hackbench:--threads,--pipe,--fds=3,--groups=2,--loops=7,--datasize=50",
        "hackbench:--thr,--pip,--fds,3,--gr,2,--lo,7,--data,50",
        "hackbench:-Tpf3,-g1,-g2,-l7,-s50",
    ] {
        assert_eq!(
            Workload { name: expected.name.clone(), applications: expected.applications.clone(), ..made(spec) },
            expected
        );
    }
    assert!(matches!(
        made("hackbench:--process,-f1,-g1").style,
        ResultStyle::Hackbench { header } if header.contains("process mode")
    ));
}

#[test]
fn wrong_flags_are_named_with_the_nearest_one() {
    let error = from_generator("hackbench:--tread").unwrap_err().to_string();
    assert!(
        error.contains("--tread") && error.contains("did you mean \"--threads\"") && error.contains("usage"),
        "{error}"
    );
    assert!(matches!(problem("hackbench:-x"), GeneratorProblem::UnknownFlag { .. }));
    assert!(matches!(problem("hackbench:-f"), GeneratorProblem::NoValue { .. }));
    assert!(matches!(problem("hackbench:--pipe=1"), GeneratorProblem::UnexpectedValue { .. }));
    assert!(matches!(problem("hackbench:-f0"), GeneratorProblem::BadValue { .. }));
    assert!(matches!(problem("hackbench:-f20x"), GeneratorProblem::BadValue { .. }));
    let endless = problem("periodic:-n3,-j100%").to_string();
    assert!(endless.contains("below 100%: the first task would have no period"), "{endless}");
    assert_eq!(made("periodic:-n3,-j99%").tasks.len(), 3);
    assert!(matches!(problem("hackbench:20"), GeneratorProblem::StrayWord { .. }));
    assert!(matches!(problem("hackbench:-T,-P"), GeneratorProblem::Conflict(_)));
    assert!(matches!(problem("hackbench:-f9999,-g9999"), GeneratorProblem::Conflict(_)));
    assert!(matches!(problem("spin:-d3"), GeneratorProblem::BadDuration { .. }), "a bare number has no unit");
    for no_length in ["spin:-d0s", "periodic:-d0s", "pingpong:-d0ms"] {
        assert!(matches!(problem(no_length), GeneratorProblem::BadValue { .. }), "{no_length}: a run of no length");
    }
    assert!(matches!(problem("spin:-u1s"), GeneratorProblem::Conflict(_)));
    assert!(matches!(problem("spin:-N0:20"), GeneratorProblem::BadValue { .. }));
    assert!(matches!(problem("schbench:-m2"), GeneratorProblem::MissingFlag { flag: "-t", .. }));
    assert!(matches!(problem("schbench:-t2,-p100"), GeneratorProblem::Unsupported { .. }));
    assert!(matches!(problem("forkjoin:--barrier=spin-then-block"), GeneratorProblem::BadDuration { .. }));
    assert!(matches!(from_generator("hackbnech"), Err(WorkloadError::Unknown { .. })));
}

#[test]
fn hackbench_has_fds_receivers_and_senders_per_group() {
    let workload = made("hackbench:-T,-p,-f3,-g2,-l7,-s50");
    assert_eq!(workload.processes.len(), 1);
    assert_eq!(count(&workload, "receiver"), 6);
    assert_eq!(count(&workload, "sender"), 2, "one template per group, forked three times");
    let data: Vec<_> = workload.channels.iter().filter(|channel| channel.name.starts_with("data")).collect();
    assert_eq!(data.len(), 6);
    assert!(data.iter().all(|channel| channel.kind == ChannelKind::Pipe));

    let sends = |steps: &[Step]| steps.iter().filter(|step| matches!(step, Step::Send { bytes: 50, .. })).count();
    assert_eq!(sends(steps(&workload, "sender")), 3, "one message to each receiver of the group");
    assert!(steps(&workload, "sender").contains(&Step::LoopStart { times: Some(7), end: 6 }));
    let receives =
        steps(&workload, "receiver").iter().any(|step| matches!(step, Step::LoopStart { times: Some(21), .. }));
    assert!(receives, "each receiver reads loops × senders messages");
}

#[test]
fn hackbench_main_forks_and_joins_everybody() {
    for (spec, processes) in [("hackbench:-T,-f3,-g2", 1), ("hackbench:-P,-f3,-g2", 13)] {
        let workload = made(spec);
        assert_eq!(workload.processes.len(), processes);
        assert_eq!(workload.initial_tasks(), 1, "only the parent exists at the start");
        let mut forks = 0;
        let mut times = 1;
        for step in steps(&workload, "main") {
            match step {
                Step::LoopStart { times: Some(repeat), .. } => times = *repeat,
                Step::LoopEnd { .. } => times = 1,
                Step::Fork(_) => forks += times,
                Step::Join { count } => assert_eq!(u64::from(*count), forks),
                _ => {}
            }
        }
        assert_eq!(forks, 12);
        assert_eq!(workload.barriers[0].participants, 13);
        assert!(workload.recorders.contains(&HACKBENCH_TIME.to_owned()));
    }
}

#[test]
fn hackbench_prints_the_programs_header() {
    let ResultStyle::Hackbench { header } = made("hackbench:-T,-f20,-g1,-l100").style else { panic!("no header") };
    assert_eq!(
        header,
        "Running in threaded mode with 1 groups using 40 file descriptors each (== 40 tasks)\n\
         Each sender will pass 100 messages of 100 bytes"
    );
    let defaults = made("hackbench");
    assert_eq!(defaults.processes.len(), 401, "10 groups of 20 senders and 20 receivers, and the parent");
    assert!(defaults.channels.iter().all(|channel| channel.kind == ChannelKind::Socket));
}

#[test]
fn schbench_workers_ask_and_messengers_answer() {
    let workload = made("schbench:-m2,-t8,-r2,-L");
    assert_eq!(workload.duration_ns, Some(2_000_000_000));
    assert_eq!((count(&workload, "messenger"), count(&workload, "worker")), (2, 2));
    assert_eq!(workload.initial_tasks(), 1);
    let messenger = steps(&workload, "messenger");
    assert!(messenger.contains(&Step::LoopStart { times: Some(8), end: 2 }), "it forks its eight workers");
    assert!(messenger.iter().any(|step| matches!(step, Step::Serve(_))));
    let names: Vec<&str> = steps(&workload, "worker").iter().map(Step::name).collect();
    assert_eq!(names, ["loop", "enlist", "start_clock", "sleep", "memory", "run", "record_clock", "end of loop"]);
    // 104 is the integer root of 256 KiB / 3 matrices / 8 bytes; five operations at 3 ns per multiplication.
    assert!(steps(&workload, "worker").contains(&Step::Run { work_ns: 5 * 104 * 104 * 104 * 3 }));
    assert!(workload.warnings.is_empty());
    assert_eq!(made("schbench:-t1").warnings.len(), 1, "the spinlock of the CPU is not modelled");
}

#[test]
fn schbench_with_a_rate_spreads_requests_over_its_workers() {
    let workload = made("schbench:-m2,-t3,-R16,-L,-r1");
    let messenger = steps(&workload, "messenger");
    let posts: Vec<u32> = messenger
        .iter()
        .filter_map(|step| match step {
            Step::SemPost(semaphore) => Some(semaphore.0),
            _ => None,
        })
        .collect();
    assert_eq!(posts, [0, 1, 2, 0, 1], "eight requests: two rounds over three workers, and two more");
    assert!(messenger.contains(&Step::LoopStart { times: Some(2), end: 8 }));
    assert!(messenger.iter().any(|step| matches!(step, Step::Timer { mode: TimerMode::Relative, .. })));
    assert!(workload.timers.iter().all(|timer| timer.starts_with("unique")));
}

#[test]
fn schbench_takes_bare_numbers_as_the_program_does() {
    let workload = made("schbench:-t1,-r500ms,-s0,-L,-C,-M0-1:4,-W2:3");
    assert_eq!(workload.duration_ns, Some(500_000_000));
    assert!(!steps(&workload, "worker").iter().any(|step| matches!(step, Step::Sleep { .. })));
    let affinity = |role: &str| workload.tasks.iter().find(|task| task.role == role).unwrap().affinity.clone();
    assert_eq!(affinity("messenger"), Affinity::OsCpus(vec![0]));
    assert_eq!(affinity("worker"), Affinity::OsCpus(vec![2, 3]));
}

#[test]
fn spinners_may_be_pinned_and_released() {
    let workload = made("spin:-n512,-d3s,-p0,-u500ms");
    assert_eq!(workload.tasks.len(), 1);
    let task = &workload.tasks[0];
    assert_eq!((task.instances, task.release_ns), (512, Some(500_000_000)));
    assert_eq!(task.affinity, Affinity::OsCpus(vec![0]));
    assert_eq!(workload.duration_ns, Some(3_000_000_000));
}

#[test]
fn nice_values_go_round_the_spinners() {
    let workload = made("spin:-n5,-N0:5:-20");
    let nice: Vec<i8> = workload.tasks.iter().map(|task| task.nice).collect();
    assert_eq!(nice, [0, 5, -20, 0, 5]);
    assert_eq!(made("spin:-n2,-N,-5").tasks[0].nice, -5);
    assert_eq!(made("spin:-n3,-P").processes.len(), 3);
}

#[test]
fn periodic_tasks_may_start_apart_and_differ() {
    let workload = made("periodic:-n256,-r400us,-s1.6ms,-d10s");
    assert_eq!(workload.tasks[0].instances, 256);
    assert_eq!(
        steps(&workload, "periodic")[1..3],
        [Step::Run { work_ns: 400_000 }, Step::Sleep { duration_ns: 1_600_000 }]
    );

    let workload = made("periodic:-n4,-r1ms,-s1ms,-o");
    let starts: Vec<u64> = workload.tasks.iter().map(|task| task.start_ns).collect();
    assert_eq!(starts, [0, 500_000, 1_000_000, 1_500_000]);

    let workload = made("periodic:-n50,-r1ms,-s1ms,-j10%");
    let runs: Vec<u64> = workload
        .programs
        .iter()
        .map(|program| match program.steps[1] {
            Step::Run { work_ns } => work_ns,
            _ => panic!("no run"),
        })
        .collect();
    assert!(runs.iter().all(|run| (900_000..=1_100_000).contains(run)), "{runs:?}");
    assert!(runs.iter().any(|run| *run < 920_000) && runs.iter().any(|run| *run > 1_080_000), "{runs:?}");
}

#[test]
fn pairs_play_ping_pong() {
    let workload = made("pingpong:-n2,-w100us,-l5,-s,-b8");
    assert_eq!((workload.tasks.len(), workload.channels.len(), workload.processes.len()), (4, 4, 4));
    assert_eq!(workload.duration_ns, None);
    let names: Vec<&str> = steps(&workload, "ping").iter().map(Step::name).collect();
    assert_eq!(names, ["loop", "run", "start_clock", "send", "receive", "record_clock", "end of loop"]);
    assert_eq!(made("pingpong:-n16,-w100us,-d10s,-T").processes.len(), 1);
}

#[test]
fn fork_join_threads_meet_in_every_iteration() {
    let workload = made("forkjoin:-n8,-i1000,-w1ms,--barrier,spin-then-block:100us");
    assert_eq!(workload.barriers[0].participants, 8);
    assert_eq!(workload.barriers[0].wait, BarrierWait::SpinThenBlock { spin_ns: 100_000 });
    assert!(steps(&workload, "main").contains(&Step::LoopStart { times: Some(7), end: 2 }));

    let workload = made("forkjoin:-n3,-i2,-w1ms,-m50%,-bspin");
    let work: Vec<u64> = workload
        .programs
        .iter()
        .filter_map(|program| {
            program.steps.iter().find_map(|step| match step {
                Step::Run { work_ns } => Some(*work_ns),
                _ => None,
            })
        })
        .collect();
    assert_eq!(work, [1_000_000, 1_250_000, 1_500_000]);
    assert_eq!(made("forkjoin:-n1,-i3").initial_tasks(), 1);
}

#[test]
fn pipeline_stages_are_chained() {
    let workload = made("pipeline:-s3,-w50us,-n10,-q2,-b100,-c2");
    assert_eq!((workload.tasks.len(), workload.channels.len()), (6, 4));
    assert!(workload.channels.iter().all(|channel| channel.capacity_bytes == 200));
    let names: Vec<&str> = steps(&workload, "stage 1").iter().map(Step::name).collect();
    assert_eq!(names, ["loop", "receive", "run", "send", "end of loop"]);
}

#[test]
fn combined_workloads_are_applications_of_their_own() {
    let workload = made("hackbench:-T,-f2,-g1+spin:-n3,-d2s+hackbench:-T,-f1,-g1");
    assert_eq!(workload.applications, ["hackbench:-T,-f2,-g1", "spin:-n3,-d2s", "hackbench:-T,-f1,-g1"]);
    let applications: Vec<u32> = workload.processes.iter().map(|process| process.application).collect();
    assert_eq!(applications, [0, 1, 2]);
    assert_eq!(workload.duration_ns, Some(2_000_000_000));
    assert_eq!(workload.style, ResultStyle::Plain, "two of them would print result lines");
    let names: Vec<&str> = workload.tasks.iter().map(|task| task.name.as_str()).collect();
    assert!(names.contains(&"main") && names.contains(&"main#2"), "{names:?}");

    let schbench = made("spin:-n1,-d1s+schbench:-t1,-L,-r3");
    let ResultStyle::Schbench { wakeup, .. } = schbench.style else { panic!("one of them prints result lines") };
    assert_eq!(schbench.recorders[wakeup.index()], "wakeup latency");
    assert_eq!(schbench.duration_ns, Some(3_000_000_000));
    // Who has another duration than the whole is told.
    assert!(
        workload.warnings.iter().chain(&schbench.warnings).filter(|warning| warning.what.contains("duration")).count()
            == 2
    );
    assert!(made("spin:-n1,-d1s+spin:-n2,-d1s").warnings.is_empty());
    assert!(made("forkjoin:-n1,-i3+forkjoin:-n2,-i3").warnings.is_empty(), "both end on their own");
}

#[test]
fn generated_workloads_survive_being_written_to_a_file() {
    for spec in [
        "hackbench:-T,-p,-f3,-g2,-l7",
        "hackbench:-P,-f2,-g2",
        "schbench:-m2,-t3,-r2",
        "schbench:-m2,-t3,-R100",
        "spin:-n4,-d3s,-N0:5:19",
        "spin:-n512,-p0,-u500ms,-d1s",
        "periodic:-n8,-j10%,-o",
        "pingpong:-n3,-w100us",
        "forkjoin:-n4,-i10,-m30%,--barrier=spin-then-block:100us",
        "pipeline:-s3,-n10,-P",
        "hackbench:-T,-f1,-g1+spin:-n2+spin:-n2,-P+schbench:-t2,-r1",
    ] {
        let workload = made(spec);
        let text = to_rtapp(&workload).unwrap_or_else(|error| panic!("{spec}: {error}"));
        let read = from_rtapp(spec, &text, &crate::Options::default())
            .unwrap_or_else(|error| panic!("{spec}: {error}\n{text}"));
        assert_eq!(read, workload, "{spec}\n{text}");
    }
}

#[test]
fn roles_need_the_extra_key_and_plain_tasks_do_not() {
    let text = to_rtapp(&made("periodic:-n8,-d2s")).unwrap();
    assert!(text.contains("\"warmcore\""));
    let plain =
        from_rtapp("p", r#"{"tasks": {"t": {"instance": 8, "run": 400, "sleep": 1600}}}"#, &crate::Options::default());
    assert!(!to_rtapp(&plain.unwrap()).unwrap().contains("warmcore"));
}

proptest! {
    #[test]
    fn any_generator_text_is_made_or_refused_without_panic(
        name in prop::sample::select(generators().iter().map(|generator| generator.name).collect::<Vec<_>>()),
        words in prop::collection::vec("-{0,2}[a-zA-Z]{0,3}=?[0-9:%]{0,4}(us|ms|s)?", 0..6),
    ) {
        // Counts are cut short so that no text asks for a million tasks.
        let _ = from_generator(&format!("{name}:-n3,-g2,-f2,-m2,{}", words.join(",")));
    }

    #[test]
    fn any_text_is_no_generator_or_made_without_panic(text in "\\PC{0,40}") {
        let _ = is_generator(&text);
        let _ = from_generator(&text);
    }
}

#[test]
fn profiles_and_cpus_go_to_all_tasks() {
    for spec in [
        "spin:-n2",
        "periodic:-n2",
        "forkjoin:-n3,-m50",
        "verilator:-t3",
        "transcode:-j2",
        "sysbench:--threads=2",
        "mediawiki:--client-threads=2",
    ] {
        let separator = if spec.contains(':') { "," } else { ":" };
        let workload = made(&format!("{spec}{separator}-c0-1:4,--profile=perlbench"));
        assert!(workload.tasks.iter().all(|task| task.profile.as_deref() == Some("perlbench")), "{spec}");
        assert!(workload.tasks.iter().all(|task| task.affinity == Affinity::OsCpus(vec![0, 1, 4])), "{spec}");
        assert!(matches!(problem(&format!("{spec},-cx")), GeneratorProblem::BadValue { .. }), "{spec}");
    }
    assert!(matches!(problem("spin:-p1,-c0"), GeneratorProblem::Conflict(_)));
    assert_eq!(made("verilator").tasks[0].profile.as_deref(), Some("verilator"));
}

#[test]
fn with_a_setup_all_threads_begin_together_when_the_main_thread_has_done_it() {
    for (spec, threads) in [("verilator:-t3,--setup=20ms", 3), ("forkjoin:-n3,--setup=20ms", 3)] {
        let workload = made(spec);
        let [main, worker] = [0, 1].map(|task| &workload.programs[workload.tasks[task].program.index()].steps);
        let Some(Step::Barrier(begin)) = worker.first() else { panic!("{spec}: {worker:?}") };
        assert_eq!(workload.barriers[begin.index()].participants, threads, "{spec}");
        let gate = main.iter().position(|step| step == &Step::Barrier(*begin)).unwrap();
        assert_eq!(main[gate - 1], Step::Run { work_ns: 20_000_000 }, "{spec}");
        assert!(main[..gate].iter().any(|step| matches!(step, Step::Fork(_))), "{spec}");
    }
    assert_eq!(made("verilator:-t3,--setup=0s").programs, made("verilator:-t3").programs);
}

#[test]
fn pinned_fork_join_threads_have_a_cpu_each_and_share_when_there_are_too_few() {
    let cpus = |spec: &str| -> Vec<Affinity> { made(spec).tasks.iter().map(|task| task.affinity.clone()).collect() };
    let on = |cpu| Affinity::OsCpus(vec![cpu]);
    assert_eq!(cpus("forkjoin:-n3,-c4-6,--pin"), [on(4), on(5), on(6)]);
    assert_eq!(cpus("forkjoin:-n3,-c4:9,--pin"), [on(4), on(9), on(4)]);
    assert!(matches!(problem("forkjoin:-n3,--pin"), GeneratorProblem::Conflict(_)));
}

#[test]
fn sysbench_has_a_client_and_a_connection_per_thread_that_meet_at_the_servers_latches() {
    let workload = made("sysbench:--test=oltp_delete,--threads=3,--time=2");
    assert_eq!((count(&workload, "client"), count(&workload, "connection")), (3, 3));
    assert_eq!(workload.duration_ns, Some(2_000_000_000));
    assert_eq!(workload.processes.len(), 2, "client and server are different programs");
    assert!(matches!(workload.style, ResultStyle::Sysbench { .. }));
    let connection = steps(&workload, "connection");
    let locks = |steps: &[Step]| steps.iter().filter(|step| matches!(step, Step::Lock(_))).count();
    assert_eq!((locks(connection), workload.locks.len()), (6, 6), "each transaction passes every latch");
    assert!(workload.latches.len() == 6 && workload.latches.iter().all(|latch| latch.spin_ns > 0));
    assert_eq!(workload.latches.iter().map(|latch| latch.lines).sum::<u32>(), 64, "what a delete writes under latches");
    assert!(connection.iter().any(|step| matches!(step, Step::Sleep { .. })), "and waits for the log");
    assert!(made("sysbench").locks.is_empty(), "point selects share");
}

#[test]
fn a_rated_sysbench_queues_transactions_at_drawn_times_and_clients_wait_for_them() {
    let workload = made("sysbench:--threads=3,--rate=2000,--events=30");
    assert_eq!((count(&workload, "events"), count(&workload, "client")), (1, 3));
    let queue = SemaphoreId(0);
    let arrival = Step::Draw { what: Drawn::Arrival { slot: 0 }, from: Distribution::Exponential { mean_ns: 500_000 } };
    let events = steps(&workload, "events");
    assert!(events.contains(&arrival) && events.contains(&Step::SemPost(queue)));
    assert!(events.contains(&Step::LoopStart { times: Some(30), end: 4 }), "as many as the clients take: {events:?}");
    let client = steps(&workload, "client");
    assert_eq!(client[1], Step::SemTake { semaphore: queue, slot: 0 }, "a latency counts from the queueing");
    assert!(!client.contains(&Step::StartClock { slot: 0 }));
    assert!(workload.has_arrivals() && !made("sysbench:--threads=3").has_arrivals());
    let warmed = made("sysbench:--rate=100,--warmup-time=1");
    assert_eq!(warmed.barriers[0].participants, 2, "events come after the warm-up");
    assert_eq!(steps(&warmed, "events")[0].name(), "barrier");
    let again = from_rtapp("w", &to_rtapp(&workload).unwrap(), &Options::default()).unwrap();
    assert_eq!(again.programs, workload.programs);
}

#[test]
fn rates_that_make_no_sense_are_refused() {
    for rate in ["0", "-5", "fast", "", "1.5", "1000000001"] {
        let said = problem(&format!("sysbench:--rate={rate}"));
        let GeneratorProblem::BadValue { flag, expected, .. } = &said else { panic!("{rate}: {said:?}") };
        assert_eq!((flag.as_str(), expected.as_str()), ("--rate", "a whole number 1 to 1000000000"));
    }
    assert!(matches!(problem("sysbench:--rate=10,--think=1ms"), GeneratorProblem::Conflict(_)));
    assert!(from_generator("sysbench:--rate=1000000000").is_ok());
}

#[test]
fn sysbench_ends_after_time_or_transactions() {
    let workload = made("sysbench:--test=oltp_read_write,--threads=4,--events=10,--start=1s");
    assert_eq!(workload.duration_ns, None);
    let first = &steps(&workload, "client")[0];
    assert!(matches!(first, Step::LoopStart { times: Some(3), .. }), "ten by four, rounded up: {first:?}");
    assert!(workload.tasks.iter().all(|task| task.start_ns == 1_000_000_000));
    assert!(matches!(problem("sysbench:--test=oltp_insert"), GeneratorProblem::BadValue { .. }));
    assert!(matches!(problem("sysbench:--time=0"), GeneratorProblem::BadValue { .. }));
}

#[test]
fn transcode_creates_short_threads_and_waits_for_them() {
    let workload = made("transcode:-j2,-n3,-i5,-w1ms");
    assert_eq!((workload.initial_tasks(), workload.processes.len()), (2, 2));
    assert!(steps(&workload, "encoder").contains(&Step::Join { count: 3 }));
}

#[test]
fn a_multiplication_of_schbench_costs_three_nanoseconds_unless_it_was_measured() {
    let longest = |options: &Options<'_>| {
        let workload = generate("schbench:-t1,-L", options).unwrap();
        let runs = workload.programs.iter().flat_map(|program| &program.steps).filter_map(|step| match step {
            Step::Run { work_ns } => Some(*work_ns),
            _ => None,
        });
        runs.max().unwrap()
    };
    // 256 KiB hold three matrices of 104 rows; 5 of them are multiplied in a request.
    assert_eq!(longest(&Options::default()), 5 * 104 * 104 * 104 * 3);
    let measured = Options { multiply_add_ps: std::num::NonZeroU64::new(830), ..Options::default() };
    assert_eq!(longest(&measured), 5 * 104 * 104 * 104 * 830 / 1_000);
}

#[test]
fn warm_ups_are_those_that_the_programs_flags_say() {
    assert_eq!(made("schbench:-t2,-L,-r4,-w1").warm_up_ns, Some(1_000_000_000));
    assert_eq!(made("schbench:-t2,-L,-r4,-w0").warm_up_ns, Some(0), "said, and none");
    assert_eq!(made("schbench:-t2,-L,-r4").warm_up_ns, None);
    let workload = made("sysbench:--threads=2,--start=500ms,--warmup-time=2,--time=3");
    assert_eq!((workload.warm_up_ns, workload.duration_ns), (Some(2_500_000_000), Some(5_500_000_000)));
    assert_eq!(made("sysbench:--threads=2,--time=3").warm_up_ns, None);
    let problem = problem("schbench:-t2,-L,-r4,-w4");
    assert!(problem.to_string().contains("shorter than the runtime"), "{problem}");
}

/// Nanoseconds of work in some steps, and how many of them ask for something and wait for it.
fn work_and_trips(steps: &[Step]) -> (u64, usize) {
    let work = steps.iter().filter_map(|step| match step {
        Step::Run { work_ns } => Some(*work_ns),
        _ => None,
    });
    (work.sum(), steps.iter().filter(|step| matches!(step, Step::Receive { .. })).count())
}

fn workers(workload: &Workload) -> u32 {
    workload.tasks.iter().find(|task| task.role == "worker").map_or(0, |task| task.instances)
}

#[test]
fn a_page_of_a_wiki_is_15_ms_of_work_with_39_round_trips() {
    let workload = made("mediawiki:--client-threads=3,--server-threads=2,--memcached-threads=2,--requests=6");
    let roles = ["client", "connection", "cache"].map(|role| count(&workload, role));
    assert_eq!((roles, workers(&workload)), ([3, 3, 2], 2), "each client has a connection");
    assert_eq!(workload.processes.len(), 4, "siege, HHVM, the database and memcached");
    let client = steps(&workload, "client");
    let Some(Step::Submit { program: request, .. }) = client.iter().find(|step| matches!(step, Step::Submit { .. }))
    else {
        panic!("{client:?}")
    };
    let (of_worker, trips) = work_and_trips(&workload.programs[request.index()].steps);
    assert_eq!(trips, 19 + 20, "queries and gets");
    let get = workload.programs[request.index()].steps.iter().find_map(|step| match step {
        Step::Submit { program, .. } => Some(work_and_trips(&workload.programs[program.index()].steps).0),
        _ => None,
    });
    let (of_client, of_query) = (work_and_trips(client).0, work_and_trips(steps(&workload, "connection")).0);
    let all = of_client + of_worker + 19 * of_query + 20 * get.unwrap();
    assert_eq!(all, 15_000_000);
    let text = to_rtapp(&workload).unwrap();
    assert_eq!(to_rtapp(&from_rtapp("mediawiki", &text, &Options::default()).unwrap()).unwrap(), text);
}

#[test]
fn pages_of_a_wiki_end_with_the_last_get_of_each_thread_of_memcached() {
    let workload = made("mediawiki:--client-threads=5,--memcached-threads=2,--requests=10");
    assert_eq!(workload.duration_ns, None);
    let requests = |name: &str| {
        let task = workload.tasks.iter().find(|task| task.name == name).unwrap();
        let [Step::Work { requests, .. }] = &workload.programs[task.program.index()].steps[..] else {
            panic!("{name}")
        };
        *requests
    };
    // Two pages of each client; the first thread has three clients, the second two.
    assert_eq!((requests("cache-0"), requests("cache-1"), requests("worker")), (2 * 3 * 20, 2 * 2 * 20, 10));
    assert_eq!(workers(&workload), 5, "of 200 workers those that served last serve next");
    assert_eq!(made("mediawiki:--client-threads=1").duration_ns, Some(60_000_000_000));
    assert_eq!(count(&made("mediawiki:--client-threads=1"), "cache"), 1, "a thread without clients has nothing to do");
    let starts: Vec<u64> = workload.tasks.iter().filter(|of| of.role == "client").map(|of| of.start_ns).collect();
    assert_eq!(starts, [0, 3_000_000, 6_000_000, 9_000_000, 12_000_000], "spread over the time of a page");
    for wrong in ["--client-threads=0", "--requests=0", "--siege-duration=0s", "--memcached-threads=x"] {
        assert!(matches!(problem(&format!("mediawiki:{wrong}")), GeneratorProblem::BadValue { .. }), "{wrong}");
    }
}
