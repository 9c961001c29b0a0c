//! Memory profiles under the `warmcore` key: read strictly, and written so that they read back equal.

use warmcore_memory::{Class, ClassKind, Home, Profile, Sharing, touches_per_ki};
use warmcore_topology::{format_size, parse_size};

use super::json::{self, Json};
use super::names::Names;
use super::node::{Node, Read};
use super::print::print;
use crate::WorkloadError;
use crate::error::DocumentProblem;
use crate::nearest::suggestion;

const PROFILE_KEYS: [&str; 9] =
    ["name", "summary", "origin", "cpi0", "mlp", "ipc_ceiling", "message_lines", "write_fraction", "classes"];

const CLASS_KEYS: [&str; 9] =
    ["name", "size", "touches_per_ki", "write_fraction", "sharing", "home", "exposure", "kind", "code"];

/// Profiles as a JSON document: an object with the list `profiles`, as it stands under the `warmcore` key.
pub fn profiles_to_json(profiles: &[Profile]) -> String {
    let list = Json::Array(profiles.iter().map(write).collect());
    print(&Json::Object(vec![("profiles".to_owned(), list)]))
}

/// Reads what [`profiles_to_json`] writes.
///
/// # Errors
/// Text that is no JSON, and what is no list of profiles, with its place.
pub fn profiles_from_json(text: &str) -> Result<Vec<Profile>, WorkloadError> {
    let document = json::parse(text)?;
    let root = Node::root(&document);
    root.only_keys(&["profiles"], "an object with \"profiles\"")?;
    root.require("profiles", "list the memory profiles")?;
    let mut profiles = Vec::new();
    read_table(&root, &mut profiles)?;
    Ok(profiles)
}

/// Reads the table of profiles into the workload.
pub(super) fn read_table(node: &Node<'_>, profiles: &mut Vec<Profile>) -> Read<()> {
    let Some(list) = node.get("profiles") else { return Ok(()) };
    for entry in list.elements("a list of memory profiles")? {
        let name = entry.require("name", "give it a name")?.text("a name")?;
        if profiles.iter().any(|known| known.name == name) {
            return Err(entry.error(DocumentProblem::Duplicate { name: name.to_owned() }));
        }
        profiles.push(read(&entry, name)?);
    }
    Ok(())
}

/// The profile a task or process names, or has written out in place. Returns its name.
pub(super) fn read_use(node: &Node<'_>, names: &mut Names, owner: &str) -> Read<String> {
    let Json::Text(name) = node.value else {
        let mut name = owner.to_owned();
        while known(names, &name) {
            name.push('\'');
        }
        let profile = read(node, &name)?;
        names.workload.profiles.push(profile);
        return Ok(name);
    };
    if known(names, name) {
        return Ok(name.clone());
    }
    let shipped = warmcore_memory::library::profiles().iter();
    let all = names.workload.profiles.iter().chain(shipped).map(|profile| profile.name.as_str());
    let suggestion = suggestion(name, all);
    Err(node.error(DocumentProblem::UnknownName { kind: "memory profile", name: name.clone(), suggestion }))
}

fn known(names: &Names, name: &str) -> bool {
    names.workload.profiles.iter().any(|profile| profile.name == name) || warmcore_memory::library::find(name).is_some()
}

fn read(node: &Node<'_>, name: &str) -> Read<Profile> {
    node.only_keys(&PROFILE_KEYS, "the name of a memory profile, or an object")?;
    let text = |key| node.get(key).map_or(Ok(""), |text| text.text("a text")).map(str::to_owned);
    let write_fraction = node.get("write_fraction").map_or(Ok(0.0), |value| value.number())?;
    let list = node.require("classes", "list the classes of lines it touches")?;
    let mut classes = Vec::new();
    for class in list.elements("a list of classes")? {
        classes.push(read_class(&class, write_fraction)?);
    }
    let profile = Profile {
        name: name.to_owned(),
        summary: text("summary")?,
        origin: text("origin")?,
        cpi0: node.require("cpi0", "state the cycles per instruction of the core alone")?.number()?,
        mlp: node.require("mlp", "state how many misses are in flight at once")?.number()?,
        ipc_ceiling: node.get("ipc_ceiling").map(|value| value.number()).transpose()?,
        message_lines: node.get("message_lines").map(|value| value.u32("a number of lines")).transpose()?,
        classes,
    };
    profile.check().map_err(|error| node.other(error.to_string()))?;
    Ok(profile)
}

