//! The format of a file is found by its content.

use warmcore_capture::{CaptureError, read};

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
