//! One Parquet file, row by row, a batch of rows in memory at a time. Columns are found by name; unknown ones are never
//! touched.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use warmcore_topology::CpuId;

use super::error::StoreError;
use super::schema::{Kind, SCHEMA_KEY, SCHEMA_MAJOR, Table};
use super::table::partial_path;
use crate::TaskId;

/// Rows held in memory.
const BATCH: usize = 8192;

/// Values of one column in the present batch.
enum ColumnValues {
    Int(Vec<i64>),
    Optional(Vec<Option<i64>>),
    Word(Vec<u8>),
    OptionalWord(Vec<Option<u8>>),
    Text(Vec<String>),
}

/// Reads the rows of one table in order.
pub(crate) struct TableReader {
    table: Table,
    path: PathBuf,
    reader: SerializedFileReader<File>,
    /// For each column of the schema: which column of the file it is; `None` for one that the file is too old to have.
    leaves: Vec<Option<usize>>,
    next_row_group: usize,
    columns: Vec<Option<ColumnReader>>,
    batch: Vec<ColumnValues>,
    batch_rows: usize,
    /// Position in the batch of the row after the present one.
    next: usize,
    /// Number of rows passed.
    rows: u64,
}

impl TableReader {
    /// Opens the table of that kind in a store.
    pub(crate) fn open(table: Table, directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(format!("{}.parquet", table.name));
        let file = File::open(&path).map_err(|source| {
            let partial = partial_path(&path);
            if source.kind() == std::io::ErrorKind::NotFound && partial.exists() {
                StoreError::Interrupted { path: partial }
            } else {
                StoreError::Io { operation: "open", path: path.clone(), source }
            }
        })?;
        let reader = guarded(&path, || SerializedFileReader::new(file))?;
        check_ranges(&reader, &path)?;
        check_version(&reader, &path)?;
        let leaves = find_columns(&reader, table, &path)?;
        Ok(Self {
            table,
            path,
            reader,
            leaves,
            next_row_group: 0,
            columns: Vec::new(),
            batch: Vec::new(),
            batch_rows: 0,
            next: 0,
            rows: 0,
        })
    }

    pub(crate) fn table_name(&self) -> &'static str {
        self.table.name
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Goes to the next row. False at the end of the table.
    pub(crate) fn advance(&mut self) -> Result<bool, StoreError> {
        while self.next == self.batch_rows {
            if !self.read_batch()? {
                return Ok(false);
            }
        }
        self.next += 1;
        self.rows += 1;
        Ok(true)
    }

    /// A required number of the present row.
    pub(crate) fn int(&self, column: usize) -> i64 {
        match &self.batch[column] {
            ColumnValues::Int(values) => values[self.next - 1],
            _ => unreachable!("column {column} of {} holds no numbers", self.table.name),
        }
    }

    /// A number of the present row that may be missing.
    pub(crate) fn optional(&self, column: usize) -> Option<i64> {
        match &self.batch[column] {
            ColumnValues::Optional(values) => values[self.next - 1],
            _ => unreachable!("column {column} of {} holds no optional numbers", self.table.name),
        }
    }

    /// The position of a word of the present row in its column's list.
    pub(crate) fn word(&self, column: usize) -> u8 {
        match &self.batch[column] {
            ColumnValues::Word(values) => values[self.next - 1],
            _ => unreachable!("column {column} of {} holds no words", self.table.name),
        }
    }

    /// The same where it may be missing.
    pub(crate) fn optional_word(&self, column: usize) -> Option<u8> {
        match &self.batch[column] {
            ColumnValues::OptionalWord(values) => values[self.next - 1],
            _ => unreachable!("column {column} of {} holds no optional words", self.table.name),
        }
    }

    /// A text of the present row.
    pub(crate) fn text(&self, column: usize) -> &str {
        match &self.batch[column] {
            ColumnValues::Text(values) => &values[self.next - 1],
            _ => unreachable!("column {column} of {} holds no text", self.table.name),
        }
    }

    /// A time or count of the present row.
    pub(crate) fn count(&self, column: usize) -> Result<u64, StoreError> {
        let value = self.int(column);
        u64::try_from(value).map_err(|_| self.bad_value(column, value.to_string()))
    }

    /// An id of the present row.
    pub(crate) fn id(&self, column: usize) -> Result<u32, StoreError> {
        let value = self.int(column);
        u32::try_from(value).map_err(|_| self.bad_value(column, value.to_string()))
    }

    /// A CPU of the present row.
    pub(crate) fn cpu(&self, column: usize) -> Result<CpuId, StoreError> {
        self.id(column).map(CpuId)
    }

