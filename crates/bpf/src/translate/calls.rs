//! Calls of helpers and kernel functions, and what stands in the place of some.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};

use crate::instruction::Width;
use crate::resolver::{Array, Callee, HostFunction, Inline};
use crate::runtime::{Fault, Frame};
use crate::translate::body::Body;

impl Body<'_, '_> {
    /// The host and the first registers that calls take.
    pub(super) fn arguments(&mut self, count: u8) -> [Value; 6] {
        let host = self.builder.use_var(self.host);
        let mut arguments = [host; 6];
        for number in 1..=count {
            arguments[usize::from(number)] = self.register(number);
        }
        arguments
    }

    /// Calls what a helper or a kernel function is; says whether the next instruction follows.
    pub(super) fn call(&mut self, at: usize, callee: Callee) -> bool {
        let price_ps = self.resolver.price_ps(self.program.instructions[at]);
        if price_ps > 0 {
            let offset = std::mem::offset_of!(Frame, called_ps);
            let before = self.frame_load(offset);
            let after = self.builder.ins().iadd_imm(before, price_ps as i64);
            self.frame_store(offset, after);
        }
        let result = match callee {
            Callee::Function(function, count) => self.call_host(function, count),
            Callee::CallsBack(function, count) => {
                self.lend_executed();
                let result = self.call_host(function, count);
                self.take_executed_back();
                self.check_budget(at);
                self.check_thrown();
                result
            }
            Callee::Lookup(function, on_any_cpu) => {
                let handle = self.register(1);
                match self.constant(handle).and_then(|handle| self.resolver.array(handle)) {
                    Some(array) => self.element(array, on_any_cpu),
                    None => self.call_host(function, if on_any_cpu { 3 } else { 2 }),
                }
            }
            Callee::Inline(Inline::Nothing) => self.builder.ins().iconst(types::I64, 0),
            Callee::Inline(Inline::Now) => self.frame_load(std::mem::offset_of!(Frame, now_ns)),
            Callee::Inline(Inline::Cpu) => self.frame_load(std::mem::offset_of!(Frame, cpu)),
            Callee::Inline(Inline::NumberNew) => self.number_new(at),
            Callee::Inline(Inline::NumberNext) => self.number_next(at),
            Callee::Inline(Inline::TestCpu) => self.test_cpu(),
            Callee::Throw => {
                let cookie = self.register(1);
                self.frame_store(std::mem::offset_of!(Frame, cookie), cookie);
                let thrown = self.builder.ins().iconst(types::I64, 1);
                self.frame_store(std::mem::offset_of!(Frame, thrown), thrown);
                self.leave();
                return false;
            }
            Callee::Unreachable(reason) => {
                self.fail(at, Fault::Unreachable(reason));
                self.builder.ins().iconst(types::I64, 0)
            }
        };
        self.set(0, result);
        true
    }

    /// The registers behind those that it takes are of no interest to it: what is there is not brought there.
    fn call_host(&mut self, function: HostFunction, count: u8) -> Value {
        let arguments = self.arguments(count);
        let address = self.builder.ins().iconst(types::I64, function as usize as i64);
        let signature = self.host_calls[usize::from(count)];
        let call = self.builder.ins().call_indirect(signature, address, &arguments[..=usize::from(count)]);
        self.builder.inst_results(call)[0]
    }

    /// Address of the element of an array that the key at r2 names, of this CPU or of the one in r3; 0 if there is none.
    fn element(&mut self, array: Array, on_any_cpu: bool) -> Value {
        let key = self.register(2);
        let key = self.checked_for_load(key);
        let index = self.load(Width::Word, false, key, 0);
        let exists = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, index, i64::from(array.entries));
        let offset = self.builder.ins().imul_imm(index, array.stride as i64);
        let mut address = self.builder.ins().iadd_imm(offset, array.address as i64);
        let nothing = self.builder.ins().iconst(types::I64, 0);
        if array.cpu_stride > 0 {
            let cpu = if on_any_cpu {
                let cpu = self.register(3);
                self.builder.ins().band_imm(cpu, 0xffff_ffff)
            } else {
                self.frame_load(std::mem::offset_of!(Frame, cpu))
            };
            let offset = self.builder.ins().imul_imm(cpu, array.cpu_stride as i64);
            address = self.builder.ins().iadd(address, offset);
            let known = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, cpu, i64::from(array.cpus));
            address = self.builder.ins().select(known, address, nothing);
        }
        self.builder.ins().select(exists, address, nothing)
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
        let iterator = self.store_base(at, 1, 0);
        let flags = MemFlags::new().with_notrap();
        self.builder.ins().store(flags, before, iterator, 0);
        self.builder.ins().store(flags, end, iterator, 4);
        self.builder.ins().iconst(types::I64, 0)
    }

    fn number_next(&mut self, at: usize) -> Value {
        let iterator = self.store_base(at, 1, 0);
        let flags = MemFlags::new().with_notrap();
        let before = self.builder.ins().load(types::I32, flags, iterator, 0);
        let end = self.builder.ins().load(types::I32, flags, iterator, 4);
        let number = self.builder.ins().iadd_imm(before, 1);
        let some = self.builder.ins().icmp(IntCC::SignedLessThan, number, end);
        let zero = self.builder.ins().iconst(types::I32, 0);
        let now = self.builder.ins().select(some, number, zero);
        let end = self.builder.ins().select(some, end, zero);
        self.builder.ins().store(flags, now, iterator, 0);
        self.builder.ins().store(flags, end, iterator, 4);
        let nothing = self.builder.ins().iconst(types::I64, 0);
        self.builder.ins().select(some, iterator, nothing)
    }

    fn test_cpu(&mut self) -> Value {
        let (cpu, mask) = (self.register(1), self.register(2));
        let cpu = self.builder.ins().band_imm(cpu, 0xffff_ffff);
        let byte = self.builder.ins().ushr_imm(cpu, 3);
        let place = self.builder.ins().iadd(mask, byte);
        let place = self.checked_for_load(place);
        let value = self.load(Width::Byte, false, place, 0);
        let bit = self.builder.ins().band_imm(cpu, 7);
        let value = self.builder.ins().ushr(value, bit);
        self.builder.ins().band_imm(value, 1)
    }
}
