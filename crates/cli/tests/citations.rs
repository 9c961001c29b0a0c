//! What code, tests and pages cite is in the project: pages, their sections, items of the checklist, links between pages.
//!
//! A specification is cited as `docs/spec/NAME.md`, with `section N.M` after it where one is meant. A section without a
//! page is an error, but for those of standards and papers that are named right before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

/// What may be cited.
struct Project {
    /// Every file and directory but what is built, relative to the root, with `/` between names.
    paths: BTreeSet<String>,
    /// Numbers of the sections of each page in `docs/spec/`.
    sections: BTreeMap<String, BTreeSet<String>>,
    /// Anchors of the headings of every Markdown page, as they are made from headings for links.
    anchors: BTreeMap<String, BTreeSet<String>>,
    /// Numbers of the items of the fidelity checklist.
    items: BTreeSet<u32>,
}

/// Directories that hold no text of ours: builds, other people's machines, measurements, modules of the page's tools.
const NOT_OURS: [&str; 7] =
    ["target", ".git", "results", "book/results", "tests/machines", "web/node_modules", "web/built"];

static PROJECT: LazyLock<Project> = LazyLock::new(Project::read);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Adds what is in a directory.
pub fn walk(directory: &Path, root: &Path, paths: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if ["target", ".git", "web/node_modules", "fuzz/target"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(&path, root, paths);
        }
        paths.insert(name);
    }
}

impl Project {
    fn read() -> Self {
        let (root, mut paths) = (root(), BTreeSet::new());
        walk(&root, &root, &mut paths);
        let mut project = Self { paths, sections: BTreeMap::new(), anchors: BTreeMap::new(), items: BTreeSet::new() };
        for path in project.paths.iter().filter(|path| path.ends_with(".md")) {
            let text = fs::read_to_string(root.join(path)).unwrap();
            project.anchors.insert(path.clone(), headings(&text).map(anchor).collect());
            if path.starts_with("docs/spec/") {
                project.sections.insert(path.clone(), headings(&text).filter_map(number).collect());
            }
            if path == "crates/schedulers/tests/checklist/README.md" {
                project.items = items(&text);
            }
        }
        project
    }

    /// Texts in which citations are looked for.
    fn texts(&self) -> impl Iterator<Item = (&str, String)> {
        self.paths.iter().filter_map(|path| {
            let ours = !NOT_OURS.iter().any(|directory| path.starts_with(&format!("{directory}/")));
            let kind = [".rs", ".md", ".toml", ".ts", ".mjs"].iter().any(|suffix| path.ends_with(suffix));
            let script = path.starts_with("scripts/") || path == "Makefile";
            // Origins of presets name files of other projects.
            let own = ["crates/cli/tests/citations.rs", "docs/reference/presets.md"].contains(&path.as_str());
            if !ours || own || !(kind || script) || root().join(path).is_dir() {
                return None;
            }
            Some((path.as_str(), fs::read_to_string(root().join(path)).ok()?))
        })
    }

    /// Everything that is cited in a text and not there.
    fn complaints(&self, path: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let flat = flatten(text);
        self.check_pages(path, text, &flat, &mut found);
        self.check_sections(path, &flat, &mut found);
        if path.ends_with(".md") {
            self.check_links(path, text, &mut found);
        }
        if path.ends_with(".rs") {
            self.check_items(text, &mut found);
            self.check_tables(text, &flat, &mut found);
        }
        found.into_iter().map(|complaint| format!("{path}: {complaint}")).collect()
    }

    /// Paths of pages; in pages, paths of code and results too; names of pages in comments.
    fn check_pages(&self, path: &str, text: &str, flat: &str, found: &mut Vec<String>) {
        for word in path_words(flat) {
            let page = word.starts_with("docs/") && word.ends_with(".md");
            let named = ["results/2", "crates/", "scripts/", "book/", "machines/", "studies/", "workloads/", "tests/"];
            let file = path.ends_with(".md") && named.iter().any(|begin| word.starts_with(begin));
            let result = word.starts_with("results/2");
            if (page || file || result) && !self.paths.contains(word.trim_end_matches('/')) {
                found.push(format!("cites {word}, which does not exist"));
            }
        }
        if flat.contains("../shared") {
            found.push("cites a place outside of the project".to_owned());
        }
        if path.ends_with(".rs") {
            for line in text.lines().map(str::trim_start).filter(|line| line.starts_with("//")) {
                for word in path_words(line).filter(|word| word.ends_with(".md") && !word.starts_with("docs/")) {
                    if !self.paths.contains(word) {
                        found.push(format!("cites {word}, which does not exist; pages are cited by path"));
                    }
                }
            }
        }
    }

