//! One host cache line of sixteen tags, and the two operations on it that everything else is made of: compare all
//! lanes with a line at once, and insert in front of a prefix of lanes. With AVX-512, AVX2 or in portable code; the
//! results are the same, a test compares them.
//!
//! A lane is a line's number times four plus two state bits. Source: `docs/spec/memory-model.md` section 3.2.

use super::stream::{self, BLOCK, Tables};

/// State bit: the core may write the line without asking. In the last-level cache the bit is unused.
pub(crate) const WRITABLE: u32 = 1;
/// State bit: the copy is newer than memory's.
pub(crate) const DIRTY: u32 = 2;
/// Both state bits.
pub const STATE: u32 = WRITABLE | DIRTY;
/// Bits of a lane below the line's number.
pub(crate) const STATE_BITS: u32 = 2;
/// A lane without a line.
pub const EMPTY: u32 = !0;
/// Number of lines that can be told apart; the highest number would look like [`EMPTY`].
pub(crate) const MAX_LINES: u64 = (1 << (32 - STATE_BITS)) - 1;
/// Lanes of a host line.
pub(crate) const LANES: usize = 16;

/// Sixteen lanes in one host cache line, the most recently used first where the order means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Lanes(pub [u32; LANES]);

impl Lanes {
    /// Lanes without lines.
    pub const EMPTY: Lanes = Lanes([EMPTY; LANES]);
}

/// The lane value of a line without state.
#[inline(always)]
pub const fn key(line: u32) -> u32 {
    line << STATE_BITS
}

/// The line of a lane.
#[inline(always)]
pub const fn line_of(lane: u32) -> u32 {
    lane >> STATE_BITS
}

/// An instruction set with the operations on lanes.
///
/// The functions are inlined into loops that are compiled for the instruction set (`#[target_feature]`); called from
/// elsewhere they are correct but slow.
///
/// # Safety
/// All functions may only be called on a host that has the instruction set.
pub unsafe trait Isa {
    /// Bit per lane whose line is that of `key`.
    ///
    /// # Safety
    /// See [`Isa`].
    unsafe fn find(lanes: &Lanes, key: u32) -> u32;

    /// Moves the lanes before `way` one up, which drops the lane `way`, and puts `front` first.
    ///
    /// # Safety
    /// See [`Isa`].
    unsafe fn rotate_in(lanes: &mut Lanes, way: u32, front: u32);

    /// Asks for a host line before it is used.
    ///
    /// # Safety
    /// See [`Isa`].
    unsafe fn prefetch(lanes: &Lanes);

    /// Draws a block of touches; `argument` is that of the first one's random number.
    ///
    /// # Safety
    /// See [`Isa`].
    #[inline(always)]
    unsafe fn draw(tables: &Tables, argument: u64, lines: &mut [u32; BLOCK], outcomes: &mut [u8; BLOCK]) {
        stream::draw(tables, argument, lines, outcomes);
    }
}

/// No particular instruction set.
pub enum Portable {}

// SAFETY: needs nothing.
unsafe impl Isa for Portable {
    #[inline(always)]
    unsafe fn find(lanes: &Lanes, key: u32) -> u32 {
        let mut found = 0;
        for (way, lane) in lanes.0.iter().enumerate() {
            found |= u32::from((lane ^ key) & !STATE == 0) << way;
        }
        found
    }

    #[inline(always)]
    unsafe fn rotate_in(lanes: &mut Lanes, way: u32, front: u32) {
        lanes.0.copy_within(..way as usize, 1);
        lanes.0[0] = front;
    }

    #[inline(always)]
    unsafe fn prefetch(_: &Lanes) {}
}

