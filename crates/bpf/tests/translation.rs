//! Translated programs do what the definition says: each instruction form by hand, and [random programs](random_programs).

mod assembler;
mod random_programs;

use assembler::*;
use warmcore_bpf::{
    Array, Callee, Entry, Fault, Frame, Inline, Instruction, MapKind, MapSpec, Maps, Program, REGION_BASE, Resolver,
    Width, interpret, interpreted,
};

/// Bytes that programs here may use.
const DATA: u32 = 256;

/// The maps of these tests: one array of one value.
struct Names {
    data: u64,
    /// Nobody can change it.
    is_constant: bool,
}

/// What the array holds at first.
fn pattern(at: u64) -> u8 {
    (at * 37 + 11) as u8
}

/// Where it lies: the first map does.
const DATA_ADDRESS: u64 = REGION_BASE + (4 << 20);

/// A handle by which it is an array of four elements for each of two CPUs.
const HANDLE: u64 = 77;

/// Looks up such an element as [`Names::array`] says.
unsafe extern "C" fn lookup(frame: *mut Frame, handle: u64, key: u64, cpu: u64, own: u64, _: u64) -> u64 {
    // SAFETY: the frame is what the code was entered with; keys here are addresses on the stack.
    let (index, cpu) = unsafe { ((key as *const u32).read(), if own == 1 { (*frame).cpu } else { cpu & 0xffff_ffff }) };
    let exists = handle == HANDLE && index < 4 && cpu < 2;
    if exists { DATA_ADDRESS + 128 * cpu + 32 * u64::from(index) } else { 0 }
}

unsafe extern "C" fn sum(_: *mut Frame, a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
    a.wrapping_add(b).wrapping_add(c).wrapping_add(d).wrapping_add(e)
}

/// Calls a function of the program for each number below `count`, until one gives something else than zero; gives how many it called.
unsafe extern "C" fn repeat(frame: *mut Frame, count: u64, callback: u64, context: u64, _: u64, _: u64) -> u64 {
    for number in 0..count {
        // SAFETY: the frame is what the code was entered with.
        match unsafe { Frame::call(frame, callback, [number, context, 0, 0, 0]) } {
            Some(0) => {}
            Some(_) => return number + 1,
            None => return number,
        }
    }
    count
}

impl Resolver for Names {
    fn immediate(&mut self, load: Instruction, next: i32) -> Result<u64, String> {
        match load.src {
            2 => Ok(self.data + next as u64),
            other => Err(format!("immediate of kind {other}")),
        }
    }
    fn callback(&mut self, _: &Program, function: usize) -> u64 {
        function as u64
    }
    fn helper(&mut self, number: i32) -> Callee {
        match number {
            1 => Callee::Function(sum, 5),
            2 => Callee::Inline(Inline::Now),
            3 => Callee::Inline(Inline::NumberNew),
            4 => Callee::Inline(Inline::NumberNext),
            5 => Callee::Inline(Inline::TestCpu),
            6 => Callee::Inline(Inline::Nothing),
            7 => Callee::Lookup(lookup, true),
            8 => Callee::CallsBack(repeat, 3),
            9 => Callee::Throw,
            _ => Callee::Unreachable("helper that does not exist".into()),
        }
    }
    fn kfunc(&mut self, number: i32) -> Callee {
        Callee::Unreachable(format!("kfunc {number}"))
    }
    fn price_ps(&self, call: Instruction) -> u64 {
        1000 * call.imm as u64
    }
    fn array(&self, handle: u64) -> Option<Array> {
        (handle == HANDLE).then_some(Array { address: self.data, stride: 32, entries: 4, cpu_stride: 128, cpus: 2 })
    }
    fn constant(&self, address: u64, width: Width) -> Option<u64> {
        let offset =
            address.checked_sub(self.data).filter(|&offset| self.is_constant && offset < u64::from(DATA) - 8)?;
        Some((0..width.bytes()).rev().fold(0, |value, byte| value << 8 | u64::from(pattern(offset + byte))))
    }
}

/// What a run leaves.
#[derive(PartialEq, Eq, Debug)]
struct Ran {
    r0: u64,
    data: Vec<u8>,
    instructions: u64,
    called_ps: u64,
    fault: Option<(usize, Fault)>,
    thrown: Option<u64>,
}

