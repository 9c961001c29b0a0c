//! What is expected, of one figure or of one for every value of axes.
//!
//! An `[[expect]]` with `each = ["AXIS", …]` stands for one expectation for each combination of the axes' values. Its cells are those of
//! the value, without saying so in the figure; `{key}` in its name, reason and mark is what the value has for it; and what it does not
//! say itself (`published`, `band`, `reason`, a mark, `outside`) is what the value's table says.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use warmcore_statistics::Better;

use super::mark::{self, Mark, MarkKind};
use super::placeholders::put_known;
use super::{At, Axis, Band, Cell, Expectation, Outside, Problem, known};
use crate::figure::{self, Expression, Fold, NamedPart, Node, Selection};

/// Most expressions that a fold over axes may stand for.
const MOST_FOLDED: usize = 1_000;
/// Most expectations that one table may stand for: as many as cells are planned.
const MOST_EXPECTED: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectForm {
    name: Spanned<String>,
    #[serde(default)]
    each: Vec<Spanned<String>>,
    figure: Spanned<String>,
    published: Option<f64>,
    band: Option<Spanned<Vec<f64>>>,
    reason: Option<String>,
    neutral: Option<Spanned<toml::Value>>,
    by_definition: Option<Spanned<String>>,
    fitted: Option<Spanned<String>>,
    protocol: Option<Spanned<String>>,
    allows_no_effect: Option<Spanned<String>>,
    follows_from: Option<Spanned<String>>,
    not_in_source: Option<Spanned<String>>,
    counted: Option<bool>,
    outside: Option<Outside>,
    better: Option<Spanned<Better>>,
    margin: Option<Spanned<f64>>,
}

/// What a value of an axis says of the expectations of it, and where it is.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// What was measured.
    pub published: Option<f64>,
    /// Where the figure must lie.
    pub band: Option<Vec<f64>>,
    /// Why there.
    pub reason: Option<String>,
    /// That it cannot come out otherwise, and why.
    pub by_definition: Option<String>,
    /// The parameter that was fitted to it.
    pub fitted: Option<String>,
    /// What was done otherwise than in the source, and why.
    pub protocol: Option<String>,
    /// Why it is asked, though the source does not say it.
    pub not_in_source: Option<String>,
    /// What is known of an answer outside of the band.
    pub outside: Option<Outside>,
    #[serde(skip)]
    at: usize,
}

impl Expected {
    /// Its keys in a value's table, which are no placeholders.
    const KEYS: [&str; 8] =
        ["published", "band", "reason", "by_definition", "fitted", "protocol", "not_in_source", "outside"];

    /// A value of an axis without what is expected of it, and that.
    pub(super) fn taken_from(value: &Spanned<toml::Value>) -> Result<(toml::Value, Self), At> {
        let at = value.span().start;
        let toml::Value::Table(table) = value.get_ref() else {
            return Ok((value.get_ref().clone(), Self { at, ..Self::default() }));
        };
        let (of_it, rest): (toml::Table, toml::Table) =
            table.clone().into_iter().partition(|(key, _)| Self::KEYS.contains(&key.as_str()));
        let expected: Self = of_it.try_into().map_err(|error| super::form::syntax_at(&error, at))?;
        Ok((toml::Value::Table(rest), Self { at, ..expected }))
    }

    /// Its marks, all where the value is.
    fn marks(&self) -> impl Iterator<Item = (MarkKind, Spanned<String>)> {
        let texts = [
            (MarkKind::ByDefinition, &self.by_definition),
            (MarkKind::Fitted, &self.fitted),
            (MarkKind::Protocol, &self.protocol),
            (MarkKind::NotInSource, &self.not_in_source),
        ];
        texts.into_iter().filter_map(|(kind, text)| Some((kind, Spanned::new(self.at..self.at, text.clone()?))))
    }

    fn is_empty(&self) -> bool {
        *self == Self { at: self.at, ..Self::default() }
    }
}

