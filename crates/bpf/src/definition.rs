//! What each instruction means, one at a time and as plainly as can be: the translation is held to it.
//!
//! Source: RFC 9669 sections 4 and 5; `docs/spec/bpf-runtime.md` section 5.

use crate::instruction::{Arithmetic, Atomic, Condition, Instruction, Kind, Operand, Width};
use crate::memory::Memory;
use crate::program::{FRAME_BYTES, Program};
use crate::runtime::{Fault, Frame};
use crate::translate::{Callee, Inline, Resolver};

/// Where a program was when it went wrong for the first time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trap {
    /// Instruction.
    pub instruction: usize,
    /// What it did.
    pub fault: Fault,
}

/// Runs a program from its entry; gives r0 and what went wrong first. Calls of the host get `frame` as their host.
///
/// # Errors
/// What the resolver does not know.
///
/// # Safety
/// The host functions of the resolver accept a pointer to `frame`.
pub unsafe fn interpret(
    program: &Program,
    arguments: [u64; 5],
    memory: &mut Memory,
    frame: &mut Frame,
    resolver: &mut dyn Resolver,
) -> Result<(u64, Option<Trap>), String> {
    let mut machine = Interpreter { program, memory, frame, resolver, trap: None };
    let result = machine.function(0, arguments)?;
    Ok((result, machine.trap))
}

struct Interpreter<'a> {
    program: &'a Program,
    memory: &'a mut Memory,
    frame: &'a mut Frame,
    resolver: &'a mut dyn Resolver,
    trap: Option<Trap>,
}

