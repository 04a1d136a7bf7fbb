//! Matrix product against a weight packed once: `out[m, n] = a[m, k] · w[n, k]ᵀ`.
//!
//! Weights are stored as panels of 32 output columns (`[n / 32, k, 32]`), so that the inner loop
//! reads both operands in order and nothing is packed per call. Every output element is one chain
//! of additions over k, whatever m is: batching does not change a result by a single bit.

#![expect(
    unsafe_code,
    reason = "SIMD kernel with raw tiles; disjoint output tiles across threads"
)]

use rayon::prelude::*;

use super::aligned::AlignedFloats;
use super::simd::{Lanes, dispatch};

/// Output columns of one panel: two vectors of sixteen.
const PANEL: usize = 32;
/// Tiles whose inputs should stay in the second-level cache while panels stream past.
const BLOCK_TILES: usize = 8;
/// Panels of one unit of parallel work.
const UNIT_PANELS: usize = 4;

/// A weight matrix `[n, k]`, packed for [`Packed::matmul`].
#[derive(Clone)]
pub struct Packed {
    panels: AlignedFloats,
    n: usize,
    k: usize,
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed[{}, {}]", self.n, self.k)
    }
}

impl Packed {
    /// Pack row-major `weight[n, k]`.
    ///
    /// # Panics
    /// If `weight.len() != n * k`.
    pub fn new(weight: &[f32], n: usize, k: usize) -> Self {
        assert_eq!(weight.len(), n * k, "weight of {n} × {k}");
        Self::pack(n, k, |row, column| weight[row * k + column])
    }

    /// Pack the transpose of row-major `weight[k, n]`.
    ///
    /// # Panics
    /// If `weight.len() != n * k`.
    pub fn new_transposed(weight: &[f32], n: usize, k: usize) -> Self {
        assert_eq!(weight.len(), n * k, "weight of {k} × {n}");
        Self::pack(n, k, |row, column| weight[column * n + row])
    }

    fn pack(n: usize, k: usize, at: impl Fn(usize, usize) -> f32 + Sync) -> Self {
        let mut panels = AlignedFloats::zeros(n.div_ceil(PANEL) * PANEL * k);
        if k > 0 {
            panels
                .par_chunks_mut(PANEL * k)
                .enumerate()
                .for_each(|(index, panel)| {
                    let first = index * PANEL;
                    let columns = PANEL.min(n - first);
                    for (position, lane) in panel.chunks_exact_mut(PANEL).enumerate() {
                        for (column, slot) in lane[..columns].iter_mut().enumerate() {
                            *slot = at(first + column, position);
                        }
                    }
                });
        }
        Self { panels, n, k }
    }

    /// Number of output features.
    pub fn rows(&self) -> usize {
        self.n
    }

    /// Number of input features.
    pub fn columns(&self) -> usize {
        self.k
    }

    /// The element at output feature `row` and input feature `column`.
    fn at(&self, row: usize, column: usize) -> f32 {
        self.panels[(row / PANEL) * PANEL * self.k + column * PANEL + row % PANEL]
    }

    /// The same weight packed for the product with its transpose (the input gradient).
    pub fn transposed(&self) -> Self {
        Self::pack(self.k, self.n, |row, column| self.at(column, row))
    }

    /// Row-major `[n, k]` copy.
    pub fn unpack(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.n * self.k];
        if self.k > 0 {
            out.par_chunks_mut(self.k)
                .enumerate()
                .for_each(|(row, values)| {
                    for (column, value) in values.iter_mut().enumerate() {
                        *value = self.at(row, column);
                    }
                });
        }
        out
    }

    /// `out[m, n] = a[m, k] · wᵀ`, or `out += …` with `accumulate`.
    ///
    /// # Panics
    /// If the slices do not have `m * k` and `m * n` elements.
    pub fn matmul(&self, a: &[f32], out: &mut [f32], m: usize, accumulate: bool) {
        assert_eq!(a.len(), m * self.k, "input of {m} × {}", self.k);
        assert_eq!(out.len(), m * self.n, "output of {m} × {}", self.n);
        if m == 0 || self.n == 0 {
            return;
        }
        // A thread's wake-up costs about as much as a small product.
        let is_small = m * self.n * self.k < 1 << 15;
        let tiles = Tiles::new(a, m, self.k, is_small);
        let blocks = tiles.count.div_ceil(BLOCK_TILES);
        let groups = self.n.div_ceil(PANEL).div_ceil(UNIT_PANELS);
        let target = Output(out.as_mut_ptr());
        let unit = |index: usize| {
            // Neighbouring units share the panels, which are the larger operand in decoding.
            let (group, block) = (index / blocks, index % blocks);
            let first = block * BLOCK_TILES;
            let end = tiles.count.min(first + BLOCK_TILES);
            run_unit(Unit {
                packed: self,
                tiles: &tiles,
                out: &target,
                group,
                first,
                end,
                accumulate,
            });
        };
        if is_small || blocks * groups == 1 {
            (0..blocks * groups).for_each(unit);
        } else {
            (0..blocks * groups).into_par_iter().for_each(unit);
        }
    }
}

