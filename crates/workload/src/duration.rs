//! Durations with units, as users type them: `500us`, `2ms`, `1.5s`.
//!
//! Exact: a text that does not name a whole number of nanoseconds is refused rather than rounded. A bare number is
//! refused too, because a reader cannot tell which unit was meant.

/// Longest duration accepted anywhere in a workload: 2^60 ns, about 36 years. Sums of several of them still fit `u64`.
pub const MAX_DURATION_NS: u64 = 1 << 60;

/// Units with their length in nanoseconds, longest first.
const UNITS: [(&str, u64); 7] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// A text that is no duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "\"{text}\" is no duration: {reason}; write a number and a unit (ns, us, ms, s, min, h), such as 500us or 1.5s"
)]
pub struct DurationError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: DurationProblem,
}

/// What is wrong with a duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum DurationProblem {
    #[error("it does not start with a number")]
    NoNumber,
    #[error("it has no unit")]
    NoUnit,
    #[error("its unit is not known")]
    UnknownUnit,
    #[error("it is not a whole number of nanoseconds")]
    TooPrecise,
    /// Beyond [`MAX_DURATION_NS`].
    #[error("it is longer than 36 years")]
    TooLong,
}

/// Reads a duration with its unit; the result is nanoseconds, at most [`MAX_DURATION_NS`].
///
/// ```
/// use warmcore_workload::parse_duration;
/// assert_eq!(parse_duration("1.6ms"), Ok(1_600_000));
/// assert!(parse_duration("16").is_err());
/// ```
///
/// # Errors
/// Text that is not a non-negative decimal number followed by a unit, fractions of a nanosecond, and durations longer
/// than [`MAX_DURATION_NS`].
pub fn parse_duration(text: &str) -> Result<u64, DurationError> {
    parse(text.trim()).map_err(|reason| DurationError { text: text.to_owned(), reason })
}

fn parse(text: &str) -> Result<u64, DurationProblem> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(DurationProblem::NoNumber);
    }
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(DurationProblem::NoUnit);
    }
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationProblem::UnknownUnit)?;
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| DurationProblem::TooLong)? };
    let whole_ns = whole.checked_mul(*unit_ns).ok_or(DurationProblem::TooLong)?;
    let total = whole_ns.checked_add(fraction_ns(fraction, *unit_ns)?).ok_or(DurationProblem::TooLong)?;
    if total > MAX_DURATION_NS { Err(DurationProblem::TooLong) } else { Ok(total) }
}

/// `0.<fraction>` of a unit, in nanoseconds.
fn fraction_ns(fraction: &str, unit_ns: u64) -> Result<u64, DurationProblem> {
    let digits = fraction.trim_end_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    // The longest unit has 3.6e12 ns, so more than 13 significant decimals cannot give whole nanoseconds.
    if digits.len() > 13 {
        return Err(DurationProblem::TooPrecise);
    }
    let numerator: u128 = digits.parse().map_err(|_| DurationProblem::NoNumber)?;
    let denominator = 10_u128.pow(digits.len() as u32);
    let scaled = numerator * u128::from(unit_ns);
    if !scaled.is_multiple_of(denominator) {
        return Err(DurationProblem::TooPrecise);
    }
    // A fraction of a unit is below 3.6e12.
    Ok((scaled / denominator) as u64)
}

/// Writes a duration so that [`parse_duration`] reads the same value: the longest of s, ms, us, ns that needs at most
/// three decimals.
pub fn format_duration(ns: u64) -> String {
    for (unit, unit_ns) in [("s", 1_000_000_000_u64), ("ms", 1_000_000), ("us", 1_000)] {
        let thousandths = unit_ns / 1_000;
        if ns >= unit_ns && ns.is_multiple_of(thousandths) {
            let (whole, fraction) = (ns / unit_ns, ns % unit_ns / thousandths);
            if fraction == 0 {
                return format!("{whole}{unit}");
            }
            return format!("{whole}.{}{unit}", format!("{fraction:03}").trim_end_matches('0'));
        }
    }
    format!("{ns}ns")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(text: &str) -> DurationProblem {
        parse_duration(text).unwrap_err().reason
    }

    #[test]
    fn every_unit_is_read() {
        let texts = ["2h", "3min", "1.5s", "2ms", "500us", "500µs", "7ns", ".5s", "1.s"];
        let expected = [
            7_200_000_000_000,
            180_000_000_000,
            1_500_000_000,
            2_000_000,
            500_000,
            500_000,
            7,
            500_000_000,
            1_000_000_000,
        ];
        for (text, ns) in texts.iter().zip(expected) {
            assert_eq!(parse_duration(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn bare_numbers_unknown_units_and_nonsense_are_refused() {
        assert_eq!(problem("500"), DurationProblem::NoUnit);
        assert_eq!(problem("5 weeks"), DurationProblem::UnknownUnit);
        assert_eq!(problem("-5ms"), DurationProblem::NoNumber);
        assert_eq!(problem("1.2.3s"), DurationProblem::NoNumber);
        assert_eq!(problem("."), DurationProblem::NoNumber);
        assert_eq!(problem(""), DurationProblem::NoNumber);
    }

    #[test]
    fn a_fraction_of_a_nanosecond_is_refused_not_rounded() {
        assert_eq!(problem("1.5ns"), DurationProblem::TooPrecise);
        assert_eq!(problem("0.00000000001s"), DurationProblem::TooPrecise);
        assert_eq!(parse_duration("1.500ns").unwrap_err().reason, DurationProblem::TooPrecise);
        assert_eq!(parse_duration("1.000ns"), Ok(1));
    }

    #[test]
    fn durations_beyond_36_years_are_refused() {
        assert_eq!(problem("99999999999999999999s"), DurationProblem::TooLong);
        assert_eq!(problem("1152921504606846977ns"), DurationProblem::TooLong);
        assert_eq!(parse_duration("1152921504606846976ns"), Ok(MAX_DURATION_NS));
    }

    #[test]
    fn the_message_says_what_to_write() {
        let message = parse_duration("500").unwrap_err().to_string();
        assert!(message.contains("\"500\"") && message.contains("no unit") && message.contains("500us"), "{message}");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(ns in 0..=MAX_DURATION_NS) {
            prop_assert_eq!(parse_duration(&format_duration(ns)), Ok(ns));
        }

        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC*") {
            let _ = parse_duration(&text);
        }
    }
}
