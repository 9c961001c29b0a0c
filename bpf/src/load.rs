// SPDX-License-Identifier: GPL-2.0-only
//! Loads a scheduler into the running kernel and stays with it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use thiserror::Error;
use warmcore_bpf::btf::{Btf, BtfError, TypeKind};

use crate::Scheduler;
use crate::object::{Bytecode, ObjectError, Operation, Patch};
use crate::system::{self, Map, Of, Program};

pub(crate) const TYPES: &str = "/sys/kernel/btf/vmlinux";
const STATE: &str = "/sys/kernel/sched_ext/state";
const CPUS: &str = "/sys/devices/system/cpu";
const TRACEPOINTS: &str = "/sys/kernel/tracing/events";
/// The variable in which a program keeps the code with which it ends (`programs/sched.h`).
const EXIT_CODE: &str = "exit_code";

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_STRUCT_OPS: u32 = 26;
/// `BPF_F_RDONLY_PROG`, `BPF_F_LINK`.
const READ_ONLY: u32 = 1 << 7;
const BY_LINK: u32 = 1 << 13;

/// Sources of a pseudo instruction: a map's value; a kernel function.
const MAP_VALUE: u8 = 2 << 4;
const KERNEL_FUNCTION: u8 = 2 << 4;
/// A map itself; a variable of the kernel's, by its number.
const MAP: u8 = 1 << 4;
const KERNEL_VARIABLE: u8 = 3 << 4;

pub(crate) const LOG_BYTES: usize = 64 << 10;

/// Why a scheduler is not loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The object is broken.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A file of the kernel cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel's type information is broken.
    #[error("{TYPES}: {0}")]
    Types(#[from] BtfError),
    /// The kernel lacks something.
    #[error("this kernel has no {what}: it needs sched_ext, of 7.2 or so")]
    Lacks {
        /// What.
        what: String,
    },
    /// The machine is larger than the program.
    #[error("this machine has {found} {what}, and the program knows {most} at most")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
        /// How many it may be.
        most: usize,
    },
    /// The kernel refuses.
    #[error("the kernel refuses {what}: {source}{log}")]
    Refused {
        /// What.
        what: String,
        /// Why.
        source: io::Error,
        /// What the verifier said last, on lines of its own.
        log: String,
    },
}

/// A scheduler that schedules as long as this value lives.
#[derive(Debug)]
pub struct Attached {
    _link: OwnedFd,
    maps: Vec<OwnedFd>,
    _programs: Vec<OwnedFd>,
    _counters: Option<Counters>,
    /// Section, its bytes, and place of the code with which it ends, if it keeps that.
    exit_code: Option<(usize, usize, usize)>,
}

impl Attached {
    /// Whether it has ended with a code that asks to start it again (`SCX_ECODE_ACT_RESTART`).
    fn asks_for_restart(&self) -> bool {
        const RESTART: u64 = 1 << 48;
        let code = self.exit_code.and_then(|(section, bytes, at)| {
            let mut value = vec![0; bytes];
            system::value(&self.maps[section], &mut value).ok()?;
            Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?))
        });
        code.unwrap_or(0) & RESTART != 0
    }
}

/// A counter of instructions for each CPU, and the array that programs find them in.
#[derive(Debug)]
struct Counters {
    array: OwnedFd,
    _each: Vec<OwnedFd>,
}

impl Counters {
    fn open() -> Result<Self, LoadError> {
        let count = possible_cpus()?;
        let array = system::counters(count as u32).map_err(refused("an array of counters"))?;
        let open = |cpu: u32| {
            let counter =
                system::instructions(cpu).map_err(refused(format!("a counter of instructions of CPU {cpu}")))?;
            system::hold(&array, cpu, &counter).map_err(refused("to keep a counter"))?;
            Ok(counter)
        };
        let each = (0..count as u32).map(open).collect::<Result<_, LoadError>>()?;
        Ok(Self { array, _each: each })
    }
}

