//! Maps: memory that programs, user space and the kernel share by keys.
//!
//! Every value has an address that never changes. Programs know a map by a handle, which is no address. Source: `docs/spec/bpf-runtime.md`
//! section 7.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::instruction::Width;
use crate::memory::{Image, Memory, MemoryError};
use crate::translate::Array;

/// Kinds of maps, with the kernel's numbers (`enum bpf_map_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum MapKind {
    Hash = 1,
    Array = 2,
    PerfEventArray = 4,
    PercpuArray = 6,
    ArrayOfMaps = 12,
    StructOps = 26,
    RingBuffer = 27,
    TaskStorage = 29,
    CgroupStorage = 32,
    Arena = 33,
    /// Any other kind: a place that holds nothing.
    NotModelled = 0x7fff_ffff,
}

impl MapKind {
    /// The kind of a number; `None` if it is not modelled.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        use MapKind::*;
        const ALL: [MapKind; 10] = [
            Hash,
            Array,
            PerfEventArray,
            PercpuArray,
            ArrayOfMaps,
            StructOps,
            RingBuffer,
            TaskStorage,
            CgroupStorage,
            Arena,
        ];
        ALL.into_iter().find(|&kind| kind as u32 == number)
    }
}

/// What a map is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapSpec {
    /// Name, cut to 15 bytes by the interface.
    pub name: String,
    /// Kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Most entries; pages of an arena, bytes of a ring buffer.
    pub entries: u32,
    /// `BPF_F_*` of its creation.
    pub flags: u32,
    /// Address of an arena.
    pub extra: u64,
    /// Parts of a value that updates do not touch.
    pub special: Vec<(u32, u32)>,
}

/// Owners of storage (tasks, groups) that there may be.
const OWNERS: u64 = 1 << 16;

/// Pages at the end of an arena that hold the object's own data.
const OBJECT_PAGES: u64 = 4096;

const PAGE: u64 = 4096;

/// A map.
#[derive(Clone, Debug)]
pub struct Map {
    /// What it is.
    pub spec: MapSpec,
    /// Where its first value lies.
    pub address: u64,
    /// Bytes from one value to the next.
    pub stride: u64,
    /// File that its memory lies in.
    pub file: Arc<OwnedFd>,
    cpus: u32,
    /// Hash: slot of each key.
    slots: BTreeMap<Box<[u8]>, u32>,
    /// Hash: slots that a removed key has left.
    free_slots: Vec<u32>,
    /// Storage: which owners have one.
    present: Vec<bool>,
    /// Arena: free pages, first and number.
    free_pages: BTreeMap<u64, u64>,
    /// User space can change it no more.
    frozen: bool,
}

/// Why a key cannot have a value, with the kernel's error numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum MapFault {
    NoEntry = 2,
    TooBig = 7,
    Exists = 17,
    Invalid = 22,
    NotSupported = 524,
}

/// Value that says that a key must not exist yet.
pub const NO_EXIST: u64 = 1;
/// Value that says that a key must exist.
pub const EXIST: u64 = 2;

/// Maps and memory of a run.
#[derive(Debug)]
pub struct Maps {
    /// All memory.
    pub memory: Memory,
    maps: Vec<Map>,
    cpus: u32,
}

/// To make maps and memory again as they were.
#[derive(Clone, Debug)]
pub struct MapsImage {
    memory: Image,
    maps: Vec<Map>,
    cpus: u32,
}

impl MapsImage {
    /// Bytes of all memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

impl Maps {
    /// No maps yet, on a machine with so many CPUs.
    ///
    /// # Errors
    /// When the system has no address space.
    pub fn new(cpus: u32) -> Result<Self, MemoryError> {
        Ok(Self { memory: Memory::new()?, maps: Vec::new(), cpus })
    }

