//! Tunables: documented parameters with the original's names, defaults and ranges, set as `name=value`.

use serde::Serialize;
use thiserror::Error;

/// Description of one tunable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TunableInfo {
    /// Name, the original's.
    pub name: &'static str,
    /// Default value as text.
    pub default: String,
    /// Unit, empty for counts and switches.
    pub unit: &'static str,
    /// Legal values as text.
    pub range: String,
    /// What it does.
    pub doc: &'static str,
}

/// A tunable could not be set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TunableError {
    /// No such tunable.
    #[error("`{scheduler}` has no tunable `{name}`{}", nearest_hint(.nearest))]
    Unknown {
        /// Scheduler asked.
        scheduler: &'static str,
        /// What was asked for.
        name: String,
        /// The nearest name there is, if any is near.
        nearest: Option<&'static str>,
    },
    /// Not a value of that tunable.
    #[error("`{value}` is not a value for `{name}`: it takes {range}")]
    Value {
        /// Tunable.
        name: &'static str,
        /// What was given.
        value: String,
        /// Legal values.
        range: String,
    },
}

fn nearest_hint(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Parses a switch, a number within its range, or one of the words that stand for the numbers from 0 on.
pub(crate) fn parse_value(
    name: &'static str,
    value: &str,
    range: (u64, u64),
    words: &[&str],
) -> Result<u64, TunableError> {
    let error = || TunableError::Value { name, value: value.to_owned(), range: range_text(range, words) };
    if let Some(number) = words.iter().position(|word| *word == value) {
        return Ok(number as u64);
    }
    let number = match value {
        "true" | "on" | "Y" if range == (0, 1) => 1,
        "false" | "off" | "N" if range == (0, 1) => 0,
        _ => value.parse().map_err(|_| error())?,
    };
    if number < range.0 || number > range.1 { Err(error()) } else { Ok(number) }
}

/// Legal values in words.
pub(crate) fn range_text(range: (u64, u64), words: &[&str]) -> String {
    if !words.is_empty() {
        let meaning = |(number, word): (usize, &&str)| format!("{word} ({number})");
        return words.iter().enumerate().map(meaning).collect::<Vec<_>>().join(" or ");
    }
    if range == (0, 1) { "0 or 1".to_owned() } else { format!("{} to {}", range.0, range.1) }
}

/// Name within a small edit distance of `wanted`.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wanted.len() / 3).max(1) + 1;
    names
        .map(|name| (edit_distance(wanted, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Tunables that a scheduler has, as one of possibly several sets.
pub(crate) trait TunableSet {
    /// Sets one of them.
    fn set(&mut self, name: &str, value: &str) -> Result<(), TunableError>;
    /// All of them with their present values.
    fn values(&self) -> Vec<(&'static str, u64)>;
}

/// Sets a tunable in the set that has it.
pub(crate) fn set_in(
    sets: &mut [&mut dyn TunableSet],
    scheduler: &'static str,
    name: &str,
    value: &str,
) -> Result<(), TunableError> {
    for set in sets.iter_mut() {
        match set.set(name, value) {
            Err(TunableError::Unknown { .. }) => {}
            result => return result,
        }
    }
    let names = sets.iter().flat_map(|set| set.values()).map(|(name, _)| name);
    Err(TunableError::Unknown { scheduler, name: name.to_owned(), nearest: nearest(name, names) })
}

/// Declares a struct of tunables, all stored as `u64` (switches as 0 and 1), with their table.
macro_rules! tunables {
    ($(#[$meta:meta])* $vis:vis struct $type:ident for $scheduler:literal {
        $( $(#[doc = $doc:literal])+ $name:ident: $default:literal $unit:literal in $low:literal ..= $high:literal
            $(as [$($word:literal),+])?, )+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        $vis struct $type {
            $( $(#[doc = $doc])+ pub $name: u64, )+
        }

        impl Default for $type {
            fn default() -> Self {
                Self { $( $name: $default, )+ }
            }
        }

        impl $type {
            /// The table of these tunables.
            pub fn table() -> Vec<$crate::tunables::TunableInfo> {
                vec![ $( $crate::tunables::TunableInfo {
                    name: stringify!($name),
                    default: $default.to_string(),
                    unit: $unit,
                    range: $crate::tunables::range_text(($low, $high), &[$($($word),+)?]),
                    doc: concat!($($doc),+).trim_ascii_start(),
                }, )+ ]
            }

            /// Sets one of them.
            ///
            /// # Errors
            /// When there is no such tunable or the value is outside its range.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::tunables::TunableError> {
                match name {
                    $( stringify!($name) => {
                        let words: &[&str] = &[$($($word),+)?];
                        self.$name = $crate::tunables::parse_value(stringify!($name), value, ($low, $high), words)?;
                    } )+
                    _ => {
                        let names = [ $( stringify!($name), )+ ];
                        return Err($crate::tunables::TunableError::Unknown {
                            scheduler: $scheduler,
                            name: name.to_owned(),
                            nearest: $crate::tunables::nearest(name, names.into_iter()),
                        });
                    }
                }
                Ok(())
            }

            /// All of them with their present values.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![ $( (stringify!($name), self.$name), )+ ]
            }
        }

        impl $crate::tunables::TunableSet for $type {
            fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::tunables::TunableError> {
                $type::set(self, name, value)
            }

            fn values(&self) -> Vec<(&'static str, u64)> {
                $type::values(self)
            }
        }
    };
}
pub(crate) use tunables;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let names = ["base_slice_ns", "migration_cost_ns", "hz"];
        assert_eq!(nearest("base_slice", names.into_iter()), Some("base_slice_ns"));
        assert_eq!(nearest("bas_slice_ns", names.into_iter()), Some("base_slice_ns"));
        assert_eq!(nearest("quantum", names.into_iter()), None);
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        assert_eq!(parse_value("hz", "250", (100, 1000), &[]), Ok(250));
        assert!(parse_value("hz", "0", (100, 1000), &[]).is_err());
        assert!(parse_value("hz", "-5", (100, 1000), &[]).is_err());
        assert_eq!(parse_value("hrtick", "off", (0, 1), &[]), Ok(0));
        assert!(parse_value("hz", "off", (100, 1000), &[]).is_err());
    }

    #[test]
    fn words_stand_for_numbers() {
        let mode = |value| parse_value("mode", value, (0, 1), &["prefix", "ladder"]);
        assert_eq!([mode("prefix"), mode("ladder"), mode("1")], [Ok(0), Ok(1), Ok(1)]);
        assert!(mode("stairs").unwrap_err().to_string().contains("prefix (0) or ladder (1)"));
    }
}
