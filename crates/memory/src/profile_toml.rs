//! Memory profiles as TOML.
//!
//! ```toml
//! [[profile]]
//! name = "example"
//! summary = "one line for lists"
//! origin = "assumed"
//! cpi0 = 0.6                    # cycles per instruction of the core alone
//! mlp = 2.0                     # misses in flight
//! write_fraction = 0.3          # of every class that states none
//!
//! [[profile.class]]
//! name = "heap"                 # optional: the size by default
//! size = "12MiB"
//! touches_per_ki = 0.8          # line touches per 1000 instructions
//! sharing = "process"           # "private" (default), "process", "data" or "data:NAME"
//! home = "first-touch"          # or "interleave", or a list of shares by node
//! exposure = 1.0                # part of a miss that prefetching does not hide
//! kind = "random"               # or "scan"
//! code = false                  # or true: instructions, never written, shared by the process unless `sharing` says otherwise
//! ```

use serde::{Deserialize, Serialize};
use thiserror::Error;
use warmcore_topology::{format_size, parse_size};

use crate::profile::{Class, ClassKind, Home, Profile, ProfileError, ProfileProblem, Sharing};

/// A file of profiles that cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ProfileFileError {
    /// Not TOML, or not of this form. The message has line and column.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A profile that cannot be.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A value that is none of its field's.
    #[error("memory profile `{profile}`, class {class}: {reason}")]
    Value {
        profile: String,
        /// Which of its classes, from 1.
        class: usize,
        /// What is wrong and what to write.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default, skip_serializing)]
    #[allow(dead_code, reason = "sources are for people who read the file")]
    sources: toml::Table,
    profile: Vec<ProfileText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileText {
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    summary: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    origin: String,
    cpi0: f64,
    mlp: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipc_ceiling: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_lines: Option<u32>,
    #[serde(default, skip_serializing)]
    write_fraction: f64,
    #[serde(default)]
    class: Vec<ClassText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    size: String,
    touches_per_ki: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    write_fraction: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sharing: Option<String>,
    #[serde(default, skip_serializing_if = "HomeText::is_first_touch")]
    home: HomeText,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    exposure: f64,
    #[serde(default = "random", skip_serializing_if = "is_random")]
    kind: String,
    #[serde(default, skip_serializing_if = "is_false")]
    code: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum HomeText {
    Word(String),
    Shares(Vec<f64>),
}

impl Default for HomeText {
    fn default() -> Self {
        HomeText::Word("first-touch".to_owned())
    }
}

impl HomeText {
    fn is_first_touch(&self) -> bool {
        matches!(self, HomeText::Word(word) if word == "first-touch")
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn one() -> f64 {
    1.0
}

fn is_one(value: &f64) -> bool {
    *value == 1.0
}

fn random() -> String {
    "random".to_owned()
}

fn is_random(text: &str) -> bool {
    text == "random"
}

impl Sharing {
    /// Reads `private`, `process`, `data` or `data:NAME`.
    ///
    /// # Errors
    /// Anything else, with what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "private" => Ok(Sharing::Private),
            "process" => Ok(Sharing::Process),
            "data" => Ok(Sharing::Data(None)),
            _ => match text.strip_prefix("data:") {
                Some(name) if !name.is_empty() => Ok(Sharing::Data(Some(name.to_owned()))),
                _ => Err(format!("sharing `{text}` is not known; write private, process, data or data:NAME")),
            },
        }
    }

    /// Sharing of a class that states none: code is the process's.
    pub const fn default_text(code: bool) -> &'static str {
        if code { "process" } else { "private" }
    }

    /// The text that [`Sharing::parse`] reads.
    pub fn text(&self) -> String {
        match self {
            Sharing::Private => "private".to_owned(),
            Sharing::Process => "process".to_owned(),
            Sharing::Data(None) => "data".to_owned(),
            Sharing::Data(Some(name)) => format!("data:{name}"),
        }
    }
}

impl Home {
    /// Reads `first-touch` or `interleave`.
    ///
    /// # Errors
    /// Anything else, with what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "first-touch" => Ok(Home::FirstTouch),
            "interleave" => Ok(Home::Interleave),
            _ => Err(format!("home `{text}` is not known; write first-touch, interleave or a list of shares by node")),
        }
    }
}

