//! The parts of a file: where they lie in versions 6 and 7, and what stands in them before the pages.

use std::collections::{BTreeMap, BTreeSet};

use super::{FORMAT, MAGIC, option};
use crate::bytes::{Bytes, text_of};
use crate::counters::CounterLog;
use crate::error::CaptureError;
use crate::extras;
use crate::files::OpenFiles;
use crate::homes::PageHomes;
use crate::record::MOST_CPUS;
use crate::unpack::{Packing, most_unpacked, unpack};

/// Longest name of a clock.
pub(super) const MOST_CLOCK_BYTES: u64 = 1024;

/// All of a file but its pages.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub header_page: String,
    /// Of events of the scheduler and of births.
    pub formats: Vec<String>,
    pub names: BTreeMap<i32, String>,
    pub processes: BTreeMap<i32, i32>,
    pub counters: Option<CounterLog>,
    pub files: OpenFiles,
    pub homes: PageHomes,
    pub notes: Vec<String>,
    pub buffers: Vec<Buffer>,
    /// Events that the kernel counted as lost, by name of the buffer and CPU.
    pub lost: BTreeMap<(String, u32), u64>,
    /// Multiplier and shift that make nanoseconds of `x86-tsc`.
    pub tsc: Option<(u32, u32)>,
    /// Whether the clocks are a guest's, and the file has what relates them to its host's.
    pub time_shift: bool,
    pub packing: Option<Packing>,
    /// Buffer that statistics are of, and the clock's text in options.
    statistics_of: String,
    clock: String,
    /// CPUs of instances in version 6.
    cpus: u32,
    /// How much more may be unpacked.
    pub room: usize,
    /// How much of the file may still be pages: no byte is a page of two CPUs.
    pub pages_left: u64,
    /// Where the last table of pages of version 6 ends. The clock may be behind it.
    pub tables_end: usize,
}

/// Where the pages of a buffer lie.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Empty for the kernel's own.
    pub name: String,
    pub clock: Option<String>,
    pub page_bytes: usize,
    /// Whether pages are packed, in chunks.
    pub packed: bool,
    /// CPU, first byte and length of its pages.
    pub cpus: Vec<(u32, u64, u64)>,
}

impl Parts {
    pub fn read(file: &[u8]) -> Result<Self, CaptureError> {
        let mut at = Bytes::new(FORMAT, file);
        let (version, page_bytes) = beginning(&mut at)?;
        match version {
            "6" => Self::version_6(file, at, page_bytes),
            "7" => Self::version_7(file, at),
            _ => Err(at.unsupported(
                format!("version {version}"),
                "versions 6 and 7 can: `trace-cmd convert --file-version 7 -i FILE -o NEW`",
            )),
        }
    }

    /// What `perf.data` keeps of tracefs, which is the beginning of an old file of this format.
    pub(crate) fn of_perf(mut at: Bytes<'_>) -> Result<Self, CaptureError> {
        let (version, _) = beginning(&mut at)?;
        let mut parts = Self::default();
        parts.descriptions(&mut at)?;
        // From version 0.6 on there are names.
        if version != "0.5" && !at.is_empty() {
            parts.names(&mut at)?;
        }
        Ok(parts)
    }

    /// Headers, formats, addresses and formats of printk, one after the other.
    fn descriptions(&mut self, at: &mut Bytes<'_>) -> Result<(), CaptureError> {
        self.header_info(at)?;
        tracers(at)?;
        self.event_formats(at)?;
        for what in ["the addresses of functions", "the formats of printk"] {
            let length = at.u32(what)?;
            at.take(length.into(), what)?;
        }
        Ok(())
    }

