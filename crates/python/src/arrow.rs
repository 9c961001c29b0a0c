//! Tables as Arrow, handed over without a copy through the PyCapsule interface.

use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array as _, ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_schema::ArrowError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use warmcore_lab::table::Values;
use warmcore_report::table::Table as Text;

/// A table of columns: `pandas.DataFrame.from_arrow(table)`, `polars.DataFrame(table)`, `pyarrow.table(table)` and DuckDB take it as it
/// is, through `__arrow_c_stream__`; `to_dict()` and `to_rows()` need none of them. `len(table)` is the number of rows.
#[pyclass(frozen, module = "warmcore")]
pub struct Table {
    batch: RecordBatch,
}

impl Table {
    /// Columns with their names. Integers become signed: seeds have 53 or 63 bits, and counts are far below.
    pub fn new(columns: Vec<(String, Values)>) -> PyResult<Self> {
        let column = |(name, values): (String, Values)| {
            let array: ArrayRef = match values {
                Values::Text(values) => Arc::new(StringArray::from(values)),
                Values::Integer(values) => {
                    Arc::new(values.into_iter().map(|value| value as i64).collect::<Int64Array>())
                }
                Values::Number(values) => Arc::new(Float64Array::from(values)),
            };
            (name, array)
        };
        let batch = RecordBatch::try_from_iter(columns.into_iter().map(column)).map_err(fault)?;
        Ok(Self { batch })
    }

    /// The first rows, as a notebook shows them.
    pub fn html(&self) -> String {
        let columns = self.batch.columns();
        let heading = |(name, array): (&String, &ArrayRef)| {
            if array.as_any().is::<StringArray>() { name.clone() } else { format!(">{name}") }
        };
        let headings: Vec<String> = self.column_names().iter().zip(columns).map(heading).collect();
        let mut table = Text::new(headings.iter().map(String::as_str));
        let shown = self.batch.num_rows().min(MOST_ROWS);
        (0..shown).for_each(|row| table.row(columns.iter().map(|array| cell(array, row))));
        let more = self.batch.num_rows() - shown;
        let rest = if more > 0 { format!("<p>and {more} more rows</p>\n") } else { String::new() };
        table.html() + &rest
    }
}

/// Rows that a notebook shows.
const MOST_ROWS: usize = 50;

/// A column as a list.
fn values<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    let array = array.as_any();
    if let Some(texts) = array.downcast_ref::<StringArray>() {
        PyList::new(py, texts.iter().collect::<Vec<_>>())
    } else if let Some(numbers) = array.downcast_ref::<Int64Array>() {
        PyList::new(py, numbers.iter().collect::<Vec<_>>())
    } else if let Some(numbers) = array.downcast_ref::<Float64Array>() {
        PyList::new(py, numbers.iter().collect::<Vec<_>>())
    } else {
        Err(PyRuntimeError::new_err("a fault of warmcore: a column of an unknown type"))
    }
}

/// A value as text, empty where there is none.
fn cell(array: &ArrayRef, row: usize) -> String {
    let values = array.as_any();
    if array.is_null(row) {
        String::new()
    } else if let Some(texts) = values.downcast_ref::<StringArray>() {
        texts.value(row).to_owned()
    } else if let Some(numbers) = values.downcast_ref::<Int64Array>() {
        numbers.value(row).to_string()
    } else {
        values.downcast_ref::<Float64Array>().map_or_else(String::new, |numbers| numbers.value(row).to_string())
    }
}

/// What only a fault of this crate can be.
fn fault(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(format!("a fault of warmcore: {error}"))
}

#[pymethods]
impl Table {
    /// The table as an Arrow stream of one batch. `requested_schema` is not looked at, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    /// Names and types of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(fault)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The columns as lists: str, int, and float or None.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for (field, array) in self.batch.schema().fields().iter().zip(self.batch.columns()) {
            columns.set_item(field.name(), values(py, array)?)?;
        }
        Ok(columns)
    }

    /// The rows as dicts by column, with the values of `to_dict()`.
    fn to_rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let rows: Vec<_> = (0..self.batch.num_rows()).map(|_| PyDict::new(py)).collect();
        for (field, array) in self.batch.schema().fields().iter().zip(self.batch.columns()) {
            for (row, value) in rows.iter().zip(values(py, array)?.iter()) {
                row.set_item(field.name(), value)?;
            }
        }
        Ok(rows)
    }

    fn _repr_html_(&self) -> String {
        self.html()
    }

    fn __repr__(&self) -> String {
        format!("<warmcore.Table of {} rows: {}>", self.batch.num_rows(), self.column_names().join(", "))
    }
}