/// Runs a program as the `Code` of a module.
macro_rules! ran_by {
    ($module:ident, $program:ident, $names:ident, $maps:ident, $arguments:ident, $begin:ident, $data:ident) => {{
        /// Code that runs, and its functions.
        type Running = ($module::Code, Vec<Entry>);
        /// Calls a function of the code that the frame's runner is.
        unsafe fn call_back(frame: *mut Frame, callback: u64, arguments: [u64; 5]) -> u64 {
            // SAFETY: the runner was set to that; the frame is what the code was entered with.
            unsafe {
                let (code, entries) = &*(*frame).runner.cast::<Running>();
                code.run(entries[callback as usize], frame, arguments)
            }
        }
        let mut translator = $module::Translator::new().unwrap();
        let entries = translator.add(&$program, &mut $names).unwrap();
        let running: Running = (translator.finish().unwrap(), entries);
        let (code, entries) = &running;
        let mut frame = $begin(&mut $maps);
        (frame.call_back, frame.runner) = (call_back, (&raw const running).cast_mut().cast());
        // SAFETY: the host functions of these tests look at no more of their host than its frame.
        let r0 = unsafe { code.run(entries[0], &mut frame, $arguments) };
        let fault = code.fault(&frame).map(|site| (site.instruction, site.fault.clone()));
        let data = $maps.memory.read($data, u64::from(DATA)).unwrap().to_vec();
        assert_eq!(frame.stack, Frame::default().stack, "every frame was given back");
        let thrown = frame.catch();
        Ran { r0, data, instructions: frame.instructions, called_ps: frame.called_ps, fault, thrown }
    }};
}

/// Runs a program in all ways on the same memory; asserts that they agree.
fn run_with(program: &[[u8; 8]], arguments: [u64; 5], budget: u64, is_constant: bool) -> Ran {
    let program = Program::new("test", &program.concat(), &[]).unwrap();
    let mut maps = Maps::new(1).unwrap();
    let spec = MapSpec {
        name: "data".into(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: DATA,
        entries: 1,
        flags: 0,
        extra: 0,
        special: Vec::new(),
    };
    let handle = maps.create(spec).unwrap();
    let data = maps.get(handle).unwrap().address;
    let begin = |maps: &mut Maps| {
        let bytes = maps.memory.write(data, u64::from(DATA)).unwrap();
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at as u64));
        maps.memory.write(REGION_BASE + (1 << 20), 64 << 10).unwrap().fill(0);
        let mut frame = Frame { now_ns: 12_345, ..Frame::default() };
        frame.allow(budget);
        frame
    };
    let mut names = Names { data, is_constant };
    let translated = ran_by!(warmcore_bpf, program, names, maps, arguments, begin, data);
    let interpreted = ran_by!(interpreted, program, names, maps, arguments, begin, data);
    assert_eq!(interpreted, translated, "as `Code` of the definition (left) and translated (right): {program:?}");

    let mut frame = begin(&mut maps);
    // SAFETY: as above.
    let (r0, trap) = unsafe { interpret(&program, arguments, &mut maps.memory, &mut frame, &mut names) };
    let fault = trap.map(|trap| (trap.instruction, trap.fault));
    let bytes = maps.memory.read(data, u64::from(DATA)).unwrap().to_vec();
    // Blocks are counted when they begin, so a run that is stopped or jumps away within one differs by less than a block.
    let instructions = frame.instructions;
    let thrown = frame.catch();
    let defined = Ran { r0, data: bytes, instructions, called_ps: frame.called_ps, fault, thrown };
    assert_eq!(translated, defined, "translated (left) and by definition (right): {program:?}");
    translated
}

fn run(program: &[[u8; 8]], arguments: [u64; 5]) -> Ran {
    run_with(program, arguments, 100_000, false)
}

fn r0(program: &[[u8; 8]], arguments: [u64; 5]) -> u64 {
    let result = run(program, arguments);
    assert_eq!(result.fault, None);
    result.r0
}

/// `r0 = r1 OPERATION r2`.
fn of_two(opcode: u8, offset: i16, left: u64, right: u64) -> u64 {
    r0(&[mov(0, 1), code(opcode, 0, 2, offset, 0), exit()], [left, right, 0, 0, 0])
}

