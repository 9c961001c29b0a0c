//! The table of all trials, as one Parquet file: a row per trial and measure. Its columns are the same for every run, whatever
//! its workload measures, so that tables of many runs are read as one; they say run, machine, workload, place and
//! tunables for that reason. Opens directly in Polars, pandas or DuckDB.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::experiment::{ExperimentRecord, TOOL_VERSION};
use crate::measures::Measure;
use crate::time_split::CAUSES;
use crate::trial::{SCHEMA, Trial, TrialEnd};

/// What a row is about.
struct RowSubject<'a> {
    /// Hash of the experiment.
    run: &'a str,
    /// The scheduler with every tunable.
    tunables: &'a str,
    record: &'a ExperimentRecord,
    trial: &'a Trial,
    measure: &'a Measure,
}

/// The values of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Texts.
    Text(Vec<String>),
    /// Numbers of things, and seeds.
    Integer(Vec<u64>),
    /// Numbers, or nothing where the trial has no such value.
    Number(Vec<Option<f64>>),
}

/// The same table in memory: the columns with their names, in order.
pub fn trials_in_memory(
    record: &ExperimentRecord,
    measures: &[Measure],
    trials: &[Vec<Trial>],
) -> Vec<(String, Values)> {
    let run = record.short_hash();
    let rows = rows(&run, record, measures, trials);
    columns().into_iter().map(|(name, column)| (name, column.values(&rows))).collect()
}

