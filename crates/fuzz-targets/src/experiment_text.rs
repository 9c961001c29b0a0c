//! Every reader of experiments and what belongs to them in TOML, on the same text: the book's, studies, threads of a kernel.
use std::path::Path;

use warmcore_fidelity::validate::book::BookExperiment;
use warmcore_study::file::Study;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = Path::new("fuzz.toml");
    if let Ok(experiment) = BookExperiment::parse(path, text) {
        for scheduler in 0..experiment.schedulers.len() {
            experiment.checks_of(scheduler).for_each(|check| assert!(check.bound.limit().is_finite()));
        }
    }
    let _ = Study::parse(path, text);
    let _ = warmcore_topology::background_from_toml(text);
}
