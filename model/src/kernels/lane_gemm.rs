//! Matrix product in f32 on vector lanes: `out[m, n] = a[m, k] · w[n, k]ᵀ`.
//!
//! Weights are stored as panels of 32 output columns (`[n / 32, k, 32]`), as floats or in
//! fewer bits; inputs as tiles of rows (`[m / rows, k, rows]`), so that the inner loop reads both
//! operands in order. Every output element
//! is one chain of additions over k, whatever m is: batching does not change a result by a single bit.

#![expect(
    unsafe_code,
    reason = "SIMD kernel with raw tiles; disjoint output tiles across threads"
)]

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use super::aligned::AlignedFloats;
use super::blocks::{BlockScales, Blocks, Halves};
use super::fresh;
use super::simd::{LANES, Lanes, dispatch};

/// Output columns of one panel: two vectors of sixteen.
pub(super) const PANEL: usize = 32;
/// Bytes of inputs that should stay in the second-level cache while panels stream past.
const BLOCK_BYTES: usize = 448 << 10;
/// So many rows at least are computed with a panel once it is there.
const BLOCK_ROWS: usize = 96;
/// Positions of k computed at a time, at most: that much of a panel stays in the first-level cache
/// while the tiles of a block pass. Sums go on from one part to the next, so this does not change them.
pub(super) const DEPTH: usize = 320;
/// Parts of k begin at multiples of this, as blocks of weights do.
pub(super) const DEPTH_STEP: usize = 64;
/// Bytes of panels, as floats, of one unit of parallel work, where there are several blocks of rows:
/// they stay in the cache too while the blocks pass. With one block, as in decoding, units are single
/// panels: few large ones would leave a thread waiting.
const UNIT_BYTES: usize = 448 << 10;

/// A weight matrix `[n, k]` in panels.
#[derive(Clone)]
pub(super) struct Panels {
    store: Store,
    n: usize,
    k: usize,
}

#[derive(Clone)]
enum Store {
    Floats(AlignedFloats),
    Halves(Halves),
    Blocks(Blocks),
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
        Self {
            store: Store::Floats(values),
            n,
            k,
        }
    }

    /// Store row-major `weight[n, k]` in as few bits as hold it exactly: in blocks if `scales` describe
    /// every element, or as halves.
    pub(super) fn compact(
        weight: &[f32],
        n: usize,
        k: usize,
        scales: Option<&BlockScales>,
    ) -> Option<Self> {
        let blocks = scales
            .filter(|scales| {
                let divides = |length: usize| length.is_multiple_of(scales.group);
                divides(k) && divides(DEPTH_STEP)
            })
            .and_then(|scales| Blocks::new(weight, n, k, scales));
        let store = match blocks {
            Some(blocks) => Store::Blocks(blocks),
            None => Store::Halves(Halves::new(weight, n, k)?),
        };
        Some(Self { store, n, k })
    }

    pub(super) fn bytes(&self) -> usize {
        match &self.store {
            Store::Floats(values) => size_of_val::<[f32]>(values),
            Store::Halves(halves) => halves.bytes(),
            Store::Blocks(blocks) => blocks.bytes(),
        }
    }

    /// Store the transpose of row-major `values[k, n]`: a panel is a band of its columns as it is.
    pub(super) fn new_transposed(values: &[f32], n: usize, k: usize) -> Self {
        let floats = AlignedFloats::rows(n.div_ceil(PANEL), PANEL * k, |index, panel| {
            let first = index * PANEL;
            let columns = PANEL.min(n - first);
            for (to, from) in panel.chunks_exact_mut(PANEL).zip(values.chunks_exact(n)) {
                to[..columns].copy_from_slice(&from[first..first + columns]);
            }
        });
        Self {
            store: Store::Floats(floats),
            n,
            k,
        }
    }

    /// The element at output feature `row` and input feature `column`.
    pub(super) fn weight_at(&self, row: usize, column: usize) -> f32 {
        match &self.store {
            Store::Floats(values) => {
                values[(row / PANEL) * PANEL * self.k + column * PANEL + row % PANEL]
            }
            Store::Halves(halves) => halves.at(row, column),
            Store::Blocks(blocks) => blocks.at(row, column),
        }
    }
}

