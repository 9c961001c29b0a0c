//! What a verdict says it holds for: how far hardware threads slow each other, and that nothing varied.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::verdict::{self, ComparisonDocument};
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::{Options, from_rtapp};

fn compared(machine: &str, workload: &str, smt_slowdown_percent: Option<u32>) -> Result<ComparisonDocument, String> {
    compared_under(["eevdf", "rr"], machine, workload, smt_slowdown_percent)
}

fn compared_under(
    schedulers: [&str; 2],
    machine: &str,
    workload: &str,
    smt_slowdown_percent: Option<u32>,
) -> Result<ComparisonDocument, String> {
    let named = Named { source: machine.into(), value: warmcore_topology::resolve(machine).unwrap() };
    let value = from_rtapp("test", workload, &Options::default()).unwrap();
    let schedulers = schedulers.map(|text| SchedulerSpec::parse(text).unwrap()).to_vec();
    let built = Experiment::builder(named, Named { source: "test".into(), value })
        .schedulers(schedulers)
        .seeds(trial_seeds(1, 3))
        .metric(Some("elapsed_ns".into()))
        .smt_slowdown_percent(smt_slowdown_percent)
        .build()
        .map_err(|error| error.to_string())?;
    let stop = Arc::new(AtomicBool::new(false));
    let finished = runner::run(&built.experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
    Ok(verdict::conclude(&built.experiment, &built.experiment.record(), &finished.trials).unwrap())
}

const CONSTANT: &str = r#"{ "tasks": { "a": { "instance": 4, "loop": 1, "run": 300 } } }"#;
const DRAWN: &str = r#"{ "tasks": { "a": { "instance": 0 } }, "warmcore": { "tasks": { "a": { "instances": 4,
    "program": [ { "run_ns": { "exponential": { "mean_ns": 300000 } } } ] } } } }"#;

#[test]
fn a_verdict_about_hardware_threads_names_what_they_take_of_each_other_and_who_says_so() {
    let named = |percent| {
        let document = compared("1s1n1l2c2t", CONSTANT, percent).unwrap();
        document.conditions.into_iter().find(|condition| condition.contains("busy sibling")).unwrap()
    };
    let default = named(None);
    for part in ["1.65 times as long", "(assumed; --smt-slowdown)"] {
        assert!(default.contains(part), "{default}");
    }
    assert!(named(Some(100)).contains("2 times as long (given;"), "{}", named(Some(100)));
    assert!(named(Some(0)).contains("1 times as long"), "{}", named(Some(0)));
    let without = compared("1s1n1l4c1t", CONSTANT, None).unwrap();
    assert!(!without.conditions.iter().any(|condition| condition.contains("busy sibling")));
}

#[test]
fn a_slowdown_that_no_machine_can_have_is_refused_before_anything_runs() {
    assert!(
        compared("1s1n1l2c2t", CONSTANT, Some(1001)).unwrap_err().contains("1001 is not a whole number of percent")
    );
}

#[test]
fn trials_in_lockstep_are_named_and_drawn_times_end_it() {
    let constant = compared("1s1n1l4c1t", CONSTANT, None).unwrap();
    assert_eq!(constant.lockstep, ["eevdf", "rr"], "{:?}", constant.schedulers[0].measures["elapsed_ns"].points);
    assert!(constant.conditions.iter().any(|condition| condition.contains("3 trials of eevdf, rr are in lockstep")));
    let drawn = compared("1s1n1l4c1t", DRAWN, None).unwrap();
    let says = drawn.conditions.iter().any(|condition| condition.contains("lockstep"));
    assert!(drawn.lockstep.is_empty() && !says, "{:?}", drawn.conditions);
}

