//! `perf.data`: files, pipes, packed records; losses, names, processes; damaged files.

use std::io::Write;

use warmcore_capture::perf_data::read;
use warmcore_capture::{CaptureError, Loss, Recording, What};
use warmcore_trace::PrevState;

use crate::common::{HEADER, formats, record, sample};
use warmcore_testing::skip;

/// `PERF_SAMPLE_` `IP`, `TID`, `TIME`, `CPU`, `PERIOD`, `READ`, `CALLCHAIN`, `RAW` and `IDENTIFIER`.
const SAMPLE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 8 | 1 << 4 | 1 << 5 | 1 << 10 | 1 << 16;
/// Times and ids of groups: the longest form of what counters say.
const READ: u64 = 0b1111;

/// How a file is made of the same records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    File,
    PackedFile,
    Pipe,
    PackedPipe,
}

pub const FORMS: [Form; 4] = [Form::File, Form::PackedFile, Form::Pipe, Form::PackedPipe];

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn entry(kind: u32, body: &[u8]) -> Vec<u8> {
    flagged(kind, 0, body)
}

fn flagged(kind: u32, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(8), 0);
    let head =
        [kind.to_le_bytes().to_vec(), flags.to_le_bytes().to_vec(), (body.len() as u16 + 8).to_le_bytes().to_vec()];
    [head.concat(), body].concat()
}

fn pair(low: i32, high: i32) -> u64 {
    u64::from(low as u32) | u64::from(high as u32) << 32
}

/// A sample of a tracepoint by a thread of process 40.
fn tracepoint(time: u64, cpu: u64, thread: i32, raw: &[u8]) -> Vec<u8> {
    let process = if thread == 0 { 0 } else { 40 };
    let group = [2, 9, 9, 1, 77, 2, 78];
    let chain = [3, 0xffff_ffff_ffff_ff80, 1, 2];
    let body = [numbers(&[77, 0xdead, pair(process, thread), time, cpu, 1]), numbers(&group), numbers(&chain)].concat();
    entry(9, &[body, (raw.len() as u32).to_le_bytes().to_vec(), raw.to_vec()].concat())
}

/// What ends every record that is no sample.
fn trailer(time: u64, cpu: u64, thread: i32) -> Vec<u8> {
    numbers(&[pair(40, thread), time, cpu, 77])
}

fn records() -> Vec<u8> {
    let name = |text: &[u8]| [text, &[0; 16][text.len()..]].concat();
    let switch = |prev: i64, state, next| record("sched_switch", 0, prev as i32, &[prev, 120, state, next, 120]);
    [
        entry(3, &[numbers(&[pair(40, 50)]), name(b"an old name"), trailer(0, 0, 0)].concat()),
        entry(3, &[numbers(&[pair(40, 40)]), name(b"leader"), trailer(0, 0, 0)].concat()),
        // perf sees programs begin from when it opens its events on, and records samples later.
        flagged(3, 1 << 13, &[numbers(&[pair(40, 50)]), name(b"before"), trailer(500, 0, 50)].concat()),
        // Not in order of time: perf writes a CPU's records together.
        tracepoint(2000, 1, 50, &switch(50, 0x20, 0)),
        entry(4, &[numbers(&[pair(40, 40), pair(50, 40), 1990]), trailer(1990, 1, 50)].concat()),
        entry(2, &[numbers(&[77, 6]), trailer(1985, 1, 50)].concat()),
        tracepoint(1000, 0, 0, &switch(0, 0, 50)),
        tracepoint(1010, 0, 50, &record("sched_waking", 0, 50, &[51, 120, 1])),
        tracepoint(1020, 0, 50, &record("sched_stat_runtime", 0, 50, &[50, 5])),
        entry(13, &[numbers(&[5]), trailer(0, 0, 0)].concat()),
        entry(13, &[numbers(&[3]), trailer(0, 0, 0)].concat()),
        // The thread runs another program, of which there is no event.
        flagged(3, 1 << 13, &[numbers(&[pair(40, 50)]), name(b"thread-50"), trailer(1030, 0, 50)].concat()),
        entry(68, &[]), // the end of a round
    ]
    .concat()
}

