//! What a loader asks of its own scheduling, which is not this computer's affair: where it may run, its class, its niceness, whether its memory may
//! be paged out, its numbers. What it sets is what it gets back, and what its task has in the run; it never waits for a page. Random numbers are the same
//! each time, as what is decided by them is, and so are the numbers of its process and threads.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use warmcore_kernel::SchedulerThread;
use warmcore_scx::bytecode::LOADER_PID;
use warmcore_topology::{CpuId, Machine, SPLIT_MIX_STEP, split_mix};
use warmcore_workload::Policy;

use crate::process::{Call, Process};
use crate::threads::Threads;

/// Calls about it.
pub const CALLS: [i64; 23] = [
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
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
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
    /// Threads that have asked since this was looked at last.
    changed: BTreeSet<u32>,
}

/// Places in `struct sched_attr`.
const POLICY: std::ops::Range<usize> = 4..8;
const NICE: std::ops::Range<usize> = 16..20;
const PRIORITY: std::ops::Range<usize> = 20..24;

impl Owner {
    /// On a machine.
    pub fn new(machine: &Machine) -> Self {
        let mut cpus = vec![0; machine.cpu_count().div_ceil(64) * 8];
        machine.cpus().for_each(|cpu| cpus[cpu.index() / 8] |= 1 << (cpu.index() % 8));
        Self { cpus, asked: BTreeMap::new(), changed: BTreeSet::new() }
    }

    /// Answers a call of [`CALLS`].
    pub fn serve(&mut self, process: &Process, call: &Call, threads: &mut Threads) {
        let result = match i64::from(call.number) {
            libc::SYS_getpid | libc::SYS_gettid | libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => {
                number_or_signal(process, call, threads);
                return;
            }
            // It would tell on which of this computer's CPUs a thread is.
            libc::SYS_rseq => Ok(Err(libc::ENOSYS)),
            libc::SYS_setrlimit | libc::SYS_prlimit64 if !is_about_locked_memory(call) => {
                process.let_through(call);
                return;
            }
            libc::SYS_setrlimit | libc::SYS_prlimit64 | libc::SYS_mlock | libc::SYS_mlock2 | libc::SYS_mlockall => {
                locked_memory(call)
            }
            _ => self.result(call, threads),
        };
        let result = result.unwrap_or_else(|error| Err(error.raw_os_error().unwrap_or(libc::EFAULT)));
        process.answer(call, result);
    }

    /// The CPU that a thread is on: the first that it allows itself.
    pub fn cpu_of(&self, thread: u32) -> CpuId {
        CpuId(self.asked.get(&thread).map_or(0, |asked| first_cpu(&asked.affinity)))
    }

    /// How a thread asks to be scheduled.
    pub fn scheduling_of(&self, thread: u32, name: String) -> SchedulerThread {
        let Some(asked) = self.asked.get(&thread) else {
            return SchedulerThread { name, ..SchedulerThread::default() };
        };
        let has = |cpu: &u32| asked.affinity[*cpu as usize / 8] & 1 << (cpu % 8) != 0;
        let cpus = (0..8 * asked.affinity.len() as u32).filter(has).map(CpuId).collect();
        let priority = number_at(&asked.attributes[PRIORITY]) as u8;
        let policy = match number_at(&asked.attributes[POLICY]) as i32 & !SCHED_RESET_ON_FORK {
            libc::SCHED_FIFO => Policy::Fifo { priority },
            libc::SCHED_RR => Policy::RoundRobin { priority },
            libc::SCHED_BATCH => Policy::Batch,
            libc::SCHED_IDLE => Policy::Idle,
            SCHED_EXT => Policy::Ext,
            _ => Policy::Normal,
        };
        SchedulerThread { name, cpus: Some(cpus), nice: number_at(&asked.attributes[NICE]) as i32 as i8, policy }
    }

    /// Threads that have asked for something since this was called last.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    fn result(&mut self, call: &Call, threads: &Threads) -> io::Result<Result<i64, i32>> {
        let [first, second, third, ..] = call.arguments;
        let number = i64::from(call.number);
        let of_priority = [libc::SYS_setpriority, libc::SYS_getpriority].contains(&number);
        let whom = match if of_priority { second } else { first } as u32 {
            0 => call.thread,
            other => threads.thread_of(other),
        };
        if CHANGES.contains(&number) {
            self.changed.insert(whom);
        }
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

/// What changes something.
const CHANGES: [i64; 5] = [
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_setpriority,
];

/// `SCHED_EXT`, and what may be added to a policy.
const SCHED_EXT: i32 = 7;
const SCHED_RESET_ON_FORK: i32 = 0x4000_0000;

/// Gives a thread its numbers, or sends the signal that it sends by such a number.
fn number_or_signal(process: &Process, call: &Call, threads: &mut Threads) {
    let [first, second, third, ..] = call.arguments.map(|argument| argument as u32);
    let (to, signal) = match i64::from(call.number) {
        libc::SYS_getpid | libc::SYS_gettid => {
            // Those of other processes, which it has started, are this computer's.
            match threads.pid_of(process, call.thread) {
                Some(_) if i64::from(call.number) == libc::SYS_getpid => process.answer(call, Ok(LOADER_PID.into())),
                Some(pid) => process.answer(call, Ok(pid.into())),
                None => process.let_through(call),
            }
            return;
        }
        libc::SYS_tgkill => (second, third),
        _ => (first, second),
    };
    let whom = threads.thread_of(to);
    if whom == to && (i64::from(call.number) != libc::SYS_tgkill || first != LOADER_PID) {
        process.let_through(call);
        return;
    }
    process.answer(call, Ok(0));
    let whole = i64::from(call.number) == libc::SYS_kill;
    process.send_signal((!whole).then_some(whom), signal as i32);
}

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
