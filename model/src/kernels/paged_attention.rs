//! Attention of new tokens over keys and values kept in blocks: the decoding engine's kernel.
//!
//! A block holds [`BLOCK`] tokens of one layer. Keys lie transposed (`[head, width, BLOCK]`), so
//! that a query's scores against a block are `width` vector multiply-adds with no horizontal sum;
//! values lie token by token (`[head, BLOCK, width]`, the width rounded up to whole vectors).

#![expect(unsafe_code, reason = "SIMD lanes; threads write disjoint rows")]

use rayon::prelude::*;

use super::rows::softmax_kernel;
use super::simd::{LANES, Lanes, dispatch};
use super::tree_attention::Heads;

/// Tokens of one block, equal to the vector width.
pub(crate) const BLOCK: usize = LANES;

/// Keys and values of one layer, all blocks of the pool.
#[derive(Debug)]
pub(crate) struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
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
        Self { keys: vec![0.0; size], values: vec![0.0; size], heads }
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
    let padded = width.next_multiple_of(LANES);
    let group = heads.query / heads.key_value;
    let blocks = &reader.blocks[..visible.div_ceil(BLOCK)];
    let scale = 1.0 / (width as f32).sqrt();
    let mut scores = vec![0.0f32; blocks.len() * BLOCK];
    // Beyond the width both query and stored keys and values are zero.
    let mut query = vec![0.0f32; padded];
    let mut attended = vec![0.0f32; padded];
    for head in 0..heads.query {
        let kv = head / group;
        query[..width].copy_from_slice(&q[head * width..(head + 1) * width]);
        // SAFETY: block ids come from the pool that sized the arrays, and every head of a block has
        // BLOCK × `padded` floats, `padded` being a multiple of LANES.
        unsafe {
            for (index, block) in blocks.iter().enumerate() {
                let base = (*block as usize * heads.key_value + kv) * cache.head_size();
                let keys = cache.keys[base..base + cache.head_size()].as_ptr();
                // Four chains hide the latency of the multiply-add.
                let mut sums = [L::splat(0.0); 4];
                for at in (0..padded).step_by(4) {
                    for (chain, sum) in sums.iter_mut().enumerate() {
                        let x = L::splat(*query.as_ptr().add(at + chain));
                        *sum = x.mul_add(L::load(keys.add((at + chain) * BLOCK)), *sum);
                    }
                }
                let total = sums[0].add(sums[1]).add(sums[2].add(sums[3]));
                total.mul(L::splat(scale)).store(scores.as_mut_ptr().add(index * BLOCK));
            }
            softmax_kernel::<L>(&mut scores[..visible]);
            for column in (0..padded).step_by(4 * LANES) {
                let chains = ((padded - column) / LANES).min(4);
                let mut sums = [L::splat(0.0); 4];
                for (index, block) in blocks.iter().enumerate() {
                    let base = (*block as usize * heads.key_value + kv) * cache.head_size();
                    let values = cache.values[base..base + cache.head_size()].as_ptr();
                    for slot in 0..BLOCK.min(visible - index * BLOCK) {
                        let p = L::splat(scores[index * BLOCK + slot]);
                        let value = values.add(slot * padded + column);
                        for (chain, sum) in sums.iter_mut().enumerate().take(chains) {
                            *sum = p.mul_add(L::load(value.add(chain * LANES)), *sum);
                        }
                    }
                }
                for (chain, sum) in sums.iter().enumerate().take(chains) {
                    sum.store(attended.as_mut_ptr().add(column + chain * LANES));
                }
            }
            out[head * width..(head + 1) * width].copy_from_slice(&attended[..width]);
        }
    }
}
