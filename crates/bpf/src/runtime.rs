//! What translated code and the definition keep while a program runs, and what they say when it does what it must not.

use std::ffi::c_void;

use thiserror::Error;

use crate::memory::REGION_BASE;

/// Where the stack ends that frames are taken from, top first.
pub(crate) const STACK_END: u64 = REGION_BASE + (1 << 20) + CHAIN_BYTES;
/// What calls within a program may take of it.
pub(crate) const CHAIN_BYTES: u64 = 64 << 10;
/// How often functions of the host may call functions of the program within each other. Each time begins such a chain; below the stack are pages
/// that nobody else uses.
const MOST_NESTED: u64 = 8;

/// Calls a function of the program, by what [`Resolver::callback`](crate::Resolver::callback) gave for it, for whoever runs the program.
pub type CallBack = unsafe fn(frame: *mut Frame, callback: u64, arguments: [u64; 5]) -> u64;

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
    /// How functions of the host call functions of the program.
    pub call_back: CallBack,
    /// What `call_back` needs to know.
    pub runner: *mut c_void,
    /// How many such calls are under way; 0 at first.
    pub nested: u64,
    /// 1 while the functions of a program that has thrown end one after another, up to its entry ([`Callee::Throw`](crate::Callee)).
    pub thrown: u64,
    /// What was thrown last.
    pub cookie: u64,
}

impl Frame {
    /// Before a call of a program: it may take so many instructions from here.
    pub fn allow(&mut self, instructions: u64) {
        self.stop_at = self.instructions + instructions;
    }

    /// For a function of the host: calls a function of the program. `None` if that has thrown, the call of the program has taken too many instructions,
    /// or too many such calls lie within each other: the function of the host is to end then.
    ///
    /// # Safety
    /// `frame` is what the function of the host was called with, and nothing of what begins there is borrowed.
    pub unsafe fn call(frame: *mut Self, callback: u64, arguments: [u64; 5]) -> Option<u64> {
        // SAFETY: the caller's promise.
        unsafe {
            if (*frame).nested >= MOST_NESTED || (*frame).instructions > (*frame).stop_at {
                return None;
            }
            (*frame).nested += 1;
            let result = ((*frame).call_back)(frame, callback, arguments);
            (*frame).nested -= 1;
            ((*frame).thrown == 0).then_some(result)
        }
    }

    /// After a call of a program: what it threw, if it did.
    pub fn catch(&mut self) -> Option<u64> {
        (std::mem::take(&mut self.thrown) != 0).then_some(self.cookie)
    }
}

/// Nobody runs a program.
unsafe fn nobody(_: *mut Frame, _: u64, _: [u64; 5]) -> u64 {
    0
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            instructions: 0,
            stop_at: 0,
            stack: STACK_END,
            fault: 0,
            called_ps: 0,
            now_ns: 0,
            cpu: 0,
            call_back: nobody,
            runner: std::ptr::null_mut(),
            nested: 0,
            thrown: 0,
            cookie: 0,
        }
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
