//! Sizes and decimal numbers in text: `48KiB`, `35.75MiB`, `5.4` ns as 5400 ps.

use serde::Deserialize;

/// Binary prefixes, largest first.
const SIZE_UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// The largest size that is accepted: 1 EiB.
const MAX_SIZE: u64 = 1 << 60;

/// Reads a size: with a binary unit, `48KiB`, `35.75MiB`, `64 B`, or as a number of bytes, `49152`. A decimal number of
/// units that is no whole number of bytes is rounded to the nearest: `19.2MiB` is 20 132 659 bytes.
///
/// # Errors
/// Anything else, with the reason.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let fail =
        || format!("`{text}` is not a size; write for example `48KiB`, `35.75MiB`, `16GiB` or a number of bytes");
    let trimmed = text.trim();
    let unit = SIZE_UNITS.iter().find(|(unit, _)| trimmed.ends_with(unit));
    let (unit, bytes_per_unit) = *unit.unwrap_or(&("", 1));
    let number = trimmed[..trimmed.len() - unit.len()].trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || (number.contains('.') && !digits(fraction)) || fraction.len() > 6 {
        return Err(fail());
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let scaled: u128 = format!("{whole}{fraction}").parse().map_err(|_| fail())?;
    let bytes = scaled.checked_mul(u128::from(bytes_per_unit)).ok_or_else(fail)?;
    if bytes_per_unit == 1 && bytes % scale != 0 {
        return Err(format!("`{text}` is not a whole number of bytes"));
    }
    match u64::try_from((bytes + scale / 2) / scale) {
        Ok(bytes) if bytes <= MAX_SIZE => Ok(bytes),
        _ => Err(format!("`{text}` is larger than 1 EiB")),
    }
}

/// A size in a file: a text that [`parse_size`] reads, or a number of bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a size such as \"48KiB\", or a number of bytes")]
pub(crate) enum SizeValue {
    Text(String),
    Bytes(u64),
}

impl SizeValue {
    /// The size; fails with a reason.
    pub(crate) fn bytes(&self) -> Result<u64, String> {
        match self {
            SizeValue::Text(text) => parse_size(text),
            SizeValue::Bytes(bytes) => parse_size(&bytes.to_string()),
        }
    }
}

/// Prints a size exactly, with the largest unit that needs at most two decimals: `35.75MiB`.
pub fn format_size(bytes: u64) -> String {
    for (unit, bytes_per_unit) in SIZE_UNITS {
        let hundredths = u128::from(bytes) * 100;
        let per_unit = u128::from(bytes_per_unit);
        if bytes >= bytes_per_unit && hundredths % per_unit == 0 {
            return format!("{}{unit}", decimal((hundredths / per_unit) as u64, 2));
        }
    }
    format!("{bytes}B")
}

/// Prints a size for people: at most two decimals, rounded.
pub(crate) fn format_size_rounded(bytes: u64) -> String {
    let (unit, bytes_per_unit) = SIZE_UNITS.into_iter().find(|(_, per_unit)| bytes >= *per_unit).unwrap_or(("B", 1));
    let hundredths = (u128::from(bytes) * 100 + u128::from(bytes_per_unit) / 2) / u128::from(bytes_per_unit);
    format!("{} {unit}", decimal(hundredths as u64, 2))
}

/// `scaled / 10^places` without trailing zeros: `decimal(5400, 3)` is `5.4`.
pub(crate) fn decimal(scaled: u64, places: u32) -> String {
    let scale = 10_u64.pow(places);
    let (whole, fraction) = (scaled / scale, scaled % scale);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = format!("{fraction:0width$}", width = places as usize);
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// `number * 10^places` as an integer; `None` when it is negative, not finite, too large or has more decimals.
pub(crate) fn scaled(number: f64, places: u32) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let scaled = number * 10_f64.powi(places as i32);
    let rounded = scaled.round();
    let exact = (scaled - rounded).abs() <= 1e-6 * scaled.abs().max(1.0);
    (number >= 0.0 && scaled < EXACT && exact).then_some(rounded as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed_exactly() {
        for (text, bytes) in [("48KiB", 49_152), ("35.75MiB", 37_486_592), ("1GiB", 1 << 30), ("7B", 7), ("0B", 0)] {
            assert_eq!(parse_size(text).unwrap(), bytes);
            assert_eq!(format_size(bytes), text);
        }
        assert_eq!(format_size(1_000_001), "1000001B");
        assert_eq!(format_size_rounded(37_486_593), "35.75 MiB");
    }

    #[test]
    fn numbers_of_bytes_and_decimal_numbers_of_units_are_sizes() {
        assert_eq!(parse_size("49152"), Ok(49_152));
        assert_eq!(parse_size("19.2MiB"), Ok(20_132_659));
        assert_eq!(parse_size("0.3KiB"), Ok(307));
        assert_eq!(parse_size("1.5"), Err("`1.5` is not a whole number of bytes".to_owned()));
    }

    #[test]
    fn sizes_with_other_units_are_refused() {
        for text in ["48K", "48 KB", "", "KiB", "1.KiB", ".5KiB", "-1KiB", "0.3B", "9999999999999TiB", "1e3KiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn decimals_keep_their_digits() {
        assert_eq!(scaled(5.4, 3), Some(5_400));
        assert_eq!(scaled(1.08, 3), Some(1_080));
        assert_eq!(scaled(0.0001, 3), None);
        assert_eq!(scaled(-1.0, 3), None);
        assert_eq!(scaled(f64::NAN, 3), None);
        assert_eq!(decimal(1_080, 3), "1.08");
        assert_eq!(decimal(61_000, 3), "61");
    }
}
