//! `bpf(2)` in the kernel's place.
//!
//! The commands, their structures (`union bpf_attr`) and what loaders expect of each: `docs/spec/bpf-runtime.md` section 3.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warmcore_bpf::btf::Btf;
use warmcore_bpf::maps::MapFault;
use warmcore_bpf::{MapKind, MapSpec};
use warmcore_scx::bytecode::{Attached, Host, Moment, ObjectError, ProgramId, ProgramSource, Programs};
use warmcore_topology::Machine;

use crate::capture::{Capture, LoaderError, Request};
use crate::kernel::TargetKernel;
use crate::paths;
use crate::process::{Call, Next, Process, SpawnError};
use crate::waits::{self, Waits};

/// `PERF_EVENT_IOC_ENABLE`, `_DISABLE` and `_SET_BPF`.
const PERF_REQUESTS: [u32; 3] = [0x2400, 0x2401, 0x4004_2408];

const BPF: i64 = libc::SYS_bpf;

mod command {
    pub const MAP_CREATE: u64 = 0;
    pub const MAP_LOOKUP_ELEM: u64 = 1;
    pub const MAP_UPDATE_ELEM: u64 = 2;
    pub const MAP_DELETE_ELEM: u64 = 3;
    pub const MAP_GET_NEXT_KEY: u64 = 4;
    pub const PROG_LOAD: u64 = 5;
    pub const PROG_TEST_RUN: u64 = 10;
    pub const OBJ_GET_INFO_BY_FD: u64 = 15;
    pub const RAW_TRACEPOINT_OPEN: u64 = 17;
    pub const BTF_LOAD: u64 = 18;
    pub const MAP_FREEZE: u64 = 22;
    pub const BTF_GET_NEXT_ID: u64 = 23;
    pub const LINK_CREATE: u64 = 28;
    pub const PROG_BIND_MAP: u64 = 35;
    pub const TOKEN_CREATE: u64 = 36;
    pub const PROG_STREAM_READ: u64 = 37;
    pub const PROG_ASSOC_STRUCT_OPS: u64 = 38;
}

/// Types of programs that are looked at (`enum bpf_prog_type`).
mod program_type {
    pub const TRACEPOINT: u32 = 5;
    pub const TRACING: u32 = 26;
    pub const STRUCT_OPS: u32 = 27;
    pub const SYSCALL: u32 = 31;
}

/// Attach type of a struct_ops link.
const ATTACH_STRUCT_OPS: u32 = 44;

/// How often a loader that calls nothing is looked at.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// How long a loader may do nothing at all before it attaches: what it waits for does not come.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// A thing behind a descriptor.
enum Thing {
    /// A map, by handle, and of a table of operations the value.
    Map { handle: u64, value: Vec<u8> },
    /// A program; `None` for one that is only probed with or never run.
    Program { name: String, kind: u32, id: Option<ProgramId> },
    /// Type information.
    Btf(Box<Btf>),
    /// A link or a counter.
    Other,
}

/// What a command gives.
enum Reply {
    Value(i64),
    Error(i32),
    /// A descriptor for a new thing, behind this file or one of its own.
    New(Thing, Option<Arc<OwnedFd>>),
    /// The scheduler is attached.
    Attached(Box<Capture>),
}

/// Who answers a loader. The kernel that it loads into is handed in with each call.
pub(crate) struct Server {
    process: Process,
    machine: Machine,
    kernel: TargetKernel,
    programs: Programs,
    /// Things by the number of the file behind their descriptors, which is kept open so that the number stays theirs.
    things: HashMap<u64, (Thing, Arc<OwnedFd>)>,
    not_run: Vec<String>,
    /// What it prints.
    pub(crate) output: File,
    /// Its waits and clocks, if it is to go on in simulated time.
    waits: Option<Waits>,
    /// Whether its clock is a system call by now.
    has_no_clock: bool,
}

/// Numbers in a structure of a system call. What lies behind its end is zero, as the kernel has it.
struct Fields(Vec<u8>);

