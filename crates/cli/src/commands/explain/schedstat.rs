//! `warmcore explain schedstat:…`: what kernels and simulated trials counted of scheduling by CPU and by scheduling domain, side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;
use warmcore_capture::perf_data;
use warmcore_lab::files;
use warmcore_report::run::{ReportOptions, Run};
use warmcore_trace::schedstat::{CPU_FIELDS, DOMAIN_COUNTERS, Schedstat, domain_field};

use crate::args::ExplainArguments;
use crate::commands::as_document;
use crate::commands::report::report_failure;
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::signals::Signals;

const HELP: &str = "separate with commas: a file with the text of /proc/schedstat or of `perf sched stats report`, BEFORE:AFTER of two such files, \
                    the perf.data of `perf sched stats record`, or a run directory";

#[derive(Serialize)]
struct ColumnDocument {
    name: String,
    /// Sums over CPUs.
    cpus: BTreeMap<&'static str, u64>,
    /// Sums over CPUs by level of domains; counters that the text does not have are left out.
    domains: BTreeMap<String, BTreeMap<String, u64>>,
    /// All of it, in the kernel's form.
    text: String,
}

/// Runs it on what stands behind `schedstat:`.
pub fn run(wanted: &str, arguments: &ExplainArguments, console: &Console) -> Result<(), Failure> {
    let ExplainArguments { task, at, events, scheduler, .. } = arguments;
    if task.is_some() || at.is_some() || *events {
        return Err(Failure::usage("warmcore::usage", "schedstat: has no --task, --at and --events").help(HELP));
    }
    if scheduler.is_some() && !wanted.split(',').any(|item| Path::new(item).is_dir()) {
        return Err(
            Failure::usage("warmcore::usage", "--scheduler chooses in a run directory, and none is here").help(HELP)
        );
    }
    let signals = Signals::listen()?;
    let mut columns: Vec<(String, Schedstat)> = Vec::new();
    for item in wanted.split(',') {
        if let Some((before, after)) = item.split_once(':') {
            let (earlier, later) = (of_file(before, false)?, of_file(after, false)?);
            // What perf prints has none.
            if later.timestamp > 0 && later.timestamp < earlier.timestamp {
                let message = format!(
                    "{after} was read before {before}: its timestamp is {}, the other's {}",
                    later.timestamp, earlier.timestamp
                );
                return Err(
                    Failure::usage("warmcore::schedstat", message).help(format!("name them as {after}:{before}"))
                );
            }
            columns.push((item.to_owned(), later.since(&earlier)));
        } else if Path::new(item).is_dir() {
            columns.extend(of_run(Path::new(item), scheduler.as_deref(), &signals)?);
        } else {
            columns.push((item.to_owned(), of_file(item, true)?));
        }
    }
    for (name, _) in columns.iter().filter(|(_, counted)| counts_no_domains(counted)) {
        console
            .warn(&format!("{name}: no domain counted anything; a kernel counts only with kernel.sched_schedstats=1"));
    }
    if console.json() {
        let columns: Vec<_> = columns.into_iter().map(|(name, counted)| document(name, &counted)).collect();
        return Ok(console.out(&as_document("warmcore-schedstat-1", &BTreeMap::from([("columns", columns)])))?);
    }
    Ok(console.out(&console.table(&table(&columns)))?)
}

fn counts_no_domains(counted: &Schedstat) -> bool {
    !counted.by_level().iter().any(|(_, values)| values.iter().any(|value| value.is_some_and(|value| value > 0)))
}

/// A text, or a file of `perf sched stats record` with both its readings.
fn of_file(path: &str, alone: bool) -> Result<Schedstat, Failure> {
    let failed = |message: String| Failure::usage("warmcore::schedstat", message).help(HELP);
    let bytes = files::read_bytes(Path::new(path)).map_err(|error| failed(error.to_string()))?;
    if perf_data::is_one(&bytes) {
        if !alone {
            let message = format!("{path}: a file of `perf sched stats record` has both readings");
            return Err(Failure::usage("warmcore::schedstat", message).help("name it alone, without a colon"));
        }
        return perf_data::schedstat(&bytes).map_err(|error| failed(format!("{path}: {error}")));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed(format!("{path}: it is not UTF-8 text")))?;
    Schedstat::parse(&text).map_err(|error| failed(format!("{path}: {error}")))
}

