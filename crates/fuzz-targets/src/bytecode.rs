//! BPF programs: they are refused, or what they do when translated is what the definition says.
use std::cell::RefCell;

use warmcore_bpf::{Callee, Frame, Instruction, Maps, Program, REGION_BASE, Resolver, Translator, interpret};

/// Instructions of a program that is run, and that a run may take.
const LONGEST: usize = 512;
const BUDGET: u64 = 10_000;
/// Where the stack of programs lies, and its size (`docs/spec/bpf-runtime.md`).
const STACK: u64 = REGION_BASE + (1 << 20);
const STACK_BYTES: u64 = 64 << 10;

/// A kernel without anything.
struct Nothing;

impl Resolver for Nothing {
    fn immediate(&mut self, load: Instruction, _: i32) -> Result<u64, String> {
        Err(format!("immediate of kind {}", load.src))
    }
    fn callback(&mut self, _: &Program, function: usize) -> u64 {
        function as u64
    }
    fn helper(&mut self, number: i32) -> Callee {
        Callee::Unreachable(format!("helper {number}"))
    }
    fn kfunc(&mut self, number: i32) -> Callee {
        Callee::Unreachable(format!("kfunc {number}"))
    }
}

thread_local! {
    /// Memory is at fixed addresses, so there is one.
    static MAPS: RefCell<Maps> = RefCell::new(Maps::new(1).expect("room for programs"));
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((&start, code)) = bytes.split_first() else { return };
    let Ok(program) = Program::new("fuzz", code, &[u32::from(start)]) else { return };
    if code.len() / 8 > LONGEST {
        return;
    }
    let mut translator = Translator::new().expect("a generator for this computer");
    let Ok(entries) = translator.add(&program, &mut Nothing) else { return };
    let translated = translator.finish().expect("what was translated is put together");
    MAPS.with_borrow_mut(|maps| {
        let begin = |maps: &mut Maps| {
            maps.memory.write(STACK, STACK_BYTES).expect("the stack is there").fill(0);
            let mut frame = Frame { now_ns: 12_345, ..Frame::default() };
            frame.allow(BUDGET);
            frame
        };
        let mut first = begin(maps);
        // SAFETY: no host function looks at its host, there is none.
        let r0 = unsafe { translated.run(entries[0], &mut first, [1, 2, 3, 4, 5]) };
        let fault = translated.fault(&first).map(|site| (site.instruction, site.fault.clone()));
        assert_eq!(first.stack, Frame::default().stack, "every frame was given back");
        let mut second = begin(maps);
        // SAFETY: as above.
        let (defined, trap) =
            unsafe { interpret(&program, [1, 2, 3, 4, 5], &mut maps.memory, &mut second, &mut Nothing) };
        // Blocks are counted when they begin, so runs that are stopped may differ by a block.
        if first.instructions.max(second.instructions) + LONGEST as u64 <= BUDGET {
            assert_eq!((r0, fault), (defined, trap.map(|trap| (trap.instruction, trap.fault))), "{program:?}");
        }
    });
}
