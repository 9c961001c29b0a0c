//! What each instruction means, one at a time and as plainly as can be: the translation is held to it.
//!
//! Source: RFC 9669 sections 4 and 5; `docs/spec/bpf-runtime.md` section 5.

use crate::instruction::{Arithmetic, Atomic, Condition, Instruction, Kind, Operand, Width};
use crate::memory::Memory;
use crate::program::{FRAME_BYTES, Program};
use crate::resolver::{Callee, Inline, Resolver};
use crate::runtime::{Fault, Frame};

/// Where a program was when it went wrong for the first time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trap {
    /// Instruction.
    pub instruction: usize,
    /// What it did.
    pub fault: Fault,
}

/// Runs a program from its entry; gives r0 and what went wrong first. Calls of the host get `frame` as their host. The memory is what the
/// program reaches.
///
/// # Safety
/// The host functions of the resolver accept a pointer to `frame`.
pub unsafe fn interpret(
    program: &Program,
    arguments: [u64; 5],
    _memory: &mut Memory,
    frame: &mut Frame,
    resolver: &mut dyn Resolver,
) -> (u64, Option<Trap>) {
    let before = (frame.call_back, frame.runner);
    let frame: *mut Frame = frame;
    let mut machine = Interpreter { program, frame, resolver, site: &|_| 0, trap: None };
    // SAFETY: the frame is borrowed as long as this runs, and used by this pointer only.
    unsafe {
        ((*frame).call_back, (*frame).runner) = (call_back, (&raw mut machine).cast());
        let result = machine.function(0, arguments);
        ((*frame).call_back, (*frame).runner) = before;
        (result, machine.trap)
    }
}

pub(crate) struct Interpreter<'a> {
    program: &'a Program,
    /// What the host functions get; it stays as long as the interpreter.
    frame: *mut Frame,
    resolver: &'a mut dyn Resolver,
    /// The number by which the frame remembers what went wrong; 0 for none.
    site: &'a dyn Fn(&Trap) -> u64,
    trap: Option<Trap>,
}

