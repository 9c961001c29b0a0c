//! What a loader asks of its own scheduling, which is not this computer's affair: where it may run, its class, its niceness, whether its memory may
//! be paged out. What it sets is what it gets back. It changes nothing but the CPU on which programs run that it runs itself: the loader is no task of the run, and never waits
//! for a page. Random
//! numbers are the same each time, as what is decided by them is.

use std::collections::BTreeMap;
use std::io;

use warmcore_topology::{CpuId, Machine, SPLIT_MIX_STEP, split_mix};

use crate::process::{Call, Process};

/// Calls about it.
pub const CALLS: [i64; 18] = [
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_getparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getattr,
    libc::SYS_setpriority,
    libc::SYS_getpriority,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_rseq,
];

/// Bytes of `struct sched_attr` as far as all kernels have it.
const ATTRIBUTES_BYTES: usize = 48;

/// What a thread has asked for.
struct Asked {
    affinity: Vec<u8>,
    attributes: [u8; ATTRIBUTES_BYTES],
    /// Random numbers so far.
    random: u64,
}

/// What threads have asked for.
pub struct Owner {
    /// The machine's CPUs, as a mask of whole words.
    cpus: Vec<u8>,
    asked: BTreeMap<u32, Asked>,
}

impl Owner {
    /// On a machine.
    pub fn new(machine: &Machine) -> Self {
        let mut cpus = vec![0; machine.cpu_count().div_ceil(64) * 8];
        machine.cpus().for_each(|cpu| cpus[cpu.index() / 8] |= 1 << (cpu.index() % 8));
        Self { cpus, asked: BTreeMap::new() }
    }

    /// Answers a call of [`CALLS`].
    pub fn serve(&mut self, process: &Process, call: &Call) {
        let result = match i64::from(call.number) {
            // It would tell on which of this computer's CPUs a thread is.
            libc::SYS_rseq => Ok(Err(libc::ENOSYS)),
            libc::SYS_setrlimit | libc::SYS_prlimit64 if !is_about_locked_memory(call) => {
                process.let_through(call);
                return;
            }
            libc::SYS_setrlimit | libc::SYS_prlimit64 | libc::SYS_mlock | libc::SYS_mlock2 | libc::SYS_mlockall => {
                locked_memory(call)
            }
            _ => self.result(call),
        };
        let result = result.unwrap_or_else(|error| Err(error.raw_os_error().unwrap_or(libc::EFAULT)));
        process.answer(call, result);
    }

    /// The CPU that a thread is on: the first that it allows itself.
    pub fn cpu_of(&self, thread: u32) -> CpuId {
        CpuId(self.asked.get(&thread).map_or(0, |asked| first_cpu(&asked.affinity)))
    }

