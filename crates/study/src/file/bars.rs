//! Bar charts of a source: a number for each application or configuration, drawn again.
//!
//! A `[[drawing]]` with `bars` instead of `of` has one bar for each table of the list, or with `each = ["AXIS", …]` one for every value of
//! those axes, as an `[[expect]]` has. `{key}` in its label is what the value has for it.

use serde::Deserialize;
use toml::Spanned;

use super::expect::Varied;
use super::placeholders::put_known;
use super::{At, Problem};
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
    published: Option<Spanned<f64>>,
}

/// The bars of a chart, in the order of the list and of the axes' values.
pub(super) fn bars(forms: &[BarForm], varied: &Varied<'_>) -> Result<Vec<Bar>, At> {
    let mut found = Vec::new();
    for form in forms {
        let published = form.published.as_ref().map(|value| (*value.get_ref(), value.span().start));
        if let Some((_, at)) = published.filter(|(value, _)| !value.is_finite()) {
            return Err((at, Problem::Value("what was published is a finite number".into())));
        }
        for chosen in varied.combinations(&form.each, &form.of)? {
            let bindings = varied.bindings(&chosen);
            found.push(Bar {
                label: put_known(&form.label, &bindings),
                series: put_known(&form.series, &bindings),
                figure: varied.expression(&form.of, &chosen)?,
                published: published.map(|(value, _)| value),
                at: form.of.span().start,
            });
        }
    }
    Ok(found)
}
