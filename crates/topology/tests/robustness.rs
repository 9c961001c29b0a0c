//! No input makes a reader panic, hang or overflow its stack: random text, valid documents with random damage, deep
//! nesting.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::scratch;
use proptest::prelude::*;
use warmcore_topology::{
    CpuSet, Machine, Origin, from_hwloc_xml, from_synthetic, from_sysfs, from_toml, render, resolve, to_hwloc_xml,
    to_synthetic, to_toml, write_sysfs_tree,
};

/// Damage to a text: where (in thousandths of its length), how many bytes go, what comes instead.
type Damage = (usize, usize, String);

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "",
            "0",
            "-1",
            "4294967296",
            "99999999999999999999",
            "0-65535",
            "\"",
            "<",
            ">",
            "/>",
            "[",
            "]]",
            "{",
            "}",
            "=",
            ",",
            ":",
            "(",
            ")",
            "*",
            "\n",
            "\0",
            "é",
            "nan",
            "inf",
            "1e400",
            "PU:",
            "object",
            "cpuset",
            "0xf...f",
            "indexes=",
            "size=",
            "8*8:",
            "nodes",
            "cpus = ",
            "true",
            "&lt;",
            "<!--",
            "S1",
            "origin",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,8}",
    ];
    prop::collection::vec((0_usize..1000, 0_usize..30, piece), 1..6)
}

