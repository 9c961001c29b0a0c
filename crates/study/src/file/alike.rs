//! What a figure is, whatever it is called: its values where every measure has numbers that are drawn for it.
//!
//! Two figures that are a constant, a factor or an inversion apart are one row of a source. A figure whose value does not change where all cells
//! have the same numbers compares a measure with itself, and that value means no effect.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Cell, NamedFigure, SCHEDULER};
use crate::figure::{self, EACH, Expression, Known, Lookup, Selection, Value, ValueError};

/// Draws of numbers: more than two figures agree in by chance.
const DRAWS: usize = 6;
const TRIALS: usize = 3;
/// Entries of a list.
const LENGTH: usize = 8;

/// What figures of a study name.
pub(super) struct Meaning<'a> {
    /// The study's cells.
    pub cells: &'a [Cell],
    /// The study's figures, which do not name each other in a circle.
    pub figures: &'a [NamedFigure],
}

impl Meaning<'_> {
    /// What figures have in common that are a constant, a factor or an inversion apart: one of these texts. Nothing of a constant.
    pub(super) fn marks(&self, of: &Expression) -> Option<[String; 2]> {
        let middles = self.middles(of, true)?;
        let inverse: Vec<f64> = middles.iter().map(|middle| 1.0 / middle).collect();
        Some([shape(&middles)?, shape(&inverse).unwrap_or_default()])
    }

    /// Whether a figure comes out the same whatever is measured.
    pub(super) fn is_constant(&self, of: &Expression) -> bool {
        // Figures that tell cases apart may be constant in all draws by chance.
        let has_cases = |of: &Expression| {
            let text = of.to_string();
            ["abs(", "count_above(", "above_after("].iter().any(|function| text.contains(function))
        };
        !has_cases(of)
            && !self.figures.iter().any(|figure| has_cases(&figure.of))
            && self.middles(of, true).is_some_and(|middles| is_one(&middles))
    }

    /// The value that means no effect, 0 or 1, of a figure that compares measures of several cells with themselves.
    pub(super) fn no_effect(&self, of: &Expression) -> Option<f64> {
        self.marks(of)?;
        let middles = self.middles(of, false)?;
        [0.0, 1.0].into_iter().find(|value| is_one(&middles) && (middles[0] - value).abs() <= 1e-9 * value)
    }

    /// The figure's value in every draw, if it has one in all of them.
    fn middles(&self, of: &Expression, by_cell: bool) -> Option<Vec<f64>> {
        let middle = |draw: usize| {
            let drawn = Drawn { of: self, draw, by_cell, known: Known::default() };
            let middle = figure::middle(&figure::evaluate(of, &drawn).ok()?).ok()?;
            middle.is_finite().then_some(middle)
        };
        (0..DRAWS).map(middle).collect()
    }
}

/// Whether all values are the first.
fn is_one(values: &[f64]) -> bool {
    values.iter().all(|value| (value - values[0]).abs() <= 1e-9 * values[0].abs())
}

/// How values lie to each other, the same for all that are a factor and a constant apart; nothing if they do not differ.
fn shape(values: &[f64]) -> Option<String> {
    let (first, by) = (values[0], values[1] - values[0]);
    let differs = by.is_finite() && by.abs() > 1e-9 * first.abs();
    differs.then(|| values[2..].iter().map(|value| format!("{:.6e} ", (value - first) / by)).collect())
}

/// Numbers of one draw.
struct Drawn<'a> {
    of: &'a Meaning<'a>,
    draw: usize,
    /// Whether cells that run different things have different numbers.
    by_cell: bool,
    known: Known,
}

impl Drawn<'_> {
    /// What the numbers of a measure follow from.
    fn key(&self, selection: &Selection) -> String {
        let of = |(key, value): &(String, String)| {
            (if key.is_empty() { SCHEDULER.to_owned() } else { key.clone() }, value.clone())
        };
        let mut choices: Vec<(String, String)> = selection.choices.iter().map(of).collect();
        choices.retain(|(key, _)| self.by_cell || ["task", "application", EACH].contains(&key.as_str()));
        choices.sort_unstable();
        let cell = self.of.cells.iter().find(|cell| self.by_cell && cell.name == selection.cell);
        format!("{} {:?} {choices:?}", selection.measure, cell.map(what_runs))
    }

    fn numbers(&self, key: &str, count: usize) -> Vec<f64> {
        let number = |index: usize| {
            let mut hasher = DefaultHasher::new();
            (key, self.draw, index).hash(&mut hasher);
            0.5 + (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
        };
        (0..count).map(number).collect()
    }
}

/// A cell without its name, and without how often and under which seeds it runs.
fn what_runs(cell: &Cell) -> String {
    let texts = [Some(&cell.machine), cell.background.as_ref(), Some(&cell.workload), cell.assumed.as_ref()];
    let texts = texts.map(|text| text.map(|text| text.get_ref().as_str()));
    let schedulers: Vec<&str> = cell.schedulers.iter().map(|scheduler| scheduler.get_ref().as_str()).collect();
    let place = cell.place.as_ref().map(|place| place.get_ref().as_str());
    let times_ns = [cell.max_time_ns, cell.warm_up_ns];
    format!("{texts:?} {schedulers:?} {place:?} {:?} {times_ns:?}", cell.memory)
}

impl Lookup for Drawn<'_> {
    fn measure(&self, selection: &Selection) -> Result<Vec<f64>, ValueError> {
        // Next to times constants are seconds.
        let unit = if selection.measure.ends_with("_ns") { 1e10 } else { 1.0 };
        Ok(self.numbers(&self.key(selection), TRIALS).into_iter().map(|number| number * unit).collect())
    }

    fn lists(&self, selection: &Selection) -> Result<Vec<Vec<f64>>, ValueError> {
        let key = self.key(selection);
        Ok((0..TRIALS).map(|trial| self.numbers(&format!("{key} {trial}"), LENGTH)).collect())
    }

    fn figure(&self, name: &str) -> Result<Value, ValueError> {
        self.known.or(name, || match self.of.figures.iter().find(|figure| figure.name == name) {
            Some(own) => figure::evaluate(&own.of, self),
            // One of a program.
            None => Ok(Value::Trials(self.numbers(name, TRIALS))),
        })
    }
}
