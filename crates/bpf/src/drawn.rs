//! Programs that a kernel's verifier takes, to hold the kernel, the definition and the translation together: every form of instruction by
//! itself, and programs drawn at random.
//!
//! All work on one array of [`VALUE_BYTES`] and leave every register there at their end, so what they did can be compared to the last bit. They
//! initialise what they read, keep addresses apart from numbers, and take no turn that no input takes, which is what a verifier asks for. Loads
//! through NULL, wild stores and endless loops are not among them: a verifier refuses those.
//!
//! Source: RFC 9669; `Documentation/bpf/verifier.rst`.

use crate::instruction::Instruction;

/// Bytes of the array: what programs use, and behind it room for the registers.
pub const VALUE_BYTES: usize = DATA + 9 * 8;

/// Bytes that programs use.
const DATA: usize = 256;
/// Bytes of the stack that they use.
const STACK: i16 = 64;
/// The register with the address of the array.
const ARRAY: u8 = 9;
/// The register with the end of the frame.
const FRAME: u8 = 10;

/// A program by name, as its 64-bit slots. An immediate of kind 2 is the address of the array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// What it is.
    pub name: String,
    /// Instructions.
    pub code: Vec<[u8; 8]>,
}

/// What the array holds before each program.
#[must_use]
pub fn initial_value() -> Vec<u8> {
    (0..VALUE_BYTES).map(|at| (at * 37 + 11) as u8).collect()
}

