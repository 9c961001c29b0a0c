//! The lines that the imitated program would have printed after a run.

use warmcore_trace::Histogram;
use warmcore_trace::Outcome;
use warmcore_workload::results::{
    LatencyHistogram, SchbenchReport, SysbenchReport, hackbench_lines, schbench_text, sysbench_text,
};
use warmcore_workload::{HACKBENCH_TIME, RecorderId, ResultStyle, Workload};

/// The lines, or none for a workload that imitates no program or did not come to its end.
pub fn result_lines(workload: &Workload, outcome: &Outcome) -> Vec<String> {
    let text = match &workload.style {
        ResultStyle::Plain => None,
        ResultStyle::Hackbench { header } => {
            let recorder = workload.recorders.iter().position(|name| name == HACKBENCH_TIME);
            let time = recorder.and_then(|index| outcome.recorders.get(index)?.max());
            time.map(|time| hackbench_lines(header, time))
        }
        ResultStyle::Sysbench { transaction } => {
            let elapsed_ns = outcome.recorder_window_ns(transaction.index());
            outcome.recorders.get(transaction.index()).map(|latencies| sysbench_text(&sysbench(latencies, elapsed_ns)))
        }
        ResultStyle::Schbench { wakeup, request } => Some(schbench_text(&schbench(outcome, *wakeup, *request))),
    };
    text.iter().flat_map(|text| text.lines()).map(str::to_owned).collect()
}

fn schbench(outcome: &Outcome, wakeup: RecorderId, request: RecorderId) -> SchbenchReport {
    let recorder = |id: RecorderId| outcome.recorders.get(id.index());
    let requests = recorder(request).map_or(0, Histogram::count);
    let mut report = SchbenchReport {
        wakeup: recorder(wakeup).map(latencies).unwrap_or_default(),
        request: recorder(request).map(latencies).unwrap_or_default(),
        requests,
        runtime_ns: outcome.window_ns(),
        ..SchbenchReport::default()
    };
    // A run records how many requests there were, not when: the one sample of the rate is the average.
    let rate = u128::from(requests) * 1_000_000_000 / u128::from(outcome.window_ns().max(1));
    report.requests_per_second.add(u64::try_from(rate).unwrap_or(u64::MAX));
    report
}

fn sysbench(latencies: &Histogram, elapsed_ns: u64) -> SysbenchReport {
    SysbenchReport {
        transactions: latencies.count(),
        elapsed_ns,
        min_ns: latencies.min().unwrap_or(0),
        p95_ns: latencies.quantile(0.95).unwrap_or(0),
        max_ns: latencies.max().unwrap_or(0),
        sum_ns: u128::from(latencies.sum()),
    }
}

/// The same latencies in schbench's own buckets, which are finer than the recorder's: a latency counts as the middle of
/// the recorder's bucket.
fn latencies(histogram: &Histogram) -> LatencyHistogram {
    let mut result = LatencyHistogram::new();
    for (low, high, count) in histogram.buckets() {
        for _ in 0..count {
            result.add_latency_ns(low + (high - low) / 2);
        }
    }
    result
}
