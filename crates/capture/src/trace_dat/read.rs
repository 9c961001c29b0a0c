//! Reads versions 6 and 7.

use super::sections::{Buffer, Parts};
use super::{COMMAND, FORMAT};
use crate::error::{CaptureError, FilePosition};
use crate::loss::reconcile;
use crate::recording::{Loss, Recording};
use crate::ring::{PageReaders, PageRecords};

/// Clocks that count nanoseconds.
const CLOCKS: [&str; 8] = ["local", "global", "perf", "mono", "mono_raw", "boot", "tai", "ppc-tb"];

/// Reads a file of `trace-cmd`.
///
/// # Errors
/// A file that is damaged before its pages, or whose pages contradict themselves; a byte order, version, compression or clock
/// that is not read; no description of an event of the scheduler.
pub fn read(file: &[u8]) -> Result<Recording, CaptureError> {
    let mut parts = Parts::read(file)?;
    let damaged = |reason: String| CaptureError::Damaged { format: FORMAT, place: FilePosition::Byte(0), reason };
    if parts.formats.is_empty() {
        return Err(CaptureError::NoSchedule { format: FORMAT, command: COMMAND });
    }
    let readers = PageReaders::new(&parts.header_page, parts.formats.iter().map(String::as_str)).map_err(damaged)?;
    let buffers = std::mem::take(&mut parts.buffers);
    let mut read = Vec::new();
    for buffer in &buffers {
        read.push(BufferContents::read(file, &mut parts, buffer, &readers)?);
    }
    // Of several with the same number the first: the kernel's own buffer.
    let best = (0..read.len()).rev().max_by_key(|index| read[*index].pages.records.len());
    let Some(best) = best else {
        return Err(CaptureError::NoSchedule { format: FORMAT, command: COMMAND });
    };
    let notes = others(&buffers, &read, best);
    let buffer = &buffers[best];
    let contents = read.swap_remove(best);
    let mut recording = Recording {
        counters: parts.counters.take(),
        files: std::mem::take(&mut parts.files),
        homes: std::mem::take(&mut parts.homes),
        source: FORMAT.into(),
        clock: buffer.clock.clone(),
        cpus: buffer.cpus.iter().map(|(cpu, ..)| cpu.saturating_add(1)).max().unwrap_or(0),
        records: contents.pages.records,
        lost: contents.lost,
        notes: std::mem::take(&mut parts.notes).into_iter().chain(contents.notes).chain(notes).collect(),
        ..Recording::default()
    };
    contents.pages.names.apply(&mut recording);
    parts.names.iter().for_each(|(thread, name)| recording.name_unless_known(*thread, name));
    parts.processes.iter().for_each(|(thread, process)| recording.process(*thread, *process));
    contents.pages.births.apply(&mut recording);
    if parts.time_shift {
        recording.notes.push("times are the guest's: the file's relation to its host's clock is not applied".into());
    }
    Ok(recording.finished())
}

/// A note for every other buffer that has records.
fn others(buffers: &[Buffer], read: &[BufferContents], best: usize) -> Vec<String> {
    let title = |buffer: &Buffer| match buffer.name.as_str() {
        "" => "the kernel's own buffer".to_owned(),
        name => format!("buffer `{name}`"),
    };
    let others = (0..read.len()).filter(|index| *index != best && !read[*index].pages.records.is_empty());
    let note = |index: usize| {
        let (records, this) = (read[index].pages.records.len(), title(&buffers[best]));
        format!("{records} records of {} are left out: {this} has more and is read", title(&buffers[index]))
    };
    others.map(note).collect()
}

/// What a buffer says.
#[derive(Default)]
struct BufferContents {
    pages: PageRecords,
    lost: Vec<Loss>,
    notes: Vec<String>,
}

impl BufferContents {
    fn read(file: &[u8], parts: &mut Parts, buffer: &Buffer, readers: &PageReaders) -> Result<Self, CaptureError> {
        let mut contents = Self::default();
        for (cpu, offset, length) in &buffer.cpus {
            let pages = parts.pages(file, buffer, (*offset, *length))?;
            let mut gaps = Vec::new();
            for (number, page) in pages.bytes.chunks(buffer.page_bytes).enumerate() {
                let place = if buffer.packed { pages.origin } else { pages.origin + number * buffer.page_bytes };
                contents.pages.page(*cpu, page, readers, &mut gaps).map_err(|reason| CaptureError::Damaged {
                    format: FORMAT,
                    place: FilePosition::Byte(place),
                    reason: format!("page {number} of CPU {cpu}: {reason}"),
                })?;
            }
            let counted = parts.lost.get(&(buffer.name.clone(), *cpu)).copied();
            contents.lost.extend(reconcile(*cpu, gaps, counted));
            if pages.missing > 0 {
                contents.lost.push(Loss { cpu: Some(*cpu), before_ns: None, events: None });
                contents.notes.push(format!(
                    "the file ends early: the last {} bytes of CPU {cpu}, from byte {} on, are not there",
                    pages.missing,
                    file.len()
                ));
            }
        }
        contents.convert_times(parts, buffer)?;
        Ok(contents)
    }

    /// Times of the processor's counter become nanoseconds; of clocks that count nothing of the kind, records are refused.
    fn convert_times(&mut self, parts: &Parts, buffer: &Buffer) -> Result<(), CaptureError> {
        let Some(clock) = buffer.clock.as_deref() else { return Ok(()) };
        if self.pages.records.is_empty() || CLOCKS.contains(&clock) {
            return Ok(());
        }
        let (Some((multiplier, shift)), "x86-tsc") = (parts.tsc, clock) else {
            return Err(CaptureError::Unsupported {
                format: FORMAT,
                place: FilePosition::Byte(0),
                what: format!("the clock `{clock}`, which does not count nanoseconds,"),
                instead: "record with another, such as `trace-cmd record -C mono`",
            });
        };
        let convert = |time: u64| ((u128::from(time) * u128::from(multiplier)) >> shift.min(127)) as u64;
        self.pages.records.iter_mut().for_each(|record| record.time_ns = convert(record.time_ns));
        self.lost.iter_mut().for_each(|loss| loss.before_ns = loss.before_ns.map(convert));
        self.notes.push("times are the processor's counter, converted as the file says".into());
        Ok(())
    }
}
