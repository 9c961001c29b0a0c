//! Perfetto's traces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warmcore_capture::perfetto::read;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(recording) = read(bytes) {
        assert!(recording.records.is_sorted_by_key(|record| (record.time_ns, record.cpu)));
        assert!(recording.records.iter().all(|record| record.cpu < recording.cpus));
    }
});
