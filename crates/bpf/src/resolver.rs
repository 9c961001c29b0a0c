//! What the names in a program mean, asked of whoever loads it, and what running it takes besides: the same for machine code and for the
//! definition.

use thiserror::Error;

use crate::instruction::{Instruction, Width};
use crate::program::Program;
use crate::runtime::Frame;

/// A function of the host that programs may call. `host` is what the code was entered with.
pub type HostFunction = unsafe extern "C" fn(host: *mut Frame, r1: u64, r2: u64, r3: u64, r4: u64, r5: u64) -> u64;

/// What a call leads to.
#[derive(Clone, Debug)]
pub enum Callee {
    /// A function of the host, and how many registers it looks at, from r1 on.
    Function(HostFunction, u8),
    /// The same of a function that calls functions of the program, by [`Frame::call`].
    CallsBack(HostFunction, u8),
    /// The function of the host that looks a key up in a map: map in r1, key at r2; on the CPU in r3 if so, else on this one.
    Lookup(HostFunction, bool),
    /// A few instructions in its place.
    Inline(Inline),
    /// Ends the function and all that have called it, with what is in r1 (`bpf_throw`): whoever runs the program [catches](Frame::catch) it.
    Throw,
    /// Nothing: the loader marked the call as never reached, or it does not exist. Reaching it is a fault with these words.
    Unreachable(String),
}

/// Calls that are not worth a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inline {
    /// Does nothing and gives 0: locks, where CPUs take turns.
    Nothing,
    /// Reads [`Frame::now_ns`].
    Now,
    /// Reads [`Frame::cpu`].
    Cpu,
    /// `bpf_iter_num_new(iterator, start, end)`.
    NumberNew,
    /// `bpf_iter_num_next(iterator)`.
    NumberNext,
    /// `bpf_cpumask_test_cpu(cpu, mask)`.
    TestCpu,
}

/// Elements of an array, where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Array {
    /// Address of the first.
    pub address: u64,
    /// Bytes from one to the next.
    pub stride: u64,
    /// How many there are.
    pub entries: u32,
    /// Bytes from those of one CPU to those of the next; 0 if all CPUs have the same.
    pub cpu_stride: u64,
    /// CPUs that have some.
    pub cpus: u32,
}

/// Says what the names in a program mean.
pub trait Resolver {
    /// Value of a 64-bit immediate that is not a plain number (source 1 to 6): a map, an address in a map's value, a kernel symbol. `next` is
    /// the immediate of the second half.
    ///
    /// # Errors
    /// When there is no such thing.
    fn immediate(&mut self, load: Instruction, next: i32) -> Result<u64, String>;

    /// What stands for the address of a function of the program, given to timers and the like.
    fn callback(&mut self, program: &Program, function: usize) -> u64;

    /// A helper by number.
    fn helper(&mut self, number: i32) -> Callee;

    /// A kernel function by its number in the kernel's type information.
    fn kfunc(&mut self, number: i32) -> Callee;

    /// What a call of a helper or of a kernel function costs, in picoseconds.
    fn price_ps(&self, call: Instruction) -> u64 {
        let _ = call;
        0
    }

    /// The map of a handle, if it is an array.
    fn array(&self, handle: u64) -> Option<Array> {
        let _ = handle;
        None
    }

    /// What lies at an address, if nobody can change it any more.
    fn constant(&self, address: u64, width: Width) -> Option<u64> {
        let _ = (address, width);
        None
    }
}

/// Why a program could not be translated.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum TranslateError {
    /// A name in the program means nothing.
    #[error("program `{program}`, instruction {instruction}: {reason}")]
    Name { program: String, instruction: usize, reason: String },
    /// The code generator failed, which is a fault of ours.
    #[error("cannot translate program `{program}`: {reason}")]
    Generator { program: String, reason: String },
}

/// A translated function, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(pub(crate) usize);
