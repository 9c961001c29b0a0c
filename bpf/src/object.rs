// SPDX-License-Identifier: GPL-2.0-only
//! An object as clang makes it: programs, variables, the table of operations, and what is to be put in when a kernel is known.
//!
//! Source: the psABI of BPF for relocations (`Documentation/bpf/llvm_reloc.rst`), `Documentation/bpf/btf.rst` for `.BTF.ext`.

use std::collections::BTreeMap;

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, SectionIndex,
};
use thiserror::Error;
use warmcore_bpf::btf::{Btf, TypeKind};

/// Where the table of operations stands.
const TABLE: &str = ".struct_ops.link";
/// Where programs for raw tracepoints stand, those for tracepoints that know types, those for records of tracepoints, those for samples, and a map of the
/// object's own.
const RAW_TRACEPOINT: &str = "raw_tp/";
const TYPED_TRACEPOINT: &str = "tp_btf/";
const TRACEPOINT: &str = "tp/";
const SAMPLES: &str = "perf_event";
const MAPS: &str = ".maps";
/// The map that a scheduler may have: an array with a counter of instructions of each CPU.
pub(crate) const INSTRUCTIONS: &str = "instructions";
/// Sections of variables.
const VARIABLES: [&str; 3] = [".rodata", ".data", ".bss"];

/// Most bytes of a section of variables.
const MOST_VARIABLES: u64 = 64 << 20;

/// Relocation of an address of 64 bits in two instructions; of a call; of a pointer in data.
const R_BPF_64_64: u32 = 1;
const R_BPF_64_ABS64: u32 = 2;
const R_BPF_64_32: u32 = 10;

/// An object that cannot be loaded.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the object {0}")]
pub struct ObjectError(String);

fn wrong(what: impl Into<String>) -> ObjectError {
    ObjectError(what.into())
}

/// What an instruction gets from the kernel or from a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Patch {
    /// A kernel function's number.
    Function(String),
    /// The address of a place in a section's map.
    Variable {
        /// Index into [`Bytecode::variables`].
        section: usize,
        /// Where in it.
        offset: u32,
    },
    /// Where a member of a kernel's structure lies: structure and path.
    Member(String, String),
    /// The one map of the object's own, by its name.
    Map(String),
    /// A variable of the kernel's, or nothing where it has none of that name.
    KernelVariable(String),
}

/// A program of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Member of the table that it is.
    pub member: String,
    /// Its function's name.
    pub name: String,
    /// Whether it may sleep.
    pub sleepable: bool,
    /// Instructions.
    pub code: Vec<u8>,
    /// By instruction.
    pub patches: Vec<(usize, Patch)>,
}

/// A section of variables, which becomes a map of one value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variables {
    /// Name of the section.
    pub name: &'static str,
    /// Initial values.
    pub bytes: Vec<u8>,
    /// Where each begins.
    symbols: BTreeMap<String, usize>,
}

/// An object, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bytecode {
    /// Programs, in the order of the table.
    pub operations: Vec<Operation>,
    /// Programs for tracepoints, by whose name [`Operation::member`] is, beside those of the table.
    pub tracing: Vec<Operation>,
    /// Programs for the records of tracepoints, by whose system and name (`sched/sched_switch`) [`Operation::member`] is.
    pub tracepoints: Vec<Operation>,
    /// Programs for samples of each CPU's clock.
    pub samples: Vec<Operation>,
    /// Members of the table that are no programs, with the bytes they have.
    pub values: Vec<(String, Vec<u8>)>,
    /// Variables.
    pub variables: Vec<Variables>,
    /// The licence that it states.
    pub licence: String,
}

type File<'a> = ElfFile<'a, FileHeader64<LittleEndian>>;
/// A section of variables, and its number in the file.
type Section = (SectionIndex, Variables);
/// Members of kernel structures that instructions use, by section.
type Members = BTreeMap<String, Vec<(usize, Patch)>>;
/// Programs, and values of a table.
type Programs = (Vec<Operation>, Vec<(String, Vec<u8>)>);

impl Bytecode {
    /// Reads an object.
    ///
    /// # Errors
    /// When it is broken, or has what this loader does not know.
    pub fn read(bytes: &[u8]) -> Result<Self, ObjectError> {
        Self::read_with(bytes, table)
    }

