//! Text of tracefs, `trace-cmd report` and `perf script`.

use std::process::Command;

use warmcore_capture::ftrace_text::read;
use warmcore_capture::{CaptureError, Context, Loss, What};
use warmcore_trace::PrevState;

use crate::common::sample;
use crate::trace_dat::{contents, written};
use warmcore_testing::skip;

/// What tracefs prints, with the column of processes.
pub const TRACE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 6/16   #P:4
#
#           TASK-PID       TGID    CPU#  |||||  TIMESTAMP  FUNCTION
#              | |           |       |   |||||     |         |
          worker-50      (     40) [000] d..2. 1.000010: sched_waking: comm=my helper pid=51 prio=120 target_cpu=001
CPU:1 [LOST 4 EVENTS]
          <idle>-0       (-------) [001] dNh3. 1.000012: sched_waking: comm=worker pid=50 prio=120 target_cpu=000
          <idle>-0       (-------) [001] d..2. 1.000014: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my helper next_pid=51 next_prio=120
          worker-50      (     40) [000] ..... 1.000020: task_newtask: pid=52 comm=worker clone_flags=3d0f00 oom_score_adj=0
          worker-50      (     40) [000] ..... 1.000021: cpu_idle: state=1 cpu_id=0
          worker-50      (     40) [000] d..2. 1.000022: sched_switch: prev_comm=worker prev_pid=50 prev_prio=120 prev_state=X ==> next_comm=swapper/0 next_pid=0 next_prio=120
";

#[test]
fn columns_become_records_threads_processes_and_losses() {
    let recording = read(TRACE).unwrap();
    assert_eq!((recording.source.as_str(), recording.cpus), ("ftrace text", 4));
    let records: Vec<_> =
        recording.records.iter().map(|record| (record.time_ns, record.cpu, record.context, record.what)).collect();
    let switch = |prev, state, next| What::Switch { prev, state, next, uninterruptible: false };
    assert_eq!(
        records,
        [
            (1_000_010_000, 0, Context::Thread, What::Waking { thread: 51, target_cpu: 1 }),
            (1_000_012_000, 1, Context::HardInterrupt, What::Waking { thread: 50, target_cpu: 0 }),
            (1_000_014_000, 1, Context::Thread, switch(0, PrevState::Runnable, 51)),
            (1_000_022_000, 0, Context::Thread, switch(50, PrevState::Dead, 0)),
        ]
    );
    assert_eq!(recording.threads[&51].name, "my helper");
    assert_eq!(recording.threads[&52].process, Some(40), "a new thread is of its creator's process");
    let overwritten = Loss { cpu: None, before_ns: None, events: Some(6) };
    assert_eq!(recording.lost, [Loss { cpu: Some(1), before_ns: Some(1_000_012_000), events: Some(4) }, overwritten]);
    assert_eq!(recording.notes, [""; 0]);
}

#[test]
fn without_flags_a_note_says_that_interrupts_are_not_told_apart() {
    let text = "a 1 [000] 1.000000001: sched:sched_waking: comm=b pid=2 prio=120 target_cpu=000\n";
    let recording = read(text).unwrap();
    assert_eq!(recording.span_ns().0, 1_000_000_001, "all digits count");
    assert!(recording.notes[0].contains("interrupts"), "{:?}", recording.notes);
}

#[test]
fn numbers_of_states_are_those_of_the_kernel_that_marked_preemption_so() {
    let line = |(index, state): (usize, u32)| {
        format!(
            "a-1 [000] 1.{index:06}: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state={state} next_comm=b next_pid=2 next_prio=120\n"
        )
    };
    let states = |numbers: [u32; 5]| {
        let text: String = numbers.into_iter().enumerate().map(line).collect();
        let recording = read(&text).unwrap();
        let state = |what: What| if let What::Switch { state, .. } = what { state } else { panic!("{what:?}") };
        recording.records.iter().map(|record| state(record.what)).collect::<Vec<_>>()
    };
    let (runnable, sleeping, dead) = (PrevState::Runnable, PrevState::Sleeping, PrevState::Dead);
    assert_eq!(states([0, 1, 256, 64, 16]), [runnable, sleeping, runnable, sleeping, dead]);
    assert_eq!(states([0, 1, 4096, 64, 16]), [runnable, sleeping, runnable, dead, dead]);
}

#[test]
fn a_line_that_cannot_be_read_is_named_and_one_that_is_cut_off_is_a_loss() {
    let broken = TRACE.replace("orig", "").replace("[001] d..2. 1.000014:", "[001] d..2. soon:");
    let error = read(&broken).unwrap_err();
    assert!(matches!(error, CaptureError::Damaged { .. }));
    assert!(error.to_string().contains("line 10"), "{error}");
    let cut = &TRACE[..TRACE.len() - 20];
    let recording = read(cut).unwrap();
    assert_eq!(recording.records.len(), 3);
    assert!(recording.events_lost().1);
    assert!(recording.notes.iter().any(|note| note.contains("line 13")), "{:?}", recording.notes);
}

#[test]
fn lines_that_are_no_events_are_counted() {
    let recording = read(&format!("{TRACE}=> do_syscall_64\n=> entry\n")).unwrap();
    assert!(recording.notes[0].contains("2 lines") && recording.notes[0].contains("line 14"), "{:?}", recording.notes);
    let nothing = read("# tracer: nop\n").unwrap_err().to_string();
    assert!(nothing.contains("trace-cmd record"), "{nothing}");
}

#[test]
fn trace_cmds_report_says_what_its_file_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.dat");
    let file = written(&contents());
    std::fs::write(&path, &file).unwrap();
    let whole = warmcore_capture::trace_dat::read(&file).unwrap();
    for arguments in [&["report", "-t"][..], &["report", "-t", "-R"]] {
        let output = match Command::new("trace-cmd").args(arguments).arg("-i").arg(&path).output() {
            Ok(output) => output,
            Err(error) => skip!("no trace-cmd here ({error}): apt-get install trace-cmd"),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let recording = read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let whats = |records: &[warmcore_capture::Record]| {
            records.iter().map(|record| (record.time_ns, record.cpu, record.by, record.what)).collect::<Vec<_>>()
        };
        assert_eq!(whats(&recording.records), whats(&whole.records), "{text}");
        assert_eq!(recording.lost, whole.lost[..1]);
    }
}

#[test]
fn lisas_text_has_as_many_events_as_it_has_lines_of_them() {
    let file = match sample("lisa/trace.txt") {
        Ok(file) => file,
        Err(lacking) => skip!("{lacking}"),
    };
    let text = String::from_utf8(file).unwrap();
    let lines = |name: &str| text.lines().filter(|line| line.contains(name)).count();
    let recording = read(&text).unwrap();
    let switches = recording.records.iter().filter(|record| matches!(record.what, What::Switch { .. })).count();
    assert_eq!(switches, lines(" sched_switch: "));
    assert_eq!(recording.records.len() - switches, lines(" sched_wakeup: "));
    assert_eq!((recording.cpus, recording.has_wakers()), (6, false));
}
