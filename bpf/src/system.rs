// SPDX-License-Identifier: GPL-2.0-only
//! The system call `bpf(2)`: its commands and structures (`union bpf_attr`).

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

const MAP_CREATE: i64 = 0;
const MAP_LOOKUP_ELEM: i64 = 1;
const MAP_UPDATE_ELEM: i64 = 2;
const PROG_LOAD: i64 = 5;
const RAW_TRACEPOINT_OPEN: i64 = 17;
const BTF_LOAD: i64 = 18;
const MAP_FREEZE: i64 = 22;
const LINK_CREATE: i64 = 28;

const PROG_TYPE_TRACEPOINT: u32 = 5;
const PROG_TYPE_PERF_EVENT: u32 = 7;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const PROG_TYPE_TRACING: u32 = 26;
const PROG_TYPE_STRUCT_OPS: u32 = 27;
const MAP_TYPE_RINGBUF: u32 = 27;
const MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
const ATTACH_PERF_EVENT: u32 = 41;
const ATTACH_STRUCT_OPS: u32 = 44;
const TRACE_RAW_TRACEPOINT: u32 = 23;
const PROG_SLEEPABLE: u32 = 1 << 4;

/// Bytes of the structure that are used, all commands together.
const ATTRIBUTES: usize = 120;

struct Attributes([u8; ATTRIBUTES]);

impl Attributes {
    fn new() -> Self {
        Self([0; ATTRIBUTES])
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn address<T: ?Sized>(mut self, at: usize, value: *const T) -> Self {
        self.0[at..at + 8].copy_from_slice(&(value.cast::<u8>() as u64).to_le_bytes());
        self
    }

    /// A name of at most 15 bytes.
    fn name(mut self, at: usize, name: &str) -> Self {
        for (to, from) in self.0[at..at + 15].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        self
    }

    fn call(&self, command: i64) -> io::Result<i64> {
        // SAFETY: the structure is whole, and what it points to lives until the call returns; both are the callers' borrows.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    fn descriptor(&self, command: i64) -> io::Result<OwnedFd> {
        let descriptor = self.call(command)?;
        // SAFETY: the kernel made it for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
    }
}

/// Type information of one type, `int`. The kernel wants some of the loader's own with a map whose value is of a type of the kernel's.
pub fn types() -> io::Result<OwnedFd> {
    const STRINGS: &[u8] = b"\0int\0";
    const HEADER: u32 = 24;
    /// Name, kind, bytes; signed, 32 bits.
    const INT: [u32; 4] = [1, 1 << 24, 4, 1 << 24 | 32];
    let types = (INT.len() * 4) as u32;
    let mut data = vec![0x9f, 0xeb, 1, 0];
    let words = [HEADER, 0, types, types, STRINGS.len() as u32].into_iter().chain(INT);
    data.extend(words.flat_map(u32::to_le_bytes));
    data.extend(STRINGS);
    Attributes::new().address(0, data.as_ptr()).u32(16, data.len() as u32).descriptor(BTF_LOAD)
}

/// What a map is.
pub struct Map<'a> {
    pub kind: u32,
    pub value_bytes: u32,
    pub flags: u32,
    pub name: &'a str,
    /// Type of the value in the kernel's own type information, and type information of ours.
    pub kernel_type: Option<(u32, &'a OwnedFd)>,
}

impl Map<'_> {
    /// Makes a map of one value, with a key of four bytes.
    pub fn create(&self) -> io::Result<OwnedFd> {
        let mut attributes = Attributes::new().u32(0, self.kind).u32(4, 4).u32(8, self.value_bytes).u32(12, 1);
        if let Some((ty, types)) = self.kernel_type {
            attributes = attributes.u32(48, types.as_raw_fd() as u32).u32(60, ty);
        }
        attributes.u32(16, self.flags).name(28, self.name).descriptor(MAP_CREATE)
    }
}

/// Writes the one value of a map.
pub fn write(map: &OwnedFd, value: &[u8]) -> io::Result<()> {
    let key = [0u8; 4];
    let attributes = Attributes::new().u32(0, map.as_raw_fd() as u32).address(8, key.as_ptr());
    attributes.address(16, value.as_ptr()).call(MAP_UPDATE_ELEM).map(drop)
}

/// Lets nobody but programs write to a map from now on.
pub fn freeze(map: &OwnedFd) -> io::Result<()> {
    Attributes::new().u32(0, map.as_raw_fd() as u32).call(MAP_FREEZE).map(drop)
}

/// What a program is of.
#[derive(Clone, Copy)]
pub enum Of {
    /// Of a table of operations: its type in the kernel's type information, and the member's number.
    Table(u32, u32),
    /// Of a tracepoint, by the type of that.
    Tracepoint(u32),
    /// Of a tracepoint's records.
    Records,
    /// Of samples.
    Samples,
}

/// A program for the scheduler.
pub struct Program<'a> {
    pub name: &'a str,
    pub licence: &'a std::ffi::CStr,
    pub code: &'a [u8],
    pub sleepable: bool,
    pub of: Of,
}

impl Program<'_> {
    /// Loads it; the words of the verifier go to the buffer.
    pub fn load(&self, log: &mut [u8]) -> io::Result<OwnedFd> {
        let (kind, attach_type, of_type) = match self.of {
            Of::Table(table_type, member) => (PROG_TYPE_STRUCT_OPS, member, table_type),
            Of::Tracepoint(its_type) => (PROG_TYPE_TRACING, TRACE_RAW_TRACEPOINT, its_type),
            Of::Records => (PROG_TYPE_TRACEPOINT, 0, 0),
            Of::Samples => (PROG_TYPE_PERF_EVENT, 0, 0),
        };
        let attributes = Attributes::new()
            .u32(0, kind)
            .u32(4, (self.code.len() / 8) as u32)
            .address(8, self.code.as_ptr())
            .address(16, self.licence.as_ptr())
            .u32(24, u32::from(!log.is_empty()))
            .u32(28, log.len() as u32)
            .u32(44, if self.sleepable { PROG_SLEEPABLE } else { 0 })
            .name(48, self.name)
            .u32(68, attach_type)
            .u32(108, of_type);
        let attributes = if log.is_empty() { attributes } else { attributes.address(32, log.as_ptr()) };
        attributes.descriptor(PROG_LOAD)
    }
}

