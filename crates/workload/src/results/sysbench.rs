//! sysbench's statistics: transactions with their rate, and latencies in milliseconds.
//!
//! The lines of sysbench 1.0 that scripts read. What it also prints and a simulation has no figure for (queries by kind,
//! ignored errors, reconnects) is left out.

/// Numbers of a sysbench run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SysbenchReport {
    /// Finished transactions.
    pub transactions: u64,
    /// Length of the run.
    pub elapsed_ns: u64,
    /// Shortest latency.
    pub min_ns: u64,
    /// 95th percentile of latencies.
    pub p95_ns: u64,
    /// Longest latency.
    pub max_ns: u64,
    /// Sum of latencies.
    pub sum_ns: u128,
}

/// The lines as sysbench prints them.
///
/// ```
/// use warmcore_workload::results::{SysbenchReport, sysbench_text};
/// let report = SysbenchReport { transactions: 3, elapsed_ns: 2_000_000_000, sum_ns: 4_500_000, ..Default::default() };
/// let text = sysbench_text(&report);
/// assert!(text.contains("transactions:                        3      (1.50 per sec.)"));
/// assert!(text.contains("avg:                                    1.50"));
/// ```
pub fn sysbench_text(report: &SysbenchReport) -> String {
    // Integers throughout, so that every computer prints the same.
    let rate = hundredths(u128::from(report.transactions) * 100_000_000_000 / u128::from(report.elapsed_ns.max(1)));
    let ms = |ns: u128| hundredths((ns + 5_000) / 10_000);
    let average = report.sum_ns / u128::from(report.transactions.max(1));
    format!(
        "SQL statistics:\n    transactions:                        {:<6} ({rate} per sec.)\n\n\
         General statistics:\n    total time:                          {}s\n    total number of events:              {}\n\n\
         Latency (ms):\n         min:                                 {:>7}\n         avg:                                 {:>7}\n         \
         max:                                 {:>7}\n         95th percentile:                     {:>7}\n         \
         sum:                                 {:>7}\n",
        report.transactions,
        ten_thousandths(report.elapsed_ns / 100_000),
        report.transactions,
        ms(report.min_ns.into()),
        ms(average),
        ms(report.max_ns.into()),
        ms(report.p95_ns.into()),
        ms(report.sum_ns),
    )
}

fn hundredths(value: u128) -> String {
    format!("{}.{:02}", value / 100, value % 100)
}

fn ten_thousandths(value: u64) -> String {
    format!("{}.{:04}", value / 10_000, value % 10_000)
}
