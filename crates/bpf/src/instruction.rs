//! The instructions, decoded from their 64-bit form.
//!
//! Source: RFC 9669 sections 3 to 5; `may_goto` and `addr_space_cast` are the kernel's (`docs/spec/bpf-runtime.md` section 5).

/// An instruction as it lies in a program: one 64-bit slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Class, source and code.
    pub opcode: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register, or what kind of call or 64-bit immediate it is.
    pub src: u8,
    /// Signed offset of jumps and memory, or a variant of an operation.
    pub offset: i16,
    /// Immediate value.
    pub imm: i32,
}

/// Width of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Width {
    Byte,
    Half,
    Word,
    Double,
}

impl Width {
    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Word => 4,
            Width::Double => 8,
        }
    }
}

/// Second operand of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A register.
    Register(u8),
    /// The immediate value.
    Immediate(i32),
}

/// What an atomic instruction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Atomic {
    Add { fetch: bool },
    Or { fetch: bool },
    And { fetch: bool },
    Xor { fetch: bool },
    Exchange,
    CompareExchange,
    LoadAcquire,
    StoreRelease,
}

/// Operation of an arithmetic instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    SignedDiv,
    Or,
    And,
    Lsh,
    Rsh,
    Neg,
    Mod,
    SignedMod,
    Xor,
    Mov,
    /// Moves the low 8, 16 or 32 bits with their sign.
    MovSigned(u8),
    Arsh,
    /// Truncates to so many bits, as little endian.
    ToLittle(u8),
    /// Truncates and swaps bytes: to big endian, or always.
    Swap(u8),
    /// Between the arena's addresses as the kernel and as user space sees them, which are the same here.
    CastAddress,
}

/// Condition of a jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Condition {
    Equal,
    NotEqual,
    Set,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    SignedGreater,
    SignedGreaterOrEqual,
    SignedLess,
    SignedLessOrEqual,
}

/// What an instruction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Arithmetic {
        operation: Arithmetic,
        wide: bool,
        operand: Operand,
    },
    /// 64-bit immediate, whose second half is the next slot's.
    LoadImmediate,
    Load {
        width: Width,
        signed: bool,
    },
    Store {
        width: Width,
        value: Operand,
    },
    Atomic {
        width: Width,
        atomic: Atomic,
    },
    Jump {
        distance: i32,
    },
    Branch {
        condition: Condition,
        wide: bool,
        operand: Operand,
    },
    /// Goes on with the next instruction, or away if the loop has gone on for too long.
    MayGoto,
    CallHelper,
    CallLocal,
    CallKfunc,
    Exit,
}

