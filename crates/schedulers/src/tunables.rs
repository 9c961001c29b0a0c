//! Tunables: documented parameters with the original's names, defaults and ranges, set as `name=value`.

use serde::Serialize;
use thiserror::Error;

/// Description of one tunable: enough to print it, to read a value, and for a program to choose values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TunableInfo {
    /// Name, the original's.
    pub name: &'static str,
    /// Default value.
    pub default: u64,
    /// What values it takes.
    #[serde(flatten)]
    pub kind: TunableKind,
    /// What it does.
    pub doc: &'static str,
}

/// What values a tunable takes. All are stored as whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TunableKind {
    /// 0 is off, 1 is on.
    Switch,
    /// A whole number.
    Integer {
        /// Smallest value.
        low: u64,
        /// Largest value.
        high: u64,
        /// Unit, empty for counts.
        unit: &'static str,
        /// How its values are spaced.
        scale: Scale,
    },
    /// One of some words; the value is the word's position.
    Choice {
        /// The words, from 0 on.
        words: &'static [&'static str],
    },
}

/// How the values of a number are spaced: what a step of the same importance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Differences matter.
    Linear,
    /// Ratios matter. A 0 in such a range stands apart: automatic, or off.
    Logarithmic,
}

impl TunableKind {
    /// The kind of `low..=high`, given the words for its values, if there are any.
    pub(crate) const fn new(
        range: (u64, u64),
        unit: &'static str,
        scale: Scale,
        words: &'static [&'static str],
    ) -> Self {
        match range {
            _ if !words.is_empty() => Self::Choice { words },
            (0, 1) => Self::Switch,
            (low, high) => Self::Integer { low, high, unit, scale },
        }
    }
}

impl TunableInfo {
    /// Smallest and largest value.
    #[must_use]
    pub const fn bounds(&self) -> (u64, u64) {
        match self.kind {
            TunableKind::Switch => (0, 1),
            TunableKind::Integer { low, high, .. } => (low, high),
            TunableKind::Choice { words } => (0, words.len() as u64 - 1),
        }
    }

    /// Unit, empty for counts, switches and words.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        match self.kind {
            TunableKind::Integer { unit, .. } => unit,
            TunableKind::Switch | TunableKind::Choice { .. } => "",
        }
    }

    /// Legal values in words.
    #[must_use]
    pub fn range(&self) -> String {
        match self.kind {
            TunableKind::Switch => "0 or 1".to_owned(),
            TunableKind::Integer { low, high, .. } => format!("{low} to {high}"),
            TunableKind::Choice { words } => {
                let meaning = |(number, word): (usize, &&str)| format!("{word} ({number})");
                words.iter().enumerate().map(meaning).collect::<Vec<_>>().join(" or ")
            }
        }
    }

    /// A value as [`parse`](Self::parse) reads it: the word of a choice, the number of everything else.
    #[must_use]
    pub fn text(&self, value: u64) -> String {
        match self.kind {
            TunableKind::Choice { words } if (value as usize) < words.len() => words[value as usize].to_owned(),
            _ => value.to_string(),
        }
    }

    /// Reads a value: a number within the range, also as a time with a unit (`3ms`) where it is a time, `on` or `off` for a switch, a word
    /// of a choice.
    ///
    /// # Errors
    /// [`TunableError::Value`] for everything else.
    pub fn parse(&self, value: &str) -> Result<u64, TunableError> {
        let (low, high) = self.bounds();
        let number = match (self.kind, value) {
            (TunableKind::Switch, "true" | "on" | "Y") => Some(1),
            (TunableKind::Switch, "false" | "off" | "N") => Some(0),
            (TunableKind::Choice { words }, value) if words.contains(&value) => {
                words.iter().position(|word| *word == value).map(|position| position as u64)
            }
            (TunableKind::Integer { unit, .. }, value) if value.ends_with(|c: char| c.is_ascii_alphabetic()) => {
                in_unit(value, unit)
            }
            _ => value.parse().ok(),
        };
        number.filter(|number| (low..=high).contains(number)).ok_or_else(|| TunableError::Value {
            name: self.name,
            value: value.to_owned(),
            range: match UNITS.iter().any(|(unit, _)| *unit == self.unit()) {
                true => format!("{} {}, or a time such as 3ms", self.range(), self.unit()),
                false => self.range(),
            },
        })
    }
}

/// Units of time, and their nanoseconds.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// A time with a unit of its own as a whole number of another unit.
fn in_unit(value: &str, unit: &str) -> Option<u64> {
    let ns = warmcore_workload::parse_duration(value).ok()?;
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
    ns.is_multiple_of(*unit_ns).then_some(ns / unit_ns)
}

