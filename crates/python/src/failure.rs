//! What goes wrong, as exceptions: what, why, and what to try.

use std::fmt;
use std::str::FromStr as _;

use pyo3::exceptions::{PyException, PyUserWarning};
use pyo3::prelude::*;
use warmcore_lab::builder::BuildError;
use warmcore_lab::directory::DirectoryError;
use warmcore_lab::load::LoadError;
use warmcore_lab::runner::RunError;
use warmcore_lab::session::SessionError;
use warmcore_lab::verdict::VerdictError;
use warmcore_options::MemoryChoice;
use warmcore_report::run::ReportError;
use warmcore_search::oracle::OracleError;
use warmcore_search::pins::PinError;
use warmcore_search::replayed::TryError;
use warmcore_statistics::StatisticsError;
use warmcore_study::choice::ChoiceError;
use warmcore_study::chunk::{ChunkError, GatherError};
use warmcore_study::file::FormError;
use warmcore_study::plan::PlanError;
use warmcore_study::run::StudyError;
use warmcore_study::tune::form::TuneError;

pyo3::create_exception!(
    warmcore,
    WarmcoreError,
    PyException,
    "What cannot be done, and why. `advice` says what to try, or is None."
);
pyo3::create_exception!(warmcore, WarmcoreWarning, PyUserWarning, "Something to check before a result is trusted.");

/// A failure on its way to Python.
#[derive(Debug)]
pub struct Trouble {
    message: String,
    advice: Option<String>,
}

impl Trouble {
    /// What is wrong.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), advice: None }
    }

    /// What is wrong, and what to try.
    pub fn advised(message: impl fmt::Display, advice: Option<impl Into<String>>) -> Self {
        Self { message: message.to_string(), advice: advice.map(Into::into) }
    }
}

impl From<Trouble> for PyErr {
    fn from(trouble: Trouble) -> Self {
        let Trouble { message, advice } = trouble;
        let (message, advice) = (keywords(&message), advice.as_deref().map(keywords));
        let told = advice.as_ref().map_or_else(|| message.clone(), |advice| format!("{message}\n  help: {advice}"));
        let error = WarmcoreError::new_err(told);
        Python::attach(|py| match error.value(py).setattr("advice", advice) {
            Ok(()) => error,
            Err(other) => other,
        })
    }
}

macro_rules! advised {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Trouble {
            fn from(error: $error) -> Self {
                // Some always have advice, some never, some at times.
                let advice: Option<String> = AdviceForms(error.advice()).into();
                Self::advised(error, advice)
            }
        })*
    };
}

/// Advice in the forms in which errors have it.
struct AdviceForms<T>(T);

impl From<AdviceForms<&'static str>> for Option<String> {
    fn from(advice: AdviceForms<&'static str>) -> Self {
        Some(advice.0.to_owned())
    }
}

impl From<AdviceForms<Option<&'static str>>> for Option<String> {
    fn from(advice: AdviceForms<Option<&'static str>>) -> Self {
        advice.0.map(str::to_owned)
    }
}

impl From<AdviceForms<Option<String>>> for Option<String> {
    fn from(advice: AdviceForms<Option<String>>) -> Self {
        advice.0
    }
}

advised!(LoadError, BuildError, ChoiceError, PlanError, PinError, OracleError, GatherError, ReportError, TuneError);

macro_rules! plain {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Trouble {
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        })*
    };
}

plain!(VerdictError, SessionError, StatisticsError, FormError);

impl From<StudyError> for Trouble {
    fn from(error: StudyError) -> Self {
        match error {
            StudyError::Run { source, .. } => (*source).into(),
            StudyError::Directory(error) => error.into(),
            error => Self::new(error),
        }
    }
}

impl From<TryError> for Trouble {
    fn from(error: TryError) -> Self {
        match error {
            TryError::Load(error) => error.into(),
            TryError::Build(error) => error.into(),
            TryError::Run(error) => error.into(),
        }
    }
}

impl From<DirectoryError> for Trouble {
    fn from(error: DirectoryError) -> Self {
        let advice = of_directory(&error);
        Self::advised(error, Some(advice))
    }
}

/// What to try in Python, which neither replaces a run nor goes on with one.
fn of_directory(error: &DirectoryError) -> &'static str {
    match error {
        DirectoryError::Exists(_) | DirectoryError::NotARun(_) => {
            "choose another `out`, or remove that directory first"
        }
        other => other.advice(),
    }
}

impl From<RunError> for Trouble {
    fn from(error: RunError) -> Self {
        let advice = match &error {
            RunError::Trial { source, .. } => Some(source.advice()),
            RunError::Directory(source) => Some(of_directory(source)),
            RunError::File(source) => Some(source.advice()),
            RunError::Place(source) => Some(source.advice),
            RunError::Interrupted { .. } => None,
        };
        Self::advised(error, advice)
    }
}

impl From<ChunkError> for Trouble {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Run(error) => error.into(),
            error => Self::advised(error, Some("install the same wheel on every worker")),
        }
    }
}

/// The options of the command line that are keywords here, with underscores.
const KEYWORDS: [&str; 19] = [
    "aggregate",
    "assume-profile",
    "background",
    "baseline",
    "headroom",
    "jobs",
    "margin",
    "max-time",
    "memory",
    "metric",
    "only",
    "out",
    "profiles",
    "schedulers",
    "seed",
    "smt-slowdown",
    "strict",
    "trials",
    "warm-up",
];

/// A text of the library with keywords where it names options: `--smt-slowdown` is `smt_slowdown`, `--memory none` is `memory="none"`. What is typed
/// after the program's name stays.
fn keywords(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("--") {
        told.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(after.len());
        let (option, beyond) = after.split_at(end);
        // Workloads have flags of their own, after commas.
        let begins = told.is_empty() || told.ends_with([' ', '`', '(', '\n']);
        let is_typed = told.matches('`').count() % 2 == 1
            && told.rsplit('`').next().is_some_and(|typed| typed.starts_with("warmcore "));
        rest = beyond;
        if !begins || is_typed || !KEYWORDS.contains(&option) {
            told.push_str("--");
            told.push_str(option);
            continue;
        }
        told.push_str(&option.replace('-', "_"));
        if option == "memory"
            && let Some(value) = beyond.strip_prefix(' ')
        {
            let end = value.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(value.len());
            if MemoryChoice::from_str(&value[..end]).is_ok() {
                told.push_str(&format!("=\"{}\"", &value[..end]));
                rest = &value[end..];
            }
        }
    }
    told.push_str(rest);
    told
}

/// Warns of what should be checked before a result is trusted.
pub fn warn<'a>(py: Python<'_>, texts: impl IntoIterator<Item = &'a String>) -> PyResult<()> {
    let category = py.get_type::<WarmcoreWarning>();
    for text in texts {
        let text = std::ffi::CString::new(keywords(text).replace('\0', "\u{fffd}")).unwrap_or_default();
        PyErr::warn(py, &category, &text, 1)?;
    }
    Ok(())
}
