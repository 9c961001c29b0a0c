//! Perfetto's traces: the scheduler's events of `linux.ftrace`, plain and compact, also in packed packets; names and processes from
//! process trees. What `warmcore report` writes for Perfetto is read too.
//!
//! - The compact form says who comes, and not who leaves: that is who came before on the same CPU. The first switch of a CPU, and
//!   the first one after a loss, only says who runs from then on and makes no record. Likewise a compact waking is by whoever runs.
//! - Of one instant plain events come first, then the switch, then wakings, as in Perfetto's own importer.
//! - Flags of compact wakings are recorded in new traces only: else a waking from an interrupt looks like one by the thread
//!   that ran, and a note says so.
//! - Losses are bundles that say that events are missing before them, and the difference of the kernel's counts between the trace's
//!   start and its end.
//!
//! The wire format is read field by field where it lies: no message is built, so nothing is allocated but the records.
//!
//! Source: `protos/perfetto/trace/trace_packet.proto`, `ftrace/ftrace_event_bundle.proto`, `ftrace/ftrace_event.proto`,
//! `ftrace/sched.proto`, `ftrace/task.proto`, `ftrace/cpuhp.proto`, `ftrace/ftrace_stats.proto`, `ps/process_tree.proto`, Perfetto v54.

mod events;
mod wire;

use std::collections::BTreeMap;

use crate::bytes::text_of;
use crate::error::{CaptureError, FilePosition};
use crate::loss::reconcile;
use crate::recording::{Loss, Recording};
use crate::unpack::{Packing, most_unpacked, unpack};
use events::Events;
use wire::{Message, Value};

/// Name of the annotation that has the machine, as TOML.
const MACHINE: &[u8] = b"machine.toml";
const FORMAT: &str = "Perfetto trace";
const COMMAND: &str = "data source linux.ftrace with sched/sched_switch, sched/sched_waking, sched/sched_process_exit, \
                       sched/sched_process_fork and task/task_newtask";

/// Fields of `TracePacket`.
mod packet {
    pub(crate) const FTRACE_EVENTS: u32 = 1;
    pub(crate) const PROCESS_TREE: u32 = 2;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const FTRACE_STATS: u32 = 34;
    pub const DROPPED: u32 = 42;
    pub(crate) const PACKED: u32 = 50;
}

/// Whether bytes begin like a trace: with a packet that is a message.
pub(crate) fn looks_like(bytes: &[u8]) -> bool {
    let mut fields = Message::new(bytes, 0);
    match fields.next() {
        Some(Ok((1, Value::Bytes(packet)))) => packet.is_message(),
        _ => false,
    }
}

/// Reads a trace.
///
/// # Errors
/// A packet that contradicts itself, or no event of the scheduler.
pub fn read(file: &[u8]) -> Result<Recording, CaptureError> {
    let mut reader = PerfettoReader::default();
    let mut packets = Message::new(file, 0);
    let mut room = most_unpacked(file.len());
    loop {
        let place = packets.place();
        match packets.next() {
            None => break,
            Some(Ok((1, Value::Bytes(packet)))) => reader.packet(packet, &mut room)?,
            // Fields that are not known yet.
            Some(Ok(_)) => {}
            // The packet at which the file ends.
            Some(Err(error)) if error.is_cut_off => {
                reader.cut_off = Some(place);
                reader.recording.lost.push(Loss { cpu: None, before_ns: None, events: None });
                let note = format!("the file ends early, in the packet at byte {place}: what followed is not there");
                reader.recording.notes.push(note);
                break;
            }
            Some(Err(error)) => return Err(error.into()),
        }
    }
    reader.finish()
}

#[derive(Default)]
struct PerfettoReader {
    recording: Recording,
    events: Events,
    /// Kernel's counts of lost events at the start and the end, by CPU.
    counts: BTreeMap<u32, [Option<u64>; 2]>,
    /// Where the packet begins in which the file ends.
    cut_off: Option<usize>,
}

