//! Bytecode against a real kernel: the same programs run by a kernel itself, by the definition of each instruction, and translated to machine code.
//!
//! The programs are crate `bpf`'s ([`warmcore_bpf::drawn`]): every form of instruction by itself, and any number drawn at random. All three must
//! leave the same bytes and return the same number. Not here: helpers, kernel functions, maps of other kinds, addresses of the arena, loads and stores that a
//! verifier refuses.

use serde::Serialize;
use warmcore_agent::programs::{Came, Programs};
use warmcore_bpf::drawn::{Drawn, VALUE_BYTES, draw, forms, initial_value};
use warmcore_bpf::{
    BUDGET, Callee, Frame, Instruction, MapKind, MapSpec, Maps, MemoryError, Program, ProgramError, Resolver,
    TranslateError, Translator, interpret,
};

/// Differences that are told.
const TOLD: usize = 20;

/// Why programs cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum BytecodeError {
    /// There is no memory for programs.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A program is none.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A program cannot be translated.
    #[error(transparent)]
    Translate(#[from] TranslateError),
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProgramJudgement {
    /// Programs.
    pub programs: usize,
    /// Those that the kernel ran.
    pub ran: usize,
    /// Those that its verifier refused, by error number and how many.
    pub refused: Vec<(u32, usize)>,
    /// Those that it loaded and did not run.
    pub not_run: usize,
    /// Instructions that were executed here, by definition.
    pub instructions: u64,
    /// Programs for which kernel, definition and translation are not of one mind.
    pub differences: usize,
    /// The first of them.
    pub told: Vec<Difference>,
}

/// A program on whose outcome they do not agree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// The program.
    pub program: String,
    /// Its instructions, in hexadecimal.
    pub code: String,
    /// What differs: between whom, where, what each has.
    pub what: String,
}

/// The programs of a judgement: every form and so many drawn ones.
pub fn programs(seed: u64, count: u64) -> Vec<Drawn> {
    forms().into_iter().chain((0..count).map(|number| draw(seed, number))).collect()
}

/// The same as a guest gets them.
pub fn for_guest(programs: &[Drawn]) -> Programs {
    Programs { value: initial_value(), programs: programs.iter().map(|program| program.code.concat()).collect() }
}

/// What a program leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ProgramResult {
    returned: u32,
    value: Vec<u8>,
}

