//! What can be typed about finished runs.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::values::{directory, page, parse_length, parse_time};

/// Arguments of `report`.
#[derive(Args, Debug)]
pub struct ReportArguments {
    /// Run directories; several are shown one after the other and compared with the first
    #[arg(value_name = "RUN", required = true, value_hint = ValueHint::DirPath)]
    pub runs: Vec<PathBuf>,
    /// Page to write; by default report.html in the run directory
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = page())]
    pub html: Option<PathBuf>,
    /// Directory for every figure as SVG, with its data as CSV; with --figure the file for that one
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub svg: Option<PathBuf>,
    /// Directory for every figure as PDF; with --figure the file for that one
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub pdf: Option<PathBuf>,
    /// Draw one figure only, into the file that --svg or --pdf names; NAME:WIDTH has that width, such as ratio:85mm, a column of a paper, and no title
    #[arg(long, value_name = "NAME", value_parser = parse_figure)]
    pub figure: Option<FigureWanted>,
    /// Markdown to write, with the table of a patch letter; `-` for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub markdown: Option<PathBuf>,
    /// Perfetto trace of the trial that the page looks at. FILE itself for one scheduler (`-` for standard output); for
    /// several one file each, FILE with `-SCHEDULER` before its ending. A directory, or a name that ends with `/`:
    /// trace-SCHEDULER.pftrace in it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with = "no_timeline")]
    pub perfetto: Option<PathBuf>,
    /// Events of that trial as text, one a line; FILE as for --perfetto, in a directory trace-SCHEDULER.txt
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with = "no_timeline")]
    pub events: Option<PathBuf>,
    /// Page for a class, for a run with a few tasks: a Gantt chart for each scheduler, and which task was chosen and
    /// why
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "no_timeline", value_parser = page())]
    pub lesson: Option<PathBuf>,
    /// Leave out the timeline and everything else that needs the events of a trial
    #[arg(long)]
    pub no_timeline: bool,
}

/// A figure, and how wide it is drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FigureWanted {
    /// Its name.
    pub name: String,
    /// As SVG has it, such as `85mm`; the figure's own width if `None`.
    pub width: Option<String>,
}

fn parse_figure(text: &str) -> Result<FigureWanted, String> {
    let (name, width) = text.split_once(':').map_or((text, None), |(name, width)| (name, Some(width)));
    Ok(FigureWanted { name: name.to_owned(), width: width.map(parse_length).transpose()? })
}

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub struct ExplainArguments {
    /// Run directory, or a recording. Or schedstat:A,B: what kernels and simulated trials counted by CPU and scheduling domain, each a file
    /// with the text of /proc/schedstat or of `perf sched stats report`, BEFORE:AFTER of two such files, or a run directory
    #[arg(value_name = "RUN", value_hint = ValueHint::AnyPath)]
    pub run: PathBuf,
    /// Only this task, by its name or its number (of a recorded thread, the kernel's), or the tasks that have the name;
    /// then also their waits for a CPU, the longest first, and who had the CPU meanwhile
    #[arg(long, value_name = "TASK")]
    pub task: Option<String>,
    /// The migrations and waits closest to this time of the trial, such as 512ms; by default the first migrations and
    /// the longest waits
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub at: Option<u64>,
    /// Only under this scheduler
    #[arg(short, long, value_name = "SCHEDULER")]
    pub scheduler: Option<String>,
    /// Most migrations, and most waits, to show for each scheduler
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = super::whole_number::<usize, { u32::MAX as u64 }>)]
    pub count: usize,
    /// Instead, print what ran when, a line for each slice and migration, like `perf sched timehist`; by default under
    /// the first scheduler
    #[arg(long, conflicts_with_all = ["task", "at", "count"])]
    pub events: bool,
}
