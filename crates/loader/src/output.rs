//! What a loader prints: kept within bounds, and its last words.
//!
//! It goes through a pipe. All of it is read, as whoever prints would wait otherwise; its beginning and its end are kept.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

/// Bytes that are kept of the beginning, and of the end.
const KEPT_BYTES: usize = 256 << 10;

/// Bytes that a loader may print at most: more is a loop without an end.
const MOST_BYTES: u64 = 64 << 20;

/// What a loader prints.
pub struct Output {
    pipe: File,
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    bytes: u64,
}

impl Output {
    /// A place for what is printed, and the end of the pipe that is printed into.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let mut ends = [0; 2];
        // SAFETY: the kernel fills two numbers, of descriptors that are owned from then on.
        let [reader, writer] = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
            ends.map(|end| OwnedFd::from_raw_fd(end))
        };
        // SAFETY: a descriptor that is open; only this end gives up where nothing is there.
        if unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let pipe = File::from(reader);
        Ok((Self { pipe, beginning: Vec::new(), end: VecDeque::new(), bytes: 0 }, writer))
    }

    /// The descriptor that can be read when something was printed.
    pub fn descriptor(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Takes what was printed; whether that was anything.
    pub fn take(&mut self) -> bool {
        const CHUNK: usize = 64 << 10;
        let mut chunk = [0; CHUNK];
        let before = self.bytes;
        // Where nothing is left, and where nobody has the other end any more, there is an error or nothing.
        while let Ok(count @ 1..) = self.pipe.read(&mut chunk) {
            self.bytes += count as u64;
            let room = (KEPT_BYTES - self.beginning.len()).min(count);
            self.beginning.extend_from_slice(&chunk[..room]);
            self.end.extend(&chunk[room..count]);
            self.end.drain(..self.end.len().saturating_sub(KEPT_BYTES));
            if self.is_too_long() {
                break;
            }
        }
        self.bytes > before
    }

    /// Whether there is no end to it.
    pub(crate) fn is_too_long(&self) -> bool {
        self.bytes > MOST_BYTES
    }

    /// All that is kept of it, as plain text.
    pub fn text(&mut self) -> String {
        self.take();
        let left_out = self.bytes - (self.beginning.len() + self.end.len()) as u64;
        let end = self.end.make_contiguous();
        if left_out == 0 {
            return plain(&String::from_utf8_lossy(&[&self.beginning[..], end].concat()));
        }
        let [beginning, end] = [&self.beginning[..], end].map(|bytes| plain(&String::from_utf8_lossy(bytes)));
        format!("{beginning}\n[{left_out} bytes are left out]\n{end}")
    }

    /// Its last lines, in one.
    pub fn last_words(&mut self) -> String {
        last_words(&self.text())
    }
}

/// A text without what makes a terminal do something else than show it: sequences of escape and other signs of control, but ends of lines and tabulators.
pub(crate) fn plain(text: &str) -> String {
    const ESCAPE: char = '\u{1b}';
    let mut plain = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            ESCAPE => match signs.next() {
                // A sequence of control ends with a letter or one of a few signs behind the letters.
                Some('[') => _ = signs.find(|sign| ('@'..='~').contains(sign)),
                // A command to the system, as a title, ends with a bell or another escape and one sign.
                Some(']' | 'P' | '_' | '^') => {
                    let ends_with_sign = signs.find(|&sign| sign == '\u{7}' || sign == ESCAPE) == Some(ESCAPE);
                    _ = ends_with_sign.then(|| signs.next());
                }
                _ => {}
            },
            '\u{9b}' => _ = signs.find(|sign| ('@'..='~').contains(sign)),
            '\n' | '\t' => plain.push(sign),
            sign if sign.is_control() => {}
            sign => plain.push(sign),
        }
    }
    plain
}

/// The last lines of a text that are no part of a list of calls: what went wrong is said before that.
pub(crate) fn last_words(text: &str) -> String {
    const LINES: usize = 4;
    const LONGEST: usize = 500;
    let is_call = |line: &str| {
        let number = line.split_once(':').map_or("", |(number, _)| number);
        line.starts_with("at ") || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut lines: Vec<&str> = Vec::new();
    let mut in_calls = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let begins = line.to_ascii_lowercase().ends_with("stack backtrace:");
        in_calls = begins || in_calls && is_call(line);
        let is_advice = line.starts_with("note: ") && line.to_ascii_lowercase().contains("backtrace");
        if !in_calls && !is_advice {
            lines.push(line);
        }
    }
    let last = lines[lines.len().saturating_sub(LINES)..].iter().map(|line| {
        let end = line.char_indices().nth(LONGEST).map_or(line.len(), |(end, _)| end);
        &line[..end]
    });
    let last = last.collect::<Vec<_>>().join(" | ");
    if last.is_empty() { "nothing".to_owned() } else { last }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn last_words_are_the_cause_and_not_the_calls_that_led_there_nor_colours() {
        let said = "\u{1b}[31mError:\u{1b}[0m Failed to load\n\nCaused by:\n    0: no such map\n    1: Invalid argument\n\n\
                    Stack backtrace:\n   0: anyhow::error::new\n             at /root/anyhow/src/backtrace.rs:27:14\n   1: main\n";
        assert_eq!(
            last_words(&plain(said)),
            "Failed to load | Caused by: | 0: no such map | 1: Invalid argument".replace("Failed", "Error: Failed")
        );
        let panicked = "thread 'main' panicked at src/main.rs:7:\nno kernel\nstack backtrace:\n   0: main\n             at x.rs\n\
                        note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.\n";
        assert_eq!(last_words(panicked), "thread 'main' panicked at src/main.rs:7: | no kernel");
        assert_eq!(last_words("\n  \n"), "nothing");
        assert_eq!(plain("a\u{1b}]0;title\u{7}b\u{1b}]0;title\u{1b}\\c\u{9b}31md\re\tf"), "abcde\tf");
    }

    #[test]
    fn of_a_long_text_beginning_and_end_are_kept_and_it_is_said_how_much_is_not() {
        let (mut output, writer) = Output::new().unwrap();
        let mut writer = File::from(writer);
        for number in 0..40_000 {
            writeln!(writer, "line {number:015}").unwrap();
            output.take();
        }
        let text = output.text();
        assert!(text.starts_with("line 000000000000000\n") && text.ends_with("line 000000000039999\n"));
        assert!(text.contains("bytes are left out]") && text.len() < 2 * KEPT_BYTES + 100);
        assert!(!output.is_too_long());
    }
}
