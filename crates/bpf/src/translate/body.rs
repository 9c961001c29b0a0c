//! One function of a program as Cranelift's intermediate form: what `definition.rs` says of each instruction, said again.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, FuncRef, InstBuilder, MemFlags, SigRef, Type, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};

use crate::instruction::{Arithmetic, Atomic, Condition, Instruction, Kind, Operand, Width};
use crate::memory::{REGION_BASE, REGION_BYTES};
use crate::program::{FRAME_BYTES, Program};
use crate::runtime::{Fault, Frame, Site};
use crate::translate::{Callee, Inline, Resolver, TranslateError};

/// What a load from nowhere reads.
static ZERO: u64 = 0;

/// A function under translation.
pub(super) struct Body<'t, 'b> {
    program: &'t Program,
    start: usize,
    end: usize,
    builder: FunctionBuilder<'b>,
    /// Block that begins at an instruction of the function, if one does.
    blocks: Vec<Option<Block>>,
    registers: Vec<Variable>,
    host: Variable,
    callees: Vec<FuncRef>,
    host_call: SigRef,
    sites: &'t mut Vec<Site>,
    resolver: &'t mut dyn Resolver,
}

impl<'t, 'b> Body<'t, 'b> {
    pub(super) fn new(
        program: &'t Program,
        function: usize,
        mut builder: FunctionBuilder<'b>,
        callees: Vec<FuncRef>,
        host_call: SigRef,
        sites: &'t mut Vec<Site>,
        resolver: &'t mut dyn Resolver,
    ) -> Self {
        let (start, end) = (program.functions[function], program.end(function));
        let mut leads = vec![false; end - start + 1];
        let mut at = start;
        leads[0] = true;
        while at < end {
            let next = program.next(at);
            match program.instructions[at].kind() {
                Some(Kind::Jump { .. } | Kind::Branch { .. } | Kind::MayGoto) => {
                    leads[program.target(at) - start] = true;
                    leads[next - start] = true;
                }
                Some(Kind::Exit) => leads[next - start] = true,
                _ => {}
            }
            at = next;
        }
        leads.truncate(end - start);
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        let blocks: Vec<Option<Block>> = leads.iter().map(|&leads| leads.then(|| builder.create_block())).collect();
        let registers: Vec<Variable> = (0..11).map(|_| builder.declare_var(types::I64)).collect();
        let host = builder.declare_var(types::I64);
        builder.switch_to_block(entry);
        let parameters = builder.block_params(entry).to_vec();
        builder.def_var(host, parameters[0]);
        let zero = builder.ins().iconst(types::I64, 0);
        for (number, &register) in registers.iter().enumerate().take(10) {
            builder.def_var(register, if (1..6).contains(&number) { parameters[number] } else { zero });
        }
        let mut body =
            Self { program, start, end, builder, blocks, registers, host, callees, host_call, sites, resolver };
        let top = body.frame_load(std::mem::offset_of!(Frame, stack));
        body.builder.def_var(body.registers[10], top);
        let below = body.builder.ins().iadd_imm(top, -(FRAME_BYTES as i64));
        body.frame_store(std::mem::offset_of!(Frame, stack), below);
        let first = body.block(start);
        body.builder.ins().jump(first, &[]);
        body
    }

    /// Ends the construction.
    pub(super) fn finish(mut self) {
        self.builder.seal_all_blocks();
        self.builder.finalize();
    }

    fn block(&self, at: usize) -> Block {
        self.blocks[at - self.start].expect("a block begins wherever a jump leads")
    }

    fn register(&mut self, number: u8) -> Value {
        self.builder.use_var(self.registers[usize::from(number)])
    }

    fn set(&mut self, number: u8, value: Value) {
        let value = match self.builder.func.dfg.value_type(value) {
            types::I64 => value,
            _ => self.builder.ins().uextend(types::I64, value),
        };
        self.builder.def_var(self.registers[usize::from(number)], value);
    }

    fn narrow(&mut self, value: Value, ty: Type) -> Value {
        if ty == types::I64 { value } else { self.builder.ins().ireduce(ty, value) }
    }

