//! QEMU: finding it, what it can accelerate with, its command line, and one running guest.
//!
//! A guest leaves nothing behind: its initial file system and its channel are file descriptors that QEMU inherits, not
//! files, and QEMU is killed by its process id when the [`Guest`] is dropped, and by the kernel when this process dies.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use warmcore_agent::PORT_NAME;

use super::VmError;
use super::kernel::Kernel;
use super::layout::Layout;

const PROGRAM: &str = "qemu-system-x86_64";
/// Lines of the console that are kept.
const CONSOLE_LINES: usize = 400;
/// What QEMU prints when the host's virtualisation cannot run a guest. QEMU itself stays there and waits.
const KVM_BROKEN: &str = "KVM internal error";

/// How a guest's instructions are executed, and what its clocks show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// By the host's CPUs (KVM), in real time.
    Kvm,
    /// Emulated by one thread, in real time. CPUs take turns of 100 ms: for shells, not for measurements of more than one
    /// busy CPU.
    Emulated,
    /// Emulated by one thread in virtual time: each instruction takes `2^shift` ns, all CPUs counted together, and idle
    /// time is skipped. Independent of the load of the host.
    VirtualTime {
        /// Logarithm of the nanoseconds per instruction.
        shift: u8,
    },
}

impl std::fmt::Display for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kvm => write!(f, "KVM"),
            Self::Emulated => write!(f, "emulated, real time"),
            Self::VirtualTime { shift } => write!(f, "emulated, virtual time ({} ns per instruction)", 1_u32 << shift),
        }
    }
}

/// A QEMU that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Qemu {
    /// The program.
    pub program: PathBuf,
    /// Its version, as it prints it.
    pub version: String,
}

impl Qemu {
    /// Looks for it in `PATH`.
    ///
    /// # Errors
    /// When it is not there or does not run.
    pub fn find() -> Result<Self, VmError> {
        let output = Command::new(PROGRAM).arg("--version").output();
        let output = output.map_err(|error| VmError::NoQemu { reason: format!("cannot run {PROGRAM}: {error}") })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().next().and_then(|line| line.strip_prefix("QEMU emulator version "));
        let version = version.and_then(|rest| rest.split_whitespace().next());
        let version = version.ok_or_else(|| VmError::NoQemu { reason: format!("{PROGRAM} --version says nothing") })?;
        Ok(Self { program: PROGRAM.into(), version: version.to_owned() })
    }
}

/// What a guest is started with.
pub struct Start<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// CPUs and nodes.
    pub layout: &'a Layout,
    /// How it is executed.
    pub execution: Execution,
    /// Memory.
    pub memory_mib: u64,
    /// The initial file system.
    pub archive: &'a [u8],
    /// Whether console and keyboard are this process' own.
    pub interactive: bool,
    /// CPUs of `isolcpus` and `nohz_full`, as lists; empty where there are none.
    pub isolated: [&'a str; 2],
}

