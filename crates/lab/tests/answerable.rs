//! What a verdict is about, and where there is none: metrics that the arrivals fix, percentiles of few events, schedulers that act on what is
//! not in the run, tasks that starve, runs without an end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::builder::BuildError;
use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::verdict::{self, ComparisonDocument, Finding};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::{Options, resolve};

fn built(schedulers: &[&str], machine: &str, workload: &str, metric: Option<&str>) -> Result<Experiment, BuildError> {
    let named = Named { source: machine.into(), value: warmcore_topology::resolve(machine).unwrap() };
    let value = resolve(if workload.starts_with('{') { "w.json" } else { workload }, &Options::default(), |_| {
        Ok(workload.to_owned())
    });
    let schedulers = schedulers.iter().map(|text| SchedulerSpec::parse(text).unwrap()).collect();
    let built = Experiment::builder(named, Named { source: "w".into(), value: value.unwrap() })
        .schedulers(schedulers)
        .seeds(trial_seeds(1, 8))
        .metric(metric.map(str::to_owned))
        .build()?;
    Ok(built.experiment)
}

fn compared(schedulers: &[&str], machine: &str, workload: &str, metric: Option<&str>) -> ComparisonDocument {
    run(&built(schedulers, machine, workload, metric).unwrap())
}

fn run(experiment: &Experiment) -> ComparisonDocument {
    let stop = Arc::new(AtomicBool::new(false));
    let finished = runner::run(experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
    verdict::conclude(experiment, &experiment.record(), &finished.trials).unwrap()
}

fn finding(document: &ComparisonDocument, scheduler: usize) -> Finding {
    document.schedulers[scheduler].measures[&document.primary].finding.unwrap()
}

/// Requests every 5 ms: 100 of them take half a second under any scheduler.
const SERVICE: &str = r#"{ "tasks": { "w": { "instance": 6, "loop": 100, "run": 1000,
    "timer": { "ref": "unique", "period": 5000, "mode": "absolute" } } } }"#;

#[test]
fn a_service_whose_arrivals_fix_its_time_is_judged_by_how_long_requests_take() {
    let document = compared(&["eevdf", "cfs"], "1s1n2l2c1t", SERVICE, None);
    assert_eq!(document.primary, "response_p99_ns", "{}", document.verdict.sentence);
    let said = "elapsed time is fixed by when work arrives: timers and sleeps of w-0 take 500 ms of 50";
    assert!(document.verdict.sentence.starts_with(said), "{}", document.verdict.sentence);
    // By hand: six requests arrive together at four CPUs, and two of them share a CPU each.
    let p99 = document.schedulers[0].measures["response_p99_ns"].summary.median.unwrap();
    assert!((1e6..3.1e6).contains(&p99), "{p99}");
    let asked = compared(&["eevdf", "cfs"], "1s1n2l2c1t", SERVICE, Some("elapsed_ns"));
    assert_eq!(asked.replaced.unwrap().metric, "elapsed_ns", "whoever asks for it is told, too");
    // Who sleeps for ever is ended by somebody else, whose time that is.
    let beside = r#"{ "tasks": { "w": { "loop": -1, "run": 10, "sleep": 990 }, "m": { "instance": 0 } }, "warmcore": { "tasks": {
        "m": { "instances": 1, "program": [ { "run_ns": 50000000 }, "stop" ] } } } }"#;
    let ended = compared(&["eevdf", "cfs"], "1s1n1l2c1t", beside, Some("elapsed_ns"));
    assert_eq!((ended.primary.as_str(), ended.replaced), ("elapsed_ns", None));
}

#[test]
fn a_program_that_sleeps_now_and_then_is_still_judged_by_its_time() {
    let workload = r#"{ "tasks": { "w": { "instance": 6, "loop": 100, "run": 1000, "sleep": 200 } } }"#;
    assert_eq!(compared(&["eevdf", "cfs"], "1s1n2l2c1t", workload, None).primary, "elapsed_ns");
}

