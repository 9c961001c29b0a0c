//! `perf_event_open` and what is done with its descriptors: counters of CPUs, tracepoints, and probes at which nothing happens here.
//!
//! Events that the model counts are opened; any other is refused as by a kernel that does not have it, and named among what is missing. So are programs
//! at samples that are not modelled, which are never called. Source: Linux 7.2 `kernel/events/core.c` (`perf_event_open`, `perf_read`, `_perf_ioctl`,
//! `perf_event_set_bpf_prog`), `kernel/trace/bpf_trace.c` (`perf_event_attach_bpf_prog`), `include/uapi/linux/perf_event.h`.

use std::io;

use warmcore_scx::bytecode::{
    CalledWith, Counted, CountedOf, CounterId, CounterSpec, Host, Need, NeedKind, Sampling, Tracepoint, name_of_event,
};
use warmcore_topology::CpuId;

use super::commands::{Failure, Fields};
use super::programs::program_type;
use super::{Answers, Reply, Thing};
use crate::process::Call;

/// Requests on its descriptors (`PERF_EVENT_IOC_*`).
mod request {
    pub const ENABLE: u32 = 0x2400;
    pub const DISABLE: u32 = 0x2401;
    pub const RESET: u32 = 0x2403;
    pub const SET_BPF: u32 = 0x4004_2408;
    pub const ID: u32 = 0x8008_2407;
}

/// Those that come here.
pub(super) const REQUESTS: [u32; 5] =
    [request::ENABLE, request::DISABLE, request::RESET, request::SET_BPF, request::ID];

/// The longest `read` that comes here: more than a counter gives.
pub(super) const LONGEST_READ: u32 = 256;

/// `PERF_TYPE_TRACEPOINT`, and the first type that the system gives to what it finds.
const TRACEPOINT: u32 = 2;
const FIRST_DYNAMIC: u32 = 6;

/// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_BPF_OUTPUT`: a buffer of records, which counts nothing.
const OUTPUT: (u32, u64) = (1, 10);

/// Bits of `struct perf_event_attr`.
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_IDLE: u64 = 1 << 7;
/// Samples are asked for by frequency, else by period.
const FREQUENCY: u64 = 1 << 10;

/// Samples a second that may be asked for (`perf_event_max_sample_rate`).
const MOST_SAMPLES: u64 = 100_000;

/// What is read besides the count (`PERF_FORMAT_*`).
const TIME_ENABLED: u64 = 1;
const TIME_RUNNING: u64 = 1 << 1;
const IDENTITY: u64 = 1 << 2;
const GROUP: u64 = 1 << 3;
const LOST: u64 = 1 << 4;

/// A counter behind a descriptor.
#[derive(Clone, Copy)]
pub(super) struct Opened {
    pub id: CounterId,
    /// What a read gives.
    format: u64,
    /// Type and number of its event.
    event: (u32, u64),
}

