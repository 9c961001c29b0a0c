//! Maps by their keys, as user space and programs see them.

use super::*;

fn maps(kind: MapKind, entries: u32) -> (Maps, u64) {
    let mut maps = Maps::new(2).unwrap();
    let (name, special) = ("map".into(), Vec::new());
    let spec = MapSpec { name, kind, key_bytes: 4, value_bytes: 4, entries, flags: 0, extra: 0, special };
    let handle = maps.create(spec).unwrap();
    (maps, handle)
}

fn keys(maps: &Maps, handle: u64) -> Vec<u32> {
    let all = std::iter::successors(maps.next_key(handle, None), |key| maps.next_key(handle, Some(key)));
    all.map(|key| u32::from_le_bytes((&*key).try_into().unwrap())).collect()
}

#[test]
fn a_hash_that_is_full_forgets_the_key_that_was_used_longest_ago_or_takes_no_more() {
    for (kind, left) in
        [(MapKind::LruHash, vec![0, 2]), (MapKind::LruPercpuHash, vec![0, 2]), (MapKind::Hash, vec![0, 1])]
    {
        let (mut maps, handle) = maps(kind, 2);
        // A key in memory, for a lookup as programs make it.
        let (place, _) = maps.memory.add("key", 8).unwrap();
        let results = [0u32, 1, 2].map(|key| {
            let result = maps.update(handle, &key.to_le_bytes(), &[7; 4], 0, Some(0));
            assert_ne!(maps.lookup(handle, place, 0), 0, "key 0 is used again and again");
            result
        });
        let is_refused = results[2] == Err(MapFault::TooBig);
        assert_eq!((is_refused, keys(&maps, handle)), (kind == MapKind::Hash, left), "{kind:?}");
        maps.delete(handle, &0u32.to_le_bytes()).unwrap();
        assert_eq!(maps.update(handle, &9u32.to_le_bytes(), &[7; 4], 0, Some(0)), Ok(()), "{kind:?}");
    }
}

#[test]
fn each_cpu_has_its_own_values_of_a_hash_and_a_new_key_has_zeros_on_the_others() {
    let (mut maps, handle) = maps(MapKind::PercpuHash, 4);
    let key = 5u32.to_le_bytes();
    let values = |maps: &Maps| [0, 1].map(|cpu| maps.memory.load_u32(maps.find(handle, &key, cpu).unwrap()));
    maps.update(handle, &key, &3u32.to_le_bytes(), 0, Some(1)).unwrap();
    assert_eq!(values(&maps), [0, 3]);
    assert_eq!(maps.update(handle, &key, &[1; 4], 0, None), Err(MapFault::Invalid), "of all CPUs it is two values");
    maps.update(handle, &key, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0], 0, None).unwrap();
    assert_eq!(values(&maps), [1, 2]);
}

#[test]
fn pages_of_an_arena_that_are_reserved_by_their_lower_bits_are_not_given_out() {
    let (mut maps, handle) = maps(MapKind::Arena, 8192);
    assert!(maps.arena_reserve(handle, 0, 2), "the guard of NULL");
    assert!(!maps.arena_reserve(handle, crate::ARENA_BASE + 4096, 1), "it has that page");
    let third = crate::ARENA_BASE + 2 * 4096;
    assert_eq!(maps.arena_pages(handle, 1), third);
    maps.arena_free(handle, third, 1);
    assert_eq!(maps.arena_pages(handle, 1), third);
}

#[test]
fn an_array_of_events_holds_them_by_index_and_refuses_what_a_kernel_refuses() {
    let (mut maps, handle) = maps(MapKind::PerfEventArray, 2);
    assert_eq!(maps.event(handle, 0), Err(MapFault::NoEntry));
    assert_eq!(maps.event(handle, 2), Err(MapFault::TooBig));
    assert_eq!(maps.hold_event(handle, 2, 7, 0), Err(MapFault::TooBig));
    assert_eq!(maps.hold_event(handle, 1, 7, EXIST), Err(MapFault::Invalid));
    maps.hold_event(handle, 1, 7, 0).unwrap();
    assert_eq!((maps.event(handle, 1), maps.event(handle, 0)), (Ok(7), Err(MapFault::NoEntry)));
    assert_eq!(keys(&maps, handle), [0, 1]);
    // A value is what a descriptor stands for, which a program cannot write.
    assert_eq!(maps.update(handle, &[0; 4], &[1; 4], 0, None), Err(MapFault::NotSupported));
    let delete = |maps: &mut Maps, index: u32| maps.delete(handle, &index.to_le_bytes());
    assert_eq!(
        [1, 1, 2].map(|index| delete(&mut maps, index)),
        [Ok(()), Err(MapFault::NoEntry), Err(MapFault::TooBig)]
    );
    assert_eq!(maps.event(handle, 1), Err(MapFault::NoEntry));
    // There is one memory at a time.
    drop(maps);
    let (mut other, array) = self::maps(MapKind::Array, 2);
    assert_eq!(other.hold_event(array, 0, 7, 0), Err(MapFault::Invalid));
    assert_eq!(other.event(array, 0), Err(MapFault::Invalid));
}
