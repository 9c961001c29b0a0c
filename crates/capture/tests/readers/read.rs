//! The format of a file is found by its content.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warmcore_capture::read::open;
use warmcore_capture::{CaptureError, Source, read};

use crate::trace_dat::{contents, written};

#[test]
fn formats_are_found_by_content() {
    assert_eq!(read(&written(&contents())).unwrap().source, "trace.dat");
    let text = " a-1 [000] d..2. 1.000001: sched_waking: comm=b pid=2 prio=120 target_cpu=000\n";
    assert_eq!(read(text.as_bytes()).unwrap().source, "ftrace text");
}

#[test]
fn a_foreign_file_is_refused_with_what_it_begins_with() {
    for (bytes, word) in [
        (&b""[..], "it is empty"),
        (b"\x1f\x8b\x08", "packed by gzip"),
        (b"\x28\xb5\x2f\xfd", "packed by zstd"),
        (b"\x7fELF\x02", "\\x7fELF"),
        (b"Dear reader,\n", "Dear reader"),
    ] {
        let error = read(bytes).unwrap_err();
        assert!(matches!(error, CaptureError::Unknown { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.to_string().contains("trace-cmd"), "what can be read is said: {error}");
    }
}

/// A line of a text, 1 us after the one before, whose names have letters of several bytes.
fn line(number: u64) -> String {
    let (seconds, micros) = (1 + number / 1_000_000, number % 1_000_000);
    format!(
        " \u{e4}\u{f6}\u{fc}-{} [{:03}] d..2. {seconds}.{micros:06}: sched_waking: comm=\u{65e5}\u{672c} pid={} prio=120 target_cpu=001\n",
        1 + number % 7,
        number % 2,
        10 + number % 5
    )
}

#[test]
fn a_text_that_is_read_in_blocks_is_the_one_that_is_read_whole() {
    // More than two blocks of a mebibyte; whole, and cut off within its last line, with a loss that says so.
    let text: String = (0..30_000).map(line).collect();
    assert!(text.len() > 2 << 20);
    for length in [text.len(), text.len() - 30] {
        let bytes = text.as_bytes()[..length].to_vec();
        let whole = read(&bytes).unwrap();
        assert_eq!(open(Arc::new(bytes)).unwrap(), whole);
        let ends_early = whole.notes.iter().any(|note| note.contains("line 30000"));
        let expected = if length == text.len() { (30_000, false) } else { (29_999, true) };
        assert_eq!((whole.records.len(), ends_early), expected);
    }
    let damaged = text.clone() + "a-1 [000] d..2. 9.000001: sched_waking: comm=b\n" + &text;
    let error = open(Arc::new(damaged.clone().into_bytes())).unwrap_err();
    assert_eq!(error.to_string(), read(damaged.as_bytes()).unwrap_err().to_string());
    assert!(error.to_string().contains("line 30001"), "{error}");
}

/// A file that tells how far it was read.
#[derive(Debug)]
struct Watched(Vec<u8>, AtomicU64);

impl Source for Watched {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read_at(at, bytes)?;
        self.1.fetch_max(at + count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[test]
fn of_a_file_of_no_format_the_beginning_is_read_and_a_line_without_end_is_refused() {
    for (begins, word) in [("", "it begins with"), ("\x7fELF", "\\x7fELF"), ("Dear reader,\n", "Dear reader")] {
        let mut bytes = begins.as_bytes().to_vec();
        bytes.resize(3 << 20, 0);
        let file = Arc::new(Watched(bytes, AtomicU64::new(0)));
        let error = open(Arc::clone(&file) as Arc<dyn Source>).unwrap_err();
        assert!(matches!(error, CaptureError::Unknown { .. }) && error.to_string().contains(word), "{error}");
        assert!(file.1.load(Ordering::Relaxed) <= 1 << 18, "{begins}");
    }
    let endless = Watched((line(0) + &"x".repeat(40 << 20)).into_bytes(), AtomicU64::new(0));
    let file = Arc::new(endless);
    let error = open(Arc::clone(&file) as Arc<dyn Source>).unwrap_err();
    assert!(error.to_string().contains("line 2") && error.to_string().contains("longer than 16 MiB"), "{error}");
    assert!(file.1.load(Ordering::Relaxed) < 20 << 20);
}
