//! Texts in the Latin encoding of PDF (WinAnsi, ISO 32000-1 annex D), and how wide they are in Helvetica.

use std::fmt::Write as _;

/// Widths of the letters from space to tilde in thousandths of the size, from the font's metrics (Adobe core 14 fonts).
const WIDTHS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556,
    556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334,
    260, 334, 584,
];
/// Width of the others: that of digits, and about that of signs.
const OTHER_WIDTH: u16 = 556;
/// How much wider bold letters are, on average.
const BOLD: f64 = 1.06;

/// Width of a text of size 1.
pub(super) fn width(text: &str, bold: bool) -> f64 {
    let of = |c: char| (c as usize).checked_sub(32).and_then(|at| WIDTHS.get(at)).copied().unwrap_or(OTHER_WIDTH);
    let sum: f64 = text.chars().map(|c| f64::from(of(c)) / 1000.0).sum();
    if bold { sum * BOLD } else { sum }
}

/// The code of a letter; a question mark's if the encoding has not got it.
fn code(c: char) -> u8 {
    match c {
        ' '..='~' => c as u8,
        '\u{a0}'..='\u{ff}' => c as u32 as u8,
        '\u{2026}' => 0x85,
        '\u{2018}' => 0x91,
        '\u{2019}' => 0x92,
        '\u{201c}' => 0x93,
        '\u{201d}' => 0x94,
        '\u{2022}' => 0x95,
        // A minus sign is as wide as a dash, not as a hyphen.
        '\u{2013}' | '\u{2212}' => 0x96,
        '\u{2014}' => 0x97,
        '\u{3bc}' => 0xb5,
        _ => b'?',
    }
}

/// A text as PDF writes it.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::from("(");
    for code in text.chars().map(code) {
        let _ = match code {
            b'(' | b')' | b'\\' => write!(out, "\\{}", char::from(code)),
            b' '..=b'~' => write!(out, "{}", char::from(code)),
            _ => write!(out, "\\{code:03o}"),
        };
    }
    out.push(')');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_outside_the_encoding_are_question_marks_and_signs_are_escaped() {
        assert_eq!(literal("a(b)\\ 5 µs – ≥"), "(a\\(b\\)\\\\ 5 \\265s \\226 ?)");
        assert!((width("100", false) - 1.668).abs() < 1e-9);
    }
}
