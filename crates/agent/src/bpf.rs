//! The system call `bpf(2)`: its commands and the structure that they share.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

pub const MAP_CREATE: i64 = 0;
pub const MAP_LOOKUP_ELEM: i64 = 1;
pub const MAP_UPDATE_ELEM: i64 = 2;
pub const PROG_LOAD: i64 = 5;
pub const PROG_TEST_RUN: i64 = 10;
const PROG_GET_NEXT_ID: i64 = 11;
const PROG_GET_FD_BY_ID: i64 = 13;
const OBJ_GET_INFO_BY_FD: i64 = 15;

/// Programs of a table of operations.
const PROG_TYPE_STRUCT_OPS: u32 = 27;

/// Each loaded program of a table of operations, by its name as the kernel has it (15 bytes), and how often it has run since the kernel counts.
pub fn operations() -> io::Result<Vec<(String, u64)>> {
    /// `struct bpf_prog_info` up to `run_cnt`; where it has the type, the name, the count.
    const INFO: usize = 208;
    const NAME: std::ops::Range<usize> = 64..80;
    const RUNS: std::ops::Range<usize> = 200..208;
    let mut all = Vec::new();
    let mut id = 0;
    loop {
        let mut next = Attributes::new().u32(0, id);
        if next.call_and_read(PROG_GET_NEXT_ID).is_err() {
            // There is none behind it.
            return Ok(all);
        }
        id = next.word(4);
        // It may have been unloaded meanwhile.
        let Ok(program) = Attributes::new().u32(0, id).descriptor(PROG_GET_FD_BY_ID) else { continue };
        let mut info = [0u8; INFO];
        let question = Attributes::new().u32(0, program.as_raw_fd() as u32).u32(4, INFO as u32);
        question.address(8, info.as_mut_ptr()).call(OBJ_GET_INFO_BY_FD)?;
        if u32::from_le_bytes([info[0], info[1], info[2], info[3]]) != PROG_TYPE_STRUCT_OPS {
            continue;
        }
        let name: Vec<u8> = info[NAME].iter().copied().take_while(|&byte| byte != 0).collect();
        let runs = u64::from_le_bytes(info[RUNS].try_into().expect("eight bytes"));
        all.push((String::from_utf8_lossy(&name).into_owned(), runs));
    }
}

/// `union bpf_attr`, as much of it as is used.
pub struct Attributes([u8; 120]);

impl Attributes {
    pub fn new() -> Self {
        Self([0; 120])
    }

    pub fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub fn address(mut self, at: usize, value: *const u8) -> Self {
        self.0[at..at + 8].copy_from_slice(&(value as u64).to_le_bytes());
        self
    }

    pub fn call(mut self, command: i64) -> io::Result<i64> {
        self.call_and_read(command)
    }

    pub(crate) fn call_and_read(&mut self, command: i64) -> io::Result<i64> {
        // SAFETY: the structure is whole, and what it points to lives until the call returns: the callers hold it.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    /// A number that the kernel wrote.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub fn descriptor(self, command: i64) -> io::Result<OwnedFd> {
        let descriptor = self.call(command)?;
        // SAFETY: the kernel made it for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
    }
}