    /// A task of the present row, −1 being idle.
    pub(crate) fn task(&self, column: usize) -> Result<TaskId, StoreError> {
        if self.int(column) == -1 { Ok(TaskId::IDLE) } else { self.id(column).map(TaskId) }
    }

    /// A task of the present row that may be missing; idle stands for none.
    pub(crate) fn optional_task(&self, column: usize) -> Result<TaskId, StoreError> {
        match self.optional(column) {
            None | Some(-1) => Ok(TaskId::IDLE),
            Some(task) => u32::try_from(task).map(TaskId).map_err(|_| self.bad_value(column, task.to_string())),
        }
    }

    /// The error that a value of the present row deserves.
    pub(crate) fn bad_value(&self, column: usize, value: String) -> StoreError {
        StoreError::Value {
            path: self.path.clone(),
            column: self.table.columns[column].name,
            row: self.rows.saturating_sub(1),
            value,
        }
    }

    /// Reads the next rows, of the next row group if the present one is through. False at the end of the file.
    fn read_batch(&mut self) -> Result<bool, StoreError> {
        if self.batch_rows == 0 || self.columns.is_empty() {
            if self.next_row_group == self.reader.num_row_groups() {
                return Ok(false);
            }
            let open = |group: usize| -> ParquetResult<Vec<Option<ColumnReader>>> {
                let group = self.reader.get_row_group(group)?;
                self.leaves.iter().map(|leaf| leaf.map(|leaf| group.get_column_reader(leaf)).transpose()).collect()
            };
            self.columns = guarded(&self.path, || open(self.next_row_group))?;
            self.next_row_group += 1;
        }
        self.next = 0;
        self.batch.clear();
        let mut lengths = Vec::with_capacity(self.columns.len());
        for (position, column) in self.columns.iter_mut().enumerate() {
            let Some(column) = column else {
                // Sequence numbers are in every file, and in its first column.
                let rows = lengths.first().copied().unwrap_or(0);
                self.batch.push(match self.table.columns[position].kind {
                    Kind::LaterWord(_) => ColumnValues::OptionalWord(vec![None; rows]),
                    _ => ColumnValues::Optional(vec![None; rows]),
                });
                continue;
            };
            let cells = guarded(&self.path, || read_cells(column))?;
            lengths.push(cells.len());
            let described = &self.table.columns[position];
            let values = cells.convert(described.kind).map_err(|(row, value)| StoreError::Value {
                path: self.path.clone(),
                column: described.name,
                row: self.rows + row as u64,
                value,
            })?;
            self.batch.push(values);
        }
        self.batch_rows = lengths.first().copied().unwrap_or(0);
        if lengths.iter().any(|length| *length != self.batch_rows) {
            let reason = "its columns differ in length".to_owned();
            return Err(StoreError::Damaged { path: self.path.clone(), reason });
        }
        // An empty batch is the end of a row group; the next call opens the next one.
        Ok(true)
    }
}

/// Calls the Parquet library, which returns errors for most damage but panics on some (a page that lost its dictionary,
/// for one). Nothing it was working on is used again.
fn guarded<T>(path: &Path, call: impl FnOnce() -> ParquetResult<T>) -> Result<T, StoreError> {
    let reason = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the Parquet library gave up on it".to_owned(),
    };
    Err(StoreError::Damaged { path: path.to_owned(), reason })
}

/// Checks what the Parquet library takes for granted and would panic about: that columns lie inside the file.
fn check_ranges(reader: &SerializedFileReader<File>, path: &Path) -> Result<(), StoreError> {
    let inside = |column: &ColumnChunkMetaData| {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        start >= 0 && column.compressed_size() >= 0 && column.num_values() >= 0
    };
    if reader.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns).all(inside) {
        return Ok(());
    }
    Err(StoreError::Damaged { path: path.to_owned(), reason: "a column lies outside of the file".to_owned() })
}

fn check_version(reader: &SerializedFileReader<File>, path: &Path) -> Result<(), StoreError> {
    let metadata = reader.metadata().file_metadata().key_value_metadata();
    let entry = metadata.into_iter().flatten().find(|entry| entry.key == SCHEMA_KEY);
    let found = entry.and_then(|entry| entry.value.as_deref()).unwrap_or("none");
    let major = found.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major <= SCHEMA_MAJOR => Ok(()),
        _ => Err(StoreError::Version { path: path.to_owned(), found: found.to_owned() }),
    }
}

