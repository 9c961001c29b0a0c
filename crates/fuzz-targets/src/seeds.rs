//! What each target begins with.

use std::fs;
use std::path::{Path, PathBuf};

use warmcore_agent::report::{FrameKind, write_frame};
use warmcore_memory::exact::address_trace::{TraceReader, to_binary};

/// Files of a `/sys` tree, and their size: as many as a target reads.
const TREE_FILES: usize = 100;
const TREE_FILE_BYTES: u64 = 4096;

/// Address traces as text, and of Valgrind's lackey.
const ADDRESSES: &str = "warmcore-address-trace 1\n0 R 0x1000 8\n0 W 0x1040 8\n1 M 0x1000 8\n";
const LACKEY: &str = "==1== lackey\nI  04000000,3\n L 1ffe,8\n S 2000,4\n M 2008,1\n";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below directories of the repository whose names end so, in the order of their names.
fn files(directories: &[&str], end: &str) -> Vec<Vec<u8>> {
    directories.iter().flat_map(|directory| below(&repository().join(directory), end)).collect()
}

fn below(directory: &Path, end: &str) -> Vec<Vec<u8>> {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("a directory that is read").path())
        .collect();
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        // Links lead out of the trees and in circles.
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(below(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
    }
    found
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A tree of `/sys` as the text that its target reads.
fn tree(root: &Path, directory: &Path, text: &mut Vec<u8>, left: &mut usize) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.is_symlink() {
            tree(root, &path, text, left);
        } else if *left > 0 && path.metadata().is_ok_and(|metadata| metadata.len() < TREE_FILE_BYTES) {
            let Ok(content) = fs::read_to_string(&path) else { continue };
            let name = path.strip_prefix(root).expect("below it").to_string_lossy().into_owned();
            text.extend_from_slice(format!("{name}={}\n", content.replace('\n', ";")).as_bytes());
            *left -= 1;
        }
    }
}

fn trees() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(repository().join("tests/machines")).expect("machines").flatten() {
        let root = entry.path().join("sys/devices/system");
        let mut text = Vec::new();
        tree(&root, &root, &mut text, &mut TREE_FILES.clone());
        if !text.is_empty() {
            found.push(text);
        }
    }
    found.sort();
    found
}

/// A frame of each kind with an empty document.
fn frames() -> Vec<Vec<u8>> {
    let kinds = [FrameKind::Hello, FrameKind::Formats, FrameKind::RunBegin, FrameKind::Sample, FrameKind::TracePage]
        .into_iter()
        .chain([FrameKind::RunEnd, FrameKind::Failed, FrameKind::Costs, FrameKind::Came, FrameKind::Done]);
    let frame = |kind| {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, kind, b"{\"machine\":\"\"}").expect("memory is written");
        bytes
    };
    kinds.map(frame).collect()
}

/// Programs: a constant and the end; a store to the stack and a load; a loop of a hundred turns.
fn programs() -> Vec<Vec<u8>> {
    let programs: [&[[u8; 8]]; 3] = [
        &[[0xb7, 0, 0, 0, 1, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]],
        &[[0x7b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0], [0x79, 0xa0, 0xf8, 0xff, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]],
        &[
            [0xb7, 0, 0, 0, 100, 0, 0, 0],
            [0x07, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0x55, 0, 0xfe, 0xff, 0, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ],
    ];
    programs.map(|program| [&[0], program.as_flattened()].concat()).to_vec()
}

/// The seeds of the target of a name; none where bytes of any kind serve as well.
pub(crate) fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "address_trace" => {
            let mut reader = TraceReader::new(ADDRESSES.as_bytes(), true).expect("a trace");
            let records: Vec<_> = std::iter::from_fn(|| reader.next_record().expect("a trace")).collect();
            vec![ADDRESSES.into(), LACKEY.into(), to_binary(&records)]
        }
        "bytecode" => programs(),
        "experiment_text" => files(&["book", "studies", "machines/background"], ".toml"),
        "ftrace_text" => {
            texts(&["# tracer: nop\n  a-1  [000] d..2.  1.000001: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 \
                                  prev_state=S ==> next_comm=b next_pid=2 next_prio=120\n"])
        }
        "generator_text" => texts(&[
            "hackbench:-T,-p,-f1,-g1,-l20",
            "spin:-n6,-d50ms",
            "eevdf @ cpus=0-1",
            "cfs:kernel=4.9",
            "250us",
            "scx:./program,--option=1",
        ]),
        "guest_frames" => frames(),
        "host_journal" => {
            texts(&["{\"value\":{\"path\":\"sys/a\",\"old\":\"0\",\"new\":\"1\"}}\n", "{\"boot\":\"c\"}\n"])
        }
        "kernel_calls" => vec![vec![0; 1024], (0..=255).cycle().take(2048).collect()],
        "machine_text" => {
            let mut found = files(&["machines"], ".toml");
            found.extend(files(&["tests/machines"], ".xml"));
            found.extend(texts(&["2s1n2l4c2t", "Package:2 L3:2 Core:4 PU:2", "0-3,8"]));
            found
        }
        "perf_data" => vec![[b"PERFILE2".as_slice(), &[0; 96]].concat()],
        "profile_text" => files(&["crates/memory/data"], "profiles.toml"),
        "recording" | "trace_dat" => vec![b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0".to_vec()],
        "rtapp_json" => files(&["workloads", "crates/workload/data"], ".json"),
        "schedstat_text" => {
            let text = |version, domain: &str, counters: usize| {
                let values = " 7".repeat(counters);
                format!(
                    "version {version}\ntimestamp 9\ncpu0 1 0 3 4 5 6 7 8 9\n{domain} 00000003{values}\ncpu1 0 0 0 0 0 0 0 0 0\n"
                )
            };
            let report = "CPU: <ALL CPUS SUMMARY>\nsched_count : 9\nCPU: 0\nsched_count : 7 ( 12.00% )\n\
                          CPU: 0, DOMAIN SMT CPUS 0,64\nbusy_lb_count : 136 $ 17.08 $\n";
            let mut found =
                texts(&[&text(17, "domain0 MC", 45), &text(16, "domain0", 36), &text(15, "domain0", 36), report]);
            // A header with one feature, 104 bytes long, and two readings of one CPU of version 17.
            let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
            let reading = |value: u64| words(&[85 | 72 << 48, 9, 17 << 32, value, value, value, value, value, value]);
            let header = words(&[104, 136, 104, 0, 104, 144, 104, 0, 1 << 32, 0, 0, 0]);
            let feature = words(&[264, 8, 17 | 1 << 32]);
            found.push([b"PERFILE2".to_vec(), header, reading(1), reading(7), feature].concat());
            found
        }
        "sysfs_tree" => trees(),
        "type_information" => vec![crate::types::kernel(&["scx_bpf_select_cpu_dfl"]).0],
        _ => Vec::new(),
    }
}
