//! JSON as rt-app files use it: objects keep the order of their keys, and those of events may repeat in a task or a phase.
//!
//! On top of `serde_json`, which does the parsing, text is first brought to strict JSON where rt-app's own reader
//! (json-c in its tolerant mode) and its `workgen` script are more liberal: comments `/* */` and `//`, a comma before
//! a closing bracket, and keys without a value (`"suspend",`), which become `null`. Lines and columns in errors are
//! those of the original text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::events::event_of;
use super::list::List;
use crate::error::SyntaxError;

/// A JSON value with ordered keys.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    Array(Vec<Json>),
    /// The list that a program is.
    Steps(List),
    Object(Vec<(String, Json)>),
}

/// An object of these keys and values.
pub(super) fn object<const N: usize>(entries: [(&str, Json); N]) -> Json {
    Json::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

impl Json {
    /// What the value is, for messages.
    pub(crate) fn kind(&self) -> String {
        match self {
            Json::Null => "nothing".to_owned(),
            Json::Bool(value) => value.to_string(),
            Json::Integer(value) => value.to_string(),
            Json::Float(value) => value.to_string(),
            Json::Text(text) => format!("the text {text:?}"),
            Json::Array(_) | Json::Steps(_) => "a list".to_owned(),
            Json::Object(_) => "an object".to_owned(),
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Json::Text(text.to_owned())
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Json::Integer(i128::from(value))
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Self {
        Json::Integer(i128::from(value))
    }
}

impl From<i64> for Json {
    fn from(value: i64) -> Self {
        Json::Integer(i128::from(value))
    }
}

/// Where in a document a value is, as far as that matters: a list that is a program is kept as [`List`].
#[derive(Clone, Copy)]
enum DocumentPlace {
    Document,
    Extension,
    Tasks,
    Task,
    Programs,
    Program,
    Elsewhere,
}

impl DocumentPlace {
    /// That of a key's value.
    fn behind(self, key: &str) -> Self {
        match (self, key) {
            (Self::Document, "warmcore") => Self::Extension,
            (Self::Extension, "tasks") => Self::Tasks,
            (Self::Extension, "programs") => Self::Programs,
            (Self::Tasks, _) => Self::Task,
            (Self::Task, "program") => Self::Program,
            _ => Self::Elsewhere,
        }
    }

    /// That of a list's values.
    fn inside(self) -> Self {
        if let Self::Programs = self { Self::Program } else { Self::Elsewhere }
    }
}

impl<'de> DeserializeSeed<'de> for DocumentPlace {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocumentPlace {
    type Value = Json;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        if let Self::Program = self {
            let mut list = List::default();
            while let Some(entry) = entries.next_element_seed(self.inside())? {
                list.push(entry);
            }
            return Ok(Json::Steps(list));
        }
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element_seed(self.inside())? {
            list.push(entry);
        }
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut list = Vec::with_capacity(1);
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self.behind(&key))?;
            list.push((key, value));
        }
        Ok(Json::Object(list))
    }
}

/// Parses a document. A key may stand once in an object, but for a task's or a phase's events.
pub(crate) fn parse(text: &str) -> Result<Json, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let strict = Strict::from_liberal(text)?;
    let text = strict.text();
    let mut parser = serde_json::Deserializer::from_str(&text);
    let document =
        DocumentPlace::Document.deserialize(&mut parser).and_then(|document| parser.end().map(|()| document));
    document.map_err(|error| {
        let full = error.to_string();
        let message = full.split(" at line ").next().unwrap_or(&full).to_owned();
        SyntaxError { line: error.line(), column: strict.original_column(error.line(), error.column()), message }
    })
}

/// What is inserted after a key without a value.
const NO_VALUE: &str = ":null";

/// What makes a text strict. Most texts are: they are not copied.
#[derive(Default)]
struct Strict<'a> {
    original: &'a str,
    /// Bytes of the original that become space, and where [`NO_VALUE`] is inserted: empty ranges.
    edits: Vec<(usize, usize)>,
    /// How long the strict text is so far.
    length: usize,
    /// Line and column (of the strict text, both from 1) at which [`NO_VALUE`] was inserted, in order.
    insertions: Vec<(usize, usize)>,
    line: usize,
    line_start: usize,
    /// The objects that are open.
    objects: Vec<Object<'a>>,
}

