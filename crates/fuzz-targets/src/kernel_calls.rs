//! Messages of `bpf(2)`, as a loader sends them: several commands one after the other, each with its structure, whose addresses point into
//! bytes behind them.
use std::sync::LazyLock;

use warmcore_loader::{Messages, TargetKernel};
use warmcore_topology::Machine;

use crate::types;

/// Bytes of a structure that are read.
const ATTRIBUTES: usize = 128;
/// Where addresses stand in it (`union bpf_attr`, Linux 7.2).
const ADDRESSES: [usize; 6] = [0, 8, 16, 24, 48, 80];
/// Commands, without the run of a program: that may take as long as a scheduler's set-up.
const COMMANDS: [u64; 16] = [0, 1, 2, 3, 4, 5, 15, 17, 18, 22, 23, 28, 35, 36, 37, 38];

static KERNEL: LazyLock<(Machine, TargetKernel)> = LazyLock::new(|| {
    let machine = warmcore_topology::resolve("1s1n1l2c1t").expect("a short form");
    let (types, _) = types::kernel(&["scx_bpf_select_cpu_dfl", "scx_bpf_dsq_insert"]);
    (machine, TargetKernel::new("7.2.0", "", &types).expect("type information of a kernel"))
});

/// Memory that structures point into, and behind it as much that nobody may touch as a command writes at most.
const AREA_BYTES: usize = 1 << 20;
const GUARD_BYTES: usize = 65 << 20;

static AREA: LazyLock<usize> = LazyLock::new(|| {
    // SAFETY: new memory, of which the first part becomes usable.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let area = libc::mmap(std::ptr::null_mut(), AREA_BYTES + GUARD_BYTES, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(area, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(area, AREA_BYTES, libc::PROT_READ | libc::PROT_WRITE), 0);
        area as usize
    }
});

fn fill(bytes: &[u8]) -> usize {
    let length = bytes.len().min(AREA_BYTES);
    // SAFETY: the area is as long, and nobody else has it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *AREA as *mut u8, length) };
    length
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((&[count, which, first, second], rest)) = bytes.split_first_chunk() else { return };
    let (machine, kernel) = &*KERNEL;
    let Ok(mut messages) = Messages::new(machine, kernel) else { return };
    let mut made: Vec<i64> = Vec::new();
    let mut rest = rest;
    let length = fill(rest);
    for turn in 0..usize::from(count % 8) + 1 {
        let Some((attributes, after)) = rest.split_at_checked(ATTRIBUTES) else { return };
        rest = after;
        let mut attributes = attributes.to_vec();
        let command = COMMANDS[usize::from(which.rotate_left(turn as u32 * 3) ^ attributes[127]) % COMMANDS.len()];
        // Addresses lead into what follows, numbers of things to those that were made.
        for at in ADDRESSES.into_iter().filter(|at| first >> (at % 7) & 1 == 0 && (*at > 0 || command == 18)) {
            let word = u64::from_le_bytes(attributes[at..at + 8].try_into().expect("eight bytes"));
            if length > 0 {
                let address = *AREA as u64 + word % length as u64;
                attributes[at..at + 8].copy_from_slice(&address.to_le_bytes());
            }
        }
        for at in [0, 8, 48].into_iter().filter(|at| second >> (at % 5) & 1 == 0 && command != 18) {
            if let Some(descriptor) = made.get(usize::from(attributes[at]) % made.len().max(1)) {
                attributes[at..at + 4].copy_from_slice(&(*descriptor as u32).to_le_bytes());
            }
        }
        match messages.command(command, &attributes) {
            Ok(Some(Ok(value))) if [0, 5, 17, 18, 28].contains(&command) => made.push(value),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return,
        }
    }
}
