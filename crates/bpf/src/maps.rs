//! Maps: memory that programs, user space and the kernel share by keys.
//!
//! Every value has an address that never changes. Programs know a map by a handle, which is no address. Source: `docs/spec/bpf-runtime.md`
//! section 7.

mod arena;
mod queue;
mod rings;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::instruction::Width;
use crate::memory::{Image, Memory, MemoryError};
use crate::resolver::Array;
pub use rings::RingQuery;

/// Kinds of maps, with the kernel's numbers (`enum bpf_map_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum MapKind {
    Hash = 1,
    Array = 2,
    PerfEventArray = 4,
    PercpuHash = 5,
    PercpuArray = 6,
    LruHash = 9,
    LruPercpuHash = 10,
    ArrayOfMaps = 12,
    HashOfMaps = 13,
    Queue = 22,
    Stack = 23,
    StructOps = 26,
    RingBuffer = 27,
    TaskStorage = 29,
    BloomFilter = 30,
    UserRingBuffer = 31,
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
        const ALL: [MapKind; 18] = [
            Hash,
            Array,
            PerfEventArray,
            PercpuHash,
            PercpuArray,
            LruHash,
            LruPercpuHash,
            ArrayOfMaps,
            HashOfMaps,
            Queue,
            Stack,
            StructOps,
            RingBuffer,
            TaskStorage,
            BloomFilter,
            UserRingBuffer,
            CgroupStorage,
            Arena,
        ];
        ALL.into_iter().find(|&kind| kind as u32 == number)
    }

    /// Its keys are any bytes.
    #[must_use]
    pub const fn is_hash(self) -> bool {
        matches!(self, Self::Hash | Self::PercpuHash | Self::HashOfMaps) || self.is_lru()
    }

    /// When it is full, the key that was used longest ago goes for a new one.
    const fn is_lru(self) -> bool {
        matches!(self, Self::LruHash | Self::LruPercpuHash)
    }

    /// Each CPU has values of its own.
    #[must_use]
    pub const fn is_per_cpu(self) -> bool {
        matches!(self, Self::PercpuArray | Self::PercpuHash | Self::LruPercpuHash)
    }

    /// Its values are handles of maps.
    #[must_use]
    pub const fn holds_maps(self) -> bool {
        matches!(self, Self::ArrayOfMaps | Self::HashOfMaps)
    }

    /// It has no keys ([`Maps::push`]).
    #[must_use]
    pub const fn is_keyless(self) -> bool {
        matches!(self, Self::Queue | Self::Stack | Self::BloomFilter)
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
    /// Address of an arena; of a table of operations the number of its value's type in the kernel's type information.
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
    /// Hash that forgets: number of the last use of each slot, and the key of each use that is a last one.
    used: Vec<u64>,
    by_use: BTreeMap<u64, Box<[u8]>>,
    uses: u64,
    /// Queue and stack: values, oldest first.
    elements: VecDeque<Box<[u8]>>,
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
pub(crate) const NO_EXIST: u64 = 1;
/// Value that says that a key must exist.
pub const EXIST: u64 = 2;

/// Maps and memory of a run.
#[derive(Debug)]
pub struct Maps {
    /// All memory.
    pub memory: Memory,
    /// User space goes on, and reads ring buffers when it comes to it.
    pub user_space_reads: bool,
    /// There are new records for it.
    pub rings_were_filled: bool,
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
        Ok(Self { memory: Memory::new()?, user_space_reads: false, rings_were_filled: false, maps: Vec::new(), cpus })
    }

    /// As they were when the image was taken; changes stay here.
    ///
    /// # Errors
    /// When the system has no address space.
    pub fn copy(image: &MapsImage) -> Result<Self, MemoryError> {
        let memory = Memory::copy(&image.memory)?;
        Ok(Self {
            memory,
            user_space_reads: false,
            rings_were_filled: false,
            maps: image.maps.clone(),
            cpus: image.cpus,
        })
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
        let held = if spec.kind.holds_maps() { 8 } else { spec.value_bytes };
        let value = u64::from(held).next_multiple_of(8);
        let entries = u64::from(spec.entries);
        let mut free_pages = BTreeMap::new();
        let (stride, bytes) = match spec.kind {
            kind if kind.is_hash() || kind.holds_maps() || matches!(kind, MapKind::Array | MapKind::PercpuArray) => {
                let copies = if kind.is_per_cpu() { u64::from(self.cpus) } else { 1 };
                // Too much for 64 bits is too much for the region.
                (value, value.saturating_mul(entries).saturating_mul(copies))
            }
            MapKind::TaskStorage | MapKind::CgroupStorage => (value, value.saturating_mul(OWNERS)),
            MapKind::StructOps => (value, value),
            MapKind::RingBuffer | MapKind::UserRingBuffer => (1, 2 * PAGE + 2 * entries),
            MapKind::PerfEventArray => (8, 8 * entries),
            MapKind::Arena => {
                free_pages.insert(0, entries.saturating_sub(OBJECT_PAGES));
                (1, entries * PAGE)
            }
            // Without places of their own, or without any.
            _ => (0, 0),
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
            used: Vec::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            elements: VecDeque::new(),
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

    /// Address of the value of the key at an address, on a CPU, or the handle of the map that is its value; 0 if there is none.
    #[must_use]
    pub fn lookup(&mut self, handle: u64, key: u64, cpu: u32) -> u64 {
        let Some(map) = self.get(handle) else { return 0 };
        let (kind, bytes) = (map.spec.kind, u64::from(map.spec.key_bytes));
        let place = match kind {
            MapKind::Array | MapKind::PercpuArray => map.element(self.memory.load_u32(key), cpu),
            _ => self.memory.read(key, bytes).and_then(|key| map.find(key, cpu)),
        };
        if kind.is_lru()
            && place.is_some()
            && let Some(key) = self.memory.read(key, bytes).map(<[u8]>::to_vec)
            && let Some(map) = self.get_mut(handle)
        {
            map.note_use(&key);
        }
        match place {
            Some(place) if kind.holds_maps() => self.memory.load_u64(place),
            Some(place) => place,
            None => 0,
        }
    }

    /// Address of the value of a key, on a CPU.
    #[must_use]
    pub fn find(&self, handle: u64, key: &[u8], cpu: u32) -> Option<u64> {
        self.get(handle)?.find(key, cpu)
    }

    /// Has a map of maps hold one.
    ///
    /// # Errors
    /// As the kernel refuses it.
    pub fn hold(&mut self, handle: u64, key: &[u8], inner: u64) -> Result<(), MapFault> {
        let map = self.get(handle).filter(|map| map.spec.kind.holds_maps()).ok_or(MapFault::Invalid)?;
        let place = match map.find(key, 0) {
            Some(place) => place,
            None if map.spec.kind.is_hash() => self.take_slot(handle, key)?,
            None => return Err(MapFault::TooBig),
        };
        self.memory.store_u64(place, inner);
        Ok(())
    }

    /// Has an array of performance events hold one at an index, by a number above 0.
    ///
    /// # Errors
    /// As the kernel refuses it.
    pub fn hold_event(&mut self, handle: u64, index: u32, event: u64, flags: u64) -> Result<(), MapFault> {
        let map = self.get(handle).filter(|map| map.spec.kind == MapKind::PerfEventArray && flags == 0);
        let place = map.ok_or(MapFault::Invalid)?.element(index, 0).ok_or(MapFault::TooBig)?;
        self.memory.store_u64(place, event);
        Ok(())
    }

    /// The performance event that an array holds at an index.
    ///
    /// # Errors
    /// As the kernel refuses it: it is no such array, the index is beyond its end, or there is none.
    pub fn event(&self, handle: u64, index: u32) -> Result<u64, MapFault> {
        let map = self.get(handle).filter(|map| map.spec.kind == MapKind::PerfEventArray);
        let place = map.ok_or(MapFault::Invalid)?.element(index, 0).ok_or(MapFault::TooBig)?;
        let event = self.memory.load_u64(place);
        if event == 0 { Err(MapFault::NoEntry) } else { Ok(event) }
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
        let is_new = match kind {
            MapKind::Array | MapKind::PercpuArray | MapKind::StructOps if flags == NO_EXIST => {
                return Err(MapFault::Exists);
            }
            MapKind::Array | MapKind::PercpuArray | MapKind::StructOps => false,
            MapKind::NotModelled => return Ok(()),
            kind if kind.is_hash() && !kind.holds_maps() => match (map.find(key, 0), flags) {
                (Some(_), NO_EXIST) => return Err(MapFault::Exists),
                (None, EXIST) => return Err(MapFault::NoEntry),
                (place, _) => place.is_none(),
            },
            _ => return Err(MapFault::NotSupported),
        };
        let all = 0..if kind.is_per_cpu() { cpus } else { 1 };
        let on = if kind.is_per_cpu() { cpu.map_or(all.clone(), |cpu| cpu..cpu + 1) } else { all };
        if value.len() < (on.len() - 1) * bytes.next_multiple_of(8) + bytes {
            return Err(MapFault::Invalid);
        }
        if is_new {
            self.take_slot(handle, key)?;
        }
        for (number, cpu) in on.enumerate() {
            let place = self.find(handle, key, cpu).ok_or(MapFault::TooBig)?;
            let from = number * bytes.next_multiple_of(8);
            self.store(handle, place, &value[from..from + bytes]);
        }
        if let Some(map) = self.get_mut(handle).filter(|map| map.spec.kind.is_lru()) {
            map.note_use(key);
        }
        Ok(())
    }

    fn take_slot(&mut self, handle: u64, key: &[u8]) -> Result<u64, MapFault> {
        let map = self.get_mut(handle).ok_or(MapFault::Invalid)?;
        if map.slots.len() >= map.spec.entries as usize {
            let oldest = map.by_use.pop_first().map(|(_, key)| key).ok_or(MapFault::TooBig)?;
            let slot = map.slots.remove(&oldest).ok_or(MapFault::Invalid)?;
            map.free_slots.push(slot);
        }
        // Without free slots the keys have the first ones.
        let next = map.slots.len() as u32;
        let slot = map.free_slots.pop().unwrap_or(next);
        map.slots.insert(key.into(), slot);
        let copies = if map.spec.kind.is_per_cpu() { map.cpus } else { 1 };
        let stride = map.stride;
        let places: Vec<u64> = (0..copies).filter_map(|cpu| map.element(slot, cpu)).collect();
        for &place in &places {
            if let Some(bytes) = self.memory.write(place, stride) {
                bytes.fill(0);
            }
        }
        places.first().copied().ok_or(MapFault::Invalid)
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
        if map.spec.kind == MapKind::ArrayOfMaps {
            let place = map.find(key, 0).ok_or(MapFault::NoEntry)?;
            self.memory.store_u64(place, 0);
            return Ok(());
        }
        if map.spec.kind == MapKind::PerfEventArray {
            let place = map.find(key, 0).ok_or(MapFault::TooBig)?;
            let held = self.memory.load_u64(place);
            self.memory.store_u64(place, 0);
            return if held == 0 { Err(MapFault::NoEntry) } else { Ok(()) };
        }
        if !map.spec.kind.is_hash() {
            return Err(MapFault::Invalid);
        }
        let slot = map.slots.remove(key).ok_or(MapFault::NoEntry)?;
        if let Some(used) = map.used.get(slot as usize) {
            map.by_use.remove(used);
        }
        map.free_slots.push(slot);
        Ok(())
    }

    /// The key after `key` in an order that stays; the first if `key` is not there.
    #[must_use]
    pub fn next_key(&self, handle: u64, key: Option<&[u8]>) -> Option<Box<[u8]>> {
        let is_there = |key: &&[u8]| self.get(handle).is_some_and(|map| map.find(key, 0).is_some());
        self.key_behind(handle, key.filter(is_there))
    }

    /// The same, but a key that is not there any more has its place in the order.
    #[must_use]
    pub fn key_behind(&self, handle: u64, key: Option<&[u8]>) -> Option<Box<[u8]>> {
        let map = self.get(handle)?;
        match map.spec.kind {
            kind if kind.is_hash() => {
                let from = key.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
                map.slots.range::<[u8], _>((from, std::ops::Bound::Unbounded)).next().map(|(key, _)| key.clone())
            }
            MapKind::Array | MapKind::PercpuArray | MapKind::ArrayOfMaps | MapKind::PerfEventArray => {
                let number = key.and_then(|key| Some(u32::from_le_bytes(key.get(..4)?.try_into().ok()?)));
                let next = number.map_or(0, |number| number.saturating_add(1));
                (next < map.spec.entries).then(|| next.to_le_bytes().into())
            }
            _ => None,
        }
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

    fn find(&self, key: &[u8], cpu: u32) -> Option<u64> {
        match self.spec.kind {
            MapKind::Array
            | MapKind::PercpuArray
            | MapKind::StructOps
            | MapKind::ArrayOfMaps
            | MapKind::PerfEventArray => self.element(u32::from_le_bytes(key.get(..4)?.try_into().ok()?), cpu),
            kind if kind.is_hash() => self.element(*self.slots.get(key)?, cpu),
            _ => None,
        }
    }

    /// A key of a hash that forgets is used.
    fn note_use(&mut self, key: &[u8]) {
        let Some(&slot) = self.slots.get(key) else { return };
        let slot = slot as usize;
        if self.used.len() <= slot {
            self.used.resize(slot + 1, 0);
        }
        self.uses += 1;
        self.by_use.remove(&self.used[slot]);
        self.used[slot] = self.uses;
        self.by_use.insert(self.uses, key.into());
    }

    fn element(&self, index: u32, cpu: u32) -> Option<u64> {
        if index >= self.spec.entries || cpu >= self.cpus.max(1) {
            return None;
        }
        let copy = if self.spec.kind.is_per_cpu() { u64::from(cpu) * u64::from(self.spec.entries) } else { 0 };
        Some(self.address + (copy + u64::from(index)) * self.stride)
    }
}
