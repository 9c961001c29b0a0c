//! Every dependency's licence is one that `deny.toml` allows. `make deny` checks more (advisories, sources), but needs
//! cargo-deny, which takes minutes to build.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::citations::walk;

/// Whether an SPDX expression can be satisfied with allowed licences. `AND` binds tighter than `OR`; the old `/` is `OR`.
fn allowed(expression: &str, list: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ").replace(" WITH ", "~WITH~");
    let words: Vec<String> = spaced.split_whitespace().map(|word| word.replace("~WITH~", " WITH ")).collect();
    let mut rest = words.as_slice();
    any(&mut rest, list) && rest.is_empty()
}

fn any(words: &mut &[String], list: &BTreeSet<String>) -> bool {
    let mut result = all(words, list);
    while words.first().is_some_and(|word| word == "OR") {
        *words = &words[1..];
        result |= all(words, list);
    }
    result
}

fn all(words: &mut &[String], list: &BTreeSet<String>) -> bool {
    let mut result = one(words, list);
    while words.first().is_some_and(|word| word == "AND") {
        *words = &words[1..];
        result &= one(words, list);
    }
    result
}

fn one(words: &mut &[String], list: &BTreeSet<String>) -> bool {
    let Some((word, rest)) = words.split_first() else { return false };
    *words = rest;
    if word != "(" {
        return list.contains(word);
    }
    let result = any(words, list);
    let closed = words.first().is_some_and(|word| word == ")");
    *words = words.get(1..).unwrap_or_default();
    result && closed
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/");
    let rules: toml::Table = fs::read_to_string(root.join("deny.toml")).unwrap().parse().unwrap();
    let list = rules["licenses"]["allow"].as_array().unwrap();
    let list: BTreeSet<String> = list.iter().map(|licence| licence.as_str().unwrap().to_owned()).collect();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "the dependencies are listed");
    let exceptions = rules["licenses"]["exceptions"].as_array().unwrap();
    let mut excepted = BTreeSet::new();
    for package in packages {
        let (name, licence) = (package["name"].as_str().unwrap(), package["license"].as_str().unwrap_or("none"));
        let own = exceptions.iter().find(|exception| exception["name"].as_str() == Some(name));
        let mut list = list.clone();
        if let Some(own) = own {
            excepted.insert(name);
            list.extend(own["allow"].as_array().unwrap().iter().map(|licence| licence.as_str().unwrap().to_owned()));
        }
        assert!(allowed(licence, &list), "{name} has licence {licence}");
    }
    // What has another licence is a leaf: programs in processes of their own, which nothing is linked with.
    assert_eq!(excepted.len(), exceptions.len(), "an exception of deny.toml is for nobody");
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    for package in packages {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            assert!(!excepted.contains(name), "{} depends on {name}", package["name"]);
        }
    }
    assert!(excepted.iter().all(|name| !workspace.contains(&format!("{name} = "))), "a leaf is among the dependencies");
}

#[test]
fn sources_for_bpf_state_their_own_licence_and_no_other_file_does() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/");
    let mut files = BTreeSet::new();
    walk(root, root, &mut files);
    files.retain(|file| [".rs", ".c", ".h"].iter().any(|suffix| file.ends_with(suffix)));
    assert!(files.len() > 1000, "{files:?}");
    for file in &files {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let stated = text.lines().next().is_some_and(|line| line.contains("SPDX-License-Identifier: GPL-2.0-only"));
        let leaf = file.starts_with("bpf/") || file.starts_with("tests/stalling-scheduler/");
        assert_eq!(stated, leaf, "{file}: its first line and its place disagree about its licence");
    }
}

#[test]
fn expressions_are_read_with_their_precedence() {
    let list = BTreeSet::from(["MIT".to_owned(), "Apache-2.0".to_owned(), "Unicode-3.0".to_owned()]);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-2.0-only", false),
        ("MIT OR GPL-2.0-only", true),
        ("MIT/GPL-2.0-only", true),
        ("MIT AND GPL-2.0-only", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("GPL-2.0-only OR MIT AND Unicode-3.0", true),
        ("(GPL-2.0-only OR MIT) AND LGPL-2.1-only", false),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("none", false),
        ("(MIT", false),
    ] {
        assert_eq!(allowed(expression, &list), expected, "{expression}");
    }
}
