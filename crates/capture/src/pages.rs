//! Records of a ring-buffer page.
//!
//! A page has a time stamp, a commit counter whose low bits are its length, and records. A record's first word has a type
//! in its low five bits and the time since the record before in the others; type 0 has its length in the next word,
//! types 1 to 28 are the length in words, 29 is padding, 30 extends the time, 31 states it.
//!
//! A page that was read out says in two more bits of the commit counter whether records are missing before its first one, and
//! whether their number follows the last one. Source: `ring_buffer_read_page` in `kernel/trace/ring_buffer.c`, Linux 6.18.

use std::collections::BTreeMap;

use super::format::{Field, fields};

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of the time in a record's first word.
const TIME_BITS: u32 = 27;
/// Bits of a stated time; the ones above are those of the time before.
const STAMP_BITS: u32 = 59;
/// Bits of the commit counter that are the length.
const LENGTH_MASK: i64 = 0xf_ffff;
/// No header of a page is longer.
const MOST_HEADER_BYTES: usize = 4096;
/// `RB_MISSED_EVENTS` and `RB_MISSED_STORED`.
const MISSED: i64 = 1 << 31;
const MISSED_STORED: i64 = 1 << 30;

/// Records that are missing before the first one of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missed {
    /// So many.
    Counted(u64),
    /// The page had no room for their number.
    Uncounted,
}

/// Where things are in a page.
#[derive(Clone, Copy, Debug)]
pub struct PageLayout {
    timestamp: Field,
    commit: Field,
    data: usize,
}

