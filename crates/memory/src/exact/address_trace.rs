//! Address traces: one record per memory access, in three formats that are told apart by their beginning.
//!
//! **Text.** The first line is `warmcore-address-trace 1`, optionally followed by the number of records. Every other
//! line is `THREAD KIND ADDRESS [SIZE]`: a thread number, `R`, `W`, `M` (read and write) or `I` (instruction), an
//! address in hexadecimal with or without `0x`, and a size in bytes (1 if missing). `#` begins a comment.
//!
//! **Binary**, all numbers little-endian: the eight bytes `WARMADDR`, the version (u32, 1), a reserved u32 (0), the number
//! of records (u64), then per record the address (u64), the size (u32), the thread (u16), the kind as in text (one
//! byte) and a zero byte.
//!
//! **Valgrind's lackey**, as `valgrind --tool=lackey --trace-mem=yes --log-file=FILE` writes it: `I  ADDRESS,SIZE` and
//! ` L`, ` S`, ` M` with the same; lines of Valgrind itself begin with `==` and are skipped. It has one thread.
//!
//! An access must be aligned to its size in the first two formats unless the reader is told otherwise: a record that
//! is not is usually a broken one. Programs that lackey watches really do make such accesses.

use std::io::{self, BufRead};

use thiserror::Error;

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads, then writes.
    Modify,
    /// Fetches an instruction.
    Instruction,
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The thread, numbered from 0.
    pub thread: u16,
    /// What it does.
    pub access: Access,
    /// Where.
    pub address: u64,
    /// How many bytes, at least 1.
    pub size: u32,
}

/// Largest access: whole vector register files are saved at once.
pub const MAX_SIZE: u32 = 65_536;

/// Formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// Ours, for people.
    Text,
    /// Ours, for programs.
    Binary,
    /// Valgrind's.
    Lackey,
}

/// A trace that cannot be read.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum TraceError {
    #[error("cannot read the trace: {0}")]
    Read(#[from] io::Error),
    #[error(
        "this is no address trace: it begins neither with `warmcore-address-trace`, nor with `WARMADDR`, nor like \
         Valgrind's lackey"
    )]
    UnknownFormat,
    #[error("the trace has version {0}; version 1 can be read")]
    Version(String),
    /// A line or record that is not one.
    #[error("{place}: {reason}")]
    Record {
        /// `line 12` or `record 12`.
        place: String,
        reason: String,
    },
    #[error("the trace is cut short: {0}")]
    CutShort(String),
}

/// Reads records one after the other.
pub struct TraceReader<R> {
    input: R,
    format: TraceFormat,
    allow_unaligned: bool,
    announced: Option<u64>,
    records: u64,
    lines: u64,
    skipped_lines: u64,
    line: Vec<u8>,
    ended: bool,
}

const TEXT_MAGIC: &[u8] = b"warmcore-address-trace";
const BINARY_MAGIC: &[u8; 8] = b"WARMADDR";

impl<R: BufRead> TraceReader<R> {
    /// Looks at the beginning of a trace.
    ///
    /// # Errors
    /// If it is none, or of another version.
    pub fn new(mut input: R, allow_unaligned: bool) -> Result<Self, TraceError> {
        let beginning = input.fill_buf()?;
        let format = if beginning.starts_with(BINARY_MAGIC) {
            TraceFormat::Binary
        } else if beginning.starts_with(TEXT_MAGIC) {
            TraceFormat::Text
        } else if [&b"=="[..], b"I  ", b" L ", b" S ", b" M "].iter().any(|start| beginning.starts_with(start)) {
            TraceFormat::Lackey
        } else {
            return Err(TraceError::UnknownFormat);
        };
        let mut reader = Self {
            input,
            format,
            allow_unaligned: allow_unaligned || format == TraceFormat::Lackey,
            announced: None,
            records: 0,
            lines: 0,
            skipped_lines: 0,
            line: Vec::new(),
            ended: false,
        };
        match format {
            TraceFormat::Binary => reader.binary_header()?,
            TraceFormat::Text => reader.text_header()?,
            TraceFormat::Lackey => {}
        }
        Ok(reader)
    }

