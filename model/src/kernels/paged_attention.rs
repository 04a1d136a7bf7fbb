//! Attention of new tokens over keys and values kept in blocks: the decoding engine's kernel.
//!
//! A block holds [`BLOCK`] tokens of one layer. Keys lie transposed (`[head, width, BLOCK]`), so
//! that a query's scores against a block are `width` vector multiply-adds with no horizontal sum;
//! values lie token by token (`[head, BLOCK, width]`, the width rounded up to whole vectors).

mod kernel;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::aligned::AlignedFloats;
use super::simd::LANES;
use super::tree_attention::Heads;
use kernel::{alone, together};

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
