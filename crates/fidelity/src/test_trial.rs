//! Trials for tests.

use std::collections::BTreeMap;

use warmcore_lab::trial::{SCHEMA, Trial, TrialEnd};

/// A trial with these measures.
pub(crate) fn trial(scheduler: &str, number: usize, measures: &[(&str, Option<f64>)]) -> Trial {
    Trial {
        schema: SCHEMA.into(),
        hash: "0".into(),
        scheduler: scheduler.into(),
        trial: number,
        seed: 1,
        end: TrialEnd::AllExited,
        elapsed_ns: 1,
        warm_up_ns: 0,
        engine_events: 1,
        events_lost: 0,
        censored_waits: 0,
        measures: measures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        decisions: BTreeMap::new(),
        operations: Vec::new(),
        time_ns: BTreeMap::new(),
        last_thread: None,
        applications: Vec::new(),
        tasks: Vec::new(),
        background: Vec::new(),
        result_lines: Vec::new(),
        notes: Vec::new(),
    }
}