fn read_class(node: &Node<'_>, write_fraction: f64) -> Read<Class> {
    node.only_keys(&CLASS_KEYS, "an object")?;
    let size = node.require("size", "state its size, such as \"1.5MiB\"")?;
    let size_text = match size.value {
        Json::Integer(bytes) => bytes.to_string(),
        _ => size.text("a size such as \"1.5MiB\", or a number of bytes")?.to_owned(),
    };
    let word = |key, default, words: &str| node.get(key).map_or(Ok(default), |value| value.text(words));
    let number = |key, default| node.get(key).map_or(Ok(default), |value| value.number());
    let code = match node.get("code").map(|code| (code.value, code)) {
        None | Some((Json::Bool(false), _)) => false,
        Some((Json::Bool(true), _)) => true,
        Some((_, code)) => return Err(code.other("expected true for instructions, or false")),
    };
    let of = |key: &str, message: String| node.get(key).unwrap_or_else(|| node.clone()).other(message);
    let home = match node.get("home") {
        None => Home::FirstTouch,
        Some(home) => match home.value {
            Json::Text(text) => Home::parse(text).map_err(|message| home.other(message))?,
            _ => {
                let shares = home.elements("first-touch, interleave or a list of shares by node")?;
                Home::Shares(shares.iter().map(|share| share.number()).collect::<Read<_>>()?)
            }
        },
    };
    Ok(Class {
        name: word("name", &size_text, "a name")?.to_owned(),
        bytes: parse_size(&size_text).map_err(|message| size.other(message))?,
        touches_per_instruction: node
            .require("touches_per_ki", "state the line touches per 1000 instructions")?
            .number()?
            / 1e3,
        write_fraction: number("write_fraction", if code { 0.0 } else { write_fraction })?,
        sharing: Sharing::parse(word("sharing", Sharing::default_text(code), "private, process, data or data:NAME")?)
            .map_err(|message| of("sharing", message))?,
        home,
        exposure: number("exposure", 1.0)?,
        kind: ClassKind::parse(word("kind", "random", "random or scan")?).map_err(|message| of("kind", message))?,
        code,
    })
}

/// A profile as [`read_table`] reads it.
pub(super) fn write(profile: &Profile) -> Json {
    let mut entries = vec![("name".to_owned(), Json::Text(profile.name.clone()))];
    let mut add = |key: &str, value: Json| entries.push((key.to_owned(), value));
    for (key, text) in [("summary", &profile.summary), ("origin", &profile.origin)] {
        if !text.is_empty() {
            add(key, Json::Text(text.clone()));
        }
    }
    add("cpi0", Json::Float(profile.cpi0));
    add("mlp", Json::Float(profile.mlp));
    if let Some(ceiling) = profile.ipc_ceiling {
        add("ipc_ceiling", Json::Float(ceiling));
    }
    if let Some(lines) = profile.message_lines {
        add("message_lines", lines.into());
    }
    add("classes", Json::Array(profile.classes.iter().map(write_class).collect()));
    Json::Object(entries)
}

fn write_class(class: &Class) -> Json {
    let mut entries = vec![("name".to_owned(), Json::Text(class.name.clone()))];
    let mut add = |key: &str, value: Json| entries.push((key.to_owned(), value));
    add("size", Json::Text(format_size(class.bytes)));
    add("touches_per_ki", Json::Float(touches_per_ki(class.touches_per_instruction)));
    add("write_fraction", Json::Float(class.write_fraction));
    if class.sharing.text() != Sharing::default_text(class.code) {
        add("sharing", Json::Text(class.sharing.text()));
    }
    match &class.home {
        Home::FirstTouch => {}
        Home::Interleave => add("home", "interleave".into()),
        Home::Shares(shares) => add("home", Json::Array(shares.iter().map(|share| Json::Float(*share)).collect())),
    }
    if class.exposure != 1.0 {
        add("exposure", Json::Float(class.exposure));
    }
    if class.kind != ClassKind::Random {
        add("kind", class.kind.text().into());
    }
    if class.code {
        add("code", Json::Bool(true));
    }
    Json::Object(entries)
}