/// Loads a scheduler and attaches it.
///
/// # Errors
/// When the kernel has no sched_ext, refuses a program, or another scheduler is loaded.
pub fn attach(scheduler: &Scheduler<'_>) -> Result<Attached, LoadError> {
    let mut object = Bytecode::read(scheduler.object)?;
    let name = object.scheduler_name()?;
    describe_machine(&mut object)?;
    let types = Btf::parse(read(TYPES)?)?;
    let mut maps = variables(&object)?;
    let counters = if object.counts_instructions() { Some(Counters::open()?) } else { None };
    let own = counters.as_ref().map(|counters| &counters.array);
    let programs = load_programs(&object, &types, (&maps, own))?;
    let table = table(&object, &types, &programs)?;
    let value_type = find(&types, TypeKind::Struct, "bpf_struct_ops_sched_ext_ops")?;
    let own_types = system::types().map_err(refused("type information"))?;
    let map = Map {
        kind: MAP_TYPE_STRUCT_OPS,
        value_bytes: table.len() as u32,
        flags: BY_LINK,
        name: &name,
        kernel_type: Some((value_type, &own_types)),
    };
    let map = map.create().map_err(refused("the map of operations"))?;
    system::write(&map, &table).map_err(refused("the table of operations"))?;
    let mut tracing = load_tracing(&object, &types, (&maps, own))?;
    tracing.extend(load_for_events(&object, &types, (&maps, own))?);
    let link = system::attach(&map).map_err(refused("to attach the scheduler"))?;
    maps.push(map);
    let place = object.variable(EXIT_CODE);
    let exit_code = place.map(|(section, at)| (section, object.variables[section].bytes.len(), at));
    let programs = programs.into_values().chain(tracing).collect();
    Ok(Attached { _link: link, maps, _programs: programs, _counters: counters, exit_code })
}

/// A map for each section of variables, with their initial values.
pub(crate) fn variables(object: &Bytecode) -> Result<Vec<OwnedFd>, LoadError> {
    let mut maps = Vec::new();
    for section in &object.variables {
        let read_only = section.name == ".rodata";
        let flags = if read_only { READ_ONLY } else { 0 };
        let name = section.name.trim_start_matches('.');
        let map = Map { kind: MAP_TYPE_ARRAY, value_bytes: section.bytes.len() as u32, flags, name, kernel_type: None };
        let map = map.create().map_err(refused(format!("a map for {}", section.name)))?;
        system::write(&map, &section.bytes).map_err(refused(format!("the values of {}", section.name)))?;
        if read_only {
            system::freeze(&map).map_err(refused(format!("to freeze {}", section.name)))?;
        }
        maps.push(map);
    }
    Ok(maps)
}

/// What a program does that loads one scheduler: attaches it, and stays until it is interrupted or the kernel has ejected the scheduler. One that the
/// kernel asks to start again is attached again.
#[must_use]
pub fn run(scheduler: &Scheduler<'_>) -> ExitCode {
    loop {
        let attached = match attach(scheduler) {
            Ok(attached) => attached,
            Err(error) => {
                eprintln!("{}: {error}", scheduler.name);
                return ExitCode::FAILURE;
            }
        };
        println!("{}: attached", scheduler.name);
        // Whoever interrupts this program closes the link, which unloads the scheduler.
        while fs::read_to_string(STATE).unwrap_or_default().trim() != "disabled" {
            std::thread::sleep(Duration::from_millis(500));
        }
        if !attached.asks_for_restart() {
            eprintln!("{}: the kernel has ejected the scheduler; its log says why", scheduler.name);
            return ExitCode::FAILURE;
        }
        println!("{}: the kernel has ended the scheduler, and asks to start it again", scheduler.name);
    }
}

pub(crate) fn refused(what: impl Into<String>) -> impl FnOnce(io::Error) -> LoadError {
    let what = what.into();
    move |source| LoadError::Refused { what, source, log: String::new() }
}

pub(crate) fn read(path: &str) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(|source| LoadError::File { path: path.to_owned(), source })
}

fn find(types: &Btf, kind: TypeKind, name: &str) -> Result<u32, LoadError> {
    types.find(kind, name).ok_or_else(|| LoadError::Lacks { what: format!("`{name}`") })
}

/// Maps of variables, and the one of the object's own.
type Maps<'a> = (&'a [OwnedFd], Option<&'a OwnedFd>);

fn load_programs(object: &Bytecode, types: &Btf, maps: Maps<'_>) -> Result<BTreeMap<String, OwnedFd>, LoadError> {
    let table_type = find(types, TypeKind::Struct, "sched_ext_ops")?;
    let licence = CString::new(object.licence.as_str()).unwrap_or_default();
    let mut programs = BTreeMap::new();
    for operation in &object.operations {
        let number = types.members(table_type).position(|member| member.name == operation.member);
        let member = number.ok_or_else(|| LoadError::Lacks { what: format!("operation `{}`", operation.member) })?;
        let loaded = load(operation, types, maps, &licence, Of::Table(table_type, member as u32))?;
        programs.insert(operation.member.clone(), loaded);
    }
    Ok(programs)
}

