//! Sets of CPUs: a bit per [`CpuId`], printed and parsed as the kernel's CPU lists (`0-3,8,10-11`).
//!
//! Equality and hashing look at the members alone, never at the capacity of the bit array. Members are dense
//! ids, so a set belongs to one machine; sets of operating system numbers are plain ordered sets in the readers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use fixedbitset::{Block, FixedBitSet};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::CpuId;
use crate::cpu_list::{CpuListError, format_cpu_list, parse_cpu_list};

/// Blocks of the bit array that make 64 bits.
const BLOCKS_PER_WORD: usize = (u64::BITS / Block::BITS) as usize;

/// A set of CPUs.
///
/// ```
/// use warmcore_topology::{CpuId, CpuSet};
/// let set = CpuSet::parse_list("0-3,8").unwrap();
/// assert!(set.contains(CpuId(8)));
/// assert_eq!(set.to_string(), "0-3,8");
/// ```
#[derive(Clone, Default)]
pub struct CpuSet {
    bits: FixedBitSet,
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { bits: FixedBitSet::new() }
    }

    /// CPUs `0..n`.
    pub fn with_all(n: usize) -> Self {
        let mut bits = FixedBitSet::with_capacity(n);
        bits.insert_range(..);
        Self { bits }
    }

    /// An empty set that can hold CPUs `0..n` without growing.
    pub fn with_capacity(n: usize) -> Self {
        Self { bits: FixedBitSet::with_capacity(n) }
    }

    /// Adds a CPU. Returns whether it was absent before.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let absent = !self.bits.contains(cpu.index());
        self.bits.grow_and_insert(cpu.index());
        absent
    }

    /// Removes a CPU. Returns whether it was present before.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let present = self.bits.contains(cpu.index());
        if present {
            self.bits.remove(cpu.index());
        }
        present
    }

    /// Removes every CPU and keeps the memory.
    pub fn clear(&mut self) {
        self.bits.clear();
    }

    /// Whether `cpu` is a member.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.bits.contains(cpu.index())
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.bits.count_ones(..)
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.bits.is_clear()
    }

    /// The lowest member.
    pub fn first(&self) -> Option<CpuId> {
        self.bits.minimum().map(CpuId::from_index)
    }

    /// The highest member.
    pub fn last(&self) -> Option<CpuId> {
        self.bits.maximum().map(CpuId::from_index)
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CpuId> + '_ {
        self.bits.ones().map(CpuId::from_index)
    }

    /// The lowest member that is at least `start`.
    pub fn next_from(&self, start: CpuId) -> Option<CpuId> {
        const BITS: usize = Block::BITS as usize;
        let (first_block, below) = (start.index() / BITS, start.index() % BITS);
        // Whole blocks below `start` are skipped, so the cost does not depend on them.
        self.bits.as_slice().iter().enumerate().skip(first_block).find_map(|(position, &block)| {
            let rest = if position == first_block { block & (Block::MAX << below) } else { block };
            (rest != 0).then(|| CpuId::from_index(position * BITS + rest.trailing_zeros() as usize))
        })
    }

    /// Whether the sets share a member.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        !self.bits.is_disjoint(&other.bits)
    }

    /// Whether every member of this set is in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.bits.is_subset(&other.bits)
    }

    /// Members of both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        let mut result = self.clone();
        result.intersect_with(other);
        result
    }

    /// The number of CPUs in both sets.
    pub fn intersection_len(&self, other: &CpuSet) -> usize {
        self.bits.intersection_count(&other.bits)
    }

    /// Adds all members of `other`.
    pub fn union_with(&mut self, other: &CpuSet) {
        self.bits.union_with(&other.bits);
    }

    /// Keeps the members that are also in `other`.
    pub(crate) fn intersect_with(&mut self, other: &CpuSet) {
        self.bits.intersect_with(&other.bits);
    }

    /// Members of this set that are not in `other`.
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        let mut result = self.clone();
        result.bits.difference_with(&other.bits);
        result
    }

    /// How many [words](CpuSet::word) can have members.
    #[inline]
    pub fn word_count(&self) -> usize {
        self.bits.len().div_ceil(64)
    }

    /// Members `64 * index` to `64 * index + 63` as bits, the lowest in bit 0.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        let blocks = self.bits.as_slice();
        let block = |part: usize| blocks.get(index * BLOCKS_PER_WORD + part).map_or(0, |&block| block as u64);
        (0..BLOCKS_PER_WORD).fold(0, |word, part| word | block(part) << (part * Block::BITS as usize))
    }

    /// Gives the set the members that words as those of [`CpuSet::word`] have, as far as it can hold them without growing.
    #[inline]
    pub fn assign_words(&mut self, word: impl Fn(usize) -> u64) {
        let capacity = self.bits.len();
        for (index, blocks) in self.bits.as_mut_slice().chunks_mut(BLOCKS_PER_WORD).enumerate() {
            let room = capacity - 64 * index;
            let mut bits = if room < 64 { word(index) & !(u64::MAX << room) } else { word(index) };
            for block in blocks {
                *block = bits as Block;
                bits = bits.checked_shr(Block::BITS).unwrap_or(0);
            }
        }
    }

    /// Reads a kernel CPU list: numbers and ranges separated by commas, in any order; blank text is the empty set.
    ///
    /// # Errors
    /// Text that is not such a list, ranges that run backwards, and numbers beyond
    /// [`MAX_CPU_NUMBER`](crate::MAX_CPU_NUMBER).
    pub fn parse_list(text: &str) -> Result<CpuSet, CpuListError> {
        Ok(parse_cpu_list(text)?.into_iter().map(CpuId).collect())
    }

    /// The blocks up to the last one with a member: two equal sets give equal slices.
    fn used_blocks(&self) -> &[Block] {
        let blocks = self.bits.as_slice();
        let used = blocks.iter().rposition(|&block| block != 0).map_or(0, |last| last + 1);
        &blocks[..used]
    }
}

