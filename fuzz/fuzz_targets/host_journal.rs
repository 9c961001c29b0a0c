//! The journal of what an experiment changes of this computer: whatever its lines are, each is told of and nothing is changed by looking.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use warmcore_places::host::journal::restore;

/// The journal's directory, and a computer below another one.
static PLACES: LazyLock<(PathBuf, PathBuf)> = LazyLock::new(|| {
    let top = std::env::temp_dir().join(format!("warmcore-fuzz-journal-{}", std::process::id()));
    let (journal, root) = (top.join("journal"), top.join("root"));
    for (path, value) in [("proc/sys/kernel/random/boot_id", "b\n"), ("sys/a", "1\n"), ("sys/b", "on [off]\n")] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("room for a file");
        fs::write(path, value).expect("room for a file");
    }
    fs::create_dir_all(&journal).expect("room for a directory");
    (journal, root)
});

fuzz_target!(|text: &str| {
    let (journal, root) = &*PLACES;
    let (file, text) = (journal.join("journal.jsonl"), format!("{{\"boot\":\"b\"}}\n{text}"));
    fs::write(&file, &text).expect("room for a file");
    let told = restore(journal, root, true).expect("a text can be read");
    // The last line may be one that was being written.
    let damaged = text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_err()).count();
    let failed = told.iter().filter(|undone| !undone.is_good()).count();
    assert!(failed + 1 >= damaged, "{told:?}");
    assert_eq!(fs::read_to_string(&file).ok(), Some(text));
});
