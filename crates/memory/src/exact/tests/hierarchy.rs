//! One core's three levels against lists, for every fill rule.

use proptest::prelude::*;
use warmcore_topology::CpuId;

use super::tiny_machine;
use crate::exact::address_trace::{Access, Record};
use crate::exact::cache::SetIndex;
use crate::exact::{LlcFill, Options, Replay};

/// A cache as lists per set, most recently used first, with dirty bits.
struct List {
    sets: Vec<Vec<(u64, bool)>>,
    ways: usize,
}

impl List {
    fn new(sets: usize, ways: usize) -> Self {
        Self { sets: vec![Vec::new(); sets], ways }
    }

    fn set(&mut self, line: u64) -> &mut Vec<(u64, bool)> {
        let count = self.sets.len() as u64;
        &mut self.sets[(line % count) as usize]
    }

    fn take(&mut self, line: u64) -> Option<bool> {
        let set = self.set(line);
        let place = set.iter().position(|held| held.0 == line)?;
        Some(set.remove(place).1)
    }

    /// Puts a line first; returns what fell out.
    fn put(&mut self, line: u64, dirty: bool) -> Option<(u64, bool)> {
        let ways = self.ways;
        let was = self.take(line).unwrap_or(false);
        let set = self.set(line);
        set.insert(0, (line, dirty || was));
        if set.len() > ways { set.pop() } else { None }
    }
}

#[derive(Default, PartialEq, Debug)]
struct Counts {
    l1_misses: u64,
    l2_hits: u64,
    llc_hits: u64,
    reads: u64,
    writes: u64,
}

struct Simple {
    l1: List,
    l2: List,
    llc: List,
    fill: LlcFill,
    counts: Counts,
}

impl Simple {
    fn access(&mut self, line: u64, write: bool) {
        if self.l1.take(line).map(|dirty| self.l1.put(line, dirty || write)).is_some() {
            return;
        }
        self.counts.l1_misses += 1;
        let from_l1 = self.l1.put(line, write);
        if let Some((victim, true)) = from_l1 {
            let pushed = self.l2.put(victim, true);
            pushed.into_iter().for_each(|victim| self.evicted(victim));
        }
        let in_l2 = self.l2.take(line);
        let from_l2 = self.l2.put(line, in_l2.unwrap_or(false));
        if in_l2.is_some() {
            self.counts.l2_hits += 1;
        }
        // What the L2 evicts goes to the LLC before the missing line is looked for there.
        from_l2.into_iter().for_each(|victim| self.evicted(victim));
        if in_l2.is_none() {
            self.fetch(line);
        }
    }

    fn evicted(&mut self, (line, dirty): (u64, bool)) {
        if dirty || matches!(self.fill, LlcFill::Victim | LlcFill::Exclusive) {
            let out = self.llc.put(line, dirty);
            self.left_llc(out);
        }
    }

    fn left_llc(&mut self, out: Option<(u64, bool)>) {
        let Some((line, mut dirty)) = out else { return };
        if self.fill == LlcFill::Inclusive {
            dirty |= self.l1.take(line).unwrap_or(false);
            dirty |= self.l2.take(line).unwrap_or(false);
        }
        self.counts.writes += u64::from(dirty);
    }

    fn fetch(&mut self, line: u64) {
        let had = self.llc.take(line);
        match (self.fill, had) {
            (LlcFill::Exclusive, Some(true)) => {
                // The L2 takes over the duty to write back.
                let set = self.l2.set(line);
                set.iter_mut().filter(|held| held.0 == line).for_each(|held| held.1 = true);
            }
            (LlcFill::Exclusive, _) | (LlcFill::Victim, None) => {}
            (LlcFill::Victim, Some(dirty)) => drop(self.llc.put(line, dirty)),
            (LlcFill::Inclusive | LlcFill::FillBoth, _) => {
                let out = self.llc.put(line, had.unwrap_or(false));
                self.left_llc(out);
            }
        }
        if had.is_some() {
            self.counts.llc_hits += 1;
        } else {
            self.counts.reads += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hits_and_traffic_are_those_of_three_lists(
        fill in 0_usize..4, accesses in prop::collection::vec((0_u64..600, any::<bool>()), 1..3_000),
    ) {
        let fill = [LlcFill::Inclusive, LlcFill::FillBoth, LlcFill::Victim, LlcFill::Exclusive][fill];
        let machine = tiny_machine("1s1n1l1c1t");
        let options = Options { llc_fill: Some(fill), index: SetIndex::LowBits, ..Options::default() };
        // One page holds everything, so the sets are those of the addresses.
        let mut replay = Replay::new(&machine, &options, &[CpuId(0)], 1 << 20).unwrap();
        let mut simple = Simple {
            l1: List::new(4, 4),
            l2: List::new(16, 4),
            llc: List::new(32, 8),
            fill,
            counts: Counts::default(),
        };
        for (line, write) in accesses {
            // A hot part, so that all levels hit.
            let line = if line < 300 { line % 60 } else { line };
            let access = if write { Access::Write } else { Access::Read };
            replay.access(Record { thread: 0, access, address: line * 64, size: 8 }).unwrap();
            simple.access(line, write);
        }
        let events = replay.counters()[0].events;
        let traffic = replay.node_traffic()[0];
        let counts = Counts {
            l1_misses: events.l1_misses,
            l2_hits: events.l2_hits,
            llc_hits: events.llc_hits,
            reads: traffic.reads,
            writes: traffic.writes,
        };
        prop_assert_eq!(counts, simple.counts, "{:?}", fill);
        prop_assert_eq!(events.dram_local, traffic.reads);
    }
}
