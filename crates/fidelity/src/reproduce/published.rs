//! Published results as data: the reader of `published/*.toml`.
//!
//! One file per source. The fields are explained in `published/README.md`. A field this reader does not know is an
//! error, as is a row whose kind lacks what it needs: a typing mistake must not turn a figure into nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a source measured, and on what.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFile {
    /// The machine and the schedulers.
    pub machine: PublishedMachine,
    /// What was measured, in the file's order.
    #[serde(rename = "row", default)]
    pub rows: Vec<PublishedRow>,
}

/// Where a source measured, and what it compared.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedMachine {
    /// The file's name for the machine.
    pub preset: String,
    /// Scheduler that ratios divide by.
    pub baseline: Option<String>,
    /// Scheduler that ratios are of.
    pub candidate: Option<String>,
    /// Schedulers of absolute figures.
    #[serde(default)]
    pub schedulers: Vec<String>,
}

/// One published figure, or a statement about figures.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// What ran; several names when the statement is about each of them.
    #[serde(default)]
    pub workload: Names,
    /// How it was called.
    #[serde(default, skip_serializing_if = "Arguments::is_empty")]
    pub args: Arguments,
    /// What was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// In which unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What the figure is.
    pub kind: Kind,
    /// The figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Its smallest and largest value, where the source gives these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// The statement in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The candidate, where it differs by row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// The figure under CFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfs: Option<f64>,
    /// Its largest value under CFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfs_max: Option<f64>,
    /// The figure under ULE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ule: Option<f64>,
}

/// What a published figure is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Candidate over baseline.
    Ratio,
    /// A value in its unit.
    Absolute,
    /// A statement about which is larger.
    Ordering,
    /// A statement about how something behaves.
    Shape,
}

/// One name or several.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Names {
    /// None: the row is about all of the source's workloads.
    #[default]
    None,
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Names {
    /// The names.
    #[must_use]
    pub fn list(&self) -> Vec<&str> {
        match self {
            Self::None => Vec::new(),
            Self::One(name) => vec![name],
            Self::Several(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.list().join(", "))
    }
}

/// How a published workload was called.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// Whether its tasks are threads, or how many threads it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Threads>,
    /// Through pipes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pipe: bool,
    /// Through sockets.
    #[serde(default, skip_serializing_if = "is_false")]
    pub socket: bool,
    /// hackbench's `-f`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fds: Option<u32>,
    /// hackbench's `-g`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// schbench's `-m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messengers: Option<u32>,
    /// For which sizes the figure holds, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// `threads` of a row: a number, or that tasks are threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Threads {
    /// Whether tasks are threads.
    Are(bool),
    /// How many there are.
    Count(u32),
}

impl Arguments {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Number of threads, if it is stated.
    #[must_use]
    pub fn thread_count(&self) -> Option<u32> {
        match self.threads {
            Some(Threads::Count(count)) => Some(count),
            _ => None,
        }
    }
}

/// A file of published results that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishedError {
    /// It is not TOML of the expected form.
    #[error("{0}")]
    Syntax(String),
    /// A row says too little, or something impossible.
    #[error("row {number} ({workload}): {problem}")]
    Row {
        /// Number of the row, from 1.
        number: usize,
        /// Its workload.
        workload: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// There are no rows.
    #[error("there is no [[row]]")]
    Empty,
}

impl PublishedFile {
    /// Reads a file.
    ///
    /// # Errors
    /// Not TOML, unknown fields, rows that lack what their kind needs, figures that are not finite numbers above zero.
    pub fn parse(text: &str) -> Result<Self, PublishedError> {
        let file: Self = toml::from_str(text).map_err(|error| PublishedError::Syntax(error.to_string()))?;
        if file.rows.is_empty() {
            return Err(PublishedError::Empty);
        }
        for (index, row) in file.rows.iter().enumerate() {
            row.check().map_err(|problem| PublishedError::Row {
                number: index + 1,
                workload: row.workload.to_string(),
                problem,
            })?;
        }
        Ok(file)
    }

    /// A name for each row, made of its workload and arguments; equal ones are numbered.
    #[must_use]
    pub fn row_ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for row in &self.rows {
            let id = row.id();
            let numbered = (1..)
                .map(|number| if number == 1 { id.clone() } else { format!("{id}#{number}") })
                .find(|candidate| !ids.contains(candidate));
            ids.push(numbered.unwrap_or_default());
        }
        ids
    }
}