const MINUS_ONE: u64 = u64::MAX;

#[test]
fn arithmetic_of_64_bits_is_rfc_9669s() {
    assert_eq!(of_two(0x0f, 0, 7, MINUS_ONE), 6, "add");
    assert_eq!(of_two(0x1f, 0, 7, 9), MINUS_ONE - 1, "sub");
    assert_eq!(of_two(0x2f, 0, 1 << 63, 3), 1 << 63, "mul");
    assert_eq!(of_two(0x3f, 0, MINUS_ONE, 10), MINUS_ONE / 10, "div");
    assert_eq!(of_two(0x3f, 0, 5, 0), 0, "div by zero");
    assert_eq!(of_two(0x9f, 0, 5, 0), 5, "mod by zero");
    assert_eq!(of_two(0x3f, 1, -7_i64 as u64, 2), -3_i64 as u64, "sdiv rounds to zero");
    assert_eq!(of_two(0x9f, 1, -7_i64 as u64, 2), MINUS_ONE, "smod has the dividend's sign");
    assert_eq!(of_two(0x3f, 1, 1 << 63, MINUS_ONE), 1 << 63, "the smallest by -1");
    assert_eq!(of_two(0x9f, 1, 1 << 63, MINUS_ONE), 0, "its remainder");
    assert_eq!(of_two(0x6f, 0, 1, 65), 2, "lsh masks its distance");
    assert_eq!(of_two(0x7f, 0, 1 << 63, 63), 1, "rsh");
    assert_eq!(of_two(0xcf, 0, 1 << 63, 63), MINUS_ONE, "arsh");
    assert_eq!(of_two(0x4f, 0, 12, 3), 15, "or");
    assert_eq!(of_two(0x5f, 0, 12, 6), 4, "and");
    assert_eq!(of_two(0xaf, 0, 12, 6), 10, "xor");
    assert_eq!(of_two(0xbf, 8, 0, 0x1ff), MINUS_ONE, "movsx of 8 bits");
    assert_eq!(of_two(0xbf, 16, 0, 0x8000), -0x8000_i64 as u64, "movsx of 16");
    assert_eq!(of_two(0xbf, 32, 0, 0x8000_0000), -0x8000_0000_i64 as u64, "movsx of 32");
    assert_eq!(of_two(0xbf, 1, 0, 77), 77, "addresses of the arena are the same everywhere");
    assert_eq!(r0(&[mov(0, 1), code(0x87, 0, 0, 0, 0), exit()], [5, 0, 0, 0, 0]), -5_i64 as u64, "neg");
}

#[test]
fn arithmetic_of_32_bits_clears_the_upper_half() {
    let high = 0xdead_beef_0000_0000;
    assert_eq!(of_two(0x0c, 0, high | 7, MINUS_ONE), 6, "add32");
    assert_eq!(of_two(0x3c, 0, high | 5, high), 0, "div32 by zero");
    assert_eq!(of_two(0x9c, 0, high | 5, high), 5, "mod32 by zero");
    assert_eq!(of_two(0x3c, 1, 0x8000_0000, 0xffff_ffff), 0x8000_0000, "the smallest of 32 bits by -1");
    assert_eq!(of_two(0x6c, 0, high | 1, 33), 2, "lsh32");
    assert_eq!(of_two(0xcc, 0, high | 0x8000_0000, 31), 0xffff_ffff, "arsh32");
    assert_eq!(of_two(0xbc, 0, high, high | 9), 9, "mov32");
    assert_eq!(of_two(0xbc, 8, high, 0x80), 0xffff_ff80, "movsx32 of 8 bits");
    assert_eq!(r0(&[mov(0, 1), code(0x84, 0, 0, 0, 0), exit()], [1, 0, 0, 0, 0]), 0xffff_ffff, "neg32");
}

