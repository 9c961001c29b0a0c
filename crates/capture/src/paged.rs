//! Records that stay in the pages of a file and are read from there each time, so that a recording of whatever length takes the memory of
//! some pages of each CPU.
//!
//! Records of one CPU lie in order of time; whoever makes [`PagedRecords`] has looked. They are merged as they are read.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, OnceLock};

use crate::instants::CausesFirst;
use crate::one_at_a_time::OneAtATime;
use crate::pages::PageLayout;
use crate::record::{EventReaders, Record, What};

/// Bytes that can be read at any place, such as a file.
pub trait Source: Send + Sync + Debug {
    /// How many there are.
    fn length(&self) -> u64;

    /// Fills `bytes` with those from a place on; returns how many there were.
    ///
    /// # Errors
    /// Of the file.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize>;
}

impl Source for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// Reads all bytes of a stretch.
///
/// # Errors
/// Of the file, and `UnexpectedEof` if it ends before.
pub(crate) fn read_exactly(source: &dyn Source, at: u64, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match source.read_at(at + done as u64, &mut bytes[done..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => done += more,
        }
    }
    Ok(())
}

/// The pages of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuExtent {
    pub cpu: u32,
    pub at: u64,
    pub length: u64,
}

/// How pages become records.
#[derive(Debug)]
pub(crate) struct PageForm {
    pub layout: PageLayout,
    pub events: EventReaders,
    pub page_bytes: usize,
}

/// Records in pages.
#[derive(Clone, Debug)]
pub struct PagedRecords(Arc<Paged>);

#[derive(Debug)]
struct Paged {
    source: Arc<dyn Source>,
    form: PageForm,
    cpus: Vec<CpuExtent>,
    tally: Tally,
    /// Why reading ended early, if it ever did.
    fault: OnceLock<String>,
}

/// The same pages, not equal ones.
impl PartialEq for PagedRecords {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PagedRecords {}

impl PagedRecords {
    pub(crate) fn new(source: Arc<dyn Source>, form: PageForm, cpus: Vec<CpuExtent>, tally: Tally) -> Self {
        Self(Arc::new(Paged { source, form, cpus, tally, fault: OnceLock::new() }))
    }

    /// What is known of all of them together.
    pub fn tally(&self) -> Tally {
        self.0.tally
    }

    /// Why not all of them could be read again, if that ever was so: the file was changed, or its disk failed.
    pub fn fault(&self) -> Option<&str> {
        self.0.fault.get().map(String::as_str)
    }

    fn cursors(&self, wanted: Wanted) -> Vec<Cursor<'_>> {
        let cursor = |extent: &CpuExtent| Cursor {
            paged: &self.0,
            wanted,
            extent: *extent,
            bytes: Vec::new(),
            records: Vec::new(),
            next: 0,
        };
        self.0.cpus.iter().map(cursor).collect()
    }
}

/// What is known of records together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// How many there are.
    pub count: u64,
    /// Times of the first and the last one; `None` if there are none.
    pub span_ns: Option<(u64, u64)>,
    /// How many are `sched_waking`.
    pub wakings: u64,
    /// How many are `sched_wakeup` or `sched_wakeup_new`.
    pub wakeups: u64,
    /// How many are ends of interrupts and softirqs.
    pub interrupts: u64,
    /// How many begin a wait for any of several files.
    pub polls: u64,
    /// How many are of what the scheduler does: no system call, nothing about sockets, no interrupt, no step of a CPU going offline, nothing that NUMA balancing is about to do.
    pub of_scheduler: u64,
}

impl Tally {
    /// Counts a record.
    pub fn take(&mut self, record: &Record) {
        let now = record.time_ns;
        self.count += 1;
        self.span_ns = Some(self.span_ns.map_or((now, now), |(first, last)| (first.min(now), last.max(now))));
        self.wakings += u64::from(matches!(record.what, What::Waking { .. }));
        self.wakeups += u64::from(matches!(record.what, What::Wakeup { .. }));
        self.interrupts += u64::from(matches!(record.what, What::Interrupt { begins: false, .. }));
        self.polls += u64::from(record.polls());
        let others = matches!(
            record.what,
            What::Numa { .. }
                | What::Interrupt { .. }
                | What::Call { .. }
                | What::Ready { .. }
                | What::Received { .. }
                | What::Hotplug { .. }
        );
        self.of_scheduler += u64::from(!others);
    }
}

/// Which records are wanted: others are passed over without being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// All.
    All,
    /// Creations of threads.
    Forks,
    /// Steps of CPUs that go offline or come online.
    Hotplug,
}

/// Records of one CPU, as far as they are read.
#[derive(Debug)]
struct Cursor<'a> {
    paged: &'a Paged,
    wanted: Wanted,
    /// What is not read yet.
    extent: CpuExtent,
    bytes: Vec<u8>,
    records: Vec<Record>,
    next: usize,
}