impl Answers {
    /// `perf_event_open`, at an instant of the loader's clock.
    pub(super) fn open_event(&mut self, host: &mut Host, call: &Call, now_ns: u64) -> io::Result<Reply> {
        let [attributes, pid, cpu, group, ..] = call.arguments;
        const KNOWN_BYTES: usize = 64;
        let fields = Fields(call.read(attributes, KNOWN_BYTES)?);
        let (event_type, config, format, flags) = (fields.u32(0), fields.u64(8), fields.u64(32), fields.u64(40));
        if event_type == TRACEPOINT {
            return Ok(match Tracepoint::find(config) {
                Some(tracepoint) => Reply::New(Thing::Tracepoint(tracepoint), None),
                None => {
                    self.needs.insert(Need::new(NeedKind::Event, format!("tracepoint {config}"), false));
                    Reply::Error(libc::EINVAL)
                }
            });
        }
        if event_type >= FIRST_DYNAMIC || (event_type, config) == OUTPUT {
            return Ok(Reply::New(Thing::Other, None));
        }
        let (samples, is_frequency) = (fields.u64(16), flags & FREQUENCY != 0);
        let most = if is_frequency { MOST_SAMPLES } else { i64::MAX as u64 };
        if samples > most {
            return Ok(Reply::Error(libc::EINVAL));
        }
        let (pid, cpu, group) = (pid as i32, cpu as i32, group as i32);
        if pid == -1 && cpu == -1 {
            return Ok(Reply::Error(libc::EINVAL));
        }
        let name = name_of_event(event_type, config);
        let mut refuse = |what: String, error: i32| {
            self.needs.insert(Need::new(NeedKind::Event, what, false));
            Ok(Reply::Error(error))
        };
        let Some(counted) = Counted::find(event_type, config, self.machine.processor()) else {
            return refuse(name, libc::ENOENT);
        };
        if counted.is_of_memory() && !self.counts_memory {
            return refuse(format!("{name}, which a run without a model of the memory does not count"), libc::ENOENT);
        }
        // Which of its threads is the caller is not known here.
        if pid == 0 {
            return refuse(format!("{name} of a thread of the loader"), libc::EOPNOTSUPP);
        }
        if pid != -1 && flags & INHERIT != 0 {
            return refuse(format!("{name} of a thread and of those that it creates"), libc::EOPNOTSUPP);
        }
        if group != -1 || format & GROUP != 0 {
            return refuse(format!("{name} in a group"), libc::EOPNOTSUPP);
        }
        if flags & EXCLUDE_USER != 0 && counted.is_of_memory() {
            return refuse(format!("{name} of the kernel alone"), libc::EOPNOTSUPP);
        }
        let cpu = match u32::try_from(cpu).ok().map(CpuId) {
            Some(cpu) if cpu.index() >= self.machine.cpu_count() => return Ok(Reply::Error(libc::EINVAL)),
            cpu => cpu,
        };
        let of = match (pid, cpu) {
            (-1, Some(cpu)) => CountedOf::Cpu(cpu),
            (-1, None) => return Ok(Reply::Error(libc::EINVAL)),
            _ => match host.task_of_pid(pid as u32) {
                Some(task) => CountedOf::Task(task, cpu),
                None => return Ok(Reply::Error(libc::ESRCH)),
            },
        };
        self.needs.insert(Need::new(NeedKind::Event, name, true));
        let sampling = Sampling::of(counted, samples, is_frequency).map(|sampling| Sampling {
            excludes_user: flags & EXCLUDE_USER != 0,
            excludes_kernel: flags & EXCLUDE_KERNEL != 0,
            excludes_idle: flags & EXCLUDE_IDLE != 0,
            ..sampling
        });
        let id = host.open_counter(CounterSpec { counted, of, is_inherited: flags & INHERIT != 0, sampling });
        if flags & DISABLED == 0 {
            host.enable_counter(id, now_ns);
        }
        Ok(Reply::New(Thing::Counter(Opened { id, format, event: (event_type, config) }), None))
    }

    /// An `ioctl` on a descriptor; `None` if it is not one of ours.
    pub(super) fn request(
        &mut self,
        host: &mut Host,
        call: &Call,
        now_ns: u64,
    ) -> Result<Option<Result<i64, i32>>, Failure> {
        let [descriptor, request, argument, ..] = call.arguments;
        let (descriptor, request) = (descriptor as u32, request as u32);
        let opened = match self.find(call, descriptor) {
            None => return Ok(None),
            Some(&Thing::Counter(opened)) => Some(opened),
            Some(_) => None,
        };
        if request == request::SET_BPF {
            return Ok(Some(self.attach_to_event(host, call, argument as u32, descriptor)?.map(|()| 0)));
        }
        let Some(Opened { id, .. }) = opened else { return Ok(Some(Ok(0))) };
        match request {
            request::ENABLE => host.enable_counter(id, now_ns),
            request::DISABLE => host.disable_counter(id, now_ns),
            request::RESET => host.reset_counter(id, now_ns),
            _ => call.write(argument, &self.identity(call, descriptor).to_le_bytes())?,
        }
        Ok(Some(Ok(0)))
    }

