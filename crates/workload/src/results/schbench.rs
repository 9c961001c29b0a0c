//! schbench's report: percentiles of wakeup latencies, request latencies and requests per second.
//!
//! Format of the present program (2023 and later): a heading per section, one line per percentile with `*` before the
//! headline, then minimum and maximum; at the end `average rps:`. Versions before wrote `*99.0th` without a space and
//! had other percentiles: the reader accepts both.

use std::fmt::Write;

use super::LatencyHistogram;

/// Numbers of a schbench run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SchbenchReport {
    /// Wakeup latencies, µs.
    pub wakeup: LatencyHistogram,
    /// Request latencies, µs.
    pub request: LatencyHistogram,
    /// Requests in each second of the run.
    pub requests_per_second: LatencyHistogram,
    /// Requests in the whole run.
    pub requests: u64,
    /// Length of the run.
    pub runtime_ns: u64,
}

/// The percentiles of latencies, in tenths; the headline is the third.
const LATENCY_PERCENTILES: [u64; 4] = [500, 900, 990, 999];
/// The percentiles of requests per second, in tenths; the headline is the second.
const RATE_PERCENTILES: [u64; 3] = [200, 500, 900];

/// The report as schbench prints it (on stderr).
pub fn schbench_text(report: &SchbenchReport) -> String {
    let mut text = String::new();
    // Whole seconds, as the program has them; it never runs for less than one.
    let runtime = match report.runtime_ns {
        ns @ 1..1_000_000_000 => (ns as f64 / 1e9).to_string(),
        ns => (ns / 1_000_000_000).to_string(),
    };
    let latency = ("usec", LATENCY_PERCENTILES.as_slice(), 990);
    let rate = ("requests", RATE_PERCENTILES.as_slice(), 500);
    for (label, histogram, (unit, percentiles, headline)) in [
        ("Wakeup Latencies", &report.wakeup, latency),
        ("Request Latencies", &report.request, latency),
        ("RPS", &report.requests_per_second, rate),
    ] {
        let total = histogram.total();
        let _ = writeln!(text, "{label} percentiles ({unit}) runtime {runtime} (s) ({total} total samples)");
        for (&tenths, (value, count)) in percentiles.iter().zip(histogram.percentiles(percentiles)) {
            let star = if tenths == headline { "* " } else { "  " };
            let _ = writeln!(text, "\t{star}{}.{}th: {value:<10} ({count} samples)", tenths / 10, tenths % 10);
        }
        let _ = writeln!(text, "\t  min={}, max={}", histogram.min(), histogram.max());
    }
    // Two decimals of requests per second, in integers so that every computer prints the same.
    let hundredths = u128::from(report.requests) * 100_000_000_000 / u128::from(report.runtime_ns.max(1));
    let _ = writeln!(text, "average rps: {}.{:02}", hundredths / 100, hundredths % 100);
    text
}

/// A section of a schbench report as read.
#[derive(Clone, PartialEq, Debug)]
pub struct SchbenchSection {
    /// Its heading, such as `Wakeup Latencies`.
    pub label: String,
    /// Percentiles in per cent with their values.
    pub percentiles: Vec<(f64, u64)>,
    /// The percentile that is marked as headline.
    pub headline: Option<(f64, u64)>,
    /// Smallest value.
    pub min: Option<u64>,
    /// Largest value.
    pub max: Option<u64>,
}

/// Reads schbench's output. Reports are printed at intervals; of each section the last one counts.
pub fn parse_schbench(text: &str) -> Vec<SchbenchSection> {
    let mut sections: Vec<SchbenchSection> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        // Versions before 2023 wrote "Latency percentiles (usec)" for the only section.
        if let Some((label, _)) = line.split_once(" percentiles (") {
            sections.retain(|section| section.label != label);
            let label = label.to_owned();
            sections.push(SchbenchSection { label, percentiles: Vec::new(), headline: None, min: None, max: None });
        } else if let Some(section) = sections.last_mut() {
            read_line(line, section);
        }
    }
    sections
}

