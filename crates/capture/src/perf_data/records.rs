//! The records of a file, one after the other.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::attributes::{Attribute, Attributes, Identity};
use super::{COMMAND, FORMAT, accounts};
use crate::bytes::{Bytes, text_of};
use crate::error::CaptureError;
use crate::priorities::Priorities;
use crate::record::{Context, EventReaders, MOST_CPUS, Record, What};
use crate::recording::{Births, LatestNames, Loss, Recording};
use crate::trace_dat::sections::Parts;
use crate::unpack::most_unpacked;

/// `PERF_RECORD_*`.
mod kind {
    pub const LOST: u32 = 2;
    pub(crate) const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub(crate) const LOST_SAMPLES: u32 = 13;
    pub(crate) const HEADER_ATTR: u32 = 64;
    pub(crate) const TRACING_DATA: u32 = 66;
    pub(crate) const AUXTRACE: u32 = 71;
    pub(crate) const COMPRESSED: u32 = 81;
    pub(crate) const COMPRESSED_2: u32 = 83;
}

/// In `COMM`: the name changed because the thread runs another program.
const EXECUTED: u16 = 1 << 13;
/// In `LOST_SAMPLES`: left out on purpose, by a filter.
const FILTERED: u16 = 1 << 15;

/// Collects what records say.
pub(super) struct Records {
    attributes: Attributes,
    readers: Option<EventReaders>,
    recording: Recording,
    names: LatestNames,
    priorities: Priorities,
    births: Births,
    /// Number of lost samples, all in all.
    samples_lost: u64,
    /// Forks, programs begun, and exits as perf saw them, for files without such events.
    forks: Vec<Record>,
    execs: Vec<Record>,
    exits: Vec<Record>,
    /// Samples that could not be of any event that is described.
    of_no_event: u64,
    unpacker: Unpacker,
    is_pipe: bool,
}

impl Records {
    pub fn new(
        attributes: Attributes,
        parts: Option<Parts>,
        is_pipe: bool,
        file_bytes: usize,
    ) -> Result<Self, CaptureError> {
        let mut records = Self {
            attributes,
            readers: None,
            recording: Recording::default(),
            names: LatestNames::default(),
            priorities: Priorities::default(),
            births: Births::default(),
            samples_lost: 0,
            forks: Vec::new(),
            execs: Vec::new(),
            exits: Vec::new(),
            of_no_event: 0,
            unpacker: Unpacker { decoder: None, unpacked: Vec::new(), room: most_unpacked(file_bytes) },
            is_pipe,
        };
        if let Some(parts) = parts {
            records.describe(parts).map_err(|reason| Bytes::new(FORMAT, &[]).damaged(reason))?;
        }
        Ok(records)
    }

    fn describe(&mut self, parts: Parts) -> Result<(), String> {
        parts.names.iter().for_each(|(thread, name)| self.names.take(0, *thread, name));
        if !parts.formats.is_empty() {
            self.readers = Some(EventReaders::new(parts.formats.iter().map(String::as_str))?);
        }
        Ok(())
    }

    /// Reads records. Returns where the bytes end within a record, if they do.
    pub fn read(&mut self, bytes: &[u8], origin: usize) -> Result<Option<usize>, CaptureError> {
        let mut at = Bytes::within(FORMAT, bytes, origin);
        while !at.is_empty() {
            let here = at;
            let Some((kind, flags, mut body)) = header(&mut at)? else { return Ok(Some(here.place())) };
            match kind {
                kind::TRACING_DATA if self.is_pipe => {
                    let length = body.u32("the length of the descriptions")?;
                    let origin = at.place();
                    let Ok(inside) = at.take(length.into(), "the descriptions of events") else {
                        return Ok(Some(here.place()));
                    };
                    let parts = Parts::of_perf(Bytes::within(FORMAT, inside, origin))?;
                    self.describe(parts).map_err(|reason| here.damaged(reason))?;
                }
                kind::AUXTRACE => {
                    let length = body.u64("the length of what follows")?;
                    if at.take(length, "what follows").is_err() {
                        return Ok(Some(here.place()));
                    }
                }
                kind::COMPRESSED | kind::COMPRESSED_2 => {
                    if kind == kind::COMPRESSED_2 {
                        let length = body.u64("the packed length")?;
                        body = Bytes::within(FORMAT, body.take(length, "packed records")?, body.place());
                    }
                    self.unpacker.take(body.rest()).map_err(|reason| here.damaged(reason))?;
                    self.unpacked(here)?;
                }
                _ => self.record(kind, flags, body)?,
            }
        }
        Ok((!self.unpacker.unpacked.is_empty()).then(|| at.place()))
    }