#[test]
fn bytes_are_swapped_and_truncated() {
    let swap =
        |opcode, bits| r0(&[mov(0, 1), code(opcode, 0, 0, 0, bits), exit()], [0x1122_3344_5566_7788, 0, 0, 0, 0]);
    assert_eq!(swap(0xd4, 16), 0x7788, "le16");
    assert_eq!(swap(0xd4, 32), 0x5566_7788, "le32");
    assert_eq!(swap(0xdc, 16), 0x8877, "be16");
    assert_eq!(swap(0xdc, 32), 0x8877_6655, "be32");
    assert_eq!(swap(0xdc, 64), 0x8877_6655_4433_2211, "be64");
    assert_eq!(swap(0xd7, 32), 0x8877_6655, "bswap32");
}

#[test]
fn loads_and_stores_have_their_width_and_sign() {
    let [low, high] = data_address(0);
    let prologue = [low, high, mov(6, 0)];
    let load = |opcode| {
        let program = [&prologue[..], &[store_imm(8, 6, 0, -2), code(opcode, 0, 6, 0, 0), exit()]].concat();
        r0(&program, [0; 5])
    };
    assert_eq!(load(0x79), MINUS_ONE - 1);
    assert_eq!(load(0x61), 0xffff_fffe);
    assert_eq!(load(0x69), 0xfffe);
    assert_eq!(load(0x71), 0xfe);
    assert_eq!(load(0x91), MINUS_ONE - 1, "a signed byte");
    assert_eq!(load(0x89), MINUS_ONE - 1, "a signed half word");
    assert_eq!(load(0x81), MINUS_ONE - 1, "a signed word");
}

#[test]
fn a_load_from_nowhere_gives_zero_and_a_store_there_is_a_fault_that_names_its_instruction() {
    assert_eq!(r0(&[mov_imm(0, 5), load(8, 0, 1, 16), exit()], [0; 5]), 0, "through NULL");
    assert_eq!(r0(&[mov_imm(0, 5), load(8, 0, 1, 0), exit()], [MINUS_ONE, 0, 0, 0, 0]), 0, "around the end");
    let program = [mov_imm(0, 5), store_imm(8, 1, 0, 7), store_imm(8, 1, 8, 7), mov_imm(0, 6), exit()];
    let result = run(&program, [0x1000, 0, 0, 0, 0]);
    assert_eq!(result.fault, Some((1, Fault::WildStore)), "the first of two");
    assert_eq!((result.r0, result.instructions), (5, 2), "and its function ends there");
    let caller =
        [code(0x85, 0, 1, 0, 2), add_imm(0, 1), exit(), mov_imm(0, 5), store_imm(8, 1, 0, 7), mov_imm(0, 6), exit()];
    assert_eq!(run(&caller, [0x1000, 0, 0, 0, 0]).r0, 6, "its caller goes on");
}

/// More than checks are branches for, and more than are remembered, with ways that part and meet: 3,000 loads in a row and 500 beside which a way leads.
#[test]
fn a_very_long_function_loads_and_stores_as_a_short_one() {
    let [low, high] = data_address(0);
    // The value begins with its own address, and is followed for ever. r4 is 0 and r3 is nowhere.
    let begin = [low, high, store(8, 0, 0, 0), mov(1, 0)];
    let follow = load(8, 1, 1, 0);
    let around = [code(0x55, 4, 0, 1, 0), follow];
    let body = [vec![follow; 3000], around.repeat(500)].concat();
    let end = [load(1, 0, 1, 8), load(8, 5, 4, 8), code(0x0f, 0, 5, 0, 0), load(8, 5, 3, 0), code(0x0f, 0, 5, 0, 0)];
    let arguments = [0, 0, 0x1000, 0, 0];
    let program = [&begin[..], &body, &end, &[exit()]].concat();
    assert_eq!(r0(&program, arguments), u64::from(pattern(8)), "NULL and what lies nowhere read as 0");
    let wild = [&begin[..], &body, &[store_imm(8, 1, 16, 7), store_imm(8, 3, 0, 7), exit()]].concat();
    let result = run(&wild, arguments);
    assert_eq!(result.fault, Some((wild.len() - 2, Fault::WildStore)), "the second store, not the first");
    assert_eq!(result.data[16..24], 7_u64.to_le_bytes());
}

