//! Recording scheduling events of a run. Buffers are read only after it: reading would need a thread that runs beside the workload.

use std::io::Write;

use warmcore_agent::report::{FrameKind, write_frame};
use warmcore_agent::tracefs::{Instance, used_bytes};
use warmcore_capture::EventFormats;

/// Where a guest's tracefs is mounted.
pub const TRACEFS: &str = "/sys/kernel/tracing";

/// The instance of a guest.
fn instance() -> Instance {
    Instance::at(TRACEFS, "warmcore")
}

/// Makes the instance and describes its events.
pub fn prepare() -> Result<EventFormats, String> {
    instance().prepare()
}

/// Empties the buffers and records from now on.
pub fn start(buffer_kib: u32) -> Result<(), String> {
    instance().start(buffer_kib)
}

/// Records no more.
pub fn stop() -> Result<(), String> {
    instance().stop()
}

/// What each CPU's buffer took and did not take, by CPU.
pub fn counts() -> Result<(Vec<u64>, Vec<u64>), String> {
    instance().counts()
}

/// Sends the pages of all buffers.
pub fn send(channel: &mut impl Write) -> Result<(), String> {
    let instance = instance();
    for cpu in 0..instance.cpus() {
        let mut pages = instance.pages(cpu)?;
        let mut payload = Vec::new();
        while let Some(page) = pages.read()? {
            payload.clear();
            payload.extend((cpu as u32).to_le_bytes());
            payload.extend(&page[..used_bytes(page)]);
            write_frame(channel, FrameKind::TracePage, &payload)
                .map_err(|error| format!("cannot send a trace page: {error}"))?;
        }
    }
    Ok(())
}
