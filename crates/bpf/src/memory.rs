//! Everything that programs can reach: one region of the address space, the same in every process and every run, because programs hash
//! and compare pointers and because a loader maps the arena where its object says.
//!
//! Segments of the region lie in memory files. A loader's server maps them shared, so that loader and programs see each other; a trial
//! maps them privately and begins with what the loader has left, without copying.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

/// Where the region begins: it consists of whole parts, so that a shift tells whether an address is in it.
pub const REGION_BASE: u64 = (1 << 44) - (1 << REGION_PART_BITS);

/// Its size: a part below the arena, and one that the arena's 4 GiB begin.
pub const REGION_BYTES: u64 = REGION_PARTS << REGION_PART_BITS;

/// Logarithm of the bytes of a part.
pub(crate) const REGION_PART_BITS: u32 = 36;

pub(crate) const REGION_PARTS: u64 = 2;

/// Bytes on both sides of the region that an instruction reaches from a register in it: as far as its offset and width go, and more.
pub(crate) const GUARD_BYTES: u64 = 64 << 10;

const WHOLE_BASE: u64 = REGION_BASE - GUARD_BYTES;
const WHOLE_BYTES: u64 = REGION_BYTES + 2 * GUARD_BYTES;

/// Where an arena lies if its object does not say (`docs/spec/bpf-runtime.md` section 5); the loaders known so far ask for this.
pub const ARENA_BASE: u64 = 1 << 44;

/// First address of segments; below are a page that is always zero, and the stack.
const SEGMENTS_BASE: u64 = REGION_BASE + (4 << 20);

const PAGE: u64 = 4096;

/// Only one region exists in a process at a time.
static REGION: Mutex<()> = Mutex::new(());

