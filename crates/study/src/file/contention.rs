//! What a study says of the tasks, the machine and the tolerances of `program = "cdf-dio"`; the rest is the paper's.
//!
//! | key of `[contention]` | means |
//! |---|---|
//! | `tasks` | 1 to 1000 (80) |
//! | `accesses` | of each task, 1 to 100,000 (3000), and of all at most 10 million; not beside `trace` |
//! | `skew` | exponent of Zipf's law by which tasks choose among pages, 0 to 4 (1); not beside `trace` |
//! | `cpus`, `cpus_per_group` | virtual CPUs, 1 to 256 (12), and how many of them share an L2 (4); both or neither |
//! | `tolerances` | of CDF, 1 to 20 different ones, each 0 to 1 (0.1 to 0.9) |
//!
//! An axis of such a study puts numbers for these keys but `tolerances`. Figures are then of a cell called `contention`:
//! `l2_hit_rate_dio_queue[contention, skew=0.5]`.

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use super::{At, Axis, Cell, Problem, Study, known};
use crate::figure::Selection;

/// The cell that figures of a program name where axes vary what it is asked.
const CELL: &str = "contention";
/// Most combinations of values of axes.
const MOST_VARIED: usize = 100;

/// What a study says; else as in the paper.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Contention {
    /// Tasks.
    pub tasks: Option<usize>,
    /// Accesses of each.
    pub accesses: Option<usize>,
    /// Exponent of Zipf's law.
    pub skew: Option<f64>,
    /// Virtual CPUs, and how many of them share an L2.
    pub cpus: Option<(usize, usize)>,
    /// Tolerances of CDF.
    pub tolerances: Option<Vec<f64>>,
    /// The values of axes that this is of: key and number.
    pub chosen: Vec<(String, String)>,
}

/// Most accesses of all tasks.
const MOST_ACCESSES: usize = 10_000_000;
const MOST_TOLERANCES: usize = 20;
/// Tasks and accesses of each of a study that does not say.
const OF_PAPER: (usize, usize) = (80, 3000);

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentionForm {
    tasks: Option<Spanned<usize>>,
    accesses: Option<Spanned<usize>>,
    skew: Option<Spanned<f64>>,
    cpus: Option<Spanned<usize>>,
    cpus_per_group: Option<Spanned<usize>>,
    tolerances: Option<Spanned<Vec<f64>>>,
}

/// A program's experiments, one for each combination of values of the axes; `at` is where each axis' name is.
pub(super) fn varied(
    form: Option<&Spanned<ContentionForm>>,
    recorded: bool,
    axes: &[Axis],
    at: &[usize],
) -> Result<Vec<Contention>, At> {
    let mut forms = vec![(Vec::new(), form.map_or_else(ContentionForm::default, |form| form.get_ref().clone()))];
    for (axis, at) in axes.iter().zip(at) {
        let count = forms.len() * axis.values.len();
        if count > MOST_VARIED {
            let words = format!("{count} combinations of values of axes, more than {MOST_VARIED}");
            return Err((*at, Problem::Value(words)));
        }
        let mut all = Vec::with_capacity(count);
        for (chosen, form) in &forms {
            for value in &axis.values {
                let mut form = form.clone();
                value.iter().try_for_each(|(key, number)| form.put(key, number, *at))?;
                all.push(([&chosen[..], &value[..]].concat(), form));
            }
        }
        forms = all;
    }
    forms.into_iter().map(|(chosen, form)| Ok(Contention { chosen, ..form.checked(recorded)? })).collect()
}

/// The cell that figures are of where axes vary what the program is asked: all of them.
pub(super) fn cell(axes: usize) -> Cell {
    let nothing = || Spanned::new(0..0, String::new());
    Cell {
        name: CELL.to_owned(),
        machine: nothing(),
        background: None,
        workload: nothing(),
        assumed: None,
        schedulers: Vec::new(),
        place: None,
        memory: None,
        trials: 1,
        seed: 1,
        max_time_ns: None,
        warm_up_ns: None,
        observe: Vec::new(),
        axes: (0..axes).collect(),
    }
}

impl Study {
    /// Which of its experiments a figure of the program is of: the only one with these values of axes.
    pub(crate) fn contention_of(&self, selection: &Selection) -> Option<usize> {
        let has = |of: &Contention| selection.choices.iter().all(|choice| of.chosen.contains(choice));
        let mut fitting = self.contentions.iter().enumerate().filter(|(_, of)| has(of));
        let (index, _) = fitting.next()?;
        fitting.next().is_none().then_some(index)
    }

    /// Checks the cell and the axes that a figure of the program names.
    pub(super) fn check_contention(&self, selection: &Selection) -> Result<(), Problem> {
        known("cell", &selection.cell, [CELL].into_iter())?;
        let keys = self.axes.iter().flat_map(|axis| &axis.values[0]).map(|(key, _)| key.as_str());
        selection.choices.iter().try_for_each(|(key, _)| known("axis of this cell", key, keys.clone()).map(|_| ()))
    }
}

