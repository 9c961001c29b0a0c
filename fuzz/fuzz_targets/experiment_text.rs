//! Every reader of experiments and what belongs to them in TOML, on the same text: the book's, studies, threads of a kernel.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use warmcore_fidelity::validate::book::BookExperiment;
use warmcore_study::file::Study;

fuzz_target!(|text: &str| {
    let path = Path::new("fuzz.toml");
    if let Ok(experiment) = BookExperiment::parse(path, text) {
        for scheduler in 0..experiment.schedulers.len() {
            experiment.checks_of(scheduler).for_each(|check| assert!(check.bound.limit().is_finite()));
        }
    }
    let _ = Study::parse(path, text);
    let _ = warmcore_topology::background_from_toml(text);
});