impl PublishedRow {
    fn check(&self) -> Result<(), &'static str> {
        let figures = [self.value, self.cfs, self.cfs_max, self.ule];
        let stated = figures.into_iter().flatten().chain(self.range.into_iter().flatten());
        if stated.clone().any(|figure| !figure.is_finite()) {
            return Err("a figure is not a finite number");
        }
        if let Some([low, high]) = self.range
            && low >= high
        {
            return Err("the range must go from a smaller to a larger number");
        }
        match self.kind {
            Kind::Ratio if stated.clone().any(|figure| figure <= 0.0) => Err("a ratio must be above zero"),
            Kind::Ratio if self.value.is_some() == self.range.is_some() => {
                Err("a ratio needs either a `value` or a `range`")
            }
            Kind::Absolute if stated.count() == 0 => Err("an absolute figure needs a value"),
            Kind::Ratio | Kind::Absolute if self.metric.is_none() => Err("a figure needs its `metric`"),
            Kind::Ordering | Kind::Shape if self.note.is_none() => Err("a statement needs its `note`"),
            _ => Ok(()),
        }
    }

    fn id(&self) -> String {
        let args = &self.args;
        let mut parts = vec![self.workload.list().join("+")];
        if parts[0].is_empty() {
            parts = vec![self.candidate.clone().unwrap_or_else(|| "all".into())];
        }
        let flag = |set: bool, name: &str| set.then(|| name.to_owned());
        let number = |value: Option<u32>, letter: &str| value.map(|value| format!("{letter}{value}"));
        parts.extend(flag(args.pipe, "pipe"));
        parts.extend(flag(args.socket, "socket"));
        parts.extend(number(args.fds, "f"));
        parts.extend(number(args.groups, "g"));
        parts.extend(number(args.messengers, "m"));
        parts.extend(number(args.thread_count(), "t"));
        if self.kind == Kind::Absolute {
            parts.extend(self.metric.clone());
        }
        let text = parts.join("-").to_lowercase();
        let words: Vec<&str> = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)))
            .filter(|word| !word.is_empty())
            .collect();
        words.join("-")
    }

    /// The figure or the statement, as one text.
    #[must_use]
    pub fn stated(&self) -> String {
        let unit = self.unit.as_ref().map_or(String::new(), |unit| format!(" {unit}"));
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.value.map(|value| format!("{value}{unit}")));
        parts.extend(self.range.map(|[low, high]| format!("{low} to {high}{unit}")));
        parts.extend(self.cfs.map(|value| format!("CFS {value}{unit}")));
        parts.extend(self.cfs_max.map(|value| format!("CFS at most {value}{unit}")));
        parts.extend(self.ule.map(|value| format!("ULE {value}{unit}")));
        parts.extend(self.note.clone());
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "[machine]\npreset = \"p\"\nbaseline = \"a\"\ncandidate = \"b\"\n";

    fn problem(row: &str) -> String {
        PublishedFile::parse(&format!("{HEAD}[[row]]\n{row}")).unwrap_err().to_string()
    }

    #[test]
    fn every_file_in_the_tree_is_read_and_its_rows_have_different_names() {
        for (name, text) in crate::reproduce::FILES {
            let file = PublishedFile::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut ids = file.row_ids();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), file.rows.len(), "{name}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused_at_every_level() {
        for text in [
            "[machine]\npreset = \"p\"\ncores = 3\n[[row]]\nkind = \"shape\"\nnote = \"n\"\n".to_owned(),
            format!("{HEAD}[[rows]]\n"),
            format!("{HEAD}[[row]]\nkind = \"shape\"\nnote = \"n\"\nvalu = 3\n"),
            format!("{HEAD}[[row]]\nkind = \"shape\"\nnote = \"n\"\nargs = {{ fd = 3 }}\n"),
        ] {
            let error = PublishedFile::parse(&text).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn a_row_that_lacks_what_its_kind_needs_is_refused_by_number() {
        for (row, wanted) in [
            ("workload = \"w\"\nmetric = \"m\"\nkind = \"ratio\"", "row 1 (w): a ratio needs either"),
            ("metric = \"m\"\nkind = \"ratio\"\nvalue = 1.0\nrange = [1.0, 2.0]", "a ratio needs either"),
            ("metric = \"m\"\nkind = \"ratio\"\nvalue = -1.0", "above zero"),
            ("metric = \"m\"\nkind = \"ratio\"\nvalue = nan", "not a finite number"),
            ("metric = \"m\"\nkind = \"ratio\"\nrange = [2.0, 1.0]", "smaller to a larger"),
            ("metric = \"m\"\nkind = \"absolute\"", "needs a value"),
            ("kind = \"absolute\"\nvalue = 3.0", "needs its `metric`"),
            ("kind = \"ordering\"", "needs its `note`"),
        ] {
            assert!(problem(row).contains(wanted), "{row}: {}", problem(row));
        }
        assert!(problem("kind = \"guess\"").contains("unknown variant"));
        assert_eq!(PublishedFile::parse(HEAD).unwrap_err(), PublishedError::Empty);
        assert!(matches!(PublishedFile::parse("[machine"), Err(PublishedError::Syntax(_))));
    }

    #[test]
    fn rows_are_named_by_workload_and_arguments() {
        let text = format!(
            "{HEAD}[[row]]\nworkload = \"hackbench\"\nargs = {{ threads = true, pipe = true, fds = 2, groups = 1 }}\nmetric = \"time\"\n\
             kind = \"ratio\"\nvalue = 1.0\n[[row]]\nworkload = \"MySQL delete\"\nargs = {{ threads = 64 }}\nkind = \"shape\"\nnote = \"n\"\n\
             [[row]]\nworkload = \"MySQL delete\"\nargs = {{ threads = 64 }}\nkind = \"shape\"\nnote = \"n\"\n"
        );
        let ids = PublishedFile::parse(&text).unwrap().row_ids();
        assert_eq!(ids, ["hackbench-pipe-f2-g1", "mysql-delete-t64", "mysql-delete-t64#2"]);
    }
}
