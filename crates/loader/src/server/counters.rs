//! `perf_event_open` and what is done with its descriptors: counters of CPUs, and places at which nothing happens here.
//!
//! Events that the model counts are opened; any other is refused as by a kernel that does not have it, and named among what is missing. Source: Linux
//! 7.2 `kernel/events/core.c` (`perf_event_open`, `perf_read`, `_perf_ioctl`), `include/uapi/linux/perf_event.h`.

use std::io;

use warmcore_scx::bytecode::{Counted, CounterId, CounterSpec, Host, Need, NeedKind, name_of_event};
use warmcore_topology::CpuId;

use super::commands::Fields;
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
}

impl Answers {
    /// `perf_event_open`, at an instant of the loader's clock.
    pub(super) fn open_event(&mut self, host: &mut Host, call: &Call, now_ns: u64) -> io::Result<Reply> {
        let [attributes, pid, cpu, group, ..] = call.arguments;
        const KNOWN_BYTES: usize = 64;
        let fields = Fields(call.read(attributes, KNOWN_BYTES)?);
        let (event_type, config, format, flags) = (fields.u32(0), fields.u64(8), fields.u64(32), fields.u64(40));
        if event_type == TRACEPOINT || event_type >= FIRST_DYNAMIC || (event_type, config) == OUTPUT {
            return Ok(Reply::New(Thing::Other, None));
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
        if pid != -1 {
            return refuse(format!("{name} of a thread"), libc::EOPNOTSUPP);
        }
        if group != -1 || format & GROUP != 0 {
            return refuse(format!("{name} in a group"), libc::EOPNOTSUPP);
        }
        if flags & EXCLUDE_USER != 0 && counted.is_of_memory() {
            return refuse(format!("{name} of the kernel alone"), libc::EOPNOTSUPP);
        }
        let Some(cpu) = u32::try_from(cpu).ok().map(CpuId).filter(|cpu| cpu.index() < self.machine.cpu_count()) else {
            return Ok(Reply::Error(libc::EINVAL));
        };
        self.needs.insert(Need::new(NeedKind::Event, name, true));
        let id = host.open_counter(CounterSpec { counted, cpu, is_inherited: flags & INHERIT != 0 });
        if flags & DISABLED == 0 {
            host.enable_counter(id, now_ns);
        }
        Ok(Reply::New(Thing::Counter(Opened { id, format }), None))
    }

    /// An `ioctl` on a descriptor; `None` if it is not one of ours.
    pub(super) fn request(
        &mut self,
        host: &mut Host,
        call: &Call,
        now_ns: u64,
    ) -> io::Result<Option<Result<i64, i32>>> {
        let [descriptor, request, argument, ..] = call.arguments;
        let (descriptor, request) = (descriptor as u32, request as u32);
        let opened = match self.find(call, descriptor) {
            None => return Ok(None),
            Some(&Thing::Counter(opened)) => Some(opened),
            Some(_) => None,
        };
        if request == request::SET_BPF {
            return Ok(Some(self.attach_to_event(call, argument as u32, opened.is_some())));
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

    /// A program for each sample of a counter, or for a tracepoint: it is never called here.
    fn attach_to_event(&mut self, call: &Call, program: u32, is_counter: bool) -> Result<i64, i32> {
        let Some(Thing::Program { name, .. }) = self.find(call, program) else { return Err(libc::EBADF) };
        let place = if is_counter { "samples of a counter" } else { "a tracepoint or probe" };
        let text = format!("{name} at {place}");
        self.needs.insert(Need::new(NeedKind::Program, text, false));
        Ok(0)
    }

    /// `read` of a descriptor; `None` if it is not a counter's.
    pub(super) fn read_event(&mut self, host: &Host, call: &Call, now_ns: u64) -> io::Result<Option<Result<i64, i32>>> {
        let [descriptor, buffer, room, ..] = call.arguments;
        let Some(&Thing::Counter(Opened { id, format })) = self.find(call, descriptor as u32) else { return Ok(None) };
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
