//! Attention over a [`TokenTree`]: forward and backward, grouped-query, exact softmax.
//!
//! Work is split by head and segment. The queries of a segment see its ancestors whole and its own
//! tokens causally, so scores are a few dense products against ranges of the packed keys; nothing
//! is gathered or padded.

#![expect(
    unsafe_code,
    reason = "strided matrix products on raw parts; one thread per head"
)]

use std::ops::Range;

use rayon::prelude::*;

use super::rows;
use crate::tree::TokenTree;

/// Head counts and width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) key_value: usize,
    pub(crate) width: usize,
}

impl Heads {
    /// Key-value head that query head `head` reads.
    fn group(self, head: usize) -> usize {
        head / (self.query / self.key_value)
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

/// What the queries of one segment see.
struct Sight {
    queries: Range<usize>,
    /// Ranges of visible keys in order; the last is the segment itself.
    keys: Vec<Range<usize>>,
    visible: usize,
}

fn sights(tree: &TokenTree) -> Vec<Sight> {
    tree.segments
        .iter()
        .enumerate()
        .map(|(index, segment)| {
            let mut keys = tree.ancestors(index);
            keys.push(segment.tokens.clone());
            let visible = keys.iter().map(ExactSizeIterator::len).sum();
            Sight {
                queries: segment.tokens.clone(),
                keys,
                visible,
            }
        })
        .collect()
}

/// Softmax probabilities `[queries, visible]` of one head and segment.
fn probabilities(sight: &Sight, heads: Heads, head: usize, q: &[f32], k: &[f32]) -> Vec<f32> {
    let (m, visible) = (sight.queries.len(), sight.visible);
    let mut scores = vec![0.0; m * visible];
    let query = View::head(q, &sight.queries, head, heads.query, heads.width);
    let mut column = 0;
    for range in &sight.keys {
        let key = View::head(k, range, heads.group(head), heads.key_value, heads.width);
        let shape = (m, range.len(), heads.width);
        product(
            shape,
            query,
            key.transposed(),
            &mut scores[column..],
            visible,
            heads.scale(),
            false,
        );
        column += range.len();
    }
    let before = visible - m;
    for (row, scores) in scores.chunks_exact_mut(visible).enumerate() {
        let (seen, hidden) = scores.split_at_mut(before + row + 1);
        rows::softmax(seen);
        hidden.fill(0.0);
    }
    scores
}

/// `softmax(q kᵀ / √width) v` per head; `q` and the result `[tokens, query · width]`, `k` and `v`
/// `[tokens, key_value · width]`.
pub(crate) fn forward(tree: &TokenTree, heads: Heads, q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
    let sights = sights(tree);
    let by_head: Vec<Vec<f32>> = (0..heads.query)
        .into_par_iter()
        .map(|head| {
            let mut out = vec![0.0; tree.len() * heads.width];
            for sight in &sights {
                let p = probabilities(sight, heads, head, q, k);
                let target =
                    &mut out[sight.queries.start * heads.width..sight.queries.end * heads.width];
                let mut column = 0;
                for range in &sight.keys {
                    let value =
                        View::head(v, range, heads.group(head), heads.key_value, heads.width);
                    let p = View {
                        data: &p[column..],
                        row: sight.visible,
                        column: 1,
                    };
                    let shape = (sight.queries.len(), heads.width, range.len());
                    product(shape, p, value, target, heads.width, 1.0, column > 0);
                    column += range.len();
                }
            }
            out
        })
        .collect();
    interleave(&by_head, tree.len(), heads.width)
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
    let width = heads.width;
    let mut by_head: Vec<[Vec<f32>; 3]> = (0..heads.query)
        .into_par_iter()
        .map(|head| {
            let empty = || vec![0.0; tree.len() * width];
            let (mut dq, mut dk, mut dv) = (empty(), empty(), empty());
            for sight in &sights {
                let (m, visible) = (sight.queries.len(), sight.visible);
                let p = probabilities(sight, heads, head, q, k);
                let gradient = View::head(dout, &sight.queries, head, heads.query, width);
                let query = View::head(q, &sight.queries, head, heads.query, width);
                let mut ds = vec![0.0; m * visible];
                let mut column = 0;
                for range in &sight.keys {
                    let value = View::head(v, range, heads.group(head), heads.key_value, width);
                    let shape = (m, range.len(), width);
                    product(
                        shape,
                        gradient,
                        value.transposed(),
                        &mut ds[column..],
                        visible,
                        1.0,
                        false,
                    );
                    // dV = pᵀ dO, summed over all segments that see the range.
                    let p = View {
                        data: &p[column..],
                        row: visible,
                        column: 1,
                    }
                    .transposed();
                    let target = &mut dv[range.start * width..range.end * width];
                    product(
                        (range.len(), width, m),
                        p,
                        gradient,
                        target,
                        width,
                        1.0,
                        true,
                    );
                    column += range.len();
                }
                // dS = p ∘ (dP − Σ dO ∘ O), the softmax's own gradient.
                for row in 0..m {
                    let at = (sight.queries.start + row) * heads.query * width + head * width;
                    let dot: f32 = out[at..at + width]
                        .iter()
                        .zip(&dout[at..at + width])
                        .map(|(a, b)| a * b)
                        .sum();
                    let span = row * visible..(row + 1) * visible;
                    for (ds, p) in ds[span.clone()].iter_mut().zip(&p[span]) {
                        *ds = p * (*ds - dot);
                    }
                }
                let mut column = 0;
                for range in &sight.keys {
                    let key = View::head(k, range, heads.group(head), heads.key_value, width);
                    let ds = View {
                        data: &ds[column..],
                        row: visible,
                        column: 1,
                    };
                    let target = &mut dq[sight.queries.start * width..sight.queries.end * width];
                    product(
                        (m, width, range.len()),
                        ds,
                        key,
                        target,
                        width,
                        heads.scale(),
                        column > 0,
                    );
                    let target = &mut dk[range.start * width..range.end * width];
                    let shape = (range.len(), width, m);
                    product(
                        shape,
                        ds.transposed(),
                        query,
                        target,
                        width,
                        heads.scale(),
                        true,
                    );
                    column += range.len();
                }
            }
            [dq, dk, dv]
        })
        .collect();
    let dq: Vec<Vec<f32>> = by_head
        .iter_mut()
        .map(|g| std::mem::take(&mut g[0]))
        .collect();
    let [dk, dv] = [1, 2].map(|which| {
        let mut groups: Vec<Vec<f32>> = Vec::with_capacity(heads.key_value);
        for (head, gradients) in by_head.iter_mut().enumerate() {
            let part = std::mem::take(&mut gradients[which]);
            if heads.group(head) == groups.len() {
                groups.push(part);
            } else if let Some(sum) = groups.last_mut() {
                sum.iter_mut().zip(&part).for_each(|(a, b)| *a += b);
            }
        }
        interleave(&groups, tree.len(), width)
    });
    [interleave(&dq, tree.len(), width), dk, dv]
}

/// `[heads][tokens, width]` to `[tokens, heads · width]`.
fn interleave(by_head: &[Vec<f32>], tokens: usize, width: usize) -> Vec<f32> {
    let row = by_head.len() * width;
    let mut out = vec![0.0; tokens * row];
    if row > 0 {
        out.par_chunks_mut(row)
            .enumerate()
            .for_each(|(token, target)| {
                for (head, values) in by_head.iter().enumerate() {
                    target[head * width..(head + 1) * width]
                        .copy_from_slice(&values[token * width..(token + 1) * width]);
                }
            });
    }
    out
}