impl ContentionForm {
    /// Puts what an axis says at `at` for a key.
    fn put(&mut self, key: &str, number: &str, at: usize) -> Result<(), At> {
        fn read<T: FromStr>(key: &str, number: &str, at: usize) -> Result<Option<Spanned<T>>, At> {
            let words = || format!("`{key}` of [contention] is a number, not `{number}`");
            number.parse().map(|number| Some(Spanned::new(at..at, number))).map_err(|_| (at, Problem::Value(words())))
        }
        match key {
            "tasks" => self.tasks = read(key, number, at)?,
            "accesses" => self.accesses = read(key, number, at)?,
            "skew" => self.skew = read(key, number, at)?,
            "cpus" => self.cpus = read(key, number, at)?,
            "cpus_per_group" => self.cpus_per_group = read(key, number, at)?,
            _ => {
                let keys = ["tasks", "accesses", "skew", "cpus", "cpus_per_group"];
                return known("key of [contention] that an axis can vary", key, keys.into_iter())
                    .map_err(|problem| (at, problem))
                    .map(|_| ());
            }
        }
        Ok(())
    }

    /// What it says. `recorded`: the tasks are those of a trace.
    pub(super) fn checked(&self, recorded: bool) -> Result<Contention, At> {
        let recorded_at = self.accesses.as_ref().map(Spanned::span).or(self.skew.as_ref().map(Spanned::span));
        if let Some(at) = recorded_at.filter(|_| recorded) {
            let words = "tasks of a `trace` touch what was recorded: leave out `accesses` and `skew`";
            return Err((at.start, Problem::Value(words.into())));
        }
        let tasks = within("tasks", self.tasks.as_ref(), 1, 1000)?;
        let accesses = within("accesses", self.accesses.as_ref(), 1, 100_000)?;
        let all = tasks.unwrap_or(OF_PAPER.0) * accesses.unwrap_or(OF_PAPER.1);
        if let (Some(at), true) = (&self.accesses, all > MOST_ACCESSES) {
            let words = format!(
                "all tasks make {all} `accesses` together, more than {MOST_ACCESSES}; say fewer of one of both"
            );
            return Err((at.span().start, Problem::Value(words)));
        }
        let cpus = within("cpus", self.cpus.as_ref(), 1, 256)?;
        let group = within("cpus_per_group", self.cpus_per_group.as_ref(), 1, cpus.unwrap_or(256))?;
        let either = self.cpus.as_ref().or(self.cpus_per_group.as_ref()).map(|of| of.span().start);
        let cpus = match (cpus.zip(group), either) {
            (None, Some(at)) => {
                let words = "`cpus` and `cpus_per_group` go together: how many there are, and how many share an L2";
                return Err((at, Problem::Value(words.into())));
            }
            (both, _) => both,
        };
        let tolerances = self.tolerances.as_ref().map(tolerances).transpose()?;
        let skew = within("skew", self.skew.as_ref(), 0.0, 4.0)?;
        Ok(Contention { tasks, accesses, skew, cpus, tolerances, chosen: Vec::new() })
    }
}

/// A number within both ends.
fn within<T: Copy + PartialOrd + Display>(
    key: &str,
    value: Option<&Spanned<T>>,
    least: T,
    most: T,
) -> Result<Option<T>, At> {
    let Some(spanned) = value else { return Ok(None) };
    let number = *spanned.get_ref();
    if least <= number && number <= most {
        return Ok(Some(number));
    }
    let words = format!("`{key}` is {least} to {most}, not {number}");
    Err((spanned.span().start, Problem::Value(words)))
}