/// A tunable could not be set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TunableError {
    /// No such tunable.
    #[error("`{scheduler}` has no tunable `{name}`{}", hint(.nearest, .elsewhere))]
    Unknown {
        /// Scheduler asked.
        scheduler: &'static str,
        /// What was asked for.
        name: String,
        /// The nearest name it has, if any is near.
        nearest: Option<&'static str>,
        /// Schedulers that have a tunable of this very name.
        elsewhere: Vec<&'static str>,
    },
    /// It cannot change while tasks run.
    #[error("`{name}` of `{scheduler}` cannot change in a run; {}", those_that_can(.changeable))]
    Fixed {
        /// Scheduler asked.
        scheduler: &'static str,
        /// The tunable.
        name: &'static str,
        /// Those that can.
        changeable: &'static [&'static str],
    },
    /// 0 lets the kernel choose when it starts, and is no value for later.
    #[error("`{name}` cannot become 0 in a run: 0 lets the kernel choose when it starts; give a number")]
    Automatic {
        /// The tunable.
        name: &'static str,
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

fn those_that_can(names: &[&str]) -> String {
    match names {
        [] => "none of its tunables can".to_owned(),
        names => format!("these can: {}", names.join(", ")),
    }
}

fn hint(nearest: &Option<&'static str>, elsewhere: &[&'static str]) -> String {
    match (elsewhere, nearest) {
        ([], None) => String::new(),
        ([], Some(name)) => format!("; did you mean `{name}`?"),
        ([scheduler], _) => format!("; it is one of `{scheduler}`"),
        (schedulers, _) => {
            let quoted: Vec<String> = schedulers.iter().map(|name| format!("`{name}`")).collect();
            format!("; it is one of {}", quoted.join(" and "))
        }
    }
}

/// Name within a small edit distance of `wanted`, whatever its case.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = &wanted.to_lowercase();
    let limit = (wanted.len() / 3).max(1) + 1;
    names
        .map(|name| (edit_distance(wanted, &name.to_lowercase()), name))
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

/// A set of tunables with values. A scheduler has one or several.
pub trait TunableSet {
    /// What there is in it.
    const TABLE: &'static [TunableInfo];

    /// The set with these values, in the order of [`TunableSet::TABLE`].
    fn from_values(values: &[u64]) -> Self;

    /// Gives a tunable a value. Whether there is one of this name.
    fn set(&mut self, name: &str, value: u64) -> bool;
}

/// Declares a struct of tunables, all stored as `u64` (switches as 0 and 1), with their table.
///
/// `name: default "unit" in low..=high` is a number, or a switch if that is `0..=1`; `by ratio` behind it says that ratios matter;
/// `as ["word", ...]` names the values.
macro_rules! tunables {
    (@scale) => { $crate::tunables::Scale::Linear };
    (@scale ratio) => { $crate::tunables::Scale::Logarithmic };
    ($(#[$meta:meta])* $vis:vis struct $type:ident {
        $( $(#[doc = $doc:literal])+ $name:ident: $default:literal $unit:literal in $low:literal ..= $high:literal
            $(by $scale:ident)? $(as [$($word:literal),+])?, )+
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

        impl $crate::tunables::TunableSet for $type {
            const TABLE: &'static [$crate::tunables::TunableInfo] = &[ $( $crate::tunables::TunableInfo {
                name: stringify!($name),
                default: $default,
                kind: $crate::tunables::TunableKind::new(
                    ($low, $high),
                    $unit,
                    $crate::tunables::tunables!(@scale $($scale)?),
                    &[$($($word),+)?],
                ),
                doc: concat!($($doc),+).trim_ascii_start(),
            }, )+ ];

            fn from_values(values: &[u64]) -> Self {
                let mut values = values.iter().copied();
                Self { $( $name: values.next().unwrap_or($default), )+ }
            }

            fn set(&mut self, name: &str, value: u64) -> bool {
                $( if name == stringify!($name) {
                    self.$name = value;
                    return true;
                } )+
                false
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
    fn a_name_in_capitals_is_near() {
        assert_eq!(nearest("HZ", ["base_slice_ns", "hz"].into_iter()), Some("hz"));
    }

    fn tunable(name: &'static str, range: (u64, u64), words: &'static [&'static str]) -> TunableInfo {
        TunableInfo { name, default: range.0, kind: TunableKind::new(range, "", Scale::Linear, words), doc: "" }
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        let hz = tunable("hz", (100, 1000), &[]);
        assert_eq!(hz.parse("250"), Ok(250));
        assert!(hz.parse("0").is_err());
        assert!(hz.parse("-5").is_err());
        assert!(hz.parse("off").is_err());
        assert_eq!(tunable("hrtick", (0, 1), &[]).parse("off"), Ok(0));
    }

    #[test]
    fn words_stand_for_numbers() {
        let mode = tunable("mode", (0, 1), &["prefix", "ladder"]);
        assert_eq!(["prefix", "ladder", "1"].map(|word| mode.parse(word)), [Ok(0), Ok(1), Ok(1)]);
        assert!(mode.parse("stairs").unwrap_err().to_string().contains("prefix (0) or ladder (1)"));
        assert!(mode.parse("2").is_err());
    }
}
