//! The result lines of the imitated programs, from numbers: so that scripts that read the programs' output can read
//! ours. Readers of the same lines are here too.

mod histogram;
mod schbench;
mod sysbench;

use crate::{HACKBENCH_TIME, ResultStyle, Workload};

pub use histogram::LatencyHistogram;
pub use schbench::{SchbenchReport, SchbenchSection, parse_schbench, schbench_text};
pub use sysbench::{SysbenchReport, sysbench_text};

/// A text as part of a measure's name: ASCII letters and digits stay, what lies between them becomes one `_`.
pub fn as_measure_name(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

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

/// The result lines of a workload, from the samples (ns) of each of its recorders: those of the program it imitates,
/// or `None` if it imitates none. A hackbench that was cut off has no time.
pub fn result_lines(workload: &Workload, samples: &[Vec<u64>], elapsed_ns: u64) -> Option<String> {
    let samples = |index: usize| samples.get(index).map_or(&[][..], Vec::as_slice);
    match &workload.style {
        ResultStyle::Plain => None,
        ResultStyle::Hackbench { header } => {
            let recorder = workload.recorders.iter().position(|name| name == HACKBENCH_TIME);
            match recorder.and_then(|recorder| samples(recorder).first()) {
                Some(&time_ns) => Some(hackbench_lines(header, time_ns)),
                None => Some(format!("{header}\n")),
            }
        }
        ResultStyle::Schbench { wakeup, request } => {
            let mut report = SchbenchReport { runtime_ns: elapsed_ns, ..SchbenchReport::default() };
            for &ns in samples(wakeup.index()) {
                report.wakeup.add_latency_ns(ns);
            }
            for &ns in samples(request.index()) {
                report.request.add_latency_ns(ns);
            }
            report.requests = samples(request.index()).len() as u64;
            // Like schbench in a run of a second or less: one count of requests per second.
            let per_second = u128::from(report.requests) * 1_000_000_000 / u128::from(elapsed_ns.max(1));
            report.requests_per_second.add(per_second as u64);
            Some(schbench_text(&report))
        }
        ResultStyle::Sysbench { transaction } => {
            let mut latencies = samples(transaction.index()).to_vec();
            latencies.sort_unstable();
            let at =
                |part: f64| latencies.get(((latencies.len() as f64 * part) as usize).min(latencies.len().max(1) - 1));
            Some(sysbench_text(&SysbenchReport {
                transactions: latencies.len() as u64,
                elapsed_ns,
                min_ns: latencies.first().copied().unwrap_or(0),
                p95_ns: at(0.95).copied().unwrap_or(0),
                max_ns: latencies.last().copied().unwrap_or(0),
                sum_ns: latencies.iter().map(|&ns| u128::from(ns)).sum(),
            }))
        }
    }
}

/// The time in hackbench's output, in nanoseconds.
pub fn parse_hackbench(text: &str) -> Option<u64> {
    let time = text.lines().find_map(|line| line.strip_prefix("Time: "))?;
    crate::parse_duration(&format!("{}s", time.trim())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(workload: &Workload, recorder: &str, values: &[u64]) -> Vec<Vec<u64>> {
        workload.recorders.iter().map(|name| if name == recorder { values.to_vec() } else { Vec::new() }).collect()
    }

    #[test]
    fn hackbench_workloads_print_hackbenchs_lines() {
        let workload = crate::from_generator("hackbench:-T,-f1,-g1").unwrap();
        let text = result_lines(&workload, &samples(&workload, HACKBENCH_TIME, &[19_999_999]), 1).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("Running in threaded mode with 1 groups using 2 file descriptors each (== 2 tasks)")
        );
        assert_eq!(lines[2], "Time: 0.019");
        let cut_off = result_lines(&workload, &[Vec::new()], 1).unwrap();
        assert_eq!(parse_hackbench(&cut_off), None);
    }

    #[test]
    fn schbench_workloads_print_schbenchs_report() {
        let workload = crate::from_generator("schbench:-t1,-L").unwrap();
        let samples = samples(&workload, "request latency", &[5_000_000; 20]);
        let text = result_lines(&workload, &samples, 2_000_000_000).unwrap();
        assert!(text.contains("average rps: 10.00"), "{text}");
        assert_eq!(parse_schbench(&text)[1].percentiles.len(), 4);
    }

    #[test]
    fn other_workloads_have_no_result_lines() {
        assert_eq!(result_lines(&crate::from_generator("spin").unwrap(), &[], 1), None);
    }
}