    fn operand(&mut self, operand: Operand, ty: Type) -> Value {
        match operand {
            Operand::Register(number) => {
                let value = self.register(number);
                self.narrow(value, ty)
            }
            Operand::Immediate(value) if ty == types::I64 => self.builder.ins().iconst(ty, i64::from(value)),
            Operand::Immediate(value) => self.builder.ins().iconst(ty, i64::from(value as u32)),
        }
    }

    fn frame_load(&mut self, offset: usize) -> Value {
        let host = self.builder.use_var(self.host);
        self.builder.ins().load(types::I64, MemFlags::trusted(), host, offset as i32)
    }

    fn frame_store(&mut self, offset: usize, value: Value) {
        let host = self.builder.use_var(self.host);
        self.builder.ins().store(MemFlags::trusted(), value, host, offset as i32);
    }

    /// Remembers that the instruction went wrong, if nothing has before.
    fn fail(&mut self, at: usize, fault: Fault) {
        self.sites.push(Site { program: self.program.name.clone(), instruction: at, fault });
        let number = self.sites.len() as i64;
        let first = self.frame_load(std::mem::offset_of!(Frame, fault));
        let this = self.builder.ins().iconst(types::I64, number);
        let is_first = self.builder.ins().icmp_imm(IntCC::Equal, first, 0);
        let fault = self.builder.ins().select(is_first, this, first);
        self.frame_store(std::mem::offset_of!(Frame, fault), fault);
    }

    fn give_back(&mut self) {
        let top = self.register(10);
        self.frame_store(std::mem::offset_of!(Frame, stack), top);
        let result = self.register(0);
        self.builder.ins().return_(&[result]);
    }

    /// All its instructions.
    pub(super) fn translate(&mut self) -> Result<(), TranslateError> {
        let mut at = self.start;
        // Whether the block under construction still needs an end.
        let mut open = false;
        while at < self.end {
            if let Some(block) = self.blocks[at - self.start] {
                if open {
                    self.builder.ins().jump(block, &[]);
                }
                self.builder.switch_to_block(block);
                self.count(at);
                open = true;
            }
            let next = self.program.next(at);
            if open {
                open = self.instruction(at)?;
            }
            at = next;
        }
        Ok(())
    }

    /// Counts the instructions of the block that begins here.
    fn count(&mut self, at: usize) {
        let mut length = 0;
        let mut inside = at;
        while inside < self.end && (inside == at || self.blocks[inside - self.start].is_none()) {
            length += 1;
            inside = self.program.next(inside);
        }
        let offset = std::mem::offset_of!(Frame, instructions);
        let before = self.frame_load(offset);
        let after = self.builder.ins().iadd_imm(before, length);
        self.frame_store(offset, after);
    }

    /// Before a jump backwards: gives up if the call has gone on for too long.
    fn check_budget(&mut self, at: usize) {
        let executed = self.frame_load(std::mem::offset_of!(Frame, instructions));
        let limit = self.frame_load(std::mem::offset_of!(Frame, stop_at));
        let too_many = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, executed, limit);
        let (give_up, go_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(give_up);
        self.builder.ins().brif(too_many, give_up, &[], go_on, &[]);
        self.builder.switch_to_block(give_up);
        self.fail(at, Fault::Endless);
        self.give_back();
        self.builder.switch_to_block(go_on);
    }

