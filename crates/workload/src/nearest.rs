//! The known name nearest to a mistyped one, as a part of error messages.

use warmcore_topology::nearest;

/// ` (did you mean "x"?)`, or nothing.
pub(crate) fn suggestion<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"))
}