/// `out[m, n] (+)= Σ tiles · wᵀ` over the terms. Without `accumulate` every element is written.
///
/// # Panics
/// If the terms do not fit each other or the output.
pub(super) fn sum_of_products(
    terms: &[(&Tiles, &Panels)],
    out: &mut [MaybeUninit<f32>],
    (m, n): (usize, usize),
    accumulate: bool,
) {
    assert_eq!(out.len(), m * n, "output of {m} × {n}");
    for (tiles, weight) in terms {
        assert_eq!((tiles.m, weight.n), (m, n), "rows and columns");
        assert_eq!(
            tiles.values.len(),
            m * weight.k,
            "input of {m} × {}",
            weight.k
        );
    }
    let k: usize = terms.iter().map(|(_, weight)| weight.k).sum();
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !accumulate {
            fresh::cleared(out);
        }
        return;
    }
    let row_bytes = size_of::<f32>() * k;
    let block_tiles = (BLOCK_BYTES / row_bytes).max(BLOCK_ROWS) / tile_rows();
    let tiles = m.div_ceil(tile_rows());
    let blocks = tiles.div_ceil(block_tiles);
    let all_panels = n.div_ceil(PANEL);
    let panels = match blocks {
        1 => 1,
        _ => {
            // Enough units for every thread to have its share.
            let share = blocks * all_panels / (4 * rayon::current_num_threads());
            (UNIT_BYTES / (row_bytes * PANEL)).min(share).max(1)
        }
    };
    let groups = all_panels.div_ceil(panels);
    let target = Output(out.as_mut_ptr().cast());
    let unit = |index: usize| {
        // Neighbouring units share the panels, which are the larger operand in decoding.
        let (group, block) = (index / blocks, index % blocks);
        let first = block * block_tiles;
        run_unit(Unit {
            terms,
            n,
            out: &target,
            panels: group * panels..all_panels.min((group + 1) * panels),
            tiles: first..tiles.min(first + block_tiles),
            accumulate,
        });
    };
    if is_small(m, n * k) || blocks * groups == 1 {
        (0..blocks * groups).for_each(unit);
    } else {
        (0..blocks * groups).into_par_iter().for_each(unit);
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
        let mut tiles = Self {
            values: Vec::new(),
            m,
            count: m.div_ceil(tile_rows()),
        };
        let lengths = (0..tiles.count).map(|tile| tiles.rows(tile).len() * k);
        tiles.values = fresh::parts(lengths.collect(), |tile, part| fill(tiles.rows(tile), part));
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
    terms: &'a [(&'a Tiles, &'a Panels)],
    n: usize,
    out: &'a Output,
    panels: Range<usize>,
    tiles: Range<usize>,
    accumulate: bool,
}

fn run_unit(unit: Unit<'_>) {
    dispatch!(unit_kernel(unit: Unit<'_>));
}

/// Floats of a part of a panel that is stored in fewer bits, on a cache line's border.
#[repr(align(64))]
struct Part(MaybeUninit<[f32; PANEL * DEPTH]>);

impl Panels {
    /// Positions of a panel as floats, `[positions, PANEL]`: where they lie, or decoded into `buffer`.
    #[inline(always)]
    fn part<'a>(
        &'a self,
        panel: usize,
        positions: Range<usize>,
        buffer: &'a mut Part,
    ) -> &'a [f32] {
        let length = positions.len() * PANEL;
        assert!(length <= PANEL * DEPTH, "a part of {length} floats");
        let buffer = buffer.0.as_mut_ptr().cast::<f32>();
        // SAFETY: the buffer has room for a part; where one is decoded all of it is written.
        unsafe {
            match &self.store {
                Store::Floats(values) => {
                    return &values[(panel * self.k + positions.start) * PANEL..][..length];
                }
                Store::Halves(halves) => halves.decode(panel, positions, buffer),
                Store::Blocks(blocks) => blocks.decode(panel, positions, buffer),
            }
            std::slice::from_raw_parts(buffer, length)
        }
    }
}

#[inline(always)]
unsafe fn unit_kernel<L: Lanes>(unit: Unit<'_>) {
    let n = unit.n;
    let mut decoded = Part(MaybeUninit::uninit());
    for panel in unit.panels.clone() {
        let width = PANEL.min(n - panel * PANEL);
        // All terms of a panel in turn, while the sums so far are in the cache.
        let mut accumulate = unit.accumulate;
        for (tiles, weight) in unit.terms {
            let k = weight.k;
            let depth = depth(k);
            for start in (0..k).step_by(depth) {
                let end = k.min(start + depth);
                let part = weight.part(panel, start..end, &mut decoded);
                for first in (0..width).step_by(L::TILE_VECTORS * LANES) {
                    for index in unit.tiles.clone() {
                        let rows = tiles.rows(index);
                        let height = rows.len();
                        let at = rows.start * k;
                        let tile = Tile {
                            k: end - start,
                            a: &tiles.values[at + start * height..at + end * height],
                            panel: &part[first..],
                            columns: (width - first).min(L::TILE_VECTORS * LANES),
                            stride: n,
                            accumulate,
                            next: height * n,
                        };
                        // SAFETY: tiles of different units and rows do not overlap and lie inside the
                        // output, whose size was checked.
                        unsafe {
                            let out = unit.out.0.add(rows.start * n + panel * PANEL + first);
                            tile.dispatch::<L>(height, out);
                        }
                    }
                }
                accumulate = true;
            }
        }
    }
}

/// Positions computed at a time, of `k`: parts of about one size, since a short one costs as many loads
/// and stores of sums as a long one.
fn depth(k: usize) -> usize {
    let parts = k.div_ceil(DEPTH).max(1);
    k.div_ceil(parts).next_multiple_of(DEPTH_STEP)
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
    /// Distance from this tile's output to that of the tile after it.
    next: usize,
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
            if self.accumulate {
                // The next tile's sums are far away: by then they are here. Past the last one there is
                // nothing, which a prefetch may be told to bring.
                for (row, vector) in (0..ROWS).flat_map(|row| (0..VECTORS).map(move |v| (row, v))) {
                    L::prefetch(out.wrapping_add(self.next + row * self.stride + vector * LANES));
                }
            }
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
