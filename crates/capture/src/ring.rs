//! Pages of ring buffers as records, names, births and gaps.

use crate::paged::Tally;
use crate::pages::{Missed, PageLayout};
use crate::priorities::Priorities;
use crate::record::{EventReaders, Record};
use crate::recording::{Births, LatestNames, Loss, Seen};

/// How pages are read.
pub(crate) struct PageReaders {
    pub layout: PageLayout,
    pub events: EventReaders,
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
    /// Their records, unless they stay where they are.
    pub records: Vec<Record>,
    /// What is known of records that stay where they are.
    pub stay: Option<Staying>,
    pub names: LatestNames,
    pub priorities: Priorities,
    pub births: Births,
}

/// Records that stay in their pages.
#[derive(Default)]
pub(crate) struct Staying {
    pub tally: Tally,
    /// CPU and time of the one before.
    before: Option<(u32, u64)>,
    /// Whether a CPU's are not in order of time.
    pub disordered: bool,
    pub seen: Seen,
}

impl Staying {
    fn take(&mut self, record: &Record) {
        let (cpu, now) = (record.cpu, record.time_ns);
        self.disordered |= self.before.is_some_and(|(last_cpu, last)| last_cpu == cpu && last > now);
        self.before = Some((cpu, now));
        self.tally.take(record);
        self.seen.take(record);
    }
}

impl PageRecords {
    /// How many records they have.
    pub fn count(&self) -> u64 {
        self.stay.as_ref().map_or(self.records.len() as u64, |stay| stay.tally.count)
    }

    /// Takes a page. The gap before it, if there is one, is dated by its first record of whatever event.
    pub fn page(&mut self, cpu: u32, page: &[u8], readers: &PageReaders, gaps: &mut Vec<Loss>) -> Result<(), String> {
        let (mut first, mut broken) = (None, Ok(()));
        let (Self { records, stay, names, priorities, births }, events) = (self, &readers.events);
        readers.layout.records(page, |time, bytes| {
            first.get_or_insert(time);
            match events.read(time, cpu, bytes) {
                Ok(Some(record)) => {
                    match stay {
                        Some(stay) => stay.take(&record),
                        None => records.push(record),
                    }
                    events.names(bytes, |thread, name| names.take(time, thread, name));
                    events.priorities(bytes, |thread, priority| priorities.take(thread, priority));
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
