//! Machines for the simulator, the analysis and the lab: CPUs, cores, caches, last-level caches (LLCs), NUMA nodes,
//! sockets, their distances and costs.
//!
//! The crate answers constant-time questions about an immutable [`Machine`] and converts machines between formats. It
//! never looks at the computer it runs on by itself: readers take text or the root of a directory tree.

mod build;
mod costs;
mod cpu_list;
mod cpu_set;
mod description;
mod error;
pub mod ids;
mod machine;
mod performance;
mod relation;
mod shape;

pub use build::*;
pub use costs::*;
pub use cpu_list::*;
pub use cpu_set::*;
pub use description::*;
pub use error::*;
pub use ids::*;
pub use machine::*;
pub use performance::*;
pub use relation::*;
pub use shape::*;

impl Machine {
    /// Builds the machine that a short text names: see [`ShortForm`].
    ///
    /// # Errors
    /// Texts that are no such form.
    pub fn parse(spec: &str) -> Result<Machine> {
        let form: ShortForm = spec.parse()?;
        let core_to_core_ns = PerRelation([0, 10, 45, 45, 100, 120, 160, 220]);
        MachineDescription {
            name: spec.to_owned(),
            summary: String::new(),
            cpus: form.shape.cpus(form.smt_numbering, 1),
            offline: Default::default(),
            nodes: form.shape.nodes(),
            distances: None,
            caches: Vec::new(),
            performance: Performance::default(),
            costs: Costs::derived_from(&core_to_core_ns),
            origins: Default::default(),
            sources: Default::default(),
            notes: Vec::new(),
        }
        .build()
    }
}
