//! How the groups of a process change from one recording of it to the next.
//!
//! A group keeps its number: each group of a new recording takes the number of the one with which it has the most threads in common, the
//! largest overlap first. A short recording has no evidence of a thread that did little, so such a thread stays where it was, until
//! [`QUIET`] recordings in a row have none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use warmcore_statistics::adjusted_rand_index;

use crate::groups::Groups;

/// Recordings in a row without evidence of a thread, after which it is of no group.
pub const QUIET: u32 = 3;

/// What became of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// It is of a group and was of none.
    Joined {
        /// The thread.
        thread: i32,
        /// Number of the group.
        group: u32,
    },
    /// It is of another group.
    Moved {
        /// The thread.
        thread: i32,
        /// Number of the group that it was of.
        from: u32,
        /// Number of the group that it is of.
        to: u32,
    },
    /// It is of no group any more.
    Left {
        /// The thread.
        thread: i32,
        /// Number of the group that it was of.
        group: u32,
        /// It ended; otherwise there was no evidence of it for too long.
        ended: bool,
    },
}

/// What a recording changed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Update {
    /// Numbers of groups that there were none of.
    pub appeared: Vec<u32>,
    /// What became of threads.
    pub changes: Vec<Change>,
    /// Numbers of groups without a thread left.
    pub gone: Vec<u32>,
    /// How far the groups of this recording are those before it (adjusted Rand index; 1 if they are equal), over the threads that are of
    /// groups in both; `None` if there are none.
    pub agreement: Option<f64>,
}

/// Groups over several recordings.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// The number of each thread's group.
    members: BTreeMap<i32, u32>,
    /// Recordings in a row without evidence of it.
    quiet: BTreeMap<i32, u32>,
    /// The highest number that a group has had.
    highest: u32,
}

impl Followed {
    /// Threads of each group by its number, from 1 on.
    pub fn groups(&self) -> BTreeMap<u32, Vec<i32>> {
        let mut groups: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
        self.members.iter().for_each(|(thread, group)| groups.entry(*group).or_default().push(*thread));
        groups
    }

    /// Takes the groups of the next recording; `is_alive` says of a thread whether it is there still.
    pub fn update(&mut self, found: &Groups, is_alive: impl Fn(i32) -> bool) -> Update {
        let before: BTreeSet<u32> = self.members.values().copied().collect();
        let numbers = self.numbers(found);
        let now = || {
            let of = |(group, number)| move |thread: &i32| (*thread, number, group);
            found
                .groups
                .iter()
                .zip(&numbers)
                .enumerate()
                .flat_map(move |(at, (group, number))| group.threads.iter().map(of((at as u32, *number))))
        };
        let both: Vec<(u32, u32)> =
            now().filter_map(|(thread, _, group)| Some((*self.members.get(&thread)?, group))).collect();
        let (old, new): (Vec<u32>, Vec<u32>) = both.into_iter().unzip();
        let agreement = (!old.is_empty()).then(|| adjusted_rand_index(&old, &new));

        let mut changes = Vec::new();
        let mut heard = BTreeSet::new();
        for (thread, group, _) in now() {
            heard.insert(thread);
            match self.members.insert(thread, group) {
                None => changes.push(Change::Joined { thread, group }),
                Some(from) if from != group => changes.push(Change::Moved { thread, from, to: group }),
                Some(_) => {}
            }
        }
        self.quiet.retain(|thread, _| !heard.contains(thread));
        let silent: Vec<(i32, u32)> = self
            .members
            .iter()
            .filter(|(thread, _)| !heard.contains(thread))
            .map(|(thread, group)| (*thread, *group))
            .collect();
        for (thread, group) in silent {
            let times = self.quiet.entry(thread).or_default();
            *times += 1;
            let ended = !is_alive(thread);
            if ended || *times >= QUIET {
                self.members.remove(&thread);
                self.quiet.remove(&thread);
                changes.push(Change::Left { thread, group, ended });
            }
        }
        let after: BTreeSet<u32> = self.members.values().copied().collect();
        Update {
            appeared: after.difference(&before).copied().collect(),
            changes,
            gone: before.difference(&after).copied().collect(),
            agreement,
        }
    }

