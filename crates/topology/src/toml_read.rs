//! Reading machine files (TOML). The format is described in `machines/README.md`.
//!
//! Unknown keys are errors, and so are origins whose tags `[sources]` does not explain.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::background_toml::RawBackground;
use crate::core_kinds_toml::RawCoreKind;
use crate::fields::{Quantity, Unit, VALUE_SECTIONS, known_values};
use crate::nearest::nearest;
use crate::template::{CacheScope, CacheTemplate, Distances, Stated, Template};
use crate::toml_topology::{RawDistance, RawTopology};
use crate::units::{SizeValue, scaled};
use crate::{
    Basis, Cache, CacheKind, CoreKind, CoreToCoreVariant, CpuSet, Error, Inclusion, LoadedLatencyCurve, Location,
    Machine, Origin, PerRelation, Processor, Relation, Result, Vendor, Ways, parse_cpu_list,
};

pub(crate) const FORMAT: &str = "machine TOML";

/// Builds a machine from the text of a machine file.
///
/// # Errors
/// [`Error::Invalid`] with the line for text that is not in the format, [`Error::Unknown`] for an unknown `base`, and
/// [`Error::Impossible`] for descriptions that contradict themselves.
pub fn from_toml(text: &str) -> Result<Machine> {
    template_at_depth(text, 0)?.realise()
}

/// A value section: numbers by name, tables of numbers, and one `origin` for those that give none.
type ValueSection = BTreeMap<String, Spanned<toml::Value>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    name: Option<String>,
    summary: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    notes: Vec<String>,
    base: Option<Spanned<String>>,
    core_to_core_variant: Option<String>,
    #[serde(default)]
    loaded_latency: Vec<Spanned<String>>,
    #[serde(default)]
    sources: BTreeMap<String, String>,
    processor: Option<Spanned<RawProcessor>>,
    topology: Option<Spanned<RawTopology>>,
    #[serde(default)]
    cache: Vec<Spanned<RawCache>>,
    #[serde(default)]
    frequency: ValueSection,
    #[serde(default)]
    memory: ValueSection,
    #[serde(default)]
    core_to_core_ns: ValueSection,
    #[serde(default)]
    core_to_core_variants: BTreeMap<String, ValueSection>,
    #[serde(default)]
    costs: ValueSection,
    #[serde(default)]
    loaded_latency_curve: Vec<Spanned<RawCurve>>,
    background: Option<RawBackground>,
    #[serde(default)]
    core_kind: Vec<Spanned<RawCoreKind>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProcessor {
    vendor: String,
    family: Option<u32>,
    model: Option<u32>,
    #[serde(default, deserialize_with = "optional_origin")]
    origin: Option<Origin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCache {
    level: u8,
    kind: Option<CacheKind>,
    shared_by: Option<CacheScope>,
    cpus: Option<String>,
    size: Option<SizeValue>,
    line: Option<u32>,
    ways: Option<RawWays>,
    inclusion: Option<Inclusion>,
    latency_ns: Option<f64>,
    #[serde(default, deserialize_with = "optional_origin")]
    origin: Option<Origin>,
    #[serde(default, deserialize_with = "optional_origin")]
    latency_origin: Option<Origin>,
}

/// A number of ways or `"full"`.
struct RawWays(Ways);

impl<'de> Deserialize<'de> for RawWays {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::Integer(count @ 1..=1024) => Ok(RawWays(Ways::Count(count as u32))),
            toml::Value::String(text) if text == "full" => Ok(RawWays(Ways::Full)),
            other => Err(serde::de::Error::custom(format!("`ways = {other}` is neither 1 to 1024 nor \"full\""))),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCurve {
    name: String,
    read_percent: u32,
    max_gb_per_s: f64,
    utilisation: Vec<f64>,
    factor: Vec<f64>,
    #[serde(default, deserialize_with = "optional_origin")]
    origin: Option<Origin>,
}

/// An origin as text.
pub(crate) fn optional_origin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Origin>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

pub(crate) fn given() -> Origin {
    Origin::new(Basis::Given, "")
}

/// A text being read: turns byte positions into lines.
struct TomlReader<'a> {
    text: &'a str,
    sources: BTreeMap<String, String>,
}

/// Longest chain of bases. Shipped presets need one; the limit stops a preset that is its own base.
const MAX_BASES: usize = 4;

/// Reads a machine file and the presets it is based on. The file is itself the base of the base of ... (`depth`
/// times) another.
pub(crate) fn template_at_depth(text: &str, depth: usize) -> Result<Template> {
    let raw: RawFile = parse(text)?;
    let mut reader = TomlReader { text, sources: raw.sources.clone() };
    let base = match &raw.base {
        Some(name) => {
            let place = reader.place(name.span().start);
            if depth == MAX_BASES {
                return Err(Error::invalid(place, "bases of bases are nested too deeply"));
            }
            let base = crate::presets::preset_below(name.get_ref(), depth + 1).map_err(|error| match error {
                Error::Unknown { spec, hint } => {
                    Error::invalid_with_hint(place, format!("unknown base `{spec}`"), hint)
                }
                other => other,
            })?;
            reader.sources.extend(base.sources.iter().map(|(tag, text)| (tag.clone(), text.clone())));
            Some(base)
        }
        None => None,
    };
    let template = reader.template(raw)?;
    Ok(match base {
        Some(base) => template.over(base),
        None => template,
    })
}

/// Reads a file that holds nothing but loaded latency curves.
pub(crate) fn curves_from_toml(text: &str) -> Result<Vec<LoadedLatencyCurve>> {
    let raw: RawFile = parse(text)?;
    let reader = TomlReader { text, sources: raw.sources.clone() };
    raw.loaded_latency_curve.into_iter().map(|curve| reader.curve(curve)).collect()
}

fn parse(text: &str) -> Result<RawFile> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| line_of(text, span.start));
        let place = Location { format: FORMAT, path: None, line };
        let message = error.message().trim();
        let twice = error.span().filter(|_| message == DUPLICATE).and_then(|span| key_twice(text, span.start));
        let message = twice.unwrap_or_else(|| message.to_owned());
        let near = near_key(&message).unwrap_or_default();
        Error::invalid_with_hint(place, message, near)
    })
}

