//! Programs run by the definition of their instructions: what this crate does where it is built without a generator of machine code (feature
//! `machine-code`). Results are the same; a run takes longer.

use std::collections::BTreeMap;

use crate::definition::{Interpreter, Trap};
use crate::instruction::{Instruction, Kind};
use crate::program::Program;
use crate::resolver::{Callee, Entry, Resolver, TranslateError};
use crate::runtime::{Fault, Frame, Site};

/// Collects programs.
#[derive(Default)]
pub struct Translator {
    programs: Vec<Named>,
    entries: Vec<Slot>,
    sites: usize,
}

/// Programs that can be run.
pub struct Code {
    programs: Vec<Named>,
    entries: Vec<Slot>,
    /// By program and instruction, one for each of [`kinds_of_fault`].
    sites: Vec<Site>,
}

/// A function: which program, and which of its functions.
type Slot = (usize, usize);

struct Named {
    program: Program,
    names: Names,
    /// Sites of the programs before it.
    first_site: usize,
}

/// What a resolver said of one program.
#[derive(Default)]
struct Names {
    /// By source and the two halves.
    immediates: BTreeMap<(u8, i32, i32), Result<u64, String>>,
    callbacks: Vec<u64>,
    helpers: BTreeMap<i32, Callee>,
    kfuncs: BTreeMap<i32, Callee>,
    /// By source, which tells helpers from kernel functions, and number.
    prices_ps: BTreeMap<(u8, i32), u64>,
}

impl Resolver for &Names {
    fn immediate(&mut self, load: Instruction, next: i32) -> Result<u64, String> {
        self.immediates[&(load.src, load.imm, next)].clone()
    }

    fn callback(&mut self, _: &Program, function: usize) -> u64 {
        self.callbacks[function]
    }

    fn helper(&mut self, number: i32) -> Callee {
        self.helpers[&number].clone()
    }

    fn kfunc(&mut self, number: i32) -> Callee {
        self.kfuncs[&number].clone()
    }

    fn price_ps(&self, call: Instruction) -> u64 {
        self.prices_ps[&(call.src, call.imm)]
    }
}

/// Faults that an instruction can have, by their place among its sites.
const FAULTS: usize = 3;

fn kinds_of_fault(program: &Program, names: &Names, at: usize) -> [Fault; FAULTS] {
    let instruction = program.instructions[at];
    let reason = match instruction.kind() {
        Some(Kind::CallHelper) => names.helpers.get(&instruction.imm),
        Some(Kind::CallKfunc) => names.kfuncs.get(&instruction.imm),
        _ => None,
    };
    let mut reason = if let Some(Callee::Unreachable(reason)) = reason { reason.clone() } else { String::new() };
    if instruction.kind() == Some(Kind::LoadImmediate)
        && let Some(next) = program.instructions.get(at + 1)
        && let Some(Err(unknown)) = names.immediates.get(&(instruction.src, instruction.imm, next.imm))
    {
        reason.clone_from(unknown);
    }
    [Fault::WildStore, Fault::Endless, Fault::Unreachable(reason)]
}

impl Translator {
    /// Without any program.
    ///
    /// # Errors
    /// None; a generator of machine code has some.
    pub fn new() -> Result<Self, TranslateError> {
        Ok(Self::default())
    }

    /// Adds a program; gives the entry of each of its functions. What the resolver does not know is a fault where it is reached.
    ///
    /// # Errors
    /// None; a generator of machine code has some.
    pub fn add(&mut self, program: &Program, resolver: &mut dyn Resolver) -> Result<Vec<Entry>, TranslateError> {
        let mut names = Names::default();
        let mut at = 0;
        while at < program.instructions.len() {
            let instruction = program.instructions[at];
            let call = (instruction.src, instruction.imm);
            match instruction.kind() {
                Some(Kind::LoadImmediate) if !matches!(instruction.src, 0 | 4) => {
                    let next = program.instructions[at + 1].imm;
                    let key = (instruction.src, instruction.imm, next);
                    names.immediates.entry(key).or_insert_with(|| resolver.immediate(instruction, next));
                }
                Some(Kind::CallHelper) => {
                    names.helpers.insert(instruction.imm, resolver.helper(instruction.imm));
                    names.prices_ps.insert(call, resolver.price_ps(instruction));
                }
                Some(Kind::CallKfunc) => {
                    names.kfuncs.insert(instruction.imm, resolver.kfunc(instruction.imm));
                    names.prices_ps.insert(call, resolver.price_ps(instruction));
                }
                _ => {}
            }
            at = program.next(at);
        }
        names.callbacks = (0..program.functions.len()).map(|function| resolver.callback(program, function)).collect();
        let first = self.entries.len();
        self.entries.extend((0..program.functions.len()).map(|function| (self.programs.len(), function)));
        self.programs.push(Named { program: program.clone(), names, first_site: self.sites });
        self.sites += FAULTS * program.instructions.len();
        Ok((first..self.entries.len()).map(Entry).collect())
    }

    /// Makes the programs runnable.
    ///
    /// # Errors
    /// None; a generator of machine code has some.
    pub fn finish(self) -> Result<Code, TranslateError> {
        let sites = self.programs.iter().flat_map(|Named { program, names, .. }| {
            (0..program.instructions.len()).flat_map(move |instruction| {
                let site = |fault| Site { program: program.name.clone(), instruction, fault };
                kinds_of_fault(program, names, instruction).map(site)
            })
        });
        Ok(Code { sites: sites.collect(), programs: self.programs, entries: self.entries })
    }
}

impl Code {
    /// Runs a function. Afterwards [`Code::fault`] says whether something went wrong.
    ///
    /// # Safety
    /// `host` points to what the host functions of the programs expect, beginning with a [`Frame`], and the region is mapped.
    pub unsafe fn run(&self, entry: Entry, host: *mut Frame, arguments: [u64; 5]) -> u64 {
        let (program, function) = self.entries[entry.0];
        let Named { program, names, first_site } = &self.programs[program];
        let site = |trap: &Trap| {
            let kind = match trap.fault {
                Fault::WildStore => 0,
                Fault::Endless => 1,
                Fault::Unreachable(_) => 2,
            };
            (first_site + FAULTS * trap.instruction + kind + 1) as u64
        };
        // SAFETY: the caller's promises.
        unsafe { Interpreter::run(program, function, arguments, host, &mut &*names, &site) }
    }

    /// What went wrong since the frame was made.
    #[must_use]
    pub fn fault(&self, frame: &Frame) -> Option<&Site> {
        self.sites.get(usize::try_from(frame.fault).ok()?.checked_sub(1)?)
    }

    /// Instructions of all programs.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.programs.iter().map(|named| named.program.instructions.len()).sum()
    }

    /// Where machine code begins: there is none.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        std::iter::empty()
    }
}
