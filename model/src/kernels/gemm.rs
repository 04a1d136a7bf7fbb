//! Matrix products against weights stored once for them: `out[m, n] = a[m, k] · w[n, k]ᵀ`.
//!
//! Two kernels: f32 on vector lanes, and bfloat16 on processors with instructions for it. In both, a row of the result does not depend on the other rows by a single bit.

#![expect(
    unsafe_code,
    reason = "results that are not cleared before they are written"
)]

use std::mem::MaybeUninit;

use super::bf16_unit::Unit;
use super::blocks::BlockScales;
use super::{fresh, lane_gemm, tile_gemm};

/// What products are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arithmetic {
    /// f32 throughout.
    F32,
    /// Operands as sums of two bfloat16 (16 significant bits), f32 sums: relative errors of some
    /// 2⁻¹⁶ a term. Needs Intel AMX or AVX-512 BF16; on the latter slower than f32.
    SplitBf16,
    /// Operands rounded to bfloat16 (8 significant bits), f32 sums. Needs Intel AMX or AVX-512 BF16.
    Bf16,
}

impl Arithmetic {
    /// Whether this machine can compute in it.
    pub fn is_available(self) -> bool {
        self == Self::F32 || Unit::here().is_some()
    }

    /// The fastest on this machine: bfloat16 on AMX and on AMD's AVX-512 BF16, else f32.
    pub fn fastest() -> Self {
        match Unit::here() {
            Some(unit) if unit.is_faster_than_lanes() => Self::Bf16,
            _ => Self::F32,
        }
    }

    fn parts(self) -> usize {
        if self == Self::Bf16 { 1 } else { 2 }
    }
}

/// Rows `[m, k]`, stored for products: made once, multiplied by as many weights as needed.
#[derive(Debug)]
pub struct Rows {
    form: RowsForm,
    arithmetic: Arithmetic,
    m: usize,
    k: usize,
}

enum RowsForm {
    Lanes(lane_gemm::Tiles),
    Tiles(tile_gemm::Tiles),
}

impl std::fmt::Debug for RowsForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lanes(_) => "Lanes",
            Self::Tiles(_) => "Tiles",
        })
    }
}

impl Rows {
    /// Take row-major `a[m, k]`.
    ///
    /// # Panics
    /// If `a` does not have `m * k` elements.
    pub fn new(a: &[f32], m: usize, k: usize, arithmetic: Arithmetic) -> Self {
        assert_eq!(a.len(), m * k, "input of {m} × {k}");
        let form = match arithmetic {
            Arithmetic::F32 => RowsForm::Lanes(lane_gemm::Tiles::new(a, m, k)),
            _ => RowsForm::Tiles(tile_gemm::Tiles::inputs(a, m, k, arithmetic.parts())),
        };
        Self {
            form,
            arithmetic,
            m,
            k,
        }
    }

    /// Take the `m` columns of row-major `a[k, m]`.
    ///
    /// # Panics
    /// If `a` does not have `m * k` elements.
    pub fn new_transposed(a: &[f32], m: usize, k: usize, arithmetic: Arithmetic) -> Self {
        assert_eq!(a.len(), m * k, "input of {k} × {m}");
        let parts = arithmetic.parts();
        let form = match arithmetic {
            Arithmetic::F32 => RowsForm::Lanes(lane_gemm::Tiles::new_transposed(a, m, k)),
            _ => RowsForm::Tiles(tile_gemm::Tiles::inputs_transposed(a, m, k, parts)),
        };
        Self {
            form,
            arithmetic,
            m,
            k,
        }
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        self.m
    }
}

/// A weight matrix `[n, k]`, stored for products.
#[derive(Clone)]
pub struct Packed {
    form: PackedForm,
    arithmetic: Arithmetic,
    n: usize,
    k: usize,
}

#[derive(Clone)]
enum PackedForm {
    Lanes(lane_gemm::Panels),
    Tiles(tile_gemm::Tiles),
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed[{}, {}; {:?}]", self.n, self.k, self.arithmetic)
    }
}

