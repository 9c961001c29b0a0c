//! What a real kernel gave for an experiment, and what was simulated under programs, as one small file each: the values of metrics alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warmcore_lab::files::{FileError, read_text, write_atomically};
use warmcore_lab::session::pretty;
use warmcore_places::place::Place;

use super::book::BookExperiment;
use super::costs::StoredCost;
use super::metric::Measured;
use super::run::ValidateError;

/// Version of stored results.
pub const RESULT_SCHEMA: &str = "warmcore-book-result-1";
/// One run of an experiment in one boot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredRun {
    /// Scheduler.
    pub scheduler: String,
    /// Of a simulated run of a wrong model, its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
    /// Events that were not recorded.
    pub events_lost: u64,
    /// What was not done as the experiment asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<String>,
    /// Metrics by the check's key.
    pub metrics: BTreeMap<String, Measured>,
}

/// What a real kernel gave for an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredResult {
    /// [`RESULT_SCHEMA`].
    pub schema: String,
    /// The experiment it is of: [`BookExperiment::identity`].
    pub identity: String,
    /// `uname -r`.
    pub kernel: String,
    /// Identifies the image.
    pub kernel_sha256: String,
    /// QEMU's version.
    pub qemu: String,
    /// How guests were executed.
    pub execution: String,
    /// What the kernel's own actions cost there, by the names that they have in a machine's file: what is simulated beside the boots has
    /// them too, so that it is not these in which the places differ. Without them the machine's own hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<StoredCost>,
    /// By boot, then by run.
    pub boots: Vec<Vec<StoredRun>>,
    /// The background that these simulated runs had, if they had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_beside: Option<String>,
    /// Simulated runs under schedulers that are programs of their own, which need not be there when the result is judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub simulated: Vec<StoredRun>,
    /// Boots that failed, with the reason.
    #[serde(default)]
    pub failed: Vec<String>,
}

impl StoredResult {
    /// Whether its boots are of that place: its kernel, QEMU and execution.
    pub fn is_from(&self, place: &dyn Place) -> bool {
        let facts = place.facts();
        let is = |name: &str, value: &String| facts.iter().any(|(known, fact)| *known == name && fact == value);
        is("kernel_sha256", &self.kernel_sha256) && is("qemu", &self.qemu) && is("execution", &self.execution)
    }

    /// Whether its simulated runs are of another background than the experiment has now, so that they are not to be compared.
    pub fn is_beside_another(&self, experiment: &BookExperiment) -> bool {
        !self.simulated.is_empty() && self.simulated_beside.as_deref() != experiment.background()
    }

    /// Without any boot yet.
    pub(super) fn new(experiment: &BookExperiment, place: &dyn Place) -> Self {
        let facts = place.facts();
        let fact = |name: &str| {
            facts.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        Self {
            schema: RESULT_SCHEMA.into(),
            identity: experiment.identity.clone(),
            kernel: fact("kernel"),
            kernel_sha256: fact("kernel_sha256"),
            qemu: fact("qemu"),
            execution: fact("execution"),
            costs: Vec::new(),
            boots: Vec::new(),
            simulated_beside: None,
            simulated: Vec::new(),
            failed: Vec::new(),
        }
    }
}

/// Where an experiment's result is stored.
fn stored_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.json"))
}

/// Stores a result.
///
/// # Errors
/// When the file cannot be written.
pub fn write(directory: &Path, name: &str, result: &StoredResult) -> Result<(), FileError> {
    write_atomically(&stored_path(directory, name), pretty(result).as_bytes())
}

/// The stored result of an experiment, if there is one of this very experiment.
///
/// # Errors
/// When there is one that cannot be read.
pub fn read(directory: &Path, experiment: &BookExperiment) -> Result<Option<StoredResult>, ValidateError> {
    let path = stored_path(directory, &experiment.name);
    if !path.is_file() {
        return Ok(None);
    }
    let invalid = |reason: String| ValidateError::Stored { path: path.display().to_string(), reason };
    let result: StoredResult = serde_json::from_str(&read_text(&path)?).map_err(|error| invalid(error.to_string()))?;
    if result.schema != RESULT_SCHEMA {
        return Err(invalid(format!("its schema is `{}`, not {RESULT_SCHEMA}", result.schema)));
    }
    // An experiment that was changed has no result yet.
    Ok(Some(result).filter(|result| result.identity == experiment.identity))
}
