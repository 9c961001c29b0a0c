//! Bytecode in a real kernel, by the definition of each instruction, and translated: all three do the same.
//!
//! `WARMCORE_PROGRAMS=10000 cargo test --package warmcore-fidelity --test programs` draws as many.

use std::sync::atomic::AtomicBool;

use warmcore_fidelity::bytecode::{for_guest, judge, programs};
use warmcore_places::vm::select::{Choice, lab};
use warmcore_testing::skip;

/// Programs that are drawn, besides one for each form of instruction.
const DRAWN: u64 = 300;

#[test]
fn a_real_kernel_the_definition_and_the_translation_of_every_instruction_agree() {
    let lab = match lab(&Choice::default(), &|_| {}) {
        Ok(lab) => lab,
        Err(error) => skip!("no guest can be booted: {error}"),
    };
    let drawn = std::env::var("WARMCORE_PROGRAMS").map_or(DRAWN, |text| text.parse().unwrap());
    let programs = programs(1, drawn);
    // One CPU runs one program.
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let ran = lab.run_programs(&machine, &for_guest(&programs), &AtomicBool::new(false)).unwrap();
    let judgement = judge(&programs, &ran.came).unwrap();
    println!("{judgement:?}");
    assert_eq!((judgement.programs, judgement.ran), (programs.len(), programs.len()), "{:?}", ran.words);
    assert_eq!((judgement.differences, judgement.not_run), (0, 0), "{:?}", judgement.told);
}
