//! Weights that are kept in fewer bits than they are computed in: quantised, or in bfloat16.
//!
//! Decoding a few rows reads every weight once a step, and four bytes a weight are more than memory
//! delivers in the time that the arithmetic takes. A panel of blocks has a fifth of that, one of halves
//! a half; it is turned into floats part by part, in the first-level cache. The floats are those of the
//! weight to the bit, so that a model gives the same results whichever way its weights are kept.

#![expect(unsafe_code, reason = "writes to a buffer that is not cleared first")]

use std::ops::Range;

use rayon::prelude::*;

use super::lane_gemm::PANEL;

/// What a quantised weight `[n, k]` is made of: every element is `(q − zero) · scale + offset`, with a
/// small whole number q, and scale and offset in common to `group` neighbours of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockScales {
    /// Elements of a row that share a scale; divides k and [`super::lane_gemm::DEPTH_STEP`].
    pub group: usize,
    /// Bits of q, 4 or 8.
    pub bits: u32,
    /// The q of an element that is its offset.
    pub zero: u8,
    /// `[n, k / group]`
    pub scale: Vec<f32>,
    /// `[n, k / group]`, or empty where there are none.
    pub offset: Vec<f32>,
}

impl BlockScales {
    /// The whole number of an element of value `value`, if there is one that gives exactly this value.
    fn quant(&self, block: usize, value: f32) -> Option<u8> {
        let (scale, offset) = self.block(block);
        let zero = f32::from(self.zero);
        let q = if scale == 0.0 {
            zero
        } else {
            ((value - offset) / scale).round() + zero
        };
        let largest = f32::from(u8::MAX >> (8 - self.bits));
        let fits = (0.0..=largest).contains(&q) && (q - zero) * scale + offset == value;
        fits.then_some(q as u8)
    }

    fn block(&self, block: usize) -> (f32, f32) {
        let offset = self.offset.get(block).copied().unwrap_or(0.0);
        (self.scale[block], offset)
    }
}

/// A weight whose values are all bfloat16, as published checkpoints are, in panels: `[panels, k, PANEL]`.
#[derive(Clone)]
pub(super) struct Halves {
    values: Vec<u16>,
    k: usize,
}

impl Halves {
    /// Row-major `weight[n, k]`, if no value of it needs more than sixteen bits.
    pub(super) fn new(weight: &[f32], n: usize, k: usize) -> Option<Self> {
        if weight.iter().any(|value| value.to_bits() & 0xFFFF != 0) {
            return None;
        }
        let mut values = vec![0; n.div_ceil(PANEL) * PANEL * k];
        values
            .par_chunks_mut((PANEL * k).max(1))
            .zip(weight.par_chunks((PANEL * k).max(1)))
            .for_each(|(panel, rows)| {
                for (column, row) in rows.chunks_exact(k).enumerate() {
                    for (slot, value) in panel[column..].iter_mut().step_by(PANEL).zip(row) {
                        *slot = (value.to_bits() >> 16) as u16;
                    }
                }
            });
        Some(Self { values, k })
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.values.as_slice())
    }

    /// The element at output feature `row` and input feature `column`.
    pub(super) fn at(&self, row: usize, column: usize) -> f32 {
        let panel = row / PANEL;
        float(self.values[(panel * self.k + column) * PANEL + row % PANEL])
    }

    /// Floats of `positions` of a panel, `[positions, PANEL]`.
    ///
    /// # Safety
    /// `out` must have room for them.
    #[inline(always)]
    pub(super) unsafe fn decode(&self, panel: usize, positions: Range<usize>, out: *mut f32) {
        let at = (panel * self.k + positions.start) * PANEL;
        let values = &self.values[at..at + positions.len() * PANEL];
        for (position, values) in values.chunks_exact(PANEL).enumerate() {
            let mut row = [0.0f32; PANEL];
            for column in 0..PANEL {
                row[column] = float(values[column]);
            }
            // SAFETY: the caller has room for every position.
            unsafe { out.add(position * PANEL).cast::<[f32; PANEL]>().write(row) };
        }
    }
}

