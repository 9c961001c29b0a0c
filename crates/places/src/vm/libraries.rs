//! Programs of this computer in a guest, with the shared libraries they need.
//!
//! The dynamic linker itself is asked which files those are (`ld.so --list`, what `ldd` does), so that its search rules
//! need not be repeated here. A static program needs none.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::VmError;
use super::initramfs::Initramfs;
use crate::files::read_bytes;

const INTERPRETER_SEGMENT: u32 = 3;

/// Puts a program and its libraries into the guest; the program under `place`, libraries where they are here.
///
/// # Errors
/// What is no program for x86-64, cannot be read, or lacks a library.
pub fn add_program(files: &mut Initramfs, program: &Path, place: &Path) -> Result<(), VmError> {
    let bytes = read_bytes(program)?;
    let refuse = |reason: String| VmError::Program { path: program.to_path_buf(), reason };
    let interpreter = interpreter(&bytes).map_err(refuse)?;
    files.program(&place.display().to_string(), bytes);
    let Some(interpreter) = interpreter else { return Ok(()) };
    let output = Command::new(&interpreter).arg("--list").arg(program).env("LC_ALL", "C").output();
    let output = output.map_err(|error| refuse(format!("its dynamic linker {interpreter} cannot be run: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        return Err(refuse(format!("a library is missing: {}", missing.trim())));
    }
    if !output.status.success() {
        return Err(refuse(format!(
            "its libraries cannot be listed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    let mut needed: Vec<PathBuf> = listed(&text);
    needed.push(interpreter.into());
    for library in needed {
        let bytes = read_bytes(&library)?;
        files.program(&library.display().to_string(), bytes);
    }
    Ok(())
}

/// Paths in the linker's list: `name => /path (0x…)` or `/path (0x…)`.
fn listed(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let place = line.split_once("=>").map_or(line, |(_, place)| place).trim();
        let path = place.split(" (0x").next().unwrap_or_default().trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

/// The dynamic linker a program asks for; `None` for a static one.
fn interpreter(bytes: &[u8]) -> Result<Option<String>, String> {
    let field = |at: usize, length: usize| -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    if bytes.get(..4) != Some(b"\x7fELF") {
        return Err("it is not an ELF program (a script needs its interpreter instead)".into());
    }
    if bytes.get(4..6) != Some(&[2, 1]) || field(18, 2) != Some(62) {
        return Err("it is a program for another architecture; guests are x86-64 machines".into());
    }
    let cut = || "it is cut off".to_owned();
    let (table, size, count) = (field(32, 8), field(54, 2), field(56, 2));
    let (Some(table), Some(size), Some(count)) = (table, size, count) else { return Err(cut()) };
    for index in 0..count {
        let at = usize::try_from(table.saturating_add(index * size)).map_err(|_| cut())?;
        if field(at, 4).ok_or_else(cut)? == u64::from(INTERPRETER_SEGMENT) {
            let (offset, length) = (field(at + 8, 8).ok_or_else(cut)?, field(at + 32, 8).ok_or_else(cut)?);
            let range = offset as usize..(offset as usize).saturating_add(length as usize);
            let name = bytes.get(range).ok_or_else(cut)?;
            return Ok(Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linkers_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            listed(text),
            [PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"), PathBuf::from("/lib64/ld-linux-x86-64.so.2")]
        );
    }

    #[test]
    fn what_is_no_program_for_a_guest_is_refused() {
        assert!(interpreter(b"#!/bin/sh").unwrap_err().contains("not an ELF"));
        assert!(interpreter(b"\x7fELF\x01\x01").unwrap_err().contains("another architecture"));
        let mut cut = vec![0_u8; 64];
        cut[..6].copy_from_slice(b"\x7fELF\x02\x01");
        cut[18] = 62;
        assert_eq!(interpreter(&cut), Ok(None));
        cut[32] = 62;
        cut[56] = 1;
        assert!(interpreter(&cut).unwrap_err().contains("cut off"));
    }

    #[test]
    fn this_program_and_its_libraries_go_in() {
        let mut files = Initramfs::default();
        add_program(&mut files, &std::env::current_exe().unwrap(), Path::new("/bin/self")).unwrap();
        let archive = String::from_utf8_lossy(&files.archive()).into_owned();
        assert!(archive.contains("bin/self"));
    }
}
