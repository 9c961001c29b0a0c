//! Chains of dependent loads through a region of memory: the address of each is what the one before read.

use warmcore_topology::{SPLIT_MIX_STEP, split_mix};

use crate::spin::pause;

/// Bytes of a cache line, and of a link.
const LINE: usize = 64;

/// Links that are laid out between two pauses.
const LINKS_BETWEEN_PAUSES: usize = 1_024;

/// One link to a cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct ChainLink(u32);

const _: () = assert!(size_of::<ChainLink>() == LINE);

/// One cycle through all lines of a region, in an order that no prefetcher guesses.
pub(crate) struct Chain {
    links: Vec<ChainLink>,
    at: u32,
}

impl Chain {
    /// A cycle through so many bytes, at least one line. The same for every run (Sattolo's algorithm, SplitMix64).
    fn new(bytes: usize) -> Self {
        let lines = Self::lines(bytes);
        let mut links: Vec<ChainLink> = (0..lines as u32).map(ChainLink).collect();
        let mut state = 0_u64;
        for last in (1..lines).rev() {
            state = state.wrapping_add(SPLIT_MIX_STEP);
            links.swap(last, (split_mix(state) % last as u64) as usize);
            if last.is_multiple_of(LINKS_BETWEEN_PAUSES) {
                pause();
            }
        }
        Self { links, at: 0 }
    }

    /// That of several which goes through so many bytes; it is made where there is none.
    pub(crate) fn of(chains: &mut Vec<Self>, bytes: usize) -> &mut Self {
        let is_of = |chain: &Self| chain.links.len() == Self::lines(bytes);
        let index = chains.iter().position(is_of).unwrap_or_else(|| {
            chains.push(Self::new(bytes));
            chains.len() - 1
        });
        &mut chains[index]
    }

    /// Follows so many links from where the last call ended.
    pub(crate) fn follow(&mut self, hops: u64) {
        for _ in 0..hops {
            self.at = self.links[self.at as usize].0;
        }
        self.at = std::hint::black_box(self.at);
    }

    fn lines(bytes: usize) -> usize {
        (bytes / LINE).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_comes_back_after_all_its_lines_and_not_before() {
        for bytes in [0, 1, 64, 128, 4_096, 100_000] {
            let mut chain = Chain::new(bytes);
            for hop in 1..=chain.links.len() {
                chain.follow(1);
                assert_eq!(chain.at == 0, hop == chain.links.len(), "{bytes} bytes, hop {hop}");
            }
        }
    }
}