impl PerfettoReader {
    fn packet(&mut self, packet: Message<'_>, room: &mut usize) -> Result<(), CaptureError> {
        for field in packet {
            match field? {
                (packet::FTRACE_EVENTS, Value::Bytes(bundle)) => self.events.bundle(bundle)?,
                (packet::PROCESS_TREE, Value::Bytes(tree)) => self.process_tree(tree)?,
                (packet::TRACK_EVENT, Value::Bytes(event)) if self.recording.machine.is_none() => {
                    self.machine(event)?
                }
                (packet::FTRACE_STATS, Value::Bytes(stats)) => self.stats(stats)?,
                (packet::DROPPED, Value::Number(1)) => {
                    let note = "some packets were dropped before they reached the file";
                    if !self.recording.notes.iter().any(|known| known == note) {
                        self.recording.notes.push(note.into());
                        self.recording.lost.push(Loss { cpu: None, before_ns: None, events: None });
                    }
                }
                (packet::PACKED, Value::Bytes(packed)) => {
                    let place = packed.place();
                    let damaged =
                        |reason| CaptureError::Damaged { format: FORMAT, place: FilePosition::Byte(place), reason };
                    let bytes = unpack(Packing::Zlib, packed.bytes(), *room).map_err(damaged)?;
                    *room -= bytes.len();
                    for field in Message::new(&bytes, place) {
                        // Packed packets have no packed packets in them.
                        if let (1, Value::Bytes(packet)) = field? {
                            self.packet(packet, &mut 0)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The machine, which stands in an annotation of an event, as `warmcore report` writes it: annotations 4, with text 6 and name 10.
    fn machine(&mut self, event: Message<'_>) -> Result<(), CaptureError> {
        for field in event {
            let (4, Value::Bytes(annotation)) = field? else { continue };
            let (mut is_machine, mut said) = (false, None);
            for field in annotation {
                match field? {
                    (6, Value::Bytes(text)) => said = Some(text),
                    (10, Value::Bytes(name)) => is_machine = name.bytes() == MACHINE,
                    _ => {}
                }
            }
            if let Some(text) = said.filter(|_| is_machine) {
                self.recording.machine = Some(text_of(text.bytes()));
            }
        }
        Ok(())
    }

    /// Field 1 is processes: pid 1, command line 3; field 2 is threads: tid 1, name 2, process 3.
    fn process_tree(&mut self, tree: Message<'_>) -> Result<(), CaptureError> {
        for field in tree {
            let (kind, Value::Bytes(entry)) = field? else { continue };
            let (mut id, mut process, mut name) = (0, None, None);
            for field in entry {
                match (kind, field?) {
                    (_, (1, Value::Number(number))) => id = number as i32,
                    (2, (3, Value::Number(number))) => process = Some(number as i32),
                    (1, (3, Value::Bytes(text))) => name = name.or_else(|| Some(text_of(text.bytes()))),
                    (2, (2, Value::Bytes(text))) => name = Some(text_of(text.bytes())),
                    _ => {}
                }
            }
            match kind {
                1 => self.recording.process(id, id),
                2 => process.into_iter().for_each(|process| self.recording.process(id, process)),
                _ => continue,
            }
            if let Some(name) = name {
                // A thread's own name is better than its process's command line.
                match kind {
                    1 => self.recording.name_unless_known(id, name.rsplit('/').next().unwrap_or_default()),
                    _ => self.recording.name(id, &name),
                }
            }
        }
        Ok(())
    }

    /// Field 1 is the phase, 1 at the start and 2 at the end; field 2 is CPUs: number 1, overrun 3, commit overrun 4, dropped 8.
    fn stats(&mut self, stats: Message<'_>) -> Result<(), CaptureError> {
        let mut phase = 0;
        let mut counts = BTreeMap::new();
        for field in stats {
            match field? {
                (1, Value::Number(number)) => phase = number,
                (2, Value::Bytes(cpu)) => {
                    let (mut number, mut lost) = (0, 0_u64);
                    for field in cpu {
                        match field? {
                            (1, Value::Number(cpu)) => number = cpu,
                            (3 | 4 | 8, Value::Number(events)) => lost = lost.saturating_add(events),
                            _ => {}
                        }
                    }
                    counts.extend(u32::try_from(number).ok().map(|cpu| (cpu, lost)));
                }
                _ => {}
            }
        }
        let Some(phase) = [1, 2].iter().position(|known| *known == phase) else { return Ok(()) };
        for (cpu, lost) in counts {
            self.counts.entry(cpu).or_default()[phase] = Some(lost);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Recording, CaptureError> {
        let mut gaps = self.events.finish(&mut self.recording);
        if let Some(place) = self.cut_off.filter(|_| self.recording.records.is_empty()) {
            let reason =
                "the file ends early, in the packet that begins there, before the first event of the scheduler";
            let place = FilePosition::Byte(place);
            return Err(CaptureError::Damaged { format: FORMAT, place, reason: reason.into() });
        }
        if self.recording.records.is_empty() {
            return Err(CaptureError::NoSchedule { format: FORMAT, command: COMMAND });
        }
        for cpu in self.counts.keys() {
            gaps.entry(*cpu).or_default();
        }
        for (cpu, gaps) in gaps {
            let counted =
                self.counts.get(&cpu).and_then(|[start, end]| Some((*end)?.saturating_sub(start.unwrap_or(0))));
            self.recording.lost.extend(reconcile(cpu, gaps, counted));
        }
        self.recording.source = FORMAT.into();
        Ok(self.recording.finished())
    }
}
