//! The known name nearest to a mistyped one, for error messages ("did you mean").

/// The first of the names with the fewest edits from `text` (a letter more, less or other, two neighbours exchanged; letters of either case
/// are one), if they are few enough to be a slip: one, and one more for every three letters of `text`.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    let length = text.chars().count();
    let limit = 1 + length / 3;
    names
        .into_iter()
        // A text may be a whole file by mistake: it is not compared letter by letter.
        .filter(|name| name.chars().count().abs_diff(length) <= limit)
        .map(|name| (strsim::osa_distance(&text, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
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
        assert_eq!(nearest("raspberry", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), names), None);
    }
}
