//! A program and its functions, checked for what the translation and the definition take for granted.
//!
//! There is no verifier: memory is checked at run time. What is checked here is the shape: registers, targets of jumps and calls, ends of
//! functions, no recursion, depth of the stack.

use thiserror::Error;

use crate::instruction::{Instruction, Kind};
use crate::runtime::CHAIN_BYTES;

/// Bytes of stack that each call of a function has.
pub(crate) const FRAME_BYTES: u64 = 512;

/// A program that can be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name, for messages.
    pub name: String,
    /// All its instructions, functions one after another.
    pub instructions: Vec<Instruction>,
    /// Where functions begin, ascending; the first is the entry.
    pub functions: Vec<usize>,
    /// By function: whether it names its frame, and so has one.
    frames: Vec<bool>,
}

/// Why a program cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("program `{program}`, instruction {instruction}: {reason}")]
pub struct ProgramError {
    /// Name of the program.
    pub program: String,
    /// Number of the instruction.
    pub instruction: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Program {
    /// Decodes and checks a program. `starts` are the beginnings of functions that the object names; those that calls and loads of
    /// addresses lead to are found.
    ///
    /// # Errors
    /// What is wrong with it and where.
    pub fn new(name: &str, bytes: &[u8], starts: &[u32]) -> Result<Self, ProgramError> {
        let wrong =
            |instruction, reason: &str| ProgramError { program: name.into(), instruction, reason: reason.into() };
        if bytes.is_empty() || !bytes.len().is_multiple_of(8) {
            return Err(wrong(bytes.len() / 8, "the program is empty or ends within an instruction"));
        }
        let instructions: Vec<Instruction> = bytes
            .chunks_exact(8)
            .map(|slot| Instruction::decode(slot.try_into().expect("a chunk of eight bytes")))
            .collect();
        let count = instructions.len();
        let mut is_second_half = vec![false; count];
        let mut functions = vec![0];
        functions.extend(starts.iter().map(|&start| start as usize));
        let mut at = 0;
        while at < count {
            let instruction = instructions[at];
            let kind = instruction
                .kind()
                .ok_or_else(|| wrong(at, &format!("unknown instruction {:02x?}", instruction.encode())))?;
            let starts_function = kind == Kind::CallLocal || (kind == Kind::LoadImmediate && instruction.src == 4);
            if starts_function {
                let target = usize::try_from(at as i64 + 1 + i64::from(instruction.imm));
                functions.push(
                    target
                        .ok()
                        .filter(|&target| target < count)
                        .ok_or_else(|| wrong(at, "a call leads out of the program"))?,
                );
            }
            if kind == Kind::LoadImmediate {
                let second =
                    instructions.get(at + 1).ok_or_else(|| wrong(at, "the second half of an immediate is missing"))?;
                if second.opcode != 0 {
                    return Err(wrong(at, "the second half of an immediate is an instruction"));
                }
                is_second_half[at + 1] = true;
                at += 1;
            }
            at += 1;
        }
        functions.sort_unstable();
        functions.dedup();
        if let Some(&start) = functions.iter().find(|&&start| start >= count || is_second_half[start]) {
            return Err(wrong(start, "a function begins outside of the program or within an instruction"));
        }
        let mut program = Self { name: name.to_owned(), instructions, functions, frames: Vec::new() };
        let names_frame = |at: usize| program.instructions[at].dst == 10 || program.instructions[at].src == 10;
        program.frames = (0..program.functions.len())
            .map(|function| (program.functions[function]..program.end(function)).any(names_frame))
            .collect();
        for index in 0..program.functions.len() {
            program.check_function(index, &is_second_half)?;
        }
        program.check_depth()?;
        Ok(program)
    }

    /// Whether a function has a frame.
    pub(crate) fn uses_frame(&self, function: usize) -> bool {
        self.frames[function]
    }

    /// End of a function, exclusive.
    #[must_use]
    pub fn end(&self, function: usize) -> usize {
        self.functions.get(function + 1).copied().unwrap_or(self.instructions.len())
    }

    /// The function that begins at an instruction.
    #[must_use]
    pub(crate) fn function_at(&self, start: usize) -> usize {
        self.functions.binary_search(&start).expect("every target of a call begins a function")
    }

    /// Where a jump or branch at `at` leads; checked before.
    #[must_use]
    pub fn target(&self, at: usize) -> usize {
        let instruction = self.instructions[at];
        let distance = match instruction.kind() {
            Some(Kind::Jump { distance }) => distance,
            _ => i32::from(instruction.offset),
        };
        (at as i64 + 1 + i64::from(distance)) as usize
    }

    /// The instruction after the one at `at`.
    #[must_use]
    pub fn next(&self, at: usize) -> usize {
        at + 1 + usize::from(self.instructions[at].opcode == 0x18)
    }

    fn wrong(&self, instruction: usize, reason: &str) -> ProgramError {
        ProgramError { program: self.name.clone(), instruction, reason: reason.into() }
    }

    fn check_function(&self, function: usize, is_second_half: &[bool]) -> Result<(), ProgramError> {
        let (start, end) = (self.functions[function], self.end(function));
        let mut at = start;
        let mut last = start;
        while at < end {
            let instruction = self.instructions[at];
            let kind = instruction.kind().expect("decoded before");
            let writes = matches!(kind, Kind::Arithmetic { .. } | Kind::LoadImmediate | Kind::Load { .. });
            if instruction.dst > 10 || (instruction.src > 10) || (writes && instruction.dst == 10) {
                return Err(self.wrong(at, "a register that does not exist, or a write to the frame pointer"));
            }
            if let Kind::Atomic { atomic, .. } = kind {
                use crate::instruction::Atomic;
                let written = match atomic {
                    Atomic::LoadAcquire => instruction.dst,
                    Atomic::Exchange
                    | Atomic::Add { fetch: true }
                    | Atomic::Or { fetch: true }
                    | Atomic::And { fetch: true }
                    | Atomic::Xor { fetch: true } => instruction.src,
                    _ => 0,
                };
                if written == 10 {
                    return Err(self.wrong(at, "a write to the frame pointer"));
                }
            }
            if matches!(kind, Kind::Jump { .. } | Kind::Branch { .. } | Kind::MayGoto) {
                let target = self.target(at);
                if !(start..end).contains(&target) || is_second_half[target] {
                    return Err(self.wrong(at, "a jump leads out of its function or into an instruction"));
                }
            }
            last = at;
            at = self.next(at);
        }
        if at > end {
            return Err(self.wrong(last, "an immediate lies across the end of its function"));
        }
        match self.instructions[last].kind() {
            Some(Kind::Exit | Kind::Jump { .. }) => Ok(()),
            _ => Err(self.wrong(last, "the function does not end with an exit or a jump")),
        }
    }

    /// Refuses recursion and calls that are nested too deeply for the stack.
    fn check_depth(&self) -> Result<(), ProgramError> {
        const UNKNOWN: u64 = 0;
        const BUSY: u64 = u64::MAX;
        let calls: Vec<Vec<(usize, usize)>> = (0..self.functions.len())
            .map(|function| {
                let is_call = |&at: &usize| self.instructions[at].kind() == Some(Kind::CallLocal);
                let target = |at: usize| (at as i64 + 1 + i64::from(self.instructions[at].imm)) as usize;
                (self.functions[function]..self.end(function))
                    .filter(is_call)
                    .map(|at| (at, self.function_at(target(at))))
                    .collect()
            })
            .collect();
        let mut depth = vec![UNKNOWN; calls.len()];
        for root in 0..calls.len() {
            // Functions on the way, with the number of calls already looked at.
            let mut way = vec![(root, 0)];
            while let Some(&mut (function, ref mut looked_at)) = way.last_mut() {
                if depth[function] != UNKNOWN && depth[function] != BUSY {
                    way.pop();
                    continue;
                }
                depth[function] = BUSY;
                let Some(&(at, callee)) = calls[function].get(*looked_at) else {
                    let deepest = calls[function].iter().map(|&(_, callee)| depth[callee]).max().unwrap_or(0);
                    depth[function] = deepest + 1;
                    if depth[function] * FRAME_BYTES > CHAIN_BYTES {
                        return Err(self.wrong(self.functions[function], "calls are nested too deeply"));
                    }
                    way.pop();
                    continue;
                };
                *looked_at += 1;
                match depth[callee] {
                    BUSY => return Err(self.wrong(at, "the function calls itself")),
                    UNKNOWN => way.push((callee, 0)),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