/// The input, cut into tiles of nearly equal height and stored tile by tile as `[k, rows]`: the
/// inner loop then reads its rows from one place.
struct Tiles {
    values: Vec<f32>,
    m: usize,
    count: usize,
}

impl Tiles {
    fn new(a: &[f32], m: usize, k: usize, is_small: bool) -> Self {
        let count = m.div_ceil(tile_rows());
        let mut tiles = Self {
            values: Vec::new(),
            m,
            count,
        };
        let mut values = vec![0.0; m * k];
        let mut rest = values.as_mut_slice();
        let mut parts = Vec::with_capacity(count);
        for tile in 0..count {
            let rows = tiles.rows(tile);
            let (part, after) = rest.split_at_mut(rows.len() * k);
            parts.push((rows, part));
            rest = after;
        }
        let fill = |(rows, part): (std::ops::Range<usize>, &mut [f32])| {
            let height = rows.len();
            for (offset, row) in rows.enumerate() {
                for (position, value) in a[row * k..(row + 1) * k].iter().enumerate() {
                    part[position * height + offset] = *value;
                }
            }
        };
        if is_small {
            parts.into_iter().for_each(fill);
        } else {
            parts.into_par_iter().for_each(fill);
        }
        tiles.values = values;
        tiles
    }

    fn rows(&self, tile: usize) -> std::ops::Range<usize> {
        tile * self.m / self.count..(tile + 1) * self.m / self.count
    }
}

/// Rows of the largest register tile on this processor.
fn tile_rows() -> usize {
    let mut rows = 1;
    let slot = &mut rows;
    dispatch!(tile_rows_of(slot: &mut usize));
    rows
}

#[inline(always)]
unsafe fn tile_rows_of<L: Lanes>(rows: &mut usize) {
    *rows = L::TILE_ROWS;
}

/// Base pointer of the output, shared by threads that write disjoint tiles.
struct Output(*mut f32);
// SAFETY: units write disjoint row and column ranges and the borrow outlives them all.
unsafe impl Sync for Output {}

/// A block of tiles against a group of panels.
#[derive(Clone, Copy)]
struct Unit<'a> {
    packed: &'a Packed,
    tiles: &'a Tiles,
    out: &'a Output,
    group: usize,
    first: usize,
    end: usize,
    accumulate: bool,
}

