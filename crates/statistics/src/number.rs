//! Numbers in files: JSON has no infinities, so they are written as texts and read back from them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number as it stands in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NumberText {
    Finite(f64),
    Infinite(Infinite),
}

#[derive(Serialize, Deserialize)]
enum Infinite {
    #[serde(rename = "infinity")]
    Positive,
    #[serde(rename = "-infinity")]
    Negative,
}

impl From<f64> for NumberText {
    fn from(value: f64) -> Self {
        if value == f64::INFINITY {
            NumberText::Infinite(Infinite::Positive)
        } else if value == f64::NEG_INFINITY {
            NumberText::Infinite(Infinite::Negative)
        } else {
            NumberText::Finite(value)
        }
    }
}

impl From<NumberText> for f64 {
    fn from(written: NumberText) -> Self {
        match written {
            NumberText::Finite(value) => value,
            NumberText::Infinite(Infinite::Positive) => f64::INFINITY,
            NumberText::Infinite(Infinite::Negative) => f64::NEG_INFINITY,
        }
    }
}

pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    NumberText::from(*value).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    NumberText::deserialize(deserializer).map(f64::from)
}

/// The same for quantities that may not exist: `null`.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, NumberText, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(NumberText::from).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<NumberText>::deserialize(deserializer)?.map(f64::from))
    }
}

/// The same for lists: `#[serde(with = "warmcore_statistics::number::list")]`.
pub mod list {
    use super::{Deserialize, Deserializer, NumberText, Serializer};

    /// Writes a list.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().copied().map(NumberText::from))
    }

    /// Reads a list.
    ///
    /// # Errors
    /// Where something else stands.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        Ok(Vec::<NumberText>::deserialize(deserializer)?.into_iter().map(f64::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Better, Comparison, Interval, Summary, compare_paired, sample::Sample};

    #[test]
    fn infinities_survive_json() {
        let interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };
        let text = serde_json::to_string(&interval).unwrap();
        assert_eq!(text, r#"{"low":"-infinity","high":"infinity"}"#);
        assert_eq!(serde_json::from_str::<Interval>(&text).unwrap(), interval);

        let summary = Sample::new(&[1.0, f64::INFINITY]).unwrap().summary();
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
    }

    #[test]
    fn a_comparison_without_data_survives_json() {
        let comparison = compare_paired(&[], &[], Better::Lower).unwrap();
        let text = serde_json::to_string(&comparison).unwrap();
        assert!(text.contains(r#""ratio":null"#), "{text}");
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), comparison);
    }
}
