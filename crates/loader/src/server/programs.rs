//! Programs by the system call: loaded, run once to set things up, attached.

use std::collections::BTreeMap;
use std::sync::Arc;

use warmcore_bpf::MapKind;
use warmcore_scx::bytecode::{Attached, Host, Need, NeedKind, ProgramId, ProgramSource, Site};

use super::commands::{Failure, Fields};
use super::{Answers, Reply, Thing};
use crate::capture::Capture;
use crate::process::Call;

/// Types of programs that are looked at (`enum bpf_prog_type`).
mod program_type {
    pub(crate) const TRACEPOINT: u32 = 5;
    pub(crate) const TRACING: u32 = 26;
    pub(crate) const STRUCT_OPS: u32 = 27;
    pub(crate) const SYSCALL: u32 = 31;
}

/// The function that registers a scheduler, by the name that programs at its entry give.
const REGISTRATION: &str = "bpf_scx_reg";

impl Answers {
    pub(super) fn program_load(&mut self, host: &mut Host, call: &Call, fields: &Fields) -> Result<Reply, Failure> {
        let (kind, count) = (fields.u32(0), fields.u32(4) as usize);
        const MOST: usize = 1_000_000;
        if count == 0 || count > MOST {
            return Ok(Reply::Error(libc::E2BIG));
        }
        let bytes = call.read(fields.u64(8), count * 8)?;
        let name = fields.name(48);
        let (record, records) = (fields.u32(76) as usize, fields.u32(88) as usize);
        let functions = if record < 8 || records > MOST {
            Vec::new()
        } else {
            let info = Fields(call.read(fields.u64(80), record * records)?);
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
                    // By these words a loader learns that an address may lie anywhere in a map, and puts an object's variables at the end of its
                    // arena; without them at the beginning, where a kernel would know that they are there.
                    if source == 2 && u64::from(offset) >= size {
                        let log = format!("invalid access to map value pointer, value_size={size} off={offset}\n\0");
                        let room = fields.u32(28) as usize;
                        if room >= log.len() {
                            call.write(fields.u64(32), log.as_bytes())?;
                        }
                        return Ok(Reply::Error(libc::EINVAL));
                    }
                    maps.insert(descriptor as i32, *handle);
                }
                at += 1;
            }
            at += 1;
        }
        let target = self.kernel.btf.name(fields.u32(108)).to_owned();
        let site = Site::find(fields.u32(68), &target).filter(|_| kind == program_type::TRACING);
        let is_idle = kind == program_type::TRACING && Site::is_passed_by_nobody(fields.u32(68), &target);
        let is_run = match kind {
            program_type::STRUCT_OPS | program_type::SYSCALL => true,
            // Libraries of schedulers look at the moment of registration how programs are entered.
            program_type::TRACING => target == REGISTRATION || site.is_some(),
            _ => false,
        };
        let id = if is_run {
            let types = match self.find(call, fields.u32(72)) {
                Some(Thing::Btf(types)) => Some(types),
                _ => None,
            };
            let types = types.cloned();
            let source =
                ProgramSource { name: &name, bytes: &bytes, functions: &functions, maps: &maps, types: types.as_ref() };
            Some(self.programs.load(host, &source)?)
        } else {
            None
        };
        let name = if target.is_empty() { name } else { format!("{name} ({target})") };
        Ok(Reply::New(Thing::Program { name, kind, id, site, is_idle }, None))
    }

    pub(super) fn test_run(
        &mut self,
        host: &mut Host,
        call: &Call,
        address: u64,
        fields: &Fields,
    ) -> Result<Reply, Failure> {
        const RETURN_VALUE: u64 = 4;
        let Some(Thing::Program { id: Some(id), .. }) = self.find(call, fields.u32(0)) else {
            return Ok(Reply::Error(libc::EINVAL));
        };
        let id = *id;
        let (bytes, at) = (fields.u32(40) as usize, fields.u64(48));
        let mut context = if bytes == 0 { Vec::new() } else { call.read(at, bytes.min(65_536))? };
        let result = self.programs.run(host, id, &mut context, self.cpu)?;
        call.write(at, &context)?;
        call.write(address + RETURN_VALUE, &result.to_le_bytes())?;
        Ok(Reply::Value(0))
    }

    /// A program is attached to a tracepoint or a function. Those that no [`Site`] is happen nowhere here.
    pub(super) fn link(&mut self, call: &Call, descriptor: u32) -> Reply {
        if let Some(&Thing::Program { id: Some(id), site: Some(site), .. }) = self.find(call, descriptor) {
            // What is attached to a scheduler that runs comes too late for it.
            if self.sched_ext.is_attached() {
                return Reply::Error(libc::EOPNOTSUPP);
            }
            self.at.push((site, id));
        }
        if let Some(Thing::Program { name, kind, id, site, is_idle }) = self.find(call, descriptor)
            && (id.is_none() || site.is_some())
        {
            let text = match *kind {
                program_type::TRACEPOINT => format!("{name} at a tracepoint"),
                program_type::TRACING => format!("{name} for tracing"),
                _ => name.clone(),
            };
            self.needs.insert(Need::new(NeedKind::Program, text, site.is_some() || *is_idle));
        }
        Reply::New(Thing::Other, None)
    }

    pub(super) fn attach(&mut self, host: &mut Host, call: &Call, descriptor: u32) -> Result<Reply, Failure> {
        let Some(Thing::Map { handle, value }) = self.find(call, descriptor) else {
            return Ok(Reply::Error(libc::EBADF));
        };
        if self.sched_ext.is_attached() {
            return Ok(Reply::Error(libc::EBUSY));
        }
        let value = value.clone();
        let value_type = host.maps.get(*handle).map_or(0, |map| map.spec.extra as u32);
        let program_of = |descriptor: u32| match self.find(call, descriptor) {
            Some(Thing::Program { id, .. }) => *id,
            _ => None,
        };
        let mut attached = Attached::read(&self.kernel.btf, self.kernel.btf.name(value_type), &value, program_of)?;
        let probes: Vec<ProgramId> = self
            .things
            .values()
            .filter_map(|(thing, _)| match thing {
                Thing::Program { kind: program_type::TRACING, id, site: None, .. } => *id,
                _ => None,
            })
            .collect();
        for probe in probes {
            self.programs.run(host, probe, &mut [0; 64], self.cpu)?;
        }
        attached.at = std::mem::take(&mut self.at);
        let object = Arc::new(self.programs.attach(host, &attached)?);
        let needs = object.needs().chain(&self.needs).cloned().collect();
        Ok(Reply::Attached(Box::new(Capture { object, needs })))
    }
}
