//! Arrays that are written where they lie.
//!
//! Clearing an array before an operation fills it is one thread writing to memory while the others
//! wait; a training step does it thousands of times. Here every part is cleared by the thread that is
//! about to fill it, when it still is in that thread's cache.

#![expect(unsafe_code, reason = "memory that is written before it is read")]

use std::mem::MaybeUninit;

use rayon::prelude::*;

/// Arrays below this many floats are not worth waking a second thread.
pub(crate) const SERIAL: usize = 1 << 14;

/// `count` rows of `width` floats, zero before `fill(row, floats)` writes them.
pub(crate) fn rows(
    count: usize,
    width: usize,
    fill: impl Fn(usize, &mut [f32]) + Sync,
) -> Vec<f32> {
    // SAFETY: the rows are the whole array, and every row is cleared.
    unsafe { written(count * width, |out| fill_rows(out, width, fill)) }
}

/// [`rows`] of two arrays at once.
pub(crate) fn pairs(
    count: usize,
    width: usize,
    fill: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) -> [Vec<f32>; 2] {
    let length = count * width;
    let mut second = Vec::new();
    // SAFETY: the rows are the whole of both arrays, and every row is cleared.
    let first = unsafe {
        written(length, |first| {
            second = written(length, |second| {
                first
                    .par_chunks_mut(width.max(1))
                    .zip(second.par_chunks_mut(width.max(1)))
                    .enumerate()
                    .for_each(|(row, (a, b))| fill(row, cleared(a), cleared(b)));
            });
        })
    };
    [first, second]
}

/// [`rows`] in memory that is there: writes all of `out`.
pub(crate) fn fill_rows(
    out: &mut [MaybeUninit<f32>],
    width: usize,
    fill: impl Fn(usize, &mut [f32]) + Sync,
) {
    let width = width.max(1);
    debug_assert_eq!(out.len() % width, 0, "whole rows");
    if out.len() < SERIAL {
        for (row, out) in out.chunks_mut(width).enumerate() {
            fill(row, cleared(out));
        }
    } else {
        out.par_chunks_mut(width)
            .enumerate()
            .for_each(|(row, out)| fill(row, cleared(out)));
    }
}

/// An array made of parts of these lengths, zero before `fill(part, floats)` writes them.
pub(crate) fn parts(lengths: Vec<usize>, fill: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    let length = lengths.iter().sum();
    // SAFETY: the parts are the whole array, and every part is cleared.
    unsafe {
        written(length, |mut rest| {
            let mut parts = Vec::with_capacity(lengths.len());
            for (index, length) in lengths.into_iter().enumerate() {
                let (part, after) = rest.split_at_mut(length);
                parts.push((index, part));
                rest = after;
            }
            if length < SERIAL {
                for (index, part) in parts {
                    fill(index, cleared(part));
                }
            } else {
                parts
                    .into_par_iter()
                    .for_each(|(index, part)| fill(index, cleared(part)));
            }
        })
    }
}

/// An array of `length` floats that `write` writes.
///
/// # Safety
/// `write` must write every one of them.
pub(crate) unsafe fn written(
    length: usize,
    write: impl FnOnce(&mut [MaybeUninit<f32>]),
) -> Vec<f32> {
    let mut out = Vec::with_capacity(length);
    write(&mut out.spare_capacity_mut()[..length]);
    // SAFETY: as many have been written.
    unsafe { out.set_len(length) };
    out
}

/// Zeros where nothing was.
pub(crate) fn cleared(part: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    part.fill(MaybeUninit::new(0.0));
    // SAFETY: every float has just been written.
    unsafe { &mut *(std::ptr::from_mut(part) as *mut [f32]) }
}

/// Floats that are there, for a kernel that may leave them or write over them.
///
/// # Safety
/// Nothing but floats may be written.
pub(crate) unsafe fn present(floats: &mut [f32]) -> &mut [MaybeUninit<f32>] {
    // SAFETY: a float may stand where one may be missing; the caller writes floats only.
    unsafe { &mut *(std::ptr::from_mut(floats) as *mut [MaybeUninit<f32>]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_filled_by_its_number_and_zero_before() {
        for scale in [1, 3000] {
            let lengths = vec![2 * scale, 0, scale, 5 * scale];
            let out = parts(lengths, |part, floats| {
                assert!(floats.iter().all(|value| *value == 0.0));
                floats.fill(part as f32);
            });
            let expected = [vec![0.0; 2 * scale], vec![2.0; scale], vec![3.0; 5 * scale]];
            assert_eq!(out, expected.concat());
        }
        assert_eq!(
            rows(3, 2, |row, out| out[1] = row as f32),
            [0., 0., 0., 1., 0., 2.]
        );
        assert!(rows(0, 4, |_, _| ()).is_empty());
    }
}
