//! Pages of arenas.

use crate::maps::{Map, MapKind, Maps, PAGE};

/// The page of an address, of which the lower 32 bits count: NULL is in the first one of an arena that begins at a multiple of 4 GiB.
fn page_of(map: &Map, address: u64) -> u64 {
    u64::from((address as u32).wrapping_sub(map.address as u32)) / PAGE
}

impl Maps {
    /// Takes pages of an arena, the lowest that are free; gives their address, or 0.
    pub fn arena_pages(&mut self, handle: u64, pages: u64) -> u64 {
        let Some(map) = self.get_mut(handle).filter(|map| map.spec.kind == MapKind::Arena) else { return 0 };
        let Some((&first, &free)) = map.free_pages.iter().find(|&(_, &free)| free >= pages) else { return 0 };
        if pages == 0 {
            return 0;
        }
        map.free_pages.remove(&first);
        if free > pages {
            map.free_pages.insert(first + pages, free - pages);
        }
        map.address + first * PAGE
    }

    /// Keeps pages of an arena from being taken; false if some are taken.
    pub fn arena_reserve(&mut self, handle: u64, address: u64, pages: u64) -> bool {
        let Some(map) = self.get_mut(handle).filter(|map| map.spec.kind == MapKind::Arena) else { return false };
        let first = page_of(map, address);
        let Some((&start, &free)) = map.free_pages.range(..=first).next_back() else { return false };
        if first + pages > start + free {
            return false;
        }
        map.free_pages.remove(&start);
        if first > start {
            map.free_pages.insert(start, first - start);
        }
        if first + pages < start + free {
            map.free_pages.insert(first + pages, start + free - first - pages);
        }
        true
    }

    /// Gives pages of an arena back; they read as zeros.
    pub fn arena_free(&mut self, handle: u64, address: u64, pages: u64) {
        let Some(map) = self.get_mut(handle).filter(|map| map.spec.kind == MapKind::Arena) else { return };
        let first = page_of(map, address);
        let address = map.address + first * PAGE;
        let limit = u64::from(map.spec.entries);
        let pages = pages.min(limit.saturating_sub(first));
        if pages == 0 || map.free_pages.range(..first + pages).next_back().is_some_and(|(&s, &n)| s + n > first) {
            return;
        }
        let (mut start, mut count) = (first, pages);
        if let Some((&before, &free)) = map.free_pages.range(..first).next_back()
            && before + free == first
        {
            map.free_pages.remove(&before);
            (start, count) = (before, free + count);
        }
        if let Some(free) = map.free_pages.remove(&(first + pages)) {
            count += free;
        }
        map.free_pages.insert(start, count);
        if let Some(bytes) = self.memory.write(address, pages * PAGE) {
            bytes.fill(0);
        }
    }
}
