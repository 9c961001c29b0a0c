//! Collections of SchedViz.

use std::io::Write;

use warmcore_capture::schedviz::read;
use warmcore_capture::{CaptureError, Loss, What};

use crate::common::{HEADER, Page, formats, page, sample};
use warmcore_testing::skip;

fn entry(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    block[257..263].copy_from_slice(b"ustar\0");
    block.extend(bytes);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

pub fn packed(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(&entries.concat()).unwrap();
    encoder.write_all(&[0; 1024]).unwrap();
    encoder.finish().unwrap()
}

pub fn collection() -> Vec<Vec<u8>> {
    let mut entries = vec![entry("formats/header_page", HEADER.as_bytes()), entry("options/raw", b"0\n")];
    entries.extend(formats().iter().map(|(name, text)| entry(&format!("formats/{name}/format"), text.as_bytes())));
    let pages = [page(&Page::at(1000).waking(5, 50, 51, 1)), page(&Page::at(2000).switch(1, 50, 0x20, 0).missed(3))];
    entries.push(entry("traces/cpu0", &pages.concat()));
    entries.push(entry("./traces/cpu3", &page(&Page::at(1500).wakeup(1, 0, 51, 3))));
    entries
}

#[test]
fn pages_of_an_archive_become_records() {
    let recording = read(&packed(&collection())).unwrap();
    let found: Vec<_> = recording.records.iter().map(|record| (record.time_ns, record.cpu, record.by)).collect();
    assert_eq!(found, [(1005, 0, 50), (1501, 3, 0), (2001, 0, 50)]);
    assert_eq!((recording.source.as_str(), recording.cpus), ("SchedViz collection", 4));
    assert_eq!(recording.lost, [Loss { cpu: Some(0), before_ns: Some(2001), events: Some(3) }]);
    assert_eq!(recording.threads[&51].name, "thread-51");
    assert_eq!(warmcore_capture::read(&packed(&collection())), Ok(recording), "the format is found by its content");
}

#[test]
fn an_archive_that_ends_early_is_a_loss_or_an_error() {
    let whole = packed(&collection());
    let mut partly = 0;
    for length in (0..whole.len()).step_by(7) {
        match read(&whole[..length]) {
            Ok(recording) => {
                partly += 1;
                assert!(recording.events_lost().1 && recording.notes[0].contains("ends early"), "at {length}");
            }
            Err(CaptureError::Damaged { .. } | CaptureError::NoSchedule { .. }) => {}
            Err(other) => panic!("at {length}: {other}"),
        }
    }
    assert!(partly > 0);
}

#[test]
fn a_bomb_is_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&entry("traces/cpu0", &vec![0; 100 << 20])).unwrap();
    let error = read(&encoder.finish().unwrap()).unwrap_err().to_string();
    assert!(error.contains("unpacks to more than"), "{error}");
}

#[test]
fn public_collections_are_read_and_one_of_bpf_is_refused() {
    let (file, other) = match (sample("schedviz/test.tar.gz"), sample("schedviz/test_no_metadata.tar.gz")) {
        (Ok(file), Ok(other)) => (file, other),
        (Err(lacking), _) | (_, Err(lacking)) => skip!("{lacking}"),
    };
    let recording = warmcore_capture::read(&file).unwrap();
    let count = |test: fn(&What) -> bool| recording.records.iter().filter(|record| test(&record.what)).count();
    // As `trace-cmd report` counts them in a file written from the same pages.
    assert_eq!(count(|what| matches!(what, What::Switch { .. })), 15056);
    assert_eq!(count(|what| matches!(what, What::Wakeup { .. })), 13866);
    assert_eq!((recording.records.len(), recording.cpus), (15056 + 13866, 1));
    assert_eq!(warmcore_capture::read(&other).unwrap().records.len(), recording.records.len());
    let bpf = match sample("schedviz/ebpf_trace.tar.gz") {
        Ok(bpf) => bpf,
        Err(lacking) => skip!("{lacking}"),
    };
    let error = warmcore_capture::read(&bpf).unwrap_err().to_string();
    assert!(error.contains("BPF") && error.contains("trace.sh"), "{error}");
}
