//! Random programs, translated, do what the definition says.

use proptest::prelude::*;

use super::assembler::*;
use super::{DATA, run};

/// A random instruction: operations on r0 to r8, memory of the map through r9 and of the frame through r10, forward branches, calls.
fn any_instruction() -> impl Strategy<Value = Vec<[u8; 8]>> {
    let register = 0u8..9;
    let sources = [0x0u8, 0x1, 0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x9, 0xa, 0xb, 0xc];
    let arithmetic = (
        prop::sample::select(sources.to_vec()),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        register.clone(),
        register.clone(),
        prop_oneof![any::<i32>(), -2..3i32],
    )
        .prop_map(|(operation, wide, by_register, signed, dst, src, imm)| {
            let class = if wide { 7 } else { 4 };
            let offset = i16::from(signed && matches!(operation, 3 | 9));
            let (src, imm) = if by_register { (src, 0) } else { (0, imm) };
            vec![code(operation << 4 | class | u8::from(by_register) << 3, dst, src, offset, imm)]
        });
    let moves = (prop::sample::select(vec![8i16, 16, 32]), register.clone(), register.clone(), any::<bool>())
        .prop_map(|(bits, dst, src, wide)| vec![code(if wide || bits == 32 { 0xbf } else { 0xbc }, dst, src, bits, 0)]);
    let swaps =
        (prop::sample::select(vec![0xd4u8, 0xdc, 0xd7]), register.clone(), prop::sample::select(vec![16, 32, 64]))
            .prop_map(|(opcode, dst, bits)| vec![code(opcode, dst, 0, 0, bits)]);
    let base = prop_oneof![(Just(9u8), 0i16..(DATA as i16 - 8)), (Just(10u8), -64i16..-7)];
    let loads =
        (prop::sample::select(vec![0x61u8, 0x69, 0x71, 0x79, 0x81, 0x89, 0x91]), register.clone(), base.clone())
            .prop_map(|(opcode, dst, (base, offset))| vec![code(opcode, dst, base, offset, 0)]);
    let stores = (
        prop::sample::select(vec![0x63u8, 0x6b, 0x73, 0x7b, 0x62, 0x6a, 0x72, 0x7a]),
        register.clone(),
        base.clone(),
        any::<i32>(),
    )
        .prop_map(|(opcode, src, (base, offset), imm)| vec![code(opcode, base, src, offset, imm)]);
    let atomics = (
        prop::sample::select(vec![0xdbu8, 0xc3]),
        prop::sample::select(vec![0, 1, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1]),
        register.clone(),
        base,
    )
        .prop_map(|(opcode, imm, src, (base, offset))| vec![code(opcode, base, src, offset & !7, imm)]);
    let wild = (register.clone(), register.clone(), any::<bool>())
        .prop_map(|(a, b, store)| vec![code(if store { 0x7b } else { 0x79 }, a, b, 0, 0)]);
    let conditions = vec![1u8, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13];
    let branches = (
        prop::sample::select(conditions),
        any::<bool>(),
        any::<bool>(),
        register.clone(),
        register.clone(),
        -2..3i32,
        0i16..3,
    )
        .prop_map(|(condition, wide, by_register, dst, src, imm, skip)| {
            let (src, imm) = if by_register { (src, 0) } else { (0, imm) };
            let opcode = condition << 4 | u8::from(by_register) << 3 | if wide { 5 } else { 6 };
            let filler = std::iter::repeat_n(add_imm(dst, 3), skip as usize);
            std::iter::once(code(opcode, dst, src, skip, imm)).chain(filler).collect()
        });
    let calls = prop::sample::select(vec![1, 2, 6]).prop_map(|number| vec![helper(number)]);
    prop_oneof![6 => arithmetic, 1 => moves, 1 => swaps, 3 => loads, 3 => stores, 2 => atomics, 1 => wild, 2 => branches, 1 => calls]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Four random pieces in each of 10,000 programs, twice around a loop, with every register in the result.
    #[test]
    fn random_programs_do_what_the_definition_says(
        arguments in any::<[u64; 5]>(),
        pieces in prop::collection::vec(prop::collection::vec(any_instruction(), 0..8), 4),
    ) {
        let [low, high] = data_address(0);
        let [low, high] = [low, high].map(|mut half| { if half[0] == 0x18 { half[1] = 9 | half[1] & 0xf0; } half });
        let mut program = vec![low, high];
        program.extend((-8..=-1).map(|at| store_imm(8, 10, at * 8, i32::from(at))));
        program.push(store_imm(8, 10, -72, 0));
        let body: Vec<[u8; 8]> = pieces.into_iter().flatten().flatten().collect();
        program.extend(&body);
        // Once more, if the counter in the frame says so.
        let back = -(body.len() as i16) - 4;
        program.extend([code(0xdb, 10, 6, -72, 0x41), mov_imm(8, 1), code(0xdb, 10, 8, -72, 0x01), code(0x15, 8, 0, back, 0)]);
        for register in 1..9u8 {
            program.extend([code(0x27, 0, 0, 0, 31), code(0xaf, 0, register, 0, 0)]);
        }
        program.push(exit());
        run(&program, arguments);
    }
}