/// A running guest.
pub struct Guest {
    child: Child,
    console: Arc<Mutex<VecDeque<String>>>,
    complaints: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Guest {
    /// Starts a guest. Returns it with its channel.
    ///
    /// # Errors
    /// When QEMU cannot be started or memory for the initial file system not be had.
    pub fn start(qemu: &Qemu, start: &Start<'_>) -> Result<(Self, UnixStream), VmError> {
        let failed =
            |what: &'static str| move |error: std::io::Error| VmError::Start { reason: format!("{what}: {error}") };
        let archive = memory_file(start.archive).map_err(failed("initial file system"))?;
        let (ours, theirs) = UnixStream::pair().map_err(failed("channel"))?;
        let theirs = OwnedFd::from(theirs);
        let mut command = Command::new(&qemu.program);
        command.args(arguments(start, archive.as_raw_fd(), theirs.as_raw_fd()));
        if start.interactive {
            command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::piped());
        } else {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let parent = rustix::process::getpid();
        let inherited = [archive.as_raw_fd(), theirs.as_raw_fd()];
        // SAFETY: between fork and exec only system calls are made, on descriptors that stay open until after the spawn.
        unsafe {
            command.pre_exec(move || {
                for descriptor in inherited {
                    let descriptor = std::os::fd::BorrowedFd::borrow_raw(descriptor);
                    fcntl_setfd(descriptor, fcntl_getfd(descriptor)? - FdFlags::CLOEXEC)?;
                }
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // The parent may have died before the line above.
                if getppid() == Some(parent) { Ok(()) } else { Err(std::io::Error::other("the parent is gone")) }
            });
        }
        let mut child = command.spawn().map_err(failed("qemu"))?;
        let (console, complaints) = (Arc::default(), Arc::default());
        let mut readers = Vec::new();
        if let Some(out) = child.stdout.take() {
            readers.push(read_lines(out, Arc::clone(&console)));
        }
        if let Some(errors) = child.stderr.take() {
            readers.push(read_lines(errors, Arc::clone(&complaints)));
        }
        Ok((Self { child, console, complaints, readers }, ours))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and how.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, VmError> {
        self.child.try_wait().map_err(|error| VmError::Start { reason: format!("waiting for qemu: {error}") })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn wait(&mut self) -> Result<ExitStatus, VmError> {
        self.child.wait().map_err(|error| VmError::Start { reason: format!("waiting for qemu: {error}") })
    }

    /// Ends it and waits until all it said is read.
    pub fn stop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }

    /// The last lines of its console.
    pub fn console(&self) -> Vec<String> {
        self.console.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// What QEMU itself complained of.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// How the host's virtualisation gave up on it, if it did: the line that says so, without the registers behind it.
    pub(crate) fn broken(&self) -> Option<String> {
        self.complaints().into_iter().find(|line| line.contains(KVM_BROKEN))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stop();
    }
}

fn memory_file(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let file = memfd_create("warmcore-initramfs", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Keeps the last lines of a stream.
fn read_lines(stream: impl Read + Send + 'static, lines: Arc<Mutex<VecDeque<String>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text: String = String::from_utf8_lossy(&line).chars().filter(|c| !c.is_control()).collect();
            line.clear();
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == CONSOLE_LINES {
                lines.pop_front();
            }
            lines.push_back(text);
        }
    })
}

/// The kernel's command line: everything that could hide a fault ends in a panic, and a panic ends the guest.
fn kernel_arguments(start: &Start<'_>) -> String {
    let mut words = vec![
        "console=ttyS0",
        "panic=-1",
        "oops=panic",
        "sysctl.vm.panic_on_oom=1",
        // Emulated CPUs have no faults to mitigate, and one clock.
        "mitigations=off",
        "tsc=reliable",
        "transparent_hugepage=never",
        "nowatchdog",
        "random.trust_cpu=on",
        "printk.time=1",
    ];
    words.push(if start.interactive { "loglevel=5" } else { "quiet loglevel=4" });
    let parameter = |(name, list): (&str, &str)| if list.is_empty() { String::new() } else { format!(" {name}{list}") };
    let [domains, ticks] = start.isolated;
    words.join(" ") + &parameter(("isolcpus=domain,", domains)) + &parameter(("nohz_full=", ticks))
}

/// The emulated CPU. Placed caches are only seen by a guest that takes it for Intel's: the other kind lists sharing in a leaf
/// that comes with a feature (`topoext`) QEMU does not emulate. Up to this level there is no leaf 0x1f, on which QEMU 10.0
/// stops (`encode_topo_cpuid1f`) when it has modules.
fn emulated_cpu(layout: &Layout) -> String {
    let placed = if layout.machine_options().is_empty() { "" } else { ",vendor=GenuineIntel,level=0x16" };
    format!("max,la57=off{placed}")
}

fn arguments(start: &Start<'_>, archive: i32, channel: i32) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"].map(String::from).into();
    arguments.extend(["-machine".into(), format!("q35{}", start.layout.machine_options())]);
    match start.execution {
        Execution::Kvm => arguments.extend(["-accel", "kvm", "-cpu", "max"].map(String::from)),
        Execution::Emulated => {
            arguments.extend(["-accel", "tcg,thread=single", "-cpu"].map(String::from));
            arguments.push(emulated_cpu(start.layout));
        }
        Execution::VirtualTime { shift } => {
            arguments.extend(["-accel", "tcg,thread=single", "-cpu"].map(String::from));
            arguments.push(emulated_cpu(start.layout));
            arguments.extend(["-icount".into(), format!("shift={shift},sleep=off")]);
            arguments.extend(["-rtc".into(), "clock=vm,base=2026-01-01".into()]);
        }
    }
    arguments.extend(start.layout.arguments(start.memory_mib));
    arguments.extend(["-kernel".into(), start.kernel.image.display().to_string()]);
    arguments.extend(["-initrd".into(), format!("/proc/self/fd/{archive}")]);
    arguments.extend(["-append".into(), kernel_arguments(start)]);
    arguments.extend(["-serial".into(), if start.interactive { "mon:stdio" } else { "stdio" }.into()]);
    arguments.extend(["-chardev".into(), format!("socket,id=frames,fd={channel}")]);
    arguments.extend(["-device".into(), "virtio-serial-pci".into()]);
    arguments.extend(["-device".into(), format!("virtserialport,chardev=frames,name={PORT_NAME}")]);
    arguments
}
