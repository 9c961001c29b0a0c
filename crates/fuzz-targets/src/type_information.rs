//! Type information (BTF), as a loader hands it over: it is read or refused, and every walk through what was read ends.
use warmcore_bpf::btf::{Btf, TypeKind};

/// Types that are looked at.
const MOST: u32 = 64;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(btf) = Btf::parse(bytes.to_vec()) else { return };
    for ty in 0..MOST {
        let name = btf.name(ty);
        let _ = (btf.size(ty), btf.special_fields(ty));
        for member in btf.members(ty).take(MOST as usize) {
            let _ = btf.offset(name, member.name);
            let _ = btf.offset(name, &format!("{}.{}", member.name, name));
        }
        let _ = btf.enumerator(name, name);
        if !name.is_empty() {
            assert!(btf.find(btf.kind(ty), name).is_some());
        }
        assert!(!matches!(btf.kind(btf.resolved(ty)), TypeKind::Typedef | TypeKind::Const));
    }
}
