//! Instructions by their parts.

// Each test that includes this uses some of it.
#![allow(dead_code)]

use warmcore_bpf::Instruction;

pub fn code(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> [u8; 8] {
    Instruction { opcode, dst, src, offset, imm }.encode()
}

pub fn mov(dst: u8, src: u8) -> [u8; 8] {
    code(0xbf, dst, src, 0, 0)
}

pub fn mov_imm(dst: u8, imm: i32) -> [u8; 8] {
    code(0xb7, dst, 0, 0, imm)
}

pub fn add_imm(dst: u8, imm: i32) -> [u8; 8] {
    code(0x07, dst, 0, 0, imm)
}

fn width(bytes: u8) -> u8 {
    match bytes {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

pub fn load(bytes: u8, dst: u8, src: u8, offset: i16) -> [u8; 8] {
    code(0x61 | width(bytes), dst, src, offset, 0)
}

pub fn store(bytes: u8, dst: u8, src: u8, offset: i16) -> [u8; 8] {
    code(0x63 | width(bytes), dst, src, offset, 0)
}

pub fn store_imm(bytes: u8, dst: u8, offset: i16, imm: i32) -> [u8; 8] {
    code(0x62 | width(bytes), dst, 0, offset, imm)
}

pub fn helper(number: i32) -> [u8; 8] {
    code(0x85, 0, 0, 0, number)
}

pub fn exit() -> [u8; 8] {
    code(0x95, 0, 0, 0, 0)
}

/// `r0 = address` in the value of the first map.
pub fn data_address(offset: i32) -> [[u8; 8]; 2] {
    [code(0x18, 0, 2, 0, 0), code(0, 0, 0, 0, offset)]
}