/// An open object.
#[derive(Default)]
struct Object<'a> {
    /// The key whose value it is; empty at the top and in arrays.
    of: Cow<'a, str>,
    /// Its last key.
    last: Cow<'a, str>,
    /// Line and column of its first key: most objects of a long text have one.
    first: Option<(Cow<'a, str>, (usize, usize))>,
    /// Those of its other keys.
    others: BTreeMap<Cow<'a, str>, (usize, usize)>,
}

impl<'a> Object<'a> {
    /// Notes where a key stands; returns where it stood before.
    fn insert(&mut self, key: Cow<'a, str>, place: (usize, usize)) -> Option<(usize, usize)> {
        match &mut self.first {
            None => {
                self.first = Some((key, place));
                None
            }
            Some((first, at)) if *first == key => Some(std::mem::replace(at, place)),
            Some(_) => self.others.insert(key, place),
        }
    }
}

/// The key that is written so, with its quotation marks; `None` if that is no text.
fn key_of(written: &str) -> Option<Cow<'_, str>> {
    match written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.bytes().any(|byte| byte < b' ' || matches!(byte, b'\\' | b'"')) => Some(plain.into()),
        _ => serde_json::from_str::<String>(written).ok().map(Cow::Owned),
    }
}

/// What may come next inside the innermost brackets.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    /// An object; a string here is a key.
    ObjectKey,
    /// An object, directly after a key.
    ObjectAfterKey,
    /// An object, at or after a value.
    ObjectValue,
    Array,
}

impl<'a> Strict<'a> {
    fn from_liberal(text: &'a str) -> Result<Self, SyntaxError> {
        let mut strict = Strict { original: text, line: 1, ..Self::default() };
        let mut inside: Vec<Inside> = Vec::new();
        // Position of a comma that nothing but space and comments has followed yet.
        let mut comma: Option<usize> = None;
        let mut at = 0;
        while let Some(first) = text.as_bytes().get(at).copied() {
            let begins = at;
            match first {
                b'/' => at += strict.comment(at)?,
                b'"' => {
                    let place = strict.place();
                    at += strict.string(at);
                    if let Some(here @ Inside::ObjectKey) = inside.last_mut() {
                        *here = Inside::ObjectAfterKey;
                        strict.key(&text[begins..at], place)?;
                    }
                }
                _ => {
                    if matches!(first, b'{' | b'[' | b':' | b',' | b'}' | b']') {
                        strict.before(first, at, &mut inside, comma);
                    }
                    strict.pass(first);
                    at += 1;
                }
            }
            match first {
                b',' => comma = Some(begins),
                b'/' => {}
                byte if byte.is_ascii_whitespace() => {}
                _ => comma = None,
            }
        }
        Ok(strict)
    }

    /// The strict text.
    fn text(&self) -> Cow<'a, str> {
        if self.edits.is_empty() {
            return self.original.into();
        }
        let mut edits = self.edits.clone();
        // A comma is found to be the last one after the comments behind it.
        edits.sort_unstable();
        let (mut text, mut done) = (String::with_capacity(self.length), 0);
        for (from, to) in edits {
            text.push_str(&self.original[done..from]);
            if from == to {
                text.push_str(NO_VALUE);
            }
            text.extend(self.original[from..to].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
            done = to;
        }
        text.push_str(&self.original[done..]);
        text.into()
    }

    /// Bookkeeping before a character outside strings and comments, which begins there.
    fn before(&mut self, next: u8, at: usize, inside: &mut Vec<Inside>, comma: Option<usize>) {
        match next {
            b'{' => {
                let is_value = inside.last() == Some(&Inside::ObjectValue);
                let of = self.objects.last().filter(|_| is_value).map_or(Cow::default(), |object| object.last.clone());
                inside.push(Inside::ObjectKey);
                self.objects.push(Object { of, ..Object::default() });
            }
            b'[' => inside.push(Inside::Array),
            b':' => {
                if let Some(place @ Inside::ObjectAfterKey) = inside.last_mut() {
                    *place = Inside::ObjectValue;
                }
            }
            b',' => {
                self.value_for_bare_key(at, inside);
                if let Some(place @ Inside::ObjectValue) = inside.last_mut() {
                    *place = Inside::ObjectKey;
                }
            }
            b'}' | b']' => {
                self.value_for_bare_key(at, inside);
                if let Some(comma) = comma {
                    self.edits.push((comma, comma + 1));
                }
                if inside.pop().is_some_and(|place| place != Inside::Array) {
                    self.objects.pop();
                }
            }
            _ => {}
        }
    }

