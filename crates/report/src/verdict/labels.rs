//! Short names of schedulers for tables and sentences. A name keeps what its scheduler differs in from the others, and no two names are alike.

use crate::figures::shortened_within;

/// Longest name, in characters: a longer text is shortened.
const LONGEST: usize = 36;

/// A scheduler's text in its parts: `name:setting,setting @ circumstance …`, or `scx:setting PROGRAM ARGUMENT … @ circumstance …`.
struct Parts<'a> {
    /// The scheduler's name, or the path of its program.
    head: &'a str,
    is_program: bool,
    /// Settings, arguments of the program, circumstances.
    words: [Vec<&'a str>; 3],
}

impl<'a> Parts<'a> {
    fn of(label: &'a str) -> Self {
        let (own, circumstances) = label.split_once(" @ ").unwrap_or((label, ""));
        let circumstances = circumstances.split_whitespace().collect();
        let (name, rest) = own.split_once(':').unwrap_or((own, ""));
        if name != "scx" {
            let settings = rest.split(',').filter(|setting| !setting.is_empty()).collect();
            return Self { head: name, is_program: false, words: [settings, Vec::new(), circumstances] };
        }
        let words: Vec<&str> = rest.split_whitespace().collect();
        // Settings come before the program.
        let is_setting = |word: &&&str| word.contains('=') && !word.contains('/');
        let (settings, rest) = words.split_at(words.iter().take_while(is_setting).count());
        let (&head, arguments) = rest.split_first().unwrap_or((&"", &[]));
        Self { head, is_program: true, words: [settings.to_vec(), arguments.to_vec(), circumstances] }
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.head, self.is_program) == (other.head, other.is_program)
    }

    /// The program's file, with as many of its directories as make it differ from the other programs' files.
    fn program(&self, all: &[Self]) -> &'a str {
        let path = self.head;
        let is_end_of =
            |other: &str, end: &str| other.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        let is_of_another =
            |end: &str| all.iter().any(|other| other.is_program && other.head != path && is_end_of(other.head, end));
        let mut ends = path.rmatch_indices('/').map(|(at, _)| &path[at + 1..]);
        ends.find(|end| !end.is_empty() && !is_of_another(end)).unwrap_or(path)
    }

    /// The text again, without the directories of a program; with `only_differing` also without the words that all columns of the same
    /// scheduler have. A scheduler with settings keeps at least one.
    fn text(&self, all: &[Self], only_differing: bool) -> String {
        let alike: Vec<&Self> = all.iter().filter(|other| self.is_like(other)).collect();
        let is_shared = |list: usize, word: &str| {
            only_differing && alike.len() > 1 && alike.iter().all(|other| other.words[list].contains(&word))
        };
        let mut kept: [Vec<&str>; 3] = std::array::from_fn(|list| {
            self.words[list].iter().copied().filter(|word| !is_shared(list, word)).collect()
        });
        if kept.iter().all(Vec::is_empty) {
            kept.clone_from(&self.words);
        }
        if kept[0].is_empty() {
            kept[0].clone_from(&self.words[0]);
        }
        let [settings, arguments, circumstances] = kept;
        let own = match (self.is_program, settings.is_empty()) {
            (true, _) => {
                let program = std::iter::once(self.program(all));
                format!("scx:{}", settings.into_iter().chain(program).chain(arguments).collect::<Vec<_>>().join(" "))
            }
            (false, true) => self.head.to_owned(),
            (false, false) => format!("{}:{}", self.head, settings.join(",")),
        };
        if circumstances.is_empty() { own } else { format!("{own} @ {}", circumstances.join(" ")) }
    }
}

/// A name for each of the schedulers, in their order: the text itself where it is short, or where no shorter one differs from all others.
pub(super) fn names(labels: &[&str]) -> Vec<String> {
    let parts: Vec<Parts<'_>> = labels.iter().map(|label| Parts::of(label)).collect();
    let is_short = |text: &str| text.chars().count() <= LONGEST;
    let mut names: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    for index in 0..names.len() {
        if is_short(&names[index]) {
            continue;
        }
        let differing = parts[index].text(&parts, true);
        let cut = shortened_within(&differing, LONGEST);
        let candidates = [parts[index].text(&parts, false), differing, cut];
        // Long texts that come later are no candidate, so that a name is compared with all others.
        if let Some(name) = candidates.into_iter().find(|name| is_short(name) && !names.contains(name)) {
            names[index] = name;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_tuned_scheduler_is_never_called_by_its_bare_name() {
        assert_eq!(names(&["rr", "eevdf:base_slice_ns=3000000"]), ["rr", "eevdf:base_slice_ns=3000000"]);
        let long = "eevdf:base_slice_ns=3000000,migration_cost_ns=500000,hz=1000";
        let name = &names(&["rr", long])[1];
        assert!(name.starts_with("eevdf:") && name.chars().count() <= LONGEST, "{name}");
        let shared = names(&[&format!("{long} @ cpus=one-llc"), &format!("{long} @ cpus=0-1")]);
        assert!(shared.iter().all(|name| name.starts_with("eevdf:")), "{shared:?}");
    }

    #[test]
    fn two_tunings_keep_what_they_differ_in() {
        let of = |tolerance: u32| format!("cache-aware:aggr_tolerance={tolerance},epoch_affinity_timeout=7");
        let found = names(&["eevdf", &of(3), &of(30)]);
        assert_eq!(found, ["eevdf", "cache-aware:aggr_tolerance=3", "cache-aware:aggr_tolerance=30"]);
        // Where the scheduler without settings is there too, no setting is shared; and a text that fits stays.
        assert_eq!(names(&["eevdf", "eevdf:base_slice_ns=20000000"])[1], "eevdf:base_slice_ns=20000000");
    }

    #[test]
    fn programs_are_called_by_their_files_and_by_as_many_directories_as_differ() {
        let path = |directory: &str, file: &str| format!("scx:/opt/schedulers/builds/{directory}/{file}");
        let found = names(&[&path("old", "front.bpf.o"), &path("new", "front.bpf.o"), &path("new", "vtime.bpf.o")]);
        assert_eq!(found, ["scx:old/front.bpf.o", "scx:new/front.bpf.o", "scx:vtime.bpf.o"]);
        let flags = |slice: u32| format!("scx:hz=1000 /opt/schedulers/builds/scx_flags --verbose --slice={slice}");
        assert_eq!(
            names(&[&flags(5), &flags(6)]),
            ["scx:hz=1000 scx_flags --slice=5", "scx:hz=1000 scx_flags --slice=6"]
        );
    }

    #[test]
    fn no_two_names_are_alike() {
        let of = |middle: &str| format!("eevdf:a_long_setting_of_it={middle}1234567890123456789012345678901234567890");
        let labels = [of("1"), of("2"), of("3"), "eevdf".to_owned()];
        let found = names(&labels.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), labels.len(), "{found:?}");
    }
}
