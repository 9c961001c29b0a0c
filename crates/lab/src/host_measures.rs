//! Measures of trials on real computers: what else went on, CPU time, and what a command prints.
//!
//! What a command prints is looked for where nobody says so, too: the lines of the benchmarks that the generators imitate. Formats of these
//! lines: hackbench 2.x and `perf bench` (`Time:`, `Total time:`), schbench 1.0 (percentiles in µs), sysbench 1.0.

use std::collections::BTreeMap;

use regex_lite::Regex;
use warmcore_statistics::Better;

use crate::measures::{Measure, Unit};

/// Name of the measure of CPU time.
pub(crate) const CPU_TIME: &str = "cpu_time_ns";

/// Begins a metric of which more is better.
const HIGHER: &str = "higher:";

/// Lines of benchmarks: name of the measure, title, unit, factor to it, direction, pattern.
const LINES: [(&str, &str, Unit, f64, Better, &str); 6] = [
    (
        "printed_hackbench_time_ns",
        "hackbench's printed time",
        Unit::Ns,
        1e9,
        Better::Lower,
        r"(?m)^Time: ([0-9.]+)\s*$",
    ),
    (
        "printed_total_time_ns",
        "printed total time",
        Unit::Ns,
        1e9,
        Better::Lower,
        r"(?m)^\s*Total time: ([0-9.]+) \[sec\]",
    ),
    (
        "printed_schbench_wakeup_p99_ns",
        "schbench's printed wakeup p99",
        Unit::Ns,
        1e3,
        Better::Lower,
        r"(?s)^Wakeup Latencies.*?99\.0th: ([0-9]+)",
    ),
    (
        "printed_schbench_request_p99_ns",
        "schbench's printed request p99",
        Unit::Ns,
        1e3,
        Better::Lower,
        r"(?s)Request Latencies.*?99\.0th: ([0-9]+)",
    ),
    (
        "printed_transactions_per_s",
        "sysbench's printed transactions per second",
        Unit::PerS,
        1.0,
        Better::Higher,
        r"(?m)^\s*transactions:\s+[0-9]+\s+\(([0-9.]+) per sec\.\)",
    ),
    (
        "printed_events_per_s",
        "sysbench's printed events per second",
        Unit::PerS,
        1.0,
        Better::Higher,
        r"(?m)^\s*events per second:\s+([0-9.]+)",
    ),
];

/// All of them.
pub(crate) fn all() -> Vec<Measure> {
    let measure = |name: &str, title: &str, unit, better, definition: &str| Measure {
        optional: true,
        least: f64::MIN_POSITIVE,
        ..Measure::of_outcome(name, title, unit, better, definition)
    };
    let mut all = vec![
        measure(
            CPU_TIME,
            "CPU time",
            Unit::Ns,
            Better::Lower,
            "CPU time of the workload's tasks; of a command that of the trial's first process and of what it waited for, by the kernel's accounts",
        ),
        measure(
            "others_cpus",
            "CPUs of others",
            Unit::One,
            Better::Neither,
            "CPU time of everybody else on this computer during the trial, over its length",
        ),
        measure(
            "steal_cpus",
            "CPUs given away",
            Unit::One,
            Better::Neither,
            "time that a hypervisor gave to other computers during the trial, over its length",
        ),
    ];
    let definition = "what the command prints";
    all.extend(LINES.iter().map(|(name, title, unit, _, better, _)| measure(name, title, *unit, *better, definition)));
    all
}

/// A number in what a command prints.
#[derive(Clone, Debug)]
enum Spot {
    /// After this text.
    After(String),
    /// What the first group of a pattern matches, or all that the pattern does.
    Pattern(Regex),
}

impl Spot {
    /// Reads `after:TEXT` or `regex:PATTERN`; `None` for anything else.
    fn parse(text: &str) -> Result<Option<Self>, String> {
        if let Some(before) = text.strip_prefix("after:") {
            return match before {
                "" => Err("`after:` needs the text that the number follows".into()),
                before => Ok(Some(Self::After(before.to_owned()))),
            };
        }
        let Some(pattern) = text.strip_prefix("regex:") else { return Ok(None) };
        let pattern = Regex::new(pattern).map_err(|error| format!("`{text}` is no regular expression: {error}"))?;
        match pattern.captures_len() {
            1 | 2 => Ok(Some(Self::Pattern(pattern))),
            more => Err(format!("`{text}` has {} groups; one may be the number, write others as (?:…)", more - 1)),
        }
    }

