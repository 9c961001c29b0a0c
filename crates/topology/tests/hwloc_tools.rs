//! Our hwloc output against the real tools.

use std::fs;
use std::process::Command;

use crate::support::{CacheDetail, difference, first_difference, scratch, structure};
use warmcore_testing::skip;
use warmcore_topology::{Machine, from_hwloc_xml, from_synthetic, presets, resolve, to_hwloc_xml, to_synthetic};

/// Whether `lstopo` is installed, or what is lacking.
fn has_lstopo() -> Result<(), &'static str> {
    let found = Command::new("lstopo").arg("--version").output();
    found.map(drop).map_err(|_| "lstopo is not installed: apt-get install hwloc-nox")
}

/// The output of `lstopo` with an input and an output format.
fn lstopo(input: &str, format: &str) -> String {
    let output = Command::new("lstopo").args(["-i", input, "--of", format, "-"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lstopo refuses {input}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn lstopo_reads_our_xml_and_writes_the_same_machine() {
    skip!(unless has_lstopo());
    let directory = scratch();
    let forms = ["1c", "2s1n1l2c2t", "2n4l4c2t"].map(str::to_owned);
    for name in presets().into_iter().map(|preset| preset.name).chain(forms) {
        let machine = resolve(&name).unwrap();
        let file = directory.path().join("machine.xml");
        fs::write(&file, to_hwloc_xml(&machine).unwrap()).unwrap();
        let text = lstopo(&file.display().to_string(), "xml");
        let read = from_hwloc_xml(&text).unwrap();
        assert_eq!(difference(&read, &machine, CacheDetail::Everything), None, "{name}");
    }
}

#[test]
fn lstopo_gives_only_numa_nodes_memory_as_we_do() {
    skip!(unless has_lstopo());
    for text in ["Package:3(memory=1GB) Core:2 PU:1", "Package:3 [NUMANode(memory=1GB)] Core:2 PU:1"] {
        let (theirs, ours) = (from_hwloc_xml(&lstopo(text, "xml")).unwrap(), from_synthetic(text).unwrap());
        assert_eq!(theirs.node_count(), ours.node_count(), "{text}");
    }
}

#[test]
fn lstopo_reads_our_synthetic_descriptions_as_we_do() {
    skip!(unless has_lstopo());
    for name in
        presets().into_iter().map(|preset| preset.name).filter(|name| !["adl12", "hikey960"].contains(&name.as_str()))
    {
        let text = to_synthetic(&resolve(&name).unwrap()).unwrap();
        let xml = lstopo(&text, "xml");
        // What a level of groups means is not in what lstopo writes, so clusters that no cache stands for are ours alone.
        let has_groups = text.contains("Group:");
        let without_clusters = |line: String| match (line.split_once(" cluster "), line.split_once(" llc ")) {
            (Some((before, _)), Some((_, after))) if has_groups => format!("{before} llc {after}"),
            _ => line,
        };
        let lines = |machine: &Machine| {
            let lines = structure(machine, CacheDetail::Size).into_iter();
            let lines = lines.filter(|line| !line.starts_with("node") && !line.starts_with("make"));
            lines.map(without_clusters).collect::<Vec<_>>()
        };
        let (theirs, ours) = (from_hwloc_xml(&xml).unwrap(), from_synthetic(&text).unwrap());
        assert_eq!(first_difference(&lines(&theirs), &lines(&ours)), None, "{text}");
        assert_eq!(theirs.node_count(), ours.node_count(), "{text}");
    }
}
