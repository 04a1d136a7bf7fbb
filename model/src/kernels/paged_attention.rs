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
    pub(crate) fn new(blocks: usize, heads: Heads) -> Self {
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
        // SAFETY: every head of a block has BLOCK × `padded` floats, `padded` being a multiple of
        // LANES; queries and scores were just sized for HEADS.
        unsafe {
            for (index, block) in self.blocks.iter().enumerate() {
                let keys = self.cache.keys[base(*block)..base(*block) + size].as_ptr();
                // Two chains a head hide the latency of the multiply-add.
                let mut sums = [[L::splat(0.0); 2]; HEADS];
                for at in (0..padded).step_by(2) {
                    for chain in 0..2 {
                        let key = L::load(keys.add((at + chain) * BLOCK));
                        for (head, sum) in sums.iter_mut().enumerate() {
                            let x = L::splat(*query.add(head * padded + at + chain));
                            sum[chain] = x.mul_add(key, sum[chain]);
                        }
                    }
                }
                for (head, sum) in sums.iter().enumerate() {
                    let target = self.scores.as_mut_ptr().add(head * length + index * BLOCK);
                    sum[0].add(sum[1]).mul(L::splat(scale)).store(target);
                }
            }
            for scores in self.scores.chunks_exact_mut(length) {
                softmax_kernel::<L>(&mut scores[..visible]);
            }
            let scores = self.scores.as_ptr();
            for column in (0..padded).step_by(LANES) {
                let mut sums = [[L::splat(0.0); 2]; HEADS];
                for (index, block) in self.blocks.iter().enumerate() {
                    let values = self.cache.values[base(*block)..base(*block) + size].as_ptr();
                    let scores = scores.add(index * BLOCK);
                    let count = BLOCK.min(visible - index * BLOCK);
                    // The chain is known where the code is compiled: chosen by an index, the sums
                    // would live in memory.
                    for slot in (0..count & !1).step_by(2) {
                        for chain in 0..2 {
                            let value = L::load(values.add((slot + chain) * padded + column));
                            for (head, sum) in sums.iter_mut().enumerate() {
                                let p = L::splat(*scores.add(head * length + slot + chain));
                                sum[chain] = p.mul_add(value, sum[chain]);
                            }
                        }
                    }
                    if count % 2 == 1 {
                        let value = L::load(values.add((count - 1) * padded + column));
                        for (head, sum) in sums.iter_mut().enumerate() {
                            let p = L::splat(*scores.add(head * length + count - 1));
                            sum[0] = p.mul_add(value, sum[0]);
                        }
                    }
                }
                for (head, sum) in sums.iter().enumerate() {
                    let lanes = sum[0].add(sum[1]).to_array();
                    let count = LANES.min(width.saturating_sub(column));
                    out[head * width + column..head * width + column + count]
                        .copy_from_slice(&lanes[..count]);
                }
            }
        }
    }
}
