//! Maps without keys: queues, stacks, and filters that tell whether a value was there.

use crate::maps::{EXIST, MapFault, MapKind, Maps};

impl Maps {
    /// Puts a value at the end of a queue or on top of a stack, or adds it to a filter. With [`EXIST`] the oldest one of a full queue or stack goes.
    ///
    /// # Errors
    /// As the kernel refuses it.
    pub fn push(&mut self, handle: u64, value: &[u8], flags: u64) -> Result<(), MapFault> {
        let map = self.get_mut(handle).ok_or(MapFault::Invalid)?;
        let value = value.get(..map.spec.value_bytes as usize).ok_or(MapFault::Invalid)?;
        match map.spec.kind {
            MapKind::BloomFilter if flags == 0 => {
                // A filter never forgets; how many it was made for only says how often it is wrong, and this one never is.
                map.slots.insert(value.into(), 0);
                Ok(())
            }
            MapKind::Queue | MapKind::Stack if flags == 0 || flags == EXIST => {
                if map.elements.len() >= map.spec.entries as usize {
                    if flags == 0 {
                        return Err(MapFault::TooBig);
                    }
                    map.elements.pop_front();
                }
                map.elements.push_back(value.into());
                Ok(())
            }
            _ => Err(MapFault::Invalid),
        }
    }

    /// The oldest value of a queue, the newest of a stack; with `take` it is there no more.
    ///
    /// # Errors
    /// As the kernel refuses it.
    pub fn first(&mut self, handle: u64, take: bool) -> Result<Box<[u8]>, MapFault> {
        let map = self.get_mut(handle).ok_or(MapFault::Invalid)?;
        let elements = &mut map.elements;
        let first = match (map.spec.kind, take) {
            (MapKind::Queue, false) => elements.front().cloned(),
            (MapKind::Queue, true) => elements.pop_front(),
            (MapKind::Stack, false) => elements.back().cloned(),
            (MapKind::Stack, true) => elements.pop_back(),
            _ => return Err(MapFault::Invalid),
        };
        first.ok_or(MapFault::NoEntry)
    }

    /// Whether a filter has a value.
    ///
    /// # Errors
    /// As the kernel refuses it.
    pub fn test(&self, handle: u64, value: &[u8]) -> Result<(), MapFault> {
        let map = self.get(handle).filter(|map| map.spec.kind == MapKind::BloomFilter).ok_or(MapFault::Invalid)?;
        if map.slots.contains_key(value) { Ok(()) } else { Err(MapFault::NoEntry) }
    }
}