/// Programs at tracepoints, each with its link; they run as long as both live.
fn load_tracing(object: &Bytecode, types: &Btf, maps: Maps<'_>) -> Result<Vec<OwnedFd>, LoadError> {
    let licence = CString::new(object.licence.as_str()).unwrap_or_default();
    let attach = |operation: &Operation| {
        let its_type = find(types, TypeKind::Typedef, &format!("btf_trace_{}", operation.member))?;
        let program = load(operation, types, maps, &licence, Of::Tracepoint(its_type))?;
        let link = system::attach_typed(&program).map_err(refused(format!("tracepoint `{}`", operation.member)))?;
        Ok([program, link])
    };
    Ok(object.tracing.iter().map(attach).collect::<Result<Vec<_>, LoadError>>()?.into_iter().flatten().collect())
}

/// Programs for records of tracepoints, and those for samples of each CPU's clock, each with its events and links, as above.
fn load_for_events(object: &Bytecode, types: &Btf, maps: Maps<'_>) -> Result<Vec<OwnedFd>, LoadError> {
    const BETWEEN_SAMPLES_NS: u32 = 1_000_000;
    let licence = CString::new(object.licence.as_str()).unwrap_or_default();
    let mut kept = Vec::new();
    let mut attach = |program: &OwnedFd, event: OwnedFd, what: &str| {
        let link = system::attach_to_event(program, &event).map_err(refused(what))?;
        kept.extend([event, link]);
        Ok::<(), LoadError>(())
    };
    let mut programs = Vec::new();
    for operation in &object.tracepoints {
        let what = format!("tracepoint `{}`", operation.member);
        let number = read(&format!("{TRACEPOINTS}/{}/id", operation.member))?;
        let number = String::from_utf8_lossy(&number).trim().parse::<u32>();
        let number = number.map_err(|_| LoadError::Lacks { what: what.clone() })?;
        let program = load(operation, types, maps, &licence, Of::Records)?;
        attach(&program, system::passes(number).map_err(refused(what.as_str()))?, &what)?;
        programs.push(program);
    }
    for operation in &object.samples {
        let program = load(operation, types, maps, &licence, Of::Samples)?;
        for cpu in 0..possible_cpus()? as u32 {
            let what = format!("samples of CPU {cpu}");
            attach(&program, system::samples(cpu, BETWEEN_SAMPLES_NS).map_err(refused(what.as_str()))?, &what)?;
        }
        programs.push(program);
    }
    kept.extend(programs);
    Ok(kept)
}

fn load(
    operation: &Operation,
    types: &Btf,
    (maps, own): Maps<'_>,
    licence: &CStr,
    of: Of,
) -> Result<OwnedFd, LoadError> {
    let code = patched(operation, types, maps, own)?;
    let program = Program { name: &operation.name, licence, code: &code, sleepable: operation.sleepable, of };
    program.load(&mut []).or_else(|source| {
        // Again, for the verifier's words.
        let mut log = vec![0; LOG_BYTES];
        program.load(&mut log).map_err(|_| LoadError::Refused {
            what: format!("program `{}`", operation.name),
            source,
            log: last_lines(&log),
        })
    })
}