    /// Reads an object of programs for raw tracepoints. [`Operation::member`] is the tracepoint's name.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_probes(bytes: &[u8]) -> Result<Self, ObjectError> {
        Self::read_with(bytes, |file, _, variables, members| {
            Ok((probes(file, RAW_TRACEPOINT, variables, members)?, Vec::new()))
        })
    }

    fn read_with(
        bytes: &[u8],
        programs: impl Fn(&File<'_>, &Btf, &[Section], &Members) -> Result<Programs, ObjectError>,
    ) -> Result<Self, ObjectError> {
        let file = File::parse(bytes).map_err(|error| wrong(format!("is no ELF file: {error}")))?;
        let data = |name: &str| section(&file, name).and_then(|section| section.data().ok()).map(<[u8]>::to_vec);
        let types = data(".BTF").ok_or_else(|| wrong("has no type information"))?;
        let types = Btf::parse(types).map_err(|error| wrong(error.to_string()))?;
        let mut variables = Vec::new();
        for name in VARIABLES {
            if let Some(section) = section(&file, name).filter(|section| section.size() > 0) {
                if section.size() > MOST_VARIABLES {
                    return Err(wrong(format!("has {} bytes of variables in {name}", section.size())));
                }
                let mut bytes = section.data().unwrap_or_default().to_vec();
                bytes.resize(section.size() as usize, 0);
                let here = file.symbols().filter(|symbol| symbol.section_index() == Some(section.index()));
                let named = here.filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address() as usize)));
                variables.push((section.index(), Variables { name, bytes, symbols: named.collect() }));
            }
        }
        let extra = data(".BTF.ext").unwrap_or_default();
        let members = members_by_section(&extra, &types)?;
        let (operations, values) = programs(&file, &types, &variables, &members)?;
        let [tracing, tracepoints, samples] = [
            probes(&file, TYPED_TRACEPOINT, &variables, &members)?,
            probes(&file, TRACEPOINT, &variables, &members)?,
            probes(&file, SAMPLES, &variables, &members)?,
        ];
        let licence = data("license").ok_or_else(|| wrong("states no licence"))?;
        let licence = String::from_utf8_lossy(licence.strip_suffix(&[0]).unwrap_or(&licence)).into_owned();
        let variables = variables.into_iter().map(|(_, variables)| variables).collect();
        Ok(Self { operations, tracing, tracepoints, samples, values, variables, licence })
    }

    /// The scheduler's name, as the kernel gets it.
    ///
    /// # Errors
    /// When its table has none, which the kernel asks for.
    pub fn scheduler_name(&self) -> Result<String, ObjectError> {
        let name = self.values.iter().find(|(member, _)| member == "name");
        let (_, bytes) = name.ok_or_else(|| wrong("names no scheduler: set `.name` in its table of operations"))?;
        Ok(String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned())
    }

    /// Whether a program reads counters of instructions.
    pub fn counts_instructions(&self) -> bool {
        let of = |(_, patch): &(usize, Patch)| matches!(patch, Patch::Map(map) if map == INSTRUCTIONS);
        let all = [&self.operations, &self.tracing, &self.tracepoints, &self.samples];
        all.into_iter().flatten().any(|operation| operation.patches.iter().any(of))
    }

    /// Section and place of a variable.
    pub fn variable(&self, name: &str) -> Option<(usize, usize)> {
        let found = self.variables.iter().map(|section| section.symbols.get(name).copied());
        found.enumerate().find_map(|(section, at)| Some((section, at?)))
    }

    /// Sets a variable of numbers; false if there is none of this name and size.
    pub fn set(&mut self, name: &str, numbers: &[u32]) -> bool {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.variables.iter_mut().any(|section| {
            let place = section.symbols.get(name).and_then(|&at| section.bytes.get_mut(at..at + bytes.len()));
            let found = place.is_some();
            if let Some(place) = place {
                place.copy_from_slice(&bytes);
            }
            found
        })
    }
}

fn section<'a, 'b>(file: &'b File<'a>, name: &str) -> Option<object::read::elf::ElfSection64<'a, 'b, LittleEndian>> {
    file.section_by_name(name)
}

/// Programs for tracepoints of a kind, in the order of their names.
fn probes(
    file: &File<'_>,
    kind: &str,
    variables: &[Section],
    members: &Members,
) -> Result<Vec<Operation>, ObjectError> {
    let mut found = Vec::new();
    for section in file.sections() {
        let Some(tracepoint) = section.name().ok().and_then(|name| name.strip_prefix(kind)) else { continue };
        let here = |symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>| {
            symbol.section_index() == Some(section.index()) && symbol.size() > 0
        };
        let symbol = file.symbols().find(here);
        let symbol = symbol.ok_or_else(|| wrong(format!("has no program in `{kind}{tracepoint}`")))?;
        found.push(operation(file, tracepoint, &symbol, variables, members)?);
    }
    found.sort_by(|one, other| one.member.cmp(&other.member));
    Ok(found)
}