/// Calls a function of the program that an [`Interpreter`] runs, which is the frame's runner.
unsafe fn call_back(frame: *mut Frame, callback: u64, arguments: [u64; 5]) -> u64 {
    // SAFETY: the interpreter set itself as the runner for the time of the host's function, and does nothing meanwhile.
    let machine = unsafe { &mut *(*frame).runner.cast::<Interpreter<'_>>() };
    let program = machine.program;
    let is_meant = |&function: &usize| machine.resolver.callback(program, function) == callback;
    let Some(function) = (0..program.functions.len()).find(is_meant) else { return 0 };
    machine.function(function, arguments)
}

impl Interpreter<'_> {
    /// Runs a function for a host that calls functions of its programs itself. `site` numbers what goes wrong, for the frame.
    ///
    /// # Safety
    /// `frame` is what the host functions of the resolver expect, and the region is mapped.
    pub(crate) unsafe fn run(
        program: &Program,
        function: usize,
        arguments: [u64; 5],
        frame: *mut Frame,
        resolver: &mut dyn Resolver,
        site: &dyn Fn(&Trap) -> u64,
    ) -> u64 {
        Interpreter { program, frame, resolver, site, trap: None }.function(function, arguments)
    }

    fn frame(&mut self) -> &mut Frame {
        // SAFETY: it stays as long as the interpreter, and no reference to it outlives one of the interpreter.
        unsafe { &mut *self.frame }
    }

    fn trap(&mut self, instruction: usize, fault: Fault) {
        let trap = Trap { instruction, fault };
        let site = (self.site)(&trap);
        let first = &mut self.frame().fault;
        if *first == 0 {
            *first = site;
        }
        self.trap.get_or_insert(trap);
    }

    fn function(&mut self, function: usize, arguments: [u64; 5]) -> u64 {
        let program = self.program;
        let mut r = [0u64; 11];
        r[1..6].copy_from_slice(&arguments);
        let top = self.frame().stack;
        if program.uses_frame(function) {
            r[10] = top;
            self.frame().stack -= FRAME_BYTES;
        }
        let mut at = program.functions[function];
        let result = loop {
            self.frame().instructions += 1;
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
                        _ => arithmetic(operation, wide, r[dst], right),
                    };
                }
                Kind::LoadImmediate => match self.immediate(at) {
                    Ok(value) => r[dst] = value,
                    Err(reason) => {
                        self.trap(at, Fault::Unreachable(reason));
                        break r[0];
                    }
                },
                Kind::Load { width, signed } => {
                    let value = self.load(r[src], instruction.offset, width);
                    r[dst] = if signed { sign_extended(value, width) } else { value };
                }
                Kind::Store { width, value } => {
                    if !self.store(at, r[dst], instruction.offset, width, value_of(value, true)) {
                        break r[0];
                    }
                }
                Kind::Atomic { width, atomic } => {
                    if !self.atomic(at, instruction, width, atomic, &mut r) {
                        break r[0];
                    }
                }
                Kind::Jump { .. } => goes_to = program.target(at),
                Kind::Branch { condition, wide, operand } => {
                    let (left, right) = (r[dst], value_of(operand, wide));
                    if holds(condition, wide, left, right) {
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
                    r[0] = self.function(program.function_at(target), [r[1], r[2], r[3], r[4], r[5]]);
                    if self.frame().thrown != 0 {
                        break r[0];
                    }
                }
                Kind::CallHelper => {
                    let callee = self.resolver.helper(instruction.imm);
                    let Some(result) = self.call(at, callee, &r) else { break r[0] };
                    r[0] = result;
                }
                Kind::CallKfunc => {
                    let callee = self.resolver.kfunc(instruction.imm);
                    let Some(result) = self.call(at, callee, &r) else { break r[0] };
                    r[0] = result;
                }
                Kind::Exit => break r[0],
            }
            if matches!(instruction.kind(), Some(Kind::Jump { .. })) && goes_to <= at && self.is_over_budget(at) {
                break r[0];
            }
            at = goes_to;
        };
        self.frame().stack = top;
        result
    }

    fn is_over_budget(&mut self, at: usize) -> bool {
        let frame = self.frame();
        let over = frame.instructions > frame.stop_at;
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

    /// Zero unless the register points into the region.
    fn load(&self, register: u64, offset: i16, width: Width) -> u64 {
        let address = register.wrapping_add_signed(i64::from(offset));
        let Some(place) = Memory::place(address, width.bytes()).filter(|_| Memory::points_inside(register)) else {
            return 0;
        };
        let mut bytes = [0; 8];
        // SAFETY: the region is mapped, and nothing of it is borrowed while a program runs.
        unsafe { place.copy_to_nonoverlapping(bytes.as_mut_ptr(), width.bytes() as usize) };
        u64::from_le_bytes(bytes)
    }

    /// False if the register does not point into the region: the function ends there.
    fn store(&mut self, at: usize, register: u64, offset: i16, width: Width, value: u64) -> bool {
        let bytes = value.to_le_bytes();
        let address = register.wrapping_add_signed(i64::from(offset));
        let place = Memory::place(address, width.bytes()).filter(|_| Memory::points_inside(register));
        let Some(place) = place else {
            self.trap(at, Fault::WildStore);
            return false;
        };
        // SAFETY: as in `load`.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), width.bytes() as usize) };
        true
    }

    fn atomic(&mut self, at: usize, instruction: Instruction, width: Width, atomic: Atomic, r: &mut [u64; 11]) -> bool {
        let (dst, src, offset) = (usize::from(instruction.dst), usize::from(instruction.src), instruction.offset);
        if atomic == Atomic::LoadAcquire {
            r[dst] = self.load(r[src], offset, width);
            return true;
        }
        let old = self.load(r[dst], offset, width);
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
        let stored = self.store(at, r[dst], offset, width, new);
        if let Some(register) = fetched.filter(|_| stored) {
            r[register] = old;
        }
        stored
    }

    /// What a call gives; `None` if the function ends there: it throws, or stores where it must not.
    fn call(&mut self, at: usize, callee: Callee, r: &[u64; 11]) -> Option<u64> {
        let price_ps = self.resolver.price_ps(self.program.instructions[at]);
        self.frame().called_ps += price_ps;
        Some(match callee {
            // SAFETY: the frame is what these functions expect; whoever made the interpreter promised it.
            Callee::Function(function, _) | Callee::Lookup(function, _) => unsafe {
                function(self.frame, r[1], r[2], r[3], r[4], r[5])
            },
            Callee::CallsBack(function, _) => {
                // SAFETY: as above; a function of this program that it calls is run by this interpreter or by a new one, and `self` is not
                // used meanwhile.
                let result = unsafe { function(self.frame, r[1], r[2], r[3], r[4], r[5]) };
                if self.is_over_budget(at) || self.frame().thrown != 0 {
                    return None;
                }
                result
            }
            Callee::Throw => {
                (self.frame().thrown, self.frame().cookie) = (1, r[1]);
                return None;
            }
            Callee::Inline(Inline::Nothing) => 0,
            Callee::Inline(Inline::Now) => self.frame().now_ns,
            Callee::Inline(Inline::Cpu) => self.frame().cpu,
            Callee::Inline(Inline::NumberNew) => {
                let (start, end) = (r[2] as i32, r[3] as i32);
                let (before, end) = if start < end { (start.wrapping_sub(1), end) } else { (0, 0) };
                let iterator = u64::from(before as u32) | u64::from(end as u32) << 32;
                self.store(at, r[1], 0, Width::Double, iterator).then_some(0)?
            }
            Callee::Inline(Inline::NumberNext) => {
                let iterator = self.load(r[1], 0, Width::Double);
                let (number, end) = ((iterator as i32).wrapping_add(1), (iterator >> 32) as i32);
                let (left, result) =
                    if number < end { (u64::from(number as u32) | u64::from(end as u32) << 32, r[1]) } else { (0, 0) };
                self.store(at, r[1], 0, Width::Double, left).then_some(result)?
            }
            Callee::Inline(Inline::TestCpu) => {
                let cpu = u64::from(r[1] as u32);
                self.load(r[2].wrapping_add(cpu / 8), 0, Width::Byte) >> (cpu % 8) & 1
            }
            Callee::Unreachable(reason) => {
                self.trap(at, Fault::Unreachable(reason));
                0
            }
        })
    }
}

fn low_bits(value: u64, bits: u8) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

pub(crate) fn sign_extended(value: u64, width: Width) -> u64 {
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

/// What an operation gives, of 64 bits or of the lower 32, the upper ones being cleared.
pub(crate) fn arithmetic(operation: Arithmetic, wide: bool, left: u64, right: u64) -> u64 {
    if wide {
        arithmetic_64(operation, left, right)
    } else {
        u64::from(arithmetic_32(operation, left as u32, right as u32))
    }
}

/// Whether a condition holds, of 64 bits or of the lower 32.
pub(crate) fn holds(condition: Condition, wide: bool, left: u64, right: u64) -> bool {
    if wide {
        return condition_holds(condition, left, right, left as i64, right as i64);
    }
    let (left, right) = (left as u32, right as u32);
    condition_holds(condition, u64::from(left), u64::from(right), i64::from(left as i32), i64::from(right as i32))
}

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
