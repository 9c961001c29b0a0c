//! The system call `perf_event_open(2)`: counters of a CPU, in groups that are read whenever a thread leaves it.
//!
//! The first event of a group counts context switches and has a period of one, so that every switch makes a record with the counts of
//! the whole group (`PERF_SAMPLE_READ`). Records of all groups of a CPU go to one ring. Counting a CPU and not threads sees every thread from
//! its first instruction, and the processor's counters are not changed at switches.
//!
//! Source: `perf_event_open(2)` of man-pages 6.9.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use warmcore_capture::counters::GroupReading;

/// What is counted: `type`, `config` and `config1` of `struct perf_event_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoding {
    /// Number of the unit that counts: 0 for its generic events, 1 for the kernel's own, 4 for numbers of the processor.
    pub unit: u32,
    /// Which event.
    pub config: u64,
    /// More of it, where an event needs that.
    pub config1: u64,
}

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CONTEXT_SWITCHES`: counted by the kernel on behalf of the thread that leaves.
pub(crate) const CONTEXT_SWITCHES: Encoding = Encoding { unit: SOFTWARE, config: 3, config1: 0 };
/// `PERF_COUNT_SW_CPU_MIGRATIONS`.
pub(crate) const CPU_MIGRATIONS: Encoding = Encoding { unit: SOFTWARE, config: 4, config1: 0 };
/// `PERF_COUNT_SW_PAGE_FAULTS_MIN`.
pub(crate) const PAGE_FAULTS_MINOR: Encoding = Encoding { unit: SOFTWARE, config: 5, config1: 0 };
/// `PERF_COUNT_SW_PAGE_FAULTS_MAJ`.
pub(crate) const PAGE_FAULTS_MAJOR: Encoding = Encoding { unit: SOFTWARE, config: 6, config1: 0 };

/// `PERF_ATTR_SIZE_VER5`: the structure up to `aux_watermark`, known to kernels from 4.1 on.
const ATTRIBUTE_BYTES: usize = 112;
/// `PERF_SAMPLE_IDENTIFIER`, `TID`, `TIME`, `READ`.
const SAMPLE: u64 = 1 << 16 | 1 << 1 | 1 << 2 | 1 << 4;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED`, `TOTAL_TIME_RUNNING`, `GROUP`.
const READ_FORMAT: u64 = 1 | 1 << 1 | 1 << 3;
/// Bits of `struct perf_event_attr`: `disabled`, `watermark`, `use_clockid`.
const DISABLED: u64 = 1;
const WATERMARK: u64 = 1 << 14;
const USE_CLOCK: u64 = 1 << 25;
const CLOCK_MONOTONIC: i32 = 1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: u64 = 8;

const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
const SET_OUTPUT: libc::c_ulong = 0x2405;
/// `PERF_EVENT_IOC_ID` is `_IOR('$', 7, __u64 *)`.
const ID: libc::c_ulong = 0x8008_2407;
const WHOLE_GROUP: libc::c_ulong = 1;

/// `PERF_RECORD_LOST`, `PERF_RECORD_SAMPLE`.
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Bytes of a record's head: kind, flags, length.
const HEAD: usize = 8;

/// `data_head`, `data_tail` in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

