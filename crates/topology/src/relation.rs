//! How two CPUs stand to each other, from nearest to farthest. Costs and statistics are tables indexed by it.

use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

crate::worded! {
    /// The closest thing two CPUs share. The order of the variants is part of the meaning: later is farther.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[repr(u8)]
    pub enum Relation: name {
        /// One and the same CPU.
        SameCpu = "same_cpu",
        /// Two hardware threads of one core.
        SmtSibling = "smt_sibling",
        /// Two cores of one cluster (shared L2). Never found on machines whose cluster is the core.
        SameCluster = "same_cluster",
        /// Two clusters under one last-level cache.
        SameLlc = "same_llc",
        /// Two LLCs of one NUMA node.
        SameNode = "same_node",
        /// Two NUMA nodes of one socket.
        SameSocket = "same_socket",
        /// Two sockets whose nodes have the smallest distance found between sockets: one hop.
        OtherSocket = "other_socket",
        /// Two sockets whose nodes are farther apart than that: more than one hop.
        FarSocket = "far_socket",
    }
}

impl Relation {
    /// The name used in text for people: `other LLC, same node`.
    pub const fn description(self) -> &'static str {
        match self {
            Relation::SameCpu => "same CPU",
            Relation::SmtSibling => "SMT sibling",
            Relation::SameCluster => "same cluster",
            Relation::SameLlc => "same LLC",
            Relation::SameNode => "other LLC, same node",
            Relation::SameSocket => "other node, same socket",
            Relation::OtherSocket => "other socket, one hop",
            Relation::FarSocket => "other socket, more hops",
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.description())
    }
}

/// One value per [`Relation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerRelation<T>(pub [T; Relation::COUNT]);

impl<T> PerRelation<T> {
    /// The table whose entries are computed from the relation.
    pub fn from_fn(mut value: impl FnMut(Relation) -> T) -> Self {
        Self(Relation::ALL.map(&mut value))
    }

    /// Entries with their relation, nearest first.
    pub fn iter(&self) -> impl Iterator<Item = (Relation, &T)> {
        Relation::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<Relation> for PerRelation<T> {
    type Output = T;

    #[inline]
    fn index(&self, relation: Relation) -> &T {
        &self.0[relation as usize]
    }
}

impl<T> IndexMut<Relation> for PerRelation<T> {
    #[inline]
    fn index_mut(&mut self, relation: Relation) -> &mut T {
        &mut self.0[relation as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_follow_the_order_of_distance() {
        for (position, relation) in Relation::ALL.into_iter().enumerate() {
            assert_eq!(relation as usize, position);
        }
    }
}