    /// As they were when the image was taken; changes stay here.
    ///
    /// # Errors
    /// When the system has no address space.
    pub fn copy(image: &MapsImage) -> Result<Self, MemoryError> {
        Ok(Self { memory: Memory::copy(&image.memory)?, maps: image.maps.clone(), cpus: image.cpus })
    }

    /// What they are now.
    #[must_use]
    pub fn image(&self) -> MapsImage {
        MapsImage { memory: self.memory.image(), maps: self.maps.clone(), cpus: self.cpus }
    }

    /// Makes a map; gives its handle.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn create(&mut self, spec: MapSpec) -> Result<u64, MemoryError> {
        let value = u64::from(spec.value_bytes).next_multiple_of(8);
        let entries = u64::from(spec.entries);
        let mut free_pages = BTreeMap::new();
        let (stride, bytes) = match spec.kind {
            MapKind::Array | MapKind::Hash | MapKind::PercpuArray => {
                let copies = if spec.kind == MapKind::PercpuArray { u64::from(self.cpus) } else { 1 };
                // Too much for 64 bits is too much for the region.
                (value, value.saturating_mul(entries).saturating_mul(copies))
            }
            MapKind::TaskStorage | MapKind::CgroupStorage => (value, value.saturating_mul(OWNERS)),
            MapKind::StructOps => (value, value),
            MapKind::NotModelled => (0, 0),
            MapKind::RingBuffer => (1, 2 * PAGE + 2 * entries),
            MapKind::PerfEventArray | MapKind::ArrayOfMaps => (8, 8 * entries),
            MapKind::Arena => {
                free_pages.insert(0, entries.saturating_sub(OBJECT_PAGES));
                (1, entries * PAGE)
            }
        };
        let (address, file) = match spec.kind {
            MapKind::Arena => {
                let address = if spec.extra == 0 { crate::ARENA_BASE } else { spec.extra };
                (address, self.memory.add_arena(address, bytes)?)
            }
            _ => self.memory.add(&spec.name, bytes)?,
        };
        let slots = BTreeMap::new();
        self.maps.push(Map {
            spec,
            address,
            stride,
            file,
            cpus: self.cpus,
            slots,
            free_slots: Vec::new(),
            present: Vec::new(),
            free_pages,
            frozen: false,
        });
        Ok(self.maps.len() as u64)
    }

    /// From now on user space cannot change a map (`BPF_MAP_FREEZE`).
    pub fn freeze(&mut self, handle: u64) {
        if let Some(map) = self.get_mut(handle) {
            map.frozen = true;
        }
    }

