//! CDF's rule: groups of CPUs whose tasks used other cache sets lately than the task at hand (`docs/spec/cdf-dio.md` sections 3.4, 3.5).

use super::{Bookkeeping, Cdf, SetHistogram, Variant};

/// Recently used sets by group, and the rule over them.
#[derive(Clone, Debug)]
pub struct Percentiles {
    cdf: Cdf,
    groups: Vec<SetHistogram>,
    /// That of the task at hand, empty in between.
    own: SetHistogram,
    /// Percentiles of the task at hand.
    own_percentiles: Vec<u32>,
    /// By group: how many percentiles differ enough.
    valid: Vec<usize>,
    /// By group: the largest tolerance at which it is good, where the tolerance adapts.
    largest: Vec<f64>,
    preferred: Vec<bool>,
}

impl Percentiles {
    /// Empty groups, for set indexes below `sets`.
    #[must_use]
    pub fn new(cdf: Cdf, groups: usize, sets: usize) -> Self {
        Self {
            groups: vec![SetHistogram::new(sets); groups],
            own: SetHistogram::new(sets),
            own_percentiles: Vec::with_capacity(cdf.percentiles.len()),
            valid: vec![0; groups],
            largest: vec![0.0; groups],
            preferred: vec![true; groups],
            cdf,
        }
    }

    /// A task with these recent sets joins a group.
    pub fn join(&mut self, group: usize, window: &[u32]) {
        self.groups[group].add(window);
    }

    /// It leaves, having joined with one window and having another now.
    pub fn leave(&mut self, group: usize, joined: &[u32], now: &[u32]) {
        self.groups[group].take(match self.cdf.bookkeeping {
            Bookkeeping::Exact => joined,
            Bookkeeping::Coded => now,
        });
    }

    /// Nodes of histograms looked at so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.groups.iter().map(SetHistogram::steps).sum::<u64>() + self.own.steps()
    }

    /// Entries of all groups.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        self.groups.iter().map(SetHistogram::total).sum()
    }

    /// By group, whether it is among those of which a task with these recent sets joins the one with the fewest tasks. `some_empty`: a
    /// group has no task at all.
    pub fn preferred(&mut self, window: &[u32], some_empty: bool) -> &[bool] {
        let Self { cdf, groups, own, own_percentiles, valid, largest, preferred } = self;
        own.add(window);
        own_percentiles.clear();
        own_percentiles.extend(cdf.percentiles.iter().map(|percent| own.percentile(*percent)));
        own.take(window);
        if cdf.adapts {
            for (largest, histogram) in largest.iter_mut().zip(groups) {
                *largest = largest_tolerance(cdf, own_percentiles, histogram);
            }
            let most = largest.iter().copied().fold(0.0, f64::max);
            let is_in = |of: f64| some_empty || of >= most;
            preferred.iter_mut().zip(largest).for_each(|(preferred, of)| *preferred = is_in(*of));
            return preferred;
        }
        for (valid, histogram) in valid.iter_mut().zip(groups) {
            *valid = if histogram.is_empty() && cdf.variant == Variant::Coded {
                cdf.percentiles.len()
            } else {
                let theirs = cdf.percentiles.iter().map(|percent| histogram.percentile(*percent));
                own_percentiles.iter().zip(theirs).filter(|(task, group)| is_valid(cdf, **task, *group)).count()
            };
        }
        let needed = match cdf.variant {
            Variant::Coded => valid.iter().max().copied().unwrap_or(0),
            Variant::Published if some_empty => 0,
            Variant::Published => {
                let half = cdf.percentiles.len().div_ceil(2);
                if valid.iter().any(|valid| *valid >= half) { half } else { 0 }
            }
        };
        preferred.iter_mut().zip(valid).for_each(|(preferred, valid)| *preferred = *valid >= needed);
        preferred
    }
}

/// The largest tolerance, of 1 at most, at which half of a group's percentiles are at least so far from a task's.
fn largest_tolerance(cdf: &Cdf, own: &[u32], group: &mut SetHistogram) -> f64 {
    let mut apart: Vec<f64> = own
        .iter()
        .zip(&cdf.percentiles)
        .map(|(task, percent)| {
            let theirs = group.percentile(*percent);
            let by = f64::from(task.abs_diff(theirs));
            // Of nothing any difference is all.
            if by < f64::from(theirs) { by / f64::from(theirs) } else { f64::from(u8::from(by > 0.0)) }
        })
        .collect();
    apart.sort_unstable_by(|a, b| b.total_cmp(a));
    apart.get(cdf.percentiles.len().div_ceil(2) - 1).copied().unwrap_or(0.0)
}

