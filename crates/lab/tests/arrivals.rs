//! Transactions that come by themselves, against queueing theory.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::runner::{self, Conduct};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::from_generator;

/// Mean over trials of the mean latency in nanoseconds and of transactions per second, with one connection on two idle CPUs. Memory has
/// constant speed: with caches a transaction takes longer where threads have moved, so that it has no one service time.
fn one_connection(flags: &str) -> (f64, f64) {
    let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
    let workload = from_generator(&format!("sysbench:--threads=1,{flags}")).unwrap();
    let (machine, workload) =
        (Named { source: "m".into(), value: machine }, Named { source: "w".into(), value: workload });
    let built = Experiment::builder(machine, workload)
        .schedulers(vec![SchedulerSpec::parse("eevdf").unwrap()])
        .memory(Some(MemoryChoice::None))
        .seeds(trial_seeds(1, 6))
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let finished = runner::run(&built.experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
    let trials = &finished.trials[0];
    let mean = |name: &str| {
        let of_trials =
            trials.iter().map(|trial| trial.measure(&format!("recorder_transaction_latency_{name}")).unwrap());
        of_trials.sum::<f64>() / trials.len() as f64
    };
    assert!(mean("max_ns") >= mean("mean_ns"), "{} {}", mean("max_ns"), mean("mean_ns"));
    (mean("mean_ns"), mean("per_s"))
}

/// One connection is one server whose service takes the same time each time, and transactions come at exponentially distributed
/// intervals: an M/D/1 queue, in which the mean wait is S ρ / (2 (1 - ρ)) (Pollaczek and Khinchine).
#[test]
fn a_rated_connection_waits_as_long_as_queueing_theory_says() {
    let (service_ns, _) = one_connection("--test=oltp_read_write,--events=500");
    for (load, in_system) in [(0.1, 1.0 + 0.1 / 1.8), (0.5, 1.5)] {
        let rate = (load * 1e9 / service_ns).round();
        let (mean_ns, per_s) = one_connection(&format!("--test=oltp_read_write,--rate={rate},--events=4000"));
        let (time, kept) = (mean_ns / service_ns / in_system, per_s / rate);
        assert!((0.95..1.05).contains(&time), "{load}: {mean_ns} ns in the system, {service_ns} ns of service");
        assert!((0.97..1.03).contains(&kept), "{per_s} a second, {rate} asked for");
    }
}

/// Each sleep ends late by the timer slack of 50 µs, which would cost a third of such a rate.
#[test]
fn a_rate_is_kept_though_every_sleep_is_longer_than_asked() {
    let (_, per_s) = one_connection("--rate=10000,--events=4000");
    assert!((9_700.0..10_300.0).contains(&per_s), "{per_s} a second");
}

/// A file that records one thing of what comes by itself is asked about that; without arrivals, or with two recorders, about its wakeups.
#[test]
fn a_file_with_arrivals_is_judged_by_the_latency_that_it_records() {
    let file = |clock: &str, recorders: &str| {
        let text = format!(
            r#"{{ "tasks": {{ "client": {{ "instance": 0 }} }}, "global": {{ "duration": 1 }}, "warmcore": {{ "recorders": [ {recorders} ], "tasks": {{
                "client": {{ "instances": 1, "program": [ {{ "start_clock": 0 }}, {{ "loop": -1, "steps": [
                    {{ "sleep_ns": {{ "exponential": {{ "mean_ns": 2000000 }} }}{clock} }}, {{ "run_ns": 1000 }}, {{ "record_clock": 0, "recorder": "request" }} ] }} ] }} }} }} }}"#
        );
        let workload = warmcore_workload::from_rtapp("file", &text, &warmcore_workload::Options::default()).unwrap();
        warmcore_lab::measures::primary(&workload)
    };
    assert_eq!(file(", \"clock\": 0", "\"request\""), "recorder_request_p99_ns");
    assert_eq!(file("", "\"request\""), "wakeup_p99_ns");
    assert_eq!(file(", \"clock\": 0", "\"request\", \"other\""), "wakeup_p99_ns");
}
