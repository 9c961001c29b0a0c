//! Protocol events against a table of states per core with caches that never lose anything.

use proptest::prelude::*;
use warmcore_topology::CpuId;

use super::tiny_machine;
use crate::exact::address_trace::{Access, Record};
use crate::exact::cache::SetIndex;
use crate::exact::{ClassCounters, L2Fill, LlcFill, Options, Protocol, Replay};

const LINE: u64 = 64;

/// State of one core's copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copy {
    None,
    Shared,
    Own,
}

/// Counts of the simple model, by where an access was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Served {
    in_core: u64,
    in_domain: u64,
    cross_reads: u64,
    cross_rfos: u64,
    memory: u64,
}

/// MESI with unlimited caches.
struct Simple {
    domain_of: Vec<usize>,
    copies: Vec<Vec<Copy>>,
    served: Vec<Served>,
}

impl Simple {
    fn access(&mut self, core: usize, line: usize, write: bool) {
        let one_owns = self.domain_owns(line, core);
        let copies = &self.copies[line];
        let mine = self.domain_of[core];
        let in_mine = |other: usize| self.domain_of[other] == mine;
        let has = |other: usize| copies[other] != Copy::None;
        let others = |inside: bool| (0..copies.len()).filter(move |other| *other != core && in_mine(*other) == inside);
        let near = others(true).any(has);
        let far = others(false).any(has);
        // A domain may write when it is the only one with copies.
        let served = &mut self.served[core];
        if copies[core] == Copy::Own || copies[core] == Copy::Shared && !write {
            served.in_core += 1;
        } else if write && far {
            served.cross_rfos += 1;
        } else if near {
            served.in_domain += 1;
        } else if copies[core] == Copy::Shared {
            served.in_core += 1;
        } else if far && one_owns {
            served.cross_reads += 1;
        } else {
            served.memory += 1;
        }
        let copies = &mut self.copies[line];
        if write {
            copies.fill(Copy::None);
            copies[core] = Copy::Own;
        } else if copies[core] == Copy::None {
            let alone = copies.iter().all(|copy| *copy == Copy::None);
            copies.iter_mut().filter(|copy| **copy == Copy::Own).for_each(|copy| *copy = Copy::Shared);
            copies[core] = if alone { Copy::Own } else { Copy::Shared };
        }
    }

    /// Whether another domain is the only one with copies of a line: then it is the owner, even if its cores share.
    fn domain_owns(&self, line: usize, core: usize) -> bool {
        let holders: std::collections::BTreeSet<usize> = (0..self.domain_of.len())
            .filter(|other| self.copies[line][*other] != Copy::None)
            .map(|other| self.domain_of[other])
            .collect();
        holders.len() == 1 && !holders.contains(&self.domain_of[core])
    }
}

fn accesses(cores: usize, lines: u64) -> impl Strategy<Value = Vec<(usize, u64, bool)>> {
    prop::collection::vec((0..cores, 0..lines, prop::bool::weighted(0.3)), 1..300)
}

fn replay(options: &Options, shape: &str, page: u64) -> Replay {
    let machine = tiny_machine(shape);
    let cpus: Vec<CpuId> = machine.cpus().collect();
    Replay::new(&machine, options, &cpus, page).unwrap()
}

fn access(replay: &mut Replay, core: usize, line: u64, write: bool) {
    let access = if write { Access::Write } else { Access::Read };
    replay.access(Record { thread: core as u16, access, address: line * LINE, size: 8 }).unwrap();
}

fn sum_of_sources(events: &ClassCounters) -> u64 {
    events.l2_hits
        + events.llc_hits
        + events.same_llc_transfers
        + events.cross_reads()
        + events.cross_rfos()
        + events.upgrades
        + events.dram_local
        + events.dram_remote
}