impl Cursor<'_> {
    /// Pages that are read at a time.
    const PAGES: u64 = 4;

    /// The next record, which stays the next one.
    fn peek(&mut self) -> Option<Record> {
        while self.next == self.records.len() {
            if self.extent.length == 0 {
                return None;
            }
            if let Err(reason) = self.fill() {
                self.extent.length = 0;
                let _ = self.paged.fault.set(format!("the pages of CPU {}: {reason}", self.extent.cpu));
            }
        }
        Some(self.records[self.next])
    }

    fn fill(&mut self) -> Result<(), String> {
        let PageForm { layout, events, page_bytes } = &self.paged.form;
        self.records.clear();
        self.next = 0;
        let length = self.extent.length.min(Self::PAGES * *page_bytes as u64);
        self.bytes.resize(length as usize, 0);
        read_exactly(&*self.paged.source, self.extent.at, &mut self.bytes).map_err(|error| error.to_string())?;
        (self.extent.at, self.extent.length) = (self.extent.at + length, self.extent.length - length);
        let (records, cpu, wanted) = (&mut self.records, self.extent.cpu, self.wanted);
        for page in self.bytes.chunks(*page_bytes) {
            let mut broken = Ok(());
            layout.records(page, |time, bytes| {
                if wanted == Wanted::All || events.is(wanted, bytes) {
                    match events.read(time, cpu, bytes) {
                        Ok(record) => records.extend(record),
                        Err(reason) => broken = Err(reason),
                    }
                }
            })?;
            broken?;
        }
        Ok(())
    }
}

/// Records in order of time; of one instant those come first that made others possible, else they are in order of CPUs.
#[derive(Debug)]
pub struct InOrder<'a>(Ordered<'a>);

#[derive(Debug)]
enum Ordered<'a> {
    /// From memory, where they are in order.
    Kept(std::slice::Iter<'a, Record>),
    Merged(Box<CausesFirst<Merged<'a>>>),
    /// With the switches that are missing.
    Whole(Box<OneAtATime<InOrder<'a>>>),
}

impl<'a> InOrder<'a> {
    /// Records of a list that is in order, and those of pages, with the switches that are missing. `late`: CPUs whose first records are
    /// missing; `gaps` as [`Recording::gaps`](crate::Recording::gaps).
    pub(crate) fn whole(
        kept: &'a [Record],
        pages: Option<&'a PagedRecords>,
        late: BTreeSet<u32>,
        gaps: BTreeSet<(u64, u32)>,
    ) -> Self {
        let recorded = Self::as_recorded(kept, pages, Wanted::All);
        Self(Ordered::Whole(Box::new(OneAtATime::new(recorded, late, gaps))))
    }

    /// Those of a kind, without switches that are put in.
    pub(crate) fn as_recorded(kept: &'a [Record], pages: Option<&'a PagedRecords>, wanted: Wanted) -> Self {
        Self(match pages {
            None => Ordered::Kept(kept.iter()),
            Some(pages) => Ordered::Merged(Box::new(CausesFirst::new(Merged::new(kept, pages, wanted)))),
        })
    }
}

impl Iterator for InOrder<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        match &mut self.0 {
            Ordered::Kept(kept) => kept.next().copied(),
            Ordered::Merged(merged) => merged.next(),
            Ordered::Whole(records) => records.next(),
        }
    }
}

/// Records in order of time; each CPU's keep their order.
#[derive(Debug)]
struct Merged<'a> {
    kept: std::slice::Iter<'a, Record>,
    cursors: Vec<Cursor<'a>>,
    /// When the next record of each cursor was, on which CPU, and which cursor it is.
    next: BinaryHeap<Reverse<(u64, u32, usize)>>,
}

impl<'a> Merged<'a> {
    /// Of equal ones those of pages come first.
    fn new(kept: &'a [Record], pages: &'a PagedRecords, wanted: Wanted) -> Self {
        let mut cursors = pages.cursors(wanted);
        let next = cursors.iter_mut().enumerate().filter_map(|(index, cursor)| {
            let record = cursor.peek()?;
            Some(Reverse((record.time_ns, record.cpu, index)))
        });
        let next = next.collect();
        Self { kept: kept.iter(), cursors, next }
    }
}

impl Iterator for Merged<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let Some(mut first) = self.next.peek_mut() else { return self.kept.next().copied() };
        let Reverse((time_ns, cpu, index)) = *first;
        if let Some(kept) = self.kept.as_slice().first()
            && (kept.time_ns, kept.cpu) < (time_ns, cpu)
        {
            drop(first);
            return self.kept.next().copied();
        }
        let cursor = &mut self.cursors[index];
        let record = cursor.peek();
        cursor.next += 1;
        match cursor.peek() {
            Some(behind) => *first = Reverse((behind.time_ns, behind.cpu, index)),
            None => _ = std::collections::binary_heap::PeekMut::pop(first),
        }
        record
    }
}
