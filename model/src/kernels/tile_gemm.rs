//! Matrix product in bfloat16 with f32 sums, on processors with instructions for it ([`Unit`]).
//!
//! A float is stored as one bfloat16 (8 significant bits), or as the sum of two, `high + low`
//! (16 bits). With two parts the product is `a_high·w_high + a_high·w_low + a_low·w_high`, wrong by
//! some 2⁻¹⁶ of each term: between bfloat16 and f32, at three instructions instead of one. Every
//! output element is one chain of additions over k, whatever the batch, as in the f32 kernel.
//!
//! Both operands are stored as tiles of 16 rows of 64 bytes, the order in which they are read:
//! inputs `[m / 32][k / 32][part][2][16 rows][32]`, weights `[n / 32][k / 32][part][2]` of sixteen
//! pairs of k times sixteen columns. What a shape leaves over is zero.

#![expect(unsafe_code, reason = "raw blocks of output, disjoint across threads")]

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::bf16_unit::{Product, Unit};

/// Rows and columns of one block of output: two tiles each way.
pub(super) const BLOCK: usize = 32;
/// Values of k in one tile.
const DEPTH: usize = 32;
/// Values of one tile.
const TILE: usize = 512;
/// Row blocks whose inputs should stay in the second-level cache while panels stream past.
const UNIT_ROWS: usize = 4;
/// Panels of one unit of parallel work, where there are several bands of rows; with one, as in
/// decoding, units are single panels: few large ones would leave a thread waiting.
const UNIT_PANELS: usize = 4;

/// One cache line of bfloat16 values.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u16; DEPTH]);

/// A matrix of tiles in `parts` parts.
#[derive(Clone)]
pub(super) struct Tiles {
    lines: Vec<Line>,
    /// Blocks of 32 rows (inputs) or panels of 32 columns (weights).
    blocks: usize,
    /// Tiles along k.
    depth: usize,
    parts: usize,
}

impl Tiles {
    /// Lines of one block: both tiles of every part over all of k.
    fn block_lines(&self) -> usize {
        self.depth * self.parts * 2 * (TILE / DEPTH)
    }

    /// Tiles of zeros for `count` vectors of length `k`.
    fn zeros(count: usize, k: usize, parts: usize) -> Self {
        let (blocks, depth) = (count.div_ceil(BLOCK), k.div_ceil(DEPTH));
        Self {
            lines: vec![Line([0; DEPTH]); blocks * depth * parts * 2 * (TILE / DEPTH)],
            blocks,
            depth,
            parts,
        }
    }

    /// Store `count` vectors of length `k`, `row(i, out)` writing vector i's values.
    fn build(
        count: usize,
        k: usize,
        parts: usize,
        is_paired: bool,
        row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        let mut tiles = Self::zeros(count, k, parts);
        let size = tiles.block_lines();
        if size == 0 {
            return tiles;
        }
        let source = Vectors {
            row,
            count,
            k,
            parts,
            is_paired,
        };
        let fill = |(block, lines): (usize, &mut [Line])| wide(|| source.fill(block, lines));
        if count * k < 1 << 13 {
            tiles
                .lines
                .chunks_exact_mut(size)
                .enumerate()
                .for_each(fill);
        } else {
            tiles
                .lines
                .par_chunks_exact_mut(size)
                .enumerate()
                .for_each(fill);
        }
        tiles
    }

    /// Store the columns of row-major `values[k, count]` as vectors of length `k`, sixteen columns
    /// and 32 positions of k at a time.
    fn build_transposed(
        values: &[f32],
        count: usize,
        k: usize,
        parts: usize,
        is_paired: bool,
    ) -> Self {
        let mut tiles = Self::zeros(count, k, parts);
        let size = tiles.block_lines();
        if size == 0 {
            return tiles;
        }
        let source = Columns {
            values,
            count,
            k,
            parts,
            is_paired,
        };
        let each = tiles.lines.par_chunks_exact_mut(size).enumerate();
        each.for_each(|(block, lines)| wide(|| source.fill(block, lines)));
        tiles
    }

