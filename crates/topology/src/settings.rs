//! Settings in one text, as they stand after the name of what they are of: `page=4KiB,tlb=64`. The one reader of them, for places, memory and
//! caches; what a setting means is its owner's. Errors are for people who type.

use crate::nearest;

/// Settings with commas between them: a key, or a key and a value. A key stands once, unless it is `repeatable`.
///
/// # Errors
/// Nothing between two commas, an empty value, a key that is there twice.
pub fn pairs<'a>(text: &'a str, repeatable: &[&str]) -> Result<Vec<(&'a str, Option<&'a str>)>, String> {
    let mut found: Vec<(&str, Option<&str>)> = Vec::new();
    for setting in text.split(',') {
        let (key, value) = setting.split_once('=').map_or((setting, None), |(key, value)| (key, Some(value)));
        if key.is_empty() {
            return Err("a setting is missing between commas, or after the colon".to_owned());
        }
        if value == Some("") {
            return Err(format!("{key}= has no value"));
        }
        if !repeatable.contains(&key) && found.iter().any(|(other, _)| *other == key) {
            return Err(format!("{key} is set twice"));
        }
        found.push((key, value));
    }
    Ok(found)
}

/// A number of that range.
///
/// # Errors
/// It is none.
pub fn number(key: &str, text: &str, least: u32, most: u32) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{key}={text}: it is not a number from {least} to {most}")),
    }
}

/// What one of some words stands for.
///
/// # Errors
/// It is none of them.
pub fn word<T: Copy>(key: &str, text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{key}={text}: it is one of {}", known.join(", "))
    })
}

/// Why a setting is none of what has these keys.
pub fn refusal(of: &str, key: &str, value: Option<&str>, keys: &[&str]) -> String {
    match (keys.contains(&key), value) {
        (true, None) => format!("{key} needs a value: {key}=…"),
        (true, Some(value)) => format!("{key} takes no value, and `{value}` is one"),
        (false, _) => match nearest(key, keys.iter().copied()) {
            Some(near) => format!("{of} has no setting `{key}`; did you mean `{near}`?"),
            None => format!("{of} has no setting `{key}`; there are {}", keys.join(", ")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_keys_with_and_without_values_and_each_stands_once() {
        assert_eq!(pairs("a=1=2,b", &[]), Ok(vec![("a", Some("1=2")), ("b", None)]));
        assert_eq!(pairs("a=1,a=2", &["a"]).map(|found| found.len()), Ok(2));
        for (text, wanted) in
            [("", "missing"), ("a,,b", "missing"), ("=1", "missing"), ("a=", "no value"), ("a=1,b,a", "a is set twice")]
        {
            let error = pairs(text, &["b"]).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
