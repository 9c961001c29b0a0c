//! Places where an experiment can run.
//!
//! - [`place`]: what every place is to those above it, and what it is asked for.
//! - [`sim`]: the simulator. [`vm`]: real kernels in virtual machines. [`host`]: this computer. [`recorded`]: a recording that was made
//!   already. [`scripted`]: a table of answers, for tests.
//! - [`choice`]: a place with its settings as one text.
//! - [`files`]: files that are written whole or not at all, and their sums.
//!
//! What comes out of a place does not say what is made of it: trials, verdicts and pages are crate `lab`'s and above. They know
//! places through [`Place`] alone. A new place is a file with its [`PlaceKind`] and a row of [`PLACES`].

use std::sync::Arc;

mod beside;
pub mod choice;
pub mod circumstances;
pub mod files;
pub mod host;
pub mod place;
pub mod recorded;
pub mod scripted;
pub mod sim;
pub mod vm;

use place::{Place, PlaceError, PlaceKind, PlaceOptions, Trouble};

/// Every kind of place.
pub static PLACES: &[&PlaceKind] =
    &[&sim::KIND, &vm::place::KIND, &host::place::KIND, &recorded::KIND, &scripted::KIND];

/// Kinds that a command line can ask for.
pub fn offered() -> impl Iterator<Item = &'static PlaceKind> {
    PLACES.iter().copied().filter(|kind| kind.open.is_some())
}

/// A place from the options of a command line; what takes time is said through `note`.
///
/// # Errors
/// When there is no such place, or it cannot be had here.
pub fn open(name: &str, options: &PlaceOptions<'_>, note: &dyn Fn(&str)) -> Result<Arc<dyn Place>, PlaceError> {
    let open = offered().find(|kind| kind.name == name).and_then(|kind| kind.open);
    let open = open.ok_or_else(|| {
        let known: Vec<&str> = offered().map(|kind| kind.name).collect();
        let message = format!("there is no place `{name}`; there are {}", known.join(", "));
        PlaceError::new(Trouble::Unfit, "warmcore::place", message, "choose one of these with --on")
    })?;
    open(options, note)
}

/// The place that a run directory names: its identity, and what [`Place::record`] gave.
///
/// # Errors
/// When no kind has that name, or the record is not one of that place.
pub fn past(identity: &str, record: Option<&toml::Table>) -> Result<Arc<dyn Place>, PlaceError> {
    let changed = |reason: String| {
        PlaceError::new(Trouble::Unfit, "warmcore::place", reason, "start the experiment again, in another directory")
    };
    let name = identity.split(':').next().unwrap_or(identity);
    let kind = PLACES.iter().find(|kind| kind.name == name);
    let kind = kind.ok_or_else(|| changed(format!("there is no place `{name}`")))?;
    let place = (kind.past)(record)?;
    if place.identity() != identity {
        return Err(changed(format!("it does not say what `{identity}` was made of")));
    }
    Ok(place)
}
