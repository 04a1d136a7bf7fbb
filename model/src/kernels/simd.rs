//! Sixteen f32 lanes, the unit every CPU kernel here is written in.
//!
//! A kernel is one `#[inline(always)]` function generic over [`Lanes`]; [`dispatch!`] compiles it
//! once for AVX-512, once for AVX2 with FMA and once portably, and picks at run time. The order of
//! additions inside a kernel never depends on how many rows or requests are computed together, so
//! a request's result does not depend on what it was batched with: decoding is reproducible to the
//! bit on one kind of machine.

#![expect(
    unsafe_code,
    reason = "SIMD intrinsics need raw loads and feature-gated calls"
)]

/// Number of f32 lanes of one [`Lanes`] value.
pub(crate) const LANES: usize = 16;

/// Arithmetic on sixteen f32 lanes.
///
/// # Safety
/// Every method may only run on a processor with the features of the implementing type, and
/// `load`/`store` need sixteen valid floats behind the pointer. [`dispatch!`] ensures the former.
pub(crate) trait Lanes: Copy {
    /// Rows of a matrix tile of [`Self::TILE_VECTORS`] accumulators each that fit into the registers
    /// beside what they are computed from.
    const TILE_ROWS: usize;
    /// Vectors of columns of a matrix tile.
    const TILE_VECTORS: usize;
    /// Vectors of sums over keys or values that fit into the registers beside what they are computed
    /// from.
    const ATTENTION_SUMS: usize;

    unsafe fn splat(value: f32) -> Self;
    /// Bring the line at `pointer`, which need not be valid, into the first-level cache.
    #[inline(always)]
    unsafe fn prefetch(_pointer: *const f32) {}
    unsafe fn load(pointer: *const f32) -> Self;
    unsafe fn store(self, pointer: *mut f32);
    /// `self * factor + addend`.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;

    /// The lanes as an array.
    #[inline(always)]
    unsafe fn to_array(self) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: `out` holds LANES floats.
        unsafe { self.store(out.as_mut_ptr()) };
        out
    }

    /// Sum of the lanes, always in the same order.
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller upholds the trait's contract.
        let mut lanes = unsafe { self.to_array() };
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }

    /// e^x per lane with a relative error below 2e-7; 0 below -87, clamped above 88.
    ///
    /// Cody–Waite reduction and a degree-6 polynomial (minimax coefficients as in Cephes `expf`).
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the caller upholds the trait's contract.
        let lanes = unsafe { self.to_array() };
        let mut out = [0.0f32; LANES];
        for i in 0..LANES {
            out[i] = exp_scalar(lanes[i]);
        }
        // SAFETY: `out` holds LANES floats.
        unsafe { Self::load(out.as_ptr()) }
    }
}

/// One lane of [`Lanes::exp`]; branch-free, so that loops over it vectorise.
#[inline(always)]
pub(crate) fn exp_scalar(x: f32) -> f32 {
    let clamped = x.clamp(-87.0, 88.0);
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    let n = clamped * std::f32::consts::LOG2_E + ROUND;
    let exponent = n.to_bits() as i32 - ROUND.to_bits() as i32;
    let n = n - ROUND;
    let r = clamped - n * 0.693_359_4;
    let r = r + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4f32;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    let scale = f32::from_bits(((exponent + 127) << 23) as u32);
    if x < -87.0 { 0.0 } else { y * scale }
}

/// Sixteen lanes the compiler vectorises as it can.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; LANES]);

