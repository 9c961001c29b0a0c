//! Marks: why a row is shown and not scored.
//!
//! A row of a source counts once, and only for what the source says of its own experiment. What is true by definition, fitted, or computed from
//! what counts already agrees for another reason than that the model is right, so it says what it is and counts in no score.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::alike::Meaning;
use super::{At, Band, Expectation, Problem, known};
use crate::judge;

/// Why a row is not scored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Which rule it falls under.
    pub kind: MarkKind,
    /// The parameter, the row or the reason.
    pub why: String,
}

warmcore_topology::worded! {
    /// The rules.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum MarkKind: words {
        /// It cannot come out otherwise.
        ByDefinition = "by definition",
        /// A parameter was fitted to it.
        Fitted = "fitted",
        /// Something was done otherwise than in the source.
        Protocol = "another protocol",
        /// Its band allows that there is no effect, where the source claims one.
        AllowsNoEffect = "allows no effect",
        /// It is the number of another row, or follows from it.
        FollowsFrom = "follows from a row",
        /// It is this project's question, not the source's.
        NotInSource = "not in the source",
    }
}

impl MarkKind {
    /// The key of a study's file.
    pub const fn key(self) -> &'static str {
        match self {
            Self::ByDefinition => "by_definition",
            Self::Fitted => "fitted",
            Self::Protocol => "protocol",
            Self::AllowsNoEffect => "allows_no_effect",
            Self::FollowsFrom => "follows_from",
            Self::NotInSource => "not_in_source",
        }
    }

    /// Whether what has it is a row of the source at all, which counts once.
    pub(crate) const fn is_of_a_row(self) -> bool {
        !matches!(self, Self::FollowsFrom | Self::NotInSource)
    }
}

/// The one mark of these texts, and where it is.
pub(super) fn one<'a>(
    marks: impl IntoIterator<Item = (MarkKind, Option<&'a Spanned<String>>)>,
) -> Result<Option<(Mark, usize)>, At> {
    let mut found: Option<(Mark, usize)> = None;
    for (kind, text) in marks {
        let Some(text) = text else { continue };
        let at = text.span().start;
        if let Some((first, _)) = &found {
            let words = format!("a row has one mark; this one has `{}` already", first.kind.key());
            return Err((at, Problem::Value(words)));
        }
        if text.get_ref().trim().is_empty() {
            return Err((at, Problem::Value(format!("`{}` says why", kind.key()))));
        }
        found = Some((Mark { kind, why: text.get_ref().clone() }, at));
    }
    Ok(found)
}

impl Expectation {
    /// On which side of what is neutral the source has it, 1 above and -1 below; nothing where it claims no effect or nothing is neutral.
    pub(crate) fn claimed_side(&self) -> Option<f64> {
        let neutral = self.neutral?;
        match self.published {
            Some(published) if published == neutral => None,
            Some(published) => Some(if published > neutral { 1.0 } else { -1.0 }),
            None if self.band.low >= neutral => Some(1.0),
            None if self.band.high <= neutral => Some(-1.0),
            None => None,
        }
    }

    /// Whether a figure lies in the band; one that is no effect does not where the source claims one.
    pub fn is_inside(&self, figure: f64) -> bool {
        let allows = self.mark.as_ref().is_some_and(|mark| mark.kind == MarkKind::AllowsNoEffect);
        let lacks_effect = self.claimed_side().is_some_and(|side| self.is_no_effect(figure, side));
        self.band.contains(figure) && (allows || !lacks_effect)
    }

    /// Whether a figure is none of the effect that the source has on this [side](Self::claimed_side).
    pub(crate) fn is_no_effect(&self, figure: f64, side: f64) -> bool {
        let Some(neutral) = self.neutral else { return false };
        match self.published {
            Some(published) => judge::is_none_of(figure, published, neutral),
            None => (figure - neutral) * side <= 0.0,
        }
    }
}

/// Refuses a band around no effect, or on the other side of it, of a row that the source claims an effect for; and one without what was published.
pub(super) fn check_effect(of: &Expectation, at: usize) -> Result<(), At> {
    check_side(of, at)?;
    let scored = of.counted && of.mark.is_none();
    if let Some(published) = of.published.filter(|published| scored && !of.band.contains(*published)) {
        let words = format!("the band is without {published}, which was published: the source itself would be wrong");
        return Err((at, Problem::Value(words)));
    }
    Ok(())
}

/// Rows that are scored by their bands.
fn scored(all: &[Expectation]) -> impl Iterator<Item = &Expectation> {
    all.iter().filter(|of| of.counted && of.mark.is_none() && of.against.is_none())
}

/// Refuses scored rows that are true by definition, and those that are the same figure twice, or a factor, a constant or an inversion apart: a
/// row counts once.
pub(super) fn check_counted_once(all: &[Expectation], meaning: &Meaning<'_>) -> Result<(), At> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for of in scored(all) {
        let marks = meaning.marks(&of.figure);
        if marks.is_none() && meaning.is_constant(&of.figure) {
            let words =
                "the figure is the same whatever is measured: say why it is true `by_definition`, which is not scored";
            return Err((of.at, Problem::Value(words.into())));
        }
        let marks = marks.into_iter().flatten().filter(|mark| !mark.is_empty());
        let marks: Vec<String> = marks.chain([of.figure.to_string()]).collect();
        let first = marks.iter().find_map(|mark| seen.get(mark).copied());
        for mark in marks {
            seen.insert(mark, &of.name);
        }
        if let Some(first) = first {
            let words =
                format!("`{first}` is the same figure, and a row counts once: say `follows_from = \"{first}\"`");
            return Err((of.at, Problem::Value(words)));
        }
    }
    Ok(())
}

