//! What figures of a validation are drawn from: each run's series and distributions as CSV, in a directory of its own.
//!
//! | file of an experiment | a row |
//! |---|---|
//! | `threads_per_cpu.csv` | runnable tasks of a CPU at an instant |
//! | `threads_per_llc.csv` | runnable tasks of an LLC at an instant, and what ran in it until the next |
//! | `distributions.csv` | a percentile of slices or wakeup latencies of a template |
//! | `migrations.csv` | migrations of a kind, or of a distance |
//!
//! Each row begins with the place (`sim`, `vm`), the number of the seed or boot, and the scheduler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use warmcore_trace::MigrationKind;

use super::profile::{Distance, RunProfile, STEP_NS};
use warmcore_lab::files::{At as _, FileError, write_atomically};

const PER_CPU: &str = "threads_per_cpu.csv";
const PER_LLC: &str = "threads_per_llc.csv";
const DISTRIBUTIONS: &str = "distributions.csv";
const MIGRATIONS: &str = "migrations.csv";
/// Names of files with their headings.
const FILES: [(&str, &str); 4] = [
    (PER_CPU, "place,run,scheduler,time_ms,cpu,runnable"),
    (PER_LLC, "place,run,scheduler,time_ms,llc,runnable,run_ns"),
    (DISTRIBUTIONS, "place,run,scheduler,template,what,percentile,ns"),
    (MIGRATIONS, "place,run,scheduler,by,name,count"),
];

/// Which run a profile is of.
#[derive(Clone, Copy, Debug)]
pub struct RunOf<'a> {
    /// The experiment.
    pub experiment: &'a str,
    /// `sim` or `vm`.
    pub place: &'a str,
    /// Number of the seed or the boot.
    pub run: usize,
    /// The scheduler.
    pub scheduler: &'a str,
}

/// Rows of all runs.
#[derive(Clone, Debug, Default)]
pub struct Plots {
    /// By experiment and file.
    rows: BTreeMap<(String, &'static str), String>,
}

impl Plots {
    /// Takes a run.
    pub fn take(&mut self, of: RunOf<'_>, profile: &RunProfile) {
        let head = format!("{},{},{}", of.place, of.run, quoted(of.scheduler));
        let llcs = profile.llcs.iter().max().map_or(0, |last| last + 1);
        let (mut per_cpu, mut per_llc) = (String::new(), String::new());
        for (step, counts) in profile.counts.iter().enumerate() {
            let time_ms = step as u64 * STEP_NS / 1_000_000;
            let mut by_llc = vec![0_u32; llcs];
            for (cpu, count) in counts.iter().enumerate() {
                by_llc[profile.llcs[cpu]] += count;
                let _ = writeln!(per_cpu, "{head},{time_ms},{cpu},{count}");
            }
            for (llc, count) in by_llc.into_iter().enumerate() {
                let ran = profile.llc_run_ns.get(step).map_or(0, |run| run[llc]);
                let _ = writeln!(per_llc, "{head},{time_ms},{llc},{count},{ran}");
            }
        }
        let mut distributions = String::new();
        for group in &profile.groups {
            for (what, values) in [("slice", &group.slices_ns), ("wakeup", &group.wakeups_ns)] {
                let Some(last) = values.len().checked_sub(1) else { continue };
                for percentile in 0..=100 {
                    let (name, value) = (quoted(&group.name), values[last * percentile / 100]);
                    let _ = writeln!(distributions, "{head},{name},{what},{percentile},{value}");
                }
            }
        }
        let mut migrations = String::new();
        for kind in MigrationKind::ALL {
            let _ = writeln!(migrations, "{head},kind,{},{}", kind.name(), profile.migrations_by_kind[kind as usize]);
        }
        for far in Distance::ALL {
            let count = profile.migrations_by_distance[far as usize];
            let _ = writeln!(migrations, "{head},distance,{},{count}", far.name());
        }
        for (file, text) in
            [(PER_CPU, per_cpu), (PER_LLC, per_llc), (DISTRIBUTIONS, distributions), (MIGRATIONS, migrations)]
        {
            self.rows.entry((of.experiment.to_owned(), file)).or_default().push_str(&text);
        }
    }

    /// Writes a directory for each experiment.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), FileError> {
        for ((experiment, file), rows) in &self.rows {
            let place = directory.join(experiment);
            std::fs::create_dir_all(&place).at("create", &place)?;
            let heading = FILES.iter().find(|(name, _)| name == file).map_or("", |(_, heading)| heading);
            write_atomically(&place.join(file), format!("{heading}\n{rows}").as_bytes())?;
        }
        Ok(())
    }
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::profile::TemplateSums;
    use super::*;

    #[test]
    fn every_row_has_the_fields_of_its_heading() {
        let profile = RunProfile {
            groups: vec![TemplateSums { name: "a".into(), slices_ns: vec![1, 5, 9], ..TemplateSums::default() }],
            window_ns: 1,
            counts: vec![vec![1, 2], vec![0, 0]],
            llc_run_ns: vec![vec![3, 4]],
            migrations: 0,
            migrations_by_kind: Default::default(),
            migrations_by_distance: [0; 4],
            llcs: vec![0, 1],
            from_ns: 0,
        };
        let mut plots = Plots::default();
        plots.take(RunOf { experiment: "x", place: "vm", run: 1, scheduler: "cache-aware:a=1,b=2" }, &profile);
        let directory = tempfile::tempdir().unwrap();
        plots.write(directory.path()).unwrap();
        for (file, heading) in FILES {
            let text = std::fs::read_to_string(directory.path().join("x").join(file)).unwrap();
            let mut lines = text.lines();
            assert_eq!(lines.next(), Some(heading));
            let rows: Vec<&str> = lines.collect();
            assert!(!rows.is_empty(), "{file}");
            // The scheduler's comma is within quotes.
            let fields = heading.split(',').count() + 1;
            assert!(rows.iter().all(|row| row.split(',').count() == fields), "{file}: {}", rows[0]);
        }
        let text = std::fs::read_to_string(directory.path().join("x").join(PER_LLC)).unwrap();
        assert!(text.contains("vm,1,\"cache-aware:a=1,b=2\",0,1,2,4\n"), "{text}");
        let text = std::fs::read_to_string(directory.path().join("x").join(DISTRIBUTIONS)).unwrap();
        assert!(text.contains(",a,slice,50,5\n") && !text.contains("wakeup"), "{text}");
    }
}
