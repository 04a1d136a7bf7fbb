//! Float arrays that begin on a cache line.
//!
//! A 64-byte load that is not aligned touches two lines, which halves the speed of every kernel
//! that streams from the second-level cache.

#![expect(unsafe_code, reason = "memory that is written before it is read")]

use std::ops::{Deref, DerefMut};

use super::fresh;

/// Floats of one cache line.
const LINE: usize = 16;

/// Floats before the first that begins a cache line.
fn offset(pointer: *const f32) -> usize {
    pointer.align_offset(LINE * size_of::<f32>()).min(LINE)
}

/// A fixed number of floats, zero at first, aligned to 64 bytes.
///
/// Zeros come from the system, which hands out pages only when they are written: a large key-value
/// pool takes the memory it uses, not the memory it may use. Asking the allocator for an aligned
/// array would not do that: aligned memory is cleared by writing to it.
pub(crate) struct AlignedFloats {
    storage: Vec<f32>,
    start: usize,
    length: usize,
}

impl AlignedFloats {
    pub(crate) fn zeros(length: usize) -> Self {
        let storage = vec![0.0f32; length + LINE];
        let start = offset(storage.as_ptr());
        Self {
            storage,
            start,
            length,
        }
    }
}

impl AlignedFloats {
    /// `count` rows of `width` floats, zero before `fill(row, floats)` writes them.
    pub(crate) fn rows(
        count: usize,
        width: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        let length = count * width;
        let mut start = 0;
        // SAFETY: what comes before the rows, the rows and what comes after them is all there is.
        let storage = unsafe {
            fresh::written(length + LINE, |all| {
                start = offset(all.as_ptr().cast());
                fresh::cleared(&mut all[..start]);
                fresh::fill_rows(&mut all[start..start + length], width, fill);
                fresh::cleared(&mut all[start + length..]);
            })
        };
        Self {
            storage,
            start,
            length,
        }
    }
}

impl Clone for AlignedFloats {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.length);
        copy.copy_from_slice(self);
        copy
    }
}

impl std::fmt::Debug for AlignedFloats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedFloats[{}]", self.length)
    }
}

impl Deref for AlignedFloats {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.storage[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedFloats {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.storage[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_and_their_copies_are_aligned_and_as_long_as_asked() {
        for length in [0, 1, 15, 16, 1000] {
            let mut floats = AlignedFloats::zeros(length);
            floats.iter_mut().for_each(|value| *value = 2.0);
            for array in [floats.clone(), floats] {
                assert_eq!(array.len(), length);
                assert!(array.iter().all(|value| *value == 2.0));
                assert_eq!(array.as_ptr() as usize % 64, 0);
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_not_used_takes_no_memory() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
            text.split(' ')
                .nth(1)
                .and_then(|pages| pages.parse::<usize>().ok())
                .expect("pages")
                * 4096
        };
        let before = resident();
        let pool = AlignedFloats::zeros(1 << 28);
        let taken = resident().saturating_sub(before);
        assert!(taken < pool.len(), "{taken} bytes of a gibibyte");
    }
}