fn read_line(line: &str, section: &mut SchbenchSection) {
    let starred = line.starts_with('*');
    let line = line.trim_start_matches('*').trim_start();
    if let Some((percentile, rest)) = line.split_once("th:") {
        let value = rest.split_whitespace().next().and_then(|value| value.parse().ok());
        if let (Ok(percentile), Some(value)) = (percentile.parse(), value) {
            section.percentiles.push((percentile, value));
            if starred {
                section.headline = Some((percentile, value));
            }
        }
    } else if let Some((min, max)) = line.strip_prefix("min=").and_then(|line| line.split_once(", max=")) {
        section.min = min.parse().ok();
        section.max = max.parse().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SchbenchReport {
        let mut report = SchbenchReport { requests: 30, runtime_ns: 2_500_000_000, ..SchbenchReport::default() };
        for ns in 1..=1_000 {
            report.wakeup.add_latency_ns(ns * 1_000);
        }
        for _ in 0..30 {
            report.request.add_latency_ns(17_000_000);
        }
        report.requests_per_second.add(12);
        report
    }

    #[test]
    fn a_run_of_half_a_second_is_not_called_one_of_none() {
        let text = schbench_text(&SchbenchReport { runtime_ns: 500_000_000, requests: 84, ..report() });
        assert!(text.starts_with("Wakeup Latencies percentiles (usec) runtime 0.5 (s) (1000 total samples)"), "{text}");
        assert!(text.ends_with("average rps: 168.00\n"), "{text}");
    }

    #[test]
    fn the_text_has_schbenchs_form() {
        let expected = "\
Wakeup Latencies percentiles (usec) runtime 2 (s) (1000 total samples)
\t  50.0th: 500        (500 samples)
\t  90.0th: 901        (401 samples)
\t* 99.0th: 991        (90 samples)
\t  99.9th: 999        (8 samples)
\t  min=1, max=1000
Request Latencies percentiles (usec) runtime 2 (s) (30 total samples)
\t  50.0th: 16992      (30 samples)
\t  90.0th: 16992      (0 samples)
\t* 99.0th: 16992      (0 samples)
\t  99.9th: 16992      (0 samples)
\t  min=17000, max=17000
RPS percentiles (requests) runtime 2 (s) (1 total samples)
\t  20.0th: 12         (1 samples)
\t* 50.0th: 12         (0 samples)
\t  90.0th: 12         (0 samples)
\t  min=12, max=12
average rps: 12.00
";
        assert_eq!(schbench_text(&report()), expected);
    }

    #[test]
    fn what_is_printed_reads_back() {
        let sections = parse_schbench(&schbench_text(&report()));
        let labels: Vec<&str> = sections.iter().map(|section| section.label.as_str()).collect();
        assert_eq!(labels, ["Wakeup Latencies", "Request Latencies", "RPS"]);
        assert_eq!(sections[0].headline, Some((99.0, 991)));
        assert_eq!(sections[0].percentiles.len(), 4);
        assert_eq!((sections[0].min, sections[0].max), (Some(1), Some(1000)));
        assert_eq!(sections[2].headline, Some((50.0, 12)));
    }

    #[test]
    fn only_the_last_of_several_interval_reports_counts() {
        let text = "Wakeup Latencies percentiles (usec) runtime 10 (s) (1 total samples)\n\t* 99.0th: 5 (1 samples)\n\
                    Wakeup Latencies percentiles (usec) runtime 20 (s) (2 total samples)\n\t* 99.0th: 7 (1 samples)\n";
        let sections = parse_schbench(text);
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].headline, Some((99.0, 7)));
    }

    #[test]
    fn the_form_of_old_versions_is_read_too() {
        let text = "Latency percentiles (usec)\n\t50.0th: 8\n\t*99.0th: 15\n\t99.9th: 30\n\tmin=0, max=42\n";
        let sections = parse_schbench(text);
        assert_eq!(sections[0].percentiles, [(50.0, 8), (99.0, 15), (99.9, 30)]);
        assert_eq!(sections[0].headline, Some((99.0, 15)));
        assert_eq!(sections[0].max, Some(42));
    }
}