    /// Reads the whole records among what is unpacked; the rest waits for more.
    fn unpacked(&mut self, place: Bytes<'_>) -> Result<(), CaptureError> {
        let unpacked = std::mem::take(&mut self.unpacker.unpacked);
        let mut at = Bytes::within(FORMAT, &unpacked, place.place());
        let mut done = 0;
        while let Some((kind, flags, body)) = header(&mut at)? {
            self.record(kind, flags, body)?;
            done = unpacked.len() - at.rest().len();
        }
        self.unpacker.unpacked = unpacked[done..].to_vec();
        Ok(())
    }

    fn record(&mut self, kind: u32, flags: u16, mut body: Bytes<'_>) -> Result<(), CaptureError> {
        match kind {
            kind::SAMPLE => self.sample(body),
            kind::HEADER_ATTR => {
                let bytes = body.rest();
                let size = bytes.get(4..8).map_or(0, |size| u32::from_le_bytes(size.try_into().expect("four bytes")));
                let attribute = body.take(size.into(), "an attribute")?;
                if attribute.len() < Attribute::LEAST_BYTES {
                    return Err(body.damaged(format!("{size} is not a length of an attribute")));
                }
                let ids = body.rest().chunks_exact(8);
                let ids = ids.map(|id| u64::from_le_bytes(id.try_into().expect("eight bytes"))).collect();
                self.attributes.add(Attribute::parse(attribute), ids);
                Ok(())
            }
            kind::COMM => {
                let identity = self.identity(body);
                let (process, thread) = (body.u32("a process")? as i32, body.u32("a thread")? as i32);
                self.names.take(identity.time_ns.unwrap_or(0), thread, &text_of(body.rest()));
                self.recording.process(thread, process);
                if flags & EXECUTED != 0 {
                    let exec = seen(identity, thread, What::Exec { thread }, body)?;
                    self.execs.extend(exec);
                }
                Ok(())
            }
            kind::FORK | kind::EXIT => {
                let identity = self.identity(body);
                let mut number = || body.u32("a thread").map(|thread| thread as i32);
                let (process, _, thread, parent) = (number()?, number()?, number()?, number()?);
                self.recording.process(thread, process);
                match kind {
                    kind::FORK => {
                        self.forks.extend(seen(identity, parent, What::Fork { parent, child: thread }, body)?)
                    }
                    _ => self.exits.extend(seen(identity, thread, What::Exit { thread }, body)?),
                }
                Ok(())
            }
            kind::LOST => {
                let identity = self.identity(body);
                body.u64("an id")?;
                let events = Some(body.u64("a number of lost events")?);
                let cpu = identity.cpu.filter(|cpu| *cpu < MOST_CPUS);
                self.recording.lost.push(Loss { cpu, before_ns: identity.time_ns, events });
                Ok(())
            }
            accounts::CPU | accounts::DOMAIN => Err(body.unsupported(
                "a file of `perf sched stats record`, which has accounts and no events",
                "`warmcore explain schedstat:FILE` reads it",
            )),
            kind::LOST_SAMPLES if flags & FILTERED == 0 => {
                let events = body.u64("a number of lost samples")?;
                self.samples_lost = self.samples_lost.saturating_add(events);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// When and where a record that is no sample was written.
    fn identity<'a>(&self, body: Bytes<'a>) -> Identity<'a> {
        let bytes = body.rest();
        self.attributes.of_other(bytes).and_then(|attribute| attribute.trailer(bytes)).unwrap_or_default()
    }

    fn sample(&mut self, body: Bytes<'_>) -> Result<(), CaptureError> {
        let Some(attribute) = self.attributes.of_sample(body.rest()) else {
            self.of_no_event += 1;
            return Ok(());
        };
        let sample =
            attribute.sample(body.rest()).ok_or_else(|| body.damaged("a sample is shorter than it should be"))?;
        if let Some((process, thread)) = sample.thread {
            self.recording.process(thread, process);
        }
        let (Some(raw), Some(readers)) = (sample.raw, &self.readers) else { return Ok(()) };
        let (Some(time_ns), Some(cpu)) = (sample.time_ns, sample.cpu) else {
            debug_assert!(!attribute.is_placed());
            return Err(body.unsupported("a sample without time or CPU", "record with `perf sched record`"));
        };
        if let Some(record) = readers.read(time_ns, cpu, raw).map_err(|reason| body.damaged(reason))? {
            self.recording.records.push(record);
            readers.names(raw, |thread, name| self.names.take(time_ns, thread, name));
            readers.priorities(raw, |thread, priority| self.priorities.take(thread, priority));
        } else if let Some(birth) = readers.birth(raw) {
            self.births.take(time_ns, birth);
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Recording, CaptureError> {
        if self.recording.records.is_empty() {
            return Err(CaptureError::NoSchedule { format: FORMAT, command: COMMAND });
        }
        let records = &mut self.recording.records;
        // perf sees these from the time on when it opens its events, which may be long before it records any.
        let times = || records.iter().map(|record| record.time_ns);
        let recorded = times().min().unwrap_or(0)..=times().max().unwrap_or(0);
        for seen in [&mut self.forks, &mut self.execs, &mut self.exits] {
            seen.retain(|record| recorded.contains(&record.time_ns));
        }
        let has = |records: &[Record], test: fn(&What) -> bool| records.iter().any(|record| test(&record.what));
        if !has(records, |what| matches!(what, What::Fork { .. })) {
            records.append(&mut self.forks);
        }
        if !has(records, |what| matches!(what, What::Exec { .. })) {
            records.append(&mut self.execs);
        }
        if !has(records, |what| matches!(what, What::Exit { .. })) {
            records.append(&mut self.exits);
        }
        // Both count the same samples. The CPU of `LOST_SAMPLES` means nothing: perf 6.1 writes all of them with that of the first.
        let known = self.recording.lost.iter().filter_map(|loss| loss.events).fold(0, u64::saturating_add);
        if self.samples_lost > known {
            let events = Some(self.samples_lost - known);
            self.recording.lost.push(Loss { cpu: None, before_ns: None, events });
        }
        if self.of_no_event > 0 {
            let note = format!("{} samples belong to no event that the file describes", self.of_no_event);
            self.recording.notes.push(note);
        }
        self.recording.clock = self.attributes.first().map(Attribute::clock);
        self.names.apply(&mut self.recording);
        self.priorities.apply(&mut self.recording);
        self.births.apply(&mut self.recording);
        Ok(self.recording)
    }
}

/// A record of what perf saw itself; none of what it only found when it began, which has no time.
fn seen(identity: Identity<'_>, by: i32, what: What, body: Bytes<'_>) -> Result<Option<Record>, CaptureError> {
    let (Some(time_ns), Some(cpu)) = (identity.time_ns.filter(|time| *time > 0), identity.cpu) else { return Ok(None) };
    if cpu >= MOST_CPUS {
        return Err(body.damaged(format!("no kernel has a CPU {cpu}")));
    }
    Ok(Some(Record { time_ns, cpu, by, context: Context::Thread, what }))
}

/// The next record's kind and flags, and what is in it; `None` if it is not whole.
pub(super) fn header<'a>(at: &mut Bytes<'a>) -> Result<Option<(u32, u16, Bytes<'a>)>, CaptureError> {
    let mut next = *at;
    let (Ok(kind), Ok(flags), Ok(length)) = (next.u32("a record"), next.u16("a record"), next.u16("a record")) else {
        return Ok(None);
    };
    if length < 8 {
        return Err(at.damaged(format!("{length} is not a length of a record")));
    }
    let origin = next.place();
    let Ok(body) = next.take(u64::from(length) - 8, "a record") else { return Ok(None) };
    *at = next;
    Ok(Some((kind, flags, Bytes::within(FORMAT, body, origin))))
}

/// Unpacks the one stream that all packed records are parts of.
struct Unpacker {
    decoder: Option<Decoder<'static>>,
    /// What is unpacked and not yet read.
    unpacked: Vec<u8>,
    /// How much more may be unpacked.
    room: usize,
}

impl Unpacker {
    fn take(&mut self, packed: &[u8]) -> Result<(), String> {
        let damaged = |error: std::io::Error| format!("the packed records are damaged ({error})");
        if self.decoder.is_none() {
            self.decoder = Some(Decoder::new().map_err(damaged)?);
        }
        let decoder = self.decoder.as_mut().expect("just made");
        let mut part = vec![0; 1 << 16];
        let mut input = InBuffer::around(packed);
        loop {
            let mut output = OutBuffer::around(&mut part[..]);
            decoder.run(&mut input, &mut output).map_err(damaged)?;
            let written = output.pos();
            self.room = self.room.checked_sub(written).ok_or("the packed records are larger than they can be")?;
            self.unpacked.extend(&part[..written]);
            // A full part may have more behind it.
            if input.pos() == packed.len() && written < part.len() {
                return Ok(());
            }
        }
    }
}
