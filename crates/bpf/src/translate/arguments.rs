//! Which of the registers r1 to r5 a function reads before it writes them: the others need not be brought to it.

use crate::instruction::{Arithmetic, Atomic, Kind, Operand};
use crate::program::Program;
use crate::resolver::{Callee, Inline, Resolver};

/// Registers as bits.
type Registers = u16;

/// By function, how many registers from r1 on it takes: up to the last one that it or what it calls reads.
pub(super) fn arguments(program: &Program, resolver: &mut dyn Resolver) -> Vec<u8> {
    let mut taken = vec![None; program.functions.len()];
    for function in 0..taken.len() {
        of_function(program, function, resolver, &mut taken);
    }
    taken.into_iter().map(|taken| taken.unwrap_or(5)).collect()
}

/// Whether a program has a call that throws.
pub(super) fn throws(program: &Program, resolver: &mut dyn Resolver) -> bool {
    program.instructions.iter().enumerate().any(|(at, instruction)| {
        !is_second_half(program, at)
            && match instruction.kind() {
                Some(Kind::CallHelper) => matches!(resolver.helper(instruction.imm), Callee::Throw),
                Some(Kind::CallKfunc) => matches!(resolver.kfunc(instruction.imm), Callee::Throw),
                _ => false,
            }
    })
}

/// Nothing calls itself, and calls are not nested deeply: the program was checked for both.
fn of_function(program: &Program, function: usize, resolver: &mut dyn Resolver, taken: &mut Vec<Option<u8>>) -> u8 {
    if let Some(known) = taken[function] {
        return known;
    }
    let (start, end) = (program.functions[function], program.end(function));
    let mut effects = vec![(0, 0); end - start];
    let mut at = start;
    while at < end {
        effects[at - start] = match program.instructions[at].kind() {
            Some(Kind::CallLocal) => {
                let target = (at as i64 + 1 + i64::from(program.instructions[at].imm)) as usize;
                (first(of_function(program, program.function_at(target), resolver, taken)), 1)
            }
            _ => effect(program, at, resolver),
        };
        at = program.next(at);
    }
    let live = live_at_start(program, (start, end), &effects);
    let count = (1..=5).rev().find(|register| live & 1 << register != 0).unwrap_or(0);
    taken[function] = Some(count);
    count
}

/// Whether a slot is the second half of a 64-bit immediate.
fn is_second_half(program: &Program, at: usize) -> bool {
    at > 0 && program.instructions[at].opcode == 0 && program.instructions[at - 1].opcode == 0x18
}

/// Registers r1 to r`count`.
fn first(count: u8) -> Registers {
    (1 << (count + 1)) - 2
}

/// What an instruction that calls no function of the program reads, and what it writes.
fn effect(program: &Program, at: usize, resolver: &mut dyn Resolver) -> (Registers, Registers) {
    let instruction = program.instructions[at];
    let (dst, src) = (1 << instruction.dst, 1 << instruction.src);
    let of = |operand| if matches!(operand, Operand::Register(_)) { src } else { 0 };
    match instruction.kind().expect("checked when the program was made") {
        Kind::Arithmetic { operation, operand, .. } => {
            let replaces = matches!(operation, Arithmetic::Mov | Arithmetic::MovSigned(_) | Arithmetic::CastAddress);
            (of(operand) | if replaces { 0 } else { dst }, dst)
        }
        Kind::LoadImmediate => (0, dst),
        Kind::Load { .. } => (src, dst),
        Kind::Store { value, .. } => (dst | of(value), 0),
        Kind::Atomic { atomic: Atomic::LoadAcquire, .. } => (src, dst),
        // What it fetches goes to a register that it reads.
        Kind::Atomic { .. } => (dst | src | 1, 0),
        Kind::Branch { operand, .. } => (dst | of(operand), 0),
        Kind::CallHelper => (of_callee(&resolver.helper(instruction.imm)), 1),
        Kind::CallKfunc => (of_callee(&resolver.kfunc(instruction.imm)), 1),
        Kind::Exit => (1, 0),
        Kind::Jump { .. } | Kind::MayGoto | Kind::CallLocal => (0, 0),
    }
}

fn of_callee(callee: &Callee) -> Registers {
    first(match callee {
        Callee::Function(_, count) | Callee::CallsBack(_, count) => *count,
        Callee::Lookup(_, on_any_cpu) => 2 + u8::from(*on_any_cpu),
        Callee::Inline(Inline::Nothing | Inline::Now | Inline::Cpu) | Callee::Unreachable(_) => 0,
        Callee::Inline(Inline::NumberNext) | Callee::Throw => 1,
        Callee::Inline(Inline::TestCpu) => 2,
        Callee::Inline(Inline::NumberNew) => 3,
    })
}

/// What is read before it is written, on some way through the function; `effects` are what each instruction reads and writes.
fn live_at_start(program: &Program, (start, end): (usize, usize), effects: &[(Registers, Registers)]) -> Registers {
    let mut live: Vec<Registers> = vec![0; end - start];
    loop {
        let mut changed = false;
        for at in (start..end).rev() {
            if is_second_half(program, at) {
                continue;
            }
            let behind = |at: usize| if at < end { live[at - start] } else { 0 };
            let after = match program.instructions[at].kind() {
                Some(Kind::Jump { .. }) => behind(program.target(at)),
                Some(Kind::Branch { .. }) => behind(program.target(at)) | behind(program.next(at)),
                Some(Kind::Exit) => 0,
                _ => behind(program.next(at)),
            };
            let (reads, writes) = effects[at - start];
            let before = reads | after & !writes;
            changed |= live[at - start] != before;
            live[at - start] = before;
        }
        if !changed {
            return live[0];
        }
    }
}
