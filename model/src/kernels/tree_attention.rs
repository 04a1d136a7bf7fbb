//! Attention over a [`TokenTree`]: forward and backward, grouped-query, exact softmax.
//!
//! Work is split by block of queries, on the way back by key-value head and half of the blocks. The queries of a block see the ancestors of
//! their segment whole and their own segment causally, so scores are a few dense products against
//! ranges of the packed keys; nothing is padded. The query heads of a group are stacked as rows, since
//! they read the same keys.

#![expect(
    unsafe_code,
    reason = "strided matrix products on raw parts; disjoint results across threads"
)]

use std::ops::Range;

use rayon::prelude::*;

use super::{fresh, rows};
use crate::tree::TokenTree;

/// Head counts and width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) key_value: usize,
    pub(crate) width: usize,
}

impl Heads {
    /// Query heads that read one key-value head.
    fn group(self) -> usize {
        self.query / self.key_value
    }
    fn scale(self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }
}

/// A strided matrix inside a slice.
#[derive(Clone, Copy)]
struct View<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

impl<'a> View<'a> {
    /// Rows `range` of head `head` in a packed `[tokens, heads * width]` array.
    fn head(
        data: &'a [f32],
        range: &Range<usize>,
        head: usize,
        heads: usize,
        width: usize,
    ) -> Self {
        let row = heads * width;
        let (start, end) = (range.start * row + head * width, range.end * row);
        Self {
            data: &data[start.min(end)..end],
            row,
            column: 1,
        }
    }
    fn transposed(self) -> Self {
        Self {
            row: self.column,
            column: self.row,
            ..self
        }
    }
}

/// `out[m, n] (+)= scale · a[m, k] · b[k, n]`, `out` row-major with row stride `stride`.
fn product(
    (m, n, k): (usize, usize, usize),
    a: View<'_>,
    b: View<'_>,
    out: &mut [f32],
    stride: usize,
    scale: f32,
    accumulate: bool,
) {
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    let last =
        |v: View<'_>, rows: usize, columns: usize| (rows - 1) * v.row + (columns - 1) * v.column;
    assert!(last(a, m, k) < a.data.len() && last(b, k, n) < b.data.len());
    assert!((m - 1) * stride + n <= out.len());
    let signed = |stride: usize| stride as isize;
    // SAFETY: the farthest element of each operand was just checked to lie inside its slice.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            signed(stride),
            accumulate,
            a.data.as_ptr(),
            signed(a.column),
            signed(a.row),
            b.data.as_ptr(),
            signed(b.column),
            signed(b.row),
            1.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Tokens of one block of queries: small enough for its scores to stay in the second-level cache and
/// to skip most of what causality hides, large enough for the products to run at speed.
const QUERY_BLOCK: usize = 64;
/// Parts of the backward pass of one key-value head, each with sums of its own. Fixed, so that the
/// order of additions does not depend on the number of threads.
const PARTS: usize = 2;

/// What a block of queries of one segment sees.
struct Sight {
    queries: Range<usize>,
    /// Ranges of visible keys in order; the last is the segment itself up to the block's end.
    keys: Vec<Range<usize>>,
    visible: usize,
}

fn sights(tree: &TokenTree) -> Vec<Sight> {
    let mut found = Vec::new();
    for (index, segment) in tree.segments.iter().enumerate() {
        let ancestors = tree.ancestors(index);
        let Range { start, end } = segment.tokens;
        for first in (start..end).step_by(QUERY_BLOCK) {
            let queries = first..end.min(first + QUERY_BLOCK);
            let mut keys = ancestors.clone();
            keys.push(start..queries.end);
            let visible = keys.iter().map(ExactSizeIterator::len).sum();
            found.push(Sight {
                queries,
                keys,
                visible,
            });
        }
    }
    found
}

/// Rows `range` of the query heads of group `kv`, stacked: `[group · rows, width]`, head by head.
fn stack(data: &[f32], range: &Range<usize>, heads: Heads, kv: usize) -> Vec<f32> {
    let (group, width) = (heads.group(), heads.width);
    let mut out = Vec::with_capacity(group * range.len() * width);
    for head in kv * group..(kv + 1) * group {
        for token in range.clone() {
            let at = (token * heads.query + head) * width;
            out.extend_from_slice(&data[at..at + width]);
        }
    }
    out
}

/// Put stacked rows back to where [`stack`] takes them from, of tokens that begin with `data`.
fn unstack(rows: &[f32], heads: Heads, kv: usize, data: &mut [f32]) {
    let (group, width) = (heads.group(), heads.width);
    let tokens = rows.len() / (group * width);
    let order =
        (kv * group..(kv + 1) * group).flat_map(|head| (0..tokens).map(move |token| (token, head)));
    for ((token, head), row) in order.zip(rows.chunks_exact(width)) {
        let at = (token * heads.query + head) * width;
        data[at..at + width].copy_from_slice(row);
    }
}

/// Floats that a sight's queries take in an array shaped as `q`. Sights follow each other in it.
fn lengths(sights: &[Sight], heads: Heads) -> Vec<usize> {
    let width = heads.query * heads.width;
    sights.iter().map(|s| s.queries.len() * width).collect()
}

/// Rows of a matrix with nothing between them.
fn dense(data: &[f32], columns: usize) -> View<'_> {
    View {
        data,
        row: columns,
        column: 1,
    }
}