#[test]
fn what_is_checked_is_the_register_and_offsets_reach_the_guards_around_the_region() {
    let around =
        |base: u64, offset: i16| run(&[store_imm(8, 1, offset, 7), load(8, 0, 1, offset), exit()], [base, 0, 0, 0, 0]);
    let end = REGION_BASE + (2 << 36);
    for (base, offset) in [(REGION_BASE, i16::MIN), (end - 1, i16::MAX)] {
        let result = around(base, offset);
        assert_eq!((result.r0, result.fault), (7, None));
    }
    for (base, offset) in [(REGION_BASE - 1, 8), (end, -16)] {
        assert_eq!(around(base, offset).fault, Some((0, Fault::WildStore)));
    }
}

#[test]
fn what_nobody_can_change_is_known_and_a_branch_on_it_is_not_taken_in_vain() {
    let [low, high] = data_address(16);
    // Byte 16 is 91: the branch goes to where 3 is given; the other way would be a fault.
    let program = [
        low,
        high,
        load(1, 1, 0, 0),
        code(0x54, 1, 0, 0, 1),
        code(0x15, 1, 0, 2, 0),
        mov_imm(0, 3),
        exit(),
        helper(99),
        exit(),
    ];
    for is_constant in [false, true] {
        let result = run_with(&program, [0; 5], 1000, is_constant);
        assert_eq!((result.r0, result.fault), (3, None));
    }
    let program = [low, high, code(0x81, 0, 0, 0, 0), exit()];
    assert_eq!(
        run_with(&program, [0; 5], 1000, true).r0,
        i64::from(i32::from_le_bytes([16, 17, 18, 19].map(pattern))) as u64
    );
}

#[test]
fn elements_of_known_arrays_are_found_inline_and_none_where_there_is_none() {
    let found = |handle: i32, index: i32, cpu: i32| {
        let program = [
            store_imm(4, 10, -8, index),
            mov_imm(1, handle),
            mov(2, 10),
            add_imm(2, -8),
            mov_imm(3, cpu),
            helper(7),
            exit(),
        ];
        r0(&program, [0; 5])
    };
    let handle = HANDLE as i32;
    assert_eq!(found(handle, 3, 1), DATA_ADDRESS + 128 + 96);
    assert_eq!([found(handle, 4, 0), found(handle, 0, 2), found(handle, -1, -1), found(1, 0, 0)], [0; 4]);
}

#[test]
fn atomics_give_what_was_there_before() {
    let [low, high] = data_address(8);
    let run = |imm, wide: bool| {
        let opcode = if wide { 0xdb } else { 0xc3 };
        let program = [
            low,
            high,
            mov(6, 0),
            store_imm(8, 6, 0, 12),
            mov_imm(0, 12),
            mov_imm(2, 10),
            code(opcode, 6, 2, 0, imm),
            mov(3, 0),
            load(8, 0, 6, 0),
            code(0x67, 0, 0, 0, 16),
            code(0x4f, 0, 2, 0, 0),
            code(0x67, 0, 0, 0, 16),
            code(0x4f, 0, 3, 0, 0),
            exit(),
        ];
        let r = r0(&program, [0; 5]);
        (r >> 32, r >> 16 & 0xffff, r & 0xffff)
    };
    for wide in [true, false] {
        assert_eq!(run(0x00, wide), (22, 10, 12), "add");
        assert_eq!(run(0x01, wide), (22, 12, 12), "fetch-add");
        assert_eq!(run(0x41, wide), (14, 12, 12), "fetch-or");
        assert_eq!(run(0x51, wide), (8, 12, 12), "fetch-and");
        assert_eq!(run(0xa1, wide), (6, 12, 12), "fetch-xor");
        assert_eq!(run(0xe1, wide), (10, 12, 12), "exchange");
        assert_eq!(run(0xf1, wide), (10, 10, 12), "compare-exchange that meets what it expects");
        assert_eq!(run(0x110, wide), (10, 10, 12), "store-release");
    }
}

#[test]
fn functions_have_frames_of_their_own_and_keep_callers_registers() {
    let program = [
        mov_imm(6, 40),
        store_imm(8, 10, -8, 2),
        mov(1, 10),
        add_imm(1, -8),
        code(0x85, 0, 1, 0, 5),
        mov(2, 0),
        load(8, 0, 10, -8),
        code(0x0f, 0, 6, 0, 0),
        code(0x0f, 0, 2, 0, 0),
        exit(),
        // Adds 1 to what it is given the address of, and gives 100.
        load(8, 2, 1, 0),
        add_imm(2, 1),
        store(8, 1, 2, 0),
        store_imm(8, 10, -8, 99),
        mov_imm(6, 0),
        mov_imm(0, 100),
        exit(),
    ];
    assert_eq!(r0(&program, [0; 5]), 143);
}

