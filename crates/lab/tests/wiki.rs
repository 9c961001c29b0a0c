//! The wiki of the generator mediawiki, against what follows from its numbers by hand.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::runner::{self, Conduct};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::from_generator;

/// Mean nanoseconds of a page, pages in a second, and CPU time of a page of one trial with memory of constant speed.
fn wiki(machine: &str, flags: &str) -> (f64, f64, f64) {
    let value = warmcore_topology::resolve(machine).unwrap();
    let machine = Named { source: "m".into(), value };
    let workload = Named { source: "w".into(), value: from_generator(&format!("mediawiki:{flags}")).unwrap() };
    let built = Experiment::builder(machine, workload)
        .schedulers(vec![SchedulerSpec::parse("eevdf").unwrap()])
        .memory(Some(MemoryChoice::None))
        .seeds(trial_seeds(1, 1))
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let finished = runner::run(&built.experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
    let measure = |name: &str| finished.trials[0][0].measure(name).unwrap();
    (measure("recorder_page_mean_ns"), measure("recorder_page_per_s"), measure("work_ns"))
}

/// One client has one page made at a time: 15 ms of work, one program after the other, and what 39 round trips of two wakeups each cost.
#[test]
fn a_client_alone_waits_for_15_ms_of_work_and_its_wakeups() {
    let (page_ns, per_s, work_ns) = wiki("1s1n1l4c1t", "--client-threads=1,--requests=40");
    assert!((work_ns / 40.0 / 15e6 - 1.0).abs() < 1e-5, "{work_ns} ns of work");
    let wakeups = 2.0 * 40.0;
    let of_each = (page_ns - 15e6) / wakeups;
    assert!((500.0..20_000.0).contains(&of_each), "a wakeup takes microseconds: {of_each} ns of {page_ns}");
    assert!((per_s * page_ns / 1e9 - 1.0).abs() < 0.01, "and nothing else passes between two pages: {per_s}");
}

/// Clients that never pause are as many as the pages under way: rate times mean latency (Little's law). Where all CPUs are busy, the rate is
/// theirs over the work of a page, less what messages and wakeups take.
#[test]
fn clients_that_never_pause_fill_the_cpus_and_keep_littles_law() {
    let (page_ns, per_s, _) = wiki("1s1n1l4c1t", "--client-threads=16,--requests=1600");
    assert!((per_s * page_ns / 1e9 / 16.0 - 1.0).abs() < 0.04, "{per_s} a second, {page_ns} ns each");
    let most = 4.0 / 15e-3;
    assert!((0.9 * most..=most).contains(&per_s), "{per_s} a second of at most {most}");
}
