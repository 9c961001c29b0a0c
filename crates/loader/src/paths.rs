//! Paths of the machine: a loader that opens or asks for one gets the simulated machine's file.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use warmcore_topology::{CpuId, CpuSet, format_cpu_list};

use crate::files::SchedExt;
use crate::process::{Call, Process};

/// Calls with a path that are looked at.
pub const CALLS: [i64; 20] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_fchownat,
    libc::SYS_bind,
];

/// Those that are looked at where mounts show the machine: what would change something, and what opens the accounts of CPU time.
pub(crate) const WHERE_MOUNTED: [i64; 11] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_fchownat,
    libc::SYS_bind,
];

/// Where schedulers put the socket of their statistics. Nothing of it is made.
const STATISTICS: &str = "/var/run/scx";

/// The accounts of CPU time, which are those of the run at any moment.
const ACCOUNTS: &str = "/proc/stat";

/// Where this computer is asked to leave idle states soon, as long as the file is open.
const IDLE_LATENCY: &str = "/dev/cpu_dma_latency";
/// What is read there while nobody asks, in µs (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const NO_LATENCY: i32 = 2_000_000_000;

/// Settings of this computer that the machine's files do not stand for.
const SETTINGS: [&str; 2] = ["/proc/sys/", "/proc/irq/"];

const CPUS: &str = "/sys/devices/system/cpu/";
/// How often one has gone offline or come online (`scx_hotplug_seq`).
const CHANGES: &str = "/sys/kernel/sched_ext/hotplug_seq";

/// Text of a file that changes with the CPUs that are online.
fn hotplug_text(path: &str, (online, changes): &(CpuSet, u64)) -> Option<String> {
    if path == CHANGES {
        return Some(format!("{changes}\n"));
    }
    let name = path.strip_prefix(CPUS)?;
    if name == "online" {
        return Some(format!("{}\n", format_cpu_list(online.iter().map(|cpu| cpu.0))));
    }
    let number: u32 = name.strip_prefix("cpu")?.strip_suffix("/online")?.parse().ok()?;
    Some(format!("{}\n", u8::from(online.contains(CpuId(number)))))
}

/// What is shown of the machine.
pub struct Files<'a> {
    /// Its files.
    pub root: &'a Path,
    /// Whether they are mounted where the loader looks.
    pub are_mounted: bool,
    /// Of each CPU how long it has been busy and idle, in ns.
    pub cpu_times: &'a [(u64, u64)],
    /// The CPUs that are online, and how often one has gone offline or come online.
    pub hotplug: &'a (CpuSet, u64),
    /// What is attached.
    pub sched_ext: &'a SchedExt,
}

/// Whether a file of the simulated machine stands for a path.
fn stands_for(path: &str) -> bool {
    const FILES: [&str; 4] = ["/proc/kallsyms", "/proc/mounts", "/proc/schedstat", "/proc/config.gz"];
    path == "/sys"
        || path.starts_with("/sys/")
        || path.starts_with("/proc/sys/kernel/")
        || path.starts_with("/boot/config-")
        || FILES.contains(&path)
}

