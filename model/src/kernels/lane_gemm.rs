//! Matrix product in f32 on vector lanes: `out[m, n] = a[m, k] · w[n, k]ᵀ`.
//!
//! Weights are stored as panels of 32 output columns (`[n / 32, k, 32]`), inputs as tiles of rows
//! (`[m / rows, k, rows]`), so that the inner loop reads both operands in order. Every output element
//! is one chain of additions over k, whatever m is: batching does not change a result by a single bit.

#![expect(
    unsafe_code,
    reason = "SIMD kernel with raw tiles; disjoint output tiles across threads"
)]

use std::ops::Range;

use rayon::prelude::*;

use super::aligned::AlignedFloats;
use super::simd::{LANES, Lanes, dispatch};

/// Output columns of one panel: two vectors of sixteen.
const PANEL: usize = 32;
/// Rows whose inputs should stay in the second-level cache while panels stream past.
const BLOCK_ROWS: usize = 96;
/// Positions of k computed at a time: that much of a panel stays in the first-level cache while the
/// tiles of a block pass. Sums go on from one to the next, so this does not change them.
const DEPTH: usize = 256;
/// Panels of one unit of parallel work, where there are several blocks of rows. With one block,
/// as in decoding, units are single panels: few large ones would leave a thread waiting.
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

    /// Store the transpose of row-major `values[k, n]`: a panel is a band of its columns as it is.
    pub(super) fn new_transposed(values: &[f32], n: usize, k: usize) -> Self {
        let mut panels = Self {
            values: AlignedFloats::zeros(n.div_ceil(PANEL) * PANEL * k),
            n,
            k,
        };
        if k > 0 {
            let fill = |(index, panel): (usize, &mut [f32])| {
                let first = index * PANEL;
                let columns = PANEL.min(n - first);
                for (to, from) in panel.chunks_exact_mut(PANEL).zip(values.chunks_exact(n)) {
                    to[..columns].copy_from_slice(&from[first..first + columns]);
                }
            };
            panels
                .values
                .par_chunks_mut(PANEL * k)
                .enumerate()
                .for_each(fill);
        }
        panels
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
        if self.k == 0 {
            if !accumulate {
                out.fill(0.0);
            }
            return;
        }
        let is_small = is_small(m, self.n * self.k);
        let block_tiles = BLOCK_ROWS / tile_rows();
        let blocks = tiles.count.div_ceil(block_tiles);
        let panels = if blocks == 1 { 1 } else { UNIT_PANELS };
        let groups = self.n.div_ceil(PANEL).div_ceil(panels);
        let target = Output(out.as_mut_ptr());
        let unit = |index: usize| {
            // Neighbouring units share the panels, which are the larger operand in decoding.
            let (group, block) = (index / blocks, index % blocks);
            let first = block * block_tiles;
            let end = tiles.count.min(first + block_tiles);
            run_unit(Unit {
                weight: self,
                tiles,
                out: &target,
                panels: group * panels..self.n.div_ceil(PANEL).min((group + 1) * panels),
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
        // Sixteen positions at a time, so that what is written stays in the first-level cache.
        Self::build(m, k, |rows, part| {
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
        })
    }

    /// The columns of row-major `a[k, m]` as rows to multiply.
    pub(super) fn new_transposed(a: &[f32], m: usize, k: usize) -> Self {
        Self::build(m, k, |rows, part| {
            for (to, from) in part.chunks_exact_mut(rows.len()).zip(a.chunks_exact(m)) {
                to.copy_from_slice(&from[rows.clone()]);
            }
        })
    }

    /// `fill(rows, part)` writes the rows of one tile as `[k, rows]`.
    fn build(m: usize, k: usize, fill: impl Fn(Range<usize>, &mut [f32]) + Sync) -> Self {
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
        if is_small(m, k) {
            parts.into_iter().for_each(|(rows, part)| fill(rows, part));
        } else {
            parts
                .into_par_iter()
                .for_each(|(rows, part)| fill(rows, part));
        }
        tiles.values = values;
        tiles
    }

    fn rows(&self, tile: usize) -> Range<usize> {
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
struct Unit<'a> {
    weight: &'a Panels,
    tiles: &'a Tiles,
    out: &'a Output,
    panels: Range<usize>,
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
    for panel in unit.panels.clone() {
        let width = PANEL.min(n - panel * PANEL);
        let whole = &values[panel * PANEL * k..(panel + 1) * PANEL * k];
        for start in (0..k).step_by(DEPTH) {
            let end = k.min(start + DEPTH);
            for first in (0..width).step_by(L::TILE_VECTORS * LANES) {
                for index in unit.first..unit.end {
                    let rows = unit.tiles.rows(index);
                    let height = rows.len();
                    let at = rows.start * k;
                    let tile = Tile {
                        k: end - start,
                        a: &unit.tiles.values[at + start * height..at + end * height],
                        panel: &whole[start * PANEL + first..end * PANEL],
                        columns: (width - first).min(L::TILE_VECTORS * LANES),
                        stride: n,
                        accumulate: unit.accumulate || start > 0,
                    };
                    // SAFETY: tiles of different units and rows do not overlap and lie inside the
                    // output, whose size `matmul` checked.
                    unsafe {
                        let out = unit.out.0.add(rows.start * n + panel * PANEL + first);
                        tile.dispatch::<L>(height, out);
                    }
                }
            }
        }
    }
}

/// Part of one tile of inputs, `[k, rows]`, against the same part of some columns of a panel.
struct Tile<'a> {
    k: usize,
    a: &'a [f32],
    /// From the first of the columns on, rows of [`PANEL`] floats apart.
    panel: &'a [f32],
    columns: usize,
    stride: usize,
    accumulate: bool,
}

impl Tile<'_> {
    /// [`Self::run`] for the height of the tile and the width of the processor.
    #[inline(always)]
    unsafe fn dispatch<L: Lanes>(&self, height: usize, out: *mut f32) {
        // SAFETY: the caller upholds what `run` asks for.
        unsafe {
            match (L::TILE_VECTORS, height) {
                (2, 12) => self.run::<L, 12, 2>(out),
                (2, 11) => self.run::<L, 11, 2>(out),
                (2, 10) => self.run::<L, 10, 2>(out),
                (2, 9) => self.run::<L, 9, 2>(out),
                (2, 8) => self.run::<L, 8, 2>(out),
                (2, 7) => self.run::<L, 7, 2>(out),
                (2, 6) => self.run::<L, 6, 2>(out),
                (2, 5) => self.run::<L, 5, 2>(out),
                (2, 4) => self.run::<L, 4, 2>(out),
                (2, 3) => self.run::<L, 3, 2>(out),
                (2, 2) => self.run::<L, 2, 2>(out),
                (2, _) => self.run::<L, 1, 2>(out),
                (_, 6) => self.run::<L, 6, 1>(out),
                (_, 5) => self.run::<L, 5, 1>(out),
                (_, 4) => self.run::<L, 4, 1>(out),
                (_, 3) => self.run::<L, 3, 1>(out),
                (_, 2) => self.run::<L, 2, 1>(out),
                _ => self.run::<L, 1, 1>(out),
            }
        }
    }

    #[inline(always)]
    unsafe fn run<L: Lanes, const ROWS: usize, const VECTORS: usize>(&self, out: *mut f32) {
        // SAFETY: `a` holds k times ROWS floats, `panel` k rows of columns; the caller owns the
        // tile of the output.
        unsafe {
            let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
            if self.accumulate && self.columns == VECTORS * LANES {
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        *sum = L::load(out.add(row * self.stride + vector * LANES));
                    }
                }
            }
            let (a, panel) = (self.a.as_ptr(), self.panel.as_ptr());
            for position in 0..self.k {
                let mut w = [L::splat(0.0); VECTORS];
                for (vector, w) in w.iter_mut().enumerate() {
                    *w = L::load(panel.add(position * PANEL + vector * LANES));
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = L::splat(*a.add(position * ROWS + row));
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = x.mul_add(w, *sum);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                let target = out.add(row * self.stride);
                for (vector, lanes) in sums.iter().enumerate() {
                    let target = target.add(vector * LANES);
                    if self.columns == VECTORS * LANES {
                        lanes.store(target);
                        continue;
                    }
                    let count = LANES.min(self.columns.saturating_sub(vector * LANES));
                    let lanes = lanes.to_array();
                    for (column, value) in lanes[..count].iter().enumerate() {
                        let target = target.add(column);
                        *target = if self.accumulate {
                            *target + value
                        } else {
                            *value
                        };
                    }
                }
            }
        }
    }
}
