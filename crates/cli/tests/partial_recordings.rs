//! Recordings that begin late or lack events, and what some have besides the scheduler's: text of tracefs, by hand.
#![allow(missing_docs, reason = "tests")]

use crate::common::{Ran, Scratch};

/// A switch at a time in milliseconds.
fn switch(ms: u32, cpu: u32, (prev, next): (u32, u32), state: char) -> String {
    let (seconds, micros) = (ms / 1000, ms % 1000 * 1000);
    format!(
        "t-{prev} [{cpu:03}] d..2. {seconds}.{micros:06}: sched_switch: prev_comm=t prev_pid={prev} prev_prio=120 prev_state={state} ==> \
         next_comm=t next_pid={next} next_prio=120\n"
    )
}

/// Cells of a thread's row in the table of `explain`.
fn cells(ran: &Ran, thread: &str) -> Vec<String> {
    let row = ran.out.lines().find(|line| line.starts_with(thread)).unwrap_or_else(|| panic!("{}", ran.out));
    row.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
}

/// CPU 1 has ten seconds of records, and of CPU 0 all was written over but the last half second.
#[test]
fn a_thread_has_no_time_from_before_the_first_record_of_a_cpu_whose_buffer_was_written_over() {
    let scratch = Scratch::new();
    let mut text = String::from("# tracer: nop\n#\n");
    for half in 0..20 {
        let pair = if half % 2 == 0 { (201, 202) } else { (202, 201) };
        text.push_str(&switch(100_000 + 500 * half, 1, pair, 'R'));
    }
    text.push_str("##### CPU 0 buffer started ####\n");
    for (ms, pair) in [(109_500, (101, 102)), (109_800, (102, 101)), (109_900, (101, 102))] {
        text.push_str(&switch(ms, 0, pair, 'R'));
    }
    scratch.write("late.txt", &text);
    let ran = scratch.run("explain late.txt").exits_with(0);
    assert_eq!((cells(&ran, "t-101")[2].as_str(), cells(&ran, "t-102")[2].as_str()), ("100 ms", "300 ms"));
    ran.complains("the first records of CPU 0 are missing, up to 9.500 s");
}

/// CPU 0: t-101 comes at 1 s, t-102 leaves at 2 s, and t-101 has it for 200 ms more. CPU 1 has all of its records.
#[test]
fn what_a_cpu_did_in_a_gap_of_its_records_is_the_time_of_no_thread() {
    let scratch = Scratch::new();
    let marked = "records are missing. For 1.000 s";
    let lost = [("CPU:0 [LOST 40 EVENTS]\n", marked), ("##### CPU 0 buffer started ####\n", marked)];
    for (lost, told) in lost.into_iter().chain([("", "1 switch between threads is missing")]) {
        let mut text = switch(1_000, 0, (0, 101), 'R') + &switch(1_100, 1, (0, 103), 'R') + lost;
        let behind = [(2_000, 0, (102, 101)), (2_200, 0, (101, 0)), (2_200, 1, (103, 0))];
        behind.iter().for_each(|(ms, cpu, threads)| text.push_str(&switch(*ms, *cpu, *threads, 'S')));
        scratch.write("gap.txt", &text);
        let ran = scratch.run("explain gap.txt").exits_with(0);
        assert_eq!((cells(&ran, "t-101")[2].as_str(), cells(&ran, "t-103")[2].as_str()), ("200 ms", "1.1 s"), "{lost}");
        ran.complains(told);
    }
}

/// Of CPU 0 everything behind 1.1 s is lost, of CPU 2 everything; the recording goes from 1 s to 2.2 s.
#[test]
fn what_a_cpu_did_after_its_last_record_is_the_time_of_no_thread_where_more_was_lost() {
    let scratch = Scratch::new();
    let records = [(1_000, 0, (0, 101)), (1_100, 0, (101, 102)), (1_200, 1, (0, 103)), (2_200, 1, (103, 0))];
    let whole: String = records.map(|(ms, cpu, threads)| switch(ms, cpu, threads, 'S')).concat();
    scratch.write("whole.txt", &whole);
    let ran = scratch.run("explain whole.txt").exits_with(0);
    assert_eq!(["t-101", "t-102", "t-103"].map(|thread| cells(&ran, thread)[2].clone()), ["100 ms", "1.1 s", "1 s"]);
    scratch.write("end.txt", &(whole + "CPU:0 [LOST 40 EVENTS]\nCPU:2 [LOST EVENTS]\n"));
    let ran = scratch.run("explain end.txt").exits_with(0);
    assert_eq!(["t-101", "t-103"].map(|thread| cells(&ran, thread)[2].clone()), ["100 ms", "1 s"]);
    assert!(!ran.out.contains("t-102"), "it is not known to have run: {}", ran.out);
    ran.complains("records are missing. For 2.300 s");
}

