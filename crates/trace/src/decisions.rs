//! What schedulers say they decided: the kinds of decisions, and the table in which a run's kinds get their numbers.
//!
//! A module that decides declares its kinds with [`decisions!`](macro@crate::decisions) and registers them when the scheduler starts. Its
//! events then name them by the number that the table gave: nobody counts positions, and modules know nothing of each other's kinds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warmcore_topology::{CpuId, Machine, NodeId};

/// A kind of decision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DecisionKind {
    /// What was decided, such as `move refused`.
    pub subject: Cow<'static, str>,
    /// Why, such as `the preferred LLC is fuller`.
    pub reason: Cow<'static, str>,
    /// What the value of its events means.
    pub value: DecisionValue,
}

impl DecisionKind {
    /// A kind that a module declares.
    pub const fn new(subject: &'static str, reason: &'static str, value: DecisionValue) -> Self {
        Self { subject: Cow::Borrowed(subject), reason: Cow::Borrowed(reason), value }
    }

    /// Subject, colon, reason: one text for people, as in the column `name` of stored traces. Nothing reads it back.
    pub fn name(&self) -> String {
        format!("{}: {}", self.subject, self.reason)
    }
}

warmcore_topology::worded! {
    /// What the value of a decision's events means.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum DecisionValue: in_words {
        /// The dense number of an LLC as the scheduler sees them.
        Llc = "LLC",
        /// The dense number of a NUMA node.
        Node = "node",
        /// The dense number of a CPU.
        Cpu = "CPU",
        /// A number of what the reason says.
        Count = "number",
        /// A number of LLCs.
        LlcCount = "number of LLCs",
        /// A number of pages.
        PageCount = "number of pages",
    }
}

impl DecisionValue {
    /// A value as users know it: CPUs and nodes have the machine's own numbers there.
    pub fn for_users(self, value: i64, machine: &Machine) -> i64 {
        let dense = u32::try_from(value).ok();
        let shown = match self {
            DecisionValue::Cpu => dense.map(|cpu| machine.os_cpu(CpuId(cpu)).0),
            DecisionValue::Node => {
                let node = dense.filter(|node| (*node as usize) < machine.node_count());
                node.map(|node| machine.node_os_index(NodeId(node)))
            }
            _ => None,
        };
        shown.map_or(value, i64::from)
    }
}

/// Number of a kind in a run's table: what events carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecisionId(pub u32);

impl DecisionId {
    /// Before it is registered.
    pub const NONE: DecisionId = DecisionId(u32::MAX);
}

impl Default for DecisionId {
    fn default() -> Self {
        Self::NONE
    }
}

/// The kinds of decisions of a run, by number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DecisionTable {
    kinds: Vec<DecisionKind>,
}

impl DecisionTable {
    /// Adds a kind and gives its number: the next one.
    pub fn register(&mut self, kind: DecisionKind) -> DecisionId {
        self.kinds.push(kind);
        DecisionId(self.kinds.len() as u32 - 1)
    }

    /// Whether a number was given.
    pub fn contains(&self, id: DecisionId) -> bool {
        (id.0 as usize) < self.kinds.len()
    }

    /// All kinds, in the order of their numbers.
    pub fn into_kinds(self) -> Vec<DecisionKind> {
        self.kinds
    }
}

/// How often decisions were taken: by subject, then reason.
pub type DecisionCounts = BTreeMap<String, BTreeMap<String, u64>>;

/// Declares the decisions of a module: a structure of [`DecisionId`]s with a function that registers their kinds in the order of
/// declaration. `Default` is unregistered.
///
/// ```
/// warmcore_trace::decisions! {
///     /// What a policy tells.
///     pub struct Told {
///         pushed: "task pushed", "a CPU is idle", Cpu;
///         refused: "push refused", "no CPU is idle", Cpu;
///     }
/// }
/// let mut table = warmcore_trace::DecisionTable::default();
/// let told = Told::register(&mut table);
/// assert_eq!(table.into_kinds()[told.refused.0 as usize].name(), "push refused: no CPU is idle");
/// ```
#[macro_export]
macro_rules! decisions {
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident { $($field:ident: $subject:literal, $reason:literal, $value:ident;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $name {
            $(#[doc = concat!($subject, ": ", $reason, ".")] pub $field: $crate::DecisionId,)*
        }

        impl $name {
            /// Puts the kinds into a run's table.
            $vis fn register(table: &mut $crate::DecisionTable) -> Self {
                $(
                    let $field = table.register($crate::DecisionKind::new(
                        $subject,
                        $reason,
                        $crate::DecisionValue::$value,
                    ));
                )*
                Self { $($field),* }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::decisions! {
        /// Of one module.
        struct First {
            grew: "scope expanded", "the demand does not fit", LlcCount;
        }
    }

    crate::decisions! {
        /// Of another.
        struct Second {
            moved: "pages moved", "to the node whose CPUs touch them", PageCount;
            refused: "move refused", "no room", Node;
        }
    }

    #[test]
    fn modules_registered_one_after_the_other_share_a_table() {
        let mut table = DecisionTable::default();
        let (first, second) = (First::register(&mut table), Second::register(&mut table));
        assert_eq!([first.grew, second.moved, second.refused].map(|id| id.0), [0, 1, 2]);
        assert!(table.contains(second.refused) && !table.contains(DecisionId(3)));
        assert!(!table.contains(First::default().grew), "before it is registered");
        let kinds = table.into_kinds();
        assert_eq!(
            kinds[1],
            DecisionKind::new("pages moved", "to the node whose CPUs touch them", DecisionValue::PageCount)
        );
    }

    #[test]
    fn a_kind_survives_its_text() {
        let kind = DecisionKind::new("scope: expanded", "a colon: in both", DecisionValue::LlcCount);
        let text = serde_json::to_string(&kind).unwrap();
        assert!(text.contains("llc_count"), "{text}");
        assert_eq!(serde_json::from_str::<DecisionKind>(&text).unwrap(), kind);
    }
}
