//! Reads versions 6 and 7.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::pages::Extent;
use super::sections::{Buffer, MOST_CLOCK_BYTES, Parts};
use super::{COMMAND, FORMAT, MAGIC};
use crate::error::{CaptureError, FilePosition};
use crate::loss::reconcile;
use crate::paged::{CpuExtent, PageForm, PagedRecords, Source, read_exactly};
use crate::recording::{Loss, Recording};
use crate::ring::{PageReaders, PageRecords, Staying};

/// Clocks that count nanoseconds.
const CLOCKS: [&str; 8] = ["local", "global", "perf", "mono", "mono_raw", "boot", "tai", "ppc-tb"];

/// Reads a file of `trace-cmd`.
///
/// # Errors
/// A file that is damaged before its pages, or whose pages contradict themselves; a byte order, version, compression or clock
/// that is not read; no description of an event of the scheduler.
pub fn read(file: &[u8]) -> Result<Recording, CaptureError> {
    let mut parts = Parts::read(file)?;
    let readers = readers(&parts)?;
    let buffers = std::mem::take(&mut parts.buffers);
    let mut read = Vec::new();
    for buffer in &buffers {
        read.push(BufferContents::read(file, &mut parts, buffer, &readers)?);
    }
    let best = best(&read)?;
    let notes = others(&buffers, &read, best);
    let contents = read.swap_remove(best);
    let (recording, _) = recording(parts, (&buffers[best], contents), notes);
    Ok(recording.finished())
}

/// The same of a file that stays where it is: the records of a long one are not kept in memory, but read again whenever they are needed, if
/// the file is of version 6 and its CPUs' records are in order of time.
///
/// # Errors
/// As [`read`], and what the file cannot be read for.
pub fn open(source: Arc<dyn Source>) -> Result<Recording, CaptureError> {
    let unreadable = |error: std::io::Error| damaged(format!("it cannot be read: {error}"));
    if let Some(parts) = head(&*source).map_err(unreadable)?
        && let Some(recording) = in_pages(&source, parts)
    {
        return Ok(recording);
    }
    let mut bytes = vec![0; source.length() as usize];
    read_exactly(&*source, 0, &mut bytes).map_err(unreadable)?;
    read(&bytes)
}

fn damaged(reason: String) -> CaptureError {
    CaptureError::Damaged { format: FORMAT, place: FilePosition::Byte(0), reason }
}

fn readers(parts: &Parts) -> Result<PageReaders, CaptureError> {
    if parts.formats.is_empty() {
        return Err(CaptureError::NoSchedule { format: FORMAT, command: COMMAND });
    }
    PageReaders::new(&parts.header_page, parts.formats.iter().map(String::as_str)).map_err(damaged)
}

/// The buffer with the most records; of several with the same number the first, the kernel's own.
fn best(read: &[BufferContents]) -> Result<usize, CaptureError> {
    let best = (0..read.len()).rev().max_by_key(|index| read[*index].pages.count());
    best.ok_or(CaptureError::NoSchedule { format: FORMAT, command: COMMAND })
}

/// A recording of a buffer's contents, which is to be finished, and what is known of its records if they stay in their pages.
fn recording(
    mut parts: Parts,
    (buffer, contents): (&Buffer, BufferContents),
    notes: Vec<String>,
) -> (Recording, Option<Staying>) {
    let PageRecords { records, stay, names, priorities, births } = contents.pages;
    let mut recording = Recording {
        counters: parts.counters.take(),
        files: std::mem::take(&mut parts.files),
        homes: std::mem::take(&mut parts.homes),
        source: FORMAT.into(),
        clock: buffer.clock.clone(),
        cpus: buffer.cpus.iter().map(|(cpu, ..)| cpu.saturating_add(1)).max().unwrap_or(0),
        records,
        lost: contents.lost,
        ends_early: contents.ends_early,
        notes: std::mem::take(&mut parts.notes).into_iter().chain(contents.notes).chain(notes).collect(),
        ..Recording::default()
    };
    names.apply(&mut recording);
    priorities.apply(&mut recording);
    parts.names.iter().for_each(|(thread, name)| recording.name_unless_known(*thread, name));
    parts.processes.iter().for_each(|(thread, process)| recording.process(*thread, *process));
    births.apply(&mut recording);
    if parts.time_shift {
        recording.notes.push("times are the guest's: the file's relation to its host's clock is not applied".into());
    }
    (recording, stay)
}

/// Pages of a file that are looked at together.
const PAGES_AT_A_TIME: u64 = 64;

/// How much of a file is read at first to find its pages.
const FIRST_BYTES: u64 = 1 << 16;

/// What stands before the pages of a file of version 6; `None` if it is another file, or damaged.
fn head(source: &dyn Source) -> std::io::Result<Option<Parts>> {
    let length = source.length();
    let mut size = FIRST_BYTES.min(length);
    loop {
        let mut bytes = vec![0; size as usize];
        read_exactly(source, 0, &mut bytes)?;
        if !bytes.starts_with(&[MAGIC, b"6\0"].concat()) {
            return Ok(None);
        }
        match Parts::read(&bytes) {
            // The clock's name, which may be behind the table, is there too, if it is.
            Ok(mut parts) if size == length || parts.tables_end as u64 + 8 + MOST_CLOCK_BYTES <= size => {
                parts.pages_left = length;
                return Ok(Some(parts));
            }
            _ if size == length => return Ok(None),
            _ => size = size.saturating_mul(4).min(length),
        }
    }
}

