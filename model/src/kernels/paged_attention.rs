//! Attention of new tokens over keys and values kept in blocks: the decoding engine's kernel.
//!
//! A block holds [`BLOCK`] tokens of one layer. Keys lie transposed (`[head, width, BLOCK]`), so
//! that a query's scores against a block are `width` vector multiply-adds with no horizontal sum;
//! values lie token by token (`[head, BLOCK, width]`, the width rounded up to whole vectors).

#![expect(unsafe_code, reason = "SIMD lanes; threads write disjoint rows")]

use std::ops::Range;

use rayon::prelude::*;

use super::aligned::AlignedFloats;
use super::rows::softmax_kernel;
use super::simd::{LANES, Lanes, dispatch};
use super::tree_attention::Heads;

/// Tokens of one block, equal to the vector width.
pub(crate) const BLOCK: usize = LANES;

/// Keys and values of one layer, all blocks of the pool.
#[derive(Debug)]
pub(crate) struct LayerCache {
    keys: AlignedFloats,
    values: AlignedFloats,
    heads: Heads,
}

/// Where one new token's query looks: the blocks of its sequence and its own position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) blocks: &'a [u32],
    pub(crate) position: usize,
}

impl LayerCache {
    /// # Panics
    /// If the query heads can't be shared out evenly.
    pub(crate) fn new(blocks: usize, heads: Heads) -> Self {
        assert!(
            heads.key_value > 0 && heads.query.is_multiple_of(heads.key_value),
            "{heads:?}"
        );
        let size = blocks * Self::block_floats(heads);
        Self {
            keys: AlignedFloats::zeros(size),
            values: AlignedFloats::zeros(size),
            heads,
        }
    }

    /// Floats of the keys (or values) of one block.
    pub(crate) fn block_floats(heads: Heads) -> usize {
        heads.key_value * BLOCK * heads.width.next_multiple_of(LANES)
    }

    /// Floats of one head in one block.
    fn head_size(&self) -> usize {
        BLOCK * self.heads.width.next_multiple_of(LANES)
    }

    /// Store a token's key and value rows (`[key_value · width]`) at `slot` of `block`.
    pub(crate) fn write(&mut self, block: u32, slot: usize, key: &[f32], value: &[f32]) {
        let width = self.heads.width;
        let padded = width.next_multiple_of(LANES);
        for head in 0..self.heads.key_value {
            let base = (block as usize * self.heads.key_value + head) * self.head_size();
            for at in 0..width {
                self.keys[base + at * BLOCK + slot] = key[head * width + at];
            }
            self.values[base + slot * padded..base + slot * padded + width]
                .copy_from_slice(&value[head * width..(head + 1) * width]);
        }
    }

    /// Attention of every query row (`[query · width]`) over what its reader sees, into `out`.
    pub(crate) fn attend(&self, readers: &Readers<'_>, q: &[f32], out: &mut [f32]) {
        let row = self.heads.query * self.heads.width;
        let mut rows: Vec<Option<&mut [f32]>> = out.chunks_mut(row).map(Some).collect();
        let q = |index: usize| &q[index * row..(index + 1) * row];
        let mut units = Vec::with_capacity(readers.units.len());
        for unit in &readers.units {
            let first = rows[unit.first].take();
            let second = unit.second.and_then(|(second, _)| rows[second].take());
            units.extend(first.map(|first| (unit, first, second)));
        }
        units
            .into_par_iter()
            .for_each(|(unit, first, second)| match (unit.second, second) {
                (Some((index, shared)), Some(second)) => together(
                    self,
                    [readers.all[unit.first], readers.all[index]],
                    shared,
                    [q(unit.first), q(index)],
                    [first, second],
                ),
                _ => alone(self, readers.all[unit.first], q(unit.first), first),
            });
    }
}

/// The readers of a step, in twos where they see the same blocks first: these are then read once for
/// both.
pub(crate) struct Readers<'a> {
    all: Vec<Reader<'a>>,
    units: Vec<Unit>,
}

