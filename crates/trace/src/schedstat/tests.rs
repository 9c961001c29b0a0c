//! Texts of kernels and of `perf`, and counters against events by hand.

use super::*;
use crate::PrevState;

/// A domain's counters are 1 to 45.
fn in_version_17() -> String {
    let counters = |count: u64| (1..=count).map(|number| format!(" {number}")).collect::<String>();
    format!(
        "version 17\ntimestamp 4295\ncpu0 1 0 3 4 5 6 7 8 9\ndomain0 MC 0,0000000f{}\ncpu33 0 0 0 0 0 0 0 0 0\ndomain0 MC 3,00000000{}\n",
        counters(45),
        counters(45)
    )
}

#[test]
fn what_is_written_is_what_was_read() {
    let read = Schedstat::parse(&in_version_17()).unwrap();
    assert_eq!(read.to_string(), in_version_17());
    assert_eq!((read.timestamp, read.cpus[1].cpu), (4295, 33));
    let domain = &read.cpus[0].domains[0];
    let value = |name: &str| domain.values[domain_place(name).unwrap()];
    assert_eq!(
        (value("busy_lb_count"), value("busy_lb_nobusyg"), value("idle_lb_count")),
        (Some(1), Some(11), Some(12))
    );
    assert_eq!(
        (value("newidle_lb_gained"), value("alb_pushed"), value("ttwu_wake_remote")),
        (Some(30), Some(36), Some(43))
    );
    assert_eq!(read.by_level()[0].1[0], Some(2), "two CPUs with one each");
    assert_eq!(read.totals(), [1, 0, 3, 4, 5, 6, 7, 8, 9]);
}

/// Of a guest with two CPUs and Linux 7.2.13 at the beginning and at the end of a run, `kernel.sched_schedstats` 0.
#[test]
fn a_guests_text_is_written_as_its_kernel_wrote_it_and_its_difference_is_the_runs() {
    let zeros = " 0".repeat(DOMAIN_COUNTERS);
    let text = |timestamp: u64, [a, b]: [&str; 2]| {
        format!(
            "version 17\ntimestamp {timestamp}\ncpu0 0 0 0 0 0 0 {a}\ndomain0 MC 3{zeros}\ncpu1 0 0 0 0 0 0 {b}\ndomain0 MC 3{zeros}\n"
        )
    };
    let before = text(4_294_893_814, ["4776728907 2895064943 1354", "3643244297 5111756327 1125"]);
    let after = text(4_294_894_377, ["6777487189 5324012110 1390", "3661685048 5112010387 1196"]);
    let [before, after] = [before, after].map(|text| {
        let read = Schedstat::parse(&text).unwrap();
        assert_eq!(read.to_string(), text);
        read
    });
    let run = after.since(&before);
    // 563 ticks of 4 ms are 2.252 s; CPU 0 was busy for 2.001 s of them.
    assert_eq!((run.timestamp, run.cpus[0].values[6]), (563, 2_000_758_282));
    assert_eq!(run.totals(), [0, 0, 0, 0, 0, 0, 2_019_199_033, 2_429_201_227, 107]);
}

#[test]
fn older_versions_have_one_counter_of_imbalances_and_no_names() {
    let domain = (1..=36).map(|number| format!(" {number}")).collect::<String>();
    let text = |version| format!("version {version}\ntimestamp 1\ncpu0 0 0 0 0 0 0 0 0 0\ndomain0 3{domain}\n");
    let read = |version| Schedstat::parse(&text(version)).unwrap().by_level().remove(0);
    let value = |version, name: &str| read(version).1[domain_place(name).unwrap()];
    assert_eq!(read(16).0, "domain0");
    assert_eq!((value(16, "busy_lb_count"), value(16, "idle_lb_count")), (Some(1), Some(9)));
    assert_eq!((value(15, "busy_lb_count"), value(15, "idle_lb_count")), (Some(9), Some(1)));
    assert_eq!((value(16, "busy_lb_imbalance_load"), value(16, "busy_lb_gained")), (None, Some(5)));
    assert_eq!((value(16, "newidle_lb_nobusyg"), value(16, "alb_count")), (Some(24), Some(25)));
}

#[test]
fn what_perf_prints_is_read_without_its_sums() {
    let text = "Columns description\n\
         CPU: <ALL CPUS SUMMARY>\n    sched_count : 99\n\
         CPU: 0\n    DESC  COUNT\n    sched_count                    :   7  ( 12.00% )\n\
         CPU: 0, DOMAIN SMT CPUS 0,64\n    busy_lb_count : 136 $ 17.08 $\n    *busy_lb_success_count : 5\n\
         CPU: 64\n    sched_count : 2\n";
    let read = Schedstat::parse(text).unwrap();
    assert_eq!((read.cpus.len(), read.totals()[2]), (2, 9));
    let domain = &read.cpus[0].domains[0];
    assert_eq!((domain.name.as_str(), domain.values[0], domain.values[1]), ("SMT", Some(136), None));
    assert!(domain.span.contains(CpuId(64)) && domain.span.len() == 2);
}

