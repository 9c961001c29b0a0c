//! The studies that come with the program.

use std::path::Path;

use crate::document::StudyDocument;
use crate::file::{FormError, Study};

/// A study in the program.
#[derive(Clone, Copy, Debug)]
pub struct Packaged {
    /// Name: `COLLECTION/STUDY`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! studies {
    ($($name:literal),* $(,)?) => {
        &[$(Packaged { name: $name, text: include_str!(concat!("../../../studies/", $name, ".toml")) }),*]
    };
}

/// All of them, in the order of pages.
pub static STUDIES: &[Packaged] = studies![
    "agreement/sched-ext",
    "answers/bound-to-one-llc",
    "answers/cache-aware-chacha20",
    "answers/cache-aware-hackbench-pipes",
    "answers/cache-aware-hackbench-sockets",
    "answers/cache-aware-schbench",
    "answers/cache-aware-too-many",
    "answers/chacha20-genoa",
    "answers/contention-artefact",
    "answers/context1",
    "answers/cores-of-one-socket",
    "answers/cpu-quota",
    "answers/database-preemption",
    "answers/fork-turns",
    "answers/genoa-both-sockets",
    "answers/group-shares",
    "answers/hackbench-one-pair",
    "answers/hackbench-two-pairs",
    "answers/hot-line-by-chance",
    "answers/hot-line-sockets",
    "answers/lavd-spinners",
    "answers/lesson-editor",
    "answers/llama-threads",
    "answers/nested-groups",
    "answers/nice-shares",
    "answers/pinned-for-a-moment",
    "answers/pipe-altra",
    "answers/pipe-pairs-one-queue",
    "answers/readme-release",
    "answers/release-512-cfs",
    "answers/release-512-ule",
    "answers/siblings-share-an-l2",
    "answers/slices-of-three",
    "answers/smt-pool",
    "answers/spinners-on-three-llcs",
    "answers/stream-clusters",
    "answers/topology-aware-hackbench-16",
    "answers/topology-aware-hackbench-2",
    "answers/topology-aware-schbench-32",
    "answers/two-ccds",
    "answers/two-threads-one-core",
    "answers/ule-apache",
    "answers/ule-c-ray",
    "answers/ule-ferret",
    "answers/ule-fibo-sysbench",
    "answers/ule-scimark",
    "answers/underloaded-stays",
    "answers/video-two-sockets",
    "answers/wasted-cores-group-imbalance",
    "answers/wasted-cores-two-hops",
    "answers/yield-of-two",
    "harness/four-configurations",
    "papers/cache-aware-slides",
    "papers/cdf-dio",
    "papers/characterisation",
    "papers/topology-rfc",
    "papers/ule-cfs",
];

/// Those of a name: one study, or all of a collection.
///
/// # Errors
/// When one of them is not what it should be, which a test of the program rules out.
pub fn find(name: &str) -> Result<Vec<Study>, FormError> {
    let of_collection = |packaged: &&Packaged| {
        packaged.name == name || packaged.name.split_once('/').is_some_and(|(collection, _)| collection == name)
    };
    STUDIES.iter().filter(of_collection).map(Packaged::study).collect()
}

/// The names that [`find`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    let mut collections: Vec<&str> =
        STUDIES.iter().filter_map(|packaged| Some(packaged.name.split_once('/')?.0)).collect();
    collections.dedup();
    collections.into_iter().chain(STUDIES.iter().map(|packaged| packaged.name))
}

/// What a study is called on the command line: with its collection if it comes with the program, a file otherwise.
pub(crate) fn name_of(study: &str) -> String {
    let packaged = STUDIES.iter().find(|packaged| packaged.name.rsplit('/').next() == Some(study));
    packaged.map_or_else(|| format!("{study}.toml"), |packaged| packaged.name.to_owned())
}

/// A collection of studies: its name, and title and introduction of its page.
const COLLECTIONS: [(&str, &str, &str); 2] = [
    (
        "papers",
        "Papers",
        "Figures of papers, slides and patch letters next to those that are simulated. One file under `studies/papers` has a paper: what runs for each of its figures, \
         what was published, and the band in which ours must lie, with the reason; bands were written before the runs. `docs/reproductions.md` has the rules of scoring, `docs/sources` what is known of those outside.",
    ),
    (
        "answers",
        "Known answers",
        "The program's answers to questions whose answer was measured elsewhere. One file under `studies/answers` has a question, what it runs, \
     the measured answer with its source, and the band in which ours must lie, with the reason; bands were written before the runs. A wrong answer \
     stays in the list as wrong, with its cause; the tests run the short studies and fail when an answer changes. \
     `warmcore study run answers --page docs/answers.md` makes this page.",
    ),
];

/// Title and introduction of the page of what was asked for.
pub fn heading(names: &[String]) -> (&'static str, &'static str) {
    let collection = |(name, ..): &&(&str, &str, &str)| {
        names.iter().all(|asked| asked == name || asked.starts_with(&format!("{name}/")))
    };
    COLLECTIONS
        .iter()
        .find(collection)
        .map_or(("Studies", "What came out of these studies."), |found| (found.1, found.2))
}

/// The same for a result.
pub fn heading_of(document: &StudyDocument) -> (&'static str, &'static str) {
    let is_in = |collection: &str| {
        let known = |name: &str| STUDIES.iter().any(|packaged| packaged.name == format!("{collection}/{name}"));
        document.studies.iter().all(|study| known(&study.name))
    };
    let names: Vec<String> =
        COLLECTIONS.iter().filter(|(name, ..)| is_in(name)).map(|(name, ..)| (*name).to_owned()).collect();
    if names.is_empty() { heading(&["".to_owned()]) } else { heading(&names) }
}

impl Packaged {
    /// The study.
    ///
    /// # Errors
    /// When it is not what it should be.
    pub fn study(&self) -> Result<Study, FormError> {
        Study::parse(Path::new(&format!("studies/{}.toml", self.name)), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_of_the_tree_is_in_the_program_and_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
        let mut files = Vec::new();
        let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        for collection in entries.filter(|path| path.is_dir()) {
            for file in std::fs::read_dir(&collection).unwrap() {
                let file = file.unwrap().path();
                if file.extension().is_some_and(|extension| extension == "toml") {
                    let names = [collection.file_name(), file.file_stem()].map(|name| name.unwrap().to_str().unwrap());
                    files.push(names.join("/"));
                }
            }
        }
        files.sort();
        let mut packaged: Vec<&str> = STUDIES.iter().map(|packaged| packaged.name).collect();
        packaged.sort_unstable();
        assert_eq!(files, packaged);
        for study in STUDIES {
            study.study().unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn a_collection_is_all_of_its_studies() {
        let all = find("answers").unwrap();
        assert_eq!(all.len(), STUDIES.iter().filter(|packaged| packaged.name.starts_with("answers/")).count());
        assert_eq!(find("answers/smt-pool").unwrap().len(), 1);
        assert!(find("nothing").unwrap().is_empty());
        assert!(names().any(|name| name == "answers") && names().any(|name| name == "answers/smt-pool"));
    }
}
