//! JSON text: objects and lists without further ones inside stand on one line if that is short.

use std::fmt::Write;

use super::json::Json;

/// Longest text of an object or list on one line.
const LINE: usize = 90;

/// The document as text, with a line end.
pub(super) fn print(value: &Json) -> String {
    let mut text = String::new();
    print_value(value, 0, &mut text);
    text.push('\n');
    text
}

fn print_value(value: &Json, depth: usize, text: &mut String) {
    let (open, close, length) = match value {
        Json::Array(list) => ('[', ']', list.len()),
        Json::Object(entries) => ('{', '}', entries.len()),
        _ => return print_scalar(value, text),
    };
    if let Some(line) = on_one_line(value) {
        text.push_str(&line);
        return;
    }
    text.push(open);
    for index in 0..length {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        text.extend(std::iter::repeat_n('\t', depth + 1));
        print_entry(value, index, depth + 1, text);
    }
    text.push('\n');
    text.extend(std::iter::repeat_n('\t', depth));
    text.push(close);
}

fn print_entry(value: &Json, index: usize, depth: usize, text: &mut String) {
    match value {
        Json::Array(list) => print_value(&list[index], depth, text),
        Json::Object(entries) => {
            let (key, value) = &entries[index];
            print_text(key, text);
            text.push_str(": ");
            print_value(value, depth, text);
        }
        _ => {}
    }
}

/// The value on one line, if nothing in it holds further values and it is short.
fn on_one_line(value: &Json) -> Option<String> {
    let is_scalar = |value: &Json| !matches!(value, Json::Array(_) | Json::Object(_));
    let (open, close, simple, length) = match value {
        Json::Array(list) => ("[", "]", list.iter().all(is_scalar), list.len()),
        Json::Object(entries) => ("{ ", " }", entries.iter().all(|(_, value)| is_scalar(value)), entries.len()),
        _ => return None,
    };
    if length == 0 {
        return Some(format!("{}{}", open.trim(), close.trim()));
    }
    if !simple {
        return None;
    }
    let mut line = open.to_owned();
    for index in 0..length {
        if index > 0 {
            line.push_str(", ");
        }
        print_entry(value, index, 0, &mut line);
        if line.len() > LINE {
            return None;
        }
    }
    line.push_str(close);
    Some(line)
}

fn print_scalar(value: &Json, text: &mut String) {
    match value {
        Json::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Json::Integer(value) => {
            let _ = write!(text, "{value}");
        }
        Json::Float(value) => {
            let _ = write!(text, "{value:?}");
        }
        Json::Text(word) => print_text(word, text),
        Json::Null | Json::Array(_) | Json::Object(_) => text.push_str("null"),
    }
}

fn print_text(word: &str, text: &mut String) {
    text.push('"');
    for c in word.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            any::<i64>().prop_map(|value| Json::Integer(value.into())),
            any::<u64>().prop_map(|value| Json::Integer(value.into())),
            "\\PC*".prop_map(Json::Text),
            "[\\x00-\\x1f\"\\\\/]*".prop_map(Json::Text),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
                prop::collection::btree_map("[a-c]{0,2}", inner, 0..6)
                    .prop_map(|entries| Json::Object(entries.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn short_objects_stand_on_one_line() {
        let text = "{\n\t\"a\": { \"b\": 1, \"c\": [] },\n\t\"d\": [1, 2]\n}\n";
        assert_eq!(print(&parse("{\"a\":{\"b\":1,\"c\":2},\"d\":[1,2]}").unwrap()), text.replace("[]", "2"));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(value in any_json()) {
            prop_assert_eq!(parse(&print(&value)).unwrap(), value);
        }
    }
}
