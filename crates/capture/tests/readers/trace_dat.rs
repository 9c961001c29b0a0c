//! Files of `trace-cmd`: what is written is read; packed, cut off and damaged files; the program itself.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::{HEADER, Page, both_ways, formats, page, sample, version_7};
use warmcore_capture::counters::{Counted, CounterSample, TASK_CLOCK};
use warmcore_capture::files::Socket;
use warmcore_capture::homes::HomeSample;
use warmcore_capture::trace_dat::{self, Contents, write};
use warmcore_capture::{CaptureError, Context, CounterLog, Loss, OpenFiles, PageHomes, Recording, What};
use warmcore_testing::skip;
use warmcore_trace::PrevState;

/// Two CPUs; thread 50 of process 40 wakes 51, which is moved; 7 events are missing before the second page of CPU 1.
pub fn contents() -> Contents {
    let first = Page::at(1000).waking(10, 50, 51, 1).wakeup(5, 50, 51, 1).switch(20, 50, 1, 0);
    let second = Page::at(1012).switch(10, 0, 0, 51).migrate(4, 51, 51, 1, 0);
    let third = Page::at(9000).exit(1, 51).missed(7);
    Contents {
        header_page: HEADER.into(),
        header_event: "# compressed entry header\n".into(),
        events: formats(),
        cmdlines: BTreeMap::from([(50, "a worker".into()), (99, "seen before".into())]),
        clock: "mono".into(),
        processes: BTreeMap::from([(50, 40), (51, 40)]),
        pages: vec![page(&first), [page(&second), page(&third)].concat()],
        lost: vec![0, 9],
        counters: Some(counters()),
        files: files(),
        homes: homes(),
        notes: vec![],
    }
}

fn counters() -> CounterLog {
    let sample = |time_ns, thread, group, values| CounterSample { time_ns, cpu: 0, thread, group, span_ns: 20, values };
    CounterLog {
        origin: "counted at every switch".into(),
        groups: vec![vec![TASK_CLOCK.into(), "page_faults_minor".into()], vec!["cycles".into()]],
        samples: vec![
            sample(1035, Counted::Thread(50), 0, vec![20, 3]),
            sample(1035, Counted::Thread(50), 1, vec![90]),
        ],
        lost: 2,
        notes: vec!["no l3_rfo_misses".into()],
    }
}

fn files() -> OpenFiles {
    let mut files = OpenFiles::default();
    files.saw(1000, 40, 3, "socket:[8]");
    files.saw(1010, 40, 3, "pipe:[9]");
    let socket = Socket { peer: Some("socket:[7]".into()), name: "unix".into() };
    files.sockets.insert("socket:[8]".into(), socket);
    files
}

fn homes() -> PageHomes {
    let sample = HomeSample { time_ns: 1001, process: 40, kib: BTreeMap::from([(0, 4), (1, 8)]) };
    PageHomes { nodes: 2, samples: vec![sample], notes: vec!["40 ended".into()] }
}

pub fn written(contents: &Contents) -> Vec<u8> {
    let mut file = Vec::new();
    write(&mut file, contents).unwrap();
    file
}

/// What is read of a file.
pub fn read(file: &[u8]) -> Result<Recording, CaptureError> {
    both_ways(file, trace_dat::read, trace_dat::open)
}

/// What must be read of [`contents`].
fn check(recording: &Recording) {
    assert_eq!((recording.source.as_str(), recording.clock.as_deref(), recording.cpus), ("trace.dat", Some("mono"), 2));
    let whats: Vec<_> =
        recording.records.iter().map(|record| (record.time_ns, record.cpu, record.by, record.what)).collect();
    let switch = |prev, state, next| What::Switch { prev, state, next, uninterruptible: false };
    assert_eq!(
        whats,
        [
            (1010, 0, 50, What::Waking { thread: 51, target_cpu: 1 }),
            (1015, 0, 50, What::Wakeup { thread: 51, target_cpu: 1 }),
            (1022, 1, 0, switch(0, PrevState::Runnable, 51)),
            (1026, 1, 51, What::Migrate { thread: 51, from: 1, to: 0 }),
            (1035, 0, 50, switch(50, PrevState::Sleeping, 0)),
            (9001, 1, 51, What::Exit { thread: 51 }),
        ]
    );
    let name = |thread: i32| recording.threads[&thread].name.as_str();
    assert_eq!(
        (name(50), name(51), name(99)),
        ("thread-50", "thread-51", "seen before"),
        "records know better than lists"
    );
    assert_eq!(recording.threads[&51].process, Some(40));
    assert_eq!(recording.threads[&99].process, None);
    let loss = |before_ns, events| Loss { cpu: Some(1), before_ns, events: Some(events) };
    assert_eq!(recording.lost, [loss(Some(9001), 7), loss(None, 2)], "a gap of 7, and 2 more that the kernel counted");
    assert_eq!(recording.notes, [""; 0]);
}