fn slot(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> [u8; 8] {
    Instruction { opcode, dst, src, offset, imm }.encode()
}

fn wide(dst: u8, value: u64) -> [[u8; 8]; 2] {
    [slot(0x18, dst, 0, 0, value as i32), slot(0, 0, 0, 0, (value >> 32) as i32)]
}

/// Registers from the array, so that no verifier knows their values; the frame from some of them.
fn prologue() -> Vec<[u8; 8]> {
    let mut code = vec![slot(0x18, ARRAY, 2, 0, 0), slot(0, 0, 0, 0, 0)];
    code.extend((0..9u8).map(|register| slot(0x79, register, ARRAY, i16::from(register) * 8, 0)));
    code.extend((1..=STACK / 8).map(|number| slot(0x7b, FRAME, number as u8 % 9, -8 * number, 0)));
    code
}

/// Every register into the array, and the end.
fn epilogue() -> Vec<[u8; 8]> {
    let mut code: Vec<_> =
        (0..9u8).map(|register| slot(0x7b, ARRAY, register, DATA as i16 + i16::from(register) * 8, 0)).collect();
    code.push(slot(0x95, 0, 0, 0, 0));
    code
}

fn whole(name: String, body: impl IntoIterator<Item = [u8; 8]>, behind: Vec<[u8; 8]>) -> Drawn {
    let code = prologue().into_iter().chain(body).chain(epilogue()).chain(behind).collect();
    Drawn { name, code }
}

/// Codes of operations, without class and source.
const OPERATIONS: [(u8, &str); 12] = [
    (0x00, "add"),
    (0x10, "sub"),
    (0x20, "mul"),
    (0x30, "div"),
    (0x40, "or"),
    (0x50, "and"),
    (0x60, "lsh"),
    (0x70, "rsh"),
    (0x90, "mod"),
    (0xa0, "xor"),
    (0xb0, "mov"),
    (0xc0, "arsh"),
];
const NEGATE: u8 = 0x80;
const CONDITIONS: [(u8, &str); 11] = [
    (0x10, "jeq"),
    (0x20, "jgt"),
    (0x30, "jge"),
    (0x40, "jset"),
    (0x50, "jne"),
    (0x60, "jsgt"),
    (0x70, "jsge"),
    (0xa0, "jlt"),
    (0xb0, "jle"),
    (0xc0, "jslt"),
    (0xd0, "jsle"),
];
const ATOMICS: [(i32, &str); 10] = [
    (0x00, "add"),
    (0x01, "fetch_add"),
    (0x40, "or"),
    (0x41, "fetch_or"),
    (0x50, "and"),
    (0x51, "fetch_and"),
    (0xa0, "xor"),
    (0xa1, "fetch_xor"),
    (0xe1, "xchg"),
    (0xf1, "cmpxchg"),
];
const LOAD_ACQUIRE: i32 = 0x100;
const STORE_RELEASE: i32 = 0x110;
/// Bits of the opcode for a width, and its bytes.
const WIDTHS: [(u8, i16); 4] = [(0x10, 1), (0x08, 2), (0x00, 4), (0x18, 8)];

fn is_shift(operation: u8) -> bool {
    matches!(operation, 0x60 | 0x70 | 0xc0)
}

fn is_division(operation: u8) -> bool {
    matches!(operation, 0x30 | 0x90)
}

/// Numbers at which operations behave specially.
const EDGES: [u64; 10] = [0, 1, 2, 31, 63, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x8000_0000_0000_0000, u64::MAX];

/// Each form of instruction by itself, on numbers at which it behaves specially.
#[must_use]
pub fn forms() -> Vec<Drawn> {
    let mut all = Vec::new();
    let mut add = |name: String, body: Vec<[u8; 8]>| all.push(whole(name, body, Vec::new()));
    for (class, suffix) in [(7u8, "64"), (4, "32")] {
        for (operation, name) in OPERATIONS {
            let variants: &[i16] = if is_division(operation) { &[0, 1] } else { &[0] };
            for &variant in variants {
                let sign = if variant == 1 { "s" } else { "" };
                for (number, &left) in EDGES.iter().enumerate() {
                    let right = EDGES[(number * 7 + 3) % EDGES.len()];
                    for right in [right, EDGES[number], 0, u64::MAX] {
                        let [l0, l1] = wide(1, left);
                        let [r0, r1] = wide(2, right);
                        add(
                            format!("{sign}{name}{suffix} {left:#x} {right:#x}"),
                            vec![l0, l1, r0, r1, slot(operation | 8 | class, 1, 2, variant, 0)],
                        );
                    }
                    let imm = match right as i32 {
                        imm if is_shift(operation) => imm & if class == 7 { 63 } else { 31 },
                        0 if is_division(operation) => 7,
                        imm => imm,
                    };
                    let [l0, l1] = wide(1, left);
                    add(
                        format!("{sign}{name}{suffix} {left:#x} imm {imm}"),
                        vec![l0, l1, slot(operation | class, 1, 0, variant, imm)],
                    );
                }
            }
        }
        add(format!("neg{suffix}"), vec![slot(NEGATE | class, 1, 0, 0, 0)]);
        let bits: &[i16] = if class == 7 { &[8, 16, 32] } else { &[8, 16] };
        for &bits in bits {
            for register in 1..9 {
                add(format!("movsx{suffix} {bits} r{register}"), vec![slot(0xb8 | class, 0, register, bits, 0)]);
            }
        }
    }
    for bits in [16, 32, 64] {
        for (opcode, name) in [(0xd4u8, "le"), (0xdc, "be"), (0xd7, "bswap")] {
            add(format!("{name}{bits}"), vec![slot(opcode, 3, 0, 0, bits)]);
        }
    }
    for (width, bytes) in WIDTHS {
        for (base, offset) in [(ARRAY, 40i16), (ARRAY, 41), (FRAME, -24)] {
            add(format!("ldx{bytes} r{base}{offset:+}"), vec![slot(0x61 | width, 0, base, offset, 0)]);
            if bytes < 8 {
                add(format!("ldsx{bytes} r{base}{offset:+}"), vec![slot(0x81 | width, 0, base, offset, 0)]);
            }
            add(format!("stx{bytes} r{base}{offset:+}"), stored(slot(0x63 | width, base, 5, offset, 0), base));
            add(
                format!("st{bytes} r{base}{offset:+}"),
                stored(slot(0x62 | width, base, 0, offset, -0x0123_4567), base),
            );
        }
        for (base, offset) in [(ARRAY, 48i16), (FRAME, -32)] {
            add(format!("load_acquire{bytes} r{base}"), vec![slot(0xc3 | width, 2, base, offset, LOAD_ACQUIRE)]);
            let release = slot(0xc3 | width, base, 2, offset, STORE_RELEASE);
            add(format!("store_release{bytes} r{base}"), stored(release, base));
        }
    }
    for (imm, name) in ATOMICS {
        for (opcode, bytes) in [(0xdbu8, 8), (0xc3, 4)] {
            for (base, offset) in [(ARRAY, 24i16), (FRAME, -16)] {
                let atomic = slot(opcode, base, 4, offset, imm);
                add(format!("atomic {name} {bytes} r{base}"), stored(atomic, base));
                // What it compares with is there.
                let load = slot(if bytes == 8 { 0x79 } else { 0x61 }, 0, base, offset, 0);
                let body = std::iter::once(load).chain(stored(atomic, base)).collect();
                add(format!("atomic {name} {bytes} r{base}, expected"), body);
            }
        }
    }
    for (class, suffix) in [(5u8, "64"), (6, "32")] {
        for (condition, name) in CONDITIONS {
            for &left in &EDGES {
                for right in [left, left.wrapping_add(1), 0x7fff_ffff, u64::MAX] {
                    let [l0, l1] = wide(1, left);
                    let [r0, r1] = wide(2, right);
                    let taken = slot(condition | 8 | class, 1, 2, 1, 0);
                    let body = [l0, l1, r0, r1, taken, slot(0x07, 3, 0, 0, 1), slot(0x07, 4, 0, 0, 1)];
                    // Loaded again from the array, or a verifier knows the outcome and removes the branch.
                    let hidden =
                        body.iter().copied().take(4).chain([slot(0x7b, ARRAY, 1, 0, 0), slot(0x79, 1, ARRAY, 0, 0)]);
                    add(
                        format!("{name}{suffix} {left:#x} {right:#x}"),
                        hidden.chain(body[4..].iter().copied()).collect(),
                    );
                    let imm = slot(condition | class, 1, 0, 1, right as i32);
                    let body = [l0, l1, slot(0x7b, ARRAY, 1, 0, 0), slot(0x79, 1, ARRAY, 0, 0), imm];
                    add(
                        format!("{name}{suffix} {left:#x} imm {}", right as i32),
                        body.into_iter().chain([slot(0x07, 3, 0, 0, 1), slot(0x07, 4, 0, 0, 1)]).collect(),
                    );
                }
            }
        }
    }
    let [low, high] = wide(1, 0x1234_5678_9abc_def0);
    add("lddw".into(), vec![low, high]);
    add("goto over what another branch reaches".into(), {
        let skip = slot(0x55, 1, 0, 1, 0);
        vec![skip, slot(0x05, 0, 0, 1, 0), slot(0x07, 2, 0, 0, 5), slot(0x07, 3, 0, 0, 7)]
    });
    add("gotol over what another branch reaches".into(), {
        let skip = slot(0x55, 1, 0, 1, 0);
        vec![skip, slot(0x06, 0, 0, 0, 1), slot(0x07, 2, 0, 0, 5), slot(0x07, 3, 0, 0, 7)]
    });
    add("may_goto".into(), counted_loop(1, 2, 6));
    let mut called = whole("call".into(), call(0), Vec::new());
    finish_calls(&mut called.code, &[(prologue().len(), 0)], 3);
    all.push(called);
    all
}

/// A store, and what it stored to the array if that is not where it went.
fn stored(store: [u8; 8], base: u8) -> Vec<[u8; 8]> {
    if base == ARRAY {
        return vec![store];
    }
    let words =
        (1..=4i16).flat_map(|number| [slot(0x79, 6, FRAME, -8 * number, 0), slot(0x7b, ARRAY, 6, 8 * number, 0)]);
    std::iter::once(store).chain(words).collect()
}

/// `counter` from 0 to `rounds`, adding to `sum`, by `may_goto` and a condition.
fn counted_loop(counter: u8, sum: u8, rounds: i32) -> Vec<[u8; 8]> {
    vec![
        slot(0xb7, counter, 0, 0, 0),
        slot(0xe5, 0, 0, 3, 0),
        slot(0x0f, sum, counter, 0, 0),
        slot(0x07, counter, 0, 0, 1),
        slot(0xa5, counter, 0, -4, rounds),
    ]
}

/// A call whose distance is filled in later, and what registers it took.
fn call(extra: i32) -> Vec<[u8; 8]> {
    let mut code = vec![slot(0x85, 0, 1, 0, 0)];
    code.extend((1..6u8).map(|register| slot(0x79, register, ARRAY, i16::from(register) * 8, 0)));
    code.push(slot(0x07, 1, 0, 0, extra));
    code
}

/// Adds a function behind the code and leads the calls at these places to it. Its body is a mixture of its arguments with a frame of its own.
fn finish_calls(code: &mut Vec<[u8; 8]>, calls: &[(usize, usize)], factor: i32) {
    let start = code.len();
    for &(at, _) in calls {
        let distance = (start - at - 1) as i32;
        code[at] = slot(0x85, 0, 1, 0, distance);
    }
    code.extend([
        slot(0x7b, FRAME, 1, -8, 0),
        slot(0xbf, 0, 2, 0, 0),
        slot(0x27, 0, 0, 0, factor),
        slot(0xaf, 0, 3, 0, 0),
        slot(0x1f, 0, 4, 0, 0),
        slot(0xbf, 6, 5, 0, 0),
        slot(0x79, 7, FRAME, -8, 0),
        slot(0x0f, 0, 6, 0, 0),
        slot(0xaf, 0, 7, 0, 0),
        slot(0x95, 0, 0, 0, 0),
    ]);
}

/// A generator of numbers: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn register(&mut self) -> u8 {
        self.below(9) as u8
    }

    /// A number that is small, special or anything.
    fn imm(&mut self) -> i32 {
        match self.below(3) {
            0 => self.below(5) as i32 - 2,
            1 => self.one(&EDGES) as i32,
            _ => self.next() as i32,
        }
    }

    /// A place of so many bytes: base, offset. Places in the frame, and all for atomics, are aligned.
    fn place(&mut self, bytes: i16, aligned: bool) -> (u8, i16) {
        if self.below(3) == 0 {
            let slots = STACK / bytes;
            return (FRAME, -bytes * (1 + self.below(slots as usize) as i16));
        }
        let offset = self.below(DATA - 8) as i16;
        (ARRAY, if aligned { offset / bytes * bytes } else { offset })
    }

    fn instruction(&mut self) -> [u8; 8] {
        match self.below(12) {
            0..=4 => {
                let (operation, _) = self.one(&OPERATIONS);
                let class = self.one(&[7u8, 4]);
                let variant = i16::from(is_division(operation) && self.below(2) == 0);
                if self.below(2) == 0 {
                    return slot(operation | 8 | class, self.register(), self.register(), variant, 0);
                }
                let imm = match self.imm() {
                    imm if is_shift(operation) => imm & if class == 7 { 63 } else { 31 },
                    0 if is_division(operation) => 3,
                    imm => imm,
                };
                slot(operation | class, self.register(), 0, variant, imm)
            }
            5 => match self.below(3) {
                0 => slot(NEGATE | self.one(&[7u8, 4]), self.register(), 0, 0, 0),
                1 => {
                    let bits = self.one(&[8, 16, 32]);
                    let class = if bits == 32 { 7 } else { self.one(&[7, 4]) };
                    slot(0xb8 | class, self.register(), self.register(), bits, 0)
                }
                _ => slot(self.one(&[0xd4u8, 0xdc, 0xd7]), self.register(), 0, 0, self.one(&[16, 32, 64])),
            },
            6 | 7 => {
                let (width, bytes) = self.one(&WIDTHS);
                let (base, offset) = self.place(bytes, false);
                let signed = bytes < 8 && self.below(3) == 0;
                slot(if signed { 0x81 } else { 0x61 } | width, self.register(), base, offset, 0)
            }
            8 | 9 => {
                let (width, bytes) = self.one(&WIDTHS);
                let (base, offset) = self.place(bytes, false);
                if self.below(2) == 0 {
                    slot(0x63 | width, base, self.register(), offset, 0)
                } else {
                    slot(0x62 | width, base, 0, offset, self.imm())
                }
            }
            10 => {
                let (opcode, bytes) = self.one(&[(0xdbu8, 8), (0xc3, 4)]);
                let (base, offset) = self.place(bytes, true);
                slot(opcode, base, self.register(), offset, self.one(&ATOMICS).0)
            }
            _ => {
                let (width, bytes) = self.one(&WIDTHS);
                let (base, offset) = self.place(bytes, true);
                if self.below(2) == 0 {
                    slot(0xc3 | width, self.register(), base, offset, LOAD_ACQUIRE)
                } else {
                    slot(0xc3 | width, base, self.register(), offset, STORE_RELEASE)
                }
            }
        }
    }

    fn branch(&mut self, distance: i16) -> [u8; 8] {
        let (condition, _) = self.one(&CONDITIONS);
        let class = self.one(&[5u8, 6]);
        if self.below(2) == 0 {
            slot(condition | 8 | class, self.register(), self.register(), distance, 0)
        } else {
            slot(condition | class, self.register(), 0, distance, self.imm())
        }
    }
}

