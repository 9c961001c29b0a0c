//! The journal of what an experiment changes of this computer: whatever its lines are, each is told of and nothing is changed by looking.
use std::fs;

use tempfile::TempDir;
use warmcore_places::host::journal::restore;

thread_local! {
    /// A directory with the journal's, and a computer below another one.
    static PLACE: TempDir = place();
}

fn place() -> TempDir {
    let top = tempfile::tempdir().expect("room for a directory");
    for (path, value) in [("proc/sys/kernel/random/boot_id", "b\n"), ("sys/a", "1\n"), ("sys/b", "on [off]\n")] {
        let path = top.path().join("root").join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("room for a file");
        fs::write(path, value).expect("room for a file");
    }
    fs::create_dir_all(top.path().join("journal")).expect("room for a directory");
    top
}

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (journal, root) = PLACE.with(|place| (place.path().join("journal"), place.path().join("root")));
    let (file, text) = (journal.join("journal.jsonl"), format!("{{\"boot\":\"b\"}}\n{text}"));
    fs::write(&file, &text).expect("room for a file");
    let told = restore(&journal, &root, true).expect("a text can be read");
    // The last line may be one that was being written.
    let damaged = text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_err()).count();
    let failed = told.iter().filter(|undone| !undone.is_good()).count();
    assert!(failed + 1 >= damaged, "{told:?}");
    assert_eq!(fs::read_to_string(&file).ok(), Some(text));
}
