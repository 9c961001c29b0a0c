//! Built-in machines, and the texts that name a machine.
//!
//! Presets are the files of `machines/`, put into the program when it is built (`build.rs` of this crate lists them):
//! adding a file adds a preset.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::nearest::nearest;
use crate::template::{Layout, Template};
use crate::toml_read::{FORMAT, curves_from_toml, template_at_depth};
use crate::{Basis, Error, LoadedLatencyCurve, Location, Machine, Origin, Result, ShortForm, from_synthetic};

include!(concat!(env!("OUT_DIR"), "/preset_files.rs"));

/// Loaded latency curves that machine files can name.
const CURVES: &str = include_str!("../data/loaded-latency.toml");

/// The preset whose figures a short form has when it names none.
pub const DEFAULT_BASE: &str = "generic";

/// One line about a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetSummary {
    /// Its name.
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// What it is.
    pub summary: String,
    /// Its file, as shipped.
    pub text: &'static str,
}

/// All presets, by name.
pub fn presets() -> Vec<PresetSummary> {
    /// The part of a file that lists need. A file that cannot be read shows without it here and says why when it is
    /// used.
    #[derive(Default, Deserialize)]
    struct PresetHeader {
        #[serde(default)]
        summary: String,
        #[serde(default)]
        aliases: Vec<String>,
    }
    let summary = |(name, text): &(&str, &'static str)| {
        let PresetHeader { summary, aliases } = toml::from_str(text).unwrap_or_default();
        PresetSummary { name: (*name).to_owned(), aliases, summary, text }
    };
    PRESET_FILES.iter().map(summary).collect()
}

/// Builds the machine that a text names:
///
/// - a preset or one of its aliases: `genoa96`;
/// - a preset with another of its core-to-core tables: `hygon384+genoa`;
/// - a short form, with the figures of a preset if one follows: `2s6n2l8c2t`, `2s4l8c2t@genoa96`;
/// - an hwloc synthetic description: `Package:2 [NUMANode] L3Cache:1 Core:8 PU:2`.
///
/// # Errors
/// [`Error::Unknown`] with the nearest name, or the error of the format that the text is in.
pub fn resolve(spec: &str) -> Result<Machine> {
    let spec = spec.trim();
    if spec.contains(':') {
        return from_synthetic(spec);
    }
    let (form, base) = spec.split_once('@').unwrap_or((spec, DEFAULT_BASE));
    if spec.contains('@') && !form.starts_with(|first: char| first.is_ascii_digit()) {
        let own = if preset_template(form).is_ok() {
            format!("the preset `{form}` has its own figures; ")
        } else {
            String::new()
        };
        let hint = format!(
            "{own}before @PRESET goes a short form such as `2s4l8c2t`, a machine file, a directory with a tree of /sys, an hwloc synthetic \
             description or `host`"
        );
        return Err(Error::Unknown { spec: spec.to_owned(), hint });
    }
    if spec.contains('@') || ShortForm::looks_like(spec) {
        let form: ShortForm = form.parse()?;
        return on_shape(preset_template(base)?, form, spec).realise();
    }
    let mut template = preset_template(spec)?;
    template.name = Some(spec.to_owned()).filter(|_| spec.contains('+')).or(template.name);
    template.realise()
}

/// The template with its CPUs replaced by those of a short form.
fn on_shape(template: Template, form: ShortForm, spec: &str) -> Template {
    let cores_per_cluster = match &template.layout {
        Some(Layout::Regular { cores_per_cluster, .. }) => (*cores_per_cluster).min(form.shape.cores_per_llc),
        _ => 1,
    };
    let layout = Layout::Regular { form, cores_per_cluster };
    let rest = template.without_layout(&layout);
    Template {
        name: Some(spec.to_owned()),
        summary: Some(format!("regular machine {}", form.shape)),
        aliases: Vec::new(),
        layout: Some(layout),
        layout_origin: Some(Origin::new(Basis::Given, "")),
        ..rest
    }
}

/// The file of a preset, by name or alias, optionally with `+variant`.
pub(crate) fn preset_template(spec: &str) -> Result<Template> {
    preset_below(spec, 0)
}

/// As [`preset_template`], for a file that is the base of the base of ... (`depth` times) another.
pub(crate) fn preset_below(spec: &str, depth: usize) -> Result<Template> {
    let (name, variant) = match spec.split_once('+') {
        Some((name, variant)) => (name, Some(variant.to_owned())),
        None => (spec, None),
    };
    if let Ok(position) = PRESET_FILES.binary_search_by_key(&name, |(name, _)| name) {
        let (name, text) = PRESET_FILES[position];
        return Ok(Template { variant, ..preset_file(name, text, depth)? });
    }
    let presets = presets();
    if let Some(preset) = presets.iter().find(|preset| preset.aliases.iter().any(|alias| alias == name)) {
        return Ok(Template { variant, ..preset_file(&preset.name, preset.text, depth)? });
    }
    let names = presets.iter().flat_map(|preset| preset.aliases.iter().chain([&preset.name]).map(String::as_str));
    let hint = match nearest(name, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "a machine is a preset, a short form such as `2s4l8c2t`, or an hwloc synthetic description".to_owned(),
    };
    Err(Error::Unknown { spec: name.to_owned(), hint })
}

/// Reads a preset's file; its own name for itself must be the file's.
fn preset_file(name: &str, text: &str, depth: usize) -> Result<Template> {
    let file = || format!("machines/{name}.toml");
    let template = template_at_depth(text, depth).map_err(|error| error.in_file(file()))?;
    if template.name.as_deref() != Some(name) {
        return Err(Error::invalid(
            Location::file(FORMAT, file()),
            format!("`name` must be \"{name}\", as the file is called"),
        ));
    }
    Ok(template)
}

/// The curves that machine files can name without defining them; read once, because every machine that is read or written needs them.
pub(crate) fn built_in_curves() -> Result<&'static [LoadedLatencyCurve]> {
    static READ: OnceLock<Vec<LoadedLatencyCurve>> = OnceLock::new();
    if let Some(known) = READ.get() {
        return Ok(known);
    }
    let curves = curves_from_toml(CURVES).map_err(|error| error.in_file("data/loaded-latency.toml"))?;
    Ok(READ.get_or_init(|| curves))
}
