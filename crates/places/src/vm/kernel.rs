//! Kernels for guests: an image with its configuration, checked before it is booted.
//!
//! What an image must be: `Documentation/arch/x86/boot.rst` of the kernel. Besides, libbpf wants to read the configuration
//! of the running kernel, and cannot understand the version of a release candidate (`7.3` instead of `7.3.0`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::VmError;
use crate::files::{read_bytes, sha256, text_of_file};

/// Options that a guest cannot do without.
const REQUIRED: [(&str, &str); 12] = [
    ("SMP", "several CPUs"),
    ("NUMA", "NUMA nodes"),
    ("BLK_DEV_INITRD", "an initial file system"),
    ("DEVTMPFS", "device files"),
    ("TMPFS", "temporary files"),
    ("VIRTIO_PCI", "the channel to the host"),
    ("VIRTIO_CONSOLE", "the channel to the host"),
    ("SERIAL_8250_CONSOLE", "messages"),
    ("EVENT_TRACING", "scheduling events"),
    ("DEBUG_FS", "the scheduler's settings"),
    ("FUTEX", "locks"),
    ("SCHED_MC", "scheduling domains of LLCs"),
];

/// A kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kernel {
    /// The image.
    pub image: PathBuf,
    /// Its configuration, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// `uname -r` of it.
    pub release: String,
    /// Identifies the image.
    pub sha256: String,
}

/// What a kernel can do, from its configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Abilities {
    /// Ticks per second.
    pub hz: Option<u64>,
    /// `CONFIG_SCHED_CACHE`.
    pub cache_aware: bool,
    /// `CONFIG_SCHED_CLASS_EXT` with type information.
    pub sched_ext: bool,
    /// `CONFIG_NUMA_BALANCING`.
    pub numa_balancing: bool,
}

impl Kernel {
    /// The same kernel, here and now.
    ///
    /// # Errors
    /// When its image is gone or is another one now.
    pub fn reopen(&self) -> Result<Self, VmError> {
        let kernel = Self::open(&self.image, self.config.as_deref())?;
        if kernel.sha256 != self.sha256 {
            let what = format!("{} is another kernel ({}) now", self.image.display(), kernel.release);
            return Err(VmError::Changed { what });
        }
        Ok(kernel)
    }

    /// The kernel in these files.
    ///
    /// # Errors
    /// What is no kernel image for x86-64, cut off, or lacks what a guest needs.
    pub fn open(image: &Path, config: Option<&Path>) -> Result<Self, VmError> {
        let refuse = |reason: String| VmError::Kernel { path: image.to_path_buf(), reason };
        let bytes = read_bytes(image).map_err(|error| refuse(format!("cannot read it: {}", error.source)))?;
        let release = release_of(&bytes).map_err(refuse)?;
        let beside = image.with_file_name("config");
        let in_boot = PathBuf::from(format!("/boot/config-{release}"));
        let config = match config {
            Some(path) => Some(path.to_path_buf()),
            None => [beside, in_boot].into_iter().find(|path| path.is_file()),
        };
        let kernel = Self { image: image.to_path_buf(), config, release, sha256: sha256(&bytes) };
        let text = kernel.config_text()?;
        if !text.is_empty() {
            for (option, purpose) in REQUIRED {
                if !is_set(&text, option) {
                    return Err(refuse(format!("its configuration lacks CONFIG_{option}=y, needed for {purpose}")));
                }
            }
        }
        Ok(kernel)
    }

    /// Its configuration; empty when there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn config_text(&self) -> Result<String, VmError> {
        let Some(path) = &self.config else { return Ok(String::new()) };
        let refuse = |error| VmError::Kernel { path: path.clone(), reason: format!("cannot read it: {error}") };
        text_of_file(path).map_err(refuse)
    }

    /// What it can do.
    ///
    /// # Errors
    /// When the configuration cannot be read.
    pub fn abilities(&self) -> Result<Abilities, VmError> {
        let text = self.config_text()?;
        let hz = text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ="));
        Ok(Abilities {
            hz: hz.and_then(|value| value.parse().ok()),
            cache_aware: is_set(&text, "SCHED_CACHE"),
            sched_ext: is_set(&text, "SCHED_CLASS_EXT") && is_set(&text, "DEBUG_INFO_BTF"),
            numa_balancing: is_set(&text, "NUMA_BALANCING"),
        })
    }
}

fn is_set(config: &str, option: &str) -> bool {
    config.lines().any(|line| line.strip_prefix("CONFIG_").and_then(|line| line.strip_prefix(option)) == Some("=y"))
}