#[test]
fn a_difference_is_of_domains_that_are_in_both() {
    let earlier = Schedstat::parse(&in_version_17()).unwrap();
    let later =
        in_version_17().replace("4295", "5295").replace("domain0 MC 0,0000000f 1 2", "domain0 MC 0,0000000f 11 22");
    let since = Schedstat::parse(&later).unwrap().since(&earlier);
    assert_eq!((since.timestamp, since.totals()), (1000, [0; 9]));
    assert_eq!(since.cpus[0].domains[0].values[..3], [Some(10), Some(20), Some(0)]);
    let smaller = in_version_17().replace("0000000f", "00000007");
    let rebuilt = Schedstat::parse(&smaller).unwrap().since(&earlier);
    assert_eq!(rebuilt.cpus[0].domains[0].values[0], Some(1), "built anew, it began at 0");
}

#[test]
fn what_is_none_of_these_is_refused_with_the_line() {
    assert_eq!(Schedstat::parse("version 14\n"), Err(SchedstatError::Version(14)));
    assert_eq!(Schedstat::parse("hello\n"), Err(SchedstatError::Neither));
    assert_eq!(Schedstat::parse(""), Err(SchedstatError::Neither));
    for (text, line) in [
        ("version 17\ncpu0 1 2\n", 2),
        ("version 17\ndomain0 MC 3 1\n", 2),
        ("version 17\ncpu0 0 0 0 0 0 0 0 0 0\ndomain0 MC 3 1 2\n", 3),
        ("version 17\ncpu0 0 0 0 0 0 0 0 0 0\ndomain0 MC xyz 1\n", 3),
        ("version 17\nother\n", 2),
        ("version 17\ntimestamp 1\n", 1),
        ("version 17\ncpu4294967295 0 0 0 0 0 0 0 0 0\n", 2),
        ("version 17\ncpu1 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0\n", 3),
        ("version 17\ncpu1 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0\n", 3),
        ("CPU: 0\nCPU: 65536\n", 2),
        ("CPU: 0\nCPU: 0, DOMAIN MC CPUS 0-65536\n", 2),
        ("CPU: 0, DOMAIN M C CPUS 0\n", 1),
    ] {
        assert!(matches!(Schedstat::parse(text), Err(SchedstatError::Line { line: at, .. }) if at == line), "{text}");
    }
}

#[test]
fn no_cpu_has_more_domains_than_a_kernel_builds_and_no_mask_more_cpus_than_a_machine() {
    let domain = format!("domain0 MC 1{}\n", " 0".repeat(DOMAIN_COUNTERS));
    let text = |domains: usize| format!("version 17\ncpu0 0 0 0 0 0 0 0 0 0\n{}", domain.repeat(domains));
    assert!(Schedstat::parse(&text(MOST_DOMAINS)).is_ok());
    assert!(Schedstat::parse(&text(MOST_DOMAINS + 1)).is_err());
    let of_words = |words: usize| parse_mask(&format!("1{}", ",0".repeat(words - 1)));
    assert_eq!(of_words(MOST_WORDS).unwrap().iter().next(), Some(CpuId(MAX_CPU_NUMBER - 31)));
    assert_eq!(of_words(MOST_WORDS + 1), None);
}

/// By hand: task 0 runs from 10 to 40, wakes task 1 on the other CPU, where it waits from 20 to 25 and runs to the end at 50.
#[test]
fn the_counters_of_cpus_follow_from_events() {
    let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
    let (a, b, idle) = (TaskId(0), TaskId(1), TaskId::IDLE);
    let switch = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
    let events = [
        (5, 0, EventKind::Wakeup { task: a, reason: None }),
        (10, 0, switch(idle, PrevState::Idle, a)),
        (20, 0, EventKind::Waking { task: b, target_cpu: CpuId(1), waker: a }),
        (20, 1, EventKind::Wakeup { task: b, reason: None }),
        (25, 1, switch(idle, PrevState::Idle, b)),
        (40, 0, switch(a, PrevState::Sleeping, idle)),
    ];
    let mut lines = CpuLines::new(&machine);
    let event = |(time_ns, cpu, kind)| Event { time_ns, cpu: CpuId(cpu), kind };
    lines.events(&events.map(event)).unwrap();
    let domain =
        DomainCounters { name: "MC".into(), span: machine.all_cpus().clone(), values: [Some(0); DOMAIN_COUNTERS] };
    let domains = (0..2).map(|cpu| CpuCounters { cpu, domains: vec![domain.clone()], ..CpuCounters::default() });
    let read = lines.finish(&machine, 50, &domains.collect::<Vec<_>>());
    assert_eq!(read.cpus[0].values, [0, 0, 2, 1, 1, 0, 30, 5, 1]);
    assert_eq!(read.cpus[1].values, [0, 0, 1, 0, 0, 0, 25, 5, 1]);
    let remote = domain_place("ttwu_wake_remote").unwrap();
    assert_eq!([0, 1].map(|cpu: usize| read.cpus[cpu].domains[0].values[remote]), [Some(1), Some(0)]);
}
