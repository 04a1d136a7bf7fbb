//! The attention of one token, or of two that see the same blocks first, on one thread.

#![expect(unsafe_code, reason = "SIMD lanes")]

use std::ops::Range;

use super::super::rows::softmax_kernel;
use super::super::simd::{LANES, Lanes, dispatch};
use super::{BLOCK, LayerCache, Reader};

/// Attention of one token.
pub(super) fn alone(cache: &LayerCache, reader: Reader<'_>, q: &[f32], out: &mut [f32]) {
    dispatch!(alone_kernel(cache: &LayerCache, reader: Reader<'_>, q: &[f32], out: &mut [f32]));
}

#[inline(always)]
pub(super) unsafe fn alone_kernel<L: Lanes>(
    cache: &LayerCache,
    reader: Reader<'_>,
    q: &[f32],
    out: &mut [f32],
) {
    let mut rows = Rows::new(cache, [reader], 0);
    for part in rows.parts() {
        let (q, out) = ([&q[part.range()]], [&mut out[part.range()]]);
        // SAFETY: block ids come from the pool that sized the arrays.
        unsafe {
            match part.count {
                4 => rows.heads::<L, 4, 4>(part.kv, q, out),
                3 => rows.heads::<L, 3, 3>(part.kv, q, out),
                2 => rows.heads::<L, 2, 2>(part.kv, q, out),
                _ => rows.heads::<L, 1, 1>(part.kv, q, out),
            }
        }
    }
}

/// Attention of two tokens that see the same `shared` blocks first.
pub(super) fn together(
    cache: &LayerCache,
    readers: [Reader<'_>; 2],
    shared: usize,
    q: [&[f32]; 2],
    out: [&mut [f32]; 2],
) {
    dispatch!(together_kernel(
        cache: &LayerCache,
        readers: [Reader<'_>; 2],
        shared: usize,
        q: [&[f32]; 2],
        out: [&mut [f32]; 2],
    ));
}

#[inline(always)]
unsafe fn together_kernel<L: Lanes>(
    cache: &LayerCache,
    readers: [Reader<'_>; 2],
    shared: usize,
    q: [&[f32]; 2],
    out: [&mut [f32]; 2],
) {
    let mut rows = Rows::new(cache, readers, shared);
    let [first, second] = out;
    for part in rows.parts() {
        let q = q.map(|q| &q[part.range()]);
        let out = [&mut first[part.range()], &mut second[part.range()]];
        // SAFETY: block ids come from the pool that sized the arrays.
        unsafe {
            match part.count {
                4 => rows.heads::<L, 4, 8>(part.kv, q, out),
                3 => rows.heads::<L, 3, 6>(part.kv, q, out),
                2 => rows.heads::<L, 2, 4>(part.kv, q, out),
                _ => rows.heads::<L, 1, 2>(part.kv, q, out),
            }
        }
    }
}

/// Query heads of one key-value head that are computed together.
struct Part {
    kv: usize,
    first: usize,
    count: usize,
    width: usize,
}

impl Part {
    /// Their place in a row.
    fn range(&self) -> Range<usize> {
        self.first * self.width..(self.first + self.count) * self.width
    }
}

/// The attention of one token, or of two at once, with room for what their heads need.
struct Rows<'a, const ROWS: usize> {
    cache: &'a LayerCache,
    /// Of each row the blocks that it sees, and how many tokens.
    sight: [(&'a [u32], usize); ROWS],
    /// Leading blocks that all rows see whole.
    shared: usize,
    /// Head width rounded up to whole vectors; beyond the width all stored values are zero.
    padded: usize,
    query: Vec<f32>,
    scores: Vec<f32>,
}

impl<'a, const ROWS: usize> Rows<'a, ROWS> {
    #[inline(always)]
    fn new(cache: &'a LayerCache, readers: [Reader<'a>; ROWS], shared: usize) -> Self {
        Self {
            cache,
            sight: readers.map(|reader| {
                let visible = reader.position + 1;
                (&reader.blocks[..visible.div_ceil(BLOCK)], visible)
            }),
            shared,
            padded: cache.heads.width.next_multiple_of(LANES),
            query: Vec::new(),
            scores: Vec::new(),
        }
    }

    /// Heads of one group at a time, at most four, so that sums stay in registers.
    fn parts(&self) -> impl Iterator<Item = Part> + use<ROWS> {
        let heads = self.cache.heads;
        let group = heads.query / heads.key_value;
        (0..heads.key_value).flat_map(move |kv| {
            (0..group).step_by(4).map(move |at| Part {
                kv,
                first: kv * group + at,
                count: (group - at).min(4),
                width: heads.width,
            })
        })
    }

    /// Attention of `HEADS` query heads of every row that share key-value head `kv`; `ALL` is the number
    /// of heads of all rows.
    #[inline(always)]
    unsafe fn heads<L: Lanes, const HEADS: usize, const ALL: usize>(
        &mut self,
        kv: usize,
        q: [&[f32]; ROWS],
        out: [&mut [f32]; ROWS],
    ) {
        let width = self.cache.heads.width;
        let (padded, shared) = (self.padded, self.shared);
        let longest = self.sight.iter().map(|(blocks, _)| blocks.len()).max();
        let length = longest.unwrap_or(0) * BLOCK;
        self.query.clear();
        self.query.resize(ALL * padded, 0.0);
        let queries = q.iter().flat_map(|q| q.chunks_exact(width));
        for (slot, q) in self.query.chunks_exact_mut(padded).zip(queries) {
            slot[..width].copy_from_slice(q);
        }
        self.scores.resize(ALL * length, 0.0);
        // SAFETY: block ids come from the pool that sized the arrays, and `kv` is one of the heads,
        // which `new` has checked to be shared out evenly; every head of a block has BLOCK × `padded`
        // floats, `padded` being a multiple of LANES; queries and scores were just sized for ALL.
        unsafe {
            let (query, target) = (self.query.as_ptr(), self.scores.as_mut_ptr());
            let span = |row: usize, blocks: Range<usize>| Span {
                kv,
                row,
                blocks,
                query: query.add(row * HEADS * padded),
                scores: target.add(row * HEADS * length),
                length,
            };
            self.score::<L, ALL>(span(0, 0..shared));
            for (row, (blocks, _)) in self.sight.iter().enumerate() {
                self.score::<L, HEADS>(span(row, shared..blocks.len()));
            }
            for (head, scores) in self.scores.chunks_exact_mut(length).enumerate() {
                softmax_kernel::<L>(&mut scores[..self.sight[head / HEADS].1]);
            }
            let mut column = 0;
            while column < padded {
                let mut sums = [[0.0; 4 * LANES]; ALL];
                let left = (padded - column) / LANES;
                let vectors = fitting::<L>(ALL).min(if left >= 4 { 4 } else { left.min(2) });
                self.mix::<L, ALL>(span(0, 0..shared), column, vectors, &mut sums);
                for (row, (blocks, _)) in self.sight.iter().enumerate() {
                    let own = span(row, shared..blocks.len());
                    let sums = &mut sums[row * HEADS..(row + 1) * HEADS];
                    self.mix::<L, HEADS>(own, column, vectors, sums);
                }
                let count = (vectors * LANES).min(width.saturating_sub(column));
                for (head, sums) in sums.iter().enumerate() {
                    let at = head % HEADS * width + column;
                    out[head / HEADS][at..at + count].copy_from_slice(&sums[..count]);
                }
                column += vectors * LANES;
            }
        }
    }

    /// Keys of block `index` of a span.
    #[inline(always)]
    fn place(&self, span: &Span, index: usize) -> usize {
        let block = self.sight[span.row].0[index] as usize;
        (block * self.cache.heads.key_value + span.kv) * self.cache.head_size()
    }

    /// Scores of `HEADS` heads against the span's blocks. Several blocks at a time, since a query's
    /// value is then read once for all.
    #[inline(always)]
    unsafe fn score<L: Lanes, const HEADS: usize>(&self, span: Span) {
        let scale = 1.0 / (self.cache.heads.width as f32).sqrt();
        let most = fitting::<L>(HEADS);
        // SAFETY: the caller's, for the blocks of the span.
        unsafe {
            let keys = |index: usize| self.cache.keys.as_ptr().add(self.place(&span, index));
            let mut index = span.blocks.start;
            while index < span.blocks.end {
                let to = span.scores.add(index * BLOCK);
                let left = span.blocks.end - index;
                let (query, padded, length) = (span.query, self.padded, span.length);
                index += if most >= 4 && left >= 4 {
                    let keys = std::array::from_fn(|at| keys(index + at));
                    score::<L, HEADS, 4>(keys, query, padded, scale, to, length)
                } else if most >= 2 && left >= 2 {
                    let keys = std::array::from_fn(|at| keys(index + at));
                    score::<L, HEADS, 2>(keys, query, padded, scale, to, length)
                } else {
                    score::<L, HEADS, 1>([keys(index)], query, padded, scale, to, length)
                };
            }
        }
    }

    /// Adds `vectors` vectors of columns of the span's values, weighted by every head's probabilities.
    #[inline(always)]
    unsafe fn mix<L: Lanes, const HEADS: usize>(
        &self,
        span: Span,
        column: usize,
        vectors: usize,
        sums: &mut [[f32; 4 * LANES]],
    ) {
        // SAFETY: the caller's, for the blocks of the span.
        unsafe {
            match vectors {
                4 => self.mix_vectors::<L, HEADS, 4>(span, column, sums),
                2 => self.mix_vectors::<L, HEADS, 2>(span, column, sums),
                _ => self.mix_vectors::<L, HEADS, 1>(span, column, sums),
            }
        }
    }

    #[inline(always)]
    unsafe fn mix_vectors<L: Lanes, const HEADS: usize, const VECTORS: usize>(
        &self,
        span: Span,
        column: usize,
        out: &mut [[f32; 4 * LANES]],
    ) {
        let visible = self.sight[span.row].1;
        // SAFETY: the caller's: a block of values behind every place, HEADS rows of scores and sums.
        unsafe {
            let mut sums = [[L::splat(0.0); VECTORS]; HEADS];
            for (sums, out) in sums.iter_mut().zip(&*out) {
                for (at, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load(out[at * LANES..].as_ptr());
                }
            }
            for index in span.blocks.clone() {
                let values = self
                    .cache
                    .values
                    .as_ptr()
                    .add(self.place(&span, index) + column);
                let scores = span.scores.add(index * BLOCK);
                for slot in 0..BLOCK.min(visible - index * BLOCK) {
                    let row = values.add(slot * self.padded);
                    let mut values = [L::splat(0.0); VECTORS];
                    for (at, value) in values.iter_mut().enumerate() {
                        *value = L::load(row.add(at * LANES));
                    }
                    for (head, sums) in sums.iter_mut().enumerate() {
                        let p = L::splat(*scores.add(head * span.length + slot));
                        for (sum, value) in sums.iter_mut().zip(values) {
                            *sum = p.mul_add(value, *sum);
                        }
                    }
                }
            }
            for (out, sums) in out.iter_mut().zip(sums) {
                for (at, sum) in sums.into_iter().enumerate() {
                    sum.store(out[at * LANES..].as_mut_ptr());
                }
            }
        }
    }
}

/// Some blocks that some heads see: of row `row`, or the first ones of all rows.
struct Span {
    kv: usize,
    row: usize,
    blocks: Range<usize>,
    /// Queries of the heads, one after the other.
    query: *const f32,
    /// Rows of scores, `length` apart.
    scores: *mut f32,
    length: usize,
}

/// Vectors (1, 2 or 4) whose sums for so many heads fit into the registers.
#[inline(always)]
fn fitting<L: Lanes>(heads: usize) -> usize {
    match L::ATTENTION_SUMS / heads {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// Every head's scores against `VECTORS` blocks of keys, to rows of `out` that are `length` apart;
/// returns `VECTORS`.
#[inline(always)]
unsafe fn score<L: Lanes, const HEADS: usize, const VECTORS: usize>(
    keys: [*const f32; VECTORS],
    query: *const f32,
    padded: usize,
    scale: f32,
    out: *mut f32,
    length: usize,
) -> usize {
    // SAFETY: the caller's: every block has `padded` × BLOCK floats, there are HEADS queries of
    // `padded` floats, and room for the scores.
    unsafe {
        let mut sums = [[L::splat(0.0); VECTORS]; HEADS];
        for at in 0..padded {
            let mut vectors = [L::splat(0.0); VECTORS];
            for (vector, keys) in vectors.iter_mut().zip(keys) {
                *vector = L::load(keys.add(at * BLOCK));
            }
            for (head, sums) in sums.iter_mut().enumerate() {
                let x = L::splat(*query.add(head * padded + at));
                for (sum, key) in sums.iter_mut().zip(vectors) {
                    *sum = x.mul_add(key, *sum);
                }
            }
        }
        for (head, sums) in sums.into_iter().enumerate() {
            for (at, sum) in sums.into_iter().enumerate() {
                let to = out.add(head * length + at * BLOCK);
                sum.mul(L::splat(scale)).store(to);
            }
        }
    }
    VECTORS
}
