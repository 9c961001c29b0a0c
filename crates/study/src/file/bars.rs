//! Bar charts of a source: a number for each application or configuration, drawn again.
//!
//! A `[[drawing]]` with `bars` instead of `of` has one bar for each table of the list, or with `each = ["AXIS", …]` one for every value of
//! those axes, as an `[[expect]]` has. `{key}` in its label is what the value has for it. `published` is a number, or a table of numbers by
//! label.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::expect::Varied;
use super::placeholders::put_known;
use super::{At, Problem, known};
use crate::figure::Expression;

/// A bar chart of the source, drawn again from all trials.
#[derive(Clone, PartialEq, Debug)]
pub struct BarChart {
    /// Name of its files.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What is to be seen in the published one.
    pub published: String,
    /// Unit of the bars; empty for ratios and counts.
    pub unit: String,
    /// The bars, from the first row on.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// Of what: an application.
    pub label: String,
    /// Which of several bars with the same label; may be empty.
    pub series: String,
    /// How long it is.
    pub figure: Expression,
    /// What was published, if that is a number.
    pub published: Option<f64>,
    pub(crate) at: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BarForm {
    label: String,
    #[serde(default)]
    series: String,
    #[serde(default)]
    each: Vec<Spanned<String>>,
    of: Spanned<String>,
    published: Option<Spanned<toml::Value>>,
}

/// What was published of the bars of a table.
enum Published {
    /// Of each of them.
    Each(f64),
    /// By label.
    Labelled(BTreeMap<String, f64>),
}

impl Published {
    fn read(form: &Spanned<toml::Value>) -> Result<Self, At> {
        let number = |value: &toml::Value| match value {
            toml::Value::Float(number) if number.is_finite() => Some(*number),
            toml::Value::Integer(number) => Some(*number as f64),
            _ => None,
        };
        let found = match form.get_ref() {
            toml::Value::Table(table) => {
                let numbers = table.iter().map(|(label, value)| Some((label.clone(), number(value)?)));
                numbers.collect::<Option<_>>().map(Self::Labelled)
            }
            one => number(one).map(Self::Each),
        };
        let words = "what was published is a finite number, or a table of such by label";
        found.ok_or_else(|| (form.span().start, Problem::Value(words.into())))
    }

    fn of(&self, label: &str) -> Option<f64> {
        match self {
            Self::Each(number) => Some(*number),
            Self::Labelled(numbers) => numbers.get(label).copied(),
        }
    }
}

/// The bars of a chart, in the order of the list and of the axes' values.
pub(super) fn bars(forms: &[BarForm], varied: &Varied<'_>) -> Result<Vec<Bar>, At> {
    let mut found = Vec::new();
    for form in forms {
        let published = form.published.as_ref().map(Published::read).transpose()?;
        let first = found.len();
        for chosen in varied.combinations(&form.each, &form.of)? {
            let bindings = varied.bindings(&chosen);
            let label = put_known(&form.label, &bindings);
            found.push(Bar {
                published: published.as_ref().and_then(|published| published.of(&label)),
                label,
                series: put_known(&form.series, &bindings),
                figure: varied.expression(&form.of, &chosen)?,
                at: form.of.span().start,
            });
        }
        if let (Some(Published::Labelled(numbers)), Some(form)) = (&published, &form.published) {
            let labels = found[first..].iter().map(|bar: &Bar| bar.label.as_str());
            for label in numbers.keys() {
                known("bar", label, labels.clone()).map_err(|problem| (form.span().start, problem))?;
            }
        }
    }
    Ok(found)
}
