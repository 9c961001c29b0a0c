//! The result lines of the imitated programs, from numbers: so that scripts that read the programs' output can read
//! ours. Readers of the same lines are here too.

mod histogram;
mod schbench;

pub use histogram::LatencyHistogram;
pub use schbench::{SchbenchReport, SchbenchSection, parse_schbench, schbench_text};

/// hackbench's lines: its header and `Time:` in seconds, cut off (not rounded) after milliseconds as the program does.
///
/// ```
/// use warmcore_workload::results::{hackbench_lines, parse_hackbench};
/// let text = hackbench_lines("Running in threaded mode", 1_234_999_999);
/// assert_eq!(text, "Running in threaded mode\nTime: 1.234\n");
/// assert_eq!(parse_hackbench(&text), Some(1_234_000_000));
/// ```
pub fn hackbench_lines(header: &str, time_ns: u64) -> String {
    format!("{header}\nTime: {}.{:03}\n", time_ns / 1_000_000_000, time_ns / 1_000_000 % 1_000)
}

/// The time in hackbench's output, in nanoseconds.
pub fn parse_hackbench(text: &str) -> Option<u64> {
    let time = text.lines().find_map(|line| line.strip_prefix("Time: "))?;
    crate::parse_duration(&format!("{}s", time.trim())).ok()
}
