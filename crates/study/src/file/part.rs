//! A part of a study: some of its expectations and drawings, and what they need.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bar, SCHEDULER, Study};
use crate::figure::{Expression, NamedPart, Selection};

/// A simulation: its cell, and what was put for which placeholder.
pub(crate) type CellSimulation = (String, BTreeMap<String, String>);

impl Study {
    /// Leaves only the expectations whose names contain one of these texts, and what runs for them and for the drawings that are called so;
    /// says whether there is any.
    pub fn keep_only(&mut self, wanted: &[String]) -> bool {
        let is_wanted = |name: &str| wanted.iter().any(|text| name.contains(text.as_str()));
        self.asked = self.drawn().filter(|name| wanted.iter().any(|text| text == name)).map(str::to_owned).collect();
        self.partial = true;
        let mut kept: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, expectation) in self.expectations.iter().enumerate() {
            if is_wanted(&expectation.name) {
                kept.insert(index, kept.len());
            }
        }
        // A wrong model is one of all that reject it.
        self.wrong.retain(|wrong| wrong.rejects.iter().all(|of| kept.contains_key(of)));
        for of in self.wrong.iter_mut().flat_map(|wrong| &mut wrong.rejects) {
            *of = kept.get(of).copied().unwrap_or_default();
        }
        self.expectations.retain(|expectation| is_wanted(&expectation.name));
        self.not_asked.retain(|of| is_wanted(&of.name));
        let mut named = BTreeSet::new();
        self.expectations.iter().for_each(|of| self.figures_of(&of.figure, &mut named));
        self.bars_asked().for_each(|bar| self.figures_of(&bar.figure, &mut named));
        self.figures.retain(|figure| named.contains(&figure.name));
        !(self.expectations.is_empty() && self.not_asked.is_empty() && self.asked.is_empty())
    }

    /// Names of what it draws.
    pub fn drawn(&self) -> impl Iterator<Item = &str> {
        self.drawings.iter().map(|of| of.name.as_str()).chain(self.charts.iter().map(|of| of.name.as_str()))
    }

    /// Whether a drawing must be drawn: each of a whole study, those that were asked for of a part.
    pub fn must_draw(&self, name: &str) -> bool {
        !self.partial || self.asked.iter().any(|asked| asked == name)
    }

    fn bars_asked(&self) -> impl Iterator<Item = &Bar> {
        self.charts.iter().filter(|chart| self.must_draw(&chart.name)).flat_map(|chart| &chart.bars)
    }

    /// Whether it was one.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    fn figures_of(&self, expression: &Expression, found: &mut BTreeSet<String>) {
        expression.each_name(&mut |name, _| {
            let NamedPart::Figure(name) = name else { return };
            if found.insert(name.to_owned())
                && let Some(figure) = self.figures.iter().find(|figure| figure.name == name)
            {
                self.figures_of(&figure.of, found);
            }
        });
    }

    /// Whether a simulation of a cell is one that runs: all of a whole study, those that figures name of a part.
    pub(crate) fn needs(&self, cell: &str, bindings: &BTreeMap<String, String>) -> bool {
        !self.partial || self.draws(cell, bindings) || self.asked_for().any(|of| self.names(of, cell, bindings))
    }

    /// Whether a simulation of a part serves only figures that name one of `absent`, which have no value here.
    pub(crate) fn is_in_vain(
        &self,
        cell: &str,
        bindings: &BTreeMap<String, String>,
        absent: &[CellSimulation],
    ) -> bool {
        let lacks = |of: &Expression| absent.iter().any(|(cell, bindings)| self.names(of, cell, bindings));
        !absent.is_empty()
            && !self.draws(cell, bindings)
            && self.asked_for().filter(|of| self.names(of, cell, bindings)).all(lacks)
    }

    /// What is computed: expectations, and bars.
    fn asked_for(&self) -> impl Iterator<Item = &Expression> {
        self.expectations.iter().map(|of| &of.figure).chain(self.bars_asked().map(|bar| &bar.figure))
    }

    /// Whether a drawing over time shows a simulation.
    fn draws(&self, cell: &str, bindings: &BTreeMap<String, String>) -> bool {
        let mut drawn = self.drawings.iter().filter(|drawing| self.must_draw(&drawing.name));
        drawn.any(|drawing| drawing.of.fits(cell, bindings))
    }

    /// Whether an expression, or a figure that it names, may mean a simulation.
    fn names(&self, expression: &Expression, cell: &str, bindings: &BTreeMap<String, String>) -> bool {
        let mut found = false;
        self.each_measure(expression, &mut |selection| found |= selection.fits(cell, bindings));
        found
    }

    /// Shows every measure to `visit` that an expression or a figure that it names is of; each figure once, however often it is named.
    pub(crate) fn each_measure(&self, expression: &Expression, visit: &mut dyn FnMut(&Selection)) {
        let mut named = BTreeSet::new();
        self.figures_of(expression, &mut named);
        let figures = self.figures.iter().filter(|figure| named.contains(&figure.name)).map(|figure| &figure.of);
        for one in figures.chain([expression]) {
            one.each_name(&mut |name, _| {
                if let NamedPart::Measure(selection) = name {
                    visit(selection);
                }
            });
        }
    }
}

impl Selection {
    /// Whether it may mean the simulation of a cell for which this was put.
    pub(crate) fn fits(&self, cell: &str, bindings: &BTreeMap<String, String>) -> bool {
        self.cell == cell
            && self.choices.iter().all(|(key, value)| match key.as_str() {
                "task" | "application" | "each" => true,
                "" => bindings.get(SCHEDULER) == Some(value),
                key => bindings.get(key) == Some(value),
            })
    }
}
