//! Whether the calling thread was switched out while it computed, told without a system call.
//!
//! A thread of Linux shares a structure with the kernel (`rseq(2)`, registered by the C library from glibc 2.35 on). Its field
//! `rseq_cs` points to the description of a sequence of instructions that must not be interrupted. When the kernel has switched the
//! thread out of user mode and comes back, it looks whether the thread is within that sequence; if it is not, it clears the field
//! (`rseq_ip_fixup` of Linux 4.18 to 6.18, `rseq_update_user_cs` from 6.19 on). So a field that points to a sequence where no
//! instruction is ever executed, and is found cleared, says that the thread was switched out or had a signal.
//!
//! Where the C library has registered nothing there is no [`Watch`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What stands before the address that an interrupted sequence goes on at: `RSEQ_SIG` of x86, which glibc registers.
const SIGNATURE: u32 = 0x5305_3053;

/// `struct rseq_cs` (`include/uapi/linux/rseq.h`), and what its abort address needs before it.
#[repr(C, align(32))]
struct RestartableSequence {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
    signature: u32,
    abort_target: u32,
}

/// The sequence of one byte that no thread executes: it is data, the description itself.
fn never_executed() -> &'static RestartableSequence {
    static SEQUENCE: OnceLock<&'static RestartableSequence> = OnceLock::new();
    SEQUENCE.get_or_init(|| {
        let sequence = Box::leak(Box::new(RestartableSequence {
            version: 0,
            flags: 0,
            start: 0,
            length: 1,
            abort: 0,
            signature: SIGNATURE,
            abort_target: 0,
        }));
        sequence.start = (&raw const *sequence).addr() as u64;
        sequence.abort = (&raw const sequence.abort_target).addr() as u64;
        sequence
    })
}

/// A watch over the calling thread. Not to be sent to another.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    /// The field `rseq_cs` of the thread's structure.
    field: *const AtomicU64,
}

impl Watch {
    /// Of the calling thread; `None` where the kernel and the C library tell nothing.
    pub(crate) fn of_this_thread() -> Option<Self> {
        crate::sys::rseq_field().map(|field| Self { field })
    }

    /// Watches from now on.
    pub(crate) fn begin(self) {
        self.field().store((&raw const *never_executed()).addr() as u64, Ordering::Relaxed);
    }

    /// Whether the thread had its CPU without a break since [`Watch::begin`].
    pub(crate) fn is_unbroken(self) -> bool {
        self.field().load(Ordering::Relaxed) != 0
    }

    fn field(&self) -> &AtomicU64 {
        // SAFETY: the field is within the calling thread's static storage (`Watch` is neither `Send` nor kept beyond its thread), eight
        // bytes aligned, and only written by this thread and by the kernel on its behalf.
        unsafe { &*self.field }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_interrupted_by_a_signal_sees_its_watch_broken() {
        crate::sys::install_interrupt_handler().unwrap();
        let Some(watch) = Watch::of_this_thread() else {
            panic!("this C library or kernel has no restartable sequences, on which the accounting of CPU time rests");
        };
        let (told, tell) = std::sync::mpsc::channel();
        let thread = crate::sys::thread_number();
        let other = std::thread::spawn(move || {
            tell.recv().unwrap();
            crate::sys::interrupt(thread);
        });
        // Whether this thread is switched out meanwhile is the kernel's choice; that it is not broken at once is ours.
        assert!((0..1000).any(|_| {
            watch.begin();
            watch.is_unbroken()
        }));
        watch.begin();
        told.send(()).unwrap();
        while watch.is_unbroken() {
            std::hint::spin_loop();
        }
        other.join().unwrap();
    }
}
