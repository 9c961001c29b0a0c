//! Text from files made harmless for terminals.
//!
//! Names of tasks, machines and schedulers may hold anything. A terminal takes control characters as orders: it changes its
//! title, moves the cursor, hides what was printed. They are shown as what they are instead: `\u{1b}`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with every control character but line feed and tab written as its number.
pub fn printable(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_numbers() {
        assert_eq!(printable("a\u{1b}]0;owned\u{7}b\r\u{9b}2J"), "a\\u{1b}]0;owned\\u{7}b\\u{d}\\u{9b}2J");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in ["", "plain", "two\nlines\tand a tab", "µs, × and \u{10ffff}"] {
            assert!(matches!(printable(text), Cow::Borrowed(shown) if shown == text));
        }
    }
}
