//! Lists of steps as JSON. The replay of a recording has a step for each thing that a thread did: millions of objects with one key. Each is
//! kept in 16 bytes, with the texts once.

use std::collections::BTreeMap;

use super::json::Json;

/// Texts of a list that are kept once each; a list with more has them in its values.
const MOST_TEXTS: usize = 4096;

/// Values in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct List {
    values: Vec<Packed>,
    texts: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

/// A value; texts by number.
#[derive(Clone, PartialEq, Debug)]
enum Packed {
    Text(u32),
    Integer(u32, u64),
    Word(u32, u32),
    Other(Box<Json>),
}

/// A value of a list.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value<'a> {
    Text(&'a str),
    /// An object with one key, whose value is a whole number.
    Integer(&'a str, u64),
    /// An object with one key, whose value is a text.
    Word(&'a str, &'a str),
    /// Anything else.
    Other(&'a Json),
}

impl Value<'_> {
    /// The value as one that stands alone.
    pub(super) fn to_json(self) -> Json {
        let object = |key: &str, value| Json::Object(vec![(key.to_owned(), value)]);
        match self {
            Self::Text(text) => text.into(),
            Self::Integer(key, value) => object(key, value.into()),
            Self::Word(key, text) => object(key, text.into()),
            Self::Other(value) => value.clone(),
        }
    }
}

impl List {
    /// How many values it has.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Appends a value.
    pub(super) fn push(&mut self, value: Json) {
        let packed = match &value {
            Json::Text(text) => self.number(text).map(Packed::Text),
            Json::Object(entries) => match entries.as_slice() {
                [(key, Json::Integer(value))] => match u64::try_from(*value) {
                    Ok(value) => self.number(key).map(|key| Packed::Integer(key, value)),
                    Err(_) => None,
                },
                [(key, Json::Text(text))] => match (self.number(key), self.number(text)) {
                    (Some(key), Some(text)) => Some(Packed::Word(key, text)),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        self.values.push(packed.unwrap_or_else(|| Packed::Other(Box::new(value))));
    }

    /// The values in order.
    pub(super) fn values(&self) -> impl Iterator<Item = Value<'_>> {
        let text = |number: &u32| self.texts[*number as usize].as_str();
        self.values.iter().map(move |packed| match packed {
            Packed::Text(number) => Value::Text(text(number)),
            Packed::Integer(key, value) => Value::Integer(text(key), *value),
            Packed::Word(key, word) => Value::Word(text(key), text(word)),
            Packed::Other(value) => Value::Other(value),
        })
    }

    /// The number of a text; `None` if it has too many of them.
    fn number(&mut self, text: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        let number = self.texts.len() as u32;
        if self.texts.len() == MOST_TEXTS {
            return None;
        }
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were_however_many_texts_there_are() {
        let one = |key: &str, value| Json::Object(vec![(key.to_owned(), value)]);
        let mut values = vec![
            Json::from("yield"),
            one("run_ns", 7_u64.into()),
            one("run_ns", Json::Integer(-1)),
            one("sem_post", "a".into()),
            one("loop", Json::Float(0.5)),
            Json::Null,
            Json::Object(Vec::new()),
        ];
        values.extend((0..MOST_TEXTS + 9).map(|number| one("sem_wait", Json::Text(format!("semaphore-{number}")))));
        let mut list = List::default();
        values.iter().cloned().for_each(|value| list.push(value));
        assert_eq!((list.len(), list.texts.len()), (values.len(), MOST_TEXTS));
        assert!(list.values().map(Value::to_json).eq(values));
        assert_eq!(size_of::<Packed>(), 16);
    }
}
