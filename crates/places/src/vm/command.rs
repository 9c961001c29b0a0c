//! Programs of this computer in a guest, run there as anywhere: what they print and the files that they leave come back.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicBool;

use warmcore_agent::PROTOCOL;
use warmcore_agent::plan::{CommandPlan, Plan, Purpose};
use warmcore_agent::report::{CommandEnd, Frame, FrameKind};
use warmcore_topology::Machine;

use super::VmError;
use super::boot::{Boot, Lab, document};
use super::initramfs::Initramfs;
use crate::files::At as _;

/// Directory of the guest that a program runs in.
const DIRECTORY: &str = "/work";
/// Room for what it writes, MiB: the guest's files are in its memory.
const ROOM_MIB: u64 = 1024;

/// A program and what becomes of what it gives.
pub struct Command<'a> {
    /// Path in the guest, and arguments.
    pub words: Vec<String>,
    /// It, its libraries and whatever it needs.
    pub files: Initramfs,
    /// Directory for the files that it leaves; they are dropped if there is none.
    pub out: Option<&'a Path>,
    /// Takes what it prints.
    pub output: &'a mut dyn Write,
    /// Takes what it prints on standard error.
    pub words_to: &'a mut dyn Write,
}

impl Lab {
    /// Runs it in a guest and gives its exit code.
    ///
    /// # Errors
    /// See [`Lab::boot`]; files that cannot be written here.
    pub fn execute(&self, machine: &Machine, command: Command<'_>, stop: &AtomicBool) -> Result<i32, VmError> {
        let Command { words, files, out, output, words_to } = command;
        let purpose = Purpose::Command(CommandPlan { words, directory: DIRECTORY.into() });
        let plan = Plan { protocol: PROTOCOL, purpose, runs: Vec::new() };
        let boot = Boot { machine, plan: &plan, files, extra_memory_mib: ROOM_MIB };
        let mut exit_code = None;
        let mut last: Option<PathBuf> = None;
        self.boot(boot, stop, |_, frame| {
            match frame.kind {
                FrameKind::Output => print(output, &frame)?,
                FrameKind::Words => print(words_to, &frame)?,
                FrameKind::File => last = keep(&frame, out, last.as_deref())?,
                FrameKind::CommandEnd => exit_code = Some(document::<CommandEnd>(&frame)?.exit_code),
                _ => {}
            }
            Ok(())
        })?;
        exit_code.ok_or_else(|| VmError::Protocol { reason: "the guest did not report the program's end".into() })
    }
}

fn print(to: &mut dyn Write, frame: &Frame) -> Result<(), VmError> {
    let written = to.write_all(&frame.payload).and_then(|()| to.flush());
    written.map_err(|error| VmError::Guest { reason: format!("what it prints cannot be written here: {error}") })
}

/// Writes a part of a file below `out`, and gives its path.
fn keep(frame: &Frame, out: Option<&Path>, last: Option<&Path>) -> Result<Option<PathBuf>, VmError> {
    let broken = || VmError::Protocol { reason: "a part of a file that makes no sense".into() };
    let (length, rest) = frame.payload.split_first_chunk::<4>().ok_or_else(broken)?;
    let (name, bytes) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(broken)?;
    let name = Path::new(std::str::from_utf8(name).map_err(|_| broken())?);
    // A guest is not to write elsewhere.
    if !name.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(broken());
    }
    let Some(out) = out else { return Ok(None) };
    let path = out.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).at("create", parent)?;
    }
    let goes_on = last == Some(path.as_path());
    let file = OpenOptions::new().create(true).write(true).append(goes_on).truncate(!goes_on).open(&path);
    file.and_then(|mut file| file.write_all(bytes)).at("write", &path)?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, bytes: &[u8]) -> Frame {
        let mut payload = (name.len() as u32).to_le_bytes().to_vec();
        payload.extend(name.bytes());
        payload.extend(bytes);
        Frame { kind: FrameKind::File, payload }
    }

    #[test]
    fn parts_of_a_file_are_put_together_and_none_is_written_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let out = Some(directory.path());
        let first = keep(&part("a/b", b"one "), out, None).unwrap();
        keep(&part("a/b", b"two"), out, first.as_deref()).unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("a/b")).unwrap(), "one two");
        for name in ["../x", "/x", "a/../../x"] {
            assert!(keep(&part(name, b"x"), out, None).is_err(), "{name}");
        }
        assert_eq!(keep(&part("x", b"x"), None, None).unwrap(), None);
    }
}
