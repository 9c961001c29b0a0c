//! The system calls that `rustix` lacks, and nearly all unsafe code of the crate ([`crate::preemption`] has the rest).

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::thread::gettid;
use warmcore_workload::{Policy, UtilClamp};

use crate::spin::pause;

/// Scheduling attributes of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) policy: Policy,
    pub(crate) nice: i8,
    /// Slice request; 0 asks for the default.
    pub(crate) slice_ns: u64,
    /// Utilisation clamps; what is not named stays.
    pub(crate) util_clamp: UtilClamp,
}

/// The kernel's `struct sched_attr`, second version (`include/uapi/linux/sched/types.h`).
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

/// Its size in the first version, which kernels without utilisation clamps know (`SCHED_ATTR_SIZE_VER0`).
const SIZE_WITHOUT_CLAMPS: u32 = 48;

/// `SCHED_FLAG_UTIL_CLAMP_MIN` of the kernel's `include/uapi/linux/sched.h`.
const CLAMP_MIN: u64 = 0x20;
/// `SCHED_FLAG_UTIL_CLAMP_MAX` of the kernel's `include/uapi/linux/sched.h`.
const CLAMP_MAX: u64 = 0x40;

/// `SCHED_DEADLINE` of the kernel's `include/uapi/linux/sched.h`.
const SCHED_DEADLINE: u32 = 6;
/// `SCHED_EXT` of the kernel's `include/uapi/linux/sched.h`.
const SCHED_EXT: u32 = 7;

/// The attributes as the kernel takes them.
fn kernels_attributes(attributes: Attributes) -> SchedAttr {
    let policy = match attributes.policy {
        Policy::Normal => libc::SCHED_OTHER as u32,
        Policy::Batch => libc::SCHED_BATCH as u32,
        Policy::Idle => libc::SCHED_IDLE as u32,
        Policy::Ext => SCHED_EXT,
        Policy::Fifo { .. } => libc::SCHED_FIFO as u32,
        Policy::RoundRobin { .. } => libc::SCHED_RR as u32,
        Policy::Deadline(_) => SCHED_DEADLINE,
    };
    let (nice, priority) = match attributes.policy {
        Policy::Fifo { priority } | Policy::RoundRobin { priority } => (0, priority.into()),
        Policy::Deadline(_) => (0, 0),
        _ => (attributes.nice.into(), 0),
    };
    let (runtime, deadline, period) = match attributes.policy {
        Policy::Deadline(of) => (of.runtime_ns, of.deadline_ns, of.period_ns),
        Policy::Fifo { .. } | Policy::RoundRobin { .. } => (0, 0, 0),
        _ => (attributes.slice_ns, 0, 0),
    };
    let (util_min, util_max) = (attributes.util_clamp.min(), attributes.util_clamp.max());
    let flag = |bound: Option<u16>, flag| if bound.is_some() { flag } else { 0 };
    let flags = flag(util_min, CLAMP_MIN) | flag(util_max, CLAMP_MAX);
    let size = if flags == 0 { SIZE_WITHOUT_CLAMPS } else { size_of::<SchedAttr>() as u32 };
    let [util_min, util_max] = [util_min, util_max].map(|bound| bound.map_or(0, u32::from));
    SchedAttr { size, policy, flags, nice, priority, runtime, deadline, period, util_min, util_max }
}

/// Sets policy, nice value, slice and utilisation clamps of the calling thread (`sched_setattr`; the slice counts from Linux 6.12 on).
pub(crate) fn set_attributes(attributes: Attributes) -> Result<(), Errno> {
    let attr = kernels_attributes(attributes);
    // SAFETY: the kernel reads `size` bytes at the pointer, the whole structure or its beginning; it writes nothing for
    // attributes whose size it knows.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Number of the calling thread.
pub(crate) fn thread_number() -> i32 {
    gettid().as_raw_nonzero().get()
}

/// CPU time of a thread of this process, by its clock; of one of another process up to its last tick or switch, as `/proc` says. `None` if it is gone.
pub(crate) fn cpu_ns_of(thread: i32) -> Option<u64> {
    /// A clock of one thread (`CPUCLOCK_PERTHREAD_MASK`) of the scheduler's accounts (`CPUCLOCK_SCHED`), in `include/linux/posix-timers.h`.
    const THREAD_CLOCK: libc::clockid_t = 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a complete `timespec`, which the call fills.
    if unsafe { libc::clock_gettime((!thread << 3) | THREAD_CLOCK, &raw mut time) } == 0 {
        return Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    }
    let accounts = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    accounts.split_whitespace().next()?.parse().ok()
}

/// Interrupts whatever system call the thread is blocked in, of this process or of another one. Has no effect on a thread that computes.
pub(crate) fn interrupt(thread: i32) {
    // SAFETY: no pointers are passed. The signal has a handler that does nothing, installed before the first thread
    // of a run starts, so it cannot end the process; a thread that is gone gives an error that does not matter.
    unsafe {
        libc::syscall(libc::SYS_tkill, thread, libc::SIGURG);
    }
}

/// Makes [`interrupt`] end blocking calls with `EINTR`. `SIGURG` is ignored by default, so nobody depends on its
/// default action; the handler stays installed because another run may still need it.
pub(crate) fn install_interrupt_handler() -> Result<(), Errno> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    static INSTALLED: OnceLock<Result<(), Errno>> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: an all-zero `sigaction` is valid: no flags (in particular no SA_RESTART), an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the pointer is to a complete `sigaction`; the handler is a function that touches nothing, which is
        // safe at any moment.
        let result = unsafe { libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()) };
        if result == 0 { Ok(()) } else { Err(last_error()) }
    })
}