impl Packed {
    /// Pack row-major `weight[n, k]`.
    ///
    /// # Panics
    /// If `weight.len() != n * k`.
    pub fn new(weight: &[f32], n: usize, k: usize, arithmetic: Arithmetic) -> Self {
        assert_eq!(weight.len(), n * k, "weight of {n} × {k}");
        Self::pack(n, k, arithmetic, |row, out| {
            out.copy_from_slice(&weight[row * k..(row + 1) * k]);
        })
    }

    /// Pack a weight that stays as it is, row-major `weight[n, k]`. In f32 it is kept in as few bits as
    /// hold it exactly: quantised, if `scales` describe it, or as bfloat16. Products are the same to the
    /// bit.
    ///
    /// # Panics
    /// If `weight.len() != n * k`.
    pub fn compact(
        weight: &[f32],
        n: usize,
        k: usize,
        arithmetic: Arithmetic,
        scales: Option<&BlockScales>,
    ) -> Self {
        assert_eq!(weight.len(), n * k, "weight of {n} × {k}");
        let panels = match arithmetic {
            Arithmetic::F32 => lane_gemm::Panels::compact(weight, n, k, scales),
            _ => None,
        };
        match panels {
            Some(panels) => Self {
                form: PackedForm::Lanes(panels),
                arithmetic,
                n,
                k,
            },
            None => Self::new(weight, n, k, arithmetic),
        }
    }

    /// Pack the transpose of row-major `weight[k, n]`.
    ///
    /// # Panics
    /// If `weight.len() != n * k`.
    pub fn new_transposed(weight: &[f32], n: usize, k: usize, arithmetic: Arithmetic) -> Self {
        assert_eq!(weight.len(), n * k, "weight of {k} × {n}");
        let parts = arithmetic.parts();
        let form = match arithmetic {
            Arithmetic::F32 => PackedForm::Lanes(lane_gemm::Panels::new_transposed(weight, n, k)),
            _ => PackedForm::Tiles(tile_gemm::Tiles::weights_transposed(weight, n, k, parts)),
        };
        Self {
            form,
            arithmetic,
            n,
            k,
        }
    }

    fn pack(
        n: usize,
        k: usize,
        arithmetic: Arithmetic,
        row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        let form = match arithmetic {
            Arithmetic::F32 => PackedForm::Lanes(lane_gemm::Panels::new(n, k, row)),
            _ => PackedForm::Tiles(tile_gemm::Tiles::weights(n, k, arithmetic.parts(), row)),
        };
        Self {
            form,
            arithmetic,
            n,
            k,
        }
    }

    /// Number of output features.
    pub fn rows(&self) -> usize {
        self.n
    }

    /// Number of input features.
    pub fn columns(&self) -> usize {
        self.k
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        match &self.form {
            PackedForm::Lanes(panels) => panels.bytes(),
            PackedForm::Tiles(tiles) => tiles.bytes(),
        }
    }

    /// What products with it are computed in.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The element at output feature `row` and input feature `column`, as stored.
    pub fn at(&self, row: usize, column: usize) -> f32 {
        match &self.form {
            PackedForm::Lanes(panels) => panels.weight_at(row, column),
            PackedForm::Tiles(tiles) => tiles.weight_at(row, column),
        }
    }

    /// The same weight packed for the product with its transpose (the input gradient).
    pub fn transposed(&self) -> Self {
        Self::pack(self.k, self.n, self.arithmetic, |row, out| {
            for (column, out) in out.iter_mut().enumerate() {
                *out = self.at(column, row);
            }
        })
    }

    /// `a[m, k] · wᵀ`, `[m, n]`.
    ///
    /// # Panics
    /// If the slice does not have `m * k` elements.
    pub fn matmul(&self, a: &[f32], m: usize) -> Vec<f32> {
        let rows = Rows::new(a, m, self.k, self.arithmetic);
        product(&[(&rows, self)])
    }
}