#[test]
fn a_verdict_names_the_tasks_for_which_memory_has_constant_speed() {
    let memory = |tasks: &str, profiles: &str| {
        let workload = format!(r#"{{ "tasks": {{ {tasks} }}, "warmcore": {{ "tasks": {{ {profiles} }} }} }}"#);
        let document = compared("1s1n1l4c1t", &workload, None).unwrap();
        document.conditions.into_iter().find(|condition| condition.contains("memory")).unwrap()
    };
    let task = |name| format!(r#""{name}": {{ "loop": 1, "run": 300 }}"#);
    let tasks: Vec<String> = ["a", "b", "c", "d", "e"].map(task).into();
    let of = |name: &str| format!(r#""{name}": {{ "profile": "nas-mg" }}"#);
    let two = tasks[..2].join(", ");
    assert_eq!(memory(&two, &[of("a"), of("b")].join(", ")), "analytic memory, with the profile nas-mg");
    let expected = "analytic memory, with the profile nas-mg; constant speed for tasks without one: b";
    assert_eq!(memory(&two, &of("a")), expected);
    let expected = "analytic memory, with the profile nas-mg; constant speed for tasks without one: b, c, d and 1 more";
    assert_eq!(memory(&tasks.join(", "), &of("a")), expected);
    assert!(memory(&two, "").starts_with("memory has constant speed: "), "nobody asked for another model");
}

/// `docs/models/cache-aware.md`: three threads that only run stay on the three LLCs where fork put them; a fourth makes a pair.
#[test]
fn a_verdict_says_that_an_llc_was_chosen_and_nobody_could_be_pulled_there() {
    let said = |threads: u32, scheduler| {
        let workload = format!(r#"{{ "tasks": {{ "a": {{ "instance": {threads}, "loop": 1, "run": 500000 }} }} }}"#);
        let document = compared_under(["eevdf", scheduler], "1s1n3l4c1t", &workload, None).unwrap();
        document.conditions.into_iter().find(|condition| condition.contains("no thread could be pulled there"))
    };
    let apart = said(3, "cache-aware").expect("it says so");
    for part in ["cache-aware chose a preferred LLC", "in 3 of 3 trials", "docs/models/cache-aware.md"] {
        assert!(apart.contains(part), "{apart}");
    }
    assert_eq!(said(4, "cache-aware"), None, "the pair is balanced from, and the others follow");
    assert_eq!(said(3, "cache-aware:enabled=0"), None, "nothing is chosen");
    let extended = said(3, "topology-aware").expect("balancing is the same there");
    assert!(extended.contains("topology-aware chose a preferred LLC"), "{extended}");
    // Where masks keep the threads apart, balancing is not why.
    let bound: Vec<String> =
        (0..3).map(|llc| format!(r#""a{llc}": {{ "loop": 1, "run": 500000, "cpus": [{}] }}"#, 4 * llc)).collect();
    let bound = format!(r#"{{ "tasks": {{ {} }} }}"#, bound.join(", "));
    let conditions = compared_under(["eevdf", "cache-aware"], "1s1n3l4c1t", &bound, None).unwrap().conditions;
    let apart = ["could be pulled there", "outside of the LLC"];
    let is_told = |condition: &String| apart.iter().any(|words| condition.contains(words));
    assert!(!conditions.iter().any(is_told), "{conditions:?}");
}

/// Eight threads that run are more than 80 % of four cores.
#[test]
fn a_verdict_says_that_a_process_was_refused_and_which_tunable_decides() {
    let said = |scheduler| {
        let workload = r#"{ "tasks": { "a": { "instance": 8, "loop": 1, "run": 300000 } } }"#;
        let document = compared_under(["eevdf", scheduler], "1s1n2l4c1t", workload, None).unwrap();
        document.conditions.into_iter().find(|condition| condition.contains("refused to gather a process"))
    };
    let told = said("cache-aware").expect("it says so");
    for part in ["cache-aware refused", "in 3 of 3 trials", "more of its threads ran than aggr_tolerance allows"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(said("cache-aware:aggr_tolerance=100"), None, "there is no limit");
}

/// Twelve of 24 threads have to come from the other socket, and few do in the time of the run.
#[test]
fn a_verdict_says_that_a_process_was_not_gathered_when_the_run_ended() {
    let said = |machine: &str, workload: &str| {
        let named = Named { source: machine.into(), value: warmcore_topology::resolve(machine).unwrap() };
        let value = warmcore_workload::from_generator(workload).unwrap();
        let built = Experiment::builder(named, Named { source: workload.into(), value })
            .schedulers(["eevdf", "cache-aware"].map(|text| SchedulerSpec::parse(text).unwrap()).to_vec())
            .seeds(trial_seeds(1, 2))
            .build()
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let finished = runner::run(&built.experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
        let of_eevdf = &finished.trials[0];
        assert!(of_eevdf.iter().all(|trial| trial.gathering.is_none()), "it gathers nobody");
        let document = verdict::conclude(&built.experiment, &built.experiment.record(), &finished.trials).unwrap();
        let outside = "of their time outside of the LLC that their process preferred";
        document.conditions.into_iter().find(|condition| condition.contains(outside))
    };
    let told = said("gnr72", "verilator:-t24,-C300").expect("it says so");
    assert!(told.starts_with("in 2 of 2 trials of cache-aware threads ran "), "{told}");
    assert_eq!(said("2s1n1l8c1t", "verilator:-t5,-C500"), None, "all have come");
}

/// Two fast cores of two threads and two slow ones of one, as in hybrid processors of Intel.
#[test]
fn a_verdict_says_that_linux_has_priorities_of_fast_cpus_where_cores_have_several_threads() {
    let said = |scheduler: &str, cores: &str| {
        let text = format!(
            "[topology]\nnodes = [{{ id = 0, cpus = \"0-5\" }}]\nllcs = [\"0-5\"]\ncores = [{cores}]\n\
             capacities = [{{ cpus = \"4-5\", capacity = 600 }}]\n"
        );
        let machine = Named { source: "hybrid".into(), value: warmcore_topology::from_toml(&text).unwrap() };
        let value = from_rtapp("test", CONSTANT, &Options::default()).unwrap();
        let built = Experiment::builder(machine, Named { source: "test".into(), value })
            .schedulers([scheduler, "rr"].map(|text| SchedulerSpec::parse(text).unwrap()).to_vec())
            .seeds(trial_seeds(1, 2))
            .metric(Some("elapsed_ns".into()))
            .build()
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let finished = runner::run(&built.experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
        let document = verdict::conclude(&built.experiment, &built.experiment.record(), &finished.trials).unwrap();
        document.conditions.into_iter().find(|condition| condition.contains("SD_ASYM_PACKING"))
    };
    const THREADS: &str = r#""0-1", "2-3", "4", "5""#;
    let told = said("eevdf", THREADS).expect("it says so");
    assert!(told.starts_with("tasks under eevdf may stay on slow CPUs"), "{told}");
    assert_eq!(said("ule", THREADS), None, "it is not of Linux");
    let stated = format!("{THREADS}]\npriorities = [{{ cpus = \"0-3\", priority = 67 }}");
    assert_eq!(said("eevdf", &stated), None, "the machine states them");
    assert_eq!(said("eevdf", r#""0", "1", "2", "3", "4", "5""#), None, "without threads there are capacities");
}

#[test]
fn a_latency_that_the_workload_records_is_told_from_the_kernels() {
    let conditions = |workload: &str| {
        let named = Named { source: "1s1n1l4c1t".into(), value: warmcore_topology::resolve("1s1n1l4c1t").unwrap() };
        let value = warmcore_workload::from_generator(workload).unwrap();
        let built = Experiment::builder(named, Named { source: workload.into(), value })
            .schedulers(["eevdf", "rr"].map(|text| SchedulerSpec::parse(text).unwrap()).to_vec())
            .seeds(trial_seeds(1, 2))
            .build()
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let finished = runner::run(&built.experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
        verdict::conclude(&built.experiment, &built.experiment.record(), &finished.trials).unwrap().conditions
    };
    let told =
        |workload| conditions(workload).iter().any(|condition| condition.contains("the workload's threads record"));
    assert!(told("schbench:-m1,-t2,-r1,-L") && !told("spin:-n2,-d10ms"));
}

/// Requests that come at drawn times, from a task of this policy.
fn requests(policy: &str) -> String {
    format!(
        r#"{{ "tasks": {{ "pacer": {{ "instance": 0 }}, "server": {{ "instance": 0 }} }}, "warmcore": {{ "tasks": {{
            "pacer": {{ "instances": 1, {policy} "program": [ {{ "start_clock": 0 }}, {{ "loop": 5, "steps": [
                {{ "sleep_ns": {{ "exponential": {{ "mean_ns": 500000 }} }}, "clock": 0 }}, {{ "sem_post": "queue" }} ] }} ] }},
            "server": {{ "instances": 1, "program": [ {{ "loop": 5, "steps": [ {{ "sem_wait": "queue" }}, {{ "run_ns": 100000 }} ] }} ] }}
        }} }} }}"#
    )
}

#[test]
fn a_verdict_says_where_requests_are_late_because_who_adds_them_waits_for_a_cpu() {
    let said = |policy| {
        let document = compared("1s1n1l2c1t", &requests(policy), None).unwrap();
        document.conditions.iter().any(|condition| condition.starts_with("pacer adds its requests when it has a CPU"))
    };
    assert!(said("") && !said(r#""policy": { "SCHED_FIFO": 1 },"#));
}

/// FreeBSD has other real-time classes, and what runs above its model are Linux's.
#[test]
fn a_verdict_says_whose_classes_real_time_tasks_have_under_a_scheduler_of_another_kernel() {
    let said = |scheduler: &str, policy: &str| {
        let workload =
            format!(r#"{{ "tasks": {{ "a": {{ "instance": 2, "loop": 2, "run": 300, {policy} "sleep": 100 }} }} }}"#);
        let document = compared_under(["eevdf", scheduler], "1s1n1l2c1t", &workload, None).unwrap();
        document.conditions.into_iter().find(|condition| condition.contains("docs/models/realtime.md"))
    };
    let fifo = r#""policy": "SCHED_FIFO", "priority": 5,"#;
    let told = said("ule", fifo).expect("it says so");
    assert!(told.starts_with("real-time and deadline tasks run above ule in the classes of Linux 7.2"), "{told}");
    assert_eq!(said("cache-aware", fifo), None, "its kernel has those classes");
    assert_eq!(said("ule", ""), None, "there are no such tasks");
}

const LIMITED: &str = r#"{ "tasks": { "a": { "instance": 0 } }, "warmcore": { "notes": ["its source is a guess"],
    "groups": [ { "name": "/g", "cpu_max": "20000" } ], "tasks": { "a": { "instances": 2, "taskgroup": "/g",
    "program": [ { "run_ns": 30000000 } ] } } } }"#;

#[test]
fn a_verdict_says_which_scheduler_keeps_no_quota_and_what_the_workload_says_of_itself() {
    let compared = |schedulers| compared_under(schedulers, "1s1n1l2c1t", LIMITED, None).unwrap();
    let said = |schedulers| compared(schedulers).conditions;
    let unkept = "of ule, it knows no task groups, so tasks share CPUs as if there were none, and no quota holds, such as that of /g";
    let both = said(["eevdf", "ule"]);
    assert!(both.iter().any(|condition| condition == unkept), "{both:?}");
    assert!(both.iter().any(|condition| condition == "its source is a guess"), "{both:?}");
    let sentence = compared(["eevdf", "ule"]).verdict.sentence;
    assert!(!sentence.contains("ule is best") && sentence.contains("ule"), "{sentence}");
    let kept = said(["eevdf", "cfs"]);
    assert!(!kept.iter().any(|condition| condition.contains("quota")), "{kept:?}");
}

#[test]
fn columns_with_and_without_frequencies_are_told_apart() {
    let told = |schedulers: [&str; 2]| {
        let document = compared_under(schedulers, "hikey960", CONSTANT, None).unwrap();
        document.conditions.into_iter().find(|condition| condition.contains("governor=performance has both"))
    };
    let said = told(["eevdf", "eevdf:governor=schedutil"]).expect("it says so");
    let expected = "no frequencies and idle states are simulated under eevdf, whose CPUs run at the reference frequency, as they are under \
                    eevdf:governor=schedutil";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(told(["eevdf:governor=performance", "eevdf:governor=schedutil"]), None);
    assert_eq!(told(["eevdf", "cfs"]), None);
}

/// In a fixed time a slow CPU does less, and needs less energy for it.
#[test]
fn energy_of_another_amount_of_work_is_told_with_that_amount() {
    let told = |workload: &str| {
        let value = warmcore_workload::from_generator(workload).unwrap();
        let machine = Named { source: "hikey960".into(), value: warmcore_topology::resolve("hikey960").unwrap() };
        let schedulers = ["eevdf:governor=performance", "eevdf:governor=schedutil"];
        let built = Experiment::builder(machine, Named { source: workload.into(), value })
            .schedulers(schedulers.map(|text| SchedulerSpec::parse(text).unwrap()).to_vec())
            .seeds(trial_seeds(1, 3))
            .metric(Some("energy_j".into()))
            .build()
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let finished = runner::run(&built.experiment, None, &Conduct { jobs: 1, stop, progress: &|_| {} }).unwrap();
        let document = verdict::conclude(&built.experiment, &built.experiment.record(), &finished.trials).unwrap();
        document.conditions.into_iter().find(|condition| condition.contains("its energy per work is"))
    };
    let said = told("periodic:-n4,-r2ms,-s8ms,-d1s").expect("it says so");
    assert!(
        said.starts_with("eevdf:governor=schedutil does 0.7")
            && said.contains("the work of eevdf:governor=performance")
    );
    assert_eq!(told("forkjoin:-n2,-i3,-w10ms"), None, "it is the same work");
}

#[test]
fn a_verdict_says_which_scheduler_knows_no_nice_values() {
    let said = |workload: &str| {
        let conditions = compared_under(["eevdf", "fifo"], "1s1n1l2c1t", workload, None).unwrap().conditions;
        let unknown = "of fifo, it knows neither nice values nor SCHED_IDLE, so all tasks count the same";
        conditions.iter().any(|condition| condition == unknown)
    };
    let tasks = |how: &str| {
        format!(
            r#"{{ "tasks": {{ "a": {{ "instance": 4, "loop": 1, "run": 300 {how} }}, "b": {{ "loop": 1, "run": 300 }} }} }}"#
        )
    };
    assert!(said(&tasks(r#", "priority": 5"#)) && said(&tasks(r#", "policy": "SCHED_IDLE""#)));
    assert!(!said(&tasks("")));
}

/// A sweep of it would be flat without a word.
#[test]
fn a_setting_of_the_governor_is_named_where_there_is_none() {
    let told = |scheduler| {
        let document = compared_under(["eevdf", scheduler], "adl12", CONSTANT, None).unwrap();
        document
            .conditions
            .into_iter()
            .filter(|condition| condition.contains("rate_limit_us decides"))
            .collect::<Vec<_>>()
    };
    let expected = "of eevdf:rate_limit_us=500, rate_limit_us decides nothing without governor=schedutil";
    assert_eq!(told("eevdf:rate_limit_us=500"), [expected]);
    assert_eq!(told("eevdf:governor=schedutil,rate_limit_us=500"), Vec::<String>::new());
}