    /// Rows `a[m, k]` to multiply.
    pub(super) fn inputs(a: &[f32], m: usize, k: usize, parts: usize) -> Self {
        Self::build(m, k, parts, false, |row, out| {
            out.copy_from_slice(&a[row * k..(row + 1) * k]);
        })
    }

    /// A weight of `n` output features, `row(i, out)` writing feature i's `k` values.
    pub(super) fn weights(
        n: usize,
        k: usize,
        parts: usize,
        row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        Self::build(n, k, parts, true, row)
    }

    /// The columns of row-major `a[k, m]` as rows to multiply.
    pub(super) fn inputs_transposed(a: &[f32], m: usize, k: usize, parts: usize) -> Self {
        Self::build_transposed(a, m, k, parts, false)
    }

    /// The transpose of row-major `values[k, n]` as a weight.
    pub(super) fn weights_transposed(values: &[f32], n: usize, k: usize, parts: usize) -> Self {
        Self::build_transposed(values, n, k, parts, true)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    /// A stored weight, as the sum of its parts.
    pub(super) fn weight_at(&self, row: usize, column: usize) -> f32 {
        let (block, at) = (row / BLOCK, row % BLOCK);
        let (position, inside) = (column / DEPTH, column % DEPTH);
        (0..self.parts)
            .map(|part| {
                let tile = (position * self.parts + part) * 2 + at / 16;
                let line = block * self.block_lines() + tile * (TILE / DEPTH) + inside / 2;
                let bits = self.lines[line].0[2 * (at % 16) + inside % 2];
                f32::from_bits(u32::from(bits) << 16)
            })
            .sum()
    }
}

/// Vectors of length `k`, `row(i, out)` writing vector i's values, to be stored in tiles.
struct Vectors<Row> {
    row: Row,
    count: usize,
    k: usize,
    parts: usize,
    is_paired: bool,
}

impl<Row: Fn(usize, &mut [f32])> Vectors<Row> {
    /// Writes the tiles of one block of 32 vectors.
    #[inline(always)]
    fn fill(&self, block: usize, lines: &mut [Line]) {
        let mut values = vec![0.0f32; self.k.next_multiple_of(DEPTH)];
        for at in 0..BLOCK.min(self.count - block * BLOCK) {
            (self.row)(block * BLOCK + at, &mut values[..self.k]);
            let (values, _) = values.as_chunks::<DEPTH>();
            let (side, line) = (at / 16, at % 16);
            for (position, values) in values.iter().enumerate() {
                for part in 0..self.parts {
                    let halves = halves(values, part);
                    let tile = (position * self.parts + part) * 2 + side;
                    let lines = &mut lines[tile * (TILE / DEPTH)..(tile + 1) * (TILE / DEPTH)];
                    if self.is_paired {
                        for (to, pair) in lines.iter_mut().zip(halves.chunks_exact(2)) {
                            to.0[2 * line..2 * line + 2].copy_from_slice(pair);
                        }
                    } else {
                        lines[line].0 = halves;
                    }
                }
            }
        }
    }
}

/// The columns of row-major `values[k, count]`, to be stored in tiles.
struct Columns<'a> {
    values: &'a [f32],
    count: usize,
    k: usize,
    parts: usize,
    is_paired: bool,
}

impl Columns<'_> {
    /// Writes the tiles of one block of 32 columns.
    #[inline(always)]
    fn fill(&self, block: usize, lines: &mut [Line]) {
        let mut halves = [[0u16; 16]; DEPTH];
        for (index, tile) in lines.chunks_exact_mut(TILE / DEPTH).enumerate() {
            // Tiles of one position come part by part, two tiles each.
            let position = index / (2 * self.parts);
            let (part, side) = (index / 2 % self.parts, index % 2);
            let first = block * BLOCK + side * 16;
            if first >= self.count {
                continue;
            }
            let columns = 16.min(self.count - first);
            let depth = DEPTH.min(self.k - position * DEPTH);
            for (at, row) in halves.iter_mut().take(depth).enumerate() {
                let from = (position * DEPTH + at) * self.count + first;
                let mut values = [0.0; 16];
                values[..columns].copy_from_slice(&self.values[from..from + columns]);
                *row = self::halves(&values, part);
            }
            if self.is_paired {
                for (line, pair) in tile.iter_mut().zip(halves[..depth].chunks(2)) {
                    for (at, row) in pair.iter().enumerate() {
                        for (column, value) in row.iter().enumerate() {
                            line.0[2 * column + at] = *value;
                        }
                    }
                }
            } else {
                for (at, row) in halves[..depth].iter().enumerate() {
                    for (line, value) in tile.iter_mut().zip(row) {
                        line.0[at] = *value;
                    }
                }
            }
        }
    }
}

