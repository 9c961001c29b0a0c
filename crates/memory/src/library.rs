//! Memory profiles by name: the starting table of `docs/spec/memory-model.md` section 6.2, as shipped in
//! `data/profiles.toml`.
//!
//! Every profile states its origin there. Rows calibrated against a published number say so; that number must not be
//! used to score the model.

use std::sync::LazyLock;

use crate::profile::Profile;
use crate::profile_toml::profiles_from_toml;

/// The file as shipped.
pub const TEXT: &str = include_str!("../data/profiles.toml");

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    profiles_from_toml(TEXT).unwrap_or_else(|error| panic!("data/profiles.toml is not valid: {error}"))
});

/// All profiles, in the file's order.
pub fn profiles() -> &'static [Profile] {
    &PROFILES
}

/// The profile of a name.
pub fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

static COMPUTING: LazyLock<Profile> = LazyLock::new(|| {
    let spin = find("spin").expect("the profile is shipped");
    Profile { name: "computing".to_owned(), classes: Vec::new(), ..spin.clone() }
});

/// What tasks have that name no profile: the arithmetic of `spin`, and no memory at all.
pub fn computing() -> &'static Profile {
    &COMPUTING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_profiles_are_valid_and_say_where_they_come_from() {
        assert!(profiles().len() >= 14);
        for profile in profiles() {
            assert_eq!(profile.check(), Ok(()));
            assert!(!profile.origin.is_empty() && !profile.summary.is_empty(), "{}", profile.name);
        }
    }
}