    fn result(&mut self, call: &Call) -> io::Result<Result<i64, i32>> {
        const POLICY: std::ops::Range<usize> = 4..8;
        const NICE: std::ops::Range<usize> = 16..20;
        const PRIORITY: std::ops::Range<usize> = 20..24;
        let [first, second, third, ..] = call.arguments;
        let number = i64::from(call.number);
        let of_priority = [libc::SYS_setpriority, libc::SYS_getpriority].contains(&number);
        let whom = match if of_priority { second } else { first } as u32 {
            0 => call.thread,
            other => other,
        };
        let whom = if number == libc::SYS_getrandom { call.thread } else { whom };
        let cpus = self.cpus.clone();
        let asked = self.asked.entry(whom).or_insert_with(|| {
            let mut attributes = [0; ATTRIBUTES_BYTES];
            attributes[..4].copy_from_slice(&(ATTRIBUTES_BYTES as u32).to_le_bytes());
            Asked { affinity: cpus, attributes, random: 0 }
        });
        Ok(match number {
            libc::SYS_sched_setaffinity => {
                let wanted = call.read(third, (second as usize).min(self.cpus.len()))?;
                let mut affinity: Vec<u8> =
                    wanted.iter().zip(&self.cpus).map(|(wanted, there)| wanted & there).collect();
                affinity.resize(self.cpus.len(), 0);
                if affinity.iter().all(|&byte| byte == 0) {
                    return Ok(Err(libc::EINVAL));
                }
                asked.affinity = affinity;
                Ok(0)
            }
            libc::SYS_sched_getaffinity if (second as usize) < self.cpus.len() => Err(libc::EINVAL),
            libc::SYS_sched_getaffinity => {
                call.write(third, &asked.affinity)?;
                Ok(asked.affinity.len() as i64)
            }
            libc::SYS_sched_setscheduler => {
                asked.attributes[POLICY].copy_from_slice(&(second as u32).to_le_bytes());
                asked.attributes[PRIORITY].copy_from_slice(&call.read(third, 4)?);
                Ok(0)
            }
            libc::SYS_sched_getscheduler => Ok(i64::from(number_at(&asked.attributes[POLICY]))),
            libc::SYS_sched_setparam => {
                asked.attributes[PRIORITY].copy_from_slice(&call.read(second, 4)?);
                Ok(0)
            }
            libc::SYS_sched_getparam => {
                call.write(second, &asked.attributes[PRIORITY])?;
                Ok(0)
            }
            libc::SYS_sched_setattr => {
                let new = call.read(second, ATTRIBUTES_BYTES)?;
                asked.attributes[4..].copy_from_slice(&new[4..]);
                Ok(0)
            }
            libc::SYS_sched_getattr if (third as usize) < ATTRIBUTES_BYTES => Err(libc::EINVAL),
            libc::SYS_sched_getattr => {
                call.write(second, &asked.attributes)?;
                Ok(0)
            }
            libc::SYS_setpriority => {
                asked.attributes[NICE].copy_from_slice(&(third as i32).clamp(-20, 19).to_le_bytes());
                Ok(0)
            }
            libc::SYS_getpriority => Ok(20 - i64::from(number_at(&asked.attributes[NICE]) as i32)),
            libc::SYS_getcpu => {
                for (place, value) in [(first, first_cpu(&asked.affinity)), (second, 0)] {
                    if place != 0 {
                        call.write(place, &value.to_le_bytes())?;
                    }
                }
                Ok(0)
            }
            // `getrandom`
            _ => {
                const MOST: u64 = 1 << 20;
                let mut bytes = Vec::new();
                while (bytes.len() as u64) < second.min(MOST) {
                    asked.random += 1;
                    bytes.extend_from_slice(&split_mix(asked.random.wrapping_mul(SPLIT_MIX_STEP)).to_le_bytes());
                }
                bytes.truncate(second.min(MOST) as usize);
                call.write(first, &bytes)?;
                Ok(bytes.len() as i64)
            }
        })
    }
}

/// The first CPU of a mask.
fn first_cpu(mask: &[u8]) -> u32 {
    let byte = mask.iter().position(|&byte| byte != 0).unwrap_or(0);
    8 * byte as u32 + mask.get(byte).map_or(0, |byte| byte.trailing_zeros() % 8)
}

/// Whether a call is about how much memory may be locked. Other limits are what they are.
fn is_about_locked_memory(call: &Call) -> bool {
    let [first, second, ..] = call.arguments;
    let resource = if i64::from(call.number) == libc::SYS_setrlimit { first } else { second };
    resource == u64::from(libc::RLIMIT_MEMLOCK)
}

/// Root of the simulated kernel may lock all of it: there is no limit, before and after.
fn locked_memory(call: &Call) -> io::Result<Result<i64, i32>> {
    let [.., before, _, _] = call.arguments;
    if i64::from(call.number) == libc::SYS_prlimit64 && before != 0 {
        call.write(before, &[0xff; size_of::<libc::rlimit64>()])?;
    }
    Ok(Ok(0))
}

fn number_at(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}
