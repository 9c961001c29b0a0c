//! Run directories in which a file is another than it was, with and without lists of checksums that vouch for it.
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;
use warmcore_lab::directory::{Existing, RunDirectory};
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::files::sha256;
use warmcore_lab::reading::RunOnDisk;
use warmcore_lab::{runner, session, verdict};
use warmcore_places::sim::Sim;
use warmcore_schedulers::SchedulerSpec;

/// A run of two schedulers and two trials, and its files.
struct Base {
    path: PathBuf,
    _place: TempDir,
    files: Vec<(String, Vec<u8>)>,
}

thread_local! {
    static BASE: Base = base();
}

fn base() -> Base {
    let place = tempfile::tempdir().expect("room for a directory");
    let path = place.path().join("run");
    let machine = Named { source: "m".into(), value: warmcore_topology::resolve("1s1n1l2c1t").expect("a short form") };
    let workload = warmcore_workload::from_generator("hackbench:-T,-p,-f1,-g1,-l1").expect("a generator");
    let schedulers = ["cfs", "rr"].map(|name| SchedulerSpec::parse(name).expect("a listed name")).to_vec();
    let built = Experiment::builder(machine, Named { source: "w".into(), value: workload })
        .place(Arc::new(Sim))
        .schedulers(schedulers)
        .seeds(vec![1, 2])
        .build();
    let experiment = built.expect("an experiment").experiment;
    let directory = RunDirectory::create(&path, Existing::Replace).expect("room for a run");
    session::begin(&directory, &experiment).expect("room for a run");
    let conduct = runner::Conduct { jobs: 1, stop: Arc::new(AtomicBool::new(false)), progress: &|_| {} };
    let trials = runner::run(&experiment, Some(&directory), &conduct).expect("a run").trials;
    let document = verdict::conclude(&experiment, &experiment.record(), &trials).expect("a verdict");
    let environment = Environment::at_start(Vec::new(), 1, 0);
    session::finish(&directory, &experiment, &trials, Some((&document, "it")), &environment).expect("room for a run");
    let files = directory.files().expect("a run").into_iter();
    let files = files.map(|name| (name.clone(), fs::read(path.join(&name)).expect("a file of it")));
    Base { files: files.collect(), path, _place: place }
}

pub(crate) fn run(bytes: &[u8]) {
    BASE.with(|base| change(base, bytes));
}

fn change(base: &Base, bytes: &[u8]) {
    let Some((&[which, flags, at, more, length], text)) = bytes.split_first_chunk() else { return };
    let (name, original) = &base.files[usize::from(which) % base.files.len()];
    let mut now = text.to_vec();
    if flags & 1 == 0 {
        // Only a part of it is another.
        now = original.clone();
        let at = usize::from(at) << 8 | usize::from(more);
        let at = at.min(now.len());
        now.splice(at..(at + usize::from(length)).min(original.len()), text.iter().copied());
    }
    fs::write(base.path.join(name), &now).expect("room for a file");
    let lists = base.files.iter().filter(|(list, _)| list.ends_with(".sha256") && list != name);
    let mut changed = vec![name.clone()];
    if flags & 2 == 0 {
        // The lists of trials come before that of the run, which names them, and whose name is the smallest.
        let mut sums = vec![(sha256(original), sha256(&now))];
        for (list, text) in lists.collect::<Vec<_>>().into_iter().rev() {
            let old = String::from_utf8_lossy(text).into_owned();
            let new = sums.iter().fold(old.clone(), |text, (before, now)| text.replace(before, now));
            if old != new {
                sums.push((sha256(old.as_bytes()), sha256(new.as_bytes())));
                fs::write(base.path.join(list), new).expect("room for a file");
                changed.push(list.clone());
            }
        }
    }
    if flags & 4 != 0 {
        let _ = fs::remove_file(base.path.join("checksums.sha256"));
        changed.push("checksums.sha256".into());
    }
    if let Ok(run) = RunOnDisk::read(&base.path) {
        let is_trial = name.starts_with("trials/") || name == "experiment.toml";
        let is_told = !run.faults.is_empty() || now == *original || flags & 2 == 0;
        assert!(is_told || !is_trial, "{name} was changed, and nobody says so");
    }
    if let Ok(directory) = RunDirectory::view(&base.path) {
        let _ = session::experiment_of(&directory);
        let _ = directory.verify();
    }
    for (name, original) in base.files.iter().filter(|(name, _)| changed.contains(name)) {
        fs::write(base.path.join(name), original).expect("room for a file");
    }
}
