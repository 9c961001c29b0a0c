//! One set-associative cache: tags and two state bits per line, no data.
//!
//! Under LRU the lanes of a set are kept in order of use, so that the last one is the victim and nothing else is
//! stored. The other rules keep lines in place and 64 bits per set. Source: `docs/spec/memory-model.md` section 3.2.

use super::lanes::{DIRTY, EMPTY, Isa, LANES, Lanes, Portable, STATE, key, line_of};
use super::stream::BLOCK;
use crate::curves::Replacement;

/// Most ways of a cache: two host lines per set.
pub const MAX_WAYS: u32 = 2 * LANES as u32;

/// How lines are spread over the sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetIndex {
    /// Independently of each other, as physical pages and sliced caches do on average. Any number of sets.
    #[default]
    Hashed,
    /// By the lowest bits of the line's number, as caches indexed by address do. A power of two of sets.
    LowBits,
}

/// What a cache is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Number of sets, at least 1.
    pub sets: u32,
    /// Lines per set, 1 to [`MAX_WAYS`].
    pub ways: u32,
    /// Replacement.
    pub replacement: Replacement,
    /// Set index.
    pub index: SetIndex,
}

/// What a touch found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touched {
    /// Whether the line was there.
    pub hit: bool,
    /// The line's lane before the touch, or on a miss the lane that had to go ([`EMPTY`] if none).
    pub lane: u32,
}

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache {
    lanes: Vec<Lanes>,
    /// Per set, for rules other than LRU: tree bits, or two bits per way.
    meta: Vec<u64>,
    shape: Shape,
    /// Host lines per set.
    blocks: usize,
    /// Tells the hashes of different levels apart.
    salt: u32,
    random: u64,
}

impl Cache {
    /// An empty cache. `salt` differs between levels, so that lines that share a set in one do not in the other.
    pub fn new(shape: Shape, salt: u32) -> Self {
        debug_assert!((1..=MAX_WAYS).contains(&shape.ways) && shape.sets > 0);
        let blocks = if shape.ways as usize > LANES { 2 } else { 1 };
        let sets = shape.sets as usize;
        let meta = if shape.replacement == Replacement::Lru { Vec::new() } else { vec![0; sets] };
        Self {
            lanes: vec![Lanes::EMPTY; sets * blocks],
            meta,
            shape,
            blocks,
            salt: salt.wrapping_mul(0x9E37_79B9),
            random: u64::from(salt) << 32 | 0x9E37_79B9,
        }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The set of a line.
    #[inline(always)]
    pub fn set_of(&self, line: u32) -> u32 {
        match self.shape.index {
            SetIndex::Hashed => hashed(line, self.salt, self.shape.sets),
            SetIndex::LowBits => line & (self.shape.sets - 1),
        }
    }

    /// The sets of a block of lines.
    #[inline(always)]
    pub(crate) fn sets_of(&self, lines: &[u32; BLOCK], sets: &mut [u32; BLOCK]) {
        // The index is looked at once, so that each loop can be done for many lines at a time.
        match self.shape.index {
            SetIndex::Hashed => {
                let (salt, count) = (self.salt, self.shape.sets);
                for (set, line) in sets.iter_mut().zip(lines) {
                    *set = hashed(*line, salt, count);
                }
            }
            SetIndex::LowBits => {
                let mask = self.shape.sets - 1;
                for (set, line) in sets.iter_mut().zip(lines) {
                    *set = line & mask;
                }
            }
        }
    }

    /// Asks for a set before it is used.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub(crate) unsafe fn prefetch<I: Isa>(&self, set: u32) {
        if let Some(lanes) = self.lanes.get(set as usize * self.blocks) {
            // SAFETY: passed on to the caller.
            unsafe { I::prefetch(lanes) }
        }
    }