/// Runs `work`, compiled for wide registers where the processor has them.
#[inline(always)]
fn wide<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        fn wide<T>(work: impl FnOnce() -> T) -> T {
            work()
        }
        if std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the features were just detected.
            return unsafe { wide(work) };
        }
    }
    work()
}

/// One part of each value: first the nearest bfloat16, ties to even, then the nearest of what that
/// leaves.
#[inline(always)]
fn halves<const COUNT: usize>(values: &[f32; COUNT], part: usize) -> [u16; COUNT] {
    let mut out = [0; COUNT];
    for (value, out) in values.iter().zip(&mut out) {
        let high = rounded(*value);
        *out = if part == 0 { high } else { rest(*value, high) };
    }
    out
}

/// The nearest bfloat16 of what `high` leaves of the value.
#[inline(always)]
fn rest(value: f32, high: u16) -> u16 {
    let rest = value - f32::from_bits(u32::from(high) << 16);
    // An overflow to infinity leaves no meaningful rest.
    if rest.is_finite() { rounded(rest) } else { 0 }
}

#[inline(always)]
fn rounded(value: f32) -> u16 {
    let bits = value.to_bits();
    let up = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // Rounding must not carry a NaN's payload into infinity.
    let kept = bits >> 16 | 0x40;
    (if value.is_nan() { kept } else { up }) as u16
}

/// Base pointer of the output, shared by threads that write disjoint blocks.
struct Output(*mut f32);
// SAFETY: units write disjoint blocks and the borrow outlives them all.
unsafe impl Sync for Output {}

/// `out[m, n] (+)= Σ input · weightᵀ` over the terms; all of one number of parts.
///
/// # Panics
/// If the terms do not fit each other or the output, or this machine has no unit.
pub(super) fn sum_of_products(
    terms: &[(&Tiles, &Tiles)],
    out: &mut [MaybeUninit<f32>],
    shape: (usize, usize),
    accumulate: bool,
) {
    let unit = Unit::here().expect("instructions for bfloat16");
    // SAFETY: the machine has it.
    unsafe { sum_of_products_on(unit, terms, out, shape, accumulate) };
}

/// [`sum_of_products`] on a unit that this machine has.
unsafe fn sum_of_products_on(
    unit: Unit,
    terms: &[(&Tiles, &Tiles)],
    out: &mut [MaybeUninit<f32>],
    (m, n): (usize, usize),
    accumulate: bool,
) {
    assert_eq!(out.len(), m * n, "output of {m} × {n}");
    let (rows, panels) = (m.div_ceil(BLOCK), n.div_ceil(BLOCK));
    for (input, weight) in terms {
        assert_eq!((input.blocks, weight.blocks), (rows, panels), "blocks");
        assert_eq!(
            (input.depth, input.parts),
            (weight.depth, weight.parts),
            "tiles along k"
        );
        assert!(input.depth > 0, "an empty product");
    }
    let bands = rows.div_ceil(UNIT_ROWS);
    let unit_panels = if bands == 1 { 1 } else { UNIT_PANELS };
    let groups = panels.div_ceil(unit_panels);
    let target = Output(out.as_mut_ptr().cast());
    let run = |index: usize| {
        // Neighbouring units share the panels, which are the larger operand in decoding.
        let (group, band) = (index / bands, index % bands);
        let target = &target;
        // SAFETY: the unit is available; blocks of different units do not overlap and lie inside
        // the output, whose size was checked.
        unsafe {
            unit.begin();
            for panel in group * unit_panels..panels.min((group + 1) * unit_panels) {
                for row in band * UNIT_ROWS..rows.min((band + 1) * UNIT_ROWS) {
                    block(unit, terms, target.0, (m, n), (row, panel), accumulate);
                }
            }
            unit.end();
        }
    };
    if groups * bands == 1 {
        run(0);
    } else {
        (0..groups * bands).into_par_iter().for_each(run);
    }
}

