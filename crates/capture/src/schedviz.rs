//! Collections of SchedViz: an archive (`.tar.gz`) with descriptions (`formats/header_page`, `formats/SYSTEM/EVENT/format`) and the
//! pages of each CPU (`traces/cpuN`), as its `trace.sh` collects them. Collections made with BPF have neither and are refused.
//!
//! Pages show gaps where a kernel marked them; the collections have no counts of lost events, and no name of the clock.
//!
//! Source: `util/trace.sh` and `analysis/event_loaders.go` of SchedViz; the archive's format: `tar(5)`, ustar.

use std::collections::BTreeMap;
use std::io::Read;

use crate::bytes::text_of;
use crate::error::{CaptureError, FilePosition};
use crate::recording::{Loss, Recording};
use crate::ring::{PageReaders, PageRecords};
use crate::unpack::most_unpacked;

const FORMAT: &str = "SchedViz collection";
const COMMAND: &str = "SchedViz's `trace.sh`, or `trace-cmd record -e sched COMMAND`";
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Bytes of a header and of what files are padded to.
const BLOCK: usize = 512;
/// Bytes of a page of all kernels of which there are collections.
const PAGE: usize = 4096;

/// Whether it is a packed archive that begins like a collection.
pub(crate) fn looks_like(bytes: &[u8]) -> bool {
    let mut block = [0; BLOCK];
    bytes.starts_with(GZIP)
        && flate2::read::GzDecoder::new(bytes).read_exact(&mut block).is_ok()
        && Entry::parse(&block).is_some_and(|entry| {
            let name = entry.name.trim_start_matches("./");
            ["formats", "traces", "metadata", "options", "topology", "ebpf_trace"]
                .iter()
                .any(|kind| name.starts_with(kind))
        })
}

/// Reads a collection.
///
/// # Errors
/// An archive that is damaged or too large for its length, one that BPF made, and one without the scheduler's events.
pub fn read(file: &[u8]) -> Result<Recording, CaptureError> {
    let damaged =
        |at: usize, reason: String| CaptureError::Damaged { format: FORMAT, place: FilePosition::Byte(at), reason };
    let most = most_unpacked(file.len());
    let mut archive = Vec::new();
    let unpacked = flate2::read::GzDecoder::new(file).take(most as u64 + 1).read_to_end(&mut archive);
    if archive.len() > most {
        return Err(damaged(0, format!("it unpacks to more than {most} bytes")));
    }
    let cut_off = unpacked.err().map(|error| format!("the archive is damaged or ends early ({error})"));
    let collection = Collection::of(&archive);
    if collection.of_bpf {
        return Err(CaptureError::Unsupported {
            format: FORMAT,
            place: FilePosition::Byte(0),
            what: "a trace collected with BPF".into(),
            instead: "collect with ftrace: `trace.sh`",
        });
    }
    // What is missing cannot be told from what never was: whether it is loss or error depends on what is there.
    if let (Some(reason), true) = (&cut_off, collection.pages.is_empty()) {
        return Err(damaged(0, reason.clone()));
    }
    if collection.formats.is_empty() || collection.pages.is_empty() {
        return Err(CaptureError::NoSchedule { format: FORMAT, command: COMMAND });
    }
    let readers = PageReaders::new(&collection.header_page, collection.formats.iter().map(String::as_str))
        .map_err(|reason| damaged(0, reason))?;
    let mut contents = PageRecords::default();
    let mut recording = Recording { source: FORMAT.into(), ..Recording::default() };
    for (cpu, (at, pages)) in collection.pages {
        recording.cpus = recording.cpus.max(cpu + 1);
        for (number, page) in pages.chunks(PAGE).enumerate() {
            contents.page(cpu, page, &readers, &mut recording.lost).map_err(|reason| {
                damaged(
                    at + number * PAGE,
                    format!("page {number} of CPU {cpu} (place in the unpacked archive): {reason}"),
                )
            })?;
        }
    }
    if let Some(reason) = cut_off {
        recording.lost.push(Loss { cpu: None, before_ns: None, events: None });
        recording.notes.push(format!("{reason}: the data after {} unpacked bytes is missing", archive.len()));
    }
    recording.records = contents.records;
    contents.names.apply(&mut recording);
    contents.priorities.apply(&mut recording);
    contents.births.apply(&mut recording);
    Ok(recording.finished())
}

/// What matters of an archive.
#[derive(Default)]
struct Collection<'a> {
    header_page: String,
    /// Of events of the scheduler and of births.
    formats: Vec<String>,
    /// Where in the archive the pages of a CPU begin, and those that are whole.
    pages: BTreeMap<u32, (usize, &'a [u8])>,
    of_bpf: bool,
}

impl<'a> Collection<'a> {
    fn of(archive: &'a [u8]) -> Self {
        let mut collection = Self::default();
        let mut at = 0;
        while let Some(entry) = archive.get(at..at + BLOCK).and_then(Entry::parse) {
            at += BLOCK;
            let end = at.saturating_add(entry.size);
            let file = &archive[at..end.min(archive.len())];
            collection.take(&entry.name, at, file, end <= archive.len());
            at = end.saturating_add(BLOCK - 1) / BLOCK * BLOCK;
        }
        collection
    }

    fn take(&mut self, name: &str, at: usize, file: &'a [u8], whole: bool) {
        let parts: Vec<&str> = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        match parts[..] {
            ["ebpf_trace"] => self.of_bpf = true,
            ["formats", "header_page"] if whole => self.header_page = text_of(file),
            ["formats", "sched" | "task" | "cpuhp", _, "format"] if whole => self.formats.push(text_of(file)),
            ["traces", cpu] => {
                let cpu = cpu.strip_prefix("cpu").and_then(|cpu| cpu.parse().ok());
                let pages = &file[..if whole { file.len() } else { file.len() / PAGE * PAGE }];
                self.pages.extend(cpu.filter(|cpu| *cpu < crate::record::MOST_CPUS).map(|cpu| (cpu, (at, pages))));
            }
            _ => {}
        }
    }
}

/// The header of a file in an archive.
struct Entry {
    name: String,
    size: usize,
}

impl Entry {
    /// Name at 0, length in octal at 124, `ustar` at 257, what stands before the name at 345.
    fn parse(block: &[u8]) -> Option<Self> {
        if block.len() < BLOCK || &block[257..262] != b"ustar" {
            return None;
        }
        let size = usize::from_str_radix(text_of(&block[124..136]).trim(), 8).ok()?;
        // GNU's archives have other things in the place of the prefix.
        let prefix = if block[262] == 0 { text_of(&block[345..500]) } else { String::new() };
        let name = text_of(&block[..100]);
        Some(Self { name: if prefix.is_empty() { name } else { format!("{prefix}/{name}") }, size })
    }
}
