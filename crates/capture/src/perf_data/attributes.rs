//! What the events of a file are, and where in their samples things lie.

use std::collections::BTreeMap;

/// `PERF_SAMPLE_*`: what samples have, in the order in which they have it.
mod sample {
    pub(crate) const IDENTIFIER: u64 = 1 << 16;
    pub(crate) const IP: u64 = 1;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub(crate) const ADDR: u64 = 1 << 3;
    pub const ID: u64 = 1 << 6;
    pub(crate) const STREAM_ID: u64 = 1 << 9;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const READ: u64 = 1 << 4;
    pub(crate) const CALLCHAIN: u64 = 1 << 5;
    pub const RAW: u64 = 1 << 10;
}

/// `PERF_FORMAT_*`: total times (two bits), id, group, lost.
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;
/// Bits of the flags: records that are no samples end with what identifies samples; the clock is a stated one.
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;

/// `struct perf_event_attr`, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Attribute {
    sample: u64,
    read: u64,
    flags: u64,
    clock: u32,
}

/// What a sample or another record says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Identity<'a> {
    /// Process and thread.
    pub thread: Option<(i32, i32)>,
    pub time_ns: Option<u64>,
    pub cpu: Option<u32>,
    /// Data of a tracepoint.
    pub raw: Option<&'a [u8]>,
}

impl Attribute {
    /// `PERF_ATTR_SIZE_VER0`.
    pub(crate) const LEAST_BYTES: usize = 64;

    /// Reads the first bytes; what is not there is zero.
    pub fn parse(bytes: &[u8]) -> Self {
        let number = |at: usize, size: usize| {
            let bytes = bytes.get(at..at + size).unwrap_or_default();
            bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
        };
        Self { sample: number(24, 8), read: number(32, 8), flags: number(40, 8), clock: number(92, 4) as u32 }
    }

    /// The clock as tracefs would name it.
    pub fn clock(&self) -> String {
        match (self.flags & USE_CLOCKID != 0, self.clock) {
            (false, _) => "perf".into(),
            (true, 0) => "realtime".into(),
            (true, 1) => "mono".into(),
            (true, 4) => "mono_raw".into(),
            (true, 7) => "boot".into(),
            (true, 11) => "tai".into(),
            (true, other) => format!("clock {other}"),
        }
    }

    /// Whether its samples say when and where they are of.
    pub fn is_placed(&self) -> bool {
        self.sample & sample::TIME != 0 && self.sample & sample::CPU != 0
    }

    /// Where a sample has the id of its event.
    fn id_offset(&self) -> Option<usize> {
        let has = |bits: u64| self.sample & bits != 0;
        if has(sample::IDENTIFIER) {
            return Some(0);
        }
        let before = [sample::IP, sample::TID, sample::TIME, sample::ADDR];
        has(sample::ID).then(|| before.into_iter().filter(|bit| has(*bit)).count() * 8)
    }

    /// What a sample says; `None` when it is too short.
    pub fn sample<'a>(&self, bytes: &'a [u8]) -> Option<Identity<'a>> {
        let mut words = Words { bytes };
        let mut found = Identity::default();
        let has = |bits: u64| self.sample & bits != 0;
        words.skip_if(has(sample::IDENTIFIER))?;
        words.skip_if(has(sample::IP))?;
        self.placed(&mut words, &mut found, sample::ADDR)?;
        words.skip_if(has(sample::PERIOD))?;
        if has(sample::READ) {
            self.skip_read(&mut words)?;
        }
        if has(sample::CALLCHAIN) {
            let length = words.next()?;
            words.skip(length)?;
        }
        if has(sample::RAW) {
            let (length, rest) = words.bytes.split_first_chunk::<4>()?;
            found.raw = Some(rest.get(..u32::from_le_bytes(*length) as usize)?);
        }
        Some(found)
    }

    /// What a record that is no sample says at its end; `None` when it is too short or says nothing.
    pub fn trailer<'a>(&self, bytes: &'a [u8]) -> Option<Identity<'a>> {
        if self.flags & SAMPLE_ID_ALL == 0 {
            return None;
        }
        let all = [sample::TID, sample::TIME, sample::ID, sample::STREAM_ID, sample::CPU, sample::IDENTIFIER];
        let length = all.into_iter().filter(|bit| self.sample & bit != 0).count() * 8;
        let mut words = Words { bytes: bytes.get(bytes.len().checked_sub(length)?..)? };
        let mut found = Identity::default();
        self.placed(&mut words, &mut found, 0)?;
        Some(found)
    }

    /// Thread, time, what `between` says, ids and CPU, which samples and other records have in the same order.
    fn placed(&self, words: &mut Words<'_>, found: &mut Identity<'_>, between: u64) -> Option<()> {
        let has = |bits: u64| self.sample & bits != 0;
        if has(sample::TID) {
            let both = words.next()?;
            found.thread = Some((both as i32, (both >> 32) as i32));
        }
        if has(sample::TIME) {
            found.time_ns = Some(words.next()?);
        }
        words.skip_if(has(between))?;
        words.skip_if(has(sample::ID))?;
        words.skip_if(has(sample::STREAM_ID))?;
        if has(sample::CPU) {
            found.cpu = Some(words.next()? as u32);
        }
        Some(())
    }

    /// Skips the values of counters.
    fn skip_read(&self, words: &mut Words<'_>) -> Option<()> {
        let times = u64::from((self.read & 3).count_ones());
        let each = 1 + u64::from((self.read & (READ_ID | READ_LOST)).count_ones());
        if self.read & READ_GROUP == 0 {
            return words.skip(times + each);
        }
        let members = words.next()?;
        words.skip(times.checked_add(members.checked_mul(each)?)?)
    }
}

/// Words of eight bytes.
struct Words<'a> {
    bytes: &'a [u8],
}

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn skip(&mut self, words: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(words.checked_mul(8)?).ok()?..)?;
        Some(())
    }

    fn skip_if(&mut self, present: bool) -> Option<()> {
        self.skip(u64::from(present))
    }
}

/// All attributes of a file, found by the ids of their events.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    all: Vec<Attribute>,
    by_id: BTreeMap<u64, usize>,
}

impl Attributes {
    pub fn add(&mut self, attribute: Attribute, ids: Vec<u64>) {
        // Many events differ in nothing that matters here.
        let index = self.all.iter().position(|known| *known == attribute).unwrap_or_else(|| {
            self.all.push(attribute);
            self.all.len() - 1
        });
        self.by_id.extend(ids.into_iter().map(|id| (id, index)));
    }

    pub fn first(&self) -> Option<&Attribute> {
        self.all.first()
    }

    /// The attribute of a sample's event.
    pub fn of_sample(&self, bytes: &[u8]) -> Option<&Attribute> {
        let first = self.all.first()?;
        if self.all.len() == 1 {
            return Some(first);
        }
        let at = first.id_offset()?;
        let id = bytes.get(at..)?.first_chunk::<8>()?;
        self.all.get(*self.by_id.get(&u64::from_le_bytes(*id))?)
    }

    /// The attribute by which a record that is no sample ends.
    pub(crate) fn of_other(&self, bytes: &[u8]) -> Option<&Attribute> {
        let first = self.all.first()?;
        if self.all.len() == 1 || first.sample & sample::IDENTIFIER == 0 {
            return Some(first);
        }
        let id = bytes.last_chunk::<8>().map(|id| u64::from_le_bytes(*id));
        Some(id.and_then(|id| self.by_id.get(&id)).and_then(|index| self.all.get(*index)).unwrap_or(first))
    }
}
