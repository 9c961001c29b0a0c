//! The exact level's innermost operations in AVX-512: a set of a simulated cache is one register, and sixteen touches
//! are drawn at once.

use std::arch::x86_64::*;

use warmcore_topology::SPLIT_MIX_STEP;

use super::lanes::{Isa, Lanes, STATE};
use super::stream::{BLOCK, OUTCOMES, THRESHOLD_BITS, Tables};

/// AVX-512 with its byte, doubleword and short-vector parts.
pub enum Avx512 {}

const _: () = assert!(OUTCOMES == 16 && BLOCK.is_multiple_of(16));

// SAFETY: the intrinsics are those of AVX-512 F, BW, DQ and VL, which the caller vouches for; loads and stores of lanes and
// tables stay within their 64 aligned bytes, those of lines and outcomes within their blocks.
unsafe impl Isa for Avx512 {
    #[inline(always)]
    unsafe fn find(lanes: &Lanes, key: u32) -> u32 {
        unsafe {
            let different = _mm512_xor_si512(load(&lanes.0), _mm512_set1_epi32(key as i32));
            u32::from(_mm512_testn_epi32_mask(different, _mm512_set1_epi32(!STATE as i32)))
        }
    }

    #[inline(always)]
    unsafe fn rotate_in(lanes: &mut Lanes, way: u32, front: u32) {
        unsafe {
            let before = load(&lanes.0);
            // Lanes up to `way` take the value of the one before them, the first one takes the front.
            let moves = ((2_u32 << way) - 1) as __mmask16;
            let after = _mm512_mask_alignr_epi32::<15>(before, moves, before, _mm512_set1_epi32(front as i32));
            _mm512_store_si512(lanes.0.as_mut_ptr().cast(), after);
        }
    }

    #[inline(always)]
    unsafe fn prefetch(lanes: &Lanes) {
        // SAFETY: prefetching has no effect that could be observed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(lanes.0.as_ptr().cast()) }
    }

    #[inline(always)]
    unsafe fn draw(tables: &Tables, argument: u64, lines: &mut [u32; BLOCK], outcomes: &mut [u8; BLOCK]) {
        unsafe {
            let (firsts, sizes) = (load(&tables.firsts), load(&tables.sizes));
            let (thresholds, aliases) = (load(&tables.thresholds), load(&tables.aliases));
            let numbers = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
            let steps = _mm512_mullo_epi64(numbers, _mm512_set1_epi64(SPLIT_MIX_STEP as i64));
            for position in (0..BLOCK).step_by(16) {
                let argument = argument.wrapping_add(SPLIT_MIX_STEP.wrapping_mul(position as u64));
                let next = argument.wrapping_add(SPLIT_MIX_STEP.wrapping_mul(8));
                let one = mix(_mm512_add_epi64(steps, _mm512_set1_epi64(argument as i64)));
                let two = mix(_mm512_add_epi64(steps, _mm512_set1_epi64(next as i64)));
                let low = join(_mm512_cvtepi64_epi32(one), _mm512_cvtepi64_epi32(two));
                let high = join(
                    _mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(one)),
                    _mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(two)),
                );
                let column = _mm512_srli_epi32::<THRESHOLD_BITS>(low);
                let rest = _mm512_and_si512(low, _mm512_set1_epi32((1 << THRESHOLD_BITS) - 1));
                let keeps = _mm512_cmplt_epu32_mask(rest, _mm512_permutexvar_epi32(column, thresholds));
                let chosen = _mm512_mask_blend_epi32(keeps, _mm512_permutexvar_epi32(column, aliases), column);
                let size = _mm512_permutexvar_epi32(chosen, sizes);
                // The upper halves of the products, of even and of odd lanes.
                let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(high, size));
                let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(high), _mm512_srli_epi64::<32>(size));
                let offset = _mm512_mask_blend_epi32(0xAAAA, even, odd);
                let line = _mm512_add_epi32(_mm512_permutexvar_epi32(chosen, firsts), offset);
                _mm512_storeu_si512(lines.as_mut_ptr().add(position).cast(), line);
                _mm_storeu_si128(outcomes.as_mut_ptr().add(position).cast(), _mm512_cvtepi32_epi8(chosen));
            }
        }
    }
}

/// # Safety
/// The host has AVX-512, and the sixteen numbers are aligned to 64 bytes.
#[inline(always)]
unsafe fn load(numbers: &[u32; 16]) -> __m512i {
    // SAFETY: passed on to the caller.
    unsafe { _mm512_load_si512(numbers.as_ptr().cast()) }
}

/// # Safety
/// The host has AVX-512.
#[inline(always)]
unsafe fn join(low: __m256i, high: __m256i) -> __m512i {
    // SAFETY: passed on to the caller.
    unsafe { _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high) }
}

/// [`super::stream::mix`] of eight numbers.
///
/// # Safety
/// The host has AVX-512.
#[inline(always)]
unsafe fn mix(x: __m512i) -> __m512i {
    // SAFETY: passed on to the caller.
    unsafe {
        let x = _mm512_xor_si512(x, _mm512_srli_epi64::<30>(x));
        let x = _mm512_mullo_epi64(x, _mm512_set1_epi64(0xBF58_476D_1CE4_E5B9_u64 as i64));
        let x = _mm512_xor_si512(x, _mm512_srli_epi64::<27>(x));
        let x = _mm512_mullo_epi64(x, _mm512_set1_epi64(0x94D0_49BB_1331_11EB_u64 as i64));
        _mm512_xor_si512(x, _mm512_srli_epi64::<31>(x))
    }
}