/// Does something while no region exists in this process and none can come to be: a process that is forked then can have one.
pub fn while_unmapped<T>(work: impl FnOnce() -> T) -> T {
    let _only = REGION.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Why memory cannot be had.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum MemoryError {
    /// The system refused.
    #[error("cannot {what} ({bytes} bytes): {source}")]
    System { what: &'static str, bytes: u64, source: io::Error },
    /// An object asks for a place that cannot be given.
    #[error("an arena of {bytes} bytes at 0x{address:x} does not fit: at most 4 GiB at 0x{ARENA_BASE:x}")]
    Arena { address: u64, bytes: u64 },
}

#[derive(Clone, Debug)]
struct Segment {
    file: Arc<OwnedFd>,
    address: u64,
    bytes: u64,
}

/// The segments of a region, to make the region again.
#[derive(Clone, Debug, Default)]
pub struct Image {
    segments: Vec<Segment>,
    next: u64,
}

impl Image {
    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// The region, mapped. Whoever asks for a second one waits until the first is gone.
#[derive(Debug)]
pub struct Memory {
    image: Image,
    _only: MutexGuard<'static, ()>,
}

impl Memory {
    /// An empty region, whose segments will be shared with whoever gets their files.
    ///
    /// # Errors
    /// When the system has no address space.
    pub fn new() -> Result<Self, MemoryError> {
        Self::reserve(Image { segments: Vec::new(), next: SEGMENTS_BASE })
    }

    /// A private copy of a region: what is written in it stays in it.
    ///
    /// # Errors
    /// When the system has no address space.
    pub fn copy(image: &Image) -> Result<Self, MemoryError> {
        let memory = Self::reserve(image.clone())?;
        for segment in &image.segments {
            map(segment.address, segment.bytes, Some(&segment.file), libc::MAP_PRIVATE)?;
        }
        Ok(memory)
    }

    fn reserve(image: Image) -> Result<Self, MemoryError> {
        let only = REGION.lock().unwrap_or_else(PoisonError::into_inner);
        map(WHOLE_BASE, WHOLE_BYTES, None, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        Ok(Self { image, _only: only })
    }

    /// What it consists of. Its content is that of the files: of a shared region the present one.
    #[must_use]
    pub fn image(&self) -> Image {
        self.image.clone()
    }

    /// Adds zeroed memory that does not move, in the next free place; gives its address and the file it lies in.
    ///
    /// # Errors
    /// When the system has none.
    pub fn add(&mut self, name: &str, bytes: u64) -> Result<(u64, Arc<OwnedFd>), MemoryError> {
        let address = self.image.next;
        if bytes > ARENA_BASE.saturating_sub(address + 2 * PAGE) {
            let source = io::Error::from(io::ErrorKind::OutOfMemory);
            return Err(MemoryError::System { what: "add to the region of programs", bytes, source });
        }
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        self.image.next = address + bytes + PAGE;
        Ok((address, self.add_at(name, address, bytes)?))
    }

    /// Adds the arena.
    ///
    /// # Errors
    /// When it is too large or elsewhere, or the system has no memory.
    pub(crate) fn add_arena(&mut self, address: u64, bytes: u64) -> Result<Arc<OwnedFd>, MemoryError> {
        if address != ARENA_BASE || bytes > 4 << 30 {
            return Err(MemoryError::Arena { address, bytes });
        }
        self.add_at("arena", address, bytes.next_multiple_of(PAGE))
    }

    fn add_at(&mut self, name: &str, address: u64, bytes: u64) -> Result<Arc<OwnedFd>, MemoryError> {
        let file = Arc::new(memory_file(name, bytes)?);
        map(address, bytes, Some(&file), libc::MAP_SHARED)?;
        self.image.segments.push(Segment { file: Arc::clone(&file), address, bytes });
        Ok(file)
    }

    /// Whether all these bytes are in the region or its guards.
    #[inline]
    #[must_use]
    pub fn contains(address: u64, bytes: u64) -> bool {
        address >= WHOLE_BASE && bytes <= WHOLE_BYTES && address - WHOLE_BASE <= WHOLE_BYTES - bytes
    }

    /// Whether an address is in the region.
    #[inline]
    #[must_use]
    pub(crate) fn points_inside(address: u64) -> bool {
        (address >> REGION_PART_BITS).wrapping_sub(REGION_BASE >> REGION_PART_BITS) < REGION_PARTS
    }

    /// Where bytes of the region are; `None` if some are not in it.
    #[inline]
    #[must_use]
    pub(crate) fn place(address: u64, bytes: u64) -> Option<*mut u8> {
        Self::contains(address, bytes).then_some(address as *mut u8)
    }

    /// Bytes of the region; `None` if some are not in it.
    #[must_use]
    pub fn read(&self, address: u64, bytes: u64) -> Option<&[u8]> {
        // SAFETY: all of the region is mapped as long as `self` lives, and no reference to it is kept beyond a borrow of `self`.
        Self::place(address, bytes).map(|place| unsafe { std::slice::from_raw_parts(place, bytes as usize) })
    }

    /// Bytes of the region, to be written.
    pub fn write(&mut self, address: u64, bytes: u64) -> Option<&mut [u8]> {
        // SAFETY: as in `read`.
        Self::place(address, bytes).map(|place| unsafe { std::slice::from_raw_parts_mut(place, bytes as usize) })
    }

    /// A number of the region; 0 if it is not there, as a load of a program gives.
    #[inline]
    #[must_use]
    pub fn load_u64(&self, address: u64) -> u64 {
        // SAFETY: as in `read`.
        if Self::contains(address, 8) { unsafe { (address as *const u64).read_unaligned() } } else { 0 }
    }

    /// The same of 32 bits.
    #[inline]
    #[must_use]
    pub fn load_u32(&self, address: u64) -> u32 {
        // SAFETY: as in `read`.
        if Self::contains(address, 4) { unsafe { (address as *const u32).read_unaligned() } } else { 0 }
    }

    /// Loads a number of 16 bits; 0 if the place is not there.
    #[inline]
    #[must_use]
    pub fn load_u16(&self, address: u64) -> u16 {
        // SAFETY: as in `read`.
        if Self::contains(address, 2) { unsafe { (address as *const u16).read_unaligned() } } else { 0 }
    }

    /// Stores a number of 16 bits; nothing happens if the place is not there.
    #[inline]
    pub fn store_u16(&mut self, address: u64, value: u16) {
        if Self::contains(address, 2) {
            // SAFETY: as in `read`.
            unsafe { (address as *mut u16).write_unaligned(value) }
        }
    }

    /// Stores a number; nothing happens if the place is not there.
    #[inline]
    pub fn store_u64(&mut self, address: u64, value: u64) {
        if Self::contains(address, 8) {
            // SAFETY: as in `read`.
            unsafe { (address as *mut u64).write_unaligned(value) }
        }
    }

    /// The same of 32 bits.
    #[inline]
    pub fn store_u32(&mut self, address: u64, value: u32) {
        if Self::contains(address, 4) {
            // SAFETY: as in `read`.
            unsafe { (address as *mut u32).write_unaligned(value) }
        }
    }

    /// Bytes up to a zero, which is not among them; at most `limit`, and none from outside of the region.
    #[must_use]
    pub fn until_zero(&self, address: u64, limit: u64) -> &[u8] {
        let room = (WHOLE_BASE + WHOLE_BYTES).saturating_sub(address).min(limit);
        let bytes = self.read(address, room).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        &bytes[..end]
    }

    /// The same as text.
    #[must_use]
    pub fn text(&self, address: u64, limit: u64) -> String {
        String::from_utf8_lossy(self.until_zero(address, limit)).into_owned()
    }

    /// Copies bytes of the region, which may overlap; false if some are not in it, and then nothing is copied.
    pub fn copy_within(&mut self, from: u64, to: u64, bytes: u64) -> bool {
        let inside = Self::contains(from, bytes) && Self::contains(to, bytes);
        if inside {
            // SAFETY: all of the region is mapped as long as `self` lives, and `self` is borrowed for this alone.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) }
        }
        inside
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the region is this program's own, and nobody has a reference into it any more.
        unsafe { libc::munmap(WHOLE_BASE as *mut libc::c_void, WHOLE_BYTES as usize) };
    }
}

fn memory_file(name: &str, bytes: u64) -> Result<OwnedFd, MemoryError> {
    let failed = |what| MemoryError::System { what, bytes, source: io::Error::last_os_error() };
    let name: Vec<u8> = name.bytes().filter(|&byte| byte != 0).take(60).chain([0]).collect();
    // SAFETY: the name ends with a zero; the result is checked before it is owned.
    let file = unsafe {
        let fd = libc::memfd_create(name.as_ptr().cast(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return Err(failed("make a file in memory"));
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return Err(failed("size a file in memory"));
    }
    // A loader has it too, and could take from under a program what is mapped.
    // SAFETY: as above.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL) } != 0 {
        return Err(failed("seal a file in memory"));
    }
    Ok(file)
}

fn map(address: u64, bytes: u64, file: Option<&OwnedFd>, flags: i32) -> Result<(), MemoryError> {
    let fixed = if file.is_some() { libc::MAP_FIXED } else { libc::MAP_FIXED_NOREPLACE };
    // SAFETY: segments lie within the region, which is reserved; the region itself is only taken if nothing is there.
    let mapped = unsafe {
        libc::mmap(
            address as *mut libc::c_void,
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            flags | fixed | libc::MAP_NORESERVE,
            file.map_or(-1, AsRawFd::as_raw_fd),
            0,
        )
    };
    if mapped as u64 != address {
        return Err(MemoryError::System { what: "map memory", bytes, source: io::Error::last_os_error() });
    }
    Ok(())
}
