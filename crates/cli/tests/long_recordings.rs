//! Long recordings: the memory that they take.

use std::fs;
use std::process::Stdio;

use warmcore_capture::trace_dat::{Contents, write};
use warmcore_capture::written::{HEADER_EVENT, HEADER_PAGE, Head, PageWriter, Value, descriptions};

use crate::common::{Scratch, alone};

/// Two threads on two CPUs that hand something to each other so many times: eight events each time.
fn handed(times: u64) -> Vec<u8> {
    let names = ["ping", "pong"];
    let mut cpus = [PageWriter::default(), PageWriter::default()];
    for turn in 0..times {
        for (one, other) in [(0, 1), (1, 0)] {
            let (by, woken) = (100 + one as i32, 100 + other as i64);
            // Work of 1 to 8 us before the other is woken, and a sleep.
            let mut now = 1_000_000 + 40_000 * turn + 20_000 * one as u64 + turn * turn % 7_919;
            let mut add = |cpu: usize, by: i32, event: &str, values: &[Value<'_>]| {
                now += 900;
                let head = Head { time_ns: now, by, hard_interrupt: false, soft_interrupt: false };
                cpus[cpu].add(head, event, values).unwrap();
            };
            let waking = [Value::Name(names[other]), Value::Number(woken), Value::Number(other as i64)];
            add(one, by, "sched_waking", &waking);
            let (idle, thread) =
                ([Value::Name("swapper"), Value::Number(0)], [Value::Name(names[one]), Value::Number(by.into())]);
            let woken = [Value::Name(names[other]), Value::Number(woken)];
            let switch = |from: [Value<'static>; 2], state: i64, to: [Value<'static>; 2]| {
                [from[0], from[1], Value::Number(state), to[0], to[1]]
            };
            add(one, by, "sched_wakeup", &waking);
            add(other, 0, "sched_switch", &switch(idle, 0, woken));
            add(one, by, "sched_switch", &switch(thread, 1, idle));
        }
    }
    let pages: Vec<Vec<u8>> = cpus.into_iter().map(PageWriter::finish).collect();
    let contents = Contents {
        header_page: HEADER_PAGE.into(),
        header_event: HEADER_EVENT.into(),
        events: descriptions(),
        clock: "mono".into(),
        processes: [(100, 100), (101, 101)].into(),
        lost: vec![0; pages.len()],
        pages,
        ..Contents::default()
    };
    let mut file = Vec::new();
    write(&mut file, &contents).unwrap();
    file
}

/// The most memory that the program had with these words, bytes.
fn most_memory(scratch: &Scratch, words: &str) -> u64 {
    let mut child = scratch.command(words).stderr(Stdio::null()).spawn().unwrap();
    let mut status = 0;
    // SAFETY: a structure of numbers, for which zeros are values.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the process is a child of this one that nobody has waited for, and both places are this function's.
    let waited = unsafe { libc::wait4(child.id().cast_signed(), &mut status, 0, &mut used) };
    assert_eq!((waited, status), (child.id().cast_signed(), 0), "{words}");
    let _ = child.try_wait();
    used.ru_maxrss as u64 * 1024
}

/// Records stay in the file. What grows is the replay, which the run directory has as text, what it is made of, and what the page draws: 325
/// bytes for an event in measurements when records, pages and the text's values were kept in memory, and less than half of that since
/// (`results/2026-11-28-2vcpu-record-memory/times.txt`).
#[test]
fn a_page_of_a_recording_takes_less_than_200_bytes_of_memory_for_an_event() {
    let scratch = Scratch::new();
    let most = |times: u64| {
        fs::write(scratch.path("long.dat"), handed(times)).unwrap();
        most_memory(&scratch, &format!("report long.dat --html {times}.html"))
    };
    let (short, long) = (5_000, 35_000);
    let events = 8 * (long - short);
    let (least, most) = (most(short), most(long));
    let for_each = most.saturating_sub(least) / events;
    assert!(for_each < 200, "{for_each} bytes for each of {events} events more: {least} and {most} in all");
}

/// The run directory of a recording's file that is looked at lies among temporary files.
#[test]
fn what_a_killed_command_left_among_temporary_files_is_listed_and_removed() {
    let (scratch, _alone) = (Scratch::new(), alone());
    fs::write(scratch.path("long.dat"), handed(20_000)).unwrap();
    let files = scratch.path("files");
    fs::create_dir(&files).unwrap();
    let count = || fs::read_dir(&files).unwrap().count();
    // One that was done before it was killed leaves nothing.
    for _ in 0..10 {
        let mut command = scratch.command("explain long.dat");
        let quiet = command.env("TMPDIR", &files).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = quiet.spawn().unwrap();
        while count() == 0 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if count() > 0 {
            break;
        }
    }
    assert_eq!(count(), 1);
    let doctor = |words: &str| {
        let told = scratch.command(words).env("TMPDIR", &files).output().unwrap();
        String::from_utf8(told.stdout).unwrap()
    };
    let left = format!("restored: temporary files {}/warmcore-", files.display());
    assert!(doctor("doctor host").contains(&format!("would be {left}")));
    assert_eq!(count(), 1);
    assert!(doctor("doctor restore").contains(&left));
    assert_eq!(count(), 0);
}