/// The program of this number under a seed.
#[must_use]
pub fn draw(seed: u64, number: u64) -> Drawn {
    let mut numbers = Numbers(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut body = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..4 + numbers.below(8) {
        match numbers.below(8) {
            0 | 1 => {
                let skipped = 1 + numbers.below(4);
                body.push(numbers.branch(skipped as i16));
                body.extend((0..skipped).map(|_| numbers.instruction()));
            }
            2 if numbers.below(2) == 0 => {
                let (counter, sum) = numbers.one(&[(1, 2), (3, 0), (8, 4)]);
                body.extend(counted_loop(counter, sum, 1 + numbers.below(6) as i32));
            }
            3 if numbers.below(2) == 0 => {
                calls.push((prologue().len() + body.len(), 0));
                body.extend(call(numbers.imm()));
            }
            _ => body.extend((0..1 + numbers.below(5)).map(|_| numbers.instruction()).collect::<Vec<_>>()),
        }
    }
    let mut drawn = whole(format!("drawn {seed}/{number}"), body, Vec::new());
    if !calls.is_empty() {
        finish_calls(&mut drawn.code, &calls, numbers.imm());
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    #[test]
    fn every_form_and_every_drawn_program_is_a_program_and_the_same_each_time() {
        let drawn = (0..500).map(|number| draw(7, number));
        let all: Vec<Drawn> = forms().into_iter().chain(drawn).collect();
        assert!(all.len() > 2000, "{}", all.len());
        for program in &all {
            Program::new(&program.name, &program.code.concat(), &[]).unwrap();
        }
        assert_eq!(draw(7, 499), all[all.len() - 1]);
        assert_ne!(draw(8, 499).code, draw(7, 499).code);
    }

    #[test]
    fn every_kind_of_instruction_is_among_the_forms_and_the_drawn_programs() {
        let programs = || (0..500).map(|number| draw(1, number));
        for program in [forms(), programs().collect()] {
            let mut opcodes: Vec<u8> =
                program.iter().flat_map(|program| program.code.iter().map(|slot| slot[0])).collect();
            opcodes.sort_unstable();
            opcodes.dedup();
            // Two classes of 12 operations by register and number, 2 negations, 3 swaps, 22 conditions both ways, loads, stores, atomics,
            // jumps, calls, exits, wide numbers.
            assert!(opcodes.len() >= 48 + 2 + 3 + 44 + 7 + 8 + 2 + 3, "{}", opcodes.len());
        }
    }
}
