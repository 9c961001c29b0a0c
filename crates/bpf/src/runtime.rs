//! What translated code and the definition keep while a program runs, and what they say when it does what it must not.

use thiserror::Error;

use crate::memory::REGION_BASE;

/// Address of the stack that frames are taken from, top first.
pub(crate) const STACK_BASE: u64 = REGION_BASE + (1 << 20);
/// Its size.
pub(crate) const STACK_BYTES: u64 = 64 << 10;

/// Most instructions that one call of a program may take. The kernel gives each `may_goto` loop 8 million rounds (`BPF_MAX_LOOPS`) and
/// proves that others end; here everything together may take so long.
pub const BUDGET: u64 = 100_000_000;

/// The head of what a host hands to translated code: its first field, whose layout the code knows.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    /// Instructions executed, ever.
    pub instructions: u64,
    /// Count of instructions at which the present call is stopped.
    pub stop_at: u64,
    /// Where the next frame ends.
    pub stack: u64,
    /// Number of the first [`Site`] that went wrong, plus one; 0 for none.
    pub fault: u64,
    /// What calls of the host and what stands for them have cost, ever, in picoseconds.
    pub called_ps: u64,
    /// What [`Inline::Field`](crate::Inline) reads: simulated time in nanoseconds.
    pub now_ns: u64,
    /// The same: CPU that runs the program.
    pub cpu: u64,
}

impl Frame {
    /// Before a call of a program: it may take so many instructions from here.
    pub fn allow(&mut self, instructions: u64) {
        self.stop_at = self.instructions + instructions;
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self { instructions: 0, stop_at: 0, stack: STACK_BASE + STACK_BYTES, fault: 0, called_ps: 0, now_ns: 0, cpu: 0 }
    }
}

/// A place in a program where something can go wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Program.
    pub program: String,
    /// Instruction.
    pub instruction: usize,
    /// What went wrong if it did.
    pub fault: Fault,
}

/// What a program must not do.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// A store to where nothing of its own is.
    #[error("stores outside of its memory")]
    WildStore,
    /// It does not end.
    #[error("does not end within the instructions that one call may take")]
    Endless,
    /// A branch was reached that the loader said is never taken, or a call of something that does not exist.
    #[error("{0}")]
    Unreachable(String),
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "program `{}`, instruction {}: {}", self.program, self.instruction, self.fault)
    }
}
