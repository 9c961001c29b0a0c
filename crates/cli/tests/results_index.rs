//! Every measurement in `results/` belongs to a claim, and every claim names its files, command and commit.
//!
//! `results/INDEX.md` is made from the manifests by `scripts/results-index`, and is what that makes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Where it was measured.
    machine: String,
    claim: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    claim: String,
    /// Names relative to the manifest; of directories with a slash after them.
    files: Vec<String>,
    command: String,
    commit: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Names of all files below a directory, relative to it.
fn files(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|below| format!("{name}/{below}")));
        } else {
            found.insert(name);
        }
    }
    found
}

/// What is wrong with a directory of results, given the text of its manifest and what is in it.
fn complaints(text: &str, present: &BTreeSet<String>) -> Vec<String> {
    let manifest: Manifest = match toml::from_str(text) {
        Ok(manifest) => manifest,
        Err(error) => return vec![error.message().to_owned()],
    };
    let mut wrong = Vec::new();
    let mut claimed = BTreeSet::from(["manifest.toml".to_owned()]);
    if manifest.machine.is_empty() {
        wrong.push("names no machine".to_owned());
    }
    for claim in &manifest.claim {
        for (what, text) in [("claim", &claim.claim), ("command", &claim.command), ("commit", &claim.commit)] {
            if text.trim().is_empty() {
                wrong.push(format!("`{}` has no {what}", claim.claim));
            }
        }
        let hexadecimal = |word: &str| (7..=40).contains(&word.len()) && word.chars().all(|c| c.is_ascii_hexdigit());
        if !claim.commit.split(|c: char| !c.is_ascii_alphanumeric()).any(hexadecimal) {
            wrong.push(format!("`{}` names no commit", claim.claim));
        }
        for name in &claim.files {
            let of: Vec<String> = present
                .iter()
                .filter(|file| *file == name || name.ends_with('/') && file.starts_with(name))
                .cloned()
                .collect();
            if of.is_empty() {
                wrong.push(format!("`{}` names {name}, which is not there", claim.claim));
            }
            claimed.extend(of);
        }
    }
    wrong.extend(present.difference(&claimed).map(|file| format!("no claim stands on {file}")));
    wrong
}

#[test]
fn every_result_belongs_to_a_claim_with_command_and_commit() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("results")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name == "INDEX.md" {
            continue;
        }
        let text = fs::read_to_string(path.join("manifest.toml")).unwrap_or_default();
        wrong.extend(complaints(&text, &files(&path)).into_iter().map(|complaint| format!("{name}: {complaint}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_index_is_made_of_the_manifests_and_every_claim_is_cited() {
    let output = Command::new(root().join("scripts/results-index")).arg("--print").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = String::from_utf8(output.stdout).unwrap();
    let stored = fs::read_to_string(root().join("results/INDEX.md")).unwrap();
    assert_eq!(stored, made, "run scripts/results-index");
    for directory in fs::read_dir(root().join("results")).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(text) = fs::read_to_string(directory.join("manifest.toml")) else { continue };
        for claim in toml::from_str::<Manifest>(&text).unwrap().claim {
            assert!(made.contains(&format!("**{}.**", claim.claim)), "the index lacks: {}", claim.claim);
            assert!(made.contains(&format!("- commit: {}\n", claim.commit)), "the index lacks: {}", claim.commit);
        }
    }
    let uncited: Vec<&str> = made.split("\n**").filter(|entry| entry.contains("- cited by: nothing")).collect();
    assert!(uncited.is_empty(), "no page stands on these: {uncited:#?}");
}

#[test]
fn what_a_manifest_leaves_out_is_found() {
    let good = "machine = \"m\"\n[[claim]]\nclaim = \"c\"\nfiles = [\"a.txt\", \"b/\"]\ncommand = \"x\"\ncommit = \"1234abc\"\n";
    let present = ["a.txt", "b/c.json", "manifest.toml"].map(str::to_owned).into();
    assert_eq!(complaints(good, &present), Vec::<String>::new());
    let more = ["a.txt", "b/c.json", "d.txt", "manifest.toml"].map(str::to_owned).into();
    assert_eq!(complaints(good, &more), ["no claim stands on d.txt"]);
    let less = ["a.txt", "manifest.toml"].map(str::to_owned).into();
    assert!(complaints(good, &less)[0].contains("b/, which is not there"));
    assert!(complaints(&good.replace("1234abc", "of last week"), &present)[0].contains("names no commit"));
    assert!(complaints(&good.replace("command = \"x\"\n", ""), &present)[0].contains("command"));
    assert!(complaints("", &present)[0].contains("machine"));
}
