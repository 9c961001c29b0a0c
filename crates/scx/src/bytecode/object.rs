//! Programs as a loader hands them over, and everything it has loaded as one value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thiserror::Error;
use warmcore_bpf::btf::{Btf, TypeKind};
use warmcore_bpf::maps::MapsImage;
use warmcore_bpf::{
    Array, Callee, Code, Entry, Frame, Instruction, Kind, MemoryError, Program, ProgramError, Resolver, TranslateError,
    Translator, Width,
};
use warmcore_topology::CpuId;

use crate::bytecode::host::{Host, Kept, UPTIME_NS};
use crate::bytecode::needs::{Need, NeedKind, name_of_helper};
use crate::bytecode::sites::{CalledWith, Site};
use crate::bytecode::{helpers, kfuncs, prices};
use crate::events::EventCounts;
use crate::operations::{Operation, OperationFlags, OperationTable};

/// Number of a program of a [`Host`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProgramId(pub u32);

/// A program as the system call has it.
pub struct ProgramSource<'a> {
    /// Name, cut to 15 bytes by the interface.
    pub name: &'a str,
    /// Instructions.
    pub bytes: &'a [u8],
    /// Where functions begin.
    pub functions: &'a [u32],
    /// Where the one begins that what the program throws is given to, if it names one.
    pub catches: Option<u32>,
    /// Handle of the map of each descriptor that the instructions name.
    pub maps: &'a BTreeMap<i32, u64>,
    /// Type information of its object, if there is some.
    pub types: Option<&'a Arc<Btf>>,
}

/// Why an object cannot be used.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// A program is broken.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A program cannot be translated.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// There is no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Its table of operations is not one.
    #[error("the table of operations is broken: {0}")]
    Table(String),
    /// A program that was to set things up went wrong.
    #[error("{0}")]
    Setup(String),
}

/// A program, translated.
#[derive(Clone)]
pub(super) struct Loaded {
    pub name: String,
    pub code: Arc<Code>,
    pub entries: Arc<[Entry]>,
    /// What it was translated from, with handles of maps instead of descriptors.
    pub bytes: Arc<[u8]>,
    /// Where functions begin.
    pub functions: Arc<[u32]>,
    /// The function that what it throws is given to; without one, that is what it gives.
    pub catches: Option<Entry>,
}

impl Loaded {
    /// Runs a function of the program, as the kernel calls it.
    ///
    /// # Safety
    /// As [`Code::run`], whose region is the host's.
    pub unsafe fn run(&self, entry: Entry, host: *mut Host, arguments: [u64; 5]) -> u64 {
        // SAFETY: the caller's promise; the frame is the host's first field, which is what the functions of this code expect.
        unsafe {
            let result = self.code.run(entry, host.cast::<Frame>(), arguments);
            let Some(cookie) = (*host).frame.catch() else { return result };
            let Some(entry) = self.catches else { return cookie };
            let result = self.code.run(entry, host.cast::<Frame>(), [cookie, 0, 0, 0, 0]);
            (*host).frame.catch().unwrap_or(result)
        }
    }
}

/// Operations that nothing calls: groups keep weight, quota and policy in a run, and no move of a task is cancelled.
const OF_NOTHING: [&str; 4] = ["cgroup_cancel_move", "cgroup_set_weight", "cgroup_set_bandwidth", "cgroup_set_idle"];

/// Instructions that a program which sets things up may take.
const SETUP_BUDGET: u64 = 2_000_000_000;

/// What a loader attaches: the values of `struct sched_ext_ops`, programs by the members' names.
pub struct Attached {
    /// Name of the scheduler.
    pub name: String,
    /// It speaks in compact CPU numbers (`struct sched_ext_ops_cid`).
    pub speaks_cids: bool,
    /// Programs by member.
    pub programs: BTreeMap<String, ProgramId>,
    /// Other members by name.
    pub values: BTreeMap<String, u64>,
    /// Programs of tracing, in the order in which they were attached.
    pub at: Vec<(Site, CalledWith, ProgramId)>,
}

/// Everything a loader has loaded, at the moment it attached its scheduler. Any number of runs begin with it.
pub struct Object {
    pub(super) image: MapsImage,
    pub(super) kept: Kept,
    pub(super) programs: Vec<Loaded>,
    pub(super) operations: [Option<ProgramId>; Operation::COUNT],
    /// Programs of tracing by place, in the order in which they were attached.
    pub(super) at: [Vec<(ProgramId, CalledWith)>; Site::COUNT],
    pub(super) table: OperationTable,
    /// What it needs of the kernel, but for maps.
    needs: BTreeSet<Need>,
}

/// Programs that a host has loaded.
#[derive(Default)]
pub struct Programs {
    pub(super) loaded: Vec<Loaded>,
    /// What they call.
    calls: BTreeSet<Need>,
    /// Names of helpers that they call.
    helpers: BTreeMap<i32, String>,
}

