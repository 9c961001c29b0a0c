//! Programs by the system call: loaded, run once to set things up, attached.

use std::collections::BTreeMap;
use std::sync::Arc;

use warmcore_bpf::MapKind;
use warmcore_bpf::btf::Btf;
use warmcore_scx::bytecode::{AttachType, Attached, CalledWith, Host, Need, NeedKind, ProgramId, Site};

use super::commands::{Failure, Fields};
use super::things::Text;
use super::{Answers, Reply, Thing};
use crate::capture::Capture;
use crate::process::Call;

/// Types of programs that are looked at (`enum bpf_prog_type`).
pub(super) mod program_type {
    pub(crate) const TRACEPOINT: u32 = 5;
    pub(crate) const PERF_EVENT: u32 = 7;
    pub(crate) const RAW_TRACEPOINT: u32 = 17;
    pub(crate) const TRACING: u32 = 26;
    pub(crate) const STRUCT_OPS: u32 = 27;
    pub(crate) const SYSCALL: u32 = 31;
}

/// `ENOTSUPP`, which no header of user space has.
const NOT_SUPPORTED: i32 = 524;

/// The function that registers a scheduler, by the name that programs at its entry give.
const REGISTRATION: &str = "bpf_scx_reg";

/// Where the function begins that a program names for what it throws (`bpf_find_exception_callback_insn_off`), by beginnings and types of its functions.
fn exception_callback(types: &Btf, functions: &[(u32, u32)]) -> Option<u32> {
    let &(_, main) = functions.first()?;
    let name = types.tags(main).find_map(|tag| tag.strip_prefix("exception_callback:"))?;
    functions.iter().find(|(_, function)| types.name(*function) == name).map(|&(start, _)| start)
}

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
        let functions: Vec<(u32, u32)> = if record < 8 || records > MOST {
            Vec::new()
        } else {
            let info = Fields(call.read(fields.u64(80), record * records)?);
            let places = (0..records).map(|number| number * record);
            places.map(|place| (info.u32(place), info.u32(place + 4))).collect()
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
        let is_run_when_attached =
            [program_type::TRACEPOINT, program_type::PERF_EVENT, program_type::RAW_TRACEPOINT].contains(&kind);
        let types = match self.find(call, fields.u32(72)) {
            Some(Thing::Btf(types)) => Some(Arc::clone(types)),
            _ => None,
        };
        let catches = types.as_deref().and_then(|types| exception_callback(types, &functions));
        let functions = functions.into_iter().map(|(start, _)| start).collect();
        let text = Text { bytes, functions, catches, maps, types };
        let id = if is_run { Some(self.programs.load(host, &text.source(&name))?) } else { None };
        let text = is_run_when_attached.then_some(text);
        let name = if target.is_empty() { name } else { format!("{name} ({target})") };
        Ok(Reply::New(Thing::Program { name, kind, id, site, is_idle, text }, None))
    }

    /// Name and number of a program of one of the kinds that are translated when they are attached, or the number of the error.
    pub(super) fn attached_program(
        &mut self,
        host: &mut Host,
        call: &Call,
        descriptor: u32,
        wanted: u32,
    ) -> Result<Result<(String, ProgramId), i32>, Failure> {
        let Some(inode) = call.inode(descriptor) else { return Ok(Err(libc::EBADF)) };
        let Some((Thing::Program { name, kind, id, text, .. }, _)) = self.things.get_mut(&inode) else {
            return Ok(Err(libc::EBADF));
        };
        let number = match (&id, &text) {
            _ if *kind != wanted => return Ok(Err(libc::EINVAL)),
            (Some(id), _) => *id,
            (None, Some(text)) => self.programs.load(host, &text.source(name))?,
            (None, None) => return Ok(Err(libc::EINVAL)),
        };
        (*id, *text) = (Some(number), None);
        Ok(Ok((name.clone(), number)))
    }

    /// Programs at samples are ready before the scheduler is attached: tasks whose counters call them come later. One that cannot be translated is refused
    /// when it is attached.
    fn load_samplers(&mut self, host: &mut Host) {
        let mut inodes: Vec<u64> = self.things.keys().copied().collect();
        inodes.sort_unstable();
        for inode in inodes {
            let thing = self.things.get_mut(&inode).map(|(thing, _)| thing);
            if let Some(Thing::Program { name, kind: program_type::PERF_EVENT, id, text: Some(text), .. }) = thing
                && id.is_none()
            {
                *id = self.programs.load(host, &text.source(name)).ok();
            }
        }
    }

    /// Has a program called at a place of tracing; at none it never is. An error where it comes too late for the scheduler that runs.
    pub(super) fn call_at(&mut self, site: Option<Site>, with: CalledWith, id: ProgramId) -> Result<(), i32> {
        let Some(site) = site else { return Ok(()) };
        if self.sched_ext.is_attached() {
            return Err(libc::EOPNOTSUPP);
        }
        self.at.push((site, with, id));
        Ok(())
    }

    /// A program is attached to a tracepoint by that one's name, or by what it was loaded for.
    pub(super) fn open_raw_tracepoint(
        &mut self,
        host: &mut Host,
        call: &Call,
        fields: &Fields,
    ) -> Result<Reply, Failure> {
        let (address, descriptor) = (fields.u64(0), fields.u32(8));
        if !matches!(self.find(call, descriptor), Some(Thing::Program { kind: program_type::RAW_TRACEPOINT, .. })) {
            return Ok(self.link(call, descriptor));
        }
        let tracepoint = call.text(address)?;
        let (name, id) = match self.attached_program(host, call, descriptor, program_type::RAW_TRACEPOINT)? {
            Ok(program) => program,
            Err(error) => return Ok(Reply::Error(error)),
        };
        let target = format!("btf_trace_{tracepoint}");
        let how = AttachType::RawTracepoint as u32;
        let site = Site::find(how, &target);
        if let Err(error) = self.call_at(site, CalledWith::Arguments, id) {
            return Ok(Reply::Error(error));
        }
        let is_modelled = site.is_some() || Site::is_passed_by_nobody(how, &target);
        self.needs.insert(Need::new(NeedKind::Program, format!("{name} at raw tracepoint {tracepoint}"), is_modelled));
        Ok(Reply::New(Thing::Other, None))
    }

    pub(super) fn test_run(
        &mut self,
        host: &mut Host,
        call: &Call,
        address: u64,
        fields: &Fields,
    ) -> Result<Reply, Failure> {
        const RETURN_VALUE: u64 = 4;
        let Some(&Thing::Program { id, kind, .. }) = self.find(call, fields.u32(0)) else {
            return Ok(Reply::Error(libc::EINVAL));
        };
        if [program_type::TRACEPOINT, program_type::PERF_EVENT].contains(&kind) {
            return Ok(Reply::Error(NOT_SUPPORTED));
        }
        let Some(id) = id else { return Ok(Reply::Error(libc::EINVAL)) };
        let (bytes, at) = (fields.u32(40) as usize, fields.u64(48));
        let mut context = if bytes == 0 { Vec::new() } else { call.read(at, bytes.min(65_536))? };
        let result = self.programs.run(host, id, &mut context, self.cpu)?;
        call.write(at, &context)?;
        call.write(address + RETURN_VALUE, &result.to_le_bytes())?;
        Ok(Reply::Value(0))
    }

    /// A program is attached to a tracepoint or a function. Those that no [`Site`] is happen nowhere here.
    pub(super) fn link(&mut self, call: &Call, descriptor: u32) -> Reply {
        if let Some(&Thing::Program { id: Some(id), site: site @ Some(_), .. }) = self.find(call, descriptor)
            && let Err(error) = self.call_at(site, CalledWith::Arguments, id)
        {
            return Reply::Error(error);
        }
        if let Some(Thing::Program { name, kind, id, site, is_idle, .. }) = self.find(call, descriptor)
            && (id.is_none() || site.is_some())
        {
            let text = if *kind == program_type::TRACING { format!("{name} for tracing") } else { name.clone() };
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
        let handle = *handle;
        self.load_samplers(host);
        let value_type = host.maps.get(handle).map_or(0, |map| map.spec.extra as u32);
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