/// Whether a task's percentile is far enough from the group's.
fn is_valid(cdf: &Cdf, task: u32, group: u32) -> bool {
    let least = match cdf.variant {
        Variant::Published => group,
        Variant::Coded => group.max(1),
    };
    f64::from(task.abs_diff(group)) > cdf.tolerance * f64::from(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/spec/cdf-dio.md` section 9, item 2.
    #[test]
    fn cdf_dio_9_2_a_percentile_is_valid_if_it_differs_by_more_than_the_tolerance() {
        let cdf = |variant, tolerance| Cdf::new(variant, tolerance);
        assert!(is_valid(&cdf(Variant::Coded, 0.3), 60, 100));
        assert!(!is_valid(&cdf(Variant::Coded, 0.4), 60, 100));
        assert!(is_valid(&cdf(Variant::Coded, 0.9), 1, 0));
        assert!(is_valid(&cdf(Variant::Published, 0.9), 1, 0));
        assert!(!is_valid(&cdf(Variant::Coded, 1.0), 1, 0) && is_valid(&cdf(Variant::Published, 1.0), 1, 0));
    }

    #[test]
    fn groups_that_use_the_same_sets_are_not_preferred_while_another_differs() {
        for variant in [Variant::Published, Variant::Coded] {
            let mut rule = Percentiles::new(Cdf::new(variant, 0.3), 3, 256);
            rule.join(0, &[10, 11, 12, 13]);
            rule.join(1, &[200, 201, 202, 203]);
            rule.join(2, &[100, 101, 102, 103]);
            assert_eq!(rule.preferred(&[99, 100, 104, 105], false), [true, true, false], "{variant:?}");
            rule.leave(2, &[100, 101, 102, 103], &[100, 101, 102, 103]);
            rule.join(2, &[12, 12, 13, 13]);
            assert_eq!(rule.preferred(&[11, 11, 12, 12], false), [false, true, false], "{variant:?}");
        }
    }

    /// By hand: 60 is 0.4 of 100 away from it, 0.2 of 50 from 50, and more than all of 20 and of 30.
    #[test]
    fn a_tolerance_that_adapts_prefers_the_group_that_is_good_for_the_largest() {
        let preferred = |groups: &[[u32; 3]], task: &[u32], some_empty: bool| {
            let mut rule = Percentiles::new(Cdf::adaptive(), groups.len(), 256);
            groups.iter().enumerate().for_each(|(group, sets)| rule.join(group, sets));
            rule.preferred(task, some_empty).to_vec()
        };
        let task = [60, 60, 60];
        assert_eq!(preferred(&[[100; 3], [50; 3]], &task, false), [true, false]);
        assert_eq!(preferred(&[[100; 3], [20; 3], [30; 3]], &task, false), [false, true, true]);
        assert_eq!(preferred(&[[60; 3], [60; 3]], &task, false), [true, true], "none differs");
        assert_eq!(preferred(&[[100; 3], [50; 3]], &task, true), [true, true], "an empty group has the fewest tasks");
        // The second largest of three decides: 0.4, 0.4 and 0 against 0.5, 0.1 and 0.1.
        assert_eq!(preferred(&[[60, 100, 100], [40, 66, 66]], &task, false), [true, false]);
    }

    #[test]
    fn with_none_that_differs_or_an_empty_one_all_are_preferred_as_published() {
        let mut rule = Percentiles::new(Cdf::new(Variant::Published, 0.3), 2, 256);
        rule.join(0, &[10, 20]);
        rule.join(1, &[10, 20]);
        assert_eq!(rule.preferred(&[10, 20], false), [true, true]);
        rule.join(1, &[200, 200, 200, 200, 200, 200]);
        assert_eq!(rule.preferred(&[10, 20], false), [false, true]);
        assert_eq!(rule.preferred(&[10, 20], true), [true, true]);
    }
}
