//! Ring buffers: records from programs to user space, and the other way round.
//!
//! Both have a page with the reader's position, one with the writer's, and the data twice, so that a record never ends in the middle.

use crate::maps::{MapFault, MapKind, Maps, PAGE};

/// A record is not complete yet (`BPF_RINGBUF_BUSY_BIT`).
const BUSY: u32 = 1 << 31;
/// A record is to be skipped (`BPF_RINGBUF_DISCARD_BIT`).
const DISCARDED: u32 = 1 << 30;
/// Bytes before a record: its length, with the two bits above.
const HEADER: u64 = 8;

/// What can be asked about a ring buffer (`bpf_ringbuf_query`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingQuery {
    /// Bytes that were not read yet.
    Available = 0,
    /// Bytes that it can hold.
    Size = 1,
    /// How far it was read.
    Consumer = 2,
    /// How far it was written.
    Producer = 3,
}

impl RingQuery {
    /// By the kernel's number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Available, Self::Size, Self::Consumer, Self::Producer].into_iter().find(|&query| query as u64 == number)
    }
}

/// Where a buffer of either kind lies.
#[derive(Clone, Copy)]
struct Ring {
    consumer: u64,
    producer: u64,
    data: u64,
    size: u64,
}

impl Maps {
    fn ring(&self, handle: u64, kind: MapKind) -> Option<Ring> {
        let map = self.get(handle).filter(|map| map.spec.kind == kind && map.spec.entries > 0)?;
        let (consumer, size) = (map.address, u64::from(map.spec.entries));
        Some(Ring { consumer, producer: consumer + PAGE, data: consumer + 2 * PAGE, size })
    }

    /// A record of a ring buffer, not complete yet; 0 if it does not fit. Unless user space goes on it is always done at once: nobody waits for it in a
    /// simulation.
    pub fn ring_reserve(&mut self, handle: u64, bytes: u64) -> u64 {
        let Some(ring) = self.ring(handle, MapKind::RingBuffer) else { return 0 };
        let needs = (bytes + HEADER).next_multiple_of(8);
        if bytes >= u64::from(DISCARDED) || needs > ring.size {
            return 0;
        }
        let at = self.memory.load_u64(ring.producer);
        if !self.user_space_reads {
            self.memory.store_u64(ring.consumer, at + needs);
        } else if at + needs - self.memory.load_u64(ring.consumer) > ring.size {
            return 0;
        }
        let record = ring.data + at % ring.size;
        self.memory.store_u64(ring.producer, at + needs);
        self.memory.store_u32(record, bytes as u32 | BUSY);
        record + HEADER
    }

    /// A record is complete, or to be skipped.
    pub fn ring_submit(&mut self, record: u64, discard: bool) {
        let header = record.wrapping_sub(HEADER);
        let bytes = self.memory.load_u32(header) & !BUSY;
        self.memory.store_u32(header, if discard { bytes | DISCARDED } else { bytes });
        self.rings_were_filled |= self.user_space_reads;
    }

    /// An answer about a ring buffer; `None` if it is none.
    #[must_use]
    pub fn ring_query(&self, handle: u64, query: RingQuery) -> Option<u64> {
        let ring = self.ring(handle, MapKind::RingBuffer)?;
        let (consumer, producer) = (self.memory.load_u64(ring.consumer), self.memory.load_u64(ring.producer));
        Some(match query {
            RingQuery::Available => producer.wrapping_sub(consumer),
            RingQuery::Size => ring.size,
            RingQuery::Consumer => consumer,
            RingQuery::Producer => producer,
        })
    }

    /// How far user space has come in a ring buffer of either kind: what it has read, or written; `None` if it is none.
    #[must_use]
    pub fn ring_of_user(&self, handle: u64) -> Option<u64> {
        match self.get(handle)?.spec.kind {
            MapKind::RingBuffer => Some(self.memory.load_u64(self.ring(handle, MapKind::RingBuffer)?.consumer)),
            MapKind::UserRingBuffer => Some(self.memory.load_u64(self.ring(handle, MapKind::UserRingBuffer)?.producer)),
            _ => None,
        }
    }

    /// How many records user space has handled in a ring buffer since it was at a position, as long as the data are there.
    #[must_use]
    pub fn ring_records_of_user(&self, handle: u64, since: u64) -> u64 {
        let Some(position) = self.ring_of_user(handle) else { return 0 };
        let kinds = [MapKind::RingBuffer, MapKind::UserRingBuffer];
        let Some(ring) = kinds.into_iter().find_map(|kind| self.ring(handle, kind)) else { return 0 };
        let (mut at, mut records) = (since.max(position.saturating_sub(ring.size)), 0);
        while at < position {
            let bytes = self.memory.load_u32(ring.data + at % ring.size) & !(BUSY | DISCARDED);
            at += (u64::from(bytes) + HEADER).next_multiple_of(8);
            records += 1;
        }
        records
    }

    /// The next record that user space has written, as address and bytes; it is read then. Records to be skipped are. `None` if there is none.
    ///
    /// # Errors
    /// [`MapFault::Invalid`] if it is no such buffer, or what user space wrote is none ([`MapFault::TooBig`]: a record longer than the buffer).
    pub fn user_ring_next(&mut self, handle: u64) -> Result<Option<(u64, u32)>, MapFault> {
        let ring = self.ring(handle, MapKind::UserRingBuffer).ok_or(MapFault::Invalid)?;
        loop {
            let (consumer, producer) = (self.memory.load_u64(ring.consumer), self.memory.load_u64(ring.producer));
            if consumer >= producer {
                return Ok(None);
            }
            if consumer % 8 != 0 || producer % 8 != 0 {
                return Err(MapFault::Invalid);
            }
            let record = ring.data + consumer % ring.size;
            let header = self.memory.load_u32(record);
            if header & BUSY != 0 {
                return Ok(None);
            }
            let bytes = header & !DISCARDED;
            let whole = (u64::from(bytes) + HEADER).next_multiple_of(8);
            if whole > ring.size || whole > producer - consumer {
                return Err(MapFault::TooBig);
            }
            self.memory.store_u64(ring.consumer, consumer + whole);
            if header & DISCARDED == 0 {
                return Ok(Some((record + HEADER, bytes)));
            }
        }
    }
}
