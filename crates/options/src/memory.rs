//! How memory is modelled: one choice of model and, of exact models, of what their caches and addresses are like.

use serde::{Deserialize, Serialize};
use warmcore_memory::exact::cache::SetIndex;
use warmcore_memory::exact::{Options, PagingSpec};
use warmcore_topology::Machine;

/// How the memory is modelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryChoice {
    /// Constant speed, fixed costs per distance.
    #[default]
    None,
    /// Caches, coherence and DRAM in closed forms.
    Analytic,
    /// Every line in simulated caches, coherence and DRAM.
    Exact,
    /// The same, with the sets of all caches chosen by address bits instead of a hash; for caches of a power of two of sets.
    ExactByAddress,
    /// Every line, whose addresses page tables translate: pages get a frame when they are touched first, and walks go through the caches.
    ExactPaged(PagingSpec),
    /// The same, with the sets of all caches chosen by address bits, which are those of the frames.
    ExactPagedByAddress(PagingSpec),
}

impl MemoryChoice {
    /// The name used on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryChoice::None => "none",
            MemoryChoice::Analytic => "analytic",
            MemoryChoice::Exact => "exact",
            MemoryChoice::ExactByAddress => "exact-by-address",
            MemoryChoice::ExactPaged(_) => "exact-paged",
            MemoryChoice::ExactPagedByAddress(_) => "exact-paged-by-address",
        }
    }

    /// Options of the exact level on a machine: how lines are spread over the sets of caches, and whether addresses are translated.
    pub fn exact_options(self, machine: &Machine) -> Options {
        let index = match self {
            MemoryChoice::ExactByAddress | MemoryChoice::ExactPagedByAddress(_) => SetIndex::LowBits,
            _ => SetIndex::Hashed,
        };
        Options { index, paging: self.paging(), ..Options::for_machine(machine) }
    }

    /// How addresses are translated, if they are.
    pub const fn paging(self) -> Option<PagingSpec> {
        match self {
            MemoryChoice::ExactPaged(paging) | MemoryChoice::ExactPagedByAddress(paging) => Some(paging),
            _ => None,
        }
    }

    /// Whether every line is simulated.
    pub const fn is_exact(self) -> bool {
        !matches!(self, MemoryChoice::None | MemoryChoice::Analytic)
    }
}