/// Refuses what is called published of a row that the source does not have, unless a row of the source has that number.
pub(super) fn check_own(all: &[Expectation]) -> Result<(), At> {
    let is_own = |of: &&Expectation| of.mark.as_ref().is_some_and(|mark| mark.kind == MarkKind::NotInSource);
    for of in all.iter().filter(is_own) {
        let has = |other: &Expectation| !is_own(&other) && other.published == of.published;
        if let Some(published) = of.published.filter(|_| !all.iter().any(has)) {
            let words = format!(
                "it is `not_in_source`, and {published} of no row of the source was published: leave out `published`, or the mark"
            );
            return Err((of.mark_at, Problem::Value(words)));
        }
    }
    Ok(())
}

/// How far from no effect a published number may lie that says that both are alike.
const ALIKE: f64 = 0.05;

/// The value that means no effect, of a row that compares a measure with itself, says that something else is neutral, and has that value in its
/// band.
fn hidden_no_effect(of: &Expectation, meaning: &Meaning<'_>) -> Option<f64> {
    let hides = |none: &f64| {
        let is_alike = of.published.is_some_and(|published| (published - none).abs() <= ALIKE);
        of.neutral != Some(*none) && of.band.low < *none && *none < of.band.high && !is_alike
    };
    // The band is quicker to look at than the figure.
    let may_hide = [0.0, 1.0].iter().any(hides);
    may_hide.then(|| meaning.no_effect(&of.figure)).flatten().filter(hides)
}

/// Refuses a scored row with a published number whose band has what means no effect, though another value is said to be neutral, or none.
pub(super) fn check_neutral(all: &[Expectation], meaning: &Meaning<'_>) -> Result<(), At> {
    for of in scored(all).filter(|of| of.published.is_some() && of.neutral != Some(1.0)) {
        if let Some(none) = hidden_no_effect(of, meaning) {
            let words = format!(
                "the figure compares a measure with itself, so that {none} means no effect, and the band contains it: let the band end there \
                 with `neutral = {none}`, or say `published = {none}` if the source says that both are alike"
            );
            return Err((of.at, Problem::Value(words)));
        }
    }
    Ok(())
}

fn check_side(of: &Expectation, at: usize) -> Result<(), At> {
    let Some(neutral) = of.neutral.filter(|_| of.counted && of.mark.is_none() && of.band != Band::ANYWHERE) else {
        return Ok(());
    };
    let around = of.band.low < neutral && neutral < of.band.high;
    let opposite = |published: &f64| {
        *published > neutral && of.band.high <= neutral || *published < neutral && of.band.low >= neutral
    };
    if let Some(published) = of.published.filter(opposite) {
        let words = format!(
            "the source has {published}, and the band lies on the other side of {neutral}, which means no effect: what would be right here would \
             be the opposite there"
        );
        return Err((at, Problem::Value(words)));
    }
    if !around || of.published == Some(neutral) {
        return Ok(());
    }
    let claim = of.published.map_or("no number".to_owned(), |published| published.to_string());
    let words = format!(
        "the band contains {neutral}, which means no effect, and the source has {claim}. Let it end there, or say `published = {neutral}` if the \
         source says that both are alike, or `neutral = \"none\"` if this is not a change, or why it `allows_no_effect`, which is not scored"
    );
    Err((at, Problem::Value(words)))
}

/// Checks that what follows from rows names rows that count once.
pub(super) fn check_followed(all: &[Expectation]) -> Result<(), At> {
    let follows = |of: &&Expectation| of.mark.as_ref().is_some_and(|mark| mark.kind == MarkKind::FollowsFrom);
    for of in all.iter().filter(follows) {
        let Some(mark) = &of.mark else { continue };
        let row = known("expectation", &mark.why, all.iter().map(|of| of.name.as_str()));
        let row = &all[row.map_err(|problem| (of.mark_at, problem))?];
        if row.name == of.name || row.mark.as_ref().is_some_and(|mark| !mark.kind.is_of_a_row()) {
            let words = format!("`follows_from` names a row that counts on its own, and `{}` does not", row.name);
            return Err((of.mark_at, Problem::Value(words)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library;

    /// Of claims in words too, where the form allows it for studies without a source.
    #[test]
    fn no_scored_row_of_a_paper_hides_that_it_allows_no_effect() {
        for study in library::find("papers").unwrap() {
            let meaning = Meaning { cells: &study.cells, figures: &study.figures };
            for of in scored(&study.expectations) {
                assert_eq!(hidden_no_effect(of, &meaning), None, "{}: {}", study.name, of.name);
            }
            // More or less than no effect is a direction, which is scored apart from the size.
            let hides_side = |of: &&Expectation| {
                let none = meaning.no_effect(&of.figure).filter(|_| of.neutral.is_none());
                none.is_some_and(|none| none <= of.band.low || of.band.high <= none)
            };
            let sideless = scored(&study.expectations).find(hides_side).map(|of| &of.name);
            assert_eq!(sideless, None, "{}: the source claims a direction: say `neutral`", study.name);
            let aside = study.expectations.iter().find(|of| of.published.is_some() && !of.counted);
            assert!(aside.is_none(), "{}: a published row that is in no count: {aside:?}", study.name);
        }
    }
}
