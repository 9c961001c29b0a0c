//! Time of one load in a chain of dependent ones that goes through a region of a given size.
//!
//! By the smallest cache that holds the region, as such a chain measures a machine's levels: one cycle through more lines than a
//! cache has evicts each before it comes back. Without misses of the TLB, prefetching, and what other tasks do to a cache; memory
//! is the CPU's own node's.

use warmcore_topology::{Cache, CpuId, Machine};

/// Size in KiB and latency in picoseconds of a cache that a machine's description leaves out.
pub(crate) const ASSUMED_L1: (u32, u32) = (32, 1_300);
pub(crate) const ASSUMED_L2: (u32, u32) = (1_024, 4_500);
pub(crate) const ASSUMED_LLC: (u32, u32) = (32 * 1_024, 30_000);
/// The same of memory, in nanoseconds.
pub(crate) const ASSUMED_MEMORY_NS: u32 = 100;

/// Picoseconds from one load to the next that needs it, on the CPU, in a region of so many bytes.
pub fn dependent_load_ps(machine: &Machine, cpu: CpuId, region_bytes: u64) -> u64 {
    let llc = machine.llc_cache(machine.llc_of(cpu));
    let middle = (llc.is_none_or(|llc| llc.level > 2)).then(|| (machine.data_cache(cpu, 2), ASSUMED_L2));
    [Some((machine.data_cache(cpu, 1), ASSUMED_L1)), middle, Some((llc, ASSUMED_LLC))]
        .into_iter()
        .flatten()
        .map(|(cache, assumed)| figures(cache, assumed))
        .find(|(bytes, _)| region_bytes <= *bytes)
        .map_or(machine.performance().memory.local_ns.unwrap_or(ASSUMED_MEMORY_NS.into()) * 1_000, |(_, ps)| ps)
}

/// Size in bytes and latency in picoseconds.
fn figures(cache: Option<&Cache>, (kib, ps): (u32, u32)) -> (u64, u64) {
    let bytes = cache.map(|cache| cache.size_bytes).filter(|bytes| *bytes > 0);
    (bytes.unwrap_or(u64::from(kib) << 10), cache.and_then(|cache| cache.latency_ps).unwrap_or(ps.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_costs_the_latency_of_the_smallest_cache_that_holds_the_region() {
        for preset in warmcore_topology::presets() {
            let machine = warmcore_topology::resolve(&preset.name).unwrap();
            let cpu = CpuId(0);
            let ps = |bytes| dependent_load_ps(&machine, cpu, bytes);
            let stated = |cache: Option<&Cache>| cache.and_then(|cache| Some((cache.size_bytes, cache.latency_ps?)));
            for cache in [machine.data_cache(cpu, 1), machine.llc_cache(machine.llc_of(cpu))] {
                let Some((bytes, latency_ps)) = stated(cache) else { continue };
                assert_eq!(ps(bytes), latency_ps, "{}", preset.name);
                assert!(ps(bytes + 1) > latency_ps, "{}", preset.name);
            }
            if let Some(local_ns) = machine.performance().memory.local_ns {
                assert_eq!(ps(64 << 30), local_ns * 1_000, "{}", preset.name);
            }
        }
    }
}
