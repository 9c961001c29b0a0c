//! One boot: a guest from its start to its last frame, watched.
//!
//! A guest that panics, hangs, fills its channel or ends without a word is noticed here, killed, and reported with the
//! last lines of its console.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use warmcore_agent::plan::{Plan, Purpose};
use warmcore_agent::report::{Failed, Frame, FrameKind, Hello, read_frame};
use warmcore_agent::{CONFIG_PATH, PLAN_PATH, PROTOCOL};
use warmcore_topology::Machine;

use super::VmError;
use super::agent::agent;
use super::initramfs::Initramfs;
use super::kernel::Kernel;
use super::layout::Layout;
use super::qemu::{Execution, Guest, Qemu, Start};

/// How often a guest is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Frames that wait to be worked on; the guest waits when there are more.
const FRAMES_AHEAD: usize = 256;
/// What a guest has for sending what is there when its time is over.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// Lines of the console in an error.
const LAST_LINES: usize = 15;
/// Most that a boot may send besides trace pages, bytes: a guest that says more has gone wrong.
const MOST_TEXT: u64 = 256 << 20;
/// Most that a boot may send in all, bytes.
const MOST_BYTES: u64 = 16 << 30;

/// Where guests come from.
#[derive(Clone, Debug)]
pub struct Lab {
    /// QEMU.
    pub qemu: Qemu,
    /// The kernel.
    pub kernel: Kernel,
    /// How guests are executed.
    pub execution: Execution,
    /// Longest time a boot may take, by the host's clock.
    pub limit: Duration,
    /// Trace buffer of a run, KiB per CPU, unless an experiment says otherwise.
    pub buffer_kib: u32,
    /// sched_ext programs that runs load, and what identifies each.
    pub programs: BTreeMap<String, String>,
    /// Other kernels that schedulers name, by what was typed.
    pub kernels: BTreeMap<String, Kernel>,
}

/// What a boot is given.
pub struct Boot<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// What to do.
    pub plan: &'a Plan,
    /// Files beside the agent, the plan and the configuration.
    pub files: Initramfs,
    /// Memory besides what the kernel and its CPUs need, MiB.
    pub extra_memory_mib: u64,
}

impl Lab {
    /// Boots a guest and hands its frames over, except the first and the last, each with the first one's contents, which
    /// are returned too.
    ///
    /// # Errors
    /// Whatever goes wrong on the way to the guest's last frame; the guest is gone then.
    pub fn boot(
        &self,
        boot: Boot<'_>,
        stop: &AtomicBool,
        mut take: impl FnMut(&Hello, Frame) -> Result<(), VmError>,
    ) -> Result<Hello, VmError> {
        let layout = Layout::new(boot.machine, &self.qemu.version)?;
        let (mut guest, channel) = self.start(&layout, boot.plan, boot.files, boot.extra_memory_mib, false)?;
        let commands = matches!(boot.plan.purpose, Purpose::Command(_));
        let ask = commands.then(|| channel.try_clone()).transpose();
        let mut watch = GuestWatch {
            guest: &mut guest,
            ask: ask.map_err(|error| VmError::Start { reason: error.to_string() })?,
            frames: read_frames(channel),
            stop,
            end: Instant::now() + self.limit,
            limit: self.limit,
            over: None,
            text: 0,
            bytes: 0,
        };
        let first = watch.next()?;
        if first.kind == FrameKind::Failed {
            return Err(failure(&first)?);
        }
        let hello: Hello = document(&first)?;
        if hello.protocol != PROTOCOL {
            return Err(VmError::Protocol {
                reason: format!("the guest speaks protocol {}, not {PROTOCOL}", hello.protocol),
            });
        }
        let found = warmcore_topology::from_toml(&hello.machine)
            .map_err(|error| VmError::Protocol { reason: format!("the guest's machine: {error}") })?;
        layout.compare(boot.machine, &found)?;
        loop {
            let frame = watch.next()?;
            match frame.kind {
                FrameKind::Done => return watch.over.map_or(Ok(hello), Err),
                FrameKind::Failed => return Err(failure(&frame)?),
                _ => take(&hello, frame)?,
            }
        }
    }

    /// Runs an interactive shell in a guest, on this process' terminal.
    ///
    /// # Errors
    /// When the guest cannot be started.
    pub fn shell(&self, machine: &Machine, files: Initramfs) -> Result<(), VmError> {
        let layout = Layout::new(machine, &self.qemu.version)?;
        let plan = Plan { protocol: PROTOCOL, purpose: Purpose::Shell, runs: Vec::new() };
        let (mut guest, channel) = self.start(&layout, &plan, files, 256, true)?;
        // The shell needs no frames, but a guest whose channel is not read would wait.
        let frames = read_frames(channel);
        while frames.recv().is_ok() {}
        guest.wait()?;
        Ok(())
    }

