//! What can be typed about runs, whatever command makes them: their options. A new one is a field here and a line of `options`.

use clap::Args;
use warmcore_options::RunOptions;

use super::values::{TraceWanted, parse_time, parse_time_or_0};

/// Settings of any run.
#[derive(Args, Debug)]
#[command(next_help_heading = "Where and how")]
pub struct RunArguments {
    /// Leave out this much of the beginning of a run: 500ms; 0 counts all of it. The default is the workload's own
    /// (schbench's -w, sysbench's --warmup-time). Otherwise it is 1 s, but at most a third of the run, if the run has a
    /// fixed length, no task ends earlier, and the verdict is about a percentile
    #[arg(long, value_name = "TIME", value_parser = parse_time_or_0)]
    warm_up: Option<u64>,
    /// End each run at this simulated time, such as 5s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    max_time: Option<u64>,
}

impl RunArguments {
    /// Settings of each run, with the event tables of `--trace`.
    pub fn options(&self, trace: Option<TraceWanted>) -> RunOptions {
        RunOptions {
            warm_up_ns: self.warm_up,
            max_time_ns: self.max_time,
            scores_every_ns: trace.and_then(|trace| trace.scores_every_ns),
            ..RunOptions::default()
        }
    }
}
