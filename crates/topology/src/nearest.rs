//! The known name nearest to a mistyped one, for error messages ("did you mean").

/// The longest word, in letters, that is taken for a slip. Of a longer one, or to one, nothing is near: comparing takes as many steps as
/// the product of both lengths, and what a file calls a name may be as long as the file.
const LONGEST: usize = 64;

/// The first of the names with the fewest edits from `text` (a letter more, less or other, two neighbours exchanged; letters of either case
/// are one; of equally many, one that begins or goes on as `text` does), if they are few enough to be a slip: one, and one more for every
/// three letters of `text`. Words of more than 64 letters are
/// near to nothing.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_by(text, names, strsim::osa_distance)
}

fn nearest_by<'a>(
    text: &str,
    names: impl IntoIterator<Item = &'a str>,
    mut distance: impl FnMut(&str, &str) -> usize,
) -> Option<&'a str> {
    let length = short_length(text)?;
    let text = text.to_lowercase();
    let limit = 1 + length / 3;
    names
        .into_iter()
        .filter(|name| short_length(name).is_some_and(|other| other.abs_diff(length) <= limit))
        .map(|name| (distance(&text, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, name)| (*distance, !text.starts_with(name) && !name.starts_with(&text)))
        .map(|(_, name)| name)
}

/// Letters of a word that is short enough to be compared. A longer one is not even read to its end.
fn short_length(word: &str) -> Option<usize> {
    Some(word.chars().take(LONGEST + 1).count()).filter(|length| *length <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_far_ones_are_not() {
        let names = ["genoa96", "hygon384", "spr32", "hackbench", "base_slice_ns", "hz"];
        assert_eq!(nearest("hygon348", names), Some("hygon384"));
        assert_eq!(nearest("Genoa", names), Some("genoa96"));
        assert_eq!(nearest("hackbnech", names), Some("hackbench"));
        assert_eq!(nearest("base_slice", names), Some("base_slice_ns"));
        assert_eq!(nearest("HZ", names), Some("hz"));
        assert_eq!(nearest("preempt_lazy", ["preempt_short", "preempt"]), Some("preempt"));
        assert_eq!(nearest("raspberry", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), names), None);
        let word = "x".repeat(LONGEST);
        assert_eq!(nearest(&word[1..], [word.as_str()]), Some(word.as_str()));
    }

    /// Names of a file may be as long as the file, and as many.
    #[test]
    fn words_of_any_length_are_compared_in_few_steps_each() {
        let long = |end: &str| format!("{}{end}", "x".repeat(400_000));
        let names: Vec<String> = (1..200).map(|length| "x".repeat(length)).chain([long("a"), long("b")]).collect();
        for text in [long("c"), "x".repeat(LONGEST), "x".repeat(LONGEST + 1)] {
            let (mut comparisons, mut steps) = (0, 0);
            nearest_by(&text, names.iter().map(String::as_str), |one, other| {
                comparisons += 1;
                steps += one.len() * other.len();
                usize::MAX
            });
            assert!(steps <= comparisons * LONGEST * LONGEST, "{steps}");
            assert_eq!(comparisons > 0, text.len() == LONGEST);
        }
    }
}
