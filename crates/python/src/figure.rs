//! Figures that a notebook shows, and documents as Python's own objects.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use warmcore_report::{figures, pdf};

use crate::failure::Trouble;

/// A figure. A notebook shows it with its caption; `svg` and `csv` are its texts, `pdf()` its bytes, for files.
#[pyclass(frozen, module = "warmcore")]
pub struct Figure {
    drawn: figures::Figure,
}

impl From<figures::Figure> for Figure {
    fn from(drawn: figures::Figure) -> Self {
        Self { drawn }
    }
}

impl Figure {
    /// Its name, and the figure.
    pub fn named(drawn: figures::Figure) -> (String, Self) {
        (drawn.id.clone(), drawn.into())
    }
}

#[pymethods]
impl Figure {
    /// Its name, as `warmcore report --figure` has it.
    #[getter]
    fn name(&self) -> &str {
        &self.drawn.id
    }

    /// What it shows.
    #[getter]
    fn title(&self) -> &str {
        &self.drawn.title
    }

    /// How to read it.
    #[getter]
    fn caption(&self) -> &str {
        &self.drawn.caption
    }

    /// The drawing, as an SVG file has it.
    #[getter]
    fn svg(&self) -> String {
        self.drawn.svg.standalone(&self.drawn.title)
    }

    /// The numbers in it, as comma-separated values (RFC 4180).
    #[getter]
    fn csv(&self) -> &str {
        &self.drawn.csv
    }

    /// The drawing as a PDF file.
    fn pdf<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &pdf::from_svg(&self.svg()).map_err(Trouble::new)?))
    }

    fn __str__(&self) -> String {
        self.svg()
    }

    fn __repr__(&self) -> String {
        format!("<warmcore.Figure {}: {}>", self.drawn.id, self.drawn.title)
    }

    fn _repr_html_(&self) -> String {
        format!("{}<p>{}</p>\n", self.drawn.picture(), warmcore_report::svg::escape(&self.drawn.caption))
    }
}

/// A document as dict.
pub fn dict<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}