#[test]
fn a_percentile_of_few_events_gives_way_to_the_mean() {
    let workload = |loops: u32| {
        format!(
            r#"{{ "tasks": {{ "w": {{ "loop": {loops}, "run": 900, "sleep": 100 }}, "hog": {{ "loop": 1, "run": 20000 }} }} }}"#
        )
    };
    let few = compared(&["eevdf", "rr"], "1s1n1l1c1t", &workload(20), Some("wakeup_p99_ns"));
    assert_eq!(few.primary, "wakeup_mean_ns");
    let said = "wakeup p99 is not measurable here: it is a percentile of 22 events in a trial under eevdf, fewer than 100, so the verdict is about wakeup mean";
    assert!(few.verdict.sentence.starts_with(said), "{}", few.verdict.sentence);
    let p999 = &few.schedulers[1].measures["wakeup_p999_ns"];
    let ratio = p999.comparison.as_ref().unwrap().ratio;
    assert_eq!((p999.finding, ratio), (Some(Finding::NotMeasurable), None), "no table calls it better or worse");
    let many = compared(&["eevdf", "rr"], "1s1n1l1c1t", &workload(200), Some("wakeup_p99_ns"));
    assert_eq!((many.primary.as_str(), many.replaced), ("wakeup_p99_ns", None));
    let rare = compared(&["eevdf", "rr"], "1s1n1l1c1t", &workload(200), Some("wakeup_p999_ns"));
    assert_eq!(rare.primary, "wakeup_mean_ns", "one in a thousand of 200");
}

/// Requests of 3 ms every 13 ms, and timers that take 50 us every 0.55 ms: 4 % of the response times are those of requests.
#[test]
fn a_verdict_over_two_roles_names_the_mean_of_each() {
    let said = |run: u32, sleep: u32| {
        let workload = format!(
            r#"{{ "global": {{ "duration": 1 }}, "tasks": {{ "client": {{ "instance": 2, "loop": -1, "run": 3000, "sleep": 10000 }},
            "timer": {{ "instance": 2, "loop": -1, "run": {run}, "sleep": {sleep} }} }} }}"#
        );
        let document = compared(&["eevdf", "cfs"], "1s1n1l2c1t", &workload, Some("response_mean_ns"));
        document.conditions.into_iter().find(|condition| condition.contains("roles together"))
    };
    let both = said(50, 500).expect("it says so");
    let begins = "response mean is of 2 roles together: under eevdf the mean of a trial's events is 3";
    assert!(
        both.starts_with(begins) && both.contains(" ms for client (") && both.contains(" us for timer ("),
        "{both}"
    );
    assert_eq!(said(3000, 10_000), None, "they take equally long");
}

/// Each on a CPU of its own: a request takes 3 ms, a timer 50 us, and calls and switches some microseconds more.
#[test]
fn each_role_has_percentiles_of_its_own_which_a_verdict_can_be_about() {
    let workload = r#"{ "global": { "duration": 2 }, "tasks": { "client": { "loop": -1, "run": 3000, "sleep": 7000, "cpus": [ 0 ] },
        "timer": { "loop": -1, "run": 50, "sleep": 950, "cpus": [ 1 ] } } }"#;
    let document = compared(&["eevdf", "cfs"], "1s1n1l2c1t", workload, Some("response_p99_ns"));
    let value = |name: &str| document.schedulers[0].measures[name].summary.median.unwrap();
    let [client, timer] = ["client", "timer"].map(|role| value(&format!("role_{role}_response_p99_ns")));
    assert!((3e6..3.1e6).contains(&client) && (50e3..70e3).contains(&timer), "{client} {timer}");
    // In 1.33 s behind the warm-up, of 10 and 1 ms each.
    let [clients, timers] = ["client", "timer"].map(|role| value(&format!("role_{role}_response_samples")));
    assert!((130.0..=134.0).contains(&clients) && (1200.0..=1334.0).contains(&timers), "{clients} {timers}");
    let said = document.conditions.iter().find(|condition| condition.contains("roles together")).unwrap();
    assert!(said.contains("the p99 of a trial's events is 3") && said.contains(" us for timer ("), "{said}");
    assert!(said.ends_with("; --metric role_client_response_p99_ns judges one role alone"), "{said}");
    let alone = compared(&["eevdf", "cfs"], "1s1n1l2c1t", workload, Some("role_timer_response_p99_ns"));
    assert_eq!((alone.primary.as_str(), alone.replaced.is_none()), ("role_timer_response_p99_ns", true));
    assert!(alone.verdict.sentence.contains(" in response p99 of timer"), "{}", alone.verdict.sentence);
}

