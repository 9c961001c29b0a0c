//! Machines for the simulator, the analysis and the lab: CPUs, cores, caches, last-level caches (LLCs), NUMA nodes,
//! sockets, their distances and costs.
//!
//! The crate answers constant-time questions about an immutable [`Machine`] and converts machines between formats. It
//! never looks at the computer it runs on by itself: readers take text, or the root of a directory tree that the
//! caller names.
//!
//! | from | by |
//! |---|---|
//! | a preset's name, a short form, any of the texts that name a machine | [`resolve`] |
//! | machine TOML (`machines/README.md` describes it) | [`from_toml`], [`to_toml`] |
//! | a `/sys` tree | [`from_sysfs`], [`write_sysfs_snapshot`], [`write_sysfs_tree`] |
//! | hwloc XML | [`from_hwloc_xml`], [`to_hwloc_xml`] |
//! | an hwloc synthetic description | [`from_synthetic`], [`to_synthetic`] |
//! | kernel threads that run beside any workload (TOML) | [`background_from_toml`], [`Background::named`] |
//! | drawn for people | [`render`] |
//!
//! ```
//! use warmcore_topology::{CpuId, Relation, resolve};
//! let machine = resolve("2s1n2l4c2t").unwrap();
//! assert_eq!(machine.cpu_count(), 32);
//! assert_eq!(machine.relation(CpuId(0), CpuId(16)), Relation::SmtSibling);
//! assert_eq!(machine.relation(CpuId(0), CpuId(4)), Relation::SameNode);
//! ```

mod assumed;
mod background;
mod background_toml;
mod base;
mod build;
mod cache_entries;
mod core_kinds;
mod core_kinds_toml;
mod costs;
mod cpu_list;
mod cpu_set;
mod description;
mod discovered;
mod error;
mod fields;
mod figures;
mod hwloc_bitmap;
mod hwloc_read;
mod hwloc_write;
pub mod ids;
mod machine;
mod nearest;
mod performance;
mod presets;
mod processor;
mod relation;
mod render;
mod scheduling;
pub mod settings;
mod shape;
mod split_mix;
mod synthetic_read;
mod synthetic_write;
mod sysfs;
mod sysfs_priorities;
mod sysfs_write;
mod template;
mod toml_read;
mod toml_topology;
mod toml_write;
mod units;
mod virtual_llc;
mod worded;

pub use assumed::{Assumption, assumptions, changed, changes, keep_cpus};
pub use background::*;
pub use background_toml::background_from_toml;
pub use base::{
    KnownModel, MODELS, MeasuredValue, has_generic_costs, preset_of_model, with_figures_of, with_measured_values,
    with_missing_figures,
};
pub use build::*;
pub use core_kinds::{ClockScope, CoreKind, IdleState};
pub use costs::*;
pub use cpu_list::*;
pub use cpu_set::*;
pub use description::*;
pub use discovered::LONGER_WAY_NOTE;
pub use error::*;
pub use hwloc_read::{from_hwloc_xml, hwloc_cpu_model};
pub use hwloc_write::to_hwloc_xml;
pub use ids::*;
pub use machine::*;
pub use nearest::nearest;
pub use performance::*;
pub use presets::{DEFAULT_BASE, PresetSummary, presets, resolve};
pub use processor::{Processor, RECLAIM_DISTANCE, Vendor};
pub use relation::*;
pub use render::{render, render_within};
pub use shape::*;
pub use split_mix::{SPLIT_MIX_STEP, split_mix};
pub use synthetic_read::from_synthetic;
pub use synthetic_write::{synthetic_losses, to_synthetic};
pub use sysfs::{cpu_model, from_sysfs};
pub use sysfs_write::{write_sysfs_snapshot, write_sysfs_tree};
pub use toml_read::{from_toml, key_twice};
pub use toml_write::to_toml;
pub use units::{format_size, parse_size};
pub use virtual_llc::{VirtualLlcSize, VirtualLlcSizeError, VirtualLlcs};
