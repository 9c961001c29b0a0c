//! The kernel's list format for sets of numbers: `0-3,8,10-11`. Used for CPUs and for nodes.
//!
//! The stride form `0-31:2/4`, which the kernel accepts on input but never prints, is not read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use thiserror::Error;

/// The highest CPU or node number that is accepted anywhere. The operating system's numbers may be sparse, so it
/// lies well above the number of CPUs a machine may have ([`MAX_CPUS`](crate::MAX_CPUS)).
pub const MAX_CPU_NUMBER: u32 = 65_535;

/// Why a text is not a kernel CPU list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{part}` is not a part of a CPU list ({reason}); a list looks like `0-3,8,10-11`")]
pub struct CpuListError {
    /// The part between two commas that could not be read.
    pub part: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Reads a kernel list. Blank text is the empty set; order and repetition do not matter.
///
/// # Errors
/// Parts that are neither a number nor a range `low-high` with `low <= high <= MAX_CPU_NUMBER`.
pub fn parse_cpu_list(text: &str) -> Result<BTreeSet<u32>, CpuListError> {
    let mut numbers = BTreeSet::new();
    if text.trim().is_empty() {
        return Ok(numbers);
    }
    for part in text.trim().split(',') {
        let fail = |reason| CpuListError { part: shorten(part), reason };
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let low = parse_number(low).map_err(fail)?;
        let high = parse_number(high).map_err(fail)?;
        if low > high {
            return Err(fail("the range runs backwards"));
        }
        numbers.extend(low..=high);
    }
    Ok(numbers)
}

fn parse_number(text: &str) -> Result<u32, &'static str> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not a number");
    }
    match text.parse::<u32>() {
        Ok(number) if number <= MAX_CPU_NUMBER => Ok(number),
        _ => Err("the number is larger than 65535"),
    }
}

/// Bad input can be long; a message shows its beginning.
fn shorten(part: &str) -> String {
    const SHOWN: usize = 40;
    if part.chars().count() <= SHOWN {
        return part.to_owned();
    }
    part.chars().take(SHOWN).chain("...".chars()).collect()
}

/// Prints ascending numbers as a kernel list.
pub fn format_cpu_list(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.into_iter().peekable();
    while let Some(low) = numbers.next() {
        let mut high = low;
        while let Some(next) = numbers.next_if(|&next| next == high + 1) {
            high = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = if low == high { write!(text, "{comma}{low}") } else { write!(text, "{comma}{low}-{high}") };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_printed_as_the_kernel_prints_them() {
        assert_eq!(format_cpu_list([0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(format_cpu_list([0, 1]), "0-1");
        assert_eq!(format_cpu_list([]), "");
    }

    #[test]
    fn order_blanks_and_repetition_do_not_matter() {
        let read = |text| parse_cpu_list(text).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(read(" 8,0-2,1\n"), [0, 1, 2, 8]);
        assert_eq!(read("\n"), [0; 0]);
    }

    #[test]
    fn malformed_lists_name_the_bad_part() {
        for (text, part) in
            [("0-3,x", "x"), ("0,,1", ""), ("5-3", "5-3"), ("70000", "70000"), ("+1", "+1"), ("1-2-3", "1-2-3")]
        {
            assert_eq!(parse_cpu_list(text).unwrap_err().part, part);
        }
    }
}