fn attribute() -> Vec<u8> {
    let mut words = vec![u64::from(112_u32) << 32 | 2, 316, 1, SAMPLE, READ, 1 << 18 | 1 << 25];
    words.resize(112 / 8, 0);
    let mut bytes = numbers(&words);
    bytes[92..96].copy_from_slice(&1_u32.to_le_bytes());
    bytes
}

fn tracing_data() -> Vec<u8> {
    let sized = |text: &str| [numbers(&[text.len() as u64]), text.as_bytes().to_vec()].concat();
    let events = formats();
    let mut bytes = b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0header_page\0".to_vec();
    bytes.extend(sized(HEADER));
    bytes.extend(b"header_event\0");
    bytes.extend(sized(""));
    bytes.extend([0_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat());
    bytes.extend(b"sched\0");
    bytes.extend((events.len() as u32).to_le_bytes());
    events.iter().for_each(|(_, text)| bytes.extend(sized(text)));
    bytes.extend([0; 8]);
    bytes.extend(sized("99 seen before\n"));
    bytes
}

/// One packed stream in two parts, of which the first ends within a record.
fn packed(records: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(&records[..records.len() - 100]).unwrap();
    encoder.flush().unwrap();
    let flushed = encoder.get_ref().len();
    encoder.write_all(&records[records.len() - 100..]).unwrap();
    let stream = encoder.finish().unwrap();
    let (old, new) = stream.split_at(flushed);
    [packed_part(old), entry(83, &[numbers(&[new.len() as u64]), new.to_vec()].concat())].concat()
}

/// Packed bytes in the old form, which fill their record; the new one says their length.
fn packed_part(bytes: &[u8]) -> Vec<u8> {
    let head =
        [81_u32.to_le_bytes().to_vec(), 0_u16.to_le_bytes().to_vec(), (bytes.len() as u16 + 8).to_le_bytes().to_vec()];
    [head.concat(), bytes.to_vec()].concat()
}

pub fn file(form: Form) -> Vec<u8> {
    let records = match form {
        Form::File | Form::Pipe => records(),
        Form::PackedFile | Form::PackedPipe => packed(&records()),
    };
    if matches!(form, Form::Pipe | Form::PackedPipe) {
        let mut descriptions = tracing_data();
        descriptions.resize(descriptions.len().next_multiple_of(8), 0);
        let head = [b"PERFILE2".to_vec(), numbers(&[16])].concat();
        let attribute = entry(64, &[attribute(), numbers(&[77])].concat());
        let size = entry(66, &numbers(&[descriptions.len() as u64]));
        return [head, attribute, size, descriptions, records].concat();
    }
    let (ids, attributes, data) = (104, 112, 112 + 128);
    let end = data + records.len() as u64;
    let descriptions = tracing_data();
    let head = numbers(&[104, 128, attributes, 128, data, records.len() as u64, 0, 0, 1 << 1, 0, 0, 0]);
    let table = numbers(&[end + 16, descriptions.len() as u64]);
    let attribute = [attribute(), numbers(&[ids, 8])].concat();
    [b"PERFILE2".to_vec(), head, numbers(&[77]), attribute, records, table, descriptions].concat()
}

fn check(recording: &Recording) {
    assert_eq!((recording.source.as_str(), recording.clock.as_deref(), recording.cpus), ("perf.data", Some("mono"), 2));
    let whats: Vec<_> =
        recording.records.iter().map(|record| (record.time_ns, record.cpu, record.by, record.what)).collect();
    let switch = |prev, state, next| What::Switch { prev, state, next, uninterruptible: false };
    assert_eq!(
        whats,
        [
            (1000, 0, 0, switch(0, PrevState::Runnable, 50)),
            (1010, 0, 50, What::Waking { thread: 51, target_cpu: 1 }),
            (1030, 0, 50, What::Exec { thread: 50 }),
            (1990, 1, 50, What::Exit { thread: 50 }),
            (2000, 1, 50, switch(50, PrevState::Dead, 0)),
        ]
    );
    let name = |thread: i32| recording.threads[&thread].name.as_str();
    assert_eq!([name(50), name(51), name(40), name(99)], ["thread-50", "thread-51", "leader", "seen before"]);
    assert_eq!([50, 51].map(|thread: i32| recording.threads[&thread].process), [Some(40), None]);
    let loss = |cpu, before_ns, events| Loss { cpu, before_ns, events: Some(events) };
    let expected = [loss(Some(1), Some(1985), 6), loss(None, None, 2)];
    assert_eq!(recording.lost, expected, "8 samples are lost, 6 of them at a known place");
}

#[test]
fn files_and_pipes_plain_and_packed_say_the_same() {
    for form in FORMS {
        let recording = read(&file(form)).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        check(&recording);
        assert_eq!(recording.notes, [""; 0]);
    }
}

#[test]
fn a_file_that_ends_early_is_damaged_and_a_pipe_is_read_up_to_there() {
    for form in FORMS {
        let (whole, is_pipe) = (file(form), matches!(form, Form::Pipe | Form::PackedPipe));
        let mut partly = 0;
        for length in 0..whole.len() {
            match read(&whole[..length]) {
                // A pipe may end after any record.
                Ok(recording) => {
                    assert!(is_pipe, "{form:?} at {length}");
                    partly += usize::from(recording.notes.iter().any(|note| note.contains("ends early")));
                }
                Err(CaptureError::Damaged { .. } | CaptureError::NoSchedule { .. }) => {}
                Err(other) => panic!("{form:?} at {length}: {other}"),
            }
        }
        assert_eq!(partly > 0, is_pipe, "{form:?}");
    }
    let mut unfinished = file(Form::File);
    unfinished[48..56].fill(0);
    assert!(read(&unfinished).unwrap_err().to_string().contains("never completed"));
}

#[test]
fn packed_records_that_are_damaged_or_bombs_are_refused() {
    let mut damaged = file(Form::PackedFile);
    let at = 112 + 128 + 8;
    damaged[at..at + 4].fill(0xff);
    assert!(read(&damaged).unwrap_err().to_string().contains("packed records are damaged"));
    let zeros = zstd::encode_all(&vec![0; 100 << 20][..], 1).unwrap();
    let bomb = [&file(Form::Pipe)[..], &packed_part(&zeros)].concat();
    assert!(read(&bomb).unwrap_err().to_string().contains("larger than they can be"));
}

#[test]
fn old_and_foreign_files_are_refused_with_a_way_out() {
    for (magic, word) in [(b"PERFFILE", "version 1"), (b"2ELIFREP", "big-endian")] {
        let mut file = file(Form::File);
        file[..8].copy_from_slice(magic);
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("perf script"), "{error}");
    }
    let mut endless = file(Form::File);
    endless[112 + 128 + 6..112 + 128 + 8].fill(0);
    assert!(read(&endless).unwrap_err().to_string().contains("0 is not a length of a record"));
}