impl Lanes for Portable {
    const TILE_ROWS: usize = 4;
    const TILE_VECTORS: usize = 2;
    const ATTENTION_SUMS: usize = 1;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; LANES])
    }
    #[inline(always)]
    unsafe fn load(pointer: *const f32) -> Self {
        // SAFETY: sixteen valid floats by contract; no alignment needed.
        Self(unsafe { pointer.cast::<[f32; LANES]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, pointer: *mut f32) {
        // SAFETY: room for sixteen floats by contract.
        unsafe { pointer.cast::<[f32; LANES]>().write_unaligned(self.0) };
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // Not f32::mul_add: without hardware support that is a slow library call.
        Self(std::array::from_fn(|i| {
            self.0[i] * factor.0[i] + addend.0[i]
        }))
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] * other.0[i]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    /// One 512-bit register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    // SAFETY of every block below: the caller guarantees the processor feature and the pointers.
    impl Lanes for Avx512 {
        // Twelve would fit into 32 registers by count, but the compiler then spills sums in the inner
        // loop, which halves the rate.
        const TILE_ROWS: usize = 10;
        const TILE_VECTORS: usize = 2;
        const ATTENTION_SUMS: usize = 20;

        #[inline(always)]
        unsafe fn prefetch(pointer: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast()) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            unsafe { Self(_mm512_set1_ps(value)) }
        }
        #[inline(always)]
        unsafe fn load(pointer: *const f32) -> Self {
            unsafe { Self(_mm512_loadu_ps(pointer)) }
        }
        #[inline(always)]
        unsafe fn store(self, pointer: *mut f32) {
            unsafe { _mm512_storeu_ps(pointer, self.0) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
            unsafe { Self(_mm512_fmadd_ps(self.0, factor.0, addend.0)) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { Self(_mm512_add_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { Self(_mm512_mul_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn exp(self) -> Self {
            unsafe {
                let x = self.0;
                let clamped = _mm512_max_ps(
                    _mm512_min_ps(x, _mm512_set1_ps(88.0)),
                    _mm512_set1_ps(-87.0),
                );
                let n = _mm512_roundscale_ps::<0>(_mm512_mul_ps(
                    clamped,
                    _mm512_set1_ps(std::f32::consts::LOG2_E),
                ));
                let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693_359_4), clamped);
                let r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.121_944_4e-4), r);
                let mut p = _mm512_set1_ps(1.987_569_1e-4);
                for c in [
                    1.398_199_9e-3,
                    8.333_452e-3,
                    4.166_579_6e-2,
                    1.666_666_5e-1,
                    0.5,
                ] {
                    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
                }
                let y = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
                let y = _mm512_add_ps(y, _mm512_set1_ps(1.0));
                let y = _mm512_scalef_ps(y, n);
                let keep = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, _mm512_set1_ps(-87.0));
                Self(_mm512_maskz_mov_ps(keep, y))
            }
        }
    }

    /// Two 256-bit registers.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256, __m256);

    // SAFETY of every block below: the caller guarantees the processor feature and the pointers.
    impl Lanes for Avx2 {
        // Twelve of the sixteen registers are sums, two hold weights, one the input.
        const TILE_ROWS: usize = 6;
        const TILE_VECTORS: usize = 1;
        const ATTENTION_SUMS: usize = 8;

        #[inline(always)]
        unsafe fn prefetch(pointer: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast()) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            unsafe { Self(_mm256_set1_ps(value), _mm256_set1_ps(value)) }
        }
        #[inline(always)]
        unsafe fn load(pointer: *const f32) -> Self {
            unsafe { Self(_mm256_loadu_ps(pointer), _mm256_loadu_ps(pointer.add(8))) }
        }
        #[inline(always)]
        unsafe fn store(self, pointer: *mut f32) {
            unsafe {
                _mm256_storeu_ps(pointer, self.0);
                _mm256_storeu_ps(pointer.add(8), self.1);
            }
        }
        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
            unsafe {
                Self(
                    _mm256_fmadd_ps(self.0, factor.0, addend.0),
                    _mm256_fmadd_ps(self.1, factor.1, addend.1),
                )
            }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe {
                Self(
                    _mm256_add_ps(self.0, other.0),
                    _mm256_add_ps(self.1, other.1),
                )
            }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe {
                Self(
                    _mm256_mul_ps(self.0, other.0),
                    _mm256_mul_ps(self.1, other.1),
                )
            }
        }
    }
}

/// Run `kernel::<L>(args)` with the widest lanes this processor has.
///
/// `kernel` must be an `#[inline(always)] unsafe fn kernel<L: Lanes>(args)` whose only safety
/// condition on the processor is the one [`Lanes`] states.
macro_rules! dispatch {
    ($kernel:ident ( $($arg:ident : $ty:ty),* $(,)? )) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f")]
            unsafe fn avx512($($arg: $ty),*) {
                // SAFETY: compiled with, and only called with, AVX-512.
                unsafe { $kernel::<$crate::kernels::simd::Avx512>($($arg),*) }
            }
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2($($arg: $ty),*) {
                // SAFETY: compiled with, and only called with, AVX2 and FMA.
                unsafe { $kernel::<$crate::kernels::simd::Avx2>($($arg),*) }
            }
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the feature was just detected.
                unsafe { avx512($($arg),*) }
            } else if std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("fma")
            {
                // SAFETY: the features were just detected.
                unsafe { avx2($($arg),*) }
            } else {
                // SAFETY: portable lanes need no feature.
                unsafe { $kernel::<$crate::kernels::simd::Portable>($($arg),*) }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            // SAFETY: portable lanes need no feature.
            unsafe { $kernel::<$crate::kernels::simd::Portable>($($arg),*) }
        }
    }};
}
pub(crate) use dispatch;