pub(super) struct Names<'a> {
    pub host: &'a mut Host,
    pub maps: &'a BTreeMap<i32, u64>,
    pub calls: &'a mut BTreeSet<Need>,
    pub helpers: &'a mut BTreeMap<i32, String>,
    pub program: u32,
}

impl Resolver for Names<'_> {
    fn immediate(&mut self, load: Instruction, next: i32) -> Result<u64, String> {
        match load.src {
            1 | 2 => {
                let handle = self.maps.get(&load.imm).ok_or_else(|| format!("descriptor {} is not a map", load.imm))?;
                let map = self.host.maps.get(*handle).ok_or("a map that is gone")?;
                Ok(if load.src == 1 { *handle } else { map.address + u64::from(next as u32) })
            }
            3 => Ok(self.symbol(load.imm as u32)),
            kind => Err(format!("an immediate of kind {kind} is not modelled")),
        }
    }

    /// Number of the program and of the function, plus one so that none is NULL.
    fn callback(&mut self, _: &Program, function: usize) -> u64 {
        (u64::from(self.program) << 32 | function as u64) + 1
    }

    fn helper(&mut self, number: i32) -> Callee {
        let callee = helpers::helper(number);
        if helpers::is_mark(number) {
            return callee;
        }
        let btf = &self.host.kept.btf;
        let name = self.helpers.entry(number).or_insert_with(|| name_of_helper(btf, number)).clone();
        self.called(NeedKind::Helper, name, callee)
    }

    fn kfunc(&mut self, number: i32) -> Callee {
        let name = self.host.kept.btf.name(number as u32).to_owned();
        let callee = kfuncs::kfunc(&name);
        self.called(NeedKind::KernelFunction, name, callee)
    }

    fn price_ps(&self, call: Instruction) -> u64 {
        if call.kind() == Some(Kind::CallHelper) {
            prices::of_helper(call.imm)
        } else {
            prices::of_kfunc(self.host.kept.btf.name(call.imm as u32))
        }
    }

    fn array(&self, handle: u64) -> Option<Array> {
        self.host.maps.get(handle)?.elements()
    }

    fn constant(&self, address: u64, width: Width) -> Option<u64> {
        self.host.maps.constant(address, width)
    }
}

impl Names<'_> {
    /// Remembers a call; one of what is not modelled says so by name when it is reached.
    fn called(&mut self, kind: NeedKind, name: String, callee: Callee) -> Callee {
        let need = Need::new(kind, name, !matches!(callee, Callee::Unreachable(_)));
        let callee =
            if need.is_modelled { callee } else { Callee::Unreachable(format!("calls {need}, which is not modelled")) };
        self.calls.insert(need);
        callee
    }

    /// A variable is its address on CPU 0, a function that exists is not zero.
    fn symbol(&mut self, number: u32) -> u64 {
        let btf = Arc::clone(&self.host.kept.btf);
        let name = btf.name(number);
        match btf.kind(number) {
            TypeKind::Variable => self.host.percpu(name, u64::from(btf.size(number)).max(8)),
            TypeKind::Function => u64::from(kfuncs::is_known(name)),
            _ => 0,
        }
    }
}

impl Programs {
    /// Loads a program.
    ///
    /// # Errors
    /// When it is broken.
    pub fn load(&mut self, host: &mut Host, source: &ProgramSource<'_>) -> Result<ProgramId, ObjectError> {
        let program = Program::new(source.name, source.bytes, source.functions)?;
        let id = self.loaded.len() as u32;
        if let Some(types) = source.types {
            host.kept.types = Some(Arc::clone(types));
        }
        let mut translator = Translator::new()?;
        let mut names =
            Names { host, maps: source.maps, calls: &mut self.calls, helpers: &mut self.helpers, program: id };
        let entries = translator.add(&program, &mut names)?;
        let code = Arc::new(translator.finish()?);
        let catches = source.catches.and_then(|start| {
            let function = program.functions.iter().position(|&known| known == start as usize)?;
            entries.get(function).copied()
        });
        self.loaded.push(Loaded {
            catches,
            name: source.name.to_owned(),
            code,
            entries: entries.into(),
            bytes: with_handles(source).into(),
            functions: source.functions.into(),
        });
        Ok(ProgramId(id))
    }

