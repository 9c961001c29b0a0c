//! The machines of `tests/machines`: every description is read, drawn and converted, and compared with what it was.
//!
//! `UPDATE_GOLDEN=1` writes the expected files instead.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{CacheDetail, difference, scratch};
use warmcore_topology::{
    Error, Machine, from_hwloc_xml, from_synthetic, from_sysfs, from_toml, render, resolve, to_hwloc_xml, to_toml,
    write_sysfs_snapshot,
};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/machines")
}

/// The entries of a directory by name.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The directories that hold a machine.
fn machines() -> Vec<PathBuf> {
    let is_machine = |path: &PathBuf| path.is_dir() && !path.ends_with("refused");
    entries(&corpus()).into_iter().filter(is_machine).collect()
}

fn read(path: &Path) -> Result<Machine, Error> {
    if path.is_dir() {
        return from_sysfs(path);
    }
    let text = fs::read_to_string(path).unwrap();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => from_toml(&text),
        Some("xml") => from_hwloc_xml(&text),
        Some("synthetic") => from_synthetic(&text),
        Some("spec") => resolve(&text),
        _ => panic!("{} is no kind of machine description", path.display()),
    }
}

/// The machine of a directory.
fn machine(directory: &Path) -> Machine {
    let is_input = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "input");
    let input = entries(directory).into_iter().find(is_input).unwrap_or_else(|| directory.to_owned());
    read(&input).unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
}

fn compare(path: &Path, found: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert!(expected == found, "{} should be\n{expected}\nbut is\n{found}", path.display());
}

#[test]
fn the_corpus_has_every_kind_of_machine() {
    assert!(machines().len() >= 20);
}

#[test]
fn machines_are_drawn_as_before() {
    for directory in machines() {
        compare(&directory.join("drawing.txt"), &render(&machine(&directory)));
    }
}

#[test]
fn machines_are_converted_to_toml_as_before_and_back() {
    for directory in machines() {
        let machine = machine(&directory);
        let text = to_toml(&machine);
        compare(&directory.join("machine.toml"), &text);
        assert!(from_toml(&text).unwrap() == machine, "{}", directory.display());
    }
}

#[test]
fn machines_survive_xml() {
    for directory in machines() {
        let machine = machine(&directory);
        let read = from_hwloc_xml(&to_hwloc_xml(&machine).unwrap()).unwrap();
        assert_eq!(difference(&read, &machine, CacheDetail::Everything), None, "{}", directory.display());
    }
}

#[test]
fn snapshots_of_trees_are_the_same_machine() {
    for directory in machines().into_iter().filter(|directory| directory.join("sys").is_dir()) {
        let copy = scratch();
        write_sysfs_snapshot(&directory, copy.path()).unwrap();
        assert!(from_sysfs(copy.path()).unwrap() == from_sysfs(&directory).unwrap(), "{}", directory.display());
    }
}

#[test]
fn impossible_machines_are_refused_with_the_same_message_as_before() {
    for input in entries(&corpus().join("refused")) {
        if input.extension().is_some_and(|extension| extension == "error") {
            continue;
        }
        let name = input.file_name().unwrap();
        let error = read(&input).expect_err(&format!("{} is accepted", input.display()));
        compare(&input.with_extension("error"), &format!("{}\n", error.in_file(name)));
    }
}

#[test]
fn the_real_machine_is_the_same_through_sysfs_and_hwloc() {
    let [sysfs, hwloc] = ["vm-2-cpus", "vm-2-cpus-lstopo"].map(|name| machine(&corpus().join(name)));
    let without_memory = |machine: &Machine| {
        let lines = crate::support::structure(machine, CacheDetail::Geometry).into_iter();
        lines.filter(|line| !line.starts_with("node") && !line.starts_with("make")).collect::<Vec<_>>()
    };
    assert_eq!(without_memory(&sysfs), without_memory(&hwloc));
}