fn find_columns(
    reader: &SerializedFileReader<File>,
    table: Table,
    path: &Path,
) -> Result<Vec<Option<usize>>, StoreError> {
    use parquet::basic::Type::{BYTE_ARRAY, INT32, INT64};

    let schema = reader.metadata().file_metadata().schema_descr();
    let find = |column: &super::schema::Column| {
        let refuse = |problem: String| StoreError::Column { path: path.to_owned(), column: column.name, problem };
        let leaf = schema.columns().iter().position(|leaf| leaf.path().parts() == [column.name]);
        let leaf = match (leaf, column.kind) {
            (Some(leaf), _) => leaf,
            (None, Kind::LaterId | Kind::LaterWord(_)) => return Ok(None),
            (None, _) => return Err(refuse("is missing".to_owned())),
        };
        let physical = schema.column(leaf).physical_type();
        let fits = match column.kind {
            Kind::Text | Kind::Word(_) | Kind::LaterWord(_) => physical == BYTE_ARRAY,
            _ => matches!(physical, INT32 | INT64),
        };
        if !fits || schema.column(leaf).max_rep_level() > 0 || schema.column(leaf).max_def_level() > 1 {
            return Err(refuse(format!("has type {physical}, which is not what it should hold")));
        }
        Ok(Some(leaf))
    };
    table.columns.iter().map(find).collect()
}

/// Values of a column as they are in the file.
enum Cells {
    Int(Vec<Option<i64>>),
    Text(Vec<Option<ByteArray>>),
}

impl Cells {
    fn len(&self) -> usize {
        match self {
            Cells::Int(cells) => cells.len(),
            Cells::Text(cells) => cells.len(),
        }
    }

    /// As what the schema says. An error is the row and what is wrong with its value.
    fn convert(self, kind: Kind) -> Result<ColumnValues, (usize, String)> {
        match (kind, self) {
            (Kind::OptionalId | Kind::LaterId | Kind::OptionalInt64, Cells::Int(cells)) => {
                Ok(ColumnValues::Optional(cells))
            }
            (Kind::Text, Cells::Text(cells)) => {
                collect(cells, |cell| text_of(cell).map(str::to_owned)).map(ColumnValues::Text)
            }
            (Kind::Word(words), Cells::Text(cells)) => {
                collect(cells, |cell| code_of(words, cell)).map(ColumnValues::Word)
            }
            (Kind::LaterWord(words), Cells::Text(cells)) => {
                let code = |(row, cell): (usize, &Option<ByteArray>)| {
                    cell.as_ref().map(|cell| code_of(words, cell)).transpose().map_err(|value| (row, value))
                };
                cells.iter().enumerate().map(code).collect::<Result<_, _>>().map(ColumnValues::OptionalWord)
            }
            (_, Cells::Int(cells)) => collect(cells, |cell| Ok(*cell)).map(ColumnValues::Int),
            (_, Cells::Text(_)) => unreachable!("types of columns are checked when a file is opened"),
        }
    }
}

fn text_of(cell: &ByteArray) -> Result<&str, String> {
    std::str::from_utf8(cell.data()).map_err(|_| "bytes that are not UTF-8".to_owned())
}

/// The position of a word in its column's list.
fn code_of(words: &[&str], cell: &ByteArray) -> Result<u8, String> {
    let text = text_of(cell)?;
    let code = words.iter().position(|word| *word == text);
    code.map(|code| code as u8).ok_or_else(|| format!("{text:?}"))
}

/// Converts values of a column in which none may be missing.
fn collect<T, U>(cells: Vec<Option<T>>, convert: impl Fn(&T) -> Result<U, String>) -> Result<Vec<U>, (usize, String)> {
    let value = |(row, cell): (usize, &Option<T>)| {
        let cell = cell.as_ref().ok_or_else(|| (row, "nothing".to_owned()))?;
        convert(cell).map_err(|value| (row, value))
    };
    cells.iter().enumerate().map(value).collect()
}

fn read_cells(column: &mut ColumnReader) -> ParquetResult<Cells> {
    match column {
        ColumnReader::Int32ColumnReader(reader) => {
            let cells = read_typed(reader)?;
            Ok(Cells::Int(cells.into_iter().map(|cell| cell.map(i64::from)).collect()))
        }
        ColumnReader::Int64ColumnReader(reader) => read_typed(reader).map(Cells::Int),
        ColumnReader::ByteArrayColumnReader(reader) => read_typed(reader).map(Cells::Text),
        _ => Err(ParquetError::General("a column of a type that is never asked for".to_owned())),
    }
}

fn read_typed<T: DataType>(reader: &mut ColumnReaderImpl<T>) -> ParquetResult<Vec<Option<T::T>>> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (records, ..) = reader.read_records(BATCH, Some(&mut levels), None, &mut values)?;
    if levels.is_empty() {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    let cells: Vec<Option<T::T>> = levels.iter().map(|level| if *level == 1 { values.next() } else { None }).collect();
    if cells.len() == records {
        Ok(cells)
    } else {
        Err(ParquetError::General("levels and values do not match".to_owned()))
    }
}