#[test]
fn a_function_gets_the_registers_that_it_reads_through_whatever_it_calls() {
    // r4 goes through a function that only hands it on, r2 is read on one of two ways.
    let program = [
        code(0x85, 0, 1, 0, 1),
        exit(),
        code(0x85, 0, 1, 0, 1),
        exit(),
        mov(0, 4),
        code(0x15, 1, 0, 1, 0),
        code(0x0f, 0, 2, 0, 0),
        exit(),
    ];
    assert_eq!(r0(&program, [1, 20, 0, 4, 0]), 24);
    assert_eq!(r0(&program, [0, 20, 0, 4, 0]), 4);
}

#[test]
fn loops_end_by_their_condition_or_by_the_budget() {
    let count_to = |limit| [mov_imm(0, 0), add_imm(0, 1), code(0xa5, 0, 0, -2, limit), exit()];
    assert_eq!(r0(&count_to(1000), [0; 5]), 1000);
    let endless = [mov_imm(0, 0), add_imm(0, 1), code(0x05, 0, 0, -2, 0), exit()];
    let result = run(&endless, [0; 5]);
    assert_eq!(result.fault, Some((2, Fault::Endless)));
    let may_goto = [mov_imm(0, 0), code(0xe5, 0, 0, 2, 0), add_imm(0, 1), code(0x05, 0, 0, -3, 0), exit()];
    assert!(matches!(run(&may_goto, [0; 5]).fault, Some((_, Fault::Endless))));
}

#[test]
fn numbers_are_iterated_inline_as_the_kernel_does() {
    let sum_of = |start, end| {
        [
            mov(1, 10),
            add_imm(1, -8),
            mov_imm(2, start),
            mov_imm(3, end),
            helper(3),
            mov_imm(6, 0),
            mov(1, 10),
            add_imm(1, -8),
            helper(4),
            code(0x15, 0, 0, 3, 0),
            load(4, 2, 0, 0),
            code(0x0f, 6, 2, 0, 0),
            code(0x05, 0, 0, -7, 0),
            mov(0, 6),
            exit(),
        ]
    };
    assert_eq!(r0(&sum_of(3, 7), [0; 5]), 3 + 4 + 5 + 6);
    assert_eq!(r0(&sum_of(7, 3), [0; 5]), 0, "an empty range");
    assert_eq!(r0(&sum_of(-2, 1), [0; 5]), 0xffff_fffe + 0xffff_ffff, "from below zero, as 32 bits");
}

#[test]
fn calls_give_the_hosts_answer_and_one_to_nothing_is_a_fault() {
    assert_eq!(r0(&[helper(1), exit()], [1, 2, 3, 4, 5]), 15);
    assert_eq!(r0(&[helper(2), exit()], [0; 5]), 12_345);
    assert_eq!(run(&[helper(1), helper(2), helper(1), exit()], [0; 5]).called_ps, 4_000, "each call has its price");
    let result = run(&[helper(99), exit()], [0; 5]);
    assert_eq!(result.fault, Some((0, Fault::Unreachable("helper that does not exist".into()))));
}

/// `helper 8(count, callback, frame - 8)`, the callback being what follows; `r0` times 100 and the number at `frame - 8` together.
fn repeated(count: i32, callback: &[[u8; 8]]) -> Vec<[u8; 8]> {
    let before = [
        store_imm(8, 10, -8, 0),
        mov_imm(1, count),
        code(0x18, 2, 4, 0, 8),
        code(0, 0, 0, 0, 0),
        mov(3, 10),
        add_imm(3, -8),
        helper(8),
        code(0x27, 0, 0, 0, 100),
        load(8, 1, 10, -8),
        code(0x0f, 0, 1, 0, 0),
        exit(),
    ];
    [&before[..], callback].concat()
}

