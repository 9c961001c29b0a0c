//! Numbers as programs print them, with what belongs to them: digits in groups, a unit of time, a factor.

/// A number that was read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Number {
    /// Its value; in nanoseconds if it has a unit of time.
    pub value: f64,
    /// Whether it has a unit of time.
    pub is_time: bool,
}

/// Why a number was not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub(crate) enum NotRead {
    #[error("no number is there")]
    NoNumber,
    #[error(
        "`{0}` after the number is neither a unit of time (ns, us, µs, ms, s) nor a factor (k, K, M, G, T); a pattern that matches it after its group takes the number alone, such as 'regex:([0-9.]+){0}'"
    )]
    Unit(String),
    #[error(
        "more digits follow the number after `{0}`; `,` may only part groups of three digits, and `.` the fraction"
    )]
    GoesOn(String),
    #[error("the pattern begins inside a number")]
    Cut,
}

/// Nanoseconds of units of time.
const TIMES: [(&str, f64); 10] = [
    ("ns", 1.0),
    ("nsec", 1.0),
    ("us", 1e3),
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("usec", 1e3),
    ("ms", 1e6),
    ("msec", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
];
/// Factors of counts.
const FACTORS: [(&str, f64); 6] = [("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];

/// Reads the number that a text begins with. A unit of time counts also behind one space.
///
/// # Errors
/// When there is none, or it is not known what is meant by what touches it.
pub(crate) fn read(text: &str) -> Result<Number, NotRead> {
    let (value, rest) = plain(text)?;
    let (unit, behind) = rest.split_at(length_of(rest, |letter| letter.is_alphabetic() || letter == '%'));
    let mut letters = behind.chars();
    let (next, second) = (letters.next(), letters.next());
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    match next {
        Some(_) if is_digit(next) => return Err(NotRead::GoesOn(unit.to_owned())),
        Some(mark @ ('.' | ',' | ':' | '/' | '-' | '+' | '_' | '\'')) if is_digit(second) => {
            return Err(NotRead::GoesOn(format!("{unit}{mark}")));
        }
        _ => {}
    }
    if let Some(ns) = factor(&TIMES, if unit.is_empty() { next_word(behind) } else { unit }) {
        return Ok(Number { value: value * ns, is_time: true });
    }
    let times = factor(&FACTORS, unit).ok_or_else(|| NotRead::Unit(unit.to_owned()))?;
    Ok(Number { value: value * times, is_time: false })
}

/// Whether the end of a text is the beginning of the number that follows it.
pub(crate) fn is_cut(before: &str, number: &str) -> bool {
    let mut letters = before.chars().rev();
    let (last, previous) = (letters.next(), letters.next());
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    match last {
        _ if !number.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') => false,
        Some('.' | ',') => is_digit(previous),
        Some('-') => !previous.is_some_and(char::is_alphanumeric),
        _ => is_digit(last),
    }
}

fn factor(known: &[(&str, f64)], unit: &str) -> Option<f64> {
    known.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
}

/// The word behind one space; empty if none is there.
fn next_word(text: &str) -> &str {
    let text = text.strip_prefix(' ').unwrap_or_default();
    &text[..length_of(text, |letter| letter.is_alphanumeric() || letter == '_')]
}

/// How many bytes of a text's beginning are such letters.
fn length_of(text: &str, is_meant: impl Fn(char) -> bool) -> usize {
    text.find(|letter: char| !is_meant(letter)).unwrap_or(text.len())
}

/// The number without what belongs to it, and the text behind.
fn plain(text: &str) -> Result<(f64, &str), NotRead> {
    let digits = |text: &str| length_of(text, |letter| letter.is_ascii_digit());
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut number = text[..text.len() - rest.len()].to_owned();
    let mut take = |rest: &mut &str, length: usize| {
        let (taken, behind) = rest.split_at(length);
        number.push_str(taken);
        *rest = behind;
    };
    let whole = digits(rest);
    let may_have_groups = (1..=3).contains(&whole) && !rest.starts_with('0');
    take(&mut rest, whole);
    while let Some(group) = rest.strip_prefix(',').filter(|group| may_have_groups && digits(group) == 3) {
        rest = group;
        take(&mut rest, 3);
    }
    let fraction = rest.strip_prefix('.').map_or(0, |fraction| 1 + digits(fraction));
    if whole == 0 && fraction < 2 {
        return Err(NotRead::NoNumber);
    }
    take(&mut rest, fraction);
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if digits(unsigned) > 0 {
            let length = rest.len() - unsigned.len() + digits(unsigned);
            take(&mut rest, length);
        }
    }
    let value = number.parse().ok().filter(|value: &f64| value.is_finite());
    Ok((value.ok_or(NotRead::NoNumber)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> f64 {
        let number = read(text).unwrap();
        assert!(!number.is_time, "{text}");
        number.value
    }

    fn ns(text: &str) -> f64 {
        let number = read(text).unwrap();
        assert!(number.is_time, "{text}");
        number.value
    }

    #[test]
    fn digits_in_groups_are_one_number() {
        assert_eq!(count("1,001.5 per s"), 1001.5);
        assert_eq!(count("12,345,678"), 12_345_678.0);
        assert_eq!(count("-1,001"), -1001.0);
        assert_eq!(count("1.5e3 per s"), 1500.0);
        assert_eq!(count("+2.5E-1,"), 0.25);
        assert_eq!(count("2.5, then"), 2.5);
        assert_eq!(count("it took 5.".trim_start_matches("it took ")), 5.0);
        assert_eq!(count(".5"), 0.5);
    }

    #[test]
    fn what_may_be_another_number_is_not_read() {
        for (text, mark) in [
            ("12,5", ","),
            ("1,0015", ","),
            ("1,001,5", ","),
            ("0,123", ","),
            ("1234,567", ","),
            ("1.001,5", ","),
            ("1.2.3", "."),
            ("0:05.3", ":"),
            ("3/4", "/"),
            ("2026-11-29", "-"),
            ("1m30s", "m"),
        ] {
            assert_eq!(read(text), Err(NotRead::GoesOn(mark.to_owned())), "{text}");
        }
        for text in ["", "Running", "-", ".", "nan", "inf", "1e999"] {
            assert_eq!(read(text), Err(NotRead::NoNumber), "{text}");
        }
    }

    #[test]
    fn times_are_in_nanoseconds_whatever_their_unit() {
        assert_eq!(ns("900.5us"), 900_500.0);
        assert_eq!(ns("1.25ms 3.00ms"), 1_250_000.0);
        assert_eq!(ns("7\u{b5}s"), 7000.0);
        assert_eq!(ns("7\u{3bc}s"), 7000.0);
        assert_eq!(ns("1,001ns"), 1001.0);
        assert_eq!(ns("2s"), 2e9);
        assert_eq!(ns("0.5 s\n"), 0.5e9);
        assert_eq!(ns("3 ms/op"), 3e6);
        assert_eq!(count("3 samples"), 3.0);
        assert_eq!(count("3  s"), 3.0);
    }

    #[test]
    fn factors_multiply_and_other_units_are_named() {
        assert_eq!(count("12.5k"), 12_500.0);
        assert_eq!(count("2K/s"), 2000.0);
        assert_eq!((count("3M"), count("4G"), count("5T")), (3e6, 4e9, 5e12));
        for (text, unit) in [("12MB/s", "MB"), ("99%", "%"), ("3m", "m"), ("0x1F", "x"), ("5e", "e")] {
            let error = read(text).unwrap_err();
            let expected = if unit == "x" { NotRead::GoesOn("x".into()) } else { NotRead::Unit(unit.into()) };
            assert_eq!(error, expected, "{text}");
        }
        assert!(NotRead::Unit("%".into()).to_string().starts_with("`%` after the number is neither"));
    }

    #[test]
    fn a_text_that_ends_inside_a_number_cuts_it() {
        for before in ["1,", "rps 1.", "x 12", "x -", "-"] {
            assert!(is_cut(before, "001"), "{before}");
        }
        for before in ["", "rps ", "a,", "x=", "run-", "p."] {
            assert!(!is_cut(before, "001"), "{before}");
        }
        assert!(!is_cut("1,", " 5"));
    }
}