fn open(encoding: Encoding, cpu: u32, group: Option<RawFd>) -> io::Result<OwnedFd> {
    let mut attributes = [0_u8; ATTRIBUTE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| attributes[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &encoding.unit.to_le_bytes());
    put(4, &(ATTRIBUTE_BYTES as u32).to_le_bytes());
    put(8, &encoding.config.to_le_bytes());
    put(32, &READ_FORMAT.to_le_bytes());
    put(56, &encoding.config1.to_le_bytes());
    put(92, &CLOCK_MONOTONIC.to_le_bytes());
    if group.is_some() {
        // All of a group have one clock.
        put(40, &USE_CLOCK.to_le_bytes());
    } else {
        put(16, &1_u64.to_le_bytes());
        put(24, &SAMPLE.to_le_bytes());
        put(40, &(DISABLED | WATERMARK | USE_CLOCK).to_le_bytes());
        // Nobody waits for the ring, so it need not wake anybody.
        put(48, &u32::MAX.to_le_bytes());
    }
    // SAFETY: the structure is whole and lives until the call returns; the kernel only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            -1,
            cpu as i32,
            group.unwrap_or(-1),
            CLOSE_ON_EXEC,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the requests used take a number, or the address of a number that lives until the call returns.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether this computer and this user can count that, on that CPU.
///
/// # Errors
/// Why not.
pub fn probe(encoding: Encoding, cpu: u32) -> io::Result<()> {
    let leader = open(CONTEXT_SWITCHES, cpu, None)?;
    open(encoding, cpu, Some(leader.as_raw_fd())).map(drop)
}

/// Whether a group of these events finds room on the processor when it is alone.
pub fn fits(encodings: &[Encoding], cpu: u32) -> bool {
    let Ok(leader) = open(CONTEXT_SWITCHES, cpu, None) else { return false };
    let members: Vec<io::Result<OwnedFd>> =
        encodings.iter().map(|encoding| open(*encoding, cpu, Some(leader.as_raw_fd()))).collect();
    members.iter().all(Result::is_ok)
}

#[derive(Debug)]
struct CounterGroup {
    id: u64,
    leader: OwnedFd,
    members: Vec<OwnedFd>,
}

impl CounterGroup {
    fn open(encodings: &[Encoding], cpu: u32) -> io::Result<Self> {
        let leader = open(CONTEXT_SWITCHES, cpu, None)?;
        let mut id = 0_u64;
        control(&leader, ID, std::ptr::from_mut(&mut id) as libc::c_ulong)?;
        let members = encodings.iter().map(|encoding| open(*encoding, cpu, Some(leader.as_raw_fd())));
        Ok(Self { id, members: members.collect::<io::Result<_>>()?, leader })
    }

    /// Counts now. Those of the leader come first.
    fn read(&self) -> io::Result<GroupReading> {
        let mut bytes = vec![0; 8 * (4 + self.members.len())];
        let length = rustix::io::read(&self.leader, &mut bytes)?;
        reading(&bytes[..length]).map(|(reading, _)| reading).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// A number of eight bytes.
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Counts of a group, and how many bytes they take.
fn reading(bytes: &[u8]) -> Option<(GroupReading, usize)> {
    let count = usize::try_from(word(bytes, 0)?).ok()?.min(bytes.len() / 8);
    let values = (0..count).map(|number| word(bytes, 24 + 8 * number)).collect::<Option<_>>()?;
    Some((GroupReading { enabled_ns: word(bytes, 8)?, running_ns: word(bytes, 16)?, values }, 24 + 8 * count))
}

/// What came out of a ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// A thread left the CPU. A dead one may have no number any more: it is −1.
    Left {
        /// Number of the group.
        group: usize,
        /// The thread.
        thread: i32,
        /// When, on the monotonic clock.
        time_ns: u64,
        /// The group's counts.
        reading: GroupReading,
    },
    /// So many records found no room.
    Lost(u64),
}

/// Counters of a CPU.
#[derive(Debug)]
pub struct CpuCounters {
    groups: Vec<CounterGroup>,
    ring: PerfRing,
}

impl CpuCounters {
    /// Opens groups of events on a CPU, which do not count yet. Room for records is rounded to a power of two of pages.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn open(groups: &[Vec<Encoding>], cpu: u32, ring_kib: u32) -> io::Result<Self> {
        let groups: Vec<CounterGroup> =
            groups.iter().map(|encodings| CounterGroup::open(encodings, cpu)).collect::<io::Result<_>>()?;
        let first = groups.first().ok_or(io::ErrorKind::InvalidInput)?;
        let ring = PerfRing::map(&first.leader, ring_kib)?;
        for group in &groups[1..] {
            control(&group.leader, SET_OUTPUT, first.leader.as_raw_fd() as libc::c_ulong)?;
        }
        Ok(Self { groups, ring })
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn start(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|group| control(&group.leader, ENABLE, WHOLE_GROUP))
    }

    /// Counts no more, and gives what each group counted in all.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn stop(&self) -> io::Result<Vec<GroupReading>> {
        self.groups.iter().try_for_each(|group| control(&group.leader, DISABLE, WHOLE_GROUP))?;
        self.groups.iter().map(CounterGroup::read).collect()
    }

    /// Takes the records that are there.
    pub fn take(&mut self, mut each: impl FnMut(Taken)) {
        let Self { groups, ring } = self;
        ring.records(|kind, body| match kind {
            RECORD_SAMPLE => {
                let sample = || {
                    let group = groups.iter().position(|group| Some(group.id) == word(body, 0))?;
                    let thread = u32::from_le_bytes(body.get(12..16)?.try_into().ok()?) as i32;
                    let (reading, _) = reading(body.get(24..)?)?;
                    Some(Taken::Left { group, thread, time_ns: word(body, 16)?, reading })
                };
                sample().into_iter().for_each(&mut each);
            }
            RECORD_LOST => each(Taken::Lost(word(body, 8).unwrap_or(1))),
            _ => {}
        });
    }
}

/// The ring that the kernel writes records to.
#[derive(Debug)]
struct PerfRing {
    base: NonNull<u8>,
    /// Of all that is mapped, and of the part with records.
    mapped: usize,
    bytes: usize,
    page: usize,
}

// SAFETY: the mapping belongs to this value alone, and what the kernel changes in it is read atomically.
unsafe impl Send for PerfRing {}

impl PerfRing {
    fn map(event: &OwnedFd, kib: u32) -> io::Result<Self> {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let pages = (kib as usize * 1024).div_ceil(page).next_power_of_two();
        let (bytes, mapped) = (pages * page, (pages + 1) * page);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, libc::MAP_SHARED, event.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, mapped, bytes, page })
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both positions lie in the first page, eight bytes aligned, and live as long as the mapping; the kernel changes them as a
        // whole.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast::<u64>()) }
    }

    /// Hands each record's kind and what follows its head to `each`, and gives the room back.
    fn records(&mut self, mut each: impl FnMut(u32, &[u8])) {
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        let mut record = Vec::new();
        while head.wrapping_sub(tail) >= HEAD as u64 {
            let mut start = [0; HEAD];
            self.copy(tail, &mut start);
            let kind = u32::from_le_bytes([start[0], start[1], start[2], start[3]]);
            let length = usize::from(u16::from_le_bytes([start[6], start[7]]));
            if length < HEAD || length as u64 > head.wrapping_sub(tail) {
                // Nothing behind it can be trusted.
                tail = head;
                break;
            }
            record.resize(length - HEAD, 0);
            self.copy(tail + HEAD as u64, &mut record);
            each(kind, &record);
            tail += length as u64;
        }
        fence(Ordering::SeqCst);
        self.position(DATA_TAIL).store(tail, Ordering::Release);
    }

    /// Copies what begins at a position of the endless stream, of which the ring holds the last part.
    fn copy(&self, from: u64, to: &mut [u8]) {
        let at = (from % self.bytes as u64) as usize;
        let first = to.len().min(self.bytes - at);
        // SAFETY: both parts lie within the ring, and the kernel does not write between tail and head.
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            std::ptr::copy_nonoverlapping(data.add(at), to.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, to.as_mut_ptr().add(first), to.len() - first);
        }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_group_are_read_and_never_beyond_their_end() {
        let words: Vec<u8> = [2_u64, 100, 60, 7, 8].iter().flat_map(|word| word.to_le_bytes()).collect();
        let expected = GroupReading { enabled_ns: 100, running_ns: 60, values: vec![7, 8] };
        assert_eq!(reading(&words), Some((expected, 40)));
        assert!((0..words.len()).all(|length| reading(&words[..length]).is_none()));
        let endless: Vec<u8> = [u64::MAX, 1, 1, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(reading(&endless), None);
    }
}