    /// Whether the innermost object is a task or a phase of one.
    fn holds_events(&self) -> bool {
        let is = |depth: usize, key: &str| self.objects[depth].of == key;
        match self.objects.len() {
            3 => is(1, "tasks"),
            5 => is(1, "tasks") && is(3, "phases"),
            _ => false,
        }
    }

    /// A key of the innermost object with its quotation marks, found at a place. What is no text is left for the parser.
    fn key(&mut self, written: &'a str, (line, column): (usize, usize)) -> Result<(), SyntaxError> {
        let Some(key) = key_of(written) else { return Ok(()) };
        let Some(object) = self.objects.last_mut() else { return Ok(()) };
        object.last.clone_from(&key);
        let Some((first_line, first_column)) = object.insert(key.clone(), (line, column)) else { return Ok(()) };
        if event_of(&key).is_some() && self.holds_events() {
            return Ok(());
        }
        let name: String = key.chars().take(40).collect();
        let message = format!(
            "key \"{name}\" is there twice in one object, first at line {first_line}, column {first_column}; \
             only events of a task may repeat"
        );
        Err(SyntaxError { line, column, message })
    }

    fn value_for_bare_key(&mut self, at: usize, inside: &mut [Inside]) {
        if let Some(place @ Inside::ObjectAfterKey) = inside.last_mut() {
            *place = Inside::ObjectValue;
            self.insertions.push((self.line, self.length - self.line_start + 1));
            self.edits.push((at, at));
            self.length += NO_VALUE.len();
        }
    }

    fn pass(&mut self, byte: u8) {
        self.length += 1;
        if byte == b'\n' {
            self.line += 1;
            self.line_start = self.length;
        }
    }