impl Fields {
    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().expect("four bytes")))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }

    /// A name of at most 15 bytes.
    fn name(&self, at: usize) -> String {
        let bytes = self.0.get(at..(at + 16).min(self.0.len())).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// Starts the loader and answers it until it attaches; with `goes_on` it can be answered further, in simulated time.
pub(crate) fn begin(
    request: &Request<'_>,
    root: &Path,
    goes_on: bool,
) -> Result<(Server, Box<Host>, Stopped), LoaderError> {
    let program = request.program.display().to_string();
    let start = |source| LoaderError::Start { program: program.clone(), source };
    let object = |source: ObjectError| LoaderError::Object { program: program.clone(), source };
    let host = Host::new(request.machine, Arc::clone(&request.kernel.btf), Arc::clone(&request.kernel.layout));
    let mut host = Box::new(host.map_err(|error| object(error.into()))?);
    let output = tempfile::tempfile().map_err(start)?;
    let time: &[i64] = if goes_on { &waits::CALLS } else { &[] };
    let numbers: Vec<i64> = [BPF, libc::SYS_perf_event_open, libc::SYS_epoll_ctl, libc::SYS_uname]
        .iter()
        .chain(&paths::CALLS)
        .chain(time)
        .copied()
        .collect();
    let copy = output.try_clone().map_err(start)?;
    let spawned = Process::spawn(request.program, request.arguments, &numbers, &PERF_REQUESTS, copy);
    let process = spawned.map_err(|error| match error {
        SpawnError::Start(source) => start(source),
        SpawnError::Forbidden(what, source) => LoaderError::Forbidden { program: program.clone(), what, source },
    })?;
    let mut server = Server {
        process,
        machine: request.machine.clone(),
        kernel: request.kernel.clone(),
        programs: Programs::default(),
        things: HashMap::new(),
        not_run: Vec::new(),
        output,
        waits: goes_on.then(Waits::new),
        has_no_clock: !goes_on,
    };
    let began = Instant::now();
    let until = began + request.timeout;
    // Since when it waits for something that no call of its own brings.
    let mut rests_since = None;
    let stopped = loop {
        match server.process.next(until.min(Instant::now() + LOOKED_AT)) {
            Ok(Next::Call(call)) => {
                rests_since = None;
                match server.call(&mut host, &call, root) {
                    Ok(None) => {}
                    Ok(Some(capture)) => break Stopped::Attached(call, capture),
                    Err(source) => return Err(object(source)),
                }
            }
            Ok(Next::TimedOut) => {
                let now = Instant::now();
                let since = *rests_since.get_or_insert(now);
                if !server.process.rests() {
                    rests_since = None;
                } else if now - since >= request.timeout.min(LONGEST_REST) {
                    break Stopped::TimedOut(now - began);
                }
                if now >= until {
                    break Stopped::TimedOut(now - began);
                }
            }
            Ok(Next::Ended) => break Stopped::Ended,
            Err(source) => {
                return Err(LoaderError::Forbidden { program, what: "the next system call", source });
            }
        }
    };
    Ok((server, host, stopped))
}

/// Why a loader is no longer answered.
pub(crate) enum Stopped {
    /// It attached its scheduler, by this call.
    Attached(Call, Box<Capture>),
    /// It took so long, which is too long.
    TimedOut(Duration),
    /// It is gone.
    Ended,
}

/// The last lines that a loader printed, in one.
pub(crate) fn last_words(output: &mut File) -> String {
    const LINES: usize = 4;
    let mut text = Vec::new();
    // Nothing that can be read is nothing that it said.
    let _ = output.rewind().and_then(|()| output.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() { "nothing".to_owned() } else { last.join(" | ") }
}

impl Server {
    /// Why there is no scheduler, of a loader that did not attach one.
    pub(crate) fn refuse(mut self, request: &Request<'_>, stopped: &Stopped) -> LoaderError {
        let program = request.program.display().to_string();
        let status = self.process.end();
        let said = last_words(&mut self.output);
        match stopped {
            Stopped::TimedOut(waited) => LoaderError::Hangs { program, seconds: waited.as_secs(), said },
            _ => {
                let status = status.map_or_else(|| "in an unknown way".to_owned(), |status| status.to_string());
                LoaderError::Ended { program, status, said }
            }
        }
    }

    /// Answers one call; gives the scheduler if that attached it.
    fn call(&mut self, host: &mut Host, call: &Call, root: &Path) -> Result<Option<Box<Capture>>, ObjectError> {
        if !self.has_no_clock {
            // Where that cannot be done, its clock is this computer's, which the first read of it would show.
            self.has_no_clock = self.process.hide_clock(call).is_ok();
        }
        let number = i64::from(call.number);
        if number == BPF {
            return self.bpf(host, call);
        }
        if let Some(waits) = self.waits.as_mut().filter(|_| waits::CALLS.contains(&number)) {
            waits.serve(&self.process, call);
            return Ok(None);
        }
        let served = match number {
            libc::SYS_uname => self.uname(call).map(|()| true),
            libc::SYS_perf_event_open => {
                self.reply(call, Reply::New(Thing::Other, None));
                Ok(true)
            }
            // What is waited for there never comes.
            libc::SYS_epoll_ctl => Ok(self.answer_if_ours(call, call.arguments[2] as u32)),
            libc::SYS_ioctl => Ok(self.answer_if_ours(call, call.arguments[0] as u32)),
            _ => paths::serve(&self.process, call, root, self.waits.is_some()),
        };
        match served {
            Ok(true) => {}
            Ok(false) => self.process.let_through(call),
            Err(error) => self.process.answer(call, Err(error.raw_os_error().unwrap_or(libc::EFAULT))),
        }
        Ok(None)
    }

    fn answer_if_ours(&self, call: &Call, descriptor: u32) -> bool {
        let ours = self.find(call, descriptor).is_some();
        if ours {
            self.process.answer(call, Ok(0));
        }
        ours
    }

    fn uname(&self, call: &Call) -> io::Result<()> {
        // SAFETY: the kernel fills the structure.
        let mut names: libc::utsname = unsafe {
            let mut names = std::mem::zeroed();
            libc::uname(&raw mut names);
            names
        };
        names.release.fill(0);
        let release = self.kernel.release.bytes().take(names.release.len() - 1);
        for (to, from) in names.release.iter_mut().zip(release) {
            *to = from as libc::c_char;
        }
        // SAFETY: a structure of plain bytes.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(&names).cast::<u8>(), size_of_val(&names)) };
        self.process.write(call, call.arguments[0], bytes)?;
        self.process.answer(call, Ok(0));
        Ok(())
    }

    fn find(&self, call: &Call, descriptor: u32) -> Option<&Thing> {
        let number = self.process.inode(call, descriptor)?;
        self.things.get(&number).map(|(thing, _)| thing)
    }

    fn reply(&mut self, call: &Call, reply: Reply) -> Option<Box<Capture>> {
        match reply {
            Reply::Value(value) => self.process.answer(call, Ok(value)),
            Reply::Error(error) => self.process.answer(call, Err(error)),
            Reply::Attached(capture) => return Some(capture),
            Reply::New(thing, file) => match file.map_or_else(empty_file, Ok) {
                Ok(file) => {
                    self.process.answer_with(call, file.as_fd());
                    match File::from(file.as_fd().try_clone_to_owned().ok()?).metadata() {
                        Ok(metadata) => {
                            self.things.insert(metadata.ino(), (thing, file));
                        }
                        Err(_) => self.process.answer(call, Err(libc::EMFILE)),
                    }
                }
                Err(_) => self.process.answer(call, Err(libc::EMFILE)),
            },
        }
        None
    }

    fn bpf(&mut self, host: &mut Host, call: &Call) -> Result<Option<Box<Capture>>, ObjectError> {
        const LARGEST: usize = 256;
        let [number, address, size, ..] = call.arguments;
        let fields = match self.process.read(call, address, (size as usize).min(LARGEST)) {
            Ok(bytes) => Fields(bytes),
            Err(_) => {
                self.process.answer(call, Err(libc::EFAULT));
                return Ok(None);
            }
        };
        let reply = match self.command(host, call, number, address, &fields) {
            Ok(reply) => reply,
            Err(Failure::Memory) => Reply::Error(libc::EFAULT),
            Err(Failure::Object(error)) => return Err(error),
        };
        Ok(self.reply(call, reply))
    }

    fn command(
        &mut self,
        host: &mut Host,
        call: &Call,
        number: u64,
        address: u64,
        fields: &Fields,
    ) -> Result<Reply, Failure> {
        Ok(match number {
            command::MAP_CREATE => self.map_create(host, call, fields)?,
            command::MAP_LOOKUP_ELEM
            | command::MAP_UPDATE_ELEM
            | command::MAP_DELETE_ELEM
            | command::MAP_GET_NEXT_KEY => self.map_element(host, call, number, fields)?,
            command::PROG_LOAD => self.program_load(host, call, fields)?,
            command::PROG_TEST_RUN => self.test_run(host, call, address, fields)?,
            command::OBJ_GET_INFO_BY_FD => self.info(host, call, fields)?,
            command::BTF_LOAD => {
                let bytes = self.process.read(call, fields.u64(0), fields.u32(16) as usize)?;
                match Btf::parse(bytes) {
                    Ok(btf) => Reply::New(Thing::Btf(Box::new(btf)), None),
                    Err(_) => Reply::Error(libc::EINVAL),
                }
            }
            command::RAW_TRACEPOINT_OPEN => self.link(call, fields.u32(8)),
            command::LINK_CREATE => {
                if fields.u32(8) == ATTACH_STRUCT_OPS {
                    self.attach(host, call, fields.u32(0))?
                } else {
                    self.link(call, fields.u32(0))
                }
            }
            command::MAP_FREEZE => {
                if let Some(&Thing::Map { handle, .. }) = self.find(call, fields.u32(0)) {
                    host.maps.freeze(handle);
                }
                Reply::Value(0)
            }
            command::PROG_BIND_MAP | command::PROG_STREAM_READ | command::PROG_ASSOC_STRUCT_OPS => Reply::Value(0),
            command::BTF_GET_NEXT_ID => Reply::Error(libc::ENOENT),
            command::TOKEN_CREATE => Reply::Error(libc::EPERM),
            _ => Reply::Error(libc::EINVAL),
        })
    }

    fn map_create(&mut self, host: &mut Host, call: &Call, fields: &Fields) -> Result<Reply, Failure> {
        let Some(kind) = MapKind::from_number(fields.u32(0)) else { return Ok(Reply::Error(libc::EINVAL)) };
        let value_type = fields.u32(56);
        let special = match self.find(call, fields.u32(48)) {
            Some(Thing::Btf(btf)) if value_type != 0 => btf.special_fields(value_type),
            _ => Vec::new(),
        };
        let spec = MapSpec {
            name: fields.name(28),
            kind,
            key_bytes: fields.u32(4),
            value_bytes: fields.u32(8),
            entries: fields.u32(12),
            flags: fields.u32(16),
            extra: fields.u64(64),
            special,
        };
        if kind == MapKind::Arena && host.maps.iter().any(|map| map.spec.kind == MapKind::Arena) {
            // A probe made one; only its address counts, and the real one asks for the same.
            let probe =
                host.maps.iter().position(|map| map.spec.kind == MapKind::Arena && map.spec.entries == spec.entries);
            if let Some(handle) = probe.map(|index| index as u64 + 1)
                && let Some(map) = host.maps.get(handle)
            {
                let file = Arc::clone(&map.file);
                return Ok(Reply::New(Thing::Map { handle, value: Vec::new() }, Some(file)));
            }
        }
        let handle = host.maps.create(spec).map_err(ObjectError::from)?;
        let file = host.maps.get(handle).map(|map| Arc::clone(&map.file));
        Ok(Reply::New(Thing::Map { handle, value: Vec::new() }, file))
    }

    fn map_element(&mut self, host: &mut Host, call: &Call, number: u64, fields: &Fields) -> Result<Reply, Failure> {
        let Some(inode) = self.process.inode(call, fields.u32(0)) else { return Ok(Reply::Error(libc::EBADF)) };
        let Some((Thing::Map { handle, value: kept }, _)) = self.things.get_mut(&inode) else {
            return Ok(Reply::Error(libc::EBADF));
        };
        let handle = *handle;
        let Some(map) = host.maps.get(handle) else { return Ok(Reply::Error(libc::EBADF)) };
        let (kind, bytes) = (map.spec.kind, map.spec.value_bytes as usize);
        let key_at = fields.u64(8);
        let key =
            if key_at == 0 { None } else { Some(self.process.read(call, key_at, map.spec.key_bytes as usize)?) };
        let per_cpu = kind == MapKind::PercpuArray;
        let all = if per_cpu { bytes.next_multiple_of(8) * self.machine.cpu_count() } else { bytes };
        let result = match (number, key) {
            (command::MAP_GET_NEXT_KEY, key) => match host.maps.next_key(handle, key.as_deref()) {
                Some(next) => {
                    self.process.write(call, fields.u64(16), &next)?;
                    Ok(())
                }
                None => Err(MapFault::NoEntry),
            },
            (_, None) => Err(MapFault::Invalid),
            (command::MAP_UPDATE_ELEM, Some(key)) => {
                let value = self.process.read(call, fields.u64(16), all)?;
                if kind == MapKind::StructOps {
                    *kept = value;
                    Ok(())
                } else {
                    host.maps.update(handle, &key, &value, fields.u64(24), None)
                }
            }
            (command::MAP_DELETE_ELEM, Some(key)) => host.maps.delete(handle, &key),
            (_, Some(key)) => {
                let cpus = if per_cpu { self.machine.cpu_count() as u32 } else { 1 };
                let mut value = Vec::with_capacity(all);
                for cpu in 0..cpus {
                    let found = host.maps.find(handle, &key, cpu);
                    let part = found.and_then(|place| host.maps.memory.read(place, bytes as u64));
                    match part {
                        Some(part) => value.extend_from_slice(part),
                        None => return Ok(Reply::Error(libc::ENOENT)),
                    }
                    value.resize(value.len().next_multiple_of(8).min(all), 0);
                }
                self.process.write(call, fields.u64(16), &value)?;
                Ok(())
            }
        };
        Ok(result.map_or_else(|fault| Reply::Error(fault as i32), |()| Reply::Value(0)))
    }

    fn program_load(&mut self, host: &mut Host, call: &Call, fields: &Fields) -> Result<Reply, Failure> {
        let (kind, count) = (fields.u32(0), fields.u32(4) as usize);
        const MOST: usize = 1_000_000;
        if count == 0 || count > MOST {
            return Ok(Reply::Error(libc::E2BIG));
        }
        let bytes = self.process.read(call, fields.u64(8), count * 8)?;
        let name = fields.name(48);
        let (record, records) = (fields.u32(76) as usize, fields.u32(88) as usize);
        let functions = if record < 8 || records > MOST {
            Vec::new()
        } else {
            let info = Fields(self.process.read(call, fields.u64(80), record * records)?);
            (0..records).map(|number| info.u32(number * record)).collect()
        };
        let mut maps = BTreeMap::new();
        let mut at = 0;
        while at < count {
            let slot = &bytes[at * 8..at * 8 + 8];
            if slot[0] == 0x18 {
                let source = slot[1] >> 4;
                if source == 1 || source == 2 {
                    let descriptor = u32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]]);
                    let Some(Thing::Map { handle, .. }) = self.find(call, descriptor) else {
                        return Ok(Reply::Error(libc::EBADF));
                    };
                    let map = host.maps.get(*handle);
                    let offset = bytes
                        .get(at * 8 + 12..at * 8 + 16)
                        .map_or(0, |four| u32::from_le_bytes(four.try_into().expect("four bytes")));
                    let size = map.map_or(0, |map| match map.spec.kind {
                        MapKind::Arena => u64::from(map.spec.entries) * 4096,
                        _ => u64::from(map.spec.value_bytes),
                    });
                    // By this refusal a loader learns that addresses in values are checked.
                    if source == 2 && u64::from(offset) >= size {
                        return Ok(Reply::Error(libc::EINVAL));
                    }
                    maps.insert(descriptor as i32, *handle);
                }
                at += 1;
            }
            at += 1;
        }
        let target = self.kernel.btf.name(fields.u32(108)).to_owned();
        let is_run = match kind {
            program_type::STRUCT_OPS | program_type::SYSCALL => true,
            // Libraries of schedulers look at the moment of registration how programs are entered.
            program_type::TRACING => target == "bpf_scx_reg",
            _ => false,
        };
        let id = if is_run {
            let source = ProgramSource { name: &name, bytes: &bytes, functions: &functions, maps: &maps };
            Some(self.programs.load(host, &source)?)
        } else {
            None
        };
        let name = if target.is_empty() { name } else { format!("{name} ({target})") };
        Ok(Reply::New(Thing::Program { name, kind, id }, None))
    }

    fn test_run(&mut self, host: &mut Host, call: &Call, address: u64, fields: &Fields) -> Result<Reply, Failure> {
        const RETURN_VALUE: u64 = 4;
        let Some(Thing::Program { id: Some(id), .. }) = self.find(call, fields.u32(0)) else {
            return Ok(Reply::Error(libc::EINVAL));
        };
        let id = *id;
        let (bytes, at) = (fields.u32(40) as usize, fields.u64(48));
        let mut context = if bytes == 0 { Vec::new() } else { self.process.read(call, at, bytes.min(65_536))? };
        let result = self.programs.run(host, id, &mut context)?;
        self.process.write(call, at, &context)?;
        self.process.write(call, address + RETURN_VALUE, &result.to_le_bytes())?;
        Ok(Reply::Value(0))
    }

    fn info(&mut self, host: &mut Host, call: &Call, fields: &Fields) -> Result<Reply, Failure> {
        let (descriptor, length, at) = (fields.u32(0), fields.u32(4) as usize, fields.u64(8));
        let Some(inode) = self.process.inode(call, descriptor) else { return Ok(Reply::Error(libc::EBADF)) };
        let Some((thing, _)) = self.things.get(&inode) else { return Ok(Reply::Error(libc::EBADF)) };
        let mut info = self.process.read(call, at, length.min(4096))?;
        let mut put = |at: usize, value: u32| {
            if let Some(place) = info.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        };
        let number = inode as u32 & 0x7fff_ffff;
        match thing {
            Thing::Map { handle, .. } => {
                if let Some(map) = host.maps.get(*handle) {
                    let spec = &map.spec;
                    let values = [spec.kind as u32, number, spec.key_bytes, spec.value_bytes, spec.entries, spec.flags];
                    for (index, value) in values.into_iter().enumerate() {
                        put(index * 4, value);
                    }
                    let name = spec.name.as_bytes();
                    if let Some(place) = info.get_mut(24..24 + name.len()) {
                        place.copy_from_slice(name);
                    }
                }
            }
            Thing::Program { kind, .. } => {
                put(0, *kind);
                put(4, number);
            }
            Thing::Btf(_) => put(16, number),
            Thing::Other => {}
        }
        self.process.write(call, at, &info)?;
        Ok(Reply::Value(0))
    }

    /// A program is attached to something that does not happen here.
    fn link(&mut self, call: &Call, descriptor: u32) -> Reply {
        if let Some(Thing::Program { name, kind, id: None }) = self.find(call, descriptor) {
            let kind = match *kind {
                program_type::TRACEPOINT => "tracepoint",
                program_type::TRACING => "tracing",
                _ => "program",
            };
            let text = format!("{kind} {name}");
            self.not_run.push(text);
        }
        Reply::New(Thing::Other, None)
    }

    fn attach(&mut self, host: &mut Host, call: &Call, descriptor: u32) -> Result<Reply, Failure> {
        let Some(Thing::Map { value, .. }) = self.find(call, descriptor) else { return Ok(Reply::Error(libc::EBADF)) };
        let value = value.clone();
        let program_of = |descriptor: u32| match self.find(call, descriptor) {
            Some(Thing::Program { id, .. }) => *id,
            _ => None,
        };
        let attached = Attached::read(&self.kernel.btf, &value, program_of)?;
        let probes: Vec<ProgramId> = self
            .things
            .values()
            .filter_map(|(thing, _)| match thing {
                Thing::Program { kind: program_type::TRACING, id, .. } => *id,
                _ => None,
            })
            .collect();
        for probe in probes {
            self.programs.run(host, probe, &mut [0; 64])?;
        }
        let object = Arc::new(self.programs.attach(host, &attached)?);
        let missing = self.programs.missing().map(str::to_owned).collect();
        Ok(Reply::Attached(Box::new(Capture { object, missing, not_run: std::mem::take(&mut self.not_run) })))
    }
}

