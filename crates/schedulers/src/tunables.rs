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
    /// A whole number of something.
    Count(Numbers),
    /// A time in ns, us, ms or s, also typed with a unit of its own.
    Time(Numbers),
    /// A whole number of per cent.
    Share(Numbers),
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

/// Numbers that a tunable takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Smallest value.
    pub low: u64,
    /// Largest value.
    pub high: u64,
    /// Unit, empty for counts of nothing in particular.
    pub unit: &'static str,
    /// How they are spaced.
    pub scale: Scale,
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
    /// The numbers that it takes, if they are a range.
    #[must_use]
    pub const fn numbers(&self) -> Option<Numbers> {
        match self {
            Self::Count(numbers) | Self::Time(numbers) | Self::Share(numbers) => Some(*numbers),
            _ => None,
        }
    }
}

impl TunableInfo {
    /// Smallest and largest value.
    #[must_use]
    pub const fn bounds(&self) -> (u64, u64) {
        match self.kind {
            TunableKind::Switch => (0, 1),
            TunableKind::Count(Numbers { low, high, .. })
            | TunableKind::Time(Numbers { low, high, .. })
            | TunableKind::Share(Numbers { low, high, .. }) => (low, high),
            TunableKind::Choice { words } => (0, words.len() as u64 - 1),
            TunableKind::Fraction => (0, THOUSAND),
            TunableKind::Percentages => (1, (1 << (PACKED_BITS * MOST_PERCENTAGES as u32)) - 1),
        }
    }

    /// Unit, empty for counts, switches and words.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        self.kind.numbers().map_or("", |numbers| numbers.unit)
    }

    /// Legal values in words.
    #[must_use]
    pub fn range(&self) -> String {
        let either = |words: &[&str]| {
            let meaning = |(number, word): (usize, &&str)| format!("{word} ({number})");
            words.iter().enumerate().map(meaning).collect::<Vec<_>>().join(" or ")
        };
        match self.kind {
            TunableKind::Switch => either(&["off", "on"]),
            TunableKind::Choice { words } => either(words),
            TunableKind::Count(numbers) | TunableKind::Time(numbers) | TunableKind::Share(numbers) => {
                format!("{} to {}", numbers.low, numbers.high)
            }
            TunableKind::Fraction => "0 to 1, in thousandths".to_owned(),
            TunableKind::Percentages => {
                format!("up to {MOST_PERCENTAGES} rising whole percentages from 0 to 100, as 25/50/75")
            }
        }
    }

    /// What can be typed, in words.
    fn typed(&self) -> String {
        let range = self.range();
        match self.kind {
            TunableKind::Time(numbers) => format!("{range} {}, or a time such as 3ms", numbers.unit),
            TunableKind::Share(_) => format!("{range} %, with or without the sign"),
            TunableKind::Fraction => format!("{range}, or per cent such as 60%"),
            _ => range,
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

    /// Reads a value, as its kind is typed: `on` or `off`, a number within the range, also as a time with a unit (`3ms`) or with a sign of
    /// per cent where it is one, a word of a choice, a fraction (`0.6`, `60%`), a list of percentages. Switches and choices may be numbers.
    ///
    /// # Errors
    /// [`TunableError::Value`] for everything else.
    pub fn parse(&self, value: &str) -> Result<u64, TunableError> {
        let whole = |value: &str| value.parse().ok();
        let number = match self.kind {
            TunableKind::Switch => match value {
                "true" | "on" | "Y" => Some(1),
                "false" | "off" | "N" => Some(0),
                _ => whole(value),
            },
            TunableKind::Choice { words } => {
                let position = words.iter().position(|word| *word == value);
                position.map(|position| position as u64).or_else(|| whole(value))
            }
            TunableKind::Time(Numbers { unit, .. }) => whole(value).or_else(|| in_unit(value, unit)),
            TunableKind::Share(_) => whole(value.strip_suffix('%').unwrap_or(value)),
            TunableKind::Count(_) => whole(value),
            TunableKind::Fraction => thousandths(value),
            TunableKind::Percentages => packed(value),
        };
        let (low, high) = self.bounds();
        let legal = number.filter(|number| (low..=high).contains(number));
        legal.ok_or_else(|| TunableError::Value { name: self.name, value: value.to_owned(), range: self.typed() })
    }
}

/// Units of time, and their nanoseconds.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// One, in thousandths.
const THOUSAND: u64 = 1000;

/// A fraction, or per cent, in thousandths, if it is a whole number of them.
fn thousandths(value: &str) -> Option<u64> {
    let thousandths = match value.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? * (THOUSAND / 100) as f64,
        None => value.parse::<f64>().ok()? * THOUSAND as f64,
    };
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
    legal.then(|| pack(&parts))
}

