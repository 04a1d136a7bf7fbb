//! Attention of new tokens over keys and values kept in blocks: the decoding engine's kernel.
//!
//! A block holds [`BLOCK`] tokens of one layer. Keys lie transposed (`[head, width, BLOCK]`), so
//! that a query's scores against a block are `width` vector multiply-adds with no horizontal sum;
//! values lie token by token (`[head, BLOCK, width]`, the width rounded up to whole vectors).

#![expect(unsafe_code, reason = "SIMD lanes; threads write disjoint rows")]

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
    pub(crate) fn attend(&self, readers: &[Reader<'_>], q: &[f32], out: &mut [f32]) {
        let row = self.heads.query * self.heads.width;
        out.par_chunks_mut(row)
            .zip(q.par_chunks(row))
            .zip(readers.par_iter())
            .for_each(|((out, q), reader)| one(self, reader, q, out));
    }
}

fn one(cache: &LayerCache, reader: &Reader<'_>, q: &[f32], out: &mut [f32]) {
    dispatch!(one_kernel(cache: &LayerCache, reader: &Reader<'_>, q: &[f32], out: &mut [f32]));
}

#[inline(always)]
unsafe fn one_kernel<L: Lanes>(
    cache: &LayerCache,
    reader: &Reader<'_>,
    q: &[f32],
    out: &mut [f32],
) {
    let heads = cache.heads;
    let (width, visible) = (heads.width, reader.position + 1);
    let group = heads.query / heads.key_value;
    let mut row = Row {
        cache,
        blocks: &reader.blocks[..visible.div_ceil(BLOCK)],
        visible,
        padded: width.next_multiple_of(LANES),
        query: Vec::new(),
        scores: Vec::new(),
    };
    let mut head = 0;
    while head < heads.query {
        // Heads of one group, at most four at a time, so that sums stay in registers.
        let count = (group - head % group).min(4);
        let q = &q[head * width..(head + count) * width];
        let out = &mut out[head * width..(head + count) * width];
        // SAFETY: block ids come from the pool that sized the arrays.
        unsafe {
            match count {
                4 => row.heads::<L, 4>(head / group, q, out),
                3 => row.heads::<L, 3>(head / group, q, out),
                2 => row.heads::<L, 2>(head / group, q, out),
                _ => row.heads::<L, 1>(head / group, q, out),
            }
        }
        head += count;
    }
}

/// One token's attention, with room for what its heads need.
struct Row<'a> {
    cache: &'a LayerCache,
    blocks: &'a [u32],
    visible: usize,
    /// Head width rounded up to whole vectors; beyond the width all stored values are zero.
    padded: usize,
    query: Vec<f32>,
    scores: Vec<f32>,
}

impl Row<'_> {
    /// Attention of `HEADS` query heads that share key-value head `kv`.
    #[inline(always)]
    unsafe fn heads<L: Lanes, const HEADS: usize>(
        &mut self,
        kv: usize,
        q: &[f32],
        out: &mut [f32],
    ) {
        let Heads {
            key_value, width, ..
        } = self.cache.heads;
        let (padded, visible) = (self.padded, self.visible);
        let length = self.blocks.len() * BLOCK;
        self.query.clear();
        self.query.resize(HEADS * padded, 0.0);
        for (slot, q) in self
            .query
            .chunks_exact_mut(padded)
            .zip(q.chunks_exact(width))
        {
            slot[..width].copy_from_slice(q);
        }
        self.scores.resize(HEADS * length, 0.0);
        let size = self.cache.head_size();
        let base = |block: u32| (block as usize * key_value + kv) * size;
        let query = self.query.as_ptr();
        let scale = 1.0 / (width as f32).sqrt();
        // SAFETY: block ids come from the pool that sized the arrays, and `kv` is one of the heads,
        // which `new` has checked to be shared out evenly; every head of a block has BLOCK × `padded`
        // floats, `padded` being a multiple of LANES; queries and scores were just sized for HEADS.
        unsafe {
            let keys = |index: usize| self.cache.keys.as_ptr().add(base(self.blocks[index]));
            let target = self.scores.as_mut_ptr();
            let mut index = 0;
            while index < self.blocks.len() {
                let to = target.add(index * BLOCK);
                index += if L::ATTENTION_VECTORS == 4 && index + 4 <= self.blocks.len() {
                    let keys = std::array::from_fn(|at| keys(index + at));
                    score::<L, HEADS, 4>(keys, query, padded, scale, to, length)
                } else if L::ATTENTION_VECTORS >= 2 && index + 2 <= self.blocks.len() {
                    let keys = std::array::from_fn(|at| keys(index + at));
                    score::<L, HEADS, 2>(keys, query, padded, scale, to, length)
                } else {
                    score::<L, HEADS, 1>([keys(index)], query, padded, scale, to, length)
                };
            }
            for scores in self.scores.chunks_exact_mut(length) {
                softmax_kernel::<L>(&mut scores[..visible]);
            }
            let scores = self.scores.as_ptr();
            let values = |index: usize| self.cache.values.as_ptr().add(base(self.blocks[index]));
            let mut vector = 0;
            while vector * LANES < padded {
                let left = padded / LANES - vector;
                let mut sums = [[0.0; 4 * LANES]; HEADS];
                let done = if L::ATTENTION_VECTORS == 4 && left >= 4 {
                    self.mix::<L, HEADS, 4>(values, vector * LANES, scores, &mut sums)
                } else if L::ATTENTION_VECTORS >= 2 && left >= 2 {
                    self.mix::<L, HEADS, 2>(values, vector * LANES, scores, &mut sums)
                } else {
                    self.mix::<L, HEADS, 1>(values, vector * LANES, scores, &mut sums)
                };
                let column = vector * LANES;
                let count = (done * LANES).min(width.saturating_sub(column));
                for (head, sums) in sums.iter().enumerate() {
                    out[head * width + column..head * width + column + count]
                        .copy_from_slice(&sums[..count]);
                }
                vector += done;
            }
        }
    }

    /// `VECTORS` vectors of columns of the sum of values, weighted by every head's probabilities;
    /// returns `VECTORS`.
    #[inline(always)]
    unsafe fn mix<L: Lanes, const HEADS: usize, const VECTORS: usize>(
        &self,
        values: impl Fn(usize) -> *const f32,
        column: usize,
        scores: *const f32,
        out: &mut [[f32; 4 * LANES]; HEADS],
    ) -> usize {
        let length = self.blocks.len() * BLOCK;
        // SAFETY: the caller's: a block of values behind every pointer, HEADS rows of scores.
        unsafe {
            let mut sums = [[L::splat(0.0); VECTORS]; HEADS];
            for index in 0..self.blocks.len() {
                let values = values(index).add(column);
                let scores = scores.add(index * BLOCK);
                for slot in 0..BLOCK.min(self.visible - index * BLOCK) {
                    let row = values.add(slot * self.padded);
                    let mut values = [L::splat(0.0); VECTORS];
                    for (at, value) in values.iter_mut().enumerate() {
                        *value = L::load(row.add(at * LANES));
                    }
                    for (head, sums) in sums.iter_mut().enumerate() {
                        let p = L::splat(*scores.add(head * length + slot));
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
        VECTORS
    }
}

/// Every head's scores against `VECTORS` blocks of keys, to rows of `out` that are `length` apart;
/// returns `VECTORS`. Several blocks at a time, since a query's value is then read once for all.
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
                    one_kernel::<super::super::simd::Portable>(&cache, &reader, &q, &mut out)
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
                        unsafe { one_kernel::<Avx2>(&cache, &reader, &q, &mut out) };
                        check("AVX2", &out);
                    }
                    if std::arch::is_x86_feature_detected!("avx512f") {
                        out.fill(0.0);
                        // SAFETY: as above.
                        unsafe { one_kernel::<Avx512>(&cache, &reader, &q, &mut out) };
                        check("AVX-512", &out);
                    }
                }
            }
        }
    }
}