/// Softmax probabilities `[group · queries, visible]` of stacked queries.
fn probabilities(sight: &Sight, heads: Heads, kv: usize, query: &[f32], k: &[f32]) -> Vec<f32> {
    let (tokens, visible) = (sight.queries.len(), sight.visible);
    let rows = heads.group() * tokens;
    let mut scores = vec![0.0; rows * visible];
    let mut column = 0;
    for range in &sight.keys {
        let key = View::head(k, range, kv, heads.key_value, heads.width);
        product(
            (rows, range.len(), heads.width),
            dense(query, heads.width),
            key.transposed(),
            &mut scores[column..],
            visible,
            heads.scale(),
            false,
        );
        column += range.len();
    }
    for (row, scores) in scores.chunks_exact_mut(visible).enumerate() {
        let (seen, hidden) = scores.split_at_mut(visible - tokens + row % tokens + 1);
        rows::softmax(seen);
        hidden.fill(0.0);
    }
    scores
}

/// `softmax(q kᵀ / √width) v` per head; `q` and the result `[tokens, query · width]`, `k` and `v`
/// `[tokens, key_value · width]`.
pub(crate) fn forward(tree: &TokenTree, heads: Heads, q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
    let sights = sights(tree);
    let width = heads.width;
    fresh::parts(lengths(&sights, heads), |index, rows| {
        let sight = &sights[index];
        for kv in 0..heads.key_value {
            let query = stack(q, &sight.queries, heads, kv);
            let p = probabilities(sight, heads, kv, &query, k);
            let mut out = vec![0.0; query.len()];
            let mut column = 0;
            for range in &sight.keys {
                let value = View::head(v, range, kv, heads.key_value, width);
                product(
                    (query.len() / width, width, range.len()),
                    dense(&p[column..], sight.visible),
                    value,
                    &mut out,
                    width,
                    1.0,
                    column > 0,
                );
                column += range.len();
            }
            unstack(&out, heads, kv, rows);
        }
    })
}

/// The arrays of a backward pass; shapes as in [`forward`].
#[derive(Clone, Copy)]
struct Arrays<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    out: &'a [f32],
    dout: &'a [f32],
}

/// Gradients by `q`, `k` and `v`, given the gradient `dout` of [`forward`]'s result `out`.
pub(crate) fn backward(
    tree: &TokenTree,
    heads: Heads,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    out: &[f32],
    dout: &[f32],
) -> [Vec<f32>; 3] {
    let sights = sights(tree);
    let arrays = Arrays { q, k, v, out, dout };
    let halves = split_evenly(&sights);
    let parts: Vec<Part> = (0..heads.key_value * PARTS)
        .into_par_iter()
        .map(|unit| {
            Part::compute(
                halves[unit % PARTS],
                heads,
                unit / PARTS,
                tree.len(),
                arrays,
            )
        })
        .collect();
    // Of a sight, its half and its place in it.
    let places: Vec<(usize, usize)> = (0..PARTS)
        .flat_map(|half| (0..halves[half].len()).map(move |place| (half, place)))
        .collect();
    let dq = fresh::parts(lengths(&sights, heads), |index, rows| {
        let (half, place) = places[index];
        for kv in 0..heads.key_value {
            unstack(&parts[kv * PARTS + half].dq[place], heads, kv, rows);
        }
    });
    let width = heads.width;
    let summed = |of: fn(&Part) -> &[f32]| {
        fresh::rows(tree.len(), heads.key_value * width, |token, row| {
            for (kv, row) in row.chunks_exact_mut(width).enumerate() {
                for part in &parts[kv * PARTS..(kv + 1) * PARTS] {
                    let values = &of(part)[token * width..(token + 1) * width];
                    row.iter_mut().zip(values).for_each(|(a, b)| *a += b);
                }
            }
        })
    };
    [dq, summed(|part| &part.dk), summed(|part| &part.dv)]
}

