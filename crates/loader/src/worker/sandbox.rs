//! What a process of work is kept to: system calls, descriptors, memory, CPU time.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use super::{CRASH, HEAD_BYTES, Limits, PIPE};

/// What work needs of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sandbox {
    /// Memory, and its messages: no files, sockets, programs, processes, executable memory.
    Computing,
    /// It answers a loader: also files, a look at that process, and code that is made of its programs. No sockets, programs or processes of its own. The
    /// loader is a program that runs with the user's rights in any case.
    Supervising,
}

/// Calls of [`Sandbox::Computing`], besides memory.
const COMPUTING: [i64; 19] = [
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_futex,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
];

/// What [`Sandbox::Supervising`] has besides.
const SUPERVISING: [i64; 51] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_ioctl,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_memfd_create,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_bind,
    libc::SYS_uname,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_sysinfo,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_epoll_ctl,
    libc::SYS_prctl,
];

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const HAS_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// Where `struct seccomp_data` has the number of the call, the kind of computer, and the lower half of an argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(number: u32) -> u32 {
    16 + 8 * number
}

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xc000_003e;

/// Has the kernel refuse all calls but those of a sandbox, for ever.
pub(super) fn filter(sandbox: Sandbox) -> io::Result<()> {
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = vec![
        instruction(LOAD, 0, 0, ARCHITECTURE),
        instruction(EQUAL, 1, 0, X86_64),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(LOAD, 0, 0, NUMBER),
    ];
    let more: &[i64] = if sandbox == Sandbox::Supervising { &SUPERVISING } else { &[] };
    for &number in COMPUTING.iter().chain(more) {
        filter.push(instruction(EQUAL, 0, 1, number as u32));
        filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    }
    if sandbox == Sandbox::Supervising {
        filter.push(instruction(EQUAL, 0, 1, libc::SYS_mprotect as u32));
        filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    }
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        filter.push(instruction(EQUAL, 0, 4, number as u32));
        filter.push(instruction(LOAD, 0, 0, argument(2)));
        filter.push(instruction(HAS_BIT, 1, 0, libc::PROT_EXEC as u32));
        filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
        filter.push(instruction(RETURN, 0, 0, REFUSE));
    }
    // A program that gives up sends itself a signal.
    filter.push(instruction(EQUAL, 0, 4, libc::SYS_tgkill as u32));
    filter.push(instruction(LOAD, 0, 0, argument(0)));
    filter.push(instruction(EQUAL, 0, 1, std::process::id()));
    filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(instruction(RETURN, 0, 0, REFUSE));
    filter.push(instruction(RETURN, 0, 0, REFUSE));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: system calls whose arguments live as long as they take.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Work that computes keeps its pipe, and what it prints to; work that supervises keeps all that it holds.
pub(super) fn keep_descriptors(pipe: &mut File, sandbox: Sandbox) -> io::Result<()> {
    // SAFETY: descriptors that are open; those that are closed are not used any more: a process that computes has what they led to in memory.
    unsafe {
        if sandbox == Sandbox::Computing {
            let old = pipe.as_raw_fd();
            if old != PIPE {
                if libc::dup2(old, PIPE) < 0 {
                    return Err(io::Error::last_os_error());
                }
                let _closed_below: RawFd = std::mem::replace(pipe, File::from_raw_fd(PIPE)).into_raw_fd();
            }
            libc::close(0);
            if libc::syscall(libc::SYS_close_range, PIPE + 1, u32::MAX, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Bounds of memory and CPU time, no memory images, and the first to go where a computer's memory ends.
pub(super) fn limit(limits: &Limits) -> io::Result<()> {
    const GRACE_S: u64 = 5;
    let seconds = limits.cpu.as_secs().max(1);
    let space = pages_of("self", 0).map_or(libc::RLIM_INFINITY, |pages| pages * PAGE + limits.memory_bytes);
    for (resource, soft, hard) in
        [(libc::RLIMIT_AS, space, space), (libc::RLIMIT_CPU, seconds, seconds + GRACE_S), (libc::RLIMIT_CORE, 0, 0)]
    {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: a structure that lives as long as the call.
        if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // Without it another process may be ended where memory ends: no reason not to begin.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

const PAGE: u64 = 4096;

/// Most memory that work may have on this computer: three quarters of it.
pub(super) fn most_memory() -> u64 {
    // SAFETY: a plain call.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).map_or(u64::MAX, |pages| pages * PAGE / 4 * 3)
}

/// A number of `/proc/PID/statm`.
fn pages_of(process: &str, field: usize) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    text.split_whitespace().nth(field)?.parse().ok()
}

/// Memory that is a process's own, in bytes: what it was given when it was forked, or since, and what it shares with its loader.
pub(super) fn own_memory(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let of = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some((of("RssAnon:")? + of("RssShmem:")?) << 10)
}

/// CPU time of a process, in hundredths of a second.
pub(super) fn cpu_ticks(process: libc::pid_t) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name may hold anything; behind it are the state, then numbers.
    let mut numbers = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || numbers.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Where a fault is told of.
static TELL: AtomicI32 = AtomicI32::new(-1);

const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// Has the process tell where it was when the processor refused to go on, and end then.
pub(super) fn catch_faults(pipe: RawFd) {
    const STACK_BYTES: usize = 64 << 10;
    TELL.store(pipe, Ordering::Relaxed);
    let stack = Box::leak(vec![0u8; STACK_BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: the stack is never freed; the handler has the signature that the flags ask for.
    unsafe {
        libc::sigaltstack(&raw const stack, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = tell as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        for fault in FAULTS {
            libc::sigaction(fault, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Sends the address; the same instruction then ends the process.
extern "C" fn tell(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands in the state of the thread.
    let at = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    let mut message = [0; HEAD_BYTES + 8];
    message[0] = CRASH;
    message[1] = 8;
    message[HEAD_BYTES..].copy_from_slice(&at.to_le_bytes());
    // SAFETY: a plain system call on bytes of ours.
    unsafe { libc::write(TELL.load(Ordering::Relaxed), message.as_ptr().cast(), message.len()) };
}

pub(super) fn signal_name(number: i32) -> String {
    const NAMES: [(i32, &str); 9] = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGXCPU, "SIGXCPU"),
    ];
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}