    /// The format.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// A record that is not one, or an end that comes too early or too late.
    pub fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        if self.ended {
            return Ok(None);
        }
        let record = match self.format {
            TraceFormat::Binary => self.next_binary()?,
            TraceFormat::Text | TraceFormat::Lackey => self.next_line()?,
        };
        let Some(record) = record else {
            self.ended = true;
            return match self.announced {
                Some(announced) if announced != self.records => {
                    Err(TraceError::CutShort(format!("{announced} records are announced, {} are there", self.records)))
                }
                _ => Ok(None),
            };
        };
        self.records += 1;
        self.check(record)?;
        Ok(Some(record))
    }

    fn check(&self, record: Record) -> Result<(), TraceError> {
        let Record { address, size, .. } = record;
        if size == 0 || size > MAX_SIZE {
            return self.refuse(format!("a size of {size} bytes is impossible; write 1 to {MAX_SIZE}"));
        }
        if address.checked_add(u64::from(size)).is_none() {
            return self.refuse(format!("{size} bytes at {address:#x} reach beyond the address space"));
        }
        let aligned = !size.is_power_of_two() || address.is_multiple_of(u64::from(size));
        if !aligned && !self.allow_unaligned {
            return self.refuse(format!(
                "address {address:#x} is not aligned to its size, {size} bytes; unaligned accesses must be allowed \
                 explicitly"
            ));
        }
        Ok(())
    }

    fn refuse<T>(&self, reason: String) -> Result<T, TraceError> {
        let place = match self.format {
            TraceFormat::Binary => format!("record {}", self.records),
            TraceFormat::Text | TraceFormat::Lackey => format!("line {}", self.lines),
        };
        Err(TraceError::Record { place, reason })
    }

    fn binary_header(&mut self) -> Result<(), TraceError> {
        let mut header = [0; 24];
        if self.read_whole(&mut header)? != header.len() {
            return Err(TraceError::CutShort("it ends within its header of 24 bytes".to_owned()));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != 1 {
            return Err(TraceError::Version(version.to_string()));
        }
        let mut count = [0; 8];
        count.copy_from_slice(&header[16..]);
        self.announced = Some(u64::from_le_bytes(count));
        Ok(())
    }

    fn next_binary(&mut self) -> Result<Option<Record>, TraceError> {
        let mut bytes = [0; 16];
        let read = self.read_whole(&mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        if read < bytes.len() {
            return Err(TraceError::CutShort(format!("record {} has {read} of its 16 bytes", self.records + 1)));
        }
        if Some(self.records) == self.announced {
            self.records += 1;
            return self.refuse(format!("only {} records are announced", self.records - 1));
        }
        let mut address = [0; 8];
        address.copy_from_slice(&bytes[..8]);
        let size = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let thread = u16::from_le_bytes([bytes[12], bytes[13]]);
        let Some(access) = access_of(bytes[14]).filter(|_| bytes[15] == 0) else {
            self.records += 1;
            return self.refuse(format!("its kind is {:?}, not R, W, M or I and a zero byte", &bytes[14..]));
        };
        Ok(Some(Record { thread, access, address: u64::from_le_bytes(address), size }))
    }

    /// Fills the buffer as far as the input goes.
    fn read_whole(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    /// Reads a line without its end into `self.line`; false at the end of the input.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        // A line longer than this is no record; without a limit a file without line ends would be read whole.
        const LONGEST: u64 = 4096;
        let read = io::Read::take(&mut self.input, LONGEST).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(false);
        }
        self.lines += 1;
        if self.line.pop() != Some(b'\n') {
            if read as u64 == LONGEST {
                return self.refuse(format!("longer than {LONGEST} bytes"));
            }
            return Err(TraceError::CutShort(format!("line {} has no end", self.lines)));
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(true)
    }

    fn text_header(&mut self) -> Result<(), TraceError> {
        self.read_line()?;
        let line = String::from_utf8_lossy(&self.line).into_owned();
        let mut words = line.split_ascii_whitespace().skip(1);
        match words.next() {
            Some("1") => {}
            other => return Err(TraceError::Version(other.unwrap_or("(none)").to_owned())),
        }
        if let Some(word) = words.next() {
            let Ok(count) = word.parse() else { return self.refuse(format!("`{word}` is not a number of records")) };
            self.announced = Some(count);
        }
        Ok(())
    }

    fn next_line(&mut self) -> Result<Option<Record>, TraceError> {
        while self.read_line()? {
            let line = std::mem::take(&mut self.line);
            let record = match self.format {
                TraceFormat::Lackey => self.lackey_line(&line),
                TraceFormat::Text | TraceFormat::Binary => self.text_line(&line),
            };
            self.line = line;
            if let Some(record) = record? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    fn text_line(&self, line: &[u8]) -> Result<Option<Record>, TraceError> {
        let Ok(text) = std::str::from_utf8(line) else { return self.refuse("not UTF-8 text".to_owned()) };
        let content = text.split('#').next().unwrap_or("");
        let words: Vec<&str> = content.split_ascii_whitespace().collect();
        let (thread, kind, address, size) = match words[..] {
            [] => return Ok(None),
            [thread, kind, address] => (thread, kind, address, "1"),
            [thread, kind, address, size] => (thread, kind, address, size),
            _ => return self.refuse(format!("`{content}` is not `THREAD KIND ADDRESS [SIZE]`")),
        };
        let Ok(thread) = thread.parse() else { return self.refuse(format!("`{thread}` is not a thread number")) };
        let access = if kind.len() == 1 { access_of(kind.as_bytes()[0]) } else { None };
        let Some(access) = access else { return self.refuse(format!("`{kind}` is not R, W, M or I")) };
        let Some(address) = hexadecimal(address.trim_start_matches("0x").as_bytes()) else {
            return self.refuse(format!("`{address}` is not a hexadecimal address of up to 64 bits"));
        };
        let Ok(size) = size.parse() else { return self.refuse(format!("`{size}` is not a size in bytes")) };
        Ok(Some(Record { thread, access, address, size }))
    }

    fn lackey_line(&mut self, line: &[u8]) -> Result<Option<Record>, TraceError> {
        if line.starts_with(b"==") || line.is_empty() {
            self.skipped_lines += 1;
            return Ok(None);
        }
        let access = match line.get(..3) {
            Some(b"I  ") => Some(Access::Instruction),
            Some(b" L ") => Some(Access::Read),
            Some(b" S ") => Some(Access::Write),
            Some(b" M ") => Some(Access::Modify),
            _ => None,
        };
        let mut numbers = line.get(3..).unwrap_or_default().splitn(2, |byte| *byte == b',');
        let address = numbers.next().and_then(hexadecimal);
        let size = numbers.next().and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
        let (Some(access), Some(address), Some(size)) = (access, address, size) else {
            return self.refuse(format!(
                "`{}` is not a line of lackey; the program's own output goes elsewhere with --log-file=FILE",
                String::from_utf8_lossy(&line[..line.len().min(60)])
            ));
        };
        Ok(Some(Record { thread: 0, access, address, size }))
    }
}

fn access_of(letter: u8) -> Option<Access> {
    match letter {
        b'R' => Some(Access::Read),
        b'W' => Some(Access::Write),
        b'M' => Some(Access::Modify),
        b'I' => Some(Access::Instruction),
        _ => None,
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let value = char::from(*digit).to_digit(16)?;
        Some(number << 4 | u64::from(value))
    })
}

/// Writes records in the binary format.
pub fn to_binary(records: &[Record]) -> Vec<u8> {
    let mut bytes = BINARY_MAGIC.to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend((records.len() as u64).to_le_bytes());
    for record in records {
        bytes.extend(record.address.to_le_bytes());
        bytes.extend(record.size.to_le_bytes());
        bytes.extend(record.thread.to_le_bytes());
        bytes.extend([letter_of(record.access), 0]);
    }
    bytes
}

/// Writes records in the text format.
pub fn to_text(records: &[Record]) -> String {
    let mut text = format!("warmcore-address-trace 1 {}\n", records.len());
    for Record { thread, access, address, size } in records {
        text.push_str(&format!("{thread} {} {address:x} {size}\n", char::from(letter_of(*access))));
    }
    text
}

fn letter_of(access: Access) -> u8 {
    match access {
        Access::Read => b'R',
        Access::Write => b'W',
        Access::Modify => b'M',
        Access::Instruction => b'I',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Record>, TraceError> {
        let mut reader = TraceReader::new(bytes, false)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok(records)
    }

    fn message(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().to_string()
    }

    fn some_records() -> Vec<Record> {
        let record = |thread, access, address, size| Record { thread, access, address, size };
        vec![
            record(0, Access::Read, 0x1000, 8),
            record(3, Access::Write, 0xffff_ffff_0040, 64),
            record(0, Access::Modify, 0x7, 1),
            record(1, Access::Instruction, 0x40_1003, 5),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(&to_binary(&some_records())).unwrap(), some_records());
        assert_eq!(read(to_text(&some_records()).as_bytes()).unwrap(), some_records());
    }

    #[test]
    fn lackey_is_read_without_valgrinds_own_lines() {
        let text = "==12== Lackey\nI  04001090,3\n L 1ffeffe7e,8\n S 1ffeffe78,8\n M 0421b38c,4\n==12== \n";
        let records = read(text.as_bytes()).unwrap();
        assert_eq!(records.len(), 4);
        assert_eq!(records[1], Record { thread: 0, access: Access::Read, address: 0x1_ffef_fe7e, size: 8 });
    }

    #[test]
    fn a_trace_cut_anywhere_is_refused_or_shorter_by_whole_lines() {
        let binary = to_binary(&some_records());
        for length in 8..binary.len() {
            assert!(matches!(read(&binary[..length]), Err(TraceError::CutShort(_))), "{length}");
        }
        let text = to_text(&some_records());
        for length in 30..text.len() {
            assert!(matches!(read(&text.as_bytes()[..length]), Err(TraceError::CutShort(_))), "{length}");
        }
        assert!(matches!(read(b" L 1000,8\n L 10"), Err(TraceError::CutShort(_))));
    }

    #[test]
    fn errors_say_where_and_what() {
        let text = |line: &str| message(format!("warmcore-address-trace 1\n0 R 40\n{line}\n").as_bytes());
        assert!(text("0 R 1001 8").contains("line 3: address 0x1001 is not aligned to its size, 8 bytes"));
        assert!(text("0 X 40").contains("line 3: `X` is not R, W, M or I"));
        assert!(text("0 R 4g").contains("`4g` is not a hexadecimal address"));
        assert!(text("70000 R 40").contains("`70000` is not a thread number"));
        assert!(text("0 R 40 0").contains("a size of 0 bytes"));
        assert!(text("0 R ffffffffffffffff 2").contains("beyond the address space"));
        assert!(text("0 R").contains("is not `THREAD KIND ADDRESS [SIZE]`"));
        assert!(message(b" L 1000,8\nhello world\n").contains("line 2: `hello world` is not a line of lackey"));
        assert!(message(b"warmcore-address-trace 2\n").contains("version 2"));
        assert!(message(b"%!PS").contains("no address trace"));
        let mut binary = to_binary(&some_records());
        binary[24 + 14] = b'Z';
        assert!(message(&binary).contains("record 1: its kind is"));
    }

    #[test]
    fn unaligned_accesses_can_be_allowed() {
        let text = "warmcore-address-trace 1\n0 R 1001 8\n";
        let mut reader = TraceReader::new(text.as_bytes(), true).unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap().address, 0x1001);
    }
}
