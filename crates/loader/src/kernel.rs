//! The kernel that a loader is shown: release, configuration and type information, of an image or of this computer.

use std::io::Read as _;
use std::sync::Arc;

use object::{Object as _, ObjectSection as _};
use thiserror::Error;
use warmcore_bpf::btf::{Btf, BtfError};
use warmcore_scx::bytecode::{Layout, LayoutError};

/// Bytes of the longest image that is unpacked: 1 GiB, of which a kernel without its debugger's information has a tenth.
const MAX_IMAGE_BYTES: u64 = 1 << 30;

/// Why a kernel cannot be shown.
#[derive(Debug, Error)]
pub enum KernelError {
    /// Its image cannot be read.
    #[error("the kernel image cannot be unpacked: {0}")]
    Image(String),
    /// Its type information is broken.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// It has no sched_ext.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// A kernel, as far as programs and their loaders see it.
#[derive(Clone, Debug)]
pub struct TargetKernel {
    /// `uname -r`.
    pub release: String,
    /// Text of its configuration.
    pub configuration: String,
    /// Its type information as bytes, for loaders.
    pub types: Arc<[u8]>,
    /// The same, read.
    pub btf: Arc<Btf>,
    /// Where members lie.
    pub layout: Arc<Layout>,
}

impl TargetKernel {
    /// From type information.
    ///
    /// # Errors
    /// When it is broken, or of a kernel without sched_ext.
    pub fn new(release: &str, configuration: &str, types: &[u8]) -> Result<Self, KernelError> {
        let btf = Btf::parse(types.to_vec())?;
        let layout = Layout::new(&btf)?;
        Ok(Self {
            release: release.to_owned(),
            configuration: configuration.to_owned(),
            types: types.into(),
            btf: Arc::new(btf),
            layout: Arc::new(layout),
        })
    }

    /// Whether functions can be traced in it.
    pub(crate) fn traces_functions(&self) -> bool {
        self.configuration.lines().any(|line| line == "CONFIG_FUNCTION_TRACER=y")
    }

    /// The same built with so many ticks per second, which loaders read in its configuration.
    #[must_use]
    pub fn with_hz(&self, hz: u32) -> Self {
        Self { configuration: with_hz(&self.configuration, hz), ..self.clone() }
    }

    /// From an image that can be booted.
    ///
    /// # Errors
    /// As above, and when the image is packed in an unknown way.
    pub fn from_image(release: &str, configuration: &str, image: &[u8]) -> Result<Self, KernelError> {
        Self::new(release, configuration, &types_of_image(image)?)
    }
}

/// Unpacks a bzImage (`Documentation/arch/x86/boot.rst`: `setup_sects`, `payload_offset`, `payload_length`) and takes the section `.BTF`.
fn types_of_image(image: &[u8]) -> Result<Vec<u8>, KernelError> {
    let wrong = |what: &str| KernelError::Image(what.to_owned());
    let word =
        |at: usize| image.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().expect("four bytes")) as usize);
    let (Some(&sectors), Some(offset), Some(length)) = (image.get(0x1f1), word(0x248), word(0x24c)) else {
        return Err(wrong("it is too short"));
    };
    let start = (usize::from(sectors) + 1) * 512 + offset;
    let payload = image.get(start..start.saturating_add(length)).ok_or_else(|| wrong("it is cut off"))?;
    // The size of what was packed stands behind it and is no part of the stream.
    let packed = &payload[..payload.len().saturating_sub(4)];
    let unpacked = match packed {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut out = Vec::new();
            let decoder = zstd::Decoder::new(packed).map(|decoder| decoder.single_frame());
            decoder
                .and_then(|decoder| decoder.take(MAX_IMAGE_BYTES).read_to_end(&mut out))
                .map_err(|error| wrong(&error.to_string()))?;
            out
        }
        [0x1f, 0x8b, ..] => {
            let mut out = Vec::new();
            let decoder = flate2::read::GzDecoder::new(packed);
            decoder.take(MAX_IMAGE_BYTES).read_to_end(&mut out).map_err(|error| wrong(&error.to_string()))?;
            out
        }
        _ => return Err(wrong("it is packed with neither zstd nor gzip")),
    };
    if unpacked.len() as u64 >= MAX_IMAGE_BYTES {
        return Err(wrong("it is longer than any kernel"));
    }
    let file = object::File::parse(&*unpacked).map_err(|error| wrong(&error.to_string()))?;
    let section = file.section_by_name(".BTF").ok_or_else(|| wrong("it has no type information"))?;
    section.data().map(<[u8]>::to_vec).map_err(|error| wrong(&error.to_string()))
}

/// A configuration with so many ticks per second (`kernel/Kconfig.hz`).
fn with_hz(configuration: &str, hz: u32) -> String {
    let line = |line: &str| {
        let name = line.strip_prefix("# ").unwrap_or(line).split(['=', ' ']).next().unwrap_or_default();
        match name.strip_prefix("CONFIG_HZ") {
            Some("") => format!("{name}={hz}\n"),
            Some("_100" | "_250" | "_300" | "_1000") if name.ends_with(&format!("_{hz}")) => format!("{name}=y\n"),
            Some("_100" | "_250" | "_300" | "_1000") => format!("# {name} is not set\n"),
            _ => format!("{line}\n"),
        }
    };
    configuration.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_the_ticks_that_the_simulated_kernel_has() {
        let built = "# CONFIG_HZ_PERIODIC is not set\n# CONFIG_HZ_100 is not set\nCONFIG_HZ_250=y\n# CONFIG_HZ_300 is not set\n\
                     # CONFIG_HZ_1000 is not set\nCONFIG_HZ=250\nCONFIG_SCHED_HRTICK=y\n";
        assert_eq!(with_hz(built, 250), built);
        let faster = built
            .replace("CONFIG_HZ_250=y", "# CONFIG_HZ_250 is not set")
            .replace("# CONFIG_HZ_1000 is not set", "CONFIG_HZ_1000=y")
            .replace("CONFIG_HZ=250", "CONFIG_HZ=1000");
        assert_eq!(with_hz(built, 1000), faster);
        assert!(
            with_hz(built, 333).contains("# CONFIG_HZ_250 is not set") && with_hz(built, 333).contains("CONFIG_HZ=333")
        );
    }
}
