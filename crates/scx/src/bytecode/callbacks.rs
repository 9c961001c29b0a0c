//! Functions of the kernel that call functions of the program: loops, walks through maps, and what user space has written.
//!
//! They work on a pointer to the host, not on a reference: what they call works on the same host.

use warmcore_bpf::maps::MapFault;
use warmcore_bpf::{Callee, Frame, MapKind};

use crate::bytecode::helpers::{EINVAL, error};
use crate::bytecode::host::Host;

/// Most rounds of one loop (`BPF_MAX_LOOPS`).
const MOST_ROUNDS: u64 = 8 << 20;

/// Most records that one drain takes (`BPF_MAX_USER_RINGBUF_SAMPLES`).
const MOST_RECORDS: u64 = 128 << 10;

/// Bytes that a callback's own argument may take of the stack.
const MOST_LENT: u64 = 512;

const E2BIG: i64 = 7;

/// Calls a function of a program that a host has loaded, by [`Resolver::callback`](warmcore_bpf::Resolver::callback).
pub(super) unsafe fn call_back(frame: *mut Frame, callback: u64, arguments: [u64; 5]) -> u64 {
    let Some(callback) = callback.checked_sub(1) else { return 0 };
    // SAFETY: translated code is entered with a host only, whose programs stay where they are while it runs.
    unsafe {
        let programs = &*(*frame.cast::<Host>()).programs;
        let Some(loaded) = programs.get((callback >> 32) as usize) else { return 0 };
        let Some(&entry) = loaded.entries.get((callback & 0xffff_ffff) as usize) else { return 0 };
        loaded.code.run(entry, frame, arguments)
    }
}

/// A helper of this module, by number.
pub(super) fn helper(number: i32) -> Option<Callee> {
    match number {
        164 => Some(Callee::CallsBack(for_each_map_element, 4)),
        181 => Some(Callee::CallsBack(repeat, 4)),
        209 => Some(Callee::CallsBack(drain, 4)),
        _ => None,
    }
}

/// `bpf_loop(rounds, callback, context, flags)`.
unsafe extern "C" fn repeat(frame: *mut Frame, rounds: u64, callback: u64, context: u64, flags: u64, _: u64) -> u64 {
    let rounds = u64::from(rounds as u32);
    if flags != 0 {
        return error(EINVAL);
    }
    if rounds > MOST_ROUNDS {
        return error(E2BIG);
    }
    for round in 0..rounds {
        // SAFETY: the frame is what the code was entered with, and nothing of it is borrowed.
        match unsafe { Frame::call(frame, callback, [round, context, 0, 0, 0]) } {
            Some(0) => {}
            Some(_) => return round + 1,
            None => return round,
        }
    }
    rounds
}

/// A host, for what does not call the program.
///
/// # Safety
/// `frame` is what translated code was entered with, and no other reference to it is used as long as this one.
unsafe fn host<'a>(frame: *mut Frame) -> &'a mut Host {
    // SAFETY: the caller's promise; a frame is a host's first field.
    unsafe { &mut *frame.cast::<Host>() }
}

/// Has a callback see bytes on the stack; gives what it gave.
///
/// # Safety
/// As [`Frame::call`].
unsafe fn call_with(
    frame: *mut Frame,
    callback: u64,
    bytes: &[u8],
    arguments: impl Fn(u64) -> [u64; 5],
) -> Option<u64> {
    // SAFETY: the caller's promise; references to the host end before the call and begin behind it.
    unsafe {
        let top = (*frame).stack;
        let at = top - MOST_LENT;
        host(frame).maps.memory.write(at, bytes.len() as u64)?.copy_from_slice(bytes);
        (*frame).stack = at;
        let result = Frame::call(frame, callback, arguments(at));
        (*frame).stack = top;
        result
    }
}

/// `bpf_for_each_map_elem(map, callback, context, flags)`: by index, or in the order of the keys.
unsafe extern "C" fn for_each_map_element(
    frame: *mut Frame,
    map: u64,
    callback: u64,
    context: u64,
    flags: u64,
    _: u64,
) -> u64 {
    let (mut key, mut count) = (None, 0);
    loop {
        // SAFETY: nothing of the program runs here.
        let (next, place) = unsafe {
            let host = host(frame);
            let cpu = host.frame.cpu as u32;
            let kind = host.maps.get(map).map(|map| (map.spec.kind, u64::from(map.spec.key_bytes)));
            let is_walked = |kind: MapKind| {
                matches!(kind, MapKind::Array | MapKind::PercpuArray) || kind.is_hash() && !kind.holds_maps()
            };
            if flags != 0 || !kind.is_some_and(|(kind, bytes)| is_walked(kind) && bytes <= MOST_LENT) {
                return error(EINVAL);
            }
            // A key that the callback has removed is still where the next one is looked for.
            let Some(next) = host.maps.key_behind(map, key.as_deref()) else { return count };
            let place = host.maps.find(map, &next, cpu).unwrap_or(0);
            (next, place)
        };
        // SAFETY: no reference to the host is left.
        let result = unsafe { call_with(frame, callback, &next, |key| [map, key, place, context, 0]) };
        count += 1;
        key = Some(next);
        if result != Some(0) {
            return count;
        }
    }
}

/// `bpf_user_ringbuf_drain(map, callback, context, flags)`.
unsafe extern "C" fn drain(frame: *mut Frame, map: u64, callback: u64, context: u64, flags: u64, _: u64) -> u64 {
    /// `BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP`.
    const WAKEUPS: u64 = 3;
    if flags & !WAKEUPS != 0 {
        return error(EINVAL);
    }
    let mut count = 0;
    while count < MOST_RECORDS {
        // SAFETY: nothing of the program runs here.
        let (record, bytes) = match unsafe { host(frame) }.maps.user_ring_next(map) {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(fault @ (MapFault::TooBig | MapFault::Invalid)) => return error(fault as i64),
            Err(_) => return error(EINVAL),
        };
        count += 1;
        let pointer = super::dynptrs::local(record, bytes);
        // SAFETY: no reference to the host is left.
        if unsafe { call_with(frame, callback, &pointer, |at| [at, context, 0, 0, 0]) } != Some(0) {
            break;
        }
    }
    count
}
