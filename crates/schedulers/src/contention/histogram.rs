//! Frequencies of set indexes, with percentiles in the logarithm of the number of sets (a Fenwick tree).

/// Counts by set index.
#[derive(Clone, Debug)]
pub struct SetHistogram {
    counts: Vec<u32>,
    /// Fenwick tree over `counts`, from 1.
    tree: Vec<u64>,
    total: u64,
    /// Highest power of two that is no more than the number of sets.
    highest: usize,
    /// Nodes of the tree that were looked at.
    steps: u64,
}

impl SetHistogram {
    /// An empty histogram over set indexes below `sets`, which is 1 at least.
    #[must_use]
    pub fn new(sets: usize) -> Self {
        let highest = 1 << sets.max(1).ilog2();
        Self { counts: vec![0; sets], tree: vec![0; sets + 1], total: 0, highest, steps: 0 }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Entries of all sets.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Nodes looked at so far: what its use costs.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Adds an entry for each index.
    pub fn add(&mut self, indexes: &[u32]) {
        for &index in indexes {
            self.counts[index as usize] += 1;
            self.total += 1;
            self.change(index, 1);
        }
    }

    /// Takes an entry away for each index, as far as there are any.
    pub fn take(&mut self, indexes: &[u32]) {
        for &index in indexes {
            let count = &mut self.counts[index as usize];
            if *count > 0 {
                *count -= 1;
                self.total -= 1;
                self.change(index, u64::MAX);
            }
        }
    }

    /// Adds to a count in the tree, modulo 2^64.
    fn change(&mut self, index: u32, by: u64) {
        let mut node = index as usize + 1;
        while node < self.tree.len() {
            self.tree[node] = self.tree[node].wrapping_add(by);
            self.steps += 1;
            node += node & node.wrapping_neg();
        }
    }

    /// The smallest index up to which there are at least `percent` of the entries, one at least; 0 if there are none.
    pub fn percentile(&mut self, percent: f64) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let wanted = ((percent / 100.0 * self.total as f64).ceil() as u64).clamp(1, self.total);
        let (mut node, mut step, mut below) = (0, self.highest, 0);
        while step > 0 {
            self.steps += 1;
            let next = node + step;
            if next < self.tree.len() && below + self.tree[next] < wanted {
                node = next;
                below += self.tree[next];
            }
            step >>= 1;
        }
        node as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percentiles(indexes: &[u32]) -> [u32; 3] {
        let mut histogram = SetHistogram::new(64);
        histogram.add(indexes);
        [25.0, 50.0, 75.0].map(|percent| histogram.percentile(percent))
    }

    /// `docs/spec/cdf-dio.md` section 9, item 1.
    #[test]
    fn cdf_dio_9_1_a_percentile_is_the_first_index_that_reaches_it() {
        assert_eq!(percentiles(&[0, 10, 20, 30]), [0, 10, 20]);
        assert_eq!(percentiles(&[7]), [7, 7, 7]);
        assert_eq!(percentiles(&[]), [0, 0, 0]);
    }

    #[test]
    fn percentiles_are_those_of_sorted_entries() {
        let mut state = 1_u64;
        for sets in [1_usize, 2, 3, 63, 64, 1000] {
            let mut histogram = SetHistogram::new(sets);
            let mut entries: Vec<u32> = Vec::new();
            for round in 0..200 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let index = ((state >> 33) % sets as u64) as u32;
                if round % 3 == 2 {
                    histogram.take(&[index]);
                    if let Some(at) = entries.iter().position(|entry| *entry == index) {
                        entries.remove(at);
                    }
                } else {
                    histogram.add(&[index]);
                    entries.push(index);
                }
                entries.sort_unstable();
                for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
                    let at = ((percent / 100.0 * entries.len() as f64).ceil() as usize).max(1) - 1;
                    let wanted = entries.get(at).copied().unwrap_or(0);
                    assert_eq!(histogram.percentile(percent), wanted, "{sets} sets, {percent} %");
                }
            }
        }
    }

    #[test]
    fn what_is_not_there_cannot_be_taken_away() {
        let mut histogram = SetHistogram::new(8);
        histogram.add(&[3]);
        histogram.take(&[3, 3, 4]);
        assert!(histogram.is_empty());
        histogram.add(&[5]);
        assert_eq!((histogram.percentile(50.0), histogram.total()), (5, 1));
    }
}