/// Where a column's values come from, and of which type they are.
enum TableColumn {
    Text(for<'a> fn(&RowSubject<'a>) -> &'a str),
    Integer(fn(&RowSubject<'_>) -> u64),
    /// Nanoseconds of a cause of [`CAUSES`], by its position.
    Cause(usize),
    /// Numbers, or nothing where the trial has no such value.
    Number(fn(&RowSubject<'_>) -> Option<f64>),
}

/// The columns with their names, which readers rely on: what a trial is, where its time went (`time_*_ns`, equal in all rows of a
/// trial), and the metric.
fn columns() -> Vec<(String, TableColumn)> {
    let named =
        |columns: Vec<(&'static str, TableColumn)>| columns.into_iter().map(|(name, column)| (name.to_owned(), column));
    let causes =
        CAUSES.iter().enumerate().map(|(index, cause)| (format!("time_{}_ns", cause.name), TableColumn::Cause(index)));
    named(of_trials()).chain(causes).chain(named(of_metrics())).collect()
}

fn of_trials() -> Vec<(&'static str, TableColumn)> {
    vec![
        ("run", TableColumn::Text(|row| row.run)),
        ("machine", TableColumn::Text(|row| &row.record.machine.source)),
        ("workload", TableColumn::Text(|row| &row.record.workload.source)),
        ("place", TableColumn::Text(|row| &row.record.place)),
        ("scheduler", TableColumn::Text(|row| &row.trial.scheduler)),
        ("tunables", TableColumn::Text(|row| row.tunables)),
        ("trial", TableColumn::Integer(|row| row.trial.trial as u64)),
        ("seed", TableColumn::Integer(|row| row.trial.seed)),
        (
            "end",
            TableColumn::Text(|row| match row.trial.end {
                TrialEnd::AllExited => "all_exited",
                TrialEnd::Stopped => "stopped",
                TrialEnd::TimeLimit => "time_limit",
            }),
        ),
        ("engine_events", TableColumn::Integer(|row| row.trial.engine_events)),
        ("events_lost", TableColumn::Integer(|row| row.trial.events_lost)),
    ]
}

fn of_metrics() -> Vec<(&'static str, TableColumn)> {
    vec![
        ("metric", TableColumn::Text(|row| &row.measure.name)),
        ("unit", TableColumn::Text(|row| row.measure.unit.name())),
        ("value", TableColumn::Number(|row| row.measure.value(row.trial))),
    ]
}

impl TableColumn {
    fn kind(&self, name: &str) -> Result<Type, ParquetError> {
        let (physical, repetition) = match self {
            Self::Text(_) => (PhysicalType::BYTE_ARRAY, Repetition::REQUIRED),
            Self::Integer(_) => (PhysicalType::INT64, Repetition::REQUIRED),
            Self::Number(_) | Self::Cause(_) => (PhysicalType::DOUBLE, Repetition::OPTIONAL),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(matches!(self, Self::Text(_)).then_some(LogicalType::String))
            .build()
    }

    fn values(&self, rows: &[RowSubject<'_>]) -> Values {
        match self {
            Self::Text(value) => Values::Text(rows.iter().map(|row| value(row).to_owned()).collect()),
            Self::Integer(value) => Values::Integer(rows.iter().map(value).collect()),
            Self::Number(value) => Values::Number(rows.iter().map(value).collect()),
            Self::Cause(index) => {
                let name = CAUSES[*index].name;
                let of_trial = |rows: &[RowSubject<'_>]| vec![rows[0].trial.time_ns.get(name).copied(); rows.len()];
                let trials = rows.chunk_by(|one, next| std::ptr::eq(one.trial, next.trial));
                Values::Number(trials.flat_map(of_trial).collect())
            }
        }
    }

    fn write(&self, rows: &[RowSubject<'_>], writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        if let (Self::Text(value), ColumnWriter::ByteArrayColumnWriter(writer)) = (self, &mut *writer) {
            writer.write_batch(&texts(rows.iter().map(value)), None, None)?;
            return Ok(());
        }
        match (self.values(rows), writer) {
            (Values::Integer(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                // Seeds have 53 or 63 bits and counts are far below that, so nothing is lost here.
                let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
                writer.write_batch(&values, None, None)?;
            }
            (Values::Number(values), ColumnWriter::DoubleColumnWriter(writer)) => write_numbers(values, writer)?,
            _ => return Err(ParquetError::General("a column is not of the type its schema says".into())),
        }
        Ok(())
    }
}

/// Texts for a column. Neighbours that are equal, as in most columns, share their bytes.
fn texts<'a>(values: impl ExactSizeIterator<Item = &'a str>) -> Vec<ByteArray> {
    let mut texts: Vec<ByteArray> = Vec::with_capacity(values.len());
    for value in values {
        let same = texts.last().filter(|last| last.data() == value.as_bytes()).cloned();
        texts.push(same.unwrap_or_else(|| value.into()));
    }
    texts
}

fn write_numbers(points: Vec<Option<f64>>, writer: &mut ColumnWriterImpl<'_, DoubleType>) -> Result<(), ParquetError> {
    let values: Vec<f64> = points.iter().copied().flatten().collect();
    let levels: Vec<i16> = points.iter().map(|point| i16::from(point.is_some())).collect();
    writer.write_batch(&values, Some(&levels), None)?;
    Ok(())
}

/// A row per trial and measure.
fn rows<'a>(
    run: &'a str,
    record: &'a ExperimentRecord,
    measures: &'a [Measure],
    trials: &'a [Vec<Trial>],
) -> Vec<RowSubject<'a>> {
    let mut rows: Vec<RowSubject<'a>> = Vec::new();
    for (scheduler, trials) in record.schedulers.iter().zip(trials) {
        let tunables = scheduler.resolved.as_str();
        let of_trial = |trial| measures.iter().map(move |measure| RowSubject { run, tunables, record, trial, measure });
        rows.extend(trials.iter().flat_map(of_trial));
    }
    rows
}

/// Writes the table, whole or not at all. The same trials give the same bytes.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_trials(
    path: &Path,
    record: &ExperimentRecord,
    measures: &[Measure],
    trials: &[Vec<Trial>],
) -> Result<(), ParquetError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = write_file(&partial, record, measures, trials)
        .and_then(|()| std::fs::rename(&partial, path).map_err(ParquetError::from));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

fn write_file(
    path: &Path,
    record: &ExperimentRecord,
    measures: &[Measure],
    trials: &[Vec<Trial>],
) -> Result<(), ParquetError> {
    let columns = columns();
    let fields = columns.iter().map(|(name, column)| column.kind(name).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("trials").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(format!("warmcore {TOOL_VERSION}"))
        .set_key_value_metadata(Some(vec![
            KeyValue::new("schema".to_owned(), Some(SCHEMA.to_owned())),
            KeyValue::new("tool_version".to_owned(), Some(TOOL_VERSION.to_owned())),
        ]))
        .build();
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties))?;
    let run = record.short_hash();
    let rows = rows(&run, record, measures, trials);
    let mut group = writer.next_row_group()?;
    let mut columns = columns.iter();
    while let (Some((_, column)), Some(mut out)) = (columns.next(), group.next_column()?) {
        column.write(&rows, out.untyped())?;
        out.close()?;
    }
    group.close()?;
    let mut file = writer.into_inner()?;
    file.flush()?;
    file.sync_all()?;
    Ok(())
}