    /// Uses a line: it becomes the most recently used one, `or` is added to its state; if it was not there it is put
    /// in with the state `fill`.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub unsafe fn touch_in<I: Isa>(&mut self, set: u32, line: u32, fill: u32, or: u32) -> Touched {
        if let Some((sets, last)) = self.simple_sets() {
            // SAFETY: passed on to the caller.
            return unsafe { touch_simple::<I>(sets, last, set, line, fill, or) };
        }
        self.touch_any(set, line, fill, or)
    }

    /// The sets, and the bit of the last way, if a set is one host line and LRU is the rule.
    #[inline(always)]
    pub(crate) fn simple_sets(&mut self) -> Option<(&mut [Lanes], u32)> {
        let simple = self.blocks == 1 && self.shape.replacement == Replacement::Lru;
        simple.then(|| (&mut self.lanes[..], 1 << (self.shape.ways - 1)))
    }

    /// [`Cache::touch_in`] with portable code.
    pub fn touch(&mut self, line: u32, fill: u32, or: u32) -> Touched {
        // SAFETY: portable code needs nothing.
        unsafe { self.touch_in::<Portable>(self.set_of(line), line, fill, or) }
    }

    /// Sets of two host lines, and rules other than LRU.
    #[inline(never)]
    fn touch_any(&mut self, set: u32, line: u32, fill: u32, or: u32) -> Touched {
        let found = self.find(set, line);
        let way = match found {
            Some(way) => way,
            None if self.shape.replacement == Replacement::Lru => self.shape.ways - 1,
            None => self.way_to_fill(set),
        };
        let lane = *self.lane_mut(set, way);
        let new = if found.is_some() { lane | or } else { key(line) | fill };
        if self.shape.replacement == Replacement::Lru {
            self.rotate_in(set, way, new);
        } else {
            *self.lane_mut(set, way) = new;
            self.note_use(set, way, found.is_some());
        }
        Touched { hit: found.is_some(), lane }
    }

    /// The state bits of a line, if it is there. Changes nothing.
    pub fn state(&self, line: u32) -> Option<u32> {
        let set = self.set_of(line);
        let way = self.find(set, line)?;
        Some(self.lanes[self.block(set, way)].0[way as usize % LANES] & STATE)
    }

    /// Whether a line is there. Changes nothing.
    pub fn contains(&self, line: u32) -> bool {
        self.find(self.set_of(line), line).is_some()
    }

    /// Replaces the state bits of a line that is there by `(state & and) | or`; says what they were. Not a use.
    pub(crate) fn change_state(&mut self, line: u32, and: u32, or: u32) -> Option<u32> {
        let set = self.set_of(line);
        let way = self.find(set, line)?;
        let lane = self.lane_mut(set, way);
        let before = *lane & STATE;
        *lane = (*lane & (!STATE | and)) | or;
        Some(before)
    }

    /// Uses a line if it is there, and says what its state bits are.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub unsafe fn promote_in<I: Isa>(&mut self, set: u32, line: u32) -> Option<u32> {
        // SAFETY: passed on to the caller.
        let way = unsafe { self.find_in::<I>(set, line) }?;
        let lane = *self.lane_mut(set, way);
        if self.shape.replacement == Replacement::Lru {
            self.rotate_in(set, way, lane);
        } else {
            self.note_use(set, way, true);
        }
        Some(lane & STATE)
    }

    /// [`Cache::promote_in`] with portable code.
    pub(crate) fn promote(&mut self, line: u32) -> Option<u32> {
        // SAFETY: portable code needs nothing.
        unsafe { self.promote_in::<Portable>(self.set_of(line), line) }
    }

    /// [`Cache::remove_in`] with portable code.
    pub fn remove(&mut self, line: u32) -> Option<u32> {
        // SAFETY: portable code needs nothing.
        unsafe { self.remove_in::<Portable>(self.set_of(line), line) }
    }

    /// Takes a line out and says what its state bits were.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub unsafe fn remove_in<I: Isa>(&mut self, set: u32, line: u32) -> Option<u32> {
        // SAFETY: passed on to the caller.
        let way = unsafe { self.find_in::<I>(set, line) }?;
        let state = *self.lane_mut(set, way) & STATE;
        if self.shape.replacement == Replacement::Lru {
            // Later lines move up, so that empty lanes are last.
            for later in way..self.shape.ways - 1 {
                *self.lane_mut(set, later) = *self.lane_mut(set, later + 1);
            }
            *self.lane_mut(set, self.shape.ways - 1) = EMPTY;
        } else {
            *self.lane_mut(set, way) = EMPTY;
        }
        Some(state)
    }

    /// All lines with whether they are dirty, in no useful order.
    pub fn lines(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        let lanes = self.lanes.iter().flat_map(|lanes| lanes.0);
        lanes.filter(|lane| *lane != EMPTY).map(|lane| (line_of(lane), lane & DIRTY != 0))
    }

    fn block(&self, set: u32, way: u32) -> usize {
        set as usize * self.blocks + way as usize / LANES
    }

    fn lane_mut(&mut self, set: u32, way: u32) -> &mut u32 {
        let block = self.block(set, way);
        &mut self.lanes[block].0[way as usize % LANES]
    }

    fn find(&self, set: u32, line: u32) -> Option<u32> {
        // SAFETY: portable code needs nothing.
        unsafe { self.find_in::<Portable>(set, line) }
    }

    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    unsafe fn find_in<I: Isa>(&self, set: u32, line: u32) -> Option<u32> {
        let first = set as usize * self.blocks;
        // SAFETY: passed on to the caller.
        let mut found = unsafe { I::find(&self.lanes[first], key(line)) };
        if self.blocks == 2 {
            // SAFETY: passed on to the caller.
            found |= unsafe { I::find(&self.lanes[first + 1], key(line)) } << LANES;
        }
        (found != 0).then(|| found.trailing_zeros())
    }

    fn rotate_in(&mut self, set: u32, way: u32, front: u32) {
        let first = set as usize * self.blocks;
        let last = LANES as u32 - 1;
        // SAFETY: portable code needs nothing.
        unsafe {
            if way <= last {
                Portable::rotate_in(&mut self.lanes[first], way, front);
            } else {
                let carried = self.lanes[first].0[last as usize];
                Portable::rotate_in(&mut self.lanes[first], last, front);
                Portable::rotate_in(&mut self.lanes[first + 1], way - LANES as u32, carried);
            }
        }
    }

    /// The way of a new line under rules other than LRU: an empty one, or the victim's.
    fn way_to_fill(&mut self, set: u32) -> u32 {
        let ways = self.shape.ways;
        if let Some(empty) = (0..ways).find(|way| *self.lane_mut(set, *way) == EMPTY) {
            return empty;
        }
        match self.shape.replacement {
            Replacement::TreePlru => plru_victim(self.meta[set as usize], ways),
            Replacement::Srrip => srrip_victim(&mut self.meta[set as usize], ways),
            Replacement::Random | Replacement::Lru => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                ((u64::from(self.random as u32) * u64::from(ways)) >> 32) as u32
            }
        }
    }

    fn note_use(&mut self, set: u32, way: u32, hit: bool) {
        let meta = &mut self.meta[set as usize];
        match self.shape.replacement {
            Replacement::TreePlru => plru_use(meta, way, self.shape.ways),
            Replacement::Srrip => {
                let prediction = if hit { SRRIP_NEAR } else { SRRIP_LONG };
                *meta = *meta & !(SRRIP_DISTANT << (2 * way)) | prediction << (2 * way);
            }
            Replacement::Random | Replacement::Lru => {}
        }
    }
}

