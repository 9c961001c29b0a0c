//! Lists the files of `machines/` and `machines/background/`, so that adding a machine or a background needs nothing but its TOML file.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let manifest = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let machines = Path::new(&manifest).join("../../machines");
    list(&machines, "every preset", "PRESET_FILES", "preset_files.rs");
    list(&machines.join("background"), "every background", "BACKGROUND_FILES", "background_files.rs");
}

/// Writes name and text of each TOML file of a directory as a table.
fn list(directory: &Path, what: &str, table: &str, file: &str) {
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", directory.display()))
        .map(|entry| entry.expect("directory entries are readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort_by_key(|path| path.file_stem().map(|stem| stem.to_owned()));

    let mut code = format!("/// Name and text of {what}, by name.\nstatic {table}: &[(&str, &str)] = &[\n");
    for path in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("preset names are ASCII");
        let _ = writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string());
    }
    code.push_str("];\n");
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join(file);
    fs::write(&out, code).unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
}