/// One for each scheduler, or for the one that is wanted.
fn of_run(path: &Path, wanted: Option<&str>, signals: &Signals) -> Result<Vec<(String, Schedstat)>, Failure> {
    let failed = |error| report_failure(&error, path, signals);
    let options = ReportOptions { scenes: false, ..ReportOptions::default() };
    let run = Run::load(path, &options, &signals.stop).map_err(failed)?;
    let labels = run.disk.record.schedulers.iter().map(|scheduler| scheduler.label.clone()).enumerate();
    let chosen: Vec<(usize, String)> =
        labels.filter(|(_, label)| wanted.is_none_or(|wanted| wanted == label)).collect();
    let mut found = Vec::new();
    for (index, label) in chosen {
        match run.schedstat(index, &signals.stop).map_err(failed)? {
            Some(counted) => found.push((format!("{label} in {}", path.display()), counted)),
            None => {
                let message = format!("{}: a trial under {label} has no accounts of domains", path.display());
                return Err(Failure::usage("warmcore::schedstat", message)
                    .help("simulated trials have them, and those of guests"));
            }
        }
    }
    if found.is_empty() {
        let message = format!("{}: there is no scheduler {}", path.display(), wanted.unwrap_or_default());
        return Err(Failure::usage("warmcore::schedstat", message));
    }
    Ok(found)
}

fn document(name: String, counted: &Schedstat) -> ColumnDocument {
    let level = |values: [Option<u64>; DOMAIN_COUNTERS]| {
        let known = values.into_iter().enumerate();
        known.filter_map(|(place, value)| Some((domain_field(place), value?))).collect()
    };
    ColumnDocument {
        name,
        cpus: CPU_FIELDS.into_iter().zip(counted.totals()).collect(),
        domains: counted.by_level().into_iter().map(|(name, values)| (name, level(values))).collect(),
        text: counted.to_string(),
    }
}

/// A row for each counter that is not 0 everywhere.
fn table(columns: &[(String, Schedstat)]) -> Table {
    let headers: Vec<String> = columns.iter().map(|(name, _)| format!(">{name}")).collect();
    let headings = ["domain", "counter"].into_iter().chain(headers.iter().map(String::as_str));
    let mut table = Table::new(headings);
    let shown = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
    let mut row = |level: &str, counter: &str, values: Vec<Option<u64>>| {
        if values.iter().any(|value| value.is_some_and(|value| value > 0)) {
            table.row([level.to_owned(), counter.to_owned()].into_iter().chain(values.into_iter().map(shown)));
        }
    };
    let totals: Vec<_> = columns.iter().map(|(_, counted)| counted.totals()).collect();
    for (place, field) in CPU_FIELDS.iter().enumerate() {
        row("all CPUs", field, totals.iter().map(|values| Some(values[place])).collect());
    }
    let levels: Vec<_> = columns.iter().map(|(_, counted)| counted.by_level()).collect();
    // As they stand in the first text that has them.
    let mut known = BTreeSet::new();
    let names = levels.iter().flatten().map(|(name, _)| name).filter(|name| known.insert(name.as_str()));
    let by_name: Vec<BTreeMap<&str, _>> =
        levels.iter().map(|levels| levels.iter().map(|(name, values)| (name.as_str(), values)).collect()).collect();
    for name in names {
        for place in 0..DOMAIN_COUNTERS {
            let values = by_name.iter().map(|levels| levels.get(name.as_str()).and_then(|values| values[place]));
            row(name, &domain_field(place), values.collect());
        }
    }
    table
}
