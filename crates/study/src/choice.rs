//! Which studies, and what of them: names and files as people type them.

use std::path::Path;

use warmcore_lab::experiment::MOST_TRIALS;

use crate::file::{FormError, ReadError, Study};
use crate::library;

/// Why there is no such study, or nothing of it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ChoiceError {
    #[error("`{name}` is neither a study nor a file")]
    Unknown { name: String, near: Option<String> },
    /// One that comes with the program is not what it should be.
    #[error(transparent)]
    Packaged(#[from] FormError),
    /// A file is none.
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("two studies are called `{name}`: {} and {}", .files[0], .files[1])]
    SameName { name: String, files: [String; 2] },
    #[error("{0} trials; there are 1 to {MOST_TRIALS}")]
    Trials(u32),
    #[error("nothing is expected under a name that contains `{part}`, and no drawing is called so")]
    NothingExpected { part: String, names: Vec<String> },
}

impl ChoiceError {
    /// What a user can try.
    pub fn advice(&self) -> Option<String> {
        match self {
            Self::Unknown { near, .. } => {
                let near = near.as_ref().map_or_else(String::new, |near| format!("did you mean `{near}`? "));
                Some(format!("{near}`warmcore list studies` names the studies"))
            }
            Self::NothingExpected { names, .. } => {
                let words = "--only takes parts of names, or whole names of drawings, with commas; there are";
                Some(format!("{words}: {}", names.join("; ")))
            }
            Self::SameName { .. } => {
                Some("their results and figures would have one name; run them separately".to_owned())
            }
            Self::Packaged(_) | Self::Read(_) | Self::Trials(_) => None,
        }
    }
}

/// What these names call, in their order; a study that several of them call is one.
///
/// # Errors
/// As [`called`], and when different studies have one name.
pub fn all(names: &[String]) -> Result<Vec<Study>, ChoiceError> {
    let mut found: Vec<Study> = Vec::new();
    for name in names {
        for study in called(name)? {
            match found.iter().find(|known| known.name == study.name) {
                None => found.push(study),
                Some(known) if known.is(&study) => {}
                Some(known) => {
                    let files = [known, &study].map(|study| study.path.display().to_string());
                    return Err(ChoiceError::SameName { name: study.name, files });
                }
            }
        }
    }
    Ok(found)
}

/// Studies by name, by the name of their collection, or by file.
///
/// # Errors
/// When there is none, or it is not what it should be.
pub fn called(name: &str) -> Result<Vec<Study>, ChoiceError> {
    let packaged = library::find(name)?;
    if !packaged.is_empty() {
        return Ok(packaged);
    }
    let path = Path::new(name);
    if !path.exists() {
        let near = warmcore_topology::nearest(name, library::names());
        return Err(ChoiceError::Unknown { name: name.to_owned(), near: near.map(|near| near.to_string()) });
    }
    Ok(vec![Study::read(path)?])
}

/// Gives every cell this many trials instead of its own number.
///
/// # Errors
/// When they are none, or more than a cell may have.
pub fn set_trials(chosen: &mut [Study], trials: u32) -> Result<(), ChoiceError> {
    if !(1..=MOST_TRIALS).contains(&trials) {
        return Err(ChoiceError::Trials(trials));
    }
    chosen.iter_mut().flat_map(|study| &mut study.cells).for_each(|cell| cell.trials = trials);
    Ok(())
}

/// Leaves what is expected under names that contain one of these texts, drawings that are called so, and studies that have such. Texts next to
/// each other that make a part of a name with commas between them are that part, the longest first, as names may have commas.
///
/// # Errors
/// With the first text that is part of no name.
pub fn keep_only(chosen: &mut Vec<Study>, wanted: &[String]) -> Result<(), ChoiceError> {
    let named = |study: &Study| {
        let expected = study.expectations.iter().map(|of| of.name.clone());
        expected.chain(study.not_asked.iter().map(|of| of.name.clone())).collect::<Vec<_>>()
    };
    let mut names: Vec<String> = chosen.iter().flat_map(named).collect();
    let mut parts = Vec::new();
    let mut rest = wanted;
    while !rest.is_empty() {
        let joined = |count: usize| rest[..count].join(",");
        let is_one = |count: &usize| names.iter().any(|name| name.contains(&joined(*count)));
        let count = (2..=rest.len()).rev().find(is_one).unwrap_or(1);
        parts.push(joined(count));
        rest = &rest[count..];
    }
    let wanted = &parts[..];
    let drawn: Vec<String> = chosen.iter().flat_map(Study::drawn).map(str::to_owned).collect();
    let is_part = |text: &str| !text.trim().is_empty() && names.iter().any(|name| name.contains(text));
    let is_known = |text: &String| drawn.contains(text) || is_part(text);
    if let Some(part) = wanted.iter().find(|text| !is_known(text)).cloned() {
        names.extend(drawn);
        return Err(ChoiceError::NothingExpected { part, names });
    }
    chosen.retain_mut(|study| study.keep_only(wanted));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_commas_is_one_name() {
        let mut chosen = library::find("papers/cdf-dio").unwrap();
        let wanted = ["L2 hit rate", " DIO over RR", " dispatcher with queues"].map(str::to_owned);
        keep_only(&mut chosen, &wanted).unwrap();
        let names: Vec<&str> = chosen[0].expectations.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, ["L2 hit rate, DIO over RR, dispatcher with queues"]);
        let mut chosen = library::find("papers/cdf-dio").unwrap();
        let two =
            "L2 hit rate, DIO over RR, dispatcher with queues,L1 hit rate,p99 of waits, CDF 0.3 over DIO, dispatcher";
        keep_only(&mut chosen, &two.split(',').map(str::to_owned).collect::<Vec<_>>()).unwrap();
        let names: Vec<&str> = chosen[0].expectations.iter().map(|of| of.name.as_str()).collect();
        let l1 = "L1 hit rate, the farther of DIO and CDF 0.7 from RR, over RR";
        let p99 = "p99 of waits, CDF 0.3 over DIO, dispatcher with queues";
        let queues = format!("{l1}, dispatcher with queues");
        let all = ["L2 hit rate, DIO over RR, dispatcher with queues", p99, l1, queues.as_str()];
        assert_eq!(names, all, "several such names");
    }
}
