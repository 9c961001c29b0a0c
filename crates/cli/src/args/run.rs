//! What can be typed about runs, whatever command makes them: their options. A new one is a field here and a line of `options`.

use clap::Args;
use warmcore_options::RunOptions;

use super::values::{parse_time, parse_time_or_0};

/// What any run can be asked for.
#[derive(Args, Debug)]
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
    /// What each run is asked for.
    pub fn options(&self) -> RunOptions {
        RunOptions { warm_up_ns: self.warm_up, max_time_ns: self.max_time, ..RunOptions::default() }
    }
}

/// What a run can be asked for whose events are kept.
#[derive(Args, Debug)]
pub struct TableArguments {
    /// Sample what the scheduler ranks tasks by (lag, virtual runtime) into the event tables, at ticks and switches of each
    /// CPU, no more often than this: 1ms. Needs --trace full; `report` samples by itself where it simulates a trial again
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    scores: Option<u64>,
}

impl TableArguments {
    /// What each run is asked for.
    pub fn options(&self, run: &RunArguments) -> RunOptions {
        RunOptions { scores_every_ns: self.scores, ..run.options() }
    }
}
