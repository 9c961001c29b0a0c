//! Recordings of the kernel's events in each format: what is read is in the order of time, of CPUs that are there.

use warmcore_capture::{CaptureError, Recording};

pub(crate) fn run(bytes: &[u8], read: fn(&[u8]) -> Result<Recording, CaptureError>) {
    if let Ok(recording) = read(bytes) {
        assert!(recording.records.is_sorted_by_key(|record| (record.time_ns, record.cpu)));
        assert!(recording.records.iter().all(|record| record.cpu < recording.cpus));
    }
}
