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

/// The examples of `docs/workloads.md`, each a whole file.
fn of_the_page() -> Vec<String> {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md"));
    let blocks = page.split("```json\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("a block ends").to_owned()).collect()
}

#[test]
fn the_template_and_every_example_of_the_page_are_read_without_a_warning_and_back_equal() {
    let mut examples = of_the_page();
    assert!(examples.len() >= 5, "{}", examples.len());
    examples.push(warmcore_workload::TEMPLATE.to_owned());
    for text in examples {
        let workload = read("example", &text);
        assert!(workload.warnings.is_empty(), "{:?}\n{text}", workload.warnings);
        assert_eq!(read("example", &to_rtapp(&workload).unwrap()), workload, "{text}");
    }
}

#[test]
fn the_page_names_every_key_that_the_reader_knows() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md"));
    let known = |text: &str| {
        let error = from_rtapp("x", text, &Options::default()).unwrap_err().to_string();
        let (_, known) = error.split_once("known are ").unwrap_or_else(|| panic!("{error}"));
        known.split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    let own = r#"{ "tasks": { "a": { "run": 1 } }, "warmcore": { "?": 1 } }"#;
    let of_task = r#"{ "tasks": { "a": { "run": 1 } }, "warmcore": { "tasks": { "a": { "?": 1 } } } }"#;
    for (keys, least) in [(known(own), 20), (known(of_task), 14)] {
        assert!(keys.len() >= least, "{keys:?}");
        for key in keys {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }
}

#[test]
fn a_slip_of_the_pen_is_told_with_the_nearest_key() {
    let text = r#"{ "tasks": { "a": { "run": 1000, "sleeep": 5, "insance": 3 } }, "globl": {}, "global": { "durration": 1 } }"#;
    let what: Vec<String> = read("slip", text).warnings.into_iter().map(|warning| warning.what).collect();
    let expected = [
        "global setting \"durration\" (did you mean \"duration\"?)",
        "key \"globl\" of the document (did you mean \"global\"?)",
        "key \"insance\" (did you mean \"instance\"?)",
    ];
    for expected in expected {
        assert!(what.iter().any(|what| what == expected), "{expected}: {what:?}");
    }
}

#[test]
fn a_task_that_never_does_any_work_is_refused_with_what_may_have_been_meant() {
    let file =
        |text: &'static str| warmcore_workload::resolve("x.json", &Options::default(), move |_| Ok(text.to_owned()));
    let refused = |text| file(text).unwrap_err().to_string();
    let slip = refused(r#"{ "tasks": { "a": { "rnu": 1000, "sleep": 1000 } } }"#);
    let expected = "tasks.a: it never does any work, and \"rnu\" is not an event (did you mean \"run\"?); give it one such as \"run\": 1000";
    assert_eq!(slip, expected);
    let nothing = refused(r#"{ "tasks": { "a": { "sleep": 1000, "loop": 3 } } }"#);
    assert_eq!(nothing, "tasks.a: it never does any work; give it an event such as \"run\": 1000");
    // Whoever wakes others has its use.
    read(
        "x",
        r#"{ "tasks": { "a": { "loop": 2, "sleep": 5, "resume": "b" }, "b": { "loop": 2, "run": 5, "suspend": "b" } } }"#,
    );
}

#[test]
fn profiles_in_json_come_back_and_stand_under_the_extra_key() {
    let profiles = &warmcore_memory::library::profiles()[..3];
    let text = warmcore_workload::profiles_to_json(profiles);
    assert_eq!(warmcore_workload::profiles_from_json(&text).unwrap(), profiles);
    let name = &profiles[0].name;
    let file = format!(
        r#"{{ "tasks": {{ "a": {{ "run": 5, "loop": 1 }} }}, "warmcore": {{ {}, "tasks": {{ "a": {{ "profile": "{name}" }} }} }} }}"#,
        text.trim().trim_start_matches('{').trim_end_matches('}')
    );
    assert_eq!(read("x", &file).profiles[0], profiles[0]);
}
