//! How many LLCs a process needs: its demand, and the scope that grows at once and shrinks slowly
//! (`docs/spec/linux-fair.md` sections 8.3 and 8.5, \[O\]; the smoothing of the utilisation \[P\] from the second RFC).

/// Demand and scope of a group of threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scope {
    /// Smoothed utilisation, 1024 per CPU.
    pub util: u64,
    /// Smoothed number of runnable threads, 1024 per thread.
    pub runnable: u64,
    /// LLCs in the scope, from the home outwards; 0 before the first scan.
    pub size: u32,
    /// Scans in a row in which it could have been smaller.
    below: u64,
}

/// When a scope shrinks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Percent of the room in a smaller scope that the demand must not exceed.
    pub below_pct: u64,
    /// Scans in a row.
    pub hold: u64,
}

/// Moves an average towards a value by a part of the difference, and at least by one.
fn approach(average: &mut u64, value: u64, part: u64) {
    if value > *average {
        *average += (value - *average).div_ceil(part);
    } else {
        *average -= (*average - value).div_ceil(part);
    }
}

impl Scope {
    /// Takes in what a scan found: utilisation by the group's threads and runnable threads. Rises by half the difference, falls by
    /// an eighth.
    pub fn observe(&mut self, util: u64, runnable: u64) {
        let part = if util > self.util { 2 } else { 8 };
        approach(&mut self.util, util, part);
        let runnable = runnable * 1024;
        let part = if runnable > self.runnable { 2 } else { 8 };
        approach(&mut self.runnable, runnable, part);
    }

    /// CPUs the group needs, 1024 each: its utilisation, and room for at least half its runnable threads while the load
    /// averages of new threads still rise.
    pub fn demand(&self, threads: u32) -> u64 {
        self.util.max(self.runnable.min(u64::from(threads) * 1024) / 2)
    }

    /// Fits the scope to a demand. `room` is what the first LLCs of the sequence have, added up; `rounded` and `less` are the
    /// sizes there are. Returns the old size.
    pub fn fit(
        &mut self,
        demand: u64,
        room: &[u64],
        patience: Patience,
        rounded: impl Fn(u32) -> u32,
        less: impl Fn(u32) -> u32,
    ) -> u32 {
        let old = self.size;
        let enough = room.iter().position(|&room| room >= demand).map_or(room.len(), |index| index + 1);
        let required = rounded(enough as u32);
        if required > self.size {
            (self.size, self.below) = (required, 0);
            return old;
        }
        if self.size <= 1 {
            self.below = 0;
            return old;
        }
        let smaller = less(self.size);
        if demand * 100 > room[smaller as usize - 1] * patience.below_pct {
            self.below = 0;
            return old;
        }
        self.below += 1;
        if self.below >= patience.hold {
            (self.size, self.below) = (smaller, 0);
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::super::sequence::Reach;
    use super::*;
    use crate::fair::topology_aware::rfc_machine;

    const PATIENCE: Patience = Patience { below_pct: 80, hold: 4 };

    /// Half of 16 CPUs in each of 24 LLCs.
    fn room() -> Vec<u64> {
        (1..=24).map(|llcs| llcs * 8 * 1024).collect()
    }

    #[test]
    fn item_47_the_scope_for_6_10_20_and_100_cpus_on_the_rfc_machine() {
        let sequences = rfc_machine();
        let expected = [(6, 1, Reach::Llc), (10, 2, Reach::Node), (20, 3, Reach::Socket), (100, 13, Reach::System)];
        for home in [0, 5, 13, 23] {
            for (cpus, size, reach) in expected {
                let mut prefix = Scope::default();
                prefix.fit(cpus * 1024, &room(), PATIENCE, |size| size, |size| size - 1);
                assert_eq!((prefix.size, sequences.reach(home, prefix.size)), (size, reach), "{cpus} CPUs from {home}");
                let mut ladder = Scope::default();
                let (rounded, less) = (|n| sequences.rounded(home, n), |n| sequences.one_step_less(home, n));
                ladder.fit(cpus * 1024, &room(), PATIENCE, rounded, less);
                let whole = match reach {
                    Reach::Llc => 1,
                    Reach::Node => 2,
                    Reach::Socket => 12,
                    Reach::System => 24,
                };
                assert_eq!(
                    (ladder.size, sequences.reach(home, ladder.size)),
                    (whole, reach),
                    "{cpus} CPUs from {home}"
                );
            }
        }
    }

    #[test]
    fn item_48_the_scope_shrinks_by_a_step_every_four_scans_and_does_not_oscillate() {
        let mut scope = Scope::default();
        let mut fit = |cpus_in_tenths: u64| {
            scope.fit(cpus_in_tenths * 1024 / 10, &room(), PATIENCE, |size| size, |size| size - 1);
            scope.size
        };
        assert_eq!(fit(200), 3);
        let sizes: Vec<u32> = (0..9).map(|_| fit(60)).collect();
        assert_eq!(sizes, [3, 3, 3, 2, 2, 2, 2, 1, 1]);
        // Around every size: a demand that swings by 10 % changes the scope at most once.
        for tenths in 10..1200 {
            let mut scope = Scope::default();
            let mut changes = 0;
            for scan in 0..200 {
                let demand = tenths * 1024 / 10 * if scan / 5 % 2 == 0 { 110 } else { 90 } / 100;
                let old = scope.fit(demand, &room(), PATIENCE, |size| size, |size| size - 1);
                changes += u32::from(old != scope.size);
            }
            assert_eq!(changes, 1, "{tenths} tenths of a CPU");
        }
    }

    #[test]
    fn demand_rises_fast_and_falls_slowly() {
        let mut scope = Scope::default();
        scope.observe(8192, 8);
        assert_eq!((scope.util, scope.demand(8)), (4096, 4096));
        scope.observe(0, 0);
        assert_eq!(scope.util, 4096 - 512);
        // Eight threads of which nothing is known yet count half, and no more than there are.
        let new = Scope { runnable: 8 * 1024, ..Scope::default() };
        assert_eq!((new.demand(8), new.demand(4)), (4096, 2048));
    }

    /// Home first, then its node, then nodes by distance; each LLC once.
    #[test]
    fn the_sequence_goes_from_the_home_outwards() {
        let sequences = rfc_machine();
        for home in 0..24 {
            let order = sequences.order(home);
            assert_eq!((order[0], sequences.node(order[1])), (home, sequences.node(home)));
            let distances: Vec<u32> = order.iter().map(|&llc| sequences.distance(home, llc)).collect();
            assert!(distances.is_sorted());
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..24).collect::<Vec<u32>>());
            assert!(order.iter().enumerate().all(|(place, &llc)| sequences.position(home, llc) == place as u32));
        }
        // Threads of neighbours with the same place in the ring begin at different LLCs of the next node.
        assert_eq!(sequences.order(0)[..6], [0, 1, 2, 3, 4, 5]);
        assert_eq!(sequences.order(3)[..6], [3, 2, 1, 0, 5, 4]);
    }
}
