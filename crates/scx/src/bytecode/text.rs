//! Texts that programs format: a format and an array of 64-bit values, as `bpf_bstr_printf` takes them.

use std::fmt::Write as _;

use warmcore_bpf::Memory;

use crate::bytecode::host::{Host, clock_ns};

/// Most bytes of a text.
const LIMIT: usize = 1024;

/// The text of a format at an address with values at another.
pub(super) fn format(memory: &Memory, format: u64, values: u64, bytes: u64) -> String {
    let format = memory.text(format, LIMIT as u64);
    let mut text = String::new();
    let mut next = 0;
    let mut value = || {
        let at = next * 8;
        next += 1;
        if at < bytes { memory.load_u64(values + at) } else { 0 }
    };
    let mut rest = format.chars().peekable();
    while let Some(character) = rest.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let mut flags = String::new();
        let kind = loop {
            match rest.next() {
                Some(flag) if "0123456789-+ #.lhz".contains(flag) => flags.push(flag),
                Some(kind) => break kind,
                None => return text,
            }
        };
        let wide = flags.contains('l') || flags.contains('z');
        // Writing to a string cannot fail.
        let _ = match kind {
            '%' => write!(text, "%"),
            'd' | 'i' if wide => write!(text, "{}", value() as i64),
            'd' | 'i' => write!(text, "{}", value() as i32),
            'u' if wide => write!(text, "{}", value()),
            'u' => write!(text, "{}", value() as u32),
            'x' | 'X' if wide => write!(text, "{:x}", value()),
            'x' | 'X' => write!(text, "{:x}", value() as u32),
            'c' => write!(text, "{}", char::from(value() as u8)),
            's' => {
                let string = memory.text(value(), LIMIT as u64);
                write!(text, "{string}")
            }
            'p' => {
                // %ps and the like: no kernel symbols here.
                while rest.peek().is_some_and(char::is_ascii_alphanumeric) {
                    rest.next();
                }
                write!(text, "0x{:x}", value())
            }
            _ => write!(text, "%{flags}{kind}"),
        };
        if text.len() > LIMIT {
            let mut end = LIMIT;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            break;
        }
    }
    text
}

/// Bytes of printed text that are kept of a run.
const KEPT: usize = 64 << 10;

/// What programs print in a run: its beginning.
#[derive(Debug, Default)]
pub(super) struct Printed {
    text: String,
    is_full: bool,
}

impl Printed {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn add(&mut self, text: &str) {
        if self.is_full {
            return;
        }
        self.is_full = self.text.len() + text.len() > KEPT;
        self.text.push_str(if self.is_full { "what was printed after this is not kept\n" } else { text });
    }
}

impl Host {
    /// Prints what a format makes of values in registers (`bpf_trace_printk`).
    pub(super) fn print_line(&mut self, format: u64, values: &[u64]) -> u64 {
        let at = self.kept.scratch + 3072;
        for (number, &value) in values.iter().enumerate() {
            self.store_u64(at + 8 * number as u64, value);
        }
        self.print_values(format, at, 8 * values.len() as u64)
    }

    /// Prints what it makes of values in memory (`bpf_trace_vprintk`, streams): a line, with time and CPU.
    pub(super) fn print_values(&mut self, format: u64, values: u64, bytes: u64) -> u64 {
        let text = self::format(&self.maps.memory, format, values, bytes);
        let Some(kernel) = self.kernel() else { return text.len() as u64 };
        // What one call prints beyond what is kept of all is not looked at.
        if self.printed.len() <= KEPT {
            let since_ns = clock_ns(kernel);
            let time = format_args!("{}.{:06}", since_ns / 1_000_000_000, since_ns / 1000 % 1_000_000);
            let _ = writeln!(self.printed, "{time} {}: {}", kernel.this_cpu(), text.trim_end_matches('\n'));
        }
        text.len() as u64
    }
}
