//! Matrix product in f32 on vector lanes: `out[m, n] = a[m, k] · w[n, k]ᵀ`.
//!
//! Weights are stored as panels of 32 output columns (`[n / 32, k, 32]`), inputs as tiles of rows
//! (`[m / rows, k, rows]`), so that the inner loop reads both operands in order. Every output element
//! is one chain of additions over k, whatever m is: batching does not change a result by a single bit.

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

/// A weight matrix `[n, k]` in panels.
#[derive(Clone)]
pub(super) struct Panels {
    values: AlignedFloats,
    n: usize,
    k: usize,
}

impl Panels {
    /// Store a weight of `n` output features, `row(i, out)` writing feature i's `k` values.
    pub(super) fn new(n: usize, k: usize, row: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        let mut values = AlignedFloats::zeros(n.div_ceil(PANEL) * PANEL * k);
        if k > 0 {
            values
                .par_chunks_mut(PANEL * k)
                .enumerate()
                .for_each(|(index, panel)| {
                    let first = index * PANEL;
                    let mut values = vec![0.0; k];
                    for column in 0..PANEL.min(n - first) {
                        row(first + column, &mut values);
                        for (slot, value) in panel[column..].iter_mut().step_by(PANEL).zip(&values)
                        {
                            *slot = *value;
                        }
                    }
                });
        }
        Self { values, n, k }
    }

    /// The element at output feature `row` and input feature `column`.
    pub(super) fn weight_at(&self, row: usize, column: usize) -> f32 {
        self.values[(row / PANEL) * PANEL * self.k + column * PANEL + row % PANEL]
    }

    /// `out[m, n] (+)= tiles · wᵀ`.
    ///
    /// # Panics
    /// If the sizes do not fit.
    pub(super) fn matmul(&self, tiles: &Tiles, out: &mut [f32], accumulate: bool) {
        let m = tiles.m;
        assert_eq!(tiles.values.len(), m * self.k, "input of {m} × {}", self.k);
        assert_eq!(out.len(), m * self.n, "output of {m} × {}", self.n);
        if m == 0 || self.n == 0 {
            return;
        }
        let is_small = is_small(m, self.n * self.k);
        let blocks = tiles.count.div_ceil(BLOCK_TILES);
        let groups = self.n.div_ceil(PANEL).div_ceil(UNIT_PANELS);
        let target = Output(out.as_mut_ptr());
        let unit = |index: usize| {
            // Neighbouring units share the panels, which are the larger operand in decoding.
            let (group, block) = (index / blocks, index % blocks);
            let first = block * BLOCK_TILES;
            let end = tiles.count.min(first + BLOCK_TILES);
            run_unit(Unit {
                weight: self,
                tiles,
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

/// A thread's wake-up costs about as much as a small product.
fn is_small(m: usize, weight: usize) -> bool {
    m * weight < 1 << 15
}

/// The input, cut into tiles of nearly equal height and stored tile by tile as `[k, rows]`: the
/// inner loop then reads its rows from one place.
pub(super) struct Tiles {
    values: Vec<f32>,
    m: usize,
    count: usize,
}

impl Tiles {
    /// Rows `a[m, k]` to multiply.
    pub(super) fn new(a: &[f32], m: usize, k: usize) -> Self {
        let is_small = is_small(m, k);
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
        // Sixteen positions at a time, so that what is written stays in the first-level cache.
        let fill = |(rows, part): (std::ops::Range<usize>, &mut [f32])| {
            let height = rows.len();
            for (chunk, part) in part.chunks_mut(16 * height).enumerate() {
                for (offset, row) in rows.clone().enumerate() {
                    let from = row * k + 16 * chunk;
                    let values = &a[from..from + part.len() / height];
                    for (slot, value) in part[offset..].iter_mut().step_by(height).zip(values) {
                        *slot = *value;
                    }
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
    weight: &'a Panels,
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
    let Panels { values, n, k } = unit.weight;
    let (n, k) = (*n, *k);
    let last = n.div_ceil(PANEL).min((unit.group + 1) * UNIT_PANELS);
    for panel in unit.group * UNIT_PANELS..last {
        for index in unit.first..unit.end {
            let rows = unit.tiles.rows(index);
            let tile = Tile {
                k,
                a: &unit.tiles.values[rows.start * k..rows.end * k],
                panel: &values[panel * PANEL * k..(panel + 1) * PANEL * k],
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
