//! Memory that processes share after a fork: the heap of a program that runs the processes of a workload as processes.
//!
//! What tasks of several processes meet at (locks, queues of waiting tasks, the register of threads) are ordinary values on the heap.
//! A program that makes a [`SharedHeap`] its global allocator and calls [`SharedHeap::share`] has its heap from then on in a mapping
//! that children inherit and share, at the same addresses. What was allocated before stays each process' own.
//!
//! Memory that is given back is reused only if it was the last that was taken: a run of a workload allocates little and ends soon.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

/// Room in the mapping: address space, not memory, until it is written to.
const BYTES: usize = 1 << 30;

/// A global allocator whose memory can be shared with children.
#[derive(Debug)]
pub struct SharedHeap {
    /// Address of the mapping; 0 as long as nothing is shared. The mapping begins with the address of its first free byte.
    base: AtomicUsize,
}

impl SharedHeap {
    /// Nothing is shared yet: memory is the system's.
    #[must_use]
    pub const fn new() -> Self {
        Self { base: AtomicUsize::new(0) }
    }

    /// From now on memory is in a mapping that children share. Does nothing the second time.
    ///
    /// # Errors
    /// When there is no room for the mapping.
    pub fn share(&self) -> std::io::Result<()> {
        if self.base.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let base = sys::map_shared(BYTES)?;
        self.next(base).store(base + size_of::<AtomicUsize>(), Ordering::Release);
        self.base.store(base, Ordering::Release);
        Ok(())
    }

    /// Whether the calling program's memory is here at all, and shared.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let base = self.base.load(Ordering::Acquire);
        // A heap that is nobody's allocator has nothing in it.
        let probe = Box::new(0_u64);
        base != 0 && (base..base + BYTES).contains(&(&raw const *probe).addr())
    }

    /// The address of the first free byte, which all processes share.
    fn next(&self, base: usize) -> &AtomicUsize {
        // SAFETY: the mapping of `BYTES` at `base` is never unmapped, its first word is only used as this atomic, and pages are aligned.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicUsize>(base) }
    }
}

impl Default for SharedHeap {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: memory comes either from the system's allocator, which gets back what is outside the mapping, or from the mapping, of which every
// byte is handed out once: `next` only grows past what was handed out, except that the last block may be taken back by whoever had it.
unsafe impl GlobalAlloc for SharedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.base.load(Ordering::Acquire);
        if base == 0 {
            // SAFETY: the caller's promises are those that the system's allocator asks for.
            return unsafe { System.alloc(layout) };
        }
        let next = self.next(base);
        let mut free = next.load(Ordering::Relaxed);
        loop {
            let start = free.next_multiple_of(layout.align());
            let Some(end) = start.checked_add(layout.size()).filter(|end| *end <= base + BYTES) else {
                return std::ptr::null_mut();
            };
            match next.compare_exchange_weak(free, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return std::ptr::with_exposed_provenance_mut(start),
                Err(now) => free = now,
            }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let base = self.base.load(Ordering::Acquire);
        let start = pointer.addr();
        if base == 0 || !(base..base + BYTES).contains(&start) {
            // SAFETY: it is not from the mapping, so it is the system's, and the caller promises the rest.
            return unsafe { System.dealloc(pointer, layout) };
        }
        let _ = self.next(base).compare_exchange(start + layout.size(), start, Ordering::Relaxed, Ordering::Relaxed);
    }
}