/// What TOML's reader says of a key that is there already.
const DUPLICATE: &str = "duplicate key";

/// Says of a key or table that is at this place of a TOML text for the second time where the first is. Nothing where that is not on a line of
/// its own.
pub fn key_twice(text: &str, at: usize) -> Option<String> {
    let begin = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let is_table = |line: &str| line.trim_start().starts_with('[');
    let key_of = |line: &str| match is_table(line) {
        true => Some(line.trim().to_owned()),
        false => line.split_once('=').map(|(key, _)| key.trim().to_owned()),
    };
    let line = text[begin..].lines().next()?;
    // Keys of an inline table stand behind the one that it belongs to.
    let key = key_of(line).filter(|_| is_table(line) || line.find('=').is_some_and(|equals| at - begin < equals))?;
    let before: Vec<&str> = text[..begin].lines().collect();
    let first = match is_table(line) {
        true => 0,
        false => before.iter().rposition(|&line| is_table(line)).map_or(0, |table| table + 1),
    };
    let found = before[first..].iter().position(|&line| key_of(line).as_ref() == Some(&key))?;
    Some(format!("`{key}` is there twice, first in line {}", first + found + 1))
}

/// Of a message about an unknown key, the key that it may be meant to be.
fn near_key(message: &str) -> Option<String> {
    let mut names = message.strip_prefix("unknown field")?.split('`').skip(1).step_by(2);
    let wrong = names.next()?;
    nearest(wrong, names).map(|name| format!("did you mean `{name}`?"))
}

