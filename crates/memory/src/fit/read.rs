//! Counters as TOML.

use serde::Deserialize;
use thiserror::Error;
use warmcore_topology::parse_size;

use super::{CachePoint, Counters, Level, SharedData, Split, Timing};

/// A file of counters that cannot be read.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum FitFileError {
    /// Not TOML, or not of this form. The message has line and column.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A size that is none.
    #[error("{field}: {reason}")]
    Size { field: String, reason: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: String,
    #[serde(default = "usual_line")]
    line: u32,
    touches_per_ki: Option<f64>,
    #[serde(default = "usual_writes")]
    write_fraction: f64,
    #[serde(default)]
    point: Vec<PointText>,
    timing: Option<TimingText>,
    sharing: Option<SharingText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PointText {
    capacity: String,
    ways: u32,
    mpki: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimingText {
    cpi: f64,
    stall_cycles_per_ki: f64,
    #[serde(default)]
    level: Vec<LevelText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelText {
    hits_per_ki: f64,
    latency_cycles: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SharingText {
    size: String,
    write_fraction: Option<f64>,
    #[serde(default)]
    split: Vec<SplitText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitText {
    near: u32,
    far: u32,
    rfo_mpki: f64,
    cross_read_mpki: Option<f64>,
}

fn usual_line() -> u32 {
    64
}

fn usual_writes() -> f64 {
    0.3
}

impl Counters {
    /// Reads the form that the module's head shows. What the numbers say is checked by [`super::fit`].
    ///
    /// # Errors
    /// Text that is not TOML or not of this form; sizes without a unit.
    pub fn from_toml(text: &str) -> Result<Self, FitFileError> {
        let file: FileText = toml::from_str(text)?;
        let size = |field: String, text: &str| parse_size(text).map_err(|reason| FitFileError::Size { field, reason });
        let point = |(index, point): (usize, PointText)| -> Result<CachePoint, FitFileError> {
            let capacity = size(format!("point {}, capacity", index + 1), &point.capacity)?;
            Ok(CachePoint { capacity, ways: point.ways, mpki: point.mpki })
        };
        let level = |level: LevelText| Level { hits_per_ki: level.hits_per_ki, latency_cycles: level.latency_cycles };
        let timing = |timing: TimingText| Timing {
            cpi: timing.cpi,
            stall_cycles_per_ki: timing.stall_cycles_per_ki,
            levels: timing.level.into_iter().map(level).collect(),
        };
        let split = |split: SplitText| Split {
            near: split.near,
            far: split.far,
            rfo_mpki: split.rfo_mpki,
            cross_read_mpki: split.cross_read_mpki,
        };
        let sharing = |sharing: SharingText| -> Result<SharedData, FitFileError> {
            Ok(SharedData {
                bytes: size("sharing.size".to_owned(), &sharing.size)?,
                write_fraction: sharing.write_fraction,
                splits: sharing.split.into_iter().map(split).collect(),
            })
        };
        Ok(Self {
            name: file.name,
            line_bytes: file.line,
            touches_per_ki: file.touches_per_ki,
            write_fraction: file.write_fraction,
            points: file.point.into_iter().enumerate().map(point).collect::<Result<_, _>>()?,
            timing: file.timing.map(timing),
            sharing: file.sharing.map(sharing).transpose()?,
        })
    }
}
