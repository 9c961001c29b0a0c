//! The crates depend on each other in one direction only, as ARCHITECTURE.md draws it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// For each crate, the crates of ours it may use (outside of its tests).
const ARROWS: [(&str, &[&str]); 13] = [
    ("topology", &[]),
    ("statistics", &[]),
    ("memory", &["topology", "trace"]),
    ("workload", &["topology", "memory"]),
    ("trace", &["topology", "statistics"]),
    ("native", &["topology", "workload"]),
    ("capture", &["topology", "trace"]),
    ("agent", &["topology", "workload", "native", "capture"]),
    ("kernel", &["topology", "memory", "workload", "trace"]),
    ("schedulers", &["topology", "memory", "workload", "trace", "kernel"]),
    ("lab", &["topology", "memory", "workload", "trace", "capture", "agent", "kernel", "schedulers", "statistics"]),
    ("report", &["topology", "workload", "trace", "kernel", "schedulers", "statistics", "lab"]),
    (
        "cli",
        &[
            "topology",
            "memory",
            "workload",
            "trace",
            "native",
            "agent",
            "kernel",
            "schedulers",
            "statistics",
            "lab",
            "report",
        ],
    ),
];

fn crates() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in crates/").to_owned()
}

#[test]
fn crates_use_only_what_lies_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    for entry in fs::read_dir(crates()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("crate {name} has no arrows in this test; add them"));
        let manifest: toml::Table = fs::read_to_string(path.join("Cargo.toml")).unwrap().parse().unwrap();
        for dependency in manifest["dependencies"].as_table().unwrap().keys() {
            if let Some(ours) = dependency.strip_prefix("warmcore-") {
                assert!(allowed.contains(&ours), "crates/{name} must not depend on crates/{ours}");
            }
        }
    }
}

#[test]
fn core_crates_do_not_read_files_clocks_or_the_environment() {
    // `native` runs real threads, `agent` carries out plans on a kernel, `lab` keeps run directories, `cli` is the
    // program; all others are pure. Readers of
    // directory trees and writers of tables take a path from their caller; they are the named exceptions.
    let exceptions = ["topology", "trace", "native", "agent", "lab", "cli"];
    let forbidden = ["std::env", "std::fs", "std::process", "std::thread", "SystemTime", "Instant::now"];
    for (name, _) in ARROWS.iter().filter(|(name, _)| !exceptions.contains(name)) {
        let mut files = Vec::new();
        rust_files(&crates().join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "crates/{name} has no sources");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for word in forbidden {
                assert!(!code.contains(word), "{} uses {word}", file.display());
            }
        }
    }
}

fn rust_files(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