impl ExpectForm {
    fn marks(&self) -> [(MarkKind, Option<&Spanned<String>>); 6] {
        [
            (MarkKind::ByDefinition, self.by_definition.as_ref()),
            (MarkKind::Fitted, self.fitted.as_ref()),
            (MarkKind::Protocol, self.protocol.as_ref()),
            (MarkKind::AllowsNoEffect, self.allows_no_effect.as_ref()),
            (MarkKind::FollowsFrom, self.follows_from.as_ref()),
            (MarkKind::NotInSource, self.not_in_source.as_ref()),
        ]
    }
}

/// What figures can be about.
pub(super) struct Varied<'a> {
    pub axes: &'a [Axis],
    pub cells: &'a [Cell],
    /// The margin of the baseline, if there is one.
    pub margin: Option<f64>,
}

/// An axis and the number of one of its values.
pub(super) type Chosen = (usize, usize);

impl Varied<'_> {
    fn axis(&self, name: &str) -> Result<usize, Problem> {
        known("axis", name, self.axes.iter().map(|axis| axis.name.as_str()))
    }

    /// The expression of a text in which cells that say nothing of these axes are those of these values.
    pub fn expression(&self, text: &Spanned<String>, chosen: &[Chosen]) -> Result<Expression, At> {
        // The text begins after its quotation mark.
        let start = text.span().start + 1;
        let mut expression =
            figure::parse(text.get_ref()).map_err(|error| (start + error.at, Problem::Figure(error)))?;
        for of in chosen {
            self.choose(&mut expression, *of);
        }
        self.unfold(&mut expression, &mut MOST_FOLDED.clone()).map_err(|(at, problem)| (start + at, problem))?;
        Ok(expression)
    }

    /// Lets measures of cells with an axis be of one value of it, if they say nothing of it; says whether there was one.
    fn choose(&self, expression: &mut Expression, (axis, value): Chosen) -> bool {
        let of = &self.axes[axis];
        let bindings = &of.values[value];
        // One key is enough where no other value has the same for it; best the axis' own name.
        let tells = |key: &str, text: &str| {
            let same = of.values.iter().flatten().filter(|(other, put)| other == key && put == text);
            same.count() == 1
        };
        let mut single: Vec<&(String, String)> = bindings.iter().filter(|(key, text)| tells(key, text)).collect();
        single.sort_by_key(|(key, _)| *key != of.name);
        let added: Vec<(String, String)> = match single.first() {
            Some(one) => vec![(*one).clone()],
            None => bindings.clone(),
        };
        let mut found = false;
        expression.each_selection_mut(&mut |selection: &mut Selection| {
            let varies = self.cells.iter().any(|cell| cell.name == selection.cell && cell.axes.contains(&axis));
            let said = selection.choices.iter().any(|(key, _)| bindings.iter().any(|(known, _)| known == key));
            if varies && !said {
                selection.choices.extend(added.iter().cloned());
                found = true;
            }
        });
        found
    }

    /// Puts under every fold the expressions that it is over.
    fn unfold(&self, expression: &mut Expression, left: &mut usize) -> Result<(), At> {
        let at = expression.at;
        let (axis, of, each) = match &mut expression.node {
            Node::Number(_) | Node::Measure(_) | Node::Named(_) => return Ok(()),
            Node::Negated(inner) => return self.unfold(inner, left),
            Node::Binary(_, one, other) => {
                self.unfold(one, left)?;
                return self.unfold(other, left);
            }
            Node::Call(_, arguments) => {
                return arguments.iter_mut().try_for_each(|argument| self.unfold(argument, left));
            }
            Node::Over(Fold { axis, of, each, .. }) => (self.axis(axis).map_err(|problem| (at, problem))?, of, each),
        };
        for value in 0..self.axes[axis].values.len() {
            *left = left.checked_sub(1).ok_or_else(|| {
                let words = format!("a figure covers at most {MOST_FOLDED} expressions over axes");
                (at, Problem::Value(words))
            })?;
            let mut one = (**of).clone();
            if !self.choose(&mut one, (axis, value)) {
                return Err((
                    at,
                    Problem::Value(format!("it has no cell that axis `{}` varies", self.axes[axis].name)),
                ));
            }
            self.unfold(&mut one, left)?;
            each.push(one);
        }
        Ok(())
    }

    /// The expectations of a table.
    pub fn expectations(&self, form: &ExpectForm, found: &mut Vec<Expectation>) -> Result<(), At> {
        for chosen in self.combinations(&form.each, &form.figure)? {
            found.push(self.expectation(form, &chosen)?);
        }
        Ok(())
    }

    /// All combinations of the values of these axes, each of which a cell of the figure must have.
    pub fn combinations(&self, each: &[Spanned<String>], of: &Spanned<String>) -> Result<Vec<Vec<Chosen>>, At> {
        let mut combinations: Vec<Vec<Chosen>> = vec![Vec::new()];
        for name in each {
            let axis = self.axis(name.get_ref()).map_err(|problem| (name.span().start, problem))?;
            let mut plain = figure::parse(of.get_ref())
                .map_err(|error| (of.span().start + 1 + error.at, Problem::Figure(error)))?;
            if !self.choose(&mut plain, (axis, 0)) {
                self.check_cells(&plain).map_err(|(at, problem)| (of.span().start + 1 + at, problem))?;
                let words =
                    format!("the figure has no cell that axis `{}` varies, and does not choose", name.get_ref());
                return Err((name.span().start, Problem::Value(words)));
            }
            let values = 0..self.axes[axis].values.len();
            let count = combinations.len().saturating_mul(values.len());
            if count > MOST_EXPECTED {
                let words = format!("{count} values of axes and more; one table covers at most {MOST_EXPECTED}");
                return Err((name.span().start, Problem::Value(words)));
            }
            let with = |chosen: &Vec<Chosen>| {
                let chosen = chosen.clone();
                values.clone().map(move |value| chosen.iter().copied().chain([(axis, value)]).collect())
            };
            combinations = combinations.iter().flat_map(with).collect();
        }
        Ok(combinations)
    }

    /// Checks that the cells that an expression names are there.
    fn check_cells(&self, expression: &Expression) -> Result<(), At> {
        let mut found = Ok(());
        expression.each_name(&mut |name, at| {
            if let (NamedPart::Measure(of), true) = (name, found.is_ok()) {
                let cell = known("cell", &of.cell, self.cells.iter().map(|cell| cell.name.as_str()));
                found = cell.map(|_| ()).map_err(|problem| (at, problem));
            }
        });
        found
    }

    /// What these values put for placeholders.
    pub fn bindings(&self, chosen: &[Chosen]) -> BTreeMap<String, String> {
        chosen.iter().flat_map(|(axis, value)| self.axes[*axis].values[*value].iter().cloned()).collect()
    }

    fn expectation(&self, form: &ExpectForm, chosen: &[Chosen]) -> Result<Expectation, At> {
        let bindings = self.bindings(chosen);
        let put = |text: &str| put_known(text, &bindings);
        let of_values: Vec<&Expected> = chosen.iter().map(|(axis, value)| &self.axes[*axis].expected[*value]).collect();
        let at = form.name.span().start;
        let against = self.against(form)?;
        let of_value = of_values.iter().find_map(|of| Some((of.band.as_deref()?, of.at)));
        let band = of_value.or(form.band.as_ref().map(|band| (band.get_ref().as_slice(), band.span().start)));
        let reason = of_values.iter().find_map(|of| of.reason.as_ref()).or(form.reason.as_ref());
        let reason = reason.map_or_else(String::new, |text| put(text));
        let band_at = band.map_or(at, |(_, at)| at);
        let band = match band {
            Some((band, at)) => checked_band(band, &reason).map_err(|words| (at, Problem::Value(words)))?,
            None if against.is_some() => Band::ANYWHERE,
            None => {
                let at = of_values.first().map_or(at, |of| of.at);
                return Err((at, Problem::Value(format!("there is no `band` for `{}`", put(form.name.get_ref())))));
            }
        };
        let (published, published_at) = match of_values.iter().find_map(|of| Some((of.published?, of.at))) {
            Some((value, at)) => (Some(value), at),
            None => (form.published, at),
        };
        if published.is_some_and(|value| !value.is_finite()) {
            return Err((published_at, Problem::Value("what was published is a finite number".into())));
        }
        let own: Vec<(MarkKind, Spanned<String>)> = of_values.iter().flat_map(|of| of.marks()).collect();
        let mark = match mark::one(own.iter().map(|(kind, text)| (*kind, Some(text))))? {
            Some(own) => Some(own),
            None => mark::one(form.marks())?,
        };
        let outside = of_values.iter().find_map(|of| of.outside.as_ref()).or(form.outside.as_ref());
        if let Some(of) = outside {
            super::form::filled(at, &[("why", &of.why), ("settle", &of.settle)])?;
        }
        let of = Expectation {
            name: put(form.name.get_ref()),
            figure: self.expression(&form.figure, chosen)?,
            published,
            band,
            reason,
            against,
            neutral: neutral(form.neutral.as_ref())?,
            mark_at: mark.as_ref().map_or(at, |(_, at)| *at),
            mark: mark.map(|(mark, _)| Mark { why: put(&mark.why), ..mark }),
            counted: form.counted.unwrap_or(true),
            outside: outside.cloned(),
            at: form.figure.span().start,
            named_at: at,
        };
        mark::check_effect(&of, band_at)?;
        Ok(of)
    }

    /// Whether an expectation is compared with the baseline: which direction is better, and the margin.
    fn against(&self, form: &ExpectForm) -> Result<Option<(Better, f64)>, At> {
        let Some(of_baseline) = self.margin else {
            let at = form.better.as_ref().map(Spanned::span).or(form.margin.as_ref().map(Spanned::span));
            let words = "`better` and `margin` are about a [baseline], and the study has none";
            return at.map_or(Ok(None), |at| Err((at.start, Problem::Value(words.into()))));
        };
        let margin = form.margin.as_ref().map(super::form::margin).transpose()?.unwrap_or(of_baseline);
        Ok(form.better.as_ref().map(|better| (*better.get_ref(), margin)))
    }

    /// Checks that axes of expectations are there, and that what values of axes say is expected of something. `at` is where each axis' name is.
    pub(crate) fn check_expected(&self, forms: &[ExpectForm], at: &[usize]) -> Result<(), At> {
        for name in forms.iter().flat_map(|form| &form.each) {
            self.axis(name.get_ref()).map_err(|problem| (name.span().start, problem))?;
        }
        for (axis, at) in self.axes.iter().zip(at) {
            let says = axis.expected.iter().any(|expected| !expected.is_empty());
            if says && !forms.iter().flat_map(|form| &form.each).any(|name| *name.get_ref() == axis.name) {
                let reason = "says what is expected of its values, and no [[expect]] has it in `each`";
                return Err((*at, Problem::Axis { name: axis.name.clone(), reason }));
            }
        }
        Ok(())
    }
}

fn checked_band(ends: &[f64], reason: &str) -> Result<Band, String> {
    // As an array, TOML's reader would leave out what is more.
    let &[low, high] = ends else { return Err(format!("a band has two ends, not {}", ends.len())) };
    if low.is_nan() || high.is_nan() || (low.is_infinite() && high.is_infinite()) {
        return Err("a band has at least one end".into());
    }
    if low > high {
        return Err(format!("the band's ends are swapped: {low} is more than {high}"));
    }
    if reason.trim().is_empty() {
        return Err("a band has a reason".into());
    }
    Ok(Band { low, high })
}

fn neutral(form: Option<&Spanned<toml::Value>>) -> Result<Option<f64>, At> {
    let Some(form) = form else { return Ok(Some(1.0)) };
    match form.get_ref() {
        toml::Value::Float(number) if number.is_finite() => Ok(Some(*number)),
        toml::Value::Integer(number) => Ok(Some(*number as f64)),
        toml::Value::String(text) if text == "none" => Ok(None),
        _ => Err((form.span().start, Problem::Value("`neutral` is a number, or \"none\"".into()))),
    }
}
