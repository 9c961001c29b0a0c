//! Trees of `/sys`: each line of the input is a file, its path and what it holds with `=` in between and `;` for ends of lines.
use std::fs;
use std::path::{Component, Path};

use tempfile::TempDir;
use warmcore_topology as topology;

thread_local! {
    static PLACE: TempDir = tempfile::tempdir().expect("room for a directory");
}

/// Files of a tree.
const MOST: usize = 100;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let root = &PLACE.with(|place| place.path().join("root"));
    let _ = fs::remove_dir_all(root);
    fs::create_dir_all(root.join("sys/devices/system/cpu")).expect("room for a directory");
    for (path, content) in text.lines().take(MOST).filter_map(|line| line.split_once('=')) {
        let path = Path::new(path);
        if path.as_os_str().is_empty() || !path.components().all(|part| matches!(part, Component::Normal(_))) {
            continue;
        }
        // Below `proc` for the make of the CPUs, elsewhere in the tree.
        let path = if path.starts_with("proc") { root.join(path) } else { root.join("sys/devices/system").join(path) };
        let made = path.parent().is_some_and(|above| fs::create_dir_all(above).is_ok());
        if made && !path.is_dir() {
            let _ = fs::write(path, content.replace(';', "\n"));
        }
    }
    let _ = topology::cpu_model(root);
    if let Ok(machine) = topology::from_sysfs(root) {
        let again = topology::from_toml(&topology::to_toml(&machine)).expect("what was written is read");
        assert_eq!(again.cpu_count(), machine.cpu_count());
    }
}
