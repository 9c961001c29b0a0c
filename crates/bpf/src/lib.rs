//! BPF bytecode: decoded, defined, translated to machine code, with the memory and the maps it works on. Knows nothing of schedulers.
//!
//! A [`Program`] is checked once and then either [interpreted](interpret) by the definition of each instruction or [translated](Translator)
//! to machine code; tests hold the two together. Everything a program can reach lies in one [`Memory`], at addresses that never change:
//! a load from elsewhere gives 0, as the kernel's exception table does, and a store to elsewhere is a [`Fault`] that names the instruction.
//! So nothing that a program does can harm the process it runs in.
//!
//! Source: RFC 9669 for the instructions; `docs/spec/bpf-runtime.md` sections 5 and 7 for what the kernel adds.
//!
//! Not modelled: legacy packet loads, tail calls, calls through a register, exceptions, per-CPU address casts.

pub mod btf;
mod definition;
pub mod drawn;
mod instruction;
pub mod maps;
mod memory;
mod program;
mod runtime;
mod translate;

pub use definition::{Trap, interpret};
pub use instruction::{Atomic, Instruction, Kind, Operand, Width};
pub use maps::{Map, MapKind, MapSpec, Maps};
pub use memory::{ARENA_BASE, Memory, MemoryError, REGION_BASE, REGION_BYTES, while_unmapped};
pub use program::{Program, ProgramError};
pub use runtime::{BUDGET, CallBack, Fault, Frame, Site};
pub use translate::{Array, Callee, Code, Entry, HostFunction, Inline, Resolver, TranslateError, Translator};
