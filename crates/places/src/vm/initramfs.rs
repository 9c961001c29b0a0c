//! An initial file system for a kernel, as a `cpio` archive of the "new" format (`newc`), which the kernel unpacks.
//!
//! Source: the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`. Only regular files and directories;
//! owners, times and links are not needed.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::files::read_bytes;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;
const TRAILER: &str = "TRAILER!!!";

/// Files by absolute path.
#[derive(Clone, Debug, Default)]
pub struct Initramfs {
    entries: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Initramfs {
    /// Adds a program.
    pub fn program(&mut self, path: &str, bytes: Vec<u8>) {
        self.add(path, PROGRAM, bytes);
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, bytes: Vec<u8>) {
        self.add(path, DATA, bytes);
    }

    /// Adds a file of this computer where it is here, as a program if anybody may execute it here.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn copy(&mut self, path: &Path) -> std::io::Result<()> {
        let (bytes, mode) =
            (read_bytes(path).map_err(|error| error.source)?, std::fs::metadata(path)?.permissions().mode());
        self.add(&path.display().to_string(), if mode & 0o111 == 0 { DATA } else { PROGRAM }, bytes);
        Ok(())
    }

    /// Adds a directory, with those above it.
    pub fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            self.entries.entry(path[..end].to_owned()).or_insert((DIRECTORY, Vec::new()));
        }
    }

    fn add(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entries.insert(path.to_owned(), (mode, bytes));
    }

    /// The archive. A directory comes before what is in it, because names are in order.
    pub fn archive(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, (path, (mode, bytes))) in self.entries.iter().enumerate() {
            entry(&mut out, number as u32 + 1, path, *mode, bytes);
        }
        entry(&mut out, 0, TRAILER, 0, &[]);
        out
    }
}

fn entry(out: &mut Vec<u8>, inode: u32, path: &str, mode: u32, bytes: &[u8]) {
    let links = if mode == DIRECTORY { 2 } else { 1 };
    let name_length = path.len() as u32 + 1;
    out.extend(b"070701");
    // Inode, mode, owner, group, links, time, size, device, special device, name length, checksum (unused).
    for field in [inode, mode, 0, 0, links, 0, bytes.len() as u32, 0, 0, 0, 0, name_length, 0] {
        out.extend(format!("{field:08x}").bytes());
    }
    out.extend(path.bytes().chain([0]));
    pad(out);
    out.extend(bytes);
    pad(out);
}

/// Names and contents end at a multiple of four bytes.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn directories_come_before_their_files_and_nothing_twice() {
        let mut files = Initramfs::default();
        files.program("/init", vec![1]);
        files.file("/lib/x/b", vec![2]);
        files.file("/lib/x/a", vec![3]);
        let names: Vec<&str> = files.entries.keys().map(String::as_str).collect();
        assert_eq!(names, ["init", "lib", "lib/x", "lib/x/a", "lib/x/b"]);
    }

    #[test]
    fn a_file_that_may_be_executed_here_may_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Initramfs::default();
        for (name, mode) in [("script", 0o755), ("data", 0o644)] {
            let path = directory.path().join(name);
            std::fs::write(&path, name).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            files.copy(&path).unwrap();
        }
        let modes = |name: &str| {
            let found = files.entries.iter().find(|(path, _)| path.ends_with(name));
            found.map(|(_, (mode, bytes))| (*mode, bytes.clone()))
        };
        assert_eq!(modes("/script"), Some((PROGRAM, b"script".to_vec())));
        assert_eq!(modes("/data"), Some((DATA, b"data".to_vec())));
        assert!(files.copy(&directory.path().join("absent")).is_err());
    }

    #[test]
    fn cpio_lists_what_was_put_in() {
        let mut files = Initramfs::default();
        files.program("/init", b"odd".to_vec());
        files.file("/lib/plan.json", b"{}".to_vec());
        let archive = files.archive();
        assert_eq!(archive.len() % 4, 0);
        let cpio = Command::new("cpio").args(["-t", "--quiet"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut cpio) = cpio else { warmcore_testing::skip!("there is no cpio here: apt-get install cpio") };
        cpio.stdin.take().unwrap().write_all(&archive).unwrap();
        let listed = String::from_utf8(cpio.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(listed.lines().collect::<Vec<_>>(), ["init", "lib", "lib/plan.json"]);
    }
}
