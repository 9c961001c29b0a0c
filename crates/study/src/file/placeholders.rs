//! What is put for `{name}` in texts.

use std::collections::BTreeMap;

/// A text with what is put for its placeholders.
///
/// # Errors
/// The name of one for which there is nothing.
pub(crate) fn substitute(text: &str, bindings: &BTreeMap<String, String>) -> Result<String, String> {
    let put = put_known(text, bindings);
    // JSON has braces of its own, but never around a name alone.
    let mut rest = put.as_str();
    while let Some(open) = rest.find('{') {
        rest = &rest[open + 1..];
        let name: String = rest.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect();
        if !name.is_empty() && rest[name.len()..].starts_with('}') {
            return Err(name);
        }
    }
    Ok(put)
}

/// The same, with placeholders for which there is nothing left as they are.
pub(crate) fn put_known(text: &str, bindings: &BTreeMap<String, String>) -> String {
    bindings.iter().fold(text.to_owned(), |text, (key, value)| text.replace(&format!("{{{key}}}"), value))
}