pub(crate) fn line_of(text: &str, position: usize) -> usize {
    text.as_bytes().iter().take(position).filter(|byte| **byte == b'\n').count() + 1
}

impl TomlReader<'_> {
    fn place(&self, position: usize) -> Location {
        Location::line(FORMAT, line_of(self.text, position))
    }

    fn fail(&self, position: usize, reason: impl Into<String>) -> Error {
        Error::invalid(self.place(position), reason)
    }

    fn template(&self, raw: RawFile) -> Result<Template> {
        let mut template = Template {
            name: raw.name,
            summary: raw.summary,
            aliases: raw.aliases,
            notes: raw.notes,
            variant: raw.core_to_core_variant,
            sources: raw.sources,
            ..Template::default()
        };
        if let Some(processor) = raw.processor {
            template.processor = Some(self.processor(processor)?);
        }
        if let Some(topology) = raw.topology {
            let position = topology.span().start;
            let topology = topology.into_inner();
            self.check_origin(position, topology.origin.as_ref())?;
            self.check_origin(position, topology.distances_origin.as_ref())?;
            self.check_origin(position, topology.reclaim_distance_origin.as_ref())?;
            let read = topology.read(&mut template).map_err(|reason| self.fail(position, reason));
            read?;
        }
        template.background = raw.background.map(|raw| raw.read(|position| self.place(position))).transpose()?;
        for cache in raw.cache {
            template.caches.push(self.cache(cache)?);
        }
        let sections = [raw.frequency, raw.memory, raw.core_to_core_ns, raw.costs];
        for (name, section) in VALUE_SECTIONS.into_iter().zip(sections) {
            template.values.extend(self.section(name, section)?);
        }
        for kind in raw.core_kind {
            template.core_kinds.push(self.core_kind(kind)?);
        }
        for (name, section) in raw.core_to_core_variants {
            template.variants.push(self.variant(name, section)?);
        }
        let mut curves = crate::presets::built_in_curves()?.to_vec();
        for curve in raw.loaded_latency_curve {
            curves.insert(0, self.curve(curve)?);
        }
        for wanted in raw.loaded_latency {
            let Some(curve) = curves.iter().find(|curve| curve.name == *wanted.get_ref()) else {
                let names = curves.iter().map(|curve| curve.name.as_str());
                let hint =
                    nearest(wanted.get_ref(), names).map(|name| format!("did you mean `{name}`?")).unwrap_or_default();
                let reason = format!("unknown loaded latency curve `{}`", wanted.get_ref());
                return Err(Error::invalid_with_hint(self.place(wanted.span().start), reason, hint));
            };
            template.loaded_latency.push(curve.clone());
        }
        Ok(template)
    }

    fn check_origin(&self, position: usize, origin: Option<&Origin>) -> Result<()> {
        let unknown = origin.into_iter().flat_map(|origin| &origin.tags).find(|tag| !self.sources.contains_key(*tag));
        match unknown {
            Some(tag) => {
                let hint = format!("add `{tag} = \"...\"` under [sources], or use `assumed`, `recalled` or `measured`");
                let reason = format!("origin `{tag}` is not explained");
                Err(Error::invalid_with_hint(self.place(position), reason, hint))
            }
            None => Ok(()),
        }
    }

    fn processor(&self, raw: Spanned<RawProcessor>) -> Result<(Processor, Origin)> {
        let position = raw.span().start;
        let raw = raw.into_inner();
        self.check_origin(position, raw.origin.as_ref())?;
        let Some((vendor, ..)) = Vendor::NAMED.into_iter().find(|(_, name, _)| *name == raw.vendor) else {
            let names: Vec<&str> = Vendor::NAMED.iter().map(|(_, name, _)| *name).collect();
            let reason = format!("unknown vendor `{}`", raw.vendor);
            let hint = format!("vendors are {}; leave [processor] out for others", names.join(", "));
            return Err(Error::invalid_with_hint(self.place(position), reason, hint));
        };
        let processor = Processor::new(vendor, raw.family).and_then(|processor| processor.with_model(raw.model));
        let processor = processor.map_err(|reason| self.fail(position, reason))?;
        Ok((processor, raw.origin.unwrap_or_else(given)))
    }

    fn core_kind(&self, raw: Spanned<RawCoreKind>) -> Result<CoreKind> {
        let position = raw.span().start;
        let raw = raw.into_inner();
        for origin in raw.origins() {
            self.check_origin(position, origin)?;
        }
        raw.read().map_err(|reason| self.fail(position, reason))
    }

    fn cache(&self, raw: Spanned<RawCache>) -> Result<CacheTemplate> {
        let position = raw.span().start;
        let raw = raw.into_inner();
        let fail = |reason: String| self.fail(position, reason);
        self.check_origin(position, raw.origin.as_ref())?;
        self.check_origin(position, raw.latency_origin.as_ref())?;
        let usual_kind = if raw.level == 1 { CacheKind::Data } else { CacheKind::Unified };
        let usual_scope = match raw.level {
            1 => CacheScope::Core,
            2 => CacheScope::Cluster,
            _ => CacheScope::Llc,
        };
        let kind = raw.kind.unwrap_or(usual_kind);
        let shared_by = raw.shared_by.unwrap_or(usual_scope);
        let cpus = raw.cpus.as_deref().map(parse_cpu_list).transpose().map_err(|error| fail(error.to_string()))?;
        if shared_by == CacheScope::Cpus && cpus.is_none() {
            return Err(fail("a cache with `shared_by = \"cpus\"` needs `cpus`".to_owned()));
        }
        let latency_ps = match raw.latency_ns {
            None => None,
            Some(latency_ns) => match scaled(latency_ns, 3) {
                Some(picoseconds @ 1..=1_000_000_000) => Some(picoseconds),
                _ => {
                    return Err(fail(format!(
                        "latency_ns = {latency_ns} is not 0.001 to 1000000 with at most three decimals"
                    )));
                }
            },
        };
        let origin = raw.origin.unwrap_or_else(given);
        Ok(CacheTemplate {
            cache: Cache {
                level: raw.level,
                kind,
                size_bytes: raw.size.as_ref().map(SizeValue::bytes).transpose().map_err(fail)?.unwrap_or(0),
                line_bytes: raw.line.unwrap_or(64),
                ways: raw.ways.map_or(Ways::Unknown, |ways| ways.0),
                inclusion: raw.inclusion.unwrap_or(Inclusion::Unknown),
                latency_ps,
                cpus: CpuSet::new(),
            },
            shared_by,
            cpus,
            latency_origin: raw.latency_origin.unwrap_or_else(|| origin.clone()),
            origin,
        })
    }

    /// The numbers of a section by full name.
    fn section(&self, name: &str, mut section: ValueSection) -> Result<BTreeMap<String, Stated>> {
        let known: BTreeMap<String, Unit> = known_values().into_iter().collect();
        let origin = self.section_origin(name, &mut section)?;
        let mut values = BTreeMap::new();
        for (key, value) in section {
            let position = value.span().start;
            let fail = |reason| self.fail(position, reason);
            read_value(&format!("{name}.{key}"), value.get_ref(), &origin, &known, &mut values).map_err(fail)?;
            for stated in values.values() {
                self.check_origin(position, Some(&stated.origin))?;
            }
        }
        Ok(values)
    }

    /// Takes `origin` out of a section.
    fn section_origin(&self, name: &str, section: &mut ValueSection) -> Result<Origin> {
        let Some(origin) = section.remove("origin") else { return Ok(given()) };
        let position = origin.span().start;
        let read = read_origin(name, origin.get_ref()).map_err(|reason| self.fail(position, reason))?;
        self.check_origin(position, Some(&read))?;
        Ok(read)
    }

    fn variant(&self, name: String, mut section: ValueSection) -> Result<CoreToCoreVariant> {
        let origin = self.section_origin(&format!("core_to_core_variants.{name}"), &mut section)?;
        let values = self.section("core_to_core_ns", section)?;
        let mut latency_ns = PerRelation::default();
        for relation in Relation::ALL {
            if let Some(stated) = values.get(&format!("core_to_core_ns.{}", relation.name()))
                && let Quantity::Number(latency) = stated.quantity
            {
                latency_ns[relation] = Some(latency);
            }
        }
        Ok(CoreToCoreVariant { name, latency_ns, origin })
    }

    fn curve(&self, raw: Spanned<RawCurve>) -> Result<LoadedLatencyCurve> {
        let position = raw.span().start;
        let raw = raw.into_inner();
        let fail = |reason: &str| self.fail(position, format!("loaded latency curve `{}`: {reason}", raw.name));
        self.check_origin(position, raw.origin.as_ref())?;
        let thousandths = |numbers: &[f64]| -> Option<Vec<u32>> {
            numbers.iter().map(|number| u32::try_from(scaled(*number, 3)?).ok()).collect()
        };
        let utilisation = thousandths(&raw.utilisation).ok_or_else(|| fail("utilisation needs numbers like 0.25"))?;
        let factor = thousandths(&raw.factor).ok_or_else(|| fail("factors need numbers like 1.14"))?;
        if utilisation.len() != factor.len() || utilisation.is_empty() {
            return Err(fail("utilisation and factor must have equally many entries, at least one"));
        }
        let ascending = utilisation.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || utilisation[0] == 0 || utilisation.last().is_none_or(|last| *last > 1000) {
            return Err(fail("utilisations must ascend, above 0 and at most 1"));
        }
        if !factor.is_sorted() || factor[0] < 1000 {
            return Err(fail("factors must not fall and are at least 1"));
        }
        if raw.read_percent > 100 {
            return Err(fail("read_percent is more than 100"));
        }
        let max_mb_per_s = Unit::Bandwidth.read(raw.max_gb_per_s).map_err(|reason| fail(&reason))?;
        let points = utilisation.into_iter().zip(factor).collect();
        let origin = raw.origin.unwrap_or_else(given);
        Ok(LoadedLatencyCurve { name: raw.name, read_percent: raw.read_percent, max_mb_per_s, points, origin })
    }
}