#[cfg(target_arch = "x86_64")]
pub use super::avx512::Avx512;
#[cfg(target_arch = "x86_64")]
pub use x86::Avx2;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Isa, Lanes, STATE};

    /// AVX2.
    pub enum Avx2 {}

    // SAFETY: the intrinsics are those of AVX2, which the caller vouches for; loads and stores stay within the 64 aligned
    // bytes of `Lanes`.
    unsafe impl Isa for Avx2 {
        #[inline(always)]
        unsafe fn find(lanes: &Lanes, key: u32) -> u32 {
            unsafe {
                let (low, high) = halves(lanes);
                let wanted = _mm256_set1_epi32(key as i32);
                let bits = _mm256_set1_epi32(!STATE as i32);
                let zero = _mm256_setzero_si256();
                let equal = |half| _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_xor_si256(half, wanted), bits), zero);
                let mask = |half| _mm256_movemask_ps(_mm256_castsi256_ps(half)) as u32;
                mask(equal(low)) | mask(equal(high)) << 8
            }
        }

        #[inline(always)]
        unsafe fn rotate_in(lanes: &mut Lanes, way: u32, front: u32) {
            unsafe {
                let (low, high) = halves(lanes);
                let up = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
                let (low_up, high_up) = (_mm256_permutevar8x32_epi32(low, up), _mm256_permutevar8x32_epi32(high, up));
                let moved_low = _mm256_blend_epi32::<1>(low_up, _mm256_set1_epi32(front as i32));
                let moved_high = _mm256_blend_epi32::<1>(high_up, low_up);
                // A lane keeps its value where its number is above `way`.
                let number = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let keep_low = _mm256_cmpgt_epi32(number, _mm256_set1_epi32(way as i32));
                let keep_high = _mm256_cmpgt_epi32(number, _mm256_set1_epi32(way as i32 - 8));
                let pointer = lanes.0.as_mut_ptr().cast::<__m256i>();
                _mm256_store_si256(pointer, _mm256_blendv_epi8(moved_low, low, keep_low));
                _mm256_store_si256(pointer.add(1), _mm256_blendv_epi8(moved_high, high, keep_high));
            }
        }

        #[inline(always)]
        unsafe fn prefetch(lanes: &Lanes) {
            // SAFETY: prefetching has no effect that could be observed.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(lanes.0.as_ptr().cast()) }
        }
    }

    #[inline(always)]
    unsafe fn halves(lanes: &Lanes) -> (__m256i, __m256i) {
        let pointer = lanes.0.as_ptr().cast::<__m256i>();
        // SAFETY: two aligned halves of the 64 bytes.
        unsafe { (_mm256_load_si256(pointer), _mm256_load_si256(pointer.add(1))) }
    }
}

/// Instruction sets that a simulation can use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum InstructionSet {
    /// No particular one.
    #[default]
    Portable,
    /// AVX2.
    Avx2,
    /// AVX-512 with its byte, doubleword and short-vector parts.
    Avx512,
}

impl InstructionSet {
    /// The best one that this host has. Results do not depend on it.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or_default()
    }

    /// All that this host has, the best one last.
    pub fn available() -> Vec<Self> {
        let mut found = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
                found.push(Self::Avx2);
                let parts = is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl");
                if is_x86_feature_detected!("avx512f") && parts {
                    found.push(Self::Avx512);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check<I: Isa>(lanes: Lanes, key: u32, way: u32, front: u32) {
        // SAFETY: the caller has looked at what the host has.
        unsafe {
            assert_eq!(I::find(&lanes, key), Portable::find(&lanes, key));
            let (mut ours, mut theirs) = (lanes, lanes);
            I::rotate_in(&mut ours, way, front);
            Portable::rotate_in(&mut theirs, way, front);
            assert_eq!(ours, theirs);
        }
    }

    proptest! {
        #[test]
        fn all_instruction_sets_do_the_same(
            lanes in prop::array::uniform16(0_u32..64), line in 0_u32..16, way in 0_u32..16, front: u32,
        ) {
            for set in InstructionSet::available() {
                match set {
                    InstructionSet::Portable => {}
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx2 => check::<Avx2>(Lanes(lanes), key(line), way, front),
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx512 => check::<Avx512>(Lanes(lanes), key(line), way, front),
                    #[cfg(not(target_arch = "x86_64"))]
                    _ => unreachable!(),
                }
            }
        }
    }

    fn check_draw<I: Isa>(tables: &Tables, argument: u64) {
        let (mut ours, mut theirs) = (([0; BLOCK], [0; BLOCK]), ([0; BLOCK], [0; BLOCK]));
        // SAFETY: the caller has looked at what the host has.
        unsafe {
            I::draw(tables, argument, &mut ours.0, &mut ours.1);
            Portable::draw(tables, argument, &mut theirs.0, &mut theirs.1);
        }
        assert_eq!(ours, theirs);
    }

    proptest! {
        #[test]
        fn all_instruction_sets_draw_the_same(
            firsts in prop::array::uniform16(0_u32..1 << 29), sizes in prop::array::uniform16(1_u32..1 << 29),
            thresholds in prop::array::uniform16(0_u32..=1 << 28), aliases in prop::array::uniform16(0_u32..16),
            argument: u64,
        ) {
            let tables = Tables { firsts, sizes, thresholds, aliases };
            for set in InstructionSet::available() {
                match set {
                    InstructionSet::Portable => {}
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx2 => check_draw::<Avx2>(&tables, argument),
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx512 => check_draw::<Avx512>(&tables, argument),
                    #[cfg(not(target_arch = "x86_64"))]
                    _ => unreachable!(),
                }
            }
        }
    }

    #[test]
    fn find_ignores_the_state_bits_and_empty_lanes() {
        let mut lanes = Lanes::EMPTY;
        lanes.0[3] = key(7) | DIRTY;
        lanes.0[5] = key(8) | STATE;
        // SAFETY: portable.
        unsafe {
            assert_eq!(Portable::find(&lanes, key(7)), 1 << 3);
            assert_eq!(Portable::find(&lanes, key(8)), 1 << 5);
            assert_eq!(Portable::find(&lanes, key(9)), 0);
        }
    }
}