    fn value(&self, output: &str) -> Option<f64> {
        match self {
            Self::After(text) => {
                let rest = output.split_once(text.as_str())?.1.trim_start();
                let of_number = |c: &char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e');
                rest.chars().take_while(of_number).collect::<String>().parse().ok()
            }
            Self::Pattern(pattern) => {
                let found = pattern.captures(output)?;
                found.get(found.len() - 1)?.as_str().trim().parse().ok()
            }
        }
    }
}

/// The measure of a metric that is a number in what a command prints: `after:TEXT` or `regex:PATTERN`, of which less is better, or more with
/// `higher:` before it. `None` if the metric is a name.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn asked(metric: &str) -> Result<Option<Measure>, String> {
    let (better, text) = match metric.strip_prefix(HIGHER) {
        Some(text) => (Better::Higher, text),
        None => (Better::Lower, metric),
    };
    let Some(_) = Spot::parse(text)? else { return Ok(None) };
    let definition = "the number that the command prints there";
    let measure = Measure::of_outcome(metric, text, Unit::One, better, definition);
    Ok(Some(Measure { least: f64::MIN_POSITIVE, ..measure }))
}

/// What was printed, by measure.
pub(crate) fn printed(metric: Option<&str>, output: &str) -> BTreeMap<String, Option<f64>> {
    let mut values = BTreeMap::new();
    for (name, _, _, factor, _, pattern) in LINES {
        let place = Regex::new(pattern).ok().map(Spot::Pattern);
        if let Some(value) = place.and_then(|place| place.value(output)) {
            values.insert(name.to_owned(), Some(factor * value));
        }
    }
    if let Some(metric) = metric
        && let Ok(Some(place)) = Spot::parse(metric.strip_prefix(HIGHER).unwrap_or(metric))
    {
        values.insert(metric.to_owned(), place.value(output));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metric: &str, output: &str) -> Option<f64> {
        assert!(asked(metric).unwrap().is_some());
        printed(Some(metric), output)[metric]
    }

    #[test]
    fn a_number_after_a_text_or_in_a_pattern_is_found() {
        let output = "Running\nTime: 0.389 s\nops: 12 of 1.5e3 per s\n";
        assert_eq!(value("after:Time:", output), Some(0.389));
        assert_eq!(value("after:Speed:", output), None);
        assert_eq!(value("higher:regex:of ([0-9.e]+) per", output), Some(1500.0));
        assert_eq!(value(r"regex:\d+\.\d+", output), Some(0.389));
        assert_eq!(value(r"regex:(?m)^ops: (\S+)", output), Some(12.0));
        assert_eq!(value("regex:(Running)", output), None, "no number");
    }

    #[test]
    fn what_is_no_place_in_a_text_is_refused() {
        assert!(asked("regex:(").unwrap_err().contains("is no regular expression"));
        assert!(asked("regex:(a)(b)").unwrap_err().contains("has 2 groups"));
        assert!(asked("after:").unwrap_err().contains("needs the text"));
        assert_eq!(asked("elapsed_ns").unwrap(), None);
    }

    #[test]
    fn lines_of_benchmarks_are_known() {
        let values = |output: &str| {
            printed(None, output).into_iter().map(|(name, value)| (name, value.unwrap())).collect::<Vec<_>>()
        };
        let hackbench = "Running in process mode with 10 groups\nTime: 0.250\n";
        assert_eq!(values(hackbench), [("printed_hackbench_time_ns".to_owned(), 0.25e9)]);
        let schbench = "Wakeup Latencies percentiles (usec) runtime 10 (s)\n\t  50.0th: 7\n\t* 99.0th: 19\nRequest Latencies percentiles (usec)\n\t* 99.0th: 4000\n";
        let expected =
            [("printed_schbench_request_p99_ns".to_owned(), 4e6), ("printed_schbench_wakeup_p99_ns".to_owned(), 19e3)];
        assert_eq!(values(schbench), expected);
        let sysbench = "SQL statistics:\n    transactions:                        1200   (119.95 per sec.)\n";
        assert_eq!(values(sysbench), [("printed_transactions_per_s".to_owned(), 119.95)]);
        assert!(values("nothing\n").is_empty());
    }
}