fn damaged(text: &str, damage: &[Damage]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (place, removed, inserted) in damage {
        let start = bytes.len() * place / 1000;
        let end = (start + removed).min(bytes.len());
        bytes.splice(start..end, inserted.bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whatever is accepted can also be drawn and written.
fn use_everything(machine: Result<Machine, warmcore_topology::Error>) {
    match machine {
        Ok(machine) => {
            let _ = (render(&machine), to_toml(&machine), to_hwloc_xml(&machine), to_synthetic(&machine));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn valid_toml() -> Vec<String> {
    let listed = concat!(
        "[topology]\nnodes = [{ id = 0, cpus = \"0-3,8\", memory = \"4GiB\" }, { id = 2 }]\n",
        "llcs = [\"0-1\", \"2-3,8\"]\ncores = [\"0-1\", \"2\", \"3\", \"8\"]\noffline = \"4-7\"\n",
        "capacities = [{ cpus = \"8\", capacity = 300 }]\npriorities = [{ cpus = \"0-1\", priority = 9 }]\n",
        "distances = [[10, 20], [20, 10]]\n",
        "[[cache]]\nlevel = 3\nsize = \"1MiB\"\nlatency_ns = 5.5\nways = \"full\"",
    );
    let on_base = "base = \"hygon384\"\ncore_to_core_variant = \"genoa\"\n[costs]\ntick_ns = 5\nipi_ns.same_llc = 7";
    vec![
        listed.to_owned(),
        on_base.to_owned(),
        to_toml(&resolve("adl12").unwrap()),
        to_toml(&resolve("i7-3770").unwrap()),
    ]
}

const SYNTHETIC: [&str; 3] = [
    "Package:2 Group:2 [NUMANode(memory=1024)] L3Cache:2(size=33554432) L2Cache:2 Core:1 PU:2(indexes=2*16:1*2)",
    "node:2 core:2 pu:2(indexes=core:node)",
    "[NUMANode(indexes=3)] Package:2 L3:1 PU:3(indexes=0,1,2,5,4,3)",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,200}") {
        let _ = (from_toml(&text), from_hwloc_xml(&text), from_synthetic(&text), resolve(&text));
        let _ = (CpuSet::parse_list(&text), text.parse::<Origin>());
    }

    #[test]
    fn damaged_machine_files_do_not_panic(which in 0_usize..4, damage in damage()) {
        use_everything(from_toml(&damaged(&valid_toml()[which], &damage)));
    }

    #[test]
    fn damaged_xml_does_not_panic(which in 0_usize..3, damage in damage()) {
        let machine = resolve(["i7-3770", "adl12", "2s2l2c"][which]).unwrap();
        use_everything(from_hwloc_xml(&damaged(&to_hwloc_xml(&machine).unwrap(), &damage)));
    }

    #[test]
    fn damaged_synthetic_descriptions_do_not_panic(which in 0_usize..3, damage in damage()) {
        use_everything(resolve(&damaged(SYNTHETIC[which], &damage)));
    }

    #[test]
    fn damaged_lists_and_forms_do_not_panic(damage in damage()) {
        let _ = CpuSet::parse_list(&damaged("0-3,8,10-11,64-127", &damage));
        use_everything(resolve(&damaged("2s6n2l8c2t@genoa96", &damage)));
    }
}

/// All files below a directory, in a fixed order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_sysfs_trees_do_not_panic(
        choices in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..4),
    ) {
        let directory = scratch();
        write_sysfs_tree(&resolve("1s2n1l2c2t").unwrap(), directory.path()).unwrap();
        let files = files(directory.path());
        for (file, damage) in choices {
            let path = file.get(&files);
            let text = fs::read_to_string(path).unwrap();
            fs::write(path, damaged(&text, &damage)).unwrap();
        }
        use_everything(from_sysfs(directory.path()));
    }

    #[test]
    fn missing_sysfs_files_do_not_panic(missing in prop::collection::vec(any::<prop::sample::Index>(), 1..40)) {
        let directory = scratch();
        write_sysfs_tree(&resolve("1s2n1l2c2t").unwrap(), directory.path()).unwrap();
        let files = files(directory.path());
        for file in missing {
            let _ = fs::remove_file(file.get(&files));
        }
        use_everything(from_sysfs(directory.path()));
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let depth = 20_000;
    let objects = format!(
        "<topology version=\"2.0\">{}{}</topology>",
        "<object type=\"Machine\">".repeat(depth),
        "</object>".repeat(depth)
    );
    let brackets = format!("x = {}{}", "[".repeat(depth), "]".repeat(depth));
    let tables = format!("[costs]\nx = {}1{}", "{ y = ".repeat(depth), "}".repeat(depth));
    assert!(from_hwloc_xml(&objects).is_err());
    assert!(from_toml(&brackets).is_err());
    assert!(from_toml(&tables).is_err());
    assert!(from_toml(&format!("[costs]\n{}z = 1", "y.".repeat(depth))).is_err());
    assert!(from_synthetic(&"(".repeat(depth)).is_err());
}

#[test]
fn a_missing_or_wrong_root_directory_is_an_error_with_its_path() {
    let directory = scratch();
    let message = from_sysfs(directory.path()).unwrap_err().to_string();
    assert!(message.contains("sys/devices/system/cpu") && message.contains("there is no"), "{message}");
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(from_sysfs(&file).is_err());
}

#[test]
fn binary_and_huge_sysfs_files_are_errors_with_their_path() {
    let directory = scratch();
    write_sysfs_tree(&resolve("2c").unwrap(), directory.path()).unwrap();
    let online = directory.path().join("sys/devices/system/cpu/online");
    fs::write(&online, [0xff, 0xfe]).unwrap();
    let message = from_sysfs(directory.path()).unwrap_err().to_string();
    assert!(message.contains("cpu/online") && message.contains("not text"), "{message}");
    fs::write(&online, vec![b'0'; 2 << 20]).unwrap();
    let message = from_sysfs(directory.path()).unwrap_err().to_string();
    assert!(message.contains("cpu/online") && message.contains("longer than 1 MiB"), "{message}");
}

/// A tree is refused where the file of a machine would be: what was read can be written and read again.
#[test]
fn caches_that_no_machine_file_may_have_are_no_caches_of_a_tree() {
    let directory = scratch();
    write_sysfs_tree(&resolve("2c").unwrap(), directory.path()).unwrap();
    let cache = directory.path().join("sys/devices/system/cpu/cpu0/cache/index0");
    fs::create_dir_all(&cache).unwrap();
    for (file, text) in [("type", "Data"), ("level", "1"), ("size", "32K"), ("coherency_line_size", "66")] {
        fs::write(cache.join(file), text).unwrap();
    }
    let message = from_sysfs(directory.path()).unwrap_err().to_string();
    assert!(message.contains("coherency_line_size") && message.contains("not a power of two"), "{message}");
    fs::write(cache.join("coherency_line_size"), "65536").unwrap();
    let message = from_sysfs(directory.path()).unwrap_err().to_string();
    assert!(message.contains("index0/size") && message.contains("not whole lines"), "{message}");
}

#[test]
fn snapshots_do_not_overwrite() {
    let (tree, out) = (scratch(), scratch());
    write_sysfs_tree(&resolve("2c").unwrap(), tree.path()).unwrap();
    fs::write(out.path().join("something"), "precious").unwrap();
    let message = warmcore_topology::write_sysfs_snapshot(tree.path(), out.path()).unwrap_err().to_string();
    assert!(message.contains("the directory is not empty"), "{message}");
}