/// A loader that goes on.
impl Server {
    /// The run has come to an instant; a loader that waits until then goes on.
    pub(crate) fn advance(&mut self, moment: &Moment) {
        if let Some(waits) = &mut self.waits {
            waits.is_running = true;
            waits.advance(&self.process, moment.now_ns);
        }
    }

    /// The call that attached is over: it gives a link.
    pub(crate) fn answer_attached(&mut self, call: &Call) {
        self.reply(call, Reply::New(Thing::Other, None));
    }

    /// Answers the next call; whether anything went on.
    ///
    /// # Errors
    /// When nothing more can come of the loader, in words.
    pub(crate) fn one(&mut self, host: &mut Host, root: &Path, wait: Duration) -> Result<bool, String> {
        match self.process.next(Instant::now() + wait) {
            Ok(Next::Call(call)) => match self.call(host, &call, root) {
                Ok(None) => Ok(true),
                Ok(Some(_)) => Err("it attaches a second scheduler".into()),
                Err(error) => Err(error.to_string()),
            },
            Ok(Next::TimedOut) => Ok(self.waits.as_mut().is_some_and(|waits| waits.look(&self.process))),
            Ok(Next::Ended) => Err("it has ended, which takes its scheduler away".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether all its threads wait.
    pub(crate) fn rests(&self) -> bool {
        self.process.rests()
    }

    /// The next instant at which one of them goes on by itself.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.waits.as_ref()?.next_ns()
    }
}

/// Why a command has no answer of its own.
enum Failure {
    /// The loader named memory that it does not have.
    Memory,
    /// Nothing can come of this loader.
    Object(ObjectError),
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Memory
    }
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

fn empty_file() -> io::Result<Arc<OwnedFd>> {
    // SAFETY: a name that ends with a zero; what is got is owned.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"bpf".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    Ok(Arc::new(file))
}
