// SPDX-License-Identifier: GPL-2.0-only
//! Small sched_ext schedulers in BPF C, written for this project, and their loader.
//!
//! `fifo` is one queue for the machine, `fifo_llc` one for each LLC, `vtime` one in the order of weighted virtual time: the policies that
//! `scx-native` has in Rust, as programs that a real kernel loads (`programs/*.bpf.c`). Each has a program of its own (`scx_fifo`,
//! `scx_fifo_llc`, `scx_vtime`) that loads it and stays until it is interrupted, so `scx:scx_fifo` is a scheduler in a guest and in the simulator.
//!
//! `scx_load OBJECT` does the same for the object of another one, such as `front`, that of the manual's tutorial on sched_ext, and `counted`, one queue in the
//! order of weighted instructions, for which it opens a counter of each CPU. Programs of an object at tracepoints (`tp_btf/`, `tp/`) and at samples
//! (`perf_event`, each CPU's clock every millisecond) run as long as its scheduler; `traced` has some.
//!
//! [`recorder`] is a program of another kind: it records what the scheduler does, for `warmcore record --backend bpf`.
//!
//! This crate is GPL-2.0-only and a leaf: nothing depends on it, and what it makes are programs that run in processes of their own. The objects are
//! checked in (`objects`), made by `programs/compile`; `WARMCORE_CLANG` names a compiler that makes them in the build.
//!
//! Lacks: maps of a program's own but its variables and that array of counters, calls between functions, and whatever else these do not need.

mod load;
mod object;
pub mod recorder;
mod system;

pub use load::{Attached, LoadError, attach, run};
pub use object::{Bytecode, ObjectError, Operation};

/// A scheduler: its name and its object.
#[derive(Clone, Copy, Debug)]
pub struct Scheduler<'a> {
    /// What it is called in messages.
    pub name: &'a str,
    /// The object, an ELF file.
    pub object: &'a [u8],
}

macro_rules! scheduler {
    ($name:literal) => {
        Scheduler { name: $name, object: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")) }
    };
}

/// One queue for the machine, first come first served.
pub const FIFO: Scheduler<'static> = scheduler!("fifo");
/// A queue for each LLC; a CPU with nothing in its own looks into the others.
pub const FIFO_LLC: Scheduler<'static> = scheduler!("fifo_llc");
/// One queue for the machine in the order of virtual time, which passes by weight.
pub const VTIME: Scheduler<'static> = scheduler!("vtime");

/// All of them.
pub const ALL: [Scheduler<'static>; 3] = [FIFO, FIFO_LLC, VTIME];
