use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::curves::Replacement;
use crate::exact::cache::{Cache, MAX_WAYS, SetIndex, Shape};
use crate::exact::lanes::{DIRTY, EMPTY, line_of};

fn shape(sets: u32, ways: u32, replacement: Replacement, index: SetIndex) -> Shape {
    Shape { sets, ways, replacement, index }
}

#[derive(Clone, Debug)]
enum Operation {
    Touch(u32, bool),
    Remove(u32),
    Promote(u32),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let line = 0_u32..120;
    let one = prop_oneof![
        8 => (line.clone(), any::<bool>()).prop_map(|(line, write)| Operation::Touch(line, write)),
        1 => line.clone().prop_map(Operation::Remove),
        1 => line.prop_map(Operation::Promote),
    ];
    prop::collection::vec(one, 1..400)
}

proptest! {
    #[test]
    fn lru_is_a_list_per_set(
        sets in 1_u32..7, ways in 1_u32..=MAX_WAYS, low_bits: bool, operations in operations(),
    ) {
        let sets = if low_bits { sets.next_power_of_two() } else { sets };
        let index = if low_bits { SetIndex::LowBits } else { SetIndex::Hashed };
        let mut cache = Cache::new(shape(sets, ways, Replacement::Lru, index), 5);
        // Lines with their dirty bit, the most recently used first.
        let mut lists: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Touch(line, write) => {
                    let list = lists.entry(cache.set_of(line)).or_default();
                    let dirty = if write { DIRTY } else { 0 };
                    let touched = cache.touch(line, dirty, dirty);
                    let place = list.iter().position(|held| held.0 == line);
                    prop_assert_eq!(touched.hit, place.is_some());
                    let was_dirty = place.map(|place| list.remove(place).1).unwrap_or(false);
                    list.insert(0, (line, was_dirty || write));
                    if list.len() > ways as usize {
                        let (victim, dirty) = list.pop().unwrap();
                        prop_assert_eq!(line_of(touched.lane), victim);
                        prop_assert_eq!(touched.lane & DIRTY != 0, dirty);
                    } else if !touched.hit {
                        prop_assert_eq!(touched.lane, EMPTY);
                    }
                }
                Operation::Remove(line) => {
                    let list = lists.entry(cache.set_of(line)).or_default();
                    let place = list.iter().position(|held| held.0 == line);
                    let dirty = place.map(|place| list.remove(place).1);
                    prop_assert_eq!(cache.remove(line).map(|state| state & DIRTY != 0), dirty);
                }
                Operation::Promote(line) => {
                    let list = lists.entry(cache.set_of(line)).or_default();
                    let place = list.iter().position(|held| held.0 == line);
                    prop_assert_eq!(cache.promote(line).is_some(), place.is_some());
                    if let Some(place) = place {
                        let held = list.remove(place);
                        list.insert(0, held);
                    }
                }
            }
        }
        let mut expected: Vec<(u32, bool)> = lists.into_values().flatten().collect();
        let mut held: Vec<(u32, bool)> = cache.lines().collect();
        expected.sort_unstable();
        held.sort_unstable();
        prop_assert_eq!(held, expected);
    }

    #[test]
    fn every_rule_keeps_what_was_touched_and_evicts_what_was_there(
        ways in 1_u32..=MAX_WAYS, rule in 0_usize..4, operations in operations(),
    ) {
        let rules = [Replacement::Lru, Replacement::TreePlru, Replacement::Srrip, Replacement::Random];
        let mut cache = Cache::new(shape(3, ways, rules[rule], SetIndex::Hashed), 9);
        let mut held = std::collections::BTreeSet::new();
        for operation in operations {
            match operation {
                Operation::Touch(line, _) => {
                    let touched = cache.touch(line, 0, 0);
                    prop_assert_eq!(touched.hit, held.contains(&line));
                    held.insert(line);
                    if !touched.hit && touched.lane != EMPTY {
                        prop_assert!(line_of(touched.lane) != line);
                        prop_assert!(held.remove(&line_of(touched.lane)));
                        prop_assert!(cache.lines().filter(|other| cache.set_of(other.0) == cache.set_of(line)).count()
                            == ways as usize, "a line was evicted from a set with room");
                    }
                    prop_assert!(cache.contains(line));
                }
                Operation::Remove(line) => prop_assert_eq!(cache.remove(line).is_some(), held.remove(&line)),
                Operation::Promote(line) => prop_assert_eq!(cache.promote(line).is_some(), held.contains(&line)),
            }
        }
        prop_assert_eq!(cache.lines().count(), held.len());
    }
}

/// The victims of a full set of four ways after the given hits (ways in the order of filling).
fn victims(rule: Replacement, hits: &[u32], count: usize) -> Vec<u32> {
    let mut cache = Cache::new(shape(1, 4, rule, SetIndex::LowBits), 1);
    (0..4).for_each(|line| assert!(!cache.touch(line, 0, 0).hit));
    hits.iter().for_each(|line| assert!(cache.touch(*line, 0, 0).hit));
    (0..count as u32).map(|number| line_of(cache.touch(100 + number, 0, 0).lane)).collect()
}

#[test]
fn tree_plru_follows_its_bits() {
    // After filling 0 to 3 all bits point left: 0 goes, then the other half's 2, then 1, then 3.
    assert_eq!(victims(Replacement::TreePlru, &[], 4), [0, 2, 1, 3]);
    // A hit on 0 turns the root to the right half, whose bit still points to 2.
    assert_eq!(victims(Replacement::TreePlru, &[0], 1), [2]);
}

#[test]
fn srrip_protects_lines_that_were_hit() {
    assert_eq!(victims(Replacement::Srrip, &[0, 1], 2), [2, 3]);
    // New lines come in with a long prediction, so a scan replaces itself before what was hit.
    assert_eq!(victims(Replacement::Srrip, &[0, 1, 2], 2), [3, 100]);
}

#[test]
fn random_replacement_chooses_all_ways_alike() {
    let mut cache = Cache::new(shape(1, 16, Replacement::Random, SetIndex::LowBits), 3);
    (0..16).for_each(|line| assert!(!cache.touch(line, 0, 0).hit));
    let mut counts = [0; 16];
    let mut ways: Vec<u32> = (0..16).collect();
    for line in 16..16_016 {
        let victim = line_of(cache.touch(line, 0, 0).lane);
        let way = ways.iter().position(|held| *held == victim).unwrap();
        counts[way] += 1;
        ways[way] = line;
    }
    assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
}

#[test]
fn hashed_sets_get_lines_independently() {
    // The number of lines per set of a contiguous range is Poisson: its variance is its mean.
    let cache = Cache::new(shape(960, 16, Replacement::Lru, SetIndex::Hashed), 7);
    let mut counts = vec![0_u32; 960];
    (0..9_600).for_each(|line| counts[cache.set_of(line) as usize] += 1);
    let variance = counts.iter().map(|count| (f64::from(*count) - 10.0).powi(2)).sum::<f64>() / 960.0;
    assert!((8.5..11.5).contains(&variance), "{variance}");
}
