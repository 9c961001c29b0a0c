//! One function of a program as Cranelift's intermediate form: what `definition.rs` says of each instruction, said again.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    Block, InstBuilder, InstructionData, MemFlags, Opcode, SigRef, Type, Value, ValueDef, types,
};
use cranelift_frontend::{FunctionBuilder, Variable};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Module};

use crate::definition;
use crate::instruction::{Arithmetic, Condition, Instruction, Kind, Operand};
use crate::program::{FRAME_BYTES, Program};
use crate::resolver::{Resolver, TranslateError};
use crate::runtime::{Fault, Frame, Site};

/// A function under translation, from its first instruction to its last: what jumps forward to an instruction is known when that is reached.
pub(super) struct Body<'t, 'b> {
    pub(super) program: &'t Program,
    start: usize,
    end: usize,
    pub(super) builder: FunctionBuilder<'b>,
    /// By instruction of the function: what begins there, if something does.
    beginnings: Vec<Option<Beginning>>,
    registers: Vec<Variable>,
    pub(super) host: Variable,
    /// Instructions executed, which lie in the frame whenever another function runs.
    executed: Variable,
    /// Instructions of the present block behind the one at hand: they are counted already.
    left: i64,
    uses_frame: bool,
    /// Registers that were checked on the way here, and where to load relative to: themselves if they point into the region for sure.
    pub(super) checked: Vec<(Value, Value)>,
    /// Loads so far that were checked by a branch.
    pub(super) branched_loads: u32,
    callees: Callees<'t>,
    /// Signatures of functions of the host by the number of registers that they take.
    pub(super) host_calls: [SigRef; 6],
    sites: &'t mut Vec<Site>,
    pub(super) resolver: &'t mut dyn Resolver,
}

/// The functions of the program, to be called.
pub(super) struct Callees<'t> {
    pub module: &'t mut JITModule,
    pub functions: &'t [FuncId],
    /// How many registers each takes.
    pub taken: &'t [u8],
    /// Some of them may throw.
    pub throws: bool,
}

/// A block that jumps lead to.
struct Beginning {
    block: Block,
    /// A jump from further down leads here too.
    from_below: bool,
    arrivals: Arrivals,
}

/// Who has jumped to a block so far.
enum Arrivals {
    Nobody,
    /// Some, who all had checked these.
    Some(Vec<(Value, Value)>),
}

impl<'t, 'b> Body<'t, 'b> {
    pub(super) fn new(
        program: &'t Program,
        function: usize,
        mut builder: FunctionBuilder<'b>,
        callees: Callees<'t>,
        host_calls: [SigRef; 6],
        sites: &'t mut Vec<Site>,
        resolver: &'t mut dyn Resolver,
    ) -> Self {
        let (start, end) = (program.functions[function], program.end(function));
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        let beginnings = beginnings(program, start, end, &mut builder);
        let registers: Vec<Variable> = (0..11).map(|_| builder.declare_var(types::I64)).collect();
        let [host, executed] = [(); 2].map(|()| builder.declare_var(types::I64));
        builder.switch_to_block(entry);
        builder.seal_block(entry);
        let parameters = builder.block_params(entry).to_vec();
        builder.def_var(host, parameters[0]);
        let zero = builder.ins().iconst(types::I64, 0);
        for (number, &register) in registers.iter().enumerate() {
            // A register behind those that it takes is never read.
            let is_given = number > 0 && number < parameters.len();
            builder.def_var(register, if is_given { parameters[number] } else { zero });
        }
        let mut body = Self {
            program,
            start,
            end,
            builder,
            beginnings,
            registers,
            host,
            executed,
            left: 0,
            uses_frame: program.uses_frame(function),
            checked: Vec::new(),
            branched_loads: 0,
            callees,
            host_calls,
            sites,
            resolver,
        };
        body.load_executed();
        if body.uses_frame {
            let top = body.frame_load(std::mem::offset_of!(Frame, stack));
            body.builder.def_var(body.registers[10], top);
            let below = body.builder.ins().iadd_imm(top, -(FRAME_BYTES as i64));
            body.frame_store(std::mem::offset_of!(Frame, stack), below);
        }
        body.jump(start);
        body
    }

