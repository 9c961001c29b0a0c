//! Pages of ring buffers as records, names, births and gaps.

use crate::pages::{Missed, PageLayout};
use crate::record::{EventReaders, Record};
use crate::recording::{Births, LatestNames, Loss};

/// How pages are read.
pub(crate) struct PageReaders {
    layout: PageLayout,
    events: EventReaders,
}

impl PageReaders {
    /// Readers by the kernel's texts.
    pub fn new<'a>(header_page: &str, formats: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        Ok(Self { layout: PageLayout::parse(header_page)?, events: EventReaders::new(formats)? })
    }
}

/// What pages say.
#[derive(Default)]
pub(crate) struct PageRecords {
    pub records: Vec<Record>,
    pub names: LatestNames,
    pub births: Births,
}

impl PageRecords {
    /// Takes a page. The gap before it, if there is one, is dated by its first record of whatever event.
    pub fn page(&mut self, cpu: u32, page: &[u8], readers: &PageReaders, gaps: &mut Vec<Loss>) -> Result<(), String> {
        let (mut first, mut broken) = (None, Ok(()));
        let (Self { records, names, births }, events) = (self, &readers.events);
        readers.layout.records(page, |time, bytes| {
            first.get_or_insert(time);
            match events.read(time, cpu, bytes) {
                Ok(Some(record)) => {
                    records.push(record);
                    events.names(bytes, |thread, name| names.take(time, thread, name));
                }
                Ok(None) => events.birth(bytes).into_iter().for_each(|birth| births.take(time, birth)),
                Err(reason) => broken = Err(reason),
            }
        })?;
        let missed = match readers.layout.missed(page) {
            Some(Missed::Counted(events)) => Some(Some(events)),
            Some(Missed::Uncounted) => Some(None),
            None => None,
        };
        gaps.extend(missed.map(|events| Loss { cpu: Some(cpu), before_ns: first, events }));
        broken
    }
}