impl Interpreter<'_> {
    fn trap(&mut self, instruction: usize, fault: Fault) {
        self.trap.get_or_insert(Trap { instruction, fault });
    }

    fn function(&mut self, function: usize, arguments: [u64; 5]) -> Result<u64, String> {
        let program = self.program;
        let mut r = [0u64; 11];
        r[1..6].copy_from_slice(&arguments);
        r[10] = self.frame.stack;
        self.frame.stack -= FRAME_BYTES;
        let mut at = program.functions[function];
        let result = loop {
            self.frame.instructions += 1;
            let instruction = program.instructions[at];
            let (dst, src) = (usize::from(instruction.dst), usize::from(instruction.src));
            let next = program.next(at);
            let mut goes_to = next;
            let value_of = |operand: Operand, wide: bool| match operand {
                Operand::Register(number) => r[usize::from(number)],
                Operand::Immediate(value) if wide => i64::from(value) as u64,
                Operand::Immediate(value) => u64::from(value as u32),
            };
            match instruction.kind().expect("checked when the program was made") {
                Kind::Arithmetic { operation, wide, operand } => {
                    let right = value_of(operand, wide);
                    r[dst] = match operation {
                        Arithmetic::ToLittle(bits) => low_bits(r[dst], bits),
                        Arithmetic::Swap(bits) => low_bits(r[dst], bits).swap_bytes() >> (64 - bits),
                        _ if wide => arithmetic_64(operation, r[dst], right),
                        _ => u64::from(arithmetic_32(operation, r[dst] as u32, right as u32)),
                    };
                }
                Kind::LoadImmediate => r[dst] = self.immediate(at)?,
                Kind::Load { width, signed } => {
                    let value = self.load(r[src].wrapping_add_signed(i64::from(instruction.offset)), width);
                    r[dst] = if signed { sign_extended(value, width) } else { value };
                }
                Kind::Store { width, value } => {
                    let address = r[dst].wrapping_add_signed(i64::from(instruction.offset));
                    self.store(at, address, width, value_of(value, true));
                }
                Kind::Atomic { width, atomic } => self.atomic(at, instruction, width, atomic, &mut r),
                Kind::Jump { .. } => goes_to = program.target(at),
                Kind::Branch { condition, wide, operand } => {
                    let (left, right) = (r[dst], value_of(operand, wide));
                    let holds = if wide {
                        condition_holds(condition, left, right, left as i64, right as i64)
                    } else {
                        let (l, q) = (left as u32, right as u32);
                        condition_holds(condition, u64::from(l), u64::from(q), i64::from(l as i32), i64::from(q as i32))
                    };
                    if holds {
                        goes_to = program.target(at);
                    }
                    if program.target(at) <= at && self.is_over_budget(at) {
                        break r[0];
                    }
                }
                Kind::MayGoto => {
                    if self.is_over_budget(at) {
                        break r[0];
                    }
                }
                Kind::CallLocal => {
                    let target = (at as i64 + 1 + i64::from(instruction.imm)) as usize;
                    r[0] = self.function(program.function_at(target), [r[1], r[2], r[3], r[4], r[5]])?;
                }
                Kind::CallHelper => {
                    let callee = self.resolver.helper(instruction.imm);
                    r[0] = self.call(at, callee, &r);
                }
                Kind::CallKfunc => {
                    let callee = self.resolver.kfunc(instruction.imm);
                    r[0] = self.call(at, callee, &r);
                }
                Kind::Exit => break r[0],
            }
            if matches!(instruction.kind(), Some(Kind::Jump { .. })) && goes_to <= at && self.is_over_budget(at) {
                break r[0];
            }
            at = goes_to;
        };
        self.frame.stack = r[10];
        Ok(result)
    }

    fn is_over_budget(&mut self, at: usize) -> bool {
        let over = self.frame.instructions > self.frame.stop_at;
        if over {
            self.trap(at, Fault::Endless);
        }
        over
    }

    fn immediate(&mut self, at: usize) -> Result<u64, String> {
        let load = self.program.instructions[at];
        let next = self.program.instructions[at + 1].imm;
        match load.src {
            0 => Ok(u64::from(load.imm as u32) | u64::from(next as u32) << 32),
            4 => {
                let target = (at as i64 + 1 + i64::from(load.imm)) as usize;
                Ok(self.resolver.callback(self.program, self.program.function_at(target)))
            }
            _ => self.resolver.immediate(load, next),
        }
    }

    /// Zero where nothing is. The last eight bytes of the region count as outside, whatever the width.
    fn load(&self, address: u64, width: Width) -> u64 {
        match self.memory.read(address, width.bytes()).filter(|_| Memory::contains(address, 9)) {
            None => 0,
            Some(bytes) => bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
        }
    }

    fn store(&mut self, at: usize, address: u64, width: Width, value: u64) {
        let bytes = value.to_le_bytes();
        let place = self.memory.write(address, width.bytes()).filter(|_| Memory::contains(address, 9));
        match place {
            Some(place) => place.copy_from_slice(&bytes[..width.bytes() as usize]),
            None => self.trap(at, Fault::WildStore),
        }
    }

    fn atomic(&mut self, at: usize, instruction: Instruction, width: Width, atomic: Atomic, r: &mut [u64; 11]) {
        let (dst, src) = (usize::from(instruction.dst), usize::from(instruction.src));
        let offset = i64::from(instruction.offset);
        if atomic == Atomic::LoadAcquire {
            r[dst] = self.load(r[src].wrapping_add_signed(offset), width);
            return;
        }
        let address = r[dst].wrapping_add_signed(offset);
        let old = self.load(address, width);
        let mask = if width == Width::Double { u64::MAX } else { u64::from(u32::MAX) };
        let (new, fetched) = match atomic {
            Atomic::Add { fetch } => (old.wrapping_add(r[src]), fetch.then_some(src)),
            Atomic::Or { fetch } => (old | r[src], fetch.then_some(src)),
            Atomic::And { fetch } => (old & r[src], fetch.then_some(src)),
            Atomic::Xor { fetch } => (old ^ r[src], fetch.then_some(src)),
            Atomic::Exchange => (r[src], Some(src)),
            Atomic::CompareExchange => (if old == r[0] & mask { r[src] } else { old }, Some(0)),
            Atomic::LoadAcquire | Atomic::StoreRelease => (r[src], None),
        };
        self.store(at, address, width, new);
        if let Some(register) = fetched {
            r[register] = old;
        }
    }

    fn call(&mut self, at: usize, callee: Callee, r: &[u64; 11]) -> u64 {
        match callee {
            // SAFETY: the caller of `interpret` promised that they accept the frame.
            Callee::Function(function) => unsafe {
                function(std::ptr::from_mut(self.frame), r[1], r[2], r[3], r[4], r[5])
            },
            Callee::Inline(Inline::Nothing) => 0,
            Callee::Inline(Inline::Now) => self.frame.now_ns,
            Callee::Inline(Inline::Cpu) => self.frame.cpu,
            Callee::Inline(Inline::NumberNew) => {
                let (start, end) = (r[2] as i32, r[3] as i32);
                let (before, end) = if start < end { (start.wrapping_sub(1), end) } else { (0, 0) };
                self.store(at, r[1], Width::Double, u64::from(before as u32) | u64::from(end as u32) << 32);
                0
            }
            Callee::Inline(Inline::NumberNext) => {
                if !Memory::contains(r[1], 9) {
                    self.trap(at, Fault::WildStore);
                    return 0;
                }
                let iterator = self.load(r[1], Width::Double);
                let (number, end) = ((iterator as i32).wrapping_add(1), (iterator >> 32) as i32);
                let (left, result) =
                    if number < end { (u64::from(number as u32) | u64::from(end as u32) << 32, r[1]) } else { (0, 0) };
                self.store(at, r[1], Width::Double, left);
                result
            }
            Callee::Inline(Inline::TestCpu) => {
                let cpu = u64::from(r[1] as u32);
                self.load(r[2].wrapping_add(cpu / 8), Width::Byte) >> (cpu % 8) & 1
            }
            Callee::Unreachable(reason) => {
                self.trap(at, Fault::Unreachable(reason));
                0
            }
        }
    }
}