    /// One instruction; says whether the next one follows it.
    fn instruction(&mut self, at: usize) -> Result<bool, TranslateError> {
        let instruction = self.program.instructions[at];
        let next = self.program.next(at);
        match instruction.kind().expect("checked when the program was made") {
            Kind::Arithmetic { operation, wide, operand } => self.arithmetic(instruction, operation, wide, operand),
            Kind::LoadImmediate => {
                let value = self.immediate(at)?;
                let value = self.builder.ins().iconst(types::I64, value as i64);
                self.set(instruction.dst, value);
            }
            Kind::Load { width, signed } => {
                let address = self.load_address(instruction.src, instruction.offset);
                let value = self.load(width, signed, address);
                self.set(instruction.dst, value);
            }
            Kind::Store { width, value } => {
                let value = self.operand(value, types::I64);
                let after = self.guard_store(at, instruction);
                self.store(width, value, after.0);
                self.resume(after.1);
            }
            Kind::Atomic { width, atomic } => self.atomic(at, instruction, width, atomic),
            Kind::Jump { .. } => {
                let target = self.program.target(at);
                if target <= at {
                    self.check_budget(at);
                }
                let target = self.block(target);
                self.builder.ins().jump(target, &[]);
                return Ok(false);
            }
            Kind::Branch { condition, wide, operand } => {
                let target = self.program.target(at);
                if target <= at {
                    self.check_budget(at);
                }
                let ty = if wide { types::I64 } else { types::I32 };
                let left = self.register(instruction.dst);
                let left = self.narrow(left, ty);
                let right = self.operand(operand, ty);
                let holds = self.condition(condition, left, right);
                let (target, next) = (self.block(target), self.block(next));
                self.builder.ins().brif(holds, target, &[], next, &[]);
                return Ok(false);
            }
            Kind::MayGoto => {
                self.check_budget(at);
                let next = self.block(next);
                self.builder.ins().jump(next, &[]);
                return Ok(false);
            }
            Kind::CallLocal => {
                let target = (at as i64 + 1 + i64::from(instruction.imm)) as usize;
                let callee = self.callees[self.program.function_at(target)];
                let arguments = self.arguments();
                let call = self.builder.ins().call(callee, &arguments);
                let result = self.builder.inst_results(call)[0];
                self.set(0, result);
            }
            Kind::CallHelper => {
                let callee = self.resolver.helper(instruction.imm);
                self.call(at, callee);
            }
            Kind::CallKfunc => {
                let callee = self.resolver.kfunc(instruction.imm);
                self.call(at, callee);
            }
            Kind::Exit => {
                self.give_back();
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn immediate(&mut self, at: usize) -> Result<u64, TranslateError> {
        let load = self.program.instructions[at];
        let next = self.program.instructions[at + 1].imm;
        match load.src {
            0 => Ok(u64::from(load.imm as u32) | u64::from(next as u32) << 32),
            4 => {
                let target = (at as i64 + 1 + i64::from(load.imm)) as usize;
                Ok(self.resolver.callback(self.program, self.program.function_at(target)))
            }
            _ => self.resolver.immediate(load, next).map_err(|reason| TranslateError::Name {
                program: self.program.name.clone(),
                instruction: at,
                reason,
            }),
        }
    }

    fn arguments(&mut self) -> [Value; 6] {
        let host = self.builder.use_var(self.host);
        let mut arguments = [host; 6];
        for number in 1..6 {
            arguments[usize::from(number)] = self.register(number);
        }
        arguments
    }

    fn call(&mut self, at: usize, callee: Callee) {
        let zero = |body: &mut Self| body.builder.ins().iconst(types::I64, 0);
        let result = match callee {
            Callee::Function(function) => {
                let arguments = self.arguments();
                let address = self.builder.ins().iconst(types::I64, function as usize as i64);
                let call = self.builder.ins().call_indirect(self.host_call, address, &arguments);
                self.builder.inst_results(call)[0]
            }
            Callee::Inline(Inline::Nothing) => zero(self),
            Callee::Inline(Inline::Now) => self.frame_load(std::mem::offset_of!(Frame, now_ns)),
            Callee::Inline(Inline::Cpu) => self.frame_load(std::mem::offset_of!(Frame, cpu)),
            Callee::Inline(Inline::NumberNew) => self.number_new(at),
            Callee::Inline(Inline::NumberNext) => self.number_next(at),
            Callee::Inline(Inline::TestCpu) => self.test_cpu(),
            Callee::Unreachable(reason) => {
                self.fail(at, Fault::Unreachable(reason));
                zero(self)
            }
        };
        self.set(0, result);
    }

    /// The iterator is the number before the next one and the end, 32 bits each; an empty range is two zeros.
    fn number_new(&mut self, at: usize) -> Value {
        let (start, end) = (self.register(2), self.register(3));
        let (start, end) = (self.narrow(start, types::I32), self.narrow(end, types::I32));
        let some = self.builder.ins().icmp(IntCC::SignedLessThan, start, end);
        let before = self.builder.ins().iadd_imm(start, -1);
        let zero = self.builder.ins().iconst(types::I32, 0);
        let before = self.builder.ins().select(some, before, zero);
        let end = self.builder.ins().select(some, end, zero);
        let iterator = Instruction { opcode: 0, dst: 1, src: 0, offset: 0, imm: 0 };
        let (address, after) = self.guard_store(at, iterator);
        let flags = MemFlags::new().with_notrap();
        self.builder.ins().store(flags, before, address, 0);
        self.builder.ins().store(flags, end, address, 4);
        self.resume(after);
        self.builder.ins().iconst(types::I64, 0)
    }

    fn number_next(&mut self, at: usize) -> Value {
        let iterator = Instruction { opcode: 0, dst: 1, src: 0, offset: 0, imm: 0 };
        let result = self.builder.declare_var(types::I64);
        let nothing = self.builder.ins().iconst(types::I64, 0);
        self.builder.def_var(result, nothing);
        let (address, after) = self.guard_store(at, iterator);
        let flags = MemFlags::new().with_notrap();
        let before = self.builder.ins().load(types::I32, flags, address, 0);
        let end = self.builder.ins().load(types::I32, flags, address, 4);
        let number = self.builder.ins().iadd_imm(before, 1);
        let some = self.builder.ins().icmp(IntCC::SignedLessThan, number, end);
        let zero = self.builder.ins().iconst(types::I32, 0);
        let now = self.builder.ins().select(some, number, zero);
        let end = self.builder.ins().select(some, end, zero);
        self.builder.ins().store(flags, now, address, 0);
        self.builder.ins().store(flags, end, address, 4);
        let value = self.builder.ins().select(some, address, nothing);
        self.builder.def_var(result, value);
        self.resume(after);
        self.builder.use_var(result)
    }

    fn test_cpu(&mut self) -> Value {
        let (cpu, mask) = (self.register(1), self.register(2));
        let cpu = self.builder.ins().band_imm(cpu, 0xffff_ffff);
        let byte = self.builder.ins().ushr_imm(cpu, 3);
        let address = self.builder.ins().iadd(mask, byte);
        let address = self.checked_load_address(address);
        let value = self.builder.ins().uload8(types::I64, MemFlags::new().with_notrap(), address, 0);
        let bit = self.builder.ins().band_imm(cpu, 7);
        let value = self.builder.ins().ushr(value, bit);
        self.builder.ins().band_imm(value, 1)
    }

    fn arithmetic(&mut self, instruction: Instruction, operation: Arithmetic, wide: bool, operand: Operand) {
        let ty = if wide { types::I64 } else { types::I32 };
        let left = self.register(instruction.dst);
        let left = self.narrow(left, ty);
        let right = self.operand(operand, ty);
        let value = match operation {
            Arithmetic::Add => self.builder.ins().iadd(left, right),
            Arithmetic::Sub => self.builder.ins().isub(left, right),
            Arithmetic::Mul => self.builder.ins().imul(left, right),
            Arithmetic::Or => self.builder.ins().bor(left, right),
            Arithmetic::And => self.builder.ins().band(left, right),
            Arithmetic::Xor => self.builder.ins().bxor(left, right),
            // Cranelift masks the distance of a shift by the width, as is asked for.
            Arithmetic::Lsh => self.builder.ins().ishl(left, right),
            Arithmetic::Rsh => self.builder.ins().ushr(left, right),
            Arithmetic::Arsh => self.builder.ins().sshr(left, right),
            Arithmetic::Neg => self.builder.ins().ineg(left),
            Arithmetic::Mov | Arithmetic::CastAddress => right,
            Arithmetic::MovSigned(bits) => {
                let narrow = match bits {
                    8 => types::I8,
                    16 => types::I16,
                    _ => types::I32,
                };
                let value = self.builder.ins().ireduce(narrow, right);
                self.builder.ins().sextend(ty, value)
            }
            Arithmetic::Div | Arithmetic::SignedDiv | Arithmetic::Mod | Arithmetic::SignedMod => {
                self.division(operation, left, right)
            }
            Arithmetic::ToLittle(bits) | Arithmetic::Swap(bits) => {
                let value = self.register(instruction.dst);
                let ty = match bits {
                    16 => types::I16,
                    32 => types::I32,
                    _ => types::I64,
                };
                let value = self.narrow(value, ty);
                if matches!(operation, Arithmetic::Swap(_)) { self.builder.ins().bswap(value) } else { value }
            }
        };
        self.set(instruction.dst, value);
    }

    /// Division by zero gives 0, its remainder the dividend; the smallest number by -1 is itself, without a remainder.
    fn division(&mut self, operation: Arithmetic, left: Value, right: Value) -> Value {
        let ty = self.builder.func.dfg.value_type(left);
        let one = self.builder.ins().iconst(ty, 1);
        let zero = self.builder.ins().iconst(ty, 0);
        let by_zero = self.builder.ins().icmp(IntCC::Equal, right, zero);
        let signed = matches!(operation, Arithmetic::SignedDiv | Arithmetic::SignedMod);
        let by_minus_one = signed.then(|| self.builder.ins().icmp_imm(IntCC::Equal, right, -1));
        let mut divisor = self.builder.ins().select(by_zero, one, right);
        if let Some(by_minus_one) = by_minus_one {
            divisor = self.builder.ins().select(by_minus_one, one, divisor);
        }
        let (mut value, at_zero, at_minus_one) = match operation {
            Arithmetic::Div => (self.builder.ins().udiv(left, divisor), zero, zero),
            Arithmetic::Mod => (self.builder.ins().urem(left, divisor), left, zero),
            Arithmetic::SignedDiv => {
                let negated = self.builder.ins().ineg(left);
                (self.builder.ins().sdiv(left, divisor), zero, negated)
            }
            _ => (self.builder.ins().srem(left, divisor), left, zero),
        };
        if let Some(by_minus_one) = by_minus_one {
            value = self.builder.ins().select(by_minus_one, at_minus_one, value);
        }
        self.builder.ins().select(by_zero, at_zero, value)
    }

    fn condition(&mut self, condition: Condition, left: Value, right: Value) -> Value {
        let code = match condition {
            Condition::Set => {
                let both = self.builder.ins().band(left, right);
                return self.builder.ins().icmp_imm(IntCC::NotEqual, both, 0);
            }
            Condition::Equal => IntCC::Equal,
            Condition::NotEqual => IntCC::NotEqual,
            Condition::Greater => IntCC::UnsignedGreaterThan,
            Condition::GreaterOrEqual => IntCC::UnsignedGreaterThanOrEqual,
            Condition::Less => IntCC::UnsignedLessThan,
            Condition::LessOrEqual => IntCC::UnsignedLessThanOrEqual,
            Condition::SignedGreater => IntCC::SignedGreaterThan,
            Condition::SignedGreaterOrEqual => IntCC::SignedGreaterThanOrEqual,
            Condition::SignedLess => IntCC::SignedLessThan,
            Condition::SignedLessOrEqual => IntCC::SignedLessThanOrEqual,
        };
        self.builder.ins().icmp(code, left, right)
    }

    /// Whether the eight bytes at an address are in the region.
    fn is_inside(&mut self, address: Value) -> Value {
        let distance = self.builder.ins().iadd_imm(address, (REGION_BASE as i64).wrapping_neg());
        self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, distance, (REGION_BYTES - 8) as i64)
    }

    fn checked_load_address(&mut self, address: Value) -> Value {
        let inside = self.is_inside(address);
        let nowhere = self.builder.ins().iconst(types::I64, std::ptr::from_ref(&ZERO).addr() as i64);
        self.builder.ins().select(inside, address, nowhere)
    }

    fn load_address(&mut self, base: u8, offset: i16) -> Value {
        let base_value = self.register(base);
        let address = self.builder.ins().iadd_imm(base_value, i64::from(offset));
        if is_in_frame(base, offset) { address } else { self.checked_load_address(address) }
    }

    /// Where a store goes, in a block that is only reached if it may; and the block after it. To be followed by [`Body::resume`].
    fn guard_store(&mut self, at: usize, instruction: Instruction) -> (Value, Option<Block>) {
        let base = self.register(instruction.dst);
        let address = self.builder.ins().iadd_imm(base, i64::from(instruction.offset));
        if is_in_frame(instruction.dst, instruction.offset) {
            return (address, None);
        }
        let inside = self.is_inside(address);
        let (right, wrong, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(wrong);
        self.builder.ins().brif(inside, right, &[], wrong, &[]);
        self.builder.switch_to_block(wrong);
        self.fail(at, Fault::WildStore);
        self.builder.ins().jump(after, &[]);
        self.builder.switch_to_block(right);
        (address, Some(after))
    }

    fn resume(&mut self, after: Option<Block>) {
        if let Some(after) = after {
            self.builder.ins().jump(after, &[]);
            self.builder.switch_to_block(after);
        }
    }

    fn load(&mut self, width: Width, signed: bool, address: Value) -> Value {
        let flags = MemFlags::new().with_notrap();
        let ins = self.builder.ins();
        match (width, signed) {
            (Width::Byte, false) => ins.uload8(types::I64, flags, address, 0),
            (Width::Half, false) => ins.uload16(types::I64, flags, address, 0),
            (Width::Word, false) => ins.uload32(flags, address, 0),
            (Width::Byte, true) => ins.sload8(types::I64, flags, address, 0),
            (Width::Half, true) => ins.sload16(types::I64, flags, address, 0),
            (Width::Word, true) => ins.sload32(flags, address, 0),
            (Width::Double, _) => ins.load(types::I64, flags, address, 0),
        }
    }

    fn store(&mut self, width: Width, value: Value, address: Value) {
        let flags = MemFlags::new().with_notrap();
        let ins = self.builder.ins();
        match width {
            Width::Byte => ins.istore8(flags, value, address, 0),
            Width::Half => ins.istore16(flags, value, address, 0),
            Width::Word => ins.istore32(flags, value, address, 0),
            Width::Double => ins.store(flags, value, address, 0),
        };
    }

    /// Simulated CPUs take turns, so that a load and a store are atomic.
    fn atomic(&mut self, at: usize, instruction: Instruction, width: Width, atomic: Atomic) {
        if atomic == Atomic::LoadAcquire {
            let address = self.load_address(instruction.src, instruction.offset);
            let value = self.load(width, false, address);
            self.set(instruction.dst, value);
            return;
        }
        let source = self.register(instruction.src);
        let fetched = match atomic {
            Atomic::CompareExchange => Some(0),
            Atomic::Exchange
            | Atomic::Add { fetch: true }
            | Atomic::Or { fetch: true }
            | Atomic::And { fetch: true }
            | Atomic::Xor { fetch: true } => Some(instruction.src),
            _ => None,
        };
        let zero = self.builder.ins().iconst(types::I64, 0);
        if let Some(register) = fetched {
            // What is fetched from nowhere is 0.
            let fetched = self.builder.declare_var(types::I64);
            self.builder.def_var(fetched, zero);
            let (address, after) = self.guard_store(at, instruction);
            let old = self.load(width, false, address);
            let new = self.combined(atomic, width, old, source);
            self.store(width, new, address);
            self.builder.def_var(fetched, old);
            self.resume(after);
            let value = self.builder.use_var(fetched);
            self.set(register, value);
            return;
        }
        let (address, after) = self.guard_store(at, instruction);
        let new = if atomic == Atomic::StoreRelease {
            source
        } else {
            let old = self.load(width, false, address);
            self.combined(atomic, width, old, source)
        };
        self.store(width, new, address);
        self.resume(after);
    }

    fn combined(&mut self, atomic: Atomic, width: Width, old: Value, source: Value) -> Value {
        match atomic {
            Atomic::Add { .. } => self.builder.ins().iadd(old, source),
            Atomic::Or { .. } => self.builder.ins().bor(old, source),
            Atomic::And { .. } => self.builder.ins().band(old, source),
            Atomic::Xor { .. } => self.builder.ins().bxor(old, source),
            Atomic::CompareExchange => {
                let expected = self.register(0);
                let ty = if width == Width::Double { types::I64 } else { types::I32 };
                let (left, right) = (self.narrow(old, ty), self.narrow(expected, ty));
                let equal = self.builder.ins().icmp(IntCC::Equal, left, right);
                self.builder.ins().select(equal, source, old)
            }
            Atomic::Exchange | Atomic::LoadAcquire | Atomic::StoreRelease => source,
        }
    }
}

/// Whether an access relative to the frame pointer is to the function's own frame.
fn is_in_frame(base: u8, offset: i16) -> bool {
    base == 10 && (-(FRAME_BYTES as i64)..=-8).contains(&i64::from(offset))
}
