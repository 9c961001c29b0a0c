//! Debian's kernels, through the system's own package manager.
//!
//! `apt-get` runs with directories of its own below the cache, so the system's package lists, sources and cache stay as
//! they are, and nothing is installed: packages are unpacked. The archive's address is the one the system's own sources
//! name. Fetched are the newest "cloud" kernels: small, and with cache-aware scheduling and sched_ext since 7.2.
//!
//! Those of the series that the simulator models are preferred.
//!
//! Since 7.2 an image is `linux-binary-…` (vmlinuz) and `linux-base-…` (configuration); their versions rotate, so the
//! newest listed ones are taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::VmError;
use super::kernel::{Kernel, preference, version_numbers};
use crate::files::At as _;

/// Suites with kernels that are new enough, besides the system's own.
const SUITES: [&str; 3] = ["trixie-backports", "forky", "sid"];
/// First version with both schedulers.
const OLDEST: [u32; 2] = [7, 2];
/// Where Debian keeps its keys.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The cache of this program: `$XDG_CACHE_HOME/warmcore` or `~/.cache/warmcore`.
///
/// # Errors
/// When neither is set.
pub fn cache_directory() -> Result<PathBuf, VmError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("warmcore")).ok_or(VmError::NoCache)
}

/// Kernels in the cache, in order of preference; what cannot be used is left out, with the reason.
///
/// # Errors
/// When there is no cache directory to be had.
pub fn cached() -> Result<(Vec<Kernel>, Vec<VmError>), VmError> {
    let (mut kernels, mut refused) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(kernels_directory()?).into_iter().flatten().flatten() {
        match Kernel::open(&entry.path().join("vmlinuz"), None) {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => refused.push(error),
        }
    }
    kernels.sort_by_key(|kernel| preference(&kernel.release));
    Ok((kernels, refused))
}

fn kernels_directory() -> Result<PathBuf, VmError> {
    Ok(cache_directory()?.join("kernels"))
}

/// The package archive, with private directories.
pub struct Archive {
    directory: PathBuf,
}

impl Archive {
    /// Sets the directories up and fetches the package lists.
    ///
    /// # Errors
    /// Without `apt-get`, without a Debian archive among the system's sources, or without the network.
    pub fn open() -> Result<Self, VmError> {
        let directory = cache_directory()?.join("apt");
        for part in ["lists/partial", "archives/partial"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).at("create", &path)?;
        }
        let archive = Self { directory };
        let uri = system_archive()?;
        let signed = if Path::new(KEYRING).is_file() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        let sources: String = SUITES.iter().map(|suite| format!("deb {signed}{uri} {suite} main\n")).collect();
        let path = archive.directory.join("sources.list");
        fs::write(&path, sources).at("write", &path)?;
        // A suite that is gone is an error to apt; what matters is whether lists came.
        let updated = archive.apt("apt-get", &["update", "-qq"]);
        if archive.available()?.is_empty() {
            updated?;
            return Err(VmError::Fetch {
                reason: format!("the suites {} have no kernel from {}.{} on", SUITES.join(", "), OLDEST[0], OLDEST[1]),
            });
        }
        Ok(archive)
    }

    /// Releases that can be fetched, in order of preference.
    ///
    /// # Errors
    /// When `apt-cache` fails.
    pub fn available(&self) -> Result<Vec<String>, VmError> {
        let text = self.apt("apt-cache", &["search", "--names-only", "^linux-binary-[0-9].*-cloud-amd64$"])?;
        let names = text.lines().filter_map(|line| line.split_whitespace().next()?.strip_prefix("linux-binary-"));
        let mut releases: Vec<String> = names
            .filter(|release| version_numbers(release).as_slice() >= OLDEST.as_slice())
            .map(str::to_owned)
            .collect();
        releases.sort_by_key(|release| preference(release));
        Ok(releases)
    }

    /// Fetches a release into the cache.
    ///
    /// # Errors
    /// When a package cannot be fetched or unpacked, or is no kernel that can be used.
    pub fn fetch(&self, release: &str) -> Result<Kernel, VmError> {
        let place = kernels_directory()?.join(release);
        let work = self.directory.join(format!("unpack-{}", std::process::id()));
        fs::create_dir_all(&work).at("create", &work)?;
        let result = self.fetch_into(release, &work, &place);
        // What is left of an unpacking is of no use; a failure to remove it must not hide the result.
        let _ = fs::remove_dir_all(&work);
        result?;
        Kernel::open(&place.join("vmlinuz"), None)
    }

    fn fetch_into(&self, release: &str, work: &Path, place: &Path) -> Result<(), VmError> {
        for package in ["linux-binary", "linux-base"] {
            self.apt_in(work, "apt-get", &["download", "-qq", &format!("{package}-{release}")])?;
        }
        for entry in fs::read_dir(work).at("read", work)?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "deb") {
                let unpacked = work.join("x");
                run(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(&unpacked), "dpkg-deb")?;
            }
        }
        let modules = work.join("x/usr/lib/modules").join(release);
        fs::create_dir_all(place).at("create", place)?;
        for name in ["config", "vmlinuz"] {
            let (from, to) = (modules.join(name), place.join(name));
            let bytes = fs::read(&from).at("read", &from)?;
            crate::files::write_atomically(&to, &bytes)?;
        }
        Ok(())
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Result<String, VmError> {
        self.apt_in(&self.directory, program, arguments)
    }

    fn apt_in(&self, work: &Path, program: &str, arguments: &[&str]) -> Result<String, VmError> {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let mut command = Command::new(program);
        for (name, value) in [
            ("Dir::Etc::sourcelist", path("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".into()),
            ("Dir::State::lists", path("lists")),
            ("Dir::State::status", "/dev/null".into()),
            ("Dir::Cache::archives", path("archives")),
            ("Dir::Cache::pkgcache", String::new()),
            ("Dir::Cache::srcpkgcache", String::new()),
            ("Acquire::Languages", "none".into()),
            ("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false".into()),
            // The private directories belong to this user.
            ("APT::Sandbox::User", String::new()),
        ] {
            command.arg("-o").arg(format!("{name}={value}"));
        }
        run(command.args(arguments).current_dir(work), program)
    }
}

/// The address of the Debian archive that the system uses.
fn system_archive() -> Result<String, VmError> {
    let format = "$(ORIGIN)|$(LABEL)|$(REPO_URI)";
    let mut command = Command::new("apt-get");
    let text = run(command.args(["indextargets", "--format", format, "Created-By: Packages"]), "apt-get")?;
    let uri = text.lines().find_map(|line| line.strip_prefix("Debian|Debian|"));
    uri.map(str::to_owned).ok_or_else(|| VmError::Fetch {
        reason: "the system's package sources name no Debian archive (or its lists were never fetched)".into(),
    })
}

fn run(command: &mut Command, program: &str) -> Result<String, VmError> {
    let output = command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").output();
    let output = output.map_err(|error| VmError::Fetch { reason: format!("cannot run {program}: {error}") })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> =
        words.lines().filter(|line| line.starts_with("E:") || line.contains("rror")).take(3).collect();
    Err(VmError::Fetch { reason: format!("{program} failed ({}): {}", output.status, lines.join(" ")) })
}