/// `Σ rows · weightᵀ` over the terms, `[m, n]`; empty where there are none.
///
/// # Panics
/// If shapes or arithmetics of the terms do not fit each other.
pub fn product(terms: &[(&Rows, &Packed)]) -> Vec<f32> {
    let length = terms.first().map_or(0, |(rows, weight)| rows.m * weight.n);
    // SAFETY: without `accumulate` every element is written.
    unsafe { fresh::written(length, |out| into(terms, out, false)) }
}

/// `out[m, n] = Σ rows · weightᵀ` over the terms, or `out += …` with `accumulate`.
///
/// # Panics
/// If shapes or arithmetics of the terms and the output do not fit each other.
pub fn sum_of_products(terms: &[(&Rows, &Packed)], out: &mut [f32], accumulate: bool) {
    // SAFETY: kernels write floats.
    into(terms, unsafe { fresh::present(out) }, accumulate);
}

/// [`sum_of_products`] where nothing has to be there before, unless it accumulates.
fn into(terms: &[(&Rows, &Packed)], out: &mut [MaybeUninit<f32>], accumulate: bool) {
    let Some((rows, weight)) = terms.first() else {
        assert!(out.is_empty() || accumulate, "a sum of no terms");
        return;
    };
    let shape = (rows.m, weight.n);
    let (mut lanes, mut tiles) = (Vec::new(), Vec::new());
    for (rows, weight) in terms {
        assert_eq!(rows.k, weight.k, "columns of rows and weight");
        match (&rows.form, &weight.form) {
            (RowsForm::Lanes(rows), PackedForm::Lanes(weight)) => lanes.push((rows, weight)),
            (RowsForm::Tiles(rows), PackedForm::Tiles(weight)) => tiles.push((rows, weight)),
            _ => panic!("{:?} rows against {weight:?}", rows.arithmetic),
        }
    }
    match (lanes.is_empty(), tiles.is_empty()) {
        (false, true) => lane_gemm::sum_of_products(&lanes, out, shape, accumulate),
        (true, false) => tile_gemm::sum_of_products(&tiles, out, shape, accumulate),
        _ => panic!("terms of two arithmetics"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / 8_388_608.0 - 1.0
            })
            .collect()
    }

    const ALL: [Arithmetic; 3] = [Arithmetic::F32, Arithmetic::SplitBf16, Arithmetic::Bf16];

    fn available() -> impl Iterator<Item = Arithmetic> {
        ALL.into_iter().filter(|a| a.is_available())
    }

    /// Largest error of a product of values below 1, in units of the number of terms.
    fn tolerance(arithmetic: Arithmetic) -> f64 {
        match arithmetic {
            Arithmetic::F32 => 1e-7,
            Arithmetic::SplitBf16 => 2e-5,
            Arithmetic::Bf16 => 8e-3,
        }
    }

    #[test]
    fn agrees_with_the_plain_product_on_ragged_shapes() {
        for arithmetic in available() {
            for (m, n, k) in [
                (1, 1, 1),
                (5, 33, 7),
                (13, 64, 48),
                (64, 96, 64),
                (97, 100, 65),
                (200, 31, 16),
                // Several bands of rows and groups of panels.
                (150, 300, 70),
                // Several parts of k.
                (30, 45, 600),
            ] {
                let (a, w) = (values(m * k, 1), values(n * k, 2));
                let packed = Packed::new(&w, n, k, arithmetic);
                let rows = Rows::new(&a, m, k, arithmetic);
                // Two terms on top of what is there.
                let mut out = vec![1.0; m * n];
                sum_of_products(&[(&rows, &packed), (&rows, &packed)], &mut out, true);
                let fresh = packed.matmul(&a, m);
                let columns: Vec<f32> = (0..m * k).map(|i| a[(i % m) * k + i / m]).collect();
                let mut turned = vec![0.0; m * n];
                let rows = Rows::new_transposed(&columns, m, k, arithmetic);
                sum_of_products(&[(&rows, &packed)], &mut turned, false);
                assert_eq!(fresh, turned, "{arithmetic:?} {m} {n} {k}");
                let bound = tolerance(arithmetic) * k as f64 + 1e-6;
                for row in 0..m {
                    for column in 0..n {
                        let exact: f64 = (0..k)
                            .map(|i| f64::from(a[row * k + i]) * f64::from(w[column * k + i]))
                            .sum();
                        let (once, twice) = (fresh[row * n + column], out[row * n + column]);
                        let gap = (exact - f64::from(once)).abs();
                        let gap2 = (2.0 * exact + 1.0 - f64::from(twice)).abs();
                        assert!(
                            gap < bound && gap2 < 3.0 * bound,
                            "{arithmetic:?} {m} {n} {k} at {row} {column}: {gap} {gap2}"
                        );
                    }
                }
                for (index, w) in w.iter().enumerate() {
                    let stored = packed.at(index / k, index % k);
                    assert!(f64::from((stored - w).abs()) <= tolerance(arithmetic));
                }
                let transposed = packed.transposed();
                assert_eq!((transposed.rows(), transposed.columns()), (k, n));
                let direct = Packed::new_transposed(&w, k, n, arithmetic);
                for (row, column) in (0..k).flat_map(|r| (0..n).map(move |c| (r, c))) {
                    assert_eq!(direct.at(row, column), transposed.at(row, column));
                }
            }
        }
    }

    #[test]
    fn weights_in_fewer_bits_multiply_like_their_floats() {
        let (m, n, k) = (200, 70, 320);
        let a = values(m * k, 5);
        let nibbles = BlockScales {
            group: 32,
            bits: 4,
            zero: 8,
            scale: values(n * k / 32, 6),
            offset: values(n * k / 32, 7),
        };
        let whole = |index: usize| (index * 7 % 16) as f32 - 8.0;
        let quantised: Vec<f32> = (0..n * k)
            .map(|i| whole(i) * nibbles.scale[i / 32] + nibbles.offset[i / 32])
            .collect();
        let halves: Vec<f32> = values(n * k, 8)
            .iter()
            .map(|value| f32::from_bits(value.to_bits() & 0xFFFF_0000))
            .collect();
        for (weight, scales) in [(quantised, Some(&nibbles)), (halves, None)] {
            let plain = Packed::new(&weight, n, k, Arithmetic::F32);
            let compact = Packed::compact(&weight, n, k, Arithmetic::F32, scales);
            assert!(compact.bytes() < plain.bytes() * 2 / 3);
            for m in [1, 13, m] {
                let a = &a[..m * k];
                assert_eq!(compact.matmul(a, m), plain.matmul(a, m), "{m} rows");
            }
            let dy = values(n * 3, 9);
            let there = (compact.transposed(), plain.transposed());
            assert_eq!(there.0.matmul(&dy, 3), there.1.matmul(&dy, 3));
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_batch() {
        let (m, n, k) = (50, 70, 600);
        let (a, w) = (values(m * k, 3), values(n * k, 4));
        for arithmetic in available() {
            let packed = Packed::new(&w, n, k, arithmetic);
            let all = packed.matmul(&a, m);
            for row in 0..m {
                let alone = packed.matmul(&a[row * k..(row + 1) * k], 1);
                assert_eq!(alone, all[row * n..(row + 1) * n], "{arithmetic:?}");
            }
        }
    }

    #[test]
    fn rounding_to_halves_keeps_what_is_not_finite() {
        if !Arithmetic::SplitBf16.is_available() {
            return;
        }
        let extremes = [f32::INFINITY, f32::NAN, f32::MAX, -0.0, 1e-40, 3.0];
        let packed = Packed::new(&extremes, 1, 6, Arithmetic::SplitBf16);
        assert!(packed.at(0, 0).is_infinite() && packed.at(0, 1).is_nan());
        assert!(packed.at(0, 2) > 3.4e38 && packed.at(0, 5) == 3.0);
    }
}
