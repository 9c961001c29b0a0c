//! Memory profiles, and counters to fit profiles to.
use warmcore_memory::fit::{Counters, fit};
use warmcore_memory::{profiles_from_toml, profiles_to_toml};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(profiles) = profiles_from_toml(text) {
        assert_eq!(profiles_from_toml(&profiles_to_toml(&profiles)).ok(), Some(profiles));
    }
    if let Ok(counters) = Counters::from_toml(text)
        && counters.points.len() <= 6
        && let Ok(fitted) = fit(&counters)
    {
        assert_eq!(fitted.profile.check(), Ok(()));
    }
}