/// Each request takes 150 ms of a CPU that another task shares: three end within the second.
#[test]
fn a_rate_of_three_samples_gives_way_to_the_work() {
    let workload = r#"{ "global": { "duration": 1 }, "tasks": { "server": { "instance": 0 }, "hog": { "loop": -1, "run": 10000 } },
        "warmcore": { "recorders": [ "request" ], "tasks": { "server": { "instances": 1, "program": [ { "loop": -1, "steps": [
            { "start_clock": 0 }, { "run_ns": 150000000 }, { "sleep_ns": 5000000 }, { "record_clock": 0, "recorder": "request" } ] } ] } } } }"#;
    let document = compared(&["eevdf", "rr"], "1s1n1l1c1t", workload, Some("recorder_request_per_s"));
    assert_eq!(document.primary, "work_ns");
    let said = "request samples per second is not measurable here: no trial has more than 3 samples, and one more or less decides it, so";
    assert!(document.verdict.sentence.starts_with(said), "{}", document.verdict.sentence);
}

#[test]
fn cache_aware_scheduling_without_caches_has_no_answer_before_any_number() {
    let workload = r#"{ "tasks": { "w": { "instance": 3, "loop": 1, "run": 50000 } } }"#;
    let without = compared(&["eevdf", "cfs", "cache-aware"], "1s1n2l4c1t", workload, None);
    assert_eq!(finding(&without, 2), Finding::NotAnswerable);
    assert_ne!(finding(&without, 1), Finding::NotAnswerable, "cfs acts on nothing that is missing");
    let sentence = &without.verdict.sentence;
    assert!(
        sentence.starts_with("The run cannot say how cache-aware and eevdf compare in elapsed time: "),
        "{sentence}"
    );
    assert!(sentence.contains("--assume-profile"), "{sentence}");
    for (measure, answered) in
        [("work_ns", false), ("response_mean_ns", false), ("migrations_ran", true), ("violation_ns", true)]
    {
        let finding = without.schedulers[2].measures[measure].finding;
        assert_eq!(finding != Some(Finding::NotAnswerable), answered, "{measure}: {finding:?}");
    }
    let comparison = without.schedulers[2].measures["elapsed_ns"].comparison.as_ref();
    assert_eq!(comparison.and_then(|of| of.ratio), None, "no number stands beside it");
    let under = compared(&["cache-aware", "eevdf"], "1s1n2l4c1t", workload, None);
    assert_eq!(finding(&under, 1), Finding::NotAnswerable, "nor as the baseline");
    let one_llc = compared(&["eevdf", "cache-aware"], "1s1n1l4c1t", workload, None);
    assert_eq!(finding(&one_llc, 1), Finding::Identical, "it is off where there is one LLC");
    // Where threads were is answered without caches.
    let places = compared(&["eevdf", "cache-aware"], "1s1n2l4c1t", workload, Some("dominant_llc_share"));
    assert_ne!(finding(&places, 1), Finding::NotAnswerable);
    let with = compared(&["eevdf", "cache-aware"], "1s1n2l4c1t", "verilator:-t3,-C50", None);
    assert_ne!(finding(&with, 1), Finding::NotAnswerable);
    assert!(with.conditions.iter().any(|words| words == "analytic memory, with the profile verilator"));
}

/// Beside a thousandth of the time of threads with a profile, threads without one are a condition; as the verdict's subject they are no answer.
#[test]
fn threads_without_a_profile_that_run_for_a_small_part_of_the_time_decide_nothing() {
    let workload = |helper_us: u32| {
        format!(
            r#"{{ "tasks": {{ "solver": {{ "instance": 3, "loop": 20, "run": 2000, "barrier": "s" }},
            "helper": {{ "instance": 2, "loop": 10, "run": {helper_us}, "sleep": 2000 }} }},
            "warmcore": {{ "applications": ["a"], "processes": [ {{ "name": "p1", "application": "a" }}, {{ "name": "p2", "application": "a" }} ],
            "tasks": {{ "solver": {{ "process": "p1", "profile": "verilator" }}, "helper": {{ "process": "p2" }} }} }} }}"#
        )
    };
    let small = compared(&["eevdf", "cache-aware"], "1s1n2l4c1t", &workload(5), None);
    assert_ne!(finding(&small, 1), Finding::NotAnswerable, "{}", small.verdict.sentence);
    let said = "what threads of p2 do to caches is not known, as they have no memory profile: they and others like them had 0.";
    assert!(small.conditions.iter().any(|words| words.starts_with(said)), "{:?}", small.conditions);
    let large = compared(&["eevdf", "cache-aware"], "1s1n2l4c1t", &workload(2000), None);
    assert_eq!(finding(&large, 1), Finding::NotAnswerable);
    assert!(large.verdict.sentence.contains("the threads of p2 have no memory profile"));
    assert!(!large.conditions.iter().any(|words| words.contains("others like them")), "{:?}", large.conditions);
}

