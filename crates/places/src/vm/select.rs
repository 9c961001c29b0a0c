//! What a guest is made of: which QEMU, which kernel, which execution. Every choice says why.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warmcore_agent::PROTOCOL;
use warmcore_agent::plan::{Plan, Purpose};
use warmcore_agent::report::Hello;
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::settings::{number, pairs, refusal};
use warmcore_topology::{Machine, resolve};
use warmcore_workload::parse_duration;

use super::VmError;
use super::agent::agent;
use super::boot::{Boot, Lab};
use super::fetch::{Archive, cache_directory, cached};
use super::initramfs::Initramfs;
use super::kernel::{Kernel, version_refusal};
use super::qemu::{Execution, Qemu};
use crate::files::At as _;
use crate::place::DEFAULT_BUFFER_KIB;

/// Nanoseconds per instruction, as a logarithm, unless something else is asked for: 2 ns, as in the fidelity book's results. The
/// kernel's own work then weighs little, and a second of guest time does not take minutes.
pub(crate) const DEFAULT_SHIFT: u8 = 1;
/// Longest time of a boot by the host's clock, unless something else is asked for.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(900);
/// Longest time of a probing boot.
const PROBE_LIMIT: Duration = Duration::from_secs(180);
/// Longest time of a probing boot with the host's virtualisation, which takes seconds where it works.
const KVM_LIMIT: Duration = Duration::from_secs(20);
/// Kernels that are tried before giving up.
const MOST_TRIES: usize = 5;

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// An image of the user's own.
    pub kernel: Option<PathBuf>,
    /// Its configuration.
    pub config: Option<PathBuf>,
    /// Virtual time with so many nanoseconds per instruction (logarithm), whatever the host could do.
    pub virtual_time: Option<u8>,
    /// Real time, whatever the host can do.
    pub real_time: bool,
    /// Longest time of a boot.
    pub limit: Option<Duration>,
    /// Trace buffer, KiB per CPU.
    pub buffer_kib: Option<u32>,
}

const KEYS: [&str; 6] = ["kernel", "config", "virtual-time", "real-time", "boot-limit", "trace-buffer"];

/// What can be set of guests, as help texts have it.
pub const HELP: &str = "\
kernel=FILE (image, bzImage, instead of Debian's newest suitable one), config=FILE (its configuration, by default the file `config` next to it, or \
/boot/config-RELEASE), virtual-time or virtual-time=SHIFT (count instructions instead of time, each 2^SHIFT ns, 0 to 10, or 1, with idle time skipped, \
so that results do not depend on this computer's load; the default where virtualisation does not work), real-time (even when the guest is emulated; for \
shells, not for measurements), boot-limit=TIME (of a boot with all its runs; 15min), trace-buffer=MIB (of a run, per CPU, some 15 000 events each; 4)";

impl FromStr for Choice {
    type Err = String;

    /// Settings with commas between them; see [`HELP`].
    fn from_str(text: &str) -> Result<Self, String> {
        let mut choice = Self::default();
        for (key, value) in pairs(text, &[])? {
            match (key, value) {
                ("kernel", Some(file)) => choice.kernel = Some(file.into()),
                ("config", Some(file)) => choice.config = Some(file.into()),
                ("virtual-time", None) => choice.virtual_time = Some(DEFAULT_SHIFT),
                ("virtual-time", Some(shift)) => choice.virtual_time = Some(number(key, shift, 0, 10)? as u8),
                ("real-time", None) => choice.real_time = true,
                ("boot-limit", Some(time)) => {
                    let limit_ns = parse_duration(time).map_err(|error| format!("{key}={time}: {error}"))?;
                    choice.limit = Some(Duration::from_nanos(limit_ns));
                }
                ("trace-buffer", Some(mib)) => choice.buffer_kib = Some(number(key, mib, 1, 1024)? << 10),
                (key, value) => return Err(refusal("a guest", key, value, &KEYS)),
            }
        }
        if choice.config.is_some() && choice.kernel.is_none() {
            return Err("config is about the kernel that kernel=FILE names, and there is none".into());
        }
        if choice.real_time && choice.virtual_time.is_some() {
            return Err("real-time and virtual-time exclude each other".into());
        }
        Ok(choice)
    }
}

/// What a probing boot of a kernel found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// The image it is about.
    pub sha256: String,
    /// Why sched_ext programs will not load.
    pub scx_refusal: Option<String>,
}

/// What a probe of the host's virtualisation found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acceleration {
    /// Since this start of the host.
    boot_id: String,
    qemu: String,
    kernel: String,
    agent: String,
    /// Why it cannot be used; `None` if it works.
    pub refusal: Option<String>,
}

