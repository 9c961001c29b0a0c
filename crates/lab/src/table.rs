//! The table of all trials, as one Parquet file: a row per trial, a column per measure. Opens directly in Polars, pandas
//! or DuckDB, over many runs at once.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::experiment::TOOL_VERSION;
use crate::measures::Measure;
use crate::trial::{SCHEMA, Trial, TrialEnd};

/// A column of the table.
enum Column<'a> {
    Text(&'static str, Box<dyn Fn(&Trial) -> String>),
    Integer(&'static str, Box<dyn Fn(&Trial) -> i64>),
    Measure(&'a Measure),
}

impl Column<'_> {
    fn kind(&self) -> Result<Type, ParquetError> {
        match self {
            Self::Text(name, _) => Type::primitive_type_builder(name, PhysicalType::BYTE_ARRAY)
                .with_repetition(Repetition::REQUIRED)
                .with_logical_type(Some(LogicalType::String))
                .build(),
            Self::Integer(name, _) => {
                Type::primitive_type_builder(name, PhysicalType::INT64).with_repetition(Repetition::REQUIRED).build()
            }
            Self::Measure(measure) => Type::primitive_type_builder(&measure.name, PhysicalType::DOUBLE)
                .with_repetition(Repetition::OPTIONAL)
                .build(),
        }
    }

    fn write(&self, trials: &[&Trial], writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        match (self, writer) {
            (Self::Text(_, value), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let values: Vec<ByteArray> = trials.iter().map(|trial| value(trial).into_bytes().into()).collect();
                writer.write_batch(&values, None, None)?;
            }
            (Self::Integer(_, value), ColumnWriter::Int64ColumnWriter(writer)) => {
                let values: Vec<i64> = trials.iter().map(|trial| value(trial)).collect();
                writer.write_batch(&values, None, None)?;
            }
            (Self::Measure(measure), ColumnWriter::DoubleColumnWriter(writer)) => {
                let points: Vec<Option<f64>> = trials.iter().map(|trial| measure.value(trial)).collect();
                let values: Vec<f64> = points.iter().copied().flatten().collect();
                let levels: Vec<i16> = points.iter().map(|point| i16::from(point.is_some())).collect();
                writer.write_batch(&values, Some(&levels), None)?;
            }
            _ => return Err(ParquetError::General("a column is not of the type its schema says".into())),
        }
        Ok(())
    }
}

fn columns(measures: &[Measure]) -> Vec<Column<'_>> {
    let text = |name, value: fn(&Trial) -> String| Column::Text(name, Box::new(value));
    // Seeds have 53 or 63 bits and counts are far below that, so nothing is lost here.
    let integer = |name, value: fn(&Trial) -> u64| Column::Integer(name, Box::new(move |trial| value(trial) as i64));
    let mut columns = vec![
        text("scheduler", |trial| trial.scheduler.clone()),
        integer("trial", |trial| trial.trial as u64),
        integer("seed", |trial| trial.seed),
        text("end", |trial| {
            match trial.end {
                TrialEnd::AllExited => "all_exited",
                TrialEnd::Stopped => "stopped",
                TrialEnd::TimeLimit => "time_limit",
            }
            .into()
        }),
        integer("engine_events", |trial| trial.engine_events),
        integer("events_lost", |trial| trial.events_lost),
    ];
    columns.extend(measures.iter().map(Column::Measure));
    columns
}

/// Writes the table, whole or not at all. The same trials give the same bytes.
///
/// # Errors
/// When the file cannot be written.
pub fn write_trials(path: &Path, measures: &[Measure], trials: &[Vec<Trial>]) -> Result<(), ParquetError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = write_file(&partial, measures, trials)
        .and_then(|()| std::fs::rename(&partial, path).map_err(ParquetError::from));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

fn write_file(path: &Path, measures: &[Measure], trials: &[Vec<Trial>]) -> Result<(), ParquetError> {
    let columns = columns(measures);
    let fields = columns.iter().map(|column| column.kind().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("trials").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(format!("warmcore {TOOL_VERSION}"))
        .set_key_value_metadata(Some(vec![
            KeyValue::new("schema".to_owned(), Some(SCHEMA.to_owned())),
            KeyValue::new("tool_version".to_owned(), Some(TOOL_VERSION.to_owned())),
            KeyValue::new("clock".to_owned(), Some("simulated".to_owned())),
        ]))
        .build();
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties))?;
    let trials: Vec<&Trial> = trials.iter().flatten().collect();
    let mut rows = writer.next_row_group()?;
    let mut columns = columns.iter();
    while let (Some(column), Some(mut out)) = (columns.next(), rows.next_column()?) {
        column.write(&trials, out.untyped())?;
        out.close()?;
    }
    rows.close()?;
    let mut file = writer.into_inner()?;
    file.flush()?;
    file.sync_all()?;
    Ok(())
}
