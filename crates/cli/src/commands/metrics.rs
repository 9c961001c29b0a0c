//! `warmcore list metrics`: what can be compared, and what it means.

use serde::Serialize;
use warmcore_lab::measures::{self, Measure};
use warmcore_statistics::Better;
use warmcore_workload::Workload;

use crate::args::ListArguments;
use crate::commands::as_document;
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::load;

/// The document of `list metrics --json`.
#[derive(Serialize)]
struct MetricsDocument {
    /// The one that a verdict on the workload is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    primary: Option<String>,
    metrics: Vec<Measure>,
}

/// Prints every metric, and those of a workload.
pub fn list(arguments: &ListArguments, console: &Console) -> Result<(), Failure> {
    let named = arguments.workload.as_deref().map(|text| load::workload(text, console.strict(), &[])).transpose()?;
    let workload = named.as_ref().map_or_else(|| Workload::empty("any"), |named| named.value.clone());
    let metrics = measures::of_workload(&workload);
    let primary = named.is_some().then(|| measures::primary(&workload));
    if console.json() {
        return Ok(console.out(&as_document("warmcore-metrics-1", &MetricsDocument { primary, metrics }))?);
    }
    let mut table = Table::new(["metric", "unit", "better", "meaning"]);
    for metric in metrics {
        let better = match metric.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
            Better::Neither => "-",
        };
        table.row([metric.name, metric.unit.name().to_owned(), better.to_owned(), metric.definition]);
    }
    let mut text = console.table(&table);
    match primary {
        Some(primary) => text.push_str(&format!("\nA verdict on this workload is about {primary}.\n")),
        None => text.push_str(
            "\n`list metrics WORKLOAD` adds the recorders and roles of a workload, and memory where it has profiles.\n",
        ),
    }
    Ok(console.out_words(&text)?)
}
