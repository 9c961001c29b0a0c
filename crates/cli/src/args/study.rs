//! Arguments of the verbs about studies.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use warmcore_lab::experiment::MOST_TRIALS;

use super::values::{directory, page, parse_factor};

/// Verbs of `study`.
#[derive(Subcommand, Debug)]
pub enum StudyCommand {
    /// Run studies, compare them with their expectations, and exit with 3 if a figure is not as its file says
    Run(StudyRunArguments),
    /// Show a study's question, runs and expectations, the table of a result (study.json), or a result judged by a study's rows of today
    Show {
        /// A study or a collection by name, a study's file, or a result
        #[arg(value_name = "NAME|FILE")]
        study: String,
        /// An earlier result, or a table of values (values.toml), to judge by the study's present rows, bands and marks
        #[arg(value_name = "RESULT", value_hint = ValueHint::FilePath)]
        result: Option<PathBuf>,
        /// Write the page of a result to this file, replacing it
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = page())]
        page: Option<PathBuf>,
    },
}

/// Arguments of `study run`.
#[derive(Args, Debug)]
pub struct StudyRunArguments {
    /// Studies and collections by name (`list studies`), and files
    #[arg(value_name = "NAME|FILE", required = true)]
    pub studies: Vec<String>,
    /// Read and plan them without running anything
    #[arg(long, conflicts_with_all = ["out", "page"])]
    pub dry_run: bool,
    /// Leave out studies that are marked as long
    #[arg(long)]
    pub short: bool,
    /// Only expectations whose names contain this, and their runs; separate several by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub only: Vec<String>,
    /// This many trials of every cell instead of its own number
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_TRIALS)))]
    pub trials: Option<u32>,
    /// Repeat everything with each assumed cost of the machines times these factors, and with the machines' other
    /// core-to-core tables, and list the judgements that change. The factors are 0.5,2, or others as in
    /// --sensitivity=0.7,1.3
    #[arg(long, value_name = "FACTORS", num_args = 0..=1, require_equals = true, default_missing_value = "0.5,2",
          value_delimiter = ',', value_parser = parse_factor, conflicts_with = "page")]
    pub sensitivity: Vec<f64>,
    /// Directory for the result and a run directory of every experiment; finished experiments do not run again
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// Write the result as a Markdown page to this file, replacing it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = page())]
    pub page: Option<PathBuf>,
    /// Have the workers of the Dask scheduler at this address run the trials; it needs the Python package
    #[arg(long, value_name = "ADDRESS", conflicts_with = "dry_run")]
    pub dask: Option<String>,
}

/// Arguments of `tune`.
#[derive(Args, Debug)]
pub struct TuneArguments {
    /// What is tuned (TOML); docs/how-to/tune.md has an example
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Directory for the result, its figure and all run directories; the same command goes on there
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// Have the workers of the Dask scheduler at this address run the trials
    #[arg(long, value_name = "ADDRESS")]
    pub dask: Option<String>,
}
