//! Text of tracefs, trace-cmd report and perf script.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warmcore_capture::ftrace_text::read;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(recording) = read(&String::from_utf8_lossy(bytes)) {
        assert!(recording.records.is_sorted_by_key(|record| (record.time_ns, record.cpu)));
        assert!(recording.records.iter().all(|record| record.cpu < recording.cpus));
    }
});
