//! Where the pages of recorded processes live: `/proc/PID/numa_maps`, looked at now and then, because the kernel walks all page tables of a
//! process for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;

use warmcore_capture::PageHomes;
use warmcore_capture::homes::{HomeSample, of_numa_maps};

/// Least time between two looks, ns.
const BETWEEN_LOOKS_NS: u64 = 500_000_000;
/// Nodes that have memory.
const NODES: &str = "/sys/devices/system/node/has_memory";

/// A look at pages now and then.
#[derive(Debug)]
pub(super) struct Homes {
    found: PageHomes,
    next_ns: u64,
    /// Whether a process was seen at all.
    refused: BTreeSet<String>,
}

impl Homes {
    pub(super) fn begin() -> Self {
        let nodes = fs::read_to_string(NODES).map_or(1, |list| count(&list)).max(1);
        Self { found: PageHomes { nodes, ..PageHomes::default() }, next_ns: 0, refused: BTreeSet::new() }
    }

    /// Looks at all of these threads' processes, if the last look is long enough ago.
    pub(super) fn look(&mut self, time_ns: u64, processes: &BTreeMap<i32, i32>) {
        if time_ns < self.next_ns {
            return;
        }
        self.next_ns = time_ns + BETWEEN_LOOKS_NS;
        for process in processes.values().collect::<BTreeSet<_>>() {
            match fs::read_to_string(format!("/proc/{process}/numa_maps")) {
                Ok(text) => {
                    let kib = of_numa_maps(&text);
                    // One that is about to end has none any more.
                    if !kib.is_empty() {
                        self.found.samples.push(HomeSample { time_ns, process: *process, kib });
                    }
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    self.refused
                        .insert("page homes: not permitted: needs CAP_SYS_PTRACE, or to be the process' owner".into());
                }
                Err(error)
                    if error.kind() == ErrorKind::NotFound && fs::exists("/proc/self/numa_maps").unwrap_or(false) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.refused.insert("page homes: this kernel does not report them (CONFIG_NUMA)".into());
                }
                // It ended meanwhile.
                Err(_) => {}
            }
        }
    }

    /// Looks once more, and gives all that was seen.
    pub(super) fn finish(mut self, time_ns: u64, processes: &BTreeMap<i32, i32>) -> PageHomes {
        self.next_ns = 0;
        self.look(time_ns, processes);
        self.found.notes.extend(self.refused);
        self.found
    }
}

/// How many numbers are in a list such as `0-1,4`.
fn count(list: &str) -> u32 {
    let length = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.saturating_add(1))
    };
    list.trim().split(',').filter_map(length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted() {
        assert_eq!((count("0\n"), count("0-1,4\n"), count("")), (1, 3, 0));
    }

    #[test]
    fn the_pages_of_this_process_live_somewhere() {
        let own = std::process::id() as i32;
        let homes = Homes::begin().finish(5, &BTreeMap::from([(own, own)]));
        let told = homes.samples.iter().any(|sample| sample.kib.values().sum::<u64>() > 0);
        assert!(told || !homes.notes.is_empty(), "it is told, or why not");
    }
}