    fn version_6(file: &[u8], mut at: Bytes<'_>, page_bytes: usize) -> Result<Self, CaptureError> {
        let mut parts = Self { pages_left: file.len() as u64, ..Self::default() };
        parts.descriptions(&mut at)?;
        parts.names(&mut at)?;
        let cpus = at.u32("the number of CPUs")?;
        parts.cpus = cpus;
        let mut instances = Vec::new();
        let mut kind = at.take(10, "the kind of the data")?;
        if kind == b"options  \0" {
            loop {
                let option = at.u16("an option")?;
                if option == option::DONE {
                    break;
                }
                let length = at.u32("the length of an option")?;
                let here = at.place();
                let data = at.take(length.into(), "an option")?;
                let mut data = Bytes::within(FORMAT, data, here);
                if option == option::BUFFER {
                    instances.push((data.u64("where a buffer lies")?, data.text("the name of a buffer")?.to_owned()));
                } else {
                    parts.option(option, data, length)?;
                }
            }
            kind = at.take(10, "the kind of the data")?;
        }
        let clock = (!parts.clock.is_empty()).then(|| parts.clock.clone());
        parts.buffers.push(table(&mut at, kind, (String::new(), clock.clone()), cpus, page_bytes)?);
        parts.tables_end = at.place();
        for (offset, name) in instances {
            let mut at = Bytes::new(FORMAT, file).seek(offset)?;
            let kind = at.take(10, "the kind of the data")?;
            parts.buffers.push(table(&mut at, kind, (name, clock.clone()), parts.cpus, page_bytes)?);
            parts.tables_end = parts.tables_end.max(at.place());
        }
        Ok(parts)
    }

    fn version_7(file: &[u8], mut at: Bytes<'_>) -> Result<Self, CaptureError> {
        let packing = match at.text("the name of the compression")? {
            "none" | "" => None,
            "zstd" => Some(Packing::Zstd),
            "zlib" => Some(Packing::Zlib),
            other => {
                return Err(at.unsupported(
                    format!("the compression `{other}`"),
                    "unpack it: `trace-cmd convert --compression none -i FILE -o NEW`",
                ));
            }
        };
        at.text("the version of the compression")?;
        let room = most_unpacked(file.len());
        let mut parts = Self { packing, room, pages_left: file.len() as u64, ..Self::default() };
        let mut next = at.u64("where the options lie")?;
        let mut been = BTreeSet::new();
        loop {
            if !been.insert(next) {
                return Err(at.damaged("its options go round in a circle"));
            }
            let section = Section::read(file, next, packing, &mut parts.room)?;
            let mut at = section.bytes();
            next = 0;
            while !at.is_empty() {
                let option = at.u16("an option")?;
                let length = at.u32("the length of an option")?;
                let here = at.place();
                let data = Bytes::within(FORMAT, at.take(length.into(), "an option")?, here);
                if option == option::DONE {
                    next = { data }.u64("where more options lie")?;
                    break;
                }
                parts.option_of_version_7(file, option, data, length)?;
            }
            if next == 0 {
                return Ok(parts);
            }
        }
    }

    fn option_of_version_7(
        &mut self,
        file: &[u8],
        option: u16,
        mut data: Bytes<'_>,
        length: u32,
    ) -> Result<(), CaptureError> {
        if !matches!(option, option::HEADER_INFO | option::EVENT_FORMATS | option::NAMES | option::BUFFER) {
            return self.option(option, data, length);
        }
        let offset = data.u64("where a section lies")?;
        if option == option::BUFFER {
            return self.buffer(file, offset, data);
        }
        let there_is_one = match option {
            option::HEADER_INFO => !self.header_page.is_empty(),
            option::EVENT_FORMATS => !self.formats.is_empty(),
            _ => !self.names.is_empty(),
        };
        if there_is_one {
            return Err(data.damaged("a section of which there may be one comes twice"));
        }
        let section = Section::read(file, offset, self.packing, &mut self.room)?;
        let mut at = section.bytes();
        match option {
            option::HEADER_INFO => self.header_info(&mut at),
            option::EVENT_FORMATS => self.event_formats(&mut at),
            _ => self.names(&mut at),
        }
    }

    /// A buffer as version 7 describes it.
    fn buffer(&mut self, file: &[u8], section: u64, mut data: Bytes<'_>) -> Result<(), CaptureError> {
        let name = data.text("the name of a buffer")?.to_owned();
        let clock = Some(clock_name(data.text("the clock of a buffer")?));
        let page_bytes = data.u32("the length of a page")? as usize;
        if !page_bytes.is_power_of_two() || !(1024..=1 << 24).contains(&page_bytes) {
            return Err(data.damaged(format!("{page_bytes} is not the length of a page")));
        }
        let mut cpus = Vec::new();
        for _ in 0..data.u32("the number of CPUs")? {
            let cpu = data.u32("a CPU")?;
            if cpu >= MOST_CPUS {
                return Err(data.damaged(format!("no kernel has a CPU {cpu}")));
            }
            cpus.push((cpu, data.u64("where pages lie")?, data.u64("the length of pages")?));
        }
        // A file that ends before its pages has no header of them either.
        let flags = Bytes::new(FORMAT, file).seek(section).and_then(|mut at| {
            at.u16("a section")?;
            at.u16("the flags of a section")
        })?;
        self.buffers.push(Buffer { name, clock, page_bytes, packed: flags & 1 != 0, cpus });
        Ok(())
    }