    /// Passes over the string that begins there; returns its length. An unfinished one is left for the parser.
    fn string(&mut self, at: usize) -> usize {
        let rest = &self.original.as_bytes()[at..];
        let mut escaped = false;
        for (position, byte) in rest.iter().enumerate() {
            self.pass(*byte);
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' if position > 0 => return position + 1,
                _ => {}
            }
        }
        rest.len()
    }

    /// Passes over the comment that begins there, which becomes space, byte for byte; returns its length.
    fn comment(&mut self, at: usize) -> Result<usize, SyntaxError> {
        let rest = &self.original[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(inside) = rest.strip_prefix("/*") {
            match inside.find("*/") {
                Some(end) => end + 4,
                None => return Err(self.syntax_error("the comment that begins here has no end; close it with */")),
            }
        } else {
            return Err(self.syntax_error("a lone / is not JSON; a comment begins with /* or //"));
        };
        rest[..length].bytes().for_each(|byte| self.pass(byte));
        self.edits.push((at, at + length));
        Ok(length)
    }

    /// Line and column, in the original text, of what comes next.
    fn place(&self) -> (usize, usize) {
        (self.line, self.original_column(self.line, self.length - self.line_start + 1))
    }

    fn syntax_error(&self, message: &str) -> SyntaxError {
        let (line, column) = self.place();
        SyntaxError { line, column, message: message.to_owned() }
    }

    /// The column in the original text of a column in the strict one.
    fn original_column(&self, line: usize, column: usize) -> usize {
        let before = self.insertions.iter().filter(|(at_line, at)| *at_line == line && *at < column).count();
        column.saturating_sub(before * NO_VALUE.len()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(text: &str) -> Vec<(String, Json)> {
        match parse(text).unwrap() {
            Json::Object(entries) => entries,
            other => panic!("not an object: {other:?}"),
        }
    }

    #[test]
    fn order_and_repeated_events_are_kept() {
        let events = r#"{"run": 1, "sleep": 2, "run": 3, "a": 4}"#;
        for (text, path) in [
            (format!(r#"{{"tasks": {{"t": {events}}}}}"#), &["tasks", "t"][..]),
            (format!(r#"{{"tasks": {{"t": {{"phases": {{"p": {events}}}}}}}}}"#), &["tasks", "t", "phases", "p"]),
        ] {
            let entries = path.iter().fold(object(&text), |entries, name| match entries.into_iter().next() {
                Some((key, Json::Object(inner))) if key == *name => inner,
                other => panic!("{other:?}"),
            });
            let keys: Vec<String> = entries.into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, ["run", "sleep", "run", "a"]);
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_with_both_places() {
        let error = parse("{\"tasks\": {\"a\": {\"loop\": 1,\n  \"run\": 10, \"run\": 5, \"loop\": 5}}}").unwrap_err();
        assert_eq!((error.line, error.column), (2, 24), "{error}");
        assert!(
            error.message.contains("key \"loop\" is there twice in one object, first at line 1, column 18"),
            "{error}"
        );
        let error = parse(r#"{"tasks": {"a": 1}, /* again */ "tasks": {"b": 1}}"#).unwrap_err();
        assert_eq!((error.line, error.column), (1, 33), "{error}");
        // What begins as an event's name does is an event in a task alone.
        for text in [
            r#"{"global": {"mem_buffer_size": 1, "mem_buffer_size": 2}}"#,
            r#"{"tasks": {"run": {}, "run": {}}}"#,
            r#"{"tasks": {"t": {"phases": {"fork1": {}, "fork1": {}}}}}"#,
            r#"{"tasks": {"t": {"timer": {"lock": 1, "lock": 2}}}}"#,
            r#"{"warmcore": [{"wait": 1, "wait": 2}]}"#,
            r#"{"tasks": {"a": {}, "\u0061": {}}}"#,
        ] {
            assert!(parse(text).is_err_and(|error| error.message.contains("is there twice")), "{text}");
        }
        // One object's keys are not another's, nor are values.
        assert!(parse(r#"{"a": {"loop": "loop"}, "loop": ["loop", "loop"], "b": [{"loop": 1}, {"loop": 2}]}"#).is_ok());
    }

    #[test]
    fn comments_and_trailing_commas_are_accepted() {
        let entries = object("{ /* a { \" comment */ \"a\": [1, 2, // two\n], \"b\": {\"c\": true,}, }");
        assert_eq!(entries[0].1, Json::Array(vec![Json::Integer(1), Json::Integer(2)]));
        assert_eq!(entries[1].1, Json::Object(vec![("c".into(), Json::Bool(true))]));
    }

    #[test]
    fn comment_marks_and_commas_inside_strings_stay() {
        let entries = object(r#"{"a": "/* no */ // \" ,}", "b": "\\"}"#);
        assert_eq!(entries[0].1, Json::Text("/* no */ // \" ,}".into()));
        assert_eq!(entries[1].1, Json::Text("\\".into()));
    }

    #[test]
    fn keys_without_a_value_become_null() {
        let entries = object("{\"suspend\",\n\"run\": 5, \"resume\" /* here */ }");
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0], ("suspend".into(), Json::Null));
        assert_eq!(entries[2], ("resume".into(), Json::Null));
        assert_eq!(parse(r#"["a", "b"]"#).unwrap(), Json::Array(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn errors_name_line_and_column_of_the_original_text() {
        let error = parse("{\n  /* two\n lines */ \"a\": 1,\n  \"b\" 2\n}").unwrap_err();
        assert_eq!((error.line, error.column), (4, 7), "{error}");
        let error = parse("{ \"suspend\", \"b\": x }").unwrap_err();
        assert_eq!((error.line, error.column), (1, 19), "{error}");
        let error = parse("{\n /* never closed").unwrap_err();
        assert_eq!((error.line, error.column), (2, 2), "{error}");
        let error = parse("{ \"a\": 1 / 2 }").unwrap_err();
        assert_eq!((error.line, error.column), (1, 10), "{error}");
    }

    #[test]
    fn text_after_the_document_is_refused() {
        assert!(parse("{} {}").is_err());
        assert!(parse("").is_err());
        assert!(parse(&"[".repeat(100_000)).is_err(), "deep nesting must not exhaust the stack");
    }

    #[test]
    fn large_and_negative_numbers_keep_their_value() {
        let entries = object(r#"{"a": -1, "b": 18446744073709551615, "c": 1.5}"#);
        assert_eq!(entries[0].1, Json::Integer(-1));
        assert_eq!(entries[1].1, Json::Integer(u64::MAX.into()));
        assert_eq!(entries[2].1, Json::Float(1.5));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn texts_of_json_characters_are_read_or_refused_without_panic(text in "[\\[\\]{}\",:/*\\\\\n a0]{0,60}") {
            let _ = parse(&text);
        }
    }
}
