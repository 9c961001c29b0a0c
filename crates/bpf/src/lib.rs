//! BPF bytecode: decoded, defined, translated to machine code, with the memory and the maps it works on. Knows nothing of schedulers.
//!
//! A [`Program`] is checked once and then either [interpreted](interpret) by the definition of each instruction or [translated](Translator)
//! to machine code; tests hold the two together. Without the feature `machine-code`, [`Translator`] and [`Code`] are those of [`interpreted`]. Everything a program can reach lies in one [`Memory`], at addresses that never change:
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
pub mod interpreted;
pub mod maps;
mod memory;
mod program;
mod resolver;
mod runtime;
#[cfg(feature = "machine-code")]
mod translate;

pub use definition::{Trap, interpret};
pub use instruction::{Atomic, Instruction, Kind, Operand, Width};
#[cfg(not(feature = "machine-code"))]
pub use interpreted::{Code, Translator};
pub use maps::{Map, MapKind, MapSpec, Maps};
pub use memory::{ARENA_BASE, Memory, MemoryError, REGION_BASE, REGION_BYTES, while_unmapped};
pub use program::{Program, ProgramError};
pub use resolver::{Array, Callee, Entry, HostFunction, Inline, Resolver, TranslateError};
pub use runtime::{BUDGET, CallBack, Fault, Frame, Site};
#[cfg(feature = "machine-code")]
pub use translate::{Code, Translator};