/// [`Cache::touch_in`] where a set is one host line and LRU is the rule.
///
/// # Safety
/// The host has the instruction set.
#[inline(always)]
pub(crate) unsafe fn touch_simple<I: Isa>(
    sets: &mut [Lanes],
    last: u32,
    set: u32,
    line: u32,
    fill: u32,
    or: u32,
) -> Touched {
    let lanes = &mut sets[set as usize];
    // SAFETY: passed on to the caller.
    let found = unsafe { I::find(lanes, key(line)) };
    // On a miss the last way's line makes room.
    let way = (found | last).trailing_zeros();
    let lane = lanes.0[way as usize & (LANES - 1)];
    let hit = found != 0;
    let front = if hit { lane | or } else { key(line) | fill };
    // SAFETY: passed on to the caller.
    unsafe { I::rotate_in(lanes, way, front) };
    Touched { hit, lane }
}

/// A round and a half of an integer hash; the multiplication takes the highest bits, which are mixed best.
#[inline(always)]
fn hashed(line: u32, salt: u32, sets: u32) -> u32 {
    let mut hash = (line ^ salt).wrapping_mul(0x7FEB_352D);
    hash ^= hash >> 15;
    hash = hash.wrapping_mul(0x846C_A68B);
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x9E37_79B1);
    ((u64::from(hash) * u64::from(sets)) >> 32) as u32
}

/// Re-reference predictions of SRRIP with two bits: at once, ...
const SRRIP_NEAR: u64 = 0;
/// ... after a long time (new lines), ...
const SRRIP_LONG: u64 = 2;
/// ... or hardly ever (victims); also the mask of a prediction.
const SRRIP_DISTANT: u64 = 3;

/// The lowest way whose line is predicted to be used hardly ever; all predictions age until there is one.
fn srrip_victim(meta: &mut u64, ways: u32) -> u32 {
    loop {
        if let Some(way) = (0..ways).find(|way| *meta >> (2 * way) & SRRIP_DISTANT == SRRIP_DISTANT) {
            return way;
        }
        // No field is 3, so none carries into the next.
        *meta += (0..ways).fold(0, |ones, way| ones | 1 << (2 * way));
    }
}

/// Levels of the tree over the next power of two of ways.
fn plru_levels(ways: u32) -> u32 {
    ways.next_power_of_two().trailing_zeros()
}

/// Follows the bits from the root; nodes are numbered as in a heap. Ways beyond the last are never chosen.
fn plru_victim(bits: u64, ways: u32) -> u32 {
    let (mut node, mut way) = (1_u32, 0_u32);
    for level in (0..plru_levels(ways)).rev() {
        let half = 1 << level;
        let right = bits >> node & 1 == 1 && way + half < ways;
        node = 2 * node + u32::from(right);
        way += if right { half } else { 0 };
    }
    way
}

/// Points all bits on the way to a leaf away from it.
fn plru_use(bits: &mut u64, way: u32, ways: u32) {
    let mut node = 1_u32;
    for level in (0..plru_levels(ways)).rev() {
        let right = way >> level & 1;
        *bits = *bits & !(1 << node) | u64::from(1 - right) << node;
        node = 2 * node + right;
    }
}
