//! Interrupts of a recording: slices on a track for each CPU that has any.

use std::io::{self, Write};

use warmcore_topology::CpuId;

use super::proto::{TracePacket, TrackEvent};
use super::{FIRST_INTERRUPT, INTERRUPTS, PerfettoWriter, ROOT};

/// `TYPE_SLICE_BEGIN` and `TYPE_SLICE_END` of a track's events.
const BEGIN: i32 = 1;
const END: i32 = 2;

impl<W: Write> PerfettoWriter<'_, W> {
    /// An interrupt or a softirq that ends now.
    pub(super) fn interrupt(&mut self, time_ns: u64, cpu: CpuId, duration_ns: u64) -> io::Result<()> {
        let track = FIRST_INTERRUPT + u64::from(cpu.0);
        if self.scored.insert(INTERRUPTS) {
            self.track(INTERRUPTS, Some(ROOT), "interrupts and softirqs", false)?;
        }
        if self.scored.insert(track) {
            let name = self.machine.os_cpu(cpu).to_string();
            self.track(track, Some(INTERRUPTS), &name, false)?;
        }
        let begins = (time_ns.saturating_sub(duration_ns), BEGIN, Some("interrupt".to_owned()));
        for (time_ns, r#type, name) in [begins, (time_ns, END, None)] {
            let event = TrackEvent { r#type: Some(r#type), track_uuid: Some(track), name, ..TrackEvent::default() };
            self.packet(TracePacket { timestamp: Some(time_ns), track_event: Some(event), ..TracePacket::default() })?;
        }
        Ok(())
    }
}