/// Compares what a kernel made of programs with what is made of them here.
///
/// # Errors
/// When a program cannot be run here.
pub fn judge(programs: &[Drawn], came: &[Came]) -> Result<ProgramJudgement, BytecodeError> {
    let mut maps = Maps::new(1)?;
    let spec = MapSpec {
        name: "array".into(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: VALUE_BYTES as u32,
        entries: 1,
        flags: 0,
        extra: 0,
        special: Vec::new(),
    };
    let handle = maps.create(spec)?;
    let address = maps.get(handle).map_or(0, |map| map.address);
    let mut judgement = ProgramJudgement { programs: programs.len(), ..ProgramJudgement::default() };
    for (drawn, came) in programs.iter().zip(came) {
        let kernel = match came {
            Came::Ran { returned, value } => ProgramResult { returned: *returned, value: value.clone() },
            Came::NotRun(_) => {
                judgement.not_run += 1;
                continue;
            }
            Came::Refused(error) => {
                match judgement.refused.iter_mut().find(|(known, _)| known == error) {
                    Some((_, count)) => *count += 1,
                    None => judgement.refused.push((*error, 1)),
                }
                continue;
            }
        };
        judgement.ran += 1;
        let program = Program::new(&drawn.name, &drawn.code.concat(), &[])?;
        let (defined, instructions) = by_definition(&program, &mut maps, address)?;
        judgement.instructions += instructions;
        let translated = translated(&program, &mut maps, address)?;
        let between = difference("kernel", &kernel, "definition", &defined)
            .or_else(|| difference("definition", &defined, "translation", &translated));
        if let Some(what) = between {
            judgement.differences += 1;
            if judgement.told.len() < TOLD {
                let code = drawn.code.concat().iter().map(|byte| format!("{byte:02x}")).collect();
                judgement.told.push(Difference { program: drawn.name.clone(), code, what });
            }
        }
    }
    judgement.refused.sort_unstable();
    Ok(judgement)
}

fn difference(one: &str, left: &ProgramResult, other: &str, right: &ProgramResult) -> Option<String> {
    if left.returned != right.returned {
        return Some(format!("returned {:#x} ({one}), {:#x} ({other})", left.returned, right.returned));
    }
    let at = left.value.iter().zip(&right.value).position(|(left, right)| left != right)? / 8 * 8;
    let number = |left: &ProgramResult| {
        let bytes = left.value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    Some(format!("at {at}: {:#x} ({one}), {:#x} ({other})", number(left), number(right)))
}

fn begin(maps: &mut Maps, address: u64) -> Frame {
    if let Some(value) = maps.memory.write(address, VALUE_BYTES as u64) {
        value.copy_from_slice(&initial_value());
    }
    let mut frame = Frame::default();
    frame.allow(BUDGET);
    frame
}

fn left(maps: &Maps, address: u64, r0: u64, fault: Option<String>) -> ProgramResult {
    // A fault is a difference by itself: the kernel met none.
    let value = fault.map_or_else(
        || maps.memory.read(address, VALUE_BYTES as u64).unwrap_or_default().to_vec(),
        |fault| fault.into_bytes(),
    );
    ProgramResult { returned: r0 as u32, value }
}

fn by_definition(program: &Program, maps: &mut Maps, address: u64) -> Result<(ProgramResult, u64), BytecodeError> {
    let mut frame = begin(maps, address);
    // SAFETY: these programs call no host function.
    let (r0, trap) = unsafe { interpret(program, [0; 5], &mut maps.memory, &mut frame, &mut ArrayNames { address }) };
    Ok((left(maps, address, r0, trap.map(|trap| trap.fault.to_string())), frame.instructions))
}

fn translated(program: &Program, maps: &mut Maps, address: u64) -> Result<ProgramResult, BytecodeError> {
    let mut translator = Translator::new()?;
    let entries = translator.add(program, &mut ArrayNames { address })?;
    let code = translator.finish()?;
    let mut frame = begin(maps, address);
    // SAFETY: as above.
    let r0 = unsafe { code.run(entries[0], &raw mut frame, [0; 5]) };
    let fault = code.fault(&frame).map(ToString::to_string);
    Ok(left(maps, address, r0, fault))
}

struct ArrayNames {
    address: u64,
}

impl Resolver for ArrayNames {
    fn immediate(&mut self, load: Instruction, next: i32) -> Result<u64, String> {
        match load.src {
            2 => Ok(self.address + u64::from(next as u32)),
            kind => Err(format!("an immediate of kind {kind}")),
        }
    }

    fn callback(&mut self, _: &Program, function: usize) -> u64 {
        function as u64
    }

    fn helper(&mut self, number: i32) -> Callee {
        Callee::Unreachable(format!("helper {number}"))
    }

    fn kfunc(&mut self, number: i32) -> Callee {
        Callee::Unreachable(format!("kernel function {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kernel would have left if it did what the definition says.
    fn perfect(programs: &[Drawn]) -> Vec<Came> {
        let mut maps = Maps::new(1).unwrap();
        let spec = MapSpec {
            name: "array".into(),
            kind: MapKind::Array,
            key_bytes: 4,
            value_bytes: VALUE_BYTES as u32,
            entries: 1,
            flags: 0,
            extra: 0,
            special: Vec::new(),
        };
        let handle = maps.create(spec).unwrap();
        let address = maps.get(handle).unwrap().address;
        let came = |drawn: &Drawn| {
            let program = Program::new(&drawn.name, &drawn.code.concat(), &[]).unwrap();
            let (left, _) = by_definition(&program, &mut maps, address).unwrap();
            Came::Ran { returned: left.returned, value: left.value }
        };
        programs.iter().map(came).collect()
    }

    #[test]
    fn a_kernel_that_does_something_else_with_one_program_is_found_out() {
        let programs: Vec<Drawn> =
            forms().into_iter().step_by(40).chain((0..200).map(|number| draw(3, number))).collect();
        let mut came = perfect(&programs);
        let judgement = judge(&programs, &came).unwrap();
        assert_eq!((judgement.ran, judgement.differences), (programs.len(), 0), "{:?}", judgement.told);
        assert!(judgement.instructions > 40 * programs.len() as u64);
        if let Came::Ran { value, .. } = &mut came[7] {
            value[12] ^= 1;
        }
        came[8] = Came::Refused(13);
        came[9] = Came::NotRun(22);
        let judgement = judge(&programs, &came).unwrap();
        assert_eq!((judgement.differences, judgement.not_run), (1, 1));
        assert_eq!(judgement.refused, [(13, 1)]);
        assert_eq!(judgement.told[0].program, programs[7].name);
        assert!(judgement.told[0].what.starts_with("at 8: "), "{}", judgement.told[0].what);
    }
}