/// The same of numbers.
pub(crate) const fn pack(percentages: &[u64]) -> u64 {
    let (mut packed, mut left) = (0, percentages.len());
    while left > 0 {
        left -= 1;
        packed = packed << PACKED_BITS | (percentages[left] + 1);
    }
    packed
}

/// The position of a word that is there: a default that is none of its choice's words does not compile.
pub(crate) const fn position(words: &[&str], word: &str) -> u64 {
    let mut position = 0;
    loop {
        let (known, asked) = (words[position].as_bytes(), word.as_bytes());
        let mut same = 0;
        while same < known.len() && same < asked.len() && known[same] == asked[same] {
            same += 1;
        }
        if same == known.len() && same == asked.len() {
            return position as u64;
        }
        position += 1;
    }
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
#[allow(missing_docs)] // messages have the fields
pub enum TunableError {
    /// No such tunable.
    #[error("`{scheduler}` has no tunable `{name}`{}", hint(.nearest, .elsewhere))]
    Unknown { scheduler: &'static str, name: String, nearest: Option<&'static str>, elsewhere: Vec<&'static str> },
    /// It cannot change while tasks run.
    #[error("`{name}` of `{scheduler}` cannot change in a run; {}", those_that_can(.changeable))]
    Fixed { scheduler: &'static str, name: &'static str, changeable: &'static [&'static str] },
    /// 0 lets the kernel choose when it starts, and is no value for later.
    #[error("`{name}` cannot become 0 in a run: 0 lets the kernel choose when it starts; give a number")]
    Automatic { name: &'static str },
    /// Not a value of that tunable.
    #[error("`{value}` is not a value for `{name}`: it takes {range}")]
    Value { name: &'static str, value: String, range: String },
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

/// Declares a struct of tunables, all stored as `u64`, with their table. The word behind a name says what kind of value it has:
///
/// - `name: switch on`, or `off`;
/// - `name: count 250 "Hz" in 100..=1000`, a number with a unit or `""`; `by ratio` behind it says that ratios matter;
/// - `name: time 50_000 "ns" in 0..=10_000_000 by ratio`, the same in a unit of time;
/// - `name: share 20 in 0..=1000`, the same in per cent;
/// - `name: choice "none" of ["none", "log"]`;
/// - `name: fraction 600`, in thousandths; `name: percentages [25, 50, 75]`.
macro_rules! tunables {
    (@scale) => { $crate::tunables::Scale::Linear };
    (@scale ratio) => { $crate::tunables::Scale::Logarithmic };
    (@default switch on) => { 1 };
    (@default switch off) => { 0 };
    (@default choice $word:literal of $words:tt) => { const { $crate::tunables::position(&$words, $word) } };
    (@default percentages $list:tt) => { $crate::tunables::pack(&$list) };
    (@default $kind:ident $default:literal $($range:tt)*) => { $default };
    (@kind switch $default:ident) => { $crate::tunables::TunableKind::Switch };
    (@kind choice $word:literal of $words:tt) => { $crate::tunables::TunableKind::Choice { words: &$words } };
    (@kind percentages $list:tt) => { $crate::tunables::TunableKind::Percentages };
    (@kind fraction $default:literal) => { $crate::tunables::TunableKind::Fraction };
    (@kind share $default:literal $($range:tt)+) => {
        $crate::tunables::TunableKind::Share($crate::tunables::tunables!(@numbers "%" $($range)+))
    };
    (@kind time $default:literal $($range:tt)+) => {
        $crate::tunables::TunableKind::Time($crate::tunables::tunables!(@numbers $($range)+))
    };
    (@kind count $default:literal $($range:tt)+) => {
        $crate::tunables::TunableKind::Count($crate::tunables::tunables!(@numbers $($range)+))
    };
    (@numbers $unit:literal in $low:literal ..= $high:literal $(by $scale:ident)?) => {
        $crate::tunables::Numbers {
            low: $low,
            high: $high,
            unit: $unit,
            scale: $crate::tunables::tunables!(@scale $($scale)?),
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $type:ident {
        $( $(#[doc = $doc:literal])+ $name:ident: $kind:ident $default:tt $($unit:literal)?
            $(in $low:literal ..= $high:literal)? $(by $scale:ident)? $(of $words:tt)?, )+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        $vis struct $type {
            $( $(#[doc = $doc])+ pub $name: u64, )+
        }

        impl Default for $type {
            fn default() -> Self {
                Self { $( $name: $crate::tunables::tunables!(@default $kind $default $($unit)? $(in $low ..= $high)? $(by $scale)? $(of $words)?), )+ }
            }
        }

        impl $crate::tunables::TunableSet for $type {
            const TABLE: &'static [$crate::tunables::TunableInfo] = &[ $( $crate::tunables::TunableInfo {
                name: stringify!($name),
                default: $crate::tunables::tunables!(@default $kind $default $($unit)? $(in $low ..= $high)? $(by $scale)? $(of $words)?),
                kind: $crate::tunables::tunables!(@kind $kind $default $($unit)? $(in $low ..= $high)? $(by $scale)? $(of $words)?),
                doc: concat!($($doc),+).trim_ascii_start(),
            }, )+ ];

            fn from_values(values: &[u64]) -> Self {
                let mut values = values.iter().copied();
                let default = Self::default();
                Self { $( $name: values.next().unwrap_or(default.$name), )+ }
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

    tunables! {
        /// One of each kind.
        struct Kinds {
            /// A switch.
            hrtick: switch on,
            /// A count.
            hz: count 250 "Hz" in 100..=1000,
            /// A time.
            slice_us: time 700 "us" in 0..=10_000 by ratio,
            /// A share.
            imb_pct: share 20 in 0..=200,
            /// A choice.
            mode: choice "ladder" of ["prefix", "ladder"],
            /// A fraction.
            tol: fraction 600,
            /// A list.
            quartiles: percentages [25, 50, 75],
        }
    }

    fn named(name: &str) -> TunableInfo {
        *Kinds::TABLE.iter().find(|tunable| tunable.name == name).unwrap()
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        let hz = named("hz");
        assert_eq!(hz.parse("250"), Ok(250));
        for bad in ["0", "-5", "off", "3ms", "250%", ""] {
            assert!(hz.parse(bad).unwrap_err().to_string().contains("it takes 100 to 1000"), "{bad}");
        }
    }

    #[test]
    fn a_value_is_typed_as_its_kind_is() {
        let parsed = |name, values: &[&str]| values.iter().map(|value| named(name).parse(value)).collect::<Vec<_>>();
        assert_eq!(parsed("hrtick", &["off", "on", "0", "1", "N", "true"]), [0, 1, 0, 1, 0, 1].map(Ok));
        assert_eq!(parsed("slice_us", &["700", "3ms", "2000ns"]), [700, 3000, 2].map(Ok));
        assert_eq!(parsed("imb_pct", &["25", "25%"]), [25, 25].map(Ok));
        assert_eq!(parsed("tol", &["0.6", "60%", "12.5%"]), [600, 600, 125].map(Ok));
        let refused = |name, value: &str| named(name).parse(value).unwrap_err().to_string();
        assert!(refused("hrtick", "2").ends_with("it takes off (0) or on (1)"));
        assert!(refused("slice_us", "1ns").ends_with("it takes 0 to 10000 us, or a time such as 3ms"));
        assert!(refused("imb_pct", "201%").ends_with("it takes 0 to 200 %, with or without the sign"));
        assert!(refused("imb_pct", "25%%").contains("0 to 200"));
    }

    #[test]
    fn defaults_are_values_of_their_kinds_and_texts_are_read_back() {
        let defaults = Kinds::TABLE.iter().map(|tunable| tunable.text(tunable.default)).collect::<Vec<_>>();
        assert_eq!(defaults, ["1", "250", "700", "20", "ladder", "0.6", "25/50/75"]);
        for (tunable, text) in Kinds::TABLE.iter().zip(&defaults) {
            assert_eq!(tunable.parse(text), Ok(tunable.default));
        }
        assert_eq!(Kinds::from_values(&[]), Kinds::default());
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
        let mode = named("mode");
        assert_eq!(["prefix", "ladder", "1"].map(|word| mode.parse(word)), [Ok(0), Ok(1), Ok(1)]);
        assert!(mode.parse("stairs").unwrap_err().to_string().contains("prefix (0) or ladder (1)"));
        assert!(mode.parse("2").is_err());
    }
}