const LLC_FILLS: [LlcFill; 4] = [LlcFill::Inclusive, LlcFill::FillBoth, LlcFill::Victim, LlcFill::Exclusive];
const L2_FILLS: [L2Fill; 3] = [L2Fill::FillBoth, L2Fill::Inclusive, L2Fill::Exclusive];
const PROTOCOLS: [Protocol; 3] = [Protocol::Mesi, Protocol::Moesi, Protocol::Mesif];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn events_are_those_of_simple_mesi_when_nothing_is_evicted(
        fill in 0_usize..4, shape in 0_usize..3, accesses in accesses(6, 8),
    ) {
        // Eight lines fit everywhere.
        let shape = ["1s1n1l6c1t", "1s1n3l2c1t", "2s1n1l3c1t"][shape];
        let machine = tiny_machine(shape);
        let options = Options { llc_fill: Some(LLC_FILLS[fill]), index: SetIndex::LowBits, ..Options::default() };
        let mut replay = replay(&options, shape, 4096);
        let mut simple = Simple {
            domain_of: machine.cpus().map(|cpu| machine.llc_of(cpu).index()).collect(),
            copies: vec![vec![Copy::None; 6]; 8],
            served: vec![Served::default(); 6],
        };
        for (core, line, write) in accesses {
            access(&mut replay, core, line, write);
            simple.access(core, line as usize, write);
        }
        replay.check();
        for (core, counters) in replay.counters().iter().enumerate() {
            let events = counters.events;
            let served = Served {
                in_core: events.touches - events.l1_misses + events.l2_hits,
                in_domain: events.llc_hits + events.same_llc_transfers,
                cross_reads: events.cross_reads(),
                cross_rfos: events.cross_rfos(),
                memory: events.dram_local + events.dram_remote,
            };
            prop_assert_eq!(served, simple.served[core], "core {}", core);
            prop_assert_eq!(events.upgrades, 0);
        }
    }

    #[test]
    fn directories_and_caches_agree_whatever_is_evicted(
        fill in 0_usize..4, l2 in 0_usize..3, protocol in 0_usize..3, two_sockets: bool, accesses in accesses(4, 1_200),
        rule in 0_usize..4,
    ) {
        let shape = if two_sockets { "2s1n1l2c1t" } else { "1s1n2l2c1t" };
        use crate::curves::Replacement::{Lru, Random, Srrip, TreePlru};
        let options = Options {
            llc_fill: Some(LLC_FILLS[fill]),
            l2_fill: Some(L2_FILLS[l2]),
            protocol: PROTOCOLS[protocol],
            llc_replacement: [Lru, TreePlru, Srrip, Random][rule],
            ..Options::default()
        };
        let mut replay = replay(&options, shape, 4096);
        for (core, line, write) in accesses {
            // Three quarters go to few lines, so that sharing and evictions both happen.
            let line = if line < 900 { line % 40 } else { line };
            access(&mut replay, core, line, write);
            replay.check();
        }
        for counters in replay.counters() {
            prop_assert_eq!(sum_of_sources(&counters.events), counters.events.l1_misses);
        }
        let reads: u64 = replay.node_traffic().iter().map(|traffic| traffic.reads).sum();
        let misses: u64 = replay.counters().iter().map(|c| c.events.dram_local + c.events.dram_remote).sum();
        prop_assert!(reads >= misses, "memory was read {reads} times for {misses} misses");
    }

    #[test]
    fn directories_and_caches_agree_where_cores_share_a_bit_of_the_directory(
        fill in 0_usize..4, protocol in 0_usize..3, accesses in accesses(4, 1_200),
    ) {
        // 80 cores: two to a bit. Cores 0 and 1 share one, and so do 2 and 3.
        let shape = "1s1n2l80c1t";
        let options = Options { llc_fill: Some(LLC_FILLS[fill]), protocol: PROTOCOLS[protocol], ..Options::default() };
        let mut replay = replay(&options, shape, 4096);
        for (core, line, write) in accesses {
            let line = if line < 900 { line % 40 } else { line };
            access(&mut replay, [0, 1, 2, 80][core], line, write);
        }
        replay.check();
        for counters in replay.counters() {
            prop_assert_eq!(sum_of_sources(&counters.events), counters.events.l1_misses);
        }
    }
}

#[test]
fn a_line_written_by_turns_crosses_domains_every_time() {
    let mut replay = replay(&Options::default(), "2s1n1l2c1t", 4096);
    for turn in 0..100 {
        access(&mut replay, if turn % 2 == 0 { 0 } else { 2 }, 5, true);
    }
    let counters = replay.counters();
    assert_eq!(counters[0].events.dram_local, 1);
    assert_eq!(counters[0].events.cross_rfos() + counters[2].events.cross_rfos(), 99);
    let other_socket = counters[2].events.remote_rfos[warmcore_topology::Relation::OtherSocket];
    assert_eq!(other_socket, 50);
}

