//! The commands of `bpf(2)`: which there are, and what the simple ones give.

use std::io;
use std::sync::Arc;

use warmcore_bpf::btf::Btf;
use warmcore_scx::bytecode::{Host, ObjectError};

use super::{Answers, Reply, Server, Thing};
use crate::capture::Capture;
use crate::process::Call;

pub(super) mod command {
    pub const MAP_CREATE: u64 = 0;
    pub const MAP_LOOKUP_ELEM: u64 = 1;
    pub const MAP_UPDATE_ELEM: u64 = 2;
    pub(crate) const MAP_DELETE_ELEM: u64 = 3;
    pub(crate) const MAP_GET_NEXT_KEY: u64 = 4;
    pub const PROG_LOAD: u64 = 5;
    pub const PROG_TEST_RUN: u64 = 10;
    pub const OBJ_GET_INFO_BY_FD: u64 = 15;
    pub const RAW_TRACEPOINT_OPEN: u64 = 17;
    pub const BTF_LOAD: u64 = 18;
    pub(crate) const MAP_LOOKUP_AND_DELETE_ELEM: u64 = 21;
    pub const MAP_FREEZE: u64 = 22;
    pub(crate) const BTF_GET_NEXT_ID: u64 = 23;
    pub const LINK_CREATE: u64 = 28;
    pub(crate) const LINK_DETACH: u64 = 34;
    pub(crate) const PROG_BIND_MAP: u64 = 35;
    pub(crate) const TOKEN_CREATE: u64 = 36;
    pub(crate) const PROG_STREAM_READ: u64 = 37;
    pub(crate) const PROG_ASSOC_STRUCT_OPS: u64 = 38;
}

/// Attach types of links: to the event behind another descriptor, and of a struct_ops.
const ATTACH_PERF_EVENT: u32 = 41;
const ATTACH_STRUCT_OPS: u32 = 44;

/// Numbers in a structure of a system call. What lies behind its end is zero, as the kernel has it.
pub(super) struct Fields(pub(super) Vec<u8>);

impl Fields {
    pub(super) fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().expect("four bytes")))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }

    /// A name of at most 15 bytes.
    pub(super) fn name(&self, at: usize) -> String {
        let bytes = self.0.get(at..(at + 16).min(self.0.len())).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

impl Server {
    pub(super) fn bpf(&mut self, host: &mut Host, call: &Call) -> Result<Option<Box<Capture>>, ObjectError> {
        const LARGEST: usize = 256;
        let [number, address, size, ..] = call.arguments;
        let fields = match call.read(address, (size as usize).min(LARGEST)) {
            Ok(bytes) => Fields(bytes),
            Err(_) => {
                self.process.answer(call, Err(libc::EFAULT));
                return Ok(None);
            }
        };
        self.answers.cpu = self.owner.cpu_of(call.thread);
        let reply = self.answers.answer(host, call, number, address, &fields)?;
        Ok(self.reply(call, reply))
    }
}

impl Answers {
    pub(super) fn answer(
        &mut self,
        host: &mut Host,
        call: &Call,
        number: u64,
        address: u64,
        fields: &Fields,
    ) -> Result<Reply, ObjectError> {
        match self.command(host, call, number, address, fields) {
            Ok(reply) => Ok(reply),
            Err(Failure::Memory) => Ok(Reply::Error(libc::EFAULT)),
            Err(Failure::Object(error)) => Err(error),
        }
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
            | command::MAP_LOOKUP_AND_DELETE_ELEM
            | command::MAP_GET_NEXT_KEY => self.map_element(host, call, number, fields)?,
            command::PROG_LOAD => self.program_load(host, call, fields)?,
            command::PROG_TEST_RUN => self.test_run(host, call, address, fields)?,
            command::OBJ_GET_INFO_BY_FD => self.info(host, call, fields)?,
            command::BTF_LOAD => {
                let bytes = call.read(fields.u64(0), fields.u32(16) as usize)?;
                match Btf::parse(bytes) {
                    Ok(btf) => Reply::New(Thing::Btf(Arc::new(btf)), None),
                    Err(_) => Reply::Error(libc::EINVAL),
                }
            }
            command::RAW_TRACEPOINT_OPEN => self.open_raw_tracepoint(host, call, fields)?,
            command::LINK_CREATE => match fields.u32(8) {
                ATTACH_STRUCT_OPS => self.attach(host, call, fields.u32(0))?,
                ATTACH_PERF_EVENT => match self.attach_to_event(host, call, fields.u32(0), fields.u32(4))? {
                    Ok(()) => Reply::New(Thing::Other, None),
                    Err(error) => Reply::Error(error),
                },
                _ => self.link(call, fields.u32(0)),
            },
            command::LINK_DETACH => match self.find(call, fields.u32(0)) {
                Some(Thing::Scheduler) => Reply::Detached,
                Some(_) => Reply::Error(libc::EOPNOTSUPP),
                None => Reply::Error(libc::EBADF),
            },
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

    fn info(&mut self, host: &mut Host, call: &Call, fields: &Fields) -> Result<Reply, Failure> {
        let (descriptor, length, at) = (fields.u32(0), fields.u32(4) as usize, fields.u64(8));
        let Some(inode) = call.inode(descriptor) else { return Ok(Reply::Error(libc::EBADF)) };
        let Some((thing, _)) = self.things.get(&inode) else { return Ok(Reply::Error(libc::EBADF)) };
        let mut info = call.read(at, length.min(4096))?;
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
            Thing::Scheduler | Thing::Counter(_) | Thing::Tracepoint(_) | Thing::Other => {}
        }
        call.write(at, &info)?;
        Ok(Reply::Value(0))
    }
}

/// Why a command has no answer of its own.
pub(super) enum Failure {
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