    /// Runs a program that sets things up, on a CPU, with a context; the context is changed in place.
    ///
    /// # Errors
    /// When it does what a program must not.
    pub fn run(&self, host: &mut Host, program: ProgramId, context: &mut [u8], cpu: CpuId) -> Result<u32, ObjectError> {
        let loaded = &self.loaded[program.0 as usize];
        let at = host.kept.scratch;
        let room = context.len() as u64;
        let Some(place) = host.maps.memory.write(at, room) else {
            return Err(ObjectError::Setup(format!("the context of program `{}` is too large", loaded.name)));
        };
        place.copy_from_slice(context);
        host.catch_up();
        host.frame.allow(SETUP_BUDGET);
        host.programs = &raw const self.loaded[..];
        host.frame.cpu = cpu.0.into();
        // Before a run, its clock stands where that begins.
        host.frame.now_ns = host.frame.now_ns.max(UPTIME_NS);
        let counted = host.disable_migration_of_current();
        // SAFETY: the region is the host's.
        let result = unsafe { loaded.run(loaded.entries[0], std::ptr::from_mut(host), [at, 0, 0, 0, 0]) };
        if let Some(place) = counted {
            host.enable_migration_at(place);
        }
        if let Some(site) = loaded.code.fault(&host.frame) {
            return Err(ObjectError::Setup(site.to_string()));
        }
        if let Some(place) = host.maps.memory.read(at, room) {
            context.copy_from_slice(place);
        }
        Ok(result as u32)
    }

    /// What programs call, and which of it is not modelled. A call that is never reached does no harm.
    pub fn calls(&self) -> impl Iterator<Item = &Need> {
        self.calls.iter()
    }

    /// Keeps everything as it is now.
    ///
    /// # Errors
    /// When the table is none.
    pub fn attach(&self, host: &Host, attached: &Attached) -> Result<Object, ObjectError> {
        check_table(attached, host.hotplug_seq).map_err(ObjectError::Table)?;
        // One for each object that is loaded, as long as the program runs.
        let mut table = OperationTable::empty(Box::leak(attached.name.clone().into_boxed_str()));
        let mut operations = [None; Operation::COUNT];
        let mut needs = self.calls.clone();
        for (member, &program) in &attached.programs {
            let usual = match member.as_str() {
                "select_cid" => "select_cpu",
                "set_cmask" => "set_cpumask",
                member => member,
            };
            let known = Operation::ALL.iter().find(|(name, _)| *name == usual);
            let known = known.filter(|(_, operation)| operation.is_member());
            let is_known = known.is_some() || OF_NOTHING.contains(&member.as_str());
            needs.insert(Need::new(NeedKind::Operation, member.clone(), is_known));
            if let Some(&(_, operation)) = known {
                operations[operation as usize] = Some(program);
                table.present |= operation.bit();
            }
        }
        table.present |= Operation::Timer.bit() | Operation::InitTask.bit();
        let mut at: [Vec<(ProgramId, CalledWith)>; Site::COUNT] = Default::default();
        for &(site, with, program) in &attached.at {
            at[site as usize].push((program, with));
            table.present |= site.operation().bit();
        }
        let value = |name: &str| attached.values.get(name).copied().unwrap_or(0);
        table.flags = OperationFlags(value("flags"));
        let or = |value: u64, default: u32| if value == 0 { default } else { value as u32 };
        table.timeout_ms = or(value("timeout_ms"), table.timeout_ms);
        table.dispatch_max_batch = or(value("dispatch_max_batch"), table.dispatch_max_batch);
        table.exit_dump_bytes = or(value("exit_dump_len"), table.exit_dump_bytes as u32) as usize;
        let (image, mut kept) = host.keep();
        kept.cids.are_spoken = attached.speaks_cids;
        Ok(Object { image, kept, programs: self.loaded.clone(), operations, at, table, needs })
    }
}

/// Instructions of a program that name maps by their handles.
fn with_handles(source: &ProgramSource<'_>) -> Vec<u8> {
    let mut bytes = source.bytes.to_vec();
    for [code, registers, _, _, immediate @ ..] in bytes.as_chunks_mut::<8>().0 {
        // A load of 64 bits whose second register says that its number is a map's.
        if *code == 0x18 && matches!(*registers >> 4, 1 | 2) {
            let handle = source.maps.get(&i32::from_le_bytes(*immediate));
            *immediate = handle.map_or(*immediate, |handle| (*handle as u32).to_le_bytes());
        }
    }
    bytes
}

/// Flags that a table may have (`SCX_OPS_ALL_FLAGS`), with one that means nothing any more (`SCX_OPS_HAS_CGROUP_WEIGHT`).
const KNOWN_FLAGS: u64 = 0xff | 1 << 16;