impl PartialEq for CpuSet {
    fn eq(&self, other: &Self) -> bool {
        self.used_blocks() == other.used_blocks()
    }
}

impl Eq for CpuSet {}

impl Hash for CpuSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.used_blocks().hash(state);
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(iter: I) -> Self {
        let mut set = CpuSet::new();
        set.extend(iter);
        set
    }
}

impl Extend<CpuId> for CpuSet {
    fn extend<I: IntoIterator<Item = CpuId>>(&mut self, iter: I) {
        for cpu in iter {
            self.insert(cpu);
        }
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_cpu_list(self.iter().map(|cpu| cpu.0)))
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse_list(text)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        CpuSet::parse_list(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::DefaultHasher;

    fn hash_of(set: &CpuSet) -> u64 {
        let mut hasher = DefaultHasher::new();
        set.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn equality_and_hash_ignore_the_capacity() {
        let mut grown = CpuSet::with_all(3000);
        for cpu in 2..3000 {
            grown.remove(CpuId(cpu));
        }
        let small = CpuSet::with_all(2);
        assert_eq!(grown, small);
        assert_eq!(hash_of(&grown), hash_of(&small));
    }

    #[test]
    fn words_have_the_members_as_bits_and_give_them_back_as_far_as_there_is_room() {
        let set = CpuSet::parse_list("1,63-64,70").unwrap();
        assert_eq!([0, 1, 2].map(|index| set.word(index)), [1 << 63 | 1 << 1, 1 | 1 << 6, 0]);
        let mut copy = CpuSet::with_capacity(70);
        copy.insert(CpuId(5));
        copy.assign_words(|index| set.word(index));
        assert_eq!(copy.to_string(), "1,63-64", "what was there is gone, and 70 has no room");
    }

    #[test]
    fn serde_uses_the_kernel_list() {
        #[derive(Serialize, Deserialize)]
        struct CpuRow {
            cpus: CpuSet,
        }
        let text = toml::to_string(&CpuRow { cpus: CpuSet::parse_list("3,0-1").unwrap() }).unwrap();
        assert_eq!(text.trim(), "cpus = \"0-1,3\"");
        assert_eq!(toml::from_str::<CpuRow>(&text).unwrap().cpus.len(), 3);
        assert!(toml::from_str::<CpuRow>("cpus = \"1-\"").is_err());
    }
}