/// A program's instructions with numbers, addresses and offsets of this kernel.
pub(crate) fn patched(
    operation: &Operation,
    types: &Btf,
    maps: &[OwnedFd],
    own: Option<&OwnedFd>,
) -> Result<Vec<u8>, LoadError> {
    let mut code = operation.code.clone();
    for (at, patch) in &operation.patches {
        let lacks =
            |what: String| LoadError::Lacks { what: format!("{what}, which program `{}` uses", operation.name) };
        let too_short = || lacks("room for its own instructions".into());
        let slot = code.get_mut(at * 8..).ok_or_else(too_short)?;
        match patch {
            Patch::Function(name) => {
                let number = types.find(TypeKind::Function, name).ok_or_else(|| lacks(format!("function `{name}`")))?;
                slot[1] = slot[1] & 0x0f | KERNEL_FUNCTION;
                slot[4..8].copy_from_slice(&number.to_le_bytes());
            }
            Patch::Variable { section, offset } => {
                if slot.len() < 16 {
                    return Err(too_short());
                }
                slot[1] = slot[1] & 0x0f | MAP_VALUE;
                slot[4..8].copy_from_slice(&maps[*section].as_raw_fd().to_le_bytes());
                slot[12..16].copy_from_slice(&offset.to_le_bytes());
            }
            Patch::Map(name) => {
                let map = own.ok_or_else(|| lacks(format!("map `{name}`")))?;
                slot[1] = slot[1] & 0x0f | MAP;
                slot[4..8].copy_from_slice(&map.as_raw_fd().to_le_bytes());
            }
            // Without it the instruction stays the number 0, which the program looks for.
            Patch::KernelVariable(name) => {
                if let Some(number) = types.find(TypeKind::Variable, name) {
                    slot[1] = slot[1] & 0x0f | KERNEL_VARIABLE;
                    slot[4..8].copy_from_slice(&number.to_le_bytes());
                }
            }
            Patch::Member(structure, path) => {
                let offset = types.offset(structure, path);
                let offset = offset.ok_or_else(|| lacks(format!("member `{path}` of `struct {structure}`")))?;
                const CLASS: u8 = 7;
                const LOADS_AND_STORES: std::ops::RangeInclusive<u8> = 1..=3;
                if LOADS_AND_STORES.contains(&(slot[0] & CLASS)) {
                    let offset = i16::try_from(offset).map_err(|_| lacks(format!("`{path}` near enough")))?;
                    slot[2..4].copy_from_slice(&offset.to_le_bytes());
                } else {
                    slot[4..8].copy_from_slice(&offset.to_le_bytes());
                }
            }
        }
    }
    Ok(code)
}

/// The value of the map of operations: a head of the kernel's own and the table, members where this kernel has them.
fn table(object: &Bytecode, types: &Btf, programs: &BTreeMap<String, OwnedFd>) -> Result<Vec<u8>, LoadError> {
    let lacks = |what: String| LoadError::Lacks { what };
    let value = find(types, TypeKind::Struct, "bpf_struct_ops_sched_ext_ops")?;
    let mut bytes = vec![0; types.size(value) as usize];
    let head =
        types.offset("bpf_struct_ops_sched_ext_ops", "data").ok_or_else(|| lacks("table of operations".into()))?;
    let mut put = |member: &str, value: &[u8]| {
        let at = types.offset("sched_ext_ops", member).map(|at| (head + at) as usize);
        let place = at.and_then(|at| bytes.get_mut(at..at + value.len()));
        place
            .map(|place| place.copy_from_slice(value))
            .ok_or_else(|| lacks(format!("member `{member}` of its operations")))
    };
    for (member, program) in programs {
        put(member, &(program.as_raw_fd() as u64).to_le_bytes())?;
    }
    for (member, value) in &object.values {
        put(member, value)?;
    }
    Ok(bytes)
}

/// The last lines of the verifier.
pub(crate) fn last_lines(log: &[u8]) -> String {
    const LINES: usize = 12;
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("\n{line}")).collect()
}

/// Tells a program that asks for it which CPUs share an LLC.
fn describe_machine(object: &mut Bytecode) -> Result<(), LoadError> {
    const MOST_CPUS: usize = 1024;
    const MOST_LLCS: usize = 128;
    if !object.set("llc_count", &[1]) {
        return Ok(());
    }
    let count = possible_cpus()?;
    let check = |what, found, most| if found > most { Err(LoadError::TooLarge { what, found, most }) } else { Ok(()) };
    check("CPUs", count, MOST_CPUS)?;
    let mut llcs: Vec<String> = Vec::new();
    let mut of_cpu = Vec::with_capacity(count);
    for cpu in 0..count {
        // A CPU that is not there, or without a third level, is with the first.
        let list = fs::read_to_string(format!("{CPUS}/cpu{cpu}/cache/index3/shared_cpu_list")).unwrap_or_default();
        let known = llcs.iter().position(|known| *known == list);
        of_cpu.push(known.unwrap_or(if list.is_empty() { 0 } else { llcs.len() }) as u32);
        if known.is_none() && !list.is_empty() {
            llcs.push(list);
        }
    }
    check("LLCs", llcs.len(), MOST_LLCS)?;
    object.set("llc_count", &[llcs.len().max(1) as u32]);
    object.set("llc_of_cpu", &of_cpu);
    Ok(())
}

/// How many CPUs there may be.
fn possible_cpus() -> Result<usize, LoadError> {
    let possible = String::from_utf8_lossy(&read(&format!("{CPUS}/possible"))?).into_owned();
    Ok(last_number(&possible).map_or(1, |last| last + 1))
}

fn last_number(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}
