//! JSON text: objects and lists without further ones inside stand on one line if that is short.

use std::fmt::{self, Write};

use super::json::Json;
use super::list::{List, Value};

/// Longest text of an object or list on one line.
const LINE: usize = 90;

/// The document as text, with a line end.
pub(super) fn print(value: &Json) -> String {
    let mut text = String::new();
    // A string takes whatever is written to it.
    let _ = print_into(value, &mut text);
    text
}

/// Whether that is a document's text.
pub(super) fn prints(value: &Json, text: &str) -> bool {
    let mut rest = Expected(text);
    print_into(value, &mut rest).is_ok() && rest.0.is_empty()
}

/// Takes what is expected, and nothing else.
struct Expected<'a>(&'a str);

impl Write for Expected<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
        Ok(())
    }
}

fn print_into(value: &Json, text: &mut impl Write) -> fmt::Result {
    print_value(value, 0, text)?;
    text.write_char('\n')
}

fn print_value(value: &Json, depth: usize, text: &mut impl Write) -> fmt::Result {
    let (open, close, length) = match value {
        Json::Array(list) => ('[', ']', list.len()),
        Json::Steps(list) => return print_steps(list, depth, text),
        Json::Object(entries) => ('{', '}', entries.len()),
        _ => return print_scalar(value, text),
    };
    if let Some(line) = on_one_line(value) {
        return text.write_str(&line);
    }
    text.write_char(open)?;
    for index in 0..length {
        begin_line(index == 0, depth + 1, text)?;
        print_entry(value, index, depth + 1, text)?;
    }
    end_lines(close, depth, text)
}

/// Begins the line of an entry.
fn begin_line(is_first: bool, depth: usize, text: &mut impl Write) -> fmt::Result {
    text.write_str(if is_first { "\n" } else { ",\n" })?;
    (0..depth).try_for_each(|_| text.write_char('\t'))
}

fn end_lines(close: char, depth: usize, text: &mut impl Write) -> fmt::Result {
    text.write_char('\n')?;
    (0..depth).try_for_each(|_| text.write_char('\t'))?;
    text.write_char(close)
}

/// As the list of its values is printed.
fn print_steps(list: &List, depth: usize, text: &mut impl Write) -> fmt::Result {
    // A longer one is not short.
    if list.len() <= LINE {
        return print_value(&Json::Array(list.values().map(Value::to_json).collect()), depth, text);
    }
    text.write_char('[')?;
    for (index, value) in list.values().enumerate() {
        begin_line(index == 0, depth + 1, text)?;
        match value {
            Value::Other(value) => print_value(value, depth + 1, text)?,
            packed => print_value(&packed.to_json(), depth + 1, text)?,
        }
    }
    end_lines(']', depth, text)
}

fn print_entry(value: &Json, index: usize, depth: usize, text: &mut impl Write) -> fmt::Result {
    match value {
        Json::Array(list) => print_value(&list[index], depth, text),
        Json::Object(entries) => {
            let (key, value) = &entries[index];
            print_text(key, text)?;
            text.write_str(": ")?;
            print_value(value, depth, text)
        }
        _ => Ok(()),
    }
}

/// The value on one line, if nothing in it holds further values and it is short.
fn on_one_line(value: &Json) -> Option<String> {
    let is_scalar = |value: &Json| !matches!(value, Json::Array(_) | Json::Steps(_) | Json::Object(_));
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
    let mut line = String::with_capacity(LINE);
    line.push_str(open);
    for index in 0..length {
        if index > 0 {
            line.push_str(", ");
        }
        print_entry(value, index, 0, &mut line).ok()?;
        if line.len() > LINE {
            return None;
        }
    }
    line.push_str(close);
    Some(line)
}

fn print_scalar(value: &Json, text: &mut impl Write) -> fmt::Result {
    match value {
        Json::Bool(value) => text.write_str(if *value { "true" } else { "false" }),
        Json::Integer(value) => write!(text, "{value}"),
        Json::Float(value) => write!(text, "{value:?}"),
        Json::Text(word) => print_text(word, text),
        Json::Null | Json::Array(_) | Json::Steps(_) | Json::Object(_) => text.write_str("null"),
    }
}

fn print_text(word: &str, text: &mut impl Write) -> fmt::Result {
    text.write_char('"')?;
    if !word.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        text.write_str(word)?;
        return text.write_char('"');
    }
    for c in word.chars() {
        match c {
            '"' => text.write_str("\\\"")?,
            '\\' => text.write_str("\\\\")?,
            '\n' => text.write_str("\\n")?,
            '\t' => text.write_str("\\t")?,
            c if c < ' ' => write!(text, "\\u{:04x}", u32::from(c))?,
            c => text.write_char(c)?,
        }
    }
    text.write_char('"')
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
        fn a_list_of_steps_is_printed_as_any_list(values in prop::collection::vec(any_json(), 0..12), times in 1_usize..20) {
            let values = vec![values; times].concat();
            let mut list = List::default();
            values.iter().cloned().for_each(|value| list.push(value));
            let within = |value| Json::Object(vec![("a".to_owned(), value)]);
            let text = print(&within(Json::Array(values)));
            let steps = within(Json::Steps(list));
            prop_assert_eq!(print(&steps), text.clone());
            prop_assert!(prints(&steps, &text) && !prints(&steps, &text[1..]) && !prints(&steps, &(text + " ")));
        }

        #[test]
        fn what_is_printed_reads_back(value in any_json()) {
            prop_assert_eq!(parse(&print(&value)).unwrap(), value);
        }
    }
}