#[test]
fn public_files_without_the_scheduler_are_read_to_the_end_and_say_so() {
    for name in [
        "perf-data/sleep.data",
        "perf-data/sleep.compressed.data",
        "perf-data/sleep.compressed2.data",
        "perf-data/sleep.compressed.pipe.data",
        "perf-data/sleep.compressed2.pipe.data",
        "perf-data/fibo.compressed2.pipe.data",
        "hotspot/perf.data.true.v2",
        "hotspot/perf.data.PerfFormatLost",
    ] {
        let file = match sample(name) {
            Ok(file) => file,
            Err(lacking) => skip!("{lacking}"),
        };
        let error = read(&file).unwrap_err();
        assert!(matches!(error, CaptureError::NoSchedule { .. }), "{name}: {error}");
        assert!(error.to_string().contains("perf sched record"), "{error}");
    }
}

#[test]
fn a_public_broken_file_is_a_clear_error() {
    let packed = match sample("hotspot/perf.data.broken.gz") {
        Ok(packed) => packed,
        Err(lacking) => skip!("{lacking}"),
    };
    let error = warmcore_capture::read(&packed).unwrap_err().to_string();
    assert!(error.contains("packed by gzip"), "{error}");
    let mut file = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut file).unwrap();
    let error = warmcore_capture::read(&file).unwrap_err().to_string();
    assert!(error.contains("archive of tar"), "{error}");
    // The archive has one file, which is no recording at all.
    let size = usize::from_str_radix(std::str::from_utf8(&file[124..135]).unwrap(), 8).unwrap();
    let error = warmcore_capture::read(&file[512..512 + size]).unwrap_err().to_string();
    assert!(error.contains("it begins with \"dummy"), "{error}");
}
