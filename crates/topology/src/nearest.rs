//! "Did you mean": the nearest of a list of names by edit distance.

/// The name nearest to `text`, if one is near enough to be a likely typing error.
pub(crate) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    let limit = 1 + text.chars().count() / 3;
    let distances = names.into_iter().map(|name| (edit_distance(&text, &name.to_lowercase(), limit), name));
    distances.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Levenshtein distance; anything above `limit` may be returned as `limit + 1`.
fn edit_distance(a: &str, b: &str, limit: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for (row, from) in a.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, to) in b.iter().enumerate() {
            let replace = previous[column] + usize::from(from != to);
            current.push(replace.min(previous[column + 1] + 1).min(current[column] + 1));
        }
        previous = current;
    }
    previous[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_far_ones_are_not() {
        let names = ["genoa96", "hygon384", "spr32"];
        assert_eq!(nearest("hygon348", names), Some("hygon384"));
        assert_eq!(nearest("Genoa", names), Some("genoa96"));
        assert_eq!(nearest("raspberry", names), None);
        assert_eq!(edit_distance("kitten", "sitting", 9), 3);
    }
}
