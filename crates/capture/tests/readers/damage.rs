//! Whatever is in a file, no reader panics, and what it makes of it is a recording.

use proptest::prelude::*;
use warmcore_capture::{CaptureError, Recording};

use crate::common::{both_ways, version_7};
use crate::trace_dat::{contents, written};
use crate::{ftrace_text, perf_data, perfetto, schedviz};

fn read(file: &[u8]) -> Result<Recording, CaptureError> {
    both_ways(file, warmcore_capture::read, warmcore_capture::read::open)
}

/// A file of every format and form.
fn files() -> Vec<Vec<u8>> {
    let mut files = vec![
        written(&contents()),
        version_7(&contents(), "none"),
        version_7(&contents(), "zstd"),
        version_7(&contents(), "zlib"),
        ftrace_text::TRACE.into(),
        perfetto::trace(),
        schedviz::packed(&schedviz::collection()),
    ];
    files.extend(perf_data::FORMS.map(perf_data::file));
    files
}

/// What holds of every recording, or a word about every error.
fn check(read: Result<Recording, CaptureError>) {
    match read {
        Ok(recording) => {
            assert!(recording.records.is_sorted_by_key(|record| (record.time_ns, record.cpu)));
            for record in &recording.records {
                assert!(record.cpu < recording.cpus);
                let (threads, cpus) = record.what.names();
                assert!(cpus.into_iter().flatten().all(|cpu| cpu < recording.cpus));
                assert!(threads.into_iter().flatten().all(|id| id <= 0 || recording.threads.contains_key(&id)));
            }
            assert!(recording.threads.keys().all(|thread| *thread > 0));
            assert!(!recording.source.is_empty());
        }
        Err(error) => assert!(error.to_string().len() > 20, "{error}"),
    }
}

#[test]
fn whole_files_are_recordings_without_notes_of_damage() {
    for file in files() {
        let recording = read(&file).unwrap();
        assert!(!recording.records.is_empty() && recording.notes.iter().all(|note| !note.contains("ends early")));
        check(Ok(recording));
    }
}

/// Readers by the bytes that lead to them, with what else they look for first.
const BEGINNINGS: [&[u8]; 9] = [
    b"",
    b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header_page\0",
    b"\x17\x08\x44tracing7\0\0\x08\0\x10\0\0none\0\0",
    b"\x17\x08\x44tracing7\0\0\x08\0\x10\0\0zstd\0\0",
    b"PERFILE2\x68\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0",
    b"PERFILE2\x10\0\0\0\0\0\0\0",
    b"cpus=2\n a-1 [000] d..2. 1.5: sched_switch: ",
    b"\x0a\x10\x0a",
    b"\x1f\x8b\x08\0\0\0\0\0\0\0",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_files_never_panic(
        file in proptest::sample::select(files()),
        places in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
        end in any::<proptest::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut file = file;
        for (place, byte) in places {
            let at = place.index(file.len());
            file[at] = byte;
        }
        if cut {
            file.truncate(end.index(file.len()));
        }
        check(read(&file));
    }

    #[test]
    fn huge_numbers_never_panic(
        file in proptest::sample::select(files()),
        place in any::<proptest::sample::Index>(),
        value in proptest::sample::select(vec![0_u64, 1, 0x7fff_ffff, 0x8000_0000, u64::from(u32::MAX), u64::MAX, 1 << 63]),
        length in 1_usize..=8,
    ) {
        let mut file = file;
        let at = place.index(file.len() - 8);
        file[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        check(read(&file));
    }

    #[test]
    fn any_bytes_never_panic(
        beginning in proptest::sample::select(BEGINNINGS.to_vec()),
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        check(read(&[beginning, &bytes].concat()));
    }

    #[test]
    fn any_text_never_panics(text in "(a|b c|-|[0-9]{1,3}| \\[00[0-9]\\] |[0-9]\\.[0-9]{6}: |sched_(switch|waking): |comm=|pid=|prev_|next_|=| ==> |:|\n){0,60}") {
        check(warmcore_capture::ftrace_text::read(&text));
    }
}