/// The value of a bfloat16.
#[inline(always)]
fn float(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// A quantised weight in panels of [`PANEL`] output columns.
#[derive(Clone)]
pub(super) struct Blocks {
    /// `[panels, k, PANEL]`; in four bits a byte holds a column and, above it, the sixteenth after it.
    quants: Vec<u8>,
    /// `[panels, k / group, PANEL]`
    scale: Vec<f32>,
    offset: Vec<f32>,
    group: usize,
    bits: u32,
    zero: u8,
    k: usize,
}

/// Bytes of a row of a panel in four bits.
const HALF: usize = PANEL / 2;

impl Blocks {
    /// Row-major `weight[n, k]` in blocks, if `scales` describe every element of it exactly.
    pub(super) fn new(weight: &[f32], n: usize, k: usize, scales: &BlockScales) -> Option<Self> {
        let group = scales.group;
        let per_row = k / group;
        let panels = n.div_ceil(PANEL);
        let spread = |values: &[f32]| {
            let length = if values.is_empty() {
                0
            } else {
                panels * per_row * PANEL
            };
            let mut out = vec![0.0; length];
            for (row, values) in values.chunks_exact(per_row).enumerate() {
                let start = (row / PANEL) * per_row * PANEL + row % PANEL;
                for (slot, value) in out[start..].iter_mut().step_by(PANEL).zip(values) {
                    *slot = *value;
                }
            }
            out
        };
        let mut blocks = Self {
            quants: Vec::new(),
            scale: spread(&scales.scale),
            offset: spread(&scales.offset),
            group,
            bits: scales.bits,
            zero: scales.zero,
            k,
        };
        let bytes = blocks.row_bytes();
        let mut quants = vec![0; panels * k * bytes];
        let fill = |(panel, quants): (usize, &mut [u8])| -> Option<()> {
            for column in 0..PANEL.min(n - panel * PANEL) {
                let row = panel * PANEL + column;
                let (slot, shift) = match scales.bits {
                    4 => (column % HALF, 4 * (column / HALF)),
                    _ => (column, 0),
                };
                let weight = &weight[row * k..(row + 1) * k];
                for (position, value) in weight.iter().enumerate() {
                    let q = scales.quant(row * per_row + position / group, *value)?;
                    quants[position * bytes + slot] |= q << shift;
                }
            }
            Some(())
        };
        let parts = quants.par_chunks_mut(k * bytes).enumerate();
        parts.map(fill).collect::<Option<Vec<()>>>()?;
        blocks.quants = quants;
        Some(blocks)
    }

    pub(super) fn bytes(&self) -> usize {
        let floats = size_of_val(self.scale.as_slice()) + size_of_val(self.offset.as_slice());
        self.quants.len() + floats
    }

    /// Bytes of one position of k in a panel.
    fn row_bytes(&self) -> usize {
        PANEL * self.bits as usize / 8
    }

    /// The element at output feature `row` and input feature `column`.
    pub(super) fn at(&self, row: usize, column: usize) -> f32 {
        let (panel, row) = (row / PANEL, row % PANEL);
        let bytes = self.row_bytes();
        let quants = &self.quants[(panel * self.k + column) * bytes..][..bytes];
        let q = match self.bits {
            4 => quants[row % HALF] >> (4 * (row / HALF)) & 15,
            _ => quants[row],
        };
        let block = (panel * (self.k / self.group) + column / self.group) * PANEL + row;
        let offset = self.offset.get(block).copied().unwrap_or(0.0);
        (f32::from(q) - f32::from(self.zero)) * self.scale[block] + offset
    }

    /// Floats of `positions` of a panel, `[positions, PANEL]`. The first position has to be that of a
    /// block.
    ///
    /// # Safety
    /// `out` must have room for them.
    #[inline(always)]
    pub(super) unsafe fn decode(&self, panel: usize, positions: Range<usize>, out: *mut f32) {
        let bytes = self.row_bytes();
        let at = (panel * self.k + positions.start) * bytes;
        let quants = &self.quants[at..at + positions.len() * bytes];
        let first = (panel * (self.k / self.group) + positions.start / self.group) * PANEL;
        let zero = f32::from(self.zero);
        for (index, quants) in quants.chunks(self.group * bytes).enumerate() {
            let block = first + index * PANEL;
            let mut scale = [0.0f32; PANEL];
            scale.copy_from_slice(&self.scale[block..block + PANEL]);
            let mut offset = [0.0f32; PANEL];
            if !self.offset.is_empty() {
                offset.copy_from_slice(&self.offset[block..block + PANEL]);
            }
            // SAFETY: blocks before this one have written as many positions as they hold; the caller
            // has room for all.
            let out = unsafe { out.add(index * self.group * PANEL) };
            // SAFETY: as above.
            unsafe {
                match self.bits {
                    4 => nibbles(quants, zero, &scale, &offset, out),
                    _ => whole_bytes(quants, zero, &scale, &offset, out),
                }
            }
        }
    }
}

/// # Safety
/// `out` must have room for two floats a byte.
#[inline(always)]
unsafe fn nibbles(
    quants: &[u8],
    zero: f32,
    scale: &[f32; PANEL],
    offset: &[f32; PANEL],
    out: *mut f32,
) {
    for (position, quants) in quants.chunks_exact(HALF).enumerate() {
        let mut row = [0.0f32; PANEL];
        for column in 0..HALF {
            let (low, high) = (quants[column] & 15, quants[column] >> 4);
            row[column] = (f32::from(low) - zero) * scale[column] + offset[column];
            let column = column + HALF;
            row[column] = (f32::from(high) - zero) * scale[column] + offset[column];
        }
        // SAFETY: the caller has room for a row of PANEL floats each HALF bytes.
        unsafe { out.add(position * PANEL).cast::<[f32; PANEL]>().write(row) };
    }
}

/// # Safety
/// `out` must have room for a float a byte.
#[inline(always)]
unsafe fn whole_bytes(
    quants: &[u8],
    zero: f32,
    scale: &[f32; PANEL],
    offset: &[f32; PANEL],
    out: *mut f32,
) {
    for (position, quants) in quants.chunks_exact(PANEL).enumerate() {
        let mut row = [0.0f32; PANEL];
        for column in 0..PANEL {
            row[column] = (f32::from(quants[column]) - zero) * scale[column] + offset[column];
        }
        // SAFETY: the caller has room for a row of PANEL floats each PANEL bytes.
        unsafe { out.add(position * PANEL).cast::<[f32; PANEL]>().write(row) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scales(bits: u32, zero: u8, n: usize, k: usize, has_offset: bool) -> BlockScales {
        let blocks = n * k / 32;
        let value = |i: usize| (i * 37 % 101) as f32 / 317.0 - 0.13;
        BlockScales {
            group: 32,
            bits,
            zero,
            scale: (0..blocks).map(value).collect(),
            offset: (0..blocks)
                .map(|i| value(i + 5))
                .take(if has_offset { blocks } else { 0 })
                .collect(),
        }
    }

    fn weight(scales: &BlockScales, n: usize, k: usize) -> Vec<f32> {
        let largest = usize::from(u8::MAX >> (8 - scales.bits)) + 1;
        (0..n * k)
            .map(|i| {
                let (scale, offset) = scales.block(i / 32);
                ((i * 31 % largest) as f32 - f32::from(scales.zero)) * scale + offset
            })
            .collect()
    }

    #[test]
    fn what_is_decoded_is_the_weight_to_the_bit() {
        let (n, k) = (45, 320);
        for (bits, zero, has_offset) in [(4, 0, true), (4, 8, false), (8, 128, false), (8, 0, true)]
        {
            let scales = scales(bits, zero, n, k, has_offset);
            let weight = weight(&scales, n, k);
            let blocks = Blocks::new(&weight, n, k, &scales).expect("exact");
            for panel in 0..n.div_ceil(PANEL) {
                for positions in [0..256, 256..k] {
                    let mut out = vec![f32::NAN; positions.len() * PANEL];
                    // SAFETY: as long as asked for.
                    unsafe { blocks.decode(panel, positions.clone(), out.as_mut_ptr()) };
                    for (position, row) in positions.zip(out.chunks_exact(PANEL)) {
                        let features = panel * PANEL..n.min((panel + 1) * PANEL);
                        for (feature, found) in features.zip(row) {
                            let expected = weight[feature * k + position];
                            assert_eq!(*found, expected);
                            assert_eq!(blocks.at(feature, position), expected);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn values_of_sixteen_bits_are_kept_in_sixteen() {
        let (n, k) = (40, 96);
        let mut weight: Vec<f32> = (0..n * k).map(|i| float(16_000 + i as u16)).collect();
        let halves = Halves::new(&weight, n, k).expect("halves");
        assert_eq!(halves.bytes(), 64 * k * 2);
        let mut out = vec![f32::NAN; 64 * PANEL];
        // SAFETY: as long as asked for.
        unsafe { halves.decode(1, 32..96, out.as_mut_ptr()) };
        for (index, value) in weight.iter().enumerate() {
            let (row, column) = (index / k, index % k);
            assert_eq!(halves.at(row, column), *value);
            if row >= PANEL && column >= 32 {
                assert_eq!(out[(column - 32) * PANEL + row - PANEL], *value);
            }
        }
        weight[77] = f32::from_bits(weight[77].to_bits() + 1);
        assert!(Halves::new(&weight, n, k).is_none());
    }

    #[test]
    fn a_weight_that_is_not_made_of_its_scales_is_refused() {
        let (n, k) = (3, 64);
        let scales = scales(4, 8, n, k, false);
        let mut weight = weight(&scales, n, k);
        assert!(Blocks::new(&weight, n, k, &scales).is_some());
        for wrong in [weight[70] * 1.000_001, 1e9, f32::NAN] {
            weight[70] = wrong;
            assert!(Blocks::new(&weight, n, k, &scales).is_none(), "{wrong}");
        }
    }
}