/// Has the calling thread's timers expire up to so much later than they are set for, and at least 1 ns: 0 means the default to the kernel.
pub(crate) fn set_timer_slack(slack_ns: u64) {
    // SAFETY: no pointers are passed.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns.max(1) as libc::c_ulong);
    }
}

/// Address of a new mapping of zeros that children share.
pub(crate) fn map_shared(bytes: usize) -> std::io::Result<usize> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address that the kernel chooses changes no memory that anybody uses.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(address.expose_provenance()) }
}

/// Bytes of a page. Some computers have larger ones, of which each is touched several times.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Bytes of this computer's pages.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: no pointers are passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE_BYTES)
}

/// Memory that a thread touches first again and again: its pages are given back whenever they have been touched.
///
/// The mapping stays, so that no touch needs the lock of the whole address space for writing, which threads of one process would wait for.
pub(crate) struct FreshMemory {
    address: *mut libc::c_void,
    bytes: usize,
    /// With what lies behind them.
    mapped: usize,
}

impl FreshMemory {
    /// Pages of 4 KiB, whatever the computer likes for large areas, and behind them one that nobody may touch: neighbours would be one area
    /// with one lock.
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        let memory = Self::map(bytes, bytes + PAGE_BYTES)?;
        // SAFETY: within the mapping, which is this value's own.
        unsafe {
            if libc::mprotect(memory.address.add(bytes), PAGE_BYTES, libc::PROT_NONE) != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        memory.without_large_pages();
        Ok(memory)
    }

    /// Pages of 4 KiB as `malloc` maps a large block: by one call, or two where the computer has larger pages that would fit.
    pub fn block(bytes: usize) -> std::io::Result<Self> {
        const LARGE_PAGE: usize = 2 << 20;
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let memory = Self::map(bytes, bytes)?;
        if bytes >= LARGE_PAGE {
            memory.without_large_pages();
        }
        Ok(memory)
    }

    fn map(bytes: usize, mapped: usize) -> std::io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses changes no memory that anybody uses.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { address, bytes, mapped })
    }

    /// A kernel without large pages refuses, and has none.
    fn without_large_pages(&self) {
        // SAFETY: within the mapping, which is this value's own.
        unsafe {
            libc::madvise(self.address, self.bytes, libc::MADV_NOHUGEPAGE);
        }
    }

    /// Writes to a page, by its number, and pauses ([`pause`]): a thread is back in user mode after each fault.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn touch_page(&mut self, page: usize) {
        let offset = page * PAGE_BYTES;
        assert!(offset < self.bytes, "page {page} of {} bytes", self.bytes);
        // SAFETY: within the mapping, which is this value's own.
        unsafe {
            self.address.cast::<u8>().add(offset).write_volatile(1);
        }
        pause();
    }

    /// Gives the first so many pages back, at most all, in one call.
    pub fn give_back(&mut self, pages: usize) -> std::io::Result<()> {
        let bytes = (pages * PAGE_BYTES).min(self.bytes.next_multiple_of(PAGE_BYTES));
        // SAFETY: within the mapping, which is this value's own.
        match unsafe { libc::madvise(self.address, bytes, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for FreshMemory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody else knows.
        unsafe {
            libc::munmap(self.address, self.mapped);
        }
    }
}

/// Begins a process that does `body` under that name and ends, which nobody notes ([`forget_children`]).
pub(crate) fn begin_process(name: &str, body: impl FnOnce()) -> std::io::Result<()> {
    let name = std::ffi::CString::new(name).unwrap_or_default();
    // SAFETY: the child goes on with this thread's stack and the shared heap, on which all locks are that it meets (`sync::locked`); the C
    // library makes its own usable in it.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            // SAFETY: a text with its end.
            unsafe {
                libc::prctl(libc::PR_SET_NAME, name.as_ptr());
            }
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: it ends the process, without what the parent had registered for its own end.
            unsafe { libc::_exit(0) }
        }
        _ => {
            // What it holds is the child's, whose copies of it are the same values on the shared heap.
            std::mem::forget(body);
            Ok(())
        }
    }
}