fn tolerances(form: &Spanned<Vec<f64>>) -> Result<Vec<f64>, At> {
    let all = form.get_ref();
    let twice = all.iter().enumerate().any(|(index, one)| all[..index].contains(one));
    if (1..=MOST_TOLERANCES).contains(&all.len()) && all.iter().all(|of| (0.0..=1.0).contains(of)) && !twice {
        return Ok(all.clone());
    }
    let words = format!(
        "`tolerances` are 1 to {MOST_TOLERANCES} different fractions of a percentile, each 0 to 1, not {all:?}"
    );
    Err((form.span().start, Problem::Value(words)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Study;
    use super::*;

    fn parsed(head: &str) -> Result<Study, super::super::FormError> {
        let text = format!(
            "schema = \"warmcore-study-form-1\"\ntitle = \"t\"\nquestion = \"q\"\nsource = \"s\"\n{head}\n[[expect]]\nname = \"e\"\n\
             figure = \"l2_hit_rate_rr_queue\"\nband = [0, 1]\nreason = \"r\"\nneutral = \"none\"\n"
        );
        Study::parse(Path::new("it.toml"), &text)
    }

    #[test]
    fn what_is_said_is_kept_and_the_rest_is_the_papers() {
        let keys = "tasks = 20\nskew = 0.75\ncpus = 16\ncpus_per_group = 8\ntolerances = [0.25, 0.5]\n";
        let study = parsed(&format!("program = \"cdf-dio\"\n[contention]\n{keys}")).unwrap();
        let expected = Contention {
            tasks: Some(20),
            accesses: None,
            skew: Some(0.75),
            cpus: Some((16, 8)),
            tolerances: Some(vec![0.25, 0.5]),
            chosen: Vec::new(),
        };
        assert_eq!(study.contentions, [expected]);
        assert_eq!(parsed("program = \"cdf-dio\"").unwrap().contentions, [Contention::default()]);
    }

    /// Two skews on machines of 8 and 16 CPUs are four experiments, of which a figure names one.
    #[test]
    fn axes_vary_what_is_said() {
        let text = "schema = \"warmcore-study-form-1\"\ntitle = \"t\"\nquestion = \"q\"\nsource = \"s\"\nprogram = \"cdf-dio\"\n\
             [contention]\ntasks = 20\n[[vary]]\nname = \"skew\"\nvalues = [0.5, 2]\n\
             [[vary]]\nname = \"size\"\nvalues = [{ cpus = 8, cpus_per_group = 4 }, { cpus = 16, cpus_per_group = 4 }]\n\
             [[expect]]\nname = \"e\"\nfigure = \"l2_hit_rate_rr_queue[contention, skew=2, cpus=8]\"\nband = [0, 1]\nreason = \"r\"\n\
             neutral = \"none\"\n[[expect]]\nname = \"e {skew} {cpus}\"\neach = [\"skew\", \"size\"]\nband = [0, 1]\nreason = \"r\"\n\
             figure = \"l2_hit_rate_dio_queue[contention]\"\nneutral = \"none\"\n";
        let study = Study::parse(Path::new("it.toml"), text).unwrap();
        let said: Vec<_> = study.contentions.iter().map(|of| (of.tasks, of.skew, of.cpus)).collect();
        let of = |skew, cpus| (Some(20), Some(skew), Some((cpus, 4)));
        assert_eq!(said, [of(0.5, 8), of(0.5, 16), of(2.0, 8), of(2.0, 16)]);
        assert!(study.cells.is_empty());
        let named: Vec<_> = study
            .expectations
            .iter()
            .map(|of| match &of.figure.node {
                crate::figure::Node::Measure(selection) => study.contention_of(selection),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(named, [Some(2), Some(0), Some(1), Some(2), Some(3)]);
        for (before, after, words) in [
            ("name = \"skew\"\nvalues = [0.5, 2]", "name = \"skew\"\nvalues = [0.5, 9]", "`skew` is 0 to 4, not 9"),
            ("name = \"skew\"\nvalues = [0.5, 2]", "name = \"skew\"\nvalues = [\"x\"]", "is a number, not `x`"),
            ("name = \"skew\"", "name = \"skwe\"", "did you mean `skew`?"),
            ("[contention, skew=2, cpus=8]", "[cell, skew=2, cpus=8]", "there is no cell `cell`"),
            ("[contention, skew=2, cpus=8]", "[contention, skwe=2]", "did you mean `skew`?"),
        ] {
            let error = Study::parse(Path::new("it.toml"), &text.replace(before, after)).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains(words), "wanted {words}\nfound {error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        let program = "program = \"cdf-dio\"\n";
        for (head, place, words) in [
            ("[contention]\ntasks = 2".to_owned(), "5:1", "[contention] is about the tasks of a `program`"),
            (format!("{program}[contention]\ntasks = 0"), "7:9", "`tasks` is 1 to 1000, not 0"),
            (format!("{program}[contention]\ntasks = -1"), "7:9", "-1"),
            (format!("{program}[contention]\ntasks = 1000\naccesses = 10001"), "8:12", "10001000 `accesses` together"),
            (format!("{program}[contention]\nskew = 4.5"), "7:8", "`skew` is 0 to 4, not 4.5"),
            (format!("{program}[contention]\nskew = nan"), "7:8", "not NaN"),
            (format!("{program}[contention]\nskwe = 1"), "7:1", "did you mean `skew`?"),
            (format!("{program}trace = \"t\"\n[contention]\nskew = 1"), "8:8", "leave out `accesses` and `skew`"),
            (format!("{program}[contention]\ncpus = 8"), "7:8", "go together"),
            (format!("{program}[contention]\ncpus = 8\ncpus_per_group = 9"), "8:18", "is 1 to 8, not 9"),
            (format!("{program}[contention]\ntolerances = [0.5, 1.5]"), "7:14", "each 0 to 1, not [0.5, 1.5]"),
            (format!("{program}[contention]\ntolerances = [0.5, 0.5]"), "7:14", "different fractions"),
        ] {
            let error = parsed(&head).map(|_| ()).expect_err(&format!("accepted:\n{head}"));
            assert!(error.to_string().contains(words), "wanted {words}\nfound {error}");
            assert_eq!(format!("{}:{}", error.line, error.column), place, "{error}\n{head}");
        }
    }
}
