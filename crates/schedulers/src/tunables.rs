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
    /// A fraction from 0 to 1, stored in thousandths.
    Fraction,
    /// Rising whole percentages with a slash between two, as `25/50/75`, seven at most; stored as
    /// digits of seven bits, the first one lowest, each one more than it is.
    Percentages,
}

/// How a tunable's values are written, where they are no plain whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Fraction,
    Percentages,
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
        form: Form,
    ) -> Self {
        match range {
            _ if matches!(form, Form::Fraction) => Self::Fraction,
            _ if matches!(form, Form::Percentages) => Self::Percentages,
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
            TunableKind::Fraction => (0, THOUSAND),
            TunableKind::Percentages => (1, (1 << (PACKED_BITS * MOST_PERCENTAGES as u32)) - 1),
        }
    }

    /// Unit, empty for counts, switches and words.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        match self.kind {
            TunableKind::Integer { unit, .. } => unit,
            _ => "",
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
            TunableKind::Fraction => "0 to 1, in thousandths".to_owned(),
            TunableKind::Percentages => {
                format!("up to {MOST_PERCENTAGES} rising whole percentages from 0 to 100, as 25/50/75")
            }
        }
    }

    /// A value as [`parse`](Self::parse) reads it: the word of a choice, a fraction, a list, the number of everything else.
    #[must_use]
    pub fn text(&self, value: u64) -> String {
        match self.kind {
            TunableKind::Choice { words } if (value as usize) < words.len() => words[value as usize].to_owned(),
            TunableKind::Fraction => (value as f64 / THOUSAND as f64).to_string(),
            TunableKind::Percentages => {
                percentages(value).map(|percent| percent.to_string()).collect::<Vec<_>>().join("/")
            }
            _ => value.to_string(),
        }
    }

    /// Reads a value: a number within the range, also as a time with a unit (`3ms`) where it is a time, `on` or `off` for a switch, a word
    /// of a choice, a fraction, or a list of percentages.
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
            (TunableKind::Fraction, value) => thousandths(value),
            (TunableKind::Percentages, value) => packed(value),
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

/// One, in thousandths.
const THOUSAND: u64 = 1000;

/// A fraction in thousandths, if it is a whole number of them.
fn thousandths(value: &str) -> Option<u64> {
    let thousandths = value.parse::<f64>().ok()? * THOUSAND as f64;
    let whole = thousandths.round();
    ((thousandths - whole).abs() < 1e-6 && whole >= 0.0).then_some(whole as u64)
}

/// Percentages are packed into digits of so many bits, the first one lowest, each one more than it is: 0 is the end.
const PACKED_BITS: u32 = 7;
/// So many fit into the whole numbers that JSON readers keep exactly.
const MOST_PERCENTAGES: usize = 7;

/// Percentages that rise, packed into a number.
fn packed(value: &str) -> Option<u64> {
    let parts: Vec<u64> = value.split('/').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let legal = parts.len() <= MOST_PERCENTAGES && parts.is_sorted_by(|a, b| a < b) && parts.last() <= Some(&100);
    legal.then(|| parts.iter().rev().fold(0, |packed, percent| packed << PACKED_BITS | (percent + 1)))
}

/// The percentages of a tunable that holds a list of them, in order.
pub(crate) fn percentages(packed: u64) -> impl Iterator<Item = u64> {
    let rests = std::iter::successors(Some(packed), |rest| Some(rest >> PACKED_BITS));
    rests.map(|rest| rest & ((1 << PACKED_BITS) - 1)).take_while(|digit| *digit > 0).map(|digit| digit - 1)
}

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
/// `as ["word", ...]` names the values; `of fraction` and `of percentages` are other ways to write them.
macro_rules! tunables {
    (@scale) => { $crate::tunables::Scale::Linear };
    (@scale ratio) => { $crate::tunables::Scale::Logarithmic };
    (@form) => { $crate::tunables::Form::Plain };
    (@form fraction) => { $crate::tunables::Form::Fraction };
    (@form percentages) => { $crate::tunables::Form::Percentages };
    ($(#[$meta:meta])* $vis:vis struct $type:ident {
        $( $(#[doc = $doc:literal])+ $name:ident: $default:literal $unit:literal in $low:literal ..= $high:literal
            $(by $scale:ident)? $(as [$($word:literal),+])? $(of $form:ident)?, )+
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
                    $crate::tunables::tunables!(@form $($form)?),
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

    fn tunable(name: &'static str, range: (u64, u64), words: &'static [&'static str]) -> TunableInfo {
        TunableInfo {
            name,
            default: range.0,
            kind: TunableKind::new(range, "", Scale::Linear, words, Form::Plain),
            doc: "",
        }
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

    fn of_kind(kind: TunableKind) -> TunableInfo {
        TunableInfo { name: "tol", default: 0, kind, doc: "" }
    }

    #[test]
    fn fractions_are_thousandths_between_0_and_1() {
        let tolerance = of_kind(TunableKind::Fraction);
        for (text, value) in [("0", 0), ("0.6", 600), ("0.125", 125), ("1", 1000)] {
            assert_eq!(tolerance.parse(text), Ok(value));
            assert_eq!(tolerance.text(value), text);
        }
        for bad in ["-0.1", "1.001", "600", "0.0005", "NaN", "inf", "", "half"] {
            assert!(tolerance.parse(bad).unwrap_err().to_string().contains("0 to 1"), "{bad}");
        }
    }

    #[test]
    fn percentages_rise_and_are_read_back() {
        let list = of_kind(TunableKind::Percentages);
        for text in ["0", "100", "25/50/75", "0/1/2/3/4/5/100"] {
            let value = list.parse(text).unwrap();
            assert_eq!(list.text(value), text);
        }
        assert_eq!(percentages(list.parse("0/50/100").unwrap()).collect::<Vec<_>>(), [0, 50, 100]);
        for bad in ["", "50/25", "50/50", "101", "-1", "25,50", "1/2/3/4/5/6/7/8", "2.5", "25/"] {
            assert!(list.parse(bad).unwrap_err().to_string().contains("25/50/75"), "{bad}");
        }
    }

    #[test]
    fn words_stand_for_numbers() {
        let mode = tunable("mode", (0, 1), &["prefix", "ladder"]);
        assert_eq!(["prefix", "ladder", "1"].map(|word| mode.parse(word)), [Ok(0), Ok(1), Ok(1)]);
        assert!(mode.parse("stairs").unwrap_err().to_string().contains("prefix (0) or ladder (1)"));
        assert!(mode.parse("2").is_err());
    }
}
