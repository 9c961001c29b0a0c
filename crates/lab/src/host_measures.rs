//! Measures of trials on real computers: what else went on, CPU time, and what a command prints.
//!
//! What a command prints is looked for where nobody says so, too: the lines of the benchmarks that the generators imitate. Formats of these
//! lines: hackbench 2.x and `perf bench` (`Time:`, `Total time:`), schbench 1.0 (percentiles in µs), sysbench 1.0.

use std::collections::BTreeMap;

use regex_lite::Regex;
use warmcore_statistics::Better;

use crate::measures::{Measure, Unit};
use crate::printed_number::{self, NotRead, Number};

/// Name of the measure of CPU time.
pub(crate) const CPU_TIME: &str = "cpu_time_ns";

/// Begins a metric of which more is better.
const HIGHER: &str = "higher:";

/// A line of a benchmark that is known.
struct BenchmarkLine {
    name: &'static str,
    title: &'static str,
    unit: Unit,
    /// From what is printed to the unit.
    factor: f64,
    better: Better,
    pattern: &'static str,
    /// Which one is the result, if there are several.
    which: Which,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    /// Those before it are of the time so far.
    Last,
}

const LINES: [BenchmarkLine; 6] = [
    BenchmarkLine {
        name: "printed_hackbench_time_ns",
        title: "hackbench's printed time",
        unit: Unit::Ns,
        factor: 1e9,
        better: Better::Lower,
        pattern: r"(?m)^Time: ([0-9.]+)\s*$",
        which: Which::First,
    },
    BenchmarkLine {
        name: "printed_total_time_ns",
        title: "printed total time",
        unit: Unit::Ns,
        factor: 1e9,
        better: Better::Lower,
        pattern: r"(?m)^\s*Total time: ([0-9.]+) \[sec\]",
        which: Which::First,
    },
    BenchmarkLine {
        name: "printed_schbench_wakeup_p99_ns",
        title: "schbench's printed wakeup p99",
        unit: Unit::Ns,
        factor: 1e3,
        better: Better::Lower,
        pattern: r"(?m)^Wakeup Latencies.*(?:\n[ \t].*)*?\n[ \t*]*99\.0th: ([0-9]+)",
        which: Which::Last,
    },
    BenchmarkLine {
        name: "printed_schbench_request_p99_ns",
        title: "schbench's printed request p99",
        unit: Unit::Ns,
        factor: 1e3,
        better: Better::Lower,
        pattern: r"(?m)^Request Latencies.*(?:\n[ \t].*)*?\n[ \t*]*99\.0th: ([0-9]+)",
        which: Which::Last,
    },
    BenchmarkLine {
        name: "printed_transactions_per_s",
        title: "sysbench's printed transactions per second",
        unit: Unit::PerS,
        factor: 1.0,
        better: Better::Higher,
        pattern: r"(?m)^\s*transactions:\s+[0-9]+\s+\(([0-9.]+) per sec\.\)",
        which: Which::First,
    },
    BenchmarkLine {
        name: "printed_events_per_s",
        title: "sysbench's printed events per second",
        unit: Unit::PerS,
        factor: 1.0,
        better: Better::Higher,
        pattern: r"(?m)^\s*events per second:\s+([0-9.]+)",
        which: Which::First,
    },
];