/// Reads a number, a `{ value, low, high, origin }` table or a table of such. Fails with a reason.
fn read_value(
    name: &str,
    value: &toml::Value,
    origin: &Origin,
    known: &BTreeMap<String, Unit>,
    values: &mut BTreeMap<String, Stated>,
) -> Result<(), String> {
    match value {
        toml::Value::Table(table) if !table.contains_key("value") => {
            if known.contains_key(name) || !known.keys().any(|known| known.starts_with(&format!("{name}."))) {
                return Err(unknown_value(name, known));
            }
            let origin = match table.get("origin") {
                Some(own) => read_origin(name, own)?,
                None => origin.clone(),
            };
            for (key, value) in table.iter().filter(|(key, _)| *key != "origin") {
                read_value(&format!("{name}.{key}"), value, &origin, known, values)?;
            }
        }
        _ => {
            let Some(unit) = known.get(name) else { return Err(unknown_value(name, known)) };
            let stated = match value {
                toml::Value::Table(table) => read_sourced(name, table, origin, *unit)?,
                bare => Stated { quantity: read_quantity(name, bare, *unit)?, origin: origin.clone() },
            };
            values.insert(name.to_owned(), stated);
        }
    }
    Ok(())
}

/// `{ value = 55, low = 43, high = 67, origin = "S6" }`; all but `value` optional.
fn read_sourced(name: &str, table: &toml::Table, origin: &Origin, unit: Unit) -> Result<Stated, String> {
    if let Some(key) = table.keys().find(|key| !["value", "low", "high", "origin"].contains(&key.as_str())) {
        return Err(format!("{name}: unknown key `{key}`; a value has `value`, `low`, `high` and `origin`"));
    }
    let quantity = read_quantity(name, &table["value"], unit)?;
    let mut origin = match table.get("origin") {
        Some(own) => read_origin(name, own)?,
        None => origin.clone(),
    };
    let bound = |key: &str| table.get(key).map(|bound| read_quantity(name, bound, unit)).transpose();
    origin.spread = match (bound("low")?, bound("high")?) {
        (None, None) => None,
        (Some(Quantity::Number(low)), Some(Quantity::Number(high))) => {
            if Quantity::Number(low) > quantity || quantity > Quantity::Number(high) {
                return Err(format!("{name}: the value does not lie between `low` and `high`"));
            }
            Some((low, high))
        }
        _ => return Err(format!("{name}: `low` and `high` are numbers and come together")),
    };
    Ok(Stated { quantity, origin })
}