    /// Ends the construction.
    pub(super) fn finish(mut self) {
        self.builder.seal_all_blocks();
        self.builder.finalize();
    }

    /// The block that begins at an instruction, for one more jump to it.
    fn arrive(&mut self, at: usize) -> Block {
        let beginning = self.beginnings[at - self.start].as_mut().expect("a block begins wherever a jump leads");
        match &mut beginning.arrivals {
            Arrivals::Nobody => beginning.arrivals = Arrivals::Some(self.checked.clone()),
            Arrivals::Some(all) => all.retain(|checked| self.checked.contains(checked)),
        }
        beginning.block
    }

    fn jump(&mut self, at: usize) {
        let block = self.arrive(at);
        self.builder.ins().jump(block, &[]);
    }

    /// Begins the block of an instruction, unless nobody can come there.
    fn begin(&mut self, at: usize) -> bool {
        let Some(Beginning { block, from_below, arrivals }) = &mut self.beginnings[at - self.start] else {
            return true;
        };
        let (block, from_below) = (*block, *from_below);
        self.checked = match std::mem::replace(arrivals, Arrivals::Nobody) {
            Arrivals::Nobody if !from_below => return false,
            // Who comes from below may have checked others.
            Arrivals::Some(checked) if !from_below => checked,
            _ => Vec::new(),
        };
        self.builder.switch_to_block(block);
        if !from_below {
            self.builder.seal_block(block);
        }
        self.count(at);
        true
    }

    /// Goes on in a block that the last branch alone leads to.
    pub(super) fn begin_inner(&mut self, block: Block) {
        self.builder.switch_to_block(block);
        self.builder.seal_block(block);
    }