struct Unit {
    first: usize,
    /// Another reader, and how many blocks both see whole before their own ones.
    second: Option<(usize, usize)>,
}

impl<'a> Readers<'a> {
    pub(crate) fn new(all: Vec<Reader<'a>>) -> Self {
        let mut order: Vec<usize> = (0..all.len()).collect();
        // Those of one request, or of requests with a prefix in common, stand side by side.
        order.sort_by_key(|index| (all[*index].blocks, all[*index].position));
        let mut units = Vec::with_capacity(all.len());
        let mut order = order.into_iter().peekable();
        while let Some(first) = order.next() {
            let second = order
                .peek()
                .map(|second| (*second, shared(&all[first], &all[*second])));
            let second = second.filter(|(_, shared)| *shared > 0);
            if second.is_some() {
                order.next();
            }
            units.push(Unit { first, second });
        }
        Self { all, units }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Reader<'a>> {
        self.all.iter()
    }
}

/// Blocks that both see whole, from the first on.
fn shared(a: &Reader<'_>, b: &Reader<'_>) -> usize {
    let whole = (a.position.min(b.position) + 1) / BLOCK;
    let same = a.blocks.iter().zip(b.blocks).take(whole);
    same.take_while(|(a, b)| a == b).count()
}

fn alone(cache: &LayerCache, reader: Reader<'_>, q: &[f32], out: &mut [f32]) {
    dispatch!(alone_kernel(cache: &LayerCache, reader: Reader<'_>, q: &[f32], out: &mut [f32]));
}

#[inline(always)]
unsafe fn alone_kernel<L: Lanes>(
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

fn together(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// softmax(q kᵀ / √width) v, in f64.
    fn plain(heads: Heads, q: &[f32], tokens: &[(Vec<f32>, Vec<f32>)]) -> Vec<f64> {
        let width = heads.width;
        let mut out = Vec::new();
        for (head, q) in q.chunks_exact(width).enumerate() {
            let kv = head / (heads.query / heads.key_value) * width;
            let dot = |key: &[f32]| -> f64 {
                let products = q.iter().zip(&key[kv..kv + width]);
                products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let weights: Vec<f64> = tokens
                .iter()
                .map(|(key, _)| (dot(key) / (width as f64).sqrt()).exp())
                .collect();
            let total: f64 = weights.iter().sum();
            for at in kv..kv + width {
                let terms = weights.iter().zip(tokens);
                let sum: f64 = terms.map(|(w, (_, value))| w * f64::from(value[at])).sum();
                out.push(sum / total);
            }
        }
        out
    }

    #[test]
    fn every_kind_of_lanes_agrees_with_the_plain_computation() {
        let value = |i: usize| (i * 7919 % 61) as f32 / 30.0 - 1.0;
        for (query, key_value, width) in
            [(9, 3, 64), (4, 1, 16), (5, 1, 40), (2, 2, 80), (14, 2, 100)]
        {
            let heads = Heads {
                query,
                key_value,
                width,
            };
            // One token, a block and a half, and more blocks than are read at a time.
            for visible in [1, 24, 70, 101] {
                let token = |at: usize| {
                    let row = |seed: usize| {
                        (0..key_value * width)
                            .map(move |i| value(at * 31 + i * 7 + seed))
                            .collect()
                    };
                    (row(1), row(5))
                };
                let tokens: Vec<(Vec<f32>, Vec<f32>)> = (0..visible).map(token).collect();
                let count = visible.div_ceil(BLOCK);
                // Blocks in another order, and what lies beyond the last token must not count.
                let blocks: Vec<u32> = (0..count as u32).rev().collect();
                let mut cache = LayerCache::new(count, heads);
                cache.keys.fill(f32::NAN);
                cache.values.fill(f32::NAN);
                for head in 0..count * key_value {
                    let padded = width.next_multiple_of(LANES);
                    let size = BLOCK * padded;
                    cache.keys[head * size + width * BLOCK..(head + 1) * size].fill(0.0);
                    for slot in 0..BLOCK {
                        let at = head * size + slot * padded;
                        cache.values[at + width..at + padded].fill(0.0);
                    }
                }
                for (at, (key, value)) in tokens.iter().enumerate() {
                    cache.write(blocks[at / BLOCK], at % BLOCK, key, value);
                }
                let q: Vec<f32> = (0..query * width).map(|i| value(i * 13 + 3)).collect();
                let exact = plain(heads, &q, &tokens);
                let reader = Reader {
                    blocks: &blocks,
                    position: visible - 1,
                };
                let check = |kind: &str, out: &[f32]| {
                    for (found, exact) in out.iter().zip(&exact) {
                        let gap = (f64::from(*found) - exact).abs();
                        assert!(gap < 1e-5, "{kind} {heads:?} {visible}: {found} {exact}");
                    }
                };
                let mut out = vec![0.0; q.len()];
                // SAFETY: portable lanes need no feature, the others are tried where it is there.
                unsafe {
                    alone_kernel::<super::super::simd::Portable>(&cache, reader, &q, &mut out)
                };
                check("portable", &out);
                #[cfg(target_arch = "x86_64")]
                {
                    use super::super::simd::{Avx2, Avx512};
                    if std::arch::is_x86_feature_detected!("avx2")
                        && std::arch::is_x86_feature_detected!("fma")
                    {
                        out.fill(0.0);
                        // SAFETY: as above.
                        unsafe { alone_kernel::<Avx2>(&cache, reader, &q, &mut out) };
                        check("AVX2", &out);
                    }
                    if std::arch::is_x86_feature_detected!("avx512f") {
                        out.fill(0.0);
                        // SAFETY: as above.
                        unsafe { alone_kernel::<Avx512>(&cache, reader, &q, &mut out) };
                        check("AVX-512", &out);
                    }
                }
            }
        }
    }

    /// Requests with a prefix in common, tokens of one request, and one that shares nothing.
    #[test]
    fn what_is_read_together_is_as_alone_to_the_bit() {
        let value = |i: usize| (i * 7919 % 61) as f32 / 30.0 - 1.0;
        for (query, key_value, width) in [(9, 3, 64), (8, 2, 32), (2, 2, 80), (5, 1, 16)] {
            let heads = Heads {
                query,
                key_value,
                width,
            };
            let mut cache = LayerCache::new(24, heads);
            for (block, slot) in (0..24).flat_map(|block| (0..BLOCK).map(move |slot| (block, slot)))
            {
                let row = |seed: usize| -> Vec<f32> {
                    let at = (block as usize * BLOCK + slot) * 31 + seed;
                    (0..key_value * width).map(|i| value(at + i * 7)).collect()
                };
                cache.write(block, slot, &row(1), &row(5));
            }
            let prefix = [3, 1, 4, 15, 9, 2, 6, 5];
            let with = |own: &[u32]| [&prefix, own].concat();
            let blocks = [
                with(&[7, 8]),
                with(&[10]),
                vec![20, 21, 22, 23],
                with(&[11, 12, 13]),
            ];
            let reader = |request: usize, position| Reader {
                blocks: &blocks[request],
                position,
            };
            let all = vec![
                reader(0, 150),
                reader(2, 3),
                reader(1, 130),
                reader(1, 131),
                reader(3, 170),
                reader(2, 60),
                reader(2, 61),
                reader(0, 5),
            ];
            let readers = Readers::new(all.clone());
            assert!(
                readers
                    .units
                    .iter()
                    .filter(|unit| unit.second.is_some())
                    .count()
                    >= 2
            );
            let row = query * width;
            let q: Vec<f32> = (0..all.len() * row).map(|i| value(i * 13 + 3)).collect();
            let mut out = vec![f32::NAN; q.len()];
            cache.attend(&readers, &q, &mut out);
            for (index, reader) in all.into_iter().enumerate() {
                let span = index * row..(index + 1) * row;
                let mut own = vec![0.0; row];
                alone(&cache, reader, &q[span.clone()], &mut own);
                assert_eq!(own, out[span], "{heads:?}, reader {index}");
            }
        }
    }
}