fn read_quantity(name: &str, value: &toml::Value, unit: Unit) -> Result<Quantity, String> {
    let number = match value {
        toml::Value::Integer(number) => *number as f64,
        toml::Value::Float(number) => *number,
        toml::Value::String(text) if text == "unlimited" && unit == Unit::Bandwidth => return Ok(Quantity::Unlimited),
        _ => return Err(format!("{name}: {}", unit.mismatch())),
    };
    unit.read(number).map(Quantity::Number).map_err(|reason| format!("{name}: {reason}"))
}

fn read_origin(name: &str, value: &toml::Value) -> Result<Origin, String> {
    let text = value.as_str().ok_or_else(|| format!("{name}.origin: expected text"))?;
    text.parse().map_err(|reason| format!("{name}.origin: {reason}"))
}

fn unknown_value(name: &str, known: &BTreeMap<String, Unit>) -> String {
    let tables: BTreeSet<&str> =
        known.keys().filter_map(|known| known.rsplit_once('.')).map(|(table, _)| table).collect();
    let names = known.keys().map(String::as_str).chain(tables);
    match nearest(name, names) {
        Some(near) => format!("unknown value `{name}`; did you mean `{near}`?"),
        None => format!("unknown value `{name}`"),
    }
}

impl RawTopology {
    /// Distances by class or by matrix.
    pub(crate) fn read_distances(&self) -> Result<Option<Distances>, String> {
        match (&self.distance, &self.distances) {
            (Some(_), Some(_)) => Err("`distance` and `distances` exclude each other".to_owned()),
            (None, Some(rows)) => Ok(Some(Distances::Matrix(rows.clone()))),
            (None, None) => Ok(None),
            (Some(classes), None) => {
                let RawDistance { same_socket, other_socket } = *classes;
                Ok(Some(Distances::Classes { same_socket, other_socket }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_twice_is_named_with_both_places() {
        let said = |text: &str| {
            let error = toml::from_str::<toml::Table>(text).unwrap_err();
            assert_eq!(error.message().trim(), DUPLICATE, "{text}");
            key_twice(text, error.span().unwrap().start)
        };
        let twice = |key: &str, line: usize| Some(format!("`{key}` is there twice, first in line {line}"));
        assert_eq!(said("a = 1\nb = 2\na = 3\n"), twice("a", 1));
        assert_eq!(said("a = 1\n[t]\nb = 2\n\n  a = 4\n  a = 5\n"), twice("a", 5));
        assert_eq!(said("a.b = 1\na.b = 2\n"), twice("a.b", 1));
        assert_eq!(said("[t]\na = 1\n[u]\n[t]\n"), twice("[t]", 1));
        assert_eq!(said("b = 1\na = { b = 1, b = 2 }\n"), None, "in one line");
    }
}
