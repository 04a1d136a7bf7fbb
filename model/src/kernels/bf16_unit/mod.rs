//! Instructions that multiply bfloat16 and add in f32: one 32 × 32 block of a product, on whichever
//! this processor has.
//!
//! Both read the tiles that [`super::tile_gemm`] stores: a tile of inputs is sixteen rows of 32 values
//! of k, one of weights sixteen pairs of k times sixteen columns.

#![expect(unsafe_code, reason = "these instructions have no safe form")]

mod amx;
mod dots;

use std::sync::LazyLock;

/// One block of output and its operands.
pub(super) struct Product {
    pub(super) input: *const u8,
    pub(super) weight: *const u8,
    /// Tiles along k.
    pub(super) depth: usize,
    /// Parts that each operand is the sum of, one or two.
    pub(super) parts: usize,
    pub(super) out: *mut f32,
    /// Bytes between rows of the output.
    pub(super) stride: usize,
    /// Whether sums start at zero rather than at what the output holds.
    pub(super) is_fresh: bool,
    /// Rows that hold anything, 1 to 32.
    pub(super) height: usize,
}

/// What computes a [`Product`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Intel AMX: whole tiles at once.
    Tiles,
    /// AVX-512 BF16: sixteen dot products of two values.
    Dots,
}

impl Unit {
    /// The faster one this machine has.
    pub(super) fn here() -> Option<Self> {
        static HERE: LazyLock<Option<Unit>> = LazyLock::new(|| Unit::all_here().next());
        *HERE
    }

    /// Those this machine has, the faster one first.
    pub(super) fn all_here() -> impl Iterator<Item = Self> {
        [
            (Self::Tiles, amx::request as fn() -> bool),
            (Self::Dots, dots::is_available),
        ]
        .into_iter()
        .filter_map(|(unit, is_here)| is_here().then_some(unit))
    }

    /// Whether products are faster on it than on f32 lanes. Of the processors with `vdpbf16ps`, AMD's
    /// issue it as often as f32 multiply-adds and gain twofold; an Intel one without AMX was seen to
    /// take twice the time. A rule rather than a timing, since a run that is resumed has to compute as before.
    pub(super) fn is_faster_than_lanes(self) -> bool {
        match self {
            Self::Tiles => true,
            Self::Dots => dots::is_full_rate(),
        }
    }

    /// Set this thread up for products.
    ///
    /// # Safety
    /// The machine has this unit.
    pub(super) unsafe fn begin(self) {
        if self == Self::Tiles {
            // SAFETY: the caller knows that the unit is there.
            unsafe { amx::configure() };
        }
    }

    /// Undo [`Self::begin`].
    ///
    /// # Safety
    /// The machine has this unit.
    pub(super) unsafe fn end(self) {
        if self == Self::Tiles {
            // SAFETY: the caller knows that the unit is there.
            unsafe { amx::release() };
        }
    }

    /// Compute one block of 32 columns. Rows above `height` of the output may be written too.
    ///
    /// # Safety
    /// Between [`Self::begin`] and [`Self::end`] on this thread; both operands have `depth` times
    /// `parts` pairs of tiles from where they point, the output 32 rows of 32 floats.
    pub(super) unsafe fn run(self, product: &Product) {
        // SAFETY: the caller upholds what both ask for.
        unsafe {
            match self {
                Self::Tiles => product.run_on_tiles(),
                Self::Dots => product.run_on_dots(),
            }
        }
    }
}