    /// An option that both versions have.
    fn option(&mut self, option: u16, mut data: Bytes<'_>, length: u32) -> Result<(), CaptureError> {
        match option {
            option::CLOCK => self.clock = clock_name(&text_of(data.take(length.into(), "the clock")?)),
            option::CPU_COUNT => self.cpus = data.u32("the number of CPUs")?,
            option::TIME_SHIFT => self.time_shift = true,
            option::TSC_TO_NS => self.tsc = Some((data.u32("a multiplier")?, data.u32("a shift")?)),
            option::CPU_STATISTICS => {
                let text = text_of(data.take(length.into(), "the statistics of a CPU")?);
                match text.trim().strip_prefix("Buffer:") {
                    Some(name) => name.trim().clone_into(&mut self.statistics_of),
                    None => self.statistics(&text),
                }
            }
            option::COUNTERS => self.counters = Some(extras::read_counters(&mut data)?),
            option::FILES => self.files = extras::read_files(&mut data)?,
            option::NOTES => self.notes = extras::read_notes(&mut data)?,
            option::HOMES => self.homes = extras::read_homes(&mut data)?,
            option::PROCESSES => {
                let text = text_of(data.take(length.into(), "the processes of threads")?);
                for (thread, process) in numbered(&text) {
                    self.processes.extend(process.parse().ok().map(|process| (thread, process)));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The text of `per_cpu/cpuN/stats`.
    fn statistics(&mut self, text: &str) {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        let lost = ["overrun:", "commit overrun:", "dropped events:"].into_iter().filter_map(value);
        if let Some(cpu) = value("CPU:").and_then(|cpu| u32::try_from(cpu).ok()) {
            self.lost.insert((self.statistics_of.clone(), cpu), lost.fold(0, u64::saturating_add));
        }
    }

    fn header_info(&mut self, at: &mut Bytes<'_>) -> Result<(), CaptureError> {
        at.expect(b"header_page\0", "the header of pages")?;
        self.header_page = sized(at, "the header of pages")?;
        at.expect(b"header_event\0", "the header of events")?;
        sized(at, "the header of events").map(|_| ())
    }

    fn event_formats(&mut self, at: &mut Bytes<'_>) -> Result<(), CaptureError> {
        for _ in 0..at.u32("the number of systems")? {
            let system = at.text("the name of a system")?;
            for _ in 0..at.u32("the number of events")? {
                let text = sized(at, "the format of an event")?;
                // Of system calls there are hundreds, and a few are read.
                let is_read = || matches!(system, "syscalls" | "sock") && crate::record::is_described_by(&text);
                if matches!(system, "sched" | "task" | "cpuhp") || is_read() {
                    self.formats.push(text);
                }
            }
        }
        Ok(())
    }

    fn names(&mut self, at: &mut Bytes<'_>) -> Result<(), CaptureError> {
        let text = sized(at, "the names of threads")?;
        self.names.extend(numbered(&text).map(|(thread, name)| (thread, name.to_owned())));
        Ok(())
    }
}

/// The version and the length of a page, which all files begin with.
fn beginning<'a>(at: &mut Bytes<'a>) -> Result<(&'a str, usize), CaptureError> {
    at.expect(MAGIC, "the name of the format")?;
    let version = at.text("the version")?;
    let byte_order = at.u8("the byte order")?;
    if byte_order != 0 {
        return Err(at.unsupported(
            "the byte order of a big-endian machine",
            "make text of it on any machine: `trace-cmd report -R -i FILE > trace.txt`",
        ));
    }
    let _long = at.u8("the length of a long")?;
    let page_bytes = at.u32("the length of a page")?;
    if !page_bytes.is_power_of_two() || !(1024..=1 << 24).contains(&page_bytes) {
        return Err(at.damaged(format!("{page_bytes} is not the length of a page")));
    }
    Ok((version, page_bytes as usize))
}

/// Lines that begin with a number.
fn numbered(text: &str) -> impl Iterator<Item = (i32, &str)> {
    text.lines().filter_map(|line| {
        let (number, rest) = line.trim_start().split_once(' ')?;
        Some((number.parse().ok()?, rest.trim()))
    })
}

fn sized(at: &mut Bytes<'_>, what: &str) -> Result<String, CaptureError> {
    let length = at.u64(what)?;
    Ok(text_of(at.take(length, what)?))
}

fn tracers(at: &mut Bytes<'_>) -> Result<(), CaptureError> {
    for _ in 0..at.u32("the number of tracers' events")? {
        sized(at, "the format of a tracer's event")?;
    }
    Ok(())
}

/// The chosen one of `local [mono] boot`, or the only one.
fn clock_name(text: &str) -> String {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(text.trim(), |(name, _)| name).to_owned()
}

/// Where the pages of a buffer lie, in version 6: a table, and the clock after it if there is an option that says so.
fn table(
    at: &mut Bytes<'_>,
    kind: &[u8],
    (name, clock): (String, Option<String>),
    cpus: u32,
    page_bytes: usize,
) -> Result<Buffer, CaptureError> {
    match kind {
        b"flyrecord\0" => {}
        b"latency  \0" => {
            return Err(at.unsupported("text of a latency tracer", "record events: see `trace-cmd record -e`"));
        }
        _ => return Err(at.damaged("the pages of the CPUs should begin here")),
    }
    let mut rows = Vec::new();
    if cpus > MOST_CPUS {
        return Err(at.damaged(format!("no kernel has {cpus} CPUs")));
    }
    for cpu in 0..cpus {
        rows.push((cpu, at.u64("where pages lie")?, at.u64("the length of pages")?));
    }
    // Old files have the option and not the text.
    let after = |mut at: Bytes<'_>| {
        let length = at.u64("the clock").ok().filter(|length| *length < MOST_CLOCK_BYTES)?;
        let text = text_of(at.take(length, "the clock").ok()?);
        text.contains('[').then(|| clock_name(&text))
    };
    let clock = clock.map(|in_option| after(*at).unwrap_or(in_option));
    Ok(Buffer { name, clock, page_bytes, packed: false, cpus: rows })
}

/// A section of version 7, unpacked.
struct Section<'a> {
    bytes: std::borrow::Cow<'a, [u8]>,
    origin: usize,
}

impl<'a> Section<'a> {
    fn read(file: &'a [u8], offset: u64, packing: Option<Packing>, room: &mut usize) -> Result<Self, CaptureError> {
        let mut at = Bytes::new(FORMAT, file).seek(offset)?;
        at.u16("a section")?;
        let flags = at.u16("the flags of a section")?;
        at.u32("the name of a section")?;
        let length = at.u64("the length of a section")?;
        let origin = at.place();
        if flags & 1 == 0 {
            return Ok(Self { bytes: at.take(length, "a section")?.into(), origin });
        }
        Ok(Self { bytes: chunk(&mut at, packing, room)?.into(), origin })
    }

    fn bytes(&self) -> Bytes<'_> {
        Bytes::within(FORMAT, &self.bytes, self.origin)
    }
}

/// Unpacks what begins with its packed and its unpacked length, and takes it from the room that there is.
pub(super) fn chunk(at: &mut Bytes<'_>, packing: Option<Packing>, room: &mut usize) -> Result<Vec<u8>, CaptureError> {
    let Some(packing) = packing else {
        return Err(at.damaged("a part is packed, and the file does not say how"));
    };
    let packed = at.u32("the packed length")?;
    let length = at.u32("the unpacked length")? as usize;
    let here = *at;
    if length > *room {
        return Err(here.damaged(format!("a packed part claims {length} bytes, more than such a file can have")));
    }
    let bytes =
        unpack(packing, at.take(packed.into(), "a packed part")?, length).map_err(|reason| here.damaged(reason))?;
    if bytes.len() != length {
        return Err(here.damaged("a packed part has another length than it says"));
    }
    *room -= length;
    Ok(bytes)
}
