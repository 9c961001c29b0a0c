//! The crates depend on each other as ARCHITECTURE.md says: its table names what each one uses, its drawing the order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in crates/").to_owned()
}

fn architecture() -> String {
    fs::read_to_string(crates().join("../ARCHITECTURE.md")).unwrap()
}

/// The table's last column: for each crate, the crates of ours it uses.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let architecture = architecture();
    let rows = architecture.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, uses] = cells[..] else { panic!("not a row of three cells: {line}") };
        let uses = uses.split(", ").filter(|name| *name != "nothing").map(str::to_owned);
        (name.trim_matches('`').to_owned(), uses.collect())
    };
    rows.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// The drawing: groups of crates, each of which may use those before it.
fn drawing() -> Vec<Vec<String>> {
    let architecture = architecture();
    let lines = architecture.lines().skip_while(|line| !line.starts_with("Arrows point one way")).skip(1);
    let drawn: String = lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).collect();
    let group = |group: &str| group.split(',').map(|name| name.trim().to_owned()).collect();
    drawn.split('←').map(group).collect()
}

#[test]
fn crates_use_what_the_map_says_and_nothing_else() {
    let mut table = table();
    for entry in fs::read_dir(crates()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let said = table.remove(name).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for crate {name}"));
        let manifest: toml::Table = fs::read_to_string(path.join("Cargo.toml")).unwrap().parse().unwrap();
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let ours = dependencies.into_iter().flat_map(toml::Table::keys);
        // The program's package has the name that users type.
        let named = |dependency: &String| match dependency.as_str() {
            "warmcore" => Some("cli".to_owned()),
            other => other.strip_prefix("warmcore-").map(str::to_owned),
        };
        let used: BTreeSet<String> = ours.filter_map(named).collect();
        assert_eq!(used, said, "crates/{name}/Cargo.toml (left) and its row in ARCHITECTURE.md (right)");
    }
    assert!(table.is_empty(), "rows of ARCHITECTURE.md without a crate: {:?}", table.keys());
}

#[test]
fn arrows_point_one_way() {
    let (table, drawing) = (table(), drawing());
    let place = |name: &String| {
        let found = drawing.iter().position(|group| group.contains(name));
        found.unwrap_or_else(|| panic!("the drawing of ARCHITECTURE.md lacks crate {name}"))
    };
    assert_eq!(drawing.iter().map(Vec::len).sum::<usize>(), table.len(), "each crate is drawn once: {drawing:?}");
    for (name, uses) in &table {
        for used in uses {
            assert!(place(used) < place(name), "{name} uses {used}, which the drawing does not put before it");
        }
    }
}

#[test]
fn core_crates_do_not_read_files_clocks_or_the_environment() {
    // `native` runs real threads, `agent` carries out plans on a kernel, `loader` starts loaders of schedulers, `places` boots kernels, `lab` keeps run
    // directories, `fidelity` reads the book, `cli` is the program, `python` the other face, `testing` notes what was skipped,
    // `fuzz-targets` makes the trees and directories that its readers read; all others are pure. Readers of
    // directory trees and writers of tables take a path from their caller; they are the named exceptions.
    let exceptions = ["topology", "trace", "native", "agent", "loader", "places", "lab", "fidelity", "cli", "python"];
    let exceptions = [exceptions.as_slice(), &["testing", "fuzz-targets"]].concat();
    let forbidden = ["std::env", "std::fs", "std::process", "std::thread", "SystemTime", "Instant::now"];
    for name in table().keys().filter(|name| !exceptions.contains(&name.as_str())) {
        let mut files = Vec::new();
        rust_files(&crates().join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "crates/{name} has no sources");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = without_tests(&text);
            for word in forbidden {
                assert!(!code.contains(word), "{} uses {word}", file.display());
            }
        }
    }
}

/// A formatted source without the items that are for tests. An item begins at some indentation and ends with the first line of that
/// indentation that closes it.
fn without_tests(text: &str) -> String {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let ends = |other: &str| {
            indentation(other) == indentation(line) && !other.trim().is_empty() && other.ends_with(['}', ';', ','])
        };
        assert!(lines.any(ends), "an item for tests does not end: {text}");
    }
    kept
}

#[test]
fn what_stands_behind_an_item_for_tests_is_read() {
    let text = "use a;\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nimpl X {\n    #[cfg(test)]\n    fn y() {\n    }\n}\nuse std::env;\n#[cfg(test)]\nmod other;\nuse b;\n";
    assert_eq!(without_tests(text), "use a;\nimpl X {\n}\nuse std::env;\nuse b;\n");
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn central_words_name_one_type_each() {
    let mut files = Vec::new();
    for name in table().keys() {
        rust_files(&crates().join(name).join("src"), &mut files);
    }
    for word in ["Place", "Profile", "Verdict"] {
        let declares = |line: &str| {
            let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            words.any(|before| ["struct", "enum", "trait", "type"].contains(&before)) && words.next() == Some(word)
        };
        let of_file = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().filter(|line| declares(line)).count();
        let found: Vec<_> = files.iter().filter(|file| of_file(file) > 0).collect();
        assert_eq!(found.iter().map(|file| of_file(file)).sum::<usize>(), 1, "types named {word}: {found:?}");
    }
}

/// A crate whose documentation has no example says so in its manifest, which spares the tests a reading of the whole crate.
#[test]
fn every_example_in_a_crate_s_documentation_is_run() {
    let mut left_out = 0;
    for entry in fs::read_dir(crates()).unwrap() {
        let path = entry.unwrap().path();
        let manifest: toml::Table = fs::read_to_string(path.join("Cargo.toml")).unwrap().parse().unwrap();
        let runs = manifest.get("lib").and_then(|lib| lib.get("doctest")).and_then(toml::Value::as_bool);
        if runs != Some(false) {
            continue;
        }
        left_out += 1;
        let mut files = Vec::new();
        rust_files(&path.join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let mut fences = text.lines().filter_map(|line| {
                let line = line.trim_start();
                let documentation = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
                documentation.trim_start().strip_prefix("```")
            });
            while let Some(opened) = fences.next() {
                assert_eq!(opened.trim(), "text", "{}: an example that nothing runs", file.display());
                fences.next();
            }
        }
    }
    assert!(left_out >= 1);
}

/// A file that nobody names would be compiled by nobody, and its tests would be gone without a word.
#[test]
fn every_file_of_tests_that_are_one_binary_belongs_to_it() {
    let mut joined = 0;
    for entry in fs::read_dir(crates()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        if manifest["package"].get("autotests").is_none() {
            continue;
        }
        joined += 1;
        let binaries = manifest["test"].as_array().unwrap().iter().map(|binary| binary["name"].as_str().unwrap());
        let binaries: Vec<&str> = binaries.collect();
        let suite = fs::read_to_string(path.join("tests/suite.rs")).unwrap();
        for file in fs::read_dir(path.join("tests")).unwrap() {
            let file = file.unwrap().path();
            let is_source = file.extension().is_some_and(|extension| extension == "rs");
            if !is_source && !file.join("main.rs").exists() {
                continue;
            }
            let name = file.file_stem().unwrap().to_str().unwrap();
            let named = binaries.contains(&name) || suite.lines().any(|line| line == format!("mod {name};"));
            assert!(named, "{}: neither a module of suite.rs nor a [[test]] of Cargo.toml", file.display());
        }
    }
    assert!(joined >= 1);
}
