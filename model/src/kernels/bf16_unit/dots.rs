//! AVX-512 BF16: `vdpbf16ps` adds two products of bfloat16 to each of sixteen f32 sums.

#[cfg(not(target_arch = "x86_64"))]
pub(super) use absent::{is_available, is_full_rate};
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{is_available, is_full_rate};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::Product;

    /// Bytes of one tile.
    const TILE: usize = 1024;
    /// Bytes of one line of a tile: a row of inputs, or a pair of k for sixteen columns.
    const LINE: usize = 64;
    /// Rows whose sums fit into the registers, two each, beside two of weights and one of inputs.
    const MAX_ROWS: usize = 11;

    /// Whether the processor has the instruction.
    pub(in super::super) fn is_available() -> bool {
        std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bf16")
    }

    /// Whether the instruction is issued as often as an f32 multiply-add: on AMD's processors.
    pub(in super::super) fn is_full_rate() -> bool {
        let vendor = __cpuid(0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        name.as_flattened() == b"AuthenticAMD"
    }

    impl Product {
        /// # Safety
        /// [`is_available`] said yes; operands and output are as large as [`super::super::Unit::run`] asks.
        pub(in super::super) unsafe fn run_on_dots(&self) {
            let passes = self.height.div_ceil(MAX_ROWS);
            for pass in 0..passes {
                let first = pass * self.height / passes;
                let rows = (pass + 1) * self.height / passes - first;
                // SAFETY: the caller's, and rows of one pass lie inside the block.
                unsafe {
                    match (self.parts, rows) {
                        (1, 11) => self.rows::<11, 1>(first),
                        (1, 10) => self.rows::<10, 1>(first),
                        (1, 9) => self.rows::<9, 1>(first),
                        (1, 8) => self.rows::<8, 1>(first),
                        (1, 7) => self.rows::<7, 1>(first),
                        (1, 6) => self.rows::<6, 1>(first),
                        (1, 5) => self.rows::<5, 1>(first),
                        (1, 4) => self.rows::<4, 1>(first),
                        (1, 3) => self.rows::<3, 1>(first),
                        (1, 2) => self.rows::<2, 1>(first),
                        (1, _) => self.rows::<1, 1>(first),
                        // Two parts are slower than f32 here, so every height does not need code
                        // of its own.
                        (_, rows) => {
                            for row in first..first + rows {
                                self.rows::<1, 2>(row);
                            }
                        }
                    }
                }
            }
        }

        /// `ROWS` rows of the block from `first` on, against all 32 columns. Every sum is one chain
        /// over k, whatever `ROWS` is.
        #[target_feature(enable = "avx512f,avx512bf16")]
        unsafe fn rows<const ROWS: usize, const PARTS: usize>(&self, first: usize) {
            // SAFETY: the caller's; the two tiles of one side are adjacent, so row r of the block
            // is line r of the pair.
            unsafe {
                let out = self.out.cast::<u8>().add(first * self.stride);
                let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
                if !self.is_fresh {
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let from = out.add(row * self.stride).cast::<f32>();
                        *sums = [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(16))];
                    }
                }
                let step = 2 * TILE * PARTS;
                for position in 0..self.depth {
                    let a = self.input.add(position * step + first * LINE);
                    let w = self.weight.add(position * step);
                    // high·high, high·low, low·high
                    dots::<ROWS>(&mut sums, a, w);
                    if PARTS == 2 {
                        dots::<ROWS>(&mut sums, a, w.add(2 * TILE));
                        dots::<ROWS>(&mut sums, a.add(2 * TILE), w);
                    }
                }
                for (row, sums) in sums.iter().enumerate() {
                    let to = out.add(row * self.stride).cast::<f32>();
                    _mm512_storeu_ps(to, sums[0]);
                    _mm512_storeu_ps(to.add(16), sums[1]);
                }
            }
        }
    }

    /// The sixteen pairs of one position along k.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn dots<const ROWS: usize>(sums: &mut [[__m512; 2]; ROWS], a: *const u8, w: *const u8) {
        for pair in 0..TILE / LINE {
            // SAFETY: the caller's: sixteen lines of two tiles of weights, and ROWS lines of inputs.
            unsafe {
                let left = halves(_mm512_load_si512(w.add(pair * LINE).cast()));
                let right = halves(_mm512_load_si512(w.add(TILE + pair * LINE).cast()));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let both = a.add(row * LINE + 4 * pair).cast::<i32>();
                    let x = halves(_mm512_set1_epi32(*both));
                    sums[0] = _mm512_dpbf16_ps(sums[0], x, left);
                    sums[1] = _mm512_dpbf16_ps(sums[1], x, right);
                }
            }
        }
    }

    /// The register as 32 bfloat16.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn halves(register: __m512i) -> __m512bh {
        // SAFETY: both types are 64 bytes in which every pattern is a value.
        unsafe { std::mem::transmute(register) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod absent {
    use super::super::Product;

    pub(in super::super) fn is_available() -> bool {
        false
    }

    pub(in super::super) fn is_full_rate() -> bool {
        false
    }

    impl Product {
        pub(in super::super) unsafe fn run_on_dots(&self) {}
    }
}
