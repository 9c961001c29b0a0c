//! The exact level against models that are too simple to be wrong, and against what must always hold.

mod coherence;
mod hierarchy;
mod history;
mod live;
mod paging;
mod simulation;
mod single_cache;

use warmcore_topology::{Machine, from_toml};

/// A machine with tiny caches: `shape` as in `2s1n1l2c1t`, an L1 of 1 KiB, an L2 of 4 KiB, an LLC of 16 KiB.
pub(crate) fn tiny_machine(shape: &str) -> Machine {
    let cache = |level: u32, kib: u32, ways: u32| {
        format!(
            "[[cache]]\nlevel = {level}\nsize = \"{kib}KiB\"\nways = {ways}\norigin = \"given\"\nlatency_ns = {level}.0\n"
        )
    };
    let caches = cache(1, 1, 4) + &cache(2, 4, 4) + &cache(3, 16, 8);
    let text = format!("name = \"tiny\"\n[topology]\norigin = \"given\"\nshape = \"{shape}\"\n{caches}");
    from_toml(&text).expect("the machine is well formed")
}
