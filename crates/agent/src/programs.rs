//! BPF programs for the kernel to run by itself, as a file in the guest, and what came of each.
//!
//! Numbers are little endian, of 32 bits. A file: bytes of the array's value, the value, the number of programs, and of each the number of its
//! instructions and these. What came of them: of each a status, what it returned, and the value afterwards if it ran.

/// Path of the file in the guest.
pub const PATH: &str = "/programs";

/// Programs, and the value that the array has before each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Programs {
    /// The value.
    pub value: Vec<u8>,
    /// Instructions, 8 bytes each. Immediates of kind 2 are addresses in the array.
    pub programs: Vec<Vec<u8>>,
}

/// What came of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Came {
    /// It ran.
    Ran {
        /// The lower half of r0.
        returned: u32,
        /// The array's value afterwards.
        value: Vec<u8>,
    },
    /// The kernel did not load it, for this error number.
    Refused(u32),
    /// The kernel did not run it, for this error number.
    NotRun(u32),
}

const RAN: u32 = 0;
/// Set in a status: it was loaded.
const LOADED: u32 = 1 << 31;

impl Programs {
    /// As a file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut put = |bytes: &[u8], count: usize| {
            file.extend((count as u32).to_le_bytes());
            file.extend(bytes);
        };
        put(&self.value, self.value.len());
        put(&[], self.programs.len());
        for program in &self.programs {
            put(program, program.len() / 8);
        }
        file
    }

    /// From a file; `None` if it is broken.
    #[must_use]
    pub fn decode(file: &[u8]) -> Option<Self> {
        let mut rest = file;
        let length = word(&mut rest)? as usize;
        let value = take(&mut rest, length)?.to_vec();
        let count = word(&mut rest)?;
        let mut programs = Vec::new();
        for _ in 0..count {
            let length = word(&mut rest)? as usize;
            programs.push(take(&mut rest, length.checked_mul(8)?)?.to_vec());
        }
        rest.is_empty().then_some(Self { value, programs })
    }
}

impl Came {
    /// Appends it to others.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (status, returned, value) = match self {
            Self::Ran { returned, value } => (RAN, *returned, value.as_slice()),
            Self::Refused(error) => (*error, 0, [].as_slice()),
            Self::NotRun(error) => (error | LOADED, 0, [].as_slice()),
        };
        to.extend(status.to_le_bytes());
        to.extend(returned.to_le_bytes());
        to.extend(value);
    }

    /// Reads all of a frame, values of so many bytes each; `None` if it is broken.
    #[must_use]
    pub fn decode(frame: &[u8], value_bytes: usize) -> Option<Vec<Self>> {
        let mut rest = frame;
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (status, returned) = (word(&mut rest)?, word(&mut rest)?);
            all.push(match status {
                RAN => Self::Ran { returned, value: take(&mut rest, value_bytes)?.to_vec() },
                error if error & LOADED != 0 => Self::NotRun(error & !LOADED),
                error => Self::Refused(error),
            });
        }
        Some(all)
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn word(rest: &mut &[u8]) -> Option<u32> {
    take(rest, 4).map(|four| u32::from_le_bytes(four.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_what_came_of_them_are_read_as_they_were_written() {
        let programs = Programs { value: vec![1, 2, 3], programs: vec![vec![7; 16], vec![8; 8]] };
        let file = programs.encode();
        assert_eq!(Programs::decode(&file), Some(programs));
        assert!((0..file.len()).all(|length| Programs::decode(&file[..length]).is_none()), "cut off anywhere");
        assert_eq!(Programs::decode(&[0xff; 12]), None);
        let came = [Came::Ran { returned: 5, value: vec![9, 9] }, Came::Refused(13), Came::NotRun(22)];
        let mut frame = Vec::new();
        came.iter().for_each(|came| came.encode(&mut frame));
        assert_eq!(Came::decode(&frame, 2).unwrap(), came);
        assert_eq!(Came::decode(&frame[..9], 2), None);
    }
}