/// Has processes that this one begins vanish when they end, instead of waiting for it to look.
pub(crate) fn forget_children() {
    // SAFETY: ignoring a signal runs no code.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
}

/// Waits until no process that this one began is left.
pub(crate) fn wait_for_children() {
    // SAFETY: no status is asked for. Where children are forgotten, it returns only when none is left, with an error.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } >= 0 || last_error() == Errno::INTR {}
}

/// Voluntary and involuntary context switches of the calling thread so far (`getrusage`).
pub(crate) fn context_switches() -> (u64, u64) {
    // SAFETY: an all-zero `rusage` is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a complete `rusage`, which the call fills.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    if result == 0 { (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64) } else { (0, 0) }
}

/// Field `rseq_cs` of the structure that the calling thread shares with the kernel; `None` if none is registered.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub(crate) fn rseq_field() -> Option<*const AtomicU64> {
    /// Of `struct rseq`: where the thread runs (negative: not registered), and the field.
    const CPU_ID: usize = 4;
    const RSEQ_CS: usize = 8;
    let offset: *const isize;
    let thread: *const u8;
    // SAFETY: two loads that change nothing: of the address of glibc's `__rseq_offset` (2.35 and later; null where the C library has none,
    // because the symbol is weak), and of the thread pointer, which the ABI keeps at fs:0.
    unsafe {
        std::arch::asm!(
            ".weak __rseq_offset",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {thread}, qword ptr fs:[0]",
            offset = out(reg) offset,
            thread = out(reg) thread,
            options(nostack, preserves_flags, readonly, pure),
        );
    }
    if offset.is_null() {
        return None;
    }
    // SAFETY: where the symbol is there, its value is the distance from the thread pointer to the thread's `struct rseq`, which is there
    // for the thread's whole life, registered or not.
    let (cpu_id, field) = unsafe {
        let area = thread.offset(*offset);
        (area.add(CPU_ID).cast::<i32>().read_volatile(), area.add(RSEQ_CS).cast::<AtomicU64>())
    };
    (cpu_id >= 0).then_some(field)
}

/// Nothing is known of other C libraries.
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
pub(crate) fn rseq_field() -> Option<*const AtomicU64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn attributes_are_those_of_the_calling_thread() {
        let before = getpriority_process(None).unwrap();
        let nice = 7;
        std::thread::spawn(move || {
            set_attributes(Attributes { policy: Policy::Batch, nice, ..Attributes::default() }).unwrap();
            assert_eq!(getpriority_process(None), Ok(nice.into()));
        })
        .join()
        .unwrap();
        assert_eq!(getpriority_process(None), Ok(before), "other threads keep theirs");
    }

    #[test]
    fn the_cpu_time_of_a_thread_is_what_its_clock_says_and_that_of_another_process_what_its_accounts_say() {
        let (own, clock_ns) = (cpu_ns_of(thread_number()).unwrap(), crate::clock::thread_cpu_ns());
        assert!(own > 0 && own <= clock_ns);
        assert!(cpu_ns_of(1).is_some(), "process 1 is always there");
        assert_eq!(cpu_ns_of(0x7f_ffff), None, "the kernel gives no such number");
    }

    /// Where pages have 4 KiB.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn fresh_memory_comes_page_after_page_and_is_given_back() {
        /// Which pages are in memory (`mincore`).
        fn there(memory: &FreshMemory) -> [bool; 4] {
            let mut pages = [0_u8; 4];
            // SAFETY: a byte for each page of the mapping; the call writes nothing else.
            let result = unsafe { libc::mincore(memory.address, 4 * PAGE_BYTES, pages.as_mut_ptr()) };
            assert_eq!(result, 0);
            pages.map(|page| page & 1 == 1)
        }
        let mut memory = FreshMemory::new(4 * PAGE_BYTES).unwrap();
        assert_eq!(there(&memory), [false; 4]);
        memory.touch_page(0);
        assert_eq!(there(&memory), [true, false, false, false]);
        memory.touch_page(1);
        memory.touch_page(3);
        assert_eq!(there(&memory), [true, true, false, true]);
        memory.give_back(2).unwrap();
        assert_eq!(there(&memory), [false, false, false, true]);
        memory.give_back(usize::MAX / PAGE_BYTES).unwrap();
        assert_eq!(there(&memory), [false; 4], "at most all");
    }

    #[test]
    fn an_interrupt_ends_a_blocked_call() {
        install_interrupt_handler().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            sender.send(thread_number()).unwrap();
            crate::clock::sleep(3_600_000_000_000)
        });
        let thread = receiver.recv().unwrap();
        while !sleeper.is_finished() {
            interrupt(thread);
            std::thread::yield_now();
        }
        assert!(sleeper.join().unwrap().is_some(), "time was left");
    }
}