/// One block of output.
unsafe fn block(
    unit: Unit,
    terms: &[(&Tiles, &Tiles)],
    out: *mut f32,
    (m, n): (usize, usize),
    (row, panel): (usize, usize),
    accumulate: bool,
) {
    let (height, width) = (BLOCK.min(m - row * BLOCK), BLOCK.min(n - panel * BLOCK));
    // SAFETY: the block begins inside the output.
    let corner = unsafe { out.add(row * BLOCK * n + panel * BLOCK) };
    let is_whole = height == BLOCK && width == BLOCK;
    let mut edge = [0.0f32; BLOCK * BLOCK];
    let (target, stride) = if is_whole {
        (corner, n)
    } else {
        if accumulate {
            for y in 0..height {
                // SAFETY: row y of the block has `width` floats in the output.
                let from = unsafe { std::slice::from_raw_parts(corner.add(y * n), width) };
                edge[y * BLOCK..y * BLOCK + width].copy_from_slice(from);
            }
        }
        (edge.as_mut_ptr(), BLOCK)
    };
    for (index, (input, weight)) in terms.iter().enumerate() {
        let product = Product {
            input: input.lines[row * input.block_lines()..].as_ptr().cast(),
            weight: weight.lines[panel * weight.block_lines()..].as_ptr().cast(),
            depth: input.depth,
            parts: input.parts,
            out: target,
            stride: stride * size_of::<f32>(),
            is_fresh: index == 0 && !accumulate,
            height,
        };
        // SAFETY: both operands have `depth` times `parts` pairs of tiles from there on, and the
        // target 32 rows of 32 floats.
        unsafe { unit.run(&product) };
    }
    if !is_whole {
        for y in 0..height {
            // SAFETY: row y of the block has `width` floats in the output, which only this unit
            // touches.
            let to = unsafe { std::slice::from_raw_parts_mut(corner.add(y * n), width) };
            to.copy_from_slice(&edge[y * BLOCK..y * BLOCK + width]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_agrees_with_the_plain_product() {
        // Inputs of few bits are exact in bfloat16, and so are their sums in f32.
        let value = |i: usize| (i * 7919 % 31) as f32 / 8.0 - 1.5;
        for unit in Unit::all_here() {
            for (m, n, k) in [
                (1, 40, 33),
                (12, 32, 64),
                (13, 70, 31),
                (29, 33, 96),
                (70, 65, 130),
            ] {
                for parts in [1, 2] {
                    let a: Vec<f32> = (0..m * k).map(value).collect();
                    let inputs = Tiles::inputs(&a, m, k, parts);
                    let weights = Tiles::weights(n, k, parts, |row, out| {
                        for (column, out) in out.iter_mut().enumerate() {
                            *out = value(3 * row + column);
                        }
                    });
                    let mut out = vec![2.0; m * n];
                    // SAFETY: the unit is one of those here.
                    unsafe {
                        let terms = [(&inputs, &weights)];
                        let out = crate::kernels::fresh::present(&mut out);
                        sum_of_products_on(unit, &terms, out, (m, n), true);
                    }
                    for (at, found) in out.iter().enumerate() {
                        let (row, column) = (at / n, at % n);
                        let terms = (0..k).map(|i| value(row * k + i) * value(3 * column + i));
                        assert_eq!(
                            *found,
                            2.0 + terms.sum::<f32>(),
                            "{unit:?} {m} {n} {k} {at}"
                        );
                    }
                }
            }
        }
    }
}