    /// `section 4.2`, `sections 1.3, 1.8 and 2`, `sections 3.1 to 3.3`, each after the page that has it.
    fn check_sections(&self, path: &str, flat: &str, found: &mut Vec<String>) {
        for (at, word) in flat.match_indices("ection") {
            let start = at - flat[..at].chars().next_back().map_or(0, char::len_utf8);
            if !matches!(&flat[start..at], "s" | "S") || flat[..start].ends_with(char::is_alphanumeric) {
                continue;
            }
            let rest = flat[at + word.len()..].trim_start_matches('s');
            let numbers = listed(rest);
            if numbers.is_empty() {
                continue;
            }
            let before = flat[..start].trim_end().trim_end_matches([',', '`', ')']);
            let page = path_words(before).last().filter(|word| before.ends_with(word) && word.ends_with(".md"));
            let page = match page {
                Some(page) if page.starts_with("docs/") => page,
                _ if path.starts_with("docs/spec/") => path,
                _ if foreign(before) => continue,
                _ => {
                    found.push(format!("cites section {} without its page", numbers[0]));
                    continue;
                }
            };
            let Some(known) = self.sections.get(page) else {
                found.push(format!("cites a section of {page}, which is not a page of docs/spec"));
                continue;
            };
            for number in numbers.iter().filter(|number| !known.contains(*number)) {
                found.push(format!("cites {page} section {number}, which does not exist"));
            }
        }
    }

    /// `](target)`: the file is there, and the heading, if one is meant. A page of the manual links to what the built manual has, or to an
    /// address that is encrypted.
    fn check_links(&self, path: &str, text: &str, found: &mut Vec<String>) {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '\n']).next()) {
            let target = target.split(' ').next().unwrap();
            let in_manual = path.starts_with("docs/");
            if target.contains("://") || target.starts_with("mailto:") || target.contains("::") {
                if in_manual && !target.starts_with("https://") {
                    found.push(format!("links to {target}, which is not an https address"));
                }
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { Some(path.to_owned()) } else { relative(path, file) };
            match file.filter(|file| self.paths.contains(file) || file.is_empty()) {
                None => found.push(format!("links to {target}, which does not exist")),
                Some(file) if in_manual && !file.starts_with("docs/") => {
                    found.push(format!("links to {target}, which the built manual lacks: name the file instead"));
                }
                Some(file) => {
                    let known = self.anchors.get(&file);
                    if !heading.is_empty() && !known.is_some_and(|known| known.contains(heading)) {
                        found.push(format!("links to {target}, but {file} has no such heading"));
                    }
                }
            }
        }
    }

    /// Tests named after items of the checklist.
    fn check_items(&self, text: &str, found: &mut Vec<String>) {
        for name in text.split("fn item_").skip(1) {
            let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
            if !digits.parse().is_ok_and(|item| self.items.contains(&item)) {
                found.push(format!(
                    "is named after item {digits}, which crates/schedulers/tests/checklist/README.md does not have"
                ));
            }
        }
    }

    /// Tables at the head of modules give sections in brackets, of the page that the module cites.
    fn check_tables(&self, text: &str, flat: &str, found: &mut Vec<String>) {
        let Some(page) = path_words(flat).find(|word| self.sections.contains_key(*word)) else { return };
        for row in text.lines().filter(|line| line.starts_with("//! |")) {
            for bracket in row.split('(').skip(1) {
                for number in listed(&format!(" {bracket}")) {
                    if number.contains('.') && !self.sections[page].contains(&number) {
                        found.push(format!("has ({number}) in a table, which {page} does not have"));
                    }
                }
            }
        }
    }
}

/// Standards and papers whose sections are not ours to keep.
fn foreign(before: &str) -> bool {
    let near = before.char_indices().rev().nth(60).map_or(before, |(at, _)| &before[at..]);
    ["RFC ", "USENIX ATC"].iter().any(|source| near.contains(source))
}

/// A text without line ends and without the marks at the begin of comment lines.
fn flatten(text: &str) -> String {
    let marks = ["//! ", "/// ", "// ", "# "];
    let line = |line: &str| {
        let line = line.trim();
        marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).to_owned()
    };
    text.lines().map(line).collect::<Vec<_>>().join(" ")
}

/// Runs of characters that paths are made of, without what ends a sentence.
fn path_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c))).map(|word| word.trim_end_matches('.'))
}

/// The numbers that follow: ` 4`, ` 1.3, 1.8 and 2`, ` 3.1 to 3.3`.
fn listed(text: &str) -> Vec<String> {
    let mut numbers = Vec::new();
    let mut rest = text;
    let mut separators: &[&str] = &[" "];
    while let Some(after) = separators.iter().find_map(|separator| rest.strip_prefix(separator)) {
        let end = after.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(after.len());
        let digits = after[..end].trim_end_matches('.');
        if digits.is_empty() {
            break;
        }
        numbers.push(digits.to_owned());
        rest = &after[digits.len()..];
        separators = &[", ", " and ", " to ", " or "];
    }
    numbers
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim())
}

