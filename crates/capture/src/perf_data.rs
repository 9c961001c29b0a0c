//! `perf.data` of `perf record` with events of the scheduler, as `perf sched record` makes it: files and pipes, also compressed
//! (`-z`). Version 1 and big-endian files are refused.
//!
//! - Events are the raw data of samples of tracepoints, read by the descriptions that the file has.
//! - Names come from the events and from `COMM` records, processes from `COMM`, `FORK`, `EXIT` and every sample. `perf sched record`
//!   records neither exits nor programs begun as events: then `EXIT` records are the exits, `COMM` records with `COMM_EXEC` the
//!   programs, and likewise `FORK` records where there is no such event.
//! - Losses are `LOST` records. `LOST_SAMPLES` count them again; what they count beyond them is a loss at an unknown place.
//! - A pipe that ends early is read up to there, with a loss; a file has its descriptions at its end and is refused.
//!
//! What `perf sched stats record` keeps is read by [`schedstat`].
//!
//! The format is read here and not by a library: those that there are allocate what a file claims.
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt`, `include/uapi/linux/perf_event.h`, Linux 6.18.

mod accounts;
mod attributes;
mod records;

use std::borrow::Cow;

use warmcore_trace::schedstat::Schedstat;

use crate::bytes::Bytes;
use crate::error::{CaptureError, FilePosition};
use crate::recording::{Loss, Recording};
use crate::trace_dat::sections::Parts;
use attributes::{Attribute, Attributes};
use records::Records;

const FORMAT: &str = "perf.data";
const COMMAND: &str = "`perf sched record COMMAND`";
/// What a file begins with: version 2, version 1, and version 2 of the other byte order.
pub(crate) const MAGIC: [&[u8]; 3] = [b"PERFILE2", b"PERFFILE", b"2ELIFREP"];
/// Bytes of the header of a pipe.
const PIPE_HEADER: u64 = 16;
/// The feature that holds what tracefs said.
const TRACING_DATA: u32 = 1;

/// Reads a file of `perf record`.
///
/// # Errors
/// A file that is damaged, of version 1 or another byte order, whose samples have no time or CPU, or without an event of the
/// scheduler.
pub fn read(file: &[u8]) -> Result<Recording, CaptureError> {
    open(file)?.recording(file.len())
}

/// Whether bytes begin as such a file, of whatever version.
pub fn is_one(file: &[u8]) -> bool {
    MAGIC.iter().any(|magic| file.starts_with(magic))
}

/// Reads the accounts by CPU and scheduling domain in a file of `perf sched stats record`: what was counted between its first and its last
/// reading.
///
/// # Errors
/// A file that is damaged, of version 1 or another byte order, a pipe, or without two readings of `/proc/schedstat` version 15 to 17.
pub fn schedstat(file: &[u8]) -> Result<Schedstat, CaptureError> {
    let Source { data, origin, is_pipe, domains, .. } = open(file)?;
    accounts::read(Bytes::within(FORMAT, &data, origin), is_pipe, domains)
}

fn open(file: &[u8]) -> Result<Source<'_>, CaptureError> {
    let mut at = Bytes::new(FORMAT, file);
    match at.take(8, "the name of the format")? {
        name if name == MAGIC[0] => {}
        name if name == MAGIC[1] => {
            return Err(at.unsupported("version 1", "convert it with its own perf: `perf script --ns > trace.txt`"));
        }
        name if name == MAGIC[2] => {
            return Err(at.unsupported(
                "the byte order of a big-endian machine",
                "make text of it there: `perf script --ns > trace.txt`",
            ));
        }
        _ => return Err(at.damaged("it does not begin with PERFILE2")),
    }
    Ok(match at.u64("the length of the header")? {
        PIPE_HEADER => {
            Source { data: Cow::Borrowed(&file[PIPE_HEADER as usize..]), is_pipe: true, ..Source::default() }
        }
        _ => Source::of_file(file, at)?,
    })
}

/// A file's records, and what is needed to read them.
#[derive(Default)]
struct Source<'a> {
    data: Cow<'a, [u8]>,
    /// Where the records begin.
    origin: usize,
    /// Whether attributes and descriptions are among the records.
    is_pipe: bool,
    attributes: Attributes,
    parts: Option<Parts>,
    /// The feature that names domains.
    domains: Option<Bytes<'a>>,
}

impl<'a> Source<'a> {
    /// Reads the header of a file from its attributes on.
    fn of_file(file: &'a [u8], mut at: Bytes<'a>) -> Result<Self, CaptureError> {
        let stride = at.u64("the length of attributes")?;
        let mut section = |what: &str| Ok::<_, CaptureError>((at.u64(what)?, at.u64(what)?));
        let attributes = section("where attributes lie")?;
        let data = section("where records lie")?;
        section("where types lie")?;
        let features: Vec<u64> = (0..4).map(|_| at.u64("the features")).collect::<Result<_, _>>()?;
        let whole = Bytes::new(FORMAT, file);
        if data.1 == 0 && data.0 < file.len() as u64 {
            return Err(at.damaged("its header was never completed, so `perf record` did not end normally"));
        }
        let mut source = Self { origin: data.0 as usize, ..Self::default() };
        if stride < 16 + Attribute::LEAST_BYTES as u64 {
            return Err(at.damaged(format!("{stride} is not a length of attributes")));
        }
        let mut at = whole.seek(attributes.0)?;
        let mut ids_left = file.len() as u64 / 8;
        for _ in 0..attributes.1 / stride {
            let attribute = Attribute::parse(at.take(stride - 16, "an attribute")?);
            let mut ids = whole.seek(at.u64("where ids lie")?)?;
            let count = at.u64("the length of ids")? / 8;
            ids_left = ids_left
                .checked_sub(count)
                .ok_or_else(|| at.damaged("there are more ids than the file has room for"))?;
            let ids: Result<Vec<u64>, _> = (0..count).map(|_| ids.u64("an id")).collect();
            source.attributes.add(attribute, ids?);
        }
        source.data = whole.seek(data.0)?.take(data.1, "the part with records")?.into();
        // A table of features follows the records: those that there are, in order.
        let mut table = whole.seek(data.0.saturating_add(data.1))?;
        for feature in (0..256).filter(|feature: &u32| features[*feature as usize / 64] >> (feature % 64) & 1 == 1) {
            let (offset, length) = (table.u64("the table of features")?, table.u64("the table of features")?);
            if feature == TRACING_DATA {
                let mut at = whole.seek(offset)?;
                let origin = at.place();
                let inside = at.take(length, "the descriptions of events")?;
                source.parts = Some(Parts::of_perf(Bytes::within(FORMAT, inside, origin))?);
            }
            if feature == accounts::FEATURE {
                let mut at = whole.seek(offset)?;
                let origin = at.place();
                source.domains = Some(Bytes::within(FORMAT, at.take(length, "the names of domains")?, origin));
            }
        }
        Ok(source)
    }

    fn recording(self, file_bytes: usize) -> Result<Recording, CaptureError> {
        let mut records = Records::new(self.attributes, self.parts, self.is_pipe, file_bytes)?;
        let missing = records.read(&self.data, self.origin)?;
        let mut recording = records.finish()?;
        if let Some(place) = missing {
            if !self.is_pipe {
                return Err(CaptureError::Damaged {
                    format: FORMAT,
                    place: FilePosition::Byte(place),
                    reason: "the last record is not whole".into(),
                });
            }
            recording.lost.push(Loss { cpu: None, before_ns: None, events: None });
            recording.notes.push(format!("the pipe ends early, at byte {place}: what followed is not there"));
        }
        recording.source = FORMAT.into();
        Ok(recording.finished())
    }
}
