// SPDX-License-Identifier: GPL-2.0-only
//! Records what the scheduler does: programs at raw tracepoints write to a ring, and this program hands what is in it on to its standard
//! output, until its standard input ends.
//!
//! The output is [`MAGIC`], a word that says whether interrupts are told from threads, then records of [`RECORD_BYTES`] as
//! `programs/recorder.h` has them, in the order in which they came into the ring; last a record of kind [`END`], whose `number` says how many
//! found no room. Whoever reads it needs nothing of this crate.

use std::ffi::{CStr, CString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use warmcore_bpf::btf::{Btf, TypeKind};

use crate::load::{self, LOG_BYTES, LoadError, TYPES};
use crate::object::{Bytecode, Operation, Patch};
use crate::system;

/// What the output begins with.
pub const MAGIC: [u8; 8] = *b"WCSCHED1";
/// Length of a record.
pub const RECORD_BYTES: usize = 64;
/// Kind of the last record.
pub const END: u32 = u32::MAX;
/// The object.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.bpf.o"));
/// The kernel's counter of nested interrupts.
const NESTING: &str = "__preempt_count";
/// What the scheduler's tracepoints begin with.
const SCHEDULER: &str = "sched_";
/// The tracepoint of CPUs that go offline or come online; kernels that cannot do that have none.
const HOTPLUG: &str = "cpuhp_enter";
/// Time between two looks at the ring.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// Room in the ring unless something else is asked for, KiB.
const DEFAULT_KIB: u32 = 16 << 10;

/// What the program does: `warmcore-recorder-bpf [KIB]`.
#[must_use]
pub fn run(arguments: &[String]) -> ExitCode {
    let kib = arguments.get(1).map_or(Ok(DEFAULT_KIB), |text| text.parse::<u32>());
    let Ok(kib) = kib else {
        eprintln!("warmcore-recorder-bpf [KIB]: KIB is the room for records that wait to be read");
        return ExitCode::from(2);
    };
    match record(kib) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn record(kib: u32) -> Result<(), LoadError> {
    let object = Bytecode::read_probes(OBJECT)?;
    let types = Btf::parse(load::read(TYPES)?)?;
    let bytes = kib.clamp(4, 1 << 20).next_power_of_two() << 10;
    let fd = system::ring(bytes).map_err(load::refused("a ring for records"))?;
    let maps = load::variables(&object)?;
    let licence = CString::new(object.licence.as_str()).unwrap_or_default();
    // The kernel's own count of interrupts is best; where its address is not to be had, programs at their tracepoints count.
    let own_count = types.find(TypeKind::Variable, NESTING).is_some();
    let attempt = |own_count: bool| {
        programs(&object, own_count, |probe| {
            let mut probe = probe.clone();
            if !own_count {
                probe.patches.retain(|(_, patch)| !matches!(patch, Patch::KernelVariable(_)));
            }
            load(&probe, &load::patched(&probe, &types, &maps, Some(&fd))?, &licence)
        })
    };
    let (programs, tells_interrupts) = match attempt(own_count) {
        Err(_) if own_count => (attempt(false)?, false),
        loaded => (loaded?, own_count),
    };
    let mut ring = Ring::map(fd, bytes as usize).map_err(load::refused("to map the ring"))?;
    let mut out = io::stdout().lock();
    let failed = |source| LoadError::File { path: "standard output".into(), source };
    let mut links: Vec<OwnedFd> = Vec::new();
    // Whether both ends of an interrupt are seen that threads are told from.
    let mut softirqs = 0;
    for (program, tracepoint) in &programs {
        let name = tracepoint.to_string_lossy();
        match system::attach_probe(program, tracepoint) {
            Ok(link) => {
                softirqs += usize::from(name.starts_with("softirq_"));
                links.push(link);
            }
            // Not every architecture has every interrupt.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !name.starts_with(SCHEDULER) => {}
            Err(error) => return Err(load::refused(format!("to attach to the tracepoint {name}"))(error)),
        }
    }
    let tells_interrupts = tells_interrupts || softirqs == 2;
    out.write_all(&MAGIC).and_then(|()| out.write_all(&u32::from(tells_interrupts).to_le_bytes())).map_err(failed)?;
    out.flush().map_err(failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    std::thread::spawn(move || {
        // Whatever is written there, the end of it is what counts.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Release);
    });
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(BETWEEN_LOOKS);
        ring.hand_on(&mut out).map_err(failed)?;
    }
    drop(links);
    ring.hand_on(&mut out).map_err(failed)?;
    let mut end = [0; RECORD_BYTES];
    end[12..16].copy_from_slice(&END.to_le_bytes());
    end[40..48].copy_from_slice(&lost(&object, &maps)?.to_le_bytes());
    out.write_all(&end).and_then(|()| out.flush()).map_err(failed)
}

/// Programs that are loaded, with their tracepoints: those of the scheduler and of CPUs, and those of interrupts unless the kernel counts
/// them itself.
fn programs(
    object: &Bytecode,
    own_count: bool,
    load: impl Fn(&Operation) -> Result<OwnedFd, LoadError>,
) -> Result<Vec<(OwnedFd, CString)>, LoadError> {
    let records = |name: &str| name.starts_with(SCHEDULER) || name == HOTPLUG;
    let wanted = object.operations.iter().filter(|probe| !own_count || records(&probe.member));
    wanted.map(|probe| Ok((load(probe)?, CString::new(probe.member.as_str()).unwrap_or_default()))).collect()
}

fn load(probe: &Operation, code: &[u8], licence: &CStr) -> Result<OwnedFd, LoadError> {
    system::load_probe(&probe.name, licence, code, &mut []).or_else(|source| {
        // Again, for the verifier's words.
        let mut log = vec![0; LOG_BYTES];
        let again = system::load_probe(&probe.name, licence, code, &mut log);
        let what = format!("program `{}`", probe.name);
        again.map_err(|_| LoadError::Refused { what, source, log: load::last_lines(&log) })
    })
}

/// How many records found no room, of all kinds.
fn lost(object: &Bytecode, maps: &[OwnedFd]) -> Result<u64, LoadError> {
    let mut sum = 0;
    for (section, map) in object.variables.iter().zip(maps).filter(|(section, _)| section.name == ".bss") {
        let mut bytes = vec![0; section.bytes.len()];
        system::value(map, &mut bytes).map_err(load::refused("to read what was lost"))?;
        sum += bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).sum::<u64>();
    }
    Ok(sum)
}

/// The ring, mapped. Source: `Documentation/bpf/ringbuf.rst`; `BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT`, `BPF_RINGBUF_HDR_SZ`.
#[derive(Debug)]
struct Ring {
    _map: OwnedFd,
    consumer: NonNull<u8>,
    producer: NonNull<u8>,
    page: usize,
    bytes: usize,
}

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEAD: usize = 8;
/// How much of the ring is copied at a time, about.
const MOST_BYTES: usize = 1 << 20;

impl Ring {
    fn map(map: OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let part = |length: usize, protection: i32, offset: usize| {
            let (shared, fd) = (libc::MAP_SHARED, map.as_raw_fd());
            // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
            let base = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, shared, fd, offset as i64) };
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
        };
        let consumer = part(page, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        // The records are mapped twice, one behind the other, so that none is ever in two parts.
        let producer = part(page + 2 * bytes, libc::PROT_READ, page)?;
        Ok(Self { _map: map, consumer, producer, page, bytes })
    }

    /// Hands on what is there, in parts.
    fn hand_on(&mut self, out: &mut impl io::Write) -> io::Result<()> {
        // What comes meanwhile may wait for the next look.
        for _ in 0..=self.bytes / MOST_BYTES {
            let part = self.take();
            if part.is_empty() {
                break;
            }
            out.write_all(&part)?;
        }
        Ok(())
    }

    /// A part of what is there, head by head, and gives the room back.
    fn take(&mut self) -> Vec<u8> {
        // SAFETY: both positions begin a mapped page, and live as long as the mapping; the kernel changes them as a whole.
        let (consumed, produced) = unsafe {
            (AtomicU64::from_ptr(self.consumer.as_ptr().cast()), &*self.producer.as_ptr().cast::<AtomicU64>())
        };
        let mut at = consumed.load(Ordering::Relaxed);
        let end = produced.load(Ordering::Acquire);
        let mut found = Vec::new();
        while at < end && found.len() < MOST_BYTES {
            let offset = self.page + at as usize % self.bytes;
            // SAFETY: a head lies within the first of the two mappings of the records, eight bytes aligned.
            let head = unsafe { &*self.producer.as_ptr().add(offset).cast::<AtomicU32>() }.load(Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            let length = (head & !DISCARDED) as usize;
            if head & DISCARDED == 0 && length == RECORD_BYTES {
                // SAFETY: the record lies within the two mappings, and nobody writes to it until its room is given back.
                found.extend(unsafe { std::slice::from_raw_parts(self.producer.as_ptr().add(offset + HEAD), length) });
            }
            at += (HEAD + length).next_multiple_of(8) as u64;
        }
        consumed.store(at, Ordering::Release);
        found
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: both mappings are this value's own, and nothing refers to them any more.
        unsafe {
            libc::munmap(self.consumer.as_ptr().cast(), self.page);
            libc::munmap(self.producer.as_ptr().cast(), self.page + 2 * self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_a_program_for_every_tracepoint_and_a_count_of_what_is_lost() {
        let object = Bytecode::read_probes(OBJECT).unwrap();
        let recorded = |name: &str| name.starts_with(SCHEDULER) || name == HOTPLUG;
        let scheduler = || object.operations.iter().filter(|probe| recorded(&probe.member));
        let names: Vec<&str> = scheduler().map(|probe| probe.member.as_str()).collect();
        let expected = [
            "cpuhp_enter",
            "sched_migrate_task",
            "sched_process_exec",
            "sched_process_exit",
            "sched_process_fork",
            "sched_switch",
            "sched_wakeup",
            "sched_wakeup_new",
            "sched_waking",
        ];
        assert_eq!(names, expected);
        for probe in scheduler() {
            let has = |wanted: &Patch| probe.patches.iter().any(|(_, patch)| patch == wanted);
            assert!(has(&Patch::Map("ring".into())) && has(&Patch::KernelVariable(NESTING.into())), "{}", probe.name);
            let of_thread = has(&Patch::Member("task_struct".into(), "pid".into()));
            assert_eq!(of_thread, probe.member != HOTPLUG, "{}", probe.name);
        }
        let found: Vec<(&str, usize)> =
            object.variables.iter().map(|section| (section.name, section.bytes.len())).collect();
        assert_eq!((found, object.licence.as_str()), (vec![(".data", 4096), (".bss", 72)], "GPL"));
    }

    #[test]
    fn every_truncated_object_is_refused_or_read_without_a_panic() {
        for length in (0..OBJECT.len()).step_by(3) {
            let _ = Bytecode::read_probes(&OBJECT[..length]);
        }
    }
}
