//! The caches of a machine folded back into few entries: "one per core, 48 KiB", as files state them.

use std::collections::{BTreeMap, BTreeSet};

use crate::template::{CacheScope, CacheTemplate, cache_value_name};
use crate::{Basis, Cache, CpuSet, Machine, Origin};

/// Caches of equal attributes as one entry, when they are exactly the groups of one scope; otherwise one by one.
/// Entries carry the machine's origins.
pub(crate) fn cache_entries(machine: &Machine) -> Vec<CacheTemplate> {
    let mut kinds: Vec<Vec<&Cache>> = Vec::new();
    for cache in machine.caches() {
        match kinds.iter_mut().find(|members| same_attributes(members[0], cache)) {
            Some(members) => members.push(cache),
            None => kinds.push(vec![cache]),
        }
    }
    kinds.into_iter().flat_map(|members| entries_of_kind(machine, &members)).collect()
}

fn same_attributes(a: &Cache, b: &Cache) -> bool {
    let attributes = |cache: &Cache| {
        (cache.level, cache.kind, cache.size_bytes, cache.line_bytes, cache.ways, cache.inclusion, cache.latency_ps)
    };
    attributes(a) == attributes(b)
}

fn entries_of_kind(machine: &Machine, members: &[&Cache]) -> Vec<CacheTemplate> {
    let mut all = CpuSet::new();
    for cache in members {
        all.union_with(&cache.cpus);
    }
    let entry = |shared_by: CacheScope, cpus: &CpuSet| {
        let everywhere = *cpus == *machine.all_cpus();
        let numbers: BTreeSet<u32> = cpus.iter().map(|cpu| machine.os_index(cpu)).collect();
        let limit = (!everywhere || shared_by == CacheScope::Cpus).then_some(numbers);
        let name = cache_value_name(members[0].level, members[0].kind, limit.as_ref());
        let origin = |name: &str| machine.origin(name).cloned().unwrap_or_else(|| Origin::new(Basis::Given, ""));
        CacheTemplate {
            cache: Cache { cpus: CpuSet::new(), ..members[0].clone() },
            shared_by,
            cpus: limit,
            origin: origin(&name),
            latency_origin: origin(&format!("{name}.latency_ns")),
        }
    };
    let fits = |scope: CacheScope| {
        let groups: BTreeMap<_, _> = groups(machine, scope).into_iter().map(|cpus| (cpus.first(), cpus)).collect();
        let used = groups.values().filter(|group| group.intersects(&all)).count();
        used == members.len() && members.iter().all(|cache| groups.get(&cache.cpus.first()) == Some(&&cache.cpus))
    };
    // Groups of several levels may be the same CPUs: an outer cache is an LLC's rather than a core's.
    let preferred = if members[0].level >= 3 { CacheScope::Llc } else { CacheScope::Core };
    match [preferred].into_iter().chain(CacheScope::ALL).find(|scope| fits(*scope)) {
        Some(scope) => vec![entry(scope, &all)],
        None => members.iter().map(|cache| entry(CacheScope::Cpus, &cache.cpus)).collect(),
    }
}

fn groups(machine: &Machine, scope: CacheScope) -> Vec<&CpuSet> {
    match scope {
        CacheScope::Core => machine.core_cpus.iter().collect(),
        CacheScope::Cluster => machine.cluster_cpus.iter().collect(),
        CacheScope::Llc => machine.llc_cpus.iter().collect(),
        CacheScope::Node => machine.nodes.iter().map(|node| &node.cpus).collect(),
        CacheScope::Socket => machine.sockets.iter().map(|socket| &socket.cpus).collect(),
        CacheScope::Machine => vec![machine.all_cpus()],
        CacheScope::Cpus => Vec::new(),
    }
}