impl PageLayout {
    /// Reads the text of `events/header_page`.
    ///
    /// # Errors
    /// When a field is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fields: BTreeMap<String, Field> = fields(text)?;
        let field = |name: &str| fields.get(name).copied().ok_or_else(|| format!("the page header has no {name}"));
        // The data is an array, of which only the beginning matters.
        let data = text.lines().find(|line| line.contains(" data;"));
        let data = data.and_then(|line| line.split("offset:").nth(1)?.split(';').next()?.trim().parse().ok());
        Ok(Self {
            timestamp: field("timestamp")?,
            commit: field("commit")?,
            data: data.filter(|at| *at < MOST_HEADER_BYTES).ok_or("the page header has no data")?,
        })
    }

    /// Bytes of a `long` of the kernel that wrote the pages.
    pub(crate) fn long_bytes(&self) -> usize {
        self.commit.size()
    }

    /// What is missing before the first record of a page.
    pub fn missed(&self, page: &[u8]) -> Option<Missed> {
        let commit = self.commit.read(page)?;
        if commit & MISSED == 0 {
            return None;
        }
        let stored = || {
            let at = self.data + (commit & LENGTH_MASK) as usize;
            let bytes = page.get(at..at + self.commit.size())?;
            Some(bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
        };
        Some((commit & MISSED_STORED != 0).then(stored).flatten().map_or(Missed::Uncounted, Missed::Counted))
    }

    /// Hands every record of a page to `take`, with its time.
    ///
    /// # Errors
    /// When the page contradicts itself.
    pub fn records(&self, page: &[u8], mut take: impl FnMut(u64, &[u8])) -> Result<(), String> {
        let cut = || "a trace page is cut off".to_owned();
        let mut time = self.timestamp.read(page).ok_or_else(cut)? as u64;
        let length = (self.commit.read(page).ok_or_else(cut)? & LENGTH_MASK) as usize;
        let records = page.get(self.data..self.data + length).ok_or_else(cut)?;
        let word = |at: usize| {
            let bytes = records.get(at..at + 4)?;
            Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let mut at = 0;
        while at < records.len() {
            let head = word(at).ok_or_else(cut)?;
            let (kind, delta) = (head & 0x1f, u64::from(head >> 5));
            match kind {
                // Nothing follows on the page.
                PADDING if delta == 0 => return Ok(()),
                PADDING => {
                    time = time.wrapping_add(delta);
                    at += 4 + word(at + 4).ok_or_else(cut)? as usize;
                }
                TIME_EXTEND => {
                    time = time.wrapping_add(delta + (u64::from(word(at + 4).ok_or_else(cut)?) << TIME_BITS));
                    at += 8;
                }
                TIME_STAMP => {
                    let stated = delta + (u64::from(word(at + 4).ok_or_else(cut)?) << TIME_BITS);
                    time = stated | time >> STAMP_BITS << STAMP_BITS;
                    at += 8;
                }
                _ => {
                    time = time.wrapping_add(delta);
                    let (start, end) = match kind {
                        0 => (at + 8, at + 4 + word(at + 4).ok_or_else(cut)? as usize),
                        words => (at + 4, at + 4 + words as usize * 4),
                    };
                    if end <= at + 4 || end > records.len() || start > end {
                        return Err(format!("a record of a trace page has an impossible length, at byte {at}"));
                    }
                    take(time, &records[start..end]);
                    at = end;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";

    /// A page of these words.
    pub(crate) fn page(time: u64, words: &[u32]) -> Vec<u8> {
        let mut page = time.to_le_bytes().to_vec();
        page.extend((words.len() as u64 * 4).to_le_bytes());
        words.iter().for_each(|word| page.extend(word.to_le_bytes()));
        page
    }

    fn decode(words: &[u32]) -> Result<Vec<(u64, Vec<u8>)>, String> {
        let mut found = Vec::new();
        let layout = PageLayout::parse(HEADER).unwrap();
        layout.records(&page(1000, words), |time, record| found.push((time, record.to_vec())))?;
        Ok(found)
    }

    #[test]
    fn records_of_all_types_are_found_with_their_times() {
        let words = [
            5 << 5 | 1, // one word, 5 ns later
            0x0403_0201,
            TIME_EXTEND, // 1 << 27 ns later
            1,
            7 << 5, // length in the next word: itself and one word of data
            8,
            0x0807_0605,
            9 << 5 | PADDING, // one word of padding
            4,
            1 << 5 | 1,
            0,
        ];
        let found = decode(&words).unwrap();
        let after = 1005 + (1 << 27) + 7;
        assert_eq!(found[0], (1005, vec![1, 2, 3, 4]));
        assert_eq!(found[1], (after, vec![5, 6, 7, 8]));
        assert_eq!(found[2].0, after + 9 + 1);
    }

    #[test]
    fn a_stated_time_replaces_the_time() {
        assert_eq!(decode(&[3 << 5 | TIME_STAMP, 2, 1, 0]).unwrap()[0].0, 3 + (2 << 27));
    }

    #[test]
    fn a_page_says_how_many_records_are_missing_before_it() {
        let layout = PageLayout::parse(HEADER).unwrap();
        let with = |bits: u64, number: &[u8]| {
            let mut page = page(1000, &[1 << 5 | 1, 0]);
            page[8..16].copy_from_slice(&(8 | bits).to_le_bytes());
            page.extend(number);
            page
        };
        let stored = (MISSED | MISSED_STORED) as u64;
        assert_eq!(layout.missed(&with(0, &[])), None);
        assert_eq!(layout.missed(&with(stored, &7_u64.to_le_bytes())), Some(Missed::Counted(7)));
        assert_eq!(layout.missed(&with(MISSED as u64, &7_u64.to_le_bytes())), Some(Missed::Uncounted));
        assert_eq!(layout.missed(&with(stored, &[])), Some(Missed::Uncounted), "the number is cut off");
        let mut found = 0;
        layout.records(&with(stored, &7_u64.to_le_bytes()), |_, _| found += 1).unwrap();
        assert_eq!(found, 1, "the number is no record");
    }

    #[test]
    fn pages_of_32_bit_kernels_have_a_shorter_length() {
        let header = HEADER.replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4");
        let layout = PageLayout::parse(&header.replace("data;\toffset:16", "data;\toffset:12")).unwrap();
        assert_eq!(layout.long_bytes(), 4);
        let mut page = 1000_u64.to_le_bytes().to_vec();
        page.extend((8_u32 | 0b11 << 30).to_le_bytes());
        [1 << 5 | 1, 9, 6_u32].iter().for_each(|word| page.extend(word.to_le_bytes()));
        let mut found = Vec::new();
        layout.records(&page, |time, record| found.push((time, record.to_vec()))).unwrap();
        assert_eq!(found, [(1001, vec![9, 0, 0, 0])]);
        assert_eq!(layout.missed(&page), Some(Missed::Counted(6)));
    }

    #[test]
    fn impossible_pages_are_errors_and_never_panic() {
        assert!(decode(&[0, 4000]).is_err());
        assert!(decode(&[28]).is_err());
        assert!(decode(&[0, 0]).is_err());
        let layout = PageLayout::parse(HEADER).unwrap();
        for length in 0..16 {
            assert!(layout.records(&[0; 16][..length], |_, _| {}).is_err());
        }
    }
}
