//! The known name nearest to a mistyped one, for error messages.

/// The candidate with the smallest edit distance to `name`, if it is near enough to be meant: at most a third of the
/// name's length, at least one edit. Ties go to the first candidate.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let distance = edit_distance(name, candidate);
        if distance <= limit && best.is_none_or(|(smallest, _)| distance < smallest) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Levenshtein distance with exchanges of neighbours counted as one edit (optimal string alignment).
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substitution = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = substitution.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(before_last[j - 2] + 1);
            }
            row.push(cost);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// ` (did you mean "x"?)`, or nothing.
pub(crate) fn suggestion<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_find_the_name_that_was_meant() {
        let names = ["hackbench", "schbench", "spin"];
        assert_eq!(nearest("hackbnech", names), Some("hackbench"));
        assert_eq!(nearest("Spin", names), Some("spin"));
        assert_eq!(nearest("sbin", names), Some("spin"));
    }

    #[test]
    fn names_that_are_far_from_all_find_nothing() {
        assert_eq!(nearest("sysbench-oltp", ["spin", "periodic"]), None);
        assert_eq!(nearest("", ["spin"]), None);
    }
}