/// The version in an image's header, after checking that it is a whole image for x86-64.
fn release_of(bytes: &[u8]) -> Result<String, String> {
    let half = |at: usize| bytes.get(at..at + 2).map(|two| u16::from_le_bytes([two[0], two[1]]));
    if bytes.get(0x38..0x3c) == Some(b"ARM\x64") {
        return Err("it is a kernel for arm64; guests are x86-64 machines".into());
    }
    if bytes.starts_with(b"\x7fELF") {
        return Err("it is an uncompressed kernel (vmlinux); give the bootable image (bzImage, vmlinuz)".into());
    }
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err("it is not a kernel image: the header's signature is missing".into());
    }
    if half(0x236).is_none_or(|flags| flags & 1 == 0) {
        return Err("it is a 32-bit kernel; guests are x86-64 machines".into());
    }
    let setup_sectors = bytes.get(0x1f1).map_or(0, |sectors| usize::from(*sectors));
    let paragraphs = bytes.get(0x1f4..0x1f8).map_or(0, |four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let length = (setup_sectors + 1) * 512 + paragraphs as usize * 16;
    if bytes.len() < length {
        return Err(format!("it is cut off: {} bytes of {length}", bytes.len()));
    }
    let at = 0x200 + usize::from(half(0x20e).unwrap_or(0));
    let text: Vec<u8> = bytes.get(at..).unwrap_or_default().iter().copied().take(200).take_while(|c| *c != 0).collect();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split_whitespace().next().map(str::to_owned).ok_or_else(|| "its header states no version".into())
}

/// Version as numbers, for order: `7.2.13+deb14-cloud-amd64` is 7, 2, 13.
pub(crate) fn version_numbers(release: &str) -> Vec<u32> {
    let version = release.split(['+', '-', '~', '_']).next().unwrap_or_default();
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

/// The series that the simulator's schedulers are models of: kernels of it are preferred to newer ones, because what is
/// compared should be the same thing.
const MODELLED: [u32; 2] = [7, 2];

/// Order in which kernels are tried: the modelled series first, newest first.
pub fn preference(release: &str) -> impl Ord + use<> {
    let numbers = version_numbers(release);
    std::cmp::Reverse((numbers.starts_with(&MODELLED), numbers, release.to_owned()))
}

/// Why libbpf would not understand this kernel's version, if so.
pub(crate) fn version_refusal(release: &str) -> Option<String> {
    (version_numbers(release).len() < 3).then(|| {
        format!("`{release}` is the version of a release candidate, which libbpf cannot read: it refuses programs")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The smallest image that passes.
    fn image() -> Vec<u8> {
        let mut bytes = vec![0_u8; 4096];
        bytes[0x1f1] = 1;
        bytes[0x1f4] = 192;
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x236] = 1;
        bytes[0x20f] = 0x02;
        bytes[0x400..0x406].copy_from_slice(b"7.2.13");
        bytes
    }

    #[test]
    fn an_image_states_its_version() {
        assert_eq!(release_of(&image()).unwrap(), "7.2.13");
    }

    #[test]
    fn what_is_no_whole_image_is_refused_with_the_reason() {
        let whole = image();
        assert!(release_of(&whole[..3000]).unwrap_err().contains("cut off: 3000 bytes of 4096"));
        assert!(release_of(b"#!/bin/sh").unwrap_err().contains("not a kernel image"));
        assert!(release_of(b"").unwrap_err().contains("not a kernel image"));
        assert!(release_of(b"\x7fELF\x02\x01").unwrap_err().contains("vmlinux"));
        let mut arm = whole.clone();
        arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
        assert!(release_of(&arm).unwrap_err().contains("arm64"));
        let mut narrow = whole;
        narrow[0x236] = 0;
        assert!(release_of(&narrow).unwrap_err().contains("32-bit"));
    }

    #[test]
    fn a_configuration_that_lacks_something_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let (image_path, config) = (directory.path().join("vmlinuz"), directory.path().join("config"));
        fs::write(&image_path, image()).unwrap();
        fs::write(&config, "CONFIG_SMP=y\nCONFIG_NUMA=y\n").unwrap();
        let error = Kernel::open(&image_path, None).unwrap_err().to_string();
        assert!(error.contains("CONFIG_BLK_DEV_INITRD=y"), "{error}");
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert_eq!(version_numbers("7.2.13+deb14-cloud-amd64"), [7, 2, 13]);
        assert!(version_numbers("7.2.9") < version_numbers("7.2.13"));
        let mut releases = ["7.2.9", "7.3.4", "7.2.13", "7.1.20"];
        releases.sort_by_key(|release| preference(release));
        assert_eq!(releases, ["7.2.13", "7.2.9", "7.3.4", "7.1.20"]);
        assert!(version_refusal("7.3-cloud-amd64").is_some());
        assert_eq!(version_refusal("7.2.13+deb14-cloud-amd64"), None);
    }
}
