//! The strict score of a source: all of its rows, those that are scored, and what of them is inside and has the right sign.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use warmcore_lab::files;

use crate::document::{ExpectationResult, StudyDocument, StudyResult};
use crate::figure::{Value, ValueError};
use crate::file::{Expectation, MarkKind, Study};
use crate::judge::Judgement;

/// How the rows of a source came out.
///
/// A row counts once: what follows from another one, or is not in the source, is shown and is no row. What has another
/// [mark](MarkKind) is a row that is not scored, what is not asked one that is missing.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// All rows: scored, marked, without a value here, missing.
    pub rows: usize,
    /// Those that are scored.
    pub scored: usize,
    /// Of those, inside their bands.
    pub inside: usize,
    /// Of those, with a direction in the source.
    pub directed: usize,
    /// Of these, with the same one here.
    pub sign_right: usize,
    /// Rows that would be scored and have no value here.
    pub without_value: usize,
    /// Rows that cannot be asked.
    pub missing: usize,
    /// What is shown and not scored, by [mark](MarkKind::key).
    pub marked: BTreeMap<String, usize>,
}

impl Score {
    /// Of what was expected, and a number of rows that cannot be asked.
    pub fn new(expectations: &[ExpectationResult], missing: usize) -> Self {
        let mut score = Self { missing, rows: missing, ..Self::default() };
        for of in expectations.iter().filter(|of| of.counted) {
            if let Some(mark) = &of.mark {
                *score.marked.entry(mark.kind.key().to_owned()).or_insert(0) += 1;
                score.rows += usize::from(mark.kind.is_of_a_row());
                continue;
            }
            score.rows += 1;
            // What was not run, or lacks a program, says nothing; a figure that is no number is wrong.
            if of.value.is_none() && of.judgement == Judgement::NotAnswerableHere {
                score.without_value += 1;
                continue;
            }
            score.scored += 1;
            score.inside += usize::from(of.is_inside());
            score.directed += usize::from(of.sign_right.is_some());
            score.sign_right += usize::from(of.sign_right == Some(true));
        }
        score
    }

    /// Whether it says more than that all rows are scored.
    pub(crate) fn is_of_a_source(&self) -> bool {
        !self.marked.is_empty() || self.missing > 0
    }

    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.scored += other.scored;
        self.inside += other.inside;
        self.directed += other.directed;
        self.sign_right += other.sign_right;
        self.without_value += other.without_value;
        self.missing += other.missing;
        for (kind, count) in &other.marked {
            *self.marked.entry(kind.clone()).or_insert(0) += count;
        }
    }

    /// Headings of the table; a `>` before a name means that numbers are below it.
    pub const HEADINGS: [&'static str; 13] = [
        "source",
        ">all rows",
        ">scored",
        ">inside",
        ">sign right",
        ">by definition",
        ">fitted",
        ">another protocol",
        ">allows no effect",
        ">no value here",
        ">missing",
        ">follows from a row",
        ">not in the source",
    ];

    /// A line of the table.
    fn line(&self, source: &str) -> [String; 13] {
        let marked = |kind: MarkKind| self.marked.get(kind.key()).copied().unwrap_or(0).to_string();
        [
            source.to_owned(),
            self.rows.to_string(),
            self.scored.to_string(),
            format!("{} of {}", self.inside, self.scored),
            format!("{} of {}", self.sign_right, self.directed),
            marked(MarkKind::ByDefinition),
            marked(MarkKind::Fitted),
            marked(MarkKind::Protocol),
            marked(MarkKind::AllowsNoEffect),
            self.without_value.to_string(),
            self.missing.to_string(),
            marked(MarkKind::FollowsFrom),
            marked(MarkKind::NotInSource),
        ]
    }

    /// The table of those studies whose rows are not all scored, with a line of all if there are several.
    pub fn table(document: &StudyDocument) -> Vec<[String; 13]> {
        let scores = |study: &StudyResult| Some((study.name.clone(), study.score.clone()?));
        let sources = document.studies.iter().filter_map(scores).filter(|(_, score)| score.is_of_a_source());
        let sources: Vec<(String, Self)> = sources.collect();
        let mut lines: Vec<[String; 13]> = sources.iter().map(|(name, score)| score.line(name)).collect();
        if sources.len() > 1 {
            let mut all = Self::default();
            sources.iter().for_each(|(_, score)| all.add(score));
            lines.push(all.line("all"));
        }
        lines
    }

    /// The same in Markdown.
    pub fn markdown(document: &StudyDocument) -> String {
        let lines = Self::table(document);
        if lines.is_empty() {
            return String::new();
        }
        let headings = Self::HEADINGS.map(|heading| heading.trim_start_matches('>'));
        let mut text = format!("| {} |\n|---|{}\n", headings.join(" | "), "--:|".repeat(headings.len() - 1));
        lines.iter().for_each(|line| text.push_str(&format!("| {} |\n", line.join(" | "))));
        text
    }
}

