//! Pointers with a length (`struct bpf_dynptr`): as the kernel has them, 16 bytes of a program's stack with address, size and offset.

use warmcore_bpf::{Callee, HostFunction};

use crate::bytecode::helpers::{EINVAL, error, functions};
use crate::bytecode::host::Host;

const E2BIG: i64 = 7;
const ERANGE: i64 = 34;

/// Bits of the size that are one; above are the type and whether it is read-only.
const SIZE: u32 = (1 << 24) - 1;
const LOCAL: u32 = 1 << 28;
const RING: u32 = 2 << 28;
const READ_ONLY: u32 = 1 << 31;

/// The bytes of a pointer to ordinary memory.
pub(super) fn local(address: u64, bytes: u32) -> [u8; 16] {
    made(address, bytes & SIZE | LOCAL, 0)
}

fn made(address: u64, size: u32, offset: u32) -> [u8; 16] {
    let mut pointer = [0; 16];
    pointer[..8].copy_from_slice(&address.to_le_bytes());
    pointer[8..12].copy_from_slice(&size.to_le_bytes());
    pointer[12..].copy_from_slice(&offset.to_le_bytes());
    pointer
}

/// A helper about them, by number.
pub(super) fn helper(number: i32) -> Option<Callee> {
    let find: fn(i32) -> Option<(HostFunction, u8)> = functions! {
        197 => |host, data, bytes, flags, pointer| {
            let made = if flags != 0 { Err(EINVAL) } else { host.point(pointer, data, bytes as u32, LOCAL) };
            host.or_null(pointer, made)
        };
        198 => |host, map, bytes, flags, pointer| {
            let record = if flags != 0 { 0 } else { host.maps.ring_reserve(map, u64::from(bytes as u32)) };
            let made = if record == 0 { Err(EINVAL) } else { host.point(pointer, record, bytes as u32, RING) };
            host.or_null(pointer, made)
        };
        199 => |host, pointer| host.close_record(pointer, false);
        200 => |host, pointer| host.close_record(pointer, true);
        201 => |host, to, bytes, pointer, offset| {
            let from = host.part(pointer, offset, u64::from(bytes as u32));
            from.map_or_else(error, |from| if host.maps.memory.copy_within(from, to, u64::from(bytes as u32)) { 0 } else { error(EINVAL) })
        };
        202 => |host, pointer, offset, from, bytes, flags| {
            let to = host.part(pointer, offset, u64::from(bytes as u32)).and_then(|to| host.writable(pointer, to));
            match to {
                Ok(to) if flags == 0 && host.maps.memory.copy_within(from, to, u64::from(bytes as u32)) => 0,
                Ok(_) => error(EINVAL),
                Err(reason) => error(reason),
            }
        };
        203 => |host, pointer, offset, bytes| {
            host.part(pointer, offset, u64::from(bytes as u32)).and_then(|at| host.writable(pointer, at)).unwrap_or(0)
        };
    };
    find(number).map(|(function, count)| Callee::Function(function, count))
}

/// A kernel function about them, by name.
pub(super) fn kfunc(name: &str) -> Option<(HostFunction, u8)> {
    let find: fn(&str) -> Option<(HostFunction, u8)> = functions! {
        "bpf_dynptr_slice" => |host, pointer, offset, buffer, bytes| host.part(pointer, offset, u64::from(bytes as u32)).unwrap_or(0);
        "bpf_dynptr_slice_rdwr" => |host, pointer, offset, buffer, bytes| {
            host.part(pointer, offset, u64::from(bytes as u32)).and_then(|at| host.writable(pointer, at)).unwrap_or(0)
        };
        "bpf_dynptr_adjust" => |host, pointer, start, end| host.adjust(pointer, start, end);
        "bpf_dynptr_is_null" => |host, pointer| u64::from(host.maps.memory.load_u64(pointer) == 0);
        "bpf_dynptr_is_rdonly" => |host, pointer| u64::from(host.maps.memory.load_u32(pointer + 8) & READ_ONLY != 0);
        "bpf_dynptr_size" => |host, pointer| {
            let is_null = host.maps.memory.load_u64(pointer) == 0;
            if is_null { error(EINVAL) } else { u64::from(host.maps.memory.load_u32(pointer + 8) & SIZE) }
        };
        "bpf_dynptr_clone" => |host, pointer, clone| if host.maps.memory.copy_within(pointer, clone, 16) { 0 } else { error(EINVAL) };
        "bpf_dynptr_copy" => |host, to, to_offset, from, from_offset, bytes| {
            let places = host.part(from, from_offset, bytes).and_then(|from| Ok((from, host.part(to, to_offset, bytes)?)));
            match places.and_then(|(from, at)| Ok((from, host.writable(to, at)?))) {
                Ok((from, to)) if host.maps.memory.copy_within(from, to, bytes) => 0,
                Ok(_) => error(EINVAL),
                Err(reason) => error(reason),
            }
        };
        "bpf_dynptr_memset" => |host, pointer, offset, bytes, value| {
            match host.part(pointer, offset, bytes).and_then(|at| host.writable(pointer, at)) {
                Ok(at) => host.maps.memory.write(at, bytes).map_or(error(EINVAL), |place| { place.fill(value as u8); 0 }),
                Err(reason) => error(reason),
            }
        };
    };
    find(name)
}

impl Host {
    /// Makes a pointer of this kind.
    fn point(&mut self, pointer: u64, data: u64, bytes: u32, kind: u32) -> Result<(), i64> {
        if bytes > SIZE {
            return Err(E2BIG);
        }
        self.maps.memory.write(pointer, 16).ok_or(EINVAL)?.copy_from_slice(&made(data, bytes | kind, 0));
        Ok(())
    }

    /// A pointer that could not be made is NULL.
    fn or_null(&mut self, pointer: u64, made: Result<(), i64>) -> u64 {
        let Err(reason) = made else { return 0 };
        if let Some(place) = self.maps.memory.write(pointer, 16) {
            place.fill(0);
        }
        error(reason)
    }

    /// Address of a part of what a pointer points to.
    fn part(&self, pointer: u64, offset: u64, bytes: u64) -> Result<u64, i64> {
        let memory = &self.maps.memory;
        let (data, size) = (memory.load_u64(pointer), u64::from(memory.load_u32(pointer + 8) & SIZE));
        if data == 0 {
            return Err(EINVAL);
        }
        if bytes > size || offset > size - bytes {
            return Err(E2BIG);
        }
        Ok(data + u64::from(memory.load_u32(pointer + 12)) + offset)
    }

    /// The same address, if the pointer may be written through.
    fn writable(&self, pointer: u64, address: u64) -> Result<u64, i64> {
        if self.maps.memory.load_u32(pointer + 8) & READ_ONLY == 0 { Ok(address) } else { Err(EINVAL) }
    }

    fn adjust(&mut self, pointer: u64, start: u64, end: u64) -> u64 {
        let memory = &self.maps.memory;
        let (data, size, offset) =
            (memory.load_u64(pointer), memory.load_u32(pointer + 8), memory.load_u32(pointer + 12));
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(end)) else { return error(ERANGE) };
        if data == 0 || start > end {
            return error(EINVAL);
        }
        if end > size & SIZE {
            return error(ERANGE);
        }
        self.store_u32(pointer + 8, size & !SIZE | (end - start));
        self.store_u32(pointer + 12, offset + start);
        0
    }

    fn close_record(&mut self, pointer: u64, discard: bool) -> u64 {
        let record = self.maps.memory.load_u64(pointer);
        if record != 0 {
            self.maps.ring_submit(record, discard);
            self.or_null(pointer, Err(0));
        }
        0
    }
}