/// Answers a call of [`CALLS`]; false if it is not about the machine.
pub fn serve(process: &Process, call: &Call, files: &Files<'_>) -> io::Result<bool> {
    let number = i64::from(call.number);
    if number == libc::SYS_bind {
        return bind(process, call);
    }
    let at = matches!(
        number,
        libc::SYS_openat
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_faccessat
            | libc::SYS_faccessat2
            | libc::SYS_readlinkat
            | libc::SYS_mkdirat
            | libc::SYS_unlinkat
            | libc::SYS_fchmodat
            | libc::SYS_fchownat
    );
    let first = usize::from(at);
    let path = call.text(call.arguments[first])?;
    let arguments = &call.arguments[first + 1..];
    if path.starts_with(STATISTICS) {
        process.answer(
            call,
            match number {
                libc::SYS_mkdir
                | libc::SYS_mkdirat
                | libc::SYS_chmod
                | libc::SYS_fchmodat
                | libc::SYS_chown
                | libc::SYS_fchownat => Ok(0),
                _ => Err(libc::ENOENT),
            },
        );
        return Ok(true);
    }
    let opens = [libc::SYS_open, libc::SYS_openat].contains(&number);
    // What changes in a run is told as it is at this moment.
    let changing = match () {
        () if !opens => None,
        () if path == ACCOUNTS => Some(crate::files::cpu_times_text(files.cpu_times)),
        () if path.starts_with(CPUS) || path == CHANGES => hotplug_text(&path, files.hotplug),
        () => files.sched_ext.text(&path),
    };
    if let Some(text) = changing {
        answer_with_text(process, call, text.as_bytes())?;
        return Ok(true);
    }
    if opens && path == IDLE_LATENCY {
        answer_with_text(process, call, &NO_LATENCY.to_ne_bytes())?;
        return Ok(true);
    }
    let writes = opens && arguments[0] as i32 & libc::O_ACCMODE != libc::O_RDONLY;
    if writes && !stands_for(&path) && SETTINGS.iter().any(|directory| path.starts_with(directory)) {
        answer_with_copy(process, call, Path::new(&path))?;
        return Ok(true);
    }
    let place = files.sched_ext.place(&path);
    if !stands_for(&path) || files.are_mounted && opens && !writes && place.is_none() {
        return Ok(false);
    }
    // What leads upwards leads out of it.
    if path.split('/').any(|part| part == "..") {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let ours = format!("{}{}", files.root.display(), place.as_ref().unwrap_or(&path));
    let ours_c = CString::new(ours.as_str()).map_err(io::Error::other)?;
    match number {
        libc::SYS_open | libc::SYS_openat => {
            // A loader must not change what others are shown: what it writes, such as idle latencies and frequencies, goes to a copy.
            if writes {
                answer_with_copy(process, call, Path::new(&ours))?;
                return Ok(true);
            }
            // SAFETY: a path that ends with a zero; what is got is owned. It must not have this process wait.
            let flags = arguments[0] as i32 & (libc::O_DIRECTORY | libc::O_PATH) | libc::O_NONBLOCK | libc::O_CLOEXEC;
            let opened = unsafe { libc::open(ours_c.as_ptr(), flags) };
            if opened < 0 {
                process.answer(call, Err(last_error()));
            } else {
                // SAFETY: it was opened just now.
                let file = unsafe { OwnedFd::from_raw_fd(opened) };
                process.answer_with(call, file.as_fd());
            }
        }
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_newfstatat => {
            let flags = match number {
                libc::SYS_lstat => libc::AT_SYMLINK_NOFOLLOW,
                libc::SYS_newfstatat => arguments[1] as i32,
                _ => 0,
            };
            // SAFETY: the kernel fills the structure.
            let (result, stat) = unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                (libc::fstatat(libc::AT_FDCWD, ours_c.as_ptr(), &raw mut stat, flags), stat)
            };
            answer_with_structure(process, call, result, arguments[0], &stat)?;
        }
        libc::SYS_statx => {
            // SAFETY: as above.
            let (result, stat) = unsafe {
                let mut stat: libc::statx = std::mem::zeroed();
                let result = libc::statx(
                    libc::AT_FDCWD,
                    ours_c.as_ptr(),
                    arguments[0] as i32,
                    arguments[1] as u32,
                    &raw mut stat,
                );
                (result, stat)
            };
            answer_with_structure(process, call, result, arguments[2], &stat)?;
        }
        libc::SYS_access | libc::SYS_faccessat | libc::SYS_faccessat2 => {
            // SAFETY: a path that ends with a zero.
            let result = unsafe { libc::access(ours_c.as_ptr(), arguments[0] as i32) };
            process.answer(call, if result == 0 { Ok(0) } else { Err(last_error()) });
        }
        libc::SYS_readlink | libc::SYS_readlinkat => match std::fs::read_link(&ours) {
            Ok(target) => {
                use std::os::unix::ffi::OsStrExt as _;
                let bytes = target.as_os_str().as_bytes();
                let length = bytes.len().min(arguments[1] as usize);
                call.write(arguments[0], &bytes[..length])?;
                process.answer(call, Ok(length as i64));
            }
            Err(error) => process.answer(call, Err(error.raw_os_error().unwrap_or(libc::EINVAL))),
        },
        // Nothing of the machine is changed.
        _ => process.answer(call, Err(libc::EROFS)),
    }
    Ok(true)
}

/// Opens a copy of a file.
fn answer_with_copy(process: &Process, call: &Call, file: &Path) -> io::Result<()> {
    match std::fs::read(file) {
        Ok(text) => answer_with_text(process, call, &text),
        Err(error) => {
            process.answer(call, Err(error.raw_os_error().unwrap_or(libc::EACCES)));
            Ok(())
        }
    }
}

/// Opens a file of this content, of which nobody else knows.
fn answer_with_text(process: &Process, call: &Call, text: &[u8]) -> io::Result<()> {
    let mut file = File::from(crate::memory_file(c"told")?);
    file.write_all(text)?;
    file.rewind()?;
    process.answer_with(call, file.as_fd());
    Ok(())
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn answer_with_structure<T>(process: &Process, call: &Call, result: i32, address: u64, value: &T) -> io::Result<()> {
    if result != 0 {
        process.answer(call, Err(last_error()));
        return Ok(());
    }
    // SAFETY: a structure of the kernel's, of plain numbers, that it has filled.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) };
    call.write(address, bytes)?;
    process.answer(call, Ok(0));
    Ok(())
}

/// A socket for statistics gets a name of no file instead, through a copy of the descriptor.
fn bind(process: &Process, call: &Call) -> io::Result<bool> {
    const FAMILY_BYTES: usize = 2;
    let length = (call.arguments[2] as usize).min(110);
    let address = call.read(call.arguments[1], length)?;
    let is_unix = address.get(..FAMILY_BYTES) == Some(&(libc::AF_UNIX as u16).to_ne_bytes());
    let path = address.get(FAMILY_BYTES..).map(String::from_utf8_lossy).unwrap_or_default();
    if !is_unix || !path.starts_with(STATISTICS) {
        return Ok(false);
    }
    let socket = process.descriptor(call, call.arguments[0] as u32)?;
    let family = libc::AF_UNIX as libc::sa_family_t;
    // SAFETY: an address of this length: the kernel chooses the rest.
    let result =
        unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&family).cast(), FAMILY_BYTES as libc::socklen_t) };
    process.answer(call, if result == 0 { Ok(0) } else { Err(last_error()) });
    Ok(true)
}