fn low_bits(value: u64, bits: u8) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

fn sign_extended(value: u64, width: Width) -> u64 {
    match width {
        Width::Byte => i64::from(value as i8) as u64,
        Width::Half => i64::from(value as i16) as u64,
        Width::Word => i64::from(value as i32) as u64,
        Width::Double => value,
    }
}

/// Arithmetic of one width: the operations are the same, in unsigned and signed numbers of so many bits.
macro_rules! arithmetic {
    ($name:ident, $unsigned:ty, $signed:ty) => {
        fn $name(operation: Arithmetic, left: $unsigned, right: $unsigned) -> $unsigned {
            let (signed_left, signed_right) = (left as $signed, right as $signed);
            match operation {
                Arithmetic::Add => left.wrapping_add(right),
                Arithmetic::Sub => left.wrapping_sub(right),
                Arithmetic::Mul => left.wrapping_mul(right),
                Arithmetic::Div => left.checked_div(right).unwrap_or(0),
                Arithmetic::Mod => left.checked_rem(right).unwrap_or(left),
                Arithmetic::SignedDiv if right == 0 => 0,
                Arithmetic::SignedDiv => signed_left.wrapping_div(signed_right) as $unsigned,
                Arithmetic::SignedMod if right == 0 => left,
                Arithmetic::SignedMod => signed_left.wrapping_rem(signed_right) as $unsigned,
                Arithmetic::Or => left | right,
                Arithmetic::And => left & right,
                Arithmetic::Xor => left ^ right,
                Arithmetic::Lsh => left.wrapping_shl(right as u32),
                Arithmetic::Rsh => left.wrapping_shr(right as u32),
                Arithmetic::Arsh => signed_left.wrapping_shr(right as u32) as $unsigned,
                Arithmetic::Neg => left.wrapping_neg(),
                Arithmetic::Mov | Arithmetic::CastAddress => right,
                Arithmetic::MovSigned(8) => right as i8 as $unsigned,
                Arithmetic::MovSigned(16) => right as i16 as $unsigned,
                Arithmetic::MovSigned(_) => right as i32 as $unsigned,
                Arithmetic::ToLittle(_) | Arithmetic::Swap(_) => unreachable!("of all 64 bits whatever the class"),
            }
        }
    };
}
arithmetic!(arithmetic_64, u64, i64);
arithmetic!(arithmetic_32, u32, i32);

fn condition_holds(condition: Condition, left: u64, right: u64, signed_left: i64, signed_right: i64) -> bool {
    match condition {
        Condition::Equal => left == right,
        Condition::NotEqual => left != right,
        Condition::Set => left & right != 0,
        Condition::Greater => left > right,
        Condition::GreaterOrEqual => left >= right,
        Condition::Less => left < right,
        Condition::LessOrEqual => left <= right,
        Condition::SignedGreater => signed_left > signed_right,
        Condition::SignedGreaterOrEqual => signed_left >= signed_right,
        Condition::SignedLess => signed_left < signed_right,
        Condition::SignedLessOrEqual => signed_left <= signed_right,
    }
}