fn run_unit(unit: Unit<'_>) {
    dispatch!(unit_kernel(unit: Unit<'_>));
}

#[inline(always)]
unsafe fn unit_kernel<L: Lanes>(unit: Unit<'_>) {
    let Packed { panels, n, k } = unit.packed;
    let (n, k) = (*n, *k);
    let last = n.div_ceil(PANEL).min((unit.group + 1) * UNIT_PANELS);
    for panel in unit.group * UNIT_PANELS..last {
        for index in unit.first..unit.end {
            let rows = unit.tiles.rows(index);
            let tile = Tile {
                k,
                a: &unit.tiles.values[rows.start * k..rows.end * k],
                panel: &panels[panel * PANEL * k..(panel + 1) * PANEL * k],
                columns: PANEL.min(n - panel * PANEL),
                stride: n,
                accumulate: unit.accumulate,
            };
            let (row, rows) = (rows.start, rows.len());
            // SAFETY: tiles of different units and rows do not overlap and lie inside the output,
            // whose size `matmul` checked.
            unsafe {
                let out = unit.out.0.add(row * n + panel * PANEL);
                match rows {
                    12 => tile.run::<L, 12>(out),
                    11 => tile.run::<L, 11>(out),
                    10 => tile.run::<L, 10>(out),
                    9 => tile.run::<L, 9>(out),
                    8 => tile.run::<L, 8>(out),
                    7 => tile.run::<L, 7>(out),
                    6 => tile.run::<L, 6>(out),
                    5 => tile.run::<L, 5>(out),
                    4 => tile.run::<L, 4>(out),
                    3 => tile.run::<L, 3>(out),
                    2 => tile.run::<L, 2>(out),
                    _ => tile.run::<L, 1>(out),
                }
            }
        }
    }
}

/// One tile of inputs, `[k, rows]`, against one panel.
struct Tile<'a> {
    k: usize,
    a: &'a [f32],
    panel: &'a [f32],
    columns: usize,
    stride: usize,
    accumulate: bool,
}

impl Tile<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes, const ROWS: usize>(&self, out: *mut f32) {
        // SAFETY: `a` holds k times ROWS floats, `panel` k rows of PANEL; the caller owns the tile.
        unsafe {
            let mut sums = [[L::splat(0.0); 2]; ROWS];
            let (a, panel) = (self.a.as_ptr(), self.panel.as_ptr());
            for position in 0..self.k {
                let w0 = L::load(panel.add(position * PANEL));
                let w1 = L::load(panel.add(position * PANEL + 16));
                for (row, sum) in sums.iter_mut().enumerate() {
                    let x = L::splat(*a.add(position * ROWS + row));
                    sum[0] = x.mul_add(w0, sum[0]);
                    sum[1] = x.mul_add(w1, sum[1]);
                }
            }
            for (row, sum) in sums.iter().enumerate() {
                let target = out.add(row * self.stride);
                if self.columns == PANEL {
                    for (half, lanes) in sum.iter().enumerate() {
                        let target = target.add(half * 16);
                        if self.accumulate {
                            L::load(target).add(*lanes).store(target);
                        } else {
                            lanes.store(target);
                        }
                    }
                } else {
                    let lanes = [sum[0].to_array(), sum[1].to_array()];
                    for column in 0..self.columns {
                        let value = lanes[column / 16][column % 16];
                        let target = target.add(column);
                        *target = if self.accumulate {
                            *target + value
                        } else {
                            value
                        };
                    }
                }
            }
        }
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

    #[test]
    fn agrees_with_the_plain_product_on_ragged_shapes() {
        for (m, n, k) in [
            (1, 1, 1),
            (5, 33, 7),
            (13, 64, 48),
            (97, 100, 65),
            (200, 31, 16),
        ] {
            let (a, w) = (values(m * k, 1), values(n * k, 2));
            let packed = Packed::new(&w, n, k);
            assert_eq!(packed.unpack(), w);
            let mut out = vec![1.0; m * n];
            packed.matmul(&a, &mut out, m, true);
            for row in 0..m {
                for column in 0..n {
                    let exact: f64 = (0..k)
                        .map(|i| f64::from(a[row * k + i]) * f64::from(w[column * k + i]))
                        .sum();
                    let got = f64::from(out[row * n + column]) - 1.0;
                    assert!((exact - got).abs() < 1e-4, "{m} {n} {k} at {row} {column}");
                }
            }
            let transposed = packed.transposed();
            assert_eq!((transposed.rows(), transposed.columns()), (k, n));
            assert_eq!(
                Packed::new_transposed(&w, k, n).unpack(),
                transposed.unpack()
            );
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_batch() {
        let (m, n, k) = (50, 70, 96);
        let (a, w) = (values(m * k, 3), values(n * k, 4));
        let packed = Packed::new(&w, n, k);
        let mut all = vec![0.0; m * n];
        packed.matmul(&a, &mut all, m, false);
        for row in 0..m {
            let mut alone = vec![0.0; n];
            packed.matmul(&a[row * k..(row + 1) * k], &mut alone, 1, false);
            assert_eq!(alone, all[row * n..(row + 1) * n]);
        }
    }
}