/// Brings QEMU, a kernel and an execution together, saying what it does through `note`.
///
/// # Errors
/// When one of them is not to be had.
pub fn lab(choice: &Choice, note: &dyn Fn(&str)) -> Result<Lab, VmError> {
    let qemu = Qemu::find()?;
    let kernel = match &choice.kernel {
        Some(image) => Kernel::open(image, choice.config.as_deref())?,
        None => suitable(&qemu, note)?,
    };
    let limit = choice.limit.unwrap_or(DEFAULT_LIMIT);
    let execution = match (choice.virtual_time, choice.real_time) {
        (Some(shift), _) => Execution::VirtualTime { shift },
        (None, real_time) => match acceleration(&qemu, &kernel)?.refusal {
            None => Execution::Kvm,
            Some(reason) if real_time => {
                note(&format!("emulated in real time, which suits no measurement: {reason}"));
                Execution::Emulated
            }
            Some(reason) => {
                note(&format!("emulated in virtual time: {reason}"));
                Execution::VirtualTime { shift: DEFAULT_SHIFT }
            }
        },
    };
    let buffer_kib = choice.buffer_kib.unwrap_or(DEFAULT_BUFFER_KIB);
    Ok(Lab { qemu, kernel, execution, limit, buffer_kib, programs: BTreeMap::new(), kernels: BTreeMap::new() })
}

impl Lab {
    /// The same, knowing the kernels that these schedulers name: an image, or the release of one in the cache.
    ///
    /// # Errors
    /// What is neither, or unusable.
    pub(crate) fn with_kernels(mut self, schedulers: &[SchedulerSpec]) -> Result<Self, VmError> {
        for typed in schedulers.iter().filter_map(|spec| spec.circumstances().kernel.as_ref()) {
            let kept = || Ok::<_, VmError>(cached()?.0.into_iter().find(|kernel| kernel.release == *typed));
            let kernel = match Path::new(typed).is_file() {
                true => None,
                false => kept()?,
            };
            let kernel = kernel.map_or_else(|| Kernel::open(Path::new(typed), None), Ok)?;
            self.kernels.insert(typed.clone(), kernel);
        }
        Ok(self)
    }

    /// The same with the kernel that a scheduler names, if it names one.
    ///
    /// # Errors
    /// One that was not opened: a fault of the caller.
    pub fn of(&self, scheduler: &SchedulerSpec) -> Result<Self, VmError> {
        let Some(typed) = &scheduler.circumstances().kernel else { return Ok(self.clone()) };
        let kernel = self.kernels.get(typed).cloned().ok_or_else(|| VmError::Scheduler {
            scheduler: scheduler.to_string(),
            reason: format!("the kernel {typed} does not belong to this experiment"),
        })?;
        Ok(Self { kernel, ..self.clone() })
    }
}

/// The first kernel of the cache that can load sched_ext programs; fetched if there is none.
fn suitable(qemu: &Qemu, note: &dyn Fn(&str)) -> Result<Kernel, VmError> {
    let (kernels, _) = cached()?;
    for kernel in kernels {
        if probe(qemu, &kernel, note)?.scx_refusal.is_none() {
            return Ok(kernel);
        }
    }
    fetch(qemu, note)
}

/// Fetches kernels in order of preference until one is suitable.
///
/// # Errors
/// When none is to be had, with the reasons for those that were refused.
pub fn fetch(qemu: &Qemu, note: &dyn Fn(&str)) -> Result<Kernel, VmError> {
    note("fetching a kernel from the Debian archive");
    let archive = Archive::open()?;
    let mut reasons = Vec::new();
    for release in archive.available()?.into_iter().take(MOST_TRIES) {
        let kernel = match archive.fetch(&release) {
            Ok(kernel) => kernel,
            Err(error) => {
                note(&format!("{release}: refused: {error}"));
                reasons.push(format!("{release}: {error}"));
                continue;
            }
        };
        match probe(qemu, &kernel, note)?.scx_refusal {
            None => return Ok(kernel),
            Some(reason) => reasons.push(format!("{release}: {reason}")),
        }
    }
    Err(VmError::NoKernel { reason: format!("none was suitable: {}", reasons.join("; ")) })
}

/// What a boot of the kernel shows about it; kept beside the kernel, so that it is done once.
///
/// # Errors
/// When it does not boot.
pub fn probe(qemu: &Qemu, kernel: &Kernel, note: &dyn Fn(&str)) -> Result<Probe, VmError> {
    if let Some(known) = known_probe(kernel) {
        return Ok(known);
    }
    note(&format!("{}: trying whether it boots and what it offers", kernel.release));
    let execution = Execution::VirtualTime { shift: DEFAULT_SHIFT };
    let lab = probing(qemu, kernel, execution, PROBE_LIMIT);
    let hello = report_only(&lab, &small_machine()?, &AtomicBool::new(false))?;
    let probe =
        Probe { sha256: kernel.sha256.clone(), scx_refusal: version_refusal(&kernel.release).or(hello.scx_refusal) };
    match &probe.scx_refusal {
        Some(reason) => note(&format!("{}: refused: {reason}", kernel.release)),
        None => note(&format!("{}: suitable", kernel.release)),
    }
    write(&probe_path(kernel), &probe)?;
    Ok(probe)
}