/// Values that came out earlier, by study and row.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Values(BTreeMap<(String, String), Earlier>);

/// A value that came out earlier.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Earlier {
    /// The value.
    pub value: f64,
    /// How many trials it is of.
    pub trials: usize,
    /// The least and the most of a trial, if they were kept.
    pub range: Option<[f64; 2]>,
}

/// Version of the table of values.
const SCHEMA: &str = "warmcore-study-values-1";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValuesForm {
    schema: String,
    #[serde(default)]
    row: Vec<ValueForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueForm {
    study: String,
    name: String,
    value: f64,
    /// How many trials it is of.
    trials: usize,
    /// The least of a trial.
    least: Option<f64>,
    /// The most of a trial.
    most: Option<f64>,
    /// Where it was computed.
    #[serde(rename = "from")]
    _from: String,
}

impl Values {
    /// Those of a file: a result, or a table of `[[row]]` with `study`, `name`, `value`, `trials`, `from`, and `least` and `most` of a trial
    /// where they were kept.
    ///
    /// # Errors
    /// When it cannot be read or is neither.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = files::text_of_file(path).map_err(|error| error.to_string())?;
        if path.extension().is_some_and(|extension| extension == "json") {
            return Ok(Self::of(&StudyDocument::from_json(&text)?));
        }
        let form: ValuesForm = toml::from_str(&text).map_err(|error| error.to_string())?;
        if form.schema != SCHEMA {
            return Err(format!("its schema is `{}`; this version reads {SCHEMA}", form.schema));
        }
        let mut values = BTreeMap::new();
        for row in form.row {
            let name = row.name.clone();
            let range = row.least.zip(row.most).map(|(least, most)| [least, most]);
            let earlier = Earlier { value: row.value, trials: row.trials, range };
            if values.insert((row.study, row.name), earlier).is_some() {
                return Err(format!("it has two values of `{name}`"));
            }
        }
        Ok(Self(values))
    }

    fn of(document: &StudyDocument) -> Self {
        let of_study = |study: &StudyResult| {
            let earlier = |of: &ExpectationResult| {
                let trials = of.trial_count.unwrap_or(of.trials.len());
                Some((of.name.clone(), Earlier { value: of.value?, trials, range: of.range }))
            };
            let rows = study.expectations.iter().filter_map(earlier);
            rows.map(|(row, value)| ((study.name.clone(), row), value)).collect::<Vec<_>>()
        };
        Self(document.studies.iter().flat_map(of_study).collect())
    }

    /// The value of a row.
    pub fn get(&self, study: &str, row: &str) -> Option<Earlier> {
        self.0.get(&(study.to_owned(), row.to_owned())).copied()
    }

    /// Studies judged by these values; `lacking` says why a row that has none was not run.
    pub fn judged(&self, studies: &[Study], lacking: &str) -> StudyDocument {
        let value = |study: &Study, of: &Expectation| {
            let found = self.get(&study.name, &of.name).map(|earlier| Value::One(earlier.value));
            found.ok_or_else(|| ValueError::NotHere(lacking.to_owned()))
        };
        let mut document = StudyDocument::of_values(studies, &value);
        for study in &mut document.studies {
            for of in &mut study.expectations {
                if let Some(earlier) = self.get(&study.name, &of.name) {
                    (of.trials, of.trial_count, of.range) = (Vec::new(), Some(earlier.trials), earlier.range);
                }
            }
        }
        document
    }

    /// Rows of these studies that the studies do not have.
    pub fn unknown(&self, document: &StudyDocument) -> Vec<String> {
        let studies: BTreeSet<&str> = document.studies.iter().map(|study| study.name.as_str()).collect();
        let has = |study: &str, row: &str| {
            document.studies.iter().any(|of| of.name == study && of.expectations.iter().any(|of| of.name == row))
        };
        let unknown = self.0.keys().filter(|(study, row)| studies.contains(study.as_str()) && !has(study, row));
        unknown.map(|(study, row)| format!("{study}: {row}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Rows of every kind of one figure: a number each, and what marks them.
    fn study() -> Study {
        let head =
            "schema = \"warmcore-study-form-1\"\ntitle = \"t\"\nquestion = \"q\"\nsource = \"s\"\nprogram = \"p\"\n";
        let row = |name: &str, rest: &str| {
            format!("[[expect]]\nname = \"{name}\"\nfigure = \"{name}\"\nreason = \"r\"\n{rest}\n")
        };
        let gain = "published = 1.3\nband = [1.2, 1.4]";
        let rows = [
            row("inside", gain),
            row("small", gain),
            row("loss", gain),
            row("alike", "published = 1\nband = [0.9, 1.1]"),
            row("zero", &format!("{gain}\nby_definition = \"w\"")),
            row("fitted", &format!("{gain}\nfitted = \"w\"")),
            row("otherwise", &format!("{gain}\nprotocol = \"w\"")),
            row("same", &format!("{gain}\nfollows_from = \"inside\"")),
            row("own", &format!("{gain}\nnot_in_source = \"w\"")),
            row("unknown", gain),
            row("aside", &format!("{gain}\ncounted = false")),
        ];
        let missing = "[[not_asked]]\nname = \"m\"\nmissing = \"x\"\nsettle = \"y\"\n";
        Study::parse(Path::new("it.toml"), &format!("{head}{}{missing}", rows.concat())).unwrap()
    }

    fn document(values: &[(&str, f64)]) -> StudyDocument {
        let value = |_: &Study, of: &crate::file::Expectation| {
            let found = values.iter().find(|(name, _)| *name == of.name);
            found.map(|(_, value)| Value::One(*value)).ok_or_else(|| ValueError::NotHere("not run".into()))
        };
        StudyDocument::of_values(&[study()], &value)
    }

    #[test]
    fn every_row_counts_once_and_only_rows_without_a_mark_are_scored() {
        let values = ["inside", "zero", "fitted", "otherwise", "same", "own", "aside"].map(|name| (name, 1.3));
        let document = document(&[&values[..], &[("small", 1.1), ("loss", 0.9), ("alike", 1.0)]].concat());
        let score = document.studies[0].score.clone().unwrap();
        assert_eq!((score.rows, score.scored, score.inside), (9, 4, 2), "{score:?}");
        assert_eq!((score.sign_right, score.directed), (2, 3), "what is alike has no sign");
        assert_eq!((score.without_value, score.missing), (1, 1));
        assert_eq!(score.marked.values().sum::<usize>(), 5);
        let row = document.rows().into_iter().find(|row| row[1] == "otherwise").unwrap();
        assert_eq!(row[6], "another protocol, not scored (inside)");
        let at_neutral = self::document(&[("same", 1.0)]).rows().into_iter().find(|row| row[1] == "same").unwrap();
        assert_eq!(at_neutral[6], "follows from a row, not scored (outside)");
        assert!(
            Score::markdown(&document).contains("| it | 9 | 4 | 2 of 4 | 2 of 3 | 1 | 1 | 1 | 0 | 1 | 1 | 1 | 1 |")
        );
        assert_eq!(StudyDocument::from_json(&serde_json::to_string(&document).unwrap()).unwrap(), document);
    }

    #[test]
    fn a_figure_that_is_no_number_counts_as_wrong() {
        let value = |_: &Study, of: &Expectation| match of.name.as_str() {
            "inside" => Err(ValueError::DividesByZero("x".into())),
            "small" => Ok(Value::One(1.3)),
            _ => Err(ValueError::NotHere("not run".into())),
        };
        let score = StudyDocument::of_values(&[study()], &value).studies[0].score.clone().unwrap();
        assert_eq!((score.scored, score.inside, score.without_value), (2, 1, 3), "{score:?}");
        assert_eq!((score.sign_right, score.directed), (1, 2));
    }

    #[test]
    fn values_are_a_table_with_where_they_are_from() {
        let read = |text: &str| {
            let path = std::env::temp_dir().join(format!("warmcore-values-{}.toml", std::process::id()));
            std::fs::write(&path, text).unwrap();
            let values = Values::read(&path);
            std::fs::remove_file(path).unwrap();
            values
        };
        let row = "[[row]]\nstudy = \"it\"\nname = \"inside\"\nvalue = 1.25\ntrials = 8\nfrom = \"results/x\"\n";
        let values = read(&format!("schema = \"warmcore-study-values-1\"\n{row}")).unwrap();
        let earlier = Earlier { value: 1.25, trials: 8, range: None };
        assert_eq!((values.get("it", "inside"), values.get("it", "small")), (Some(earlier), None));
        assert!(values.unknown(&document(&[])).is_empty());
        let words = |values: &Values| values.judged(&[study()], "not run").studies[0].expectations[0].trials_in_words();
        assert_eq!(words(&values), "8");
        let ends = row.replace("trials = 8", "trials = 8\nleast = 1.1\nmost = 1.4");
        assert_eq!(words(&read(&format!("schema = \"warmcore-study-values-1\"\n{ends}")).unwrap()), "8: 1.1 to 1.4");
        assert!(read(&format!("schema = \"warmcore-study-values-1\"\n{row}{row}")).unwrap_err().contains("two values"));
        assert!(read("schema = \"warmcore-study-values-9\"\n").unwrap_err().contains("this version reads"));
        assert!(read(&row.replace("from", "form")).is_err());
    }
}
