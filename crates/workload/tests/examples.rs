//! The files in `workloads/`: all can be read, the plain ones without the extra key, and no damage makes the reader
//! panic.

use std::path::PathBuf;

use proptest::prelude::*;
use warmcore_workload::{Options, Workload, from_rtapp, to_rtapp};

fn files() -> Vec<(String, String)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../workloads");
    let mut files: Vec<(String, String)> = std::fs::read_dir(directory)
        .expect("the directory of workloads exists")
        .map(|entry| entry.expect("its entries can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("names are text").to_owned();
            (name, std::fs::read_to_string(path).expect("files can be read"))
        })
        .collect();
    files.sort();
    files
}

fn read(name: &str, text: &str) -> Workload {
    from_rtapp(name, text, &Options::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn all_example_files_are_sound_and_read_back_equal() {
    let files = files();
    assert!(files.len() >= 6, "{} files", files.len());
    for (name, text) in files {
        let workload = read(&name, &text);
        let written = to_rtapp(&workload).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read(&name, &written), workload, "{name}\n{written}");
    }
}

#[test]
fn only_the_example_of_two_programs_needs_the_extra_key() {
    for (name, text) in files() {
        assert_eq!(text.contains("\"warmcore\":"), name == "web-and-database", "{name}");
    }
}

#[test]
fn examples_warn_of_nothing_but_rtapps_own_settings() {
    for (name, text) in files() {
        for warning in read(&name, &text).warnings {
            assert!(warning.what.starts_with("global setting"), "{name}: {}", warning.what);
        }
    }
}

#[test]
fn the_fork_example_creates_its_requests_only_by_fork() {
    let (name, text) = files().into_iter().find(|(name, _)| name == "periodic-fork").expect("the file exists");
    let workload = read(&name, &text);
    let instances: Vec<(&str, u32)> = workload.tasks.iter().map(|task| (task.name.as_str(), task.instances)).collect();
    assert_eq!(instances, [("server", 1), ("request", 0), ("background", 4)]);
}

proptest! {
    #[test]
    fn damaged_example_files_are_read_or_refused_without_panic(
        file in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..20, "[{}\\[\\],:\"/*\\\\0-9a-z -]{0,4}"), 1..5),
    ) {
        let files = files();
        let (name, text) = &files[file.index(files.len())];
        let mut text: Vec<char> = text.chars().collect();
        for (at, length, put) in damage {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            text.splice(at..end, put.chars());
        }
        let text: String = text.into_iter().collect();
        let _ = from_rtapp(name, &text, &Options::default());
    }

    #[test]
    fn bytes_that_are_no_text_are_read_or_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = from_rtapp("bytes", &String::from_utf8_lossy(&bytes), &Options::default());
    }
}
