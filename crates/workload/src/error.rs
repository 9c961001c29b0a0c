//! Why a workload could not be read or made.

use crate::{CheckError, DurationError, Warning};

/// Why a workload could not be read or made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum WorkloadError {
    /// The text is no JSON, not even in rt-app's liberal form.
    #[error("not valid JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// The JSON is no rt-app workload.
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("the workload cannot be run: {0}")]
    Check(#[from] CheckError),
    #[error("not modelled, and strict reading was asked for: {}", list(warnings))]
    Strict { warnings: Vec<Warning> },
    /// A generator's text is wrong.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    #[error("\"{spec}\" is neither a generator nor a file{suggestion}; generators are {generators}")]
    Unknown { spec: String, suggestion: String, generators: String },
    /// More or fewer instances of tasks were asked for, and they wait for each other.
    #[error(
        "task `{task}` depends on others by {what}, so how many tasks there are is a part of what they do, and more of them are no more load \
         of the same kind"
    )]
    Fixed { task: String, what: &'static str },
    #[error(
        "every task of the workload has a memory profile of its own or no work, so there is nothing to assume \"{profile}\" of"
    )]
    NothingToAssume { profile: String },
    #[error("cannot read workload file {path}: {source}")]
    Read { path: String, source: std::io::Error },
}

fn list(warnings: &[Warning]) -> String {
    let entries: Vec<String> = warnings
        .iter()
        .map(|warning| format!("{} ({}, {}×)", warning.what, warning.consequence, warning.count))
        .collect();
    entries.join("; ")
}

/// A place where the text is no JSON.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

/// A place in the document that says something impossible.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct DocumentError {
    /// Path inside the document, such as `tasks.thread0.phases.p1.run`.
    pub path: String,
    /// What is wrong there, with what to try.
    pub problem: DocumentProblem,
}

/// What is wrong at a place in the document.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum DocumentProblem {
    /// A value of the wrong kind.
    #[error("expected {expected}, found {found}")]
    Kind { expected: String, found: String },
    #[error("{value} is out of range; {allowed}")]
    Range { value: String, allowed: String },
    /// A required key is not there.
    #[error("\"{key}\" is missing; {advice}")]
    Missing { key: &'static str, advice: String },
    #[error("key \"{key}\" is not known here{suggestion}; known are {known}")]
    UnknownKey { key: String, suggestion: String, known: String },
    #[error("there is no {kind} called \"{name}\"{suggestion}")]
    UnknownName { kind: &'static str, name: String, suggestion: String },
    #[error("\"{word}\" is not known{suggestion}; possible are {known}")]
    UnknownWord { word: String, suggestion: String, known: String },
    #[error("the name \"{name}\" is used twice; names must differ")]
    Duplicate { name: String },
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
    /// The workload that results cannot be run.
    #[error("{0}")]
    Check(crate::CheckProblem),
}

/// Why a generator's text makes no workload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{generator}: {problem}; usage: {usage}")]
pub struct GeneratorError {
    /// The generator.
    pub generator: &'static str,
    /// What is wrong.
    pub problem: GeneratorProblem,
    /// How to write it.
    pub usage: &'static str,
}

/// What is wrong with a generator's text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum GeneratorProblem {
    /// A flag the generator does not have.
    #[error("unknown flag \"{flag}\"{suggestion}")]
    UnknownFlag { flag: String, suggestion: String },
    #[error("\"{word}\" is no flag; flags begin with - and are separated by commas")]
    StrayWord { word: String },
    #[error("flag \"{flag}\" needs a value: {expected}")]
    NoValue { flag: String, expected: String },
    #[error("flag \"{flag}\" takes no value, found \"{value}\"")]
    UnexpectedValue { flag: String, value: String },
    /// A value that is not what the flag needs.
    #[error("flag \"{flag}\": \"{value}\" is not {expected}")]
    BadValue { flag: String, value: String, expected: String },
    /// A duration that is none.
    #[error("flag \"{flag}\": {error}")]
    BadDuration { flag: String, error: DurationError },
    #[error("flag \"{flag}\" must be given: {why}")]
    MissingFlag { flag: &'static str, why: &'static str },
    #[error("flag \"{flag}\" is not supported: {why}")]
    Unsupported { flag: &'static str, why: &'static str },
    /// Values that do not go together.
    #[error("{0}")]
    Conflict(String),
}
