//! Settings of the kernel: written, read back, set back.

use warmcore_agent::plan::Setting;

use warmcore_agent::files;

/// What a run changed: path and value from before, in the order of changing.
#[derive(Default)]
pub struct Changed(Vec<(String, String)>);

impl Changed {
    /// Takes over what was changed after all of this.
    pub fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }
}

/// Applies settings and reads them back.
///
/// # Errors
/// A file that is required and missing, a refused write, a value that did not take.
pub fn apply(settings: &[Setting], changed: &mut Changed) -> Result<Vec<(String, String)>, String> {
    let mut values = Vec::new();
    for setting in settings {
        let before = match files::read(&setting.path) {
            Ok(before) => before,
            Err(_) if !setting.required => continue,
            Err(reason) => return Err(format!("{reason}; this kernel lacks what the scheduler's settings need")),
        };
        files::write(&setting.path, &setting.value)?;
        let value = files::read(&setting.path)?;
        if !took(&setting.value, &value) {
            return Err(format!("{} was set to `{}` and reads `{}`", setting.path, setting.value, shown(&value)));
        }
        if before != value {
            changed.0.push((setting.path.clone(), undo(&setting.value, &before)));
        }
        values.push((setting.path.clone(), value));
    }
    Ok(values)
}

/// Sets back what was changed, last change first.
pub fn restore(changed: &mut Changed) -> Result<(), String> {
    while let Some((path, value)) = changed.0.pop() {
        files::write(&path, &value)?;
    }
    Ok(())
}

/// Whether what was written is what is read: the value itself, a word of a list (`features`), the chosen word of a
/// list of choices (`none (voluntary) full`), or `1` and `Y`.
fn took(written: &str, read: &str) -> bool {
    let mut words = read.split_whitespace();
    let truth = |text: &str| matches!(text, "Y" | "1").then_some(true).or(matches!(text, "N" | "0").then_some(false));
    read == written
        || truth(written).is_some() && truth(written) == truth(read)
        || words.any(|word| word == written || word == format!("({written})"))
}

/// What to write to have the old value again.
fn undo(written: &str, before: &str) -> String {
    let words: Vec<&str> = before.split_whitespace().collect();
    if let Some(chosen) = words.iter().find(|word| word.starts_with('(') && word.ends_with(')')) {
        return chosen.trim_matches(['(', ')']).to_owned();
    }
    if words.len() > 1 {
        // One of a list of switches: its opposite.
        return written.strip_prefix("NO_").map_or_else(|| format!("NO_{written}"), str::to_owned);
    }
    before.to_owned()
}

fn shown(value: &str) -> String {
    value.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_took_are_told_from_those_that_did_not() {
        assert!(took("2800000", "2800000") && took("1", "Y") && took("N", "0"));
        assert!(took("NO_HRTICK", "PLACE_LAG NO_HRTICK TTWU_QUEUE"));
        assert!(!took("HRTICK", "PLACE_LAG NO_HRTICK TTWU_QUEUE"));
        assert!(took("full", "none voluntary (full) lazy") && took("lazy", "full (lazy)"));
        assert!(!took("100", "99"));
    }

    #[test]
    fn what_is_written_to_undo_a_change_is_in_the_files_own_words() {
        assert_eq!(undo("3000000", "2800000"), "2800000");
        assert_eq!(undo("NO_HRTICK", "PLACE_LAG HRTICK"), "HRTICK");
        assert_eq!(undo("full", "none voluntary full (lazy)"), "lazy");
    }
}