/// `4.2` of the heading `4.2 Occupancy`.
fn number(heading: &str) -> Option<String> {
    let first = heading.split(' ').next()?.trim_end_matches('.');
    (first.starts_with(|c: char| c.is_ascii_digit()) && first.chars().all(|c| c.is_ascii_digit() || c == '.'))
        .then(|| first.to_owned())
}

/// A heading as links name it: lower case, hyphens for spaces, without punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Items of the checklist: lines `30. …`.
fn items(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.split_once(". ")?.0.parse().ok()).collect()
}

/// A link's target relative to the root, or none if it leaves the project.
fn relative(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for component in Path::new(target).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

#[test]
fn what_is_cited_exists() {
    let project = &PROJECT;
    let complaints: Vec<String> = project.texts().flat_map(|(path, text)| project.complaints(path, &text)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn the_specifications_are_read_as_they_are_written() {
    let project = &PROJECT;
    assert!(project.sections["docs/spec/linux-fair.md"].contains("6.11"));
    assert!(project.sections["docs/spec/memory-model.md"].contains("8"));
    assert_eq!(project.items, (1..=50).collect());
    assert!(project.texts().any(|(path, text)| path.ends_with(".rs") && text.contains("docs/spec/linux-fair.md")));
}

/// What the test would say of a page `docs/models/x.md` or a module with this text.
fn said(path: &str, text: &str) -> String {
    PROJECT.complaints(path, text).join("\n")
}

#[test]
fn a_missing_page_is_found() {
    assert!(said("crates/x.rs", "//! See `docs/spec/nothing.md`.").contains("docs/spec/nothing.md"));
    assert!(said("scripts/x", "# docs/nothing.md has it").contains("docs/nothing.md"));
    assert!(said("crates/x.rs", "/// As in `linux-fair.md`, by name only.").contains("cited by path"));
    assert!(said("docs/x.md", "`results/2026-01-01-nowhere/a.txt` has it").contains("nowhere"));
    assert!(said("crates/x.rs", "// As results/2026-11-22-*/message-lines has it").contains("results/2026"));
    assert!(said("docs/x.md", "as ../shared/reference says").contains("outside of the project"));
    assert!(said("docs/x.md", "after `crates/lab/src/nothing.rs`").contains("crates/lab/src/nothing.rs"));
    assert_eq!(said("crates/x.rs", "//! See `docs/spec/linux-fair.md`."), "");
}

#[test]
fn a_missing_section_is_found() {
    let page = "`docs/spec/linux-fair.md`";
    assert!(said("crates/x.rs", &format!("//! {page} section 6.99")).contains("section 6.99"));
    assert!(said("crates/x.rs", &format!("//! of {page}\n//! sections 1.3, 1.8 and 77.")).contains("section 77"));
    assert!(said("crates/x.rs", &format!("// {page}, sections 3.1 to 3.77")).contains("section 3.77"));
    assert!(said("crates/x.rs", "//! `docs/guide.md` section 1").contains("not a page of docs/spec"));
    assert!(said("docs/spec/linux-fair.md", "as section 99 says").contains("section 99"));
    assert_eq!(said("crates/x.rs", &format!("//! ({page}\n    /// sections 1.3, 1.8 and 2).")), "");
}

#[test]
fn a_section_without_its_page_is_found() {
    assert!(said("crates/x.rs", "// As section 6.7 has it").contains("without its page"));
    assert!(said("docs/models/x.md", "the reference, sections 3.1 and 3.2").contains("without its page"));
    assert_eq!(said("crates/x.rs", "/// Base64 (RFC 4648 section 4)."), "");
    assert_eq!(said("crates/x.rs", "// a section of code, sections"), "");
}

#[test]
fn a_missing_item_of_the_checklist_is_found() {
    assert!(said("crates/x.rs", "fn item_51_is_none() {}").contains("item 51"));
    assert_eq!(said("crates/x.rs", "fn item_01_is_one() {}"), "");
    let table = "//! `docs/spec/linux-fair.md` section 6\n//! | `scan` | (6.3, 6.77) |";
    assert!(said("crates/x.rs", table).contains("6.77"));
}

#[test]
fn a_dead_link_is_found() {
    assert!(said("docs/x.md", "[there](models/nothing.md)").contains("models/nothing.md"));
    assert!(said("docs/x.md", "[there](../../outside.md)").contains("outside.md"));
    assert!(said("docs/x.md", "[there](guide.md#no-such-heading)").contains("no such heading"));
    assert_eq!(said("docs/x.md", "[a](guide.md), [b](https://example.org/x)"), "");
    assert_eq!(said("book/x.md", "[a](../README.md)"), "");
    assert!(said("docs/x.md", "[a](../README.md)").contains("the built manual lacks"));
    assert!(said("docs/x.md", "[a](http://example.org/x)").contains("not an https address"));
}
