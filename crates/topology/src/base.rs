//! Figures for a machine that only its topology is known of: those of a preset.
//!
//! Operating systems and hwloc know CPUs, caches and nodes, but not what a switch or a cache line costs. A preset of the same
//! CPU model, or of its family, does.

use crate::cache_entries::cache_entries;
use crate::fields::{Quantity, each_value};
use crate::figures::{check_figures, default_costs};
use crate::presets::preset_template;
use crate::template::{CacheTemplate, set_values};
use crate::{Basis, Cache, DEFAULT_BASE, Error, Machine, MemoryFigures, Origin, Performance, Result};

/// A CPU model, and the preset with its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownModel {
    /// What the model's name contains; a `?` stands for any digit.
    pub pattern: &'static str,
    /// The preset.
    pub preset: &'static str,
}

/// Models from special to general: the first that a name contains counts.
pub const MODELS: [KnownModel; 27] = [
    known("EPYC 9654", "genoa96"),
    known("EPYC 9755", "turin128"),
    known("EPYC 9965", "turin-dense"),
    known("EPYC 7763", "milan64"),
    known("EPYC 7601", "naples32"),
    known("EPYC 9??4", "genoa96"),
    known("EPYC 9??5", "turin128"),
    known("EPYC 7??3", "milan64"),
    known("EPYC 7??1", "naples32"),
    known("Hygon", "hygon384"),
    known("Opteron(tm) Processor 61??", "opteron32"),
    known("Platinum 8468", "spr48-snc4"),
    known("Platinum 84??", "spr32"),
    known("Gold 64??", "spr32"),
    known("Gold 65??", "emr32"),
    known("Platinum 85??", "emr32"),
    known("Platinum 8269", "clx26"),
    known("Platinum 82??", "clx26"),
    known("Gold 62??", "clx26"),
    known("Xeon(R) 69??", "gnr72"),
    known("Xeon 69??", "gnr72"),
    known("i7-3770", "i7-3770"),
    known("Altra", "altra80"),
    known("Kunpeng", "kunpeng64"),
    known("Grace", "grace144"),
    known("Graviton3", "graviton3"),
    known("Neoverse-V2", "grace144"),
];

const fn known(pattern: &'static str, preset: &'static str) -> KnownModel {
    KnownModel { pattern, preset }
}

/// The preset with the figures of a CPU model, as `/proc/cpuinfo` and hwloc name it.
pub fn preset_of_model(model: &str) -> Option<KnownModel> {
    MODELS.into_iter().find(|known| contains(model, known.pattern))
}

fn contains(text: &str, pattern: &str) -> bool {
    let fits = |(letter, wanted): (&u8, &u8)| {
        if *wanted == b'?' { letter.is_ascii_digit() } else { letter.eq_ignore_ascii_case(wanted) }
    };
    text.as_bytes().windows(pattern.len()).any(|part| part.iter().zip(pattern.as_bytes()).all(fits))
}

/// The machine with costs, latencies and bandwidths of a preset; CPUs, caches' sizes, nodes and distances stay. `why` says how the
/// preset was chosen.
///
/// # Errors
/// When there is no such preset.
pub fn with_figures_of(machine: Machine, preset: &str, why: &str) -> Result<Machine> {
    let mut machine = figures_of(machine, preset)?;
    machine.notes.push(format!("costs, latencies and bandwidths are those of {preset}: {why}"));
    Ok(machine)
}

/// The machine with the figures of [`DEFAULT_BASE`], as a short form has them, where an operating system or hwloc described it and nothing but
/// its topology is known; others as they are.
///
/// # Errors
/// When that preset cannot be read.
pub fn with_missing_figures(machine: Machine) -> Result<Machine> {
    let is_read = machine.origin("topology").is_some_and(|origin| origin.basis == Basis::Read);
    let nothing = Performance::default();
    if is_read && machine.performance == nothing && machine.costs == default_costs(&nothing).0 {
        figures_of(machine, DEFAULT_BASE)
    } else {
        Ok(machine)
    }
}

fn figures_of(mut machine: Machine, preset: &str) -> Result<Machine> {
    let template = preset_template(preset)?;
    let values = template.chosen_values()?;
    let mut performance = Performance {
        core_to_core_variants: template.variants.clone(),
        memory: MemoryFigures { loaded_latency: template.loaded_latency.clone(), ..Default::default() },
        ..Default::default()
    };
    set_values(&mut performance, None, &values);
    let (mut costs, origins) = default_costs(&performance);
    set_values(&mut performance, Some(&mut costs), &values);
    let of_preset = |cache: &Cache| {
        let same = |known: &&CacheTemplate| (known.cache.level, known.cache.kind) == (cache.level, cache.kind);
        template.caches.iter().find(same).filter(|known| known.cache.latency_ps.is_some())
    };
    let mut taken = Vec::new();
    for cache in machine.caches.iter_mut().filter(|cache| cache.latency_ps.is_none()) {
        let Some(known) = of_preset(cache) else { continue };
        cache.latency_ps = known.cache.latency_ps;
        taken.push((cache.level, cache.kind));
    }
    for entry in cache_entries(&machine).iter().filter(|entry| taken.contains(&(entry.cache.level, entry.cache.kind))) {
        let Some(known) = of_preset(&entry.cache) else { continue };
        machine.origins.insert(format!("{}.latency_ns", entry.value_name()), known.latency_origin.clone());
    }
    machine.origins.extend(origins);
    machine.origins.extend(values.iter().map(|(name, stated)| (name.clone(), stated.origin.clone())));
    machine.sources.extend(template.sources.clone());
    if let Some((processor, origin)) = template.processor {
        machine.adopt_make(processor, origin);
    }
    (machine.performance, machine.costs) = (performance, costs);
    Ok(machine)
}