/// A recording whose records stay in the pages of the file; `None` if they cannot, or if something is wrong with them.
fn in_pages(source: &Arc<dyn Source>, mut parts: Parts) -> Option<Recording> {
    let readers = readers(&parts).ok()?;
    let buffers = std::mem::take(&mut parts.buffers);
    let (mut read, mut extents) = (Vec::new(), Vec::new());
    for buffer in &buffers {
        if buffer.clock.as_deref().is_some_and(|clock| !CLOCKS.contains(&clock)) {
            return None;
        }
        let (contents, cpus) = BufferContents::look(source, &mut parts, buffer, &readers).ok()?;
        if contents.pages.stay.as_ref().is_none_or(|stay| stay.disordered) {
            return None;
        }
        read.push(contents);
        extents.push(cpus);
    }
    let best = best(&read).ok()?;
    let notes = others(&buffers, &read, best);
    let (contents, cpus) = (read.swap_remove(best), extents.swap_remove(best));
    let (mut recording, stay) = recording(parts, (&buffers[best], contents), notes);
    let Staying { tally, seen, .. } = stay?;
    let form = PageForm { layout: readers.layout, events: readers.events, page_bytes: buffers[best].page_bytes };
    recording.pages = Some(PagedRecords::new(Arc::clone(source), form, cpus, tally));
    Some(recording.finished_as(seen))
}

/// A note for every other buffer that has records.
fn others(buffers: &[Buffer], read: &[BufferContents], best: usize) -> Vec<String> {
    let title = |buffer: &Buffer| match buffer.name.as_str() {
        "" => "the kernel's own buffer".to_owned(),
        name => format!("buffer `{name}`"),
    };
    let others = (0..read.len()).filter(|index| *index != best && read[*index].pages.count() > 0);
    let note = |index: usize| {
        let (records, this) = (read[index].pages.count(), title(&buffers[best]));
        format!("{records} records of {} are left out: {this} has more and is read", title(&buffers[index]))
    };
    others.map(note).collect()
}

/// What a buffer says.
#[derive(Default)]
struct BufferContents {
    pages: PageRecords,
    lost: Vec<Loss>,
    /// CPUs of which not all pages are there.
    ends_early: BTreeSet<u32>,
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
                contents.page((*cpu, number, place), page, readers, &mut gaps)?;
            }
            contents.end_cpu(*cpu, gaps, (parts, buffer), (pages.missing, file.len() as u64));
        }
        contents.convert_times(parts, buffer)?;
        Ok(contents)
    }

    /// Looks at records that stay in their pages, and says where these are.
    fn look(
        source: &Arc<dyn Source>,
        parts: &mut Parts,
        buffer: &Buffer,
        readers: &PageReaders,
    ) -> Result<(Self, Vec<CpuExtent>), CaptureError> {
        let size = source.length();
        let mut contents = Self::default();
        contents.pages.stay = Some(Staying::default());
        let (mut cpus, mut bytes) = (Vec::new(), Vec::new());
        for (cpu, offset, length) in &buffer.cpus {
            let Extent { start, length, missing } = parts.extent(size, buffer, (*offset, *length))?;
            let (mut gaps, mut number, mut done) = (Vec::new(), 0, 0);
            while done < length {
                bytes.resize((length - done).min(PAGES_AT_A_TIME * buffer.page_bytes as u64) as usize, 0);
                let unreadable = |error: std::io::Error| damaged(format!("it cannot be read: {error}"));
                read_exactly(&**source, start + done, &mut bytes).map_err(unreadable)?;
                for page in bytes.chunks(buffer.page_bytes) {
                    let place = start as usize + number * buffer.page_bytes;
                    contents.page((*cpu, number, place), page, readers, &mut gaps)?;
                    number += 1;
                }
                done += bytes.len() as u64;
            }
            contents.end_cpu(*cpu, gaps, (parts, buffer), (missing, size));
            cpus.push(CpuExtent { cpu: *cpu, at: start, length });
        }
        Ok((contents, cpus))
    }

    /// Takes a page: of which CPU, its number, and where in the file it is.
    fn page(
        &mut self,
        (cpu, number, place): (u32, usize, usize),
        page: &[u8],
        readers: &PageReaders,
        gaps: &mut Vec<Loss>,
    ) -> Result<(), CaptureError> {
        self.pages.page(cpu, page, readers, gaps).map_err(|reason| CaptureError::Damaged {
            format: FORMAT,
            place: FilePosition::Byte(place),
            reason: format!("page {number} of CPU {cpu}: {reason}"),
        })
    }

    /// Takes the losses of a CPU. `missing`: bytes of its pages that a file of such a size has not.
    fn end_cpu(&mut self, cpu: u32, gaps: Vec<Loss>, (parts, buffer): (&Parts, &Buffer), (missing, size): (u64, u64)) {
        let counted = parts.lost.get(&(buffer.name.clone(), cpu)).copied();
        self.lost.extend(reconcile(cpu, gaps, counted));
        if missing > 0 {
            self.lost.push(Loss { cpu: Some(cpu), before_ns: None, events: None });
            self.ends_early.insert(cpu);
            self.notes.push(format!(
                "the file ends early: the last {missing} bytes of CPU {cpu}, from byte {size} on, are not there"
            ));
        }
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