impl BenchmarkLine {
    /// What is printed there, in its unit.
    fn value(&self, output: &str) -> Option<f64> {
        let pattern = Regex::new(self.pattern).ok()?;
        let found = match self.which {
            Which::First => pattern.captures(output),
            Which::Last => pattern.captures_iter(output).last(),
        };
        let value: f64 = found?.get(1)?.as_str().parse().ok()?;
        Some(self.factor * value)
    }
}

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
            "CPU time of all other processes on this computer during the trial, over its length",
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
    all.extend(LINES.iter().map(|line| measure(line.name, line.title, line.unit, line.better, definition)));
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
        let pattern = Regex::new(pattern).map_err(|error| format!("`{text}` is not a regular expression: {error}"))?;
        match pattern.captures_len() {
            1 | 2 => Ok(Some(Self::Pattern(pattern))),
            more => Err(format!("`{text}` has {} groups; one may be the number, write others as (?:…)", more - 1)),
        }
    }

    /// The number there; `None` if the text or the pattern is not found.
    fn value(&self, output: &str) -> Option<Result<Number, NotRead>> {
        match self {
            Self::After(text) => Some(printed_number::read(output.split_once(text.as_str())?.1.trim_start())),
            Self::Pattern(pattern) => {
                let found = pattern.captures(output)?;
                let (all, group) = (found.get(0)?, found.get(found.len() - 1)?);
                // What a pattern matches beside its group, its author knows of.
                let goes_on = all.end() == group.end() && !group.is_empty();
                let number = &output[group.start()..if goes_on { output.len() } else { group.end() }];
                let is_cut = all.start() == group.start() && printed_number::is_cut(&output[..group.start()], number);
                Some(if is_cut { Err(NotRead::Cut) } else { printed_number::read(number.trim_start()) })
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
    let definition = "the number that the command prints there, with its factor (k, K, M, G, T); in nanoseconds if it has a unit of time";
    let measure = Measure::of_outcome(metric, text, Unit::One, better, definition);
    Ok(Some(Measure { least: f64::MIN_POSITIVE, ..measure }))
}

/// What was printed, by measure, and what is to be known of the metric's value.
pub(crate) fn printed(metric: Option<&str>, output: &str) -> (BTreeMap<String, Option<f64>>, Option<String>) {
    let known = LINES.iter().filter_map(|line| Some((line.name.to_owned(), Some(line.value(output)?))));
    let mut values: BTreeMap<String, Option<f64>> = known.collect();
    let spot = metric.and_then(|metric| Spot::parse(metric.strip_prefix(HIGHER).unwrap_or(metric)).ok().flatten());
    let (Some(metric), Some(spot)) = (metric, spot) else { return (values, None) };
    let (value, note) = match spot.value(output) {
        Some(Ok(Number { value, is_time: true })) => {
            (Some(value), Some(format!("`{metric}` is in nanoseconds: the command prints a unit of time with it")))
        }
        Some(Ok(Number { value, is_time: false })) => (Some(value), None),
        Some(Err(reason)) => (None, Some(format!("`{metric}` has no value: {reason}"))),
        None => (None, None),
    };
    values.insert(metric.to_owned(), value);
    (values, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metric: &str, output: &str) -> Option<f64> {
        assert!(asked(metric).unwrap().is_some());
        printed(Some(metric), output).0[metric]
    }

    fn note(metric: &str, output: &str) -> String {
        printed(Some(metric), output).1.unwrap()
    }

    #[test]
    fn a_number_after_a_text_or_in_a_pattern_is_found() {
        let output = "Running\nTime: 0.389\nops: 12 of 1.5e3 per s\n";
        assert_eq!(value("after:Time:", output), Some(0.389));
        assert_eq!(value("after:Speed:", output), None);
        assert_eq!(value("higher:regex:of ([0-9.e]+) per", output), Some(1500.0));
        assert_eq!(value(r"regex:\d+\.\d+", output), Some(0.389));
        assert_eq!(value(r"regex:(?m)^ops: (\S+)", output), Some(12.0));
        assert_eq!(value("regex:(Running)", output), None, "no number");
    }

    #[test]
    fn a_number_that_is_found_is_whole_or_none_and_a_note_says_why() {
        assert_eq!(value("after:rps", "rps 1,001.5"), Some(1001.5));
        assert_eq!(value("higher:regex:rps ([0-9]+)", "rps 1,001.5"), Some(1001.5), "also behind the group");
        assert_eq!(value("after:Requests/sec:", "Requests/sec:  12.5k\n"), Some(12_500.0));
        let (slow, fast) = ("Latency 1.25ms", "Latency   900.5us   1.2us");
        assert_eq!((value("after:Latency", slow), value("after:Latency", fast)), (Some(1_250_000.0), Some(900_500.0)));
        assert_eq!(value("regex:Latency +([0-9.]+)", fast), Some(900_500.0));
        assert!(note("after:Latency", slow).starts_with("`after:Latency` is in nanoseconds"));
        let shares = "idle 12.5% of all";
        assert_eq!((value("after:idle", shares), value("regex:([0-9.]+)%", shares)), (None, Some(12.5)));
        assert!(note("after:idle", shares).starts_with("`after:idle` has no value: `%` after the number"));
        assert_eq!(value(r"regex:\d+\.\d+", "rps 1,001.5"), None);
        assert!(note(r"regex:\d+\.\d+", "rps 1,001.5").contains("begins inside a number"));
        assert_eq!(printed(Some("after:rps"), "rps 12").1, None);
    }

    #[test]
    fn the_last_percentiles_of_schbench_are_the_result() {
        let block = |kind: &str, p99: u32| {
            format!(
                "{kind} Latencies percentiles (usec) runtime 10 (s) (9 total samples)\n\t  50.0th: 7          (5 samples)\n\t* 99.0th: {p99}         (1 samples)\n\t  99.9th: 99         (1 samples)\n\t  min=1, max=99\n"
            )
        };
        let both = |wakeup, request| format!("{}{}", block("Wakeup", wakeup), block("Request", request));
        let output =
            format!("warmup done\n{}current rps: 12.00\n{}average rps: 12.00\n", both(50, 5000), both(19, 4000));
        let (values, _) = printed(None, &output);
        assert_eq!(values["printed_schbench_wakeup_p99_ns"], Some(19e3));
        assert_eq!(values["printed_schbench_request_p99_ns"], Some(4e6));
        // A block without that percentile does not take it from the next one.
        let without = format!("Wakeup Latencies percentiles (usec)\n\t  50.0th: 7\n{}", block("Request", 40));
        assert!(!printed(None, &without).0.contains_key("printed_schbench_wakeup_p99_ns"));
    }

    #[test]
    fn what_is_no_place_in_a_text_is_refused() {
        assert!(asked("regex:(").unwrap_err().contains("is not a regular expression"));
        assert!(asked("regex:(a)(b)").unwrap_err().contains("has 2 groups"));
        assert!(asked("after:").unwrap_err().contains("needs the text"));
        assert_eq!(asked("elapsed_ns").unwrap(), None);
    }

    #[test]
    fn lines_of_benchmarks_are_known() {
        let values = |output: &str| {
            printed(None, output).0.into_iter().map(|(name, value)| (name, value.unwrap())).collect::<Vec<_>>()
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