    /// A program for each sample of a counter, each pass of a tracepoint, or a probe, where it is never called. Or the number of the error.
    pub(super) fn attach_to_event(
        &mut self,
        host: &mut Host,
        call: &Call,
        program: u32,
        event: u32,
    ) -> Result<Result<(), i32>, Failure> {
        let (text, is_modelled) = match self.find(call, event) {
            Some(&Thing::Tracepoint(tracepoint)) => {
                let (name, id) = match self.attached_program(host, call, program, program_type::TRACEPOINT)? {
                    Ok(program) => program,
                    Err(error) => return Ok(Err(error)),
                };
                // A program is at a tracepoint once, and called there on whatever CPU that is passed.
                let with = CalledWith::Record;
                if self.at.contains(&(tracepoint.site, with, id)) {
                    return Ok(Err(libc::EEXIST));
                }
                if let Err(error) = self.call_at(Some(tracepoint.site), with, id) {
                    return Ok(Err(error));
                }
                (format!("{name} at tracepoint {}/{}", tracepoint.system, tracepoint.name), true)
            }
            Some(&Thing::Counter(Opened { id: counter, event: (event_type, config), .. })) => {
                let is_sampled = host.takes_samples(counter);
                // What was not loaded when the scheduler was attached comes too late for it.
                let is_late = self.sched_ext.is_attached()
                    && matches!(self.find(call, program), Some(Thing::Program { id: None, .. }));
                if is_sampled && is_late {
                    return Ok(Err(libc::EOPNOTSUPP));
                }
                let (name, id) = match self.attached_program(host, call, program, program_type::PERF_EVENT)? {
                    Ok(program) => program,
                    Err(error) => return Ok(Err(error)),
                };
                if is_sampled && !host.call_at_samples(counter, id) {
                    return Ok(Err(libc::EEXIST));
                }
                (format!("{name} at samples of {}", name_of_event(event_type, config)), is_sampled)
            }
            Some(_) => match self.find(call, program) {
                Some(Thing::Program { name, .. }) => (format!("{name} at a probe"), false),
                _ => return Ok(Err(libc::EBADF)),
            },
            None => return Ok(Err(libc::EBADF)),
        };
        self.needs.insert(Need::new(NeedKind::Program, text, is_modelled));
        Ok(Ok(()))
    }

    /// `read` of a descriptor; `None` if it is not a counter's.
    pub(super) fn read_event(&mut self, host: &Host, call: &Call, now_ns: u64) -> io::Result<Option<Result<i64, i32>>> {
        let [descriptor, buffer, room, ..] = call.arguments;
        let Some(&Thing::Counter(Opened { id, format, .. })) = self.find(call, descriptor as u32) else {
            return Ok(None);
        };
        let Some(reading) = host.read_counter(id, now_ns) else { return Ok(Some(Err(libc::EBADF))) };
        let identity = self.identity(call, descriptor as u32);
        let parts = [
            (TIME_ENABLED, reading.enabled_ns),
            (TIME_RUNNING, reading.running_ns),
            (IDENTITY, identity),
            // Records that were lost, of which there are none.
            (LOST, 0),
        ];
        let mut bytes = reading.value.to_le_bytes().to_vec();
        for (_, number) in parts.into_iter().filter(|(bit, _)| format & bit != 0) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        if (room as usize) < bytes.len() {
            return Ok(Some(Err(libc::ENOSPC)));
        }
        call.write(buffer, &bytes)?;
        Ok(Some(Ok(bytes.len() as i64)))
    }

    /// A number that no other event has.
    fn identity(&self, call: &Call, descriptor: u32) -> u64 {
        call.inode(descriptor).unwrap_or_default()
    }
}
