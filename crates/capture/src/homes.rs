//! On which memory node the pages of processes lived while a recording was made.

use std::collections::BTreeMap;

use serde::Serialize;

/// Processes that are told of in words: those with the most pages.
const MOST_SAID: usize = 6;

/// Where pages lived, over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PageHomes {
    /// Memory nodes of the computer that have memory; 0 if homes were not looked at.
    pub nodes: u32,
    /// In order of time.
    pub samples: Vec<HomeSample>,
    /// What could not be had, and why, one sentence each.
    pub notes: Vec<String>,
}

/// The pages of a process at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeSample {
    /// When, on the recording's clock.
    pub time_ns: u64,
    /// Whose.
    pub process: i32,
    /// KiB that are in memory, by node.
    pub kib: BTreeMap<u32, u64>,
}

/// A process' pages over the whole recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProcessHomes {
    /// The process.
    pub process: i32,
    /// How often it was looked at.
    pub samples: u64,
    /// KiB when it was looked at last, by node.
    pub last_kib: BTreeMap<u32, u64>,
    /// Most KiB at any time, by node.
    pub most_kib: BTreeMap<u32, u64>,
}

impl PageHomes {
    /// Whether nothing was looked at.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// By process.
    pub fn processes(&self) -> Vec<ProcessHomes> {
        let mut found: BTreeMap<i32, ProcessHomes> = BTreeMap::new();
        for sample in &self.samples {
            let process = sample.process;
            let empty = ProcessHomes { process, samples: 0, last_kib: BTreeMap::new(), most_kib: BTreeMap::new() };
            let homes = found.entry(process).or_insert(empty);
            homes.samples += 1;
            homes.last_kib = sample.kib.clone();
            for (node, kib) in &sample.kib {
                let most = homes.most_kib.entry(*node).or_default();
                *most = (*most).max(*kib);
            }
        }
        found.into_values().collect()
    }

    /// What a reader must know of them.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.nodes == 1 {
            said.push("page homes: this computer has one memory node, so that every page is there".into());
        }
        let mut processes = self.processes();
        processes.sort_by_key(|homes| std::cmp::Reverse(homes.last_kib.values().sum::<u64>()));
        for homes in processes.iter().take(MOST_SAID) {
            let nodes: Vec<String> =
                homes.last_kib.iter().map(|(node, kib)| format!("{kib} KiB on node {node}")).collect();
            said.push(format!(
                "page homes: process {} had {} at its last of {} looks",
                homes.process,
                nodes.join(", "),
                homes.samples
            ));
        }
        if processes.len() > MOST_SAID {
            said.push(format!("page homes: {} processes more are in the run's documents", processes.len() - MOST_SAID));
        }
        said.extend(self.notes.iter().cloned());
        said
    }
}

/// KiB by node in the text of `/proc/PID/numa_maps`: of each mapping the pages on each node (`N0=12`) times the length of its pages
/// (`kernelpagesize_kB=4`).
///
/// Source: `numa(7)`.
pub fn of_numa_maps(text: &str) -> BTreeMap<u32, u64> {
    let mut kib = BTreeMap::new();
    for line in text.lines() {
        let words = || line.split_whitespace().skip(2);
        let page = words().find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok()).unwrap_or(4);
        for word in words() {
            let Some((node, pages)) = word.strip_prefix('N').and_then(|rest| rest.split_once('=')) else { continue };
            if let (Ok(node), Ok(pages)) = (node.parse::<u32>(), pages.parse::<u64>()) {
                let sum: &mut u64 = kib.entry(node).or_default();
                *sum = sum.saturating_add(pages.saturating_mul(page));
            }
        }
    }
    kib
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_mapping_count_with_their_own_length() {
        let text = "7f00 default file=/lib/N9=3 mapped=5 N0=3 N1=2 kernelpagesize_kB=4\n\
                    7f10 bind:1 anon=2 dirty=2 N1=2 kernelpagesize_kB=2048\nffff default\n";
        assert_eq!(of_numa_maps(text), BTreeMap::from([(0, 12), (1, 8 + 4096)]));
        assert!(of_numa_maps("nonsense N0 N=1 Nx=2 N0=y").is_empty());
    }

    #[test]
    fn the_last_and_the_most_of_each_process_are_kept() {
        let sample = |time_ns, process, kib| HomeSample { time_ns, process, kib: BTreeMap::from([(0, kib)]) };
        let homes = PageHomes { nodes: 1, samples: vec![sample(1, 7, 30), sample(2, 7, 20)], ..PageHomes::default() };
        let of = &homes.processes()[0];
        assert_eq!((of.samples, of.last_kib[&0], of.most_kib[&0]), (2, 20, 30));
        assert!(homes.sentences()[0].contains("one memory node"));
    }
}