#[test]
fn what_is_written_is_read() {
    let recording = read(&written(&contents())).unwrap();
    check(&recording);
    assert_eq!(recording.counters, Some(counters()));
    assert_eq!((recording.files, recording.homes), (files(), homes()));
}

#[test]
fn packed_and_plain_files_of_version_7_say_the_same() {
    for packing in ["none", "zstd", "zlib"] {
        check(&read(&version_7(&contents(), packing)).unwrap());
    }
    let unknown = read(&version_7(&contents(), "lzma")).unwrap_err().to_string();
    assert!(unknown.contains("`lzma`") && unknown.contains("trace-cmd convert"), "{unknown}");
}

/// A file of version 6 with one more option; the pages that follow move by its length.
fn with_option(mut file: Vec<u8>, option: u16, data: &[u8]) -> Vec<u8> {
    let table = file.windows(10).rposition(|bytes| bytes == b"flyrecord\0").unwrap();
    let option = [&option.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat();
    for cpu in 0..contents().pages.len() {
        let at = table + 10 + cpu * 16;
        let offset = u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) + option.len() as u64;
        file[at..at + 8].copy_from_slice(&offset.to_le_bytes());
    }
    // Before the end of the options, which is a zero of two bytes.
    file.splice(table - 2..table - 2, option);
    file
}

#[test]
fn of_several_buffers_the_one_with_most_records_is_read_and_the_others_are_named() {
    let statistics = |file, text: &[u8]| with_option(file, 2, text);
    let file = statistics(written(&contents()), b"\nBuffer: other\n\n\0");
    let file = statistics(file, b"CPU: 0\nentries: 0\noverrun: 5\ncommit overrun: 1\ndropped events: 2\n\0");
    let more: Page = (0..9).fold(Page::at(5000), |page, _| page.waking(1, 50, 51, 0));
    let pages = page(&more);
    // The option is of 6 bytes and these; then the buffer lies at the end of the file.
    let name = b"other\0";
    let offset = (file.len() + 6 + 8 + name.len()) as u64;
    let mut file = with_option(file, 3, &[&offset.to_le_bytes()[..], name].concat());
    assert_eq!(file.len() as u64, offset);
    file.extend(b"flyrecord\0");
    let first = offset + 10 + 2 * 16;
    for (at, length) in [(first, pages.len() as u64), (0, 0)] {
        file.extend(at.to_le_bytes());
        file.extend(length.to_le_bytes());
    }
    file.extend(pages);
    let recording = read(&file).unwrap();
    assert_eq!(
        (recording.records.len(), recording.span_ns(), recording.clock.as_deref()),
        (9, (5001, 5009), Some("mono"))
    );
    assert_eq!(recording.lost, [Loss { cpu: Some(0), before_ns: None, events: Some(8) }], "counted for this buffer");
    let note = "6 records of the kernel's own buffer are left out: buffer `other` has more and is read";
    assert_eq!(recording.notes, [note]);
}

#[test]
fn counts_of_the_processor_become_nanoseconds_as_the_file_says() {
    let file = written(&Contents { clock: "x86-tsc".into(), ..contents() });
    let error = read(&file).unwrap_err().to_string();
    assert!(error.contains("`x86-tsc`"), "without a conversion it is refused: {error}");
    let conversion = [&3_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &0_u64.to_le_bytes()].concat();
    let recording = read(&with_option(file, 14, &conversion)).unwrap();
    assert_eq!(recording.span_ns(), (1010 * 3 / 2, 9001 * 3 / 2));
    assert_eq!(recording.lost[0].before_ns, Some(9001 * 3 / 2));
    assert!(recording.notes[0].contains("counter"), "{:?}", recording.notes);
}

#[test]
fn an_interrupt_is_no_waker() {
    let pages = page(
        &Page::at(0).flags(0x08).waking(1, 50, 51, 0).flags(0x10).waking(1, 50, 51, 0).flags(0).waking(1, 50, 51, 0),
    );
    let recording = read(&written(&Contents { pages: vec![pages], ..contents() })).unwrap();
    let contexts: Vec<_> = recording.records.iter().map(|record| (record.context, record.waker())).collect();
    let expected = [(Context::HardInterrupt, None), (Context::SoftInterrupt, Some(50)), (Context::Thread, Some(50))];
    assert_eq!(contexts, expected);
}

