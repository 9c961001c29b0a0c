//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), where numbers by chance are drawn or a number is to be spread over all bits.

/// What the state grows by from one number to the next.
pub const SPLIT_MIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number of a state: every bit of it depends on every bit of the state.
#[inline(always)]
pub const fn split_mix(state: u64) -> u64 {
    let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
