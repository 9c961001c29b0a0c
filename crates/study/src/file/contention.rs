//! What a study says of the tasks, the machine and the tolerances of `program = "cdf-dio"`; the rest is the paper's.
//!
//! | key of `[contention]` | means |
//! |---|---|
//! | `tasks` | 1 to 1000 (80) |
//! | `accesses` | of each task, 1 to 100,000 (3000), and of all at most 10 million; not beside `trace` |
//! | `skew` | exponent of Zipf's law by which tasks choose among pages, 0 to 4 (1); not beside `trace` |
//! | `cpus`, `cpus_per_group` | virtual CPUs, 1 to 256 (12), and how many of them share an L2 (4); both or neither |
//! | `tolerances` | of CDF, 1 to 20 different ones, each 0 to 1 (0.1 to 0.9) |

use std::fmt::Display;

use serde::Deserialize;
use toml::Spanned;

use super::{At, Problem};

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
}

/// Most accesses of all tasks.
const MOST_ACCESSES: usize = 10_000_000;
/// Most tolerances.
const MOST_TOLERANCES: usize = 20;
/// Tasks and accesses of each of a study that does not say.
const OF_PAPER: (usize, usize) = (80, 3000);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentionForm {
    tasks: Option<Spanned<usize>>,
    accesses: Option<Spanned<usize>>,
    skew: Option<Spanned<f64>>,
    cpus: Option<Spanned<usize>>,
    cpus_per_group: Option<Spanned<usize>>,
    tolerances: Option<Spanned<Vec<f64>>>,
}

impl ContentionForm {
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
        Ok(Contention { tasks, accesses, skew: within("skew", self.skew.as_ref(), 0.0, 4.0)?, cpus, tolerances })
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
        };
        assert_eq!(study.contention, expected);
        assert_eq!(parsed("program = \"cdf-dio\"").unwrap().contention, Contention::default());
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