#[test]
fn waits_after_wakeups_that_were_not_recorded_are_not_known_and_not_zero() {
    let scratch = Scratch::new();
    let rounds = (0..10).map(|round| switch(1_000 + round, 0, if round % 2 == 0 { (7, 8) } else { (8, 7) }, 'S'));
    scratch.write("switches.txt", &rounds.collect::<String>());
    let ran = scratch.run("explain switches.txt").exits_with(0);
    assert_eq!(cells(&ran, "t-7")[1..5], ["6", "4 ms", "-", "0 ns"]);
    ran.complains("the recording has no wakeups (sched_waking, sched_wakeup)");
}

#[test]
fn a_report_of_a_recording_has_its_threads_and_no_comparison_and_names_no_scheduler() {
    let scratch = Scratch::new();
    let switches = [(1_000, (7, 8)), (1_003, (8, 7)), (1_004, (7, 8))];
    scratch.write("app.txt", &switches.map(|(ms, pair)| switch(ms, 0, pair, 'S')).concat());
    let text = scratch.run("report app.txt --markdown -").exits_with(0).out;
    assert!(text.starts_with("# How does app run on 1s1n1l1c1t?\n\napp: "), "{text}");
    assert!(text.contains("| t-8 | 3 ms | 75 % |\n| t-7 | 1 ms | 25 % |\n"), "{text}");
    for word in ["eevdf", "baseline", "patch letter", "nothing to compare"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    scratch.run("report app.txt --html app.html").exits_with(0);
    let page = std::fs::read_to_string(scratch.path("app.html")).unwrap();
    assert!(page.contains("under the recorded kernel"), "whose scheduler it was, is not known");
    assert!(!page.contains("under eevdf") && !page.contains("base_slice_ns"), "nor with what settings");
}

#[test]
fn interrupts_that_were_recorded_are_overhead_and_a_counter_of_their_cpu() {
    let scratch = Scratch::new();
    let mut text = switch(1_000, 0, (7, 8), 'S');
    for (micros, event) in [
        (400, "irq_handler_entry: irq=24 name=virtio0-input.0"),
        (404, "irq_handler_exit: irq=24 ret=handled"),
        (404, "softirq_entry: vec=3 [action=NET_RX]"),
        (410, "softirq_exit: vec=3 [action=NET_RX]"),
    ] {
        text.push_str(&format!("t-8 [000] d.h2. 1.{micros:06}: {event}\n"));
    }
    text.push_str(&switch(1_001, 0, (8, 7), 'S'));
    scratch.write("interrupts.txt", &text);
    scratch.run("report interrupts.txt --events events.txt").exits_with(0);
    let events = std::fs::read_to_string(scratch.path("events.txt")).unwrap();
    let took = |ns: u64| [format!("overhead kind=interrupt duration_ns={ns}"), format!("value={ns} name=interrupt_ns")];
    for wanted in [took(4_000), took(6_000)].concat() {
        assert_eq!(events.matches(&wanted).count(), 1, "{wanted}");
    }
    // Bars of their own: thread 7 had nothing of the recording.
    scratch.run("report interrupts.txt --svg figures").exits_with(0);
    let drawn = std::fs::read_to_string(scratch.path("figures/timeline-cpus-0-the-recorded-kernel.csv")).unwrap();
    let stays: Vec<&str> = drawn.lines().skip(1).collect();
    assert_eq!(
        stays,
        [
            "0,0,0,0,others on cpu0,",
            "0,0,0,400000,t-8,",
            "0,0,400000,404000,interrupts on cpu0,",
            "0,0,404000,410000,interrupts on cpu0,",
            "0,0,410000,1000000,t-8,",
            "0,0,1000000,1000000,others on cpu0,",
        ]
    );
}