/// What a kernel refuses when it is given a table (`bpf_scx_init_member`, `validate_ops`, `check_hotplug_seq` of Linux 7.2).
pub(super) fn check_table(attached: &Attached, hotplug_seq: u64) -> Result<(), String> {
    let value = |name: &str| attached.values.get(name).copied().unwrap_or(0);
    let has = |name: &str| attached.programs.contains_key(name);
    let flags = OperationFlags(value("flags"));
    if attached.name.is_empty() {
        return Err("it has no name".into());
    }
    if !attached.name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.".contains(letter)) {
        return Err(format!("its name `{}` has more than letters, digits, `_` and `.` (EINVAL)", attached.name));
    }
    let unknown = flags.0 & !KNOWN_FLAGS;
    if unknown != 0 {
        return Err(format!("no flag of schedulers is 0x{unknown:x} (EINVAL)"));
    }
    if value("timeout_ms") > 30_000 {
        return Err("timeout_ms is above 30 000".into());
    }
    if value("dispatch_max_batch") > i32::MAX as u64 {
        return Err("dispatch_max_batch is above 2147483647 (E2BIG)".into());
    }
    if flags.has(OperationFlags::ENQ_LAST) && !has("enqueue") {
        return Err("SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented".into());
    }
    let own_masks = has("update_idle") && !flags.has(OperationFlags::KEEP_BUILTIN_IDLE);
    if flags.has(OperationFlags::BUILTIN_IDLE_PER_NODE) && own_masks {
        return Err("SCX_OPS_BUILTIN_IDLE_PER_NODE requires CPU idle selection enabled".into());
    }
    let expected = value("hotplug_seq");
    if expected != 0 && expected != hotplug_seq {
        return Err(format!("expected hotplug seq {expected} did not match actual {hotplug_seq}"));
    }
    Ok(())
}

impl Attached {
    /// Reads the value that a loader gives the map of the scheduler, whose type is named `value_type`: `program_of` says which program a descriptor is.
    ///
    /// # Errors
    /// When the kernel has no such table, or a descriptor is no program.
    pub fn read(
        btf: &Btf,
        value_type: &str,
        value: &[u8],
        mut program_of: impl FnMut(u32) -> Option<ProgramId>,
    ) -> Result<Self, ObjectError> {
        let broken = |what: String| ObjectError::Table(what);
        let speaks_cids = value_type == "bpf_struct_ops_sched_ext_ops_cid";
        let (wrapper, table) = if speaks_cids {
            (value_type, "sched_ext_ops_cid")
        } else {
            ("bpf_struct_ops_sched_ext_ops", "sched_ext_ops")
        };
        let data = btf.offset(wrapper, "data").ok_or_else(|| broken("the kernel has no sched_ext".into()))? as usize;
        let table =
            btf.find(TypeKind::Struct, table).ok_or_else(|| broken(format!("the kernel has no `struct {table}`")))?;
        let mut attached = Self {
            name: String::new(),
            speaks_cids,
            programs: BTreeMap::new(),
            values: BTreeMap::new(),
            at: Vec::new(),
        };
        for member in btf.members(table) {
            let at = data + member.bit_offset as usize / 8;
            let ty = btf.resolved(member.ty);
            let size = btf.size(ty) as usize;
            let Some(bytes) = value.get(at..at + size) else {
                return Err(broken(format!("it ends before member `{}`", member.name)));
            };
            let number = || bytes.iter().take(8).rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
            match btf.kind(ty) {
                TypeKind::Pointer if member.name != "priv" => {
                    let descriptor = number() as u32;
                    if descriptor != 0 {
                        let program = program_of(descriptor)
                            .ok_or_else(|| broken(format!("member `{}` is not a program", member.name)))?;
                        attached.programs.insert(member.name.to_owned(), program);
                    }
                }
                TypeKind::Array => {
                    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
                    if member.name == "name" {
                        attached.name = String::from_utf8_lossy(&bytes[..end]).into_owned();
                    }
                }
                _ => {
                    attached.values.insert(member.name.to_owned(), number());
                }
            }
        }
        Ok(attached)
    }
}

impl Object {
    /// Name of the scheduler.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.table.name
    }

    /// Text of the file `root/events`: what the class has counted, as far as the kernel has it.
    #[must_use]
    pub fn events_text(&self, counts: &EventCounts) -> String {
        let events = self.kept.layout.events.iter();
        events.map(|&(event, _)| format!("{} {}\n", event.name(), counts[event as usize])).collect()
    }

    /// Whether it wants tasks of `SCHED_EXT` only.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.table.flags.has(OperationFlags::SWITCH_PARTIAL)
    }

    /// What it needs of the kernel, by kind and name: operations and calls.
    pub fn needs(&self) -> impl Iterator<Item = &Need> {
        self.needs.iter()
    }

    /// Instructions of all its programs.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.programs.iter().map(|program| program.code.instructions()).sum()
    }

    /// Bytes of the memory that its programs share.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// Where functions of programs begin in memory, with the programs' names.
    pub fn places(&self) -> impl Iterator<Item = (u64, &str)> {
        self.programs.iter().flat_map(|program| program.code.addresses().map(|begin| (begin, program.name.as_str())))
    }
}
