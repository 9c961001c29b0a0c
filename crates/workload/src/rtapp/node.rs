//! Typed access to a JSON document that knows the path of every value, for messages.

use super::json::Json;
use crate::error::{DocumentError, DocumentProblem};
use crate::nearest::suggestion;

/// A value and where it is.
#[derive(Clone)]
pub(super) struct Node<'a> {
    pub(super) value: &'a Json,
    pub(super) path: String,
}

pub(super) type Read<T> = Result<T, DocumentError>;

impl<'a> Node<'a> {
    pub(super) fn root(value: &'a Json) -> Self {
        Self { value, path: String::new() }
    }

    /// An error at this place.
    pub(super) fn error(&self, problem: DocumentProblem) -> DocumentError {
        let path = if self.path.is_empty() { "document".to_owned() } else { self.path.clone() };
        DocumentError { path, problem }
    }

    /// An error at this place, in words.
    pub(super) fn other(&self, words: impl Into<String>) -> DocumentError {
        self.error(DocumentProblem::Other(words.into()))
    }

    /// An error because the value is of another kind.
    pub(super) fn expected(&self, expected: impl Into<String>) -> DocumentError {
        self.error(DocumentProblem::Kind { expected: expected.into(), found: self.value.kind() })
    }

    fn child(&self, name: &str, value: &'a Json) -> Node<'a> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Node { value, path }
    }

    /// Keys and values in order.
    pub(super) fn entries(&self, expected: &str) -> Read<Vec<(&'a str, Node<'a>)>> {
        match self.value {
            Json::Object(entries) => {
                Ok(entries.iter().map(|(key, value)| (key.as_str(), self.child(key, value))).collect())
            }
            _ => Err(self.expected(expected)),
        }
    }

    /// Elements of a list.
    pub(super) fn elements(&self, expected: &str) -> Read<Vec<Node<'a>>> {
        Ok(self.each(expected)?.collect())
    }

    /// Elements of a list, one after the other: of a long one not all paths are there at a time.
    pub(super) fn each(&self, expected: &str) -> Read<impl Iterator<Item = Node<'a>>> {
        match self.value {
            Json::Array(list) => Ok(list
                .iter()
                .enumerate()
                .map(|(index, value)| Node { value, path: format!("{}[{index}]", self.path) })),
            _ => Err(self.expected(expected)),
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Node<'a>> {
        match self.value {
            Json::Object(entries) => {
                entries.iter().rev().find(|(name, _)| name == key).map(|(_, value)| self.child(key, value))
            }
            _ => None,
        }
    }

    /// The value of a key that must be there.
    pub(super) fn require(&self, key: &'static str, advice: &str) -> Read<Node<'a>> {
        self.get(key).ok_or_else(|| self.error(DocumentProblem::Missing { key, advice: advice.to_owned() }))
    }

    /// Refuses keys outside the list.
    pub(super) fn only_keys(&self, known: &[&str], expected: &str) -> Read<()> {
        for (key, _) in self.entries(expected)? {
            if !known.contains(&key) {
                return Err(self.error(DocumentProblem::UnknownKey {
                    key: key.to_owned(),
                    suggestion: suggestion(key, known.iter().copied()),
                    known: known.join(", "),
                }));
            }
        }
        Ok(())
    }

    pub(super) fn text(&self, expected: &str) -> Read<&'a str> {
        match self.value {
            Json::Text(text) => Ok(text),
            _ => Err(self.expected(expected)),
        }
    }

    /// A whole number within the range.
    pub(super) fn integer(&self, expected: &str, least: i128, most: i128) -> Read<i128> {
        match self.value {
            Json::Integer(value) if (least..=most).contains(value) => Ok(*value),
            Json::Integer(value) => Err(self.error(DocumentProblem::Range {
                value: value.to_string(),
                allowed: format!("{expected} must be {least} to {most}"),
            })),
            _ => Err(self.expected(expected)),
        }
    }

    pub(super) fn number(&self) -> Read<f64> {
        match self.value {
            Json::Integer(value) => Ok(*value as f64),
            Json::Float(value) => Ok(*value),
            _ => Err(self.expected("a number")),
        }
    }

    pub(super) fn u64(&self, expected: &str) -> Read<u64> {
        Ok(self.integer(expected, 0, u64::MAX.into())? as u64)
    }

    pub(super) fn u32(&self, expected: &str) -> Read<u32> {
        Ok(self.integer(expected, 0, u32::MAX.into())? as u32)
    }

    /// A duration in whole microseconds, as nanoseconds.
    pub(super) fn microseconds(&self) -> Read<u64> {
        let most = i128::from(crate::MAX_DURATION_NS / 1_000);
        Ok(self.integer("a whole number of microseconds", 0, most)? as u64 * 1_000)
    }

    /// A duration in whole nanoseconds.
    pub(super) fn nanoseconds(&self) -> Read<u64> {
        Ok(self.integer("a whole number of nanoseconds", 0, crate::MAX_DURATION_NS.into())? as u64)
    }

    /// One of a list of words. What is no text is refused with the words, where `expected` does not name them.
    pub(super) fn word<T: Copy>(&self, expected: &str, words: &[(&str, T)]) -> Read<T> {
        let Json::Text(text) = self.value else {
            let all: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            return Err(match words.iter().all(|(word, _)| expected.contains(*word)) {
                true => self.expected(expected),
                false => self.expected(format!("{expected} ({})", all.join(" or "))),
            });
        };
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            self.error(DocumentProblem::UnknownWord {
                word: text.to_owned(),
                suggestion: suggestion(text, words.iter().map(|(word, _)| *word)),
                known: words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", "),
            })
        })
    }

    /// A list of whole numbers.
    pub(super) fn numbers(&self, expected: &str) -> Read<Vec<u32>> {
        self.elements(expected)?.iter().map(|element| element.u32(expected)).collect()
    }
}
