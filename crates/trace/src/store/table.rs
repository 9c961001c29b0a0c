//! One Parquet file: rows are collected by column and written a row group at a time.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};

use super::error::StoreError;
use super::schema::{Kind, Table};
use crate::TaskId;

/// Added to a file's name until it is finished.
pub(crate) const PARTIAL: &str = ".partial";

/// The one compression level in use: `docs/spec/ecosystem.md` section 2 asks for 3.
const ZSTD_LEVEL: i32 = 3;

/// One value of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    Int(i64),
    None,
    Word(u8),
    Text(&'a ByteArray),
}

impl Cell<'_> {
    /// A dense id or another 32-bit number.
    pub(crate) fn id(id: u32) -> Self {
        Cell::Int(i64::from(id))
    }

    /// A task; −1 for idle.
    pub(crate) fn task(task: TaskId) -> Self {
        Cell::Int(if task.is_idle() { -1 } else { i64::from(task.0) })
    }

    /// A time or a count. Beyond 2^63 − 1 (292 years of nanoseconds) it is written as that.
    pub(crate) fn count(value: u64) -> Self {
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

/// Values of one column that have not been written yet.
enum PendingValues {
    Int64(Vec<i64>),
    Int32(Vec<i32>),
    Text(Vec<ByteArray>),
    Word { codes: Vec<u8>, words: Vec<ByteArray> },
}

struct ColumnBuffer {
    values: PendingValues,
    /// For columns with missing values: 1 where there is one.
    levels: Option<Vec<i16>>,
}

impl ColumnBuffer {
    fn new(kind: Kind) -> Self {
        let values = match kind {
            Kind::Ascending | Kind::Int64 | Kind::OptionalInt64 => PendingValues::Int64(Vec::new()),
            Kind::Id | Kind::OptionalId | Kind::LaterId => PendingValues::Int32(Vec::new()),
            Kind::Text => PendingValues::Text(Vec::new()),
            Kind::Word(words) | Kind::LaterWord(words) => {
                PendingValues::Word { codes: Vec::new(), words: words.iter().map(|&w| w.into()).collect() }
            }
        };
        let optional = matches!(kind, Kind::OptionalInt64 | Kind::OptionalId | Kind::LaterId | Kind::LaterWord(_));
        Self { values, levels: optional.then(Vec::new) }
    }

    /// Adds a value. An error is a value that the column cannot hold.
    fn push(&mut self, cell: Cell<'_>) -> Result<(), i64> {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(!matches!(cell, Cell::None)));
        }
        match (&mut self.values, cell) {
            (PendingValues::Int64(values), Cell::Int(value)) => values.push(value),
            (PendingValues::Int32(values), Cell::Int(value)) => values.push(i32::try_from(value).map_err(|_| value)?),
            (PendingValues::Text(values), Cell::Text(text)) => values.push(text.clone()),
            (PendingValues::Word { codes, .. }, Cell::Word(code)) => codes.push(code),
            (_, Cell::None) if self.levels.is_some() => {}
            (_, cell) => unreachable!("{cell:?} in a column of another kind: rows follow the schema"),
        }
        Ok(())
    }

    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> ParquetResult<()> {
        let levels = self.levels.as_deref();
        match &mut self.values {
            PendingValues::Int64(values) => {
                writer.typed::<Int64Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            PendingValues::Int32(values) => {
                writer.typed::<Int32Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            PendingValues::Text(values) => {
                writer.typed::<ByteArrayType>().write_batch(values, levels, None)?;
                values.clear();
            }
            PendingValues::Word { codes, words } => {
                // A text value takes 32 bytes in memory and its code one, so texts are made a few at a time.
                const CHUNK: usize = 8192;
                let mut write = |codes: &[u8], levels| {
                    let texts: Vec<ByteArray> = codes.iter().map(|code| words[usize::from(*code)].clone()).collect();
                    writer.typed::<ByteArrayType>().write_batch(&texts, levels, None).map(|_| ())
                };
                match levels {
                    None => codes.chunks(CHUNK).try_for_each(|codes| write(codes, None))?,
                    Some(levels) => {
                        let mut left = codes.as_slice();
                        for levels in levels.chunks(CHUNK) {
                            let (codes, rest) = left.split_at(levels.iter().filter(|level| **level == 1).count());
                            write(codes, Some(levels))?;
                            left = rest;
                        }
                    }
                }
                codes.clear();
            }
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
        Ok(())
    }
}

/// Writes one table under a temporary name that becomes the final one in [`TableWriter::finish`].
pub(crate) struct TableWriter {
    table: Table,
    path: PathBuf,
    writer: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<ColumnBuffer>,
    rows: usize,
    row_group_rows: usize,
    failed: bool,
}

impl TableWriter {
    /// Begins the file of a table in a directory.
    pub(crate) fn create(table: Table, directory: &Path, row_group_rows: usize) -> Result<Self, StoreError> {
        let path = directory.join(format!("{}.parquet", table.name));
        if path.exists() {
            return Err(StoreError::Exists { path });
        }
        let partial = partial_path(&path);
        let file = File::create_new(&partial).map_err(|source| match source.kind() {
            std::io::ErrorKind::AlreadyExists => StoreError::Exists { path: partial.clone() },
            _ => StoreError::Io { operation: "create", path: partial.clone(), source },
        })?;
        Self::over(file, table, path, row_group_rows)
    }

    /// The same over a file that is open already.
    fn over(file: File, table: Table, path: PathBuf, row_group_rows: usize) -> Result<Self, StoreError> {
        let writer =
            SerializedFileWriter::new(BufWriter::new(file), Arc::new(schema(table)), Arc::new(properties(table)))
                .map_err(|source| StoreError::Write { path: partial_path(&path), source })?;
        Ok(Self {
            table,
            path,
            writer,
            columns: table.columns.iter().map(|column| ColumnBuffer::new(column.kind)).collect(),
            rows: 0,
            row_group_rows: row_group_rows.max(1),
            failed: false,
        })
    }

    /// The final path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a row; its cells are those of the table's columns, in order.
    pub(crate) fn push<const N: usize>(&mut self, cells: [Cell<'_>; N]) -> Result<(), StoreError> {
        debug_assert_eq!(N, self.columns.len(), "{}", self.table.name);
        for ((buffer, cell), column) in self.columns.iter_mut().zip(cells).zip(self.table.columns) {
            buffer.push(cell).map_err(|value| {
                self.failed = true;
                StoreError::TooLarge { path: self.path.clone(), column: column.name, value: value.to_string() }
            })?;
        }
        self.rows += 1;
        if self.rows >= self.row_group_rows { self.write_row_group() } else { Ok(()) }
    }

    fn write_row_group(&mut self) -> Result<(), StoreError> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        write_columns(&mut self.writer, &mut self.columns).map_err(|source| {
            self.failed = true;
            StoreError::Write { path: partial_path(&self.path), source }
        })
    }

    /// Writes what is left and gives the file its final name. A file that failed before stays as it is under its temporary
    /// name; its failure was reported then.
    pub(crate) fn finish(mut self, metadata: &[(String, String)]) -> Result<(), StoreError> {
        if self.failed {
            return Ok(());
        }
        self.write_row_group()?;
        for (key, value) in metadata {
            self.writer.append_key_value_metadata(KeyValue::new(key.clone(), value.clone()));
        }
        let partial = partial_path(&self.path);
        let write_error = |source| StoreError::Write { path: partial.clone(), source };
        let mut file = self.writer.into_inner().map_err(write_error)?;
        file.flush().map_err(|source| write_error(ParquetError::External(Box::new(source))))?;
        fs::rename(&partial, &self.path).map_err(|source| StoreError::Io { operation: "rename", path: partial, source })
    }
}

fn write_columns(
    writer: &mut SerializedFileWriter<BufWriter<File>>,
    columns: &mut [ColumnBuffer],
) -> ParquetResult<()> {
    let mut row_group = writer.next_row_group()?;
    for column in columns {
        let Some(mut column_writer) = row_group.next_column()? else {
            return Err(ParquetError::General("fewer columns in the file than in its schema".to_owned()));
        };
        column.write(&mut column_writer)?;
        column_writer.close()?;
    }
    row_group.close()?;
    Ok(())
}

/// Where a file is until it is finished.
pub(crate) fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PARTIAL);
    PathBuf::from(name)
}

/// The Parquet schema of a table.
fn schema(table: Table) -> Type {
    let field = |name: &str, kind: Kind| {
        let (physical, repetition) = match kind {
            Kind::Ascending | Kind::Int64 => (Physical::INT64, Repetition::REQUIRED),
            Kind::OptionalInt64 => (Physical::INT64, Repetition::OPTIONAL),
            Kind::Id => (Physical::INT32, Repetition::REQUIRED),
            Kind::OptionalId | Kind::LaterId => (Physical::INT32, Repetition::OPTIONAL),
            Kind::Word(_) | Kind::Text => (Physical::BYTE_ARRAY, Repetition::REQUIRED),
            Kind::LaterWord(_) => (Physical::BYTE_ARRAY, Repetition::OPTIONAL),
        };
        let text = physical == Physical::BYTE_ARRAY;
        let builder = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(text.then_some(LogicalType::String))
            .with_converted_type(if text { ConvertedType::UTF8 } else { ConvertedType::NONE });
        Arc::new(builder.build().expect("names and types of the fixed schema are legal"))
    };
    let fields = table.columns.iter().map(|column| field(column.name, column.kind)).collect();
    Type::group_type_builder(table.name).with_fields(fields).build().expect("the fixed schema is legal")
}

/// Compression and encodings; nothing in them depends on when or where the file is written.
fn properties(table: Table) -> WriterProperties {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("3 is a ZSTD level");
    let mut builder = WriterProperties::builder()
        .set_created_by("warmcore".to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(None);
    for column in table.columns {
        if matches!(column.kind, Kind::Ascending) {
            let path = ColumnPath::from(column.name);
            builder = builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::WAKEUP;

    #[test]
    fn a_full_disk_is_reported_with_path_and_reason() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let path = PathBuf::from("run/sched_wakeup.parquet");
        let mut table = TableWriter::over(full, WAKEUP, path, 50_000).unwrap();
        let failed = (0..200_000_i64).find_map(|i| {
            table
                .push([
                    Cell::Int(i),
                    Cell::Int(i * i),
                    Cell::Int(i % 7),
                    Cell::Int(i * 31 % 1009),
                    Cell::None,
                    Cell::None,
                ])
                .err()
        });
        let error = failed.unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("run/sched_wakeup.parquet.partial"), "{error}");
        table.finish(&[]).unwrap();
    }
}