/// Programs and values of the table, which is a variable of `struct sched_ext_ops`.
fn table(file: &File<'_>, types: &Btf, variables: &[Section], members: &Members) -> Result<Programs, ObjectError> {
    let section = section(file, TABLE).ok_or_else(|| wrong(format!("has no section `{TABLE}`")))?;
    let bytes = section.data().map_err(|error| wrong(error.to_string()))?;
    let mut functions = BTreeMap::new();
    for (at, relocation) in section.relocations() {
        let (RelocationTarget::Symbol(symbol), RelocationFlags::Elf { r_type: R_BPF_64_ABS64 }) =
            (relocation.target(), relocation.flags())
        else {
            return Err(wrong("has a table with a relocation that is not known"));
        };
        let symbol = file.symbol_by_index(symbol).map_err(|error| wrong(error.to_string()))?;
        functions.insert(at, symbol);
    }
    let ty =
        types.find(TypeKind::Struct, "sched_ext_ops").ok_or_else(|| wrong("has no type `struct sched_ext_ops`"))?;
    let (mut operations, mut values) = (Vec::new(), Vec::new());
    for member in types.members(ty) {
        let at = (member.bit_offset / 8) as usize;
        let value = bytes
            .get(at..at + types.size(member.ty) as usize)
            .ok_or_else(|| wrong(format!("has a table that ends before member `{}`", member.name)))?;
        match functions.remove(&(at as u64)) {
            Some(symbol) => {
                let operation = operation(file, member.name, &symbol, variables, members)?;
                let other = |(_, patch): &(usize, Patch)| matches!(patch, Patch::Map(map) if map != INSTRUCTIONS);
                if operation.patches.iter().any(other) {
                    let of = format!("has a program `{}` that uses a map", operation.name);
                    return Err(wrong(format!(
                        "{of}: this loader makes variables and `{INSTRUCTIONS}` only, one made with libbpf makes maps"
                    )));
                }
                operations.push(operation);
            }
            None if value.iter().any(|&byte| byte != 0) => values.push((member.name.to_owned(), value.to_vec())),
            None => {}
        }
    }
    Ok((operations, values))
}