#[test]
fn births_say_of_which_process_a_thread_is() {
    // A process of its own, and a thread of each; the creator of the last is in no known process.
    let births = Page::at(0).birth(1, 50, 60, 0x0120_0000).birth(1, 60, 61, 0x3d_0f00).birth(1, 50, 62, 0x3d_0f00);
    let pages = page(&births.birth(1, 99, 63, 0x3d_0f00).waking(1, 60, 61, 0));
    let recording = read(&written(&Contents { pages: vec![pages], ..contents() })).unwrap();
    let processes = [60, 61, 62, 63].map(|thread: i32| recording.threads.get(&thread).and_then(|known| known.process));
    assert_eq!(processes, [Some(60), Some(60), Some(40), None]);
}

#[test]
fn a_file_that_ends_early_is_an_error_or_a_named_loss_wherever_it_ends() {
    for whole in [written(&contents()), version_7(&contents(), "zstd"), version_7(&contents(), "none")] {
        let all = read(&whole).unwrap();
        let mut partly = 0;
        for length in 0..whole.len() {
            match read(&whole[..length]) {
                Ok(recording) if recording == all => {}
                Ok(recording) => {
                    partly += 1;
                    assert!(recording.records.len() <= all.records.len());
                    assert!(recording.events_lost().1, "what is missing at {length} has no number");
                    assert!(recording.notes.iter().any(|note| note.contains("ends early")), "{:?}", recording.notes);
                    assert!(recording.records.iter().all(|record| all.records.contains(record)));
                }
                Err(CaptureError::Damaged { .. }) => {}
                Err(other) => panic!("{length}: {other}"),
            }
        }
        // Version 7 says where pages lie at its end.
        assert_eq!(partly > 0, whole[10] == b'6', "pages that are there are read");
    }
}

#[test]
fn other_byte_orders_versions_and_clocks_are_refused_with_a_way_out() {
    let with = |at: usize, byte: u8| {
        let mut file = written(&contents());
        file[at] = byte;
        read(&file).unwrap_err().to_string()
    };
    let big = with(12, 1);
    assert!(big.contains("big-endian") && big.contains("trace-cmd report"), "{big}");
    let version = with(10, b'9');
    assert!(version.contains("version 9"), "{version}");
    let clock = read(&written(&Contents { clock: "counter".into(), ..contents() })).unwrap_err().to_string();
    assert!(clock.contains("`counter`") && clock.contains("-C mono"), "{clock}");
    let none = read(&written(&Contents { events: vec![], ..contents() })).unwrap_err().to_string();
    assert!(none.contains("trace-cmd record -e sched_switch"), "{none}");
}

#[test]
fn pages_that_contradict_themselves_are_named() {
    let mut contents = contents();
    contents.pages[1][4096 + 16] = 28; // longer than the page says
    let error = read(&written(&contents)).unwrap_err().to_string();
    assert!(error.contains("page 1 of CPU 1"), "{error}");
}

#[test]
fn only_whole_pages_are_written() {
    let mut contents = contents();
    contents.pages[0].pop();
    let error = write(&mut Vec::new(), &contents).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("CPU 0"), "{error}");
}

#[test]
fn trace_cmd_reads_what_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.dat");
    std::fs::write(&path, written(&contents())).unwrap();
    let output = match Command::new("trace-cmd").args(["report", "-R", "-N", "-i"]).arg(&path).output() {
        Ok(output) => output,
        Err(error) => skip!("no trace-cmd here ({error}): apt-get install trace-cmd"),
    };
    let (text, warnings) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{warnings}");
    for word in
        ["cpus=2", "sched_waking", "sched_switch", "sched_migrate_task", "sched_process_exit", "7 EVENTS DROPPED"]
    {
        assert!(text.contains(word), "{word} is not in\n{text}\n{warnings}");
    }
}

#[test]
fn lisas_recording_has_what_trace_cmd_finds_in_it() {
    let file = match sample("lisa/sched_load.trace.dat") {
        Ok(file) => file,
        Err(lacking) => skip!("{lacking}"),
    };
    let recording = read(&file).unwrap();
    let count = |test: fn(&What) -> bool| recording.records.iter().filter(|record| test(&record.what)).count();
    assert_eq!(count(|what| matches!(what, What::Switch { .. })), 399);
    assert_eq!(count(|what| matches!(what, What::Migrate { .. })), 28);
    assert_eq!((recording.records.len(), recording.cpus, recording.clock.as_deref()), (427, 6, None));
    assert_eq!(recording.span_ns(), (2_084_021_659_380, 2_084_369_436_580));
    assert_eq!(recording.threads[&2923].name, "kworker/2:1");
}