#[test]
fn a_function_of_the_host_calls_functions_of_the_program() {
    // Adds its number to what its context points to; ends after number 3.
    let add = [
        load(8, 3, 2, 0),
        code(0x0f, 3, 1, 0, 0),
        store(8, 2, 3, 0),
        mov_imm(0, 0),
        code(0xb5, 1, 0, 1, 2),
        mov_imm(0, 1),
        exit(),
    ];
    assert_eq!(r0(&repeated(3, &add), [0; 5]), 303);
    assert_eq!(r0(&repeated(9, &add), [0; 5]), 406, "the callback ends it");
    let store_wildly = [store_imm(8, 1, 0, 7), mov_imm(0, 0), exit()];
    assert_eq!(run(&repeated(2, &store_wildly), [0; 5]).fault, Some((11, Fault::WildStore)));
}

#[test]
fn functions_that_the_host_calls_end_by_the_budget_and_do_not_lie_within_each_other_for_ever() {
    let nothing = [mov_imm(0, 0), exit()];
    let result = run(&repeated(i32::MAX, &nothing), [0; 5]);
    assert_eq!(result.fault, Some((6, Fault::Endless)));
    // The callback has itself called.
    let itself = [mov_imm(1, 1), code(0x18, 2, 4, 0, -2), code(0, 0, 0, 0, 0), helper(8), add_imm(0, 1), exit()];
    let result = run(&repeated(1, &itself), [0; 5]);
    assert_eq!((result.r0, result.fault), (100, None));
}

#[test]
fn what_is_thrown_ends_all_functions_up_to_the_entry() {
    let [low, high] = data_address(0);
    // Two calls deep, if r1 is 7: the store behind them is not reached.
    let program = [
        mov_imm(6, 9),
        code(0x85, 0, 1, 0, 4),
        low,
        high,
        store_imm(8, 0, 0, 1),
        exit(),
        mov_imm(6, 8),
        code(0x85, 0, 1, 0, 1),
        exit(),
        code(0x55, 1, 0, 2, 7),
        add_imm(1, 35),
        helper(9),
        mov_imm(0, 3),
        exit(),
    ];
    let (throws, goes_on) = (run(&program, [7, 0, 0, 0, 0]), run(&program, [8, 0, 0, 0, 0]));
    assert_eq!((throws.thrown, throws.instructions, throws.data[0]), (Some(42), 7, pattern(0)));
    assert_eq!((goes_on.thrown, goes_on.data[0]), (None, 1));
    // Through a function of the host, whose round it ends.
    let result = run(&repeated(9, &[mov_imm(1, 5), helper(9), mov_imm(0, 0), exit()]), [0; 5]);
    assert_eq!((result.thrown, result.instructions), (Some(5), 8));
}

#[test]
fn broken_programs_are_refused_with_the_instruction() {
    let refused = |program: &[[u8; 8]]| {
        let error = Program::new("broken", &program.concat(), &[]).unwrap_err();
        assert!(error.to_string().starts_with("program `broken`, instruction "), "{error}");
        error.reason
    };
    assert!(refused(&[]).contains("empty"));
    assert!(refused(&[mov_imm(0, 0)]).contains("does not end"));
    assert!(refused(&[mov_imm(11, 0), exit()]).contains("register"));
    assert!(refused(&[mov_imm(10, 0), exit()]).contains("frame pointer"));
    assert!(refused(&[code(0x05, 0, 0, 5, 0), exit()]).contains("jump leads out"));
    assert!(refused(&[code(0x18, 0, 0, 0, 1)]).contains("second half"));
    assert!(
        refused(&[code(0x15, 0, 0, 1, 0), code(0x18, 0, 0, 0, 1), code(0, 0, 0, 0, 0), exit()])
            .contains("into an instruction")
    );
    assert!(refused(&[code(0x85, 0, 1, 0, -1), exit()]).contains("calls itself"));
    assert!(refused(&[code(0x20, 0, 0, 0, 0), exit()]).contains("unknown instruction"));
    let deep: Vec<[u8; 8]> =
        (0..200).flat_map(|_| [code(0x85, 0, 1, 0, 1), exit()]).chain([mov_imm(0, 0), exit()]).collect();
    assert!(refused(&deep).contains("too deeply"));
}
