//! The filter of a loader's system calls.

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Where `struct seccomp_data` has the number, the kind of computer that it is a number of, and the second argument's lower half.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const SECOND_ARGUMENT: u32 = 24;

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xc000_003e;
/// Numbers of the calls with short pointers begin here (`__X32_SYSCALL_BIT`).
const SHORT_POINTERS: u32 = 0x4000_0000;

/// Where the third argument has its lower half.
const THIRD_ARGUMENT: u32 = 32;
const ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;

/// A filter that sends some calls to the listener and lets all others pass: those of the numbers, of `ioctl` those with the requests, and reads of so
/// many bytes at most. Calls by other tables of numbers (`int 0x80`, short pointers) do not exist:
/// they would come past it.
pub(super) fn filter(numbers: &[i64], requests: &[u32], longest_read: u32) -> Vec<libc::sock_filter> {
    const ABSENT: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let absent = instruction(RETURN, 0, 0, ABSENT);
    let notify = instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF);
    let mut filter = vec![
        instruction(LOAD, 0, 0, ARCHITECTURE),
        instruction(EQUAL, 1, 0, X86_64),
        absent,
        instruction(LOAD, 0, 0, NUMBER),
        instruction(AT_LEAST, 0, 1, SHORT_POINTERS),
        absent,
    ];
    for &number in numbers {
        filter.extend([instruction(EQUAL, 0, 1, number as u32), notify]);
    }
    let pass = instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);
    filter.extend([
        instruction(EQUAL, 0, 4, libc::SYS_read as u32),
        instruction(LOAD, 0, 0, THIRD_ARGUMENT),
        instruction(ABOVE, 1, 0, longest_read),
        notify,
        pass,
    ]);
    let rest = 2 * requests.len() as u8 + 1;
    filter.extend([instruction(EQUAL, 0, rest, libc::SYS_ioctl as u32), instruction(LOAD, 0, 0, SECOND_ARGUMENT)]);
    for &request in requests {
        filter.extend([instruction(EQUAL, 0, 1, request), notify]);
    }
    filter.push(pass);
    filter
}