    /// What lies at an address, if neither programs nor user space can change it: a part of a frozen array that is read-only for programs.
    #[must_use]
    pub fn constant(&self, address: u64, width: Width) -> Option<u64> {
        /// `BPF_F_RDONLY_PROG`.
        const READ_ONLY: u32 = 1 << 7;
        let holds = |map: &&Map| {
            let bytes = u64::from(map.spec.entries) * map.stride;
            let offset = address.checked_sub(map.address);
            let is_constant = map.frozen && map.spec.flags & READ_ONLY != 0 && map.spec.kind == MapKind::Array;
            is_constant && offset.is_some_and(|offset| offset + width.bytes() <= bytes)
        };
        self.maps.iter().find(holds)?;
        let bytes = self.memory.read(address, width.bytes())?;
        Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// A map by its handle.
    #[must_use]
    pub fn get(&self, handle: u64) -> Option<&Map> {
        self.maps.get(usize::try_from(handle).ok()?.checked_sub(1)?)
    }

    fn get_mut(&mut self, handle: u64) -> Option<&mut Map> {
        self.maps.get_mut(usize::try_from(handle).ok()?.checked_sub(1)?)
    }

    /// All maps, in the order of their handles, which begin with 1.
    pub fn iter(&self) -> impl Iterator<Item = &Map> {
        self.maps.iter()
    }

    /// Address of the value of the key at an address, on a CPU; 0 if there is none.
    #[must_use]
    pub fn lookup(&self, handle: u64, key: u64, cpu: u32) -> u64 {
        let Some(map) = self.get(handle) else { return 0 };
        match map.spec.kind {
            MapKind::Array | MapKind::PercpuArray => map.element(self.memory.load_u32(key), cpu).unwrap_or(0),
            MapKind::Hash => {
                let Some(key) = self.memory.read(key, u64::from(map.spec.key_bytes)) else { return 0 };
                map.slots.get(key).map_or(0, |&slot| map.address + u64::from(slot) * map.stride)
            }
            _ => 0,
        }
    }

    /// The same by the key itself.
    #[must_use]
    pub fn find(&self, handle: u64, key: &[u8], cpu: u32) -> Option<u64> {
        let map = self.get(handle)?;
        match map.spec.kind {
            MapKind::Array | MapKind::PercpuArray | MapKind::StructOps => {
                map.element(u32::from_le_bytes(key.get(..4)?.try_into().ok()?), cpu)
            }
            MapKind::Hash => map.slots.get(key).map(|&slot| map.address + u64::from(slot) * map.stride),
            _ => None,
        }
    }

    /// Gives a key a value. `cpu` is `None` for all CPUs, `value` then being as many values, each rounded up to eight bytes.
    ///
    /// # Errors
    /// As the kernel refuses it.
    pub fn update(
        &mut self,
        handle: u64,
        key: &[u8],
        value: &[u8],
        flags: u64,
        cpu: Option<u32>,
    ) -> Result<(), MapFault> {
        let map = self.get(handle).ok_or(MapFault::Invalid)?;
        let (kind, bytes, cpus) = (map.spec.kind, map.spec.value_bytes as usize, map.cpus);
        if flags > EXIST {
            return Err(MapFault::Invalid);
        }
        match kind {
            MapKind::Array | MapKind::PercpuArray | MapKind::StructOps => {
                if flags == NO_EXIST {
                    return Err(MapFault::Exists);
                }
                let all = 0..if kind == MapKind::PercpuArray { cpus } else { 1 };
                for (number, cpu) in cpu.map_or(all, |cpu| cpu..cpu + 1).enumerate() {
                    let place = self.find(handle, key, cpu).ok_or(MapFault::TooBig)?;
                    let from = number * bytes.next_multiple_of(8);
                    let value = value.get(from..from + bytes).ok_or(MapFault::Invalid)?;
                    self.store(handle, place, value);
                }
                Ok(())
            }
            MapKind::Hash => {
                let known = self.find(handle, key, 0);
                match (known, flags) {
                    (Some(_), NO_EXIST) => return Err(MapFault::Exists),
                    (None, EXIST) => return Err(MapFault::NoEntry),
                    _ => {}
                }
                let place = match known {
                    Some(place) => place,
                    None => self.take_slot(handle, key)?,
                };
                self.store(handle, place, value.get(..bytes).ok_or(MapFault::Invalid)?);
                Ok(())
            }
            // Maps in maps are for a loader's waits only, counters are never there.
            MapKind::ArrayOfMaps | MapKind::PerfEventArray | MapKind::NotModelled => Ok(()),
            _ => Err(MapFault::NotSupported),
        }
    }

    fn take_slot(&mut self, handle: u64, key: &[u8]) -> Result<u64, MapFault> {
        let map = self.get_mut(handle).ok_or(MapFault::Invalid)?;
        if map.slots.len() >= map.spec.entries as usize {
            return Err(MapFault::TooBig);
        }
        // Without free slots the keys have the first ones.
        let next = map.slots.len() as u32;
        let slot = map.free_slots.pop().unwrap_or(next);
        map.slots.insert(key.into(), slot);
        let (place, stride) = (map.address + u64::from(slot) * map.stride, map.stride);
        if let Some(bytes) = self.memory.write(place, stride) {
            bytes.fill(0);
        }
        Ok(place)
    }

    /// Copies a value, but for what only the kernel may change.
    fn store(&mut self, handle: u64, place: u64, value: &[u8]) {
        let Some(map) = handle.checked_sub(1).and_then(|index| self.maps.get(index as usize)) else { return };
        let Some(target) = self.memory.write(place, value.len() as u64) else { return };
        let mut from = 0;
        for &(offset, length) in &map.spec.special {
            // Fields of a union overlap.
            let offset = (offset as usize).clamp(from, value.len());
            target[from..offset].copy_from_slice(&value[from..offset]);
            from = (offset + length as usize).clamp(from, value.len());
        }
        target[from..].copy_from_slice(&value[from..]);
    }

    /// Removes a key.
    ///
    /// # Errors
    /// As the kernel refuses it.
    pub fn delete(&mut self, handle: u64, key: &[u8]) -> Result<(), MapFault> {
        let map = self.get_mut(handle).ok_or(MapFault::Invalid)?;
        if map.spec.kind != MapKind::Hash {
            return Err(MapFault::Invalid);
        }
        let slot = map.slots.remove(key).ok_or(MapFault::NoEntry)?;
        map.free_slots.push(slot);
        Ok(())
    }

    /// The key after `key` in an order that stays; the first if `key` is not there.
    #[must_use]
    pub fn next_key(&self, handle: u64, key: Option<&[u8]>) -> Option<Box<[u8]>> {
        let map = self.get(handle)?;
        match map.spec.kind {
            MapKind::Hash => {
                let known = key.filter(|key| map.slots.contains_key(*key));
                let from = known.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
                map.slots.range::<[u8], _>((from, std::ops::Bound::Unbounded)).next().map(|(key, _)| key.clone())
            }
            MapKind::Array | MapKind::PercpuArray => {
                let number = key.and_then(|key| Some(u32::from_le_bytes(key.get(..4)?.try_into().ok()?)));
                let next = number.filter(|&number| number < map.spec.entries).map_or(0, |number| number + 1);
                (next < map.spec.entries).then(|| next.to_le_bytes().into())
            }
            _ => None,
        }
    }

    /// Address of an owner's storage; made of zeros if it does not exist and `create` says so, else 0.
    pub fn storage(&mut self, handle: u64, owner: u32, create: bool) -> u64 {
        let Some(map) = self.get_mut(handle) else { return 0 };
        let is_storage = matches!(map.spec.kind, MapKind::TaskStorage | MapKind::CgroupStorage);
        if !is_storage || u64::from(owner) >= OWNERS {
            return 0;
        }
        let index = owner as usize;
        if map.present.len() <= index {
            map.present.resize(index + 1, false);
        }
        let place = map.address + u64::from(owner) * map.stride;
        let stride = map.stride;
        if map.present[index] {
            return place;
        }
        if !create {
            return 0;
        }
        map.present[index] = true;
        if let Some(bytes) = self.memory.write(place, stride) {
            bytes.fill(0);
        }
        place
    }

    /// Removes an owner's storage; false if there was none.
    pub fn delete_storage(&mut self, handle: u64, owner: u32) -> bool {
        let Some(present) = self.get_mut(handle).and_then(|map| map.present.get_mut(owner as usize)) else {
            return false;
        };
        std::mem::take(present)
    }

    /// Removes all storages of an owner that is gone.
    pub fn forget_owner(&mut self, kind: MapKind, owner: u32) {
        for map in self.maps.iter_mut().filter(|map| map.spec.kind == kind) {
            if let Some(present) = map.present.get_mut(owner as usize) {
                *present = false;
            }
        }
    }

    /// Takes pages of an arena, the lowest that are free; gives their address, or 0.
    pub fn arena_pages(&mut self, handle: u64, pages: u64) -> u64 {
        let Some(map) = self.get_mut(handle).filter(|map| map.spec.kind == MapKind::Arena) else { return 0 };
        let Some((&first, &free)) = map.free_pages.iter().find(|&(_, &free)| free >= pages) else { return 0 };
        if pages == 0 {
            return 0;
        }
        map.free_pages.remove(&first);
        if free > pages {
            map.free_pages.insert(first + pages, free - pages);
        }
        map.address + first * PAGE
    }

    /// Keeps pages of an arena from being taken; false if some are taken.
    pub fn arena_reserve(&mut self, handle: u64, address: u64, pages: u64) -> bool {
        let Some(map) = self.get_mut(handle).filter(|map| map.spec.kind == MapKind::Arena) else { return false };
        let Some(first) = address.checked_sub(map.address).map(|offset| offset / PAGE) else { return false };
        let Some((&start, &free)) = map.free_pages.range(..=first).next_back() else { return false };
        if first + pages > start + free {
            return false;
        }
        map.free_pages.remove(&start);
        if first > start {
            map.free_pages.insert(start, first - start);
        }
        if first + pages < start + free {
            map.free_pages.insert(first + pages, start + free - first - pages);
        }
        true
    }

    /// Gives pages of an arena back; they read as zeros.
    pub fn arena_free(&mut self, handle: u64, address: u64, pages: u64) {
        let Some(map) = self.get_mut(handle).filter(|map| map.spec.kind == MapKind::Arena) else { return };
        let Some(first) = address.checked_sub(map.address).map(|offset| offset / PAGE) else { return };
        let limit = u64::from(map.spec.entries);
        let pages = pages.min(limit.saturating_sub(first));
        if pages == 0 || map.free_pages.range(..first + pages).next_back().is_some_and(|(&s, &n)| s + n > first) {
            return;
        }
        let (mut start, mut count) = (first, pages);
        if let Some((&before, &free)) = map.free_pages.range(..first).next_back()
            && before + free == first
        {
            map.free_pages.remove(&before);
            (start, count) = (before, free + count);
        }
        if let Some(free) = map.free_pages.remove(&(first + pages)) {
            count += free;
        }
        map.free_pages.insert(start, count);
        if let Some(bytes) = self.memory.write(address, pages * PAGE) {
            bytes.fill(0);
        }
    }

    /// A record of a ring buffer; 0 if it does not fit. The reader is always done at once: nobody waits for it in a simulation.
    pub fn ring_reserve(&mut self, handle: u64, bytes: u64) -> u64 {
        let Some(map) = self.get(handle).filter(|map| map.spec.kind == MapKind::RingBuffer) else { return 0 };
        let size = u64::from(map.spec.entries);
        let needs = (bytes + 8).next_multiple_of(8);
        if bytes >= 1 << 30 || needs > size {
            return 0;
        }
        let (consumer, producer) = (map.address, map.address + PAGE);
        let at = self.memory.load_u64(producer);
        let record = map.address + 2 * PAGE + at % size;
        self.memory.store_u64(producer, at + needs);
        self.memory.store_u64(consumer, at + needs);
        self.memory.store_u32(record, bytes as u32);
        record + 8
    }
}

impl Map {
    /// Where its elements lie, if it is an array.
    #[must_use]
    pub fn elements(&self) -> Option<Array> {
        let entries = self.spec.entries;
        let cpu_stride = match self.spec.kind {
            MapKind::Array => 0,
            MapKind::PercpuArray => u64::from(entries) * self.stride,
            _ => return None,
        };
        Some(Array { address: self.address, stride: self.stride, entries, cpu_stride, cpus: self.cpus.max(1) })
    }

    fn element(&self, index: u32, cpu: u32) -> Option<u64> {
        if index >= self.spec.entries || cpu >= self.cpus.max(1) {
            return None;
        }
        let copy =
            if self.spec.kind == MapKind::PercpuArray { u64::from(cpu) * u64::from(self.spec.entries) } else { 0 };
        Some(self.address + (copy + u64::from(index)) * self.stride)
    }
}
