//! Memory: where loads and stores go, and atomics.
//!
//! What is checked is the register that an access is relative to: a register that points into the region reaches the guards around it at most. A
//! register that was checked on the way is not checked again.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};

use crate::instruction::{Atomic, Instruction, Width};
use crate::memory::{GUARD_BYTES, Memory, REGION_BASE, REGION_PART_BITS, REGION_PARTS};
use crate::program::FRAME_BYTES;
use crate::runtime::Fault;
use crate::translate::body::Body;

/// What loads from nowhere read, from the middle of it.
static NOWHERE: [u64; GUARD_BYTES as usize / 4] = [0; GUARD_BYTES as usize / 4];

/// Loads of a function whose check is a branch. The register allocator's work grows with the square of the values that such branches choose.
const MOST_BRANCHED_LOADS: u32 = 2048;

/// Checked registers that are remembered before those are dropped that no register holds: more than twice as many as there are registers.
const MOST_CHECKED: usize = 64;

impl Body<'_, '_> {
    /// Whether a register points into the region.
    fn is_inside(&mut self, register: Value) -> Value {
        let part = self.builder.ins().ushr_imm(register, i64::from(REGION_PART_BITS));
        let part = self.builder.ins().iadd_imm(part, -((REGION_BASE >> REGION_PART_BITS) as i64));
        self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, part, REGION_PARTS as i64)
    }

    fn is_known_inside(&self, register: Value) -> bool {
        self.checked.contains(&(register, register)) || self.constant(register).is_some_and(Memory::points_inside)
    }

    /// A place to load from: a register if it points into the region, else where zeros are. A branch, because that is guessed right and
    /// keeps nobody waiting; in a very long function a selection.
    pub(super) fn checked_for_load(&mut self, register: Value) -> Value {
        if self.is_known_inside(register) {
            return register;
        }
        if let Some(&(_, place)) = self.checked.iter().find(|(checked, _)| *checked == register) {
            return place;
        }
        let inside = self.is_inside(register);
        let nowhere = std::ptr::from_ref(&NOWHERE[NOWHERE.len() / 2]).addr() as i64;
        let place = if self.branched_loads < MOST_BRANCHED_LOADS {
            self.branched_loads += 1;
            let (right, wrong) = (self.builder.create_block(), self.builder.create_block());
            let place = self.builder.append_block_param(right, types::I64);
            self.builder.ins().brif(inside, right, &[register.into()], wrong, &[]);
            self.builder.set_cold_block(wrong);
            self.begin_inner(wrong);
            let nowhere = self.builder.ins().iconst(types::I64, nowhere);
            self.builder.ins().jump(right, &[nowhere.into()]);
            self.begin_inner(right);
            place
        } else {
            let nowhere = self.builder.ins().iconst(types::I64, nowhere);
            self.builder.ins().select(inside, register, nowhere)
        };
        self.remember(register, place);
        place
    }

    /// A register was checked. Of many that were, those count that a register still holds: others are not met again.
    fn remember(&mut self, register: Value, place: Value) {
        if self.checked.len() >= MOST_CHECKED {
            let held: [Value; 11] = std::array::from_fn(|number| self.register(number as u8));
            self.checked.retain(|(checked, _)| held.contains(checked));
        }
        self.checked.push((register, place));
    }

    fn load_base(&mut self, base: u8, offset: i16) -> Value {
        let register = self.register(base);
        if is_in_frame(base, offset) { register } else { self.checked_for_load(register) }
    }

    /// A register to store relative to; who stores elsewhere leaves its function here.
    pub(super) fn store_base(&mut self, at: usize, base: u8, offset: i16) -> Value {
        let register = self.register(base);
        if is_in_frame(base, offset) || self.is_known_inside(register) {
            return register;
        }
        let inside = self.is_inside(register);
        let (right, wrong) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(inside, right, &[], wrong, &[]);
        self.give_up(wrong, at, Fault::WildStore);
        self.begin_inner(right);
        self.remember(register, register);
        register
    }

    pub(super) fn load_instruction(&mut self, instruction: Instruction, width: Width, signed: bool) {
        let Instruction { dst, src, offset, .. } = instruction;
        let register = self.register(src);
        let address = self.constant(register).map(|base| base.wrapping_add_signed(i64::from(offset)));
        if let Some(value) = address.and_then(|address| self.resolver.constant(address, width)) {
            let value = if signed { crate::definition::sign_extended(value, width) } else { value };
            let value = self.builder.ins().iconst(types::I64, value as i64);
            self.set(dst, value);
            return;
        }
        let base = self.load_base(src, offset);
        let value = self.load(width, signed, base, i32::from(offset));
        self.set(dst, value);
    }

    pub(super) fn load(&mut self, width: Width, signed: bool, base: Value, offset: i32) -> Value {
        let flags = MemFlags::new().with_notrap();
        let ins = self.builder.ins();
        match (width, signed) {
            (Width::Byte, false) => ins.uload8(types::I64, flags, base, offset),
            (Width::Half, false) => ins.uload16(types::I64, flags, base, offset),
            (Width::Word, false) => ins.uload32(flags, base, offset),
            (Width::Byte, true) => ins.sload8(types::I64, flags, base, offset),
            (Width::Half, true) => ins.sload16(types::I64, flags, base, offset),
            (Width::Word, true) => ins.sload32(flags, base, offset),
            (Width::Double, _) => ins.load(types::I64, flags, base, offset),
        }
    }

    pub(super) fn store(&mut self, width: Width, value: Value, base: Value, offset: i32) {
        let flags = MemFlags::new().with_notrap();
        let ins = self.builder.ins();
        match width {
            Width::Byte => ins.istore8(flags, value, base, offset),
            Width::Half => ins.istore16(flags, value, base, offset),
            Width::Word => ins.istore32(flags, value, base, offset),
            Width::Double => ins.store(flags, value, base, offset),
        };
    }

    /// Simulated CPUs take turns, so that a load and a store are atomic.
    pub(super) fn atomic(&mut self, at: usize, instruction: Instruction, width: Width, atomic: Atomic) {
        let Instruction { dst, src, offset, .. } = instruction;
        if atomic == Atomic::LoadAcquire {
            let base = self.load_base(src, offset);
            let value = self.load(width, false, base, i32::from(offset));
            self.set(dst, value);
            return;
        }
        let source = self.register(src);
        let fetched = match atomic {
            Atomic::CompareExchange => Some(0),
            Atomic::Exchange
            | Atomic::Add { fetch: true }
            | Atomic::Or { fetch: true }
            | Atomic::And { fetch: true }
            | Atomic::Xor { fetch: true } => Some(src),
            _ => None,
        };
        let base = self.store_base(at, dst, offset);
        if atomic == Atomic::StoreRelease {
            self.store(width, source, base, i32::from(offset));
            return;
        }
        let old = self.load(width, false, base, i32::from(offset));
        let new = self.combined(atomic, width, old, source);
        self.store(width, new, base, i32::from(offset));
        if let Some(register) = fetched {
            self.set(register, old);
        }
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
