//! Products of wide columns with a few narrow ones: the gradients of an adapter's pairs.
//!
//! `xᵀ · v` of `x[rows, n]` and `v[rows, r]` with a small r reads x once, in the order in which it lies.
//! Storing x for the general product first would cost more than the product.

#![expect(unsafe_code, reason = "SIMD lanes")]

use super::fresh;
use super::simd::{LANES, Lanes, dispatch};

/// Columns of x whose sums are kept in registers.
const BAND: usize = 24;
/// Bands of one unit of parallel work.
const BANDS: usize = 4;
/// Rows of x that are read for all bands of a unit before the next ones, so that what one band leaves
/// of a cache line is still there for its neighbour.
const ROWS: usize = 64;
/// Beyond this the general product is faster.
pub(crate) const MOST: usize = 64;

/// `xᵀ · v`, `[n, r]`. Every element is one chain of additions over the rows.
pub(crate) fn transposed_product(x: &[f32], n: usize, v: &[f32], r: usize) -> Vec<f32> {
    if n * r == 0 {
        return Vec::new();
    }
    let rows = x.len() / n;
    let vectors = r.div_ceil(LANES);
    // Whole vectors of v's columns, one after the other.
    let mut padded = vec![0.0; vectors * rows * LANES];
    for (vector, padded) in padded.chunks_exact_mut((rows * LANES).max(1)).enumerate() {
        let first = vector * LANES;
        let width = LANES.min(r - first);
        for (to, from) in padded.chunks_exact_mut(LANES).zip(v.chunks_exact(r)) {
            to[..width].copy_from_slice(&from[first..first + width]);
        }
    }
    let unit = BAND * BANDS;
    let lengths = (0..n).step_by(unit).map(|first| unit.min(n - first) * r);
    fresh::parts(lengths.collect(), |index, out| {
        let columns = index * unit..n.min((index + 1) * unit);
        for vector in 0..vectors {
            let v = &padded[vector * rows * LANES..(vector + 1) * rows * LANES];
            let mut sums = [[[0.0; LANES]; BAND]; BANDS];
            for (x, v) in x.chunks(ROWS * n).zip(v.chunks(ROWS * LANES)) {
                for (first, sums) in columns.clone().step_by(BAND).zip(&mut sums) {
                    let width = BAND.min(columns.end - first);
                    add_band(
                        Band {
                            x,
                            n,
                            first,
                            width,
                            v,
                        },
                        sums,
                    );
                }
            }
            let lanes = LANES.min(r - vector * LANES);
            for (out, sums) in out.chunks_exact_mut(r).zip(sums.as_flattened()) {
                out[vector * LANES..][..lanes].copy_from_slice(&sums[..lanes]);
            }
        }
    })
}

/// Some columns of some rows of x, and one vector of columns of v.
#[derive(Clone, Copy)]
struct Band<'a> {
    x: &'a [f32],
    n: usize,
    first: usize,
    width: usize,
    v: &'a [f32],
}

fn add_band(band: Band<'_>, sums: &mut [[f32; LANES]; BAND]) {
    dispatch!(band_kernel(band: Band<'_>, sums: &mut [[f32; LANES]; BAND]));
}

#[inline(always)]
unsafe fn band_kernel<L: Lanes>(band: Band<'_>, sums: &mut [[f32; LANES]; BAND]) {
    // As many sums as registers hold beside the two operands.
    // SAFETY: the caller has the processor's features.
    unsafe {
        match (L::TILE_VECTORS * L::TILE_ROWS, band.width) {
            (20.., BAND) => chain::<L, BAND>(band, 0, sums),
            (_, width) => {
                let whole = width / 4 * 4;
                for at in (0..whole).step_by(4) {
                    chain::<L, 4>(band, at, sums);
                }
                for at in whole..width {
                    chain::<L, 1>(band, at, sums);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn chain<L: Lanes, const COLUMNS: usize>(
    band: Band<'_>,
    at: usize,
    out: &mut [[f32; LANES]; BAND],
) {
    let rows = band.x.chunks_exact(band.n).zip(band.v.chunks_exact(LANES));
    // SAFETY: a row of v is a vector; `out` has rows of one.
    unsafe {
        let mut sums = [L::splat(0.0); COLUMNS];
        for (sum, out) in sums.iter_mut().zip(&out[at..]) {
            *sum = L::load(out.as_ptr());
        }
        for (x, v) in rows {
            let x = &x[band.first + at..][..COLUMNS];
            let v = L::load(v.as_ptr());
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = L::splat(*x).mul_add(v, *sum);
            }
        }
        for (out, sum) in out[at..].iter_mut().zip(sums) {
            sum.store(out.as_mut_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_plain_product() {
        for (rows, n, r) in [
            (1, 1, 1),
            (7, 24, 16),
            (50, 100, 20),
            (300, 61, 3),
            (5, 48, 64),
        ] {
            let x: Vec<f32> = (0..rows * n)
                .map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0)
                .collect();
            let v: Vec<f32> = (0..rows * r)
                .map(|i| (i * 53 % 97) as f32 / 48.0 - 1.0)
                .collect();
            let found = transposed_product(&x, n, &v, r);
            assert_eq!(found.len(), n * r);
            for column in 0..n {
                for other in 0..r {
                    let exact: f64 = (0..rows)
                        .map(|row| f64::from(x[row * n + column]) * f64::from(v[row * r + other]))
                        .sum();
                    let gap = (exact - f64::from(found[column * r + other])).abs();
                    assert!(
                        gap < 1e-5 * rows as f64,
                        "{rows} {n} {r} at {column} {other}"
                    );
                }
            }
        }
        assert!(transposed_product(&[], 0, &[], 4).is_empty());
    }
}
