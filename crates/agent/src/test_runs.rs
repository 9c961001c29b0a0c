//! Programs of a file, loaded, run once each by the kernel (`BPF_PROG_TEST_RUN`), and what they left sent to the host.
//!
//! They are programs of type syscall, which the kernel runs in the caller's context without any device.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use warmcore_agent::programs::{Came, PATH, Programs};
use warmcore_agent::report::{FrameKind, Sample, write_document, write_frame};

use crate::bpf::{Attributes, MAP_CREATE, MAP_LOOKUP_ELEM, MAP_UPDATE_ELEM, PROG_LOAD, PROG_TEST_RUN};

const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SYSCALL: u32 = 31;
const PROG_SLEEPABLE: u32 = 1 << 4;
/// An immediate that is an address in a map.
const MAP_VALUE: u8 = 2;

/// Programs whose refusal is told in the verifier's words.
const EXPLAINED: usize = 8;
/// Bytes of a frame, about.
const FRAME_BYTES: usize = 1 << 20;
const LOG_BYTES: usize = 1 << 20;
const LOG_LINES: usize = 12;

/// Runs all programs of the file.
pub fn run(channel: &mut File) -> Result<(), String> {
    let file = std::fs::read(PATH).map_err(|error| format!("cannot read {PATH}: {error}"))?;
    let programs = Programs::decode(&file).ok_or_else(|| format!("{PATH} is broken"))?;
    let array = Array::create(&programs.value).map_err(|error| format!("the kernel makes no array: {error}"))?;
    let mut frame = Vec::new();
    let mut explained = 0;
    for (number, program) in programs.programs.iter().enumerate() {
        let (came, words) =
            array.run(program, explained < EXPLAINED).map_err(|error| format!("program {number}: {error}"))?;
        came.encode(&mut frame);
        if !words.is_empty() {
            explained += 1;
            let sample = Sample { time_ns: 0, texts: vec![(number.to_string(), words)] };
            write_document(channel, FrameKind::Sample, &sample).map_err(|error| error.to_string())?;
        }
        if frame.len() > FRAME_BYTES || number + 1 == programs.programs.len() {
            write_frame(channel, FrameKind::Came, &frame).map_err(|error| error.to_string())?;
            frame.clear();
        }
    }
    Ok(())
}

struct Array<'a> {
    map: OwnedFd,
    value: &'a [u8],
}

impl<'a> Array<'a> {
    fn create(value: &'a [u8]) -> io::Result<Self> {
        let attributes = Attributes::new().u32(0, MAP_TYPE_ARRAY).u32(4, 4).u32(8, value.len() as u32).u32(12, 1);
        Ok(Self { map: attributes.descriptor(MAP_CREATE)?, value })
    }

    fn element(&self, command: i64, value: *const u8) -> io::Result<()> {
        let key = [0u8; 4];
        let attributes = Attributes::new().u32(0, self.map.as_raw_fd() as u32).address(8, key.as_ptr());
        attributes.address(16, value).call(command).map(drop)
    }

    /// What came of a program, and the verifier's last words if it was refused and they are wanted.
    fn run(&self, program: &[u8], explain: bool) -> io::Result<(Came, String)> {
        self.element(MAP_UPDATE_ELEM, self.value.as_ptr())?;
        let mut code = program.to_vec();
        for slot in code.chunks_exact_mut(8).filter(|slot| slot[0] == 0x18 && slot[1] >> 4 == MAP_VALUE) {
            slot[4..8].copy_from_slice(&self.map.as_raw_fd().to_le_bytes());
        }
        let loaded = match load(&code, &mut []) {
            Ok(loaded) => loaded,
            Err(error) => {
                let mut log = vec![0; if explain { LOG_BYTES } else { 0 }];
                if explain {
                    // It is refused again, with words.
                    let _ = load(&code, &mut log);
                }
                return Ok((Came::Refused(number_of(&error)), last_lines(&log)));
            }
        };
        // What it returns is written to the structure itself.
        let mut attributes = Attributes::new().u32(0, loaded.as_raw_fd() as u32);
        if let Err(error) = attributes.call_and_read(PROG_TEST_RUN) {
            return Ok((Came::NotRun(number_of(&error)), String::new()));
        }
        let returned = attributes.word(4);
        let mut value = vec![0u8; self.value.len()];
        self.element(MAP_LOOKUP_ELEM, value.as_mut_ptr())?;
        Ok((Came::Ran { returned, value }, String::new()))
    }
}

fn load(code: &[u8], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::new()
        .u32(0, PROG_TYPE_SYSCALL)
        .u32(4, (code.len() / 8) as u32)
        .address(8, code.as_ptr())
        .address(16, c"GPL".as_ptr().cast())
        .u32(44, PROG_SLEEPABLE);
    if !log.is_empty() {
        attributes = attributes.u32(24, 1).u32(28, log.len() as u32).address(32, log.as_ptr());
    }
    attributes.descriptor(PROG_LOAD)
}

fn number_of(error: &io::Error) -> u32 {
    error.raw_os_error().unwrap_or(libc::EIO) as u32
}

fn last_lines(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
