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
        let is_of_name = |letter: &char| letter.is_ascii_alphanumeric() || "_-".contains(*letter);
        let name: String = rest.chars().take_while(is_of_name).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_without_a_value_is_named_and_braces_of_json_are_none() {
        let put = |text: &str| substitute(text, &[("n-2".to_owned(), "7".to_owned())].into());
        assert_eq!(put("-n{n-2}"), Ok("-n7".to_owned()));
        assert_eq!(put("-n{n-3}"), Err("n-3".to_owned()));
        assert_eq!(put("{\"run\": {n-2}, \"loop\": {}}"), Ok("{\"run\": 7, \"loop\": {}}".to_owned()));
    }
}