/// What an earlier probing boot of this very image found.
pub fn known_probe(kernel: &Kernel) -> Option<Probe> {
    read::<Probe>(&probe_path(kernel)).filter(|probe| probe.sha256 == kernel.sha256)
}

fn probe_path(kernel: &Kernel) -> PathBuf {
    kernel.image.with_file_name("probe.json")
}

/// Whether the host's virtualisation runs guests. What a boot showed is found out once per start of the host, QEMU, kernel and agent;
/// whether the device may be used, each time.
///
/// # Errors
/// When the cache cannot be written.
pub fn acceleration(qemu: &Qemu, kernel: &Kernel) -> Result<Acceleration, VmError> {
    acceleration_at(Path::new("/dev/kvm"), &cache_directory()?, qemu, kernel, || {
        let lab = probing(qemu, kernel, Execution::Kvm, KVM_LIMIT);
        report_only(&lab, &small_machine()?, &AtomicBool::new(false)).map(drop)
    })
}

fn acceleration_at(
    device: &Path,
    cache: &Path,
    qemu: &Qemu,
    kernel: &Kernel,
    boot: impl FnOnce() -> Result<(), VmError>,
) -> Result<Acceleration, VmError> {
    let mut found = Acceleration {
        boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        qemu: qemu.version.clone(),
        kernel: kernel.sha256.clone(),
        agent: crate::files::sha256(agent()?),
        refusal: None,
    };
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open(device) {
        found.refusal = Some(format!("{} cannot be used: {error}", device.display()));
        return Ok(found);
    }
    let path = cache.join("acceleration.json");
    let is_of_these = |known: &Acceleration| Acceleration { refusal: None, ..known.clone() } == found;
    if let Some(known) = read::<Acceleration>(&path).filter(is_of_these) {
        return Ok(known);
    }
    let refused = boot().err();
    found.refusal =
        refused.map(|error| format!("{} is there, but a guest does not run: {}", device.display(), first_line(&error)));
    write(&path, &found)?;
    Ok(found)
}

fn probing(qemu: &Qemu, kernel: &Kernel, execution: Execution, limit: Duration) -> Lab {
    Lab {
        qemu: qemu.clone(),
        kernel: kernel.clone(),
        execution,
        limit,
        buffer_kib: DEFAULT_BUFFER_KIB,
        programs: BTreeMap::new(),
        kernels: BTreeMap::new(),
    }
}

/// A boot that only reports what the guest looks like.
///
/// # Errors
/// See [`Lab::boot`].
pub(crate) fn report_only(lab: &Lab, machine: &Machine, stop: &AtomicBool) -> Result<Hello, VmError> {
    let plan = Plan { protocol: PROTOCOL, purpose: Purpose::Run, runs: Vec::new() };
    lab.boot(Boot { machine, plan: &plan, files: Initramfs::default(), extra_memory_mib: 0 }, stop, |_, _| Ok(()))
}

fn small_machine() -> Result<Machine, VmError> {
    resolve("1s1n1l2c1t").map_err(|error| VmError::Start { reason: error.to_string() })
}

fn first_line(error: &VmError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn write(path: &Path, document: &impl Serialize) -> Result<(), VmError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).at("create", parent)?;
    }
    Ok(crate::files::write_atomically(path, crate::files::pretty(document).as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that is not there, then is; a guest that does not run under one kernel, and does under another.
    #[test]
    fn only_what_a_boot_showed_is_believed_later_and_only_of_the_same_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("kvm");
        let qemu = Qemu { program: "qemu".into(), version: "1".into() };
        let kernel = |sha256: &str| Kernel {
            image: "vmlinuz".into(),
            config: None,
            release: "7.2".into(),
            sha256: sha256.into(),
        };
        let ask = |kernel: &Kernel, works: Option<bool>| {
            let boot = || match works.expect("no boot is needed") {
                true => Ok(()),
                false => Err(VmError::Interrupted),
            };
            acceleration_at(&device, directory.path(), &qemu, kernel, boot).unwrap().refusal
        };
        assert!(ask(&kernel("a"), None).unwrap().contains("cannot be used"));
        fs::write(&device, "").unwrap();
        assert!(ask(&kernel("a"), Some(false)).unwrap().contains("does not run"));
        assert!(ask(&kernel("a"), None).unwrap().contains("does not run"), "a boot's answer is kept");
        assert_eq!(ask(&kernel("b"), Some(true)), None);
        assert_eq!(ask(&kernel("b"), None), None);
        fs::remove_file(&device).unwrap();
        assert!(ask(&kernel("b"), None).is_some(), "the device is gone");
    }
}
