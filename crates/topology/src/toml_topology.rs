//! The `[topology]` table of machine files: a regular shape, or explicit lists of CPUs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::template::{Layout, Template};
use crate::toml_read::{given, optional_origin};
use crate::units::SizeValue;
use crate::{CpuDescription, NodeDescription, Origin, ShortForm, SmtNumbering, parse_cpu_list};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTopology {
    #[serde(default, deserialize_with = "optional_origin")]
    pub(crate) origin: Option<Origin>,
    shape: Option<String>,
    smt_numbering: Option<SmtNumbering>,
    cores_per_cluster: Option<u32>,
    cores_per_coregroup: Option<u32>,
    pub(crate) distance: Option<RawDistance>,
    pub(crate) distances: Option<Vec<Vec<u32>>>,
    #[serde(default, deserialize_with = "optional_origin")]
    pub(crate) distances_origin: Option<Origin>,
    reclaim_distance: Option<u32>,
    #[serde(default, deserialize_with = "optional_origin")]
    pub(crate) reclaim_distance_origin: Option<Origin>,
    node_memory: Option<SizeValue>,
    offline: Option<String>,
    #[serde(default)]
    nodes: Vec<RawNode>,
    #[serde(default)]
    sockets: Vec<RawSocket>,
    #[serde(default)]
    llcs: Vec<String>,
    #[serde(default)]
    clusters: Vec<String>,
    #[serde(default)]
    cores: Vec<String>,
    #[serde(default)]
    coregroups: Vec<String>,
    #[serde(default)]
    capacities: Vec<RawCapacity>,
    #[serde(default)]
    priorities: Vec<RawPriority>,
    #[serde(default, deserialize_with = "optional_origin")]
    priorities_origin: Option<Origin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawDistance {
    pub(crate) same_socket: Option<u32>,
    pub(crate) other_socket: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    id: u32,
    #[serde(default)]
    cpus: String,
    memory: Option<SizeValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSocket {
    id: u32,
    cpus: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCapacity {
    cpus: String,
    capacity: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPriority {
    cpus: String,
    priority: u32,
}

/// Values that lists of CPUs have, each CPU in one list.
fn values_by_cpus<'a>(
    stated: impl Iterator<Item = (&'a str, u32)>,
    plural: &str,
) -> Result<Vec<(BTreeSet<u32>, u32)>, String> {
    let mut seen = BTreeSet::new();
    let mut values = Vec::new();
    for (list, value) in stated {
        let cpus = parse_cpu_list(list).map_err(|error| error.to_string())?;
        if let Some(twice) = cpus.iter().find(|cpu| !seen.insert(**cpu)) {
            return Err(format!("CPU {twice} has two {plural}"));
        }
        values.push((cpus, value));
    }
    Ok(values)
}

impl RawTopology {
    /// Puts what the table says into a template. Fails with a reason.
    pub(crate) fn read(mut self, template: &mut Template) -> Result<(), String> {
        template.distances = self.read_distances()?;
        template.distances_origin = self.distances_origin.take().or_else(|| self.origin.clone());
        let reclaim_origin = self.reclaim_distance_origin.take().or_else(|| self.origin.clone());
        template.reclaim_distance =
            self.reclaim_distance.map(|distance| (distance, reclaim_origin.unwrap_or_else(given)));
        template.node_memory_bytes = self.node_memory.as_ref().map(SizeValue::bytes).transpose()?;
        let offline = self.offline.as_deref().map(parse_cpu_list).transpose().map_err(|error| error.to_string())?;
        template.offline = offline.unwrap_or_default();
        let capacities = self.capacities.iter().map(|raw| (raw.cpus.as_str(), raw.capacity));
        template.capacities = values_by_cpus(capacities, "capacities")?;
        let priorities = self.priorities.iter().map(|raw| (raw.cpus.as_str(), raw.priority));
        for (cpus, priority) in values_by_cpus(priorities, "priorities")? {
            template.priorities.extend(cpus.into_iter().map(|cpu| (cpu, priority)));
        }
        template.priorities_origin = match self.priorities_origin.take() {
            None if !self.priorities.is_empty() => self.origin.clone(),
            stated => stated,
        };
        let lists_given =
            !(self.sockets.is_empty() && self.llcs.is_empty() && self.clusters.is_empty() && self.cores.is_empty());
        template.layout = match (&self.shape, self.nodes.is_empty()) {
            (Some(_), false) => return Err("`shape` and `nodes` exclude each other".to_owned()),
            (Some(_), true) if lists_given => {
                return Err("`shape` excludes `sockets`, `llcs`, `clusters` and `cores`".to_owned());
            }
            (Some(shape), true) => Some(self.regular(shape)?),
            (None, false) => Some(self.listed()?),
            (None, true) if lists_given => return Err("lists of CPUs need `nodes`".to_owned()),
            (None, true) => None,
        };
        if self.shape.is_none() && (self.smt_numbering.is_some() || self.cores_per_cluster.is_some()) {
            return Err("`smt_numbering` and `cores_per_cluster` belong to a `shape`".to_owned());
        }
        template.coregroups = self.coregroups(template.layout.as_ref())?;
        template.cores_per_coregroup = self.cores_per_coregroup;
        template.layout_origin = template.layout.is_some().then(|| self.origin.take().unwrap_or_else(given));
        Ok(())
    }

    fn regular(&self, shape: &str) -> Result<Layout, String> {
        let mut form: ShortForm = shape.parse().map_err(|error: crate::Error| error.to_string())?;
        form.smt_numbering = self.smt_numbering.unwrap_or(form.smt_numbering);
        let cores_per_cluster = self.cores_per_cluster.unwrap_or(1);
        if cores_per_cluster == 0 || cores_per_cluster > form.shape.cores_per_llc {
            return Err(format!(
                "cores_per_cluster = {cores_per_cluster} is not 1 to the {} cores of an LLC",
                form.shape.cores_per_llc
            ));
        }
        Ok(Layout::Regular { form, cores_per_cluster })
    }

    /// The groups of CPUs that stand for LLCs in scheduling domains: listed, or so many cores of a node each.
    fn coregroups(&self, layout: Option<&Layout>) -> Result<Vec<BTreeSet<u32>>, String> {
        match (self.cores_per_coregroup, layout) {
            (None, _) => {
                let lists = self.coregroups.iter().map(|list| parse_cpu_list(list).map_err(|error| error.to_string()));
                lists.collect()
            }
            (Some(_), _) if !self.coregroups.is_empty() => {
                Err("`coregroups` and `cores_per_coregroup` exclude each other".to_owned())
            }
            (Some(0), _) => Err("cores_per_coregroup = 0: a group has at least 1 core".to_owned()),
            (Some(cores), Some(Layout::Regular { form, .. })) => Ok(form.shape.coregroups(form.smt_numbering, cores)),
            (Some(_), _) => Err("`cores_per_coregroup` belongs to a `shape`".to_owned()),
        }
    }

    fn listed(&self) -> Result<Layout, String> {
        let mut nodes = Vec::new();
        let mut node_of = BTreeMap::new();
        for node in &self.nodes {
            let memory_bytes = node.memory.as_ref().map(SizeValue::bytes).transpose()?;
            nodes.push(NodeDescription { os_index: node.id, memory_bytes });
            add_group(&mut node_of, node.id, &node.cpus, "NUMA nodes")?;
        }
        let all: BTreeSet<u32> = node_of.keys().copied().collect();
        let sockets = self.sockets.iter().map(|socket| (socket.id, socket.cpus.as_str()));
        let socket_of = groups("a socket", "sockets", sockets, &all)?;
        let numbered = |lists: &[String]| -> Vec<(u32, String)> { (0..).zip(lists.iter().cloned()).collect() };
        let llcs = numbered(&self.llcs);
        let llc_of = groups("an LLC", "LLCs", llcs.iter().map(|(id, list)| (*id, list.as_str())), &all)?;
        let cores = numbered(&self.cores);
        let core_of = groups("a core", "cores", cores.iter().map(|(id, list)| (*id, list.as_str())), &all)?;
        let clusters = numbered(&self.clusters);
        let cluster_of = groups("a cluster", "clusters", clusters.iter().map(|(id, list)| (*id, list.as_str())), &all)?;

        let mut shared: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let cpus = node_of.iter().map(|(&os_index, &node)| {
            let socket = socket_of.get(&os_index).copied().unwrap_or(0);
            let next = shared.len() as u32;
            let node_share = *shared.entry((node, socket)).or_insert(next);
            let core = core_of.get(&os_index).copied().unwrap_or(os_index);
            CpuDescription {
                os_index,
                core,
                cluster: cluster_of.get(&os_index).copied().unwrap_or(core),
                llc: llc_of.get(&os_index).copied().unwrap_or(node_share),
                node,
                socket,
                capacity: crate::CAPACITY_SCALE,
            }
        });
        Ok(Layout::Listed { cpus: cpus.collect(), nodes })
    }
}

/// The group of each CPU; empty when no group is listed, complete otherwise.
fn groups<'a>(
    name: &str,
    plural: &str,
    lists: impl Iterator<Item = (u32, &'a str)>,
    all: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, u32>, String> {
    let mut group_of = BTreeMap::new();
    for (id, list) in lists {
        add_group(&mut group_of, id, list, plural)?;
    }
    if let Some(stray) = group_of.keys().find(|cpu| !all.contains(cpu)) {
        return Err(format!("CPU {stray} is listed as part of {name} but is in no NUMA node"));
    }
    match all.iter().find(|cpu| !group_of.is_empty() && !group_of.contains_key(cpu)) {
        Some(missing) => Err(format!("CPU {missing} is in none of the {plural}")),
        None => Ok(group_of),
    }
}

fn add_group(group_of: &mut BTreeMap<u32, u32>, id: u32, list: &str, plural: &str) -> Result<(), String> {
    for cpu in parse_cpu_list(list).map_err(|error| error.to_string())? {
        if let Some(other) = group_of.insert(cpu, id)
            && other != id
        {
            return Err(format!("CPU {cpu} is in two {plural}; they overlap"));
        }
    }
    Ok(())
}