impl Instruction {
    /// One slot.
    #[must_use]
    pub fn decode(bytes: [u8; 8]) -> Self {
        Self {
            opcode: bytes[0],
            dst: bytes[1] & 15,
            src: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// Back to its 64 bits.
    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        let ([o0, o1], [i0, i1, i2, i3]) = (self.offset.to_le_bytes(), self.imm.to_le_bytes());
        [self.opcode, self.dst | self.src << 4, o0, o1, i0, i1, i2, i3]
    }

    /// What it is; `None` for one that is not defined or not modelled.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        match self.opcode & 7 {
            0 => (self.opcode == 0x18).then_some(Kind::LoadImmediate),
            1 => self.load(),
            2 | 3 => self.store(),
            4 | 7 => self.arithmetic(),
            _ => self.jump(),
        }
    }

    fn operand(self) -> Operand {
        if self.opcode & 8 == 0 { Operand::Immediate(self.imm) } else { Operand::Register(self.src) }
    }

    fn width(self) -> Width {
        match self.opcode & 0x18 {
            0x00 => Width::Word,
            0x08 => Width::Half,
            0x10 => Width::Byte,
            _ => Width::Double,
        }
    }

    fn load(self) -> Option<Kind> {
        let width = self.width();
        match self.opcode & 0xe0 {
            0x60 => Some(Kind::Load { width, signed: false }),
            0x80 if width != Width::Double => Some(Kind::Load { width, signed: true }),
            _ => None,
        }
    }

    fn store(self) -> Option<Kind> {
        let width = self.width();
        match (self.opcode & 7, self.opcode & 0xe0) {
            (2, 0x60) => Some(Kind::Store { width, value: Operand::Immediate(self.imm) }),
            (3, 0x60) => Some(Kind::Store { width, value: Operand::Register(self.src) }),
            (3, 0xc0) => {
                let atomic = match self.imm {
                    0x100 => Atomic::LoadAcquire,
                    0x110 => Atomic::StoreRelease,
                    _ if !matches!(width, Width::Word | Width::Double) => return None,
                    0x00 => Atomic::Add { fetch: false },
                    0x01 => Atomic::Add { fetch: true },
                    0x40 => Atomic::Or { fetch: false },
                    0x41 => Atomic::Or { fetch: true },
                    0x50 => Atomic::And { fetch: false },
                    0x51 => Atomic::And { fetch: true },
                    0xa0 => Atomic::Xor { fetch: false },
                    0xa1 => Atomic::Xor { fetch: true },
                    0xe1 => Atomic::Exchange,
                    0xf1 => Atomic::CompareExchange,
                    _ => return None,
                };
                Some(Kind::Atomic { width, atomic })
            }
            _ => None,
        }
    }

    fn arithmetic(self) -> Option<Kind> {
        let wide = self.opcode & 7 == 7;
        let mut operand = self.operand();
        let from_register = self.opcode & 8 != 0;
        let operation = match (self.opcode >> 4, self.offset) {
            (0, 0) => Arithmetic::Add,
            (1, 0) => Arithmetic::Sub,
            (2, 0) => Arithmetic::Mul,
            (3, 0) => Arithmetic::Div,
            (3, 1) => Arithmetic::SignedDiv,
            (4, 0) => Arithmetic::Or,
            (5, 0) => Arithmetic::And,
            (6, 0) => Arithmetic::Lsh,
            (7, 0) => Arithmetic::Rsh,
            (8, 0) if !from_register => Arithmetic::Neg,
            (9, 0) => Arithmetic::Mod,
            (9, 1) => Arithmetic::SignedMod,
            (10, 0) => Arithmetic::Xor,
            (11, 0) => Arithmetic::Mov,
            (11, 8 | 16) if from_register => Arithmetic::MovSigned(self.offset as u8),
            (11, 32) if from_register && wide => Arithmetic::MovSigned(32),
            (11, 1) if from_register && wide => Arithmetic::CastAddress,
            (12, 0) => Arithmetic::Arsh,
            (13, 0) if matches!(self.imm, 16 | 32 | 64) => {
                let bits = self.imm as u8;
                operand = Operand::Immediate(self.imm);
                match (wide, from_register) {
                    (true, true) => return None,
                    (true, false) | (false, true) => Arithmetic::Swap(bits),
                    (false, false) => Arithmetic::ToLittle(bits),
                }
            }
            _ => return None,
        };
        Some(Kind::Arithmetic { operation, wide, operand })
    }

    fn jump(self) -> Option<Kind> {
        let wide = self.opcode & 7 == 5;
        let condition = match self.opcode >> 4 {
            0 if self.opcode & 8 == 0 => {
                let distance = if wide { i32::from(self.offset) } else { self.imm };
                return Some(Kind::Jump { distance });
            }
            8 if self.opcode == 0x85 => {
                return match self.src {
                    0 => Some(Kind::CallHelper),
                    1 => Some(Kind::CallLocal),
                    2 => Some(Kind::CallKfunc),
                    _ => None,
                };
            }
            9 if self.opcode == 0x95 => return Some(Kind::Exit),
            14 if self.opcode == 0xe5 => return (self.src == 0).then_some(Kind::MayGoto),
            1 => Condition::Equal,
            2 => Condition::Greater,
            3 => Condition::GreaterOrEqual,
            4 => Condition::Set,
            5 => Condition::NotEqual,
            6 => Condition::SignedGreater,
            7 => Condition::SignedGreaterOrEqual,
            10 => Condition::Less,
            11 => Condition::LessOrEqual,
            12 => Condition::SignedLess,
            13 => Condition::SignedLessOrEqual,
            _ => return None,
        };
        Some(Kind::Branch { condition, wide, operand: self.operand() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_encoded_as_it_was() {
        for bytes in [[0x7b, 0x1a, 0xf8, 0xff, 1, 2, 3, 0x80], [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]] {
            assert_eq!(Instruction::decode(bytes).encode(), bytes);
        }
    }

    #[test]
    fn what_is_not_defined_is_refused() {
        let kind = |opcode, src, offset, imm| Instruction { opcode, dst: 0, src, offset, imm }.kind();
        assert_eq!(kind(0x20, 0, 0, 0), None, "a packet load");
        assert_eq!(kind(0x8d, 1, 0, 0), None, "a call through a register");
        assert_eq!(kind(0xb7, 0, 8, 0), None, "a sign extension of an immediate");
        assert_eq!(kind(0xd3, 1, 0, 0), None, "an atomic byte");
        assert_eq!(kind(0xd3, 1, 0, 0x100), Some(Kind::Atomic { width: Width::Byte, atomic: Atomic::LoadAcquire }));
        assert_eq!(kind(0x06, 0, 0, -7), Some(Kind::Jump { distance: -7 }));
        assert_eq!(kind(0x99, 0, 0, 0), None, "a load of a signed double word");
    }
}
