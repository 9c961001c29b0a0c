//! Storage of tasks and groups: a value for each owner that has one.

use crate::maps::{MapKind, Maps, OWNERS};

impl Maps {
    /// Address of an owner's storage; made of zeros if it does not exist and `create` says so, else 0.
    pub fn storage(&mut self, handle: u64, owner: u32, create: bool) -> u64 {
        let Some(map) = self.get_mut(handle) else { return 0 };
        let is_storage = matches!(map.spec.kind, MapKind::TaskStorage | MapKind::CgroupStorage);
        if !is_storage || u64::from(owner) >= OWNERS {
            return 0;
        }
        let index = owner as usize;
        if map.present.len() <= index {
            map.present.resize(index + 1, false);
        }
        let place = map.address + u64::from(owner) * map.stride;
        let stride = map.stride;
        if map.present[index] {
            return place;
        }
        if !create {
            return 0;
        }
        map.present[index] = true;
        if let Some(bytes) = self.memory.write(place, stride) {
            bytes.fill(0);
        }
        place
    }

    /// Removes an owner's storage; false if there was none.
    pub fn delete_storage(&mut self, handle: u64, owner: u32) -> bool {
        let Some(present) = self.get_mut(handle).and_then(|map| map.present.get_mut(owner as usize)) else {
            return false;
        };
        std::mem::take(present)
    }

    /// Removes all storages of an owner that is gone.
    pub fn forget_owner(&mut self, kind: MapKind, owner: u32) {
        for map in self.maps.iter_mut().filter(|map| map.spec.kind == kind) {
            if let Some(present) = map.present.get_mut(owner as usize) {
                *present = false;
            }
        }
    }
}
