//! Float arrays that begin on a cache line.
//!
//! A 64-byte load that is not aligned touches two lines, which halves the speed of every kernel
//! that streams from the second-level cache.

#![expect(unsafe_code, reason = "viewing cache lines as floats")]

use std::ops::{Deref, DerefMut};

/// Floats of one cache line.
const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// A fixed number of floats, zero at first, aligned to 64 bytes.
#[derive(Clone)]
pub(crate) struct AlignedFloats {
    lines: Vec<Line>,
    length: usize,
}

impl AlignedFloats {
    pub(crate) fn zeros(length: usize) -> Self {
        Self {
            lines: zeroed(length.div_ceil(LINE)),
            length,
        }
    }
}

/// Zero lines straight from the system, which hands out pages only when they are written: a large
/// key-value pool takes the memory it uses, not the memory it may use.
fn zeroed(count: usize) -> Vec<Line> {
    let Ok(layout) = std::alloc::Layout::array::<Line>(count) else {
        return vec![Line([0.0; LINE]); count];
    };
    if layout.size() == 0 {
        return Vec::new();
    }
    // SAFETY: the layout is not empty and is that of a vector of `count` lines; all-zero bytes are
    // zero floats.
    unsafe {
        let pointer = std::alloc::alloc_zeroed(layout);
        if pointer.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Vec::from_raw_parts(pointer.cast(), count, count)
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
        // SAFETY: a line is sixteen floats without padding, and `length` floats fit the lines.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }
}

impl DerefMut for AlignedFloats {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as for `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
}
