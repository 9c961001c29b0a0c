//! What can be typed about runs, whatever command makes them: their options. A new one is a field here and a line of `options`.

use clap::Args;
use warmcore_options::RunOptions;

use super::values::{TraceWanted, parse_time, parse_time_or_0};

/// What any run can be asked for.
#[derive(Args, Debug)]
#[command(next_help_heading = "Where and how")]
pub struct RunArguments {
    /// Count nothing of a run that happens so long after its start: 500ms; 0 counts all of it. If not given, the workload's own (schbench's -w,
    /// sysbench's --warmup-time), or 1 s, but at most a third, where a verdict is about a percentile of a workload that runs for a fixed time
    #[arg(long, value_name = "TIME", value_parser = parse_time_or_0)]
    warm_up: Option<u64>,
    /// End each run at this simulated time, such as 5s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    max_time: Option<u64>,
}

impl RunArguments {
    /// What each run is asked for, and what `--trace` says of event tables.
    pub fn options(&self, trace: Option<TraceWanted>) -> RunOptions {
        RunOptions {
            warm_up_ns: self.warm_up,
            max_time_ns: self.max_time,
            scores_every_ns: trace.and_then(|trace| trace.scores_every_ns),
            ..RunOptions::default()
        }
    }
}