#[test]
fn cache_aware_scheduling_that_is_off_is_what_it_is_without_and_is_answered() {
    let workload = r#"{ "tasks": { "w": { "instance": 3, "loop": 1, "run": 50000 } } }"#;
    let off = compared(&["eevdf", "cache-aware:enabled=0"], "1s1n2l4c1t", workload, None);
    assert_eq!(finding(&off, 1), Finding::Identical, "{}", off.verdict.sentence);
}

/// By hand: of equal shares of two CPUs eight tasks have a turn every few slices, whatever their weight; in turns of 10 s two of them keep both.
#[test]
fn who_waits_for_ever_beside_equals_starves_however_light_and_who_is_lighter_than_others_does_not() {
    let under =
        |schedulers: [&str; 2], workload: &str| finding(&compared(&schedulers, "1s1n1l2c1t", workload, None), 1);
    let in_turns = |workload: &str| under(["eevdf", "fifo:slice_ns=10s"], workload);
    for nice in ["0", "19", "-20"] {
        assert_eq!(in_turns(&format!("spin:-n8,-N{nice},-d300ms")), Finding::Starves, "nice {nice}");
    }
    // A heavy task that hardly runs makes nobody else wait.
    let beside = r#"{ "global": { "duration": 1 }, "tasks": { "hog": { "instance": 6, "loop": -1, "run": 20000 },
        "heavy": { "instance": 1, "loop": -1, "priority": -20, "run": 20, "sleep": 20000 } } }"#;
    let left = compared(&["eevdf", "fifo:slice_ns=10s"], "1s1n1l2c1t", beside, None).schedulers;
    let left = [0, 1].map(|of: usize| left[of].measures["never_ran_again"].summary.median.unwrap());
    assert!(left[0] == 0.0 && left[1] >= 4.0, "two of six hogs ran: {left:?}");
    let groups = |a: u32, b: u32| {
        format!(
            r#"{{ "global": {{ "duration": 1 }}, "tasks": {{ "hog": {{ "instance": 4, "run": 1000, "taskgroup": "/a" }},
            "n": {{ "instance": 2, "run": 1000, "taskgroup": "/b" }} }},
            "warmcore": {{ "groups": [ {{ "name": "/a", "shares": {a} }}, {{ "name": "/b", "shares": {b} }} ] }} }}"#
        )
    };
    assert_ne!(under(["rr", "eevdf"], &groups(262_144, 2)), Finding::Starves, "its turn comes after a day");
    assert_eq!(in_turns(&groups(1024, 1024)), Finding::Starves);
    assert_eq!(in_turns(&groups(2, 2)), Finding::Starves, "both are light");
}

/// A profile of a task that nobody gathers says nothing of those that are.
#[test]
fn cache_aware_scheduling_of_threads_without_a_profile_has_no_answer_whatever_others_have() {
    let unprofiled = "pingpong:-n4,-w200us,-d100ms,-T";
    for beside in ["spin:-n1,-d100ms", "verilator:-t3,-C50"] {
        let document = compared(&["eevdf", "cache-aware"], "1s1n2l4c1t", &format!("{unprofiled}+{beside}"), None);
        assert_eq!(finding(&document, 1), Finding::NotAnswerable, "{beside}");
        let said = "the threads of pingpong have no memory profile";
        assert!(document.verdict.sentence.contains(said), "{}", document.verdict.sentence);
    }
    let document = compared(&["eevdf", "cache-aware"], "1s1n2l4c1t", "verilator:-t3,-C50+spin:-n1,-d100ms", None);
    assert_ne!(finding(&document, 1), Finding::NotAnswerable);
    // Nobody is gathered of processes of one thread each.
    let lone = r#"{ "tasks": { "w": { "instance": 0 } }, "warmcore": { "tasks": {
        "w": { "instances": 1, "program": [ { "run_ns": 50000000 } ] } } } }"#;
    let mut experiment = built(&["eevdf", "cache-aware"], "1s1n2l4c1t", lone, None).unwrap();
    experiment.options.memory = MemoryChoice::Analytic;
    assert_ne!(finding(&run(&experiment), 1), Finding::NotAnswerable);
}