fn operation(
    file: &File<'_>,
    member: &str,
    symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>,
    variables: &[Section],
    members: &Members,
) -> Result<Operation, ObjectError> {
    let name = symbol.name().unwrap_or_default().to_owned();
    let broken = |what: String| wrong(format!("has a program `{name}` {what}"));
    let index = symbol.section_index().ok_or_else(|| broken("that is elsewhere".into()))?;
    let section = file.section_by_index(index).map_err(|error| broken(error.to_string()))?;
    let place = section.name().unwrap_or_default().to_owned();
    let code = section.data().map_err(|error| broken(error.to_string()))?.to_vec();
    if symbol.address() != 0 || symbol.size() != code.len() as u64 {
        return Err(broken("that shares its section".into()));
    }
    let mut patches = members.get(&place).cloned().unwrap_or_default();
    for (at, relocation) in section.relocations() {
        let at = at as usize / 8;
        let RelocationTarget::Symbol(target) = relocation.target() else { continue };
        let target = file.symbol_by_index(target).map_err(|error| broken(error.to_string()))?;
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let patch = match (r_type, target.section_index()) {
            (R_BPF_64_32, Some(_)) => {
                return Err(broken(
                    "that calls a function: declare it `static inline __attribute__((always_inline))`".into(),
                ));
            }
            (R_BPF_64_32, None) => Patch::Function(target.name().unwrap_or_default().to_owned()),
            (R_BPF_64_64, None) => Patch::KernelVariable(target.name().unwrap_or_default().to_owned()),
            (R_BPF_64_64, Some(index))
                if file.section_by_index(index).and_then(|section| section.name()) == Ok(MAPS) =>
            {
                Patch::Map(target.name().unwrap_or_default().to_owned())
            }
            (R_BPF_64_64, Some(index)) => {
                let known = variables.iter().position(|(section, _)| *section == index);
                let section =
                    known.ok_or_else(|| broken(format!("that uses `{}`", target.name().unwrap_or_default())))?;
                // What clang adds to the symbol stands in the instruction.
                let added = code
                    .get(at * 8 + 4..at * 8 + 8)
                    .map_or(0, |four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
                Patch::Variable { section, offset: target.address() as u32 + added }
            }
            _ => return Err(broken(format!("with a relocation of kind {r_type} that is not known"))),
        };
        patches.push((at, patch));
    }
    patches.sort_by_key(|(at, _)| *at);
    Ok(Operation { member: member.to_owned(), name, sleepable: place.starts_with("struct_ops.s/"), code, patches })
}

/// Members of kernel structures that instructions use, by section (`.BTF.ext`, records of relocations).
fn members_by_section(extra: &[u8], types: &Btf) -> Result<BTreeMap<String, Vec<(usize, Patch)>>, ObjectError> {
    const WHERE: usize = 24;
    const RECORD: usize = 16;
    /// Where a member lies, in bytes (`BPF_CORE_FIELD_BYTE_OFFSET`).
    const BYTE_OFFSET: u32 = 0;
    let word = |at: usize| -> Result<usize, ObjectError> {
        let four = extra.get(at..at + 4).ok_or_else(|| wrong("ends within its relocations"))?;
        Ok(u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize)
    };
    let mut all = BTreeMap::new();
    if extra.len() < WHERE + 8 {
        return Ok(all);
    }
    let header = word(4)?;
    if header < WHERE + 8 || word(WHERE + 4)? == 0 {
        return Ok(all);
    }
    let start = header + word(WHERE)?;
    let end = start + word(WHERE + 4)?;
    if word(start)? != RECORD {
        return Err(wrong("has relocations of a size that is not known"));
    }
    let mut at = start + 4;
    while at < end {
        let (section, count) = (types.text(word(at)? as u32).to_owned(), word(at + 4)?);
        at += 8;
        let patches: &mut Vec<_> = all.entry(section).or_default();
        for _ in 0..count {
            // Counts are as broken as the rest may be; each record is looked for before it is read.
            if word(at + 12)? as u32 != BYTE_OFFSET {
                return Err(wrong("asks for more of a member than where it lies"));
            }
            let (ty, access) = (word(at + 4)? as u32, types.text(word(at + 8)? as u32));
            let path = path_of(types, ty, access).ok_or_else(|| {
                wrong("names a member that it does not declare, or another structure than the one at its address")
            })?;
            patches.push((word(at)? / 8, Patch::Member(types.name(ty).to_owned(), path)));
            at += RECORD;
        }
    }
    Ok(all)
}

/// The names behind the numbers of members (`0:2:1`, where the first is an index into an array of the structure); numbers of elements stay numbers.
fn path_of(types: &Btf, ty: u32, access: &str) -> Option<String> {
    let mut numbers = access.split(':').map(|number| number.parse::<usize>().ok());
    if numbers.next()?? != 0 {
        return None;
    }
    let mut ty = types.resolved(ty);
    let mut names = Vec::new();
    for number in numbers {
        if let Some((element, _)) = types.elements(ty) {
            names.push(number?.to_string());
            ty = types.resolved(element);
            continue;
        }
        let member = types.members(ty).nth(number?)?;
        names.push(member.name.to_owned());
        ty = types.resolved(member.ty);
    }
    Some(names.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALL, FIFO_LLC, VTIME};

    #[test]
    fn an_object_has_its_operations_with_what_they_need_of_a_kernel() {
        let vtime = Bytecode::read(VTIME.object).unwrap();
        let members: Vec<&str> = vtime.operations.iter().map(|operation| operation.member.as_str()).collect();
        assert_eq!(members, ["select_cpu", "enqueue", "dispatch", "running", "stopping", "enable", "init"]);
        let running = &vtime.operations[3];
        assert!(
            running
                .patches
                .iter()
                .any(|(_, patch)| *patch == Patch::Member("task_struct".into(), "scx.dsq_vtime".into()))
        );
        assert!(running.patches.iter().any(|(_, patch)| matches!(patch, Patch::Variable { offset: 0, .. })));
        let sleeps: Vec<bool> = vtime.operations.iter().map(|operation| operation.sleepable).collect();
        assert_eq!(sleeps, [false, false, false, false, false, false, true]);
        assert_eq!(vtime.licence, "GPL");
        assert_eq!(vtime.values[0], ("timeout_ms".to_owned(), 5000u32.to_le_bytes().to_vec()));
    }

    #[test]
    fn variables_are_set_by_name_and_only_those_that_there_are() {
        let mut object = Bytecode::read(FIFO_LLC.object).unwrap();
        assert!(object.set("llc_count", &[3]));
        assert!(object.set("llc_of_cpu", &[0, 1, 2]));
        assert_eq!(object.variables[0].bytes[..16], [3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
        assert!(!object.set("nothing", &[1]));
        assert!(!object.set("llc_of_cpu", &[0; 4096]));
    }

    #[test]
    fn every_truncated_object_is_refused_or_read_without_a_panic() {
        for scheduler in ALL {
            let whole = Bytecode::read(scheduler.object).unwrap();
            let read =
                (0..scheduler.object.len()).filter_map(|length| Bytecode::read(&scheduler.object[..length]).ok());
            assert!(read.into_iter().all(|object| object == whole));
            for at in 0..scheduler.object.len() {
                let mut broken = scheduler.object.to_vec();
                broken[at] ^= 0xff;
                let _ = Bytecode::read(&broken);
            }
        }
    }
}