/// The sights in order, cut where half of the scores are passed.
fn split_evenly(sights: &[Sight]) -> [&[Sight]; PARTS] {
    let cost = |sight: &Sight| sight.queries.len() * sight.visible;
    let total: usize = sights.iter().map(cost).sum();
    let mut sum = 0;
    let at = sights.iter().position(|sight| {
        sum += cost(sight);
        2 * sum >= total
    });
    let (first, second) = sights.split_at(at.map_or(0, |at| at + 1));
    [first, second]
}

/// Gradients of some sights of one key-value head.
struct Part {
    /// Stacked rows of each sight.
    dq: Vec<Vec<f32>>,
    /// `[tokens, width]`
    dk: Vec<f32>,
    /// `[tokens, width]`
    dv: Vec<f32>,
}

impl Part {
    fn compute(
        sights: &[Sight],
        heads: Heads,
        kv: usize,
        tokens: usize,
        arrays: Arrays<'_>,
    ) -> Self {
        let width = heads.width;
        let mut part = Self {
            dq: Vec::with_capacity(sights.len()),
            dk: vec![0.0; tokens * width],
            dv: vec![0.0; tokens * width],
        };
        for sight in sights {
            let dq = part.add(sight, heads, kv, arrays);
            part.dq.push(dq);
        }
        part
    }

    /// Adds a sight's gradients by keys and values, returns those by its queries.
    fn add(&mut self, sight: &Sight, heads: Heads, kv: usize, arrays: Arrays<'_>) -> Vec<f32> {
        let (width, visible) = (heads.width, sight.visible);
        let stacked = |data| stack(data, &sight.queries, heads, kv);
        let (query, gradient) = (stacked(arrays.q), stacked(arrays.dout));
        let rows = query.len() / width;
        let p = probabilities(sight, heads, kv, &query, arrays.k);
        let mut ds = vec![0.0; rows * visible];
        let mut column = 0;
        for range in &sight.keys {
            let value = View::head(arrays.v, range, kv, heads.key_value, width);
            product(
                (rows, range.len(), width),
                dense(&gradient, width),
                value.transposed(),
                &mut ds[column..],
                visible,
                1.0,
                false,
            );
            // dV = pᵀ dO, summed over all blocks that see the range.
            product(
                (range.len(), width, rows),
                dense(&p[column..], visible).transposed(),
                dense(&gradient, width),
                &mut self.dv[range.start * width..range.end * width],
                width,
                1.0,
                true,
            );
            column += range.len();
        }
        // dS = p ∘ (dP − Σ dO ∘ O), the softmax's own gradient.
        let out = stacked(arrays.out);
        let results = out.chunks_exact(width).zip(gradient.chunks_exact(width));
        let scores = ds.chunks_exact_mut(visible).zip(p.chunks_exact(visible));
        for ((out, gradient), (ds, p)) in results.zip(scores) {
            let dot: f32 = out.iter().zip(gradient).map(|(a, b)| a * b).sum();
            for (ds, p) in ds.iter_mut().zip(p) {
                *ds = p * (*ds - dot);
            }
        }
        let mut dq = vec![0.0; rows * width];
        let mut column = 0;
        for range in &sight.keys {
            let key = View::head(arrays.k, range, kv, heads.key_value, width);
            let ds = dense(&ds[column..], visible);
            product(
                (rows, width, range.len()),
                ds,
                key,
                &mut dq,
                width,
                heads.scale(),
                column > 0,
            );
            product(
                (range.len(), width, rows),
                ds.transposed(),
                dense(&query, width),
                &mut self.dk[range.start * width..range.end * width],
                width,
                heads.scale(),
                true,
            );
            column += range.len();
        }
        dq
    }
}