    /// The number of each group that was found.
    fn numbers(&mut self, found: &Groups) -> Vec<u32> {
        let mut overlaps: Vec<(Reverse<usize>, u32, usize)> = Vec::new();
        for (at, group) in found.groups.iter().enumerate() {
            let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
            for number in group.threads.iter().filter_map(|thread| self.members.get(thread)) {
                *counts.entry(*number).or_default() += 1;
            }
            overlaps.extend(counts.into_iter().map(|(number, count)| (Reverse(count), number, at)));
        }
        overlaps.sort_unstable();
        let mut numbers: Vec<Option<u32>> = vec![None; found.groups.len()];
        let mut taken = BTreeSet::new();
        for (_, number, at) in overlaps {
            if numbers[at].is_none() && taken.insert(number) {
                numbers[at] = Some(number);
            }
        }
        let mut new = || {
            self.highest += 1;
            self.highest
        };
        numbers.into_iter().map(|number| number.unwrap_or_else(&mut new)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::ThreadGroup;

    fn found(groups: &[&[i32]]) -> Groups {
        let group = |threads: &&[i32]| ThreadGroup {
            threads: threads.to_vec(),
            wakes_inside: 100,
            wakes_across: 0,
            inside: Default::default(),
        };
        Groups { groups: groups.iter().map(group).collect(), ..Groups::default() }
    }

    fn followed() -> Followed {
        let mut followed = Followed::default();
        let first = followed.update(&found(&[&[1, 2, 3, 4], &[5, 6]]), |_| true);
        assert_eq!((first.appeared, first.changes.len(), first.agreement), (vec![1, 2], 6, None));
        followed
    }

    #[test]
    fn equal_groups_in_another_order_are_no_change() {
        let mut followed = followed();
        let update = followed.update(&found(&[&[5, 6], &[1, 2, 3, 4]]), |_| true);
        assert_eq!(update, Update { agreement: Some(1.0), ..Update::default() });
        assert_eq!(followed.groups(), BTreeMap::from([(1, vec![1, 2, 3, 4]), (2, vec![5, 6])]));
    }

    #[test]
    fn joined_moved_left_split_and_gone_are_told_apart() {
        let mut followed = followed();
        // 1 and 2 go on as group 1, 3 and 4 become a third one, 7 joins group 2 and 6 ends.
        let update = followed.update(&found(&[&[5, 7], &[1, 2], &[3, 4]]), |thread| thread != 6);
        assert_eq!((update.appeared, update.gone), (vec![3], vec![]));
        let expected = [
            Change::Joined { thread: 7, group: 2 },
            Change::Moved { thread: 3, from: 1, to: 3 },
            Change::Moved { thread: 4, from: 1, to: 3 },
            Change::Left { thread: 6, group: 2, ended: true },
        ];
        assert_eq!(update.changes, expected);
        assert!(update.agreement.is_some_and(|agreement| agreement < 1.0));
        let update = followed.update(&found(&[&[1, 2], &[3, 4]]), |thread| thread < 5);
        assert_eq!((update.gone, update.changes.len()), (vec![2], 2));
        // A number is not given again.
        assert_eq!(followed.update(&found(&[&[8, 9]]), |_| true).appeared, [4]);
    }

    #[test]
    fn a_thread_without_evidence_stays_for_two_recordings_and_leaves_in_the_third() {
        let mut followed = followed();
        let quiet = found(&[&[1, 2, 3], &[5, 6]]);
        for _ in 1..QUIET {
            assert!(followed.update(&quiet, |_| true).changes.is_empty());
        }
        let left = [Change::Left { thread: 4, group: 1, ended: false }];
        assert_eq!(followed.update(&quiet, |_| true).changes, left);
        // Evidence in between begins the count anew.
        followed.update(&found(&[&[1, 2, 3]]), |_| true);
        followed.update(&quiet, |_| true);
        for _ in 1..QUIET {
            assert!(followed.update(&found(&[&[1, 2, 3]]), |_| true).changes.is_empty());
        }
    }
}