/// A number of a machine that was measured on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeasuredValue {
    /// Its name in a machine file with its section: `costs.syscall_ns`, `core_to_core_ns.same_llc`.
    pub name: String,
    /// The value in the unit that is used inside: ns, or picoseconds where a file has decimals.
    pub value: u64,
    /// What samples of it are seldom below.
    pub low: u64,
    /// What samples of it are seldom above.
    pub high: u64,
}

/// The machine with measured values in place of those it had. `note` says how and where they were measured.
///
/// # Errors
/// A value that no machine has, and values that contradict each other.
pub fn with_measured_values(mut machine: Machine, values: &[MeasuredValue], note: &str) -> Result<Machine> {
    let refused = |reason| Error::Impossible {
        machine: machine.name().to_owned(),
        reason,
        hint: "measure it again while nothing else runs".into(),
    };
    let (mut performance, mut costs) = (machine.performance.clone(), machine.costs.clone());
    let mut unknown: Vec<&str> = values.iter().map(|value| value.name.as_str()).collect();
    each_value(&mut performance, &mut costs, &mut |name, slot| {
        if let Some(measured) = values.iter().find(|value| value.name == name) {
            slot.set(Quantity::Number(measured.value));
            unknown.retain(|other| *other != name);
        }
    });
    if let Some(name) = unknown.first() {
        return Err(refused(format!("{name} is not a value of a machine")));
    }
    check_figures(&performance, &costs, &[]).map_err(refused)?;
    for value in values {
        let origin = Origin { spread: Some((value.low, value.high)), ..Origin::new(Basis::Measured, note) };
        machine.origins.insert(value.name.clone(), origin);
    }
    (machine.performance, machine.costs) = (performance, costs);
    Ok(machine)
}

/// Whether the costs of a machine are no model's: those of a machine of which nothing is known, or of [`DEFAULT_BASE`].
pub fn has_generic_costs(machine: &Machine) -> bool {
    let unknown = default_costs(&Performance::default()).0;
    let generic = crate::resolve(DEFAULT_BASE).is_ok_and(|generic| *generic.costs() == machine.costs);
    machine.name() != DEFAULT_BASE && (generic || machine.costs == unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_model_names_a_preset_and_is_reached() {
        for known in MODELS {
            crate::resolve(known.preset).unwrap();
            let name = format!("x {} y", known.pattern.replace('?', "3"));
            assert_eq!(preset_of_model(&name), Some(known), "{name}");
        }
    }

    #[test]
    fn a_model_of_a_family_has_the_family_s_figures() {
        let preset = |model: &str| preset_of_model(model).map(|known| known.preset);
        assert_eq!(preset("AMD EPYC 9654 96-Core Processor"), Some("genoa96"));
        assert_eq!(preset("AMD EPYC 9354 32-Core Processor"), Some("genoa96"));
        assert_eq!(preset("Intel(R) Xeon(R) Platinum 8480+"), Some("spr32"));
        assert_eq!(preset("Intel(R) Xeon(R) Processor @ 2.10GHz"), None);
    }

    #[test]
    fn a_machine_of_which_only_the_topology_is_known_has_the_figures_of_its_short_form() {
        let short = crate::resolve("1s1n2l2c2t").unwrap();
        let plain = crate::from_hwloc_xml(&crate::to_hwloc_xml(&short).unwrap()).unwrap();
        let whole = with_missing_figures(plain.clone()).unwrap();
        assert_eq!((whole.costs(), whole.performance()), (short.costs(), short.performance()));
        let latencies = |machine: &Machine| machine.caches().iter().map(|cache| cache.latency_ps).collect::<Vec<_>>();
        assert_eq!(latencies(&whole), latencies(&short));
        assert_eq!(whole.origin("cache.L2.latency_ns").unwrap().basis, Basis::Assumed);
        assert!(whole.notes().is_empty() && has_generic_costs(&whole));
        // One that has figures keeps them.
        let genoa = with_figures_of(plain, "genoa96", "asked for").unwrap();
        assert_eq!(with_missing_figures(genoa.clone()).unwrap(), genoa);
    }

    #[test]
    fn a_machine_takes_the_figures_of_a_preset_and_keeps_its_topology() {
        let plain = crate::from_synthetic("Package:2 [NUMANode] L3Cache:3 Core:4 PU:2").unwrap();
        assert!(has_generic_costs(&plain) && has_generic_costs(&crate::resolve("2s1n2l4c1t").unwrap()));
        let genoa = crate::resolve("genoa96").unwrap();
        let based = with_figures_of(plain.clone(), "genoa96", "asked for").unwrap();
        assert_eq!((based.costs(), based.performance()), (genoa.costs(), genoa.performance()));
        assert_eq!((based.cpu_count(), based.llc_count()), (48, 6));
        assert_eq!((based.processor(), based.reclaim_distance()), (genoa.processor(), 32));
        let intel = crate::resolve("2s1n1l4c1t@spr32").unwrap();
        let other = with_figures_of(intel.clone(), "genoa96", "asked for").unwrap();
        assert_eq!((other.processor(), other.reclaim_distance()), (intel.processor(), 30), "its own make stays");
        assert!(!has_generic_costs(&based));
        let again = crate::from_toml(&crate::to_toml(&based)).unwrap();
        assert_eq!(again.costs(), genoa.costs());
        assert!(with_figures_of(plain, "genoa69", "").unwrap_err().to_string().contains("genoa96"));
    }
}