    fn start(
        &self,
        layout: &Layout,
        plan: &Plan,
        mut files: Initramfs,
        extra_memory_mib: u64,
        interactive: bool,
    ) -> Result<(Guest, UnixStream), VmError> {
        files.program("/init", agent()?.to_vec());
        let isolated = plan.runs.first().map_or(["", ""], |run| [run.isolcpus.as_str(), run.nohz_full.as_str()]);
        let plan = serde_json::to_vec(plan).map_err(|error| VmError::Protocol { reason: error.to_string() })?;
        files.file(PLAN_PATH, plan);
        let config = self.kernel.config_text()?;
        if !config.is_empty() {
            files.file(CONFIG_PATH, config.clone().into_bytes());
            files.file(&format!("/boot/config-{}", self.kernel.release), config.into_bytes());
        }
        for directory in ["/dev", "/proc", "/sys", "/tmp", "/run"] {
            files.directory(directory);
        }
        let archive = files.archive();
        // The archive is there twice while it is unpacked.
        let memory_mib = 320 + 12 * layout.cpu_count() as u64 + 2 * (archive.len() as u64 >> 20) + extra_memory_mib;
        let start = Start {
            kernel: &self.kernel,
            layout,
            execution: self.execution,
            memory_mib,
            archive: &archive,
            interactive,
            isolated,
        };
        Guest::start(&self.qemu, &start)
    }
}

/// Reads frames in a thread of their own, so that waiting for one can end.
fn read_frames(channel: UnixStream) -> Receiver<std::io::Result<Option<Frame>>> {
    let (sender, receiver) = sync_channel(FRAMES_AHEAD);
    std::thread::spawn(move || {
        let mut channel = std::io::BufReader::with_capacity(1 << 16, channel);
        loop {
            let frame = read_frame(&mut channel);
            let last = !matches!(frame, Ok(Some(_)));
            if sender.send(frame).is_err() || last {
                return;
            }
        }
    });
    receiver
}

/// Waits for frames while looking after the guest.
struct GuestWatch<'a> {
    guest: &'a mut Guest,
    /// Where a byte asks it to end its program and to send what that left.
    ask: Option<UnixStream>,
    frames: Receiver<std::io::Result<Option<Frame>>>,
    stop: &'a AtomicBool,
    end: Instant,
    limit: Duration,
    /// Why it was asked to end.
    over: Option<VmError>,
    text: u64,
    bytes: u64,
}

impl GuestWatch<'_> {
    fn next(&mut self) -> Result<Frame, VmError> {
        loop {
            match self.frames.recv_timeout(LOOK) {
                Ok(Ok(Some(frame))) => {
                    self.count(&frame)?;
                    return Ok(frame);
                }
                Ok(Ok(None)) | Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Err(VmError::Protocol { reason: error.to_string() });
                }
                Ok(Err(_)) => return Err(self.died()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(reason) = self.guest.broken() {
                return Err(VmError::Acceleration { reason });
            }
            let is_late = Instant::now() > self.end;
            let over = match self.stop.load(Ordering::Relaxed) {
                true => VmError::Interrupted,
                false if is_late => {
                    VmError::Hung { seconds: self.limit.as_secs(), console: last_lines(&self.guest.console()) }
                }
                false => continue,
            };
            // A second stop changes nothing: what is there is on its way.
            if self.over.is_some() && !is_late {
                continue;
            }
            let asked = self.over.is_none() && self.ask.as_mut().is_some_and(|ask| ask.write_all(&[1]).is_ok());
            if !asked {
                self.guest.stop();
                return Err(self.over.take().unwrap_or(over));
            }
            (self.over, self.end) = (Some(over), Instant::now() + LAST_WORDS);
        }
    }

    fn count(&mut self, frame: &Frame) -> Result<(), VmError> {
        self.bytes += frame.payload.len() as u64;
        if frame.kind != FrameKind::TracePage {
            self.text += frame.payload.len() as u64;
        }
        if self.text > MOST_TEXT || self.bytes > MOST_BYTES {
            self.guest.stop();
            return Err(VmError::Flood { bytes: self.bytes });
        }
        Ok(())
    }

    /// The guest ended without its last frame.
    fn died(&mut self) -> VmError {
        // It is about to end: what it said last may still be on its way.
        for _ in 0..20 {
            if self.guest.ended().is_ok_and(|status| status.is_some()) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        self.guest.stop();
        let console = self.guest.console();
        let complaints = self.guest.complaints();
        if console.is_empty() && !complaints.is_empty() {
            return VmError::Start { reason: complaints.join("; ") };
        }
        let panic = console
            .iter()
            .find_map(|line| line.split_once("Kernel panic - not syncing: ").map(|(_, why)| why.to_owned()));
        VmError::Died {
            reason: panic.unwrap_or_else(|| "it ended without a word".into()),
            console: last_lines(&console),
        }
    }
}

fn last_lines(console: &[String]) -> String {
    let last = &console[console.len().saturating_sub(LAST_LINES)..];
    if last.is_empty() { "(its console is empty)".into() } else { last.join("\n") }
}

/// The document in a frame.
///
/// # Errors
/// When it is not what its kind says.
pub fn document<T: DeserializeOwned>(frame: &Frame) -> Result<T, VmError> {
    serde_json::from_slice(&frame.payload)
        .map_err(|error| VmError::Protocol { reason: format!("a frame {:?} of the guest: {error}", frame.kind) })
}

fn failure(frame: &Frame) -> Result<VmError, VmError> {
    let failed: Failed = document(frame)?;
    let reason = failed.reason;
    Ok(if failed.scheduler_ejected { VmError::Ejected { reason } } else { VmError::Guest { reason } })
}