    /// The number that a value always is.
    pub(super) fn constant(&self, value: Value) -> Option<u64> {
        let data_flow = &self.builder.func.dfg;
        let ValueDef::Result(instruction, _) = data_flow.value_def(value) else { return None };
        match data_flow.insts[instruction] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits() as u64),
            _ => None,
        }
    }

    pub(super) fn register(&mut self, number: u8) -> Value {
        let value = self.builder.use_var(self.registers[usize::from(number)]);
        self.builder.func.dfg.resolve_aliases(value)
    }

    pub(super) fn set(&mut self, number: u8, value: Value) {
        let value = match self.builder.func.dfg.value_type(value) {
            types::I64 => value,
            _ => self.builder.ins().uextend(types::I64, value),
        };
        self.builder.def_var(self.registers[usize::from(number)], value);
    }

    pub(super) fn narrow(&mut self, value: Value, ty: Type) -> Value {
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

    pub(super) fn frame_load(&mut self, offset: usize) -> Value {
        let host = self.builder.use_var(self.host);
        self.builder.ins().load(types::I64, MemFlags::trusted(), host, offset as i32)
    }

    pub(super) fn frame_store(&mut self, offset: usize, value: Value) {
        let host = self.builder.use_var(self.host);
        self.builder.ins().store(MemFlags::trusted(), value, host, offset as i32);
    }

    fn load_executed(&mut self) {
        let executed = self.frame_load(std::mem::offset_of!(Frame, instructions));
        self.builder.def_var(self.executed, executed);
    }

    fn store_executed(&mut self) {
        let executed = self.builder.use_var(self.executed);
        self.frame_store(std::mem::offset_of!(Frame, instructions), executed);
    }

    /// Before a function of the host that calls functions of the program: what was executed up to here, to the instruction.
    pub(super) fn lend_executed(&mut self) {
        let counted = self.builder.use_var(self.executed);
        let executed = self.builder.ins().iadd_imm(counted, -self.left);
        self.frame_store(std::mem::offset_of!(Frame, instructions), executed);
    }

    /// Behind it.
    pub(super) fn take_executed_back(&mut self) {
        let executed = self.frame_load(std::mem::offset_of!(Frame, instructions));
        let counted = self.builder.ins().iadd_imm(executed, self.left);
        self.builder.def_var(self.executed, counted);
    }

    /// Remembers that the instruction went wrong, if nothing has before.
    pub(super) fn fail(&mut self, at: usize, fault: Fault) {
        self.sites.push(Site { program: self.program.name.clone(), instruction: at, fault });
        let number = self.sites.len() as i64;
        let first = self.frame_load(std::mem::offset_of!(Frame, fault));
        let this = self.builder.ins().iconst(types::I64, number);
        let is_first = self.builder.ins().icmp_imm(IntCC::Equal, first, 0);
        let fault = self.builder.ins().select(is_first, this, first);
        self.frame_store(std::mem::offset_of!(Frame, fault), fault);
    }

    /// In a block of its own: the instruction went wrong, and the function ends there.
    pub(super) fn give_up(&mut self, block: Block, at: usize, fault: Fault) {
        self.builder.set_cold_block(block);
        self.begin_inner(block);
        self.fail(at, fault);
        self.leave();
    }

    /// Ends the function before the end of the present block.
    pub(super) fn leave(&mut self) {
        let counted = self.builder.use_var(self.executed);
        let executed = self.builder.ins().iadd_imm(counted, -self.left);
        self.builder.def_var(self.executed, executed);
        self.give_back();
    }

    /// Behind what may have thrown: the function ends too then.
    pub(super) fn check_thrown(&mut self) {
        if !self.callees.throws {
            return;
        }
        let thrown = self.frame_load(std::mem::offset_of!(Frame, thrown));
        let (leave, go_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(thrown, leave, &[], go_on, &[]);
        self.builder.set_cold_block(leave);
        self.begin_inner(leave);
        self.leave();
        self.begin_inner(go_on);
    }

    fn give_back(&mut self) {
        self.store_executed();
        if self.uses_frame {
            let top = self.register(10);
            self.frame_store(std::mem::offset_of!(Frame, stack), top);
        }
        let result = self.register(0);
        self.builder.ins().return_(&[result]);
    }

    /// All its instructions.
    pub(super) fn translate(&mut self) -> Result<(), TranslateError> {
        let mut at = self.start;
        // Whether the block under construction still needs an end.
        let mut open = false;
        while at < self.end {
            if self.beginnings[at - self.start].is_some() {
                if open {
                    self.jump(at);
                }
                open = self.begin(at);
            }
            if open {
                self.left -= 1;
                open = self.instruction(at)?;
            }
            at = self.program.next(at);
        }
        Ok(())
    }

    /// Counts the instructions of the block that begins here.
    fn count(&mut self, at: usize) {
        let mut length = 0;
        let mut inside = at;
        while inside < self.end && (inside == at || self.beginnings[inside - self.start].is_none()) {
            length += 1;
            inside = self.program.next(inside);
        }
        let before = self.builder.use_var(self.executed);
        let after = self.builder.ins().iadd_imm(before, length);
        self.builder.def_var(self.executed, after);
        self.left = length;
    }

    /// Before a jump backwards: gives up if the call has gone on for too long.
    pub(super) fn check_budget(&mut self, at: usize) {
        let executed = self.builder.use_var(self.executed);
        let limit = self.frame_load(std::mem::offset_of!(Frame, stop_at));
        let too_many = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, executed, limit);
        let (give_up, go_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(too_many, give_up, &[], go_on, &[]);
        self.give_up(give_up, at, Fault::Endless);
        self.begin_inner(go_on);
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
            Kind::Load { width, signed } => self.load_instruction(instruction, width, signed),
            Kind::Store { width, value } => {
                let base = self.store_base(at, instruction.dst, instruction.offset);
                let value = self.operand(value, types::I64);
                self.store(width, value, base, i32::from(instruction.offset));
            }
            Kind::Atomic { width, atomic } => self.atomic(at, instruction, width, atomic),
            Kind::Jump { .. } => {
                let target = self.program.target(at);
                if target <= at {
                    self.check_budget(at);
                }
                self.jump(target);
                return Ok(false);
            }
            Kind::Branch { condition, wide, operand } => {
                let target = self.program.target(at);
                if target <= at {
                    self.check_budget(at);
                }
                if let Some(holds) = self.known_condition(instruction.dst, condition, wide, operand) {
                    self.jump(if holds { target } else { next });
                    return Ok(false);
                }
                let ty = if wide { types::I64 } else { types::I32 };
                let left = self.register(instruction.dst);
                let left = self.narrow(left, ty);
                let right = self.operand(operand, ty);
                let holds = self.condition(condition, left, right);
                let (target, next) = (self.arrive(target), self.arrive(next));
                self.builder.ins().brif(holds, target, &[], next, &[]);
                return Ok(false);
            }
            Kind::MayGoto => {
                self.check_budget(at);
                self.jump(next);
                return Ok(false);
            }
            Kind::CallLocal => {
                let target = (at as i64 + 1 + i64::from(instruction.imm)) as usize;
                let function = self.program.function_at(target);
                self.store_executed();
                let count = self.callees.taken[function];
                let arguments = self.arguments(count);
                let callee = self.callees.functions[function];
                let callee = self.callees.module.declare_func_in_func(callee, self.builder.func);
                let call = self.builder.ins().call(callee, &arguments[..=usize::from(count)]);
                let result = self.builder.inst_results(call)[0];
                self.load_executed();
                self.set(0, result);
                self.check_thrown();
            }
            Kind::CallHelper => {
                let callee = self.resolver.helper(instruction.imm);
                return Ok(self.call(at, callee));
            }
            Kind::CallKfunc => {
                let callee = self.resolver.kfunc(instruction.imm);
                return Ok(self.call(at, callee));
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

    fn arithmetic(&mut self, instruction: Instruction, operation: Arithmetic, wide: bool, operand: Operand) {
        if let Some(value) = self.known_result(instruction.dst, operation, wide, operand) {
            let value = self.builder.ins().iconst(types::I64, value as i64);
            self.set(instruction.dst, value);
            return;
        }
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

    /// The number that an operand always is.
    fn known_operand(&mut self, operand: Operand, wide: bool) -> Option<u64> {
        match operand {
            Operand::Register(number) => {
                let value = self.register(number);
                self.constant(value)
            }
            Operand::Immediate(value) if wide => Some(i64::from(value) as u64),
            Operand::Immediate(value) => Some(u64::from(value as u32)),
        }
    }

    /// What an operation on known numbers gives.
    fn known_result(&mut self, register: u8, operation: Arithmetic, wide: bool, operand: Operand) -> Option<u64> {
        if matches!(operation, Arithmetic::ToLittle(_) | Arithmetic::Swap(_)) {
            return None;
        }
        let right = self.known_operand(operand, wide)?;
        let left = match operation {
            Arithmetic::Mov | Arithmetic::MovSigned(_) | Arithmetic::CastAddress => 0,
            _ => self.known_operand(Operand::Register(register), wide)?,
        };
        Some(definition::arithmetic(operation, wide, left, right))
    }

    /// Whether a condition on known numbers holds.
    fn known_condition(&mut self, register: u8, condition: Condition, wide: bool, operand: Operand) -> Option<bool> {
        let left = self.known_operand(Operand::Register(register), wide)?;
        let right = self.known_operand(operand, wide)?;
        Some(definition::holds(condition, wide, left, right))
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
}

/// Blocks of a function: wherever jumps lead, and behind them.
fn beginnings(
    program: &Program,
    start: usize,
    end: usize,
    builder: &mut FunctionBuilder<'_>,
) -> Vec<Option<Beginning>> {
    // One place more, behind the last instruction.
    let mut leads = vec![false; end - start + 1];
    let mut from_below = vec![false; end - start + 1];
    leads[0] = true;
    let mut at = start;
    while at < end {
        let next = program.next(at);
        match program.instructions[at].kind() {
            Some(Kind::Jump { .. } | Kind::Branch { .. } | Kind::MayGoto) => {
                let target = program.target(at);
                leads[target - start] = true;
                leads[next - start] = true;
                from_below[target - start] |= target <= at;
            }
            Some(Kind::Exit) => leads[next - start] = true,
            _ => {}
        }
        at = next;
    }
    let places = leads.iter().zip(from_below).take(end - start);
    let mut beginning = |(&leads, from_below): (&bool, bool)| {
        leads.then(|| Beginning { block: builder.create_block(), from_below, arrivals: Arrivals::Nobody })
    };
    places.map(&mut beginning).collect()
}
