//! How memory is modelled: one choice of model and, of exact models, of what their caches and addresses are like.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use warmcore_memory::exact::cache::SetIndex;
use warmcore_memory::exact::{Options, PagingSpec};
use warmcore_topology::nearest;

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

impl FromStr for MemoryChoice {
    type Err = String;

    /// A level by [its name](MemoryChoice::name); after one that translates addresses a colon and a [`PagingSpec`].
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let known = LEVELS.iter().copied().find(|level| level.name() == name).ok_or_else(|| {
            let names = LEVELS.iter().map(|level| level.name());
            let near = nearest(name, names.clone()).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            format!("there is no memory `{name}`{near} (there are {})", names.collect::<Vec<_>>().join(", "))
        })?;
        match (known, settings) {
            (level, None) => Ok(level),
            (Self::ExactPaged(_), Some(settings)) => settings.parse().map(Self::ExactPaged),
            (Self::ExactPagedByAddress(_), Some(settings)) => settings.parse().map(Self::ExactPagedByAddress),
            (_, Some(_)) => {
                Err(format!("`{name}` has no settings: those of pages are of exact-paged and exact-paged-by-address"))
            }
        }
    }
}

/// Every level, those that translate addresses with the usual pages.
const LEVELS: [MemoryChoice; 6] = [
    MemoryChoice::None,
    MemoryChoice::Analytic,
    MemoryChoice::Exact,
    MemoryChoice::ExactByAddress,
    MemoryChoice::ExactPaged(PagingSpec::USUAL),
    MemoryChoice::ExactPagedByAddress(PagingSpec::USUAL),
];

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

    /// Options of the exact level: how lines are spread over the sets of caches, and whether addresses are translated.
    pub fn exact_options(self) -> Options {
        let index = match self {
            MemoryChoice::ExactByAddress | MemoryChoice::ExactPagedByAddress(_) => SetIndex::LowBits,
            _ => SetIndex::Hashed,
        };
        Options { index, paging: self.paging(), ..Options::default() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_is_read_by_its_name_and_pages_by_their_settings() {
        for level in LEVELS {
            assert_eq!(level.name().parse(), Ok(level));
        }
        let paged: MemoryChoice = "exact-paged:page=64KiB,tlb=64,ram=1GiB".parse().unwrap();
        let spec = PagingSpec { page_bytes: 65_536, tlb_entries: 64, node_bytes: Some(1 << 30) };
        assert_eq!(paged, MemoryChoice::ExactPaged(spec));
        for (text, wanted) in [
            ("analitic", "did you mean `analytic`?"),
            ("", "there are none, analytic"),
            ("exact:page=4KiB", "has no settings"),
            ("exact-paged:", "a setting is missing"),
            ("exact-paged:tbl=4", "did you mean `tlb`?"),
            ("exact-paged:tlb=-4", "not a number from 0"),
            ("exact-paged:tlb=4,tlb=8", "tlb is set twice"),
            ("exact-paged:page=6KiB", "power of two"),
        ] {
            let error = text.parse::<MemoryChoice>().unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