#[test]
fn owned_lines_are_not_written_back_when_read() {
    for (protocol, writes) in [(Protocol::Mesi, 1), (Protocol::Moesi, 0)] {
        let mut replay = replay(&Options { protocol, ..Options::default() }, "2s1n1l2c1t", 4096);
        access(&mut replay, 0, 1, true);
        access(&mut replay, 2, 1, false);
        assert_eq!(replay.node_traffic().iter().map(|node| node.writes).sum::<u64>(), writes, "{protocol:?}");
        assert_eq!(replay.counters()[2].events.cross_reads(), 1);
    }
}

#[test]
fn an_owned_line_that_its_llc_gives_back_to_a_core_stays_owned_by_the_domain() {
    let options = Options { protocol: Protocol::Moesi, llc_fill: Some(LlcFill::Exclusive), ..Options::default() };
    let mut replay = replay(&options, "2s1n1l2c1t", 4096);
    access(&mut replay, 0, 5, true);
    // Out of the core's caches of 64 lines, into the LLC.
    (100..200).for_each(|line| access(&mut replay, 0, line, false));
    access(&mut replay, 2, 5, false);
    replay.check();
    access(&mut replay, 0, 5, false);
    replay.check();
    assert_eq!(replay.counters()[0].events.llc_hits, 1, "the LLC had the line");
    let writes = |replay: &Replay| replay.node_traffic().iter().map(|node| node.writes).sum::<u64>();
    assert_eq!(writes(&replay), 0);
    (1_000..3_000).for_each(|line| access(&mut replay, 0, line, false));
    replay.check();
    assert_eq!(writes(&replay), 1, "memory gets the line back when the domain loses it");
}

#[test]
fn clean_lines_come_from_another_cache_only_with_forward() {
    for (protocol, cross) in [(Protocol::Mesi, 1), (Protocol::Mesif, 2)] {
        let mut replay = replay(&Options { protocol, ..Options::default() }, "1s1n3l1c1t", 4096);
        for core in 0..3 {
            access(&mut replay, core, 1, false);
        }
        let reads: u64 = replay.counters().iter().map(|counters| counters.events.cross_reads()).sum();
        assert_eq!(reads, cross, "{protocol:?}");
    }
}

/// A read that finds no other copy gives the right to write (E of MESI): the write is a hit of the L1, at once or later.
#[test]
fn a_core_writes_without_asking_what_it_alone_has_read() {
    for (shape, other) in [("1s1n1l2c1t", 1), ("1s1n2l1c1t", 1), ("2s1n1l2c1t", 2)] {
        for fill in LLC_FILLS {
            let options = Options { llc_fill: Some(fill), ..Options::default() };
            for at_once in [false, true] {
                let mut replay = replay(&options, shape, 4096);
                if at_once {
                    replay.touch_at_once(5, &[(0, &[false, true])]);
                } else {
                    access(&mut replay, 0, 5, false);
                    access(&mut replay, 0, 5, true);
                }
                replay.check();
                let events = replay.counters()[0].events;
                let seen = (events.touches, events.l1_misses, events.l2_hits, events.upgrades, events.dram_local);
                assert_eq!(seen, (2, 1, 0, 0, 1), "{shape} {fill:?} {at_once}");
                // Who reads it has to be told of the next write.
                access(&mut replay, other, 5, false);
                access(&mut replay, 0, 5, true);
                replay.check();
                assert_eq!(replay.counters()[0].events.l1_misses, 2, "{shape} {fill:?} {at_once}");
            }
        }
    }
}

/// A core that reads a line after another has to take it from that one before it writes, also while nobody has said that the two are alone.
#[test]
fn a_core_asks_its_neighbour_for_what_both_have_just_read() {
    for fill in LLC_FILLS {
        for reads_first in [false, true] {
            let mut replay = replay(&Options { llc_fill: Some(fill), ..Options::default() }, "1s1n1l2c1t", 4096);
            let touches: &[bool] = if reads_first { &[false, true] } else { &[true] };
            replay.touch_at_once(5, &[(0, &[false]), (1, touches)]);
            replay.check();
            let events = replay.counters()[1].events;
            let seen = (events.l1_misses, events.l2_hits, events.same_llc_writes, events.upgrades, events.dram_local);
            assert_eq!(seen, (touches.len() as u64, 0, 1, 0, 0), "{fill:?} {reads_first}");
            assert_eq!(sum_of_sources(&events), events.l1_misses);
        }
    }
}