/// Attaches the table of operations that is in a map.
pub fn attach(map: &OwnedFd) -> io::Result<OwnedFd> {
    Attributes::new().u32(0, map.as_raw_fd() as u32).u32(8, ATTACH_STRUCT_OPS).descriptor(LINK_CREATE)
}

/// Makes a ring of so many bytes, a power of two of pages.
pub fn ring(bytes: u32) -> io::Result<OwnedFd> {
    Attributes::new().u32(0, MAP_TYPE_RINGBUF).u32(12, bytes).name(28, "ring").descriptor(MAP_CREATE)
}

/// Makes an array for so many counters.
pub fn counters(count: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes::new().u32(0, MAP_TYPE_PERF_EVENT_ARRAY).u32(4, 4).u32(8, 4).u32(12, count);
    attributes.name(28, "instructions").descriptor(MAP_CREATE)
}

/// A counter of a CPU's instructions, those of the kernel left out.
pub fn instructions(cpu: u32) -> io::Result<OwnedFd> {
    const HARDWARE: u32 = 0;
    const INSTRUCTIONS: u32 = 1;
    const EXCLUDE_KERNEL: u32 = 1 << 5;
    event(Attributes::new().u32(0, HARDWARE).u32(8, INSTRUCTIONS).u32(40, EXCLUDE_KERNEL), cpu)
}

/// The passes of a tracepoint on all CPUs, by its number in tracefs.
pub fn passes(number: u32) -> io::Result<OwnedFd> {
    const TRACEPOINT: u32 = 2;
    event(Attributes::new().u32(0, TRACEPOINT).u32(8, number), 0)
}

/// Samples of a CPU's clock, so many nanoseconds apart.
pub fn samples(cpu: u32, period_ns: u32) -> io::Result<OwnedFd> {
    const SOFTWARE: u32 = 1;
    event(Attributes::new().u32(0, SOFTWARE).u32(16, period_ns), cpu)
}

/// Opens an event of a CPU (`perf_event_open(2)`), whatever runs there.
fn event(attributes: Attributes, cpu: u32) -> io::Result<OwnedFd> {
    /// `PERF_ATTR_SIZE_VER0`.
    const BYTES: u32 = 64;
    let attributes = attributes.u32(4, BYTES);
    // SAFETY: the structure is as long as it says, and lives until the call returns; what is got is owned.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_perf_event_open, attributes.0.as_ptr(), -1, cpu, -1, 0);
        if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(descriptor as i32)) }
    }
}

/// Runs a program at each pass or sample of an event until the descriptor is closed.
pub fn attach_to_event(program: &OwnedFd, event: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = Attributes::new().u32(0, program.as_raw_fd() as u32).u32(4, event.as_raw_fd() as u32);
    attributes.u32(8, ATTACH_PERF_EVENT).descriptor(LINK_CREATE)
}

/// Puts a counter into an array.
pub fn hold(array: &OwnedFd, index: u32, counter: &OwnedFd) -> io::Result<()> {
    let (key, value) = (index.to_le_bytes(), counter.as_raw_fd().to_le_bytes());
    let attributes = Attributes::new().u32(0, array.as_raw_fd() as u32).address(8, key.as_ptr());
    attributes.address(16, value.as_ptr()).call(MAP_UPDATE_ELEM).map(drop)
}

/// Reads the one value of a map into room of its length.
pub fn value(map: &OwnedFd, value: &mut [u8]) -> io::Result<()> {
    let key = [0u8; 4];
    let attributes = Attributes::new().u32(0, map.as_raw_fd() as u32).address(8, key.as_ptr());
    attributes.address(16, value.as_mut_ptr()).call(MAP_LOOKUP_ELEM).map(drop)
}

/// Loads a program for a raw tracepoint; the words of the verifier go to the buffer.
pub fn load_probe(name: &str, licence: &std::ffi::CStr, code: &[u8], log: &mut [u8]) -> io::Result<OwnedFd> {
    let attributes = Attributes::new()
        .u32(0, PROG_TYPE_RAW_TRACEPOINT)
        .u32(4, (code.len() / 8) as u32)
        .address(8, code.as_ptr())
        .address(16, licence.as_ptr())
        .u32(24, u32::from(!log.is_empty()))
        .u32(28, log.len() as u32)
        .name(48, name);
    let attributes = if log.is_empty() { attributes } else { attributes.address(32, log.as_ptr()) };
    attributes.descriptor(PROG_LOAD)
}

/// Runs a program at the tracepoint whose type it was loaded with, until the descriptor is closed.
pub fn attach_typed(program: &OwnedFd) -> io::Result<OwnedFd> {
    Attributes::new().u32(8, program.as_raw_fd() as u32).descriptor(RAW_TRACEPOINT_OPEN)
}

/// Runs a program at a raw tracepoint until the descriptor is closed.
pub fn attach_probe(program: &OwnedFd, tracepoint: &std::ffi::CStr) -> io::Result<OwnedFd> {
    Attributes::new().address(0, tracepoint.as_ptr()).u32(8, program.as_raw_fd() as u32).descriptor(RAW_TRACEPOINT_OPEN)
}
