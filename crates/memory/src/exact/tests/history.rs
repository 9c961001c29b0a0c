//! The sets that tasks used lately, against what they touch.

use warmcore_topology::CpuId;

use super::tiny_machine;
use crate::exact::cache::SetIndex;
use crate::exact::{HistoryLevel, HistorySpec, Options, Simulation, TaskSpec};
use crate::profile::{Class, ClassKind, Profile};

/// The latest sets of a task that scans so many lines again and again, once it has settled.
fn of_a_scan(lines: u64, level: HistoryLevel, window: u32, follow_migrations: bool) -> (Vec<u32>, u32) {
    let machine = tiny_machine("1s1n1l1c1t");
    let options = Options { index: SetIndex::LowBits, follow_migrations, ..Options::default() };
    let class = Class { kind: ClassKind::Scan, ..Class::new("scan", 64 * lines, 0.1, 0.0) };
    let profile = Profile { origin: "given".into(), ..Profile::new("scan", 1.0, 1.0, vec![class]) };
    let spec = TaskSpec { profile, process: 0, data_group: None };
    let mut simulation = Simulation::new(&machine, options, vec![spec]).unwrap();
    simulation.record_sets(HistorySpec { level, window });
    simulation.place(0, Some(CpuId(0))).unwrap();
    simulation.run_for(100_000);
    let mut sets = Vec::new();
    simulation.recent_sets(0, &mut sets);
    (sets, simulation.sets(level))
}

/// 16 sets of four ways in the L2, 32 of eight in the LLC, 4 of four in the L1. A scan of more lines than a cache has misses it always,
/// and goes through its sets in turn.
#[test]
fn a_scan_uses_the_sets_of_each_level_that_it_misses_in_turn() {
    for follow_migrations in [false, true] {
        for (level, count) in [(HistoryLevel::L1, 4), (HistoryLevel::L2, 16), (HistoryLevel::Llc, 32)] {
            let (sets, of_level) = of_a_scan(1024, level, 100, follow_migrations);
            assert_eq!((sets.len(), of_level), (100, count), "{level:?}");
            assert!(sets.windows(2).all(|pair| pair[1] == (pair[0] + 1) % count), "{level:?} {sets:?}");
        }
    }
}

/// 32 lines: more than the L1 has, less than the L2. Past the first round nothing reaches the LLC.
#[test]
fn what_a_level_settles_is_not_in_the_history_of_the_next() {
    for follow_migrations in [false, true] {
        let sets = |level| of_a_scan(32, level, 100, follow_migrations).0.len();
        assert_eq!([HistoryLevel::L1, HistoryLevel::L2].map(sets), [100, 100]);
        assert_eq!(sets(HistoryLevel::Llc), 32);
    }
}

/// 16 lines in the L1, 64 in the L2, 256 in the LLC: scans that fit into one and not into the one before are answered by it.
#[test]
fn mixed_levels_record_the_set_of_the_cache_that_had_the_line_and_of_memory_the_l1s() {
    for follow_migrations in [false, true] {
        for (lines, count) in [(8, 4), (32, 16), (128, 32), (1024, 4)] {
            let (sets, of_levels) = of_a_scan(lines, HistoryLevel::Mixed, 100, follow_migrations);
            assert_eq!((sets.len(), of_levels), (100, 32));
            assert!(sets.windows(2).all(|pair| pair[1] == (pair[0] + 1) % count), "{lines} lines: {sets:?}");
        }
    }
}