impl ClassKind {
    /// Reads `random` or `scan`.
    ///
    /// # Errors
    /// Anything else, with what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(ClassKind::Random),
            "scan" => Ok(ClassKind::Scan),
            _ => Err(format!("kind `{text}` is not known; write random or scan")),
        }
    }

    /// The text that [`ClassKind::parse`] reads.
    pub fn text(self) -> &'static str {
        match self {
            ClassKind::Random => "random",
            ClassKind::Scan => "scan",
        }
    }
}

/// Reads profiles, all of them checked.
///
/// # Errors
/// See [`ProfileFileError`].
pub fn profiles_from_toml(text: &str) -> Result<Vec<Profile>, ProfileFileError> {
    let file: FileText = toml::from_str(text)?;
    let mut profiles: Vec<Profile> = Vec::with_capacity(file.profile.len());
    for entry in file.profile {
        let profile = read_profile(entry)?;
        profile.check()?;
        if profiles.iter().any(|known| known.name == profile.name) {
            let problem = ProfileProblem::DuplicateProfile;
            return Err(ProfileError { profile: profile.name, class: None, problem }.into());
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

fn read_profile(entry: ProfileText) -> Result<Profile, ProfileFileError> {
    let mut classes = Vec::with_capacity(entry.class.len());
    for (index, class) in entry.class.into_iter().enumerate() {
        let read = read_class(class, entry.write_fraction);
        classes.push(read.map_err(|reason| ProfileFileError::Value {
            profile: entry.name.clone(),
            class: index + 1,
            reason,
        })?);
    }
    Ok(Profile {
        name: entry.name,
        summary: entry.summary,
        origin: entry.origin,
        cpi0: entry.cpi0,
        mlp: entry.mlp,
        ipc_ceiling: entry.ipc_ceiling,
        message_lines: entry.message_lines,
        classes,
    })
}

fn read_class(class: ClassText, write_fraction: f64) -> Result<Class, String> {
    Ok(Class {
        bytes: parse_size(&class.size)?,
        name: class.name.unwrap_or(class.size),
        touches_per_instruction: class.touches_per_ki / 1e3,
        write_fraction: class.write_fraction.unwrap_or(if class.code { 0.0 } else { write_fraction }),
        sharing: Sharing::parse(class.sharing.as_deref().unwrap_or(Sharing::default_text(class.code)))?,
        home: match class.home {
            HomeText::Word(word) => Home::parse(&word)?,
            HomeText::Shares(shares) => Home::Shares(shares),
        },
        exposure: class.exposure,
        kind: ClassKind::parse(&class.kind)?,
        code: class.code,
    })
}

/// Writes profiles; [`profiles_from_toml`] reads equal ones from the text.
pub fn profiles_to_toml(profiles: &[Profile]) -> String {
    let file = FileText {
        sources: toml::Table::new(),
        profile: profiles
            .iter()
            .map(|profile| ProfileText {
                name: profile.name.clone(),
                summary: profile.summary.clone(),
                origin: profile.origin.clone(),
                cpi0: profile.cpi0,
                mlp: profile.mlp,
                ipc_ceiling: profile.ipc_ceiling,
                message_lines: profile.message_lines,
                write_fraction: 0.0,
                class: profile.classes.iter().map(class_text).collect(),
            })
            .collect(),
    };
    toml::to_string(&file).expect("numbers and texts have a form in TOML")
}

fn class_text(class: &Class) -> ClassText {
    ClassText {
        name: Some(class.name.clone()),
        size: format_size(class.bytes),
        touches_per_ki: touches_per_ki(class.touches_per_instruction),
        write_fraction: Some(class.write_fraction),
        sharing: Some(class.sharing.text()).filter(|text| text != Sharing::default_text(class.code)),
        home: match &class.home {
            Home::FirstTouch => HomeText::default(),
            Home::Interleave => HomeText::Word("interleave".to_owned()),
            Home::Shares(shares) => HomeText::Shares(shares.clone()),
        },
        exposure: class.exposure,
        kind: class.kind.text().to_owned(),
        code: class.code,
    }
}

/// The number of touches per 1000 instructions that reads back as the given rate: a product with 1000 is not always.
pub fn touches_per_ki(touches_per_instruction: f64) -> f64 {
    let near = touches_per_instruction * 1e3;
    let candidates = [near, near.next_down(), near.next_up(), (near * 1e6).round() / 1e6];
    candidates.into_iter().rev().find(|candidate| candidate / 1e3 == touches_per_instruction).unwrap_or(near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library;

    #[test]
    fn the_shipped_profiles_read_back_equal() {
        let written = profiles_to_toml(library::profiles());
        assert_eq!(profiles_from_toml(&written).unwrap(), library::profiles());
    }

    #[test]
    fn every_field_survives_a_round_trip() {
        let class = Class {
            name: "all".into(),
            bytes: 12_345,
            touches_per_instruction: 0.012_345,
            write_fraction: 0.25,
            sharing: Sharing::Data(Some("heap".into())),
            home: Home::Shares(vec![0.25, 0.75]),
            exposure: 0.2,
            kind: ClassKind::Random,
            code: false,
        };
        let mut scan = Class::new("scan", 1 << 20, 0.1, 0.0);
        scan.kind = ClassKind::Scan;
        scan.home = Home::Interleave;
        let profile = Profile {
            name: "p".into(),
            summary: "s".into(),
            origin: "assumed".into(),
            cpi0: 0.5,
            mlp: 3.0,
            ipc_ceiling: Some(2.0),
            message_lines: Some(7),
            classes: vec![
                class,
                scan,
                Class::of_code("program", 1 << 20, 0.02),
                Class { sharing: Sharing::Private, kind: ClassKind::Scan, ..Class::of_code("loop", 3000, 0.01) },
            ],
        };
        let text = profiles_to_toml(std::slice::from_ref(&profile));
        assert_eq!(profiles_from_toml(&text).unwrap(), [profile]);
    }

    #[test]
    fn bad_files_are_refused_with_the_place() {
        let with = |line: &str| {
            let text = format!(
                "[[profile]]\nname = \"p\"\ncpi0 = 0.5\nmlp = 2\n[[profile.class]]\nsize = \"1MiB\"\n\
                 touches_per_ki = 10\n{line}\n"
            );
            profiles_from_toml(&text).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(with(""), Ok(()));
        for (line, expected) in [
            ("sharing = \"some\"", "class 1: sharing `some` is not known"),
            ("kind = \"zipf\"", "kind `zipf` is not known"),
            ("home = [0.5, 0.4]", "home shares sum to 0.9"),
            ("write_fraction = nan", "write_fraction is NaN"),
            ("exposure = -1.0", "exposure is -1"),
            ("colour = 1", "unknown field `colour`"),
            ("code = true", "no classes of data"),
            (
                "[[profile.class]]\nsize = \"1KiB\"\ntouches_per_ki = 1\ncode = true\nwrite_fraction = 0.1",
                "must be 0 for code",
            ),
            (
                "[[profile.class]]\nsize = \"1KiB\"\ntouches_per_ki = 1\ncode = true\nkind = \"scan\"",
                "sharing = \"private\"",
            ),
            (
                "[[profile.class]]\nsize = \"1KiB\"\ntouches_per_ki = 1\ncode = true\n\
                 [[profile.class]]\nsize = \"2KiB\"\ntouches_per_ki = 1",
                "class `2KiB`: it follows a class of code",
            ),
            (
                "[[profile]]\nname = \"p\"\ncpi0 = 0.5\nmlp = 2\n[[profile.class]]\nsize=\"1KiB\"\ntouches_per_ki=1",
                "used by two profiles",
            ),
        ] {
            let message = with(line).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
