//! Deliberate faults, so that the host's handling of them can be tried.

use std::fs::File;
use std::time::Duration;

use warmcore_agent::plan::Fault;
use warmcore_agent::report::{FrameKind, Sample, write_document};

use warmcore_agent::files;

/// Commits the fault. Returns only where the fault is to return.
pub fn commit(fault: Fault, channel: &mut File) {
    match fault {
        Fault::Panic => {
            let _ = files::write("/proc/sysrq-trigger", "c");
        }
        Fault::Hang => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        Fault::OutOfMemory => {
            let mut hoard: Vec<Vec<u8>> = Vec::new();
            loop {
                // Pages count once they are written to.
                hoard.push(vec![1; 16 << 20]);
                std::hint::black_box(&hoard);
            }
        }
        Fault::FillChannel => loop {
            let sample = Sample { time_ns: 0, texts: vec![("/fill".into(), "x".repeat(1 << 20))] };
            if write_document(channel, FrameKind::Sample, &sample).is_err() {
                return;
            }
        },
        Fault::Silence => {}
    }
}