/// Closed loops: transactions per second are connections over the mean latency, whatever the program's warm-up took.
#[test]
fn transactions_per_second_are_of_the_time_in_which_there_were_transactions() {
    for seconds in ["0", "1"] {
        let workload = format!("sysbench:--test=oltp_point_select,--threads=4,--warmup-time={seconds},--events=4000");
        let document = compared(&["eevdf", "cfs"], "clx26", &workload, None);
        assert_eq!(document.primary, "recorder_transaction_latency_per_s");
        for scheduler in &document.schedulers {
            let median = |name: &str| scheduler.measures[name].summary.median.unwrap();
            let by_hand = 4.0 / (median("recorder_transaction_latency_mean_ns") / 1e9);
            let ratio = median("recorder_transaction_latency_per_s") / by_hand;
            assert!((0.8..1.02).contains(&ratio), "{} after {seconds} s: {ratio} of {by_hand}", scheduler.label);
            assert_eq!(median("recorder_transaction_latency_samples"), 4000.0);
        }
    }
}

/// What is measured with a warm-up is per second of what follows it, be the program at its first request or in the middle of one.
#[test]
fn requests_per_second_after_a_warm_up_are_of_the_measured_window() {
    let mut experiment =
        built(&["eevdf"], "1s1n2l2c1t", "schbench:-m1,-t3,-r1s,-L", Some("recorder_request_latency_per_s")).unwrap();
    experiment.workload.value.warm_up_ns = Some(500_000_000);
    let stop = Arc::new(AtomicBool::new(false));
    let finished = runner::run(&experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
    let measures = &finished.trials[0][0].measures;
    let value = |name: &str| measures[name].unwrap();
    // A window of half a second: twice as many a second as there were.
    assert_eq!(value("elapsed_ns"), 5e8);
    assert_eq!(value("recorder_request_latency_per_s"), 2.0 * value("recorder_request_latency_samples"));
    assert!(value("recorder_request_latency_samples") > 50.0);
}

#[test]
fn transactions_that_come_by_themselves_are_judged_by_their_latency() {
    for length in ["--events=2000", "--time=1"] {
        let workload = format!("sysbench:--threads=2,--rate=4000,{length}");
        let document = compared(&["eevdf", "cfs"], "1s1n1l2c1t", &workload, None);
        assert_eq!(document.primary, "recorder_transaction_latency_p99_ns", "{length}");
    }
    let elapsed = compared(&["eevdf", "cfs"], "1s1n1l2c1t", "sysbench:--rate=4000,--events=2000", Some("elapsed_ns"));
    assert_eq!(elapsed.primary, "recorder_transaction_latency_p99_ns");
    let said = "elapsed time is fixed by when work arrives: timers and sleeps of events";
    assert!(elapsed.verdict.sentence.starts_with(said), "{}", elapsed.verdict.sentence);
    let few = compared(&["eevdf", "cfs"], "1s1n1l2c1t", "sysbench:--rate=4000,--events=50", None);
    assert_eq!(few.primary, "recorder_transaction_latency_mean_ns");
}

/// Whatever the scheduler, as many requests are done as come.
#[test]
fn requests_at_a_given_rate_are_judged_by_a_latency_and_not_by_the_work_done() {
    let document = compared(&["eevdf", "rr"], "1s1n1l4c1t", "schbench:-m1,-t16,-R150,-r3,-L", None);
    assert_eq!((document.primary.as_str(), &document.replaced), ("recorder_request_latency_p99_ns", &None));
    assert_eq!(document.secondary.as_deref(), Some("wakeup_p99_ns"));
    assert_ne!(finding(&document, 1), Finding::Identical);
    let asked = Some("recorder_wakeup_latency_p99_ns");
    let asked = compared(&["eevdf", "rr"], "1s1n1l4c1t", "schbench:-m1,-t16,-R150,-r3,-L", asked);
    assert_eq!(asked.primary, "recorder_request_latency_p99_ns", "{}", asked.verdict.sentence);
    let few = compared(&["eevdf", "rr"], "1s1n1l4c1t", "schbench:-m1,-t4,-R20,-r3,-L", None);
    assert_eq!(few.primary, "recorder_request_latency_mean_ns", "a percentile of few requests");
    let closed = compared(&["eevdf", "rr"], "1s1n1l4c1t", "schbench:-m1,-t8,-r2,-L", None);
    assert_eq!(closed.primary, "recorder_wakeup_latency_p99_ns");
}

#[test]
fn a_run_that_would_never_end_is_refused_before_it_begins() {
    let endless = built(&["eevdf"], "1s1n1l1c1t", r#"{ "tasks": { "a": { "run": 1000 } } }"#, None).unwrap_err();
    assert!(matches!(&endless, BuildError::Endless { task } if task == "a"), "{endless}");
    assert!(endless.advice().unwrap().contains("--max-time"));
}
