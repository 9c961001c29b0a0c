//! hwloc's text form of CPU and node sets: hexadecimal words of 32 bits, the highest first (`0x00000001,0xffffffff`).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::MAX_CPU_NUMBER;

/// Reads a set. Empty words are zero. Sets without end (`0xf...f`) are not machines' sets and refused.
pub(crate) fn parse_bitmap(text: &str) -> Result<BTreeSet<u32>, String> {
    let mut members = BTreeSet::new();
    for (position, word) in text.trim().rsplit(',').enumerate() {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        if digits.is_empty() {
            continue;
        }
        let valid = digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u32::from_str_radix(digits, 16).ok().filter(|_| valid);
        let Some(mut bits) = bits else {
            let shown: String = word.chars().take(20).collect();
            return Err(format!("`{shown}` is not a word of a CPU set such as 0x0000ffff"));
        };
        while bits != 0 {
            let number = position as u64 * 32 + u64::from(bits.trailing_zeros());
            match u32::try_from(number) {
                Ok(number) if number <= MAX_CPU_NUMBER => members.insert(number),
                _ => return Err(format!("number {number} in a set is larger than {MAX_CPU_NUMBER}")),
            };
            bits &= bits - 1;
        }
    }
    Ok(members)
}

/// Prints a set as hwloc does.
pub(crate) fn format_bitmap(members: &BTreeSet<u32>) -> String {
    let highest = members.last().map_or(0, |number| number / 32);
    let mut words = vec![0_u32; highest as usize + 1];
    for number in members {
        words[(number / 32) as usize] |= 1 << (number % 32);
    }
    let mut text = String::new();
    for word in words.iter().rev() {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}0x{word:08x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written_highest_first() {
        let members = BTreeSet::from([0, 31, 64]);
        assert_eq!(format_bitmap(&members), "0x00000001,0x00000000,0x80000001");
        assert_eq!(parse_bitmap("0x00000001,0x00000000,0x80000001").unwrap(), members);
        assert_eq!(parse_bitmap("0x1,,0x80000001").unwrap(), members);
        assert_eq!(parse_bitmap("0x0").unwrap(), BTreeSet::new());
        assert_eq!(format_bitmap(&BTreeSet::new()), "0x00000000");
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["0xf...f", "0x123456789", "0xg", "-0x1", "+1"] {
            assert!(parse_bitmap(text).is_err(), "{text}");
        }
    }
}
